//! The first contact of a person with `threadway acp`: errors that name the remedy, an agent that
//! does not exist, ids and directories, and the command line.

use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::editor::{CWD, Editor, Setup, open};
use crate::support::langgraph::{LangGraph, assistant};

const SESSION: &str = "11111111-1111-4111-8111-111111111111";

fn new_session() -> Value {
    json!({"cwd": CWD, "mcpServers": []})
}

fn open_params(session: &str, cwd: &str) -> Value {
    json!({"sessionId": session, "cwd": cwd, "mcpServers": []})
}

/// Runs a command without a terminal and without input, to its end.
async fn threadway(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_threadway"));
    command.args(args).env("XDG_CONFIG_HOME", "/nowhere").stdin(Stdio::null());
    for variable in ["THREADWAY_UPSTREAM", "THREADWAY_UPSTREAM_API_KEY", "THREADWAY_CONFIG"] {
        command.env_remove(variable);
    }
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

// === errors ===

#[tokio::test]
async fn an_upstream_that_does_not_answer_is_named_with_the_remedy() {
    // Nothing listens on port 1.
    let mut editor = Editor::initialized("http://127.0.0.1:1", &Setup::default()).await;
    let why = "http://127.0.0.1:1 does not answer (connection refused): start the LangGraph server \
               there, or correct --upstream";
    for (method, params) in [
        ("session/new", new_session()),
        ("session/list", json!({})),
        ("session/load", open_params(SESSION, CWD)),
        ("session/delete", json!({"sessionId": SESSION})),
    ] {
        let refused = editor.refused(method, params).await;
        assert_eq!(refused, (-32603, why.to_owned()), "{method}");
    }
    editor.ended().await;
}

#[tokio::test]
async fn an_upstream_that_refuses_the_key_is_named_with_the_remedy() {
    let server = LangGraph::start().await;
    let url = server.url.trim_end_matches('/').to_owned();
    let is_remedy = |message: &str| {
        message.starts_with(&format!("{url} answered 40"))
            && message.contains(&format!("run `threadway acp --upstream {url} --login`"))
    };
    // Without a key at `initialize`, the server seems to require none.
    let mut late = Editor::initialized(&server.url, &Setup::default()).await;
    server.books().key = Some("k3y".to_owned());
    let (code, message) = late.refused("session/new", new_session()).await;
    assert!(code == -32603 && is_remedy(&message), "{code} {message}");
    let mut editor = Editor::initialized(&server.url, &Setup::default()).await;
    let (code, message) = editor.refused("session/new", new_session()).await;
    assert!(code == -32000 && is_remedy(&message), "{code} {message}");
    late.ended().await;
    editor.ended().await;
}

// === the agent ===

fn no_agent(server: &LangGraph) -> String {
    format!(
        "{} has no agent `nope`; its agents are `agent`, `other`: correct --agent \
         (THREADWAY_AGENT), or `acp.agent` in the config file",
        server.url.trim_end_matches('/')
    )
}

#[tokio::test]
async fn a_new_session_is_refused_without_its_agent() {
    let server = LangGraph::start().await;
    server.books().assistants.push(assistant("other"));
    let setup = Setup { agent: Some("nope".to_owned()), ..Setup::default() };
    let mut editor = Editor::initialized(&server.url, &setup).await;
    let refused = editor.refused("session/new", new_session()).await;
    assert_eq!(refused, (-32603, no_agent(&server)));
    assert!(server.books().threads.is_empty());
    // A session that has an agent of its own does not need the other one.
    let metadata = json!({"acp_session": true, "cwd": CWD, "acp_assistant": "other"});
    server.thread(SESSION, metadata, None);
    let loaded = editor.call("session/load", open_params(SESSION, CWD)).await;
    assert_eq!(loaded["configOptions"][0]["currentValue"], "other");
    editor.ended().await;
    // An agent may be named by its assistant's id, and is shown by the name in the list.
    let id = assistant("other")["assistant_id"].as_str().unwrap().to_owned();
    let setup = Setup { agent: Some(id), ..Setup::default() };
    let mut editor = Editor::initialized(&server.url, &setup).await;
    let opened = editor.call("session/new", new_session()).await;
    assert_eq!(opened["configOptions"][0]["currentValue"], "other");
    editor.ended().await;
}

#[tokio::test]
async fn the_start_is_refused_without_its_agent() {
    let server = LangGraph::start().await;
    server.books().assistants.push(assistant("other"));
    let output = threadway(&["acp", "--upstream", &server.url, "--agent", "nope"]).await;
    let told = format!("threadway: {}\n", no_agent(&server));
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(64), &*told));
    let output = threadway(&["acp", "--upstream", &server.url, "--agent", "other"]).await;
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    // Without an answer the start goes on: the server may be started later.
    let output = threadway(&["acp", "--upstream", "http://127.0.0.1:1", "--agent", "nope"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

// === ids and directories ===

#[tokio::test]
async fn a_session_id_that_is_no_uuid_is_not_sent_upstream() {
    let (server, mut editor) = open().await;
    server.thread(SESSION, json!({"acp_session": true, "cwd": CWD}), None);
    let paths = || server.asked("").len();
    let before = paths();
    let upper = "ABCDEFAB-1111-4111-8111-111111111111";
    for id in ["", ".", "..", "../assistants", "x", "11111111111141118111111111111111", upper] {
        let why = format!(
            "there is no session `{id}`; a session's id is a UUID in lower case, as \
             `session/list` has it"
        );
        for (method, params) in [
            ("session/load", open_params(id, CWD)),
            ("session/resume", open_params(id, CWD)),
            ("session/close", json!({"sessionId": id})),
            ("session/delete", json!({"sessionId": id})),
        ] {
            let refused = editor.refused(method, params).await;
            assert_eq!(refused, (-32002, why.clone()), "{method}");
        }
    }
    assert_eq!(paths(), before);
    editor.call("session/load", open_params(SESSION, CWD)).await;
    editor.ended().await;
}

#[tokio::test]
async fn a_directory_has_one_name() {
    let (mut server, mut editor) = open().await;
    for cwd in ["/ws", "/ws/", "//ws/.", "/./ws//"] {
        editor.prompted_session(&mut server, cwd).await;
    }
    // An older version saved the directory as the client wrote it.
    server.thread(SESSION, json!({"acp_session": true, "cwd": "/ws/", "title": "T"}), None);
    for cwd in ["/ws", "/ws/", "/ws/."] {
        let listed = editor.call("session/list", json!({"cwd": cwd})).await;
        assert_eq!(listed["sessions"].as_array().unwrap().len(), 4, "{cwd}");
        assert!(listed["sessions"].as_array().unwrap().iter().all(|one| one["cwd"] == "/ws"));
        for method in ["session/load", "session/resume"] {
            let id = listed["sessions"][0]["sessionId"].as_str().unwrap();
            editor.call(method, open_params(id, cwd)).await;
            editor.call(method, open_params(SESSION, cwd)).await;
        }
    }
    let (code, _) = editor.refused("session/load", open_params(SESSION, "/ws/..")).await;
    assert_eq!(code, -32602);
    editor.ended().await;
}

#[tokio::test]
async fn a_drive_is_followed_by_a_separator() {
    let (mut server, mut editor) = open().await;
    for cwd in ["C:foo", "C:", "1:\\foo", ":\\foo"] {
        let params = json!({"cwd": cwd, "mcpServers": []});
        let why = format!("cwd `{cwd}` is not an absolute path");
        assert_eq!(editor.refused("session/new", params).await, (-32602, why));
    }
    for cwd in ["C:\\foo", "C:\\foo\\", "C:\\.\\foo", "C:\\foo/"] {
        editor.prompted_session(&mut server, cwd).await;
    }
    assert_eq!(server.books().threads.len(), 4);
    let listed = editor.call("session/list", json!({"cwd": "C:\\foo"})).await;
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 4);
    editor.ended().await;
}

// === the command line ===

#[tokio::test]
async fn a_login_without_a_terminal_says_what_to_do() {
    let output = threadway(&["acp", "--upstream", "http://127.0.0.1:1", "--login"]).await;
    let told = "threadway: --login asks for the key in a terminal, and there is none: run it in a \
                terminal, or set THREADWAY_UPSTREAM_API_KEY\n";
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(64), told));
}

#[tokio::test]
async fn settings_without_an_upstream_say_what_is_missing() {
    for editor in ["zed", "jetbrains", "neovim", "acpx"] {
        let output = threadway(&["acp", "--print-config", editor]).await;
        let told = format!(
            "threadway: the printed settings name no LangGraph server: log in from the editor or \
             with `{} acp --login`, which ask for its URL, or print them again with --upstream \
             http://127.0.0.1:2024 (the server's URL)\n",
            env!("CARGO_BIN_EXE_threadway")
        );
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), &*told));
        assert!(!output.stdout.is_empty());
        let args = ["acp", "--print-config", editor, "--upstream", "http://127.0.0.1:2024"];
        assert_eq!(text(&threadway(&args).await.stderr), "");
    }
}
