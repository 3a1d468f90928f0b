//! JSON responses.

use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use threadway_translate::json::Json;

/// A JSON document and a line break.
pub(super) fn json(document: &Json) -> Response {
    ([(CONTENT_TYPE, "application/json")], line(document)).into_response()
}

/// A JSON document that no cache may keep.
pub(super) fn uncached_json(document: &Json) -> Response {
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    (headers, line(document)).into_response()
}

fn line(document: &Json) -> String {
    format!("{}\n", document.get())
}

/// A boolean as JSON.
pub(super) fn bool_json(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}
