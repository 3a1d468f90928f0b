//! The routes of the API, one file for each kind of resource.

mod assistants;
mod runs;
mod threads;

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::extract::FromRequestParts;
use axum::response::Response;
use axum::routing::{get, post};
use http::request::Parts;
use serde_json::{Value, json};

use super::wire::{Refusal, answer};
use super::{API_VERSION, LANGGRAPH_VERSION, Server};

/// The parameters of a query string.
struct Query(Vec<(String, String)>);

pub(super) fn all(server: &Arc<Server>) -> Router {
    Router::new()
        .route("/ok", get(async || answer(&json!({"ok": true, "services": {}}))))
        .route("/info", get(async || info()))
        .route("/assistants/search", post(assistants::search))
        .route("/assistants/count", post(assistants::count))
        .route("/assistants/{assistant}", get(assistants::one))
        .route("/assistants/{assistant}/schemas", get(assistants::schemas))
        .route("/threads", post(threads::create))
        .route("/threads/search", post(threads::search))
        .route("/threads/count", post(threads::count))
        .route(
            "/threads/{thread}",
            get(threads::one).patch(threads::change).delete(threads::remove),
        )
        .route("/threads/{thread}/copy", post(threads::copy))
        .route("/threads/{thread}/state", get(threads::state).post(threads::update))
        .route("/threads/{thread}/state/checkpoint", post(threads::state_of))
        .route("/threads/{thread}/state/{checkpoint}", get(threads::state_at))
        .route("/threads/{thread}/history", get(threads::history).post(threads::history_of))
        .route("/threads/{thread}/runs", get(runs::list).post(runs::create))
        .route("/threads/{thread}/runs/stream", post(runs::stream))
        .route("/threads/{thread}/runs/wait", post(runs::wait))
        .route("/threads/{thread}/runs/{run}", get(runs::one).delete(runs::remove))
        .route("/threads/{thread}/runs/{run}/join", get(runs::join))
        .route("/threads/{thread}/runs/{run}/stream", get(runs::join_stream))
        .route("/threads/{thread}/runs/{run}/cancel", post(runs::cancel))
        .method_not_allowed_fallback(unknown)
        .fallback(unknown)
        .with_state(Arc::clone(server))
}

/// The real server also answers 404 for a wrong method.
async fn unknown() -> Refusal {
    Refusal::not_found("Not Found")
}

fn info() -> Response {
    answer(&json!({
        "version": API_VERSION,
        "langgraph_py_version": LANGGRAPH_VERSION,
        "flags": {"assistants": true, "crons": false, "langsmith": false},
        "host": {"kind": "self-hosted", "project_id": null, "host_revision_id": null,
                 "revision_id": null, "tenant_id": null},
        // The real server does not send this member. It marks the server as scripted.
        "scripted": true,
    }))
}

/// Whether each of `wanted` is in `held`, with the same value.
fn contains(held: &Value, wanted: Option<&super::state::Values>) -> bool {
    wanted.into_iter().flatten().all(|(name, value)| held.get(name) == Some(value))
}

// === impl Query ===

impl Query {
    /// The last value of a name, unless that is empty.
    fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next_back().filter(|value| !value.is_empty())
    }

    fn all(&self, name: &str) -> impl DoubleEndedIterator<Item = &str> {
        self.0.iter().filter(move |(other, _)| other == name).map(|(_, value)| &**value)
    }

    /// Whether a parameter is true.
    fn is_set(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| matches!(value, "1" | "true" | "True" | "yes"))
    }

    fn number(&self, name: &str, default: usize) -> Result<usize, Refusal> {
        let Some(text) = self.get(name) else { return Ok(default) };
        text.parse().map_err(|_| Refusal::invalid(format!("Invalid {name} {text}")))
    }
}

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let query = parts.uri.query().unwrap_or_default();
        Ok(Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect()))
    }
}
