//! Events of a run, each with its key, and the batches that a reader takes.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::time::Instant;

use super::event_id::EventKey;
use threadway_translate::json::Json;
use threadway_translate::langgraph::ErrorDetail;
use threadway_translate::run::{Outcome, RunEvent};

/// Events, each with a key if a client can resume after it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Events {
    list: Vec<RunEvent>,
    /// One entry for each event.
    keys: Vec<Option<EventKey>>,
    /// The upstream's parts, each with the index of the first event made of it. Filled only where
    /// clients are sent raw parts.
    raws: Vec<(usize, Json)>,
    /// When the upstream's bytes were read; `None` if the events were made of something else.
    read_at: Option<Instant>,
    /// The key of the newest event that a snapshot among these events includes.
    includes: Option<EventKey>,
    encodings: Encodings,
}

/// How many encodings of the same events are kept: each framing for each generation of clients.
pub(crate) const ENCODINGS: usize = 10;

/// The encodings that are the same for all clients. The first stream that needs one makes it.
#[derive(Default)]
struct Encodings(OnceLock<Box<[OnceLock<Bytes>; ENCODINGS]>>);

/// Events that a reader takes at once. Its client may have the first ones already.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    events: Arc<Events>,
    delivered: usize,
    delivered_wire_events: u32,
    /// Whether other streams are sent the same events, so that their encoding is worth its memory.
    is_shared: bool,
}

// === impl Events ===

impl Events {
    /// An empty list, for events of bytes that were read at this time.
    pub(super) fn read_at(read_at: Option<Instant>) -> Self {
        Self { read_at, ..Self::default() }
    }

    /// An empty list, for events of the same bytes.
    pub(super) fn emptied(&self) -> Self {
        Self::read_at(self.read_at)
    }

    /// Each event with its key, and the upstream's part if the event is the first of that.
    pub(super) fn entries(
        &self,
    ) -> impl Iterator<Item = (&RunEvent, Option<EventKey>, Option<&Json>)> {
        let mut raws = self.raws.iter().peekable();
        self.list.iter().zip(&self.keys).enumerate().map(move |(at, (event, key))| {
            let raw = raws.next_if(|(first, _)| *first == at);
            (event, *key, raw.map(|(_, part)| part))
        })
    }

    /// Adds events that no client can resume after.
    pub(super) fn without_keys(&mut self, add: impl FnOnce(&mut Vec<RunEvent>)) {
        add(&mut self.list);
        self.keys.resize(self.list.len(), None);
    }

    /// Adds events. `add` returns the function that gives each of them its key.
    pub(super) fn with_keys<K: FnMut(&RunEvent) -> Option<EventKey>>(
        &mut self,
        add: impl FnOnce(&mut Vec<RunEvent>) -> K,
    ) {
        let key = add(&mut self.list);
        self.keys.extend(self.list.iter().skip(self.keys.len()).map(key));
    }

    pub(super) fn push(&mut self, event: RunEvent, key: Option<EventKey>) {
        self.list.push(event);
        self.keys.push(key);
    }

    /// Keeps the upstream's part that the events from index `from` on were made of, if there are
    /// any.
    pub(super) fn made_of(&mut self, from: usize, part: Json) {
        if self.list.len() > from {
            self.raws.push((from, part));
        }
    }

    pub(super) fn append(&mut self, others: Self) {
        let len = self.list.len();
        self.raws.extend(others.raws.into_iter().map(|(at, part)| (len + at, part)));
        self.list.extend(others.list);
        self.keys.extend(others.keys);
    }

    /// Removes all events, and keeps the time that their bytes were read.
    pub fn clear(&mut self) {
        self.list.clear();
        self.keys.clear();
        self.raws.clear();
    }

    /// Reduces the message of a failed run to what `detail` lets clients see.
    pub(super) fn redact_failure(&mut self, detail: ErrorDetail) {
        if let Some(RunEvent::Ended { outcome: Outcome::Failed(failure), .. }) =
            self.list.last_mut()
        {
            *failure = failure.clone().redacted(detail);
        }
    }

    /// Notes the newest event that these events include.
    pub(super) fn set_includes(&mut self, key: Option<EventKey>) {
        self.includes = key;
    }

    /// The key of the last event.
    pub(super) fn last_key(&self) -> Option<EventKey> {
        self.keys.last().copied().flatten()
    }

    /// Gives the last event this key.
    pub(super) fn set_last_key(&mut self, key: EventKey) {
        if let Some(last) = self.keys.last_mut() {
            *last = Some(key);
        }
    }

