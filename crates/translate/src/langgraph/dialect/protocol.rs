//! The newer streaming protocol, as a join of one of its runs delivers it.
//!
//! Each part is an envelope under the name of its method, which may be that of a legacy mode:
//! `{"type": "event", "method": .., "params": {"namespace": [..], "timestamp": .., "data": ..}}`.
//!
//! A graph may write data of this form, as its state or to its stream. So an envelope counts only
//! in a stream of envelopes: see `StreamForm`.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;

use super::dialect_event::{Cost, DialectEvent, Edge, MessageId, Piece, Producer};
use super::{Context, Dialect, RawPart, Wrapping};
use crate::json::{self, Members, Text};
use crate::langgraph::{
    CallChunk, CallMetadata, Finish, Part, PartPayload, RawInterrupt, Reasoning,
};

/// The machine of the newer protocol.
#[derive(Debug, Default)]
pub(super) struct Protocol {
    messages: Messages,
}

/// The messages under way.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// By namespace, or by task: the message that blocks belong to.
    ids: HashMap<String, String>,
    /// The newer protocol names no origin beside its namespace.
    origin: CallMetadata,
}

/// A part: an envelope of which only this protocol knows the contents.
#[derive(Debug)]
pub(super) enum ProtocolPart<'a> {
    /// `messages`.
    Message(Box<MessageEvent<'a>>),
    /// `lifecycle`.
    Lifecycle(Lifecycle<'a>),
}

/// A step in the life of a message.
#[derive(Debug)]
pub(super) enum MessageEvent<'a> {
    /// `message-start`.
    Start {
        /// `ai`, `tool`, or `human` on the JavaScript server.
        role: Cow<'a, str>,
        id: Cow<'a, str>,
    },
    /// `content-block-start` or `-delta` of a text.
    Text(Option<Text>),
    /// `content-block-start` or `-delta` of a thought.
    Reasoning(Reasoning<'a>),
    /// `content-block-start` or `-delta` of a tool call.
    Call(CallChunk<'a>),
    /// `message-finish`.
    Finish {
        /// The tokens that the call has cost.
        usage: Option<Members<'a>>,
        /// What the provider said about its answer.
        metadata: Option<Members<'a>>,
        /// Why the model stopped.
        finish: Option<Finish>,
    },
    /// `content-block-finish`, which repeats the block, a block of another type, or `usage`, which
    /// `message-finish` repeats.
    Silent,
}

/// A subgraph begins or ends.
#[derive(Debug)]
pub(super) struct Lifecycle<'a> {
    edge: Edge,
    /// The name of the agent.
    agent: Option<Cow<'a, str>>,
    /// The tool call that started it.
    tool_call: Option<Cow<'a, str>>,
}

/// What a part is wrapped in.
struct Envelope<'a> {
    method: Cow<'a, str>,
    params: Members<'a>,
}

// === impl Protocol ===

impl Dialect for Protocol {
    type Part<'a> = ProtocolPart<'a>;

    // A join replays the run from its beginning.
    const STARTS_MESSAGES: bool = true;
    const MARKS_SUBGRAPHS: bool = true;

    fn read<'a>(raw: &RawPart<'_, 'a>) -> Option<Part<'a>> {
        if raw.wrapping != Wrapping::Possible {
            return None;
        }
        let envelope = Envelope::parse(raw.data).filter(|envelope| envelope.method == raw.mode)?;
        Some(envelope.open(raw))
    }

    fn translate(
        &mut self,
        part: &ProtocolPart<'_>,
        context: Context<'_>,
        emit: &mut dyn FnMut(DialectEvent<'_, '_>),
    ) {
        match part {
            ProtocolPart::Message(event) => {
                self.messages.translate(event, context.namespace, context.namespace, emit);
            }
            ProtocolPart::Lifecycle(lifecycle) => lifecycle.translate(context.namespace, emit),
        }
    }

    fn forget(&mut self) {
        self.messages.clear();
    }
}

// === impl Messages ===

impl Messages {
    pub(super) fn clear(&mut self) {
        self.ids.clear();
    }

    /// Yields what an event says about the message that is under way in `place`.
    pub(super) fn translate(
        &mut self,
        event: &MessageEvent<'_>,
        place: &str,
        namespace: &str,
        emit: &mut dyn FnMut(DialectEvent<'_, '_>),
    ) {
        let piece = match event {
            // A tool's answer comes whole in `values`; its namespace names a call, not a task. So
            // does a person's message.
            MessageEvent::Start { role, id } if role == "ai" => {
                self.ids.insert(place.to_owned(), (**id).to_owned());
                return;
            }
            MessageEvent::Start { .. } => {
                self.ids.remove(place);
                return;
            }
            MessageEvent::Silent => return,
            MessageEvent::Text(text) => text.clone().map(Piece::Text),
            MessageEvent::Reasoning(piece) => Some(Piece::Reasoning(piece.clone())),
            MessageEvent::Call(chunk) => Some(Piece::Call(chunk.clone())),
            MessageEvent::Finish { usage, .. } => usage.as_ref().map(|usage| {
                let metadata = event.metadata();
                Piece::Cost(Cost::Total { usage, metadata })
            }),
        };
        let Some(id) = self.ids.get(place) else { return };
        let (finish, end) = if let MessageEvent::Finish { finish, .. } = event {
            (finish.map(Piece::Finish), Some(Piece::End))
        } else {
            (None, None)
        };
        emit(DialectEvent::Pieces {
            producer: Producer { namespace, origin: &self.origin },
            message: MessageId::Own(id),
            pieces: &mut piece.into_iter().chain(finish).chain(end),
        });
    }
}

