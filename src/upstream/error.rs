//! Why a request to an upstream failed, with a variant for each reaction.
//!
//! A server's explanation may hold data that neither the client nor the log may see: a part of a
//! prompt, somebody's name, a key. Printing an [`Error`] leaves the explanation out;
//! [`Error::explained`] includes it.

use std::time::Duration;

use serde_json::value::RawValue;
use url::Url;

use crate::metrics::{Answer, Full};
use threadway_translate::json;
use threadway_translate::langgraph::Unsupported;

/// The longest explanation of a server that is kept, in characters. Both servers' sentences fit; a
/// state or a stack trace does not.
pub(crate) const MAX_DETAIL_CHARS: usize = 300;

/// What a compressed answer is not, for [`Error::NotUnderstood`].
const PLAIN: &str = "readable: it is compressed, although the gateway asked for no compression";

/// What a web page is not, for [`Error::NotUnderstood`].
const OF_LANGGRAPH: &str = "one of LangGraph: it is a web page, perhaps a login";

/// Why a request to an upstream failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No connection could be made, so nothing was sent.
    #[error("the LangGraph server cannot be reached: {reason}")]
    Unreachable {
        /// The cause, as the system reports it.
        reason: String,
    },
    /// None of the server's addresses has refused invented credentials, so the caller's were not
    /// sent.
    #[error("the LangGraph server has not refused invented credentials yet")]
    Unproven,
    /// Too many requests wait for a turn at the server, or this one has waited too long. Nothing was
    /// sent.
    #[error("too many requests wait for the LangGraph server")]
    Crowded,
    /// The request was sent and not answered in time. It may have had its effect.
    #[error("the LangGraph server did not answer within {} s", waited.as_secs())]
    Timeout {
        /// The time limit.
        waited: Duration,
    },
    /// The server answered with an error status.
    #[error("the LangGraph server answered {code}{}", if is_redirect(*code) { ", a redirect" } else { "" })]
    Status {
        /// The HTTP status.
        code: u16,
        /// The server's explanation, at most `MAX_DETAIL_CHARS`; may be empty.
        detail: String,
        /// The wait that the server asks for (`Retry-After`).
        retry_after: Option<Duration>,
    },
    /// The server is not LangGraph's, or a proxy answered for it.
    #[error("the LangGraph server did not answer with an event stream")]
    NotAnEventStream {
        /// The type of the answer.
        content_type: String,
    },
    /// The answer could not be parsed.
    #[error("the LangGraph server's answer is not {what}")]
    NotUnderstood {
        /// What was expected.
        what: &'static str,
    },
    /// The answer exceeds the limit.
    #[error("the LangGraph server's answer is longer than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The answer was read, and there is no room to hold it for the caller.
    #[error("there is no room for LangGraph's answer: {0}")]
    NoRoom(#[from] Full),
    /// The connection broke after the request was sent. It may have had its effect.
    #[error("the connection to the LangGraph server broke: {reason}")]
    Interrupted {
        /// The cause, as the system reports it.
        reason: String,
    },
}

// === impl Error ===

impl Error {
    /// The answer is compressed.
    pub(super) fn compressed() -> Self {
        Self::NotUnderstood { what: PLAIN }
    }

    /// The answer is a web page.
    pub(super) fn page() -> Self {
        Self::NotUnderstood { what: OF_LANGGRAPH }
    }

    /// Whether the answer is compressed.
    pub(crate) fn is_compressed(&self) -> bool {
        matches!(self, Self::NotUnderstood { what: PLAIN })
    }

    /// A redirect. The explanation has the scheme and host of its destination, without the path and
    /// query, which may hold a secret.
    pub(super) fn redirect(code: u16, destination: Option<&str>) -> Self {
        let origin = destination.and_then(|destination| Url::parse(destination).ok());
        let origin = origin.filter(Url::has_host).map(|url| url.origin().ascii_serialization());
        let detail = origin.map_or_else(String::new, |origin| format!("to {origin}"));
        Self::Status { code, detail: bounded(&detail), retry_after: None }
    }

    /// An error status, with the explanation in its body.
    pub(super) fn status(code: u16, body: &str) -> Self {
        Self::Status { code, detail: bounded(&detail(body)), retry_after: None }
    }

    pub(super) fn with_retry_after(self, wait: Option<Duration>) -> Self {
        let mut error = self;
        if let Self::Status { retry_after, .. } = &mut error {
            *retry_after = wait;
        }
        error
    }

