//! When a run that is out of reach is tried again, and when the gateway gives up.

use std::time::Duration;

use tokio::time::Instant;

use super::ending::BodyEnd;
use crate::upstream::{Backoff, Seed};

/// How long a server may be out of reach before the gateway ends the streams of its runs. A
/// LangGraph server restarts in half of that. Viewers get no events meanwhile.
pub const UPSTREAM_PATIENCE: Duration = Duration::from_mins(1);

/// The pause before the first attempt. Upstream ids are milliseconds, and the repeats of the new
/// connection must not share an id with the last parts of the old one.
const NO_PAUSE: Duration = Duration::from_millis(3);

/// The pause before the second attempt. It doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How many joins in a row may break off before the run's record is read. Joining comes first: the
/// rest of a stream shows more of a run that is over than its state does.
const BLIND_JOINS: u32 = 5;

/// How many silent connections in a row are joined again before the run's record is read.
const BLIND_SILENCES: u32 = 1;

/// The longest wait for a server that limits its requests. Viewers get no events meanwhile.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(30);

/// The longest pause between two reads of the state that a joining viewer waits for. The viewer sees
/// nothing meanwhile.
const LONGEST_STATE_PAUSE: Duration = Duration::from_secs(1);

/// How many times the record is read if it says that the run goes on after a clean end of its
/// stream. The Python server updates the record within 2 ms; a server with a database may need
/// longer.
const RECORD_READS: u32 = 5;

/// How many times all callers' credentials are tried at the end of a stream that has shown the whole
/// run, before the run ends as its stream did. The server may refuse everybody for a moment.
const REFUSED_READS: u32 = 6;

/// The pause before the second read of the record. It doubles each time, to 1.5 s in all for
/// [`RECORD_READS`].
const RECORD_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between two reads of the record.
const LONGEST_RECORD_PAUSE: Duration = Duration::from_millis(1600);

/// The attempts to read a run again.
#[derive(Debug)]
pub(super) struct Retry {
    /// How many attempts have failed in a row.
    attempts: u32,
    /// The pauses before all attempts but the first.
    pauses: Backoff,
    silences: u32,
    /// When the run was first found out of reach.
    lost_at: Option<Instant>,
    seed: Seed,
}

/// The reads of a state that is needed beside a stream.
#[derive(Debug)]
pub(super) struct StateReads {
    pauses: Backoff,
    give_up_at: Instant,
}

/// The reads of the record of a run whose stream has ended.
#[derive(Debug)]
pub(super) struct EndReads {
    /// How the stream ended.
    pub(super) end: BodyEnd,
    pauses: Backoff,
}

// === impl Retry ===

impl Retry {
    pub(super) fn new(mut seed: Seed) -> Self {
        let pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE, seed.split());
        Self { attempts: 0, pauses, silences: 0, lost_at: None, seed }
    }

    /// The run was read on.
    pub(super) fn reset(&mut self) {
        self.attempts = 0;
        self.pauses.reset();
        self.in_reach();
    }

    /// Whether the stream can be joined again before the run's record is read.
    pub(super) fn may_join(&self) -> bool {
        self.attempts < BLIND_JOINS && self.silences <= BLIND_SILENCES
    }

    /// When the run was first found out of reach. `None` while it is in reach.
    pub(super) fn lost_at(&self) -> Option<Instant> {
        self.lost_at
    }

    /// The run is in reach, even if its stream is not.
    pub(super) fn in_reach(&mut self) {
        self.silences = 0;
        self.lost_at = None;
    }

    /// A connection stayed open for the longest allowed silence and brought nothing.
    pub(super) fn was_silent(&mut self) {
        self.attempts = 0;
        self.pauses.reset();
        self.silences += 1;
    }

    /// Whether the gateway gives up: the run was out of reach for [`UPSTREAM_PATIENCE`].
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        now - *self.lost_at.get_or_insert(now) >= UPSTREAM_PATIENCE
    }

    /// Counts one more attempt, and returns the pause before it. The first attempt is made almost at
    /// once. Later pauses double, with jitter.
    pub(super) fn next_pause(&mut self) -> Duration {
        let is_first = self.attempts == 0;
        self.attempts = self.attempts.saturating_add(1);
        if is_first { NO_PAUSE } else { self.pauses.next_pause() }
    }

    /// Reads of a state, from now on.
    pub(super) fn state_reads(&mut self, now: Instant) -> StateReads {
        let pauses = Backoff::new(FIRST_PAUSE, LONGEST_STATE_PAUSE, self.seed.split());
        StateReads { pauses, give_up_at: now + UPSTREAM_PATIENCE }
    }
}

/// A wait that a server has asked for with `Retry-After`, as far as it is obeyed.
pub(super) fn obeyed(retry_after: Duration) -> Duration {
    retry_after.min(LONGEST_RETRY_AFTER)
}

// === impl StateReads ===

impl StateReads {
    /// The pause before the state is read again. `None` if it is read no more.
    pub(super) fn next_pause(&mut self, now: Instant) -> Option<Duration> {
        (now < self.give_up_at).then(|| self.pauses.next_pause())
    }
}

// === impl EndReads ===

impl EndReads {
    pub(super) fn after(end: BodyEnd) -> Self {
        Self { end, pauses: Backoff::exact(RECORD_PAUSE, LONGEST_RECORD_PAUSE) }
    }

    /// The pause before a record is read again that may lag behind the stream's end. `None` if it is
    /// believed.
    pub(super) fn pause_for_lag(&mut self) -> Option<Duration> {
        let may_lag = self.end == BodyEnd::Clean;
        self.next_pause(if may_lag { RECORD_READS } else { 1 })
    }

    /// The pause before a record is read again that the upstream refuses to all callers. `None` if
    /// it is read no more.
    pub(super) fn pause_for_refusal(&mut self) -> Option<Duration> {
        self.next_pause(REFUSED_READS)
    }

    fn next_pause(&mut self, reads: u32) -> Option<Duration> {
        (self.pauses.attempts() + 1 < reads).then(|| self.pauses.next_pause())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attempt_waits_longer_up_to_a_limit_and_not_for_as_long_as_another() {
        let mut retry = Retry::new(Seed::fixed());
        assert_eq!(retry.next_pause(), NO_PAUSE);
        assert!(retry.may_join());
        for whole in [200, 400, 800, 1600, 3200, 5000, 5000] {
            let (pause, whole) = (retry.next_pause(), Duration::from_millis(whole));
            assert!((whole / 2..=whole).contains(&pause), "{pause:?} of {whole:?}");
        }
        assert!(!retry.may_join());
        retry.attempts = u32::MAX;
        assert!(retry.next_pause() <= LONGEST_PAUSE);
        retry.reset();
        assert_eq!(retry.next_pause(), NO_PAUSE);
        assert!(retry.next_pause() <= FIRST_PAUSE);
    }

    #[test]
    fn the_gateway_gives_up_after_a_minute_out_of_reach() {
        let mut retry = Retry::new(Seed::fixed());
        let began = Instant::now();
        let half = UPSTREAM_PATIENCE / 2;
        assert!(!retry.is_over(began));
        assert!(!retry.is_over(began + half));
        retry.in_reach();
        assert!(!retry.is_over(began + half));
        assert!(!retry.is_over(began + 2 * half));
        assert!(retry.is_over(began + 3 * half));
    }
}
