//! What many conversations begin with: settings, a thread of another process, interrupts.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use threadway::runs::OwnerPolicy;
use threadway::sessions::Settings;
use threadway_translate::acp::GraphProfile;
use threadway_translate::acp::choice::Mode;
use threadway_translate::acp::permission::{Rule, Rules};

use crate::support::capture::Capture;
use crate::support::editor::{CWD, Setup};
use crate::support::langgraph::{LangGraph, assistant};

/// The thread of a session that another process has left.
pub(crate) const LOADED: &str = "11111111-1111-4111-8111-111111111111";

/// The settings of this name, and what the server needs for them.
pub(crate) fn setup(name: &str, server: &LangGraph) -> Setup {
    let with = |settings| Setup { settings, ..Setup::default() };
    let model = |values: [&str; 2]| {
        json!({"config_schema": {"properties": {
            "model": {"default": values[0], "enum": values, "title": "Model", "type": "string"}}}})
    };
    match name {
        "default" => Setup::default(),
        "forms" => Setup::with_forms(),
        "cancel_runs" => {
            let owners = OwnerPolicy::Cancel { grace: Duration::ZERO };
            Setup { owners, ..Setup::default() }
        }
        // In the first mode a `write` needs approval, in the second it does not.
        "modes" => with(modes(["ask", "auto"])),
        "auto" => with(modes(["auto", "ask"])),
        "options" => {
            server.books().schemas = json!({"config_schema": {"properties": {
                "model": {"default": "fast", "enum": ["fast", "deep"], "title": "Model",
                    "type": "string"},
                "flag": {"default": true, "title": "Flag", "type": "boolean"},
            }}});
            with(modes(["ask", "auto"]))
        }
        "agents" => {
            server.books().assistants = vec![assistant("a"), assistant("b")];
            server.books().schemas =
                json!({"a": model(["fast", "smart"]), "b": model(["gpt", "claude"])});
            Setup::default()
        }
        "planner" => {
            server.books().assistants = ["a", "b", "planner"].map(assistant).to_vec();
            let mut settings = modes(["ask", "auto"]);
            settings.modes[1].assistant = Some("planner".to_owned());
            with(settings)
        }
        "rules" => {
            let rules =
                [("write", Rule::Reject), ("write_*", Rule::Reject), ("read*", Rule::Allow)];
            let rules = rules.into_iter().chain([("*", Rule::Ask)]);
            let rules = rules.map(|(glob, rule)| (glob.parse().unwrap(), rule)).collect();
            with(Settings { permissions: Rules(rules), ..modes(["ask", "auto"]) })
        }
        "system_prompt" => with(Settings {
            system_prompt_key: Some("client_prompt".into()),
            ..Settings::default()
        }),
        "windows" => {
            let windows = vec![("gpt-*".parse().unwrap(), 1_000)];
            let profile = GraphProfile { windows, ..GraphProfile::default() }.into();
            with(Settings { profile, ..Settings::default() })
        }
        "notices" | "forwarding" | "compactions" => {
            let forms = match name {
                "compactions" => json!({"notices": {}, "compaction": {}}),
                _ => json!({"notices": {}}),
            };
            let mcp_key = (name == "forwarding").then(|| "mcp_servers".to_owned());
            let capabilities = json!({ "session": forms });
            Setup { capabilities, ..with(Settings { mcp_key, ..Settings::default() }) }
        }
        "tools" => {
            let fs = json!({"readTextFile": true, "writeTextFile": true});
            let capabilities = json!({"fs": fs, "terminal": true, "elicitation": {"form": {}}});
            Setup { capabilities, ..Setup::default() }
        }
        _ => panic!("there is no setup `{name}`"),
    }
}

/// Modes that decide about `write*`.
pub(crate) fn modes(ids: [&str; 2]) -> Settings {
    let mode = |id: &str| Mode {
        id: id.to_owned(),
        name: id.to_owned(),
        description: None,
        assistant: None,
        configurable: None,
        permissions: Rules(vec![(
            "write*".parse().unwrap(),
            if id == "auto" { Rule::Allow } else { Rule::Ask },
        )]),
    };
    Settings { modes: ids.map(mode).to_vec(), ..Settings::default() }
}

/// The metadata of a session's thread.
pub(crate) fn kept() -> Value {
    json!({"acp_session": true, "cwd": CWD, "acp_assistant": "agent", "title": "T"})
}

