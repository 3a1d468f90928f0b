//! What run and connect do first: read a `RunAgentInput`, and find the agent and the thread that it
//! names.

use axum::extract::Request;

use super::accept::EventsRequest;
use super::body::read_json;
use super::thread_name::expect_short;
use crate::metrics::Charge;
use crate::offload::offload;
use crate::server::gateway::Call;
use crate::server::limits::rates::StreamSlot;
use crate::server::observe::RunIds;
use crate::server::observe::request_log::{self, Action};
use crate::server::reject::Reject;
use crate::server::streams::encoder::Encoder;
use crate::server::streams::event_stream::EventStream;
use crate::threads::{Thread, ThreadReader};
use threadway_translate::agui::Input;

/// A request with a `RunAgentInput`, whose agent the caller may use.
pub(in crate::server) struct InputRequest {
    pub(in crate::server) events: EventsRequest,
    pub(in crate::server) input: Input,
    pub(in crate::server) thread: Thread,
    /// Whether the page's inspector sent it, and is sent LangGraph's parts too.
    is_inspected: bool,
    /// For what is kept of the body.
    _charge: Charge,
}

// === impl InputRequest ===

impl InputRequest {
    /// Reads a request whose body is the input. `action` is what the audit log calls it.
    pub(in crate::server) async fn read(
        call: &Call,
        agent: &str,
        request: Request,
        action: fn(&Input) -> Action,
    ) -> Result<Self, Reject> {
        let (parts, body) = request.into_parts();
        let events = EventsRequest::of(parts)?;
        let body = read_json(call, &events.headers, body, call.gateway.limits.body_bytes).await?;
        let (bytes, charge) = body.into_parts();
        Self::parse(call, agent, events, (&bytes, charge), action)
    }

    /// Reads an input that was taken out of a request's body.
    pub(in crate::server) fn parse(
        call: &Call,
        agent: &str,
        events: EventsRequest,
        (input, charge): (&[u8], Charge),
        action: fn(&Input) -> Action,
    ) -> Result<Self, Reject> {
        let input = offload(input.len(), || Input::parse(input))
            .map_err(|error| Reject::invalid(error.to_string()))?;
        expect_short("threadId", &input.thread_id)?;
        expect_short("runId", &input.run_id)?;
        expect_short("parentRunId", input.parent_run_id.as_deref().unwrap_or_default())?;
        let audited = offload(input.bytes, || action(&input));
        request_log::note(|facts| {
            facts.action = Some(audited);
            facts.thread = Some(input.thread_id.clone());
        });
        let events = events.of_version(input.version)?;
        let is_inspected = call.gateway.page.inspects(events.query());
        let agent = call.agent_inspected(agent, is_inspected)?;
        let thread = call.thread(agent, &input.thread_id)?;
        Ok(Self { events, input, thread, is_inspected, _charge: charge })
    }

    /// The stream that answers this request.
    pub(in crate::server) fn stream(
        &self,
        call: &Call,
        reader: ThreadReader,
        encoder: Encoder,
        slot: StreamSlot,
    ) -> EventStream {
        let encoder = encoder.with_comments(self.is_inspected && self.thread.agent().emit.raw);
        let (ids, answers) = (RunIds::of(&self.thread), call.answers());
        EventStream { reader, encoder, slot, ids, answers }
    }
}
