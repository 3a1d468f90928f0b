//! How a thread stands, as the server tells it: its live run, else what it holds.

use std::sync::Arc;

use crate::runs::{self, EventId, IdleThread, Run, Runs};
use crate::upstream::{Access, Client, Error, RunFilter};
use threadway_translate::langgraph::{MessagesKey, RunRecord, RunStatus, ServerKind, ThreadState};
use threadway_translate::run::Emit;

/// How often a thread is looked at whose state was made by no run that is listed: one that began
/// meanwhile is listed next time, one too old to be listed never is.
const MAX_LOOKS: u32 = 2;

/// How many of the newest runs are looked at, for those that began and ended between two looks.
const RECENT_RUNS: usize = 20;

/// The same for the JavaScript server, which lists the oldest first: in a thread with more runs
/// than these, one that was missed is told as a change of the state.
const RECENT_RUNS_OF_MANY: usize = 100;

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
    /// Under which key its conversation is read.
    messages_key: MessagesKey,
    /// What is shown of it.
    emit: Emit,
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

/// Looks at a thread for a client that has nothing of it, or all up to an event.
pub(super) async fn look(
    runs: &Runs,
    upstream: &Client,
    thread_id: &str,
    after: Option<&EventId>,
) -> Result<Looked, Error> {
    let is_wanted = |record: &RunRecord| after.is_some_and(|event| event.run_id() == record.id);
    let mut present = present(upstream, thread_id).await?;
    // How a run was asked for, which no list says, decides how it is joined.
    match &mut present {
        Present::Live(run) => *run = runs.full_record(upstream, thread_id, run.clone()).await?,
        // Also where somebody else reads it by now: whether it can be replayed is in its record.
        Present::AtRest { last: Some(run), .. } if is_wanted(run) => {
            *run = upstream.whole_run(thread_id, run.clone()).await?;
        }
        Present::AtRest { .. } => {}
    }
    Ok(match present {
        Present::Live(record) => Looked::ToRead(record),
        Present::AtRest { last: Some(last), .. } if last.is_resumable && is_wanted(&last) => {
            Looked::ToRead(last)
        }
        Present::AtRest { state, last } => {
            let rested = rested(upstream, thread_id, state).await?;
            Looked::AtRest(runs.idle(upstream, thread_id, rested, last.as_ref()).await?)
        }
    })
}

/// A thread as its state is, and the run that is live on it, else the newest. No run is read.
pub(super) async fn hold(
    runs: &Runs,
    upstream: &Client,
    thread_id: &str,
) -> Result<(Arc<Run>, Option<RunRecord>), Error> {
    let (state, newest) = match present(upstream, thread_id).await? {
        Present::Live(live) => (upstream.thread_state(thread_id).await?, Some(live)),
        Present::AtRest { state, last } => (state, last),
    };
    // The nodes that a live run runs are no static breakpoint's.
    let last = newest.clone().map(|run| {
        let status = if run.status.is_live() { RunStatus::Interrupted } else { run.status };
        RunRecord { status, ..run }
    });
    let rested = rested(upstream, thread_id, state).await?;
    let run = runs.idle(upstream, thread_id, rested, last.as_ref()).await?;
    Ok((run, newest))
}

/// A state with what is kept of the answers to what it asks.
async fn rested(
    upstream: &Client,
    thread_id: &str,
    state: Option<String>,
) -> Result<IdleThread, Error> {
    let asking = state.as_deref().filter(|state| ThreadState::may_have_batches(state));
    let parsed = asking.and_then(ThreadState::parse);
    let kept = runs::kept_answers(upstream, thread_id, parsed.as_ref()).await?;
    Ok(IdleThread { state, kept })
}

/// Looks at a thread: at its runs, and where none of them is live at its state, which a run may have
/// made that is younger than all of these.
async fn present(upstream: &Client, thread_id: &str) -> Result<Present, Error> {
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
    let limit = RECENT_RUNS_OF_MANY;
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
pub(super) async fn run_named(
    upstream: &Client,
    server: Option<ServerKind>,
    thread_id: &str,
    name: &str,
) -> Result<Option<RunRecord>, Error> {
    // In this order, a run that begins or ends between two requests is in the next list.
    let any = RunFilter::Any { limit: recent_runs(server) };
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

/// How many runs are to be asked for, so that the newest are among them.
pub(super) fn recent_runs(server: Option<ServerKind>) -> usize {
    match server {
        Some(ServerKind::Python) => RECENT_RUNS,
        Some(ServerKind::JavaScript) | None => RECENT_RUNS_OF_MANY,
    }
}

// === impl LookKey ===

impl LookKey {
    pub(super) fn of(upstream: &Client, thread_id: &str, emit: Emit) -> Self {
        let messages_key = upstream.messages_key().clone();
        Self { thread_id: thread_id.to_owned(), access: upstream.access(), messages_key, emit }
    }
}
