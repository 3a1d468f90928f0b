//! Stops a thread's run.

use tokio::sync::oneshot;

use super::Threads;
use crate::upstream::{Client, Error, RunFilter};
use threadway_translate::langgraph::RunRecord;

impl Threads {
    /// Stops the run of a thread that is wanted, by LangGraph's id or the client's name of it;
    /// else the one that runs, else the one that would run next. The id of what was stopped.
    ///
    /// The run is looked for upstream: another replica may read it, or nobody. Its stream ends by
    /// itself, for all who watch it. A run that is being started here is not listed upstream yet:
    /// it is stopped as soon as it is, also if the caller has left by then.
    pub async fn stop(
        &self,
        upstream: &Client,
        thread_id: &str,
        wanted: Option<&str>,
    ) -> Result<Option<String>, Error> {
        // Before the look: what has ended by then is listed.
        let starting = self.shared.starts.of(upstream, thread_id, wanted);
        if starting.is_empty() {
            return self.stop_live(upstream, thread_id, wanted).await;
        }
        let (asked, answer) = oneshot::channel();
        let (threads, upstream) = (self.clone(), upstream.clone());
        let (thread_id, wanted) = (thread_id.to_owned(), wanted.map(str::to_owned));
        self.shared.runs.spawn(async move {
            let mut stopped = threads.stop_live(&upstream, &thread_id, wanted.as_deref()).await;
            for starting in starting {
                if !matches!(stopped, Ok(None)) {
                    break;
                }
                starting.ended().await;
                stopped = threads.stop_live(&upstream, &thread_id, Some(&starting.name)).await;
            }
            // The caller may have left.
            let _ = asked.send(stopped);
        });
        // The task answers, unless the gateway shuts down.
        let given_up = |_| Err(Error::Interrupted { reason: "the gateway shuts down".to_owned() });
        answer.await.unwrap_or_else(given_up)
    }

    /// The same for a run that the upstream lists.
    async fn stop_live(
        &self,
        upstream: &Client,
        thread_id: &str,
        wanted: Option<&str>,
    ) -> Result<Option<String>, Error> {
        // In this order: a run that gets its turn meanwhile is in the second list. Each is newest
        // first, so that the last one runs, or would run next.
        let mut live = upstream.runs(thread_id, RunFilter::Pending).await?;
        live.extend(upstream.runs(thread_id, RunFilter::Running).await?);
        let is_wanted = |run: &RunRecord| {
            wanted.is_none_or(|wanted| run.id == wanted || run.client_id.as_deref() == Some(wanted))
        };
        let Some(run) = live.into_iter().rfind(is_wanted) else { return Ok(None) };
        // Before the answer: the run may end, and be asked how, ahead of it.
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
