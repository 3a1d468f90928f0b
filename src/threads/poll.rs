//! Which of many followed threads have moved: one request for a thousand of them.
//!
//! ```text
//!   watcher --+                                     +--> rests, busy, moved, missing
//!   watcher --+-- seats of one caller -- Poller ----+    in the seat of each watcher
//!   watcher --+      (8 and more)       every 2 s
//! ```
//! A poll goes up with the credentials of its caller alone, and its answer reaches the watchers
//! that look with these credentials. Nothing of it is sent to anybody: each watcher looks by
//! itself. So a server that lies in a list can make a look late or needless, and show nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use super::Shared;
use super::pace::{Health, LOOK_INTERVAL, Lane, Pace};
use crate::metrics::LookReason;
use crate::sync::Mutex;
use crate::upstream::{Access, BaseUrl, Client, Error, MAX_THREAD_PAGE};
use threadway_translate::langgraph::{ThreadMark, ThreadStatus};

/// How many threads of one caller are followed before they are polled. For fewer, looking at each
/// costs as little as the polls and what follows from them, and sees more.
const MIN_POLLED: usize = 8;

/// How many polls fail in a row, while the server may work, until each thread is looked at for
/// itself.
const MAX_FAILED_POLLS: u32 = 3;

/// For how long a caller is not polled for whom the server refuses it: what it may do may change.
const REFUSED_FOR: Duration = Duration::from_mins(1);

/// The threads that are followed, by who looks at them.
#[derive(Debug, Default)]
pub(super) struct Polls(Mutex<Groups>);

#[derive(Debug, Default)]
struct Groups {
    groups: HashMap<Access, Group>,
    /// The number of the next seat or poller.
    next: u64,
}

/// The threads that are looked at with the credentials of one caller.
#[derive(Debug)]
struct Group {
    /// The upstream as this caller has called it last.
    upstream: Client,
    seats: BTreeMap<u64, Seat>,
    /// The task that polls them, if there is one.
    poller: Option<u64>,
}

/// A thread, and who wants to hear of it.
#[derive(Clone, Debug)]
struct Seat {
    thread_id: Arc<str>,
    news: watch::Sender<News>,
}

/// What polls have said of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    pub(super) state: PollState,
    /// How often it has moved.
    pub(super) moves: u64,
}

/// How a thread was in the last poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PollState {
    /// It is not polled.
    #[default]
    Unpolled,
    /// It rests. What came before this time no poll has seen.
    Resting(Instant),
    /// A run is under way, or waits for its turn: when it gets it, no poll sees.
    Busy,
    /// It was not in the answer: it is not there, or is not shown to this caller.
    Missing,
}

/// A watcher's seat.
#[derive(Debug)]
pub(super) struct Polled {
    shared: Arc<Shared>,
    /// Where the seat is; `None` for a thread that cannot be polled.
    at: Option<(Access, u64)>,
    seat: Seat,
}

/// The task that polls the threads of one caller.
struct Poller {
    shared: Arc<Shared>,
    pace: Arc<Pace>,
    base: BaseUrl,
    access: Access,
    number: u64,
    /// The last mark of each seat.
    marks: HashMap<u64, String>,
    /// How many polls in a row have failed while the server may work.
    failed: u32,
}

/// Why a poller does not go on as usual.
enum Halt {
    /// Too few threads are left.
    Few,
    /// There is no telling; the next poll may do.
    Failed(Health),
    /// The server could not do it, and is not asked before this time.
    Paused(Instant),
    /// The server refuses this caller.
    Refused,
    /// The server cannot do it.
    Unpollable,
}

// === impl Polls ===

impl Polls {
    /// Gives a seat a place among those of the one who calls; and the poller that is to be started.
    fn seat(&self, upstream: &Client, seat: Seat) -> ((Access, u64), Option<u64>) {
        let access = upstream.access();
        let mut groups = self.0.lock();
        let (number, poller) = (groups.next, groups.next + 1);
        groups.next += 2;
        let group = groups.groups.entry(access.clone()).or_insert_with(|| Group {
            upstream: upstream.clone(),
            seats: BTreeMap::new(),
            poller: None,
        });
        group.upstream = upstream.clone();
        group.seats.insert(number, seat);
        let is_due = group.poller.is_none() && group.seats.len() >= MIN_POLLED;
        if is_due {
            group.poller = Some(poller);
        }
        ((access, number), is_due.then_some(poller))
    }

    /// Takes the newest credentials of the caller of a group; whether they are the caller's.
    fn renew(&self, access: &Access, upstream: &Client) -> bool {
        let is_same = *access == upstream.access();
        if is_same && let Some(group) = self.0.lock().groups.get_mut(access) {
            group.upstream = upstream.clone();
        }
        is_same
    }

    fn leave(&self, access: &Access, number: u64) {
        let mut groups = self.0.lock();
        if let Some(group) = groups.groups.get_mut(access) {
            group.seats.remove(&number);
            if group.seats.is_empty() {
                groups.groups.remove(access);
            }
        }
    }

