//! What is known of a request, for the operator's log and the audit log. It is collected while the
//! request is handled, and written with the response.
//!
//! Whoever handles a request adds to its [`RequestRecord`] what it learns. So a refusal is logged with its
//! thread, although its response does not contain it.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use http::{Method, StatusCode};
use tokio::time::Instant;

use super::RunIds;
use crate::audit::{self, Audit, AuditOutcome};
use crate::metrics::Route;
use crate::server::reject::{FaultToLog, Refused};
use crate::server::request::query::param;
use crate::server::upgrade::is_upgrade;
use crate::sync::Mutex;

/// How many refused requests a second are logged with a line of their own.
pub const REFUSALS_PER_SECOND: u32 = 10;

/// The period of [`REFUSALS_PER_SECOND`].
const WINDOW: Duration = Duration::from_secs(1);

/// An action that is audited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum AuditedAction {
    /// Starts a run.
    Run,
    /// Starts a run that answers the question of its thread.
    Resume,
    /// Reads a thread, or a run of it.
    Connect,
    /// Reads a thread, and every later run.
    Follow,
    /// Stops a run.
    Stop,
    /// Opens a WebSocket.
    Socket,
    ChangeThread,
    CopyThread,
    DeleteThread,
    /// A request on the single route, or a message of ACP, that was refused before it was read.
    Call,
}

/// What is known of a request.
#[derive(Debug, Default)]
pub(in crate::server) struct RequestFacts {
    /// `None` for a request that is not audited.
    pub(in crate::server) action: Option<AuditedAction>,
    /// The caller, as the gateway's authentication names it.
    pub(in crate::server) caller: Option<Arc<str>>,
    /// The subject of the caller's token. It is written to the audit log only.
    pub(in crate::server) subject: Option<Arc<str>>,
    /// The client's name for the agent.
    pub(in crate::server) agent: Option<String>,
    /// The client's name for the thread.
    pub(in crate::server) thread: Option<String>,
    /// LangGraph's id of the thread.
    pub(in crate::server) thread_id: Option<String>,
    /// The URL of the agent's upstream.
    pub(in crate::server) upstream: Option<String>,
}

/// What is known of a request, while it is handled. Clones share it.
#[derive(Clone, Debug)]
pub(in crate::server) struct RequestRecord(Arc<Mutex<RequestFacts>>);

/// The logs that requests are written to. Clones share them.
#[derive(Clone, Debug, Default)]
pub(in crate::server) struct RequestLog {
    pub(in crate::server) audit: Arc<OnceLock<Audit>>,
    pub(in crate::server) refusals: RefusalLog,
}

/// A request that is being handled.
pub(in crate::server) struct RequestEntry {
    log: RequestLog,
    pub(super) record: RequestRecord,
    peer: Option<IpAddr>,
    is_answered: bool,
}

/// How a request ended, for the audit log.
struct RequestEnd<'a> {
    outcome: AuditOutcome,
    status: Option<u16>,
    code: Option<&'a str>,
    ids: Option<&'a RunIds>,
}

/// Logs refused requests, at most [`REFUSALS_PER_SECOND`]. The others are counted, and their number
/// is logged before the next response in a later second.
#[derive(Clone, Debug, Default)]
pub(in crate::server) struct RefusalLog(Arc<Mutex<Window>>);

/// A refused request.
pub(in crate::server) struct RefusedRequest<'a> {
    pub(in crate::server) status: StatusCode,
    pub(in crate::server) code: &'a str,
    /// `None` where a request was refused before it reached a route.
    pub(in crate::server) route: Option<Route>,
    pub(in crate::server) facts: &'a RequestFacts,
    pub(in crate::server) peer: Option<IpAddr>,
    /// The fault of an upstream that is the cause.
    pub(in crate::server) fault: Option<&'a FaultToLog>,
}

#[derive(Debug, Default)]
struct Window {
    began_at: Option<Instant>,
    logged: u32,
    left_out: u64,
}

