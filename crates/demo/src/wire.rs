//! The Python server's wire format: parts, responses and refusals.

use std::fmt::Write as _;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_LOCATION, CONTENT_TYPE, LOCATION};
use http::{HeaderName, HeaderValue, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use uuid::Uuid;

use super::MAX_BODY_BYTES;

/// How long a client may take to send a request's body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// What a stream sends after some seconds of silence.
pub(super) const HEARTBEAT: &[u8] = b": heartbeat\r\n\r\n";

/// A refusal, with the body `{"detail": ".."}`.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    detail: String,
}

/// What the `location` header of a run's response refers to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Again {
    Stream,
    Join,
}

/// A part as a server-sent event: event, data, id. Each line ends with CRLF.
pub(super) fn frame(event: &str, data: &str, id: Option<&str>) -> String {
    let mut frame = format!("event: {event}\r\ndata: {data}\r\n");
    if let Some(id) = id {
        let _infallible = write!(frame, "id: {id}\r\n");
    }
    frame.push_str("\r\n");
    frame
}

pub(super) fn answer(value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A page of a search, with pagination headers.
pub(super) fn page(items: Vec<Value>, offset: usize, limit: usize) -> Response {
    let seen = items.len().min(offset.saturating_add(limit).saturating_add(1));
    let page: Vec<_> = items.into_iter().skip(offset).take(limit).collect();
    let next = offset.saturating_add(page.len());
    let mut response = answer(&Value::Array(page));
    let headers = response.headers_mut();
    // The Python server looks one item past the page and reports that as the total.
    headers.insert(HeaderName::from_static("x-pagination-total"), HeaderValue::from(seen));
    if next < seen {
        headers.insert(HeaderName::from_static("x-pagination-next"), HeaderValue::from(next));
    }
    response
}

pub(super) fn empty(status: StatusCode) -> Response {
    status.into_response()
}

/// The response that streams a run.
pub(super) fn streamed(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let buffering = HeaderName::from_static("x-accel-buffering");
    headers.insert(buffering, HeaderValue::from_static("no"));
    response
}

/// The response that arrives at the end of a run.
pub(super) fn awaited(body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Sets the headers that name the run and where to ask again.
pub(super) fn locate(response: &mut Response, thread: Uuid, run: Uuid, again: Option<Again>) {
    let content = format!("/threads/{thread}/runs/{run}");
    let again = again.map(|again| match again {
        Again::Stream => format!("{content}/stream"),
        Again::Join => format!("{content}/join"),
    });
    let headers = response.headers_mut();
    // Ids are plain ASCII.
    if let Some(Ok(value)) = again.map(HeaderValue::try_from) {
        headers.insert(LOCATION, value);
    }
    if let Ok(value) = HeaderValue::try_from(content) {
        headers.insert(CONTENT_LOCATION, value);
    }
}

/// Reads a request's body as JSON, within a size and time limit.
pub(super) async fn read<T: DeserializeOwned>(request: Request) -> Result<T, Refusal> {
    let read = Limited::new(request.into_body(), MAX_BODY_BYTES).collect();
    let body = match tokio::time::timeout(BODY_TIMEOUT, read).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let detail = format!("the body is longer than {MAX_BODY_BYTES} bytes");
            return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
        }
        Ok(Err(error)) => return Err(Refusal::invalid(format!("the body is incomplete: {error}"))),
        Err(_) => {
            let detail = format!("the body did not arrive within {} s", BODY_TIMEOUT.as_secs());
            return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, detail));
        }
    };
    let value: Value = serde_json::from_slice(&body)
        .map_err(|_| Refusal::invalid("Invalid JSON in request body"))?;
    serde_json::from_value(value).map_err(|error| Refusal::invalid(error.to_string()))
}

/// Reads an id from a path or a body.
pub(super) fn uuid(what: &str, text: &str) -> Result<Uuid, Refusal> {
    Uuid::try_parse(text)
        .map_err(|_| Refusal::invalid(format!("Invalid {what} ID: must be a UUID")))
}

// === impl Refusal ===

impl Refusal {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
    }

    pub(super) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    pub(super) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, detail)
    }

    pub(super) fn no_thread(id: Uuid) -> Self {
        Self::not_found(format!("Thread with ID {id} not found"))
    }

    /// Exceeding a limit of the demo's own.
    pub(super) fn full(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = answer(&json!({"detail": self.detail}));
        *response.status_mut() = self.status;
        response
    }
}
