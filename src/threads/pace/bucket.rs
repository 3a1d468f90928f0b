//! A token bucket.

use std::time::Duration;

use tokio::time::Instant;

/// A token bucket: so many tokens in a second, and as many at once after a pause.
#[derive(Debug)]
pub(super) struct Bucket {
    /// The time in which one token is added.
    interval: Duration,
    burst: u32,
    /// When the bucket will be full again.
    full_at: Instant,
}

// === impl Bucket ===

impl Bucket {
    pub(super) fn new(per_second: u32, now: Instant) -> Self {
        Self { interval: Duration::from_secs(1) / per_second, burst: per_second, full_at: now }
    }

    /// Takes a token. The error is the time of the next one.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Instant> {
        let full_at = self.full_at.max(now) + self.interval;
        let available_at = full_at - self.interval * self.burst;
        if available_at > now {
            return Err(available_at);
        }
        self.full_at = full_at;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// How many tokens a bucket gives in this time if it is asked all the time.
    fn taken(bucket: &mut Bucket, from: Instant, time: Duration) -> u32 {
        let (mut now, mut count) = (from, 0);
        while now < from + time {
            match bucket.take(now) {
                Ok(()) => count += 1,
                Err(at) => now = at,
            }
        }
        count
    }

    #[test]
    fn a_bucket_gives_so_many_tokens_in_a_second_and_as_many_at_once() {
        let now = Instant::now();
        let mut bucket = Bucket::new(50, now);
        assert_eq!(taken(&mut bucket, now, SECOND / 1000), 50);
        assert_eq!(taken(&mut bucket, now + SECOND / 1000, SECOND * 10), 500);
        // A long pause leaves no more than a burst.
        assert_eq!(taken(&mut bucket, now + 100 * SECOND, SECOND / 1000), 50);
    }
}
