//! Which message a chunk of LangChain's belongs to.

use std::collections::HashMap;
use std::sync::Arc;

use super::speech::{Speeches, shared_id};
use crate::langgraph::Origin;
use crate::langgraph::dialect::utterance::ChunkId;
use crate::run::Id;

/// Which message a chunk belongs to.
///
/// LangChain names the chunks of a call after its own run, but leaves a provider's id on the
/// first chunk that brings one, and gives that id to the whole message. That chunk has no content:
/// the provider announces its answer with it (OpenAI's `response.created`).
#[derive(Debug, Default)]
pub(super) struct ChunkIds {
    /// By a chunk's id: the id of the message that it belongs to, where that is another.
    aliases: HashMap<Id, Id>,
    /// By task path: the id of the last message, if its first chunk had no content.
    opened: HashMap<String, Id>,
}

// === impl ChunkIds ===

impl ChunkIds {
    /// The id of the message that a chunk belongs to.
    pub(super) fn message_of(
        &mut self,
        id: &str,
        kind: ChunkId,
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
        match kind {
            ChunkId::Opening => {
                self.opened.insert(origin.checkpoint_ns.clone(), Arc::clone(&id));
                return id;
            }
            ChunkId::Message => {
                self.opened.remove(&origin.checkpoint_ns);
                return id;
            }
            ChunkId::MadeUp => {}
        }
        let first = self.opened.get(&origin.checkpoint_ns);
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
        self.opened.clear();
    }
}
