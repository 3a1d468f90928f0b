//! Notices: what a person should know that is no part of the conversation.
//!
//! A client that cannot show notices gets them as messages of the agent. LangGraph stores only those
//! of its harness, so no other is in a session that is loaded.

use super::update::{ContentBlock, NoticeSeverity, Update};
use crate::run::{Failure, HarnessNotice, Outcome, RunError};

/// The code of an error whose exception has no name apart from its message.
const UNNAMED_ERROR: &str = "Error";

/// The longest name of an MCP server, or of a feature, in characters. The client and the graph send
/// the names.
const MAX_NAME_CHARS: usize = 60;

/// The feature of LangChain's harness that replaces older messages by a summary.
pub(super) const SUMMARY: &str = "summarization";

/// How many MCP servers a notice names.
const MAX_NAMED: usize = 10;

/// One notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    severity: NoticeSeverity,
    title: String,
    description: Option<String>,
}

impl Notice {
    /// The failure of a run that no prompt waits for. `None` if the run did not fail.
    pub fn of_outcome(outcome: &Outcome) -> Option<Self> {
        match outcome {
            Outcome::Failed(failure) => Some(Self::shown_run_failed(failure)),
            Outcome::Idle { error: Some(error), .. } => Some(Self::last_run_failed(error)),
            Outcome::Idle { error: None, .. }
            | Outcome::Finished { .. }
            | Outcome::Interrupted(_)
            | Outcome::Cancelled => None,
        }
    }

    /// The last run of the thread failed before the session was opened.
    fn last_run_failed(error: &RunError) -> Self {
        Self::run_failed("The last run of this session failed", &error.code, &error.message)
    }

    /// A run that no prompt waits for has failed.
    pub fn shown_run_failed(failure: &Failure) -> Self {
        Self::run_failed("The run failed", failure.code(), failure.message())
    }

    fn run_failed(what: &str, code: &str, message: &str) -> Self {
        Self {
            severity: NoticeSeverity::Error,
            // The message has the exception's name, if the server does not send it apart.
            title: match code {
                UNNAMED_ERROR => what.to_owned(),
                code => format!("{what}: {code}"),
            },
            // An exception may have no message.
            description: (!message.is_empty()).then(|| message.to_owned()),
        }
    }

    /// The graph does not get these MCP servers of the client. There is at least one.
    pub fn servers_dropped<'a>(names: impl ExactSizeIterator<Item = &'a str>, why: &str) -> Self {
        let more = names.len().saturating_sub(MAX_NAMED);
        let quoted = names.take(MAX_NAMED).map(quoted);
        let quoted = quoted.collect::<Vec<_>>().join(", ");
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        let title = format!("The graph does not get these MCP servers: {quoted}{rest}");
        Self { severity: NoticeSeverity::Warning, title, description: Some(why.to_owned()) }
    }

    /// LangChain's harness has added a message for the model, which nobody typed.
    pub(super) fn of_harness(notice: &HarnessNotice) -> Self {
        let (source, text) = (notice.source.decode(), notice.text.decode());
        Self {
            severity: NoticeSeverity::Info,
            title: match &*source {
                SUMMARY => "The model reads a summary of the conversation so far".to_owned(),
                source => {
                    format!("The graph has added a message for the model: {}", quoted(source))
                }
            },
            description: (!text.is_empty()).then(|| text.into_owned()),
        }
    }

    /// The server does not answer while a run is shown. The gateway tries again for `seconds`.
    /// `server` is its URL, if the client may know it.
    pub fn server_away(server: Option<&str>, seconds: u64) -> Self {
        let server = server.unwrap_or("It");
        let description = format!(
            "{server} is tried again for up to {seconds} s. The run may go on in LangGraph."
        );
        Self {
            severity: NoticeSeverity::Warning,
            title: "The LangGraph server does not answer".to_owned(),
            description: Some(description),
        }
    }

    /// The server answers again.
    pub fn server_back() -> Self {
        Self {
            severity: NoticeSeverity::Info,
            title: "The LangGraph server answers again".to_owned(),
            description: None,
        }
    }

    /// The update for a client that can show notices.
    pub fn update(&self) -> Update<'_> {
        Update::Notice {
            severity: self.severity,
            title: &self.title,
            description: self.description.as_deref(),
        }
    }

    /// The title alone, for a client that cannot, as the message of this id.
    pub(super) fn headline<'a>(&self, message_id: &'a str) -> Update<'a> {
        let content = ContentBlock::text(&format!("[{}]", self.title));
        Update::AgentMessageChunk { content, message_id: Some(message_id) }
    }

    /// The update for a client that cannot, as the message of this id.
    pub fn line<'a>(&self, message_id: &'a str) -> Update<'a> {
        let text = match &self.description {
            Some(description) => format!("{}\n\n{description}", self.title),
            None => self.title.clone(),
        };
        let content = ContentBlock::text(&text);
        Update::AgentMessageChunk { content, message_id: Some(message_id) }
    }
}

/// A name in one line.
fn quoted(name: &str) -> String {
    let name: String = name.chars().take(MAX_NAME_CHARS).collect();
    format!("`{}`", name.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(notice: &Notice) -> String {
        serde_json::to_string(&notice.update()).unwrap()
    }

    #[test]
    fn a_notice_is_an_update_or_a_message() {
        let notice = Notice::last_run_failed(&RunError::new("ValueError", "no model"));
        let title = "The last run of this session failed: ValueError";
        assert_eq!(
            text(&notice),
            format!(
                r#"{{"sessionUpdate":"notice","severity":"error","title":"{title}","description":"no model"}}"#
            )
        );
        let line = serde_json::to_string(&notice.line("n:1")).unwrap();
        assert!(line.contains(&format!(r#""text":"{title}\n\nno model""#)), "{line}");
        assert!(line.contains(r#""messageId":"n:1""#), "{line}");
        let silent = Notice::last_run_failed(&RunError::new("Boom", ""));
        assert!(!text(&silent).contains("description"));
    }

    #[test]
    fn names_of_servers_are_shown_in_one_line_and_cut() {
        let long = "x".repeat(MAX_NAME_CHARS + 1);
        let names = ["a\n\u{1b}[2J", &long].into_iter().chain(["s"; MAX_NAMED]);
        let names: Vec<_> = names.collect();
        let notice = Notice::servers_dropped(names.iter().copied(), "why");
        let title = &notice.title;
        assert!(title.starts_with(r"The graph does not get these MCP servers: `a\n\u{1b}[2J`, `x"));
        assert!(!title.contains(&long) && title.ends_with("`s` and 2 more"), "{title}");
    }
}
