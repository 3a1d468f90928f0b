//! The state of a run that its driver publishes for its readers.
//!
//! The lock is held to add a segment or to take a reference. Nothing is computed under it.

use std::fmt;
use std::sync::{Arc, Weak};

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::batch::Events;
use super::credential_ring::CredentialRing;
use super::decoder::{RunDecoder, Watermark};
use super::event_id::{EventId, EventKey, ShownDigest};
use super::keyframe::{EndEvent, Keyframe};
use super::log::{Retained, RunLog, Segment};
use crate::metrics::{Charge, Metrics};
use crate::offload::offload;
use crate::sync::{Guard, Mutex};
use threadway_translate::run::{self, EmitOptions, Failure, Loss, Open, Outcome, RunEvent};

/// A run that is being read, or an idle thread shown as a run.
pub(crate) struct Run {
    pub(super) thread_id: String,
    /// The options that limit what viewers are shown.
    pub(super) emit: EmitOptions,
    pub(super) metrics: Metrics,
    published: Mutex<Published>,
    /// Notified when more is published. The driver holds the only strong reference: when the driver
    /// is gone, the readers' receivers are closed.
    changed: Weak<watch::Sender<()>>,
    keyframe_wanted: Notify,
    /// Notified when a client stops the run through this gateway.
    stop_noted: Notify,
    /// The callers who read the run. `None` for an idle thread, which is not read any further.
    credentials: Option<Arc<CredentialRing<Bar>>>,
    /// Since when the upstream has not answered. `None` while it does.
    away_since: watch::Sender<Option<Instant>>,
    /// Whether this is an idle thread, not a run of LangGraph.
    is_idle: bool,
    /// For the state of an idle thread.
    _charge: Option<Arc<Charge>>,
}

/// The published state of a run.
#[derive(Debug)]
pub(super) struct Published {
    pub(super) log: RunLog,
    /// Whether a client stopped the run through this gateway. Not all servers record that.
    pub(super) is_stopped: bool,
    /// How many events were published.
    pub(super) events: u64,
    /// The newest keyframe; at the run's end the final one.
    keyframe: Option<Arc<Keyframe>>,
    /// Whether a reader waits for a newer keyframe.
    is_keyframe_wanted: bool,
    /// The run's first event.
    start: Option<RunEvent>,
    /// The run's last event.
    end: Option<EndEvent>,
    /// The key of the newest event.
    last_key: Option<EventKey>,
    run_id: Option<Arc<str>>,
    history: History,
    knows_conversation: bool,
    watermark: Watermark,
}

/// What the readers of a caller are still shown whose credentials the upstream refuses, while it
/// accepts another caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bar {
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
pub(super) enum Beginning {
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

/// Puts into the key of the run's end what viewers hold then.
fn name_end(decoder: &RunDecoder, events: &mut Events) {
    if let Some(RunEvent::Ended { outcome, .. }) = events.last()
        && let Some(key) = events.last_key()
    {
        let memory_bytes = decoder.shared_view().map_or(0, |view| view.memory_bytes());
        let shown = offload(memory_bytes, || decoder.shown(outcome));
        events.set_last_key(key.showing(shown.unwrap_or_default()));
    }
}

// === impl Run ===

impl Run {
    /// A run, with the events that its decoder can already make. `changed` is the driver's.
    pub(super) fn new(
        decoder: &mut RunDecoder,
        log_bytes: usize,
        history: History,
        changed: Weak<watch::Sender<()>>,
        metrics: Metrics,
    ) -> Self {
        let published = Published {
            log: RunLog::new(log_bytes),
            is_stopped: false,
            events: 0,
            keyframe: None,
            is_keyframe_wanted: false,
            start: None,
            end: None,
            last_key: None,
            run_id: None,
            history,
            knows_conversation: false,
            watermark: decoder.watermark(),
        };
        let run = Self {
            thread_id: decoder.thread_id().to_owned(),
            emit: decoder.emit(),
            metrics,
            published: Mutex::new(published),
            changed,
            keyframe_wanted: Notify::new(),
            stop_noted: Notify::new(),
            credentials: None,
            away_since: watch::Sender::default(),
            is_idle: false,
            _charge: None,
        };
        let mut events = Events::default();
        decoder.start(&mut events);
        run.publish(decoder, history, events);
        run
    }

