//! The ids of events on our wires: made from the upstream's own, so that any replica, also one that
//! was just started, gives the same event the same id.

use std::fmt;
use std::str::FromStr;

use threadway_translate::langgraph::Cursor;

/// The version of the mapping, and of the form: another one makes other events of the same parts,
/// or writes their ids in another way.
const VERSION: &str = "2";

/// The version before, which made the same events: a client that holds such an id still resumes.
const OLDER_VERSION: &str = "1";

/// The id of an event: `2`, then in base64url without padding the run's UUID, a check, and where
/// in its run the event was made. At most [`EventId::USUAL_BYTES`] long, since each event has one.
///
/// A run id that is no UUID stands before the rest as it is: `2.<run id>.<rest>`.
///
/// The rest is, in bytes: `check` (2, big-endian), then numbers as LEB128: the kind of the place
/// with eight times the attempt, the one or two numbers of a cursor, `n`, and `partly` unless it
/// is 0. `check` is 16 bits of a digest of all parts up to that one: who has read anything else
/// has another. `n` counts the run events of all parts with that cursor.
///
/// A run event may be several on a wire: `partly` numbers all but the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventId {
    run_id: String,
    mark: Mark,
    /// How many of the run event's own have this or an earlier id; 0 stands for all.
    partly: u32,
}

/// Where in its run an event was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// How often the run had begun by then, as far as this reading of it knows.
    pub(super) attempt: u32,
    pub(super) place: Place,
    pub(super) n: u32,
    pub(super) check: u16,
}

/// What an event was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is the start of the run.
    Start,
    /// The parts with this cursor.
    Part(Cursor),
    /// It closes what the end of the run has left open.
    Close,
    /// It is the end of the run.
    End,
}

/// A text is no [`EventId`] of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no event id of this gateway")]
pub struct NotAnEventId;

// === impl EventId ===

impl EventId {
    /// How long an id is at most whose run is a UUID, whose attempt is below 16, whose cursor is a
    /// count or a time before the year 2109 with a count below 128, and whose event is among the
    /// first 16,384 of its parts, and the first 128 of its run event's own.
    pub const USUAL_BYTES: usize = 40;

    /// LangGraph's id of the run.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Whether it is the last of its run: behind it there is nothing.
    pub fn is_terminal(&self) -> bool {
        self.mark.place == Place::End
    }

    /// The mark that the run's end gets when it is sent again to a client that has this id of it.
    /// It differs, since a client may drop an event whose id it has seen.
    pub(super) fn mark_of_repeat(&self) -> Mark {
        Mark { n: self.mark.n.wrapping_add(1), ..self.mark }
    }

    pub(super) fn mark(&self) -> Mark {
        self.mark
    }

    pub(super) fn partly(&self) -> u32 {
        self.partly
    }
}

impl FromStr for EventId {
    type Err = NotAnEventId;

    fn from_str(text: &str) -> Result<Self, NotAnEventId> {
        let (id, written) = if let Some(rest) = text.strip_prefix(VERSION) {
            let id = packed::read(rest).ok_or(NotAnEventId)?;
            let written = id.to_string();
            (id, written)
        } else {
            let id = older::read(text).ok_or(NotAnEventId)?;
            let written = older::write(&id);
            (id, written)
        };
        // Each has one form only.
        if written == text { Ok(id) } else { Err(NotAnEventId) }
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.mark.id_of(&self.run_id, self.partly).fmt(f)
    }
}

// === impl Mark ===

impl Mark {
    /// The mark of what no part has made.
    pub(super) fn at(attempt: u32, place: Place, n: u32) -> Self {
        Self { attempt, place, n, check: 0 }
    }

    /// Whether both events were made of the same parts.
    pub fn is_beside(self, other: Self) -> bool {
        (self.attempt, self.place) == (other.attempt, other.place)
    }

    /// The id of an event of a run: of the whole run event, or of the `partly`th on the wire.
    pub fn id_of(self, run_id: &str, partly: u32) -> impl fmt::Display {
        fmt::from_fn(move |f| packed::write(self, run_id, partly, f))
    }
}

