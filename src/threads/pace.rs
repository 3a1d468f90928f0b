//! The rate of requests to an upstream that no client waits for: the looks at followed threads.
//!
//! ```text
//!   polls --------+
//!   changed ------+--> head --> gate --> 50 a second --> 64 at a time --> upstream
//!   intervals ----+              ^                                           |
//!   slow ---------+              +---- closed by failures, opened by answers +
//! ```
//! The looks of a lane go in order. The first look of each lane competes for the head, so that ten
//! thousand looks that are due delay neither a poll nor the look at a thread that has changed. A
//! look for a client that has just connected does not wait, but its result counts too.
//!
//! The slow looks have a limit of their own. Of each caller's threads only one at a time waits in the
//! lane. So a caller with thousands of followed threads delays another one by a single look in each
//! round.
//!
//! - `bucket`: the limits per second. `gate`: the pause while the server is unavailable.

mod bucket;
mod gate;

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::metrics::Metrics;
use crate::sync::Mutex;
use crate::upstream::{Client, Error, Seed};
use bucket::Bucket;
pub(super) use gate::Health;
use gate::{Blocked, Gate, Pass};

/// How often a followed thread is looked at, or polled with others. A server may not report when a
/// run begins, and the state may change without a run.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// How many looks may begin in a second, and at once after a pause. One core of a LangGraph server
/// answers some hundred lists of runs a second, and has other work.
const LOOKS_PER_SECOND: u32 = 50;

/// How many states of idle threads are read in a second from one upstream, unless configured
/// otherwise, and at once after a pause: no poll shows a change without the API. One core of a
/// LangGraph server reads about a hundred states of 10 kB a second.
pub const DEFAULT_STATE_READS_PER_SECOND: NonZeroU32 = NonZeroU32::MIN.saturating_add(9);

/// How many looks may be in progress. In a slow server, more would only wait for each other.
const MAX_LOOKS: usize = 64;

/// How many lifecycle streams may be open. Each needs a connection for one thread.
const MAX_LIFECYCLES: usize = 128;

/// How long a method of polls that a server rejects is not tried again. A deployment may replace
/// the server.
const UNSUPPORTED_FOR: Duration = Duration::from_mins(10);

/// The paces of all upstreams.
#[derive(Debug)]
pub(super) struct Paces {
    /// By base URL. The number of configured upstreams bounds them.
    paces: Mutex<HashMap<String, Arc<Pace>>>,
    state_reads_per_second: NonZeroU32,
}

/// The pace of one upstream.
pub(super) struct Pace {
    metrics: Metrics,
    /// Each is held by the first look of its lane.
    lanes: [Semaphore; Lane::COUNT],
    /// Held by the look that goes next.
    head: Semaphore,
    looks: Arc<Semaphore>,
    lifecycles: Arc<Semaphore>,
    state: Mutex<PaceState>,
    /// Wakes the head when the gate has opened or closed, or may be tried again.
    changed: Notify,
}

/// The queue in which a look waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Polls. Each replaces many looks.
    Polls,
    /// Looks at threads that have changed.
    Changed,
    /// Looks at threads that are not polled.
    Intervals,
    /// Looks at threads that have not changed according to polls: see
    /// [`wait_to_read`](Pace::wait_to_read).
    Slow,
}

/// The permission for one look. If it is dropped before [`record`](Self::record), the look counts
/// as not made.
#[derive(Debug)]
pub(super) struct Permit {
    pace: Arc<Pace>,
    pass: Pass,
    is_recorded: bool,
    _look: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
struct PaceState {
    looks: Bucket,
    slow: Bucket,
    gate: Gate,
    polls: PollMethod,
}

/// How one request finds out which of many threads have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PollMethod {
    /// It asks for the threads by their ids.
    #[default]
    ByIds,
    /// It asks for the threads that changed last. A thread that is not among them has not changed.
    Newest {
        /// When the server may be asked by ids again.
        until: Instant,
    },
    /// The server supports neither.
    Unsupported {
        /// When it may be asked by ids again.
        until: Instant,
    },
}

// === impl Paces ===

impl Paces {
    pub(super) fn new(state_reads_per_second: NonZeroU32) -> Self {
        Self { paces: Mutex::default(), state_reads_per_second }
    }

    pub(super) fn of(&self, upstream: &Client, metrics: &Metrics) -> Arc<Pace> {
        let slow = self.state_reads_per_second;
        let pace = || Arc::new(Pace::new(metrics.clone(), slow, Instant::now()));
        let mut paces = self.paces.lock();
        Arc::clone(paces.entry(upstream.base().to_string()).or_insert_with(pace))
    }
}

// === impl Pace ===

