//! The runs that this replica reads: one task and one upstream connection each, any number of
//! readers; and the threads that it follows, one task each.
//!
//! ```text
//!  upstream::Body --> driver (Feed: decode, translate) --> books { view, log } --> RunReader, ..
//!                        ^                                        bell rings -->   each pulls
//!                        +-- ends with its run, at shutdown, or when the last reader leaves
//! ```
//! The driver never waits for a reader. The log is bounded in bytes; a reader that falls off it
//! is brought back from the view, which is the one that the translator keeps. Who joins late is
//! told the view too, never the history.

mod answers;
mod attach;
mod batch;
mod books;
mod capture;
mod driver;
mod ending;
mod event_id;
mod feed;
mod follow;
mod fork;
mod log;
mod reader;
mod retry;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use answers::answered_now;
pub use attach::{AtShutdown, FollowError, ThreadReader};
pub use batch::{Batch, Events};
pub use capture::{Fault, translate};
pub use driver::LINGER;
pub use event_id::{EventId, Mark, NotAnEventId};
pub use feed::Feed;
pub use fork::{ForkError, fork_point};
pub use reader::{INTERNAL_ERROR, READER_TOO_SLOW, RunReader};
pub use retry::UPSTREAM_PATIENCE;

use crate::langgraph::{ErrorDetail, RunRecord, ServerKind};
use crate::metrics::{Metrics, Origin};
use crate::upstream::{Caller, Client, Error, RunFilter, RunStream};
use books::{Run, Standing};
use driver::{Driver, Source};
use follow::Following;
use reader::Told;

/// The code of a run whose stream or record cannot be understood.
pub const UPSTREAM_LOST: &str = "upstream_lost";

/// The code of a run that was out of sight for too long.
pub const UPSTREAM_UNAVAILABLE: &str = "upstream_unavailable";

/// The code of a run that the server has no more, as little as its thread.
pub const RUN_GONE: &str = "run_gone";

/// The code of a stream that ends because the gateway does.
pub const GATEWAY_SHUTDOWN: &str = "gateway_shutdown";

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
    threads: Mutex<HashMap<ThreadKey, Arc<Following>>>,
    tasks: TaskTracker,
    log_bytes: usize,
    owners: OwnerPolicy,
    error_detail: RwLock<ErrorDetail>,
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

/// A run of one upstream: another may be a copy of it, with its ids.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RunKey {
    upstream: String,
    run_id: String,
}

/// The runs being read.
#[derive(Debug, Default)]
struct Live(Mutex<HashMap<RunKey, Arc<Run>>>);

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
            threads: Mutex::default(),
            tasks: TaskTracker::new(),
            log_bytes,
            owners,
            error_detail: RwLock::default(),
            metrics,
            shutdown,
        }))
    }

    /// Tells so much of why a run failed, from now on.
    pub fn tell(&self, detail: ErrorDetail) {
        *self.0.error_detail.write().unwrap_or_else(PoisonError::into_inner) = detail;
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
        let feed = Feed::new(thread_id, run_id.as_deref(), Some(name));
        let (run, bell) = self.0.open(thread_id, feed, Standing::Complete);
        let (owner, left) = match self.0.owners {
            OwnerPolicy::Continue => (None, None),
            OwnerPolicy::Cancel { grace } => {
                let (owner, left) = oneshot::channel();
                (Some(owner), Some((left, grace)))
            }
        };
        let reader = RunReader::of_owner(Arc::clone(&run), owner);
        let shared = Arc::clone(&self.0);
        let driver = Driver::new(upstream, server, run, bell, shared, Origin::Started).owned(left);
        self.0.tasks.spawn(driver.drive(Source::Started(body)));
        reader
    }

    /// One more reader of a run, from where the run is; `None` if it is not being read. That who
    /// reads it may do so is taken for granted.
    pub fn attach(&self, upstream: &Client, run_id: &str) -> Option<RunReader> {
        let key = RunKey::of(upstream, run_id);
        self.0.read_here(&key, |run| Some(RunReader::from_here(run, Told::Nothing)))
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
        let key = RunKey::of(upstream, &run.id);
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
        if let Some(run) = self.0.live.lock().get(key) {
            run.books().is_stopped = is_stopped;
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
        feed: Feed,
        standing: Standing,
    ) -> (Arc<Run>, Arc<watch::Sender<()>>) {
        let bell = Arc::new(watch::Sender::new(()));
        let (weak, metrics) = (Arc::downgrade(&bell), self.metrics.clone());
        let run = Run::new(thread_id, feed, self.log_bytes, standing, weak, metrics);
        (Arc::new(run), bell)
    }

    /// A reader of a run that is being read here.
    fn read_here(
        &self,
        key: &RunKey,
        begin: impl FnOnce(Arc<Run>) -> Option<RunReader>,
    ) -> Option<RunReader> {
        // Under the lock no driver decides that nobody reads its run.
        let live = self.live.lock();
        begin(Arc::clone(live.get(key).filter(|run| run.is_driven())?))
    }

    fn error_detail(&self) -> ErrorDetail {
        *self.error_detail.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run of others as it is being read, by a new task if nobody reads it yet: "one upstream
    /// join per run and replica, however many watch". With it comes a receiver of its bell, for the
    /// task to know that it is wanted.
    ///
    /// The run was just shown to this caller, whose credentials are good for it now; those that it
    /// is read with may have run out.
    fn watch(
        self: &Arc<Self>,
        upstream: &Client,
        server: Option<ServerKind>,
        thread_id: &str,
        record: RunRecord,
        source: fn(RunRecord) -> Source,
    ) -> (Arc<Run>, watch::Receiver<()>) {
        let key = RunKey::of(upstream, &record.id);
        let mut live = self.live.lock();
        if let Some(run) = live.get(&key).filter(|run| run.is_driven()) {
            run.books().fresh_upstream = Some(upstream.clone());
            return (Arc::clone(run), run.bell());
        }
        let feed = Feed::joined(thread_id, &record);
        let (run, bell) = self.open(thread_id, feed, Standing::CatchingUp);
        live.insert(key, Arc::clone(&run));
        drop(live);
        let listener = bell.subscribe();
        let shared = Arc::clone(self);
        let read = Arc::clone(&run);
        let driver = Driver::new(upstream.clone(), server, read, bell, shared, Origin::Joined);
        self.tasks.spawn(driver.drive(source(record)));
        (run, listener)
    }

    fn threads(&self) -> MutexGuard<'_, HashMap<ThreadKey, Arc<Following>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Live ===

impl Live {
    fn lock(&self) -> MutexGuard<'_, HashMap<RunKey, Arc<Run>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl RunKey ===

impl RunKey {
    fn of(upstream: &Client, run_id: &str) -> Self {
        Self { upstream: upstream.base().to_string(), run_id: run_id.to_owned() }
    }
}
