//! How a run ended. The end of its stream does not say; the run's record does.

use std::time::Duration;

use super::answers::kept_answers;
use super::feed::{Asks, Coverage, StreamSummary};
use super::retry::wait_as_asked;
use crate::offload::offload;
use crate::upstream::{AnswerText, Backoff, Client, Error};
use threadway_translate::langgraph::{
    ErrorReport, ErrorSource, KeptAnswers, RunError, RunRecord, RunStatus, ThreadState,
};
use threadway_translate::run::{Loss, StreamEnd};

/// How many times the record is read if it says that the run goes on after a clean end of its
/// stream. The Python server updates the record within 2 ms; a server with a database may need
/// longer.
pub(super) const RECORD_READS: u32 = 5;

/// The pause before the second read of the record. It doubles each time, to 1.5 s in all.
pub(super) const RECORD_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between two reads of the record.
pub(super) const LONGEST_RECORD_PAUSE: Duration = Duration::from_millis(1600);

/// How a stream's body ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BodyEnd {
    /// Cleanly. A server that is stopped also ends its streams cleanly.
    Clean,
    /// The connection broke, or could not be made, and why. The run may go on.
    Cut(String),
    /// The server refused the stream with a 4xx status.
    Refused,
    /// The bytes could not be decoded, and why. Another attempt would bring the same bytes.
    Unreadable(String),
}

/// Whether a run is over whose stream has ended.
#[derive(Debug)]
pub(super) enum EndStatus {
    Ended(Ending),
    Running,
    /// The upstream could not say, and why.
    Unknown(String),
}

/// The upstream does not say to this caller how the run ended.
#[derive(Debug)]
pub(super) struct RefusedEnd {
    /// What it means if the upstream says so to everybody.
    pub(super) status: EndStatus,
    /// Whether the run is missing for this caller.
    pub(super) is_missing: bool,
}

/// How a run ended.
#[derive(Debug)]
pub(super) struct Ending {
    /// The state at the end, if the stream did not show all of it.
    pub(super) state: Option<FinalState>,
    /// The stored answers to some of the questions that the run asks.
    pub(super) kept: KeptAnswers,
    pub(super) end: StreamEnd,
}

/// A thread state at the end of a run, as the server sends it.
#[derive(Debug)]
pub(super) enum FinalState {
    /// The state that the run made.
    OfRun(String),
    /// The thread's state, after a run that never began or was deleted.
    OfThread(String),
}

/// Asks the upstream how a run ended.
pub(super) struct EndQuery<'a> {
    pub(super) upstream: &'a Client,
    pub(super) thread_id: &'a str,
    /// A summary of the stream.
    pub(super) seen: &'a StreamSummary,
    /// How the stream ended.
    pub(super) end: &'a BodyEnd,
    /// Whether a client stopped the run through this gateway. Some servers then record a failure;
    /// the run counts as cancelled.
    pub(super) is_stopped: bool,
}

// === impl EndStatus ===

impl EndStatus {
    /// The upstream could not say, and has been given the time that it asks for; or it refuses this
    /// caller.
    async fn unknown(error: &Error) -> Result<Self, RefusedEnd> {
        let status = Self::Unknown(error.to_string());
        if error.depends_on_caller() {
            return Err(RefusedEnd { status, is_missing: false });
        }
        wait_as_asked(error).await;
        Ok(status)
    }
}

// === impl EndQuery ===

