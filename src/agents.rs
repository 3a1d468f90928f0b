//! Agents: the assistants of all upstreams, under the names that clients use.
//!
//! With one upstream an agent has its own name: that of a graph, or an assistant's id. With several
//! upstreams the name is `upstream:name`, so that it means the same whichever of them is available.
//! The configuration may give any agent an alias.
//!
//! - `agent`: one agent for one caller. `listing`: the agents of an upstream, as clients see them.
//! - `facts`: a cache for what servers say about themselves.

mod agent;
mod facts;
mod listing;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::JoinQueue;

pub(crate) use agent::AgentServer;
pub use agent::{Agent, FACTS_TIMEOUT};
pub use facts::FACTS_AGE;
pub use listing::ListedAgent;
pub(crate) use listing::Listing;
pub(crate) use threadway_translate::langgraph::{ConfigField, InputKeys, MessagesKey, ModelInput};

use crate::metrics::Answer;
use crate::sync::Mutex;
use crate::upstream::{Caller, Client, Error, Identity};
use agent::{AgentKey, AgentPresence};
use facts::Facts;
use threadway_translate::langgraph::{Capabilities, ServerInfo};
use threadway_translate::run::EmitOptions;

/// How long an upstream may take to say that it is ready. Orchestrators wait a few seconds.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The longest name that is looked up, in bytes. Assistants' ids are UUIDs, and graphs have short
/// names.
const MAX_NAME_BYTES: usize = 256;

/// The agents of all upstreams. Clones share a cache.
#[derive(Clone, Debug)]
pub struct Agents {
    directory: Arc<Directory>,
    emits: Arc<Emits>,
    messages_keys: Arc<MessagesKeys>,
}

/// The state keys that hold the conversations of graphs, by the agent's name. Agents without an
/// entry use their upstream's key.
pub type MessagesKeys = HashMap<String, MessagesKey>;

/// Which events viewers of each agent's runs get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Emits {
    /// For agents without an entry in `by_agent`.
    pub default: EmitOptions,
    /// By the name that clients use.
    pub by_agent: HashMap<String, EmitOptions>,
}

/// The configured upstreams and aliases, and what is remembered of them.
#[derive(Debug)]
struct Directory {
    upstreams: Vec<Upstream>,
    /// Pairs of an alias and the agent's own name.
    aliases: Vec<(String, String)>,
    input_keys: Facts<AgentKey, Arc<InputKeys>>,
    config_fields: Facts<AgentKey, Vec<ConfigField>>,
    model_inputs: Facts<AgentKey, ModelInput>,
    presences: Facts<AgentKey, AgentPresence>,
    /// By the index of the upstream.
    capabilities: Facts<usize, Capabilities>,
    /// What clients send that an agent does not get, as of its last input keys that apply to all
    /// callers.
    losses: Mutex<HashMap<AgentKey, Vec<String>>>,
    /// The losses that have been logged.
    logged: Mutex<HashSet<(AgentKey, String)>>,
}

/// A LangGraph server and its name.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// The name in the configuration.
    pub name: String,
    /// The server, for a caller without credentials.
    pub client: Client,
}

/// An upstream's answer to the question whether it is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probed {
    /// The upstream's name in the configuration.
    pub(crate) upstream: String,
    /// The result, as metrics count it.
    pub(crate) answer: Answer,
}

/// No upstream can have an agent of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownAgent {
    name: String,
    upstreams: Vec<String>,
}

// === impl Emits ===

impl Emits {
    /// The same options, limited to those that apply to editors.
    #[must_use]
    pub fn for_editors(&self) -> Self {
        let by_agent = self.by_agent.iter();
        let by_agent = by_agent.map(|(agent, emit)| (agent.clone(), emit.for_editors()));
        Self { default: self.default.for_editors(), by_agent: by_agent.collect() }
    }
}

// === impl Agents ===

impl Agents {
    /// The agents of these upstreams. `aliases` has pairs of an alias and an agent's own name.
    pub fn new(upstreams: Vec<Upstream>, aliases: Vec<(String, String)>) -> Self {
        let directory = Directory {
            upstreams,
            aliases,
            input_keys: Facts::default(),
            config_fields: Facts::default(),
            model_inputs: Facts::default(),
            presences: Facts::default(),
            capabilities: Facts::default(),
            losses: Mutex::default(),
            logged: Mutex::default(),
        };
        Self {
            directory: Arc::new(directory),
            emits: Arc::default(),
            messages_keys: Arc::default(),
        }
    }

    /// Sets which events viewers of each agent's runs get.
    #[must_use]
    pub fn with_emits(self, emits: Emits) -> Self {
        Self { emits: Arc::new(emits), ..self }
    }

