//! The actions that the reading asks its driver to perform.

use crate::metrics::Rejoin;
use crate::runs::decoder::StreamSummary;
use crate::runs::ending::{BodyEnd, EndStatus, Ending};
use threadway_translate::langgraph::RunRecord;

/// The driver's next action.
#[derive(Debug)]
pub(in crate::runs) enum DriverAction {
    Ask(UpstreamRequest),
    /// End the reading, with [`Reading::end`](super::Reading::end).
    End(ReadingEnd),
}

/// A request to the upstream, and the inputs that answer it.
#[derive(Debug)]
pub(in crate::runs) enum UpstreamRequest {
    /// The run's stream after this cursor. Answered by
    /// [`on_open`](super::Reading::on_open) or [`UpstreamAnswer::NoStream`].
    Stream {
        run_id: String,
        cursor: String,
        /// Why the stream is joined again, if it is.
        again: Option<Rejoin>,
    },
    /// The thread's state. Answered by [`UpstreamAnswer::State`] or [`UpstreamAnswer::NoState`].
    State,
    /// The run's record. Answered by [`UpstreamAnswer::Record`].
    Record { run_id: String },
    /// How the run ended, if it has. Answered by [`UpstreamAnswer::EndStatus`].
    EndStatus { seen: Box<StreamSummary>, end: BodyEnd },
}

/// The upstream's answer to a request, other than an open stream.
#[derive(Debug)]
pub(in crate::runs) enum UpstreamAnswer {
    /// The stream could not be opened.
    NoStream(BodyEnd),
    /// The thread's state; `None` if there is none.
    State(Option<String>),
    /// The state could not be read, and why. It may be readable a moment later.
    NoState(String),
    /// The run's record, or why it could not be read.
    Record(Result<RunRecord, BodyEnd>),
    EndStatus(EndStatus),
}

/// How the reading of a run ends.
#[derive(Debug)]
pub(in crate::runs) enum ReadingEnd {
    /// With the run's own end, or one that the gateway chose.
    Ended(Ending),
    /// The run was out of reach for too long, and why.
    OutOfReach(String),
}

// === impl UpstreamAnswer ===

impl UpstreamAnswer {
    /// The size in bytes of what has to be parsed.
    pub(in crate::runs) fn bytes(&self) -> usize {
        match self {
            Self::State(Some(state)) => state.len(),
            Self::NoStream(_)
            | Self::State(None)
            | Self::NoState(_)
            | Self::Record(_)
            | Self::EndStatus(_) => 0,
        }
    }
}

// === impl ReadingEnd ===

impl ReadingEnd {
    /// The size in bytes of the state that is read at the end.
    pub(in crate::runs) fn bytes(&self) -> usize {
        match self {
            Self::Ended(Ending { state: Some(state), .. }) => state.json().len(),
            Self::Ended(Ending { state: None, .. }) | Self::OutOfReach(_) => 0,
        }
    }
}
