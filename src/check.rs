//! `threadway check`: tries each address of each upstream and reports what is wrong.

use std::fmt;
use std::time::Duration;

use indexmap::IndexMap;

use crate::agents::{Agents, Upstream};
use crate::config::{Acp, Config, DEFAULT_UPSTREAM};
use crate::server::Settings;
use crate::server::isolation::{self, Judgement};
use crate::terminal;
use crate::upstream::{Caller, Error};
use threadway_translate::langgraph::{Capabilities, ServerInfo};

/// How many agents of an upstream are checked for lost input. A person reads no more.
const MAX_SCHEMAS: usize = 50;

/// How long that check may take.
const SCHEMAS_TIMEOUT: Duration = Duration::from_secs(10);

/// The result of the check.
#[derive(Debug)]
pub struct Report {
    /// A line for each address of each upstream, for each configured name without an agent, for each
    /// thing that a server lacks, and for each loss of client input.
    pub lines: Vec<String>,
    /// Whether every upstream can be served, and every configured name can be an agent's.
    pub is_good: bool,
}

/// The result for one address of an upstream.
#[derive(Debug)]
struct Finding {
    upstream: String,
    url: String,
    verdict: Verdict,
}

/// What an upstream turned out to be.
#[derive(Debug)]
enum Verdict {
    /// A LangGraph server with agents.
    Serves { server: Server, agents: Vec<String> },
    /// A LangGraph server that requires credentials of each caller, and refuses invented ones.
    Guarded(Server),
    /// A LangGraph server that accepts invented credentials, although the configuration relies on
    /// it to check them.
    Open(Server, Judgement),
    /// A LangGraph server that could not be tested with invented credentials.
    NotJudged(Error),
    /// A LangGraph server without agents.
    NoAgents(Server),
    /// The server does not answer.
    Away(Error),
    /// The server is not a LangGraph server.
    NotLangGraph(Error),
    /// The server refuses the gateway: it requires a key, or another key.
    KeyRefused(Error, KeyPlace),
    /// A LangGraph server that did not list its agents.
    Refuses(Error),
}

/// Which server it is.
#[derive(Debug)]
enum Server {
    Known(ServerInfo),
    /// Its `GET /info` is no known server's.
    Unknown,
}

/// The configuration key for an upstream's key.
#[derive(Debug)]
struct KeyPlace {
    upstream: String,
    /// Whether a key is set.
    is_set: bool,
}

/// What is wrong with an upstream that did not list its agents, and what to do about it. Leaves out
/// what the server says, because `serve` writes this into its log.
pub fn advice(upstream: &Upstream, error: Error) -> String {
    Verdict::of(upstream, error.unexplained(), Verdict::Refuses).to_string()
}

/// Which server each upstream is and what it lacks, a line for each, for the start of `serve`. An
/// upstream that does not answer has none: the list of its agents says why.
pub async fn servers(agents: &Agents) -> Vec<String> {
    let line = |(upstream, info)| {
        let server = match info {
            Ok(server) => Server::Known(server),
            Err(error) if may_be_unknown(&error) => Server::Unknown,
            Err(_) => return None,
        };
        let limits = server.capabilities().limits().join("; ");
        let limits = if limits.is_empty() { limits } else { format!("; its limits: {limits}") };
        let line = format!("upstream {upstream}: {server}{limits}");
        Some(String::from(terminal::harmless_line(&line)))
    };
    agents.infos().await.into_iter().filter_map(line).collect()
}

/// Checks every address of every upstream, one after the other. `agents` are those of `config`.
pub async fn check(agents: &Agents, config: &Config) -> Report {
    let mut findings = Vec::new();
    for upstream in agents.upstreams() {
        for client in upstream.client.each_address() {
            let upstream = Upstream { name: upstream.name.clone(), client };
            let verdict = judge(agents, &upstream, &config.settings).await;
            let Upstream { name, client } = upstream;
            findings.push(Finding { upstream: name, url: client.base().to_string(), verdict });
        }
    }
    let unknown = unknown_names(agents.aliases(), &config.acp, &findings);
    let is_good = unknown.is_empty() && findings.iter().all(Finding::is_good);
    let harmless = |line: String| String::from(terminal::harmless_line(&line));
    let mut lines: Vec<_> =
        findings.iter().map(|finding| harmless(finding.to_string())).chain(unknown).collect();
    for (at, finding) in findings.iter().enumerate() {
        // The addresses of an upstream have the same agents.
        let is_new = |before: &Finding| before.upstream != finding.upstream || !before.is_listed();
        if findings.iter().take(at).all(is_new) {
            lines.extend(finding.limits());
            lines.extend(losses(agents, finding).await.into_iter().map(harmless));
        }
    }
    Report { lines, is_good }
}

