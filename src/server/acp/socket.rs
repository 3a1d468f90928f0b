//! A connection on a WebSocket. A text frame is one JSON-RPC message.
//!
//! One task serves a socket: it reads and writes frames, and polls the work of the client's
//! requests. While the client takes its frames slowly, senders of updates wait. Once
//! [`Outbox::is_overfull`], the client is not read either. A client that takes nothing for
//! [`WRITE_TIMEOUT`](crate::server::WRITE_TIMEOUT) is cut.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};
use tokio_util::sync::CancellationToken;

use super::IDLE;
use super::remote::{Remote, Works};
use crate::metrics::{self, GaugeGuard};
use crate::offload::offload;
use crate::server::limits::rates::{Charge, StreamSlot};
use crate::server::peer::Peer;
use crate::server::upgrade::Upgraded;
use crate::server::websocket::routed::{PendingResponse, RouteError, next_response, send};
use crate::server::websocket::socket::{End, Exchanged, MAX_REFUSED_FRAMES, Reading, Socket};
use crate::sessions::{Outbox, Work};
use crate::sync::Mutex;
use threadway_translate::acp::rpc::{self, Id, Incoming, Malformed};

/// The code with which a socket is closed whose credentials are not accepted any more: 4000 plus
/// the HTTP status 401.
const UNAUTHORIZED: CloseCode = CloseCode::Library(4401);

/// The code with which a socket is closed that the gateway does not serve any more: 4000 plus the
/// HTTP status 403.
const FORBIDDEN: CloseCode = CloseCode::Library(4403);

/// The longest reason of a close frame, in bytes.
const MAX_REASON_BYTES: usize = 123;

/// A socket that was opened.
pub(super) struct Opened {
    pub(super) remote: Remote,
    pub(super) works: Works,
    pub(super) outbox: Outbox,
    /// The socket's slot among the streams of its caller.
    pub(super) slot: StreamSlot,
    /// Counts the connection.
    pub(super) _counted: GaugeGuard,
    /// The headers of each of its requests.
    pub(super) headers: HeaderMap,
    pub(super) peer: Option<Peer>,
    /// The largest message that is read, in bytes.
    pub(super) limit: usize,
    /// What is read of a message counts as this does.
    pub(super) charge: metrics::Charge,
}

/// Marks a request that is a message on a socket.
#[derive(Clone, Debug)]
pub(in crate::server) struct Frame {
    pub(super) remote: Remote,
    /// The socket's slot among the streams of its caller.
    pub(in crate::server) slot: StreamSlot,
    /// A socket cannot refuse a notification or a response, so only requests count.
    pub(in crate::server) charge: Charge,
    /// Taken by the route.
    message: Arc<Mutex<Option<(Incoming, metrics::Charge)>>>,
}

/// A socket that is served.
struct Session {
    socket: Socket,
    opened: Opened,
    /// Returns the gateway's routes, which a reload replaces.
    routes: Box<dyn Fn() -> Router + Send + Sync>,
    shutdown: CancellationToken,
    works: FuturesUnordered<Work>,
    /// The message that the routes are admitting.
    admitting: Option<Admitting>,
    /// How many frames in a row were refused.
    refused: u32,
    idle_at: Instant,
}

/// A message that the routes are admitting.
struct Admitting {
    response: Option<PendingResponse>,
    /// The id to answer, if the message is a request.
    id: Option<Id>,
}

/// Serves a socket until its end.
pub(super) async fn serve(opened: Opened, upgraded: Upgraded) {
    let Upgraded { io, read, routes, shutdown } = upgraded;
    let session = Session {
        socket: Socket::new(io, read, opened.limit, opened.charge.another()).await,
        opened,
        routes,
        shutdown,
        works: FuturesUnordered::new(),
        admitting: None,
        refused: 0,
        idle_at: Instant::now() + IDLE,
    };
    Box::pin(session.run()).await;
}

// === impl Frame ===

impl Frame {
    /// The message, once.
    pub(super) fn take(&self) -> Option<(Incoming, metrics::Charge)> {
        self.message.lock().take()
    }
}

// === impl Session ===

impl Session {
    async fn run(mut self) {
        let end = loop {
            match self.step().await {
                Ok(None) => {}
                Ok(Some(end)) => break end,
                Err(error) => break End::of(&error),
            }
        };
        // The message counts as not received.
        self.admitting = None;
        self.opened.remote.connection().hang_up();
        // Runs go on, so no request has anything left to do.
        self.works.clear();
        self.socket.close(end, &self.shutdown).await;
    }

