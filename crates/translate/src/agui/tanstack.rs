//! A conversation in the form of `TanStack` AI's client: `UIMessage`s, made from AG-UI's messages.
//!
//! The client makes the same messages from a `MESSAGES_SNAPSHOT`. So a loaded conversation and a
//! streamed one are equal, with the same ids.

use std::collections::HashMap;

use serde_json::value::RawValue;

use crate::json::{self, Json, Members, ObjectWriter};

/// A message of the client.
#[derive(Debug)]
struct UiMessage<'a> {
    id: &'a RawValue,
    role: &'static str,
    parts: Vec<UiPart<'a>>,
    metadata: Option<&'a RawValue>,
    kind: MessageKind,
}

/// The AG-UI message that a message is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageKind {
    /// A user's, an assistant's or a system message.
    Plain,
    /// Reasoning. It is joined to the assistant's message after it.
    Reasoning,
    /// A tool's result. It is joined to the message of its call, if there is one.
    Result,
}

/// A part of a message.
#[derive(Debug)]
enum UiPart<'a> {
    Text(&'a RawValue),
    Thinking {
        content: &'a RawValue,
        signature: Option<&'a RawValue>,
    },
    Call {
        id: &'a RawValue,
        name: &'a RawValue,
        arguments: &'a RawValue,
    },
    Result(ToolResult<'a>),
    /// A part that has the same form in AG-UI: media.
    Other(&'a RawValue),
}

/// The result of a tool call.
#[derive(Clone, Copy, Debug)]
struct ToolResult<'a> {
    id: &'a RawValue,
    call_id: &'a RawValue,
    content: &'a RawValue,
    error: Option<&'a RawValue>,
    metadata: Option<&'a RawValue>,
}

/// A page of a conversation: its end, or the messages before a given one.
#[derive(Debug, PartialEq, Eq)]
pub struct Window {
    /// The messages of the page.
    pub messages: Vec<Json>,
    /// The id of the first message, if others precede it.
    pub cursor: Option<String>,
}

/// The conversation has no message with this id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchMessage;

/// A page of a conversation of AG-UI's messages: the last `limit` messages before the message
/// `before`. Without `limit` there is no limit. Without `before` the page is the end of the
/// conversation.
pub fn window(
    messages: &[&RawValue],
    limit: Option<usize>,
    before: Option<&str>,
) -> Result<Window, NoSuchMessage> {
    let mut all = ui_messages(messages);
    if let Some(before) = before {
        let is_it =
            |message: &UiMessage<'_>| json::string(message.id).is_some_and(|id| id == before);
        all.truncate(all.iter().position(is_it).ok_or(NoSuchMessage)?);
    }
    let first = limit.map_or(0, |limit| all.len().saturating_sub(limit));
    let results = results_of(&all);
    let shown = all.get(first..).unwrap_or_default();
    let cursor = shown.first().filter(|_| first > 0);
    Ok(Window {
        cursor: cursor.and_then(|message| json::string(message.id)).map(Into::into),
        messages: shown.iter().map(|message| message.write(&results)).collect(),
    })
}

/// The last result of each call, by the call's id.
type Results<'a> = HashMap<&'a str, ToolResult<'a>>;

/// The client's messages. Activities are left out, because the client does not show them.
fn ui_messages<'a>(messages: &[&'a RawValue]) -> Vec<UiMessage<'a>> {
    let mut all: Vec<UiMessage<'a>> = Vec::new();
    let mut reasoning: Vec<UiMessage<'a>> = Vec::new();
    // A result is joined to the last message with its call, or else to the last assistant's
    // message.
    let mut callers: HashMap<&'a str, usize> = HashMap::new();
    let mut last_assistant = None;
    for message in messages.iter().filter_map(|message| UiMessage::read(message)) {
        match message.kind {
            MessageKind::Reasoning => reasoning.push(message),
            MessageKind::Plain if message.role == "assistant" => {
                let thinking = reasoning.drain(..).flat_map(|message| message.parts);
                let parts: Vec<_> = thinking.chain(message.parts).collect();
                last_assistant = Some(all.len());
                callers.extend(parts.iter().filter_map(UiPart::call_id).map(|id| (id, all.len())));
                all.push(UiMessage { parts, ..message });
            }
            MessageKind::Plain => {
                if !reasoning.is_empty() {
                    all.append(&mut reasoning);
                    last_assistant = Some(all.len() - 1);
                }
                all.push(message);
            }
            MessageKind::Result => {
                if !reasoning.is_empty() {
                    all.append(&mut reasoning);
                    last_assistant = Some(all.len() - 1);
                }
                let call = message.parts.iter().find_map(UiPart::result_of);
                let place =
                    call.and_then(|call| callers.get(call.get())).or(last_assistant.as_ref());
                match place.and_then(|at| all.get_mut(*at)) {
                    Some(caller) => caller.parts.extend(message.parts),
                    None => all.push(message),
                }
            }
        }
    }
    all.append(&mut reasoning);
    all
}

