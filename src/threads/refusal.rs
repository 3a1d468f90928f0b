//! Why something was not done with a thread.

use super::fork::ForkError;
use crate::upstream::Error;

/// Why something was not done with a thread.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The gateway is shutting down.
    #[error("the gateway is shutting down")]
    ShuttingDown,
    /// The thread has a run that is not over, and takes no other.
    #[error("the thread has a run that is not over; wait for its end or stop it")]
    Busy,
    /// The server has no such agent, or does not show it to the caller. Of a thread that it does
    /// not show, the Python server says the same.
    #[error("LangGraph knows no agent `{assistant}`")]
    UnknownAssistant {
        /// What the server was asked for.
        assistant: String,
    },
    /// What was asked does not fit the thread as it is: an answer to nothing, for example.
    #[error("{0}")]
    CannotResume(String),
    /// The server did not keep an answer that is to wait for others.
    #[error("the answer was not kept: {0}")]
    NotKept(Error),
    /// The thread has no place for the fork.
    #[error("{0}")]
    CannotFork(String),
    /// The server refused, or did not answer.
    #[error(transparent)]
    Upstream(Error),
}

// === impl Refusal ===

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        if error.is_thread_busy() { Self::Busy } else { Self::Upstream(error) }
    }
}

impl From<ForkError> for Refusal {
    fn from(error: ForkError) -> Self {
        match error {
            ForkError::Upstream(error) => error.into(),
            ForkError::NoneBefore { .. } | ForkError::TooFarBack { .. } => {
                Self::CannotFork(error.to_string())
            }
        }
    }
}
