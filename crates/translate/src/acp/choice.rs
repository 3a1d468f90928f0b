//! The settings of a session that a person chooses: its mode, its agent, and the graph's own
//! settings.
//!
//! `option` writes them as ACP's configuration options. `record` stores them in the thread's
//! metadata, and with them the permanent answers of `always`.

mod always;
mod option;
mod record;

pub use always::PermanentAnswers;
use indexmap::IndexMap;
use option::{category, id_of, option_of_field, select, unknown, value, value_of_field};
pub use record::{RecordMembers, SessionRecord};
use serde_json::value::RawValue;

use super::permission::Rules;
use super::rpc::{Code, Error};
use crate::json::{self, Json, ObjectWriter, Text};
use crate::langgraph::{ConfigChoice, ConfigField, ConfigKind};

/// A mode that the operator has configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mode {
    /// The id.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// The agent of the mode, if it is not the session's own.
    pub assistant: Option<String>,
    /// The members of `config.configurable` that the mode sets.
    pub configurable: Option<Json>,
    /// The permission rules of the mode. They precede the rules for all modes.
    pub permissions: Rules,
}

/// An agent that a session can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assistant {
    /// The id by which it is run.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// Its graph.
    pub graph: String,
}

/// The modes, agents and settings that a session can choose from.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    /// The modes of the configuration. A new session starts in the first. Without any, the graph's
    /// own modes count: the values of its field `mode`.
    pub modes: Vec<Mode>,
    /// The agents.
    pub assistants: Vec<Assistant>,
    /// The settings of the chosen agent's graph.
    pub fields: Vec<ConfigField>,
}

/// What a session has chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// The mode. `None` if there are none.
    pub mode: Option<String>,
    /// The agent that runs: that of the mode, or the session's own.
    pub assistant: String,
    /// The session's own agent. It runs again when the session leaves a mode with another agent.
    /// `None` for a session of another program, which does not store it.
    pub own: Option<String>,
    /// The settings of each agent. The agent whose settings changed last is last.
    pub fields: IndexMap<String, Fields>,
}

/// The settings of a graph, by key.
pub type Fields = IndexMap<String, Json>;

/// For how many agents a session stores settings. Those of the running agent are dropped last. The
/// number is limited because the thread's metadata is always read whole.
pub const MAX_CONFIGURED: usize = 32;

/// The most agents that a client is offered. An editor shows them in a menu.
pub const MAX_OFFERED_AGENTS: usize = 100;

/// A value that a client sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionValue<'a> {
    /// One of the option's values, by its id.
    Id(&'a str),
    /// On or off.
    Switch(bool),
}

/// The id of the option for the mode. It holds the same as the protocol's older `modes`. Also the
/// key of a graph's configuration that has the graph's own modes.
const MODE: &str = "mode";

/// The id of the option for the agent.
const ASSISTANT: &str = "assistant";

/// The prefix of the ids of options for the graph's own settings.
const FIELD: &str = "config:";

// === impl SessionOptions ===

impl SessionOptions {
    /// The options, the most important first. Clients that do not know switches get a choice of two
    /// values instead.
    pub fn options(&self, chosen: &Choices, has_switches: bool) -> Json {
        let mut options = Vec::new();
        if let Some(mode) = self.mode(chosen) {
            let values = self.modes.iter().map(|m| value(&m.id, &m.name, m.description.as_deref()));
            options.push(select(MODE, "Mode", Some("mode"), &mode.id, values));
        }
        let own_modes = self.own_modes().map(|(field, _)| field);
        options.extend(own_modes.map(|field| {
            let current = chosen.value_of(field).unwrap_or(&field.default);
            option_of_field(&id_of_field(field), field, Some("mode"), current, has_switches)
        }));
        if self.assistants.len() > 1 {
            let values =
                self.offered(chosen).map(|a| value(&a.id, &a.name, a.description.as_deref()));
            let category = Some("_assistant");
            options.push(select(ASSISTANT, "Agent", category, &chosen.assistant, values));
        }
        let is_other = |field: &&ConfigField| own_modes.is_none_or(|modes| modes != *field);
        for field in self.fields.iter().filter(is_other) {
            let current = chosen.value_of(field).unwrap_or(&field.default);
            let category = category(&field.key);
            let id = id_of_field(field);
            options.push(option_of_field(&id, field, category, current, has_switches));
        }
        json::array(options.iter().map(|option| option.get()))
    }

