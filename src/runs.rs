//! The runs that this replica reads.
//!
//! Each run has one task (the driver), one upstream connection, and any number of readers.
//!
//! ```text
//!  upstream::Body --> driver { Reading { RunDecoder } --> Publisher { Audience, .. } }
//!                                                                         |
//!                                           Run { log, keyframe }  <------+  one for each audience
//!                                                     |  notifies
//!                                                     v
//!                                                RunReader, ..  each pulls
//! ```
//! The viewers with the same options of `[emit]` are an audience. Each audience has a filter, a log
//! and a keyframe; all share the reading.
//!
//! The driver owns the reading and the decoder. It ends with its run, at shutdown, or when the last
//! reader leaves. It never waits for a reader, and no reader waits for another. The log is bounded
//! in bytes. A reader that joins late, or falls off the log, is sent a keyframe: the run frozen at a
//! position of the log. It is never sent the history.
//!
//! From upstream to reader:
//! - `start`: the request that starts a run, and whether it did if it was interrupted.
//! - `driver`: the task of a run. `reading`: how a run is read, as a state machine without IO.
//! - `decoder`: bytes in, events out. `retry`: pauses between attempts. `ending`: how a run ended.
//! - `audience`: what the viewers with the same options are sent. `publisher`: publishes a reading to
//!   its audiences.
//! - `published`: what readers see of a run. `log`: its newest events. `keyframe`: a frozen run.
//! - `reader`: one reader. `batch`: events with their keys. `event_id`: the ids of events.
//!
//! Beside it:
//! - `live`: the runs being read, by key. `credential_ring`: whose credentials they are read with.
//! - `idle`: an idle thread as a run that is over. `stored_decisions`: stored answers to its questions.
//! - `recorder`: writes the streams of runs to files. `capture`: reads such a file.

mod audience;
mod batch;
mod capture;
mod credential_ring;
mod decoder;
mod driver;
mod ending;
mod event_id;
mod idle;
mod keyframe;
mod live;
mod log;
mod published;
mod publisher;
mod reader;
mod reading;
mod recorder;
mod retry;
mod start;
mod stored_decisions;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use batch::{Batch, Events};
pub use capture::{IncompleteCapture, translate};
pub use decoder::RunDecoder;
pub use driver::LINGER;
pub use event_id::{EventId, NotAnEventId};
pub use reader::RunReader;
pub use recorder::{DEFAULT_BYTES, DEFAULT_FILES, Recorder, Recording};
pub use retry::UPSTREAM_PATIENCE;

pub(crate) use batch::ENCODINGS;
pub(crate) use credential_ring::{Attendance, CredentialRing, Lender, still_refused};
pub(crate) use event_id::EventKey;
pub(crate) use idle::{IdleThread, conversation};
pub(crate) use published::Run;
pub(crate) use start::StartError;
pub(crate) use stored_decisions::stored_decisions;

use crate::metrics::{Metrics, Origin};
use crate::sync::{self, Mutex};
use crate::upstream::{Affinity, Body, Client, Error, RunStream, Seed};
use driver::{Driver, DriverParts};
use live::{Attached, Live, RunKey};
use published::{Broadcast, History, RefusalCutoff};
use publisher::Publisher;
use reader::Baseline;
use reading::{Reading, Source};
use start::Begun;
use threadway_translate::langgraph::{Capabilities, ErrorDetail, RunRecord, RunRequest, RunStatus};
use threadway_translate::run::EmitOptions;

/// How many bytes of a run's events are kept for slow readers, unless configured otherwise: about
/// 3,000 tokens, or half a minute of a fast model. A slower reader is sent a keyframe, which costs
/// about as much as its messages do.
pub const DEFAULT_LOG_BYTES: usize = 1024 * 1024;

/// The runs that this replica reads. Clones share them.
#[derive(Clone, Debug)]
pub struct Runs {
    shared: Arc<Shared>,
    /// The options that limit what viewers are shown, for runs read through this handle.
    emit: EmitOptions,
}

/// How a run continues after its client has lost its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnerPolicy {
    /// The run goes on.
    #[default]
    Continue,
    /// The run is cancelled once it has had no reader in this gateway for `grace`. The time begins
    /// anew whenever the last reader leaves.
    Cancel {
        /// Long enough for a page to reload, or a phone to find its network again.
        grace: Duration,
    },
}

/// A run to be started.
pub(crate) struct RunStart<'a> {
    pub(crate) server: Capabilities,
    pub(crate) thread_id: &'a str,
    /// The run's name by its client.
    pub(crate) name: &'a str,
    /// The token in the request. Without one an interrupted request is not looked up.
    pub(crate) token: Option<String>,
    pub(crate) request: RunRequest,
    pub(crate) begins: Begins,
}