    /// Sets the state keys of agents whose key is not that of their upstream.
    #[must_use]
    pub fn with_messages_keys(self, keys: MessagesKeys) -> Self {
        Self { messages_keys: Arc::new(keys), ..self }
    }

    /// The same agents, with the options of `[emit]` that apply to editors.
    #[must_use]
    pub(crate) fn for_editors(&self) -> Self {
        self.clone().with_emits(self.emits.for_editors())
    }

    /// The upstreams, in the configuration's order.
    pub fn upstreams(&self) -> &[Upstream] {
        &self.directory.upstreams
    }

    /// Sets when nothing waits for a turn at an upstream any more.
    pub(crate) fn stop_waiting_at(&self, shutdown: &CancellationToken) {
        self.upstreams().iter().for_each(|upstream| upstream.client.stop_waiting_at(shutdown));
    }

    /// Says of each upstream whether it gets the credentials of callers, a line for each. Empty for
    /// a single upstream that does.
    pub fn identity_lines(&self) -> Vec<String> {
        let upstreams = self.upstreams();
        let is_withheld =
            upstreams.iter().any(|upstream| upstream.client.identity() == Identity::Withheld);
        if upstreams.len() < 2 && !is_withheld {
            return Vec::new();
        }
        upstreams.iter().map(Upstream::identity_line).collect()
    }

    /// Says of each upstream with several addresses in which order they are tried, a line for each.
    pub fn address_lines(&self) -> Vec<String> {
        self.upstreams().iter().filter_map(Upstream::address_line).collect()
    }

    /// The upstream of an agent.
    pub fn upstream_of(&self, agent: &Agent) -> Option<&Upstream> {
        self.directory.upstreams.get(agent.upstream_index)
    }

    /// The client's name for the agent that an upstream calls `own_name`.
    pub(crate) fn name_at(&self, upstream: &str, own_name: &str) -> String {
        match self.upstreams() {
            [_] => own_name.to_owned(),
            _ => format!("{upstream}:{own_name}"),
        }
    }

    /// Whether the configuration has a messages key for this agent alone.
    pub(crate) fn has_own_messages_key(&self, agent: &Agent) -> bool {
        let own_name =
            self.upstream_of(agent).map(|upstream| self.name_at(&upstream.name, &agent.assistant));
        [Some(&*agent.name), own_name.as_deref()]
            .into_iter()
            .flatten()
            .any(|name| self.messages_keys.contains_key(name))
    }

    /// Whether the configuration has a messages key for this agent, or another than the default for
    /// its upstream.
    pub(crate) fn has_messages_key(&self, agent: &Agent) -> bool {
        *agent.upstream.messages_key() != MessagesKey::MESSAGES || self.has_own_messages_key(agent)
    }

    /// The agent of a name, for a caller. Sends no request: the server may not have the agent.
    pub fn find(&self, name: &str, caller: &Caller) -> Result<Agent, UnknownAgent> {
        let Directory { upstreams, aliases, .. } = &*self.directory;
        let is_short = name.len() <= MAX_NAME_BYTES;
        let alias = aliases.iter().find(|(alias, _)| alias == name);
        let own_name = alias.map_or(name, |(_, own_name)| own_name);
        let found = match upstreams.as_slice() {
            [only] => Some((0, only, own_name)),
            several => own_name.split_once(':').and_then(|(upstream, assistant)| {
                let index = several.iter().position(|other| other.name == upstream)?;
                Some((index, several.get(index)?, assistant))
            }),
        };
        let (upstream_index, upstream, assistant) =
            found.filter(|_| is_short).ok_or_else(|| UnknownAgent {
                name: name.to_owned(),
                upstreams: upstreams.iter().map(|upstream| upstream.name.clone()).collect(),
            })?;
        let mut upstream = upstream.client.called_by(caller);
        if let Some(key) = self.messages_keys.get(name).or_else(|| self.messages_keys.get(own_name))
        {
            upstream = upstream.with_messages_key(key.clone());
        }
        let Emits { default, by_agent } = &*self.emits;
        let emit = by_agent.get(name).or_else(|| by_agent.get(own_name)).copied();
        Ok(Agent {
            name: Arc::from(name),
            upstream,
            assistant: assistant.to_owned(),
            emit: emit.unwrap_or(*default),
            upstream_index,
            directory: Arc::clone(&self.directory),
        })
    }

    /// Lists the agents of all upstreams that a caller may see. The upstreams are asked at the same
    /// time, and listed in the configuration's order.
    pub(crate) async fn list(&self, caller: &Caller) -> Vec<Listing> {
        let listings = self
            .ask_all(|Upstream { name, client }| {
                Upstream { name, client: client.called_by(caller) }.list_in_time()
            })
            .await;
        listings.into_iter().map(|listing| self.with_client_names(listing)).collect()
    }

