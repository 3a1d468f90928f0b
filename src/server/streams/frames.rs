//! The events of a stream one by one, as a socket sends them.
//!
//! Streams share the bytes of whole segments of a run, in which a separator follows each event.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use memchr::memchr;

use super::body::RunBody;
use super::wire::SEPARATOR;
use crate::metrics::Full;

/// The encoded events of a stream.
pub(in crate::server) struct EventFrames {
    body: RunBody,
    frames: Frames,
}

/// Assembles the frames of a stream, each of which ends with [`SEPARATOR`].
#[derive(Debug, Default)]
struct Frames {
    /// The beginning of a frame whose end has not arrived.
    partial: BytesMut,
}

// === impl EventFrames ===

impl EventFrames {
    pub(super) fn new(body: RunBody) -> Self {
        Self { body, frames: Frames::default() }
    }

    /// The next events that are ready, each encoded. `None` at the end of the stream. Cancel safe.
    pub(in crate::server) async fn next(&mut self) -> Option<Result<Vec<Bytes>, Full>> {
        let mut bytes = match self.body.frame().await? {
            Ok(frame) => frame.into_data().unwrap_or_default(),
            Err(full) => return Some(Err(full)),
        };
        Some(Ok(std::iter::from_fn(|| self.frames.next(&mut bytes)).collect()))
    }
}

// === impl Frames ===

impl Frames {
    /// Takes the next whole frame out of `bytes`, which may be cut anywhere. Returns `None` once
    /// `bytes` holds no end of a frame, and keeps what is left for the next call.
    fn next(&mut self, bytes: &mut Bytes) -> Option<Bytes> {
        let Some(end) = memchr(SEPARATOR, bytes) else {
            self.partial.extend_from_slice(bytes);
            bytes.clear();
            return None;
        };
        let frame = bytes.split_to(end);
        let _ = bytes.split_to(1);
        if self.partial.is_empty() {
            return Some(frame);
        }
        let mut whole = std::mem::take(&mut self.partial);
        whole.extend_from_slice(&frame);
        Some(whole.freeze())
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
                    found.push(frame);
                }
            }
            assert_eq!(found, [&b"{\"a\":\n1}"[..], b"{}", b"[1,2]"], "{at}");
        }
    }
}
