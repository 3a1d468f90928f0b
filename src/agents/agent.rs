//! One agent for one caller: its server's kind, its input and its settings.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::Directory;
use super::facts::{FACTS_AGE, FACTS_PAUSE, FactLookup, MAX_FACTS, Scope};
use crate::upstream::{Client, Error, QueueClass};
use threadway_translate::agui::ClientProvided;
use threadway_translate::langgraph::{
    Capabilities, ConfigField, InputKeys, ModelInput, ServerInfo,
};
use threadway_translate::run::EmitOptions;

/// How long a run waits for its server's kind and for the keys of its agent's input. Without the
/// keys only the client's messages are sent, and none of its state.
///
/// A caller that asks while the same question is in flight may wait for both answers, and so twice
/// as long.
pub const FACTS_TIMEOUT: Duration = Duration::from_secs(5);

/// How often `GET /info` is repeated if it fails.
const INFO_REPEATS: u32 = 2;

/// The pause before the first repetition. It doubles.
const INFO_PAUSE: Duration = Duration::from_millis(100);

/// An agent that a client has named, for that client. Its server may not have such an agent.
#[derive(Clone, Debug)]
pub struct Agent {
    /// The agent's name in the client's request.
    pub name: Arc<str>,
    /// The agent's server.
    pub upstream: Client,
    /// The agent's name on its server: a graph, or an assistant's id.
    pub assistant: String,
    /// Which events viewers of its runs get.
    pub emit: EmitOptions,
    /// The index of its upstream in the configuration.
    pub(super) upstream_index: usize,
    pub(super) directory: Arc<Directory>,
}

/// The server of an agent, for any caller.
#[derive(Clone, Debug)]
pub(crate) struct AgentServer {
    directory: Arc<Directory>,
    upstream_index: usize,
}

/// An agent, whatever its caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AgentKey {
    upstream_index: usize,
    assistant: String,
}

/// Whether a server has an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AgentPresence {
    /// The server shows the agent to this caller.
    Present,
    /// The server has no such agent for any caller.
    Absent,
    /// The server did not answer, or may hide the agent from this caller: a run may still find it.
    Unsaid,
}

/// Why a server does not describe an agent.
enum Absence {
    /// It cannot.
    Undescribed,
    /// It has no route for that, or hides the agent.
    NoRoute,
}

// === impl Agent ===

impl Agent {
    /// The keys of the agent's input, as its caller may see them. They are unknown if the server
    /// hides the agent from the caller, or does not answer in time.
    pub(crate) async fn input_keys(&self) -> Arc<InputKeys> {
        let read = async || {
            let (keys, scope) = match self.read_input_keys().await {
                Ok(FactLookup::Fact(keys, scope)) => (keys, scope),
                Ok(FactLookup::Failure { value, age }) => {
                    return FactLookup::Failure { value: Arc::new(value), age };
                }
                Err(error) => {
                    self.log_unread_keys(&error);
                    if self.last_input_keys().is_none() {
                        self.log_unknown_keys();
                    }
                    let value = Arc::new(InputKeys::Unknown);
                    return FactLookup::Failure { value, age: Duration::ZERO };
                }
            };
            if keys == InputKeys::Unknown {
                self.log_unknown_keys();
            }
            let keys = Arc::new(keys);
            if scope == Scope::Everyone {
                self.remember_losses(&self.interpreted(Arc::clone(&keys)));
            }
            FactLookup::Fact(keys, scope)
        };
        self.interpreted(
            self.directory.input_keys.get_or_read(self.key(), &self.upstream, read).await,
        )
    }

    fn last_input_keys(&self) -> Option<Arc<InputKeys>> {
        self.directory.input_keys.last(&self.key(), self.upstream.caller())
    }

    fn log_unknown_keys(&self) {
        tracing::warn!(
            agent = self.assistant,
            "only messages are sent to this agent: the other keys of its input are unknown"
        );
    }

