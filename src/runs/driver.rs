//! The task of one run. It performs what the reading asks for and publishes the events, until the
//! run is over or nobody wants it.
//!
//! ```text
//!   upstream -- bytes, records, states --> Reading -- events --> Publisher --> Run, .. <-- readers
//!      ^                                      |                                 |
//!      +------------- next request -----------+          a keyframe is wanted --+
//! ```
//!
//! - `request`: sends requests to the upstream.

use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

mod request;

use super::batch::Events;
use super::credential_ring::{CredentialRing, Lender};
use super::ending::BodyEnd;
use super::live::RunKey;
use super::published::{AskedReceiver, Broadcast, RefusalCutoff};
use super::publisher::Publisher;
use super::reading::{DriverAction, Reading, ReadingEnd, UpstreamRequest};
use super::recorder::RunRecorder;
use super::retry::UPSTREAM_PATIENCE;
use super::{OwnerPolicy, Shared};
use crate::metrics::{Origin, RunEnd, RunMeter};
use crate::offload::offload;
use crate::upstream::{Affinity, Body, Client, Error, Purpose, RunStream};
use request::{PendingResponse, Reply, Response, RoundResult};
use threadway_translate::run::{LossReason, Outcome, RunEvent, StreamEnd, Usage};

#[cfg(test)]
pub(super) use tests::is_shown;

/// How long a run without readers is read on. An `EventSource` reconnects after 3 s, a phone when
/// it has found its network.
pub const LINGER: Duration = Duration::from_secs(10);

/// How large the buffer for the stream's bytes stays between two reads, in bytes: a token takes 1.1 to
/// 1.3 KB, and the run may send nothing for a while.
const KEPT_BYTES: usize = 2 * 1024;

/// Drives one run.
pub(super) struct Driver {
    /// The upstream with the credentials of the caller who began the reading. The run is read with
    /// those of all who read it, and cancelled with these alone.
    upstream: Client,
    credentials: Arc<CredentialRing<RefusalCutoff>>,
    broadcast: Arc<Broadcast>,
    asked: AskedReceiver,
    publisher: Publisher,
    shared: Arc<Shared>,
    /// The key under which the run is listed.
    listed: Option<RunKey>,
    /// Since when nobody has read the run.
    unread_since: Option<Instant>,
    /// Since when the upstream has not answered, as readers know it.
    away_since: Option<Instant>,
    began_at: Instant,
    origin: Origin,
    meter: RunMeter,
    /// The run's recording, if runs are recorded.
    recorder: Option<RunRecorder>,
    /// Keeps requests about the run at the address where it was started or joined last.
    affinity: Option<Affinity>,
}

/// The arguments of [`Driver::new`].
pub(super) struct DriverParts {
    pub(super) upstream: Client,
    /// The callers who read the run.
    pub(super) credentials: Arc<CredentialRing<RefusalCutoff>>,
    pub(super) publisher: Publisher,
    pub(super) shared: Arc<Shared>,
    pub(super) origin: Origin,
    pub(super) affinity: Option<Affinity>,
}

// === impl Driver ===

impl Driver {
    /// Lists the run, if its id is known.
    pub(super) fn new(parts: DriverParts) -> Self {
        let DriverParts { upstream, credentials, publisher, shared, origin, affinity } = parts;
        let meter = shared.metrics.reading(origin);
        let recorder = shared.recorder.get().map(|recorder| recorder.run(upstream.secrets()));
        let mut driver = Self {
            upstream,
            credentials,
            broadcast: Arc::clone(publisher.broadcast()),
            asked: publisher.broadcast().asked(),
            publisher,
            shared,
            listed: None,
            unread_since: None,
            away_since: None,
            began_at: Instant::now(),
            origin,
            meter,
            recorder,
            affinity,
        };
        driver.list();
        driver
    }

