//! Starts a run and streams it.

use super::connect;
use crate::server::gateway::{Gateway, RequestContext};
use crate::server::observe::request_log::AuditedAction;
use crate::server::reject::Reject;
use crate::server::service::input::InputRequest;
use crate::server::streams::encoder::Encoder;
use crate::server::streams::event_stream::EventStream;
use crate::server::streams::last_event::LastEvent;
use crate::threads::ThreadReader;
use threadway_translate::agui::{Input, Projector, RequestPlanner};

/// What the audit log calls a run.
pub(in crate::server) fn action(input: &Input) -> AuditedAction {
    if input.is_answer() { AuditedAction::Resume } else { AuditedAction::Run }
}

/// What the client of a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum RunIntent {
    Run,
    /// The rest of a run. None may be started.
    Replay,
}

/// Starts the run that a request asks for. If the client repeats a request, it gets the rest of the
/// run that the first one has started.
pub(in crate::server) async fn start(
    context: &RequestContext,
    request: &InputRequest,
    wanted: RunIntent,
) -> Result<EventStream, Reject> {
    let InputRequest { input, thread, wire, .. } = request;
    let gateway = &*context.gateway;
    let slot = context.slot()?;
    let started = started_before(context, request);
    if let Some((reader, encoder)) = Box::pin(started).await? {
        context.record.note(|facts| facts.action = Some(AuditedAction::Connect));
        return Ok(request.stream(context, reader, encoder, slot));
    }
    if wanted == RunIntent::Replay {
        return Err(Reject::unknown_run());
    }
    let asking = RequestPlanner {
        input,
        on_message: gateway.on_message,
        allowance: &gateway.allowance,
        emit: thread.agent().emit,
        messages_key: thread.agent().upstream.messages_key(),
    };
    let begun = Box::pin(thread.ask(&asking)).await;
    let Some(reader) = begun.map_err(|refusal| context.refuse_start(&refusal, thread))? else {
        return connect::show(context, request, &LastEvent::None, slot).await;
    };
    warn_of_disallowed(gateway, input);
    let run_id = reader.run_id().as_deref().map(str::to_owned);
    let encoder = Encoder::new(*wire, Projector::new(input.client(), input.held()));
    let mut stream = request.stream(context, reader, encoder, slot);
    stream.ids.run_id = run_id;
    Ok(stream)
}

/// The rest of the run that an earlier copy of this request has started, for a client that lost the
/// response. Returns `None` if the request has no `Last-Event-ID`, or if the thread has no such
/// run; a run is started then.
///
/// Only the header decides. An application may set `forwardedProps` once for all its requests, and
/// CopilotKit sends several runs under one `runId`.
async fn started_before(
    context: &RequestContext,
    request: &InputRequest,
) -> Result<Option<(ThreadReader, Encoder)>, Reject> {
    let InputRequest { input, thread, wire, last, .. } = request;
    if *last == LastEvent::None {
        return Ok(None);
    }
    let found = thread.read_again(last.known(), &input.run_id).await;
    let reader = found.map_err(|refusal| context.refuse_read(&refusal, thread))?;
    tracing::debug!(
        thread_id = thread.id(),
        ?last,
        is_found = reader.is_some(),
        "a client repeated its request for a run"
    );
    let encoder = Encoder::resuming(*wire, input.viewer(), thread.agent().emit);
    Ok(reader.map(|reader| (reader, encoder)))
}

/// Logs that a client has set something of its run's configuration that it may not set.
fn warn_of_disallowed(gateway: &Gateway, input: &Input) {
    let left_out = gateway.allowance.left_out(input);
    if left_out > 0 && gateway.disallowed_log.is_due() {
        // The client chose the names of the members, so they are not logged.
        tracing::warn!(
            left_out,
            "a client set members of `configurable` that it may not set; they were left out. To \
             allow them, name them in `forward_configurable`"
        );
    }
    if gateway.allowance.leaves_multitask_out(input) && gateway.disallowed_log.is_due() {
        tracing::warn!(
            "a client asked for a `multitaskStrategy` that it may not ask for; it was left out. To \
             allow it, name it in `forward_multitask_strategies`"
        );
    }
}
