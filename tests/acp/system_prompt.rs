//! The system prompt of an editor, on its way to the graph.

use serde_json::{Value, json};
use threadway::sessions::Settings;

use crate::support::editor::{CWD, Editor, Setup, open, open_with};
use crate::support::langgraph::{LangGraph, state};

const KEY: &str = "client_prompt";

const LOADED: &str = "33333333-3333-4333-8333-333333333333";

fn with_key() -> Setup {
    let settings = Settings { system_prompt_key: Some(KEY.to_owned()), ..Settings::default() };
    Setup { settings, ..Setup::default() }
}

fn with_prompt(mut params: Value, mode: &str, text: &str) -> Value {
    params["systemPrompt"] = json!({"mode": mode, "content": [{"type": "text", "text": text}]});
    params
}

fn opening() -> Value {
    json!({"cwd": CWD, "mcpServers": []})
}

/// What the graph gets with the next run of a session.
async fn given(server: &mut LangGraph, editor: &mut Editor, session: &str) -> Value {
    let prompt = editor.prompt(session, "hi").await;
    let run = server.run().await;
    let given = run.body["config"]["configurable"][KEY].clone();
    run.ends("success", None).await;
    editor.until(prompt).await.result();
    given
}

#[tokio::test]
async fn a_system_prompt_is_offered_only_with_its_key() {
    for (setup, expected) in
        [(Setup::default(), Value::Null), (with_key(), json!({"mode": {"override": {}}}))]
    {
        let server = LangGraph::start().await;
        let mut editor = Editor::start(&server.url, &setup);
        let answer = editor.call("initialize", json!({"protocolVersion": 1})).await;
        let offered = &answer["agentCapabilities"]["sessionCapabilities"]["systemPrompt"];
        assert_eq!(*offered, expected);
        editor.ended().await;
    }
}

#[tokio::test]
async fn a_system_prompt_goes_into_each_run_however_its_session_was_opened() {
    let (mut server, mut editor) = open_with(with_key()).await;
    let said = json!([{"type": "human", "id": "h", "content": "hi"}]);
    server.thread(
        LOADED,
        json!({"acp_session": true, "cwd": CWD}),
        Some(state("r", &said, &json!([]))),
    );
    let mut existing = opening();
    existing["sessionId"] = json!(LOADED);
    let prompt = |mode: &str, content: &str| json!({"mode": mode, "content": content});
    let made = editor.call("session/new", with_prompt(opening(), "append", "new")).await;
    let new = made["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(given(&mut server, &mut editor, &new).await, prompt("append", "new"));
    assert_eq!(given(&mut server, &mut editor, &new).await, prompt("append", "new"));
    for method in ["session/load", "session/resume"] {
        editor.call(method, with_prompt(existing.clone(), "override", method)).await;
        assert_eq!(given(&mut server, &mut editor, LOADED).await, prompt("override", method));
    }
    let copied = editor.call("session/fork", with_prompt(existing.clone(), "append", "f")).await;
    let fork = copied["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(given(&mut server, &mut editor, &fork).await, prompt("append", "f"));
    // Each opening names its own.
    editor.call("session/load", existing).await;
    assert_eq!(given(&mut server, &mut editor, LOADED).await, Value::Null);
    editor.ended().await;
}

#[tokio::test]
async fn a_system_prompt_that_cannot_be_applied_opens_no_session() {
    let (_server, mut editor) = open().await;
    let refused = editor.refused("session/new", with_prompt(opening(), "append", "s3cr3t")).await;
    assert!(refused.0 == -32602 && refused.1.contains("acp.system_prompt_key"), "{refused:?}");
    assert!(!refused.1.contains("s3cr3t"));
    editor.ended().await;
    let (_server, mut editor) = open_with(with_key()).await;
    let refused = editor.refused("session/new", with_prompt(opening(), "replace", "a")).await;
    assert_eq!(refused.0, -32602, "{refused:?}");
    editor.ended().await;
}
