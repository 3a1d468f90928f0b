//! Every refusal as one kind of response: a status, a stable code, and what to do about it.

use std::fmt::Display;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, StatusCode, Uri};
use serde::Serialize;

use super::rates::Exceeded;
use crate::threads::Refusal;
use crate::upstream::{Caller, Error};
use threadway_translate::run::ErrorDetail;

/// When a client that was turned away may come again: streams end every few seconds.
const RETRY_AFTER_SECONDS: u64 = 5;

/// A refusal.
#[derive(Debug)]
pub(super) struct Reject {
    status: StatusCode,
    /// Stable: a program may act on it.
    code: &'static str,
    /// For a person: what happened, with which input, what to do.
    message: String,
    /// When the client may come again, where that is known.
    wait: Option<Duration>,
}

/// The code of a refusal, beside its response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused(pub(super) &'static str);

#[derive(Serialize)]
struct RejectBody<'a> {
    error: &'a str,
    message: &'a str,
}

pub(super) async fn unknown_route(uri: Uri) -> Reject {
    let message = format!(
        "there is no route {}; runs are started with POST /agui/agent/{{agent}}/run, and GET \
         /agui/info names the agents",
        uri.path()
    );
    Reject::new(StatusCode::NOT_FOUND, "unknown_route", message)
}

pub(super) async fn unknown_admin_route(uri: Uri) -> Reject {
    let message =
        format!("there is no route {} here; there are /metrics, /healthz and /readyz", uri.path());
    Reject::new(StatusCode::NOT_FOUND, "unknown_route", message)
}

pub(super) async fn wrong_method(method: Method, uri: Uri) -> Reject {
    let message =
        format!("{} does not take {method}; the `allow` header names what it takes", uri.path());
    Reject::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message)
}

pub(super) async fn too_many_connections() -> Reject {
    let message = "the gateway has as many connections as it may have; try again later, or raise \
                   `limits.connections`";
    Reject::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", message)
}

/// The response to a request whose headers did not come in time, for a connection that nothing
/// else answers.
pub(super) fn header_timeout(waited: Duration) -> Vec<u8> {
    let message = format!("the request's headers did not come within {} s", waited.as_secs());
    Reject::new(StatusCode::REQUEST_TIMEOUT, "header_timeout", message).bytes()
}

/// The response to a peer that has as many connections as it may have, whatever it wants to ask.
pub(super) fn too_many_of_peer() -> Vec<u8> {
    let message = "your network has as many connections as it may have; close some, or raise \
                   `limits.connections_per_peer`";
    Reject::too_many("too_many_connections", message).bytes()
}

