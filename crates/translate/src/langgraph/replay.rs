//! Which frames of a joined stream repeat what was seen already, on this connection or on one
//! before it; and behind which id the next connection is to begin.
//!
//! Asked to replay, the Python server sends what it has stored, then one block of repeats, since it
//! listens before it reads its store, then what is new (langgraph-api 0.16.7). Ids are times in
//! milliseconds, and several frames may have one. Frames with an id below the highest one seen are
//! dropped. Once the order has stepped back, as many frames with the highest id are dropped as were
//! seen with the same bytes. First occurrences are always in order. The JavaScript server repeats
//! nothing, and counts.
//!
//! ```text
//!   a connection:   what was seen before | what is new in the store | repeats | what is live
//!                                        ^ the seam
//! ```
//! A connection after the first begins below the last id that was seen, so that the frames under
//! that id come again: that they do shows that nothing is missing, and that they are the same shows
//! that it is still the same attempt.

use super::Cursor;

/// Ids above this are times: the year 2001, in milliseconds.
const FIRST_TIME: u64 = 1_000_000_000_000;

/// For how long after the server's answer the block of repeats may still come. It was published
/// while the server read its store, which takes it milliseconds; a busy one needs a second.
const BLOCK_WINDOW_MS: u64 = 5_000;

/// How often the store is asked whether a frame is a repeat. Some streams have equal frames within
/// a millisecond all the time: then it is better to lose one, which the next committed state
/// brings back, than to join for ever.
const MAX_DOUBTS: u32 = 32;

/// Tells the repeats from what is new.
#[derive(Debug)]
pub struct Replay {
    /// What earlier connections have brought.
    known: Known,
    /// Behind which id this one was asked for.
    asked: Option<Cursor>,
    /// What it has brought.
    here: Seen,
    /// When the stream was joined, in milliseconds of the server's clock, to the second.
    joined_at: Option<u64>,
    block: Block,
    doubts: u32,
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Novelty {
    /// It comes for the first time.
    New,
    /// It came before.
    Repeat,
    /// It may be either: only the store can tell, on a new connection.
    Doubtful,
    /// It comes for the first time, and what came right before it, on an earlier connection,
    /// should have come again and did not: something may be missing between them.
    AfterGap,
    /// It has the id of something else: the run has begun again, and so has the count.
    OfAnotherAttempt,
}

/// The end of what was seen.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// The highest id.
    highest: Option<Cursor>,
    /// The digests of the frames that have it, in order.
    frames: Vec<u32>,
    /// The highest id below that one, from which the next connection begins.
    below: Option<Cursor>,
}

/// What earlier connections have brought, as it is met again on this one.
#[derive(Clone, Debug)]
enum Known {
    /// Nothing, or all of it was met.
    Settled {
        /// The highest id that came before this connection: under it nothing is a repeat any more,
        /// but for the frames that were met.
        highest: Option<Cursor>,
    },
    /// Of these frames so many were met.
    Awaited { seen: Seen, met: usize },
    /// Frames without ids, which nobody can ask for.
    Uncounted,
}

/// Where the stream stands to the block of repeats, of which there is one at most.
#[derive(Debug)]
enum Block {
    /// None comes: this is the response that started the run.
    Never,
    /// It may come.
    Before {
        /// Whether a single frame was taken for it.
        is_guessed: bool,
    },
    /// It is there. Of the frames with the highest id these are still to come again.
    Inside(Vec<u32>),
    /// It was there.
    Behind,
}

// === impl Replay ===

impl Replay {
    /// For the response that started the run.
    pub fn started() -> Self {
        Self {
            known: Known::Settled { highest: None },
            asked: None,
            here: Seen::default(),
            joined_at: None,
            block: Block::Never,
            doubts: 0,
        }
    }

    /// For a stream that is joined from its beginning.
    pub fn joined() -> Self {
        Self { block: Block::Before { is_guessed: false }, ..Self::started() }
    }

    /// The connection answered then, by the server's clock.
    pub fn answered_at(&mut self, time: Option<u64>) {
        self.joined_at = time;
    }

    /// Begins a new connection; behind which id it is to be asked for, if not from the beginning.
    ///
    /// `has_parts` tells whether anything has come so far.
    pub fn rejoin(&mut self, has_parts: bool) -> Option<Cursor> {
        let here = std::mem::take(&mut self.here);
        if let Known::Settled { .. } = self.known {
            self.known = match here.highest {
                Some(_) => Known::Awaited { seen: here, met: 0 },
                None if has_parts => Known::Uncounted,
                None => Known::Settled { highest: None },
            };
        }
        if let Known::Awaited { seen, met } = &mut self.known {
            *met = 0;
            self.here.below = seen.below;
        }
        self.block = Block::Before { is_guessed: false };
        self.joined_at = None;
        self.asked = self.here.below;
        self.asked
    }

