//! A connection to a server, which carries one request and its response at a time.
//!
//! `ureq-proto` reads the responses: it does no IO and keeps no buffer. So a connection that waits
//! for a token keeps its socket and some words of state.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use http::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::{Handle, Id};
use ureq_proto::BodyMode;
use ureq_proto::client::state::{RecvBody, RecvResponse};
use ureq_proto::client::{Call, RecvBodyResult, RecvResponseResult, SendRequestResult};

use crate::upstream::dial::HttpSocket;
use crate::upstream::transport_error::ExchangeError;

/// How much is read from the socket at once, in bytes. The room for it is on the stack.
const MAX_READ_BYTES: usize = 16 * 1024;

/// How long the head of a response may be, and the lines between the chunks of its body, in bytes.
const MAX_LINES_BYTES: usize = 64 * 1024;

/// A connection to a server.
pub(super) struct Connection {
    socket: Box<TokioIo<HttpSocket>>,
    /// What was read and is not decoded: the start of a line. Mostly empty.
    unread: Vec<u8>,
    /// The request, until all of it is sent.
    outgoing: Option<Box<Outgoing>>,
    /// Whether the last response has ended and leaves the connection open.
    is_reusable: bool,
    /// The runtime that waits for the socket.
    runtime: Id,
}

/// The body of a response, as the head frames it. `None` after its end.
pub(super) type Framing = Option<Box<Call<RecvBody>>>;

/// What is left to send of a request.
struct Outgoing {
    head: Bytes,
    body: Bytes,
    is_begun: bool,
}

// === impl Connection ===

