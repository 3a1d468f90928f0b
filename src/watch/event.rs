//! AG-UI events as this client reads them, with only the members that it prints.
//!
//! Reading is tolerant: a missing or mistyped member counts as absent, and an event that is not
//! printed is [`Event::Other`]. The gateway's own types are not used, because shared types could not
//! reveal a fault in them.

use serde_json::value::RawValue;

use threadway_translate::json::{self, Members, Text};

#[derive(Debug, PartialEq)]
pub(super) enum Event {
    RunStarted {
        run_id: String,
    },
    RunFinished {
        run_id: String,
        outcome: Outcome,
        error: Option<Failure>,
    },
    RunError(Failure),
    Start {
        id: String,
        author: String,
    },
    Delta {
        id: String,
        delta: Text,
    },
    End {
        id: String,
    },
    CallStart {
        id: String,
        name: String,
    },
    CallArgs {
        id: String,
        delta: Text,
    },
    CallEnd {
        id: String,
    },
    CallResult(Message),
    Messages(Vec<Message>),
    /// A state without a key, as that of an unknown thread.
    NoState,
    Other,
}

/// How a run ended without a failure.
#[derive(Debug, PartialEq)]
pub(super) enum Outcome {
    Success,
    Cancelled,
    Interrupt(Vec<Interrupt>),
}

/// A question of a run.
#[derive(Debug, PartialEq)]
pub(super) struct Interrupt {
    pub(super) id: String,
    pub(super) reason: String,
    pub(super) message: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failure {
    pub(super) code: Option<String>,
    pub(super) message: String,
}

/// A message of a snapshot, or the result of a call.
#[derive(Debug, PartialEq)]
pub(super) struct Message {
    pub(super) id: String,
    pub(super) role: String,
    /// The role, and the name if there is one.
    pub(super) author: String,
    pub(super) content: Text,
    pub(super) calls: Vec<ToolCall>,
    /// The call that a tool message answers.
    pub(super) call_id: String,
}

/// A tool call of a message.
#[derive(Debug, PartialEq)]
pub(super) struct ToolCall {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) args: Text,
}

// === impl Event ===

impl Event {
    /// Reads an event; `None` if the text is not one.
    pub(super) fn read(json: &str) -> Option<Self> {
        let members: Members<'_> = serde_json::from_str(json).ok()?;
        let kind = members.string("type")?;
        let text = |name: &str| string(&members, name).unwrap_or_default();
        let delta = || members.text("delta").unwrap_or_else(|| Text::new(""));
        let (message, call) = (|| text("messageId"), || text("toolCallId"));
        Some(match &*kind {
            "RUN_STARTED" => Self::RunStarted { run_id: text("runId") },
            "RUN_FINISHED" => Self::RunFinished {
                run_id: text("runId"),
                outcome: members.get("outcome").map_or(Outcome::Success, Outcome::read),
                error: last_failure(&members),
            },
            "RUN_ERROR" => Self::RunError(Failure::of(&members)),
            "TEXT_MESSAGE_START" => Self::Start { id: message(), author: author(&members) },
            "TEXT_MESSAGE_CONTENT" | "TEXT_MESSAGE_CHUNK" => {
                Self::Delta { id: message(), delta: delta() }
            }
            "TEXT_MESSAGE_END" => Self::End { id: message() },
            "TOOL_CALL_START" => Self::CallStart { id: call(), name: text("toolCallName") },
            "TOOL_CALL_ARGS" => Self::CallArgs { id: call(), delta: delta() },
            "TOOL_CALL_END" => Self::CallEnd { id: call() },
            "TOOL_CALL_RESULT" => Self::CallResult(Message::read(message(), &members)),
            "MESSAGES_SNAPSHOT" => Self::Messages(each(&members, "messages", |message| {
                Some(Message::read(string(message, "id")?, message))
            })),
            "STATE_SNAPSHOT" if members.get("snapshot").is_some_and(|it| it.get() == "{}") => {
                Self::NoState
            }
            _ => Self::Other,
        })
    }
}

/// A string, which may contain half a surrogate pair.
fn string(members: &Members<'_>, name: &str) -> Option<String> {
    Some(members.text(name)?.decode().into_owned())
}

/// The readable items of a list.
fn each<T>(members: &Members<'_>, name: &str, read: fn(&Members<'_>) -> Option<T>) -> Vec<T> {
    let items = members.get(name).and_then(json::items).unwrap_or_default();
    items.into_iter().filter_map(|item| read(&json::members(item)?)).collect()
}

