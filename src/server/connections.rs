//! The TCP connections: how many there may be, how long a request may take to arrive, and how they
//! end.
//!
//! - [`framing`]: finds requests whose body has no single meaning.
//! - [`inbound`]: how far a request is read, and the timeout of its head.
//! - [`silent`]: the connections that wait for a request.
//! - [`linger`]: closes a connection whose client is still sending.
//! - [`workers`]: the threads that serve connections.

mod framing;
mod inbound;
pub(super) mod linger;
mod silent;
pub(super) mod workers;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use hyper_util::service::{TowerToHyperService, TowerToHyperServiceFuture};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;

use self::framing::{FramingCheck, TwoLengths};
use self::inbound::{Inbound, RequestBody};
use self::silent::Silent;
use self::workers::Workers;
use super::limits::Limits;
use super::limits::caller_id::CallerId;
use super::limits::rates::Callers;
use super::observe::request_log::{RefusalLog, RefusedRequest, RequestFacts};
use super::peer::Peer;
use super::reject;
use super::upgrade::{Upgrade, Upgraded, take_token};
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

/// How long a connection may be idle between two requests. It must be longer than the 60 s or 75 s
/// after which proxies close theirs. Otherwise a proxy may send a `POST` on a connection that the
/// gateway is closing, and proxies do not repeat a `POST`.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// The pause after a failed accept. Without free file descriptors, the next one fails at once too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The pause between two log lines about failed accepts.
const ACCEPT_LOG_PAUSE: Duration = Duration::from_secs(1);

/// How long the last response of a connection may take to send. It is short, and fits any socket's
/// buffer. A connection that has no place may also take as long to begin its request.
const LAST_RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a connection that has no place is read: for the head of its request, and for the rest
/// after the refusal.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(2);

/// What a listener serves. A reload replaces it.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub(super) routes: Router,
    /// Answers connections for which there is no place.
    pub(super) full: Full,
    pub(super) limits: Limits,
    /// Logs what is refused before any route.
    pub(super) refusals: RefusalLog,
}

/// The routes of connections for which there is no place.
#[derive(Clone, Debug)]
pub(super) struct Full {
    /// The gateway has too many connections.
    pub(super) of_gateway: Router,
    /// The client's network has too many connections.
    pub(super) of_peer: Router,
}

/// Which routes a connection has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Served,
    NoneInGateway,
    NoneForPeer,
}

/// Calls the routes that the endpoint has when a request arrives. A connection may outlive them.
#[derive(Clone)]
struct Routes {
    endpoint: watch::Receiver<Endpoint>,
    place: Place,
    peer: Peer,
    two_lengths: TwoLengths,
    inbound: Inbound,
    /// Where a request leaves what is done once it is answered.
    upgrade: Upgrade,
}

/// Serves connections with the same settings.
#[derive(Clone)]
struct Connections {
    http1: http1::Builder,
    header_timeout: Duration,
    silent: Silent,
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
    let (limits, refusals, full) = (limits.clone(), RefusalLog::default(), Full::new(|full| full));
    let endpoint = watch::Sender::new(Endpoint { routes, full, limits, refusals });
    let workers = Workers::current();
    serve_endpoint(listener, endpoint.subscribe(), &Metrics::default(), &workers, shutdown).await;
}

/// Serves the endpoint of the moment on these workers, like [`serve`].
pub(super) async fn serve_endpoint(
    listener: TcpListener,
    endpoint: watch::Receiver<Endpoint>,
    metrics: &Metrics,
    workers: &Workers,
    shutdown: CancellationToken,
) {
    // Counts the connections of each network, also while there is no limit: a reload may bring one.
    let peers = Callers::default();
    let silent = Silent::default();
    // Connections of networks without a place whose request is read. Further ones are answered
    // without it: slow ones would take the places of other networks.
    let spare = Arc::new(Semaphore::new(SPARE_CONNECTIONS));
    let mut open = JoinSet::new();
    let mut accept_logged: Option<Instant> = None;
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
                    log_lost(&mut accept_logged, &error);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            }
        };
        let connections =
            Connections::new(&endpoint.borrow().limits, silent.clone(), shutdown.clone());
        let routes = |place| Routes {
            endpoint: endpoint.clone(),
            place,
            peer: Peer(peer),
            two_lengths: TwoLengths::default(),
            inbound: Inbound::default(),
            upgrade: Upgrade::default(),
        };
        let Ok(slot) = peers.stream(&CallerId::of_peer(Some(peer.ip())), most_of_peer) else {
            metrics.connection_refused();
            log_refusal(&endpoint, StatusCode::TOO_MANY_REQUESTS, "too_many_connections", peer);
            let (routes, spare) = (routes(Place::NoneForPeer), Arc::clone(&spare));
            open.spawn(async move {
                match spare.try_acquire() {
                    Ok(_held) => connections.serve(routes, socket).await,
                    Err(_) => send_last(&mut { socket }, &reject::too_many_of_peer()).await,
                }
            });
            continue;
        };
        let is_full = open.len() >= most && !silent.close_one();
        let place = if is_full { Place::NoneInGateway } else { Place::Served };
        if is_full {
            metrics.connection_refused();
            log_refusal(&endpoint, StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", peer);
        }
        let worker = workers.least_loaded();
        let (socket, seat) = match worker.adopt(socket) {
            Ok(adopted) => adopted,
            Err(error) => {
                log_lost(&mut accept_logged, &error);
                continue;
            }
        };
        let (counted, routes) = (metrics.connection(), routes(place));
        let served = async move {
            let _held = (counted, slot, seat);
            connections.serve(routes, socket).await;
        };
        open.spawn_on(served, worker.runtime());
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
    let (facts, peer) = (&RequestFacts::default(), Some(peer.ip()));
    refusals.log(&RefusedRequest { status, code, route: None, facts, peer, fault: None });
}

