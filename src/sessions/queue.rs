//! Lines that wait to be written to a client. Senders wait for room, so a queue is bounded in bytes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::metrics::{Charge, Full};
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
    waiting: Mutex<Waiting>,
    /// Whether taken bytes are still being written.
    is_writing: AtomicBool,
    /// Notified when bytes are added.
    filled: Notify,
    /// Notified when all waiting bytes were taken, and again when they are written.
    emptied: Notify,
}

#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// How many bytes were taken and are not known to be written.
    taken: usize,
    /// For what waits, and what was taken. `None` for a client on this machine.
    charge: Option<Charge>,
}

// === impl Queue ===

impl Queue {
    /// An empty queue.
    pub(super) fn new() -> Self {
        Self::charged(None)
    }

    /// An empty queue whose lines are charged.
    pub(super) fn charged(charge: Option<Charge>) -> Self {
        Self(Arc::new(Inner {
            waiting: Mutex::new(Waiting { charge, ..Waiting::default() }),
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
        while self.waiting_bytes() >= limit {
            let mut emptied = std::pin::pin!(self.0.emptied.notified());
            emptied.as_mut().enable();
            if self.waiting_bytes() < limit {
                return;
            }
            emptied.await;
        }
    }

    /// Charges what waits from now on.
    pub(super) fn charged_to(&self, charge: Charge) {
        self.waiting().charge = Some(charge);
    }

    /// Appends whole lines. Fails if there was no room for them; they are not kept then.
    pub(super) fn put<T>(&self, write: impl FnOnce(&mut Vec<u8>) -> T) -> (T, Result<(), Full>) {
        let mut waiting = self.waiting();
        let written = write(&mut waiting.bytes);
        let counted = waiting.count();
        if counted.is_err() {
            waiting.bytes = Vec::new();
        }
        drop(waiting);
        self.0.filled.notify_one();
        (written, counted)
    }

    /// Waits for bytes and takes all of them, in exchange for the buffer, which is shrunk. Only one
    /// writer may call this.
    pub(super) async fn take(&self, bytes: &mut Vec<u8>) {
        buffer::empty(bytes);
        loop {
            if self.waiting_bytes() > 0 {
                {
                    let mut waiting = self.waiting();
                    std::mem::swap(&mut waiting.bytes, bytes);
                    waiting.taken = bytes.len();
                    // No more than before.
                    let _ = waiting.count();
                }
                self.0.is_writing.store(true, Ordering::Relaxed);
                self.0.emptied.notify_waiters();
                return;
            }
            self.0.filled.notified().await;
        }
    }

    /// How many bytes wait to be written.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting().bytes.len()
    }

    /// Reports that the taken bytes are written.
    pub(super) fn written(&self) {
        {
            let mut waiting = self.waiting();
            waiting.taken = 0;
            // Fewer bytes always fit.
            let _ = waiting.count();
        }
        self.0.is_writing.store(false, Ordering::Relaxed);
        self.0.emptied.notify_waiters();
    }

    /// Waits until nothing waits and everything taken is written.
    pub(super) async fn wait_until_written(&self) {
        loop {
            let mut emptied = std::pin::pin!(self.0.emptied.notified());
            emptied.as_mut().enable();
            if self.waiting_bytes() == 0 && !self.0.is_writing.load(Ordering::Relaxed) {
                return;
            }
            emptied.await;
        }
    }

    fn waiting(&self) -> Guard<'_, Waiting> {
        self.0.waiting.lock()
    }
}

// === impl Waiting ===

impl Waiting {
    fn count(&mut self) -> Result<(), Full> {
        let bytes = self.bytes.len() + self.taken;
        self.charge.as_mut().map_or(Ok(()), |charge| charge.set(bytes))
    }
}

impl Default for Queue {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("waiting", &self.waiting_bytes()).finish_non_exhaustive()
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
            queue.put(|out| out.resize(length, b'x')).1.unwrap();
            queue.take(&mut bytes).await;
            assert_eq!(bytes.len(), length);
        }
        let kept = bytes.capacity() + queue.waiting().bytes.capacity();
        assert!(kept <= 2 * KEPT_BYTES, "{kept} bytes are kept");
    }
}
