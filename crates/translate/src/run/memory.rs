//! The memory that run events and views take, as an estimate.

use super::{
    Action, Activity, Ask, Content, ContentPart, Interrupt, Message, Operation, Outcome, RunEvent,
    View,
};
use crate::langgraph::{ErrorReport, RunError};

/// The size of an event or a message without its texts: the value, its ids, and the allocator's
/// overhead.
const FRAME_BYTES: usize = 256;

// === impl RunEvent ===

impl RunEvent {
    /// The memory that the event takes, in bytes. An estimate, but never less than the length of
    /// its texts.
    pub fn memory_bytes(&self) -> usize {
        FRAME_BYTES + self.texts()
    }

    fn texts(&self) -> usize {
        match self {
            Self::TextDelta { delta, .. }
            | Self::ReasoningDelta { delta, .. }
            | Self::CallArgs { delta, .. } => delta.escaped().len(),
            Self::ReasoningSealed { sealed, .. } => sealed.escaped().len(),
            Self::CallResult { content, .. } => content.memory_bytes(),
            Self::Attached(message) | Self::Adopted(message) => message.memory_bytes(),
            Self::StateSnapshot(json) | Self::Raw(json) => json.get().len(),
            Self::StateDelta(patch) => patch.operations().iter().map(Operation::memory_bytes).sum(),
            Self::Messages(snapshot) => snapshot.memory_bytes(),
            Self::Activity { activity, change, .. } => {
                let change = change.as_ref().map_or(&[][..], |change| change.operations());
                activity.memory_bytes() + change.iter().map(Operation::memory_bytes).sum::<usize>()
            }
            Self::Custom { name, value, .. } => name.len() + value.get().len(),
            Self::Ended { outcome, .. } => outcome.memory_bytes(),
            // These contain only names and ids.
            Self::Started { .. }
            | Self::StepStarted { .. }
            | Self::StepFinished { .. }
            | Self::TextStarted { .. }
            | Self::TextEnded { .. }
            | Self::ReasoningStarted { .. }
            | Self::ReasoningEnded { .. }
            | Self::CallStarted { .. }
            | Self::CallEnded { .. }
            | Self::Spent { .. }
            | Self::SubagentStarted(_)
            | Self::SubagentFinished { .. } => 0,
        }
    }
}

// === impl View ===

impl View {
    /// The memory that the view takes, in bytes. An estimate, but never less than the length of its
    /// texts.
    pub fn memory_bytes(&self) -> usize {
        let state = self.state().map_or(0, super::State::memory_bytes);
        self.messages().iter().map(|message| message.memory_bytes()).sum::<usize>() + state
    }
}

// === impl Activity ===

impl Activity {
    fn memory_bytes(&self) -> usize {
        match self {
            // Contains only ids and fixed words.
            Self::Tool { .. } => 0,
            Self::Plan { todos } => todos.get().len(),
        }
    }
}

// === impl Outcome ===

impl Outcome {
    fn memory_bytes(&self) -> usize {
        match self {
            Self::Finished { pending_calls, finish: _ } => pending_calls.len() * FRAME_BYTES,
            Self::Interrupted(questions) => questions.iter().map(Interrupt::memory_bytes).sum(),
            Self::Cancelled => 0,
            Self::Idle { pending_calls, error } => {
                let of_error = |error: &RunError| {
                    error.code.len() + error.message.len() + of_reports(&error.reports)
                };
                pending_calls.len() * FRAME_BYTES + error.as_ref().map_or(0, of_error)
            }
            Self::Failed(failure) => {
                failure.code().len() + failure.message().len() + of_reports(failure.reports())
            }
        }
    }
}

fn of_reports(reports: &[ErrorReport]) -> usize {
    reports.iter().map(ErrorReport::memory_bytes).sum()
}

// === impl Interrupt ===

impl Interrupt {
    fn memory_bytes(&self) -> usize {
        FRAME_BYTES
            + match &self.ask {
                Ask::Approval { actions, .. } => {
                    let kept = |action: &Action| {
                        action.kept.as_ref().map_or(0, |kept| kept.decision.get().len())
                    };
                    let memory_bytes =
                        |action: &Action| FRAME_BYTES + action.args.get().len() + kept(action);
                    actions.iter().map(memory_bytes).sum()
                }
                Ask::Answer { value, .. } => value.get().len(),
                Ask::Breakpoint => 0,
            }
    }
}

// === impl Message ===

impl Message {
    pub(super) fn memory_bytes(&self) -> usize {
        let calls = self.calls.iter().map(|call| FRAME_BYTES + call.args.escaped().len());
        let sealed = self.sealed.as_ref().map_or(0, |sealed| sealed.escaped().len());
        FRAME_BYTES + self.content.memory_bytes() + calls.sum::<usize>() + sealed
    }
}

// === impl Content ===

impl Content {
    fn memory_bytes(&self) -> usize {
        match self {
            Self::Absent => 0,
            Self::Text(text) => text.escaped().len(),
            Self::Parts(parts) => parts.iter().map(ContentPart::memory_bytes).sum(),
        }
    }
}

// === impl ContentPart ===

impl ContentPart {
    fn memory_bytes(&self) -> usize {
        let content = match self {
            Self::Text(text) => text.escaped().len(),
            Self::Media(media) => media.bytes(),
            Self::Block(json) | Self::Annotations(json) => json.get().len(),
            Self::Notice(notice) => notice.source.escaped().len() + notice.text.escaped().len(),
        };
        FRAME_BYTES + content
    }
}

// === impl Operation ===

impl Operation {
    fn memory_bytes(&self) -> usize {
        let (path, value) = match self {
            Self::Add { path, value } | Self::Replace { path, value } => (path, value.get().len()),
            Self::Remove { path } => (path, 0),
        };
        FRAME_BYTES + path.len() + value
    }
}
