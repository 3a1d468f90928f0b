//! The start and the end of a node's task: the parts of the mode `tasks`.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::RawInterrupt;
use crate::json::{self, Str};

/// A task starts, or ends with a result or an error. A task is one execution of a node.
#[derive(Debug, Deserialize)]
pub struct Task<'a> {
    /// The task's id.
    #[serde(borrow)]
    pub id: Str<'a>,
    /// The node's name.
    #[serde(borrow)]
    pub name: Str<'a>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    triggers: Option<&'a RawValue>,
    #[serde(borrow)]
    interrupts: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

/// Whether a node is LangGraph's own, such as `__start__`. Clients are not sent it.
pub(crate) fn is_internal_node(name: &str) -> bool {
    name.starts_with("__")
}

// === impl Task ===

impl<'a> Task<'a> {
    /// Whether the task starts. Otherwise it ends.
    pub fn is_start(&self) -> bool {
        self.triggers.is_some()
    }

    /// The questions that the task asked before it stopped.
    pub fn interrupts(&self) -> Vec<RawInterrupt<'a>> {
        self.interrupts.and_then(RawInterrupt::list).unwrap_or_default()
    }

    /// The name of the agent that the node belongs to.
    pub fn agent(&self) -> Option<Cow<'a, str>> {
        json::members(self.metadata?)?.string("lc_agent_name")
    }

    /// The call that the task executes, if there is only one. `create_agent` starts a task for each
    /// call.
    pub fn tool_call(&self) -> Option<Cow<'a, str>> {
        match json::items(self.input?)?.as_slice() {
            [call] => json::members(call)?.string("id"),
            _ => None,
        }
    }
}
