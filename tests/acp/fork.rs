//! Copies of sessions, and the additional directories of sessions, in front of a scripted server.

use serde_json::{Value, json};

use crate::support::editor::{CWD, Editor, Setup, open, open_with, outline};
use crate::support::langgraph::{LangGraph, state};

const SOURCE: &str = "0f9cfe5e-7d44-4d4f-8aef-a4e7c1d4a2a1";
const NOBODYS: &str = "0f9cfe5e-7d44-4d4f-8aef-a4e7c1d4a2a3";

/// The directory of the fork.
const ELSEWHERE: &str = "/srv/other";

const COPY: &str = "/copy";

/// How many sessions with prompts a client may have open.
const MAX_SESSIONS: usize = 256;

fn to_fork(source: &str) -> Value {
    json!({"sessionId": source, "cwd": ELSEWHERE})
}

fn to_open(session: &str, additional: &[&str]) -> Value {
    let mut params = json!({"sessionId": session, "cwd": CWD, "mcpServers": []});
    if !additional.is_empty() {
        params["additionalDirectories"] = json!(additional);
    }
    params
}

/// A session that another process has left, with a conversation.
fn saved(server: &LangGraph) {
    let metadata = json!({"acp_session": true, "cwd": CWD, "title": "Mine", "acp_mode": "auto",
        "acp_assistant": "agent", "acp_additional_directories": ["/lib"], "theirs": 1.5,
        "acp_always/0": {"number": 0, "name": "write", "args": "{}", "decision": "allow"}});
    let said = json!([{"type": "human", "id": "h", "content": "hi"},
        {"type": "ai", "id": "a", "content": "hello"}]);
    server.thread(SOURCE, metadata, Some(state("r", &said, &json!([]))));
}

fn id_of(answer: &Value) -> String {
    answer["sessionId"].as_str().unwrap().to_owned()
}

/// The sessions of a directory, with their additional directories.
async fn listed(editor: &mut Editor, cwd: &str) -> Vec<(String, Value)> {
    let listed = editor.call("session/list", json!({"cwd": cwd})).await;
    let sessions = listed["sessions"].as_array().unwrap();
    sessions.iter().map(|one| (id_of(one), one["additionalDirectories"].clone())).collect()
}

// === forks ===

/// Prompts a fork, which sends the answer and nothing of the conversation before.
pub(crate) async fn takes_a_prompt(server: &mut LangGraph, editor: &mut Editor, fork: &str) {
    let prompt = editor.prompt(fork, "go on").await;
    let mut run = server.run().await;
    assert_eq!(run.thread, fork);
    run.says("b", "done").await;
    run.ends("success", None).await;
    let told = editor.until(prompt).await;
    assert_eq!(told.stop_reason(), "end_turn");
    assert_eq!(outline(&told.of(fork)), ["agent_message_chunk b done"]);
}

#[tokio::test]
async fn initialize_offers_forks_and_additional_directories() {
    let server = LangGraph::start().await;
    let mut editor = Editor::start(&server.url, &Setup::default());
    let answer = editor.call("initialize", json!({"protocolVersion": 1})).await;
    let offered = &answer["agentCapabilities"]["sessionCapabilities"];
    assert_eq!((&offered["fork"], &offered["additionalDirectories"]), (&json!({}), &json!({})));
    editor.ended().await;
}

#[tokio::test]
async fn a_fork_has_the_conversation_and_the_settings_and_goes_on_by_itself() {
    let (mut server, mut editor) = open_with(Setup::with_modes(&["ask", "auto"])).await;
    saved(&server);
    let mut request = to_fork(SOURCE);
    request["additionalDirectories"] = json!(["/data/", "/lib"]);
    let answer = editor.call("session/fork", request).await;
    let fork = id_of(&answer);
    assert_ne!(fork, SOURCE);
    assert_eq!(answer["modes"]["currentModeId"], "auto");
    assert_eq!(answer["configOptions"][0]["currentValue"], "auto");
    let metadata = server.books().threads[&fork].metadata.clone();
    let expected = json!({"acp_session": true, "cwd": ELSEWHERE, "title": "Mine",
        "acp_mode": "auto", "acp_assistant": "agent", "acp_own_assistant": "agent",
        "acp_always/0": null, "theirs": 1.5,
        "acp_additional_directories": ["/data", "/lib"]});
    assert_eq!(metadata, expected);
    let own = vec![(fork.clone(), json!(["/data", "/lib"]))];
    assert_eq!(listed(&mut editor, ELSEWHERE).await, own);
    // The source is as it was.
    assert_eq!(listed(&mut editor, CWD).await, [(SOURCE.to_owned(), json!(["/lib"]))]);
    assert_eq!(server.books().threads[SOURCE].metadata["acp_always/0"]["name"], "write");

    // The fork takes a prompt at once, and sends nothing of the conversation again.
    takes_a_prompt(&mut server, &mut editor, &fork).await;
    assert!(server.books().threads[SOURCE].runs.is_empty());
    // Another process loads it with its conversation.
    let mut other = Editor::initialized(&server.url, &Setup::with_modes(&["ask", "auto"])).await;
    let load = json!({"sessionId": fork, "cwd": ELSEWHERE, "mcpServers": []});
    let load = other.request("session/load", load).await;
    let history = other.until(load).await;
    let history = outline(&history.of(&fork));
    assert_eq!(history, ["user_message_chunk h hi", "agent_message_chunk a hello"]);
    other.ended().await;
    editor.ended().await;
}

