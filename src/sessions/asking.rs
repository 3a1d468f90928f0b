//! Requests to the client: each is answered once, or taken back.

use std::collections::HashMap;

use serde::Serialize;
use tokio::sync::oneshot;

use super::outbox::Outbox;
use crate::sync::{Guard, Mutex};
use threadway_translate::acp::rpc::{self, Error, Id};
use threadway_translate::json::Json;

/// What was asked of the client and is not answered.
#[derive(Debug)]
pub(super) struct Asking {
    outbox: Outbox,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    by_id: HashMap<Id, oneshot::Sender<Result<Json, Error>>>,
}

/// A request that is taken back when it is dropped unanswered.
struct Asked<'a> {
    asking: &'a Asking,
    id: Id,
}

/// "`$/cancel_request`", both ways.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CancelRequest {
    request_id: Json,
}

// === impl Asking ===

impl Asking {
    pub(super) fn new(outbox: Outbox) -> Self {
        Self { outbox, open: Mutex::default() }
    }

    /// Asks, and waits for the answer: a person may take all day. Dropped while it waits, the
    /// request is taken back.
    pub(super) async fn ask(&self, method: &str, params: &impl Serialize) -> Result<Json, Error> {
        self.outbox.room().await;
        let (answer, answered) = oneshot::channel();
        let id = {
            let mut open = self.open();
            open.next += 1;
            let id = Id::number(open.next);
            open.by_id.insert(id.clone(), answer);
            id
        };
        let line = rpc::request(&id, method, params);
        self.outbox.put(|out| out.extend_from_slice(line.as_bytes()));
        let asked = Asked { asking: self, id };
        let answer = answered.await;
        drop(asked);
        let refused =
            |error: Error| Error::internal(format!("the client did not answer {method}: {error}"));
        answer.map_or_else(|_| Err(Error::internal("nobody answers")), |a| a.map_err(refused))
    }

    /// Takes an answer in. One to what nobody waits for is passed over: it was taken back.
    pub(super) fn answer(&self, id: &Id, result: Result<Json, Error>) {
        let waiting = self.open().by_id.remove(id);
        if let Some(waiting) = waiting {
            // Who waited may have gone since.
            let _ = waiting.send(result);
        }
    }

    fn open(&self) -> Guard<'_, Open> {
        self.open.lock()
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if self.asking.open().by_id.remove(&self.id).is_some() {
            let params = CancelRequest { request_id: self.id.to_json() };
            let line = rpc::notification("$/cancel_request", &params);
            self.asking.outbox.put(|out| out.extend_from_slice(line.as_bytes()));
        }
    }
}
