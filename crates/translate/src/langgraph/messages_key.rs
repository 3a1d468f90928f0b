//! The key of a graph's state that holds its messages.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::json;

/// The key in LangGraph's own `MessagesState`, which `create_agent` uses too.
const MESSAGES: &str = "messages";

/// The longest key, in bytes. It is the name of a field in a program.
const MAX_BYTES: usize = 256;

/// The key of a graph's state that holds its messages: `messages`, unless the operator configures
/// another. Clones share the name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessagesKey(Option<Arc<str>>);

/// The text cannot be a [`MessagesKey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of a key of the graph's state: 1 to {MAX_BYTES} bytes, not beginning with `__`, which \
     LangGraph keeps for itself"
)]
pub struct ParseMessagesKeyError;

// === impl MessagesKey ===

impl MessagesKey {
    /// `messages`.
    pub const MESSAGES: Self = Self(None);

    /// The name.
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or(MESSAGES)
    }

    /// A number that differs between keys, and is 0 for `messages`. Every replica computes the same
    /// one.
    pub fn seed(&self) -> u32 {
        self.0.as_deref().map_or(0, |key| crc32fast::hash(key.as_bytes()))
    }

    /// The messages in an update of the state.
    pub(super) fn find<'a>(
        &self,
        update: &json::Members<'a>,
        place: GraphLevel,
    ) -> Option<&'a RawValue> {
        update.get(self.name_in(update, place))
    }

    /// The name of the key in a state, or in an update of it.
    ///
    /// A subgraph has a state of its own, and most use `messages`. So there that key counts too.
    pub(super) fn name_in(&self, state: &json::Members<'_>, place: GraphLevel) -> &str {
        match place {
            GraphLevel::Subgraph if state.get(self.as_str()).is_none() => MESSAGES,
            GraphLevel::Root | GraphLevel::Subgraph => self.as_str(),
        }
    }
}

impl FromStr for MessagesKey {
    type Err = ParseMessagesKeyError;

    fn from_str(text: &str) -> Result<Self, ParseMessagesKeyError> {
        if text.is_empty() || text.len() > MAX_BYTES || text.starts_with("__") {
            return Err(ParseMessagesKeyError);
        }
        // Equal keys must compare equal, so `messages` is always stored as `None`.
        Ok(Self((text != MESSAGES).then(|| Arc::from(text))))
    }
}

impl fmt::Display for MessagesKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether an update of the state is the root graph's or a subgraph's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphLevel {
    /// The run's own graph.
    Root,
    /// A graph that one of its nodes runs.
    Subgraph,
}

// === impl GraphLevel ===

impl GraphLevel {
    /// The level of a namespace, or of a task path. Both are written `node:task|node:task`. The
    /// root's namespace is empty, and its tasks have a path of one segment.
    pub fn of(namespace: &str, task_path: &str) -> Self {
        let is_root = namespace.is_empty() && !task_path.contains('|');
        if is_root { Self::Root } else { Self::Subgraph }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_any_name_that_langgraph_does_not_keep_for_itself() {
        let longest = "é".repeat(MAX_BYTES / 2);
        for key in ["chat_history", "a b", "messages2", "_m", &longest] {
            assert_eq!(key.parse::<MessagesKey>().unwrap().as_str(), key);
        }
        for other in ["", "__interrupt__", "__m", &format!("{longest}a")] {
            assert_eq!(other.parse::<MessagesKey>(), Err(ParseMessagesKeyError), "{other}");
        }
    }

    #[test]
    fn the_default_key_equals_its_name() {
        let named: MessagesKey = "messages".parse().unwrap();
        assert_eq!(named, MessagesKey::default());
        assert_eq!((named.as_str(), named.seed()), ("messages", 0));
        assert_ne!("chat_history".parse::<MessagesKey>().unwrap().seed(), 0);
    }
}
