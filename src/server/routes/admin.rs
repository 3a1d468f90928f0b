//! The admin listener: the routes for the operator's tools, on a port of their own.
//!
//! | route | for |
//! |---|---|
//! | `GET /metrics` | Prometheus |
//! | `GET /healthz`, `GET /readyz` | as for clients |
//!
//! These routes need no credentials. The operator must let only the tools reach the port.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};

use super::health::{self, Readiness};
use crate::metrics::{Format, Metrics};
use crate::server::browser::host::{self, HostName};
use crate::server::connections::{Endpoint, Full};
use crate::server::limits::Limits;
use crate::server::observe::request_log::RefusalLog;
use crate::server::reject;

/// How many connections of the operator's tools may be open. Each scraper and probe may keep one.
const ADMIN_CONNECTIONS: usize = 64;

/// How long a tool may take to send a request's head. Connections that send nothing must not keep
/// the tools away.
const ADMIN_HEADER_TIMEOUT: Duration = Duration::from_secs(2);

/// What the admin listener serves: the metrics under `hosts` and names that no web site can own, and
/// what the clients' listener shows to everybody.
pub(in crate::server) fn endpoint(
    readiness: &Readiness,
    metrics: &Metrics,
    limits: &Limits,
    hosts: Vec<HostName>,
) -> Endpoint {
    let metrics = Router::new().route("/metrics", get(scrape).with_state(metrics.clone()));
    let routes = host::under_safe_names(metrics, hosts)
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz).with_state(readiness.clone()))
        .method_not_allowed_fallback(reject::wrong_method)
        .fallback(reject::unknown_admin_route);
    let header_timeout = limits.header_timeout.min(ADMIN_HEADER_TIMEOUT);
    let limits = Limits { connections: ADMIN_CONNECTIONS, header_timeout, ..limits.clone() };
    let (full, refusals) = (Full::new(|full| full), RefusalLog::default());
    Endpoint { routes, full, limits, refusals }
}

async fn scrape(State(metrics): State<Metrics>, headers: HeaderMap) -> Response {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::accepted(accept.unwrap_or_default());
    ([(CONTENT_TYPE, format.content_type())], metrics.text(format)).into_response()
}
