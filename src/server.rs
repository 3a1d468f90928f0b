//! The HTTP server: routes, what requests share, and how it all comes to rest.
//!
//! | route | for |
//! |---|---|
//! | `POST /agui/agent/{agent}/run` | start a run and stream it |
//! | `GET /agui/agent/{agent}/run`, `.../run/ws` | open a WebSocket for many runs |
//! | `GET /agui/agent/{agent}/run?threadId=T`, `?runId=R` | load a thread, join a run, as `TanStack` AI does |
//! | `POST /agui/agent/{agent}/connect` | see a thread, and its live run to its end |
//! | `GET /agui/agent/{agent}/threads/{thread}/events` | the same for an `EventSource`, and later runs |
//! | `POST /agui/agent/{agent}/stop/{thread}` | stop a thread's live run |
//! | `GET /agui/threads`, `/agui/threads/{thread}`, .. | list, name, archive, delete and inspect threads |
//! | `GET /agui/info` | the agents, as CopilotKit's client reads them |
//! | `GET /agui/agent/{agent}/capabilities` | what an agent can do |
//! | `POST /agui` | all of these, told apart by `method`, as CopilotKit's client asks on a single route |
//! | `GET /`, `GET /page/{file}` | the page, where it is served |
//! | `GET /healthz`, `GET /readyz` | alive; ready |
//! | `GET /openapi.json` | all of these as OpenAPI: a new route gets its place in `server/openapi.json` |

mod accept;
mod admin;
mod agui;
mod array;
mod attach;
pub mod auth;
mod body;
mod compress;
mod connections;
pub mod cors;
mod deeds;
mod envelope;
pub mod foreign;
mod forward;
mod framing;
mod health;
mod host;
mod info;
pub mod isolation;
mod limits;
mod observe;
mod openapi;
mod pace;
mod page;
mod rates;
mod reject;
mod request;
mod stop;
mod tanstack;
mod threads;
mod websocket;
mod weighed;
mod wire;

use std::sync::Arc;

use axum::Router;
use axum::middleware;
use axum::routing::{get, patch, post};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use admin::ADMIN_CONNECTIONS;
pub use auth::{
    Auth, DEFAULT_SKEW, Judged, Jwt, JwtError, JwtSettings, Keys, KeysError, KeysFrom, MAX_SKEW,
    NotAKeySet, Trust,
};
pub use body::{KEEP_ALIVE, RETRY, RunBody};
pub use compress::{Coding, Compression, Compressor};
pub use connections::{GRACE, SPARE_CONNECTIONS, WRITE_TIMEOUT, serve};
pub use cors::{Cors, CorsError, Credentials};
pub use deeds::REFUSALS_PER_SECOND;
pub use forward::{Forward, NotForwarded};
pub use health::{PROBE_AGE, PROBE_FAILURES};
pub use host::{HostName, NotAHostName};
pub use limits::{Limits, MIN_HEADER_BYTES};
pub use observe::Observer;
pub use page::Page;
pub use rates::{MAX_CALLERS, Rates, RequestRate};
pub use request::BODY_TIMEOUT;
pub use threads::{DEFAULT_PAGE, MAX_NAME_CHARS, MAX_PAGE, ThreadRoutes};
pub use websocket::{IDLE, PING, PONG_TIMEOUT};
pub use wire::{Encoder, Outgoing, Wire};

use crate::agents::{Agent, Agents};
use crate::audit::Audit;
use crate::metrics::Metrics;
use crate::runs::{Recorder, Runs};
use crate::threads::{Refusal, Thread, Threads};
use crate::upstream::Caller;
use auth::{Admission, Memory};
use connections::Door;
use deeds::Witness;
use health::Readiness;
use isolation::{Proof, Stake};
use pace::Pace;
use reject::Reject;
use request::ThreadName;
use threadway_translate::agui::{Allowance, OnMessage};
use threadway_translate::run::ErrorDetail;

/// How the gateway serves.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// What a client may ask at most.
    pub limits: Limits,
    /// What of a request goes up.
    pub forward: Forward,
    /// How much clients are told of what failed.
    pub error_detail: ErrorDetail,
    /// What becomes of a message while its thread asks something.
    pub on_message: OnMessage,
    /// Who may call.
    pub auth: Auth,
    /// Which web pages may ask.
    pub cors: Cors,
    /// Names of the gateway's own, beside those that are safe by themselves: without `auth` it
    /// answers to no others.
    pub hosts: Vec<HostName>,
    /// How much one caller may ask.
    pub rates: Rates,
    /// What clients may set of a run's configuration.
    pub allowance: Allowance,
    /// Whether streams are compressed.
    pub compression: Compression,
    /// Whether people find a page at `/`.
    pub page: Page,
    /// For whom threads are listed, changed and inspected.
    pub thread_routes: ThreadRoutes,
}

