//! AG-UI events as this client reads them, with only the members that it prints.
//!
//! Reading is tolerant: a missing or mistyped member counts as absent, and an unknown event is
//! [`Event::Other`]. The gateway's own types are not used, because shared types could not reveal a
//! fault in them.

use serde_json::value::RawValue;

use threadway_translate::json::{self, Json, Members, Text};

#[derive(Debug, PartialEq)]
pub(super) enum Event {
    RunStarted { run_id: String },
    RunFinished { run_id: String, outcome: Outcome, error: Option<Failure> },
    RunError(Failure),
    Start { id: String, speaker: Speaker },
    Delta { id: String, delta: Text },
    ThoughtStart { id: String, subagent: Option<String> },
    ThoughtDelta { id: String, delta: Text },
    End { id: String },
    CallStart { id: String, name: String, subagent: Option<String> },
    CallArgs { id: String, delta: Text },
    CallEnd { id: String },
    CallResult { id: String, call_id: String, content: String },
    State(Json),
    StateDelta(Vec<Operation>),
    Messages(Vec<Message>),
    Custom { name: String, value: Json },
    Activity { id: String, activity: Activity },
    ActivityDelta { id: String, operations: Vec<Operation> },
    SubagentStarted { id: String, name: String },
    SubagentError { id: String, failure: Failure },
    Other,
}

/// The author of a message.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Speaker {
    pub(super) role: String,
    pub(super) name: Option<String>,
    pub(super) subagent: Option<String>,
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

/// A JSON Patch operation. `remove` has no value.
#[derive(Debug, PartialEq)]
pub(super) struct Operation {
    pub(super) op: String,
    pub(super) path: String,
    pub(super) value: Option<Json>,
}

/// Something shown beside the conversation.
#[derive(Debug, PartialEq)]
pub(super) struct Activity {
    pub(super) kind: String,
    pub(super) content: Json,
}

/// A message of a snapshot.
#[derive(Debug, PartialEq)]
pub(super) struct Message {
    pub(super) id: String,
    pub(super) speaker: Speaker,
    pub(super) content: Option<Text>,
    pub(super) calls: Vec<Call>,
    /// The call that a tool message answers.
    pub(super) call_id: Option<String>,
    pub(super) activity: Option<Activity>,
}

