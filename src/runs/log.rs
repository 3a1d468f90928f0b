//! A bounded log of a run's events: one writer, any number of readers, each at its own pace.

use std::collections::VecDeque;
use std::sync::Arc;

use super::batch::Events;
use super::event_id::Mark;
use crate::run::Open;

/// The newest events of a run, in the batches that they were made in.
#[derive(Debug)]
pub(super) struct RunLog {
    batches: VecDeque<Entry>,
    /// The position of the first batch that is kept.
    first: u64,
    /// What the events before that have left open.
    open: Open,
    /// What the batches weigh together.
    bytes: usize,
    limit: usize,
}

/// The events of one chunk of the upstream's bytes.
#[derive(Debug)]
struct Entry {
    events: Arc<Events>,
    bytes: usize,
}

/// What a reader finds at its position.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    /// The next events.
    Batch(Arc<Events>),
    /// Nothing so far.
    Nothing,
    /// What stood there is no longer kept.
    Gone,
}

// === impl RunLog ===

impl RunLog {
    /// A log that keeps up to `limit` bytes of events, and the newest batch whatever it weighs:
    /// the run's view holds as much.
    pub(super) fn new(limit: usize) -> Self {
        Self { batches: VecDeque::new(), first: 0, open: Open::default(), bytes: 0, limit }
    }

    /// Appends events, and forgets the oldest for them.
    pub(super) fn push(&mut self, events: Events) {
        let bytes = events.weight();
        self.bytes += bytes;
        self.batches.push_back(Entry { events: events.into(), bytes });
        while self.bytes > self.limit && self.batches.len() > 1 {
            if let Some(oldest) = self.batches.pop_front() {
                self.bytes -= oldest.bytes;
                self.first += 1;
                for event in oldest.events.iter() {
                    self.open.apply(event);
                }
            }
        }
    }

    /// The batch at a position.
    pub(super) fn at(&self, position: u64) -> Found {
        let Some(index) = position.checked_sub(self.first) else { return Found::Gone };
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        self.batches
            .get(index)
            .map_or(Found::Nothing, |batch| Found::Batch(Arc::clone(&batch.events)))
    }

    /// Where the event with this mark stands, from a position on: the position of its batch, and
    /// its place in that.
    ///
    /// The newest are looked at first: who comes back was here a moment ago.
    pub(super) fn find(&self, mark: Mark, from: u64) -> Option<(u64, usize)> {
        let before = usize::try_from(from.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let newest_first = self.batches.iter().enumerate().skip(before).rev();
        let mut found = newest_first.filter_map(|(at, entry)| Some((at, entry.events.find(mark)?)));
        found.next().map(|(at, index)| (self.first + at as u64, index))
    }

    /// Where the newest event stands: the position of its batch, and its place in that.
    pub(super) fn last(&self) -> Option<(u64, usize)> {
        let newest = self.batches.back()?;
        Some((self.end().checked_sub(1)?, newest.events.len().checked_sub(1)?))
    }

    /// The oldest batches up to a position, and what the events before them have left open.
    pub(super) fn up_to(&self, position: u64) -> (Open, VecDeque<Arc<Events>>) {
        let count = usize::try_from(position + 1 - self.first).unwrap_or(usize::MAX);
        let batches = self.batches.iter().take(count).map(|entry| Arc::clone(&entry.events));
        (self.open.clone(), batches.collect())
    }

    /// Whether nothing was forgotten yet.
    pub(super) fn is_whole(&self) -> bool {
        self.first == 0
    }

    /// The position behind the newest batch.
    pub(super) fn end(&self) -> u64 {
        self.first + self.batches.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Json;
    use crate::run::RunEvent;
    use crate::runs::event_id::Place;
    use serde_json::value::RawValue;

    fn event(text: &str) -> RunEvent {
        RunEvent::StateSnapshot(Json::from(&*RawValue::from_string(text.to_owned()).unwrap()))
    }

    fn events(texts: &[&str]) -> Events {
        texts.iter().map(|text| event(text)).collect::<Vec<_>>().into()
    }

    fn weight(texts: &[&str]) -> usize {
        events(texts).weight()
    }

    #[test]
    fn each_reader_finds_what_it_has_not_read_yet() {
        let mut log = RunLog::new(10_000);
        assert_eq!(log.at(0), Found::Nothing);
        log.push(events(&["1", "2"]));
        log.push(events(&["3"]));
        assert_eq!(log.at(0), Found::Batch(events(&["1", "2"]).into()));
        assert_eq!(log.at(1), Found::Batch(events(&["3"]).into()));
        assert_eq!(log.at(2), Found::Nothing);
        assert_eq!(log.end(), 2);
    }

    #[test]
    fn the_oldest_events_make_room_for_the_newest() {
        let mut log = RunLog::new(2 * weight(&["0"]));
        for text in ["1", "2", "3"] {
            log.push(events(&[text]));
        }
        assert_eq!((log.at(0), log.end()), (Found::Gone, 3));
        assert_eq!(log.at(1), Found::Batch(events(&["2"]).into()));
        assert_eq!(log.bytes, 2 * weight(&["0"]));
    }

    #[test]
    fn a_batch_beyond_the_limit_is_kept_till_the_next() {
        let mut log = RunLog::new(0);
        log.push(events(&["1"]));
        assert_eq!(log.at(0), Found::Batch(events(&["1"]).into()));
        log.push(events(&["2"]));
        assert_eq!(log.at(0), Found::Gone);
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
            log.push(events);
        }
        assert_eq!(log.find(mark(1), 0), None);
        assert_eq!(log.find(mark(2), 1), Some((1, 0)));
        assert_eq!(log.find(mark(5), 0), Some((2, 1)));
        assert_eq!((log.find(mark(2), 2), log.find(mark(5), 9)), (None, None));
        assert_eq!(log.find(Mark { check: 1, ..mark(5) }, 0), None);
    }
}
