//! What servers say about themselves and their agents, remembered for a while.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

use crate::single_flight::SingleFlight;
use crate::sync::{Guard, Mutex};
use crate::upstream::{Caller, Client, UpstreamCredentials};

/// How long a fact is remembered. Servers are deployed anew, and then it may change.
pub const FACTS_AGE: Duration = Duration::from_mins(1);

/// How long a server that did not answer is not asked again. Until then the last fact goes on.
pub(super) const FACTS_PAUSE: Duration = Duration::from_secs(5);

/// How long the last fact of one caller is kept for a time when the server does not answer. Its key
/// has the caller's credentials. A fact for all callers is kept without a limit of time.
const CALLERS_FACTS_KEPT: Duration = Duration::from_mins(10);

/// How many facts of a kind are remembered: more than the assistants of a server that are listed.
pub(super) const MAX_FACTS: usize = 2_000;

/// Facts of one kind. Each is remembered for [`FACTS_AGE`], for all callers or for the one that
/// asked. It goes on while the server does not answer.
#[derive(Debug)]
pub(super) struct Facts<K, V> {
    remembered: Mutex<Remembered<K, V>>,
    /// Requests for facts, shared by callers with equal credentials.
    in_flight: SingleFlight<(K, UpstreamCredentials), V>,
}

/// Facts by subject and caller. Without a caller a fact applies to all.
type Remembered<K, V> = HashMap<(K, Option<Caller>), Fact<V>>;

#[derive(Debug)]
struct Fact<V> {
    value: V,
    /// Until when the server is not asked again.
    fresh_until: Instant,
    /// Until when the fact goes on if the server does not answer. `None` without a limit.
    kept_until: Option<Instant>,
}

/// What a request for a fact has brought.
pub(super) enum FactLookup<V> {
    /// The server's answer.
    Fact(V, Scope),
    /// The server did not answer. The last fact goes on. Without one, `value` stands in for it, and
    /// is remembered for the caller for `age`.
    Failure { value: V, age: Duration },
}

/// To whom a fact applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// To all callers: the server would give the same answer to each.
    Everyone,
    /// To the caller that asked. Others may get another answer.
    Caller,
    /// Only to this request. The next one may get another answer.
    Nobody,
}

// === impl Facts ===

impl<K: Clone + Eq + Hash, V: Clone> Facts<K, V> {
    /// The remembered fact, or else the one that `read` returns. Callers that ask at the same time
    /// with equal credentials share one `read`.
    pub(super) async fn get_or_read(
        &self,
        key: K,
        upstream: &Client,
        read: impl AsyncFnOnce() -> FactLookup<V>,
    ) -> V {
        let caller = upstream.caller();
        if let Some(fact) = self.get(&key, caller) {
            return fact;
        }
        let read = async || {
            // Another `read` may have ended since the check above.
            if let Some(fact) = self.get(&key, caller) {
                return fact;
            }
            match read().await {
                FactLookup::Fact(fact, scope) => self.put(key.clone(), caller, fact, scope),
                FactLookup::Failure { value, age } => self.go_on(key.clone(), caller, value, age),
            }
        };
        self.in_flight.share((key.clone(), upstream.access()), read).await
    }

    fn lock(&self) -> Guard<'_, Remembered<K, V>> {
        self.remembered.lock()
    }

    /// The remembered fact for all callers, or else for this one.
    pub(super) fn get(&self, key: &K, caller: &Caller) -> Option<V> {
        let now = Instant::now();
        self.find(key, caller, |fact| fact.fresh_until > now)
    }

    /// The last fact for all callers, or else for this one, however old.
    pub(super) fn last(&self, key: &K, caller: &Caller) -> Option<V> {
        let now = Instant::now();
        self.find(key, caller, |fact| fact.is_kept(now))
    }

    fn find(&self, key: &K, caller: &Caller, is_good: impl Fn(&Fact<V>) -> bool) -> Option<V> {
        let facts = self.lock();
        let mut callers = [None, Some(caller)].into_iter();
        callers.find_map(|caller| {
            let fact = facts.get(&(key.clone(), caller.cloned()))?;
            is_good(fact).then(|| fact.value.clone())
        })
    }

    /// The last fact, for a server that did not answer; `value` without one.
    fn go_on(&self, key: K, caller: &Caller, value: V, age: Duration) -> V {
        let now = Instant::now();
        let mut facts = self.lock();
        for caller in [None, Some(caller.clone())] {
            if let Some(fact) = facts.get_mut(&(key.clone(), caller))
                && fact.is_kept(now)
            {
                fact.fresh_until = now + age.min(FACTS_PAUSE);
                return fact.value.clone();
            }
        }
        if !age.is_zero() {
            let until = now + age;
            let (fresh_until, kept_until) = (until, Some(until));
            let fact = Fact { value: value.clone(), fresh_until, kept_until };
            make_room(&mut facts, now);
            facts.insert((key, Some(caller.clone())), fact);
        }
        value
    }

    fn put(&self, key: K, caller: &Caller, fact: V, scope: Scope) -> V {
        let now = Instant::now();
        let (caller, kept_until) = match scope {
            Scope::Everyone => (None, None),
            Scope::Caller => (Some(caller.clone()), Some(now + CALLERS_FACTS_KEPT)),
            Scope::Nobody => return fact,
        };
        let value = fact.clone();
        let mut facts = self.lock();
        make_room(&mut facts, now);
        facts.insert((key, caller), Fact { value, fresh_until: now + FACTS_AGE, kept_until });
        fact
    }
}

