//! One client's connection, as the routes and its transport see it.

use std::fmt;
use std::sync::Arc;

use http::HeaderValue;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::header_value;
use crate::server::auth::caller_id::Fingerprint;
use crate::server::gateway::Call;
use crate::sessions::{Authentication, Connection, Outbox, Service, Work};

/// The work of a connection's requests, for its transport to poll. The connection limits how many
/// requests are in progress, so the queue needs no limit of its own.
pub(super) type Works = mpsc::UnboundedReceiver<Work>;

/// One client's connection. Clones share it.
#[derive(Clone)]
pub(in crate::server) struct Remote(Arc<Inner>);

struct Inner {
    /// A random UUID. It finds a connection, and gives no access to it.
    id: String,
    owner: Fingerprint,
    connection: Connection,
    works: mpsc::UnboundedSender<Work>,
}

// === impl Remote ===

impl Remote {
    /// A connection of the call's caller, and the work that its transport is to poll.
    pub(super) fn new(
        call: &Call,
        service: Arc<Service>,
        authentication: Authentication,
        outbox: Outbox,
    ) -> (Self, Works) {
        let (works, taken) = mpsc::unbounded_channel();
        let connection = Connection::new(service, authentication, outbox);
        let (id, owner) = (Uuid::new_v4().to_string(), call.owner());
        (Self(Arc::new(Inner { id, owner, connection, works })), taken)
    }

    /// The id as the value of a header.
    pub(super) fn header(&self) -> HeaderValue {
        header_value(&self.0.id)
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.0.connection
    }

    /// Whether the call comes from the caller who has opened the connection.
    pub(super) fn is_of(&self, call: &Call) -> bool {
        self.0.owner == call.owner()
    }

    /// Passes a request's work to the transport. After the transport's end it is dropped.
    pub(super) fn give(&self, work: Option<Work>) {
        if let Some(work) = work {
            let _ = self.0.works.send(work);
        }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("connection", &self.0.connection).finish_non_exhaustive()
    }
}
