//! Shows a thread and its runs to the client, as updates.

use std::time::Duration;

use tokio::time::Instant;

use super::{PromptTurn, STOP_WAIT, Whose};
use crate::offload::offload;
use crate::runs::{Batch, UPSTREAM_PATIENCE};
use crate::sessions::session::{ClientView, OpenQuestion};
use crate::threads::{ThreadReader, WaitingFor};
use threadway_translate::acp::notice::Notice;
use threadway_translate::acp::rpc::Error;
use threadway_translate::acp::{ToolCall, ToolContent, ToolStatus, Update};
use threadway_translate::run::{LossReason, Outcome, RunEvent};

/// How long the upstream may be away during a run before the person gets a notice. A connection that
/// was cut is usually replaced within a second.
const AWAY_BEFORE_NOTICE: Duration = Duration::from_secs(5);

/// Which updates of what is read are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sessions) enum UpdateFilter {
    All,
    /// The client has the history already, so only open calls are sent. Their later updates will be
    /// sent, and ACP wants each after its call.
    OpenCalls,
}

/// How showing a run ended.
pub(super) enum ShowEnd {
    Over(Outcome),
    Stopped,
}

impl PromptTurn {
    /// Sends the client what the thread has and it has not. Returns the thread's open questions.
    pub(super) async fn catch_up(&self, view: &mut ClientView) -> Result<Vec<OpenQuestion>, Error> {
        if !self.session.has_thread().await {
            return Ok(Vec::new());
        }
        if view.is_synced {
            let threads = &self.link.service().threads;
            let waiting_for = threads.waiting_for(&self.link.upstream(), &self.session.id).await;
            match waiting_for.map_err(|error| self.link.failed(&error))? {
                WaitingFor::Nothing => {
                    view.questions.clear();
                    return Ok(Vec::new());
                }
                WaitingFor::Answers(open) => {
                    let waiting = std::mem::take(&mut view.questions);
                    let is_open =
                        |waiting: &OpenQuestion| open.iter().any(|id| *id == *waiting.question.id);
                    if !waiting.is_empty() && waiting.iter().all(is_open) {
                        return Ok(waiting);
                    }
                }
                WaitingFor::Run => view.questions.clear(),
            }
        }
        let Outcome::Interrupted(questions) = self.show_thread(view).await? else {
            return Ok(Vec::new());
        };
        Ok(questions.into_iter().map(OpenQuestion::from).collect())
    }

    /// Shows the thread and its live run, which is that of others, to the end. Returns how the run
    /// ended. The client of a resumed session has the thread already.
    pub(super) async fn show_thread(&self, view: &mut ClientView) -> Result<Outcome, Error> {
        let reader = self.link.read(&self.session).await?;
        let sending = if view.is_synced { UpdateFilter::All } else { UpdateFilter::OpenCalls };
        let (mut reader, outcome) = self.send_history(view, reader, sending, Whose::Others).await?;
        match outcome {
            Some(outcome) => Ok(outcome),
            None => Ok(self.follow(view, &mut reader, Whose::Others).await),
        }
    }

    /// Reads a thread until everything that it holds was sent. Returns the outcome if no run is
    /// live.
    pub(in crate::sessions) async fn send_history(
        &self,
        view: &mut ClientView,
        mut reader: ThreadReader,
        sending: UpdateFilter,
        whose: Whose,
    ) -> Result<(ThreadReader, Option<Outcome>), Error> {
        while let Some(events) = reader.next().await {
            self.link.wait_for_room(&self.session).await;
            let outcome = self.project(view, &events, sending, whose);
            if outcome.is_some() || has_conversation(&events) {
                view.is_synced = true;
                return Ok((reader, outcome));
            }
        }
        view.is_synced = true;
        Ok((reader, Some(Outcome::Idle { pending_calls: Vec::new(), error: None })))
    }

    /// Shows the turn's own run to its end. If the turn is stopped, the run is stopped too.
    pub(super) async fn show(&self, view: &mut ClientView, run: &mut ThreadReader) -> ShowEnd {
        let outcome = self.stop.run_until_cancelled(self.follow(view, run, Whose::Own)).await;
        if let Some(outcome) = outcome {
            return ShowEnd::Over(outcome);
        }
        self.stop_run();
        // Sends what the run still emits if it ends soon: its last text, and how its calls ended.
        let _ = tokio::time::timeout(STOP_WAIT, self.follow(view, run, Whose::Own)).await;
        ShowEnd::Stopped
    }

