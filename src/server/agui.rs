//! `POST /agui/agent/{agent}/run`: a request in, a run started, its stream out.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::auth::Streams;
use super::body::RunBody;
use super::observe::About;
use super::reject::Reject;
use super::request::{InPath, Thread, read_json};
use super::wire::{Encoder, Wire};
use super::{Gateway, attach};
use crate::agents::Agent;
use crate::agui::{Input, Plan, Projector, Turn};
use crate::langgraph::{InputKeys, RunRequest, ServerKind, ThreadState};
use crate::runs::{self, ForkError};
use crate::upstream::{self, Caller, RunStream};

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
    let thread = Thread::of(&input.thread_id);
    let slot = streams.slot()?;
    let wire = accepted(headers);
    let again = attach::asked_again(gateway, &agent, &thread, &input, headers);
    if let Some((reader, encoder)) = Box::pin(again).await? {
        let about = About { thread_id: thread.id.clone(), run_id: None };
        let body = RunBody::new(reader, encoder, &gateway.observer.metrics).holding(slot);
        return Ok(streamed(wire, Body::new(body), about));
    }
    let started = Box::pin(begin(gateway, &agent, &input, &thread)).await?;
    let Some((stream, server)) = started else {
        return attach::present(gateway, &agent, &input, wire, slot).await;
    };
    tracing::debug!(agent = name, thread_id = thread.id, run_id = stream.run_id, "run started");

    let upstream = agent.upstream;
    let about = About { thread_id: thread.id.clone(), run_id: stream.run_id.clone() };
    let reader = gateway.runs.start(upstream, server, &thread.id, &input.run_id, stream);
    let encoder = Encoder::new(wire, Projector::new(input.client(), input.held()));
    let body = RunBody::new(reader, encoder, &gateway.observer.metrics).holding(slot);
    Ok(streamed(wire, Body::new(body), about))
}

/// Starts the run that a request asks for, on a server of this kind; `None` if it asks for none.
///
/// Answers of one caller to a thread are started one after the other. LangGraph refuses an answer
/// while another run of the thread is under way, and that run may be the one that has just taken
/// the same answer elsewhere: the thread is looked at once more.
async fn begin(
    gateway: &Gateway,
    agent: &Agent,
    input: &Input,
    thread: &Thread<'_>,
) -> Result<Option<(RunStream, Option<ServerKind>)>, Reject> {
    let upstream = &agent.upstream;
    let _turn =
        if input.is_answer() { Some(gateway.turns.turn(upstream, &thread.id).await) } else { None };
    let mut may_look_again = true;
    loop {
        let Some(Planned { request, server, is_answer }) =
            plan(gateway, agent, input, thread).await?
        else {
            return Ok(None);
        };
        if gateway.shutdown.is_cancelled() {
            return Err(Reject::shutting_down());
        }
        match upstream.start_run(&thread.id, &request).await {
            Ok(stream) => return Ok(Some((stream, server))),
            Err(error) if error.is_thread_busy() && is_answer && may_look_again => {
                may_look_again = false;
            }
            Err(error) if error.is_unknown_assistant() => {
                return Err(Reject::unknown_assistant(agent));
            }
            Err(error) => return Err(gateway.refuse(&error, upstream)),
        }
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

/// A run to start.
struct Planned {
    request: RunRequest,
    /// For what kind of server.
    server: Option<ServerKind>,
    /// Whether it answers what its thread asks.
    is_answer: bool,
}

/// The run that a request asks for, given what its thread holds; `None` if the client is to see
/// the thread as it is.
async fn plan(
    gateway: &Gateway,
    agent: &Agent,
    input: &Input,
    thread: &Thread<'_>,
) -> Result<Option<Planned>, Reject> {
    let upstream = &agent.upstream;
    let answered_now = async || {
        let answered = runs::answered_now(upstream, &thread.id).await;
        answered.map_err(|error| gateway.refuse(&error, upstream))
    };
    // Before the state is read: a run that is not under way any more has made its state.
    let mut answered = if input.is_answer() { answered_now().await? } else { Vec::new() };
    let (body, server) =
        tokio::join!(upstream.thread_state(&thread.id), gateway.agents.server_kind(agent));
    let body = body.map_err(|error| gateway.refuse(&error, upstream))?;
    let mut state = match &body {
        Some(body) => Some(ThreadState::parse(body).ok_or_else(|| {
            Reject::not_langgraph("the LangGraph server's answer about the thread is no state")
        })?),
        None => None,
    };
    if let Some(state) = &mut state {
        if !input.is_answer() && !state.interrupts.is_empty() {
            answered = answered_now().await?;
        }
        // What a live run answers is not open any more, and the nodes that it runs are no
        // breakpoint's.
        state.interrupts.retain(|open| !answered.iter().any(|id| **id == *open.id));
        if !answered.is_empty() {
            state.next.clear();
        }
    }
    let keys = if Turn::needs_keys(input, state.as_ref()) {
        gateway.agents.input_keys(agent).await
    } else {
        InputKeys::Unknown.into()
    };
    let plan = Turn::plan(input, state.as_ref(), &keys, gateway.on_message)
        .map_err(|error| Reject::new(StatusCode::CONFLICT, "cannot_resume", error.to_string()))?;
    let turn = match plan {
        Plan::Start(turn) => turn.configured(input, &gateway.allowance),
        Plan::Present => return Ok(None),
    };
    let left_out = gateway.allowance.left_out(input);
    if left_out > 0 && gateway.left_out.is_due() {
        // Not their names, which are the client's.
        tracing::warn!(
            left_out,
            "a client set members of `configurable` that it may not set; `forward_configurable` \
             names those that it may"
        );
    }
    if let (None, Some(client_id)) = (&state, thread.client_id) {
        let created = upstream.create_thread(&thread.id, client_id).await;
        created.map_err(|error| gateway.refuse(&error, upstream))?;
    }
    let checkpoint = match &turn.fork_before {
        Some(message_id) => Some(
            runs::fork_point(upstream, &thread.id, message_id)
                .await
                .map_err(|error| cannot_fork(gateway, upstream, &error))?,
        ),
        None => None,
    };
    let is_answer = !turn.answers.is_empty();
    let request = turn.request(&agent.assistant, &input.run_id, checkpoint).on(server);
    Ok(Some(Planned { request, server, is_answer }))
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
