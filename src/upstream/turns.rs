//! Turns at an upstream: how many requests of clients it gets at once, and in which order.
//!
//! ```text
//!  POST run ------------> starts --------------------------> 48 at once --+--> upstream
//!  connect, follow -----> looks, for clients --------+                    |
//!  changes, intervals --> checks, nobody waits ------+-----> 16 at once --+
//! ```
//! A turn is for all requests of one look or one step of a start, so that looks end one after the
//! other. Requests that are sent at once would all be late together. Repeated reads, parts of a list
//! and requests to a second address belong to the turn of the first request. Each line is served by
//! caller, in rotation.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::availability::OUTAGE_LOG_INTERVAL;
use super::{Error, UpstreamCredentials};
use crate::metrics::{Answer, Metrics};
use crate::sync::{Guard, Mutex};

/// How many starts may have a turn. Each plans a run, or sends it.
pub const MAX_START_TURNS: usize = 48;

/// How many looks may have a turn. A start's requests wait for these in LangGraph: at 50 requests a
/// second each waits for 0.3 s.
pub const MAX_LOOK_TURNS: usize = 16;

/// How many requests of clients may wait for turns of one kind. If there are more, the caller with the
/// most loses its newest.
const MAX_WAITING: usize = 2_048;

/// How long a request of a client waits for its turn. Proxies give up after 60 s.
pub const TURN_TIMEOUT: Duration = Duration::from_secs(30);

/// While looks for clients wait, every so many turns one is a check. Without it, clients that are
/// back would see no changes until all are back.
const CHECK_EVERY: u64 = 8;

/// The turns at one upstream.
#[derive(Debug)]
pub(super) struct UpstreamQueue {
    starts: Mutex<Pool>,
    looks: Mutex<Pool>,
    /// Cancelled when nothing waits any more.
    shutdown: OnceLock<CancellationToken>,
}

/// What a turn is for, and so where a request waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueClass {
    /// Starts of runs.
    Starts,
    /// Looks that a client waits for, or that show what has changed.
    Looks,
    /// Looks that no client waits for. They go after the others and are not refused: their number
    /// is limited where they begin.
    Checks,
}

/// The permission for the requests of one look, or of one step of a start.
pub(crate) struct QueuePermit {
    turns: Arc<UpstreamQueue>,
    line: QueueClass,
}

/// Whose turn it is. Callers whom LangGraph cannot distinguish may have different names here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct QueueKey {
    pub(super) access: UpstreamCredentials,
    pub(super) name: Option<Arc<str>>,
}

struct Pool {
    free: usize,
    /// How many turns have ended.
    ended: u64,
    /// The number of the next request that waits.
    next: u64,
    clients: Waiting,
    checks: Waiting,
    logged_at: Option<Instant>,
}

/// Requests that wait, by caller and in order.
#[derive(Default)]
struct Waiting {
    callers: HashMap<QueueKey, BTreeMap<u64, oneshot::Sender<QueuePermit>>>,
    /// The next caller first.
    order: VecDeque<QueueKey>,
    count: usize,
}

/// A request that waits. Dropping it removes it from its line.
struct Waiter<'a> {
    turns: &'a UpstreamQueue,
    line: QueueClass,
    key: QueueKey,
    number: u64,
}

/// Where a request is after it has asked for a turn.
enum WaiterState<'a> {
    QueuePermit(QueuePermit),
    Waiting(Waiter<'a>, oneshot::Receiver<QueuePermit>),
    /// Too many wait.
    None,
}

// === impl UpstreamQueue ===

impl UpstreamQueue {
    pub(super) fn new() -> Self {
        Self {
            starts: Mutex::new(Pool::new(MAX_START_TURNS)),
            looks: Mutex::new(Pool::new(MAX_LOOK_TURNS)),
            shutdown: OnceLock::new(),
        }
    }

    /// Sets when nothing waits any more. Later calls have no effect.
    pub(super) fn stop_waiting_at(&self, shutdown: &CancellationToken) {
        self.shutdown.get_or_init(|| shutdown.clone());
    }

    /// Waits for a turn. Fails with [`Error::Crowded`] if too many requests wait, after
    /// [`TURN_TIMEOUT`], and at shutdown. Cancel safe: a caller that leaves is not waited for.
    ///
    /// A task that has a turn must not wait for another one.
    pub(super) async fn turn(
        self: &Arc<Self>,
        line: QueueClass,
        key: QueueKey,
        metrics: &Metrics,
    ) -> Result<QueuePermit, Error> {
        let (waiter, granted) = match self.enter(line, key) {
            WaiterState::QueuePermit(turn) => return Ok(turn),
            WaiterState::Waiting(waiter, granted) => (waiter, granted),
            WaiterState::None => return Err(self.crowded(line, metrics)),
        };
        let waits = metrics.turn_waiting();
        let shutdown = self.shutdown.get().cloned().unwrap_or_default();
        let turn = shutdown.run_until_cancelled(async {
            match line {
                QueueClass::Checks => granted.await.ok(),
                QueueClass::Starts | QueueClass::Looks => {
                    tokio::time::timeout(TURN_TIMEOUT, granted).await.ok().and_then(Result::ok)
                }
            }
        });
        let turn = turn.await;
        drop((waiter, waits));
        match turn {
            Some(Some(turn)) => Ok(turn),
            Some(None) => Err(self.crowded(line, metrics)),
            None => Err(Error::Crowded),
        }
    }