/// The last result of each call.
fn results_of<'a>(all: &[UiMessage<'a>]) -> Results<'a> {
    let parts = all.iter().flat_map(|message| &message.parts);
    let results = parts.filter_map(|part| match part {
        UiPart::Result(result) => Some((result.call_id.get(), *result)),
        UiPart::Text(_) | UiPart::Thinking { .. } | UiPart::Call { .. } | UiPart::Other(_) => None,
    });
    results.collect()
}

// === impl UiMessage ===

impl<'a> UiMessage<'a> {
    fn read(message: &'a RawValue) -> Option<Self> {
        let members = json::members(message)?;
        let (id, role) = (members.get("id")?, members.string("role")?);
        let content = members.get("content");
        let plain = |role, parts| (role, parts, MessageKind::Plain);
        let (role, parts, kind) = match &*role {
            "user" => plain("user", contents(content)),
            "system" | "developer" => plain("system", contents(content)),
            "assistant" => {
                let calls = members.get("toolCalls").and_then(json::items).unwrap_or_default();
                let calls = calls.into_iter().filter_map(UiPart::call);
                plain("assistant", contents(content).into_iter().chain(calls).collect())
            }
            "reasoning" => {
                let thinking = UiPart::Thinking {
                    content: content?,
                    signature: members.get("encryptedValue").filter(|value| !is_empty(value)),
                };
                ("assistant", vec![thinking], MessageKind::Reasoning)
            }
            "tool" => {
                let result = ToolResult {
                    id,
                    call_id: members.get("toolCallId")?,
                    content: content?,
                    error: members.get("error").filter(|error| error.get() != "null"),
                    metadata: metadata_of(&members),
                };
                ("assistant", vec![UiPart::Result(result)], MessageKind::Result)
            }
            _ => return None,
        };
        Some(Self { id, role, parts, metadata: metadata_of(&members), kind })
    }

    fn write(&self, results: &Results<'_>) -> Json {
        let parts: Vec<_> = self.parts.iter().map(|part| part.write(results)).collect();
        let message = ObjectWriter::new()
            .raw("id", self.id.get())
            .string("role", self.role)
            .raw("parts", json::array(parts.iter().map(|part| part.get())).get());
        match self.metadata {
            Some(metadata) => message.raw("metadata", metadata.get()),
            None => message,
        }
        .finish()
    }
}

/// The `metadata` of a message, if it is an object.
fn metadata_of<'a>(members: &Members<'a>) -> Option<&'a RawValue> {
    members.get("metadata").filter(|metadata| metadata.get().starts_with('{'))
}

/// The parts of a message's content.
fn contents(content: Option<&RawValue>) -> Vec<UiPart<'_>> {
    let Some(content) = content else { return Vec::new() };
    match json::items(content) {
        Some(items) => items.into_iter().filter_map(UiPart::of_content).collect(),
        None if content.get().starts_with('"') && !is_empty(content) => vec![UiPart::Text(content)],
        None => Vec::new(),
    }
}

fn is_empty(text: &RawValue) -> bool {
    matches!(text.get(), "\"\"" | "null")
}

// === impl UiPart ===