/// Makes room for another fact.
#[expect(clippy::mutable_key_type, reason = "a caller's end takes no part in comparisons")]
fn make_room<K: Eq + Hash, V>(facts: &mut Remembered<K, V>, now: Instant) {
    // Removing old facts also removes the credentials in their keys.
    facts.retain(|_, fact| fact.is_kept(now));
    if facts.len() >= MAX_FACTS {
        // Clients may invent credentials. Facts for all callers stay.
        facts.retain(|(_, caller), _| caller.is_none());
    }
    if facts.len() >= MAX_FACTS {
        facts.clear();
    }
}

// === impl Fact ===

impl<V> Fact<V> {
    fn is_kept(&self, now: Instant) -> bool {
        self.kept_until.is_none_or(|until| until > now)
    }
}

impl<K, V> Default for Facts<K, V> {
    fn default() -> Self {
        Self { remembered: Mutex::default(), in_flight: SingleFlight::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const MOMENT: Duration = Duration::from_millis(1);

    /// Facts of a server, and how often it was asked.
    struct Server {
        facts: Facts<(), u32>,
        asked: AtomicU32,
        client: Client,
    }

    impl Server {
        fn new() -> Self {
            let client = Client::new("http://h:1".parse().unwrap(), None).unwrap();
            Self { facts: Facts::default(), asked: AtomicU32::new(0), client }
        }

        /// Asks for a fact. Returns the number of requests so far too.
        async fn ask(&self, found: FactLookup<u32>) -> (u32, u32) {
            let read = async || {
                self.asked.fetch_add(1, Ordering::SeqCst);
                found
            };
            let fact = self.facts.get_or_read((), &self.client, read).await;
            (fact, self.asked.load(Ordering::SeqCst))
        }

        async fn fail(&self) -> (u32, u32) {
            self.ask(FactLookup::Failure { value: 0, age: FACTS_PAUSE }).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_forgotten_in_seconds() {
        let server = Server::new();
        assert_eq!(server.fail().await, (0, 1));
        tokio::time::advance(FACTS_PAUSE.saturating_sub(MOMENT)).await;
        assert_eq!(server.ask(FactLookup::Fact(7, Scope::Everyone)).await, (0, 1));
        tokio::time::advance(MOMENT).await;
        assert_eq!(server.ask(FactLookup::Fact(7, Scope::Everyone)).await, (7, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_fact_goes_on_while_the_server_does_not_answer() {
        for scope in [Scope::Everyone, Scope::Caller] {
            let server = Server::new();
            assert_eq!(server.ask(FactLookup::Fact(7, scope)).await, (7, 1));
            tokio::time::advance(FACTS_AGE).await;
            for asked in 2..5 {
                assert_eq!(server.fail().await, (7, asked));
                assert_eq!(server.fail().await, (7, asked), "not asked again at once");
                tokio::time::advance(FACTS_PAUSE).await;
            }
            assert_eq!(server.ask(FactLookup::Fact(8, scope)).await, (8, 5));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_fact_of_one_caller_is_not_kept_for_ever() {
        for (scope, kept) in [(Scope::Everyone, 7), (Scope::Caller, 0)] {
            let server = Server::new();
            assert_eq!(server.ask(FactLookup::Fact(7, scope)).await, (7, 1));
            tokio::time::advance(CALLERS_FACTS_KEPT).await;
            assert_eq!(server.fail().await, (kept, 2));
        }
    }
}
