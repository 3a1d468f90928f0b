//! The `events` mode: records of LangChain's `astream_events`.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::dialect_event::{DialectEvent, Edge, Producer};
use super::{Context, Dialect, RawPart, chunk};
use crate::json::{self, Str};
use crate::langgraph::call_metadata::LastMetadata;
use crate::langgraph::values::messages_of;
use crate::langgraph::{
    CallMetadata, GraphLevel, Message, MessageType, MessagesKey, Part, copilotkit, is_internal_node,
};

/// The machine of `events`.
#[derive(Debug, Default)]
pub(super) struct Events {
    last_origin: LastMetadata,
}

/// The kinds of parts that have a token.
const TOKEN_KINDS: [&str; 2] = ["on_chat_model_stream", "on_llm_stream"];

/// Whether a part may have a token: its text names such a kind.
pub(in crate::langgraph) fn may_have_token(data: &str) -> bool {
    TOKEN_KINDS.iter().any(|kind| data.contains(kind))
}

/// A part: one record.
#[derive(Debug, Deserialize)]
pub(super) struct ModelEvent<'a> {
    /// `on_chat_model_stream` and the like.
    #[serde(borrow)]
    event: Str<'a>,
    /// The name of what runs: a node, a tool, a model, or a custom event's own.
    #[serde(borrow)]
    name: Option<Str<'a>>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    tags: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

// === impl Events ===

impl Dialect for Events {
    type Part<'a> = Box<ModelEvent<'a>>;

    const STARTS_MESSAGES: bool = false;
    const MARKS_SUBGRAPHS: bool = false;

    fn read<'a>(raw: &RawPart<'_, 'a>) -> Option<Part<'a>> {
        let parse = || serde_json::from_str(raw.data).ok().map(Box::<ModelEvent<'a>>::new);
        (raw.mode == "events").then(|| raw.said(parse(), "events"))
    }

    fn translate(
        &mut self,
        event: &Box<ModelEvent<'_>>,
        context: Context<'_>,
        emit: &mut dyn FnMut(DialectEvent<'_, '_>),
    ) {
        let (metadata, tags) = event.origin_bytes();
        let origin = &**self.last_origin.read_with(metadata, tags, || event.origin());
        let producer = Producer { namespace: context.namespace, origin };
        let place = GraphLevel::of(context.namespace, &origin.checkpoint_ns);
        let is_node =
            origin.node.as_deref().is_some_and(|node| event.name.as_deref() == Some(node));
        match &*event.event {
            kind if TOKEN_KINDS.contains(&kind) => {
                if let Some(chunk) = event.chunk() {
                    chunk::translate_chunk(&chunk, producer, emit);
                }
            }
            "on_chat_model_end" => {
                if let Some(message) = event.output() {
                    emit(DialectEvent::Whole { producer, message: &message });
                }
            }
            "on_tool_end" => {
                let output = event.output().filter(|message| message.kind() == MessageType::Tool);
                let written = event.command_messages(context.key, place);
                for message in output.into_iter().chain(written) {
                    chunk::translate(&message, producer, emit);
                }
            }
            "on_custom_event" => {
                let name = event.name.as_deref().unwrap_or("langgraph.custom");
                let payload = event.data.unwrap_or(RawValue::NULL);
                let emitted = copilotkit::emitted(name, payload);
                emit(DialectEvent::Emitted { producer, emitted });
            }
            "on_chain_start" if is_node => translate_node(origin, Edge::Start, emit),
            "on_chain_end" if is_node => {
                for message in event.node_messages(context.key, place) {
                    emit(DialectEvent::Whole { producer, message: &message });
                }
                translate_node(origin, Edge::End, emit);
            }
            _ => {}
        }
    }
}

fn translate_node(origin: &CallMetadata, edge: Edge, emit: &mut dyn FnMut(DialectEvent<'_, '_>)) {
    let (Some(node), Some(task)) = (origin.node.as_deref(), origin.task()) else { return };
    let (namespace, _) = origin.checkpoint_ns.rsplit_once('|').unwrap_or_default();
    if !is_internal_node(node) {
        emit(DialectEvent::Node { namespace, task, node, agent: origin.agent.as_deref(), edge });
    }
}

// === impl ModelEvent ===

impl<'a> ModelEvent<'a> {
    fn origin(&self) -> CallMetadata {
        let metadata = self.metadata.and_then(json::members).unwrap_or_default();
        CallMetadata::from_members(&metadata, self.tags)
    }

    /// The raw metadata and tags, to find whether an origin is the previous one.
    fn origin_bytes(&self) -> (&'a str, &'a str) {
        (self.metadata.map_or("", RawValue::get), self.tags.map_or("", RawValue::get))
    }

    /// `data.chunk`, as a message. If no other mode is requested, a JavaScript graph of the Python
    /// server sends `["debug", chunk]`, and with subgraphs `[[], "debug", chunk]` (langgraph-api
    /// 0.16.7).
    fn chunk(&self) -> Option<Message<'a>> {
        let chunk = json::members(self.data?)?.get("chunk")?;
        let last = json::items(chunk).and_then(|wrapped| wrapped.last().copied());
        Message::parse(last.unwrap_or(chunk))
    }

    /// `data.output`, as a message. Older servers wrap a model's answer in generations.
    fn output(&self) -> Option<Message<'a>> {
        let output = json::members(self.data?)?.get("output")?;
        let members = json::members(output)?;
        let Some(generations) = members.get("generations") else { return Message::parse(output) };
        let first = *json::items(json::items(generations)?.first()?)?.first()?;
        json::members(first)?.get("message").and_then(Message::parse)
    }

    /// The messages that a tool's `Command` puts into the state.
    fn command_messages(&self, key: &MessagesKey, place: GraphLevel) -> Vec<Message<'a>> {
        let messages = || {
            let output = json::members(json::members(self.data?)?.get("output")?)?;
            json::items(key.find(&json::members(output.get("update")?)?, place)?)
        };
        messages().unwrap_or_default().into_iter().filter_map(Message::parse).collect()
    }

    /// The messages that a node returned, at its end.
    fn node_messages(&self, key: &MessagesKey, place: GraphLevel) -> Vec<Message<'a>> {
        let output = || json::members(self.data?)?.get("output");
        output().map(|output| messages_of(output, key, place)).unwrap_or_default()
    }
}
