//! A keyframe: a run frozen at a position of its log, shared by all readers that begin there.
//!
//! ```text
//!   segment 0 .. 41 | 42 43 44 ..      the log
//!                   ^
//!                   a keyframe: the view after segment 41
//! ```
//! A new reader is sent the keyframe, and then the segments from its position on. The first reader
//! that needs the keyframe's events makes them; large ones are made outside the runtime's threads.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use tokio::sync::OnceCell;

use super::batch::Events;
use super::event_id::EventKey;
use crate::offload::offload;
use crate::sync::Mutex;
use threadway_translate::run::{
    self, EmitOptions, Interrupt, Open, Outcome, RunEvent, View, Viewer,
};

/// A keyframe is reused while the events written since take at most this fraction of it: an
/// eighth.
const REUSED_WITHIN: u64 = 8;

/// For how many earlier keyframes the difference is kept. Followers of a thread hold the end of its
/// previous run, or of one of the few before.
const MAX_KEPT_DELTAS: usize = 4;

/// A run at a position of its log.
#[derive(Debug)]
pub(super) struct Keyframe {
    /// The position after the last segment that the view includes.
    at: u64,
    /// The bytes of memory of all segments up to there.
    written: u64,
    /// The key of the last event up to there.
    key: Option<EventKey>,
    /// The client's view after these segments; `None` before the run has a name.
    view: Option<Arc<View>>,
    /// About how many bytes of memory the view keeps.
    memory_bytes: usize,
    options: EmitOptions,
    end: Option<EndEvent>,
    /// The events for a client that holds nothing.
    for_newcomer: OnceEvents,
    /// The events for clients that hold another keyframe, for the last few of those.
    since: Mutex<VecDeque<(Weak<Self>, OnceEvents)>>,
}

/// Events that are made once.
type OnceEvents = Arc<OnceCell<Option<Events>>>;

/// The last event of a run.
#[derive(Clone, Debug)]
pub(super) struct EndEvent {
    pub(super) event: RunEvent,
    pub(super) key: Option<EventKey>,
}

// === impl EndEvent ===

impl EndEvent {
    /// The end of the run, if these events have it.
    pub(super) fn of(events: &Events) -> Option<Self> {
        let event = events.last().filter(|last| matches!(last, RunEvent::Ended { .. }))?;
        Some(Self { event: event.clone(), key: events.last_key() })
    }
}

// === impl Keyframe ===

impl Keyframe {
    /// `at` is the log's end at the time of the view, and `written` the bytes of memory of all segments.
    pub(super) fn new(
        at: u64,
        written: u64,
        key: Option<EventKey>,
        view: Option<Arc<View>>,
        options: EmitOptions,
        end: Option<EndEvent>,
    ) -> Self {
        let memory_bytes = view.as_ref().map_or(0, |view| view.memory_bytes());
        let (for_newcomer, since) = (OnceEvents::default(), Mutex::default());
        Self { at, written, key, view, memory_bytes, options, end, for_newcomer, since }
    }

    /// The position where a reader continues after the keyframe.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// The key of the last event that it includes. `None` if no client can resume after that.
    pub(super) fn key(&self) -> Option<EventKey> {
        self.key
    }

    /// About how many bytes of memory its view keeps.
    pub(super) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Whether the keyframe is as good as a new one. `written` is the bytes of memory of all segments by
    /// now.
    pub(super) fn is_fresh(&self, written: u64) -> bool {
        written.saturating_sub(self.written) <= self.memory_bytes as u64 / REUSED_WITHIN
    }

    /// The events for a client that holds nothing. `None` while the conversation is not known.
    pub(super) async fn for_newcomer(self: &Arc<Self>) -> Option<Events> {
        self.make_once(&self.for_newcomer, None).await
    }

    /// The events for a client that holds another keyframe.
    pub(super) async fn since(self: &Arc<Self>, held: &Arc<Self>) -> Option<Events> {
        let events = {
            // Only a weak reference is kept: a strong one would keep the whole chain of earlier
            // keyframes.
            let mut since = self.since.lock();
            let known = since.iter().find(|(known, _)| known.as_ptr() == Arc::as_ptr(held));
            if let Some((_, events)) = known {
                Arc::clone(events)
            } else {
                let events = OnceEvents::default();
                since.truncate(MAX_KEPT_DELTAS - 1);
                since.push_front((Arc::downgrade(held), Arc::clone(&events)));
                events
            }
        };
        self.make_once(&events, Some(held)).await
    }

    /// The events for a client that holds this view.
    pub(super) fn for_holder(&self, held: &View) -> Option<Events> {
        offload(self.memory_bytes, || self.resync(Viewer::Holds(held)))
    }

    /// The events for a client that has missed a part of the run, and has this much open.
    pub(super) fn for_lagging(&self, open: &Open) -> Option<Events> {
        offload(self.memory_bytes, || self.resync(Viewer::Lagging(open)))
    }

    /// Whether clients of both hold the same, open questions included.
    pub(super) fn shows_same_as(&self, other: &Self) -> bool {
        if std::ptr::eq(self, other) {
            return true;
        }
        let (Some(view), Some(held)) = (&self.view, &other.view) else { return false };
        let is_same = || {
            let events = run::resync(view, Viewer::Holds(held), self.options);
            events.is_some_and(|events| events.is_empty())
        };
        self.questions() == other.questions()
            && offload(self.memory_bytes.max(other.memory_bytes), is_same)
    }

    async fn make_once(
        self: &Arc<Self>,
        events: &OnceEvents,
        held: Option<&Arc<Self>>,
    ) -> Option<Events> {
        let resync = async || {
            let view = held.and_then(|held| held.view.as_deref());
            offload(self.memory_bytes, || self.resync(view.map_or(Viewer::New, Viewer::Holds)))
        };
        events.get_or_init(resync).await.clone()
    }

    fn resync(&self, reader: Viewer<'_>) -> Option<Events> {
        let mut events = Events::from(run::resync(self.view.as_ref()?, reader, self.options)?);
        if let Some(EndEvent { event, key }) = &self.end {
            events.push(event.clone(), *key);
        }
        Some(events)
    }

    /// The questions that the run has left open.
    fn questions(&self) -> &[Interrupt] {
        match &self.end {
            Some(EndEvent {
                event: RunEvent::Ended { outcome: Outcome::Interrupted(questions), .. },
                ..
            }) => questions,
            _ => &[],
        }
    }
}
