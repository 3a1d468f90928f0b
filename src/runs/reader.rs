//! One reader of a run. It takes the events at its own pace, and is sent a keyframe if it falls
//! off the log.
//!
//! - `resumption`: continues after the event that a returning client has last.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

mod resumption;

use super::batch::{Batch, Events};
use super::credential_ring::Attendance;
use super::event_id::EventId;
use super::keyframe::Keyframe;
use super::log::Lookup;
use super::published::{ReaderStart, RefusalCutoff, Run, Subscription};
use crate::metrics::{GaugeGuard, Resume, Resync};
use crate::upstream::Client;
use resumption::Resumption;
use threadway_translate::run::{LossReason, Open, RunEvent, View};

/// How long a returning client waits for an event that this replica has not read yet. The replica
/// that sent the event may have been ahead by this much.
const SEARCH_PATIENCE: Duration = Duration::from_secs(5);

/// What the client of a barred caller is sent.
const BARRED: &str = "LangGraph refuses the credentials of this stream now; connect again with \
                      credentials that it accepts; the run goes on";

/// Reads one run.
pub struct RunReader {
    run: Arc<Run>,
    _subscription: Subscription,
    state: ReaderState,
    /// Where the log ended when the reader asked for a keyframe; `None` if it waits for none.
    keyframe_wanted_at: Option<u64>,
    baseline: Baseline,
    /// The client's open messages, calls and steps; `None` if it was sent nothing of this run yet.
    open: Option<Open>,
    /// `None` if no credentials are needed, as for an idle thread.
    caller: Option<Box<ReaderCaller>>,
    _counted: GaugeGuard,
}

/// The caller of a reader.
struct ReaderCaller {
    /// The upstream with this caller's credentials, with which later runs are read too.
    upstream: Client,
    /// `None` if the run is not read any further.
    attendance: Option<Attendance<RefusalCutoff>>,
}

/// How far a reader is.
#[derive(Debug, PartialEq)]
enum ReaderState {
    /// The reader begins with a keyframe.
    Joining,
    /// The reader continues after an event, if that is found.
    Searching(EventSearch),
    /// The reader passes over the events that the client has.
    Resuming(Resumption),
    /// The client has the run's end with this id, and the run is still read here. If that end shows
    /// the same, nothing is sent.
    Holding(EventId),
    /// The client was sent the run's start, and waits until the run can be shown.
    Waiting,
    /// At a position of the log.
    At(u64),
    /// The reader has returned the run's end.
    Over,
}

/// The search for the last event that a client has.
#[derive(Debug, PartialEq)]
struct EventSearch {
    event: EventId,
    /// The position of the log from which on it has not searched yet.
    at: u64,
    /// When it gives up. Set once the run's past was replayed.
    until: Option<Instant>,
    /// Whether it searches this replica's log or a replay by the upstream.
    kind: Resume,
}

/// The client's view before it is sent anything of the run.
pub(super) enum Baseline {
    Empty,
    /// The previous run of the thread, to its end.
    PreviousRun(Arc<Keyframe>),
    /// The preview of a pending run.
    Preview(Preview),
}

/// The content of a pending run: the thread's messages and the run's input.
pub(super) struct Preview {
    pub(super) events: Events,
    pub(super) view: Arc<View>,
}

/// The next step of a reader.
enum ReaderStep {
    Return(Batch),
    /// Makes the events of a keyframe, and returns them.
    Show(Arc<Keyframe>),
    /// There is nothing more of this run.
    End,
    /// Waits until more is published.
    Wait,
}

// === impl RunReader ===

impl RunReader {
    /// The reader of the client that started the run. It begins with the oldest events.
    pub(super) fn for_owner(run: Arc<Run>) -> Self {
        Self { state: ReaderState::At(0), ..Self::from_now(run, Baseline::Empty) }
    }

