//! A run as it stood at a position of its log: frozen, and shared by all who are shown it.
//!
//! ```text
//!   segment 0 .. 41 | 42 43 44 ..      the log
//!                   ^
//!                   a standing: the view behind segment 41
//! ```
//! A newcomer is sent the standing, and then the segments from its position on. What it is sent is
//! made once, by the first who asks, on no runtime thread if it is large.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use tokio::sync::OnceCell;

use super::batch::Events;
use super::event_id::Mark;
use crate::sync::Mutex;
use threadway_translate::run::{self, Emit, Interrupt, Open, Outcome, RunEvent, View, Viewer};

/// From how many bytes on a conversation and state are compared and told beside the runtime's
/// threads: parsing and comparing 1 MB takes some milliseconds, in which no other stream moves.
const LARGE: usize = 1_000_000;

/// A standing is shown again while what has been said since weighs no more than this part of it.
const REUSED_WITHIN: u64 = 8;

/// For how many other standings the way from there is kept. Followers of a thread hold the end of its
/// last run, or of one of the few before it.
const MAX_KEPT_WAYS: usize = 4;

/// A run at a position of its log.
#[derive(Debug)]
pub(super) struct Standing {
    /// The position behind the last segment that it holds.
    at: u64,
    /// What all segments up to there weigh.
    written: u64,
    /// What one holds who was told all of these; `None` before the run has a name.
    view: Option<Arc<View>>,
    /// What the view weighs.
    weight: usize,
    /// What the view shows of the run.
    emit: Emit,
    /// How the run has ended.
    end: Option<End>,
    /// What one is sent who holds nothing.
    for_newcomer: Made,
    /// What one is sent who holds another standing: the last few that were asked for.
    after: Mutex<VecDeque<(Weak<Self>, Made)>>,
}

/// Events that are made once.
type Made = Arc<OnceCell<Option<Events>>>;

/// The last event of a run.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) event: RunEvent,
    pub(super) mark: Option<Mark>,
}

// === impl Standing ===

impl Standing {
    /// The run as it is behind a position of its log.
    pub(super) fn new(
        at: u64,
        written: u64,
        view: Option<Arc<View>>,
        emit: Emit,
        end: Option<End>,
    ) -> Self {
        let weight = view.as_ref().map_or(0, |view| view.weight());
        let (for_newcomer, after) = (Made::default(), Mutex::default());
        Self { at, written, view, weight, emit, end, for_newcomer, after }
    }

    /// The position behind the last segment that it holds.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// About how many bytes of memory its view keeps.
    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    /// Whether it is as good as a new one, at a time when segments of such a weight were written.
    pub(super) fn is_fresh(&self, written: u64) -> bool {
        written.saturating_sub(self.written) <= self.weight as u64 / REUSED_WITHIN
    }

    /// What brings one to the standing who holds nothing. `None` while the conversation is not
    /// known.
    pub(super) async fn for_newcomer(self: &Arc<Self>) -> Option<Events> {
        self.made(&self.for_newcomer, None).await
    }

    /// What brings one to the standing who holds another.
    pub(super) async fn after(self: &Arc<Self>, held: &Arc<Self>) -> Option<Events> {
        let made = {
            // The other one is not kept: it would keep the one before it.
            let mut after = self.after.lock();
            let known = after.iter().find(|(known, _)| known.as_ptr() == Arc::as_ptr(held));
            if let Some((_, made)) = known {
                Arc::clone(made)
            } else {
                let made = Made::default();
                after.truncate(MAX_KEPT_WAYS - 1);
                after.push_front((Arc::downgrade(held), Arc::clone(&made)));
                made
            }
        };
        self.made(&made, Some(held)).await
    }

    /// What brings one to the standing who holds this view.
    pub(super) async fn for_holder(self: &Arc<Self>, held: Arc<View>) -> Option<Events> {
        let this = Arc::clone(self);
        beside(self.weight, move || this.resync(Viewer::Holds(&held))).await
    }

    /// What brings one back to the standing who has missed some of the run, and has this much open.
    pub(super) async fn for_straggler(self: &Arc<Self>, open: Open) -> Option<Events> {
        let this = Arc::clone(self);
        beside(self.weight, move || this.resync(Viewer::Lagging(&open))).await
    }

    /// Whether who holds it holds what another tells, questions included.
    pub(super) fn tells_as_much_as(&self, other: &Self) -> bool {
        if std::ptr::eq(self, other) {
            return true;
        }
        let (Some(view), Some(held)) = (&self.view, &other.view) else { return false };
        self.questions() == other.questions()
            && run::resync(view, Viewer::Holds(held), self.emit)
                .is_some_and(|events| events.is_empty())
    }

    async fn made(self: &Arc<Self>, events: &Made, held: Option<&Arc<Self>>) -> Option<Events> {
        let resync = async || {
            let (this, held) = (Arc::clone(self), held.cloned());
            beside(self.weight, move || {
                let view = held.as_ref().and_then(|held| held.view.as_deref());
                this.resync(view.map_or(Viewer::New, Viewer::Holds))
            })
            .await
        };
        events.get_or_init(resync).await.clone()
    }

    fn resync(&self, reader: Viewer<'_>) -> Option<Events> {
        let mut events = Events::from(run::resync(self.view.as_ref()?, reader, self.emit)?);
        if let Some(End { event, mark }) = &self.end {
            events.push(event.clone(), *mark);
        }
        Some(events)
    }

    /// The questions that the run has left open.
    fn questions(&self) -> &[Interrupt] {
        match &self.end {
            Some(End {
                event: RunEvent::Ended { outcome: Outcome::Interrupted(questions), .. },
                ..
            }) => questions,
            _ => &[],
        }
    }
}

/// Does some work on a value of this weight: a large one not on a thread of the runtime.
pub(super) async fn beside<T: Send + 'static>(
    weight: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if weight < LARGE {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        // It is not aborted: it has panicked, and its panic is ours.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
