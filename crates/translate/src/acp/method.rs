//! The methods that a client sends, and what follows from each.

use super::destination::Destination;
use crate::json::{self, Json};

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

/// What a message does to the thread of its session, as the audit log has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditAction {
    /// It starts a run.
    Run,
    /// It reads the thread.
    Connect,
    /// It stops a run.
    Stop,
    /// It changes the thread's metadata.
    Change,
    /// It copies the thread.
    Copy,
    /// It deletes the thread.
    Delete,
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

    /// What the audit log has of a message with these params. `None` for one that is not audited.
    pub fn audit_action(self, params: &Json) -> Option<AuditAction> {
        match self {
            Self::Prompt => Some(AuditAction::Run),
            Self::LoadSession | Self::ResumeSession => Some(AuditAction::Connect),
            Self::CancelPrompt => Some(AuditAction::Stop),
            Self::SetMode | Self::SetConfigOption => Some(AuditAction::Change),
            Self::ForkSession => Some(AuditAction::Copy),
            Self::DeleteSession => Some(AuditAction::Delete),
            Self::PromptEnd => {
                let cancels = json::members(params).and_then(|params| params.get("cancel"));
                let is_stop = cancels.is_some_and(|cancels| cancels.get() == "true");
                Some(if is_stop { AuditAction::Stop } else { AuditAction::Connect })
            }
            Self::Initialize
            | Self::Authenticate
            | Self::Logout
            | Self::NewSession
            | Self::ListSessions
            | Self::CloseSession
            | Self::CancelRequest => None,
        }
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
    fn each_message_that_changes_or_shows_a_thread_is_audited() {
        for (method, params, expected) in [
            (Method::Prompt, "{}", Some(AuditAction::Run)),
            (Method::LoadSession, "{}", Some(AuditAction::Connect)),
            (Method::CancelPrompt, "{}", Some(AuditAction::Stop)),
            (Method::SetMode, "{}", Some(AuditAction::Change)),
            (Method::ForkSession, "{}", Some(AuditAction::Copy)),
            (Method::DeleteSession, "{}", Some(AuditAction::Delete)),
            (Method::PromptEnd, "{}", Some(AuditAction::Connect)),
            (Method::PromptEnd, r#"{"cancel":false}"#, Some(AuditAction::Connect)),
            (Method::PromptEnd, r#"{"cancel":true}"#, Some(AuditAction::Stop)),
            (Method::ListSessions, "{}", None),
        ] {
            let action = method.audit_action(&json::raw(params.to_owned()));
            assert_eq!(action, expected, "{method:?}");
        }
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
