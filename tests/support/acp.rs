//! What an ACP client makes of its lines, and whether they are what a client must be sent.
//!
//! `acp-v1.json` is the official schema of ACP v1. It is tolerant: unknown members pass, and
//! optional ones may be null. Here an unknown member is a spelling mistake, and an optional member
//! is absent or has a value.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jsonschema::Validator;
use serde_json::{Map, Value, json};
use threadway::acp::{self, Dialect, Projector};
use threadway::run::{Role, RunEvent, View};

pub(crate) const SESSION: &str = "T";
pub(crate) const CWD: &str = "/srv/app";

/// The schema of each kind of update, and of the rest of what a turn sends.
#[derive(Debug)]
pub(crate) struct Schema {
    updates: HashMap<String, Validator>,
    prompt_response: Validator,
    error: Validator,
}

/// A session as its client sees it.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// The lines as they went out.
    pub(crate) bytes: Vec<u8>,
    pub(crate) updates: Vec<Value>,
}

/// A tool call as a client shows it in the end.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Shown {
    pub(crate) members: Map<String, Value>,
}

/// A projector for a client that was told nothing.
pub(crate) fn newcomer() -> Projector {
    Projector::new(Arc::new(Dialect::default()), CWD)
}

/// What becomes of events.
pub(crate) fn project<'a>(
    projector: &mut Projector,
    events: impl IntoIterator<Item = &'a RunEvent>,
) -> Session {
    let mut session = Session::default();
    for event in events {
        projector.project(event, &mut |update| session.push(update));
    }
    session
}

/// The conversation of a view, for a client that was told nothing.
pub(crate) fn load(view: &View) -> Session {
    project(&mut newcomer(), [&RunEvent::Messages(view.messages().into())])
}

/// The texts that a client is to be shown of a view: those that say something, of the agent.
pub(crate) fn to_be_shown(view: &View) -> BTreeMap<String, String> {
    let is_shown = |role| matches!(role, Role::User | Role::Assistant | Role::Reasoning);
    let messages = view.messages().iter();
    let shown = messages.filter(|message| is_shown(message.role) && message.agent.is_none());
    let text = shown.map(|m| (m.id.to_string(), m.content.text().decode().into_owned()));
    text.filter(|(_, text)| !text.is_empty()).collect()
}

// === impl Session ===

impl Session {
    pub(crate) fn push(&mut self, update: &acp::Update<'_>) {
        let before = self.bytes.len();
        acp::notification(SESSION, update, &mut self.bytes);
        let line = &self.bytes[before..];
        let (end, line) = line.split_last().expect("a line");
        assert_eq!(*end, b'\n');
        assert!(!line.contains(&b'\n'), "one line: {}", String::from_utf8_lossy(line));
        // A strict parser: half a surrogate pair is an error to it.
        let mut message: Value = serde_json::from_slice(line).expect("JSON that is strict");
        assert_eq!(message["params"]["sessionId"], SESSION);
        self.updates.push(message["params"]["update"].take());
    }

    /// The updates that follow others.
    pub(crate) fn extend(&mut self, more: Self) {
        self.bytes.extend(more.bytes);
        self.updates.extend(more.updates);
    }

    /// The texts by message: what the client has put together from the chunks of its id.
    pub(crate) fn texts(&self) -> BTreeMap<String, String> {
        let mut texts: BTreeMap<String, String> = BTreeMap::new();
        for update in &self.updates {
            if let (Some(id), Some(text)) =
                (update["messageId"].as_str(), update["content"]["text"].as_str())
            {
                texts.entry(id.to_owned()).or_default().push_str(text);
            }
        }
        texts
    }

    /// The text that a message has for a client: the last that was told of it.
    pub(crate) fn text_of(&self, id: &str) -> Option<String> {
        let texts = self.texts();
        let revised = (2..).map(|n| format!("{id}:{n}")).take_while(|id| texts.contains_key(id));
        let last = revised.last().unwrap_or_else(|| id.to_owned());
        texts.get(&last).cloned()
    }

    /// The calls as a client shows them.
    pub(crate) fn calls(&self) -> BTreeMap<String, Shown> {
        let mut calls: BTreeMap<String, Shown> = BTreeMap::new();
        for update in &self.updates {
            if let Some(id) = update["toolCallId"].as_str() {
                let call = calls.entry(id.to_owned()).or_default();
                for (name, value) in update.as_object().unwrap() {
                    call.members.insert(name.clone(), value.clone());
                }
                call.members.remove("sessionUpdate");
            }
        }
        calls
    }

    /// Checks that every update is one that the client can take where it stands.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut announced = BTreeSet::new();
        for update in &self.updates {
            let id = update["toolCallId"].as_str().unwrap_or_default();
            match update["sessionUpdate"].as_str().unwrap_or_default() {
                "tool_call" if !announced.insert(id) => {
                    return Err(format!("{id} is announced a second time: {update}"));
                }
                "tool_call_update" if !announced.contains(id) => {
                    return Err(format!("{id} was not announced: {update}"));
                }
                "user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk"
                    if update["content"]["text"] == "" =>
                {
                    return Err(format!("nothing is said: {update}"));
                }
                _ => {}
            }
            let locations = update["locations"].as_array().into_iter().flatten();
            for location in locations {
                if !location["path"].as_str().is_some_and(|path| path.starts_with('/')) {
                    return Err(format!("a path is absolute: {update}"));
                }
            }
        }
        Ok(())
    }

    /// Checks besides that no call waits for anything.
    pub(crate) fn check_settled(&self) -> Result<(), String> {
        for (id, call) in self.calls() {
            if !call.is_settled() {
                return Err(format!("{id} is left open: {call:?}"));
            }
        }
        Ok(())
    }
}

// === impl Shown ===

impl Shown {
    pub(crate) fn is_settled(&self) -> bool {
        let status = self.members.get("status").and_then(Value::as_str);
        matches!(status, Some("completed" | "failed"))
    }

    pub(crate) fn get(&self, name: &str) -> &Value {
        self.members.get(name).unwrap_or(&Value::Null)
    }
}

// === impl Schema ===

impl Schema {
    /// Reads the schema that lies beside this file.
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

    /// Checks one update.
    pub(crate) fn check_update(&self, update: &Value) -> Result<(), String> {
        let name = update["sessionUpdate"].as_str().unwrap_or_default();
        let Some(validator) = self.updates.get(name) else {
            return Err(format!("{name} is no kind of update: {update}"));
        };
        check(validator, update)
    }

    /// Checks the response to a prompt.
    pub(crate) fn check_response(&self, response: &Value) -> Result<(), String> {
        if response["error"].is_null() {
            check(&self.prompt_response, &response["result"])
        } else {
            check(&self.error, &response["error"])
        }
    }

    /// Checks every update of a session.
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

/// A schema with its references resolved, its objects closed, and without null.
///
/// No type that we send refers to itself.
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
            // Numbers have formats that JSON Schema does not know.
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
    if out.get("properties").is_some() && !out.contains_key("oneOf") && !out.contains_key("anyOf") {
        out.insert("additionalProperties".to_owned(), json!(false));
    }
    Value::Object(out)
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
