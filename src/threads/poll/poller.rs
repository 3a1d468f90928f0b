//! The task that polls the threads of one caller.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::Shared;
use super::super::pace::{Health, LOOK_INTERVAL, Lane, Pace, Permit, PollMethod};
use super::listed::{ListedPage, PageReport};
use super::{PollState, Polled, PolledThread, report_not_polled};
use crate::metrics::LookReason;
use crate::upstream::{BaseUrl, Client, Error, MAX_THREAD_PAGE, UpstreamCredentials};
use threadway_translate::langgraph::ThreadMark;

/// How many polls in a row may fail, while the server may work, before the watchers look at their
/// threads on their own.
const MAX_FAILED_POLLS: u32 = 3;

/// How long the threads of a caller are not polled after the server refused it. Permissions may
/// change in the meantime.
const REFUSED_FOR: Duration = Duration::from_mins(1);

/// How many of the threads that changed last one request lists. The next one follows if all of them
/// have changed since the last poll.
const NEWEST_PAGE: usize = 100;

/// How many such requests one poll makes. If more threads have changed, their watchers look on their
/// own until the next poll.
const MAX_NEWEST_PAGES: usize = 10;

/// The task that polls the threads of one caller.
pub(super) struct Poller {
    shared: Arc<Shared>,
    pace: Arc<Pace>,
    base: BaseUrl,
    access: UpstreamCredentials,
    number: u64,
    /// The last mark of each thread, by the number of the subscription.
    marks: HashMap<u64, String>,
    /// The last poll of [`PollMethod::Newest`].
    newest: Option<Newest>,
    /// How many polls in a row have failed while the server may work.
    failed: u32,
}

/// The threads that changed last.
struct Newest {
    /// The mark of each, by its id.
    marks: HashMap<String, String>,
    /// The last one of the list. `None` if the list had all threads.
    oldest: Option<ThreadMark>,
}

/// The requests of one poll.
struct Requests {
    upstream: Client,
    /// When the poll was due.
    due: Instant,
    method: PollMethod,
    /// The permit for the first request.
    permit: Option<Permit>,
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
    /// The server does not support this method of polls.
    Unsupported(PollMethod),
}

// === impl Poller ===

impl Poller {
    pub(super) fn new(
        shared: &Arc<Shared>,
        upstream: &Client,
        access: UpstreamCredentials,
        number: u64,
    ) -> Self {
        let pace = shared.paces.of(upstream, shared.runs.metrics());
        let shared = Arc::clone(shared);
        let base = upstream.base().clone();
        let marks = HashMap::new();
        Self { shared, pace, base, access, number, marks, newest: None, failed: 0 }
    }

