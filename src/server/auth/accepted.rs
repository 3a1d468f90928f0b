//! Credentials that LangGraph has accepted, by their digest.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::identity::Fingerprint;
use crate::server::rates::MAX_CALLERS;
use crate::sync::{Guard, Mutex};

/// How long an acceptance counts. Credentials that were not used for so long count against their
/// address once more, until LangGraph has accepted them again.
const ACCEPTED_AGE: Duration = Duration::from_hours(1);

/// How often expired entries are looked for while there is no place.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// The credentials that LangGraph has accepted, at most [`MAX_CALLERS`]: those beyond go on to
/// count against their addresses. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Accepted(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// Until when each counts.
    until: HashMap<Fingerprint, Instant>,
    swept: Option<Instant>,
}

// === impl Accepted ===

impl Accepted {
    pub(super) fn contains(&self, credentials: &Fingerprint) -> bool {
        self.lock().until.get(credentials).is_some_and(|until| *until > Instant::now())
    }

    pub(super) fn insert(&self, credentials: Fingerprint) {
        let now = Instant::now();
        let mut known = self.lock();
        if known.until.contains_key(&credentials) || known.has_place(now) {
            known.until.insert(credentials, now + ACCEPTED_AGE);
        }
    }

    pub(super) fn remove(&self, credentials: &Fingerprint) {
        self.lock().until.remove(credentials);
    }

    /// Nothing that is done under the lock can fail half-way.
    fn lock(&self) -> Guard<'_, Known> {
        self.0.lock()
    }
}

impl fmt::Debug for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Accepted")
    }
}

// === impl Known ===

impl Known {
    fn has_place(&mut self, now: Instant) -> bool {
        let was_just_swept = self.swept.is_some_and(|swept| now < swept + SWEEP_PAUSE);
        if self.until.len() >= MAX_CALLERS && !was_just_swept {
            self.until.retain(|_, until| *until > now);
            self.swept = Some(now);
        }
        self.until.len() < MAX_CALLERS
    }
}

#[cfg(test)]
mod tests {
    use super::super::identity::fingerprint_key;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_acceptance_counts_for_an_hour_and_there_is_an_end_to_them() {
        let accepted = Accepted::default();
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
