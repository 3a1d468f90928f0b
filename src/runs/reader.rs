//! One reader of a run: takes the events at its own pace, and is brought back if it falls behind.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::batch::{Batch, Events};
use super::event_id::EventId;
use super::log::{self, Kept};
use super::published::{Run, Shown};
use super::standing::Standing;
use crate::metrics::{Held, Resume, Resync};
use threadway_translate::run::{Loss, Open, RunEvent, View};

/// How long one who comes back waits for an event that this replica has not read yet: another,
/// where it was told, may have been ahead by so much.
const SEEK_PATIENCE: Duration = Duration::from_secs(5);

/// Reads one run.
pub struct RunReader {
    run: Arc<Run>,
    bell: watch::Receiver<()>,
    place: Place,
    /// Where the log ended when it asked for the run as it stands; `None` if it does not wait.
    asked_at: Option<u64>,
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
    Run(Arc<Standing>),
    /// What stood before a run that waits for its turn.
    Prelude(Prelude),
}

/// What stands before a run that waits for its turn: what the thread holds, and the run's input.
pub(super) struct Prelude {
    pub(super) events: Events,
    pub(super) view: Arc<View>,
}

/// What there is for a reader.
enum Found {
    Events(Batch),
    /// It is to be brought to the run as it stands.
    Standing(Arc<Standing>),
    /// It finds more when the bell rings.
    Nothing,
}

// === impl RunReader ===

impl RunReader {
    /// The reader of whoever started the run: it begins with the oldest events.
    pub(super) fn of_owner(run: Arc<Run>, owner: Option<oneshot::Sender<()>>) -> Self {
        Self { place: Place::At(0), _owner: owner, ..Self::from_here(run, Told::Nothing) }
    }

    /// LangGraph's id of the run, once it is known.
    pub(crate) fn run_id(&self) -> Option<Arc<str>> {
        self.run.id()
    }

    /// A reader that begins with the run as it stands.
    pub(super) fn from_here(run: Arc<Run>, told: Told) -> Self {
        let bell = run.bell();
        let counted = run.metrics.viewer();
        Self {
            run,
            bell,
            place: Place::Joining,
            asked_at: None,
            told,
            open: None,
            _owner: None,
            _counted: counted,
        }
    }

    /// A reader that goes on behind an event; where that is not found, with the run as it stands.
    pub(super) fn behind(run: Arc<Run>, event: EventId) -> Self {
        let is_replayed = run.published().is_catching_up();
        let kind = if is_replayed { Resume::Replay } else { Resume::Log };
        let search = Search { event, at: 0, until: None, kind };
        Self { place: Place::Seeking(search), ..Self::from_here(run, Told::Nothing) }
    }

    /// A reader of what was just shown to its client: after an event, or as it stands.
    pub(crate) fn of(run: Arc<Run>, after: Option<EventId>) -> Self {
        match after {
            Some(event) => Self::behind(run, event),
            None => Self::from_here(run, Told::Nothing),
        }
    }

