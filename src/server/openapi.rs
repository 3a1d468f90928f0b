//! `GET /openapi.json`: the routes as `OpenAPI` 3.1.
//!
//! The document is written by hand, since it says what no type here knows: why a route answers so.
//! `tests/http/openapi.rs` compares it with the router, and with what the server tests are answered.

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;

/// The document. It has nothing of this gateway's configuration, so that anybody may read it.
const DOCUMENT: &str = include_str!("openapi.json");

pub(super) async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}
