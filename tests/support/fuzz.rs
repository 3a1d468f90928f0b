//! What each fuzz target checks of one input. The targets and the test that replays their corpora
//! share it; an input that breaks a rule makes it panic.

pub(crate) mod config;
pub(crate) mod event_id;
pub(crate) mod input;
pub(crate) mod rpc;
pub(crate) mod sse;
pub(crate) mod translate;

/// Stands for a secret: it may stand in no error text.
pub(crate) const SECRET: &str = "s3cr3t-M4rk";

/// What an input says of how it is to be read: the characters of the comment that its stream
/// begins with. So an input is a stream that can be read and edited, and a capture is an input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dials<'a>(&'a [u8]);

// === impl Dials ===

impl<'a> Dials<'a> {
    pub(crate) fn of(stream: &'a [u8]) -> Self {
        let comment = stream.strip_prefix(b": ").unwrap_or_default();
        Self(comment.split(|byte| *byte == b'\n').next().unwrap_or_default())
    }

    /// One of `count` choices; the first where nothing is said.
    pub(crate) fn choose(self, at: usize, count: usize) -> usize {
        let said = self.0.get(at).map_or(0, |byte| byte.wrapping_sub(b'0'));
        usize::from(said) % count
    }
}
