//! Who can be run: the assistants of all upstreams, under the names that clients use.
//!
//! With one upstream an agent goes by its own name: that of a graph, or an assistant's id. With
//! several it goes by `upstream:name`, so that a name means the same whichever of them is up.
//! The configuration may give any of them an alias.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::task::JoinQueue;
use uuid::Uuid;

pub use threadway_translate::langgraph::{ConfigField, InputKeys, MessagesKey};

use crate::flights::Flights;
use crate::metrics::Answer;
use crate::sync::{Guard, Mutex};
use crate::upstream::{Access, Caller, Client, Error, Identity};
use threadway_translate::agui::Brought;
use threadway_translate::langgraph::{Assistant, ServerKind};
use threadway_translate::run::Emit;

/// How long what a server has told of itself is taken for true: it may be deployed anew.
pub const FACTS_AGE: Duration = Duration::from_mins(1);

/// How long a run waits for its server's kind and its agent's input keys. If the keys do not come
/// in time, only the client's messages are sent, and none of its state. A caller that asks while
/// another of its requests asks the same may wait for both, and so twice as long.
pub const FACTS_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an upstream may take to say that it is ready: orchestrators wait a few seconds.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long an upstream may take to tell its agents: a person waits for the list, and the agents
/// of the other upstreams with it. CopilotKit's client gives up on all of them after 5 s.
pub const LIST_TIMEOUT: Duration = Duration::from_secs(4);

/// The longest name that is looked for, in bytes: assistants go by UUIDs, graphs by words.
const MAX_NAME_BYTES: usize = 256;

/// How many facts of a kind are remembered: more than the assistants of a server that are listed.
const MAX_FACTS: usize = 2_000;

/// The agents of all upstreams. Clones share what they remember.
#[derive(Clone, Debug)]
pub struct Agents {
    directory: Arc<Directory>,
    emits: Arc<Emits>,
    messages_keys: Arc<MessagesKeys>,
}

/// The keys under which graphs keep their conversations, by the name of an agent; of others the
/// upstream's counts.
pub type MessagesKeys = HashMap<String, MessagesKey>;

/// What viewers are shown of each agent's runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Emits {
    /// Of agents that have no options of their own.
    pub default: Emit,
    /// By the name that clients run an agent by.
    pub by_agent: HashMap<String, Emit>,
}

#[derive(Debug)]
struct Directory {
    upstreams: Vec<Upstream>,
    /// By alias: the agent's name.
    aliases: Vec<(String, String)>,
    /// By upstream and assistant. What one caller is not shown says nothing of what others are.
    keys: Facts<(usize, String), Arc<InputKeys>>,
    /// By upstream.
    kinds: Facts<usize, Option<ServerKind>>,
    /// What clients bring that does not reach an agent, as was told when its input was read last:
    /// only of what the server says to all. Empty where all of it does.
    losses: Mutex<HashMap<(usize, String), Vec<String>>>,
    /// Which losses have been logged, by agent.
    logged: Mutex<HashSet<(usize, String, String)>>,
}

/// Answers of servers about themselves. Each is kept for [`FACTS_AGE`], for all callers or for the
/// one that asked.
#[derive(Debug)]
struct Facts<K, V> {
    remembered: Mutex<Remembered<K, V>>,
    /// What is being found out.
    asked: Flights<(K, Access), V>,
}

/// Facts by what they are about and whom they are for, `None` being all callers; until when each is
/// taken for true.
type Remembered<K, V> = HashMap<(K, Option<Caller>), (V, Instant)>;

/// For whom something that was found out is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// For all: the server has said it, and would say the same to anybody.
    Everyone,
    /// For the caller alone: others may be answered otherwise.
    Caller,
    /// For nobody: the next request may be answered otherwise.
    Nobody,
}

/// A LangGraph server, as the configuration calls it.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Its name.
    pub name: String,
    /// The server.
    pub client: Client,
}

