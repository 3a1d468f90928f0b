//! Run events as AG-UI events, for one client: its ids, its generation, what it holds already.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use super::activity::activity;
use super::message::{Content, Parts};
use super::{
    ActivityContent, Event, Interrupt, LangGraph, LastError, Messages, Metadata, Outcome,
    PROTOCOL_VERSION, ResultMetadata, ResultStatus, TokenUsage,
};
use crate::json::{self, Json, ObjectWriter, Text};
use crate::langgraph::ApprovalForm;
use crate::run::{self, Ask, RunEvent, ViewerMessages};

/// The client that a stream is for.
#[derive(Clone, Debug)]
pub struct Client {
    /// The thread's id, as the client calls it.
    pub thread_id: String,
    /// What it calls the run.
    pub run_id: RunId,
    /// The run that this one goes on from, if the client named one.
    pub parent_run_id: Option<String>,
    /// Its generation.
    pub version: Version,
}

/// What a client calls a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunId {
    /// The run is its own, and goes by this id.
    Own(String),
    /// It watches what others have started, under the names that those go by; a thread at rest is
    /// told under this one.
    Watched(String),
    /// It watches, and has no name for anything.
    Unnamed,
}

/// A generation of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Sends `protocolVersion`; takes all of 1.0.
    V1,
    /// Sends none, as clients before 1.0 do. Unknown outcomes and content lists are fatal to it.
    Legacy,
}

/// Projects the events of one run for one client.
#[derive(Debug)]
pub struct Projector {
    client: Client,
    /// The id under which the client sees the run.
    run_id: String,
    held: Held,
    /// The starts that were left out since the client holds what they begin, while it is open.
    left_out: Vec<RunEvent>,
    /// The messages of the last snapshot, for a client that forgets at a start what it was shown.
    shown: Option<Vec<Arc<run::Message>>>,
}

/// What the client holds of the conversation.
#[derive(Debug)]
enum Held {
    /// What it sent along, while the run has shown nothing.
    Sent(Vec<Arc<run::Message>>, HeldIds),
    /// What it sent along, and more since: its order can no longer be told.
    Mixed(HeldIds),
    /// Nobody knows.
    Unknown,
    /// Nobody knows, but that it was here before.
    Returned,
    /// What the run has shown.
    Shown,
}

/// The ids that a client sent along: asked for every token until the run has shown its base.
#[derive(Debug, Default)]
struct HeldIds {
    messages: HashSet<run::Id>,
    calls: HashSet<run::Id>,
}

// === impl Version ===

impl Version {
    pub(super) fn parts(self) -> Parts {
        match self {
            Self::V1 => Parts::All,
            Self::Legacy => Parts::Legacy,
        }
    }
}

// === impl Projector ===

impl Projector {
    /// For a client that holds these messages.
    pub fn new(client: Client, held: Vec<Arc<run::Message>>) -> Self {
        let ids = HeldIds {
            messages: held.iter().map(|message| Arc::clone(&message.id)).collect(),
            calls: held.iter().flat_map(|m| &m.calls).map(|call| Arc::clone(&call.id)).collect(),
        };
        Self::holding(client, Held::Sent(held, ids))
    }

    /// For a client of which it is not known what it holds: an `EventSource` tells nothing, and may
    /// have been here before.
    pub fn for_anyone(client: Client) -> Self {
        Self::holding(client, Held::Unknown)
    }

    /// For one that comes back. It may hold what is told again, if it has to start over.
    pub fn for_returning(client: Client) -> Self {
        Self::holding(client, Held::Returned)
    }

    fn holding(client: Client, held: Held) -> Self {
        Self { client, run_id: String::new(), held, left_out: Vec::new(), shown: None }
    }

    /// The same for a client that drops what it holds of a message when that message starts, as
    /// `TanStack` AI's does. What the last snapshot had of it is sent again after the start.
    #[must_use]
    pub fn telling_again(self) -> Self {
        Self { shown: Some(Vec::new()), ..self }
    }

    /// Whether every client of its generation is sent the same from here on, but for how the run is
    /// called and how it ends.
    pub fn is_plain(&self) -> bool {
        matches!(self.held, Held::Shown) && self.left_out.is_empty() && self.shown.is_none()
    }

    /// The client's generation.
    pub fn version(&self) -> Version {
        self.client.version
    }

