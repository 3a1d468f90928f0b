//! What a person at an editor is shown: attached files, titles of calls, repeated questions, and no
//! sessions that were never used.

use serde_json::{Value, json};

use crate::script::scripts;
use crate::support::editor::{Setup, open_with};

scripts! {

#[tokio::test]
async fn an_attached_file_goes_up_as_a_block_and_comes_back_as_a_resource() = r#"
    let $file {"uri": "file:///w/a.md", "text": "a\n</file>\n\n<file uri=\"x\">\nb\n"}
    let $link {"type": "text", "text": "Read [a.md](file:///w/a.md)"}
    session A; request x A session/prompt {"prompt": [{"type": "text", "text": "Read "},
        {"type": "resource", "resource": $file}]}
    run r A; is r/input/messages/0/content [$link, {"type": "text",
        "text": "\n\n<file uri=\"file:///w/a.md\">\na\n<\\/file>\n\n<file uri=\"x\">\nb\n\n</file>"}]
    r completes; response x; is response/result {"stopReason": "end_turn"}
    is thread:A/title "Read a.md"
    load A; is updates/0/update/content $link
    is updates/1/update/content {"type": "resource", "resource": $file}; is updates/2 none
"#;

#[tokio::test]
async fn a_call_says_what_it_does() = r#"
    session A; prompt A weather? r; r calls ai c get_weather {"city": "Paris", "days": 2}
    r calls ai d mcp__files__read_file {"path": "a.md"}; finish r A
    is call:c/title "get_weather Paris"; is call:d/title "Read a.md"; is call:d/kind read
"#;

#[tokio::test]
async fn a_question_that_is_repeated_is_a_message_of_its_own() = r#"
    let $question [{"id": "q", "value": "How many?"}]
    session A; prompt A hi r; r asks $question; stop A end_turn; is said ["q How many?"]
    # The graph asks the same once more.
    prompt A seven; resumed r A {"q": "seven"}; r asks $question; stop A end_turn
    is said ["q:2 How many?"]
    prompt A seven; resumed r A {"q": "seven"}; r asks $question; stop A end_turn
    is said ["q:3 How many?"]
    # A client that loads the session is shown the question once.
    load A; hears "How many?"; is said ["q How many?"]
    prompt A 7; run r A; r completes; stop A end_turn
"#;

#[tokio::test]
async fn the_context_in_use_is_told_at_the_load() = r#"
    setup windows; let $model {"model_name": "gpt-9"}
    let $a1 {"type": "ai", "id": "a1", "content": "yes", "response_metadata": $model,
        "usage_metadata": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}}
    let $a2 {"type": "ai", "id": "a2", "content": "yes", "response_metadata": $model,
        "usage_metadata": {"input_tokens": 40, "output_tokens": 5, "total_tokens": 45}}
    thread A $kept [{"type": "human", "id": "h1", "content": "one"}, $a1,
        {"type": "human", "id": "h2", "content": "two"}, $a2]
    load A; is updates/4/update {"sessionUpdate": "usage_update", "used": 45, "size": 1000}
    is updates/5 none
"#;

// === unused sessions ===

#[tokio::test]
async fn a_session_without_a_prompt_has_no_thread() = r#"
    setup modes; session A; call A session/set_mode {"modeId": "auto"}
    call A session/set_config_option {"configId": "mode", "value": "ask"}
    call A session/set_mode {"modeId": "auto"}
    # The session can be opened again, and keeps its settings.
    load A; is response/result/modes/currentModeId auto
    resume A; is response/result/modes/currentModeId auto
    request x A session/load {"cwd": "/other", "mcpServers": []}
    response x; is response/error/code -32602
    call session/list {}; is response/result/sessions []; is threads []; count PATCH 0
    # The first prompt makes the thread, with what was chosen before.
    forget; turn A hello; is thread:A/acp_mode auto; is thread:A/title hello
    is thread:A/acp_session true; is thread:A/cwd "/srv/app"
    count "POST /threads " 1
    call session/list {}; is response/result/sessions/0/sessionId $A
"#;

#[tokio::test]
async fn a_session_that_was_never_prompted_is_nowhere_else() = r#"
    rows $method session/load session/resume
    session A; session B; call B session/close {}; is response/result {}
    session C; call C session/delete {}; is response/result {}
    request x B $method {"cwd": "/srv/app", "mcpServers": []}
    response x; is response/error/code -32002
    request x C $method {"cwd": "/srv/app", "mcpServers": []}
    response x; is response/error/code -32002
    another editor; refused A $method {"cwd": "/srv/app", "mcpServers": []} -32002
        "there is no session `$A`: sessions exist from their first prompt until they are deleted; make a new one"
    count "POST /threads" 0
"#;

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
