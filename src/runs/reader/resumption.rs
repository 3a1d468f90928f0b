//! Continues after the event that a returning client has last.

use std::collections::VecDeque;
use std::sync::Arc;

use threadway_translate::run::Open;

use crate::runs::batch::{Batch, Events};
use crate::runs::event_id::EventId;
use crate::runs::published::Past;

/// The retained events up to the one that a client has last. An encoder needs them to know what is
/// open; they are not sent again.
#[derive(Debug, PartialEq)]
pub(super) struct Resumption {
    /// Oldest first. The client has all events of these, except some of the last batch.
    batches: VecDeque<Arc<Events>>,
    /// How many events of the last batch were delivered.
    delivered: usize,
    /// How many wire events of the next event were delivered.
    delivered_wire_events: u32,
    /// The position after the last batch.
    next: u64,
}

// === impl Resumption ===

impl Resumption {
    /// Searches the retained segments from position `from` on. Returns also what is open before the
    /// first batch.
    ///
    /// A client that has the run's end is sent the end again, under another id. There is nothing
    /// after the end, and some clients take an empty response for an error.
    pub(super) fn after(event: &EventId, past: Past, from: u64) -> Option<(Self, Open)> {
        let Past { retained, start, has_end, .. } = past;
        let (last, index) = if event.is_terminal() {
            retained.last().filter(|_| has_end)?
        } else {
            retained.find(event.key(), from)?
        };
        let is_whole = retained.is_whole();
        let (open, mut batches) = retained.up_to(last);
        if !is_whole {
            // The first events are evicted, but an encoder needs the run's start.
            batches.push_front(Arc::new(Events::from(vec![start?])));
        }
        let (delivered, delivered_wire_events) = match event.wire_events() {
            _ if event.is_terminal() => (index, 0),
            0 => (index + 1, 0),
            wire_events => (index, wire_events),
        };
        if event.is_terminal() {
            let newest = batches.back_mut()?;
            let key = event.key_of_repeat(newest.last_key()?);
            *newest = Arc::new(newest.with_last_key(key));
        }
        let next = last + 1;
        Some((Self { batches, delivered, delivered_wire_events, next }, open))
    }

    /// The next batch; with the last one also the position where the reader continues.
    pub(super) fn next(&mut self) -> (Option<Batch>, Option<u64>) {
        let Some(events) = self.batches.pop_front() else { return (None, None) };
        if !self.batches.is_empty() {
            let delivered = events.len();
            return (Some(Batch::partly_delivered(events, delivered, 0)), None);
        }
        let batch = Batch::partly_delivered(events, self.delivered, self.delivered_wire_events);
        (Some(batch), Some(self.next))
    }
}