impl EndQuery<'_> {
    pub(super) async fn send(&self) -> Result<EndStatus, RefusedEnd> {
        let Some(run_id) = &self.seen.run_id else {
            return Ok(self.lost("the stream ended before it named its run".to_owned()));
        };
        let record = match self.record(run_id).await {
            Ok(record) => record,
            Err(Error::Status { code: 404, .. }) => return self.gone().await,
            Err(error) => return EndStatus::unknown(&error).await,
        };
        Ok(match (record.status, self.end) {
            // After an error in the stream the run is all but over. Its state may not be written yet.
            (RunStatus::Pending | RunStatus::Running, _) if self.seen.error.is_some() => {
                EndStatus::Unknown("the run's record does not show the end yet".to_owned())
            }
            (RunStatus::Pending | RunStatus::Running, BodyEnd::Unreadable(why)) => {
                self.lost(format!("the stream of the run cannot be read ({why}); the run goes on"))
            }
            (RunStatus::Pending | RunStatus::Running, _) => EndStatus::Running,
            (RunStatus::Unknown, _) => {
                self.lost("the run's record has an unknown status".to_owned())
            }
            (_, _) => match self.over(run_id, &record).await {
                // The record names a state that is missing for this caller.
                Ok(ending) if matches!(ending.end, StreamEnd::Lost { .. }) => {
                    let status = EndStatus::Ended(ending);
                    return Err(RefusedEnd { status, is_missing: true });
                }
                Ok(ending) => EndStatus::Ended(ending),
                Err(error) => return EndStatus::unknown(&error).await,
            },
        })
    }

    /// The run's record. After a clean end of the stream a record that lags is read again.
    async fn record(&self, run_id: &str) -> Result<RunRecord, Error> {
        let read = async || self.upstream.run_record(self.thread_id, run_id).await;
        let mut pauses = Backoff::exact(RECORD_PAUSE, LONGEST_RECORD_PAUSE);
        let reads = if *self.end == BodyEnd::Clean { RECORD_READS } else { 1 };
        for _ in 1..reads {
            let record = read().await?;
            if !record.status.is_live() {
                return Ok(record);
            }
            tokio::time::sleep(pauses.next_pause()).await;
        }
        read().await
    }

    /// How the run ended, by its final record.
    async fn over(&self, run_id: &str, record: &RunRecord) -> Result<Ending, Error> {
        let status = record.status;
        let has_failed = status == RunStatus::Error && !self.was_stopped();
        let error = match self.stream_error() {
            Some(error) => Some(error),
            None if has_failed => error_of_thread(self.upstream, self.thread_id).await,
            None => None,
        };
        let state = self.state(run_id, status).await?;
        let end = match status {
            RunStatus::Success if state.is_none() && self.lacks_end() => {
                let message = "the run succeeded, but its stream and its final state could not be \
                               read; load the thread to see the result";
                StreamEnd::Lost { loss: Loss::Unreadable, message: message.to_owned() }
            }
            RunStatus::Success => StreamEnd::Succeeded,
            // LangGraph records `success` for a run that stops to ask. Other servers of its API record
            // `interrupted`, also for a cancelled run.
            RunStatus::Interrupted if self.has_asked(state.as_ref()) => StreamEnd::Succeeded,
            RunStatus::Error if has_failed => failed(error, state.as_ref()),
            RunStatus::Timeout => StreamEnd::Failed(RunError::new(
                "timeout",
                "LangGraph stopped the run at its time limit",
            )),
            RunStatus::Error
            | RunStatus::Interrupted
            | RunStatus::Pending
            | RunStatus::Running
            | RunStatus::Unknown => StreamEnd::Cancelled,
        };
        let kept = self.kept(record, state.as_ref()).await?;
        Ok(Ending { state, kept, end })
    }

    /// The stored answers to some of the questions that the run asks. Answers are stored only for a
    /// run that itself answers earlier questions.
    async fn kept(
        &self,
        record: &RunRecord,
        state: Option<&FinalState>,
    ) -> Result<KeptAnswers, Error> {
        let own = state.and_then(FinalState::of_run);
        let asks = self.seen.asks_batch || own.is_some();
        if record.answers.is_empty() || !asks {
            return Ok(KeptAnswers::default());
        }
        let read;
        let state = if own.is_some() {
            own
        } else {
            read = self.upstream.thread_state(self.thread_id).await?.map(AnswerText::into_string);
            read.as_deref()
        };
        let state = state.and_then(parsed);
        kept_answers(self.upstream, self.thread_id, state.as_ref()).await
    }

    /// Whether the run has stopped to ask something, by its state or else by its stream. Pending
    /// nodes alone do not show it, since a cancelled run leaves some too.
    fn has_asked(&self, state: Option<&FinalState>) -> bool {
        match state.and_then(FinalState::of_run).and_then(parsed) {
            Some(own) => {
                let is_at_breakpoint = self.seen.asks != Asks::Nothing && !own.next.is_empty();
                !own.interrupts.is_empty() || is_at_breakpoint
            }
            None => self.seen.asks != Asks::Nothing,
        }
    }

    fn lacks_end(&self) -> bool {
        self.seen.coverage == Coverage::EndMissing || *self.end != BodyEnd::Clean
    }

    fn is_whole(&self) -> bool {
        self.seen.coverage == Coverage::Whole && *self.end == BodyEnd::Clean
    }

    /// The failure that the stream has shown.
    fn stream_error(&self) -> Option<RunError> {
        Some(attributed(self.seen.error.clone()?, ErrorSource::RunStream))
    }

    fn was_stopped(&self) -> bool {
        self.is_stopped && self.seen.error.is_none()
    }

    /// The state at the run's end, if the stream does not show all of it.
    ///
    /// A stopped run may commit a step after its stream has ended. A run is interrupted if open
    /// interrupts are in its stream, or in a state whose `metadata.run_id` is this run. A stream that
    /// showed interrupts needs no state, unless its end is missing, or the messages of a subgraph that
    /// asks.
    async fn state(&self, run_id: &str, status: RunStatus) -> Result<Option<FinalState>, Error> {
        let is_whole = self.is_whole();
        let is_settled = self.seen.asks == Asks::AtRoot || self.seen.error.is_some();
        if status == RunStatus::Success && is_settled && is_whole {
            return Ok(None);
        }
        match self.state_of(run_id).await {
            Err(error) if is_whole && !error.depends_on_caller() => {
                tracing::warn!(self.thread_id, run_id, %error, "could not read the thread state at a run's end");
                Ok(None)
            }
            state => state,
        }
    }

    /// The thread's state if the run made it. If a later run has changed it, the run's newest state
    /// in the history.
    async fn state_of(&self, run_id: &str) -> Result<Option<FinalState>, Error> {
        let Self { upstream, thread_id, .. } = self;
        let Some(state) = upstream.thread_state(thread_id).await? else { return Ok(None) };
        let state = state.into_string();
        if is_of(&state, run_id) {
            return Ok(Some(FinalState::OfRun(state)));
        }
        let own = upstream.last_run_state(thread_id, run_id).await?;
        let own = own.map(|state| FinalState::OfRun(state.into_string()));
        Ok(own.or_else(|| (!self.seen.has_begun).then_some(FinalState::OfThread(state))))
    }

    /// The run has no record. It was deleted, as by a rollback, and only its thread's state is left;
    /// or the server has lost the thread too.
    async fn gone(&self) -> Result<EndStatus, RefusedEnd> {
        match self.upstream.thread_state(self.thread_id).await {
            Ok(Some(state)) => {
                let end = self.stream_error().map_or(StreamEnd::Cancelled, StreamEnd::Failed);
                let state = Some(FinalState::OfThread(state.into_string()));
                Ok(EndStatus::Ended(Ending { state, kept: KeptAnswers::default(), end }))
            }
            Ok(None) => {
                let end = self.stream_error().map_or(StreamEnd::Gone, StreamEnd::Failed);
                Err(RefusedEnd { status: EndStatus::Ended(end.into()), is_missing: true })
            }
            Err(error) => EndStatus::unknown(&error).await,
        }
    }

    /// The run's end cannot be found out. A failure that the stream has shown is its end then.
    fn lost(&self, message: String) -> EndStatus {
        EndStatus::Ended(match self.stream_error() {
            Some(error) => StreamEnd::Failed(error).into(),
            None => StreamEnd::Lost { loss: Loss::Unreadable, message }.into(),
        })
    }
}