    /// The same run, read with these credentials.
    pub(super) fn read_with(self, credentials: Arc<CredentialRing<Bar>>) -> Self {
        Self { credentials: Some(credentials), ..self }
    }

    /// The callers who read the run. `None` for an idle thread.
    pub(super) fn credentials(&self) -> Option<&Arc<CredentialRing<Bar>>> {
        self.credentials.as_ref()
    }

    /// Notes whether a client is stopping the run through this gateway.
    pub(super) fn note_stop(&self, is_stopped: bool) {
        self.published().is_stopped = is_stopped;
        if is_stopped {
            self.stop_noted.notify_one();
        }
    }

    /// Waits until a client stops the run through this gateway.
    pub(super) async fn stop_noted(&self) {
        self.stop_noted.notified().await;
    }

    /// An idle thread as a run that is over. `end` makes its events.
    pub(super) fn idle(
        mut decoder: RunDecoder,
        metrics: Metrics,
        charge: Option<Arc<Charge>>,
        end: impl FnOnce(&mut RunDecoder, &mut Events),
    ) -> Self {
        let run = Self::new(&mut decoder, 0, History::Complete, Weak::new(), metrics);
        let run = Self { is_idle: true, _charge: charge, ..run };
        let mut events = Events::default();
        end(&mut decoder, &mut events);
        run.publish(&decoder, History::Complete, events);
        run
    }

    /// Publishes new events and the decoder's state. Only the decoder's owner does. Returns whether
    /// readers have to look.
    pub(super) fn publish(
        &self,
        decoder: &RunDecoder,
        history: History,
        mut events: Events,
    ) -> bool {
        name_end(decoder, &mut events);
        let (knows_conversation, watermark) = (decoder.knows_conversation(), decoder.watermark());
        let start =
            events.first().filter(|first| matches!(first, RunEvent::Started { .. })).cloned();
        let (last, key) = (events.last(), events.last_key());
        let end = last.filter(|last| matches!(last, RunEvent::Ended { .. }));
        let end = end.map(|event| EndEvent { event: event.clone(), key });
        let count = events.len() as u64;
        let segment = (count > 0).then(|| Arc::new(Segment::new(events)));
        // The end and the final keyframe are published together: a reader of the end needs both.
        let final_keyframe = end.as_ref().map(|end| {
            let added =
                segment.as_ref().map_or((0, 0), |segment| (1, segment.memory_bytes() as u64));
            let published = self.published();
            let (at, written) = (published.log.end() + added.0, published.log.written() + added.1);
            drop(published);
            let (view, emit) = (decoder.shared_view(), decoder.emit());
            Arc::new(Keyframe::new(at, written, key, view, emit, Some(end.clone())))
        });
        let (is_new, is_keyframe_wanted, _dropped) = {
            let mut published = self.published();
            let is_new = count > 0 || published.history != history;
            published.history = history;
            published.knows_conversation = knows_conversation;
            published.watermark = watermark;
            published.events += count;
            if count > 0 {
                published.last_key = key;
            }
            if published.end.is_none() {
                published.end = end;
            }
            if published.start.is_none() {
                published.start = start;
            }
            if published.run_id.is_none() {
                published.run_id = decoder.run_id().map(Arc::from);
            }
            let evicted = segment.map(|segment| published.log.push(segment));
            let replaced = published.set_keyframe(final_keyframe);
            // Dropping takes time, so it is done without the lock.
            (is_new, published.is_keyframe_wanted, (evicted, replaced))
        };
        if is_keyframe_wanted {
            self.publish_keyframe(decoder);
        }
        is_new || is_keyframe_wanted
    }

    /// Publishes a keyframe of the run as it is now. Only the decoder's owner does.
    pub(super) fn publish_keyframe(&self, decoder: &RunDecoder) {
        let (at, written, key, end) = {
            let published = self.published();
            let Published { log, last_key, end, .. } = &*published;
            (log.end(), log.written(), *last_key, end.clone())
        };
        let (view, emit) = (decoder.shared_view(), decoder.emit());
        let keyframe = Arc::new(Keyframe::new(at, written, key, view, emit, end));
        self.metrics.keyframe_made();
        let replaced = self.published().set_keyframe(Some(keyframe));
        drop(replaced);
    }