/// An agent that a client has named. Whether its server has it is not known yet.
#[derive(Clone, Debug)]
pub struct Agent {
    /// What the client has called it.
    pub name: Arc<str>,
    /// Where it is.
    pub upstream: Client,
    /// What its server calls it: a graph, or an assistant's id.
    pub assistant: String,
    /// What viewers are shown of its runs.
    pub emit: Emit,
    /// The place of its upstream.
    at: usize,
    /// What is remembered of it.
    directory: Arc<Directory>,
}

/// An agent as it is told to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name to run it by.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// The graph that it runs.
    pub graph_id: String,
    /// The assistant's id: another name to run it by.
    pub assistant_id: String,
}

/// What one upstream has answered.
#[derive(Debug)]
pub struct Listing {
    /// The upstream's name.
    pub upstream: String,
    /// Who asked, as the upstream sees it.
    pub caller: Caller,
    /// Its agents, or why it did not tell them.
    pub agents: Result<Vec<Listed>, Error>,
}

/// What an upstream has answered that was asked whether it is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    /// The upstream's name.
    pub upstream: String,
    /// What came of asking it.
    pub answer: Answer,
}

/// A name that no upstream can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownAgent {
    name: String,
    upstreams: Vec<String>,
}

// === impl Emits ===

impl Emits {
    /// The options that apply to editors.
    #[must_use]
    pub fn for_editors(&self) -> Self {
        let by_agent = self.by_agent.iter();
        let by_agent = by_agent.map(|(agent, emit)| (agent.clone(), emit.for_editors()));
        Self { default: self.default.for_editors(), by_agent: by_agent.collect() }
    }
}

// === impl Agents ===

impl Agents {
    /// The agents of these upstreams, and other names for some of them.
    pub fn new(upstreams: Vec<Upstream>, aliases: Vec<(String, String)>) -> Self {
        let directory = Directory {
            upstreams,
            aliases,
            keys: Facts::default(),
            kinds: Facts::default(),
            losses: Mutex::default(),
            logged: Mutex::default(),
        };
        Self {
            directory: Arc::new(directory),
            emits: Arc::default(),
            messages_keys: Arc::default(),
        }
    }

    /// The same agents, whose viewers are shown this of their runs.
    #[must_use]
    pub fn with_emits(self, emits: Emits) -> Self {
        Self { emits: Arc::new(emits), ..self }
    }

    /// The same agents, some of which keep their conversations under other keys than their upstream's
    /// others.
    #[must_use]
    pub fn with_messages_keys(self, keys: MessagesKeys) -> Self {
        Self { messages_keys: Arc::new(keys), ..self }
    }

    /// The upstreams.
    pub fn upstreams(&self) -> &[Upstream] {
        &self.directory.upstreams
    }

    /// What each upstream is sent of its callers, a line for each; nothing where the only one is
    /// sent all.
    pub fn identity_lines(&self) -> Vec<String> {
        let upstreams = self.upstreams();
        let is_withheld =
            upstreams.iter().any(|upstream| upstream.client.identity() == Identity::Withheld);
        if upstreams.len() < 2 && !is_withheld {
            return Vec::new();
        }
        upstreams.iter().map(Upstream::identity_line).collect()
    }

    /// The upstream of an agent.
    pub fn upstream_of(&self, agent: &Agent) -> Option<&Upstream> {
        self.directory.upstreams.get(agent.at)
    }

    /// The name by which clients run an agent of an upstream.
    pub fn name_at(&self, upstream: &Upstream, own_name: &str) -> String {
        match self.upstreams() {
            [_] => own_name.to_owned(),
            _ => format!("{}:{own_name}", upstream.name),
        }
    }

