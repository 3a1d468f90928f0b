//! The settings of a session: reads, changes and saves them. They are stored in the metadata of its
//! thread.

use std::collections::HashMap;
use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    SessionConfigOptionValue, SetSessionConfigOptionRequest, SetSessionModeRequest,
};
use futures_util::FutureExt;

use super::link::{Answer, ClientLink};
use super::session::{Session, SessionConfig, SettingsLocation};
use crate::agents::{Agent, ConfigField, InputKeys, ListedAgent};
use crate::upstream::{self, QueueClass};
use threadway_translate::acp::Update;
use threadway_translate::acp::choice::{
    Assistant, Choices, OptionValue, RecordMembers, SessionOptions, SessionRecord,
};
use threadway_translate::acp::rpc::{Code, Error};
use threadway_translate::json::{Json, ObjectWriter};

/// How many characters of an assistant's id tell it from another of the same name.
const SHOWN_ID: usize = 8;

/// The agents as the client is offered them. An assistant that a person has made need have neither
/// a name of its own nor a description.
fn offered(listed: Vec<ListedAgent>) -> Vec<Assistant> {
    let mut named: HashMap<String, usize> = HashMap::new();
    for agent in &listed {
        *named.entry(agent.name.clone()).or_default() += 1;
    }
    let offered = listed.into_iter().map(|agent| {
        let ListedAgent { id, name, description, graph_id, assistant_id, is_of_graph } = agent;
        let is_shared = named.get(&name).is_some_and(|count| *count > 1);
        let name = if is_shared && !is_of_graph {
            let short: String = assistant_id.chars().take(SHOWN_ID).collect();
            format!("{name} ({short})")
        } else {
            name
        };
        let own = description.filter(|text| !text.trim().is_empty());
        let description =
            own.or_else(|| (!is_of_graph).then(|| format!("Runs the graph {graph_id}")));
        Assistant { id, name, description, graph: graph_id }
    });
    offered.collect()
}

impl ClientLink {
    /// Completes saved settings: lists the choices, and replaces choices that no longer exist by
    /// defaults. `stored` says where these settings are.
    pub(super) async fn read_config(
        &self,
        mut kept: SessionRecord,
        stored: SettingsLocation,
    ) -> Result<SessionConfig, Error> {
        let service = self.service();
        let listing = service.agents.list_of(&self.server()).await;
        let listed = listing.agents.map_err(|error| self.failed(&error))?;
        let default = service.default_agent(&listed);
        let default = default.map_err(|error| self.no_agent(&error));
        let assistants = offered(listed);
        let modes = service.settings.modes.clone();
        let mut menu = SessionOptions { modes, assistants, fields: Vec::new() };
        let is_listed = |id: &str| menu.assistants.iter().any(|known| known.id == id);
        let brought = menu.mode(&kept.choices).and_then(|mode| mode.assistant.clone());
        let Choices { mode, assistant, own, fields: _ } = &mut kept.choices;
        let is_brought = mode.is_some() && brought.as_ref() == Some(assistant);
        if !is_listed(assistant) {
            *assistant = default.clone()?;
        }
        *own = match own.take().filter(|own| is_listed(own)) {
            // Another program did not save it, and the mode may have chosen the current agent.
            None if is_brought => Some(default?),
            None => Some(assistant.clone()),
            own => own,
        };
        menu.settle_mode(&mut kept.choices);
        let (fields, input) = self.schemas_of(&kept.choices.assistant).await?;
        menu.fields = fields;
        Ok(SessionConfig { kept, menu, input, stored })
    }

    /// The settings that an agent's graph offers, and the keys of its input. Without settings if
    /// they cannot be read: the agent runs without them.
    async fn schemas_of(&self, agent: &str) -> Result<(Vec<ConfigField>, Arc<InputKeys>), Error> {
        let agents = &self.service().agents;
        let agent = agents
            .find(agent, &self.caller())
            .map_err(|error| Error::internal(error.to_string()))?;
        Ok(tokio::join!(agent.config_fields(), agent.input_keys()))
    }

    /// Fails if the graph takes no messages under the key of its conversation: it would ignore the
    /// prompt.
    pub(super) async fn expect_messages(
        &self,
        config: &mut SessionConfig,
        agent: &Agent,
    ) -> Result<(), Error> {
        let key = agent.upstream.messages_key().as_str();
        if !config.input.lacks(key) {
            return Ok(());
        }
        // The graph may have changed since the session was opened.
        config.input = agent.input_keys().await;
        if !config.input.lacks(key) {
            return Ok(());
        }
        Err(Error::internal(format!(
            "the graph of the agent `{name}` takes no messages under `{key}`, so it would ignore \
             this prompt; its input has {has}: set `messages_key` of the upstream or of the agent \
             in the config file to the key of its conversation, or choose another agent",
            name = agent.name,
            has = config.input.names()
        )))
    }

