//! One event of a run's stream, typed by its stream mode.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::envelope::{Envelope, Lifecycle};
use super::{
    GraphLevel, Message, MessagesKey, ModelEvent, ProtocolEvent, RawInterrupt, RunError, Task,
    Updates, Values,
};
use crate::json::{self, Str};
use crate::sse::Frame;

/// One part of a run's stream.
#[derive(Debug)]
pub struct Part<'a> {
    /// The subgraph that sent the part, as `node:task|node:task`. Empty for the root graph.
    pub namespace: Cow<'a, str>,
    /// The payload.
    pub body: Body<'a>,
}

/// The payload of a part, by the stream mode that made it.
#[derive(Debug)]
pub enum Body<'a> {
    /// `metadata`: the run's id, and the number of the attempt.
    Metadata {
        /// LangGraph's run id.
        run_id: Cow<'a, str>,
        /// 1 for the first attempt. Also 1 after a graceful restart of the server.
        attempt: u64,
    },
    /// `values`: the whole state after a superstep.
    Values(Values<'a>),
    /// `updates`: what each finished node returned.
    Updates(Updates<'a>),
    /// `messages`: a token, or a whole message, with the metadata of the call that made it.
    Message {
        /// The chunk or message.
        message: Box<Message<'a>>,
        /// Its metadata, not parsed: all tokens of a call have the same.
        metadata: &'a str,
    },
    /// `messages/partial`: messages with everything that has streamed so far.
    Partial(Vec<Message<'a>>),
    /// `messages/complete`: messages that did not stream.
    Complete(Vec<Message<'a>>),
    /// `messages/metadata`: the metadata of a model call, by the id of its message.
    MessageMetadata(Vec<(Str<'a>, &'a RawValue)>),
    /// `events`: a record of LangChain's event stream.
    Event(Box<ModelEvent<'a>>),
    /// A message event of the newer streaming protocol.
    Protocol(Box<ProtocolEvent<'a>>),
    /// `custom`: what a node wrote to the stream.
    Custom(&'a RawValue),
    /// `tasks`: a node starts or ends.
    Task(Task<'a>),
    /// A subgraph begins or ends (the newer protocol's `lifecycle`).
    Lifecycle(Lifecycle<'a>),
    /// An interrupt outside a state (the newer protocol's `input.requested`).
    Interrupts(Vec<RawInterrupt<'a>>),
    /// `error`: the run failed. The Python server does not store this part for replay.
    Error(RunError),
    /// `checkpoints`, `debug` and others that become nothing. They contain internals of the
    /// server's request.
    Silent,
    /// A mode that this version does not know.
    Unknown,
    /// A known mode, with a payload that cannot be parsed.
    Malformed(&'static str),
}

// === impl Part ===

impl<'a> Part<'a> {
    /// Reads a frame of a graph that keeps its messages under `messages`.
    ///
    /// The JavaScript server prints JSON over many lines. `scratch` receives the compact form.
    pub fn parse(frame: &'a Frame<'_>, scratch: &'a mut String) -> Self {
        Self::parse_under(&MessagesKey::default(), frame, scratch)
    }

    /// Reads a frame of a graph that keeps its messages under `key`.
    pub fn parse_under(key: &MessagesKey, frame: &'a Frame<'_>, scratch: &'a mut String) -> Self {
        let event = frame.event.as_deref().unwrap_or_default();
        let (mode, namespace) = event.split_once('|').unwrap_or((event, ""));
        let data = frame.data.as_deref().unwrap_or_default();
        let data = if data.contains('\n') {
            json::compact(data, scratch);
            scratch.as_str()
        } else {
            data
        };
        if let Some(envelope) = Envelope::parse(data) {
            let namespace = envelope.namespace();
            let body = envelope.body(key, GraphLevel::of(&namespace, ""));
            return Self { namespace: Cow::Owned(namespace), body };
        }
        let body = body(mode, data, key, GraphLevel::of(namespace, ""));
        Self { namespace: Cow::Borrowed(namespace), body }
    }
}

pub(super) fn body<'a>(
    mode: &str,
    data: &'a str,
    key: &MessagesKey,
    place: GraphLevel,
) -> Body<'a> {
    match mode {
        "messages" => message_tuple(data).unwrap_or(Body::Malformed("messages")),
        "values" => with(data, |raw| Values::open(raw, key), Body::Values, "values"),
        "updates" => with(data, |raw| Updates::open(raw, key, place), Body::Updates, "updates"),
        "events" => typed(data, |event| Body::Event(Box::new(event)), "events"),
        "custom" => with(data, Some, Body::Custom, "custom"),
        "tasks" => typed(data, Body::Task, "tasks"),
        "messages/partial" => typed(data, Body::Partial, "messages/partial"),
        "messages/complete" => typed(data, Body::Complete, "messages/complete"),
        "messages/metadata" => {
            typed(data, |m: json::Members<'a>| Body::MessageMetadata(m.0), "messages/metadata")
        }
        "metadata" => run_metadata(data).unwrap_or(Body::Malformed("metadata")),
        "error" => Body::Error(RunError::parse(data)),
        "checkpoints" | "debug" | "tools" | "lifecycle" | "feedback" | "end" => Body::Silent,
        _ => Body::Unknown,
    }
}

fn with<'a, T>(
    data: &'a str,
    open: impl FnOnce(&'a RawValue) -> Option<T>,
    wrap: impl FnOnce(T) -> Body<'a>,
    mode: &'static str,
) -> Body<'a> {
    let value = serde_json::from_str::<&RawValue>(data).ok();
    value.and_then(open).map_or(Body::Malformed(mode), wrap)
}

fn typed<'a, T: Deserialize<'a>>(
    data: &'a str,
    wrap: impl FnOnce(T) -> Body<'a>,
    mode: &'static str,
) -> Body<'a> {
    serde_json::from_str(data).map_or(Body::Malformed(mode), wrap)
}

fn run_metadata(data: &str) -> Option<Body<'_>> {
    let members: json::Members<'_> = serde_json::from_str(data).ok()?;
    // The end mark of a thread's stream has a status and no attempt.
    match members.get("status") {
        Some(_) => Some(Body::Silent),
        None => Some(Body::Metadata {
            run_id: members.string("run_id")?,
            attempt: members.number("attempt").unwrap_or(1),
        }),
    }
}

/// `[message, metadata]`. The metadata are not parsed.
///
/// Two thirds of a token's bytes are metadata that repeat those of the previous token. The
/// translator compares them as bytes.
fn message_tuple(data: &str) -> Option<Body<'_>> {
    let inside = data.trim_start().strip_prefix('[')?;
    let mut stream = serde_json::Deserializer::from_str(inside).into_iter::<Message<'_>>();
    let message = stream.next()?.ok()?;
    let rest = inside.get(stream.byte_offset()..)?;
    let metadata = rest.trim_start().strip_prefix(',')?.trim_end().strip_suffix(']')?.trim();
    Some(Body::Message { message: Box::new(message), metadata })
}
