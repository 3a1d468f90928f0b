//! One client's connection: dispatches its requests and notifications.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    AgentAuthCapabilities, AgentCapabilities, AuthMethod, CancelNotification, CloseSessionRequest,
    DeleteSessionRequest, ForkSessionRequest, Implementation, InitializeRequest,
    InitializeResponse, ListSessionsRequest, LogoutCapabilities, McpCapabilities,
    PromptCapabilities, PromptRequest, SessionAdditionalDirectoriesCapabilities,
    SessionCapabilities, SessionCloseCapabilities, SessionDeleteCapabilities,
    SessionForkCapabilities, SessionListCapabilities, SessionResumeCapabilities,
    SessionSystemPromptCapabilities, SessionSystemPromptModeCapabilities,
    SessionSystemPromptOverrideCapabilities, SetSessionConfigOptionRequest, SetSessionModeRequest,
    SystemPrompt,
};
use futures_util::FutureExt;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::authentication::{Authentication, SessionLists};
use super::client::{ClientAbilities, ClientServers, CursorForm, SubagentForm};
use super::link::{Answer, ClientLink, Work};
use super::outbox::Outbox;
use super::session::{Sessions, check_session_id};
use super::{LineHandler, Service, Settings, fork, history, lengths, prompt_end, turn};
use crate::metrics::{AcpMeter, Charge};
use crate::offload::offload;
use crate::sync::{Guard, Mutex};
use crate::upstream::{Caller, Until};
use threadway_translate::acp::destination::{Destination, session_in};
use threadway_translate::acp::mcp::NamedServers;
use threadway_translate::acp::method::Method;
use threadway_translate::acp::prompt::AcceptedContent;
use threadway_translate::acp::rpc::{self, Code, Error, Id, Incoming, Malformed};
use threadway_translate::acp::{NoticeForms, PlanForm, StopReason, result_of};
use threadway_translate::json::{self, Json};

/// The most requests in progress. Each prompt is one, and an editor shows a dozen sessions.
pub const MAX_REQUESTS: usize = 256;

/// One client's connection. Clones share it.
#[derive(Clone)]
pub struct Connection {
    link: ClientLink,
    sessions: Sessions,
    /// Requests in progress, by the client's id. Cancelling the token cancels the request.
    requests: Arc<Mutex<HashMap<Id, CancellationToken>>>,
}

// === impl Connection ===

impl Connection {
    /// A connection on which nothing has been sent yet.
    pub fn new(service: Arc<Service>, authentication: Authentication, outbox: Outbox) -> Self {
        Self::metered(service, authentication, outbox, None)
    }

    /// The same, and what happens on it is counted.
    pub(crate) fn counted(
        service: Arc<Service>,
        authentication: Authentication,
        outbox: Outbox,
        meter: AcpMeter,
    ) -> Self {
        Self::metered(service, authentication, outbox, Some(meter))
    }

    fn metered(
        service: Arc<Service>,
        authentication: Authentication,
        outbox: Outbox,
        meter: Option<AcpMeter>,
    ) -> Self {
        let sessions = Sessions::new(meter.clone());
        let link = ClientLink::new(service, authentication, outbox, meter);
        Self { link, sessions, requests: Arc::default() }
    }

    /// A connection whose `initialize` was answered before the upstream was known, with a method of
    /// authentication.
    pub(super) fn continued(
        service: Arc<Service>,
        outbox: Outbox,
        abilities: ClientAbilities,
    ) -> Self {
        let connection = Self::new(service, Authentication::Key, outbox);
        // Both are set only once, and nothing has set them yet.
        let _ = connection.link.initialize(abilities);
        connection.link.note_key(true);
        connection
    }

    /// Handles a line. Returns the work that a request needs; the transport polls it.
    pub fn take(&self, line: &[u8]) -> Option<Work> {
        self.handle(offload(line.len(), || Incoming::parse(line)), None)
    }

