//! Event ids on the gateway's wires, derived from the upstream's own ids.
//!
//! Every replica, even one that just started, therefore gives the same event the same id.
//!
//! - `packed`: the text format.

use std::fmt;
use std::str::FromStr;

use threadway_translate::langgraph::Cursor;

mod packed;

/// The version of the format of ids, and of the translation that makes the events. A new version may
/// make other events of the same parts, or write their ids differently.
const VERSION: &str = "2";

/// The id of an event: `2`, then in base64url without padding the run's UUID, a check, and where
/// in its run the event was made.
///
/// Each event carries an id, so ids are short: usually at most [`EventId::USUAL_BYTES`]. A run id
/// that is not a UUID is written as it is, before the rest: `2.<run id>.<rest>`.
///
/// The rest is, in bytes: `check` (2, big-endian), then numbers as LEB128: the kind of the stage
/// plus eight times the attempt, the one or two numbers of a cursor, `n`, and `wire_events` unless
/// that is 0. `check` is 16 bits of a digest of all parts up to this one, so a reading of other
/// parts gets another id. `n` counts the run events made of all parts with that cursor.
///
/// In the id of an end, `n` and `check` are a digest of what a client holds then. They are equal for
/// a run's end and for the idle thread, as long as nothing changes.
///
/// One run event may become several wire events: `wire_events` numbers all but the last of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventId {
    run_id: String,
    key: EventKey,
    /// How many wire events of the run event a client with this id has; 0 means all.
    wire_events: u32,
}

/// Where in its run an event was made. Together with the run's id it makes an [`EventId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventKey {
    /// How many times the run had begun by then, as far as this reading of the run knows.
    pub(super) attempt: u32,
    pub(super) stage: Stage,
    pub(super) n: u32,
    pub(super) check: u16,
}

/// The source of an event within its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The start of the run.
    Start,
    /// The parts with this cursor.
    Part(Cursor),
    /// The end of the run, which closes what is still open.
    Close,
    /// The end of the run itself.
    End,
}

/// What a client holds after the end of a run or of an idle thread: 48 bits of a digest of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShownDigest {
    n: u32,
    check: u16,
}

/// The text is not an [`EventId`] of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an event id of this gateway")]
pub struct NotAnEventId;

// === impl EventId ===

impl EventId {
    /// The longest id, in bytes, of a usual event. Usual means: the run id is a UUID, the attempt
    /// is below 16, and the cursor is a count or a time before the year 2109 with a count below
    /// 128. The event is among the first 16,384 of its parts and the first 128 of its run event.
    pub const USUAL_BYTES: usize = 40;

    /// LangGraph's id of the run.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Whether the event is the last of its run.
    pub fn is_terminal(&self) -> bool {
        self.key.stage == Stage::End
    }

    /// The key that the run's end gets when it is sent again to a client that holds this id. `end`
    /// is the end's own. The key differs, since a client may drop an event whose id it has seen.
    pub(super) fn key_of_repeat(&self, end: EventKey) -> EventKey {
        EventKey { attempt: self.key.attempt.wrapping_add(1), ..end }
    }

    /// What a client with this id holds. `None` if it is not the end of a run or of an idle thread,
    /// or the client has only a part of the end.
    pub(super) fn shown(&self) -> Option<ShownDigest> {
        self.key.shown().filter(|_| self.wire_events == 0)
    }

    pub(super) fn key(&self) -> EventKey {
        self.key
    }

    pub(crate) fn wire_events(&self) -> u32 {
        self.wire_events
    }

    /// The id of a client that has all of the event.
    pub(crate) fn whole(self) -> Self {
        Self { wire_events: 0, ..self }
    }

    /// Whether both are ends after which a client holds the same.
    pub(crate) fn is_same_end(&self, other: EventKey) -> bool {
        self.key.shown().is_some() && self.key.shown() == other.shown()
    }
}

impl FromStr for EventId {
    type Err = NotAnEventId;

    fn from_str(text: &str) -> Result<Self, NotAnEventId> {
        let id = text.strip_prefix(VERSION).and_then(packed::read).ok_or(NotAnEventId)?;
        // Each id has one form only.
        if id.to_string() == text { Ok(id) } else { Err(NotAnEventId) }
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.to_id(&self.run_id, self.wire_events).fmt(f)
    }
}

// === impl EventKey ===

impl EventKey {
    /// The key of an event that was not made of a part.
    pub(super) fn at(attempt: u32, stage: Stage, n: u32) -> Self {
        Self { attempt, stage, n, check: 0 }
    }

    /// The key of an end after which a client holds what has this digest.
    pub(super) fn showing(self, digest: u64) -> Self {
        let n = u32::try_from(digest >> 32).unwrap_or_default();
        let check = u16::try_from(digest >> 16 & 0xffff).unwrap_or_default();
        Self { n, check, ..self }
    }

    /// What a client holds after an end. `None` for other events.
    pub(super) fn shown(self) -> Option<ShownDigest> {
        let Self { attempt: _, stage, n, check } = self;
        (stage == Stage::End).then_some(ShownDigest { n, check })
    }

    /// Whether both events were made of the same parts.
    pub(crate) fn is_same_stage(self, other: Self) -> bool {
        (self.attempt, self.stage) == (other.attempt, other.stage)
    }

    /// The [`EventId`] of this event of a run, as text. `wire_events` is how many wire events of
    /// the run event a client with this id has; 0 means all.
    pub(crate) fn to_id(self, run_id: &str, wire_events: u32) -> impl fmt::Display {
        fmt::from_fn(move |f| packed::write(self, run_id, wire_events, f))
    }
}

#[cfg(test)]
mod tests;
