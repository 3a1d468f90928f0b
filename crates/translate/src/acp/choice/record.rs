//! What a session stores in its thread's metadata, so that any process can continue it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::always::PermanentAnswers;
use super::{Choices, MAX_CONFIGURED};
use crate::json::{self, Json, ObjectWriter, Text};

/// What a session stores in its thread's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionRecord {
    /// Whether the thread is marked as a session. A thread that no editor has prompted is not.
    pub is_session: bool,
    /// The session's directory. `None` for a thread that no editor created.
    pub cwd: Option<String>,
    /// The session's other directories, in the client's order.
    pub additional_directories: Vec<String>,
    /// What the session has chosen.
    pub choices: Choices,
    /// The answers that hold for later calls.
    pub always: PermanentAnswers,
    /// The title.
    pub title: Option<String>,
}

/// The members of a thread's metadata that belong to a session's record, or changes of them. In
/// changes, a null is a member that is gone: a server cannot remove one.
///
/// LangGraph replaces each member of the metadata by itself. So each setting and each permanent
/// answer is a member of its own, and a client that changes one undoes no change of another client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordMembers(BTreeMap<String, Json>);

// === impl SessionRecord ===

/// The keys of the metadata. The first four are those of `deepagents-acp`.
mod key {
    pub(super) const SESSION: &str = "acp_session";
    pub(super) const CWD: &str = "cwd";
    pub(super) const MODE: &str = "acp_mode";
    pub(super) const ASSISTANT: &str = "acp_assistant";
    pub(super) const OWN_ASSISTANT: &str = "acp_own_assistant";
    pub(super) const ADDITIONAL_DIRECTORIES: &str = "acp_additional_directories";
    pub(super) const TITLE: &str = "title";
    /// The prefix of a setting's key. The agent and the key of the graph's configuration follow.
    pub(super) const CONFIG: &str = "acp_config/";
    /// The prefix of a permanent answer's key.
    pub(super) const ALWAYS: &str = "acp_always/";

    pub(super) const ALL: [&str; 7] =
        [SESSION, CWD, MODE, ASSISTANT, OWN_ASSISTANT, ADDITIONAL_DIRECTORIES, TITLE];
    pub(super) const PREFIXES: [&str; 2] = [CONFIG, ALWAYS];
}

const NULL: &str = "null";

/// How a setting whose value is null is stored. A null itself is a setting that is gone.
const NULL_SETTING: &str = r#"{"value":null}"#;

impl SessionRecord {
    /// Reads a thread's metadata. A member that cannot be read counts as absent, because others
    /// write to the metadata too.
    pub fn read(metadata: &RawValue) -> Self {
        Self::of(&RecordMembers::read(metadata))
    }

    /// The record that has these members.
    pub fn of(members: &RecordMembers) -> Self {
        let string = |name| members.get(name).and_then(json::string).map(Cow::into_owned);
        let assistant = string(key::ASSISTANT).unwrap_or_default();
        let directories = members.get(key::ADDITIONAL_DIRECTORIES).and_then(json::items);
        let directories = directories.unwrap_or_default().into_iter().filter_map(json::string);
        let mut choices = Choices {
            mode: string(key::MODE),
            own: string(key::OWN_ASSISTANT),
            ..Choices::default()
        };
        for (name, value) in members.beginning_with(key::CONFIG) {
            if let Some((agent, setting)) = name.split_once('/') {
                let fields = choices.fields.entry(unescaped(agent)).or_default();
                let is_null = json::same(value.get(), NULL_SETTING);
                let value = if is_null { json::raw(NULL.to_owned()) } else { value.clone() };
                fields.insert(unescaped(setting), value);
            }
        }
        // The running agent's settings are dropped last.
        if let Some(own) = choices.fields.shift_remove(&assistant) {
            choices.fields.insert(assistant.clone(), own);
        }
        let surplus = choices.fields.len().saturating_sub(MAX_CONFIGURED);
        choices.fields.drain(..surplus);
        choices.assistant = assistant;
        Self {
            is_session: members.is_marked(),
            cwd: string(key::CWD),
            additional_directories: directories.map(Cow::into_owned).collect(),
            choices,
            always: PermanentAnswers::read(members.beginning_with(key::ALWAYS)),
            title: string(key::TITLE),
        }
    }

    /// Whether a thread's metadata mark it as a session.
    pub fn is_marked(metadata: &RawValue) -> bool {
        RecordMembers::read(metadata).is_marked()
    }

