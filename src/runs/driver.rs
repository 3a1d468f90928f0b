//! The task of one run: reads the upstream's bytes into the run's books until the run is over.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::books::{Run, Standing};
use super::ending::{self, BodyEnd, Ending, State};
use super::feed::Progress;
use super::{GATEWAY_SHUTDOWN, Shared};
use crate::langgraph::{RunRecord, RunStatus, ServerKind};
use crate::run::{Outcome, RunEvent, StreamEnd};
use crate::sse;
use crate::upstream::{Body, Client};

/// After how long a silence a replay is over, where its ids do not tell. It comes as fast as the
/// server can send it, so that its frames are closer together; a run whose tokens are has no
/// silence, and for that there is the next limit. A replay that was taken for over too early is
/// told from its middle on.
pub(super) const QUIET: Duration = Duration::from_millis(10);

/// How long such a replay may take before its readers are told what there is: they look at an
/// empty page till then.
pub(super) const CATCH_UP: Duration = Duration::from_secs(2);

/// After how long a silence a replay is over whose ids are times, and end before the join: a run
/// that is silent itself. A busy Python server sends its store with gaps of 50 ms.
pub(super) const TIMED_QUIET: Duration = Duration::from_millis(250);

/// How long such a replay may take: 100,000 parts take a busy Python server 9 s.
pub(super) const TIMED_CATCH_UP: Duration = Duration::from_secs(30);

/// How often a run that must not be joined is asked for its status, and its thread for its state.
pub(super) const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// How often in a row that may fail before the run is given up.
pub(super) const MAX_STATUS_FAILURES: u32 = 5;

/// Drives one run.
pub(super) struct Driver {
    upstream: Client,
    run: Arc<Run>,
    bell: Arc<watch::Sender<()>>,
    shared: Arc<Shared>,
    /// The id under which the run is listed.
    listed: Option<String>,
    owner: Owner,
}

/// Where a run is read from.
pub(super) enum Source {
    /// The response that started it.
    Started(Body),
    /// Its stream, joined from the beginning as far as that is kept.
    Stream(RunRecord),
    /// Its record and its thread's state: the JavaScript server gives each part of a stream that
    /// is not kept to one reader only, and a join would rob the one who started the run.
    Record(RunRecord),
}

impl Source {
    /// How a live run of others is to be read.
    pub(super) fn of(record: &RunRecord, server: Option<ServerKind>) -> fn(RunRecord) -> Self {
        if record.is_resumable || server == Some(ServerKind::Python) {
            Self::Stream
        } else {
            Self::Record
        }
    }
}

/// Whoever started the run, where the run is to be stopped without it.
enum Owner {
    /// The run goes on without one.
    None,
    Present {
        left: oneshot::Receiver<()>,
        grace: Duration,
    },
    /// It has left, and may come back till then.
    Gone {
        until: Instant,
    },
}

/// Why the reading stopped.
enum Stop {
    Body(BodyEnd),
    /// The last reader has left.
    Unread,
    /// So has the owner, and the run is to be stopped.
    Deserted,
}

// === impl Driver ===

impl Driver {
    pub(super) fn new(
        upstream: Client,
        run: Arc<Run>,
        bell: Arc<watch::Sender<()>>,
        shared: Arc<Shared>,
    ) -> Self {
        let mut driver = Self { upstream, run, bell, shared, listed: None, owner: Owner::None };
        driver.list();
        driver
    }

    /// For a run that is to be stopped this long after its owner has left.
    pub(super) fn owned(mut self, owner: Option<(oneshot::Receiver<()>, Duration)>) -> Self {
        if let Some((left, grace)) = owner {
            self.owner = Owner::Present { left, grace };
        }
        self
    }

    /// Reads the run to its end.
    pub(super) async fn drive(mut self, source: Source) {
        let shutdown = self.shared.shutdown.clone();
        let ending = tokio::select! {
            biased;
            () = shutdown.cancelled() => {
                let message = "the gateway is shutting down; the run goes on in LangGraph";
                let end = StreamEnd::Lost { code: GATEWAY_SHUTDOWN, message: message.to_owned() };
                Some(end.into())
            }
            ending = self.follow(source) => ending,
        };
        let Some(Ending { state, end }) = ending else {
            return tracing::debug!(
                thread_id = self.run.thread_id,
                "nobody reads the run any more"
            );
        };
        self.end(state, end);
    }