/// The form of this version.
mod packed {
    use base64::display::Base64Display;
    use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
    use uuid::Uuid;
    use uuid::fmt::Hyphenated;

    use super::{Cursor, EventId, Mark, Place, VERSION, fmt};

    /// The longest: a UUID, a check, and a number of 35 bits, two of 64 and two of 32 bits.
    const MOST: usize = 16 + 2 + 5 + 2 * 10 + 2 * 5;

    // The kinds of a place.
    const START: u64 = 0;
    const COUNT: u64 = 1;
    const TIME: u64 = 2;
    const CLOSE: u64 = 3;
    const END: u64 = 4;

    /// Bytes before they are base64.
    struct Packed {
        bytes: [u8; MOST],
        len: usize,
    }

    pub(super) fn write(
        mark: Mark,
        run_id: &str,
        partly: u32,
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        let Mark { attempt, place, n, check } = mark;
        let mut packed = Packed { bytes: [0; MOST], len: 0 };
        f.write_str(VERSION)?;
        match uuid(run_id) {
            Some(uuid) => packed.put(uuid.as_bytes()),
            None => write!(f, ".{run_id}.")?,
        }
        packed.put(&check.to_be_bytes());
        let (kind, cursor) = match place {
            Place::Start => (START, None),
            Place::Part(cursor) if cursor.count().is_none() => (COUNT, Some(cursor)),
            Place::Part(cursor) => (TIME, Some(cursor)),
            Place::Close => (CLOSE, None),
            Place::End => (END, None),
        };
        packed.put_number(u64::from(attempt) << 3 | kind);
        if let Some(cursor) = cursor {
            packed.put_number(cursor.number());
            if let Some(count) = cursor.count() {
                packed.put_number(count);
            }
        }
        packed.put_number(n.into());
        if partly > 0 {
            packed.put_number(partly.into());
        }
        write!(f, "{}", Base64Display::new(packed.as_bytes(), &BASE64_URL_SAFE_NO_PAD))
    }

    /// Reads what is behind the version.
    pub(super) fn read(text: &str) -> Option<EventId> {
        let (named, text) = match text.strip_prefix('.') {
            Some(rest) => {
                let (run_id, rest) = rest.rsplit_once('.')?;
                (Some(run_id.to_owned()), rest)
            }
            None => (None, text),
        };
        // base64 wants room for whole groups of four.
        let mut bytes = [0; MOST + 3];
        let len = BASE64_URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?;
        let mut rest = bytes.get(..len)?;
        let run_id = match named {
            Some(run_id) => Some(run_id).filter(|id| !id.is_empty())?,
            None => Uuid::from_bytes(*take(&mut rest)?).to_string(),
        };
        let check = u16::from_be_bytes(*take(&mut rest)?);
        let head = number(&mut rest)?;
        let place = match head & 7 {
            START => Place::Start,
            COUNT => Place::Part(Cursor::new(number(&mut rest)?, None)),
            TIME => {
                let time = number(&mut rest)?;
                Place::Part(Cursor::new(time, Some(number(&mut rest)?)))
            }
            CLOSE => Place::Close,
            END => Place::End,
            _ => return None,
        };
        let n = number(&mut rest)?.try_into().ok()?;
        let partly = if rest.is_empty() { 0 } else { number(&mut rest)?.try_into().ok()? };
        let attempt = u32::try_from(head >> 3).ok()?;
        rest.is_empty().then_some(EventId {
            run_id,
            mark: Mark { attempt, place, n, check },
            partly,
        })
    }

    /// A run id that is a UUID, in the form in which it is written again.
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
}

/// The form of version 1: `1.<run id>.<attempt>.<place>.<n>.<check>`, with `-<partly>` behind `n`.
mod older {
    use super::{EventId, Mark, OLDER_VERSION, Place};

