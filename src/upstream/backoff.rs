//! Pauses between attempts.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The pause after this many doublings, at most `longest`. Jitter shortens it by up to half, so that
/// not all waiting tasks try again at once.
pub(crate) fn doubled(first: Duration, doublings: u32, longest: Duration) -> Duration {
    let whole = first.saturating_mul(1 << doublings.min(16)).min(longest);
    // The hasher's keys are random.
    let [chance, ..] = RandomState::new().hash_one(doublings).to_be_bytes();
    shortened(whole, chance)
}

/// Shortens a pause by `chance` 512ths. Whole numbers are used because a float could round up beyond
/// the pause itself.
fn shortened(whole: Duration, chance: u8) -> Duration {
    whole.saturating_sub(whole / 512 * u32::from(chance))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_chance_a_pause_is_at_least_half_and_at_most_the_whole() {
        for whole in [200, 400, 800, 1600, 3200, 5000].map(Duration::from_millis) {
            let pauses: Vec<_> = (0..=u8::MAX).map(|chance| shortened(whole, chance)).collect();
            assert_eq!(pauses[0], whole);
            assert!(pauses.is_sorted_by(|longer, shorter| longer > shorter), "{pauses:?}");
            assert!(pauses[255] > whole / 2, "{pauses:?}");
        }
    }
}
