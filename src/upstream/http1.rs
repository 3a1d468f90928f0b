//! HTTP/1.1 to one server, over connections that have no tasks of their own.
//!
//! Whoever waits for an answer polls the connection that it comes on. If each connection had a task,
//! a token of a run would wake that task first, and then the one that reads the run. All that one
//! read of the socket brings can also be taken at once.
//!
//! ```text
//!   idle connections <--------- body dropped, connection still good ----------+
//!         |                                                                   |
//!         +--> send(request) --> response: head + body { incoming, connection }
//!         ^                                    each poll of the body polls the connection
//!     a new one, if none is good
//! ```

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST};
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body::Body as _;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1 as conn;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep};
use tokio_util::task::TaskTracker;
use tower_service::Service;
use url::{Position, Url};

use super::{CONNECT_TIMEOUT, IDLE_TIMEOUT, SILENCE_TIMEOUT, SetupError, Tls};
use crate::sync::Mutex;

/// How many idle connections are kept. A server seldom gets more requests at a time.
const MAX_IDLE: usize = 64;

/// After how long without a byte the system looks whether the other end is there, how often it does
/// then, and how long what was sent may wait for an acknowledgement.
const TCP_KEEPALIVE: Duration = Duration::from_secs(15);
const TCP_KEEPALIVE_RETRIES: u32 = 3;
#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(30);

/// How many bytes of a body are taken at once. Tasks that are ready run before more is taken, so
/// that the viewers of a fast run keep up with it.
const MAX_AT_ONCE: usize = 64 * 1024;

/// A client of one server. Clones share its connections.
#[derive(Clone)]
pub(super) struct Http(Arc<Server>);

/// How the server is reached.
struct Server {
    connector: HttpsConnector<HttpConnector>,
    idle: Arc<Idle>,
}

/// Why there is no response.
#[derive(Debug)]
pub(super) enum SendError {
    /// No connection could be made, so nothing was sent.
    Connect(Box<dyn StdError + Send + Sync>),
    /// No connection was made within [`CONNECT_TIMEOUT`].
    ConnectTimeout,
    /// The connection broke. The server may have done what was asked.
    Broken(hyper::Error),
}

/// Why a body ends before its end.
#[derive(Debug)]
pub(super) enum BodyError {
    /// The connection broke.
    Broken(hyper::Error),
    /// Nothing came for [`SILENCE_TIMEOUT`].
    Silent,
}

/// The body of a response, and the connection that it comes on. Dropped at its end, the connection
/// is kept for the next request. Dropped before, the connection is closed.
pub(super) struct Body {
    /// `None` while it is dropped.
    incoming: Option<Incoming>,
    connection: Option<Connection>,
    home: Weak<Idle>,
    heard_at: Instant,
    /// It may ring too early: each chunk puts off what is due.
    silence: Pin<Box<Sleep>>,
    /// Whether as much was taken at once as may be.
    is_full: bool,
    /// How the body ended, where bytes before that were taken first.
    ended: Option<Result<(), BodyError>>,
}

type Payload = Full<Bytes>;

/// A connection to the server.
struct Connection {
    sender: conn::SendRequest<Payload>,
    /// Reads and writes the socket.
    driver: Box<conn::Connection<MaybeHttpsStream<TokioIo<TcpStream>>, Payload>>,
}

/// The connections that wait for the next request.
struct Idle {
    kept: Mutex<Kept>,
    tasks: TaskTracker,
}

#[derive(Default)]
struct Kept {
    /// With each the time until which it is kept. The last to come is the last.
    connections: Vec<(Instant, Connection)>,
    /// Whether a task is there that closes those which nobody has used in time.
    is_tended: bool,
}

// === impl Http ===