    /// The agent that goes by a name, for a caller.
    pub fn find(&self, name: &str, caller: &Caller) -> Result<Agent, UnknownAgent> {
        let Directory { upstreams, aliases, .. } = &*self.directory;
        let is_short = name.len() <= MAX_NAME_BYTES;
        let alias = aliases.iter().find(|(alias, _)| alias == name);
        let own_name = alias.map_or(name, |(_, own_name)| own_name);
        let found = match upstreams.as_slice() {
            [only] => Some((0, only, own_name)),
            several => own_name.split_once(':').and_then(|(upstream, assistant)| {
                let at = several.iter().position(|other| other.name == upstream)?;
                Some((at, several.get(at)?, assistant))
            }),
        };
        let (at, upstream, assistant) = found.filter(|_| is_short).ok_or_else(|| UnknownAgent {
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
            at,
            directory: Arc::clone(&self.directory),
        })
    }

    /// Asks every upstream for its agents that a caller may see, all at once, in the
    /// configuration's order.
    pub async fn list(&self, caller: &Caller) -> Vec<Listing> {
        let listings = self
            .ask_all(|Upstream { name, client }| {
                Upstream { name, client: client.called_by(caller) }.list()
            })
            .await;
        listings.into_iter().map(|listing| self.rename(listing)).collect()
    }

    /// Asks one upstream for its agents.
    pub async fn list_of(&self, upstream: &Upstream) -> Listing {
        self.rename(upstream.clone().list().await)
    }

    /// Asks the upstream of an agent for its agents, as the caller of that agent.
    pub async fn list_beside(&self, agent: &Agent) -> Listing {
        let name = self.upstream_of(agent).map(|upstream| upstream.name.clone());
        let upstream = Upstream { name: name.unwrap_or_default(), client: agent.upstream.clone() };
        self.rename(upstream.list().await)
    }

    /// The other names of agents: each alias, and the agent's own name.
    pub(crate) fn aliases(&self) -> &[(String, String)] {
        &self.directory.aliases
    }

    /// Asks every upstream whether it is ready, all at once, in the configuration's order.
    pub async fn probe(&self) -> Vec<Probed> {
        self.ask_all(Upstream::probe).await
    }

    async fn ask_all<T, F>(&self, ask: impl Fn(Upstream) -> F) -> Vec<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let mut asked = JoinQueue::new();
        for upstream in &self.directory.upstreams {
            asked.spawn(ask(upstream.clone()));
        }
        let mut answers = Vec::new();
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(error) => {
                    tracing::error!(%error, "an upstream's task failed; please report this");
                }
            }
        }
        answers
    }

    /// Gives the agents of an upstream the names that they are run by, and lists their aliases.
    fn rename(&self, mut listing: Listing) -> Listing {
        let Directory { upstreams, aliases, .. } = &*self.directory;
        let Listing { upstream, agents: Ok(agents), .. } = &mut listing else { return listing };
        if upstreams.len() > 1 {
            for agent in &mut *agents {
                agent.id = format!("{upstream}:{}", agent.id);
            }
        }
        let named = aliases.iter().filter_map(|(alias, own_name)| {
            let agent = agents.iter().find(|agent| agent.id == *own_name)?;
            Some(Listed { id: alias.clone(), ..agent.clone() })
        });
        let named: Vec<_> = named.collect();
        // An alias that is also an agent's name hides the agent.
        agents.retain(|agent| aliases.iter().all(|(alias, _)| *alias != agent.id));
        agents.splice(0..0, named);
        listing
    }
}

fn losses(keys: &InputKeys) -> Vec<String> {
    Brought::ALL.into_iter().filter_map(|brought| brought.loss(keys)).collect()
}

async fn told_in_time<T>(told: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    told_by(Instant::now() + FACTS_TIMEOUT, told).await
}

async fn told_by<T>(
    deadline: Instant,
    told: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let told = tokio::time::timeout_at(deadline, told).await;
    told.unwrap_or(Err(Error::Timeout { waited: FACTS_TIMEOUT }))
}

