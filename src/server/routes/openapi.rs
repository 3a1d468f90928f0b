//! `GET /openapi.json`: the routes as `OpenAPI` 3.1.
//!
//! The document is written by hand, since no type knows why a route answers as it does.
//! `tests/http/openapi.rs` compares it with the router, and with the responses in the server's
//! tests.

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;

/// The document. It contains nothing of this gateway's configuration, so anybody may read it.
const DOCUMENT: &str = include_str!("../openapi.json");

pub(in crate::server) async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}
