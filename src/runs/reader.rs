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
    place: Place,
    /// What its client has open; `None` if it was told nothing yet.
    open: Option<Open>,
}

/// How far a reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It is to begin with the run as it stands.
    Joining,
    /// At a position of the log.
    At(u64),
    /// It was told the end.
    Over,
}

// === impl RunReader ===

impl RunReader {
    /// A reader that begins with the oldest events.
    pub(super) fn from_the_start(run: Arc<Run>, bell: watch::Receiver<()>) -> Self {
        Self { run, bell, place: Place::At(0), open: None }
    }

    /// A reader that begins with the run as it stands.
    pub(super) fn from_here(run: Arc<Run>, bell: watch::Receiver<()>) -> Self {
        Self { run, bell, place: Place::Joining, open: None }
    }

    /// The next events, never an empty list; `None` after the run's end was told.
    ///
    /// May be dropped while it waits: the next call goes on from there.
    pub async fn next(&mut self) -> Option<Arc<[RunEvent]>> {
        if self.place == Place::Over {
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
        if let Some(RunEvent::Ended { .. }) = events.last() {
            self.place = Place::Over;
        }
        Some(events)
    }

    /// What stands in the books for this reader.
    fn read(&mut self) -> Option<Arc<[RunEvent]>> {
        let books = self.run.books();
        if self.place == Place::Joining && !books.is_based() {
            // Before its conversation is known a run is told from its beginning.
            self.place = Place::At(0);
        }
        let (found, next) = match self.place {
            Place::Over => return None,
            Place::Joining => (Found::Gone, books.log.end()),
            Place::At(at) => match books.log.at(at) {
                Found::Gone => (Found::Gone, books.log.end()),
                found @ (Found::Batch(_) | Found::Nothing) => (found, at + 1),
            },
        };
        let events = match found {
            Found::Nothing => return None,
            Found::Batch(events) => events,
            Found::Gone => books.resync(self.open.as_ref()).unwrap_or_else(|| {
                let message = "the stream was read too slowly; load the thread to see the run";
                books.failed(self.open.as_ref(), READER_TOO_SLOW, message)
            }),
        };
        self.place = Place::At(next);
        Some(events)
    }
}

impl fmt::Debug for RunReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run, bell: _, place, open: _ } = self;
        f.debug_struct("RunReader").field("run", run).field("place", place).finish_non_exhaustive()
    }
}
