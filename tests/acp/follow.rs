//! Runs that others start on the thread of an open session.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::clock::{HeldClock, within};
use crate::support::editor::{CWD, Editor, open, outline};
use crate::support::langgraph::{LangGraph, Run, state};

const LOADED: &str = "33333333-3333-4333-8333-333333333333";

/// How long, by the clock, a run of others may take to appear.
const SOON: Duration = Duration::from_secs(9);

fn load_params() -> Value {
    json!({"sessionId": LOADED, "cwd": CWD, "mcpServers": []})
}

fn human(id: &str, text: &str) -> Value {
    json!({"type": "human", "id": id, "content": text})
}

/// A thread with one message, loaded by an editor.
async fn loaded() -> (LangGraph, Editor) {
    let (server, mut editor) = open().await;
    let metadata = json!({"acp_session": true, "cwd": CWD});
    server.thread(LOADED, metadata, Some(state("R0", &json!([human("h1", "hi")]), &json!([]))));
    editor.call("session/load", load_params()).await;
    (server, editor)
}

/// Somebody else starts a run. Waits until the gateway reads it.
async fn run_of_others(server: &mut LangGraph, clock: &HeldClock, number: u32) -> Run {
    let run = json!({"run_id": format!("01a200b7-5ee6-7592-b13b-{number:012}"),
        "thread_id": LOADED, "status": "running",
        "created_at": format!("2026-11-22T11:00:00.{number:06}+00:00"), "metadata": {},
        "kwargs": {"resumable": true, "stream_mode": ["values", "messages-tuple"]}});
    server.books().threads.get_mut(LOADED).unwrap().runs.insert(0, run);
    let mut run = within(clock, SOON, server.joined()).await;
    run.sends("metadata", &json!({"run_id": run.id, "attempt": 1})).await;
    run
}

#[tokio::test]
async fn a_run_of_others_appears_in_an_open_session() {
    let (mut server, mut editor) = loaded().await;
    let clock = HeldClock::pause();
    let mut messages = vec![human("h1", "hi")];
    for number in 1..3 {
        let mut run = run_of_others(&mut server, &clock, number).await;
        messages.push(human(&format!("cron{number}"), "every hour"));
        run.sends("values", &json!({"messages": messages})).await;
        let (id, text) = (format!("m{number}"), format!("news {number}"));
        run.says(&id, &text).await;
        let updates = within(&clock, SOON, editor.until_said(&text)).await;
        let expected = [
            format!("user_message_chunk cron{number} every hour"),
            format!("agent_message_chunk {id} {text}"),
        ];
        assert_eq!(outline(&updates), expected);
        messages.push(json!({"type": "ai", "id": id, "content": text}));
        run.ends_with(&json!(messages)).await;
    }
    // A prompt goes on from there, and nothing is sent twice.
    drop(clock);
    tokio::time::resume();
    let prompt = editor.prompt(LOADED, "thanks").await;
    let mut run = server.run().await;
    run.says("m9", "bye").await;
    messages.push(run.said());
    messages.push(json!({"type": "ai", "id": "m9", "content": "bye"}));
    run.ends_with(&json!(messages)).await;
    let told = editor.until(prompt).await;
    assert_eq!(told.said(), [("m9".to_owned(), "bye".to_owned())]);
    assert_eq!(told.stop_reason(), "end_turn");
    editor.ended().await;
}

#[tokio::test]
async fn an_approval_of_a_run_of_others_is_asked_for_and_withdrawn_when_somebody_answers() {
    let (mut server, mut editor) = loaded().await;
    let clock = HeldClock::pause();
    let run = run_of_others(&mut server, &clock, 1).await;
    let approval = json!({"id": "i", "value": {
        "action_requests": [{"name": "send", "args": {"to": "all"}}],
        "review_configs": [{"action_name": "send", "allowed_decisions": ["approve", "reject"]}]}});
    run.asks(&json!([human("h1", "hi")]), &json!([approval])).await;
    let (_, request) = within(&clock, SOON, editor.until_asked()).await;
    assert_eq!(request["method"], "session/request_permission");
    // Another client answers, and the run goes on.
    let mut run = run_of_others(&mut server, &clock, 2).await;
    run.sends("values", &json!({"messages": [human("h1", "hi")]})).await;
    let (_, taken_back) = within(&clock, SOON, editor.until_asked()).await;
    assert_eq!(taken_back["method"], "$/cancel_request");
    assert_eq!(taken_back["params"]["requestId"], request["id"]);
    run.says("m", "sent").await;
    within(&clock, SOON, editor.until_said("sent")).await;
    run.ends("success", None).await;
    drop(clock);
    tokio::time::resume();
    editor.ended().await;
}

#[tokio::test]
async fn a_session_that_is_closed_or_new_is_not_followed() {
    let (mut server, mut editor) = loaded().await;
    editor.session().await;
    editor.call("session/close", json!({"sessionId": LOADED})).await;
    let before = server.books().asked.len();
    let clock = HeldClock::pause();
    for _ in 0..100 {
        clock.advance(Duration::from_millis(100)).await;
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }
    drop(clock);
    tokio::time::resume();
    editor.is_alive().await;
    assert_eq!(server.books().asked.len(), before);
    // Its next prompt begins it.
    let session = editor.prompted_session(&mut server, CWD).await;
    let clock = HeldClock::pause();
    let reads = |server: &LangGraph| server.asked(&format!("GET /threads/{session}")).len();
    let after = reads(&server);
    within(&clock, SOON, server.until("a look", |server| reads(server) > after)).await;
    drop(clock);
    tokio::time::resume();
    editor.ended().await;
}
