//! What a graph asks not to stream of a model's call.

use std::sync::Arc;

/// What the graph asked not to stream of a model's call. A state that contains the message still
/// shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Suppressed {
    /// Its text and reasoning.
    pub(crate) text: bool,
    /// Its tool calls.
    pub(crate) calls: SuppressedCalls,
}

/// Which tool calls of a model's call are not streamed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum SuppressedCalls {
    /// None.
    #[default]
    None,
    /// All but those of these tools.
    AllBut(Arc<[String]>),
    /// All.
    All,
}

// === impl Suppressed ===

/// See [`Suppressed::ALL`].
static ALL: Suppressed = Suppressed { text: true, calls: SuppressedCalls::All };

impl Suppressed {
    /// Nothing is streamed.
    pub(crate) const ALL: &'static Self = &ALL;
}

// === impl SuppressedCalls ===

impl SuppressedCalls {
    /// Whether the calls of this tool are not streamed.
    pub(crate) fn has(&self, tool: &str) -> bool {
        match self {
            Self::None => false,
            Self::AllBut(shown) => shown.iter().all(|name| name != tool),
            Self::All => true,
        }
    }
}
