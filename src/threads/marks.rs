//! What happens on many threads, for a client that shows a list of them.
//!
//! A client gets a mark of each thread, or the newest threads of an agent with their marks. One
//! request reads them when the client connects, with the caller's own credentials. Then the
//! caller's poller reports what changes.
//!
//! A reader ends when the server does not let the caller poll. The client connects again, and
//! learns why, or reads the marks once more.

use std::sync::Arc;

use futures_util::future::try_join_all;
use tokio::sync::{Notify, watch};

use super::list::ListQuery;
use super::pace::{Health, PollMethod};
use super::poll::{ListSubscription, PageQuery, PageReport, PollState, PollSubscription};
use super::refusal::Refusal;
use super::{Shared, Threads};
use crate::upstream::{Client, Error, OnThreadNotFound, QueueClass, ThreadActivity, ThreadRecord};
use threadway_translate::json::Json;

/// How many threads are read one by one at a time, where the server cannot list them by their ids.
const MAX_READ_AT_ONCE: usize = 8;

/// The mark of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// LangGraph shows the thread.
    Shown(ThreadActivity),
    /// The thread does not exist, and unknown threads are empty for this caller.
    Absent,
    /// LangGraph does not show the thread to the caller. This is the thread's last mark.
    Refused,
}

/// Yields the marks of threads that change.
#[derive(Debug)]
pub struct MarkReader {
    shared: Arc<Shared>,
    upstream: Client,
    threads: Vec<Marked>,
    changed: Arc<Notify>,
}

/// A thread whose marks a client gets.
#[derive(Debug)]
struct Marked {
    mark: Mark,
    /// `None` after the last mark.
    subscription: Option<PollSubscription>,
}

/// Yields the newest threads of an agent when one of them has changed.
#[derive(Debug)]
pub struct PageReader {
    shared: Arc<Shared>,
    upstream: Client,
    page: Arc<[ThreadRecord]>,
    reports: watch::Receiver<PageReport>,
    _subscription: ListSubscription,
}

// === impl Threads ===

impl Threads {
    /// Reads the marks of the threads with these ids.
    pub async fn marks(&self, upstream: &Client, ids: &[String]) -> Result<MarkReader, Refusal> {
        self.expect_no_shutdown()?;
        let changed = Arc::new(Notify::new());
        let mark = |id: &String| PollSubscription::marking(&self.shared, upstream, id, &changed);
        // A change after the first marks were read is in the next poll.
        let subscriptions: Vec<_> = ids.iter().map(mark).collect();
        let marks = self.first_marks(upstream, ids).await?;
        let marked = marks.into_iter().zip(subscriptions).map(|(mark, subscription)| Marked {
            mark,
            subscription: (mark != Mark::Refused).then_some(subscription),
        });
        let (threads, shared) = (marked.collect(), Arc::clone(&self.shared));
        Ok(MarkReader { shared, upstream: upstream.clone(), threads, changed })
    }

    /// Reads the newest threads whose metadata has these members.
    pub async fn newest(
        &self,
        upstream: &Client,
        metadata: Json,
        list: ListQuery,
    ) -> Result<PageReader, Refusal> {
        self.expect_no_shutdown()?;
        let query = Arc::new(PageQuery { metadata, list });
        let page = upstream.in_turn(QueueClass::Looks, query.read(upstream)).await?;
        let (subscription, reports) = ListSubscription::new(&self.shared, upstream, query);
        let (shared, page) = (Arc::clone(&self.shared), page.into());
        let upstream = upstream.clone();
        Ok(PageReader { shared, upstream, page, reports, _subscription: subscription })
    }

