//! What a person can choose of an assistant's configuration, read from its JSON schema.

use serde_json::value::RawValue;

use crate::json::{self, Json, Members, Text};

/// How many schemas are looked into for one field: enough for the alternatives of any list that a
/// person reads through, and an end to those that refer to themselves.
const MAX_SCHEMAS: usize = 256;

/// How many values a person is asked to choose from: a longer list is not one to be clicked.
const MAX_CHOICES: usize = 256;

/// What LangGraph itself keeps beside the graph's own fields.
const OWN_KEYS: [&str; 5] = ["assistant_id", "graph_id", "run_id", "thread_id", "thread_ts"];

/// How the names of what LangGraph itself keeps begin.
const OWN_PREFIXES: [&str; 3] = ["__", "checkpoint", "langgraph_"];

/// A field of the configuration with few possible values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigField {
    /// Its name in the configuration.
    pub key: String,
    /// What people call it: the schema's title, else the key.
    pub title: String,
    /// What it is for.
    pub description: Option<String>,
    /// What it may be.
    pub kind: ConfigKind,
    /// What it is if nobody chooses: one of its values. It is the assistant's own, else the
    /// schema's, else the first, which the graph itself may see differently.
    pub default: Json,
}

/// What a field of the configuration may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigKind {
    /// One of these: at least two, each once.
    Choice(Vec<ConfigChoice>),
    /// True or false.
    Switch,
}

/// A possible value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChoice {
    /// The value: a string, a number, a boolean or null.
    pub value: Json,
    /// What people call it.
    pub label: String,
    /// What it means.
    pub description: Option<String>,
}

/// A JSON schema that is looked into.
struct Schema<'a> {
    root: &'a Members<'a>,
    /// How many schemas may still be looked into.
    left: usize,
}

// === impl ConfigField ===

impl ConfigField {
    /// Reads the answers of `GET /assistants/{id}/schemas` and `GET /assistants/{id}`: the fields
    /// that have few values, in the schema's order. None, if there are none or nothing is told.
    pub fn list(schemas: &str, assistant: &str) -> Vec<Self> {
        let schemas: Members<'_> = serde_json::from_str(schemas).unwrap_or_default();
        let assistant: Members<'_> = serde_json::from_str(assistant).unwrap_or_default();
        let opened = |name| assistant.get(name).and_then(json::members).unwrap_or_default();
        let config = opened("config").get("configurable").and_then(json::members);
        let set = [opened("context"), config.unwrap_or_default()];
        let mut fields: Vec<Self> = Vec::new();
        // Two names for the same; older servers know the first only.
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
        let mut choices: Vec<ConfigChoice> = Vec::new();
        for choice in schema.choices(property)? {
            if !choices.iter().any(|known| json::same(known.value.get(), choice.value.get())) {
                choices.push(choice);
            }
        }
        if !(2..=MAX_CHOICES).contains(&choices.len()) {
            return None;
        }
        let members = json::members(property)?;
        let one_of = |value: &RawValue| {
            let chosen = choices.iter().find(|choice| json::same(choice.value.get(), value.get()));
            chosen.map(|choice| choice.value.clone())
        };
        let default = [set, members.get("default")].into_iter().flatten().find_map(one_of);
        let own = members.string("description");
        let description =
            own.or_else(|| schema.referred(&members).and_then(|m| m.string("description")));
        Some(Self {
            key: key.to_owned(),
            // Not that of what it refers to: two fields may be of the same type.
            title: members.string("title").map_or_else(|| key.to_owned(), Into::into),
            description: description.map(Into::into),
            default: default.or_else(|| choices.first().map(|first| first.value.clone()))?,
            kind: ConfigKind::of(choices),
        })
    }
}

