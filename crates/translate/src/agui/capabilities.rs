//! What an agent can do, as AG-UI 1.0's `AgentCapabilities`.
//!
//! Only certain facts are declared: what the gateway does by itself, what its options disable, and
//! what the graph's schema shows. A capability that depends on the model or on the graph's code is
//! left out, which means unknown in AG-UI. Examples are tool calls, reasoning, images and
//! approvals.

use super::client_keys::takes_client_tools;
use crate::json::{Json, ObjectWriter};
use crate::langgraph::InputKeys;
use crate::run::{EmitOptions, StateEvents};

/// The optional features of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayFeatures {
    /// How the state is sent.
    pub state: StateSupport,
    /// Whether reasoning is sent.
    pub reasoning: bool,
    /// Whether AG-UI is served over WebSocket.
    pub websocket: bool,
    /// Whether AG-UI's binary form is served.
    pub http_binary: bool,
}

/// How the state is sent to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateSupport {
    /// As snapshots, with deltas between them.
    SnapshotsAndDeltas,
    /// As snapshots only.
    Snapshots,
    /// Not at all.
    Nothing,
}

/// What is known of an agent.
#[derive(Clone, Copy, Debug)]
pub struct AgentDescription<'a> {
    /// The name for people.
    pub name: &'a str,
    /// The description for people.
    pub description: Option<&'a str>,
    /// The id of its graph.
    pub graph_id: &'a str,
    /// The keys of the graph's input, as far as they are known.
    pub keys: &'a InputKeys,
}

/// The agent's `AgentCapabilities`.
pub fn capabilities(agent: &AgentDescription<'_>, features: GatewayFeatures) -> Json {
    let AgentDescription { name, description, graph_id, keys } = *agent;
    let GatewayFeatures { state, reasoning, websocket, http_binary } = features;
    let graph = ObjectWriter::new().string("graph_id", graph_id).finish();
    let metadata = ObjectWriter::new().raw("langgraph", graph.get()).finish();
    let mut identity = ObjectWriter::new().string("name", name).string("type", "langgraph");
    if let Some(description) = description.filter(|description| !description.is_empty()) {
        identity = identity.string("description", description);
    }
    let identity = identity.raw("metadata", metadata.get()).finish();
    let transport = flags(&[
        ("streaming", true),
        ("websocket", websocket),
        ("httpBinary", http_binary),
        ("pushNotifications", false),
        ("resumable", true),
    ]);
    // LangGraph keeps a thread's state from run to run.
    let state = flags(&[
        ("snapshots", state != StateSupport::Nothing),
        ("deltas", state == StateSupport::SnapshotsAndDeltas),
        ("persistentState", true),
    ]);
    let asks = flags(&[("supported", true), ("interrupts", true), ("approveWithEdits", true)]);
    let mut all =
        ObjectWriter::new().raw("identity", identity.get()).raw("transport", transport.get());
    if let Some(takes) = takes_client_tools(keys) {
        all = all.raw("tools", flags(&[("clientProvided", takes)]).get());
    }
    all = all.raw("state", state.get());
    if !reasoning {
        all = all.raw("reasoning", flags(&[("supported", false)]).get());
    }
    all.raw("humanInTheLoop", asks.get()).finish()
}

fn flags(flags: &[(&str, bool)]) -> Json {
    let write = |object: ObjectWriter, (name, is_so): &(&str, bool)| {
        object.raw(name, if *is_so { "true" } else { "false" })
    };
    flags.iter().fold(ObjectWriter::new(), write).finish()
}

// === impl GatewayFeatures ===

impl GatewayFeatures {
    /// The features for clients that get these events.
    pub fn of(emit: EmitOptions) -> Self {
        let state = match emit.state {
            StateEvents::Delta => StateSupport::SnapshotsAndDeltas,
            StateEvents::Initial | StateEvents::Final | StateEvents::All => StateSupport::Snapshots,
            StateEvents::None => StateSupport::Nothing,
        };
        Self { state, reasoning: emit.reasoning, ..Self::default() }
    }
}

impl Default for GatewayFeatures {
    /// The features of a gateway with default options.
    fn default() -> Self {
        let state = StateSupport::SnapshotsAndDeltas;
        Self { state, reasoning: true, websocket: true, http_binary: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(features: GatewayFeatures) -> serde_json::Value {
        let (description, graph_id) = (Some(""), "g");
        let agent =
            AgentDescription { name: "n", description, graph_id, keys: &InputKeys::Unknown };
        serde_json::from_str(capabilities(&agent, features).get()).unwrap()
    }

    #[test]
    fn each_feature_is_declared_on_its_own() {
        let usually = GatewayFeatures::default();
        let usual = declared(usually);
        assert_eq!(usual.get("reasoning"), None);
        for (features, place, value) in [
            (
                GatewayFeatures { state: StateSupport::Nothing, ..usually },
                "/state/snapshots",
                false,
            ),
            (GatewayFeatures { state: StateSupport::Snapshots, ..usually }, "/state/deltas", false),
            (GatewayFeatures { reasoning: false, ..usually }, "/reasoning/supported", false),
            (GatewayFeatures { websocket: false, ..usually }, "/transport/websocket", false),
            (GatewayFeatures { http_binary: false, ..usually }, "/transport/httpBinary", false),
        ] {
            let declared = declared(features);
            assert_eq!(declared.pointer(place), Some(&value.into()), "{place}");
            assert_ne!(usual.pointer(place), Some(&value.into()), "{place}");
        }
    }
}
