//! An open socket: its frames, its pings, and its end. ACP's sockets use it
//! too.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Sink, SinkExt, StreamExt};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};
use tokio_util::sync::CancellationToken;

use crate::metrics::Charge;
use crate::server::connections::linger;
use crate::server::limits::incoming::{Charged, NoRoom};
use crate::server::streams::silence::KEEP_ALIVE;
use crate::server::upgrade::Duplex;

/// How long a socket may be silent before a ping is sent.
pub const PING: Duration = KEEP_ALIVE;

/// How long a client may take to answer a ping. Then the connection counts as lost.
pub const PONG_TIMEOUT: Duration = Duration::from_mins(1);

/// How many frames in a row may be refused before the socket is closed.
pub(in crate::server) const MAX_REFUSED_FRAMES: u32 = 10;

/// How long a client may take to answer a close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How much is read at once. Messages are assembled in a buffer of their own.
const READ_BUFFER_BYTES: usize = 4 * 1024;

/// Frames of this size in total are sent without a flush.
const WRITE_BUFFER_BYTES: usize = 16 * 1024;

/// How many pongs may wait for a client that does not read. Then its frames are not read either,
/// since the library stores a pong for each ping.
const MAX_UNSENT_PONGS: u32 = 16;

/// A socket that is open.
pub(in crate::server) struct Socket {
    stream: WebSocketStream<Charged<Box<dyn Duplex>>>,
    /// How many pings have come since the last flush that the client took.
    unsent_pongs: u32,
    ping_at: Instant,
    /// When the ping was sent that has no answer yet.
    pinged_at: Option<Instant>,
    /// Frames that [`exchange`](Self::exchange) has yet to write.
    outgoing: VecDeque<Message>,
    /// Whether frames were written without a flush.
    is_unflushed: bool,
}

/// Whether messages of the client are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum ClientFrames {
    Read,
    Paused,
}

/// What [`Socket::exchange`] has done.
pub(in crate::server) enum Exchanged {
    /// The client has taken all frames.
    Written,
    Received(Message),
    /// The client has closed the socket, or the connection is lost.
    Left,
}

/// What a client has sent after the gateway's close frame.
enum CloseReply {
    Close,
    None,
}

/// How a socket ends.
#[derive(Debug)]
pub(in crate::server) enum End {
    /// The client has closed the socket, or the connection is lost.
    Left,
    /// The gateway closes the socket, with a code and a reason.
    Closed(CloseCode, Utf8Bytes),
}

// === impl Socket ===

