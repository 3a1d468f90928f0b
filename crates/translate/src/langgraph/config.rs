//! The fields of an assistant's configuration that a person can choose from a list.

use serde_json::value::RawValue;

use crate::json::{self, Json, Members, Text};

/// How many schemas are read for one field. Enough for any list that a person reads, and a limit
/// for schemas that refer to themselves.
const MAX_SCHEMAS: usize = 256;

/// The longest list of values that a person is offered.
const MAX_CHOICES: usize = 256;

/// The member of a field's schema that says how Open Agent Platform shows the field.
const UI: &str = "x_oap_ui_config";

/// LangGraph's own keys among the graph's fields.
const OWN_KEYS: [&str; 5] = ["assistant_id", "graph_id", "run_id", "thread_id", "thread_ts"];

/// The prefixes of LangGraph's own keys.
const OWN_PREFIXES: [&str; 3] = ["__", "checkpoint", "langgraph_"];

/// A field of the configuration with few possible values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigField {
    /// Its key in the configuration.
    pub key: String,
    /// The schema's title. Without one, the key.
    pub title: String,
    /// The schema's description.
    pub description: Option<String>,
    /// Its possible values.
    pub kind: ConfigKind,
    /// The value if nobody chooses: the assistant's, else the schema's, else the first one. If it
    /// is only the first, the graph may use another.
    pub default: Json,
}

/// The possible values of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigKind {
    /// At least two values, each once.
    Choice(Vec<ConfigChoice>),
    /// True or false.
    Switch,
}

/// A possible value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChoice {
    /// The value: a string, a number, a boolean or null.
    pub value: Json,
    /// The value's title in the schema. Without one, the value itself.
    pub label: String,
    /// The value's description in the schema.
    pub description: Option<String>,
}

/// The reader of one field's JSON schema.
struct Schema<'a> {
    root: &'a Members<'a>,
    /// How many more schemas may be read.
    left: usize,
}

// === impl ConfigField ===

impl ConfigField {
    /// Reads the answers of `GET /assistants/{id}/schemas` and `GET /assistants/{id}`. Returns the
    /// fields with few values in the schema's order. Empty if an answer cannot be parsed.
    pub fn list(schemas: &str, assistant: &str) -> Vec<Self> {
        let schemas: Members<'_> = serde_json::from_str(schemas).unwrap_or_default();
        let assistant: Members<'_> = serde_json::from_str(assistant).unwrap_or_default();
        let opened = |name| assistant.get(name).and_then(json::members).unwrap_or_default();
        let config = opened("config").get("configurable").and_then(json::members);
        let set = [opened("context"), config.unwrap_or_default()];
        let mut fields: Vec<Self> = Vec::new();
        // The same schema under two names. Older servers have only the first.
        for name in ["config_schema", "context_schema"] {
            let root = schemas.get(name).and_then(json::members).unwrap_or_default();
            let properties = root.get("properties").and_then(json::members).unwrap_or_default();
            for (key, property) in &properties.0 {
                if !is_own(key) && !fields.iter().any(|field| field.key == **key) {
                    let set = set.iter().find_map(|values| values.get(key));
                    fields.extend(Self::read(key, property, &root, set));
                }
            }
        }
        fields
    }

    fn read(
        key: &str,
        property: &RawValue,
        root: &Members<'_>,
        set: Option<&RawValue>,
    ) -> Option<Self> {
        let mut schema = Schema { root, left: MAX_SCHEMAS };
        let members = json::members(property)?;
        let mut choices: Vec<ConfigChoice> = Vec::new();
        for choice in schema.choices(property).or_else(|| ui_choices(&members))? {
            if !choices.iter().any(|known| json::same(known.value.get(), choice.value.get())) {
                choices.push(choice);
            }
        }
        if !(2..=MAX_CHOICES).contains(&choices.len()) {
            return None;
        }
        let one_of = |value: &RawValue| {
            let chosen = choices.iter().find(|choice| json::same(choice.value.get(), value.get()));
            chosen.map(|choice| choice.value.clone())
        };
        let defaults = [set, members.get("default"), ui_default(&members)];
        let default = defaults.into_iter().flatten().find_map(one_of);
        let own = members.string("description");
        let description =
            own.or_else(|| schema.referred(&members).and_then(|m| m.string("description")));
        Some(Self {
            key: key.to_owned(),
            // The title of a referenced type does not count: two fields may have one type.
            title: members.string("title").map_or_else(|| key.to_owned(), Into::into),
            description: description.map(Into::into),
            default: default.or_else(|| choices.first().map(|first| first.value.clone()))?,
            kind: ConfigKind::of(choices),
        })
    }
}