    /// Takes a free turn, or a place in a line.
    fn enter(self: &Arc<Self>, line: QueueClass, key: QueueKey) -> WaiterState<'_> {
        let mut pool = self.pool(line);
        if pool.free > 0 {
            pool.free -= 1;
            drop(pool);
            return WaiterState::QueuePermit(QueuePermit { turns: Arc::clone(self), line });
        }
        let mut displaced = None;
        if line != QueueClass::Checks && pool.clients.count >= MAX_WAITING {
            displaced = pool.clients.displace(&key);
            if displaced.is_none() {
                return WaiterState::None;
            }
        }
        let (sender, granted) = oneshot::channel();
        let number = pool.next;
        pool.next += 1;
        pool.line(line).push(key.clone(), number, sender);
        drop(pool);
        drop(displaced);
        WaiterState::Waiting(Waiter { turns: self, line, key, number }, granted)
    }

    #[track_caller]
    fn pool(&self, line: QueueClass) -> Guard<'_, Pool> {
        match line {
            QueueClass::Starts => self.starts.lock(),
            QueueClass::Looks | QueueClass::Checks => self.looks.lock(),
        }
    }

    /// The error of a request that gets no turn, with a log line now and then.
    fn crowded(&self, line: QueueClass, metrics: &Metrics) -> Error {
        metrics.upstream_failed(Answer::Crowded);
        let now = Instant::now();
        let mut pool = self.pool(line);
        let is_due = pool.logged_at.is_none_or(|logged| now >= logged + OUTAGE_LOG_INTERVAL);
        if is_due {
            pool.logged_at = Some(now);
        }
        let waiting = pool.clients.count;
        drop(pool);
        if is_due {
            tracing::warn!(
                waiting,
                ?line,
                "requests of clients are refused, because too many wait for the LangGraph server"
            );
        }
        Error::Crowded
    }
}

// === impl Pool ===

impl Pool {
    fn new(free: usize) -> Self {
        let (clients, checks) = (Waiting::default(), Waiting::default());
        Self { free, ended: 0, next: 0, clients, checks, logged_at: None }
    }

    fn line(&mut self, line: QueueClass) -> &mut Waiting {
        match line {
            QueueClass::Starts | QueueClass::Looks => &mut self.clients,
            QueueClass::Checks => &mut self.checks,
        }
    }

    /// Takes the request that gets the next turn out of its queue. If none waits, the turn is free.
    fn next(&mut self) -> Option<(QueueClass, oneshot::Sender<QueuePermit>)> {
        let (clients, checks) = (QueueClass::Looks, QueueClass::Checks);
        self.ended += 1;
        let is_for_check = self.ended.is_multiple_of(CHECK_EVERY);
        let lines = if is_for_check { [checks, clients] } else { [clients, checks] };
        let next = lines.into_iter().find_map(|line| Some((line, self.line(line).pop()?)));
        if next.is_none() {
            self.free += 1;
        }
        next
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("free", &self.free).finish_non_exhaustive()
    }
}

// === impl Waiting ===

impl Waiting {
    fn push(&mut self, key: QueueKey, number: u64, sender: oneshot::Sender<QueuePermit>) {
        let requests = self.callers.entry(key.clone()).or_default();
        if requests.is_empty() {
            self.order.push_back(key);
        }
        requests.insert(number, sender);
        self.count += 1;
    }

    /// Takes the oldest request of the next caller.
    fn pop(&mut self) -> Option<oneshot::Sender<QueuePermit>> {
        let key = self.order.pop_front()?;
        let requests = self.callers.get_mut(&key)?;
        let (_, sender) = requests.pop_first()?;
        self.count -= 1;
        if requests.is_empty() {
            self.callers.remove(&key);
        } else {
            self.order.push_back(key);
        }
        Some(sender)
    }

    /// Takes a request out of the full line, in favour of one of this caller: the newest of the
    /// caller that has the most requests waiting. `None` if that would leave this caller with as
    /// many. So one caller cannot keep others out.
    fn displace(&mut self, key: &QueueKey) -> Option<oneshot::Sender<QueuePermit>> {
        let own = self.callers.get(key).map_or(0, BTreeMap::len);
        let most = self.callers.values_mut().max_by_key(|requests| requests.len())?;
        if most.len() <= own + 1 {
            return None;
        }
        self.count -= 1;
        most.pop_last().map(|(_, sender)| sender)
    }

