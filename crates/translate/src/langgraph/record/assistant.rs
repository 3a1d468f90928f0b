//! An assistant, and the keys that its graph takes as input.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::value::RawValue;

use crate::json;
use crate::langgraph::{Capabilities, MessagesKey};

/// How many keys of a graph's input a message names.
const MAX_NAMED_KEYS: usize = 20;

/// A graph with a configuration of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assistant {
    /// LangGraph's id.
    pub id: String,
    /// The id of its graph.
    pub graph_id: String,
    /// Its name. Without one, the graph's id.
    pub name: String,
    /// Its description.
    pub description: Option<String>,
    /// Whether the server created it for the graph. Its name is then the graph's id.
    pub is_of_graph: bool,
}

/// The keys that a graph takes as its input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum InputKeys {
    /// Unknown: the caller may not see the agent, or its schema was not read.
    #[default]
    Unknown,
    /// The server does not describe the input.
    Undescribed,
    /// These keys.
    Known(GraphKeys),
}

/// The keys that a graph takes, as its server describes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphKeys {
    input: HashSet<String>,
    context: ContextKeys,
}

/// The keys that a graph takes in the context of its runs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ContextKeys {
    /// The server does not mention a context. It may have none.
    Unsaid,
    /// Any: the graph declares no schema for it.
    Any,
    /// Those of the graph's schema. Further ones may fail the run: the graph may be written with a
    /// dataclass.
    Declared(HashSet<String>),
}

// === impl Assistant ===

impl Assistant {
    /// Reads a list of assistants. `None` if the body is not one.
    pub fn parse_list(body: &str) -> Option<Vec<Self>> {
        let items: Vec<&RawValue> = serde_json::from_str(body).ok()?;
        items.into_iter().map(Self::read).collect()
    }

    fn read(item: &RawValue) -> Option<Self> {
        let members = json::members(item)?;
        let string = |name| members.string(name).map(Cow::into_owned);
        let metadata = members.get("metadata").and_then(json::members).unwrap_or_default();
        let graph_id = string("graph_id")?;
        Some(Self {
            id: string("assistant_id")?,
            name: string("name").unwrap_or_else(|| graph_id.clone()),
            description: string("description"),
            is_of_graph: metadata.string("created_by").as_deref() == Some("system"),
            graph_id,
        })
    }
}

// === impl InputKeys ===

impl InputKeys {
    /// Reads the answer of `GET /assistants/{id}/schemas`. `None` if the body is not one.
    pub fn parse(body: &str) -> Option<Self> {
        let schemas: json::Members<'_> = serde_json::from_str(body).ok()?;
        let properties = |schema: &RawValue| {
            let keys = json::members(json::members(schema)?.get("properties")?)?;
            Some(keys.0.iter().map(|(key, _)| key.0.clone().into_owned()).collect::<HashSet<_>>())
        };
        let input = match schemas.get("input_schema").filter(|schema| schema.get() != "null") {
            Some(input) => properties(input),
            // The Python server cannot describe the input of a `typing.TypedDict` before Python
            // 3.12, nor the JavaScript server that of some types. The state has each key of the
            // input.
            None => schemas.get("state_schema").and_then(properties).and_then(state_keys),
        };
        let Some(input) = input else { return Some(Self::Undescribed) };
        // The Python server has the schema of a JavaScript graph under the older name alone.
        let declared = ["context_schema", "config_schema"].map(|name| schemas.get(name));
        let context = match declared.into_iter().flatten().find_map(properties) {
            Some(declared) => ContextKeys::Declared(declared),
            None if schemas.get("context_schema").is_some() => ContextKeys::Any,
            None => ContextKeys::Unsaid,
        };
        Some(Self::Known(GraphKeys { input, context }))
    }

    /// The keys as this server means them.
    #[must_use]
    pub fn as_described_by(mut self, server: Capabilities) -> Self {
        if let Self::Known(keys) = &mut self
            && keys.context == ContextKeys::Unsaid
            && server.omits_context_schema
        {
            keys.context = ContextKeys::Any;
        }
        self
    }

    /// Whether the graph takes this key in the context of its runs.
    pub(crate) fn takes_in_context(&self, key: &str) -> bool {
        match self {
            Self::Unknown | Self::Undescribed => false,
            Self::Known(keys) => match &keys.context {
                ContextKeys::Unsaid => false,
                ContextKeys::Any => true,
                ContextKeys::Declared(declared) => declared.contains(key),
            },
        }
    }

    /// Whether a key of a client's state may be sent to the graph. A graph without a description
    /// accepts any key, and ignores those it does not use. If nothing is known, no key is sent.
    pub(crate) fn may_take(&self, key: &str) -> bool {
        match self {
            Self::Unknown => false,
            Self::Undescribed => true,
            Self::Known(keys) => keys.input.contains(key),
        }
    }

    /// Whether the graph has a description without this key.
    pub fn lacks(&self, key: &str) -> bool {
        match self {
            Self::Unknown | Self::Undescribed => false,
            Self::Known(keys) => !keys.input.contains(key),
        }
    }

    /// Why messages do not reach the graph, as a sentence for the operator. `None` if they do, or
    /// while the graph's keys are unknown.
    pub fn lost_messages(&self, key: &MessagesKey) -> Option<String> {
        self.lacks(key.as_str()).then(|| {
            format!(
                "the messages of clients do not reach this graph: its input has no key `{key}`, \
                 but {}; set `messages_key` to the key of its conversation",
                self.names()
            )
        })
    }

