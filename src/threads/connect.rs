//! Connects a client to a thread: to its live run, or else to its state.

use futures_util::FutureExt;

use super::Threads;
use super::follow;
use super::key::LookKey;
use super::look::{Looked, look, run_named};
use super::reader::ThreadReader;
use super::refusal::Refusal;
use crate::agents::AgentServer;
use crate::metrics::Resume;
use crate::runs::{EventId, RunReader};
use crate::upstream::{Client, Error, QueueClass, Visibility};
use threadway_translate::langgraph::Capabilities;

// === impl Threads ===

impl Threads {
    /// Reads a thread's live run to its end, beginning with a snapshot. Without a live run, reads
    /// the thread's state. A thread that is not found is empty or an error: see
    /// [`OnThreadNotFound`](crate::upstream::OnThreadNotFound).
    ///
    /// Before a client gets any byte of a run, a request with its own credentials must succeed on
    /// the thread.
    ///
    /// `after` is the last event that the client has of the live run, or of the last one. Reading
    /// resumes after it if this replica, or else the upstream, still has that event. Otherwise
    /// reading starts over.
    ///
    /// `server` is awaited while the thread is looked at.
    pub async fn connect(
        &self,
        upstream: &Client,
        server: impl Future<Output = Capabilities>,
        thread_id: &str,
        after: Option<&EventId>,
    ) -> Result<ThreadReader, Error> {
        if let Some(event) = after
            && self.shared.visibility(upstream, thread_id).await? == Visibility::Visible
            && let Some(run) = self.runs().after(upstream, thread_id, event)
        {
            return Ok(run.into());
        }
        let server = server.shared();
        let Some(after) = after else {
            // Clients that connect at the same time with equal credentials share one look.
            let key = LookKey::new(upstream, thread_id, self.emit);
            let read = async || {
                let runs = self.runs();
                let look = look(&runs, upstream, server.clone(), thread_id, None);
                upstream.in_turn(QueueClass::Looks, look).await
            };
            let (server, looked) = tokio::join!(server.clone(), self.shared.looks.share(key, read));
            let run = match looked? {
                Looked::Run(record) => {
                    self.runs().read(upstream, server, thread_id, record, None).await?
                }
                Looked::Idle(run) => RunReader::new(run),
            };
            return Ok(run.into());
        };
        let runs = self.runs();
        let look = look(&runs, upstream, server.clone(), thread_id, Some(after));
        let looked = upstream.in_turn(QueueClass::Looks, look);
        let (server, looked) = tokio::join!(server, looked);
        let run = match looked? {
            Looked::Run(record) => {
                let event = Some(after).filter(|event| event.run_id() == record.id).cloned();
                if event.is_none() {
                    self.shared.runs.metrics().resumed(Resume::StartOver);
                }
                self.runs().read(upstream, server, thread_id, record, event).await?
            }
            Looked::Idle(run) => {
                self.shared.runs.metrics().resumed(Resume::StartOver);
                RunReader::new(run)
            }
        };
        Ok(run.into())
    }

    /// Reads a run that a client has read before, to its end, even if it is over and others
    /// followed.
    ///
    /// This is the run of the event `after`, and reading resumes after that event. If the thread
    /// has no such run, it is the newest run with the client's id `name`, from a snapshot on.
    ///
    /// Returns `None` if the thread has no such run, or the server hides the thread from the
    /// caller.
    pub async fn read_again(
        &self,
        upstream: &Client,
        server: Capabilities,
        thread_id: &str,
        after: Option<&EventId>,
        name: &str,
    ) -> Result<Option<ThreadReader>, Error> {
        let (mut found, mut event) = (None, None);
        match self.shared.visibility(upstream, thread_id).await {
            Ok(Visibility::Visible) => {}
            Ok(Visibility::Hidden) | Err(Error::Status { code: 404, .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
        if let Some(after) = after
            && let Some(run) = self.runs().after(upstream, thread_id, after)
        {
            return Ok(Some(run.into()));
        }
        let turn = upstream.turn(QueueClass::Looks).await?;
        if let Some(after) = after {
            found = upstream.find_run(thread_id, after.run_id()).await?;
            event = found.is_some().then(|| after.clone());
        }
        if found.is_none() {
            found = run_named(upstream, server, thread_id, name).await?;
            // Lists lack the requests of runs.
            if let Some(run) = &mut found
                && run.status.is_live()
            {
                *run = self.runs().full_record(upstream, thread_id, run.clone()).await?;
            }
        }
        drop(turn);
        let Some(record) = found else { return Ok(None) };
        if event.is_none() && after.is_some() {
            self.shared.runs.metrics().resumed(Resume::StartOver);
        }
        let run = self.runs().read(upstream, server, thread_id, record, event).await?;
        Ok(Some(run.into()))
    }

    /// Reads a run by LangGraph's id to its end, beginning with a snapshot. Returns `None` if the
    /// thread has no such run, or the server hides it from the caller.
    pub(crate) async fn read_by_id(
        &self,
        upstream: &Client,
        server: Capabilities,
        thread_id: &str,
        run_id: &str,
    ) -> Result<Option<ThreadReader>, Error> {
        let find = upstream.find_run(thread_id, run_id);
        let Some(record) = upstream.in_turn(QueueClass::Looks, find).await? else {
            return Ok(None);
        };
        let run = self.runs().read(upstream, server, thread_id, record, None).await?;
        Ok(Some(run.into()))
    }

    /// Reads a thread as [`connect`](Self::connect) does, and then all its later runs, each from
    /// its beginning to its end, and changes of the state without a run.
    ///
    /// `after` may also be the end of an earlier run, or of the idle thread. If the thread still
    /// shows what the client holds then, the reader yields nothing until something changes.
    pub(super) async fn follow(
        &self,
        upstream: &Client,
        server: AgentServer,
        thread_id: &str,
        after: Option<&EventId>,
    ) -> Result<ThreadReader, Refusal> {
        let (run, mut later) =
            follow::join(&self.shared, upstream, server, thread_id, self.emit).await?;
        if let Some(held) = after.and_then(|event| later.go_on_after(event, &run)) {
            self.shared.runs.metrics().resumed(Resume::Log);
            let reader = RunReader::at_end(held).for_caller(upstream);
            return Ok(ThreadReader::following(reader, later));
        }
        let is_after = |event: &&EventId| run.id().as_deref() == Some(event.run_id());
        let reader = match after.filter(is_after).cloned() {
            // An end that is sent twice is an error for AG-UI's clients.
            Some(end) if end.is_terminal() => RunReader::holding(run, end),
            Some(event) => RunReader::after(run, event),
            None => {
                if after.is_some() {
                    self.shared.runs.metrics().resumed(Resume::StartOver);
                }
                RunReader::new(run)
            }
        };
        let reader = reader.for_caller(upstream);
        Ok(ThreadReader::following(reader, later))
    }
}
