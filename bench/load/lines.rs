//! The lines of a stream whose bytes arrive in pieces.

use std::borrow::Cow;

use memchr::memchr;

/// Cuts a stream into its lines.
#[derive(Clone, Default)]
pub(crate) struct Lines {
    /// The beginning of a line whose end has not arrived.
    half: Vec<u8>,
}

impl Lines {
    /// Takes the next whole line out of `bytes`, with its line feed. Returns `None` once `bytes` has
    /// no end of a line, and keeps what is left for the next call.
    pub(crate) fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let Some(end) = memchr(b'\n', bytes) else {
            self.half.extend_from_slice(std::mem::take(bytes));
            return None;
        };
        let (line, rest) = bytes.split_at(end + 1);
        *bytes = rest;
        if self.half.is_empty() {
            return Some(line.into());
        }
        self.half.extend_from_slice(line);
        Some(std::mem::take(&mut self.half).into())
    }

    /// Whether no line has begun whose end has not arrived.
    pub(crate) fn is_empty(&self) -> bool {
        self.half.is_empty()
    }
}
