//! Sessions of a graph that keeps its conversation under another state key.

use std::collections::HashMap;

use crate::support::editor::{CWD, Setup, open_with, outline};
use crate::support::langgraph::{assistant, state};
use serde_json::{Value, json};

const KEY: &str = "chat_history";
const LOADED: &str = "44444444-4444-4444-8444-444444444444";

/// An editor of the agent `agent`, whose graph alone has the messages key.
fn setup() -> Setup {
    let messages_keys = HashMap::from([("agent".to_owned(), KEY.parse().unwrap())]);
    Setup { agent: Some("agent".to_owned()), messages_keys, ..Setup::default() }
}

fn thread(run_id: &str, conversation: &Value) -> Value {
    let mut state = state(run_id, &json!([]), &json!([]));
    let draft = json!({"type": "human", "id": "draft", "content": "a draft"});
    state["values"] = json!({"messages": [draft], KEY: conversation});
    state
}

fn conversation() -> Value {
    json!([
        {"type": "human", "id": "h1", "content": "hi"},
        {"type": "ai", "id": "a1", "content": "you"},
    ])
}

#[tokio::test]
async fn a_session_is_loaded_and_prompted_under_the_key() {
    let (mut server, mut editor) = open_with(setup()).await;
    let metadata = json!({"acp_session": true, "cwd": CWD});
    server.thread(LOADED, metadata, Some(thread("R0", &conversation())));
    let params = json!({"sessionId": LOADED, "cwd": CWD, "mcpServers": []});
    let load = editor.request("session/load", params).await;
    let told = editor.until(load).await;
    told.result();
    let history = ["user_message_chunk h1 hi", "agent_message_chunk a1 you"];
    assert_eq!(outline(&told.of(LOADED)), history);

    let prompt = editor.prompt(LOADED, "more").await;
    let mut run = server.run().await;
    let said = run.body["input"][KEY].clone();
    assert_eq!(said[0]["content"], "more");
    assert_eq!(run.body["input"].as_object().unwrap().len(), 1);
    let mut all = conversation();
    let answer = json!({"type": "ai", "id": "a2", "content": "here"});
    all.as_array_mut().unwrap().extend([said[0].clone(), answer]);
    let last = thread(&run.id, &all);
    run.sends("values", &last["values"]).await;
    run.ends("success", Some(last)).await;
    let told = editor.until(prompt).await;
    assert_eq!(told.said(), [("a2".to_owned(), "here".to_owned())]);
    assert_eq!(told.stop_reason(), "end_turn");
    editor.ended().await;
}

#[tokio::test]
async fn a_session_without_a_title_is_listed_by_what_was_said_first_under_the_key() {
    let (server, mut editor) = open_with(setup()).await;
    let metadata = json!({"acp_session": true, "cwd": CWD});
    server.thread(LOADED, metadata, Some(thread("R0", &conversation())));
    let list = editor.call("session/list", json!({"cwd": CWD})).await;
    assert_eq!(list["sessions"][0]["title"], "hi");
    editor.ended().await;
}

fn schemas(keys: &[&str]) -> Value {
    let properties: serde_json::Map<_, _> =
        keys.iter().map(|key| ((*key).to_owned(), json!({}))).collect();
    json!({"input_schema": {"type": "object", "properties": properties}})
}

#[tokio::test]
async fn a_graph_without_messages_says_so_at_the_prompt() {
    // The second is what Python before 3.12 makes of a `typing.TypedDict`.
    let state = schemas(&["question", "docs"])["input_schema"].take();
    for schemas in
        [json!({"input_schema": state}), json!({"input_schema": null, "state_schema": state})]
    {
        the_prompt_is_refused(schemas).await;
    }
}

async fn the_prompt_is_refused(of_agent: Value) {
    let (mut server, mut editor) = open_with(Setup::default()).await;
    server.books().assistants.push(assistant("chat"));
    server.books().schemas = json!({"agent": of_agent, "chat": schemas(&["messages", "docs"])});
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "hi").await;
    let told = editor.until(prompt).await;
    let why = "the graph of the agent `agent` takes no messages under `messages`, so it would \
               ignore this prompt; its input has `docs`, `question`: set `messages_key` of the \
               upstream or of the agent in the config file to the key of its conversation, or \
               choose another agent";
    assert_eq!(told.error(), (-32603, why.to_owned()));
    assert!(told.updates.is_empty() && server.books().threads.is_empty());
    // A question of such a graph can be answered.
    let metadata = json!({"acp_session": true, "cwd": CWD, "acp_assistant": "agent"});
    let question = json!([{"id": "q", "value": "Which one?"}]);
    server.thread(LOADED, metadata, Some(state("R0", &json!([]), &question)));
    let params = json!({"sessionId": LOADED, "cwd": CWD, "mcpServers": []});
    editor.call("session/load", params).await;
    editor.until_said("Which one?").await;
    let prompt = editor.prompt(LOADED, "this").await;
    let run = server.run().await;
    assert_eq!(run.body["command"], json!({"resume": {"q": "this"}}));
    let done = state(&run.id, &json!([]), &json!([]));
    run.ends("success", Some(done)).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    // Another agent takes the prompt.
    let option = json!({"sessionId": session, "configId": "assistant", "value": "chat"});
    editor.call("session/set_config_option", option).await;
    let prompt = editor.prompt(&session, "hi").await;
    server.run().await.ends("success", None).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    editor.ended().await;
}

#[tokio::test]
async fn a_graph_that_does_not_describe_its_input_is_prompted() {
    for schemas in [json!({}), json!({"input_schema": {"$ref": "#/$defs/State"}})] {
        let (mut server, mut editor) = open_with(Setup::default()).await;
        server.books().schemas = schemas;
        editor.prompted_session(&mut server, CWD).await;
        editor.ended().await;
    }
    // The key of the conversation is configured.
    let (mut server, mut editor) = open_with(setup()).await;
    server.books().schemas = schemas(&[KEY]);
    editor.prompted_session(&mut server, CWD).await;
    editor.ended().await;
}