#[tokio::test]
async fn a_fork_of_an_open_session_has_the_settings_that_its_client_sees() {
    let (mut server, mut editor) = open_with(Setup::with_modes(&["ask", "auto"])).await;
    saved(&server);
    editor.call("session/resume", to_open(SOURCE, &["/lib"])).await;
    // The choice cannot be saved.
    server.hold("PATCH");
    let choice = json!({"sessionId": SOURCE, "modeId": "ask"});
    let chosen = editor.request("session/set_mode", choice).await;
    server.held("PATCH").await.json(500, "{}").await;
    editor.until(chosen).await.result();
    server.let_go_of("PATCH");
    editor.next().await;
    let answer = editor.call("session/fork", to_fork(SOURCE)).await;
    assert_eq!(answer["modes"]["currentModeId"], "ask");
    assert_eq!(server.books().threads[&id_of(&answer)].metadata["acp_mode"], "ask");
    editor.ended().await;
}

#[tokio::test]
async fn a_fork_of_a_session_without_a_prompt_is_empty_too() {
    let (mut server, mut editor) = open_with(Setup::with_modes(&["ask", "auto"])).await;
    let source = editor.session().await;
    editor.call("session/set_mode", json!({"sessionId": source, "modeId": "auto"})).await;
    editor.next().await;
    let answer = editor.call("session/fork", to_fork(&source)).await;
    let fork = id_of(&answer);
    assert_eq!(answer["modes"]["currentModeId"], "auto");
    assert!(server.books().threads.is_empty());
    let prompt = editor.prompt(&fork, "hi").await;
    server.run().await.ends("success", None).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    let threads: Vec<_> = server.books().threads.keys().cloned().collect();
    assert_eq!(threads, [&*fork]);
    assert_eq!(server.books().threads[&fork].metadata["cwd"], ELSEWHERE);
    assert!(server.asked("POST").iter().all(|body| body["thread_id"] != *source));
    editor.ended().await;
}

#[tokio::test]
async fn a_session_is_forked_while_its_prompt_runs() {
    let (mut server, mut editor) = open().await;
    let source = editor.session().await;
    let prompt = editor.prompt(&source, "hi").await;
    let mut run = server.run().await;
    run.says("a", "one").await;
    editor.until_said("one").await;
    let fork = id_of(&editor.call("session/fork", to_fork(&source)).await);
    assert!(server.books().threads[&fork].runs.is_empty());
    assert!(server.cancelled().is_empty());
    run.says("a", "two").await;
    run.ends("success", None).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    editor.ended().await;
}

#[tokio::test]
async fn a_fork_asks_the_open_question_of_its_source_again() {
    let (mut server, mut editor) = open_with(Setup::with_forms()).await;
    saved(&server);
    let said = json!([{"type": "human", "id": "h", "content": "hi"}]);
    let question = json!([{"id": "q", "value": "Which one?"}]);
    server.books().threads.get_mut(SOURCE).unwrap().state = Some(state("r", &said, &question));
    let fork = id_of(&editor.call("session/fork", to_fork(SOURCE)).await);
    let prompt = editor.prompt(&fork, "go on").await;
    let (_, asked) = editor.until_asked().await;
    assert_eq!(asked["method"], "elicitation/create");
    assert_eq!(asked["params"]["sessionId"], *fork);
    let answer = json!({"action": "accept", "content": {"answer": "this one"}});
    editor.reply(&asked, answer).await;
    let run = server.run().await;
    assert_eq!((&*run.thread, &run.body["command"]["resume"]["q"]), (&*fork, &json!("this one")));
    run.ends_with(&said).await;
    server.run().await.ends_with(&said).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    editor.ended().await;
}

