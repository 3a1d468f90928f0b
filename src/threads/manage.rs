//! Names, archives and deletes a thread.

use super::refusal::Refusal;
use super::thread::Thread;
use threadway_translate::json::{Json, ObjectWriter};
use threadway_translate::langgraph::{ARCHIVED, TITLE};

/// What is to be changed of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Its name; `Some(None)` takes the name away.
    pub name: Option<Option<String>>,
    /// Whether it is put away.
    pub is_archived: Option<bool>,
}

// === impl Thread ===

impl Thread {
    /// Changes the thread. Returns whether the server has it, and lets the caller change it.
    pub async fn change(&self, change: &Change) -> Result<bool, Refusal> {
        Ok(self.agent().upstream.change_thread(self.id(), &change.metadata()).await?)
    }

    /// Deletes the thread, after its live run was stopped: LangGraph's in-memory server lets a run go
    /// on whose thread is deleted, and its tools act. Runs that wait for their turn go with the
    /// thread. Returns whether the server had it, and let the caller delete it.
    pub async fn delete(&self) -> Result<bool, Refusal> {
        self.stop(None).await?;
        Ok(self.agent().upstream.delete_thread(self.id()).await?)
    }
}

// === impl Change ===

impl Change {
    /// The thread's metadata that says so.
    fn metadata(&self) -> Json {
        let mut metadata = ObjectWriter::new();
        metadata = match &self.name {
            Some(Some(name)) => metadata.string(TITLE, name),
            Some(None) => metadata.raw(TITLE, "null"),
            None => metadata,
        };
        if let Some(is_archived) = self.is_archived {
            metadata = metadata.raw(ARCHIVED, if is_archived { "true" } else { "false" });
        }
        metadata.finish()
    }
}