/// Agents under the names that their own server takes.
fn own_names(assistants: Vec<Assistant>) -> Vec<Listed> {
    let mut listed: Vec<_> = assistants
        .into_iter()
        .map(|assistant| {
            let Assistant { id, graph_id, name, description, is_of_graph } = assistant;
            let assistant_id = id.clone();
            let id = if is_of_graph { graph_id.clone() } else { id };
            Listed { id, name, description, graph_id, assistant_id }
        })
        .collect();
    // The servers list them by age, which at their start is chance.
    listed.sort_by(|a, b| (&a.graph_id, &a.name, &a.id).cmp(&(&b.graph_id, &b.name, &b.id)));
    listed
}

// === impl Facts ===

impl<K: Clone + Eq + Hash, V: Clone> Facts<K, V> {
    /// What is known of a key to this caller, else what is found out now. All who ask at the same
    /// time with the same credentials share one reading.
    async fn known_or(
        &self,
        key: K,
        upstream: &Client,
        read: impl AsyncFnOnce() -> (V, Scope),
    ) -> V {
        let caller = upstream.caller();
        if let Some(fact) = self.get(&key, caller) {
            return fact;
        }
        let read = async || {
            // Another reading may have ended between the look above and this one.
            if let Some(fact) = self.get(&key, caller) {
                return fact;
            }
            let (fact, scope) = read().await;
            self.put(key.clone(), caller, fact, scope)
        };
        self.asked.share((key.clone(), upstream.access()), read).await
    }

    fn lock(&self) -> Guard<'_, Remembered<K, V>> {
        self.remembered.lock()
    }

    /// What is known to all, else to this caller.
    fn get(&self, key: &K, caller: &Caller) -> Option<V> {
        let (now, facts) = (Instant::now(), self.lock());
        let mut places = [None, Some(caller)].into_iter();
        places.find_map(|caller| {
            let (fact, until) = facts.get(&(key.clone(), caller.cloned()))?;
            (*until > now).then(|| fact.clone())
        })
    }

    fn put(&self, key: K, caller: &Caller, fact: V, scope: Scope) -> V {
        let caller = match scope {
            Scope::Everyone => None,
            Scope::Caller => Some(caller.clone()),
            Scope::Nobody => return fact,
        };
        let now = Instant::now();
        let mut facts = self.lock();
        // No credentials are kept for longer than they are of use.
        facts.retain(|_, (_, until)| *until > now);
        if facts.len() >= MAX_FACTS {
            // Anyone may make credentials up. What is known to all stays.
            facts.retain(|(_, caller), _| caller.is_none());
        }
        if facts.len() >= MAX_FACTS {
            facts.clear();
        }
        facts.insert((key, caller), (fact.clone(), now + FACTS_AGE));
        fact
    }
}

impl<K, V> Default for Facts<K, V> {
    fn default() -> Self {
        Self { remembered: Mutex::default(), asked: Flights::default() }
    }
}

// === impl Upstream ===

impl Upstream {
    async fn list(self) -> Listing {
        let Self { name, client } = self;
        let told = tokio::time::timeout(LIST_TIMEOUT, client.assistants(None)).await;
        let agents = told.unwrap_or(Err(Error::Timeout { waited: LIST_TIMEOUT }));
        let caller = client.caller().clone();
        Listing { upstream: name, caller, agents: agents.map(own_names) }
    }

