//! Configuration options as the client gets them.

use serde_json::value::RawValue;

use super::OptionValue;
use crate::acp::rpc::{Code, Error};
use crate::json::{self, Json, ObjectWriter, Text};
use crate::langgraph::{ConfigField, ConfigKind, MODEL_KEYS};

/// An option with a list of values.
pub(super) fn select(
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

/// A value of an option.
pub(super) fn value(id: &str, name: &str, description: Option<&str>) -> Json {
    ObjectWriter::new()
        .string("value", id)
        .string("name", name)
        .optional("description", description.map(Text::new).as_ref())
        .finish()
}

/// The option of a graph's setting.
pub(super) fn option_of_field(
    id: &str,
    field: &ConfigField,
    category: Option<&str>,
    current: &Json,
    has_switches: bool,
) -> Json {
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

/// The id of a value: a string as it is, anything else as JSON.
pub(super) fn id_of(value: &RawValue) -> String {
    json::string(value).map_or_else(|| value.get().to_owned(), Into::into)
}

/// Reads the value of a graph's setting. An error if the graph does not offer it.
pub(super) fn value_of_field(field: &ConfigField, value: &OptionValue<'_>) -> Result<Json, Error> {
    let refused = || {
        let message = format!("`{}` takes no such value; send one of its options", field.key);
        Error::new(Code::InvalidParams, message)
    };
    match (&field.kind, value) {
        (ConfigKind::Switch, OptionValue::Switch(value)) => Ok(json::raw(value.to_string())),
        (ConfigKind::Switch, OptionValue::Id(id @ ("true" | "false"))) => {
            Ok(json::raw((*id).to_owned()))
        }
        (ConfigKind::Choice(choices), OptionValue::Id(id)) => choices
            .iter()
            .find(|choice| id_of(&choice.value) == *id)
            .map(|choice| choice.value.clone())
            .ok_or_else(refused),
        (ConfigKind::Switch, OptionValue::Id(_))
        | (ConfigKind::Choice(_), OptionValue::Switch(_)) => Err(refused()),
    }
}

/// The protocol's category of a setting. Clients find the option for the model by it.
pub(super) fn category(key: &str) -> Option<&'static str> {
    match key {
        key if MODEL_KEYS.contains(&key) => Some("model"),
        "thought_level" | "thinking" | "thinking_level" | "reasoning" | "reasoning_effort"
        | "effort" => Some("thought_level"),
        "temperature" | "top_p" | "max_tokens" | "verbosity" => Some("model_config"),
        _ => None,
    }
}

/// The error for an unknown id. It lists the known ones.
pub(super) fn unknown<'a>(what: &str, id: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let known = known.map(|id| format!("`{id}`")).collect::<Vec<_>>().join(", ");
    let known =
        if known.is_empty() { "there are none".to_owned() } else { format!("there are {known}") };
    Error::new(Code::InvalidParams, format!("there is no {what} `{id}`; {known}"))
}
