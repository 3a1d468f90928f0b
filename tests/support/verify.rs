//! The order rules of AG-UI: what `verifyEvents` of the official client 1.0.0 rejects, and more.
//!
//! Four rules of the later drafts are added: a run ends under the ids that it started with, a
//! stream has one thread, interrupt ids are unique, and a stream is not truncated.
//! Events are judged in their wire form, so no type of the gateway can hide a fault.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

/// Checks one stream of events.
///
/// ```text
///           RUN_STARTED           RUN_FINISHED
/// Nothing --------------> Active --------------> Finished
///    |                     ^  | RUN_ERROR           | RUN_ERROR
///    |        RUN_STARTED  |  v                     v
///    `-----------------> Failed <------------------'
///          RUN_ERROR
/// ```
///
/// `Finished` too goes back to `Active` on `RUN_STARTED`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verifier {
    stage: Stage,
    /// The thread of the stream's first run.
    thread_id: Option<String>,
    run: Run,
}

/// The state of the stream.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    Nothing,
    Active,
    Finished,
    Failed,
}

/// The facts about the current run. A new run resets them.
#[derive(Clone, Debug, Default)]
struct Run {
    id: String,
    thread_id: String,
    open_texts: HashSet<String>,
    open_tool_calls: HashSet<String>,
    /// Spans and the messages inside are counted separately: one id may name both.
    open_reasoning_spans: HashSet<String>,
    open_reasoning_messages: HashSet<String>,
    open_steps: HashSet<(Owner, String)>,
    active_subagents: HashSet<String>,
    closed_subagents: HashSet<String>,
    /// The owner of each item, kept to the end of the run. An id is unique within its kind only.
    messages: HashMap<String, Owner>,
    tool_calls: HashMap<String, Owner>,
    activities: HashMap<String, Owner>,
    reasoning: HashMap<String, Owner>,
}

/// A subagent's run id; `None` is the parent agent.
type Owner = Option<String>;

type Verdict = Result<(), String>;

/// How a replayed message changes a known owner.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replay {
    /// A snapshot restates the conversation.
    Replaces,
    /// The echo of a run's input is history.
    Fills,
}

// === impl Verifier ===

impl Verifier {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Checks the next event of the stream. After an error, further results are undefined.
    pub(crate) fn check(&mut self, event: &Value) -> Verdict {
        let kind = string(event, "type")?;
        self.check_stage(kind)?;
        if kind == "RUN_STARTED" {
            return self.start_run(event);
        }
        check_nulls(kind, event)?;
        match kind {
            "RUN_FINISHED" => self.finish_run(event),
            "RUN_ERROR" => {
                self.stage = Stage::Failed;
                Ok(())
            }
            _ => self.run.check(kind, event),
        }
    }

    /// Checks that the stream may end here.
    pub(crate) fn finish(&self) -> Verdict {
        match self.stage {
            Stage::Finished | Stage::Failed => Ok(()),
            Stage::Nothing => Err("the stream ended without any event".to_owned()),
            Stage::Active => Err("the stream ended without a terminal event".to_owned()),
        }
    }

    fn check_stage(&self, kind: &str) -> Verdict {
        match (self.stage, kind) {
            (Stage::Nothing | Stage::Finished, "RUN_STARTED" | "RUN_ERROR")
            | (Stage::Failed, "RUN_STARTED") => Ok(()),
            (Stage::Nothing, _) => Err(format!("the first event is {kind}, not RUN_STARTED")),
            (Stage::Finished, _) => Err(format!("{kind} after RUN_FINISHED")),
            (Stage::Failed, _) => Err(format!("{kind} after RUN_ERROR")),
            (Stage::Active, "RUN_STARTED") => Err("RUN_STARTED while a run is active".to_owned()),
            (Stage::Active, _) => Ok(()),
        }
    }

    fn start_run(&mut self, event: &Value) -> Verdict {
        check_nulls("RUN_STARTED", event)?;
        let thread_id = string(event, "threadId")?;
        let first = self.thread_id.get_or_insert_with(|| thread_id.to_owned());
        if first != thread_id {
            return Err(format!("a run on thread {thread_id:?} in a stream of thread {first:?}"));
        }
        self.stage = Stage::Active;
        self.run = Run {
            id: string(event, "runId")?.to_owned(),
            thread_id: thread_id.to_owned(),
            ..Run::default()
        };
        self.run.replay_messages(&event["input"]["messages"], Replay::Fills)
    }