/// Logs a connection that was not accepted, unless one was logged just now.
fn log_lost(logged_at: &mut Option<Instant>, error: &io::Error) {
    if logged_at.is_none_or(|at| at.elapsed() >= ACCEPT_LOG_PAUSE) {
        *logged_at = Some(Instant::now());
        tracing::warn!(%error, "a connection was not accepted");
    }
}

fn log_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection's task failed; please report this");
    }
}

/// Sends a whole response, and closes the sending half of the socket.
async fn send_last<S: AsyncWrite + Unpin>(socket: &mut S, response: &[u8]) {
    let sent = async {
        socket.write_all(response).await?;
        socket.shutdown().await
    };
    if !matches!(tokio::time::timeout(LAST_RESPONSE_TIMEOUT, sent).await, Ok(Ok(()))) {
        tracing::debug!("the last response of a connection was not sent");
    }
}

/// Waits for the first byte of a request. Returns whether one has come.
async fn is_asked(socket: &TcpStream, patience: Duration) -> bool {
    let first = tokio::time::timeout(patience, socket.peek(&mut [0])).await;
    matches!(first, Ok(Ok(1..)))
}

/// A socket whose requests are checked as they are read.
fn checked(routes: &Routes, socket: TcpStream) -> Socket {
    let (two_lengths, inbound) = (routes.two_lengths.clone(), routes.inbound.clone());
    let socket = TimeoutStream::new(FramingCheck::new(socket, two_lengths, inbound));
    let mut socket: Socket = Box::pin(socket);
    socket.as_mut().set_write_timeout_pinned(Some(WRITE_TIMEOUT));
    socket
}

// === impl Full ===

impl Full {
    /// Routes that refuse every request. `wrap` adds layers.
    pub(super) fn new(wrap: impl Fn(Router) -> Router) -> Self {
        let of_gateway = Router::new().fallback(reject::too_many_connections);
        let of_peer = Router::new().fallback(reject::too_many_connections_of_peer);
        Self { of_gateway: wrap(of_gateway), of_peer: wrap(of_peer) }
    }
}

// === impl Routes ===

impl Service<Request<Incoming>> for Routes {
    type Response = Response;
    type Error = Infallible;
    type Future = TowerToHyperServiceFuture<Router, Request<RequestBody>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.peer);
        request.extensions_mut().insert(self.upgrade.clone());
        take_token(request.headers_mut());
        let malformed = if self.two_lengths.is_seen() {
            Some(Router::new().fallback(reject::two_lengths))
        } else if framing::is_encoded(request.headers()) {
            Some(Router::new().fallback(reject::unknown_encoding))
        } else {
            None
        };
        if malformed.is_some() {
            log_refusal(&self.endpoint, StatusCode::BAD_REQUEST, "invalid_request", self.peer.0);
        }
        let routes = malformed.unwrap_or_else(|| {
            let endpoint = self.endpoint.borrow();
            match self.place {
                Place::Served => endpoint.routes.clone(),
                Place::NoneInGateway => endpoint.full.of_gateway.clone(),
                Place::NoneForPeer => endpoint.full.of_peer.clone(),
            }
        });
        let request = request.map(|body| self.inbound.body(body));
        TowerToHyperService::new(routes).call(request)
    }
}

// === impl Connections ===

