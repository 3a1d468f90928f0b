//! The push decoder: bytes in, in any chunks; frames out, with never more than one block held.

use std::borrow::Cow;
use std::mem;
use std::ops::Range;

use memchr::{memchr, memchr2};
use thiserror::Error;

use super::Frame;
use crate::buffer;

/// The size of a block at which [`Decoder::new`] gives up: 64 MiB.
///
/// LangGraph sets no bound: a `values` event is the thread's whole state in one line, and 3 MB
/// were seen. 64 MiB is room for state that holds files, and still little enough that a few broken
/// upstreams do not exhaust a small container.
pub const MAX_EVENT_BYTES: usize = 64 * 1024 * 1024;

/// A byte order mark: ignored at the start of a stream, text anywhere else.
const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Decodes an SSE stream from bytes that arrive in any chunks.
///
/// Give it bytes with [`push`](Self::push), then take frames with
/// [`next_frame`](Self::next_frame) until there is none, and push again. When the stream has
/// ended, [`finish`](Self::finish) tells whether a block was cut.
///
/// Used so, it never holds more bytes than the limit and one push together. Its memory is at most a
/// few times that, since data lines are joined in memory of their own; what a large block has taken
/// is given back when the block is over.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    /// What was pushed and may still be needed.
    buffer: Vec<u8>,
    /// Where the current line begins.
    line: usize,
    /// `line..scanned` holds no line end.
    scanned: usize,
    expecting: Expecting,
    block: Block,
    /// The block's frame was handed out, so the block is over when the frame is given back.
    is_lent: bool,
    comments: u64,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Nothing was left behind.
    Clean,
    /// The stream was cut inside a block, or frames were not taken.
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
    /// The rest of a CRLF whose CR was the last byte pushed. The CR has ended its line already, or
    /// a stream that uses lone CRs would always be one event late.
    LineFeed,
    /// Nothing more is read: a block was too long.
    Nothing,
}

/// The fields of the block that is being read.
#[derive(Debug, Default)]
struct Block {
    /// The size of the block's lines and their ends, from its first field on.
    bytes: usize,
    event: Value,
    data: Data,
    /// Several data lines, joined.
    joined: Vec<u8>,
    id: Value,
    retry: Option<u64>,
}

/// The value of a short field, in memory that outlives the block.
#[derive(Debug, Default)]
struct Value {
    is_present: bool,
    bytes: Vec<u8>,
}

/// Where the data of the block is.
#[derive(Debug, Default)]
enum Data {
    #[default]
    Absent,
    /// One line, in the decoder's buffer.
    Line(Range<usize>),
    /// Several lines, in `Block::joined`.
    Joined,
}

// === impl Decoder ===

impl Decoder {
    /// A decoder that refuses blocks of more than [`MAX_EVENT_BYTES`].
    pub fn new() -> Self {
        Self::with_limit(MAX_EVENT_BYTES)
    }

    /// A decoder that refuses blocks of more than `max_event_bytes`.
    ///
    /// The lines of a block count with their line ends, from the first field on; so does a single
    /// line of any kind.
    pub fn with_limit(max_event_bytes: usize) -> Self {
        Self {
            limit: max_event_bytes,
            buffer: Vec::new(),
            line: 0,
            scanned: 0,
            expecting: Expecting::Bom,
            block: Block::default(),
            is_lent: false,
            comments: 0,
        }
    }

