//! Checks the form of what an ACP client receives, by the official schema.
//!
//! `acp-v1.json` is the official schema of ACP v1. That schema is tolerant: it accepts unknown
//! members, and null for optional ones. This check refuses both: an unknown member is a spelling
//! mistake, and an optional member is absent or has a value.

use std::collections::HashMap;

use jsonschema::Validator;
use serde_json::{Map, Value, json};

use super::acp::Session;

/// The schema of each kind of update, and of the other messages of a turn.
#[derive(Debug)]
pub(crate) struct Schema {
    updates: HashMap<String, Validator>,
    prompt_response: Validator,
    error: Validator,
}

// === impl Schema ===

impl Schema {
    /// Reads `acp-v1.json` from this directory.
    pub(crate) fn load() -> Self {
        let document: Value =
            serde_json::from_str(include_str!("acp-v1.json")).expect("the schema file is JSON");
        let definitions = &document["$defs"];
        let validator =
            |schema: &Value| jsonschema::draft202012::new(schema).expect("the schema is valid");
        let closed = |name: &str| closed(&definitions[name], definitions);
        let updates = closed("SessionUpdate");
        let kinds = updates["oneOf"].as_array().expect("an update is one of several kinds");
        let updates = kinds.iter().map(|kind| {
            let name = kind["properties"]["sessionUpdate"]["const"].as_str();
            (name.expect("every update has a kind").to_owned(), validator(kind))
        });
        Self {
            updates: updates.collect(),
            prompt_response: validator(&closed("PromptResponse")),
            error: validator(&closed("Error")),
        }
    }

    pub(crate) fn check_update(&self, update: &Value) -> Result<(), String> {
        let name = update["sessionUpdate"].as_str().unwrap_or_default();
        let Some(validator) = self.updates.get(name) else {
            return Err(format!("{name} is no kind of update: {update}"));
        };
        check(validator, update)
    }

    pub(crate) fn check_response(&self, response: &Value) -> Result<(), String> {
        if response["error"].is_null() {
            check(&self.prompt_response, &response["result"])
        } else {
            check(&self.error, &response["error"])
        }
    }

    pub(crate) fn check(&self, session: &Session) -> Result<(), String> {
        session.updates.iter().try_for_each(|update| self.check_update(update))
    }
}

fn check(validator: &Validator, value: &Value) -> Result<(), String> {
    let errors: Vec<_> = validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    if errors.is_empty() { Ok(()) } else { Err(format!("{value}: {}", errors.join("; "))) }
}

/// Resolves the references of a schema, closes its objects, and removes null.
///
/// No type that the gateway sends refers to itself.
fn closed(schema: &Value, definitions: &Value) -> Value {
    let Some(members) = schema.as_object() else { return schema.clone() };
    let mut out = Map::new();
    let reference = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/"));
    let referred = reference.map(|name| &definitions[name]);
    let parts = schema["allOf"].as_array().into_iter().flatten();
    for part in referred.into_iter().chain(parts) {
        merge(&mut out, closed(part, definitions));
    }
    let mut own = Map::new();
    for (name, value) in members {
        let value = match (name.as_str(), value) {
            // JSON Schema does not know ACP's formats of numbers.
            ("$ref" | "allOf" | "description" | "title" | "format" | "discriminator", _) => {
                continue;
            }
            ("properties", Value::Object(properties)) => {
                let properties = properties.iter().filter(|(name, _)| *name != "_meta");
                properties.map(|(name, value)| (name.clone(), closed(value, definitions))).collect()
            }
            ("oneOf" | "anyOf", Value::Array(alternatives)) => {
                let alternatives = alternatives.iter().filter(|a| a["type"] != "null");
                alternatives.map(|alternative| closed(alternative, definitions)).collect()
            }
            ("type", Value::Array(types)) => {
                types.iter().filter(|kind| *kind != "null").cloned().collect()
            }
            ("items", items) => closed(items, definitions),
            (_, value) => value.clone(),
        };
        own.insert(name.clone(), value);
    }
    merge(&mut out, Value::Object(own));
    if out.get("properties").is_some() {
        let mut closing = "additionalProperties";
        for name in ["oneOf", "anyOf"] {
            if let Some(alternatives) = out.get_mut(name).and_then(Value::as_array_mut) {
                // An alternative adds members to those of the object that has it.
                alternatives.iter_mut().for_each(open);
                closing = "unevaluatedProperties";
            }
        }
        out.insert(closing.to_owned(), json!(false));
    }
    Value::Object(out)
}

/// Opens a closed object.
fn open(schema: &mut Value) {
    if let Some(members) = schema.as_object_mut() {
        members.retain(|name, value| name != "additionalProperties" || *value == json!(true));
    }
}

fn merge(into: &mut Map<String, Value>, from: Value) {
    let Value::Object(from) = from else { return };
    for (name, value) in from {
        match (into.get_mut(&name), value) {
            (Some(Value::Object(known)), Value::Object(more)) => known.extend(more),
            (Some(Value::Array(known)), Value::Array(more)) if name == "required" => {
                known.extend(more);
            }
            (_, value) => {
                into.insert(name, value);
            }
        }
    }
}
