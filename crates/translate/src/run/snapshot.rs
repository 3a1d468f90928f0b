//! The conversation as one event carries it.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::Message;

/// How many forms of a snapshot are shared: one for each generation of clients.
pub const SNAPSHOT_FORMS: usize = 2;

/// The messages of a conversation. Clones share them.
///
/// What a wire makes of them is shared too, while any stream still sends it: a thousand pages that
/// load a thread of 10 MB at once need it once.
#[derive(Clone)]
pub struct Snapshot(Arc<Shared>);

struct Shared {
    messages: Box<[Arc<Message>]>,
    weight: usize,
    written: [Mutex<Weak<Vec<u8>>>; SNAPSHOT_FORMS],
}

// === impl Snapshot ===

impl Snapshot {
    fn new(messages: Box<[Arc<Message>]>) -> Self {
        let weight = messages.iter().map(|message| message.weight()).sum();
        Self(Arc::new(Shared { messages, weight, written: Default::default() }))
    }

    /// About how many bytes of memory the messages keep; never less than what is said in them.
    pub fn weight(&self) -> usize {
        self.0.weight
    }

    /// What is written of the snapshot in one of [`SNAPSHOT_FORMS`] forms, made by `write` unless
    /// somebody holds what was made before.
    pub fn written(&self, form: usize, write: impl FnOnce() -> Vec<u8>) -> Arc<Vec<u8>> {
        let Some(written) = self.0.written.get(form) else { return write().into() };
        if let Some(bytes) = locked(written).upgrade() {
            return bytes;
        }
        // Two may both write it: none waits for the other.
        let bytes = Arc::new(write());
        *locked(written) = Arc::downgrade(&bytes);
        bytes
    }
}

/// No lock is held while anything is computed, so a panic leaves nothing half done under one.
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
