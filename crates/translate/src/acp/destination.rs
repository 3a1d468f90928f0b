//! Where a message belongs: to a session, or to the connection.

use super::rpc::Incoming;
use crate::json::{self, Json};

/// The session that a client's message names. `None` for a message about the connection, and for a
/// response.
pub fn session_of(incoming: &Incoming) -> Option<String> {
    match incoming {
        Incoming::Request { params, .. } | Incoming::Notification { params, .. } => {
            session_in(params)
        }
        Incoming::Response { .. } => None,
    }
}

/// The member `sessionId` of a message's params.
pub fn session_in(params: &Json) -> Option<String> {
    let members = json::members(params)?;
    members.get("sessionId").and_then(json::string).map(std::borrow::Cow::into_owned)
}
