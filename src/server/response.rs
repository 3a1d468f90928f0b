//! JSON responses.

use std::collections::VecDeque;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use super::observe::RunIds;
use super::streams::whole::Whole;
use threadway_translate::json::Json;

/// A JSON document that may be as large as a thread, and that no cache may keep.
pub(super) fn large_json(document: Bytes) -> Response {
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    (headers, Body::new(Whole::from(VecDeque::from([document])))).into_response()
}

/// Marks a response that says something about a thread.
pub(super) fn about_thread(mut response: Response, ids: RunIds) -> Response {
    response.extensions_mut().insert(ids);
    response
}

/// A JSON document and a line break. No cache may keep it: what a caller gets depends on its
/// credentials, and caches know only `authorization`.
pub(super) fn uncached_json(document: &Json) -> Response {
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    (headers, format!("{}\n", document.get())).into_response()
}
