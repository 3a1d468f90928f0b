//! Run events as AG-UI events for one client, with its ids, in the form of its generation, and
//! without the messages that it already holds.
//!
//! `knowledge` is what is known of the client's messages. `interrupt` projects the questions of a
//! run, and `end` its last event.

mod end;
mod interrupt;
mod knowledge;

use std::sync::Arc;

pub(super) use interrupt::response_schema;
use knowledge::Knowledge;

use super::activity::{emit_activity, emit_attachment};
use super::client::{Client, ClientMessages, RunId, Version};
use super::{
    Event, LangGraphMetadata, Metadata, PROTOCOL_VERSION, ResultMetadata, ResultStatus,
    WireContent, WireMessages,
};
use crate::run::{self, RunEvent, ViewerMessages};

/// Projects the events of one run for one client.
#[derive(Debug)]
pub struct Projector {
    client: Client,
    /// The id under which the client sees the run.
    run_id: String,
    knowledge: Knowledge,
    /// The starts of open messages and calls that were left out, because the client holds them.
    left_out: Vec<RunEvent>,
    /// The messages of the last snapshot. `None` unless text is resent after a start.
    resend: Option<Vec<Arc<run::Message>>>,
}

// === impl Projector ===

impl Projector {
    /// A projector for a client that holds these messages.
    pub fn new(client: Client, messages: impl Into<ClientMessages>) -> Self {
        Self {
            client,
            run_id: String::new(),
            knowledge: Knowledge::from(messages.into()),
            left_out: Vec::new(),
            resend: None,
        }
    }

    /// Also resends the text of a known message after each of its starts.
    ///
    /// `TanStack` AI's client drops what it holds of a message when the message starts again.
    #[must_use]
    pub fn resending_text(self) -> Self {
        Self { resend: Some(Vec::new()), ..self }
    }

    /// Whether all clients of this generation get the same events from here on, except for the ids
    /// of the run and its end.
    pub fn is_shareable(&self) -> bool {
        matches!(self.knowledge, Knowledge::Synced)
            && self.left_out.is_empty()
            && self.resend.is_none()
    }

    /// The generation of the client.
    pub fn version(&self) -> Version {
        self.client.version
    }

    /// Announces that the run's end is the next event. The run will not stream its reasoning again.
    pub fn expect_end(&mut self) {
        if let Knowledge::Returning = self.knowledge {
            self.knowledge = Knowledge::Unknown;
        }
    }

    /// Applies an event that was already delivered to the client, without emitting it.
    pub fn skip_delivered(&mut self, event: &RunEvent) {
        // The client does not start over.
        if let Knowledge::Returning = self.knowledge {
            self.knowledge = Knowledge::Unknown;
        }
        self.project(event, &mut |_| {});
    }

