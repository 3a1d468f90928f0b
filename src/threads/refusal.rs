//! Why a request about a thread was refused.

use super::past::ForkError;
use crate::runs::StartError;
use crate::upstream::Error;

/// Why a request about a thread was refused. Each protocol puts it into its own form.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The gateway is shutting down.
    #[error("the gateway is shutting down")]
    ShuttingDown,
    /// LangGraph refuses a run while another run of the thread is live.
    #[error(
        "the thread has a run in progress; wait for it to end or stop it, then send the request \
         again"
    )]
    Busy,
    /// The thread does not exist, or the server hides it from the caller. Only of a thread that is
    /// not to be created.
    #[error("the thread does not exist")]
    NoThread,
    /// The server has no such agent, or hides it from the caller. The Python server gives the same
    /// answer for a thread that it hides.
    #[error("LangGraph knows no agent `{assistant}`")]
    UnknownAssistant {
        /// The agent's name on its server.
        assistant: String,
    },
    /// The request does not fit the state of the thread: for example, it answers no open interrupt.
    #[error("{0}")]
    CannotResume(String),
    /// The server did not store an answer that must wait for others.
    #[error("LangGraph did not store the answer, which must wait for the other actions: {0}")]
    NotStored(Error),
    /// The thread has no checkpoint to fork at.
    #[error("{0}")]
    CannotFork(String),
    /// The request for the run was interrupted, and the server has no run of it.
    #[error("{0}; it has no run of this request")]
    NotStarted(Error),
    /// The request for the run was interrupted, and the server could not say whether it has started
    /// the run.
    #[error(transparent)]
    MayHaveStarted(Error),
    /// The server refused, or did not answer. No run was started.
    #[error(transparent)]
    Upstream(Error),
}

// === impl Refusal ===

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        if error.is_thread_busy() { Self::Busy } else { Self::Upstream(error) }
    }
}

impl From<StartError> for Refusal {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Refused(error) => error.into(),
            StartError::NotStarted(error) => Self::NotStarted(error),
            StartError::Unknown(error) => Self::MayHaveStarted(error),
        }
    }
}

impl From<ForkError> for Refusal {
    fn from(error: ForkError) -> Self {
        Self::CannotFork(error.to_string())
    }
}
