//! Which interrupts of a thread are open, and which of them a live run answers.

use super::Threads;
use crate::upstream::{Client, Error, QueueClass, RunFilter};
use threadway_translate::langgraph::{RunRecord, ThreadState};

/// What a thread waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitingFor {
    /// The end of a run.
    Run,
    /// Answers to these interrupts, by LangGraph's ids.
    Answers(Vec<String>),
    /// The next message.
    Nothing,
}

impl Threads {
    /// What a thread waits for, before a run is started on it.
    pub async fn waiting_for(
        &self,
        upstream: &Client,
        thread_id: &str,
    ) -> Result<WaitingFor, Error> {
        let _turn = upstream.turn(QueueClass::Starts).await?;
        let (state, running) = tokio::try_join!(
            upstream.thread_state(thread_id),
            upstream.runs(thread_id, RunFilter::Running)
        )?;
        if !running.is_empty() {
            return Ok(WaitingFor::Run);
        }
        let ids = |state: &str| -> Vec<_> {
            let open = ThreadState::parse(state).map(|state| state.interrupts);
            open.into_iter().flatten().map(|open| open.id.into_owned()).collect()
        };
        let ids = state.map(|state| state.read(ids)).unwrap_or_default();
        Ok(if ids.is_empty() { WaitingFor::Nothing } else { WaitingFor::Answers(ids) })
    }
}

/// Whether a thread has a run that is not over.
pub(super) async fn has_live_run(upstream: &Client, thread_id: &str) -> Result<bool, Error> {
    match live_runs(upstream, thread_id).await {
        Ok(live) => Ok(!live.is_empty()),
        // The run makes the thread.
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// The live runs of a thread.
///
/// Pending runs are listed first. A run that begins between the two requests is then in the second
/// list, and a run that ends between them has made its state.
pub(super) async fn live_runs(upstream: &Client, thread_id: &str) -> Result<Vec<RunRecord>, Error> {
    let mut live = upstream.runs(thread_id, RunFilter::Pending).await?;
    live.extend(upstream.runs(thread_id, RunFilter::Running).await?);
    Ok(live)
}
