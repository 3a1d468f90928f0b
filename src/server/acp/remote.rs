//! One client's connection, as the routes and its transport see it.

use std::fmt;
use std::sync::Arc;

use http::HeaderValue;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::header_value;
use crate::metrics::{AcpMeter, ChargedTo};
use crate::server::gateway::RequestContext;
use crate::server::limits::caller_id::Fingerprint;
use crate::sessions::{Authentication, Connection, Outbox, Service, Work};
use crate::sync::Mutex;
use crate::upstream::Until;

/// The work of a connection's requests, for its transport to poll. The connection limits how many
/// requests are in progress, so the queue needs no limit of its own.
pub(super) type RequestFutures = mpsc::UnboundedReceiver<Work>;

/// One client's connection. Clones share it.
#[derive(Clone)]
pub(in crate::server) struct ClientConnection(Arc<Inner>);

struct Inner {
    /// A random UUID. It finds a connection, and gives no access to it.
    id: String,
    owner: Fingerprint,
    connection: Connection,
    outbox: Outbox,
    /// Whose share of the memory for clients the connection uses.
    holder: ChargedTo,
    works: mpsc::UnboundedSender<Work>,
    /// Cancelled when the connection ends.
    closed: CancellationToken,
    activity: Mutex<Activity>,
    /// Notified when a reader leaves.
    left: Notify,
}

/// The readers of a connection's HTTP streams, and the time of its last message.
struct Activity {
    /// How many of its streams are read.
    readers: usize,
    /// When the last message came, or the last reader left.
    since: Instant,
}

/// A stream of a connection is read until this is dropped.
pub(super) struct ReaderGuard(ClientConnection);

// === impl ClientConnection ===

impl ClientConnection {
    /// A connection of the call's caller, and the work that its transport is to poll.
    pub(super) fn new(
        context: &RequestContext,
        service: Arc<Service>,
        authentication: Authentication,
        (outbox, holder): (Outbox, ChargedTo),
        meter: AcpMeter,
    ) -> (Self, RequestFutures) {
        let (works, taken) = mpsc::unbounded_channel();
        let connection = Connection::counted(service, authentication, outbox.clone(), meter);
        let inner = Inner {
            id: Uuid::new_v4().to_string(),
            owner: context.owner(),
            connection,
            outbox,
            holder,
            works,
            closed: CancellationToken::new(),
            activity: Mutex::new(Activity { readers: 0, since: Instant::now() }),
            left: Notify::new(),
        };
        (Self(Arc::new(inner)), taken)
    }

    pub(super) fn id(&self) -> &str {
        &self.0.id
    }

    /// The id as the value of a header.
    pub(super) fn header(&self) -> HeaderValue {
        header_value(&self.0.id)
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.0.connection
    }

    pub(super) fn holder(&self) -> ChargedTo {
        self.0.holder
    }

    pub(super) fn outbox(&self) -> &Outbox {
        &self.0.outbox
    }

    /// Cancelled when the connection ends. Cancelling it ends the connection.
    pub(super) fn closed(&self) -> &CancellationToken {
        &self.0.closed
    }

    /// Until when the caller of the newest request is admitted. Without a request in progress, the
    /// connection ends then.
    pub(super) fn until(&self) -> Until {
        self.0.connection.until()
    }

    /// Notes that something happens on the connection.
    pub(super) fn touch(&self) {
        self.0.activity.lock().since = Instant::now();
    }

    /// How many streams are read, and when something happened last.
    pub(super) fn activity(&self) -> (usize, Instant) {
        let Activity { readers, since } = *self.0.activity.lock();
        (readers, since)
    }

    /// Waits until a reader leaves.
    pub(super) async fn left(&self) {
        self.0.left.notified().await;
    }

    /// Counts a reader of one of the streams.
    pub(super) fn reading(&self) -> ReaderGuard {
        self.0.activity.lock().readers += 1;
        ReaderGuard(self.clone())
    }

    /// Whether the caller of `call` has opened this connection.
    pub(super) fn is_of(&self, context: &RequestContext) -> bool {
        self.0.owner == context.owner()
    }

    /// Passes a request's work to the transport. After the transport's end it is dropped.
    pub(super) fn give(&self, work: Option<Work>) {
        if let Some(work) = work {
            let _ = self.0.works.send(work);
        }
    }
}

// === impl ReaderGuard ===

impl ReaderGuard {
    /// Waits for the end of the connection.
    pub(super) async fn ended(&self) {
        self.0.closed().cancelled().await;
    }
}

impl Drop for ReaderGuard {
    fn drop(&mut self) {
        {
            let mut activity = self.0.0.activity.lock();
            activity.readers = activity.readers.saturating_sub(1);
            activity.since = Instant::now();
        }
        self.0.0.left.notify_one();
    }
}

impl fmt::Debug for ClientConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("connection", &self.0.connection).finish_non_exhaustive()
    }
}