/// Whether a key is LangGraph's own.
fn is_own(key: &str) -> bool {
    OWN_KEYS.contains(&key) || OWN_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
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
    /// A value with what its schema calls it. `None` for what is no plain value.
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
    /// All values that a schema allows. `None` if they cannot be counted up.
    fn choices(&mut self, schema: &'a RawValue) -> Option<Vec<ConfigChoice>> {
        self.left = self.left.checked_sub(1)?;
        let members = json::members(schema)?;
        let list = |name| members.get(name).and_then(json::items);
        if let Some(values) = list("enum") {
            // What a list is called and is for is not what its values are.
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

    /// What a schema refers to, also where it does so as the only one of `allOf`.
    fn referred(&self, members: &Members<'a>) -> Option<Members<'a>> {
        let all = members.get("allOf").and_then(json::items).unwrap_or_default();
        match (members.get("$ref"), &all[..]) {
            (Some(_), _) => json::members(self.target(members)?),
            (None, [one]) => json::members(self.target(&json::members(one)?)?),
            (None, _) => None,
        }
    }

    /// Where a reference leads, within its document.
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
mod tests {
    use super::*;

    /// A field in short: `key|title|description|kind|default`.
    fn told(schemas: &str, assistant: &str) -> Vec<String> {
        let fields = ConfigField::list(schemas, assistant).into_iter();
        let one = |ConfigField { key, title, description, kind, default }: ConfigField| {
            let kind = match kind {
                ConfigKind::Switch => "switch".to_owned(),
                ConfigKind::Choice(choices) => {
                    let one = |c: ConfigChoice| format!("{}={}", c.label, c.value.get());
                    choices.into_iter().map(one).collect::<Vec<_>>().join(" ")
                }
            };
            let description = description.unwrap_or_default();
            format!("{key}|{title}|{description}|{kind}|{}", default.get())
        };
        fields.map(one).collect()
    }

    fn config_schema(properties: &str) -> String {
        format!(
            r##"{{"config_schema":{{"$defs":{{
                "Colour":{{"description":"Which colour.","enum":["red","blue"],"title":"Colour"}},
                "a/b":{{"enum":[1,2]}},"Loop":{{"anyOf":[{{"$ref":"#/$defs/Loop"}}]}}}},
                "properties":{{{properties}}}}},"context_schema":null}}"##
        )
    }

    /// What langgraph-api 0.16.7 makes of the fields of a pydantic model, a dataclass or a dict.
    #[test]
    fn the_fields_of_the_python_server_that_have_few_values_are_found() {
        for (property, expected) in [
            (
                r#""model":{"default":"fast","enum":["fast","deep"],"title":"Model","type":"string"}"#,
                r#"model|Model||fast="fast" deep="deep"|"fast""#,
            ),
            (
                r##""colour":{"$ref":"#/$defs/Colour","default":"blue"}"##,
                r#"colour|colour|Which colour.|red="red" blue="blue"|"blue""#,
            ),
            (
                r##""of":{"$ref":"#/$defs/Colour","description":"own words","title":"Own"}"##,
                r#"of|Own|own words|red="red" blue="blue"|"red""#,
            ),
            (
                r##""old":{"allOf":[{"$ref":"#/$defs/Colour"}],"default":"blue"}"##,
                r#"old|old|Which colour.|red="red" blue="blue"|"blue""#,
            ),
            (
                r#""opt":{"anyOf":[{"enum":["a","b"],"type":"string"},{"type":"null"}],"default":null,"title":"Opt"}"#,
                r#"opt|Opt||a="a" b="b" none=null|null"#,
            ),
            (
                r#""level":{"default":2,"enum":[1,2,3],"title":"Level","type":"integer"}"#,
                "level|Level||1=1 2=2 3=3|2",
            ),
            (
                r#""mixed":{"default":"auto","enum":["auto",1,true,null,""],"title":"Mixed"}"#,
                r#"mixed|Mixed||auto="auto" 1=1 true=true none=null ""=""|"auto""#,
            ),
            (r##""ref":{"$ref":"#/$defs/a~1b"}"##, "ref|ref||1=1 2=2|1"),
            (
                r#""flag":{"default":true,"title":"Flag","type":"boolean"}"#,
                "flag|Flag||switch|true",
            ),
            (r#""unset":{"type":"boolean"}"#, "unset|unset||switch|false"),
            (
                r#""maybe":{"anyOf":[{"type":"boolean"},{"type":"null"}],"default":null}"#,
                "maybe|maybe||false=false true=true none=null|null",
            ),
        ] {
            assert_eq!(told(&config_schema(property), "{}"), [expected], "{property}");
        }
    }

    /// What langgraph-api 2.0.0 makes of the fields of a zod object.
    #[test]
    fn the_fields_of_the_javascript_server_that_have_few_values_are_found() {
        for (property, expected) in [
            (
                r#""model":{"default":"fast","description":"which","type":"string","enum":["fast","deep"]}"#,
                r#"model|model|which|fast="fast" deep="deep"|"fast""#,
            ),
            (
                r#""lits":{"default":"y","anyOf":[{"type":"string","const":"x","title":"Ex"},{"type":"string","const":"y"}]}"#,
                r#"lits|lits||Ex="x" y="y"|"y""#,
            ),
            (r#""nat":{"default":2.0,"type":"number","enum":[1,2.0]}"#, "nat|nat||1=1 2.0=2.0|2.0"),
        ] {
            assert_eq!(told(&config_schema(property), "{}"), [expected], "{property}");
        }
    }

    #[test]
    fn what_cannot_be_chosen_from_a_list_is_left_out() {
        for property in [
            r#""text":{"type":"string","default":"t"}"#,
            r#""single":{"const":"only","default":"only"}"#,
            r#""many":{"type":"array","items":{"enum":["a","b"]}}"#,
            r#""free":{"anyOf":[{"enum":["a","b"]},{"type":"string"}]}"#,
            r#""twice":{"enum":["a","a"]}"#,
            r#""nested":{"enum":[{"a":1},{"a":2}]}"#,
            r##""loop":{"$ref":"#/$defs/Loop"}"##,
            r##""lost":{"$ref":"#/$defs/Nobody"}"##,
            r#""far":{"$ref":"https://h/schema#/x"}"#,
            r#""odd":{"enum":7}"#,
            r#""odder":true"#,
            r#""thread_id":{"enum":["a","b"]}"#,
            r#""checkpoint_ns":{"enum":["a","b"]}"#,
            r#""__pregel_store":{"type":"boolean"}"#,
        ] {
            assert_eq!(told(&config_schema(property), "{}"), [""; 0], "{property}");
        }
        let long: Vec<_> = (0..=MAX_CHOICES).map(|n| n.to_string()).collect();
        let long = format!(r#""long":{{"enum":[{}]}}"#, long.join(","));
        assert_eq!(told(&config_schema(&long), "{}"), [""; 0]);
        for nothing in ["<html>", "[]", "{}", r#"{"config_schema":{},"context_schema":null}"#] {
            assert_eq!(told(nothing, "<html>"), [""; 0], "{nothing}");
        }
    }

    #[test]
    fn what_the_assistant_has_set_goes_before_the_schemas_default() {
        let schemas = config_schema(
            r#""model":{"default":"fast","enum":["fast","deep"]},"flag":{"type":"boolean"}"#,
        );
        for (assistant, expected) in [
            (r#"{"config":{},"context":{}}"#, ["\"fast\"", "false"]),
            (r#"{"config":{"configurable":{"model":"deep"}},"context":{}}"#, ["\"deep\"", "false"]),
            (r#"{"config":{},"context":{"model":"deep","flag":true}}"#, ["\"deep\"", "true"]),
            // Nobody could choose that again.
            (r#"{"config":{"configurable":{"model":"other","flag":null}}}"#, ["\"fast\"", "false"]),
        ] {
            let fields = ConfigField::list(&schemas, assistant);
            let defaults: Vec<_> = fields.iter().map(|field| field.default.get()).collect();
            assert_eq!(defaults, expected, "{assistant}");
        }
    }

    #[test]
    fn a_field_that_both_schemas_name_is_told_once() {
        let schemas = r#"{"config_schema":{"properties":{"a":{"type":"boolean"}}},
            "context_schema":{"properties":{"a":{"enum":[1,2]},"b":{"type":"boolean"}}}}"#;
        assert_eq!(told(schemas, "{}"), ["a|a||switch|false", "b|b||switch|false"]);
    }
}
