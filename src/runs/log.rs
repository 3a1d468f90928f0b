//! A bounded log of a run's events: one writer, any number of readers, each at its own pace.

use std::collections::VecDeque;
use std::sync::Arc;

use super::batch::Events;
use super::event_id::Mark;
use threadway_translate::run::Open;

/// The newest events of a run, in the segments that they were made in.
#[derive(Debug)]
pub(super) struct RunLog {
    segments: VecDeque<Arc<Segment>>,
    /// The position of the first segment that is kept.
    first: u64,
    /// What the events before that have left open.
    open: Open,
    /// What the segments weigh together.
    bytes: usize,
    /// What all segments weigh that were ever written.
    written: u64,
    limit: usize,
}

/// The events of one chunk of the upstream's bytes. It never changes.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) events: Arc<Events>,
    /// What they weigh.
    bytes: usize,
}

/// What a reader finds at its position.
#[derive(Debug)]
pub(super) enum Found {
    /// The next events.
    Next(Arc<Segment>),
    /// Nothing so far.
    Nothing,
    /// What stood there is no longer kept.
    Gone,
}

/// The segments that a log kept at a moment, to be searched without its lock.
#[derive(Debug)]
pub(super) struct Kept {
    segments: Vec<Arc<Segment>>,
    first: u64,
    open: Open,
}

// === impl Segment ===

