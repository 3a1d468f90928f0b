//! Finds requests whose body has no single meaning: two lengths, in the bytes of a connection, and
//! codings other than `chunked`.
//!
//! RFC 9112, 6.3: a request with both `content-length` and `transfer-encoding` is an attempt at
//! smuggling, or comes from broken software. hyper uses the latter, drops the former, and closes
//! the connection, so nothing can be smuggled past it. But the routes cannot see that both were
//! there.
//!
//! This check reads lines, not messages. If a body has lines that begin like these headers, the
//! next request on the connection is refused without need. JSON has no such lines.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use http::HeaderMap;
use http::header::TRANSFER_ENCODING;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::inbound::Inbound;

const LENGTH: &[u8] = b"content-length:";
const ENCODING: &[u8] = b"transfer-encoding:";

/// How much of a line is kept: the longer of the two names, and a line break.
const KEPT: usize = ENCODING.len() + 2;

/// A socket whose requests are checked as they are read.
#[derive(Debug)]
pub(in crate::server) struct FramingCheck<S> {
    socket: S,
    lines: Lines,
    two_lengths: TwoLengths,
    inbound: Inbound,
}

/// Whether a request on a connection stated two lengths. Once set, it stays.
#[derive(Clone, Debug, Default)]
pub(in crate::server) struct TwoLengths(Arc<AtomicBool>);

/// The state of reading a head.
#[derive(Debug, Default)]
struct Lines {
    /// The beginning of the present line, in lower case.
    line: Vec<u8>,
    has_length: bool,
    has_encoding: bool,
}

/// Whether a request's body has a coding that the gateway does not decode. RFC 9112, 6.1 and 7:
/// `chunked` comes once, and an unknown coding is refused. hyper looks at the last coding alone.
pub(super) fn is_encoded(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = |coding: &[u8]| coding.trim_ascii().eq_ignore_ascii_case(b"chunked");
    codings.next().is_some_and(|first| !is_chunked(first.as_bytes())) || codings.next().is_some()
}

// === impl FramingCheck ===

impl<S> FramingCheck<S> {
    pub(super) fn new(socket: S, two_lengths: TwoLengths, inbound: Inbound) -> Self {
        Self { socket, lines: Lines::default(), two_lengths, inbound }
    }

    pub(super) fn get_ref(&self) -> &S {
        &self.socket
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FramingCheck<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, buffer))?;
        let read = buffer.filled().get(before..).unwrap_or_default();
        if !read.is_empty() {
            self.inbound.arrived();
        }
        if self.lines.read(read) {
            self.two_lengths.0.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FramingCheck<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}

// === impl TwoLengths ===

impl TwoLengths {
    pub(in crate::server) fn is_seen(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

// === impl Lines ===

impl Lines {
    /// Reads more bytes. Returns whether they end a head line after which the head has both
    /// headers.
    fn read(&mut self, mut bytes: &[u8]) -> bool {
        let mut has_both = false;
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = bytes.split_at(end);
            self.extend(line);
            has_both |= self.end_line();
            bytes = rest.get(1..).unwrap_or_default();
        }
        self.extend(bytes);
        has_both
    }

    fn extend(&mut self, bytes: &[u8]) {
        let room = KEPT.saturating_sub(self.line.len());
        self.line.extend(bytes.iter().take(room).map(u8::to_ascii_lowercase));
    }

    fn end_line(&mut self) -> bool {
        match self.line.as_slice() {
            b"" | b"\r" => (self.has_length, self.has_encoding) = (false, false),
            line => {
                self.has_length |= line.starts_with(LENGTH);
                self.has_encoding |= line.starts_with(ENCODING);
            }
        }
        self.line.clear();
        self.has_length && self.has_encoding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_lengths_of_one_head_are_found_however_it_is_cut() {
        let (length, encoding) = ("Content-Length: 5\r\n", "TRANSFER-ENCODING:chunked\r\n");
        let start = "POST / HTTP/1.1\r\n";
        for (text, expected) in [
            (format!("{start}{length}{encoding}\r\n"), true),
            (format!("{start}{encoding}host: h\r\n{length}\r\n"), true),
            (format!("{start}{length}{encoding}\r\n").replace('\r', ""), true),
            (
                format!(
                    "{start}{length}\r\n12345{start}{encoding}\r\n0\r\n\r\n{start}{encoding}{length}\r\n"
                ),
                true,
            ),
            (format!("{start}{length}\r\n12345{start}{encoding}\r\n"), false),
            (format!("{start}{length}{length}\r\n"), false),
            (format!("{start}x-{length}{encoding}\r\n"), false),
            (format!("{start}x: {length}{encoding}\r\n"), false),
            (format!("{start} {length}{encoding}\r\n"), false),
            (format!("{start}{length}\r\n{{\"{encoding}\"}}"), false),
        ] {
            assert_eq!(Lines::default().read(text.as_bytes()), expected, "{text}");
            for at in 0..text.len() {
                let mut lines = Lines::default();
                let (one, two) = text.as_bytes().split_at(at);
                assert_eq!(lines.read(one) | lines.read(two), expected, "{text} at {at}");
            }
        }
        let mut lines = Lines::default();
        lines.read(&vec![b'x'; 100_000]);
        assert!(lines.line.len() <= KEPT);
    }
}
