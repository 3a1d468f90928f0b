//! States and updates of states: the parts of the modes `values` and `updates`.

use serde_json::value::RawValue;

use super::{GraphLevel, Message, MessagesKey, RawInterrupt};
use crate::json::{self, Str};

/// The state after a superstep, opened one level.
#[derive(Debug)]
pub struct Values<'a> {
    /// The whole payload.
    pub raw: &'a RawValue,
    /// The state's keys less that of the messages and `__interrupt__`; `None` where the state is no
    /// object.
    pub state: Option<Vec<(Str<'a>, &'a RawValue)>>,
    /// The conversation, if the state holds one.
    pub messages: Option<Vec<&'a RawValue>>,
    /// `__interrupt__`, if it is there. An empty list is a static breakpoint.
    pub interrupts: Option<Vec<RawInterrupt<'a>>>,
}

/// What each finished node returned.
#[derive(Debug)]
pub struct Updates<'a> {
    /// One entry per node; parallel tasks of one node come in parts of their own.
    pub nodes: Vec<NodeUpdate<'a>>,
    /// `__interrupt__`, if it is there. An empty list is a static breakpoint.
    pub interrupts: Option<Vec<RawInterrupt<'a>>>,
    /// Whether the nodes were through before this run: a resume tells again what an interrupted
    /// superstep had kept of them.
    pub is_cached: bool,
}

/// What one finished node returned.
#[derive(Debug)]
pub struct NodeUpdate<'a> {
    /// The node.
    pub node: Str<'a>,
    /// The messages that it returned.
    pub messages: Vec<Message<'a>>,
}

// === impl Values ===

impl<'a> Values<'a> {
    /// Opens a state that holds its conversation under this key.
    pub fn open(raw: &'a RawValue, key: &MessagesKey) -> Option<Self> {
        let Some(members) = json::members(raw) else {
            return Some(Self { raw, state: None, messages: None, interrupts: None });
        };
        let mut messages = None;
        let mut interrupts = None;
        let mut state = members.0;
        state.retain(|(name, value)| match &**name {
            name if name == key.as_str() => {
                messages = conversation(value);
                messages.is_none()
            }
            "__interrupt__" => {
                interrupts = RawInterrupt::list(value);
                false
            }
            _ => true,
        });
        Some(Self { raw, state: Some(state), messages, interrupts })
    }

    /// Whether this carries interrupts only: the JavaScript server then sends no state with them.
    pub fn is_only_interrupts(&self) -> bool {
        self.interrupts.is_some()
            && self.messages.is_none()
            && self.state.as_ref().is_some_and(Vec::is_empty)
    }
}

/// The elements of a list, if each looks like a message; a list of other things is state.
fn conversation(value: &RawValue) -> Option<Vec<&RawValue>> {
    let items = json::items(value)?;
    items.iter().all(|item| Message::is_message(item)).then_some(items)
}

// === impl Updates ===

impl<'a> Updates<'a> {
    pub(super) fn open(raw: &'a RawValue, key: &MessagesKey, place: GraphLevel) -> Option<Self> {
        let mut updates = Self { nodes: Vec::new(), interrupts: None, is_cached: false };
        for (node, delta) in json::members(raw)?.0 {
            match &*node {
                "__interrupt__" => updates.interrupts = RawInterrupt::list(delta),
                // `{"cached": true}`
                "__metadata__" => {
                    let cached = json::members(delta).and_then(|members| members.get("cached"));
                    updates.is_cached = cached.is_some_and(|cached| cached.get() == "true");
                }
                _ => {
                    let messages = messages_of(delta, key, place);
                    updates.nodes.push(NodeUpdate { node, messages });
                }
            }
        }
        Some(updates)
    }
}

/// The messages that a node returned: `{"messages": [..]}`, one message, or several writes.
pub(super) fn messages_of<'a>(
    delta: &'a RawValue,
    key: &MessagesKey,
    place: GraphLevel,
) -> Vec<Message<'a>> {
    let written = |delta| written_messages(delta, key, place);
    if let Some(writes) = json::items(delta) {
        return writes.into_iter().filter_map(json::members).flat_map(written).collect();
    }
    json::members(delta).map(written).unwrap_or_default()
}

fn written_messages<'a>(
    delta: json::Members<'a>,
    key: &MessagesKey,
    place: GraphLevel,
) -> Vec<Message<'a>> {
    // A `Command` among the writes, as the event stream prints it: `{"graph", "update", ..}`.
    let is_command = delta.get("graph").is_some() || delta.get("goto").is_some();
    let update = || delta.get("update").filter(|_| is_command).and_then(json::members);
    let delta = update().unwrap_or(delta);
    let Some(messages) = key.find(&delta, place) else { return Vec::new() };
    match json::items(messages) {
        Some(items) => items.into_iter().filter_map(Message::parse).collect(),
        None => Message::parse(messages).into_iter().collect(),
    }
}
