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
pub(crate) struct SingleFlight<K, V>(Mutex<HashMap<K, Listed<V>>>);

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

/// A flight in the map.
#[derive(Debug)]
struct Listed<V> {
    flight: Arc<Flight<V>>,
    /// How many callers have a [`Seat`].
    seats: usize,
}

/// A caller's place in a flight. The last one that is dropped removes the flight.
struct Seat<'a, K: Eq + Hash, V> {
    single_flight: &'a SingleFlight<K, V>,
    key: K,
    flight: Arc<Flight<V>>,
}

// === impl SingleFlight ===

impl<K: Clone + Eq + Hash, V: Clone> SingleFlight<K, V> {
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
            Listed { flight: Arc::new(Flight { turn: Semaphore::new(1), answers }), seats: 0 }
        };
        let mut single_flight = self.0.lock();
        let listed = single_flight.entry(key.clone()).or_insert_with(new);
        listed.seats += 1;
        let flight = Arc::clone(&listed.flight);
        drop(single_flight);
        Seat { single_flight: self, key, flight }
    }
}

impl<K, V> Default for SingleFlight<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

// === impl Seat ===

impl<K: Eq + Hash, V> Drop for Seat<'_, K, V> {
    fn drop(&mut self) {
        let mut single_flight = self.single_flight.0.lock();
        let Some(listed) = single_flight.get_mut(&self.key) else { return };
        listed.seats = listed.seats.saturating_sub(1);
        let removed = if listed.seats == 0 { single_flight.remove(&self.key) } else { None };
        drop(single_flight);
        // An answer may be large, so it is dropped without the lock.
        drop(removed);
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
        let (single_flight, upstream) =
            (Arc::new(SingleFlight::default()), Arc::new(Upstream::default()));
        let mut callers = tokio::task::JoinSet::new();
        let ask = |callers: &mut tokio::task::JoinSet<u32>| {
            let (single_flight, upstream) = (Arc::clone(&single_flight), Arc::clone(&upstream));
            callers.spawn(async move {
                single_flight.share("thread", async || upstream.read().await).await
            });
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
        assert!(single_flight.0.lock().is_empty(), "nothing is kept");
    }

    #[tokio::test]
    async fn if_the_first_caller_leaves_the_next_one_sends_the_request() {
        let (single_flight, upstream) = (SingleFlight::default(), Upstream::default());
        let first = single_flight.share("thread", async || upstream.read().await);
        let left = tokio::time::timeout(std::time::Duration::ZERO, first).await;
        assert!(left.is_err());
        upstream.end.notify_one();
        assert_eq!(single_flight.share("thread", async || upstream.read().await).await, 2);
    }

    /// Threads that end their calls for one key at the same moment, with each key once.
    #[test]
    fn callers_that_end_together_leave_no_key() {
        const CALLERS: usize = 8;
        const KEYS: u32 = 5_000;
        let single_flight = SingleFlight::<u32, u32>::default();
        let together = std::sync::Barrier::new(CALLERS);
        std::thread::scope(|scope| {
            for _ in 0..CALLERS {
                scope.spawn(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    for key in 0..KEYS {
                        together.wait();
                        runtime.block_on(single_flight.share(key, async || 1));
                    }
                });
            }
        });
        assert_eq!(single_flight.0.lock().len(), 0);
    }

    thread_local! {
        /// How many hooks of [`turns`](crate::sync::turns) are called before `OTHER` leaves.
        static PASSES: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
        /// Drops another caller's seat.
        static OTHER: std::cell::Cell<Option<Box<dyn FnOnce()>>> = const { std::cell::Cell::new(None) };
    }

    /// The interleaving that once left a key: one caller leaves while another one is leaving, before
    /// and after each lock.
    #[test]
    fn a_caller_may_leave_at_any_lock_of_another_that_leaves() {
        for turn in 0..4 {
            let single_flight: &'static SingleFlight<u32, u32> = Box::leak(Box::default());
            let (one, other) = (single_flight.seat(7), single_flight.seat(7));
            let mut other = Some(other);
            OTHER.set(Some(Box::new(move || drop(other.take()))));
            PASSES.set(turn);
            crate::sync::turns::use_on_this_thread(|| {
                let left = PASSES.get();
                PASSES.set(left.wrapping_sub(1));
                if left == 0
                    && let Some(leave) = OTHER.take()
                {
                    leave();
                }
            });
            drop(one);
            if let Some(leave) = OTHER.take() {
                leave();
            }
            assert!(single_flight.0.lock().is_empty(), "the other left at lock {turn}");
        }
    }
}
