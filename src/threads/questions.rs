//! Which questions of a thread are open, and which of them a run that is under way answers.

use super::Threads;
use crate::upstream::{Client, Error, RunFilter};
use threadway_translate::langgraph::ThreadState;

/// What a thread waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waits {
    /// The end of a run.
    ForRun,
    /// Answers to these interrupts, by LangGraph's ids.
    ForAnswers(Vec<String>),
    /// Nothing but its next message.
    ForNothing,
}

impl Threads {
    /// What a thread waits for.
    pub async fn waits(&self, upstream: &Client, thread_id: &str) -> Result<Waits, Error> {
        let (state, running) = tokio::try_join!(
            upstream.thread_state(thread_id),
            upstream.runs(thread_id, RunFilter::Running)
        )?;
        if !running.is_empty() {
            return Ok(Waits::ForRun);
        }
        let open = state.as_deref().and_then(ThreadState::parse).map(|state| state.interrupts);
        let ids: Vec<_> = open.into_iter().flatten().map(|open| open.id.into_owned()).collect();
        Ok(if ids.is_empty() { Waits::ForNothing } else { Waits::ForAnswers(ids) })
    }
}

/// The interrupts that live runs of a thread answer, by LangGraph's ids, as far as a gateway has
/// started those runs. Until such a run has made a checkpoint, the thread's state still shows what
/// it answers as open.
///
/// The waiting runs are asked for first. A run that gets its turn between the two requests is in
/// the second list; one that ends before that has made its state.
pub(super) async fn answered_now(upstream: &Client, thread_id: &str) -> Result<Vec<String>, Error> {
    let mut answered = Vec::new();
    for filter in [RunFilter::Pending, RunFilter::Running] {
        let runs = upstream.runs(thread_id, filter).await?;
        answered.extend(runs.into_iter().flat_map(|run| run.answers));
    }
    Ok(answered)
}
