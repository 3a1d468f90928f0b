//! Decisions on some actions of a batch. They are stored in the thread's metadata until the others
//! arrive.
//!
//! They are read and written with the caller's own credentials. So every replica, and every caller
//! who may see the thread, sees the same decisions.

use super::Threads;
use super::refusal::Refusal;
use crate::upstream::{Client, Error};
use threadway_translate::langgraph::{BatchDecision, NewestRuns, StoredDecisions, ThreadState};

/// The runs before a decision. Must be listed before the state with the interrupt is read.
pub(super) async fn runs_before(upstream: &Client, thread_id: &str) -> Result<NewestRuns, Refusal> {
    let runs = upstream.newest_runs(thread_id).await?;
    runs.ok_or_else(|| {
        let message = format!(
            "`resume` answers some actions of an interrupt, and LangGraph lists only the {} oldest \
             runs of the thread, so the gateway could not check later whether the answers still \
             apply; answer all actions in one request",
            NewestRuns::LIMIT
        );
        Refusal::CannotResume(message)
    })
}

/// Stores decisions.
pub(super) async fn store(
    upstream: &Client,
    thread_id: &str,
    state: &ThreadState<'_>,
    given: &[BatchDecision],
    before: &NewestRuns,
) -> Result<(), Refusal> {
    let metadata = state.kept.keeping(given, state, before.newest());
    match upstream.change_thread(thread_id, &metadata).await {
        Ok(true) => Ok(()),
        Ok(false) => {
            let missing = Error::Status { code: 404, detail: String::new(), retry_after: None };
            Err(Refusal::NotStored(missing))
        }
        Err(error) => Err(Refusal::NotStored(error)),
    }
}

impl Threads {
    /// Deletes decisions that a run now answers, in a task of its own. They would be ignored
    /// anyway, since they are stale.
    pub(super) fn delete_stored(&self, upstream: &Client, thread_id: &str, keys: &[String]) {
        if keys.is_empty() {
            return;
        }
        let (upstream, thread_id) = (upstream.clone(), thread_id.to_owned());
        let metadata = StoredDecisions::forgetting(keys);
        self.shared.runs.spawn(async move {
            if let Err(error) = upstream.change_thread(&thread_id, &metadata).await {
                tracing::warn!(
                    thread_id,
                    %error,
                    "stored answers could not be deleted from a thread after they were sent"
                );
            }
        });
    }
}