impl Connections {
    fn new(limits: &Limits, silent: Silent, shutdown: CancellationToken) -> Self {
        let mut http1 = http1::Builder::new();
        http1
            .max_header_size(limits.header_bytes)
            // This also bounds what is buffered of a stream for a client that does not read.
            .max_buf_size(limits.header_bytes);
        Self { http1, header_timeout: limits.header_timeout, silent, shutdown }
    }

    async fn serve(self, routes: Routes, socket: TcpStream) {
        let Peer(peer) = routes.peer;
        // With Nagle's algorithm, each token would wait for the acknowledgement of the last one.
        let ended = match (socket.set_nodelay(true), routes.place) {
            (Err(error), _) => Err(error.to_string()),
            (Ok(()), Place::Served) => {
                self.serve_http1(&routes, socket).await.map_err(|error| error.to_string())
            }
            (Ok(()), Place::NoneInGateway | Place::NoneForPeer) => {
                self.refuse(&routes, socket).await.map_err(|error| error.to_string())
            }
        };
        if let Err(error) = ended {
            // Clients disconnect as they like, so this is no warning.
            tracing::debug!(%peer, error, "a connection broke");
        }
    }

    /// Refuses the first request of a connection that has no place, if it comes soon.
    async fn refuse(mut self, routes: &Routes, mut socket: TcpStream) -> hyper::Result<()> {
        self.header_timeout = self.header_timeout.min(REFUSED_TIMEOUT);
        if is_asked(&socket, LAST_RESPONSE_TIMEOUT).await {
            self.serve_requests(routes, checked(routes, socket)).await?;
        } else if routes.place == Place::NoneForPeer {
            send_last(&mut socket, &reject::too_many_of_peer()).await;
        }
        Ok(())
    }

    async fn serve_http1(&self, routes: &Routes, socket: TcpStream) -> hyper::Result<()> {
        let mut socket = checked(routes, socket);
        // For the first head; then for what is left of the rest between two requests.
        let mut patience = self.header_timeout;
        while self.is_asked(socket.get_ref().get_ref(), patience).await {
            match self.serve_requests(routes, socket).await? {
                Some(idle) => socket = idle,
                None => break,
            }
            patience = IDLE_TIMEOUT.saturating_sub(self.header_timeout);
        }
        Ok(())
    }

    /// Waits for the first byte of a request. A connection that waits is closed at the shutdown, and
    /// for another one when there is no place.
    async fn is_asked(&self, socket: &TcpStream, patience: Duration) -> bool {
        let seat = self.silent.sit();
        tokio::select! {
            is_asked = is_asked(socket, patience) => is_asked,
            () = self.shutdown.cancelled() => false,
            () = seat.closed() => false,
        }
    }

    /// Serves requests until the connection ends. Returns the socket of one that is idle.
    async fn serve_requests(
        &self,
        routes: &Routes,
        socket: Socket,
    ) -> hyper::Result<Option<Socket>> {
        let Routes { endpoint, upgrade, inbound, peer: Peer(peer), place, .. } = routes;
        let mut http1 = self.http1.clone();
        http1.timer(inbound.clone()).header_read_timeout(self.header_timeout);
        let mut connection = http1.serve_connection(TokioIo::new(socket), routes.clone());
        let ended = tokio::select! {
            ended = &mut connection => ended,
            () = self.shutdown.cancelled() => {
                Pin::new(&mut connection).graceful_shutdown();
                (&mut connection).await
            }
        };
        let http1::Parts { io, read_buf, .. } = connection.into_parts();
        let mut socket = io.into_inner();
        if ended.is_ok()
            && let Some(serve) = upgrade.take()
        {
            let shutdown = self.shutdown.clone();
            serve(Upgraded { io: Box::new(socket), read: read_buf, shutdown }).await;
            return Ok(None);
        }
        let is_late = ended.as_ref().is_err_and(hyper::Error::is_timeout);
        if is_late && read_buf.is_empty() {
            return Ok(Some(socket));
        }
        if is_late {
            // hyper closes a connection without a response if a head does not arrive in time.
            log_refusal(endpoint, StatusCode::REQUEST_TIMEOUT, "header_timeout", *peer);
            send_last(&mut socket, &reject::header_timeout(self.header_timeout)).await;
        }
        let is_refused = is_late || ended.as_ref().is_err_and(hyper::Error::is_parse);
        if is_refused || ended.is_ok() && inbound.is_unread() {
            let most = match place {
                Place::Served => linger::TIME,
                Place::NoneInGateway | Place::NoneForPeer => REFUSED_TIMEOUT,
            };
            linger::linger(&mut socket, most, &self.shutdown).await;
        }
        ended.map(|()| None)
    }
}
