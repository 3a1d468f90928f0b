//! How often an upstream is asked for what no client waits for: the looks at followed threads.
//!
//! ```text
//!   polls --------+
//!   news ---------+--> head --> gate --> 50 a second --> 64 at a time --> upstream
//!   intervals ----+              ^                                           |
//!   slow, 5/s ----+              +---- closed by refusals, opened by answers +
//! ```
//! In each lane the looks go one after the other, and the first of each lane takes part in the
//! next draw: ten thousand threads that are due hold up neither a poll nor the look at a thread
//! that has moved. A look for a client that has just come waits for nobody, but what becomes of it
//! is heard too.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::metrics::Metrics;
use crate::runs;
use crate::sync::Mutex;
use crate::upstream::{Client, Error};

/// How often a followed thread is looked at, or polled with others: its runs, for a server that
/// does not tell when one begins, and its state, which may change without a run.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// How many looks begin in a second, and at once after a pause: one core of a LangGraph server
/// answers some hundred lists of runs a second, and has other work.
const LOOKS_PER_SECOND: u32 = 50;

/// How many of them are slow ones, which find something only where a poll has missed it. Each is
/// two requests.
const SLOW_LOOKS_PER_SECOND: u32 = 5;

/// How many looks are under way: more would only wait for each other in a server that is slow.
const MAX_LOOKS: usize = 64;

/// How many lifecycle streams are open: each is a connection of its own, for one thread.
const MAX_LIFECYCLES: usize = 128;

/// The pause after the first refusal; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(2);

/// The longest pause between two attempts to reach a server that is away: clients see at most this
/// much later that it is back.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What a server may ask for with `Retry-After`. Less than the shortest would be no pause, and more
/// than the longest is a mistake, since followers see nothing meanwhile.
const SHORTEST_ORDER: Duration = Duration::from_secs(1);
const LONGEST_ORDER: Duration = Duration::from_mins(5);

/// How many looks in a row fail in a way that may be one thread's own fault, until it is taken for
/// the server's.
const MAX_DOUBTS: u32 = 3;

/// For how long a server that cannot be polled is not: it may be another one after a deployment.
const UNPOLLABLE_FOR: Duration = Duration::from_mins(10);

/// The paces of all upstreams, by base URL. The configuration bounds them.
#[derive(Debug, Default)]
pub(super) struct Paces(Mutex<HashMap<String, Arc<Pace>>>);

/// The pace of one upstream.
pub(super) struct Pace {
    metrics: Metrics,
    /// Each lets its first look through to the head.
    lanes: [Semaphore; Lane::COUNT],
    /// Held by the look that goes next.
    head: Semaphore,
    looks: Arc<Semaphore>,
    lifecycles: Arc<Semaphore>,
    state: Mutex<State>,
    /// The gate has opened or closed, or can be tried again.
    changed: Notify,
}

/// Who waits behind whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Polls: each stands for many looks.
    Polls,
    /// Looks at threads on which something has happened.
    News,
    /// Looks at threads of which nothing is known.
    Intervals,
    /// Looks at threads that rest, by a poll.
    Slow,
}

/// A look under way. Dropped before its answer, it counts as not made.
#[derive(Debug)]
pub(super) struct Turn {
    pace: Arc<Pace>,
    pass: Pass,
    is_heard: bool,
    _look: Option<OwnedSemaphorePermit>,
}

/// What an answer says of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// It works, whatever it has answered.
    Up,
    /// It has failed, perhaps at this request alone.
    Doubtful,
    /// It is out of reach, or wants to be left alone.
    Away,
}

#[derive(Debug)]
struct State {
    looks: Bucket,
    slow: Bucket,
    gate: Gate,
    unpollable_until: Option<Instant>,
}

/// So many in a second, and at once as many after a pause.
#[derive(Debug)]
struct Bucket {
    every: Duration,
    burst: u32,
    /// When it will be full again.
    full_at: Instant,
}

/// Whether looks go up.
#[derive(Debug, Default)]
struct Gate {
    /// How often it has opened and closed. What was asked before the last time says nothing now.
    turns: u64,
    /// How many looks in a row have failed while it was open.
    doubts: u32,
    closed: Option<Closed>,
}

#[derive(Debug)]
struct Closed {
    until: Instant,
    /// How many attempts have failed in a row.
    failures: u32,
    /// The server has said until when. Then no answer to somebody else opens it before.
    is_ordered: bool,
    /// The look that tries whether the server is back is under way.
    is_tried: bool,
}

