//! Which session a message belongs to, and which of a client's streams carries it.
//!
//! ACP's streamable HTTP has a stream for the connection, and one for each session. Over stdio and
//! on a WebSocket all messages share one line.

use super::rpc::Incoming;
use crate::json::{self, Json};

/// The stream that carries a message of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination<'a> {
    /// The connection's stream.
    Connection,
    /// The stream of an open session. The client may not read it yet.
    Session(&'a str),
    /// The session's stream, if the session is open. Otherwise the connection's: the answer may be
    /// that there is no such session.
    Answer(&'a str),
    /// The session's stream, if the client reads it already. So the answer comes after the history.
    /// Otherwise the connection's: some clients read the session's stream only after the answer.
    Opened(&'a str),
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_its_session_in_its_params() {
        let session = |line: &str| session_of(&Incoming::parse(line.as_bytes()).unwrap());
        for (line, expected) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"sessionId":"s"}}"#, Some("s")),
            (r#"{"jsonrpc":"2.0","method":"m","params":{"sessionId":"a\u0062"}}"#, Some("ab")),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"sessionId":7}}"#, None),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":["s"]}"#, None),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#, None),
            (r#"{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}"#, None),
        ] {
            assert_eq!(session(line).as_deref(), expected, "{line}");
        }
    }
}
