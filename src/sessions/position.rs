//! Where in a session its client is. Each update carries the id of the event that it was made of.

use std::sync::Arc;

use agent_client_protocol_schema::v1::Meta;
use serde_json::json;

use crate::runs::{EventId, EventKey};
use crate::threads::ShownLast;
use threadway_translate::json::Json;
use threadway_translate::run::RunEvent;

/// The member of `_meta` with what threadway adds to ACP.
pub(crate) const META: &str = "threadway";

/// The member of `_meta.threadway` with the id.
pub(crate) const EVENT_ID: &str = "eventId";

/// The member of the same in the response to `session/load` with an id: whether the session goes on
/// after the event.
pub(crate) const IS_RESUMED: &str = "isResumed";

/// In an id, the count of updates that were made of the event itself is below this. Updates that
/// follow an event without being made of it, such as a question's call, are counted from here.
pub(super) const FOLLOWING: u32 = 1 << 16;

/// The beginning of an idle thread's name. The id of its checkpoint follows.
const IDLE: &str = "connect-";

/// Where in its session a client is.
#[derive(Clone, Debug, Default)]
pub(super) struct Position {
    /// LangGraph's id of the run, or the name of an idle thread.
    run_id: Option<Arc<str>>,
    /// The newest event of which something was sent. `None` if the client cannot resume here.
    pub(super) key: Option<EventKey>,
    /// How many updates were made of the event, or 0 if all of them were sent. From [`FOLLOWING`]
    /// on, how many followed it.
    pub(super) sent: u32,
    /// How many of the following updates the client has already.
    pub(super) held: u32,
    /// Whether the client has the id of this position.
    pub(super) is_known: bool,
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

    /// What the client was shown last of the thread.
    pub(super) fn shown_last(&self) -> ShownLast<'_> {
        let Some(name) = self.run_id() else { return ShownLast::Nothing };
        match name.strip_prefix(IDLE) {
            Some(checkpoint_id) => ShownLast::Checkpoint(checkpoint_id),
            None => ShownLast::Run(name),
        }
    }

    pub(super) fn begin(&mut self, event: &RunEvent, key: Option<EventKey>) {
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
    pub(super) fn made(&mut self, count: u32) {
        self.sent = count.min(FOLLOWING - 1);
        self.is_known = false;
    }

    /// Counts one more update that follows the event. Returns its number, from one.
    pub(super) fn follow(&mut self) -> u32 {
        let number = self.sent.saturating_sub(FOLLOWING).saturating_add(1);
        self.sent = FOLLOWING.saturating_add(number);
        self.is_known = false;
        number
    }

    /// Everything that is made of the event was sent.
    pub(super) fn end(&mut self, key: Option<EventKey>) {
        if key.is_some() {
            (self.sent, self.is_known) = (0, false);
        }
    }

    pub(super) fn id(&self) -> Option<String> {
        let (key, run_id) = (self.key?, self.run_id.as_deref()?);
        Some(key.to_id(run_id, self.sent).to_string())
    }
}
