//! Requests that the agent sends to the client. Each is answered once or cancelled.

use std::collections::HashMap;

use serde::Serialize;
use tokio::sync::oneshot;

use super::outbox::Outbox;
use crate::sync::{Guard, Mutex};
use threadway_translate::acp::destination::Destination;
use threadway_translate::acp::rpc::{self, Error, Id};
use threadway_translate::json::Json;

/// Requests that the client has not answered yet.
#[derive(Debug)]
pub(super) struct ClientRequests {
    outbox: Outbox,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    by_id: HashMap<Id, oneshot::Sender<Result<Json, Error>>>,
}

/// Sends `$/cancel_request` if it is dropped before the answer.
struct PendingRequest<'a> {
    requests: &'a ClientRequests,
    id: Id,
    session: &'a str,
}

/// The params of `$/cancel_request`, which both sides can send.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CancelRequest {
    request_id: Json,
}

// === impl ClientRequests ===

impl ClientRequests {
    pub(super) fn new(outbox: Outbox) -> Self {
        Self { outbox, open: Mutex::default() }
    }

    /// Sends a request about a session and waits for the answer, without a limit: a person may take all day.
    /// Dropping the future cancels the request.
    pub(super) async fn ask(
        &self,
        session: &str,
        method: &str,
        params: &impl Serialize,
    ) -> Result<Json, Error> {
        let to = Destination::Session(session);
        self.outbox.wait_for_room(to).await;
        let (answer, answered) = oneshot::channel();
        let id = {
            let mut open = self.open();
            open.next += 1;
            let id = Id::number(open.next);
            open.by_id.insert(id.clone(), answer);
            id
        };
        let line = rpc::request(&id, method, params);
        self.outbox.put(to, |out| out.extend_from_slice(line.as_bytes()));
        let pending = PendingRequest { requests: self, id, session };
        let answer = answered.await;
        drop(pending);
        let refused =
            |error: Error| Error::internal(format!("the client did not answer {method}: {error}"));
        answer.map_or_else(
            |_| Err(Error::internal("the client did not answer")),
            |a| a.map_err(refused),
        )
    }

    /// Passes an answer to its request. An answer to a cancelled request is ignored.
    pub(super) fn answer(&self, id: &Id, result: Result<Json, Error>) {
        let waiting = self.open().by_id.remove(id);
        if let Some(waiting) = waiting {
            // The receiver may have been dropped in the meantime.
            let _ = waiting.send(result);
        }
    }

    fn open(&self) -> Guard<'_, Open> {
        self.open.lock()
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        if self.requests.open().by_id.remove(&self.id).is_some() {
            let params = CancelRequest { request_id: self.id.to_json() };
            let line = rpc::notification("$/cancel_request", &params);
            // On the request's own stream, so that it does not overtake the request.
            let to = Destination::Session(self.session);
            self.requests.outbox.put(to, |out| out.extend_from_slice(line.as_bytes()));
        }
    }
}