impl Socket {
    /// The server's end of a socket. `read` holds bytes that were read after the opening request.
    /// Larger messages than `limit` bytes are errors. `charge` counts what is read of a message.
    pub(in crate::server) async fn new(
        io: Box<dyn Duplex>,
        read: Bytes,
        limit: usize,
        charge: Charge,
    ) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER_BYTES)
            .write_buffer_size(WRITE_BUFFER_BYTES)
            .max_message_size(Some(limit))
            .max_frame_size(Some(limit));
        let (part, io) = (read.to_vec(), Charged::new(io, charge));
        let stream =
            WebSocketStream::from_partially_read(io, part, Role::Server, Some(config)).await;
        let (outgoing, ping_at) = (VecDeque::new(), Instant::now() + PING);
        Self { stream, unsent_pongs: 0, ping_at, pinged_at: None, outgoing, is_unflushed: false }
    }

    /// The charge of the message that was received last.
    pub(in crate::server) fn take_charge(&mut self) -> Charge {
        self.stream.get_mut().take()
    }

    /// The client's next message. `None` after the end. Cancel safe.
    pub(in crate::server) async fn next(&mut self) -> Option<Result<Message, Error>> {
        poll_fn(|cx| self.poll_read(cx)).await
    }

    /// Reads a message. First waits for a client that takes no pongs.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Message, Error>>> {
        if self.unsent_pongs >= MAX_UNSENT_PONGS {
            if let Err(error) = ready!(self.stream.poll_flush_unpin(cx)) {
                return Poll::Ready(Some(Err(error)));
            }
            self.unsent_pongs = 0;
        }
        let message = ready!(self.stream.poll_next_unpin(cx));
        self.pinged_at = None;
        self.note_control(message.as_ref());
        if let Some(Ok(Message::Ping(_))) = &message {
            self.unsent_pongs += 1;
        }
        Poll::Ready(message)
    }

    /// Writes a frame, which [`flush`](Self::flush) sends.
    pub(in crate::server) async fn feed(&mut self, message: Message) -> Result<(), Error> {
        self.stream.feed(message).await
    }

    /// Sends what was written, once the client takes it.
    pub(in crate::server) async fn flush(&mut self) -> Result<(), Error> {
        self.stream.flush().await?;
        self.ping_at = Instant::now() + PING;
        Ok(())
    }

    /// When the next ping is due, if nothing is sent until then.
    pub(in crate::server) fn ping_at(&self) -> Instant {
        self.ping_at
    }

    /// Sends a ping. Fails with an end if an earlier one has had no answer for too long.
    pub(in crate::server) async fn ping(&mut self) -> Result<Option<End>, Error> {
        if self.is_lost() {
            return Ok(Some(End::Left));
        }
        self.feed(Message::Ping(Bytes::new())).await?;
        self.flush().await?;
        Ok(None)
    }

    /// Whether the last ping has had no answer for [`PONG_TIMEOUT`]. Otherwise a ping counts as sent
    /// now.
    fn is_lost(&mut self) -> bool {
        let now = Instant::now();
        now >= *self.pinged_at.get_or_insert(now) + PONG_TIMEOUT
    }

    /// Queues a frame for [`exchange`](Self::exchange).
    pub(in crate::server) fn queue(&mut self, message: Message) {
        self.outgoing.push_back(message);
    }

    /// Queues a ping. Returns an end if an earlier one has had no answer for too long.
    pub(in crate::server) fn queue_ping(&mut self) -> Option<End> {
        if self.is_lost() {
            return Some(End::Left);
        }
        self.queue(Message::Ping(Bytes::new()));
        None
    }

    /// Whether queued frames wait for the client.
    pub(in crate::server) fn is_writing(&self) -> bool {
        self.is_unflushed || !self.outgoing.is_empty()
    }

    /// Writes the queued frames while it reads a message. So a client that takes its frames slowly
    /// is heard. Cancel safe.
    pub(in crate::server) async fn exchange(
        &mut self,
        reading: ClientFrames,
    ) -> Result<Exchanged, Error> {
        poll_fn(|cx| {
            if self.is_writing()
                && let Poll::Ready(written) = self.poll_write(cx)
            {
                self.ping_at = Instant::now() + PING;
                return Poll::Ready(written.map(|()| Exchanged::Written));
            }
            if reading == ClientFrames::Paused {
                return Poll::Pending;
            }
            Poll::Ready(match ready!(self.poll_read(cx)) {
                Some(message) => message.map(Exchanged::Received),
                None => Ok(Exchanged::Left),
            })
        })
        .await
    }

    fn note_control(&mut self, received: Option<&Result<Message, Error>>) {
        if let Some(Ok(Message::Ping(payload) | Message::Pong(payload))) = received {
            self.stream.get_mut().passed(payload.len());
        }
    }

    /// Writes and flushes the queued frames.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let mut stream = Pin::new(&mut self.stream);
        while !self.outgoing.is_empty() {
            ready!(stream.as_mut().poll_ready(cx))?;
            if let Some(message) = self.outgoing.pop_front() {
                self.is_unflushed = true;
                stream.as_mut().start_send(message)?;
            }
        }
        ready!(stream.poll_flush(cx))?;
        self.is_unflushed = false;
        Poll::Ready(Ok(()))
    }

    /// Closes the socket, and waits for the client's answer. Frames that are still on their way
    /// would be lost if the connection were cut. A client that is still sending is read for a while
    /// and gets the close frame, unless `shutdown` is cancelled.
    pub(in crate::server) async fn close(mut self, end: End, shutdown: &CancellationToken) {
        let End::Closed(code, reason) = end else {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.stream.flush()).await;
            return;
        };
        let closed = async {
            for message in std::mem::take(&mut self.outgoing) {
                self.stream.feed(message).await?;
            }
            self.stream.close(Some(CloseFrame { code, reason })).await?;
            while let Some(message) = self.stream.next().await {
                if let Message::Close(_) = message? {
                    return Ok(CloseReply::Close);
                }
            }
            Ok::<_, Error>(CloseReply::None)
        };
        // A client that is gone does not answer. One whose frame is too large answers after it.
        match tokio::time::timeout(CLOSE_TIMEOUT, closed).await {
            Ok(Ok(CloseReply::Close)) => {}
            _ => linger::linger(self.stream.get_mut().io(), linger::TIME, shutdown).await,
        }
    }
}

// === impl End ===

impl End {
    /// The gateway closes the socket.
    pub(in crate::server) fn closed(code: CloseCode, reason: &'static str) -> Self {
        Self::Closed(code, Utf8Bytes::from_static(reason))
    }

    /// How a socket ends that could not be read or written.
    pub(in crate::server) fn of(error: &Error) -> Self {
        match error {
            Error::Capacity(_) => Self::closed(CloseCode::Size, "the message is too large"),
            Error::Utf8(_) => Self::closed(CloseCode::Invalid, "a text frame is not UTF-8"),
            Error::Protocol(_) => Self::closed(CloseCode::Protocol, "a frame is malformed"),
            Error::Io(error)
                if error
                    .get_ref()
                    .is_some_and(<dyn std::error::Error + Send + Sync>::is::<NoRoom>) =>
            {
                Self::closed(CloseCode::Again, "the gateway has no room for the message")
            }
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
