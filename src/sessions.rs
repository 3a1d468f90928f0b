//! The ACP agent: the requests of one client over one connection, and the sessions that it has
//! open.
//!
//! ```text
//!  line --> Connection::take --> a future per request --> Outbox --> line
//!                                  |        ^
//!                                  v        | a person's answers
//!                    threads::Thread (events) -> acp::Projector
//! ```
//! Nothing here runs by itself. The transport polls the work that `take` returns, and drops it at
//! the end. Senders of updates wait while the client reads too slowly. A session is a LangGraph
//! thread: another process can load it and loses nothing.
//!
//! A connection has one caller. Over stdio that is the person at the editor. On the server each
//! connection has the caller that the front door has admitted, and the runs are the server's.
//!
//! - `connection`: dispatches requests and notifications. `login`: before the upstream is known.
//! - `link`: the client as the handlers see it: how to send it something. `client`: what it can do,
//!   and what it gives the graph.
//! - `client_requests`: requests from the agent to the client.
//! - `outbox`: the streams of a client, and which one carries a message. `queue`: the lines that
//!   wait on one of them.
//! - `authentication`: as whom a connection sends requests to LangGraph.
//! - `auth`: the upstream's key, if a person has to give it.
//! - `session`: the open sessions. `prompts`: the prompts of one.
//! - `session_config`: their modes, agents and settings. `default_agent`: the agent of new sessions.
//!   `media`: which prompts may hold images and audio.
//! - `lengths`: how long the texts of a client may be.
//! - `history`: new, load, resume, list. `fork`: a copy of a session. `introduction`: what follows
//!   the response of new, load and resume. `directory`: their directories as text.
//! - `cursors`: the ends of turns, at which a session can be forked.
//! - `position`: event ids. `resume`: sessions that are loaded after an event.
//! - `follow`: runs of others in an open session.
//! - `turn`: prompts and their runs. `questions`: what a run asks. `notice`: what a person should
//!   know besides. `prompt_end`: the end of a prompt whose connection was lost. `waiting_prompts`:
//!   those that have not started their run.

mod auth;
mod authentication;
mod client;
mod client_requests;
mod connection;
mod cursors;
mod default_agent;
mod directory;
mod follow;
mod fork;
mod history;
mod introduction;
mod lengths;
mod link;
mod login;
mod media;
mod notice;
mod outbox;
mod position;
mod prompt_end;
mod prompts;
mod questions;
mod queue;
mod resume;
mod session;
mod session_config;
mod turn;
mod waiting_prompts;

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use authentication::{Authentication, SessionLists};
pub use connection::{Connection, MAX_REQUESTS};
pub use default_agent::NoSuchAgent;
pub use link::Work;
pub use login::{LoginConnection, LoginOptions};
#[cfg(test)]
pub(crate) use outbox::MAX_UNREAD_BYTES;
pub use outbox::{
    MAX_UNCONFIRMED_STREAMS, MAX_WAITING_BYTES, NotReadable, Outbox, STALL, StreamReader,
};
pub(crate) use position::{EVENT_ID, IS_RESUMED, META};

use waiting_prompts::WaitingPrompts;

use crate::agents::{Agents, Upstream};
use crate::credentials::Credentials;
use crate::metrics::Metrics;
use crate::runs::{OwnerPolicy, Runs};
use crate::threads::Threads;
use crate::upstream::Caller;
use threadway_translate::acp::GraphProfile;
use threadway_translate::acp::choice::Mode;
use threadway_translate::acp::mcp::Secrets;
use threadway_translate::acp::permission::Rules;
use threadway_translate::acp::prompt::{AcceptedContent, SlashCommand};
use threadway_translate::run::ErrorDetail;

/// How ACP presents the agents, as configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// How the graphs' tools and models are recognised.
    pub profile: Arc<GraphProfile>,
    /// The kinds of content that a prompt may hold. `None` if what the default agent's model is
    /// known to take decides.
    pub accepts: Option<AcceptedContent>,
    /// The slash commands.
    pub commands: Vec<SlashCommand>,
    /// The modes.
    pub modes: Vec<Mode>,
    /// The rules that answer permission requests.
    pub permissions: Rules,
    /// The key of `config.configurable` under which a graph gets the client's MCP servers.
    pub mcp_key: Option<String>,
    /// The key of `config.configurable` under which a graph gets the client's system prompt. `None`
    /// if it reads none.
    pub system_prompt_key: Option<String>,
    /// Whether secrets of those servers are forwarded too.
    pub mcp_secrets: Secrets,
    /// The unstable parts of ACP that are offered.
    pub unstable: Vec<Unstable>,
}

/// A part of ACP that may still change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unstable {
    /// Session cursors: `session/fork` at the end of a turn.
    Cursors,
}