impl Http {
    /// Makes no connection yet.
    pub(super) fn new(tls: &Tls) -> Result<Self, SetupError> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_keepalive(Some(TCP_KEEPALIVE));
        http.set_keepalive_interval(Some(TCP_KEEPALIVE));
        http.set_keepalive_retries(Some(TCP_KEEPALIVE_RETRIES));
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        http.set_tcp_user_timeout(Some(TCP_USER_TIMEOUT));
        let connector = HttpsConnector::from((http, tls.config().map_err(SetupError)?));
        let idle = Arc::new(Idle { kept: Mutex::default(), tasks: TaskTracker::new() });
        Ok(Self(Arc::new(Server { connector, idle })))
    }

    /// Sends a request to this URL, and waits for the head of the response.
    ///
    /// A request that an idle connection did not take any more is sent on another one. A GET that was
    /// not answered on an idle connection is sent once more, on a new one.
    pub(super) async fn send(
        &self,
        mut request: Request<Payload>,
        url: &Url,
    ) -> Result<Response<Body>, SendError> {
        address(&mut request, url).map_err(|error| SendError::Connect(error.into()))?;
        let mut idle = self.0.idle.take();
        loop {
            let is_kept = idle.is_some();
            let again = (is_kept && request.method() == Method::GET).then(|| request.clone());
            let mut connection = match idle.take() {
                Some(connection) => connection,
                None => self.connect(url).await?,
            };
            match connection.answer(request).await {
                Ok(response) => return Ok(self.with_body(response, connection)),
                Err((_, Some(unsent))) if is_kept => {
                    request = unsent;
                    idle = self.0.idle.take();
                }
                Err((error, _)) => match again {
                    Some(again) if !error.is_parse() => request = again,
                    Some(_) | None => return Err(SendError::Broken(error)),
                },
            }
        }
    }

    async fn connect(&self, url: &Url) -> Result<Connection, SendError> {
        let mut connector = self.0.connector.clone();
        let connecting = async {
            let uri: Uri = url[..Position::BeforePath].parse()?;
            std::future::poll_fn(|cx| connector.poll_ready(cx)).await?;
            let socket = connector.call(uri).await?;
            let (sender, driver) = conn::handshake(socket).await?;
            Ok(Connection { sender, driver: Box::new(driver) })
        };
        match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(connected) => connected.map_err(SendError::Connect),
            Err(_) => Err(SendError::ConnectTimeout),
        }
    }

    fn with_body(&self, response: Response<Incoming>, connection: Connection) -> Response<Body> {
        let home = Arc::downgrade(&self.0.idle);
        response.map(|incoming| {
            let (heard_at, silence) =
                (Instant::now(), Box::pin(tokio::time::sleep(SILENCE_TIMEOUT)));
            let (incoming, connection) = (Some(incoming), Some(connection));
            Body { incoming, connection, home, heard_at, silence, is_full: false, ended: None }
        })
    }
}

/// Gives a request the target and the headers that it has on a connection to the server.
fn address(request: &mut Request<Payload>, url: &Url) -> Result<(), http::Error> {
    *request.uri_mut() = url[Position::BeforePath..Position::AfterQuery].parse()?;
    let host = HeaderValue::from_str(&url[Position::BeforeHost..Position::AfterPort])?;
    request.headers_mut().insert(HOST, host);
    request.headers_mut().entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    Ok(())
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}

// === impl Connection ===

impl Connection {
    /// Sends a request, and waits for the head of its response. Returns the request if nothing of it
    /// was sent.
    async fn answer(
        &mut self,
        request: Request<Payload>,
    ) -> Result<Response<Incoming>, (hyper::Error, Option<Request<Payload>>)> {
        let Self { sender, driver } = self;
        let mut sending = pin!(sender.try_send_request(request));
        let answered = std::future::poll_fn(|cx| {
            // What the driver reads is answered; what ends it is answered too.
            let is_over = Pin::new(&mut **driver).poll(cx).is_ready();
            match sending.as_mut().poll(cx) {
                Poll::Pending if is_over => sending.as_mut().poll(cx),
                answered @ (Poll::Ready(_) | Poll::Pending) => answered,
            }
        });
        answered.await.map_err(|mut error| {
            let unsent = error.take_message();
            (error.into_error(), unsent)
        })
    }

    /// Whether another request can be sent. What has come since the last one is looked at, which
    /// waits for nothing.
    fn is_good(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        Pin::new(&mut *self.driver).poll(&mut cx).is_pending() && self.sender.is_ready()
    }
}

// === impl Idle ===

