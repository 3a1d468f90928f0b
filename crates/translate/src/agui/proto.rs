//! Events as protobuf: the frames of AG-UI's binary binding, `application/vnd.ag-ui.event+proto`.
//!
//! An event is written from its JSON, so it holds the same as in the other bindings. The tables in
//! `fields` say which member is which field. They are those of `@ag-ui/proto` 1.0.0 without
//! `RUN_STARTED.input`, which the gateway does not send. `write` writes the fields.

mod fields;
mod write;

use serde_json::value::RawValue;

use fields::{BASE, EVENT};
use write::{Field, FieldKind, nested, write_members};

use crate::json::{self, Members};

/// How many texts can wait for the second half of a character at the same time. In any further
/// text, half a character becomes U+FFFD.
const MAX_HALVES: usize = 16;

/// Encodes the events of one stream.
#[derive(Debug, Default)]
pub struct ProtoEncoder {
    /// The first halves of characters, such as `\ud83d`, by the id of the message or call. A half
    /// is kept until the second one arrives, because a protobuf string cannot hold it.
    halves: Vec<(String, String)>,
}

// === impl ProtoEncoder ===

impl ProtoEncoder {
    /// Appends the frame of an event that is given as JSON: the length in four bytes, the most
    /// significant first, and the event. Appends nothing for anything else.
    pub fn frame(&mut self, event: &[u8], out: &mut Vec<u8>) {
        let Ok(event) = serde_json::from_slice::<&RawValue>(event) else { return };
        let Some(mut members) = json::members(event) else { return };
        let Some(name) = members.string("type") else { return };
        let Some(Field(_, arm, FieldKind::Message(fields))) =
            EVENT.iter().find(|arm| arm.0 == name)
        else {
            return;
        };
        let joined = self.joined(&name, &members);
        let delta = joined.as_ref().and_then(|text| serde_json::from_str::<&RawValue>(text).ok());
        if let Some(delta) = delta {
            let of_delta = members.0.iter_mut().filter(|(name, _)| name.0 == "delta");
            of_delta.for_each(|(_, value)| *value = delta);
        }
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        nested(*arm, out, |out| {
            nested(1, out, |out| write_members(BASE, &members, out));
            write_members(fields, &members, out);
        });
        // An event of more than 4 GiB would have failed before.
        let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
        if let Some(prefix) = out.get_mut(start..start + 4) {
            prefix.copy_from_slice(&length.to_be_bytes());
        }
    }

    /// The text of an event as JSON, after the half of a character that was kept of the last event,
    /// and without a half at its end. `None` if that is the unchanged text.
    fn joined(&mut self, name: &str, members: &Members<'_>) -> Option<String> {
        match name {
            "TEXT_MESSAGE_CONTENT" | "TOOL_CALL_ARGS" | "REASONING_MESSAGE_CONTENT" => {}
            "TEXT_MESSAGE_END" | "TOOL_CALL_END" | "REASONING_MESSAGE_END" => {
                self.take_half(members);
                return None;
            }
            "RUN_FINISHED" | "RUN_ERROR" => {
                self.halves.clear();
                return None;
            }
            _ => return None,
        }
        let before = self.take_half(members);
        let text = members.text("delta")?;
        let half = half(text.escaped());
        if before.is_none() && half.is_none() {
            return None;
        }
        let mut joined = before.unwrap_or_default() + text.escaped();
        if half.is_some() && self.halves.len() < MAX_HALVES {
            let kept = joined.split_off(joined.len() - HALF);
            self.halves.push((id(members)?, kept));
        }
        Some(format!("\"{joined}\""))
    }

    fn take_half(&mut self, members: &Members<'_>) -> Option<String> {
        if self.halves.is_empty() {
            return None;
        }
        let id = id(members)?;
        let at = self.halves.iter().position(|(of, _)| *of == id)?;
        Some(self.halves.swap_remove(at).1)
    }
}

/// The id of an event's message or call.
fn id(members: &Members<'_>) -> Option<String> {
    let id = members.string("messageId").or_else(|| members.string("toolCallId"))?;
    Some(id.into_owned())
}

/// The length of an escaped half of a character, such as `\ud83d`.
const HALF: usize = 6;

/// The first half of a character at the end of a text, if there is one.
fn half(escaped: &str) -> Option<&str> {
    let (before, half) = escaped.split_at_checked(escaped.len().checked_sub(HALF)?)?;
    let unit = u16::from_str_radix(half.strip_prefix("\\u")?, 16).ok()?;
    let slashes = before.bytes().rev().take_while(|byte| *byte == b'\\').count();
    ((0xd800..0xdc00).contains(&unit) && slashes % 2 == 0).then_some(half)
}
