//! Locks that let a caller start one run of a thread at a time, from the look at the thread until
//! LangGraph has accepted the run. Answers take one, and on a server that runs two runs of a thread
//! at the same time all starts do.
//!
//! The second start then sees the first one's run. Other replicas and other callers do not share
//! the lock. Where LangGraph refuses a run while another is live, it refuses theirs.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;

use super::key::CallerThread;
use crate::sync::{Guard, Mutex};
use crate::upstream::Client;

/// The locks that are held. Each belongs to a request in progress, so `limits.connections` bounds
/// them. Clones share them.
///
/// The locks are per caller, so that another caller's requests never delay this one's.
#[derive(Clone, Debug, Default)]
pub(super) struct StartLocks(Arc<Mutex<HashMap<CallerThread, watch::Receiver<()>>>>);

/// The lock for one start. Dropping it releases the lock.
#[derive(Debug)]
pub(super) struct StartLock {
    locks: StartLocks,
    key: CallerThread,
    /// Wakes those that wait when it is dropped.
    _released: watch::Sender<()>,
}

// === impl StartLocks ===

impl StartLocks {
    /// Waits until this caller starts no other run of the thread under a lock.
    pub(super) async fn acquire(&self, upstream: &Client, thread_id: &str) -> StartLock {
        let key = CallerThread::new(upstream, thread_id);
        loop {
            let mut released = match self.try_acquire(&key) {
                Ok(lock) => return lock,
                Err(released) => released,
            };
            // No value is ever sent: this waits until the sender is dropped.
            while released.changed().await.is_ok() {}
        }
    }

    /// The error ends when the lock is released.
    fn try_acquire(&self, key: &CallerThread) -> Result<StartLock, watch::Receiver<()>> {
        let mut held = self.held();
        if let Some(released) = held.get(key) {
            return Err(released.clone());
        }
        let (sender, released) = watch::channel(());
        held.insert(key.clone(), released);
        Ok(StartLock { locks: self.clone(), key: key.clone(), _released: sender })
    }

    fn held(&self) -> Guard<'_, HashMap<CallerThread, watch::Receiver<()>>> {
        self.0.lock()
    }
}

// === impl StartLock ===

impl Drop for StartLock {
    fn drop(&mut self) {
        self.locks.held().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_next_start_gets_the_lock_when_the_last_releases_it() {
        let client = Client::new("http://h".parse().unwrap(), None).unwrap();
        let locks = StartLocks::default();
        let first = locks.acquire(&client, "t").await;
        let other = locks.acquire(&client, "u").await;
        let second = locks.acquire(&client, "t");
        tokio::pin!(second);
        assert!(futures_util::poll!(&mut second).is_pending());
        // A request that gives up waiting takes no lock.
        let gives_up = locks.acquire(&client, "t");
        drop(gives_up);
        drop(first);
        let second = second.await;
        drop((second, other));
        assert!(locks.held().is_empty());
    }
}
