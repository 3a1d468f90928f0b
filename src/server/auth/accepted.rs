//! Credentials that LangGraph has accepted, by their digests.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::server::limits::caller_id::Fingerprint;
use crate::server::limits::rates::MAX_CALLERS;
use crate::sync::{Guard, Mutex};

/// How long an acceptance counts after the credentials were last used. After that, requests count
/// against their network until LangGraph has accepted the credentials again.
const ACCEPTED_AGE: Duration = Duration::from_hours(1);

/// The pause between two removals of expired entries while all entries are taken.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// The credentials that LangGraph has accepted, at most [`MAX_CALLERS`]. Requests with others keep
/// counting against their networks. Clones share the entries.
#[derive(Clone, Default)]
pub(super) struct AcceptedCredentials(Arc<Mutex<Entries>>);

#[derive(Default)]
struct Entries {
    /// When each entry expires.
    until: HashMap<Fingerprint, Instant>,
    swept_at: Option<Instant>,
}

// === impl AcceptedCredentials ===

impl AcceptedCredentials {
    pub(super) fn contains(&self, credentials: &Fingerprint) -> bool {
        self.lock().until.get(credentials).is_some_and(|until| *until > Instant::now())
    }

    pub(super) fn insert(&self, credentials: Fingerprint) {
        let now = Instant::now();
        let mut entries = self.lock();
        if entries.until.contains_key(&credentials) || entries.has_room(now) {
            entries.until.insert(credentials, now + ACCEPTED_AGE);
        }
    }

    pub(super) fn remove(&self, credentials: &Fingerprint) {
        self.lock().until.remove(credentials);
    }

    /// Nothing that is done under the lock can fail half-way.
    fn lock(&self) -> Guard<'_, Entries> {
        self.0.lock()
    }
}

impl fmt::Debug for AcceptedCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Accepted")
    }
}

// === impl Entries ===

impl Entries {
    fn has_room(&mut self, now: Instant) -> bool {
        let was_just_swept = self.swept_at.is_some_and(|swept| now < swept + SWEEP_PAUSE);
        if self.until.len() >= MAX_CALLERS && !was_just_swept {
            self.until.retain(|_, until| *until > now);
            self.swept_at = Some(now);
        }
        self.until.len() < MAX_CALLERS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::limits::caller_id::fingerprint_key;

    #[tokio::test(start_paused = true)]
    async fn an_acceptance_counts_for_an_hour_and_their_number_is_limited() {
        let accepted = AcceptedCredentials::default();
        let key = fingerprint_key();
        let of = |name: &str| Fingerprint::of(&key, [name]);
        accepted.insert(of("a"));
        assert!(accepted.contains(&of("a")) && !accepted.contains(&of("b")));
        accepted.remove(&of("a"));
        assert!(!accepted.contains(&of("a")));
        for at in 0..MAX_CALLERS {
            accepted.insert(of(&at.to_string()));
        }
        accepted.insert(of("one too many"));
        assert!(!accepted.contains(&of("one too many")) && accepted.contains(&of("0")));
        tokio::time::advance(ACCEPTED_AGE).await;
        assert!(!accepted.contains(&of("0")));
        accepted.insert(of("later"));
        assert!(accepted.contains(&of("later")));
    }
}