    /// Lends the run the credentials of this reader's caller, to whom the upstream has just shown
    /// the run. The reader ends if the upstream refuses them while it accepts another caller's.
    #[must_use]
    pub(crate) fn for_caller(self, upstream: &Client) -> Self {
        let attendance = self.run.broadcast.credentials.as_ref().map(|ring| ring.attend(upstream));
        let caller = ReaderCaller { upstream: upstream.clone(), attendance };
        Self { caller: Some(Box::new(caller)), ..self }
    }

    /// LangGraph's id of the run, once it is known.
    pub(crate) fn run_id(&self) -> Option<Arc<str>> {
        self.run.id()
    }

    /// Whether the next events may be some that the client has.
    pub(crate) fn is_resuming(&self) -> bool {
        matches!(
            self.state,
            ReaderState::Searching(_) | ReaderState::Resuming(_) | ReaderState::Holding(_)
        )
    }

    /// Since when the upstream has not answered.
    pub(crate) fn away_since(&self) -> watch::Receiver<Option<Instant>> {
        self.run.broadcast.away_since()
    }

    /// A reader that begins with the run as it is now.
    pub(super) fn from_now(run: Arc<Run>, baseline: Baseline) -> Self {
        let subscription = run.broadcast.subscribe();
        let counted = run.metrics().viewer();
        Self {
            run,
            _subscription: subscription,
            state: ReaderState::Joining,
            keyframe_wanted_at: None,
            baseline,
            open: None,
            caller: None,
            _counted: counted,
        }
    }

    /// A reader that continues after an event. If the event is not found, the reader begins with
    /// the run as it is now.
    pub(crate) fn after(run: Arc<Run>, event: EventId) -> Self {
        let is_replayed = run.published().is_catching_up();
        let kind = if is_replayed { Resume::Replay } else { Resume::Log };
        let search = EventSearch { event, at: 0, until: None, kind };
        Self { state: ReaderState::Searching(search), ..Self::from_now(run, Baseline::Empty) }
    }

    /// A reader whose client has this run's end, of which another replica may have been first to
    /// know.
    pub(crate) fn holding(run: Arc<Run>, end: EventId) -> Self {
        Self { state: ReaderState::Holding(end), ..Self::from_now(run, Baseline::Empty) }
    }

    /// A reader whose client holds the run to its end.
    pub(crate) fn at_end(run: Arc<Run>) -> Self {
        Self { state: ReaderState::Over, ..Self::from_now(run, Baseline::Empty) }
    }

    /// A reader that begins with the run as it is now. The upstream has just shown the run to this
    /// client.
    pub(crate) fn new(run: Arc<Run>) -> Self {
        Self::from_now(run, Baseline::Empty)
    }

    /// Continues with the next run of the thread, for the same client.
    pub(crate) fn continue_with(&mut self, next: Arc<Run>) {
        let baseline = self.run.final_keyframe().map_or(Baseline::Empty, Baseline::PreviousRun);
        let next = Self::from_now(next, baseline);
        *self = match &self.caller {
            Some(caller) => next.for_caller(&caller.upstream),
            None => next,
        };
    }

    /// The next events, never an empty list; `None` after the run's end was returned.
    ///
    /// Cancel safe: the next call continues from there.
    pub async fn next(&mut self) -> Option<Batch> {
        let broadcast = Arc::clone(&self.run.broadcast);
        let events = loop {
            // Before the step, so that nothing which is published after it is missed.
            let (published, is_driven) = (broadcast.published(), broadcast.is_driven());
            match self.step() {
                ReaderStep::Return(events) => break events,
                ReaderStep::End => return None,
                ReaderStep::Show(keyframe) => {
                    let events = self.show(&keyframe).await;
                    // The client may already hold everything.
                    if !events.is_empty() {
                        break events.into();
                    }
                }
                ReaderStep::Wait if is_driven => match self.gives_up_at() {
                    Some(until) => drop(tokio::time::timeout_at(until, published).await),
                    None => published.await,
                },
                ReaderStep::Wait => break self.failed().into(),
            }
        };
        let open = self.open.get_or_insert_default();
        // A returning client may be sent the run's start again, while it has things open.
        for event in events.iter().filter(|event| !matches!(event, RunEvent::Started { .. })) {
            open.apply(event);
        }
        if let Some(RunEvent::Ended { .. }) = events.last() {
            self.state = ReaderState::Over;
        }
        Some(events)
    }

