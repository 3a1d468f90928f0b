//! `GET /agui/info`: the agents, in the shape that CopilotKit's client reads; and
//! `GET /agui/agent/{agent}/capabilities`: what one of them can do.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;

use super::Gateway;
use super::reject::Reject;
use super::request::InPath;
use crate::agents::{Agent, InputKeys, Listed, Listing};
use crate::upstream::Caller;
use threadway_translate::agui::{self, AgentDescription, GatewayFeatures};
use threadway_translate::json::{self, Json, ObjectWriter, Text};

/// What CopilotKit calls the kind of an agent; it only shows it.
const CLASS_NAME: &str = "LangGraphAgent";

/// Told anew each time: agents come and go with their servers. An upstream that does not answer
/// is left out, unless none does.
pub(super) async fn info(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Reject> {
    let mut agents = ObjectWriter::new();
    let mut fault = None;
    let mut is_answered = false;
    // At the same time: CopilotKit's client waits 5 s for both.
    let (listings, has_threads) =
        tokio::join!(gateway.agents.list(&caller), gateway.thread_access.is_granted());
    for Listing { upstream, caller: asked_as, agents: listed } in listings {
        match listed {
            Ok(listed) => {
                is_answered = true;
                for agent in listed {
                    // Nothing is asked for this: a list that is read on every page load is cheap.
                    let found = gateway.agents.find(&agent.id, &caller).ok();
                    let offers = GatewayFeatures::of(
                        found.as_ref().map(|agent| agent.emit).unwrap_or_default(),
                    );
                    let keys = found.as_ref().and_then(Agent::known_input_keys);
                    let losses = found.as_ref().map(Agent::known_losses).unwrap_or_default();
                    let can = can(&agent, &keys.unwrap_or_default(), offers);
                    agents = agents.raw(&agent.id, told(&agent, &can, &losses).get());
                }
            }
            Err(error) => {
                // One that is away has its own line, once.
                if !error.is_unreachable() {
                    tracing::warn!(upstream, %error, "the agents of an upstream were not read");
                }
                fault = fault.or(Some((error, asked_as)));
            }
        }
    }
    if let Some((error, caller)) = fault.filter(|_| !is_answered) {
        return Err(Reject::upstream(&error, &caller, gateway.error_detail));
    }
    // Without a word of them CopilotKit's client asks for threads all the same.
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
    let body = format!("{}\n", info.finish().get());
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

/// What an agent can do, with what its server says of its graph.
///
/// An agent that the server does not show to the caller is one that is not there, as in a run.
pub(super) async fn capabilities(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    InPath(name): InPath<String>,
) -> Result<Response, Reject> {
    let agent = gateway.agent(&name, &caller)?;
    let Listing { upstream: _, caller: asked_as, agents } =
        gateway.agents.list_beside(&agent).await;
    let listed =
        agents.map_err(|error| Reject::upstream(&error, &asked_as, gateway.error_detail))?;
    let by_name = listed.iter().find(|listed| listed.id == name);
    let by_id = || listed.iter().find(|listed| listed.assistant_id == agent.assistant);
    let Some(listed) = by_name.or_else(by_id) else {
        return Err(Reject::unknown_assistant(&agent.assistant, &asked_as));
    };
    let keys = agent.input_keys().await;
    let body = format!("{}\n", can(listed, &keys, GatewayFeatures::of(agent.emit)).get());
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

/// CopilotKit's flags for the routes of threads. No change is pushed to clients.
fn thread_endpoints(has_threads: bool) -> Json {
    let has = if has_threads { "true" } else { "false" };
    ObjectWriter::new()
        .raw("list", has)
        .raw("inspect", has)
        .raw("mutations", has)
        .raw("realtimeMetadata", "false")
        .finish()
}

/// The one value of what an agent can do.
fn can(agent: &Listed, keys: &InputKeys, offers: GatewayFeatures) -> Json {
    let Listed { id: _, name, description, graph_id, assistant_id: _ } = agent;
    let description = description.as_deref();
    agui::capabilities(&AgentDescription { name, description, graph_id, keys }, offers)
}

/// What does not reach the agent stands under a name of our own, which CopilotKit's client passes
/// over.
fn told(agent: &Listed, capabilities: &Json, losses: &[String]) -> Json {
    let Listed { id: _, name, description, graph_id: _, assistant_id: _ } = agent;
    let told = ObjectWriter::new()
        .string("name", name)
        .string("className", CLASS_NAME)
        .string("description", description.as_deref().unwrap_or_default())
        .raw("capabilities", capabilities.get());
    if losses.is_empty() {
        return told.finish();
    }
    let quoted = |loss: &String| format!("\"{}\"", Text::new(loss).escaped());
    let losses: Vec<_> = losses.iter().map(quoted).collect();
    let warnings = json::array(losses.iter().map(String::as_str));
    let ours = ObjectWriter::new().raw("warnings", warnings.get()).finish();
    told.raw("threadway", ours.get()).finish()
}
