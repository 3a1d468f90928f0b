//! Counts what is read of a WebSocket before its message is whole.

use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::metrics::Charge;

/// The least bytes of a client's frame besides its payload: two of the header, and the mask.
const FRAME_BYTES: usize = 6;

/// A socket whose unfinished message is charged. Reading fails when there is no room for more.
pub(in crate::server) struct Charged<S> {
    io: S,
    charge: Charge,
}

/// There was no room for the rest of a message.
#[derive(Debug)]
pub(in crate::server) struct NoRoom;

// === impl Charged ===

impl<S> Charged<S> {
    /// `charge` is that of bytes which were read before.
    pub(in crate::server) fn new(io: S, charge: Charge) -> Self {
        Self { io, charge }
    }

    /// The charge of the message that is whole now.
    pub(in crate::server) fn take(&mut self) -> Charge {
        let next = self.charge.another();
        mem::replace(&mut self.charge, next)
    }

    /// The socket, for bytes that nobody keeps.
    pub(in crate::server) fn io(&mut self) -> &mut S {
        &mut self.io
    }

    /// A control frame came, which may be in the middle of a message.
    pub(in crate::server) fn passed(&mut self, payload: usize) {
        let rest = self.charge.bytes().saturating_sub(payload + FRAME_BYTES);
        // Fewer bytes always fit.
        let _ = self.charge.set(rest);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Charged<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
        let bytes = this.charge.bytes() + buf.filled().len() - before;
        Poll::Ready(this.charge.set(bytes).map_err(|_| io::Error::other(NoRoom)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Charged<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

impl std::fmt::Display for NoRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("there is no room for the rest of the message")
    }
}

impl std::error::Error for NoRoom {}
