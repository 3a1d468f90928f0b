//! A turn on a socket.

use std::future::pending;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;

use super::OpenedWebSocket;
use super::message::{HandledMessage, PendingAnswer, SocketMessage, on_socket};
use crate::metrics::{Charge, Full, Route};
use crate::server::body::expect_message;
use crate::server::gateway::RequestContext;
use crate::server::limits::rates;
use crate::server::observe::OpenSpan;
use crate::server::observe::request_log::{AuditedAction, RequestFacts};
use crate::server::reject::Reject;
use crate::server::service::input::{InputRequest, Viewing};
use crate::server::service::run::{self, RunIntent};
use crate::server::service::stop::stop_thread;
use crate::server::streams::frames::{EncodedEvent, EventFrames};
use crate::server::streams::last_event::LastEvent;
use crate::server::streams::wire::Wire;

/// A turn, from its message to the end of its stream.
pub(super) struct ActiveTurn {
    progress: Progress,
    pub(super) wanted: RunIntent,
    /// Whether its client was sent any of its events.
    pub(super) has_sent: bool,
}

/// The events of a turn. Its span ends with them.
type TurnEvents = (EventFrames, Option<OpenSpan>);

enum Progress {
    Requested(PendingAnswer<TurnEvents>),
    Streaming(Box<TurnEvents>),
}

/// What a turn does next.
pub(super) enum TurnStep {
    Refused(Reject),
    Events(Vec<EncodedEvent>),
    Over,
}

/// What a turn asks for.
pub(super) struct TurnRequest {
    /// A `RunAgentInput`.
    pub(super) input: Bytes,
    /// The charge of the message.
    pub(super) charge: Charge,
    pub(super) last: LastEvent,
    pub(super) wanted: RunIntent,
}

// === impl ActiveTurn ===

impl ActiveTurn {
    /// Begins a turn on a socket.
    pub(super) fn begin(opened: &OpenedWebSocket, ask: TurnRequest) -> Self {
        let OpenedWebSocket { gateway, agent, wire, opening, .. } = opened;
        let (agent, wire, wanted) = (agent.clone(), *wire, ask.wanted);
        let path = "/agui/agent/{agent}/run";
        let facts = RequestFacts { action: Some(AuditedAction::Run), ..facts(&agent) };
        let answer = message(Route::Run, path, facts);
        let handle = move |context| turn(context, agent, wire, ask);
        let gateway = Arc::clone(&gateway.borrow());
        let events = Box::pin(on_socket(gateway, opening.clone(), answer, handle));
        Self { progress: Progress::Requested(events), wanted, has_sent: false }
    }
}

/// Stops the live run of a thread, as the stop route does. `body` is what that route takes.
pub(super) fn stop(opened: &OpenedWebSocket, thread_id: String, body: String) -> PendingAnswer<()> {
    let OpenedWebSocket { gateway, agent, opening, .. } = opened;
    let (agent, opening) = (agent.clone(), opening.clone());
    let gateway = Arc::clone(&gateway.borrow());
    let path = "/agui/agent/{agent}/stop/{thread}";
    let thread = Some(thread_id.clone());
    let facts = RequestFacts { action: Some(AuditedAction::Stop), thread, ..facts(&agent) };
    Box::pin(async move {
        let handle = async |context: RequestContext| {
            let (_, ids) = stop_thread(&context, &agent, &thread_id, body.as_bytes()).await?;
            Ok(HandledMessage { answer: (), ids: Some(ids), was_asked: true })
        };
        on_socket(gateway, opening, message(Route::Stop, path, facts), handle).await.map(drop)
    })
}

fn facts(agent: &str) -> RequestFacts {
    RequestFacts { agent: Some(agent.to_owned()), ..RequestFacts::default() }
}

fn message(route: Route, path: &'static str, facts: RequestFacts) -> SocketMessage {
    SocketMessage { route, path, charge: rates::Charge::Request, done: StatusCode::OK, facts }
}

/// Starts the run of a turn, or reads the rest of one.
async fn turn(
    context: RequestContext,
    agent: String,
    wire: Wire,
    ask: TurnRequest,
) -> Result<HandledMessage<EventFrames>, Reject> {
    let TurnRequest { input, charge, last, wanted } = ask;
    expect_message(&context, input.len(), context.gateway.limits.body_bytes).await?;
    let viewing = Viewing { last, is_inspected: false };
    let body = (&*input, charge);
    let request = InputRequest::parse(&context, &agent, body, run::action, viewing, |_| Ok(wire))?;
    let stream = Box::pin(run::start(&context, &request, wanted)).await?;
    let ids = Some(stream.ids.clone());
    let answer = stream.into_frames(&context.gateway.observer.metrics).await?;
    Ok(HandledMessage { answer, ids, was_asked: true })
}

/// Waits for the next step of a turn; for ever without a turn. May be dropped while it waits.
pub(super) async fn next_step(turn: &mut Option<ActiveTurn>) -> TurnStep {
    let Some(turn) = turn else { return pending().await };
    if let Progress::Requested(answer) = &mut turn.progress {
        match answer.await {
            Ok(events) => turn.progress = Progress::Streaming(Box::new(events)),
            Err(reject) => return TurnStep::Refused(reject),
        }
    }
    let Progress::Streaming(events) = &mut turn.progress else { return pending().await };
    match events.0.next().await {
        Some(Ok(events)) => TurnStep::Events(events),
        Some(Err(Full::Share | Full::Budget)) => TurnStep::Refused(Reject::no_room_for_rest()),
        None => TurnStep::Over,
    }
}

/// Waits for the answer to an abort; for ever if none is pending.
pub(super) async fn next_answer(stopping: &mut Option<PendingAnswer<()>>) -> Result<(), Reject> {
    match stopping {
        Some(stopping) => stopping.await,
        None => pending().await,
    }
}
