//! Readings that are shared by all who ask for the same at the same time.
//!
//! ```text
//!   first asks   |== reading 1 ==|
//!   others ask      x  x   x     |== reading 2 ==|   they share it
//! ```
//! Whoever asks while a reading is under way is not given that one: it may have read before the
//! asking, and what a client is shown is never older than its request. However many ask, there is
//! one reading at a time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::sync::Mutex;

/// The readings that are under way, by what is read and for whom.
#[derive(Debug)]
pub(crate) struct Flights<K, V>(Mutex<HashMap<K, Arc<Flight<V>>>>);

/// The readings of one thing.
#[derive(Debug)]
struct Flight<V> {
    turn: Semaphore,
    log: Mutex<Log<V>>,
}

#[derive(Debug)]
struct Log<V> {
    /// How many readings have begun.
    begun: u64,
    /// What the last one brought, and its number.
    last: Option<(u64, V)>,
}

/// Keeps the place of one who asks. The last who leaves takes the flight with it.
struct Seat<'a, K: Eq + Hash, V> {
    flights: &'a Flights<K, V>,
    key: K,
    flight: Arc<Flight<V>>,
}

// === impl Flights ===

impl<K: Clone + Eq + Hash, V: Clone> Flights<K, V> {
    /// What a reading brings that begins after this was called.
    ///
    /// May be dropped while it waits: the next who waits reads then.
    pub(crate) async fn share(&self, key: K, read: impl AsyncFnOnce() -> V) -> V {
        let seat = self.seat(key);
        let flight = &seat.flight;
        let begun = flight.log.lock().begun;
        // It is never closed, so that a turn always comes.
        let _turn = flight.turn.acquire().await;
        let number = {
            let mut log = flight.log.lock();
            if let Some((number, value)) = &log.last
                && *number > begun
            {
                return value.clone();
            }
            log.begun += 1;
            log.begun
        };
        let value = read().await;
        flight.log.lock().last = Some((number, value.clone()));
        value
    }

    fn seat(&self, key: K) -> Seat<'_, K, V> {
        let new = || {
            let log = Mutex::new(Log { begun: 0, last: None });
            Arc::new(Flight { turn: Semaphore::new(1), log })
        };
        let flight = Arc::clone(self.0.lock().entry(key.clone()).or_insert_with(new));
        Seat { flights: self, key, flight }
    }
}

impl<K, V> Default for Flights<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

// === impl Seat ===

impl<K: Eq + Hash, V> Drop for Seat<'_, K, V> {
    fn drop(&mut self) {
        let mut flights = self.flights.0.lock();
        // The map's reference, and this one.
        if Arc::strong_count(&self.flight) <= 2 {
            flights.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::Notify;

    use super::*;

    /// Readings that end when they are let go on, and how many have begun.
    #[derive(Default)]
    struct Source {
        begun: AtomicU32,
        go_on: Notify,
    }

    impl Source {
        async fn read(&self) -> u32 {
            let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
            self.go_on.notified().await;
            number
        }
    }

    #[tokio::test]
    async fn who_asks_during_a_reading_shares_the_next_one() {
        let (flights, source) = (Arc::new(Flights::default()), Arc::new(Source::default()));
        let mut asking = tokio::task::JoinSet::new();
        let ask = |asking: &mut tokio::task::JoinSet<u32>| {
            let (flights, source) = (Arc::clone(&flights), Arc::clone(&source));
            asking
                .spawn(async move { flights.share("thread", async || source.read().await).await });
        };
        ask(&mut asking);
        tokio::task::yield_now().await;
        assert_eq!(source.begun.load(Ordering::SeqCst), 1);
        for _ in 0..100 {
            ask(&mut asking);
        }
        for _ in 0..300 {
            tokio::task::yield_now().await;
        }
        assert_eq!(source.begun.load(Ordering::SeqCst), 1, "one reading at a time");
        source.go_on.notify_one();
        assert_eq!(asking.join_next().await.unwrap().unwrap(), 1);
        source.go_on.notify_one();
        while let Some(number) = asking.join_next().await {
            assert_eq!(number.unwrap(), 2, "all share the reading that began after they asked");
        }
        assert!(flights.0.lock().is_empty(), "nothing is kept");
    }

    #[tokio::test]
    async fn where_the_first_leaves_the_next_reads() {
        let (flights, source) = (Flights::default(), Source::default());
        let first = flights.share("thread", async || source.read().await);
        let left = tokio::time::timeout(std::time::Duration::ZERO, first).await;
        assert!(left.is_err());
        source.go_on.notify_one();
        assert_eq!(flights.share("thread", async || source.read().await).await, 2);
    }
}
