//! What a person chooses for a session: its mode, its assistant, the graph's own settings; and how
//! that is kept with the thread, so that any process can go on with it.

use indexmap::IndexMap;
use serde_json::value::RawValue;

use super::permission::{Remembered, Rules};
use super::rpc::{Code, Error};
use crate::json::{self, Json, ObjectWriter, Text};
use crate::langgraph::{ConfigField, ConfigKind};

/// A way to work, as the operator has set it up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Its id.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// The agent that runs in it, where that is another than the session's.
    pub assistant: Option<String>,
    /// What the graph is told in it: members of `config.configurable`.
    pub configurable: Option<Json>,
    /// Which calls are asked about in it, before the rules for all modes.
    pub permissions: Rules,
}

/// An agent that a session may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assistant {
    /// The name to run it by.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
}

/// What there is to choose from.
#[derive(Clone, Debug, Default)]
pub struct Menu {
    /// The modes, the first being that of a new session.
    pub modes: Vec<Mode>,
    /// The agents.
    pub assistants: Vec<Assistant>,
    /// The settings of the chosen agent's graph.
    pub fields: Vec<ConfigField>,
}

/// What is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// The mode; `None` where there are none.
    pub mode: Option<String>,
    /// The agent that runs: the mode's, or the session's own.
    pub assistant: String,
    /// The session's own agent, which it returns to when it leaves a mode that brought another.
    /// `None` for a session of an older version, which did not keep it.
    pub own: Option<String>,
    /// What was chosen of each agent's settings; the agent that was set last is last.
    pub fields: IndexMap<String, Fields>,
}

/// Settings of a graph, by their keys.
pub type Fields = IndexMap<String, Json>;

/// For how many agents a session keeps settings; those that were not set for longest go first.
/// They are in the thread's metadata, which is read whole.
pub const MAX_CONFIGURED: usize = 32;

/// A value that a client sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// One of the values that were offered, by its id.
    Id(&'a str),
    /// Yes or no.
    Switch(bool),
}

/// What a session keeps in its thread's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The directory that it is about; `None` for a thread that no editor has made.
    pub cwd: Option<String>,
    /// What is chosen.
    pub choices: Choices,
    /// What was answered for good.
    pub always: Vec<Remembered>,
    /// Its title.
    pub title: Option<String>,
}

/// The option that names the mode; it says the same as the protocol's older `modes`.
const MODE: &str = "mode";

/// The option that names the agent.
const ASSISTANT: &str = "assistant";

/// What marks the option of a graph's own setting.
const FIELD: &str = "config:";

// === impl Menu ===

impl Menu {
    /// The options in the order of their weight, each with a default. A client without switches
    /// gets a choice of two instead.
    pub fn options(&self, chosen: &Choices, has_switches: bool) -> Json {
        let mut options = Vec::new();
        if let Some(mode) = self.mode(chosen) {
            let values = self.modes.iter().map(|m| value(&m.id, &m.name, m.description.as_deref()));
            options.push(select(MODE, "Mode", Some("mode"), &mode.id, values));
        }
        if self.assistants.len() > 1 {
            let values =
                self.assistants.iter().map(|a| value(&a.id, &a.name, a.description.as_deref()));
            let category = Some("_assistant");
            options.push(select(ASSISTANT, "Agent", category, &chosen.assistant, values));
        }
        for field in &self.fields {
            let current = chosen.value_of(field).unwrap_or(&field.default);
            let id = format!("{FIELD}{}", field.key);
            options.push(option_of_field(&id, field, current, has_switches));
        }
        json::array(options.iter().map(|option| option.get()))
    }

    /// `modes`, for clients that know no options; `None` where there are none.
    pub fn modes(&self, chosen: &Choices) -> Option<Json> {
        let mode = self.mode(chosen)?;
        let modes: Vec<_> = self
            .modes
            .iter()
            .map(|mode| {
                ObjectWriter::new()
                    .string("id", &mode.id)
                    .string("name", &mode.name)
                    .optional("description", mode.description.as_deref().map(Text::new).as_ref())
                    .finish()
            })
            .collect();
        let all = json::array(modes.iter().map(|mode| mode.get()));
        let modes = ObjectWriter::new().string("currentModeId", &mode.id);
        Some(modes.raw("availableModes", all.get()).finish())
    }

