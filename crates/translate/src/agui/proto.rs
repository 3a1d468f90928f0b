//! Events as protobuf: the frames of AG-UI's binary binding, `application/vnd.ag-ui.event+proto`.
//!
//! An event is written from its JSON, by tables that say where each member goes: what is on this
//! wire is what is on the others. The tables are those of `@ag-ui/proto` 1.0.0, and hold what the
//! gateway sends: all but `RUN_STARTED.input`.

use serde_json::value::RawValue;

use crate::json::{self, Members, Text};

/// How deep a value may be nested. What is deeper is sent as its JSON text: a decoder recurses,
/// and upstream's nesting must not choose how far.
const MAX_DEPTH: usize = 64;

/// How many texts may wait for the second half of a character at once. Half a character of any
/// further text becomes U+FFFD.
const MAX_HALVES: usize = 16;

// The wire types of protobuf.
const VARINT: u64 = 0;
const DOUBLE: u64 = 1;
const BYTES: u64 = 2;

/// Writes the events of one stream.
#[derive(Debug, Default)]
pub struct ProtoEncoder {
    /// Texts whose last character came in halves, of which the first is kept here: `\ud83d`, by the
    /// id of its message or call. A protobuf string cannot hold it.
    halves: Vec<(String, String)>,
}

/// A member of an object: its name, the number of its field, and what it is.
///
/// Several fields may take the same member: each takes what is of its kind.
struct Field(&'static str, u32, Kind);

/// What a member is, and so how it is written.
enum Kind {
    /// A string.
    Text,
    /// A number that is whole and not negative.
    Count,
    Bool,
    /// Any JSON, as `google.protobuf.Value`.
    Value,
    /// An object, as `google.protobuf.Struct`.
    Struct,
    /// One of these names, as its place among them.
    Name(&'static [&'static str]),
    /// An object with these members.
    Message(&'static [Field]),
    /// An object whose `type` is one of these names, each with the field that holds such an object.
    Arms(&'static [Field]),
    /// Each item of an array.
    Many(&'static Self),
    /// A member of an object that is no message of its own.
    Within(&'static str, &'static Self),
}

use Kind::{Arms, Bool, Count, Many, Message, Name, Struct, Value, Within};

const TEXT: Kind = Kind::Text;

/// The types of events, in the order of the enumeration.
const TYPES: [&str; 31] = [
    "TEXT_MESSAGE_START",
    "TEXT_MESSAGE_CONTENT",
    "TEXT_MESSAGE_END",
    "TOOL_CALL_START",
    "TOOL_CALL_ARGS",
    "TOOL_CALL_END",
    "STATE_SNAPSHOT",
    "STATE_DELTA",
    "MESSAGES_SNAPSHOT",
    "RAW",
    "CUSTOM",
    "RUN_STARTED",
    "RUN_FINISHED",
    "RUN_ERROR",
    "STEP_STARTED",
    "STEP_FINISHED",
    "SUBAGENT_STARTED",
    "SUBAGENT_FINISHED",
    "SUBAGENT_ERROR",
    "TEXT_MESSAGE_CHUNK",
    "TOOL_CALL_CHUNK",
    "TOOL_CALL_RESULT",
    "ACTIVITY_SNAPSHOT",
    "ACTIVITY_DELTA",
    "REASONING_START",
    "REASONING_MESSAGE_START",
    "REASONING_MESSAGE_CONTENT",
    "REASONING_MESSAGE_END",
    "REASONING_MESSAGE_CHUNK",
    "REASONING_END",
    "REASONING_ENCRYPTED_VALUE",
];

/// What every event may have.
const BASE: &[Field] = &[
    Field("type", 1, Name(&TYPES)),
    Field("timestamp", 2, Count),
    Field("rawEvent", 3, Value),
    Field("metadata", 4, Struct),
];

/// Which field of the envelope holds which event.
const EVENT: &[Field] = &[
    Field("TEXT_MESSAGE_START", 1, Message(TEXT_MESSAGE_START)),
    Field("TEXT_MESSAGE_CONTENT", 2, Message(TEXT_MESSAGE_CONTENT)),
    Field("TEXT_MESSAGE_END", 3, Message(TEXT_MESSAGE_END)),
    Field("TOOL_CALL_START", 4, Message(TOOL_CALL_START)),
    Field("TOOL_CALL_ARGS", 5, Message(TOOL_CALL_ARGS)),
    Field("TOOL_CALL_END", 6, Message(TOOL_CALL_END)),
    Field("STATE_SNAPSHOT", 7, Message(STATE_SNAPSHOT)),
    Field("STATE_DELTA", 8, Message(STATE_DELTA)),
    Field("MESSAGES_SNAPSHOT", 9, Message(MESSAGES_SNAPSHOT)),
    Field("RAW", 10, Message(RAW)),
    Field("CUSTOM", 11, Message(CUSTOM)),
    Field("RUN_STARTED", 12, Message(RUN_STARTED)),
    Field("RUN_FINISHED", 13, Message(RUN_FINISHED)),
    Field("RUN_ERROR", 14, Message(RUN_ERROR)),
    Field("STEP_STARTED", 15, Message(STEP)),
    Field("STEP_FINISHED", 16, Message(STEP)),
    Field("TEXT_MESSAGE_CHUNK", 17, Message(TEXT_MESSAGE_CHUNK)),
    Field("TOOL_CALL_CHUNK", 18, Message(TOOL_CALL_CHUNK)),
    Field("SUBAGENT_STARTED", 19, Message(SUBAGENT_STARTED)),
    Field("SUBAGENT_FINISHED", 20, Message(SUBAGENT_FINISHED)),
    Field("SUBAGENT_ERROR", 21, Message(SUBAGENT_ERROR)),
    Field("TOOL_CALL_RESULT", 22, Message(TOOL_CALL_RESULT)),
    Field("ACTIVITY_SNAPSHOT", 23, Message(ACTIVITY_SNAPSHOT)),
    Field("ACTIVITY_DELTA", 24, Message(ACTIVITY_DELTA)),
    Field("REASONING_START", 25, Message(REASONING)),
    Field("REASONING_MESSAGE_START", 26, Message(REASONING)),
    Field("REASONING_MESSAGE_CONTENT", 27, Message(REASONING)),
    Field("REASONING_MESSAGE_END", 28, Message(REASONING)),
    Field("REASONING_MESSAGE_CHUNK", 29, Message(REASONING)),
    Field("REASONING_END", 30, Message(REASONING)),
    Field("REASONING_ENCRYPTED_VALUE", 31, Message(REASONING_ENCRYPTED_VALUE)),
];

// The events. Field 1 of each is `BASE`.

const TEXT_MESSAGE_START: &[Field] = &[
    Field("messageId", 2, TEXT),
    Field("role", 3, TEXT),
    Field("name", 4, TEXT),
    Field("subagentRunId", 5, TEXT),
];
const TEXT_MESSAGE_CONTENT: &[Field] =
    &[Field("messageId", 2, TEXT), Field("delta", 3, TEXT), Field("subagentRunId", 4, TEXT)];
const TEXT_MESSAGE_END: &[Field] = &[Field("messageId", 2, TEXT), Field("subagentRunId", 3, TEXT)];
const TEXT_MESSAGE_CHUNK: &[Field] = &[
    Field("messageId", 2, TEXT),
    Field("role", 3, TEXT),
    Field("delta", 4, TEXT),
    Field("name", 5, TEXT),
    Field("subagentRunId", 6, TEXT),
];
const TOOL_CALL_START: &[Field] = &[
    Field("toolCallId", 2, TEXT),
    Field("toolCallName", 3, TEXT),
    Field("parentMessageId", 4, TEXT),
    Field("subagentRunId", 5, TEXT),
];
const TOOL_CALL_ARGS: &[Field] =
    &[Field("toolCallId", 2, TEXT), Field("delta", 3, TEXT), Field("subagentRunId", 4, TEXT)];
const TOOL_CALL_END: &[Field] = &[Field("toolCallId", 2, TEXT), Field("subagentRunId", 3, TEXT)];
const TOOL_CALL_CHUNK: &[Field] = &[
    Field("toolCallId", 2, TEXT),
    Field("toolCallName", 3, TEXT),
    Field("parentMessageId", 4, TEXT),
    Field("delta", 5, TEXT),
    Field("subagentRunId", 6, TEXT),
];
const TOOL_CALL_RESULT: &[Field] = &[
    Field("subagentRunId", 2, TEXT),
    Field("messageId", 3, TEXT),
    Field("toolCallId", 4, TEXT),
    Field("content", 5, TEXT),
    Field("role", 6, TEXT),
    Field("content", 7, Many(&PART)),
];
const STATE_SNAPSHOT: &[Field] = &[Field("snapshot", 2, Value), Field("subagentRunId", 3, TEXT)];
const STATE_DELTA: &[Field] =
    &[Field("delta", 2, Many(&OPERATION)), Field("subagentRunId", 3, TEXT)];
const MESSAGES_SNAPSHOT: &[Field] = &[Field("messages", 2, Many(&MESSAGE))];
const ACTIVITY_SNAPSHOT: &[Field] = &[
    Field("subagentRunId", 2, TEXT),
    Field("messageId", 3, TEXT),
    Field("activityType", 4, TEXT),
    Field("content", 5, Struct),
    Field("replace", 6, Bool),
];
const ACTIVITY_DELTA: &[Field] = &[
    Field("subagentRunId", 2, TEXT),
    Field("messageId", 3, TEXT),
    Field("activityType", 4, TEXT),
    Field("patch", 5, Many(&OPERATION)),
];
const RAW: &[Field] =
    &[Field("event", 2, Value), Field("source", 3, TEXT), Field("subagentRunId", 4, TEXT)];
const CUSTOM: &[Field] =
    &[Field("name", 2, TEXT), Field("value", 3, Value), Field("subagentRunId", 4, TEXT)];
const RUN_STARTED: &[Field] = &[
    Field("threadId", 2, TEXT),
    Field("runId", 3, TEXT),
    Field("parentRunId", 4, TEXT),
    Field("protocolVersion", 6, TEXT),
];
const RUN_FINISHED: &[Field] = &[
    Field("threadId", 2, TEXT),
    Field("runId", 3, TEXT),
    Field("result", 4, Value),
    Field("outcome", 5, Within("type", &TEXT)),
    Field("outcome", 6, Within("interrupts", &Many(&INTERRUPT))),
    Field("usage", 7, Many(&USAGE)),
    Field("outcome", 8, Within("pendingToolCallIds", &Many(&TEXT))),
];
const RUN_ERROR: &[Field] =
    &[Field("code", 2, TEXT), Field("message", 3, TEXT), Field("usage", 4, Many(&USAGE))];
const STEP: &[Field] = &[Field("stepName", 2, TEXT), Field("subagentRunId", 3, TEXT)];
/// The events of a thought: none of them has two members for one field.
const REASONING: &[Field] = &[
    Field("subagentRunId", 2, TEXT),
    Field("messageId", 3, TEXT),
    Field("role", 4, TEXT),
    Field("delta", 4, TEXT),
];
const REASONING_ENCRYPTED_VALUE: &[Field] = &[
    Field("subagentRunId", 2, TEXT),
    Field("subtype", 3, TEXT),
    Field("entityId", 4, TEXT),
    Field("encryptedValue", 5, TEXT),
];
const SUBAGENT_STARTED: &[Field] = &[
    Field("subagentRunId", 2, TEXT),
    Field("name", 3, TEXT),
    Field("description", 4, TEXT),
    Field("parentSubagentRunId", 5, TEXT),
    Field("parentToolCallId", 6, TEXT),
    Field("parentMessageId", 7, TEXT),
];
const SUBAGENT_FINISHED: &[Field] = &[
    Field("subagentRunId", 2, TEXT),
    Field("result", 3, Value),
    Field("outcome", 4, Within("type", &TEXT)),
    Field("outcome", 5, Within("interruptIds", &Many(&TEXT))),
];
const SUBAGENT_ERROR: &[Field] =
    &[Field("subagentRunId", 2, TEXT), Field("message", 3, TEXT), Field("code", 4, TEXT)];

// What they hold.

const OPERATION: Kind = Message(&[
    Field("op", 1, Name(&["add", "remove", "replace", "move", "copy", "test"])),
    Field("path", 2, TEXT),
    Field("from", 3, TEXT),
    Field("value", 4, Value),
]);
const MESSAGE: Kind = Message(&[
    Field("id", 1, TEXT),
    Field("role", 2, TEXT),
    Field("content", 3, TEXT),
    Field("name", 4, TEXT),
    Field("toolCalls", 5, Many(&TOOL_CALL)),
    Field("toolCallId", 6, TEXT),
    Field("error", 7, TEXT),
    Field("content", 8, Many(&PART)),
    Field("metadata", 9, Struct),
    Field("subagentRunId", 10, TEXT),
    Field("encryptedValue", 11, TEXT),
    Field("activityType", 12, TEXT),
    Field("content", 13, Struct),
]);
const TOOL_CALL: Kind = Message(&[
    Field("id", 1, TEXT),
    Field("type", 2, TEXT),
    Field("function", 3, Message(&[Field("name", 1, TEXT), Field("arguments", 2, TEXT)])),
    Field("metadata", 4, Struct),
    Field("encryptedValue", 5, TEXT),
]);
const PART: Kind = Arms(&[
    Field(
        "text",
        1,
        Message(&[Field("text", 1, TEXT), Field("id", 2, TEXT), Field("metadata", 3, Value)]),
    ),
    Field("image", 2, Message(MEDIA)),
    Field("audio", 3, Message(MEDIA)),
    Field("video", 4, Message(MEDIA)),
    Field("document", 5, Message(MEDIA)),
]);
const MEDIA: &[Field] =
    &[Field("source", 1, SOURCE), Field("metadata", 2, Value), Field("id", 3, TEXT)];
const SOURCE: Kind = Arms(&[
    Field("data", 1, Message(&[Field("value", 1, TEXT), Field("mimeType", 2, TEXT)])),
    Field("url", 2, Message(&[Field("value", 1, TEXT), Field("mimeType", 2, TEXT)])),
    Field(
        "file",
        3,
        Message(&[Field("value", 1, TEXT), Field("provider", 2, TEXT), Field("mimeType", 3, TEXT)]),
    ),
]);
const INTERRUPT: Kind = Message(&[
    Field("id", 1, TEXT),
    Field("reason", 2, TEXT),
    Field("message", 3, TEXT),
    Field("toolCallId", 4, TEXT),
    Field("responseSchema", 5, Value),
    Field("expiresAt", 6, TEXT),
    Field("metadata", 7, Value),
    Field("subagentRunId", 8, TEXT),
]);
const USAGE: Kind = Message(&[
    Field("provider", 1, TEXT),
    Field("model", 2, TEXT),
    Field("inputTokens", 3, Count),
    Field("outputTokens", 4, Count),
    Field("totalTokens", 5, Count),
    Field("reasoningTokens", 6, Count),
    Field("cachedInputTokens", 7, Count),
    Field("cacheWriteInputTokens", 8, Count),
]);

// === impl ProtoEncoder ===

impl ProtoEncoder {
    /// Appends the frame of an event that was written as JSON: its length in four bytes, the most
    /// significant first, and the event. Appends nothing for what is no event.
    pub fn frame(&mut self, event: &[u8], out: &mut Vec<u8>) {
        let Ok(event) = serde_json::from_slice::<&RawValue>(event) else { return };
        let Some(mut members) = json::members(event) else { return };
        let Some(name) = members.string("type") else { return };
        let Some(Field(_, arm, Message(fields))) = EVENT.iter().find(|arm| arm.0 == name) else {
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
        // A stream of more than 4 GiB in one event would have failed before.
        let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
        if let Some(prefix) = out.get_mut(start..start + 4) {
            prefix.copy_from_slice(&length.to_be_bytes());
        }
    }

    /// The text of an event with the half of a character that was kept of the last one, and
    /// without a half that it ends with, quoted; `None` if that is the text itself.
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

/// The id of the message or the call that an event is of.
fn id(members: &Members<'_>) -> Option<String> {
    let id = members.string("messageId").or_else(|| members.string("toolCallId"))?;
    Some(id.into_owned())
}

/// How long an escaped half of a character is: `\ud83d`.
const HALF: usize = 6;

/// The first half of a character that a text ends with.
fn half(escaped: &str) -> Option<&str> {
    let (before, half) = escaped.split_at_checked(escaped.len().checked_sub(HALF)?)?;
    let unit = u16::from_str_radix(half.strip_prefix("\\u")?, 16).ok()?;
    let slashes = before.bytes().rev().take_while(|byte| *byte == b'\\').count();
    ((0xd800..0xdc00).contains(&unit) && slashes % 2 == 0).then_some(half)
}

// === impl Kind ===

impl Kind {
    /// Writes a value as a field. A value of another kind makes none.
    fn write(&self, number: u32, value: &RawValue, out: &mut Vec<u8>) {
        match self {
            Self::Text => {
                if let Some(text) = Text::from_raw(value) {
                    bytes(number, text.decode().as_bytes(), out);
                }
            }
            Self::Count => {
                if let Ok(count) = value.get().parse() {
                    tag(number, VARINT, out);
                    varint(count, out);
                }
            }
            Self::Bool => {
                if let Ok(is) = value.get().parse::<bool>() {
                    tag(number, VARINT, out);
                    varint(is.into(), out);
                }
            }
            Self::Value => nested(number, out, |out| write_value(value, 0, out)),
            Self::Struct => {
                if let Some(members) = json::members(value) {
                    nested(number, out, |out| write_struct(&members, 0, out));
                }
            }
            Self::Name(names) => {
                let place = json::string(value)
                    .and_then(|name| names.iter().position(|known| *known == name));
                // 0 is what a decoder assumes.
                if let Some(place @ 1..) = place {
                    tag(number, VARINT, out);
                    varint(place as u64, out);
                }
            }
            Self::Message(fields) => {
                if let Some(members) = json::members(value) {
                    nested(number, out, |out| write_members(fields, &members, out));
                }
            }
            Self::Arms(arms) => {
                let name = json::members(value).and_then(|members| members.string("type"));
                let arm = name.and_then(|name| arms.iter().find(|arm| arm.0 == name));
                if let Some(Field(_, arm, kind)) = arm {
                    nested(number, out, |out| kind.write(*arm, value, out));
                }
            }
            Self::Many(kind) => {
                let items = json::items(value).into_iter().flatten();
                items.for_each(|item| kind.write(number, item, out));
            }
            Self::Within(name, kind) => {
                if let Some(value) = json::members(value).and_then(|members| members.get(name)) {
                    kind.write(number, value, out);
                }
            }
        }
    }
}

fn write_members(fields: &[Field], members: &Members<'_>, out: &mut Vec<u8>) {
    for Field(name, number, kind) in fields {
        if let Some(value) = members.get(name) {
            kind.write(*number, value, out);
        }
    }
}

/// Writes a `google.protobuf.Value`.
fn write_value(value: &RawValue, depth: usize, out: &mut Vec<u8>) {
    // Its fields.
    const NULL: u32 = 1;
    const NUMBER: u32 = 2;
    const STRING: u32 = 3;
    const BOOL: u32 = 4;
    const STRUCT: u32 = 5;
    const LIST: u32 = 6;
    let is_open = depth < MAX_DEPTH;
    let text = value.get();
    if text == "null" {
        tag(NULL, VARINT, out);
        varint(0, out);
    } else if let Ok(is) = text.parse::<bool>() {
        tag(BOOL, VARINT, out);
        varint(is.into(), out);
    } else if let Some(string) = Text::from_raw(value) {
        bytes(STRING, string.decode().as_bytes(), out);
    } else if let Some(members) = is_open.then(|| json::members(value)).flatten() {
        nested(STRUCT, out, |out| write_struct(&members, depth + 1, out));
    } else if let Some(items) = is_open.then(|| json::items(value)).flatten() {
        nested(LIST, out, |out| {
            for item in items {
                nested(1, out, |out| write_value(item, depth + 1, out));
            }
        });
    } else if let Ok(number) = text.parse::<f64>() {
        tag(NUMBER, DOUBLE, out);
        out.extend_from_slice(&number.to_le_bytes());
    } else {
        bytes(STRING, text.as_bytes(), out);
    }
}

/// Writes a `google.protobuf.Struct`: a map, whose entries are messages.
fn write_struct(members: &Members<'_>, depth: usize, out: &mut Vec<u8>) {
    for (name, value) in &members.0 {
        nested(1, out, |out| {
            bytes(1, name.0.as_bytes(), out);
            nested(2, out, |out| write_value(value, depth, out));
        });
    }
}

/// Writes a message as a field.
fn nested(number: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    tag(number, BYTES, out);
    let start = out.len();
    write(out);
    let (length, count) = leb128((out.len() - start) as u64);
    out.splice(start..start, length.into_iter().take(count));
}

fn bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    tag(number, BYTES, out);
    varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn tag(number: u32, wire_type: u64, out: &mut Vec<u8>) {
    varint(u64::from(number) << 3 | wire_type, out);
}

fn varint(number: u64, out: &mut Vec<u8>) {
    let (bytes, count) = leb128(number);
    out.extend(bytes.into_iter().take(count));
}

/// The bytes of a number, of which the first so many count.
fn leb128(mut number: u64) -> ([u8; 10], usize) {
    let mut bytes = [0; 10];
    let mut count = 0;
    for to in &mut bytes {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        count += 1;
        *to = if number == 0 { low & 0x7f } else { low | 0x80 };
        if number == 0 {
            break;
        }
    }
    (bytes, count)
}
