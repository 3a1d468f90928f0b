//! One socket, from its opening to its end.
//!
//! One task does it all, and does one thing after the other: what a turn tells is pulled when the
//! client has taken what came before, so that a slow client holds no more than its place in the
//! run's log.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::pending;
use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use http_body_util::BodyExt;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::frame::{self, Frames, Sent};
use super::{Opened, Replay, Turn};
use crate::server::KEEP_ALIVE;
use threadway_translate::json::ObjectWriter;

/// How long a socket may be silent before its client is sent a ping.
pub const PING: Duration = KEEP_ALIVE;

/// How long a client may take to answer a ping. One that does not is gone.
pub const PONG_TIMEOUT: Duration = Duration::from_mins(1);

/// How long a socket may rest without a turn: as long as with the server of `TanStack` AI itself.
pub const IDLE: Duration = Duration::from_mins(5);

/// How many frames in a row may be refused before the socket is closed.
const MAX_REFUSED_FRAMES: u32 = 10;

/// How many frames may wait for the turn before them. A person's next message may come while the
/// last turn still ends.
const MAX_WAITING: usize = 1;

/// How long a client may take to answer a close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How much is read at once: messages are assembled elsewhere.
const READ_BUFFER_BYTES: usize = 4 * 1024;

/// From how many bytes on what is written goes out without being flushed.
const WRITE_BUFFER_BYTES: usize = 16 * 1024;

/// The largest refusal that is read of the gateway's own routes.
const MAX_REFUSAL_BYTES: usize = 64 * 1024;

/// A socket that is open.
struct Session<S, R> {
    socket: WebSocketStream<S>,
    opened: Opened,
    /// The gateway's routes, as they are now.
    routes: R,
    shutdown: CancellationToken,
    turn: Option<UnderWay>,
    waiting: VecDeque<(Utf8Bytes, Sent)>,
    stopping: Option<Asked>,
    /// The thread of the last turn.
    thread_id: Option<String>,
    /// What is to be said of a frame as soon as the turn has begun for its client.
    held: Option<(String, String)>,
    /// How many frames in a row were refused.
    refused: u32,
    ping_at: Instant,
    /// When the ping was sent that has no answer.
    pinged_at: Option<Instant>,
    idle_at: Instant,
}

/// A turn, from its request to the end of its stream.
struct UnderWay {
    progress: Progress,
    is_replay: bool,
    /// Whether its client was told anything of it.
    has_told: bool,
    frames: Frames,
}

enum Progress {
    Asked(Asked),
    Streaming(Body),
}

/// A request to the gateway's own routes.
type Asked = Pin<Box<dyn Future<Output = Result<Body, Refusal>> + Send>>;

/// How a route refuses.
#[derive(Debug, Deserialize)]
struct Refusal {
    error: String,
    message: String,
}

/// What a turn does next.
enum Step {
    Begun(Body),
    Refused(Refusal),
    Told(Bytes),
    Over,
}

