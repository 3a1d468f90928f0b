//! Reads any bytes as a client's request, and builds the upstream request on any thread. A refusal
//! quotes nothing of the input. The upstream request contains nothing that a client may not set.
//!
//! An input is up to three documents, separated by `---` lines: the body, the state of the thread,
//! and the schemas of the assistant.

use crate::support::plan::plan;
use serde_json::Value;
use threadway::runs::{Events, RunDecoder};
use threadway_translate::agui::{
    Allowance, DEFAULT_RECURSION_LIMIT, Input, OnMessage, Projector, RequestPlanner,
};
use threadway_translate::langgraph::{Capabilities, InputKeys, MessagesKey, ThreadState};
use threadway_translate::run::{NewRun, Planner, RunEvent, StreamEnd};

use super::{SECRET, translate};

/// Separates two documents.
pub(crate) const SEPARATOR: &str = "\n---\n";

/// A run with one text, with ids that a client may hold.
const RUN: &str = concat!(
    "event: metadata\ndata: {\"run_id\":\"R\",\"attempt\":1}\n\n",
    "event: values\ndata: {\"k\":1,\"messages\":[{\"type\":\"human\",\"id\":\"m1\",\"content\":\"a\"}]}\n\n",
    "event: messages\ndata: [{\"type\":\"AIMessageChunk\",\"id\":\"m2\",\"content\":\"b\",",
    "\"tool_call_chunks\":[{\"index\":0,\"id\":\"c1\",\"name\":\"f\",\"args\":\"{}\"}]},{}]\n\n",
    "event: values\ndata: {\"k\":2,\"messages\":[{\"type\":\"human\",\"id\":\"m1\",\"content\":\"a\"},",
    "{\"type\":\"ai\",\"id\":\"m2\",\"content\":\"b\",\"tool_calls\":[{\"id\":\"c1\",\"name\":\"f\",\"args\":{}}]},",
    "{\"type\":\"tool\",\"id\":\"m3\",\"tool_call_id\":\"c1\",\"content\":\"d\"}]}\n\n",
);

/// The members that this operator lets clients set.
const FOR_CLIENTS: [&str; 3] = ["model", "extra", "k"];

/// The members that no client may set: LangGraph's own, and those that make the server call a URL.
const NOT_FOR_CLIENTS: [&str; 6] =
    ["thread_id", "run_id", "user_id", "graph_id", "assistant_id", "checkpoint_id"];

/// The members that a request for a run may have.
const REQUEST: [&str; 12] = [
    "assistant_id",
    "input",
    "command",
    "checkpoint_id",
    "config",
    "metadata",
    "stream_mode",
    "stream_subgraphs",
    "stream_resumable",
    "on_disconnect",
    "if_not_exists",
    "multitask_strategy",
];

pub(crate) fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut documents = text.splitn(3, SEPARATOR);
    let body = documents.next().unwrap_or_default();
    let (state, schemas) = (documents.next().unwrap_or("{}"), documents.next().unwrap_or("{}"));
    // Also for bytes that are not UTF-8.
    let bytes = if text.contains(SEPARATOR) { body.as_bytes() } else { data };
    check_request(bytes, state, schemas);
    if let Ok(body) = serde_json::from_str::<Value>(body) {
        for spared in [&["role", "type", "status", "protocolVersion"][..], &[]] {
            let body = with_secrets(body.clone(), spared).to_string();
            check_request(body.as_bytes(), state, schemas);
        }
    }
}

fn check_request(body: &[u8], state: &str, schemas: &str) {
    let input = match Input::parse(body) {
        Ok(input) => input,
        Err(error) => return check_refusal(&error.to_string()),
    };
    let _ = input.last_event_id();
    let client = input.client();
    assert_eq!(client.thread_id, input.thread_id);
    assert_eq!(input.viewer().parent_run_id, None);
    assert_eq!(input.held().len(), input.messages.len());
    // The held messages may be those of another thread or of this one: both are legal.
    let run = run();
    translate::check_agui(&run, Projector::new(client, input.held()));
    translate::check_agui(&run, Projector::new(input.viewer(), input.held()));

    let state = ThreadState::parse(state);
    for thread in [None, state.as_ref()] {
        let allowance = allowance();
        let asking = |on_message| RequestPlanner {
            input: &input,
            on_message,
            allowance: &allowance,
            emit: threadway_translate::run::EmitOptions::default(),
            messages_key: &MessagesKey::MESSAGES,
        };
        let _ = asking(OnMessage::AskAgain).needs_keys(thread);
        let described = InputKeys::parse(schemas).unwrap_or_default();
        for keys in [InputKeys::Unknown, InputKeys::Undescribed, described] {
            for on_message in [OnMessage::AskAgain, OnMessage::Reject] {
                match plan(&asking(on_message), thread, &keys) {
                    Ok(plan) => {
                        if let Some(run) = plan.run {
                            check_run(run);
                        }
                    }
                    Err(error) => check_refusal(&error.to_string()),
                }
            }
        }
    }
}

fn run() -> Vec<RunEvent> {
    let mut decoder = RunDecoder::new("T", None, None);
    let mut events = Events::default();
    decoder.read(RUN.as_bytes(), &mut events).expect("the stream is short");
    decoder.end(None, StreamEnd::Succeeded, &mut events);
    events.to_vec()
}

fn check_refusal(error: &str) {
    assert!(!error.contains(SECRET), "the secret is quoted in {error:?}");
}

/// The members that an operator lets clients set.
fn allowance() -> Allowance {
    let mut allowance = Allowance::default();
    for key in FOR_CLIENTS {
        allowance.allow(key).expect("the key may be allowed");
    }
    for key in NOT_FOR_CLIENTS {
        assert!(allowance.allow(key).is_err(), "{key} may be allowed");
    }
    allowance
}

/// Checks that the upstream request is JSON, and contains nothing that a client may not set.
fn check_run(run: NewRun) {
    let fork = run.fork_before.clone();
    let request = run.request("agent", Capabilities::default(), fork);
    let text = serde_json::to_string(&request).expect("a run serialises");
    // A number or a nesting that `Value` cannot hold is forwarded unchanged.
    let Ok(request) = serde_json::from_str::<Value>(&text) else { return };
    assert_eq!(request["assistant_id"], "agent");
    for (name, _) in request.as_object().expect("an object") {
        assert!(REQUEST.contains(&&**name), "{name} in {text}");
    }
    let config = request["config"].as_object();
    for (name, value) in config.into_iter().flatten() {
        assert!(name == "configurable" || name == "recursion_limit", "{name} in {text}");
        let is_limited = value.as_u64().is_some_and(|limit| limit <= DEFAULT_RECURSION_LIMIT);
        assert!(name != "recursion_limit" || is_limited, "{text}");
    }
    let configurable = request["config"]["configurable"].as_object();
    for (name, _) in configurable.into_iter().flatten() {
        assert!(FOR_CLIENTS.contains(&&**name), "{name} in {text}");
    }
}

/// Puts a secret into all strings of a value, except in the spared members.
pub(super) fn with_secrets(value: Value, spared: &[&str]) -> Value {
    match value {
        Value::String(text) => Value::String(text + SECRET),
        Value::Array(items) => items.into_iter().map(|item| with_secrets(item, spared)).collect(),
        Value::Object(members) => {
            let with_secrets = |(name, value): (String, Value)| {
                let is_spared = value.is_string() && spared.contains(&&*name);
                let value = if is_spared { value } else { with_secrets(value, spared) };
                (name, value)
            };
            members.into_iter().map(with_secrets).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}
