//! The actions that the reading asks its driver to perform.

use crate::metrics::Rejoin;
use crate::runs::ending::{BodyEnd, Ending};
use crate::runs::feed::StreamSummary;

/// The driver's next action.
#[derive(Debug)]
pub(in crate::runs) enum Action {
    Ask(Request),
    /// End the reading, with [`Reading::end`](super::Reading::end).
    End(ReadingEnd),
}

/// A request to the upstream, and the inputs that answer it.
#[derive(Debug)]
pub(in crate::runs) enum Request {
    /// The run's stream after this cursor. Answered by
    /// [`on_open`](super::Reading::on_open) or [`on_closed`](super::Reading::on_closed).
    Stream {
        run_id: String,
        cursor: String,
        /// Why the stream is joined again, if it is.
        again: Option<Rejoin>,
    },
    /// The thread's state. Answered by [`on_state`](super::Reading::on_state).
    State,
    /// The run's record. Answered by [`on_record`](super::Reading::on_record).
    Record { run_id: String },
    /// How the run ended, if it has. Answered by
    /// [`on_end_status`](super::Reading::on_end_status).
    EndStatus { seen: Box<StreamSummary>, end: BodyEnd },
}

/// How the reading of a run ends.
#[derive(Debug)]
pub(in crate::runs) enum ReadingEnd {
    /// With the run's own end, or one that the gateway chose.
    Ended(Ending),
    /// The run was out of reach for too long, and why.
    OutOfReach(String),
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
