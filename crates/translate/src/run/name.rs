//! Names of run events for logs and debug output.

use super::RunEvent;

impl RunEvent {
    /// The kind of the event in lower case.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Started { .. } => "started",
            Self::StepStarted { .. } => "step started",
            Self::StepFinished { .. } => "step finished",
            Self::TextStarted { .. } => "text started",
            Self::TextDelta { .. } => "text",
            Self::TextEnded { .. } => "text ended",
            Self::Attached(_) => "attached",
            Self::Adopted(_) => "adopted",
            Self::ReasoningStarted { .. } => "thought started",
            Self::ReasoningDelta { .. } => "thought",
            Self::ReasoningEnded { .. } => "thought ended",
            Self::ReasoningSealed { .. } => "thought sealed",
            Self::CallStarted { .. } => "call started",
            Self::CallArgs { .. } => "call arguments",
            Self::CallEnded { .. } => "call ended",
            Self::CallResult { .. } => "call result",
            Self::StateSnapshot(_) => "state",
            Self::StateDelta(_) => "state delta",
            Self::Messages(_) => "messages",
            Self::Spent { .. } => "spent",
            Self::SubagentStarted(_) => "subagent started",
            Self::SubagentFinished { .. } => "subagent finished",
            Self::Custom { .. } => "custom",
            Self::Activity { .. } => "activity",
            Self::Raw(_) => "raw",
            Self::Ended { .. } => "ended",
        }
    }
}
