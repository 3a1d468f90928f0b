//! Which prompts may hold images and audio.
//!
//! The configuration decides, if it has `prompt`. Otherwise the graph's model decides, if it is known.
//!
//! ACP announces the kinds of content in `initialize`, before there is a session. So the gateway
//! announces those of the default agent. A session may run another agent or model, and the upstream
//! may not have answered. A prompt with content that was not announced is therefore judged by the
//! model of its session.

use std::time::Duration;

use agent_client_protocol_schema::v1::ContentBlock;
use tokio::time::timeout;

use super::link::ClientLink;
use super::session::Session;
use crate::agents::ModelInput;
use threadway_translate::acp::prompt::{AcceptedContent, MediaIn};

/// How long `initialize` waits to learn what the default agent's model takes. Without an answer the
/// model counts as unknown.
const MODEL_TIMEOUT: Duration = Duration::from_secs(2);

impl ClientLink {
    /// What prompts may hold, for the answer to `initialize`.
    pub(super) async fn default_accepts(&self) -> AcceptedContent {
        if let Some(accepts) = self.service().settings.accepts {
            return accepts;
        }
        let model = timeout(MODEL_TIMEOUT, self.default_model_input()).await;
        AcceptedContent::default().with_model(model.ok().flatten().unwrap_or_default())
    }

    /// What a new session's model takes. `None` if there is no agent for new sessions.
    async fn default_model_input(&self) -> Option<ModelInput> {
        let service = self.service();
        let mode = service.settings.modes.first();
        let set = mode.and_then(|mode| mode.configurable.as_deref());
        if let Some(model) = set.and_then(ModelInput::of_configurable) {
            return Some(model);
        }
        let of_mode = mode.and_then(|mode| mode.assistant.as_ref());
        let name = if let Some(named) = of_mode.or_else(|| service.agent()) {
            named.clone()
        } else {
            let listed = service.agents.list_of(&self.server()).await.agents.ok()?;
            service.default_agent(&listed).ok()?
        };
        Some(service.agents.find(&name, &self.caller()).ok()?.model_input().await)
    }

    /// What a prompt of a session may hold.
    pub(super) async fn accepts_in(
        &self,
        session: &Session,
        blocks: &[ContentBlock],
    ) -> AcceptedContent {
        if let Some(accepts) = self.service().settings.accepts {
            return accepts;
        }
        let accepts = self.accepts();
        if accepts.takes(MediaIn::of(blocks)) {
            return accepts;
        }
        let (agent, configurable) = {
            let config = session.config.lock().await;
            let choices = &config.kept.choices;
            (choices.assistant.clone(), choices.configurable(&config.menu, None))
        };
        if let Some(model) = configurable.and_then(|set| ModelInput::of_configurable(&set)) {
            return accepts.with_model(model);
        }
        match self.service().agents.find(&agent, &self.caller()) {
            Ok(agent) => accepts.with_model(agent.model_input().await),
            Err(_) => accepts,
        }
    }
}
