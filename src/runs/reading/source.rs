//! Where a run is read from.

use threadway_translate::langgraph::{Capabilities, Joins, RunRecord};

use crate::runs::event_id::EventId;

/// Where a run is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::runs) enum Source {
    /// Its stream, joined from the beginning as far as the server stores it.
    Stream,
    /// Its record and its thread's state. The JavaScript server gives each part of a stream that it
    /// does not store to one reader only. A join would take parts from the client that started the
    /// run. aegra sends no more parts of a run after one that it could not count.
    Record,
}

// === impl Source ===

impl Source {
    /// The source of a live run that somebody else started.
    pub(super) fn of(record: &RunRecord, server: Capabilities) -> Self {
        if record.is_resumable || server.joins == Joins::Live { Self::Stream } else { Self::Record }
    }

    /// The source for a client that has the run up to `event`, or nothing of it. The stream of a
    /// run that is over is replayed only if the client lacks a part of it. Otherwise the run's
    /// record and the thread's state are enough.
    pub(in crate::runs) fn after(
        record: &RunRecord,
        server: Capabilities,
        event: Option<&EventId>,
    ) -> Self {
        let wants_rest = event.is_some_and(|event| !event.is_terminal());
        if record.status.is_live() {
            Self::of(record, server)
        } else if record.is_resumable && wants_rest {
            Self::Stream
        } else {
            Self::Record
        }
    }
}