    /// When a search gives up.
    fn gives_up_at(&self) -> Option<Instant> {
        if let ReaderState::Searching(EventSearch { until, .. }) = self.state {
            until
        } else {
            None
        }
    }

    /// The driver ended without publishing an end.
    fn failed(&self) -> Events {
        let message = "threadway failed to read this run; please report it";
        self.run.failed(self.open.as_ref(), LossReason::Internal, message)
    }

    /// Whether the upstream refuses this caller's credentials, while it accepts another's.
    pub(crate) fn is_barred(&self) -> bool {
        self.bar().is_some()
    }

    fn bar(&self) -> Option<RefusalCutoff> {
        self.caller.as_ref()?.attendance.as_ref()?.bar().copied()
    }

    /// The next step of a reader whose caller is barred. `None` while it may go on.
    fn barred(&self) -> Option<ReaderStep> {
        let bar = self.bar()?;
        let at = match self.state {
            // What it passes over and returns was published before.
            ReaderState::Over | ReaderState::Resuming(_) => return None,
            ReaderState::At(at) => Some(at),
            ReaderState::Joining
            | ReaderState::Searching(_)
            | ReaderState::Holding(_)
            | ReaderState::Waiting => None,
        };
        let published = self.run.published();
        if at.is_some_and(|at| at < bar.at && matches!(published.log.at(at), Lookup::Segment(_))) {
            return None;
        }
        if bar.is_whole && at == Some(bar.at) {
            if published.end().is_none() {
                return Some(ReaderStep::Wait);
            }
            let open = self.open.clone().unwrap_or_default();
            if let Some(events) = published.succeeded(&open) {
                return Some(ReaderStep::Return(events.into()));
            }
        }
        drop(published);
        let failed = self.run.failed(self.open.as_ref(), LossReason::Unavailable, BARRED);
        Some(ReaderStep::Return(failed.into()))
    }

    fn step(&mut self) -> ReaderStep {
        loop {
            if let Some(step) = self.barred() {
                return step;
            }
            match &mut self.state {
                ReaderState::Over => return ReaderStep::End,
                ReaderState::Holding(end) => {
                    if self.run.published().end().is_none() {
                        return ReaderStep::Wait;
                    }
                    let is_held = self.run.is_held_after(end);
                    let (kind, state) = if is_held {
                        (Resume::Log, ReaderState::Over)
                    } else {
                        (Resume::StartOver, ReaderState::Joining)
                    };
                    self.run.metrics().resumed(kind);
                    self.state = state;
                }
                ReaderState::Searching(search) => {
                    let past = self.run.past(search.event.key());
                    let from = std::mem::replace(&mut search.at, past.end);
                    let (may_come, is_catching_up) = (past.may_come, past.is_catching_up);
                    if let Some((resumption, open)) = Resumption::after(&search.event, past, from) {
                        self.run.metrics().resumed(search.kind);
                        self.state = ReaderState::Resuming(resumption);
                        self.open = Some(open);
                        continue;
                    }
                    let now = Instant::now();
                    if is_catching_up
                        || (may_come && *search.until.get_or_insert(now + SEARCH_PATIENCE) > now)
                    {
                        return ReaderStep::Wait;
                    }
                    self.run.metrics().resumed(Resume::StartOver);
                    self.state = ReaderState::Joining;
                }
                ReaderState::Resuming(resumption) => {
                    let (batch, then) = resumption.next();
                    if let Some(position) = then {
                        self.state = ReaderState::At(position);
                    }
                    return batch.map_or(ReaderStep::Wait, ReaderStep::Return);
                }
                ReaderState::Joining => {
                    let holds_nothing = matches!(self.baseline, Baseline::Empty);
                    let beginning = self.run.beginning(holds_nothing);
                    match beginning {
                        ReaderStart::Later => return ReaderStep::Wait,
                        ReaderStart::FirstEvent => self.state = ReaderState::At(0),
                        ReaderStart::Keyframe => return self.keyframe(),
                        ReaderStart::Start(start) => {
                            self.state = ReaderState::Waiting;
                            return ReaderStep::Return(self.beginning(start).into());
                        }
                    }
                }
                ReaderState::Waiting => {
                    let can_be_shown = self.run.published().can_be_shown();
                    return if can_be_shown { self.keyframe() } else { ReaderStep::Wait };
                }
                ReaderState::At(at) => {
                    let found = self.run.published().log.at(*at);
                    match found {
                        Lookup::End => return ReaderStep::Wait,
                        Lookup::Segment(segment) => {
                            *at += 1;
                            // All its events may be hidden.
                            if !segment.events.is_empty() {
                                let batch = Batch::from(Arc::clone(&segment.events));
                                let is_shared = self.run.broadcast.readers() > 1;
                                return ReaderStep::Return(batch.shared(is_shared));
                            }
                        }
                        Lookup::Evicted => return self.keyframe(),
                    }
                }
            }
        }
    }

