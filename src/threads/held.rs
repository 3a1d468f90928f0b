//! What a thread holds, beside the run that is live on it.

use super::Threads;
use super::look;
use super::reader::ThreadReader;
use super::refusal::Refusal;
use super::thread::Thread;
use crate::runs::RunReader;
use crate::upstream::Client;

/// What a thread holds.
#[derive(Debug)]
pub struct Held {
    /// Reads the thread as its state is: snapshots, and an end. What a live run has told since is not
    /// part of them.
    pub reader: ThreadReader,
    /// What the run is called that runs, else the next to have its turn: by the client, if a gateway
    /// started it, else by LangGraph.
    pub live: Option<String>,
    /// What the newest run is called that is over, if none is live.
    pub last: Option<String>,
}

// === impl Thread ===

impl Thread {
    /// What the thread holds, and which run is live on it. No run is read. A thread that is not there
    /// holds nothing, or is an error, as the caller is told of such.
    pub async fn hold(&self) -> Result<Held, Refusal> {
        self.expect_no_shutdown()?;
        self.threads.hold(&self.agent().upstream, self.id()).await
    }
}

// === impl Threads ===

impl Threads {
    async fn hold(&self, upstream: &Client, thread_id: &str) -> Result<Held, Refusal> {
        let (run, newest) = look::hold(&self.runs(), upstream, thread_id).await?;
        let reader = RunReader::new(run, None).into();
        let is_live = newest.as_ref().is_some_and(|newest| newest.status.is_live());
        let name = newest.map(|newest| newest.client_id.unwrap_or(newest.id));
        let (live, last) = if is_live { (name, None) } else { (None, name) };
        Ok(Held { reader, live, last })
    }
}
