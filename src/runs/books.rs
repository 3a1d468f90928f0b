//! What is known of one run: its view, the log of its events, how it began and how it ended.

use std::fmt;
use std::sync::{Arc, Weak};

use tokio::sync::watch;

use super::batch::Events;
use super::event_id::Mark;
use super::feed::Feed;
use super::log::RunLog;
use super::{UPSTREAM_LOST, UPSTREAM_UNAVAILABLE};
use crate::metrics::Metrics;
use crate::run::{self, Holds, Open, Outcome, RunEvent, View};
use crate::sync::{Guard, Mutex};

/// One run being read, or a thread at rest.
pub(super) struct Run {
    pub(super) thread_id: String,
    pub(super) metrics: Metrics,
    books: Mutex<Books>,
    /// Rings when the books change. Only the driver holds it: without the driver it is silent for
    /// ever, and the readers hear that.
    bell: Weak<watch::Sender<()>>,
}

/// What is known of a run.
#[derive(Debug)]
pub(super) struct Books {
    pub(super) feed: Feed,
    pub(super) log: RunLog,
    pub(super) standing: Standing,
    /// Whether somebody stopped it through us: not all servers record that.
    pub(super) is_stopped: bool,
    /// How many events were written.
    pub(super) events: u64,
    /// How it started, once it has.
    start: Option<RunEvent>,
    /// How it ended.
    pub(super) end: Option<RunEvent>,
    end_mark: Option<Mark>,
}

/// How the books stand to the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// They have been kept from the run's beginning.
    Complete,
    /// What has passed is still being replayed.
    CatchingUp,
    /// They say what the run says.
    Live,
}

// === impl Run ===

impl Run {
    pub(super) fn new(
        thread_id: &str,
        feed: Feed,
        log_bytes: usize,
        standing: Standing,
        bell: Weak<watch::Sender<()>>,
        metrics: Metrics,
    ) -> Self {
        let mut books = Books {
            feed,
            log: RunLog::new(log_bytes),
            standing,
            is_stopped: false,
            events: 0,
            start: None,
            end: None,
            end_mark: None,
        };
        let mut events = Events::default();
        books.feed.start(&mut events);
        books.write(events);
        Self { thread_id: thread_id.to_owned(), metrics, books: Mutex::new(books), bell }
    }

    /// What is over before anybody reads it.
    pub(super) fn over(
        thread_id: &str,
        feed: Feed,
        metrics: Metrics,
        end: impl FnOnce(&mut Feed, &mut Events),
    ) -> Self {
        let run = Self::new(thread_id, feed, 0, Standing::Complete, Weak::new(), metrics);
        {
            let mut books = run.books();
            let mut events = Events::default();
            end(&mut books.feed, &mut events);
            books.write(events);
        }
        run
    }

    /// Whether we lost sight of it before its end.
    pub(super) fn is_lost(&self) -> bool {
        match &self.books().end {
            Some(RunEvent::Ended { outcome: Outcome::Failed { code, .. }, .. }) => {
                code == UPSTREAM_LOST || code == UPSTREAM_UNAVAILABLE
            }
            Some(_) => false,
            None => true,
        }
    }

