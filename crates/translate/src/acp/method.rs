//! The methods that a client sends, and what follows from each.

use super::destination::Destination;

/// A method that threadway handles: a request or a notification of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the method of that name in `NAMES`")]
pub enum Method {
    Initialize,
    Authenticate,
    Logout,
    NewSession,
    LoadSession,
    ResumeSession,
    ForkSession,
    ListSessions,
    DeleteSession,
    CloseSession,
    SetMode,
    SetConfigOption,
    Prompt,
    /// threadway's own: waits for the end of a prompt whose connection was lost.
    PromptEnd,
    /// A notification: stops the prompt of a session.
    CancelPrompt,
    /// A notification: cancels a request by its id.
    CancelRequest,
}

/// All methods with their names on the wire.
const NAMES: [(Method, &str); 16] = [
    (Method::Initialize, "initialize"),
    (Method::Authenticate, "authenticate"),
    (Method::Logout, "logout"),
    (Method::NewSession, "session/new"),
    (Method::LoadSession, "session/load"),
    (Method::ResumeSession, "session/resume"),
    (Method::ForkSession, "session/fork"),
    (Method::ListSessions, "session/list"),
    (Method::DeleteSession, "session/delete"),
    (Method::CloseSession, "session/close"),
    (Method::SetMode, "session/set_mode"),
    (Method::SetConfigOption, "session/set_config_option"),
    (Method::Prompt, "session/prompt"),
    (Method::PromptEnd, "_threadway/prompt_end"),
    (Method::CancelPrompt, "session/cancel"),
    (Method::CancelRequest, "$/cancel_request"),
];

// === impl Method ===

impl Method {
    /// The method of this name. `None` for one that threadway does not handle.
    pub fn of(name: &str) -> Option<Self> {
        NAMES.iter().find(|(_, known)| *known == name).map(|(method, _)| *method)
    }

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(known, _)| *known == self).map_or("", |(_, name)| *name)
    }

    /// Whether the request can be sent twice. A prompt would run twice, and a fork would leave a
    /// second thread. A session that was made twice leaves nothing behind, since its thread is made
    /// with the first prompt.
    pub fn is_repeatable(self) -> bool {
        match self {
            Self::Initialize
            | Self::Authenticate
            | Self::Logout
            | Self::NewSession
            | Self::LoadSession
            | Self::ResumeSession
            | Self::ListSessions
            | Self::DeleteSession
            | Self::CloseSession
            | Self::SetMode
            | Self::SetConfigOption
            | Self::PromptEnd
            | Self::CancelPrompt
            | Self::CancelRequest => true,
            Self::ForkSession | Self::Prompt => false,
        }
    }

    /// Whether the request is for callers only who may list threads.
    pub fn needs_lists(self) -> bool {
        matches!(self, Self::ListSessions | Self::DeleteSession)
    }

    /// Whether the request opens a session that exists.
    pub fn is_opening(self) -> bool {
        matches!(self, Self::LoadSession | Self::ResumeSession)
    }

    /// Whether the request ends a session on its connection.
    pub fn is_closing(self) -> bool {
        matches!(self, Self::CloseSession | Self::DeleteSession)
    }

    /// Where the answer belongs. `session` is what the request's params name.
    ///
    /// The SDKs disagree about `session/load`. The Rust SDK's server uses the session's stream if it
    /// is read, the TypeScript SDK's always the connection's. Their clients accept both.
    ///
    /// The answer to `session/fork` opens another session than the one that the request names.
    pub fn destination(self, session: Option<&str>) -> Destination<'_> {
        match (self, session) {
            (_, None) | (Self::ForkSession, _) => Destination::Connection,
            (Self::LoadSession | Self::ResumeSession, Some(id)) => Destination::Opened(id),
            (_, Some(id)) => Destination::Answer(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_has_one_name() {
        for (method, name) in NAMES {
            assert_eq!((Method::of(name), method.name()), (Some(method), name));
        }
        assert_eq!(Method::of("session/unknown"), None);
    }

    #[test]
    fn an_answer_goes_to_its_session_if_there_is_one() {
        use Destination::{Answer, Connection, Opened};
        for (method, session, expected) in [
            (Method::NewSession, None, Connection),
            (Method::ForkSession, Some("s"), Connection),
            (Method::ListSessions, None, Connection),
            (Method::LoadSession, Some("s"), Opened("s")),
            (Method::ResumeSession, Some("s"), Opened("s")),
            (Method::Prompt, Some("s"), Answer("s")),
            (Method::CloseSession, Some("s"), Answer("s")),
            (Method::Prompt, None, Connection),
        ] {
            assert_eq!(method.destination(session), expected, "{method:?}");
        }
    }
}
