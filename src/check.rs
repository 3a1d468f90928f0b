//! `threadway check`: reaches each upstream, and says in plain words what is wrong.

use std::fmt;

use crate::agents::{Agents, Upstream};
use crate::langgraph::ServerInfo;
use crate::server::Settings;
use crate::server::isolation::{self, Judgement};
use crate::upstream::Error;

/// What was found out about one upstream.
#[derive(Debug)]
pub struct Finding {
    upstream: String,
    url: String,
    verdict: Verdict,
}

/// What an upstream is.
#[derive(Debug)]
enum Verdict {
    /// A LangGraph server that has agents.
    Serves { server: ServerInfo, agents: Vec<String> },
    /// A LangGraph server that asks each caller for credentials, and refuses invented ones.
    Guarded(ServerInfo),
    /// A LangGraph server that tells no callers apart, although the gateway leaves that to it.
    Open(ServerInfo, Judgement),
    /// A LangGraph server of which it is not known whether it tells callers apart.
    NotJudged(Error),
    /// A LangGraph server that has none.
    NoAgents(ServerInfo),
    /// Nothing is there, or it does not answer.
    Away(Error),
    /// Something is there that is no LangGraph server.
    NotLangGraph(Error),
    /// It does not let us in.
    KeyRefused(Error),
    /// A LangGraph server that does not tell its agents.
    Refuses(Error),
}

/// Looks at every upstream, one after the other.
pub async fn check(agents: &Agents, settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    for upstream in agents.upstreams() {
        let verdict = judge(agents, upstream, settings).await;
        let Upstream { name, client } = upstream.clone();
        findings.push(Finding { upstream: name, url: client.base().to_string(), verdict });
    }
    findings
}

/// The aliases of agents that no upstream has: each alias, and the name that it stands for.
/// Of upstreams that did not tell their agents nothing is known.
pub fn idle_aliases<'a>(agents: &'a Agents, findings: &[Finding]) -> Vec<&'a (String, String)> {
    if !findings.iter().all(Finding::is_listed) {
        return Vec::new();
    }
    let is_listed = |alias: &str| findings.iter().any(|finding| finding.lists(alias));
    agents.aliases().iter().filter(|(alias, _)| !is_listed(alias)).collect()
}

/// Whether there may be an agent of this name: of upstreams that did not tell their agents nothing
/// is known.
pub fn may_exist(name: &str, findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.lists(name) || !finding.is_listed())
}

async fn judge(agents: &Agents, upstream: &Upstream, settings: &Settings) -> Verdict {
    let server = match upstream.client.info().await {
        Ok(server) => server,
        Err(error) => return Verdict::of(error, Verdict::NotLangGraph),
    };
    let Settings { auth, forward, .. } = settings;
    match isolation::judge(&upstream.client, auth, forward).await {
        None | Some(Ok(Judgement::Refuses)) => {}
        Some(Ok(accepts)) => return Verdict::Open(server, accepts),
        Some(Err(error)) => return Verdict::of(error, Verdict::NotJudged),
    }
    match agents.list_of(upstream).await.agents {
        // It has no key of ours, and is to have none.
        Err(error) if error.is_unauthorized() && auth.is_for_langgraph() => {
            Verdict::Guarded(server)
        }
        Ok(agents) if agents.is_empty() => Verdict::NoAgents(server),
        Ok(agents) => {
            Verdict::Serves { server, agents: agents.into_iter().map(|agent| agent.id).collect() }
        }
        Err(error) => Verdict::of(error, Verdict::Refuses),
    }
}

// === impl Verdict ===

impl Verdict {
    /// What an error means that any server may answer with; `else` it is this.
    fn of(error: Error, other: impl FnOnce(Error) -> Self) -> Self {
        match error {
            Error::Unreachable { .. } | Error::Timeout { .. } | Error::Interrupted { .. } => {
                Self::Away(error)
            }
            Error::Status { .. } if error.is_unauthorized() => Self::KeyRefused(error),
            Error::Status { .. }
            | Error::NotAnEventStream { .. }
            | Error::NotUnderstood { .. }
            | Error::TooLarge { .. } => other(error),
        }
    }
}

// === impl Finding ===

impl Finding {
    /// Whether the upstream can be served.
    pub fn is_good(&self) -> bool {
        matches!(self.verdict, Verdict::Serves { .. } | Verdict::Guarded(_))
    }

    /// Whether its agents are known.
    fn is_listed(&self) -> bool {
        matches!(self.verdict, Verdict::Serves { .. })
    }

    fn lists(&self, id: &str) -> bool {
        matches!(&self.verdict, Verdict::Serves { agents, .. } if agents.iter().any(|a| a == id))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { upstream, url, verdict } = self;
        write!(f, "upstream {upstream} ({url}): ")?;
        match verdict {
            Verdict::Serves { server, agents } => {
                let count = agents.len();
                write!(f, "{server}, {count} agents: {}", agents.join(", "))
            }
            Verdict::Guarded(server) => {
                write!(
                    f,
                    "{server}, which asks each caller for credentials; its agents are not shown to threadway itself"
                )
            }
            Verdict::Open(server, accepts) => {
                write!(f, "{server}; {accepts}, or choose another `auth.mode`")
            }
            Verdict::NotJudged(error) => write!(
                f,
                "whether it refuses invented credentials is not known ({}); its `auth` has to \
                 answer them with 401 or 403",
                error.explained()
            ),
            Verdict::NoAgents(server) => {
                write!(f, "{server}, but it has no agents; name graphs in its langgraph.json")
            }
            Verdict::Away(error) => {
                write!(f, "{}; check that it runs, and that this is its URL", error.explained())
            }
            Verdict::NotLangGraph(error) => write!(
                f,
                "what answers there is no LangGraph server ({}); check the URL, and its path",
                error.explained()
            ),
            Verdict::KeyRefused(error) => write!(
                f,
                "it does not let threadway in ({}); set `upstream.api_key` or \
                 THREADWAY_UPSTREAM_API_KEY to a key that it takes",
                error.explained()
            ),
            Verdict::Refuses(error) => {
                write!(
                    f,
                    "it does not tell its agents ({}); its log may tell more",
                    error.explained()
                )
            }
        }
    }
}