    fn keyframe(&mut self) -> ReaderStep {
        self.run.keyframe(&mut self.keyframe_wanted_at).map_or(ReaderStep::Wait, ReaderStep::Show)
    }

    /// The first events for a client that joins: the run's start, and a preview if there is one.
    fn beginning(&mut self, start: RunEvent) -> Events {
        let mut events = Events::from(vec![start]);
        if let Baseline::Preview(preview) = &mut self.baseline {
            events.append(std::mem::take(&mut preview.events));
        }
        events
    }

    /// The events of a keyframe for this reader's client. The reader then continues in the log.
    async fn show(&mut self, keyframe: &Arc<Keyframe>) -> Events {
        let start = self.run.broadcast.start().cloned();
        let (shown, has_start) = if let ReaderState::At(_) = self.state {
            let open = self.open.clone().unwrap_or_default();
            (keyframe.for_lagging(&open), self.open.is_some())
        } else {
            let shown = match &self.baseline {
                Baseline::Empty => keyframe.for_newcomer().await,
                Baseline::PreviousRun(held) => keyframe.since(held).await,
                Baseline::Preview(preview) => keyframe.for_holder(&preview.view),
            };
            (shown, self.state == ReaderState::Waiting)
        };
        // There is no await from here on, so that a cancelled call has changed nothing.
        let mut events = match start {
            Some(start) if !has_start => self.beginning(start),
            _ => Events::default(),
        };
        self.count(keyframe);
        self.state = ReaderState::At(keyframe.at());
        // The earlier keyframe or preview need not be kept any longer.
        self.baseline = Baseline::Empty;
        events.append(shown.unwrap_or_else(|| {
            let nothing = Open::default();
            let open = self.open.as_ref().unwrap_or(&nothing);
            let message = "the stream was read too slowly; load the thread to see the run";
            self.run.failed(Some(open), LossReason::TooSlow, message)
        }));
        events.set_includes(keyframe.key());
        events
    }

    fn count(&self, keyframe: &Keyframe) {
        let metrics = self.run.metrics();
        match (&self.state, &self.baseline) {
            (ReaderState::At(at), _) => {
                metrics.resynced(Resync::FellBehind);
                metrics.missed(keyframe.at().saturating_sub(*at));
            }
            (_, Baseline::PreviousRun(_)) => metrics.resynced(Resync::NextRun),
            (_, Baseline::Empty | Baseline::Preview(_)) => metrics.resynced(Resync::Joined),
        }
    }
}

impl fmt::Debug for RunReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run, state, .. } = self;
        f.debug_struct("RunReader").field("run", run).field("state", state).finish_non_exhaustive()
    }
}