/// What a look was let through by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pass {
    turns: u64,
    is_trial: bool,
}

/// What a look waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// This time, or a change of the gate.
    Until(Instant),
    /// The answer to the look that tries.
    Trial,
}

// === impl Paces ===

impl Paces {
    pub(super) fn of(&self, upstream: &Client, metrics: &Metrics) -> Arc<Pace> {
        let pace = || Arc::new(Pace::new(metrics.clone(), Instant::now()));
        let mut paces = self.0.lock();
        Arc::clone(paces.entry(upstream.base().to_string()).or_insert_with(pace))
    }
}

// === impl Pace ===

impl Pace {
    fn new(metrics: Metrics, now: Instant) -> Self {
        Self {
            metrics,
            lanes: [(); Lane::COUNT].map(|()| Semaphore::new(1)),
            head: Semaphore::new(1),
            looks: Arc::new(Semaphore::new(MAX_LOOKS)),
            lifecycles: Arc::new(Semaphore::new(MAX_LIFECYCLES)),
            state: Mutex::new(State {
                looks: Bucket::new(LOOKS_PER_SECOND, now),
                slow: Bucket::new(SLOW_LOOKS_PER_SECOND, now),
                gate: Gate::default(),
                unpollable_until: None,
            }),
            changed: Notify::new(),
        }
    }

    /// The turn of a look that no client waits for. May be dropped while it waits.
    pub(super) async fn turn(self: &Arc<Self>, lane: Lane) -> Turn {
        let _waits = self.metrics.look_waiting();
        let _first = self.first_of(lane).await;
        if lane == Lane::Slow {
            while let Err(at) = self.take_slow() {
                tokio::time::sleep_until(at).await;
            }
        }
        let _head = self.head.acquire().await;
        let look = Arc::clone(&self.looks).acquire_owned().await.ok();
        loop {
            match self.pass() {
                Ok(pass) => {
                    return Turn { pace: Arc::clone(self), pass, is_heard: false, _look: look };
                }
                Err(Wait::Until(at)) => {
                    let _ = tokio::time::timeout_at(at, self.changed.notified()).await;
                }
                Err(Wait::Trial) => self.changed.notified().await,
            }
        }
    }

    /// The turn of a look that a client waits for: now.
    pub(super) fn at_once(self: &Arc<Self>) -> Turn {
        let turns = self.state.lock().gate.turns;
        let pass = Pass { turns, is_trial: false };
        Turn { pace: Arc::clone(self), pass, is_heard: false, _look: None }
    }