/// A conversation with a call that has a result.
pub(crate) fn conversation() -> Value {
    json!([
        {"type": "human", "id": "h1", "content": "hi"},
        {"type": "ai", "id": "a1", "content": "let me look",
            "tool_calls": [call("c1", "look", &json!({"at": "it"}))]},
        {"type": "tool", "id": "t1", "tool_call_id": "c1", "content": "seen", "status": "success"},
        {"type": "ai", "id": "a2", "content": "there"},
    ])
}

/// The conversation and its interrupts, if its last call waits for approval.
pub(crate) fn waiting() -> String {
    let args = json!({"path": "/srv/app/a.txt", "text": "a"});
    let mut messages = conversation();
    messages.as_array_mut().unwrap().push(json!({"type": "ai", "id": "a3", "content": "",
        "tool_calls": [call("c2", "write", &args)]}));
    format!("{messages} {}", json!([approval("q", &[("write", args)])]))
}

/// The texts that each script has.
pub(crate) fn texts() -> BTreeMap<String, String> {
    let history = conversation().to_string();
    let asked = json!({"type": "ai", "id": "a1", "content": "",
        "tool_calls": [call("c", "search", &json!({}))]});
    let open = json!([{"type": "human", "id": "h1", "content": "hi"}, asked]).to_string();
    let result = json!({"type": "tool", "id": "r-c", "content": "found", "tool_call_id": "c"});
    let unanswered = json!({"type": "tool", "id": "a1:c:unanswered", "tool_call_id": "c",
        "content": "No result: the person went on without it.", "status": "error"});
    let items = |list: &str| list[1..list.len() - 1].to_owned();
    [
        ("history", items(&history)),
        ("kept", kept().to_string()),
        ("waiting", waiting()),
        ("open_call", items(&open)),
        ("found", result.to_string()),
        ("unanswered", unanswered.to_string()),
    ]
    .map(|(name, text)| (name.to_owned(), text))
    .into()
}

/// Adds a run that another client has started.
pub(crate) fn live(server: &LangGraph, thread: &str, id: &str, status: &str, messages: &Value) {
    let mut books = server.books();
    let runs = &mut books.threads.get_mut(thread).unwrap().runs;
    let created_at = format!("2026-11-22T11:00:00.{:06}+00:00", runs.len());
    let run = json!({"run_id": id, "thread_id": thread, "status": status,
        "created_at": created_at, "metadata": {},
        "kwargs": {"resumable": true, "stream_mode": ["values", "messages"],
            "input": {"messages": messages}}});
    runs.insert(0, run);
}

pub(crate) fn call(id: &str, name: &str, args: &Value) -> Value {
    json!({"id": id, "name": name, "args": args, "type": "tool_call"})
}

/// The middleware's interrupt about these calls, each a name and its arguments.
pub(crate) fn approval(id: &str, calls: &[(&str, Value)]) -> Value {
    let action = |(name, args): &(&str, Value)| json!({"name": name, "args": args});
    let review = |(name, _): &(&str, Value)| json!({"action_name": name, "allowed_decisions": ["approve", "edit", "reject"]});
    json!({"id": id, "value": {
        "action_requests": calls.iter().map(action).collect::<Vec<_>>(),
        "review_configs": calls.iter().map(review).collect::<Vec<_>>(),
    }})
}

/// The decisions with which a run resumes, in any form.
pub(crate) fn decisions(body: &Value) -> Vec<Value> {
    let resume = body["command"]["resume"].as_object().unwrap();
    let of = |answer: &Value| match answer["decisions"].as_array() {
        Some(decisions) => decisions.clone(),
        None => vec![answer.clone()],
    };
    resume.values().flat_map(of).collect()
}

/// The options of a permission request.
pub(crate) fn options(request: &Value) -> Vec<&str> {
    let options = request["params"]["options"].as_array().unwrap();
    options.iter().map(|option| option["optionId"].as_str().unwrap()).collect()
}

/// The current value of a session's option.
pub(crate) fn current(options: &Value, id: &str) -> Value {
    let options = options["configOptions"].as_array().unwrap();
    options.iter().find(|option| option["id"] == id).unwrap()["currentValue"].clone()
}

pub(crate) fn selected(option: &str) -> Value {
    json!({"outcome": {"outcome": "selected", "optionId": option}})
}

/// A recorded run that asks about an email and about a deletion, by the wire form of its interrupt.
pub(crate) fn recorded(form: &str) -> Vec<u8> {
    match form {
        "action_requests" => Capture::named("py-0.16.7/hitl-combo-subgraphs").bytes,
        "actionRequests" => Capture::named("js-1.5.1/hitl-gateway").bytes,
        "tool_approval" => include_bytes!("../support/per_call.sse").to_vec(),
        _ => panic!("no run with `{form}` is recorded"),
    }
}
