//! A response body, and the connection that carries it.

use std::fmt;
use std::pin::Pin;
use std::sync::Weak;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use super::{Connection, Pool};
use crate::upstream::SILENCE_TIMEOUT;
use crate::upstream::transport_error::BodyError;

/// How many bytes of a body are taken at once. Other tasks run before more is taken, so that the
/// viewers of a fast run keep up with it.
const MAX_BYTES_AT_ONCE: usize = 64 * 1024;

/// A response body, and the connection that carries it. Dropping a body that was read to its end
/// returns the connection to the pool. Dropping it earlier closes the connection.
pub(in crate::upstream) struct Body {
    /// `None` only while the body is dropped.
    incoming: Option<Incoming>,
    connection: Option<Connection>,
    pool: Weak<Pool>,
    last_chunk_at: Instant,
    /// May fire too early: a chunk does not reset it, and `last_chunk_at` decides.
    silence: Pin<Box<Sleep>>,
    /// Whether the last call took [`MAX_BYTES_AT_ONCE`].
    is_full: bool,
    /// The body's end, if the last call returned the bytes before it.
    end: Option<Result<(), BodyError>>,
}

// === impl Body ===

impl Body {
    pub(super) fn new(incoming: Incoming, connection: Connection, pool: Weak<Pool>) -> Self {
        Self {
            incoming: Some(incoming),
            connection: Some(connection),
            pool,
            last_chunk_at: Instant::now(),
            silence: Box::pin(tokio::time::sleep(SILENCE_TIMEOUT)),
            is_full: false,
            end: None,
        }
    }

    /// Waits for bytes, and appends what has arrived to `taken`, some 64 KiB at most. Returns
    /// whether more may follow; at the end of the body it appends nothing. Cancel safe.
    pub(in crate::upstream) async fn chunks(
        &mut self,
        taken: &mut Vec<Bytes>,
    ) -> Result<bool, BodyError> {
        std::future::poll_fn(|cx| self.poll_chunks(cx, taken)).await
    }

    fn poll_chunks(
        &mut self,
        cx: &mut Context<'_>,
        taken: &mut Vec<Bytes>,
    ) -> Poll<Result<bool, BodyError>> {
        if let Some(end) = self.end.take() {
            return Poll::Ready(end.map(|()| false));
        }
        if std::mem::take(&mut self.is_full) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut bytes = 0;
        while bytes < MAX_BYTES_AT_ONCE {
            let end = match self.poll_chunk(cx) {
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
                return Poll::Ready(end.map(|()| false));
            }
            self.end = Some(end);
            break;
        }
        if bytes > 0 {
            self.is_full = bytes >= MAX_BYTES_AT_ONCE;
            self.last_chunk_at = Instant::now();
            return Poll::Ready(Ok(true));
        }
        self.poll_silence(cx).map(|()| Err(BodyError::Silent))
    }

    /// The next chunk. `None` at the end.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let Some(incoming) = &mut self.incoming else { return Poll::Ready(None) };
        loop {
            // Polling the body first tells the connection that it may read.
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
                    // Trailers are skipped.
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
        self.incoming = None;
        if let Some(mut connection) = self.connection.take()
            && let Some(pool) = self.pool.upgrade()
            && connection.is_usable()
        {
            pool.put(connection);
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").finish_non_exhaustive()
    }
}
