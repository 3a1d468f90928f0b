//! The large parts of answers, from when they are made until their readers have taken them.
//!
//! Equal parts exist once: all readers of a thread hold the same bytes, whenever they ask and
//! whoever encoded them. A part is charged to the caller that asked first. Smaller parts are not
//! kept track of, since a connection's own buffers are as large.
//!
//! ```text
//!   encoder --> part of 64 KiB or more --> Unread --> the same bytes, if a reader has them
//!                                            |   \-> or these, charged until the last reader
//!                                            |       has taken them
//!                                            \-----> no room: 503, or the stream is cut
//! ```

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Weak};

use bytes::Bytes;

use crate::metrics::{Charge, ChargedTo, Full, Held, Memory};
use crate::sync::Mutex;

/// The least bytes of a part that is kept track of.
pub(in crate::server) const TRACKED_FROM: usize = 64 * 1024;

/// Parts are looked up by a digest of their length and of this many pieces.
const SAMPLES: usize = 64;

/// The length of such a piece.
const SAMPLE_BYTES: usize = 64;

/// The parts that readers have yet to take. Clones share them.
#[derive(Clone)]
pub(in crate::server) struct UnreadParts(Arc<Parts>);

struct Parts {
    memory: Memory,
    hasher: RandomState,
    /// By digest. Of two parts with the same digest, the newer one is found.
    known: Mutex<HashMap<u64, Weak<Part>>>,
}

/// A part that readers share.
struct Part {
    bytes: Bytes,
    digest: u64,
    parts: Arc<Parts>,
    _charge: Charge,
}

/// A part as a reader holds it.
struct Taken(Arc<Part>);

/// One caller's unread answers.
#[derive(Clone, Debug)]
pub(in crate::server) struct UnreadAnswers {
    unread: UnreadParts,
    holder: ChargedTo,
}

// === impl UnreadParts ===

impl UnreadParts {
    pub(in crate::server) fn new(memory: Memory) -> Self {
        let (hasher, known) = (RandomState::new(), Mutex::default());
        Self(Arc::new(Parts { memory, hasher, known }))
    }

    pub(in crate::server) fn of(&self, holder: ChargedTo) -> UnreadAnswers {
        UnreadAnswers { unread: self.clone(), holder }
    }
}

impl fmt::Debug for UnreadParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unread")
    }
}

// === impl Parts ===

impl Parts {
    fn digest(&self, bytes: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_usize(bytes.len());
        let step = (bytes.len() / SAMPLES).max(1);
        for sample in bytes.chunks(step) {
            hasher.write(sample.get(..SAMPLE_BYTES).unwrap_or(sample));
        }
        // The newest messages are at the end.
        hasher.write(bytes.get(bytes.len().saturating_sub(step)..).unwrap_or_default());
        hasher.finish()
    }
}

// === impl UnreadAnswers ===

impl UnreadAnswers {
    /// The bytes as a reader is to hold them. Fails if there is no room for them.
    pub(in crate::server) fn hold(&self, bytes: Bytes) -> Result<Bytes, Full> {
        if bytes.len() < TRACKED_FROM {
            return Ok(bytes);
        }
        let parts = &self.unread.0;
        let digest = parts.digest(&bytes);
        let known = parts.known.lock().get(&digest).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| is_same(&known.bytes, &bytes)) {
            return Ok(Bytes::from_owner(Taken(known)));
        }
        let mut charge = self.charge();
        charge.set(bytes.len())?;
        let part = Arc::new(Part { bytes, digest, parts: Arc::clone(parts), _charge: charge });
        parts.known.lock().insert(digest, Arc::downgrade(&part));
        Ok(Bytes::from_owner(Taken(part)))
    }

    /// A charge for this caller's answers, of no bytes yet.
    pub(in crate::server) fn charge(&self) -> Charge {
        self.unread.0.memory.charge(Held::Answer, self.holder)
    }
}

fn is_same(a: &Bytes, b: &Bytes) -> bool {
    (a.as_ptr() == b.as_ptr() && a.len() == b.len()) || a == b
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut known = self.parts.known.lock();
        // A newer part may have the same digest.
        if known.get(&self.digest).is_some_and(|part| std::ptr::eq(part.as_ptr(), self)) {
            known.remove(&self.digest);
        }
    }
}

impl AsRef<[u8]> for Taken {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    const MB: usize = 1024 * 1024;

    fn held(unread: &UnreadParts) -> usize {
        unread.0.memory.held()
    }

    #[test]
    fn equal_parts_are_held_once_until_the_last_reader_has_taken_them() {
        let unread = UnreadParts::new(Metrics::default().memory().clone());
        let (one, two) = (unread.of(ChargedTo::Caller(1)), unread.of(ChargedTo::Caller(2)));
        let hold = |answers: &UnreadAnswers, byte: u8| answers.hold(vec![byte; MB].into()).unwrap();
        let (first, second) = (hold(&one, b'a'), hold(&two, b'a'));
        assert_eq!((first.as_ptr(), held(&unread)), (second.as_ptr(), MB));
        let other = hold(&two, b'b');
        assert_eq!((&other[..2], held(&unread)), (&b"bb"[..], 2 * MB));
        drop((first, other));
        assert_eq!(held(&unread), MB);
        drop(second);
        assert_eq!((held(&unread), unread.0.known.lock().len()), (0, 0));
    }

    #[test]
    fn parts_that_differ_anywhere_are_two() {
        let unread = UnreadParts::new(Metrics::default().memory().clone());
        let answers = unread.of(ChargedTo::Caller(1));
        let plain = answers.hold(vec![b'a'; MB].into()).unwrap();
        for at in [0, 70, MB / 2 + 7, MB - 1] {
            let mut bytes = vec![b'a'; MB];
            bytes[at] = b'b';
            assert_eq!(answers.hold(bytes.clone().into()).unwrap(), bytes);
        }
        assert_eq!(plain, vec![b'a'; MB]);
    }

    #[test]
    fn a_reader_without_room_holds_nothing() {
        let unread = UnreadParts::new(Metrics::default().memory().clone());
        let answers = unread.of(ChargedTo::Stranger);
        let parts: Vec<_> = (0..)
            .map(|byte| answers.hold(vec![byte; 4 * MB].into()))
            .map_while(Result::ok)
            .collect();
        assert_eq!((parts.len(), held(&unread)), (3, 12 * MB));
        assert!(answers.hold(vec![9; TRACKED_FROM - 1].into()).is_ok());
    }
}
