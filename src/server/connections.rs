//! The connections: how many there may be, how long a request may take to come, how they end.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::{TowerToHyperService, TowerToHyperServiceFuture};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;

use super::auth::Identity;
use super::deeds::{Deed, RefusalLog};
use super::framing::{Ambiguous, Framed};
use super::rates::{Callers, StreamSlot};
use super::reject;
use super::websocket::{self, Opening};
use super::{Auth, Limits};
use crate::metrics::Metrics;

/// How long connections may take to end once the server is told to stop. Streams are told to end
/// at once, so that only who does not read takes long; container platforms kill after 30 s.
pub const GRACE: Duration = Duration::from_secs(10);

/// How many connections beyond the limit are told so. Those behind them wait to be accepted.
pub const SPARE_CONNECTIONS: usize = 64;

/// How long a client may take to take the next byte that is written to it. A page in the
/// background still reads; who does not is gone, and its place in a run is let go of.
pub const WRITE_TIMEOUT: Duration = Duration::from_mins(2);

/// The pause after a failed accept: without file descriptors the next one fails at once too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long the last word of a connection may take: it is short, and fits any socket's buffer.
const LAST_WORD_TIMEOUT: Duration = Duration::from_secs(1);

/// What a request finds.
#[derive(Clone, Debug)]
pub(super) struct Door {
    pub(super) routes: Router,
    pub(super) limits: Limits,
    /// Who may call: what was learnt of it survives a reload.
    pub(super) auth: Auth,
    /// Where is logged what no route refuses.
    pub(super) refusals: RefusalLog,
}

/// The address that a request comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

/// The routes as they are when a request comes: a connection may outlive them.
#[derive(Clone)]
struct Routes {
    door: watch::Receiver<Door>,
    peer: Peer,
    ambiguous: Ambiguous,
    /// Where a request leaves the socket that it opens.
    opening: Opening,
}

/// Everything that a connection is made of, but for its socket.
#[derive(Clone)]
struct Connections {
    http1: http1::Builder,
    header_timeout: Duration,
    shutdown: CancellationToken,
}

/// A client's socket, which is given up when nothing can be written to it for too long.
type Socket = Pin<Box<TimeoutStream<Framed<TcpStream>>>>;

/// Serves until `shutdown` is cancelled, then lets what is open come to its end.
pub async fn serve(
    listener: TcpListener,
    routes: Router,
    limits: &Limits,
    shutdown: CancellationToken,
) {
    let (limits, refusals) = (limits.clone(), RefusalLog::default());
    let door = watch::Sender::new(Door { routes, limits, auth: Auth::None, refusals });
    serve_door(listener, door.subscribe(), &Metrics::default(), shutdown).await;
}

/// Serves what the door leads to at any time.
pub(super) async fn serve_door(
    listener: TcpListener,
    door: watch::Receiver<Door>,
    metrics: &Metrics,
    shutdown: CancellationToken,
) {
    let full = Door {
        routes: Router::new().fallback(reject::too_many_connections),
        limits: Limits::default(),
        auth: Auth::None,
        refusals: door.borrow().refusals.clone(),
    };
    let full = watch::Sender::new(full);
    // What each network has open, whatever the limit is.
    let peers = Callers::default();
    let mut open = JoinSet::new();
    loop {
        let (most, most_of_peer) = {
            let Limits { connections, connections_per_peer, .. } = door.borrow().limits;
            (connections, connections_per_peer)
        };
        let has_room = open.len() < most.saturating_add(SPARE_CONNECTIONS);
        let (socket, peer) = tokio::select! {
            () = shutdown.cancelled() => break,
            Some(ended) = open.join_next() => {
                log_panic(ended);
                continue;
            }
            accepted = listener.accept(), if has_room => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            }
        };
        let Ok(slot) = peers.stream(&Identity::of_peer(Some(peer.ip())), most_of_peer) else {
            metrics.connection_refused();
            log(&door, StatusCode::TOO_MANY_REQUESTS, "too_many_connections", peer);
            // It may not hold a place by asking slowly.
            open.spawn(refuse(socket));
            continue;
        };
        let is_full = open.len() >= most;
        if is_full {
            metrics.connection_refused();
            log(&door, StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", peer);
        }
        let counted = metrics.connection();
        let ambiguous = Ambiguous::default();
        let connections = Connections::new(&door.borrow().limits, shutdown.clone());
        let door = if is_full { full.subscribe() } else { door.clone() };
        let routes = Routes { door, peer: Peer(peer), ambiguous, opening: Opening::default() };
        open.spawn(async move {
            let _counted = counted;
            connections.serve(routes, socket, slot).await;
        });
    }
    drop(listener);
    tracing::info!(connections = open.len(), "stopping");
    drain(open).await;
}