impl Connection {
    /// A connection of the current runtime.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    pub(super) fn new(socket: HttpSocket) -> Self {
        let (socket, runtime) = (Box::new(TokioIo::new(socket)), Handle::current().id());
        Self { socket, unread: Vec::new(), outgoing: None, is_reusable: true, runtime }
    }

    pub(super) fn runtime(&self) -> Id {
        self.runtime
    }

    /// Sends a request and waits for the head of its response.
    pub(super) async fn send(
        &mut self,
        request: &Request<Bytes>,
    ) -> Result<Response<Framing>, ExchangeError> {
        self.outgoing = Some(Box::new(Outgoing::of(request)));
        self.is_reusable = false;
        let mut call = response().map_err(ExchangeError::NotHttp)?;
        let response = std::future::poll_fn(|cx| {
            let sent = self.poll_send(cx);
            // A server may answer, and close, before it has read the whole request.
            match (self.poll_head(&mut call, cx), sent) {
                (Poll::Pending | Poll::Ready(Err(_)), Poll::Ready(Err(error))) => {
                    Poll::Ready(Err(error))
                }
                (head, _) => head,
            }
        });
        let response = response.await?;
        let framing = match call.proceed() {
            Some(RecvResponseResult::RecvBody(call)) => Some(Box::new(call)),
            Some(RecvResponseResult::Redirect(call)) => self.end(call.must_close_connection()),
            Some(RecvResponseResult::Cleanup(call)) => self.end(call.must_close_connection()),
            None => self.end(true),
        };
        Ok(response.map(|()| framing))
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ExchangeError>> {
        if let Some(outgoing) = &mut self.outgoing {
            ready!(outgoing.poll_send(&mut self.socket, cx))?;
            self.outgoing = None;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_head(
        &mut self,
        call: &mut Call<RecvResponse>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<()>, ExchangeError>> {
        loop {
            // A response that only informs, such as 103, is taken and not returned.
            while !self.unread.is_empty() {
                let tried = call.try_response(&self.unread, false);
                let (taken, response) = tried.map_err(ExchangeError::NotHttp)?;
                self.unread.drain(..taken);
                match response {
                    Some(response) => return Poll::Ready(Ok(response)),
                    None if taken == 0 => break,
                    None => {}
                }
            }
            let mut room = [MaybeUninit::uninit(); MAX_READ_BYTES];
            let mut read = ReadBuf::uninit(&mut room);
            ready!(self.poll_read(&mut read, cx))?;
            if read.filled().is_empty() {
                return Poll::Ready(Err(ExchangeError::Closed));
            }
            self.keep(read.filled())?;
        }
    }

    /// Appends to `into` what has arrived of a body, one read of the socket at most. Returns whether
    /// more may follow; at the end of the body it appends nothing.
    pub(super) fn poll_body(
        &mut self,
        framing: &mut Framing,
        into: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<bool, ExchangeError>> {
        // The response says more than an error of sending. What is left to send stays, so the
        // connection carries no other request.
        let _ = self.poll_send(cx);
        let before = into.len();
        let unread = std::mem::take(&mut self.unread);
        self.decode(framing, &unread, into)?;
        while into.len() == before {
            let Some(call) = framing else { return Poll::Ready(Ok(false)) };
            let mut room = [MaybeUninit::uninit(); MAX_READ_BYTES];
            let mut read = ReadBuf::uninit(&mut room);
            ready!(self.poll_read(&mut read, cx))?;
            if read.filled().is_empty() {
                if !is_ended_by_close(call) {
                    return Poll::Ready(Err(ExchangeError::Closed));
                }
                *framing = self.end(true);
            } else if self.unread.is_empty() {
                self.decode(framing, read.filled(), into)?;
            } else {
                self.keep(read.filled())?;
                let unread = std::mem::take(&mut self.unread);
                self.decode(framing, &unread, into)?;
            }
        }
        Poll::Ready(Ok(true))
    }

    /// Reads the rest of a body that nobody wants, if it has arrived.
    pub(super) fn drain(&mut self, framing: &mut Framing) {
        let mut cx = Context::from_waker(Waker::noop());
        let mut unwanted = Vec::new();
        while unwanted.len() < MAX_READ_BYTES
            && let Poll::Ready(Ok(true)) = self.poll_body(framing, &mut unwanted, &mut cx)
        {}
    }

    /// Appends the body in `bytes` to `into`, and keeps the start of a line.
    fn decode(
        &mut self,
        framing: &mut Framing,
        bytes: &[u8],
        into: &mut Vec<u8>,
    ) -> Result<(), ExchangeError> {
        let Some(call) = framing else { return self.keep(bytes) };
        let before = into.len();
        into.resize(before + bytes.len(), 0);
        let decoded = call.read(bytes, into.get_mut(before..).unwrap_or_default());
        let (taken, length) = *decoded.as_ref().unwrap_or(&(0, 0));
        into.truncate(before + length);
        decoded.map_err(ExchangeError::NotHttp)?;
        self.keep(bytes.get(taken..).unwrap_or_default())?;
        if !is_ended_by_close(call)
            && let Some(ended) = framing.take_if(|call| call.can_proceed())
        {
            let must_close = match ended.proceed() {
                Some(RecvBodyResult::Cleanup(call)) => call.must_close_connection(),
                Some(RecvBodyResult::Redirect(call)) => call.must_close_connection(),
                None => true,
            };
            *framing = self.end(must_close);
        }
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), ExchangeError> {
        self.unread.extend_from_slice(bytes);
        if self.unread.len() > MAX_LINES_BYTES {
            return Err(ExchangeError::TooLong { limit: MAX_LINES_BYTES });
        }
        Ok(())
    }

    fn end(&mut self, must_close: bool) -> Framing {
        self.is_reusable = !must_close;
        None
    }

    /// Reads what has arrived. Nothing if the server has closed the connection.
    fn poll_read(
        &mut self,
        read: &mut ReadBuf<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), ExchangeError>> {
        Pin::new(&mut self.socket).poll_read(cx, read).map_err(ExchangeError::Broken)
    }

    /// Whether another request can be sent. Polls the socket once, so that a closed one is noticed.
    pub(super) fn is_usable(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        let mut room = [MaybeUninit::uninit(); 1];
        self.is_reusable
            && self.outgoing.is_none()
            && self.unread.is_empty()
            && self.poll_read(&mut ReadBuf::uninit(&mut room), &mut cx).is_pending()
    }
}

/// The response to a request of any method but `HEAD`: the protocol needs no more of the request.
fn response() -> Result<Call<RecvResponse>, ureq_proto::Error> {
    let mut call = Call::new(Request::new(()))?.proceed();
    call.write(&mut [0; 64])?;
    match call.proceed()? {
        Some(SendRequestResult::RecvResponse(call)) => Ok(call),
        Some(SendRequestResult::SendBody(_) | SendRequestResult::Await100(_)) | None => {
            Err(ureq_proto::Error::OutputOverflow)
        }
    }
}

/// Whether the end of the connection is the end of a body.
fn is_ended_by_close(call: &Call<RecvBody>) -> bool {
    matches!(call.body_mode(), BodyMode::CloseDelimited)
}

// === impl Outgoing ===

impl Outgoing {
    fn of(request: &Request<Bytes>) -> Self {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let mut head = format!("{} {path} HTTP/1.1\r\n", request.method()).into_bytes();
        for (name, value) in request.headers() {
            for piece in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                head.extend_from_slice(piece);
            }
        }
        head.extend_from_slice(b"\r\n");
        Self { head: head.into(), body: request.body().clone(), is_begun: false }
    }

    fn poll_send(
        &mut self,
        socket: &mut TokioIo<HttpSocket>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), ExchangeError>> {
        let mut socket = Pin::new(socket);
        while !(self.head.is_empty() && self.body.is_empty()) {
            let slices = [io::IoSlice::new(&self.head), io::IoSlice::new(&self.body)];
            let sent = match ready!(socket.as_mut().poll_write_vectored(cx, &slices)) {
                Ok(0) => Err(io::ErrorKind::WriteZero.into()),
                sent => sent,
            };
            let is_begun = self.is_begun;
            let sent = sent.map_err(|error| {
                if is_begun { ExchangeError::Broken(error) } else { ExchangeError::Unsent(error) }
            })?;
            self.is_begun = true;
            let of_head = sent.min(self.head.len());
            self.head.advance(of_head);
            self.body.advance(sent - of_head);
        }
        socket.poll_flush(cx).map_err(ExchangeError::Broken)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::timeout;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// A connection, and the server's end of it, which takes `room` bytes before somebody reads.
    fn connected(room: usize) -> (Connection, DuplexStream) {
        let (socket, server) = duplex(room);
        (Connection::new(HttpSocket::Simulated(TokioIo::new(socket))), server)
    }

    fn request(body: &'static str) -> Request<Bytes> {
        let request = Request::post("/runs?wait=1").header("host", "langgraph");
        request.header("content-length", body.len()).body(Bytes::from(body)).unwrap()
    }

    /// The status and the body of a response, and how the body ended.
    async fn exchange(
        connection: &mut Connection,
    ) -> Result<(u16, String, Result<bool, ExchangeError>), ExchangeError> {
        let response = connection.send(&request("{}")).await?;
        let (status, mut framing) = (response.status().as_u16(), response.into_body());
        let mut body = Vec::new();
        let ended = loop {
            let read =
                std::future::poll_fn(|cx| connection.poll_body(&mut framing, &mut body, cx)).await;
            if !matches!(read, Ok(true)) {
                break read;
            }
        };
        assert!(ended.is_err() || framing.is_none());
        Ok((status, String::from_utf8(body).unwrap(), ended))
    }

    /// What a client gets of the bytes of a server that closes after them, or stays.
    async fn answered(bytes: &[u8], piece: usize, stays: bool) -> (String, bool) {
        let (mut connection, mut server) = connected(piece);
        let mut answering = pin!(async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n{}") {
                assert!(server.read_buf(&mut head).await.unwrap() > 0);
            }
            server.write_all(bytes).await.unwrap();
            if !stays {
                drop(server);
            }
            std::future::pending::<()>().await;
        });
        let exchanged = async {
            tokio::select! {
                biased;
                exchanged = exchange(&mut connection) => exchanged,
                () = &mut answering => unreachable!(),
            }
        };
        let exchanged = timeout(PATIENCE, exchanged).await.unwrap();
        // What the server has left to send arrives.
        tokio::select! {
            biased;
            () = &mut answering => {}
            () = tokio::task::yield_now() => {}
        }
        let got = match exchanged {
            Ok((status, body, Ok(_))) => format!("{status} {body}"),
            Ok((status, body, Err(error))) => format!("{status} {body} | {error}"),
            Err(error) => format!("| {error}"),
        };
        (got, connection.is_usable())
    }

    #[tokio::test]
    async fn a_response_is_the_same_however_its_bytes_arrive() {
        let closed = "connection closed before message completed";
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(MAX_LINES_BYTES));
        let too_long = format!("| its answer has lines of more than {MAX_LINES_BYTES} bytes");
        // What a server sends, and stays; what a client gets; whether it can send another request.
        let staying = [
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\none".to_owned(), "200 one", true),
            ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned(), "200 ", true),
            ("HTTP/1.1 204 No Content\r\n\r\n".to_owned(), "204 ", true),
            (format!("{chunked}3\r\none\r\nA\r\n-and-a-two\r\n0\r\n\r\n"), "200 one-and-a-two", true),
            (format!("{chunked}3;a=b\r\none\r\n0\r\nx-sum: 1\r\n\r\n"), "200 one", true),
            (
                "HTTP/1.1 103 Early Hints\r\nlink: <a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na".to_owned(),
                "200 a",
                true,
            ),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 -\r\n\r\n".to_owned(), "204 ", true),
            (
                "HTTP/1.1 302 Found\r\nlocation: /a\r\ncontent-length: 1\r\n\r\na".to_owned(),
                "302 a",
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1\r\n\r\na".to_owned(),
                "200 a",
                false,
            ),
            ("HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\na".to_owned(), "200 a", false),
            // More than the response.
            ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\naHTTP/1.1".to_owned(), "200 a", false),
            (format!("{chunked}x\r\n"), "200  | its answer is not HTTP/1.1: ", false),
            ("SSH-2.0-OpenSSH_9.2\r\n".to_owned(), "| its answer is not HTTP/1.1: ", false),
            (long, &too_long, false),
        ];
        let closing = [
            ("HTTP/1.1 200 OK\r\n\r\nall of it".to_owned(), "200 all of it".to_owned()),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\non".to_owned(),
                format!("200 on | {closed}"),
            ),
            (format!("{chunked}3\r\non"), format!("200 on | {closed}")),
            (format!("{chunked}3\r\none\r\n"), format!("200 one | {closed}")),
            ("HTTP/1.1 200 OK\r\n".to_owned(), format!("| {closed}")),
            (String::new(), format!("| {closed}")),
        ];
        let staying = staying.iter().map(|(bytes, got, usable)| (bytes, *got, *usable, true));
        let closing = closing.iter().map(|(bytes, got)| (bytes, got.as_str(), false, false));
        for (bytes, expected, is_usable, stays) in staying.chain(closing) {
            for piece in [1, 2, 3, 7, 100, 2 * MAX_READ_BYTES] {
                let (got, usable) = answered(bytes.as_bytes(), piece, stays).await;
                let is_expected = if expected.ends_with(": ") {
                    got.starts_with(expected)
                } else {
                    got == expected
                };
                assert!(is_expected, "{bytes:?} in pieces of {piece} gives {got:?}");
                assert_eq!(usable, is_usable, "{bytes:?} in pieces of {piece}");
            }
        }
    }

    #[tokio::test]
    async fn the_connection_is_used_again_and_its_requests_are_whole() {
        let (mut connection, mut server) = connected(16);
        for _ in 0..2 {
            let answering = async {
                let mut head = Vec::new();
                while !head.ends_with(b"{}") {
                    assert!(server.read_buf(&mut head).await.unwrap() > 0);
                }
                server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
                String::from_utf8(head).unwrap()
            };
            let (exchanged, request) = tokio::join!(exchange(&mut connection), answering);
            assert_eq!(exchanged.unwrap().1, "ok");
            let lines =
                ["POST /runs?wait=1 HTTP/1.1", "host: langgraph", "content-length: 2", "", "{}"];
            assert_eq!(request, lines.join("\r\n"));
            assert!(connection.is_usable());
        }
        drop(server);
        assert!(!connection.is_usable());
    }

    /// A proxy refuses a large body by its head, and reads no more of it.
    #[tokio::test]
    async fn an_answer_before_the_end_of_the_request_is_taken() {
        for stays in [true, false] {
            let (mut connection, mut server) = connected(64);
            let large = Bytes::from(vec![b'x'; 100_000]);
            let request = Request::post("/").header("content-length", large.len());
            let request = request.body(large).unwrap();
            let answering = async {
                server.read_exact(&mut [0; 8]).await.unwrap();
                server.write_all(b"HTTP/1.1 413 -\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                stays.then_some(server)
            };
            let sends = timeout(PATIENCE, connection.send(&request));
            let (response, server) = tokio::join!(sends, answering);
            assert_eq!(response.unwrap().unwrap().status(), 413);
            assert!(!connection.is_usable(), "the rest of the request is not sent");
            drop(server);
        }
    }

    /// A server may begin its answer, and go on when it has the rest of the request.
    #[tokio::test]
    async fn the_rest_of_a_request_is_sent_while_the_answer_is_read() {
        let (mut connection, mut server) = connected(64);
        let large = Bytes::from(vec![b'x'; 100_000]);
        let request = Request::post("/").header("content-length", large.len());
        let request = request.body(large).unwrap();
        let answering = async {
            server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n").await.unwrap();
            let mut read = Vec::new();
            while read.len() < 100_000 {
                assert!(server.read_buf(&mut read).await.unwrap() > 0);
            }
            server.write_all(b"ok").await.unwrap();
            server
        };
        let reads = async {
            let mut framing = connection.send(&request).await.unwrap().into_body();
            let mut body = Vec::new();
            while let Ok(true) =
                std::future::poll_fn(|cx| connection.poll_body(&mut framing, &mut body, cx)).await
            {
            }
            body
        };
        let (body, _server) =
            timeout(PATIENCE, async { tokio::join!(reads, answering) }).await.unwrap();
        assert_eq!(body, b"ok");
    }

    #[tokio::test]
    async fn a_request_that_a_closed_connection_did_not_take_is_unsent() {
        let (mut connection, server) = connected(64);
        drop(server);
        let failed = connection.send(&request("{}")).await;
        assert!(matches!(failed, Err(ExchangeError::Unsent(_))), "it was not sent");
    }
}
