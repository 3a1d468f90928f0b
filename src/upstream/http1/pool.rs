//! The idle connections to a server.

use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::connection::Connection;
use crate::sync::Mutex;
use crate::upstream::IDLE_TIMEOUT;

/// How many idle connections are kept. A server rarely gets more requests at a time.
const MAX_IDLE: usize = 64;

/// The idle connections to a server. Each is closed after [`IDLE_TIMEOUT`].
pub(super) struct Pool {
    idle: Mutex<Idle>,
    tasks: TaskTracker,
}

#[derive(Default)]
struct Idle {
    /// Each with the time at which it expires, oldest first.
    connections: Vec<(Instant, Connection)>,
    /// Whether a task runs that closes expired connections.
    has_task: bool,
}

// === impl Pool ===

impl Pool {
    pub(super) fn new() -> Self {
        Self { idle: Mutex::default(), tasks: TaskTracker::new() }
    }

    /// Takes the newest connection that the server has not closed.
    pub(super) fn take(&self) -> Option<Connection> {
        loop {
            let (expiry, mut connection) = self.idle.lock().connections.pop()?;
            if Instant::now() < expiry && connection.is_usable() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection for the next request.
    pub(super) fn put(self: &Arc<Self>, connection: Connection) {
        let Ok(runtime) = Handle::try_current() else { return };
        let expiry = Instant::now() + IDLE_TIMEOUT;
        let has_task = {
            let mut idle = self.idle.lock();
            if idle.connections.len() >= MAX_IDLE {
                // The connection is closed when the lock is released.
                return;
            }
            idle.connections.push((expiry, connection));
            std::mem::replace(&mut idle.has_task, true)
        };
        if !has_task {
            self.tasks.spawn_on(Self::close_expired(Arc::downgrade(self)), &runtime);
        }
    }

    /// Closes expired connections until none is left.
    async fn close_expired(pool: Weak<Self>) {
        loop {
            tokio::time::sleep(IDLE_TIMEOUT).await;
            let Some(pool) = pool.upgrade() else { return };
            let now = Instant::now();
            let (expired, has_task) = {
                let mut idle = pool.idle.lock();
                let count = idle.connections.partition_point(|(expiry, _)| *expiry <= now);
                let expired: Vec<_> = idle.connections.drain(..count).collect();
                idle.has_task = !idle.connections.is_empty();
                (expired, idle.has_task)
            };
            // Sockets are closed outside the lock.
            drop(expired);
            if !has_task {
                return;
            }
        }
    }
}
