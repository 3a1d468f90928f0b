//! The position of an event in a run's stream.

use std::fmt;
use std::str::FromStr;

/// The server's id of an event, from which a stream can be resumed.
///
/// The Python server writes `<milliseconds>-<count>`, and several events may have the same id. The
/// JavaScript server writes a count. aegra writes the run's id, then a count: see `IdForm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    number: u64,
    count: Option<u64>,
}

/// How a server writes its ids of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum IdForm {
    /// The cursor alone.
    #[default]
    Bare,
    /// `<run id>_event_<count>`, as aegra (0.11.0).
    OfRun,
}

/// The text is not a [`Cursor`], so it has no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an event id of a LangGraph server")]
pub struct ParseCursorError;

/// Numbers above this one are times: the year 2001 in milliseconds.
const FIRST_TIME: u64 = 1_000_000_000_000;

/// What aegra writes between the run's id and the count.
const OF_RUN: &str = "_event_";

// === impl Cursor ===

impl Cursor {
    /// `number` is a count, or the milliseconds if there is a `count`.
    pub fn new(number: u64, count: Option<u64>) -> Self {
        Self { number, count }
    }

    /// Reads a server's id of an event. `None` if it has no order.
    pub(super) fn of_event(id: &str) -> Option<(Self, IdForm)> {
        match id.rsplit_once(OF_RUN) {
            Some((_, count)) => {
                let cursor: Self = count.parse().ok()?;
                cursor.count.is_none().then_some((cursor, IdForm::OfRun))
            }
            None => Some((id.parse().ok()?, IdForm::Bare)),
        }
    }

    /// The server's id of this event of the run.
    pub(super) fn to_event_id(self, form: IdForm, run_id: &str) -> String {
        match form {
            IdForm::Bare => self.to_string(),
            IdForm::OfRun => format!("{run_id}{OF_RUN}{self}"),
        }
    }

    /// The milliseconds, or the count of the JavaScript server.
    pub fn number(self) -> u64 {
        self.number
    }

    /// Whether the number is a time, and no count.
    pub fn is_time(self) -> bool {
        self.number > FIRST_TIME
    }

    /// The count within the milliseconds.
    pub fn count(self) -> Option<u64> {
        self.count
    }
}

impl FromStr for Cursor {
    type Err = ParseCursorError;

    /// Accepts only a text that [`Display`](fmt::Display) writes again, because the id is sent back
    /// to the server.
    fn from_str(text: &str) -> Result<Self, ParseCursorError> {
        let number = |text: &str| {
            let is_written_so = text == "0" || !text.starts_with(['0', '+']);
            text.parse().ok().filter(|_| is_written_so).ok_or(ParseCursorError)
        };
        Ok(match text.split_once('-') {
            Some((time, count)) => Self { number: number(time)?, count: Some(number(count)?) },
            None => Self { number: number(text)?, count: None },
        })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            Some(count) => write!(f, "{}-{count}", self.number),
            None => write!(f, "{}", self.number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_written_as_it_was_read() {
        for text in ["0", "17", "1795305649395-0", "1795305649395-12"] {
            assert_eq!(text.parse::<Cursor>().unwrap().to_string(), text);
        }
        for text in ["", "-", "-1", "1-", "x", "1-x", "01", "1-01", "+1", "1-2-3", " 1"] {
            assert_eq!(text.parse::<Cursor>(), Err(ParseCursorError), "{text}");
        }
    }

    #[test]
    fn an_id_that_names_its_run_is_written_as_it_was_read() {
        for (id, form) in
            [("17", IdForm::Bare), ("5-1", IdForm::Bare), ("R_event_17", IdForm::OfRun)]
        {
            let (cursor, read) = Cursor::of_event(id).unwrap();
            assert_eq!((read, cursor.to_event_id(form, "R")), (form, id.to_owned()));
        }
        for id in ["R_event_", "R_event_x", "R_event_5-1", "R_17", "_event", ""] {
            assert_eq!(Cursor::of_event(id), None, "{id}");
        }
    }

    #[test]
    fn cursors_are_ordered_as_the_server_counts() {
        let ordered = ["9", "10", "11-0", "11-2", "11-10", "12-0"];
        let cursors = ordered.map(|text| text.parse::<Cursor>().unwrap());
        assert!(cursors.is_sorted());
    }
}
