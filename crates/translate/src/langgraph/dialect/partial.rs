//! Prefixes in `messages/partial`, and the modes beside it: `messages/complete` and `/metadata`.

use std::collections::HashMap;
use std::iter;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::dialect_event::{DialectEvent, MessageId, Piece, Producer};
use super::{Context, Dialect, RawPart, chunk};
use crate::json::{self, Str};
use crate::langgraph::call_metadata::LastMetadata;
use crate::langgraph::{CallMetadata, Message, MessageType, Part};

/// The machine of the `messages` mode of older clients.
#[derive(Debug, Default)]
pub(super) struct Partial {
    last_origin: LastMetadata,
    /// By message id, from `messages/metadata`.
    origins: HashMap<String, Arc<CallMetadata>>,
}

/// A part.
#[derive(Debug)]
pub(super) enum PartialPart<'a> {
    /// `messages/partial`: messages as accumulated so far.
    Prefixes(Vec<Message<'a>>),
    /// `messages/complete`: messages that did not stream.
    Wholes(Vec<Message<'a>>),
    /// `messages/metadata`: by message id, the metadata of the call that makes it.
    Origins(Vec<(Str<'a>, &'a RawValue)>),
}

// === impl Partial ===

impl Dialect for Partial {
    type Part<'a> = PartialPart<'a>;

    // A prefix begins with the message.
    const STARTS_MESSAGES: bool = true;
    const MARKS_SUBGRAPHS: bool = false;

    fn read<'a>(raw: &RawPart<'_, 'a>) -> Option<Part<'a>> {
        Some(match raw.mode {
            "messages/partial" => {
                raw.said(parse(raw.data, PartialPart::Prefixes), "messages/partial")
            }
            "messages/complete" => {
                raw.said(parse(raw.data, PartialPart::Wholes), "messages/complete")
            }
            "messages/metadata" => {
                let origins = |members: json::Members<'a>| PartialPart::Origins(members.0);
                raw.said(parse(raw.data, origins), "messages/metadata")
            }
            _ => return None,
        })
    }

    fn translate(
        &mut self,
        part: &PartialPart<'_>,
        context: Context<'_>,
        emit: &mut dyn FnMut(DialectEvent<'_, '_>),
    ) {
        let namespace = context.namespace;
        match part {
            PartialPart::Prefixes(messages) => {
                for message in messages {
                    let Some(id) = message.id() else { continue };
                    let origin = self.origin_of(message);
                    let producer = Producer { namespace, origin: &origin };
                    translate_prefix(message, &id, producer, emit);
                }
            }
            PartialPart::Wholes(messages) => {
                for message in messages {
                    let origin = self.origin_of(message);
                    chunk::translate_whole(message, Producer { namespace, origin: &origin }, emit);
                }
            }
            PartialPart::Origins(by_id) => self.note_origins(by_id),
        }
    }
}

impl Partial {
    fn note_origins(&mut self, by_id: &[(Str<'_>, &RawValue)]) {
        for (id, value) in by_id {
            let metadata = json::members(value).and_then(|members| members.get("metadata"));
            if let Some(metadata) = metadata {
                let origin = Arc::clone(self.last_origin.read(metadata.get()));
                self.origins.insert((**id).to_owned(), origin);
            }
        }
    }

    fn origin_of(&self, message: &Message<'_>) -> Arc<CallMetadata> {
        let known = message.id().and_then(|id| self.origins.get(&*id));
        known.map(Arc::clone).unwrap_or_default()
    }
}

fn parse<'a, T: Deserialize<'a>>(
    data: &'a str,
    wrap: impl FnOnce(T) -> PartialPart<'a>,
) -> Option<PartialPart<'a>> {
    serde_json::from_str(data).ok().map(wrap)
}

fn translate_prefix(
    message: &Message<'_>,
    id: &str,
    producer: Producer<'_>,
    emit: &mut dyn FnMut(DialectEvent<'_, '_>),
) {
    if !matches!(message.kind(), MessageType::Ai | MessageType::AiChunk) {
        return chunk::translate_whole(message, producer, emit);
    }
    let piece = if message.is_last() { Piece::Whole(message) } else { Piece::Prefix(message) };
    let message = MessageId::Own(id);
    emit(DialectEvent::Pieces { producer, message, pieces: &mut iter::once(piece) });
}
