//! The events that a client gets of a thread.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use super::follow::Follower;
use crate::runs::{Batch, RunReader};
use threadway_translate::run::{LossReason, Outcome, RunEvent};

/// Yields the events of a run or of an idle thread. A following reader continues with all later
/// runs.
#[derive(Debug)]
pub struct ThreadReader {
    run: RunReader,
    later: Option<Box<Follower>>,
    at_shutdown: AtShutdown,
}

/// How a stream ends when the gateway shuts down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtShutdown {
    /// With an event that reports the shutdown. The client of a POST takes a missing end for
    /// success.
    Report,
    /// Between two events, so that an `EventSource` reconnects to another replica.
    BreakOff,
}

// === impl ThreadReader ===

impl ThreadReader {
    pub(super) fn following(run: RunReader, later: Follower) -> Self {
        Self { later: Some(Box::new(later)), ..run.into() }
    }

    /// Sets how the stream ends when the gateway shuts down.
    #[must_use]
    pub(crate) fn at_shutdown(self, at_shutdown: AtShutdown) -> Self {
        Self { at_shutdown, ..self }
    }

    /// LangGraph's id of the run that is being read, once it is known.
    pub fn run_id(&self) -> Option<Arc<str>> {
        self.run.run_id()
    }

    /// Whether the next events may be some that the client has.
    pub(crate) fn is_resuming(&self) -> bool {
        self.run.is_resuming()
    }

    /// Since when the upstream has not answered for the run that is being read. `None` while it
    /// does.
    pub(crate) fn away_since(&self) -> watch::Receiver<Option<Instant>> {
        self.run.away_since()
    }

    /// The next events, never an empty list. `None` at the end. Cancel safe.
    pub async fn next(&mut self) -> Option<Batch> {
        loop {
            if let Some(events) = self.run.next().await {
                let is_over = self.at_shutdown == AtShutdown::BreakOff && is_shutdown(&events);
                return (!is_over).then_some(events);
            }
            if self.run.is_barred() {
                // The client connects again with better credentials.
                return None;
            }
            let next = self.later.as_mut()?.next().await?;
            self.run.continue_with(next);
        }
    }
}

impl From<RunReader> for ThreadReader {
    fn from(run: RunReader) -> Self {
        Self { run, later: None, at_shutdown: AtShutdown::Report }
    }
}

fn is_shutdown(events: &[RunEvent]) -> bool {
    matches!(
        events.last(),
        Some(RunEvent::Ended { outcome: Outcome::Failed(failure), .. })
            if failure.loss() == Some(LossReason::Shutdown)
    )
}
