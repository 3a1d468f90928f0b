//! How a run ended. The end of its stream does not say; the run's record does.
//!
//! - `gather`: reads what the upstream says of a run whose stream has ended.
//! - [`ending`]: decides by it how the run ended. There is no IO in it.

mod gather;

use super::decoder::{Coverage, InterruptSeen, StreamSummary};
use crate::offload::offload;
use threadway_translate::langgraph::{
    ErrorReport, ErrorSource, RunError, RunRecord, RunStatus, StoredDecisions, ThreadState,
};
use threadway_translate::run::{LossReason, StreamEnd};

pub(super) use gather::{gather, last_error};

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
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EndStatus {
    Ended(Ending),
    Running,
    /// The stream has shown that the run failed, and its record does not show the end yet.
    Lagging,
    /// The stream has shown the whole run, and this end. The upstream refuses to confirm it to all
    /// callers.
    Unconfirmed(StreamEnd),
    /// The upstream could not say, and why.
    Unknown(String),
}

/// The upstream does not show this caller how the run ended. To everybody else it means this.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Missing(pub(super) Box<Ending>);

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ending {
    /// The state at the end, if the stream did not show all of it.
    pub(super) state: Option<FinalState>,
    /// The stored answers to some of the questions that the run asks.
    pub(super) kept: StoredDecisions,
    pub(super) end: StreamEnd,
}

/// A thread state at the end of a run, as the server sends it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FinalState {
    /// The state that the run made.
    OfRun(String),
    /// The thread's state, after a run that never began or was deleted.
    OfThread(String),
}

/// What the upstream's record of a run says.
#[derive(Debug)]
pub(super) enum RecordedOutcome {
    /// Nothing: the stream ended before it named the run.
    Unnamed,
    /// Nothing: there is no record. The run was deleted, as by a rollback, and only its thread's
    /// state is left; or the server has lost the thread too.
    Deleted,
    Read(RunRecord),
}

/// What was read beside the record, as far as it is needed.
#[derive(Debug, Default)]
pub(super) struct EndingFacts {
    /// Whether a client stopped the run through this gateway. Some servers then record a failure;
    /// the run counts as cancelled.
    pub(super) is_stopped: bool,
    /// The newest state that the run made.
    pub(super) own: Option<String>,
    /// The thread's state, if the run did not make it.
    pub(super) of_thread: Option<String>,
    /// Why the thread's last run failed.
    pub(super) error: Option<RunError>,
    pub(super) kept: StoredDecisions,
}

/// Whether the state at a run's end has to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateNeed {
    /// The stream has shown it.
    None,
    /// The stream has shown the run without it.
    IfReadable,
    Whole,
}

/// A failure, with the place that it was read from.
fn attributed(error: RunError, source: ErrorSource) -> RunError {
    RunError { reports: vec![ErrorReport::of(source, &error)], ..error }
}

fn parsed(state: &str) -> Option<ThreadState<'_>> {
    offload(state.len(), || ThreadState::parse(state))
}

/// A failure, with what the state's failed task says of it.
fn with_task(error: Option<RunError>, state: Option<&str>) -> Option<RunError> {
    let state = state.and_then(parsed);
    let of_task = || Some(RunError::parse(state.as_ref()?.error.as_deref()?));
    let mut error = error.or_else(of_task)?;
    error.reports.extend(state.as_ref().and_then(ErrorReport::of_state));
    Some(error)
}

/// Whether the state at the run's end has to be read.
///
/// A stopped run may commit a step after its stream has ended. A run is interrupted if open
/// interrupts are in its stream, or in a state whose `metadata.run_id` is this run. A stream that
/// showed interrupts needs no state, unless its end is missing, or the messages of a subgraph that
/// asks.
fn state_need(seen: &StreamSummary, end: &BodyEnd, status: RunStatus) -> StateNeed {
    let is_whole = seen.coverage == Coverage::Whole && *end == BodyEnd::Clean;
    let is_settled = seen.asks == InterruptSeen::AtRoot || seen.error.is_some();
    match is_whole {
        true if status == RunStatus::Success && is_settled => StateNeed::None,
        true => StateNeed::IfReadable,
        false => StateNeed::Whole,
    }
}

/// Whether the run's record says that it failed, and nobody stopped it.
fn has_failed(seen: &StreamSummary, status: RunStatus, is_stopped: bool) -> bool {
    status == RunStatus::Error && !(is_stopped && seen.error.is_none())
}

/// Whether stored answers to the run's questions have to be read. Answers are stored only for a run
/// that itself answers earlier questions.
fn needs_kept(seen: &StreamSummary, record: &RunRecord, has_own_state: bool) -> bool {
    !record.answers.is_empty() && (seen.asks_batch || has_own_state)
}

/// Whether the stream has shown everything but the confirmation of the run's success.
pub(super) fn has_shown_all(seen: &StreamSummary, end: &BodyEnd) -> bool {
    *end == BodyEnd::Clean
        && seen.coverage == Coverage::Whole
        && seen.has_begun
        && seen.error.is_none()
        && seen.asks == InterruptSeen::Nothing
}

