//! Requests to the gateway's own routes, for what comes on a socket.

use std::convert::Infallible;
use std::future::pending;
use std::pin::Pin;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::response::Response;
use http::{Request, StatusCode};
use serde::Deserialize;
use tower_service::Service;

/// The largest refusal that is read from the gateway's own routes, in bytes.
const MAX_REFUSAL_BYTES: usize = 64 * 1024;

/// The response to a request to the gateway's own routes, once it comes.
pub(in crate::server) type PendingResponse =
    Pin<Box<dyn Future<Output = Result<Body, RouteError>> + Send>>;

/// The body of a refusal by a route.
#[derive(Debug, Deserialize)]
pub(in crate::server) struct RouteError {
    #[serde(skip)]
    pub(in crate::server) status: StatusCode,
    pub(in crate::server) error: String,
    pub(in crate::server) message: String,
}

/// Sends a request to the gateway's own routes.
pub(in crate::server) fn send(mut routes: Router, request: Request<Body>) -> PendingResponse {
    Box::pin(async move {
        let response: Result<Response, Infallible> = routes.call(request).await;
        let Ok(response) = response;
        if response.status().is_success() {
            return Ok(response.into_body());
        }
        let status = response.status();
        let body = to_bytes(response.into_body(), MAX_REFUSAL_BYTES).await.unwrap_or_default();
        let refused = serde_json::from_slice(&body).unwrap_or_else(|_| RouteError {
            status,
            error: "refused".to_owned(),
            message: format!("the gateway answers {status}"),
        });
        Err(RouteError { status, ..refused })
    })
}

/// Waits for a response; for ever if none is pending.
pub(in crate::server) async fn next_response(
    response: &mut Option<PendingResponse>,
) -> Result<Body, RouteError> {
    match response {
        Some(response) => response.await,
        None => pending().await,
    }
}
