//! JSON responses.

use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use threadway_translate::json::Json;

/// A JSON document and a line break. No cache may keep it: what a caller gets depends on its
/// credentials, and caches know only `authorization`.
pub(super) fn uncached_json(document: &Json) -> Response {
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    (headers, format!("{}\n", document.get())).into_response()
}

/// A boolean as JSON.
pub(super) fn bool_json(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}
