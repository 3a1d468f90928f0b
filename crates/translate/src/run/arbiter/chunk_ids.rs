//! Which message a chunk of LangChain's belongs to.

use std::collections::HashMap;
use std::sync::Arc;

use super::speech::{Speeches, shared_id};
use crate::langgraph::Origin;
use crate::run::Id;

/// Which message a chunk belongs to.
///
/// LangChain names the chunks of a call after its own run, but leaves a provider's id on the
/// first chunk that brings one, and gives that id to the whole message.
#[derive(Debug, Default)]
pub(super) struct ChunkIds {
    /// By a chunk's id: the id of the message that it belongs to, where that is another.
    aliases: HashMap<Id, Id>,
    /// By task path: the last id that was a provider's own.
    first_ids: HashMap<String, Id>,
}

// === impl ChunkIds ===

impl ChunkIds {
    /// The id of the message that a chunk belongs to.
    pub(super) fn message_of(
        &mut self,
        id: &str,
        is_made_up: bool,
        origin: &Origin,
        speeches: &Speeches,
    ) -> Id {
        if let Some(first) = self.aliases.get(id) {
            return Arc::clone(first);
        }
        let id = shared_id(speeches, id);
        if origin.checkpoint_ns.is_empty() || speeches.contains_key(&id) {
            return id;
        }
        if !is_made_up {
            self.first_ids.insert(origin.checkpoint_ns.clone(), Arc::clone(&id));
            return id;
        }
        let first = self.first_ids.get(&origin.checkpoint_ns);
        let is_under_way = |first: &&Id| speeches.get(*first).is_some_and(|s| !s.is_complete);
        match first.filter(is_under_way).map(Arc::clone) {
            Some(first) => {
                self.aliases.insert(id, Arc::clone(&first));
                first
            }
            None => id,
        }
    }

    /// Forgets all ids, when a new attempt begins or parts may be missing.
    pub(super) fn clear(&mut self) {
        self.aliases.clear();
        self.first_ids.clear();
    }
}
