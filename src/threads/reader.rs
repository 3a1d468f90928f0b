//! One reader of a thread: a run, and then, if it follows, all that comes.

use std::sync::Arc;

use super::follow::Follower;
use crate::runs::{Batch, RunReader};
use threadway_translate::run::{Loss, Outcome, RunEvent};

/// Reads a thread: a run, or a thread at rest; and then, if it follows, all that comes.
#[derive(Debug)]
pub struct ThreadReader {
    run: RunReader,
    later: Option<Box<Follower>>,
    at_shutdown: AtShutdown,
}

/// How a stream ends when the gateway does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtShutdown {
    /// It says so: a bare end reads as success to the client of a POST.
    Tell,
    /// It breaks off between two events, so that an `EventSource` comes again, elsewhere.
    BreakOff,
}

// === impl ThreadReader ===

impl ThreadReader {
    pub(super) fn following(run: RunReader, later: Follower) -> Self {
        Self { later: Some(Box::new(later)), ..run.into() }
    }

    /// For a stream that ends in its own way when the gateway does.
    #[must_use]
    pub fn at_shutdown(self, at_shutdown: AtShutdown) -> Self {
        Self { at_shutdown, ..self }
    }

    /// LangGraph's id of the run that is read, once it is known.
    pub fn run_id(&self) -> Option<Arc<str>> {
        self.run.run_id()
    }

    /// The next events, never an empty list; `None` after all was told.
    ///
    /// May be dropped while it waits: the next call goes on from there.
    pub async fn next(&mut self) -> Option<Batch> {
        loop {
            if let Some(events) = self.run.next().await {
                let is_over = self.at_shutdown == AtShutdown::BreakOff && is_shutdown(&events);
                return (!is_over).then_some(events);
            }
            let next = self.later.as_mut()?.next().await?;
            self.run.continue_with(next);
        }
    }
}

impl From<RunReader> for ThreadReader {
    fn from(run: RunReader) -> Self {
        Self { run, later: None, at_shutdown: AtShutdown::Tell }
    }
}

fn is_shutdown(events: &[RunEvent]) -> bool {
    matches!(
        events.last(),
        Some(RunEvent::Ended { outcome: Outcome::Failed(failure), .. })
            if failure.loss() == Some(Loss::Shutdown)
    )
}
