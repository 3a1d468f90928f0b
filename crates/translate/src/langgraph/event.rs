//! Records of LangChain's event stream, and message events of the newer streaming protocol.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::message::{CallChunk, Message};
use super::{Block, GraphLevel, MessagesKey, Origin};
use crate::json::{self, Str};

/// A record of `astream_events`.
#[derive(Debug, Deserialize)]
pub struct ModelEvent<'a> {
    /// `on_chat_model_stream` and the like.
    #[serde(borrow)]
    pub event: Str<'a>,
    /// The name of what runs: a node, a tool, a model, or a custom event's own.
    #[serde(borrow)]
    pub name: Option<Str<'a>>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    tags: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

/// A message event of the newer streaming protocol.
#[derive(Debug)]
pub enum ProtocolEvent<'a> {
    /// `message-start`.
    MessageStart {
        /// `ai` or `tool`.
        role: Cow<'a, str>,
        /// The message's id.
        id: Cow<'a, str>,
    },
    /// `content-block-start` or `-delta`: text or reasoning.
    Block(Vec<Block<'a>>),
    /// `content-block-start` or `-delta`: a fragment of a tool call.
    Call(CallChunk<'a>),
    /// `message-finish`.
    MessageFinish {
        /// The tokens that the call has cost.
        usage: Option<json::Members<'a>>,
        /// What the provider said about its answer.
        metadata: Option<json::Members<'a>>,
    },
    /// `content-block-finish`: the block again, whole.
    Repeat,
}

// === impl ModelEvent ===

impl<'a> ModelEvent<'a> {
    /// Where it comes from.
    pub fn origin(&self) -> Origin {
        let metadata = self.metadata.and_then(json::members).unwrap_or_default();
        Origin::from_members(&metadata, self.tags)
    }

    /// The raw metadata and tags, to tell whether an origin is the previous one.
    pub(crate) fn origin_bytes(&self) -> (&'a str, &'a str) {
        (self.metadata.map_or("", RawValue::get), self.tags.map_or("", RawValue::get))
    }

    /// `data.chunk`, as a message.
    pub fn chunk(&self) -> Option<Message<'a>> {
        json::members(self.data?)?.get("chunk").and_then(Message::parse)
    }

    /// `data.output`, as a message. Older servers wrap a model's answer in generations.
    pub fn output(&self) -> Option<Message<'a>> {
        let output = json::members(self.data?)?.get("output")?;
        let members = json::members(output)?;
        let Some(generations) = members.get("generations") else { return Message::parse(output) };
        let first = *json::items(json::items(generations)?.first()?)?.first()?;
        json::members(first)?.get("message").and_then(Message::parse)
    }

    /// The messages that a tool's `Command` puts into the state.
    pub(crate) fn command_messages(
        &self,
        key: &MessagesKey,
        place: GraphLevel,
    ) -> Vec<Message<'a>> {
        let messages = || {
            let output = json::members(json::members(self.data?)?.get("output")?)?;
            json::items(key.find(&json::members(output.get("update")?)?, place)?)
        };
        messages().unwrap_or_default().into_iter().filter_map(Message::parse).collect()
    }

    /// The messages that a node returned, at its end.
    pub(crate) fn node_messages(&self, key: &MessagesKey, place: GraphLevel) -> Vec<Message<'a>> {
        let output = || json::members(self.data?)?.get("output");
        output().map(|output| super::values::messages_of(output, key, place)).unwrap_or_default()
    }

    /// The payload of a custom event.
    pub fn payload(&self) -> Option<&'a RawValue> {
        self.data
    }
}

// === impl ProtocolEvent ===

impl<'a> ProtocolEvent<'a> {
    pub(super) fn parse(data: &'a RawValue) -> Option<Self> {
        let members = json::members(data)?;
        Some(match &*members.string("event")? {
            "message-start" => Self::MessageStart {
                role: members.string("role").unwrap_or(Cow::Borrowed("ai")),
                id: members.string("id")?,
            },
            "content-block-start" => Self::block(&members, members.get("content")?),
            // The server names a tool message's delta `content`.
            "content-block-delta" => {
                Self::block(&members, members.get("delta").or_else(|| members.get("content"))?)
            }
            "content-block-finish" => Self::Repeat,
            "message-finish" => Self::MessageFinish {
                usage: members.get("usage").and_then(json::members),
                metadata: members.get("metadata").and_then(json::members),
            },
            _ => return None,
        })
    }

    fn block(event: &json::Members<'a>, content: &'a RawValue) -> Self {
        let index = event.get("index").map(RawValue::get);
        let members = json::members(content).unwrap_or_default();
        let reasoning = |text| {
            vec![Block::Reasoning(super::Reasoning { index, text, ..super::Reasoning::default() })]
        };
        match members.get("type").map_or("", RawValue::get) {
            "\"text-delta\"" | "\"text\"" => {
                Self::Block(members.text("text").into_iter().map(Block::Text).collect())
            }
            "\"reasoning-delta\"" | "\"reasoning\"" => {
                Self::Block(reasoning(members.text("reasoning").filter(|text| !text.is_empty())))
            }
            "\"tool-call-delta\"" | "\"tool_call_chunk\"" => Self::Call(CallChunk {
                index,
                id: members.string("id"),
                name: members.string("name"),
                args: members.text("args").filter(|args| !args.is_empty()),
            }),
            _ => Self::Repeat,
        }
    }
}