    /// The keys for a message, in order. `no keys` if there are none, or they are unknown.
    pub fn names(&self) -> String {
        let Self::Known(keys) = self else { return "no keys".to_owned() };
        let mut keys: Vec<_> = keys.input.iter().map(|key| format!("`{key}`")).collect();
        keys.sort_unstable();
        keys.truncate(MAX_NAMED_KEYS);
        if keys.is_empty() { "no keys".to_owned() } else { keys.join(", ") }
    }

    /// Whether the graph's description has this key.
    pub fn takes(&self, key: &str) -> bool {
        match self {
            Self::Unknown | Self::Undescribed => false,
            Self::Known(keys) => keys.input.contains(key),
        }
    }
}

/// The keys of a state that a client can name. `None` if there are none: the state is then one
/// value, such as the `__root__` of a graph, and its schema does not describe the input.
fn state_keys(mut keys: HashSet<String>) -> Option<HashSet<String>> {
    keys.retain(|key| !key.starts_with("__"));
    (!keys.is_empty()).then_some(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_assistant_of_a_graph_differs_from_those_that_people_made() {
        let list = r#"[{"assistant_id":"A","graph_id":"agent","name":"agent","metadata":{"created_by":"system"}},
            {"assistant_id":"B","graph_id":"agent","name":"Tuned","description":"of mine","metadata":{}},
            {"assistant_id":"C","graph_id":"agent"}]"#;
        let read = Assistant::parse_list(list).unwrap();
        let names: Vec<_> = read.iter().map(|a| (&*a.name, a.is_of_graph)).collect();
        assert_eq!(names, [("agent", true), ("Tuned", false), ("agent", false)]);
        assert_eq!(read[1].description.as_deref(), Some("of mine"));
        assert_eq!(Assistant::parse_list("{}"), None);
    }

    #[test]
    fn input_keys_are_the_schemas_properties() {
        let keys = InputKeys::parse(r#"{"input_schema":{"properties":{"messages":{},"a b":{}}}}"#);
        let keys = keys.unwrap();
        assert!(keys.takes("a b") && keys.may_take("messages"));
        assert!(!keys.takes("x") && !keys.may_take("x"));
        for none in ["{}", r#"{"input_schema":null}"#, r#"{"input_schema":{}}"#] {
            let keys = InputKeys::parse(none).unwrap();
            assert_eq!(keys, InputKeys::Undescribed, "{none}");
            assert!(keys.may_take("x") && !keys.takes("x"));
        }
        let lost = keys.lost_messages(&"nope".parse().unwrap()).unwrap();
        assert!(lost.contains("no key `nope`, but `a b`, `messages`;"), "{lost}");
        assert_eq!(keys.lost_messages(&MessagesKey::MESSAGES), None);
        assert_eq!(InputKeys::Undescribed.lost_messages(&MessagesKey::MESSAGES), None);
        for state in
            [r#"{"properties":{"question":{},"__x":{}}}"#, r#"{"properties":{"question":{}}}"#]
        {
            for input in [r#""input_schema":null,"#, ""] {
                let schemas = format!(r#"{{{input}"state_schema":{state}}}"#);
                let keys = InputKeys::parse(&schemas).unwrap();
                assert!(keys.lacks("messages") && keys.takes("question"), "{schemas}");
                assert_eq!(keys.names(), "`question`");
            }
        }
        for schemas in [
            // An input that is described counts, even if its keys cannot be read.
            r##"{"input_schema":{"$ref":"#/x"},"state_schema":{"properties":{"question":{}}}}"##,
            r#"{"input_schema":null,"state_schema":null}"#,
            r#"{"input_schema":null,"state_schema":{"properties":{}}}"#,
            r#"{"input_schema":null,"state_schema":{"properties":{"__root__":{}}}}"#,
        ] {
            assert_eq!(InputKeys::parse(schemas).unwrap(), InputKeys::Undescribed, "{schemas}");
        }
        for no_answer in ["", "<html>", "[]", "null", "7"] {
            assert_eq!(InputKeys::parse(no_answer), None, "{no_answer}");
        }
        let takes = |context: &str| {
            let schemas = format!(r#"{{"input_schema":{{"properties":{{}}}}{context}}}"#);
            InputKeys::parse(&schemas).unwrap().takes_in_context("copilotkit")
        };
        for (context, expected) in [
            ("", false),
            (r#","context_schema":null"#, true),
            (r#","context_schema":{}"#, true),
            // A dataclass without fields.
            (r#","context_schema":{"properties":{}}"#, false),
            (r#","context_schema":{"properties":{"model":{}}}"#, false),
            (r#","context_schema":{"properties":{"copilotkit":{}}}"#, true),
            (r#","context_schema":null,"config_schema":{}"#, true),
            (r#","context_schema":null,"config_schema":{"properties":{"model":{}}}"#, false),
        ] {
            assert_eq!(takes(context), expected, "{context}");
        }
        let unsaid = || InputKeys::parse(r#"{"input_schema":{"properties":{}}}"#).unwrap();
        let as_described_by =
            |server| unsaid().as_described_by(server).takes_in_context("copilotkit");
        assert!(
            as_described_by(Capabilities::JAVASCRIPT) && !as_described_by(Capabilities::PYTHON)
        );
        assert!(!InputKeys::Undescribed.takes_in_context("copilotkit"));
        let unknown = InputKeys::Unknown;
        assert!(!unknown.may_take("x") && !unknown.takes("x"));
    }
}
