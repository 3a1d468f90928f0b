//! What run and connect do first: read a `RunAgentInput`, and find the agent and the thread that it
//! names.

use crate::metrics::Charge;
use crate::offload::offload;
use crate::server::gateway::RequestContext;
use crate::server::limits::rates::StreamSlot;
use crate::server::observe::RunIds;
use crate::server::observe::request_log::AuditedAction;
use crate::server::reject::Reject;
use crate::server::request::thread_name::expect_short;
use crate::server::streams::encoder::Encoder;
use crate::server::streams::event_stream::EventStream;
use crate::server::streams::last_event::LastEvent;
use crate::server::streams::wire::Wire;
use crate::threads::{Thread, ThreadReader};
use threadway_translate::agui::{Input, Version};

/// A request with a `RunAgentInput`, whose agent the caller may use.
pub(in crate::server) struct InputRequest {
    pub(in crate::server) input: Input,
    pub(in crate::server) thread: Thread,
    /// The framing of its events.
    pub(in crate::server) wire: Wire,
    /// The last event that the client names outside of its input.
    pub(in crate::server) last: LastEvent,
    /// Whether the page's inspector sent it, and is sent LangGraph's parts too.
    is_inspected: bool,
    /// For what is kept of the body.
    _charge: Charge,
}

/// How the client of a `RunAgentInput` reads events.
#[derive(Clone, Debug)]
pub(in crate::server) struct Viewing {
    pub(in crate::server) last: LastEvent,
    /// Whether the page's inspector sent the request.
    pub(in crate::server) is_inspected: bool,
}

// === impl InputRequest ===

impl InputRequest {
    /// Reads an input. `action` is what the audit log calls the request, and `wire` chooses the
    /// framing by the version of AG-UI that the input names.
    pub(in crate::server) fn parse(
        context: &RequestContext,
        agent: &str,
        (input, charge): (&[u8], Charge),
        action: fn(&Input) -> AuditedAction,
        Viewing { last, is_inspected }: Viewing,
        wire: impl FnOnce(Version) -> Result<Wire, Reject>,
    ) -> Result<Self, Reject> {
        let input = offload(input.len(), || Input::parse(input))
            .map_err(|error| Reject::invalid(error.to_string()))?;
        expect_short("threadId", &input.thread_id)?;
        expect_short("runId", &input.run_id)?;
        expect_short("parentRunId", input.parent_run_id.as_deref().unwrap_or_default())?;
        let audited = offload(input.bytes, || action(&input));
        context.record.note(|facts| {
            facts.action = Some(audited);
            facts.thread = Some(input.thread_id.clone());
        });
        let wire = wire(input.version)?;
        let agent = context.agent_inspected(agent, is_inspected)?;
        let thread = context.thread(agent, &input.thread_id)?;
        Ok(Self { input, thread, wire, last, is_inspected, _charge: charge })
    }

    /// The stream that answers this request.
    pub(in crate::server) fn stream(
        &self,
        context: &RequestContext,
        reader: ThreadReader,
        encoder: Encoder,
        slot: StreamSlot,
    ) -> EventStream {
        let encoder = encoder.with_comments(self.is_inspected && self.thread.agent().emit.raw);
        let (ids, answers) = (RunIds::of(&self.thread), context.answers());
        EventStream { reader, encoder, slot, ids, answers }
    }
}
