//! A client's socket, which can be given a last word for the client.
//!
//! hyper closes a connection whose headers do not come in time without a word, although
//! "408 Request Timeout" is what a client understands. The last word is said when hyper lets go
//! of the socket.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A client's socket.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    last_word: LastWord,
    /// Whether the client has said something since it was last answered.
    is_asked: bool,
}

/// The response that a client gets if it is still owed one when its connection ends.
#[derive(Clone, Debug, Default)]
pub(super) struct LastWord(Arc<OnceLock<Vec<u8>>>);

// === impl Socket ===

impl Socket {
    pub(super) fn new(stream: TcpStream, last_word: LastWord) -> Self {
        Self { stream, last_word, is_asked: false }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.is_asked |= buf.filled().len() > before;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.is_asked = false;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.is_asked = false;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let Some(word) = self.last_word.0.get().filter(|_| self.is_asked) else { return };
        // It is short, and all that was written before it was an answer to something else.
        if let Err(error) = self.stream.try_write(word) {
            tracing::debug!(%error, "a connection's last word was not heard");
        }
    }
}

// === impl LastWord ===

impl LastWord {
    /// Sets the response; the first one counts.
    pub(super) fn set(&self, response: Vec<u8>) {
        self.0.get_or_init(|| response);
    }
}
