//! The demo's time and ids. The wall clock is read once; tokio's clock counts on from there.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;
use uuid::Uuid;

/// The time and the ids of one demo.
///
/// Records carry wall time. It is read only at the start and continued by tokio's clock, which
/// tests can pause. Ids are made unique by a counter instead of random numbers: nothing in a demo
/// is secret, and that saves a dependency.
#[derive(Debug)]
pub(super) struct Clock {
    /// Time since the Unix epoch.
    began: Duration,
    since: Instant,
    count: AtomicU64,
}

/// A wall time, in microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(u64);

// === impl Clock ===

impl Clock {
    pub(super) fn new() -> Self {
        #[expect(clippy::disallowed_methods, reason = "records of a server carry wall time")]
        let now = SystemTime::now();
        // A clock before 1970 counts as 1970.
        Self::at(now.duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// A clock whose wall time is now this long after 1970.
    pub(super) fn at(began: Duration) -> Self {
        Self { began, since: Instant::now(), count: AtomicU64::new(0) }
    }

    pub(super) fn now(&self) -> Moment {
        let now = self.began + self.since.elapsed();
        Moment(u64::try_from(now.as_micros()).unwrap_or(u64::MAX))
    }

    /// A new `UUIDv7`. Ids sort by the time at which they were made, like the Python server's.
    pub(super) fn id(&self) -> Uuid {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}:{count}", self.began.as_nanos());
        let hash = Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes());
        let mut rest = [0; 10];
        for (byte, hashed) in rest.iter_mut().zip(hash.as_bytes()) {
            *byte = *hashed;
        }
        // The first twelve bits after the time order the ids of one millisecond.
        let [high, low, ..] = &mut rest;
        [.., *high, *low] = count.to_be_bytes();
        uuid::Builder::from_unix_timestamp_millis(self.now().millis(), &rest).into_uuid()
    }
}

// === impl Moment ===

impl Moment {
    pub(super) fn millis(self) -> u64 {
        self.0 / 1_000
    }
}

/// A time in UTC as Python prints it: `2026-11-22T05:06:24.668430+00:00`.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1_000_000;
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        let (year, month, day) = date(days);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        let micros = self.0 % 1_000_000;
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}+00:00"
        )
    }
}

/// The Gregorian date of a day since 1970-01-01. Years are counted from March, so that a leap day
/// is the last day of its year; an era has 400 years.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + carry, month, day)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_moment_is_printed_as_python_does() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000007+00:00"),
            (951_782_399, "2000-02-28T23:59:59.000007+00:00"),
            (951_782_400, "2000-02-29T00:00:00.000007+00:00"),
            (1_795_323_984, "2026-11-22T05:06:24.000007+00:00"),
            (4_107_542_400, "2100-03-01T00:00:00.000007+00:00"),
        ] {
            assert_eq!(Moment(seconds * 1_000_000 + 7).to_string(), expected);
        }
    }

    #[tokio::test]
    async fn ids_are_unique_and_sort_by_time() {
        tokio::time::pause();
        let clock = Clock::new();
        let mut ids: Vec<_> = (0..1_000).map(|_| clock.id()).collect();
        tokio::time::advance(Duration::from_millis(1)).await;
        ids.push(clock.id());
        assert!(ids.iter().all(|id| id.get_version_num() == 7));
        assert!(ids.is_sorted());
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    }
}