impl<'a> UiPart<'a> {
    fn of_content(part: &'a RawValue) -> Option<Self> {
        let members = json::members(part)?;
        match &*members.string("type")? {
            "text" => members.get("text").map(Self::Text),
            // The client has no such part.
            "binary" => None,
            _ => Some(Self::Other(part)),
        }
    }

    fn call(call: &'a RawValue) -> Option<Self> {
        let members = json::members(call)?;
        let function = json::members(members.get("function")?)?;
        Some(Self::Call {
            id: members.get("id")?,
            name: function.get("name")?,
            arguments: function.get("arguments")?,
        })
    }

    /// The id of the call that the part is.
    fn call_id(&self) -> Option<&'a str> {
        match self {
            Self::Call { id, .. } => Some(id.get()),
            Self::Text(_) | Self::Thinking { .. } | Self::Result(_) | Self::Other(_) => None,
        }
    }

    /// The id of the call whose result the part is.
    fn result_of(&self) -> Option<&'a RawValue> {
        match self {
            Self::Result(result) => Some(result.call_id),
            Self::Text(_) | Self::Thinking { .. } | Self::Call { .. } | Self::Other(_) => None,
        }
    }

    fn write(&self, results: &Results<'_>) -> Json {
        let part = |kind| ObjectWriter::new().string("type", kind);
        match self {
            Self::Text(content) => part("text").raw("content", content.get()).finish(),
            Self::Thinking { content, signature } => {
                let part = part("thinking").raw("content", content.get());
                match signature {
                    Some(signature) => part.raw("signature", signature.get()),
                    None => part,
                }
                .finish()
            }
            Self::Call { id, name, arguments } => {
                let result = results.get(id.get());
                let state = match result {
                    None => "input-complete",
                    Some(ToolResult { error: None, .. }) => "complete",
                    Some(ToolResult { error: Some(_), .. }) => "error",
                };
                let mut part = part("tool-call")
                    .raw("id", id.get())
                    .raw("name", name.get())
                    .raw("arguments", arguments.get())
                    .string("state", state);
                if let Some(input) = parsed(arguments) {
                    part = part.raw("input", input.get());
                }
                match result {
                    Some(result) => part.raw("output", result.output().get()),
                    None => part,
                }
                .finish()
            }
            Self::Result(result) => {
                let state = if result.error.is_some() { "error" } else { "complete" };
                let mut part = part("tool-result")
                    .raw("id", result.id.get())
                    .raw("toolCallId", result.call_id.get())
                    .raw("content", result.content.get())
                    .string("state", state);
                for (name, value) in [("error", result.error), ("metadata", result.metadata)] {
                    if let Some(value) = value {
                        part = part.raw(name, value.get());
                    }
                }
                part.finish()
            }
            Self::Other(part) => Json::from(*part),
        }
    }
}

// === impl ToolResult ===

impl ToolResult<'_> {
    /// The output of the call, in the client's form.
    fn output(&self) -> Json {
        match self.error {
            Some(error) => ObjectWriter::new().raw("error", error.get()).finish(),
            None => parsed(self.content).unwrap_or_else(|| Json::from(self.content)),
        }
    }
}

