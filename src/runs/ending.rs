//! What the end of a run's stream means: the run's record knows, the stream does not.

use std::time::Duration;

use super::feed::{Heard, Seen};
use super::kept;
use crate::upstream::{Client, Error};
use threadway_translate::langgraph::{
    ErrorReport, ErrorSource, KeptAnswers, RunError, RunRecord, RunStatus, ThreadState,
};
use threadway_translate::run::{Loss, StreamEnd};

/// How often the record is read while it says that the run goes on, although its stream has ended
/// in order. The Python server's is up to date 2 ms after the end; one that writes it to a
/// database may need a moment.
pub(super) const RECORD_READS: u32 = 5;

/// The pause before the record is read again; it doubles each time, to 1.5 s in all.
pub(super) const RECORD_PAUSE: Duration = Duration::from_millis(100);

/// How a stream's body ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BodyEnd {
    /// In order. A server that is stopped ends its streams in order too.
    Clean,
    /// Otherwise, or it never began, and why. That says nothing of the run.
    Cut(String),
    /// The server would not give it.
    Refused,
    /// It holds what cannot be read, and would again.
    Unreadable(String),
}

/// What is known of a run whose stream has ended.
#[derive(Debug)]
pub(super) enum Outlook {
    /// It is over.
    Over(Ending),
    /// It goes on.
    Live,
    /// Nobody can tell now, and why.
    Unknown(String),
}

/// How a run ended, and what its thread came to.
#[derive(Debug)]
pub(super) struct Ending {
    /// What there is to be told of it, where that was needed.
    pub(super) state: Option<State>,
    /// What is kept of the answers to what it asks.
    pub(super) kept: KeptAnswers,
    /// The end.
    pub(super) end: StreamEnd,
}

/// A state as the server sends it.
#[derive(Debug)]
pub(super) enum State {
    /// What the run came to.
    OfRun(String),
    /// What the thread holds, of a run that has never begun, or is no more.
    OfThread(String),
}

/// What there is to be found out of a run whose stream has ended.
pub(super) struct Inquest<'a> {
    pub(super) upstream: &'a Client,
    pub(super) thread_id: &'a str,
    pub(super) seen: &'a Seen,
    pub(super) end: &'a BodyEnd,
    /// Whether it was stopped through us. It then ended by that, also where the server says no
    /// more than that it failed.
    pub(super) is_stopped: bool,
}

// === impl Inquest ===