// === impl AuditedAction ===

impl AuditedAction {
    /// The action of a request for a route.
    fn of(path: &str, head: &Parts) -> Option<Self> {
        // A preflight does nothing.
        if head.method == Method::OPTIONS {
            return None;
        }
        let is_post = head.method == Method::POST;
        match path {
            "/agui/agent/{agent}/run" if is_post => Some(Self::Run),
            "/agui/agent/{agent}/run" | "/agui/agent/{agent}/run/ws" => {
                let is_socket = is_upgrade(&head.headers);
                Some(if is_socket { Self::Socket } else { Self::Connect })
            }
            "/agui/agent/{agent}/connect" => Some(Self::Connect),
            "/agui/agent/{agent}/threads/{thread}/events" => {
                let query = head.uri.query().unwrap_or_default();
                let follows = param(query, "follow").is_some();
                Some(if follows { Self::Follow } else { Self::Connect })
            }
            // Marks are no content, as a list of threads is none.
            "/agui/events" => {
                param(head.uri.query().unwrap_or_default(), "events").map(|_| Self::Follow)
            }
            "/agui/agent/{agent}/stop/{thread}" => Some(Self::Stop),
            "/acp" if is_upgrade(&head.headers) => Some(Self::Socket),
            "/acp" if is_post => Some(Self::Call),
            "/agui" | "/agui/" => Some(Self::Call),
            _ if path.starts_with("/agui/threads") => {
                Self::on_threads(&head.method, path.ends_with("/{part}"))
            }
            _ => None,
        }
    }

    /// The action of a request for a route of threads. `is_part` if the path names a part of a
    /// thread.
    pub(in crate::server) fn on_threads(method: &Method, is_part: bool) -> Option<Self> {
        match *method {
            Method::DELETE => Some(Self::DeleteThread),
            Method::PATCH | Method::POST => Some(Self::ChangeThread),
            _ => is_part.then_some(Self::Connect),
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Resume => "resume",
            Self::Connect => "connect",
            Self::Follow => "follow",
            Self::Stop => "stop",
            Self::Socket => "socket",
            Self::ChangeThread => "change_thread",
            Self::CopyThread => "copy_thread",
            Self::DeleteThread => "delete_thread",
            Self::Call => "call",
        }
    }
}

// === impl RequestFacts ===

impl RequestFacts {
    /// What the head of a request says. `path` is the route's, if there is one.
    pub(super) async fn of(path: Option<&str>, head: &mut Parts) -> Self {
        let mut facts = Self::default();
        let Some(path) = path else { return facts };
        facts.action = AuditedAction::of(path, head);
        // Fails if the path has no parameters, or if one is not UTF-8.
        if let Ok(params) = RawPathParams::from_request_parts(head, &()).await {
            for (name, value) in &params {
                match name {
                    "agent" => facts.agent = Some(value.to_owned()),
                    "thread" => facts.thread = Some(value.to_owned()),
                    _ => {}
                }
            }
        }
        facts
    }
}

// === impl RequestRecord ===

impl RequestRecord {
    /// Adds to what is known.
    pub(in crate::server) fn note(&self, add: impl FnOnce(&mut RequestFacts)) {
        add(&mut self.0.lock());
    }

    fn take(&self) -> RequestFacts {
        std::mem::take(&mut *self.0.lock())
    }
}

// === impl RequestLog ===

impl RequestLog {
    /// Begins to handle a request.
    pub(super) fn begin(&self, facts: RequestFacts, peer: Option<IpAddr>) -> RequestEntry {
        let record = RequestRecord(Arc::new(Mutex::new(facts)));
        RequestEntry { log: self.clone(), record, peer, is_answered: false }
    }
}

// === impl RequestEntry ===

