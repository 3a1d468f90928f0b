//! A conversation as `TanStack` AI's client holds it: `UIMessage`s, made of AG-UI's messages.
//!
//! The client makes the same of a `MESSAGES_SNAPSHOT`. So a conversation that it has loaded and one
//! that a stream has told it are alike, with the same ids.

use std::collections::HashMap;

use serde_json::value::RawValue;

use crate::json::{self, Json, Members, ObjectWriter};

/// A message of the client's.
#[derive(Debug)]
struct UiMessage<'a> {
    id: &'a RawValue,
    role: &'static str,
    parts: Vec<Part<'a>>,
    metadata: Option<&'a RawValue>,
    kind: MessageKind,
}

/// What a message was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageKind {
    /// What somebody says.
    Said,
    /// A thought, which goes to the answer after it.
    Thought,
    /// A result without the message of its call.
    Result,
}

/// A part of a message.
#[derive(Debug)]
enum Part<'a> {
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
    /// A part that both write alike: media.
    Other(&'a RawValue),
}

/// What a tool has answered.
#[derive(Clone, Copy, Debug)]
struct ToolResult<'a> {
    id: &'a RawValue,
    call_id: &'a RawValue,
    content: &'a RawValue,
    error: Option<&'a RawValue>,
    metadata: Option<&'a RawValue>,
}

/// A part of a conversation, from the end of it or from before a message.
#[derive(Debug, PartialEq, Eq)]
pub struct Window {
    /// The messages.
    pub messages: Vec<Json>,
    /// The first of them, if there are others before it.
    pub cursor: Option<String>,
}

/// There is no such message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchMessage;

/// The last `limit` messages, or all, of those before the message `before`, or of all; `messages` are
/// AG-UI's.
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

/// By call: its last result.
type Results<'a> = HashMap<&'a str, ToolResult<'a>>;

/// The client's messages. Activities are none of them: it shows nothing of them.
fn ui_messages<'a>(messages: &[&'a RawValue]) -> Vec<UiMessage<'a>> {
    let mut all: Vec<UiMessage<'a>> = Vec::new();
    let mut thoughts: Vec<UiMessage<'a>> = Vec::new();
    // Where a result belongs: to the last message with its call, else to the last of an assistant.
    let mut callers: HashMap<&'a str, usize> = HashMap::new();
    let mut last_assistant = None;
    for message in messages.iter().filter_map(|message| UiMessage::read(message)) {
        match message.kind {
            MessageKind::Thought => thoughts.push(message),
            MessageKind::Said if message.role == "assistant" => {
                let thought = thoughts.drain(..).flat_map(|thought| thought.parts);
                let parts: Vec<_> = thought.chain(message.parts).collect();
                last_assistant = Some(all.len());
                callers.extend(parts.iter().filter_map(Part::call_id).map(|id| (id, all.len())));
                all.push(UiMessage { parts, ..message });
            }
            MessageKind::Said => {
                if !thoughts.is_empty() {
                    all.append(&mut thoughts);
                    last_assistant = Some(all.len() - 1);
                }
                all.push(message);
            }
            MessageKind::Result => {
                if !thoughts.is_empty() {
                    all.append(&mut thoughts);
                    last_assistant = Some(all.len() - 1);
                }
                let call = message.parts.iter().find_map(Part::result_of);
                let place =
                    call.and_then(|call| callers.get(call.get())).or(last_assistant.as_ref());
                match place.and_then(|at| all.get_mut(*at)) {
                    Some(asking) => asking.parts.extend(message.parts),
                    None => all.push(message),
                }
            }
        }
    }
    all.append(&mut thoughts);
    all
}

/// The last result of each call.
fn results_of<'a>(all: &[UiMessage<'a>]) -> Results<'a> {
    let parts = all.iter().flat_map(|message| &message.parts);
    let results = parts.filter_map(|part| match part {
        Part::Result(result) => Some((result.call_id.get(), *result)),
        Part::Text(_) | Part::Thinking { .. } | Part::Call { .. } | Part::Other(_) => None,
    });
    results.collect()
}