    /// The settings as the client gets them when it opens the session.
    pub(super) async fn state_of(&self, session: &Session) -> Vec<(&'static str, Json)> {
        let config = session.config.lock().await;
        let options = config.menu.options(&config.kept.choices, self.client().has_switches);
        let modes = config.menu.modes(&config.kept.choices);
        let modes = modes.map(|modes| ("modes", modes));
        let options = (options.get() != "[]").then_some(("configOptions", options));
        modes.into_iter().chain(options).collect()
    }

    /// `session/set_mode`.
    pub(super) async fn set_mode(
        &self,
        session: Arc<Session>,
        request: &SetSessionModeRequest,
    ) -> Result<Answer, Error> {
        let mut config = session.config.lock().await;
        self.read_before_change(&session, &mut config).await?;
        let mut choices = config.kept.choices.clone();
        config.menu.choose_mode(&mut choices, &request.mode_id.0)?;
        self.take_choices(&session, &mut config, choices).await?;
        drop(config);
        let this = self.clone();
        // The config options hold the mode too.
        let after = async move {
            let config = session.config.lock().await;
            let options = config.menu.options(&config.kept.choices, this.client().has_switches);
            this.update(&session.id, &Update::ConfigOptionUpdate { config_options: &options });
        };
        Ok(Answer { result: Json::empty_object(), after: Some(after.boxed()) })
    }

    /// `session/set_config_option`.
    pub(super) async fn set_option(
        &self,
        session: Arc<Session>,
        request: &SetSessionConfigOptionRequest,
    ) -> Result<Answer, Error> {
        let mut config = session.config.lock().await;
        self.read_before_change(&session, &mut config).await?;
        let mut choices = config.kept.choices.clone();
        let value = match &request.value {
            SessionConfigOptionValue::Boolean { value } => OptionValue::Switch(*value),
            SessionConfigOptionValue::ValueId { value } => OptionValue::Id(&value.0),
            _ => {
                return Err(Error::new(
                    Code::InvalidParams,
                    "unknown kind of value; expected a boolean or the id of a choice",
                ));
            }
        };
        config.menu.choose(&mut choices, &request.config_id.0, &value)?;
        let (before, known) = (config.menu.mode_id(&config.kept.choices), config.menu.clone());
        self.take_choices(&session, &mut config, choices).await?;
        let mode = config.menu.mode_id(&config.kept.choices);
        // The client knows the modes that it was sent when it opened the session. Another agent may
        // have others.
        let mode = mode.filter(|mode| before.as_ref() != Some(mode) && known.has_mode(mode));
        let options = config.menu.options(&config.kept.choices, self.client().has_switches);
        drop(config);
        let result = ObjectWriter::new().raw("configOptions", options.get()).finish();
        let this = self.clone();
        let after = mode.map(|mode| {
            async move {
                this.update(&session.id, &Update::CurrentModeUpdate { current_mode_id: &mode });
            }
            .boxed()
        });
        Ok(Answer { result, after })
    }

    /// Applies a choice, and saves what it changes.
    async fn take_choices(
        &self,
        session: &Session,
        config: &mut SessionConfig,
        choices: Choices,
    ) -> Result<(), Error> {
        if choices.assistant != config.kept.choices.assistant {
            // Another graph has other settings.
            let (fields, input) = self.schemas_of(&choices.assistant).await?;
            (config.menu.fields, config.input) = (fields, input);
        }
        let kept = SessionRecord { choices, ..config.kept.clone() };
        self.change(session, config, kept).await
    }

    /// Replaces the record of a session, and saves the members that differ.
    pub(super) async fn change(
        &self,
        session: &Session,
        config: &mut SessionConfig,
        kept: SessionRecord,
    ) -> Result<(), Error> {
        let changes = kept.members().since(&config.kept.members());
        config.kept = kept;
        self.save(session, config, changes).await
    }

    /// Saves changes in the thread's metadata, with those that were not saved before. If the upstream
    /// does not answer, they hold in this process, and the next change or prompt tries again. Does
    /// nothing before the first prompt, which makes the thread. Fails if the thread was deleted.
    pub(super) async fn save(
        &self,
        session: &Session,
        config: &mut SessionConfig,
        changes: RecordMembers,
    ) -> Result<(), Error> {
        let SettingsLocation::Thread { seen, unsaved } = &mut config.stored else { return Ok(()) };
        // If this is cancelled while it waits, they are not saved.
        unsaved.and(changes);
        if unsaved.is_empty() {
            return Ok(());
        }
        match self.upstream().change_thread(&session.id, &unsaved.write()).await {
            Ok(true) => seen.apply(std::mem::take(unsaved)),
            Ok(false) => return Err(session.deleted()),
            Err(error) => {
                tracing::warn!(session_id = session.id, %error, "a session's settings were not saved with its thread");
            }
        }
        Ok(())
    }