impl Idle {
    /// A connection that the server has not closed.
    fn take(&self) -> Option<Connection> {
        loop {
            let (until, mut connection) = self.kept.lock().connections.pop()?;
            if Instant::now() < until && connection.is_good() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection for the next request.
    fn put(self: &Arc<Self>, connection: Connection) {
        let Ok(runtime) = Handle::try_current() else { return };
        let until = Instant::now() + IDLE_TIMEOUT;
        let was_tended = {
            let mut kept = self.kept.lock();
            if kept.connections.len() >= MAX_IDLE {
                // It is closed when the lock is released.
                return;
            }
            kept.connections.push((until, connection));
            std::mem::replace(&mut kept.is_tended, true)
        };
        if !was_tended {
            self.tasks.spawn_on(Self::tend(Arc::downgrade(self)), &runtime);
        }
    }

    /// Closes connections that nobody has used in time, until none is left.
    async fn tend(idle: Weak<Self>) {
        loop {
            tokio::time::sleep(IDLE_TIMEOUT).await;
            let Some(idle) = idle.upgrade() else { return };
            let now = Instant::now();
            let (late, is_tended) = {
                let mut kept = idle.kept.lock();
                let count = kept.connections.partition_point(|(until, _)| *until <= now);
                let late: Vec<_> = kept.connections.drain(..count).collect();
                kept.is_tended = !kept.connections.is_empty();
                (late, kept.is_tended)
            };
            // A socket is closed without the lock.
            drop(late);
            if !is_tended {
                return;
            }
        }
    }
}

// === impl Body ===

impl Body {
    /// Takes what has come, up to some 64 KiB. Returns whether there may be more: at the body's end
    /// nothing is taken. May be dropped while it waits.
    pub(super) async fn chunks(&mut self, taken: &mut Vec<Bytes>) -> Result<bool, BodyError> {
        std::future::poll_fn(|cx| self.poll_chunks(cx, taken)).await
    }

    fn poll_chunks(
        &mut self,
        cx: &mut Context<'_>,
        taken: &mut Vec<Bytes>,
    ) -> Poll<Result<bool, BodyError>> {
        if let Some(ended) = self.ended.take() {
            return Poll::Ready(ended.map(|()| false));
        }
        if std::mem::take(&mut self.is_full) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut bytes = 0;
        while bytes < MAX_AT_ONCE {
            let ended = match self.poll_chunk(cx) {
                Poll::Ready(Some(Ok(chunk))) => {
                    bytes += chunk.len();
                    taken.push(chunk);
                    continue;
                }
                Poll::Ready(Some(Err(error))) => Err(error),
                Poll::Ready(None) => Ok(()),
                Poll::Pending => break,
            };
            if bytes == 0 {
                return Poll::Ready(ended.map(|()| false));
            }
            self.ended = Some(ended);
            break;
        }
        if bytes > 0 {
            self.is_full = bytes >= MAX_AT_ONCE;
            self.heard_at = Instant::now();
            return Poll::Ready(Ok(true));
        }
        self.poll_silence(cx).map(|()| Err(BodyError::Silent))
    }

    /// The next chunk; `None` at the end.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let Some(incoming) = &mut self.incoming else { return Poll::Ready(None) };
        loop {
            // It is asked before the connection: that lets the connection read.
            let mut frame = Pin::new(&mut *incoming).poll_frame(cx);
            if frame.is_pending()
                && let Some(connection) = &mut self.connection
            {
                if Pin::new(&mut *connection.driver).poll(cx).is_ready() {
                    self.connection = None;
                }
                frame = Pin::new(&mut *incoming).poll_frame(cx);
            }
            match ready!(frame) {
                Some(Ok(frame)) => {
                    // Trailers are no bytes.
                    if let Ok(chunk) = frame.into_data()
                        && !chunk.is_empty()
                    {
                        return Poll::Ready(Some(Ok(chunk)));
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(BodyError::Broken(error)))),
                None => return Poll::Ready(None),
            }
        }
    }

    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.silence.as_mut().poll(cx).is_ready() {
            let due = self.heard_at + SILENCE_TIMEOUT;
            if Instant::now() >= due {
                return Poll::Ready(());
            }
            self.silence.as_mut().reset(due);
        }
        Poll::Pending
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.incoming = None;
        if let Some(mut connection) = self.connection.take()
            && let Some(idle) = self.home.upgrade()
            && connection.is_good()
        {
            idle.put(connection);
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").finish_non_exhaustive()
    }
}

// === impl SendError ===

impl fmt::Display for SendError {
    /// The last cause says most, and names no URL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) if is_plain(&**error) => {
                f.write_str("it speaks http, not https: write its URL with http://")
            }
            Self::Connect(error) => f.write_str(&last_cause(&**error)),
            Self::ConnectTimeout => {
                write!(f, "no connection within {} s", CONNECT_TIMEOUT.as_secs())
            }
            Self::Broken(error) if error.is_parse() => f.write_str(
                "it answers with what is no HTTP; if it speaks TLS, write its URL with https://",
            ),
            Self::Broken(error) => f.write_str(&last_cause(error)),
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(error) => f.write_str(&last_cause(error)),
            Self::Silent => write!(f, "silent for {} s", SILENCE_TIMEOUT.as_secs()),
        }
    }
}

/// Whether TLS was answered with something else: a server that speaks plain HTTP says so in HTTP.
fn is_plain(error: &(dyn StdError + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        let plain = rustls::InvalidMessage::InvalidContentType;
        return *error == rustls::Error::InvalidMessage(plain);
    }
    let inner = match error.downcast_ref::<io::Error>() {
        // One of the system's gives the cause of what it holds as its own.
        Some(error) => error.get_ref().map(|inner| inner as &(dyn StdError + 'static)),
        None => error.source(),
    };
    inner.is_some_and(is_plain)
}

fn last_cause(error: &(dyn StdError + 'static)) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
