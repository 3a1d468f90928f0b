//! Connections that come and go.

use super::requests::{Request, Stage};
use super::{BridgeRequest, Machine, Phase};
use crate::bridge::message::{self, Announced};
use crate::bridge::session::SessionState;
use threadway_translate::acp::method::Method;
use threadway_translate::acp::rpc::{Code, Error, Id};
use threadway_translate::json::{self, Json};

/// The members of an answer to `initialize` that an editor relies on.
const RELIED_ON: [&str; 2] = ["protocolVersion", "agentCapabilities"];

impl Machine {
    /// There is a new connection.
    pub(in crate::bridge) fn connected(&mut self) {
        self.away = None;
        self.phase = Phase::Connected;
        let Some(introduction) = &self.introduction else { return };
        self.phase = Phase::Introducing;
        if introduction.answer.is_some() {
            let params = introduction.params.clone();
            return self.send_own(BridgeRequest::Initialize, Method::Initialize, &params);
        }
        let is_first =
            |(id, request): (&Id, &Request)| request.is(Method::Initialize).then(|| id.clone());
        if let Some(id) = self.requests.iter().find_map(is_first) {
            self.send(&id);
        }
    }

    /// The connection is lost. What was not answered is sent again on the next one, except for
    /// prompts.
    pub(in crate::bridge) fn lost(&mut self) {
        self.phase = Phase::Away;
        self.own.clear();
        // A load that fails restores what it has replaced.
        let replaced =
            self.requests.values_mut().filter_map(|request| request.replaced.as_deref_mut());
        for session in self.sessions.values_mut().chain(replaced) {
            session.is_closed();
        }
        let ids: Vec<_> = self.requests.keys().cloned().collect();
        for id in &ids {
            self.lose(id);
        }
        let Self { asks, requests, .. } = self;
        let is_prompted = |session: &str| {
            requests.values().any(|request| {
                request.stage == Stage::Lost && request.session.as_deref() == Some(session)
            })
        };
        let ended = asks.lost(is_prompted);
        self.write_all(ended);
    }

    /// The gateway has been away for long: refuses all requests, until there is a connection.
    pub(in crate::bridge) fn give_up(&mut self, error: Error) {
        self.fail_all(&error);
        let ended = self.asks.lost(|_| false);
        self.write_all(ended);
        self.away = Some(error);
    }

    /// The gateway knows the editor again: opens the sessions.
    pub(super) fn introduced(&mut self, answer: &Json) {
        let known = self.introduction.as_ref().and_then(|known| known.answer.clone());
        if let Some(known) = known {
            let differs = |name: &&&str| !is_same(&known, answer, name);
            for name in RELIED_ON.iter().filter(differs) {
                self.warn(format!(
                    "the gateway has another `{name}` than before; start the agent again in the \
                     editor to use it"
                ));
            }
        }
        self.gateway = Announced::in_answer(answer);
        self.phase = Phase::Ready;
        let sessions: Vec<_> = self.sessions.keys().cloned().collect();
        for session in sessions {
            // The editor's own load is sent again, and opens it.
            let is_loaded = self.requests.values().any(|request| {
                request.is_opening() && request.session.as_deref() == Some(&session)
            });
            if !is_loaded {
                self.open(&session);
            }
        }
        self.pump();
    }

    /// Opens a session on this connection.
    pub(super) fn open(&mut self, session: &str) {
        let Some(known) = self.sessions.get_mut(session) else { return };
        if known.state != SessionState::Closed {
            return;
        }
        known.state = SessionState::Opening;
        let (method, params) = known.opening();
        self.send_own(BridgeRequest::Open(session.to_owned()), method, &params);
    }

    pub(super) fn reopened(&mut self, session: &str, answer: &Json) {
        let Some(known) = self.sessions.get_mut(session) else { return };
        let is_resumed = message::is_resumed(answer);
        let is_unknown = known.after.is_some() && !is_resumed;
        let lines = known.is_open(is_resumed);
        if is_unknown {
            self.warn(format!(
                "the gateway does not find the last event of session {session} any more; what \
                 follows the newest prompt is shown again"
            ));
        }
        self.write_all(lines);
        self.ask_for_ends(session);
    }

    pub(super) fn not_reopened(&mut self, session: &str, error: &Error) {
        let Some(known) = self.sessions.get(session) else { return };
        if error.code == Code::NotFound && !known.has_thread {
            let params = known.renewal();
            return self.send_own(
                BridgeRequest::Renew(session.to_owned()),
                Method::NewSession,
                &params,
            );
        }
        self.fail_session(session, error);
    }

    /// A session cannot be opened: refuses its requests. The next one tries again.
    pub(super) fn fail_session(&mut self, session: &str, error: &Error) {
        self.warn(format!("session {session} could not be opened again: {}", error.message));
        if let Some(known) = self.sessions.get_mut(session) {
            known.is_closed();
        }
        let is_gone = error.code == Code::NotFound;
        let waits = |(id, request): (&Id, &Request)| {
            let is_of = request.session.as_deref() == Some(session);
            let closes = is_gone && request.method.is_some_and(Method::is_closing);
            let is_open = request.is_opening() || closes;
            let waits = matches!(request.stage, Stage::Queued | Stage::Lost);
            (is_of && waits && !is_open).then(|| id.clone())
        };
        let waiting: Vec<_> = self.requests.iter().filter_map(waits).collect();
        let mut error = error.clone();
        if error.code != Code::NotFound {
            error.details = Some(error.message.clone());
        }
        for id in &waiting {
            self.fail(id, error.clone());
        }
        let ended = self.asks.end(session);
        self.write_all(ended);
        if is_gone {
            self.sessions.shift_remove(session);
        }
    }
}

fn is_same(one: &Json, other: &Json, name: &str) -> bool {
    let member = |of| json::members(of).and_then(|all| all.get(name)).map_or("", |all| all.get());
    json::same(member(one), member(other))
}