    /// Reads what other clients have changed of a session, and sends it to this one. Fails if the
    /// thread was deleted.
    pub(super) async fn refresh(&self, session: &Session) -> Result<(), Error> {
        self.read_changes(session, &mut *session.config.lock().await).await
    }

    /// Reads what others have changed before this client changes something. So a choice that the
    /// client repeats counts after theirs. An upstream that does not answer hinders no change.
    async fn read_before_change(
        &self,
        session: &Session,
        config: &mut SessionConfig,
    ) -> Result<(), Error> {
        match self.read_changes(session, config).await {
            Err(error) if error.code != Code::NotFound => {
                tracing::debug!(session_id = session.id, %error, "a session's settings were not read");
                Ok(())
            }
            read => read,
        }
    }

    async fn read_changes(
        &self,
        session: &Session,
        config: &mut SessionConfig,
    ) -> Result<(), Error> {
        let SettingsLocation::Thread { seen, unsaved } = &config.stored else { return Ok(()) };
        let metadata = self.metadata_of(&session.id).await?;
        let Some(metadata) = metadata else { return Err(session.deleted()) };
        let now = RecordMembers::read(&metadata);
        // What this client has changed since then counts.
        let changes = now.since(seen).without(unsaved);
        let unsaved = unsaved.clone();
        if !changes.is_empty() {
            let mut members = config.kept.members();
            members.apply(changes);
            self.show_changes(session, config, SessionRecord::of(&members)).await?;
        }
        config.stored = SettingsLocation::Thread { seen: now, unsaved };
        Ok(())
    }

    /// Applies a record that other clients have changed, and sends what differs from the client's.
    async fn show_changes(
        &self,
        session: &Session,
        config: &mut SessionConfig,
        kept: SessionRecord,
    ) -> Result<(), Error> {
        let has_switches = self.client().has_switches;
        let (before, known) = (config.kept.clone(), config.menu.clone());
        if kept.choices == before.choices {
            config.kept = kept;
        } else {
            let stored = config.stored.clone();
            *config = self.read_config(kept, stored).await?;
            let mode = config.menu.mode_id(&config.kept.choices);
            let is_news = |mode: &String| known.mode_id(&before.choices).as_ref() != Some(mode);
            if let Some(mode) = mode.filter(|mode| is_news(mode) && known.has_mode(mode)) {
                self.update(&session.id, &Update::CurrentModeUpdate { current_mode_id: &mode });
            }
            let options = config.menu.options(&config.kept.choices, has_switches);
            if options != known.options(&before.choices, has_switches) {
                self.update(&session.id, &Update::ConfigOptionUpdate { config_options: &options });
            }
        }
        if let Some(title) = &config.kept.title
            && before.title.as_ref() != Some(title)
        {
            let update = Update::SessionInfoUpdate { title: Some(title), updated_at: None };
            self.update(&session.id, &update);
        }
        Ok(())
    }

    /// The metadata of a thread. `None` if the thread does not exist, or the server hides it.
    async fn metadata_of(&self, id: &str) -> Result<Option<Json>, Error> {
        let upstream = self.upstream();
        let listed = upstream.in_turn(QueueClass::Starts, upstream.listed_thread(id)).await;
        match listed {
            Ok(Some(thread)) => return Ok(Some(thread.metadata)),
            // Older servers list no threads by their ids, and a server may forbid lists.
            Ok(None) | Err(upstream::Error::Status { .. }) => {}
            Err(error) => return Err(self.failed(&error)),
        }
        let thread = upstream.in_turn(QueueClass::Starts, upstream.thread(id)).await;
        let thread = thread.map_err(|error| self.failed(&error))?;
        Ok(thread.map(|thread| thread.metadata))
    }

    /// Makes the session's thread, with the settings.
    pub(super) async fn make_thread(
        &self,
        session: &Session,
        config: &mut SessionConfig,
    ) -> Result<(), Error> {
        let members = config.kept.members();
        let made = self.upstream().new_thread(&session.id, &members.write()).await;
        let made = made.map_err(|error| self.failed(&error))?;
        // The answer to an earlier prompt may have been lost, and the settings changed since.
        let changes = members.since(&RecordMembers::read(&made.metadata));
        config.stored = SettingsLocation::of(Some(&made));
        self.save(session, config, changes).await
    }
}
