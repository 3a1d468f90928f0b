//! A thread's values, and how updates are applied to them.

use serde_json::{Map, Value, json};

use super::MAX_STATE_BYTES;
use super::clock::Clock;

/// The values of a thread by channel.
pub(super) type Values = Map<String, Value>;

/// The id that removes every message before it.
const REMOVE_ALL: &str = "__remove_all__";

/// A key of a graph's state. Like LangGraph, updates of other keys are ignored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Channel {
    pub(super) name: &'static str,
    pub(super) reducer: Reducer,
}

/// How an update of a channel is combined with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reducer {
    /// Messages are replaced or removed by id, or else appended.
    Messages,
    /// The new value replaces the old one.
    Last,
    /// The new items are appended.
    Append,
}

/// A Python exception of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exception {
    pub(super) kind: &'static str,
    pub(super) message: String,
}

/// Applies an update to the values.
pub(super) fn apply(
    values: &mut Values,
    channels: &[Channel],
    update: &Values,
    clock: &Clock,
) -> Result<(), Exception> {
    for channel in channels {
        let Some(new) = update.get(channel.name) else { continue };
        let held = values.entry(channel.name).or_insert(Value::Null);
        match channel.reducer {
            Reducer::Last => *held = new.clone(),
            Reducer::Append => {
                *held = Value::Array([items(held.take()), items(new.clone())].concat());
            }
            Reducer::Messages => *held = Value::Array(add(items(held.take()), new, clock)?),
        }
    }
    Ok(())
}

fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Null => vec![],
        Value::Array(items) => items,
        one @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            vec![one]
        }
    }
}

/// LangGraph's `add_messages`.
fn add(mut held: Vec<Value>, new: &Value, clock: &Clock) -> Result<Vec<Value>, Exception> {
    for message in items(new.clone()) {
        let message = coerce(&message, clock)?;
        let id = message.get("id").cloned().unwrap_or_default();
        if message.get("type") != Some(&json!("remove")) {
            match held.iter_mut().find(|held| held["id"] == id) {
                Some(held) => *held = message,
                None => held.push(message),
            }
        } else if id == REMOVE_ALL {
            held.clear();
        } else if let Some(at) = held.iter().position(|held| held["id"] == id) {
            held.remove(at);
        } else {
            let message =
                format!("Attempting to delete a message with an ID that doesn't exist ({id})");
            return Err(Exception::value_error(message));
        }
    }
    Ok(held)
}

/// A message in LangChain's form. A message without an id gets a new one.
fn coerce(message: &Value, clock: &Clock) -> Result<Value, Exception> {
    if message.is_string() {
        return coerce(&json!({"type": "human", "content": message}), clock);
    }
    let role = message["type"].as_str().or_else(|| message["role"].as_str()).unwrap_or_default();
    let kind = match role {
        "human" | "user" => "human",
        "ai" | "assistant" => "ai",
        "system" | "developer" => "system",
        "tool" => "tool",
        "remove" => "remove",
        other => {
            return Err(Exception::value_error(format!(
                "Unexpected message type: '{other}'. Use one of 'human', 'user', 'ai', \
                 'assistant', 'tool', 'system', or 'developer'."
            )));
        }
    };
    let id = message["id"].as_str().map_or_else(|| clock.id().to_string(), str::to_owned);
    let or = |name: &str, default| {
        message.get(name).filter(|v| !v.is_null()).cloned().unwrap_or(default)
    };
    let base = json!({
        "content": or("content", json!("")),
        "additional_kwargs": or("additional_kwargs", json!({})),
        "response_metadata": or("response_metadata", json!({})),
        "type": kind,
        "name": message["name"],
        "id": id,
    });
    let more = match kind {
        "ai" => json!({
            "tool_calls": or("tool_calls", json!([])),
            "invalid_tool_calls": or("invalid_tool_calls", json!([])),
            "usage_metadata": message["usage_metadata"],
        }),
        "tool" => json!({
            "tool_call_id": or("tool_call_id", json!("")),
            "artifact": message["artifact"],
            "status": or("status", json!("success")),
        }),
        _ => Value::Null,
    };
    Ok(merged(base, more))
}