    /// Publishes since when the upstream has not answered. Only the driver does.
    pub(super) fn set_away(&self, since: Option<Instant>) {
        self.away_since.send_if_modified(|known| std::mem::replace(known, since) != since);
    }

    /// Since when the upstream has not answered.
    pub(super) fn away_since(&self) -> watch::Receiver<Option<Instant>> {
        self.away_since.subscribe()
    }

    /// Waits until a reader wants a keyframe.
    pub(super) async fn keyframe_wanted(&self) {
        self.keyframe_wanted.notified().await;
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
        self.keyframe_wanted.notify_one();
        None
    }

    /// LangGraph's id of the run, once it is known.
    pub(crate) fn id(&self) -> Option<Arc<str>> {
        self.published().run_id.clone()
    }

    /// Whether the run's client has given it this name.
    pub(super) fn is_called(&self, name: &str) -> bool {
        match &self.published().start {
            Some(RunEvent::Started { name: known, .. }) => **known == *name,
            _ => false,
        }
    }

    /// Whether this is an idle thread, not a run of LangGraph. It shows everything that the runs
    /// before it have shown.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// Whether the reading ended, or goes on, without the run's own end.
    pub(crate) fn is_lost(&self) -> bool {
        match &self.published().end {
            Some(EndEvent {
                event: RunEvent::Ended { outcome: Outcome::Failed(failure), .. },
                ..
            }) => {
                matches!(failure.loss(), Some(Loss::Unreadable | Loss::Unavailable))
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

    /// Notified when more is published; closed if nothing will be.
    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        match self.changed.upgrade() {
            Some(changed) => changed.subscribe(),
            None => watch::Sender::new(()).subscribe(),
        }
    }

    /// Whether a client whose last event this is holds the run to its end, or what the run's end
    /// shows.
    pub(crate) fn is_held_after(&self, event: &EventId) -> bool {
        let shown = event.shown();
        shown.is_some() && shown == self.published().shown()
    }

    /// Whether a driver still reads the run.
    pub(crate) fn is_driven(&self) -> bool {
        self.changed.strong_count() > 0
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
        let Self { thread_id, emit: _, metrics: _, published: _, .. } = self;
        let mut run = f.debug_struct("Run");
        run.field("thread_id", thread_id).field("is_idle", &self.is_idle).finish_non_exhaustive()
    }
}

// === impl Published ===

impl Published {
    /// The run's first event, once there is one.
    pub(super) fn start(&self) -> Option<&RunEvent> {
        self.start.as_ref()
    }

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
        self.end.is_none() && self.history == History::Replaying
    }

    /// What a search for the event with this key needs.
    pub(super) fn past(&self, key: EventKey) -> Past {
        Past {
            retained: self.log.retained(),
            end: self.log.end(),
            start: self.start.clone(),
            has_end: self.end.as_ref().is_some_and(|end| end.key.is_some()),
            may_come: self.end.is_none() && self.watermark.may_still_come(key),
            is_catching_up: self.is_catching_up(),
        }
    }

    /// Whether a new reader can be sent a keyframe.
    pub(super) fn can_be_shown(&self) -> bool {
        self.end.is_some() || (!self.is_catching_up() && self.knows_conversation)
    }

    /// How a reader begins whose client has seen nothing of the run. `holds_nothing`: nor of the
    /// thread.
    pub(super) fn beginning(&self, holds_nothing: bool) -> Beginning {
        let has_shown_little =
            self.history == History::Complete && !self.knows_conversation && self.log.is_whole();
        match &self.start {
            _ if holds_nothing && has_shown_little => Beginning::FirstEvent,
            None => Beginning::Later,
            Some(_) if self.can_be_shown() => Beginning::Keyframe,
            Some(start) => Beginning::Start(start.clone()),
        }
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

    /// The events that end a reader's stream before the run is over. `open` is what the reader's
    /// client has open; `None` if the client was sent nothing of the run.
    pub(super) fn failed(&self, open: Option<&Open>, loss: Loss, message: &str) -> Events {
        let mut events = open.map_or_else(|| self.start.iter().cloned().collect(), run::closings);
        let failure = Failure::Gateway { loss, message: message.to_owned() };
        let outcome = Outcome::Failed(failure);
        events.push(RunEvent::Ended { outcome, usage: Vec::new() });
        events.into()
    }
}
