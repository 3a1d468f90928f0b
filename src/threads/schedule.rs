//! When a watcher looks at its thread: a follower asks, the lifecycle stream reports a run, a poll
//! reports a change, or time has passed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;

use super::Shared;
use super::lifecycle::Lifecycle;
use super::pace::{LOOK_INTERVAL, Lane, Pace, Permit};
use super::poll::{PollReport, PollState, PollSubscription};
use crate::metrics::LookReason;
use crate::upstream::{Backoff, Client, Error, QueueClass, QueuePermit, Seed};
use threadway_translate::langgraph::Capabilities;

/// How often a thread is looked at that does not exist, in case a poll has missed its creation.
const MISSING_INTERVAL: Duration = Duration::from_mins(1);

/// The longest pause after looks at one thread that failed, while the server may work.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Why a thread is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A follower has joined and waits for the result.
    Requested,
    /// The lifecycle stream reported a run that begins or ends.
    Lifecycle,
    /// A poll reported a change.
    Changed,
    /// The run that was relayed has ended.
    RunEnded,
    /// Time has passed, and the thread is not polled.
    Interval,
    /// Time has passed, and polls report no change. The state may have changed nevertheless: no poll
    /// shows what a process of the server does without the API. The JavaScript server (langgraph-api
    /// 1.5.1) does not list a change by hand either.
    SlowInterval,
}

/// When a thread is looked at next, and why.
#[derive(Debug)]
pub(super) struct Schedule {
    pace: Arc<Pace>,
    subscription: PollSubscription,
    reports: watch::Receiver<PollReport>,
    lifecycle: Lifecycle,
    /// Why a look is due now. Kept until the look has ended, so that a look that is given up
    /// half-way is made again.
    due: Option<Cause>,
    /// When the last look began.
    looked_at: Instant,
    /// The number of changes that polls had reported when the last look began.
    changes: u64,
    last: LookOutcome,
    /// The pauses after looks that have failed.
    pauses: Backoff,
    /// The turn for the first look, which has begun with the first follower's request.
    first_turn: Option<QueuePermit>,
}

/// What a look has achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookOutcome {
    /// Everything was read.
    Complete {
        /// Whether the thread has a state or a run.
        exists: bool,
        /// Whether a run waits for its turn. Polls do not show when it begins.
        has_pending: bool,
        /// When the state may be read again.
        state_due: Instant,
    },
    /// The state was not read, because it is large and was read lately.
    Partial {
        /// When the state may be read again.
        state_due: Instant,
    },
    /// Little is known: the look failed, or the run that it found was lost.
    Inconclusive {
        /// When to look again.
        again_at: Instant,
    },
}

/// Waits for the permission for a look. The callers' slow ones alternate.
async fn wait(pace: &Arc<Pace>, lane: Lane, of_caller: Option<Arc<Semaphore>>) -> Permit {
    match of_caller.filter(|_| lane == Lane::Slow) {
        Some(of_caller) => pace.wait_to_read(&of_caller).await,
        None => pace.wait(lane).await,
    }
}

// === impl Cause ===

impl Cause {
    /// The queue in which the look waits. `None` if it does not wait.
    fn lane(self) -> Option<Lane> {
        match self {
            Self::Requested => None,
            Self::Lifecycle | Self::Changed | Self::RunEnded => Some(Lane::Changed),
            Self::Interval => Some(Lane::Intervals),
            Self::SlowInterval => Some(Lane::Slow),
        }
    }

    /// The line in which the look waits for its turn.
    fn line(self) -> QueueClass {
        match self {
            Self::Requested | Self::Lifecycle | Self::Changed | Self::RunEnded => QueueClass::Looks,
            Self::Interval | Self::SlowInterval => QueueClass::Checks,
        }
    }

    /// The label in metrics.
    pub(super) fn reason(self) -> LookReason {
        match self {
            Self::Requested => LookReason::Requested,
            Self::Lifecycle => LookReason::Lifecycle,
            Self::Changed => LookReason::Changed,
            Self::RunEnded => LookReason::Ended,
            Self::Interval | Self::SlowInterval => LookReason::Interval,
        }
    }
}

// === impl Schedule ===

impl Schedule {
    /// The schedule of a thread that its first follower has joined.
    pub(super) fn new(shared: &Arc<Shared>, upstream: &Client, thread_id: &str) -> Self {
        let (subscription, reports) = PollSubscription::new(shared, upstream, thread_id);
        Self {
            pace: shared.paces.of(upstream, shared.runs.metrics()),
            subscription,
            reports,
            lifecycle: Lifecycle::default(),
            due: Some(Cause::Requested),
            looked_at: Instant::now(),
            changes: 0,
            last: LookOutcome::Inconclusive { again_at: Instant::now() },
            pauses: Backoff::new(LOOK_INTERVAL, LONGEST_PAUSE, Seed::random()),
            first_turn: None,
        }
    }

