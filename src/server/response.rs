//! Responses: streams of events, arrays of them, and JSON.

use std::collections::VecDeque;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue};

use super::observe::RunIds;
use super::reject::Reject;
use super::streams::array::Collected;
use super::streams::encoder::one_time_id;
use super::streams::event_stream::EventStream;
use super::streams::whole::Whole;
use super::streams::wire::Wire;
use crate::metrics::Metrics;
use threadway_translate::json::Json;

/// The response header with the id of an array's last event.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Marks a response that was made without asking LangGraph: its status says nothing about the
/// caller's credentials.
#[derive(Clone, Copy, Debug)]
pub(super) struct UpstreamNotAsked;

/// The response that streams events. Fails if there is no room for those that are ready.
pub(super) async fn events(stream: EventStream, metrics: &Metrics) -> Result<Response, Reject> {
    let (wire, ids) = (stream.encoder.wire(), stream.ids.clone());
    let body = Body::new(stream.begin(metrics).await?);
    Ok(about_thread(unbuffered(wire, body), ids))
}

/// A response that no proxy may buffer, cache or change.
pub(super) fn unbuffered(wire: Wire, body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, wire.content_type());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    let buffering = HeaderName::from_static("x-accel-buffering");
    headers.insert(buffering, HeaderValue::from_static("no"));
    response
}

/// The response with events as one array. `sent` is the `last-event-id` of the request, and that of
/// the response is the id that the client sends to get the next array.
pub(super) fn array(events: Collected, sent: Option<HeaderValue>) -> Response {
    let Collected { parts, last_id } = events;
    let sent = sent.filter(|sent| !sent.is_empty());
    let id = match last_id {
        Some(id) => HeaderValue::try_from(id).ok(),
        // No new event: the client keeps its id. Without an id its next POST would start a run.
        None => sent.or_else(|| HeaderValue::try_from(one_time_id()).ok()),
    };
    let mut response = Response::new(Body::new(Whole::from(parts)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(id) = id {
        headers.insert(LAST_EVENT_ID, id);
    }
    response
}

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