    fn finish_run(&mut self, event: &Value) -> Verdict {
        self.run.check_closed()?;
        for (field, started) in [("runId", &self.run.id), ("threadId", &self.run.thread_id)] {
            let finished = string(event, field)?;
            if finished != started {
                return Err(format!("RUN_FINISHED has {field} {finished:?}, not {started:?}"));
            }
        }
        let mut ids = HashSet::new();
        for interrupt in array(&event["outcome"]["interrupts"]) {
            let id = string(interrupt, "id")?;
            tag(interrupt).map_err(|error| format!("interrupt {id:?}: {error}"))?;
            if !ids.insert(id) {
                return Err(format!("two interrupts with the id {id:?}"));
            }
        }
        self.stage = Stage::Finished;
        Ok(())
    }
}

// === impl Run ===

impl Run {
    fn check(&mut self, kind: &str, event: &Value) -> Verdict {
        match kind {
            "TEXT_MESSAGE_START" | "TEXT_MESSAGE_CONTENT" | "TEXT_MESSAGE_END" => {
                self.check_text(kind, event)
            }
            "TOOL_CALL_START" => self.start_tool_call(event),
            "TOOL_CALL_ARGS" | "TOOL_CALL_END" => self.continue_tool_call(kind, event),
            "TOOL_CALL_RESULT" => {
                // The call makes a message; the newest message owns the id.
                self.messages.insert(string(event, "messageId")?.to_owned(), tag(event)?);
                Ok(())
            }
            "STEP_STARTED" | "STEP_FINISHED" => self.check_step(kind, event),
            "REASONING_START" | "REASONING_END" => self.check_reasoning_span(kind, event),
            "REASONING_MESSAGE_START" | "REASONING_MESSAGE_CONTENT" | "REASONING_MESSAGE_END" => {
                self.check_reasoning_message(kind, event)
            }
            "REASONING_ENCRYPTED_VALUE" => self.check_encrypted_value(event),
            "ACTIVITY_SNAPSHOT" => {
                let id = string(event, "messageId")?;
                // `replace: false` leaves an existing activity to its owner.
                if event["replace"] != false || !self.activities.contains_key(id) {
                    self.activities.insert(id.to_owned(), tag(event)?);
                }
                Ok(())
            }
            "ACTIVITY_DELTA" => {
                let id = string(event, "messageId")?;
                agree(kind, event, self.activities.get(id), "activity", id)
            }
            "MESSAGES_SNAPSHOT" => self.replay_messages(&event["messages"], Replay::Replaces),
            "SUBAGENT_STARTED" => self.start_subagent(event),
            "SUBAGENT_FINISHED" | "SUBAGENT_ERROR" => self.end_subagent(kind, event),
            _ => tag(event).map(drop),
        }
    }

    fn check_text(&mut self, kind: &str, event: &Value) -> Verdict {
        let id = string(event, "messageId")?;
        follow_bracket(&mut self.open_texts, kind, "text message", id)?;
        agree(kind, event, self.messages.get(id), "message", id)?;
        remember(&mut self.messages, id, tag(event)?);
        Ok(())
    }

    fn start_tool_call(&mut self, event: &Value) -> Verdict {
        let kind = "TOOL_CALL_START";
        let id = string(event, "toolCallId")?;
        follow_bracket(&mut self.open_tool_calls, kind, "tool call", id)?;
        // On the wire a tool call has no owner of its own: it belongs to its parent message.
        let parent = event["parentMessageId"].as_str().and_then(|id| self.messages.get(id));
        agree(kind, event, parent, "parent message of tool call", id)?;
        let known = self.tool_calls.get(id);
        agree(kind, event, known, "tool call", id)?;
        let own = tag(event)?;
        if own.is_none()
            && let (Some(parent), Some(known)) = (parent, known)
            && parent != known
        {
            return Err(format!("tool call {id:?} moves to a message of another owner"));
        }
        let owner = own.or_else(|| parent.cloned().flatten());
        remember(&mut self.tool_calls, id, owner);
        Ok(())
    }

