//! The lifecycle stream of a followed thread, on which the Python server reports each run that
//! begins or ends.

use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;

use super::pace::Pace;
use crate::upstream::{Body, Client};
use threadway_translate::langgraph::Capabilities;
use threadway_translate::sse::Decoder;

/// How long the stream may take to open. A look waits for it.
const OPEN_TIMEOUT: Duration = Duration::from_secs(2);

/// The lifecycle stream of a thread, if there is one.
#[derive(Debug, Default)]
pub(super) struct Lifecycle {
    stream: Option<Stream>,
}

#[derive(Debug)]
struct Stream {
    body: Body,
    decoder: Decoder,
    _permit: OwnedSemaphorePermit,
}

// === impl Lifecycle ===

impl Lifecycle {
    /// Opens the stream, if the server has one and not too many are open.
    pub(super) async fn open(
        &mut self,
        upstream: &Client,
        server: Capabilities,
        thread_id: &str,
        pace: &Pace,
    ) {
        if self.stream.is_some() || !server.has_lifecycle_streams {
            return;
        }
        let Some(permit) = pace.lifecycle() else { return };
        match tokio::time::timeout(OPEN_TIMEOUT, upstream.thread_lifecycle(thread_id)).await {
            Ok(Ok(Some(body))) => {
                self.stream = Some(Stream { body, decoder: Decoder::new(), _permit: permit });
            }
            Ok(Ok(None)) => {}
            Ok(Err(error)) => {
                tracing::debug!(thread_id, %error, "a thread's lifecycle stream did not open");
            }
            Err(_) => tracing::debug!(thread_id, "a thread's lifecycle stream opens too slowly"),
        }
    }

    /// Waits until a run begins or ends. Without a stream this waits forever.
    ///
    /// A stream that breaks is opened again at the next look, and does not cause that look: a
    /// server may close each stream at once.
    pub(super) async fn changed(&mut self) {
        let Some(Stream { body, decoder, .. }) = &mut self.stream else {
            return std::future::pending().await;
        };
        let mut bytes = Vec::new();
        while let Ok(true) = body.read(&mut bytes).await {
            decoder.push(&bytes);
            bytes.clear();
            match decoder.next_frame() {
                Ok(Some(_)) => return,
                Ok(None) => {}
                Err(_) => break,
            }
        }
        self.stream = None;
        std::future::pending::<()>().await;
    }
}
