//! A response body, and the connection that carries it.

use std::fmt;
use std::pin::Pin;
use std::sync::Weak;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep};
use ureq_proto::BodyMode;

use super::connection::{Connection, Framing};
use super::pool::Pool;
use crate::upstream::SILENCE_TIMEOUT;
use crate::upstream::transport_error::BodyError;

/// How many bytes of a body are taken at once. Other tasks run before more is taken, so that the
/// viewers of a fast run keep up with it.
const MAX_BYTES_AT_ONCE: usize = 64 * 1024;

/// A response body, and the connection that carries it. Dropping a body that was read to its end
/// returns the connection to the pool. Dropping it earlier closes the connection.
pub(in crate::upstream) struct Body {
    framing: Framing,
    /// `None` after a break.
    connection: Option<Connection>,
    pool: Weak<Pool>,
    last_chunk_at: Instant,
    /// May fire too early: a chunk does not reset it, and `last_chunk_at` decides.
    silence: Pin<Box<Sleep>>,
    /// Whether the last call took [`MAX_BYTES_AT_ONCE`].
    is_full: bool,
    /// Why the body stopped, if the last call returned the bytes before that.
    broken: Option<BodyError>,
}

// === impl Body ===

impl Body {
    pub(super) fn new(framing: Framing, connection: Connection, pool: Weak<Pool>) -> Self {
        Self {
            framing,
            connection: Some(connection),
            pool,
            last_chunk_at: Instant::now(),
            silence: Box::pin(tokio::time::sleep(SILENCE_TIMEOUT)),
            is_full: false,
            broken: None,
        }
    }

    /// How many bytes are left of a body whose length the server has said.
    pub(in crate::upstream) fn length(&self) -> Option<u64> {
        match self.framing.as_ref()?.body_mode() {
            BodyMode::LengthDelimited(left) => Some(left),
            BodyMode::NoBody | BodyMode::Chunked | BodyMode::CloseDelimited => None,
        }
    }

    /// Waits for bytes, and appends what has arrived to `into`, some 64 KiB at most. Returns whether
    /// more may follow; at the end of the body it appends nothing. Cancel safe.
    pub(in crate::upstream) async fn read(
        &mut self,
        into: &mut Vec<u8>,
    ) -> Result<bool, BodyError> {
        std::future::poll_fn(|cx| self.poll_read(cx, into)).await
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut Vec<u8>,
    ) -> Poll<Result<bool, BodyError>> {
        if let Some(error) = self.broken.take() {
            return Poll::Ready(Err(error));
        }
        if std::mem::take(&mut self.is_full) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Some(connection) = &mut self.connection else { return Poll::Ready(Ok(false)) };
        let before = into.len();
        let length = loop {
            let read = connection.poll_body(&mut self.framing, into, cx);
            let length = into.len() - before;
            match read {
                Poll::Ready(Ok(true)) if length < MAX_BYTES_AT_ONCE => {}
                Poll::Ready(Ok(false)) if length == 0 => return Poll::Ready(Ok(false)),
                Poll::Ready(Ok(_)) | Poll::Pending => break length,
                Poll::Ready(Err(error)) => {
                    self.broken = Some(BodyError::Broken(error));
                    break length;
                }
            }
        };
        if self.broken.is_some() {
            self.connection = None;
        }
        if length > 0 {
            self.is_full = length >= MAX_BYTES_AT_ONCE;
            self.last_chunk_at = Instant::now();
            return Poll::Ready(Ok(true));
        }
        if let Some(error) = self.broken.take() {
            return Poll::Ready(Err(error));
        }
        self.poll_silence(cx).map(|()| Err(BodyError::Silent))
    }

    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.silence.as_mut().poll(cx).is_ready() {
            let due = self.last_chunk_at + SILENCE_TIMEOUT;
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
        if let Some(mut connection) = self.connection.take()
            && let Some(pool) = self.pool.upgrade()
        {
            connection.drain(&mut self.framing);
            if self.framing.is_none() && connection.is_usable() {
                pool.put(connection);
            }
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::Request;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;
    use crate::upstream::Tls;
    use crate::upstream::dial::{Dialer, HttpSocket};
    use crate::upstream::http1::Http;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn bytes_wake_the_task_that_reads_now_not_the_one_that_read_before() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let http = Http::new(Dialer::new(&Tls::default()).unwrap(), PATIENCE);
        let serves = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            assert!(socket.read(&mut [0; 1024]).await.unwrap() > 0);
            let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n";
            socket.write_all(head).await.unwrap();
            socket
        };
        let request = Request::get("/").body(Bytes::new()).unwrap();
        let (response, mut socket) = tokio::join!(http.send(request, &url), serves);
        let (mut body, mut bytes) = (response.unwrap().into_body(), Vec::new());
        assert!(body.read(&mut bytes).await.unwrap());

        let (began, begins) = tokio::sync::oneshot::channel();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move {
            let reads = body.read(&mut bytes);
            // On a runtime of one thread, nothing is sent before this task waits.
            began.send(()).unwrap();
            assert!(reads.await.unwrap());
            bytes
        });
        begins.await.unwrap();
        socket.write_all(b"3\r\ntwo\r\n").await.unwrap();
        let bytes = timeout(PATIENCE, tasks.join_next()).await.unwrap().unwrap().unwrap();
        assert_eq!(bytes, b"onetwo");
    }

    /// The task that reads may have done something else when bytes arrived.
    #[tokio::test]
    async fn bytes_that_arrived_between_two_reads_are_read_at_once() {
        let (socket, mut server) = tokio::io::duplex(1024);
        let mut connection = Connection::new(HttpSocket::Simulated(TokioIo::new(socket)));
        server.write_all(b"HTTP/1.1 200 OK\r\n\r\none").await.unwrap();
        let request = Request::get("/").body(Bytes::new()).unwrap();
        let framing = connection.send(&request).await.unwrap().into_body();
        let (mut body, mut bytes) = (Body::new(framing, connection, Weak::new()), Vec::new());
        assert!(body.read(&mut bytes).await.unwrap());
        server.write_all(b"two").await.unwrap();
        tokio::task::yield_now().await;
        // One poll: a later one would find them for another reason.
        let read = std::future::poll_fn(|cx| Poll::Ready(body.poll_read(cx, &mut bytes))).await;
        assert!(matches!(read, Poll::Ready(Ok(true))));
        assert_eq!(bytes, b"onetwo");
    }
}