/// Why the model stopped. LangChain's own words are beside the provider's metadata, or inside.
fn finish_of(event: &Members<'_>) -> Option<Finish> {
    let metadata = || event.get("metadata").and_then(json::members);
    Finish::of(event).or_else(|| Finish::of(&metadata()?))
}

// === impl MessageEvent ===

impl<'a> MessageEvent<'a> {
    pub(super) fn parse(data: &'a RawValue) -> Option<Self> {
        let members = json::members(data)?;
        Some(match &*members.string("event")? {
            "message-start" => Self::Start {
                role: members.string("role").unwrap_or(Cow::Borrowed("ai")),
                id: members.string("id")?,
            },
            "content-block-start" => Self::block(&members, members.get("content")?),
            // The server names a tool message's delta `content`.
            "content-block-delta" => {
                Self::block(&members, members.get("delta").or_else(|| members.get("content"))?)
            }
            "content-block-finish" | "usage" => Self::Silent,
            "message-finish" => Self::Finish {
                usage: members.get("usage").and_then(json::members),
                metadata: members.get("metadata").and_then(json::members),
                finish: finish_of(&members),
            },
            _ => return None,
        })
    }

    fn block(event: &Members<'a>, content: &'a RawValue) -> Self {
        let index = event.get("index").map(RawValue::get);
        let members = json::members(content).unwrap_or_default();
        match members.get("type").map_or("", RawValue::get) {
            "\"text-delta\"" | "\"text\"" => Self::Text(members.text("text")),
            "\"reasoning-delta\"" | "\"reasoning\"" => Self::Reasoning(Reasoning {
                index,
                text: members.text("reasoning").filter(|text| !text.is_empty()),
                ..Reasoning::default()
            }),
            "\"tool-call-delta\"" | "\"tool_call_chunk\"" => Self::Call(CallChunk {
                index,
                id: members.string("id"),
                name: members.string("name"),
                args: members.text("args").filter(|args| !args.is_empty()),
            }),
            _ => Self::Silent,
        }
    }

    fn metadata(&self) -> Option<&Members<'a>> {
        match self {
            Self::Finish { metadata, .. } => metadata.as_ref(),
            Self::Start { .. }
            | Self::Text(_)
            | Self::Reasoning(_)
            | Self::Call(_)
            | Self::Silent => None,
        }
    }
}

// === impl Lifecycle ===

impl<'a> Lifecycle<'a> {
    /// Reads a `lifecycle`. A failure of the run is one too, and is in the run's record as well.
    fn parse(data: &'a RawValue) -> Option<Self> {
        let members = json::members(data).unwrap_or_default();
        let edge = match members.string("event").as_deref() {
            Some("started") => Edge::Start,
            Some("completed" | "failed" | "interrupted") => Edge::End,
            _ => return None,
        };
        let cause = members.get("cause").and_then(json::members).unwrap_or_default();
        Some(Self {
            edge,
            agent: members.string("graph_name"),
            tool_call: cause.string("tool_call_id"),
        })
    }

    fn translate(&self, namespace: &str, emit: &mut dyn FnMut(DialectEvent<'_, '_>)) {
        // The run's own beginning and end come in other ways.
        if !namespace.is_empty() {
            emit(DialectEvent::Subgraph {
                namespace,
                agent: self.agent.as_deref(),
                call: self.tool_call.as_deref(),
                edge: self.edge,
            });
        }
    }
}

// === impl Envelope ===

impl<'a> Envelope<'a> {
    fn parse(data: &'a str) -> Option<Self> {
        if !data.starts_with("{\"type\":\"event\"") {
            return None;
        }
        let members: Members<'_> = serde_json::from_str(data).ok()?;
        let params = json::members(members.get("params")?)?;
        let is_list = params.get("namespace").is_some_and(|names| names.get().starts_with('['));
        params.number("timestamp").filter(|_| is_list)?;
        Some(Self { method: members.string("method")?, params })
    }

    fn namespace(&self) -> String {
        let segments = self.params.get("namespace").and_then(json::items).unwrap_or_default();
        segments.into_iter().filter_map(json::string).collect::<Vec<_>>().join("|")
    }

    fn open(&self, raw: &RawPart<'_, 'a>) -> Part<'a> {
        let data = self.params.get("data");
        let inner = RawPart {
            mode: &self.method,
            namespace: Cow::Owned(self.namespace()),
            data: data.map_or("", RawValue::get),
            key: raw.key,
            wrapping: Wrapping::Opened,
        };
        let Some(data) = data else { return inner.with(PartPayload::Malformed("event")) };
        match inner.mode {
            "messages" => {
                let event = MessageEvent::parse(data).map(Box::new);
                inner.said(event.map(ProtocolPart::Message), "messages")
            }
            "lifecycle" => match Lifecycle::parse(data).map(ProtocolPart::Lifecycle) {
                None => inner.with(PartPayload::Silent),
                lifecycle => inner.said(lifecycle, "lifecycle"),
            },
            "input.requested" => inner.with(input_requested(data)),
            // The newer protocol wraps what a node wrote.
            "custom" => {
                let payload = json::members(data).and_then(|members| members.get("payload"));
                inner.with(PartPayload::Custom(payload.unwrap_or(data)))
            }
            _ => Part::read(&inner),
        }
    }
}

fn input_requested(data: &RawValue) -> PartPayload<'_> {
    let members = json::members(data).unwrap_or_default();
    let interrupt = members.string("interrupt_id").map(|id| RawInterrupt {
        id,
        value: members.get("payload"),
        response_schema: None,
    });
    match interrupt {
        Some(interrupt) => PartPayload::Interrupts(vec![interrupt]),
        None => PartPayload::Malformed("input.requested"),
    }
}
