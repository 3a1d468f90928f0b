//! The runs that this replica reads, and the threads that it follows.
//!
//! Each run has one task (the driver), one upstream connection, and any number of readers. Each
//! followed thread has one task (the watcher); a caller who follows many threads has one more (the
//! poller). Requests that no client waits for are sent at the pace of their upstream.
//!
//! ```text
//!  upstream::Body --> driver { Reading { Feed } } --publishes--> Run { log, standing }
//!                                                                   |  a bell rings
//!                                                                   v
//!                                                               RunReader, ..  each pulls
//! ```
//! The driver owns the reading and the feed. It ends with its run, at shutdown, or when the last
//! reader leaves. It never waits for a reader, and no reader waits for another. The log is bounded
//! in bytes. A reader that falls off it is sent a standing: the run, frozen at a position of the
//! log. A reader that joins late is sent a standing too, never the history.

mod answers;
mod attach;
mod batch;
mod capture;
mod driver;
mod ending;
mod event_id;
mod feed;
mod flights;
mod follow;
mod fork;
mod log;
mod pace;
mod poll;
mod published;
mod reader;
mod reading;
mod retry;
mod standing;
mod waiting;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use answers::answered_now;
pub use attach::{AtShutdown, FollowError, ThreadReader};
pub use batch::{Batch, ENCODINGS, Events};
pub use capture::{Fault, translate};
pub use driver::LINGER;
pub use event_id::{EventId, Mark, NotAnEventId};
pub use feed::Feed;
pub use fork::{ForkError, fork_point};
pub use reader::RunReader;
pub use retry::UPSTREAM_PATIENCE;

use crate::langgraph::{ErrorDetail, RunRecord, RunStatus, ServerKind};
use crate::metrics::{Metrics, Origin};
use crate::sync::{Guard, Mutex};
use crate::upstream::{Caller, Client, Error, RunFilter, RunStream};
use attach::{LookKey, Looked};
use driver::Driver;
use flights::Flights;
use follow::Following;
use pace::Paces;
use poll::Polls;
use published::{Past, Run};
use reader::Told;
use reading::{Reading, Source};

/// How much of a run is kept for readers that are slower than it: some 3,000 tokens, half a minute
/// of a fast model. Who is further behind gets the view, which costs about what its messages do.
pub const DEFAULT_LOG_BYTES: usize = 1024 * 1024;

/// The runs that this replica reads. Clones share them.
#[derive(Clone, Debug)]
pub struct Runs(Arc<Shared>);

/// What becomes of a run when the connection that started it is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnerPolicy {
    /// It goes on: leaving is not stopping.
    #[default]
    Continue,
    /// It is stopped, unless somebody reads it here when this time is over.
    Cancel {
        /// How long a page takes to reload, and a phone to find its network again.
        grace: Duration,
    },
}

#[derive(Debug)]
struct Shared {
    live: Live,
    threads: Threads,
    /// The looks at threads for those who load them.
    looks: Flights<LookKey, Result<Looked, Error>>,
    paces: Paces,
    polls: Polls,
    tasks: TaskTracker,
    log_bytes: usize,
    owners: OwnerPolicy,
    error_detail: Mutex<ErrorDetail>,
    metrics: Metrics,
    /// Cancelled when the runs are to be let go of.
    shutdown: CancellationToken,
}

/// A thread of one upstream, for those to whom that has shown it; else for one caller alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ThreadKey {
    upstream: String,
    thread_id: String,
    /// Who waits for a thread that is not there, or that is not shown. Who is shown the same one
    /// follows another.
    unseen_by: Option<Caller>,
}

/// A run of a thread of one upstream: another upstream may have a copy of it, with its ids. Whoever
/// finds a run by its key was shown the thread; the run's id alone opens nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RunKey {
    upstream: String,
    thread_id: String,
    run_id: String,
}

/// The runs being read.
#[derive(Debug, Default)]
struct Live(Mutex<HashMap<RunKey, Listed<Run>>>);

/// The threads being followed.
#[derive(Debug, Default)]
struct Threads(Mutex<HashMap<ThreadKey, Listed<Following>>>);

/// What others can come to.
#[derive(Debug)]
struct Listed<T> {
    what: Arc<T>,
    /// The upstream as the last one calls it who came: it has just shown that one the thread. It is
    /// kept with the key, so that no credentials are used for a thread that they do not open.
    fresh_upstream: Option<Client>,
}

// === impl Runs ===

impl Runs {
    /// No runs yet. Each will keep `log_bytes` of its events for slow readers; a cancelled
    /// `shutdown` ends the reading of all.
    pub fn new(
        log_bytes: usize,
        owners: OwnerPolicy,
        metrics: Metrics,
        shutdown: CancellationToken,
    ) -> Self {
        Self(Arc::new(Shared {
            live: Live::default(),
            threads: Threads::default(),
            looks: Flights::default(),
            paces: Paces::default(),
            polls: Polls::default(),
            tasks: TaskTracker::new(),
            log_bytes,
            owners,
            error_detail: Mutex::default(),
            metrics,
            shutdown,
        }))
    }

