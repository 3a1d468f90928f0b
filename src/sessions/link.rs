//! One client, for those who serve it: what it can do, how it is told and asked, and what they share.

use std::fmt;
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::Service;
use super::asking::Asking;
use super::outbox::Outbox;
use super::session::Session;
use crate::runs::OwnerPolicy;
use crate::threads::Refusal;
use crate::upstream;
use threadway_translate::acp::rpc::{self, Code, Error, Id};
use threadway_translate::acp::{self, Update};
use threadway_translate::json::Json;

/// One client. Clones share it.
#[derive(Clone)]
pub(super) struct Link(Arc<Inner>);

struct Inner {
    service: Arc<Service>,
    outbox: Outbox,
    asking: Asking,
    client: OnceLock<ClientAbilities>,
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

// === impl Link ===

impl Link {
    pub(super) fn new(service: Arc<Service>, outbox: Outbox) -> Self {
        Self(Arc::new(Inner {
            service,
            asking: Asking::new(outbox.clone()),
            outbox,
            client: OnceLock::new(),
            wants_key: OnceLock::new(),
            gone: CancellationToken::new(),
        }))
    }

    /// Whether the client has said what it can do.
    pub(super) fn is_initialized(&self) -> bool {
        self.0.client.get().is_some()
    }

    /// Takes in what the client can do, once.
    pub(super) fn initialize(&self, abilities: ClientAbilities) -> Result<(), Error> {
        let again = |_| Error::invalid("the connection is initialized already");
        self.0.client.set(abilities).map_err(again)
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

    /// Sends one update.
    pub(super) fn update(&self, session_id: &str, update: &Update<'_>) {
        self.0.outbox.put(|out| acp::notification(session_id, update, out));
    }

    /// Answers a request of the client's.
    pub(super) fn respond(&self, id: &Id, result: &Result<Json, Error>) {
        let line = rpc::response(id, result);
        self.0.outbox.put(|out| out.extend_from_slice(line.as_bytes()));
    }

    /// Takes in what the client has answered.
    pub(super) fn answered(&self, id: &Id, result: Result<Json, Error>) {
        self.0.asking.answer(id, result);
    }

    /// Whether the person has to give the upstream's key.
    pub(super) fn wants_key(&self) -> bool {
        self.0.wants_key.get().copied().unwrap_or(false)
    }

    pub(super) fn note_key(&self, wants_key: bool) {
        // A connection is initialized once.
        let _ = self.0.wants_key.set(wants_key);
    }

    /// Why the upstream did not do what was needed, for the person at the editor.
    pub(super) fn failed(&self, error: &upstream::Error) -> Error {
        if error.is_unauthorized() && self.wants_key() {
            let server = self.0.service.upstream.client.base();
            let message = format!("{server} wants an API key; run `threadway acp --login`");
            return Error::new(Code::AuthRequired, message);
        }
        match error.retry_after() {
            Some(wait) => {
                let seconds = wait.as_secs();
                Error::internal(format!("{}; try again in {seconds} s", error.explained()))
            }
            None => Error::internal(error.explained()),
        }
    }

    /// Why something was not done with a thread, for the person at the editor.
    pub(super) fn refused(&self, refusal: &Refusal) -> Error {
        match refusal {
            Refusal::Upstream(error) => self.failed(error),
            Refusal::ShuttingDown
            | Refusal::Busy
            | Refusal::UnknownAssistant { .. }
            | Refusal::CannotResume(_)
            | Refusal::NotStored(_)
            | Refusal::CannotFork(_) => Error::internal(refusal.to_string()),
        }
    }
}

impl fmt::Debug for Link {
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