/// A gateway: the threads that it reads, and the door before them.
#[derive(Debug)]
pub struct Server {
    kept: Kept,
    door: watch::Sender<Door>,
    /// The operator's own.
    admin: watch::Sender<Door>,
}

/// What a reload leaves as it is.
#[derive(Debug)]
struct Kept {
    threads: Threads,
    memory: Memory,
    readiness: Readiness,
    observer: Observer,
    witness: Witness,
    shutdown: CancellationToken,
}

/// What all requests share.
#[derive(Debug)]
struct Gateway {
    agents: Agents,
    threads: Threads,
    readiness: Readiness,
    limits: Limits,
    forward: Forward,
    error_detail: ErrorDetail,
    on_message: OnMessage,
    allowance: Allowance,
    page: Page,
    /// Of the lines about what clients may not set: each request can cause one.
    left_out: Pace,
    observer: Observer,
    admission: Admission,
    thread_access: threads::Access,
}

// === impl Server ===

impl Server {
    /// A gateway to these agents, and who sees what it does. A cancelled `shutdown` ends it.
    pub fn new(
        agents: Agents,
        settings: Settings,
        observer: Observer,
        shutdown: CancellationToken,
    ) -> Self {
        let Limits { log_bytes, owners, .. } = settings.limits;
        let runs = Runs::new(log_bytes, owners, observer.metrics.clone(), shutdown.clone());
        let memory = Memory::new();
        let readiness = Readiness::new(agents.clone(), shutdown.clone());
        let threads = Threads::new(runs);
        let witness = Witness::default();
        let kept = Kept { threads, memory, readiness, observer, witness, shutdown };
        let (door, admin) = kept.doors(agents, settings);
        Self { kept, door: watch::Sender::new(door), admin: watch::Sender::new(admin) }
    }

    /// What it counts in.
    pub fn metrics(&self) -> &Metrics {
        &self.kept.observer.metrics
    }

    /// Records each run that is read from now on.
    pub fn record(&self, recorder: Recorder) {
        self.kept.threads.runs().record(recorder);
    }

    /// Writes to this audit log from now on. The first one stays.
    pub fn audit(&self, audit: Audit) {
        self.kept.witness.audit.get_or_init(|| audit);
    }

    /// Opens the file of the audit log anew, if there is one.
    pub fn reopen_audit(&self) {
        if let Some(audit) = self.kept.witness.audit.get() {
            audit.reopen();
        }
    }

    /// Serves these agents in this way from the next request on. What streams goes on as it began;
    /// how runs are kept, and what becomes of those whose owner leaves, stays as it was.
    pub fn reload(&self, agents: Agents, settings: Settings) {
        let auth = settings.auth.succeeding(&self.door.borrow().auth);
        let (door, admin) = self.kept.doors(agents, Settings { auth, ..settings });
        self.door.send_replace(door);
        self.admin.send_replace(admin);
    }

    /// Serves until the gateway is told to stop, then lets what is open come to its end.
    pub async fn serve(&self, listener: TcpListener) {
        let (door, shutdown) = (self.door.subscribe(), self.kept.shutdown.clone());
        connections::serve_door(listener, door, self.metrics(), shutdown).await;
        self.kept.threads.runs().drained().await;
    }

    /// Serves the operator's tools: what is counted, and whether the gateway is alive and ready.
    /// Until `stop` is cancelled, which is to be after all else has ended: the last figures count
    /// too.
    pub async fn serve_admin(&self, listener: TcpListener, stop: CancellationToken) {
        // They are no clients: their connections are not counted.
        let uncounted = Metrics::default();
        connections::serve_door(listener, self.admin.subscribe(), &uncounted, stop).await;
    }
}

// === impl Kept ===

