//! Which questions of a thread are being answered by a run that is under way.

use crate::upstream::{Client, Error, RunFilter};

/// The interrupts that live runs of a thread answer, by LangGraph's ids, as far as a gateway has
/// started those runs. Until such a run has made a checkpoint, the thread's state still shows what
/// it answers as open.
///
/// The waiting runs are asked for first. A run that gets its turn between the two requests is in
/// the second list; one that ends before that has made its state.
pub async fn answered_now(upstream: &Client, thread_id: &str) -> Result<Vec<String>, Error> {
    let mut answered = Vec::new();
    for filter in [RunFilter::Pending, RunFilter::Running] {
        let runs = upstream.runs(thread_id, filter).await?;
        answered.extend(runs.into_iter().flat_map(|run| run.answers));
    }
    Ok(answered)
}
