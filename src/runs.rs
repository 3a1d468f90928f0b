//! The runs that this replica reads.
//!
//! Each run has one task (the driver), one upstream connection, and any number of readers.
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

mod batch;
mod capture;
mod driver;
mod ending;
mod event_id;
mod feed;
mod kept;
mod log;
mod published;
mod reader;
mod reading;
mod recorder;
mod rest;
mod retry;
mod standing;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use batch::{Batch, ENCODINGS, Events};
pub use capture::{Fault, translate};
pub use driver::LINGER;
pub use event_id::{EventId, Mark, NotAnEventId};
pub use feed::Feed;
pub use reader::RunReader;
pub use recorder::{DEFAULT_BYTES, DEFAULT_FILES, Recorder, Recording};
pub use retry::UPSTREAM_PATIENCE;

pub(crate) use kept::read as kept_answers;
pub(crate) use published::Run;
pub(crate) use rest::Rested;
pub(crate) use retry::doubled;

use crate::metrics::{Metrics, Origin};
use crate::sync::{Guard, Mutex};
use crate::upstream::{Client, Error, RunStream};
use driver::Driver;
use published::Past;
use reader::Told;
use reading::{Reading, Source};
use threadway_translate::langgraph::{
    ErrorDetail, MessagesKey, RunRecord, RunRequest, RunStatus, ServerKind,
};
use threadway_translate::run::Emit;

/// How much of a run is kept for readers that are slower than it: some 3,000 tokens, half a minute
/// of a fast model. Who is further behind gets the view, which costs about what its messages do.
pub const DEFAULT_LOG_BYTES: usize = 1024 * 1024;

/// The runs that this replica reads. Clones share them.
#[derive(Clone, Debug)]
pub struct Runs {
    shared: Arc<Shared>,
    /// What viewers are shown of the runs that are read through this handle.
    emit: Emit,
}

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
    tasks: TaskTracker,
    log_bytes: usize,
    owners: OwnerPolicy,
    error_detail: Mutex<ErrorDetail>,
    recorder: OnceLock<Recorder>,
    metrics: Metrics,
    /// Cancelled when the runs are to be let go of.
    shutdown: CancellationToken,
}

/// A run of a thread of one upstream: another upstream may have a copy of it, with its ids. Whoever
/// finds a run by its key was shown the thread; the run's id alone opens nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RunKey {
    upstream: String,
    thread_id: String,
    run_id: String,
    /// Under which key its conversation is read. This field and the next are the last, so that all
    /// readings of a run are neighbours.
    messages_key: MessagesKey,
    /// What its viewers are shown.
    emit: Emit,
}

/// The runs being read.
#[derive(Debug, Default)]
struct Live(Mutex<BTreeMap<RunKey, Listed>>);