/// One client's connection, as its transport sees it.
pub trait LineHandler {
    /// Handles a line. Returns the work that a request needs; the transport polls it.
    fn take(&self, line: &[u8]) -> Option<Work>;

    /// Answers a line that exceeds the length limit.
    fn refuse_line(&self, limit: usize);

    /// Reports that the client has disconnected.
    fn hang_up(&self);

    /// What serves the client; `None` as long as the upstream is not known.
    fn service(&self) -> Option<Arc<Service>>;
}

/// The parts of a [`Service`] that reads runs of its own.
#[derive(Debug)]
pub struct ServiceOptions {
    /// The agents.
    pub agents: Agents,
    /// The upstream whose agents are served.
    pub upstream: Upstream,
    /// The agent of new sessions. `None` for the first that the upstream lists.
    pub agent: Option<String>,
    /// How ACP presents the agents.
    pub settings: Settings,
    /// The store of keys that a person has typed.
    pub credentials: Credentials,
    /// Whether the runs of a client that disconnects are stopped.
    pub owners: OwnerPolicy,
    /// How much of a run's error editors see.
    pub error_detail: ErrorDetail,
    /// How many bytes of a run's events are kept for slow readers.
    pub log_bytes: usize,
    /// How many states of followed threads are read in a second.
    pub state_reads_per_second: NonZeroU32,
    /// Counts the runs.
    pub metrics: Metrics,
}

/// The parts of a [`Service`] that uses the threads and runs of a server.
#[derive(Debug)]
pub struct SharedOptions {
    /// The agents.
    pub agents: Agents,
    /// The upstream whose agents are served.
    pub upstream: Upstream,
    /// The agent of new sessions. `None` for the first that the upstream lists.
    pub agent: Option<String>,
    /// How ACP presents the agents.
    pub settings: Settings,
    /// How much of an upstream's error clients see.
    pub error_detail: ErrorDetail,
    /// The threads, with the runs of the server's other routes.
    pub threads: Threads,
    /// Gets the work that no request waits for. The server waits for it before it ends.
    pub tasks: TaskTracker,
}

/// What all connections share.
pub struct Service {
    agents: Agents,
    /// The upstream whose agents are served.
    pub upstream: Upstream,
    agent: Option<String>,
    settings: Settings,
    credentials: Credentials,
    owners: OwnerPolicy,
    error_detail: ErrorDetail,
    threads: Threads,
    waiting_prompts: WaitingPrompts,
    /// Work that no request waits for: stopping runs.
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

// === impl Service ===

impl Service {
    /// Serves an upstream's agents, with runs of its own. Thread titles are read under the messages
    /// key of `agent`'s graph.
    pub fn new(options: ServiceOptions) -> Self {
        let ServiceOptions { agents, upstream, agent, settings, credentials, .. } = options;
        let ServiceOptions { owners, error_detail, log_bytes, state_reads_per_second, .. } =
            options;
        let metrics = options.metrics;
        let shutdown = CancellationToken::new();
        // Sessions stop their runs themselves; a reader that leaves must not.
        let runs = Runs::new(log_bytes, OwnerPolicy::Continue, metrics, shutdown.clone());
        runs.set_error_detail(error_detail);
        let threads = Threads::new(runs, state_reads_per_second);
        let tasks = TaskTracker::new();
        let shared =
            SharedOptions { agents, upstream, agent, settings, error_detail, threads, tasks };
        Self { credentials, owners, shutdown, ..Self::sharing(shared) }
    }

    /// Serves an upstream's agents with the threads and runs of a server, which owns their end.
    /// The server's own [`OwnerPolicy`] decides about the runs of a client that has left.
    pub fn sharing(options: SharedOptions) -> Self {
        let SharedOptions { agents, mut upstream, agent, settings, error_detail, threads, tasks } =
            options;
        let found = agent.as_deref().map(|agent| agents.find(agent, &Caller::default()));
        if let Some(Ok(found)) = found {
            let key = found.upstream.messages_key().clone();
            upstream.client = upstream.client.with_messages_key(key);
        }
        // Nobody types a key on a server.
        let credentials = Credentials::new(None, upstream.client.base());
        let (owners, shutdown) = (OwnerPolicy::Continue, CancellationToken::new());
        Self {
            agents,
            upstream,
            agent,
            settings,
            credentials,
            owners,
            error_detail,
            threads,
            waiting_prompts: WaitingPrompts::default(),
            tasks,
            shutdown,
        }
    }

    /// Stops reading runs, and waits until pending stops were sent. Only for a service with runs of
    /// its own.
    pub async fn close(&self) {
        self.shutdown.cancel();
        self.tasks.close();
        let runs = self.threads.runs();
        tokio::join!(self.tasks.wait(), runs.drained());
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}
