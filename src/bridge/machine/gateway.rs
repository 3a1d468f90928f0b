//! What the gateway says.

use super::requests::Stage;
use super::{BridgeRequest, MAX_SESSIONS, Machine, MachineAction, Phase};
use crate::bridge::asks::AskOutcome;
use crate::bridge::message::{self, Announced};
use crate::bridge::session::{BridgedSession, GatewayUpdate, OpenedBy, SessionState};
use threadway_translate::acp::method::Method;
use threadway_translate::acp::rpc::{self, Code, Error, Id, Incoming};
use threadway_translate::json::{self, Json, ObjectWriter};

impl Machine {
    /// Takes a text frame of the gateway.
    pub(in crate::bridge) fn gateway_said(&mut self, frame: &str) {
        match Incoming::parse(frame.as_bytes()) {
            Ok(Incoming::Response { id, result }) => match self.own.remove(&id) {
                Some(own) => self.own_answered(own, result),
                None => self.answered(&id, result.as_ref(), frame),
            },
            Ok(Incoming::Notification { method, params }) => {
                self.gateway_notified(&method, &params, frame);
            }
            Ok(Incoming::Request { id, method, params }) => {
                self.gateway_asked(id, method, params);
            }
            // The text is not logged: it may hold what people wrote.
            Err(malformed) => {
                let why = malformed.error.message;
                self.warn(format!("a frame of the gateway was ignored: {why}"));
            }
        }
    }

    // --- answers ---

    /// The answer to a request of the editor, which gets its bytes.
    fn answered(&mut self, id: &Id, result: Result<&Json, &Error>, frame: &str) {
        let is_sent = |stage| stage == Stage::Sent;
        if !self.requests.get(id).is_some_and(|request| is_sent(request.stage)) {
            if let Err(error) = result {
                self.warn(format!("the gateway refused a message: {}", error.message));
            }
            return;
        }
        let Some(request) = self.requests.shift_remove(id) else { return };
        let session = request.session.as_deref();
        let mut held = Vec::new();
        match (request.method, result) {
            (Some(Method::Initialize), Ok(answer)) => {
                self.gateway = Announced::in_answer(answer);
                if let Some(introduction) = &mut self.introduction {
                    introduction.answer = Some(answer.clone());
                }
                self.phase = Phase::Ready;
            }
            (Some(Method::Initialize), Err(_)) => {
                self.introduction = None;
                self.phase = Phase::Connected;
                self.fail_all(&Error::invalid("send `initialize` first"));
            }
            (Some(Method::NewSession), Ok(answer)) => {
                if let Some(id) = message::text(answer, "sessionId") {
                    let made = BridgedSession::new(
                        &id,
                        &request.params,
                        OpenedBy::New,
                        SessionState::Open,
                        self.prompts,
                    );
                    self.opened(made);
                }
            }
            (Some(Method::ForkSession), Ok(answer)) => {
                if let Some(id) = message::text(answer, "sessionId") {
                    let source = session.and_then(|id| self.sessions.get(id));
                    let forked = BridgedSession::forked(&id, &request.params, source, self.prompts);
                    self.opened(forked);
                }
            }
            (Some(Method::LoadSession | Method::ResumeSession), Ok(_)) => {
                if let Some(session) = session {
                    // The editor wants all of it.
                    held =
                        self.sessions.get_mut(session).map_or_else(Vec::new, |s| s.is_open(true));
                    self.ask_for_ends(session);
                }
            }
            (Some(Method::LoadSession | Method::ResumeSession), Err(_)) => {
                if let Some(session) = session {
                    self.restore(session, request.replaced);
                }
            }
            (Some(Method::CloseSession | Method::DeleteSession), Ok(_)) => {
                if let Some(session) = session {
                    self.sessions.shift_remove(session);
                    held = self.asks.end(session);
                }
            }
            (Some(method @ (Method::SetMode | Method::SetConfigOption)), Ok(_)) => {
                if let Some(session) = session.and_then(|id| self.sessions.get_mut(id)) {
                    session.set(method, &request.params);
                }
            }
            (Some(Method::Prompt), answer) => {
                if let Some(session) = session.and_then(|id| self.sessions.get_mut(id)) {
                    session.has_thread |= answer.is_ok();
                }
                held = session.map(|session| self.asks.end(session)).unwrap_or_default();
            }
            _ => {}
        }
        self.write_all(held);
        self.write_line(message::line(frame));
        self.pump();
    }

    /// Remembers a session that the gateway has made.
    fn opened(&mut self, session: BridgedSession) {
        if self.sessions.len() >= MAX_SESSIONS {
            let why =
                format!("{MAX_SESSIONS} sessions are open; this one is lost with the connection");
            return self.warn(why);
        }
        self.sessions.insert(session.remote.clone(), session);
    }

