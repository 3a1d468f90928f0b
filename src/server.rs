//! The HTTP server for AG-UI clients, and for editors elsewhere.
//!
//! A request passes `connections`, a transport (`routes`, `websocket` or `acp`) and `service`. The
//! rooms from the ground up, each of which imports only rooms before it:
//!
//! - `peer`: where a request comes from. `upgrade`: what its connection becomes.
//! - `limits`: limits on requests, connections and callers.
//! - `reject`: refusals.
//! - `request`: reading a request: its parameters, its headers.
//! - `browser`: origins and host names, for requests that come from web pages.
//! - `observe`: metrics, traces, the log of refusals and the audit log.
//! - `streams`: a run's events as bytes.
//! - [`auth`]: the checks before each request, keys, tokens, and how callers are identified.
//! - `gateway`: what all requests share, and what a handler knows of its request.
//! - `connections`: TCP connections, HTTP/1.1, shutdown.
//! - `service`: what clients can ask of an agent or a thread, for all transports.
//! - `response`: the responses of HTTP.
//! - `websocket`: many runs on one connection.
//! - `acp`: ACP for clients elsewhere.
//! - `routes`: a table of the routes, with a file for each, and the layers in front of them.

mod acp;
pub mod auth;
mod browser;
mod connections;
mod gateway;
mod limits;
mod observe;
mod peer;
mod reject;
mod request;
mod response;
mod routes;
mod service;
mod streams;
mod upgrade;
mod websocket;

use std::mem::discriminant;
use std::sync::{Arc, OnceLock};

use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use acp::{Acp, IDLE as ACP_IDLE, UNREAD as ACP_UNREAD};
pub use auth::isolation;
pub use auth::{
    Auth, DEFAULT_SKEW, Jwt, JwtError, JwtSettings, Keys, KeysError, KeysFrom, MAX_SKEW,
    NotAKeySet, ThreadRoutes, Trust, UpstreamAuth,
};
pub use browser::cors::{Cors, CorsError, Credentials, Origin};
pub use browser::host::{HostName, NotAHostName, under_safe_names};
pub use browser::refused::{MAX_LOGGED_ORIGINS, ORIGIN_LOG_PAUSE};
pub use connections::{GRACE, IDLE_TIMEOUT, WRITE_TIMEOUT, serve};
pub(crate) use limits::BODIES_IN_MEMORY;
pub use limits::rates::{Rates, RequestRate};
pub use limits::{Limits, MIN_HEADER_BYTES};
pub use observe::Observer;
pub use observe::request_log::REFUSALS_PER_SECOND;
pub use request::forward::{Forward, NotForwarded};
pub use routes::compress::{Coding, Compression, Compressor};
pub use routes::health::PROBE_AGE;
pub use routes::page::Page;
pub use service::body::BODY_TIMEOUT;
pub use service::threads::change::MAX_NAME_CHARS;
pub use streams::body::KEEP_ALIVE;
pub use streams::encoder::Encoder;
pub use streams::outgoing::Outgoing;
pub use streams::retry::{LONGEST_RETRY, RECONNECTS_PER_SECOND, RETRY};
pub use streams::wire::Wire;
pub use websocket::{IDLE, PING, PONG_TIMEOUT};

use self::auth::access::Access;
use self::auth::admit::{Admission, CallerState};
use self::auth::isolation::{Blocked, IsolationProof};
use self::connections::Endpoint;
use self::gateway::{Gateway, Newest};
use self::limits::log_limiter::LogLimiter;
use self::observe::request_log::RequestLog;
use self::routes::health::Readiness;
use self::routes::{RoutesState, admin};
use self::streams::unread::Unread;
use crate::agents::Agents;
use crate::audit::Audit;
use crate::metrics::Metrics;
use crate::runs::{Recorder, Runs};
use crate::threads::Threads;
use threadway_translate::agui::{Allowance, OnMessage};
use threadway_translate::run::ErrorDetail;

