//! Assigns keys to the events of a run, and says which keys may still come.

use threadway_translate::langgraph::Cursor;

use crate::runs::event_id::{EventKey, Stage};

/// Makes the keys of a run's events, in their order.
///
/// Another reading of the run makes the same keys only if it has read the same parts, all of them,
/// and nothing else. A state that is read beside the parts differs each time, and so breaks the
/// sequence.
#[derive(Clone, Copy, Debug)]
pub(super) enum KeySequence {
    /// `n` events were made of the parts with this cursor. The digest is of all parts so far.
    Intact { cursor: Option<Cursor>, n: u32, digest: u32 },
    /// Events get no keys, or no keys any more.
    Broken,
}

/// How far the parts have come: decides whether an event with some key may still be made.
#[derive(Clone, Copy, Debug)]
pub(in crate::runs) enum Watermark {
    /// The run has no name yet.
    Unknown,
    /// The run's events get no keys.
    NoKeys,
    /// Parts up to this cursor have come, in this attempt.
    At { highest: Option<Cursor>, attempt: u32 },
}

// === impl KeySequence ===

impl KeySequence {
    /// The sequence of a run of which nothing was read.
    pub(super) fn new() -> Self {
        Self::Intact { cursor: None, n: 0, digest: 0 }
    }

    /// Replaces the initial digest. The seed differs between options that make different events.
    /// To be called before the first part.
    pub(super) fn reseed(&mut self, seed: u32) {
        if let Self::Intact { digest, .. } = self {
            *digest = seed;
        }
    }

    pub(super) fn is_intact(&self) -> bool {
        matches!(self, Self::Intact { .. })
    }

    /// The key of the run's start.
    pub(super) fn start(&self) -> Option<EventKey> {
        self.is_intact().then(|| EventKey::at(1, Stage::Start, 0))
    }

    /// The key of the `n`th event that closes what is still open at the run's end.
    pub(super) fn close(&self, attempt: u32, n: u32) -> Option<EventKey> {
        let Self::Intact { digest, .. } = self else { return None };
        Some(EventKey { check: check(*digest), ..EventKey::at(attempt, Stage::Close, n) })
    }

    /// Goes on to the next part. A part without a cursor breaks the sequence.
    pub(super) fn begin_part(&mut self, next: Option<Cursor>, part: u32) {
        *self = match *self {
            Self::Intact { cursor, n, digest } if next.is_some() => {
                let n = if cursor == next { n } else { 0 };
                let mut hasher = crc32fast::Hasher::new_with_initial(digest);
                hasher.update(&part.to_be_bytes());
                Self::Intact { cursor: next, n, digest: hasher.finalize() }
            }
            Self::Intact { .. } | Self::Broken => Self::Broken,
        };
    }

    /// The key of the part's next event.
    pub(super) fn next(&mut self, attempt: u32) -> Option<EventKey> {
        let Self::Intact { cursor: Some(cursor), n, digest } = self else { return None };
        let key = EventKey::at(attempt, Stage::Part(*cursor), *n);
        *n += 1;
        Some(EventKey { check: check(*digest), ..key })
    }
}

// === impl Watermark ===

impl Watermark {
    /// Whether an event with this key may still be made.
    pub(in crate::runs) fn may_still_come(self, key: EventKey) -> bool {
        let (highest, attempt) = match self {
            Self::Unknown => return true,
            Self::NoKeys => return false,
            Self::At { highest, attempt } => (highest, attempt),
        };
        let is_ahead = match key.stage {
            Stage::Part(cursor) => highest <= Some(cursor),
            Stage::Close | Stage::End => true,
            Stage::Start => false,
        };
        key.attempt == attempt && is_ahead
    }
}

fn check(digest: u32) -> u16 {
    let [.., high, low] = digest.to_be_bytes();
    u16::from_be_bytes([high, low])
}