    async fn follow(&self, view: &mut ClientView, run: &mut ThreadReader, whose: Whose) -> Outcome {
        loop {
            self.link.wait_for_room(&self.session).await;
            let Some(events) = self.next_events(run).await else {
                return Outcome::Idle { pending_calls: Vec::new(), error: None };
            };
            match self.project(view, &events, UpdateFilter::All, whose) {
                None => {}
                // The run goes on. What was missed is read from the thread.
                Some(outcome) if is_too_slow(&outcome) => {
                    match Box::pin(self.link.read(&self.session)).await {
                        Ok(again) => *run = again,
                        Err(_) => return outcome,
                    }
                }
                Some(outcome) => return outcome,
            }
        }
    }

    /// The next events. Tells the person if the upstream does not answer meanwhile, and when it
    /// does again.
    async fn next_events(&self, run: &mut ThreadReader) -> Option<Batch> {
        let mut away_since = run.away_since();
        let mut is_told = false;
        let events = run.next();
        let mut events = std::pin::pin!(events);
        loop {
            let since = *away_since.borrow_and_update();
            let (link, session) = (&self.link, &self.session);
            if is_told && since.is_none() {
                is_told = false;
                link.notice(session, &Notice::server_back());
            }
            let due = since.filter(|_| !is_told).map(|since| since + AWAY_BEFORE_NOTICE);
            tokio::select! {
                biased;
                events = &mut events => return events,
                Ok(()) = away_since.changed() => {}
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    is_told = true;
                    let seconds = UPSTREAM_PATIENCE.as_secs();
                    let notice = Notice::server_away(link.server_url().as_deref(), seconds);
                    link.notice(session, &notice);
                }
            }
        }
    }

    /// Sends a batch of events as updates. Returns the outcome if they end the run.
    pub(in crate::sessions) fn project(
        &self,
        view: &mut ClientView,
        events: &Batch,
        sending: UpdateFilter,
        whose: Whose,
    ) -> Option<Outcome> {
        let Self { link, session, .. } = self;
        if let (Whose::Own, Some(RunEvent::Started { run_id: Some(run_id), .. })) =
            (whose, events.first())
        {
            *self.running() = Some(run_id.to_string());
        }
        let memory_bytes = events.iter().map(RunEvent::memory_bytes).sum();
        let is_sent = |update: &Update<'_>| sending == UpdateFilter::All || is_open_call(update);
        offload(memory_bytes, || {
            let project = |event: &RunEvent, emit: &mut dyn FnMut(&Update<'_>)| {
                view.projector.project(event, emit);
            };
            link.emit_events(session, events, is_sent, project);
        });
        match events.last() {
            Some(RunEvent::Ended { outcome, .. }) => Some(outcome.clone()),
            _ => None,
        }
    }
}

/// Whether these events show the thread's conversation. A graph without messages has only its state.
pub(in crate::sessions) fn has_conversation(events: &[RunEvent]) -> bool {
    let shows =
        |event: &RunEvent| matches!(event, RunEvent::Messages(_) | RunEvent::StateSnapshot(_));
    events.iter().any(shows)
}

fn is_too_slow(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(failure) if failure.loss() == Some(LossReason::TooSlow))
}

/// Whether an update shows a call that is open, or a child session that works for one.
fn is_open_call(update: &Update<'_>) -> bool {
    if let Update::OfChild { update, .. } = update {
        return is_open_call(update);
    }
    let is_open = |call: &ToolCall<'_>| {
        !matches!(call.status, Some(ToolStatus::Completed | ToolStatus::Failed))
    };
    let is_child = |content: &ToolContent<'_>| matches!(content, ToolContent::Session { .. });
    if let Update::ToolCall(call) = update {
        return is_open(call);
    }
    if let Update::ToolCallUpdate(call) = update {
        return is_open(call) && call.content.iter().flatten().any(is_child);
    }
    matches!(update, Update::SubagentUpdate(_))
}
