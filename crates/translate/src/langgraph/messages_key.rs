//! Under which key of its state a graph keeps its conversation.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::json;

/// The key of LangGraph's own `MessagesState`, which `create_agent` and its like have too.
const MESSAGES: &str = "messages";

/// The longest key, in bytes: it is a field's name in a program.
const MAX_BYTES: usize = 256;

/// Under which key of its state a graph keeps its conversation: `messages`, unless it is said.
/// Clones share the name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessagesKey(Option<Arc<str>>);

/// A text is no [`MessagesKey`].
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

    /// What tells the events of a run that is read under this key from those under another; 0 for
    /// `messages`. Two replicas make the same number.
    pub fn seed(&self) -> u32 {
        self.0.as_deref().map_or(0, |key| crc32fast::hash(key.as_bytes()))
    }

    /// The messages among what a node or a tool returned.
    ///
    /// A subgraph is a graph with a state of its own, and most keep their conversation under
    /// `messages`: there that counts too.
    pub(super) fn find<'a>(
        &self,
        update: &json::Members<'a>,
        place: GraphLevel,
    ) -> Option<&'a RawValue> {
        update.get(self.as_str()).or_else(|| match place {
            GraphLevel::Root => None,
            GraphLevel::Subgraph => update.get(MESSAGES),
        })
    }
}

impl FromStr for MessagesKey {
    type Err = ParseMessagesKeyError;

    fn from_str(text: &str) -> Result<Self, ParseMessagesKeyError> {
        if text.is_empty() || text.len() > MAX_BYTES || text.starts_with("__") {
            return Err(ParseMessagesKeyError);
        }
        // Equal keys are equal, however they were said.
        Ok(Self((text != MESSAGES).then(|| Arc::from(text))))
    }
}

impl fmt::Display for MessagesKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// In which graph something was returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphLevel {
    /// The run's own.
    Root,
    /// One that a node of it runs.
    Subgraph,
}

// === impl GraphLevel ===

impl GraphLevel {
    /// The graph of a namespace, or of the path of a task, each `node:task|node:task`: the root's
    /// namespace is empty, and its tasks have a path of one segment.
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
    fn the_default_said_aloud_is_the_default() {
        let said: MessagesKey = "messages".parse().unwrap();
        assert_eq!(said, MessagesKey::default());
        assert_eq!((said.as_str(), said.seed()), ("messages", 0));
        assert_ne!("chat_history".parse::<MessagesKey>().unwrap().seed(), 0);
    }
}
