//! `_threadway/prompt_end`: the end of a prompt whose connection was lost.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::support::editor::{CWD, Editor, open};
use crate::support::gateway::part;
use crate::support::langgraph::LangGraph;

const SESSION: &str = "4a9a0b6e-1f1c-4f5c-9d5a-0d8f2f6f7a01";
const PROMPT: &str = "0f0f4a3e-3c52-4b7a-8a8e-5b1c6f3f9d02";

async fn load(editor: &mut Editor) {
    let params = json!({"sessionId": SESSION, "cwd": CWD, "mcpServers": []});
    let load = editor.request("session/load", params).await;
    editor.until(load).await.result();
}

/// Asks for the end of the prompt.
async fn ask(editor: &mut Editor, more: Value) {
    let mut params = json!({"sessionId": SESSION, "promptId": PROMPT});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let line = json!({"jsonrpc": "2.0", "id": "e", "method": "_threadway/prompt_end",
        "params": params});
    editor.raw(format!("{line}\n")).await;
}

/// The answer. Updates may come before it.
async fn answer(editor: &mut Editor) -> Value {
    loop {
        let frame = editor.next_unchecked().await;
        if frame["id"] == "e" {
            return frame;
        }
    }
}

fn session(server: &LangGraph) {
    server.thread(SESSION, json!({"acp_session": true, "cwd": CWD}), None);
}

/// Adds a live run of the session's thread, with the name that its client has given it.
fn live(server: &LangGraph, id: &str, name: &str) {
    let run = json!({"run_id": id, "thread_id": SESSION, "status": "running",
        "created_at": "2026-11-22T10:00:00.000000+00:00", "metadata": {"threadway_run_id": name, "threadway_start": id},
        "kwargs": {"resumable": true, "stream_mode": ["values", "messages"],
            "input": {"messages": []}}});
    server.books().threads.get_mut(SESSION).unwrap().runs.push(run);
}

#[tokio::test]
async fn a_prompt_without_a_run_is_not_found() {
    let (server, mut editor) = open().await;
    session(&server);
    load(&mut editor).await;
    let looks = || server.asked(&format!("GET /threads/{SESSION}/runs?")).len();
    let before = looks();
    ask(&mut editor, json!({})).await;
    assert_eq!(answer(&mut editor).await["error"]["code"], -32002);
    // Pending, running and recent runs are listed, because a run may begin or end meanwhile.
    assert_eq!(looks(), before + 2 * 3, "a start through another replica is waited for");
    editor.ended().await;
}

#[tokio::test]
async fn a_prompt_that_waits_does_not_run_once_its_client_was_told_that_it_has_no_run() {
    let (mut server, mut lost) = open().await;
    session(&server);
    load(&mut lost).await;
    live(&server, "L", "of-others");
    let prompt = json!({"sessionId": SESSION, "prompt": [{"type": "text", "text": "hi"}],
        "_meta": {"threadway": {"promptId": PROMPT}}});
    let prompt = lost.request("session/prompt", prompt).await;
    let mut run = server.joined().await;
    let values = part("values", &json!({"messages": []}));
    run.exchange.send(format!("id: 1-0\r\n{values}")).await;
    run.says("a", "theirs").await;
    lost.until_said("theirs").await;
    // The client is connected again, and the agent has not noticed the end of the first connection.
    let mut again = Editor::of(Arc::clone(&lost.service));
    again.call("initialize", json!({"protocolVersion": 1, "clientCapabilities": {}})).await;
    load(&mut again).await;
    ask(&mut again, json!({})).await;
    assert_eq!(answer(&mut again).await["error"]["code"], -32002);
    run.ends_with(&json!([{"type": "ai", "id": "a", "content": "theirs"}])).await;
    assert_eq!(lost.until(prompt).await.stop_reason(), "cancelled");
    assert!(server.asked(&format!("POST /threads/{SESSION}/runs/stream")).is_empty());
    lost.ended().await;
    again.ended().await;
}

#[tokio::test]
async fn a_cancel_stops_the_prompts_run_and_no_other() {
    let (mut server, mut editor) = open().await;
    session(&server);
    live(&server, "L", "of-others");
    live(&server, "P", PROMPT);
    let params = json!({"sessionId": SESSION, "cwd": CWD, "mcpServers": []});
    let loading = editor.request("session/load", params).await;
    let mut run = server.joined().await;
    let values = part("values", &json!({"messages": []}));
    run.exchange.send(format!("id: 1-0\r\n{values}")).await;
    run.says("a", "theirs").await;
    editor.until(loading).await.result();
    ask(&mut editor, json!({"cancel": true})).await;
    server.until("the cancel", |server| !server.cancelled().is_empty()).await;
    assert_eq!(server.cancelled(), ["P"]);
    run.ends("success", None).await;
    editor.ended().await;
}
