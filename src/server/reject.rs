//! Refused requests: the response has a status, a stable code, and a message that says what to do.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, StatusCode, Uri};
use serde::Serialize;

use super::limits::rates::Exceeded;
use crate::metrics::{Answer, Full};
use crate::threads::Refusal;
use crate::upstream::{Caller, Error};
use threadway_translate::run::ErrorDetail;

/// The default `Retry-After`. Streams and connections end every few seconds.
const RETRY_AFTER_SECONDS: u64 = 5;

/// The response to a refused request.
#[derive(Debug)]
pub(super) struct Reject {
    status: StatusCode,
    /// Stable, so that programs can act on it.
    code: &'static str,
    /// For a person: what happened, with which input, and what to do.
    message: String,
    /// How long the client has to wait, where that is known.
    wait: Option<Duration>,
    fault: Option<FaultToLog>,
}

/// What the logs and metrics keep of a refusal, as an extension of its response.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    /// That of the refusal. [`defer`](super::routes::events::defer) may answer with another one.
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) fault: Option<FaultToLog>,
}

/// A fault of an upstream because of which a request was refused.
#[derive(Clone, Debug)]
pub(super) struct FaultToLog {
    /// What happened, without the upstream's words.
    pub(super) reason: Arc<str>,
    /// Whether the log has no other line about it.
    pub(super) is_news: bool,
}

/// Whether a request that failed may have changed something in LangGraph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SideEffect {
    /// It may have changed something.
    Possible,
    /// It has changed nothing.
    None,
    /// It has started no run.
    NoRun,
}

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
    let message = format!(
        "there is no route {} on this port; the routes are /metrics, /healthz and /readyz",
        uri.path()
    );
    Reject::new(StatusCode::NOT_FOUND, "unknown_route", message)
}

pub(super) async fn wrong_method(method: Method, uri: Uri) -> Reject {
    let message = format!(
        "{} does not allow {method}; use a method that the `allow` header names",
        uri.path()
    );
    Reject::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message)
}

pub(super) async fn too_many_connections() -> Reject {
    let message = "the gateway has as many connections as it may have; try again later, or raise \
                   `limits.connections`";
    Reject::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", message)
}

/// The bytes of the response to a request whose headers did not arrive in time. No route and no
/// HTTP library answers it.
pub(super) fn header_timeout(waited: Duration) -> Vec<u8> {
    let message = format!(
        "the request's headers did not arrive within {} s; send the request again",
        waited.as_secs()
    );
    Reject::new(StatusCode::REQUEST_TIMEOUT, "header_timeout", message).bytes()
}

pub(super) async fn too_many_connections_of_peer() -> Response {
    closing(of_full_peer())
}

/// The bytes of the response to a network that has too many connections.
pub(super) fn too_many_of_peer() -> Vec<u8> {
    of_full_peer().bytes()
}

fn of_full_peer() -> Reject {
    let message = "your network has as many connections as it may have; close some, or raise \
                   `limits.connections_per_peer`";
    Reject::too_many("too_many_connections", message)
}

/// Refuses a request that states two lengths, and closes the connection.
pub(super) async fn two_lengths() -> Response {
    let message = "the request has both `content-length` and `transfer-encoding`; send one";
    closing(Reject::invalid(message))
}

/// Refuses a request whose body the gateway cannot decode, and closes the connection.
pub(super) async fn unknown_encoding() -> Response {
    let message = "`transfer-encoding` is not `chunked` once; send `chunked`, or a \
                   `content-length`";
    closing(Reject::invalid(message))
}

