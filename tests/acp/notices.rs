//! What a person is shown besides the conversation: a failed run, MCP servers that the graph does not
//! get, a server that does not answer.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::clock::{HeldClock, within};
use crate::support::editor::{CWD, Editor, Setup, open_with, outline};
use crate::support::langgraph::{LangGraph, state};

const LOADED: &str = "33333333-3333-4333-8333-333333333333";

fn with_notices() -> Setup {
    Setup { capabilities: json!({"session": {"notices": {}}}), ..Setup::default() }
}

fn load_params() -> Value {
    json!({"sessionId": LOADED, "cwd": CWD, "mcpServers": []})
}

/// The next update.
async fn update(editor: &mut Editor) -> Value {
    let frame = editor.next().await;
    assert_eq!(frame["method"], "session/update", "{frame}");
    frame["params"]["update"].clone()
}

/// A session whose last run has failed.
fn failed_thread(server: &LangGraph) {
    let messages = json!([{"type": "human", "id": "h1", "content": "hi"}]);
    let mut failed = state("R0", &messages, &json!([]));
    failed["next"] = json!(["agent"]);
    failed["tasks"] = json!([{"id": "t", "name": "agent", "interrupts": [],
        "error": "ValueError('no model')"}]);
    server.thread(LOADED, json!({"acp_session": true, "cwd": CWD}), Some(failed));
    let run = json!({"run_id": "R0", "thread_id": LOADED, "status": "error",
        "created_at": "2026-11-22T10:00:00.000001+00:00", "metadata": {}, "kwargs": {}});
    server.books().threads.get_mut(LOADED).unwrap().runs = vec![run];
}

#[tokio::test]
async fn a_failed_last_run_is_told_after_the_load() {
    let (server, mut editor) = open_with(with_notices()).await;
    failed_thread(&server);
    let load = editor.request("session/load", load_params()).await;
    let told = editor.until(load).await;
    assert_eq!(outline(&told.of(LOADED)), ["user_message_chunk h1 hi"]);
    let notice = update(&mut editor).await;
    let title = "The last run of this session failed: ValueError";
    assert_eq!(
        notice,
        json!({"sessionUpdate": "notice", "severity": "error", "title": title,
            "description": "no model"})
    );
    editor.is_alive().await;
    editor.ended().await;
}

/// Each form of a client's capabilities, from `initialize` on.
#[tokio::test]
async fn a_summary_comes_in_the_form_that_the_client_takes() {
    let summary = json!({"type": "human", "id": "s1", "content": "a summary of old things",
        "additional_kwargs": {"lc_source": "summarization"}});
    let messages = json!([summary, {"type": "human", "id": "h1", "content": "hi"}]);
    for (session, expected) in [
        (json!({"compaction": {}, "notices": {}}), "compaction_update"),
        (json!({"notices": {}}), "notice"),
        (json!({}), "agent_message_chunk"),
    ] {
        let capabilities = json!({ "session": session });
        let (server, mut editor) = open_with(Setup { capabilities, ..Setup::default() }).await;
        server.thread(
            LOADED,
            json!({"acp_session": true, "cwd": CWD}),
            Some(state("R0", &messages, &json!([]))),
        );
        let load = editor.request("session/load", load_params()).await;
        let told = editor.until(load).await;
        let updates = told.of(LOADED);
        let kinds: Vec<_> =
            updates.iter().map(|update| update["sessionUpdate"].as_str().unwrap()).collect();
        assert_eq!(kinds, [expected, "user_message_chunk"]);
        let has_text = updates[0].to_string().contains("a summary of old things");
        assert_eq!(has_text, expected != "agent_message_chunk", "{}", updates[0]);
        editor.ended().await;
    }
}

#[tokio::test]
async fn a_client_without_notices_is_told_by_a_message_that_is_no_part_of_the_thread() {
    let (server, mut editor) = open_with(Setup::default()).await;
    failed_thread(&server);
    let mut ids = Vec::new();
    for _ in 0..2 {
        let load = editor.request("session/load", load_params()).await;
        // The second load sends the thread's own messages, and no notice among them.
        let told = editor.until(load).await;
        assert_eq!(outline(&told.of(LOADED)), ["user_message_chunk h1 hi"]);
        let line = update(&mut editor).await;
        assert_eq!(line["sessionUpdate"], "agent_message_chunk");
        let text = line["content"]["text"].as_str().unwrap();
        assert_eq!(text, "The last run of this session failed: ValueError\n\nno model");
        let id = line["messageId"].as_str().unwrap().to_owned();
        assert!(id.starts_with("notice:") && !ids.contains(&id), "{id}");
        ids.push(id);
    }
    editor.ended().await;
}