/// Client input that does not reach the agents of an upstream, one line for each kind. An agent
/// without need for it is not at fault.
async fn losses(agents: &Agents, finding: &Finding) -> Vec<String> {
    let Finding { upstream, url: _, verdict } = finding;
    let Verdict::Serves { agents: listed, .. } = verdict else { return Vec::new() };
    let mut found: IndexMap<String, Vec<&str>> = IndexMap::new();
    let read = async {
        for id in listed.iter().take(MAX_SCHEMAS) {
            let Ok(agent) = agents.find(id, &Caller::default()) else { continue };
            for loss in agent.losses().await {
                found.entry(loss).or_default().push(id);
            }
        }
    };
    // A timeout keeps what was found so far.
    let _ = tokio::time::timeout(SCHEMAS_TIMEOUT, read).await;
    let line = |(loss, ids): (String, Vec<&str>)| {
        format!("upstream {upstream}: {}: {loss}", ids.join(", "))
    };
    found.into_iter().map(line).collect()
}

/// A line for each configured name that no agent has. Empty if an upstream did not list its agents,
/// because it may have any.
fn unknown_names(aliases: &[(String, String)], acp: &Acp, findings: &[Finding]) -> Vec<String> {
    if !findings.iter().all(Finding::is_listed) {
        return Vec::new();
    }
    let is_listed = |name: &str| findings.iter().any(|finding| finding.lists(name));
    let idle = aliases.iter().filter(|(alias, _)| !is_listed(alias));
    let idle = idle.map(|(alias, own_name)| (format!("alias {alias}"), own_name.as_str()));
    let modes = acp.settings.modes.iter().filter_map(|mode| {
        Some((format!("acp.modes.{}.assistant", mode.id), mode.assistant.as_deref()?))
    });
    let agent = acp.agent.as_deref().map(|agent| ("acp.agent".to_owned(), agent));
    let unknown = agent.into_iter().chain(modes).filter(|(_, name)| !is_listed(name));
    let line = |(place, name)| format!("{place}: there is no agent `{name}`");
    idle.chain(unknown).map(line).collect()
}

async fn judge(agents: &Agents, upstream: &Upstream, settings: &Settings) -> Verdict {
    let (server, unnamed) = match upstream.client.info().await {
        Ok(server) => (Server::Known(server), None),
        Err(error) if may_be_unknown(&error) => (Server::Unknown, Some(error)),
        Err(error) => return Verdict::of(upstream, error, Verdict::NotLangGraph),
    };
    let listed = agents.list_of(upstream).await.agents;
    let has_agents = listed.as_ref().is_ok_and(|agents| !agents.is_empty());
    if let Some(error) = unnamed.filter(|_| !has_agents) {
        return Verdict::of(upstream, error, Verdict::NotLangGraph);
    }
    let Settings { auth, forward, .. } = settings;
    match isolation::judge(&upstream.client, auth, forward).await {
        None | Some(Ok(Judgement::Refuses)) => {}
        Some(Ok(accepts)) => return Verdict::Open(server, accepts),
        Some(Err(error)) => return Verdict::of(upstream, error, Verdict::NotJudged),
    }
    match listed {
        // Expected: the upstream gets callers' credentials and no key of the gateway.
        Err(error) if error.is_unauthorized() && auth.is_for_langgraph() => {
            Verdict::Guarded(server)
        }
        Ok(agents) if agents.is_empty() => Verdict::NoAgents(server),
        Ok(agents) => {
            Verdict::Serves { server, agents: agents.into_iter().map(|agent| agent.id).collect() }
        }
        Err(error) => Verdict::of(upstream, error, Verdict::Refuses),
    }
}

/// Whether an answer to `GET /info` may be that of a server with LangGraph's API that threadway
/// does not know.
fn may_be_unknown(error: &Error) -> bool {
    matches!(error, Error::NotUnderstood { .. } | Error::Status { code: 404 | 405 | 501, .. })
}

// === impl Server ===

impl Server {
    fn capabilities(&self) -> Capabilities {
        match self {
            Self::Known(server) => server.capabilities(),
            Self::Unknown => Capabilities::default(),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(server) => server.fmt(f),
            Self::Unknown => f.write_str("a server that threadway does not know"),
        }
    }
}

// === impl Verdict ===

