//! Finds the frames of a joined stream that the gateway has seen before, and the id from which the
//! next connection starts.
//!
//! A replay of the Python server has three parts (langgraph-api 0.16.7): stored frames, then one
//! block of repeats, then new frames. The repeats exist because the server starts to listen before
//! it reads its store. Its ids are times in milliseconds, and several frames may have one id. First
//! occurrences are always in order. So a frame below the highest id is a repeat. After the order
//! has stepped back, the frames with the highest id are compared by their bytes. The JavaScript
//! server repeats nothing, and its ids are a count.
//!
//! ```text
//!   a connection:   seen before | new in the store | repeats | live
//!                               ^ the seam
//! ```
//! A later connection starts below the last id, so that the frames with that id come again. If they
//! come, nothing is missing. If they are the same, it is still the same attempt at the run.
//!
//! aegra (0.11.0) reads its store first and starts to listen then, so a joined stream may lack the
//! frames between the two. Its ids are a count in steps of 1, or of 2 with Redis. After a longer
//! step a new connection brings the missing frames from the store. A frame that it cannot count, since
//! Redis is away, has a time instead. It compares that time with its counts from then on, and takes
//! all later frames for older ones: none of them comes.

use super::Cursor;
use super::cursor::IdForm;
use crate::sse::Frame;

/// How long after the server's answer the repeats may start. They were published while the server
/// read its store. That takes milliseconds, and up to a second on a busy server.
const BLOCK_WINDOW_MS: u64 = 5_000;

/// How often a doubtful frame leads to a new connection. Some streams always have equal frames
/// within one millisecond. Losing one is then better than reconnecting for ever: the next committed
/// state contains it.
const MAX_DOUBTS: u32 = 32;

/// The longest step between two ids of a server that counts its frames. aegra counts each frame
/// twice if it stores frames in Redis.
const LONGEST_STEP: u64 = 2;

/// Tells repeated frames from new ones.
#[derive(Debug)]
pub struct Replay {
    /// The frames of earlier connections.
    known: Earlier,
    /// The id that this connection was asked to start after.
    asked: Option<Cursor>,
    /// The frames of this connection.
    here: LastFrames,
    /// When the stream was joined, by the server's clock: milliseconds, rounded to a second.
    joined_at: Option<u64>,
    block: RepeatBlock,
    doubts: u32,
    /// The steps of a server that counts its frames. `None` for other servers.
    steps: Option<Steps>,
    /// How the server writes its ids, by the last that came.
    id_form: IdForm,
}

/// A frame, as far as its stream shows whether it is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Whether the frame is new.
    pub novelty: Novelty,
    /// Its place in the order of frames. `None` for a frame that takes no part in the order.
    pub cursor: Option<Cursor>,
    /// 32 bits of the content of a frame with a cursor: enough to distinguish the few frames of one
    /// millisecond.
    pub digest: u32,
}

/// Which frames of a count have come on a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Steps {
    /// The number of the last frame. `None` if the connection begins anywhere.
    last: Option<u64>,
    /// The frame after which frames were missing on an earlier connection.
    missing_after: Option<u64>,
}

/// Whether a frame is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Novelty {
    /// A new frame.
    New,
    /// A frame that was seen before.
    Repeat,
    /// A new frame or a repeat. Only the store can tell, on a new connection.
    Doubtful,
    /// A new frame, but the frames of an earlier connection that should precede it did not come.
    /// Frames may be missing.
    AfterGap,
    /// The frame has the id of a different frame. The run, and its count, have started again.
    OfAnotherAttempt,
    /// A new frame, after which no connection brings another one.
    Last {
        /// Whether frames may be missing before it too.
        is_after_gap: bool,
    },
}

/// The newest frames of a connection.
#[derive(Clone, Debug, Default)]
struct LastFrames {
    /// The highest id.
    highest: Option<Cursor>,
    /// The digests of the frames with that id, in order.
    frames: Vec<u32>,
    /// The highest id below that one. The next connection starts after it.
    below: Option<Cursor>,
}

/// The frames of earlier connections that should come again on this one.
#[derive(Clone, Debug)]
enum Earlier {
    /// There are none, or all came again.
    Settled {
        /// The highest id before this connection. From here on a frame below it is not a repeat.
        highest: Option<Cursor>,
    },
    /// `met` of these frames came again.
    Awaited { seen: LastFrames, met: usize },
    /// The frames had no ids, so no connection can start after them.
    Uncounted,
}

