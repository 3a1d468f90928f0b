//! Creates a thread before its first run.
//!
//! LangGraph can create the thread with the run. The metadata of that run then become the thread's,
//! and LangGraph copies them to all later runs, also those of other programs. Such a run would have
//! the client's id of the first.

use super::thread::Thread;
use crate::upstream::Error;
use threadway_translate::json::{Json, ObjectWriter, Text};
use threadway_translate::langgraph::{CLIENT_THREAD_ID, TITLE};

/// Where the thread of a run comes from.
#[derive(Clone, Debug)]
pub(super) enum ThreadOrigin {
    /// The thread exists.
    Exists,
    /// The caller may not create threads, and the run creates its thread, with this metadata.
    Run(Json),
}

// === impl Thread ===

impl Thread {
    /// Creates the thread unless it exists. Its metadata are the client's id of it and its title.
    pub(super) async fn create(&self, title: Option<&str>) -> Result<ThreadOrigin, Error> {
        let metadata = ObjectWriter::new()
            .optional(CLIENT_THREAD_ID, self.client_id.as_deref().map(Text::new).as_ref())
            .optional(TITLE, title.map(Text::new).as_ref())
            .finish();
        let is_there = self.upstream().create_thread(&self.id, &metadata).await?
            || self.upstream().thread_state(&self.id).await?.is_some();
        Ok(if is_there { ThreadOrigin::Exists } else { ThreadOrigin::Run(metadata) })
    }
}
