//! One client: what it may ask, in which order, and what becomes of each request.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    AgentAuthCapabilities, AgentCapabilities, AuthMethod, AuthMethodAgent, AuthMethodTerminal,
    AuthenticateRequest, CancelNotification, CloseSessionRequest, DeleteSessionRequest,
    Implementation, InitializeRequest, InitializeResponse, ListSessionsRequest, LogoutCapabilities,
    McpCapabilities, PromptCapabilities, PromptRequest, SessionCapabilities,
    SessionCloseCapabilities, SessionConfigOptionValue, SessionDeleteCapabilities,
    SessionListCapabilities, SessionResumeCapabilities, SetSessionConfigOptionRequest,
    SetSessionModeRequest,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::asking::Asking;
use super::outbox::Outbox;
use super::session::{Desk, Session};
use super::{Service, history};
use crate::acp::choice::{Choices, Value};
use crate::acp::rpc::{self, Code, Error, Id, Incoming};
use crate::acp::{self, Update};
use crate::json::{self, Json, ObjectWriter};
use crate::runs::OwnerPolicy;
use crate::upstream;

/// How many requests may be under way: each prompt is one, and an editor shows a dozen sessions.
pub const MAX_REQUESTS: usize = 256;

/// How many sessions may be open here. Each keeps what its client was told of each message.
pub const MAX_SESSIONS: usize = 256;

/// How long the upstream may take to say whether it wants a key: a client waits for `initialize`.
const KEY_PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The way to authenticate.
pub(super) const API_KEY: &str = "api-key";

/// One client's connection. Clones share it.
#[derive(Clone)]
pub struct Connection(Arc<Inner>);

struct Inner {
    service: Arc<Service>,
    outbox: Outbox,
    asking: Asking,
    client: OnceLock<ClientAbilities>,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    /// What is under way, by the client's id of it: each can be taken back.
    requests: Mutex<HashMap<Id, CancellationToken>>,
    /// Whether the upstream wants a key that the person has to give.
    wants_key: OnceLock<bool>,
    /// Cancelled when the client is gone.
    gone: CancellationToken,
}

/// What a client can do that we make use of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClientAbilities {
    /// It shows forms.
    pub(super) has_forms: bool,
    /// It shows switches.
    pub(super) has_switches: bool,
    /// It runs our binary for a person to log in.
    pub(super) has_terminal_login: bool,
}

/// What is to be done for a request; the transport polls it.
pub type Work = BoxFuture<'static, ()>;

/// What came of a request, and what is to be done after the response was given.
pub(super) struct Answer {
    pub(super) result: Json,
    pub(super) after: Option<Work>,
}

// === impl Connection ===

impl Connection {
    /// A client that has not said anything yet.
    pub fn new(service: Arc<Service>, outbox: Outbox) -> Self {
        Self(Arc::new(Inner {
            service,
            asking: Asking::new(outbox.clone()),
            outbox,
            client: OnceLock::new(),
            sessions: Mutex::default(),
            requests: Mutex::default(),
            wants_key: OnceLock::new(),
            gone: CancellationToken::new(),
        }))
    }

    /// Takes a line in; what is to be done for it, if it asks something.
    pub fn take(&self, line: &[u8]) -> Option<Work> {
        match Incoming::parse(line) {
            Ok(Incoming::Request { id, method, params }) => self.request(id, method, params),
            Ok(Incoming::Notification { method, params }) => {
                self.notified(&method, &params);
                None
            }
            Ok(Incoming::Response { id, result }) => {
                self.0.asking.answer(&id, result);
                None
            }
            Err(malformed) => {
                self.respond(&malformed.id, &Err(malformed.error));
                None
            }
        }
    }

    /// Refuses a line that was too long to be read.
    pub fn refuse_line(&self, limit: usize) {
        let message = format!("a line is longer than {limit} bytes; it was passed over");
        self.respond(&Id::NULL, &Err(Error::invalid(message)));
    }

    /// The client is gone: prompts end, and their runs go on unless the operator says otherwise.
    pub fn hang_up(&self) {
        self.0.gone.cancel();
    }

    pub(super) fn service(&self) -> &Arc<Service> {
        &self.0.service
    }

