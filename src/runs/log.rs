//! A bounded log of a run's events: one writer, any number of readers, each at its own pace.

use std::collections::VecDeque;
use std::sync::Arc;

use super::batch::Events;
use super::event_id::EventKey;
use threadway_translate::run::Open;

/// The newest events of a run, in segments. Positions count segments from the run's beginning.
#[derive(Debug)]
pub(super) struct RunLog {
    segments: VecDeque<Arc<Segment>>,
    /// The position of the oldest retained segment.
    first: u64,
    /// The messages, calls and steps that the evicted events have left open.
    open: Open,
    /// The bytes of memory of the retained segments.
    bytes: usize,
    /// The bytes of memory of all segments that were ever written.
    written: u64,
    limit: usize,
}

/// The events of one chunk of the upstream's bytes, as one audience sees them: perhaps none. It never
/// changes.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) events: Arc<Events>,
    memory_bytes: usize,
}

/// The result of a lookup at a position.
#[derive(Debug)]
pub(super) enum Lookup {
    /// The segment there.
    Segment(Arc<Segment>),
    /// Nothing yet: the position is the end of the log.
    End,
    /// Nothing any more.
    Evicted,
}

/// The segments that a log retained at one moment. They are searched without the log's lock.
#[derive(Debug)]
pub(super) struct Retained {
    segments: Vec<Arc<Segment>>,
    first: u64,
    open: Open,
}

// === impl Segment ===

impl Segment {
    pub(super) fn new(events: Arc<Events>) -> Self {
        // A segment without events takes memory too.
        Self { memory_bytes: events.memory_bytes().max(size_of::<Self>()), events }
    }

    /// About how many bytes of memory the events keep.
    pub(super) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }
}

// === impl RunLog ===

impl RunLog {
    /// A log that retains up to `limit` bytes of events. It always retains the newest segment,
    /// however large: the run's view holds as much.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            segments: VecDeque::new(),
            first: 0,
            open: Open::default(),
            bytes: 0,
            written: 0,
            limit,
        }
    }

    /// An empty log of a run that was read up to this position.
    pub(super) fn begin_at(&mut self, position: u64) {
        self.first = position;
    }

    /// Retains at least this many bytes from now on.
    pub(super) fn raise_limit(&mut self, bytes: usize) {
        self.limit = self.limit.max(bytes);
    }

    /// Appends a segment and returns the evicted ones. The caller drops them after it has released
    /// the lock, since dropping takes time.
    #[must_use]
    pub(super) fn push(&mut self, segment: Arc<Segment>) -> Vec<Arc<Segment>> {
        self.bytes += segment.memory_bytes;
        self.written += segment.memory_bytes as u64;
        self.segments.push_back(segment);
        let mut evicted = Vec::new();
        while self.bytes > self.limit
            && self.segments.len() > 1
            && let Some(oldest) = self.segments.pop_front()
        {
            self.bytes -= oldest.memory_bytes;
            self.first += 1;
            for event in oldest.events.iter() {
                self.open.apply(event);
            }
            evicted.push(oldest);
        }
        evicted
    }

    pub(super) fn at(&self, position: u64) -> Lookup {
        let Some(index) = position.checked_sub(self.first) else { return Lookup::Evicted };
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        self.segments.get(index).map_or(Lookup::End, |segment| Lookup::Segment(Arc::clone(segment)))
    }

    pub(super) fn retained(&self) -> Retained {
        Retained {
            segments: self.segments.iter().cloned().collect(),
            first: self.first,
            open: self.open.clone(),
        }
    }

    /// Whether nothing was evicted yet.
    pub(super) fn is_whole(&self) -> bool {
        self.first == 0
    }

    /// Whether all segments from this position on are retained.
    pub(super) fn retains_from(&self, position: u64) -> bool {
        position >= self.first
    }

    /// The position after the newest segment.
    pub(super) fn end(&self) -> u64 {
        self.first + self.segments.len() as u64
    }

    /// The bytes of memory of all segments that were ever written.
    pub(super) fn written(&self) -> u64 {
        self.written
    }
}

// === impl Retained ===

impl Retained {
    /// The event with this key, at position `from` or later: the position of its segment, and its
    /// index there.
    ///
    /// The search begins with the newest segment, since a client that resumes was connected a
    /// moment ago.
    pub(super) fn find(&self, key: EventKey, from: u64) -> Option<(u64, usize)> {
        let skipped = usize::try_from(from.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let newest_first = self.segments.iter().enumerate().skip(skipped).rev();
        let mut found =
            newest_first.filter_map(|(at, segment)| Some((at, segment.events.find(key)?)));
        found.next().map(|(at, index)| (self.first + at as u64, index))
    }

    /// The newest event: the position of its segment, and its index there.
    pub(super) fn last(&self) -> Option<(u64, usize)> {
        let newest = self.segments.last()?;
        let end = self.first + self.segments.len() as u64;
        Some((end.checked_sub(1)?, newest.events.len().checked_sub(1)?))
    }

    /// The segments up to and including this position, and what the events before them have left
    /// open.
    pub(super) fn up_to(self, position: u64) -> (Open, VecDeque<Arc<Events>>) {
        let count = usize::try_from(position + 1 - self.first).unwrap_or(usize::MAX);
        let segments = self.segments.iter().take(count).map(|segment| &segment.events);
        (self.open, segments.filter(|events| !events.is_empty()).cloned().collect())
    }

    /// Whether nothing had been evicted.
    pub(super) fn is_whole(&self) -> bool {
        self.first == 0
    }
}

#[cfg(test)]
mod tests;
