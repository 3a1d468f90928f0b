//! The admin listener: what the operator's tools ask, where no client can ask it.
//!
//! | route | for |
//! |---|---|
//! | `GET /metrics` | Prometheus |
//! | `GET /healthz`, `GET /readyz` | the same as for clients |
//!
//! It has no keys of its own: it is for a port that only those reach who may see it.

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};

use super::connections::Door;
use super::deeds::RefusalLog;
use super::health::{self, Readiness};
use super::{Auth, Limits, reject};
use crate::metrics::{Format, Metrics};

/// How many connections of the operator's tools may be open: some scrapers and probes keep one
/// each.
pub const ADMIN_CONNECTIONS: usize = 64;

/// What the operator's tools find.
pub(super) fn door(readiness: &Readiness, metrics: &Metrics, limits: &Limits) -> Door {
    let routes = Router::new()
        .route("/metrics", get(scraped).with_state(metrics.clone()))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz).with_state(readiness.clone()))
        .method_not_allowed_fallback(reject::wrong_method)
        .fallback(reject::unknown_admin_route);
    let limits = Limits { connections: ADMIN_CONNECTIONS, ..limits.clone() };
    Door { routes, limits, auth: Auth::None, refusals: RefusalLog::default() }
}

async fn scraped(State(metrics): State<Metrics>, headers: HeaderMap) -> Response {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::accepted(accept.unwrap_or_default());
    ([(CONTENT_TYPE, format.content_type())], metrics.text(format)).into_response()
}
