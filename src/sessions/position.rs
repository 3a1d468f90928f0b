//! Where in a session its client is. Each update carries the id of the event that it was made of. A
//! client that has lost its connection loads the session with its last id, and is sent the rest.
//!
//! The projection is a function of the run's events alone. So the events up to the id are projected
//! again, and what the client has of them is not sent.

use std::sync::Arc;

use agent_client_protocol_schema::v1::Meta;
use serde_json::json;

use super::authentication::Authentication;
use super::link::Link;
use super::prompt_end::META;
use super::session::{ClientView, Session};
use super::turn::{Sending, Turn, Whose, end_of_idle, has_conversation};
use crate::runs::{Batch, EventId, EventKey};
use crate::threads::ThreadReader;
use threadway_translate::acp::rpc::Error;
use threadway_translate::acp::{self, Update};
use threadway_translate::json::Json;
use threadway_translate::run::{Outcome, RunEvent};

/// The member of `_meta.threadway` with the id.
pub(crate) const EVENT_ID: &str = "eventId";

/// The member of the same in the response to `session/load` with an id: whether the session goes on
/// after the event.
pub(crate) const IS_RESUMED: &str = "isResumed";

/// In an id, the count of updates that were made of the event itself is below this. Updates that
/// follow an event without being made of it, such as a question's call, are counted from here.
const FOLLOWING: u32 = 1 << 16;

/// Where in its session a client is.
#[derive(Clone, Debug, Default)]
pub(super) struct Position {
    /// LangGraph's id of the run, or the name of an idle thread.
    run_id: Option<Arc<str>>,
    /// The newest event of which something was sent. `None` if the client cannot resume here.
    key: Option<EventKey>,
    /// How many updates were made of the event, or 0 if all of them were sent. From [`FOLLOWING`]
    /// on, how many followed it.
    sent: u32,
    /// How many of the following updates the client has already.
    held: u32,
    /// Whether the client has the id of this position.
    is_known: bool,
}

/// What a session that is loaded after an event begins with.
pub(super) struct Resumed {
    pub(super) reader: ThreadReader,
    /// How the shown run has ended. `None` while it is live.
    pub(super) outcome: Option<Outcome>,
}

/// The event id in the `_meta` of a request.
pub(super) fn event_id(meta: Option<&Meta>) -> Option<EventId> {
    meta?.get(META)?.get(EVENT_ID)?.as_str()?.parse().ok()
}

/// The `_meta` of the response to `session/load` with an event id.
pub(super) fn load_response_meta(is_resumed: bool) -> Json {
    threadway_translate::json::raw(json!({META: {IS_RESUMED: is_resumed}}).to_string())
}

// === impl Position ===

impl Position {
    /// LangGraph's id of the run that is shown, or was shown last.
    pub(super) fn run_id(&self) -> Option<&str> {
        self.run_id.as_deref()
    }

    fn begin(&mut self, event: &RunEvent, key: Option<EventKey>) {
        if let RunEvent::Started { run_id, name, .. } = event {
            self.run_id = Some(Arc::clone(run_id.as_ref().unwrap_or(name)));
            self.key = None;
        }
        if let Some(key) = key {
            (self.key, self.sent, self.held) = (Some(key), 0, 0);
        }
    }

    /// Notes that this many updates were made of the event. Those beyond the largest number have one
    /// id: a client that resumes there gets them twice.
    fn made(&mut self, count: u32) {
        self.sent = count.min(FOLLOWING - 1);
        self.is_known = false;
    }

    /// Counts one more update that follows the event. Returns its number, from one.
    fn follow(&mut self) -> u32 {
        let number = self.sent.saturating_sub(FOLLOWING).saturating_add(1);
        self.sent = FOLLOWING.saturating_add(number);
        self.is_known = false;
        number
    }

    /// Everything that is made of the event was sent.
    fn end(&mut self, key: Option<EventKey>) {
        if key.is_some() {
            (self.sent, self.is_known) = (0, false);
        }
    }

    fn id(&self) -> Option<String> {
        let (key, run_id) = (self.key?, self.run_id.as_deref()?);
        Some(key.to_id(run_id, self.sent).to_string())
    }
}

impl Link {
    /// Whether the client is sent event ids. A client over stdio cannot lose its connection alone.
    fn has_event_ids(&self) -> bool {
        matches!(self.authentication(), Authentication::Caller { .. })
    }

    fn write(
        &self,
        session: &Session,
        position: &mut Position,
        update: &Update<'_>,
        lines: &mut Vec<u8>,
    ) {
        let id = position.id().filter(|_| self.has_event_ids());
        position.is_known |= id.is_some();
        acp::notification_with_id(&session.id, update, id.as_deref(), lines);
    }

    /// Sends the updates that `project` makes of the events and `is_sent` accepts, except for those
    /// that the client has.
    pub(super) fn emit_events(
        &self,
        session: &Session,
        events: &Batch,
        is_sent: impl Fn(&Update<'_>) -> bool,
        mut project: impl FnMut(&RunEvent, &mut dyn FnMut(&Update<'_>)),
    ) {
        let mut position = session.position();
        let (mut count, mut lines) = (0, Vec::new());
        for (at, (event, key)) in events.with_keys().enumerate() {
            position.begin(event, key);
            let held = match at.cmp(&events.delivered()) {
                std::cmp::Ordering::Less => u32::MAX,
                std::cmp::Ordering::Equal => events.delivered_wire_events(),
                std::cmp::Ordering::Greater => 0,
            };
            let mut made = 0_u32;
            project(event, &mut |update: &Update<'_>| {
                made = made.saturating_add(1);
                position.made(made);
                if made > held && is_sent(update) {
                    count += 1;
                    self.write(session, &mut position, update, &mut lines);
                }
            });
            position.end(key);
        }
        if let Some(key) = events.includes() {
            (position.key, position.sent, position.is_known) = (Some(key), 0, false);
        }
        session.set_position(position);
        self.put_updates(session, count, lines);
    }

    /// Sends the updates that `give` produces. They follow the newest event.
    pub(super) fn emit<T>(
        &self,
        session: &Session,
        give: impl FnOnce(&mut dyn FnMut(&Update<'_>)) -> T,
    ) -> T {
        let mut position = session.position();
        // Written before the outbox is locked: a thread's history may be large.
        let (mut count, mut lines) = (0, Vec::new());
        let given = give(&mut |update: &Update<'_>| {
            let is_held = position.follow() <= position.held;
            // A change of a call may be sent twice, and another one than before may be due.
            if !is_held || matches!(update, Update::ToolCallUpdate(_)) {
                count += 1;
                self.write(session, &mut position, update, &mut lines);
            }
        });
        session.set_position(position);
        self.put_updates(session, count, lines);
        given
    }

    /// Sends the id of the client's position by an update that changes nothing, unless the client
    /// has it. So a client that comes back after the end of a run has the id of the end.
    pub(super) fn emit_position(&self, session: &Session) {
        let mut position = session.position();
        if position.is_known || position.id().is_none() || !self.has_event_ids() {
            return;
        }
        let mut lines = Vec::new();
        let update = Update::SessionInfoUpdate { title: None, updated_at: None };
        self.write(session, &mut position, &update, &mut lines);
        session.set_position(position);
        self.put_updates(session, 1, lines);
    }
}

impl Turn {
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
        let (reader, newest) = self.send_history(view, reader, Sending::All, Whose::Own).await?;
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
                outcome = self.project(view, events, Sending::All, Whose::Own);
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
            outcome = self.project(view, events, Sending::All, Whose::Own);
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