impl Pace {
    fn new(metrics: Metrics, slow: NonZeroU32, now: Instant) -> Self {
        Self {
            metrics,
            lanes: [(); Lane::COUNT].map(|()| Semaphore::new(1)),
            head: Semaphore::new(1),
            looks: Arc::new(Semaphore::new(MAX_LOOKS)),
            lifecycles: Arc::new(Semaphore::new(MAX_LIFECYCLES)),
            state: Mutex::new(PaceState {
                looks: Bucket::new(LOOKS_PER_SECOND, now),
                slow: Bucket::new(slow.get(), now),
                gate: Gate::new(Seed::random()),
                polls: PollMethod::default(),
            }),
            changed: Notify::new(),
        }
    }

    /// Waits for the permission for a look. Cancel safe.
    pub(super) async fn wait(self: &Arc<Self>, lane: Lane) -> Permit {
        // Slow looks always wait, and say nothing about the load.
        let _waits = (lane != Lane::Slow).then(|| self.metrics.look_waiting());
        let _first = self.first_of(lane).await;
        if lane == Lane::Slow {
            while let Err(at) = self.take_slow() {
                tokio::time::sleep_until(at).await;
            }
        }
        let _head = self.head.acquire().await;
        let look = Arc::clone(&self.looks).acquire_owned().await.ok();
        loop {
            match self.pass(lane) {
                Ok(pass) => {
                    let pace = Arc::clone(self);
                    return Permit { pace, pass, is_recorded: false, _look: look };
                }
                Err(Blocked::Until(at)) => {
                    let _ = tokio::time::timeout_at(at, self.changed.notified()).await;
                }
                Err(Blocked::ByTrial) => self.changed.notified().await,
            }
        }
    }

    /// Waits for the permission for a slow look, after the other threads of its caller. Cancel safe.
    pub(super) async fn wait_to_read(self: &Arc<Self>, of_caller: &Semaphore) -> Permit {
        // The semaphore is never closed.
        let _next = of_caller.acquire().await;
        self.wait(Lane::Slow).await
    }

    /// The permission for a look that a client waits for.
    pub(super) fn at_once(self: &Arc<Self>) -> Permit {
        let pass = self.state.lock().gate.current_pass();
        Permit { pace: Arc::clone(self), pass, is_recorded: false, _look: None }
    }

    /// The permission for one more lifecycle stream. `None` if too many are open.
    pub(super) fn lifecycle(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.lifecycles).try_acquire_owned().ok()
    }

    /// How threads are polled.
    pub(super) fn poll_method(&self) -> PollMethod {
        match self.state.lock().polls {
            PollMethod::Newest { until } | PollMethod::Unsupported { until }
                if until <= Instant::now() =>
            {
                PollMethod::ByIds
            }
            method @ (PollMethod::ByIds
            | PollMethod::Newest { .. }
            | PollMethod::Unsupported { .. }) => method,
        }
    }

    /// Notes that the server does not support a method of polls. Returns the next one.
    pub(super) fn note_unsupported(&self, method: PollMethod) -> PollMethod {
        let until = Instant::now() + UNSUPPORTED_FOR;
        let next = match method {
            PollMethod::ByIds => PollMethod::Newest { until },
            PollMethod::Newest { .. } | PollMethod::Unsupported { .. } => {
                PollMethod::Unsupported { until }
            }
        };
        self.state.lock().polls = next;
        next
    }

    /// Waits to be the first of a lane. The semaphores are never closed, so this never fails.
    async fn first_of(&self, lane: Lane) -> Option<SemaphorePermit<'_>> {
        self.lanes.get(lane as usize)?.acquire().await.ok()
    }

    fn take_slow(&self) -> Result<(), Instant> {
        self.state.lock().slow.take(Instant::now())
    }

    fn pass(&self, lane: Lane) -> Result<Pass, Blocked> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let pass = state.gate.pass(now)?;
        // A slow look has taken its own token.
        if !pass.is_trial && lane != Lane::Slow {
            state.looks.take(now).map_err(Blocked::Until)?;
        }
        Ok(pass)
    }
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pace")
    }
}

// === impl Lane ===

impl Lane {
    const COUNT: usize = 4;
}

// === impl Permit ===

impl Permit {
    /// Records the result of the look.
    pub(super) fn record<T>(mut self, answer: &Result<T, Error>) {
        self.is_recorded = true;
        let (health, retry_after) = match answer {
            Ok(_) => (Health::Up, None),
            Err(error) => (Health::of(error), error.retry_after()),
        };
        let now = Instant::now();
        self.pace.state.lock().gate.record(self.pass, health, retry_after, now);
        self.pace.changed.notify_one();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.pass.is_trial && !self.is_recorded {
            self.pace.state.lock().gate.cancel_trial(self.pass);
            self.pace.changed.notify_one();
        }
    }
}
