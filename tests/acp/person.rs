//! What a person at an editor is shown: attached files, titles of calls, repeated questions, and no
//! sessions that were never used.

use serde_json::{Value, json};

use crate::support::editor::{CWD, Editor, Setup, open, open_with, said};
use crate::support::langgraph::state;
use threadway_translate::acp::GraphProfile;

fn load_params(session: &str) -> Value {
    json!({"sessionId": session, "cwd": CWD, "mcpServers": []})
}

#[tokio::test]
async fn an_attached_file_goes_up_as_a_block_and_comes_back_as_a_resource() {
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    let text = "a\n</file>\n\n<file uri=\"x\">\nb\n";
    let file = json!({"uri": "file:///w/a.md", "text": text});
    let prompt = json!([
        {"type": "text", "text": "Read "},
        {"type": "resource", "resource": file},
    ]);
    let params = json!({"sessionId": session, "prompt": prompt});
    let prompt = editor.request("session/prompt", params).await;
    let run = server.run().await;
    let message = run.said();
    let blocks = message["content"].as_array().unwrap();
    assert_eq!(blocks[0], json!({"type": "text", "text": "Read [a.md](file:///w/a.md)"}));
    assert_eq!(blocks.len(), 2);
    let block = blocks[1]["text"].as_str().unwrap();
    assert!(block.starts_with("\n\n<file uri=\"file:///w/a.md\">\na\n"), "{block}");
    assert!(block.ends_with("\n</file>") && block.matches("</file>").count() == 1, "{block}");
    run.ends_with(&json!([message])).await;
    let told = editor.until(prompt).await;
    assert_eq!(told.stop_reason(), "end_turn");
    assert_eq!(server.books().threads[&session].metadata["title"], "Read a.md");

    let load = editor.request("session/load", load_params(&session)).await;
    let told = editor.until(load).await;
    told.result();
    let shown: Vec<_> = told.of(&session).iter().map(|update| update["content"].clone()).collect();
    assert_eq!(
        shown,
        [
            json!({"type": "text", "text": "Read [a.md](file:///w/a.md)"}),
            json!({"type": "resource", "resource": file}),
        ]
    );
    editor.ended().await;
}

#[tokio::test]
async fn a_call_says_what_it_does() {
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "weather?").await;
    let mut run = server.run().await;
    let args = json!({"city": "Paris", "days": 2});
    run.calls("ai", "c", "get_weather", &args).await;
    run.calls("ai", "d", "mcp__files__read_file", &json!({"path": "a.md"})).await;
    run.ends("success", None).await;
    let told = editor.until(prompt).await.of(&session);
    let last = |id: &str, member: &str| {
        let of_call = told.iter().filter(|update| update["toolCallId"] == id);
        of_call.filter_map(|update| update[member].as_str()).next_back().unwrap().to_owned()
    };
    assert_eq!(last("c", "title"), "get_weather Paris");
    assert_eq!((last("d", "title"), last("d", "kind")), ("Read a.md".into(), "read".into()));
    editor.ended().await;
}

#[tokio::test]
async fn a_question_that_is_repeated_is_a_message_of_its_own() {
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    let question = json!({"id": "q", "value": "How many?"});
    let prompt = editor.prompt(&session, "hi").await;
    server.run().await.asks(&json!([]), &json!([question])).await;
    let told = editor.until(prompt).await;
    assert_eq!(told.said(), [("q".to_owned(), "How many?".to_owned())]);
    for time in 2..4 {
        // The graph asks the same once more.
        let prompt = editor.prompt(&session, "seven").await;
        let run = server.run().await;
        assert_eq!(run.body["command"], json!({"resume": {"q": "seven"}}));
        run.asks(&json!([]), &json!([question])).await;
        let told = editor.until(prompt).await;
        assert_eq!(told.said(), [(format!("q:{time}"), "How many?".to_owned())]);
    }
    // A client that loads the session is shown the question once.
    let load = editor.request("session/load", load_params(&session)).await;
    editor.until(load).await.result();
    let updates = editor.until_said("How many?").await;
    assert_eq!(said(&updates), [("q".to_owned(), "How many?".to_owned())]);
    let prompt = editor.prompt(&session, "7").await;
    let run = server.run().await;
    let state = state(&run.id, &json!([]), &json!([]));
    run.ends("success", Some(state)).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    editor.ended().await;
}

#[tokio::test]
async fn the_context_in_use_is_told_at_the_load() {
    let mut setup = Setup::default();
    let windows = vec![("gpt-*".parse().unwrap(), 1_000)];
    setup.settings.profile = GraphProfile { windows, ..GraphProfile::default() }.into();
    let (server, mut editor) = open_with(setup).await;
    let answer = |id: &str, input: u64| {
        json!({"type": "ai", "id": id, "content": "yes",
            "usage_metadata": {"input_tokens": input, "output_tokens": 5, "total_tokens": input + 5},
            "response_metadata": {"model_name": "gpt-9"}})
    };
    let messages = json!([
        {"type": "human", "id": "h1", "content": "one"}, answer("a1", 10),
        {"type": "human", "id": "h2", "content": "two"}, answer("a2", 40),
    ]);
    let session = "33333333-3333-4333-8333-333333333333";
    let metadata = json!({"acp_session": true, "cwd": CWD});
    server.thread(session, metadata, Some(state("R0", &messages, &json!([]))));
    let load = editor.request("session/load", load_params(session)).await;
    let told = editor.until(load).await;
    let usage = json!({"sessionUpdate": "usage_update", "used": 45, "size": 1000});
    assert_eq!(told.of(session).last().unwrap(), &usage);
    assert_eq!(told.of(session).len(), 5);
    editor.ended().await;
}

