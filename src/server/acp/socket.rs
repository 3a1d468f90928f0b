//! A connection on a WebSocket. A text frame is one JSON-RPC message.
//!
//! One task serves a socket: it reads and writes frames, and polls the work of the client's
//! requests. While the client takes its frames slowly, senders of updates wait. Once
//! [`Outbox::is_overfull`], the client is not read either. A client that takes nothing for
//! [`WRITE_TIMEOUT`](crate::server::WRITE_TIMEOUT) is cut.

use std::future::pending;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::StatusCode;
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};
use tokio_util::sync::CancellationToken;

use super::remote::{ClientConnection, RequestFutures};
use super::{Front, IDLE, door};
use crate::metrics::{self, GaugeGuard, Route};
use crate::offload::offload;
use crate::server::gateway::{ReloadReceiver, RequestContext};
use crate::server::limits::rates::Charge;
use crate::server::observe::request_log::{AuditedAction, RequestFacts};
use crate::server::reject::Reject;
use crate::server::upgrade::Upgraded;
use crate::server::websocket::message::{
    HandledMessage, OpeningRequest, PendingAnswer, SocketMessage, on_socket,
};
use crate::server::websocket::socket::{ClientFrames, End, Exchanged, MAX_REFUSED_FRAMES, Socket};
use crate::sessions::{Outbox, Work};
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
pub(super) struct OpenedAcpSocket {
    pub(super) remote: ClientConnection,
    pub(super) works: RequestFutures,
    pub(super) outbox: Outbox,
    pub(super) front: ReloadReceiver<Front>,
    pub(super) opening: OpeningRequest,
    /// Counts the connection.
    pub(super) _counted: GaugeGuard,
    /// The largest message that is read, in bytes.
    pub(super) limit: usize,
    /// What is read of a message counts as this does.
    pub(super) charge: metrics::Charge,
}

/// A socket that is served.
struct SocketSession {
    socket: Socket,
    opened: OpenedAcpSocket,
    shutdown: CancellationToken,
    works: FuturesUnordered<Work>,
    /// The message that is being admitted.
    admitting: Option<Admitting>,
    /// How many frames in a row were refused.
    refused: u32,
    idle_at: Instant,
}

/// A message that is being admitted.
struct Admitting {
    answer: PendingAnswer<()>,
    /// The id to answer, if the message is a request.
    id: Option<Id>,
}

/// Serves a socket until its end.
pub(super) async fn serve(opened: OpenedAcpSocket, upgraded: Upgraded) {
    let Upgraded { io, read, shutdown } = upgraded;
    let session = SocketSession {
        socket: Socket::new(io, read, opened.limit, opened.charge.another()).await,
        opened,
        shutdown,
        works: FuturesUnordered::new(),
        admitting: None,
        refused: 0,
        idle_at: Instant::now() + IDLE,
    };
    Box::pin(session.run()).await;
}

// === impl SocketSession ===

impl SocketSession {
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
        let OpenedAcpSocket { remote, works, outbox, .. } = &mut self.opened;
        let (is_writing, ping_at) = (self.socket.is_writing(), self.socket.ping_at());
        let is_idle = remote.connection().is_idle();
        let until = remote.until();
        if !is_idle {
            self.idle_at = Instant::now() + IDLE;
        }
        let reading = match self.admitting {
            None if !outbox.is_overfull() => ClientFrames::Read,
            _ => ClientFrames::Paused,
        };
        let mut lines = Vec::new();
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
            admitted = next_answer(&mut self.admitting) => Ok(self.on_admitted(admitted.err())),
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

    /// Has a message recorded and admitted, and then handled by its connection.
    fn admit(&mut self, incoming: Incoming, held: metrics::Charge) {
        let (charge, id) = match &incoming {
            Incoming::Request { id, .. } => (Charge::Request, Some(id.clone())),
            // A socket cannot refuse a notification or a response, so only requests count.
            Incoming::Notification { .. } | Incoming::Response { .. } => (Charge::Nothing, None),
        };
        let OpenedAcpSocket { remote, front, opening, .. } = &self.opened;
        let (remote, opening) = (remote.clone(), opening.clone());
        let front = Arc::clone(&front.borrow());
        let facts = RequestFacts { action: Some(AuditedAction::Call), ..RequestFacts::default() };
        let (route, done) = (Route::Acp, StatusCode::ACCEPTED);
        let message = SocketMessage { route, path: "/acp", charge, done, facts };
        let answer = Box::pin(async move {
            let handle = async |context: RequestContext| {
                door::admit(&context, &front, &remote, incoming, held).await?;
                // The connection's answer says whether LangGraph has accepted the caller.
                Ok(HandledMessage { answer: (), ids: None, was_asked: false })
            };
            on_socket(Arc::clone(&front.gateway), opening, message, handle).await.map(drop)
        });
        self.admitting = Some(Admitting { answer, id });
    }

    /// Handles the answer to a message. A caller that is not admitted any more loses
    /// its socket. Any other refusal answers the request.
    fn on_admitted(&mut self, refused: Option<Reject>) -> Option<End> {
        let admitting = self.admitting.take();
        let reject = refused?;
        let code = match reject.status() {
            StatusCode::UNAUTHORIZED => UNAUTHORIZED,
            StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => FORBIDDEN,
            _ => match admitting.and_then(|admitting| admitting.id) {
                Some(id) => {
                    let error = rpc::Error::internal(reject.message());
                    self.opened.remote.connection().refuse(&id, error);
                    return None;
                }
                // The client could not learn that the message was lost.
                None => CloseCode::Again,
            },
        };
        let reason = format!("{}: {}", reject.code(), reject.message());
        let reason = reason.get(..reason.floor_char_boundary(MAX_REASON_BYTES)).unwrap_or_default();
        Some(End::Closed(code, Utf8Bytes::from(reason)))
    }
}

/// Waits until a message is admitted; for ever if none is being admitted.
async fn next_answer(admitting: &mut Option<Admitting>) -> Result<(), Reject> {
    match admitting {
        Some(Admitting { answer, .. }) => answer.as_mut().await,
        None => pending().await,
    }
}
