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
mod body;
mod connections;
mod envelope;
mod health;
mod info;
mod limits;
mod reject;
mod request;
mod stop;
mod wire;

use axum::Router;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use body::{KEEP_ALIVE, RETRY, RunBody};
pub use connections::{GRACE, SPARE_CONNECTIONS, WRITE_TIMEOUT, serve};
pub use health::PROBE_AGE;
pub use limits::{Limits, MIN_HEADER_BYTES};
pub use request::BODY_TIMEOUT;
pub use wire::{Encoder, Wire};

use crate::agents::Agents;
use crate::runs::Runs;
use health::Readiness;

/// What all requests share.
#[derive(Clone, Debug)]
struct Gateway {
    agents: Agents,
    runs: Runs,
    readiness: Readiness,
    limits: Limits,
    /// Cancelled when streams are to end.
    shutdown: CancellationToken,
}

/// Serves the agents until `shutdown` is cancelled, then lets what is open come to its end.
pub async fn run(
    listener: TcpListener,
    agents: Agents,
    limits: Limits,
    shutdown: CancellationToken,
) {
    let runs = Runs::new(limits.log_bytes, limits.owners, shutdown.clone());
    let gateway = Gateway {
        readiness: Readiness::new(agents.clone()),
        agents,
        runs: runs.clone(),
        limits: limits.clone(),
        shutdown: shutdown.clone(),
    };
    serve(listener, routes(gateway), &limits, shutdown).await;
    runs.drained().await;
}

fn routes(gateway: Gateway) -> Router {
    Router::new()
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/agui/info", get(info::info))
        .route("/agui", post(envelope::envelope))
        .route("/agui/", post(envelope::envelope))
        .route("/agui/agent/{agent}/run", post(agui::run))
        .route("/agui/agent/{agent}/connect", post(attach::connect))
        .route("/agui/agent/{agent}/threads/{thread}/events", get(attach::events))
        .route("/agui/agent/{agent}/stop/{thread}", post(stop::stop))
        .method_not_allowed_fallback(reject::wrong_method)
        .fallback(reject::unknown_route)
        .with_state(gateway)
}
