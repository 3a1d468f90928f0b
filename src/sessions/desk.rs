//! What is chosen for a session, and where it is kept: in its thread's metadata.

use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    SessionConfigOptionValue, SetSessionConfigOptionRequest, SetSessionModeRequest,
};
use futures_util::FutureExt;

use super::link::{Answer, Link};
use super::session::{Desk, Session};
use crate::agents::ConfigField;
use crate::upstream::Caller;
use threadway_translate::acp::Update;
use threadway_translate::acp::choice::{
    Assistant, Choices, OptionValue, SessionOptions, SessionRecord,
};
use threadway_translate::acp::rpc::{Code, Error};
use threadway_translate::json::{Json, ObjectWriter};

impl Link {
    /// What a session chooses from, and what is chosen where nothing was, or what is no more.
    pub(super) async fn desk(&self, mut kept: SessionRecord) -> Result<Desk, Error> {
        let service = self.service();
        let listing = service.agents.list_of(&service.upstream).await;
        let listed = listing.agents.map_err(|error| self.failed(&error))?;
        let assistants: Vec<_> = listed
            .into_iter()
            .map(|agent| Assistant {
                id: agent.id,
                name: agent.name,
                description: agent.description,
            })
            .collect();
        let modes = service.settings.modes.clone();
        let mut menu = SessionOptions { modes, assistants, fields: Vec::new() };
        let is_listed = |id: &str| menu.assistants.iter().any(|known| known.id == id);
        let first = || menu.assistants.first().map(|agent| agent.id.clone());
        let default = service.agent.clone().or_else(first).ok_or_else(|| {
            let server = service.upstream.client.base();
            Error::internal(format!("{server} has no agents; `threadway check` tells more"))
        })?;
        let brought = menu.mode(&kept.choices).and_then(|mode| mode.assistant.clone());
        let Choices { mode, assistant, own, fields: _ } = &mut kept.choices;
        let is_brought = mode.is_some() && brought.as_ref() == Some(assistant);
        if !is_listed(assistant) {
            assistant.clone_from(&default);
        }
        *own = match own.take().filter(|own| is_listed(own)) {
            // An older version did not keep it, and the mode may have brought the one that runs.
            None if is_brought => Some(default),
            None => Some(assistant.clone()),
            own => own,
        };
        menu.settle_mode(&mut kept.choices);
        menu.fields = self.fields_of(&kept.choices.assistant).await?;
        Ok(Desk { kept, menu, is_kept: false })
    }

    /// The settings of an agent's graph; none, if they cannot be read: it runs without.
    async fn fields_of(&self, agent: &str) -> Result<Vec<ConfigField>, Error> {
        let agents = &self.service().agents;
        let agent = agents
            .find(agent, &Caller::default())
            .map_err(|error| Error::internal(error.to_string()))?;
        Ok(agent.config_fields().await)
    }

    /// What a client is told of a session when it opens it.
    pub(super) async fn state_of(&self, session: &Session) -> Vec<(&'static str, Json)> {
        let desk = session.desk.lock().await;
        let options = desk.menu.options(&desk.kept.choices, self.client().has_switches);
        let modes = desk.menu.modes(&desk.kept.choices);
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
        let mut desk = session.desk.lock().await;
        let mut choices = desk.kept.choices.clone();
        desk.menu.choose_mode(&mut choices, &request.mode_id.0)?;
        self.take_choices(&session, &mut desk, choices).await?;
        drop(desk);
        let this = self.clone();
        // The options say the same thing.
        let after = async move {
            let desk = session.desk.lock().await;
            let options = desk.menu.options(&desk.kept.choices, this.client().has_switches);
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
        let mut desk = session.desk.lock().await;
        let mut choices = desk.kept.choices.clone();
        let value = match &request.value {
            SessionConfigOptionValue::Boolean { value } => OptionValue::Switch(*value),
            SessionConfigOptionValue::ValueId { value } => OptionValue::Id(&value.0),
            _ => return Err(Error::new(Code::InvalidParams, "a value of this kind is not known")),
        };
        desk.menu.choose(&mut choices, &request.config_id.0, &value)?;
        let mode = choices.mode.clone().filter(|_| choices.mode != desk.kept.choices.mode);
        self.take_choices(&session, &mut desk, choices).await?;
        let options = desk.menu.options(&desk.kept.choices, self.client().has_switches);
        drop(desk);
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

    /// Takes a choice, and keeps it with the thread.
    async fn take_choices(
        &self,
        session: &Session,
        desk: &mut Desk,
        choices: Choices,
    ) -> Result<(), Error> {
        if choices.assistant != desk.kept.choices.assistant {
            // Another graph has other settings.
            desk.menu.fields = self.fields_of(&choices.assistant).await?;
        }
        desk.kept.choices = choices;
        self.keep(session, desk).await;
        Ok(())
    }

    /// Writes what a session keeps into its thread's metadata. What cannot be written holds here
    /// for as long as we live, and is tried again with the next.
    pub(super) async fn keep(&self, session: &Session, desk: &mut Desk) {
        let metadata = desk.kept.write();
        // Who is stopped while it waits has kept nothing.
        desk.is_kept = false;
        let upstream = &self.service().upstream.client;
        match upstream.change_thread(&session.id, &metadata).await {
            Ok(is_there) => desk.is_kept = is_there,
            Err(error) => {
                tracing::warn!(session_id = session.id, %error, "a session's metadata were not kept");
            }
        }
    }
}
