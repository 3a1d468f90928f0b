//! Prompts that have an id and have not started their run yet.
//!
//! A client that lost its connection asks for the end of a prompt. If the prompt has no run, the
//! gateway answers so, and the user may send the prompt again. The prompt may still wait on the lost
//! connection, whose end the gateway has not noticed. Then it must not start a run any more.

use std::collections::HashMap;
use std::sync::Arc;

use crate::sync::Mutex;

/// The prompts of a process that wait. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitingPrompts(Arc<Mutex<HashMap<Key, Stage>>>);

/// The ids of the session and of the prompt. Only a client that has opened the session can name it,
/// so an id that another client has learnt is of no use.
type Key = (String, String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    /// The run is being started, or was started.
    Started,
    /// The client has asked, and gets the answer that the prompt has no run.
    Revoked,
}

/// One prompt, until this is dropped.
#[derive(Debug)]
pub(super) struct WaitingPrompt {
    prompts: WaitingPrompts,
    key: Key,
}

// === impl WaitingPrompts ===

impl WaitingPrompts {
    /// Registers a prompt. `None` if the session has one of this id.
    pub(super) fn begin(&self, session: &str, id: &str) -> Option<WaitingPrompt> {
        let key = (session.to_owned(), id.to_owned());
        let mut prompts = self.0.lock();
        if prompts.contains_key(&key) {
            return None;
        }
        prompts.insert(key.clone(), Stage::Waiting);
        Some(WaitingPrompt { prompts: self.clone(), key })
    }

    /// Keeps a prompt from starting its run. Does nothing if it has started.
    pub(super) fn revoke(&self, session: &str, id: &str) {
        let key = (session.to_owned(), id.to_owned());
        if let Some(stage @ Stage::Waiting) = self.0.lock().get_mut(&key) {
            *stage = Stage::Revoked;
        }
    }
}

// === impl WaitingPrompt ===

impl WaitingPrompt {
    /// Whether the prompt may start its run. It counts as started from now on.
    pub(super) fn may_start(&self) -> bool {
        match self.prompts.0.lock().get_mut(&self.key) {
            Some(Stage::Revoked) => false,
            Some(stage @ (Stage::Waiting | Stage::Started)) => {
                *stage = Stage::Started;
                true
            }
            None => true,
        }
    }
}

impl Drop for WaitingPrompt {
    fn drop(&mut self) {
        self.prompts.0.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_revoked_only_before_it_starts() {
        let prompts = WaitingPrompts::default();
        prompts.revoke("s", "a");
        let (a, b) = (prompts.begin("s", "a").unwrap(), prompts.begin("s", "b").unwrap());
        assert!(prompts.begin("s", "a").is_none());
        prompts.revoke("s", "a");
        assert!(!a.may_start() && b.may_start());
        prompts.revoke("s", "b");
        assert!(b.may_start());
        drop(a);
        let a = prompts.begin("s", "a").unwrap();
        // Another client knows the id, but has not opened the session.
        prompts.revoke("t", "a");
        assert!(a.may_start());
    }
}