    /// How many bytes are kept of a block that is not over.
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
            // Doubling keeps many small pushes linear; the cap keeps the promise of the type.
            let most = self.limit.saturating_add(bytes.len());
            let capacity = (self.buffer.capacity() * 2).min(most).max(needed);
            self.buffer.reserve_exact(capacity - self.buffer.len());
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete frame, lent until the decoder is used again. `None`: push more bytes.
    ///
    /// A block is a frame when it has any of event, data, id and retry. After an error every call
    /// returns the same error.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, DecodeError> {
        self.take_back();
        while let Some(line) = self.next_line()? {
            if !line.is_empty() {
                self.read_line(line);
            } else if self.block.has_fields() {
                self.is_lent = true;
                return Ok(Some(self.block.frame(&self.buffer)));
            }
        }
        // Nothing may come for hours.
        if self.first_needed() == self.buffer.len() {
            buffer::empty(&mut self.buffer);
            (self.line, self.scanned) = (0, 0);
        }
        Ok(None)
    }

    /// How many comment lines were seen so far: a sign of life, where a server sends heartbeats.
    pub fn comments(&self) -> u64 {
        self.comments
    }

    /// Ends the stream, and tells whether it ended inside a block.
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

    /// Ends the block whose frame was handed out.
    fn take_back(&mut self) {
        if mem::take(&mut self.is_lent) {
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

    /// Drops what is no longer needed.
    ///
    /// A byte is moved at most once per line or block that ended before it, and only where the
    /// buffer would have to grow instead.
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

    /// Skips what may stand before a line. Returns whether a line can begin.
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

    /// Refuses the block if a line of `line` bytes makes it too long.
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

// === impl Block ===

impl Block {
    fn has_fields(&self) -> bool {
        self.event.is_present
            || self.id.is_present
            || self.retry.is_some()
            || !matches!(self.data, Data::Absent)
    }

    /// Counts bytes that belong to the block. What stands before its first field does not: such
    /// lines are not kept, and a server may send nothing but comments for weeks.
    fn count(&mut self, bytes: usize) {
        if self.has_fields() {
            self.bytes += bytes;
        }
    }

    /// WHATWG: "Append the field value to the data buffer, then append a single U+000A LINE FEED
    /// (LF) character to the data buffer." The last one is removed again at dispatch.
    fn add_data(&mut self, buffer: &[u8], line: Range<usize>) {
        match &self.data {
            Data::Absent => {
                self.data = Data::Line(line);
                return;
            }
            Data::Line(first) => {
                self.joined.extend_from_slice(buffer.get(first.clone()).unwrap_or_default());
                self.data = Data::Joined;
            }
            Data::Joined => {}
        }
        self.joined.push(b'\n');
        self.joined.extend_from_slice(buffer.get(line).unwrap_or_default());
    }

    fn frame<'a>(&'a self, buffer: &'a [u8]) -> Frame<'a> {
        let data = match &self.data {
            Data::Absent => None,
            Data::Line(line) => Some(buffer.get(line.clone()).unwrap_or_default()),
            Data::Joined => Some(self.joined.as_slice()),
        };
        Frame {
            event: self.event.text(),
            data: data.map(decode_utf8),
            id: self.id.text(),
            retry: self.retry,
        }
    }

    fn clear(&mut self) {
        let Self { bytes, event, data, joined, id, retry } = self;
        *bytes = 0;
        event.clear();
        *data = Data::Absent;
        buffer::empty(joined);
        id.clear();
        *retry = None;
    }
}

// === impl Value ===

impl Value {
    fn set(&mut self, value: &[u8]) {
        self.is_present = true;
        self.bytes.clear();
        self.bytes.extend_from_slice(value);
    }

    fn text(&self) -> Option<Cow<'_, str>> {
        self.is_present.then(|| decode_utf8(&self.bytes))
    }

    fn clear(&mut self) {
        self.is_present = false;
        buffer::empty(&mut self.bytes);
    }
}

/// Splits a line into field name and value. A comment has an empty name.
///
/// WHATWG: "Collect the characters on the line after the first U+003A COLON character (:), and let
/// value be that string. If value starts with a U+0020 SPACE character, remove it from value."
fn split_field(line: &[u8]) -> (&[u8], &[u8]) {
    let Some((name, value)) = memchr(b':', line).and_then(|colon| line.split_at_checked(colon))
    else {
        return (line, b"");
    };
    let value = value.strip_prefix(b":").unwrap_or(value);
    (name, value.strip_prefix(b" ").unwrap_or(value))
}

/// WHATWG: "If the field value consists of only ASCII digits, then interpret the field value as an
/// integer in base ten [..]. Otherwise, ignore the field." Nothing, and more than 64 bits, is
/// ignored too.
fn parse_retry(value: &[u8]) -> Option<u64> {
    if !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(value).ok()?.parse().ok()
}

/// WHATWG: "Streams must be decoded using the UTF-8 decode algorithm", which replaces what is
/// invalid with U+FFFD. No line end, colon or space can be part of what is replaced, so it may be
/// done per value.
fn decode_utf8(bytes: &[u8]) -> Cow<'_, str> {
    // `from_utf8_lossy` alone is several times slower on valid text.
    str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::KEPT_BYTES;

    #[test]
    fn a_large_block_leaves_no_memory_behind() {
        for line in ["data: ", "event: ", "data: a\ndata: "] {
            let block = format!("{line}{}\n\n", "x".repeat(1_000_000));
            let mut decoder = Decoder::new();
            for chunk in block.as_bytes().chunks(8_000) {
                decoder.push(chunk);
                while decoder.next_frame().unwrap().is_some() {}
            }
            let Block { event, joined, .. } = &decoder.block;
            for buffer in [&decoder.buffer, &event.bytes, joined] {
                assert!(buffer.capacity() <= KEPT_BYTES, "{line}: {}", buffer.capacity());
            }
        }
    }

    type Fields = (Option<String>, Option<String>, Option<String>, Option<u64>);

    fn fields(frame: &Frame<'_>) -> Fields {
        let owned = |field: &Option<Cow<'_, str>>| field.as_deref().map(str::to_owned);
        (owned(&frame.event), owned(&frame.data), owned(&frame.id), frame.retry)
    }

    /// The frames of `input`, given in chunks of `size` bytes, and how the stream ended.
    fn decode(input: &[u8], size: usize) -> (Vec<Fields>, Ending) {
        let mut decoder = Decoder::new();
        let mut frames = Vec::new();
        for chunk in input.chunks(size) {
            decoder.push(chunk);
            while let Some(frame) = decoder.next_frame().unwrap() {
                frames.push(fields(&frame));
            }
        }
        (frames, decoder.finish())
    }

    /// A frame with `event`, `data` and `id`; an absent field is `"-"`.
    fn frame(event: &str, data: &str, id: &str) -> Fields {
        let field = |text: &str| (text != "-").then(|| text.to_owned());
        (field(event), field(data), field(id), None)
    }

    fn retry(milliseconds: u64) -> Fields {
        (None, None, None, Some(milliseconds))
    }

    #[test]
    fn frames_are_the_blocks_of_the_stream_in_any_chunking() {
        let cases: Vec<(&str, &[u8], Vec<Fields>)> = vec![
            ("nothing", b"", vec![]),
            ("blank lines", b"\n\r\n\r\n\n", vec![]),
            (
                "LangGraph in Python",
                b"event: values\r\ndata: {}\r\nid: 1-0\r\n\r\n",
                vec![frame("values", "{}", "1-0")],
            ),
            (
                "LangGraph in JavaScript",
                b"event: values\ndata: {\ndata:   \"a\": 1\ndata: }\nid: 0\n\n",
                vec![frame("values", "{\n  \"a\": 1\n}", "0")],
            ),
            ("LF", b"data: a\n\ndata: b\n\n", vec![frame("-", "a", "-"), frame("-", "b", "-")]),
            ("CR", b"data: a\r\rdata: b\r\r", vec![frame("-", "a", "-"), frame("-", "b", "-")]),
            (
                "CRLF",
                b"data: a\r\n\r\ndata: b\r\n\r\n",
                vec![frame("-", "a", "-"), frame("-", "b", "-")],
            ),
            (
                "every line end in one stream",
                b"data: a\ndata: b\rdata: c\r\n\rdata: d\r\r\ndata: e\n\r\n",
                vec![frame("-", "a\nb\nc", "-"), frame("-", "d", "-"), frame("-", "e", "-")],
            ),
            ("LF CR is two line ends", b"data: a\n\rdata: b\n\r", {
                vec![frame("-", "a", "-"), frame("-", "b", "-")]
            }),
            ("one space is removed", b"data:  a \n\n", vec![frame("-", " a ", "-")]),
            ("the space may be missing", b"data:a\nid:b\n\n", vec![frame("-", "a", "b")]),
            ("a tab is not a space", b"data:\ta\n\n", vec![frame("-", "\ta", "-")]),
            ("a value may hold colons", b"data: a: b\n\n", vec![frame("-", "a: b", "-")]),
            ("a name without a colon", b"data\nid\n\n", vec![frame("-", "", "")]),
            ("empty data lines count", b"data:\ndata:\n\n", vec![frame("-", "\n", "-")]),
            ("a first empty data line", b"data\ndata: a\n\n", vec![frame("-", "\na", "-")]),
            (
                "data lines around other fields",
                b"data: a\nevent: b\ndata: c\nid: d\ndata: e\n\n",
                vec![frame("b", "a\nc\ne", "d")],
            ),
            (
                "the last event and id win",
                b"event: a\nid: 1\nevent: bc\nid: 23\n\n",
                vec![frame("bc", "-", "23")],
            ),
            ("a block without data is kept", b"event: end\n\n", vec![frame("end", "-", "-")]),
            ("a block of an id is kept", b"id: 7\n\n", vec![frame("-", "-", "7")]),
            (
                "nothing is inherited",
                b"event: a\nid: 1\ndata: x\n\ndata: y\n\n",
                vec![frame("a", "x", "1"), frame("-", "y", "-")],
            ),
            ("comments alone are no frame", b": a\n\n:\n\n", vec![]),
            ("a comment inside a block", b"data: a\n: b\ndata: c\n\n", {
                vec![frame("-", "a\nc", "-")]
            }),
            ("unknown fields alone are no frame", b"foo: a\nbar\n\n", vec![]),
            ("names are exact", b"Data: a\n data: b\ndata : c\ndatax: d\nx: e\n\n", vec![]),
            ("an id with NUL is ignored", b"id: 1\nid: 2\0\ndata: a\n\n", {
                vec![frame("-", "a", "1")]
            }),
            ("an id with NUL alone is no frame", b"id: \0\n\n", vec![]),
            ("retry", b"retry: 1500\n\nretry:2\n\n", vec![retry(1500), retry(2)]),
            ("retry takes digits only", b"retry: -1\nretry: 1.5\nretry: +2\nretry: 3 \n\n", vec![]),
            ("retry takes a number", b"retry:\nretry\nretry: 99999999999999999999\n\n", vec![]),
            ("a bad retry does not undo a good one", b"retry: 5\nretry: x\n\n", vec![retry(5)]),
            ("a BOM at the start", b"\xEF\xBB\xBFdata: a\n\n", vec![frame("-", "a", "-")]),
            ("a BOM alone", b"\xEF\xBB\xBF", vec![]),
            (
                "one BOM only, and only at the start",
                b"\xEF\xBB\xBF\xEF\xBB\xBFdata: a\n\ndata: b\n\n\xEF\xBB\xBFdata: c\n\n",
                vec![frame("-", "b", "-")],
            ),
            (
                "U+2028, U+2029, U+0085 and U+000B are text",
                "data: a\u{2028}b\u{2029}c\u{85}d\u{b}\n\n".as_bytes(),
                vec![frame("-", "a\u{2028}b\u{2029}c\u{85}d\u{b}", "-")],
            ),
            (
                "UTF-8 of every length",
                "data: é☃😀\nevent: é\nid: 😀\n\n".as_bytes(),
                vec![frame("é", "é☃😀", "😀")],
            ),
            (
                "invalid UTF-8 is replaced",
                b"data: a\xFFb\xE2\x98\ndata: \x83\nevent: \xC3\n\n",
                vec![frame("\u{FFFD}", "a\u{FFFD}b\u{FFFD}\n\u{FFFD}", "-")],
            ),
            ("an unfinished block is not a frame", b"data: a\n\ndata: b\nid: 1\n", {
                vec![frame("-", "a", "-")]
            }),
        ];
        for (name, input, expected) in cases {
            for size in [usize::MAX, 1, 2, 3, 7] {
                let (frames, _) = decode(input, size);
                assert_eq!(frames, expected, "{name}, in chunks of {size}");
            }
        }
    }

    #[test]
    fn the_end_tells_whether_a_block_was_cut() {
        let cut = |bytes| Ending::Partial { bytes };
        let cases: [(&[u8], Ending); 14] = [
            (b"", Ending::Clean),
            (b"data: a\n\n", Ending::Clean),
            (b"data: a\r\n\r", Ending::Clean),
            (b"data: a\r\n\r\n", Ending::Clean),
            (b"data: a\n\n\n", Ending::Clean),
            (b": heartbeat\n", Ending::Clean),
            (b"unknown: a\n", Ending::Clean),
            (b"\xEF\xBB\xBF", Ending::Clean),
            (b"\xEF\xBB", cut(2)),
            (b"data: a\n", cut(8)),
            (b"data: a\r\n", cut(9)),
            (b"data: a\n\nda", cut(2)),
            (b"id: 1\ndata: {\"a\":", cut(17)),
            (b": heart", cut(7)),
        ];
        for (input, expected) in cases {
            for size in [usize::MAX, 1, 2] {
                let (_, ending) = decode(input, size);
                assert_eq!(ending, expected, "{input:?} in chunks of {size}");
            }
        }
    }

    #[test]
    fn frames_that_were_not_taken_count_as_left() {
        let mut decoder = Decoder::new();
        decoder.push(b"data: a\n\ndata: b\n\n");
        assert!(decoder.next_frame().unwrap().is_some());
        assert_eq!(decoder.finish(), Ending::Partial { bytes: 9 });
    }

    #[test]
    fn a_carriage_return_at_the_end_of_a_push_is_not_waited_on_and_not_counted_twice() {
        let mut decoder = Decoder::new();
        decoder.push(b"data: a\r\r");
        assert_eq!(fields(&decoder.next_frame().unwrap().unwrap()), frame("-", "a", "-"));
        decoder.push(b"\ndata: b\r");
        assert_eq!(decoder.next_frame().unwrap(), None);
        decoder.push(b"");
        assert_eq!(decoder.next_frame().unwrap(), None);
        decoder.push(b"\n");
        assert_eq!(decoder.next_frame().unwrap(), None);
        decoder.push(b"data: c\n\r");
        assert_eq!(fields(&decoder.next_frame().unwrap().unwrap()), frame("-", "b\nc", "-"));
        assert_eq!(decoder.next_frame().unwrap(), None);
        assert_eq!(decoder.finish(), Ending::Clean);
    }

    #[test]
    fn comments_are_counted() {
        let mut decoder = Decoder::new();
        for (bytes, expected) in [
            (b": heartbeat\r\n\r\n".as_slice(), 1),
            (b":\n:\n", 3),
            (b"data: a\n: b\n", 4),
            (b"\n: unfinished", 4),
            (b"\r", 5),
        ] {
            decoder.push(bytes);
            while decoder.next_frame().unwrap().is_some() {}
            assert_eq!(decoder.comments(), expected, "{bytes:?}");
        }
    }

    #[test]
    fn valid_text_is_borrowed_and_single_line_data_is_not_copied() {
        let mut decoder = Decoder::new();
        decoder.push("event: é\ndata: ☃\nid: 1\n\ndata: a\ndata: b\n\n".as_bytes());
        let buffer = decoder.buffer.as_ptr_range();
        let frame = decoder.next_frame().unwrap().unwrap();
        let Some(Cow::Borrowed(data)) = frame.data else { panic!("{frame:?}") };
        assert!(buffer.contains(&data.as_ptr()));
        assert!(matches!(frame.event, Some(Cow::Borrowed("é"))));
        assert!(matches!(frame.id, Some(Cow::Borrowed("1"))));
        let frame = decoder.next_frame().unwrap().unwrap();
        assert!(matches!(frame.data, Some(Cow::Borrowed("a\nb"))));
    }

    #[test]
    fn a_block_may_be_as_long_as_the_limit_and_no_longer() {
        let refused = DecodeError::EventTooLong { limit: 16 };
        let cases: [(&str, &[u8], Result<usize, DecodeError>); 10] = [
            ("a block of the limit", b"data: 456789012\n\n", Ok(1)),
            ("one byte more", b"data: 4567890123\n\n", Err(refused)),
            ("its line ends count", b"data: 456\r\nid:\r\n\r\n", Ok(1)),
            ("both bytes of them", b"data: 4567\r\nid:\r\n\r\n", Err(refused)),
            ("each block by itself", b"data: 45678\n\ndata: 45678\n\n", Ok(2)),
            ("frames before are given", b"id\n\nid\n\ndata: 4567890123456", Err(refused)),
            ("a long comment", b": 34567890123456", Ok(0)),
            ("a comment that is too long", b": 345678901234567", Err(refused)),
            ("comments before a block are free", b": 345678\n: 345678\nid: 1\n\n", Ok(1)),
            ("comments inside a block are not", b"id: 1\n: 345678\n: 1\n\n", Err(refused)),
        ];
        for (name, input, expected) in cases {
            for size in [usize::MAX, 1, 2] {
                let mut decoder = Decoder::with_limit(16);
                let mut frames = 0;
                let result = input.chunks(size).try_for_each(|chunk| {
                    decoder.push(chunk);
                    while decoder.next_frame()?.is_some() {
                        frames += 1;
                    }
                    Ok(())
                });
                assert_eq!(result.map(|()| frames), expected, "{name}, in chunks of {size}");
            }
        }
    }

    #[test]
    fn after_an_error_nothing_is_kept_and_the_error_stays() {
        let mut decoder = Decoder::with_limit(16);
        decoder.push(b"data: 12345678901234567890");
        let refused = Err(DecodeError::EventTooLong { limit: 16 });
        assert_eq!(decoder.next_frame(), refused);
        decoder.push(b"\n\ndata: a\n\n");
        assert_eq!(decoder.next_frame(), refused);
        assert_eq!(decoder.buffer.capacity(), 0);
        assert_eq!(decoder.finish(), Ending::Partial { bytes: 26 });
    }

    #[test]
    fn memory_stays_within_the_limit_and_one_push() {
        const LIMIT: usize = 100_000;
        const PUSH: usize = 4_096;
        let long = format!("data: {}\n\n", "x".repeat(LIMIT - 7));
        let lines = format!("{}\n", "data: x\n".repeat(LIMIT / 8));
        let comments = ": x\n".repeat(LIMIT);
        let many = "event: a\ndata: b\n\n".repeat(LIMIT / 16);
        let endless = "x".repeat(2 * LIMIT);
        let stream =
            [&long, &lines, &comments, &many, &long, &endless].map(String::as_str).concat();
        let mut decoder = Decoder::with_limit(LIMIT);
        let mut refused = false;
        for chunk in stream.as_bytes().chunks(PUSH) {
            decoder.push(chunk);
            refused = loop {
                match decoder.next_frame() {
                    Ok(Some(_)) => {}
                    Ok(None) => break false,
                    Err(DecodeError::EventTooLong { limit: LIMIT }) => break true,
                    Err(error) => panic!("{error}"),
                }
            };
            assert!(decoder.buffer.capacity() <= LIMIT + PUSH, "{}", decoder.buffer.capacity());
            let needed = decoder.buffer.len() - decoder.first_needed();
            assert!(needed + decoder.block.joined.len() <= LIMIT);
        }
        assert!(refused);
    }

    #[test]
    fn no_byte_is_searched_twice() {
        let mut decoder = Decoder::new();
        decoder.push(b"data: a\n\ndata: ");
        assert!(decoder.next_frame().unwrap().is_some());
        assert_eq!(decoder.next_frame().unwrap(), None);
        for chunk in [[b'x'; 5_000], [b'y'; 5_000]] {
            decoder.push(&chunk);
            assert_eq!(decoder.buffer.len() - decoder.scanned, chunk.len());
            assert_eq!(decoder.next_frame().unwrap(), None);
            assert_eq!(decoder.scanned, decoder.buffer.len());
        }
    }
}
