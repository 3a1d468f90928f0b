//! `POST /agui/agent/{agent}/run`: a request in, a run started, its stream out.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::auth::Streams;
use super::body::RunBody;
use super::observe::About;
use super::reject::Reject;
use super::request::{InPath, read_json};
use super::wire::{Encoder, Wire};
use super::{Gateway, attach};
use crate::agui::{Asking, Input, Projector};
use crate::upstream::Caller;

pub(super) async fn run(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    Extension(streams): Extension<Streams>,
    InPath(name): InPath<String>,
    request: Request,
) -> Result<Response, Reject> {
    let (parts, body) = request.into_parts();
    let body = read_json(&parts.headers, body, gateway.limits.body_bytes).await?;
    start(&gateway, &caller, &streams, &name, &parts.headers, &body).await
}

/// Starts the run that a request asks for. If the client has sent the request before, its run goes
/// on instead.
pub(super) async fn start(
    gateway: &Gateway,
    caller: &Caller,
    streams: &Streams,
    name: &str,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<Response, Reject> {
    let input = parse(body)?;
    let agent = gateway.agents.find(name, caller).map_err(|error| Reject::unknown_agent(&error))?;
    let thread = gateway.thread(agent, &input.thread_id);
    let slot = streams.slot()?;
    let wire = accepted(headers);
    let again = attach::asked_again(gateway, &thread, &input, headers);
    if let Some((reader, encoder)) = Box::pin(again).await? {
        let about = About { thread_id: thread.id().to_owned(), run_id: None };
        let body = RunBody::new(reader, encoder, &gateway.observer.metrics).holding(slot);
        return Ok(streamed(wire, Body::new(body), about));
    }
    let asking = Asking {
        input: &input,
        on_message: gateway.on_message,
        allowance: &gateway.allowance,
        emit: thread.agent().emit,
    };
    let asked = Box::pin(thread.ask(&asking)).await;
    let Some(reader) = asked.map_err(|refusal| gateway.refuse(&refusal, &thread))? else {
        return attach::present(gateway, &thread, &input, wire, slot).await;
    };
    warn_of_left_out(gateway, &input);
    let run_id = reader.run_id().as_deref().map(str::to_owned);
    tracing::debug!(agent = name, thread_id = thread.id(), run_id, "run started");

    let about = About { thread_id: thread.id().to_owned(), run_id };
    let encoder = Encoder::new(wire, Projector::new(input.client(), input.held()));
    let body = RunBody::new(reader, encoder, &gateway.observer.metrics).holding(slot);
    Ok(streamed(wire, Body::new(body), about))
}

/// Says in the log that a client has set of its run's configuration what it may not set.
fn warn_of_left_out(gateway: &Gateway, input: &Input) {
    let left_out = gateway.allowance.left_out(input);
    if left_out > 0 && gateway.left_out.is_due() {
        // Not their names, which are the client's.
        tracing::warn!(
            left_out,
            "a client set members of `configurable` that it may not set; `forward_configurable` \
             names those that it may"
        );
    }
    if gateway.allowance.leaves_multitask_out(input) && gateway.left_out.is_due() {
        tracing::warn!(
            "a client asked for a `multitaskStrategy` that it may not ask for; \
             `forward_multitask_strategies` lists those that it may"
        );
    }
}

pub(super) fn parse(body: &[u8]) -> Result<Input, Reject> {
    Input::parse(body).map_err(|error| Reject::invalid(error.to_string()))
}

/// The framing that a request asks for.
pub(super) fn accepted(headers: &HeaderMap) -> Wire {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    accept.map_or(Wire::Sse, Wire::accepted)
}

/// A response that no proxy may hold back, keep or change.
pub(super) fn streamed(wire: Wire, body: Body, about: About) -> Response {
    let mut response = Response::new(body);
    response.extensions_mut().insert(about);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, wire.content_type());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    let buffering = HeaderName::from_static("x-accel-buffering");
    headers.insert(buffering, HeaderValue::from_static("no"));
    response
}