/// Decides whether a run is over, and how it ended.
pub(super) fn ending(
    seen: &StreamSummary,
    body_end: &BodyEnd,
    record: &RecordedOutcome,
    facts: EndingFacts,
) -> Result<EndStatus, Missing> {
    let status = match record {
        RecordedOutcome::Unnamed => {
            return Ok(lost(seen, "the stream ended before it named its run".to_owned()));
        }
        RecordedOutcome::Deleted => return deleted(seen, facts),
        RecordedOutcome::Read(record) => record.status,
    };
    match (status, body_end) {
        // After an error in the stream the run is all but over. Its state may not be written yet.
        (RunStatus::Pending | RunStatus::Running, _) if seen.error.is_some() => {
            Ok(EndStatus::Lagging)
        }
        (RunStatus::Pending | RunStatus::Running, BodyEnd::Unreadable(why)) => {
            Ok(lost(seen, format!("the stream of the run cannot be read ({why}); the run goes on")))
        }
        (RunStatus::Pending | RunStatus::Running, _) => Ok(EndStatus::Running),
        (RunStatus::Unknown, _) => {
            Ok(lost(seen, "the run's record has an unknown status".to_owned()))
        }
        (
            RunStatus::Success | RunStatus::Error | RunStatus::Timeout | RunStatus::Interrupted,
            _,
        ) => over(seen, body_end, status, facts),
    }
}

/// How a run ended whose record says that it is over.
fn over(
    seen: &StreamSummary,
    body_end: &BodyEnd,
    status: RunStatus,
    facts: EndingFacts,
) -> Result<EndStatus, Missing> {
    let EndingFacts { is_stopped, own, of_thread, error, kept } = facts;
    let lacks_end = seen.coverage == Coverage::EndMissing || *body_end != BodyEnd::Clean;
    let is_whole_state = own.is_some() || (of_thread.is_some() && !seen.has_begun);
    let end = match status {
        // The record names a state that is missing for this caller.
        RunStatus::Success if !is_whole_state && lacks_end => {
            let message = "the run succeeded, but its stream and its final state could not be \
                           read; load the thread to see the result";
            let end = StreamEnd::Lost { loss: LossReason::Unreadable, message: message.to_owned() };
            return Err(Missing(Box::new(Ending { kept, ..end.into() })));
        }
        RunStatus::Success => StreamEnd::Succeeded,
        // LangGraph records `success` for a run that stops to ask. Other servers of its API record
        // `interrupted`, also for a cancelled run.
        RunStatus::Interrupted if has_asked(seen, own.as_deref()) => StreamEnd::Succeeded,
        RunStatus::Error if has_failed(seen, status, is_stopped) => {
            failed(stream_error(seen).or(error), own.as_deref())
        }
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
    let of_thread = of_thread.filter(|_| !seen.has_begun).map(FinalState::OfThread);
    let state = own.map(FinalState::OfRun).or(of_thread);
    Ok(EndStatus::Ended(Ending { state, kept, end }))
}

/// How a run ended that has no record.
fn deleted(seen: &StreamSummary, facts: EndingFacts) -> Result<EndStatus, Missing> {
    let error = stream_error(seen);
    let Some(state) = facts.of_thread else {
        let end = error.map_or(StreamEnd::Gone, StreamEnd::Failed);
        return Err(Missing(Box::new(end.into())));
    };
    let end = error.map_or(StreamEnd::Cancelled, StreamEnd::Failed);
    let state = Some(FinalState::OfThread(state));
    Ok(EndStatus::Ended(Ending { state, ..end.into() }))
}

/// The run's end cannot be found out. A failure that the stream has shown is its end then.
fn lost(seen: &StreamSummary, message: String) -> EndStatus {
    EndStatus::Ended(match stream_error(seen) {
        Some(error) => StreamEnd::Failed(error).into(),
        None => StreamEnd::Lost { loss: LossReason::Unreadable, message }.into(),
    })
}

/// The failure that the stream has shown.
fn stream_error(seen: &StreamSummary) -> Option<RunError> {
    Some(attributed(seen.error.clone()?, ErrorSource::RunStream))
}

/// Whether the run has stopped to ask something, by its state or else by its stream. Pending nodes
/// alone do not show it, since a cancelled run leaves some too.
fn has_asked(seen: &StreamSummary, own: Option<&str>) -> bool {
    match own.and_then(parsed) {
        Some(own) => {
            let is_at_breakpoint = seen.asks != InterruptSeen::Nothing && !own.next.is_empty();
            !own.interrupts.is_empty() || is_at_breakpoint
        }
        None => seen.asks != InterruptSeen::Nothing,
    }
}

/// The end of a run whose record says that it failed. The reason is in its stream, else in its
/// thread, else in its task. Without any, a JavaScript server before 1.4.4 means a run that was
/// stopped.
fn failed(error: Option<RunError>, own: Option<&str>) -> StreamEnd {
    match with_task(error, own) {
        Some(error) => StreamEnd::Failed(error),
        None if own.is_some() => StreamEnd::Cancelled,
        None => StreamEnd::Failed(RunError::unexplained()),
    }
}

// === impl FinalState ===

impl FinalState {
    /// The state's JSON.
    pub(super) fn json(&self) -> &str {
        let (Self::OfRun(state) | Self::OfThread(state)) = self;
        state
    }
}

// === impl Ending ===

impl From<StreamEnd> for Ending {
    fn from(end: StreamEnd) -> Self {
        Self { state: None, kept: StoredDecisions::default(), end }
    }
}

#[cfg(test)]
mod tests;
