//! What a thread contains now, without reading its live run.

use super::Threads;
use super::key::LookKey;
use super::look::{self, LookedWithoutJoining};
use super::reader::ThreadReader;
use super::refusal::Refusal;
use super::thread::Thread;
use crate::runs::RunReader;
use crate::upstream::{Client, QueueClass};
use threadway_translate::langgraph::Capabilities;

/// What a thread contains now.
#[derive(Debug)]
pub struct ThreadSnapshot {
    /// Yields snapshots of the thread's state, and an end. They lack what a live run has streamed
    /// since its last checkpoint.
    pub reader: ThreadReader,
    /// The id of the running run, or else of the next pending one. This is the client's id, or
    /// LangGraph's if no gateway started the run.
    pub live: Option<String>,
    /// The id of the newest finished run, if no run is live.
    pub last: Option<String>,
}

// === impl Thread ===

impl Thread {
    /// Loads the thread's state, and the id of its live run. A thread that is not found is empty or
    /// refused: see [`OnThreadNotFound`](crate::upstream::OnThreadNotFound).
    pub(crate) async fn snapshot(&self) -> Result<ThreadSnapshot, Refusal> {
        self.expect_no_shutdown()?;
        let server = self.agent().capabilities();
        Box::pin(self.threads.snapshot(&self.agent().upstream, server, self.id())).await
    }
}

// === impl Threads ===

impl Threads {
    async fn snapshot(
        &self,
        upstream: &Client,
        server: impl Future<Output = Capabilities>,
        thread_id: &str,
    ) -> Result<ThreadSnapshot, Refusal> {
        let runs = self.runs();
        // As for clients that connect: those who ask at the same time share a look.
        let key = LookKey::new(upstream, thread_id, self.emit);
        let read = async || {
            let look = look::look_without_joining(&runs, upstream, server, thread_id);
            upstream.in_turn(QueueClass::Looks, look).await
        };
        let LookedWithoutJoining { run, newest } = self.shared.rests.share(key, read).await?;
        let reader = RunReader::new(run).into();
        let is_live = newest.as_ref().is_some_and(|newest| newest.status.is_live());
        let name = newest.map(|newest| newest.client_id.unwrap_or(newest.id));
        let (live, last) = if is_live { (name, None) } else { (None, name) };
        Ok(ThreadSnapshot { reader, live, last })
    }
}