    /// What it is sent of its callers.
    fn identity_line(&self) -> String {
        let Self { name, client } = self;
        let base = client.base();
        match client.identity() {
            Identity::Forwarded => {
                format!("upstream {name} ({base}) is sent the credentials of each caller")
            }
            Identity::Withheld => format!(
                "upstream {name} ({base}) is sent no credentials of callers: all see there what \
                 the gateway itself may see"
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

// === impl Agent ===

impl Agent {
    /// The keys that the agent takes as its input, as far as its caller is shown that. They are
    /// unknown if the caller is not shown the agent, or if they cannot be had in time.
    pub async fn input_keys(&self) -> Arc<InputKeys> {
        let read = async || {
            let (keys, scope) = self.read_input_keys().await.unwrap_or_else(|error| {
                let agent = &self.assistant;
                tracing::warn!(agent, %error, "an agent's input keys were not read");
                (InputKeys::Unknown, Scope::Nobody)
            });
            if keys == InputKeys::Unknown {
                tracing::warn!(
                    agent = self.assistant,
                    "only messages go up to this agent: what else it takes is not known"
                );
            }
            if scope == Scope::Everyone {
                self.keep_losses(&keys);
            }
            (Arc::new(keys), scope)
        };
        let place = (self.at, self.assistant.clone());
        self.directory.keys.known_or(place, &self.upstream, read).await
    }

    /// The same as far as it is remembered: nothing is asked for it.
    pub fn known_input_keys(&self) -> Option<Arc<InputKeys>> {
        let place = (self.at, self.assistant.clone());
        self.directory.keys.get(&place, self.upstream.caller())
    }

    /// What clients bring that does not reach the agent, as sentences, as far as it was found out
    /// since the configuration was read. Nothing is asked for it.
    pub fn known_losses(&self) -> Vec<String> {
        if let Some(keys) = self.known_input_keys() {
            return losses(&keys);
        }
        let place = (self.at, self.assistant.clone());
        self.directory.losses.lock().get(&place).cloned().unwrap_or_default()
    }

    /// What clients bring that does not reach the agent, as sentences. None is known if the agent's
    /// input cannot be read.
    pub async fn losses(&self) -> Vec<String> {
        losses(&*self.input_keys().await)
    }

    fn keep_losses(&self, keys: &InputKeys) {
        let place = (self.at, self.assistant.clone());
        let mut kept = self.directory.losses.lock();
        if kept.len() < MAX_FACTS || kept.contains_key(&place) {
            kept.insert(place, losses(keys));
        }
    }

    /// Logs what a client has brought that does not reach the agent: each once, until the
    /// configuration is read again.
    pub fn tell_losses(&self, losses: Vec<String>) {
        for loss in losses {
            let mut logged = self.directory.logged.lock();
            let entry = (self.at, self.assistant.clone(), loss.clone());
            let is_new = logged.len() < MAX_FACTS && logged.insert(entry);
            drop(logged);
            if is_new {
                tracing::warn!(agent = self.assistant, "{loss}");
            }
        }
    }

    /// Reads the input keys, and for whom they are to be remembered.
    async fn read_input_keys(&self) -> Result<(InputKeys, Scope), Error> {
        let deadline = Instant::now() + FACTS_TIMEOUT;
        let Some((id, scope)) = told_by(deadline, self.assistant_id()).await? else {
            // It may be hidden from this caller only.
            return Ok((InputKeys::Unknown, Scope::Nobody));
        };
        match told_by(deadline, self.upstream.input_keys(&id)).await {
            Ok(keys) => Ok((keys, scope)),
            // So the JavaScript server answers of each graph whose state is an `Annotation`, which
            // it has just shown to the caller; on a busy machine it is late with that. It may also
            // have failed, which concerns no other caller.
            Err(Error::Status { code: 500, .. } | Error::Timeout { .. })
                if self.server_kind().await == Some(ServerKind::JavaScript) =>
            {
                Ok((InputKeys::Undescribed, Scope::Caller))
            }
            Err(error) => Err(error),
        }
    }

    /// What can be chosen of the agent's graph; nothing, if it cannot be had in time: the
    /// JavaScript server fails to tell it of graphs whose state is no zod object.
    pub async fn config_fields(&self) -> Vec<ConfigField> {
        told_in_time(self.read_config_fields()).await.unwrap_or_else(|error| {
            tracing::info!(agent = self.assistant, %error, "an agent's settings were not read");
            Vec::new()
        })
    }

    /// The kind of the agent's server; `None` if it cannot be had in time.
    pub async fn server_kind(&self) -> Option<ServerKind> {
        let read = async || match told_in_time(self.upstream.info()).await {
            Ok(info) => (Some(info.kind), Scope::Everyone),
            Err(error) => {
                // One that is away has its own line, once.
                if !error.is_unreachable() {
                    let agent = &self.assistant;
                    tracing::warn!(agent, %error, "the kind of an agent's server was not read");
                }
                (None, if error.depends_on_caller() { Scope::Nobody } else { Scope::Caller })
            }
        };
        self.directory.kinds.known_or(self.at, &self.upstream, read).await
    }

    async fn read_config_fields(&self) -> Result<Vec<ConfigField>, Error> {
        match self.assistant_id().await? {
            Some((id, _)) => self.upstream.config_fields(&id).await,
            None => Ok(Vec::new()),
        }
    }

    /// The assistant's id, which the Python server wants where it tells schemas, and no graph's
    /// name; and for whom the agent's name means that assistant. `None` if the caller is shown
    /// none.
    async fn assistant_id(&self) -> Result<Option<(String, Scope)>, Error> {
        let Self { upstream, assistant, .. } = self;
        if Uuid::try_parse(assistant).is_ok() {
            return Ok(Some((assistant.clone(), Scope::Everyone)));
        }
        let all = upstream.assistants(Some(assistant)).await?;
        if let Some(graphs_own) = all.iter().find(|found| found.is_of_graph) {
            return Ok(Some((graphs_own.id.clone(), Scope::Everyone)));
        }
        // The others are what somebody has made, and may be shown to this caller alone.
        Ok(all.into_iter().next().map(|first| (first.id, Scope::Caller)))
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

    fn agents(upstreams: &[&str], aliases: &[(&str, &str)]) -> Agents {
        let upstream = |name: &&str| {
            let client = Client::new("http://127.0.0.1:1".parse().unwrap(), None).unwrap();
            Upstream { name: (*name).to_owned(), client }
        };
        let pair = |(alias, name): &(&str, &str)| ((*alias).to_owned(), (*name).to_owned());
        Agents::new(upstreams.iter().map(upstream).collect(), aliases.iter().map(pair).collect())
    }

    fn listing(upstream: &str, ids: &[&str]) -> Listing {
        let listed = |id: &&str| Listed {
            id: (*id).to_owned(),
            name: format!("{id}'s name"),
            description: None,
            graph_id: (*id).to_owned(),
            assistant_id: format!("id-of-{id}"),
        };
        let agents = Ok(ids.iter().map(listed).collect());
        Listing { upstream: upstream.to_owned(), caller: Caller::default(), agents }
    }

    fn told(listing: Listing) -> Vec<(String, String)> {
        let told = listing.agents.unwrap().into_iter().map(|agent| (agent.id, agent.name));
        told.collect()
    }

    #[test]
    fn an_alias_hides_the_agent_whose_name_it_takes() {
        let agents = agents(&["only"], &[("a", "b"), ("c", "nobody")]);
        let pair = |id: &str, name: &str| (id.to_owned(), name.to_owned());
        assert_eq!(
            told(agents.rename(listing("only", &["a", "b"]))),
            [pair("a", "b's name"), pair("b", "b's name")]
        );
        assert_eq!(agents.find("a", &Caller::default()).unwrap().assistant, "b");
    }

    #[test]
    fn a_name_that_is_too_long_is_nobodys() {
        let agents = agents(&["only"], &[]);
        assert!(agents.find(&"x".repeat(MAX_NAME_BYTES), &Caller::default()).is_ok());
        let unknown = agents.find(&"x".repeat(MAX_NAME_BYTES + 1), &Caller::default()).unwrap_err();
        assert!(unknown.to_string().starts_with("no agent has a name"), "{unknown}");
    }
}
