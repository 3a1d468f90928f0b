//! One answer of a caller to a thread at a time: from the look at the thread until LangGraph has
//! taken the run.
//!
//! A second answer that waited here then sees the first one's run. Other replicas, and other
//! callers on the same thread, do not wait here: LangGraph refuses their second run while the
//! first is under way.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;

use crate::sync::{Guard, Mutex};
use crate::upstream::{Access, Client};

/// The answers that are being started. Each belongs to a request that is being handled, so
/// `limits.connections` bounds them. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns(Arc<Mutex<HashMap<Key, watch::Receiver<()>>>>);

/// Whose answer to which thread. Another caller's requests never delay this one's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    thread_id: String,
    access: Access,
}

/// The turn of one answer; the next gets its turn when this is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Turns,
    key: Key,
    /// Wakes those that wait, by being dropped.
    _ends: watch::Sender<()>,
}

// === impl Turns ===

impl Turns {
    /// Waits until no other answer of this caller to the thread is being started.
    pub(super) async fn turn(&self, upstream: &Client, thread_id: &str) -> Turn {
        let key = Key { thread_id: thread_id.to_owned(), access: upstream.access() };
        loop {
            let mut ended = match self.take(&key) {
                Ok(turn) => return turn,
                Err(ended) => ended,
            };
            // Nothing is ever sent: this waits for the sender's end.
            while ended.changed().await.is_ok() {}
        }
    }

    /// The turn if it is free, else what ends with the present one.
    fn take(&self, key: &Key) -> Result<Turn, watch::Receiver<()>> {
        let mut turns = self.lock();
        if let Some(ended) = turns.get(key) {
            return Err(ended.clone());
        }
        let (ends, ended) = watch::channel(());
        turns.insert(key.clone(), ended);
        Ok(Turn { turns: self.clone(), key: key.clone(), _ends: ends })
    }

    fn lock(&self) -> Guard<'_, HashMap<Key, watch::Receiver<()>>> {
        self.0.lock()
    }
}

// === impl Turn ===

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_next_turn_begins_when_the_last_ends() {
        let (turns, client) = (Turns::default(), Client::new("http://h".parse().unwrap(), None));
        let client = client.unwrap();
        let first = turns.turn(&client, "t").await;
        let other = turns.turn(&client, "u").await;
        let second = turns.turn(&client, "t");
        tokio::pin!(second);
        assert!(futures_util::poll!(&mut second).is_pending());
        // One that gives up waiting takes no turn.
        let gives_up = turns.turn(&client, "t");
        drop(gives_up);
        drop(first);
        let second = second.await;
        drop((second, other));
        assert!(turns.lock().is_empty());
    }
}
