//! One client as the request handlers see it: its abilities, how to send it something, and the
//! shared service.

use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{fmt, iter};

use futures_util::future::BoxFuture;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::Service;
use super::authentication::{Authentication, SessionLists};
use super::client::ClientAbilities;
use super::client_requests::ClientRequests;
use super::default_agent::NoSuchAgent;
use super::outbox::Outbox;
use super::position::Position;
use super::session::Session;
use crate::agents::Upstream;
use crate::metrics::AcpMeter;
use crate::runs::{Batch, OwnerPolicy};
use crate::sync::Mutex;
use crate::threads::Refusal;
use crate::upstream::{self, Caller};
use threadway_translate::acp::destination::Destination;
use threadway_translate::acp::prompt::AcceptedContent;
use threadway_translate::acp::rpc::{self, Code, Error, Id};
use threadway_translate::acp::{self, Update};
use threadway_translate::json::Json;
use threadway_translate::run::{ErrorDetail, RunEvent};

/// One client. Clones share it.
#[derive(Clone)]
pub(super) struct ClientLink(Arc<Inner>);

struct Inner {
    service: Arc<Service>,
    authentication: Mutex<Authentication>,
    outbox: Outbox,
    asking: ClientRequests,
    /// `None` if nobody can read what is counted: over stdio.
    meter: Option<AcpMeter>,
    client: OnceLock<ClientAbilities>,
    /// Whether the upstream requires a key that the person has to give.
    wants_key: OnceLock<bool>,
    /// What `initialize` has said that prompts may hold. Unset for a connection whose `initialize`
    /// was answered before the upstream was known.
    accepts: OnceLock<AcceptedContent>,
    /// Cancelled when the client has disconnected.
    gone: CancellationToken,
}

/// The work for one request. The transport polls it.
pub type Work = BoxFuture<'static, ()>;

/// The result of a request, and work to do after the response.
pub(super) struct Answer {
    pub(super) result: Json,
    pub(super) after: Option<Work>,
}

// === impl ClientLink ===

impl ClientLink {
    pub(super) fn new(
        service: Arc<Service>,
        authentication: Authentication,
        outbox: Outbox,
        meter: Option<AcpMeter>,
    ) -> Self {
        Self(Arc::new(Inner {
            service,
            authentication: Mutex::new(authentication),
            asking: ClientRequests::new(outbox.clone()),
            outbox,
            meter,
            client: OnceLock::new(),
            wants_key: OnceLock::new(),
            accepts: OnceLock::new(),
            gone: CancellationToken::new(),
        }))
    }

    /// Whether the client has sent `initialize`.
    pub(super) fn is_initialized(&self) -> bool {
        self.0.client.get().is_some()
    }

    /// Stores the client's abilities. Fails the second time.
    pub(super) fn initialize(&self, abilities: ClientAbilities) -> Result<(), Error> {
        let again = |_| Error::invalid("the connection is initialized already");
        self.0.client.set(abilities).map_err(again)
    }

    pub(super) fn service(&self) -> &Arc<Service> {
        &self.0.service
    }

    /// Replaces the caller's headers by those of its newest request: a token may be a newer one.
    pub(super) fn called_by(&self, newest: Caller) {
        match &mut *self.0.authentication.lock() {
            Authentication::Key => {}
            Authentication::Caller { caller, .. } => *caller = newest,
        }
    }

    /// As whom requests are sent to LangGraph.
    pub(super) fn authentication(&self) -> Authentication {
        self.0.authentication.lock().clone()
    }

    pub(super) fn caller(&self) -> Caller {
        self.authentication().caller()
    }

    /// The upstream, for the connection's caller.
    pub(super) fn upstream(&self) -> upstream::Client {
        self.service().upstream.client.called_by(&self.caller())
    }

    /// The upstream with its name, for the connection's caller.
    pub(super) fn server(&self) -> Upstream {
        Upstream { client: self.upstream(), ..self.service().upstream.clone() }
    }