/// A tool call of a message.
#[derive(Debug, PartialEq)]
pub(super) struct Call {
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
        let subagent = || string(&members, "subagentRunId");
        Some(match &*kind {
            "RUN_STARTED" => Self::RunStarted { run_id: text("runId") },
            "RUN_FINISHED" => Self::RunFinished {
                run_id: text("runId"),
                outcome: members.get("outcome").map_or(Outcome::Success, Outcome::read),
                error: last_failure(&members),
            },
            "RUN_ERROR" => Self::RunError(Failure::of(&members)),
            "TEXT_MESSAGE_START" => {
                Self::Start { id: text("messageId"), speaker: Speaker::of(&members) }
            }
            "TEXT_MESSAGE_CONTENT" | "TEXT_MESSAGE_CHUNK" => {
                Self::Delta { id: text("messageId"), delta: delta() }
            }
            "REASONING_MESSAGE_START" => {
                Self::ThoughtStart { id: text("messageId"), subagent: subagent() }
            }
            "REASONING_MESSAGE_CONTENT" | "REASONING_MESSAGE_CHUNK" => {
                Self::ThoughtDelta { id: text("messageId"), delta: delta() }
            }
            "TEXT_MESSAGE_END" | "REASONING_MESSAGE_END" => Self::End { id: text("messageId") },
            "TOOL_CALL_START" => Self::CallStart {
                id: text("toolCallId"),
                name: text("toolCallName"),
                subagent: subagent(),
            },
            "TOOL_CALL_ARGS" => Self::CallArgs { id: text("toolCallId"), delta: delta() },
            "TOOL_CALL_END" => Self::CallEnd { id: text("toolCallId") },
            "TOOL_CALL_RESULT" => Self::CallResult {
                id: text("messageId"),
                call_id: text("toolCallId"),
                content: content(&members)
                    .map(|content| content.decode().into_owned())
                    .unwrap_or_default(),
            },
            "STATE_SNAPSHOT" => {
                members.get("snapshot").map_or(Self::Other, |s| Self::State(s.into()))
            }
            "STATE_DELTA" => Self::StateDelta(each(&members, "delta", Operation::read)),
            "MESSAGES_SNAPSHOT" => Self::Messages(each(&members, "messages", Message::read)),
            "CUSTOM" => Self::Custom {
                name: text("name"),
                value: members.get("value").unwrap_or(RawValue::NULL).into(),
            },
            "ACTIVITY_SNAPSHOT" => match Activity::read(&members) {
                Some(activity) => Self::Activity { id: text("messageId"), activity },
                None => Self::Other,
            },
            "ACTIVITY_DELTA" => Self::ActivityDelta {
                id: text("messageId"),
                operations: each(&members, "patch", Operation::read),
            },
            "SUBAGENT_STARTED" => {
                Self::SubagentStarted { id: text("subagentRunId"), name: text("name") }
            }
            "SUBAGENT_ERROR" => {
                Self::SubagentError { id: text("subagentRunId"), failure: Failure::of(&members) }
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
fn content(members: &Members<'_>) -> Option<Text> {
    if let Some(text) = members.text("content") {
        return Some(text);
    }
    let parts = each(members, "content", |part| {
        let kind = string(part, "type")?;
        Some(string(part, "text").unwrap_or_else(|| format!("[{kind}]")))
    });
    (!parts.is_empty()).then(|| Text::new(&parts.join("\n")))
}

/// Why the last run of an idle thread failed. The gateway puts it into the event's metadata.
fn last_failure(members: &Members<'_>) -> Option<Failure> {
    let metadata = json::members(members.get("metadata")?)?;
    let langgraph = json::members(metadata.get("langgraph")?)?;
    Some(Failure::of(&json::members(langgraph.get("error")?)?))
}

// === impl Speaker ===

impl Speaker {
    fn of(members: &Members<'_>) -> Self {
        Self {
            role: string(members, "role").unwrap_or_else(|| "assistant".to_owned()),
            name: string(members, "name"),
            subagent: string(members, "subagentRunId"),
        }
    }
}

// === impl Outcome ===

impl Outcome {
    fn read(value: &RawValue) -> Self {
        let Some(members) = json::members(value) else { return Self::Success };
        match members.string("type").as_deref() {
            Some("interrupt") => Self::Interrupt(each(&members, "interrupts", Interrupt::read)),
            Some("cancelled") => Self::Cancelled,
            _ => Self::Success,
        }
    }
}

// === impl Interrupt ===

impl Interrupt {
    #[expect(clippy::unnecessary_wraps, reason = "read as the others are")]
    fn read(members: &Members<'_>) -> Option<Self> {
        let text = |name| string(members, name).unwrap_or_default();
        Some(Self { id: text("id"), reason: text("reason"), message: string(members, "message") })
    }
}

// === impl Failure ===

impl Failure {
    fn of(members: &Members<'_>) -> Self {
        Self {
            code: string(members, "code"),
            message: string(members, "message").unwrap_or_default(),
        }
    }
}

// === impl Operation ===

impl Operation {
    fn read(members: &Members<'_>) -> Option<Self> {
        let value = members.get("value").map(Json::from);
        Some(Self { op: string(members, "op")?, path: string(members, "path")?, value })
    }
}

// === impl Activity ===

impl Activity {
    fn read(members: &Members<'_>) -> Option<Self> {
        let content = Json::from(members.get("content")?);
        Some(Self { kind: string(members, "activityType")?, content })
    }
}

// === impl Message ===

impl Message {
    fn read(members: &Members<'_>) -> Option<Self> {
        Some(Self {
            id: string(members, "id")?,
            speaker: Speaker::of(members),
            content: content(members),
            calls: each(members, "toolCalls", Call::read),
            call_id: string(members, "toolCallId"),
            activity: Activity::read(members),
        })
    }
}

// === impl Call ===

impl Call {
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
        assert_eq!(Event::read(r#"{"type":"STATE_SNAPSHOT"}"#), Some(Event::Other));
        let json = r#"{"type":"MESSAGES_SNAPSHOT","messages":[1,{},{"id":"a","toolCalls":{}}]}"#;
        let Some(Event::Messages(messages)) = Event::read(json) else { panic!() };
        assert_eq!(messages.len(), 1);
        assert_eq!((&*messages[0].id, &*messages[0].speaker.role), ("a", "assistant"));
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
        let Some(Event::CallResult { content, .. }) = Event::read(json) else { panic!() };
        assert_eq!(content, "a\n[image]");
    }
}