    /// The keys, read as this kind of server means them: some servers leave out `context_schema` for
    /// a graph that declares no context. Unchanged if the kind is not remembered. Sends no request.
    fn interpreted(&self, keys: Arc<InputKeys>) -> Arc<InputKeys> {
        let known = self.server().last_capabilities(&self.upstream);
        match known.filter(|server| server.omits_context_schema) {
            Some(server) => Arc::new(InputKeys::clone(&keys).as_described_by(server)),
            None => keys,
        }
    }

    /// The keys of the agent's input, if they are remembered. Sends no request.
    pub(crate) fn known_input_keys(&self) -> Option<Arc<InputKeys>> {
        let keys = self.directory.input_keys.get(&self.key(), self.upstream.caller());
        keys.map(|keys| self.interpreted(keys))
    }

    /// Whether the server has no agent of this name, whoever asks. False if the server does not say
    /// so in time. Sends no request if the server has shown the agent to this caller within
    /// [`FACTS_AGE`](super::FACTS_AGE).
    pub(crate) async fn is_absent(&self) -> bool {
        if self.known_input_keys().is_some_and(|keys| *keys != InputKeys::Unknown) {
            return false;
        }
        let read = async || {
            let presence = in_time(self.read_presence());
            match self.upstream.in_turn(QueueClass::Looks, presence).await {
                // A server that is deployed anew may have the agent at once.
                Ok(presence @ AgentPresence::Absent) => FactLookup::Fact(presence, Scope::Nobody),
                Ok(presence) => FactLookup::Fact(presence, Scope::Caller),
                // Not asked again at once either: the answer may be slow.
                Err(error) => {
                    FactLookup::Failure { value: AgentPresence::Unsaid, age: pause_after(&error) }
                }
            }
        };
        let presence = self.directory.presences.get_or_read(self.key(), &self.upstream, read);
        presence.await == AgentPresence::Absent
    }

    async fn read_presence(&self) -> Result<AgentPresence, Error> {
        let Self { upstream, assistant, .. } = self;
        // A server runs a graph also for a caller from whom it hides the graph's assistant, and may
        // hide it from whoever has credentials.
        let unseen = || {
            let may_hide = upstream.sends_credentials();
            if may_hide { AgentPresence::Unsaid } else { AgentPresence::Absent }
        };
        if Uuid::try_parse(assistant).is_ok() {
            return match upstream.find_assistant(assistant).await {
                Ok(()) => Ok(AgentPresence::Present),
                // The Python server answers the same for a route that it lacks (0.16.7). Every known
                // server has this route.
                Err(error)
                    if error.is_not_found()
                        && self.capabilities().await != Capabilities::default() =>
                {
                    Ok(unseen())
                }
                Err(error) => Err(error),
            };
        }
        match upstream.shows_assistant_of(assistant).await {
            Ok(true) => Ok(AgentPresence::Present),
            Ok(false) => Ok(unseen()),
            Err(error) if error.is_unknown_graph() => Ok(AgentPresence::Absent),
            Err(error) => Err(error),
        }
    }

    /// What clients send that the agent does not get, a sentence for each. Empty if that has not
    /// been found out since the configuration was read. Sends no request.
    pub(crate) fn known_losses(&self) -> Vec<String> {
        if let Some(keys) = self.known_input_keys() {
            return self.losses_of(&keys);
        }
        let key = self.key();
        self.directory.losses.lock().get(&key).cloned().unwrap_or_default()
    }

    /// What clients send that an agent with these input keys does not get, a sentence for each.
    pub(crate) fn losses_of(&self, keys: &InputKeys) -> Vec<String> {
        let messages = keys.lost_messages(self.upstream.messages_key());
        let provided = ClientProvided::ALL.into_iter().filter_map(|provided| provided.loss(keys));
        messages.into_iter().chain(provided).collect()
    }

    fn remember_losses(&self, keys: &InputKeys) {
        let key = self.key();
        let mut remembered = self.directory.losses.lock();
        if remembered.len() < MAX_FACTS || remembered.contains_key(&key) {
            remembered.insert(key, self.losses_of(keys));
        }
    }

