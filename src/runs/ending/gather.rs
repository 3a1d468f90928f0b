//! Reads what the upstream says of a run whose stream has ended. What is needed is decided in
//! [`super`].

use super::{
    BodyEnd, EndingFacts, RecordedOutcome, StateNeed, attributed, has_failed, needs_kept, parsed,
    state_need, with_task,
};
use crate::runs::decoder::StreamSummary;
use crate::runs::stored_decisions::stored_decisions;
use crate::upstream::{AnswerText, Client, Error};
use threadway_translate::langgraph::{ErrorSource, RunError, RunRecord, RunStatus};

/// Reads the run's record, and what is needed beside it.
pub(in crate::runs) async fn gather(
    upstream: &Client,
    thread_id: &str,
    seen: &StreamSummary,
    end: &BodyEnd,
    is_stopped: bool,
) -> Result<(RecordedOutcome, EndingFacts), Error> {
    let mut facts = EndingFacts { is_stopped, ..EndingFacts::default() };
    let Some(run_id) = &seen.run_id else { return Ok((RecordedOutcome::Unnamed, facts)) };
    let record = match upstream.run_record(thread_id, run_id).await {
        Ok(record) => record,
        Err(Error::Status { code: 404, .. }) => {
            facts.of_thread = upstream.thread_state(thread_id).await?.map(AnswerText::into_string);
            return Ok((RecordedOutcome::Deleted, facts));
        }
        Err(error) => return Err(error),
    };
    if !record.status.is_live() && record.status != RunStatus::Unknown {
        read_beside(upstream, thread_id, seen, end, &record, &mut facts).await?;
    }
    Ok((RecordedOutcome::Read(record), facts))
}

/// Reads what is needed beside the record of a run that is over.
async fn read_beside(
    upstream: &Client,
    thread_id: &str,
    seen: &StreamSummary,
    end: &BodyEnd,
    record: &RunRecord,
    facts: &mut EndingFacts,
) -> Result<(), Error> {
    if seen.error.is_none() && has_failed(seen, record.status, facts.is_stopped) {
        facts.error = error_of_thread(upstream, thread_id).await;
    }
    let need = state_need(seen, end, record.status);
    if need != StateNeed::None {
        match read_state(upstream, thread_id, &record.id, facts).await {
            Err(error) if need == StateNeed::IfReadable && !error.depends_on_caller() => {
                let run_id = &record.id;
                tracing::warn!(thread_id, run_id, %error, "could not read the thread state at a run's end");
            }
            read => read?,
        }
    }
    if needs_kept(seen, record, facts.own.is_some()) {
        let read;
        let state = if facts.own.is_some() {
            facts.own.as_deref()
        } else {
            read = upstream.thread_state(thread_id).await?.map(AnswerText::into_string);
            read.as_deref()
        };
        let state = state.and_then(parsed);
        facts.kept = stored_decisions(upstream, thread_id, state.as_ref()).await?;
    }
    Ok(())
}

/// Reads the thread's state. If the run did not make it, a later run has changed the thread, and the
/// run's newest state is in the history.
async fn read_state(
    upstream: &Client,
    thread_id: &str,
    run_id: &str,
    facts: &mut EndingFacts,
) -> Result<(), Error> {
    let Some(state) = upstream.thread_state(thread_id).await? else { return Ok(()) };
    let state = state.into_string();
    if is_of(&state, run_id) {
        facts.own = Some(state);
    } else {
        let own = upstream.last_run_state(thread_id, run_id).await?;
        facts.own = own.map(AnswerText::into_string);
        facts.of_thread = Some(state);
    }
    Ok(())
}

/// Whether this run made the state, not a later run of the thread.
fn is_of(state: &str, run_id: &str) -> bool {
    parsed(state).is_some_and(|state| state.run_id.as_deref() == Some(run_id))
}

/// Why the thread's last run failed. The Python server stores the reason with the thread, the
/// JavaScript server with the task.
pub(in crate::runs) async fn last_error(
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
