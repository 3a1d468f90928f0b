//! The decoder against streams in every chunking, its limit and its memory.

use std::borrow::Cow;

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
            "LangGraph",
            b"event: values\r\ndata: {}\r\nid: 1-0\r\n\r\n",
            vec![frame("values", "{}", "1-0")],
        ),
        (
            "JSON over many lines",
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
fn the_end_shows_whether_a_block_was_cut() {
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
    let stream = [&long, &lines, &comments, &many, &long, &endless].map(String::as_str).concat();
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

#[test]
fn a_frame_that_is_kept_comes_once_more_whatever_is_pushed_in_between() {
    let mut decoder = Decoder::new();
    decoder.push(b"data: one\n\nevent: a\ndata: two\n\ndata: thr");
    let next = |decoder: &mut Decoder| {
        let frame = decoder.next_frame().unwrap();
        frame.map(|frame| frame.data.unwrap_or_default().into_owned())
    };
    assert_eq!(next(&mut decoder).as_deref(), Some("one"));
    for _ in 0..2 {
        assert_eq!(next(&mut decoder).as_deref(), Some("two"));
        decoder.keep_frame();
        decoder.push(&b" ".repeat(5_000));
    }
    assert_eq!(next(&mut decoder).as_deref(), Some("two"));
    assert_eq!(next(&mut decoder), None);
    decoder.push(b"ee\n\n");
    let last = next(&mut decoder).unwrap();
    assert!(last.starts_with("thr ") && last.ends_with(" ee"), "{last}");
    // The stream has ended before the caller took the frame.
    decoder.keep_frame();
    assert!(matches!(decoder.finish(), Ending::Partial { .. }));
}
