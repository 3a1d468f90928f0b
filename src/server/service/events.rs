//! Connects to a thread without an input: its live run, or every later one too.

use super::connect::{self, ConnectMode, ConnectResponse};
use crate::server::gateway::RequestContext;
use crate::server::observe::RunIds;
use crate::server::reject::Reject;
use crate::server::request::thread_name;
use crate::server::streams::event_stream::EventStream;
use crate::server::streams::last_event::LastEvent;
use crate::server::streams::wire::Wire;
use crate::threads::AtShutdown;
use threadway_translate::agui::{ClientMessages, Projector};

/// What a client reads of a thread.
pub(in crate::server) struct ThreadReadRequest<'a> {
    /// The client's name for the agent.
    pub(in crate::server) agent: &'a str,
    pub(in crate::server) client_thread: &'a str,
    pub(in crate::server) scope: ConnectMode,
    pub(in crate::server) last: LastEvent,
    pub(in crate::server) wire: Wire,
    /// Whether the page's inspector reads it, and is sent LangGraph's parts too.
    pub(in crate::server) is_inspected: bool,
}

/// Connects a client to a thread. At a shutdown its stream is broken off.
pub(in crate::server) async fn events(
    context: &RequestContext,
    asked: ThreadReadRequest<'_>,
) -> Result<ConnectResponse, Reject> {
    let ThreadReadRequest { agent, client_thread, scope, last, wire, is_inspected } = asked;
    let agent = context.agent_inspected(agent, is_inspected)?;
    let thread = context.thread(agent, client_thread)?;
    if last.is_end() && scope == ConnectMode::Once {
        return connect::no_more_events(context, &thread).await;
    }
    let slot = context.slot()?;
    let reader = connect::read(context, &thread, scope, &last).await?;
    let emit = thread.agent().emit;
    let for_new = |client| Projector::new(client, ClientMessages::Unknown);
    let encoder = last
        .encoder(wire, thread_name::viewer(client_thread), emit, for_new)
        .with_comments(is_inspected && emit.raw);
    let reader = reader.at_shutdown(AtShutdown::BreakOff);
    let (ids, answers) = (RunIds::of(&thread), context.answers());
    let stream = EventStream { reader, encoder, slot, ids, answers };
    Ok(ConnectResponse::Events(Box::new(stream)))
}
