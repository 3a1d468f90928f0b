//! Decodes an SSE stream, and holds at most one block of it.

mod block;

use std::ops::Range;

use memchr::{memchr, memchr2};
use thiserror::Error;

use super::Frame;
use crate::buffer;
use block::{Block, Data, parse_retry, split_field};

/// The largest block that [`Decoder::new`] accepts: 64 MiB.
///
/// LangGraph has no limit. A `values` event is the whole state of a thread in one line, and 3 MB
/// were measured. 64 MiB leaves room for states that contain files, and a few broken upstreams
/// still fit into a small container.
pub const MAX_EVENT_BYTES: usize = 64 * 1024 * 1024;

/// A byte order mark. Ignored at the start of a stream, and text everywhere else.
const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Decodes an SSE stream from bytes that arrive in any chunks.
///
/// Pass bytes to [`push`](Self::push), call [`next_frame`](Self::next_frame) until it returns
/// `None`, and push again. At the end of the stream, [`finish`](Self::finish) returns whether a
/// block was cut.
///
/// In this way the decoder never holds more bytes than its limit and one push. It may take a few
/// times that memory, because several data lines are joined in a second buffer. The memory of a
/// large block is freed when the block ends.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    /// The pushed bytes that may still be needed.
    buffer: Vec<u8>,
    /// The start of the current line.
    line: usize,
    /// `line..scanned` contains no line end.
    scanned: usize,
    expecting: Expecting,
    block: Block,
    last_frame: LastFrame,
    comments: u64,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Nothing was left.
    Clean,
    /// The stream ended inside a block, or before all frames were taken.
    Partial {
        /// How many bytes were left.
        bytes: usize,
    },
}

/// Why a stream cannot be decoded any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// A block is larger than the decoder's limit.
    #[error("an SSE event is longer than {limit} bytes; have the graph keep less in its state")]
    EventTooLong {
        /// The limit in bytes.
        limit: usize,
    },
}

/// What the next byte may be.
///
/// ```text
/// Bom --> Line <--> LineFeed
///          `------> Nothing
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expecting {
    /// The byte order mark, at the start of the stream.
    Bom,
    /// Any byte of a line.
    Line,
    /// The LF of a CRLF whose CR was the last pushed byte. The CR has already ended its line:
    /// otherwise a stream with CR alone would always be one event late.
    LineFeed,
    /// Nothing: a block was too long.
    Nothing,
}

/// What became of the last frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastFrame {
    /// It has ended, or there was none.
    Ended,
    /// The caller has it. Its next call ends the block.
    Lent,
    /// The caller takes it later.
    Kept,
}

// === impl Decoder ===

impl Decoder {
    /// A decoder with the limit [`MAX_EVENT_BYTES`].
    pub fn new() -> Self {
        Self::with_limit(MAX_EVENT_BYTES)
    }

    /// A decoder that refuses blocks of more than `max_event_bytes`.
    ///
    /// The lines of a block count with their line ends, from the first field on. A single line of
    /// any kind counts too.
    pub fn with_limit(max_event_bytes: usize) -> Self {
        Self {
            limit: max_event_bytes,
            buffer: Vec::new(),
            line: 0,
            scanned: 0,
            expecting: Expecting::Bom,
            block: Block::default(),
            last_frame: LastFrame::Ended,
            comments: 0,
        }
    }

    /// How many bytes of an unfinished block are buffered.
    pub fn buffered(&self) -> usize {
        self.buffer.len().saturating_sub(self.first_needed())
    }

    /// Adds the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.take_back();
        if self.expecting == Expecting::Nothing {
            return;
        }
        let is_full = self.buffer.len() + bytes.len() > self.buffer.capacity();
        if is_full || self.first_needed() == self.buffer.len() {
            self.compact();
        }
        let needed = self.buffer.len() + bytes.len();
        if needed > self.buffer.capacity() {
            // Doubling keeps many small pushes linear. The cap keeps the memory within the
            // documented limit.
            let most = self.limit.saturating_add(bytes.len());
            let capacity = (self.buffer.capacity() * 2).min(most).max(needed);
            self.buffer.reserve_exact(capacity - self.buffer.len());
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete frame, valid until the decoder is used again. `None` if it needs more
    /// bytes.
    ///
    /// A block is a frame if it has an event, data, an id or a retry time. After an error every
    /// call returns the same error.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, DecodeError> {
        if self.last_frame == LastFrame::Kept {
            self.last_frame = LastFrame::Lent;
            return Ok(Some(self.block.frame(&self.buffer)));
        }
        self.take_back();
        while let Some(line) = self.next_line()? {
            if !line.is_empty() {
                self.read_line(line);
            } else if self.block.has_fields() {
                self.last_frame = LastFrame::Lent;
                return Ok(Some(self.block.frame(&self.buffer)));
            }
        }
        // The next bytes may take hours to arrive.
        if self.first_needed() == self.buffer.len() {
            buffer::empty(&mut self.buffer);
            (self.line, self.scanned) = (0, 0);
        }
        Ok(None)
    }

