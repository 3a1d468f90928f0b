//! The newest runs of a thread.

use super::super::look::recent_limit;
use crate::upstream::{Client, Error, RunFilter};
use threadway_translate::langgraph::{Capabilities, RunRecord};

/// The newest runs of a thread.
pub(super) struct RecentRuns {
    pub(super) runs: Vec<RunRecord>,
    /// Whether the thread has no other runs.
    pub(super) is_all: bool,
}

// === impl RecentRuns ===

impl RecentRuns {
    pub(super) async fn read(
        upstream: &Client,
        thread_id: &str,
        server: Capabilities,
    ) -> Result<Self, Error> {
        let limit = recent_limit(server);
        let runs = upstream.runs(thread_id, RunFilter::Any { limit }).await?;
        Ok(Self { is_all: runs.len() < limit, runs })
    }

    /// `None` if the upstream hides the thread.
    pub(super) async fn read_visible(
        upstream: &Client,
        thread_id: &str,
        server: Capabilities,
    ) -> Result<Option<Self>, Error> {
        let limit = recent_limit(server);
        let runs = upstream.runs_if_visible(thread_id, limit).await?;
        Ok(runs.map(|runs| Self { is_all: runs.len() < limit, runs }))
    }
}

impl Default for RecentRuns {
    /// A thread without runs.
    fn default() -> Self {
        Self { runs: Vec::new(), is_all: true }
    }
}
