//! The task of one run: reads the upstream's bytes into the run's books until the run is over.
//!
//! ```text
//!            its stream ends, is cut, is silent
//!   reading ----------------------------------> asking its record ---> over
//!      ^                                              |
//!      +--- joined again, behind what was seen <------+  for UPSTREAM_PATIENCE
//! ```

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::batch::Events;
use super::books::{Run, Standing};
use super::ending::{BodyEnd, Ending, Outlook, Question, State};
use super::event_id::EventId;
use super::feed::Progress;
use super::retry::Retry;
use super::{
    GATEWAY_SHUTDOWN, Listed, RUN_GONE, RunKey, Shared, UPSTREAM_LOST, UPSTREAM_UNAVAILABLE,
};
use crate::langgraph::{RunError, RunRecord, RunStatus, ServerKind};
use crate::metrics::{Origin, Reading, Rejoin, RunEnd};
use crate::run::{Outcome, RunEvent, StreamEnd};
use crate::sse;
use crate::upstream::{Body, Client, Error};

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

/// How long the Python server's stream may be silent: it gives a sign of life every 5 s.
const SILENCE: Duration = Duration::from_secs(20);

/// The same for a server that gives none. To ask for the stream again costs little, and shows
/// whether the connection was dead or the run is slow.
const SILENCE_WITHOUT_SIGNS: Duration = Duration::from_secs(30);

/// How long a run is kept being read that nobody reads: an `EventSource` comes back after 3 s, a
/// phone when it has found its network.
pub const LINGER: Duration = Duration::from_secs(10);

/// How long an attempt may take until the response's headers: a server that is busy with 200 joins
/// has needed that.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);

/// A connection that is this old, and brings something, is no failure any more.
const PROVEN: Duration = Duration::from_secs(1);

/// Drives one run.
pub(super) struct Driver {
    upstream: Client,
    /// The upstream as the one calls it who began the reading. Whoever comes later lends its
    /// credentials for reading, and for nothing else.
    first_upstream: Client,
    server: Option<ServerKind>,
    run: Arc<Run>,
    bell: Arc<watch::Sender<()>>,
    shared: Arc<Shared>,
    /// What the run is listed under.
    listed: Option<RunKey>,
    owner: Owner,
    /// Since when nobody reads it.
    unread_since: Option<Instant>,
    retry: Retry,
    /// Why its stream is joined again, if it is.
    rejoin: Rejoin,
    began_at: Instant,
    meter: Reading,
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

    /// The source to read a run from, for a client that has the run up to an event, or has nothing
    /// of it. The stream of a run that is over is replayed only if the client lacks a part of it.
    /// Otherwise the run's record and the thread's state are enough.
    pub(super) fn after(
        record: &RunRecord,
        server: Option<ServerKind>,
        event: Option<&EventId>,
    ) -> fn(RunRecord) -> Self {
        let wants_rest = event.is_some_and(|event| !event.is_terminal());
        if record.status.is_live() {
            Self::of(record, server)
        } else if record.is_resumable && wants_rest {
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
        server: Option<ServerKind>,
        run: Arc<Run>,
        bell: Arc<watch::Sender<()>>,
        shared: Arc<Shared>,
        origin: Origin,
    ) -> Self {
        let meter = shared.metrics.reading(origin);
        let mut driver = Self {
            first_upstream: upstream.clone(),
            upstream,
            server,
            run,
            bell,
            shared,
            listed: None,
            owner: Owner::None,
            unread_since: None,
            retry: Retry::default(),
            rejoin: Rejoin::Cut,
            began_at: Instant::now(),
            meter,
        };
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
            return self.log(RunEnd::Unread, None);
        };
        self.end(state, end);
    }

    /// Reads the run from where it is to be read; how it ended, unless it is not wanted any more.
    async fn follow(&mut self, source: Source) -> Option<Ending> {
        let (mut stop, record) = match source {
            Source::Started(body) => (self.read(body, None).await, None),
            Source::Stream(record) => (self.join(Some(&record)).await, Some(record)),
            Source::Record(record) => return self.follow_record(record).await,
        };
        loop {
            let end = match stop {
                Stop::Body(end) => end,
                Stop::Unread => return None,
                Stop::Deserted => {
                    self.cancel().await;
                    return None;
                }
            };
            if let Some(ending) = self.outlook(end).await {
                return Some(ending);
            }
            stop = match self.pause().await {
                Some(stop) => stop,
                None if self.may_say_more() => {
                    self.shared.metrics.rejoined(self.rejoin);
                    self.join(record.as_ref()).await
                }
                None => Stop::Body(BodyEnd::Clean),
            };
        }
    }

