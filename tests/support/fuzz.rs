//! The checks of each fuzz target on one input. The fuzz targets use them, and so does the test
//! that replays the corpora. An input that breaks a rule causes a panic.

pub(crate) mod config;
pub(crate) mod event_id;
pub(crate) mod input;
pub(crate) mod rpc;
pub(crate) mod sse;
pub(crate) mod translate;

/// Marks a secret. No error text may contain it.
pub(crate) const SECRET: &str = "s3cr3t-M4rk";

/// The settings with which an input is read: the characters of the comment at the start of the
/// stream. So each input is a readable stream, and each capture is an input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dials<'a>(&'a [u8]);

// === impl Dials ===

impl<'a> Dials<'a> {
    pub(crate) fn of(stream: &'a [u8]) -> Self {
        let comment = stream.strip_prefix(b": ").unwrap_or_default();
        Self(comment.split(|byte| *byte == b'\n').next().unwrap_or_default())
    }

    /// One of `count` choices; 0 if the input does not say.
    pub(crate) fn choose(self, at: usize, count: usize) -> usize {
        let said = self.0.get(at).map_or(0, |byte| byte.wrapping_sub(b'0'));
        usize::from(said) % count
    }
}