/// How a socket ends.
enum End {
    /// The client is gone, or has said that it goes.
    Left,
    /// The client is told why.
    Closed(CloseCode, &'static str),
}

/// Serves a socket until its end. `read` is what was read behind the request that opened it.
pub(in crate::server) async fn serve<S, R>(
    opened: Opened,
    socket: S,
    read: Bytes,
    routes: R,
    shutdown: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    R: Fn() -> Router,
{
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_message_size(Some(opened.limit))
        .max_frame_size(Some(opened.limit));
    let part = read.to_vec();
    let socket =
        WebSocketStream::from_partially_read(socket, part, Role::Server, Some(config)).await;
    let now = Instant::now();
    let session = Session {
        socket,
        opened,
        routes,
        shutdown,
        turn: None,
        waiting: VecDeque::new(),
        stopping: None,
        thread_id: None,
        held: None,
        refused: 0,
        ping_at: now + PING,
        pinged_at: None,
        idle_at: now + IDLE,
    };
    Box::pin(session.run()).await;
}

/// Asks one of the gateway's own routes.
async fn ask(mut routes: Router, request: Request<Body>) -> Result<Body, Refusal> {
    let response: Result<Response, Infallible> = routes.call(request).await;
    let Ok(response) = response;
    if response.status().is_success() {
        return Ok(response.into_body());
    }
    let status = response.status();
    let body = to_bytes(response.into_body(), MAX_REFUSAL_BYTES).await.unwrap_or_default();
    Err(serde_json::from_slice(&body).unwrap_or_else(|_| Refusal {
        error: "refused".to_owned(),
        message: format!("the gateway answers {status}"),
    }))
}

// === impl Session ===

impl<S, R> Session<S, R>
where
    S: AsyncRead + AsyncWrite + Unpin,
    R: Fn() -> Router,
{
    async fn run(mut self) {
        if let Some(replay) = self.opened.replay.take() {
            self.replay(replay);
        }
        let end = loop {
            match self.step().await {
                Ok(None) => {}
                Ok(Some(end)) => break end,
                Err(error) => break End::of(&error),
            }
        };
        // A turn that is left goes on: leaving is not stopping.
        self.turn = None;
        self.close(end).await;
    }

    /// Waits for what happens next, and does what is to be done then.
    async fn step(&mut self) -> Result<Option<End>, Error> {
        if self.turn.is_none() {
            if self.shutdown.is_cancelled() {
                return Ok(Some(End::Closed(CloseCode::Away, "the gateway is shutting down")));
            }
            if let Some((text, sent)) = self.waiting.pop_front() {
                self.begin(text, sent);
            }
        }
        let is_idle = self.turn.is_none();
        tokio::select! {
            step = next(&mut self.turn) => self.turned(step).await,
            stopped = answered(&mut self.stopping) => {
                self.stopping = None;
                match stopped {
                    // The run's own end says so.
                    Ok(_) => Ok(None),
                    Err(Refusal { error, message }) => self.complain(error, message).await,
                }
            }
            received = self.socket.next() => match received {
                Some(message) => self.receive(message?).await,
                None => Ok(Some(End::Left)),
            },
            () = sleep_until(self.ping_at) => self.ping().await,
            () = sleep_until(self.idle_at), if is_idle => {
                Ok(Some(End::Closed(CloseCode::Normal, "no turn for five minutes")))
            }
            // A turn is told of it as any stream is.
            () = self.shutdown.cancelled(), if is_idle => Ok(None),
        }
    }

    /// What a turn has done.
    async fn turned(&mut self, step: Step) -> Result<Option<End>, Error> {
        let Some(turn) = &mut self.turn else { return Ok(None) };
        match step {
            Step::Begun(body) => turn.progress = Progress::Streaming(body),
            Step::Told(mut bytes) => {
                while let Some(frame) = turn.frames.next(&mut bytes) {
                    turn.has_told = true;
                    if let Ok(text) = Utf8Bytes::try_from(frame) {
                        self.socket.feed(Message::Text(text)).await?;
                    }
                }
                if turn.has_told
                    && let Some((code, message)) = self.held.take()
                {
                    self.socket.feed(Message::text(frame::error(&code, &message, true))).await?;
                }
                self.flush().await?;
            }
            Step::Refused(Refusal { error, message }) => {
                let is_replay = turn.is_replay;
                self.over();
                self.say(&error, &message, false).await?;
                if is_replay {
                    return Ok(Some(End::Closed(CloseCode::Policy, "there is nothing to resume")));
                }
                if let Some((code, message)) = self.held.take() {
                    self.say(&code, &message, false).await?;
                }
            }
            Step::Over => {
                let is_replay = turn.is_replay;
                self.over();
                if is_replay && !self.shutdown.is_cancelled() {
                    return Ok(Some(End::Closed(CloseCode::Normal, "the run is over")));
                }
            }
        }
        Ok(None)
    }

    fn over(&mut self) {
        self.turn = None;
        self.idle_at = Instant::now() + IDLE;
    }

    async fn receive(&mut self, message: Message) -> Result<Option<End>, Error> {
        self.pinged_at = None;
        match message {
            Message::Text(text) => match Sent::parse(&text) {
                Ok(sent) => self.asked(text, sent).await,
                Err(wrong) => self.complain("invalid_request".to_owned(), wrong).await,
            },
            Message::Binary(_) => {
                let message = "the frame is binary; send JSON as text".to_owned();
                self.complain("invalid_request".to_owned(), message).await
            }
            // A ping is answered by the next write, or the next read.
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => Ok(None),
            Message::Close(_) => Ok(Some(End::Left)),
        }
    }

    async fn asked(&mut self, text: Utf8Bytes, sent: Sent) -> Result<Option<End>, Error> {
        match &sent {
            Sent::Nothing => Ok(None),
            Sent::Abort { thread_id, run_id } => {
                self.abort(thread_id.clone(), run_id.as_deref()).await
            }
            Sent::Turn { .. } if self.waiting.len() >= MAX_WAITING => {
                let message = "a turn is under way, and another one waits for its end; send this \
                               one again when a run has ended";
                self.complain("thread_busy".to_owned(), message.to_owned()).await
            }
            Sent::Turn { .. } => {
                self.refused = 0;
                self.waiting.push_back((text, sent));
                Ok(None)
            }
        }
    }

    /// Asks for the turn of a frame.
    fn begin(&mut self, text: Utf8Bytes, sent: Sent) {
        let Sent::Turn { thread_id, run_id: _, last_event_id } = sent else { return };
        self.thread_id = Some(thread_id);
        self.start(Bytes::from(text), last_event_id.as_deref(), false);
    }

    /// Asks for the rest of a run.
    fn replay(&mut self, replay: Replay) {
        let Replay { thread_id, run_id, offset } = replay;
        let input = ObjectWriter::new()
            .string("threadId", &thread_id)
            .string("runId", &run_id)
            .raw("messages", "[]")
            .finish();
        self.thread_id = Some(thread_id);
        self.start(Bytes::from(input.get().to_owned()), Some(&offset), true);
    }

    fn start(&mut self, input: Bytes, last_event_id: Option<&str>, is_replay: bool) {
        let mut request = self.request("/run", input);
        if let Some(id) = last_event_id {
            // What no header can hold is no id of ours, and counts as such a one.
            let id = HeaderValue::from_str(id).unwrap_or(HeaderValue::from_static("?"));
            request.headers_mut().insert(HeaderName::from_static("last-event-id"), id);
        }
        let Opened { wire, slot, .. } = &self.opened;
        request.extensions_mut().insert(Turn { wire: *wire, slot: slot.clone(), is_replay });
        let asked: Asked = Box::pin(ask((self.routes)(), request));
        self.turn = Some(UnderWay {
            progress: Progress::Asked(asked),
            is_replay,
            has_told: false,
            frames: Frames::default(),
        });
    }

    /// Stops a run, as the stop route does.
    async fn abort(
        &mut self,
        thread_id: Option<String>,
        run_id: Option<&str>,
    ) -> Result<Option<End>, Error> {
        let is_wanted = |sent: &Sent| matches!(sent, Sent::Turn { run_id: waiting, .. } if Some(&**waiting) == run_id);
        if self.waiting.iter().any(|(_, sent)| is_wanted(sent)) {
            self.waiting.retain(|(_, sent)| !is_wanted(sent));
            let message = "the turn was taken back before it began".to_owned();
            return self.complain("aborted".to_owned(), message).await;
        }
        let Some(thread_id) = thread_id.or_else(|| self.thread_id.clone()) else {
            let message = "no run was started on this socket; name the run's `threadId` too";
            return self.complain("invalid_request".to_owned(), message.to_owned()).await;
        };
        if self.stopping.is_some() {
            let message = "an abort is under way".to_owned();
            return self.complain("thread_busy".to_owned(), message).await;
        }
        self.refused = 0;
        let body = match run_id {
            Some(run_id) => ObjectWriter::new().string("runId", run_id).finish().get().to_owned(),
            None => "{}".to_owned(),
        };
        let path = format!("/stop/{}", escaped(&thread_id));
        let request = self.request(&path, Bytes::from(body));
        self.stopping = Some(Box::pin(ask((self.routes)(), request)));
        Ok(None)
    }

    /// A POST to one of the gateway's own routes.
    fn request(&self, path: &str, body: Bytes) -> Request<Body> {
        let Opened { headers, peer, path: agent, .. } = &self.opened;
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = http::Method::POST;
        // The agent's path was one, and the rest is plain.
        if let Ok(uri) = format!("{agent}{path}").parse() {
            *request.uri_mut() = uri;
        }
        let mut headers: HeaderMap = headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        *request.headers_mut() = headers;
        if let Some(peer) = peer {
            request.extensions_mut().insert(*peer);
        }
        request
    }

    /// Says what is wrong with a frame, unless there were too many of the kind.
    async fn complain(&mut self, code: String, message: String) -> Result<Option<End>, Error> {
        self.refused += 1;
        if self.refused > MAX_REFUSED_FRAMES {
            return Ok(Some(End::Closed(CloseCode::Policy, "too many frames were refused")));
        }
        match &self.turn {
            // The client would take it for the turn's end, or for an event before its start.
            Some(turn) if !turn.has_told => self.held = Some((code, message)),
            turn => {
                let is_within_run = turn.is_some();
                self.say(&code, &message, is_within_run).await?;
            }
        }
        Ok(None)
    }

    async fn say(&mut self, code: &str, message: &str, is_within_run: bool) -> Result<(), Error> {
        self.socket.feed(Message::text(frame::error(code, message, is_within_run))).await?;
        self.flush().await
    }

    async fn flush(&mut self) -> Result<(), Error> {
        self.socket.flush().await?;
        self.ping_at = Instant::now() + PING;
        Ok(())
    }

    async fn ping(&mut self) -> Result<Option<End>, Error> {
        let now = Instant::now();
        let pinged_at = *self.pinged_at.get_or_insert(now);
        if now >= pinged_at + PONG_TIMEOUT {
            return Ok(Some(End::Left));
        }
        self.socket.feed(Message::Ping(Bytes::new())).await?;
        self.flush().await?;
        Ok(None)
    }

    /// Closes the socket, and waits for the client to have read so: what is still on its way would
    /// be lost if the connection were cut.
    async fn close(&mut self, end: End) {
        let closed = async {
            match end {
                End::Left => self.socket.flush().await?,
                End::Closed(code, reason) => {
                    let reason = Utf8Bytes::from_static(reason);
                    self.socket.close(Some(CloseFrame { code, reason })).await?;
                    while let Some(message) = self.socket.next().await {
                        message?;
                    }
                }
            }
            Ok::<_, Error>(())
        };
        // It may be gone, or say nothing.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, closed).await;
    }
}

/// What a turn does next; nothing without one. May be dropped while it waits.
async fn next(turn: &mut Option<UnderWay>) -> Step {
    match turn.as_mut().map(|turn| &mut turn.progress) {
        None => pending().await,
        Some(Progress::Asked(asked)) => match asked.await {
            Ok(body) => Step::Begun(body),
            Err(refusal) => Step::Refused(refusal),
        },
        Some(Progress::Streaming(body)) => match body.frame().await {
            Some(Ok(frame)) => Step::Told(frame.into_data().unwrap_or_default()),
            Some(Err(_)) | None => Step::Over,
        },
    }
}

async fn answered(asked: &mut Option<Asked>) -> Result<Body, Refusal> {
    match asked {
        Some(asked) => asked.await,
        None => pending().await,
    }
}

/// A text as a part of a path.
fn escaped(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if is_plain(byte) {
            out.push(char::from(byte));
        } else {
            // A string takes all that is written to it.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

// === impl End ===

impl End {
    /// Why a socket could not be read or written.
    fn of(error: &Error) -> Self {
        match error {
            Error::Capacity(_) => Self::Closed(CloseCode::Size, "the message is too large"),
            Error::Utf8(_) => Self::Closed(CloseCode::Invalid, "a text is not UTF-8"),
            Error::Protocol(_) => Self::Closed(CloseCode::Protocol, "a frame is malformed"),
            Error::ConnectionClosed
            | Error::AlreadyClosed
            | Error::Io(_)
            | Error::Tls(_)
            | Error::WriteBufferFull(_)
            | Error::AttackAttempt
            | Error::Url(_)
            | Error::Http(_)
            | Error::HttpFormat(_) => Self::Left,
        }
    }
}
