//! The HTTP server: connections, routes, and how it all comes to rest.

mod agui;
mod body;
mod reject;
mod wire;

use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

pub use agui::{BODY_TIMEOUT, MAX_BODY_BYTES};
pub use body::{KEEP_ALIVE, RETRY};
pub use wire::{Encoder, Wire};

use crate::upstream::Client;

/// How long a client may take to send a request's headers, the pause before them included.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long connections may take to end once the server is told to stop. Streams are told to end
/// at once, so that only who does not read takes long; container platforms kill after 30 s.
pub const GRACE: Duration = Duration::from_secs(10);

/// The pause after a failed accept: without file descriptors the next one fails at once too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What all requests share.
#[derive(Clone, Debug)]
struct Gateway {
    upstream: Client,
    /// Cancelled when streams are to end.
    shutdown: CancellationToken,
}

/// Everything that a connection is made of, but for its socket.
#[derive(Clone)]
struct Connections {
    builder: auto::Builder<TokioExecutor>,
    service: TowerToHyperService<Router>,
    shutdown: CancellationToken,
}

/// Serves until `shutdown` is through, then lets what is open come to its end.
pub async fn run(listener: TcpListener, upstream: Client, shutdown: impl Future<Output = ()>) {
    let stop = CancellationToken::new();
    let connections = Connections::new(Gateway { upstream, shutdown: stop.clone() });
    let mut open = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(ended) = open.join_next() => log_panic(ended),
            accepted = listener.accept() => match accepted {
                Ok((socket, peer)) => {
                    open.spawn(connections.clone().serve(socket, peer));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    tracing::info!(connections = open.len(), "stopping");
    stop.cancel();
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

fn routes(gateway: Gateway) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/agui/agent/{agent}/run", post(agui::run))
        .method_not_allowed_fallback(reject::wrong_method)
        .fallback(reject::unknown_route)
        .with_state(gateway)
}

// === impl Connections ===

impl Connections {
    fn new(gateway: Gateway) -> Self {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
        builder.http2().timer(TokioTimer::new());
        let shutdown = gateway.shutdown.clone();
        Self { builder, service: TowerToHyperService::new(routes(gateway)), shutdown }
    }

    async fn serve(self, socket: TcpStream, peer: SocketAddr) {
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%peer, %error, "a connection ended before it began");
            return;
        }
        let spoke = CancellationToken::new();
        let service = service_fn({
            let spoke = spoke.clone();
            move |request: hyper::Request<Incoming>| {
                spoke.cancel();
                self.service.call(request)
            }
        });
        let mut connection = pin!(self.builder.serve_connection(TokioIo::new(socket), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = is_silent(&spoke) => {
                tracing::debug!(%peer, "a connection was closed on which no request came");
                return;
            }
            () = self.shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            // Clients come and go as they like.
            tracing::debug!(%peer, error, "a connection broke");
        }
    }
}

/// Waits until it is clear that a connection says nothing. The header timeout begins with the
/// first bytes only: before them the connection does not know which HTTP it will speak.
async fn is_silent(spoke: &CancellationToken) {
    if tokio::time::timeout(HEADER_TIMEOUT, spoke.cancelled()).await.is_ok() {
        std::future::pending::<()>().await;
    }
}
