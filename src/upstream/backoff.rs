//! Pauses between attempts.

use std::time::Duration;

use crate::random;

/// The pauses between one task's attempts: each is twice as long as the one before, up to the
/// longest.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    /// How many pauses were returned since the last reset.
    attempts: u32,
    /// `None` for pauses without jitter.
    seed: Option<Seed>,
}

/// Decides the jitter of pauses. Two machines with the same seed pause for the same times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seed(u64);

// === impl Backoff ===

impl Backoff {
    /// Jitter shortens each pause by up to half, so that not all waiting tasks try again at once.
    pub(crate) fn new(first: Duration, longest: Duration, seed: Seed) -> Self {
        Self { seed: Some(seed), ..Self::exact(first, longest) }
    }

    /// Without jitter, for attempts that no other task makes at the same time.
    pub(crate) fn exact(first: Duration, longest: Duration) -> Self {
        Self { first, longest, attempts: 0, seed: None }
    }

    /// How many pauses were returned since the last [`reset`](Self::reset).
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The pause before the next attempt.
    pub(crate) fn next_pause(&mut self) -> Duration {
        let whole = self.first.saturating_mul(1 << self.attempts.min(16)).min(self.longest);
        self.attempts = self.attempts.saturating_add(1);
        self.jitter(whole)
    }

    /// Shortens a duration as the pauses are shortened.
    pub(crate) fn jitter(&mut self, whole: Duration) -> Duration {
        self.seed.as_mut().map_or(whole, |seed| shortened(whole, seed.chance()))
    }

    /// The attempt was successful: the next pause is the first again.
    pub(crate) fn reset(&mut self) {
        self.attempts = 0;
    }
}

// === impl Seed ===

impl Seed {
    /// A seed for tests, whose pauses are always the same.
    #[cfg(test)]
    pub(crate) fn fixed() -> Self {
        Self(7)
    }

    /// A seed that no other task has.
    pub(crate) fn random() -> Self {
        Self(random::number())
    }

    /// A seed for another task of the same owner.
    pub(crate) fn split(&mut self) -> Self {
        Self(self.next())
    }

    fn chance(&mut self) -> u8 {
        let [chance, ..] = self.next().to_be_bytes();
        chance
    }

    /// The next number of the sequence `SplitMix64`.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

/// Shortens a pause by `chance` 512ths. Whole numbers are used because a float could round up beyond
/// the pause itself.
fn shortened(whole: Duration, chance: u8) -> Duration {
    whole.saturating_sub(whole / 512 * u32::from(chance))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

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
    fn pauses_double_up_to_the_longest_until_an_attempt_is_successful() {
        let mut pauses = Backoff::exact(SECOND, 6 * SECOND);
        let mut next = || pauses.next_pause().as_secs();
        assert_eq!([next(), next(), next(), next(), next()], [1, 2, 4, 6, 6]);
        assert_eq!(pauses.attempts(), 5);
        pauses.reset();
        assert_eq!((pauses.attempts(), pauses.next_pause()), (0, SECOND));
        pauses.attempts = u32::MAX;
        assert_eq!(pauses.next_pause(), 6 * SECOND);
    }

    #[test]
    fn the_seed_decides_the_jitter() {
        let pauses = |seed| {
            let mut pauses = Backoff::new(SECOND, SECOND, seed);
            (0..32).map(|_| pauses.next_pause()).collect::<Vec<_>>()
        };
        let mut seed = Seed::fixed();
        let fixed = pauses(seed);
        assert_eq!(pauses(seed), fixed);
        assert!(fixed.iter().all(|pause| (SECOND / 2..=SECOND).contains(pause)), "{fixed:?}");
        assert!(fixed.iter().any(|pause| *pause != fixed[0]), "{fixed:?}");
        assert_ne!(pauses(seed.split()), fixed);
        assert_ne!(pauses(Seed::random()), pauses(Seed::random()));
    }
}