/// The progress of the block of repeats, of which a stream has at most one.
#[derive(Debug)]
enum RepeatBlock {
    /// There is none: this is the response that started the run.
    Never,
    /// It has not started.
    Before {
        /// Whether one doubtful frame was treated as the block.
        is_guessed: bool,
    },
    /// It has started. These frames with the highest id are still to be repeated.
    Inside(Vec<u32>),
    /// It has ended.
    After,
}

// === impl Replay ===

impl Replay {
    /// For the response that started the run.
    pub fn started() -> Self {
        Self {
            known: Earlier::Settled { highest: None },
            asked: None,
            here: LastFrames::default(),
            joined_at: None,
            block: RepeatBlock::Never,
            doubts: 0,
            steps: None,
            id_form: IdForm::default(),
        }
    }

    /// For a stream that is joined from its start.
    pub fn joined() -> Self {
        Self { block: RepeatBlock::Before { is_guessed: false }, ..Self::started() }
    }

    /// Sets when the connection was answered, by the server's clock.
    pub fn answered_at(&mut self, time: Option<u64>) {
        self.joined_at = time;
    }

    /// Starts a new connection. Returns the id to start after; `None` means from the start.
    ///
    /// `has_parts` says whether any part has come so far.
    pub fn rejoin(&mut self, has_parts: bool) -> Option<Cursor> {
        let here = std::mem::take(&mut self.here);
        if let Earlier::Settled { .. } = self.known {
            self.known = match here.highest {
                Some(_) => Earlier::Awaited { seen: here, met: 0 },
                None if has_parts => Earlier::Uncounted,
                None => Earlier::Settled { highest: None },
            };
        }
        if let Earlier::Awaited { seen, met } = &mut self.known {
            *met = 0;
            self.here.below = seen.below;
        }
        self.block = RepeatBlock::Before { is_guessed: false };
        self.joined_at = None;
        self.asked = self.here.below;
        if let Some(steps) = &mut self.steps {
            steps.last = self.asked.map(Cursor::number);
        }
        self.asked
    }

    /// The server's id of an event of the run.
    pub fn event_id(&self, cursor: Cursor, run_id: &str) -> String {
        cursor.to_event_id(self.id_form, run_id)
    }

    /// Forgets all ids, because the server has started to count again.
    fn forget(&mut self) {
        *self = Self { doubts: self.doubts, id_form: self.id_form, ..Self::joined() };
    }

    /// Classifies the next frame of the connection.
    pub fn take(&mut self, frame: &Frame<'_>) -> Taken {
        let id = frame.id.as_deref().and_then(Cursor::of_event);
        let cursor = id.map(|(cursor, form)| {
            self.id_form = form;
            cursor
        });
        let is_counted = self.id_form == IdForm::OfRun;
        if is_counted && self.steps.is_none() {
            // The response that started the run begins with its first frame.
            let last = matches!(self.block, RepeatBlock::Never).then_some(0);
            self.steps = Some(Steps { last, missing_after: None });
        }
        let event = frame.event.as_deref();
        // An error is a stream's last frame, and the Python server does not store it: it takes no
        // part in the order.
        if event == Some("error") {
            return Taken { novelty: Novelty::New, cursor: None, digest: 0 };
        }
        // A `metadata` frame begins an attempt, and nothing is missing before it.
        let begins_attempt = event == Some("metadata");
        if is_counted && cursor.is_some_and(Cursor::is_time) {
            let novelty = Novelty::Last { is_after_gap: !begins_attempt };
            return Taken { novelty, cursor: None, digest: 0 };
        }
        let digest = cursor.map_or(0, |_| digest(frame));
        let mut novelty = self.classify(cursor, digest);
        if novelty == Novelty::AfterGap && begins_attempt {
            novelty = Novelty::New;
        }
        if novelty == Novelty::OfAnotherAttempt {
            self.forget();
        }
        Taken { novelty, cursor, digest }
    }