    /// The mode that a session is in: a mode that is no more is the first.
    pub fn mode(&self, chosen: &Choices) -> Option<&Mode> {
        let is_chosen = |mode: &&Mode| Some(&mode.id) == chosen.mode.as_ref();
        self.modes.iter().find(is_chosen).or_else(|| self.modes.first())
    }

    /// Takes a mode.
    pub fn choose_mode(&self, chosen: &mut Choices, id: &str) -> Result<(), Error> {
        let Some(mode) = self.modes.iter().find(|mode| mode.id == id) else {
            let known = self.modes.iter().map(|mode| &*mode.id);
            return Err(unknown("mode", id, known));
        };
        // One that is chosen again changes nothing: another agent may have been chosen in it.
        if chosen.mode.as_ref() != Some(&mode.id) {
            chosen.enter(mode);
        }
        Ok(())
    }

    /// Takes the first mode where none is chosen, or one that is no more.
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

    /// Takes the value of an option.
    pub fn choose(&self, chosen: &mut Choices, id: &str, value: &Value<'_>) -> Result<(), Error> {
        match (id, value) {
            (MODE, Value::Id(mode)) => self.choose_mode(chosen, mode),
            (ASSISTANT, Value::Id(assistant)) => {
                if !self.assistants.iter().any(|known| known.id == *assistant) {
                    let known = self.assistants.iter().map(|known| &*known.id);
                    return Err(unknown("agent", assistant, known));
                }
                (*assistant).clone_into(&mut chosen.assistant);
                chosen.own = Some((*assistant).to_owned());
                Ok(())
            }
            (MODE | ASSISTANT, Value::Switch(_)) => Err(Error::new(
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

fn select(
    id: &str,
    name: &str,
    category: Option<&str>,
    current: &str,
    values: impl Iterator<Item = Json>,
) -> Json {
    let values: Vec<_> = values.collect();
    let values = json::array(values.iter().map(|value| value.get()));
    ObjectWriter::new()
        .string("id", id)
        .string("name", name)
        .optional("category", category.map(Text::new).as_ref())
        .string("type", "select")
        .string("currentValue", current)
        .raw("options", values.get())
        .finish()
}

fn value(id: &str, name: &str, description: Option<&str>) -> Json {
    ObjectWriter::new()
        .string("value", id)
        .string("name", name)
        .optional("description", description.map(Text::new).as_ref())
        .finish()
}

fn option_of_field(id: &str, field: &ConfigField, current: &Json, has_switches: bool) -> Json {
    let category = category(&field.key);
    let option = match &field.kind {
        ConfigKind::Switch if has_switches => ObjectWriter::new()
            .string("id", id)
            .string("name", &field.title)
            .optional("category", category.map(Text::new).as_ref())
            .string("type", "boolean")
            .raw("currentValue", if current.get() == "true" { "true" } else { "false" })
            .finish(),
        ConfigKind::Switch => {
            let values = [("true", "On"), ("false", "Off")];
            let values = values.into_iter().map(|(id, name)| value(id, name, None));
            let current = if current.get() == "true" { "true" } else { "false" };
            select(id, &field.title, category, current, values)
        }
        ConfigKind::Choice(choices) => {
            let values =
                choices.iter().map(|c| value(&id_of(&c.value), &c.label, c.description.as_deref()));
            select(id, &field.title, category, &id_of(current), values)
        }
    };
    match &field.description {
        Some(description) => {
            let members = json::members(&option).unwrap_or_default().0;
            let option = members
                .iter()
                .fold(ObjectWriter::new(), |option, (name, value)| option.raw(name, value.get()));
            option.string("description", description).finish()
        }
        None => option,
    }
}

/// A value of the graph's as an id: a string as it is, anything else as its JSON.
fn id_of(value: &RawValue) -> String {
    json::string(value).map_or_else(|| value.get().to_owned(), Into::into)
}

fn value_of_field(field: &ConfigField, value: &Value<'_>) -> Result<Json, Error> {
    let refused = || {
        let message = format!("`{}` takes no such value; send one of its options", field.key);
        Error::new(Code::InvalidParams, message)
    };
    match (&field.kind, value) {
        (ConfigKind::Switch, Value::Switch(value)) => Ok(json::raw(value.to_string())),
        (ConfigKind::Switch, Value::Id(id @ ("true" | "false"))) => Ok(json::raw((*id).to_owned())),
        (ConfigKind::Choice(choices), Value::Id(id)) => choices
            .iter()
            .find(|choice| id_of(&choice.value) == *id)
            .map(|choice| choice.value.clone())
            .ok_or_else(refused),
        (ConfigKind::Switch, Value::Id(_)) | (ConfigKind::Choice(_), Value::Switch(_)) => {
            Err(refused())
        }
    }
}

/// The categories that the protocol knows; clients find the model's by it.
fn category(key: &str) -> Option<&'static str> {
    match key {
        "model" | "model_name" | "model_id" | "llm" | "chat_model" => Some("model"),
        "thought_level" | "thinking" | "thinking_level" | "reasoning" | "reasoning_effort"
        | "effort" => Some("thought_level"),
        "temperature" | "top_p" | "max_tokens" | "verbosity" => Some("model_config"),
        _ => None,
    }
}

fn unknown<'a>(what: &str, id: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let known = known.map(|id| format!("`{id}`")).collect::<Vec<_>>().join(", ");
    let known =
        if known.is_empty() { "there are none".to_owned() } else { format!("there are {known}") };
    Error::new(Code::InvalidParams, format!("there is no {what} `{id}`; {known}"))
}

// === impl Choices ===

impl Choices {
    /// What the graph is told, as one object: the mode's settings, those that were chosen for this
    /// agent and that its graph offers, and the tool servers of the client under the operator's key
    /// for them.
    pub fn configurable(&self, menu: &Menu, servers: Option<(&str, &Json)>) -> Option<Json> {
        let mut all: IndexMap<&str, &RawValue> = IndexMap::new();
        let mode = menu.mode(self);
        let members = mode.and_then(|mode| mode.configurable.as_deref()).and_then(json::members);
        let members = members.unwrap_or_default().0;
        all.extend(members.iter().map(|(key, value)| (&**key, *value)));
        for field in &menu.fields {
            all.extend(self.value_of(field).map(|value| (&*field.key, &**value)));
        }
        all.extend(servers.map(|(key, servers)| (key, &**servers)));
        let object =
            all.iter().fold(ObjectWriter::new(), |all, (key, value)| all.raw(key, value.get()));
        (!object.is_empty()).then(|| object.finish())
    }

    fn enter(&mut self, mode: &Mode) {
        let own = self.own.get_or_insert_with(|| self.assistant.clone());
        self.assistant.clone_from(mode.assistant.as_ref().unwrap_or(own));
        self.mode = Some(mode.id.clone());
    }

    /// What was chosen of a setting for the agent that runs, if its graph offers that.
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

    /// Sets a value for the agent that runs.
    fn set(&mut self, key: &str, value: Json) {
        let mut fields = self.fields.shift_remove(&self.assistant).unwrap_or_default();
        fields.insert(key.to_owned(), value);
        self.fields.insert(self.assistant.clone(), fields);
        let surplus = self.fields.len().saturating_sub(MAX_CONFIGURED);
        self.fields.drain(..surplus);
    }
}

// === impl Kept ===

/// The keys of a thread's metadata; the first four are those of `deepagents-acp`.
mod key {
    pub(super) const SESSION: &str = "acp_session";
    pub(super) const CWD: &str = "cwd";
    pub(super) const MODE: &str = "acp_mode";
    pub(super) const ASSISTANT: &str = "acp_assistant";
    pub(super) const OWN_ASSISTANT: &str = "acp_own_assistant";
    /// The settings of the agent that runs. Older versions kept those of all agents here.
    pub(super) const CONFIG: &str = "acp_config";
    /// Those of the others, by agent.
    pub(super) const OTHER_CONFIGS: &str = "acp_other_configs";
    pub(super) const ALWAYS: &str = "acp_always";
    pub(super) const TITLE: &str = "title";
}

impl Kept {
    /// Reads a thread's metadata. What is not understood counts as absent: others write there too.
    pub fn read(metadata: &RawValue) -> Self {
        let members = json::members(metadata).unwrap_or_default();
        let string = |name| members.string(name).map(Into::into);
        let assistant: String = string(key::ASSISTANT).unwrap_or_default();
        let others = members.get(key::OTHER_CONFIGS).and_then(json::members).unwrap_or_default();
        let mut fields: IndexMap<_, _> = others
            .0
            .iter()
            .filter_map(|(agent, config)| Some((agent.0.to_string(), read_fields(config)?)))
            .take(MAX_CONFIGURED)
            .collect();
        let config = members.get(key::CONFIG).and_then(read_fields);
        fields.extend(config.filter(|all| !all.is_empty()).map(|all| (assistant.clone(), all)));
        let always = members.get(key::ALWAYS).and_then(json::items).unwrap_or_default();
        // One that is not understood is no reason to forget the others.
        let always = always.into_iter().filter_map(|one| serde_json::from_str(one.get()).ok());
        Self {
            cwd: string(key::CWD),
            choices: Choices {
                mode: string(key::MODE),
                assistant,
                own: string(key::OWN_ASSISTANT),
                fields,
            },
            always: always.collect(),
            title: string(key::TITLE),
        }
    }

    /// The metadata that makes a thread a session, to look for others by.
    pub fn mark(cwd: Option<&str>) -> Json {
        let mark = ObjectWriter::new().raw(key::SESSION, "true");
        match cwd {
            Some(cwd) => mark.string(key::CWD, cwd).finish(),
            None => mark.finish(),
        }
    }

    /// All of it, as metadata.
    pub fn write(&self) -> Json {
        let Self { cwd, choices, always: _, title } = self;
        let text = |string: &Option<String>| string.as_deref().map(Text::new);
        let none = Fields::new();
        let fields = choices.fields.get(&choices.assistant).unwrap_or(&none);
        let others = choices.fields.iter().filter(|(agent, _)| **agent != choices.assistant);
        let others = others.fold(ObjectWriter::new(), |all, (agent, fields)| {
            all.raw(agent, write_fields(fields).get())
        });
        // A server merges metadata: what is not written again stays as it was.
        ObjectWriter::new()
            .raw(key::SESSION, "true")
            .optional(key::CWD, text(cwd).as_ref())
            .optional(key::MODE, text(&choices.mode).as_ref())
            .string(key::ASSISTANT, &choices.assistant)
            .optional(key::OWN_ASSISTANT, text(&choices.own).as_ref())
            .raw(key::CONFIG, write_fields(fields).get())
            .raw(key::OTHER_CONFIGS, others.finish().get())
            .raw(key::ALWAYS, self.write_always().get())
            .optional(key::TITLE, text(title).as_ref())
            .finish()
    }

    fn write_always(&self) -> Json {
        json::raw(serde_json::to_string(&self.always).unwrap_or_else(|_| "[]".to_owned()))
    }
}

fn read_fields(config: &RawValue) -> Option<Fields> {
    let members = json::members(config)?;
    Some(members.0.iter().map(|(key, value)| (key.0.to_string(), Json::from(*value))).collect())
}

fn write_fields(fields: &Fields) -> Json {
    let object = fields.iter();
    object.fold(ObjectWriter::new(), |all, (key, value)| all.raw(key, value.get())).finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acp::permission::Always;
    use crate::langgraph::ConfigChoice;

    fn raw(text: &str) -> Json {
        json::raw(text.to_owned())
    }

    fn menu() -> Menu {
        let mode = |id: &str, assistant: Option<&str>, configurable: Option<&str>| Mode {
            id: id.to_owned(),
            name: id.to_uppercase(),
            description: None,
            assistant: assistant.map(str::to_owned),
            configurable: configurable.map(raw),
            permissions: Rules::default(),
        };
        let assistant =
            |id: &str| Assistant { id: id.to_owned(), name: id.to_owned(), description: None };
        let choice = |value, label: &str| ConfigChoice {
            value: raw(value),
            label: label.to_owned(),
            description: None,
        };
        let field = |key: &str, kind, default| ConfigField {
            key: key.to_owned(),
            title: key.to_owned(),
            description: None,
            kind,
            default: raw(default),
        };
        let models = vec![choice("\"fast\"", "Fast"), choice("2", "Two")];
        Menu {
            modes: vec![
                mode("act", None, None),
                mode("plan", Some("planner"), Some(r#"{"model":"slow","deep":true}"#)),
            ],
            assistants: vec![assistant("agent"), assistant("planner")],
            fields: vec![
                field("model", ConfigKind::Choice(models), "\"fast\""),
                field("verbose", ConfigKind::Switch, "false"),
            ],
        }
    }

    fn chosen() -> Choices {
        Choices {
            mode: Some("act".to_owned()),
            assistant: "agent".to_owned(),
            own: Some("agent".to_owned()),
            fields: IndexMap::new(),
        }
    }

    #[test]
    fn options_come_in_the_order_of_their_weight_each_with_what_is_chosen() {
        let told = |has_switches| {
            let options = menu().options(&chosen(), has_switches);
            let options: Vec<serde_json::Value> = serde_json::from_str(options.get()).unwrap();
            let member = |option: &serde_json::Value, name: &str| {
                option.get(name).map_or_else(String::new, ToString::to_string)
            };
            let told = options.iter().map(|option| {
                ["id", "category", "type", "currentValue"]
                    .map(|name| member(option, name))
                    .join(" ")
            });
            told.collect::<Vec<_>>()
        };
        let model = r#""config:model" "model" "select" "fast""#;
        let first =
            [r#""mode" "mode" "select" "act""#, r#""assistant" "_assistant" "select" "agent""#];
        let [mode, assistant] = first;
        assert_eq!(told(true), [mode, assistant, model, r#""config:verbose"  "boolean" false"#]);
        assert_eq!(told(false), [mode, assistant, model, r#""config:verbose"  "select" "false""#]);
        let alone = Menu { assistants: Vec::new(), modes: Vec::new(), ..menu() };
        assert_eq!(alone.modes(&chosen()), None);
        let state = menu().modes(&chosen()).unwrap();
        assert_eq!(
            state.get(),
            r#"{"currentModeId":"act","availableModes":[{"id":"act","name":"ACT"},{"id":"plan","name":"PLAN"}]}"#
        );
    }

    #[test]
    fn what_is_offered_can_be_chosen_and_nothing_else() {
        let (menu, mut choices) = (menu(), chosen());
        for (id, value) in [
            ("mode", Value::Id("none")),
            ("mode", Value::Switch(true)),
            ("assistant", Value::Id("none")),
            ("config:model", Value::Id("slow")),
            ("config:model", Value::Switch(true)),
            ("config:verbose", Value::Id("maybe")),
            ("config:none", Value::Id("x")),
            ("none", Value::Id("x")),
        ] {
            let error = menu.choose(&mut choices, id, &value).unwrap_err();
            assert_eq!(error.code, Code::InvalidParams, "{id} {value:?}");
        }
        assert_eq!(choices, chosen());
        for (id, value) in [
            ("config:model", Value::Id("2")),
            ("config:verbose", Value::Id("true")),
            ("config:verbose", Value::Switch(false)),
        ] {
            menu.choose(&mut choices, id, &value).unwrap();
        }
        let told = |choices: &Choices| {
            let told = choices.configurable(&menu, Some(("mcp", &raw("[]"))));
            told.unwrap().get().to_owned()
        };
        assert_eq!(told(&choices), r#"{"model":2,"verbose":false,"mcp":[]}"#);
        // A mode brings its agent along, which has settings of its own.
        menu.choose(&mut choices, "mode", &Value::Id("plan")).unwrap();
        assert_eq!(choices.assistant, "planner");
        assert_eq!(told(&choices), r#"{"model":"slow","deep":true,"mcp":[]}"#);
        // What is chosen beats what the mode sets.
        menu.choose(&mut choices, "config:model", &Value::Id("fast")).unwrap();
        assert_eq!(told(&choices), r#"{"model":"fast","deep":true,"mcp":[]}"#);
        menu.choose(&mut choices, "mode", &Value::Id("act")).unwrap();
        assert_eq!(told(&choices), r#"{"model":2,"verbose":false,"mcp":[]}"#);
        assert_eq!(chosen().configurable(&menu, None), None);
    }

    #[test]
    fn what_an_agents_graph_does_not_offer_is_neither_sent_nor_shown() {
        let mut choices = chosen();
        menu().choose(&mut choices, "config:model", &Value::Id("2")).unwrap();
        let other =
            ConfigChoice { value: raw("\"gpt\""), label: "G".to_owned(), description: None };
        let mut changed = menu();
        changed.fields.truncate(1);
        changed.fields[0].kind = ConfigKind::Choice(vec![other]);
        changed.fields[0].default = raw("\"gpt\"");
        assert_eq!(choices.configurable(&changed, None), None);
        let options = changed.options(&choices, false);
        assert!(options.get().contains(r#""currentValue":"gpt""#), "{}", options.get());
        // Once it is offered again, it is the choice again.
        assert_eq!(choices.configurable(&menu(), None).unwrap().get(), r#"{"model":2}"#);
    }

    #[test]
    fn a_mode_that_is_left_gives_back_the_sessions_own_agent() {
        let (menu, mut choices) = (menu(), chosen());
        menu.choose_mode(&mut choices, "plan").unwrap();
        assert_eq!(choices.assistant, "planner");
        menu.choose_mode(&mut choices, "act").unwrap();
        assert_eq!(choices, chosen());
        // An agent that is chosen in a mode is the session's own from then on.
        menu.choose_mode(&mut choices, "plan").unwrap();
        menu.choose(&mut choices, "assistant", &Value::Id("agent")).unwrap();
        menu.choose_mode(&mut choices, "plan").unwrap();
        assert_eq!(choices.assistant, "agent");
        menu.choose_mode(&mut choices, "act").unwrap();
        assert_eq!(choices.assistant, "agent");
        // The operator takes the mode away.
        menu.choose_mode(&mut choices, "plan").unwrap();
        for modes in [menu.modes[..1].to_vec(), Vec::new()] {
            let mut choices = choices.clone();
            let less = Menu { modes, ..menu.clone() };
            less.settle_mode(&mut choices);
            assert_eq!(choices.assistant, "agent");
            assert_eq!(choices.mode, less.modes.first().map(|mode| mode.id.clone()));
        }
    }

    #[test]
    fn settings_are_kept_for_so_many_agents() {
        let (menu, mut choices) = (menu(), chosen());
        for at in 0..=MAX_CONFIGURED {
            choices.assistant = format!("agent{at}");
            menu.choose(&mut choices, "config:model", &Value::Id("2")).unwrap();
        }
        assert_eq!(choices.fields.len(), MAX_CONFIGURED);
        assert!(!choices.fields.contains_key("agent0"));
    }

    #[test]
    fn what_is_kept_is_read_again_whatever_else_stands_there() {
        let mut choices = chosen();
        choices.set("model", raw("2"));
        choices.fields.insert("other".to_owned(), Fields::from([("a".to_owned(), raw("1"))]));
        choices.fields.swap_indices(0, 1);
        let always =
            Remembered { name: "rm".to_owned(), args: "{}".to_owned(), decision: Always::Reject };
        let kept = Kept {
            cwd: Some("/w".to_owned()),
            choices,
            always: vec![always],
            title: Some("T".to_owned()),
        };
        assert_eq!(Kept::read(&kept.write()), kept);
        // An older version kept one set of settings, and not the session's own agent.
        let older = raw(r#"{"acp_assistant":"agent","acp_config":{"model":2}}"#);
        let older = Kept::read(&older).choices;
        assert_eq!(older.fields["agent"]["model"].get(), "2");
        assert_eq!((older.fields.len(), older.own), (1, None));
        let foreign =
            raw(r#"{"cwd":1,"acp_mode":[],"acp_config":"x","acp_always":{},"title":null}"#);
        assert_eq!(Kept::read(&foreign), Kept::default());
        let some =
            raw(r#"{"acp_always":[1,{"name":"rm","args":"{}","decision":"reject"},{"name":"x"}]}"#);
        assert_eq!(Kept::read(&some).always, kept.always);
        assert_eq!(Kept::mark(Some("/w")).get(), r#"{"acp_session":true,"cwd":"/w"}"#);
    }
}