impl Inquest<'_> {
    /// Asks how the run ended, if it has.
    pub(super) async fn hold(&self) -> Outlook {
        let Some(run_id) = &self.seen.run_id else {
            return self.lost("the stream ended before it named its run".to_owned());
        };
        let record = match self.record(run_id).await {
            Ok(record) => record,
            Err(Error::Status { code: 404, .. }) => return self.gone().await,
            Err(error) => return Outlook::Unknown(error.to_string()),
        };
        match (record.status, self.end) {
            // It is as good as over, and its state may not be written yet.
            (RunStatus::Pending | RunStatus::Running, _) if self.seen.error.is_some() => {
                Outlook::Unknown("the run's record does not tell its end yet".to_owned())
            }
            (RunStatus::Pending | RunStatus::Running, BodyEnd::Unreadable(why)) => {
                self.lost(format!("the stream of the run cannot be read ({why}); the run goes on"))
            }
            (RunStatus::Pending | RunStatus::Running, _) => Outlook::Live,
            (RunStatus::Unknown, _) => {
                self.lost("the run's record tells no known status".to_owned())
            }
            (_, _) => match self.over(run_id, &record).await {
                Ok(ending) => Outlook::Over(ending),
                Err(error) => Outlook::Unknown(error.to_string()),
            },
        }
    }

    /// The run's record: after an end in order, with some patience for a record that lags behind.
    async fn record(&self, run_id: &str) -> Result<RunRecord, Error> {
        let read = async || self.upstream.run_record(self.thread_id, run_id).await;
        let mut pause = RECORD_PAUSE;
        let reads = if *self.end == BodyEnd::Clean { RECORD_READS } else { 1 };
        for _ in 1..reads {
            let record = read().await?;
            if !record.status.is_live() {
                return Ok(record);
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        read().await
    }

    /// The run has this record, which is its last.
    async fn over(&self, run_id: &str, record: &RunRecord) -> Result<Ending, Error> {
        let status = record.status;
        let has_failed = status == RunStatus::Error && !self.was_stopped();
        let error = match self.told_error() {
            Some(error) => Some(error),
            None if has_failed => error_of_thread(self.upstream, self.thread_id).await,
            None => None,
        };
        let state = self.state(run_id, status).await?;
        let end = match status {
            RunStatus::Success if state.is_none() && self.lacks_end() => {
                let message = "the run succeeded, but neither its stream nor its state can be had \
                               whole; load the thread to see its end";
                StreamEnd::Lost { loss: Loss::Unreadable, message: message.to_owned() }
            }
            RunStatus::Success => StreamEnd::Succeeded,
            // LangGraph says `success` of a run that stops to ask. Other servers of its API say
            // `interrupted`, of a cancelled run too.
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

    /// What is kept of the answers to what the run asks. Only what other questions than those that
    /// it answers have been asked before it is kept.
    async fn kept(&self, record: &RunRecord, state: Option<&State>) -> Result<KeptAnswers, Error> {
        let own = match state {
            Some(State::OfRun(state)) => Some(state.as_str()),
            Some(State::OfThread(_)) | None => None,
        };
        let asks = self.seen.asks_batch || own.is_some();
        if record.answers.is_empty() || !asks {
            return Ok(KeptAnswers::default());
        }
        let read;
        let state = if own.is_some() {
            own
        } else {
            read = self.upstream.thread_state(self.thread_id).await?;
            read.as_deref()
        };
        let state = state.and_then(ThreadState::parse);
        kept::read(self.upstream, self.thread_id, state.as_ref()).await
    }

    /// Whether the run has stopped to ask something, as its state shows it. Without a state of its
    /// own, what its stream has shown counts. Nodes that are still to run alone say nothing: a
    /// cancelled run leaves them too.
    fn has_asked(&self, state: Option<&State>) -> bool {
        let own = match state {
            Some(State::OfRun(state)) => ThreadState::parse(state),
            Some(State::OfThread(_)) | None => None,
        };
        match own {
            Some(own) => {
                let is_at_breakpoint = self.seen.is_interrupted && !own.next.is_empty();
                !own.interrupts.is_empty() || is_at_breakpoint
            }
            None => self.seen.is_interrupted,
        }
    }

    fn lacks_end(&self) -> bool {
        self.seen.heard == Heard::NotItsEnd || *self.end != BodyEnd::Clean
    }

    fn has_heard_all(&self) -> bool {
        self.seen.heard == Heard::Whole && *self.end == BodyEnd::Clean
    }

    /// The failure that its stream has told.
    fn told_error(&self) -> Option<RunError> {
        Some(told(self.seen.error.clone()?, ErrorSource::RunStream))
    }

    fn was_stopped(&self) -> bool {
        self.is_stopped && self.seen.error.is_none()
    }

    /// The run's last state, if the stream does not show all of it. A stopped run may commit a step
    /// after its stream has ended. A run is interrupted if its own stream, or a state whose
    /// `metadata.run_id` is this run, holds open interrupts. A stream that showed some needs no
    /// state, unless its end is missing.
    async fn state(&self, run_id: &str, status: RunStatus) -> Result<Option<State>, Error> {
        let is_whole = self.has_heard_all();
        let is_told = self.seen.is_interrupted || self.seen.error.is_some();
        if status == RunStatus::Success && is_told && is_whole {
            return Ok(None);
        }
        match self.state_of(run_id).await {
            Err(error) if is_whole => {
                tracing::warn!(self.thread_id, run_id, %error, "the state at a run's end was not read");
                Ok(None)
            }
            state => state,
        }
    }

    /// The thread's state if the run made it, else, where a later run has changed that, the newest
    /// of the run's own in the history.
    async fn state_of(&self, run_id: &str) -> Result<Option<State>, Error> {
        let Self { upstream, thread_id, .. } = self;
        let Some(state) = upstream.thread_state(thread_id).await? else { return Ok(None) };
        if is_of(&state, run_id) {
            return Ok(Some(State::OfRun(state)));
        }
        let own = upstream.last_run_state(thread_id, run_id).await?.map(State::OfRun);
        Ok(own.or_else(|| (!self.seen.has_begun).then_some(State::OfThread(state))))
    }

    /// The run was deleted, as by a rollback: what its thread holds is all there is. Or the server
    /// has lost both.
    async fn gone(&self) -> Outlook {
        match self.upstream.thread_state(self.thread_id).await {
            Ok(Some(state)) => {
                let end = self.told_error().map_or(StreamEnd::Cancelled, StreamEnd::Failed);
                let state = Some(State::OfThread(state));
                Outlook::Over(Ending { state, kept: KeptAnswers::default(), end })
            }
            Ok(None) => {
                let end = self.told_error().map_or(StreamEnd::Gone, StreamEnd::Failed);
                Outlook::Over(end.into())
            }
            Err(error) => Outlook::Unknown(error.to_string()),
        }
    }

    /// A stream that told of its failure has said all there is.
    fn lost(&self, message: String) -> Outlook {
        Outlook::Over(match self.told_error() {
            Some(error) => StreamEnd::Failed(error).into(),
            None => StreamEnd::Lost { loss: Loss::Unreadable, message }.into(),
        })
    }
}

/// A later run of the thread has a state of its own.
fn is_of(state: &str, run_id: &str) -> bool {
    ThreadState::parse(state).is_some_and(|state| state.run_id.as_deref() == Some(run_id))
}

/// The run failed, for the reason that its stream tells, else its thread, else its task. Where
/// none tells of a failure, the JavaScript server means a run that was stopped.
fn failed(error: Option<RunError>, state: Option<&State>) -> StreamEnd {
    let own = match state {
        Some(State::OfRun(state)) => Some(&**state),
        Some(State::OfThread(_)) | None => None,
    };
    match with_task(error, own) {
        Some(error) => StreamEnd::Failed(error),
        None if own.is_some() => StreamEnd::Cancelled,
        None => StreamEnd::Failed(RunError::unexplained()),
    }
}

/// Why the thread's last run failed: the Python server keeps it with the thread, the JavaScript
/// one with the task.
pub(super) async fn last_error(
    upstream: &Client,
    thread_id: &str,
    state: Option<&str>,
) -> Option<RunError> {
    with_task(error_of_thread(upstream, thread_id).await, state)
}

async fn error_of_thread(upstream: &Client, thread_id: &str) -> Option<RunError> {
    let error = upstream.thread_error(thread_id).await.unwrap_or_else(|error| {
        tracing::warn!(thread_id, %error, "why a run failed was not read");
        None
    });
    error.map(|error| told(error, ErrorSource::Thread))
}

/// A failure, with what the state's failed task has on it; that alone, if nothing else was told.
fn with_task(error: Option<RunError>, state: Option<&str>) -> Option<RunError> {
    let state = state.and_then(ThreadState::parse);
    let of_task = || Some(RunError::parse(state.as_ref()?.error.as_deref()?));
    let mut error = error.or_else(of_task)?;
    error.reports.extend(state.as_ref().and_then(ErrorReport::of_state));
    Some(error)
}

/// A failure as one place tells it.
fn told(error: RunError, source: ErrorSource) -> RunError {
    RunError { reports: vec![ErrorReport::of(source, &error)], ..error }
}

// === impl Ending ===

impl From<StreamEnd> for Ending {
    fn from(end: StreamEnd) -> Self {
        Self { state: None, kept: KeptAnswers::default(), end }
    }
}