    fn continue_tool_call(&mut self, kind: &str, event: &Value) -> Verdict {
        let id = string(event, "toolCallId")?;
        follow_bracket(&mut self.open_tool_calls, kind, "tool call", id)?;
        agree(kind, event, self.tool_calls.get(id), "tool call", id)
    }

    fn check_step(&mut self, kind: &str, event: &Value) -> Verdict {
        let name = string(event, "stepName")?;
        let step = (tag(event)?, name.to_owned());
        if kind == "STEP_STARTED" {
            return if self.open_steps.insert(step) {
                Ok(())
            } else {
                Err(format!("step {name:?} is already active"))
            };
        }
        if self.open_steps.remove(&step) {
            Ok(())
        } else if self.open_steps.iter().any(|(_, open)| open == name) {
            Err(format!("step {name:?} was started by another owner"))
        } else {
            Err(format!("step {name:?} was not started"))
        }
    }

    fn check_reasoning_span(&mut self, kind: &str, event: &Value) -> Verdict {
        let id = string(event, "messageId")?;
        follow_bracket(&mut self.open_reasoning_spans, kind, "reasoning span", id)?;
        self.own_reasoning(kind, event, id)
    }

    fn check_reasoning_message(&mut self, kind: &str, event: &Value) -> Verdict {
        let id = string(event, "messageId")?;
        follow_bracket(&mut self.open_reasoning_messages, kind, "reasoning message", id)?;
        self.own_reasoning(kind, event, id)
    }

    /// A span and the message inside it share an owner if they share an id.
    fn own_reasoning(&mut self, kind: &str, event: &Value, id: &str) -> Verdict {
        agree(kind, event, self.reasoning.get(id), "reasoning message", id)?;
        remember(&mut self.reasoning, id, tag(event)?);
        Ok(())
    }

    fn check_encrypted_value(&self, event: &Value) -> Verdict {
        let id = string(event, "entityId")?;
        let (owner, what) = match string(event, "subtype")? {
            "tool-call" => (self.tool_calls.get(id), "tool call"),
            "message" => (self.messages.get(id).or_else(|| self.reasoning.get(id)), "message"),
            _ => (self.reasoning.get(id), "reasoning message"),
        };
        agree("REASONING_ENCRYPTED_VALUE", event, owner, what, id)
    }

    fn replay_messages(&mut self, messages: &Value, replay: Replay) -> Verdict {
        for message in array(messages) {
            let Some(id) = message["id"].as_str() else { continue };
            let owner = tag(message).map_err(|error| format!("message {id:?}: {error}"))?;
            let owners = match message["role"].as_str() {
                Some("reasoning") => &mut self.reasoning,
                Some("activity") => &mut self.activities,
                _ => &mut self.messages,
            };
            replay.put(owners, id, owner.clone());
            for call in array(&message["toolCalls"]) {
                if let Some(id) = call["id"].as_str() {
                    replay.put(&mut self.tool_calls, id, owner.clone());
                }
            }
        }
        Ok(())
    }

    fn start_subagent(&mut self, event: &Value) -> Verdict {
        let id = string(event, "subagentRunId")?;
        string(event, "name")?;
        if self.active_subagents.contains(id) {
            return Err(format!("subagent {id:?} is already active"));
        }
        if self.closed_subagents.contains(id) {
            return Err(format!("subagent {id:?} has already finished in this run"));
        }
        if let Some(parent) = event["parentSubagentRunId"].as_str()
            && !self.active_subagents.contains(parent)
            && !self.closed_subagents.contains(parent)
        {
            return Err(format!("parent subagent {parent:?} was not started in this run"));
        }
        self.active_subagents.insert(id.to_owned());
        Ok(())
    }

    fn end_subagent(&mut self, kind: &str, event: &Value) -> Verdict {
        let id = string(event, "subagentRunId")?;
        if kind == "SUBAGENT_ERROR" {
            string(event, "message")?;
        }
        if !self.active_subagents.remove(id) {
            return Err(format!("{kind} for subagent {id:?}, which is not active"));
        }
        self.closed_subagents.insert(id.to_owned());
        Ok(())
    }