/// How the gateway serves clients.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Limits on requests and connections.
    pub limits: Limits,
    /// Which headers of a request are forwarded to LangGraph.
    pub forward: Forward,
    /// How much of an upstream's error clients see.
    pub error_detail: ErrorDetail,
    /// What happens to a message while its thread asks a question.
    pub on_message: OnMessage,
    /// Who may call.
    pub auth: Auth,
    /// Which web pages of other origins may call.
    pub cors: Cors,
    /// Further names of the gateway. Without `auth` it answers only to these, and to names that no
    /// web site can own.
    pub hosts: Vec<HostName>,
    /// Limits of one caller.
    pub rates: Rates,
    /// What clients may set of a run's configuration.
    pub allowance: Allowance,
    /// Whether streams are compressed.
    pub compression: Compression,
    /// Whether the page is served at `/`.
    pub page: Page,
    /// Which callers may list, change and inspect threads.
    pub thread_routes: ThreadRoutes,
    /// How ACP clients are served.
    pub acp: Acp,
}

/// The server: the threads that it reads, and what its two listeners serve.
#[derive(Debug)]
pub struct Server {
    state: LongLived,
    clients: watch::Sender<Endpoint>,
    admin: watch::Sender<Endpoint>,
}

/// How many whole threads are made into one answer at the same time. It takes about five times the
/// memory of the answer.
const CONVERSIONS: usize = 2;

/// State that a reload keeps.
#[derive(Debug)]
struct LongLived {
    threads: Threads,
    /// The tasks of ACP connections, and the work of their sessions that no request waits for.
    tasks: TaskTracker,
    acp_connections: acp::Registry,
    callers: CallerState,
    readiness: Readiness,
    observer: Observer,
    unread: Unread,
    request_log: RequestLog,
    shutdown: CancellationToken,
    /// What sockets use that were opened before a reload.
    newest: OnceLock<watch::Sender<Arc<Gateway>>>,
    newest_acp: OnceLock<watch::Sender<Arc<acp::Front>>>,
}

/// Replaces the newest value for all sockets.
fn renewed<T>(newest: &OnceLock<watch::Sender<Arc<T>>>, value: &Arc<T>) -> Newest<T> {
    let sender = newest.get_or_init(|| watch::Sender::new(Arc::clone(value)));
    sender.send_replace(Arc::clone(value));
    sender.subscribe()
}

// === impl Server ===

impl Server {
    /// A server for these agents. Cancelling `shutdown` stops it.
    pub fn new(
        agents: Agents,
        settings: Settings,
        observer: Observer,
        shutdown: CancellationToken,
    ) -> Self {
        let Limits { log_bytes, owners, state_reads_per_second, .. } = settings.limits;
        let runs = Runs::new(log_bytes, owners, observer.metrics.clone(), shutdown.clone());
        let callers = CallerState::new();
        let readiness = Readiness::new(agents.clone(), shutdown.clone());
        let threads = Threads::new(runs, state_reads_per_second);
        let request_log = RequestLog::default();
        let tasks = TaskTracker::new();
        let acp_connections = acp::Registry::default();
        let unread = Unread::new(observer.metrics.memory().clone());
        let state = LongLived {
            threads,
            tasks,
            acp_connections,
            callers,
            readiness,
            observer,
            unread,
            request_log,
            shutdown,
            newest: OnceLock::new(),
            newest_acp: OnceLock::new(),
        };
        let (clients, admin) = state.endpoints(agents, settings, CancellationToken::new());
        Self { state, clients: watch::Sender::new(clients), admin: watch::Sender::new(admin) }
    }

    /// The metrics that the server counts in.
    pub fn metrics(&self) -> &Metrics {
        &self.state.observer.metrics
    }

    /// Records each run whose reading begins after this call.
    pub fn record(&self, recorder: Recorder) {
        self.state.threads.runs().record(recorder);
    }

    /// Writes to this audit log from now on. Later calls have no effect.
    pub fn audit(&self, audit: Audit) {
        self.state.request_log.audit.get_or_init(|| audit);
    }

    /// Reopens the file of the audit log, if there is one.
    pub fn reopen_audit(&self) {
        if let Some(audit) = self.state.request_log.audit.get() {
            audit.reopen();
        }
    }

