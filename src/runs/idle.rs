//! An idle thread as a run that is over, and the preview of a pending run. Both are made of the
//! thread's state.
//!
//! An idle thread has no pending or running run. It may wait for an answer.

use std::sync::Arc;

use super::audience::Audience;
use super::batch::Events;
use super::decoder::RunDecoder;
use super::ending;
use super::published::{Broadcast, History, Run};
use super::publisher::Publisher;
use super::reader::Preview;
use crate::metrics::{LARGE, Metrics};
use crate::offload::offload;
use crate::upstream::{AnswerText, Client, Error, StateText};
use threadway_translate::langgraph::{
    Capabilities, CheckpointSource, ErrorDetail, MessagesKey, RunRecord, RunStatus,
    StoredDecisions, ThreadState, ThreadStatus,
};
use threadway_translate::run::{EmitOptions, LastRun, Message, StreamEnd};

/// The contents of an idle thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdleThread {
    /// The thread's state as the server sends it; `None` if the thread does not exist.
    pub(crate) state: Option<StateText>,
    /// The stored answers to some of the thread's open questions.
    pub(crate) kept: StoredDecisions,
    /// The newest run of the thread.
    pub(crate) last: Option<RunRecord>,
}

/// The options with which an idle thread is shown.
pub(super) struct Options {
    pub(super) metrics: Metrics,
    pub(super) detail: ErrorDetail,
    pub(super) emit: EmitOptions,
}

/// The preview of a pending run, by its record.
pub(super) async fn preview(
    upstream: &Client,
    thread_id: &str,
    record: &RunRecord,
    emit: EmitOptions,
) -> Result<Preview, Error> {
    let state = upstream.thread_state(thread_id).await?;
    let decoder =
        RunDecoder::joined(thread_id, record).with_messages_key(upstream.messages_key().clone());
    let mut decoder = decoder.with_rendering(emit.rendering());
    decoder.start(&mut Events::default());
    let mut events = Events::default();
    match &state {
        Some(state) => state.read(|state| decoder.base(state, &mut events)),
        None => decoder.base("{}", &mut events),
    }
    if let Some(input) = &record.input {
        offload(input.get().len(), || decoder.input(input, &mut events));
    }
    let mut audience = Audience::new(emit);
    let events = Events::clone(&audience.shown(&decoder, &events.into()));
    Ok(Preview { events, view: audience.view(&decoder).unwrap_or_default() })
}

/// The conversation of a state, under the ids that readers of the thread get.
pub(crate) fn conversation(thread_id: &str, key: &MessagesKey, state: &str) -> Vec<Arc<Message>> {
    let mut decoder = RunDecoder::idle(thread_id, thread_id).with_messages_key(key.clone());
    let mut events = Events::default();
    decoder.start(&mut events);
    decoder.base(state, &mut events);
    decoder.shared_view().map(|view| view.messages().to_vec()).unwrap_or_default()
}

/// An idle thread as a run that is over: a snapshot, and an end.
pub(super) async fn idle(
    upstream: &Client,
    server: impl Future<Output = Capabilities>,
    thread_id: &str,
    thread: IdleThread,
    options: Options,
) -> Result<Arc<Run>, Error> {
    let IdleThread { state: body, kept, last } = thread;
    let Options { metrics, detail, emit } = options;
    // A run that was stopped or failed leaves pending nodes, which look like a static breakpoint.
    // So do the nodes that a live run executes.
    let (has_failed, is_stopped) = match last.map(|last| last.status) {
        Some(RunStatus::Error | RunStatus::Timeout) => (true, true),
        Some(RunStatus::Interrupted) => {
            (false, !is_at_breakpoint(upstream, server, thread_id, body.as_deref()).await?)
        }
        Some(RunStatus::Pending | RunStatus::Running) => (false, true),
        Some(RunStatus::Success | RunStatus::Unknown) | None => (false, false),
    };
    let mut last = if is_stopped { LastRun::Stopped } else { LastRun::Ended };
    if has_failed
        && body.is_some()
        && let Some(error) = ending::last_error(upstream, thread_id, body.as_deref()).await
    {
        last = LastRun::Failed(error.redacted(detail));
    }
    let key = upstream.messages_key();
    let charge = body.as_ref().and_then(StateText::charge);
    let memory = metrics.memory().clone();
    let is_large = body.as_ref().is_some_and(|body| body.len() > LARGE);
    let _place = if is_large { memory.place().await } else { None };
    let make = |body: Option<&str>| {
        let mut state = match body {
            Some(body) => {
                let state = ThreadState::parse_under(key, body);
                Some(upstream.understood(state, "a thread's state")?)
            }
            None => None,
        };
        if let Some(state) = &mut state {
            state.kept = kept;
            // A fork at the end of a stopped turn has the nodes that were stopped.
            if is_stopped || state.source == CheckpointSource::Fork {
                state.next.clear();
            }
        }
        let checkpoint = state.as_ref().and_then(|state| state.checkpoint_id.as_deref());
        let name = format!("connect-{}", checkpoint.unwrap_or(thread_id));
        let decoder = RunDecoder::idle(thread_id, &name).with_messages_key(key.clone());
        let mut decoder = decoder.with_rendering(emit.rendering());
        let broadcast = Arc::new(Broadcast::idle(thread_id, emit.rendering(), metrics, charge));
        let history = History::Complete;
        let (run, mut publisher) = Publisher::begin(&broadcast, emit, &mut decoder, history);
        let mut events = Events::default();
        decoder.finish_with(state.as_ref(), StreamEnd::Idle { last }, &mut events);
        publisher.publish(&decoder, history, events);
        publisher.close(&decoder, history);
        Ok(run)
    };
    match &body {
        Some(body) => body.read(|body| make(Some(body))),
        None => make(None),
    }
}

/// Whether the last run of a thread, which is recorded as `interrupted`, has stopped at a static
/// breakpoint. Otherwise it was cancelled, or its question is in the state.
async fn is_at_breakpoint(
    upstream: &Client,
    server: impl Future<Output = Capabilities>,
    thread_id: &str,
    state: Option<&AnswerText>,
) -> Result<bool, Error> {
    let state = state.and_then(|state| state.read(ThreadState::parse));
    let has_next = state.is_some_and(|state| !state.next.is_empty());
    if !has_next || !server.await.interrupts_to_ask {
        return Ok(false);
    }
    let thread = upstream.thread(thread_id).await?;
    Ok(thread.is_some_and(|thread| thread.status == ThreadStatus::Interrupted))
}
