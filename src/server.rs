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
//! - `response`: the responses of HTTP.
//! - `gateway`: what all requests share, and what a handler knows of its request.
//! - `connections`: TCP connections, HTTP/1.1, shutdown.
//! - `body`: a request's body, read at the expense of its caller.
//! - `service`: what clients can ask of an agent or a thread, for all transports.
//! - `websocket`: many runs on one connection.
//! - `acp`: ACP for clients elsewhere.
//! - `routes`: a table of the routes, with a file for each, and the layers in front of them.

mod acp;
pub mod auth;
mod body;
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
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use acp::{Acp, IDLE as ACP_IDLE, UNREAD as ACP_UNREAD};
pub use auth::isolation;
pub use auth::{
    Auth, Jwt, JwtError, JwtSettings, Keys, KeysError, KeysFrom, NotAKeySet, ThreadRoutePolicy,
    Trust, UpstreamAuth,
};
pub(crate) use auth::{DEFAULT_SKEW, MAX_SKEW};
pub use body::BODY_TIMEOUT;
pub use browser::cors::{Cors, CorsError, Credentials, Origin};
pub use browser::host::{HostName, NotAHostName, under_safe_names};
pub use browser::refused::{MAX_LOGGED_ORIGINS, ORIGIN_LOG_PAUSE};
pub use connections::workers::Workers;
pub use connections::{GRACE, IDLE_TIMEOUT, WRITE_TIMEOUT, serve};
pub use limits::Limits;
pub use limits::rates::{Rates, RequestRate};
pub(crate) use limits::{BODIES_IN_MEMORY, MIN_HEADER_BYTES};
pub use observe::Observer;
pub use observe::request_log::REFUSALS_PER_SECOND;
pub use request::forward::{ForwardedHeaders, NotForwarded};
pub use routes::compress::{Coding, Compression, Compressor};
pub use routes::health::PROBE_AGE;
pub use routes::page::Page;
pub use service::threads::change::MAX_NAME_CHARS;
pub use streams::encoder::Encoder;
pub use streams::outgoing::Outgoing;
pub use streams::retry::RETRY;
pub use streams::silence::KEEP_ALIVE;
pub use streams::wire::Wire;
pub use websocket::{IDLE, PING, PONG_TIMEOUT};

use self::auth::access::ThreadRouteAccess;
use self::auth::admit::{Admission, CallerState};
use self::auth::isolation::{Blocked, IsolationProof};
use self::connections::Endpoint;
use self::gateway::{Gateway, ReloadReceiver};
use self::limits::log_limiter::LogLimiter;
use self::observe::request_log::RequestLog;
use self::routes::health::Readiness;
use self::routes::{RoutesState, admin};
use self::streams::unread::UnreadParts;
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
    pub forward: ForwardedHeaders,
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
    pub thread_routes: ThreadRoutePolicy,
    /// How ACP clients are served.
    pub acp: Acp,
}

/// The server: the threads that it reads, and what its two listeners serve.
#[derive(Debug)]
pub struct Server {
    state: LongLived,
    newest: Published,
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
    unread: UnreadParts,
    request_log: RequestLog,
    shutdown: CancellationToken,
}

/// What a reload replaces: what the two listeners serve, and what sockets use that were opened
/// before.
#[derive(Debug)]
struct Published {
    clients: watch::Sender<Endpoint>,
    admin: watch::Sender<Endpoint>,
    gateway: watch::Sender<Arc<Gateway>>,
    acp: watch::Sender<Arc<acp::Front>>,
}

/// What agents and settings are served as.
struct Generation {
    gateway: Arc<Gateway>,
    acp: Arc<acp::Front>,
    admin: Endpoint,
    readiness: Readiness,
    page: Page,
    compression: Compression,
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
        let state = LongLived {
            threads: Threads::new(runs, state_reads_per_second),
            tasks: TaskTracker::new(),
            acp_connections: acp::Registry::default(),
            callers: CallerState::new(),
            readiness: Readiness::new(agents.clone(), shutdown.clone()),
            unread: UnreadParts::new(observer.metrics.memory().clone()),
            observer,
            request_log: RequestLog::default(),
            shutdown,
        };
        let newest = Published::new(state.generation(agents, settings, CancellationToken::new()));
        Self { state, newest }
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
    pub(crate) fn reopen_audit(&self) {
        if let Some(audit) = self.state.request_log.audit.get() {
            audit.reopen();
        }
    }

    /// Serves the next requests with other agents and settings. The stream of a run goes on as it
    /// began. Streams that follow a thread end if the new settings do not admit their caller.
    /// `limits.log_bytes`, `limits.state_reads_per_second` and `limits.owners` keep their first
    /// values.
    pub fn reload(&self, agents: Agents, settings: Settings) {
        let old = self.newest.gateway.borrow().admission.clone();
        let is_same_mode = discriminant(&settings.auth) == discriminant(&old.auth);
        let replaced = if is_same_mode { old.replaced.clone() } else { CancellationToken::new() };
        let settings = Settings { auth: settings.auth.succeeding(&old.auth), ..settings };
        self.newest.replace(self.state.generation(agents, settings, replaced));
        if !is_same_mode {
            old.replaced.cancel();
        }
    }

