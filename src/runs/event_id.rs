//! The ids of events on our wires: made from the upstream's own, so that any replica, also one that
//! was just started, gives the same event the same id.

use std::fmt;
use std::str::FromStr;

use crate::langgraph::Cursor;

/// The version of the mapping: another one makes other events of the same parts.
const VERSION: &str = "1";

/// The id of an event: `1.<run id>.<attempt>.<cursor>.<n>.<check>`, where `n` counts the run events
/// of all parts with that cursor, and `check` is 16 bits of a digest of all parts up to that one:
/// who has read anything else has another.
///
/// A run event may be several on a wire: behind `n` stands `-<k>` with all but the last.
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
        let mut fields = text.rsplitn(5, '.');
        let mut field = || fields.next().ok_or(NotAnEventId);
        let (check, n, place, attempt) = (field()?, field()?, field()?, field()?);
        let run_id = field()?.strip_prefix(VERSION).and_then(|rest| rest.strip_prefix('.'));
        let (n, partly) = n.split_once('-').unwrap_or((n, "0"));
        let number = |text: &str| text.parse::<u32>().map_err(|_| NotAnEventId);
        let id = Self {
            run_id: run_id.filter(|id| !id.is_empty()).ok_or(NotAnEventId)?.to_owned(),
            mark: Mark {
                attempt: number(attempt)?,
                place: match place {
                    "start" => Place::Start,
                    "close" => Place::Close,
                    "end" => Place::End,
                    cursor => Place::Part(cursor.parse().map_err(|_| NotAnEventId)?),
                },
                n: number(n)?,
                check: u16::from_str_radix(check, 16).map_err(|_| NotAnEventId)?,
            },
            partly: number(partly)?,
        };
        // Each has one form only.
        if id.to_string() == text { Ok(id) } else { Err(NotAnEventId) }
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

    /// The id of an event of a run: of the whole run event, or of the `partly`th on the wire.
    pub fn id_of(self, run_id: &str, partly: u32) -> impl fmt::Display {
        let Self { attempt, place, n, check } = self;
        fmt::from_fn(move |f| {
            write!(f, "{VERSION}.{run_id}.{attempt}.{place}.{n}")?;
            if partly > 0 {
                write!(f, "-{partly}")?;
            }
            write!(f, ".{check:04x}")
        })
    }
}

// === impl Place ===

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("start"),
            Self::Part(cursor) => cursor.fmt(f),
            Self::Close => f.write_str("close"),
            Self::End => f.write_str("end"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_was_written() {
        for text in [
            "1.01a200b7-5ee6-7592-b13b-546489e59c9e.1.1795305649395-0.3.00fe",
            "1.a run.with.dots.2.17.0-1.ffff",
            "1.R.1.start.0.0000",
            "1.R.1.close.2.0000",
            "1.R.1.end.0.0000",
        ] {
            let id: EventId = text.parse().unwrap();
            assert_eq!(id.to_string(), text);
            assert_eq!(id.is_terminal(), text.contains(".end."), "{text}");
        }
    }

    #[test]
    fn what_is_no_id_of_ours_is_none() {
        for text in [
            "",
            "1",
            "17",
            "2.R.1.start.0.0000",
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
        ] {
            assert_eq!(text.parse::<EventId>(), Err(NotAnEventId), "{text}");
        }
    }
}
