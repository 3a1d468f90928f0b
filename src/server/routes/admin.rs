//! The admin listener: the routes for the operator's tools, on a port of their own.
//!
//! | route | for |
//! |---|---|
//! | `GET /metrics` | Prometheus |
//! | `GET /healthz`, `GET /readyz` | as for clients |
//!
//! These routes need no credentials. The operator must let only the tools reach the port.

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};

use super::health::{self, Readiness};
use crate::metrics::{Format, Metrics};
use crate::server::auth::Auth;
use crate::server::connections::{Endpoint, Full};
use crate::server::limits::Limits;
use crate::server::observe::request_log::RefusalLog;
use crate::server::reject;

/// How many connections of the operator's tools may be open. Each scraper and probe may keep one.
const ADMIN_CONNECTIONS: usize = 64;

/// What the admin listener serves.
pub(in crate::server) fn endpoint(
    readiness: &Readiness,
    metrics: &Metrics,
    limits: &Limits,
) -> Endpoint {
    let routes = Router::new()
        .route("/metrics", get(scrape).with_state(metrics.clone()))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz).with_state(readiness.clone()))
        .method_not_allowed_fallback(reject::wrong_method)
        .fallback(reject::unknown_admin_route);
    let limits = Limits { connections: ADMIN_CONNECTIONS, ..limits.clone() };
    let (full, refusals) = (Full::new(|full| full), RefusalLog::default());
    Endpoint { routes, full, limits, auth: Auth::None, refusals }
}

async fn scrape(State(metrics): State<Metrics>, headers: HeaderMap) -> Response {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::accepted(accept.unwrap_or_default());
    ([(CONTENT_TYPE, format.content_type())], metrics.text(format)).into_response()
}