/// A request of which two ends could be thought.
pub(super) async fn two_lengths() -> Response {
    let message = "the request has both `content-length` and `transfer-encoding`; send one";
    let mut response = Reject::invalid(message).into_response();
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

// === impl Reject ===

impl Reject {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), wait: None }
    }

    /// What is wrong with the request itself.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// An agent that LangGraph has not, or does not show to the caller; or a thread, of which the
    /// Python server says the same.
    pub(super) fn unknown_assistant(assistant: &str, caller: &Caller) -> Self {
        let or_thread =
            if caller.is_personal() { ", or not the thread, for these credentials" } else { "" };
        Self::unknown_agent(format_args!(
            "LangGraph knows no agent `{assistant}`{or_thread}; name a graph of the server's \
             langgraph.json or an assistant's id"
        ))
    }

    /// An agent that no upstream has.
    pub(super) fn unknown_agent(what: impl Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown_agent", what.to_string())
    }

    /// A thread that LangGraph has not, or does not show to the caller.
    pub(super) fn unknown_thread() -> Self {
        let message = "LangGraph has no such thread, or does not show it with these credentials";
        Self::new(StatusCode::NOT_FOUND, "unknown_thread", message)
    }

    /// An envelope that asks for what no plain route has.
    pub(super) fn unknown_resource() -> Self {
        let message = "there is no such resource; `path` is /threads, /threads/ID, \
                       /threads/ID/archive, /threads/ID/messages, /threads/ID/events or \
                       /threads/ID/state";
        Self::new(StatusCode::NOT_FOUND, "unknown_route", message)
    }

    /// An envelope that asks for a resource by a method that this has not.
    pub(super) fn wrong_resource_method() -> Self {
        let message = "the resource does not take this `httpMethod`; lists and what a thread holds \
                       take GET, a thread PATCH and DELETE, and `archive` POST";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message)
    }

    /// A run that was to be read again, and that the thread has not.
    pub(super) fn unknown_run() -> Self {
        let message = "the thread has no such run, or LangGraph does not show it with these \
                       credentials";
        Self::new(StatusCode::NOT_FOUND, "unknown_run", message)
    }

    /// A run that was to be read again, of a thread that the client has not named.
    pub(super) fn unplaced_run() -> Self {
        let message = "this gateway reads no such run for these credentials, and the request does \
                       not name its thread; put `threadId=THREAD` into the query of the client's \
                       URL, or load the thread before";
        Self::new(StatusCode::NOT_FOUND, "unknown_run", message)
    }

    /// A request that came too late.
    fn shutting_down() -> Self {
        let message = "the gateway is shutting down; send the request again";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "gateway_shutdown", message)
    }

    /// A caller that has had what it may have.
    pub(super) fn too_many(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, code, message)
    }

    /// The same, which will be gone after this time.
    #[must_use]
    pub(super) fn after(self, wait: Duration) -> Self {
        Self { wait: Some(wait), ..self }
    }

    /// Whether it may be gone when the request is sent again.
    pub(super) fn is_passing(&self) -> bool {
        self.status.is_server_error() || self.status == StatusCode::TOO_MANY_REQUESTS
    }

    /// The whole response, for a connection that nothing else answers.
    fn bytes(&self) -> Vec<u8> {
        let body = self.body();
        let head = format!(
            "HTTP/1.1 {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             connection: close\r\n\r\n",
            self.status,
            body.len()
        );
        [head.into_bytes(), body].concat()
    }

    fn body(&self) -> Vec<u8> {
        let body = RejectBody { error: self.code, message: &self.message };
        // Two strings always serialise.
        let mut body = serde_json::to_vec(&body).unwrap_or_default();
        body.push(b'\n');
        body
    }

    /// What was not done with a thread for a caller.
    pub(super) fn refusal(refusal: &Refusal, caller: &Caller, detail: ErrorDetail) -> Self {
        match refusal {
            Refusal::ShuttingDown => Self::shutting_down(),
            Refusal::Busy => Self::new(StatusCode::CONFLICT, "thread_busy", refusal.to_string()),
            Refusal::UnknownAssistant { assistant } => Self::unknown_assistant(assistant, caller),
            Refusal::CannotResume(why) => Self::new(StatusCode::CONFLICT, "cannot_resume", why),
            Refusal::NotStored(error) => {
                let reject = Self::upstream(error, caller, detail);
                let message = format!(
                    "LangGraph did not keep this answer until those to the other actions come, and \
                     the question is still open: {}; or answer all actions in one request",
                    reject.message
                );
                Self { message, ..reject }
            }
            Refusal::CannotFork(why) => Self::new(StatusCode::CONFLICT, "cannot_fork", why),
            Refusal::Upstream(error) => Self::upstream(error, caller, detail),
        }
    }

    /// What an upstream did not do for a caller.
    pub(super) fn upstream(error: &Error, caller: &Caller, detail: ErrorDetail) -> Self {
        let what = match detail {
            ErrorDetail::Full => error.explained(),
            ErrorDetail::Message | ErrorDetail::Code | ErrorDetail::None => error.to_string(),
        };
        let bad_gateway = |code, what_to_do| {
            Self::new(StatusCode::BAD_GATEWAY, code, format!("{what}; {what_to_do}"))
        };
        match error {
            Error::Unreachable { .. } => {
                bad_gateway("upstream_unreachable", "check that it runs, and the upstream's URL")
            }
            Error::Timeout { .. } => Self::new(
                StatusCode::GATEWAY_TIMEOUT,
                "upstream_timeout",
                format!("{what}; look at the thread before you try again: it may have acted"),
            ),
            Error::Status { code: 401, .. } if caller.is_personal() => {
                let message = "LangGraph does not take these credentials; send others";
                Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
            }
            Error::Status { code: 403, .. } if caller.is_personal() => {
                let message = "LangGraph does not allow this with these credentials";
                Self::new(StatusCode::FORBIDDEN, "forbidden", message)
            }
            Error::Status { code: 404, .. } => Self::unknown_thread(),
            Error::Status { .. } if error.is_unauthorized() => bad_gateway(
                "upstream_unauthorized",
                "send the credentials that it wants, or have the gateway's operator set \
                 `upstream.api_key` to a key that it takes",
            ),
            Error::Status { code: 429, retry_after, .. } => {
                let message = format!(
                    "{what}: it has had as many requests as it takes; wait, then \
                                       send the request again"
                );
                let reject = Self::too_many("upstream_rate_limited", message);
                Self { wait: *retry_after, ..reject }
            }
            Error::Status { .. } => {
                bad_gateway("upstream_refused", "the server's log may tell more")
            }
            Error::NotAnEventStream { .. } | Error::NotUnderstood { .. } => {
                Self::not_langgraph(what)
            }
            Error::TooLarge { .. } => {
                bad_gateway("upstream_too_large", "have the graph keep less in its state")
            }
            Error::Interrupted { .. } => bad_gateway(
                "upstream_interrupted",
                "look at the thread before you try again: it may have acted",
            ),
        }
    }

    /// What answers, answers as no LangGraph server does.
    fn not_langgraph(what: impl Display) -> Self {
        let message =
            format!("{what}; check that the upstream's URL is that of a LangGraph API server");
        Self::new(StatusCode::BAD_GATEWAY, "not_langgraph", message)
    }
}

impl From<Exceeded> for Reject {
    fn from(exceeded: Exceeded) -> Self {
        match exceeded {
            Exceeded::Requests { wait } => {
                let message = "you ask more often than you may; wait, then send the request again";
                Self::too_many("too_many_requests", message).after(wait)
            }
            Exceeded::Streams { limit } => Self::too_many(
                "too_many_streams",
                format!("you may have {limit} streams at once, and have; end one, then try again"),
            ),
        }
    }
}

impl IntoResponse for Reject {
    fn into_response(self) -> Response {
        let body = self.body();
        // Its message may name what the request does.
        let Self { status, code, message: _, wait } = self;
        let mut response = (status, [(CONTENT_TYPE, "application/json")], body).into_response();
        response.extensions_mut().insert(Refused(code));
        let headers = response.headers_mut();
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            // Whole seconds, and not too few.
            let wait = wait.map_or(RETRY_AFTER_SECONDS, |wait| {
                wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
            });
            headers.insert(RETRY_AFTER, HeaderValue::from(wait.max(1)));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if status == StatusCode::UNAUTHORIZED {
            // RFC 6750: nothing more where there were no credentials.
            let challenge = match code {
                "unauthenticated" => "Bearer",
                _ => "Bearer error=\"invalid_token\"",
            };
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        response
    }
}
