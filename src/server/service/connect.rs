//! Sends a thread as it is, then its live run.
//!
//! A client that sends the id of its last event gets the events after it, or starts over: the first
//! event is `RUN_STARTED` then. After a run's last event there are no more.

use crate::metrics::Resume;
use crate::offload::offload;
use crate::server::gateway::RequestContext;
use crate::server::limits::rates::StreamSlot;
use crate::server::observe::request_log::AuditedAction;
use crate::server::reject::Reject;
use crate::server::service::input::InputRequest;
use crate::server::streams::event_stream::EventStream;
use crate::server::streams::last_event::LastEvent;
use crate::threads::{Thread, ThreadReader};
use threadway_translate::agui::{Input, Projector};

/// How much of a thread a client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum ConnectMode {
    /// The thread as it is, and its live run to the end.
    Once,
    /// The same, and every later run and change.
    Follow,
}

/// What the audit log calls a connect.
pub(in crate::server) fn action(_: &Input) -> AuditedAction {
    AuditedAction::Connect
}

/// What a client gets that may see the thread.
pub(in crate::server) enum ConnectResponse {
    Events(Box<EventStream>),
    /// It has the end of its run.
    NoMoreEvents,
}

/// Connects the client of a request to the thread that it names.
pub(in crate::server) async fn connect_to(
    context: &RequestContext,
    request: &InputRequest,
) -> Result<ConnectResponse, Reject> {
    let mut last = request.last.clone();
    if last == LastEvent::None {
        let input = &request.input;
        last = offload(input.bytes, || LastEvent::parse(input.last_event_id().as_deref()));
    }
    if last.is_end() {
        return no_more_events(context, &request.thread).await;
    }
    let slot = context.slot()?;
    show(context, request, &last, slot)
        .await
        .map(|stream| ConnectResponse::Events(Box::new(stream)))
}

/// Sends a client its thread as it is, and the thread's live run.
pub(super) async fn show(
    context: &RequestContext,
    request: &InputRequest,
    last: &LastEvent,
    slot: StreamSlot,
) -> Result<EventStream, Reject> {
    let InputRequest { input, thread, wire, .. } = request;
    let reader = read(context, thread, ConnectMode::Once, last).await?;
    let for_new = |client| Projector::new(client, input.held());
    let encoder = last.encoder(*wire, input.viewer(), thread.agent().emit, for_new);
    Ok(request.stream(context, reader, encoder, slot))
}

/// A reader of a thread, which begins after the client's last event.
pub(super) async fn read(
    context: &RequestContext,
    thread: &Thread,
    scope: ConnectMode,
    last: &LastEvent,
) -> Result<ThreadReader, Reject> {
    tracing::debug!(thread_id = thread.id(), ?scope, ?last, "a client connects to a thread");
    let reader = match scope {
        ConnectMode::Once => thread.of_known_agent(thread.connect(last.known())).await,
        ConnectMode::Follow => thread.of_known_agent(thread.follow(last.known())).await,
    };
    if *last == LastEvent::Unknown {
        context.gateway.observer.metrics.resumed(Resume::StartOver);
    }
    reader.map_err(|refusal| context.refuse_read(&refusal, thread))
}

/// Answers a client that has the end of its run, if it may see the thread.
pub(super) async fn no_more_events(
    context: &RequestContext,
    thread: &Thread,
) -> Result<ConnectResponse, Reject> {
    let checked = thread.of_known_agent(thread.check_visibility()).await;
    checked.map_err(|refusal| context.refuse_read(&refusal, thread))?;
    context.gateway.observer.metrics.resumed(Resume::Ended);
    Ok(ConnectResponse::NoMoreEvents)
}