    /// Reads the run to its end. `body` is the response that started the run, if it was started
    /// here.
    ///
    /// By reference: a future has room twice for what it takes as a value, and each run has one.
    pub(super) async fn drive(&mut self, reading: &mut Reading, mut body: Option<Body>) {
        let mut bytes = Vec::new();
        // A token of its own, so that the runs do not meet at one lock with each token.
        let mut shutdown = pin!(self.shared.shutdown.child_token().cancelled_owned());
        let patience = self.patience();
        let mut pending: Option<PendingResponse> = None;
        let mut timer = pin!(tokio::time::sleep_until(Instant::now()));
        loop {
            match reading.poll_action() {
                Some(DriverAction::Ask(request)) => pending = Some(self.send(request)),
                Some(DriverAction::End(end)) => return self.end(reading, end),
                None => {}
            }
            self.note_away(reading);
            if !reading.has_stream() {
                // The connection is closed, or returns to its pool.
                body = None;
            }
            let mut unread_at = self.unread_at(patience);
            if unread_at.is_some_and(|at| at <= Instant::now()) {
                if Box::pin(self.leaves_unread()).await {
                    return self.log_end(RunEnd::Unread, None, &[]);
                }
                // The run is wanted after all. Another whole time begins.
                self.unread_since = None;
                unread_at = self.unread_at(patience);
            }
            let due = reading.timeout().into_iter().chain(unread_at).min();
            arm(timer.as_mut(), due);
            tokio::select! {
                biased;
                () = shutdown.as_mut() => {
                    let message = "the gateway is shutting down; the run goes on in LangGraph";
                    let message = message.to_owned();
                    let end = StreamEnd::Lost { loss: LossReason::Shutdown, message };
                    return self.end(reading, ReadingEnd::Ended(end.into()));
                }
                asked = self.asked.recv() => {
                    if asked.leaves() {
                        self.unread_since = None;
                    }
                    if asked.stops() {
                        reading.on_stop(Instant::now());
                    }
                    if asked.wants() {
                        self.publisher.publish_wanted(reading.decoder(), reading.history());
                        self.broadcast.wake_readers();
                    }
                }
                response = response(&mut pending) => {
                    pending = None;
                    body = self.on_response(reading, response).or(body);
                }
                taken = take(&mut body, &mut bytes), if reading.takes_bytes() => {
                    let now = Instant::now();
                    match taken {
                        Ok(true) => {
                            self.meter.read(bytes.len());
                            if let Some(recorder) = &mut self.recorder {
                                recorder.push(&bytes);
                            }
                            let memory_bytes = reading.decoder().readable(&bytes);
                            let mut events = Events::read_at(Some(now));
                            offload(memory_bytes, || reading.on_bytes(&bytes, now, &mut events));
                            bytes.clear();
                            bytes.shrink_to(KEPT_BYTES);
                            self.publish(reading, events);
                        }
                        Ok(false) => reading.on_closed(BodyEnd::Clean, now),
                        Err(error) => {
                            self.shared.metrics.upstream_failed(error.answer());
                            reading.on_closed(BodyEnd::Cut(error.to_string()), now);
                        }
                    }
                }
                () = timer.as_mut(), if due.is_some() => {
                    let mut events = Events::default();
                    reading.on_timeout(Instant::now(), &mut events);
                    self.publish(reading, events);
                }
            }
        }
    }

    /// When the run will have been without a reader for so long that it is given up. `None` while
    /// it has one. The time begins anew whenever the last reader leaves.
    fn unread_at(&mut self, patience: Duration) -> Option<Instant> {
        if self.broadcast.is_read() {
            self.unread_since = None;
            return None;
        }
        Some(*self.unread_since.get_or_insert_with(Instant::now) + patience)
    }

    /// Gives up a run that nobody reads. Returns whether it did: a client may come at the last
    /// moment.
    async fn leaves_unread(&mut self) -> bool {
        let is_read_elsewhere = self.cancels_unread() && self.has_other_readings();
        if is_read_elsewhere || !self.unlist_if_unread() {
            return false;
        }
        if self.cancels_unread() {
            self.cancel().await;
        }
        true
    }

    /// Publishes since when the upstream has not answered.
    fn note_away(&mut self, reading: &Reading) {
        let away_since = reading.away_since();
        if self.away_since != away_since {
            self.away_since = away_since;
            self.broadcast.set_away(away_since);
        }
    }

    fn send(&mut self, request: UpstreamRequest) -> PendingResponse {
        if let UpstreamRequest::Stream { again, cursor, .. } = &request {
            if let Some(why) = again {
                self.shared.metrics.rejoined(*why);
            }
            if let Some(recorder) = &mut self.recorder {
                let lenders = self.credentials.lenders();
                let secrets = lenders.iter().flat_map(|lender| lender.upstream.secrets());
                recorder.on_request(cursor, secrets.collect());
            }
        }
        request::send(request, Arc::clone(&self.broadcast), Arc::clone(&self.credentials))
    }

    /// Passes a response to the reading. Returns the stream, if one was opened.
    fn on_response(&mut self, reading: &mut Reading, answered: RoundResult) -> Option<Body> {
        let RoundResult { reply: Reply { response, retry_after }, barred, is_whole } = answered;
        self.bar(&barred, is_whole);
        let now = Instant::now();
        match response {
            Response::Stream(RunStream { run_id: _, date, body, affinity }) => {
                self.affinity = affinity;
                if let Some(recorder) = &mut self.recorder {
                    recorder.on_join(date);
                }
                reading.on_open(date, now);
                Some(body)
            }
            Response::UpstreamAnswer(answer) => {
                let mut events = Events::default();
                offload(answer.bytes(), || {
                    reading.on_answer(answer, retry_after, now, &mut events);
                });
                self.publish(reading, events);
                None
            }
        }
    }

