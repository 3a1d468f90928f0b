//! Stops a run of a thread.

use std::time::Duration;

use tokio::sync::oneshot;

use super::Threads;
use crate::upstream::{Backoff, Client, Error, RunFilter, Seed};
use threadway_translate::langgraph::RunRecord;

/// How long a stopped run may take to end. A node that runs is not interrupted by every server.
const END_PATIENCE: Duration = Duration::from_secs(15);

/// The pause before a stopped run is looked at again. It doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause between two looks at a stopped run.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Threads {
    /// Stops a run of a thread and returns LangGraph's id of it. `None` if there is no such run.
    ///
    /// `wanted` is LangGraph's or the client's id of the run. Without it the running run is
    /// stopped, or else the next pending one.
    ///
    /// The run is looked up upstream, since another replica may read it, or none. Its stream then
    /// ends for all viewers. A run that is being started here is stopped as soon as the upstream
    /// lists it, even if the caller has disconnected.
    pub async fn stop(
        &self,
        upstream: &Client,
        thread_id: &str,
        wanted: Option<&str>,
    ) -> Result<Option<String>, Error> {
        // Read before the upstream's list, which has the starts that have ended by then.
        let starting = self.shared.starts.of(upstream, thread_id, wanted);
        if starting.is_empty() {
            return self.stop_live(upstream, thread_id, wanted).await;
        }
        let (sender, answer) = oneshot::channel();
        let (threads, upstream) = (self.clone(), upstream.clone());
        let (thread_id, wanted) = (thread_id.to_owned(), wanted.map(str::to_owned));
        self.shared.runs.spawn(async move {
            let mut stopped = threads.stop_live(&upstream, &thread_id, wanted.as_deref()).await;
            for start in starting {
                if !matches!(stopped, Ok(None)) {
                    break;
                }
                start.ended().await;
                stopped = threads.stop_live(&upstream, &thread_id, Some(&start.name)).await;
            }
            // Fails if the caller has disconnected.
            let _ = sender.send(stopped);
        });
        // The task answers unless the gateway shuts down.
        let shut_down = |_| Err(Error::Interrupted { reason: "the gateway shuts down".to_owned() });
        answer.await.unwrap_or_else(shut_down)
    }

    /// Stops a run, and waits until it has ended. Returns whether it has ended in time.
    ///
    /// LangGraph answers a stop before the run has ended, and the run may still change the thread.
    pub(super) async fn end(
        &self,
        upstream: &Client,
        thread_id: &str,
        run_id: &str,
    ) -> Result<bool, Error> {
        self.stop_live(upstream, thread_id, Some(run_id)).await?;
        let ended = async {
            let mut pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE, Seed::random());
            loop {
                let run = upstream.find_run(thread_id, run_id).await?;
                if run.is_none_or(|run| !run.status.is_live()) {
                    break;
                }
                tokio::time::sleep(pauses.next_pause()).await;
            }
            Ok(())
        };
        match tokio::time::timeout(END_PATIENCE, ended).await {
            Ok(ended) => ended.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    /// Stops a run that the upstream lists.
    async fn stop_live(
        &self,
        upstream: &Client,
        thread_id: &str,
        wanted: Option<&str>,
    ) -> Result<Option<String>, Error> {
        // In this order, a run that begins between the two requests is in the second list. Both
        // lists are newest first, so the last run is the running one or the next.
        let mut live = upstream.runs(thread_id, RunFilter::Pending).await?;
        live.extend(upstream.runs(thread_id, RunFilter::Running).await?);
        let is_wanted = |run: &RunRecord| {
            wanted.is_none_or(|wanted| run.id == wanted || run.client_id.as_deref() == Some(wanted))
        };
        let Some(run) = live.into_iter().rfind(is_wanted) else { return Ok(None) };
        // Noted before the request: the run may end before the request is answered, and the reader
        // then has to know why.
        let note =
            |is_stopped| self.shared.runs.note_stop(upstream, thread_id, &run.id, is_stopped);
        note(true);
        let stopped = upstream.cancel_run(thread_id, &run.id).await;
        if !matches!(stopped, Ok(true)) {
            note(false);
        }
        Ok(stopped?.then_some(run.id))
    }
}