    /// Projects one event.
    pub fn project(&mut self, event: &RunEvent, emit: &mut dyn FnMut(&Event<'_>)) {
        if self.knowledge.has(event) {
            self.leave_out(event);
            return;
        }
        if self.client.version == Version::Legacy && is_refused(event) {
            return;
        }
        if begins_a_message(event) {
            self.knowledge.mix();
        }
        self.unfold(event, emit);
        self.resend_text(event, emit);
    }

    /// Emits the AG-UI events of a run event that the client does not hold yet.
    fn unfold(&mut self, event: &RunEvent, emit: &mut dyn FnMut(&Event<'_>)) {
        match event {
            RunEvent::Started { thread_id, run_id, name } => {
                self.started(thread_id, run_id.as_deref(), name, emit);
            }
            RunEvent::Messages(messages) => {
                self.messages(messages, emit);
                // Open messages go on after the text that the snapshot has of them.
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
            RunEvent::Attached(attachment) => emit_attachment(attachment, emit),
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
                    content: WireContent::of_tool(content, self.client.version),
                    role: "tool",
                    subagent_run_id: agent.as_deref(),
                    metadata: is_error.then_some(failed),
                });
            }
            RunEvent::StateSnapshot(snapshot) => emit(&Event::StateSnapshot { snapshot }),
            RunEvent::StateDelta(patch) => emit(&Event::StateDelta { delta: patch.operations() }),
            // The run's end carries the sums, and a client holds what is adopted.
            RunEvent::Spent { .. } | RunEvent::Adopted(_) => {}
            RunEvent::StepStarted { name, agent } => {
                let subagent_run_id = agent.as_deref();
                emit(&Event::StepStarted { step_name: name, subagent_run_id });
            }
            RunEvent::StepFinished { name, agent } => {
                let subagent_run_id = agent.as_deref();
                emit(&Event::StepFinished { step_name: name, subagent_run_id });
            }
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
                emit_activity(id, activity, change.as_ref(), emit);
            }
            RunEvent::Custom { name, value, agent } => {
                let subagent_run_id = agent.as_deref();
                emit(&Event::Custom { name, value, subagent_run_id });
            }
        }
    }

    /// Resends the text or the arguments that the client drops when a message or a call starts.
    fn resend_text(&mut self, event: &RunEvent, emit: &mut dyn FnMut(&Event<'_>)) {
        let Some(shown) = &mut self.resend else { return };
        if let RunEvent::Messages(messages) = event {
            *shown = messages.iter().cloned().collect();
        }
        let text_of = |id: &run::Id| match &shown.iter().find(|message| message.id == *id)?.content
        {
            run::Content::Text(text) if !text.is_empty() => Some(text.to_text()),
            run::Content::Text(_) | run::Content::Absent | run::Content::Parts(_) => None,
        };
        if let RunEvent::TextStarted { message_id, .. } = event
            && let Some(delta) = text_of(message_id)
        {
            emit(&Event::TextMessageContent { message_id, delta: &delta });
        }
        if let RunEvent::ReasoningStarted { message_id, .. } = event
            && let Some(delta) = text_of(message_id)
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

    /// Emits `RUN_STARTED` under the client's id of the run.
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
        let langgraph = LangGraphMetadata { thread_id: Some(thread_id), run_id, error: None };
        emit(&Event::RunStarted {
            thread_id: &self.client.thread_id,
            run_id: &self.run_id,
            protocol_version: PROTOCOL_VERSION,
            parent_run_id: self.client.parent_run_id.as_deref(),
            metadata: Some(Metadata { langgraph }),
        });
    }

    /// Keeps the starts of what is open among the events that the client already holds.
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

    /// Emits a snapshot. The first is left out for a client that holds exactly its messages.
    fn messages(&mut self, messages: &run::Snapshot, emit: &mut dyn FnMut(&Event<'_>)) {
        let version = self.client.version;
        let mut snapshot = |list: &[Arc<run::Message>]| {
            let is_all = list.len() == messages.len()
                && list.iter().zip(messages.iter()).all(|(one, other)| Arc::ptr_eq(one, other));
            let messages = WireMessages::new(list, is_all.then_some(messages), version);
            emit(&Event::MessagesSnapshot { messages });
        };
        let before = std::mem::replace(&mut self.knowledge, Knowledge::Synced);
        let viewer = match &before {
            Knowledge::Sent(sent, _) => ViewerMessages::Known(sent),
            Knowledge::Mixed(_) | Knowledge::Unknown => ViewerMessages::Unknown,
            Knowledge::Returning => ViewerMessages::Returning,
            Knowledge::Synced => {
                snapshot(messages);
                return;
            }
        };
        for messages in run::snapshots(viewer, messages) {
            snapshot(&messages);
        }
    }
}

/// Whether clients before 0.0.59 end the run at an event: they know no subagents, and compare the names
/// of all open steps.
fn is_refused(event: &RunEvent) -> bool {
    matches!(
        event,
        RunEvent::SubagentStarted(_)
            | RunEvent::SubagentFinished { .. }
            | RunEvent::StepStarted { agent: Some(_), .. }
            | RunEvent::StepFinished { agent: Some(_), .. }
    )
}

/// Whether an event starts a message or a call, or is one.
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

/// The role of a text message. AG-UI allows any but that of a tool.
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
