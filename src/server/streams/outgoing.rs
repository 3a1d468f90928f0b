//! Bytes that are ready to be sent, and large parts of events that several streams share.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use memchr::memchr2;

use super::unread::{TRACKED_FROM, UnreadAnswers};
use crate::metrics::Full;
use threadway_translate::agui::Event;

/// Parts of an event from this size in bytes are shared. A smaller part is copied, since the copy
/// costs no more than a frame of its own.
pub(super) const SHARED_FROM: usize = 16 * 1024;

/// The JSON before the state in its event.
const STATE_SNAPSHOT: &[u8] = br#"{"type":"STATE_SNAPSHOT","snapshot":"#;

/// Bytes that are ready to be sent, in order: those of one stream, and those that streams share.
#[derive(Debug, Default)]
pub struct Outgoing {
    pub(super) ready: VecDeque<Bytes>,
    own: Vec<u8>,
}

/// A place in [`Outgoing`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    parts: usize,
    own: usize,
}

/// A large part of an event. The streams that send it share its bytes.
pub(super) struct SharedPart {
    bytes: Bytes,
    /// The offset at which the part belongs in the rest of the event.
    at: usize,
}

/// Encoded bytes that are freed after the last stream has sent them.
struct Encoded(Arc<Vec<u8>>);

// === impl Outgoing ===

impl Outgoing {
    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.own.is_empty()
    }

    /// How many bytes are to be sent.
    pub(super) fn len(&self) -> usize {
        self.own.len() + self.ready.iter().map(Bytes::len).sum::<usize>()
    }

    pub(super) fn into_bytes(mut self) -> Bytes {
        match (self.ready.pop_front(), self.ready.is_empty() && self.own.is_empty()) {
            (None, _) => self.own.into(),
            (Some(only), true) => only,
            (Some(first), false) => {
                let mut all = first.to_vec();
                self.for_each(|bytes| all.extend_from_slice(&bytes));
                all.into()
            }
        }
    }

    /// The buffer for bytes that this stream alone sends.
    pub(crate) fn own(&mut self) -> &mut Vec<u8> {
        &mut self.own
    }

    /// How many bytes this stream alone has.
    pub(super) fn own_bytes(&self) -> usize {
        self.own.capacity()
    }

    /// The end of what is there.
    pub(super) fn mark(&self) -> Mark {
        Mark { parts: self.ready.len(), own: self.own.len() }
    }

    /// Removes what was appended after a mark.
    pub(super) fn truncate(&mut self, Mark { parts, own }: Mark) {
        if self.ready.len() > parts {
            // What was this stream's own at the mark is the beginning of the next part.
            self.own = self.ready.get(parts).map(|part| part.to_vec()).unwrap_or_default();
            self.ready.truncate(parts);
        }
        self.own.truncate(own);
    }

    pub(super) fn into_parts(mut self) -> VecDeque<Bytes> {
        self.cut();
        self.ready
    }

    /// Begins a new part: what is appended next is not sent together with what is there.
    pub(super) fn cut(&mut self) {
        self.share(Bytes::new());
    }

    /// Has the large parts count as unread answers. On an error nothing is left to send.
    pub(super) fn hold(&mut self, answers: &UnreadAnswers) -> Result<(), Full> {
        if self.own.len() >= TRACKED_FROM {
            self.cut();
        }
        for part in &mut self.ready {
            if part.len() >= TRACKED_FROM {
                match answers.hold(std::mem::take(part)) {
                    Ok(held) => *part = held,
                    Err(full) => {
                        *self = Self::default();
                        return Err(full);
                    }
                }
            }
        }
        Ok(())
    }

    /// Appends bytes: large ones are shared, small ones copied.
    pub(super) fn append(&mut self, bytes: Bytes) {
        if bytes.len() >= SHARED_FROM {
            self.share(bytes);
        } else {
            self.own.extend_from_slice(&bytes);
        }
    }

    /// Appends bytes that other streams send too.
    pub(crate) fn share(&mut self, bytes: Bytes) {
        if !self.own.is_empty() {
            self.ready.push_back(std::mem::take(&mut self.own).into());
        }
        if !bytes.is_empty() {
            self.ready.push_back(bytes);
        }
    }
}

impl Iterator for Outgoing {
    type Item = Bytes;

    /// The next bytes to send.
    fn next(&mut self) -> Option<Bytes> {
        if let Some(bytes) = self.ready.pop_front() {
            return Some(bytes);
        }
        (!self.own.is_empty()).then(|| std::mem::take(&mut self.own).into())
    }
}

// === impl SharedPart ===

impl SharedPart {
    /// Takes the shared part out of a large event, and writes the rest of the event to `rest`.
    /// Returns `None`, and writes nothing, if the event has no such part.
    pub(super) fn of(event: &Event<'_>, rest: &mut Vec<u8>) -> Option<Self> {
        if let Event::StateSnapshot { snapshot } = event
            && is_shareable(snapshot.get().as_bytes())
        {
            rest.extend_from_slice(STATE_SNAPSHOT);
            let (bytes, at) = (Bytes::from_owner((*snapshot).clone()), rest.len());
            rest.push(b'}');
            return Some(Self { bytes, at });
        }
        let Event::MessagesSnapshot { messages } = event else { return None };
        let (snapshot, form) = messages.shared()?;
        if snapshot.memory_bytes() < SHARED_FROM {
            return None;
        }
        let bytes = snapshot.written(form, || {
            let mut bytes = Vec::new();
            event.write(&mut bytes);
            bytes
        });
        is_shareable(&bytes).then(|| Self { bytes: Bytes::from_owner(Encoded(bytes)), at: 0 })
    }

    /// Appends the whole event: the part, at its place in `rest`.
    pub(super) fn put_between(self, rest: &[u8], out: &mut Outgoing) {
        let (before, after) = rest.split_at_checked(self.at).unwrap_or((rest, &[]));
        out.own.extend_from_slice(before);
        out.share(self.bytes);
        out.own.extend_from_slice(after);
    }
}

/// Whether bytes are large enough to share, and of one line: SSE frames each line separately.
fn is_shareable(bytes: &[u8]) -> bool {
    bytes.len() >= SHARED_FROM && memchr2(b'\n', b'\r', bytes).is_none()
}

impl AsRef<[u8]> for Encoded {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