impl Verdict {
    /// The verdict for errors that any server may cause; `other` for the rest.
    fn of(upstream: &Upstream, error: Error, other: impl FnOnce(Error) -> Self) -> Self {
        match error {
            Error::Unreachable { .. }
            | Error::Unproven
            | Error::Timeout { .. }
            | Error::Interrupted { .. } => Self::Away(error),
            Error::Status { .. } if error.is_unauthorized() => {
                let Upstream { name, client } = upstream;
                let place = KeyPlace { upstream: name.clone(), is_set: client.has_key() };
                Self::KeyRefused(error, place)
            }
            Error::Status { .. }
            | Error::NotAnEventStream { .. }
            | Error::NotUnderstood { .. }
            | Error::TooLarge { .. } => other(error),
        }
    }
}

// === impl Finding ===

impl Finding {
    fn is_good(&self) -> bool {
        matches!(self.verdict, Verdict::Serves { .. } | Verdict::Guarded(_))
    }

    /// What its server lacks, a line for each.
    fn limits(&self) -> Vec<String> {
        let server = match &self.verdict {
            Verdict::Serves { server, .. } | Verdict::Guarded(server) => server,
            Verdict::Open(..)
            | Verdict::NotJudged(_)
            | Verdict::NoAgents(_)
            | Verdict::Away(_)
            | Verdict::NotLangGraph(_)
            | Verdict::KeyRefused(..)
            | Verdict::Refuses(_) => return Vec::new(),
        };
        let line = |limit| format!("upstream {}: limit of this server: {limit}", self.upstream);
        server.capabilities().limits().into_iter().map(line).collect()
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
        write!(f, "upstream {upstream} ({url}): {verdict}")
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serves { server, agents } => {
                let count = agents.len();
                let agent = if count == 1 { "agent" } else { "agents" };
                write!(f, "{server}, {count} {agent}: {}", agents.join(", "))
            }
            Self::Guarded(server) => {
                write!(
                    f,
                    "{server}, which requires credentials of each caller; its agents are not listed for \
                     threadway itself"
                )
            }
            Self::Open(server, accepts) => {
                write!(f, "{server}; {accepts}, or choose another `auth.mode`")
            }
            Self::NotJudged(error) => write!(
                f,
                "could not check whether it refuses invented credentials ({}); its `auth` must \
                 answer them with 401 or 403",
                error.explained()
            ),
            Self::NoAgents(server) => {
                write!(f, "{server}, but it has no agents; add graphs to its langgraph.json")
            }
            Self::Away(error) => {
                write!(f, "{}; check that it runs, and that this is its URL", error.explained())
            }
            Self::NotLangGraph(error) => write!(
                f,
                "this is not a LangGraph server ({}); check the URL and its path",
                error.explained()
            ),
            Self::KeyRefused(error, place) => {
                let what = if place.is_set { "it refuses the key" } else { "it requires a key" };
                write!(f, "{what} ({}); set {place} to a key that it accepts", error.explained())
            }
            Self::Refuses(error) => {
                write!(f, "it did not list its agents ({}); look into its log", error.explained())
            }
        }
    }
}

impl fmt::Display for KeyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.upstream {
            DEFAULT_UPSTREAM => {
                f.write_str("THREADWAY_UPSTREAM_API_KEY, or `upstream.api_key` in the config file,")
            }
            name => write!(f, "`upstreams.{name}.api_key` in the config file"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(verdict: fn(Server) -> Verdict) -> Finding {
        let info = r#"{"version":"0.16.7","langgraph_py_version":"1.2.22"}"#;
        let server = Server::Known(ServerInfo::parse(info).unwrap());
        let [upstream, url] = ["only", "http://127.0.0.1:2024"].map(str::to_owned);
        Finding { upstream, url, verdict: verdict(server) }
    }

    #[test]
    fn a_name_is_unknown_once_every_upstream_has_listed_its_agents() {
        let pair = |alias: &str, name: &str| (alias.to_owned(), name.to_owned());
        let aliases = [pair("good", "agent"), pair("idle", "nobody")];
        let acp = Acp { agent: Some("nobody".to_owned()), ..Acp::default() };
        let listed = || {
            finding(|server| {
                let agents = ["agent", "good"].map(str::to_owned).to_vec();
                Verdict::Serves { server, agents }
            })
        };
        assert_eq!(
            unknown_names(&aliases, &acp, &[listed()]),
            ["alias idle: there is no agent `nobody`", "acp.agent: there is no agent `nobody`"]
        );
        let findings = [listed(), finding(Verdict::Guarded)];
        assert!(unknown_names(&aliases, &acp, &findings).is_empty());
    }
}