    /// The agents that a client is offered, in their order. If there are too many, those of the
    /// running agent's graph come before others.
    fn offered(&self, chosen: &Choices) -> impl Iterator<Item = &Assistant> {
        let running = self.assistants.iter().find(|known| known.id == chosen.assistant);
        let graph = running.map(|running| &running.graph);
        let rank = |at: &usize| {
            let one = self.assistants.get(*at);
            let is_running = one.is_some_and(|one| one.id == chosen.assistant);
            (!is_running, one.map(|one| &one.graph) != graph, *at)
        };
        let mut offered: Vec<_> = (0..self.assistants.len()).collect();
        if offered.len() > MAX_OFFERED_AGENTS {
            offered.sort_unstable_by_key(rank);
            offered.truncate(MAX_OFFERED_AGENTS);
            offered.sort_unstable();
        }
        offered.into_iter().filter_map(|at| self.assistants.get(at))
    }

    /// `modes`, for clients that do not know options. `None` if there are none.
    pub fn modes(&self, chosen: &Choices) -> Option<Json> {
        let current = self.mode_id(chosen)?;
        let mode = |id: &str, name: &str, description: Option<&str>| {
            ObjectWriter::new()
                .string("id", id)
                .string("name", name)
                .optional("description", description.map(Text::new).as_ref())
                .finish()
        };
        let modes: Vec<_> = match self.own_modes() {
            Some((_, choices)) => choices
                .iter()
                .map(|one| mode(&id_of(&one.value), &one.label, one.description.as_deref()))
                .collect(),
            None => self
                .modes
                .iter()
                .map(|one| mode(&one.id, &one.name, one.description.as_deref()))
                .collect(),
        };
        let all = json::array(modes.iter().map(|mode| mode.get()));
        let modes = ObjectWriter::new().string("currentModeId", &current);
        Some(modes.raw("availableModes", all.get()).finish())
    }

    /// The id of the session's mode: one of the configuration, or of the graph's own.
    pub fn mode_id(&self, chosen: &Choices) -> Option<String> {
        match self.own_modes() {
            Some((field, _)) => Some(id_of(chosen.value_of(field).unwrap_or(&field.default))),
            None => self.mode(chosen).map(|mode| mode.id.clone()),
        }
    }

    /// Whether there is a mode of this id.
    pub fn has_mode(&self, id: &str) -> bool {
        match self.own_modes() {
            Some((_, choices)) => choices.iter().any(|choice| id_of(&choice.value) == id),
            None => self.modes.iter().any(|mode| mode.id == id),
        }
    }

    /// The modes of the graph itself, if the configuration has none: the values of its field
    /// [`MODE`].
    fn own_modes(&self) -> Option<(&ConfigField, &[ConfigChoice])> {
        let field = self.fields.iter().find(|field| field.key == MODE)?;
        match &field.kind {
            ConfigKind::Choice(choices) if self.modes.is_empty() => Some((field, choices)),
            ConfigKind::Choice(_) | ConfigKind::Switch => None,
        }
    }

    /// The session's mode of the configuration. The first one, if the session's mode does not exist
    /// any more.
    pub fn mode(&self, chosen: &Choices) -> Option<&Mode> {
        let is_chosen = |mode: &&Mode| Some(&mode.id) == chosen.mode.as_ref();
        self.modes.iter().find(is_chosen).or_else(|| self.modes.first())
    }

    /// Chooses a mode.
    pub fn choose_mode(&self, chosen: &mut Choices, id: &str) -> Result<(), Error> {
        if let Some((field, choices)) = self.own_modes() {
            let Some(choice) = choices.iter().find(|choice| id_of(&choice.value) == id) else {
                let known: Vec<_> = choices.iter().map(|choice| id_of(&choice.value)).collect();
                return Err(unknown("mode", id, known.iter().map(String::as_str)));
            };
            chosen.set(&field.key, choice.value.clone());
            return Ok(());
        }
        let Some(mode) = self.modes.iter().find(|mode| mode.id == id) else {
            let known = self.modes.iter().map(|mode| &*mode.id);
            return Err(unknown("mode", id, known));
        };
        // Choosing the same mode again must not undo the choice of another agent in it.
        if chosen.mode.as_ref() != Some(&mode.id) {
            chosen.enter(mode);
        }
        Ok(())
    }

