//! Properties of the SSE codec: chunking, round trip, and the limits for arbitrary bytes.

use crate::support::generate;
use crate::support::reading::{Block, carried, read, read_literally};
use proptest::collection::vec;
use proptest::prelude::*;
use threadway_translate::sse::{self, Ending};

/// Streams of the pieces that matter to a decoder, in any order.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        6 => prop::sample::select(vec![
            b"data: ".as_slice(), b"data:", b"data", b"event: ", b"id: ", b"id", b"retry: ",
            b"event: a\ndata: b\nid: 1\n\n", b"data: {\r\ndata: }\r\n\r\n", b": heartbeat\r\n\r\n",
        ]),
        8 => prop::sample::select(vec![b"\n".as_slice(), b"\r", b"\r\n", b"\n\n", b"\r\n\r\n"]),
        4 => prop::sample::select(vec![
            b"x".as_slice(), b":", b" ", b"7", b"\0", b"\xEF\xBB\xBF", b"\xEF\xBB", b"\xFF",
            "é☃😀\u{2028}\u{85}".as_bytes(), b"\xF0\x9F", b"\x98",
        ]),
    ];
    prop_oneof![
        4 => vec(piece, 0..60).prop_map(|pieces| pieces.concat()),
        1 => vec(any::<u8>(), 0..200),
    ]
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![Just(vec![1]), vec(1..4_usize, 1..20), vec(1..60_usize, 1..8)]
}

proptest! {
    #![proptest_config(generate::config(2_000))]

    #[test]
    fn any_chunking_gives_the_same_frames(
        stream in stream(),
        sizes in sizes(),
        limit in prop_oneof![Just(1 << 20), 0..60_usize],
    ) {
        prop_assert_eq!(read(&stream, &sizes, limit), read(&stream, &[], limit));
    }

    #[test]
    fn frames_are_those_of_the_standard_read_literally(stream in stream(), sizes in sizes()) {
        let mut reading = read(&stream, &sizes, 1 << 20);
        if let Ok(Ending::Partial { bytes }) = &mut reading.end {
            *bytes = 1;
        }
        prop_assert_eq!(reading, read_literally(&stream));
    }

    #[test]
    fn what_is_encoded_is_decoded(
        events in vec((prop::option::of("\\PC{0,12}|[a-z\\x00\\r\\n]{0,4}"), ".{0,30}|[a{}: \\r\\n]{0,12}"), 0..8),
        pause in 0..10_000_u64,
        sizes in sizes(),
    ) {
        let mut stream = Vec::new();
        let mut expected = vec![Block { retry: Some(pause), ..Block::default() }];
        sse::encode_retry(&mut stream, std::time::Duration::from_millis(pause));
        for (id, data) in &events {
            sse::encode_comment(&mut stream, data);
            sse::encode(&mut stream, id.as_deref(), data.as_bytes());
            expected.push(Block {
                data: Some(carried(data)),
                id: id.clone().filter(|id| !id.contains(['\0', '\r', '\n'])),
                ..Block::default()
            });
        }
        let reading = read(&stream, &sizes, 1 << 20);
        prop_assert_eq!(reading.blocks, expected);
        prop_assert_eq!(reading.end, Ok(Ending::Clean));
        prop_assert!(!stream.contains(&b'\r'));
    }

    #[test]
    fn garbage_never_panics_and_no_frame_is_larger_than_the_limit(
        stream in vec(any::<u8>(), 0..2_000),
        sizes in sizes(),
        limit in 0..300_usize,
    ) {
        let reading = read(&stream, &sizes, limit);
        for block in &reading.blocks {
            let fields = [&block.event, &block.data, &block.id];
            // Counted in characters, because an invalid byte becomes a character of three bytes.
            let size: usize = fields.into_iter().flatten().map(|field| field.chars().count()).sum();
            prop_assert!(size <= limit);
        }
    }
}