impl Kept {
    /// What clients find, and what the operator's tools do.
    fn doors(&self, agents: Agents, settings: Settings) -> (Door, Door) {
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
        } = settings;
        self.threads.runs().set_error_detail(error_detail);
        let readiness = self.readiness.of(agents.clone());
        let admin = admin::door(&readiness, &self.observer.metrics, &limits);
        let memory = self.memory.clone();
        let proof = match &auth {
            Auth::Upstream(Judged { trust: Trust::Proven, .. }) => {
                Some(Proof::new(agents.clone(), auth.clone(), forward.clone(), Stake::Entry))
            }
            Auth::None | Auth::Bearer(_) | Auth::Jwt(_) | Auth::Upstream(_) => None,
        };
        let thread_access = threads::Access::new(thread_routes, &agents, &auth, &forward);
        let gateway = Arc::new(Gateway {
            agents,
            thread_access,
            threads: self.threads.clone(),
            readiness,
            limits: limits.clone(),
            forward,
            error_detail,
            on_message,
            observer: self.observer.clone(),
            allowance,
            page,
            left_out: Pace::default(),
            admission: Admission { auth: auth.clone(), cors, hosts, rates, memory, proof },
        });
        let refusals = self.witness.refusals.clone();
        let routes = routes(gateway, self.witness.clone(), compression);
        (Door { routes, limits, auth, refusals }, admin)
    }
}

// === impl Gateway ===

impl Gateway {
    /// The agent that a request names.
    fn agent(&self, name: &str, caller: &Caller) -> Result<Agent, Reject> {
        self.agents.find(name, caller).map_err(|error| Reject::unknown_agent(&error))
    }

    /// The same, with LangGraph's parts in its streams if `inspects`.
    fn agent_inspected(
        &self,
        name: &str,
        caller: &Caller,
        inspects: bool,
    ) -> Result<Agent, Reject> {
        let mut agent = self.agent(name, caller)?;
        if inspects {
            agent.emit = agent.emit.inspected();
        }
        Ok(agent)
    }

    /// The thread that a client calls so, and the agent that runs on it.
    fn thread(&self, agent: Agent, client_thread: &str) -> Thread {
        let ThreadName { id, client_id } = ThreadName::of(client_thread);
        deeds::note(|deed| {
            deed.agent = Some(agent.name.to_string());
            deed.thread = Some(client_thread.to_owned());
            deed.thread_id = Some(id.clone());
        });
        self.threads.thread(agent, id, client_id.map(str::to_owned))
    }

    /// Why something was not done with a thread, as the client is told.
    fn refuse(&self, refusal: &Refusal, thread: &Thread) -> Reject {
        Reject::refusal(refusal, thread.agent().upstream.caller(), self.error_detail)
    }
}

fn routes(gateway: Arc<Gateway>, witness: Witness, compression: Compression) -> Router {
    let compressed = middleware::from_fn_with_state(compression, compress::compress);
    let admitted = middleware::from_fn_with_state(Arc::clone(&gateway), auth::admit);
    let observed = (gateway.observer.clone(), witness);
    let observed = middleware::from_fn_with_state(observed, observe::observe);
    let ready = get(health::readyz).with_state(gateway.readiness.clone());
    let page = gateway.page;
    let cors = gateway.admission.cors.layer(gateway.forward.names());
    let routes = Router::new()
        .route("/agui/info", get(info::info))
        .route("/agui", post(envelope::envelope))
        .route("/agui/", post(envelope::envelope))
        .route("/agui/agent/{agent}/capabilities", get(info::capabilities))
        .route("/agui/agent/{agent}/run", post(agui::run).get(websocket::on_run_route))
        .route("/agui/agent/{agent}/run/ws", get(websocket::on_own_route))
        .route("/agui/agent/{agent}/connect", post(attach::connect))
        .route("/agui/agent/{agent}/threads/{thread}/events", get(attach::events))
        .route("/agui/agent/{agent}/stop/{thread}", post(stop::stop))
        .route("/agui/threads", get(threads::list))
        .route("/agui/threads/{thread}", patch(threads::change).delete(threads::delete))
        .route("/agui/threads/{thread}/archive", post(threads::archive))
        .route("/agui/threads/{thread}/{part}", get(threads::inspect))
        .route_layer(compressed)
        .route_layer(admitted)
        .method_not_allowed_fallback(reject::wrong_method);
    // A preflight brings no credentials.
    let routes = match cors {
        Some(cors) => routes.layer(cors),
        None => routes,
    };
    let foreign = middleware::from_fn_with_state(Arc::clone(&gateway), foreign::preflight);
    let routes = routes.layer(foreign);
    let routes = match page {
        Page::On => routes.merge(page::routes()),
        Page::Off => routes,
    };
    routes
        .route("/healthz", get(health::healthz))
        .route("/readyz", ready)
        .route("/openapi.json", get(openapi::openapi))
        .method_not_allowed_fallback(reject::wrong_method)
        .fallback(reject::unknown_route)
        .layer(observed)
        .with_state(gateway)
}