/// A run that others can come to.
#[derive(Debug)]
struct Listed {
    run: Arc<Run>,
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
        let shared = Arc::new(Shared {
            live: Live::default(),
            tasks: TaskTracker::new(),
            log_bytes,
            owners,
            error_detail: Mutex::default(),
            recorder: OnceLock::new(),
            metrics,
            shutdown,
        });
        Self { shared, emit: Emit::default() }
    }

    /// The same runs, of which viewers are shown what these options say.
    ///
    /// A run that is read with two sets of options is read from upstream twice.
    #[must_use]
    pub(crate) fn showing(&self, emit: Emit) -> Self {
        Self { shared: Arc::clone(&self.shared), emit }
    }

    /// Tells so much of why a run failed, from now on.
    pub fn tell(&self, detail: ErrorDetail) {
        *self.shared.error_detail.lock() = detail;
    }

    /// Records each run that is read from now on. The first recorder stays.
    pub fn record(&self, recorder: Recorder) {
        self.shared.recorder.get_or_init(|| recorder);
    }

    /// Starts a run on a thread, for a client that calls it `name`, and reads it as
    /// [`started`](Self::started) does.
    ///
    /// A caller that leaves before the response is an owner that has left. Only at shutdown is a
    /// start given up that nobody waits for any more. `held` is dropped when the server has
    /// answered and the run can be found.
    pub(crate) async fn start(
        &self,
        upstream: &Client,
        server: Option<ServerKind>,
        thread_id: &str,
        name: &str,
        request: RunRequest,
        held: impl Send + 'static,
    ) -> Result<RunReader, Error> {
        let (mut asked, answer) = oneshot::channel();
        let (runs, upstream) = (self.clone(), upstream.clone());
        let (thread_id, name) = (thread_id.to_owned(), name.to_owned());
        self.shared.tasks.spawn(async move {
            let abandoned = async {
                runs.shared.shutdown.cancelled().await;
                asked.closed().await;
            };
            let stream = tokio::select! {
                biased;
                stream = upstream.start_run(&thread_id, &request) => stream,
                () = abandoned => return,
            };
            let started =
                stream.map(|stream| runs.started(upstream, server, &thread_id, &name, stream));
            // Now the run is listed: who waited for this finds it.
            drop(held);
            // Where nobody waits, the reader is dropped with it.
            let _ = asked.send(started);
        });
        // The task answers, unless it panics.
        let failed = |_| Err(Error::Interrupted { reason: "the task failed".to_owned() });
        answer.await.unwrap_or_else(failed)
    }

    /// Reads a run whose start the server has just answered, for a client that calls it `name`.
    ///
    /// Without a run id in the response the one in the stream counts. The run is read until it
    /// ends or its last reader is dropped; upstream it goes on either way, unless the policy for
    /// owners says otherwise.
    pub fn started(
        &self,
        upstream: Client,
        server: Option<ServerKind>,
        thread_id: &str,
        name: &str,
        stream: RunStream,
    ) -> RunReader {
        let RunStream { run_id, date: _, body } = stream;
        let feed = Feed::new(thread_id, run_id.as_deref(), Some(name));
        let mut feed = feed.under(upstream.messages_key().clone()).showing(self.emit);
        let (run, bell) = self.shared.open(thread_id, &mut feed, Past::Kept);
        let reading = Reading::started(feed, server, Instant::now());
        let (owner, left) = match self.shared.owners {
            OwnerPolicy::Continue => (None, None),
            OwnerPolicy::Cancel { grace } => {
                let (owner, left) = oneshot::channel();
                (Some(owner), Some((left, grace)))
            }
        };
        let reader = RunReader::of_owner(Arc::clone(&run), owner);
        let shared = Arc::clone(&self.shared);
        let driver = Driver::new(upstream, run, bell, shared, Origin::Started).owned(left);
        self.shared.tasks.spawn(driver.drive(reading, Some(body)));
        reader
    }

    /// One more reader of a thread's run, from where the run is; `None` if it is not being read.
    /// The upstream has just shown the thread to this caller.
    pub fn attach(&self, upstream: &Client, thread_id: &str, run_id: &str) -> Option<RunReader> {
        let (run, _wanted) =
            self.shared.live.find(&RunKey::of(upstream, thread_id, run_id, self.emit), upstream)?;
        Some(RunReader::from_here(run, Told::Nothing))
    }

    /// A reader of a thread's run that goes on after an event; `None` if the run is not being read
    /// here. The upstream has just shown the thread to this caller.
    pub(crate) fn after(
        &self,
        upstream: &Client,
        thread_id: &str,
        event: &EventId,
    ) -> Option<RunReader> {
        let key = RunKey::of(upstream, thread_id, event.run_id(), self.emit);
        let (run, _wanted) = self.shared.live.find(&key, upstream)?;
        Some(RunReader::behind(run, event.clone()))
    }

    /// Reads a run that the upstream has just shown to this caller: after an event, or as it
    /// stands.
    pub(crate) async fn read(
        &self,
        upstream: &Client,
        server: Option<ServerKind>,
        thread_id: &str,
        record: RunRecord,
        after: Option<EventId>,
    ) -> Result<RunReader, Error> {
        let record = self.whole(upstream, thread_id, record).await?;
        let told = if record.status == RunStatus::Pending {
            Told::Prelude(rest::prelude(upstream, thread_id, &record, self.emit).await?)
        } else {
            Told::Nothing
        };
        let source = Source::after(&record, server, after.as_ref());
        let (run, _wanted) =
            self.shared.watch(upstream, server, thread_id, record, source, self.emit);
        Ok(match after {
            Some(event) => RunReader::behind(run, event),
            None => RunReader::from_here(run, told),
        })
    }

    /// The run of a record, which is read from now on if it was not; while the receiver is kept, it
    /// is. The upstream has just shown it to this caller.
    pub(crate) fn watch(
        &self,
        upstream: &Client,
        server: Option<ServerKind>,
        thread_id: &str,
        record: RunRecord,
    ) -> (Arc<Run>, watch::Receiver<()>) {
        let source = Source::after(&record, server, None);
        self.shared.watch(upstream, server, thread_id, record, source, self.emit)
    }

    /// A thread at rest as a run that is over, given its state and the newest run that is over.
    pub(crate) async fn at_rest(
        &self,
        upstream: &Client,
        thread_id: &str,
        rested: Rested,
        last: Option<&RunRecord>,
    ) -> Result<Arc<Run>, Error> {
        let detail = self.shared.error_detail();
        rest::at_rest(&self.shared.metrics, upstream, thread_id, rested, last, detail, self.emit)
            .await
    }

    /// A run of a list, with what it was asked for where that decides how it is read: not of one
    /// that is read here already, unless it waits for its turn and its input is all there is.
    pub(crate) async fn whole(
        &self,
        upstream: &Client,
        thread_id: &str,
        listed: RunRecord,
    ) -> Result<RunRecord, Error> {
        let key = RunKey::of(upstream, thread_id, &listed.id, self.emit);
        if listed.status != RunStatus::Pending && self.shared.live.find(&key, upstream).is_some() {
            return Ok(listed);
        }
        upstream.whole_run(thread_id, listed).await
    }

    /// The threads with a run that is read here and that its client calls `name`, at most `limit`.
    /// They may be anybody's: the upstream is to be asked whether this caller may see one.
    pub(crate) fn threads_with(&self, upstream: &Client, name: &str, limit: usize) -> Vec<String> {
        // The names are compared when the list is free again: each run is locked for it.
        let runs = self.shared.live.of_upstream(&upstream.base().to_string());
        let named = runs.iter().filter(|run| run.is_called(name));
        let mut threads: Vec<_> = named.map(|run| run.thread_id.clone()).collect();
        threads.dedup();
        threads.truncate(limit);
        threads
    }

    /// Notes whether a run is being stopped through us: it then ends as cancelled, also where its
    /// record says no more than that it failed.
    pub(crate) fn note_stop(
        &self,
        upstream: &Client,
        thread_id: &str,
        run_id: &str,
        is_stopped: bool,
    ) {
        // It may be read with several sets of options.
        for run in self.shared.live.readings(upstream, thread_id, run_id) {
            run.published().is_stopped = is_stopped;
        }
    }

    /// Runs a task that belongs to the runs: [`drained`](Self::drained) waits for it, and shutdown
    /// ends it.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let shutdown = self.shared.shutdown.clone();
        self.shared.tasks.spawn(async move {
            shutdown.run_until_cancelled(task).await;
        });
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    pub(crate) fn is_shutting_down(&self) -> bool {
        self.shared.shutdown.is_cancelled()
    }

    /// How many runs are being read, and threads followed.
    pub fn count(&self) -> usize {
        self.shared.tasks.len()
    }

    /// Waits until no run is being read any more.
    pub async fn drained(&self) {
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
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
        emit: Emit,
    ) -> (Arc<Run>, watch::Receiver<()>) {
        let (run, listener, driver) =
            self.find_or_join(upstream, server, thread_id, record, source, emit);
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
        emit: Emit,
    ) -> (Arc<Run>, watch::Receiver<()>, Option<(Driver, Reading)>) {
        let key = RunKey::of(upstream, thread_id, &record.id, emit);
        if let Some((run, listener)) = self.live.find(&key, upstream) {
            return (run, listener, None);
        }
        let feed = Feed::joined(thread_id, &record).under(upstream.messages_key().clone());
        let mut feed = feed.showing(emit);
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

    /// The readings of a run, each with options of its own.
    fn readings(&self, upstream: &Client, thread_id: &str, run_id: &str) -> Vec<Arc<Run>> {
        let first = RunKey::of(upstream, thread_id, run_id, Emit::MIN);
        // The least of the keys.
        let first = RunKey { messages_key: MessagesKey::default(), ..first };
        let live = self.lock();
        let readings = live.range(&first..).take_while(|(key, _)| key.is_of_run(&first));
        readings.map(|(_, listed)| Arc::clone(&listed.run)).collect()
    }

    /// The runs of an upstream, by their threads.
    fn of_upstream(&self, upstream: &str) -> Vec<Arc<Run>> {
        let live = self.lock();
        let found = live.iter().filter(|(key, _)| key.upstream == upstream);
        found.map(|(_, listed)| Arc::clone(&listed.run)).collect()
    }

    fn list(&self, key: RunKey, run: &Arc<Run>) {
        let mut live = self.lock();
        if !live.get(&key).is_some_and(|listed| Arc::ptr_eq(&listed.run, run)) {
            live.insert(key, Listed::new(run));
        }
    }

    /// The credentials of the last who came to a run, once.
    fn take_fresh(&self, key: &RunKey, run: &Arc<Run>) -> Option<Client> {
        let mut live = self.lock();
        live.get_mut(key).filter(|listed| Arc::ptr_eq(&listed.run, run))?.fresh_upstream.take()
    }

    fn lock(&self) -> Guard<'_, BTreeMap<RunKey, Listed>> {
        self.0.lock()
    }
}

/// Under the lock no driver decides that nobody reads its run.
fn found(
    live: &mut BTreeMap<RunKey, Listed>,
    key: &RunKey,
    upstream: &Client,
) -> Option<(Arc<Run>, watch::Receiver<()>)> {
    let listed = live.get_mut(key).filter(|listed| listed.run.is_driven())?;
    listed.fresh_upstream = Some(upstream.clone());
    Some((Arc::clone(&listed.run), listed.run.bell()))
}

// === impl Listed ===

impl Listed {
    fn new(run: &Arc<Run>) -> Self {
        Self { run: Arc::clone(run), fresh_upstream: None }
    }
}

// === impl RunKey ===

impl RunKey {
    fn of(upstream: &Client, thread_id: &str, run_id: &str, emit: Emit) -> Self {
        Self {
            upstream: upstream.base().to_string(),
            thread_id: thread_id.to_owned(),
            run_id: run_id.to_owned(),
            messages_key: upstream.messages_key().clone(),
            emit,
        }
    }

    fn is_of_run(&self, other: &Self) -> bool {
        let Self { upstream, thread_id, run_id, messages_key: _, emit: _ } = self;
        (upstream, thread_id, run_id) == (&other.upstream, &other.thread_id, &other.run_id)
    }
}