    /// Tells so much of why a run failed, from now on.
    pub fn tell(&self, detail: ErrorDetail) {
        *self.0.error_detail.lock() = detail;
    }

    /// Reads a run that was just started on a thread, by a client that calls it `name`.
    ///
    /// Without a run id in the response the one in the stream counts. The run is read until it
    /// ends or its last reader is dropped; upstream it goes on either way, unless the policy for
    /// owners says otherwise.
    pub fn start(
        &self,
        upstream: Client,
        server: Option<ServerKind>,
        thread_id: &str,
        name: &str,
        stream: RunStream,
    ) -> RunReader {
        let RunStream { run_id, date: _, body } = stream;
        let mut feed = Feed::new(thread_id, run_id.as_deref(), Some(name));
        let (run, bell) = self.0.open(thread_id, &mut feed, Past::Kept);
        let reading = Reading::started(feed, server, Instant::now());
        let (owner, left) = match self.0.owners {
            OwnerPolicy::Continue => (None, None),
            OwnerPolicy::Cancel { grace } => {
                let (owner, left) = oneshot::channel();
                (Some(owner), Some((left, grace)))
            }
        };
        let reader = RunReader::of_owner(Arc::clone(&run), owner);
        let shared = Arc::clone(&self.0);
        let driver = Driver::new(upstream, run, bell, shared, Origin::Started).owned(left);
        self.0.tasks.spawn(driver.drive(reading, Some(body)));
        reader
    }

    /// One more reader of a thread's run, from where the run is; `None` if it is not being read.
    /// The upstream has just shown the thread to this caller.
    pub fn attach(&self, upstream: &Client, thread_id: &str, run_id: &str) -> Option<RunReader> {
        let (run, _wanted) =
            self.0.live.find(&RunKey::of(upstream, thread_id, run_id), upstream)?;
        Some(RunReader::from_here(run, Told::Nothing))
    }

    /// Stops the run of a thread that is wanted, by LangGraph's id or the client's name of it;
    /// else the one that runs, else the one that would run next. The id of what was stopped.
    ///
    /// The run is looked for upstream: another replica may read it, or nobody. Its stream ends by
    /// itself, for all who watch it.
    pub async fn stop(
        &self,
        upstream: &Client,
        thread_id: &str,
        wanted: Option<&str>,
    ) -> Result<Option<String>, Error> {
        // In this order: a run that gets its turn meanwhile is in the second list. Each is newest
        // first, so that the last one runs, or would run next.
        let mut live = upstream.runs(thread_id, RunFilter::Pending).await?;
        live.extend(upstream.runs(thread_id, RunFilter::Running).await?);
        let is_wanted = |run: &RunRecord| {
            wanted.is_none_or(|wanted| run.id == wanted || run.client_id.as_deref() == Some(wanted))
        };
        let Some(run) = live.into_iter().rfind(is_wanted) else { return Ok(None) };
        // Before the answer: the run may end, and be asked how, ahead of it.
        let key = RunKey::of(upstream, thread_id, &run.id);
        self.note_stop(&key, true);
        let stopped = upstream.cancel_run(thread_id, &run.id).await;
        if !matches!(stopped, Ok(true)) {
            self.note_stop(&key, false);
        }
        Ok(stopped?.then_some(run.id))
    }

    /// Notes whether a run is being stopped through us: it then ends as cancelled, also where its
    /// record says no more than that it failed.
    fn note_stop(&self, key: &RunKey, is_stopped: bool) {
        let run = self.0.live.lock().get(key).map(|listed| Arc::clone(&listed.what));
        if let Some(run) = run {
            run.published().is_stopped = is_stopped;
        }
    }

    /// How many runs are being read, and threads followed.
    pub fn count(&self) -> usize {
        self.0.tasks.len()
    }