/// Waits for the connections to end. Those that do not are cut when the set is dropped.
async fn drain(mut open: JoinSet<()>) {
    let ended = async {
        while let Some(ended) = open.join_next().await {
            log_panic(ended);
        }
    };
    if tokio::time::timeout(GRACE, ended).await.is_ok() {
        tracing::info!("stopped: all connections have ended");
    } else {
        let (connections, grace) = (open.len(), GRACE.as_secs());
        tracing::warn!(
            connections,
            "stopped: connections were cut that still lasted after {grace} s"
        );
    }
}

/// Logs a refusal that is no route's.
fn log(door: &watch::Receiver<Door>, status: StatusCode, code: &str, peer: SocketAddr) {
    let refusals = door.borrow().refusals.clone();
    refusals.log(status, code, None, &Deed::default(), Some(peer.ip()));
}

fn log_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection's task failed; please report this");
    }
}

/// Tells a peer that has as many connections as it may have, without waiting for what it asks.
async fn refuse(mut socket: TcpStream) {
    say(&mut socket, &reject::too_many_of_peer()).await;
}

/// Sends a whole response, and closes.
async fn say<S: AsyncWrite + Unpin>(mut socket: S, response: &[u8]) {
    let said = async {
        socket.write_all(response).await?;
        socket.shutdown().await
    };
    if !matches!(tokio::time::timeout(LAST_WORD_TIMEOUT, said).await, Ok(Ok(()))) {
        tracing::debug!("a connection's last word was not heard");
    }
}

// === impl Routes ===

impl Service<Request<Incoming>> for Routes {
    type Response = Response;
    type Error = Infallible;
    type Future = TowerToHyperServiceFuture<Router, Request<Incoming>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.peer);
        request.extensions_mut().insert(self.opening.clone());
        websocket::take_token(request.headers_mut());
        let routes = if self.ambiguous.is_seen() {
            log(&self.door, StatusCode::BAD_REQUEST, "invalid_request", self.peer.0);
            Router::new().fallback(reject::two_lengths)
        } else {
            self.door.borrow().routes.clone()
        };
        TowerToHyperService::new(routes).call(request)
    }
}

// === impl Connections ===

impl Connections {
    fn new(limits: &Limits, shutdown: CancellationToken) -> Self {
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(limits.header_timeout)
            .max_header_size(limits.header_bytes)
            // Also what is buffered of a stream for a client that does not read.
            .max_buf_size(limits.header_bytes);
        Self { http1, header_timeout: limits.header_timeout, shutdown }
    }

    /// Serves one connection, which holds its peer's place.
    async fn serve(self, routes: Routes, socket: TcpStream, _slot: StreamSlot) {
        let Peer(peer) = routes.peer;
        // Without it each token would wait for the last one's acknowledgement.
        let ended = match socket.set_nodelay(true) {
            Ok(()) => self.serve_http1(routes, socket).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = ended {
            // Clients come and go as they like.
            tracing::debug!(%peer, error, "a connection broke");
        }
    }

    async fn serve_http1(&self, routes: Routes, socket: TcpStream) -> hyper::Result<()> {
        let socket = TimeoutStream::new(Framed::new(socket, routes.ambiguous.clone()));
        let mut socket: Socket = Box::pin(socket);
        socket.as_mut().set_write_timeout_pinned(Some(WRITE_TIMEOUT));
        let (door, opening) = (routes.door.clone(), routes.opening.clone());
        let Peer(peer) = routes.peer;
        let mut connection = self.http1.serve_connection(TokioIo::new(socket), routes);
        let ended = tokio::select! {
            ended = &mut connection => ended,
            () = self.shutdown.cancelled() => {
                Pin::new(&mut connection).graceful_shutdown();
                (&mut connection).await
            }
        };
        if ended.is_ok()
            && let Some(opened) = opening.take()
        {
            let http1::Parts { io, read_buf, .. } = connection.into_parts();
            let routes = || door.borrow().routes.clone();
            let shutdown = self.shutdown.clone();
            websocket::serve(opened, io.into_inner(), read_buf, routes, shutdown).await;
            return ended;
        }
        // hyper closes a connection whose headers do not come without a word. Half a head is owed
        // one; a connection that only rested is not.
        if ended.as_ref().is_err_and(hyper::Error::is_timeout) {
            let http1::Parts { io, read_buf, .. } = connection.into_parts();
            if !read_buf.is_empty() {
                log(&door, StatusCode::REQUEST_TIMEOUT, "header_timeout", peer);
                say(io.into_inner(), &reject::header_timeout(self.header_timeout)).await;
            }
        }
        ended
    }
}