    /// The run's end follows: what it has not told by now it never will.
    pub fn end_is_near(&mut self) {
        if let Held::Returned = self.held {
            self.held = Held::Unknown;
        }
    }

    /// Takes in an event that the client has: what follows goes on from it.
    pub fn recall(&mut self, event: &RunEvent) {
        // So its thoughts do not begin again.
        if let Held::Returned = self.held {
            self.held = Held::Unknown;
        }
        self.project(event, &mut |_| {});
    }

    /// Projects one event.
    pub fn project(&mut self, event: &RunEvent, emit: &mut dyn FnMut(&Event<'_>)) {
        if self.held.has(event) {
            self.leave_out(event);
            return;
        }
        if begins_a_message(event) {
            self.held.mix();
        }
        self.unfold(event, emit);
        self.tell_again(event, emit);
    }

    /// Emits the wire's events of one that the client does not hold yet.
    fn unfold(&mut self, event: &RunEvent, emit: &mut dyn FnMut(&Event<'_>)) {
        match event {
            RunEvent::Started { thread_id, run_id, name } => {
                self.started(thread_id, run_id.as_deref(), name, emit);
            }
            RunEvent::Messages(messages) => {
                self.messages(messages, emit);
                // What is still being said goes on behind what the snapshot shows of it.
                for start in std::mem::take(&mut self.left_out) {
                    self.project(&start, emit);
                }
            }
            RunEvent::Ended { outcome, usage } => self.ended(outcome, usage, emit),
            RunEvent::TextStarted { message_id, role, name, agent } => {
                emit(&Event::TextMessageStart {
                    message_id,
                    role: text_role(*role),
                    name: name.as_ref(),
                    subagent_run_id: agent.as_deref(),
                });
            }
            RunEvent::TextDelta { message_id, delta } => {
                emit(&Event::TextMessageContent { message_id, delta });
            }
            RunEvent::TextEnded { message_id } => emit(&Event::TextMessageEnd { message_id }),
            RunEvent::Attached(attachment) => attached(attachment, emit),
            RunEvent::ReasoningStarted { message_id, agent } => {
                let subagent_run_id = agent.as_deref();
                emit(&Event::ReasoningStart { message_id, subagent_run_id });
                let role = "reasoning";
                emit(&Event::ReasoningMessageStart { message_id, role, subagent_run_id });
            }
            RunEvent::ReasoningDelta { message_id, delta } => {
                emit(&Event::ReasoningMessageContent { message_id, delta });
            }
            RunEvent::ReasoningEnded { message_id } => {
                emit(&Event::ReasoningMessageEnd { message_id });
                emit(&Event::ReasoningEnd { message_id });
            }
            RunEvent::ReasoningSealed { message_id, sealed } => {
                emit(&Event::ReasoningEncryptedValue {
                    subtype: "message",
                    entity_id: message_id,
                    encrypted_value: sealed,
                });
            }
            RunEvent::CallStarted { call_id, name, message_id, agent } => {
                emit(&Event::ToolCallStart {
                    tool_call_id: call_id,
                    tool_call_name: name,
                    parent_message_id: Some(message_id),
                    subagent_run_id: agent.as_deref(),
                });
            }
            RunEvent::CallArgs { call_id, delta } => {
                emit(&Event::ToolCallArgs { tool_call_id: call_id, delta });
            }
            RunEvent::CallEnded { call_id } => emit(&Event::ToolCallEnd { tool_call_id: call_id }),
            RunEvent::CallResult { message_id, call_id, content, is_error, agent } => {
                let failed = ResultMetadata { langgraph: ResultStatus { status: "error" } };
                emit(&Event::ToolCallResult {
                    message_id,
                    tool_call_id: call_id,
                    content: Content::of_tool(content, self.client.version.parts()),
                    role: "tool",
                    subagent_run_id: agent.as_deref(),
                    metadata: is_error.then_some(failed),
                });
            }
            RunEvent::StepStarted { name, agent } => {
                let subagent_run_id = agent.as_deref();
                emit(&Event::StepStarted { step_name: name, subagent_run_id });
            }
            RunEvent::StepFinished { name, agent } => {
                let subagent_run_id = agent.as_deref();
                emit(&Event::StepFinished { step_name: name, subagent_run_id });
            }
            RunEvent::StateSnapshot(snapshot) => emit(&Event::StateSnapshot { snapshot }),
            RunEvent::StateDelta(patch) => emit(&Event::StateDelta { delta: patch.operations() }),
            // The end of the run tells the sums.
            RunEvent::Spent { .. } => {}
            RunEvent::SubagentStarted(subagent) => emit(&Event::SubagentStarted {
                subagent_run_id: &subagent.id,
                name: &subagent.name,
                description: None,
                parent_subagent_run_id: subagent.parent.as_deref(),
                parent_tool_call_id: subagent.call_id.as_deref(),
            }),
            RunEvent::SubagentFinished { id } => {
                emit(&Event::SubagentFinished { subagent_run_id: id, outcome: None });
            }
            RunEvent::Raw(event) => emit(&Event::Raw { event, source: Some("langgraph") }),
            RunEvent::Activity { id, activity, change, agent: _ } => {
                project_activity(id, activity, change.as_ref(), emit);
            }
            RunEvent::Custom { name, value, agent } => {
                let subagent_run_id = agent.as_deref();
                emit(&Event::Custom { name, value, subagent_run_id });
            }
        }
    }

    /// Sends again the text and the arguments that the client drops at the start of a message or call.
    fn tell_again(&mut self, event: &RunEvent, emit: &mut dyn FnMut(&Event<'_>)) {
        let Some(shown) = &mut self.shown else { return };
        if let RunEvent::Messages(messages) = event {
            *shown = messages.iter().cloned().collect();
        }
        let said = |id: &run::Id| match &shown.iter().find(|message| message.id == *id)?.content {
            run::Content::Text(text) if !text.is_empty() => Some(text.to_text()),
            run::Content::Text(_) | run::Content::Absent | run::Content::Parts(_) => None,
        };
        if let RunEvent::TextStarted { message_id, .. } = event
            && let Some(delta) = said(message_id)
        {
            emit(&Event::TextMessageContent { message_id, delta: &delta });
        }
        if let RunEvent::ReasoningStarted { message_id, .. } = event
            && let Some(delta) = said(message_id)
        {
            emit(&Event::ReasoningMessageContent { message_id, delta: &delta });
        }
        if let RunEvent::CallStarted { call_id, .. } = event {
            let mut calls = shown.iter().flat_map(|message| &message.calls);
            if let Some(call) = calls.find(|call| call.id == *call_id && !call.args.is_empty()) {
                emit(&Event::ToolCallArgs { tool_call_id: call_id, delta: &call.args.to_text() });
            }
        }
    }

    fn started(
        &mut self,
        thread_id: &str,
        run_id: Option<&str>,
        name: &str,
        emit: &mut dyn FnMut(&Event<'_>),
    ) {
        let name = match (&self.client.run_id, run_id) {
            (RunId::Own(own), _) | (RunId::Watched(own), None) => own,
            (RunId::Watched(_) | RunId::Unnamed, _) => name,
        };
        name.clone_into(&mut self.run_id);
        let langgraph = LangGraph { thread_id: Some(thread_id), run_id, error: None };
        emit(&Event::RunStarted {
            thread_id: &self.client.thread_id,
            run_id: &self.run_id,
            protocol_version: PROTOCOL_VERSION,
            parent_run_id: self.client.parent_run_id.as_deref(),
            metadata: Some(Metadata { langgraph }),
        });
    }

    /// Notes what is open of what the client is not told.
    fn leave_out(&mut self, event: &RunEvent) {
        let is_ended = |start: &RunEvent| match (start, event) {
            (
                RunEvent::TextStarted { message_id: open, .. },
                RunEvent::TextEnded { message_id: ended },
            )
            | (
                RunEvent::ReasoningStarted { message_id: open, .. },
                RunEvent::ReasoningEnded { message_id: ended },
            )
            | (
                RunEvent::CallStarted { call_id: open, .. },
                RunEvent::CallEnded { call_id: ended },
            ) => open == ended,
            _ => false,
        };
        self.left_out.retain(|start| !is_ended(start));
        if begins_a_message(event) && !matches!(event, RunEvent::CallResult { .. }) {
            self.left_out.push(event.clone());
        }
    }

    /// The first snapshot is left out for a client that holds exactly it.
    fn messages(&mut self, messages: &run::Snapshot, emit: &mut dyn FnMut(&Event<'_>)) {
        let parts = self.client.version.parts();
        let mut snapshot = |list: &[Arc<run::Message>]| {
            let is_all = list.len() == messages.len()
                && list.iter().zip(messages.iter()).all(|(one, other)| Arc::ptr_eq(one, other));
            let messages = Messages::new(list, is_all.then_some(messages), parts);
            emit(&Event::MessagesSnapshot { messages });
        };
        let before = std::mem::replace(&mut self.held, Held::Shown);
        let viewer = match &before {
            Held::Sent(held, _) => ViewerMessages::Known(held),
            Held::Mixed(_) | Held::Unknown => ViewerMessages::Unknown,
            Held::Returned => ViewerMessages::Returning,
            Held::Shown => {
                snapshot(messages);
                return;
            }
        };
        for messages in run::snapshots(viewer, messages) {
            snapshot(&messages);
        }
    }

    fn ended(
        &self,
        outcome: &run::Outcome,
        usage: &[run::Usage],
        emit: &mut dyn FnMut(&Event<'_>),
    ) {
        let usage = usage.iter().map(token_usage).collect();
        let mut metadata = None;
        if let run::Outcome::Idle { error: Some(error) } = outcome {
            metadata = Some(failed(&error.code, &error.message, &error.reports));
        }
        let outcome = match (outcome, self.client.version) {
            (run::Outcome::Failed(failure), _) => {
                let (message, code, sources) =
                    (failure.message(), failure.code(), failure.reports());
                let metadata = (!sources.is_empty()).then(|| failed(code, message, sources));
                return emit(&Event::RunError { message, code: Some(code), usage, metadata });
            }
            // Without an outcome such a client reports success, after `RUN_ERROR` a failure. The
            // code `abort` is shown as neither.
            (run::Outcome::Cancelled, Version::Legacy) => {
                let message = "the run was cancelled";
                let code = Some("abort");
                return emit(&Event::RunError { message, code, usage, metadata });
            }
            (run::Outcome::Cancelled, Version::V1) => Some(Outcome::Cancelled),
            (run::Outcome::Finished { .. } | run::Outcome::Idle { .. }, Version::Legacy) => None,
            (run::Outcome::Idle { .. }, Version::V1) => {
                Some(Outcome::Success { pending_tool_call_ids: Vec::new() })
            }
            (run::Outcome::Finished { pending_calls, finish: _ }, Version::V1) => {
                Some(Outcome::Success {
                    pending_tool_call_ids: pending_calls.iter().map(|id| &**id).collect(),
                })
            }
            (run::Outcome::Interrupted(interrupts), _) => Some(Outcome::Interrupt {
                interrupts: interrupts.iter().flat_map(project_interrupt).collect(),
            }),
        };
        emit(&Event::RunFinished {
            thread_id: &self.client.thread_id,
            run_id: &self.run_id,
            result: None,
            outcome,
            usage,
            metadata,
        });
    }
}

/// Why a run failed, beside an event.
fn failed<'a>(code: &'a str, message: &'a str, sources: &'a [run::ErrorReport]) -> Metadata<'a> {
    let error = Some(LastError { code, message, sources });
    Metadata { langgraph: LangGraph { thread_id: None, run_id: None, error } }
}

// === impl Held ===

impl Held {
    /// Whether an event says again what the client sent along: until the run has shown its base,
    /// it cannot know that, and saying it again would append it.
    fn has(&self, event: &RunEvent) -> bool {
        let held = match self {
            Self::Sent(_, held) | Self::Mixed(held) => held,
            Self::Unknown | Self::Returned | Self::Shown => return false,
        };
        match event {
            RunEvent::TextStarted { message_id, .. }
            | RunEvent::TextDelta { message_id, .. }
            | RunEvent::TextEnded { message_id }
            | RunEvent::ReasoningStarted { message_id, .. }
            | RunEvent::ReasoningDelta { message_id, .. }
            | RunEvent::ReasoningEnded { message_id }
            | RunEvent::CallResult { message_id, .. } => held.messages.contains(message_id),
            RunEvent::CallStarted { call_id, .. }
            | RunEvent::CallArgs { call_id, .. }
            | RunEvent::CallEnded { call_id } => held.calls.contains(call_id),
            // Clients never send attachments along. One that is told again is replaced in its place.
            RunEvent::Attached(_)
            | RunEvent::Started { .. }
            | RunEvent::StepStarted { .. }
            | RunEvent::StepFinished { .. }
            | RunEvent::ReasoningSealed { .. }
            | RunEvent::StateSnapshot(_)
            | RunEvent::StateDelta(_)
            | RunEvent::Messages(_)
            | RunEvent::Spent { .. }
            | RunEvent::SubagentStarted(_)
            | RunEvent::SubagentFinished { .. }
            | RunEvent::Custom { .. }
            | RunEvent::Activity { .. }
            | RunEvent::Raw(_)
            | RunEvent::Ended { .. } => false,
        }
    }

    fn mix(&mut self) {
        if let Self::Sent(_, ids) = self {
            *self = match std::mem::take(ids) {
                // Who brought nothing along holds what the run has shown.
                ids if ids.messages.is_empty() => Self::Shown,
                ids => Self::Mixed(ids),
            };
        }
    }
}

fn project_activity(
    message_id: &str,
    activity: &run::Activity,
    change: Option<&run::Patch>,
    emit: &mut dyn FnMut(&Event<'_>),
) {
    let activity_type = match activity {
        run::Activity::Tool { .. } => "threadway.tool",
        run::Activity::Plan { .. } => "threadway.plan",
    };
    if let Some(change) = change {
        let patch = change.operations();
        emit(&Event::ActivityDelta { message_id, activity_type, patch });
    } else {
        emit(&Event::ActivitySnapshot {
            message_id,
            activity_type,
            content: ActivityContent::Json(&activity.content()),
            // The default, and what a parsed event of older clients has.
            replace: Some(true),
            subagent_run_id: None,
        });
    }
}

fn begins_a_message(event: &RunEvent) -> bool {
    matches!(
        event,
        RunEvent::TextStarted { .. }
            | RunEvent::Attached(_)
            | RunEvent::ReasoningStarted { .. }
            | RunEvent::CallStarted { .. }
            | RunEvent::CallResult { .. }
    )
}

/// AG-UI's text messages have any role but that of a tool.
fn text_role(role: run::Role) -> &'static str {
    match role {
        run::Role::User => "user",
        run::Role::System => "system",
        run::Role::Developer => "developer",
        run::Role::Assistant | run::Role::Tool | run::Role::Reasoning | run::Role::Attachment => {
            "assistant"
        }
    }
}

fn attached(attachment: &run::Message, emit: &mut dyn FnMut(&Event<'_>)) {
    let (activity_type, content) = activity(attachment);
    emit(&Event::ActivitySnapshot {
        message_id: &attachment.id,
        activity_type,
        content,
        // The default. Clients before 1.0 write it into the event where it is absent.
        replace: Some(true),
        subagent_run_id: attachment.agent.as_deref(),
    });
}

fn token_usage(usage: &run::Usage) -> TokenUsage<'_> {
    /// Numbers are JavaScript's: what it cannot hold exactly is not told.
    const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;
    let safe = |number: Option<u64>| number.filter(|number| *number <= MAX_SAFE_INTEGER);
    TokenUsage {
        provider: usage.provider.as_deref(),
        model: usage.model.as_deref(),
        input_tokens: safe(usage.input),
        output_tokens: safe(usage.output),
        total_tokens: safe(usage.total),
        reasoning_tokens: safe(usage.reasoning),
        cached_input_tokens: safe(usage.cache_read),
        cache_write_input_tokens: safe(usage.cache_write),
    }
}

/// One interrupt of LangGraph's is one of AG-UI's, but for an approval, which is one per call that
/// waits for a decision.
fn project_interrupt(interrupt: &run::Interrupt) -> Vec<Interrupt<'_>> {
    match &interrupt.ask {
        Ask::Approval { actions, form } if actions.len() == 1 => {
            actions.iter().map(|action| project_action(&interrupt.id, action, *form)).collect()
        }
        Ask::Approval { actions, form } => actions
            .iter()
            .enumerate()
            .filter(|(_, action)| action.kept.is_none())
            .map(|(at, action)| project_action(&format!("{}:{at}", interrupt.id), action, *form))
            .collect(),
        Ask::Answer { value, schema } => {
            vec![project_answer(&interrupt.id, value, schema.as_ref())]
        }
        Ask::Breakpoint => vec![Interrupt {
            id: interrupt.id.to_string(),
            reason: Cow::Borrowed("langgraph:breakpoint"),
            message: None,
            tool_call_id: None,
            response_schema: None,
            expires_at: None,
            metadata: None,
        }],
    }
}

fn project_action<'a>(id: &str, action: &'a run::Action, form: ApprovalForm) -> Interrupt<'a> {
    let decisions: Vec<_> = action.decisions.iter().map(|decision| &**decision).collect();
    let schema = action.schema.clone();
    Interrupt {
        id: id.to_owned(),
        reason: Cow::Borrowed(if action.call_id.is_some() { "tool_call" } else { "confirmation" }),
        message: action.description.clone(),
        tool_call_id: action.call_id.as_deref().map(Cow::Borrowed),
        response_schema: schema.or_else(|| Some(decision_schema(&decisions, form))),
        expires_at: None,
        metadata: Some(action_metadata(action, &decisions)),
    }
}

/// What answers an approval: LangChain's decision, or Agent Inbox's response, of the kinds that are
/// allowed.
fn decision_schema(decisions: &[&str], form: ApprovalForm) -> Json {
    let of = |kind| ObjectWriter::new().string("type", kind).finish();
    let kinds = ObjectWriter::new().raw("enum", written(&decisions).get()).finish();
    let properties = ObjectWriter::new().raw("type", kinds.get());
    let properties = match form {
        ApprovalForm::Inbox => {
            properties.raw(form.edit_key(), r#"{"type":["string","object","null"]}"#)
        }
        ApprovalForm::Python | ApprovalForm::JavaScript | ApprovalForm::PerCall => {
            properties.raw("message", of("string").get()).raw(form.edit_key(), of("object").get())
        }
    };
    let properties = properties.finish();
    ObjectWriter::new()
        .string("type", "object")
        .raw("properties", properties.get())
        .raw("required", "[\"type\"]")
        .finish()
}

fn action_metadata(action: &run::Action, decisions: &[&str]) -> Json {
    #[derive(serde::Serialize)]
    struct Outer<'a> {
        langgraph: Inner<'a>,
    }
    #[derive(serde::Serialize)]
    struct Inner<'a> {
        action: &'a Text,
        args: &'a Json,
        allowed_decisions: &'a [&'a str],
        #[serde(skip_serializing_if = "Option::is_none")]
        details: Option<&'a Json>,
    }
    let inner = Inner {
        action: &action.name,
        args: &action.args,
        allowed_decisions: decisions,
        details: action.details.as_ref(),
    };
    written(&Outer { langgraph: inner })
}

