//! What the bridge remembers of a session, to open it again on a new connection.

use indexmap::IndexMap;
use serde_json::value::RawValue;

use super::message;
use super::seen::Seen;
use threadway_translate::acp::method::Method;
use threadway_translate::json::{self, Json};

/// The most settings that are remembered of a session.
const MAX_SETTINGS: usize = 64;

/// An open session, under the editor's id.
#[derive(Debug)]
pub(super) struct Session {
    /// The gateway's id. It differs from the editor's if the session had to be made anew.
    pub(super) remote: String,
    /// The params of the request that opened the session.
    params: Json,
    origin: Origin,
    /// Whether a prompt was sent.
    pub(super) is_prompted: bool,
    /// Whether the session has a thread for certain. It is made with the first prompt.
    pub(super) has_thread: bool,
    /// The params of the latest `session/set_mode` and `session/set_config_option`.
    settings: IndexMap<String, (Method, Json)>,
    pub(super) state: State,
    pub(super) seen: Seen,
}

/// How the editor has opened a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    New,
    Load,
    /// Also a fork: in both the editor has the history already.
    Resume,
}

/// Whether the session is open on the present connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Closed,
    Opening,
    Open,
}

// === impl Origin ===

impl Origin {
    /// How this method opens a session that exists. `None` if it opens none.
    pub(super) fn of(method: Method) -> Option<Self> {
        match method {
            Method::LoadSession => Some(Self::Load),
            Method::ResumeSession => Some(Self::Resume),
            _ => None,
        }
    }
}

// === impl Session ===

impl Session {
    pub(super) fn new(id: &str, params: &RawValue, origin: Origin, state: State) -> Self {
        Self {
            remote: id.to_owned(),
            params: Json::from(params),
            origin,
            is_prompted: false,
            has_thread: origin != Origin::New,
            settings: IndexMap::new(),
            state,
            seen: Seen::new(origin != Origin::Resume),
        }
    }

    /// An open session that the gateway has made by `session/fork`. `source` is the session that it
    /// copies, if that is open too.
    pub(super) fn forked(id: &str, params: &RawValue, source: Option<&Self>) -> Self {
        let params = message::without_member(params, "sessionId");
        let forked = Self::new(id, &params, Origin::Resume, State::Open);
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
        let is_resumed = self.origin == Origin::Resume && !self.is_prompted;
        let method = if is_resumed { Method::ResumeSession } else { Method::LoadSession };
        let params = message::with_text(&self.params, "sessionId", &self.remote);
        (method, with_servers(params))
    }

    /// The params of `session/new` that make the session anew.
    pub(super) fn renewal(&self) -> Json {
        with_servers(self.params.clone())
    }

    /// Remembers a setting. The thread has it too, once there is a thread.
    pub(super) fn set(&mut self, method: Method, params: &Json) {
        let key = match method {
            Method::SetMode => Some(String::new()),
            _ => message::text(params, "configId"),
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
