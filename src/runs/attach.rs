//! How a client comes to a thread: its live run as it stands, else what the thread holds.

use std::sync::Arc;

use super::batch::{Batch, Events};
use super::ending;
use super::event_id::EventId;
use super::follow::{self, Follower};
use super::published::Run;
use super::reader::{Prelude, RunReader, Told};
use super::reading::Source;
use super::{Feed, RunKey, Runs, standing};
use crate::langgraph::{ErrorDetail, RunRecord, RunStatus, ServerKind, ThreadState};
use crate::metrics::{Metrics, Resume};
use crate::run::{Loss, Outcome, RunEvent, StreamEnd};
use crate::upstream::{Access, Client, Error, RunFilter, Sight};

/// How often a thread is looked at whose state was made by no run that is listed: one that began
/// meanwhile is listed next time, one too old to be listed never is.
const MAX_LOOKS: u32 = 2;

/// Reads a thread: a run, or a thread at rest; and then, if it follows, all that comes.
#[derive(Debug)]
pub struct ThreadReader {
    run: RunReader,
    later: Option<Box<Follower>>,
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
    /// holds. A thread that is not there holds nothing, or is an error, as the caller is told of
    /// such.
    ///
    /// A client gets no byte of a run before a request with its own credentials has succeeded on
    /// that thread.
    ///
    /// A client that has read up to an event of the live run, or of the last one, goes on behind
    /// it, if it can still be found: in what this replica keeps of the run, else in what the
    /// upstream does. Otherwise it starts over.
    ///
    /// The server's kind is found out while the thread is looked at.
    pub async fn connect(
        &self,
        upstream: &Client,
        server: impl Future<Output = Option<ServerKind>>,
        thread_id: &str,
        after: Option<&EventId>,
    ) -> Result<ThreadReader, Error> {
        if let Some(event) = after
            && upstream.see(thread_id).await? == Sight::Seen
            && let key = RunKey::of(upstream, thread_id, event.run_id())
            && let Some((run, _wanted)) = self.0.live.find(&key, upstream)
        {
            return Ok(RunReader::behind(run, event.clone()).into());
        }
        let Some(after) = after else {
            // All who load the thread at the same time with the same credentials share one look.
            let key = LookKey::of(upstream, thread_id);
            let look = async || self.look(upstream, thread_id, None).await;
            let (server, looked) = tokio::join!(server, self.0.looks.share(key, look));
            let run = match looked? {
                Looked::ToRead(record) => {
                    self.read(upstream, server, thread_id, record, None).await?
                }
                Looked::AtRest(run) => RunReader::from_here(run, Told::Nothing),
            };
            return Ok(run.into());
        };
        let look = self.look(upstream, thread_id, Some(after));
        let (server, looked) = tokio::join!(server, look);
        let run = match looked? {
            Looked::ToRead(record) => {
                let event = Some(after).filter(|event| event.run_id() == record.id).cloned();
                if event.is_none() {
                    self.0.metrics.resumed(Resume::StartOver);
                }
                self.read(upstream, server, thread_id, record, event).await?
            }
            Looked::AtRest(run) => {
                self.0.metrics.resumed(Resume::StartOver);
                RunReader::from_here(run, Told::Nothing)
            }
        };
        Ok(run.into())
    }

    /// Looks at a thread for a client that has nothing of it, or all up to an event.
    async fn look(
        &self,
        upstream: &Client,
        thread_id: &str,
        after: Option<&EventId>,
    ) -> Result<Looked, Error> {
        let is_wanted = |record: &RunRecord| after.is_some_and(|event| event.run_id() == record.id);
        let mut present = look(upstream, thread_id).await?;
        // What a run was asked for is read of one that is to be joined.
        if let Present::Live(run) | Present::AtRest { last: Some(run), .. } = &mut present
            && (run.status.is_live() || is_wanted(run))
        {
            *run = self.0.whole(upstream, thread_id, run.clone()).await?;
        }
        Ok(match present {
            Present::Live(record) => Looked::ToRead(record),
            Present::AtRest { last: Some(last), .. } if last.is_resumable && is_wanted(&last) => {
                Looked::ToRead(last)
            }
            Present::AtRest { state, last } => {
                let (metrics, detail) = (&self.0.metrics, self.0.error_detail());
                let run = at_rest(metrics, upstream, thread_id, state, last.as_ref(), detail);
                Looked::AtRest(run.await?)
            }
        })
    }

