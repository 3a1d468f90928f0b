//! `GET /healthz`: whether the gateway is alive; and `GET /readyz`: whether it can serve requests.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agents::{Agents, Probed};
use crate::metrics::Answer;
use crate::server::response::uncached_json;
use crate::server::service::bool_json;
use threadway_translate::json::ObjectWriter;

/// How long the result of a probe is used. Orchestrators ask every few seconds, often from several
/// places.
pub const PROBE_AGE: Duration = Duration::from_secs(5);

/// How long a request waits for a probe, if there are earlier results. Kubernetes waits 1 s.
const PROBE_PATIENCE: Duration = Duration::from_millis(100);

/// After how many failed probes in a row an upstream that was ready counts as not ready. A busy
/// upstream misses one probe, and a restart two. If the orchestrator then took the gateway out of
/// service, it would cut every client off from runs that go on.
const PROBE_FAILURES: u32 = 3;

/// Probes the upstreams, and keeps the results for [`PROBE_AGE`]. Clones share them.
#[derive(Clone, Debug)]
pub(in crate::server) struct Readiness {
    agents: Agents,
    /// The results of the last probe, and whether there is another one: requests at the same time
    /// share it.
    last: Arc<watch::Sender<LastProbe>>,
    tasks: TaskTracker,
    /// Cancelled when the gateway stops.
    shutdown: CancellationToken,
}

/// The results of the last probe.
#[derive(Debug, Default)]
struct LastProbe {
    /// `None` before the first results.
    at: Option<Instant>,
    is_probing: bool,
    upstreams: Vec<UpstreamHealth>,
}

#[derive(Clone, Debug)]
struct UpstreamHealth {
    upstream: String,
    answer: Answer,
    /// How many probes in a row have failed. `None` until one has succeeded.
    failures: Option<u32>,
}

/// The process is alive, whatever the state of its upstreams.
pub(in crate::server) async fn healthz() -> &'static str {
    "ok\n"
}

/// Ready while at least one upstream is ready, until a shutdown begins.
pub(in crate::server) async fn readyz(State(readiness): State<Readiness>) -> Response {
    let mut upstreams = ObjectWriter::new();
    let mut is_ready = false;
    for health in readiness.upstreams().await {
        is_ready |= health.is_ready();
        upstreams = upstreams.string(&health.upstream, health.answer.as_str());
    }
    is_ready &= !readiness.shutdown.is_cancelled();
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = ObjectWriter::new()
        .raw("ready", bool_json(is_ready))
        .raw("upstreams", upstreams.finish().get())
        .finish();
    let mut response = uncached_json(&body);
    *response.status_mut() = status;
    response
}

// === impl Readiness ===

impl Readiness {
    pub(in crate::server) fn new(agents: Agents, shutdown: CancellationToken) -> Self {
        Self { agents, last: Arc::default(), tasks: TaskTracker::new(), shutdown }
    }

    /// Keeps the results for a reload's agents. An upstream is known by its name.
    pub(in crate::server) fn of(&self, agents: Agents) -> Self {
        Self { agents, ..self.clone() }
    }

    /// The results of the last probe. Waits for the first one, and for a later one only as long as
    /// the client of a quick answer would.
    async fn upstreams(&self) -> Vec<UpstreamHealth> {
        let is_due = |last: &mut LastProbe| {
            let is_old = last.at.is_none_or(|at| at.elapsed() >= PROBE_AGE);
            is_old && !std::mem::replace(&mut last.is_probing, true)
        };
        if self.last.send_if_modified(is_due) {
            self.tasks.spawn(self.clone().probe());
        }
        let mut last = self.last.subscribe();
        let probed = last.wait_for(|last| !last.is_probing);
        let _ = tokio::time::timeout(PROBE_PATIENCE, probed).await;
        match last.wait_for(|last| last.at.is_some()).await {
            Ok(last) => last.upstreams.clone(),
            // Impossible: `self` has the sender.
            Err(_) => Vec::new(),
        }
    }

    /// Probes the upstreams once.
    async fn probe(self) {
        let probed = self.agents.probe().await;
        self.last.send_modify(|last| {
            let upstreams = probed.into_iter().map(|probed| last.with(probed)).collect();
            *last = LastProbe { at: Some(Instant::now()), is_probing: false, upstreams };
        });
    }
}

// === impl LastProbe ===

impl LastProbe {
    /// The health of an upstream after one more probe.
    fn with(&self, probed: Probed) -> UpstreamHealth {
        let Probed { upstream, answer } = probed;
        let before = self.upstreams.iter().find(|health| health.upstream == upstream);
        let failures = if answer == Answer::Ok {
            Some(0)
        } else {
            // The count stops at the limit: an upstream may be away for years.
            let failures = before.and_then(|before| before.failures);
            failures.map(|failures| PROBE_FAILURES.min(failures + 1))
        };
        UpstreamHealth { upstream, answer, failures }
    }
}

// === impl UpstreamHealth ===

impl UpstreamHealth {
    fn is_ready(&self) -> bool {
        self.failures.is_some_and(|failures| failures < PROBE_FAILURES)
    }
}
