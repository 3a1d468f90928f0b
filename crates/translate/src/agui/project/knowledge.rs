//! What the projector knows of the messages that its client holds.

use std::collections::HashSet;
use std::sync::Arc;

use crate::agui::client::ClientMessages;
use crate::run::{self, RunEvent};

/// What is known of the messages that a client holds.
#[derive(Debug)]
pub(super) enum Knowledge {
    /// The messages that the client sent along. The run has streamed none yet.
    Sent(Vec<Arc<run::Message>>, SentIds),
    /// The messages that the client sent along, and some of the run's. Their order is unknown.
    Mixed(SentIds),
    /// The client may hold any messages.
    Unknown,
    /// The client has seen this run before and starts over.
    Returning,
    /// The client holds exactly what the run has streamed.
    Synced,
}

/// The ids that a client sent along. They are looked up for every token before the first snapshot.
#[derive(Debug, Default)]
pub(super) struct SentIds {
    messages: HashSet<run::Id>,
    calls: HashSet<run::Id>,
}

// === impl Knowledge ===

impl Knowledge {
    /// Whether an event repeats what the client sent along.
    ///
    /// The run cannot know that before its first snapshot, and the client would append the repeated
    /// text to the text that it holds.
    pub(super) fn has(&self, event: &RunEvent) -> bool {
        let sent = match self {
            Self::Sent(_, ids) | Self::Mixed(ids) => ids,
            Self::Unknown | Self::Returning | Self::Synced => return false,
        };
        match event {
            RunEvent::TextStarted { message_id, .. }
            | RunEvent::TextDelta { message_id, .. }
            | RunEvent::TextEnded { message_id }
            | RunEvent::ReasoningStarted { message_id, .. }
            | RunEvent::ReasoningDelta { message_id, .. }
            | RunEvent::ReasoningEnded { message_id }
            | RunEvent::CallResult { message_id, .. } => sent.messages.contains(message_id),
            RunEvent::CallStarted { call_id, .. }
            | RunEvent::CallArgs { call_id, .. }
            | RunEvent::CallEnded { call_id } => sent.calls.contains(call_id),
            // Clients never send attachments along. A repeated attachment replaces the first.
            RunEvent::Attached(_)
            | RunEvent::Adopted(_)
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

    /// The run adds a message of its own.
    pub(super) fn mix(&mut self) {
        if let Self::Sent(_, ids) = self {
            *self = match std::mem::take(ids) {
                // A client that sent nothing holds exactly what the run has streamed.
                ids if ids.messages.is_empty() => Self::Synced,
                ids => Self::Mixed(ids),
            };
        }
    }
}

impl From<ClientMessages> for Knowledge {
    fn from(messages: ClientMessages) -> Self {
        match messages {
            ClientMessages::Sent(sent) => {
                let calls = sent.iter().flat_map(|message| &message.calls);
                let ids = SentIds {
                    messages: sent.iter().map(|message| Arc::clone(&message.id)).collect(),
                    calls: calls.map(|call| Arc::clone(&call.id)).collect(),
                };
                Self::Sent(sent, ids)
            }
            ClientMessages::Unknown => Self::Unknown,
            ClientMessages::Returning => Self::Returning,
        }
    }
}
