//! Why the upstream did not do what was asked, by what the caller does next.
//!
//! What the server says of it may hold what is not the client's, or no log's, to know: a part of a
//! prompt, another's name, a key. An [`Error`] prints without; [`Error::explained`] has it.

use std::time::Duration;

use serde_json::value::RawValue;

use crate::metrics::Answer;
use threadway_translate::json;

/// How much of a server's explanation is kept: enough for both servers' sentences, too little for
/// a state or a stack trace to leak through it.
pub const MAX_DETAIL_CHARS: usize = 300;

/// Why the upstream did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No connection could be made, so nothing was asked.
    #[error("the LangGraph server cannot be reached: {reason}")]
    Unreachable {
        /// What the system says.
        reason: String,
    },
    /// The server was asked, and took too long; it may have done it.
    #[error("the LangGraph server did not answer within {} s", waited.as_secs())]
    Timeout {
        /// How long was waited.
        waited: Duration,
    },
    /// The server refused.
    #[error("the LangGraph server answered {code}")]
    Status {
        /// The HTTP status.
        code: u16,
        /// Its explanation, bounded; may be empty.
        detail: String,
        /// After how long the server wants to be asked again, if it says so (`Retry-After`).
        retry_after: Option<Duration>,
    },
    /// What answered is no LangGraph server, or a proxy stands in front of it.
    #[error("the LangGraph server answered with something else than an event stream")]
    NotAnEventStream {
        /// What it sent instead.
        content_type: String,
    },
    /// The answer has not the form of what was asked for.
    #[error("the LangGraph server's answer is not {what}")]
    NotUnderstood {
        /// What was asked for.
        what: &'static str,
    },
    /// The answer does not end within the limit.
    #[error("the LangGraph server's answer is longer than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The connection broke after the request had gone out; the server may have done it.
    #[error("the connection to the LangGraph server broke: {reason}")]
    Interrupted {
        /// What the system says.
        reason: String,
    },
}

// === impl Error ===

impl Error {
    /// A refusal, with the explanation that is in its body.
    pub(super) fn status(code: u16, body: &str) -> Self {
        Self::Status { code, detail: bounded(&detail(body)), retry_after: None }
    }

    /// The same, of a server that says after how long it wants to be asked again.
    pub(super) fn asking_to_wait(self, wait: Option<Duration>) -> Self {
        let mut error = self;
        if let Self::Status { retry_after, .. } = &mut error {
            *retry_after = wait;
        }
        error
    }

    /// After how long the server wants to be asked again, if it says so.
    pub fn retry_after(&self) -> Option<Duration> {
        if let Self::Status { retry_after, .. } = self { *retry_after } else { None }
    }

    /// What it is in a word, which tells nothing of what the server or the system says.
    pub fn answer(&self) -> Answer {
        match self {
            Self::Unreachable { .. } => Answer::Unreachable,
            Self::Timeout { .. } => Answer::Timeout,
            Self::Status { code: 401 | 403, .. } => Answer::Unauthorized,
            Self::Status { code: 404, .. } => Answer::NotFound,
            Self::Status { code: 429, .. } => Answer::RateLimited,
            Self::Status { code: 400..500, .. } => Answer::Refused,
            Self::Status { .. } => Answer::Failed,
            Self::NotAnEventStream { .. } | Self::NotUnderstood { .. } => Answer::NotUnderstood,
            Self::TooLarge { .. } => Answer::TooLarge,
            Self::Interrupted { .. } => Answer::Interrupted,
        }
    }

    /// Whether a run was refused because the thread has another that is not over.
    pub fn is_thread_busy(&self) -> bool {
        // The JavaScript server says 422.
        matches!(self, Self::Status { code: 409, .. })
            || matches!(self, Self::Status { code: 422, detail, .. } if detail.contains("already running"))
    }

    /// Whether a run was refused because there is no such assistant.
    pub fn is_unknown_assistant(&self) -> bool {
        // The JavaScript server says 404 of a graph's name too, the Python one 422.
        matches!(self, Self::Status { code: 404, .. })
            || matches!(self, Self::Status { code: 422, detail, .. } if detail.starts_with("Invalid assistant"))
    }

    /// What happened, with what the server says of it: for its operator.
    pub fn explained(&self) -> String {
        match self {
            Self::Status { detail, .. } if !detail.is_empty() => format!("{self}: {detail}"),
            Self::NotAnEventStream { content_type } if !content_type.is_empty() => {
                format!("{self}: `{content_type}`")
            }
            Self::Status { .. }
            | Self::NotAnEventStream { .. }
            | Self::Unreachable { .. }
            | Self::Timeout { .. }
            | Self::NotUnderstood { .. }
            | Self::TooLarge { .. }
            | Self::Interrupted { .. } => self.to_string(),
        }
    }

