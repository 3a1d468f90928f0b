//! Tokens in `messages` tuples: `[message, metadata]`.

use super::dialect_event::{DialectEvent, Producer};
use super::{Context, Dialect, RawPart, chunk};
use crate::langgraph::call_metadata::LastMetadata;
use crate::langgraph::{Message, Part};

/// The machine of `messages-tuple`.
#[derive(Debug, Default)]
pub(super) struct Tuples {
    last_origin: LastMetadata,
}

/// A part: a token, or a whole message.
#[derive(Debug)]
pub(super) struct Tuple<'a> {
    message: Box<Message<'a>>,
    /// The metadata of the call, not yet parsed: every token of a call repeats them.
    metadata: &'a str,
}

// === impl Tuples ===

impl Dialect for Tuples {
    type Part<'a> = Tuple<'a>;

    const STARTS_MESSAGES: bool = false;
    const MARKS_SUBGRAPHS: bool = false;

    fn read<'a>(raw: &RawPart<'_, 'a>) -> Option<Part<'a>> {
        (raw.mode == "messages").then(|| raw.said(Tuple::parse(raw.data), "messages"))
    }

    fn translate(
        &mut self,
        tuple: &Tuple<'_>,
        context: Context<'_>,
        emit: &mut dyn FnMut(DialectEvent<'_, '_>),
    ) {
        let origin = self.last_origin.read(tuple.metadata);
        chunk::translate(&tuple.message, Producer { namespace: context.namespace, origin }, emit);
    }
}

// === impl Tuple ===

impl<'a> Tuple<'a> {
    /// Reads the message, and leaves the metadata unread.
    ///
    /// Two thirds of a token's bytes are metadata that repeat the previous token's. Slicing them
    /// off the message lets the machine compare instead of parse them.
    fn parse(data: &'a str) -> Option<Self> {
        let inside = data.trim_start().strip_prefix('[')?;
        let mut stream = serde_json::Deserializer::from_str(inside).into_iter::<Message<'_>>();
        let message = stream.next()?.ok()?;
        let rest = inside.get(stream.byte_offset()..)?;
        let metadata = rest.trim_start().strip_prefix(',')?.trim_end().strip_suffix(']')?.trim();
        Some(Self { message: Box::new(message), metadata })
    }
}
