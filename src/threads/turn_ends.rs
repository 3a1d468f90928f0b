//! Where the turns of a thread have ended: the checkpoints at which its conversation can be forked.

use super::past::walk;
use crate::offload::offload;
use crate::upstream::{Client, Error};
use threadway_translate::langgraph::{CheckpointSource, MessagesKey, ThreadState};

/// How many states one request reads. A turn of an agent with tools makes about five.
const PAGE_STATES: usize = 20;

/// How far back the ends are listed: 200 states, or some forty turns. Each state has the whole
/// conversation.
const LISTED: Reach = Reach { pages: 10, bytes: 32 * 1024 * 1024 };

/// How far back one end is searched: 1,000 states.
const SEARCHED: Reach = Reach { pages: 50, bytes: 128 * 1024 * 1024 };

/// How much of a thread's past is read.
#[derive(Clone, Copy, Debug)]
struct Reach {
    pages: usize,
    /// The states that are read up to here are visited. The page that they are on was read whole.
    bytes: usize,
}

/// A state of the conversation, as one of the past.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PastState<'a> {
    pub(crate) checkpoint_id: &'a str,
    /// The JSON of the state.
    pub(crate) state: &'a str,
    /// Whether a turn has ended with it, and a copy is like it.
    pub(crate) is_end: bool,
    /// Whether this is what the client was shown last. It was not shown the newer states.
    pub(crate) is_shown_last: bool,
}

/// What a client was shown last of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShownLast<'a> {
    /// Nothing now: it has the conversation from before.
    Nothing,
    /// The thread at rest, with this checkpoint. It ends a turn, also if it leaves nodes to run: the
    /// turn was stopped.
    Checkpoint(&'a str),
    /// This run, by LangGraph's id.
    Run(&'a str),
}

/// Visits the states that the newest descends from, the newest first, as far as ends are listed.
pub(crate) async fn visit_turn_ends(
    upstream: &Client,
    thread_id: &str,
    shown_last: ShownLast<'_>,
    visit: impl FnMut(PastState<'_>),
) -> Result<(), Error> {
    let mut visit = visit;
    visit_states(upstream, thread_id, LISTED, shown_last, |state| {
        visit(state);
        false
    })
    .await
}

/// Whether a turn of the thread has ended with this checkpoint, as far back as ends are searched.
pub(crate) async fn is_turn_end(
    upstream: &Client,
    thread_id: &str,
    checkpoint_id: &str,
) -> Result<bool, Error> {
    // A client may send any id. The search for an unknown one would read the whole past.
    if !upstream.has_checkpoint(thread_id, checkpoint_id).await? {
        return Ok(false);
    }
    let mut is_end = false;
    let shown_last = ShownLast::Checkpoint(checkpoint_id);
    visit_states(upstream, thread_id, SEARCHED, shown_last, |state| {
        is_end = state.is_shown_last && state.is_end;
        state.is_shown_last
    })
    .await?;
    Ok(is_end)
}

/// Visits states until `visit` returns true.
///
/// LangGraph stores a checkpoint when a run takes in its input, so the checkpoint before that ends
/// the turn before. A run that answers a question has no such checkpoint: it goes on with the turn.
async fn visit_states(
    upstream: &Client,
    thread_id: &str,
    reach: Reach,
    shown_last: ShownLast<'_>,
    mut visit: impl FnMut(PastState<'_>) -> bool,
) -> Result<(), Error> {
    let key = upstream.messages_key();
    // How the state after this one was made. `None` for the newest.
    let mut later: Option<CheckpointSource> = None;
    let mut bytes = 0;
    let pages = (reach.pages, PAGE_STATES);
    let walked = walk(upstream, thread_id, &[], pages, |checkpoint, is_here| {
        let text = checkpoint.state;
        bytes += text.len();
        if bytes > reach.bytes {
            return true;
        }
        if !is_here {
            return false;
        }
        offload(text.len(), || {
            let Some(state) = ThreadState::parse_under(key, text) else { return false };
            let is_shown_last = match shown_last {
                ShownLast::Nothing => false,
                ShownLast::Checkpoint(id) => id == checkpoint.id,
                ShownLast::Run(id) => state.run_id.as_deref() == Some(id),
            };
            // Its end is announced once it was shown.
            let is_of_run = is_shown_last && matches!(shown_last, ShownLast::Run(_));
            // A fork at the end of a stopped turn has the nodes that were stopped.
            let is_fork = state.source == CheckpointSource::Fork;
            let is_end = match later.replace(state.source) {
                None => is_shown_last || is_fork || state.next.is_empty(),
                Some(later) => later == CheckpointSource::Input,
            };
            let is_end = is_end && !is_of_run && can_be_copied(&state);
            let checkpoint_id = &checkpoint.id;
            visit(PastState { checkpoint_id, state: text, is_end, is_shown_last })
        })
    });
    walked.await.map(drop)
}

/// The checkpoint of a thread's state, if a turn has ended with it that this run was the last of. A
/// stopped turn may leave nodes to run.
pub(crate) fn end_of_run(
    key: &MessagesKey,
    state: &str,
    run_id: Option<&str>,
    is_stopped: bool,
) -> Option<String> {
    let state = ThreadState::parse_under(key, state)?;
    // Another run may have begun.
    let is_end = run_id.is_some()
        && state.run_id.as_deref() == run_id
        && (is_stopped || state.next.is_empty());
    (is_end && can_be_copied(&state)).then_some(state.checkpoint_id?.into_owned())
}

/// Whether a copy of the checkpoint is like it. A question is stored beside a checkpoint, and is not
/// copied with it. Before the input is taken in, a run has not begun.
fn can_be_copied(state: &ThreadState<'_>) -> bool {
    state.interrupts.is_empty() && state.source != CheckpointSource::Input
}