    /// Forgets all ids: the server has begun to count anew.
    pub fn forget(&mut self) {
        *self = Self { doubts: self.doubts, ..Self::joined() };
    }

    /// Takes the next frame in, of which this is the digest.
    pub fn take(&mut self, cursor: Option<Cursor>, digest: u32) -> Novelty {
        let novelty = match cursor {
            Some(cursor) => self.take_numbered(cursor, digest),
            None => Novelty::New,
        };
        if novelty == Novelty::New && !self.is_settled() {
            self.settle();
            return Novelty::AfterGap;
        }
        novelty
    }

    fn take_numbered(&mut self, cursor: Cursor, digest: u32) -> Novelty {
        // A server sends nothing up to the id that it is asked behind.
        if self.asked >= Some(cursor) {
            return Novelty::OfAnotherAttempt;
        }
        let here = self.take_here(cursor, digest);
        if here != Novelty::New {
            return here;
        }
        let Known::Awaited { seen, met } = &mut self.known else { return Novelty::New };
        if seen.highest > Some(cursor) {
            return Novelty::Repeat;
        }
        if seen.highest < Some(cursor) {
            return Novelty::New;
        }
        if seen.frames.get(*met) != Some(&digest) {
            return Novelty::OfAnotherAttempt;
        }
        *met += 1;
        if *met == seen.frames.len() {
            self.settle();
        }
        Novelty::Repeat
    }

    /// What the frame is on this connection alone.
    fn take_here(&mut self, cursor: Cursor, digest: u32) -> Novelty {
        if self.here.highest > Some(cursor) {
            match self.block {
                // The server's clock was set back.
                Block::Never => return Novelty::New,
                Block::Before { .. } => self.block = Block::Inside(self.here.frames.clone()),
                Block::Inside(_) | Block::Behind => {}
            }
            return Novelty::Repeat;
        }
        if self.here.highest < Some(cursor) {
            self.here.begin(cursor);
            if let Block::Inside(_) = self.block {
                self.block = Block::Behind;
            }
        }
        let may_be_repeated = self.may_be_repeated(cursor);
        match &mut self.block {
            Block::Inside(awaited) => {
                if let Some(at) = awaited.iter().position(|other| *other == digest) {
                    awaited.swap_remove(at);
                    return Novelty::Repeat;
                }
            }
            // A block whose frames all have the highest id makes no step back, and looks like
            // equal frames of one millisecond.
            // There may be thousands with one id: they are searched only where it matters.
            Block::Before { is_guessed }
                if may_be_repeated && !*is_guessed && self.here.frames.contains(&digest) =>
            {
                if self.doubts < MAX_DOUBTS {
                    self.doubts += 1;
                    return Novelty::Doubtful;
                }
                *is_guessed = true;
                return Novelty::Repeat;
            }
            Block::Never | Block::Before { .. } | Block::Behind => {}
        }
        self.here.frames.push(digest);
        Novelty::New
    }

    /// Whether a frame with this id may be in the block: it was published around the join. What
    /// an earlier connection has brought was published before.
    fn may_be_repeated(&self, cursor: Cursor) -> bool {
        let before = self.known.highest();
        let is_around = |at: u64| (at..at + BLOCK_WINDOW_MS).contains(&cursor.number());
        before < Some(cursor) && self.joined_at.is_none_or(is_around)
    }

    /// Whether nothing is missing between this connection and the ones before it.
    pub fn is_settled(&self) -> bool {
        matches!(self.known, Known::Settled { .. })
    }

    /// The highest id that has come.
    pub fn highest(&self) -> Option<Cursor> {
        self.known.highest().max(self.here.highest)
    }

    fn settle(&mut self) {
        self.known = Known::Settled { highest: self.known.highest() };
    }

    /// Whether the history is over: what comes now came after the join. Not known of a server that
    /// counts, or whose clock is not.
    pub fn is_over(&self) -> Option<bool> {
        let time = self.here.highest?.number();
        let joined_at = self.joined_at.filter(|_| time > FIRST_TIME)?;
        Some(time >= joined_at || !matches!(self.block, Block::Before { .. }))
    }
}

// === impl Known ===

impl Known {
    fn highest(&self) -> Option<Cursor> {
        match self {
            Self::Settled { highest } => *highest,
            Self::Awaited { seen, .. } => seen.highest,
            Self::Uncounted => None,
        }
    }
}

// === impl Seen ===

impl Seen {
    /// A higher id comes.
    fn begin(&mut self, cursor: Cursor) {
        if let Some(highest) = self.highest {
            self.below = Some(highest);
        }
        self.highest = Some(cursor);
        self.frames.clear();
    }
}

#[cfg(test)]
mod tests;
