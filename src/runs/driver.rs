//! The task of one run: does what the reading asks for, and publishes what comes of it, until the run is over or nobody
//! wants it.
//!
//! ```text
//!   upstream -- bytes, records, states --> Reading -- events --> Run { published } <-- readers
//!      ^                                      |                       |
//!      +---------- what to do next -----------+                       +-- asked: the run as it stands
//! ```

use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, Sleep};

use super::batch::Events;
use super::ending::{BodyEnd, Inquest, Outlook};
use super::published::Run;
use super::reading::{Action, End, Question, Reading};
use super::recorder::Tape;
use super::standing::beside;
use super::{Listed, RunKey, Shared};
use crate::metrics::{Origin, Reading as Meter, RunEnd};
use crate::upstream::{Body, Client, Error, Purpose, RunStream};
use threadway_translate::langgraph::RunRecord;
use threadway_translate::run::{Loss, Outcome, RunEvent, StreamEnd, Usage};

/// How long a run is kept being read that nobody reads: an `EventSource` comes back after 3 s, a
/// phone when it has found its network.
pub const LINGER: Duration = Duration::from_secs(10);

/// How long an attempt may take until the response's headers: a server that is busy with 200 joins
/// has needed that.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);

/// Drives one run.
pub(super) struct Driver {
    upstream: Client,
    /// The upstream as the one calls it who began the reading. Whoever comes later lends its
    /// credentials for reading, and for nothing else.
    first_upstream: Client,
    run: Arc<Run>,
    bell: Arc<watch::Sender<()>>,
    shared: Arc<Shared>,
    /// What the run is listed under.
    listed: Option<RunKey>,
    owner: Owner,
    /// Since when nobody reads it.
    unread_since: Option<Instant>,
    began_at: Instant,
    origin: Origin,
    meter: Meter,
    /// Where it is recorded, if runs are.
    tape: Option<Tape>,
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

/// Why a run is not to be read any more.
enum Unwanted {
    /// The last reader has left.
    Unread,
    /// So has the owner, and the run is to be stopped.
    Deserted,
}

/// What the upstream has answered.
enum Answer {
    Stream(Result<RunStream, BodyEnd>),
    State(Option<String>),
    Record(Result<RunRecord, BodyEnd>),
    Outlook(Outlook),
}

/// A question that is being asked.
type Asking = Pin<Box<dyn Future<Output = Answer> + Send>>;

// === impl Driver ===

impl Driver {
    pub(super) fn new(
        upstream: Client,
        run: Arc<Run>,
        bell: Arc<watch::Sender<()>>,
        shared: Arc<Shared>,
        origin: Origin,
    ) -> Self {
        let meter = shared.metrics.reading(origin);
        let tape = shared.recorder.get().map(|recorder| recorder.tape(upstream.secrets()));
        let mut driver = Self {
            first_upstream: upstream.clone(),
            upstream,
            run,
            bell,
            shared,
            listed: None,
            owner: Owner::None,
            unread_since: None,
            began_at: Instant::now(),
            origin,
            meter,
            tape,
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

    /// Reads the run to its end: from the body of the response that has started it, if there is
    /// one.
    pub(super) async fn drive(mut self, reading: Reading, mut body: Option<Body>) {
        // It is handed to and fro for each token.
        let mut reading = Box::new(reading);
        let mut chunks = Vec::new();
        let shutdown = self.shared.shutdown.clone();
        let mut asking: Option<Asking> = None;
        let mut timer = pin!(tokio::time::sleep_until(Instant::now()));
        loop {
            match reading.poll_action() {
                Some(Action::Ask(question)) => asking = Some(self.ask(question)),
                Some(Action::End(end)) => return self.end(&mut reading, end),
                None => {}
            }
            if !reading.has_stream() {
                // The connection is closed, or goes back to its pool.
                body = None;
            }
            let due = reading.timeout();
            arm(timer.as_mut(), due);
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {
                    let message = "the gateway is shutting down; the run goes on in LangGraph";
                    let message = message.to_owned();
                    let end = StreamEnd::Lost { loss: Loss::Shutdown, message };
                    return self.end(&mut reading, End::Ended(end.into()));
                }
                unwanted = wanted(&self.bell, &mut self.owner, &mut self.unread_since) => {
                    if self.is_unread() {
                        if matches!(unwanted, Unwanted::Deserted) && !self.is_read_otherwise() {
                            self.cancel().await;
                        }
                        return self.log(RunEnd::Unread, None, &[]);
                    }
                }
                () = self.run.asked() => {
                    self.run.stand(reading.feed());
                    self.bell.send_replace(());
                }
                answer = answer(&mut asking) => {
                    asking = None;
                    let opened;
                    (reading, opened) = self.answered(reading, answer).await;
                    body = opened.or(body);
                }
                taken = take(&mut body, &mut chunks), if reading.takes_bytes() => {
                    let now = Instant::now();
                    match taken {
                        Ok(true) => {
                            self.meter.read(chunks.iter().map(Bytes::len).sum());
                            if let Some(tape) = &mut self.tape {
                                tape.take_in(&chunks);
                            }
                            let weight = reading.feed().readable(&chunks);
                            let read = move || {
                                let mut events = Events::read_at(Some(now));
                                reading.on_bytes(&chunks, now, &mut events);
                                chunks.clear();
                                (reading, chunks, events)
                            };
                            let events;
                            (reading, chunks, events) = beside(weight, read).await;
                            self.publish(&reading, events);
                        }
                        Ok(false) => reading.on_closed(BodyEnd::Clean, now),
                        Err(error) => {
                            self.shared.metrics.upstream_failed(error.answer());
                            reading.on_closed(BodyEnd::Cut(error.to_string()), now);
                        }
                    }
                }
                () = timer.as_mut(), if due.is_some() => {
                    let past = reading.past();
                    reading.on_timeout(Instant::now());
                    if reading.past() != past {
                        self.publish(&reading, Events::default());
                    }
                }
            }
        }
    }

    fn ask(&mut self, question: Question) -> Asking {
        self.refresh();
        let (upstream, run) = (self.upstream.clone(), Arc::clone(&self.run));
        if let Question::Stream { again, cursor, .. } = &question {
            if let Some(why) = again {
                self.shared.metrics.rejoined(*why);
            }
            if let Some(tape) = &mut self.tape {
                tape.asks(cursor, self.upstream.secrets());
            }
        }
        #[cfg(test)]
        if let Some(asking) = tests::asked(&question) {
            return asking;
        }
        Box::pin(async move {
            let thread_id = &*run.thread_id;
            match question {
                Question::Stream { run_id, cursor, again: _ } => {
                    let joining = upstream.join_run(thread_id, &run_id, &cursor);
                    let late = |_| {
                        let seconds = JOIN_TIMEOUT.as_secs();
                        BodyEnd::Cut(format!("no answer within {seconds} s"))
                    };
                    let opened = tokio::time::timeout(JOIN_TIMEOUT, joining).await.map_err(late);
                    Answer::Stream(opened.and_then(|opened| opened.map_err(|e| not_given(&e))))
                }
                Question::State => {
                    Answer::State(upstream.thread_state(thread_id).await.unwrap_or_else(|error| {
                        tracing::warn!(thread_id, %error, "the state beside a run was not read");
                        None
                    }))
                }
                Question::Record { run_id } => {
                    let record = upstream.run_record(thread_id, &run_id).await;
                    Answer::Record(record.map_err(|error| not_given(&error)))
                }
                Question::Outlook { seen, end } => {
                    let is_stopped = run.published().is_stopped;
                    let upstream = &upstream;
                    let inquest =
                        Inquest { upstream, thread_id, seen: &seen, end: &end, is_stopped };
                    Answer::Outlook(inquest.hold().await)
                }
            }
        })
    }

    /// Hands an answer to the reading. Returns the stream that was opened, too.
    async fn answered(
        &mut self,
        mut reading: Box<Reading>,
        answer: Answer,
    ) -> (Box<Reading>, Option<Body>) {
        let now = Instant::now();
        match answer {
            Answer::Stream(Ok(RunStream { run_id: _, date, body })) => {
                if let Some(tape) = &mut self.tape {
                    tape.joins(date);
                }
                reading.on_open(date, now);
                return (reading, Some(body));
            }
            Answer::Stream(Err(end)) => reading.on_closed(end, now),
            Answer::State(state) => {
                let weight = state.as_ref().map_or(0, String::len);
                let read = move || {
                    let mut events = Events::default();
                    reading.on_state(state.as_deref(), now, &mut events);
                    (reading, events)
                };
                let events;
                (reading, events) = beside(weight, read).await;
                self.publish(&reading, events);
            }
            Answer::Record(record) => reading.on_record(record, now),
            Answer::Outlook(outlook) => reading.on_outlook(outlook, now),
        }
        (reading, None)
    }

    /// Publishes what has become of the reading.
    fn publish(&mut self, reading: &Reading, events: Events) {
        let is_news = self.run.publish(reading.feed(), reading.past(), events);
        self.list();
        if is_news {
            self.bell.send_replace(());
        }
        if let Some(tape) = &mut self.tape {
            tape.flush(&self.run.thread_id, self.listed.as_ref().map(|key| &*key.run_id));
        }
    }

    fn end(&mut self, reading: &mut Reading, end: End) {
        let detail = self.shared.error_detail();
        let mut events = Events::default();
        reading.end(end, detail, &mut events);
        self.publish(reading, events);
        let end = self.run.published().end().cloned();
        if let Some(RunEvent::Ended { outcome, usage }) = end {
            let code =
                if let Outcome::Failed(failure) = &outcome { Some(failure.code()) } else { None };
            self.log(run_end(&outcome), code, &usage);
        }
    }

    /// Logs that a run begins to be read. The caller is logged of a run that was started here: a run
    /// that was joined may be anybody's.
    fn log_start(&self) {
        let (purpose, caller) = self.logged();
        let what = match self.origin {
            Origin::Started => "run started",
            Origin::Joined => "run joined",
        };
        tracing::info!(
            agent = purpose.agent.as_deref(),
            thread = purpose.thread.as_deref(),
            thread_id = self.run.thread_id,
            run_id = self.run_id(),
            caller,
            "{what}"
        );
    }

    fn logged(&self) -> (&Purpose, Option<&str>) {
        let caller = self.first_upstream.caller().name();
        (self.first_upstream.purpose(), caller.filter(|_| self.origin == Origin::Started))
    }

    /// Logs how a run ended. The line has no message of a failure: that may quote what a user has
    /// said.
    fn log(&mut self, end: RunEnd, code: Option<&str>, usage: &[Usage]) {
        self.meter.ended(end);
        if let Some(tape) = &mut self.tape {
            let is_whole = !matches!(end, RunEnd::Unread | RunEnd::Lost | RunEnd::Shutdown);
            tape.close(format_args!("the reading ended: {}", end.word()), is_whole);
        }
        // Hundredths: a line is read by people.
        let seconds = (self.began_at.elapsed().as_secs_f64() * 100.0).round() / 100.0;
        let events = self.run.published().events;
        let what = if end == RunEnd::Unread { "run let go of" } else { "run ended" };
        let (purpose, caller) = self.logged();
        let tokens = |count: fn(&Usage) -> Option<u64>| {
            usage.iter().filter_map(count).reduce(u64::saturating_add)
        };
        tracing::info!(
            agent = purpose.agent.as_deref(),
            thread = purpose.thread.as_deref(),
            thread_id = self.run.thread_id,
            run_id = self.run_id(),
            origin = self.origin.word(),
            caller,
            outcome = end.word(),
            code,
            input_tokens = tokens(|usage| usage.input),
            output_tokens = tokens(|usage| usage.output),
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
        let Some(run_id) = self.run.id() else { return };
        let run_id = &*run_id;
        match self.first_upstream.cancel_run(thread_id, run_id).await {
            Ok(_) => tracing::info!(thread_id, run_id, "run cancelled: its owner has left"),
            Err(error) => {
                tracing::warn!(thread_id, run_id, %error, "a run without its owner goes on");
            }
        }
    }

    /// Lists the run, once its id is known.
    fn list(&mut self) {
        if self.listed.is_none() {
            let id = self.run.id();
            self.listed =
                id.map(|id| RunKey::of(&self.upstream, &self.run.thread_id, &id, self.run.emit));
            if let Some(key) = &self.listed {
                self.shared.live.list(key.clone(), &self.run);
                self.log_start();
            }
        }
    }

    /// Whether somebody reads the run with other options.
    fn is_read_otherwise(&self) -> bool {
        let Some(run_id) = self.run.id() else { return false };
        let readings = self.shared.live.readings(&self.upstream, &self.run.thread_id, &run_id);
        readings.iter().any(|run| !Arc::ptr_eq(run, &self.run) && run.has_readers())
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
    fn unlist(&mut self, live: &mut BTreeMap<RunKey, Listed>) {
        if let Some(key) = self.listed.take()
            && live.get(&key).is_some_and(|listed| Arc::ptr_eq(&listed.run, &self.run))
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
) -> Unwanted {
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
                return Unwanted::Unread;
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
                    return Unwanted::Deserted;
                }
            }
        }
    }
}

/// Waits for the upstream's answer; for ever without a question.
async fn answer(asking: &mut Option<Asking>) -> Answer {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}

/// Takes the bytes of a stream that have come, and waits for the first; for ever without a stream.
async fn take(body: &mut Option<Body>, chunks: &mut Vec<Bytes>) -> Result<bool, Error> {
    match body {
        Some(body) => body.chunks(chunks).await,
        None => std::future::pending().await,
    }
}

/// Lets a timer ring at a time, or before: it is set again only where it would ring too late, since
/// each token puts off what is due.
fn arm(timer: Pin<&mut Sleep>, due: Option<Instant>) {
    if let Some(due) = due
        && (timer.is_elapsed() || timer.deadline() > due)
    {
        timer.reset(due);
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

/// How the reading of a run with this outcome ended.
fn run_end(outcome: &Outcome) -> RunEnd {
    match outcome {
        Outcome::Finished { .. } | Outcome::Idle { .. } => RunEnd::Finished,
        Outcome::Interrupted(_) => RunEnd::Interrupted,
        Outcome::Cancelled => RunEnd::Cancelled,
        Outcome::Failed(failure) => match failure.loss() {
            Some(Loss::Shutdown) => RunEnd::Shutdown,
            Some(Loss::Unreadable | Loss::Unavailable | Loss::Gone) => RunEnd::Lost,
            Some(Loss::Incomplete | Loss::TooSlow | Loss::Internal) | None => RunEnd::Failed,
        },
    }
}

#[cfg(test)]
mod tests;
