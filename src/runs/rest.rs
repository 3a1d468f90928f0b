//! A thread at rest as a run that is over, and what stands before a run that waits for its turn:
//! both are made of the thread's state.

use std::sync::Arc;

use super::batch::Events;
use super::ending;
use super::feed::Feed;
use super::published::Run;
use super::reader::Prelude;
use super::standing;
use crate::metrics::Metrics;
use crate::upstream::{Client, Error};
use threadway_translate::langgraph::{ErrorDetail, KeptAnswers, RunRecord, RunStatus, ThreadState};
use threadway_translate::run::{Emit, StreamEnd};

/// What a thread at rest holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rested {
    /// Its state, as the server sends it; `None` for a thread that is not there.
    pub(crate) state: Option<String>,
    /// What its metadata keep of the answers to what it asks.
    pub(crate) kept: KeptAnswers,
}

/// What stands before a run that waits for its turn.
pub(super) async fn prelude(
    upstream: &Client,
    thread_id: &str,
    record: &RunRecord,
    emit: Emit,
) -> Result<Prelude, Error> {
    let state = upstream.thread_state(thread_id).await?;
    let feed = Feed::joined(thread_id, record).under(upstream.messages_key().clone());
    let mut feed = feed.showing(emit);
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
    rested: Rested,
    last: Option<&RunRecord>,
    detail: ErrorDetail,
    emit: Emit,
) -> Result<Arc<Run>, Error> {
    let Rested { state: body, kept } = rested;
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
        error = error.map(|error| error.redacted(detail));
    }
    let (thread_id, metrics) = (thread_id.to_owned(), metrics.clone());
    let key = upstream.messages_key().clone();
    let weight = body.as_ref().map_or(0, String::len);
    standing::beside(weight, move || {
        let mut state = match &body {
            Some(body) => Some(
                ThreadState::parse_under(&key, body)
                    .ok_or(Error::NotUnderstood { what: "a thread's state" })?,
            ),
            None => None,
        };
        if let Some(state) = &mut state {
            state.kept = kept;
            if is_stopped {
                state.next.clear();
            }
        }
        let checkpoint = state.as_ref().and_then(|state| state.checkpoint_id.as_deref());
        let name = format!("connect-{}", checkpoint.unwrap_or(&thread_id));
        let feed = Feed::at_rest(&thread_id, &name).under(key.clone()).showing(emit);
        let run = Run::over(&thread_id, feed, metrics, |feed, events| {
            feed.finish_with(state.as_ref(), StreamEnd::Idle { error }, events);
        });
        Ok(Arc::new(run))
    })
    .await
}
