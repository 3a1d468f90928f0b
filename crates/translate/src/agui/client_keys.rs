//! The keys of a graph's state under which an agent finds the tools and the context of its client.

use super::copilotkit;
use super::input::Input;
use crate::json::{self, Json, ObjectWriter};
use crate::langgraph::InputKeys;

/// The keys of a graph's state that hold the tools and the context of its client.
///
/// Each run replaces the whole value, so that the agent cannot call a tool that the client no
/// longer has.
pub(super) const CLIENT_KEYS: [&str; 3] = [TOOLS, AG_UI, copilotkit::STATE_KEY];

/// The key that agents with client tools use by convention.
const TOOLS: &str = "tools";

/// AG-UI's own key.
const AG_UI: &str = "ag-ui";

/// What a client sends along for its agent, if the graph's input has a key for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientProvided {
    /// The tools that the client runs.
    Tools,
    /// What the client knows about its user and its page.
    Context,
}

/// The client's tools and context in the form of one of [`CLIENT_KEYS`].
pub(super) fn client_value(key: &str, input: &Input) -> Json {
    let tools = json::array(input.tools.iter().map(|tool| tool.get()));
    let context = json::array(input.context.iter().map(|entry| entry.get()));
    match key {
        AG_UI => {
            ObjectWriter::new().raw("tools", tools.get()).raw("context", context.get()).finish()
        }
        copilotkit::STATE_KEY => copilotkit::state_value(&tools, &context),
        _ => tools,
    }
}

/// The client's tools and context as a member of the run's context, where agents find them that are
/// nested below a graph without the key. `None` if the client sent none, if the graph's input has the
/// key, or if the graph does not take the member: CopilotKit's middleware (0.1.96) writes a context
/// beside the key into the prompt.
pub(super) fn client_context(input: &Input, keys: &InputKeys) -> Option<Json> {
    let key = copilotkit::STATE_KEY;
    let is_sent = !input.tools.is_empty() || !input.context.is_empty();
    (is_sent && keys.lacks(key) && keys.takes_in_context(key)).then(|| client_value(key, input))
}

/// Whether the graph's own input holds the tools of clients. `None` while the graph's keys are unknown.
pub(super) fn takes_client_tools(keys: &InputKeys) -> Option<bool> {
    ClientProvided::Tools.is_taken(keys)
}

// === impl ClientProvided ===

impl ClientProvided {
    /// Tools and context.
    pub const ALL: [Self; 2] = [Self::Tools, Self::Context];

    /// The keys of a graph's input that can hold it.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Tools => &CLIENT_KEYS,
            Self::Context => CLIENT_KEYS.get(1..).unwrap_or_default(),
        }
    }

    /// Whether a graph's own input holds it. `None` while the graph's keys are unknown. A graph that its
    /// server does not describe gets nothing.
    fn is_taken(self, keys: &InputKeys) -> Option<bool> {
        match keys {
            InputKeys::Unknown => None,
            InputKeys::Undescribed => Some(false),
            InputKeys::Known(_) => Some(self.keys().iter().any(|key| keys.takes(key))),
        }
    }

    /// Why it does not reach a graph's own state, as a sentence for the operator. `None` if it does,
    /// or while the graph's keys are unknown.
    pub fn loss(self, keys: &InputKeys) -> Option<String> {
        if self.is_taken(keys) != Some(false) {
            return None;
        }
        let what = match (self, keys.takes_in_context(copilotkit::STATE_KEY)) {
            (Self::Tools, false) => "the tools of clients do not reach this graph",
            (Self::Context, false) => "the context of clients does not reach this graph",
            (Self::Tools, true) => {
                "the tools of clients reach this graph only as `copilotkit` in the context of its \
                 runs"
            }
            (Self::Context, true) => {
                "the context of clients reaches this graph only as `copilotkit` in the context of \
                 its runs"
            }
        };
        let names: Vec<_> = self.keys().iter().map(|key| format!("`{key}`")).collect();
        let names = names.join(", ");
        Some(if let InputKeys::Undescribed = keys {
            format!("{what}: its server does not say whether its input has one of the keys {names}")
        } else {
            format!("{what}: its input has none of the keys {names}")
        })
    }
}
