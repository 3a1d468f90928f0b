//! What a session stores in its thread's metadata, so that any process can continue it.

use indexmap::IndexMap;
use serde_json::value::RawValue;

use super::{Choices, Fields, MAX_CONFIGURED};
use crate::acp::permission::Remembered;
use crate::json::{self, Json, ObjectWriter, Text};

/// What a session stores in its thread's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionRecord {
    /// The session's directory. `None` for a thread that no editor created.
    pub cwd: Option<String>,
    /// The session's other directories, in the client's order.
    pub additional_directories: Vec<String>,
    /// What the session has chosen.
    pub choices: Choices,
    /// The answers that hold for later calls.
    pub always: Vec<Remembered>,
    /// The title.
    pub title: Option<String>,
}

// === impl SessionRecord ===

/// The keys of the metadata. The first four are those of `deepagents-acp`.
mod key {
    pub(super) const SESSION: &str = "acp_session";
    pub(super) const CWD: &str = "cwd";
    pub(super) const MODE: &str = "acp_mode";
    pub(super) const ASSISTANT: &str = "acp_assistant";
    pub(super) const OWN_ASSISTANT: &str = "acp_own_assistant";
    /// The settings of the running agent. Older versions stored those of all agents here.
    pub(super) const CONFIG: &str = "acp_config";
    /// The settings of the other agents, by agent.
    pub(super) const OTHER_CONFIGS: &str = "acp_other_configs";
    pub(super) const ALWAYS: &str = "acp_always";
    pub(super) const ADDITIONAL_DIRECTORIES: &str = "acp_additional_directories";
    pub(super) const TITLE: &str = "title";
}

impl SessionRecord {
    /// Reads a thread's metadata. A member that cannot be read counts as absent, because others
    /// write to the metadata too.
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
        let directories = members.get(key::ADDITIONAL_DIRECTORIES).and_then(json::items);
        let directories = directories.unwrap_or_default().into_iter().filter_map(json::string);
        let always = members.get(key::ALWAYS).and_then(json::items).unwrap_or_default();
        // An answer that cannot be read must not delete the others.
        let always = always.into_iter().filter_map(|one| serde_json::from_str(one.get()).ok());
        Self {
            cwd: string(key::CWD),
            additional_directories: directories.map(Into::into).collect(),
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

    /// Whether a thread's metadata mark it as a session.
    pub fn is_marked(metadata: &RawValue) -> bool {
        let members = json::members(metadata).unwrap_or_default();
        members.get(key::SESSION).is_some_and(|mark| mark.get() == "true")
    }

    /// The metadata that marks a thread as a session. Other sessions are searched by it.
    pub fn mark(cwd: Option<&str>) -> Json {
        let mark = ObjectWriter::new().raw(key::SESSION, "true");
        match cwd {
            Some(cwd) => mark.string(key::CWD, cwd).finish(),
            None => mark.finish(),
        }
    }

    /// The member of the metadata with the additional directories, without the others.
    pub fn write_additional_directories(&self) -> Json {
        ObjectWriter::new()
            .raw(key::ADDITIONAL_DIRECTORIES, write_texts(&self.additional_directories).get())
            .finish()
    }

    /// The members of the metadata that graphs read: the session's directories.
    pub fn write_directories(&self) -> Json {
        ObjectWriter::new()
            .optional(key::CWD, self.cwd.as_deref().map(Text::new).as_ref())
            .raw(key::ADDITIONAL_DIRECTORIES, write_texts(&self.additional_directories).get())
            .finish()
    }

    /// The record as metadata.
    pub fn write(&self) -> Json {
        let Self { cwd, additional_directories, choices, always: _, title } = self;
        let text = |string: &Option<String>| string.as_deref().map(Text::new);
        let none = Fields::new();
        let fields = choices.fields.get(&choices.assistant).unwrap_or(&none);
        let others = choices.fields.iter().filter(|(agent, _)| **agent != choices.assistant);
        let others = others.fold(ObjectWriter::new(), |all, (agent, fields)| {
            all.raw(agent, write_fields(fields).get())
        });
        let directories = write_texts(additional_directories);
        // The server merges metadata, so members that are not written keep their values.
        ObjectWriter::new()
            .raw(key::SESSION, "true")
            .optional(key::CWD, text(cwd).as_ref())
            .raw(key::ADDITIONAL_DIRECTORIES, directories.get())
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

fn write_texts(texts: &[String]) -> Json {
    let texts: Vec<_> = texts.iter().map(|text| Json::from(Text::new(text))).collect();
    json::array(texts.iter().map(|text| text.get()))
}

fn read_fields(config: &RawValue) -> Option<Fields> {
    let members = json::members(config)?;
    Some(members.0.iter().map(|(key, value)| (key.0.to_string(), Json::from(*value))).collect())
}

fn write_fields(fields: &Fields) -> Json {
    let object = fields.iter();
    object.fold(ObjectWriter::new(), |all, (key, value)| all.raw(key, value.get())).finish()
}
