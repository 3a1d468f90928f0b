//! The agent of new sessions: the one that `--agent` names, or the first that the upstream lists.

use std::fmt;
use std::time::Duration;

use super::Service;
use crate::agents::ListedAgent;
use crate::upstream::Caller;

/// How long the start waits to learn whether the upstream has the agent.
const AGENT_CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// How many agents an error names.
const MAX_NAMED: usize = 20;

/// The upstream has no agent for new sessions.
#[derive(Debug)]
pub struct NoSuchAgent {
    /// The URL of the upstream.
    server: String,
    /// `None` if no agent is named, and the upstream lists none.
    agent: Option<String>,
    /// The names of the upstream's agents.
    listed: Vec<String>,
}

impl Service {
    /// Checks that the upstream has the agent that is named for new sessions. Succeeds if no agent
    /// is named, and if the upstream does not list its agents in time: `session/new` checks again.
    pub async fn check_agent(&self) -> Result<(), NoSuchAgent> {
        if self.agent.is_none() {
            return Ok(());
        }
        let listing = self.agents.list_of(&self.upstream);
        match tokio::time::timeout(AGENT_CHECK_TIMEOUT, listing).await.map(|listing| listing.agents)
        {
            Ok(Ok(listed)) => self.default_agent(&listed).map(|_| ()),
            Ok(Err(_)) | Err(_) => Ok(()),
        }
    }

    /// The agent that is named for new sessions.
    pub(super) fn agent(&self) -> Option<&String> {
        self.agent.as_ref()
    }

    /// The agent of new sessions, by the name under which it is listed.
    pub(super) fn default_agent(&self, listed: &[ListedAgent]) -> Result<String, NoSuchAgent> {
        let found = match &self.agent {
            None => listed.first(),
            Some(name) => listed.iter().find(|agent| agent.id == *name).or_else(|| {
                // The agent may be named by its assistant's id, which no list shows for a graph.
                let named = self.agents.find(name, &Caller::default()).ok()?;
                listed.iter().find(|agent| agent.assistant_id == named.assistant)
            }),
        };
        found.map(|agent| agent.id.clone()).ok_or_else(|| NoSuchAgent {
            server: self.upstream.client.base().to_string(),
            agent: self.agent.clone(),
            listed: listed.iter().map(|agent| agent.id.clone()).collect(),
        })
    }
}

impl fmt::Display for NoSuchAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, agent, listed } = self;
        let Some(agent) = agent.as_ref().filter(|_| !listed.is_empty()) else {
            return write!(f, "{server} has no agents; `threadway check` shows why");
        };
        let named = listed.iter().take(MAX_NAMED).map(|name| format!("`{name}`"));
        let named = named.collect::<Vec<_>>().join(", ");
        write!(f, "{server} has no agent `{agent}`; its agents are {named}")?;
        if let Some(more @ 1..) = listed.len().checked_sub(MAX_NAMED) {
            write!(f, " and {more} more")?;
        }
        f.write_str(": correct --agent (THREADWAY_AGENT), or `acp.agent` in the config file")
    }
}
