//! What a run's driver has published of it, for its readers.
//!
//! The lock is held to add a segment, or to take a reference: nothing is computed under it.

use std::fmt;
use std::sync::{Arc, Weak};

use tokio::sync::{Notify, watch};

use super::batch::Events;
use super::event_id::Mark;
use super::feed::{Feed, Horizon};
use super::log::{RunLog, Segment};
use super::standing::{End, Standing};
use crate::metrics::Metrics;
use crate::sync::{Guard, Mutex};
use threadway_translate::run::{self, Emit, Failure, Loss, Open, Outcome, RunEvent};

/// One run being read, or a thread at rest.
pub(crate) struct Run {
    pub(super) thread_id: String,
    /// What its viewers are shown.
    pub(super) emit: Emit,
    pub(super) metrics: Metrics,
    published: Mutex<Published>,
    /// Rings when more is published. Only the driver holds it: without the driver it is silent for
    /// ever, and the readers hear that.
    bell: Weak<watch::Sender<()>>,
    /// A reader wants the run as it stands.
    asked: Notify,
    kind: Kind,
}

/// What a run is to its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A run of LangGraph's.
    Run,
    /// The thread at rest, shown as a run.
    AtRest,
}

/// What is known of a run.
#[derive(Debug)]
pub(super) struct Published {
    pub(super) log: RunLog,
    /// Whether somebody stopped it through us: not all servers record that.
    pub(super) is_stopped: bool,
    /// How many events were published.
    pub(super) events: u64,
    /// The run as it stood when somebody asked; as it ended, once it has.
    standing: Option<Arc<Standing>>,
    /// Whether a reader waits for a newer one.
    is_asked: bool,
    /// How it started, once it has.
    start: Option<RunEvent>,
    /// How it ended.
    end: Option<End>,
    run_id: Option<Arc<str>>,
    past: Past,
    /// Whether the run's conversation is known.
    is_known: bool,
    horizon: Horizon,
}

/// How what is published stands to what the run has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Past {
    /// It is all there, from the run's beginning.
    Kept,
    /// It is still being replayed.
    Replaying,
    /// It was replayed, as far as it could be.
    Replayed,
}

/// What a reader finds that wants the run as it stands.
pub(super) enum Shown {
    Standing(Arc<Standing>),
    /// The driver is to publish one: then the bell rings.
    Asked,
}

// === impl Run ===

impl Run {
    /// A run that begins with what its feed can say of it by now.
    pub(super) fn new(
        thread_id: &str,
        feed: &mut Feed,
        log_bytes: usize,
        past: Past,
        bell: Weak<watch::Sender<()>>,
        metrics: Metrics,
    ) -> Self {
        let published = Published {
            log: RunLog::new(log_bytes),
            is_stopped: false,
            events: 0,
            standing: None,
            is_asked: false,
            start: None,
            end: None,
            run_id: None,
            past,
            is_known: false,
            horizon: feed.horizon(),
        };
        let (thread_id, emit) = (thread_id.to_owned(), feed.emit());
        let (published, asked) = (Mutex::new(published), Notify::new());
        let run = Self { thread_id, emit, metrics, published, bell, asked, kind: Kind::Run };
        let mut events = Events::default();
        feed.start(&mut events);
        run.publish(feed, past, events);
        run
    }

    /// What is over before anybody reads it.
    pub(super) fn over(
        thread_id: &str,
        mut feed: Feed,
        metrics: Metrics,
        end: impl FnOnce(&mut Feed, &mut Events),
    ) -> Self {
        let run = Self::new(thread_id, &mut feed, 0, Past::Kept, Weak::new(), metrics);
        let run = Self { kind: Kind::AtRest, ..run };
        let mut events = Events::default();
        end(&mut feed, &mut events);
        run.publish(&feed, Past::Kept, events);
        run
    }

