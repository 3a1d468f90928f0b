//! What the end of a run's stream means: the run's record knows, the stream does not.

use std::time::Duration;

use super::UPSTREAM_LOST;
use super::feed::Seen;
use crate::langgraph::{RunError, RunStatus, ThreadState};
use crate::run::StreamEnd;
use crate::upstream::{Client, Error};

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
    /// Otherwise, and why.
    Cut(String),
}

/// How a run ended, and what its thread came to.
#[derive(Debug)]
pub(super) struct Ending {
    /// What there is to be told of it, where that was needed.
    pub(super) state: Option<State>,
    /// The end.
    pub(super) end: StreamEnd,
}

/// A state as the server sends it.
#[derive(Debug)]
pub(super) enum State {
    /// What the run came to.
    OfRun(String),
    /// What the thread holds, of a run that has never begun.
    OfThread(String),
}

/// Asks how the run ended. One that was stopped through us ended by that, also where the server
/// says no more than that it failed.
pub(super) async fn ask(
    upstream: &Client,
    thread_id: &str,
    seen: &Seen,
    end: BodyEnd,
    is_stopped: bool,
) -> Ending {
    let Some(run_id) = &seen.run_id else {
        return lost(seen, "the stream ended before it named its run".to_owned());
    };
    let status = match status(upstream, thread_id, run_id, &end).await {
        Ok(status) => status,
        Err(error) => return lost(seen, why(&end, &format!("how it went on is unknown: {error}"))),
    };
    match status {
        RunStatus::Success => succeeded(upstream, thread_id, run_id, seen, end).await,
        RunStatus::Error if is_stopped && seen.error.is_none() => {
            broken_off(upstream, thread_id, run_id, seen, StreamEnd::Cancelled).await
        }
        RunStatus::Error => failed(upstream, thread_id, run_id, seen).await,
        RunStatus::Timeout => {
            let error = RunError {
                code: "timeout".to_owned(),
                message: "LangGraph stopped the run at its time limit".to_owned(),
            };
            broken_off(upstream, thread_id, run_id, seen, StreamEnd::Failed(error)).await
        }
        RunStatus::Interrupted => {
            broken_off(upstream, thread_id, run_id, seen, StreamEnd::Cancelled).await
        }
        RunStatus::Pending | RunStatus::Running => {
            lost(seen, why(&end, "the run goes on in LangGraph"))
        }
        RunStatus::Unknown => lost(seen, why(&end, "the run's record tells no known status")),
    }
}

/// The run's status: after an end in order, with some patience for a record that lags behind.
async fn status(
    upstream: &Client,
    thread_id: &str,
    run_id: &str,
    end: &BodyEnd,
) -> Result<RunStatus, Error> {
    let mut pause = RECORD_PAUSE;
    let reads = if *end == BodyEnd::Clean { RECORD_READS } else { 1 };
    for _ in 1..reads {
        let status = upstream.run_record(thread_id, run_id).await?.status;
        if !status.is_live() {
            return Ok(status);
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
    Ok(upstream.run_record(thread_id, run_id).await?.status)
}

/// "Interrupted if the run's own stream, or a state whose `metadata.run_id` is this run, holds
/// open interrupts": a stream that showed some needs no state, unless its end is missing.
async fn succeeded(
    upstream: &Client,
    thread_id: &str,
    run_id: &str,
    seen: &Seen,
    end: BodyEnd,
) -> Ending {
    let is_told = seen.is_interrupted || seen.error.is_some();
    if is_told && seen.is_whole && end == BodyEnd::Clean {
        return StreamEnd::Succeeded.into();
    }
    let state = state_of(upstream, thread_id, run_id, seen).await;
    if state.is_none() && end != BodyEnd::Clean {
        let then = "the run itself succeeded: load the thread to see its end";
        return lost(seen, why(&end, then));
    }
    Ending { state, end: StreamEnd::Succeeded }
}

/// A run that is stopped may commit a step that its stream does not tell any more.
async fn broken_off(
    upstream: &Client,
    thread_id: &str,
    run_id: &str,
    seen: &Seen,
    end: StreamEnd,
) -> Ending {
    Ending { state: state_of(upstream, thread_id, run_id, seen).await, end }
}

/// The state that the run came to, if it can be read: the thread's, else, where a later run has
/// changed that, the newest of the run's own in the history.
async fn state_of(upstream: &Client, thread_id: &str, run_id: &str, seen: &Seen) -> Option<State> {
    let read = async {
        let Some(state) = upstream.thread_state(thread_id).await? else { return Ok(None) };
        if is_of(&state, run_id) {
            return Ok(Some(State::OfRun(state)));
        }
        let own = upstream.last_state_of(thread_id, run_id).await?.map(State::OfRun);
        Ok(own.or_else(|| (!seen.has_begun).then_some(State::OfThread(state))))
    };
    read.await.unwrap_or_else(|error: Error| {
        tracing::warn!(thread_id, run_id, %error, "the state at a run's end was not read");
        None
    })
}

/// A later run of the thread has a state of its own.
fn is_of(state: &str, run_id: &str) -> bool {
    ThreadState::parse(state).is_some_and(|state| state.run_id.as_deref() == Some(run_id))
}

/// The run failed, for the reason that its stream tells, else its thread, else its task. Where
/// none tells of a failure, the JavaScript server means a run that was stopped.
async fn failed(upstream: &Client, thread_id: &str, run_id: &str, seen: &Seen) -> Ending {
    let error = match &seen.error {
        Some(error) => Some(error.clone()),
        None => error_of_thread(upstream, thread_id).await,
    };
    let state = state_of(upstream, thread_id, run_id, seen).await;
    let own = match &state {
        Some(State::OfRun(state)) => Some(&**state),
        Some(State::OfThread(_)) | None => None,
    };
    let end = match error.or_else(|| error_of_task(own?)) {
        Some(error) => StreamEnd::Failed(error),
        None if own.is_some() => StreamEnd::Cancelled,
        None => StreamEnd::Failed(RunError::untold()),
    };
    Ending { state, end }
}

/// Why the thread's last run failed: the Python server keeps it with the thread, the JavaScript
/// one with the task.
pub(super) async fn last_error(
    upstream: &Client,
    thread_id: &str,
    state: Option<&str>,
) -> Option<RunError> {
    let told = error_of_thread(upstream, thread_id).await;
    told.or_else(|| error_of_task(state?))
}

async fn error_of_thread(upstream: &Client, thread_id: &str) -> Option<RunError> {
    upstream.thread_error(thread_id).await.unwrap_or_else(|error| {
        tracing::warn!(thread_id, %error, "why a run failed was not read");
        None
    })
}

fn error_of_task(state: &str) -> Option<RunError> {
    Some(RunError::parse(&ThreadState::parse(state)?.error?))
}

/// A stream that told of its failure has said all there is.
fn lost(seen: &Seen, message: String) -> Ending {
    match &seen.error {
        Some(error) => StreamEnd::Failed(error.clone()).into(),
        None => StreamEnd::Lost { code: UPSTREAM_LOST, message }.into(),
    }
}

fn why(end: &BodyEnd, then: &str) -> String {
    match end {
        BodyEnd::Clean => format!("the stream of the run ended early; {then}"),
        BodyEnd::Cut(reason) => format!("the stream of the run broke off ({reason}); {then}"),
    }
}

// === impl Ending ===

impl From<StreamEnd> for Ending {
    fn from(end: StreamEnd) -> Self {
        Self { state: None, end }
    }
}