/// Graphs may spell what AG-UI has fields for; the whole value travels in the metadata.
fn project_answer<'a>(id: &str, value: &'a Json, schema: Option<&Json>) -> Interrupt<'a> {
    #[derive(serde::Serialize)]
    struct Outer<'a> {
        langgraph: Inner<'a>,
    }
    #[derive(serde::Serialize)]
    struct Inner<'a> {
        value: &'a Json,
    }
    let members = json::members(value).unwrap_or_default();
    let string = |name, other| members.string(name).or_else(|| members.string(other));
    Interrupt {
        id: id.to_owned(),
        reason: members.string("reason").unwrap_or(Cow::Borrowed("langgraph:interrupt")),
        message: Text::from_raw(value)
            .or_else(|| run::question_key(&members).and_then(|key| members.text(key))),
        tool_call_id: string("toolCallId", "tool_call_id"),
        response_schema: response_schema(value, schema),
        expires_at: string("expiresAt", "expires_at"),
        metadata: Some(written(&Outer { langgraph: Inner { value } })),
    }
}

/// The schema of an answer: LangGraph's, else the one that the value itself names.
pub(super) fn response_schema(value: &Json, schema: Option<&Json>) -> Option<Json> {
    let members = json::members(value).unwrap_or_default();
    let member = || members.get("responseSchema").or_else(|| members.get("response_schema"));
    let schema = schema.cloned().or_else(|| member().map(Json::from));
    schema.filter(|schema| schema.get().starts_with('{'))
}

fn written(value: &impl serde::Serialize) -> Json {
    json::raw(serde_json::to_string(value).unwrap_or_default())
}
