//! Lines that wait to be written to a client. Senders wait for room, so a queue is bounded in bytes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::sync::{Guard, Mutex};
use threadway_translate::buffer;

/// How many bytes may wait before senders of updates wait too: some thousand updates, which a pipe
/// and its reader take at once.
pub const MAX_WAITING_BYTES: usize = 256 * 1024;

/// How many bytes may wait before no more requests are read. The limit is higher than that for
/// updates: responses do not wait for room, and a cancel must get through while updates wait.
pub(crate) const MAX_UNREAD_BYTES: usize = 8 * 1024 * 1024;

/// The lines for a client, in order. Clones share them.
#[derive(Clone)]
pub(super) struct Queue(Arc<Inner>);

struct Inner {
    waiting: Mutex<Vec<u8>>,
    /// Whether taken bytes are still being written.
    is_writing: AtomicBool,
    /// Notified when bytes are added.
    filled: Notify,
    /// Notified when all waiting bytes were taken, and again when they are written.
    emptied: Notify,
}

// === impl Queue ===

impl Queue {
    /// An empty queue.
    pub(super) fn new() -> Self {
        Self(Arc::new(Inner {
            waiting: Mutex::default(),
            is_writing: AtomicBool::new(false),
            filled: Notify::new(),
            emptied: Notify::new(),
        }))
    }

    /// Waits until there is room for updates. A batch that is then put in may exceed the limit.
    pub(super) async fn wait_for_room(&self) {
        self.below(MAX_WAITING_BYTES).await;
    }

    /// Waits until the client has read enough for more of its requests to be read.
    pub(super) async fn wait_until_read(&self) {
        self.below(MAX_UNREAD_BYTES).await;
    }

    async fn below(&self, limit: usize) {
        // This runs for every batch of events, and mostly there is room.
        while self.waiting().len() >= limit {
            let mut emptied = std::pin::pin!(self.0.emptied.notified());
            emptied.as_mut().enable();
            if self.waiting().len() < limit {
                return;
            }
            emptied.await;
        }
    }

    /// Appends whole lines.
    pub(super) fn put<T>(&self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let written = write(&mut self.waiting());
        self.0.filled.notify_one();
        written
    }

    /// Waits for bytes and takes all of them, in exchange for the buffer, which is shrunk. Only one
    /// writer may call this.
    pub(super) async fn take(&self, bytes: &mut Vec<u8>) {
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

    /// How many bytes wait to be written.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting().len()
    }

    /// Reports that the taken bytes are written.
    pub(super) fn written(&self) {
        self.0.is_writing.store(false, Ordering::Relaxed);
        self.0.emptied.notify_waiters();
    }

    /// Waits until nothing waits and everything taken is written.
    pub(super) async fn wait_until_written(&self) {
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

impl Default for Queue {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("waiting", &self.waiting().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use threadway_translate::buffer::KEPT_BYTES;

    #[tokio::test]
    async fn a_large_update_leaves_no_memory_behind() {
        let (queue, mut bytes) = (Queue::new(), Vec::new());
        for length in [1_000_000, 1] {
            queue.put(|out| out.resize(length, b'x'));
            queue.take(&mut bytes).await;
            assert_eq!(bytes.len(), length);
        }
        let kept = bytes.capacity() + queue.waiting().capacity();
        assert!(kept <= 2 * KEPT_BYTES, "{kept} bytes are kept");
    }
}
