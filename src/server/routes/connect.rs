//! `POST /agui/agent/{agent}/connect`: sends a thread as it is, then its live run.
//!
//! A client that sends the id of its last event gets the events after it, or starts over: the first
//! event is `RUN_STARTED` then. After a run's last event the server answers 204, since an
//! `EventSource` would reconnect for ever.

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::metrics::Resume;
use crate::offload::offload;
use crate::server::gateway::Call;
use crate::server::limits::rates::StreamSlot;
use crate::server::observe::request_log::Action;
use crate::server::reject::Reject;
use crate::server::request::input::InputRequest;
use crate::server::request::last_event::LastEvent;
use crate::server::request::query::InPath;
use crate::threads::{Thread, ThreadReader};
use threadway_translate::agui::{Input, Projector};

/// How much of a thread a client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// The thread as it is, and its live run to the end.
    Present,
    /// The same, and every later run and change.
    Follow,
}

pub(in crate::server) async fn connect(
    call: Call,
    InPath(name): InPath<String>,
    request: Request,
) -> Result<Response, Reject> {
    connect_to(&call, &InputRequest::read(&call, &name, request, action).await?).await
}

/// What the audit log calls a connect.
pub(super) fn action(_: &Input) -> Action {
    Action::Connect
}

/// Connects the client of a request to the thread that it names.
pub(super) async fn connect_to(call: &Call, request: &InputRequest) -> Result<Response, Reject> {
    let last = match LastEvent::of_header(&request.events.headers) {
        Some(last) if last != LastEvent::None => last,
        _ => {
            let input = &request.input;
            offload(input.bytes, || LastEvent::parse(input.last_event_id().as_deref()))
        }
    };
    if last.is_end() {
        return no_more_events(call, &request.thread).await;
    }
    let slot = call.slot()?;
    show(call, request, &last, slot).await
}

/// Sends a client its thread as it is, and the thread's live run.
pub(super) async fn show(
    call: &Call,
    request: &InputRequest,
    last: &LastEvent,
    slot: StreamSlot,
) -> Result<Response, Reject> {
    let InputRequest { events, input, thread, .. } = request;
    let reader = read(call, thread, Scope::Present, last).await?;
    let for_new = |client| Projector::new(client, input.held());
    let encoder = last.encoder(events.wire(), input.viewer(), thread.agent().emit, for_new);
    let stream = request.stream(call, reader, encoder, slot);
    Box::pin(events.respond(&call.gateway.observer.metrics, stream)).await
}

/// A reader of a thread, which begins after the client's last event.
pub(super) async fn read(
    call: &Call,
    thread: &Thread,
    scope: Scope,
    last: &LastEvent,
) -> Result<ThreadReader, Reject> {
    tracing::debug!(thread_id = thread.id(), ?scope, ?last, "a client connects to a thread");
    let reader = match scope {
        Scope::Present => thread.of_known_agent(thread.connect(last.known())).await,
        Scope::Follow => thread.of_known_agent(thread.follow(last.known())).await,
    };
    if *last == LastEvent::Unknown {
        call.gateway.observer.metrics.resumed(Resume::StartOver);
    }
    reader.map_err(|refusal| call.refuse_read(&refusal, thread))
}

/// The response to a client that has the end of its run: 204, if it may see the thread.
pub(super) async fn no_more_events(call: &Call, thread: &Thread) -> Result<Response, Reject> {
    let checked = thread.of_known_agent(thread.check_visibility()).await;
    checked.map_err(|refusal| call.refuse_read(&refusal, thread))?;
    call.gateway.observer.metrics.resumed(Resume::Ended);
    Ok(StatusCode::NO_CONTENT.into_response())
}
