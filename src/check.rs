//! `threadway check`: tries each address of each upstream and reports what is wrong.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use indexmap::IndexMap;

use crate::agents::{Agent, Agents, InputKeys, Listed, Listing, Upstream};
use crate::config::{Config, DEFAULT_UPSTREAM, NamedAgent, nearest};
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
    Serves { server: Server, agents: Vec<Listed> },
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
    let listed: Option<Vec<_>> = findings.iter().map(Finding::listed).collect();
    let unknown = listed.map(|listed| unknown_names(agents, &config.named_agents(), &listed));
    let unknown = unknown.unwrap_or_default();
    let mut is_good = unknown.is_empty() && findings.iter().all(Finding::is_good);
    let harmless = |line: String| String::from(terminal::harmless_line(&line));
    let mut lines: Vec<_> = findings.iter().map(ToString::to_string).chain(unknown).collect();
    for (at, finding) in findings.iter().enumerate() {
        // The addresses of an upstream have the same agents.
        let is_new =
            |before: &Finding| before.upstream != finding.upstream || before.listed().is_none();
        if findings.iter().take(at).all(is_new) {
            lines.extend(finding.limits());
            let losses = losses(agents, finding).await;
            is_good &= !losses.is_mistake;
            lines.extend(losses.lines);
        }
    }
    Report { lines: lines.into_iter().map(harmless).collect(), is_good }
}

/// What in the configuration does not fit the agents that the upstreams have listed. An agent may
/// still appear, so this does not keep the gateway from starting.
#[derive(Debug)]
pub struct Doubts {
    /// A line for each name that no agent has.
    unknown: Vec<String>,
    /// The agents whose graphs may lack the configured key of their conversation.
    keyed: Vec<Agent>,
}

impl Doubts {
    /// The doubts about a configuration that names these agents.
    pub fn of(agents: &Agents, named: &[NamedAgent], listings: &[Listing]) -> Self {
        let listed = listings.iter().map(|Listing { upstream, agents, .. }| {
            Some((upstream.as_str(), agents.as_ref().ok()?.as_slice()))
        });
        let all: Option<Vec<_>> = listed.clone().collect();
        let unknown = all.map(|listed| unknown_names(agents, named, &listed)).unwrap_or_default();
        let ids = listed.flatten().flat_map(|(_, listed)| listed.iter().map(|agent| &*agent.id));
        let found = ids.filter_map(|id| agents.find(id, &Caller::default()).ok());
        // Without such a key, the first client that loses messages is soon enough.
        let keyed = found.filter(|agent| agents.has_messages_key(agent)).take(MAX_SCHEMAS);
        Self { unknown, keyed: keyed.collect() }
    }

    /// Logs them. Reads the input of agents, for 10 s at most.
    pub async fn log(self) {
        for line in self.unknown {
            tracing::warn!(target: "threadway", "{}", terminal::harmless_line(&line));
        }
        let read = async {
            for agent in self.keyed {
                let lost = agent.input_keys().await.lost_messages(agent.upstream.messages_key());
                agent.log_losses(lost.into_iter().collect());
            }
        };
        // A timeout keeps what was logged so far.
        let _ = tokio::time::timeout(SCHEMAS_TIMEOUT, read).await;
    }
}

/// Client input that does not reach the agents of an upstream.
#[derive(Debug, Default)]
struct Losses {
    /// One line for each kind.
    lines: Vec<String>,
    /// Whether a key of the configuration is the reason: one of an agent whose graph lacks it, or one
    /// of the upstream that each of its graphs lacks. An agent without need for its clients' tools is
    /// not at fault.
    is_mistake: bool,
}

async fn losses(agents: &Agents, finding: &Finding) -> Losses {
    let Some((upstream, listed)) = finding.listed() else { return Losses::default() };
    let mut found: IndexMap<String, Vec<&str>> = IndexMap::new();
    // Of each agent whose key is configured: whether the key is its own, and whether it is lost.
    let mut keys = Vec::new();
    let read = async {
        for Listed { id, .. } in listed.iter().take(MAX_SCHEMAS) {
            let Ok(agent) = agents.find(id, &Caller::default()) else { continue };
            let input = agent.input_keys().await;
            for loss in agent.losses_of(&input) {
                found.entry(loss).or_default().push(id);
            }
            if agents.has_messages_key(&agent) && matches!(*input, InputKeys::Known(_)) {
                let is_lost = input.lacks(agent.upstream.messages_key().as_str());
                keys.push((agents.has_own_messages_key(&agent), is_lost));
            }
        }
    };
    // A timeout keeps what was found so far.
    let _ = tokio::time::timeout(SCHEMAS_TIMEOUT, read).await;
    let line = |(loss, ids): (String, Vec<&str>)| {
        format!("upstream {upstream}: {}: {loss}", ids.join(", "))
    };
    let mut shared = keys.iter().filter(|(is_own, _)| !is_own).peekable();
    let is_mistake = keys.iter().any(|(is_own, is_lost)| *is_own && *is_lost)
        || shared.peek().is_some() && shared.all(|(_, is_lost)| *is_lost);
    Losses { lines: found.into_iter().map(line).collect(), is_mistake }
}

