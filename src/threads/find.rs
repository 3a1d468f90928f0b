//! Finds a run by the client's id of it.

use super::Threads;
use super::look::run_named;
use crate::upstream::{Client, Error, QueueClass};
use threadway_translate::langgraph::Capabilities;

impl Threads {
    /// Whether a live or a recent run of the thread has this id of the client. The run may have been
    /// started through another replica. Waits for a start in progress here.
    pub async fn has_run(
        &self,
        upstream: &Client,
        thread_id: &str,
        name: &str,
    ) -> Result<bool, Error> {
        for start in self.shared.starts.of(upstream, thread_id, Some(name)) {
            start.ended().await;
        }
        let _turn = upstream.turn(QueueClass::Looks).await?;
        Ok(run_named(upstream, Capabilities::default(), thread_id, name).await?.is_some())
    }
}
