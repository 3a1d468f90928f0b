//! What a person is shown besides the conversation: a failed run, MCP servers that the graph does not
//! get, a server that does not answer.

use serde_json::{Value, json};

use crate::script::{Play, SOON, scripts};
use crate::support::clock::{HeldClock, within};
use crate::support::editor::Editor;
use crate::support::langgraph::LangGraph;

/// The next update.
async fn update(editor: &mut Editor) -> Value {
    let frame = editor.next().await;
    assert_eq!(frame["method"], "session/update", "{frame}");
    frame["params"]["update"].clone()
}

/// Loads a session whose last run has failed.
async fn failed(setup: &str) -> Play {
    let mut play = Play::start(setup).await;
    let script = r#"thread A $kept [{"type": "human", "id": "h1", "content": "hi"}]; live A R"#;
    play.steps(script).await;
    play.change("A", |thread| {
        thread.runs[0]["status"] = json!("error");
        let state = thread.state.as_mut().unwrap();
        state["next"] = json!(["agent"]);
        state["tasks"] = json!([{"id": "t", "name": "agent", "interrupts": [],
            "error": "ValueError('no model')"}]);
    });
    play.steps(r#"load A; is shown:A ["user_message_chunk h1 hi"]"#).await;
    play
}

#[tokio::test]
async fn a_failed_last_run_is_told_after_the_load() {
    let mut play = failed("notices").await;
    play.steps(
        r#"
        gets notice; is updates/0/update {"sessionUpdate": "notice", "severity": "error",
            "title": "The last run of this session failed: ValueError", "description": "no model"}
        call session/list {}; is updates []"#,
    )
    .await;
    play.end().await;
}

#[tokio::test]
async fn a_client_without_notices_is_told_by_a_message_that_is_no_part_of_the_thread() {
    let mut play = failed("default").await;
    let told = r#"
        gets agent_message_chunk; has updates/0/update/messageId notice:
        is updates/0/update/content/text "The last run of this session failed: ValueError\n\nno model""#;
    play.steps(told).await;
    let first = play.look("updates/0/update/messageId");
    // The second load sends the thread's own messages, and no notice among them.
    play.steps(r#"load A; is shown:A ["user_message_chunk h1 hi"]"#).await;
    play.steps(told).await;
    assert_ne!(play.look("updates/0/update/messageId"), first);
    play.end().await;
}

scripts! {

#[tokio::test]
async fn a_summary_comes_in_the_form_that_the_client_takes() = r#"
    rows $setup $form $has_text compactions compaction_update true notices notice true
        default agent_message_chunk false
    setup $setup; thread A $kept [
        {"type": "human", "id": "s1", "content": "a summary of old things",
            "additional_kwargs": {"lc_source": "summarization"}},
        {"type": "human", "id": "h1", "content": "hi"}]
    load A; is updates/0/update/sessionUpdate $form
    when $has_text has updates/0 "a summary of old things"
    unless $has_text lacks updates/0 "a summary of old things"
    is updates/1/update/sessionUpdate user_message_chunk; is updates/2 none
"#;

#[tokio::test]
async fn a_run_of_others_that_fails_while_it_is_shown_is_told() = r#"
    setup notices; thread A $kept []; live A L
    request x A session/load {"cwd": "/srv/app", "mcpServers": []}
    joined r; r sends metadata {"run_id": "L", "attempt": 1}; r values; response x
    r sends error {"error": "ValueError", "message": "no model"}; r ends error; gets notice
    is updates/0/update/title "The run failed: ValueError"
    is updates/0/update/description "no model"
"#;

#[tokio::test]
async fn servers_that_the_graph_does_not_get_are_named_once() = r#"
    rows $setup $names $why
        notices "`docs`, `own`"
            "`acp.forward_mcp_servers` is not set in the config file of threadway"
        # Servers of stdio cannot be forwarded.
        forwarding "`own`" "the graph cannot start a process on the editor's machine"
    setup $setup; let $new {"cwd": "/srv/app", "mcpServers": [
        {"type": "http", "name": "docs", "url": "https://docs/mcp", "headers": []},
        {"name": "own", "command": "/bin/own", "args": [], "env": []}]}
    call session/new $new; gets notice; is updates/0/update {"sessionUpdate": "notice",
        "severity": "warning", "title": "The graph does not get these MCP servers: $names",
        "description": "$why"}
    call session/new $new; call session/list {}; is updates []
"#;

}

#[tokio::test]
async fn a_server_that_is_not_in_the_form_of_acp_is_named_and_the_others_are_used() {
    let mut play = Play::start("forwarding").await;
    let servers = json!([
        {"type": "http", "name": "docs", "url": "https://docs/mcp", "headers": []},
        {"name": "files", "command": "/bin/files", "args": [], "env": {"HOME": "s3cr3t"}},
    ]);
    // The editor of the tests refuses to send what the schema does not allow.
    let line = json!({"jsonrpc": "2.0", "id": 77, "method": "session/new",
        "params": {"cwd": "/srv/app", "mcpServers": servers}});
    play.editor.raw(format!("{line}\n")).await;
    let made = play.editor.next_unchecked().await;
    assert!(made["result"]["sessionId"].is_string(), "{made}");
    let notice = play.editor.next_unchecked().await["params"]["update"].clone();
    assert_eq!(notice["title"], "The graph does not get these MCP servers: `files`");
    assert!(notice["description"].as_str().unwrap().contains("the form of ACP"), "{notice}");
    play.end().await;
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
    let mut play = Play::start("notices").await;
    play.steps("session A; prompt A hi r; r says m one; hears one").await;
    let (run, _) = play.runs.remove("r").unwrap();
    let Play { server, editor, .. } = &mut play;
    server.hold("GET /threads/");
    let clock = HeldClock::pause();
    run.exchange.cut();
    // A second is no reason to say so.
    let away = within(&clock, SOON, cut_until_told(server, editor)).await;
    assert_eq!((&away["severity"], &away["sessionUpdate"]), (&json!("warning"), &json!("notice")));
    assert_eq!(away["title"], "The LangGraph server does not answer");
    let url = server.url.trim_end_matches('/');
    let description = away["description"].as_str().unwrap();
    assert!(description.starts_with(url), "{description}");
    assert!(description.contains("is tried again for up to 60 s"), "{description}");

    server.let_go_of("GET /threads/");
    let again = within(&clock, SOON, server.joined()).await;
    let back = within(&clock, SOON, update(editor)).await;
    assert_eq!(back["title"], "The LangGraph server answers again");
    drop(clock);
    tokio::time::resume();
    again.ends_with(&json!([])).await;
    play.steps("stop A end_turn").await;
    play.end().await;
}