#[tokio::test]
async fn a_fork_of_an_archived_session_is_not_archived() {
    let (server, mut editor) = open().await;
    saved(&server);
    server.books().threads.get_mut(SOURCE).unwrap().metadata["archived"] = json!(true);
    let fork = id_of(&editor.call("session/fork", to_fork(SOURCE)).await);
    assert_eq!(server.books().threads[&fork].metadata["archived"], false);
    editor.ended().await;
}

#[tokio::test]
async fn what_cannot_be_forked_is_refused_as_a_load_is() {
    let (server, mut editor) = open().await;
    for id in [NOBODYS, "nobody", "../../etc", &SOURCE.to_uppercase()] {
        let forked = editor.refused("session/fork", to_fork(id)).await;
        let loaded = editor.refused("session/load", to_open(id, &[])).await;
        assert_eq!((forked.0, &forked), (-32002, &loaded), "{id}");
    }
    saved(&server);
    for (cwd, additional, why) in [
        ("ws", json!([]), "cwd `ws` is not an absolute path"),
        (CWD, json!(["/a", "b"]), "additionalDirectories has `b`, which is not an absolute path"),
    ] {
        let directories = json!({"cwd": cwd, "additionalDirectories": additional});
        for (method, session) in [
            ("session/fork", Some(SOURCE)),
            ("session/load", Some(SOURCE)),
            ("session/resume", Some(SOURCE)),
            ("session/new", None),
        ] {
            let mut params = directories.clone();
            params["mcpServers"] = json!([]);
            if let Some(session) = session {
                params["sessionId"] = json!(session);
            }
            assert_eq!(editor.refused(method, params).await, (-32602, why.to_owned()), "{method}");
        }
    }
    assert_eq!(server.asked("PATCH").len(), 0);
    assert_eq!(server.books().threads.len(), 1);
    editor.ended().await;
}

