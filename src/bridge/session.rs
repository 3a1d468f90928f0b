//! What the bridge remembers of a session, to open it again on a new connection.

use indexmap::IndexMap;
use serde_json::value::RawValue;

use super::message;
use super::seen::Seen;
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
    settings: IndexMap<String, (&'static str, Json)>,
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
    pub(super) fn opening(&self) -> (&'static str, Json) {
        let is_resumed = self.origin == Origin::Resume && !self.is_prompted;
        let method = if is_resumed { "session/resume" } else { "session/load" };
        let params = message::with_text(&self.params, "sessionId", &self.remote);
        (method, with_servers(params))
    }

    /// The params of `session/new` that make the session anew.
    pub(super) fn renewal(&self) -> Json {
        with_servers(self.params.clone())
    }

    /// Remembers a setting. The thread has it too, once there is a thread.
    pub(super) fn set(&mut self, method: &str, params: &Json) {
        let (key, method) = match method {
            "session/set_mode" => (String::new(), "session/set_mode"),
            "session/set_config_option" => match message::text(params, "configId") {
                Some(id) => (id, "session/set_config_option"),
                None => return,
            },
            _ => return,
        };
        if self.settings.len() < MAX_SETTINGS || self.settings.contains_key(&key) {
            self.settings.insert(key, (method, params.clone()));
        }
    }

    /// The requests that set the settings again.
    pub(super) fn settings(&self) -> Vec<(&'static str, Json)> {
        let again = |(method, params): &(&'static str, Json)| {
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
