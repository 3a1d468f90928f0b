//! Items that have started and not ended: for a run's view, or for one reader.

use std::sync::Arc;

use super::{Id, RunEvent, Subagent};

/// Open messages, calls, steps and subagents, each kind in the order of its start.
#[derive(Clone, Debug, Default)]
pub struct Open {
    pub(super) texts: Vec<Id>,
    pub(super) reasoning: Vec<Id>,
    pub(super) calls: Vec<Id>,
    /// Each step's name and subagent.
    pub(super) steps: Vec<(Id, Option<Id>)>,
    pub(super) subagents: Vec<Subagent>,
}

// === impl Open ===

impl Open {
    /// Updates the open items after one event.
    pub fn apply(&mut self, event: &RunEvent) {
        match event {
            RunEvent::TextDelta { .. }
            | RunEvent::Attached(_)
            | RunEvent::Adopted(_)
            | RunEvent::ReasoningDelta { .. }
            | RunEvent::ReasoningSealed { .. }
            | RunEvent::CallArgs { .. }
            | RunEvent::CallResult { .. }
            | RunEvent::StateSnapshot(_)
            | RunEvent::StateDelta(_)
            | RunEvent::Messages(_)
            | RunEvent::Spent { .. }
            | RunEvent::Activity { .. }
            | RunEvent::Raw(_)
            | RunEvent::Custom { .. } => {}
            RunEvent::TextStarted { message_id, .. } => self.texts.push(Arc::clone(message_id)),
            RunEvent::TextEnded { message_id } => close(&mut self.texts, message_id),
            RunEvent::ReasoningStarted { message_id, .. } => {
                self.reasoning.push(Arc::clone(message_id));
            }
            RunEvent::ReasoningEnded { message_id } => close(&mut self.reasoning, message_id),
            RunEvent::CallStarted { call_id, .. } => self.calls.push(Arc::clone(call_id)),
            RunEvent::CallEnded { call_id } => close(&mut self.calls, call_id),
            RunEvent::StepStarted { name, agent } => {
                self.steps.push((Arc::clone(name), agent.clone()));
            }
            RunEvent::StepFinished { name, agent } => {
                self.steps.retain(|(n, a)| n != name || a != agent);
            }
            RunEvent::SubagentStarted(subagent) => self.subagents.push(subagent.clone()),
            RunEvent::SubagentFinished { id } => self.subagents.retain(|s| s.id != *id),
            RunEvent::Started { .. } | RunEvent::Ended { .. } => *self = Self::default(),
        }
    }
}

fn close(open: &mut Vec<Id>, id: &Id) {
    open.retain(|other| other != id);
}
