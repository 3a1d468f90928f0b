//! Single flight: callers who request the same at the same time share one upstream request.
//!
//! ```text
//!   first caller   |== request 1 ==|
//!   others            x  x   x     |== request 2 ==|   shared by the others
//! ```
//! A caller that comes during a request does not share that one. Its answer may be older than the
//! caller, and a client is never shown anything older than its own request. However many callers
//! there are, one request is sent at a time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::sync::Mutex;

/// The requests that are under way. The key says what is requested, and with whose credentials.
#[derive(Debug)]
pub(crate) struct Flights<K, V>(Mutex<HashMap<K, Arc<Flight<V>>>>);

/// The requests of one key.
#[derive(Debug)]
struct Flight<V> {
    turn: Semaphore,
    answers: Mutex<Answers<V>>,
}

#[derive(Debug)]
struct Answers<V> {
    /// How many requests were begun.
    begun: u64,
    /// The number and the answer of the last one.
    last: Option<(u64, V)>,
}

/// A caller's place in a flight. The last one that is dropped removes the flight.
struct Seat<'a, K: Eq + Hash, V> {
    flights: &'a Flights<K, V>,
    key: K,
    flight: Arc<Flight<V>>,
}

// === impl Flights ===

impl<K: Clone + Eq + Hash, V: Clone> Flights<K, V> {
    /// The answer to a request that begins after this call.
    ///
    /// Cancel safe: if the caller that sends the request is dropped, the next one sends another.
    pub(crate) async fn share(&self, key: K, read: impl AsyncFnOnce() -> V) -> V {
        let seat = self.seat(key);
        let flight = &seat.flight;
        let begun = flight.answers.lock().begun;
        // An error is impossible, since the semaphore is never closed.
        let _turn = flight.turn.acquire().await;
        let number = {
            let mut answers = flight.answers.lock();
            if let Some((number, value)) = &answers.last
                && *number > begun
            {
                return value.clone();
            }
            answers.begun += 1;
            answers.begun
        };
        let value = read().await;
        flight.answers.lock().last = Some((number, value.clone()));
        value
    }

    fn seat(&self, key: K) -> Seat<'_, K, V> {
        let new = || {
            let answers = Mutex::new(Answers { begun: 0, last: None });
            Arc::new(Flight { turn: Semaphore::new(1), answers })
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
        // One reference is the map's, and one is this seat's.
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

    /// Counts the requests that were begun. Each ends at a notification.
    #[derive(Default)]
    struct Upstream {
        begun: AtomicU32,
        end: Notify,
    }

    impl Upstream {
        async fn read(&self) -> u32 {
            let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
            self.end.notified().await;
            number
        }
    }

    #[tokio::test]
    async fn callers_during_a_request_share_the_next_one() {
        let (flights, upstream) = (Arc::new(Flights::default()), Arc::new(Upstream::default()));
        let mut callers = tokio::task::JoinSet::new();
        let ask = |callers: &mut tokio::task::JoinSet<u32>| {
            let (flights, upstream) = (Arc::clone(&flights), Arc::clone(&upstream));
            callers.spawn(
                async move { flights.share("thread", async || upstream.read().await).await },
            );
        };
        ask(&mut callers);
        tokio::task::yield_now().await;
        assert_eq!(upstream.begun.load(Ordering::SeqCst), 1);
        for _ in 0..100 {
            ask(&mut callers);
        }
        for _ in 0..300 {
            tokio::task::yield_now().await;
        }
        assert_eq!(upstream.begun.load(Ordering::SeqCst), 1, "one request at a time");
        upstream.end.notify_one();
        assert_eq!(callers.join_next().await.unwrap().unwrap(), 1);
        upstream.end.notify_one();
        while let Some(number) = callers.join_next().await {
            assert_eq!(number.unwrap(), 2, "all share the request that began after they came");
        }
        assert!(flights.0.lock().is_empty(), "nothing is kept");
    }

    #[tokio::test]
    async fn if_the_first_caller_leaves_the_next_one_sends_the_request() {
        let (flights, upstream) = (Flights::default(), Upstream::default());
        let first = flights.share("thread", async || upstream.read().await);
        let left = tokio::time::timeout(std::time::Duration::ZERO, first).await;
        assert!(left.is_err());
        upstream.end.notify_one();
        assert_eq!(flights.share("thread", async || upstream.read().await).await, 2);
    }
}