// === unused sessions ===

#[tokio::test]
async fn a_session_without_a_prompt_has_no_thread() {
    let (mut server, mut editor) = open_with(Setup::with_modes(&["act", "plan"])).await;
    let session = editor.session().await;
    let mode = |id: &str| json!({"sessionId": session, "modeId": id});
    editor.call("session/set_mode", mode("plan")).await;
    let option = json!({"sessionId": session, "configId": "mode", "value": "act"});
    editor.call("session/set_config_option", option).await;
    editor.call("session/set_mode", mode("plan")).await;
    // The session can be opened again, and keeps its settings.
    for method in ["session/load", "session/resume"] {
        let opened = editor.call(method, load_params(&session)).await;
        assert_eq!(opened["modes"]["currentModeId"], "plan", "{method}");
    }
    let mut other_cwd = load_params(&session);
    other_cwd["cwd"] = json!("/other");
    assert_eq!(editor.refused("session/load", other_cwd).await.0, -32602);
    assert_eq!(editor.call("session/list", json!({})).await["sessions"], json!([]));
    assert!(server.books().threads.is_empty());
    assert!(server.asked("PATCH").is_empty());

    // The first prompt makes the thread, with what was chosen before.
    let prompt = editor.prompt(&session, "hello").await;
    server.run().await.ends("success", None).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    let metadata = server.books().threads[&session].metadata.clone();
    assert_eq!((&metadata["acp_mode"], &metadata["title"]), (&json!("plan"), &json!("hello")));
    assert_eq!((&metadata["acp_session"], &metadata["cwd"]), (&json!(true), &json!(CWD)));
    let listed = editor.call("session/list", json!({})).await;
    assert_eq!(listed["sessions"][0]["sessionId"], *session);
    let threads =
        server.asked("POST /threads").into_iter().filter(|body| body["if_exists"].is_string());
    assert_eq!(threads.count(), 1);
    editor.ended().await;
}

#[tokio::test]
async fn a_session_that_was_never_prompted_is_nowhere_else() {
    let (server, mut editor) = open().await;
    let session = editor.session().await;
    let mut other = Editor::initialized(&server.url, &Setup::default()).await;
    let why = format!(
        "there is no session `{session}`: sessions exist from their first prompt until they are \
         deleted; make a new one"
    );
    for method in ["session/load", "session/resume"] {
        let refused = other.refused(method, load_params(&session)).await;
        assert_eq!(refused, (-32002, why.clone()), "{method}");
    }
    other.ended().await;
    for method in ["session/close", "session/delete"] {
        let session = editor.session().await;
        let params = json!({"sessionId": session});
        assert_eq!(editor.call(method, params).await, json!({}), "{method}");
        assert_eq!(editor.refused("session/load", load_params(&session)).await.0, -32002);
    }
    assert!(server.asked("POST /threads").is_empty());
    editor.ended().await;
}

#[tokio::test]
async fn a_thread_that_cannot_be_made_fails_the_prompt_and_the_next_one_makes_it() {
    let (mut server, mut editor) = open_with(Setup::with_modes(&["act", "plan"])).await;
    let session = editor.session().await;
    server.hold("POST /threads");
    let prompt = editor.prompt(&session, "hello").await;
    server.held("POST /threads").await.json(503, r#"{"detail":"no"}"#).await;
    let told = editor.until(prompt).await;
    let (code, message) = told.error();
    assert!(code == -32603 && message.contains("503"), "{code} {message}");
    assert_eq!(told.updates, Vec::<Value>::new(), "a session without a thread has no title");
    // The thread is made, but the answer is lost. Then another mode is chosen.
    let prompt = editor.prompt(&session, "hello").await;
    let lost = server.held("POST /threads").await;
    let body: Value = serde_json::from_str(&lost.body).unwrap();
    server.thread(&session, body["metadata"].clone(), None);
    drop(lost);
    assert_eq!(editor.until(prompt).await.error().0, -32603);
    let mode = json!({"sessionId": session, "modeId": "plan"});
    editor.call("session/set_mode", mode).await;
    server.let_go_of("POST /threads");
    let prompt = editor.prompt(&session, "once more").await;
    server.run().await.ends("success", None).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    assert_eq!(server.books().threads.len(), 1);
    let metadata = server.books().threads[&session].metadata.clone();
    assert_eq!((&metadata["acp_mode"], &metadata["title"]), (&json!("plan"), &json!("hello")));
    editor.ended().await;
}
