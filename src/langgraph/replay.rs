//! Which frames of a joined stream repeat what the replay has brought already, and where it ends.
//!
//! Asked to replay, the Python server sends what it has stored, then one block of repeats, since it
//! listens before it reads its store, then what is new (langgraph-api 0.16.7). Ids are times in
//! milliseconds, and several frames may have one: "drop what is lower than the highest id seen, and
//! of those equal to it, once the order has stepped back, as many byte-equal parts as were already
//! seen". First occurrences are always in order. The JavaScript server repeats nothing, and counts.
//!
//! What was published after the join, or in the second of it, is not history any more; and only
//! that can be repeated.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::sse::Frame;

/// Ids above this are times: the year 2001, in milliseconds.
const FIRST_TIME: u64 = 1_000_000_000_000;

/// Tells the repeats from what is new.
#[derive(Debug)]
pub struct Replay {
    /// When the stream was joined, in milliseconds of the server's clock, to the second.
    joined_at: Option<u64>,
    highest: Option<Cursor>,
    /// The frames that have the highest id.
    at_highest: Vec<u64>,
    block: Block,
}

/// Where the stream stands to the block of repeats, of which there is one at most.
#[derive(Debug)]
enum Block {
    /// It may come.
    Before {
        /// Whether a single frame was taken for it.
        is_guessed: bool,
    },
    /// It is there. Of the frames with the highest id these are still to come again.
    Inside(Vec<u64>),
    /// It was there.
    Behind,
}

/// `<milliseconds>-<count>`, or a plain count.
type Cursor = (u64, u64);

// === impl Replay ===

impl Replay {
    /// For a stream that was joined then, by the clock of the server that answered.
    pub fn new(joined_at: Option<u64>) -> Self {
        Self {
            joined_at,
            highest: None,
            at_highest: Vec::new(),
            block: Block::Before { is_guessed: false },
        }
    }

    /// Takes the next frame in; whether it comes for the first time. A frame without an id that can
    /// be ordered does.
    ///
    /// A block that is a single frame makes no step back, and looks like two equal frames of one
    /// millisecond: "in doubt lose rather than double", once, and only around the join.
    pub fn is_new(&mut self, frame: &Frame<'_>) -> bool {
        let Some(cursor) = frame.id.as_deref().and_then(cursor) else { return true };
        if self.highest > Some(cursor) {
            if matches!(self.block, Block::Before { .. }) {
                self.block = Block::Inside(self.at_highest.clone());
            }
            return false;
        }
        let digest = digest(frame);
        if self.highest < Some(cursor) {
            self.highest = Some(cursor);
            self.at_highest.clear();
            if matches!(self.block, Block::Inside(_)) {
                self.block = Block::Behind;
            }
        }
        let is_pair = self.at_highest.last() == Some(&digest);
        let is_history = self.joined_at.is_some_and(|joined_at| cursor.0 < joined_at);
        match &mut self.block {
            Block::Inside(awaited) => {
                if let Some(at) = awaited.iter().position(|other| *other == digest) {
                    awaited.swap_remove(at);
                    return false;
                }
            }
            Block::Before { is_guessed } if is_pair && !is_history && !*is_guessed => {
                *is_guessed = true;
                self.at_highest.push(digest);
                return false;
            }
            Block::Before { .. } | Block::Behind => {}
        }
        self.at_highest.push(digest);
        true
    }

    /// Whether the history is over: what comes now came after the join. Not known of a server that
    /// counts, or whose clock is not.
    pub fn is_over(&self) -> Option<bool> {
        let (time, _) = self.highest?;
        let joined_at = self.joined_at.filter(|_| time > FIRST_TIME)?;
        Some(time >= joined_at || !matches!(self.block, Block::Before { .. }))
    }
}

fn cursor(id: &str) -> Option<Cursor> {
    let (time, count) = id.split_once('-').unwrap_or((id, "0"));
    Some((time.parse().ok()?, count.parse().ok()?))
}

