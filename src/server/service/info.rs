//! The agents, in the form that CopilotKit's client reads, and what one agent can do.

use super::bool_json;
use crate::agents::{Agent, InputKeys, ListedAgent, Listing};
use crate::server::gateway::RequestContext;
use crate::server::reject::Reject;
use threadway_translate::agui::{self, AgentDescription, GatewayFeatures};
use threadway_translate::json::{self, Json, ObjectWriter, Text};

/// CopilotKit's name for the kind of an agent, which its client only displays.
const CLASS_NAME: &str = "LangGraphAgent";

/// Lists the agents. The upstreams are asked each time, since agents change with their servers. The
/// agents of an upstream that does not answer are left out, and `missingUpstreams` names it. If none
/// answers, the request fails.
pub(in crate::server) async fn info(context: &RequestContext) -> Result<Json, Reject> {
    let (gateway, caller) = (&*context.gateway, &context.caller);
    let mut agents = ObjectWriter::new();
    let mut missing = ObjectWriter::new();
    let mut fault = None;
    let mut is_answered = false;
    // Both at the same time, since CopilotKit's client waits 5 s at most.
    let (listings, has_threads) =
        tokio::join!(gateway.agents.list(caller), gateway.thread_access.is_granted());
    for Listing { upstream, caller: asked_as, agents: listed } in listings {
        match listed {
            Ok(listed) => {
                is_answered = true;
                for agent in listed {
                    // Only what is known already: every page load reads this list, so it sends no
                    // further requests.
                    let found = gateway.agents.find(&agent.id, caller).ok();
                    let offers = GatewayFeatures::of(
                        found.as_ref().map(|agent| agent.emit).unwrap_or_default(),
                    );
                    let keys = found.as_ref().and_then(Agent::known_input_keys);
                    let losses = found.as_ref().map(Agent::known_losses).unwrap_or_default();
                    let can = capabilities_json(&agent, &keys.unwrap_or_default(), offers);
                    agents = agents.raw(&agent.id, agent_json(&agent, &can, &losses).get());
                }
            }
            Err(error) => {
                // An unreachable upstream is logged elsewhere, once.
                if !error.was_not_sent() {
                    tracing::warn!(upstream, %error, "the agents of an upstream could not be listed");
                }
                missing = missing.string(&upstream, error.answer().as_str());
                fault = fault.or(Some((error, asked_as)));
            }
        }
    }
    let is_partial = fault.is_some();
    if let Some((error, caller)) = fault.filter(|_| !is_answered) {
        return Err(context.upstream_failed(&error, &caller).logged());
    }
    // If `threadEndpoints` is missing, CopilotKit's client requests threads all the same.
    let endpoints = thread_endpoints(has_threads);
    let single_route = ObjectWriter::new()
        .raw("resourceOperations", "true")
        .raw("threadEndpoints", endpoints.get())
        .finish();
    let info = ObjectWriter::new()
        .string("version", env!("CARGO_PKG_VERSION"))
        .raw("agents", agents.finish().get())
        .raw("audioFileTranscriptionEnabled", "false")
        .string("mode", "sse")
        .raw("threadEndpoints", endpoints.get())
        .raw("singleRoute", single_route.get());
    let info = if is_partial { info.raw("missingUpstreams", missing.finish().get()) } else { info };
    Ok(info.finish())
}

/// Describes an agent, with what its server says of its graph. An agent that the server does not
/// show to the caller is unknown, as it is to a run.
pub(in crate::server) async fn capabilities(
    context: &RequestContext,
    name: &str,
) -> Result<Json, Reject> {
    let agent = context.agent(name)?;
    let Listing { upstream: _, caller: asked_as, agents } =
        context.gateway.agents.list_beside(&agent).await;
    let listed = agents.map_err(|error| context.upstream_failed(&error, &asked_as))?;
    let by_name = listed.iter().find(|listed| listed.id == name);
    let by_id = || listed.iter().find(|listed| listed.assistant_id == agent.assistant);
    let Some(listed) = by_name.or_else(by_id) else {
        return Err(Reject::unknown_assistant(&agent.assistant, &asked_as));
    };
    let keys = agent.input_keys().await;
    Ok(capabilities_json(listed, &keys, GatewayFeatures::of(agent.emit)))
}

/// CopilotKit's flags for the routes of threads. Changes are not pushed to clients.
fn thread_endpoints(has_threads: bool) -> Json {
    let has = bool_json(has_threads);
    ObjectWriter::new()
        .raw("list", has)
        .raw("inspect", has)
        .raw("mutations", has)
        .raw("realtimeMetadata", "false")
        .finish()
}

fn capabilities_json(agent: &ListedAgent, keys: &InputKeys, offers: GatewayFeatures) -> Json {
    let ListedAgent { id: _, name, description, graph_id, assistant_id: _, is_of_graph: _ } = agent;
    let description = description.as_deref();
    agui::capabilities(&AgentDescription { name, description, graph_id, keys }, offers)
}

/// An agent as CopilotKit's client reads it. Inputs that do not reach the agent are listed under a
/// member of the gateway's own, `threadway`, which that client ignores.
fn agent_json(agent: &ListedAgent, capabilities: &Json, losses: &[String]) -> Json {
    let ListedAgent { id: _, name, description, graph_id: _, assistant_id: _, is_of_graph: _ } =
        agent;
    let json = ObjectWriter::new()
        .string("name", name)
        .string("className", CLASS_NAME)
        .string("description", description.as_deref().unwrap_or_default())
        .raw("capabilities", capabilities.get());
    if losses.is_empty() {
        return json.finish();
    }
    let quoted = |loss: &String| format!("\"{}\"", Text::new(loss).escaped());
    let losses: Vec<_> = losses.iter().map(quoted).collect();
    let warnings = json::array(losses.iter().map(String::as_str));
    let ours = ObjectWriter::new().raw("warnings", warnings.get()).finish();
    json.raw("threadway", ours.get()).finish()
}
