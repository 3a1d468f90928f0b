//! What a request is about, as the operator's log and the audit log name it: it is collected while the
//! request is handled, and written when it is answered.
//!
//! The handlers of a request run in one task, and note what they learn with [`note`]. So a refusal
//! is logged with the thread that it is about, although its response has nothing of it.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use http::{Method, StatusCode};
use tokio::time::Instant;

use super::connections::Peer;
use super::observe::About;
use super::reject::Refused;
use super::websocket;
use crate::audit::{self, Audit, Outcome};
use crate::metrics::Route;
use crate::sync::Mutex;

/// How many refused requests a second have a line of their own.
pub const REFUSALS_PER_SECOND: u32 = 10;

/// How long a window of refusals is.
const WINDOW: Duration = Duration::from_secs(1);

tokio::task_local! {
    static DEED: Arc<Mutex<Deed>>;
}

/// What a request asks for, as far as it is audited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A run is started.
    Run,
    /// A run is started that answers what its thread asks.
    Resume,
    /// A thread, or a run of it, is read.
    Connect,
    /// A thread is read, and all that comes.
    Follow,
    /// A run is stopped.
    Stop,
    /// A socket for runs is opened.
    Socket,
    /// A thread is changed.
    ChangeThread,
    /// A thread is deleted.
    DeleteThread,
    /// Something on the single route that was refused before it was read.
    Call,
}

/// What is known of a request.
#[derive(Debug, Default)]
pub(super) struct Deed {
    /// `None` if it is not audited.
    pub(super) action: Option<Action>,
    /// Who asks, as the gateway's authentication names it.
    pub(super) caller: Option<Arc<str>>,
    /// The subject of its token, which only the audit log has.
    pub(super) subject: Option<Arc<str>>,
    /// The agent, by the client's name for it.
    pub(super) agent: Option<String>,
    /// The thread, by the client's name for it.
    pub(super) thread: Option<String>,
    /// LangGraph's id of the thread.
    pub(super) thread_id: Option<String>,
}

/// Where deeds are written. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Witness {
    pub(super) audit: Arc<OnceLock<Audit>>,
    pub(super) refusals: RefusalLog,
}

/// A request that is being handled.
pub(super) struct Doing {
    witness: Witness,
    deed: Arc<Mutex<Deed>>,
    peer: Option<IpAddr>,
    is_answered: bool,
}

/// Refused requests in the log: at most [`REFUSALS_PER_SECOND`]. Those beyond are counted, and the
/// next request that is answered in a later second logs how many they were.
#[derive(Clone, Debug, Default)]
pub(super) struct RefusalLog(Arc<Mutex<Window>>);

#[derive(Debug, Default)]
struct Window {
    began_at: Option<Instant>,
    logged: u32,
    left_out: u64,
}

/// Adds to what is known of the request that this task handles. Does nothing elsewhere.
pub(super) fn note(what: impl FnOnce(&mut Deed)) {
    // There is none outside of a request, as in a test of a part.
    let _ = DEED.try_with(|deed| what(&mut deed.lock()));
}

// === impl Action ===

impl Action {
    /// What a request for a route asks for.
    fn of(path: &str, head: &Parts) -> Option<Self> {
        // A preflight does nothing.
        if head.method == Method::OPTIONS {
            return None;
        }
        let is_post = head.method == Method::POST;
        match path {
            "/agui/agent/{agent}/run" if is_post => Some(Self::Run),
            "/agui/agent/{agent}/run" | "/agui/agent/{agent}/run/ws" => {
                let is_socket = websocket::is_upgrade(&head.headers);
                Some(if is_socket { Self::Socket } else { Self::Connect })
            }
            "/agui/agent/{agent}/connect" => Some(Self::Connect),
            "/agui/agent/{agent}/threads/{thread}/events" => {
                let query = head.uri.query().unwrap_or_default();
                let mut pairs = form_urlencoded::parse(query.as_bytes());
                let follows = pairs.any(|(key, _)| key == "follow");
                Some(if follows { Self::Follow } else { Self::Connect })
            }
            "/agui/agent/{agent}/stop/{thread}" => Some(Self::Stop),
            "/agui" | "/agui/" => Some(Self::Call),
            _ if path.starts_with("/agui/threads") => {
                Self::on_threads(&head.method, path.ends_with("/{part}"))
            }
            _ => None,
        }
    }

