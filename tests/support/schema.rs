//! The form of AG-UI 1.0 events, by a JSON schema, closed as strictly as a producer must follow it.
//!
//! `ag-ui-1.0.0.json` is exported from the official client. That client is tolerant: it accepts
//! unknown members, and the export has lost the type of some objects. This check refuses unknown
//! members, which are spelling mistakes. An optional member is absent or has a value, and is never
//! null: AG-UI 1.0 says "absent means absent".

use std::collections::HashMap;

use jsonschema::Validator;
use serde_json::{Value, json};

#[derive(Debug)]
pub(crate) struct Schema {
    validators: HashMap<String, Validator>,
    capabilities: Validator,
}

// === impl Schema ===

impl Schema {
    /// Reads `ag-ui-1.0.0.json` from this directory.
    pub(crate) fn load() -> Self {
        let mut document: Value = serde_json::from_str(include_str!("ag-ui-1.0.0.json"))
            .expect("the schema file is JSON");
        let capabilities = &mut document["AgentCapabilities"];
        close(capabilities);
        let capabilities = jsonschema::draft202012::new(capabilities).expect("the schema is valid");
        let event = &mut document["Event"];
        close(event);
        let definitions = event["$defs"].clone();
        let Value::Array(types) = event["oneOf"].take() else {
            panic!("an event is one of several types");
        };
        let validators = types.into_iter().map(|mut schema| {
            schema["$defs"] = definitions.clone();
            let validator = jsonschema::draft202012::new(&schema).expect("the schema is valid");
            let name = schema["properties"]["type"]["const"].as_str();
            (name.expect("every event has a type").to_owned(), validator)
        });
        Self { validators: validators.collect(), capabilities }
    }

    /// Checks the capabilities of an agent.
    pub(crate) fn check_capabilities(&self, value: &Value) -> Result<(), String> {
        let errors = self.capabilities.iter_errors(value);
        let errors: Vec<_> =
            errors.map(|error| format!("{}: {error}", error.instance_path())).collect();
        if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
    }

    pub(crate) fn check_event(&self, event: &Value) -> Result<(), String> {
        let Some(name) = event["type"].as_str() else {
            return Err(format!("not an event: {event}"));
        };
        let Some(validator) = self.validators.get(name) else {
            return Err(format!("{name} is not a type of event"));
        };
        let errors: Vec<_> = validator
            .iter_errors(event)
            .map(|error| format!("{name}{}: {error}", error.instance_path()))
            .collect();
        if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
    }
}

/// Closes a schema and all schemas inside it.
fn close(schema: &mut Value) {
    if schema["properties"].is_object() {
        close_object(schema);
    }
    match schema {
        Value::Object(members) => members.values_mut().for_each(close),
        Value::Array(items) => items.iter_mut().for_each(close),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn close_object(schema: &mut Value) {
    // The operations of a JSON Patch may have further members.
    if schema["specOpen"] != true {
        schema["additionalProperties"] = json!(false);
    }
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let Some(properties) = schema["properties"].as_object_mut() else { return };
    for (name, property) in properties {
        let is_required = required.iter().any(|required| required == name);
        let is_anything = *property == json!({});
        // The export has lost that these are objects; `__schema0` is every `metadata`.
        let is_object = *property == json!({ "$ref": "#/$defs/__schema0" })
            || is_anything && matches!(name.as_str(), "content" | "responseSchema");
        if is_object {
            *property = json!({ "type": "object" });
        } else if is_anything && !is_required {
            *property = json!({ "not": { "type": "null" } });
        }
    }
}
