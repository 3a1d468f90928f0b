//! The answers that a thread's metadata store until all of a batch have come.

use crate::upstream::{Client, Error};
use threadway_translate::langgraph::{KeptAnswers, ThreadState};

/// The stored answers to the questions of a state.
///
/// Unless the state asks about several actions at once, there are none, and the server is not
/// asked.
pub(crate) async fn kept_answers(
    upstream: &Client,
    thread_id: &str,
    state: Option<&ThreadState<'_>>,
) -> Result<KeptAnswers, Error> {
    let Some(state) = state.filter(|state| state.batches().next().is_some()) else {
        return Ok(KeptAnswers::default());
    };
    // A search would also find the metadata, but the server may guard it by other rules.
    let Some(record) = upstream.thread(thread_id).await? else {
        return Ok(KeptAnswers::default());
    };
    let all = KeptAnswers::read(&record.metadata);
    if all.is_empty() {
        return Ok(KeptAnswers::default());
    }
    let runs = upstream.newest_runs(thread_id).await?;
    Ok(KeptAnswers::sort(all, state, runs.as_ref()))
}