    fn own_answered(&mut self, own: BridgeRequest, result: Result<Json, Error>) {
        match (own, result) {
            (BridgeRequest::Initialize, Ok(answer)) => self.introduced(&answer),
            (BridgeRequest::Initialize, Err(error)) => {
                let why = format!("the gateway refused `initialize`: {}", error.message);
                self.actions.push(MachineAction::Disconnect(why));
            }
            (BridgeRequest::Open(session), Ok(answer)) => {
                if let Some(known) = self.sessions.get_mut(&session) {
                    known.has_thread = true;
                }
                self.reopened(&session, &answer);
            }
            (BridgeRequest::Open(session), Err(error)) => self.not_reopened(&session, &error),
            (BridgeRequest::Renew(session), Ok(answer)) => {
                let remote = message::text(&answer, "sessionId");
                if let (Some(known), Some(remote)) = (self.sessions.get_mut(&session), remote) {
                    known.remote = remote;
                    known.after = None;
                    for (method, params) in known.settings() {
                        self.send_own(BridgeRequest::Setting, method, &params);
                    }
                }
                self.reopened(&session, &answer);
            }
            (BridgeRequest::Renew(session), Err(error)) => self.fail_session(&session, &error),
            (BridgeRequest::Setting, Ok(_)) => {}
            (BridgeRequest::Setting, Err(error)) => {
                self.warn(format!("a setting could not be set again: {}", error.message));
            }
            (BridgeRequest::PromptEnd(id), result) => self.prompt_ended(&id, result),
        }
        self.pump();
    }

    /// The end of a prompt whose connection was lost.
    fn prompt_ended(&mut self, id: &Id, result: Result<Json, Error>) {
        let Some(request) = self.requests.shift_remove(id) else { return };
        let ended = request.session.as_deref().map(|session| self.asks.end(session));
        self.write_all(ended.into_iter().flatten());
        // ACP: a prompt that was cancelled ends so, also if the run was faster or never began.
        let result = match result {
            Err(error) if error.code != Code::NotFound => Err(error),
            Ok(_) | Err(_) if request.is_cancelled => {
                Ok(ObjectWriter::new().string("stopReason", "cancelled").finish())
            }
            result => result,
        };
        let result = result.map_err(|error| match error.code {
            // Another replica may not have noticed yet that the connection is lost.
            Code::NotFound => Error::internal(format!(
                "the connection to {} was lost while the prompt was sent, and its run is not found: \
                 load the session and look before you send the prompt again",
                self.url
            )),
            Code::Parse
            | Code::InvalidRequest
            | Code::MethodNotFound
            | Code::InvalidParams
            | Code::Internal
            | Code::AuthRequired
            | Code::Cancelled
            | Code::Other(_) => error,
        });
        self.respond(id, &result);
    }

    // --- notifications and requests ---

    fn gateway_notified(&mut self, method: &str, params: &Json, frame: &str) {
        if Method::of(method) == Some(Method::CancelRequest) {
            let id = json::members(params).and_then(|all| Id::read(all.get("requestId")?));
            if let Some(line) = id.and_then(|id| self.asks.cancelled(&id)) {
                self.write_line(line);
            }
            return;
        }
        let members = json::members(params).unwrap_or_default();
        let remote = members.string("sessionId");
        let local = remote.as_deref().and_then(|remote| self.local(remote)).map(str::to_owned);
        let Some(local) = local else { return self.write_line(message::line(frame)) };
        let line = if remote.as_deref() == Some(&*local) {
            message::line(frame)
        } else {
            rpc::notification(method, &message::with_text(params, "sessionId", &local))
        };
        let update = members.get("update").filter(|_| method == "session/update");
        let lines = match (self.sessions.get_mut(&local), update) {
            (Some(session), Some(update)) => {
                session.has_thread |= session.is_prompted && message::is_conversation(update);
                let line = (!message::is_position(update)).then_some(line);
                let event_id = message::event_id(update);
                let prompt = message::prompt_number(self.seed, update);
                session.take(GatewayUpdate { line, event_id, prompt })
            }
            _ => vec![line],
        };
        self.write_all(lines);
    }

    fn gateway_asked(&mut self, id: Id, method: String, mut params: Json) {
        let remote = message::text(&params, "sessionId");
        let local = remote.as_deref().and_then(|remote| self.local(remote)).map(str::to_owned);
        if let Some(local) = local.as_ref().filter(|local| remote.as_ref() != Some(*local)) {
            params = message::with_text(&params, "sessionId", local);
        }
        match self.asks.ask(id, method, params, local.or(remote)) {
            AskOutcome::Editor(lines) => self.write_all(lines),
            AskOutcome::Gateway(line) => self.send_line(line),
        }
    }
}