    /// The metadata that marks a thread as a session. Other sessions are searched by it.
    pub fn mark(cwd: Option<&str>) -> Json {
        let mark = ObjectWriter::new().raw(key::SESSION, "true");
        match cwd {
            Some(cwd) => mark.string(key::CWD, cwd).finish(),
            None => mark.finish(),
        }
    }

    /// The members of the metadata that graphs read: the session's directories.
    pub fn write_directories(&self) -> Json {
        ObjectWriter::new()
            .optional(key::CWD, self.cwd.as_deref().map(Text::new).as_ref())
            .raw(key::ADDITIONAL_DIRECTORIES, write_texts(&self.additional_directories).get())
            .finish()
    }

    /// The record as members of the metadata.
    pub fn members(&self) -> RecordMembers {
        let Self { is_session, cwd, additional_directories, choices, always, title } = self;
        let mut members = BTreeMap::new();
        let mut add = |name: &str, value: Option<Json>| {
            members.extend(value.map(|value| (name.to_owned(), value)));
        };
        let text =
            |string: &Option<String>| string.as_deref().map(|text| Json::from(Text::new(text)));
        add(key::SESSION, is_session.then(|| json::raw("true".to_owned())));
        add(key::CWD, text(cwd));
        add(key::MODE, text(&choices.mode));
        add(key::ASSISTANT, Some(Json::from(Text::new(&choices.assistant))));
        add(key::OWN_ASSISTANT, text(&choices.own));
        add(key::ADDITIONAL_DIRECTORIES, Some(write_texts(additional_directories)));
        add(key::TITLE, text(title));
        for (agent, fields) in &choices.fields {
            for (setting, value) in fields {
                let value = if value.get() == NULL {
                    json::raw(NULL_SETTING.to_owned())
                } else {
                    value.clone()
                };
                let name = format!("{}{}/{}", key::CONFIG, escaped(agent), escaped(setting));
                add(&name, Some(value));
            }
        }
        for (name, value) in always.write() {
            add(&format!("{}{name}", key::ALWAYS), Some(value));
        }
        RecordMembers(members)
    }
}

fn write_texts(texts: &[String]) -> Json {
    let texts: Vec<_> = texts.iter().map(|text| Json::from(Text::new(text))).collect();
    json::array(texts.iter().map(|text| text.get()))
}

/// A name without `/`, as JSON Pointer writes it.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn unescaped(name: &str) -> String {
    name.replace("~1", "/").replace("~0", "~")
}

// === impl RecordMembers ===

impl RecordMembers {
    /// The members of a thread's metadata that belong to a record.
    pub fn read(metadata: &RawValue) -> Self {
        let is_own = |name: &str| {
            key::ALL.contains(&name) || key::PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        };
        let members = json::members(metadata).unwrap_or_default().0.into_iter();
        let own = members.filter(|(name, value)| is_own(name) && value.get() != NULL);
        Self(own.map(|(name, value)| (name.0.into_owned(), Json::from(value))).collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The changes that make these members of `earlier` ones.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let is_new = |name: &String, value: &Json| {
            earlier.0.get(name).is_none_or(|known| !json::same(known.get(), value.get()))
        };
        let new = self.0.iter().filter(|(name, value)| is_new(name, value));
        let gone = earlier.0.keys().filter(|name| !self.0.contains_key(*name));
        let gone = gone.map(|name| (name.clone(), json::raw(NULL.to_owned())));
        Self(new.map(|(name, value)| (name.clone(), value.clone())).chain(gone).collect())
    }

    /// Applies changes.
    pub fn apply(&mut self, changes: Self) {
        self.and(changes);
        self.0.retain(|_, value| value.get() != NULL);
    }

    /// Adds later changes to these.
    pub fn and(&mut self, later: Self) {
        self.0.extend(later.0);
    }

    /// Without the members that others have.
    #[must_use]
    pub fn without(mut self, others: &Self) -> Self {
        self.0.retain(|name, _| !others.0.contains_key(name));
        self
    }

    /// The members as one object.
    pub fn write(&self) -> Json {
        let members = self.0.iter();
        members.fold(ObjectWriter::new(), |all, (name, value)| all.raw(name, value.get())).finish()
    }

    fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.get(name).map(|value| &**value)
    }

    fn is_marked(&self) -> bool {
        self.get(key::SESSION).is_some_and(|mark| mark.get() == "true")
    }

    /// The members whose names have this prefix, without it.
    fn beginning_with<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a Json)> {
        self.0.iter().filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value)))
    }
}
