//! The state of a run that its driver publishes for its readers.
//!
//! The lock is held to add a segment or to take a reference. Nothing is computed under it.
//!
//! - `broadcast`: what all audiences of the run share.
//! - `signals`: what the driver and the readers notify each other of.

use std::fmt;
use std::sync::Arc;

mod broadcast;
mod signals;

use super::batch::Events;
use super::decoder::{RunDecoder, Watermark};
use super::event_id::{EventId, EventKey, ShownDigest};
use super::keyframe::{EndEvent, Keyframe};
use super::log::{Retained, RunLog, Segment};
use crate::metrics::Metrics;
use crate::sync::{Guard, Mutex};
use threadway_translate::run::{
    self, EmitOptions, Failure, LossReason, Open, Outcome, RunEvent, View,
};

pub(super) use broadcast::Broadcast;
pub(super) use signals::AskedReceiver;
pub(crate) use signals::Subscription;

/// A run that is being read, or an idle thread shown as a run: what the viewers with the same
/// options are sent.
pub(crate) struct Run {
    pub(super) broadcast: Arc<Broadcast>,
    /// The options that limit what viewers are shown.
    pub(super) options: EmitOptions,
    published: Mutex<Published>,
}

/// What a reading knows of its run.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunFacts {
    history: History,
    knows_conversation: bool,
    watermark: Watermark,
}

/// The published state of a run.
#[derive(Debug)]
pub(super) struct Published {
    pub(super) log: RunLog,
    /// The newest keyframe; at the run's end the final one.
    keyframe: Option<Arc<Keyframe>>,
    /// Whether a reader waits for a newer keyframe.
    is_keyframe_wanted: bool,
    /// The run's last event.
    end: Option<EndEvent>,
    /// The key of the newest event.
    last_key: Option<EventKey>,
    facts: RunFacts,
}

/// What the readers of a caller are still shown whose credentials the upstream refuses, while it
/// accepts another caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RefusalCutoff {
    /// The end of the log at that moment. Later events are not for this caller.
    pub(super) at: u64,
    /// Whether the log then had the whole run, so that only its success remains to be reported.
    pub(super) is_whole: bool,
}

/// What a search for an event needs of the published state.
pub(super) struct Past {
    pub(super) retained: Retained,
    /// The position after the newest segment.
    pub(super) end: u64,
    pub(super) start: Option<RunEvent>,
    /// Whether the run itself has ended. An end that the gateway made has no key.
    pub(super) has_end: bool,
    /// Whether an event that is not in the log may still be published.
    pub(super) may_come: bool,
    /// Whether the run's past is still being replayed.
    pub(super) is_catching_up: bool,
}

/// How a new reader begins.
pub(super) enum ReaderStart {
    /// Nothing is published yet.
    Later,
    /// With the run's first event: the run has not shown its conversation yet, and its first events
    /// are all there is.
    FirstEvent,
    Keyframe,
    /// With this start alone, until the run can be shown.
    Start(RunEvent),
}

/// How much of the run's past is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum History {
    /// All of it, from the run's beginning.
    Complete,
    /// A replay of it is going on.
    Replaying,
    /// As much as the upstream could replay.
    Replayed,
}

// === impl Run ===

impl Run {
    /// A run of which its publisher has published nothing.
    pub(super) fn new(broadcast: &Arc<Broadcast>, options: EmitOptions) -> Self {
        let published = Published {
            log: RunLog::new(broadcast.log_bytes),
            keyframe: None,
            is_keyframe_wanted: false,
            end: None,
            last_key: None,
            facts: RunFacts::UNKNOWN,
        };
        Self { broadcast: Arc::clone(broadcast), options, published: Mutex::new(published) }
    }

    /// Begins at this position of the reading. To be called before anything is published.
    pub(super) fn begin_at(&self, position: u64) {
        self.published().log.begin_at(position);
    }

