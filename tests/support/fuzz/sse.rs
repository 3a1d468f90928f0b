//! Reads any bytes as an event stream. The frames follow the standard in any chunking, no frame
//! exceeds the limit, and what is encoded decodes to the same.

use std::time::Duration;

use threadway_translate::sse::{self, Ending, MAX_EVENT_BYTES};

use super::Dials;
use crate::support::reading::{Block, Reading, carried, read, read_literally};

/// The limits that the first setting chooses from.
const LIMITS: [usize; 5] = [MAX_EVENT_BYTES, 0, 7, 64, 1_000];

pub(crate) fn check(stream: &[u8]) {
    let dials = Dials::of(stream);
    let limit = LIMITS[dials.choose(0, LIMITS.len())];
    let whole = read(stream, &[], limit);
    let sizes = [1 + dials.choose(1, 70), 1 + dials.choose(2, 5)];
    assert_eq!(read(stream, &sizes, limit), whole, "in chunks of {sizes:?}");
    assert_eq!(read(stream, &[1], limit), whole, "byte by byte");
    check_size(&whole, limit);
    if limit == MAX_EVENT_BYTES {
        check_standard(stream, &whole);
    }
    check_round_trip(&whole.blocks, &sizes);
}

fn check_size(reading: &Reading, limit: usize) {
    for block in &reading.blocks {
        let fields = [&block.event, &block.data, &block.id];
        // Counted in characters, because an invalid byte becomes a character of three bytes.
        let size: usize = fields.into_iter().flatten().map(|field| field.chars().count()).sum();
        assert!(size <= limit, "{size} characters of {limit}");
    }
    if let Ok(Ending::Partial { bytes }) = reading.end {
        // The end of the last line counts as part of the block, and may add two bytes.
        assert!(bytes <= limit + 2, "{bytes} bytes of {limit} are held");
    }
}

fn check_standard(stream: &[u8], reading: &Reading) {
    let literally = read_literally(stream);
    assert_eq!(reading.blocks, literally.blocks);
    assert_eq!(reading.comments, literally.comments);
    let is_clean = |reading: &Reading| reading.end == Ok(Ending::Clean);
    assert_eq!(is_clean(reading), is_clean(&literally), "{:?}", reading.end);
}

/// Encodes the blocks and decodes them again.
fn check_round_trip(blocks: &[Block], sizes: &[usize]) {
    let (mut stream, mut expected) = (Vec::new(), Vec::new());
    for Block { event: _, data, id, retry } in blocks {
        let data = data.as_deref().unwrap_or_default();
        sse::encode_comment(&mut stream, data);
        sse::encode(&mut stream, id.as_deref(), data.as_bytes());
        expected.push(Block { data: Some(carried(data)), id: id.clone(), ..Block::default() });
        if let Some(retry) = *retry {
            sse::encode_retry(&mut stream, Duration::from_millis(retry));
            expected.push(Block { retry: Some(retry), ..Block::default() });
        }
    }
    assert!(!stream.contains(&b'\r'), "only LF is written");
    let again = read(&stream, sizes, MAX_EVENT_BYTES);
    assert_eq!(again.blocks, expected);
    assert_eq!(again.end, Ok(Ending::Clean));
}
