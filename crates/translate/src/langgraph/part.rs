//! One event of a run's stream, typed by its name.

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
    /// The subgraph that this part comes from: `node:task|node:task`, empty for the root.
    pub namespace: Cow<'a, str>,
    /// What it says.
    pub body: Body<'a>,
}

/// What a part says, by the stream mode that made it.
#[derive(Debug)]
pub enum Body<'a> {
    /// `metadata`: which run this is, and the how-manieth attempt at it.
    Metadata {
        /// LangGraph's run id.
        run_id: Cow<'a, str>,
        /// 1 for the first; also 1 again after a graceful restart of the server.
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
        /// Its metadata, not yet parsed: it is the same on every token of a call.
        metadata: &'a str,
    },
    /// `messages/partial`: messages as accumulated so far.
    Partial(Vec<Message<'a>>),
    /// `messages/complete`: messages that did not stream.
    Complete(Vec<Message<'a>>),
    /// `messages/metadata`: by message id, the metadata of the call that makes it.
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
    /// An interrupt that came by itself (the newer protocol's `input.requested`).
    Interrupts(Vec<RawInterrupt<'a>>),
    /// `error`: the run failed. The Python server does not store this part for replay.
    Error(RunError),
    /// `checkpoints`, `debug` and the like: understood, and nothing to a client. They hold the
    /// server's request internals.
    Silent,
    /// A mode that this version does not know.
    Unknown,
    /// A known mode whose payload has not its form.
    Malformed(&'static str),
}

// === impl Part ===

impl<'a> Part<'a> {
    /// Types a frame of a graph that keeps its conversation under `messages`.
    ///
    /// The JavaScript server prints its JSON over many lines; `scratch` takes the compact form.
    pub fn parse(frame: &'a Frame<'_>, scratch: &'a mut String) -> Self {
        Self::parse_under(&MessagesKey::default(), frame, scratch)
    }

    /// The same of a graph that keeps its conversation under this key.
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
    // The thread stream's end mark has a status and no attempt.
    match members.get("status") {
        Some(_) => Some(Body::Silent),
        None => Some(Body::Metadata {
            run_id: members.string("run_id")?,
            attempt: members.number("attempt").unwrap_or(1),
        }),
    }
}

/// `[message, metadata]`, with the metadata left unread.
///
/// Two thirds of a token's bytes are metadata that repeats the previous token's. They are sliced
/// off behind the message, so that the translator can compare them instead of parsing them.
fn message_tuple(data: &str) -> Option<Body<'_>> {
    let inside = data.trim_start().strip_prefix('[')?;
    let mut stream = serde_json::Deserializer::from_str(inside).into_iter::<Message<'_>>();
    let message = stream.next()?.ok()?;
    let rest = inside.get(stream.byte_offset()..)?;
    let metadata = rest.trim_start().strip_prefix(',')?.trim_end().strip_suffix(']')?.trim();
    Some(Body::Message { message: Box::new(message), metadata })
}
