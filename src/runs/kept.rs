//! What a thread's metadata keep of the answers to what it asks, until all of a batch have come.

use crate::upstream::{Client, Error};
use threadway_translate::langgraph::{KeptAnswers, ThreadState};

/// What is kept of the answers to what a state asks. Nothing is asked of the server unless the
/// state asks about several actions at once.
pub(crate) async fn read(
    upstream: &Client,
    thread_id: &str,
    state: Option<&ThreadState<'_>>,
) -> Result<KeptAnswers, Error> {
    let Some(state) = state.filter(|state| state.batches().next().is_some()) else {
        return Ok(KeptAnswers::default());
    };
    // Not a search, which the server may guard in another way.
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