    pub(super) fn client(&self) -> ClientAbilities {
        self.0.client.get().copied().unwrap_or_default()
    }

    /// Whether runs are to be stopped because the client is gone.
    pub(super) fn stops_runs(&self) -> bool {
        self.0.gone.is_cancelled() && matches!(self.0.service.owners, OwnerPolicy::Cancel { .. })
    }

    pub(super) fn gone(&self) -> &CancellationToken {
        &self.0.gone
    }

    pub(super) fn outbox(&self) -> &Outbox {
        &self.0.outbox
    }

    /// Asks the client.
    pub(super) async fn ask(&self, method: &str, params: &impl Serialize) -> Result<Json, Error> {
        self.0.asking.ask(method, params).await
    }

    /// Sends the updates of a session that are given out meanwhile.
    pub(super) fn emit<T>(
        &self,
        session: &Session,
        give: impl FnOnce(&mut dyn FnMut(&Update<'_>)) -> T,
    ) -> T {
        self.0
            .outbox
            .put(|out| give(&mut |update: &Update<'_>| acp::notification(&session.id, update, out)))
    }

    /// Sends lines.
    pub(super) fn tell(&self, lines: &[u8]) {
        if !lines.is_empty() {
            self.0.outbox.put(|out| out.extend_from_slice(lines));
        }
    }

    /// Sends one update.
    pub(super) fn update(&self, session_id: &str, update: &Update<'_>) {
        self.0.outbox.put(|out| acp::notification(session_id, update, out));
    }

    fn respond(&self, id: &Id, result: &Result<Json, Error>) {
        let line = rpc::response(id, result);
        self.tell(line.as_bytes());
    }

    fn request(&self, id: Id, method: String, params: Json) -> Option<Work> {
        if let Some(refusal) = self.refusal(&id, &method) {
            self.respond(&id, &Err(refusal));
            return None;
        }
        // At once, so that what the client sends behind it is taken.
        if let Err(error) = self.begin(&method, &params) {
            self.respond(&id, &Err(error));
            return None;
        }
        let taken_back = CancellationToken::new();
        self.requests().insert(id.clone(), taken_back.clone());
        let this = self.clone();
        let work = async move {
            let answer = this.answer(&method, &params, &taken_back).await;
            this.requests().remove(&id);
            let (result, after) = match answer {
                Ok(Answer { result, after }) => (Ok(result), after),
                Err(error) => {
                    tracing::debug!(method, code = ?error.code, reason = error.message, "refused");
                    (Err(error), None)
                }
            };
            this.respond(&id, &result);
            if let Some(after) = after {
                this.0.gone.run_until_cancelled(after).await;
            }
        };
        Some(work.boxed())
    }

    /// Why a request cannot be taken now.
    fn refusal(&self, id: &Id, method: &str) -> Option<Error> {
        let requests = self.requests();
        if requests.contains_key(id) {
            return Some(Error::invalid(format!(
                "id {id:?} is that of a request which is under way"
            )));
        }
        if requests.len() >= MAX_REQUESTS {
            let message = format!("{MAX_REQUESTS} requests are under way; wait for some to end");
            return Some(Error::invalid(message));
        }
        match (method, self.0.client.get()) {
            ("initialize", Some(_)) => {
                Some(Error::invalid("the connection is initialized already"))
            }
            ("initialize", None) | (_, Some(_)) => None,
            (_, None) => Some(Error::invalid("send `initialize` first")),
        }
    }

    fn notified(&self, method: &str, params: &Json) {
        match method {
            "session/cancel" => {
                let cancel: Result<CancelNotification, Error> = rpc::params(method, params);
                match cancel {
                    Ok(cancel) => {
                        if let Ok(session) = self.session(&cancel.session_id.0) {
                            session.stop();
                        }
                    }
                    Err(error) => tracing::warn!(%error, "a cancel was not understood"),
                }
            }
            "$/cancel_request" => {
                let members = json::members(params).unwrap_or_default();
                let id = members.get("requestId").and_then(Id::read);
                let requests = self.requests();
                if let Some(request) = id.and_then(|id| requests.get(&id).cloned()) {
                    request.cancel();
                }
            }
            // "Unknown notifications are ignored."
            _ => tracing::debug!(method, "an unknown notification was passed over"),
        }
    }

    async fn answer(
        &self,
        method: &str,
        params: &Json,
        taken_back: &CancellationToken,
    ) -> Result<Answer, Error> {
        if method == "session/prompt" {
            let request: PromptRequest = rpc::params(method, params)?;
            return self.prompt(&request, taken_back).await.map(Answer::from);
        }
        let answered = self.answer_soon(method, params);
        match taken_back.run_until_cancelled(answered).await {
            Some(answer) => answer,
            None => Err(Error::new(Code::Cancelled, "the request was taken back")),
        }
    }

    async fn answer_soon(&self, method: &str, params: &Json) -> Result<Answer, Error> {
        match method {
            "initialize" => self.initialize().await.map(Answer::from),
            "authenticate" => {
                self.authenticate(&rpc::params(method, params)?).await.map(Answer::from)
            }
            "logout" => self.logout().map(Answer::from),
            "session/new" => history::new(self, rpc::params(method, params)?).await,
            "session/load" => history::load(self, rpc::params(method, params)?).await,
            "session/resume" => history::resume(self, rpc::params(method, params)?).await,
            "session/list" => {
                let request: ListSessionsRequest = rpc::params(method, params)?;
                history::list(self, &request).await.map(Answer::from)
            }
            "session/close" => {
                let request: CloseSessionRequest = rpc::params(method, params)?;
                self.close(&request.session_id.0).await;
                Ok(Answer::from(Json::empty_object()))
            }
            "session/delete" => {
                let request: DeleteSessionRequest = rpc::params(method, params)?;
                self.delete(&request.session_id.0).await.map(Answer::from)
            }
            "session/set_mode" => {
                let request: SetSessionModeRequest = rpc::params(method, params)?;
                self.set_mode(&request).await
            }
            "session/set_config_option" => {
                let request: SetSessionConfigOptionRequest = rpc::params(method, params)?;
                self.set_option(&request).await
            }
            _ => Err(Error::new(Code::MethodNotFound, format!("there is no method `{method}`"))),
        }
    }

    // --- the connection ---

    /// Takes in what a client says of itself.
    fn begin(&self, method: &str, params: &Json) -> Result<(), Error> {
        if method != "initialize" {
            return Ok(());
        }
        let request: InitializeRequest = rpc::params(method, params)?;
        let name = request.client_info.map(|client| client.name);
        tracing::debug!(version = ?request.protocol_version, client = name, "initialize");
        let capabilities = request.client_capabilities;
        let session = capabilities.session.as_ref();
        let abilities = ClientAbilities {
            has_forms: capabilities.elicitation.as_ref().is_some_and(|e| e.form.is_some()),
            has_switches: session
                .and_then(|session| session.config_options.as_ref())
                .is_some_and(|options| options.boolean.is_some()),
            has_terminal_login: capabilities.auth.terminal,
        };
        let again = || Error::invalid("the connection is initialized already");
        self.0.client.set(abilities).map_err(|_| again())
    }

    async fn initialize(&self) -> Result<Json, Error> {
        let wants_key = self.upstream_wants_key().await;
        let _ = self.0.wants_key.set(wants_key);
        let settings = &self.0.service.settings;
        let accepts = settings.accepts;
        let has_mcp = settings.mcp_key.is_some();
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
                    .list(SessionListCapabilities::new())
                    .delete(SessionDeleteCapabilities::new())
                    .resume(SessionResumeCapabilities::new())
                    .close(SessionCloseCapabilities::new()),
            );
        let logout = wants_key.then(LogoutCapabilities::new);
        let agent = agent.auth(AgentAuthCapabilities::new().logout(logout));
        // "The agent answers with its latest version if it does not speak the one requested."
        let response = InitializeResponse::new(ProtocolVersion::V1)
            .agent_capabilities(agent)
            .auth_methods(self.auth_methods())
            .agent_info(
                Implementation::new("threadway", env!("CARGO_PKG_VERSION"))
                    .title("threadway".to_owned()),
            );
        rpc::result(&response)
    }

    fn auth_methods(&self) -> Vec<AuthMethod> {
        if !self.wants_key() {
            return Vec::new();
        }
        let name = "LangGraph API key";
        let server = self.0.service.upstream.client.base();
        if self.client().has_terminal_login {
            let method = AuthMethodTerminal::new(API_KEY, name)
                .description(format!("Type the key of {server}"))
                .args(vec!["--login".to_owned()]);
            return vec![AuthMethod::Terminal(method)];
        }
        let method = AuthMethodAgent::new(API_KEY, name).description(format!(
            "Run `threadway acp --upstream {server} --login` in a terminal once, or set \
             THREADWAY_UPSTREAM_API_KEY in the editor's settings of this agent"
        ));
        vec![AuthMethod::Agent(method)]
    }

    /// Whether the upstream turns us away; one that does not answer is not known to.
    async fn upstream_wants_key(&self) -> bool {
        let listed = self.0.service.upstream.client.assistants(None);
        match tokio::time::timeout(KEY_PROBE_TIMEOUT, listed).await {
            Ok(Err(error)) => error.is_unauthorized(),
            Ok(Ok(_)) => self.0.service.credentials.has_key(),
            Err(_) => false,
        }
    }

    fn wants_key(&self) -> bool {
        self.0.wants_key.get().copied().unwrap_or(false)
    }

    async fn authenticate(&self, request: &AuthenticateRequest) -> Result<Json, Error> {
        if !self.wants_key() || &*request.method_id.0 != API_KEY {
            let message = format!(
                "there is no way `{}` to authenticate; initialize names those that there are",
                request.method_id.0
            );
            return Err(Error::new(Code::InvalidParams, message));
        }
        let upstream = &self.0.service.upstream.client;
        if let Some(key) = self.0.service.credentials.key() {
            upstream.use_key(Some(key));
        }
        upstream.assistants(None).await.map_err(|error| self.failed(&error))?;
        Ok(Json::empty_object())
    }

    fn logout(&self) -> Result<Json, Error> {
        self.0.service.credentials.forget().map_err(|error| Error::internal(error.to_string()))?;
        self.0.service.upstream.client.use_key(None);
        Ok(Json::empty_object())
    }

    /// Why the upstream did not do what was needed, for the person at the editor.
    pub(super) fn failed(&self, error: &upstream::Error) -> Error {
        if error.is_unauthorized() && self.wants_key() {
            let server = self.0.service.upstream.client.base();
            let message = format!("{server} wants an API key; run `threadway acp --login`");
            return Error::new(Code::AuthRequired, message);
        }
        if error.is_thread_busy() {
            return Error::internal("the thread has a run that is not over; wait for its end");
        }
        Error::internal(error.to_string())
    }

    // --- sessions ---

    /// A session that is open here.
    pub(super) fn session(&self, id: &str) -> Result<Arc<Session>, Error> {
        self.sessions().get(id).cloned().ok_or_else(|| unknown_session(id))
    }

    /// Opens a session, in place of one of the same thread that no prompt is at.
    pub(super) fn open(&self, session: Arc<Session>) -> Result<(), Error> {
        let mut sessions = self.sessions();
        match sessions.get(&session.id) {
            Some(open) if open.is_prompted() => {
                let message =
                    format!("session {} is busy with a prompt; cancel it first", session.id);
                return Err(Error::invalid(message));
            }
            Some(open) => open.leave(),
            None if sessions.len() >= MAX_SESSIONS => {
                let message = format!("{MAX_SESSIONS} sessions are open; close some");
                return Err(Error::invalid(message));
            }
            None => {}
        }
        sessions.insert(session.id.clone(), session);
        Ok(())
    }

    /// "The agent must cancel any ongoing work as if `session/cancel` was called, then free up any
    /// resources". A session that is not open is closed.
    async fn close(&self, id: &str) {
        let closed = self.sessions().remove(id);
        if let Some(session) = closed {
            session.stop();
            session.leave();
            session.at_rest().await;
        }
    }

    async fn delete(&self, id: &str) -> Result<Json, Error> {
        self.close(id).await;
        let upstream = &self.0.service.upstream.client;
        upstream.delete_thread(id).await.map_err(|error| self.failed(&error))?;
        Ok(Json::empty_object())
    }

    async fn set_mode(&self, request: &SetSessionModeRequest) -> Result<Answer, Error> {
        let session = self.session(&request.session_id.0)?;
        let mut desk = session.desk.lock().await;
        let mut choices = desk.kept.choices.clone();
        desk.menu.choose_mode(&mut choices, &request.mode_id.0)?;
        self.take_choices(&session, &mut desk, choices).await?;
        drop(desk);
        let this = self.clone();
        // The options say the same thing.
        let after = async move {
            let desk = session.desk.lock().await;
            let options = desk.menu.options(&desk.kept.choices, this.client().has_switches);
            this.update(&session.id, &Update::ConfigOptionUpdate { config_options: &options });
        };
        Ok(Answer { result: Json::empty_object(), after: Some(after.boxed()) })
    }

    async fn set_option(&self, request: &SetSessionConfigOptionRequest) -> Result<Answer, Error> {
        let session = self.session(&request.session_id.0)?;
        let mut desk = session.desk.lock().await;
        let mut choices = desk.kept.choices.clone();
        let value = match &request.value {
            SessionConfigOptionValue::Boolean { value } => Value::Switch(*value),
            SessionConfigOptionValue::ValueId { value } => Value::Id(&value.0),
            _ => return Err(Error::new(Code::InvalidParams, "a value of this kind is not known")),
        };
        desk.menu.choose(&mut choices, &request.config_id.0, &value)?;
        let mode = choices.mode.clone().filter(|_| choices.mode != desk.kept.choices.mode);
        self.take_choices(&session, &mut desk, choices).await?;
        let options = desk.menu.options(&desk.kept.choices, self.client().has_switches);
        drop(desk);
        let result = ObjectWriter::new().raw("configOptions", options.get()).finish();
        let this = self.clone();
        let after = mode.map(|mode| {
            async move {
                this.update(&session.id, &Update::CurrentModeUpdate { current_mode_id: &mode });
            }
            .boxed()
        });
        Ok(Answer { result, after })
    }

    /// Takes a choice, and keeps it with the thread.
    async fn take_choices(
        &self,
        session: &Session,
        desk: &mut Desk,
        choices: Choices,
    ) -> Result<(), Error> {
        if choices.assistant != desk.kept.choices.assistant {
            // Another graph has other settings.
            desk.menu.fields = self.fields_of(&choices.assistant).await?;
        }
        desk.kept.choices = choices;
        self.keep(session, desk).await;
        Ok(())
    }

    /// Writes what a session keeps into its thread's metadata. What cannot be written holds here
    /// for as long as we live, and is tried again with the next.
    pub(super) async fn keep(&self, session: &Session, desk: &mut Desk) {
        let metadata = desk.kept.write();
        // Who is stopped while it waits has kept nothing.
        desk.is_kept = false;
        let upstream = &self.0.service.upstream.client;
        match upstream.change_thread(&session.id, &metadata).await {
            Ok(is_there) => desk.is_kept = is_there,
            Err(error) => {
                tracing::warn!(session_id = session.id, %error, "a session's metadata were not kept");
            }
        }
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.0.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn requests(&self) -> MutexGuard<'_, HashMap<Id, CancellationToken>> {
        self.0.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `-32002`: "resource not found".
pub(super) fn unknown_session(id: &str) -> Error {
    let message = format!("there is no session `{id}` here; load or resume it, or make a new one");
    Error::new(Code::NotFound, message)
}

/// "`cwd` MUST be an absolute path."
pub(super) fn absolute(cwd: &Path) -> Result<String, Error> {
    let text = cwd.to_string_lossy();
    // An editor on Windows may run us elsewhere: its paths are no paths here.
    let is_drive = text.as_bytes().get(1) == Some(&b':');
    if cwd.is_absolute() || is_drive {
        return Ok(text.into_owned());
    }
    Err(Error::new(Code::InvalidParams, format!("cwd `{text}` is not an absolute path")))
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("outbox", &self.0.outbox).finish_non_exhaustive()
    }
}

// === impl Answer ===

impl From<Json> for Answer {
    fn from(result: Json) -> Self {
        Self { result, after: None }
    }
}