    /// Waits for the next thing that happens, and handles it. Returns how the socket ends, if it
    /// does.
    async fn step(&mut self) -> Result<Option<End>, Error> {
        let Opened { remote, works, outbox, .. } = &mut self.opened;
        let (is_writing, ping_at) = (self.socket.is_writing(), self.socket.ping_at());
        let is_idle = remote.connection().is_idle();
        let until = remote.until();
        if !is_idle {
            self.idle_at = Instant::now() + IDLE;
        }
        let reading = match self.admitting {
            None if !outbox.is_overfull() => Reading::On,
            _ => Reading::Paused,
        };
        let mut lines = Vec::new();
        let mut unadmitted = None;
        let admitting = match &mut self.admitting {
            Some(admitting) => &mut admitting.response,
            None => &mut unadmitted,
        };
        tokio::select! {
            biased;
            // Requests are not answered any more: another replica does that.
            () = self.shutdown.cancelled() => {
                Ok(Some(End::closed(CloseCode::Away, "the gateway is shutting down")))
            }
            () = outbox.stalled() => {
                Ok(Some(End::closed(CloseCode::Again, "the gateway has no room for the messages")))
            }
            Some(work) = works.recv() => {
                self.works.push(work);
                Ok(None)
            }
            Some(()) = self.works.next() => Ok(None),
            admitted = next_response(admitting) => Ok(self.on_admitted(admitted.err())),
            () = outbox.take(&mut lines), if !is_writing => {
                self.send(lines);
                Ok(None)
            }
            exchanged = self.socket.exchange(reading) => match exchanged? {
                Exchanged::Written => {
                    self.opened.outbox.written();
                    Ok(None)
                }
                Exchanged::Received(message) => Ok(self.receive(message)),
                Exchanged::Left => Ok(Some(End::Left)),
            },
            () = sleep_until(ping_at), if !is_writing => Ok(self.socket.queue_ping()),
            () = until.over(), if is_idle => Ok(Some(End::closed(
                UNAUTHORIZED,
                "invalid_token: these credentials have expired or were withdrawn; connect with new ones",
            ))),
            () = sleep_until(self.idle_at), if is_idle => {
                Ok(Some(End::closed(CloseCode::Normal, "no request and no frame for an hour")))
            }
        }
    }

    /// Queues a frame for each line.
    fn send(&mut self, lines: Vec<u8>) {
        let lines = Bytes::from(lines);
        let mut begin = 0;
        for end in memchr::memchr_iter(b'\n', &lines) {
            // Lines are JSON, so they are UTF-8.
            if let Ok(text) = Utf8Bytes::try_from(lines.slice(begin..end)) {
                self.socket.queue(Message::Text(text));
            }
            begin = end + 1;
        }
    }

    fn receive(&mut self, message: Message) -> Option<End> {
        match message {
            Message::Text(text) => {
                self.on_frame(offload(text.len(), || Incoming::parse(text.as_bytes())))
            }
            Message::Binary(_) => self.on_frame(Err(Malformed {
                id: Id::NULL,
                error: rpc::Error::invalid("the frame is binary; send JSON as text"),
            })),
            // The library answers a ping with the next write or read.
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => None,
            Message::Close(_) => Some(End::Left),
        }
    }

    fn on_frame(&mut self, frame: Result<Incoming, Malformed>) -> Option<End> {
        let charge = self.socket.take_charge();
        self.idle_at = Instant::now() + IDLE;
        match frame {
            Ok(incoming) => {
                self.refused = 0;
                self.admit(incoming, charge);
            }
            Err(malformed) => {
                self.refused += 1;
                if self.refused > MAX_REFUSED_FRAMES {
                    return Some(End::closed(CloseCode::Policy, "too many frames were refused"));
                }
                self.opened.remote.connection().handle(Err(malformed), None);
            }
        }
        None
    }

    /// Sends a message through the gateway's routes.
    fn admit(&mut self, incoming: Incoming, message: metrics::Charge) {
        let (charge, id) = match &incoming {
            Incoming::Request { id, .. } => (Charge::Request, Some(id.clone())),
            Incoming::Notification { .. } | Incoming::Response { .. } => (Charge::Nothing, None),
        };
        let Opened { remote, slot, headers, peer, .. } = &self.opened;
        let mut request = Request::new(Body::empty());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static("/acp");
        *request.headers_mut() = headers.clone();
        request.extensions_mut().insert(Frame {
            remote: remote.clone(),
            slot: slot.clone(),
            charge,
            message: Arc::new(Mutex::new(Some((incoming, message)))),
        });
        if let Some(peer) = peer {
            request.extensions_mut().insert(*peer);
        }
        let response = Some(send((self.routes)(), request));
        self.admitting = Some(Admitting { response, id });
    }

    /// Handles the response of the routes to a message. A caller that is not admitted any more loses
    /// its socket. Any other refusal answers the request.
    fn on_admitted(&mut self, refused: Option<RouteError>) -> Option<End> {
        let admitting = self.admitting.take();
        let RouteError { status, error, message } = refused?;
        let code = match status {
            StatusCode::UNAUTHORIZED => UNAUTHORIZED,
            StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => FORBIDDEN,
            _ => match admitting.and_then(|admitting| admitting.id) {
                Some(id) => {
                    let error = rpc::Error::internal(message);
                    self.opened.remote.connection().refuse(&id, error);
                    return None;
                }
                // The client could not learn that the message was lost.
                None => CloseCode::Again,
            },
        };
        let reason = format!("{error}: {message}");
        let reason = reason.get(..reason.floor_char_boundary(MAX_REASON_BYTES)).unwrap_or_default();
        Some(End::Closed(code, Utf8Bytes::from(reason)))
    }
}
