//! The TCP connections: how many there may be, how long a request may take to arrive, and how they
//! end.
//!
//! - [`framing`]: finds requests that state the length of their body twice.

mod framing;

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

use self::framing::{FramingCheck, TwoLengths};
use super::acp;
use super::auth::Auth;
use super::auth::caller_id::CallerId;
use super::limits::Limits;
use super::limits::rates::{Callers, StreamSlot};
use super::observe::request_log::{Facts, RefusalLog, RefusedRequest};
use super::reject;
use super::websocket::{self, Opening, Upgrade};
use crate::metrics::Metrics;

/// How long connections may take to end after a shutdown has begun. Streams end at once, so only a
/// client that does not read takes long. Container platforms kill a process after 30 s.
pub const GRACE: Duration = Duration::from_secs(10);

/// How many connections beyond the limit are accepted and refused. Further ones wait to be
/// accepted.
const SPARE_CONNECTIONS: usize = 64;

/// How long a client may take to read the next byte that is written to it. A page in the background
/// still reads. A client that does not is disconnected, and its position in a run is released.
pub const WRITE_TIMEOUT: Duration = Duration::from_mins(2);

/// The pause after a failed accept. Without free file descriptors, the next one fails at once too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long the last response of a connection may take to send. It is short, and fits any socket's
/// buffer.
const LAST_RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

/// What a listener serves. A reload replaces it.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub(super) routes: Router,
    pub(super) limits: Limits,
    /// Kept so that the next endpoint can take over what was learnt, such as an issuer's keys.
    pub(super) auth: Auth,
    /// Logs what is refused before any route.
    pub(super) refusals: RefusalLog,
}

/// The address that a request comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

/// Calls the routes that the endpoint has when a request arrives. A connection may outlive them.
#[derive(Clone)]
struct Routes {
    endpoint: watch::Receiver<Endpoint>,
    peer: Peer,
    two_lengths: TwoLengths,
    /// Where a request leaves the socket that it opens.
    opening: Opening,
}

/// Serves connections with the same settings.
#[derive(Clone)]
struct Connections {
    http1: http1::Builder,
    header_timeout: Duration,
    shutdown: CancellationToken,
}

/// A client's socket. It fails when nothing can be written to it for [`WRITE_TIMEOUT`].
type Socket = Pin<Box<TimeoutStream<FramingCheck<TcpStream>>>>;

/// Serves `routes` until `shutdown` is cancelled, then waits up to [`GRACE`] for the connections to
/// end.
pub async fn serve(
    listener: TcpListener,
    routes: Router,
    limits: &Limits,
    shutdown: CancellationToken,
) {
    let (limits, refusals) = (limits.clone(), RefusalLog::default());
    let endpoint = watch::Sender::new(Endpoint { routes, limits, auth: Auth::None, refusals });
    serve_endpoint(listener, endpoint.subscribe(), &Metrics::default(), shutdown).await;
}

/// Serves the endpoint of the moment, like [`serve`].
pub(super) async fn serve_endpoint(
    listener: TcpListener,
    endpoint: watch::Receiver<Endpoint>,
    metrics: &Metrics,
    shutdown: CancellationToken,
) {
    let full = Endpoint {
        routes: Router::new().fallback(reject::too_many_connections),
        limits: Limits::default(),
        auth: Auth::None,
        refusals: endpoint.borrow().refusals.clone(),
    };
    let full = watch::Sender::new(full);
    // Counts the connections of each network, also while there is no limit: a reload may bring one.
    let peers = Callers::default();
    let mut open = JoinSet::new();
    loop {
        let (most, most_of_peer) = {
            let Limits { connections, connections_per_peer, .. } = endpoint.borrow().limits;
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
        let Ok(slot) = peers.stream(&CallerId::of_peer(Some(peer.ip())), most_of_peer) else {
            metrics.connection_refused();
            log_refusal(&endpoint, StatusCode::TOO_MANY_REQUESTS, "too_many_connections", peer);
            // Its request is not awaited: a slow one would hold a connection.
            open.spawn(refuse(socket));
            continue;
        };
        let is_full = open.len() >= most;
        if is_full {
            metrics.connection_refused();
            log_refusal(&endpoint, StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", peer);
        }
        let counted = metrics.connection();
        let two_lengths = TwoLengths::default();
        let connections = Connections::new(&endpoint.borrow().limits, shutdown.clone());
        let endpoint = if is_full { full.subscribe() } else { endpoint.clone() };
        let routes =
            Routes { endpoint, peer: Peer(peer), two_lengths, opening: Opening::default() };
        open.spawn(async move {
            let _counted = counted;
            connections.serve(routes, socket, slot).await;
        });
    }
    drop(listener);
    tracing::info!(connections = open.len(), "stopping");
    drain(open).await;
}

/// Waits for the connections to end. Those that last longer than [`GRACE`] are cut when the set is
/// dropped.
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

/// Logs what is refused before any route.
fn log_refusal(
    endpoint: &watch::Receiver<Endpoint>,
    status: StatusCode,
    code: &str,
    peer: SocketAddr,
) {
    let refusals = endpoint.borrow().refusals.clone();
    let (facts, peer) = (&Facts::default(), Some(peer.ip()));
    refusals.log(&RefusedRequest { status, code, route: None, facts, peer, fault: None });
}

fn log_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection's task failed; please report this");
    }
}