#[tokio::test]
async fn a_run_of_others_that_fails_while_it_is_shown_is_told() {
    let (mut server, mut editor) = open_with(with_notices()).await;
    server.thread(LOADED, json!({"acp_session": true, "cwd": CWD}), None);
    let run = json!({"run_id": "01a200b7-5ee6-7592-b13b-000000000009", "thread_id": LOADED,
        "status": "running", "created_at": "2026-11-22T10:00:00.000001+00:00", "metadata": {},
        "kwargs": {"resumable": true, "stream_mode": ["values", "messages-tuple"]}});
    server.books().threads.get_mut(LOADED).unwrap().runs = vec![run];
    let load = editor.request("session/load", load_params()).await;
    let mut run = server.joined().await;
    run.sends("metadata", &json!({"run_id": run.id, "attempt": 1})).await;
    run.sends("values", &json!({"messages": []})).await;
    editor.until(load).await.result();
    run.sends("error", &json!({"error": "ValueError", "message": "no model"})).await;
    run.ends("error", None).await;
    let notice = update(&mut editor).await;
    assert_eq!(notice["title"], "The run failed: ValueError");
    assert_eq!(notice["description"], "no model");
    editor.ended().await;
}

#[tokio::test]
async fn servers_that_the_graph_does_not_get_are_named_once() {
    let servers = json!([
        {"type": "http", "name": "docs", "url": "https://docs/mcp", "headers": []},
        {"name": "own", "command": "/bin/own", "args": [], "env": []},
    ]);
    let new = json!({"cwd": CWD, "mcpServers": servers});
    let (_server, mut editor) = open_with(with_notices()).await;
    editor.call("session/new", new.clone()).await;
    let notice = update(&mut editor).await;
    assert_eq!(
        notice,
        json!({"sessionUpdate": "notice", "severity": "warning",
            "title": "The graph does not get these MCP servers: `docs`, `own`",
            "description": "`acp.forward_mcp_servers` is not set in the config file of threadway"})
    );
    editor.call("session/new", new.clone()).await;
    editor.is_alive().await;
    editor.ended().await;

    // One that is not in ACP's form is named, and the others are used.
    let servers = json!([
        {"type": "http", "name": "docs", "url": "https://docs/mcp", "headers": []},
        {"name": "files", "command": "/bin/files", "args": [], "env": {"HOME": "s3cr3t"}},
    ]);
    let mut setup = with_notices();
    setup.settings.mcp_key = Some("mcp_servers".to_owned());
    let (_server, mut editor) = open_with(setup).await;
    // The editor of the tests refuses to send what the schema does not allow.
    let line = json!({"jsonrpc": "2.0", "id": 77, "method": "session/new",
        "params": {"cwd": CWD, "mcpServers": servers}});
    editor.raw(format!("{line}\n")).await;
    let made = editor.next_unchecked().await;
    assert!(made["result"]["sessionId"].is_string(), "{made}");
    let notice = editor.next_unchecked().await["params"]["update"].clone();
    assert_eq!(notice["title"], "The graph does not get these MCP servers: `files`");
    assert!(notice["description"].as_str().unwrap().contains("the form of ACP"), "{notice}");
    editor.ended().await;

    // Servers of stdio cannot be forwarded.
    let mut setup = with_notices();
    setup.settings.mcp_key = Some("mcp_servers".to_owned());
    let (_server, mut editor) = open_with(setup).await;
    editor.call("session/new", new.clone()).await;
    let notice = update(&mut editor).await;
    assert_eq!(notice["title"], "The graph does not get these MCP servers: `own`");
    let why = "the graph cannot start a process on the editor's machine";
    assert_eq!(notice["description"], why);
    editor.ended().await;
}

/// Cuts every request upstream until the editor gets a frame.
async fn cut_until_told(server: &mut LangGraph, editor: &mut Editor) -> Value {
    let mut told = std::pin::pin!(update(editor));
    loop {
        tokio::select! {
            biased;
            told = &mut told => return told,
            exchange = server.held("GET /threads/") => drop(exchange),
        }
    }
}

#[tokio::test]
async fn a_server_that_is_away_in_mid_prompt_is_told_and_its_return_too() {
    let (mut server, mut editor) = open_with(with_notices()).await;
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "hi").await;
    let mut run = server.run().await;
    run.says("m", "one").await;
    editor.until_said("one").await;
    server.hold("GET /threads/");
    let clock = HeldClock::pause();
    run.exchange.cut();
    // A second is no reason to say so.
    let limit = Duration::from_secs(9);
    let away = within(&clock, limit, cut_until_told(&mut server, &mut editor)).await;
    assert_eq!((&away["severity"], &away["sessionUpdate"]), (&json!("warning"), &json!("notice")));
    assert_eq!(away["title"], "The LangGraph server does not answer");
    let url = server.url.trim_end_matches('/');
    let description = away["description"].as_str().unwrap();
    assert!(description.starts_with(url), "{description}");
    assert!(description.contains("is tried again for up to 60 s"), "{description}");

    server.let_go_of("GET /threads/");
    let again = within(&clock, Duration::from_secs(9), server.joined()).await;
    let back = within(&clock, Duration::from_secs(9), update(&mut editor)).await;
    assert_eq!(back["title"], "The LangGraph server answers again");
    drop(clock);
    tokio::time::resume();
    again.ends_with(&json!([])).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    editor.ended().await;
}
