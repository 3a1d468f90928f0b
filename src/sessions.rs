//! The ACP agent: what one client asks over one connection, whatever carries that, and the
//! sessions that it has open here.
//!
//! ```text
//!  line --> Connection::take --> a future per request --> Outbox --> line
//!                                  |        ^
//!                                  v        | answers of a person
//!                    threads::Thread (events) -> acp::Projector
//! ```
//! Nothing runs by itself: the transport polls what `take` gives it, and drops it at the end. Who
//! tells more than the client reads waits for room. A session is a thread: what is not in here can
//! be loaded by any process.

mod asking;
mod auth;
mod connection;
mod desk;
mod history;
mod link;
mod outbox;
mod permit;
mod session;
mod turn;

use std::fmt;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use connection::{Connection, MAX_REQUESTS};
pub use link::Work;
pub use outbox::{MAX_UNREAD_BYTES, MAX_WAITING_BYTES, Outbox};
pub use session::MAX_SESSIONS;
pub use turn::STOP_WAIT;

use crate::agents::{Agents, Upstream};
use crate::credentials::Credentials;
use crate::metrics::Metrics;
use crate::runs::{OwnerPolicy, Runs};
use crate::threads::Threads;
use crate::upstream::Caller;
use threadway_translate::acp::Dialect;
use threadway_translate::acp::choice::Mode;
use threadway_translate::acp::mcp::Secrets;
use threadway_translate::acp::permission::Rules;
use threadway_translate::acp::prompt::{Accepts, Command};
use threadway_translate::run::ErrorDetail;

/// What the operator says of the agents as ACP shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The graphs' tools and models.
    pub dialect: Arc<Dialect>,
    /// What a prompt may hold.
    pub accepts: Accepts,
    /// The commands that are offered.
    pub commands: Vec<Command>,
    /// The modes that are offered.
    pub modes: Vec<Mode>,
    /// Which calls are asked about.
    pub permissions: Rules,
    /// Under which key of the configuration a graph gets the client's tool servers.
    pub mcp_key: Option<String>,
    /// Whether the secrets of those servers go up with them.
    pub mcp_secrets: Secrets,
}

/// What all connections share.
pub struct Service {
    /// The agents.
    pub agents: Agents,
    /// The upstream whose agents are served.
    pub upstream: Upstream,
    /// The agent of a new session; else the first that the upstream lists.
    pub agent: Option<String>,
    /// What the operator says.
    pub settings: Settings,
    /// Where keys are kept that a person has typed.
    pub credentials: Credentials,
    /// What becomes of the runs of a client that goes away.
    pub owners: OwnerPolicy,
    threads: Threads,
    /// What must be done although nobody waits for it any more: stopping a run.
    chores: TaskTracker,
    shutdown: CancellationToken,
}

// === impl Service ===

impl Service {
    /// Serves an upstream's agents.
    pub fn new(
        agents: Agents,
        upstream: Upstream,
        settings: Settings,
        credentials: Credentials,
        owners: OwnerPolicy,
        log_bytes: usize,
    ) -> Self {
        let shutdown = CancellationToken::new();
        // A run is stopped by what we do at the end, not by its reader's leaving.
        let runs =
            Runs::new(log_bytes, OwnerPolicy::Continue, Metrics::default(), shutdown.clone());
        Self {
            agents,
            upstream,
            agent: None,
            settings,
            credentials,
            owners,
            threads: Threads::new(runs),
            chores: TaskTracker::new(),
            shutdown,
        }
    }

    /// Tells editors as much as this of why a run failed.
    #[must_use]
    pub fn telling(self, detail: ErrorDetail) -> Self {
        self.threads.runs().set_error_detail(detail);
        self
    }

    /// Makes another agent that of new sessions. Titles of threads are read as its graph keeps its
    /// conversations.
    #[must_use]
    pub fn with_agent(mut self, agent: Option<String>) -> Self {
        let found = agent.as_deref().map(|agent| self.agents.find(agent, &Caller::default()));
        if let Some(Ok(found)) = found {
            let key = found.upstream.messages_key().clone();
            self.upstream.client = self.upstream.client.keeping_messages_under(key);
        }
        Self { agent, ..self }
    }

    /// Lets go of the runs, and waits for what must be done.
    pub async fn close(&self) {
        self.shutdown.cancel();
        self.chores.close();
        let runs = self.threads.runs();
        tokio::join!(self.chores.wait(), runs.drained());
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}
