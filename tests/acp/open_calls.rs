//! Prompts in a session whose thread ends with a call that has no result.

use serde_json::{Value, json};

use crate::support::editor::{CWD, Editor, open};
use crate::support::langgraph::{LangGraph, Run, state};

const LOADED: &str = "55555555-5555-4555-8555-555555555555";

const ERROR: &str = "No result: the person went on without it.";

fn asked(calls: &[&str]) -> Value {
    let call = |id: &&str| json!({"id": id, "name": "search", "args": {}, "type": "tool_call"});
    let calls: Vec<_> = calls.iter().map(call).collect();
    json!([
        {"type": "human", "id": "h1", "content": "hi"},
        {"type": "ai", "id": "a1", "content": "", "tool_calls": calls},
    ])
}

fn result(call: &str) -> Value {
    json!({"type": "tool", "id": format!("r-{call}"), "content": "found", "tool_call_id": call})
}

/// The error result of a call of `a1`.
fn error(call: &str) -> Value {
    json!({"type": "tool", "id": format!("a1:{call}:unanswered"), "content": ERROR,
        "tool_call_id": call, "status": "error"})
}

fn run(id: &str, status: &str, messages: &Value) -> Value {
    json!({"run_id": id, "thread_id": LOADED, "status": status,
        "created_at": "2026-11-22T11:00:00.000000+00:00", "metadata": {},
        "kwargs": {"resumable": true, "input": {"messages": messages}}})
}

/// A session that was loaded while its thread had these messages.
async fn loaded(messages: &Value) -> (LangGraph, Editor) {
    let (server, mut editor) = open().await;
    let metadata = json!({"acp_session": true, "cwd": CWD});
    server.thread(LOADED, metadata, Some(state("R0", messages, &json!([]))));
    let params = json!({"sessionId": LOADED, "cwd": CWD, "mcpServers": []});
    editor.call("session/load", params).await;
    (server, editor)
}

/// Sets the thread's state.
fn holds(server: &LangGraph, run_id: &str, messages: &Value) {
    let state = state(run_id, messages, &json!([]));
    server.books().threads.get_mut(LOADED).unwrap().state = Some(state);
}

fn input(run: &Run) -> Vec<Value> {
    run.body["input"]["messages"].as_array().unwrap().clone()
}

/// The prompt of an input, which is its last message.
fn prompt_of(run: &Run) -> Value {
    let said = input(run).pop().unwrap();
    assert_eq!((&said["type"], &said["content"]), (&json!("human"), &json!("go on")));
    said
}

/// The requests since the `first`, without those for capabilities and for the agent's graph.
fn asked_since(server: &LangGraph, first: usize) -> Vec<String> {
    let books = server.books();
    let lines = books.asked.iter().skip(first).map(|(line, _)| line.clone());
    lines.filter(|line| line.contains(LOADED)).collect()
}

#[tokio::test]
async fn open_calls_get_error_results_before_the_prompt() {
    let mut before = asked(&["c", "d"]);
    before.as_array_mut().unwrap().push(result("c"));
    let (mut server, mut editor) = loaded(&before).await;
    let prompt = editor.prompt(LOADED, "go on").await;
    let run = server.run().await;
    let said = prompt_of(&run);
    assert_eq!(input(&run), [error("d"), said.clone()]);
    // A run that began meanwhile may bring the same results.
    assert_eq!(run.body["multitask_strategy"], "reject");
    before.as_array_mut().unwrap().extend([error("d"), said]);
    run.ends_with(&before).await;
    let told = editor.until(prompt).await;
    assert_eq!(told.stop_reason(), "end_turn");
    // The editor learns how the call ended.
    let ends = told.of(LOADED);
    let ends = ends.iter().filter(|update| update["toolCallId"] == "d");
    let ends: Vec<_> = ends.filter_map(|update| update["status"].as_str()).collect();
    assert_eq!(ends.last(), Some(&"failed"));

    // The call is closed: the next prompt goes up alone, after one look at the state.
    let first = server.books().asked.len();
    let prompt = editor.prompt(LOADED, "go on").await;
    let run = server.run().await;
    assert_eq!(input(&run), [prompt_of(&run)]);
    assert_eq!(run.body["multitask_strategy"], Value::Null);
    let get = |rest: &str| format!("GET /threads/{LOADED}/{rest}");
    let mut lines = asked_since(&server, first);
    lines.retain(|line| line.starts_with("GET") && !line.contains("status=running"));
    assert_eq!(lines, [get("state"), get("state")]);
    run.ends("success", None).await;
    editor.until(prompt).await;
    editor.ended().await;
}

