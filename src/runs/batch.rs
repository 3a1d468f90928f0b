//! Events of a run, each with its mark.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::time::Instant;

use super::event_id::Mark;
use threadway_translate::json::Json;
use threadway_translate::langgraph::ErrorDetail;
use threadway_translate::run::{Outcome, RunEvent};

/// Events, and the mark of each that can be resumed behind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Events {
    list: Vec<RunEvent>,
    /// As many as events.
    marks: Vec<Option<Mark>>,
    /// The upstream's parts, each with the place of the first event that was made of it. Only where
    /// clients are sent them.
    raws: Vec<(usize, Json)>,
    /// When the bytes were read that they were made of; `None` of what was made of something else.
    read_at: Option<Instant>,
    encodings: Encodings,
}

/// How many forms of the same events are kept: each framing for each generation of clients.
pub const ENCODINGS: usize = 10;

/// What the events are on the wires, where that is the same for all clients: made by the first
/// stream that sends them.
#[derive(Default)]
struct Encodings(OnceLock<Box<[OnceLock<Bytes>; ENCODINGS]>>);

/// What a reader reads at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    events: Arc<Events>,
    told: usize,
    partly: u32,
}

// === impl Events ===

impl Events {
    /// None yet, to be made of bytes that were read then.
    pub(super) fn read_at(read_at: Option<Instant>) -> Self {
        Self { read_at, ..Self::default() }
    }

    /// Lets events be added that nobody can resume behind.
    pub(super) fn unmarked(&mut self, add: impl FnOnce(&mut Vec<RunEvent>)) {
        add(&mut self.list);
        self.marks.resize(self.list.len(), None);
    }

    /// Lets events be added, and marks each as is told then.
    pub(super) fn marked<M: FnMut(&RunEvent) -> Option<Mark>>(
        &mut self,
        add: impl FnOnce(&mut Vec<RunEvent>) -> M,
    ) {
        let mark = add(&mut self.list);
        self.marks.extend(self.list.iter().skip(self.marks.len()).map(mark));
    }

    /// Adds one.
    pub(super) fn push(&mut self, event: RunEvent, mark: Option<Mark>) {
        self.list.push(event);
        self.marks.push(mark);
    }

    /// The upstream's part that was made into the events from `from` on, if it was made into any.
    pub(super) fn made_of(&mut self, from: usize, part: Json) {
        if self.list.len() > from {
            self.raws.push((from, part));
        }
    }

    /// Adds others behind these.
    pub(super) fn append(&mut self, others: Self) {
        let behind = self.list.len();
        self.raws.extend(others.raws.into_iter().map(|(at, part)| (behind + at, part)));
        self.list.extend(others.list);
        self.marks.extend(others.marks);
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.list.clear();
        self.marks.clear();
        self.raws.clear();
    }

    /// Tells no more than this of why the run failed.
    pub(super) fn tell_failure(&mut self, detail: ErrorDetail) {
        if let Some(RunEvent::Ended { outcome: Outcome::Failed(failure), .. }) =
            self.list.last_mut()
        {
            *failure = failure.clone().redacted(detail);
        }
    }

    /// The mark of the last event.
    pub(super) fn last_mark(&self) -> Option<Mark> {
        self.marks.last().copied().flatten()
    }

    /// The same events; the last one gets this mark.
    pub(super) fn with_last_mark(&self, mark: Mark) -> Self {
        let mut events = self.clone();
        if let Some(last) = events.marks.last_mut() {
            *last = Some(mark);
        }
        events
    }

    /// Where the event with this mark stands.
    pub(super) fn find(&self, mark: Mark) -> Option<usize> {
        self.marks.iter().position(|other| *other == Some(mark))
    }

    /// About how many bytes of memory they keep.
    pub(super) fn weight(&self) -> usize {
        let events: usize = self.list.iter().map(RunEvent::weight).sum();
        let raws: usize = self.raws.iter().map(|(_, part)| part.get().len()).sum();
        events + raws + self.marks.len() * size_of::<Option<Mark>>()
    }
}

impl From<Vec<RunEvent>> for Events {
    /// Events that nobody can resume behind.
    fn from(list: Vec<RunEvent>) -> Self {
        let marks = vec![None; list.len()];
        Self { list, marks, ..Self::default() }
    }
}

impl Deref for Events {
    type Target = [RunEvent];

    fn deref(&self) -> &[RunEvent] {
        &self.list
    }
}

// === impl Encodings ===

impl Clone for Encodings {
    /// Other events, to which others may be added.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Encodings {
    /// They say what the events say.
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Encodings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encodings").finish_non_exhaustive()
    }
}

// === impl Batch ===
impl Batch {
    /// Events of which the reader's client has the first ones already, and of the one behind them
    /// so many of what it is on the wire.
    pub(super) fn told(events: impl Into<Arc<Events>>, told: usize, partly: u32) -> Self {
        Self { events: events.into(), told, partly }
    }

    /// Each event, with its mark.
    pub fn marked(&self) -> impl Iterator<Item = (&RunEvent, Option<Mark>)> {
        self.events.list.iter().zip(self.events.marks.iter().copied())
    }

    /// The upstream's part that the event at this place is the first of, where clients are sent it.
    pub fn raw(&self, at: usize) -> Option<&Json> {
        let Events { raws, .. } = &*self.events;
        let found = raws.binary_search_by_key(&at, |(at, _)| *at).ok()?;
        raws.get(found).map(|(_, part)| part)
    }

    /// The bytes of the events in one of [`ENCODINGS`] forms, made by `encode` unless another stream
    /// has made them. `None` if clients are sent these events in ways of their own: how the run is
    /// called, whether it has ended for them, and the ids of what nobody can resume behind.
    pub fn encoded(&self, form: usize, encode: impl FnOnce() -> Bytes) -> Option<Bytes> {
        let Events { list, marks, raws: _, encodings, read_at: _ } = &*self.events;
        let is_own =
            |event: &RunEvent| matches!(event, RunEvent::Started { .. } | RunEvent::Ended { .. });
        if self.told > 0
            || self.partly > 0
            || marks.iter().any(Option::is_none)
            || list.iter().any(is_own)
        {
            return None;
        }
        let encoding = encodings.0.get_or_init(Box::default).get(form)?;
        if let Some(bytes) = encoding.get() {
            return Some(bytes.clone());
        }
        // Two streams may both make them: none waits for the other.
        let bytes = encode();
        let _ = encoding.set(bytes.clone());
        Some(bytes)
    }

    /// When the upstream's bytes were read that the events were made of.
    pub fn read_at(&self) -> Option<Instant> {
        self.events.read_at
    }

    /// How many of the first events the reader's client has already. They say what the others go
    /// on from.
    pub fn told_events(&self) -> usize {
        self.told
    }

    /// Of the first event that it has not, how many of what it is on the wire it has.
    pub fn told_of_next(&self) -> u32 {
        self.partly
    }
}

impl From<Arc<Events>> for Batch {
    fn from(events: Arc<Events>) -> Self {
        Self { events, told: 0, partly: 0 }
    }
}

impl From<Events> for Batch {
    fn from(events: Events) -> Self {
        Arc::new(events).into()
    }
}

impl Deref for Batch {
    type Target = [RunEvent];

    fn deref(&self) -> &[RunEvent] {
        &self.events
    }
}