impl Segment {
    pub(super) fn new(events: Events) -> Self {
        Self { bytes: events.weight(), events: events.into() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

// === impl RunLog ===

impl RunLog {
    /// A log that keeps up to `limit` bytes of events, and the newest segment whatever it weighs:
    /// the run's view holds as much.
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

    /// Keeps at least so much from now on.
    pub(super) fn keep(&mut self, bytes: usize) {
        self.limit = self.limit.max(bytes);
    }

    /// Appends a segment, and returns the oldest ones that are forgotten for it. These are to be
    /// dropped without the lock.
    #[must_use]
    pub(super) fn push(&mut self, segment: Arc<Segment>) -> Vec<Arc<Segment>> {
        self.bytes += segment.bytes;
        self.written += segment.bytes as u64;
        self.segments.push_back(segment);
        let mut forgotten = Vec::new();
        while self.bytes > self.limit
            && self.segments.len() > 1
            && let Some(oldest) = self.segments.pop_front()
        {
            self.bytes -= oldest.bytes;
            self.first += 1;
            for event in oldest.events.iter() {
                self.open.apply(event);
            }
            forgotten.push(oldest);
        }
        forgotten
    }

    /// The segment at a position.
    pub(super) fn at(&self, position: u64) -> Found {
        let Some(index) = position.checked_sub(self.first) else { return Found::Gone };
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        self.segments.get(index).map_or(Found::Nothing, |segment| Found::Next(Arc::clone(segment)))
    }

    /// All that is kept.
    pub(super) fn kept(&self) -> Kept {
        Kept {
            segments: self.segments.iter().cloned().collect(),
            first: self.first,
            open: self.open.clone(),
        }
    }

    /// Whether nothing was forgotten yet.
    pub(super) fn is_whole(&self) -> bool {
        self.first == 0
    }

    /// Whether all is kept from a position on.
    pub(super) fn has_all_from(&self, position: u64) -> bool {
        position >= self.first
    }

    /// The position behind the newest segment.
    pub(super) fn end(&self) -> u64 {
        self.first + self.segments.len() as u64
    }

    /// What all segments weigh that were ever written.
    pub(super) fn written(&self) -> u64 {
        self.written
    }
}

// === impl Kept ===

impl Kept {
    /// Where the event with this mark stands, from a position on: the position of its segment, and
    /// its place in that.
    ///
    /// The newest are looked at first: who resumes was here a moment ago.
    pub(super) fn find(&self, mark: Mark, from: u64) -> Option<(u64, usize)> {
        let before = usize::try_from(from.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let newest_first = self.segments.iter().enumerate().skip(before).rev();
        let mut found =
            newest_first.filter_map(|(at, segment)| Some((at, segment.events.find(mark)?)));
        found.next().map(|(at, index)| (self.first + at as u64, index))
    }

    /// Where the newest event stands: the position of its segment, and its place in that.
    pub(super) fn last(&self) -> Option<(u64, usize)> {
        let newest = self.segments.last()?;
        let behind = self.first + self.segments.len() as u64;
        Some((behind.checked_sub(1)?, newest.events.len().checked_sub(1)?))
    }

    /// The oldest segments up to a position, and what the events before them have left open.
    pub(super) fn up_to(self, position: u64) -> (Open, VecDeque<Arc<Events>>) {
        let count = usize::try_from(position + 1 - self.first).unwrap_or(usize::MAX);
        let segments = self.segments.iter().take(count).map(|segment| Arc::clone(&segment.events));
        (self.open, segments.collect())
    }

    /// Whether nothing was forgotten when it was kept.
    pub(super) fn is_whole(&self) -> bool {
        self.first == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::event_id::Place;
    use serde_json::value::RawValue;
    use threadway_translate::json::Json;
    use threadway_translate::run::RunEvent;

    fn event(text: &str) -> RunEvent {
        RunEvent::StateSnapshot(Json::from(&*RawValue::from_string(text.to_owned()).unwrap()))
    }

    fn events(texts: &[&str]) -> Events {
        texts.iter().map(|text| event(text)).collect::<Vec<_>>().into()
    }

    fn segment(texts: &[&str]) -> Arc<Segment> {
        Segment::new(events(texts)).into()
    }

    fn weight(texts: &[&str]) -> usize {
        events(texts).weight()
    }

    /// What stands at a position; `None` if nothing does.
    fn at(log: &RunLog, position: u64) -> Option<Events> {
        match log.at(position) {
            Found::Next(segment) => Some((*segment.events).clone()),
            Found::Nothing => None,
            Found::Gone => panic!("position {position} is gone"),
        }
    }

    #[test]
    fn each_reader_finds_what_it_has_not_read_yet() {
        let mut log = RunLog::new(10_000);
        assert_eq!(at(&log, 0), None);
        drop(log.push(segment(&["1", "2"])));
        drop(log.push(segment(&["3"])));
        assert_eq!(at(&log, 0), Some(events(&["1", "2"])));
        assert_eq!(at(&log, 1), Some(events(&["3"])));
        assert_eq!(at(&log, 2), None);
        assert_eq!(log.end(), 2);
    }

    #[test]
    fn the_oldest_events_make_room_for_the_newest() {
        let mut log = RunLog::new(2 * weight(&["0"]));
        for text in ["1", "2", "3"] {
            drop(log.push(segment(&[text])));
        }
        assert!(matches!(log.at(0), Found::Gone) && !log.has_all_from(0));
        assert_eq!((at(&log, 1), log.end()), (Some(events(&["2"])), 3));
        assert_eq!(log.bytes, 2 * weight(&["0"]));
        assert_eq!(log.written(), 3 * weight(&["0"]) as u64);
        log.keep(3 * weight(&["0"]));
        drop(log.push(segment(&["4"])));
        assert!(log.has_all_from(1), "the limit has grown");
    }

    #[test]
    fn a_segment_beyond_the_limit_is_kept_till_the_next() {
        let mut log = RunLog::new(0);
        drop(log.push(segment(&["1"])));
        assert_eq!(at(&log, 0), Some(events(&["1"])));
        drop(log.push(segment(&["2"])));
        assert!(matches!(log.at(0), Found::Gone));
        assert_eq!(log.bytes, weight(&["2"]));
    }

    #[test]
    fn an_event_is_found_by_its_mark_while_it_is_kept() {
        let mark = |n| Mark::at(1, Place::Close, n);
        let mut log = RunLog::new(2 * weight(&["1", "2"]));
        for batch in 0..3 {
            let mut events = Events::default();
            events.push(event("1"), Some(mark(2 * batch)));
            events.push(event("2"), Some(mark(2 * batch + 1)));
            drop(log.push(Segment::new(events).into()));
        }
        let kept = log.kept();
        assert_eq!(kept.find(mark(1), 0), None);
        assert_eq!(kept.find(mark(2), 1), Some((1, 0)));
        assert_eq!(kept.find(mark(5), 0), Some((2, 1)));
        assert_eq!((kept.find(mark(2), 2), kept.find(mark(5), 9)), (None, None));
        assert_eq!(kept.find(Mark { check: 1, ..mark(5) }, 0), None);
        assert_eq!(kept.last(), Some((2, 1)));
    }
}