#[tokio::test]
async fn a_stopped_run_leaves_no_call_without_a_result() {
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "hi").await;
    let mut run = server.run().await;
    run.calls("a1", "c", "search", &json!({})).await;
    while editor.next().await["params"]["update"]["toolCallId"] != "c" {}
    editor.cancel(&session).await;
    server.until("a cancel", |server| !server.cancelled().is_empty()).await;
    let said = run.said();
    let call = asked(&["c"])[1].clone();
    let messages = json!([said, call]);
    let last = state(&run.id, &messages, &json!([]));
    run.ends("interrupted", Some(last)).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "cancelled");

    let prompt = editor.prompt(&session, "go on").await;
    let run = server.run().await;
    assert_eq!(input(&run), [error("c"), prompt_of(&run)]);
    run.ends("success", None).await;
    editor.until(prompt).await;
    editor.ended().await;
}

#[tokio::test]
async fn a_live_run_gives_the_results_of_its_calls() {
    let (mut server, mut editor) = loaded(&asked(&[])).await;
    // Another client's run has the result, and waits for its turn.
    holds(&server, "R1", &asked(&["c"]));
    let pending = run("R2", "pending", &json!([result("c")]));
    server.books().threads.get_mut(LOADED).unwrap().runs.insert(0, pending);
    let prompt = editor.prompt(LOADED, "go on").await;
    let run = server.run().await;
    assert_eq!(input(&run), [prompt_of(&run)]);
    run.ends("success", None).await;
    editor.until(prompt).await;
    editor.ended().await;
}

#[tokio::test]
async fn a_run_that_ends_meanwhile_has_given_the_results() {
    let (mut server, mut editor) = loaded(&asked(&[])).await;
    holds(&server, "R1", &asked(&["c"]));
    server.hold("/runs?status=pending");
    let prompt = editor.prompt(LOADED, "go on").await;
    let list = server.held("/runs?status=pending").await;
    // The state was read before the run of the call ended. It is read again after the runs.
    let mut whole = asked(&["c"]);
    whole.as_array_mut().unwrap().push(result("c"));
    holds(&server, "R2", &whole);
    server.let_go_of("/runs?status=pending");
    list.json(200, "[]").await;
    let run = server.run().await;
    assert_eq!(input(&run), [prompt_of(&run)]);
    run.ends("success", None).await;
    editor.until(prompt).await;
    editor.ended().await;
}

#[tokio::test]
async fn a_prompt_is_planned_anew_if_another_run_comes_first() {
    let (mut server, mut editor) = loaded(&asked(&["c"])).await;
    let prompt = editor.prompt(LOADED, "go on").await;
    let refused = server.held("/runs/stream").await;
    let body: Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(body["input"]["messages"][0], error("c"));
    // Another client has answered the call.
    let mut whole = asked(&["c"]);
    whole.as_array_mut().unwrap().push(result("c"));
    holds(&server, "R1", &whole);
    refused.json(409, r#"{"detail":"Thread is already running a task."}"#).await;
    let run = server.run().await;
    assert_eq!(input(&run), [prompt_of(&run)]);
    assert_eq!(run.body["multitask_strategy"], Value::Null);
    run.ends("success", None).await;
    editor.until(prompt).await;
    editor.ended().await;
}