/// An object with the members of another one added. Other values add nothing.
pub(super) fn merged(mut base: Value, more: Value) -> Value {
    if let (Value::Object(base), Value::Object(more)) = (&mut base, more) {
        base.extend(more);
    }
    base
}

/// The size of values as JSON, in bytes.
pub(super) fn size(values: &Values) -> usize {
    // Values always serialise.
    serde_json::to_string(values).map_or(0, |text| text.len())
}

/// Fails if the state exceeds the limit.
pub(super) fn fit(values: &Values) -> Result<(), Exception> {
    let bytes = size(values);
    if bytes <= MAX_STATE_BYTES {
        return Ok(());
    }
    Err(Exception::value_error(format!(
        "the thread would hold {bytes} bytes; the demo keeps {MAX_STATE_BYTES}: begin a new thread"
    )))
}

/// The messages of a thread.
pub(super) fn messages(values: &Values) -> &[Value] {
    values.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// A message's text: its content, or the text blocks of its content.
pub(super) fn text(message: &Value) -> String {
    let content = &message["content"];
    if let Some(text) = content.as_str() {
        return text.to_owned();
    }
    let blocks = content.as_array().into_iter().flatten();
    blocks.filter_map(|block| block["text"].as_str()).collect()
}

// === impl Exception ===

impl Exception {
    pub(super) fn value_error(message: impl Into<String>) -> Self {
        Self { kind: "ValueError", message: message.into() }
    }

    /// The exception as streams, threads and responses show it.
    pub(super) fn json(&self) -> Value {
        json!({"error": self.kind, "message": self.message})
    }

    /// The exception as Python prints it, for a task's record.
    pub(super) fn repr(&self) -> String {
        format!("{}('{}')", self.kind, self.message.replace('\'', "\\'"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANNELS: &[Channel] = &[
        Channel { name: "messages", reducer: Reducer::Messages },
        Channel { name: "last", reducer: Reducer::Last },
        Channel { name: "list", reducer: Reducer::Append },
    ];

    fn updated(updates: &[Value]) -> Result<Values, Exception> {
        let (mut values, clock) = (Values::new(), Clock::new());
        for update in updates {
            apply(&mut values, CHANNELS, update.as_object().unwrap(), &clock)?;
        }
        Ok(values)
    }

    fn ids(values: &Values) -> Vec<&str> {
        messages(values).iter().map(|message| message["id"].as_str().unwrap()).collect()
    }

    #[tokio::test]
    async fn messages_are_appended_replaced_and_removed_by_id() {
        let human = |id, text| json!({"role": "user", "id": id, "content": text});
        let values = updated(&[
            json!({"messages": [human("a", "1"), human("b", "2")]}),
            json!({"messages": human("a", "3")}),
            json!({"messages": [{"type": "remove", "id": "b"}, human("c", "4")]}),
        ]);
        let values = values.unwrap();
        assert_eq!(ids(&values), ["a", "c"]);
        assert_eq!(text(&messages(&values)[0]), "3");
        assert_eq!(messages(&values)[0]["type"], "human");

        let cleared = json!({"messages": [{"type": "remove", "id": REMOVE_ALL}, "plain"]});
        let values = updated(&[json!({"messages": [human("a", "1")]}), cleared]).unwrap();
        assert_eq!(messages(&values).len(), 1);
        assert_eq!(text(&messages(&values)[0]), "plain");
    }

    #[tokio::test]
    async fn other_channels_hold_the_last_value_or_grow_and_unknown_ones_are_ignored() {
        let update = json!({"last": {"a": 1}, "list": [1], "unknown": 1});
        let values = updated(&[update, json!({"last": 2, "list": [2, 3]})]).unwrap();
        assert_eq!(Value::Object(values), json!({"last": 2, "list": [1, 2, 3]}));
    }

    #[tokio::test]
    async fn an_invalid_message_raises_an_exception() {
        for update in [
            json!({"messages": [{"role": "bogus", "content": "x"}]}),
            json!({"messages": [1]}),
            json!({"messages": [{"type": "remove", "id": "nobody"}]}),
        ] {
            assert_eq!(updated(&[update]).unwrap_err().kind, "ValueError");
        }
    }
}