    /// How the run ended, if it is to be read no more.
    async fn outlook(&mut self, end: BodyEnd) -> Option<Ending> {
        let why = match end {
            // A join brings the rest, also of a run that is over by now.
            BodyEnd::Cut(why) if self.retry.is_young() && self.may_say_more() => why,
            BodyEnd::Clean | BodyEnd::Cut(_) | BodyEnd::Refused | BodyEnd::Unreadable(_) => {
                match self.ask(&end).await {
                    Outlook::Over(ending) => return Some(ending),
                    Outlook::Live => {
                        self.retry.heard();
                        "the run goes on".to_owned()
                    }
                    Outlook::Unknown(why) => why,
                }
            }
        };
        tracing::debug!(
            thread_id = self.run.thread_id,
            run_id = self.run_id(),
            why,
            "run out of sight"
        );
        if !self.retry.is_over() {
            return None;
        }
        let failure = self.run.books().feed.seen().error;
        let detail = self.shared.error_detail();
        let message = match failure.map(|error| error.told(detail)) {
            Some(RunError { code, message }) => {
                format!("the run failed ({code}: {message}), and is out of sight since: {why}")
            }
            None => format!("the run is out of sight: {why}; it may go on in LangGraph"),
        };
        Some(StreamEnd::Lost { code: UPSTREAM_UNAVAILABLE, message }.into())
    }

    /// Whether the run can be asked for more of its stream. Behind a failure there is none.
    fn may_say_more(&self) -> bool {
        let seen = self.run.books().feed.seen();
        seen.run_id.is_some() && seen.error.is_none()
    }

    async fn ask(&mut self, end: &BodyEnd) -> Outlook {
        self.refresh();
        let (seen, is_stopped) = {
            let books = self.run.books();
            (books.feed.seen(), books.is_stopped)
        };
        let (upstream, thread_id) = (&self.upstream, &*self.run.thread_id);
        Question { upstream, thread_id, seen: &seen, end, is_stopped }.ask().await
    }

    /// Waits until the next attempt is due; why it is not wanted any more, if so.
    async fn pause(&mut self) -> Option<Stop> {
        let pause = self.retry.next_pause();
        self.wait(Instant::now() + pause).await
    }

    /// Waits; why that is not wanted any more, if so.
    async fn wait(&mut self, until: Instant) -> Option<Stop> {
        let mut over = pin!(tokio::time::sleep_until(until));
        loop {
            tokio::select! {
                biased;
                stop = wanted(&self.bell, &mut self.owner, &mut self.unread_since) => {
                    if self.is_unread() {
                        return Some(stop);
                    }
                }
                () = &mut over => return None,
            }
        }
    }

    /// Joins the run's stream behind what was seen of it, and reads it.
    async fn join(&mut self, record: Option<&RunRecord>) -> Stop {
        let Some(run_id) = self.run.books().feed.run_id().map(str::to_owned) else {
            return Stop::Body(BodyEnd::Clean);
        };
        self.refresh();
        self.rejoin = Rejoin::Cut;
        let is_first = self.run.books().feed.count() == 0;
        let cursor = self.run.books().feed.rejoin();
        let joining = self.upstream.join_run(&self.run.thread_id, &run_id, &cursor);
        let body = match tokio::time::timeout(JOIN_TIMEOUT, joining).await {
            Ok(Ok(stream)) => {
                self.run.books().feed.answered_at(stream.date);
                stream.body
            }
            Ok(Err(error)) => return Stop::Body(not_given(&error)),
            Err(_) => {
                let why = format!("no answer within {} s", JOIN_TIMEOUT.as_secs());
                return Stop::Body(BodyEnd::Cut(why));
            }
        };
        // The state is read after the join, so that nothing is lost between the two.
        if let Some(record) = record.filter(|_| is_first)
            && record.status == RunStatus::Running
            && !(record.is_resumable && record.has_values)
        {
            self.base().await;
            if !record.is_resumable {
                self.caught_up();
            }
        }
        self.read(body, record).await
    }