    /// Handles a message that was parsed before, as [`take`](Self::take) does. The message is
    /// charged until it is answered.
    pub(crate) fn handle(
        &self,
        incoming: Result<Incoming, Malformed>,
        charge: Option<Charge>,
    ) -> Option<Work> {
        match incoming {
            Ok(Incoming::Request { id, method, params }) => {
                self.request(id, method, params, charge)
            }
            Ok(Incoming::Notification { method, params }) => {
                self.notified(&method, &params);
                None
            }
            Ok(Incoming::Response { id, result }) => {
                self.link.answered(&id, result);
                None
            }
            Err(malformed) => {
                let to = Destination::Connection;
                self.link.respond(to, &malformed.id, &Err(malformed.error));
                None
            }
        }
    }

    /// Sends requests to LangGraph with these headers from now on: those of the caller's newest
    /// request.
    pub fn called_by(&self, caller: Caller) {
        self.link.called_by(caller);
    }

    /// Until when the gateway admits the caller of the newest request.
    pub(crate) fn until(&self) -> Until {
        self.link.caller().until().clone()
    }

    /// Answers a request without handling it, or with [`Id::NULL`] a message that is no request.
    pub fn refuse(&self, id: &Id, error: Error) {
        self.link.respond(Destination::Connection, id, &Err(error));
    }

    /// Whether this session is open.
    pub fn has_session(&self, id: &str) -> bool {
        self.sessions.get(id).is_ok()
    }

    /// Whether the client has sent `initialize`.
    pub fn is_initialized(&self) -> bool {
        self.link.is_initialized()
    }

    /// Whether no request of the client is in progress.
    pub fn is_idle(&self) -> bool {
        self.requests().is_empty()
    }

    /// Answers a line that exceeds the length limit.
    pub fn refuse_line(&self, limit: usize) {
        let message =
            format!("the line is longer than {limit} bytes and was ignored; send shorter messages");
        self.refuse(&Id::NULL, Error::invalid(message));
    }

    /// Reports that the client has disconnected. Prompts end; their runs go on, unless
    /// `on_owner_disconnect` is `cancel`.
    pub fn hang_up(&self) {
        self.link.gone().cancel();
    }

    fn request(
        &self,
        id: Id,
        method: String,
        params: Json,
        charge: Option<Charge>,
    ) -> Option<Work> {
        if let Err(error) = offload(params.get().len(), || lengths::check(&method, &params)) {
            self.refuse(&id, error);
            return None;
        }
        let session = offload(params.get().len(), || session_in(&params));
        let known = Method::of(&method);
        let to = destination(known, session.as_deref());
        // At once, so that requests sent right after `initialize` are accepted.
        let begun = self.expect_acceptable(&id, known).and_then(|()| self.begin(known, &params));
        if let Err(error) = begun {
            self.link.respond(to, &id, &Err(error));
            return None;
        }
        let cancelled = CancellationToken::new();
        self.requests().insert(id.clone(), cancelled.clone());
        let this = self.clone();
        let work = async move {
            let answer = match known {
                Some(known) => this.answer(known, &params, &cancelled).await,
                None => Err(unknown(&method)),
            };
            // What follows an answer may last as long as its session.
            drop((params, charge));
            this.requests().remove(&id);
            let (result, after) = match answer {
                Ok(Answer { result, after }) => (Ok(result), after),
                Err(error) => {
                    tracing::debug!(method, code = ?error.code, reason = error.message, "refused");
                    (Err(error), None)
                }
            };
            let to = destination(known, session.as_deref());
            this.link.respond(to, &id, &result);
            // Also of a session whose thread was deleted.
            if let Some(session) = session.filter(|session| !this.has_session(session)) {
                this.link.close_session(&session);
            }
            if let Some(after) = after {
                this.link.gone().run_until_cancelled(after).await;
            }
        };
        Some(work.boxed())
    }

