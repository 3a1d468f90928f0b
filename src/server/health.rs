//! Whether the gateway is alive, and whether it is ready: whether a request would get anywhere.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agents::{Agents, Probed};
use crate::metrics::Answer;
use threadway_translate::json::ObjectWriter;

/// How long what was found out is taken for true: orchestrators ask every few seconds, and often
/// from several places.
pub const PROBE_AGE: Duration = Duration::from_secs(5);

/// How many probes in a row an upstream that was ready may fail before it is not: it misses one
/// when it is busy and two when it is restarted, and an orchestrator that takes the gateway out of
/// its service for that cuts every client off from runs that go on.
pub const PROBE_FAILURES: u32 = 3;

/// What is known of the upstreams, for all who ask.
#[derive(Clone, Debug)]
pub(super) struct Readiness {
    agents: Agents,
    /// Held while the upstreams are asked, so that they are asked once.
    last: Arc<Mutex<Last>>,
    /// Cancelled when the gateway is to take no requests any more.
    shutdown: CancellationToken,
}

/// What the upstreams have answered, and when.
#[derive(Debug, Default)]
struct Last {
    at: Option<Instant>,
    upstreams: Vec<Standing>,
}

/// What is known of an upstream.
#[derive(Clone, Debug)]
struct Standing {
    upstream: String,
    answer: Answer,
    /// How many probes in a row have failed; `None` before one has succeeded.
    failures: Option<u32>,
}

/// `GET /healthz`: the process is alive, whatever becomes of its upstreams.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// `GET /readyz`: ready while at least one upstream is, and until the gateway is told to stop.
pub(super) async fn readyz(State(readiness): State<Readiness>) -> Response {
    let mut upstreams = ObjectWriter::new();
    let mut is_ready = false;
    for standing in readiness.upstreams().await {
        is_ready |= standing.is_ready();
        upstreams = upstreams.string(&standing.upstream, standing.answer.word());
    }
    is_ready &= !readiness.shutdown.is_cancelled();
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = ObjectWriter::new()
        .raw("ready", if is_ready { "true" } else { "false" })
        .raw("upstreams", upstreams.finish().get())
        .finish();
    (status, [(CONTENT_TYPE, "application/json")], format!("{}\n", body.get())).into_response()
}

// === impl Readiness ===

impl Readiness {
    pub(super) fn new(agents: Agents, shutdown: CancellationToken) -> Self {
        Self { agents, last: Arc::default(), shutdown }
    }

    /// The same of other agents: an upstream that keeps its name is known.
    pub(super) fn of(&self, agents: Agents) -> Self {
        Self { agents, ..self.clone() }
    }

    async fn upstreams(&self) -> Vec<Standing> {
        let mut last = self.last.lock().await;
        if last.at.is_none_or(|at| at.elapsed() >= PROBE_AGE) {
            let probed = self.agents.probe().await;
            let upstreams = probed.into_iter().map(|probed| last.with(probed)).collect();
            *last = Last { at: Some(Instant::now()), upstreams };
        }
        last.upstreams.clone()
    }
}

// === impl Last ===

impl Last {
    /// How an upstream stands after one more probe.
    fn with(&self, probed: Probed) -> Standing {
        let Probed { upstream, answer } = probed;
        let before = self.upstreams.iter().find(|standing| standing.upstream == upstream);
        let failures = if answer == Answer::Ok {
            Some(0)
        } else {
            // As many as count: it may be away for years.
            let failures = before.and_then(|before| before.failures);
            failures.map(|failures| PROBE_FAILURES.min(failures + 1))
        };
        Standing { upstream, answer, failures }
    }
}

// === impl Standing ===

impl Standing {
    fn is_ready(&self) -> bool {
        self.failures.is_some_and(|failures| failures < PROBE_FAILURES)
    }
}
