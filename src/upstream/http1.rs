//! HTTP/1.1 to one server. Connections have no tasks of their own.
//!
//! Whoever awaits a response also polls its connection. A task for each connection would be woken
//! first for every token of a run, before the task that reads the run. Polling directly also
//! returns everything that one read of the socket brought.
//!
//! ```text
//!   idle pool <--- body dropped, connection still usable ----+
//!      |                                                     |
//!      +--> send(request) --> response: headers + body { framing, connection }
//!      ^                                 polling the body reads the socket
//!   new connection, if the pool is empty
//! ```
//!
//! - `connection`: sends a request, and decodes its response. `body`: a response body with its
//!   connection. `pool`: the idle connections. `super::dial` makes the connections.

mod body;
mod connection;
mod pool;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_LENGTH, HOST};
use http::{HeaderValue, Method, Request, Response};
use url::{Position, Url};

pub(super) use body::Body;
use connection::Connection;
use pool::Pool;

use super::dial::Dialer;
use super::transport_error::{ExchangeError, SendError};

/// A client of one server. Clones share its connections.
#[derive(Clone)]
pub(super) struct Http(Arc<Server>);

struct Server {
    dialer: Dialer,
    /// How long connecting may take.
    timeout: Duration,
    pool: Arc<Pool>,
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
        mut request: Request<Bytes>,
        url: &Url,
    ) -> Result<Response<Body>, SendError> {
        address(&mut request, url).map_err(|error| SendError::Connect(error.into()))?;
        let mut idle = self.0.pool.take();
        loop {
            let is_reused = idle.is_some();
            let mut connection = match idle.take() {
                Some(connection) => connection,
                None => self.connect(url).await?,
            };
            match connection.send(&request).await {
                Ok(response) => {
                    let pool = Arc::downgrade(&self.0.pool);
                    return Ok(response.map(|framing| Body::new(framing, connection, pool)));
                }
                Err(ExchangeError::Unsent(_)) if is_reused => idle = self.0.pool.take(),
                Err(ExchangeError::Closed | ExchangeError::Broken(_))
                    if is_reused && request.method() == Method::GET => {}
                Err(error) => return Err(SendError::Broken(error)),
            }
        }
    }

    async fn connect(&self, url: &Url) -> Result<Connection, SendError> {
        let connecting = async { Ok(Connection::new(self.0.dialer.connect(url).await?)) };
        let waited = self.0.timeout;
        match tokio::time::timeout(waited, connecting).await {
            Ok(connected) => connected.map_err(SendError::Connect),
            Err(_) => Err(SendError::ConnectTimeout { waited }),
        }
    }
}

/// Sets the request target and the headers of a connection to the server.
fn address(request: &mut Request<Bytes>, url: &Url) -> Result<(), http::Error> {
    *request.uri_mut() = url[Position::BeforePath..Position::AfterQuery].parse()?;
    let host = HeaderValue::from_str(&url[Position::BeforeHost..Position::AfterPort])?;
    request.headers_mut().insert(HOST, host);
    request.headers_mut().entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    let method = request.method();
    // A server may wait for the body of a request that has a method for one.
    if [Method::POST, Method::PUT, Method::PATCH].contains(method) || !request.body().is_empty() {
        let length = HeaderValue::from(request.body().len());
        request.headers_mut().insert(CONTENT_LENGTH, length);
    }
    // Without this header a server may compress as it likes (RFC 9110, 12.5.3).
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    Ok(())
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}
