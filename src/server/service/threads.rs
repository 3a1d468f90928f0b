//! The threads of an agent, for CopilotKit's client.
//!
//! - [`list`](mod@list): a page of the threads on which an agent ran last.
//! - [`change`](mod@change): names, archives and deletes a thread.
//! - [`inspect`](mod@inspect): reads what a thread contains.
//!
//! LangGraph gets every request with the caller's own credentials.

pub(in crate::server) mod change;
pub(in crate::server) mod inspect;
pub(in crate::server) mod list;

use crate::agents::Agent;
use crate::server::gateway::RequestContext;
use crate::server::reject::Reject;

/// The agent of this name, if the caller may list its threads.
pub(super) async fn permitted(context: &RequestContext, name: &str) -> Result<Agent, Reject> {
    let agent = context.agent(name)?;
    context.gateway.thread_access.expect(&agent.upstream).await?;
    Ok(agent)
}

pub(in crate::server) fn no_agent() -> Reject {
    Reject::invalid("`agentId` is missing; name the agent whose threads are meant")
}
