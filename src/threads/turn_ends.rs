//! Where the turns of a thread have ended: the checkpoints at which its conversation can be forked.

use super::past::walk;
use crate::offload::offload;
use crate::upstream::{Client, Error};
use threadway_translate::langgraph::{CheckpointSource, MessagesKey, ThreadState};

/// How many states one request reads. A turn of an agent with tools makes about five.
const PAGE_STATES: usize = 20;

/// How many pages are read to list the ends: 200 states, or some forty turns. Each state has the
/// whole conversation.
const MAX_LISTED_PAGES: usize = 10;

/// How many pages are read to find one end: 1,000 states.
const MAX_SEARCHED_PAGES: usize = 50;

/// A state of the conversation, as one of the past.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PastState<'a> {
    pub(crate) checkpoint_id: &'a str,
    /// The JSON of the state.
    pub(crate) state: &'a str,
    /// Whether a turn has ended with it, and a copy is like it.
    pub(crate) is_end: bool,
}

/// What is known of the newest state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Newest {
    /// No run is live, so it ends the last turn.
    AtRest,
    /// It may be a step of a live run. It ends a turn if no node is left to run.
    MayBeLive,
}

/// Visits the states that the newest descends from, the newest first, as far as ends are listed.
pub(crate) async fn visit_turn_ends(
    upstream: &Client,
    thread_id: &str,
    newest: Newest,
    visit: impl FnMut(PastState<'_>),
) -> Result<(), Error> {
    let mut visit = visit;
    let pages = (MAX_LISTED_PAGES, PAGE_STATES);
    visit_states(upstream, thread_id, pages, newest, |state| {
        visit(state);
        false
    })
    .await
}

/// Whether a turn of the thread has ended with this checkpoint, in the last 1,000 states.
pub(crate) async fn is_turn_end(
    upstream: &Client,
    thread_id: &str,
    checkpoint_id: &str,
) -> Result<bool, Error> {
    let mut is_end = false;
    let pages = (MAX_SEARCHED_PAGES, PAGE_STATES);
    visit_states(upstream, thread_id, pages, Newest::AtRest, |state| {
        let is_it = state.checkpoint_id == checkpoint_id;
        is_end |= is_it && state.is_end;
        is_it
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
    pages: (usize, usize),
    newest: Newest,
    mut visit: impl FnMut(PastState<'_>) -> bool,
) -> Result<(), Error> {
    let key = upstream.messages_key();
    // How the state after this one was made. `None` for the newest.
    let mut later: Option<CheckpointSource> = None;
    let walked = walk(upstream, thread_id, &[], pages, |checkpoint, is_here| {
        if !is_here {
            return false;
        }
        let text = checkpoint.state;
        offload(text.len(), || {
            let Some(state) = ThreadState::parse_under(key, text) else { return false };
            let is_end = match later.replace(state.source) {
                None => newest == Newest::AtRest || state.next.is_empty(),
                Some(later) => later == CheckpointSource::Input,
            };
            let is_end = is_end && can_be_copied(&state);
            visit(PastState { checkpoint_id: &checkpoint.id, state: text, is_end })
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