/// Whether a key is one of LangGraph's own.
fn is_own(key: &str) -> bool {
    OWN_KEYS.contains(&key) || OWN_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

// === the annotations of a field ===

/// How a field is shown in LangChain's Open Agent Platform: a member of its schema that graphs add
/// by hand.
fn ui<'a>(field: &Members<'a>) -> Option<Members<'a>> {
    let annotated = |field: &Members<'a>| json::members(field.get(UI)?);
    annotated(field).or_else(|| annotated(&json::members(field.get("metadata")?)?))
}

/// The default that a field's annotation names.
pub(super) fn ui_default<'a>(field: &Members<'a>) -> Option<&'a RawValue> {
    ui(field)?.get("default")
}

/// The values that a field's annotation lists. `None` if it is no list to choose from.
fn ui_choices(field: &Members<'_>) -> Option<Vec<ConfigChoice>> {
    let ui = ui(field)?;
    if ui.string("type").as_deref() != Some("select") {
        return None;
    }
    let options = json::items(ui.get("options")?)?;
    let choice = |option: &RawValue| {
        let option = json::members(option)?;
        let unnamed = Members::default();
        let choice = ConfigChoice::new(option.get("value")?, &unnamed)?;
        let label = option.string("label").map(Into::into);
        Some(ConfigChoice { label: label.unwrap_or(choice.label), ..choice })
    };
    options.into_iter().map(choice).collect()
}

// === impl ConfigKind ===

impl ConfigKind {
    fn of(choices: Vec<ConfigChoice>) -> Self {
        let is_boolean = |choice: &ConfigChoice| matches!(choice.value.get(), "true" | "false");
        if choices.iter().all(is_boolean) { Self::Switch } else { Self::Choice(choices) }
    }
}

// === impl ConfigChoice ===

impl ConfigChoice {
    /// A value with its schema's title and description. `None` for an object or a list.
    fn new(value: &RawValue, of: &Members<'_>) -> Option<Self> {
        let label = match value.get() {
            "null" => "none".to_owned(),
            list_or_object if list_or_object.starts_with(['[', '{']) => return None,
            plain => Text::from_raw(value)
                .filter(|text| !text.is_empty())
                .map_or_else(|| plain.to_owned(), |text| text.decode().into_owned()),
        };
        Some(Self {
            value: Json::from(value),
            label: of.string("title").map_or(label, Into::into),
            description: of.string("description").map(Into::into),
        })
    }
}

// === impl Schema ===

impl<'a> Schema<'a> {
    /// All values that a schema allows. `None` if they are not a list.
    fn choices(&mut self, schema: &'a RawValue) -> Option<Vec<ConfigChoice>> {
        self.left = self.left.checked_sub(1)?;
        let members = json::members(schema)?;
        let list = |name| members.get(name).and_then(json::items);
        if let Some(values) = list("enum") {
            // Title and description of the list are not those of its values.
            let unnamed = Members::default();
            return values.into_iter().map(|value| ConfigChoice::new(value, &unnamed)).collect();
        }
        if let Some(value) = members.get("const") {
            return ConfigChoice::new(value, &members).map(|only| vec![only]);
        }
        if members.get("$ref").is_some() {
            return self.choices(self.target(&members)?);
        }
        if let Some(all) = list("allOf") {
            return all.into_iter().find_map(|one| self.choices(one));
        }
        if let Some(any) = list("anyOf").or_else(|| list("oneOf")) {
            let choices: Option<Vec<_>> = any.into_iter().map(|one| self.choices(one)).collect();
            return choices.map(|choices| choices.into_iter().flatten().collect());
        }
        let unnamed = Members::default();
        let values: &[&str] = match &*members.string("type")? {
            "boolean" => &["false", "true"],
            "null" => &["null"],
            _ => return None,
        };
        let plain = |value: &&str| ConfigChoice::new(&json::raw((*value).to_owned()), &unnamed);
        values.iter().map(plain).collect()
    }

    /// The schema that this one refers to, also as the only item of `allOf`.
    fn referred(&self, members: &Members<'a>) -> Option<Members<'a>> {
        let all = members.get("allOf").and_then(json::items).unwrap_or_default();
        match (members.get("$ref"), &all[..]) {
            (Some(_), _) => json::members(self.target(members)?),
            (None, [one]) => json::members(self.target(&json::members(one)?)?),
            (None, _) => None,
        }
    }

    /// The target of a reference within the document.
    fn target(&self, members: &Members<'a>) -> Option<&'a RawValue> {
        let reference = members.string("$ref")?;
        let mut path = reference.strip_prefix("#/")?.split('/');
        // `$defs`, or `definitions` before 2019.
        let definitions = json::members(self.root.get(path.next()?)?)?;
        let name = path.next()?.replace("~1", "/").replace("~0", "~");
        path.next().is_none().then(|| definitions.get(&name)).flatten()
    }
}

#[cfg(test)]
mod tests;
