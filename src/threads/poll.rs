//! Polls: one request finds out which of up to a thousand followed threads have changed. It asks for
//! them by their ids, or for the threads that changed last if the server cannot search by ids.
//!
//! ```text
//!   watcher --+                                           +--> idle, busy, changed, missing:
//!   watcher --+-- subscriptions of one caller -- Poller --+    in each watcher's subscription
//!   watcher --+       (8 and more, or marked)  every 2 s  +--> marks, pages:
//!   marks   --+                                                to the caller's own clients
//! ```
//! A poll carries the credentials of one caller, and its result reaches only watchers and marks that
//! use the same credentials. Watchers get the result as a hint: each looks at its thread itself, so
//! a server that answers wrongly can delay a look or cause a useless one. Marks are what the
//! server says of a thread that it has named to this caller.
//!
//! - `poller`: the task that sends the requests. `listed`: pages of threads that it reads too.

mod listed;
mod poller;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;
use uuid::Uuid;

use super::Shared;
use crate::sync::Mutex;
use crate::upstream::{Client, UpstreamCredentials};
use listed::ListedPage;
pub(super) use listed::{ListSubscription, PageQuery, PageReport};
use poller::Poller;
use threadway_translate::langgraph::{ThreadActivity, ThreadMark, ThreadStatus};

/// How many threads of one caller must be followed before they are polled. For fewer threads,
/// looking at each costs as little as the polls and the looks that follow them, and finds more.
/// Marked threads are always polled.
const MIN_POLLED: usize = 8;

/// The followed threads, by the credentials that watchers use.
#[derive(Debug, Default)]
pub(super) struct Polls(Mutex<Groups>);

#[derive(Debug, Default)]
struct Groups {
    groups: HashMap<UpstreamCredentials, Group>,
    /// The number of the next subscription or poller.
    next: u64,
}

/// The threads that are looked at with the credentials of one caller.
#[derive(Debug)]
struct Group {
    /// The upstream with the newest trace headers of this caller.
    upstream: Client,
    threads: BTreeMap<u64, PolledThread>,
    pages: BTreeMap<u64, ListedPage>,
    /// Held by the thread whose slow look is the caller's next.
    state_read: Arc<Semaphore>,
    /// The number of the task that polls the threads, if one runs.
    poller: Option<u64>,
}

/// A thread, and where its watcher gets reports.
#[derive(Clone, Debug)]
struct PolledThread {
    id: Arc<str>,
    reports: watch::Sender<PollReport>,
    /// Set for a thread whose marks a client gets. Notified with each report that is new.
    marked: Option<Arc<Notify>>,
}

/// What a poller asks for.
struct Polled {
    upstream: Client,
    /// Empty if the threads are too few.
    threads: BTreeMap<u64, PolledThread>,
    pages: Vec<ListedPage>,
}

/// What polls have found out about a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PollReport {
    pub(super) state: PollState,
    /// How often polls have seen a change.
    pub(super) changes: u64,
    /// What happens on the thread. `None` unless the last poll listed the thread.
    pub(super) activity: Option<ThreadActivity>,
}

/// The state of a thread in the last poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PollState {
    #[default]
    NotPolled,
    /// No run is live, as far as polls know. They notice changes from `since` on.
    Idle { since: Instant },
    /// A run is running or pending. Polls do not see when a pending run begins.
    Busy,
    /// The answer lacks the thread: it does not exist, or is hidden from this caller.
    Missing,
    /// The marks of this thread cannot be polled: the server refuses the caller, or every poll.
    Unserved,
}

/// A watcher's subscription to the polls of its thread.
#[derive(Debug)]
pub(super) struct PollSubscription {
    shared: Arc<Shared>,
    /// The group and number of the subscription. `None` for a thread that cannot be polled.
    place: Option<(UpstreamCredentials, u64)>,
    thread: PolledThread,
}

// === impl Polls ===

impl Polls {
    /// Adds a thread to the group of a caller. Returns its place, and the number of the poller to
    /// start, if one is needed.
    fn subscribe(
        &self,
        upstream: &Client,
        thread: PolledThread,
    ) -> ((UpstreamCredentials, u64), Option<u64>) {
        self.add(upstream, |group, number| {
            group.threads.insert(number, thread);
        })
    }

    /// Adds a page to the group of a caller.
    fn subscribe_page(
        &self,
        upstream: &Client,
        page: ListedPage,
    ) -> ((UpstreamCredentials, u64), Option<u64>) {
        self.add(upstream, |group, number| {
            group.pages.insert(number, page);
        })
    }