    /// A copy in which the last event has this key.
    pub(super) fn with_last_key(&self, key: EventKey) -> Self {
        let mut events = self.clone();
        events.set_last_key(key);
        events
    }

    /// The index of the event with this key.
    pub(super) fn find(&self, key: EventKey) -> Option<usize> {
        self.keys.iter().position(|other| *other == Some(key))
    }

    /// About how many bytes of memory the events keep.
    pub(super) fn memory_bytes(&self) -> usize {
        let events: usize = self.list.iter().map(RunEvent::memory_bytes).sum();
        let raws: usize = self.raws.iter().map(|(_, part)| part.get().len()).sum();
        events + raws + self.keys.len() * size_of::<Option<EventKey>>()
    }
}

impl From<Vec<RunEvent>> for Events {
    /// Events that no client can resume after.
    fn from(list: Vec<RunEvent>) -> Self {
        let keys = vec![None; list.len()];
        Self { list, keys, ..Self::default() }
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
    /// Empty: events may be added to the copy.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Encodings {
    /// Always equal: encodings follow from the events.
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
    /// Events of which the client has the first `delivered` ones, and of the next one its first
    /// `delivered_wire_events` wire events.
    pub(super) fn partly_delivered(
        events: impl Into<Arc<Events>>,
        delivered: usize,
        delivered_wire_events: u32,
    ) -> Self {
        Self { delivered, delivered_wire_events, ..events.into().into() }
    }

    /// The same events, which other streams are sent too or not.
    #[must_use]
    pub(super) fn shared(self, is_shared: bool) -> Self {
        Self { is_shared, ..self }
    }

    /// The same events, all of which the client has.
    pub(crate) fn held(self) -> Self {
        let delivered = self.events.len();
        Self { delivered, delivered_wire_events: 0, ..self }
    }

    /// The key of the newest event that a snapshot among these includes. A client that has the
    /// snapshot can resume after it.
    pub(crate) fn includes(&self) -> Option<EventKey> {
        self.events.includes
    }

    /// The key of the last event.
    pub(crate) fn last_key(&self) -> Option<EventKey> {
        self.events.last_key()
    }

    /// Each event, with its key.
    pub(crate) fn with_keys(&self) -> impl Iterator<Item = (&RunEvent, Option<EventKey>)> {
        self.events.list.iter().zip(self.events.keys.iter().copied())
    }

    /// The upstream's part whose first event is at this index, where clients are sent raw parts.
    pub(crate) fn raw(&self, at: usize) -> Option<&Json> {
        let Events { raws, .. } = &*self.events;
        let found = raws.binary_search_by_key(&at, |(at, _)| *at).ok()?;
        raws.get(found).map(|(_, part)| part)
    }

    /// The events in encoding number `form` of [`ENCODINGS`]. `encode` makes the bytes, unless
    /// another stream has made them.
    ///
    /// `None` if no other stream needs the bytes, or if they differ between clients. They do if the
    /// batch has a start or an end, an event without a key, or events that the client has already.
    pub(crate) fn encoded(&self, form: usize, encode: impl FnOnce() -> Bytes) -> Option<Bytes> {
        let Events { list, keys, raws: _, encodings, read_at: _, includes: _ } = &*self.events;
        let is_own =
            |event: &RunEvent| matches!(event, RunEvent::Started { .. } | RunEvent::Ended { .. });
        if !self.is_shared
            || self.delivered > 0
            || self.delivered_wire_events > 0
            || keys.iter().any(Option::is_none)
            || list.iter().any(is_own)
        {
            return None;
        }
        let encoding = encodings.0.get_or_init(Box::default).get(form)?;
        if let Some(bytes) = encoding.get() {
            return Some(bytes.clone());
        }
        // Two streams may both make the bytes, so that neither waits for the other.
        let bytes = encode();
        let _ = encoding.set(bytes.clone());
        Some(bytes)
    }

    /// About how many bytes of memory the events keep.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.events.memory_bytes()
    }

    /// When the upstream's bytes were read; `None` if the events were made of something else.
    pub(crate) fn read_at(&self) -> Option<Instant> {
        self.events.read_at
    }

    /// How many of the first events the client has already. An encoder needs them to know what
    /// is open.
    pub(crate) fn delivered(&self) -> usize {
        self.delivered
    }

    /// How many wire events of the first undelivered run event were already delivered.
    pub(crate) fn delivered_wire_events(&self) -> u32 {
        self.delivered_wire_events
    }
}

impl From<Arc<Events>> for Batch {
    fn from(events: Arc<Events>) -> Self {
        Self { events, delivered: 0, delivered_wire_events: 0, is_shared: false }
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
