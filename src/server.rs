//! The HTTP server: routes, what requests share, and how it all comes to rest.
//!
//! | route | for |
//! |---|---|
//! | `POST /agui/agent/{agent}/run` | start a run and stream it |
//! | `POST /agui/agent/{agent}/connect` | see a thread, and its live run to its end |
//! | `GET /agui/agent/{agent}/threads/{thread}/events` | the same for an `EventSource`, and later runs |
//! | `POST /agui/agent/{agent}/stop/{thread}` | stop a thread's live run |
//! | `GET /agui/info` | the agents, as CopilotKit's client reads them |
//! | `POST /agui` | all of these, told apart by `method`, as CopilotKit's client asks on a single route |
//! | `GET /healthz`, `GET /readyz` | alive; ready |

mod agui;
mod attach;
pub mod auth;
mod body;
mod connections;
pub mod cors;
mod envelope;
mod forward;
mod health;
mod host;
mod info;
mod limits;
mod rates;
mod reject;
mod request;
mod stop;
mod wire;

use std::sync::Arc;

use axum::Router;
use axum::middleware;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use auth::{
    Auth, DEFAULT_SKEW, Jwt, JwtError, JwtSettings, Keys, KeysError, KeysFrom, MAX_SKEW, NotAKeySet,
};
pub use body::{KEEP_ALIVE, RETRY, RunBody};
pub use connections::{GRACE, SPARE_CONNECTIONS, WRITE_TIMEOUT, serve};
pub use cors::{Cors, CorsError, Credentials};
pub use forward::{Forward, NotForwarded};
pub use health::PROBE_AGE;
pub use host::{HostName, NotAHostName};
pub use limits::{Limits, MIN_HEADER_BYTES};
pub use rates::{MAX_CALLERS, Rates, RequestRate};
pub use request::BODY_TIMEOUT;
pub use wire::{Encoder, Wire};

use crate::agents::Agents;
use crate::langgraph::ErrorDetail;
use crate::runs::Runs;
use crate::upstream;
use auth::{Admission, Memory};
use connections::Door;
use health::Readiness;
use reject::Reject;

/// How the gateway serves.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// What a client may ask at most.
    pub limits: Limits,
    /// What of a request goes up.
    pub forward: Forward,
    /// How much clients are told of what failed.
    pub error_detail: ErrorDetail,
    /// Who may call.
    pub auth: Auth,
    /// Which web pages may ask.
    pub cors: Cors,
    /// Names of the gateway's own, beside those that are safe by themselves: without `auth`, who
    /// is on its machine may call it by these alone.
    pub hosts: Vec<HostName>,
    /// How much one caller may ask.
    pub rates: Rates,
}

/// A gateway: the runs that it reads, and the door before them.
#[derive(Debug)]
pub struct Server {
    runs: Runs,
    memory: Memory,
    door: watch::Sender<Door>,
    shutdown: CancellationToken,
}

/// What all requests share.
#[derive(Debug)]
struct Gateway {
    agents: Agents,
    runs: Runs,
    readiness: Readiness,
    limits: Limits,
    forward: Forward,
    error_detail: ErrorDetail,
    admission: Admission,
    /// Cancelled when streams are to end.
    shutdown: CancellationToken,
}

// === impl Server ===

impl Server {
    /// A gateway to these agents. A cancelled `shutdown` ends it.
    pub fn new(agents: Agents, settings: Settings, shutdown: CancellationToken) -> Self {
        let Limits { log_bytes, owners, .. } = settings.limits;
        let runs = Runs::new(log_bytes, owners, shutdown.clone());
        let memory = Memory::new();
        let door = door(agents, settings, &runs, &memory, &shutdown);
        Self { runs, memory, door: watch::Sender::new(door), shutdown }
    }

    /// Serves these agents in this way from the next request on. What streams goes on as it began;
    /// how runs are kept, and what becomes of those whose owner leaves, stays as it was.
    pub fn reload(&self, agents: Agents, settings: Settings) {
        let auth = settings.auth.succeeding(&self.door.borrow().auth);
        let settings = Settings { auth, ..settings };
        self.door.send_replace(door(agents, settings, &self.runs, &self.memory, &self.shutdown));
    }

    /// Serves until the gateway is told to stop, then lets what is open come to its end.
    pub async fn serve(&self, listener: TcpListener) {
        connections::serve_door(listener, self.door.subscribe(), self.shutdown.clone()).await;
        self.runs.drained().await;
    }
}

// === impl Gateway ===

impl Gateway {
    /// Why an upstream did not do what a client asked for, as the client is told.
    fn refuse(&self, error: &upstream::Error, upstream: &upstream::Client) -> Reject {
        Reject::upstream(error, upstream.caller(), self.error_detail)
    }
}

fn door(
    agents: Agents,
    settings: Settings,
    runs: &Runs,
    memory: &Memory,
    shutdown: &CancellationToken,
) -> Door {
    let Settings { limits, forward, error_detail, auth, cors, hosts, rates } = settings;
    runs.tell(error_detail);
    let gateway = Arc::new(Gateway {
        readiness: Readiness::new(agents.clone()),
        agents,
        runs: runs.clone(),
        limits: limits.clone(),
        forward,
        error_detail,
        admission: Admission { auth: auth.clone(), cors, hosts, rates, memory: memory.clone() },
        shutdown: shutdown.clone(),
    });
    Door { routes: routes(gateway), limits, auth }
}

fn routes(gateway: Arc<Gateway>) -> Router {
    let admitted = middleware::from_fn_with_state(Arc::clone(&gateway), auth::admit);
    let cors = gateway.admission.cors.layer(gateway.forward.names());
    let routes = Router::new()
        .route("/agui/info", get(info::info))
        .route("/agui", post(envelope::envelope))
        .route("/agui/", post(envelope::envelope))
        .route("/agui/agent/{agent}/run", post(agui::run))
        .route("/agui/agent/{agent}/connect", post(attach::connect))
        .route("/agui/agent/{agent}/threads/{thread}/events", get(attach::events))
        .route("/agui/agent/{agent}/stop/{thread}", post(stop::stop))
        .route_layer(admitted)
        .method_not_allowed_fallback(reject::wrong_method);
    // A preflight brings no credentials.
    let routes = match cors {
        Some(cors) => routes.layer(cors),
        None => routes,
    };
    routes
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .method_not_allowed_fallback(reject::wrong_method)
        .fallback(reject::unknown_route)
        .with_state(gateway)
}
