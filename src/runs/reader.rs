//! One reader of a run: takes the events at its own pace, and is brought back if it falls behind.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use super::Run;
use super::log::Found;
use crate::run::{Open, RunEvent};

/// The code of a stream whose reader fell behind before the run had told its conversation.
pub const READER_TOO_SLOW: &str = "reader_too_slow";

/// The code of a fault of ours.
pub const INTERNAL_ERROR: &str = "internal_error";

/// Reads one run.
pub struct RunReader {
    run: Arc<Run>,
    bell: watch::Receiver<()>,
    /// The position in the log; `None` for a reader that is to begin with the run as it stands.
    at: Option<u64>,
    /// What its client has open; `None` if it was told nothing yet.
    open: Option<Open>,
    is_over: bool,
}

// === impl RunReader ===

impl RunReader {
    /// A reader that begins with the oldest events.
    pub(super) fn from_the_start(run: Arc<Run>, bell: watch::Receiver<()>) -> Self {
        Self { run, bell, at: Some(0), open: None, is_over: false }
    }

    /// A reader that begins with the run as it stands.
    pub(super) fn from_here(run: Arc<Run>, bell: watch::Receiver<()>) -> Self {
        Self { run, bell, at: None, open: None, is_over: false }
    }

    /// The next events, never an empty list; `None` after the run's end was told.
    ///
    /// May be dropped while it waits: the next call goes on from there.
    pub async fn next(&mut self) -> Option<Arc<[RunEvent]>> {
        if self.is_over {
            return None;
        }
        let events = loop {
            if let Some(events) = self.read() {
                break events;
            }
            if self.bell.changed().await.is_err() {
                // The driver is gone, and the end may be the last thing that it wrote.
                break self.read().unwrap_or_else(|| {
                    let message = "threadway failed to read this run; please report it";
                    self.run.books().failed(self.open.as_ref(), INTERNAL_ERROR, message)
                });
            }
        };
        let open = self.open.get_or_insert_default();
        for event in &*events {
            open.apply(event);
        }
        self.is_over = matches!(events.last(), Some(RunEvent::Ended { .. }));
        Some(events)
    }

    /// What stands in the books for this reader.
    fn read(&mut self) -> Option<Arc<[RunEvent]>> {
        let books = self.run.books();
        let found = self.at.map_or(Found::Gone, |at| books.log.at(at));
        match found {
            Found::Batch(events) => {
                self.at = self.at.map(|at| at + 1);
                Some(events)
            }
            Found::Nothing => None,
            Found::Gone => {
                if let Some(events) = books.resync(self.open.as_ref()) {
                    self.at = Some(books.log.end());
                    return Some(events);
                }
                // Before its conversation is known a run is told from its beginning, or not.
                match (self.at.replace(0), books.log.at(0)) {
                    (None, Found::Batch(events)) => {
                        self.at = Some(1);
                        Some(events)
                    }
                    (None, Found::Nothing) => None,
                    (Some(_), _) | (None, Found::Gone) => {
                        let message =
                            "the stream was read too slowly; load the thread to see the run";
                        Some(books.failed(self.open.as_ref(), READER_TOO_SLOW, message))
                    }
                }
            }
        }
    }
}

impl fmt::Debug for RunReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run, bell: _, at, open: _, is_over: _ } = self;
        f.debug_struct("RunReader").field("run", run).field("at", at).finish_non_exhaustive()
    }
}
