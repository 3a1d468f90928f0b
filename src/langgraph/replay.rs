//! Which frames of a joined stream repeat what the replay has brought already.
//!
//! Asked to replay, the Python server sends what it has stored, then one block of repeats, since it
//! listens before it reads its store, then what is new (langgraph-api 0.16.7). Ids are times in
//! milliseconds, and several frames may have one: "drop what is lower than the highest id seen, and
//! of those equal to it, once the order has stepped back, as many byte-equal parts as were already
//! seen". First occurrences are always in order. The JavaScript server repeats nothing.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::sse::Frame;

/// Tells the repeats from what is new.
#[derive(Debug, Default)]
pub struct Replay {
    highest: Option<Cursor>,
    /// The frames that have the highest id.
    at_highest: Vec<u64>,
    block: Block,
}

/// Where the stream stands to the block of repeats, of which there is one at most.
#[derive(Debug, Default)]
enum Block {
    /// It may come.
    #[default]
    Before,
    /// It is there. Of the frames with the highest id these are still to come again.
    Inside(Vec<u64>),
    /// It was there.
    Behind,
}

/// What a frame of a joined stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Novelty {
    /// It comes for the first time.
    New,
    /// It came before.
    Repeat,
    /// It equals the one right before it, id included: a true pair of one millisecond, or a block
    /// of repeats that is a single frame. If more comes right behind it, it was a pair.
    Doubtful,
}

/// `<milliseconds>-<count>`, or a plain count.
type Cursor = (u64, u64);

// === impl Replay ===

impl Replay {
    /// Takes the next frame in. A frame without an id that can be ordered is new.
    pub fn novelty(&mut self, frame: &Frame<'_>) -> Novelty {
        let Some(cursor) = frame.id.as_deref().and_then(cursor) else { return Novelty::New };
        if self.highest > Some(cursor) {
            if matches!(self.block, Block::Before) {
                self.block = Block::Inside(self.at_highest.clone());
            }
            return Novelty::Repeat;
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
        match &mut self.block {
            Block::Inside(awaited) => {
                if let Some(at) = awaited.iter().position(|other| *other == digest) {
                    awaited.swap_remove(at);
                    return Novelty::Repeat;
                }
            }
            Block::Before if is_pair => {
                self.at_highest.push(digest);
                return Novelty::Doubtful;
            }
            Block::Before | Block::Behind => {}
        }
        self.at_highest.push(digest);
        Novelty::New
    }

    /// A doubtful frame was the block.
    pub fn was_repeat(&mut self) {
        self.block = Block::Behind;
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

    /// What becomes of frames, each an id and its data.
    fn novelties(frames: &[(&str, &str)]) -> String {
        let mut replay = Replay::default();
        let told = frames.iter().map(|(id, data)| {
            let frame = Frame {
                event: Some("custom".into()),
                id: Some((*id).into()),
                data: Some((*data).into()),
                retry: None,
            };
            match replay.novelty(&frame) {
                Novelty::New => 'n',
                Novelty::Repeat => 'r',
                Novelty::Doubtful => 'd',
            }
        });
        told.collect()
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
        assert_eq!(novelties(&frames), "nnnnnrrrnn");
    }

    #[test]
    fn equal_tokens_of_one_millisecond_are_real_elsewhere() {
        assert_eq!(novelties(&[("7-0", "a"), ("7-0", "b"), ("7-0", "a"), ("8-0", "a")]), "nnnn");
        assert_eq!(novelties(&[("7-0", "a"), ("7-0", "a"), ("8-0", "a")]), "ndn");
    }

    #[test]
    fn there_is_one_block_of_repeats_and_no_doubt_behind_it() {
        let frames =
            [("7-0", "a"), ("8-0", "b"), ("7-0", "a"), ("8-0", "b"), ("9-0", "c"), ("9-0", "c")];
        assert_eq!(novelties(&frames), "nnrrnn");
    }

    #[test]
    fn the_ids_of_the_javascript_server_are_counted() {
        assert_eq!(novelties(&[("9", "a"), ("10", "a"), ("11", "a")]), "nnn");
        assert_eq!(novelties(&[("x", "a"), ("x", "a"), ("", "a")]), "nnn");
    }
}
