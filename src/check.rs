//! `threadway check`: tries each address of each upstream and reports what is wrong.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use indexmap::IndexMap;

use crate::agents::{Agent, Agents, InputKeys, ListedAgent, Listing, Upstream};
use crate::config::{Config, DEFAULT_UPSTREAM, NamedAgent};
use crate::nearest::nearest;
use crate::server::isolation::{self, CredentialCheck};
use crate::server::{Auth, Settings};
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

/// What `serve` prints of an upstream at its start.
#[derive(Debug)]
pub struct UpstreamReport {
    /// The upstream's name in the configuration.
    pub upstream: String,
    /// A line about which server it is and what that lacks, if this is known.
    pub server: Option<String>,
    /// What can be run there.
    pub presence: RunnableAgents,
}

/// What can be run at an upstream when `serve` starts.
#[derive(Debug)]
pub enum RunnableAgents {
    /// These agents.
    Agents(Vec<ListedAgent>),
    /// Nothing: it has no agents.
    NoAgents,
    /// Agents that only callers with credentials can list.
    Guarded,
    /// Nothing yet: what is wrong, and what to do about it.
    Wrong(String),
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
    Serves { server: Server, agents: Vec<ListedAgent> },
    /// A LangGraph server that requires credentials of each caller, and refuses invented ones.
    Guarded(Server),
    /// A LangGraph server that accepts invented credentials, although the configuration relies on
    /// it to check them.
    Open(Server, CredentialCheck),
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

/// What `serve` prints of each upstream at its start. It leaves out what the servers say, because it
/// becomes part of the log.
pub async fn introduce(agents: &Agents, auth: &Auth) -> Vec<UpstreamReport> {
    let caller = Caller::default();
    let (mut infos, listings) = tokio::join!(agents.infos(), agents.list(&caller));
    let introduced =
        listings.into_iter().filter_map(|Listing { upstream, agents: listed, .. }| {
            let upstream = agents.upstreams().iter().find(|known| known.name == upstream)?;
            let at = infos.iter().position(|(name, _)| *name == upstream.name)?;
            let (_, info) = infos.swap_remove(at);
            Some(UpstreamReport::of(upstream, info, listed, auth))
        });
    introduced.collect()
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
pub struct ConfigWarnings {
    /// A line for each name that no agent has.
    unknown: Vec<String>,
    /// The agents whose graphs may lack the configured key of their conversation.
    keyed: Vec<Agent>,
}

impl ConfigWarnings {
    /// The doubts about a configuration that names these agents.
    pub fn of(agents: &Agents, named: &[NamedAgent], introduced: &[UpstreamReport]) -> Self {
        let listed = introduced.iter().map(|UpstreamReport { upstream, presence, .. }| {
            let listed: &[ListedAgent] = match presence {
                RunnableAgents::Agents(agents) => agents,
                RunnableAgents::NoAgents => &[],
                RunnableAgents::Guarded | RunnableAgents::Wrong(_) => return None,
            };
            Some((upstream.as_str(), listed))
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
        for ListedAgent { id, .. } in listed.iter().take(MAX_SCHEMAS) {
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
    listed: &[(&str, &[ListedAgent])],
) -> Vec<String> {
    let of_upstream = |(upstream, found): &(&str, &[ListedAgent])| {
        let own = |agent: &ListedAgent| {
            let graph = agent.is_of_graph.then_some(&agent.graph_id);
            let ids = graph.into_iter().chain([&agent.assistant_id]);
            ids.map(|id| agents.name_at(upstream, id)).collect::<Vec<_>>()
        };
        found.iter().flat_map(own).collect::<Vec<_>>()
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
    let info = match upstream.client.info().await {
        Err(error) if !may_be_unknown(&error) => {
            return Verdict::of(upstream, error, Verdict::NotLangGraph);
        }
        info => info,
    };
    let listed = agents.list_of(upstream).await.agents;
    let server = match Server::of(info, &listed) {
        Ok(server) => server,
        Err(error) => return Verdict::of(upstream, error, Verdict::NotLangGraph),
    };
    let Settings { auth, forward, .. } = settings;
    match isolation::judge(&upstream.client, auth, forward).await {
        None | Some(Ok(CredentialCheck::Refuses)) => {}
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

/// Whether a server failed to answer, so that its answer does not show which server it is.
fn is_own_failure(error: &Error) -> bool {
    matches!(error, Error::Status { code: 500.., .. })
}

// === impl UpstreamReport ===

impl UpstreamReport {
    /// `listed` are the agents that the upstream lists for the gateway itself.
    fn of(
        upstream: &Upstream,
        info: Result<ServerInfo, Error>,
        listed: Result<Vec<ListedAgent>, Error>,
        auth: &Auth,
    ) -> Self {
        let server = Server::of(info, &listed);
        let line = server.as_ref().ok().map(|server| server.line(&upstream.name));
        let presence = match (server, listed) {
            (_, Ok(agents)) if !agents.is_empty() => RunnableAgents::Agents(agents),
            // Whatever guards the list may guard `GET /info` too.
            (server, Err(error))
                if error.is_unauthorized()
                    && auth.is_for_langgraph()
                    && server.as_ref().err().is_none_or(Error::is_unauthorized) =>
            {
                RunnableAgents::Guarded
            }
            (Err(error), _) => {
                let verdict = Verdict::of(upstream, error.unexplained(), Verdict::NotLangGraph);
                RunnableAgents::Wrong(verdict.prognosis())
            }
            (Ok(_), Ok(_)) => RunnableAgents::NoAgents,
            (Ok(_), Err(error)) => {
                let verdict = Verdict::of(upstream, error.unexplained(), Verdict::Refuses);
                RunnableAgents::Wrong(verdict.prognosis())
            }
        };
        Self { upstream: upstream.name.clone(), server: line, presence }
    }
}

// === impl Server ===

impl Server {
    /// The server that answers `GET /info` and the list of agents so. A server that threadway does
    /// not know has LangGraph's API if it has agents.
    fn of(
        info: Result<ServerInfo, Error>,
        listed: &Result<Vec<ListedAgent>, Error>,
    ) -> Result<Self, Error> {
        let has_agents = listed.as_ref().is_ok_and(|agents| !agents.is_empty());
        match info {
            Ok(server) => Ok(Self::Known(server)),
            Err(error) if may_be_unknown(&error) && has_agents => Ok(Self::Unknown),
            Err(error) => Err(error),
        }
    }

    /// A line about the server of an upstream and what it lacks.
    fn line(&self, upstream: &str) -> String {
        let limits = self.capabilities().limits().join("; ");
        let limits = if limits.is_empty() { limits } else { format!("; its limits: {limits}") };
        format!("upstream {upstream}: {self}{limits}")
    }

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
            | Error::Crowded
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
            | Error::TooLarge { .. }
            | Error::NoRoom(_) => other(error),
        }
    }

    /// The verdict on an upstream whose agents are not listed, and when they will be served.
    fn prognosis(&self) -> String {
        let later = match self {
            Self::NotLangGraph(error) if !is_own_failure(error) => return self.to_string(),
            Self::KeyRefused(..) => "accepts the key",
            Self::Serves { .. }
            | Self::Guarded(_)
            | Self::Open(..)
            | Self::NotJudged(_)
            | Self::NoAgents(_)
            | Self::Away(_)
            | Self::NotLangGraph(_)
            | Self::Refuses(_) => "answers",
        };
        format!("{self}; its agents are served once it {later}")
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
    fn listed(&self) -> Option<(&str, &[ListedAgent])> {
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
            Self::NotLangGraph(error) => {
                let reason = error.explained().replacen("the LangGraph server", "the server", 1);
                if is_own_failure(error) {
                    write!(
                        f,
                        "this does not look like a LangGraph server ({reason}); look into its log, \
                         or check the URL and its path"
                    )
                } else {
                    write!(
                        f,
                        "this is not a LangGraph server ({reason}); check the URL and its path"
                    )
                }
            }
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
        let listed = |id: &str, is_of_graph| ListedAgent {
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
