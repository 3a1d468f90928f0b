//! Whether the gateway is alive, and whether it is ready: whether a request would get anywhere.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Gateway;
use crate::agents::{Agents, Probed};
use crate::json::ObjectWriter;

/// How long what was found out is taken for true: orchestrators ask every few seconds, and often
/// from several places.
pub const PROBE_AGE: Duration = Duration::from_secs(5);

/// What is known of the upstreams, for all who ask.
#[derive(Clone, Debug)]
pub(super) struct Readiness {
    agents: Agents,
    /// Held while the upstreams are asked, so that they are asked once.
    last: Arc<Mutex<Option<Answers>>>,
}

/// What the upstreams have answered, and when.
#[derive(Debug)]
struct Answers {
    at: Instant,
    probed: Vec<Probed>,
}

/// `GET /healthz`: the process is alive, whatever becomes of its upstreams.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// `GET /readyz`: ready while at least one upstream is, and until the gateway is told to stop.
pub(super) async fn readyz(State(gateway): State<Arc<Gateway>>) -> Response {
    let mut upstreams = ObjectWriter::new();
    let mut is_ready = false;
    for Probed { upstream, fault } in gateway.readiness.probed().await {
        is_ready |= fault.is_none();
        upstreams = upstreams.string(&upstream, fault.as_deref().unwrap_or("ok"));
    }
    is_ready &= !gateway.shutdown.is_cancelled();
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = ObjectWriter::new()
        .raw("ready", if is_ready { "true" } else { "false" })
        .raw("upstreams", upstreams.finish().get())
        .finish();
    (status, [(CONTENT_TYPE, "application/json")], format!("{}\n", body.get())).into_response()
}

// === impl Readiness ===

impl Readiness {
    pub(super) fn new(agents: Agents) -> Self {
        Self { agents, last: Arc::default() }
    }

    async fn probed(&self) -> Vec<Probed> {
        let mut last = self.last.lock().await;
        if let Some(Answers { at, probed }) = &*last
            && at.elapsed() < PROBE_AGE
        {
            return probed.clone();
        }
        let probed = self.agents.probe().await;
        *last = Some(Answers { at: Instant::now(), probed: probed.clone() });
        probed
    }
}
