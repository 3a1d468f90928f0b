//! How a client comes to a thread: its live run as it stands, else what the thread holds.

use std::sync::Arc;

use super::books::Run;
use super::driver::Source;
use super::ending;
use super::follow::{self, Follower};
use super::reader::{Prelude, RunReader, Told};
use super::{Feed, GATEWAY_SHUTDOWN, Runs};
use crate::langgraph::{RunRecord, RunStatus, ServerKind, ThreadState};
use crate::run::{Outcome, RunEvent, StreamEnd};
use crate::upstream::{Client, Error, RunFilter};

/// Reads a thread: a run, or a thread at rest; and then, if it follows, all that comes.
#[derive(Debug)]
pub struct ThreadReader {
    run: RunReader,
    later: Option<Follower>,
    at_shutdown: AtShutdown,
}

/// How a stream ends when the gateway does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtShutdown {
    /// It says so: a bare end reads as success to the client of a POST.
    Tell,
    /// It breaks off between two events, so that an `EventSource` comes again, elsewhere.
    BreakOff,
}

/// Why a thread cannot be followed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FollowError {
    /// It could not be looked at.
    #[error(transparent)]
    Upstream(Arc<Error>),
    /// The gateway is shutting down.
    #[error("the gateway is shutting down")]
    ShuttingDown,
}

// === impl Runs ===

impl Runs {
    /// Reads a thread's live run, from where it is, to its end; without one, what the thread
    /// holds. A thread that is not there holds nothing.
    pub async fn connect(
        &self,
        upstream: &Client,
        server: Option<ServerKind>,
        thread_id: &str,
    ) -> Result<ThreadReader, Error> {
        let Some(record) = live_run(upstream, thread_id).await? else {
            let state = upstream.thread_state(thread_id).await?;
            let run = at_rest(upstream, thread_id, state.as_deref()).await?;
            return Ok(RunReader::from_here(run, Told::Nothing).into());
        };
        let told = if record.status == RunStatus::Pending {
            Told::Prelude(prelude(upstream, thread_id, &record).await?)
        } else {
            Told::Nothing
        };
        let source = Source::of(&record, server);
        let (run, _wanted) = self.0.watch(upstream, thread_id, record, source);
        Ok(RunReader::from_here(run, told).into())
    }

    /// Reads a thread as [`connect`](Self::connect) does, and then all its later runs, each from
    /// its beginning to its end, and what changes in it without a run.
    pub async fn follow(
        &self,
        upstream: &Client,
        server: Option<ServerKind>,
        thread_id: &str,
    ) -> Result<ThreadReader, FollowError> {
        let (run, later) = follow::join(&self.0, upstream, server, thread_id).await?;
        let run = RunReader::from_here(run, Told::Nothing);
        Ok(ThreadReader { later: Some(later), ..run.into() })
    }
}

/// The run that a client comes to see: the one that runs, else the next to have its turn.
///
/// A run that gets its turn between the first two lists is in neither.
async fn live_run(upstream: &Client, thread_id: &str) -> Result<Option<RunRecord>, Error> {
    for filter in [RunFilter::Running, RunFilter::Pending, RunFilter::Running] {
        if let Some(oldest) = upstream.runs(thread_id, filter).await?.pop() {
            return Ok(Some(oldest));
        }
    }
    Ok(None)
}

/// What stands before a run that waits for its turn.
async fn prelude(upstream: &Client, thread_id: &str, record: &RunRecord) -> Result<Prelude, Error> {
    let state = upstream.thread_state(thread_id).await?;
    let mut feed = Feed::joined(thread_id, record);
    let mut started = Vec::new();
    feed.start(&mut started);
    let mut events = Vec::new();
    feed.base(state.as_deref().unwrap_or("{}"), &mut events);
    if let Some(input) = &record.input {
        feed.input(input, &mut events);
    }
    let view = feed.view().cloned().unwrap_or_default();
    Ok(Prelude { events, view: Box::new(view) })
}

/// A thread at rest, as a run that is over: "snapshot and finish".
pub(super) async fn at_rest(
    upstream: &Client,
    thread_id: &str,
    body: Option<&str>,
) -> Result<Arc<Run>, Error> {
    let mut state = match body {
        Some(body) => Some(
            ThreadState::parse(body).ok_or(Error::NotUnderstood { what: "a thread's state" })?,
        ),
        None => None,
    };
    let mut error = None;
    // A run that was stopped or failed leaves its next nodes, as a static breakpoint does.
    if let Some(state) = &mut state
        && state.interrupts.is_empty()
        && !state.next.is_empty()
        && let Some(last) = last_run(upstream, thread_id).await?
    {
        match last.status {
            RunStatus::Error | RunStatus::Timeout => {
                error = ending::last_error(upstream, thread_id, body).await;
                state.next.clear();
            }
            RunStatus::Interrupted => state.next.clear(),
            RunStatus::Pending | RunStatus::Running | RunStatus::Success | RunStatus::Unknown => {}
        }
    }
    let checkpoint = state.as_ref().and_then(|state| state.checkpoint_id.as_deref());
    let name = format!("connect-{}", checkpoint.unwrap_or(thread_id));
    let feed = Feed::at_rest(thread_id, &name);
    let run = Run::over(thread_id, feed, |feed, events| {
        feed.finish_with(state.as_ref(), StreamEnd::AtRest { error }, events);
    });
    Ok(Arc::new(run))
}

/// The thread's last run that is over.
async fn last_run(upstream: &Client, thread_id: &str) -> Result<Option<RunRecord>, Error> {
    let runs = upstream.runs(thread_id, RunFilter::Any { limit: follow::RECENT_RUNS }).await?;
    Ok(runs.into_iter().find(|run| !run.status.is_live()))
}

// === impl ThreadReader ===

impl ThreadReader {
    /// For a stream that ends in its own way when the gateway does.
    #[must_use]
    pub fn at_shutdown(self, at_shutdown: AtShutdown) -> Self {
        Self { at_shutdown, ..self }
    }

    /// The next events, never an empty list; `None` after all was told.
    ///
    /// May be dropped while it waits: the next call goes on from there.
    pub async fn next(&mut self) -> Option<Arc<[RunEvent]>> {
        loop {
            if let Some(events) = self.run.next().await {
                let is_over = self.at_shutdown == AtShutdown::BreakOff && is_shutdown(&events);
                return (!is_over).then_some(events);
            }
            let next = self.later.as_mut()?.next().await?;
            self.run.go_on_with(next);
        }
    }
}

impl From<RunReader> for ThreadReader {
    fn from(run: RunReader) -> Self {
        Self { run, later: None, at_shutdown: AtShutdown::Tell }
    }
}

fn is_shutdown(events: &[RunEvent]) -> bool {
    matches!(
        events.last(),
        Some(RunEvent::Ended { outcome: Outcome::Failed { code, .. }, .. })
            if code == GATEWAY_SHUTDOWN
    )
}