    fn add(
        &self,
        upstream: &Client,
        add: impl FnOnce(&mut Group, u64),
    ) -> ((UpstreamCredentials, u64), Option<u64>) {
        let access = upstream.access();
        let mut groups = self.0.lock();
        let (number, poller) = (groups.next, groups.next + 1);
        groups.next += 2;
        let group = groups.groups.entry(access.clone()).or_insert_with(|| Group {
            upstream: upstream.clone(),
            threads: BTreeMap::new(),
            pages: BTreeMap::new(),
            state_read: Arc::new(Semaphore::new(1)),
            poller: None,
        });
        group.upstream = upstream.clone();
        add(group, number);
        let needs_poller = group.poller.is_none() && group.is_polled();
        if needs_poller {
            group.poller = Some(poller);
        }
        ((access, number), needs_poller.then_some(poller))
    }

    /// Updates the upstream of a group, if the credentials are those of the group. Returns whether
    /// they are.
    fn renew(&self, access: &UpstreamCredentials, upstream: &Client) -> bool {
        let is_same = *access == upstream.access();
        if is_same && let Some(group) = self.0.lock().groups.get_mut(access) {
            group.upstream = upstream.clone();
        }
        is_same
    }

    fn state_read(&self, access: &UpstreamCredentials) -> Option<Arc<Semaphore>> {
        self.0.lock().groups.get(access).map(|group| Arc::clone(&group.state_read))
    }

    fn unsubscribe(&self, access: &UpstreamCredentials, number: u64) {
        let mut groups = self.0.lock();
        if let Some(group) = groups.groups.get_mut(access) {
            group.threads.remove(&number);
            group.pages.remove(&number);
            if group.threads.is_empty() && group.pages.is_empty() {
                groups.groups.remove(access);
            }
        }
    }

    /// What the poller of this number asks for. `None` if that is nothing: then the poller must end.
    /// Threads that are too few are marked as not polled.
    fn polled(&self, access: &UpstreamCredentials, poller: u64) -> Option<Polled> {
        let mut groups = self.0.lock();
        let group = groups.groups.get_mut(access).filter(|group| group.poller == Some(poller))?;
        let is_polled = group.is_polled();
        if !is_polled {
            group.poller = None;
        }
        let (mut threads, has_enough) = (group.threads.clone(), group.has_enough_threads());
        let (upstream, pages) = (group.upstream.clone(), group.pages.values().cloned().collect());
        drop(groups);
        if !has_enough {
            report_not_polled(&threads);
            threads.clear();
        }
        is_polled.then_some(Polled { upstream, threads, pages })
    }
}

// === impl Group ===

impl Group {
    fn is_polled(&self) -> bool {
        !self.pages.is_empty() || self.has_enough_threads()
    }

    fn has_enough_threads(&self) -> bool {
        self.threads.len() >= MIN_POLLED || self.threads.values().any(PolledThread::is_marked)
    }
}

fn report_not_polled(threads: &BTreeMap<u64, PolledThread>) {
    for thread in threads.values() {
        let state = if thread.is_marked() { PollState::Unserved } else { PollState::NotPolled };
        thread.report(state);
    }
}

// === impl PolledThread ===

impl PolledThread {
    fn is_marked(&self) -> bool {
        self.marked.is_some()
    }

    fn report(&self, state: PollState) {
        let changes = self.reports.borrow().changes;
        self.report_all(PollReport { state, changes, activity: None });
    }

    fn report_all(&self, new: PollReport) {
        let is_new = self.reports.send_if_modified(|report| {
            let is_new = *report != new;
            *report = new;
            is_new
        });
        if is_new && let Some(marked) = &self.marked {
            marked.notify_one();
        }
    }

    fn state(&self) -> PollState {
        self.reports.borrow().state
    }

    /// Reports that a poll that was sent at `sent_at` has found no change.
    fn report_unchanged(&self, sent_at: Instant) {
        match self.state() {
            PollState::Idle { .. } | PollState::Busy => {}
            PollState::NotPolled | PollState::Missing | PollState::Unserved => {
                self.report(PollState::Idle { since: sent_at });
            }
        }
    }

    /// Reports what a poll that was sent at `sent_at` found. Returns the new mark, for comparison
    /// with the next.
    fn found(&self, mark: ThreadMark, last: Option<String>, sent_at: Instant) -> String {
        let before = self.state();
        let state = match (mark.status, before) {
            (ThreadStatus::Busy, _) => PollState::Busy,
            (_, PollState::Idle { since }) => PollState::Idle { since },
            _ => PollState::Idle { since: sent_at },
        };
        let is_change = before == PollState::Missing || last.is_some_and(|last| last != mark.mark);
        let changes = self.reports.borrow().changes + u64::from(is_change);
        self.report_all(PollReport { state, changes, activity: Some(mark.activity) });
        mark.mark
    }
}