    /// Reads the run from where it is to be read; how it ended, unless it is not wanted any more.
    async fn follow(&mut self, source: Source) -> Option<Ending> {
        let stop = match source {
            Source::Started(body) => self.read(body, None).await,
            Source::Stream(record) => self.join(record).await,
            Source::Record(record) => self.poll(record).await,
        };
        match stop {
            // The connection is of no more use, and the record may take a while.
            Stop::Body(end) => {
                let (seen, is_stopped) = {
                    let books = self.run.books();
                    (books.feed.seen(), books.is_stopped)
                };
                let thread_id = &self.run.thread_id;
                Some(ending::ask(&self.upstream, thread_id, &seen, end, is_stopped).await)
            }
            Stop::Unread => None,
            Stop::Deserted => {
                self.cancel().await;
                None
            }
        }
    }

    async fn join(&mut self, record: RunRecord) -> Stop {
        let joined = self.upstream.join_run(&self.run.thread_id, &record.id, "-1").await;
        let body = match joined {
            Ok(stream) => {
                self.run.books().feed.joined_at(stream.date);
                stream.body
            }
            Err(error) => return Stop::Body(BodyEnd::Cut(error.to_string())),
        };
        // "Join first, then read the thread's state": nothing falls between the two.
        if record.status == RunStatus::Running && !(record.is_resumable && record.has_values) {
            self.base().await;
            if !record.is_resumable {
                self.caught_up();
            }
        }
        self.read(body, Some(&record)).await
    }

    /// Reads the body until there is no more reason to.
    async fn read(&mut self, mut body: Body, joined: Option<&RunRecord>) -> Stop {
        let joined_at = Instant::now();
        let mut quiet = pin!(tokio::time::sleep_until(joined_at + CATCH_UP));
        let mut is_catching_up = self.run.books().standing == Standing::CatchingUp;
        let end = loop {
            tokio::select! {
                biased;
                stop = wanted(&self.bell, &mut self.owner) => {
                    if self.is_unread() {
                        return stop;
                    }
                }
                chunk = body.chunk() => match chunk {
                    Ok(Some(bytes)) => {
                        if let Err(error) = self.push(&bytes).await {
                            break BodyEnd::Cut(error.to_string());
                        }
                        if is_catching_up {
                            let is_over = self.run.books().feed.is_history_over();
                            let (pause, longest) = match is_over {
                                None => (QUIET, CATCH_UP),
                                Some(_) => (TIMED_QUIET, TIMED_CATCH_UP),
                            };
                            let now = Instant::now();
                            if is_over == Some(true) || now >= joined_at + longest {
                                self.caught_up();
                                is_catching_up = false;
                            }
                            quiet.as_mut().reset(now + pause);
                        }
                    }
                    Ok(None) => break BodyEnd::Clean,
                    Err(error) => break BodyEnd::Cut(error.to_string()),
                },
                () = &mut quiet, if is_catching_up => {
                    is_catching_up = !self.has_caught_up(joined).await;
                    quiet.as_mut().reset(Instant::now() + CATCH_UP);
                }
            }
        };
        let ended_inside = self.run.books().feed.finish();
        Stop::Body(match (end, ended_inside) {
            (BodyEnd::Clean, sse::Ending::Partial { .. }) => {
                BodyEnd::Cut("the stream ends inside an event".to_owned())
            }
            (end, _) => end,
        })
    }

    /// After a silence the run's readers can be told what there is, unless the run has yet to have
    /// its turn: who waits for that was told what stands before it.
    async fn has_caught_up(&self, joined: Option<&RunRecord>) -> bool {
        if !self.run.books().feed.has_begun() {
            if joined.is_some_and(|run| run.status == RunStatus::Pending) {
                return false;
            }
            self.base().await;
        }
        self.caught_up();
        true
    }

    /// Asks for the run's status, and for what it has committed, until it is over.
    async fn poll(&mut self, mut record: RunRecord) -> Stop {
        let mut failures = 0;
        loop {
            if !record.status.is_live() {
                return Stop::Body(BodyEnd::Clean);
            }
            if record.status == RunStatus::Running {
                self.checkpoint().await;
            }
            let next_look = Instant::now() + STATUS_INTERVAL;
            let mut pause = pin!(tokio::time::sleep_until(next_look));
            loop {
                tokio::select! {
                    biased;
                    stop = wanted(&self.bell, &mut self.owner) => {
                        if self.is_unread() {
                            return stop;
                        }
                    }
                    () = &mut pause => break,
                }
            }
            match self.upstream.run_record(&self.run.thread_id, &record.id).await {
                Ok(now) => (record, failures) = (now, 0),
                Err(error) if failures + 1 == MAX_STATUS_FAILURES => {
                    return Stop::Body(BodyEnd::Cut(error.to_string()));
                }
                Err(error) => {
                    failures += 1;
                    tracing::debug!(run_id = record.id, %error, "a run's status was not read");
                }
            }
        }
    }

    /// Reads the thread's state beside the stream.
    async fn base(&self) {
        let state = self.state().await;
        self.write(|feed, events| feed.base(state.as_deref().unwrap_or("{}"), events));
    }

