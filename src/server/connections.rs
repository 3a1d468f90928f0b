//! The connections: how many there may be, how long a request may take to come, how they end.

use std::io;
use std::net::SocketAddr;
use std::pin::{self, pin};
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::Limits;
use super::reject;

/// How long connections may take to end once the server is told to stop. Streams are told to end
/// at once, so that only who does not read takes long; container platforms kill after 30 s.
pub const GRACE: Duration = Duration::from_secs(10);

/// How many connections beyond the limit are told so. Those behind them wait to be accepted.
pub const SPARE_CONNECTIONS: usize = 64;

/// How many requests one HTTP/2 connection may have open: a browser has some streams and calls.
const MAX_HTTP2_STREAMS: u32 = 100;

/// The pause after a failed accept: without file descriptors the next one fails at once too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How an HTTP/2 connection begins (RFC 9113, section 3.4).
const HTTP2_PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The pause before the beginning of a connection is looked at again: who sends the preface of
/// HTTP/2 in pieces is hardly ever met.
const PREFACE_PAUSE: Duration = Duration::from_millis(10);

/// How long the last word of a connection may take: it is short, and fits any socket's buffer.
const LAST_WORD_TIMEOUT: Duration = Duration::from_secs(1);

/// Everything that a connection is made of, but for its socket.
#[derive(Clone)]
struct Connections {
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    header_timeout: Duration,
    shutdown: CancellationToken,
}

/// What a connection speaks.
enum Protocol {
    Http1,
    Http2,
}

type Routes = TowerToHyperService<Router>;

/// Serves until `shutdown` is cancelled, then lets what is open come to its end.
pub async fn serve(
    listener: TcpListener,
    routes: Router,
    limits: &Limits,
    shutdown: CancellationToken,
) {
    let connections = Connections::new(limits, shutdown.clone());
    let routes = TowerToHyperService::new(routes);
    let full = TowerToHyperService::new(Router::new().fallback(reject::too_many_connections));
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            Some(ended) = open.join_next() => log_panic(ended),
            accepted = listener.accept(), if open.len() < limits.connections + SPARE_CONNECTIONS => {
                match accepted {
                    Ok((socket, peer)) => {
                        let is_full = open.len() >= limits.connections;
                        let service = if is_full { full.clone() } else { routes.clone() };
                        open.spawn(connections.clone().serve(service, socket, peer));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection was not accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        }
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

fn log_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection's task failed; please report this");
    }
}

/// Prepares a connection, and looks at how it begins; nothing of it is taken.
async fn protocol(socket: &TcpStream) -> io::Result<Protocol> {
    // Each token would wait for the last one's acknowledgement.
    socket.set_nodelay(true)?;
    let mut begin = [0; HTTP2_PREFACE.len()];
    loop {
        let count = socket.peek(&mut begin).await?;
        let seen = begin.get(..count).unwrap_or_default();
        if seen.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        } else if seen == HTTP2_PREFACE {
            return Ok(Protocol::Http2);
        } else if !HTTP2_PREFACE.starts_with(seen) {
            return Ok(Protocol::Http1);
        }
        tokio::time::sleep(PREFACE_PAUSE).await;
    }
}

/// Sends a whole response, and closes.
async fn say(socket: &mut TcpStream, response: &[u8]) {
    let said = async {
        socket.write_all(response).await?;
        socket.shutdown().await
    };
    if !matches!(tokio::time::timeout(LAST_WORD_TIMEOUT, said).await, Ok(Ok(()))) {
        tracing::debug!("a connection's last word was not heard");
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
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_HTTP2_STREAMS)
            .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
            .max_send_buf_size(limits.header_bytes);
        Self { http1, http2, header_timeout: limits.header_timeout, shutdown }
    }

    async fn serve(self, routes: Routes, socket: TcpStream, peer: SocketAddr) {
        let began = tokio::select! {
            began = tokio::time::timeout(self.header_timeout, protocol(&socket)) => began,
            // Nothing was asked yet.
            () = self.shutdown.cancelled() => return,
        };
        let ended = match began {
            Ok(Ok(Protocol::Http1)) => self.serve_http1(routes, socket).await,
            Ok(Ok(Protocol::Http2)) => self.serve_http2(routes, socket).await,
            Ok(Err(error)) => {
                tracing::debug!(%peer, %error, "a connection ended before it began");
                return;
            }
            Err(_) => {
                tracing::debug!(%peer, "a connection was closed on which nothing came");
                return;
            }
        };
        if let Err(error) = ended {
            // Clients come and go as they like.
            tracing::debug!(%peer, %error, "a connection broke");
        }
    }

    async fn serve_http1(&self, routes: Routes, socket: TcpStream) -> hyper::Result<()> {
        let mut connection = self.http1.serve_connection(TokioIo::new(socket), routes);
        let ended = tokio::select! {
            ended = &mut connection => ended,
            () = self.shutdown.cancelled() => {
                pin::Pin::new(&mut connection).graceful_shutdown();
                (&mut connection).await
            }
        };
        // hyper closes a connection whose headers do not come without a word. Half a head is owed
        // one; a connection that only rested is not.
        if ended.as_ref().is_err_and(hyper::Error::is_timeout) {
            let http1::Parts { io, read_buf, .. } = connection.into_parts();
            if !read_buf.is_empty() {
                say(&mut io.into_inner(), &reject::header_timeout(self.header_timeout)).await;
            }
        }
        ended
    }

    async fn serve_http2(&self, routes: Routes, socket: TcpStream) -> hyper::Result<()> {
        let asked = CancellationToken::new();
        let service = service_fn({
            let asked = asked.clone();
            move |request: hyper::Request<Incoming>| {
                asked.cancel();
                routes.call(request)
            }
        });
        let mut connection = pin!(self.http2.serve_connection(TokioIo::new(socket), service));
        tokio::select! {
            ended = connection.as_mut() => ended,
            () = is_silent(&asked, self.header_timeout) => Ok(()),
            () = self.shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    }
}

/// Waits until it is clear that a connection asks for nothing.
async fn is_silent(asked: &CancellationToken, timeout: Duration) {
    if tokio::time::timeout(timeout, asked.cancelled()).await.is_ok() {
        std::future::pending::<()>().await;
    }
}
