//! What the viewers of one set of options are sent of a run: the events that the options let
//! through, under keys of their own.
//!
//! ```text
//!  RunDecoder -- all events --+--> Audience {}                   --> Run { log, keyframe }
//!                             +--> Audience { reasoning: hide }  --> Run { log, keyframe }
//! ```
//! A key counts the events that its audience was sent. So a client that returns with other options
//! starts over: it may never have been sent the start of what is open now.

use std::sync::Arc;

use super::batch::Events;
use super::decoder::RunDecoder;
use super::event_id::{EventKey, Stage};
use crate::offload::offload;
use threadway_translate::json::Json;
use threadway_translate::run::{EmitOptions, Filter, RunEvent, View};

/// The viewers of one set of options.
#[derive(Debug)]
pub(super) struct Audience {
    options: EmitOptions,
    /// `None` if the options show everything.
    filter: Option<Filter>,
    keys: Numbering,
}

/// Numbers the events that an audience is sent.
#[derive(Debug)]
enum Numbering {
    /// Each event gets the attempt, stage and check of the event that it was made of.
    Counted(KeyCounter),
    /// The audience began in the middle of the run, so others may have been sent other events.
    Unkeyed,
}

#[derive(Debug, Default)]
struct KeyCounter {
    /// Differs between options.
    seed: u16,
    /// The attempt and the stage of the last event.
    place: Option<(u32, Stage)>,
    /// How many events have come from there.
    n: u32,
    /// The check of the last part that made events.
    check: u16,
}

// === impl Audience ===

impl Audience {
    /// An audience that is sent a run from its beginning.
    pub(super) fn new(options: EmitOptions) -> Self {
        let seed = options.seed();
        let seed = u16::try_from(seed >> 16).unwrap_or_default()
            ^ u16::try_from(seed & 0xffff).unwrap_or_default();
        let keys = Numbering::Counted(KeyCounter { seed, ..KeyCounter::default() });
        Self { options, filter: Filter::new(options), keys }
    }

    /// An audience that is sent a run from its middle, where the run has this view.
    pub(super) fn joining(options: EmitOptions, view: &View) -> Self {
        Self { options, filter: Filter::joining(options, view), keys: Numbering::Unkeyed }
    }

    /// What this audience sees of the events that a decoder has made.
    ///
    /// `decoder` gives what is known of the thread when the run ends.
    pub(super) fn shown(&mut self, decoder: &RunDecoder, events: &Arc<Events>) -> Arc<Events> {
        let Some(filter) = &mut self.filter else { return Arc::clone(events) };
        let (options, keys) = (self.options, &mut self.keys);
        let filtered = || filtered(options, filter, keys, decoder, events);
        let mut shown = offload(events.memory_bytes(), filtered);
        name_end(decoder, Some(filter), &mut shown);
        shown.into()
    }

    /// The view of a client that was sent all that this audience is sent. `None` before the run has
    /// a name.
    pub(super) fn view(&self, decoder: &RunDecoder) -> Option<Arc<View>> {
        let view = decoder.shared_view()?;
        Some(self.filter.as_ref().map_or(view, |filter| Arc::clone(filter.view())))
    }
}

fn filtered(
    options: EmitOptions,
    filter: &mut Filter,
    keys: &mut Numbering,
    decoder: &RunDecoder,
    events: &Events,
) -> Events {
    let mut out = events.emptied();
    // The part that the next shown event is the first of.
    let mut part: Option<Json> = None;
    for (event, source, raw) in events.entries() {
        if let Some(raw) = raw {
            part = Some(options.cut(raw).unwrap_or_else(|| raw.clone()));
        } else if let RunEvent::Raw(_) = event {
            part = None;
        }
        let from = out.len();
        out.with_keys(|out| {
            filter.show(event.clone(), &|| decoder.conversation(), out);
            |shown: &RunEvent| keys.key(shown, source, decoder.has_keys())
        });
        if out.len() > from
            && let Some(part) = part.take()
        {
            out.made_of(from, part);
        }
    }
    out
}

/// Puts into the key of the run's end what viewers hold then, who see what the filter lets through.
pub(super) fn name_end(decoder: &RunDecoder, filter: Option<&Filter>, events: &mut Events) {
    if let Some(RunEvent::Ended { outcome, .. }) = events.last()
        && let Some(key) = events.last_key()
    {
        let memory_bytes = decoder.shared_view().map_or(0, |view| view.memory_bytes());
        let shown = offload(memory_bytes, || decoder.shown(filter, outcome));
        events.set_last_key(key.showing(shown.unwrap_or_default()));
    }
}

// === impl Numbering ===

impl Numbering {
    /// The key of the next event, which was made of the one with the key `source`. `has_keys`: whether
    /// the reading gives keys to the events that close what is open.
    fn key(
        &mut self,
        event: &RunEvent,
        source: Option<EventKey>,
        has_keys: bool,
    ) -> Option<EventKey> {
        let EventKey { attempt, stage, n: _, check } = source?;
        match (self, event) {
            // A run has one start and one end.
            (_, RunEvent::Started { .. } | RunEvent::Ended { .. }) => source,
            (Self::Unkeyed, _) => None,
            // Made of the end: what the options promise for it.
            (
                Self::Counted(_),
                RunEvent::Messages(_) | RunEvent::StateSnapshot(_) | RunEvent::StateDelta(_),
            ) if stage == Stage::End => None,
            (Self::Counted(count), _) if stage == Stage::End => {
                let check = count.check;
                has_keys.then(|| count.next(attempt, Stage::Close, check))
            }
            (Self::Counted(count), _) => {
                count.check = check;
                Some(count.next(attempt, stage, check))
            }
        }
    }
}

impl KeyCounter {
    fn next(&mut self, attempt: u32, stage: Stage, check: u16) -> EventKey {
        if self.place.replace((attempt, stage)) != Some((attempt, stage)) {
            self.n = 0;
        }
        let n = self.n;
        self.n += 1;
        EventKey { attempt, stage, n, check: check ^ self.seed }
    }
}