    /// Reads the body until there is no more reason to.
    async fn read(&mut self, mut body: Body, joined: Option<&RunRecord>) -> Stop {
        self.rejoin = Rejoin::Cut;
        let joined_at = Instant::now();
        let mut quiet = pin!(tokio::time::sleep_until(joined_at + CATCH_UP));
        // Of a run that is over its end tells that all was replayed.
        let is_live = joined.is_none_or(|record| record.status.is_live());
        let mut is_catching_up = is_live && self.run.books().standing == Standing::CatchingUp;
        let longest_silence = match self.server {
            Some(ServerKind::Python) => SILENCE,
            Some(ServerKind::JavaScript) | None => SILENCE_WITHOUT_SIGNS,
        };
        let mut heard_at = joined_at;
        let mut silent = pin!(tokio::time::sleep_until(joined_at + longest_silence));
        let count = self.run.books().feed.count();
        let end = loop {
            tokio::select! {
                biased;
                stop = wanted(&self.bell, &mut self.owner, &mut self.unread_since) => {
                    if self.is_unread() {
                        return stop;
                    }
                }
                chunk = body.chunk() => match chunk {
                    Ok(Some(bytes)) => {
                        let now = Instant::now();
                        heard_at = now;
                        match self.push(&bytes, now).await {
                            Ok(Progress::RejoinWanted) => {
                                self.rejoin = Rejoin::Doubtful;
                                break BodyEnd::Cut("the stream may repeat itself".to_owned());
                            }
                            Ok(Progress::Done | Progress::BaseWanted) => {}
                            Err(error) => break BodyEnd::Unreadable(error.to_string()),
                        }
                        if now - joined_at > PROVEN {
                            self.retry.heard();
                        }
                        if is_catching_up {
                            let is_over = self.run.books().feed.is_history_over();
                            let (pause, longest) = match is_over {
                                None => (QUIET, CATCH_UP),
                                Some(_) => (TIMED_QUIET, TIMED_CATCH_UP),
                            };
                            if is_over == Some(true) || now >= joined_at + longest {
                                self.caught_up();
                                is_catching_up = false;
                            }
                            quiet.as_mut().reset(now + pause);
                        }
                    }
                    Ok(None) => break BodyEnd::Clean,
                    Err(error) => {
                        self.shared.metrics.upstream_failed(error.answer());
                        break BodyEnd::Cut(error.to_string());
                    }
                },
                () = &mut quiet, if is_catching_up => {
                    is_catching_up = !self.has_caught_up(joined).await;
                    quiet.as_mut().reset(Instant::now() + CATCH_UP);
                }
                () = &mut silent => {
                    if heard_at + longest_silence <= Instant::now() {
                        self.rejoin = Rejoin::Silent;
                        let seconds = longest_silence.as_secs();
                        break BodyEnd::Cut(format!("silent for {seconds} s"));
                    }
                    silent.as_mut().reset(heard_at + longest_silence);
                }
            }
        };
        if self.run.books().feed.count() > count {
            self.retry = Retry::default();
        } else if joined_at.elapsed() >= longest_silence {
            self.retry.was_silent();
        }
        let ended_inside = self.run.books().feed.finish();
        Stop::Body(match (end, ended_inside) {
            (BodyEnd::Clean, sse::Ending::Partial { .. }) => {
                BodyEnd::Cut("the stream ends inside an event".to_owned())
            }
            (BodyEnd::Clean, sse::Ending::Clean) => {
                self.rejoin = Rejoin::Ended;
                BodyEnd::Clean
            }
            (end @ BodyEnd::Unreadable(_), _) => {
                self.rejoin = Rejoin::Unreadable;
                end
            }
            (end @ (BodyEnd::Cut(_) | BodyEnd::Refused), _) => end,
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

    /// Asks for the run's record, and for what the run has committed, until it is over.
    async fn follow_record(&mut self, record: RunRecord) -> Option<Ending> {
        let run_id = record.id.clone();
        let mut read: Result<_, Error> = Ok(record);
        loop {
            let mut pause = STATUS_INTERVAL;
            let end = match read {
                Ok(record) if record.status.is_live() => {
                    self.retry = Retry::default();
                    if record.status == RunStatus::Running {
                        self.checkpoint().await;
                    }
                    None
                }
                Ok(_) => Some(BodyEnd::Clean),
                Err(error) => Some(not_given(&error)),
            };
            if let Some(end) = end {
                if let Some(ending) = self.outlook(end).await {
                    return Some(ending);
                }
                pause = pause.max(self.retry.next_pause());
            }
            if let Some(stop) = self.wait(Instant::now() + pause).await {
                if let Stop::Deserted = stop {
                    self.cancel().await;
                }
                return None;
            }
            self.refresh();
            read = self.upstream.run_record(&self.run.thread_id, &run_id).await;
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

    async fn push(&mut self, bytes: &[u8], at: Instant) -> Result<Progress, sse::DecodeError> {
        self.meter.read(bytes.len());
        self.run.books().feed.push(bytes);
        loop {
            let progress = self.write_read(Some(at), super::Feed::advance)?;
            self.list();
            match progress {
                Progress::Done | Progress::RejoinWanted => return Ok(progress),
                Progress::BaseWanted => self.base().await,
            }
        }
    }

    /// Writes what becomes of the feed.
    fn write<T>(&self, act: impl FnOnce(&mut super::Feed, &mut Events) -> T) -> T {
        self.write_read(None, act)
    }

    /// The same, of bytes that were read then.
    fn write_read<T>(
        &self,
        read_at: Option<Instant>,
        act: impl FnOnce(&mut super::Feed, &mut Events) -> T,
    ) -> T {
        let mut events = Events::read_at(read_at);
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

    fn end(&mut self, state: Option<State>, end: StreamEnd) {
        let is_ours = matches!(end, StreamEnd::Lost { .. });
        let detail = self.shared.error_detail();
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
            if !is_ours {
                events.tell_failure(detail);
            }
        });
        let end = self.run.books().end.clone();
        if let Some(RunEvent::Ended { outcome, .. }) = end {
            let (end, code) = run_end(&outcome);
            self.log(end, code);
        }
    }

    /// One line per run. It tells no message of a failure: that may quote what a user has said.
    fn log(&mut self, end: RunEnd, code: Option<&str>) {
        self.meter.ended(end);
        let seconds = self.began_at.elapsed().as_secs_f64();
        let events = self.run.books().events;
        let what = if end == RunEnd::Unread { "run let go of" } else { "run ended" };
        tracing::info!(
            thread_id = self.run.thread_id,
            run_id = self.run_id(),
            outcome = end.word(),
            code,
            seconds,
            events,
            bytes = self.meter.bytes(),
            "{what}"
        );
    }

    /// Goes on with the credentials of the last who came.
    fn refresh(&mut self) {
        if let Some(key) = &self.listed
            && let Some(upstream) = self.shared.live.take_fresh(key, &self.run)
        {
            self.upstream = upstream;
        }
    }

    fn run_id(&self) -> &str {
        self.listed.as_ref().map_or("", |key| &key.run_id)
    }

    /// Stops the run, which nobody watches and nobody is to pay for.
    async fn cancel(&self) {
        let thread_id = &self.run.thread_id;
        let Some(run_id) = self.run.books().feed.run_id().map(str::to_owned) else { return };
        match self.first_upstream.cancel_run(thread_id, &run_id).await {
            Ok(_) => tracing::info!(thread_id, run_id, "run cancelled: its owner has left"),
            Err(error) => {
                tracing::warn!(thread_id, run_id, %error, "a run without its owner goes on");
            }
        }
    }

    /// Lists the run, once its id is known.
    fn list(&mut self) {
        if self.listed.is_none() {
            let id = self.run.books().feed.run_id().map(str::to_owned);
            self.listed = id.map(|id| RunKey::of(&self.upstream, &self.run.thread_id, &id));
            if let Some(key) = &self.listed {
                self.shared.live.list(key.clone(), &self.run);
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
    fn unlist(&mut self, live: &mut HashMap<RunKey, Listed<Run>>) {
        if let Some(key) = self.listed.take()
            && live.get(&key).is_some_and(|listed| Arc::ptr_eq(&listed.what, &self.run))
        {
            live.remove(&key);
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let shared = Arc::clone(&self.shared);
        self.unlist(&mut shared.live.lock());
    }
}

/// Waits until the run seems not to be wanted any more. Who has left may come back.
async fn wanted(
    bell: &watch::Sender<()>,
    owner: &mut Owner,
    unread_since: &mut Option<Instant>,
) -> Stop {
    loop {
        match owner {
            Owner::None => {
                if bell.receiver_count() > 0 {
                    *unread_since = None;
                }
                bell.closed().await;
                let since = *unread_since.get_or_insert_with(Instant::now);
                tokio::time::sleep_until(since + LINGER).await;
                *unread_since = None;
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

/// What it means that the server gave nothing: it may be away, or have its reasons.
fn not_given(error: &Error) -> BodyEnd {
    match error {
        Error::Status { code: 400..500, .. } => BodyEnd::Refused,
        Error::Status { .. }
        | Error::Unreachable { .. }
        | Error::Timeout { .. }
        | Error::NotAnEventStream { .. }
        | Error::NotUnderstood { .. }
        | Error::TooLarge { .. }
        | Error::Interrupted { .. } => BodyEnd::Cut(error.to_string()),
    }
}

/// How the reading of a run with this outcome ended, and the code of its failure.
fn run_end(outcome: &Outcome) -> (RunEnd, Option<&str>) {
    match outcome {
        Outcome::Finished { .. } | Outcome::AtRest { .. } => (RunEnd::Finished, None),
        Outcome::Interrupted(_) => (RunEnd::Interrupted, None),
        Outcome::Cancelled => (RunEnd::Cancelled, None),
        Outcome::Failed { code, message: _ } => {
            let end = match &**code {
                GATEWAY_SHUTDOWN => RunEnd::Shutdown,
                UPSTREAM_LOST | UPSTREAM_UNAVAILABLE | RUN_GONE => RunEnd::Lost,
                _ => RunEnd::Failed,
            };
            (end, Some(code))
        }
    }
}
