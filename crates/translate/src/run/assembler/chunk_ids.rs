//! Which message a chunk of LangChain's belongs to.

use std::collections::HashMap;
use std::sync::Arc;

use super::streamed::{StreamedMessages, shared_id};
use crate::langgraph::CallMetadata;
use crate::langgraph::dialect::dialect_event::ChunkId;
use crate::run::Id;

/// Which message a chunk belongs to.
///
/// LangChain names the chunks of a call after its own run, but leaves a provider's id on the
/// first chunk that brings one, and gives that id to the whole message. That chunk has no content:
/// the provider announces its answer with it (OpenAI's `response.created`). Other providers send
/// their id with all content, and the tokens used after it without an id (watsonx).
///
/// Several models may stream at once in one task. If it is not certain which answer a chunk
/// continues, it stays apart under its own id, and the whole message shows whose text it was.
#[derive(Debug, Default)]
pub(super) struct ChunkIds {
    /// By a chunk's id: the id of the message that it belongs to, where that is another.
    aliases: HashMap<Id, Id>,
    /// By task path.
    tasks: HashMap<String, Task>,
}

/// The providers' ids in one task.
#[derive(Debug, Default)]
struct Task {
    /// The messages whose first chunk had no content, and that no other id has continued.
    opened: Vec<Named>,
    /// The message of the last call, if its provider has given it an id.
    last: Option<Named>,
}

/// A message under its provider's id.
#[derive(Clone, Debug)]
struct Named {
    id: Id,
    provider: Option<String>,
    model: Option<String>,
}

// === impl ChunkIds ===

impl ChunkIds {
    /// The id of the message that a chunk belongs to.
    pub(super) fn message_of(
        &mut self,
        id: &str,
        kind: ChunkId,
        origin: &CallMetadata,
        streamed: &StreamedMessages,
    ) -> Id {
        if let Some(first) = self.aliases.get(id) {
            return Arc::clone(first);
        }
        let id = shared_id(streamed, id);
        if origin.checkpoint_ns.is_empty() || streamed.contains_key(&id) {
            return id;
        }
        if !self.tasks.contains_key(&origin.checkpoint_ns) {
            self.tasks.insert(origin.checkpoint_ns.clone(), Task::default());
        }
        let Some(task) = self.tasks.get_mut(&origin.checkpoint_ns) else { return id };
        let is_under_way =
            |id: &Id| streamed.get(id).is_some_and(|streamed| !streamed.is_complete());
        let is_empty = match kind {
            ChunkId::Opening => {
                let named = Named::new(&id, origin);
                task.opened.push(named.clone());
                task.last = Some(named);
                return id;
            }
            ChunkId::Message => {
                task.last = Some(Named::new(&id, origin));
                return id;
            }
            ChunkId::MadeUp { is_empty } => is_empty,
        };
        task.opened.retain(|opened| is_under_way(&opened.id));
        if let Some(first) = task.take_opened(origin) {
            self.aliases.insert(id, Arc::clone(&first));
            return first;
        }
        match &task.last {
            // What follows the content is no message of its own.
            Some(last) if is_empty && last.is_of(origin) => Arc::clone(&last.id),
            Some(_) | None => {
                task.last = None;
                id
            }
        }
    }

    /// The id under which a message has streamed, if that is another.
    pub(super) fn streamed_as(&self, id: &str) -> Option<Id> {
        self.aliases.get(id).map(Arc::clone)
    }

    /// Notes that a message has streamed under another id.
    pub(super) fn note(&mut self, id: &Id, streamed_as: &Id) {
        self.aliases.insert(Arc::clone(id), Arc::clone(streamed_as));
    }

    /// Forgets all ids, when a new attempt begins or parts may be missing.
    pub(super) fn clear(&mut self) {
        self.aliases.clear();
        self.tasks.clear();
    }
}

// === impl Task ===

impl Task {
    /// Takes the opened message that a call of this origin continues: the only one, or the only one
    /// of its model.
    fn take_opened(&mut self, origin: &CallMetadata) -> Option<Id> {
        let at = if self.opened.len() == 1 {
            0
        } else {
            let mut of_model = (0..self.opened.len()).filter(|at| {
                let opened = self.opened.get(*at);
                opened.is_some_and(|opened| opened.is_of(origin))
            });
            of_model.next().filter(|_| of_model.next().is_none())?
        };
        Some(self.opened.remove(at).id)
    }
}

// === impl Named ===

impl Named {
    fn new(id: &Id, origin: &CallMetadata) -> Self {
        let CallMetadata { provider, model, .. } = origin;
        Self { id: Arc::clone(id), provider: provider.clone(), model: model.clone() }
    }

    /// Whether the same model streams.
    fn is_of(&self, origin: &CallMetadata) -> bool {
        self.provider == origin.provider && self.model == origin.model
    }
}