    fn check_closed(&self) -> Verdict {
        let steps: HashSet<_> = self.open_steps.iter().map(|(_, name)| name.clone()).collect();
        for (what, open) in [
            ("steps", &steps),
            ("text messages", &self.open_texts),
            ("reasoning messages", &self.open_reasoning_messages),
            ("reasoning spans", &self.open_reasoning_spans),
            ("tool calls", &self.open_tool_calls),
            ("subagents", &self.active_subagents),
        ] {
            if !open.is_empty() {
                return Err(format!("RUN_FINISHED while {what} are open: {open:?}"));
            }
        }
        Ok(())
    }
}

// === impl Replay ===

impl Replay {
    fn put(self, owners: &mut HashMap<String, Owner>, id: &str, owner: Owner) {
        if self == Self::Replaces {
            owners.insert(id.to_owned(), owner);
        } else {
            remember(owners, id, owner);
        }
    }
}

/// Opens, continues or closes the item `id`, by the suffix of the event's name.
fn follow_bracket(open: &mut HashSet<String>, kind: &str, what: &str, id: &str) -> Verdict {
    let is_legal = if kind.ends_with("_START") {
        open.insert(id.to_owned())
    } else if kind.ends_with("_END") {
        open.remove(id)
    } else {
        open.contains(id)
    };
    if is_legal {
        Ok(())
    } else if kind.ends_with("_START") {
        Err(format!("{kind}: {what} {id:?} is already open"))
    } else {
        Err(format!("{kind}: {what} {id:?} is not open"))
    }
}

/// The first owner stays: reopening without a tag does not hand an item back to the parent.
fn remember(owners: &mut HashMap<String, Owner>, id: &str, owner: Owner) {
    owners.entry(id.to_owned()).or_insert(owner);
}

/// A tag must equal the owner of the item that it continues. No tag agrees with every owner.
fn agree(kind: &str, event: &Value, owner: Option<&Owner>, what: &str, id: &str) -> Verdict {
    let tag = tag(event)?;
    match owner {
        Some(owner) if tag.is_some() && tag != *owner => {
            Err(format!("{kind} by {tag:?}, but {what} {id:?} belongs to {owner:?}"))
        }
        _ => Ok(()),
    }
}

/// Checks that fields are absent instead of null, and checks the outcome of a subagent.
fn check_nulls(kind: &str, event: &Value) -> Verdict {
    tag(event).map_err(|error| format!("{kind}: {error}"))?;
    let optional: &[&str] = match kind {
        "SUBAGENT_STARTED" => {
            &["description", "parentSubagentRunId", "parentToolCallId", "parentMessageId"]
        }
        "SUBAGENT_FINISHED" => &["outcome"],
        "SUBAGENT_ERROR" => &["code"],
        _ => return Ok(()),
    };
    if let Some(field) = optional.iter().find(|field| event.get(**field) == Some(&Value::Null)) {
        return Err(format!("{kind}: {field} is null"));
    }
    let Some(outcome) = event.get("outcome").filter(|outcome| !outcome.is_null()) else {
        return Ok(());
    };
    if !matches!(outcome["type"].as_str(), Some("success" | "suspended")) {
        return Err(format!("{kind}: the outcome is neither success nor suspended"));
    }
    match outcome.get("interruptIds") {
        Some(Value::Null) => Err(format!("{kind}: outcome.interruptIds is null")),
        Some(ids) if !array(ids).iter().all(Value::is_string) => {
            Err(format!("{kind}: outcome.interruptIds holds something that is not a string"))
        }
        _ => Ok(()),
    }
}

/// The subagent of an event or message.
fn tag(tagged: &Value) -> Result<Owner, String> {
    match tagged.get("subagentRunId") {
        None => Ok(None),
        Some(Value::String(id)) => Ok(Some(id.clone())),
        Some(other) => Err(format!("subagentRunId is {other}")),
    }
}

fn string<'a>(object: &'a Value, field: &str) -> Result<&'a str, String> {
    object[field].as_str().ok_or_else(|| format!("{field} is missing in {object}"))
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
