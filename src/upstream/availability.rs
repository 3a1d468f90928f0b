//! Log lines for outages: one when a LangGraph server becomes unavailable and one when it answers
//! again, however many requests fail in between.

use std::time::Duration;

use tokio::time::Instant;

use super::Error;
use crate::sync::Mutex;

/// How many requests in a row must get no answer until a server that accepts connections counts as
/// unavailable. A server that accepts no connection is unavailable at once.
pub const OUTAGE_FAILURES: u32 = 3;

/// The shortest time between two lines that a server is unavailable. A server that comes and goes
/// must not fill the disk.
pub const OUTAGE_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Whether the server at an address is available. The clients of one configured upstream share it.
#[derive(Debug)]
pub(super) struct Availability {
    /// The server's base URL, which holds no secret.
    url: String,
    record: Mutex<Record>,
}

#[derive(Debug, Default)]
struct Record {
    /// When the first request since the last answer failed, and how many have failed.
    failing: Option<(Instant, u32)>,
    is_unavailable: bool,
    logged_at: Option<Instant>,
}

/// What the result of a request says about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HealthSignal {
    /// The server answered.
    Answered,
    /// The server accepts no connection.
    Refused,
    /// The server did not answer, or a proxy says that it does not reach the server.
    Unanswered,
}

// === impl Availability ===

impl Availability {
    pub(super) fn new(url: String) -> Self {
        Self { url, record: Mutex::default() }
    }

    pub(super) fn note_answer(&self) {
        let mut record = self.record.lock();
        let was_unavailable = std::mem::take(&mut record.is_unavailable);
        let failing = record.failing.take();
        drop(record);
        if let Some((since, _)) = failing.filter(|_| was_unavailable) {
            let url = &self.url;
            let after = format!("{:.1} s", since.elapsed().as_secs_f64());
            tracing::info!(%url, "the LangGraph server at {url} is available again, after {after}");
        }
    }

    /// Notes a failure, which counts as this many. Returns whether the server counts as unavailable.
    pub(super) fn note_failure(&self, reason: &str, weight: u32) -> bool {
        let now = Instant::now();
        let mut record = self.record.lock();
        let (since, failures) = record.failing.unwrap_or((now, 0));
        let failures = failures.saturating_add(weight);
        record.failing = Some((since, failures));
        let may_log = record.logged_at.is_none_or(|logged| now >= logged + OUTAGE_LOG_INTERVAL);
        let is_unavailable = failures >= OUTAGE_FAILURES;
        let is_new = is_unavailable && !record.is_unavailable && may_log;
        if is_new {
            (record.is_unavailable, record.logged_at) = (true, Some(now));
        }
        drop(record);
        if is_new {
            let url = &self.url;
            tracing::warn!(%url, "the LangGraph server at {url} is unavailable: {reason}");
        }
        is_unavailable
    }
}

// === impl HealthSignal ===

impl HealthSignal {
    pub(super) fn of(error: &Error) -> Self {
        match error {
            Error::Unreachable { .. } | Error::Unproven => Self::Refused,
            // A proxy answers so for a server that it does not reach.
            Error::Timeout { .. }
            | Error::Interrupted { .. }
            | Error::Status { code: 502..=504, .. } => Self::Unanswered,
            Error::Status { .. }
            | Error::Crowded
            | Error::NotAnEventStream { .. }
            | Error::NotUnderstood { .. }
            | Error::TooLarge { .. }
            | Error::NoRoom(_) => Self::Answered,
        }
    }
}