    async fn checkpoint(&self) {
        if let Some(state) = self.state().await {
            self.write(|feed, events| feed.checkpoint(&state, events));
            self.caught_up();
        }
    }

    async fn state(&self) -> Option<String> {
        let thread_id = &self.run.thread_id;
        self.upstream.thread_state(thread_id).await.unwrap_or_else(|error| {
            tracing::warn!(thread_id, %error, "the state beside a run was not read");
            None
        })
    }

    async fn push(&mut self, bytes: &[u8]) -> Result<(), sse::DecodeError> {
        self.run.books().feed.push(bytes);
        loop {
            let progress = self.write(super::Feed::advance)?;
            self.list();
            match progress {
                Progress::Done => return Ok(()),
                Progress::BaseWanted => self.base().await,
            }
        }
    }

    /// Writes what becomes of the feed.
    fn write<T>(&self, act: impl FnOnce(&mut super::Feed, &mut Vec<RunEvent>) -> T) -> T {
        let mut events = Vec::new();
        let mut books = self.run.books();
        let result = act(&mut books.feed, &mut events);
        if !events.is_empty() {
            books.write(events);
            drop(books);
            self.bell.send_replace(());
        }
        result
    }

    fn caught_up(&self) {
        self.run.books().standing = Standing::Live;
        self.bell.send_replace(());
    }

    fn end(&self, state: Option<State>, end: StreamEnd) {
        self.write(|feed, events| {
            let own = match state {
                Some(State::OfRun(state)) => Some(state),
                Some(State::OfThread(state)) => {
                    feed.untouched(&state, events);
                    None
                }
                None => None,
            };
            feed.end(own.as_deref(), end, events);
        });
        let end = self.run.books().end.clone();
        if let Some(RunEvent::Ended { outcome, .. }) = end {
            log(&self.run.thread_id, self.listed.as_deref().unwrap_or_default(), &outcome);
        }
    }

    /// Stops the run, which nobody watches and nobody is to pay for.
    async fn cancel(&self) {
        let thread_id = &self.run.thread_id;
        let Some(run_id) = self.run.books().feed.run_id().map(str::to_owned) else { return };
        match self.upstream.cancel_run(thread_id, &run_id).await {
            Ok(_) => tracing::info!(thread_id, run_id, "run cancelled: its owner has left"),
            Err(error) => {
                tracing::warn!(thread_id, run_id, %error, "a run without its owner goes on");
            }
        }
    }

    /// Lists the run, once its id is known.
    fn list(&mut self) {
        if self.listed.is_none() {
            self.listed = self.run.books().feed.run_id().map(str::to_owned);
            if let Some(id) = self.listed.clone() {
                self.shared.live.lock().insert(id, Arc::clone(&self.run));
            }
        }
    }

    /// Whether there is no reader left. If so the run is unlisted: none can come any more.
    fn is_unread(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let mut live = shared.live.lock();
        if self.bell.receiver_count() > 0 {
            return false;
        }
        self.unlist(&mut live);
        true
    }

    /// Another reading of the same run may be listed by now.
    fn unlist(&mut self, live: &mut std::collections::HashMap<String, Arc<Run>>) {
        if let Some(id) = self.listed.take()
            && live.get(&id).is_some_and(|run| Arc::ptr_eq(run, &self.run))
        {
            live.remove(&id);
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let shared = Arc::clone(&self.shared);
        self.unlist(&mut shared.live.lock());
    }
}

/// Waits until the run seems not to be wanted any more. An owner that has left may come back.
async fn wanted(bell: &watch::Sender<()>, owner: &mut Owner) -> Stop {
    loop {
        match owner {
            Owner::None => {
                bell.closed().await;
                return Stop::Unread;
            }
            Owner::Present { left, grace } => {
                // It is never sent anything: it is dropped.
                let _ = left.await;
                *owner = Owner::Gone { until: Instant::now() + *grace };
            }
            Owner::Gone { until } => {
                tokio::time::sleep_until(*until).await;
                *owner = Owner::None;
                if bell.receiver_count() == 0 {
                    return Stop::Deserted;
                }
            }
        }
    }
}

/// One line per run.
fn log(thread_id: &str, run_id: &str, outcome: &Outcome) {
    match outcome {
        Outcome::Finished { .. } | Outcome::AtRest { .. } => {
            tracing::info!(thread_id, run_id, "run finished");
        }
        Outcome::Interrupted(_) => tracing::info!(thread_id, run_id, "run interrupted"),
        Outcome::Cancelled => tracing::info!(thread_id, run_id, "run cancelled"),
        Outcome::Failed { code, message: reason } => {
            tracing::info!(thread_id, run_id, code, reason, "run failed");
        }
    }
}
