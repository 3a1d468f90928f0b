//! A look at a thread: finds its live run, or else its state.

use std::sync::Arc;

use crate::runs::{self, EventId, IdleThread, Run, Runs};
use crate::upstream::{Client, Error, RunFilter, StateText};
use threadway_translate::langgraph::{Capabilities, RunRecord, RunStatus, ThreadState};

/// How often the requests are repeated if no listed run has made the state. A run that began in
/// between is listed the second time; a run too old for the list never is.
const MAX_ATTEMPTS: u32 = 2;

/// How many of the newest runs are listed, to find those that began and ended between two looks.
const RECENT_RUNS: usize = 20;

/// [`RECENT_RUNS`] for the JavaScript server, which lists the oldest first. In a thread with more
/// runs, a run that was missed appears as a change of the state.
const RECENT_RUNS_OLDEST_FIRST: usize = 100;

/// What a client that connects to a thread gets.
#[derive(Clone, Debug)]
pub(super) enum Looked {
    /// A run to read: it is live, or can be replayed.
    Run(RunRecord),
    /// The thread as its state is.
    Idle(Arc<Run>),
}

/// What the upstream says about a thread.
enum Contents {
    /// The running run, or else the next pending one.
    Live(RunRecord),
    /// No run is live.
    Idle {
        state: Option<StateText>,
        /// The newest finished run.
        last: Option<RunRecord>,
    },
}

/// Looks at a thread for a client that connects, or that resumes after an event. `server` is
/// awaited only if the answer depends on it.
pub(super) async fn look(
    runs: &Runs,
    upstream: &Client,
    server: impl Future<Output = Capabilities>,
    thread_id: &str,
    after: Option<&EventId>,
) -> Result<Looked, Error> {
    let is_wanted = |record: &RunRecord| after.is_some_and(|event| event.run_id() == record.id);
    let mut contents = contents(upstream, thread_id).await?;
    // A list lacks the requests of runs, which decide how a run is joined.
    match &mut contents {
        Contents::Live(run) => *run = runs.full_record(upstream, thread_id, run.clone()).await?,
        // The record says whether the run can be replayed, also if another viewer now reads it.
        Contents::Idle { last: Some(run), .. } if is_wanted(run) => {
            *run = upstream.whole_run(thread_id, run.clone()).await?;
        }
        Contents::Idle { .. } => {}
    }
    Ok(match contents {
        Contents::Live(record) => Looked::Run(record),
        Contents::Idle { last: Some(last), .. } if last.is_resumable && is_wanted(&last) => {
            Looked::Run(last)
        }
        Contents::Idle { state, last } => {
            let rested = idle_thread(upstream, thread_id, state, last).await?;
            Looked::Idle(runs.idle(upstream, server, thread_id, rested).await?)
        }
    })
}

/// A thread as its state is.
#[derive(Clone, Debug)]
pub(super) struct LookedWithoutJoining {
    pub(super) run: Arc<Run>,
    /// The live run, or else the newest.
    pub(super) newest: Option<RunRecord>,
}

/// Looks at a thread without reading a run.
pub(super) async fn look_without_joining(
    runs: &Runs,
    upstream: &Client,
    server: impl Future<Output = Capabilities>,
    thread_id: &str,
) -> Result<LookedWithoutJoining, Error> {
    let (state, newest) = match contents(upstream, thread_id).await? {
        Contents::Live(live) => (upstream.shown_state(thread_id).await?, Some(live)),
        Contents::Idle { state, last } => (state, last),
    };
    let rested = idle_thread(upstream, thread_id, state, newest.clone()).await?;
    let run = runs.idle(upstream, server, thread_id, rested).await?;
    Ok(LookedWithoutJoining { run, newest })
}

/// Reads the stored answers to a state's interrupts.
async fn idle_thread(
    upstream: &Client,
    thread_id: &str,
    state: Option<StateText>,
    last: Option<RunRecord>,
) -> Result<IdleThread, Error> {
    let parsed = state.as_ref().and_then(|state| {
        state.read(|state| {
            ThreadState::may_have_batches(state).then(|| ThreadState::parse(state)).flatten()
        })
    });
    let kept = runs::stored_decisions(upstream, thread_id, parsed.as_ref()).await?;
    Ok(IdleThread { state, kept, last })
}

/// Lists a thread's runs and, if none is live, reads its state. If a newer run than the listed ones
/// has made the state, the list is read again.
async fn contents(upstream: &Client, thread_id: &str) -> Result<Contents, Error> {
    let (mut state, mut finished) = (None, Vec::new());
    for _ in 0..MAX_ATTEMPTS {
        let mut live;
        (live, finished) = recent(upstream, thread_id).await?;
        live.sort_by_key(|run| run.status != RunStatus::Running);
        if let Some(next) = live.into_iter().next() {
            return Ok(Contents::Live(next));
        }
        // Only one state is held at a time.
        drop(state.take());
        state = upstream.shown_state(thread_id).await?;
        let made_by = state.as_ref().and_then(|s| s.read(|s| ThreadState::parse(s)?.run_id));
        if made_by.is_none_or(|id| finished.iter().any(|run| run.id == *id)) {
            break;
        }
    }
    Ok(Contents::Idle { state, last: finished.into_iter().next() })
}

/// The live runs of a thread, oldest first, and its recent finished runs, newest first.
///
/// One list shows all runs at one moment. If the thread has more runs than the list, its pending
/// runs are listed too, and then its running ones: a run that begins in between is in the second
/// list.
async fn recent(
    upstream: &Client,
    thread_id: &str,
) -> Result<(Vec<RunRecord>, Vec<RunRecord>), Error> {
    let limit = RECENT_RUNS_OLDEST_FIRST;
    let recent = upstream.runs(thread_id, RunFilter::Any { limit }).await?;
    let is_all = recent.len() < limit;
    let (mut live, finished): (Vec<_>, Vec<_>) =
        recent.into_iter().partition(|run| run.status.is_live());
    let is_running = live.iter().any(|run| run.status == RunStatus::Running);
    if !is_all && !is_running {
        live = upstream.runs(thread_id, RunFilter::Pending).await?;
        live.extend(upstream.runs(thread_id, RunFilter::Running).await?);
    }
    live.reverse();
    Ok((live, finished))
}

/// The newest run with this id of the client. Only live and recent runs are searched.
pub(super) async fn run_named(
    upstream: &Client,
    server: Capabilities,
    thread_id: &str,
    name: &str,
) -> Result<Option<RunRecord>, Error> {
    // In this order, a run that begins or ends between two requests is in the next list.
    let any = RunFilter::Any { limit: recent_limit(server) };
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

/// How many runs to list, so that the newest are among them.
pub(super) fn recent_limit(server: Capabilities) -> usize {
    if server.lists_newest_runs_first { RECENT_RUNS } else { RECENT_RUNS_OLDEST_FIRST }
}
