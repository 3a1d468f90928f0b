//! What an agent can do, as AG-UI 1.0's `AgentCapabilities` says it.
//!
//! Only what is certain is said: what this gateway does of itself, what its options leave out, and
//! what the graph's schema tells. What hangs on the model or on a graph's code is not declared,
//! which in AG-UI means unknown: whether it calls tools, thinks, reads images or asks for approval.

use super::turn::takes_client_tools;
use crate::json::{Json, ObjectWriter};
use crate::langgraph::InputKeys;
use crate::run::{Emit, StateEvents};

/// What the gateway is set to send and to take, beside what it always does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offers {
    /// How clients are sent the state.
    pub state: StateOffer,
    /// Whether clients are sent what the model thinks.
    pub reasoning: bool,
    /// Whether it speaks AG-UI over WebSocket.
    pub websocket: bool,
    /// Whether it speaks AG-UI's binary form.
    pub http_binary: bool,
}

/// How clients are sent the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateOffer {
    /// As snapshots, and deltas between them.
    SnapshotsAndDeltas,
    /// As snapshots alone.
    Snapshots,
    /// Not at all.
    Nothing,
}

/// An agent, as its server describes it to the caller.
#[derive(Clone, Copy, Debug)]
pub struct Described<'a> {
    /// What people call it.
    pub name: &'a str,
    /// What it is for.
    pub description: Option<&'a str>,
    /// The graph that it runs.
    pub graph_id: &'a str,
    /// What the graph takes as its input, as far as that is known now.
    pub keys: &'a InputKeys,
}

/// What the agent can do.
pub fn capabilities(agent: &Described<'_>, offers: Offers) -> Json {
    let Described { name, description, graph_id, keys } = *agent;
    let Offers { state, reasoning, websocket, http_binary } = offers;
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
        ("snapshots", state != StateOffer::Nothing),
        ("deltas", state == StateOffer::SnapshotsAndDeltas),
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

// === impl Offers ===

impl Offers {
    /// What the gateway does for viewers that are shown this.
    pub fn of(emit: Emit) -> Self {
        let state = match emit.state {
            StateEvents::Delta => StateOffer::SnapshotsAndDeltas,
            StateEvents::Initial | StateEvents::Final | StateEvents::All => StateOffer::Snapshots,
            StateEvents::None => StateOffer::Nothing,
        };
        Self { state, reasoning: emit.reasoning, ..Self::default() }
    }
}

impl Default for Offers {
    /// What the gateway does unless its options say otherwise.
    fn default() -> Self {
        let state = StateOffer::SnapshotsAndDeltas;
        Self { state, reasoning: true, websocket: true, http_binary: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(offers: Offers) -> serde_json::Value {
        let (description, graph_id) = (Some(""), "g");
        let agent = Described { name: "n", description, graph_id, keys: &InputKeys::Unknown };
        serde_json::from_str(capabilities(&agent, offers).get()).unwrap()
    }

    #[test]
    fn each_offer_is_a_statement_of_its_own() {
        let usually = Offers::default();
        let usual = told(usually);
        assert_eq!(usual.get("reasoning"), None);
        for (offers, place, value) in [
            (Offers { state: StateOffer::Nothing, ..usually }, "/state/snapshots", false),
            (Offers { state: StateOffer::Snapshots, ..usually }, "/state/deltas", false),
            (Offers { reasoning: false, ..usually }, "/reasoning/supported", false),
            (Offers { websocket: false, ..usually }, "/transport/websocket", false),
            (Offers { http_binary: false, ..usually }, "/transport/httpBinary", false),
        ] {
            let told = told(offers);
            assert_eq!(told.pointer(place), Some(&value.into()), "{place}");
            assert_ne!(usual.pointer(place), Some(&value.into()), "{place}");
        }
    }
}
