//! What the editor says.

use super::requests::{Request, Stage};
use super::{EditorInitialize, MAX_QUEUED_BYTES, MAX_REQUESTS, Machine, Phase};
use crate::bridge::message;
use crate::bridge::session::SessionState;
use threadway_translate::acp::method::Method;
use threadway_translate::acp::rpc::{self, Error, Id, Incoming};
use threadway_translate::json::{self, Json};

impl Machine {
    /// Takes a line of the editor.
    pub(in crate::bridge) fn editor_said(&mut self, line: &[u8]) {
        match Incoming::parse(line) {
            Ok(Incoming::Request { id, method, params }) => self.editor_asked(&id, method, params),
            Ok(Incoming::Notification { method, params }) => self.editor_notified(&method, &params),
            Ok(Incoming::Response { id, result }) => {
                let result = result.and_then(|answer| match self.too_large(answer.get().len()) {
                    Some(error) => Err(error),
                    None => Ok(answer),
                });
                let answer = self.asks.answered(&id, result);
                if let Some(answer) = answer {
                    self.send_line(answer);
                }
            }
            Err(malformed) => self.respond(&malformed.id, &Err(malformed.error)),
        }
    }

    /// Answers a line that exceeds the length limit.
    pub(in crate::bridge) fn refuse_line(&mut self, limit: usize) {
        let message =
            format!("the line is longer than {limit} bytes and was ignored; send shorter messages");
        self.respond(&Id::NULL, &Err(Error::invalid(message)));
    }

    fn editor_asked(&mut self, id: &Id, name: String, params: Json) {
        let method = Method::of(&name);
        if let Some(error) = self.refusal(id, method, &params) {
            self.respond(id, &Err(error));
            return;
        }
        if method == Some(Method::Initialize) {
            self.introduction = Some(EditorInitialize { params: params.clone(), answer: None });
        }
        let session = message::text(&params, "sessionId");
        // The turn before is over for the editor, and with it its questions.
        if method == Some(Method::Prompt)
            && let Some(session) = &session
        {
            let ended = self.asks.end(session);
            self.write_all(ended);
        }
        let request = Request {
            name,
            method,
            params,
            session,
            stage: Stage::Queued,
            sends: 0,
            prompt_id: None,
            is_cancelled: false,
            replaced: None,
        };
        self.requests.insert(id.clone(), request);
        if self.phase == Phase::Connected {
            self.phase = Phase::Introducing;
            self.send(id);
        }
        self.pump();
    }

    /// Why a request cannot be accepted.
    fn refusal(&self, id: &Id, method: Option<Method>, params: &Json) -> Option<Error> {
        if self.requests.contains_key(id) {
            let message = format!("id {id:?} belongs to a request in progress; use another id");
            return Some(Error::invalid(message));
        }
        if let Some(away) = &self.away {
            return Some(away.clone());
        }
        match (method, &self.introduction) {
            (Some(Method::Initialize), Some(_)) => {
                return Some(Error::invalid("the connection is initialized already"));
            }
            (Some(Method::Initialize), None) | (_, Some(_)) => {}
            (_, None) => return Some(Error::invalid("send `initialize` first")),
        }
        if self.requests.len() >= MAX_REQUESTS {
            let message = format!("{MAX_REQUESTS} requests are in progress; wait for some to end");
            return Some(Error::invalid(message));
        }
        let queued = self.requests.values().filter(|request| request.stage == Stage::Queued);
        let queued: usize = queued.map(|request| request.params.get().len()).sum();
        (queued + params.get().len() > MAX_QUEUED_BYTES).then(|| {
            Error::internal(format!(
                "{queued} bytes of requests wait for {}; send this again once it answers",
                self.url
            ))
        })
    }

    fn editor_notified(&mut self, method: &str, params: &Json) {
        match Method::of(method) {
            Some(Method::CancelPrompt) => {
                if let Some(session) = message::text(params, "sessionId") {
                    self.cancel_session(&session);
                }
            }
            Some(Method::CancelRequest) => {
                let id = json::members(params).and_then(|all| Id::read(all.get("requestId")?));
                if let Some(id) = id {
                    self.cancel_request(&id);
                }
            }
            // A lost notification has no effect that anybody waits for.
            _ if self.phase == Phase::Ready && self.too_large(params.get().len()).is_none() => {
                self.send_line(rpc::notification(method, params));
            }
            _ => {}
        }
    }

    /// `session/cancel`: stops the prompt of a session.
    fn cancel_session(&mut self, session: &str) {
        let is_prompt = |(id, request): (&Id, &Request)| {
            let is_prompt =
                request.is(Method::Prompt) && request.session.as_deref() == Some(session);
            is_prompt.then(|| (id.clone(), request.stage))
        };
        let prompts: Vec<_> = self.requests.iter().filter_map(is_prompt).collect();
        for (id, stage) in &prompts {
            if let Some(request) = self.requests.get_mut(id) {
                request.is_cancelled = true;
            }
            if *stage == Stage::Queued {
                self.requests.shift_remove(id);
                self.write_line(message::cancelled(id, Some(Method::Prompt)));
            }
        }
        let unsent = prompts.iter().filter(|(_, stage)| *stage == Stage::Queued).count();
        if unsent > 0 && unsent == prompts.len() {
            return;
        }
        self.stop(session);
    }

    /// Stops what goes on in a session. A prompt whose connection was lost is stopped once the
    /// session is open again, by its id: the session may then show a run of others.
    fn stop(&mut self, session: &str) {
        let Some(known) = self.sessions.get(session) else { return };
        let is_of = |request: &Request| {
            request.session.as_deref() == Some(session) && request.is(Method::Prompt)
        };
        let is_sent = |request: &Request| is_of(request) && request.stage == Stage::Sent;
        let is_reached = known.state == SessionState::Open || self.requests.values().any(is_sent);
        if self.phase == Phase::Ready && is_reached {
            let line = message::cancel_session(&known.remote);
            self.send_line(line);
        }
    }

    /// `$/cancel_request`.
    fn cancel_request(&mut self, id: &Id) {
        let Some(request) = self.requests.get_mut(id) else { return };
        request.is_cancelled = true;
        match request.stage {
            Stage::Queued if request.is(Method::Initialize) => {}
            Stage::Queued => {
                let Some(request) = self.requests.shift_remove(id) else { return };
                self.write_line(message::cancelled(id, request.method));
                if let Some(session) = &request.session
                    && request.is_opening()
                    && request.sends > 0
                {
                    self.restore(session, request.replaced);
                }
            }
            Stage::Sent => self.send_line(message::cancel_request(id)),
            Stage::Lost | Stage::Ending => {
                if let Some(session) = request.session.clone() {
                    self.stop(&session);
                }
            }
        }
    }
}