    /// Bars the callers with these credentials. The response is not for them, nor is what follows it.
    fn bar(&self, barred: &[Lender], is_whole: bool) {
        if barred.is_empty() {
            return;
        }
        let at = self.publisher.position();
        for lender in barred {
            self.credentials.bar(lender, RefusalCutoff { at, is_whole });
        }
        self.broadcast.wake_readers();
        let (thread_id, run_id, callers) = (&self.broadcast.thread_id, self.run_id(), barred.len());
        tracing::info!(
            thread_id,
            run_id,
            callers,
            "ended the streams of callers whose credentials LangGraph refuses; others read on"
        );
    }

    fn publish(&mut self, reading: &Reading, events: Events) {
        let has_news = self.publisher.publish(reading.decoder(), reading.history(), events);
        self.list();
        if has_news {
            self.broadcast.wake_readers();
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.flush(&self.broadcast.thread_id, self.listed.as_ref().map(|key| &*key.run_id));
        }
    }

    fn end(&mut self, reading: &mut Reading, end: ReadingEnd) {
        let detail = self.shared.error_detail();
        let lost = if let ReadingEnd::OutOfReach(why) = &end { Some(why.clone()) } else { None };
        let mut events = Events::default();
        offload(end.bytes(), || reading.end(end, detail, &mut events));
        self.publish(reading, events);
        self.unlist();
        if self.publisher.close(reading.decoder(), reading.history()) {
            self.broadcast.wake_readers();
        }
        let end = self.publisher.end().cloned();
        if let Some(RunEvent::Ended { outcome, usage }) = end {
            let code =
                if let Outcome::Failed(failure) = &outcome { Some(failure.code()) } else { None };
            self.log_end(run_end(&outcome), code, &usage);
            if let Some(why) = lost {
                self.log_loss(&why);
            }
        }
    }

    fn log_start(&self) {
        let (purpose, caller) = self.purpose_and_caller();
        let what = match self.origin {
            Origin::Started => "run started",
            Origin::Joined => "run joined",
        };
        tracing::info!(
            agent = purpose.agent.as_deref(),
            thread = purpose.thread.as_deref(),
            thread_id = self.broadcast.thread_id,
            run_id = self.run_id(),
            caller,
            url = self.affinity.as_ref().map(Affinity::url).map(tracing::field::display),
            "{what}"
        );
    }

    /// The caller is given only for a run that was started here. A run that was joined may be
    /// anybody's.
    fn purpose_and_caller(&self) -> (&Purpose, Option<&str>) {
        let caller = self.upstream.caller().name();
        (self.upstream.purpose(), caller.filter(|_| self.origin == Origin::Started))
    }

    /// Logs and counts the end of the reading. The message of a failure is left out: it may quote
    /// what a user has written.
    fn log_end(&mut self, end: RunEnd, code: Option<&str>, usage: &[Usage]) {
        self.meter.ended(end);
        if let Some(recorder) = &mut self.recorder {
            let is_whole = !matches!(end, RunEnd::Unread | RunEnd::Lost | RunEnd::Shutdown);
            recorder.close(format_args!("the reading ended: {}", end.as_str()), is_whole);
        }
        // Hundredths are enough for a log line.
        let seconds = (self.began_at.elapsed().as_secs_f64() * 100.0).round() / 100.0;
        let events = self.publisher.events();
        let what = if end == RunEnd::Unread { "stopped reading run" } else { "run ended" };
        let (purpose, caller) = self.purpose_and_caller();
        let tokens = |count: fn(&Usage) -> Option<u64>| {
            usage.iter().filter_map(count).reduce(u64::saturating_add)
        };
        tracing::info!(
            agent = purpose.agent.as_deref(),
            thread = purpose.thread.as_deref(),
            thread_id = self.broadcast.thread_id,
            run_id = self.run_id(),
            origin = self.origin.as_str(),
            caller,
            outcome = end.as_str(),
            code,
            input_tokens = tokens(|usage| usage.input),
            output_tokens = tokens(|usage| usage.output),
            seconds,
            events,
            bytes = self.meter.bytes(),
            "{what}"
        );
    }

    /// Warns of a run whose end nobody here will see. `why` has no words of the upstream.
    fn log_loss(&self, why: &str) {
        let patience = UPSTREAM_PATIENCE.as_secs();
        let upstream = self.upstream.base();
        tracing::warn!(
            thread_id = self.broadcast.thread_id,
            run_id = self.run_id(),
            %upstream,
            "gave up a run that was out of reach for {patience} s, and may go on in LangGraph: {why}"
        );
    }

    fn run_id(&self) -> &str {
        self.broadcast.run_id().unwrap_or_default()
    }