    /// Publishes what has become of the feed. Only its owner does. Returns whether there is
    /// anything in it for a reader.
    pub(super) fn publish(&self, feed: &Feed, past: Past, events: Events) -> bool {
        let (is_known, horizon) = (feed.knows_conversation(), feed.horizon());
        let start =
            events.first().filter(|first| matches!(first, RunEvent::Started { .. })).cloned();
        let (last, mark) = (events.last(), events.last_mark());
        let end = last.filter(|last| matches!(last, RunEvent::Ended { .. }));
        let end = end.map(|event| End { event: event.clone(), mark });
        let count = events.len() as u64;
        let segment = (count > 0).then(|| Arc::new(Segment::new(events)));
        // Who reads the end finds the run as it has ended.
        let ended = end.as_ref().map(|end| {
            let added = segment.as_ref().map_or((0, 0), |segment| (1, segment.bytes() as u64));
            let published = self.published();
            let (at, written) = (published.log.end() + added.0, published.log.written() + added.1);
            drop(published);
            Arc::new(Standing::new(at, written, feed.shared_view(), feed.emit(), Some(end.clone())))
        });
        let (is_new, is_asked, _forgotten) = {
            let mut published = self.published();
            let is_new = count > 0 || published.past != past;
            published.past = past;
            published.is_known = is_known;
            published.horizon = horizon;
            published.events += count;
            if published.end.is_none() {
                published.end = end;
            }
            if published.start.is_none() {
                published.start = start;
            }
            if published.run_id.is_none() {
                published.run_id = feed.run_id().map(Arc::from);
            }
            let forgotten = segment.map(|segment| published.log.push(segment));
            let replaced = published.stand(ended);
            // To drop them takes time, for which nobody is to wait under the lock.
            (is_new, published.is_asked, (forgotten, replaced))
        };
        if is_asked {
            self.stand(feed);
        }
        is_new || is_asked
    }

    /// Publishes the run as it stands. Only the feed's owner does.
    pub(super) fn stand(&self, feed: &Feed) {
        let (at, written, end) = {
            let published = self.published();
            (published.log.end(), published.log.written(), published.end.clone())
        };
        let standing = Arc::new(Standing::new(at, written, feed.shared_view(), feed.emit(), end));
        self.metrics.stood();
        let replaced = self.published().stand(Some(standing));
        drop(replaced);
    }

    /// Waits until a reader wants the run as it stands.
    pub(super) async fn asked(&self) {
        self.asked.notified().await;
    }

    /// The run as it stands, or as it stood a moment ago, for one who can read all since.
    ///
    /// `asked_at` is where the log ended when the reader asked first. What has been made since is
    /// for it, however much the run has said meanwhile: a run that says much would keep it waiting.
    pub(super) fn show(&self, asked_at: &mut Option<u64>) -> Shown {
        let mut published = self.published();
        let is_fresh = |standing: &&Arc<Standing>| {
            let is_for_it = asked_at.is_some_and(|position| standing.at() >= position);
            published.log.has_all_from(standing.at())
                && (is_for_it || standing.is_fresh(published.log.written()))
                && (published.end.is_none() || standing.at() == published.log.end())
        };
        if let Some(standing) = published.standing.as_ref().filter(is_fresh) {
            *asked_at = None;
            return Shown::Standing(Arc::clone(standing));
        }
        asked_at.get_or_insert(published.log.end());
        published.is_asked = true;
        drop(published);
        self.asked.notify_one();
        Shown::Asked
    }

    /// LangGraph's id of the run, once it is known.
    pub(crate) fn id(&self) -> Option<Arc<str>> {
        self.published().run_id.clone()
    }

    /// Whether its client calls it so.
    pub(super) fn is_called(&self, name: &str) -> bool {
        match &self.published().start {
            Some(RunEvent::Started { name: known, .. }) => **known == *name,
            _ => false,
        }
    }

