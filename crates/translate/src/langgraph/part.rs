//! One event of a run's stream, typed by its stream mode.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::dialect::{self, RawPart, Said, Wrapping};
use super::{GraphLevel, MessagesKey, RawInterrupt, RunError, Task, Updates, Values};
use crate::json;
use crate::sse::Frame;

/// One part of a run's stream.
#[derive(Debug)]
pub struct Part<'a> {
    /// The subgraph that sent the part, as `node:task|node:task`. Empty for the root graph.
    pub namespace: Cow<'a, str>,
    /// The payload.
    pub body: PartPayload<'a>,
    /// Whether values were replaced that JSON does not have: null is in the place of `NaN` and
    /// `Infinity`, and U+FFFD in that of half a surrogate pair in a key of the state.
    pub is_mended: bool,
    /// Whether the part came in an envelope of the newer protocol.
    pub is_enveloped: bool,
}

/// Whether the parts of a stream are envelopes of the newer protocol.
///
/// A run is started in one of the protocols, and all its parts but the first, its `metadata`, have
/// that form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamForm {
    /// No part has shown it.
    #[default]
    Unknown,
    /// They are not.
    Plain,
    /// They are.
    Enveloped,
}

/// The payload of a part, by the stream mode that made it.
#[derive(Debug)]
pub enum PartPayload<'a> {
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
    /// Pieces of messages, in one of the stream's dialects.
    Said(Said<'a>),
    /// `custom`: what a node wrote to the stream.
    Custom(&'a RawValue),
    /// `tasks`: a node starts or ends.
    Task(Task<'a>),
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

// === impl StreamForm ===

impl StreamForm {
    /// Reads the next frame of a graph that keeps its messages under `key`.
    pub fn parse<'a>(
        &mut self,
        key: &MessagesKey,
        frame: &'a Frame<'_>,
        scratch: &'a mut String,
    ) -> Part<'a> {
        let part = Part::parse_in(*self, key, frame, scratch);
        let is_sign = !matches!(
            part.body,
            PartPayload::Metadata { .. } | PartPayload::Error(_) | PartPayload::Silent
        );
        if *self == Self::Unknown && part.is_enveloped {
            *self = Self::Enveloped;
        } else if *self == Self::Unknown && is_sign {
            *self = Self::Plain;
        }
        part
    }
}

// === impl Part ===

impl<'a> Part<'a> {
    /// Reads a frame of a graph that keeps its messages under `messages`.
    ///
    /// A server may print JSON over many lines. `scratch` receives the compact form.
    pub fn parse(frame: &'a Frame<'_>, scratch: &'a mut String) -> Self {
        Self::parse_under(&MessagesKey::default(), frame, scratch)
    }

    /// Reads a frame of a graph that keeps its messages under `key`.
    ///
    /// What looks like an envelope is opened. To read a stream, use [`StreamForm::parse`].
    pub fn parse_under(key: &MessagesKey, frame: &'a Frame<'_>, scratch: &'a mut String) -> Self {
        Self::parse_in(StreamForm::Unknown, key, frame, scratch)
    }

    fn parse_in(
        form: StreamForm,
        key: &MessagesKey,
        frame: &'a Frame<'_>,
        scratch: &'a mut String,
    ) -> Self {
        let event = frame.event.as_deref().unwrap_or_default();
        let (mode, namespace) = event.split_once('|').unwrap_or((event, ""));
        let data = frame.data.as_deref().unwrap_or_default();
        let wrapping = match form {
            StreamForm::Unknown | StreamForm::Enveloped => Wrapping::Possible,
            StreamForm::Plain => Wrapping::Never,
        };
        let read = |data| {
            let namespace = Cow::Borrowed(namespace);
            Self::read(&RawPart { mode, namespace, data, key, wrapping })
        };
        if data.contains('\n') {
            json::compact(data, scratch);
            if let Some(mended) = json::mend_numbers(scratch) {
                *scratch = mended;
                return Self { is_mended: true, ..read(scratch) };
            }
            return read(scratch);
        }
        let part = read(data);
        if matches!(part.body, PartPayload::Malformed(_))
            && let Some(mended) = json::mend_numbers(data)
        {
            *scratch = mended;
            return Self { is_mended: true, ..read(scratch) };
        }
        part
    }

    pub(super) fn read(raw: &RawPart<'_, 'a>) -> Self {
        dialect::read(raw).unwrap_or_else(|| raw.with(body(raw)))
    }
}

/// Whether a run's stream has the thread's state, if a part of it shows that. A stream that has it
/// and is read from its beginning shows it before a message or an update.
pub fn has_values(frame: &Frame<'_>) -> Option<bool> {
    let (event, data) = (frame.event.as_deref()?, frame.data.as_deref().unwrap_or_default());
    match event.split('|').next()? {
        "values" => Some(true),
        "messages" | "messages/partial" | "messages/complete" | "updates" => Some(false),
        "events" if dialect::may_have_token(data) => Some(false),
        _ => None,
    }
}

/// Reads a part of a mode that no dialect has.
fn body<'a>(raw: &RawPart<'_, 'a>) -> PartPayload<'a> {
    let (data, key, place) = (raw.data, raw.key, GraphLevel::of(&raw.namespace, ""));
    match raw.mode {
        "values" => with(data, |raw| Values::open(raw, key, place), PartPayload::Values, "values"),
        "updates" => {
            with(data, |raw| Updates::open(raw, key, place), PartPayload::Updates, "updates")
        }
        "custom" => with(data, Some, PartPayload::Custom, "custom"),
        "tasks" => {
            serde_json::from_str(data).map_or(PartPayload::Malformed("tasks"), PartPayload::Task)
        }
        "metadata" => run_metadata(data).unwrap_or(PartPayload::Malformed("metadata")),
        "error" => PartPayload::Error(RunError::parse(data)),
        "checkpoints" | "debug" | "tools" | "lifecycle" | "feedback" | "end" => PartPayload::Silent,
        _ => PartPayload::Unknown,
    }
}

fn with<'a, T>(
    data: &'a str,
    open: impl FnOnce(&'a RawValue) -> Option<T>,
    wrap: impl FnOnce(T) -> PartPayload<'a>,
    mode: &'static str,
) -> PartPayload<'a> {
    let value = serde_json::from_str::<&RawValue>(data).ok();
    value.and_then(open).map_or(PartPayload::Malformed(mode), wrap)
}

fn run_metadata(data: &str) -> Option<PartPayload<'_>> {
    let members: json::Members<'_> = serde_json::from_str(data).ok()?;
    // The end mark of a thread's stream has a status and no attempt.
    match members.get("status") {
        Some(_) => Some(PartPayload::Silent),
        None => Some(PartPayload::Metadata {
            run_id: members.string("run_id")?,
            attempt: members.number("attempt").unwrap_or(1),
        }),
    }
}
