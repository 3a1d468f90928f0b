//! The content of a client, by the reducer of the official client 1.0.0 (`apply/default`), on the
//! wire's own JSON. The quotations are from AG-UI 1.0's specification.

use serde_json::{Map, Value, json};

#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) messages: Vec<Value>,
    pub(crate) state: Value,
}

impl Default for Held {
    fn default() -> Self {
        Self { messages: Vec::new(), state: json!({}) }
    }
}

// === impl Held ===

impl Held {
    /// Applies the next event. An event that the client would ignore with a warning is an error.
    pub(crate) fn apply(&mut self, event: &Value) -> Result<(), String> {
        let id = event["messageId"].as_str().unwrap_or_default();
        match event["type"].as_str().unwrap_or_default() {
            "TEXT_MESSAGE_START" => self.start(id, event["role"].as_str().unwrap_or("assistant")),
            "REASONING_MESSAGE_START" => self.start(id, "reasoning"),
            "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT" => {
                let message = self.message(id).ok_or("content of no message")?;
                if message["role"] == "activity" {
                    return Err("content of an activity".to_owned());
                }
                append(&mut message["content"], &event["delta"]);
            }
            "TOOL_CALL_START" => self.start_call(event),
            "TOOL_CALL_ARGS" => {
                let call = self.call(&event["toolCallId"]).ok_or("arguments of no call")?;
                append(&mut call["function"]["arguments"], &event["delta"]);
            }
            "TOOL_CALL_RESULT" => self.answer(event),
            "ACTIVITY_SNAPSHOT" => self.show(event),
            "STATE_SNAPSHOT" => self.state = event["snapshot"].clone(),
            "STATE_DELTA" => {
                let patch: json_patch::Patch =
                    serde_json::from_value(event["delta"].clone()).map_err(|e| e.to_string())?;
                json_patch::patch(&mut self.state, &patch).map_err(|e| e.to_string())?;
            }
            "MESSAGES_SNAPSHOT" => self.replace(event["messages"].as_array().unwrap()),
            _ => {}
        }
        Ok(())
    }

    fn message(&mut self, id: &str) -> Option<&mut Value> {
        self.messages.iter_mut().find(|message| message["id"] == id)
    }

    fn call(&mut self, id: &Value) -> Option<&mut Value> {
        let calls = self.messages.iter_mut().filter_map(|m| m.get_mut("toolCalls")?.as_array_mut());
        calls.flatten().find(|call| call["id"] == *id)
    }

    /// "If id exists, reuse it".
    fn start(&mut self, id: &str, role: &str) {
        if self.message(id).is_none() {
            self.messages.push(json!({"id": id, "role": role, "content": ""}));
        }
    }

    /// "Id already known anywhere: rename only; else attach to the parent's assistant message, or
    /// create one".
    fn start_call(&mut self, event: &Value) {
        let (id, name) = (&event["toolCallId"], &event["toolCallName"]);
        if let Some(call) = self.call(id) {
            call["function"]["name"] = name.clone();
            return;
        }
        let call = json!({"id": id, "type": "function",
            "function": {"name": name, "arguments": ""}});
        let mut created = event["parentMessageId"].as_str().or(id.as_str()).unwrap().to_owned();
        match self.message(&created) {
            Some(parent) if parent["role"] == "assistant" => {
                let message = parent.as_object_mut().unwrap();
                let calls = message.entry("toolCalls").or_insert_with(|| json!([]));
                return calls.as_array_mut().unwrap().push(call);
            }
            Some(_) => created = id.as_str().unwrap().to_owned(),
            None => {}
        }
        self.messages.push(json!({"id": created, "role": "assistant", "toolCalls": [call]}));
    }

    /// "Inserted right after the owning assistant message and its existing tool messages, else
    /// appended".
    fn answer(&mut self, event: &Value) {
        let message = json!({"id": event["messageId"], "role": "tool",
            "toolCallId": event["toolCallId"], "content": event["content"]});
        let calls = |message: &Value| {
            let calls = message["toolCalls"].as_array().into_iter().flatten();
            calls.into_iter().any(|call| call["id"] == event["toolCallId"])
        };
        let at = self.messages.iter().position(calls).map_or(self.messages.len(), |owner| {
            let behind = self.messages[owner + 1..].iter();
            owner + 1 + behind.take_while(|message| message["role"] == "tool").count()
        });
        self.messages.insert(at, message);
    }

    /// "Create; `replace` (default true) replaces content, type and subagent".
    fn show(&mut self, event: &Value) {
        let mut activity = json!({"id": event["messageId"], "role": "activity",
            "activityType": event["activityType"], "content": event["content"]});
        if let Some(subagent) = event.get("subagentRunId") {
            activity["subagentRunId"] = subagent.clone();
        }
        match self.messages.iter_mut().find(|message| message["id"] == event["messageId"]) {
            Some(held) if event["replace"] != false => *held = activity,
            Some(_) => {}
            None => self.messages.push(activity),
        }
    }

    /// "Local kept if id in snapshot or client-only, replace in place by id, append unseen".
    fn replace(&mut self, snapshot: &[Value]) {
        let owns = |role: &str| snapshot.iter().any(|message| message["role"] == role);
        let (owns_reasoning, owns_activity) = (owns("reasoning"), owns("activity"));
        let is_kept = |message: &Value| match message["role"].as_str() {
            Some("reasoning") => !owns_reasoning,
            Some("activity") => !owns_activity,
            _ => false,
        };
        let mut kept: Vec<Value> = Vec::new();
        for message in self.messages.drain(..) {
            match snapshot.iter().find(|new| new["id"] == message["id"]) {
                Some(new) => kept.push(new.clone()),
                None if is_kept(&message) => kept.push(message),
                None => {}
            }
        }
        for message in snapshot {
            if !kept.iter().any(|known| known["id"] == message["id"]) {
                kept.push(message.clone());
            }
        }
        self.messages = kept;
    }
}

/// "If existing content is parts it is replaced by the delta".
fn append(content: &mut Value, delta: &Value) {
    let text = content.as_str().unwrap_or_default().to_owned();
    *content = json!(text + delta.as_str().unwrap_or_default());
}

/// The events of an SSE body, each with the id that it sets, if any. An empty id resets the
/// client's.
pub(crate) fn framed(body: &str) -> Vec<(Value, Option<String>)> {
    let field = |frame: &str, name: &str| {
        let mut lines = frame.lines();
        lines.find_map(|line| line.strip_prefix(name)).map(|value| value.trim_start().to_owned())
    };
    let frames = body.split_terminator("\n\n");
    let event = |frame: &str| {
        let data = field(frame, "data:")?;
        let data: Map<_, _> = serde_json::from_str(&data).unwrap();
        Some((Value::Object(data), field(frame, "id:")))
    };
    frames.filter_map(event).collect()
}
