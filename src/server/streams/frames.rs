//! The encoded events of a stream one by one, for a socket and for an array.
//!
//! Streams share the bytes of whole segments of a run, in which a separator follows each event.

use bytes::Bytes;
use http_body_util::BodyExt;
use memchr::memchr;

use super::body::RunBody;
use super::outgoing::SHARED_FROM;
use super::wire::SEPARATOR;
use crate::metrics::Full;
use crate::offload::offload;

/// The encoded events of a stream.
pub(in crate::server) struct EventFrames {
    body: RunBody,
    frames: Frames,
}

/// An encoded event, in parts. Large parts are not copied: other readers have them too.
#[derive(Debug, Default)]
pub(in crate::server) struct EncodedEvent(Vec<Bytes>);

/// Cuts a stream into its events, each of which ends with [`SEPARATOR`].
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The beginning of an event whose end has not arrived.
    partial: EncodedEvent,
}

// === impl EventFrames ===

impl EventFrames {
    pub(super) fn new(body: RunBody) -> Self {
        Self { body, frames: Frames::default() }
    }

    /// The next events that are ready. `None` at the end of the stream. Cancel safe.
    pub(in crate::server) async fn next(&mut self) -> Option<Result<Vec<EncodedEvent>, Full>> {
        let mut bytes = match self.body.frame().await? {
            Ok(frame) => frame.into_data().unwrap_or_default(),
            Err(full) => return Some(Err(full)),
        };
        let events =
            offload(bytes.len(), || std::iter::from_fn(|| self.frames.next(&mut bytes)).collect());
        Some(Ok(events))
    }
}

// === impl EncodedEvent ===

impl EncodedEvent {
    /// How many bytes it has.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    pub(super) fn into_parts(self) -> Vec<Bytes> {
        self.0
    }

    /// The whole event.
    pub(in crate::server) fn into_bytes(self) -> Bytes {
        match <[Bytes; 1]>::try_from(self.0) {
            Ok([only]) => only,
            Err(parts) => parts.concat().into(),
        }
    }

    /// Adds a part. Small parts are joined.
    fn add(&mut self, part: Bytes) {
        match self.0.last_mut() {
            Some(last) if last.len().max(part.len()) < SHARED_FROM => {
                *last = [&last[..], &part].concat().into();
            }
            _ if part.is_empty() => {}
            _ => self.0.push(part),
        }
    }
}

// === impl Frames ===

impl Frames {
    /// Takes the next whole event out of `bytes`, which may be cut anywhere. Returns `None` once
    /// `bytes` holds no end of an event, and keeps what is left for the next call.
    pub(super) fn next(&mut self, bytes: &mut Bytes) -> Option<EncodedEvent> {
        let Some(end) = memchr(SEPARATOR, bytes) else {
            self.partial.add(std::mem::take(bytes));
            return None;
        };
        self.partial.add(bytes.split_to(end));
        let _ = bytes.split_to(1);
        Some(std::mem::take(&mut self.partial))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_the_same_wherever_their_bytes_are_cut() {
        let bytes = b"{\"a\":\n1}\x1e{}\x1e[1,2]\x1e";
        for at in 0..bytes.len() {
            let (one, two) = bytes.split_at(at);
            let (mut frames, mut found) = (Frames::default(), Vec::new());
            for part in [one, two] {
                let mut part = Bytes::copy_from_slice(part);
                while let Some(frame) = frames.next(&mut part) {
                    found.push(frame.into_bytes());
                }
            }
            assert_eq!(found, [&b"{\"a\":\n1}"[..], b"{}", b"[1,2]"], "{at}");
        }
    }
}
