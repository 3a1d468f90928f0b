//! The conversation, as one event carries it to many clients.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::Message;

/// How many encodings of a snapshot are shared: one for each protocol version of clients.
pub(crate) const SNAPSHOT_FORMS: usize = 2;

/// The messages of a conversation. Clones share them.
///
/// Their encoding is shared too, as long as any stream still sends it. If a thousand pages load a
/// thread of 10 MB at once, it is encoded once.
#[derive(Clone)]
pub struct Snapshot(Arc<Shared>);

struct Shared {
    messages: Box<[Arc<Message>]>,
    memory_bytes: usize,
    written: [Mutex<Weak<Vec<u8>>>; SNAPSHOT_FORMS],
}

// === impl Snapshot ===

impl Snapshot {
    fn new(messages: Box<[Arc<Message>]>) -> Self {
        let memory_bytes = messages.iter().map(|message| message.memory_bytes()).sum();
        Self(Arc::new(Shared { messages, memory_bytes, written: Default::default() }))
    }

    /// The memory that the messages take, in bytes. An estimate, but never less than the length of
    /// their texts.
    pub fn memory_bytes(&self) -> usize {
        self.0.memory_bytes
    }

    /// One of two encodings of the snapshot: `form` is 0 or 1. `write` makes it, unless somebody still
    /// holds an earlier one.
    pub fn written(&self, form: usize, write: impl FnOnce() -> Vec<u8>) -> Arc<Vec<u8>> {
        let Some(written) = self.0.written.get(form) else { return write().into() };
        if let Some(bytes) = locked(written).upgrade() {
            return bytes;
        }
        // Two threads may both encode it, but neither waits for the other.
        let bytes = Arc::new(write());
        *locked(written) = Arc::downgrade(&bytes);
        bytes
    }
}

/// Nothing is computed under the lock, so a panic leaves no half-written value.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Deref for Snapshot {
    type Target = [Arc<Message>];

    fn deref(&self) -> &[Arc<Message>] {
        &self.0.messages
    }
}

impl PartialEq for Snapshot {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl From<Vec<Arc<Message>>> for Snapshot {
    fn from(messages: Vec<Arc<Message>>) -> Self {
        Self::new(messages.into())
    }
}

impl From<&[Arc<Message>]> for Snapshot {
    fn from(messages: &[Arc<Message>]) -> Self {
        Self::new(messages.into())
    }
}

impl<const N: usize> From<[Arc<Message>; N]> for Snapshot {
    fn from(messages: [Arc<Message>; N]) -> Self {
        Self::new(messages.into())
    }
}

impl FromIterator<Arc<Message>> for Snapshot {
    fn from_iter<I: IntoIterator<Item = Arc<Message>>>(messages: I) -> Self {
        Self::new(messages.into_iter().collect())
    }
}
