//! The answers that a thread's metadata store until all of a batch have come.

use crate::upstream::{Client, Error};
use threadway_translate::langgraph::{StoredDecisions, ThreadState};

/// The stored answers to the questions of a state.
///
/// Unless the state asks about several actions at once, there are none, and the server is not
/// asked.
pub(crate) async fn stored_decisions(
    upstream: &Client,
    thread_id: &str,
    state: Option<&ThreadState<'_>>,
) -> Result<StoredDecisions, Error> {
    let Some(state) = state.filter(|state| state.batches().next().is_some()) else {
        return Ok(StoredDecisions::default());
    };
    // A search would also find the metadata, but the server may guard it by other rules.
    let Some(record) = upstream.thread(thread_id).await? else {
        return Ok(StoredDecisions::default());
    };
    let all = StoredDecisions::read(&record.metadata);
    if all.is_empty() {
        return Ok(StoredDecisions::default());
    }
    let runs = upstream.newest_runs(thread_id).await?;
    Ok(StoredDecisions::sort(all, state, runs.as_ref()))
}