/// Starts the poller of a subscription's group, if it needs one. Returns the subscription's place.
fn begin(
    shared: &Arc<Shared>,
    upstream: &Client,
    (place, poller): ((UpstreamCredentials, u64), Option<u64>),
) -> (UpstreamCredentials, u64) {
    if let Some(number) = poller {
        let mut poller = Poller::new(shared, upstream, place.0.clone(), number);
        shared.runs.spawn(async move { poller.poll().await });
    }
    place
}

// === impl PollSubscription ===

impl PollSubscription {
    /// Subscribes with the credentials of `upstream`.
    pub(super) fn new(
        shared: &Arc<Shared>,
        upstream: &Client,
        thread_id: &str,
    ) -> (Self, watch::Receiver<PollReport>) {
        let (reports, receiver) = watch::channel(PollReport::default());
        let thread = PolledThread { id: thread_id.into(), reports, marked: None };
        let mut subscription = Self { shared: Arc::clone(shared), place: None, thread };
        subscription.use_credentials(upstream);
        (subscription, receiver)
    }

    /// Subscribes to the marks of a thread. `changed` is notified with each new report.
    pub(super) fn marking(
        shared: &Arc<Shared>,
        upstream: &Client,
        thread_id: &str,
        changed: &Arc<Notify>,
    ) -> Self {
        let (id, reports) = (thread_id.into(), watch::Sender::default());
        let thread = PolledThread { id, reports, marked: Some(Arc::clone(changed)) };
        let mut subscription = Self { shared: Arc::clone(shared), place: None, thread };
        subscription.use_credentials(upstream);
        subscription
    }

    /// The last report.
    pub(super) fn report(&self) -> PollReport {
        *self.thread.reports.borrow()
    }

    /// Moves the thread to the group of these credentials.
    pub(super) fn use_credentials(&mut self, upstream: &Client) {
        let is_in_place =
            |(access, _): &(UpstreamCredentials, u64)| self.shared.polls.renew(access, upstream);
        if !is_pollable(&self.thread.id) || self.place.as_ref().is_some_and(is_in_place) {
            return;
        }
        self.unsubscribe();
        self.thread.report(PollState::NotPolled);
        let added = self.shared.polls.subscribe(upstream, self.thread.clone());
        self.place = Some(begin(&self.shared, upstream, added));
    }

    /// Held by the thread of the caller whose state is read next. `None` for a thread that cannot be polled.
    pub(super) fn state_read(&self) -> Option<Arc<Semaphore>> {
        let (access, _) = self.place.as_ref()?;
        self.shared.polls.state_read(access)
    }

    fn unsubscribe(&mut self) {
        if let Some((access, number)) = self.place.take() {
            self.shared.polls.unsubscribe(&access, number);
        }
    }
}

impl Drop for PollSubscription {
    fn drop(&mut self) {
        self.unsubscribe();
    }
}

/// Whether both servers accept an id and return it unchanged. One id that they reject would spoil
/// the whole poll.
fn is_pollable(thread_id: &str) -> bool {
    let mut buffer = Uuid::encode_buffer();
    Uuid::try_parse(thread_id)
        .is_ok_and(|id| id.hyphenated().encode_lower(&mut buffer) == thread_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::pace::LOOK_INTERVAL;

    fn mark(status: ThreadStatus, mark: &str) -> ThreadMark {
        let (mark, updated_at) = (mark.to_owned(), String::new());
        let activity = ThreadActivity::Idle;
        ThreadMark { id: "T".to_owned(), status, activity, mark, updated_at }
    }

    #[test]
    fn a_thread_changes_with_its_mark_and_when_it_reappears() {
        let thread =
            PolledThread { id: "T".into(), reports: watch::Sender::default(), marked: None };
        let report = || *thread.reports.borrow();
        let now = Instant::now();
        let later = now + LOOK_INTERVAL;
        let activity = Some(ThreadActivity::Idle);
        let idle =
            |since, changes| PollReport { state: PollState::Idle { since }, changes, activity };
        let last = thread.found(mark(ThreadStatus::Idle, "1"), None, now);
        assert_eq!(report(), idle(now, 0));
        let last = thread.found(mark(ThreadStatus::Idle, "1"), Some(last), later);
        assert_eq!(report(), idle(now, 0));
        let last = thread.found(mark(ThreadStatus::Busy, "2"), Some(last), later);
        assert_eq!(report(), PollReport { state: PollState::Busy, changes: 1, activity });
        let last = thread.found(mark(ThreadStatus::Error, "3"), Some(last), later);
        assert_eq!(report(), idle(later, 2));
        assert_eq!(last, "3");
        thread.report(PollState::Missing);
        assert_eq!(report(), PollReport { state: PollState::Missing, changes: 2, activity: None });
        thread.found(mark(ThreadStatus::Idle, "3"), None, later);
        assert_eq!(report(), idle(later, 3));
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