fn parsed(state: &str) -> Option<ThreadState<'_>> {
    offload(state.len(), || ThreadState::parse(state))
}

/// Whether this run made the state, not a later run of the thread.
fn is_of(state: &str, run_id: &str) -> bool {
    parsed(state).is_some_and(|state| state.run_id.as_deref() == Some(run_id))
}

/// The end of a run whose record says that it failed. The reason is in its stream, else in its
/// thread, else in its task. Without any, a JavaScript server before 1.4.4 means a run that was
/// stopped.
fn failed(error: Option<RunError>, state: Option<&FinalState>) -> StreamEnd {
    let own = state.and_then(FinalState::of_run);
    match with_task(error, own) {
        Some(error) => StreamEnd::Failed(error),
        None if own.is_some() => StreamEnd::Cancelled,
        None => StreamEnd::Failed(RunError::unexplained()),
    }
}

/// Why the thread's last run failed. The Python server stores the reason with the thread, the
/// JavaScript server with the task.
pub(super) async fn last_error(
    upstream: &Client,
    thread_id: &str,
    state: Option<&AnswerText>,
) -> Option<RunError> {
    let error = error_of_thread(upstream, thread_id).await;
    match state {
        Some(state) => state.read(|state| with_task(error, Some(state))),
        None => error,
    }
}

async fn error_of_thread(upstream: &Client, thread_id: &str) -> Option<RunError> {
    let error = upstream.thread_error(thread_id).await.unwrap_or_else(|error| {
        tracing::warn!(thread_id, %error, "could not read why a run failed");
        None
    });
    error.map(|error| attributed(error, ErrorSource::Thread))
}

/// A failure, with what the state's failed task says of it.
fn with_task(error: Option<RunError>, state: Option<&str>) -> Option<RunError> {
    let state = state.and_then(parsed);
    let of_task = || Some(RunError::parse(state.as_ref()?.error.as_deref()?));
    let mut error = error.or_else(of_task)?;
    error.reports.extend(state.as_ref().and_then(ErrorReport::of_state));
    Some(error)
}

/// A failure, with the place that it was read from.
fn attributed(error: RunError, source: ErrorSource) -> RunError {
    RunError { reports: vec![ErrorReport::of(source, &error)], ..error }
}

// === impl FinalState ===

impl FinalState {
    /// The state's JSON.
    pub(super) fn json(&self) -> &str {
        let (Self::OfRun(state) | Self::OfThread(state)) = self;
        state
    }

    /// The state, if the run made it.
    fn of_run(&self) -> Option<&str> {
        match self {
            Self::OfRun(state) => Some(state),
            Self::OfThread(_) => None,
        }
    }
}

// === impl Ending ===

impl From<StreamEnd> for Ending {
    fn from(end: StreamEnd) -> Self {
        Self { state: None, kept: KeptAnswers::default(), end }
    }
}