    /// Whether it is the thread at rest: it tells all that what came before it has told.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.kind == Kind::AtRest
    }

    /// Whether we lost sight of it before its end.
    pub(crate) fn is_lost(&self) -> bool {
        match &self.published().end {
            Some(End {
                event: RunEvent::Ended { outcome: Outcome::Failed(failure), .. }, ..
            }) => {
                matches!(failure.loss(), Some(Loss::Unreadable | Loss::Unavailable))
            }
            Some(_) => false,
            None => true,
        }
    }

    /// A driver that panics leaves what it has published: that stays true.
    #[track_caller]
    pub(super) fn published(&self) -> Guard<'_, Published> {
        self.published.lock()
    }

    /// The run as it ended; `None` before.
    pub(super) fn ended(&self) -> Option<Arc<Standing>> {
        let published = self.published();
        published.end.as_ref()?;
        published.standing.clone()
    }

    /// What rings when more is published; silent where nothing will be.
    pub(super) fn bell(&self) -> watch::Receiver<()> {
        match self.bell.upgrade() {
            Some(bell) => bell.subscribe(),
            None => watch::Sender::new(()).subscribe(),
        }
    }

    /// Whether somebody reads it.
    pub(super) fn has_readers(&self) -> bool {
        self.bell.upgrade().is_some_and(|bell| bell.receiver_count() > 0)
    }

    /// Whether it is still being read.
    pub(crate) fn is_driven(&self) -> bool {
        self.bell.strong_count() > 0
    }

    /// Whether who was told this run to its end holds what another tells, questions included.
    pub(crate) fn tells_as_much_as(&self, other: &Self) -> bool {
        if std::ptr::eq(self, other) {
            return true;
        }
        match (self.ended(), other.ended()) {
            (Some(this), Some(other)) => this.tells_as_much_as(&other),
            _ => false,
        }
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thread_id, emit: _, metrics: _, published: _, bell: _, asked: _, kind } = self;
        let mut run = f.debug_struct("Run");
        run.field("thread_id", thread_id).field("kind", kind).finish_non_exhaustive()
    }
}

// === impl Published ===

impl Published {
    /// How the run started, once it has.
    pub(super) fn start(&self) -> Option<&RunEvent> {
        self.start.as_ref()
    }

    /// How the run ended.
    pub(super) fn end(&self) -> Option<&RunEvent> {
        self.end.as_ref().map(|end| &end.event)
    }

    /// Whether the run has ended, and by itself: an error of ours has no mark.
    pub(super) fn has_end_mark(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.mark.is_some())
    }

    /// Whether what has passed is still being replayed.
    pub(super) fn is_catching_up(&self) -> bool {
        self.end.is_none() && self.past == Past::Replaying
    }

    /// Whether an event that is not kept may still come.
    pub(super) fn may_reach(&self, mark: Mark) -> bool {
        self.end.is_none() && self.horizon.may_reach(mark)
    }

    /// Whether a newcomer can be told the run as it stands.
    pub(super) fn can_be_told(&self) -> bool {
        self.end.is_some() || (!self.is_catching_up() && self.is_known)
    }

    /// Whether a newcomer gets the run from its beginning, which is all there is: the run speaks,
    /// and has not told its conversation yet.
    pub(super) fn must_be_told_from_the_start(&self) -> bool {
        self.past == Past::Kept && !self.is_known && self.log.is_whole()
    }

    /// Takes a newer standing, if there is one. The one before it is to be dropped without the lock.
    #[must_use]
    fn stand(&mut self, standing: Option<Arc<Standing>>) -> Option<Arc<Standing>> {
        let standing = standing?;
        // One that takes long to read it finds what was said meanwhile.
        self.log.keep(standing.weight() / 2);
        self.is_asked = false;
        self.standing.replace(standing)
    }

    /// What ends the stream of a reader, who has this much open, before the run is over.
    pub(super) fn failed(&self, open: Option<&Open>, loss: Loss, message: &str) -> Events {
        let mut events = open.map_or_else(|| self.start.iter().cloned().collect(), run::closings);
        let failure = Failure::Gateway { loss, message: message.to_owned() };
        let outcome = Outcome::Failed(failure);
        events.push(RunEvent::Ended { outcome, usage: Vec::new() });
        events.into()
    }
}