    /// Publishes new events and what the reading knows. `view` is that of a client that was sent all
    /// events. Only the publisher calls this. Returns whether readers have to look.
    pub(super) fn publish(
        &self,
        facts: RunFacts,
        segment: Option<Arc<Segment>>,
        view: impl Fn() -> Option<Arc<View>>,
    ) -> bool {
        let events = segment.as_ref().map(|segment| &segment.events);
        let events = events.filter(|events| !events.is_empty());
        let end = events.and_then(|events| EndEvent::of(events));
        let key = events.map(|events| events.last_key());
        let is_new = events.is_some();
        // The end and the final keyframe are published together: a reader of the end needs both.
        let final_keyframe = end.as_ref().map(|end| {
            let added = segment.as_ref().map_or((0, 0), |added| (1, added.memory_bytes() as u64));
            let (at, written) = {
                let published = self.published();
                (published.log.end() + added.0, published.log.written() + added.1)
            };
            let key = key.flatten();
            Arc::new(Keyframe::new(at, written, key, view(), self.options, Some(end.clone())))
        });
        let (is_new, is_keyframe_wanted, _dropped) = {
            let mut published = self.published();
            let is_new = is_new || published.facts.history != facts.history;
            published.facts = facts;
            if let Some(key) = key {
                published.last_key = key;
            }
            if published.end.is_none() {
                published.end = end;
            }
            let evicted = segment.map(|segment| published.log.push(segment));
            let replaced = published.set_keyframe(final_keyframe);
            // Dropping takes time, so it is done without the lock.
            (is_new, published.is_keyframe_wanted, (evicted, replaced))
        };
        (is_keyframe_wanted && self.publish_wanted_keyframe(view)) || is_new
    }

    /// Publishes a keyframe of the run as it is now, if a reader wants one. Only the publisher calls
    /// this. Returns whether a reader does.
    pub(super) fn publish_wanted_keyframe(&self, view: impl Fn() -> Option<Arc<View>>) -> bool {
        let (at, written, key, end) = {
            let published = self.published();
            if !published.is_keyframe_wanted {
                return false;
            }
            let Published { log, last_key, end, .. } = &*published;
            (log.end(), log.written(), *last_key, end.clone())
        };
        let keyframe = Arc::new(Keyframe::new(at, written, key, view(), self.options, end));
        self.metrics().keyframe_made();
        let replaced = self.published().set_keyframe(Some(keyframe));
        drop(replaced);
        true
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.broadcast.metrics
    }

    /// A keyframe from which the reader can go on in the log; `None` if the driver has to make one,
    /// which notifies the reader.
    ///
    /// `wanted_at` is where the log ended when the reader first wanted a keyframe. Any keyframe
    /// made since is accepted, however much was written after it. Otherwise a fast run would keep
    /// the reader waiting.
    pub(super) fn keyframe(&self, wanted_at: &mut Option<u64>) -> Option<Arc<Keyframe>> {
        let mut published = self.published();
        let is_usable = |keyframe: &&Arc<Keyframe>| {
            let is_newer = wanted_at.is_some_and(|position| keyframe.at() >= position);
            published.log.retains_from(keyframe.at())
                && (is_newer || keyframe.is_fresh(published.log.written()))
                && (published.end.is_none() || keyframe.at() == published.log.end())
        };
        if let Some(keyframe) = published.keyframe.as_ref().filter(is_usable) {
            *wanted_at = None;
            return Some(Arc::clone(keyframe));
        }
        wanted_at.get_or_insert(published.log.end());
        published.is_keyframe_wanted = true;
        drop(published);
        self.broadcast.want_keyframe();
        None
    }

    /// LangGraph's id of the run, once it is known.
    pub(crate) fn id(&self) -> Option<Arc<str>> {
        self.broadcast.run_id().map(Arc::from)
    }

    /// Whether this is an idle thread, not a run of LangGraph. It shows everything that the runs
    /// before it have shown.
    pub(crate) fn is_idle(&self) -> bool {
        self.broadcast.is_idle
    }

    /// Whether the reading ended, or goes on, without the run's own end.
    pub(crate) fn is_lost(&self) -> bool {
        match &self.published().end {
            Some(EndEvent {
                event: RunEvent::Ended { outcome: Outcome::Failed(failure), .. },
                ..
            }) => {
                matches!(failure.loss(), Some(LossReason::Unreadable | LossReason::Unavailable))
            }
            Some(_) => false,
            None => true,
        }
    }