    /// Has [`next_frame`](Self::next_frame) return the last frame once more. Until then the frame
    /// counts as unfinished.
    pub fn keep_frame(&mut self) {
        if self.last_frame == LastFrame::Lent {
            self.last_frame = LastFrame::Kept;
        }
    }

    /// The number of comment lines so far. Servers send them as heartbeats.
    pub fn comments(&self) -> u64 {
        self.comments
    }

    /// Ends the stream. Returns whether it ended inside a block.
    ///
    /// WHATWG: "Once the end of the file is reached, any pending data must be discarded. (If the
    /// file ends in the middle of an event, before the final empty line, the incomplete event is
    /// not dispatched.)"
    pub fn finish(mut self) -> Ending {
        self.take_back();
        match self.block.bytes + self.buffer.len().saturating_sub(self.line) {
            0 => Ending::Clean,
            bytes => Ending::Partial { bytes },
        }
    }

    /// Ends the block whose frame the caller had.
    fn take_back(&mut self) {
        if self.last_frame == LastFrame::Lent {
            self.last_frame = LastFrame::Ended;
            self.block.clear();
        }
    }

    /// The first byte of the buffer that a later frame may need.
    fn first_needed(&self) -> usize {
        match &self.block.data {
            Data::Line(data) => data.start,
            Data::Absent | Data::Joined => self.line,
        }
    }

    /// Drops bytes that are no longer needed.
    ///
    /// A byte moves at most once for each line or block that ended before it, and only if the
    /// buffer would have to grow otherwise.
    fn compact(&mut self) {
        let dropped = self.first_needed();
        self.buffer.drain(..dropped);
        self.line -= dropped;
        self.scanned -= dropped;
        if let Data::Line(data) = &mut self.block.data {
            *data = 0..data.len();
        }
    }

    /// Moves past the next line end, and returns the line before it.
    fn next_line(&mut self) -> Result<Option<Range<usize>>, DecodeError> {
        if !self.reach_line()? {
            return Ok(None);
        }
        let unscanned = self.buffer.get(self.scanned..).unwrap_or_default();
        let found = memchr2(b'\n', b'\r', unscanned);
        let end = self.scanned + found.unwrap_or(unscanned.len());
        let line = self.line..end;
        self.check_limit(line.len())?;
        self.scanned = end;
        if found.is_none() {
            return Ok(None);
        }
        let ending = match self.buffer.get(end..) {
            Some([b'\r', b'\n', ..]) => 2,
            Some([b'\r']) => {
                self.expecting = Expecting::LineFeed;
                1
            }
            _ => 1,
        };
        self.line = end + ending;
        self.scanned = self.line;
        Ok(Some(line))
    }

    /// Skips bytes that may precede a line. Returns whether a line can start.
    fn reach_line(&mut self) -> Result<bool, DecodeError> {
        let rest = self.buffer.get(self.line..).unwrap_or_default();
        let skipped = match self.expecting {
            Expecting::Line => return Ok(true),
            Expecting::Nothing => return Err(DecodeError::EventTooLong { limit: self.limit }),
            Expecting::Bom if rest.len() < BOM.len() && BOM.starts_with(rest) => return Ok(false),
            Expecting::Bom if rest.starts_with(BOM) => BOM.len(),
            Expecting::LineFeed if rest.is_empty() => return Ok(false),
            Expecting::LineFeed if rest.starts_with(b"\n") => {
                self.block.count(1);
                1
            }
            Expecting::Bom | Expecting::LineFeed => 0,
        };
        self.expecting = Expecting::Line;
        self.line += skipped;
        self.scanned = self.line;
        Ok(true)
    }

    /// Fails if a line of `line` bytes makes the block too long.
    fn check_limit(&mut self, line: usize) -> Result<(), DecodeError> {
        let bytes = self.block.bytes + line;
        if bytes <= self.limit {
            return Ok(());
        }
        self.expecting = Expecting::Nothing;
        self.buffer = Vec::new();
        self.line = 0;
        self.scanned = 0;
        self.block = Block { bytes, ..Block::default() };
        Err(DecodeError::EventTooLong { limit: self.limit })
    }

    fn read_line(&mut self, line: Range<usize>) {
        let text = self.buffer.get(line.clone()).unwrap_or_default();
        let (name, value) = split_field(text);
        match name {
            b"" => self.comments += 1,
            b"data" => self.block.add_data(&self.buffer, line.end - value.len()..line.end),
            b"event" => self.block.event.set(value),
            // WHATWG: "If the field value does not contain U+0000 NULL, then set the last event ID
            // buffer to the field value. Otherwise, ignore the field."
            b"id" if memchr(0, value).is_none() => self.block.id.set(value),
            b"retry" => self.block.retry = parse_retry(value).or(self.block.retry),
            // WHATWG: "Otherwise: The field is ignored."
            _ => {}
        }
        self.block.count(self.line - line.start);
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
