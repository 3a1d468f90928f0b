//! `POST /agui/agent/{agent}/run`: a request in, a run started, its stream out.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::Gateway;
use super::auth::Streams;
use super::body::RunBody;
use super::observe::About;
use super::reject::Reject;
use super::request::{InPath, Thread, read_json};
use super::wire::{Encoder, Wire};
use crate::agents::Agent;
use crate::agui::{Input, Projector, Turn};
use crate::langgraph::{InputKeys, RunRequest, ServerKind, ThreadState};
use crate::runs::{self, ForkError};
use crate::upstream::{self, Caller};

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

/// Starts the run that a request asks for.
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
    let thread = Thread::of(&input.thread_id);
    let slot = streams.slot()?;
    let (request, server) = Box::pin(plan(gateway, &agent, &input, &thread)).await?;
    if gateway.shutdown.is_cancelled() {
        return Err(Reject::shutting_down());
    }
    let stream = agent.upstream.start_run(&thread.id, &request).await;
    let stream = stream.map_err(|error| {
        if error.is_unknown_assistant() {
            Reject::unknown_assistant(&agent)
        } else {
            gateway.refuse(&error, &agent.upstream)
        }
    })?;
    tracing::debug!(agent = name, thread_id = thread.id, run_id = stream.run_id, "run started");

    let upstream = agent.upstream;
    let about = About { thread_id: thread.id.clone(), run_id: stream.run_id.clone() };
    let reader = gateway.runs.start(upstream, server, &thread.id, &input.run_id, stream);
    let wire = accepted(headers);
    let encoder = Encoder::new(wire, Projector::new(input.client(), input.held()));
    let body = RunBody::new(reader, encoder, &gateway.observer.metrics).holding(slot);
    Ok(streamed(wire, Body::new(body), about))
}

pub(super) fn parse(body: &[u8]) -> Result<Input, Reject> {
    Input::parse(body).map_err(|error| Reject::invalid(error.to_string()))
}

/// The framing that a request asks for.
pub(super) fn accepted(headers: &HeaderMap) -> Wire {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    accept.map_or(Wire::Sse, Wire::accepted)
}

/// The run that a request asks for, given what its thread holds, and on what kind of server.
async fn plan(
    gateway: &Gateway,
    agent: &Agent,
    input: &Input,
    thread: &Thread<'_>,
) -> Result<(RunRequest, Option<ServerKind>), Reject> {
    let upstream = &agent.upstream;
    let (body, server) =
        tokio::join!(upstream.thread_state(&thread.id), gateway.agents.server_kind(agent));
    let body = body.map_err(|error| gateway.refuse(&error, upstream))?;
    let state = match &body {
        Some(body) => Some(ThreadState::parse(body).ok_or_else(|| {
            Reject::not_langgraph("the LangGraph server's answer about the thread is no state")
        })?),
        None => None,
    };
    let keys = if Turn::needs_keys(input, state.as_ref()) {
        gateway.agents.input_keys(agent).await
    } else {
        InputKeys::Unknown.into()
    };
    if let (None, Some(client_id)) = (&state, thread.client_id) {
        let created = upstream.create_thread(&thread.id, client_id).await;
        created.map_err(|error| gateway.refuse(&error, upstream))?;
    }
    let turn = Turn::plan(input, state.as_ref(), &keys)
        .map_err(|error| Reject::new(StatusCode::CONFLICT, "cannot_resume", error.to_string()))?;
    let turn = turn.configured(input, &gateway.allowance);
    let left_out = gateway.allowance.left_out(input);
    if left_out > 0 && gateway.left_out.is_due() {
        // Not their names, which are the client's.
        tracing::warn!(
            left_out,
            "a client set members of `configurable` that it may not set; `forward_configurable` \
             names those that it may"
        );
    }
    let checkpoint = match &turn.fork_before {
        Some(message_id) => Some(
            runs::fork_point(upstream, &thread.id, message_id)
                .await
                .map_err(|error| cannot_fork(gateway, upstream, &error))?,
        ),
        None => None,
    };
    let request = turn.request(&agent.assistant, &input.run_id, checkpoint).on(server);
    Ok((request, server))
}

fn cannot_fork(gateway: &Gateway, upstream: &upstream::Client, error: &ForkError) -> Reject {
    match error {
        ForkError::Upstream(error) => gateway.refuse(error, upstream),
        ForkError::Unreadable => Reject::not_langgraph(error),
        ForkError::NoneBefore { .. } | ForkError::TooFarBack { .. } => {
            Reject::new(StatusCode::CONFLICT, "cannot_fork", error.to_string())
        }
    }
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