    /// Locks the published state. A driver that panics leaves a state that is still true.
    #[track_caller]
    pub(super) fn published(&self) -> Guard<'_, Published> {
        self.published.lock()
    }

    /// The keyframe at the run's end; `None` before the end.
    pub(super) fn final_keyframe(&self) -> Option<Arc<Keyframe>> {
        let published = self.published();
        published.end.as_ref()?;
        published.keyframe.clone()
    }

    /// Whether a client whose last event this is holds the run to its end, or what the run's end
    /// shows.
    pub(crate) fn is_held_after(&self, event: &EventId) -> bool {
        let shown = event.shown();
        shown.is_some() && shown == self.published().shown()
    }

    /// Whether a driver still reads the run.
    pub(crate) fn is_driven(&self) -> bool {
        self.broadcast.is_driven()
    }

    /// What a search for the event with this key needs.
    pub(super) fn past(&self, key: EventKey) -> Past {
        let published = self.published();
        Past {
            retained: published.log.retained(),
            end: published.log.end(),
            start: self.broadcast.start().cloned(),
            has_end: published.end.as_ref().is_some_and(|end| end.key.is_some()),
            may_come: published.end.is_none() && published.facts.watermark.may_still_come(key),
            is_catching_up: published.is_catching_up(),
        }
    }

    /// How a reader begins whose client has seen nothing of the run. `holds_nothing`: nor of the
    /// thread.
    pub(super) fn beginning(&self, holds_nothing: bool) -> ReaderStart {
        let published = self.published();
        let RunFacts { history, knows_conversation, watermark: _ } = published.facts;
        let has_shown_little =
            history == History::Complete && !knows_conversation && published.log.is_whole();
        match self.broadcast.start() {
            _ if holds_nothing && has_shown_little => ReaderStart::FirstEvent,
            None => ReaderStart::Later,
            Some(_) if published.can_be_shown() => ReaderStart::Keyframe,
            Some(start) => ReaderStart::Start(start.clone()),
        }
    }

    /// The events that end a reader's stream before the run is over. `open` is what the reader's
    /// client has open; `None` if the client was sent nothing of the run.
    pub(super) fn failed(&self, open: Option<&Open>, loss: LossReason, message: &str) -> Events {
        let start = || self.broadcast.start().into_iter().cloned().collect();
        let mut events = open.map_or_else(start, run::closings);
        let failure = Failure::Gateway { loss, message: message.to_owned() };
        let outcome = Outcome::Failed(failure);
        events.push(RunEvent::Ended { outcome, usage: Vec::new() });
        events.into()
    }

    /// Whether a client that was sent this run to its end holds what the other run shows, open
    /// questions included.
    pub(crate) fn shows_same_as(&self, other: &Self) -> bool {
        if std::ptr::eq(self, other) {
            return true;
        }
        match (self.final_keyframe(), other.final_keyframe()) {
            (Some(this), Some(other)) => this.shows_same_as(&other),
            _ => false,
        }
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.broadcast.fmt(f)
    }
}

// === impl RunFacts ===

impl RunFacts {
    /// Nothing: the readers of a run wait.
    pub(super) const UNKNOWN: Self = Self {
        history: History::Replaying,
        knows_conversation: false,
        watermark: Watermark::Unknown,
    };

    pub(super) fn of(decoder: &RunDecoder, history: History) -> Self {
        let (knows_conversation, watermark) = (decoder.knows_conversation(), decoder.watermark());
        Self { history, knows_conversation, watermark }
    }
}

// === impl Published ===

impl Published {
    /// What a client holds that was sent the run's end. `None` before the end, and if the run has
    /// none of its own.
    pub(super) fn shown(&self) -> Option<ShownDigest> {
        self.end.as_ref()?.key?.shown()
    }

    /// The run's last event, once it has ended.
    pub(super) fn end(&self) -> Option<&RunEvent> {
        self.end.as_ref().map(|end| &end.event)
    }

    /// Whether the run's past is still being replayed.
    pub(super) fn is_catching_up(&self) -> bool {
        self.end.is_none() && self.facts.history == History::Replaying
    }

    /// Whether a new reader can be sent a keyframe.
    pub(super) fn can_be_shown(&self) -> bool {
        self.end.is_some() || (!self.is_catching_up() && self.facts.knows_conversation)
    }

    /// Replaces the keyframe, if there is a new one. The caller drops the old one without the lock.
    #[must_use]
    fn set_keyframe(&mut self, keyframe: Option<Arc<Keyframe>>) -> Option<Arc<Keyframe>> {
        let keyframe = keyframe?;
        // A slow reader of the keyframe then finds the events since in the log.
        self.log.raise_limit(keyframe.memory_bytes() / 2);
        self.is_keyframe_wanted = false;
        self.keyframe.replace(keyframe)
    }

    /// The events that report the run's success to a reader whose client was sent all events before.
    /// `None` if the run has not succeeded.
    pub(super) fn succeeded(&self, open: &Open) -> Option<Events> {
        let end = self.end().filter(|end| {
            matches!(end, RunEvent::Ended { outcome: Outcome::Finished { .. }, .. })
        })?;
        let mut events = run::closings(open);
        events.push(end.clone());
        Some(events.into())
    }
}