    /// Serves the next requests with other agents and settings. The stream of a run goes on as it
    /// began. Streams that follow a thread end if the new settings do not admit their caller.
    /// `limits.log_bytes`, `limits.state_reads_per_second` and `limits.owners` keep their first
    /// values.
    pub fn reload(&self, agents: Agents, settings: Settings) {
        let (auth, old, replaced) = {
            let clients = self.clients.borrow();
            let is_same_mode = discriminant(&settings.auth) == discriminant(&clients.auth);
            let old = (!is_same_mode).then(|| clients.replaced.clone());
            let replaced =
                if is_same_mode { clients.replaced.clone() } else { CancellationToken::new() };
            (settings.auth.succeeding(&clients.auth), old, replaced)
        };
        let settings = Settings { auth, ..settings };
        let (clients, admin) = self.state.endpoints(agents, settings, replaced);
        self.clients.send_replace(clients);
        self.admin.send_replace(admin);
        if let Some(old) = old {
            old.cancel();
        }
    }

    /// Serves clients until the shutdown, then waits for open connections and runs to end.
    pub async fn serve(&self, listener: TcpListener) {
        let (endpoint, shutdown) = (self.clients.subscribe(), self.state.shutdown.clone());
        connections::serve_endpoint(listener, endpoint, self.metrics(), shutdown).await;
        self.state.tasks.close();
        let runs = self.state.threads.runs();
        tokio::join!(self.state.tasks.wait(), runs.drained());
    }

    /// Serves the operator's tools, with metrics and health, until `stop` is cancelled. Cancel it
    /// after all else has ended, so that the last values of the metrics can be read.
    pub async fn serve_admin(&self, listener: TcpListener, stop: CancellationToken) {
        // These connections are not those of clients, and are not counted.
        let uncounted = Metrics::default();
        connections::serve_endpoint(listener, self.admin.subscribe(), &uncounted, stop).await;
    }
}

// === impl LongLived ===

impl LongLived {
    /// What the listener for clients and the admin listener serve.
    fn endpoints(
        &self,
        agents: Agents,
        settings: Settings,
        replaced: CancellationToken,
    ) -> (Endpoint, Endpoint) {
        let Settings {
            limits,
            forward,
            error_detail,
            on_message,
            auth,
            cors,
            hosts,
            rates,
            allowance,
            compression,
            page,
            thread_routes,
            acp,
        } = settings;
        self.threads.runs().set_error_detail(error_detail);
        self.observer.metrics.memory().set_limit(limits.memory_bytes);
        agents.stop_waiting_at(&self.shutdown);
        let readiness = self.readiness.of(agents.clone());
        let admin = admin::endpoint(&readiness, &self.observer.metrics, &limits, hosts.clone());
        let state = self.callers.clone();
        let blocked = match &auth {
            Auth::Upstream(UpstreamAuth { trust: Trust::Proven, .. }) => Blocked::Requests,
            Auth::None | Auth::Bearer(_) | Auth::Jwt(_) | Auth::Upstream(_) => {
                Blocked::ThreadRoutes
            }
        };
        let proof = {
            let (auth, forward, tasks) = (auth.clone(), forward.clone(), self.tasks.clone());
            IsolationProof::new(&agents, auth, forward, blocked, tasks)
        };
        let retained = acp::RetainedByReload {
            registry: self.acp_connections.clone(),
            tasks: self.tasks.clone(),
            shutdown: self.shutdown.clone(),
        };
        let thread_access = Access::new(thread_routes, &agents, &auth, proof.clone());
        let gateway = Arc::new(Gateway {
            thread_access,
            agents,
            threads: self.threads.clone(),
            limits: limits.clone(),
            error_detail,
            on_message,
            observer: self.observer.clone(),
            allowance,
            log: self.request_log.clone(),
            unread: self.unread.clone(),
            conversions: Semaphore::new(CONVERSIONS),
            disallowed_log: LogLimiter::default(),
            admission: Admission {
                auth: auth.clone(),
                cors,
                hosts,
                rates,
                state,
                proof,
                forward,
                memory: self.observer.metrics.memory().clone(),
                replaced: replaced.clone(),
            },
        });
        let refusals = self.request_log.refusals.clone();
        let full = routes::full(&gateway);
        let front = Arc::new(acp::Front::new(Arc::clone(&gateway), acp, retained));
        let state = RoutesState {
            newest: renewed(&self.newest, &gateway),
            newest_acp: renewed(&self.newest_acp, &front),
            gateway,
            acp: front,
            readiness,
            page,
        };
        let routes = routes::routes(state, compression);
        (Endpoint { routes, full, limits, auth, replaced, refusals }, admin)
    }
}
