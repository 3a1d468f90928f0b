//! Values that a client sends back unchanged.

use serde_json::value::RawValue;

use crate::json;
use crate::langgraph::ThreadState;

/// The members of a thread's state, without its messages.
pub(super) type State<'a> = &'a [(json::Str<'a>, &'a RawValue)];

pub(super) fn state_of<'a>(thread: Option<&'a ThreadState<'_>>) -> State<'a> {
    thread.and_then(|thread| thread.values.as_ref()?.state.as_deref()).unwrap_or_default()
}

/// The state that a run begins with. A client's value that is equal to it is not sent up again.
pub(in crate::agui) struct Echoes<'a> {
    /// The thread's newest state, which the client was sent.
    pub(super) newest: State<'a>,
    /// The state of the checkpoint that a fork begins at.
    pub(super) past: Option<State<'a>>,
}

impl<'a> Echoes<'a> {
    pub(in crate::agui) fn of(thread: Option<&'a ThreadState<'_>>) -> Self {
        Self { newest: state_of(thread), past: None }
    }

    /// Whether a client's value repeats the state. An accumulating reducer would add it once more
    /// with every run.
    ///
    /// For a fork, a value that the client has not changed repeats the state too, if the fork's own
    /// state has the key. What later runs have stored under a key must not leak into the fork.
    pub(super) fn has(&self, key: &str, value: &RawValue) -> bool {
        let Some(past) = self.past else { return holds(self.newest, key, value) };
        let is_unchanged =
            || past.iter().any(|(name, _)| &**name == key) && holds(self.newest, key, value);
        holds(past, key, value) || is_unchanged()
    }

    /// The same for a value of the client's tools and context. Runs do not change those.
    pub(super) fn has_client_value(&self, key: &str, value: &RawValue) -> bool {
        holds(self.past.unwrap_or(self.newest), key, value)
    }
}

/// Whether a state has this value under a key. Numbers compare as doubles, which is what a client
/// makes of them.
fn holds(state: State<'_>, key: &str, value: &RawValue) -> bool {
    let mut held = state.iter().filter(|(name, _)| &**name == key);
    held.any(|(_, held)| json::same_in_doubles(held.get(), value.get()))
}
