//! HTTP/1.1 to one server. Connections have no tasks of their own.
//!
//! Whoever awaits a response also polls its connection. A task for each connection would be woken
//! first for every token of a run, before the task that reads the run. Polling directly also
//! returns everything that one read of the socket brought.
//!
//! ```text
//!   idle pool <--- body dropped, connection still usable ----+
//!      |                                                     |
//!      +--> send(request) --> response: headers + body { incoming, connection }
//!      ^                                 polling the body polls the connection
//!   new connection, if the pool is empty
//! ```
//!
//! - `body`: a response body with its connection. `pool`: the idle connections.
//!   `super::dial` makes the connections.

mod body;
mod pool;

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, HOST};
use http::{HeaderValue, Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1 as conn;
use url::{Position, Url};

pub(super) use body::Body;
use pool::Pool;

use super::dial::{Dialer, HttpSocket};
use super::transport_error::SendError;

/// A client of one server. Clones share its connections.
#[derive(Clone)]
pub(super) struct Http(Arc<Server>);

struct Server {
    dialer: Dialer,
    /// How long connecting may take.
    timeout: Duration,
    pool: Arc<Pool>,
}

/// How much of an answer a connection reads at once, in bytes, and how long its head may be. A
/// connection keeps a buffer of this size after a large answer, also while it is idle.
const MAX_READ_BYTES: usize = 64 * 1024;

type Payload = Full<Bytes>;

/// A connection to the server.
struct Connection {
    sender: conn::SendRequest<Payload>,
    /// Reads and writes the socket when it is polled.
    driver: Box<conn::Connection<HttpSocket, Payload>>,
}

// === impl Http ===

impl Http {
    /// Does not connect yet.
    pub(super) fn new(dialer: Dialer, timeout: Duration) -> Self {
        Self(Arc::new(Server { dialer, timeout, pool: Arc::new(Pool::new()) }))
    }

    /// Sends a request and waits for the response headers.
    ///
    /// A request that an idle connection did not accept is sent on another one. A GET that an idle
    /// connection accepted and did not answer is sent once more, on a new connection.
    pub(super) async fn send(
        &self,
        mut request: Request<Payload>,
        url: &Url,
    ) -> Result<Response<Body>, SendError> {
        address(&mut request, url).map_err(|error| SendError::Connect(error.into()))?;
        let mut idle = self.0.pool.take();
        loop {
            let is_reused = idle.is_some();
            let again = (is_reused && request.method() == Method::GET).then(|| request.clone());
            let mut connection = match idle.take() {
                Some(connection) => connection,
                None => self.connect(url).await?,
            };
            match connection.send(request).await {
                Ok(response) => {
                    let pool = Arc::downgrade(&self.0.pool);
                    return Ok(response.map(|incoming| Body::new(incoming, connection, pool)));
                }
                Err((_, Some(unsent))) if is_reused => {
                    request = unsent;
                    idle = self.0.pool.take();
                }
                Err((error, _)) => match again {
                    Some(again) if !error.is_parse() => request = again,
                    Some(_) | None => return Err(SendError::Broken(error)),
                },
            }
        }
    }

    async fn connect(&self, url: &Url) -> Result<Connection, SendError> {
        let connecting = async {
            let socket = self.0.dialer.connect(url).await?;
            let (sender, driver) =
                conn::Builder::new().max_buf_size(MAX_READ_BYTES).handshake(socket).await?;
            Ok(Connection { sender, driver: Box::new(driver) })
        };
        let waited = self.0.timeout;
        match tokio::time::timeout(waited, connecting).await {
            Ok(connected) => connected.map_err(SendError::Connect),
            Err(_) => Err(SendError::ConnectTimeout { waited }),
        }
    }
}

/// Sets the request target and the headers of a connection to the server.
fn address(request: &mut Request<Payload>, url: &Url) -> Result<(), http::Error> {
    *request.uri_mut() = url[Position::BeforePath..Position::AfterQuery].parse()?;
    let host = HeaderValue::from_str(&url[Position::BeforeHost..Position::AfterPort])?;
    request.headers_mut().insert(HOST, host);
    request.headers_mut().entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    // Without this header a server may compress as it likes (RFC 9110, 12.5.3).
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    Ok(())
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}

// === impl Connection ===

impl Connection {
    /// Sends a request and waits for the response headers. The error contains the request if none
    /// of it was sent.
    async fn send(
        &mut self,
        request: Request<Payload>,
    ) -> Result<Response<Incoming>, (hyper::Error, Option<Request<Payload>>)> {
        let Self { sender, driver } = self;
        let mut sending = pin!(sender.try_send_request(request));
        let response = std::future::poll_fn(|cx| {
            // What the driver reads, and also why it ends, becomes the result of `sending`.
            let is_over = Pin::new(&mut **driver).poll(cx).is_ready();
            match sending.as_mut().poll(cx) {
                Poll::Pending if is_over => sending.as_mut().poll(cx),
                result @ (Poll::Ready(_) | Poll::Pending) => result,
            }
        });
        response.await.map_err(|mut error| {
            let unsent = error.take_message();
            (error.into_error(), unsent)
        })
    }

    /// Whether another request can be sent. Polls the socket once, so that a closed one is noticed.
    fn is_usable(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        Pin::new(&mut *self.driver).poll(&mut cx).is_pending() && self.sender.is_ready()
    }
}