    /// Refuses a request that cannot be accepted now.
    fn expect_acceptable(&self, id: &Id, method: Option<Method>) -> Result<(), Error> {
        let requests = self.requests();
        if requests.contains_key(id) {
            return Err(Error::invalid(format!(
                "id {id:?} belongs to a request in progress; use another id"
            )));
        }
        if requests.len() >= MAX_REQUESTS {
            let message = format!("{MAX_REQUESTS} requests are in progress; wait for some to end");
            return Err(Error::invalid(message));
        }
        match (method, self.link.is_initialized()) {
            (Some(Method::Initialize), true) => {
                Err(Error::invalid("the connection is initialized already"))
            }
            (Some(Method::Initialize), false) | (_, true) => Ok(()),
            (_, false) => Err(Error::invalid("send `initialize` first")),
        }
    }

    fn notified(&self, method: &str, params: &Json) {
        match Method::of(method) {
            Some(method @ Method::CancelPrompt) => {
                let cancel: Result<CancelNotification, Error> = read(method, params);
                match cancel {
                    Ok(cancel) => {
                        if let Ok(session) = self.sessions.get(&cancel.session_id.0) {
                            session.stop();
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "session/cancel has invalid params and was ignored");
                    }
                }
            }
            Some(Method::CancelRequest) => {
                let members = json::members(params).unwrap_or_default();
                let id = members.get("requestId").and_then(Id::read);
                let requests = self.requests();
                if let Some(request) = id.and_then(|id| requests.get(&id).cloned()) {
                    request.cancel();
                }
            }
            // JSON-RPC has no answer to a notification.
            _ => tracing::debug!(method, "an unknown notification was ignored"),
        }
    }

    async fn answer(
        &self,
        method: Method,
        params: &Json,
        cancelled: &CancellationToken,
    ) -> Result<Answer, Error> {
        if method == Method::Prompt {
            let request: PromptRequest = read(method, params)?;
            let session = self.sessions.get_for_prompt(&request.session_id.0)?;
            let prompt = turn::prompt(&self.link, Arc::clone(&session), &request, cancelled);
            let reason = prompt.await?;
            let cursor =
                (reason == StopReason::Cancelled).then(|| self.link.announce_stopped(&session));
            let follow = self.link.follow(&session);
            let after = async move {
                for work in cursor.into_iter().chain(follow) {
                    work.await;
                }
            };
            return Ok(Answer { result: result_of(reason)?, after: Some(after.boxed()) });
        }
        if method == Method::ForkSession {
            // To its end: a client that cancels it does not learn whether there is a copy.
            let (request, servers) = self.read_opening::<ForkSessionRequest>(method, params)?;
            return Box::pin(fork::fork(&self.link, &self.sessions, request, servers)).await;
        }
        let answered = self.answer_soon(method, params);
        match cancelled.run_until_cancelled(answered).await {
            Some(answer) => answer,
            None => Err(Error::new(Code::Cancelled, "the request was cancelled")),
        }
    }

    async fn answer_soon(&self, method: Method, params: &Json) -> Result<Answer, Error> {
        if method.needs_lists() {
            self.link.expect_lists()?;
        }
        match method {
            Method::Initialize => self.initialize().await.map(Answer::from),
            Method::Authenticate | Method::Logout if !self.has_key_methods() => {
                let message = format!(
                    "`{}` is not offered here: the gateway authenticates each HTTP request",
                    method.name()
                );
                Err(Error::new(Code::MethodNotFound, message))
            }
            Method::Authenticate => {
                let request = read(method, params)?;
                self.link.authenticate(&request).await.map(Answer::from)
            }
            Method::Logout => self.link.logout().map(Answer::from),
            Method::NewSession => {
                let (request, servers) = self.read_opening(method, params)?;
                history::new(&self.link, &self.sessions, request, servers).await
            }
            Method::LoadSession => {
                let (request, servers) = self.read_opening(method, params)?;
                Box::pin(history::load(&self.link, &self.sessions, request, servers)).await
            }
            Method::ResumeSession => {
                let (request, servers) = self.read_opening(method, params)?;
                Box::pin(history::resume(&self.link, &self.sessions, request, servers)).await
            }
            Method::PromptEnd => {
                let request = read(method, params)?;
                let ended = prompt_end::prompt_end(&self.link, &self.sessions, request);
                Box::pin(ended).await.map(Answer::from)
            }
            Method::ListSessions => {
                let request: ListSessionsRequest = read(method, params)?;
                history::list(&self.link, &request).await.map(Answer::from)
            }
            Method::CloseSession => {
                let request: CloseSessionRequest = read(method, params)?;
                check_session_id(&request.session_id.0)?;
                self.close(&request.session_id.0).await;
                Ok(Answer::from(Json::empty_object()))
            }
            Method::DeleteSession => {
                let request: DeleteSessionRequest = read(method, params)?;
                check_session_id(&request.session_id.0)?;
                self.delete(&request.session_id.0).await.map(Answer::from)
            }
            Method::SetMode => {
                let request: SetSessionModeRequest = read(method, params)?;
                let session = self.sessions.get(&request.session_id.0)?;
                self.link.set_mode(session, &request).await
            }
            Method::SetConfigOption => {
                let request: SetSessionConfigOptionRequest = read(method, params)?;
                let session = self.sessions.get(&request.session_id.0)?;
                self.link.set_option(session, &request).await
            }
            // These two have `answer`.
            Method::Prompt
            | Method::ForkSession
            // Sent as requests, these have no meaning.
            | Method::CancelPrompt
            | Method::CancelRequest => Err(unknown(method.name())),
        }
    }

