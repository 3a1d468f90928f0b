//! The expected outcome of a stream, read from the upstream's bytes without the gateway's code.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::capture::Upstream;
use super::schema::Schema;
use super::verify::Verifier;

/// Checks that each event is legal at its position and has the form of the schema.
pub(crate) fn legal(schema: &Schema, events: &[Value]) -> Result<(), String> {
    let mut verifier = Verifier::new();
    for (at, event) in events.iter().enumerate() {
        let place = |why| format!("event {at} {event}: {why}");
        verifier.check(event).map_err(place)?;
        schema.check_event(event).map_err(place)?;
    }
    verifier.finish()
}

/// Also checks that all brackets close before the one terminal event. The rules let a failed run
/// leave brackets open. The gateway never does.
pub(crate) fn closed(schema: &Schema, events: &[Value]) -> Result<(), String> {
    legal(schema, events)?;
    let is_terminal =
        |event: &&Value| event["type"] == "RUN_ERROR" || event["type"] == "RUN_FINISHED";
    let terminal = events.iter().filter(is_terminal).count();
    if terminal != 1 {
        return Err(format!("{terminal} terminal events"));
    }
    let [first, between @ .., _] = events else { return Err("no run".to_owned()) };
    let mut verifier = Verifier::new();
    for event in [first].into_iter().chain(between) {
        verifier.check(event)?;
    }
    verifier.check(&json!({
        "type": "RUN_FINISHED", "threadId": first["threadId"], "runId": first["runId"]
    }))
}

/// The streamed texts, by message.
pub(crate) fn streamed_text(events: &[Value]) -> BTreeMap<String, String> {
    let mut texts = BTreeMap::new();
    for event in events.iter().filter(|event| event["type"] == "TEXT_MESSAGE_CONTENT") {
        let text: &mut String = texts.entry(string(&event["messageId"])).or_default();
        text.push_str(event["delta"].as_str().unwrap());
    }
    texts
}

/// The tokens of the upstream, by message, from the first mode that carried the message.
pub(crate) fn tokens(upstream: &[Upstream]) -> BTreeMap<String, String> {
    let mut modes: BTreeMap<String, (&str, String)> = BTreeMap::new();
    for part in upstream {
        let mode = part.event.split('|').next().unwrap();
        let (mode, chunk) = match mode {
            "messages" if part.data[0]["content"].is_null() => continue,
            "messages" => ("messages", &part.data[0]),
            "messages/partial" => {
                // Each prefix replaces the one before.
                let message = &part.data[0];
                let slot =
                    modes.entry(string(&message["id"])).or_insert(("partial", String::new()));
                if slot.0 == "partial" {
                    slot.1 = text_of(&message["content"]);
                }
                continue;
            }
            "events" if part.data["event"] == "on_chat_model_stream" => {
                ("events", &part.data["data"]["chunk"])
            }
            _ => continue,
        };
        let is_chunk = chunk["type"] == "AIMessageChunk" || !chunk["tool_call_chunks"].is_null();
        if is_chunk {
            let slot = modes.entry(string(&chunk["id"])).or_insert((mode, String::new()));
            if slot.0 == mode {
                slot.1.push_str(&text_of(&chunk["content"]));
            }
        }
    }
    modes.into_iter().map(|(id, (_, text))| (id, text)).filter(|(_, t)| !t.is_empty()).collect()
}

/// The last root state of the upstream: its state keys and its messages.
pub(crate) fn last_values(upstream: &[Upstream]) -> Option<(Value, Vec<Value>)> {
    let values = upstream.iter().rev().filter(|part| part.event == "values");
    let mut values = values.map(|part| part.data.as_object().unwrap());
    // The JavaScript server sends interrupts without a state.
    let last = values.find(|values| values.keys().any(|key| key != "__interrupt__"))?;
    let mut state: Map<_, _> = last.clone();
    state.remove("__interrupt__");
    let messages = state.remove("messages").map(|messages| messages.as_array().unwrap().clone());
    Some((Value::Object(state), messages.unwrap_or_default()))
}

/// The parts of a message that a client shows.
#[derive(Debug, PartialEq)]
pub(crate) struct Shown {
    pub(crate) id: String,
    pub(crate) role: &'static str,
    pub(crate) text: String,
    /// Id, tool, arguments.
    pub(crate) calls: Vec<(String, String, Value)>,
    pub(crate) answers: String,
}

/// Reads what a client shows of a LangChain message.
pub(crate) fn shown(message: &Value) -> Shown {
    let role = match message["type"].as_str().unwrap() {
        "human" => "user",
        "ai" | "AIMessageChunk" => "assistant",
        "tool" => "tool",
        "system" => "system",
        other => panic!("a message of type {other}"),
    };
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    let calls = calls.map(|c| (string(&c["id"]), string(&c["name"]), c["args"].clone())).collect();
    let (id, answers) = (string(&message["id"]), string(&message["tool_call_id"]));
    Shown { id, role, text: text_of(&message["content"]), calls, answers }
}

pub(crate) fn text_of(content: &Value) -> String {
    if let Some(text) = content.as_str() {
        return text.to_owned();
    }
    let blocks = content.as_array().into_iter().flatten();
    let text = |block: &'_ Value| (block["type"] == "text").then(|| string(&block["text"]));
    blocks.filter_map(|block| block.as_str().map(str::to_owned).or_else(|| text(block))).collect()
}

pub(crate) fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
