//! What clients can ask of an agent or a thread, in terms of no transport.
//!
//! - [`run`], [`connect`]: streams of events. [`input`]: the `RunAgentInput` that both begin with.
//! - [`events`]: a stream without an input. [`many`]: one of many threads. [`stop`]: stops a run.
//! - [`info`]: the agents. [`threads`]: lists, changes and inspects threads.
//! - [`tanstack`]: loads a thread and joins a run, for `TanStack` AI's client.

pub(in crate::server) mod connect;
pub(in crate::server) mod events;
pub(in crate::server) mod info;
pub(in crate::server) mod input;
pub(in crate::server) mod many;
pub(in crate::server) mod run;
pub(in crate::server) mod stop;
pub(in crate::server) mod tanstack;
pub(in crate::server) mod threads;

use bytes::Bytes;

use super::gateway::RequestContext;
use super::reject::Reject;
use crate::offload::offload;
use threadway_translate::json::Json;

/// A JSON document that may be as large as a thread, and a line break. Its bytes are held as an
/// unread answer.
fn held_json(context: &RequestContext, document: &Json) -> Result<Bytes, Reject> {
    let answers = context.answers();
    let document = document.get();
    Ok(offload(document.len(), || answers.hold(format!("{document}\n").into()))?)
}

/// A boolean as JSON.
pub(in crate::server) fn bool_json(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}
