//! The editor's requests in progress, and when each is sent.

use super::{BridgeRequest, MAX_SENDS, MAX_SESSIONS, Machine, Phase};
use crate::bridge::message;
use crate::bridge::session::{BridgedSession, OpenedBy, SessionState};
use threadway_translate::acp::method::Method;
use threadway_translate::acp::rpc::{self, Error, Id};
use threadway_translate::json::{Json, ObjectWriter};

/// A request of the editor that has no answer yet.
#[derive(Debug)]
pub(super) struct Request {
    /// The method, as the editor wrote it.
    pub(super) name: String,
    /// `None` for one that the bridge does not know. It is passed on.
    pub(super) method: Option<Method>,
    /// `{}` once a prompt was sent: it is not sent again.
    pub(super) params: Json,
    /// The editor's id of the session that it is about.
    pub(super) session: Option<String>,
    pub(super) stage: Stage,
    /// How often it was sent.
    pub(super) sends: u32,
    /// By which the gateway finds the prompt's run again.
    pub(super) prompt_id: Option<String>,
    /// Whether the editor has cancelled it.
    pub(super) is_cancelled: bool,
    /// What a load replaces until it succeeds.
    pub(super) replaced: Option<Box<BridgedSession>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits to be sent.
    Queued,
    Sent,
    /// The connection was lost after a prompt was sent.
    Lost,
    /// The gateway was asked for the end of a prompt that was lost.
    Ending,
}

// === impl Request ===

impl Request {
    pub(super) fn is(&self, method: Method) -> bool {
        self.method == Some(method)
    }

    /// Whether it loads or resumes a session.
    pub(super) fn is_opening(&self) -> bool {
        self.method.is_some_and(Method::is_opening)
    }
}

// === impl Machine ===

impl Machine {
    /// Sends what can be sent.
    pub(super) fn pump(&mut self) {
        if self.phase != Phase::Ready {
            return;
        }
        let is_queued =
            |(id, request): (&Id, &Request)| (request.stage == Stage::Queued).then(|| id.clone());
        let queued: Vec<_> = self.requests.iter().filter_map(is_queued).collect();
        for id in queued {
            let Some(request) = self.requests.get(&id) else { continue };
            let opens = request.is_opening();
            let session = request.session.clone();
            let state = session.as_ref().and_then(|id| self.sessions.get(id)).map(|s| s.state);
            match (state, session) {
                (Some(SessionState::Opening), _) => {}
                (Some(SessionState::Closed), Some(session)) if !opens => self.open(&session),
                (Some(SessionState::Closed | SessionState::Open) | None, _) => self.send(&id),
            }
        }
    }

    /// Sends a request of the editor.
    pub(super) fn send(&mut self, id: &Id) {
        let bytes = self.requests.get(id).map_or(0, |request| request.params.get().len());
        if let Some(error) = self.too_large(bytes) {
            return self.fail(id, error);
        }
        let Self { requests, sessions, .. } = self;
        let Some(request) = requests.get_mut(id) else { return };
        request.stage = Stage::Sent;
        request.sends += 1;
        let mut params = request.params.clone();
        let session = request.session.clone();
        if let Some(opened_by) = request.method.and_then(OpenedBy::of)
            && let Some(session) = &session
            && request.sends == 1
            && (sessions.len() < MAX_SESSIONS || sessions.contains_key(session))
        {
            let opened = BridgedSession::new(
                session,
                &request.params,
                opened_by,
                SessionState::Opening,
                self.prompts,
            );
            request.replaced = sessions.insert(session.clone(), opened).map(Box::new);
        }
        let known = session.and_then(|id| sessions.get_mut(&id));
        if let Some(known) = known {
            if request.is_opening() {
                known.state = SessionState::Opening;
            }
            if request.session.as_deref() != Some(&known.remote) {
                params = message::with_text(&params, "sessionId", &known.remote);
            }
            if request.is(Method::Prompt) {
                known.is_prompted = true;
                if self.gateway.finds_prompts {
                    self.prompts += 1;
                    let prompt_id = message::prompt_id(self.seed, self.prompts).to_string();
                    known.newest_prompt = Some(self.prompts);
                    params = message::with_prompt_id(&params, &prompt_id);
                    request.prompt_id = Some(prompt_id);
                }
            }
        }
        if request.is(Method::Prompt) {
            request.params = Json::empty_object();
        }
        let line = rpc::request(id, &request.name, &params);
        self.send_line(line);
    }

