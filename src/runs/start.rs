//! The request that starts a run. If it is interrupted, the run's token shows whether the run has
//! started.

use std::time::Duration;

use crate::upstream::{Backoff, Client, Error, RunFilter, RunStream, Seed};
use threadway_translate::langgraph::{Capabilities, RunRecord, RunRequest};

/// How many times the thread's runs are listed. A request that was interrupted may still be on its
/// way to LangGraph through a proxy.
const LOOKUPS: u32 = 4;

/// The pause before the first lookup. It doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// The longest pause between two lookups.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How long all lookups may take together.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(20);

/// How many of the newest runs are listed. No more are started during the lookups.
const RECENT_RUNS: usize = 20;

/// [`RECENT_RUNS`] for the JavaScript server, which lists the oldest first.
const RECENT_RUNS_OLDEST_FIRST: usize = 100;

/// The request for a run.
pub(super) struct RunStartRequest<'a> {
    pub(super) server: Capabilities,
    pub(super) thread_id: &'a str,
    pub(super) token: Option<String>,
    pub(super) request: &'a RunRequest,
}

/// Why a run was not started, or may not have been.
#[derive(Clone, Debug)]
pub(crate) enum StartError {
    /// The server has refused the run, or the request was not sent.
    Refused(Error),
    /// The request was interrupted, and the server has no run of it.
    NotStarted(Error),
    /// The request was interrupted, and the server could not say whether it has started the run.
    Unknown(Error),
}

/// A run that has started.
pub(super) enum Begun {
    Stream(RunStream),
    /// The response was lost, and the server lists the run, which has this id.
    Found(String),
}

/// What one lookup shows.
enum Seen {
    Run(RunRecord),
    NoRun,
    /// The lists may lack the run.
    Unclear,
}

// === impl RunStartRequest ===

impl RunStartRequest<'_> {
    /// Sends the request, once, and waits until the run has started. If the request is interrupted,
    /// the run is looked up.
    pub(super) async fn begun(&self, upstream: &Client) -> Result<Begun, StartError> {
        let error = match upstream.start_run(self.thread_id, self.request).await {
            Ok(stream) => return Ok(Begun::Stream(stream)),
            Err(error) => error,
        };
        if !error.is_unsettled() {
            return Err(StartError::Refused(error));
        }
        let Some(token) = &self.token else { return Err(StartError::Unknown(error)) };
        let looked_up = tokio::time::timeout(LOOKUP_TIMEOUT, self.look_up(upstream, token)).await;
        let seen = looked_up.unwrap_or(Seen::Unclear);
        let thread_id = self.thread_id;
        match seen {
            Seen::Run(run) => {
                tracing::info!(
                    thread_id, run_id = run.id, %error,
                    "found a run whose start was interrupted"
                );
                Ok(Begun::Found(run.id))
            }
            Seen::NoRun => Err(StartError::NotStarted(error)),
            Seen::Unclear => Err(StartError::Unknown(error)),
        }
    }

    /// Looks the run up until it is listed, at most [`LOOKUPS`] times. The last lookup decides.
    async fn look_up(&self, upstream: &Client, token: &str) -> Seen {
        let mut seen = Seen::Unclear;
        let mut pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE, Seed::random());
        for _ in 0..LOOKUPS {
            tokio::time::sleep(pauses.next_pause()).await;
            seen = match self.seen(upstream, token).await {
                Ok(Seen::Run(run)) => return Seen::Run(run),
                Ok(seen) => seen,
                // The thread was deleted, and its runs with it.
                Err(error) if error.is_not_found() => Seen::NoRun,
                Err(error) => {
                    let thread_id = self.thread_id;
                    tracing::debug!(thread_id, %error, "could not look a run up");
                    Seen::Unclear
                }
            };
        }
        seen
    }

    async fn seen(&self, upstream: &Client, token: &str) -> Result<Seen, Error> {
        let newest_first = self.server.lists_newest_runs_first;
        let limit = if newest_first { RECENT_RUNS } else { RECENT_RUNS_OLDEST_FIRST };
        let mut oldest: Option<RunRecord> = None;
        let mut count = 0;
        // In this order, a run that begins or ends between two requests is in the next list.
        for filter in [RunFilter::Pending, RunFilter::Running, RunFilter::Any { limit }] {
            let runs = upstream.runs(self.thread_id, filter).await?;
            count = runs.len();
            // A program may have copied the metadata of the run, and then has made a later run.
            oldest = runs
                .into_iter()
                .filter(|run| run.start.as_deref() == Some(token))
                .chain(oldest)
                .min_by(|one, other| one.created_at.cmp(&other.created_at));
        }
        Ok(match oldest {
            Some(run) => Seen::Run(run),
            None if newest_first || count < limit => Seen::NoRun,
            None => Seen::Unclear,
        })
    }
}
