//! As whom a connection sends requests to LangGraph.

use std::time::Duration;

use super::link::Link;
use crate::upstream::{self, Caller};
use threadway_translate::acp::rpc::{Code, Error};
use threadway_translate::run::ErrorDetail;

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

impl Link {
    /// An upstream error as a remote caller sees it: without the upstream's URL, and without what
    /// only the operator can act on.
    pub(super) fn failed_for_caller(&self, error: &upstream::Error) -> Error {
        let what = match self.service().error_detail {
            ErrorDetail::Full => error.explained(),
            ErrorDetail::Message | ErrorDetail::Code | ErrorDetail::None => error.to_string(),
        };
        let is_personal = self.caller().is_personal();
        match error {
            upstream::Error::Status { code: 401, .. } if is_personal => {
                let message = "LangGraph does not accept these credentials; connect with others";
                Error::new(Code::AuthRequired, message)
            }
            upstream::Error::Status { code: 403, .. } if is_personal => {
                Error::internal("LangGraph does not allow this with these credentials")
            }
            upstream::Error::Status { code: 401 | 403, .. } => Error::internal(format!(
                "{what}; connect with credentials that it accepts, or have the gateway's operator \
                 set `upstream.api_key`"
            )),
            upstream::Error::Status { .. } => match error.retry_after() {
                Some(wait) => Error::internal(format!("{what}; {}", try_again(wait))),
                None => Error::internal(what),
            },
            upstream::Error::Crowded => Error::internal(format!("{what}; wait, then try again")),
            upstream::Error::Unreachable { .. } | upstream::Error::Unproven => {
                Error::internal(format!("{what}; try again, or tell the gateway's operator"))
            }
            upstream::Error::Timeout { .. } | upstream::Error::Interrupted { .. } => {
                Error::internal(format!("{what}; load the session before you try again"))
            }
            upstream::Error::NotAnEventStream { .. }
            | upstream::Error::NotUnderstood { .. }
            | upstream::Error::TooLarge { .. }
            | upstream::Error::NoRoom(_) => Error::internal(what),
        }
    }
}

/// What to do about a limit that ends.
pub(super) fn try_again(wait: Duration) -> String {
    format!("try again in {} s", wait.as_secs())
}
