//! The id format of version 2: `2`, then in base64url the run's UUID and the fields of an [`EventKey`].

use std::fmt;

use base64::display::Base64Display;
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::{EventId, EventKey, Stage, VERSION};
use threadway_translate::langgraph::Cursor;

/// The longest form: a UUID, a check, then numbers of 35, twice 64 and twice 32 bits.
const MAX_BYTES: usize = 16 + 2 + 5 + 2 * 10 + 2 * 5;

// The numbers that stand for the stages.
const START: u64 = 0;
const COUNT: u64 = 1;
const TIME: u64 = 2;
const CLOSE: u64 = 3;
const END: u64 = 4;

/// The bytes before base64 encoding.
struct Packed {
    bytes: [u8; MAX_BYTES],
    len: usize,
}

pub(super) fn write(
    key: EventKey,
    run_id: &str,
    wire_events: u32,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let EventKey { attempt, stage, n, check } = key;
    let mut packed = Packed { bytes: [0; MAX_BYTES], len: 0 };
    f.write_str(VERSION)?;
    match uuid(run_id) {
        Some(uuid) => packed.put(uuid.as_bytes()),
        None => write!(f, ".{run_id}.")?,
    }
    packed.put(&check.to_be_bytes());
    let (kind, cursor) = match stage {
        Stage::Start => (START, None),
        Stage::Part(cursor) if cursor.count().is_none() => (COUNT, Some(cursor)),
        Stage::Part(cursor) => (TIME, Some(cursor)),
        Stage::Close => (CLOSE, None),
        Stage::End => (END, None),
    };
    packed.put_number(u64::from(attempt) << 3 | kind);
    if let Some(cursor) = cursor {
        packed.put_number(cursor.number());
        if let Some(count) = cursor.count() {
            packed.put_number(count);
        }
    }
    packed.put_number(n.into());
    if wire_events > 0 {
        packed.put_number(wire_events.into());
    }
    write!(f, "{}", Base64Display::new(packed.as_bytes(), &BASE64_URL_SAFE_NO_PAD))
}

/// Reads the text after the version.
pub(super) fn read(text: &str) -> Option<EventId> {
    let (named, text) = match text.strip_prefix('.') {
        Some(rest) => {
            let (run_id, rest) = rest.rsplit_once('.')?;
            (Some(run_id.to_owned()), rest)
        }
        None => (None, text),
    };
    // The base64 decoder needs room for whole groups of four.
    let mut bytes = [0; MAX_BYTES + 3];
    let len = BASE64_URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?;
    let mut rest = bytes.get(..len)?;
    let run_id = match named {
        Some(run_id) => Some(run_id).filter(|id| !id.is_empty())?,
        None => Uuid::from_bytes(*take(&mut rest)?).to_string(),
    };
    let check = u16::from_be_bytes(*take(&mut rest)?);
    let head = number(&mut rest)?;
    let stage = match head & 7 {
        START => Stage::Start,
        COUNT => Stage::Part(Cursor::new(number(&mut rest)?, None)),
        TIME => {
            let time = number(&mut rest)?;
            Stage::Part(Cursor::new(time, Some(number(&mut rest)?)))
        }
        CLOSE => Stage::Close,
        END => Stage::End,
        _ => return None,
    };
    let n = number(&mut rest)?.try_into().ok()?;
    let wire_events = if rest.is_empty() { 0 } else { number(&mut rest)?.try_into().ok()? };
    let attempt = u32::try_from(head >> 3).ok()?;
    rest.is_empty().then_some(EventId {
        run_id,
        key: EventKey { attempt, stage, n, check },
        wire_events,
    })
}

/// The UUID of a run id, if writing the UUID gives the same text again.
fn uuid(run_id: &str) -> Option<Uuid> {
    let uuid = Uuid::try_parse(run_id).ok()?;
    let mut written = [0; Hyphenated::LENGTH];
    (uuid.hyphenated().encode_lower(&mut written) == run_id).then_some(uuid)
}

fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(taken)
}

/// Reads a number in LEB128.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let [byte] = *take(bytes)?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

impl Packed {
    fn put(&mut self, bytes: &[u8]) {
        for (to, byte) in self.bytes.iter_mut().skip(self.len).zip(bytes) {
            *to = *byte;
        }
        self.len += bytes.len();
    }

    /// Writes a number in LEB128.
    fn put_number(&mut self, mut number: u64) {
        loop {
            let [low, ..] = number.to_le_bytes();
            number >>= 7;
            if number == 0 {
                return self.put(&[low & 0x7f]);
            }
            self.put(&[low | 0x80]);
        }
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}