fn digest(frame: &Frame<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&frame.event, &frame.data).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_new(replay: &mut Replay, (id, data): (&str, &str)) -> bool {
        replay.is_new(&Frame {
            event: Some("custom".into()),
            id: Some(id.into()),
            data: Some(data.into()),
            retry: None,
        })
    }

    /// Which of these frames are new, each an id and its data: `n`, or `r` for a repeat.
    fn novelties(joined_at: Option<u64>, frames: &[(&str, &str)]) -> String {
        let mut replay = Replay::new(joined_at);
        frames.iter().map(|frame| if is_new(&mut replay, *frame) { 'n' } else { 'r' }).collect()
    }

    #[test]
    fn the_block_of_repeats_begins_where_the_ids_step_back() {
        let frames = [
            ("7-0", "a"),
            ("8-0", "b"),
            ("8-0", "c"),
            ("9-0", "d"),
            ("9-0", "e"),
            // The block: it steps back, and comes up to the highest again.
            ("8-0", "c"),
            ("9-0", "d"),
            ("9-0", "e"),
            // A third of the same millisecond, then what is new.
            ("9-0", "d"),
            ("10-0", "f"),
        ];
        assert_eq!(novelties(Some(8), &frames), "nnnnnrrrnn");
        assert_eq!(novelties(None, &frames), "nnnnnrrrnn");
    }

    #[test]
    fn a_block_of_one_frame_is_dropped_once_and_only_around_the_join() {
        let frames = [("7-0", "a"), ("7-0", "a"), ("9-0", "b"), ("9-0", "b"), ("9-0", "b")];
        assert_eq!(novelties(Some(8), &frames), "nnnrn");
        assert_eq!(novelties(None, &frames), "nrnnn");
        let behind =
            [("7-0", "a"), ("9-0", "b"), ("7-0", "a"), ("9-0", "b"), ("10-0", "c"), ("10-0", "c")];
        assert_eq!(novelties(Some(8), &behind), "nnrrnn");
        assert_eq!(novelties(Some(8), &[("9-0", "a"), ("9-0", "b"), ("9-0", "a")]), "nnn");
    }

    #[test]
    fn a_pair_that_was_taken_for_the_block_does_not_hide_the_block() {
        let frames = [("8-0", "v"), ("9-0", "x"), ("9-0", "x"), ("9-0", "y")];
        let block = [("8-0", "v"), ("9-0", "x"), ("9-0", "x"), ("9-0", "y"), ("10-0", "z")];
        assert_eq!(novelties(Some(8), &[&frames[..], &block[..]].concat()), "nnrnrrrrn");
    }

    #[test]
    fn the_ids_of_the_javascript_server_are_counted() {
        let mut replay = Replay::new(Some(1_795_338_987_000));
        for frame in [("9", "a"), ("10", "a"), ("11", "a"), ("x", "a"), ("x", "a"), ("", "a")] {
            assert!(is_new(&mut replay, frame), "{frame:?}");
        }
        assert_eq!(replay.is_over(), None);
    }

    #[test]
    fn the_history_is_over_with_what_came_after_the_join() {
        let mut replay = Replay::new(Some(1_795_338_987_000));
        assert_eq!(replay.is_over(), None);
        for (id, is_over) in [("1795338980000-0", false), ("1795338987149-0", true)] {
            is_new(&mut replay, (id, "a"));
            assert_eq!(replay.is_over(), Some(is_over), "{id}");
        }
        // Or with the block of repeats, where the clocks differ.
        let mut replay = Replay::new(Some(1_795_338_999_000));
        for (id, is_over) in
            [("1795338980000-0", false), ("1795338981000-0", false), ("1795338980000-0", true)]
        {
            is_new(&mut replay, (id, "a"));
            assert_eq!(replay.is_over(), Some(is_over), "{id}");
        }
    }
}