    /// Waits until no run is being read any more.
    pub async fn drained(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

// === impl Shared ===

impl Shared {
    fn open(
        &self,
        thread_id: &str,
        feed: &mut Feed,
        past: Past,
    ) -> (Arc<Run>, Arc<watch::Sender<()>>) {
        let bell = Arc::new(watch::Sender::new(()));
        let (weak, metrics) = (Arc::downgrade(&bell), self.metrics.clone());
        let run = Run::new(thread_id, feed, self.log_bytes, past, weak, metrics);
        (Arc::new(run), bell)
    }

    /// A run of a list, with what it was asked for where that decides how it is read: not of one
    /// that is read here already, unless it waits for its turn and its input is all there is.
    async fn whole(
        &self,
        upstream: &Client,
        thread_id: &str,
        listed: RunRecord,
    ) -> Result<RunRecord, Error> {
        let key = RunKey::of(upstream, thread_id, &listed.id);
        if listed.status != RunStatus::Pending && self.live.find(&key, upstream).is_some() {
            return Ok(listed);
        }
        upstream.whole_run(thread_id, listed).await
    }

    fn error_detail(&self) -> ErrorDetail {
        *self.error_detail.lock()
    }

    /// The shared reading of a run that was started elsewhere. If no task reads the run yet, this
    /// starts one: a replica joins a run once for all its viewers. While a returned receiver exists,
    /// the task counts the run as watched.
    ///
    /// The run was just shown to this caller, whose credentials are good for it now; those that it
    /// is read with may have run out.
    fn watch(
        self: &Arc<Self>,
        upstream: &Client,
        server: Option<ServerKind>,
        thread_id: &str,
        record: RunRecord,
        source: Source,
    ) -> (Arc<Run>, watch::Receiver<()>) {
        let (run, listener, driver) =
            self.find_or_join(upstream, server, thread_id, record, source);
        if let Some((driver, reading)) = driver {
            self.tasks.spawn(driver.drive(reading, None));
        }
        (run, listener)
    }

    /// The same, without starting the driver of a run that was not read yet.
    fn find_or_join(
        self: &Arc<Self>,
        upstream: &Client,
        server: Option<ServerKind>,
        thread_id: &str,
        record: RunRecord,
        source: Source,
    ) -> (Arc<Run>, watch::Receiver<()>, Option<(Driver, Reading)>) {
        let key = RunKey::of(upstream, thread_id, &record.id);
        if let Some((run, listener)) = self.live.find(&key, upstream) {
            return (run, listener, None);
        }
        let mut feed = Feed::joined(thread_id, &record);
        let (run, bell) = self.open(thread_id, &mut feed, Past::Replaying);
        let listener = bell.subscribe();
        if let Some((run, listener)) = self.live.find_or_list(key, upstream, &run) {
            return (run, listener, None);
        }
        let shared = Arc::clone(self);
        let read = Arc::clone(&run);
        let reading = Reading::joined(feed, record, server, source, Instant::now());
        let driver = Driver::new(upstream.clone(), read, bell, shared, Origin::Joined);
        (run, listener, Some((driver, reading)))
    }
}

// === impl Live ===

impl Live {
    /// A run that is being read, for one to whom the upstream has just shown its thread. Its driver
    /// goes on with this one's credentials: those that it has may have run out. While the receiver
    /// is kept, the run is wanted.
    fn find(&self, key: &RunKey, upstream: &Client) -> Option<(Arc<Run>, watch::Receiver<()>)> {
        found(&mut self.lock(), key, upstream)
    }

    /// The same; without such a run, this one is listed.
    fn find_or_list(
        &self,
        key: RunKey,
        upstream: &Client,
        run: &Arc<Run>,
    ) -> Option<(Arc<Run>, watch::Receiver<()>)> {
        let mut live = self.lock();
        let found = found(&mut live, &key, upstream);
        if found.is_none() {
            live.insert(key, Listed::new(run));
        }
        found
    }

    fn list(&self, key: RunKey, run: &Arc<Run>) {
        let mut live = self.lock();
        if !live.get(&key).is_some_and(|listed| Arc::ptr_eq(&listed.what, run)) {
            live.insert(key, Listed::new(run));
        }
    }

    /// The credentials of the last who came to a run, once.
    fn take_fresh(&self, key: &RunKey, run: &Arc<Run>) -> Option<Client> {
        let mut live = self.lock();
        live.get_mut(key).filter(|listed| Arc::ptr_eq(&listed.what, run))?.fresh_upstream.take()
    }

    fn lock(&self) -> Guard<'_, HashMap<RunKey, Listed<Run>>> {
        self.0.lock()
    }
}

/// Under the lock no driver decides that nobody reads its run.
fn found(
    live: &mut HashMap<RunKey, Listed<Run>>,
    key: &RunKey,
    upstream: &Client,
) -> Option<(Arc<Run>, watch::Receiver<()>)> {
    let listed = live.get_mut(key).filter(|listed| listed.what.is_driven())?;
    listed.fresh_upstream = Some(upstream.clone());
    Some((Arc::clone(&listed.what), listed.what.bell()))
}

// === impl Threads ===

impl Threads {
    fn lock(&self) -> Guard<'_, HashMap<ThreadKey, Listed<Following>>> {
        self.0.lock()
    }
}

// === impl Listed ===

impl<T> Listed<T> {
    fn new(what: &Arc<T>) -> Self {
        Self { what: Arc::clone(what), fresh_upstream: None }
    }
}

// === impl RunKey ===

impl RunKey {
    fn of(upstream: &Client, thread_id: &str, run_id: &str) -> Self {
        Self {
            upstream: upstream.base().to_string(),
            thread_id: thread_id.to_owned(),
            run_id: run_id.to_owned(),
        }
    }
}