/// The response to a request after which the connection is closed.
fn closing(reject: Reject) -> Response {
    let mut response = reject.into_response();
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

// === impl Reject ===

impl Reject {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), wait: None, fault: None }
    }

    /// The request itself is malformed.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// The request names a host that a web site could own.
    pub(super) fn wrong_host() -> Self {
        let message = "a gateway without `auth` does not answer under a name that any web page \
                       could have; call it by its address or `localhost`, or have its operator \
                       add the name to `hosts`";
        Self::new(StatusCode::FORBIDDEN, "wrong_host", message)
    }

    /// LangGraph does not have the agent, or does not show it to the caller. The Python server
    /// answers the same for a thread.
    pub(super) fn unknown_assistant(assistant: &str, caller: &Caller) -> Self {
        let or_thread =
            if caller.is_personal() { ", or not the thread, for these credentials" } else { "" };
        Self::unknown_agent(format_args!(
            "LangGraph knows no agent `{assistant}`{or_thread}; name a graph of the server's \
             langgraph.json or an assistant's id"
        ))
    }

    /// No upstream has the agent.
    pub(super) fn unknown_agent(what: impl Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown_agent", what.to_string())
    }

    /// LangGraph does not have the thread, or does not show it to the caller.
    pub(super) fn unknown_thread() -> Self {
        let message = "LangGraph has no such thread, or does not show it with these credentials";
        Self::new(StatusCode::NOT_FOUND, "unknown_thread", message)
    }

    /// The single route was asked for a resource that does not exist.
    pub(super) fn unknown_resource() -> Self {
        let message = "there is no such resource; `path` is /threads, /threads/ID, \
                       /threads/ID/archive, /threads/ID/messages, /threads/ID/events or \
                       /threads/ID/state";
        Self::new(StatusCode::NOT_FOUND, "unknown_route", message)
    }

    /// The single route was asked for a method that the resource does not have.
    pub(super) fn wrong_resource_method() -> Self {
        let message = "the resource does not take this `httpMethod`; lists and what a thread holds \
                       take GET, a thread PATCH and DELETE, and `archive` POST";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message)
    }

    /// The thread does not have the run that is to be resumed or joined.
    pub(super) fn unknown_run() -> Self {
        let message = "the thread has no such run, or LangGraph does not show it with these \
                       credentials";
        Self::new(StatusCode::NOT_FOUND, "unknown_run", message)
    }

    /// The run that is to be joined was not found, and the request does not name its thread.
    pub(super) fn unplaced_run() -> Self {
        let message = "this gateway reads no such run for these credentials, and the request does \
                       not name its thread; put `threadId=THREAD` into the query of the client's \
                       URL, or load the thread before";
        Self::new(StatusCode::NOT_FOUND, "unknown_run", message)
    }

    /// A GET of the run route names neither a thread nor a run.
    pub(super) fn unnamed_run() -> Self {
        let message = "a GET of this route has to name a thread or a run in its query: send \
                       `threadId=THREAD` to load the thread, or `runId=RUN` to join the run; a run \
                       is started with POST";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message)
    }

    /// The rest of a stream does not fit into the memory for clients.
    pub(super) fn no_room_for_rest() -> Self {
        let message = "the gateway has no room for the rest of the stream; read it again later";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "memory_full", message)
    }

    fn shutting_down() -> Self {
        let message = "the gateway is shutting down; send the request again";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "gateway_shutdown", message)
    }

    /// Whether the gateway is shutting down.
    pub(super) fn is_shutdown(&self) -> bool {
        self.code == "gateway_shutdown"
    }

    /// The caller has reached a limit.
    pub(super) fn too_many(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, code, message)
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    pub(super) fn code(&self) -> &'static str {
        self.code
    }

    /// What the logs and metrics keep of it.
    pub(super) fn refused(&self) -> Refused {
        Refused { status: self.status, code: self.code, fault: self.fault.clone() }
    }

    /// The text for a person.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// Sets the time that the client has to wait.
    #[must_use]
    pub(super) fn after(self, wait: Duration) -> Self {
        Self { wait: Some(wait), ..self }
    }

    /// The upstream's fault has a line in the log already.
    #[must_use]
    pub(super) fn logged(self) -> Self {
        let fault = self.fault.map(|fault| FaultToLog { is_news: false, ..fault });
        Self { fault, ..self }
    }

    /// The whole response, as it is sent on the connection.
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
        // Serialising two strings cannot fail.
        let mut body = serde_json::to_vec(&body).unwrap_or_default();
        body.push(b'\n');
        body
    }

    /// The response to a request that failed on a thread. `detail` limits what the message says of
    /// an upstream error.
    pub(super) fn refusal(
        refusal: &Refusal,
        caller: &Caller,
        detail: ErrorDetail,
        effect: SideEffect,
    ) -> Self {
        match refusal {
            Refusal::ShuttingDown => Self::shutting_down(),
            Refusal::NoThread => Self::unknown_thread(),
            Refusal::Busy => Self::new(StatusCode::CONFLICT, "thread_busy", refusal.to_string()),
            Refusal::UnknownAssistant { assistant } => Self::unknown_assistant(assistant, caller),
            Refusal::CannotResume(why) => Self::new(StatusCode::CONFLICT, "cannot_resume", why),
            Refusal::NotStored(error) => {
                let reject = Self::upstream(error, caller, detail, SideEffect::Possible);
                let message = format!(
                    "LangGraph did not store the answer, which must wait for the other actions, and the \
                     question is still open: {}; or answer all actions in one request",
                    reject.message
                );
                Self { message, ..reject }
            }
            Refusal::CannotFork(why) => Self::new(StatusCode::CONFLICT, "cannot_fork", why),
            Refusal::NotStarted(error) => {
                let message = format!(
                    "{}; it has no run of this request; send the request again",
                    told(error, detail)
                );
                let reject = Self::new(StatusCode::BAD_GATEWAY, "run_not_started", message);
                Self { fault: Some(FaultToLog::of(error)), ..reject }
            }
            Refusal::MayHaveStarted(error) => {
                Self::upstream(error, caller, detail, SideEffect::Possible)
            }
            Refusal::Upstream(error) => Self::upstream(error, caller, detail, effect),
        }
    }

    /// The response to a request that an upstream refused or failed. `detail` limits what the
    /// message says.
    pub(super) fn upstream(
        error: &Error,
        caller: &Caller,
        detail: ErrorDetail,
        effect: SideEffect,
    ) -> Self {
        let reject = Self::upstream_told(error, caller, detail, effect);
        // Other refusals concern the caller: credentials, or a thread that is not there.
        let is_fault = reject.status.is_server_error() || error.answer() == Answer::RateLimited;
        let fault = is_fault.then(|| FaultToLog::of(error));
        Self { fault, ..reject }
    }

    /// An upstream gets no callers' credentials until it has refused invented ones.
    pub(super) fn unproven() -> Self {
        let message = "the gateway refuses requests until LangGraph has refused invented \
                       credentials; try again, and have its operator look at its log";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "auth_unproven", message)
    }

    fn upstream_told(
        error: &Error,
        caller: &Caller,
        detail: ErrorDetail,
        effect: SideEffect,
    ) -> Self {
        let again = match effect {
            SideEffect::Possible => "look at the thread before you try again: it may have acted",
            SideEffect::None => "send the request again",
            SideEffect::NoRun => "no run was started; send the request again",
        };
        let what = told(error, detail);
        let bad_gateway = |code, what_to_do| {
            Self::new(StatusCode::BAD_GATEWAY, code, format!("{what}; {what_to_do}"))
        };
        match error {
            Error::Unreachable { .. } => {
                bad_gateway("upstream_unreachable", "check that it runs, and the upstream's URL")
            }
            Error::Unproven => Self::unproven(),
            Error::Crowded => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "upstream_crowded",
                format!("{what}; wait, then send the request again"),
            ),
            Error::Timeout { .. } => Self::new(
                StatusCode::GATEWAY_TIMEOUT,
                "upstream_timeout",
                format!("{what}; {again}"),
            ),
            Error::Status { code: 401, .. } if caller.is_personal() => {
                let message = "LangGraph does not accept these credentials; send others";
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
                 `upstream.api_key` to a key that it accepts",
            ),
            Error::Status { code: 429, retry_after, .. } => {
                let message = format!(
                    "{what}: it has had as many requests as it takes; wait, then send the request \
                     again"
                );
                let reject = Self::too_many("upstream_rate_limited", message);
                Self { wait: *retry_after, ..reject }
            }
            Error::Status { .. } if error.is_redirect() => bad_gateway(
                "upstream_refused",
                "the gateway follows none, so have its operator set `upstream.url` to the server's \
                 own URL",
            ),
            Error::Status { code: 502..=504, .. } => bad_gateway(
                "upstream_refused",
                "a proxy in front of it may not reach it; check that it runs, then look into its \
                 log and the proxy's",
            ),
            Error::Status { .. } => {
                bad_gateway("upstream_refused", "the server's log may tell more")
            }
            Error::NotUnderstood { .. } if error.is_compressed() => bad_gateway(
                "not_langgraph",
                "have the proxy in front of it send answers without compression",
            ),
            Error::NotAnEventStream { .. } | Error::NotUnderstood { .. } => {
                Self::not_langgraph(what)
            }
            Error::NoRoom(full) => (*full).into(),
            Error::TooLarge { .. } => {
                bad_gateway("upstream_too_large", "have the graph keep less in its state")
            }
            Error::Interrupted { .. } => bad_gateway("upstream_interrupted", again),
        }
    }

    /// The server that answers is no LangGraph server.
    fn not_langgraph(what: impl Display) -> Self {
        let message =
            format!("{what}; check that the upstream's URL is that of a LangGraph API server");
        Self::new(StatusCode::BAD_GATEWAY, "not_langgraph", message)
    }
}

