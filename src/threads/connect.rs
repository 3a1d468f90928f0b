//! How a client comes to a thread: its live run as it stands, else what the thread holds.

use super::Threads;
use super::follow;
use super::look::{LookKey, Looked, look, run_named};
use super::reader::ThreadReader;
use super::refusal::Refusal;
use crate::metrics::Resume;
use crate::runs::{EventId, RunReader};
use crate::upstream::{Client, Error, Sight};
use threadway_translate::langgraph::ServerKind;

// === impl Threads ===

impl Threads {
    /// Reads a thread's live run, from where it is, to its end; without one, what the thread
    /// holds. A thread that is not there holds nothing, or is an error, as the caller is told of
    /// such.
    ///
    /// A client gets no byte of a run before a request with its own credentials has succeeded on
    /// that thread.
    ///
    /// A client that has read up to an event of the live run, or of the last one, goes on behind
    /// it, if it can still be found: in what this replica keeps of the run, else in what the
    /// upstream does. Otherwise it starts over.
    ///
    /// The server's kind is found out while the thread is looked at.
    pub async fn connect(
        &self,
        upstream: &Client,
        server: impl Future<Output = Option<ServerKind>>,
        thread_id: &str,
        after: Option<&EventId>,
    ) -> Result<ThreadReader, Error> {
        if let Some(event) = after
            && self.shared.see(upstream, thread_id).await? == Sight::Seen
            && let Some(run) = self.runs().after(upstream, thread_id, event)
        {
            return Ok(run.into());
        }
        let Some(after) = after else {
            // All who load the thread at the same time with the same credentials share one look.
            let key = LookKey::of(upstream, thread_id, self.emit);
            let read = async || look(&self.runs(), upstream, thread_id, None).await;
            let (server, looked) = tokio::join!(server, self.shared.looks.share(key, read));
            let run = match looked? {
                Looked::ToRead(record) => {
                    self.runs().read(upstream, server, thread_id, record, None).await?
                }
                Looked::AtRest(run) => RunReader::new(run, None),
            };
            return Ok(run.into());
        };
        let runs = self.runs();
        let looked = look(&runs, upstream, thread_id, Some(after));
        let (server, looked) = tokio::join!(server, looked);
        let run = match looked? {
            Looked::ToRead(record) => {
                let event = Some(after).filter(|event| event.run_id() == record.id).cloned();
                if event.is_none() {
                    self.shared.runs.metrics().resumed(Resume::StartOver);
                }
                self.runs().read(upstream, server, thread_id, record, event).await?
            }
            Looked::AtRest(run) => {
                self.shared.runs.metrics().resumed(Resume::StartOver);
                RunReader::new(run, None)
            }
        };
        Ok(run.into())
    }

    /// Reads the run that a client has asked for before: the run of the event `after`, after that
    /// event; if the thread has no such run, the newest one that its client calls `name`, as it
    /// stands. Unlike [`connect`](Self::connect), this reads that run to its end and nothing else,
    /// even if the run is over and others have run since.
    ///
    /// Returns `None` if the thread has no such run, or if the server does not show the thread to
    /// the caller.
    pub async fn read_again(
        &self,
        upstream: &Client,
        server: Option<ServerKind>,
        thread_id: &str,
        after: Option<&EventId>,
        name: &str,
    ) -> Result<Option<ThreadReader>, Error> {
        let (mut found, mut event) = (None, None);
        match self.shared.see(upstream, thread_id).await {
            Ok(Sight::Seen) => {}
            Ok(Sight::Nothing) | Err(Error::Status { code: 404, .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
        if let Some(after) = after {
            if let Some(run) = self.runs().after(upstream, thread_id, after) {
                return Ok(Some(run.into()));
            }
            found = upstream.find_run(thread_id, after.run_id()).await?;
            event = found.is_some().then(|| after.clone());
        }
        if found.is_none() {
            found = run_named(upstream, server, thread_id, name).await?;
            // A list of runs does not say what they were asked for.
            if let Some(run) = &mut found
                && run.status.is_live()
            {
                *run = self.runs().full_record(upstream, thread_id, run.clone()).await?;
            }
        }
        let Some(record) = found else { return Ok(None) };
        if event.is_none() && after.is_some() {
            self.shared.runs.metrics().resumed(Resume::StartOver);
        }
        let run = self.runs().read(upstream, server, thread_id, record, event).await?;
        Ok(Some(run.into()))
    }

    /// Reads a run by LangGraph's id of it, as it stands, to its end. Returns `None` if the thread has
    /// no such run, or if the server does not show it to the caller.
    pub async fn read_by_id(
        &self,
        upstream: &Client,
        server: Option<ServerKind>,
        thread_id: &str,
        run_id: &str,
    ) -> Result<Option<ThreadReader>, Error> {
        let Some(record) = upstream.find_run(thread_id, run_id).await? else { return Ok(None) };
        let run = self.runs().read(upstream, server, thread_id, record, None).await?;
        Ok(Some(run.into()))
    }

    /// Reads a thread as [`connect`](Self::connect) does, and then all its later runs, each from
    /// its beginning to its end, and what changes in it without a run.
    pub async fn follow(
        &self,
        upstream: &Client,
        server: impl Future<Output = Option<ServerKind>>,
        thread_id: &str,
        after: Option<&EventId>,
    ) -> Result<ThreadReader, Refusal> {
        let (run, later) =
            follow::join(&self.shared, upstream, server, thread_id, self.emit).await?;
        let is_after = |event: &&EventId| run.id().as_deref() == Some(event.run_id());
        let event = after.filter(is_after).cloned();
        if event.is_none() && after.is_some() {
            self.shared.runs.metrics().resumed(Resume::StartOver);
        }
        Ok(ThreadReader::following(RunReader::new(run, event), later))
    }
}
