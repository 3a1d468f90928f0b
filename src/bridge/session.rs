//! What the bridge remembers of a session, to open it again on a new connection.

use indexmap::IndexMap;
use serde_json::value::RawValue;

use super::message;
use threadway_translate::acp::method::Method;
use threadway_translate::json::{self, Json};

/// The most settings that are remembered of a session.
const MAX_SETTINGS: usize = 64;

/// How many bytes of a history are held until its load is answered. A longer one is passed on as it
/// comes, and a cut then repeats it.
const MAX_HELD_BYTES: usize = 64 * 1024 * 1024;

/// An open session, under the editor's id.
#[derive(Debug)]
pub(super) struct BridgedSession {
    /// The gateway's id. It differs from the editor's if the session had to be made anew.
    pub(super) remote: String,
    /// The params of the request that opened the session.
    params: Json,
    opened_by: OpenedBy,
    /// Whether a prompt was sent.
    pub(super) is_prompted: bool,
    /// Whether the session has a thread for certain. It is made with the first prompt.
    pub(super) has_thread: bool,
    /// The params of the latest `session/set_mode` and `session/set_config_option`.
    settings: IndexMap<String, (Method, Json)>,
    pub(super) state: SessionState,
    /// The id of the last event that the editor has.
    pub(super) after: Option<String>,
    /// The number of the newest prompt that was sent.
    pub(super) newest_prompt: Option<u64>,
    /// How many prompts the bridge had sent when the editor opened the session. The editor gets
    /// those as a part of the history.
    prompts_before: u64,
    /// The updates of a load that is not answered yet. If its connection is lost, the next load
    /// sends them again.
    held: Vec<GatewayUpdate>,
    /// The bytes of their lines.
    held_bytes: usize,
}

/// An update of the gateway.
#[derive(Debug)]
pub(super) struct GatewayUpdate {
    /// The line for the editor. `None` if the editor shows this by itself.
    pub(super) line: Option<String>,
    /// The id of the event that it was made of.
    pub(super) event_id: Option<String>,
    /// The number of the bridge's prompt that it repeats.
    pub(super) prompt: Option<u64>,
}

/// How the editor has opened a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenedBy {
    New,
    Load,
    /// Also a fork: in both the editor has the history already.
    Resume,
}

/// Whether the session is open on the present connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionState {
    Closed,
    Opening,
    Open,
}

// === impl OpenedBy ===

impl OpenedBy {
    /// How this method opens a session that exists. `None` if it opens none.
    pub(super) fn of(method: Method) -> Option<Self> {
        let opens = if method == Method::LoadSession { Self::Load } else { Self::Resume };
        method.is_opening().then_some(opens)
    }
}

// === impl BridgedSession ===

impl BridgedSession {
    pub(super) fn new(
        id: &str,
        params: &RawValue,
        opened_by: OpenedBy,
        state: SessionState,
        prompts_before: u64,
    ) -> Self {
        Self {
            remote: id.to_owned(),
            params: Json::from(params),
            opened_by,
            is_prompted: false,
            has_thread: opened_by != OpenedBy::New,
            settings: IndexMap::new(),
            state,
            after: None,
            newest_prompt: None,
            prompts_before,
            held: Vec::new(),
            held_bytes: 0,
        }
    }

    /// An open session that the gateway has made by `session/fork`. `source` is the session that it
    /// copies, if that is open too.
    pub(super) fn forked(
        id: &str,
        params: &RawValue,
        source: Option<&Self>,
        prompts_before: u64,
    ) -> Self {
        let params = message::without_member(params, "sessionId");
        let forked = Self::new(id, &params, OpenedBy::Resume, SessionState::Open, prompts_before);
        match source {
            // The copy may be as empty, and the gateway then knows its settings on this connection
            // only.
            Some(source) if !source.has_thread => {
                Self { has_thread: false, settings: source.settings.clone(), ..forked }
            }
            Some(_) | None => forked,
        }
    }

