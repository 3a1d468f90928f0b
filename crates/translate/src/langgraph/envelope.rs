//! The envelope of the newer streaming protocol, and the parts that only it has.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::part::body;
use super::{Body, GraphLevel, MessagesKey, ProtocolEvent, RawInterrupt};
use crate::json;

/// A subgraph starts or ends, as the newer protocol reports it.
#[derive(Debug)]
pub struct Lifecycle<'a> {
    /// Whether it starts.
    pub is_start: bool,
    /// The name of the agent.
    pub agent: Option<Cow<'a, str>>,
    /// The tool call that started it.
    pub tool_call: Option<Cow<'a, str>>,
}

/// `{"type": "event", "method": .., "params": {"namespace": [..], "data": ..}}`.
pub(super) struct Envelope<'a> {
    method: Cow<'a, str>,
    params: json::Members<'a>,
}

// === impl Envelope ===

impl<'a> Envelope<'a> {
    /// `None` if the data is no envelope. A join of a run of the newer protocol sends envelopes
    /// under the names of stream modes.
    pub(super) fn parse(data: &'a str) -> Option<Self> {
        if !data.starts_with("{\"type\":\"event\"") {
            return None;
        }
        let members: json::Members<'_> = serde_json::from_str(data).ok()?;
        let params = json::members(members.get("params")?)?;
        Some(Self { method: members.string("method")?, params })
    }

    pub(super) fn namespace(&self) -> String {
        let segments = self.params.get("namespace").and_then(json::items).unwrap_or_default();
        segments.into_iter().filter_map(json::string).collect::<Vec<_>>().join("|")
    }

    pub(super) fn body(&self, key: &MessagesKey, place: GraphLevel) -> Body<'a> {
        let Some(data) = self.params.get("data") else { return Body::Malformed("event") };
        match &*self.method {
            "messages" => ProtocolEvent::parse(data)
                .map_or(Body::Malformed("messages"), |event| Body::Protocol(Box::new(event))),
            "input.requested" => input_requested(data),
            "lifecycle" => Lifecycle::body(data),
            // The newer protocol wraps a node's custom value.
            "custom" => {
                let payload = json::members(data).and_then(|m| m.get("payload"));
                Body::Custom(payload.unwrap_or(data))
            }
            method => body(method, data.get(), key, place),
        }
    }
}

fn input_requested(data: &RawValue) -> Body<'_> {
    let members = json::members(data).unwrap_or_default();
    match members.string("interrupt_id") {
        Some(id) => Body::Interrupts(vec![RawInterrupt {
            id,
            value: members.get("payload"),
            response_schema: None,
        }]),
        None => Body::Malformed("input.requested"),
    }
}

// === impl Lifecycle ===

impl<'a> Lifecycle<'a> {
    /// A failure of the run is reported here too. It is read from the run's record instead.
    fn body(data: &'a RawValue) -> Body<'a> {
        let members = json::members(data).unwrap_or_default();
        let is_start = match members.string("event").as_deref() {
            Some("started") => true,
            Some("completed" | "failed" | "interrupted") => false,
            _ => return Body::Silent,
        };
        let cause = members.get("cause").and_then(json::members).unwrap_or_default();
        Body::Lifecycle(Self {
            is_start,
            agent: members.string("graph_name"),
            tool_call: cause.string("tool_call_id"),
        })
    }
}