/// The text of a content. Parts that are not text are named in brackets.
fn content(members: &Members<'_>) -> Text {
    members.text("content").unwrap_or_else(|| {
        let parts = each(members, "content", |part| {
            let kind = string(part, "type")?;
            Some(string(part, "text").unwrap_or_else(|| format!("[{kind}]")))
        });
        Text::new(&parts.join("\n"))
    })
}

/// Why the last run of an idle thread failed. The gateway puts it into the event's metadata.
fn last_failure(members: &Members<'_>) -> Option<Failure> {
    let metadata = json::members(members.get("metadata")?)?;
    let langgraph = json::members(metadata.get("langgraph")?)?;
    Some(Failure::of(&json::members(langgraph.get("error")?)?))
}

/// The author of a message.
fn author(members: &Members<'_>) -> String {
    let role = string(members, "role").unwrap_or_else(|| "assistant".to_owned());
    match string(members, "name") {
        Some(name) => format!("{role} ({name})"),
        None => role,
    }
}

// === impl Outcome ===

impl Outcome {
    fn read(value: &RawValue) -> Self {
        let Some(members) = json::members(value) else { return Self::Success };
        match members.string("type").as_deref() {
            Some("interrupt") => Self::Interrupt(each(&members, "interrupts", |members| {
                let text = |name| string(members, name).unwrap_or_default();
                let message = string(members, "message");
                Some(Interrupt { id: text("id"), reason: text("reason"), message })
            })),
            Some("cancelled") => Self::Cancelled,
            _ => Self::Success,
        }
    }
}

// === impl Failure ===

impl Failure {
    fn of(members: &Members<'_>) -> Self {
        let message = string(members, "message").unwrap_or_default();
        Self { code: string(members, "code"), message }
    }
}

// === impl Message ===

impl Message {
    fn read(id: String, members: &Members<'_>) -> Self {
        Self {
            id,
            role: string(members, "role").unwrap_or_default(),
            author: author(members),
            content: content(members),
            calls: each(members, "toolCalls", ToolCall::read),
            call_id: string(members, "toolCallId").unwrap_or_default(),
        }
    }
}

// === impl ToolCall ===

impl ToolCall {
    fn read(members: &Members<'_>) -> Option<Self> {
        let function = json::members(members.get("function")?)?;
        Some(Self {
            id: string(members, "id")?,
            name: string(&function, "name")?,
            args: function.text("arguments").unwrap_or_else(|| Text::new("")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_event_is_none_and_what_is_unknown_is_passed_over() {
        for garbage in ["", "1", "null", "[]", "{", "{}", r#"{"type":1}"#, r#""RUN_STARTED""#] {
            assert_eq!(Event::read(garbage), None, "{garbage}");
        }
        assert_eq!(Event::read(r#"{"type":"NEW_IN_2_0","x":[1]}"#), Some(Event::Other));
    }

    #[test]
    fn members_that_are_missing_or_of_another_type_count_as_absent() {
        let run = Event::read(r#"{"type":"RUN_STARTED","runId":7}"#);
        assert_eq!(run, Some(Event::RunStarted { run_id: String::new() }));
        let json = r#"{"type":"MESSAGES_SNAPSHOT","messages":[1,{},{"id":"a","toolCalls":{}}]}"#;
        let Some(Event::Messages(messages)) = Event::read(json) else { panic!() };
        assert_eq!(messages.len(), 1);
        assert_eq!((&*messages[0].id, &*messages[0].author), ("a", "assistant"));
    }

    #[test]
    fn the_failure_of_the_last_run_is_read_beside_the_event() {
        let json = r#"{"type":"RUN_FINISHED","runId":"connect-1","outcome":{"type":"success"},
            "metadata":{"langgraph":{"error":{"code":"ValueError","message":"no"}}}}"#;
        let failure = Failure { code: Some("ValueError".into()), message: "no".into() };
        let Some(Event::RunFinished { error, .. }) = Event::read(json) else { panic!() };
        assert_eq!(error, Some(failure));
    }

    #[test]
    fn content_parts_that_are_not_text_are_named() {
        let json = r#"{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c",
            "content":[{"type":"text","text":"a"},{"type":"image","source":{}}]}"#;
        let Some(Event::CallResult(Message { content, .. })) = Event::read(json) else { panic!() };
        assert_eq!(content.decode(), "a\n[image]");
    }
}
