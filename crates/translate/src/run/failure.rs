//! Why a run's stream ends in a failure.

use crate::langgraph::{ErrorDetail, ErrorReport, RunError};

/// Why a run's stream ends in a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The graph has failed, or LangGraph has stopped it at a limit.
    Graph(RunError),
    /// The gateway cannot say how the run goes on.
    Gateway {
        /// Why not.
        loss: Loss,
        /// What happened, and what to do.
        message: String,
    },
}

/// Why the gateway cannot say how a run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// A recorded stream breaks off, and no server can be asked.
    Incomplete,
    /// The run's stream or its record cannot be understood.
    Unreadable,
    /// The server was out of reach for too long.
    Unavailable,
    /// The server has neither the run nor its thread any more.
    Gone,
    /// The gateway stops.
    Shutdown,
    /// The reader was slower than the run, and fell behind before the run had shown its
    /// conversation.
    TooSlow,
    /// A fault of the gateway's own.
    Internal,
}

// === impl Failure ===

impl Failure {
    /// The exception's name, or the gateway's own code, which is stable.
    pub fn code(&self) -> &str {
        match self {
            Self::Graph(error) => &error.code,
            Self::Gateway { loss, .. } => loss.code(),
        }
    }

    /// What happened. An exception may have no message.
    pub fn message(&self) -> &str {
        match self {
            Self::Graph(RunError { message, .. }) | Self::Gateway { message, .. } => message,
        }
    }

    /// What LangGraph has on the failure, as far as clients are told it.
    pub fn reports(&self) -> &[ErrorReport] {
        match self {
            Self::Graph(error) => &error.reports,
            Self::Gateway { .. } => &[],
        }
    }

    /// The same with no more of the graph's exception than this. The gateway's own failures hold
    /// nothing to hide.
    #[must_use]
    pub fn redacted(self, detail: ErrorDetail) -> Self {
        match self {
            Self::Graph(error) => Self::Graph(error.redacted(detail)),
            own @ Self::Gateway { .. } => own,
        }
    }

    /// Why the gateway cannot say how the run goes on, if it is that.
    pub fn loss(&self) -> Option<Loss> {
        match self {
            Self::Graph(_) => None,
            Self::Gateway { loss, .. } => Some(*loss),
        }
    }
}

// === impl Loss ===

impl Loss {
    /// The code that clients are sent, and that metrics and logs name.
    pub fn code(self) -> &'static str {
        match self {
            Self::Incomplete => "stream_incomplete",
            Self::Unreadable => "upstream_lost",
            Self::Unavailable => "upstream_unavailable",
            Self::Gone => "run_gone",
            Self::Shutdown => "gateway_shutdown",
            Self::TooSlow => "reader_too_slow",
            Self::Internal => "internal_error",
        }
    }
}
