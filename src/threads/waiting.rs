//! What a watcher waits for between two looks at its thread: somebody asks, the server rings, a
//! poll has seen the thread move, or time has passed; and then its turn.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, watch};
use tokio::time::Instant;

use super::Shared;
use super::pace::{LOOK_INTERVAL, Lane, Pace, Turn};
use super::poll::{News, PollState, Polled};
use crate::metrics::LookReason;
use crate::runs;
use crate::upstream::{Body, Client};
use threadway_translate::langgraph::ServerKind;
use threadway_translate::sse::Decoder;

/// How often a thread is looked at that rests by each poll: something may have moved without a
/// sign of it in a list of threads. The JavaScript server (langgraph-api 2.0.0) shows none of a
/// state that is changed by hand.
const SLOW_INTERVAL: Duration = Duration::from_mins(1);

/// The longest pause before a thread is looked at again at which no look succeeds, though the
/// server may work.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How long the server's bell may take to answer: a look waits for it.
const BELL_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a thread is to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A client waits to be told how it stands.
    Asked,
    /// The server says that a run begins or ends.
    Bell,
    /// A poll has seen it move.
    Moved,
    /// The run that was shown has ended.
    Ended,
    /// Nothing is known of it.
    Interval,
    /// It rests by all polls.
    Slow,
}

/// When a thread is looked at next, and why.
#[derive(Debug)]
pub(super) struct Waiting {
    pace: Arc<Pace>,
    polled: Polled,
    news: watch::Receiver<News>,
    lifecycle: Lifecycle,
    /// Why the thread is to be looked at now, whatever the time. It stays until a look has come to
    /// its end: one that is given up half-way begins again.
    due: Option<Cause>,
    /// When the last look began.
    looked_at: Instant,
    /// How many moves the last look has seen.
    moves: u64,
    /// What the last look came to.
    last: Look,
    /// How many looks in a row have failed.
    failures: u32,
}

/// What a look came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Everything was read.
    Whole {
        /// Whether the server has shown a state or a run.
        is_there: bool,
    },
    /// The state was not read: it is large, and may be at this time.
    Partial {
        /// When it may be.
        state_due: Instant,
    },
    /// It says little: it failed, or the run that it found was lost.
    Vain {
        /// When to look again.
        again_at: Instant,
    },
}

/// The server's own bell.
#[derive(Debug, Default)]
struct Lifecycle {
    stream: Option<Ringing>,
}

#[derive(Debug)]
struct Ringing {
    body: Body,
    decoder: Decoder,
    _one_of_few: OwnedSemaphorePermit,
}

// === impl Cause ===

impl Cause {
    /// Where it waits for its turn; `None` if it does not.
    fn lane(self) -> Option<Lane> {
        match self {
            Self::Asked => None,
            Self::Bell | Self::Moved | Self::Ended => Some(Lane::News),
            Self::Interval => Some(Lane::Intervals),
            Self::Slow => Some(Lane::Slow),
        }
    }

    /// The word for it.
    pub(super) fn reason(self) -> LookReason {
        match self {
            Self::Asked => LookReason::Asked,
            Self::Bell => LookReason::Lifecycle,
            Self::Moved => LookReason::Moved,
            Self::Ended => LookReason::Ended,
            Self::Interval | Self::Slow => LookReason::Interval,
        }
    }
}

// === impl Waiting ===

impl Waiting {
    /// For a thread that somebody has just come to.
    pub(super) fn new(shared: &Arc<Shared>, upstream: &Client, thread_id: &str) -> Self {
        let (polled, news) = Polled::new(shared, upstream, thread_id);
        Self {
            pace: shared.paces.of(upstream, shared.runs.metrics()),
            polled,
            news,
            lifecycle: Lifecycle::default(),
            due: Some(Cause::Asked),
            looked_at: Instant::now(),
            moves: 0,
            last: Look::Whole { is_there: false },
            failures: 0,
        }
    }

    /// The thread is looked at with these credentials from now on.
    pub(super) fn looks_as(&mut self, upstream: &Client) {
        self.polled.looks_as(upstream);
    }

    /// Waits until the thread is to be looked at, and for the turn to do so. May be dropped while
    /// it waits.
    pub(super) async fn turn(&mut self, asked: &Notify) -> (Cause, Turn) {
        loop {
            let cause = self.cause(asked).await;
            let Some(lane) = cause.lane() else {
                return (cause, self.pace.at_once());
            };
            let may_be_overtaken = matches!(cause, Cause::Interval | Cause::Slow);
            tokio::select! {
                biased;
                () = asked.notified() => self.due = Some(Cause::Asked),
                () = self.lifecycle.rings(), if may_be_overtaken => self.due = Some(Cause::Bell),
                // What is due may be another then.
                Ok(()) = self.news.changed(), if may_be_overtaken => {}
                turn = self.pace.turn(lane) => return (cause, turn),
            }
        }
    }