    /// The right to one more lifecycle stream, if there is one left.
    pub(super) fn lifecycle(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.lifecycles).try_acquire_owned().ok()
    }

    /// The server cannot say of many threads at once which have moved.
    pub(super) fn is_unpollable(&self) {
        self.state.lock().unpollable_until = Some(Instant::now() + UNPOLLABLE_FOR);
    }

    /// Until when the server is not polled, if it cannot be.
    pub(super) fn unpollable_until(&self) -> Option<Instant> {
        self.state.lock().unpollable_until.filter(|until| *until > Instant::now())
    }

    /// Waits to be the first of its lane. The semaphores are never closed, so this never fails.
    async fn first_of(&self, lane: Lane) -> Option<SemaphorePermit<'_>> {
        self.lanes.get(lane as usize)?.acquire().await.ok()
    }

    fn take_slow(&self) -> Result<(), Instant> {
        self.state.lock().slow.take(Instant::now())
    }

    fn pass(&self) -> Result<Pass, Wait> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let pass = state.gate.pass(now)?;
        if !pass.is_trial {
            state.looks.take(now).map_err(Wait::Until)?;
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

// === impl Turn ===

impl Turn {
    /// The server has answered so.
    pub(super) fn heard<T>(mut self, answer: &Result<T, Error>) {
        self.is_heard = true;
        let (health, order) = match answer {
            Ok(_) => (Health::Up, None),
            Err(error) => (Health::of(error), error.retry_after()),
        };
        let now = Instant::now();
        self.pace.state.lock().gate.heard(self.pass, health, order, now);
        self.pace.changed.notify_one();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.pass.is_trial && !self.is_heard {
            self.pace.state.lock().gate.untried(self.pass);
            self.pace.changed.notify_one();
        }
    }
}

// === impl Health ===

impl Health {
    pub(super) fn of(error: &Error) -> Self {
        match error {
            Error::Unreachable { .. } | Error::Status { code: 429 | 502..=504, .. } => Self::Away,
            Error::Status { code: 500.., .. }
            | Error::Timeout { .. }
            | Error::Interrupted { .. } => Self::Doubtful,
            Error::Status { .. }
            | Error::NotAnEventStream { .. }
            | Error::NotUnderstood { .. }
            | Error::TooLarge { .. } => Self::Up,
        }
    }
}

// === impl Bucket ===

impl Bucket {
    fn new(per_second: u32, now: Instant) -> Self {
        Self { every: Duration::from_secs(1) / per_second, burst: per_second, full_at: now }
    }

    /// Takes one; else when there will be one.
    fn take(&mut self, now: Instant) -> Result<(), Instant> {
        let full_at = self.full_at.max(now) + self.every;
        let there_at = full_at - self.every * self.burst;
        if there_at > now {
            return Err(there_at);
        }
        self.full_at = full_at;
        Ok(())
    }
}

// === impl Gate ===

impl Gate {
    /// Lets a look through. While the gate is closed that is one, when it is due.
    fn pass(&mut self, now: Instant) -> Result<Pass, Wait> {
        let is_trial = match &mut self.closed {
            None => false,
            Some(closed) if closed.is_tried => return Err(Wait::Trial),
            Some(closed) if closed.until > now => return Err(Wait::Until(closed.until)),
            Some(closed) => {
                closed.is_tried = true;
                true
            }
        };
        Ok(Pass { turns: self.turns, is_trial })
    }

    /// A look that was let through has been answered.
    fn heard(&mut self, pass: Pass, health: Health, order: Option<Duration>, now: Instant) {
        let is_news = pass.turns == self.turns;
        let order = order.filter(|_| health != Health::Up);
        match (&mut self.closed, health) {
            (None, Health::Up) if is_news => self.doubts = 0,
            (None, Health::Doubtful) if is_news => {
                self.doubts += 1;
                if self.doubts >= MAX_DOUBTS || order.is_some() {
                    self.close(0, order, now);
                }
            }
            (None, Health::Away) if is_news => self.close(0, order, now),
            (Some(closed), Health::Up) if is_news && (pass.is_trial || !closed.is_ordered) => {
                self.closed = None;
                self.doubts = 0;
                self.turns += 1;
            }
            (Some(closed), Health::Doubtful | Health::Away) if is_news && pass.is_trial => {
                let failures = closed.failures.saturating_add(1);
                self.close(failures, order, now);
            }
            // Others that were under way when it closed, and clients that try by themselves.
            (Some(closed), _) => {
                if let Some(order) = order {
                    closed.until = closed.until.max(now + bounded(order));
                    closed.is_ordered = true;
                }
            }
            (None, _) => {}
        }
    }

    fn close(&mut self, failures: u32, order: Option<Duration>, now: Instant) {
        let pause = runs::doubled(FIRST_PAUSE, failures, LONGEST_PAUSE);
        let until = now + order.map_or(pause, bounded);
        let is_ordered = order.is_some();
        self.closed = Some(Closed { until, failures, is_ordered, is_tried: false });
        self.turns += 1;
    }

    /// The look that was to try was not made.
    fn untried(&mut self, pass: Pass) {
        if let Some(closed) = self.closed.as_mut().filter(|_| pass.turns == self.turns) {
            closed.is_tried = false;
        }
    }
}

fn bounded(order: Duration) -> Duration {
    order.clamp(SHORTEST_ORDER, LONGEST_ORDER)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// How many looks a bucket lets through in this time, asked all the time.
    fn taken(bucket: &mut Bucket, from: Instant, time: Duration) -> u32 {
        let (mut now, mut count) = (from, 0);
        while now < from + time {
            match bucket.take(now) {
                Ok(()) => count += 1,
                Err(at) => now = at,
            }
        }
        count
    }

    #[test]
    fn a_bucket_lets_so_many_through_in_a_second_and_as_many_at_once() {
        let now = Instant::now();
        let mut bucket = Bucket::new(50, now);
        assert_eq!(taken(&mut bucket, now, SECOND / 1000), 50);
        assert_eq!(taken(&mut bucket, now + SECOND / 1000, SECOND * 10), 500);
        // A long pause leaves no more than a burst.
        assert_eq!(taken(&mut bucket, now + 100 * SECOND, SECOND / 1000), 50);
    }

    fn open(gate: &mut Gate, now: Instant) -> Pass {
        let pass = gate.pass(now).unwrap();
        assert!(!pass.is_trial);
        pass
    }

    fn until(gate: &mut Gate, now: Instant) -> Duration {
        match gate.pass(now) {
            Err(Wait::Until(at)) => at - now,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_tries_whether_the_server_is_back_ever_less_often_and_not_two_at_once() {
        let (mut gate, mut now) = (Gate::default(), Instant::now());
        let pass = open(&mut gate, now);
        gate.heard(pass, Health::Away, None, now);
        for whole in [2, 4, 8, 16, 30, 30].map(Duration::from_secs) {
            let pause = until(&mut gate, now);
            assert!((whole / 2..=whole).contains(&pause), "{pause:?} of {whole:?}");
            now += pause;
            let trial = gate.pass(now).unwrap();
            assert!(trial.is_trial);
            assert_eq!(gate.pass(now), Err(Wait::Trial));
            // One that was not made leaves it to the next.
            gate.untried(trial);
            let trial = gate.pass(now).unwrap();
            gate.heard(trial, Health::Away, None, now);
        }
        now += LONGEST_PAUSE;
        let trial = gate.pass(now).unwrap();
        gate.heard(trial, Health::Up, None, now);
        open(&mut gate, now);
    }

    #[test]
    fn an_order_is_obeyed_within_limits_whoever_gets_it_and_whatever_others_hear() {
        let (mut gate, now) = (Gate::default(), Instant::now());
        let [first, second, third] = [(); 3].map(|()| open(&mut gate, now));
        gate.heard(first, Health::Away, None, now);
        gate.heard(second, Health::Away, Some(30 * SECOND), now);
        // It was asked before.
        gate.heard(third, Health::Up, None, now);
        assert_eq!(until(&mut gate, now), 30 * SECOND);
        // A client that asks by itself is answered.
        let client = Pass { turns: gate.turns, is_trial: false };
        gate.heard(client, Health::Up, None, now);
        assert_eq!(until(&mut gate, now), 30 * SECOND);
        for (order, obeyed) in [(Duration::ZERO, SHORTEST_ORDER), (SECOND * 10_000, LONGEST_ORDER)]
        {
            let (mut gate, now) = (Gate::default(), Instant::now());
            let pass = open(&mut gate, now);
            gate.heard(pass, Health::Away, Some(order), now);
            assert_eq!(until(&mut gate, now), obeyed);
        }
    }

    #[test]
    fn a_client_that_is_answered_opens_what_nobody_has_ordered() {
        let (mut gate, now) = (Gate::default(), Instant::now());
        let pass = open(&mut gate, now);
        gate.heard(pass, Health::Away, None, now);
        let pause = until(&mut gate, now);
        let client = Pass { turns: gate.turns, is_trial: false };
        gate.heard(client, Health::Away, None, now);
        assert_eq!(until(&mut gate, now), pause, "a client's failure is no trial");
        gate.heard(client, Health::Up, None, now);
        open(&mut gate, now);
    }

    #[test]
    fn one_thread_that_fails_each_time_holds_up_no_others() {
        let (mut gate, now) = (Gate::default(), Instant::now());
        for _ in 0..10 {
            for health in [Health::Doubtful, Health::Doubtful, Health::Up] {
                let pass = open(&mut gate, now);
                gate.heard(pass, health, None, now);
            }
        }
        for _ in 0..MAX_DOUBTS {
            let pass = open(&mut gate, now);
            gate.heard(pass, Health::Doubtful, None, now);
        }
        assert!(until(&mut gate, now) <= FIRST_PAUSE);
    }

    #[test]
    fn what_concerns_one_who_asks_says_nothing_of_the_server() {
        let refused = |code| Error::Status { code, detail: String::new(), retry_after: None };
        for code in [400, 401, 403, 404, 405, 409, 422] {
            assert_eq!(Health::of(&refused(code)), Health::Up, "{code}");
        }
        for code in [429, 502, 503, 504] {
            assert_eq!(Health::of(&refused(code)), Health::Away, "{code}");
        }
        for code in [500, 501, 599] {
            assert_eq!(Health::of(&refused(code)), Health::Doubtful, "{code}");
        }
    }
}
