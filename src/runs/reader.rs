//! One reader of a run: takes the events at its own pace, and is brought back if it falls behind.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{oneshot, watch};

use super::books::{Books, Run};
use super::log::Found;
use crate::run::{Holds, Open, RunEvent, View};

/// The code of a stream whose reader fell behind before the run had told its conversation.
pub const READER_TOO_SLOW: &str = "reader_too_slow";

/// The code of a fault of ours.
pub const INTERNAL_ERROR: &str = "internal_error";

/// Reads one run.
pub struct RunReader {
    run: Arc<Run>,
    bell: watch::Receiver<()>,
    place: Place,
    /// What its client was told before this run.
    told: Told,
    /// What its client has open; `None` if it was told nothing of this run yet.
    open: Option<Open>,
    /// Dropped with the reader of whoever started the run.
    _owner: Option<oneshot::Sender<()>>,
}

/// How far a reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It is to begin with the run as it stands.
    Joining,
    /// It knows of the run, and waits for what there is to tell.
    Waiting,
    /// At a position of the log.
    At(u64),
    /// It was told the end.
    Over,
}

/// What a reader's client was told before its run.
pub(super) enum Told {
    Nothing,
    /// Another run of the thread, to its end.
    Run(Arc<Run>),
    /// What stood before a run that waits for its turn.
    Prelude(Prelude),
}

/// What stands before a run that waits for its turn: what the thread holds, and the run's input.
pub(super) struct Prelude {
    pub(super) events: Vec<RunEvent>,
    pub(super) view: Box<View>,
}

// === impl RunReader ===

impl RunReader {
    /// The reader of whoever started the run: it begins with the oldest events.
    pub(super) fn of_owner(run: Arc<Run>, owner: Option<oneshot::Sender<()>>) -> Self {
        Self { place: Place::At(0), _owner: owner, ..Self::from_here(run, Told::Nothing) }
    }

    /// A reader that begins with the run as it stands.
    pub(super) fn from_here(run: Arc<Run>, told: Told) -> Self {
        let bell = run.bell();
        Self { run, bell, place: Place::Joining, told, open: None, _owner: None }
    }

    /// Goes on with the next run of the thread, for the same client.
    pub(super) fn go_on_with(&mut self, next: Arc<Run>) {
        let run = Arc::clone(&self.run);
        *self = Self::from_here(next, Told::Run(run));
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
                    let books = self.run.books();
                    books.failed(self.open.as_ref(), INTERNAL_ERROR, message).into()
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
        match self.place {
            Place::Over => None,
            Place::Joining => {
                if matches!(self.told, Told::Nothing) && books.must_be_told_from_the_start() {
                    self.place = Place::At(0);
                    drop(books);
                    return self.read();
                }
                let mut events = vec![books.start()?.clone()];
                if let Told::Prelude(prelude) = &mut self.told {
                    events.append(&mut prelude.events);
                }
                self.place = Place::Waiting;
                if books.can_be_told() {
                    events.extend(self.told.take_up_to(&books));
                    self.place = Place::At(books.log.end());
                }
                Some(events.into())
            }
            Place::Waiting => {
                if !books.can_be_told() {
                    return None;
                }
                self.place = Place::At(books.log.end());
                // It may hold all of it.
                let events = self.told.take_up_to(&books);
                (!events.is_empty()).then(|| events.into())
            }
            Place::At(at) => match books.log.at(at) {
                Found::Nothing => None,
                Found::Batch(events) => {
                    self.place = Place::At(at + 1);
                    Some(events)
                }
                Found::Gone => {
                    self.place = Place::At(books.log.end());
                    let mut events = Vec::new();
                    if self.open.is_none() {
                        events.extend(books.start().cloned());
                    }
                    let nothing = Open::default();
                    let open = self.open.as_ref().unwrap_or(&nothing);
                    events.extend(brought_back(&books, Holds::Some(open)));
                    Some(events.into())
                }
            },
        }
    }
}

/// What brings a reader to the run as it stands.
fn brought_back(books: &Books, reader: Holds<'_>) -> Vec<RunEvent> {
    books.resync(reader).unwrap_or_else(|| {
        let nothing = Open::default();
        let open = match reader {
            Holds::Nothing | Holds::This(_) => &nothing,
            Holds::Some(open) => open,
        };
        let message = "the stream was read too slowly; load the thread to see the run";
        books.failed(Some(open), READER_TOO_SLOW, message)
    })
}

impl fmt::Debug for RunReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run, bell: _, place, told: _, open: _, _owner: _ } = self;
        f.debug_struct("RunReader").field("run", run).field("place", place).finish_non_exhaustive()
    }
}

// === impl Told ===

impl Told {
    /// What brings the client to the run as it stands; of what came before it nothing is needed
    /// any more.
    fn take_up_to(&mut self, books: &Books) -> Vec<RunEvent> {
        match std::mem::replace(self, Self::Nothing) {
            Self::Nothing => brought_back(books, Holds::Nothing),
            Self::Prelude(prelude) => brought_back(books, Holds::This(&prelude.view)),
            Self::Run(run) => {
                let before = run.books();
                match before.feed.view() {
                    Some(view) => brought_back(books, Holds::This(view)),
                    None => brought_back(books, Holds::Nothing),
                }
            }
        }
    }
}
