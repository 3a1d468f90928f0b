//! Subagents as child sessions, for editors that can show them.

use serde_json::{Value, json};

use crate::support::capture::Capture;
use crate::support::editor::{CWD, Editor, Setup, Told, open_with};
use crate::support::langgraph::{LangGraph, soon};

/// A recorded run whose tool calls a subagent.
const RECORDED: &str = "py-0.16.7/subagent-combo-subgraphs";

fn with_subagents() -> Setup {
    Setup { capabilities: json!({"subagents": {}}), ..Setup::default() }
}

/// The updates of a session, as their kinds.
fn kinds(told: &Told, session: &str) -> Vec<String> {
    let kind = |update: &Value| update["sessionUpdate"].as_str().unwrap().to_owned();
    told.of(session).iter().map(kind).collect()
}

async fn recorded(setup: Setup) -> (LangGraph, Editor, String, Told) {
    let (mut server, mut editor) = open_with(setup).await;
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "hi").await;
    server.replay(&Capture::named(RECORDED).bytes).await;
    let told = soon("the end of the run", editor.until(prompt)).await;
    (server, editor, session, told)
}

#[tokio::test]
async fn a_subagent_is_shown_in_a_session_of_its_own() {
    let (_server, mut editor, session, told) = recorded(with_subagents()).await;
    let root = told.of(&session);
    let is_child = |update: &&Value| update["sessionUpdate"] == "subagent_update";
    let children: Vec<_> = root.iter().filter(is_child).collect();
    let child = children[0]["sessionId"].as_str().unwrap().to_owned();
    assert!(children[0]["title"].is_string(), "{children:?}");
    assert_eq!(children[0]["state"], json!({"state": "running"}));
    let last = children.iter().rev().find(|update| update["sessionId"] == *child).unwrap();
    assert_eq!(last["state"], json!({"state": "idle", "stopReason": "end_turn"}));
    let reference = json!({"type": "session", "sessionId": child});
    let refers = |update: &&Value| {
        update["content"].as_array().is_some_and(|content| content.contains(&reference))
    };
    assert!(root.iter().any(|update| refers(&update)), "{root:#?}");
    assert!(kinds(&told, &child).iter().any(|kind| kind.ends_with("_chunk")), "{told:#?}");
    // A child takes nothing of a client.
    let params = json!({"sessionId": child, "prompt": [{"type": "text", "text": "hi"}]});
    assert_eq!(editor.refused("session/prompt", params).await.0, -32002);
    let params = json!({"sessionId": child, "cwd": CWD, "mcpServers": []});
    assert_eq!(editor.refused("session/load", params).await.0, -32002);
    editor.cancel(&child).await;
    editor.is_alive().await;
    editor.ended().await;
}

#[tokio::test]
async fn stopping_a_child_alone_does_not_stop_the_run() {
    let (mut server, mut editor) = open_with(with_subagents()).await;
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "hi").await;
    let mut run = server.run().await;
    run.says("m", "one").await;
    editor.until_said("one").await;
    editor.cancel(&format!("{session}:a1")).await;
    editor.is_alive().await;
    run.says("m", " two").await;
    run.ends("success", None).await;
    let told = editor.until(prompt).await;
    assert_eq!(told.stop_reason(), "end_turn");
    assert_eq!(server.cancelled(), Vec::<String>::new());
    editor.ended().await;
}

#[tokio::test]
async fn an_editor_without_child_sessions_is_shown_one_session() {
    let (_server, mut editor, session, told) = recorded(Setup::default()).await;
    assert!(told.updates.iter().all(|update| update["sessionId"] == *session), "{told:#?}");
    assert!(!kinds(&told, &session).contains(&"subagent_update".to_owned()));
    editor.ended().await;
}