    /// Removes a request, if it still waits.
    fn remove(&mut self, key: &QueueKey, number: u64) {
        let Some(requests) = self.callers.get_mut(key) else { return };
        if requests.remove(&number).is_none() {
            return;
        }
        self.count -= 1;
        if requests.is_empty() {
            self.callers.remove(key);
            self.order.retain(|other| other != key);
        }
    }
}

// === impl Waiter ===

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.turns.pool(self.line).line(self.line).remove(&self.key, self.number);
    }
}

// === impl QueuePermit ===

impl Drop for QueuePermit {
    fn drop(&mut self) {
        let next = self.turns.pool(self.line).next();
        let Some((line, sender)) = next else { return };
        let line = if self.line == QueueClass::Starts { QueueClass::Starts } else { line };
        // If the caller leaves at this moment, the turn comes back and is dropped, which passes it
        // on.
        drop(sender.send(Self { turns: Arc::clone(&self.turns), line }));
    }
}

impl fmt::Debug for QueuePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Turn").field(&self.line).finish()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;
    use crate::upstream::Client;

    fn key(name: &str) -> QueueKey {
        let client = Client::new("http://h:1".parse().unwrap(), None).unwrap();
        QueueKey { access: client.access(), name: Some(name.into()) }
    }

    fn full() -> (Arc<UpstreamQueue>, Vec<QueuePermit>) {
        let turns = Arc::new(UpstreamQueue::new());
        let metrics = Metrics::default();
        let taken = (0..MAX_LOOK_TURNS).map(|_| {
            turns.turn(QueueClass::Looks, key("first"), &metrics).now_or_never().unwrap().unwrap()
        });
        (Arc::clone(&turns), taken.collect())
    }

    #[tokio::test(start_paused = true)]
    async fn beyond_the_bound_the_caller_with_the_most_is_refused_at_once_and_a_check_waits() {
        let (turns, taken) = full();
        let (one, metrics) = (key("one"), Metrics::default());
        let mut waiting: Vec<_> =
            (0..MAX_WAITING).map(|_| turns.enter(QueueClass::Looks, one.clone())).collect();
        let refused = turns.turn(QueueClass::Looks, one.clone(), &metrics).now_or_never();
        assert_eq!(refused.unwrap().unwrap_err(), Error::Crowded);
        assert_eq!(turns.looks.lock().clients.count, MAX_WAITING);
        let other = turns.enter(QueueClass::Looks, key("other"));
        assert!(matches!(other, WaiterState::Waiting(..)));
        assert_eq!(turns.looks.lock().clients.count, MAX_WAITING);
        let Some(WaiterState::Waiting(_, displaced)) = waiting.last_mut() else { panic!() };
        assert!(displaced.try_recv().is_err_and(|error| error == TryRecvError::Closed));
        waiting.push(other);
        assert!(turns.turn(QueueClass::Checks, one.clone(), &metrics).now_or_never().is_none());
        let start = turns.turn(QueueClass::Starts, one, &metrics).now_or_never();
        start.unwrap().unwrap();
        drop(waiting);
        let again = turns.turn(QueueClass::Looks, key("other"), &metrics);
        let (again, ()) = tokio::join!(again, async { drop(taken) });
        again.unwrap();
        assert_eq!(turns.looks.lock().free, MAX_LOOK_TURNS);
        assert!(turns.looks.lock().clients.callers.is_empty());
    }

    #[tokio::test]
    async fn nothing_waits_after_the_shutdown() {
        let (turns, _taken) = full();
        let (shutdown, metrics) = (CancellationToken::new(), Metrics::default());
        turns.stop_waiting_at(&shutdown);
        for line in [QueueClass::Looks, QueueClass::Checks] {
            let waiting = turns.turn(line, key("one"), &metrics);
            let (turn, ()) = tokio::join!(waiting, async { shutdown.cancel() });
            assert_eq!(turn.unwrap_err(), Error::Crowded);
        }
        assert!(turns.looks.lock().checks.callers.is_empty());
    }

    #[tokio::test]
    async fn every_eighth_turn_is_a_check_while_looks_wait() {
        let (turns, mut taken) = full();
        let lines = [QueueClass::Looks, QueueClass::Checks];
        let mut waiting: Vec<_> = lines
            .iter()
            .flat_map(|line| (0..MAX_LOOK_TURNS).map(|_| (*line, turns.enter(*line, key("one")))))
            .collect();
        let mut order = Vec::new();
        while let Some(turn) = taken.pop() {
            drop(turn);
            let at = waiting.iter_mut().position(|(_, place)| match place {
                WaiterState::Waiting(_, granted) => granted.try_recv().is_ok_and(|turn| {
                    // The turn is not over.
                    std::mem::forget(turn);
                    true
                }),
                WaiterState::QueuePermit(_) | WaiterState::None => false,
            });
            order.push(waiting.remove(at.unwrap()).0);
        }
        let checks = order.iter().filter(|line| **line == QueueClass::Checks).count();
        assert_eq!((order.len(), checks, order[7]), (MAX_LOOK_TURNS, 2, QueueClass::Checks));
    }
}
