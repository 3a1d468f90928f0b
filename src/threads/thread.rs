//! A thread with its agent, for one caller: all that a server or a session does with it.

use super::Threads;
use super::reader::ThreadReader;
use super::refusal::Refusal;
use crate::agents::Agent;
use crate::runs::EventId;
use crate::upstream::{Client, Purpose};

/// A thread, and the agent that runs on it, for one caller.
#[derive(Clone, Debug)]
pub struct Thread {
    pub(super) threads: Threads,
    pub(super) agent: Agent,
    pub(super) id: String,
    /// The client's id of the thread, if LangGraph needs another one.
    pub(super) client_id: Option<String>,
    pub(super) if_absent: IfAbsent,
}

/// What the start of a run does if the thread does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IfAbsent {
    /// The thread is created.
    Create,
    /// The start fails with [`Refusal::NoThread`].
    Refuse,
}

// === impl Thread ===

impl Thread {
    /// The same thread, which no start of a run creates: somebody has deleted it if it does not exist.
    #[must_use]
    pub fn existing(self) -> Self {
        Self { if_absent: IfAbsent::Refuse, ..self }
    }

    /// LangGraph's id of the thread.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The agent and thread as log lines name them.
    pub(crate) fn purpose(&self) -> &Purpose {
        self.agent.upstream.purpose()
    }

    /// The agent that runs on the thread.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Reads the live run to its end, or else the thread's state. See [`Threads::connect`].
    pub async fn connect(&self, after: Option<&EventId>) -> Result<ThreadReader, Refusal> {
        self.expect_no_shutdown()?;
        let server = self.agent.capabilities();
        let connect = self.threads.connect(self.upstream(), server, &self.id, after);
        Ok(Box::pin(connect).await?)
    }

    /// Reads the thread as [`connect`](Self::connect) does, and then all later runs and changes.
    pub async fn follow(&self, after: Option<&EventId>) -> Result<ThreadReader, Refusal> {
        self.expect_no_shutdown()?;
        let server = self.agent.server();
        Box::pin(self.threads.follow(self.upstream(), server, &self.id, after)).await
    }

    /// Reads a run that the client has read before. See [`Threads::read_again`].
    pub async fn read_again(
        &self,
        after: Option<&EventId>,
        name: &str,
    ) -> Result<Option<ThreadReader>, Refusal> {
        self.expect_no_shutdown()?;
        let server = self.agent.capabilities().await;
        let read = self.threads.read_again(self.upstream(), server, &self.id, after, name);
        Ok(Box::pin(read).await?)
    }

    /// Reads a run by LangGraph's id. See [`Threads::read_by_id`].
    pub(crate) async fn read_by_id(&self, run_id: &str) -> Result<Option<ThreadReader>, Refusal> {
        self.expect_no_shutdown()?;
        let server = self.agent.capabilities().await;
        Ok(self.threads.read_by_id(self.upstream(), server, &self.id, run_id).await?)
    }

    /// Reads the thread, and asks at the same time whether its agent exists. Fails with
    /// [`Refusal::UnknownAssistant`] if the server has no such agent, whatever was read.
    pub(crate) async fn of_known_agent<T>(
        &self,
        read: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let (is_absent, read) = tokio::join!(Box::pin(self.agent.is_absent()), read);
        if is_absent {
            return Err(Refusal::UnknownAssistant { assistant: self.agent.assistant.clone() });
        }
        read
    }

    /// Fails if the server refuses the thread to the caller. A thread that is not found is no error
    /// if unknown threads count as empty.
    pub(crate) async fn check_visibility(&self) -> Result<(), Refusal> {
        self.threads.shared.visibility(self.upstream(), &self.id).await?;
        Ok(())
    }

    /// Stops the live run, or the run of this id. See [`Threads::stop`].
    pub async fn stop(&self, wanted: Option<&str>) -> Result<Option<String>, Refusal> {
        Ok(self.threads.stop(self.upstream(), &self.id, wanted).await?)
    }

    pub(super) fn upstream(&self) -> &Client {
        &self.agent.upstream
    }

    pub(super) fn expect_no_shutdown(&self) -> Result<(), Refusal> {
        self.threads.expect_no_shutdown()
    }
}
