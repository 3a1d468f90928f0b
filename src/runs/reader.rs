//! One reader of a run: takes the events at its own pace, and is brought back if it falls behind.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::batch::{Batch, Events};
use super::books::{Books, Run};
use super::event_id::EventId;
use super::log;
use crate::metrics::{Held, Resume, Resync};
use crate::run::{Holds, Open, RunEvent, View};

/// The code of a stream whose reader fell behind before the run had told its conversation.
pub const READER_TOO_SLOW: &str = "reader_too_slow";

/// The code of a fault of ours.
pub const INTERNAL_ERROR: &str = "internal_error";

/// How long one who comes back waits for an event that this replica has not read yet: another,
/// where it was told, may have been ahead by so much.
const SEEK_PATIENCE: Duration = Duration::from_secs(5);

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
    _counted: Held,
}

/// How far a reader is.
#[derive(Debug, PartialEq)]
enum Place {
    /// It is to begin with the run as it stands.
    Joining,
    /// It is to go on behind an event, if that is found.
    Seeking(Search),
    /// It goes over what its client has, and knows where that ends.
    Returning(Return),
    /// It knows of the run, and waits for what there is to tell.
    Waiting,
    /// At a position of the log.
    At(u64),
    /// It was told the end.
    Over,
}

/// The search for the event that a client has last.
#[derive(Debug, PartialEq)]
struct Search {
    event: EventId,
    /// The position of the log that it has come to.
    at: u64,
    /// It waits no longer than till then, once what has passed was replayed.
    until: Option<Instant>,
    /// Where the event is looked for: in what is kept here, or in a replay.
    kind: Resume,
}

/// The way of a client that comes back.
#[derive(Debug, PartialEq)]
struct Return {
    /// What it has, as far as that is kept, oldest first; and in the last some that it has not.
    batches: VecDeque<Arc<Events>>,
    /// How many events of the last it has.
    told: usize,
    /// Of the next one, how many of what it is on the wire.
    partly: u32,
    /// The position behind the last.
    next: u64,
}

/// What a reader's client was told before its run.
pub(super) enum Told {
    Nothing,
    /// Another run of the thread to its end, and so all of this.
    Run(Arc<View>),
    /// What stood before a run that waits for its turn.
    Prelude(Prelude),
}