// === impl FaultToLog ===

impl FaultToLog {
    fn of(error: &Error) -> Self {
        Self { reason: error.to_string().into(), is_news: !error.was_not_sent() }
    }
}

/// As much of an upstream error as a client may see.
fn told(error: &Error, detail: ErrorDetail) -> String {
    match detail {
        ErrorDetail::Full => error.explained(),
        ErrorDetail::Message | ErrorDetail::Code | ErrorDetail::None => error.to_string(),
    }
}

impl From<Exceeded> for Reject {
    fn from(exceeded: Exceeded) -> Self {
        match exceeded {
            Exceeded::Requests { wait } => {
                let message =
                    "you have sent more requests than you may; wait, then send the request again";
                Self::too_many("too_many_requests", message).after(wait)
            }
            Exceeded::Streams { limit } => Self::too_many(
                "too_many_streams",
                format!(
                    "you may have {limit} streams at once, and have them; end one, then try again"
                ),
            ),
        }
    }
}

/// The response to a client for whose bytes there is no room.
impl From<Full> for Reject {
    fn from(full: Full) -> Self {
        let message = match full {
            Full::Share => {
                "the gateway holds as much of yours as it may, such as bodies that are not sent to \
                 the end and answers that are not read; read them, then send the request again"
            }
            Full::Budget => {
                "the gateway holds as much for its clients as it may; send the request again later, \
                 or have its operator raise `limits.memory_bytes`"
            }
        };
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "memory_full", message)
    }
}

impl IntoResponse for Reject {
    fn into_response(self) -> Response {
        let body = self.body();
        // The message may contain private data, so the logs do not get it.
        let refused = self.refused();
        let Self { status, code, message: _, wait, fault: _ } = self;
        let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
        let mut response = (status, headers, body).into_response();
        response.extensions_mut().insert(refused);
        let headers = response.headers_mut();
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            // Whole seconds, rounded up.
            let wait = wait.map_or(RETRY_AFTER_SECONDS, |wait| {
                wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
            });
            headers.insert(RETRY_AFTER, HeaderValue::from(wait.max(1)));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if status == StatusCode::UNAUTHORIZED {
            // RFC 6750: no error code for a request without credentials.
            let challenge = match code {
                "unauthenticated" => "Bearer",
                _ => "Bearer error=\"invalid_token\"",
            };
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        response
    }
}
