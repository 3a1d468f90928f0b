//! Server-sent events: [`Decoder`] reads a stream as [`Frame`]s, and [`encode`] writes one.
//!
//! The format is that of the WHATWG HTML standard, section 9.2 "Server-sent events"
//! (<https://html.spec.whatwg.org/multipage/server-sent-events.html>). There is one difference: a
//! [`Frame`] is the raw block. It inherits no id from earlier blocks, and has no default event
//! name. A block without data is returned too, because LangGraph's own client does so.

use std::borrow::Cow;
use std::time::Duration;

use memchr::memchr2;

mod decode;

pub use decode::{DecodeError, Decoder, Ending, MAX_EVENT_BYTES};

/// One block of an SSE stream; `None` means that the field was absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The last `event:` of the block.
    pub event: Option<Cow<'a, str>>,
    /// The `data:` lines of the block, joined with a line feed.
    pub data: Option<Cow<'a, str>>,
    /// The last valid `id:` of the block.
    pub id: Option<Cow<'a, str>>,
    /// The last valid `retry:` of the block, in milliseconds.
    pub retry: Option<u64>,
}

/// Appends one event: first its id, then its data. An id that SSE cannot carry is left out.
///
/// SSE does not care about the order, but some clients act on each line at once. They need the id
/// before the data.
///
/// Lines end in LF only: AG-UI requires it, and its client splits events at two line feeds. A line
/// end in `data` starts a new `data:` line, and the reader joins them with a line feed. A CR counts
/// as a line end, because SSE cannot carry it. In JSON that is white space.
pub fn encode(out: &mut Vec<u8>, id: Option<&str>, data: &[u8]) {
    out.reserve(id.map_or(0, str::len) + data.len() + FRAMING_BYTES);
    encode_id(out, id);
    write_lines(out, b"data: ", data);
    out.push(b'\n');
}

/// Appends the start of an event whose data is one line, which the caller appends.
pub fn encode_start(out: &mut Vec<u8>, id: Option<&str>) {
    encode_id(out, id);
    out.extend_from_slice(b"data: ");
}

/// How many bytes an event of one line takes beside its id and its data.
const FRAMING_BYTES: usize = "id: \ndata: \n\n".len();

/// The end of an event whose data is one line.
pub const END: &[u8] = b"\n\n";

fn encode_id(out: &mut Vec<u8>, id: Option<&str>) {
    if let Some(id) = id
        && can_carry(id)
    {
        write_line(out, b"id: ", id.as_bytes());
    }
}

/// Appends a comment. Clients ignore it, and proxies see that the connection is alive.
pub fn encode_comment(out: &mut Vec<u8>, text: &str) {
    write_lines(out, b": ", text.as_bytes());
    out.push(b'\n');
}

/// Appends how long a client should wait before it reconnects.
pub fn encode_retry(out: &mut Vec<u8>, retry: Duration) {
    write_line(out, b"retry: ", retry.as_millis().to_string().as_bytes());
    out.push(b'\n');
}

/// WHATWG: "If the field value does not contain U+0000 NULL, then set the last event ID buffer to
/// the field value. Otherwise, ignore the field." A CR or LF would end the line.
fn can_carry(id: &str) -> bool {
    !id.bytes().any(|byte| matches!(byte, b'\0' | b'\r' | b'\n'))
}

fn write_lines(out: &mut Vec<u8>, prefix: &[u8], mut text: &[u8]) {
    while let Some(end) = memchr2(b'\n', b'\r', text) {
        let (line, rest) = text.split_at(end);
        write_line(out, prefix, line);
        text = rest.strip_prefix(b"\r\n").or_else(|| rest.get(1..)).unwrap_or_default();
    }
    write_line(out, prefix, text);
}

fn write_line(out: &mut Vec<u8>, prefix: &[u8], line: &[u8]) {
    out.reserve(prefix.len() + line.len() + 2);
    out.extend_from_slice(prefix);
    out.extend_from_slice(line);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_its_id_then_its_data_with_line_feeds_only() {
        let cases: [(Option<&str>, &str, &str); 11] = [
            (None, "{}", "data: {}\n\n"),
            (Some("7.0"), "{}", "id: 7.0\ndata: {}\n\n"),
            (Some(""), "{}", "id: \ndata: {}\n\n"),
            (Some("a b: c"), "{}", "id: a b: c\ndata: {}\n\n"),
            (Some("a\0"), "{}", "data: {}\n\n"),
            (Some("a\nevent: x"), "{}", "data: {}\n\n"),
            (Some("a\rb"), "{}", "data: {}\n\n"),
            (None, "", "data: \n\n"),
            (None, "{\n}", "data: {\ndata: }\n\n"),
            (None, "{\r\n1\r2\n}", "data: {\ndata: 1\ndata: 2\ndata: }\n\n"),
            (None, "\u{2028}\u{85}\n\r", "data: \u{2028}\u{85}\ndata: \ndata: \n\n"),
        ];
        for (id, data, expected) in cases {
            let mut out = Vec::new();
            encode(&mut out, id, data.as_bytes());
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{id:?} {data:?}");
        }
    }

    #[test]
    fn encoding_appends() {
        let mut out = b"data: 1\n\n".to_vec();
        encode(&mut out, None, b"2");
        assert_eq!(out, b"data: 1\n\ndata: 2\n\n");
    }

    #[test]
    fn a_comment_cannot_become_a_field() {
        for (text, expected) in [
            ("keep-alive", ": keep-alive\n\n"),
            ("", ": \n\n"),
            ("a\ndata: x", ": a\n: data: x\n\n"),
            ("a\r\nb\rc", ": a\n: b\n: c\n\n"),
        ] {
            let mut out = Vec::new();
            encode_comment(&mut out, text);
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{text:?}");
        }
    }

    #[test]
    fn retry_is_written_in_milliseconds() {
        let mut out = Vec::new();
        encode_retry(&mut out, Duration::from_millis(2_500));
        assert_eq!(out, b"retry: 2500\n\n");
    }
}