    /// The same, without what the server says of it.
    #[must_use]
    pub fn unexplained(mut self) -> Self {
        if let Self::Status { detail: said, .. } | Self::NotAnEventStream { content_type: said } =
            &mut self
        {
            said.clear();
        }
        self
    }

    /// Whether no connection could be made. The log has a line of its own when that begins.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    /// Whether the server has not what was asked for, or does not show it.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Status { code: 404, .. })
    }

    /// Whether the server refuses the one who asks, and perhaps nobody else.
    pub fn concerns_caller(&self) -> bool {
        self.is_unauthorized() || self.is_not_found()
    }

    /// Whether the server wants a key, or another one.
    pub fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Status { code: 401 | 403, .. })
    }
}

/// The Python server writes `{"detail": ..}`, the JavaScript one plain text or zod's issues.
fn detail(body: &str) -> String {
    let body = body.trim();
    let Ok(value) = serde_json::from_str::<&RawValue>(body) else {
        // A proxy's page says nothing that a sentence could hold.
        return if body.starts_with('<') { String::new() } else { body.to_owned() };
    };
    explanation(value).unwrap_or_else(|| value.get().to_owned())
}

fn explanation(value: &RawValue) -> Option<String> {
    if let Some(text) = json::string(value) {
        return Some(text.into_owned());
    }
    let members = json::members(value)?;
    if let Some(detail) = members.get("detail") {
        return Some(json::string(detail).map_or_else(|| detail.get().to_owned(), Into::into));
    }
    if let Some(text) = members.string("message") {
        return Some(text.into_owned());
    }
    let error = members.get("error")?;
    issues(error).or_else(|| explanation(error))
}

/// `{"issues": [{"path": [..], "message": ..}], "name": "ZodError"}`.
fn issues(error: &RawValue) -> Option<String> {
    let issues = json::items(json::members(error)?.get("issues")?)?;
    let told: Vec<_> = issues
        .into_iter()
        .filter_map(|issue| {
            let members = json::members(issue)?;
            let path = members.get("path").and_then(json::items).unwrap_or_default();
            let path: Vec<_> = path
                .into_iter()
                .map(|segment| json::string(segment).unwrap_or_else(|| segment.get().into()))
                .collect();
            let message = members.string("message")?;
            Some(if path.is_empty() {
                message.into_owned()
            } else {
                format!("{}: {message}", path.join("."))
            })
        })
        .collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// On one line, and no longer than the limit.
fn bounded(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_DETAIL_CHARS) {
        Some((at, _)) => format!("{}…", line.get(..at).unwrap_or_default()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_servers_explanations_are_read() {
        for (body, expected) in [
            (r#"{"detail":"Thread or assistant not found."}"#, "Thread or assistant not found."),
            (r#"{"detail":[{"loc":["body"]}]}"#, r#"[{"loc":["body"]}]"#),
            ("Run not found", "Run not found"),
            (r#""Run not found""#, "Run not found"),
            (
                r#"{"success":false,"error":{"issues":[{"path":["input","a",0],"message":"Required"},{"path":[],"message":"Bad"}],"name":"ZodError"}}"#,
                "input.a.0: Required; Bad",
            ),
            (r#"{"success":false,"error":{"name":"ZodError","message":"[1]"}}"#, "[1]"),
            (r#"{"error":"no"}"#, "no"),
            (r#"{"other": 1}"#, r#"{"other": 1}"#),
            ("<html><body>Bad Gateway</body></html>", ""),
            ("one\r\n  two\n", "one two"),
            ("", ""),
        ] {
            let Error::Status { detail, .. } = Error::status(400, body) else { panic!() };
            assert_eq!(detail, expected, "{body}");
        }
    }

    #[test]
    fn an_explanation_is_bounded() {
        let Error::Status { detail, .. } = Error::status(500, &"ß".repeat(10_000)) else {
            panic!()
        };
        assert_eq!(detail.chars().count(), MAX_DETAIL_CHARS + 1);
        assert_eq!(Error::status(500, "").explained(), "the LangGraph server answered 500");
    }

    #[test]
    fn an_explanation_is_only_told_where_it_is_asked_for() {
        let refused = Error::status(422, r#"{"detail":"no secret"}"#);
        assert_eq!(refused.explained(), "the LangGraph server answered 422: no secret");
        let page = Error::NotAnEventStream { content_type: "text/secret".to_owned() };
        assert!(page.explained().contains("text/secret"));
        for error in [refused, page] {
            assert!(!error.to_string().contains("secret"), "{error}");
            let expected = error.to_string();
            assert_eq!(error.unexplained().explained(), expected);
        }
    }
}
