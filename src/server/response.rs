//! JSON responses.

use std::collections::VecDeque;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use super::reject::Reject;
use super::streams::unread::Answers;
use super::streams::whole::Whole;
use crate::offload::offload;
use threadway_translate::json::Json;

/// A JSON document that may be as large as a thread, and that no cache may keep. Its bytes are held
/// as an unread answer.
pub(super) fn large_json(answers: &Answers, document: &Json) -> Result<Response, Reject> {
    let body = offload(document.get().len(), || answers.hold(line(document).into()))?;
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    Ok((headers, Body::new(Whole::from(VecDeque::from([body])))).into_response())
}

/// A JSON document and a line break. No cache may keep it: what a caller gets depends on its
/// credentials, and caches know only `authorization`.
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