    /// Whether the run is cancelled if nobody reads it.
    fn cancels_unread(&self) -> bool {
        self.origin == Origin::Started && self.shared.owners != OwnerPolicy::Continue
    }

    /// How long the run may be without a reader.
    fn patience(&self) -> Duration {
        match self.shared.owners {
            OwnerPolicy::Cancel { grace } if self.cancels_unread() => grace,
            OwnerPolicy::Cancel { .. } | OwnerPolicy::Continue => LINGER,
        }
    }

    /// Cancels the run upstream, because nobody reads it. At shutdown nobody waits for the answer.
    async fn cancel(&self) {
        let thread_id = &self.broadcast.thread_id;
        let Some(run_id) = self.broadcast.run_id() else { return };
        let cancelled = self.upstream.cancel_run(thread_id, run_id);
        match self.shared.shutdown.run_until_cancelled(cancelled).await {
            Some(Ok(_)) => tracing::info!(thread_id, run_id, "run cancelled: its client has left"),
            Some(Err(error)) => {
                tracing::warn!(
                    thread_id, run_id, %error, "could not cancel a run whose client has left"
                );
            }
            None => {
                tracing::warn!(
                    thread_id,
                    run_id,
                    "the gateway stops before LangGraph has confirmed that it cancelled a run whose client has left"
                );
            }
        }
    }

    /// Lists the run, once its id is known.
    fn list(&mut self) {
        if self.listed.is_none() {
            let Broadcast { thread_id, rendering, .. } = &*self.broadcast;
            let id = self.broadcast.run_id();
            self.listed = id.map(|id| RunKey::of(&self.upstream, thread_id, id, *rendering));
            if let Some(key) = &self.listed {
                self.shared.live.list(key.clone(), &self.broadcast);
                self.log_start();
            }
        }
    }

    /// Whether the same run is read in another rendering, or was until a moment ago.
    fn has_other_readings(&self) -> bool {
        let Some(run_id) = self.broadcast.run_id() else { return false };
        let readings = self.shared.live.readings(&self.upstream, &self.broadcast.thread_id, run_id);
        readings.iter().any(|run| !Arc::ptr_eq(run, &self.broadcast))
    }

    /// Removes the run from the list if it has no reader, so that none can attach any more. Returns
    /// whether it did.
    fn unlist_if_unread(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let mut live = shared.live.lock();
        if self.broadcast.is_read() {
            return false;
        }
        self.unlist_from(&mut live);
        true
    }

    fn unlist(&mut self) {
        let shared = Arc::clone(&self.shared);
        self.unlist_from(&mut shared.live.lock());
    }

    /// Removes the run from the list, unless another reading of it is listed by now.
    fn unlist_from(&mut self, live: &mut BTreeMap<RunKey, Arc<Broadcast>>) {
        if let Some(key) = self.listed.take()
            && live.get(&key).is_some_and(|listed| Arc::ptr_eq(listed, &self.broadcast))
        {
            live.remove(&key);
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.unlist();
        // Audiences that came meanwhile find out by the end of the driver.
        drop(self.broadcast.close());
        self.broadcast.end();
    }
}

/// The response to a request; never ready without a request.
async fn response(pending: &mut Option<PendingResponse>) -> RoundResult {
    match pending {
        Some(pending) => pending.await,
        None => std::future::pending().await,
    }
}

/// Takes the bytes that have come, and waits for the first; never ready without a stream.
async fn take(body: &mut Option<Body>, bytes: &mut Vec<u8>) -> Result<bool, Error> {
    match body {
        Some(body) => body.read(bytes).await,
        None => std::future::pending().await,
    }
}

/// Makes the timer fire at `due` or before. It is reset only if it would fire too late, since each
/// token postpones what is due.
fn arm(timer: Pin<&mut Sleep>, due: Option<Instant>) {
    if let Some(due) = due
        && (timer.is_elapsed() || timer.deadline() > due)
    {
        timer.reset(due);
    }
}

/// How the reading of a run with this outcome ended.
fn run_end(outcome: &Outcome) -> RunEnd {
    match outcome {
        Outcome::Finished { .. } | Outcome::Idle { .. } => RunEnd::Finished,
        Outcome::Interrupted(_) => RunEnd::Interrupted,
        Outcome::Cancelled => RunEnd::Cancelled,
        Outcome::Failed(failure) => match failure.loss() {
            Some(LossReason::Shutdown) => RunEnd::Shutdown,
            Some(LossReason::Unreadable | LossReason::Unavailable | LossReason::Gone) => {
                RunEnd::Lost
            }
            Some(LossReason::Incomplete | LossReason::TooSlow | LossReason::Internal) | None => {
                RunEnd::Failed
            }
        },
    }
}

#[cfg(test)]
mod tests;
