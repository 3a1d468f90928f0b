//! Whether a LangGraph server is there: one line in the log when it goes away, and one when it is
//! back, however many requests are refused meanwhile.

use std::time::Duration;

use tokio::time::Instant;

use super::Error;
use crate::sync::Mutex;

/// How many requests in a row have to fail without an answer before a server is away that takes
/// connections. One that takes none is away at once.
pub const FAILURES: u32 = 3;

/// The pause between two lines that it is away: one that comes and goes fills no disk.
pub const PAUSE: Duration = Duration::from_secs(10);

/// How long a request waits at least that counts as not answered when its caller gives up.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(2);

/// What is known of a server. The clients of a configured upstream share it.
#[derive(Debug)]
pub(super) struct Presence {
    /// Where it is. A [`BaseUrl`](super::BaseUrl) holds no secret.
    url: String,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// When the first request failed since the last answer, and how many have.
    failing: Option<(Instant, u32)>,
    is_away: bool,
    told_at: Option<Instant>,
}

/// A request that waits for an answer. If it is dropped before, it was given up.
pub(super) struct Waiting<'a> {
    presence: &'a Presence,
    since: Instant,
    is_over: bool,
}

/// What an answer says of the server's presence.
enum Sign {
    /// It is there, whatever it says.
    There,
    /// It takes no connections.
    Gone,
    /// It, or a proxy before it, may be away.
    Silent,
}

// === impl Presence ===

impl Presence {
    pub(super) fn new(url: String) -> Self {
        Self { url, seen: Mutex::default() }
    }

    pub(super) fn waits(&self) -> Waiting<'_> {
        Waiting { presence: self, since: Instant::now(), is_over: false }
    }

    fn answered(&self) {
        let mut seen = self.seen.lock();
        let was_away = std::mem::take(&mut seen.is_away);
        let failing = seen.failing.take();
        drop(seen);
        if let Some((since, _)) = failing.filter(|_| was_away) {
            let url = &self.url;
            let after = format!("{:.1} s", since.elapsed().as_secs_f64());
            tracing::info!(%url, "the LangGraph server at {url} is back, after {after}");
        }
    }

    fn failed(&self, why: &str, weight: u32) {
        let now = Instant::now();
        let mut seen = self.seen.lock();
        let (since, failures) = seen.failing.unwrap_or((now, 0));
        let failures = failures.saturating_add(weight);
        seen.failing = Some((since, failures));
        let may_tell = seen.told_at.is_none_or(|told| now >= told + PAUSE);
        let is_news = failures >= FAILURES && !seen.is_away && may_tell;
        if is_news {
            (seen.is_away, seen.told_at) = (true, Some(now));
        }
        drop(seen);
        if is_news {
            let url = &self.url;
            tracing::warn!(%url, "the LangGraph server at {url} is away: {why}");
        }
    }
}

// === impl Waiting ===

impl Waiting<'_> {
    /// It was answered so.
    pub(super) fn ended<T>(mut self, answer: &Result<T, Error>) {
        self.is_over = true;
        match answer.as_ref().map_or_else(Sign::of, |_| Sign::There) {
            Sign::There => self.presence.answered(),
            Sign::Gone => self.told(answer, FAILURES),
            Sign::Silent => self.told(answer, 1),
        }
    }

    fn told<T>(&self, answer: &Result<T, Error>, weight: u32) {
        if let Err(error) = answer {
            self.presence.failed(&error.to_string(), weight);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let waited = self.since.elapsed();
        if !self.is_over && waited >= GIVEN_UP_AFTER {
            let waited =
                format!("the LangGraph server did not answer within {} s", waited.as_secs());
            self.presence.failed(&waited, 1);
        }
    }
}

// === impl Sign ===

impl Sign {
    fn of(error: &Error) -> Self {
        match error {
            Error::Unreachable { .. } => Self::Gone,
            // A proxy says these of a server that it does not reach.
            Error::Timeout { .. }
            | Error::Interrupted { .. }
            | Error::Status { code: 502..=504, .. } => Self::Silent,
            Error::Status { .. }
            | Error::NotAnEventStream { .. }
            | Error::NotUnderstood { .. }
            | Error::TooLarge { .. } => Self::There,
        }
    }
}