/// How a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begins {
    /// With an input, or at a checkpoint.
    Anew,
    /// It goes on after a question.
    AfterQuestion,
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
    /// Ends the reading of all runs.
    shutdown: CancellationToken,
}

/// A run that somebody else started. The upstream has just shown it to this caller, so the caller's
/// credentials are valid; those that the run is read with may have expired.
struct JoinedRun<'a> {
    upstream: &'a Client,
    server: Capabilities,
    thread_id: &'a str,
    record: RunRecord,
    source: Source,
    emit: EmitOptions,
}

/// A run of which nothing was read.
struct Opened {
    /// The run, as its first audience sees it.
    run: Arc<Run>,
    publisher: Publisher,
}

// === impl Runs ===

impl Runs {
    /// `log_bytes` of each run's events are kept for slow readers. `shutdown` ends the reading of
    /// all runs.
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
        Self { shared, emit: EmitOptions::default() }
    }

    /// The same runs, shown to viewers with these options.
    #[must_use]
    pub(crate) fn with_emit(&self, emit: EmitOptions) -> Self {
        Self { shared: Arc::clone(&self.shared), emit }
    }

    /// Sets how much of a run's error clients see, for errors from now on.
    pub fn set_error_detail(&self, detail: ErrorDetail) {
        *self.shared.error_detail.lock() = detail;
    }

    /// Records each run whose reading begins from now on. Only the first call has an effect.
    pub fn record(&self, recorder: Recorder) {
        self.shared.recorder.get_or_init(|| recorder);
    }

    /// Starts a run, and reads it as [`started`](Self::started) does. If the request is interrupted,
    /// the run is looked up, and read from its beginning if it has started.
    ///
    /// A caller that is dropped before the response counts as an owner that has left. The request
    /// goes on without it, except at shutdown. `held` is dropped when the server has answered and
    /// the run can be found.
    pub(crate) async fn start(
        &self,
        upstream: &Client,
        run: RunStart<'_>,
        held: impl Send + 'static,
    ) -> Result<RunReader, StartError> {
        let RunStart { server, thread_id, name, token, request, begins } = run;
        let (mut caller, response) = oneshot::channel();
        let (runs, upstream) = (self.clone(), upstream.clone());
        let (thread_id, name) = (thread_id.to_owned(), name.to_owned());
        sync::spawn(&self.shared.tasks, async move {
            let abandoned = async {
                runs.shared.shutdown.cancelled().await;
                caller.closed().await;
            };
            let sent =
                start::RunStartRequest { server, thread_id: &thread_id, token, request: &request };
            let begun = tokio::select! {
                biased;
                begun = sent.begun(&upstream) => begun,
                () = abandoned => return,
            };
            let started = begun.map(|begun| match begun {
                Begun::Stream(stream) => {
                    let decoder =
                        RunDecoder::new(&thread_id, stream.run_id.as_deref(), Some(&name));
                    runs.own_stream(upstream, server, decoder, begins, stream)
                }
                Begun::Found(run_id) => {
                    let decoder = RunDecoder::new(&thread_id, Some(&run_id), Some(&name));
                    let found = |decoder| (Reading::found(decoder, server, Seed::random()), None);
                    runs.own(upstream, decoder, begins, None, found)
                }
            });
            // The run is listed now, so that a task that waits for `held` finds it.
            drop(held);
            // If the caller is gone, the reader is dropped.
            let _ = caller.send(started);
        });
        // The task always sends a response, unless it panics.
        let failed = |_| {
            let error = Error::Interrupted { reason: "the task failed".to_owned() };
            Err(StartError::Unknown(error))
        };
        response.await.unwrap_or_else(failed)
    }

    /// Reads a run that was just started, for a client that calls it `name`. `stream` is the
    /// server's response.
    ///
    /// If the response has no run id, the stream gives it. The run is read until it ends or its last
    /// reader is dropped. Upstream the run goes on either way, unless the [`OwnerPolicy`] says
    /// otherwise.
    pub fn started(
        &self,
        upstream: Client,
        server: Capabilities,
        thread_id: &str,
        name: &str,
        stream: RunStream,
    ) -> RunReader {
        let decoder = RunDecoder::new(thread_id, stream.run_id.as_deref(), Some(name));
        self.own_stream(upstream, server, decoder, Begins::Anew, stream)
    }

    fn own_stream(
        &self,
        upstream: Client,
        server: Capabilities,
        decoder: RunDecoder,
        begins: Begins,
        stream: RunStream,
    ) -> RunReader {
        let RunStream { run_id: _, date: _, body, affinity } = stream;
        self.own(upstream, decoder, begins, affinity, |decoder| {
            (Reading::started(decoder, server, Seed::random(), Instant::now()), Some(body))
        })
    }

    /// Reads a run for the client that has started it.
    fn own(
        &self,
        upstream: Client,
        decoder: RunDecoder,
        begins: Begins,
        affinity: Option<Affinity>,
        begin: impl FnOnce(RunDecoder) -> (Reading, Option<Body>),
    ) -> RunReader {
        let mut decoder = decoder.with_messages_key(upstream.messages_key().clone());
        decoder = decoder.with_rendering(self.emit.rendering());
        if begins == Begins::AfterQuestion {
            decoder = decoder.resuming();
        }
        let credentials = Arc::new(CredentialRing::new(upstream.clone(), true));
        let Opened { run, publisher } =
            self.shared.open(&mut decoder, History::Complete, &credentials, self.emit);
        let (mut reading, body) = begin(decoder);
        let reader = RunReader::for_owner(Arc::clone(&run)).for_caller(&upstream);
        let shared = Arc::clone(&self.shared);
        let origin = Origin::Started;
        let mut driver =
            Driver::new(DriverParts { upstream, credentials, publisher, shared, origin, affinity });
        sync::spawn(&self.shared.tasks, async move { driver.drive(&mut reading, body).await });
        reader
    }

    /// Adds a reader to a run that is being read, from now on. `None` if it is not being read. The
    /// upstream must have shown the thread to this caller just before: that is not checked here.
    pub fn attach(&self, upstream: &Client, thread_id: &str, run_id: &str) -> Option<RunReader> {
        let key = RunKey::of(upstream, thread_id, run_id, self.emit.rendering());
        let (run, _wanted) = self.shared.live.find(&key, self.emit)?;
        Some(RunReader::new(run).for_caller(upstream))
    }

    /// A reader of a thread's run that continues after an event; `None` if the run is not being
    /// read. The upstream has just shown the thread to this caller.
    pub(crate) fn after(
        &self,
        upstream: &Client,
        thread_id: &str,
        event: &EventId,
    ) -> Option<RunReader> {
        let key = RunKey::of(upstream, thread_id, event.run_id(), self.emit.rendering());
        let (run, _wanted) = self.shared.live.find(&key, self.emit)?;
        Some(RunReader::after(run, event.clone()).for_caller(upstream))
    }

    /// Reads a run, after an event or from now on. The upstream has just shown the run to this
    /// caller.
    pub(crate) async fn read(
        &self,
        upstream: &Client,
        server: Capabilities,
        thread_id: &str,
        record: RunRecord,
        after: Option<EventId>,
    ) -> Result<RunReader, Error> {
        let record = self.full_record(upstream, thread_id, record).await?;
        let baseline = if record.status == RunStatus::Pending {
            Baseline::Preview(idle::preview(upstream, thread_id, &record, self.emit).await?)
        } else {
            Baseline::Empty
        };
        let source = Source::after(&record, server, after.as_ref());
        let emit = self.emit;
        let joined = JoinedRun { upstream, server, thread_id, record, source, emit };
        let (run, _wanted) = self.shared.watch(joined);
        let reader = match after {
            Some(event) => RunReader::after(run, event),
            None => RunReader::from_now(run, baseline),
        };
        Ok(reader.for_caller(upstream))
    }

    /// The run of a record. Its reading begins if no task reads it, and goes on while the
    /// subscription is kept. The upstream has just shown the run to this caller.
    pub(crate) fn watch(
        &self,
        upstream: &Client,
        server: Capabilities,
        thread_id: &str,
        record: RunRecord,
    ) -> Attached {
        let (source, emit) = (Source::after(&record, server, None), self.emit);
        self.shared.watch(JoinedRun { upstream, server, thread_id, record, source, emit })
    }

    /// An idle thread as a run that is over. `server` is awaited only if what the upstream can do
    /// decides how the thread is shown.
    pub(crate) async fn idle(
        &self,
        upstream: &Client,
        server: impl Future<Output = Capabilities>,
        thread_id: &str,
        thread: IdleThread,
    ) -> Result<Arc<Run>, Error> {
        let (metrics, detail) = (self.shared.metrics.clone(), self.shared.error_detail());
        let options = idle::Options { metrics, detail, emit: self.emit };
        idle::idle(upstream, server, thread_id, thread, options).await
    }

    /// The record of a listed run, with the input and options that lists leave out. They decide how
    /// the run is read, and the input is all that a pending run shows. For a run that is being read
    /// already the upstream is not asked, unless the run is pending.
    pub(crate) async fn full_record(
        &self,
        upstream: &Client,
        thread_id: &str,
        listed: RunRecord,
    ) -> Result<RunRecord, Error> {
        let key = RunKey::of(upstream, thread_id, &listed.id, self.emit.rendering());
        if listed.status != RunStatus::Pending && self.shared.live.has(&key) {
            return Ok(listed);
        }
        upstream.whole_run(thread_id, listed).await
    }

    /// The threads with a run that is being read and that its client calls `name`, at most `limit`.
    /// They may belong to any caller. Before one is used, the upstream has to show it to this
    /// caller.
    pub(crate) fn threads_with(&self, upstream: &Client, name: &str, limit: usize) -> Vec<String> {
        // The list is unlocked again before the names are compared, which locks each run.
        let runs = self.shared.live.of_upstream(&upstream.base().to_string());
        let named = runs.iter().filter(|run| run.is_called(name));
        let mut threads: Vec<_> = named.map(|run| run.thread_id.clone()).collect();
        threads.dedup();
        threads.truncate(limit);
        threads
    }

    /// Notes whether a client is stopping a run through this gateway. The run then ends as
    /// cancelled, even if its record says that it failed.
    pub(crate) fn note_stop(
        &self,
        upstream: &Client,
        thread_id: &str,
        run_id: &str,
        is_stopped: bool,
    ) {
        // The run may be read in several renderings.
        for run in self.shared.live.readings(upstream, thread_id, run_id) {
            run.note_stop(is_stopped);
        }
    }

    /// Runs a task beside the runs. [`drained`](Self::drained) waits for it, and shutdown ends it.
    #[track_caller]
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let shutdown = self.shared.shutdown.clone();
        // On its own: each future that takes it as a value would have room for it twice.
        let task = Box::pin(task);
        sync::spawn(&self.shared.tasks, async move {
            shutdown.run_until_cancelled(task).await;
        });
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    pub(crate) fn is_shutting_down(&self) -> bool {
        self.shared.shutdown.is_cancelled()
    }

    /// Waits until the gateway shuts down. Cancel safe.
    pub(crate) async fn shut_down(&self) {
        self.shared.shutdown.cancelled().await;
    }

    /// The number of tasks: one for each run that is read, and for each thread that is followed.
    pub fn count(&self) -> usize {
        self.shared.tasks.len()
    }

    /// Waits until all tasks have ended.
    pub async fn drained(&self) {
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

// === impl Shared ===

impl Shared {
    /// A run of which nothing was read, for viewers with these options.
    fn open(
        &self,
        decoder: &mut RunDecoder,
        history: History,
        credentials: &Arc<CredentialRing<RefusalCutoff>>,
        emit: EmitOptions,
    ) -> Opened {
        let (thread_id, metrics) = (decoder.thread_id(), self.metrics.clone());
        let broadcast = Broadcast::new(thread_id, emit.rendering(), self.log_bytes, metrics);
        let broadcast = Arc::new(broadcast.read_with(Arc::clone(credentials)));
        let (run, publisher) = Publisher::begin(&broadcast, emit, decoder, history);
        Opened { run, publisher }
    }

    fn error_detail(&self) -> ErrorDetail {
        *self.error_detail.lock()
    }

    /// The shared reading of a run, which starts if no task reads the run: a replica joins a run
    /// once for all its viewers. The run counts as watched while a returned subscription exists.
    fn watch(self: &Arc<Self>, joined: JoinedRun<'_>) -> Attached {
        let (attached, driver) = self.find_or_join(joined);
        if let Some((mut driver, mut reading)) = driver {
            sync::spawn(&self.tasks, async move { driver.drive(&mut reading, None).await });
        }
        attached
    }

    /// The reading of a run, and the driver of a new one, which is not started yet.
    fn find_or_join(
        self: &Arc<Self>,
        joined: JoinedRun<'_>,
    ) -> (Attached, Option<(Driver, Reading)>) {
        let JoinedRun { upstream, server, thread_id, record, source, emit } = joined;
        let key = RunKey::of(upstream, thread_id, &record.id, emit.rendering());
        if let Some(attached) = self.live.find(&key, emit) {
            return (attached, None);
        }
        let messages_key = upstream.messages_key().clone();
        let decoder = RunDecoder::joined(thread_id, &record).with_messages_key(messages_key);
        let mut decoder = decoder.with_rendering(emit.rendering());
        if record.resumes || !record.answers.is_empty() {
            decoder = decoder.resuming();
        }
        let credentials = Arc::new(CredentialRing::new(upstream.clone(), false));
        let Opened { run, publisher } =
            self.open(&mut decoder, History::Replaying, &credentials, emit);
        let wanted = run.broadcast.subscribe();
        if let Some(attached) = self.live.find_or_list(key, &run.broadcast, emit) {
            return (attached, None);
        }
        let reading =
            Reading::joined(decoder, record, server, source, Seed::random(), Instant::now());
        let driver = Driver::new(DriverParts {
            upstream: upstream.clone(),
            credentials,
            publisher,
            shared: Arc::clone(self),
            origin: Origin::Joined,
            affinity: None,
        });
        ((run, wanted), Some((driver, reading)))
    }
}