    /// Lists the agents of one upstream.
    pub(crate) async fn list_of(&self, upstream: &Upstream) -> Listing {
        self.with_client_names(upstream.clone().list().await)
    }

    /// Lists the agents of an agent's upstream, for the caller of that agent.
    pub(crate) async fn list_beside(&self, agent: &Agent) -> Listing {
        let name = self.upstream_of(agent).map(|upstream| upstream.name.clone());
        let upstream = Upstream { name: name.unwrap_or_default(), client: agent.upstream.clone() };
        self.with_client_names(upstream.list_in_time().await)
    }

    /// Pairs of an alias and the agent's own name.
    pub(crate) fn aliases(&self) -> &[(String, String)] {
        &self.directory.aliases
    }

    /// Asks all upstreams at the same time whether they are ready. Returns the answers in the
    /// configuration's order.
    pub(crate) async fn probe(&self) -> Vec<Probed> {
        self.ask_all(Upstream::probe).await
    }

    /// Asks all upstreams at the same time which server they are. Returns the answers with the
    /// upstreams' names, in the configuration's order.
    pub(crate) async fn infos(&self) -> Vec<(String, Result<ServerInfo, Error>)> {
        self.ask_all(async |Upstream { name, client }| (name, client.info().await)).await
    }

    async fn ask_all<T, F>(&self, ask: impl Fn(Upstream) -> F) -> Vec<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let mut tasks = JoinQueue::new();
        for upstream in &self.directory.upstreams {
            tasks.spawn(ask(upstream.clone()));
        }
        let mut answers = Vec::new();
        while let Some(answer) = tasks.join_next().await {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(error) => {
                    tracing::error!(%error, "an upstream's task failed; please report this");
                }
            }
        }
        answers
    }

    fn with_client_names(&self, listing: Listing) -> Listing {
        let Directory { upstreams, aliases, .. } = &*self.directory;
        listing.with_client_names(upstreams.len() > 1, aliases)
    }
}

// === impl Upstream ===

impl Upstream {
    fn address_line(&self) -> Option<String> {
        let Self { name, client } = self;
        let addresses = client.each_address();
        let [first, others @ ..] = addresses.as_slice() else { return None };
        let others: Vec<_> = others.iter().map(|other| other.base().to_string()).collect();
        let (first, others) = (first.base(), others.join(", then "));
        (!others.is_empty()).then(|| {
            format!("upstream {name}: requests go to {first}; while it is away, to {others}")
        })
    }

    /// Says whether the upstream gets the credentials of callers.
    fn identity_line(&self) -> String {
        let Self { name, client } = self;
        let base = client.base();
        match client.identity() {
            Identity::Forwarded => {
                format!("upstream {name} ({base}) gets the credentials of each caller")
            }
            Identity::Withheld => format!(
                "upstream {name} ({base}) gets no credentials of callers: every caller sees there \
                 what the gateway itself may see"
            ),
        }
    }

    async fn probe(self) -> Probed {
        let Self { name, client } = self;
        let answer = match tokio::time::timeout(PROBE_TIMEOUT, client.probe()).await {
            Ok(Ok(())) => Answer::Ok,
            Ok(Err(error)) => error.answer(),
            Err(_) => Answer::Timeout,
        };
        Probed { upstream: name, answer }
    }
}

// === impl UnknownAgent ===

impl fmt::Display for UnknownAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, upstreams } = self;
        if name.len() > MAX_NAME_BYTES {
            return write!(f, "no agent has a name of more than {MAX_NAME_BYTES} bytes");
        }
        write!(
            f,
            "there is no agent `{name}`; with several upstreams an agent's name begins with its \
             upstream's and a colon: {}",
            upstreams.iter().map(|name| format!("`{name}:..`")).collect::<Vec<_>>().join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agents(aliases: &[(&str, &str)]) -> Agents {
        let client = Client::new("http://127.0.0.1:1".parse().unwrap(), None).unwrap();
        let upstream = Upstream { name: "only".to_owned(), client };
        let pair = |(alias, name): &(&str, &str)| ((*alias).to_owned(), (*name).to_owned());
        Agents::new(vec![upstream], aliases.iter().map(pair).collect())
    }

    #[test]
    fn an_alias_is_found_before_an_agent_of_its_name() {
        let agents = agents(&[("a", "b")]);
        assert_eq!(agents.find("a", &Caller::default()).unwrap().assistant, "b");
    }

    #[test]
    fn a_name_that_is_too_long_is_not_found() {
        let agents = agents(&[]);
        assert!(agents.find(&"x".repeat(MAX_NAME_BYTES), &Caller::default()).is_ok());
        let unknown = agents.find(&"x".repeat(MAX_NAME_BYTES + 1), &Caller::default()).unwrap_err();
        assert!(unknown.to_string().starts_with("no agent has a name"), "{unknown}");
    }
}
