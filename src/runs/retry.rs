//! When a run that was lost sight of is asked for again, and when it is given up.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;

/// How long a server may be out of reach before its runs are given up here: it restarts in half of
/// that, and who watches was told nothing meanwhile.
pub const UPSTREAM_PATIENCE: Duration = Duration::from_mins(1);

/// The pause before the first attempt: ids are milliseconds, and what the new connection repeats
/// must not share one with what the last one brought.
const NO_PAUSE: Duration = Duration::from_millis(3);

/// The pause before the second attempt; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How often in a row a stream is joined that breaks off each time, before the run's record is
/// asked: what is left of a run that is over is worth more than its state.
const BLIND_JOINS: u32 = 5;

/// How many silent connections in a row are taken for dead ones before the record is asked.
const BLIND_SILENCES: u32 = 1;

/// The attempts to get back to a run.
#[derive(Debug, Default)]
pub(super) struct Retry {
    attempts: u32,
    silences: u32,
    /// Since when nothing was heard of the run.
    lost_at: Option<Instant>,
}

// === impl Retry ===

impl Retry {
    /// Whether so few were made that nothing is to be concluded from them.
    pub(super) fn is_young(&self) -> bool {
        self.attempts < BLIND_JOINS && self.silences <= BLIND_SILENCES
    }

    /// The run lives, wherever its stream is.
    pub(super) fn heard(&mut self) {
        self.silences = 0;
        self.lost_at = None;
    }

    /// A connection held for as long as one may that brings nothing.
    pub(super) fn was_silent(&mut self) {
        self.attempts = 0;
        self.silences += 1;
    }

    /// Whether the run is to be given up: nothing was heard of it for too long.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        now - *self.lost_at.get_or_insert(now) >= UPSTREAM_PATIENCE
    }

    /// Makes one more attempt; how long to wait before it. The first comes at once, the others
    /// ever later, and not those of all runs together.
    pub(super) fn next_pause(&mut self) -> Duration {
        let made = self.attempts;
        self.attempts = made.saturating_add(1);
        let Some(doublings) = made.checked_sub(1) else { return NO_PAUSE };
        doubled(FIRST_PAUSE, doublings, LONGEST_PAUSE)
    }
}

/// The pause after this many doublings, up to the longest. It is shortened at random by up to half,
/// so that those who wait do not all return at once.
pub(crate) fn doubled(first: Duration, doublings: u32, longest: Duration) -> Duration {
    let whole = first.saturating_mul(1 << doublings.min(16)).min(longest);
    // The hasher is keyed at random.
    let [chance, ..] = RandomState::new().hash_one(doublings).to_be_bytes();
    shortened(whole, chance)
}

/// `chance` is of 256 how much of half the pause is left out. Whole numbers, because a float rounds
/// up beyond the pause itself.
fn shortened(whole: Duration, chance: u8) -> Duration {
    whole.saturating_sub(whole / 512 * u32::from(chance))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attempt_waits_longer_up_to_a_limit_and_not_for_as_long_as_another() {
        let mut retry = Retry::default();
        assert_eq!(retry.next_pause(), NO_PAUSE);
        assert!(retry.is_young());
        for whole in [200, 400, 800, 1600, 3200, 5000, 5000] {
            let (pause, whole) = (retry.next_pause(), Duration::from_millis(whole));
            assert!((whole / 2..=whole).contains(&pause), "{pause:?} of {whole:?}");
        }
        assert!(!retry.is_young());
        retry.attempts = u32::MAX;
        assert!(retry.next_pause() <= LONGEST_PAUSE);
    }

    #[test]
    fn whatever_the_chance_a_pause_is_at_least_half_and_at_most_the_whole() {
        for whole in [200, 400, 800, 1600, 3200, 5000].map(Duration::from_millis) {
            let pauses: Vec<_> = (0..=u8::MAX).map(|chance| shortened(whole, chance)).collect();
            assert_eq!(pauses[0], whole);
            assert!(pauses.is_sorted_by(|longer, shorter| longer > shorter), "{pauses:?}");
            assert!(pauses[255] > whole / 2, "{pauses:?}");
        }
    }

    #[test]
    fn a_run_is_given_up_after_a_minute_without_a_word() {
        let mut retry = Retry::default();
        let began = Instant::now();
        let half = UPSTREAM_PATIENCE / 2;
        assert!(!retry.is_over(began));
        assert!(!retry.is_over(began + half));
        retry.heard();
        assert!(!retry.is_over(began + half));
        assert!(!retry.is_over(began + 2 * half));
        assert!(retry.is_over(began + 3 * half));
    }
}
