//! What servers say about themselves and their agents, remembered for a while.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

use crate::flights::Flights;
use crate::sync::{Guard, Mutex};
use crate::upstream::{Access, Caller, Client};

/// How long a fact is remembered. Servers are deployed anew, and then it may change.
pub const FACTS_AGE: Duration = Duration::from_mins(1);

/// How many facts of a kind are remembered: more than the assistants of a server that are listed.
pub(super) const MAX_FACTS: usize = 2_000;

/// Facts of one kind. Each is remembered for [`FACTS_AGE`], for all callers or for the one that
/// asked.
#[derive(Debug)]
pub(super) struct Facts<K, V> {
    remembered: Mutex<Remembered<K, V>>,
    /// Requests for facts, shared by callers with equal credentials.
    in_flight: Flights<(K, Access), V>,
}

/// Facts with the time at which each expires, by subject and caller. Without a caller a fact
/// applies to all.
type Remembered<K, V> = HashMap<(K, Option<Caller>), (V, Instant)>;

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
        read: impl AsyncFnOnce() -> (V, Scope),
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
            let (fact, scope) = read().await;
            self.put(key.clone(), caller, fact, scope)
        };
        self.in_flight.share((key.clone(), upstream.access()), read).await
    }

    fn lock(&self) -> Guard<'_, Remembered<K, V>> {
        self.remembered.lock()
    }

    /// The remembered fact for all callers, or else for this one.
    pub(super) fn get(&self, key: &K, caller: &Caller) -> Option<V> {
        let (now, facts) = (Instant::now(), self.lock());
        let mut callers = [None, Some(caller)].into_iter();
        callers.find_map(|caller| {
            let (fact, expiry) = facts.get(&(key.clone(), caller.cloned()))?;
            (*expiry > now).then(|| fact.clone())
        })
    }

    fn put(&self, key: K, caller: &Caller, fact: V, scope: Scope) -> V {
        let caller = match scope {
            Scope::Everyone => None,
            Scope::Caller => Some(caller.clone()),
            Scope::Nobody => return fact,
        };
        let now = Instant::now();
        let mut facts = self.lock();
        // Removing expired facts also removes the credentials in their keys.
        facts.retain(|_, (_, expiry)| *expiry > now);
        if facts.len() >= MAX_FACTS {
            // Clients may invent credentials. Facts for all callers stay.
            facts.retain(|(_, caller), _| caller.is_none());
        }
        if facts.len() >= MAX_FACTS {
            facts.clear();
        }
        facts.insert((key, caller), (fact.clone(), now + FACTS_AGE));
        fact
    }
}

impl<K, V> Default for Facts<K, V> {
    fn default() -> Self {
        Self { remembered: Mutex::default(), in_flight: Flights::default() }
    }
}