/// A line for each configured name that no agent has. `listed` are the agents of every upstream, by
/// its name.
fn unknown_names(
    agents: &Agents,
    named: &[NamedAgent],
    listed: &[(&str, &[Listed])],
) -> Vec<String> {
    let of_upstream = |(upstream, listed): &(&str, &[Listed])| {
        let own = |agent: &Listed| {
            let graph = agent.is_of_graph.then_some(&agent.graph_id);
            let names = graph.into_iter().chain([&agent.assistant_id]);
            names.map(|name| agents.name_at(upstream, name)).collect::<Vec<_>>()
        };
        listed.iter().flat_map(own).collect::<Vec<_>>()
    };
    let own: BTreeSet<_> = listed.iter().flat_map(of_upstream).collect();
    let is_alias = |name: &str| agents.aliases().iter().any(|(alias, _)| alias == name);
    let aliases = agents.aliases().iter().filter(|(_, own_name)| !own.contains(own_name));
    let aliases = aliases.map(|(alias, own_name)| (format!("alias {alias}"), own_name));
    let others = named.iter().filter(|named| !own.contains(&named.name) && !is_alias(&named.name));
    let others = others.map(|NamedAgent { place, name }| (place.clone(), name));
    let known = listed.iter().flat_map(|(_, listed)| listed.iter().map(|agent| &*agent.id));
    let known: Vec<_> = known.collect();
    let line = |(place, name): (String, &String)| {
        let near = nearest(name, known.iter().copied());
        let near = near.map(|near| format!("; the nearest name is `{near}`")).unwrap_or_default();
        format!("{place}: there is no agent `{name}`{near}")
    };
    aliases.chain(others).map(line).collect()
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
        Ok(agents) => Verdict::Serves { server, agents },
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

    /// The upstream's name and its agents, if they are known.
    fn listed(&self) -> Option<(&str, &[Listed])> {
        match &self.verdict {
            Verdict::Serves { agents, .. } => Some((&self.upstream, agents)),
            Verdict::Guarded(_)
            | Verdict::Open(..)
            | Verdict::NotJudged(_)
            | Verdict::NoAgents(_)
            | Verdict::Away(_)
            | Verdict::NotLangGraph(_)
            | Verdict::KeyRefused(..)
            | Verdict::Refuses(_) => None,
        }
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
                let names: Vec<_> = agents.iter().map(|agent| &*agent.id).collect();
                write!(f, "{server}, {count} {agent}: {}", names.join(", "))
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
    use crate::upstream::Client;

    #[test]
    fn a_name_is_unknown_if_no_agent_has_it_by_any_of_its_names() {
        let pair = |place: &str, name: &str| (place.to_owned(), name.to_owned());
        let listed = |id: &str, is_of_graph| Listed {
            id: id.to_owned(),
            name: id.to_owned(),
            description: None,
            graph_id: "agent".to_owned(),
            assistant_id: format!("id-{id}"),
            is_of_graph,
        };
        let client = |name: &str| {
            let client = Client::new("http://127.0.0.1:1".parse().unwrap(), None).unwrap();
            Upstream { name: name.to_owned(), client }
        };
        let aliases =
            vec![pair("good", "agent"), pair("idle", "nobody"), pair("by-id", "id-tuned")];
        let agents = Agents::new(vec![client("only")], aliases);
        // The list has an alias in place of nothing, and an assistant that a person has made.
        let all = [listed("good", true), listed("agent", true), listed("tuned", false)];
        let named = [
            ("acp.agent", "nobody"),
            ("agents.agnt", "agnt"),
            ("agents.agent", "agent"),
            ("agents.good", "good"),
            ("agents.idle", "idle"),
            ("agents.id-agent", "id-agent"),
        ];
        let named = named.map(|(place, name)| NamedAgent::new(place, name));
        assert_eq!(
            unknown_names(&agents, &named, &[("only", &all)]),
            [
                "alias idle: there is no agent `nobody`",
                "acp.agent: there is no agent `nobody`",
                "agents.agnt: there is no agent `agnt`; the nearest name is `agent`",
            ]
        );
        // With several upstreams each name has the prefix of its own.
        let agents = Agents::new(vec![client("a"), client("b")], Vec::new());
        let all = [listed("a:agent", true)];
        let named = [("x", "agent"), ("y", "a:agent"), ("z", "b:agent")];
        let named = named.map(|(place, name)| NamedAgent::new(place, name));
        let lines = unknown_names(&agents, &named, &[("a", &all), ("b", &[])]);
        assert_eq!(lines.len(), 2, "{lines:?}");
    }
}