    /// The request that opens the session on a new connection.
    ///
    /// It loads the session, because only a load shows what was missed and the rest of a live run.
    /// If the editor has resumed the session and not prompted it, it has been shown nothing of it.
    pub(super) fn opening(&self) -> (Method, Json) {
        let is_resumed = self.opened_by == OpenedBy::Resume && !self.is_prompted;
        let method = if is_resumed { Method::ResumeSession } else { Method::LoadSession };
        let params = with_servers(message::with_text(&self.params, "sessionId", &self.remote));
        match &self.after {
            Some(id) if !is_resumed => (method, message::with_event_id(&params, id)),
            Some(_) | None => (method, params),
        }
    }

    /// The params of `session/new` that make the session anew.
    pub(super) fn renewal(&self) -> Json {
        with_servers(self.params.clone())
    }

    /// Takes an update of the gateway. Returns the lines for the editor.
    pub(super) fn take(&mut self, mut update: GatewayUpdate) -> Vec<String> {
        if update.prompt.is_some_and(|number| number > self.prompts_before) {
            update.line = None;
        }
        match self.state {
            SessionState::Opening => {
                self.held_bytes += update.line.as_ref().map_or(0, String::len);
                self.held.push(update);
                if self.held_bytes <= MAX_HELD_BYTES {
                    return Vec::new();
                }
                self.pass_on(0)
            }
            SessionState::Open | SessionState::Closed => {
                self.after = update.event_id.or_else(|| self.after.take());
                update.line.into_iter().collect()
            }
        }
    }

    /// The session is open. `is_resumed` says whether the gateway has sent only what comes after
    /// the last event that the editor has. Returns the lines for the editor.
    ///
    /// Otherwise the gateway has sent everything. What comes before the newest prompt the editor
    /// has, because a prompt is sent after that was shown.
    pub(super) fn is_open(&mut self, is_resumed: bool) -> Vec<String> {
        self.state = SessionState::Open;
        let newest = self.newest_prompt.filter(|_| !is_resumed);
        let is_newest = |update: &GatewayUpdate| update.prompt == newest;
        let from = match newest {
            None => 0,
            Some(_) => match self.held.iter().rposition(is_newest) {
                Some(at) => at + 1,
                None => self.held.len(),
            },
        };
        self.pass_on(from)
    }

    /// The connection is lost, or the load was refused.
    pub(super) fn is_closed(&mut self) {
        self.state = SessionState::Closed;
        self.held.clear();
        self.held_bytes = 0;
    }

    fn pass_on(&mut self, from: usize) -> Vec<String> {
        let held = std::mem::take(&mut self.held);
        self.held_bytes = 0;
        let newest = held.iter().rev().find_map(|update| update.event_id.clone());
        self.after = newest.or_else(|| self.after.take());
        held.into_iter().skip(from).filter_map(|update| update.line).collect()
    }

    /// Remembers a setting. The thread has it too, once there is a thread.
    pub(super) fn set(&mut self, method: Method, params: &Json) {
        let key = if method == Method::SetMode {
            Some(String::new())
        } else {
            message::text(params, "configId")
        };
        let Some(key) = key else { return };
        if self.settings.len() < MAX_SETTINGS || self.settings.contains_key(&key) {
            self.settings.insert(key, (method, params.clone()));
        }
    }

    /// The requests that set the settings again.
    pub(super) fn settings(&self) -> Vec<(Method, Json)> {
        let again = |(method, params): &(Method, Json)| {
            (*method, message::with_text(params, "sessionId", &self.remote))
        };
        self.settings.values().map(again).collect()
    }
}

/// The params with `mcpServers`, which only some methods require.
fn with_servers(params: Json) -> Json {
    let has_servers = json::members(&params).is_some_and(|all| all.get("mcpServers").is_some());
    if has_servers {
        return params;
    }
    json::with_member(&params, "mcpServers", &json::raw("[]".to_owned()))
}
