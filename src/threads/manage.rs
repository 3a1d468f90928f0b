//! Renames, archives and deletes a thread.

use super::refusal::Refusal;
use super::thread::Thread;
use threadway_translate::json::{Json, ObjectWriter};
use threadway_translate::langgraph::{ARCHIVED, TITLE};

/// A change of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The new name. `Some(None)` removes the name.
    pub name: Option<Option<String>>,
    /// Whether the thread is archived.
    pub is_archived: Option<bool>,
}

// === impl Thread ===

impl Thread {
    /// Changes the thread. Returns whether the thread exists and the caller may change it.
    pub async fn change(&self, change: &Change) -> Result<bool, Refusal> {
        Ok(self.agent().upstream.change_thread(self.id(), &change.metadata()).await?)
    }

    /// Stops the running run and deletes the thread, with its pending runs. Returns whether the
    /// thread existed and the caller may delete it.
    ///
    /// The run is stopped first because LangGraph's in-memory server continues the run of a deleted
    /// thread, and its tools still act.
    pub async fn delete(&self) -> Result<bool, Refusal> {
        self.stop(None).await?;
        Ok(self.agent().upstream.delete_thread(self.id()).await?)
    }
}

// === impl Change ===

impl Change {
    /// The members of the thread's metadata to replace.
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