    /// An agent for new sessions that does not exist.
    pub(super) fn no_agent(&self, error: &NoSuchAgent) -> Error {
        match self.authentication() {
            Authentication::Key => Error::internal(error.to_string()),
            Authentication::Caller { .. } => Error::internal(
                "LangGraph shows none of the agents for new sessions with these credentials; send \
                 others, or have the gateway's operator correct `acp.agent`",
            ),
        }
    }

    /// Refuses a client that may not list and delete sessions.
    pub(super) fn expect_lists(&self) -> Result<(), Error> {
        match self.authentication().session_lists() {
            SessionLists::Allowed => Ok(()),
            SessionLists::Refused => Err(Error::new(
                Code::MethodNotFound,
                "this gateway lists and deletes no sessions: LangGraph cannot distinguish its \
                 callers, or `thread_routes` is off; load a session by its id",
            )),
        }
    }

    pub(super) fn client(&self) -> ClientAbilities {
        self.0.client.get().copied().unwrap_or_default()
    }

    /// Whether runs are stopped because the client has disconnected.
    pub(super) fn stops_runs(&self) -> bool {
        self.0.gone.is_cancelled() && matches!(self.0.service.owners, OwnerPolicy::Cancel { .. })
    }

    pub(super) fn gone(&self) -> &CancellationToken {
        &self.0.gone
    }

    /// Waits until there is room for updates of a session.
    pub(super) async fn wait_for_room(&self, session: &Session) {
        self.0.outbox.wait_for_room(Destination::Session(&session.id)).await;
    }

    /// Frees what a session held that was closed.
    pub(super) fn close_session(&self, id: &str) {
        self.0.outbox.close_session(id);
    }

    /// Sends a request to the client about a session, and waits for the answer.
    pub(super) async fn ask(
        &self,
        session: &Session,
        method: &str,
        params: &impl Serialize,
    ) -> Result<Json, Error> {
        self.0.asking.ask(&session.id, method, params).await
    }

    /// Sends updates of a session that are written as lines.
    fn put_updates(&self, session: &Session, count: u64, mut lines: Vec<u8>) {
        if count > 0 {
            self.0.outbox.put(Destination::Session(&session.id), |out| out.append(&mut lines));
        }
        self.count_updates(count);
    }

    /// Whether the client is sent event ids. A client over stdio cannot lose its connection alone.
    fn has_event_ids(&self) -> bool {
        matches!(self.authentication(), Authentication::Caller { .. })
    }

    fn write(
        &self,
        session: &Session,
        position: &mut Position,
        update: &Update<'_>,
        lines: &mut Vec<u8>,
    ) {
        let id = position.id().filter(|_| self.has_event_ids());
        position.is_known |= id.is_some();
        acp::notification_with_id(&session.id, update, id.as_deref(), lines);
    }