    /// Chooses the first mode if none is chosen, or if the chosen one does not exist any more.
    pub fn settle_mode(&self, chosen: &mut Choices) {
        let is_known = self.modes.iter().any(|mode| Some(&mode.id) == chosen.mode.as_ref());
        match self.modes.first() {
            Some(_) if is_known => {}
            Some(first) => chosen.enter(first),
            None if chosen.mode.take().is_some() => {
                if let Some(own) = &chosen.own {
                    chosen.assistant.clone_from(own);
                }
            }
            None => {}
        }
    }

    /// Sets the value of an option.
    pub fn choose(
        &self,
        chosen: &mut Choices,
        id: &str,
        value: &OptionValue<'_>,
    ) -> Result<(), Error> {
        match (id, value) {
            (MODE, OptionValue::Id(mode)) => self.choose_mode(chosen, mode),
            (ASSISTANT, OptionValue::Id(assistant)) => {
                if !self.assistants.iter().any(|known| known.id == *assistant) {
                    let known = self.assistants.iter().map(|known| &*known.id);
                    return Err(unknown("agent", assistant, known));
                }
                (*assistant).clone_into(&mut chosen.assistant);
                chosen.own = Some((*assistant).to_owned());
                Ok(())
            }
            (MODE | ASSISTANT, OptionValue::Switch(_)) => Err(Error::new(
                Code::InvalidParams,
                format!("{id} is no switch; send one of its values"),
            )),
            (id, value) => {
                let key = id.strip_prefix(FIELD);
                let field = key.and_then(|key| self.fields.iter().find(|field| field.key == key));
                let field = field.ok_or_else(|| {
                    Error::new(Code::InvalidParams, format!("there is no option `{id}`"))
                })?;
                let value = value_of_field(field, value)?;
                chosen.set(&field.key, value);
                Ok(())
            }
        }
    }
}

fn id_of_field(field: &ConfigField) -> String {
    format!("{FIELD}{}", field.key)
}

// === impl Choices ===

impl Choices {
    /// The graph's `configurable` as one object: the mode's members, then the chosen settings that
    /// the graph offers, then the client's tool servers under the operator's key.
    pub fn configurable<'a>(
        &'a self,
        options: &'a SessionOptions,
        given: impl IntoIterator<Item = (&'a str, &'a Json)>,
    ) -> Option<Json> {
        let mut all: IndexMap<&str, &RawValue> = IndexMap::new();
        let mode = options.mode(self);
        let members = mode.and_then(|mode| mode.configurable.as_deref()).and_then(json::members);
        let members = members.unwrap_or_default().0;
        all.extend(members.iter().map(|(key, value)| (&**key, *value)));
        for field in &options.fields {
            all.extend(self.value_of(field).map(|value| (&*field.key, &**value)));
        }
        all.extend(given.into_iter().map(|(key, value)| (key, &**value)));
        let object =
            all.iter().fold(ObjectWriter::new(), |all, (key, value)| all.raw(key, value.get()));
        (!object.is_empty()).then(|| object.finish())
    }

    fn enter(&mut self, mode: &Mode) {
        let own = self.own.get_or_insert_with(|| self.assistant.clone());
        self.assistant.clone_from(mode.assistant.as_ref().unwrap_or(own));
        self.mode = Some(mode.id.clone());
    }

    /// The chosen value of a setting of the running agent, if the graph offers the value.
    fn value_of(&self, field: &ConfigField) -> Option<&Json> {
        let value = self.fields.get(&self.assistant)?.get(&field.key)?;
        let is_offered = match &field.kind {
            ConfigKind::Switch => matches!(value.get(), "true" | "false"),
            ConfigKind::Choice(choices) => {
                choices.iter().any(|choice| json::same(choice.value.get(), value.get()))
            }
        };
        is_offered.then_some(value)
    }

    /// Sets a value for the running agent.
    fn set(&mut self, key: &str, value: Json) {
        let mut fields = self.fields.shift_remove(&self.assistant).unwrap_or_default();
        fields.insert(key.to_owned(), value);
        self.fields.insert(self.assistant.clone(), fields);
        let surplus = self.fields.len().saturating_sub(MAX_CONFIGURED);
        self.fields.drain(..surplus);
    }
}

#[cfg(test)]
mod tests;
