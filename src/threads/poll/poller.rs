//! The task that polls the threads of one caller.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::Shared;
use super::super::pace::{Health, LOOK_INTERVAL, Lane, Pace};
use super::{PollState, PolledThread, report_not_polled};
use crate::metrics::LookReason;
use crate::upstream::{Access, BaseUrl, Client, Error, MAX_THREAD_PAGE};

/// How many polls in a row may fail, while the server may work, before the watchers look at their
/// threads on their own.
const MAX_FAILED_POLLS: u32 = 3;

/// How long the threads of a caller are not polled after the server refused it. Permissions may
/// change in the meantime.
const REFUSED_FOR: Duration = Duration::from_mins(1);

/// The task that polls the threads of one caller.
pub(super) struct Poller {
    shared: Arc<Shared>,
    pace: Arc<Pace>,
    base: BaseUrl,
    access: Access,
    number: u64,
    /// The last mark of each thread, by the number of the subscription.
    marks: HashMap<u64, String>,
    /// How many polls in a row have failed while the server may work.
    failed: u32,
}

/// Why a poll has no result.
enum PollError {
    /// Too few threads are left.
    TooFewThreads,
    /// The server failed. The next poll may succeed.
    Failed(Health),
    /// The server does not support polls, and is not polled before this time.
    Paused { until: Instant },
    /// The server refuses this caller.
    Refused,
    /// The server does not support polls.
    Unsupported,
}

// === impl Poller ===

impl Poller {
    pub(super) fn new(
        shared: &Arc<Shared>,
        upstream: &Client,
        access: Access,
        number: u64,
    ) -> Self {
        let pace = shared.paces.of(upstream, shared.runs.metrics());
        let shared = Arc::clone(shared);
        let base = upstream.base().clone();
        Self { shared, pace, base, access, number, marks: HashMap::new(), failed: 0 }
    }

    /// Polls until too few threads are left.
    pub(super) async fn poll(mut self) {
        let mut due = Instant::now() + LOOK_INTERVAL;
        loop {
            tokio::time::sleep_until(due).await;
            let next = match self.poll_once(due).await {
                Ok(()) => due + LOOK_INTERVAL,
                Err(PollError::TooFewThreads) => return,
                Err(error) => match self.next_after(&error) {
                    Some(next) => next,
                    None => return,
                },
            };
            due = next.max(Instant::now());
        }
    }

    /// Asks for all threads, in pages, and reports the results to the watchers.
    async fn poll_once(&mut self, due: Instant) -> Result<(), PollError> {
        if let Some(until) = self.pace.polls_unsupported_until() {
            self.polled()?;
            return Err(PollError::Paused { until });
        }
        let mut permit = Some(self.pace.wait(Lane::Polls).await);
        // Read after the wait, in which the credentials may have been renewed.
        let (upstream, threads) = self.polled()?;
        self.marks.retain(|number, _| threads.contains_key(number));
        // Two watchers may look at one thread: one of them for a caller from whom it was hidden.
        let mut numbers: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for (number, thread) in &threads {
            numbers.entry(&thread.id).or_default().push(*number);
        }
        let ids: Vec<_> = numbers.keys().copied().collect();
        for page in ids.chunks(MAX_THREAD_PAGE) {
            let permit = match permit.take() {
                Some(permit) => permit,
                None => self.pace.wait(Lane::Polls).await,
            };
            self.shared.runs.metrics().looked(LookReason::Poll);
            let sent_at = Instant::now();
            let answer = upstream.thread_marks(page).await;
            permit.record(&answer);
            let marks = answer.map_err(|error| PollError::of(&error))?;
            self.shared.runs.metrics().polled(due.elapsed());
            let mut found: HashMap<_, _> =
                marks.into_iter().map(|mark| (mark.id.clone(), mark)).collect();
            // A server that ignores the ids lists other threads.
            if !found.keys().all(|id| page.binary_search(&id.as_str()).is_ok()) {
                return Err(PollError::Unsupported);
            }
            for id in page {
                let mark = found.remove(*id);
                for number in numbers.get(id).into_iter().flatten() {
                    let Some(thread) = threads.get(number) else { continue };
                    let last = self.marks.remove(number);
                    match &mark {
                        Some(mark) => {
                            let mark = thread.found(mark.clone(), last, sent_at);
                            self.marks.insert(*number, mark);
                        }
                        // The watcher looks if its last look found the thread.
                        None => thread.report(PollState::Missing),
                    }
                }
            }
        }
        self.failed = 0;
        Ok(())
    }

    /// When to poll again after a failure. `None` ends the task.
    fn next_after(&mut self, error: &PollError) -> Option<Instant> {
        let now = Instant::now();
        // Whether the watchers look on their own until then.
        let (is_alone, next) = match error {
            PollError::TooFewThreads => return None,
            PollError::Paused { until } => (false, (*until).min(now + REFUSED_FOR)),
            // The gate would stop the watchers' looks too, and decides when to try.
            PollError::Failed(Health::Up | Health::Unavailable) => (false, now + LOOK_INTERVAL),
            PollError::Failed(Health::Doubtful) => {
                self.failed += 1;
                (self.failed >= MAX_FAILED_POLLS, now + LOOK_INTERVAL * self.failed.min(15))
            }
            PollError::Refused => (true, now + REFUSED_FOR),
            PollError::Unsupported => {
                let upstream = &self.base;
                tracing::debug!(%upstream, "the server does not support polls of threads");
                self.pace.note_polls_unsupported();
                (true, now)
            }
        };
        if is_alone {
            let (_, threads) = self.polled().ok()?;
            report_not_polled(&threads);
        }
        Some(next)
    }

    fn polled(&self) -> Result<(Client, BTreeMap<u64, PolledThread>), PollError> {
        self.shared.polls.polled(&self.access, self.number).ok_or(PollError::TooFewThreads)
    }
}

// === impl PollError ===

impl PollError {
    fn of(error: &Error) -> Self {
        match error {
            error if error.is_unauthorized() => Self::Refused,
            error => match Health::of(error) {
                // The server answers, but not this request.
                Health::Up => Self::Unsupported,
                health @ (Health::Doubtful | Health::Unavailable) => Self::Failed(health),
            },
        }
    }
}
