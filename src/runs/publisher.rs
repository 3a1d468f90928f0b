//! Publishes the events of a reading to each of its audiences. Only the owner of the decoder has
//! one.

use std::sync::Arc;

use super::audience::{Audience, name_end};
use super::batch::Events;
use super::decoder::RunDecoder;
use super::keyframe::EndEvent;
use super::log::Segment;
use super::published::{Broadcast, History, Run, RunFacts};
use crate::offload::offload;
use threadway_translate::run::{EmitOptions, RunEvent};

/// Publishes the events of one reading.
pub(super) struct Publisher {
    broadcast: Arc<Broadcast>,
    audiences: Vec<(Audience, Arc<Run>)>,
    /// Those that wait to be added.
    new: Vec<Arc<Run>>,
    /// All segments from the beginning of the reading, for audiences that come later. `None` if
    /// they are more than a log keeps: such an audience then begins with the run as it is.
    past: Option<Vec<Arc<Segment>>>,
    past_bytes: usize,
    /// The position after the newest segment.
    position: u64,
    /// How many events were published.
    events: u64,
    end: Option<EndEvent>,
}

// === impl Publisher ===

impl Publisher {
    /// Publishes to a first audience the events that the decoder can already make.
    pub(super) fn begin(
        broadcast: &Arc<Broadcast>,
        options: EmitOptions,
        decoder: &mut RunDecoder,
        history: History,
    ) -> (Arc<Run>, Self) {
        let run = Arc::new(Run::new(broadcast, options));
        let mut publisher = Self {
            broadcast: Arc::clone(broadcast),
            audiences: Vec::new(),
            new: Vec::new(),
            past: Some(Vec::new()),
            past_bytes: 0,
            position: 0,
            events: 0,
            end: None,
        };
        broadcast.know(&run);
        publisher.add(Arc::clone(&run), decoder, history);
        let mut events = Events::default();
        decoder.start(&mut events);
        publisher.publish(decoder, history, events);
        (run, publisher)
    }

    pub(super) fn broadcast(&self) -> &Arc<Broadcast> {
        &self.broadcast
    }

    /// The position after the newest segment.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// How many events were published.
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// The run's last event, once it has ended.
    pub(super) fn end(&self) -> Option<&RunEvent> {
        self.end.as_ref().map(|end| &end.event)
    }

    /// Publishes new events and the decoder's state. Returns whether readers have to look.
    pub(super) fn publish(
        &mut self,
        decoder: &RunDecoder,
        history: History,
        mut events: Events,
    ) -> bool {
        self.events += events.len() as u64;
        self.broadcast.begin(decoder.run_id(), events.first());
        let source = (!events.is_empty()).then(|| {
            name_end(decoder, None, &mut events);
            self.end = self.end.take().or_else(|| EndEvent::of(&events));
            Arc::new(Segment::new(events.into()))
        });
        if let Some(source) = &source {
            self.position += 1;
            self.remember(source);
        }
        let mut has_news = false;
        let facts = RunFacts::of(decoder, history);
        for (audience, run) in &mut self.audiences {
            let shown = source.as_ref().map(|source| segment(audience, decoder, source));
            has_news |= run.publish(facts, shown, || audience.view(decoder));
        }
        if !self.new.is_empty() {
            // What they are sent includes these events.
            has_news |= self.add_new(decoder, history);
        }
        has_news
    }

    /// Publishes what callers want: keyframes of the run as it is now, and the run to new audiences.
    pub(super) fn publish_wanted(&mut self, decoder: &RunDecoder, history: History) {
        self.new.extend(self.broadcast.new_audiences());
        self.add_new(decoder, history);
        for (audience, run) in &self.audiences {
            run.publish_wanted_keyframe(|| audience.view(decoder));
        }
    }

    /// Accepts no audience from now on. Those that came until now are sent the end.
    pub(super) fn close(&mut self, decoder: &RunDecoder, history: History) -> bool {
        self.new.extend(self.broadcast.close());
        self.add_all(decoder, history)
    }

    fn remember(&mut self, segment: &Arc<Segment>) {
        self.past_bytes += segment.memory_bytes();
        if self.past_bytes > self.broadcast.log_bytes {
            self.past = None;
        }
        if let Some(past) = &mut self.past {
            past.push(Arc::clone(segment));
        }
    }

    /// Adds the audiences that came. One that begins with the run as it is waits until the
    /// conversation is known: before, nobody can say what is open for its viewers.
    fn add_new(&mut self, decoder: &RunDecoder, history: History) -> bool {
        (self.past.is_some() || decoder.knows_conversation()) && self.add_all(decoder, history)
    }

    /// Adds the audiences that wait. Returns whether there were any.
    fn add_all(&mut self, decoder: &RunDecoder, history: History) -> bool {
        let new = std::mem::take(&mut self.new);
        let has_news = !new.is_empty();
        for run in new {
            let past = if self.past.is_some() { self.past_bytes } else { 0 };
            offload(past, || self.add(run, decoder, history));
        }
        has_news
    }

    /// Adds an audience, and publishes to it what the others have.
    fn add(&mut self, run: Arc<Run>, decoder: &RunDecoder, history: History) {
        let audience = if let Some(past) = &self.past {
            let mut audience = Audience::new(run.options);
            for source in past {
                let shown = segment(&mut audience, decoder, source);
                // Nobody may look for an event before all are there.
                run.publish(RunFacts::UNKNOWN, Some(shown), || audience.view(decoder));
            }
            audience
        } else {
            run.begin_at(self.position);
            let view = decoder.shared_view().unwrap_or_default();
            let joining = || Audience::joining(run.options, &view);
            let mut audience = offload(view.memory_bytes(), joining);
            let end = self.end.as_ref().map(|EndEvent { event, key }| {
                let mut end = Events::default();
                end.push(event.clone(), *key);
                segment(&mut audience, decoder, &Arc::new(Segment::new(end.into())))
            });
            run.publish(RunFacts::UNKNOWN, end, || audience.view(decoder));
            audience
        };
        run.publish(RunFacts::of(decoder, history), None, || audience.view(decoder));
        self.audiences.push((audience, run));
    }
}

/// What an audience sees of a segment.
fn segment(audience: &mut Audience, decoder: &RunDecoder, source: &Arc<Segment>) -> Arc<Segment> {
    let shown = audience.shown(decoder, &source.events);
    if Arc::ptr_eq(&shown, &source.events) {
        return Arc::clone(source);
    }
    Arc::new(Segment::new(shown))
}
