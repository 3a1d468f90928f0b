//! The runs that this replica reads: one task and one upstream connection each, any number of
//! readers.
//!
//! ```text
//!  upstream::Body --> driver (Feed: decode, translate) --> books { view, log } --> RunReader, ..
//!                        ^                                        bell rings -->   each pulls
//!                        +-- ends with its run, at shutdown, or when the last reader leaves
//! ```
//! The driver never waits for a reader. The log is bounded in bytes; a reader that falls off it
//! is brought back from the view, which is the one that the translator keeps.

mod capture;
mod driver;
mod ending;
mod feed;
mod fork;
mod log;
mod reader;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use capture::{Fault, translate};
pub use feed::Feed;
pub use fork::{ForkError, fork_point};
pub use reader::{INTERNAL_ERROR, READER_TOO_SLOW, RunReader};

use crate::run::{self, Open, Outcome, RunEvent, View};
use crate::upstream::{Client, RunStream};
use driver::Driver;
use log::RunLog;

/// The code of a run that we lost sight of.
pub const UPSTREAM_LOST: &str = "upstream_lost";

/// The code of a stream that ends because the gateway does.
pub const GATEWAY_SHUTDOWN: &str = "gateway_shutdown";

/// How much of a run is kept for readers that are slower than it: some 3,000 tokens, half a minute
/// of a fast model. Who is further behind gets the view, which costs about what its messages do.
pub const DEFAULT_LOG_BYTES: usize = 1024 * 1024;

/// The runs that this replica reads. Clones share them.
#[derive(Clone, Debug)]
pub struct Runs(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    live: Live,
    tasks: TaskTracker,
    log_bytes: usize,
    /// Cancelled when the runs are to be let go of.
    shutdown: CancellationToken,
}

/// The runs being read, by LangGraph's run id.
#[derive(Debug, Default)]
struct Live(Mutex<HashMap<String, Arc<Run>>>);

/// One run being read.
struct Run {
    thread_id: String,
    books: Mutex<Books>,
    /// Rings when the books change. Only the driver holds it: without the driver it is silent for
    /// ever, and the readers hear that.
    bell: Weak<watch::Sender<()>>,
}

/// What is known of a run.
#[derive(Debug)]
struct Books {
    feed: Feed,
    log: RunLog,
    /// How it started, once it has.
    start: Option<RunEvent>,
    /// How it ended.
    end: Option<RunEvent>,
}

// === impl Runs ===

impl Runs {
    /// No runs yet. Each will keep `log_bytes` of its events for slow readers; a cancelled
    /// `shutdown` ends the reading of all.
    pub fn new(log_bytes: usize, shutdown: CancellationToken) -> Self {
        let (live, tasks) = (Live::default(), TaskTracker::new());
        Self(Arc::new(Shared { live, tasks, log_bytes, shutdown }))
    }

    /// Reads a run that was just started on a thread.
    ///
    /// Without a run id in the response the one in the stream counts; `client_run_id` takes its
    /// place in a stream that has none either. The run is read until it ends or its last reader
    /// is dropped; upstream it goes on either way.
    pub fn start(
        &self,
        upstream: Client,
        thread_id: &str,
        client_run_id: &str,
        stream: RunStream,
    ) -> RunReader {
        let RunStream { run_id, body } = stream;
        let mut feed = Feed::new(thread_id, run_id.as_deref(), client_run_id);
        let mut events = Vec::new();
        feed.start(&mut events);
        let mut books = Books { feed, log: RunLog::new(self.0.log_bytes), start: None, end: None };
        books.write(events);
        let bell = Arc::new(watch::Sender::new(()));
        let run = Arc::new(Run {
            thread_id: thread_id.to_owned(),
            books: Mutex::new(books),
            bell: Arc::downgrade(&bell),
        });
        let reader = RunReader::from_the_start(Arc::clone(&run), bell.subscribe());
        let driver = Driver::new(upstream, run, bell, Arc::clone(&self.0));
        self.0.tasks.spawn(driver.drive(body));
        reader
    }

    /// One more reader of a run, from where the run is; `None` if it is not being read.
    pub fn attach(&self, run_id: &str) -> Option<RunReader> {
        // Under the lock no driver decides that nobody reads its run.
        let live = self.0.live.lock();
        let run = live.get(run_id)?;
        let bell = run.bell.upgrade()?.subscribe();
        Some(RunReader::from_here(Arc::clone(run), bell))
    }

    /// How many runs are being read.
    pub fn count(&self) -> usize {
        self.0.tasks.len()
    }

    /// Waits until no run is being read any more.
    pub async fn drained(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

// === impl Live ===

impl Live {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Run>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Run ===

impl Run {
    /// A driver that panics leaves its books as they are: what is in the log stays true.
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thread_id, books: _, bell: _ } = self;
        f.debug_struct("Run").field("thread_id", thread_id).finish_non_exhaustive()
    }
}

// === impl Books ===

impl Books {
    fn write(&mut self, events: Vec<RunEvent>) {
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return };
        self.start.get_or_insert_with(|| first.clone());
        if let RunEvent::Ended { .. } = last {
            self.end = Some(last.clone());
        }
        self.log.push(events);
    }

    /// What brings a reader, who has this much open, to the run as it stands; `open` is `None`
    /// for one that was told nothing. `None` while the conversation is not known.
    fn resync(&self, open: Option<&Open>) -> Option<Arc<[RunEvent]>> {
        let mut events: Vec<_> =
            if open.is_none() { self.start.iter().cloned().collect() } else { Vec::new() };
        let nothing = Open::default();
        events.extend(run::resync(self.feed.view()?, open.unwrap_or(&nothing))?);
        events.extend(self.end.clone());
        Some(events.into())
    }

    /// Whether the run's conversation was told.
    fn is_based(&self) -> bool {
        self.feed.view().is_some_and(View::is_based)
    }

    /// What ends the stream of a reader, who has this much open, before the run is over.
    fn failed(&self, open: Option<&Open>, code: &str, message: &str) -> Arc<[RunEvent]> {
        let mut events = open.map_or_else(|| self.start.iter().cloned().collect(), run::closings);
        let outcome = Outcome::Failed { code: code.to_owned(), message: message.to_owned() };
        events.push(RunEvent::Ended { outcome, usage: Vec::new() });
        events.into()
    }
}