// === impl UiMessage ===

impl<'a> UiMessage<'a> {
    fn read(message: &'a RawValue) -> Option<Self> {
        let members = json::members(message)?;
        let (id, role) = (members.get("id")?, members.string("role")?);
        let content = members.get("content");
        let said = |role, parts| (role, parts, MessageKind::Said);
        let (role, parts, kind) = match &*role {
            "user" => said("user", contents(content)),
            "system" | "developer" => said("system", contents(content)),
            "assistant" => {
                let calls = members.get("toolCalls").and_then(json::items).unwrap_or_default();
                let calls = calls.into_iter().filter_map(Part::call);
                said("assistant", contents(content).into_iter().chain(calls).collect())
            }
            "reasoning" => {
                let thought = Part::Thinking {
                    content: content?,
                    signature: members.get("encryptedValue").filter(|value| !is_empty(value)),
                };
                ("assistant", vec![thought], MessageKind::Thought)
            }
            "tool" => {
                let result = ToolResult {
                    id,
                    call_id: members.get("toolCallId")?,
                    content: content?,
                    error: members.get("error").filter(|error| error.get() != "null"),
                    metadata: of_object(&members),
                };
                ("assistant", vec![Part::Result(result)], MessageKind::Result)
            }
            _ => return None,
        };
        Some(Self { id, role, parts, metadata: of_object(&members), kind })
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

/// The `metadata` of a message, if it has some.
fn of_object<'a>(members: &Members<'a>) -> Option<&'a RawValue> {
    members.get("metadata").filter(|metadata| metadata.get().starts_with('{'))
}

/// The parts of a message's content.
fn contents(content: Option<&RawValue>) -> Vec<Part<'_>> {
    let Some(content) = content else { return Vec::new() };
    match json::items(content) {
        Some(items) => items.into_iter().filter_map(Part::of_content).collect(),
        None if content.get().starts_with('"') && !is_empty(content) => vec![Part::Text(content)],
        None => Vec::new(),
    }
}

fn is_empty(text: &RawValue) -> bool {
    matches!(text.get(), "\"\"" | "null")
}

// === impl Part ===

impl<'a> Part<'a> {
    fn of_content(part: &'a RawValue) -> Option<Self> {
        let members = json::members(part)?;
        match &*members.string("type")? {
            "text" => members.get("text").map(Self::Text),
            // The client has no part for it.
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

    /// The call that it is.
    fn call_id(&self) -> Option<&'a str> {
        match self {
            Self::Call { id, .. } => Some(id.get()),
            Self::Text(_) | Self::Thinking { .. } | Self::Result(_) | Self::Other(_) => None,
        }
    }

    /// The call that it is the result of.
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
    /// What the client takes for the output of the call.
    fn output(&self) -> Json {
        match self.error {
            Some(error) => ObjectWriter::new().raw("error", error.get()).finish(),
            None => parsed(self.content).unwrap_or_else(|| Json::from(self.content)),
        }
    }
}

/// The value of a text that is JSON.
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
    fn a_result_without_its_call_and_a_thought_without_an_answer_are_messages() {
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
    fn a_window_ends_where_it_is_asked_to_and_says_where_the_one_before_ends() {
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
            let (shown, told) = shown(&messages, limit, before);
            let ids = shown.as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap());
            let ids: Vec<_> = ids.collect();
            assert_eq!((&*ids, told.as_deref()), (expected, cursor), "{limit:?} {before:?}");
        }
        let raw: Box<RawValue> = serde_json::from_str(&messages.to_string()).unwrap();
        let items = json::items(&raw).unwrap();
        assert_eq!(window(&items, None, Some("m7")), Err(NoSuchMessage));
    }
}
