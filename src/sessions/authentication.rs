//! As whom a connection sends requests to LangGraph.

use crate::upstream::Caller;

/// How the requests of a connection are authenticated to LangGraph.
#[derive(Clone, Debug)]
pub enum Authentication {
    /// With the upstream's own key. The person at the client can give the key, and take it back.
    Key,
    /// With the headers of a caller. The server in front has admitted the caller, so the connection
    /// offers neither authentication methods nor `logout`.
    Caller {
        /// The caller.
        caller: Caller,
        /// Whether the caller may list and delete sessions.
        lists: SessionLists,
        /// The largest message that the server takes of the client, in bytes.
        message_bytes: usize,
    },
}

/// Whether a client may list and delete sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionLists {
    /// It may.
    Allowed,
    /// It may not: a list might show the sessions of other callers.
    Refused,
}

// === impl Authentication ===

impl Authentication {
    /// Whether `session/list` and `session/delete` are offered.
    pub(super) fn session_lists(&self) -> SessionLists {
        match self {
            Self::Key => SessionLists::Allowed,
            Self::Caller { lists, .. } => *lists,
        }
    }

    /// The largest message that the client may send, in bytes. `None` if only the transport limits
    /// it.
    pub(super) fn message_bytes(&self) -> Option<usize> {
        match self {
            Self::Key => None,
            Self::Caller { message_bytes, .. } => Some(*message_bytes),
        }
    }

    /// Who the requests come from.
    pub(super) fn caller(&self) -> Caller {
        match self {
            Self::Key => Caller::default(),
            Self::Caller { caller, .. } => caller.clone(),
        }
    }
}
