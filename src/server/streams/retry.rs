//! The `retry:` value of a stream: how long an `EventSource` waits before it reconnects. The more
//! streams a replica has, the longer.
//!
//! A gateway that is killed can send nothing more, and a client uses the last value that it got. So
//! each stream gets one at its beginning, and a new one when the wait has doubled or halved.

use std::time::Duration;

use crate::random;

/// How long an `EventSource` waits before it reconnects, if the replica has few streams.
pub const RETRY: Duration = Duration::from_secs(3);

/// How many clients return in a second, on average, after all streams of a replica were cut. A look
/// at a thread takes two requests or more, and one core of LangGraph answers some hundred.
const RECONNECTS_PER_SECOND: u32 = 75;

/// The longest time in which clients return. After it the gateway's own queue orders them.
const LONGEST_RETRY: Duration = Duration::from_mins(1);

/// The time in which the clients of a replica return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct RetryJitter(Duration);

// === impl RetryJitter ===

impl RetryJitter {
    /// The time for so many clients.
    pub(in crate::server) fn of(clients: u32) -> Self {
        let needed = Duration::from_secs(1) * clients / RECONNECTS_PER_SECOND;
        Self(needed.clamp(RETRY, LONGEST_RETRY))
    }

    /// One client's wait: at random between [`RETRY`] and the spread.
    pub(in crate::server) fn retry(self) -> Duration {
        let [high, low, ..] = random::number().to_be_bytes();
        self.retry_by(u16::from_be_bytes([high, low]))
    }

    fn retry_by(self, chance: u16) -> Duration {
        RETRY + self.0.saturating_sub(RETRY) / u32::from(u16::MAX) * u32::from(chance)
    }

    /// Whether clients with this spread should learn of the other one.
    pub(super) fn is_outdated_by(self, other: Self) -> bool {
        self.is_exceeded_by(other) || other.is_exceeded_by(self)
    }

    /// Whether the other spread is at least twice as long. While many streams end together, the
    /// spread of the remaining ones shrinks, but all these clients return.
    pub(super) fn is_exceeded_by(self, other: Self) -> bool {
        other.0 >= self.0 * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_clients_return_after_three_seconds_and_many_over_a_longer_time() {
        for clients in [0, 1, 225] {
            assert_eq!(RetryJitter::of(clients).retry(), RETRY, "{clients}");
        }
        for (clients, longest) in [(1_200, 16), (1_000_000, 60)] {
            let spread = RetryJitter::of(clients);
            assert_eq!(spread.retry_by(0), RETRY);
            let last = spread.retry_by(u16::MAX);
            let longest = Duration::from_secs(longest);
            assert!(last <= longest, "{last:?}");
            assert!(last + Duration::from_millis(1) > longest, "{last:?}");
            assert!((RETRY..=last).contains(&spread.retry()));
        }
    }

    #[test]
    fn a_spread_is_outdated_by_twice_or_half_the_clients() {
        let of = RetryJitter::of;
        assert!(of(1).is_outdated_by(of(450)) && of(1_200).is_outdated_by(of(600)));
        assert!(!of(1).is_outdated_by(of(225)) && !of(1_000).is_outdated_by(of(1_200)));
        assert!(of(1).is_exceeded_by(of(450)) && !of(1_200).is_exceeded_by(of(600)));
    }
}
