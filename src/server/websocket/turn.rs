//! A turn on a socket, and other requests to the gateway's own routes.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::pending;
use std::pin::Pin;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::response::Response;
use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use serde::Deserialize;
use tower_service::Service;

use crate::server::streams::frames::Frames;

/// The largest refusal that is read from the gateway's own routes, in bytes.
const MAX_REFUSAL_BYTES: usize = 64 * 1024;

/// A turn, from its request to the end of its stream.
pub(super) struct ActiveTurn {
    pub(super) progress: Progress,
    pub(super) is_replay: bool,
    /// Whether its client was sent any of its events.
    pub(super) has_sent: bool,
    pub(super) frames: Frames,
}

pub(super) enum Progress {
    Requested(PendingResponse),
    Streaming(Body),
}

/// The response to a request to the gateway's own routes, once it comes.
pub(super) type PendingResponse = Pin<Box<dyn Future<Output = Result<Body, RouteError>> + Send>>;

/// The body of a refusal by a route.
#[derive(Debug, Deserialize)]
pub(super) struct RouteError {
    pub(super) error: String,
    pub(super) message: String,
}

/// What a turn does next.
pub(super) enum Step {
    Begun(Body),
    Refused(RouteError),
    Bytes(Bytes),
    Over,
}

// === impl ActiveTurn ===

impl ActiveTurn {
    pub(super) fn new(response: PendingResponse, is_replay: bool) -> Self {
        let (progress, frames) = (Progress::Requested(response), Frames::default());
        Self { progress, is_replay, has_sent: false, frames }
    }
}

/// Sends a request to the gateway's own routes.
pub(super) fn send(mut routes: Router, request: Request<Body>) -> PendingResponse {
    Box::pin(async move {
        let response: Result<Response, Infallible> = routes.call(request).await;
        let Ok(response) = response;
        if response.status().is_success() {
            return Ok(response.into_body());
        }
        let status = response.status();
        let body = to_bytes(response.into_body(), MAX_REFUSAL_BYTES).await.unwrap_or_default();
        Err(serde_json::from_slice(&body).unwrap_or_else(|_| RouteError {
            error: "refused".to_owned(),
            message: format!("the gateway answers {status}"),
        }))
    })
}

/// Waits for the next step of a turn; for ever without a turn. May be dropped while it waits.
pub(super) async fn next_step(turn: &mut Option<ActiveTurn>) -> Step {
    match turn.as_mut().map(|turn| &mut turn.progress) {
        None => pending().await,
        Some(Progress::Requested(response)) => match response.await {
            Ok(body) => Step::Begun(body),
            Err(error) => Step::Refused(error),
        },
        Some(Progress::Streaming(body)) => match body.frame().await {
            Some(Ok(frame)) => Step::Bytes(frame.into_data().unwrap_or_default()),
            Some(Err(_)) | None => Step::Over,
        },
    }
}

/// Waits for a response; for ever if none is pending.
pub(super) async fn next_response(
    response: &mut Option<PendingResponse>,
) -> Result<Body, RouteError> {
    match response {
        Some(response) => response.await,
        None => pending().await,
    }
}

/// Percent-escapes a text as one segment of a path.
pub(super) fn escaped(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if is_plain(byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
