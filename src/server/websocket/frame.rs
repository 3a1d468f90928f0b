//! The frames of a socket: what a client sends, and what it is told besides the events of a run.

use bytes::{Bytes, BytesMut};
use memchr::memchr;
use serde_json::value::RawValue;

use crate::server::wire::SEPARATOR;
use threadway_translate::json::{self, Members, ObjectWriter};

/// A frame of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// A turn is to begin. The whole frame is its `RunAgentInput`.
    Turn {
        thread_id: String,
        run_id: String,
        /// Its member `lastEventId`: what the client has of a run that it has asked for before.
        last_event_id: Option<String>,
    },
    /// A run is to be stopped.
    Abort { thread_id: Option<String>, run_id: Option<String> },
    /// A sign of life, for which a WebSocket has frames of its own.
    Nothing,
}

/// Puts the frames together that a stream's bytes hold.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The beginning of a frame whose end is still to come.
    half: BytesMut,
}

/// The event that says that a frame was refused, or a turn: between runs a run's error, and within
/// a run, which goes on, a custom event.
pub(super) fn error(code: &str, message: &str, is_within_run: bool) -> String {
    let event = if is_within_run {
        let value = ObjectWriter::new().string("error", code).string("message", message).finish();
        ObjectWriter::new()
            .string("type", "CUSTOM")
            .string("name", "threadway.error")
            .raw("value", value.get())
    } else {
        ObjectWriter::new()
            .string("type", "RUN_ERROR")
            .string("message", message)
            .string("code", code)
    };
    event.finish().get().to_owned()
}

// === impl Sent ===

impl Sent {
    /// Reads a frame. The error says what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let value: &RawValue = serde_json::from_str(text)
            .map_err(|error| format!("the frame is not JSON: {error}"))?;
        let Some(members) = json::members(value) else {
            return Err("the frame is not a JSON object; send a RunAgentInput".to_owned());
        };
        let optional = |name: &str| string(&members, name);
        match members.string("type").as_deref() {
            Some("abort") => {
                Ok(Self::Abort { thread_id: optional("threadId")?, run_id: optional("runId")? })
            }
            Some("ping" | "pong") => Ok(Self::Nothing),
            Some(_) => {
                Err("the frame's `type` is not `abort`; a RunAgentInput has no `type`".to_owned())
            }
            None => Ok(Self::Turn {
                thread_id: optional("threadId")?.unwrap_or_default(),
                run_id: optional("runId")?.unwrap_or_default(),
                last_event_id: optional("lastEventId")?.filter(|id| !id.is_empty()),
            }),
        }
    }
}

fn string(members: &Members<'_>, name: &str) -> Result<Option<String>, String> {
    let Some(value) = members.get(name).filter(|value| value.get() != "null") else {
        return Ok(None);
    };
    let text = json::string(value).ok_or_else(|| format!("`{name}` is not a string"))?;
    Ok(Some(text.into_owned()))
}

// === impl Frames ===

impl Frames {
    /// The next whole frame of these bytes, which may be cut anywhere.
    pub(super) fn next(&mut self, bytes: &mut Bytes) -> Option<Bytes> {
        let Some(end) = memchr(SEPARATOR, bytes) else {
            self.half.extend_from_slice(bytes);
            bytes.clear();
            return None;
        };
        let frame = bytes.split_to(end);
        let _ = bytes.split_to(1);
        if self.half.is_empty() {
            return Some(frame);
        }
        let mut whole = std::mem::take(&mut self.half);
        whole.extend_from_slice(&frame);
        Some(whole.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_a_turn_or_an_abort_or_wrong() {
        let turn = |last: Option<&str>| Sent::Turn {
            thread_id: "t".to_owned(),
            run_id: "r".to_owned(),
            last_event_id: last.map(str::to_owned),
        };
        let abort = |thread: Option<&str>, run: Option<&str>| Sent::Abort {
            thread_id: thread.map(str::to_owned),
            run_id: run.map(str::to_owned),
        };
        for (text, expected) in [
            (r#"{"threadId":"t","runId":"r"}"#, Some(turn(None))),
            (r#"{"threadId":"t","runId":"r","lastEventId":null}"#, Some(turn(None))),
            (r#"{"threadId":"t","runId":"r","lastEventId":""}"#, Some(turn(None))),
            (r#"{"threadId":"t","runId":"r","lastEventId":"x"}"#, Some(turn(Some("x")))),
            (r#"{"type":"abort","runId":"r"}"#, Some(abort(None, Some("r")))),
            (r#"{"type":"abort","threadId":"t"}"#, Some(abort(Some("t"), None))),
            (r#"{"type":"ping"}"#, Some(Sent::Nothing)),
            (r#"{"type":"stop"}"#, None),
            (r#"{"threadId":1}"#, None),
            (r#"{"lastEventId":1}"#, None),
            (r#"{"type":"abort","runId":1}"#, None),
            ("", None),
            ("[]", None),
            ("{", None),
            ("null", None),
        ] {
            assert_eq!(Sent::parse(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn frames_are_the_same_wherever_their_bytes_are_cut() {
        let bytes = b"{\"a\":\n1}\x1e{}\x1e[1,2]\x1e";
        for at in 0..bytes.len() {
            let (one, two) = bytes.split_at(at);
            let (mut frames, mut found) = (Frames::default(), Vec::new());
            for part in [one, two] {
                let mut part = Bytes::copy_from_slice(part);
                while let Some(frame) = frames.next(&mut part) {
                    found.push(frame);
                }
            }
            assert_eq!(found, [&b"{\"a\":\n1}"[..], b"{}", b"[1,2]"], "{at}");
        }
    }
}