    /// Reads the params of a request that makes or opens a session, and what they give the graph.
    fn read_opening<T: DeserializeOwned>(
        &self,
        method: Method,
        params: &Json,
    ) -> Result<(T, ClientServers), Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Prompted {
            system_prompt: Option<SystemPrompt>,
        }
        let (named, params) = NamedServers::read(params);
        let Prompted { system_prompt } = read(method, &params)?;
        Ok((read(method, &params)?, self.link.servers(&named, system_prompt.as_ref())?))
    }

    // --- the connection ---

    /// Whether a person can give the upstream's key.
    fn has_key_methods(&self) -> bool {
        matches!(self.link.authentication(), Authentication::Key)
    }

    /// Stores the abilities that the client names in `initialize`.
    fn begin(&self, method: Option<Method>, params: &Json) -> Result<(), Error> {
        if method != Some(Method::Initialize) {
            return Ok(());
        }
        self.link.initialize(Self::abilities(params)?)
    }

    /// The abilities that a client names in `initialize`.
    pub(super) fn abilities(params: &Json) -> Result<ClientAbilities, Error> {
        let request: InitializeRequest = read(Method::Initialize, params)?;
        let name = request.client_info.map(|client| client.name);
        tracing::debug!(version = ?request.protocol_version, client = name, "initialize");
        let capabilities = request.client_capabilities;
        let session = capabilities.session.as_ref();
        Ok(ClientAbilities {
            has_forms: capabilities.elicitation.as_ref().is_some_and(|e| e.form.is_some()),
            has_switches: session
                .and_then(|session| session.config_options.as_ref())
                .is_some_and(|options| options.boolean.is_some()),
            notice_forms: NoticeForms {
                compactions: session.is_some_and(|session| session.compaction.is_some()),
                notices: session.is_some_and(|session| session.notices.is_some()),
            },
            plan_form: match capabilities.plan {
                Some(_) => PlanForm::ById,
                None => PlanForm::Only,
            },
            subagent_form: match capabilities.subagents {
                Some(_) => SubagentForm::ChildSessions,
                None => SubagentForm::Calls,
            },
            cursors: match session.and_then(|session| session.cursors.as_ref()) {
                Some(_) => CursorForm::Updates,
                None => CursorForm::None,
            },
            has_terminal_login: capabilities.auth.terminal,
        })
    }

    async fn initialize(&self) -> Result<Json, Error> {
        // Both ask the upstream, and each has its limit.
        let (wants_key, accepts) = tokio::join!(
            async { self.has_key_methods() && self.link.upstream_wants_key().await },
            self.link.default_accepts()
        );
        self.link.note_key(wants_key);
        self.link.note_accepts(accepts);
        let settings = &self.link.service().settings;
        let authentication = self.link.authentication();
        Self::initialized(settings, accepts, wants_key, self.link.auth_methods(), &authentication)
    }

    /// The response to `initialize`.
    pub(super) fn initialized(
        settings: &Settings,
        accepts: AcceptedContent,
        has_logout: bool,
        auth_methods: Vec<AuthMethod>,
        authentication: &Authentication,
    ) -> Result<Json, Error> {
        let has_mcp = settings.mcp_key.is_some();
        let lists = authentication.session_lists() == SessionLists::Allowed;
        let replacing = SessionSystemPromptOverrideCapabilities::new();
        let prompt_modes = SessionSystemPromptModeCapabilities::new().override_(replacing);
        let system_prompt = SessionSystemPromptCapabilities::new().mode(prompt_modes);
        let has_system_prompt = settings.system_prompt_key.is_some();
        let agent = AgentCapabilities::new()
            .load_session(true)
            .prompt_capabilities(
                PromptCapabilities::new()
                    .image(accepts.image)
                    .audio(accepts.audio)
                    .embedded_context(accepts.embedded_context),
            )
            .mcp_capabilities(McpCapabilities::new().http(has_mcp).sse(has_mcp))
            .session_capabilities(
                SessionCapabilities::new()
                    .list(lists.then(SessionListCapabilities::new))
                    .delete(lists.then(SessionDeleteCapabilities::new))
                    .additional_directories(SessionAdditionalDirectoriesCapabilities::new())
                    .resume(SessionResumeCapabilities::new())
                    .fork(SessionForkCapabilities::new())
                    .system_prompt(has_system_prompt.then_some(system_prompt))
                    .close(SessionCloseCapabilities::new()),
            );
        let logout = has_logout.then(LogoutCapabilities::new);
        let agent = agent
            .auth(AgentAuthCapabilities::new().logout(logout))
            .meta(prompt_end::capability(authentication.message_bytes()));
        // The latest version that the gateway speaks, whatever version the client asks for.
        let response = InitializeResponse::new(ProtocolVersion::V1)
            .agent_capabilities(agent)
            .auth_methods(auth_methods)
            .agent_info(
                Implementation::new("threadway", env!("CARGO_PKG_VERSION"))
                    .title("threadway".to_owned()),
            );
        rpc::result(&response)
    }

    // --- sessions ---

    /// Cancels the session's work as `session/cancel` does, and then frees its resources. Does
    /// nothing if the session is not open.
    async fn close(&self, id: &str) {
        if let Some(session) = self.sessions.remove(id) {
            session.stop();
            session.detach();
            session.prompts.wait_until_none().await;
        }
    }

    async fn delete(&self, id: &str) -> Result<Json, Error> {
        self.close(id).await;
        let upstream = self.link.upstream();
        upstream.delete_thread(id).await.map_err(|error| self.link.failed(&error))?;
        Ok(Json::empty_object())
    }

    fn requests(&self) -> Guard<'_, HashMap<Id, CancellationToken>> {
        self.requests.lock()
    }
}

/// Reads the params of a request.
fn read<T: DeserializeOwned>(method: Method, params: &Json) -> Result<T, Error> {
    offload(params.get().len(), || rpc::params(method.name(), params))
}

fn unknown(method: &str) -> Error {
    Error::new(Code::MethodNotFound, format!("unknown method `{method}`"))
}

/// Where the answer to a request belongs.
fn destination(method: Option<Method>, session: Option<&str>) -> Destination<'_> {
    match method {
        Some(method) => method.destination(session),
        None => session.map_or(Destination::Connection, Destination::Answer),
    }
}

impl LineHandler for Connection {
    fn take(&self, line: &[u8]) -> Option<Work> {
        self.take(line)
    }

    fn refuse_line(&self, limit: usize) {
        self.refuse_line(limit);
    }

    fn hang_up(&self) {
        self.hang_up();
    }

    fn service(&self) -> Option<Arc<Service>> {
        Some(Arc::clone(self.link.service()))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("link", &self.link).finish_non_exhaustive()
    }
}
