//! States and updates of states: the parts of the modes `values` and `updates`.

use serde_json::value::RawValue;

use super::{GraphLevel, Message, MessagesKey, RawInterrupt};
use crate::json::{self, Str};

/// The state after a superstep, parsed one level.
#[derive(Debug)]
pub struct Values<'a> {
    /// The whole payload.
    pub raw: &'a RawValue,
    /// The keys of the state without the messages and `__interrupt__`. `None` if the state is not
    /// an object.
    pub state: Option<Vec<(Str<'a>, &'a RawValue)>>,
    /// The messages, if the state has any.
    pub messages: Option<Vec<&'a RawValue>>,
    /// `__interrupt__`, if present. An empty list is a static breakpoint.
    pub interrupts: Option<Vec<RawInterrupt<'a>>>,
    /// Whether a key had half a surrogate pair, which is U+FFFD here.
    pub is_mended: bool,
}

/// What each finished node returned.
#[derive(Debug)]
pub struct Updates<'a> {
    /// One entry for each node. Parallel tasks of one node come in separate parts.
    pub nodes: Vec<NodeUpdate<'a>>,
    /// `__interrupt__`, if present. An empty list is a static breakpoint.
    pub interrupts: Option<Vec<RawInterrupt<'a>>>,
    /// Whether the nodes finished in an earlier run. A run that resumes repeats the finished nodes
    /// of the interrupted superstep.
    pub is_cached: bool,
}

/// What one finished node returned.
#[derive(Debug)]
pub struct NodeUpdate<'a> {
    /// The node's name.
    pub node: Str<'a>,
    /// The messages that it returned.
    pub messages: Vec<Message<'a>>,
}

// === impl Values ===

impl<'a> Values<'a> {
    /// Parses the state of a graph whose root keeps its messages under `key`.
    pub fn open(raw: &'a RawValue, key: &MessagesKey, place: GraphLevel) -> Option<Self> {
        let Some((members, is_mended)) = json::mended_members(raw) else {
            return Some(Self {
                raw,
                state: None,
                messages: None,
                interrupts: None,
                is_mended: false,
            });
        };
        let mut messages = None;
        let mut interrupts = None;
        let key = key.name_in(&members, place);
        let mut state = members.0;
        state.retain(|(name, value)| match &**name {
            name if name == key => {
                messages = conversation(value);
                messages.is_none()
            }
            "__interrupt__" => {
                interrupts = RawInterrupt::list(value);
                false
            }
            _ => true,
        });
        Some(Self { raw, state: Some(state), messages, interrupts, is_mended })
    }

    /// Whether the part contains only interrupts. The JavaScript server then sends no state.
    pub(crate) fn is_only_interrupts(&self) -> bool {
        self.interrupts.is_some()
            && self.messages.is_none()
            && self.state.as_ref().is_some_and(Vec::is_empty)
    }
}

/// The items of a list if each looks like a message. A list of other things is part of the state.
fn conversation(value: &RawValue) -> Option<Vec<&RawValue>> {
    let items = json::items(value)?;
    items.iter().all(|item| Message::is_message(item)).then_some(items)
}

// === impl Updates ===

impl<'a> Updates<'a> {
    pub(super) fn open(raw: &'a RawValue, key: &MessagesKey, place: GraphLevel) -> Option<Self> {
        let mut updates = Self { nodes: Vec::new(), interrupts: None, is_cached: false };
        let (members, _) = json::mended_members(raw)?;
        // The newer protocol of the JavaScript server names the node beside its update.
        let node = members.get("node").and_then(|node| serde_json::from_str(node.get()).ok());
        let deltas = match node.zip(members.get("values")) {
            Some(named) => vec![named],
            None => members.0,
        };
        for (node, delta) in deltas {
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

/// The messages that a node returned. It returns `{"messages": [..]}`, one message, or a list of
/// several writes.
pub(super) fn messages_of<'a>(
    delta: &'a RawValue,
    key: &MessagesKey,
    place: GraphLevel,
) -> Vec<Message<'a>> {
    let written = |delta| match json::mended_members(delta) {
        Some((delta, _)) => written_messages(delta, key, place),
        None => Vec::new(),
    };
    match json::items(delta) {
        Some(writes) => writes.into_iter().flat_map(written).collect(),
        None => written(delta),
    }
}

fn written_messages<'a>(
    delta: json::Members<'a>,
    key: &MessagesKey,
    place: GraphLevel,
) -> Vec<Message<'a>> {
    // One of the writes may be a `Command`, which the event stream prints as `{"graph", "update",
    // ..}`.
    let is_command = delta.get("graph").is_some() || delta.get("goto").is_some();
    let update = || delta.get("update").filter(|_| is_command).and_then(json::members);
    let delta = update().unwrap_or(delta);
    let Some(messages) = key.find(&delta, place) else { return Vec::new() };
    match json::items(messages) {
        Some(items) => items.into_iter().filter_map(Message::parse).collect(),
        None => Message::parse(messages).into_iter().collect(),
    }
}