    /// Polls until too few threads are left.
    pub(super) async fn poll(&mut self) {
        let mut due = Instant::now() + LOOK_INTERVAL;
        loop {
            tokio::time::sleep_until(due).await;
            // Most of the time there is no poll, whose requests need some KiB.
            let next = match Box::pin(self.poll_once(due)).await {
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

    /// Finds out which threads have changed, and reports it to the watchers.
    async fn poll_once(&mut self, due: Instant) -> Result<(), PollError> {
        let method = self.pace.poll_method();
        if let PollMethod::Unsupported { until } = method
            && self.polled()?.pages.is_empty()
        {
            return Err(PollError::Paused { until });
        }
        let permit = self.pace.wait(Lane::Polls).await;
        // Read after the wait, in which the credentials may have been renewed.
        let Polled { upstream, threads, pages } = self.polled()?;
        self.marks.retain(|number, _| threads.contains_key(number));
        let mut requests = Requests { upstream, due, method, permit: Some(permit) };
        self.read_pages(&mut requests, &pages).await?;
        match method {
            _ if threads.is_empty() => {}
            PollMethod::ByIds => self.poll_by_ids(&mut requests, &threads).await?,
            PollMethod::Newest { .. } => self.poll_newest(&mut requests, &threads).await?,
            PollMethod::Unsupported { .. } => report_not_polled(&threads),
        }
        self.failed = 0;
        Ok(())
    }

    /// Reads each page that is different once, for all who subscribe to it.
    async fn read_pages(
        &self,
        requests: &mut Requests,
        pages: &[ListedPage],
    ) -> Result<(), PollError> {
        for (at, page) in pages.iter().enumerate() {
            if pages.iter().take(at).any(|before| before.query == page.query) {
                continue;
            }
            let sent = requests.send_as(self, async |upstream| page.query.read(upstream).await);
            let (threads, _) = sent.await.map_err(|error| match Health::of(&error) {
                // The client that connects again learns why.
                Health::Up => PollError::Refused,
                health @ (Health::Doubtful | Health::Unavailable) => PollError::Failed(health),
            })?;
            let report = PageReport::Page(threads.into());
            for same in pages.iter().filter(|other| other.query == page.query) {
                same.report(report.clone());
            }
        }
        Ok(())
    }

    /// Asks for all threads by their ids, in pages.
    async fn poll_by_ids(
        &mut self,
        requests: &mut Requests,
        threads: &BTreeMap<u64, PolledThread>,
    ) -> Result<(), PollError> {
        let numbers = numbers(threads);
        let is_marked = threads.values().any(PolledThread::is_marked);
        let ids: Vec<_> = numbers.keys().copied().collect();
        for page in ids.chunks(MAX_THREAD_PAGE) {
            let marks =
                requests.send(self, async |upstream| upstream.thread_marks(page, is_marked).await);
            let (marks, sent_at) = marks.await?;
            let mut found: HashMap<_, _> =
                marks.into_iter().map(|mark| (mark.id.clone(), mark)).collect();
            // A server that ignores the ids lists other threads.
            if !found.keys().all(|id| page.binary_search(&id.as_str()).is_ok()) {
                return Err(PollError::Unsupported(requests.method));
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
        Ok(())
    }

    /// Asks for the threads that changed last, back to one that has not changed since the last
    /// poll. Whole pages are compared, because the clocks of a server's machines differ.
    async fn poll_newest(
        &mut self,
        requests: &mut Requests,
        threads: &BTreeMap<u64, PolledThread>,
    ) -> Result<(), PollError> {
        let before = self.newest.as_ref();
        let mut newest = HashMap::new();
        let (mut oldest, mut first_sent_at, mut is_complete) = (None, None, false);
        for page in 0..MAX_NEWEST_PAGES {
            let offset = page * NEWEST_PAGE;
            let (marks, sent_at) = requests
                .send(self, async |upstream| upstream.newest_threads(offset, NEWEST_PAGE).await)
                .await?;
            if !ThreadMark::are_newest_first(&marks) {
                return Err(PollError::Unsupported(requests.method));
            }
            first_sent_at.get_or_insert(sent_at);
            oldest = if marks.len() < NEWEST_PAGE { None } else { marks.last().cloned() };
            newest.extend(marks.into_iter().map(|mark| (mark.id.clone(), mark)));
            let is_unchanged = |mark| before.is_none_or(|before| before.has_no_change_of(mark));
            is_complete = oldest.as_ref().is_none_or(is_unchanged);
            if is_complete {
                break;
            }
        }
        let sent_at = first_sent_at.unwrap_or(requests.due);
        for (number, thread) in threads {
            match newest.get(&*thread.id) {
                Some(mark) => {
                    let last = self.marks.get(number).cloned();
                    let last = last.or_else(|| before?.mark_before(mark));
                    let mark = thread.found(mark.clone(), last, sent_at);
                    self.marks.insert(*number, mark);
                }
                // The list had all threads that the caller may list.
                None if oldest.is_none() => thread.report(PollState::Missing),
                None if is_complete => thread.report_unchanged(sent_at),
                // More threads have changed than were listed, and this one may be one of them.
                None => thread.report(PollState::NotPolled),
            }
        }
        let marks = newest.into_iter().map(|(id, mark)| (id, mark.mark)).collect();
        self.newest = Some(Newest { marks, oldest });
        Ok(())
    }

    /// When to poll again after a failure. `None` ends the task.
    fn next_after(&mut self, error: &PollError) -> Option<Instant> {
        let now = Instant::now();
        // Whether the watchers look on their own until then.
        let (is_alone, next) = match error {
            PollError::TooFewThreads => return None,
            PollError::Paused { until } => (true, (*until).min(now + REFUSED_FOR)),
            // The gate would stop the watchers' looks too, and decides when to try.
            PollError::Failed(Health::Up | Health::Unavailable) => (false, now + LOOK_INTERVAL),
            PollError::Failed(Health::Doubtful) => {
                self.failed += 1;
                (self.failed >= MAX_FAILED_POLLS, now + LOOK_INTERVAL * self.failed.min(15))
            }
            PollError::Refused => (true, now + REFUSED_FOR),
            PollError::Unsupported(method) => {
                let (upstream, next) = (&self.base, self.pace.note_unsupported(*method));
                tracing::debug!(%upstream, ?method, ?next, "the server does not support such polls");
                (matches!(next, PollMethod::Unsupported { .. }), now)
            }
        };
        if is_alone {
            let Polled { threads, pages, .. } = self.polled().ok()?;
            report_not_polled(&threads);
            if matches!(error, PollError::Refused) {
                for page in &pages {
                    page.report(PageReport::Unserved);
                }
            }
        }
        Some(next)
    }

    fn polled(&self) -> Result<Polled, PollError> {
        self.shared.polls.polled(&self.access, self.number).ok_or(PollError::TooFewThreads)
    }
}

/// The numbers of each thread's subscriptions. A thread has one for each watcher: viewers with other
/// options of `[emit]`, with another messages key, and a caller from whom the thread was hidden have
/// a watcher of their own.
fn numbers(threads: &BTreeMap<u64, PolledThread>) -> BTreeMap<&str, Vec<u64>> {
    let mut numbers: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (number, thread) in threads {
        numbers.entry(&thread.id).or_default().push(*number);
    }
    numbers
}

// === impl Newest ===

impl Newest {
    /// Whether a thread is as it was then.
    fn has_no_change_of(&self, mark: &ThreadMark) -> bool {
        self.mark_before(mark).is_none_or(|before| before == mark.mark)
    }

    /// The mark that a thread had then. Empty if it was not in the list, but has changed since or is
    /// new. `None` if it was too old for the list, and has not changed.
    fn mark_before(&self, mark: &ThreadMark) -> Option<String> {
        let is_new = || self.oldest.as_ref().is_none_or(|oldest| !mark.is_older_than(oldest));
        self.marks.get(&mark.id).cloned().or_else(|| is_new().then(String::new))
    }
}

// === impl Requests ===

impl Requests {
    /// Sends a request when the server may get one. Returns the list, and when it was requested.
    async fn send<T>(
        &mut self,
        poller: &Poller,
        call: impl AsyncFnOnce(&Client) -> Result<Vec<T>, Error>,
    ) -> Result<(Vec<T>, Instant), PollError> {
        let sent = self.send_as(poller, call).await;
        sent.map_err(|error| PollError::of(&error, self.method))
    }

    async fn send_as<T>(
        &mut self,
        poller: &Poller,
        call: impl AsyncFnOnce(&Client) -> Result<Vec<T>, Error>,
    ) -> Result<(Vec<T>, Instant), Error> {
        let permit = match self.permit.take() {
            Some(permit) => permit,
            None => poller.pace.wait(Lane::Polls).await,
        };
        let metrics = poller.shared.runs.metrics();
        metrics.looked(LookReason::Poll);
        let sent_at = Instant::now();
        let answer = call(&self.upstream).await;
        permit.record(&answer);
        let list = answer?;
        metrics.polled(self.due.elapsed());
        Ok((list, sent_at))
    }
}

// === impl PollError ===

impl PollError {
    fn of(error: &Error, method: PollMethod) -> Self {
        match error {
            error if error.is_unauthorized() => Self::Refused,
            error => match Health::of(error) {
                // The server answers, but not this request.
                Health::Up => Self::Unsupported(method),
                health @ (Health::Doubtful | Health::Unavailable) => Self::Failed(health),
            },
        }
    }
}
