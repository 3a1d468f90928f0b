//! Loads a session after an event. A client that has lost its connection names the last event that
//! it has, and is sent the rest.
//!
//! The projection is a function of the run's events alone. So the events up to that one are projected
//! again, and what the client has of them is not sent.

use super::position::FOLLOWING;
use super::session::ClientView;
use super::turn::{PromptTurn, UpdateFilter, Whose, end_of_idle, has_conversation};
use crate::runs::{Batch, EventId};
use crate::threads::ThreadReader;
use threadway_translate::acp::rpc::Error;
use threadway_translate::run::{Outcome, RunEvent};

/// What a session that is loaded after an event begins with.
pub(super) struct Resumed {
    pub(super) reader: ThreadReader,
    /// How the shown run has ended. `None` while it is live.
    pub(super) outcome: Option<Outcome>,
}

impl PromptTurn {
    /// Sends what comes after an event. `None` if the event is not found any more; then nothing was
    /// sent.
    pub(super) async fn resume(
        &self,
        view: &mut ClientView,
        after: &EventId,
    ) -> Result<Option<Resumed>, Error> {
        let held = after.wire_events().checked_sub(FOLLOWING);
        let whole = after.clone().whole();
        let after = if held.is_some() { &whole } else { after };
        if after.is_terminal() {
            // The thread may show more than the end of that run, and then hides where it was.
            let idle = self.resume_idle(view, after).await?;
            self.hold(after, held);
            return Ok(idle);
        }
        let thread = self.link.thread(&self.session, &*self.session.config.lock().await)?;
        let Ok(Some(mut reader)) = thread.read_again(Some(after), after.run_id()).await else {
            return Ok(None);
        };
        let Some(ended) = self.pass_over(view, &mut reader).await else { return Ok(None) };
        self.hold(after, held);
        view.is_synced = true;
        let Some(outcome) = ended else {
            return Ok(Some(Resumed { reader, outcome: None }));
        };
        // Others may have followed that run.
        let reader = self.link.read(&self.session).await?;
        let (reader, newest) =
            self.send_history(view, reader, UpdateFilter::All, Whose::Own).await?;
        let is_idle = newest.as_ref().is_some_and(|newest| end_of_idle(newest).is_some());
        // The run itself says more about its end than the idle thread.
        let outcome = if is_idle { Some(outcome) } else { newest };
        Ok(Some(Resumed { reader, outcome }))
    }

    /// An idle thread that shows what a client with the end of an earlier run holds.
    async fn resume_idle(
        &self,
        view: &mut ClientView,
        after: &EventId,
    ) -> Result<Option<Resumed>, Error> {
        let mut reader = self.link.read(&self.session).await?;
        let mut batches = Vec::new();
        while let Some(events) = reader.next().await {
            let is_end = events.last_key().is_some_and(|key| after.is_same_end(key));
            let is_over = matches!(events.last(), Some(RunEvent::Ended { .. }));
            let is_conversation = has_conversation(&events);
            batches.push(events.held());
            if is_over && !is_end || is_conversation && !is_over {
                return Ok(None);
            }
            if !is_over {
                continue;
            }
            let mut outcome = None;
            for events in &batches {
                outcome = self.project(view, events, UpdateFilter::All, Whose::Own);
            }
            view.is_synced = true;
            // How an earlier run has ended, the client knows. An open question is asked again.
            let outcome = match outcome {
                Some(Outcome::Interrupted(questions)) => Outcome::Interrupted(questions),
                _ => Outcome::Idle { pending_calls: Vec::new(), error: None },
            };
            return Ok(Some(Resumed { reader, outcome: Some(outcome) }));
        }
        Ok(None)
    }

    /// Projects the events that a client has, and sends the newer ones that are known already.
    /// Returns how the run has ended, if it has. `None` if the event that the client has last is not
    /// found.
    async fn pass_over(
        &self,
        view: &mut ClientView,
        reader: &mut ThreadReader,
    ) -> Option<Option<Outcome>> {
        let mut batches = Vec::new();
        loop {
            let events = reader.next().await?;
            // The run begins with another event if that of the client is not found.
            if events.delivered() == 0 && events.delivered_wire_events() == 0 {
                return None;
            }
            batches.push(events);
            if !reader.is_resuming() {
                break;
            }
        }
        let held = |events: &Batch| events.get(..events.delivered()).is_some_and(has_conversation);
        // Otherwise a later snapshot would repeat what came before the run.
        if !batches.iter().any(held) {
            return None;
        }
        let mut outcome = None;
        for events in &batches {
            self.link.wait_for_room(&self.session).await;
            outcome = self.project(view, events, UpdateFilter::All, Whose::Own);
        }
        Some(outcome)
    }

    /// Notes how many updates the client has that followed an event, if that is still the newest.
    fn hold(&self, after: &EventId, held: Option<u32>) {
        let mut position = self.session.position();
        let is_newest = position.key.is_some_and(|key| after.is_same_end(key));
        if is_newest {
            position.held = held.unwrap_or_default();
            self.session.set_position(position);
        }
    }
}
