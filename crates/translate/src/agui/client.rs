//! The client that a stream is for.

use std::sync::Arc;

use crate::run;

/// The client that a stream is for.
#[derive(Clone, Debug)]
pub struct Client {
    /// The client's id of the thread.
    pub thread_id: String,
    /// The id under which the client sees the run.
    pub run_id: RunId,
    /// The run that the client names as this run's parent.
    pub parent_run_id: Option<String>,
    /// The generation of the client.
    pub version: Version,
}

/// The id under which a client sees a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunId {
    /// The client started the run under this id.
    Own(String),
    /// The client watches runs of others, under the ids that those were started with. If the thread
    /// is idle, its snapshots go out as a run with this id.
    Watched(String),
    /// The client watches, and gave no id.
    Unnamed,
}

/// A generation of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Clients of AG-UI 1.0, which send `protocolVersion`.
    V1,
    /// Clients before 1.0, which send no version. They fail on unknown outcomes, on lists as the
    /// content of a tool's result, and on `file` sources.
    Legacy,
}

/// Which messages a client holds before the run is streamed to it.
#[derive(Clone, Debug)]
pub enum ClientMessages {
    /// The messages that the client sent along with its request.
    Sent(Vec<Arc<run::Message>>),
    /// The client may hold any messages: an `EventSource` cannot say which.
    Unknown,
    /// The client has seen this run before and starts over. It may hold reasoning that the run will
    /// stream again.
    Returning,
}

// === impl ClientMessages ===

impl From<Vec<Arc<run::Message>>> for ClientMessages {
    fn from(messages: Vec<Arc<run::Message>>) -> Self {
        Self::Sent(messages)
    }
}
