//! Why a run's stream ends in a failure.

use crate::langgraph::{ErrorDetail, ErrorReport, RunError};

/// Why a run's stream ends in a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The graph has failed, or LangGraph has stopped it at a limit.
    Graph(RunError),
    /// The gateway cannot follow the run any further.
    Gateway {
        /// The reason.
        loss: LossReason,
        /// What happened, and what the operator can do.
        message: String,
    },
}

/// Why the gateway cannot follow a run any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// A recorded stream ends early. There is no server to ask how the run ended.
    Incomplete,
    /// The gateway cannot parse the run's stream or record.
    Unreadable,
    /// The server was unreachable for too long.
    Unavailable,
    /// The server has deleted the run, or its thread.
    Gone,
    /// The gateway is shutting down.
    Shutdown,
    /// The viewer read more slowly than the run wrote, and missed events before the run had sent
    /// its conversation.
    TooSlow,
    /// A bug in the gateway.
    Internal,
}

// === impl Failure ===

impl Failure {
    /// The name of the graph's exception, or the gateway's own code. The gateway's codes are
    /// stable.
    pub fn code(&self) -> &str {
        match self {
            Self::Graph(error) => &error.code,
            Self::Gateway { loss, .. } => loss.code(),
        }
    }

    /// What happened. Empty if an exception has no message.
    pub fn message(&self) -> &str {
        match self {
            Self::Graph(RunError { message, .. }) | Self::Gateway { message, .. } => message,
        }
    }

    /// What LangGraph reports about the failure, as far as clients may see it.
    pub fn reports(&self) -> &[ErrorReport] {
        match self {
            Self::Graph(error) => &error.reports,
            Self::Gateway { .. } => &[],
        }
    }

    /// This failure, with as much of the graph's exception as `detail` allows. The gateway's own
    /// failures hold nothing secret, and stay whole.
    #[must_use]
    pub fn redacted(self, detail: ErrorDetail) -> Self {
        match self {
            Self::Graph(error) => Self::Graph(error.redacted(detail)),
            own @ Self::Gateway { .. } => own,
        }
    }

    /// Why the gateway lost the run. `None` if the graph failed.
    pub fn loss(&self) -> Option<LossReason> {
        match self {
            Self::Graph(_) => None,
            Self::Gateway { loss, .. } => Some(*loss),
        }
    }
}

// === impl LossReason ===

impl LossReason {
    /// The code in events, metrics and logs.
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