    async fn cause(&mut self, asked: &Notify) -> Cause {
        loop {
            if let Some(cause) = self.due {
                return cause;
            }
            let (cause, at) = self.due_at();
            tokio::select! {
                biased;
                () = asked.notified() => self.due = Some(Cause::Asked),
                () = self.lifecycle.rings() => self.due = Some(Cause::Bell),
                () = tokio::time::sleep_until(at) => return cause,
                Ok(()) = self.news.changed() => {}
            }
        }
    }

    /// When the thread is to be looked at by what is known now.
    fn due_at(&mut self) -> (Cause, Instant) {
        let news = *self.news.borrow_and_update();
        let is_there = self.last == Look::Whole { is_there: true };
        let soon = (Cause::Interval, self.looked_at + LOOK_INTERVAL);
        let (cause, at) = match (news.state, self.last) {
            (_, Look::Vain { again_at }) => return (Cause::Interval, again_at),
            _ if news.moves != self.moves => (Cause::Moved, self.looked_at),
            (PollState::Unpolled | PollState::Busy, _) => soon,
            // The poll and the last look disagree about whether it is there.
            (PollState::Missing, _) if is_there => soon,
            (PollState::Resting(since), _) if self.looked_at < since => soon,
            (PollState::Resting(_) | PollState::Missing, Look::Partial { state_due }) => {
                (Cause::Interval, state_due.max(soon.1))
            }
            (PollState::Resting(_) | PollState::Missing, Look::Whole { .. }) => {
                (Cause::Slow, self.looked_at + SLOW_INTERVAL)
            }
        };
        (cause, at)
    }

    /// A look begins.
    pub(super) fn begins(&mut self) {
        self.looked_at = Instant::now();
        self.moves = self.news.borrow().moves;
    }

    /// Opens the server's bell, where it has one and there are not too many.
    pub(super) async fn listen(
        &mut self,
        upstream: &Client,
        server: Option<ServerKind>,
        thread_id: &str,
    ) {
        self.lifecycle.open(upstream, server, thread_id, &self.pace).await;
    }

    /// A look has come to its end, or has failed.
    pub(super) fn ended(&mut self, look: Option<Look>) {
        self.due = None;
        if let Some(look) = look {
            self.failures = 0;
            self.last = look;
            return;
        }
        let pause = runs::doubled(LOOK_INTERVAL, self.failures, LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.last = Look::Vain { again_at: Instant::now() + pause };
    }

    /// A run was shown: to its end, after which the thread is looked at at once, or until it was
    /// lost.
    pub(super) fn shown(&mut self, is_over: bool) {
        self.failures = 0;
        self.due = is_over.then_some(Cause::Ended);
        self.last = Look::Vain { again_at: Instant::now() + LOOK_INTERVAL };
    }
}

// === impl Lifecycle ===

impl Lifecycle {
    /// Opens the bell where the server has one, and there are not too many.
    async fn open(
        &mut self,
        upstream: &Client,
        server: Option<ServerKind>,
        thread_id: &str,
        pace: &Pace,
    ) {
        if self.stream.is_some() || server != Some(ServerKind::Python) {
            return;
        }
        let Some(one_of_few) = pace.lifecycle() else { return };
        match tokio::time::timeout(BELL_TIMEOUT, upstream.thread_lifecycle(thread_id)).await {
            Ok(Ok(Some(body))) => {
                self.stream =
                    Some(Ringing { body, decoder: Decoder::new(), _one_of_few: one_of_few });
            }
            Ok(Ok(None)) => {}
            Ok(Err(error)) => tracing::debug!(thread_id, %error, "a thread has no bell"),
            Err(_) => tracing::debug!(thread_id, "a thread's bell does not answer"),
        }
    }

    /// Waits until a run begins or ends; for ever without a bell. One that is lost is opened again
    /// at the next look, which is not to come the sooner for it: a server may end each at once.
    async fn rings(&mut self) {
        let Some(Ringing { body, decoder, .. }) = &mut self.stream else {
            return std::future::pending().await;
        };
        let mut chunks = Vec::new();
        while let Ok(true) = body.chunks(&mut chunks).await {
            chunks.drain(..).for_each(|bytes| decoder.push(&bytes));
            match decoder.next_frame() {
                Ok(Some(_)) => return,
                Ok(None) => {}
                Err(_) => break,
            }
        }
        self.stream = None;
        std::future::pending::<()>().await;
    }
}
