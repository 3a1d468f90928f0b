//! The idle connections to a server.

use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::connection::Connection;
use crate::sync::Mutex;
use crate::upstream::IDLE_TIMEOUT;

/// How many idle connections are kept, those of all runtimes together. A server rarely gets more
/// requests at a time.
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

    /// Takes the newest connection of the current runtime that the server has not closed. The thread
    /// of another runtime would be woken for each of its tokens, only to wake this one.
    pub(super) fn take(&self) -> Option<Connection> {
        let here = Handle::try_current().ok()?.id();
        loop {
            let (expiry, mut connection) = {
                let mut idle = self.idle.lock();
                let is_here = |(_, idle): &(Instant, Connection)| idle.runtime() == here;
                let at = idle.connections.iter().rposition(is_here)?;
                idle.connections.remove(at)
            };
            if Instant::now() < expiry && connection.is_usable() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection for the next request.
    pub(super) fn put(self: &Arc<Self>, connection: Connection) {
        let Ok(runtime) = Handle::try_current() else { return };
        let expiry = Instant::now() + IDLE_TIMEOUT;
        let (has_task, _oldest) = {
            let mut idle = self.idle.lock();
            // Not the new one: one runtime would keep all the others' from being kept.
            let is_full = idle.connections.len() >= MAX_IDLE;
            let oldest = is_full.then(|| idle.connections.remove(0));
            idle.connections.push((expiry, connection));
            (std::mem::replace(&mut idle.has_task, true), oldest)
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

#[cfg(test)]
mod tests {
    use hyper_util::rt::TokioIo;
    use tokio::io::{DuplexStream, duplex};
    use tokio::runtime::{Builder, Runtime};

    use super::*;
    use crate::upstream::dial::HttpSocket;

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    /// Keeps a new connection. Returns the server's end of it.
    fn keep(pool: &Arc<Pool>, runtime: &Runtime) -> DuplexStream {
        let _here = runtime.enter();
        let (socket, server) = duplex(64);
        pool.put(Connection::new(HttpSocket::Simulated(TokioIo::new(socket))));
        server
    }

    #[test]
    fn a_connection_is_taken_by_the_runtime_that_made_it() {
        let (here, elsewhere) = (runtime(), runtime());
        let pool = Arc::new(Pool::new());
        let _server = keep(&pool, &here);
        assert!(elsewhere.block_on(async { pool.take() }).is_none());
        assert!(here.block_on(async { pool.take() }).is_some());
        assert!(here.block_on(async { pool.take() }).is_none());
    }

    #[test]
    fn many_connections_of_one_runtime_leave_room_for_those_of_another() {
        let (here, elsewhere) = (runtime(), runtime());
        let pool = Arc::new(Pool::new());
        let _servers: Vec<_> = (0..MAX_IDLE).map(|_| keep(&pool, &here)).collect();
        let _server = keep(&pool, &elsewhere);
        assert!(elsewhere.block_on(async { pool.take() }).is_some());
        let left = std::iter::from_fn(|| here.block_on(async { pool.take() })).count();
        assert_eq!(left, MAX_IDLE - 1);
    }
}