impl RequestEntry {
    /// Writes the request to the logs, once its response is known.
    pub(super) fn answered(
        mut self,
        route: Route,
        status: StatusCode,
        refused: Option<&Refused>,
        ids: Option<&RunIds>,
    ) {
        self.is_answered = true;
        let code = refused.map(|refused| refused.code);
        let facts = self.record.take();
        match code {
            Some(code) => self.log.refusals.log(&RefusedRequest {
                status,
                code,
                route: Some(route),
                facts: &facts,
                peer: self.peer,
                fault: refused.and_then(|refused| refused.fault.as_ref()),
            }),
            None => self.log.refusals.catch_up(),
        }
        // A method that a route does not have is neither an action nor a denial of one.
        if !matches!(code, Some("wrong_method")) {
            let status = status.as_u16();
            let outcome = AuditOutcome::of(status);
            self.audit(&facts, &RequestEnd { outcome, status: Some(status), code, ids });
        }
    }

    fn audit(&self, facts: &RequestFacts, ending: &RequestEnd<'_>) {
        let (Some(audit), Some(action)) = (self.log.audit.get(), facts.action) else { return };
        let RequestEnd { outcome, status, code, ids } = *ending;
        let thread_id = facts.thread_id.as_deref().or_else(|| ids.map(|ids| &*ids.thread_id));
        audit.write(&audit::Entry {
            action: action.word(),
            outcome,
            status,
            code,
            caller: facts.subject.as_deref().or(facts.caller.as_deref()),
            peer: self.peer,
            agent: facts.agent.as_deref(),
            thread: facts.thread.as_deref(),
            thread_id,
            run_id: ids.and_then(|ids| ids.run_id.as_deref()),
        });
    }
}

impl Drop for RequestEntry {
    /// A client that disconnects before the response may have started a run all the same.
    fn drop(&mut self) {
        if !self.is_answered {
            let facts = self.record.take();
            let outcome = AuditOutcome::Left;
            self.audit(&facts, &RequestEnd { outcome, status: None, code: None, ids: None });
        }
    }
}

// === impl RefusalLog ===

impl RefusalLog {
    /// Logs a refusal, unless too many were logged in this second.
    pub(in crate::server) fn log(&self, refused: &RefusedRequest<'_>) {
        if !self.is_due() {
            return;
        }
        let RefusedRequest { status, code, route, facts, peer, fault } = *refused;
        let agent = facts.agent.as_deref().map(|agent| {
            agent.get(..agent.floor_char_boundary(audit::MAX_NAME_BYTES)).unwrap_or_default()
        });
        let (status, route) = (status.as_u16(), route.map(Route::as_str));
        let caller = facts.caller.as_deref();
        let peer = peer.map(|peer| tracing::field::display(peer.to_canonical()));
        let upstream = facts.upstream.as_deref().filter(|_| fault.is_some());
        let reason = fault.map(|fault| &*fault.reason);
        if fault.is_some_and(|fault| fault.is_news) {
            tracing::warn!(
                status,
                code,
                reason,
                upstream,
                route,
                agent,
                caller,
                peer,
                "request refused"
            );
        } else {
            tracing::info!(
                status,
                code,
                reason,
                upstream,
                route,
                agent,
                caller,
                peer,
                "request refused"
            );
        }
    }

    /// Whether a line may be logged now. Before that, logs how many were left out, if that is due.
    fn is_due(&self) -> bool {
        self.catch_up();
        let mut window = self.0.lock();
        if window.logged < REFUSALS_PER_SECOND {
            window.began_at.get_or_insert_with(Instant::now);
            window.logged += 1;
            return true;
        }
        window.left_out += 1;
        false
    }

    /// Logs how many refusals of an earlier second were left out.
    fn catch_up(&self) {
        let left_out = {
            let mut window = self.0.lock();
            let is_over = window.began_at.is_some_and(|began_at| began_at.elapsed() >= WINDOW);
            if !is_over {
                return;
            }
            std::mem::take(&mut *window).left_out
        };
        if left_out > 0 {
            tracing::info!(
                left_out,
                "more requests were refused in a second than are logged one by one"
            );
        }
    }
}