    /// A driver that panics leaves its books as they are: what is in the log stays true.
    #[track_caller]
    pub(super) fn books(&self) -> Guard<'_, Books> {
        self.books.lock()
    }

    /// What one holds who was told all so far; `None` before there is any.
    pub(super) fn told(&self) -> Option<Arc<View>> {
        self.books().feed.shared_view()
    }

    /// What rings when the books change; silent where nothing will change them.
    pub(super) fn bell(&self) -> watch::Receiver<()> {
        match self.bell.upgrade() {
            Some(bell) => bell.subscribe(),
            None => watch::Sender::new(()).subscribe(),
        }
    }

    /// Whether it is still being read.
    pub(super) fn is_driven(&self) -> bool {
        self.bell.strong_count() > 0
    }

    /// Whether who was told this run to its end holds what another tells, questions included.
    pub(super) fn tells_as_much_as(&self, other: &Self) -> bool {
        if std::ptr::eq(self, other) {
            return true;
        }
        // Of two runs, one's books are looked into after the other's.
        let (Some((view, questions)), Some((held, others))) = (self.holding(), other.holding())
        else {
            return false;
        };
        questions == others
            && run::resync(&view, Holds::This(&held)).is_some_and(|events| events.is_empty())
    }

    /// What one holds who was told this run to its end, and the questions that it has left open.
    fn holding(&self) -> Option<(Arc<View>, Vec<run::Interrupt>)> {
        let books = self.books();
        Some((books.feed.shared_view()?, books.questions().to_vec()))
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thread_id, metrics: _, books: _, bell: _ } = self;
        f.debug_struct("Run").field("thread_id", thread_id).finish_non_exhaustive()
    }
}

// === impl Books ===

impl Books {
    pub(super) fn write(&mut self, events: Events) {
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return };
        self.start.get_or_insert_with(|| first.clone());
        if let RunEvent::Ended { .. } = last {
            self.end = Some(last.clone());
            self.end_mark = events.last_mark();
        }
        self.events += events.len() as u64;
        self.log.push(events);
    }

    /// How the run started, once it has.
    pub(super) fn start(&self) -> Option<&RunEvent> {
        self.start.as_ref()
    }

    /// Whether what has passed is still being replayed.
    pub(super) fn is_catching_up(&self) -> bool {
        self.end.is_none() && self.standing == Standing::CatchingUp
    }

    /// Where the run's end stands in the log: the position of its batch, and its place in that.
    /// `None` while the run is live, and if the log ends with an error of ours.
    pub(super) fn find_end(&self) -> Option<(u64, usize)> {
        self.end_mark?;
        self.log.last()
    }

    /// Whether an event that is not kept may still come.
    pub(super) fn may_reach(&self, mark: Mark) -> bool {
        self.end.is_none() && self.feed.may_reach(mark)
    }

    /// Whether a newcomer can be told the run as it stands.
    pub(super) fn can_be_told(&self) -> bool {
        self.end.is_some() || (!self.is_catching_up() && self.is_known())
    }

    /// Whether a newcomer gets the run from its beginning, which is all there is: the run speaks,
    /// and has not told its conversation yet.
    pub(super) fn must_be_told_from_the_start(&self) -> bool {
        self.standing == Standing::Complete && !self.is_known() && self.log.is_whole()
    }

    /// Whether the run's conversation is known; where none comes, as of a graph without messages,
    /// its state is enough.
    fn is_known(&self) -> bool {
        self.feed.view().is_some_and(|view| {
            view.is_based() || (view.state().is_some() && view.messages().is_empty())
        })
    }

    /// What brings a reader to the run as it stands. `None` while the conversation is not known.
    pub(super) fn resync(&self, reader: Holds<'_>) -> Option<Events> {
        let mut events = Events::from(run::resync(self.feed.view()?, reader)?);
        if let Some(end) = &self.end {
            events.push(end.clone(), self.end_mark);
        }
        Some(events)
    }

    /// What ends the stream of a reader, who has this much open, before the run is over.
    pub(super) fn failed(&self, open: Option<&Open>, code: &str, message: &str) -> Events {
        let mut events = open.map_or_else(|| self.start.iter().cloned().collect(), run::closings);
        let outcome = Outcome::Failed { code: code.to_owned(), message: message.to_owned() };
        events.push(RunEvent::Ended { outcome, usage: Vec::new() });
        events.into()
    }

    /// The questions that the run has left open.
    fn questions(&self) -> &[run::Interrupt] {
        match &self.end {
            Some(RunEvent::Ended { outcome: Outcome::Interrupted(questions), .. }) => questions,
            _ => &[],
        }
    }
}
