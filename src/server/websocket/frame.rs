//! The frames of a socket: those that a client sends, and those that report an error.

use serde_json::value::RawValue;

use crate::server::request::thread_name::{blank, expect_short};
use threadway_translate::json::{self, Members, ObjectWriter};

/// A frame that a client sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClientFrame {
    /// Begins a turn. The whole frame is its `RunAgentInput`.
    Turn {
        thread_id: String,
        run_id: String,
        /// The member `lastEventId`: the last event that the client has of an earlier copy of this
        /// turn.
        last_event_id: Option<String>,
    },
    /// Stops a run.
    Abort { thread_id: Option<String>, run_id: Option<String> },
    /// A keep-alive. It needs no answer, since a WebSocket has ping frames of its own.
    KeepAlive,
}

/// The event that reports a refused frame or a refused turn. Between runs it is a `RUN_ERROR`.
/// Within a run, which goes on, it is a `CUSTOM` event.
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

// === impl ClientFrame ===

impl ClientFrame {
    /// Reads a frame. The error is a message for the client.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let value: &RawValue = serde_json::from_str(text)
            .map_err(|error| format!("the frame is not JSON: {error}"))?;
        let Some(members) = json::members(value) else {
            return Err("the frame is not a JSON object; send a RunAgentInput".to_owned());
        };
        let optional = |name: &str| string(&members, name);
        match members.string("type").as_deref() {
            Some("abort") => Ok(Self::Abort {
                thread_id: id(&members, "threadId")?,
                run_id: id(&members, "runId")?,
            }),
            Some("ping" | "pong") => Ok(Self::KeepAlive),
            Some(_) => {
                Err("the frame's `type` is not `abort`; a RunAgentInput has no `type`".to_owned())
            }
            None => Ok(Self::Turn {
                thread_id: short("threadId", optional("threadId")?.unwrap_or_default())?,
                run_id: short("runId", optional("runId")?.unwrap_or_default())?,
                last_event_id: optional("lastEventId")?.filter(|id| !id.is_empty()),
            }),
        }
    }
}

/// The id of a thread or a run in a frame. A blank one is refused: the run of another turn must not
/// be stopped in its place.
fn id(members: &Members<'_>, name: &str) -> Result<Option<String>, String> {
    let id = string(members, name)?;
    if id.as_deref().is_some_and(|id| id.trim().is_empty()) {
        return Err(blank(name));
    }
    id.map(|id| short(name, id)).transpose()
}

/// The id of a thread or a run, unless it is too long to keep.
fn short(name: &str, id: String) -> Result<String, String> {
    expect_short(name, &id).map_err(|reject| reject.message().to_owned())?;
    Ok(id)
}

fn string(members: &Members<'_>, name: &str) -> Result<Option<String>, String> {
    let Some(value) = members.get(name).filter(|value| value.get() != "null") else {
        return Ok(None);
    };
    let text = json::string(value).ok_or_else(|| format!("`{name}` is not a string"))?;
    Ok(Some(text.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_a_turn_an_abort_a_keep_alive_or_an_error() {
        let turn = |last: Option<&str>| ClientFrame::Turn {
            thread_id: "t".to_owned(),
            run_id: "r".to_owned(),
            last_event_id: last.map(str::to_owned),
        };
        let abort = |thread: Option<&str>, run: Option<&str>| ClientFrame::Abort {
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
            (r#"{"type":"ping"}"#, Some(ClientFrame::KeepAlive)),
            (r#"{"type":"stop"}"#, None),
            (r#"{"threadId":1}"#, None),
            (r#"{"lastEventId":1}"#, None),
            (r#"{"type":"abort","runId":1}"#, None),
            (r#"{"type":"abort","runId":""}"#, None),
            (r#"{"type":"abort","threadId":" ","runId":"r"}"#, None),
            ("", None),
            ("[]", None),
            ("{", None),
            ("null", None),
        ] {
            assert_eq!(ClientFrame::parse(text).ok(), expected, "{text}");
        }
    }
}