    /// The newest credentials of a caller, and its threads, for the poller of this number; `None`
    /// if these are too few. Then it polls no more, and they are told so.
    fn polled(&self, access: &Access, poller: u64) -> Option<(Client, BTreeMap<u64, Seat>)> {
        let mut groups = self.0.lock();
        let group = groups.groups.get_mut(access).filter(|group| group.poller == Some(poller))?;
        if group.seats.len() >= MIN_POLLED {
            return Some((group.upstream.clone(), group.seats.clone()));
        }
        group.poller = None;
        let seats = group.seats.clone();
        drop(groups);
        unpolled(&seats);
        None
    }
}

fn unpolled(seats: &BTreeMap<u64, Seat>) {
    for seat in seats.values() {
        seat.stands(PollState::Unpolled);
    }
}

// === impl Seat ===

impl Seat {
    fn stands(&self, state: PollState) {
        self.news.send_if_modified(|news| {
            let is_news = news.state != state;
            news.state = state;
            is_news
        });
    }

    fn moves(&self, state: PollState) {
        self.news.send_modify(|news| *news = News { state, moves: news.moves + 1 });
    }

    fn is(&self) -> PollState {
        self.news.borrow().state
    }

    /// A poll that was sent at this time has found the thread like that.
    fn found(&self, mark: ThreadMark, last: Option<String>, asked_at: Instant) -> String {
        let was = self.is();
        let state = match (mark.status, was) {
            (ThreadStatus::Busy, _) => PollState::Busy,
            (_, PollState::Resting(since)) => PollState::Resting(since),
            _ => PollState::Resting(asked_at),
        };
        if was == PollState::Missing || last.is_some_and(|last| last != mark.mark) {
            self.moves(state);
        } else {
            self.stands(state);
        }
        mark.mark
    }
}

// === impl Polled ===

impl Polled {
    /// A thread that is looked at by this caller from now on; and what polls say of it.
    pub(super) fn new(
        shared: &Arc<Shared>,
        upstream: &Client,
        thread_id: &str,
    ) -> (Self, watch::Receiver<News>) {
        let (news, heard) = watch::channel(News::default());
        let seat = Seat { thread_id: thread_id.into(), news };
        let mut polled = Self { shared: Arc::clone(shared), at: None, seat };
        polled.looks_as(upstream);
        (polled, heard)
    }

    /// The thread is looked at with these credentials from now on.
    pub(super) fn looks_as(&mut self, upstream: &Client) {
        let is_settled = |(access, _): &(Access, u64)| self.shared.polls.renew(access, upstream);
        if !is_pollable(&self.seat.thread_id) || self.at.as_ref().is_some_and(is_settled) {
            return;
        }
        self.leave();
        self.seat.stands(PollState::Unpolled);
        let (at, poller) = self.shared.polls.seat(upstream, self.seat.clone());
        if let Some(number) = poller {
            let poller = Poller::new(&self.shared, upstream, at.0.clone(), number);
            self.shared.runs.spawn(poller.poll());
        }
        self.at = Some(at);
    }