/// What stands before a run that waits for its turn: what the thread holds, and the run's input.
pub(super) struct Prelude {
    pub(super) events: Events,
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
        let counted = run.metrics.viewer();
        Self { run, bell, place: Place::Joining, told, open: None, _owner: None, _counted: counted }
    }

    /// A reader that goes on behind an event; where that is not found, with the run as it stands.
    pub(super) fn behind(run: Arc<Run>, event: EventId) -> Self {
        let is_replayed = run.books().is_catching_up();
        let kind = if is_replayed { Resume::Replay } else { Resume::Log };
        let search = Search { event, at: 0, until: None, kind };
        Self { place: Place::Seeking(search), ..Self::from_here(run, Told::Nothing) }
    }

    /// Goes on with the next run of the thread, for the same client.
    pub(super) fn go_on_with(&mut self, next: Arc<Run>) {
        let told = self.run.told().map_or(Told::Nothing, Told::Run);
        *self = Self::from_here(next, told);
    }

    /// The next events, never an empty list; `None` after the run's end was told.
    ///
    /// May be dropped while it waits: the next call goes on from there.
    pub async fn next(&mut self) -> Option<Batch> {
        if self.place == Place::Over {
            return None;
        }
        let events = loop {
            if let Some(events) = self.read() {
                break events;
            }
            let rung = if let Place::Seeking(Search { until: Some(until), .. }) = self.place {
                // Then it has waited long enough.
                tokio::time::timeout_at(until, self.bell.changed()).await.unwrap_or(Ok(()))
            } else {
                self.bell.changed().await
            };
            if rung.is_err() {
                // The driver is gone, and the end may be the last thing that it wrote.
                break self.read().unwrap_or_else(|| {
                    let message = "threadway failed to read this run; please report it";
                    let books = self.run.books();
                    books.failed(self.open.as_ref(), INTERNAL_ERROR, message).into()
                });
            }
        };
        let open = self.open.get_or_insert_default();
        // A client that comes back may be told again how the run started, and has things open.
        for event in events.iter().filter(|event| !matches!(event, RunEvent::Started { .. })) {
            open.apply(event);
        }
        if let Some(RunEvent::Ended { .. }) = events.last() {
            self.place = Place::Over;
        }
        Some(events)
    }

    /// What stands in the books for this reader.
    fn read(&mut self) -> Option<Batch> {
        let books = self.run.books();
        match &mut self.place {
            Place::Over => None,
            Place::Seeking(search) => {
                let from = std::mem::replace(&mut search.at, books.log.end());
                match Return::to(&books, &search.event, from) {
                    Some((way, open)) => {
                        self.run.metrics.resumed(search.kind);
                        self.place = Place::Returning(way);
                        self.open = Some(open);
                    }
                    None if books.is_catching_up() => return None,
                    None if books.may_reach(search.event.mark()) => {
                        let now = Instant::now();
                        if *search.until.get_or_insert(now + SEEK_PATIENCE) > now {
                            return None;
                        }
                        self.run.metrics.resumed(Resume::StartOver);
                        self.place = Place::Joining;
                    }
                    None => {
                        self.run.metrics.resumed(Resume::StartOver);
                        self.place = Place::Joining;
                    }
                }
                drop(books);
                self.read()
            }
            Place::Returning(way) => {
                let batch = way.batches.pop_front()?;
                if !way.batches.is_empty() {
                    let told = batch.len();
                    return Some(Batch::told(batch, told, 0));
                }
                let (told, partly) = (way.told, way.partly);
                self.place = Place::At(way.next);
                Some(Batch::told(batch, told, partly))
            }
            Place::Joining => {
                if matches!(self.told, Told::Nothing) && books.must_be_told_from_the_start() {
                    self.place = Place::At(0);
                    drop(books);
                    return self.read();
                }
                let mut events = Events::from(vec![books.start()?.clone()]);
                if let Told::Prelude(prelude) = &mut self.told {
                    events.append(std::mem::take(&mut prelude.events));
                }
                self.place = Place::Waiting;
                if books.can_be_told() {
                    self.run.metrics.resynced(self.told.reason());
                    events.append(self.told.take_up_to(&books));
                    self.place = Place::At(books.log.end());
                }
                Some(events.into())
            }
            Place::Waiting => {
                if !books.can_be_told() {
                    return None;
                }
                self.place = Place::At(books.log.end());
                self.run.metrics.resynced(self.told.reason());
                // It may hold all of it.
                let events = self.told.take_up_to(&books);
                (!events.is_empty()).then(|| events.into())
            }
            Place::At(at) => match books.log.at(*at) {
                log::Found::Nothing => None,
                log::Found::Batch(events) => {
                    *at += 1;
                    Some(events.into())
                }
                log::Found::Gone => {
                    self.run.metrics.resynced(Resync::FellBehind);
                    self.run.metrics.missed(books.log.end() - *at);
                    *at = books.log.end();
                    let start = books.start().filter(|_| self.open.is_none());
                    let mut events = Events::from(Vec::from_iter(start.cloned()));
                    let nothing = Open::default();
                    let open = self.open.as_ref().unwrap_or(&nothing);
                    events.append(brought_back(&books, Holds::Some(open)));
                    Some(events.into())
                }
            },
        }
    }
}

/// What brings a reader to the run as it stands.
fn brought_back(books: &Books, reader: Holds<'_>) -> Events {
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
        let Self { run, bell: _, place, told: _, open: _, _owner: _, _counted: _ } = self;
        f.debug_struct("RunReader").field("run", run).field("place", place).finish_non_exhaustive()
    }
}

// === impl Return ===

impl Return {
    /// The way back to an event, if that is kept, and what is open where the way begins.
    ///
    /// A client that has the run's end gets that event again, under another id. There is nothing
    /// after it, and some clients take an empty answer for an error.
    fn to(books: &Books, event: &EventId, from: u64) -> Option<(Self, Open)> {
        let (last, index) = if event.is_terminal() {
            books.find_end()?
        } else {
            books.log.find(event.mark(), from)?
        };
        let (open, mut batches) = books.log.up_to(last);
        if !books.log.is_whole() {
            // The way begins in the middle: how the run started is told at least.
            batches.push_front(Arc::new(Events::from(vec![books.start()?.clone()])));
        }
        let (told, partly) = match event.partly() {
            _ if event.is_terminal() => (index, 0),
            0 => (index + 1, 0),
            partly => (index, partly),
        };
        if event.is_terminal() {
            let newest = batches.back_mut()?;
            *newest = Arc::new(newest.with_last_mark(event.mark_of_repeat()));
        }
        Some((Self { batches, told, partly, next: last + 1 }, open))
    }
}

// === impl Told ===

impl Told {
    /// Why the reader is told the run as it stands.
    fn reason(&self) -> Resync {
        match self {
            Self::Nothing | Self::Prelude(_) => Resync::Joined,
            Self::Run(_) => Resync::NextRun,
        }
    }

    /// What brings the client to the run as it stands; of what came before it nothing is needed
    /// any more.
    fn take_up_to(&mut self, books: &Books) -> Events {
        match std::mem::replace(self, Self::Nothing) {
            Self::Nothing => brought_back(books, Holds::Nothing),
            Self::Prelude(prelude) => brought_back(books, Holds::This(&prelude.view)),
            Self::Run(view) => brought_back(books, Holds::This(&view)),
        }
    }
}