    /// The wait that the server asks for.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        if let Self::Status { retry_after, .. } = self { *retry_after } else { None }
    }

    /// The kind of failure, as metrics count it.
    pub(crate) fn answer(&self) -> Answer {
        match self {
            Self::Unreachable { .. } => Answer::Unreachable,
            Self::Unproven => Answer::Unproven,
            Self::Crowded => Answer::Crowded,
            Self::Timeout { .. } => Answer::Timeout,
            Self::Status { code: 401 | 403, .. } => Answer::Unauthorized,
            Self::Status { code: 404, .. } => Answer::NotFound,
            Self::Status { code: 429, .. } => Answer::RateLimited,
            Self::Status { code: 400..500, .. } => Answer::Refused,
            Self::Status { .. } => Answer::Failed,
            Self::NotAnEventStream { .. } | Self::NotUnderstood { .. } => Answer::NotUnderstood,
            Self::TooLarge { .. } => Answer::TooLarge,
            Self::NoRoom(_) => Answer::NoRoom,
            Self::Interrupted { .. } => Answer::Interrupted,
        }
    }

    /// Whether a run was refused because the thread has another live run.
    pub(crate) fn is_thread_busy(&self) -> bool {
        // The Python server answers 409, the JavaScript server 422.
        matches!(self, Self::Status { code: 409, .. })
            || matches!(self, Self::Status { code: 422, detail, .. } if detail.contains("already running"))
    }

    /// Whether the server says that there is no such graph, whoever asks. A server without the route
    /// says something else.
    pub(crate) fn is_unknown_graph(&self) -> bool {
        matches!(self, Self::Status { code: 404, detail, .. } if detail.starts_with("Graph '"))
    }

    /// Whether a run was refused because there is no such assistant.
    pub(crate) fn is_unknown_assistant(&self) -> bool {
        // The Python server answers 422 for the name of a graph, the JavaScript server 404.
        matches!(self, Self::Status { code: 404, .. })
            || matches!(self, Self::Status { code: 422, detail, .. } if detail.starts_with("Invalid assistant"))
    }

    /// Whether the server says that it has no schema of a graph.
    pub(crate) fn is_undescribed(&self) -> bool {
        // The Python server answers so for a JavaScript graph whose source it cannot read, or whose
        // schema its image was built without (langgraph-api 0.16.7).
        let says = ["Failed to extract schema for ", "Failed to locate schema for "];
        matches!(self, Self::Status { code: 500, detail, .. } if says.iter().any(|say| detail.starts_with(say)))
    }

    /// The message with the server's explanation, for the operator.
    pub fn explained(&self) -> String {
        match self {
            Self::Status { detail, .. } if !detail.is_empty() => format!("{self}: {detail}"),
            Self::NotAnEventStream { content_type } if !content_type.is_empty() => {
                format!("{self}: `{content_type}`")
            }
            Self::Status { .. }
            | Self::NotAnEventStream { .. }
            | Self::Unreachable { .. }
            | Self::Unproven
            | Self::Crowded
            | Self::Timeout { .. }
            | Self::NotUnderstood { .. }
            | Self::TooLarge { .. }
            | Self::NoRoom(_)
            | Self::Interrupted { .. } => self.to_string(),
        }
    }

    /// Removes the server's explanation.
    #[must_use]
    pub(crate) fn unexplained(mut self) -> Self {
        if let Self::Status { detail: explanation, .. }
        | Self::NotAnEventStream { content_type: explanation } = &mut self
        {
            explanation.clear();
        }
        self
    }

    /// Whether the server answered with a redirect.
    pub(crate) fn is_redirect(&self) -> bool {
        matches!(self, Self::Status { code, .. } if is_redirect(*code))
    }

    /// Whether nothing was sent. The log already has a line that says why.
    pub(crate) fn was_not_sent(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Unproven | Self::Crowded)
    }

    /// Whether a request that failed like this may have had its effect: its answer was lost, or a
    /// proxy has answered for a server that it may have sent the request to.
    pub(crate) fn is_unsettled(&self) -> bool {
        // 520 to 524 are Cloudflare's.
        matches!(
            self,
            Self::Timeout { .. }
                | Self::Interrupted { .. }
                | Self::Status { code: 502..=504 | 520..=524, .. }
        )
    }

    /// Whether the connection broke, or a proxy did not reach the server. A read that failed so is
    /// likely to succeed at once.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Self::Interrupted { .. } | Self::Status { code: 502..=504, .. })
    }

    /// Whether the server shows that it does not support this.
    pub(super) fn shows(&self, lack: Unsupported) -> bool {
        matches!(self, Self::Status { code, .. } if lack.is_shown_by(*code))
    }

    /// Whether the thing does not exist, or the server hides it.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Status { code: 404, .. })
    }

    /// Whether the server may answer another caller differently.
    pub(crate) fn depends_on_caller(&self) -> bool {
        self.is_unauthorized() || self.is_not_found()
    }

    /// Whether the server asks for a key, or rejects the one it got.
    pub fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Status { code: 401 | 403, .. })
    }
}

fn is_redirect(code: u16) -> bool {
    (300..400).contains(&code)
}

/// Finds the explanation in an error body. The Python server sends `{"detail": ..}`, the JavaScript
/// server plain text or zod's issues.
fn detail(body: &str) -> String {
    let body = body.trim();
    let Ok(value) = serde_json::from_str::<&RawValue>(body) else {
        // A proxy's HTML page has no sentence to quote.
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

/// Reads `{"issues": [{"path": [..], "message": ..}], "name": "ZodError"}`.
fn issues(error: &RawValue) -> Option<String> {
    let issues = json::items(json::members(error)?.get("issues")?)?;
    let messages: Vec<_> = issues
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
    (!messages.is_empty()).then(|| messages.join("; "))
}

/// Puts a text on one line and cuts it at [`MAX_DETAIL_CHARS`].
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
    fn a_redirect_names_the_host_that_it_leads_to_and_nothing_else_of_it() {
        for (destination, expected) in [
            (Some("https://user:s3cret@h:8443/login?token=s3cret#a"), ": to https://h:8443"),
            (Some("/login?token=s3cret"), ""),
            (Some("mailto:s3cret"), ""),
            (None, ""),
        ] {
            let error = Error::redirect(307, destination);
            let explained = format!("the LangGraph server answered 307, a redirect{expected}");
            assert_eq!(error.explained(), explained);
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
    fn an_explanation_is_only_printed_on_request() {
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