    /// Classifies a frame by its place in the order and a digest of its bytes.
    fn classify(&mut self, cursor: Option<Cursor>, digest: u32) -> Novelty {
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
        // A server sends only frames after the id it was asked for.
        if self.asked >= Some(cursor) {
            return Novelty::OfAnotherAttempt;
        }
        let mut is_after_missing = false;
        if let Some(steps) = &mut self.steps {
            match steps.take(cursor.number()) {
                NumberStep::Next => {}
                NumberStep::Missing if self.doubts < MAX_DOUBTS => {
                    self.doubts += 1;
                    return Novelty::Doubtful;
                }
                NumberStep::Missing | NumberStep::Lost => is_after_missing = true,
            }
        }
        let here = self.take_here(cursor, digest);
        if here != Novelty::New {
            return here;
        }
        if is_after_missing {
            self.settle();
            return Novelty::AfterGap;
        }
        let Earlier::Awaited { seen, met } = &mut self.known else { return Novelty::New };
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

    /// Classifies a frame by this connection alone.
    fn take_here(&mut self, cursor: Cursor, digest: u32) -> Novelty {
        if self.here.highest > Some(cursor) {
            match self.block {
                // The server's clock was set back.
                RepeatBlock::Never => return Novelty::New,
                RepeatBlock::Before { .. } => {
                    self.block = RepeatBlock::Inside(self.here.frames.clone());
                }
                RepeatBlock::Inside(_) | RepeatBlock::After => {}
            }
            return Novelty::Repeat;
        }
        if self.here.highest < Some(cursor) {
            self.here.begin(cursor);
            if let RepeatBlock::Inside(_) = self.block {
                self.block = RepeatBlock::After;
            }
        }
        let may_be_repeated = self.may_be_repeated(cursor);
        match &mut self.block {
            RepeatBlock::Inside(awaited) => {
                if let Some(at) = awaited.iter().position(|other| *other == digest) {
                    awaited.swap_remove(at);
                    return Novelty::Repeat;
                }
            }
            // If all repeats have the highest id, the order does not step back. They look like
            // equal frames of one millisecond. An id may have thousands of frames, so they are
            // searched only here.
            RepeatBlock::Before { is_guessed }
                if may_be_repeated && !*is_guessed && self.here.frames.contains(&digest) =>
            {
                if self.doubts < MAX_DOUBTS {
                    self.doubts += 1;
                    return Novelty::Doubtful;
                }
                *is_guessed = true;
                return Novelty::Repeat;
            }
            RepeatBlock::Never | RepeatBlock::Before { .. } | RepeatBlock::After => {}
        }
        self.here.frames.push(digest);
        Novelty::New
    }

    /// Whether a frame with this id may be in the block of repeats. Those were published around the
    /// time of the join, and after the frames of earlier connections.
    fn may_be_repeated(&self, cursor: Cursor) -> bool {
        let before = self.known.highest();
        let is_around = |at: u64| (at..at + BLOCK_WINDOW_MS).contains(&cursor.number());
        before < Some(cursor) && self.joined_at.is_none_or(is_around)
    }

    /// Whether all frames that should come again have come.
    pub fn is_settled(&self) -> bool {
        matches!(self.known, Earlier::Settled { .. })
    }

    /// The highest id so far.
    pub fn highest(&self) -> Option<Cursor> {
        self.known.highest().max(self.here.highest)
    }

    fn settle(&mut self) {
        self.known = Earlier::Settled { highest: self.known.highest() };
    }

    /// Whether the next frames were published after the join. `None` if the ids are a count, or the
    /// server's clock is unknown.
    pub fn is_over(&self) -> Option<bool> {
        let last = self.here.highest?;
        let joined_at = self.joined_at.filter(|_| last.is_time())?;
        Some(last.number() >= joined_at || !matches!(self.block, RepeatBlock::Before { .. }))
    }
}

fn digest(frame: &Frame<'_>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(frame.event.as_deref().unwrap_or_default().as_bytes());
    hasher.update(b"\n");
    hasher.update(frame.data.as_deref().unwrap_or_default().as_bytes());
    hasher.finalize()
}

/// How a frame's number follows the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NumberStep {
    /// None is missing.
    Next,
    /// Frames are missing on this connection. They may be in the store.
    Missing,
    /// Frames are missing that the store has not brought either.
    Lost,
}

// === impl Steps ===

impl Steps {
    fn take(&mut self, number: u64) -> NumberStep {
        let Some(last) = self.last.replace(number) else { return NumberStep::Next };
        if number <= last + LONGEST_STEP {
            // A count that has begun again says nothing.
            return NumberStep::Next;
        }
        if self.missing_after == Some(last) {
            return NumberStep::Lost;
        }
        self.missing_after = Some(last);
        NumberStep::Missing
    }
}

// === impl Earlier ===

impl Earlier {
    fn highest(&self) -> Option<Cursor> {
        match self {
            Self::Settled { highest } => *highest,
            Self::Awaited { seen, .. } => seen.highest,
            Self::Uncounted => None,
        }
    }
}

// === impl LastFrames ===

impl LastFrames {
    /// Starts a higher id.
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