    /// Sends the updates that `project` makes of the events and `is_sent` accepts, except for those
    /// that the client has.
    pub(super) fn emit_events(
        &self,
        session: &Session,
        events: &Batch,
        is_sent: impl Fn(&Update<'_>) -> bool,
        mut project: impl FnMut(&RunEvent, &mut dyn FnMut(&Update<'_>)),
    ) {
        let mut position = session.position();
        let (mut count, mut lines) = (0, Vec::new());
        for (at, (event, key)) in events.with_keys().enumerate() {
            position.begin(event, key);
            let held = match at.cmp(&events.delivered()) {
                std::cmp::Ordering::Less => u32::MAX,
                std::cmp::Ordering::Equal => events.delivered_wire_events(),
                std::cmp::Ordering::Greater => 0,
            };
            let mut made = 0_u32;
            project(event, &mut |update: &Update<'_>| {
                made = made.saturating_add(1);
                position.made(made);
                if made > held && is_sent(update) {
                    count += 1;
                    self.write(session, &mut position, update, &mut lines);
                }
            });
            position.end(key);
        }
        if let Some(key) = events.includes() {
            (position.key, position.sent, position.is_known) = (Some(key), 0, false);
        }
        session.set_position(position);
        self.put_updates(session, count, lines);
    }

    /// Sends the updates that `give` produces. They follow the newest event.
    pub(super) fn emit<T>(
        &self,
        session: &Session,
        give: impl FnOnce(&mut dyn FnMut(&Update<'_>)) -> T,
    ) -> T {
        let mut position = session.position();
        // Written before the outbox is locked: a thread's history may be large.
        let (mut count, mut lines) = (0, Vec::new());
        let given = give(&mut |update: &Update<'_>| {
            let is_held = position.follow() <= position.held;
            // A change of a call may be sent twice, and another one than before may be due.
            if !is_held || matches!(update, Update::ToolCallUpdate(_)) {
                count += 1;
                self.write(session, &mut position, update, &mut lines);
            }
        });
        session.set_position(position);
        self.put_updates(session, count, lines);
        given
    }

    /// Sends the id of the client's position by an update that changes nothing, unless the client
    /// has it. So a client that comes back after the end of a run has the id of the end.
    pub(super) fn emit_position(&self, session: &Session) {
        let mut position = session.position();
        if position.is_known || position.id().is_none() || !self.has_event_ids() {
            return;
        }
        let mut lines = Vec::new();
        let update = Update::SessionInfoUpdate { title: None, updated_at: None };
        self.write(session, &mut position, &update, &mut lines);
        session.set_position(position);
        self.put_updates(session, 1, lines);
    }

    fn count_updates(&self, count: u64) {
        if let Some(meter) = self.meter() {
            meter.updates(count);
        }
    }

    /// Counts what happens on the connection.
    pub(super) fn meter(&self) -> Option<&AcpMeter> {
        self.0.meter.as_ref()
    }

    pub(super) fn update(&self, session_id: &str, update: &Update<'_>) {
        self.count_updates(1);
        let to = Destination::Session(session_id);
        self.0.outbox.put(to, |out| acp::notification(session_id, update, out));
    }

    pub(super) fn respond(&self, to: Destination<'_>, id: &Id, result: &Result<Json, Error>) {
        let line = rpc::response(id, result);
        self.0.outbox.put(to, |out| out.extend_from_slice(line.as_bytes()));
    }

    /// Passes on the client's answer to a request.
    pub(super) fn answered(&self, id: &Id, result: Result<Json, Error>) {
        self.0.asking.answer(id, result);
    }

    /// Whether the person has to give the upstream's key.
    pub(super) fn wants_key(&self) -> bool {
        self.0.wants_key.get().copied().unwrap_or(false)
    }

    pub(super) fn note_key(&self, wants_key: bool) {
        // A connection is initialized only once.
        let _ = self.0.wants_key.set(wants_key);
    }

    /// What prompts may hold, as `initialize` has announced it.
    pub(super) fn accepts(&self) -> AcceptedContent {
        self.0.accepts.get().copied().unwrap_or_default()
    }

    pub(super) fn note_accepts(&self, accepts: AcceptedContent) {
        // A connection is initialized only once.
        let _ = self.0.accepts.set(accepts);
    }

    /// The URL of the upstream's server, for the person at the editor. A remote caller does not
    /// learn it.
    pub(super) fn server_url(&self) -> Option<String> {
        match self.authentication() {
            Authentication::Key => Some(self.service().upstream.client.base().to_string()),
            Authentication::Caller { .. } => None,
        }
    }

    /// An upstream error as an ACP error, for the person at the editor.
    pub(super) fn failed(&self, error: &upstream::Error) -> Error {
        if matches!(self.authentication(), Authentication::Caller { .. }) {
            return self.failed_for_caller(error);
        }
        let server = self.0.service.upstream.client.base();
        let correct = self.0.service.credentials.correction();
        match error {
            upstream::Error::Unreachable { reason } => {
                let reason = short_reason(reason);
                return Error::internal(format!(
                    "{server} does not answer ({reason}): start the LangGraph server there, or \
                     {correct}"
                ));
            }
            upstream::Error::Timeout { waited } => {
                return Error::internal(format!(
                    "{server} did not answer within {} s: look at the log of the LangGraph server \
                     there, or {correct}",
                    waited.as_secs()
                ));
            }
            upstream::Error::Status { code: code @ (401 | 403), detail, .. } => {
                let reason = if detail.is_empty() { String::new() } else { format!(" ({detail})") };
                let login = self.0.service.credentials.login_command();
                let message = format!(
                    "{server} answered {code}{reason}: run `{login}` in a terminal, or set \
                     THREADWAY_UPSTREAM_API_KEY to a key that it accepts"
                );
                // Only then the client offers the method that asks for the key.
                return if self.wants_key() {
                    Error::new(Code::AuthRequired, message)
                } else {
                    Error::internal(message)
                };
            }
            upstream::Error::Status { .. }
            | upstream::Error::Unproven
            | upstream::Error::Crowded
            | upstream::Error::NotAnEventStream { .. }
            | upstream::Error::NotUnderstood { .. }
            | upstream::Error::TooLarge { .. }
            | upstream::Error::NoRoom(_)
            | upstream::Error::Interrupted { .. } => {}
        }
        match error.retry_after() {
            Some(wait) => Error::internal(format!("{}; {}", error.explained(), try_again(wait))),
            None => Error::internal(error.explained()),
        }
    }

    /// An upstream error as a remote caller sees it: without the upstream's URL, and without what
    /// only the operator can act on.
    fn failed_for_caller(&self, error: &upstream::Error) -> Error {
        let what = match self.service().error_detail {
            ErrorDetail::Full => error.explained(),
            ErrorDetail::Message | ErrorDetail::Code | ErrorDetail::None => error.to_string(),
        };
        let is_personal = self.caller().is_personal();
        match error {
            upstream::Error::Status { code: 401, .. } if is_personal => {
                let message = "LangGraph does not accept these credentials; connect with others";
                Error::new(Code::AuthRequired, message)
            }
            upstream::Error::Status { code: 403, .. } if is_personal => {
                Error::internal("LangGraph does not allow this with these credentials")
            }
            upstream::Error::Status { code: 401 | 403, .. } => Error::internal(format!(
                "{what}; connect with credentials that it accepts, or have the gateway's operator \
                 set `upstream.api_key`"
            )),
            upstream::Error::Status { .. } => match error.retry_after() {
                Some(wait) => Error::internal(format!("{what}; {}", try_again(wait))),
                None => Error::internal(what),
            },
            upstream::Error::Crowded => Error::internal(format!("{what}; wait, then try again")),
            upstream::Error::Unreachable { .. } | upstream::Error::Unproven => {
                Error::internal(format!("{what}; try again, or tell the gateway's operator"))
            }
            upstream::Error::Timeout { .. } | upstream::Error::Interrupted { .. } => {
                Error::internal(format!("{what}; load the session before you try again"))
            }
            upstream::Error::NotAnEventStream { .. }
            | upstream::Error::NotUnderstood { .. }
            | upstream::Error::TooLarge { .. }
            | upstream::Error::NoRoom(_) => Error::internal(what),
        }
    }

    /// A refusal as an ACP error, for the person at the editor.
    pub(super) fn refused(&self, refusal: &Refusal) -> Error {
        match refusal {
            Refusal::MayHaveStarted(error) | Refusal::Upstream(error) => self.failed(error),
            Refusal::ShuttingDown
            | Refusal::Busy
            | Refusal::NoThread
            | Refusal::UnknownAssistant { .. }
            | Refusal::NotStarted(_)
            | Refusal::CannotResume(_)
            | Refusal::NotStored(_)
            | Refusal::CannotFork(_) => Error::internal(refusal.to_string()),
        }
    }
}

/// What to do about a limit that ends.
fn try_again(wait: Duration) -> String {
    format!("try again in {} s", wait.as_secs())
}

/// The system's reason inside a sentence: `connection refused`, without the number of the error.
fn short_reason(reason: &str) -> String {
    let reason = reason.split_once(" (os error").map_or(reason, |(reason, _)| reason);
    let mut characters = reason.chars();
    match (characters.next(), characters.clone().next()) {
        // `DNS` and `TLS` stay as they are.
        (Some(first), Some(second)) if second.is_ascii_lowercase() => {
            iter::once(first.to_ascii_lowercase()).chain(characters).collect()
        }
        _ => reason.to_owned(),
    }
}

impl fmt::Debug for ClientLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("outbox", &self.0.outbox).finish_non_exhaustive()
    }
}

// === impl Answer ===

impl From<Json> for Answer {
    fn from(result: Json) -> Self {
        Self { result, after: None }
    }
}