/// The value of a string that holds JSON.
fn parsed(text: &RawValue) -> Option<Json> {
    let text = json::string(text)?;
    serde_json::from_str::<&RawValue>(&text).ok().map(Json::from)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn shown(
        messages: &Value,
        limit: Option<usize>,
        before: Option<&str>,
    ) -> (Value, Option<String>) {
        let raw: Box<RawValue> = serde_json::from_str(&messages.to_string()).unwrap();
        let window = window(&json::items(&raw).unwrap(), limit, before).unwrap();
        let messages =
            window.messages.iter().map(|m| serde_json::from_str::<Value>(m.get()).unwrap());
        (messages.collect(), window.cursor)
    }

    #[test]
    fn a_conversation_is_what_the_client_makes_of_a_snapshot() {
        let messages = json!([
            {"id": "s", "role": "system", "content": "be brief"},
            {"id": "u", "role": "user", "content": [
                {"type": "text", "text": "what is this?"},
                {"type": "image", "source": {"type": "url", "value": "http://h/i.png"}},
                {"type": "binary", "mimeType": "image/png", "data": "AA"},
            ]},
            {"id": "r", "role": "reasoning", "content": "I look", "encryptedValue": "sealed"},
            {"id": "a", "role": "assistant", "content": "one moment", "toolCalls": [
                {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{\"at\":1}"}},
                {"id": "c2", "type": "function", "function": {"name": "look", "arguments": "{\"at\""}},
                {"id": "c3", "type": "function", "function": {"name": "wait", "arguments": ""}},
            ]},
            {"id": "t1", "role": "tool", "toolCallId": "c1", "content": "{\"seen\":true}"},
            {"id": "t2", "role": "tool", "toolCallId": "c2", "content": "no", "error": "failed"},
            {"id": "x", "role": "activity", "activityType": "plan", "content": {}},
            {"id": "b", "role": "assistant", "content": ""},
        ]);
        let (shown, cursor) = shown(&messages, None, None);
        assert_eq!(cursor, None);
        assert_eq!(
            shown,
            json!([
                {"id": "s", "role": "system", "parts": [{"type": "text", "content": "be brief"}]},
                {"id": "u", "role": "user", "parts": [
                    {"type": "text", "content": "what is this?"},
                    {"type": "image", "source": {"type": "url", "value": "http://h/i.png"}},
                ]},
                {"id": "a", "role": "assistant", "parts": [
                    {"type": "thinking", "content": "I look", "signature": "sealed"},
                    {"type": "text", "content": "one moment"},
                    {"type": "tool-call", "id": "c1", "name": "look", "arguments": "{\"at\":1}",
                     "state": "complete", "input": {"at": 1}, "output": {"seen": true}},
                    {"type": "tool-call", "id": "c2", "name": "look", "arguments": "{\"at\"",
                     "state": "error", "output": {"error": "failed"}},
                    {"type": "tool-call", "id": "c3", "name": "wait", "arguments": "",
                     "state": "input-complete"},
                    {"type": "tool-result", "id": "t1", "toolCallId": "c1",
                     "content": "{\"seen\":true}", "state": "complete"},
                    {"type": "tool-result", "id": "t2", "toolCallId": "c2", "content": "no",
                     "state": "error", "error": "failed"},
                ]},
                {"id": "b", "role": "assistant", "parts": []},
            ])
        );
    }

    #[test]
    fn a_result_without_its_call_and_reasoning_without_a_message_are_messages() {
        let messages = json!([
            {"id": "t", "role": "tool", "toolCallId": "c", "content": "7"},
            {"id": "r", "role": "reasoning", "content": "hm"},
            {"id": "u", "role": "user", "content": "go on"},
            {"id": "s", "role": "reasoning", "content": "well"},
        ]);
        let (shown, _) = shown(&messages, None, None);
        let ids: Vec<_> = shown.as_array().unwrap().iter().map(|message| &message["id"]).collect();
        assert_eq!(ids, ["t", "r", "u", "s"]);
    }

    #[test]
    fn a_window_ends_before_the_given_message_and_names_the_end_of_the_one_before() {
        let message = |n: usize| json!({"id": format!("m{n}"), "role": "user", "content": "x"});
        let messages: Value = (0..5).map(message).collect();
        for (limit, before, expected, cursor) in [
            (None, None, &["m0", "m1", "m2", "m3", "m4"][..], None),
            (Some(2), None, &["m3", "m4"], Some("m3")),
            (Some(2), Some("m3"), &["m1", "m2"], Some("m1")),
            (Some(2), Some("m1"), &["m0"], None),
            (Some(5), None, &["m0", "m1", "m2", "m3", "m4"], None),
            (Some(2), Some("m0"), &[], None),
        ] {
            let (shown, first) = shown(&messages, limit, before);
            let ids = shown.as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap());
            let ids: Vec<_> = ids.collect();
            assert_eq!((&*ids, first.as_deref()), (expected, cursor), "{limit:?} {before:?}");
        }
        let raw: Box<RawValue> = serde_json::from_str(&messages.to_string()).unwrap();
        let items = json::items(&raw).unwrap();
        assert_eq!(window(&items, None, Some("m7")), Err(NoSuchMessage));
    }
}