/// Refuses a network that has too many connections, without waiting for a request.
async fn refuse(mut socket: TcpStream) {
    send_last(&mut socket, &reject::too_many_of_peer()).await;
}

/// Sends a whole response, and closes the socket.
async fn send_last<S: AsyncWrite + Unpin>(mut socket: S, response: &[u8]) {
    let sent = async {
        socket.write_all(response).await?;
        socket.shutdown().await
    };
    if !matches!(tokio::time::timeout(LAST_RESPONSE_TIMEOUT, sent).await, Ok(Ok(()))) {
        tracing::debug!("the last response of a connection was not sent");
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
        let routes = if self.two_lengths.is_seen() {
            log_refusal(&self.endpoint, StatusCode::BAD_REQUEST, "invalid_request", self.peer.0);
            Router::new().fallback(reject::two_lengths)
        } else {
            self.endpoint.borrow().routes.clone()
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
            // This also bounds what is buffered of a stream for a client that does not read.
            .max_buf_size(limits.header_bytes);
        Self { http1, header_timeout: limits.header_timeout, shutdown }
    }

    /// Serves one connection, which holds its network's slot.
    async fn serve(self, routes: Routes, socket: TcpStream, _slot: StreamSlot) {
        let Peer(peer) = routes.peer;
        // With Nagle's algorithm, each token would wait for the acknowledgement of the last one.
        let ended = match socket.set_nodelay(true) {
            Ok(()) => self.serve_http1(routes, socket).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = ended {
            // Clients disconnect as they like, so this is no warning.
            tracing::debug!(%peer, error, "a connection broke");
        }
    }

    async fn serve_http1(&self, routes: Routes, socket: TcpStream) -> hyper::Result<()> {
        let socket = TimeoutStream::new(FramingCheck::new(socket, routes.two_lengths.clone()));
        let mut socket: Socket = Box::pin(socket);
        socket.as_mut().set_write_timeout_pinned(Some(WRITE_TIMEOUT));
        let (endpoint, opening) = (routes.endpoint.clone(), routes.opening.clone());
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
            && let Some(upgrade) = opening.take()
        {
            let http1::Parts { io, read_buf, .. } = connection.into_parts();
            let routes = || endpoint.borrow().routes.clone();
            let shutdown = self.shutdown.clone();
            match upgrade {
                Upgrade::Turns(opened) => {
                    websocket::serve(*opened, io.into_inner(), read_buf, routes, shutdown).await;
                }
                Upgrade::Acp(opened) => {
                    acp::serve(*opened, io.into_inner(), read_buf, routes, shutdown).await;
                }
            }
            return ended;
        }
        // hyper closes a connection without a response if its headers do not arrive in time. A
        // client that has sent a part of them gets a response here; an idle connection is only
        // closed.
        if ended.as_ref().is_err_and(hyper::Error::is_timeout) {
            let http1::Parts { io, read_buf, .. } = connection.into_parts();
            if !read_buf.is_empty() {
                log_refusal(&endpoint, StatusCode::REQUEST_TIMEOUT, "header_timeout", peer);
                send_last(io.into_inner(), &reject::header_timeout(self.header_timeout)).await;
            }
        }
        ended
    }
}