    /// Logs what a client has sent that the agent does not get. Each sentence is logged once until
    /// the configuration is read again.
    pub(crate) fn log_losses(&self, losses: Vec<String>) {
        for loss in losses {
            let mut logged = self.directory.logged.lock();
            let is_new = logged.len() < MAX_FACTS && logged.insert((self.key(), loss.clone()));
            drop(logged);
            if is_new {
                tracing::warn!(agent = self.assistant, "{loss}");
            }
        }
    }

    /// Reads the input keys from the server.
    async fn read_input_keys(&self) -> Result<FactLookup<InputKeys>, Error> {
        let deadline = Instant::now() + FACTS_TIMEOUT;
        let Some((id, scope)) = by_deadline(deadline, self.assistant_id()).await? else {
            // The server may hide the agent from this caller only.
            return Ok(FactLookup::Fact(InputKeys::Unknown, Scope::Nobody));
        };
        match by_deadline(deadline, self.upstream.input_keys(&id)).await {
            Ok(keys) => Ok(FactLookup::Fact(keys, scope)),
            Err(error) => match self.absence(&error).await {
                Some(Absence::Undescribed) => Ok(FactLookup::Failure {
                    value: InputKeys::Undescribed,
                    age: age_after(&error),
                }),
                Some(Absence::NoRoute) => {
                    self.log_unread_keys(&error);
                    Ok(FactLookup::Fact(InputKeys::Unknown, Scope::Caller))
                }
                None => Err(error),
            },
        }
    }

    /// Whether this caller would get no schemas by a second request either. Other callers may get
    /// them.
    async fn absence(&self, error: &Error) -> Option<Absence> {
        if error.is_undescribed() {
            return Some(Absence::Undescribed);
        }
        // The JavaScript server fails so for each graph whose state is an `Annotation`. On a busy
        // machine it is also late. The failure may have another cause.
        if matches!(error, Error::Status { code: 500, .. } | Error::Timeout { .. }) {
            return self.capabilities().await.fails_to_describe.then_some(Absence::Undescribed);
        }
        // The server has no such route, or hides the agent from this caller.
        let has_no_route = matches!(error, Error::Status { code: 404 | 405 | 501, .. });
        has_no_route.then_some(Absence::NoRoute)
    }

    fn log_unread_keys(&self, error: &Error) {
        let agent = &self.assistant;
        tracing::warn!(agent, %error, "the keys of an agent's input could not be read");
    }

    /// The settings of the agent's graph. Empty if they cannot be read in time: the JavaScript
    /// server fails for graphs whose state is no zod object.
    pub async fn config_fields(&self) -> Vec<ConfigField> {
        let read = async || match in_time(self.read_config_fields()).await {
            Ok((fields, scope)) => FactLookup::Fact(fields, scope),
            Err(error) => {
                let agent = &self.assistant;
                tracing::info!(agent, %error, "the settings of an agent could not be read");
                // A failure may take the server as long as a success, and an editor waits for it.
                let is_known = self.absence(&error).await.is_some();
                let age = if is_known { age_after(&error) } else { Duration::ZERO };
                FactLookup::Failure { value: Vec::new(), age }
            }
        };
        self.directory.config_fields.get_or_read(self.key(), &self.upstream, read).await
    }

    /// What the agent's model takes besides text. Nothing if that cannot be read in time.
    pub(crate) async fn model_input(&self) -> ModelInput {
        let read = async || match in_time(self.read_model_input()).await {
            Ok((input, scope)) => FactLookup::Fact(input, scope),
            Err(error) => {
                let agent = &self.assistant;
                tracing::info!(agent, %error, "the model of an agent could not be read");
                FactLookup::Failure { value: ModelInput::default(), age: Duration::ZERO }
            }
        };
        self.directory.model_inputs.get_or_read(self.key(), &self.upstream, read).await
    }

    /// What the agent's server can do. That of an unknown server if it does not say in time which
    /// it is.
    pub(crate) async fn capabilities(&self) -> Capabilities {
        self.server().capabilities(&self.upstream).await
    }

    /// The agent's server, without the caller's credentials.
    pub(crate) fn server(&self) -> AgentServer {
        let directory = Arc::clone(&self.directory);
        AgentServer { directory, upstream_index: self.upstream_index }
    }

