//! Finds a run by the client's id of it.

use super::Threads;
use crate::upstream::{Client, Error, RunFilter};

/// How many runs of a thread are looked through. A run that was started a moment ago is among the
/// newest.
const MAX_RUNS: usize = 100;

impl Threads {
    /// Whether a run with this id of the client was started in the thread, here or through another
    /// replica. Waits for a start in progress here.
    pub async fn has_run(
        &self,
        upstream: &Client,
        thread_id: &str,
        name: &str,
    ) -> Result<bool, Error> {
        for start in self.shared.starts.of(upstream, thread_id, Some(name)) {
            start.ended().await;
        }
        let runs = upstream.runs(thread_id, RunFilter::Any { limit: MAX_RUNS }).await?;
        Ok(runs.iter().any(|run| run.client_id.as_deref() == Some(name)))
    }
}
