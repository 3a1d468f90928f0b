//! The fields of one block, and how a line becomes one.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr;

use crate::buffer;
use crate::sse::Frame;

/// The fields of the current block.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// The length of the block's lines with their line ends, from the first field on.
    pub(super) bytes: usize,
    pub(super) event: Value,
    pub(super) data: Data,
    /// Several data lines, joined with line feeds.
    pub(super) joined: Vec<u8>,
    pub(super) id: Value,
    pub(super) retry: Option<u64>,
}

/// The value of a short field. Its buffer is used again for the next block.
#[derive(Debug, Default)]
pub(super) struct Value {
    is_present: bool,
    pub(super) bytes: Vec<u8>,
}

/// Where the block's data is.
#[derive(Debug, Default)]
pub(super) enum Data {
    #[default]
    Absent,
    /// One line, in the decoder's buffer.
    Line(Range<usize>),
    /// Several lines, in `Block::joined`.
    Joined,
}

// === impl Block ===

impl Block {
    pub(super) fn has_fields(&self) -> bool {
        self.event.is_present
            || self.id.is_present
            || self.retry.is_some()
            || !matches!(self.data, Data::Absent)
    }

    /// Counts bytes of the block. Lines before its first field do not count: they are not kept, and
    /// a server may send only comments for weeks.
    pub(super) fn count(&mut self, bytes: usize) {
        if self.has_fields() {
            self.bytes += bytes;
        }
    }

    /// WHATWG: "Append the field value to the data buffer, then append a single U+000A LINE FEED
    /// (LF) character to the data buffer." The last line feed is removed when the event is
    /// dispatched.
    pub(super) fn add_data(&mut self, buffer: &[u8], line: Range<usize>) {
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

    pub(super) fn frame<'a>(&'a self, buffer: &'a [u8]) -> Frame<'a> {
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

    pub(super) fn clear(&mut self) {
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
    pub(super) fn set(&mut self, value: &[u8]) {
        self.is_present = true;
        self.bytes.clear();
        self.bytes.extend_from_slice(value);
    }

    fn text(&self) -> Option<Cow<'_, str>> {
        self.is_present.then(|| decode_utf8(&self.bytes))
    }

    pub(super) fn clear(&mut self) {
        self.is_present = false;
        buffer::empty(&mut self.bytes);
    }
}

/// Splits a line into field name and value. A comment has an empty name.
///
/// WHATWG: "Collect the characters on the line after the first U+003A COLON character (:), and let
/// value be that string. If value starts with a U+0020 SPACE character, remove it from value."
pub(super) fn split_field(line: &[u8]) -> (&[u8], &[u8]) {
    let Some((name, value)) = memchr(b':', line).and_then(|colon| line.split_at_checked(colon))
    else {
        return (line, b"");
    };
    let value = value.strip_prefix(b":").unwrap_or(value);
    (name, value.strip_prefix(b" ").unwrap_or(value))
}

/// WHATWG: "If the field value consists of only ASCII digits, then interpret the field value as an
/// integer in base ten [..]. Otherwise, ignore the field." An empty value is ignored, and so is a
/// number of more than 64 bits.
pub(super) fn parse_retry(value: &[u8]) -> Option<u64> {
    if !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(value).ok()?.parse().ok()
}

/// WHATWG: "Streams must be decoded using the UTF-8 decode algorithm", which replaces invalid bytes
/// with U+FFFD. A replacement never contains a line end, a colon or a space, so each value can be
/// decoded by itself.
fn decode_utf8(bytes: &[u8]) -> Cow<'_, str> {
    // `from_utf8_lossy` alone is several times slower on valid text.
    str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}
