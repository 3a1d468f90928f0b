//! The members of the state that a request changes.

use serde_json::value::RawValue;

use super::RequestPlanner;
use crate::agui::client_keys::{CLIENT_KEYS, client_value};
use crate::json::{self, Json, ObjectWriter};
use crate::langgraph::{InputKeys, ThreadState};
use crate::run::{Dropped, Need, StateEvents, WhyDropped, untruncated};

/// The members of a thread's state, without its messages.
type State<'a> = &'a [(json::Str<'a>, &'a RawValue)];

pub(super) fn state_of<'a>(thread: Option<&'a ThreadState<'_>>) -> State<'a> {
    thread.and_then(|thread| thread.values.as_ref()?.state.as_deref()).unwrap_or_default()
}

/// The state that a run begins with. A client's value that is equal to it is not sent up again.
#[derive(Clone, Copy)]
pub(super) struct Echoes<'a> {
    /// The thread's newest state, which the client was sent.
    newest: State<'a>,
    /// The state of the checkpoint that a fork begins at.
    past: Option<State<'a>>,
    /// What a client that missed the newest states may still hold.
    earlier: Earlier<'a>,
}

/// The earlier values of the thread's state.
#[derive(Clone, Copy)]
pub(super) enum Earlier<'a> {
    /// What differs from the newest state was changed by the person.
    NotNeeded,
    /// The client may have missed changes. Its values must be compared with earlier ones, back to the
    /// state in which this message arrived: the newest that the client has from an agent.
    Needed {
        /// The id of that message.
        since: Option<&'a str>,
        /// Whether the client lacks the newest message. A fork may then have taken away a key that
        /// the client has set.
        is_behind: bool,
    },
    /// The earlier values, by their keys.
    Known(&'a [(String, Json)]),
}

/// The changes of the state that a request makes.
pub(super) struct Changes {
    pub(super) object: ObjectWriter,
    pub(super) dropped: Vec<Dropped>,
}

// === impl Echoes ===

impl<'a> Echoes<'a> {
    pub(super) fn of(thread: Option<&'a ThreadState<'_>>, earlier: Earlier<'a>) -> Self {
        Self { newest: state_of(thread), past: None, earlier }
    }

    /// For a run that begins at an earlier checkpoint.
    pub(super) fn forking(self, past: Option<&'a ThreadState<'_>>) -> Self {
        Self { past: Some(state_of(past)), ..self }
    }

    /// Whether a client's value repeats the state. An accumulating reducer would add it once more
    /// with every run.
    ///
    /// For a fork, a value that the client has not changed repeats the state too, if the fork's own
    /// state has the key. What later runs have stored under a key must not leak into the fork.
    fn has(&self, key: &str, value: &RawValue) -> bool {
        let Some(past) = self.past else { return holds(self.newest, key, value) };
        let is_unchanged =
            || past.iter().any(|(name, _)| &**name == key) && holds(self.newest, key, value);
        holds(past, key, value) || is_unchanged()
    }

    /// The same for a value of the client's tools and context. Runs do not change those.
    fn has_client_value(&self, key: &str, value: &RawValue) -> bool {
        holds(self.past.unwrap_or(self.newest), key, value)
    }

    /// Whether a value of this key may be one that the thread had before. A fork whose checkpoint
    /// lacks the key gets the client's value, whatever it is.
    fn may_be_outdated(&self, key: &str) -> bool {
        self.past.is_none_or(|past| past.iter().any(|(name, _)| &**name == key))
    }

    fn get(&self, key: &str) -> Option<&'a RawValue> {
        self.newest.iter().rev().find(|(name, _)| &**name == key).map(|(_, value)| *value)
    }
}

/// Whether a state has this value under a key. Numbers compare as doubles, which is what a client
/// makes of them.
fn holds(state: State<'_>, key: &str, value: &RawValue) -> bool {
    let mut held = state.iter().filter(|(name, _)| &**name == key);
    held.any(|(_, held)| json::same_in_doubles(held.get(), value.get()))
}

// === impl RequestPlanner ===

impl RequestPlanner<'_> {
    /// The members of the state that the person has changed, with the client's tools and context if
    /// those have changed.
    pub(super) fn changes(&self, echoes: Echoes<'_>, keys: &InputKeys) -> Result<Changes, Need> {
        let input = self.input;
        let conversation = self.messages_key.as_str();
        let is_client_key =
            |key: &str| CLIENT_KEYS.contains(&key) && key != conversation && keys.takes(key);
        let mut changed = Vec::new();
        let mut dropped = Vec::new();
        let state = input.state.as_deref().filter(|_| !self.has_no_current_state(&echoes));
        for (key, value) in state.and_then(json::members).unwrap_or_default().0 {
            if &*key == conversation || !keys.may_take(&key) || is_client_key(&key) {
                continue;
            }
            // The client was sent a marker in the place of a large value.
            let Some(value) = untruncated(value, echoes.get(&key), 0) else {
                dropped.push(Dropped::Value(WhyDropped::Shortened));
                continue;
            };
            if !echoes.has(&key, &value) {
                changed.push((key, value));
            }
        }
        match echoes.earlier {
            Earlier::NotNeeded => {}
            Earlier::Needed { since, is_behind } => {
                let may_be_old = |key: &str| is_behind || echoes.get(key).is_some();
                let wanted = changed
                    .iter()
                    .filter(|(key, _)| may_be_old(key) && echoes.may_be_outdated(key));
                let wanted: Vec<_> =
                    wanted.map(|(key, value)| (key.to_string(), value.clone())).collect();
                if !wanted.is_empty() {
                    return Err(Need::Values { wanted, since: since.map(str::to_owned) });
                }
            }
            Earlier::Known(values) => changed.retain(|(key, value)| {
                let is_earlier = |(name, earlier): &(String, Json)| {
                    **name == **key && json::same_in_doubles(earlier.get(), value.get())
                };
                let is_outdated = echoes.may_be_outdated(key) && values.iter().any(is_earlier);
                if is_outdated {
                    dropped.push(Dropped::Value(WhyDropped::Outdated));
                }
                !is_outdated
            }),
        }
        let mut object = changed
            .iter()
            .fold(ObjectWriter::new(), |object, (key, value)| object.raw(key, value.get()));
        for key in CLIENT_KEYS.into_iter().filter(|key| is_client_key(key)) {
            let value = client_value(key, input);
            if !echoes.has_client_value(key, &value) {
                object = object.raw(key, value.get());
            }
        }
        Ok(Changes { object, dropped })
    }

    /// Whether the client is never sent the thread's newest state: with `StateEvents::None` nothing,
    /// and with `StateEvents::Initial` the state that its last run began with. The first state of a
    /// thread is the client's.
    fn has_no_current_state(&self, echoes: &Echoes<'_>) -> bool {
        match self.emit.state {
            StateEvents::Initial | StateEvents::None => !echoes.newest.is_empty(),
            StateEvents::Delta | StateEvents::Final | StateEvents::All => false,
        }
    }
}
