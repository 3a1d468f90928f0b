//! The connections: how many there may be, how long a request may take to come, how they end.

use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::Limits;
use super::reject;
use super::socket::{LastWord, Socket};

/// How long connections may take to end once the server is told to stop. Streams are told to end
/// at once, so that only who does not read takes long; container platforms kill after 30 s.
pub const GRACE: Duration = Duration::from_secs(10);

/// How many connections beyond the limit are told so. Those behind them wait to be accepted.
pub const SPARE_CONNECTIONS: usize = 64;

/// How many requests one HTTP/2 connection may have open: a browser has some streams and calls.
const MAX_HTTP2_STREAMS: u32 = 100;

/// The pause after a failed accept: without file descriptors the next one fails at once too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Everything that a connection is made of, but for its socket.
#[derive(Clone)]
struct Connections {
    builder: auto::Builder<TokioExecutor>,
    header_timeout: Duration,
    shutdown: CancellationToken,
}

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

// === impl Connections ===

impl Connections {
    fn new(limits: &Limits, shutdown: CancellationToken) -> Self {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.header_timeout)
            // Also what is buffered of a stream for a client that does not read.
            .max_buf_size(limits.header_bytes);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_HTTP2_STREAMS)
            .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
            .max_send_buf_size(limits.header_bytes);
        Self { builder, header_timeout: limits.header_timeout, shutdown }
    }

    async fn serve(self, routes: TowerToHyperService<Router>, socket: TcpStream, peer: SocketAddr) {
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%peer, %error, "a connection ended before it began");
            return;
        }
        let last_word = LastWord::default();
        let socket = TokioIo::new(Socket::new(socket, last_word.clone()));
        let spoke = CancellationToken::new();
        let service = service_fn({
            let spoke = spoke.clone();
            move |request: hyper::Request<Incoming>| {
                spoke.cancel();
                routes.call(request)
            }
        });
        let mut connection = pin!(self.builder.serve_connection(socket, service));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.is_silent(&spoke) => {
                tracing::debug!(%peer, "a connection was closed on which no request came");
                return;
            }
            () = self.shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.as_mut().await
            }
        };
        if let Err(error) = ended {
            // Clients come and go as they like.
            tracing::debug!(%peer, error, "a connection broke");
            if error.downcast_ref().is_some_and(hyper::Error::is_timeout) {
                last_word.set(reject::header_timeout(self.header_timeout));
            }
        }
    }

    /// Waits until it is clear that a connection says nothing. The header timeout begins with the
    /// first bytes only: before them the connection does not know which HTTP it will speak.
    async fn is_silent(&self, spoke: &CancellationToken) {
        if tokio::time::timeout(self.header_timeout, spoke.cancelled()).await.is_ok() {
            std::future::pending::<()>().await;
        }
    }
}