    /// The mark of each thread, by one request if the server lists threads by their ids.
    async fn first_marks(&self, upstream: &Client, ids: &[String]) -> Result<Vec<Mark>, Error> {
        let pace = self.shared.paces.of(upstream, self.shared.runs.metrics());
        if pace.poll_method() == PollMethod::ByIds {
            let wanted: Vec<_> = ids.iter().map(String::as_str).collect();
            match upstream.in_turn(QueueClass::Looks, upstream.thread_marks(&wanted, true)).await {
                // A server that ignores the ids lists others too.
                Ok(found) if found.iter().all(|found| wanted.contains(&&*found.id)) => {
                    let mark = |id: &&str| {
                        let found = found.iter().find(|found| found.id == *id);
                        Mark::of(upstream, found.map(|found| found.activity))
                    };
                    return Ok(wanted.iter().map(mark).collect());
                }
                Err(error) if error.is_unauthorized() || Health::of(&error) != Health::Up => {
                    return Err(error);
                }
                // The server does not support this request.
                Ok(_) | Err(_) => {}
            }
        }
        let mut marks = Vec::with_capacity(ids.len());
        for some in ids.chunks(MAX_READ_AT_ONCE) {
            let read = some.iter().map(async |id| {
                let thread = upstream.in_turn(QueueClass::Looks, upstream.thread(id)).await?;
                Ok::<_, Error>(Mark::of(upstream, thread.map(|thread| thread.activity)))
            });
            marks.extend(try_join_all(read).await?);
        }
        Ok(marks)
    }
}

/// Waits until the caller may read no more: its admission ends, or the gateway shuts down.
async fn over(shared: &Shared, upstream: &Client) {
    tokio::select! {
        biased;
        () = upstream.caller().until().over() => {}
        () = shared.runs.shut_down() => {}
    }
}

// === impl Mark ===

impl Mark {
    fn of(upstream: &Client, activity: Option<ThreadActivity>) -> Self {
        match (activity, upstream.caller().unknown_thread()) {
            (Some(activity), _) => Self::Shown(activity),
            (None, OnThreadNotFound::Empty) => Self::Absent,
            (None, OnThreadNotFound::Refused) => Self::Refused,
        }
    }
}

// === impl MarkReader ===

impl MarkReader {
    /// The marks now, in the order of the ids.
    pub fn marks(&self) -> impl Iterator<Item = Mark> {
        self.threads.iter().map(|thread| thread.mark)
    }

    /// The marks that have changed, each with the position of its thread. `None` at the end.
    /// Cancel safe.
    pub async fn next(&mut self) -> Option<Vec<(usize, Mark)>> {
        loop {
            let changes = self.changes()?;
            if !changes.is_empty() {
                return Some(changes);
            }
            tokio::select! {
                biased;
                () = over(&self.shared, &self.upstream) => return None,
                () = self.changed.notified() => {}
            }
        }
    }

    /// What the polls have changed. `None` if a thread cannot be polled.
    fn changes(&mut self) -> Option<Vec<(usize, Mark)>> {
        let mut changes = Vec::new();
        for (at, thread) in self.threads.iter_mut().enumerate() {
            let Some(subscription) = &thread.subscription else { continue };
            let report = subscription.report();
            let mark = match (report.state, report.activity) {
                (PollState::Unserved, _) => return None,
                (PollState::Missing, _) => Mark::of(&self.upstream, None),
                (_, Some(activity)) => Mark::Shown(activity),
                // The server lists the threads that have changed last, without this one.
                (PollState::NotPolled | PollState::Idle { .. } | PollState::Busy, None) => continue,
            };
            if mark != thread.mark {
                thread.mark = mark;
                changes.push((at, mark));
                if mark == Mark::Refused {
                    thread.subscription = None;
                }
            }
        }
        Some(changes)
    }
}

// === impl PageReader ===

impl PageReader {
    /// The threads now, last changed first.
    pub fn page(&self) -> &Arc<[ThreadRecord]> {
        &self.page
    }

    /// The threads after the next change. `None` at the end. Cancel safe.
    pub async fn next(&mut self) -> Option<Arc<[ThreadRecord]>> {
        loop {
            tokio::select! {
                biased;
                () = over(&self.shared, &self.upstream) => return None,
                changed = self.reports.changed() => changed.ok()?,
            }
            let report = self.reports.borrow_and_update().clone();
            match report {
                PageReport::NotPolled => {}
                PageReport::Unserved => return None,
                PageReport::Page(page) if page == self.page => {}
                PageReport::Page(page) => {
                    self.page = Arc::clone(&page);
                    return Some(page);
                }
            }
        }
    }
}
