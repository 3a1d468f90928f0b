//! Log lines for outages: one when a LangGraph server becomes unavailable and one when it answers
//! again, however many requests fail in between.

use std::time::Duration;

use tokio::time::Instant;

use super::Error;
use crate::metrics::{Answer, Metrics};
use crate::sync::Mutex;

/// How many requests in a row must get no answer until a server that accepts connections counts as
/// unavailable. A server that accepts no connection is unavailable at once.
pub const OUTAGE_FAILURES: u32 = 3;

/// The shortest time between two lines that a server is unavailable. A server that comes and goes
/// must not fill the disk.
pub const OUTAGE_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// A request that its caller gives up earlier than this does not count as unanswered.
const MIN_WAIT: Duration = Duration::from_secs(2);

/// Whether a server is available. The clients of one configured upstream share it.
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

/// A request without an answer yet. Its caller has given it up if this is dropped before
/// [`finish`](Self::finish).
pub(super) struct UnansweredRequest<'a> {
    availability: &'a Availability,
    metrics: &'a Metrics,
    since: Instant,
    is_finished: bool,
}

/// What the result of a request says about the server.
enum Evidence {
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

    pub(super) fn begin_request<'a>(&'a self, metrics: &'a Metrics) -> UnansweredRequest<'a> {
        let since = Instant::now();
        UnansweredRequest { availability: self, metrics, since, is_finished: false }
    }

    fn note_answer(&self) {
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

    /// Notes a failure, which counts as this many.
    fn note_failure(&self, reason: &str, weight: u32) {
        let now = Instant::now();
        let mut record = self.record.lock();
        let (since, failures) = record.failing.unwrap_or((now, 0));
        let failures = failures.saturating_add(weight);
        record.failing = Some((since, failures));
        let may_log = record.logged_at.is_none_or(|logged| now >= logged + OUTAGE_LOG_INTERVAL);
        let is_new = failures >= OUTAGE_FAILURES && !record.is_unavailable && may_log;
        if is_new {
            (record.is_unavailable, record.logged_at) = (true, Some(now));
        }
        drop(record);
        if is_new {
            let url = &self.url;
            tracing::warn!(%url, "the LangGraph server at {url} is unavailable: {reason}");
        }
    }
}

// === impl UnansweredRequest ===

impl UnansweredRequest<'_> {
    pub(super) fn finish<T>(mut self, answer: &Result<T, Error>) {
        self.is_finished = true;
        let Err(error) = answer else { return self.availability.note_answer() };
        match Evidence::of(error) {
            Evidence::Answered => self.availability.note_answer(),
            Evidence::Refused => {
                self.availability.note_failure(&error.to_string(), OUTAGE_FAILURES);
            }
            Evidence::Unanswered => self.availability.note_failure(&error.to_string(), 1),
        }
    }
}

impl Drop for UnansweredRequest<'_> {
    fn drop(&mut self) {
        let waited = self.since.elapsed();
        if !self.is_finished && waited >= MIN_WAIT {
            self.metrics.upstream_failed(Answer::Timeout);
            let seconds = Duration::from_secs(waited.as_secs());
            self.availability.note_failure(&Error::Timeout { waited: seconds }.to_string(), 1);
        }
    }
}

// === impl Evidence ===

impl Evidence {
    fn of(error: &Error) -> Self {
        match error {
            Error::Unreachable { .. } => Self::Refused,
            // A proxy answers so for a server that it does not reach.
            Error::Timeout { .. }
            | Error::Interrupted { .. }
            | Error::Status { code: 502..=504, .. } => Self::Unanswered,
            Error::Status { .. }
            | Error::NotAnEventStream { .. }
            | Error::NotUnderstood { .. }
            | Error::TooLarge { .. } => Self::Answered,
        }
    }
}