    /// Ends a request with an error of the bridge.
    pub(super) fn fail(&mut self, id: &Id, error: Error) {
        let Some(request) = self.requests.shift_remove(id) else { return };
        let error = match request.stage {
            Stage::Queued | Stage::Sent => error,
            Stage::Lost | Stage::Ending => Error {
                message: format!(
                    "{}. If the prompt's run had begun, it goes on: load the session and look before \
                     you send the prompt again",
                    error.message
                ),
                ..error
            },
        };
        if request.is(Method::Initialize) {
            self.introduction = None;
            self.fail_all(&error);
        }
        if let Some(session) = &request.session
            && request.is_opening()
            && request.sends > 0
        {
            self.restore(session, request.replaced);
        }
        self.respond(id, &Err(error));
    }

    /// Ends all requests with an error of the bridge.
    pub(super) fn fail_all(&mut self, error: &Error) {
        let ids: Vec<_> = self.requests.keys().cloned().collect();
        for id in &ids {
            self.fail(id, error.clone());
        }
    }

    /// A load has failed: the session is what it was before.
    pub(super) fn restore(&mut self, session: &str, replaced: Option<Box<BridgedSession>>) {
        match replaced {
            Some(replaced) => {
                self.sessions.insert(session.to_owned(), *replaced);
            }
            None => {
                self.sessions.shift_remove(session);
            }
        }
    }

    /// What happens to a request that was sent when the connection is lost.
    pub(super) fn lose(&mut self, id: &Id) {
        let Some(request) = self.requests.get_mut(id) else { return };
        match request.stage {
            Stage::Queued | Stage::Lost => {}
            Stage::Ending => request.stage = Stage::Lost,
            Stage::Sent if request.is(Method::Prompt) && request.prompt_id.is_some() => {
                request.stage = Stage::Lost;
            }
            Stage::Sent if request.is(Method::Prompt) => {
                let message = format!(
                    "the connection to {} was lost during the prompt; its run goes on: load the \
                     session again to see it",
                    self.url
                );
                self.fail(id, Error::internal(message));
            }
            Stage::Sent if !request.method.is_some_and(Method::is_repeatable) => {
                let message = format!(
                    "the connection to {} was lost before the answer; look whether this was done, \
                     or send it again",
                    self.url
                );
                self.fail(id, Error::internal(message));
            }
            Stage::Sent if request.sends >= MAX_SENDS => {
                let message = format!(
                    "the connection to {} was lost {MAX_SENDS} times before the answer; look at \
                     the gateway's log",
                    self.url
                );
                self.fail(id, Error::internal(message));
            }
            Stage::Sent => request.stage = Stage::Queued,
        }
    }

    /// Asks for the ends of a session's prompts whose connection was lost.
    pub(super) fn ask_for_ends(&mut self, session: &str) {
        let is_lost = |(id, request): (&Id, &Request)| {
            let is_lost =
                request.stage == Stage::Lost && request.session.as_deref() == Some(session);
            is_lost.then(|| (id.clone(), request.prompt_id.clone(), request.is_cancelled))
        };
        let lost: Vec<_> = self.requests.iter().filter_map(is_lost).collect();
        let Some(remote) = self.sessions.get(session).map(|session| session.remote.clone()) else {
            return;
        };
        for (id, prompt_id, is_cancelled) in lost {
            let prompt_id = prompt_id.unwrap_or_default();
            if !self.gateway.finds_prompts {
                let message = format!(
                    "the connection to {} was lost during the prompt, and the gateway there is now \
                     of a version that cannot find its end",
                    self.url
                );
                self.fail(&id, Error::internal(message));
                continue;
            }
            if let Some(request) = self.requests.get_mut(&id) {
                request.stage = Stage::Ending;
            }
            let mut params =
                ObjectWriter::new().string("sessionId", &remote).string("promptId", &prompt_id);
            if is_cancelled {
                params = params.raw("cancel", "true");
            }
            self.send_own(BridgeRequest::PromptEnd(id), Method::PromptEnd, &params.finish());
        }
    }
}
