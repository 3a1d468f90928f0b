//! What a person at an editor is shown: attached files, titles of calls, repeated questions.

use serde_json::{Value, json};

use crate::support::editor::{CWD, open, said};
use crate::support::langgraph::state;

/// The answer to a load, and the updates before it.
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
    assert_eq!(server.books().threads[&session].metadata["title"], "Read [a.md](file:///w/a.md)");

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