    /// What a request to the routes of threads asks for; `is_part` if it names a part of one.
    pub(super) fn on_threads(method: &Method, is_part: bool) -> Option<Self> {
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
            Self::DeleteThread => "delete_thread",
            Self::Call => "call",
        }
    }
}

// === impl Witness ===

impl Witness {
    /// Begins to handle a request for a route.
    pub(super) async fn begin(&self, path: Option<&str>, head: &mut Parts) -> Doing {
        let mut deed = Deed::default();
        if let Some(path) = path {
            deed.action = Action::of(path, head);
            // Without parameters, or with such as are no text, there is nothing to note.
            if let Ok(params) = RawPathParams::from_request_parts(head, &()).await {
                for (name, value) in &params {
                    match name {
                        "agent" => deed.agent = Some(value.to_owned()),
                        "thread" => deed.thread = Some(value.to_owned()),
                        _ => {}
                    }
                }
            }
        }
        let peer = head.extensions.get::<Peer>().map(|Peer(peer)| peer.ip());
        let deed = Arc::new(Mutex::new(deed));
        Doing { witness: self.clone(), deed, peer, is_answered: false }
    }
}

// === impl Doing ===

impl Doing {
    /// Handles the request.
    pub(super) async fn handled<T>(&self, handling: impl Future<Output = T>) -> T {
        DEED.scope(Arc::clone(&self.deed), Box::pin(handling)).await
    }

    /// The request is answered so.
    pub(super) fn answered(
        mut self,
        route: Route,
        status: StatusCode,
        refused: Option<Refused>,
        about: Option<&About>,
    ) {
        self.is_answered = true;
        let code = refused.map(|Refused(code)| code);
        let deed = std::mem::take(&mut *self.deed.lock());
        match code {
            Some(code) => {
                self.witness.refusals.log(status, code, Some(route), &deed, self.peer);
            }
            None => self.witness.refusals.catch_up(),
        }
        // A route that is not there was not done, and nobody was kept from it.
        if !matches!(code, Some("wrong_method")) {
            let status = status.as_u16();
            self.audit(&deed, Outcome::of(status), Some(status), code, about);
        }
    }

    fn audit(
        &self,
        deed: &Deed,
        outcome: Outcome,
        status: Option<u16>,
        code: Option<&str>,
        about: Option<&About>,
    ) {
        let (Some(audit), Some(action)) = (self.witness.audit.get(), deed.action) else { return };
        let thread_id = deed.thread_id.as_deref().or_else(|| about.map(|about| &*about.thread_id));
        audit.write(&audit::Entry {
            action: action.word(),
            outcome,
            status,
            code,
            caller: deed.subject.as_deref().or(deed.caller.as_deref()),
            peer: self.peer,
            agent: deed.agent.as_deref(),
            thread: deed.thread.as_deref(),
            thread_id,
            run_id: about.and_then(|about| about.run_id.as_deref()),
        });
    }
}

impl Drop for Doing {
    /// A client that leaves before the answer may have started a run all the same.
    fn drop(&mut self) {
        if !self.is_answered {
            let deed = std::mem::take(&mut *self.deed.lock());
            self.audit(&deed, Outcome::Left, None, None, None);
        }
    }
}

// === impl RefusalLog ===

impl RefusalLog {
    /// Logs a refusal, unless there were too many in this second.
    pub(super) fn log(
        &self,
        status: StatusCode,
        code: &str,
        route: Option<Route>,
        deed: &Deed,
        peer: Option<IpAddr>,
    ) {
        if self.is_due() {
            let Deed { caller, agent, .. } = deed;
            let agent = agent.as_deref().map(|agent| {
                agent.get(..agent.floor_char_boundary(audit::MAX_NAME_BYTES)).unwrap_or_default()
            });
            tracing::info!(
                status = status.as_u16(),
                code,
                route = route.map(Route::word),
                agent,
                caller = caller.as_deref(),
                peer = peer.map(|peer| tracing::field::display(peer.to_canonical())),
                "request refused"
            );
        }
    }

    /// Whether a line may be logged now. Logs before it how many were left out, if that is due.
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
    pub(super) fn catch_up(&self) {
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