#[tokio::test]
async fn a_server_that_cannot_copy_is_named_in_the_refusal() {
    let (mut server, mut editor) = open().await;
    saved(&server);
    server.hold(COPY);
    for (status, body, code, words) in [
        (404, r#"{"detail":"Not Found"}"#, -32603, "copies no threads"),
        (405, "", -32603, "copies no threads"),
        // The thread was deleted meanwhile.
        (409, r#"{"detail":"Thread not found"}"#, -32002, "there is no session `0f9cfe5e"),
        (403, r#"{"detail":"read only"}"#, -32603, "read only"),
        (500, r#"{"detail":"out of order"}"#, -32603, "out of order"),
        (200, "[]", -32603, "a thread"),
        (200, r#"{"thread_id":"../x"}"#, -32603, "the id of a copied thread"),
    ] {
        let id = editor.request("session/fork", to_fork(SOURCE)).await;
        server.held(COPY).await.json(status, body).await;
        let (told, message) = editor.until(id).await.error();
        assert_eq!((told, message.contains(words)), (code, true), "{status} {body}: {message}");
    }
    assert!(server.asked("PATCH").is_empty());
    editor.is_alive().await;
    editor.ended().await;
}

#[tokio::test]
async fn a_copy_that_cannot_be_changed_is_deleted() {
    for status in [404, 405, 500] {
        let (mut server, mut editor) = open().await;
        saved(&server);
        server.hold("PATCH");
        let id = editor.request("session/fork", to_fork(SOURCE)).await;
        let patch = server.held("PATCH").await;
        assert_eq!(server.books().threads.len(), 2);
        patch.json(status, r#"{"detail":"no"}"#).await;
        let (code, message) = editor.until(id).await.error();
        assert_eq!((code, message.contains(COPY)), (-32603, false), "{message}");
        assert_eq!(server.books().threads.keys().collect::<Vec<_>>(), [SOURCE]);
        editor.ended().await;
    }
}

#[tokio::test]
async fn a_copy_for_which_there_is_no_room_is_deleted() {
    let (mut server, mut editor) = open().await;
    saved(&server);
    server.hold("PATCH");
    let fork = editor.request("session/fork", to_fork(SOURCE)).await;
    let patch = server.held("PATCH").await;
    for number in 0..MAX_SESSIONS {
        let id = format!("0f9cfe5e-7d44-4d4f-8aef-b{number:011}");
        server.thread(&id, json!({"acp_session": true, "cwd": CWD}), None);
        editor.call("session/resume", to_open(&id, &[])).await;
    }
    patch.json(200, "{}").await;
    let (_, message) = editor.until(fork).await.error();
    assert!(message.contains("close some"), "{message}");
    let count = MAX_SESSIONS + 1;
    server.until("the deletion", |server| server.books().threads.len() == count).await;
    editor.ended().await;
}

#[tokio::test]
async fn a_fork_ends_also_if_it_is_cancelled_and_is_deleted_if_its_client_leaves() {
    let (mut server, mut editor) = open().await;
    saved(&server);
    server.hold("PATCH");
    let id = editor.request("session/fork", to_fork(SOURCE)).await;
    let patch = server.held("PATCH").await;
    editor.notify("$/cancel_request", json!({"requestId": id})).await;
    editor.is_alive().await;
    patch.json(200, "{}").await;
    let kept = id_of(&editor.until(id).await.result());
    assert!(server.books().threads.contains_key(&kept));

    editor.request("session/fork", to_fork(SOURCE)).await;
    let patch = server.held("PATCH").await;
    assert_eq!(server.books().threads.len(), 3);
    editor.left().await;
    patch.json(200, "{}").await;
    server.until("the deletion", |server| server.books().threads.len() == 2).await;
    assert!(server.books().threads.contains_key(&kept));
}

// === additional directories ===

#[tokio::test]
async fn additional_directories_are_stored_with_the_first_prompt_and_listed() {
    let (mut server, mut editor) = open().await;
    let new = json!({"cwd": CWD, "mcpServers": [], "additionalDirectories": ["/b/", "c:/a", "/b"]});
    let session = id_of(&editor.call("session/new", new).await);
    assert!(server.books().threads.is_empty());
    let prompt = editor.prompt(&session, "hi").await;
    server.run().await.ends("success", None).await;
    editor.until(prompt).await.result();
    let stored = || server.books().threads[&session].metadata["acp_additional_directories"].clone();
    assert_eq!(stored(), json!(["/b", r"C:\a"]));
    assert_eq!(listed(&mut editor, CWD).await, [(session.clone(), json!(["/b", r"C:\a"]))]);
    editor.ended().await;

    // Each time the request has the complete list. One that is stored already is not written.
    let patches = || server.asked("PATCH").len();
    for (method, given, writes) in [
        ("session/load", vec!["/b", r"C:\a"], 0),
        ("session/resume", vec!["/b"], 1),
        ("session/load", vec!["/b", "/d"], 1),
        ("session/resume", vec![], 1),
        ("session/load", vec![], 0),
    ] {
        let mut editor = Editor::initialized(&server.url, &Setup::default()).await;
        let before = patches();
        editor.call(method, to_open(&session, &given)).await;
        assert_eq!((stored(), patches() - before), (json!(given), writes), "{method} {given:?}");
        let directories = if given.is_empty() { Value::Null } else { json!(given) };
        assert_eq!(listed(&mut editor, CWD).await, [(session.clone(), directories)]);
        editor.ended().await;
    }
    let only = json!({"metadata": {"acp_additional_directories": []}});
    assert_eq!(server.asked("PATCH").last(), Some(&only));
}

#[tokio::test]
async fn a_thread_of_another_program_gets_directories_with_its_first_prompt() {
    let (mut server, mut editor) = open().await;
    server.thread(SOURCE, json!({"theirs": true}), None);
    editor.call("session/resume", to_open(SOURCE, &["/lib"])).await;
    assert_eq!(server.books().threads[SOURCE].metadata, json!({"theirs": true}));
    let prompt = editor.prompt(SOURCE, "hi").await;
    let run = server.run().await;
    let metadata = server.books().threads[SOURCE].metadata.clone();
    assert_eq!(metadata["acp_additional_directories"], json!(["/lib"]));
    run.ends("success", None).await;
    editor.until(prompt).await.result();
    editor.ended().await;
}

#[tokio::test]
async fn directories_that_could_not_be_saved_are_saved_with_the_next_prompt() {
    let (mut server, mut editor) = open().await;
    saved(&server);
    server.hold("PATCH");
    let resume = editor.request("session/resume", to_open(SOURCE, &["/new"])).await;
    server.held("PATCH").await.json(500, "{}").await;
    editor.until(resume).await.result();
    server.let_go_of("PATCH");
    let prompt = editor.prompt(SOURCE, "hi").await;
    let run = server.run().await;
    let metadata = server.books().threads[SOURCE].metadata.clone();
    assert_eq!(metadata["acp_additional_directories"], json!(["/new"]));
    run.ends("success", None).await;
    editor.until(prompt).await.result();
    editor.ended().await;
}

#[tokio::test]
async fn directories_that_others_have_stored_are_listed_only_if_they_are_absolute() {
    let (server, mut editor) = open().await;
    saved(&server);
    server.books().threads.get_mut(SOURCE).unwrap().metadata["acp_additional_directories"] =
        json!(["/a/", "b", 7]);
    assert_eq!(listed(&mut editor, CWD).await, [(SOURCE.to_owned(), json!(["/a"]))]);
    editor.ended().await;
}
