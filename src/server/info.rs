//! `GET /agui/info`: the agents, in the shape that CopilotKit's client reads.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;

use super::Gateway;
use super::reject::Reject;
use crate::agents::{Listed, Listing};
use crate::json::{Json, ObjectWriter};
use crate::upstream::Caller;

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
    for Listing { upstream, caller, agents: listed } in gateway.agents.list(&caller).await {
        match listed {
            Ok(listed) => {
                is_answered = true;
                for agent in listed {
                    agents = agents.raw(&agent.id, told(&agent).get());
                }
            }
            Err(error) => {
                tracing::warn!(upstream, %error, "the agents of an upstream were not read");
                fault = fault.or(Some((error, caller)));
            }
        }
    }
    if let Some((error, caller)) = fault.filter(|_| !is_answered) {
        return Err(Reject::upstream(&error, &caller, gateway.error_detail));
    }
    let info = ObjectWriter::new()
        .string("version", env!("CARGO_PKG_VERSION"))
        .raw("agents", agents.finish().get())
        .raw("audioFileTranscriptionEnabled", "false")
        .string("mode", "sse");
    let body = format!("{}\n", info.finish().get());
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

fn told(agent: &Listed) -> Json {
    let Listed { id: _, name, description, graph_id: _ } = agent;
    ObjectWriter::new()
        .string("name", name)
        .string("className", CLASS_NAME)
        .string("description", description.as_deref().unwrap_or_default())
        .finish()
}
