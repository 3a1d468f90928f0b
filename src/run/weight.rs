//! What a run event weighs: about how many bytes of memory it keeps.

use super::{Content, ContentPart, Message, Operation, RunEvent};
use crate::langgraph::Source;

/// What an event or a message takes besides its texts: itself, its ids, the allocator's share.
const FRAME_BYTES: usize = 256;

// === impl RunEvent ===

impl RunEvent {
    /// About how many bytes of memory the event keeps; never less than the texts in it.
    pub fn weight(&self) -> usize {
        FRAME_BYTES + self.texts()
    }

    fn texts(&self) -> usize {
        match self {
            Self::TextDelta { delta, .. }
            | Self::ReasoningDelta { delta, .. }
            | Self::CallArgs { delta, .. } => delta.escaped().len(),
            Self::ReasoningSealed { sealed, .. } => sealed.escaped().len(),
            Self::CallResult { content, .. } => content.weight(),
            Self::StateSnapshot(state) => state.get().len(),
            Self::StateDelta(patch) => patch.operations().iter().map(Operation::weight).sum(),
            Self::Messages(messages) => messages.iter().map(Message::weight).sum(),
            Self::Custom { value, .. } => value.get().len(),
            // Their texts are names, ids, and one sentence at most. The questions of an
            // interrupted run are in its state too.
            Self::Started { .. }
            | Self::StepStarted { .. }
            | Self::StepFinished { .. }
            | Self::TextStarted { .. }
            | Self::TextEnded { .. }
            | Self::ReasoningStarted { .. }
            | Self::ReasoningEnded { .. }
            | Self::CallStarted { .. }
            | Self::CallEnded { .. }
            | Self::SubagentStarted(_)
            | Self::SubagentFinished { .. }
            | Self::Ended { .. } => 0,
        }
    }
}

// === impl Message ===

impl Message {
    fn weight(&self) -> usize {
        let calls = self.calls.iter().map(|call| FRAME_BYTES + call.args.escaped().len());
        let sealed = self.sealed.as_ref().map_or(0, |sealed| sealed.escaped().len());
        FRAME_BYTES + self.content.weight() + calls.sum::<usize>() + sealed
    }
}

// === impl Content ===

impl Content {
    fn weight(&self) -> usize {
        match self {
            Self::Absent => 0,
            Self::Text(text) => text.escaped().len(),
            Self::Parts(parts) => parts.iter().map(ContentPart::weight).sum(),
        }
    }
}

// === impl ContentPart ===

impl ContentPart {
    fn weight(&self) -> usize {
        let text = match self {
            Self::Text(text) => text,
            Self::Media(media) => match &media.source {
                Source::Data(text) | Source::Url(text) | Source::File(text) => text,
            },
        };
        FRAME_BYTES + text.escaped().len()
    }
}

// === impl Operation ===

impl Operation {
    fn weight(&self) -> usize {
        let (path, value) = match self {
            Self::Add { path, value } | Self::Replace { path, value } => (path, value.get().len()),
            Self::Remove { path } => (path, 0),
        };
        FRAME_BYTES + path.len() + value
    }
}
