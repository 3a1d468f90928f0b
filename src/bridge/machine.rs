//! What the bridge knows, without IO: what the editor asked, what the gateway answered, and what a
//! new connection has to be told.
//!
//! ```text
//!   editor_said --> requests --> pump --> ToGateway        a new connection:
//!   gateway_said --> answers, updates --> ToEditor         initialize -> open sessions -> pump
//!   connected, lost, give_up
//! ```
//! - `requests`: the editor's requests in progress. `editor`: what it says.
//! - `gateway`: what the gateway says. `connection`: connections that come and go.

mod connection;
mod editor;
mod gateway;
mod requests;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use indexmap::IndexMap;
use uuid::Uuid;

use super::asks::GatewayRequests;
use super::message::Announced;
use super::session::BridgedSession;
use requests::Request;
use threadway_translate::acp::method::Method;
use threadway_translate::acp::rpc::{self, Code, Error, Id};
use threadway_translate::json::Json;

/// The most requests in progress, as many as the gateway accepts.
pub(super) const MAX_REQUESTS: usize = 256;

/// How many bytes of requests may wait for the gateway.
pub(super) const MAX_QUEUED_BYTES: usize = 64 * 1024 * 1024;

/// The most sessions that are opened again on a new connection, as many as the gateway accepts.
const MAX_SESSIONS: usize = 256;

/// How many bytes a message may have besides its params or result: its id, its method, and the id
/// of a prompt.
const ENVELOPE_BYTES: usize = 2048;

/// How often a request is sent, if each time the connection is lost before the answer.
const MAX_SENDS: u32 = 5;

/// The bridge between one editor and its gateway.
#[derive(Debug)]
pub(super) struct Machine {
    /// The gateway's URL, for errors.
    url: String,
    phase: Phase,
    introduction: Option<EditorInitialize>,
    /// The editor's requests in progress, in their order.
    requests: IndexMap<Id, Request>,
    /// By the editor's id.
    sessions: IndexMap<String, BridgedSession>,
    /// The bridge's own requests on this connection.
    own: HashMap<Id, BridgeRequest>,
    last_own: u64,
    asks: GatewayRequests,
    /// Makes the ids of prompts.
    seed: Uuid,
    prompts: u64,
    gateway: Announced,
    /// Why requests are refused: the gateway has been away for long.
    away: Option<Error>,
    actions: Vec<MachineAction>,
}

/// What the shell has to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MachineAction {
    /// Sends a line to the gateway.
    ToGateway(String),
    /// Writes a line to the editor.
    ToEditor(String),
    /// Logs a warning.
    Warn(String),
    /// Closes the connection and makes another.
    Disconnect(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// There is no connection.
    Away,
    /// There is a connection, and the editor has not introduced itself yet.
    Connected,
    /// `initialize` was sent.
    Introducing,
    Ready,
}

/// The editor's `initialize`.
#[derive(Debug)]
struct EditorInitialize {
    params: Json,
    /// The answer that the editor has.
    answer: Option<Json>,
}

/// A request of the bridge itself.
#[derive(Debug)]
enum BridgeRequest {
    Initialize,
    /// Opens a session again.
    Open(String),
    /// Makes a session anew that was never used.
    Renew(String),
    Setting,
    /// Waits for the end of a prompt whose connection was lost.
    PromptEnd(Id),
}

// === impl Machine ===

impl Machine {
    /// `seed` is random: prompts get ids from it.
    pub(super) fn new(url: String, seed: Uuid) -> Self {
        Self {
            url,
            phase: Phase::Away,
            introduction: None,
            requests: IndexMap::new(),
            sessions: IndexMap::new(),
            own: HashMap::new(),
            last_own: 0,
            asks: GatewayRequests::default(),
            seed,
            prompts: 0,
            gateway: Announced::default(),
            away: None,
            actions: Vec::new(),
        }
    }

    /// Takes what has to be done.
    pub(super) fn actions(&mut self) -> Vec<MachineAction> {
        std::mem::take(&mut self.actions)
    }

    /// Whether the gateway owes an answer that the connection cannot do without.
    pub(super) fn is_recovering(&self) -> bool {
        let is_recovery = |own: &BridgeRequest| {
            matches!(
                own,
                BridgeRequest::Initialize | BridgeRequest::Open(_) | BridgeRequest::Renew(_)
            )
        };
        self.phase == Phase::Introducing || self.own.values().any(is_recovery)
    }

    /// Whether the editor waits for an answer.
    pub(super) fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Why a message of this size is not sent. The gateway would close the connection, and with it
    /// interrupt all sessions.
    fn too_large(&self, bytes: usize) -> Option<Error> {
        let limit =
            self.gateway.max_message_bytes.filter(|limit| bytes + ENVELOPE_BYTES > *limit)?;
        let message = format!(
            "the message has {bytes} bytes, and {} takes messages of up to {limit} bytes; send less, \
             send attachments by URL, or have the gateway's operator raise `limits.body_bytes`",
            self.url
        );
        Some(Error::new(Code::InvalidParams, message))
    }

    fn send_line(&mut self, line: String) {
        self.actions.push(MachineAction::ToGateway(line));
    }

    fn write_line(&mut self, line: String) {
        self.actions.push(MachineAction::ToEditor(line));
    }

    fn write_all(&mut self, lines: impl IntoIterator<Item = String>) {
        self.actions.extend(lines.into_iter().map(MachineAction::ToEditor));
    }

    fn warn(&mut self, text: impl Into<String>) {
        self.actions.push(MachineAction::Warn(text.into()));
    }

    fn respond(&mut self, id: &Id, result: &Result<Json, Error>) {
        self.write_line(rpc::response(id, result));
    }

    /// Sends a request of the bridge itself.
    fn send_own(&mut self, own: BridgeRequest, method: Method, params: &Json) {
        self.last_own += 1;
        // Editors number their requests, or use UUIDs.
        let text = serde_json::Value::from(format!("threadway-bridge-{}", self.last_own));
        let id = threadway_translate::json::raw(text.to_string());
        let Some(id) = Id::read(&id) else { return };
        self.send_line(rpc::request(&id, method.name(), params));
        self.own.insert(id, own);
    }

    /// The editor's id of a session of the gateway.
    fn local<'a>(&'a self, remote: &'a str) -> Option<&'a str> {
        if self.sessions.get(remote).is_some_and(|session| session.remote == remote) {
            return Some(remote);
        }
        let found = self.sessions.iter().find(|(_, session)| session.remote == remote);
        found.map(|(local, _)| local.as_str())
    }
}
