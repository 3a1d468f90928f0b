//! Decisions on some actions of a batch, which wait for the others in the thread's metadata.
//!
//! They are read and written with the caller's own credentials, so that every replica, and every
//! caller who sees the thread, has the same.

use super::Threads;
use super::refusal::Refusal;
use crate::upstream::{Client, Error};
use threadway_translate::langgraph::{BatchDecision, KeptAnswers, NewestRuns, ThreadState};

/// The runs that a decision comes after, which are to be listed before the question is looked at
/// that it answers.
pub(super) async fn runs_before(upstream: &Client, thread_id: &str) -> Result<NewestRuns, Refusal> {
    let runs = upstream.newest_runs(thread_id).await?;
    runs.ok_or_else(|| {
        let message = format!(
            "`resume` answers some actions of an interrupt, and LangGraph lists the {} oldest runs of \
             the thread, so that nobody could tell later whether the answers still hold; answer \
             all actions in one request",
            NewestRuns::LIMIT
        );
        Refusal::CannotResume(message)
    })
}

/// Keeps these decisions.
pub(super) async fn keep(
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
            Err(Refusal::NotKept(missing))
        }
        Err(error) => Err(Refusal::NotKept(error)),
    }
}

impl Threads {
    /// Forgets these decisions, which a run answers now: by themselves they are stale. Nobody waits
    /// for that.
    pub(super) fn forget(&self, upstream: &Client, thread_id: &str, keys: &[String]) {
        if keys.is_empty() {
            return;
        }
        let (upstream, thread_id) = (upstream.clone(), thread_id.to_owned());
        let metadata = KeptAnswers::forgetting(keys);
        self.shared.runs.spawn(async move {
            match upstream.change_thread(&thread_id, &metadata).await {
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(thread_id, %error, "answers that were sent are still kept");
                }
            }
        });
    }
}
