//! Random numbers. A simulated runtime of a test draws them from its seed.

use std::hash::{BuildHasher, RandomState};

use uuid::Uuid;

/// A random number.
pub(crate) fn number() -> u64 {
    #[cfg(test)]
    if let Some(number) = crate::sync::simulated::number() {
        return number;
    }
    // The hasher's keys are random.
    RandomState::new().hash_one(())
}

/// A random UUID.
pub(crate) fn uuid() -> Uuid {
    #[cfg(test)]
    if let Some(number) = crate::sync::simulated::number() {
        let half = u128::from(number);
        return uuid::Builder::from_random_bytes((half << 64 | half).to_be_bytes()).into_uuid();
    }
    Uuid::new_v4()
}