    /// Goes on with the next run of the thread, for the same client.
    pub(crate) fn go_on_with(&mut self, next: Arc<Run>) {
        let told = self.run.ended().map_or(Told::Nothing, Told::Run);
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
            match self.read() {
                Found::Events(events) => break events,
                Found::Standing(standing) => {
                    let events = self.brought_to(&standing).await;
                    // It may hold all of it.
                    if !events.is_empty() {
                        break events.into();
                    }
                }
                Found::Nothing => {
                    if self.rings().await.is_err() {
                        // The driver is gone, and the end may be the last thing that it published.
                        match self.read() {
                            Found::Events(events) => break events,
                            Found::Standing(standing) => {
                                break self.brought_to(&standing).await.into();
                            }
                            Found::Nothing => break self.failed().into(),
                        }
                    }
                }
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

    /// Waits until there may be more, or one that resumes has waited long enough. An error means
    /// that the driver is gone.
    async fn rings(&mut self) -> Result<(), watch::error::RecvError> {
        if let Place::Seeking(Search { until: Some(until), .. }) = self.place {
            tokio::time::timeout_at(until, self.bell.changed()).await.unwrap_or(Ok(()))
        } else {
            self.bell.changed().await
        }
    }

    /// The driver is gone without a word.
    fn failed(&self) -> Events {
        let message = "threadway failed to read this run; please report it";
        self.run.published().failed(self.open.as_ref(), Loss::Internal, message)
    }

    /// What there is for this reader.
    fn read(&mut self) -> Found {
        loop {
            let published = self.run.published();
            match &mut self.place {
                Place::Over => return Found::Nothing,
                Place::Seeking(search) => {
                    let (kept, end) = (published.log.kept(), published.log.end());
                    let start = published.start().cloned();
                    let has_end = published.has_end_mark();
                    let may_come = published.may_reach(search.event.mark());
                    let is_catching_up = published.is_catching_up();
                    drop(published);
                    let from = std::mem::replace(&mut search.at, end);
                    let start = start.as_ref();
                    if let Some((way, open)) = Return::to(kept, start, has_end, &search.event, from)
                    {
                        self.run.metrics.resumed(search.kind);
                        self.place = Place::Returning(way);
                        self.open = Some(open);
                        continue;
                    }
                    let now = Instant::now();
                    if is_catching_up
                        || (may_come && *search.until.get_or_insert(now + SEEK_PATIENCE) > now)
                    {
                        return Found::Nothing;
                    }
                    self.run.metrics.resumed(Resume::StartOver);
                    self.place = Place::Joining;
                }
                Place::Returning(way) => {
                    let Some(batch) = way.batches.pop_front() else { return Found::Nothing };
                    if !way.batches.is_empty() {
                        let told = batch.len();
                        return Found::Events(Batch::told(batch, told, 0));
                    }
                    let (told, partly) = (way.told, way.partly);
                    self.place = Place::At(way.next);
                    return Found::Events(Batch::told(batch, told, partly));
                }
                Place::Joining => {
                    if matches!(self.told, Told::Nothing) && published.must_be_told_from_the_start()
                    {
                        self.place = Place::At(0);
                        continue;
                    }
                    let Some(start) = published.start().cloned() else { return Found::Nothing };
                    if published.can_be_told() {
                        drop(published);
                        return self.shown();
                    }
                    drop(published);
                    self.place = Place::Waiting;
                    return Found::Events(self.beginning(start).into());
                }
                Place::Waiting => {
                    if !published.can_be_told() {
                        return Found::Nothing;
                    }
                    drop(published);
                    return self.shown();
                }
                Place::At(at) => match published.log.at(*at) {
                    log::Found::Nothing => return Found::Nothing,
                    log::Found::Next(segment) => {
                        *at += 1;
                        return Found::Events(Arc::clone(&segment.events).into());
                    }
                    log::Found::Gone => {
                        drop(published);
                        return self.shown();
                    }
                },
            }
        }
    }

    /// The run as it stands; nothing before it is published.
    fn shown(&mut self) -> Found {
        match self.run.show(&mut self.asked_at) {
            Shown::Standing(standing) => Found::Standing(standing),
            Shown::Asked => Found::Nothing,
        }
    }

    /// What every reader begins with that joins.
    fn beginning(&mut self, start: RunEvent) -> Events {
        let mut events = Events::from(vec![start]);
        if let Told::Prelude(prelude) = &mut self.told {
            events.append(std::mem::take(&mut prelude.events));
        }
        events
    }

    /// What brings the reader to the run as it stands: from there it goes on in the log.
    async fn brought_to(&mut self, standing: &Arc<Standing>) -> Events {
        let start = self.run.published().start().cloned();
        let (brought, is_begun) = if let Place::At(_) = self.place {
            let open = self.open.clone().unwrap_or_default();
            (standing.for_straggler(open).await, self.open.is_some())
        } else {
            let brought = match &self.told {
                Told::Nothing => standing.for_newcomer().await,
                Told::Run(held) => standing.after(held).await,
                Told::Prelude(prelude) => standing.for_holder(Arc::clone(&prelude.view)).await,
            };
            (brought, self.place == Place::Waiting)
        };
        // From here on it waits for nothing.
        let mut events = match start {
            Some(start) if !is_begun => self.beginning(start),
            _ => Events::default(),
        };
        self.count(standing);
        self.place = Place::At(standing.at());
        // What came before the run is not needed any more.
        self.told = Told::Nothing;
        events.append(brought.unwrap_or_else(|| {
            let nothing = Open::default();
            let open = self.open.as_ref().unwrap_or(&nothing);
            let message = "the stream was read too slowly; load the thread to see the run";
            self.run.published().failed(Some(open), Loss::TooSlow, message)
        }));
        events
    }

    fn count(&self, standing: &Standing) {
        let metrics = &self.run.metrics;
        match (&self.place, &self.told) {
            (Place::At(at), _) => {
                metrics.resynced(Resync::FellBehind);
                metrics.missed(standing.at().saturating_sub(*at));
            }
            (_, Told::Run(_)) => metrics.resynced(Resync::NextRun),
            (_, Told::Nothing | Told::Prelude(_)) => metrics.resynced(Resync::Joined),
        }
    }
}

impl fmt::Debug for RunReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run, bell: _, place, asked_at: _, told: _, open: _, _owner: _, _counted: _ } =
            self;
        f.debug_struct("RunReader").field("run", run).field("place", place).finish_non_exhaustive()
    }
}

// === impl Return ===

impl Return {
    /// The way back to an event, if that is kept, and what is open where the way begins.
    ///
    /// A client that has the run's end gets that event again, under another id. There is nothing
    /// after it, and some clients take an empty answer for an error.
    fn to(
        kept: Kept,
        start: Option<&RunEvent>,
        has_end: bool,
        event: &EventId,
        from: u64,
    ) -> Option<(Self, Open)> {
        let (last, index) = if event.is_terminal() {
            kept.last().filter(|_| has_end)?
        } else {
            kept.find(event.mark(), from)?
        };
        let is_whole = kept.is_whole();
        let (open, mut batches) = kept.up_to(last);
        if !is_whole {
            // The way begins in the middle: how the run started is told at least.
            batches.push_front(Arc::new(Events::from(vec![start?.clone()])));
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
