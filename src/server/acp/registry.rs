//! The connections over HTTP, by id, and the task of each.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::StatusCode;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::IDLE;
use super::remote::{ClientConnection, RequestFutures};
use crate::metrics::GaugeGuard;
use crate::server::gateway::RequestContext;
use crate::server::limits::rates::StreamSlot;
use crate::server::reject::Reject;
use crate::sync::Mutex;

/// How long a connection is kept while none of its streams is read and no message comes. Whoever
/// loses a stream for longer connects again, and loads the sessions.
pub const UNREAD: Duration = Duration::from_mins(2);

/// The connections over HTTP. Clones share them.
#[derive(Clone, Default)]
pub(in crate::server) struct Registry(Arc<Mutex<HashMap<String, ClientConnection>>>);

// === impl Registry ===

impl Registry {
    /// The connection of this id, if it is the caller's.
    pub(super) fn find(&self, id: &str, context: &RequestContext) -> Option<ClientConnection> {
        let found = self.0.lock().get(id).cloned();
        found.filter(|remote| remote.is_of(context))
    }

    /// Adds a connection, if there are fewer than `most`.
    pub(super) fn insert(&self, remote: &ClientConnection, most: usize) -> Result<(), Reject> {
        let mut connections = self.0.lock();
        if connections.len() >= most {
            return Err(Reject::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "too_many_connections",
                "the gateway has as many ACP connections as it may have; try again later, or raise \
                 `limits.connections`",
            ));
        }
        connections.insert(remote.id().to_owned(), remote.clone());
        Ok(())
    }

    /// Serves a connection that was inserted, until it is closed, abandoned, idle or stalled, or its
    /// caller is not admitted any more.
    pub(super) async fn serve(
        self,
        remote: ClientConnection,
        mut works: RequestFutures,
        shutdown: CancellationToken,
        _held: (StreamSlot, GaugeGuard),
    ) {
        let mut working = FuturesUnordered::new();
        loop {
            let quiet_until = remote.quiet_until();
            let until = remote.until();
            let is_over = until.is_over();
            if quiet_until <= Instant::now() || is_over && remote.connection().is_idle() {
                break;
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = remote.closed().cancelled() => break,
                () = remote.outbox().stalled() => break,
                // A newer request may have brought other credentials.
                () = until.over(), if !is_over => {}
                Some(work) = works.recv() => working.push(work),
                Some(()) = working.next() => {}
                // The connection is given up sooner now.
                () = remote.left() => {}
                () = sleep_until(quiet_until) => {}
            }
        }
        self.0.lock().remove(remote.id());
        remote.connection().hang_up();
        // Runs go on, so no request has anything left to do, and none is answered.
        working.clear();
        // This ends the streams, once what waits is read.
        remote.closed().cancel();
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Registry")
    }
}

// === impl ClientConnection ===

impl ClientConnection {
    /// When the connection is given up, if nothing happens until then.
    fn quiet_until(&self) -> Instant {
        let (readers, since) = self.activity();
        if readers == 0 {
            return since + UNREAD;
        }
        if self.connection().is_idle() {
            return since + IDLE;
        }
        // A prompt may wait for an answer all day. The time of idleness begins with its end.
        self.touch();
        Instant::now() + IDLE
    }
}