    /// Sets the credentials for later looks, so that polls use them too.
    pub(super) fn use_credentials(&mut self, upstream: &Client) {
        self.subscription.use_credentials(upstream);
    }

    /// Sets the turn in which the first look is made.
    pub(super) fn begin_in(&mut self, turn: Option<QueuePermit>) {
        self.first_turn = turn;
    }

    /// Waits until a look is due, and for the permission and the turn to make it. Cancel safe.
    pub(super) async fn next(
        &mut self,
        requests: &Notify,
        upstream: &Client,
    ) -> (Cause, Permit, Result<QueuePermit, Error>) {
        loop {
            let cause = self.cause(requests).await;
            let Some(lane) = cause.lane() else {
                let turn = match self.first_turn.take() {
                    Some(turn) => Ok(turn),
                    None => upstream.turn(cause.line()).await,
                };
                return (cause, self.pace.at_once(), turn);
            };
            let is_periodic = matches!(cause, Cause::Interval | Cause::SlowInterval);
            let permit = async {
                let permit = wait(&self.pace, lane, self.subscription.state_read()).await;
                (permit, upstream.turn(cause.line()).await)
            };
            tokio::select! {
                            biased;
                            () = requests.notified() => self.due = Some(Cause::Requested),
                            () = self.lifecycle.changed(), if is_periodic => self.due = Some(Cause::Lifecycle),
                            // The report may give another cause, or none.
                            Ok(()) = self.reports.changed(), if is_periodic => {}
            (permit, turn) = permit => return (cause, permit, turn),
                        }
        }
    }

    async fn cause(&mut self, requests: &Notify) -> Cause {
        loop {
            if let Some(cause) = self.due {
                return cause;
            }
            let (cause, at) = self.due_at();
            tokio::select! {
                biased;
                () = requests.notified() => self.due = Some(Cause::Requested),
                () = self.lifecycle.changed() => self.due = Some(Cause::Lifecycle),
                () = tokio::time::sleep_until(at) => return cause,
                Ok(()) = self.reports.changed() => {}
            }
        }
    }

    /// When a look is due by what is known now.
    fn due_at(&mut self) -> (Cause, Instant) {
        let report = *self.reports.borrow_and_update();
        let (exists, has_pending) = match self.last {
            LookOutcome::Complete { exists, has_pending, .. } => (exists, has_pending),
            LookOutcome::Partial { .. } | LookOutcome::Inconclusive { .. } => (false, false),
        };
        let soon = (Cause::Interval, self.looked_at + LOOK_INTERVAL);
        match (report.state, self.last) {
            (_, LookOutcome::Inconclusive { again_at }) => (Cause::Interval, again_at),
            _ if report.changes != self.changes => (Cause::Changed, self.looked_at),
            (PollState::NotPolled | PollState::Unserved | PollState::Busy, _) => soon,
            _ if has_pending => soon,
            // The poll and the last look disagree about whether the thread exists.
            (PollState::Missing, _) if exists => soon,
            (PollState::Idle { since }, _) if self.looked_at < since => soon,
            (PollState::Idle { .. } | PollState::Missing, LookOutcome::Partial { state_due }) => {
                (Cause::Interval, state_due.max(soon.1))
            }
            (
                PollState::Idle { .. } | PollState::Missing,
                LookOutcome::Complete { state_due, .. },
            ) => {
                let missing = self.looked_at + MISSING_INTERVAL;
                (Cause::SlowInterval, if exists { state_due.max(soon.1) } else { missing })
            }
        }
    }

    pub(super) fn look_began(&mut self) {
        self.looked_at = Instant::now();
        self.changes = self.reports.borrow().changes;
    }

    /// Opens the lifecycle stream, if the server has one and not too many are open.
    pub(super) async fn open_lifecycle(
        &mut self,
        upstream: &Client,
        server: Capabilities,
        thread_id: &str,
    ) {
        self.lifecycle.open(upstream, server, thread_id, &self.pace).await;
    }

    /// Notes the end of a look. `None` if it failed.
    pub(super) fn look_ended(&mut self, outcome: Option<LookOutcome>) {
        self.due = None;
        if let Some(outcome) = outcome {
            self.pauses.reset();
            self.last = outcome;
            return;
        }
        let pause = self.pauses.next_pause();
        self.last = LookOutcome::Inconclusive { again_at: Instant::now() + pause };
    }

    /// Notes that a run is relayed no more. If the run itself has ended, a look is due at once.
    pub(super) fn relay_ended(&mut self, has_ended: bool) {
        self.pauses.reset();
        self.due = has_ended.then_some(Cause::RunEnded);
        self.last = LookOutcome::Inconclusive { again_at: Instant::now() + LOOK_INTERVAL };
    }
}