    pub(super) fn read(text: &str) -> Option<EventId> {
        let mut fields = text.rsplitn(5, '.');
        let (check, n, place) = (fields.next()?, fields.next()?, fields.next()?);
        let (attempt, run_id) = (fields.next()?, fields.next()?);
        let run_id = run_id.strip_prefix(OLDER_VERSION)?.strip_prefix('.')?;
        let (n, partly) = n.split_once('-').unwrap_or((n, "0"));
        let place = match place {
            "start" => Place::Start,
            "close" => Place::Close,
            "end" => Place::End,
            cursor => Place::Part(cursor.parse().ok()?),
        };
        let (attempt, n) = (attempt.parse().ok()?, n.parse().ok()?);
        let check = u16::from_str_radix(check, 16).ok()?;
        (!run_id.is_empty()).then_some(EventId {
            run_id: run_id.to_owned(),
            mark: Mark { attempt, place, n, check },
            partly: partly.parse().ok()?,
        })
    }

    pub(super) fn write(id: &EventId) -> String {
        let EventId { run_id, mark: Mark { attempt, place, n, check }, partly } = id;
        let place = match place {
            Place::Start => "start".to_owned(),
            Place::Part(cursor) => cursor.to_string(),
            Place::Close => "close".to_owned(),
            Place::End => "end".to_owned(),
        };
        let partly = if *partly > 0 { format!("-{partly}") } else { String::new() };
        format!("{OLDER_VERSION}.{run_id}.{attempt}.{place}.{n}{partly}.{check:04x}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    const RUN: &str = "01a200b7-5ee6-7592-b13b-546489e59c9e";

    fn of(place: &str, attempt: u32, n: u32, partly: u32, check: u16) -> EventId {
        let place = match place {
            "start" => Place::Start,
            "close" => Place::Close,
            "end" => Place::End,
            cursor => Place::Part(cursor.parse().unwrap()),
        };
        EventId { run_id: RUN.to_owned(), mark: Mark { attempt, place, n, check }, partly }
    }

    /// Such an id may stand in a client's store: it must be the same in every release of version 2.
    #[test]
    fn an_id_has_the_form_that_is_written_down() {
        for (id, text) in [
            (of("start", 1, 0, 0, 0), "2AaIAt17mdZKxO1RkieWcngAACAA"),
            (of("1795305649395-0", 1, 3, 0, 0xfe), "2AaIAt17mdZKxO1RkieWcngD-CvPpuISgNAAD"),
            (of("1795305649395-12", 2, 3, 1, 0xfe), "2AaIAt17mdZKxO1RkieWcngD-EvPpuISgNAwDAQ"),
            (of("17", 1, 0, 0, 0xfe), "2AaIAt17mdZKxO1RkieWcngD-CREA"),
            (of("close", 1, 300, 2, 0xfe), "2AaIAt17mdZKxO1RkieWcngD-C6wCAg"),
            (of("end", 1, 0, 0, 0), "2AaIAt17mdZKxO1RkieWcngAADAA"),
        ] {
            assert_eq!(id.to_string(), text, "{id:?}");
            assert_eq!(text.parse(), Ok(id));
        }
        let other = EventId { run_id: "a run.with.dots".to_owned(), ..of("end", 1, 0, 0, 0) };
        assert_eq!(other.to_string(), "2.a run.with.dots.AAAMAA");
        assert_eq!("2.a run.with.dots.AAAMAA".parse(), Ok(other));
    }

    #[test]
    fn an_id_of_the_version_before_names_the_same_event() {
        for (text, expected) in [
            (format!("1.{RUN}.1.1795305649395-0.3.00fe"), of("1795305649395-0", 1, 3, 0, 0xfe)),
            (format!("1.{RUN}.2.17.0-1.ffff"), of("17", 2, 0, 1, 0xffff)),
            (format!("1.{RUN}.1.start.0.0000"), of("start", 1, 0, 0, 0)),
            (format!("1.{RUN}.1.close.2.0000"), of("close", 1, 2, 0, 0)),
            (format!("1.{RUN}.1.end.0.0000"), of("end", 1, 0, 0, 0)),
        ] {
            let id: EventId = text.parse().unwrap();
            assert_eq!(id.is_terminal(), text.contains(".end."), "{text}");
            assert_eq!(id, expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_id_of_ours_is_none() {
        for text in [
            "",
            "1",
            "2",
            "17",
            "3.R.AAAIAA",
            "1.R.1.start.0",
            "1..1.start.0.0000",
            "R.1.start.0.0000",
            "1.R.1.middle.0.0000",
            "1.R.x.start.0.0000",
            "1.R.1.start.0.zzzz",
            "1.R.1.start.0.10000",
            "1.R.1.start.-1.0000",
            "1.R.1.start.0-0.0000",
            "1.R.1.end.0.00000",
            "1.R.1.end.0.+000",
            "1.R.01.end.0.0000",
            "1.R.1.1-0-0.0.0000",
            // No run, no `n`, a kind that there is not.
            "2..AAAIAA",
            "2.R.AAAI",
            "2.R.AAANAA",
            // Each has one form only: a UUID as text, a number too long, a 0 that is left out,
            // bits behind the last byte, padding, the other alphabet.
            "2.01a200b7-5ee6-7592-b13b-546489e59c9e.AAAIAA",
            "2.R.AAAIgAA",
            "2.R.AAAIAAA",
            "2.R.AAAIAB",
            "2.R.AAAIAA=",
            "2.R.AP4IAA==",
            "2.R.AP4+AA",
            // More than there is, and a number of more than 64 bits.
            "2.R.AAAIAAEA",
            "2.R.AAAJ____________AQAA",
            "2AaIAt17mdZKxO1RkieWcng",
            "2AaIAt17mdZKxO1RkieWcngAACAA.",
        ] {
            assert_eq!(text.parse::<EventId>(), Err(NotAnEventId), "{text}");
        }
        let long = format!("2{}", "A".repeat(100_000));
        assert_eq!(long.parse::<EventId>(), Err(NotAnEventId));
    }

    fn any_id(usual: bool) -> impl Strategy<Value = EventId> {
        let most = |usual_most: u64, most: u64| 0..=if usual { usual_most } else { most };
        let place = prop_oneof![
            Just(Place::Start),
            Just(Place::Close),
            Just(Place::End),
            most((1 << 42) - 1, u64::MAX).prop_map(|count| Place::Part(Cursor::new(count, None))),
            (most((1 << 42) - 1, u64::MAX), most(127, u64::MAX))
                .prop_map(|(time, count)| Place::Part(Cursor::new(time, Some(count)))),
        ];
        let number = move |usual_most| {
            most(usual_most, u32::MAX.into()).prop_map(|number| u32::try_from(number).unwrap())
        };
        let run_id = if usual {
            any::<u128>().prop_map(|id| Uuid::from_u128(id).to_string()).boxed()
        } else {
            prop_oneof!["[!-~]{1,60}", any::<u128>().prop_map(|id| Uuid::from_u128(id).to_string())]
                .boxed()
        };
        (run_id, number(15), place, number(16_383), any::<u16>(), number(127)).prop_map(
            |(run_id, attempt, place, n, check, partly)| {
                let mark = Mark { attempt, place, n, check };
                EventId { run_id, mark, partly }
            },
        )
    }

    proptest! {
        #[test]
        fn an_id_is_read_as_it_was_written(id in any_id(false)) {
            prop_assert_eq!(id.to_string().parse(), Ok(id.clone()), "{}", id);
            prop_assert_eq!(older::write(&id).parse(), Ok(id.clone()));
        }

        #[test]
        fn an_id_is_at_most_as_long_as_it_says(id in any_id(true)) {
            let text = id.to_string();
            prop_assert_eq!(text.parse(), Ok(id));
            prop_assert!(text.len() <= EventId::USUAL_BYTES, "{} bytes: {}", text.len(), text);
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
        }

        #[test]
        fn no_text_but_its_own_is_read_as_an_id(text in "2(\\.R\\.)?[A-Za-z0-9_-]{4,60}") {
            if let Ok(id) = text.parse::<EventId>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
