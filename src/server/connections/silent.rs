//! The connections that wait for a request. When there is no place for another connection, the one
//! that has waited longest is closed.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::sync::Mutex;

/// The connections that wait for the first byte of a request. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Silent(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    /// By the order in which they began to wait.
    connections: BTreeMap<u64, CancellationToken>,
    next: u64,
}

/// A connection that waits, until this is dropped.
pub(super) struct Seat {
    silent: Silent,
    at: u64,
    closed: CancellationToken,
}

// === impl Silent ===

impl Silent {
    pub(super) fn sit(&self) -> Seat {
        let closed = CancellationToken::new();
        let mut waiting = self.0.lock();
        let at = waiting.next;
        waiting.next += 1;
        waiting.connections.insert(at, closed.clone());
        Seat { silent: self.clone(), at, closed }
    }

    /// Closes the connection that has waited longest. Returns whether there is one.
    pub(super) fn close_one(&self) -> bool {
        let oldest = self.0.lock().connections.pop_first();
        oldest.map(|(_, closed)| closed.cancel()).is_some()
    }
}

// === impl Seat ===

impl Seat {
    /// Waits until the connection is to be closed.
    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.silent.0.lock().connections.remove(&self.at);
    }
}
