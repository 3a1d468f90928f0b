//! Prompts that have an id and have not started their run yet.
//!
//! A client that lost its connection asks for the end of a prompt. Without a run there is none, and
//! a person will send the prompt again. So a prompt that still waits, on a connection whose end was
//! not noticed yet, must not start its run any more.

use std::collections::HashMap;
use std::sync::Arc;

use crate::sync::Mutex;

/// The prompts of a process that wait, by their ids. A client chooses the ids at random, and nobody
/// else learns one before the run has started. Clones share the prompts.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitingPrompts(Arc<Mutex<HashMap<String, Stage>>>);

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
    id: String,
}

// === impl WaitingPrompts ===

impl WaitingPrompts {
    /// Registers a prompt. `None` if there is one of this id.
    pub(super) fn begin(&self, id: &str) -> Option<WaitingPrompt> {
        let mut prompts = self.0.lock();
        if prompts.contains_key(id) {
            return None;
        }
        prompts.insert(id.to_owned(), Stage::Waiting);
        Some(WaitingPrompt { prompts: self.clone(), id: id.to_owned() })
    }

    /// Keeps a prompt from starting its run. Does nothing if it has started.
    pub(super) fn revoke(&self, id: &str) {
        if let Some(stage @ Stage::Waiting) = self.0.lock().get_mut(id) {
            *stage = Stage::Revoked;
        }
    }
}

// === impl WaitingPrompt ===

impl WaitingPrompt {
    /// Whether the prompt may start its run. It counts as started from now on.
    pub(super) fn may_start(&self) -> bool {
        match self.prompts.0.lock().get_mut(&self.id) {
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
        self.prompts.0.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_revoked_only_before_it_starts() {
        let prompts = WaitingPrompts::default();
        prompts.revoke("a");
        let (a, b) = (prompts.begin("a").unwrap(), prompts.begin("b").unwrap());
        assert!(prompts.begin("a").is_none());
        prompts.revoke("a");
        assert!(!a.may_start() && b.may_start());
        prompts.revoke("b");
        assert!(b.may_start());
        drop(a);
        assert!(prompts.begin("a").unwrap().may_start());
    }
}