    async fn read_config_fields(&self) -> Result<(Vec<ConfigField>, Scope), Error> {
        match self.assistant_id().await? {
            // They hold values of the assistant, which the server may hide from others.
            Some((id, _)) => Ok((self.upstream.config_fields(&id).await?, Scope::Caller)),
            None => Ok((Vec::new(), Scope::Nobody)),
        }
    }

    async fn read_model_input(&self) -> Result<(ModelInput, Scope), Error> {
        match self.assistant_id().await? {
            Some((id, scope)) => Ok((self.upstream.model_input(&id).await?, scope)),
            None => Ok((ModelInput::default(), Scope::Nobody)),
        }
    }

    /// The assistant's id, and for whom the agent's name means this assistant. `None` if the caller
    /// sees no such assistant. The Python server accepts no graph's name in requests for schemas.
    async fn assistant_id(&self) -> Result<Option<(String, Scope)>, Error> {
        let Self { upstream, assistant, .. } = self;
        if Uuid::try_parse(assistant).is_ok() {
            return Ok(Some((assistant.clone(), Scope::Everyone)));
        }
        let all = upstream.assistants(Some(assistant)).await?;
        if let Some(graphs_own) = all.iter().find(|found| found.is_of_graph) {
            return Ok(Some((graphs_own.id.clone(), Scope::Everyone)));
        }
        // Users made the others, so the server may show them to this caller alone.
        Ok(all.into_iter().next().map(|first| (first.id, Scope::Caller)))
    }

    fn key(&self) -> AgentKey {
        AgentKey { upstream_index: self.upstream_index, assistant: self.assistant.clone() }
    }
}

// === impl AgentServer ===

impl AgentServer {
    /// What the server can do. After a failure, what it could do when it last answered; that of an
    /// unknown server if it has never answered.
    pub(crate) async fn capabilities(&self, upstream: &Client) -> Capabilities {
        let read = async || match in_time(read_info(upstream)).await {
            Ok(info) => FactLookup::Fact(info.capabilities(), Scope::Everyone),
            Err(error) => {
                // An outage has its own log line.
                if !error.was_not_sent() {
                    let upstream = upstream.base();
                    tracing::warn!(%upstream, %error, "the kind of the server could not be read");
                }
                FactLookup::Failure { value: Capabilities::default(), age: pause_after(&error) }
            }
        };
        self.directory.capabilities.get_or_read(self.upstream_index, upstream, read).await
    }

    /// What the server could do when it last answered. Sends no request.
    pub(crate) fn last_capabilities(&self, upstream: &Client) -> Option<Capabilities> {
        self.directory.capabilities.last(&self.upstream_index, upstream.caller())
    }
}

/// Reads what a server is. A read that fails for a moment is repeated.
async fn read_info(upstream: &Client) -> Result<ServerInfo, Error> {
    for attempt in 0..INFO_REPEATS {
        match upstream.info().await {
            Err(Error::Interrupted { .. } | Error::Status { code: 500.., .. }) => {
                tokio::time::sleep(INFO_PAUSE * 2_u32.pow(attempt)).await;
            }
            answer => return answer,
        }
    }
    upstream.info().await
}

/// How long a server that failed so is not asked again.
fn pause_after(error: &Error) -> Duration {
    if error.was_not_sent() { Duration::ZERO } else { FACTS_PAUSE }
}

/// How long a failure counts as the answer. A JavaScript server fails in the same way each time, but
/// a late answer is one moment's.
fn age_after(error: &Error) -> Duration {
    if matches!(error, Error::Timeout { .. }) { FACTS_PAUSE } else { FACTS_AGE }
}

async fn in_time<T>(answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    by_deadline(Instant::now() + FACTS_TIMEOUT, answer).await
}

/// The deadline is one of [`FACTS_TIMEOUT`].
async fn by_deadline<T>(
    deadline: Instant,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let answer = tokio::time::timeout_at(deadline, answer).await;
    answer.unwrap_or(Err(Error::Timeout { waited: FACTS_TIMEOUT }))
}
