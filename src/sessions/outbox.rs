//! What waits to be written to a client: bounded in bytes, with room to be waited for.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::sync::{Guard, Mutex};
use threadway_translate::buffer;

/// How much may wait before who tells more has to wait too: some thousand updates, and what a pipe
/// and its reader take within a blink.
pub const MAX_WAITING_BYTES: usize = 256 * 1024;

/// How much may wait before nothing more is asked of us: answers have no room to wait for, and
/// cancels are to come through while updates wait.
pub const MAX_UNREAD_BYTES: usize = 8 * 1024 * 1024;

/// The lines for a client, in their order. Clones share them.
#[derive(Clone)]
pub struct Outbox(Arc<Inner>);

struct Inner {
    waiting: Mutex<Vec<u8>>,
    /// Whether what was taken is still being written.
    is_writing: AtomicBool,
    /// Rings when something waits.
    filled: Notify,
    /// Rings when all that waited was taken, and again when it is written.
    emptied: Notify,
}

// === impl Outbox ===

impl Outbox {
    /// Nothing waits.
    pub fn new() -> Self {
        Self(Arc::new(Inner {
            waiting: Mutex::default(),
            is_writing: AtomicBool::new(false),
            filled: Notify::new(),
            emptied: Notify::new(),
        }))
    }

    /// Waits until there is room. What is then put in may exceed the limit: by one batch of each
    /// who tells.
    pub async fn room(&self) {
        self.below(MAX_WAITING_BYTES).await;
    }

    /// Waits until the client has read enough to be asked what more it wants.
    pub async fn read(&self) {
        self.below(MAX_UNREAD_BYTES).await;
    }

    async fn below(&self, limit: usize) {
        // Every batch of events asks, and mostly there is room.
        while self.waiting().len() >= limit {
            let mut emptied = std::pin::pin!(self.0.emptied.notified());
            emptied.as_mut().enable();
            if self.waiting().len() < limit {
                return;
            }
            emptied.await;
        }
    }

    /// Puts whole lines in.
    pub fn put<T>(&self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let written = write(&mut self.waiting());
        self.0.filled.notify_one();
        written
    }

    /// Waits until something waits, and takes all of it in exchange for the buffer, of which little
    /// room is kept. For one writer.
    pub async fn take(&self, bytes: &mut Vec<u8>) {
        buffer::empty(bytes);
        loop {
            if !self.waiting().is_empty() {
                std::mem::swap(&mut *self.waiting(), bytes);
                self.0.is_writing.store(true, Ordering::Relaxed);
                self.0.emptied.notify_waiters();
                return;
            }
            self.0.filled.notified().await;
        }
    }

    /// How many bytes wait.
    pub fn len(&self) -> usize {
        self.waiting().len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was taken is written.
    pub fn wrote(&self) {
        self.0.is_writing.store(false, Ordering::Relaxed);
        self.0.emptied.notify_waiters();
    }

    /// Waits until all is written.
    pub async fn emptied(&self) {
        loop {
            let mut emptied = std::pin::pin!(self.0.emptied.notified());
            emptied.as_mut().enable();
            if self.waiting().is_empty() && !self.0.is_writing.load(Ordering::Relaxed) {
                return;
            }
            emptied.await;
        }
    }

    fn waiting(&self) -> Guard<'_, Vec<u8>> {
        self.0.waiting.lock()
    }
}

impl Default for Outbox {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("waiting", &self.waiting().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use threadway_translate::buffer::KEPT_BYTES;

    #[tokio::test]
    async fn a_large_update_leaves_no_memory_behind() {
        let (outbox, mut bytes) = (Outbox::new(), Vec::new());
        for length in [1_000_000, 1] {
            outbox.put(|out| out.resize(length, b'x'));
            outbox.take(&mut bytes).await;
            assert_eq!(bytes.len(), length);
        }
        let kept = bytes.capacity() + outbox.waiting().capacity();
        assert!(kept <= 2 * KEPT_BYTES, "{kept} bytes are kept");
    }
}