    /// Reads the run that a client has asked for before: the run of the event `after`, after that
    /// event; if the thread has no such run, the newest one that its client calls `name`, as it
    /// stands. Unlike [`connect`](Self::connect), this reads that run to its end and nothing else,
    /// even if the run is over and others have run since.
    ///
    /// Returns `None` if the thread has no such run, or if the server does not show the thread to
    /// the caller.
    pub async fn read_again(
        &self,
        upstream: &Client,
        server: Option<ServerKind>,
        thread_id: &str,
        after: Option<&EventId>,
        name: &str,
    ) -> Result<Option<ThreadReader>, Error> {
        let (mut found, mut event) = (None, None);
        match upstream.see(thread_id).await {
            Ok(Sight::Seen) => {}
            Ok(Sight::Nothing) | Err(Error::Status { code: 404, .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
        if let Some(after) = after {
            let key = RunKey::of(upstream, thread_id, after.run_id());
            if let Some((run, _wanted)) = self.0.live.find(&key, upstream) {
                return Ok(Some(RunReader::behind(run, after.clone()).into()));
            }
            found = upstream.find_run(thread_id, after.run_id()).await?;
            event = found.is_some().then(|| after.clone());
        }
        if found.is_none() {
            found = run_named(upstream, server, thread_id, name).await?;
            // A list of runs does not say what they were asked for.
            if let Some(run) = &mut found
                && run.status.is_live()
            {
                *run = self.0.whole(upstream, thread_id, run.clone()).await?;
            }
        }
        let Some(record) = found else { return Ok(None) };
        if event.is_none() && after.is_some() {
            self.0.metrics.resumed(Resume::StartOver);
        }
        let run = self.read(upstream, server, thread_id, record, event).await?;
        Ok(Some(run.into()))
    }

    /// Reads a run that the server has just shown to this caller: after an event, or as it stands.
    async fn read(
        &self,
        upstream: &Client,
        server: Option<ServerKind>,
        thread_id: &str,
        record: RunRecord,
        after: Option<EventId>,
    ) -> Result<RunReader, Error> {
        let record = self.0.whole(upstream, thread_id, record).await?;
        let told = if record.status == RunStatus::Pending {
            Told::Prelude(prelude(upstream, thread_id, &record).await?)
        } else {
            Told::Nothing
        };
        let source = Source::after(&record, server, after.as_ref());
        let (run, _wanted) = self.0.watch(upstream, server, thread_id, record, source);
        Ok(match after {
            Some(event) => RunReader::behind(run, event),
            None => RunReader::from_here(run, told),
        })
    }

    /// Reads a thread as [`connect`](Self::connect) does, and then all its later runs, each from
    /// its beginning to its end, and what changes in it without a run.
    pub async fn follow(
        &self,
        upstream: &Client,
        server: Option<ServerKind>,
        thread_id: &str,
        after: Option<&EventId>,
    ) -> Result<ThreadReader, FollowError> {
        let (run, later) = follow::join(&self.0, upstream, server, thread_id).await?;
        let is_after = |event: &&EventId| run.id().as_deref() == Some(event.run_id());
        let event = after.filter(is_after).cloned();
        if event.is_none() && after.is_some() {
            self.0.metrics.resumed(Resume::StartOver);
        }
        let run = match event {
            Some(event) => RunReader::behind(run, event),
            None => RunReader::from_here(run, Told::Nothing),
        };
        Ok(ThreadReader { later: Some(Box::new(later)), ..run.into() })
    }
}

/// What there is of a thread to be shown.
#[derive(Clone, Debug)]
pub(super) enum Looked {
    /// A run that is live, or is to be replayed.
    ToRead(RunRecord),
    AtRest(Arc<Run>),
}

/// A thread, and with whose credentials it is looked at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LookKey {
    thread_id: String,
    access: Access,
}

/// How a thread stands, as the server tells it.
enum Present {
    /// The run that runs, else the next to have its turn.
    Live(RunRecord),
    AtRest {
        state: Option<String>,
        /// The newest run that is over.
        last: Option<RunRecord>,
    },
}

/// Looks at a thread: at its runs, and where none of them is live at its state, which a run may have
/// made that is younger than all of these.
async fn look(upstream: &Client, thread_id: &str) -> Result<Present, Error> {
    let (mut state, mut over) = (None, Vec::new());
    for _ in 0..MAX_LOOKS {
        let mut live;
        (live, over) = recent(upstream, thread_id).await?;
        live.sort_by_key(|run| run.status != RunStatus::Running);
        if let Some(next) = live.into_iter().next() {
            return Ok(Present::Live(next));
        }
        state = upstream.thread_state(thread_id).await?;
        let made_by = state.as_deref().and_then(ThreadState::parse).and_then(|s| s.run_id);
        if made_by.is_none_or(|id| over.iter().any(|run| run.id == *id)) {
            break;
        }
    }
    Ok(Present::AtRest { state, last: over.into_iter().next() })
}

/// The runs of a thread that are live, the oldest first, and the recent ones that are over, the
/// newest first.
///
/// One list tells how all runs stand at one moment. Of a thread with more runs than it holds, those
/// that wait are asked for, and then those that run: one that gets its turn meanwhile is in the
/// second list.
async fn recent(
    upstream: &Client,
    thread_id: &str,
) -> Result<(Vec<RunRecord>, Vec<RunRecord>), Error> {
    let limit = follow::RECENT_RUNS_OF_MANY;
    let recent = upstream.runs(thread_id, RunFilter::Any { limit }).await?;
    let is_all = recent.len() < limit;
    let (mut live, over): (Vec<_>, Vec<_>) =
        recent.into_iter().partition(|run| run.status.is_live());
    let is_running = live.iter().any(|run| run.status == RunStatus::Running);
    if !is_all && !is_running {
        live = upstream.runs(thread_id, RunFilter::Pending).await?;
        live.extend(upstream.runs(thread_id, RunFilter::Running).await?);
    }
    live.reverse();
    Ok((live, over))
}

/// The newest run of a thread that its client calls `name`. Only the live runs and the recent ones
/// are searched.
async fn run_named(
    upstream: &Client,
    server: Option<ServerKind>,
    thread_id: &str,
    name: &str,
) -> Result<Option<RunRecord>, Error> {
    // In this order, a run that begins or ends between two requests is in the next list.
    let any = RunFilter::Any { limit: follow::recent_runs(server) };
    let mut newest: Option<RunRecord> = None;
    for filter in [RunFilter::Pending, RunFilter::Running, any] {
        for run in upstream.runs(thread_id, filter).await? {
            let is_named = run.client_id.as_deref() == Some(name);
            if is_named && newest.as_ref().is_none_or(|known| known.created_at <= run.created_at) {
                newest = Some(run);
            }
        }
    }
    Ok(newest)
}

/// What stands before a run that waits for its turn.
async fn prelude(upstream: &Client, thread_id: &str, record: &RunRecord) -> Result<Prelude, Error> {
    let state = upstream.thread_state(thread_id).await?;
    let mut feed = Feed::joined(thread_id, record);
    feed.start(&mut Events::default());
    let mut events = Events::default();
    feed.base(state.as_deref().unwrap_or("{}"), &mut events);
    if let Some(input) = &record.input {
        feed.input(input, &mut events);
    }
    Ok(Prelude { events, view: feed.shared_view().unwrap_or_default() })
}

/// A thread at rest as a run that is over: a snapshot, and its end.
pub(super) async fn at_rest(
    metrics: &Metrics,
    upstream: &Client,
    thread_id: &str,
    body: Option<String>,
    last: Option<&RunRecord>,
    detail: ErrorDetail,
) -> Result<Arc<Run>, Error> {
    // A run that was stopped or failed leaves its next nodes, as a static breakpoint does.
    let (has_failed, is_stopped) = match last.map(|last| last.status) {
        Some(RunStatus::Error | RunStatus::Timeout) => (true, true),
        Some(RunStatus::Interrupted) => (false, true),
        Some(RunStatus::Pending | RunStatus::Running | RunStatus::Success | RunStatus::Unknown)
        | None => (false, false),
    };
    let mut error = None;
    if has_failed && body.is_some() {
        error = ending::last_error(upstream, thread_id, body.as_deref()).await;
        error = error.map(|error| error.told(detail));
    }
    let (thread_id, metrics) = (thread_id.to_owned(), metrics.clone());
    let weight = body.as_ref().map_or(0, String::len);
    standing::beside(weight, move || {
        let mut state = match &body {
            Some(body) => Some(
                ThreadState::parse(body)
                    .ok_or(Error::NotUnderstood { what: "a thread's state" })?,
            ),
            None => None,
        };
        if let Some(state) = state.as_mut().filter(|_| is_stopped) {
            state.next.clear();
        }
        let checkpoint = state.as_ref().and_then(|state| state.checkpoint_id.as_deref());
        let name = format!("connect-{}", checkpoint.unwrap_or(&thread_id));
        let feed = Feed::at_rest(&thread_id, &name);
        let run = Run::over(&thread_id, feed, metrics, |feed, events| {
            feed.finish_with(state.as_ref(), StreamEnd::AtRest { error }, events);
        });
        Ok(Arc::new(run))
    })
    .await
}

// === impl LookKey ===

impl LookKey {
    fn of(upstream: &Client, thread_id: &str) -> Self {
        Self { thread_id: thread_id.to_owned(), access: upstream.access() }
    }
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
    pub async fn next(&mut self) -> Option<Batch> {
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
        Some(RunEvent::Ended { outcome: Outcome::Failed(failure), .. })
            if failure.loss() == Some(Loss::Shutdown)
    )
}
