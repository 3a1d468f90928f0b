//! A bounded log of a run's events: one writer, any number of readers, each at its own pace.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::run::RunEvent;

/// The newest events of a run, in the batches that they were made in.
#[derive(Debug)]
pub(super) struct RunLog {
    batches: VecDeque<Batch>,
    /// The position of the first batch that is kept.
    first: u64,
    /// What the batches weigh together.
    bytes: usize,
    limit: usize,
}

/// The events of one chunk of the upstream's bytes.
#[derive(Debug)]
struct Batch {
    events: Arc<[RunEvent]>,
    bytes: usize,
}

/// What a reader finds at its position.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    /// The next events.
    Batch(Arc<[RunEvent]>),
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
        Self { batches: VecDeque::new(), first: 0, bytes: 0, limit }
    }

    /// Appends events, and forgets the oldest for them.
    pub(super) fn push(&mut self, events: Vec<RunEvent>) {
        let bytes = events.iter().map(RunEvent::weight).sum();
        self.bytes += bytes;
        self.batches.push_back(Batch { events: events.into(), bytes });
        while self.bytes > self.limit && self.batches.len() > 1 {
            if let Some(oldest) = self.batches.pop_front() {
                self.bytes -= oldest.bytes;
                self.first += 1;
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
    use serde_json::value::RawValue;

    fn event(text: &str) -> RunEvent {
        RunEvent::StateSnapshot(Json::from(&*RawValue::from_string(text.to_owned()).unwrap()))
    }

    #[test]
    fn each_reader_finds_what_it_has_not_read_yet() {
        let mut log = RunLog::new(10_000);
        assert_eq!(log.at(0), Found::Nothing);
        log.push(vec![event("1"), event("2")]);
        log.push(vec![event("3")]);
        assert_eq!(log.at(0), Found::Batch([event("1"), event("2")].into()));
        assert_eq!(log.at(1), Found::Batch([event("3")].into()));
        assert_eq!(log.at(2), Found::Nothing);
        assert_eq!(log.end(), 2);
    }

    #[test]
    fn the_oldest_events_make_room_for_the_newest() {
        let mut log = RunLog::new(2 * event("0").weight());
        for text in ["1", "2", "3"] {
            log.push(vec![event(text)]);
        }
        assert_eq!((log.at(0), log.end()), (Found::Gone, 3));
        assert_eq!(log.at(1), Found::Batch([event("2")].into()));
        assert_eq!(log.bytes, 2 * event("0").weight());
    }

    #[test]
    fn a_batch_beyond_the_limit_is_kept_till_the_next() {
        let mut log = RunLog::new(0);
        log.push(vec![event("1")]);
        assert_eq!(log.at(0), Found::Batch([event("1")].into()));
        log.push(vec![event("2")]);
        assert_eq!(log.at(0), Found::Gone);
        assert_eq!(log.bytes, event("2").weight());
    }
}
