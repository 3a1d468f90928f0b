//! Closes a connection whose client is still sending.
//!
//! A system resets a connection that is closed with unread bytes, and a reset discards what the
//! client has not read yet: the refusal. RFC 9112, 9.6, closes in stages: the response is sent, the
//! sending half is closed, and the rest is read and dropped.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

/// How long the rest is read. As long as a request's body may take.
pub(in crate::server) const TIME: Duration = Duration::from_secs(30);

/// How long a client may send nothing. It has then stopped, or never reads its refusal.
const SILENCE: Duration = Duration::from_secs(2);

/// The most bytes that are read. The largest default body is a sixth of it.
const BYTES: usize = 64 * 1024 * 1024;

/// How much is read at once.
const BUFFER_BYTES: usize = 64 * 1024;

/// Closes the sending half, and drops what the client sends until it closes too. Ends after `most`,
/// [`SILENCE`] or [`BYTES`], or once `shutdown` is cancelled.
pub(in crate::server) async fn linger<S>(
    socket: &mut S,
    most: Duration,
    shutdown: &CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let dropped = async {
        // This fails if the client is gone, as the next read does.
        let _ = socket.shutdown().await;
        let (mut buffer, mut left) = (vec![0; BUFFER_BYTES], BYTES);
        while left > 0 {
            match tokio::time::timeout(SILENCE, socket.read(&mut buffer)).await {
                Ok(Ok(read)) if read > 0 => left = left.saturating_sub(read),
                _ => return,
            }
        }
    };
    let _ = shutdown.run_until_cancelled(tokio::time::timeout(most, dropped)).await;
}