    fn leave(&mut self) {
        if let Some((access, number)) = self.at.take() {
            self.shared.polls.leave(&access, number);
        }
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Whether an id is one that both servers take, and answer with as it stands. One that they refuse
/// would spoil the whole poll.
fn is_pollable(thread_id: &str) -> bool {
    let mut buffer = Uuid::encode_buffer();
    Uuid::try_parse(thread_id)
        .is_ok_and(|id| id.hyphenated().encode_lower(&mut buffer) == thread_id)
}

// === impl Poller ===

impl Poller {
    fn new(shared: &Arc<Shared>, upstream: &Client, access: Access, number: u64) -> Self {
        let pace = shared.paces.of(upstream, shared.runs.metrics());
        let shared = Arc::clone(shared);
        let base = upstream.base().clone();
        Self { shared, pace, base, access, number, marks: HashMap::new(), failed: 0 }
    }

    /// Polls until too few threads are left.
    async fn poll(mut self) {
        let mut due = Instant::now() + LOOK_INTERVAL;
        loop {
            tokio::time::sleep_until(due).await;
            let until = match self.round(due).await {
                Ok(()) => due + LOOK_INTERVAL,
                Err(Halt::Few) => return,
                Err(halt) => match self.halt(&halt) {
                    Some(until) => until,
                    None => return,
                },
            };
            due = until.max(Instant::now());
        }
    }

    /// Asks of all threads which have moved.
    async fn round(&mut self, due: Instant) -> Result<(), Halt> {
        if let Some(until) = self.pace.unpollable_until() {
            self.polled()?;
            return Err(Halt::Paused(until));
        }
        let mut turn = Some(self.pace.turn(Lane::Polls).await);
        // The credentials may have been renewed meanwhile.
        let (upstream, seats) = self.polled()?;
        self.marks.retain(|number, _| seats.contains_key(number));
        // Two watchers may look at one thread: one for whom it was not there at first.
        let mut asked: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for (number, seat) in &seats {
            asked.entry(&seat.thread_id).or_default().push(*number);
        }
        let ids: Vec<_> = asked.keys().copied().collect();
        for page in ids.chunks(MAX_THREAD_PAGE) {
            let turn = match turn.take() {
                Some(turn) => turn,
                None => self.pace.turn(Lane::Polls).await,
            };
            self.shared.runs.metrics().looked(LookReason::Poll);
            let asked_at = Instant::now();
            let answer = upstream.thread_marks(page).await;
            turn.heard(&answer);
            let marks = answer.map_err(|error| Halt::of(&error))?;
            self.shared.runs.metrics().polled(due.elapsed());
            let mut found: HashMap<_, _> =
                marks.into_iter().map(|mark| (mark.id.clone(), mark)).collect();
            // The server ignores what it was asked for.
            if !found.keys().all(|id| page.binary_search(&id.as_str()).is_ok()) {
                return Err(Halt::Unpollable);
            }
            for id in page {
                let mark = found.remove(*id);
                for number in asked.get(id).into_iter().flatten() {
                    let Some(seat) = seats.get(number) else { continue };
                    let last = self.marks.remove(number);
                    match &mark {
                        Some(mark) => {
                            let mark = seat.found(mark.clone(), last, asked_at);
                            self.marks.insert(*number, mark);
                        }
                        // Its watcher looks if that is news.
                        None => seat.stands(PollState::Missing),
                    }
                }
            }
        }
        self.failed = 0;
        Ok(())
    }

    /// When to poll again after a failure; `None` if not at all.
    fn halt(&mut self, halt: &Halt) -> Option<Instant> {
        let now = Instant::now();
        let (is_alone, until) = match halt {
            Halt::Few => return None,
            Halt::Paused(until) => (false, (*until).min(now + REFUSED_FOR)),
            // The gate holds up what would look instead, and says when to try.
            Halt::Failed(Health::Up | Health::Away) => (false, now + LOOK_INTERVAL),
            Halt::Failed(Health::Doubtful) => {
                self.failed += 1;
                (self.failed >= MAX_FAILED_POLLS, now + LOOK_INTERVAL * self.failed.min(15))
            }
            Halt::Refused => (true, now + REFUSED_FOR),
            Halt::Unpollable => {
                tracing::debug!(upstream = %self.base, "the server does not say which threads have moved");
                self.pace.is_unpollable();
                (true, now)
            }
        };
        if is_alone {
            let (_, seats) = self.polled().ok()?;
            unpolled(&seats);
        }
        Some(until)
    }

    fn polled(&self) -> Result<(Client, BTreeMap<u64, Seat>), Halt> {
        self.shared.polls.polled(&self.access, self.number).ok_or(Halt::Few)
    }
}

// === impl Halt ===

impl Halt {
    fn of(error: &Error) -> Self {
        match error {
            error if error.is_unauthorized() => Self::Refused,
            error => match Health::of(error) {
                // It answers, but not that.
                Health::Up => Self::Unpollable,
                health @ (Health::Doubtful | Health::Away) => Self::Failed(health),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(status: ThreadStatus, mark: &str) -> ThreadMark {
        ThreadMark { id: "T".to_owned(), status, mark: mark.to_owned() }
    }

    #[test]
    fn a_thread_moves_when_its_mark_does_and_when_it_comes_back() {
        let seat = Seat { thread_id: "T".into(), news: watch::Sender::default() };
        let news = || *seat.news.borrow();
        let now = Instant::now();
        let later = now + LOOK_INTERVAL;
        let last = seat.found(mark(ThreadStatus::Idle, "1"), None, now);
        assert_eq!(news(), News { state: PollState::Resting(now), moves: 0 });
        let last = seat.found(mark(ThreadStatus::Idle, "1"), Some(last), later);
        assert_eq!(news(), News { state: PollState::Resting(now), moves: 0 });
        let last = seat.found(mark(ThreadStatus::Busy, "2"), Some(last), later);
        assert_eq!(news(), News { state: PollState::Busy, moves: 1 });
        let last = seat.found(mark(ThreadStatus::Error, "3"), Some(last), later);
        assert_eq!(news(), News { state: PollState::Resting(later), moves: 2 });
        assert_eq!(last, "3");
        seat.stands(PollState::Missing);
        assert_eq!(news(), News { state: PollState::Missing, moves: 2 });
        seat.found(mark(ThreadStatus::Idle, "3"), None, later);
        assert_eq!(news(), News { state: PollState::Resting(later), moves: 3 });
    }

    #[test]
    fn only_ids_that_both_servers_take_are_polled() {
        assert!(is_pollable("0f9cfe5e-7d44-4d4f-8aef-a4e7c1d4a2a1"));
        for id in [
            "",
            "T",
            "0F9CFE5E-7D44-4D4F-8AEF-A4E7C1D4A2A1",
            "0f9cfe5e7d444d4f8aefa4e7c1d4a2a1",
            "{0f9cfe5e-7d44-4d4f-8aef-a4e7c1d4a2a1}",
        ] {
            assert!(!is_pollable(id), "{id}");
        }
    }
}