    /// Serves clients on the current runtime until the shutdown, then waits for open connections and
    /// runs to end.
    pub async fn serve(&self, listener: TcpListener) {
        self.serve_on(&Workers::current(), listener).await;
    }

    /// Serves clients on these workers, like [`serve`](Self::serve).
    pub async fn serve_on(&self, workers: &Workers, listener: TcpListener) {
        let (endpoint, shutdown) = (self.newest.clients.subscribe(), self.state.shutdown.clone());
        connections::serve_endpoint(listener, endpoint, self.metrics(), workers, shutdown).await;
        self.state.tasks.close();
        let runs = self.state.threads.runs();
        tokio::join!(self.state.tasks.wait(), runs.drained());
    }

    /// Serves the operator's tools, with metrics and health, until `stop` is cancelled. Cancel it
    /// after all else has ended, so that the last values of the metrics can be read.
    pub async fn serve_admin(&self, listener: TcpListener, stop: CancellationToken) {
        // These connections are not those of clients, and are not counted.
        let uncounted = Metrics::default();
        let (endpoint, workers) = (self.newest.admin.subscribe(), Workers::current());
        connections::serve_endpoint(listener, endpoint, &uncounted, &workers, stop).await;
    }
}

// === impl Published ===

impl Published {
    fn new(first: Generation) -> Self {
        let gateway = watch::Sender::new(Arc::clone(&first.gateway));
        let acp = watch::Sender::new(Arc::clone(&first.acp));
        let clients = first.clients(gateway.subscribe(), acp.subscribe());
        first.apply();
        Self {
            clients: watch::Sender::new(clients),
            admin: watch::Sender::new(first.admin),
            gateway,
            acp,
        }
    }

    /// Serves another generation, to the listeners and to open sockets alike.
    fn replace(&self, next: Generation) {
        let clients = next.clients(self.gateway.subscribe(), self.acp.subscribe());
        next.apply();
        self.gateway.send_replace(next.gateway);
        self.acp.send_replace(next.acp);
        self.clients.send_replace(clients);
        self.admin.send_replace(next.admin);
    }
}

// === impl Generation ===

impl Generation {
    /// What the listener for clients serves. The routes give the newest of a reload to the sockets
    /// that they open.
    fn clients(
        &self,
        newest: ReloadReceiver<Gateway>,
        newest_acp: ReloadReceiver<acp::Front>,
    ) -> Endpoint {
        let gateway = &self.gateway;
        let state = RoutesState {
            gateway: Arc::clone(gateway),
            newest,
            acp: Arc::clone(&self.acp),
            newest_acp,
            readiness: self.readiness.clone(),
            page: self.page,
        };
        Endpoint {
            routes: routes::routes(state, self.compression),
            full: routes::full(gateway),
            limits: gateway.limits.clone(),
            refusals: gateway.log.refusals.clone(),
        }
    }

    /// Sets what the runs and the metrics have of the settings.
    fn apply(&self) {
        let Gateway { threads, error_detail, observer, limits, .. } = &*self.gateway;
        threads.runs().set_error_detail(*error_detail);
        observer.metrics.memory().set_limit(limits.memory_bytes);
    }
}

// === impl LongLived ===

impl LongLived {
    /// What agents and settings are served as. `replaced` is cancelled when a reload sets another
    /// `auth.mode`.
    fn generation(
        &self,
        agents: Agents,
        settings: Settings,
        replaced: CancellationToken,
    ) -> Generation {
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
        agents.stop_waiting_at(&self.shutdown);
        let readiness = self.readiness.of(agents.clone());
        let admin = admin::endpoint(&readiness, &self.observer.metrics, &limits, hosts.clone());
        let blocked = match &auth {
            Auth::Upstream(UpstreamAuth { trust: Trust::Proven, .. }) => Blocked::Requests,
            Auth::None | Auth::Bearer(_) | Auth::Jwt(_) | Auth::Upstream(_) => {
                Blocked::ThreadRoutePolicy
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
        let thread_access = ThreadRouteAccess::new(thread_routes, &agents, &auth, proof.clone());
        let gateway = Arc::new(Gateway {
            thread_access,
            agents,
            threads: self.threads.clone(),
            limits,
            error_detail,
            on_message,
            observer: self.observer.clone(),
            allowance,
            log: self.request_log.clone(),
            unread: self.unread.clone(),
            conversions: Semaphore::new(CONVERSIONS),
            disallowed_log: LogLimiter::default(),
            admission: Admission {
                auth,
                cors,
                hosts,
                rates,
                state: self.callers.clone(),
                proof,
                forward,
                memory: self.observer.metrics.memory().clone(),
                replaced,
            },
        });
        let acp = Arc::new(acp::Front::new(Arc::clone(&gateway), acp, retained));
        Generation { gateway, acp, admin, readiness, page, compression }
    }
}

#[cfg(test)]
mod tests;
