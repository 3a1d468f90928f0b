//! The ACP connection in front of scripted upstreams. Clients send wrong requests, at the wrong
//! time or all at once; the tests check each response.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::capture::Capture;
use crate::support::clock::{HeldClock, within};
use crate::support::editor::{CWD, Editor, Frames, Setup, open, open_with, outline, said};
use crate::support::gateway::{part, token};
use crate::support::langgraph::{LangGraph, Run, assistant, soon, state};
use serde_json::{Value, json};
use threadway::credentials::Credentials;
use threadway::runs::{DEFAULT_LOG_BYTES, OwnerPolicy};
use threadway::sessions::{MAX_REQUESTS, MAX_WAITING_BYTES, Settings};
use threadway_translate::acp::Glob;
use threadway_translate::acp::choice::Mode;
use threadway_translate::acp::mcp::Secrets;
use threadway_translate::acp::permission::{Rule, Rules};

// === frames that cannot be parsed ===

#[tokio::test]
async fn a_line_that_is_no_message_is_refused_and_the_next_one_is_read() {
    let (server, mut editor) = open().await;
    let none = Value::Null;
    for (line, id, code, message) in [
        ("nonsense", &none, -32700, "the line is not JSON (byte 2)"),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,", &none, -32700, "the line is not JSON (byte 24)"),
        ("[]", &none, -32600, "batches are no part of ACP; send one message a line"),
        (
            r#"[{"jsonrpc":"2.0","id":1,"method":"session/list"}]"#,
            &none,
            -32600,
            "batches are no part of ACP; send one message a line",
        ),
        ("7", &none, -32600, "the message is no object"),
        ("null", &none, -32600, "the message is no object"),
        (
            r#"{"jsonrpc":"2.0","id":1.5,"method":"session/list"}"#,
            &none,
            -32600,
            "`id` is no whole number, string or null",
        ),
        (
            r#"{"jsonrpc":"2.0","id":{"a":1},"method":"session/list"}"#,
            &none,
            -32600,
            "`id` is no whole number, string or null",
        ),
        (
            r#"{"jsonrpc":"2.0","id":[],"method":"session/list"}"#,
            &none,
            -32600,
            "`id` is no whole number, string or null",
        ),
        (
            r#"{"jsonrpc":"2.0","id":true,"method":"session/list"}"#,
            &none,
            -32600,
            "`id` is no whole number, string or null",
        ),
        (r#"{"id":4,"method":"session/list"}"#, &json!(4), -32600, "`jsonrpc` is not \"2.0\""),
        (
            r#"{"jsonrpc":"1.0","id":4,"method":"session/list"}"#,
            &json!(4),
            -32600,
            "`jsonrpc` is not \"2.0\"",
        ),
        (r#"{"jsonrpc":"2.0","id":"x","method":5}"#, &json!("x"), -32600, "`method` is no string"),
        (r#"{"jsonrpc":"2.0","id":4}"#, &json!(4), -32600, "a message without method and result"),
        (r#"{"jsonrpc":"2.0"}"#, &none, -32600, "a message without `method` and `id`"),
        ("{}", &none, -32600, "`jsonrpc` is not \"2.0\""),
    ] {
        let refused = editor.refused_line(line).await;
        assert_eq!(refused, (id.clone(), code, message.to_owned()), "{line}");
        editor.is_alive().await;
    }
    // Bytes that are not UTF-8.
    editor.raw(b"\xff\xfe\n").await;
    assert_eq!(editor.next().await["error"]["code"], -32700);
    editor.raw(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}\n").await;
    assert_eq!(editor.next().await["error"]["code"], -32700);
    // A nesting that would exhaust the stack of a recursive parser.
    editor.raw(vec![b'['; 1_000_000]).await;
    editor.raw(b"\n").await;
    assert_eq!(editor.next().await["error"]["code"], -32700);
    editor.is_alive().await;
    assert!(!server.asked("POST /assistants").is_empty());
    editor.ended().await;
}

#[tokio::test]
async fn blank_lines_and_carriage_returns_are_nothing() {
    let (_server, mut editor) = open().await;
    editor.raw("\n\r\n  \n\t\r\n").await;
    editor.is_alive().await;
    let message = json!({"jsonrpc": "2.0", "id": "a", "method": "session/list", "params": {}});
    editor.raw(format!("  {message}\r\n")).await;
    let line = editor.line().await;
    assert_eq!(line, "{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{\"sessions\":[]}}\n");
    editor.ended().await;
}

#[tokio::test]
async fn a_line_without_its_end_is_none() {
    let (_server, mut editor) = open().await;
    editor.raw(r#"{"jsonrpc":"2.0","id":9,"method":"session/list","params":{}}"#).await;
    editor.hang_up().await;
    assert_eq!(editor.line().await, "");
    editor.ended().await;
}

#[tokio::test]
async fn a_line_that_is_too_long_is_passed_over() {
    let (_server, mut editor) = open().await;
    let piece = vec![b'x'; 1024 * 1024];
    editor.raw(b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"").await;
    for _ in 0..100 {
        editor.raw(&piece).await;
    }
    editor.raw(b"\"}\n").await;
    let frame = editor.next().await;
    let message = "the line is longer than 33554432 bytes and was ignored; send shorter messages";
    assert_eq!(frame["id"], Value::Null);
    assert_eq!(frame["error"], json!({"code": -32600, "message": message}));
    editor.is_alive().await;
    editor.ended().await;
}

#[tokio::test]
async fn a_long_line_that_is_allowed_is_read() {
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    let text = "long ".repeat(1_600_000);
    let prompt = editor.prompt(&session, &text).await;
    let run = server.run().await;
    assert_eq!(run.said()["content"].as_str().unwrap(), text);
    run.ends("success", None).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    editor.ended().await;
}

#[tokio::test]
async fn what_nobody_knows_is_refused_or_passed_over() {
    let (_server, mut editor) = open().await;
    for method in ["session/archive", "_threadway/x", "", "session/update", "fs/\u{e9}"] {
        let refused = editor.refused(method, json!({})).await;
        assert_eq!(refused, (-32601, format!("unknown method `{method}`")));
    }
    for method in ["session/fork", "_threadway/x", "initialized", "session/prompt", ""] {
        editor.raw(format!("{}\n", json!({"jsonrpc": "2.0", "method": method}))).await;
    }
    // Responses to requests that the agent never sent.
    for id in [json!(1), json!("x"), json!(null), json!(u64::MAX)] {
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": {}});
        if id.as_u64() == Some(u64::MAX) {
            let (_, code, _) = editor.refused_line(&answer.to_string()).await;
            assert_eq!(code, -32600);
        } else {
            editor.raw(format!("{answer}\n")).await;
        }
    }
    let answer = json!({"jsonrpc": "2.0", "id": 1, "error": "not even an object"});
    editor.raw(format!("{answer}\n")).await;
    for method in ["session/cancel", "$/cancel_request"] {
        for params in [json!({}), json!([]), json!({"sessionId": 5}), json!({"requestId": {}})] {
            let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
            editor.raw(format!("{message}\n")).await;
        }
    }
    editor.is_alive().await;
    editor.ended().await;
}

#[tokio::test]
async fn nothing_is_done_before_the_client_has_introduced_itself() {
    let server = LangGraph::start().await;
    let mut editor = Editor::start(&server.url, &Setup::default());
    for method in ["session/new", "session/list", "authenticate", "logout", "nonsense"] {
        let refused = editor.refused_line(&request_line(1, method, &json!({}))).await;
        assert_eq!(refused, (json!(1), -32600, "send `initialize` first".to_owned()));
    }
    editor.cancel("nobody").await;
    // A refused `initialize` does not count.
    let refused = editor.refused_line(&request_line(2, "initialize", &json!({}))).await;
    let why = "initialize: missing field `protocolVersion`";
    assert_eq!(refused, (json!(2), -32602, why.to_owned()));
    editor.call("initialize", json!({"protocolVersion": 1})).await;
    let again = editor.refused("initialize", json!({"protocolVersion": 1})).await;
    assert_eq!(again, (-32600, "the connection is initialized already".to_owned()));
    editor.is_alive().await;
    editor.ended().await;
}

#[tokio::test]
async fn every_version_is_answered_with_ours() {
    let server = LangGraph::start().await;
    for version in [json!(0), json!(1), json!(2), json!(65535)] {
        let mut editor = Editor::start(&server.url, &Setup::default());
        let told = editor.call("initialize", json!({"protocolVersion": version})).await;
        assert_eq!(told["protocolVersion"], 1, "{version}");
        assert_eq!(told["agentInfo"]["name"], "threadway");
        assert_eq!(told["agentCapabilities"]["loadSession"], true);
        assert_eq!(told["authMethods"], json!([]));
        editor.ended().await;
    }
    // An invalid version does not end the connection either.
    for version in [json!(65536), json!(-1), json!(1.5), json!(null), json!({})] {
        let mut editor = Editor::start(&server.url, &Setup::default());
        let params = json!({"protocolVersion": version});
        let (_, code, message) = editor.refused_line(&request_line(1, "initialize", &params)).await;
        assert_eq!(code, -32602, "{version}: {message}");
        editor.call("initialize", json!({"protocolVersion": 1})).await;
        editor.is_alive().await;
        editor.ended().await;
    }
}

#[tokio::test]
async fn a_session_that_is_not_here_is_told_so_by_every_method() {
    let (server, mut editor) = open().await;
    for id in ["nobody", "", "../../etc", "0f9cfe5e-7d44-4d4f-8aef-a4e7c1d4a2a1"] {
        let why = format!(
            "session `{id}` is not open on this connection; load or resume it, or make a new one"
        );
        for (method, params) in [
            ("session/prompt", json!({"prompt": [{"type": "text", "text": "hi"}]})),
            ("session/set_mode", json!({"modeId": "x"})),
            ("session/set_config_option", json!({"configId": "x", "value": "y"})),
        ] {
            let refused = editor.refused(method, of(id, params)).await;
            assert_eq!(refused, (-32002, why.clone()), "{method}");
        }
        if id.len() == 36 {
            let why = format!(
                "there is no session `{id}`: sessions exist from their first prompt until they are \
                 deleted; make a new one"
            );
            for method in ["session/load", "session/resume"] {
                let params = of(id, json!({"cwd": CWD, "mcpServers": []}));
                assert_eq!(editor.refused(method, params).await, (-32002, why.clone()), "{method}");
            }
            // Closing or deleting an unknown session succeeds.
            for method in ["session/close", "session/delete"] {
                assert_eq!(editor.call(method, of(id, json!({}))).await, json!({}));
            }
        }
        editor.cancel(id).await;
    }
    editor.is_alive().await;
    assert!(server.cancelled().is_empty());
    editor.ended().await;
}

#[tokio::test]
async fn what_has_the_wrong_form_is_refused_without_repeating_it() {
    const SECRET: &str = "s3cr3t";
    let (_server, mut editor) = open().await;
    let session = editor.session().await;
    for (method, params) in [
        ("session/new", json!({})),
        ("session/new", json!(null)),
        ("session/new", json!([SECRET])),
        ("session/new", json!(SECRET)),
        ("session/new", json!({"cwd": 7, "mcpServers": []})),
        ("session/new", json!({"cwd": {SECRET: 1}, "mcpServers": []})),
        ("session/load", json!({"sessionId": [SECRET], "cwd": CWD, "mcpServers": []})),
        ("session/load", json!({"sessionId": session, "mcpServers": []})),
        ("session/resume", json!({"sessionId": session, "cwd": [SECRET]})),
        ("session/prompt", of(&session, json!({"prompt": SECRET}))),
        ("session/prompt", of(&session, json!({"prompt": [SECRET]}))),
        ("session/prompt", of(&session, json!({"prompt": [{"type": SECRET}]}))),
        ("session/prompt", of(&session, json!({"prompt": [{"type": "text", "text": 815_4711}]}))),
        (
            "session/prompt",
            of(&session, json!({"prompt": [{"type": "text", "text": {SECRET: 1}}]})),
        ),
        ("session/prompt", of(&session, json!({"prompt": [{"type": "image", "data": SECRET}]}))),
        ("session/prompt", json!({"prompt": []})),
        ("session/set_mode", of(&session, json!({"modeId": {SECRET: SECRET}}))),
        ("session/set_mode", of(&session, json!({"modeId": 815_4711}))),
        ("session/set_config_option", of(&session, json!({"configId": "x"}))),
        (
            "session/set_config_option",
            of(&session, json!({"configId": "x", "type": SECRET, "value": [SECRET]})),
        ),
        ("session/close", json!({"sessionId": 815_4711})),
        ("session/close", json!({"sessionId": {"a": SECRET}})),
        ("session/delete", json!({"sessionId": [SECRET]})),
        ("session/list", json!({"cwd": {SECRET: 1}})),
        ("session/list", json!(SECRET)),
        ("authenticate", json!({"methodId": {SECRET: 1}})),
        ("session/new", json!({"cwd": CWD, "mcpServers": {SECRET: 1}})),
        ("session/new", json!({"cwd": CWD, "mcpServers": SECRET})),
    ] {
        let line = request_line(77, method, &params);
        editor.raw(format!("{line}\n")).await;
        let told = editor.next_unchecked().await;
        let (code, message) = (&told["error"]["code"], told["error"]["message"].as_str().unwrap());
        assert_eq!(*code, -32602, "{line}: {message}");
        assert!(message.starts_with(&format!("{method}: ")), "{line}: {message}");
        assert!(!told.to_string().contains(SECRET), "{line}: {message}");
        assert!(!told.to_string().contains("8154711"), "{line}: {message}");
    }
    // Nested more deeply than the stack of a recursive parser allows.
    let deep = format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"session/close","params":{{"sessionId":"x","_meta":{deep}}}}}"#
    );
    editor.raw(format!("{line}\n")).await;
    let told = editor.next_unchecked().await;
    assert_eq!(told["error"]["code"], -32602, "{}", told["error"]["message"]);
    editor.is_alive().await;
    editor.ended().await;
}

#[tokio::test]
async fn an_id_is_that_of_one_request_at_a_time() {
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    let params = of(&session, json!({"prompt": [{"type": "text", "text": "hi"}]}));
    for id in [json!(7), json!("7"), json!("\u{e9}\n"), json!(null), json!(i64::MIN)] {
        let line = request_line(id.clone(), "session/prompt", &params);
        editor.raw(format!("{line}\n")).await;
        let run = server.run().await;
        let again = request_line(id.clone(), "session/list", &json!({}));
        let mut frame = loop {
            editor.raw(format!("{again}\n")).await;
            let frame = editor.next_unchecked().await;
            if frame.get("method").is_none() {
                break frame;
            }
        };
        let message = format!("id {id} belongs to a request in progress; use another id");
        assert_eq!(frame["id"], id);
        assert_eq!(frame["error"].take(), json!({"code": -32600, "message": message}));
        run.ends("success", None).await;
        let frame = loop {
            let frame = editor.next_unchecked().await;
            if frame.get("result").is_some() {
                break frame;
            }
        };
        assert_eq!((&frame["id"], &frame["result"]), (&id, &json!({"stopReason": "end_turn"})));
    }
    editor.ended().await;
}

#[tokio::test]
async fn more_requests_than_may_be_under_way_are_refused() {
    let (server, mut editor) = open().await;
    server.hold("/threads/search");
    for _ in 0..MAX_REQUESTS {
        editor.request("session/list", json!({})).await;
    }
    let refused = editor.refused("session/list", json!({})).await;
    let message = format!("{MAX_REQUESTS} requests are in progress; wait for some to end");
    assert_eq!(refused, (-32600, message));
    editor.hang_up().await;
    editor.ended().await;
}

#[tokio::test]
async fn a_session_has_one_prompt_at_a_time() {
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    let first = editor.prompt(&session, "one").await;
    let run = server.run().await;
    let second = editor.prompt(&session, "two").await;
    let told = editor.until(second).await;
    let busy = format!(
        "session {session} is busy with a prompt; wait for its response, or send `session/cancel` \
         and then this request again"
    );
    assert_eq!(told.error(), (-32600, busy.clone()));
    // Nor can the session be loaded in the meantime.
    let load = of(&session, json!({"cwd": CWD, "mcpServers": []}));
    let reads = |server: &LangGraph| server.asked(&format!("GET /threads/{session}")).len();
    let before = reads(&server);
    for method in ["session/load", "session/resume"] {
        assert_eq!(editor.refused(method, load.clone()).await, (-32600, busy.clone()), "{method}");
    }
    // At once: the prompt could end while the thread is read, and the client would get its text twice.
    assert_eq!(reads(&server), before);
    run.ends("success", None).await;
    assert_eq!(editor.until(first).await.stop_reason(), "end_turn");
    assert_eq!(server.asked(&format!("POST /threads/{session}/runs/stream")).len(), 1);
    let third = editor.prompt(&session, "three").await;
    server.run().await.ends("success", None).await;
    assert_eq!(editor.until(third).await.stop_reason(), "end_turn");
    editor.ended().await;
}

#[tokio::test]
async fn a_directory_is_absolute_and_the_sessions_own() {
    let (server, mut editor) = open().await;
    for cwd in ["", "app", "./app", "../app", "~"] {
        let why = (-32602, format!("cwd `{cwd}` is not an absolute path"));
        let params = json!({"cwd": cwd, "mcpServers": []});
        assert_eq!(editor.refused("session/new", params.clone()).await, why);
        for method in ["session/load", "session/resume"] {
            assert_eq!(editor.refused(method, of(LOADED, params.clone())).await, why, "{method}");
        }
        assert_eq!(editor.refused("session/list", json!({"cwd": cwd})).await, why);
    }
    let session = editor.session().await;
    for method in ["session/load", "session/resume"] {
        let params = of(&session, json!({"cwd": "/other", "mcpServers": []}));
        let why =
            format!("session `{session}` has cwd {CWD}, not /other; open it with its own cwd");
        assert_eq!(editor.refused(method, params).await, (-32602, why), "{method}");
    }
    assert!(server.books().threads.is_empty());
    editor.is_alive().await;
    editor.ended().await;
}

#[tokio::test]
async fn a_cursor_is_one_of_ours() {
    let (_server, mut editor) = open().await;
    for cursor in ["", "x", "after:", "after:-1", "after:x", "after:99999999999999999999999"] {
        let refused = editor.refused("session/list", json!({"cursor": cursor})).await;
        let why = "`cursor` is not one of this gateway's; send the nextCursor of a list, or none";
        assert_eq!(refused, (-32602, why.to_owned()), "{cursor}");
    }
    let far = json!({"cursor": format!("t1~{}~", u32::MAX)});
    let far = editor.call("session/list", far).await;
    assert_eq!(far, json!({"sessions": []}));
    editor.is_alive().await;
    editor.ended().await;
}

#[tokio::test]
async fn what_cannot_be_chosen_is_refused_with_what_can_be() {
    let server = LangGraph::start().await;
    server.books().schemas = fields();
    let setup = Setup { settings: two_modes(), ..Setup::default() };
    let mut editor = Editor::initialized(&server.url, &setup).await;
    let session = editor.session().await;
    let mode = |mode: &str| of(&session, json!({"modeId": mode}));
    let modes = "there are `ask`, `auto`";
    let refused = editor.refused("session/set_mode", mode("x")).await;
    assert_eq!(refused, (-32602, format!("there is no mode `x`; {modes}")));
    for (option, value, why) in [
        ("mode", json!({"value": "x"}), format!("there is no mode `x`; {modes}")),
        ("mode", switch(true), "mode is no switch; send one of its values".to_owned()),
        ("assistant", json!({"value": "x"}), "there is no agent `x`; there are `agent`".to_owned()),
        ("x", json!({"value": "x"}), "there is no option `x`".to_owned()),
        ("config:x", json!({"value": "x"}), "there is no option `config:x`".to_owned()),
        (
            "config:model",
            json!({"value": "x"}),
            "`model` takes no such value; send one of its options".to_owned(),
        ),
        (
            "config:model",
            switch(true),
            "`model` takes no such value; send one of its options".to_owned(),
        ),
        (
            "config:flag",
            json!({"value": "perhaps"}),
            "`flag` takes no such value; send one of its options".to_owned(),
        ),
    ] {
        let mut params = of(&session, value);
        params["configId"] = json!(option);
        let refused = editor.refused("session/set_config_option", params).await;
        assert_eq!(refused, (-32602, why), "{option}");
    }
    assert!(server.asked("PATCH").is_empty());
    editor.is_alive().await;
    editor.ended().await;
}

#[tokio::test]
async fn a_prompt_holds_what_was_declared_and_something() {
    let (server, mut editor) = open().await;
    let session = editor.session().await;
    let empty = "`prompt` is empty; send at least one content block";
    let image = json!({"type": "image", "data": "AAAA", "mimeType": "image/png"});
    let audio = json!({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"});
    let text = |text: &str| json!({"type": "text", "text": text});
    for (prompt, why) in [
        (json!([]), empty.to_owned()),
        (json!([text("")]), empty.to_owned()),
        (json!([text(" \n "), text("")]), empty.to_owned()),
        (json!([text("a"), image]), takes_no(1, "images", "image")),
        (json!([audio]), takes_no(0, "audio", "audio")),
    ] {
        let refused =
            editor.refused("session/prompt", of(&session, json!({"prompt": prompt}))).await;
        assert_eq!(refused, (-32602, why));
    }
    editor.is_alive().await;
    assert!(server.asked("POST /threads/").is_empty(), "nothing was run");
    editor.ended().await;
}

// === a client that does not read ===

#[tokio::test]
async fn a_client_that_reads_late_gets_all_of_it_and_is_not_hoarded_for() {
    const UPDATES: usize = 200_000;
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "hi").await;
    let mut run = server.run().await;
    run.sends("values", &json!({"messages": [run.said()]})).await;
    let mut expected = String::new();
    let mut most = 0;
    for batch in 0..UPDATES / 500 {
        let texts: Vec<_> = (0..500).map(|at| format!("{batch}.{at} ")).collect();
        let bytes: String = texts.iter().map(|text| token("m", text)).collect();
        run.exchange.send(bytes).await;
        expected.extend(texts);
        tokio::task::yield_now().await;
        most = most.max(editor.waiting());
    }
    run.ends("success", None).await;
    // The limit may be exceeded by one batch: the events that the log returns at once.
    assert!((1..=MAX_WAITING_BYTES + DEFAULT_LOG_BYTES).contains(&most), "{most}");
    let told = editor.until(prompt).await;
    assert_eq!(told.stop_reason(), "end_turn");
    let said: String = told.said().into_iter().map(|(_, text)| text).collect();
    assert!(said == expected, "{} of {} bytes were sent", said.len(), expected.len());
    editor.is_alive().await;
    editor.ended().await;
}

// === the process ===

/// The peak memory of a process, in bytes.
fn peak(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() * 1024
}

/// Sends a message to the process, and reads lines until `is_last`.
fn converse(
    child: &mut Child,
    frames: &mut Frames,
    stdout: &mut impl BufRead,
    message: &Value,
    is_last: impl Fn(&Value) -> bool,
) -> Vec<Value> {
    frames.sends(message);
    writeln!(child.stdin.as_mut().unwrap(), "{message}").unwrap();
    listen(frames, stdout, is_last)
}

fn listen(
    frames: &mut Frames,
    stdout: &mut impl BufRead,
    is_last: impl Fn(&Value) -> bool,
) -> Vec<Value> {
    let mut came = Vec::new();
    loop {
        let mut line = String::new();
        assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "the process has ended");
        let frame = frames.comes(&line);
        let is_over = is_last(&frame);
        came.push(frame);
        if is_over {
            return came;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_process_stays_small_and_ends_with_its_client() {
    const MIB: usize = 1024 * 1024;
    let mut server = LangGraph::start().await;
    let mut child = Command::new(env!("CARGO_BIN_EXE_threadway"))
        .args(["acp", "--upstream", &server.url])
        .env("XDG_CONFIG_HOME", "/nowhere")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let process = child.id();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut frames = Frames::default();
    let request = |id: u64, method: &str, params: Value| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let session = tokio::task::block_in_place(|| {
        let introduction = request(1, "initialize", json!({"protocolVersion": 1}));
        converse(&mut child, &mut frames, &mut stdout, &introduction, |frame| frame["id"] == 1);
        let new = request(2, "session/new", json!({"cwd": CWD, "mcpServers": []}));
        let made = converse(&mut child, &mut frames, &mut stdout, &new, |frame| frame["id"] == 2);
        made[0]["result"]["sessionId"].as_str().unwrap().to_owned()
    });
    // 200,000 tokens that the client does not read.
    let prompt = request(
        3,
        "session/prompt",
        of(&session, json!({"prompt": [{"type": "text", "text": "hi"}]})),
    );
    frames.sends(&prompt);
    writeln!(child.stdin.as_mut().unwrap(), "{prompt}").unwrap();
    let mut run = server.run().await;
    run.sends("values", &json!({"messages": [run.said()]})).await;
    let before = peak(process);
    let mut expected = String::new();
    for batch in 0..400 {
        let texts: Vec<_> = (0..500).map(|at| format!("{batch}.{at} ")).collect();
        let bytes: String = texts.iter().map(|text| token("m", text)).collect();
        run.exchange.send(bytes).await;
        expected.extend(texts);
    }
    run.says("n", "last").await;
    let told = tokio::task::block_in_place(|| {
        listen(&mut frames, &mut stdout, |frame| frame["params"]["update"]["messageId"] == "n")
    });
    let updates: Vec<_> = told.iter().map(|frame| frame["params"]["update"].clone()).collect();
    let said: String = said(&updates).into_iter().map(|(_, text)| text).collect();
    assert!(said == expected + "last", "{} bytes were sent", said.len());
    let grown = peak(process).saturating_sub(before);
    assert!(grown < 32 * MIB, "{grown} bytes for tokens");
    // A line of 100 MB, in the middle of the prompt.
    let before = peak(process);
    tokio::task::block_in_place(|| {
        let stdin = child.stdin.as_mut().unwrap();
        let piece = vec![b'x'; MIB];
        for _ in 0..100 {
            stdin.write_all(&piece).unwrap();
        }
        stdin.write_all(b"\n").unwrap();
        let refused = listen(&mut frames, &mut stdout, |frame| frame["id"].is_null());
        assert_eq!(refused[0]["error"]["code"], -32600);
    });
    let grown = peak(process) - before;
    assert!(grown < 48 * MIB, "{grown} bytes for a line");
    // The client disconnects in the middle of the prompt.
    drop(child.stdin.take());
    let ended = tokio::task::spawn_blocking(move || {
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).unwrap();
        (rest, child.wait_with_output().unwrap())
    });
    let (rest, output) = soon("the exit", ended).await.unwrap();
    for line in rest.split_inclusive('\n') {
        frames.comes(line);
    }
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !log.contains("panicked"), "{log}");
    assert!(server.cancelled().is_empty());
}

// === the connection ends ===

#[tokio::test]
async fn a_client_that_goes_leaves_its_run() {
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    editor.prompt(&session, "hi").await;
    let mut run = server.run().await;
    run.says("m", "one").await;
    editor.until_said("one").await;
    editor.ended().await;
    run.exchange.closed().await;
    assert!(server.cancelled().is_empty());
}

#[tokio::test]
async fn a_run_is_stopped_behind_its_client_where_the_operator_wants_that() {
    let setup = Setup { owners: OwnerPolicy::Cancel { grace: Duration::ZERO }, ..Setup::default() };
    let (mut server, mut editor) = open_with(setup).await;
    let (one, two) = (editor.session().await, editor.session().await);
    for session in [&one, &two] {
        editor.prompt(session, "hi").await;
    }
    let (mut first, second) = (server.run().await, server.run().await);
    first.says("m", "one").await;
    editor.until_said("one").await;
    editor.ended().await;
    let mut stopped = server.cancelled();
    stopped.sort();
    assert_eq!(stopped, [first.id, second.id]);
}

#[tokio::test]
async fn a_run_that_is_being_started_is_stopped_behind_its_client_too() {
    let setup = Setup { owners: OwnerPolicy::Cancel { grace: Duration::ZERO }, ..Setup::default() };
    let (mut server, mut editor) = open_with(setup).await;
    let session = editor.session().await;
    editor.prompt(&session, "hi").await;
    let start = server.held("/runs/stream").await;
    editor.hang_up().await;
    assert!(editor.rest().await.contains("\"stopReason\":\"cancelled\""));
    let run = server.begin(start).await;
    editor.ended().await;
    assert_eq!(server.cancelled(), [&*run.id]);
}

#[tokio::test]
async fn a_client_that_goes_is_asked_nothing_more() {
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    editor.prompt(&session, "hi").await;
    let run = server.run().await;
    run.asks(&json!([]), &json!([approval("q", &[("write", json!({}))])])).await;
    editor.until_asked().await;
    editor.ended().await;
    assert!(server.cancelled().is_empty());
    assert_eq!(server.asked(&format!("POST /threads/{session}/runs/stream")).len(), 1);
}

#[tokio::test]
async fn what_was_asked_before_the_end_is_answered() {
    let (_server, mut editor) = open().await;
    let list = editor.request("session/list", json!({})).await;
    editor.hang_up().await;
    assert_eq!(editor.until(list).await.result(), json!({"sessions": []}));
    assert_eq!(editor.line().await, "");
    editor.ended().await;
}

// === helpers ===

fn request_line(id: impl Into<Value>, method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params}).to_string()
}

/// Params with the id of a session.
fn of(session: &str, mut params: Value) -> Value {
    params["sessionId"] = json!(session);
    params
}

fn switch(value: bool) -> Value {
    json!({"type": "boolean", "value": value})
}

fn takes_no(at: usize, kind: &str, word: &str) -> String {
    format!(
        "prompt[{at}]: this agent takes no {kind}, as its promptCapabilities say; if the graph's \
         model takes them, add \"{word}\" to `prompt` under `[acp]` in the config file of threadway"
    )
}

/// The schemas of a graph with two configurable fields: a model and a switch.
fn fields() -> Value {
    json!({"config_schema": {"properties": {
        "model": {"default": "fast", "enum": ["fast", "deep"], "title": "Model", "type": "string"},
        "flag": {"default": true, "title": "Flag", "type": "boolean"},
    }}})
}

/// Two modes: in one, writing needs approval, in the other it does not.
fn two_modes() -> Settings {
    let mode = |id: &str, rule| Mode {
        id: id.to_owned(),
        name: id.to_owned(),
        description: None,
        assistant: None,
        configurable: None,
        permissions: Rules(vec![("write*".parse().unwrap(), rule)]),
    };
    Settings {
        modes: vec![mode("ask", Rule::Ask), mode("auto", Rule::Allow)],
        ..Settings::default()
    }
}

/// The middleware's interrupt about these calls, each a name and its arguments.
fn approval(id: &str, calls: &[(&str, Value)]) -> Value {
    let action = |(name, args): &(&str, Value)| json!({"name": name, "args": args});
    let review = |(name, _): &(&str, Value)| json!({"action_name": name, "allowed_decisions": ["approve", "edit", "reject"]});
    json!({"id": id, "value": {
        "action_requests": calls.iter().map(action).collect::<Vec<_>>(),
        "review_configs": calls.iter().map(review).collect::<Vec<_>>(),
    }})
}

// === a turn ===

#[tokio::test]
async fn all_of_a_turn_is_told_before_its_response() {
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "hi").await;
    let mut run = server.run().await;
    assert_eq!(run.said()["content"], "hi");
    let own = run.said();
    run.says("m", "one ").await;
    run.says("m", "two").await;
    run.calls("m", "c", "look", &json!({"at": "it"})).await;
    run.says("n", "three").await;
    let messages = json!([
        own,
        {"type": "ai", "id": "m", "content": "one two", "tool_calls": [call("c", "look", &json!({"at": "it"}))]},
        {"type": "tool", "id": "t", "tool_call_id": "c", "content": "seen", "status": "success"},
        {"type": "ai", "id": "n", "content": "three and more"},
        {"type": "ai", "id": "o", "content": "four"},
    ]);
    run.ends_with(&messages).await;
    let told = editor.until(prompt).await;
    assert_eq!(told.stop_reason(), "end_turn");
    assert_eq!(
        told.said(),
        [("m", "one "), ("m", "two"), ("n", "three"), ("n", " and more"), ("o", "four")]
            .map(|(id, text)| (id.to_owned(), text.to_owned()))
    );
    let outline = outline(&told.of(&session));
    assert_eq!(
        outline.iter().filter(|line| line.contains(" c ")).collect::<Vec<_>>(),
        ["tool_call c -", "tool_call_update c -", "tool_call_update c completed",]
    );
    assert_eq!(outline[0], "session_info_update");
    editor.is_alive().await;
    editor.ended().await;
}

#[tokio::test]
async fn requests_that_are_sent_at_once_are_done_in_order() {
    let server = LangGraph::start().await;
    let mut editor = Editor::start(&server.url, &Setup::default());
    let initialize = editor.request("initialize", json!({"protocolVersion": 1})).await;
    let new = editor.request("session/new", json!({"cwd": CWD, "mcpServers": []})).await;
    let frames = [editor.next().await, editor.next().await];
    for id in [initialize, new] {
        let frame = frames.iter().find(|frame| frame["id"] == id).unwrap();
        assert!(frame.get("result").is_some(), "{frame}");
    }
    editor.ended().await;
}

#[tokio::test]
async fn a_prompt_that_is_sent_behind_a_choice_runs_with_it() {
    let mut server = LangGraph::start().await;
    server.books().schemas = fields();
    let setup = Setup { settings: two_modes(), ..Setup::default() };
    let mut editor = Editor::initialized(&server.url, &setup).await;
    let session = editor.prompted_session(&mut server, CWD).await;
    // Storing the choice takes a while.
    server.hold("PATCH");
    let chosen = json!({"configId": "config:model", "value": "deep"});
    let choice = editor.request("session/set_config_option", of(&session, chosen)).await;
    let prompt = editor.prompt(&session, "hi").await;
    let patch = server.held("PATCH").await;
    let stored = "acp_config/agent/model";
    server.books().threads.get_mut(&session).unwrap().metadata[stored] = json!("deep");
    patch.json(200, "{}").await;
    let frame = editor.next().await;
    assert_eq!(frame["id"], choice);
    let options = frame["result"]["configOptions"].as_array().unwrap();
    let model = options.iter().find(|option| option["id"] == "config:model").unwrap();
    assert_eq!(model["currentValue"], "deep");
    let run = server.run().await;
    assert_eq!(run.body["config"], json!({"configurable": {"model": "deep"}}));
    run.ends("success", None).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    // The choice is stored where every process can read it.
    let kept = server.asked("PATCH").pop().unwrap();
    assert_eq!(kept["metadata"], json!({"acp_config/agent/model": "deep"}));
    editor.ended().await;
}

/// The current value of an option.
fn current(options: &Value, id: &str) -> Value {
    let options = options["configOptions"].as_array().unwrap();
    options.iter().find(|option| option["id"] == id).unwrap()["currentValue"].clone()
}

#[tokio::test]
async fn one_agents_settings_do_not_go_to_another() {
    let mut server = LangGraph::start().await;
    let model = |values: [&str; 2]| {
        json!({"config_schema": {"properties": {
            "model": {"default": values[0], "enum": values, "title": "Model", "type": "string"}}}})
    };
    server.books().assistants = vec![assistant("a"), assistant("b")];
    server.books().schemas = json!({"a": model(["fast", "smart"]), "b": model(["gpt", "claude"])});
    let mut editor = Editor::initialized(&server.url, &Setup::default()).await;
    let session = editor.session().await;
    let mut settings = json!({});
    for (option, value, shown, goes_up) in [
        ("config:model", "smart", "smart", json!({"configurable": {"model": "smart"}})),
        ("assistant", "b", "gpt", json!(null)),
        ("config:model", "claude", "claude", json!({"configurable": {"model": "claude"}})),
        ("assistant", "a", "smart", json!({"configurable": {"model": "smart"}})),
    ] {
        let choice = of(&session, json!({"configId": option, "value": value}));
        let options = editor.call("session/set_config_option", choice).await;
        assert_eq!(current(&options, "config:model"), shown, "{option} {value}");
        let prompt = editor.prompt(&session, "hi").await;
        let run = server.run().await;
        assert_eq!(run.body["config"]["configurable"], goes_up["configurable"], "{option} {value}");
        run.ends("success", None).await;
        assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
        settings = server.books().threads[&session].metadata.clone();
    }
    editor.ended().await;
    assert_eq!(settings["acp_config/a/model"], "smart");
    assert_eq!(settings["acp_config/b/model"], "claude");
    // Another process reads the choices.
    let mut editor = Editor::initialized(&server.url, &Setup::default()).await;
    let opened = editor.call("session/resume", open_params(&session)).await;
    assert_eq!(current(&opened, "config:model"), "smart");
    editor.ended().await;
}

#[tokio::test]
async fn a_mode_that_is_left_gives_back_the_agent_that_was_chosen() {
    let mut server = LangGraph::start().await;
    server.books().assistants = ["a", "b", "planner"].map(assistant).to_vec();
    let mut settings = two_modes();
    settings.modes[1].assistant = Some("planner".to_owned());
    let setup = Setup { settings, ..Setup::default() };
    let mut editor = Editor::initialized(&server.url, &setup).await;
    let session = editor.session().await;
    let choice = of(&session, json!({"configId": "assistant", "value": "b"}));
    editor.call("session/set_config_option", choice).await;
    for (mode, agent) in [("auto", "planner"), ("ask", "b"), ("auto", "planner")] {
        editor.call("session/set_mode", of(&session, json!({"modeId": mode}))).await;
        let prompt = editor.prompt(&session, "hi").await;
        let run = server.run().await;
        assert_eq!(run.body["assistant_id"], agent, "{mode}");
        run.ends("success", None).await;
        assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    }
    editor.ended().await;
    // Another process sets another mode.
    let mut editor = Editor::initialized(&server.url, &setup).await;
    editor.call("session/resume", open_params(&session)).await;
    let left = of(&session, json!({"configId": "mode", "value": "ask"}));
    let options = editor.call("session/set_config_option", left).await;
    assert_eq!(current(&options, "assistant"), "b");
    editor.ended().await;
}

#[tokio::test]
async fn two_sessions_at_once_do_not_mix() {
    let (mut server, mut editor) = open().await;
    let (one, two) = (editor.session().await, editor.session().await);
    let first = editor.prompt(&one, "hi").await;
    let mut run = server.run().await;
    let second = editor.prompt(&two, "ho").await;
    let mut other = server.run().await;
    assert_eq!((&run.thread, &other.thread), (&one, &two));
    for at in 0..50 {
        // Both runs use the same message id, in two conversations.
        run.says("m", &format!("a{at} ")).await;
        other.says("m", &format!("b{at} ")).await;
    }
    other.ends("success", None).await;
    let told = editor.until(second).await;
    run.ends("success", None).await;
    let rest = editor.until(first).await;
    let text = |session: &str| {
        let updates = [told.of(session), rest.of(session)].concat();
        said(&updates).into_iter().map(|(_, text)| text).collect::<String>()
    };
    for (session, letter) in [(&one, 'a'), (&two, 'b')] {
        let texts: Vec<_> = (0..50).map(|at| format!("{letter}{at} ")).collect();
        assert_eq!(text(session), texts.concat());
    }
    editor.ended().await;
}

#[tokio::test]
async fn a_request_that_is_taken_back_is_answered_so() {
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "hi").await;
    let mut run = server.run().await;
    run.says("m", "one").await;
    editor.until_said("one").await;
    editor.notify("$/cancel_request", json!({"requestId": prompt})).await;
    server.until("the cancel", |server| server.cancelled() == [&*run.id]).await;
    run.ends("interrupted", None).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "cancelled");
    // Another request.
    server.hold("/threads/search");
    let list = editor.request("session/list", json!({})).await;
    let held = server.held("/threads/search").await;
    editor.notify("$/cancel_request", json!({"requestId": list})).await;
    let why = "the request was cancelled".to_owned();
    assert_eq!(editor.until(list).await.error(), (-32800, why));
    held.closed().await;
    // Ids of requests that have ended, or never existed.
    for id in [json!(list), json!(prompt), json!("x"), json!(null)] {
        editor.notify("$/cancel_request", json!({"requestId": id})).await;
    }
    editor.is_alive().await;
    editor.ended().await;
}

#[tokio::test]
async fn a_run_that_fails_says_why() {
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "hi").await;
    let mut run = server.run().await;
    run.calls("m", "c", "look", &json!({})).await;
    run.sends("error", &json!({"error": "ValueError", "message": "no such thing"})).await;
    run.ends("error", None).await;
    let told = editor.until(prompt).await;
    let error = json!({"code": -32603, "message": "the run failed: ValueError: no such thing",
        "data": {"details": "no such thing"}});
    assert_eq!(told.response["error"], error);
    assert_eq!(outline(&told.of(&session)).last().unwrap(), "tool_call_update c failed");
    // The upstream refuses the run.
    server.hold("/runs/stream");
    let prompt = editor.prompt(&session, "hi").await;
    server.held("/runs/stream").await.json(500, r#"{"detail":"out of order"}"#).await;
    let (code, message) = editor.until(prompt).await.error();
    assert_eq!((code, message.contains("out of order")), (-32603, true), "{message}");
    // The upstream has had too many requests, and says when it accepts more.
    let prompt = editor.prompt(&session, "hi").await;
    server.held("/runs/stream").await.too_many("retry-after: 30\r\n").await;
    let (code, message) = editor.until(prompt).await.error();
    assert_eq!(
        (code, message.ends_with("slow down; try again in 30 s")),
        (-32603, true),
        "{message}"
    );
    server.let_go_of("/runs/stream");
    // The stream breaks off. The gateway joins it again, and the run has failed meanwhile.
    let prompt = editor.prompt(&session, "hi").await;
    let mut run = server.run().await;
    run.says("n", "one").await;
    editor.until_said("one").await;
    run.exchange.cut();
    server.joined().await.ends("error", None).await;
    assert_eq!(editor.until(prompt).await.error().0, -32603);
    editor.is_alive().await;
    editor.ended().await;
}

// === cancel ===

#[tokio::test]
async fn a_cancel_in_mid_stream_stops_this_run_and_no_other() {
    let (mut server, mut editor) = open().await;
    let (one, two) = (editor.session().await, editor.session().await);
    let first = editor.prompt(&one, "hi").await;
    let mut run = server.run().await;
    let second = editor.prompt(&two, "ho").await;
    let mut other = server.run().await;
    run.says("m", "one").await;
    run.calls("m", "c", "look", &json!({})).await;
    editor.until_said("one").await;
    editor.cancel(&one).await;
    server.until("the cancel", |server| !server.cancelled().is_empty()).await;
    let id = run.id.clone();
    run.says("n", "last words").await;
    run.ends("interrupted", None).await;
    let told = editor.until(first).await;
    assert_eq!(told.stop_reason(), "cancelled");
    let updates = told.of(&one);
    assert!(outline(&updates).contains(&"agent_message_chunk n last words".to_owned()));
    assert_eq!(outline(&updates).last().unwrap(), "tool_call_update c failed");
    // The other session's run continues.
    other.says("m", "still here").await;
    editor.until_said("still here").await;
    other.ends("success", None).await;
    assert_eq!(editor.until(second).await.stop_reason(), "end_turn");
    assert_eq!(server.cancelled(), [id]);
    // The session can be prompted again.
    let third = editor.prompt(&one, "again").await;
    let mut run = server.run().await;
    run.says("p", "yes").await;
    run.ends("success", None).await;
    let told = editor.until(third).await;
    assert_eq!(told.said(), [("p".to_owned(), "yes".to_owned())]);
    assert_eq!(told.stop_reason(), "end_turn");
    editor.ended().await;
}

#[tokio::test]
async fn a_cancel_is_answered_within_a_second_whatever_the_upstream_does() {
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "hi").await;
    let mut run = server.run().await;
    run.calls("m", "c", "look", &json!({})).await;
    run.says("m", "one").await;
    editor.until_said("one").await;
    server.hold("/cancel");
    let clock = HeldClock::pause();
    editor.cancel(&session).await;
    let told = within(&clock, SECOND, editor.until(prompt)).await;
    assert_eq!(told.stop_reason(), "cancelled");
    assert_eq!(outline(&told.of(&session)), ["tool_call_update c failed"]);
    editor.is_alive().await;
    server.held("/cancel").await.json(202, "").await;
    editor.ended().await;
}

#[tokio::test]
async fn a_run_that_starts_after_its_cancel_is_stopped_then() {
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "hi").await;
    let start = server.held("/runs/stream").await;
    let clock = HeldClock::pause();
    editor.cancel(&session).await;
    let told = within(&clock, SECOND, editor.until(prompt)).await;
    assert_eq!(told.stop_reason(), "cancelled");
    assert!(server.cancelled().is_empty());
    let run = server.begin(start).await;
    server.until("the cancel", |server| server.cancelled() == [&*run.id]).await;
    editor.ended().await;
}

#[tokio::test]
async fn a_cancel_reaches_whatever_a_prompt_waits_for() {
    let mut settled = 0;
    for held in ["POST /threads", "GET /threads/", "/state", "/runs"] {
        let (mut server, mut editor) = open().await;
        let session = match held {
            "POST /threads" => editor.session().await,
            _ => editor.prompted_session(&mut server, CWD).await,
        };
        server.hold(held);
        let prompt = editor.prompt(&session, "hi").await;
        let exchange = server.held(held).await;
        let clock = HeldClock::pause();
        editor.cancel(&session).await;
        let told = within(&clock, SECOND, editor.until(prompt)).await;
        assert_eq!(told.stop_reason(), "cancelled", "{held}");
        drop(clock);
        tokio::time::resume();
        server.let_go_of(held);
        drop(exchange);
        assert!(server.asked(&format!("POST /threads/{session}/runs")).len() <= 2, "{held}");
        settled += 1;
        server.gone().await;
        editor.hang_up().await;
        editor.rest().await;
    }
    assert_eq!(settled, 4);
}

#[tokio::test]
async fn what_was_not_kept_when_a_prompt_was_cancelled_is_kept_with_the_next() {
    let (mut server, mut editor) = open().await;
    server.thread(LOADED, json!({}), None);
    editor.call("session/resume", open_params(LOADED)).await;
    let new = editor.session().await;
    for (session, held) in [(&*new, "POST /threads"), (LOADED, "PATCH")] {
        server.hold(held);
        let prompt = editor.prompt(session, "first words").await;
        let exchange = server.held(held).await;
        editor.cancel(session).await;
        assert_eq!(editor.until(prompt).await.stop_reason(), "cancelled");
        exchange.closed().await;
        server.let_go_of(held);
        let prompt = editor.prompt(session, "second words").await;
        server.run().await.ends("success", None).await;
        assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
        assert_eq!(server.books().threads[session].metadata["title"], "first words");
    }
    editor.ended().await;
}

#[tokio::test]
async fn a_cancel_takes_back_what_was_asked() {
    let (mut server, mut editor) = open().await;
    let (session, other) = (editor.session().await, editor.session().await);
    let (first, request) = asked_to_write(&mut server, &mut editor, &session, "one").await;
    let (second, remains) = asked_to_write(&mut server, &mut editor, &other, "two").await;
    let clock = HeldClock::pause();
    editor.cancel(&session).await;
    let told = within(&clock, SECOND, editor.until(first)).await;
    assert_eq!(told.stop_reason(), "cancelled");
    let [taken_back] = &*told.requests else { panic!("{:?}", told.requests) };
    assert_eq!(taken_back["method"], "$/cancel_request");
    assert_eq!(taken_back["params"], json!({"requestId": request["id"]}));
    assert_eq!(outline(&told.of(&session)), ["tool_call_update one failed"]);
    drop(clock);
    tokio::time::resume();
    // The protocol requires this response of the client; the agent no longer waits for it.
    editor.reply(&request, json!({"outcome": {"outcome": "cancelled"}})).await;
    // The other request is still open.
    editor.reply(&remains, selected("allow")).await;
    let run = server.run().await;
    assert_eq!(run.thread, other);
    run.ends("success", None).await;
    assert_eq!(editor.until(second).await.stop_reason(), "end_turn");
    editor.ended().await;
}

#[tokio::test]
async fn a_person_who_closes_the_question_cancels_the_turn() {
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    let (prompt, request) = asked_to_write(&mut server, &mut editor, &session, "one").await;
    editor.reply(&request, json!({"outcome": {"outcome": "cancelled"}})).await;
    let told = editor.until(prompt).await;
    assert_eq!(told.stop_reason(), "cancelled");
    assert!(told.requests.is_empty());
    assert_eq!(outline(&told.of(&session)), ["tool_call_update one failed"]);
    editor.ended().await;
}

#[tokio::test]
async fn a_cancel_of_nothing_does_nothing() {
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    editor.cancel(&session).await;
    editor.cancel(&session).await;
    let prompt = editor.prompt(&session, "hi").await;
    let mut run = server.run().await;
    run.says("m", "one").await;
    run.ends("success", None).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    editor.cancel(&session).await;
    editor.is_alive().await;
    assert!(server.cancelled().is_empty());
    editor.ended().await;
}

/// Sends a prompt whose run raises an interrupt about writing. Returns the id of the prompt, and
/// the agent's permission request.
async fn asked_to_write(
    server: &mut LangGraph,
    editor: &mut Editor,
    session: &str,
    call_id: &str,
) -> (u64, Value) {
    let prompt = editor.prompt(session, "write it").await;
    let request = asks_to_write(server, editor, call_id).await;
    (prompt, request)
}

/// Plays a run that raises an interrupt about writing. Returns the agent's permission request.
async fn asks_to_write(server: &mut LangGraph, editor: &mut Editor, call_id: &str) -> Value {
    let mut run = server.run().await;
    let args = json!({"path": "/srv/app/a.txt", "text": "a"});
    run.calls("m", call_id, "write", &args).await;
    let messages = json!([
        {"type": "human", "id": "h", "content": "write it"},
        {"type": "ai", "id": "m", "content": "", "tool_calls": [call(call_id, "write", &args)]},
    ]);
    let question = approval(&format!("q-{call_id}"), &[("write", args)]);
    run.asks(&messages, &json!([question])).await;
    editor.until_asked().await.1
}

/// Calls a tool in the message of this id, and ends with the question about that.
async fn asks_about(mut run: Run, [message_id, id]: [&str; 2], tool: &str, args: &Value) {
    run.calls(message_id, id, tool, args).await;
    let message = json!({"type": "ai", "id": message_id, "content": "",
        "tool_calls": [call(id, tool, args)]});
    let question = approval(&format!("q-{id}"), &[(tool, args.clone())]);
    run.asks(&json!([message]), &json!([question])).await;
}

fn call(id: &str, name: &str, args: &Value) -> Value {
    json!({"id": id, "name": name, "args": args, "type": "tool_call"})
}

fn selected(option: &str) -> Value {
    json!({"outcome": {"outcome": "selected", "optionId": option}})
}

/// How long the response to a cancel may take.
const SECOND: Duration = Duration::from_secs(1);

// === permissions ===

/// The three wire forms of an interrupt, each with a recorded run.
fn wire_forms() -> [(&'static str, Vec<u8>); 3] {
    [
        ("action_requests", Capture::named("py-0.16.7/hitl-combo-subgraphs").bytes),
        ("actionRequests", Capture::named("js-1.5.1/hitl-gateway").bytes),
        ("tool_approval", include_bytes!("../support/per_call.sse").to_vec()),
    ]
}

/// The decisions with which a run resumes, in any form.
fn decisions(body: &Value) -> Vec<Value> {
    let resume = body["command"]["resume"].as_object().unwrap();
    let of = |answer: &Value| match answer["decisions"].as_array() {
        Some(decisions) => decisions.clone(),
        None => vec![answer.clone()],
    };
    resume.values().flat_map(of).collect()
}

/// The agent's two permission requests of a recorded run, by tool.
async fn both_questions(editor: &mut Editor) -> (Value, Value, Vec<Value>) {
    let (mut updates, first) = editor.until_asked().await;
    let (more, second) = editor.until_asked().await;
    updates.extend(more);
    let is_email = |request: &Value| request["params"]["toolCall"]["rawInput"]["to"].is_string();
    let (email, delete) = if is_email(&first) { (first, second) } else { (second, first) };
    assert_eq!(delete["params"]["toolCall"]["rawInput"], json!({"path": "/tmp/x"}));
    (email, delete, updates)
}

fn options(request: &Value) -> Vec<&str> {
    let options = request["params"]["options"].as_array().unwrap();
    options.iter().map(|option| option["optionId"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn each_wire_form_is_asked_and_answered_in_its_own() {
    for (form, bytes) in wire_forms() {
        let (mut server, mut editor) = open_with(Setup::with_forms()).await;
        let session = editor.session().await;
        let prompt = editor.prompt(&session, "hi").await;
        server.replay(&bytes).await;
        let (email, delete, updates) = both_questions(&mut editor).await;
        let yes_no = ["allow", "allow_always", "reject", "reject_always"];
        let all = [
            "allow",
            "allow_always",
            "edit",
            "allow_always_tool",
            "reject",
            "reject_always",
            "reject_always_tool",
            "respond",
        ];
        // The JavaScript middleware does not support `respond`.
        let all = all.iter().filter(|option| form != "actionRequests" || **option != "respond");
        assert_eq!(options(&email), all.copied().collect::<Vec<_>>(), "{form}");
        assert_eq!(options(&delete), yes_no, "{form}");
        // Each request is about a call that was announced and is pending.
        for request in [&email, &delete] {
            let id = request["params"]["toolCall"]["toolCallId"].as_str().unwrap();
            assert_eq!(request["params"]["sessionId"], *session);
            let announced = outline(&updates);
            assert!(announced.contains(&format!("tool_call {id} -")), "{form}: {announced:?}");
        }
        editor.reply(&delete, selected("reject")).await;
        editor.reply(&email, selected("allow")).await;
        let run = server.run().await;
        let told = decisions(&run.body);
        assert_eq!(told, [json!({"type": "approve"}), json!({"type": "reject"})], "{form}");
        assert!(run.body.get("input").is_none());
        run.ends("success", None).await;
        let told = editor.until(prompt).await;
        assert_eq!(told.stop_reason(), "end_turn", "{form}");
        let email = email["params"]["toolCall"]["toolCallId"].as_str().unwrap();
        let line = format!("tool_call_update {email} in_progress");
        assert!(outline(&told.of(&session)).contains(&line), "{form}");
        let stored = server.books().threads[&session].metadata.to_string();
        assert!(!stored.contains("acp_always"), "{stored}");
        editor.ended().await;
    }
}

#[tokio::test]
async fn an_edit_and_a_response_are_asked_for_by_forms() {
    for (form, bytes) in wire_forms() {
        let edited = if form == "actionRequests" { "editedAction" } else { "edited_action" };
        let args = json!({"to": "b@example.com", "body": "hi"});
        for (option, answer, expected) in [
            (
                "edit",
                json!({"action": "accept", "content": args}),
                json!({"type": "edit", edited: {"name": "send_email", "args": args}}),
            ),
            (
                "respond",
                json!({"action": "accept", "content": {"answer": "not today"}}),
                json!({"type": "respond", "message": "not today"}),
            ),
            ("edit", json!({"action": "decline"}), json!({"type": "reject"})),
            ("respond", json!({"action": "decline"}), json!({"type": "reject"})),
            ("respond", json!({"action": "accept", "content": {}}), json!({"type": "reject"})),
        ] {
            if form == "actionRequests" && option == "respond" {
                continue;
            }
            let (mut server, mut editor) = open_with(Setup::with_forms()).await;
            let session = editor.session().await;
            let prompt = editor.prompt(&session, "hi").await;
            server.replay(&bytes).await;
            let (email, delete, _) = both_questions(&mut editor).await;
            editor.reply(&delete, selected("allow")).await;
            editor.reply(&email, selected(option)).await;
            let (_, request) = editor.until_asked().await;
            assert_eq!(request["method"], "elicitation/create");
            let call_id = &email["params"]["toolCall"]["toolCallId"];
            assert_eq!(request["params"]["toolCallId"], *call_id);
            editor.reply(&request, answer).await;
            let run = server.run().await;
            assert_eq!(decisions(&run.body)[0], expected, "{form} {option}");
            run.ends("success", None).await;
            let told = editor.until(prompt).await;
            assert_eq!(told.stop_reason(), "end_turn");
            let is_shown =
                |update: &Value| update["toolCallId"] == *call_id && update["rawInput"] == args;
            let is_changed = expected["type"] == "edit";
            assert_eq!(told.of(&session).iter().any(is_shown), is_changed, "{form} {option}");
            editor.ended().await;
        }
    }
}

#[tokio::test]
async fn a_form_that_is_cancelled_cancels_the_turn() {
    let (mut server, mut editor) = open_with(Setup::with_forms()).await;
    let session = editor.session().await;
    let (prompt, request) = asked_to_write(&mut server, &mut editor, &session, "c").await;
    editor.reply(&request, selected("edit")).await;
    let (_, form) = editor.until_asked().await;
    editor.reply(&form, json!({"action": "cancel"})).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "cancelled");
    editor.ended().await;
}

#[tokio::test]
async fn what_is_answered_for_good_is_remembered_for_this_call() {
    for (always, decision) in [("allow_always", "approve"), ("reject_always", "reject")] {
        let (mut server, mut editor) = open().await;
        let session = editor.session().await;
        let (prompt, request) = asked_to_write(&mut server, &mut editor, &session, "c").await;
        editor.reply(&request, selected(always)).await;
        let run = server.run().await;
        assert_eq!(decisions(&run.body), [json!({"type": decision})]);
        let metadata = server.books().threads[&session].metadata.clone();
        let members = metadata.as_object().unwrap().iter();
        let kept: Vec<_> = members.filter(|(name, _)| name.starts_with("acp_always/")).collect();
        assert_eq!(kept.len(), 1, "{metadata}");
        assert_eq!(kept[0].1["name"], "write");
        assert_eq!(kept[0].1["decision"], always.strip_suffix("_always").unwrap());
        // The same call in the same turn, with its arguments in another order.
        let same = json!({"text": "a", "path": "/srv/app/a.txt"});
        asks_about(run, ["n", "d"], "write", &same).await;
        // The agent does not ask for permission again.
        let run = server.run().await;
        assert_eq!(decisions(&run.body), [json!({"type": decision})]);
        // Another call needs permission.
        let other = json!({"path": "/srv/app/b.txt", "text": "a"});
        asks_about(run, ["o", "e"], "write", &other).await;
        let (updates, request) = editor.until_asked().await;
        assert!(updates.iter().all(|update| update["sessionUpdate"] != "request"));
        editor.reply(&request, selected("allow")).await;
        server.run().await.ends_with(&json!([])).await;
        assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
        editor.ended().await;
        // Another process knows the decision.
        let mut editor = Editor::initialized(&server.url, &Setup::default()).await;
        let resume = of(&session, json!({"cwd": CWD, "mcpServers": []}));
        editor.call("session/resume", resume).await;
        let prompt = editor.prompt(&session, "again").await;
        let run = server.run().await;
        let args = json!({"path": "/srv/app/a.txt", "text": "a"});
        asks_about(run, ["p", "f"], "write", &args).await;
        let run = server.run().await;
        assert_eq!(decisions(&run.body), [json!({"type": decision})]);
        run.ends("success", None).await;
        let told = editor.until(prompt).await;
        assert_eq!((told.stop_reason(), told.requests.len()), ("end_turn".to_owned(), 0));
        editor.ended().await;
    }
}

#[tokio::test]
async fn what_is_answered_for_a_tool_holds_for_its_other_calls_and_for_no_other_tool() {
    for (always, decision) in [("allow_always_tool", "approve"), ("reject_always_tool", "reject")] {
        let (mut server, mut editor) = open().await;
        let session = editor.session().await;
        let (prompt, request) = asked_to_write(&mut server, &mut editor, &session, "c").await;
        editor.reply(&request, selected(always)).await;
        server.run().await.ends_with(&json!([])).await;
        assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
        editor.ended().await;
        // Another process.
        let mut editor = Editor::initialized(&server.url, &Setup::default()).await;
        let resume = of(&session, json!({"cwd": CWD, "mcpServers": []}));
        editor.call("session/resume", resume).await;
        let prompt = editor.prompt(&session, "again").await;
        let run = server.run().await;
        let args = json!({"path": "/srv/app/other.txt", "text": "z"});
        asks_about(run, ["p", "f"], "write", &args).await;
        let run = server.run().await;
        assert_eq!(decisions(&run.body), [json!({"type": decision})]);
        asks_about(run, ["r", "g"], "write_all", &args).await;
        let (_, request) = editor.until_asked().await;
        editor.reply(&request, selected("allow")).await;
        server.run().await.ends_with(&json!([])).await;
        assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
        editor.ended().await;
    }
}

#[tokio::test]
async fn the_first_rule_that_fits_decides_the_modes_before_the_general() {
    let rule = |glob: &str, rule| (glob.parse::<Glob>().unwrap(), rule);
    let general = Rules(vec![
        rule("write", Rule::Reject),
        rule("write_*", Rule::Reject),
        rule("read*", Rule::Allow),
        rule("*", Rule::Ask),
    ]);
    let settings = Settings { permissions: general, ..two_modes() };
    // The decision by mode and tool; `None` means that the user is asked.
    for (mode, tool, expected) in [
        ("ask", "write", None),
        ("ask", "read_file", Some("approve")),
        ("ask", "delete", None),
        ("auto", "write", Some("approve")),
        ("auto", "write_file", Some("approve")),
        ("auto", "read_file", Some("approve")),
        ("auto", "delete", None),
    ] {
        let setup = Setup { settings: settings.clone(), ..Setup::default() };
        let (mut server, mut editor) = open_with(setup).await;
        let session = editor.session().await;
        editor.call("session/set_mode", of(&session, json!({"modeId": mode}))).await;
        let prompt = editor.prompt(&session, "hi").await;
        let run = server.run().await;
        asks_about(run, ["m", "c"], tool, &json!({})).await;
        if expected.is_none() {
            let (_, request) = editor.until_asked().await;
            editor.reply(&request, selected("reject")).await;
        }
        let run = server.run().await;
        let decision = expected.unwrap_or("reject");
        assert_eq!(decisions(&run.body), [json!({"type": decision})], "{mode} {tool}");
        run.ends("success", None).await;
        let told = editor.until(prompt).await;
        assert_eq!(told.requests, Vec::<Value>::new(), "{mode} {tool}");
        editor.ended().await;
    }
}

#[tokio::test]
async fn an_answer_that_is_none_fails_the_prompt_and_the_next_one_answers() {
    let unoffered = "session/request_permission was answered with `edit`, which was not offered";
    let without = "session/request_permission was answered without an outcome";
    for (answer, why) in [
        (json!({"result": selected("edit")}), unoffered),
        (json!({"result": {}}), without),
        (json!({"result": null}), without),
        (json!({"result": [1]}), without),
        (json!({"result": {"outcome": "selected"}}), without),
        (json!({"error": {"code": -32601, "message": "no such method"}}), "no such method"),
        (json!({"error": {"code": -32000, "message": ""}}), ""),
        (json!({"error": 5}), ""),
    ] {
        let (mut server, mut editor) = open().await;
        let session = editor.session().await;
        let (prompt, request) = asked_to_write(&mut server, &mut editor, &session, "c").await;
        let mut message = answer.clone();
        message["jsonrpc"] = json!("2.0");
        message["id"] = request["id"].clone();
        editor.raw(format!("{message}\n")).await;
        let told = editor.until(prompt).await;
        let (code, message) = told.error();
        assert!(code < 0 && message.contains(why), "{answer}: {message}");
        assert_eq!(outline(&told.of(&session)).last().unwrap(), "tool_call_update c failed");
        // The next prompt is not the answer. The agent asks again, and then runs the prompt.
        let prompt = editor.prompt(&session, "and now?").await;
        asked_first(&mut server, &mut editor, "and now?").await;
        assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
        editor.ended().await;
    }
}

/// Rejects the open call, for which the agent asks first, and plays the run of this prompt.
async fn asked_first(server: &mut LangGraph, editor: &mut Editor, text: &str) {
    let (_, request) = editor.until_asked().await;
    assert_eq!(request["method"], "session/request_permission");
    editor.reply(&request, selected("reject")).await;
    let run = server.run().await;
    assert_eq!(decisions(&run.body), [json!({"type": "reject"})]);
    run.ends_with(&json!([])).await;
    let run = server.run().await;
    assert_eq!(run.said()["content"], text);
    run.ends("success", None).await;
}

#[tokio::test]
async fn a_question_of_the_graph_is_asked_by_a_form_where_there_are_some() {
    let question = json!({"id": "q", "value": {"question": "Which one?"}});
    let (mut server, mut editor) = open_with(Setup::with_forms()).await;
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "hi").await;
    server.run().await.asks(&json!([]), &json!([question])).await;
    let (_, request) = editor.until_asked().await;
    assert_eq!(request["method"], "elicitation/create");
    assert_eq!(request["params"]["message"], "Which one?");
    editor.reply(&request, json!({"action": "accept", "content": {"answer": "this"}})).await;
    let run = server.run().await;
    assert_eq!(run.body["command"], json!({"resume": {"q": "this"}}));
    // A schema with several fields.
    let schema = json!({"type": "object", "properties": {
        "how": {"type": "string", "enum": ["fast", "well"]}, "often": {"type": "integer"}}});
    let question = json!({"id": "r", "value": "How?", "response_schema": schema});
    run.asks(&json!([]), &json!([question])).await;
    let (_, request) = editor.until_asked().await;
    let content = json!({"how": "well", "often": 2});
    editor.reply(&request, json!({"action": "accept", "content": content})).await;
    let run = server.run().await;
    assert_eq!(run.body["command"], json!({"resume": {"r": content}}));
    // If the user does not fill in the form, the question is sent as a message.
    run.asks(&json!([]), &json!([{"id": "s", "value": "And now?"}])).await;
    let (_, request) = editor.until_asked().await;
    editor.reply(&request, json!({"action": "decline"})).await;
    let told = editor.until(prompt).await;
    assert_eq!(told.stop_reason(), "end_turn");
    assert_eq!(told.said(), [("s".to_owned(), "And now?".to_owned())]);
    let prompt = editor.prompt(&session, "stop").await;
    let run = server.run().await;
    assert_eq!(run.body["command"], json!({"resume": {"s": "stop"}}));
    assert!(run.body.get("input").is_none());
    run.ends("success", None).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    editor.ended().await;
}

#[tokio::test]
async fn a_question_of_the_graph_is_asked_in_words_where_there_are_no_forms() {
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "hi").await;
    let questions = json!([
        {"id": "q", "value": {"question": "Which one?"}},
        {"id": "r", "value": "How many?", "response_schema": {"type": "integer"}},
    ]);
    server.run().await.asks(&json!([]), &questions).await;
    let told = editor.until(prompt).await;
    assert_eq!(told.stop_reason(), "end_turn");
    let said = told.said();
    assert_eq!(said.len(), 2, "{said:?}");
    assert_eq!(said[0], ("q".to_owned(), "Which one?".to_owned()));
    // Each prompt answers one question.
    let prompt = editor.prompt(&session, "this").await;
    let run = server.run().await;
    assert_eq!(run.body["command"], json!({"resume": {"q": "this"}}));
    run.asks(&json!([]), &json!([questions[1]])).await;
    let told = editor.until(prompt).await;
    // The repeated question is a message of its own.
    assert_eq!(told.said(), [("r:2".to_owned(), "How many?".to_owned())]);
    let prompt = editor.prompt(&session, "7").await;
    let run = server.run().await;
    assert_eq!(run.body["command"], json!({"resume": {"r": 7}}));
    run.ends("success", None).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    editor.ended().await;
}

#[tokio::test]
async fn a_question_without_an_id_is_answered_by_a_bare_value_and_not_beside_others() {
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "hi").await;
    server.run().await.asks(&json!([]), &json!([{"value": "Which one?"}])).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    let prompt = editor.prompt(&session, "this").await;
    let run = server.run().await;
    assert_eq!(run.body["command"], json!({"resume": "this"}));
    run.asks(&json!([]), &json!([{"value": "one?"}, {"id": "q", "value": "two?"}])).await;
    let told = editor.until(prompt).await;
    let (_, message) = told.error();
    assert!(message.contains("one has no id, so LangGraph cannot tell"), "{message}");
    editor.ended().await;
}

#[tokio::test]
async fn approvals_and_questions_at_once_are_all_asked() {
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "hi").await;
    let questions = json!([
        approval("a", &[("write", json!({"path": "1"})), ("write", json!({"path": "2"}))]),
        {"id": "q", "value": "Which one?"},
        approval("b", &[("delete", json!({"path": "3"}))]),
    ]);
    server.run().await.asks(&json!([]), &questions).await;
    let mut requests = Vec::new();
    for _ in 0..3 {
        requests.push(editor.until_asked().await.1);
    }
    let path = |request: &Value| request["params"]["toolCall"]["rawInput"]["path"].clone();
    requests.sort_by_key(|request| path(request).to_string());
    for (request, answer) in requests.iter().zip(["allow", "reject", "allow"]).rev() {
        editor.reply(request, selected(answer)).await;
    }
    // The run resumes with the answers so far; the other question stays open.
    let run = server.run().await;
    assert_eq!(
        run.body["command"]["resume"],
        json!({
            "a": {"decisions": [{"type": "approve"}, {"type": "reject"}]},
            "b": {"decisions": [{"type": "approve"}]},
        })
    );
    run.asks(&json!([]), &json!([questions[1]])).await;
    let told = editor.until(prompt).await;
    assert_eq!(told.stop_reason(), "end_turn");
    assert_eq!(told.said(), [("q".to_owned(), "Which one?".to_owned())]);
    let prompt = editor.prompt(&session, "this").await;
    let run = server.run().await;
    assert_eq!(run.body["command"], json!({"resume": {"q": "this"}}));
    run.ends("success", None).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    editor.ended().await;
}

#[tokio::test]
async fn a_breakpoint_is_asked_about() {
    for (answer, goes_on) in [("allow", true), ("reject", false)] {
        let (mut server, mut editor) = open().await;
        let session = editor.session().await;
        let prompt = editor.prompt(&session, "hi").await;
        let mut run = server.run().await;
        let messages = json!([{"type": "human", "id": "h", "content": "hi"}]);
        run.sends("values", &json!({"messages": messages})).await;
        run.sends("updates", &json!({"__interrupt__": []})).await;
        let mut at = state(&run.id, &messages, &json!([]));
        at["next"] = json!(["tools"]);
        run.ends("success", Some(at)).await;
        let (_, request) = editor.until_asked().await;
        assert_eq!(options(&request), ["allow", "reject"]);
        editor.reply(&request, selected(answer)).await;
        if goes_on {
            let run = server.run().await;
            assert!(run.body.get("command").is_none() && run.body.get("input").is_none());
            run.ends("success", Some(json!({"values": {}, "next": []}))).await;
            assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
        } else {
            assert_eq!(editor.until(prompt).await.stop_reason(), "cancelled");
        }
        editor.ended().await;
    }
}

/// The statuses of a call, in the order in which they were sent.
fn statuses(updates: &[Value], id: &str) -> Vec<String> {
    let of_call = updates.iter().filter(|update| update["toolCallId"] == id);
    of_call.filter_map(|update| update["status"].as_str()).map(str::to_owned).collect()
}

#[tokio::test]
async fn an_asked_call_is_pending_until_it_is_allowed() {
    let args = json!({"path": "/srv/app/a.txt"});
    for (setup, answer, expected) in [
        (Setup::default(), Some("allow"), &["in_progress", "completed"][..]),
        (Setup::default(), Some("reject"), &["failed"]),
        // A rule decides.
        (Setup { settings: in_auto(), ..Setup::default() }, None, &["in_progress", "completed"]),
    ] {
        let (mut server, mut editor) = open_with(setup).await;
        let session = editor.session().await;
        let prompt = editor.prompt(&session, "hi").await;
        let mut run = server.run().await;
        run.calls("m", "c", "write", &args).await;
        let ai = json!({"type": "ai", "id": "m", "content": "",
            "tool_calls": [call("c", "write", &args)]});
        run.asks(&json!([ai]), &json!([approval("q", &[("write", args.clone())])])).await;
        let mut updates = Vec::new();
        if let Some(answer) = answer {
            let (before, request) = editor.until_asked().await;
            updates.extend(before);
            assert_eq!(request["params"]["toolCall"]["status"], "pending");
            assert_eq!(statuses(&updates, "c"), Vec::<String>::new());
            editor.reply(&request, selected(answer)).await;
        }
        let run = server.run().await;
        let status = if answer == Some("reject") { "error" } else { "success" };
        let result = json!({"type": "tool", "id": "t", "tool_call_id": "c", "content": "",
            "status": status});
        run.ends_with(&json!([ai, result])).await;
        let told = editor.until(prompt).await;
        updates.extend(told.of(&session));
        assert_eq!(statuses(&updates, "c"), expected, "{answer:?}");
        editor.ended().await;
    }
}

#[tokio::test]
async fn files_and_terminals_of_an_editor_are_not_used() {
    // The editor checks the method of each frame that it reads.
    let capabilities = json!({
        "fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true,
        "elicitation": {"form": {}},
    });
    let (mut server, mut editor) = open_with(Setup { capabilities, ..Setup::default() }).await;
    let session = editor.session().await;
    let file = "/srv/app/a.txt";
    let calls = [
        ("read_file", json!({"path": file})),
        ("write_file", json!({"path": file, "content": "a"})),
        ("edit_file", json!({"path": file, "old_string": "a", "new_string": "b"})),
        ("delete_file", json!({"path": file})),
        ("execute", json!({"command": "ls"})),
    ];
    for (name, args) in &calls {
        // Once without asking, and once after the user has allowed the call.
        for is_asked in [false, true] {
            let prompt = editor.prompt(&session, "do it").await;
            let mut run = server.run().await;
            run.calls("m", name, name, args).await;
            let ai = json!({"type": "ai", "id": "m", "content": "",
                "tool_calls": [call(name, name, args)]});
            if is_asked {
                let question = approval("q", &[(name, args.clone())]);
                run.asks(&json!([ai]), &json!([question])).await;
                let (_, request) = editor.until_asked().await;
                assert_eq!(request["method"], "session/request_permission", "{name}");
                editor.reply(&request, selected("allow")).await;
                run = server.run().await;
            }
            let result = json!({"type": "tool", "id": "t", "tool_call_id": name,
                "content": "done", "status": "success"});
            run.ends_with(&json!([ai, result])).await;
            let told = editor.until(prompt).await;
            assert_eq!(told.stop_reason(), "end_turn", "{name}");
            assert_eq!(told.requests, [] as [Value; 0], "{name}");
            let updates = json!(told.updates).to_string();
            assert!(updates.contains("completed"), "{name}: {updates}");
            assert!(!updates.contains("terminalId"), "{name}: {updates}");
        }
    }
    editor.ended().await;
}

/// The mode in which writing is allowed.
fn in_auto() -> Settings {
    let mut settings = two_modes();
    settings.modes.reverse();
    settings
}

#[tokio::test]
async fn whoever_approves_is_shown_all_that_was_asked() {
    let description = "This goes to 5,000 customers and cannot be undone.";
    let args = json!({"to": "all"});
    let requests = |requests: &str, configs: &str, name: &str, allowed: &str| {
        json!({requests: [{"name": "send", "args": args, "description": description}],
            configs: [{name: "send", allowed: ["approve", "reject"]}], "risk": "high"})
    };
    let yes_no =
        json!([{"oneOf": [], "discriminator": {"mapping": {"approve": "", "reject": ""}}}]);
    let inbox = json!([{"action_request": {"action": "send", "args": args},
        "config": {"allow_accept": true, "allow_ignore": true, "allow_edit": false,
            "allow_respond": false},
        "description": description, "risk": "high"}]);
    for (value, schema, answer) in [
        (
            requests("action_requests", "review_configs", "action_name", "allowed_decisions"),
            Value::Null,
            json!({"decisions": [{"type": "approve"}]}),
        ),
        (
            requests("actionRequests", "reviewConfigs", "actionName", "allowedDecisions"),
            Value::Null,
            json!({"decisions": [{"type": "approve"}]}),
        ),
        (
            json!({"type": "tool_approval", "tool_call_id": "c", "name": "send", "args": args,
                "description": description, "risk": "high"}),
            yes_no[0].clone(),
            json!({"type": "approve"}),
        ),
        (inbox, Value::Null, json!([{"type": "accept", "args": null}])),
    ] {
        let (mut server, mut editor) = open().await;
        let session = editor.session().await;
        let prompt = editor.prompt(&session, "hi").await;
        let mut run = server.run().await;
        run.calls("m", "c", "send", &args).await;
        let ai = json!({"type": "ai", "id": "m", "content": "",
            "tool_calls": [call("c", "send", &args)]});
        let question = json!({"id": "q", "value": value, "response_schema": schema});
        run.asks(&json!([ai]), &json!([question])).await;
        let (_, request) = editor.until_asked().await;
        assert_eq!(request["method"], "session/request_permission", "{value}");
        let (allow, reject) = (["allow", "allow_always"], ["reject", "reject_always"]);
        let expected =
            [&allow[..], &["allow_always_tool"], &reject[..], &["reject_always_tool"]].concat();
        assert_eq!(options(&request), expected);
        let asked = &request["params"]["toolCall"];
        assert_eq!(asked["toolCallId"], "c", "{value}");
        let text = format!("{description}\n\nrisk: high");
        let content = json!([{"type": "content", "content": {"type": "text", "text": text}}]);
        assert_eq!(asked["content"], content, "{value}");
        assert_eq!(
            request.to_string().matches("5,000").count(),
            1,
            "the text is shown once: {request}"
        );
        editor.reply(&request, selected("allow")).await;
        let run = server.run().await;
        assert_eq!(run.body["command"]["resume"]["q"], answer);
        run.ends("success", None).await;
        assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
        editor.ended().await;
    }
}

#[tokio::test]
async fn a_question_is_asked_with_its_subject() {
    let value = json!({"question": "Is this right?", "llm_output": "Dear \u{1b}[8mall,\nhi",
        "choices": ["yes", "no"]});
    let text =
        "Is this right?\n\nllm_output:\n\nDear \\u{1b}[8mall,\nhi\n\nchoices:\n\n- yes\n- no";
    let (mut server, mut editor) = open_with(Setup::with_forms()).await;
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "hi").await;
    server.run().await.asks(&json!([]), &json!([{"id": "q", "value": value}])).await;
    let (_, request) = editor.until_asked().await;
    assert_eq!(request["params"]["message"], text);
    editor.reply(&request, json!({"action": "accept", "content": {"answer": "yes"}})).await;
    server.run().await.ends("success", None).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    editor.ended().await;
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "hi").await;
    let long = json!({"id": "r", "value": {"question": "x".repeat(5_000), "draft": {"to": ["a"]}}});
    let questions = json!([{"id": "q", "value": value}, long]);
    server.run().await.asks(&json!([]), &questions).await;
    let said = editor.until(prompt).await.said();
    assert_eq!(said[0], ("q".to_owned(), text.to_owned()));
    let rest = "\n\n[cut: the first 4000 of 5000 characters are shown]\n\n\
        draft:\n\n```json\n{\n  \"to\": [\n    \"a\"\n  ]\n}\n```";
    assert_eq!(said[1], ("r".to_owned(), format!("{}{rest}", "x".repeat(4_000))));
    editor.ended().await;
}

#[tokio::test]
async fn an_action_that_a_prompt_answers_is_asked_with_its_arguments() {
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "hi").await;
    let value = json!([{"action_request": {"action": "ask_person", "args": {"topic": "tea"}},
        "config": {"allow_respond": true}, "description": "Which one?"}]);
    server.run().await.asks(&json!([]), &json!([{"id": "q", "value": value}])).await;
    let text = "Which one?\n\nask_person:\n\n```json\n{\n  \"topic\": \"tea\"\n}\n```";
    assert_eq!(editor.until(prompt).await.said(), [("q".to_owned(), text.to_owned())]);
    let prompt = editor.prompt(&session, "green").await;
    let run = server.run().await;
    let answer = json!([{"type": "response", "args": "green"}]);
    assert_eq!(run.body["command"], json!({"resume": {"q": answer}}));
    run.ends("success", None).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    editor.ended().await;
}

// === sessions of other processes ===

const LOADED: &str = "11111111-1111-4111-8111-111111111111";

fn kept() -> Value {
    json!({"acp_session": true, "cwd": CWD, "acp_assistant": "agent", "title": "T"})
}

fn open_params(session: &str) -> Value {
    of(session, json!({"cwd": CWD, "mcpServers": []}))
}

/// A conversation with a call that has a result.
fn conversation() -> Value {
    json!([
        {"type": "human", "id": "h1", "content": "hi"},
        {"type": "ai", "id": "a1", "content": "let me look",
            "tool_calls": [call("c1", "look", &json!({"at": "it"}))]},
        {"type": "tool", "id": "t1", "tool_call_id": "c1", "content": "seen", "status": "success"},
        {"type": "ai", "id": "a2", "content": "there"},
    ])
}

const HISTORY: [&str; 4] = [
    "user_message_chunk h1 hi",
    "agent_message_chunk a1 let me look",
    "tool_call c1 completed",
    "agent_message_chunk a2 there",
];

#[tokio::test]
async fn a_load_tells_the_history_and_then_responds() {
    let (mut server, mut editor) = open().await;
    server.thread(LOADED, kept(), Some(state("r", &conversation(), &json!([]))));
    // Each load sends the whole conversation again, under the same ids.
    for _ in 0..2 {
        let load = editor.request("session/load", open_params(LOADED)).await;
        let told = editor.until(load).await;
        assert_eq!(outline(&told.of(LOADED)), HISTORY);
        told.result();
        editor.is_alive().await;
    }
    // From here on the updates are new.
    let prompt = editor.prompt(LOADED, "and now?").await;
    let mut run = server.run().await;
    let mut messages = conversation();
    let own = run.said();
    messages.as_array_mut().unwrap().push(own);
    run.sends("values", &json!({"messages": messages})).await;
    run.says("a3", "here").await;
    messages.as_array_mut().unwrap().push(json!({"type": "ai", "id": "a3", "content": "here"}));
    run.ends_with(&messages).await;
    let told = editor.until(prompt).await;
    assert_eq!(outline(&told.of(LOADED)), ["agent_message_chunk a3 here"]);
    assert_eq!(told.stop_reason(), "end_turn");
    editor.ended().await;
}

#[tokio::test]
async fn an_editor_is_asked_about_what_is_still_open() {
    let (mut server, mut editor) = open().await;
    let key = "threadway_answer:0:0";
    // Another client has decided about the first call, and its decision says more than an editor's
    // could.
    let edited = json!({"type": "edit", "edited_action": {"name": "post", "args": {"to": "b"}}});
    let mut metadata = kept();
    metadata[key] = json!({"interrupt": "i", "action": 0, "after": "r", "decision": edited});
    let args = json!({});
    let messages = json!([
        {"type": "human", "id": "h1", "content": "hi"},
        {"type": "ai", "id": "a1", "content": "",
            "tool_calls": [call("c1", "send", &args), call("c2", "delete", &args)]},
    ]);
    let request = |name: &str| json!({"name": name, "args": args});
    let interrupt = json!({"id": "i", "value": {"review_configs": [],
        "action_requests": [request("send"), request("delete")]}});
    server.thread(LOADED, metadata, Some(state("r", &messages, &json!([interrupt]))));
    live(&server, "r");
    server.books().threads.get_mut(LOADED).unwrap().runs[0]["status"] = json!("success");
    let resume = editor.request("session/resume", open_params(LOADED)).await;
    editor.until(resume).await.result();
    let prompt = editor.prompt(LOADED, "and now?").await;
    let (_, request) = editor.until_asked().await;
    assert_eq!(request["params"]["toolCall"]["toolCallId"], "c2");
    editor.reply(&request, selected("allow")).await;
    let run = server.run().await;
    let sent = json!({"resume": {"i": {"decisions": [edited, {"type": "approve"}]}}});
    assert_eq!(run.body["command"], sent);
    assert_eq!(run.body["metadata"][key], Value::Null);
    assert!(run.body["metadata"].as_object().unwrap().contains_key(key));
    let mut done = messages;
    for call in ["c1", "c2"] {
        let result = json!({"type": "tool", "id": format!("r-{call}"), "tool_call_id": call,
            "content": "done"});
        done.as_array_mut().unwrap().push(result);
    }
    run.ends_with(&done).await;
    let run = server.run().await;
    assert_eq!(run.said()["content"], "and now?");
    run.ends("success", None).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    server
        .until("it is forgotten", |server| server.books().threads[LOADED].metadata[key].is_null())
        .await;
    editor.ended().await;
}

#[tokio::test]
async fn a_resume_tells_nothing_and_goes_on() {
    let (mut server, mut editor) = open().await;
    server.thread(LOADED, kept(), Some(state("r", &conversation(), &json!([]))));
    let resume = editor.request("session/resume", open_params(LOADED)).await;
    let told = editor.until(resume).await;
    assert_eq!(told.updates, Vec::<Value>::new());
    told.result();
    editor.is_alive().await;
    let prompt = editor.prompt(LOADED, "and now?").await;
    let mut run = server.run().await;
    let mut messages = conversation();
    messages.as_array_mut().unwrap().push(run.said());
    run.sends("values", &json!({"messages": messages})).await;
    run.says("a3", "here").await;
    messages.as_array_mut().unwrap().push(json!({"type": "ai", "id": "a3", "content": "here"}));
    run.ends_with(&messages).await;
    let told = editor.until(prompt).await;
    assert_eq!(outline(&told.of(LOADED)), ["agent_message_chunk a3 here"]);
    editor.ended().await;
}

/// Adds a live run that another client has started.
fn live(server: &LangGraph, id: &str) {
    let run = json!({"run_id": id, "thread_id": LOADED, "status": "running",
        "created_at": "2026-11-22T10:00:00.000000+00:00", "metadata": {},
        "kwargs": {"resumable": true, "stream_mode": ["values", "messages"],
            "input": {"messages": []}}});
    server.books().threads.get_mut(LOADED).unwrap().runs.insert(0, run);
}

#[tokio::test]
async fn a_live_run_is_shown_behind_the_history_and_a_prompt_waits_for_it() {
    let (mut server, mut editor) = open().await;
    server.thread(LOADED, kept(), Some(state("r", &conversation(), &json!([]))));
    live(&server, "L");
    let load = editor.request("session/load", open_params(LOADED)).await;
    let mut run = server.joined().await;
    run.exchange
        .send(format!("id: 1-0\r\n{}", part("values", &json!({"messages": conversation()}))))
        .await;
    run.says("a3", "live").await;
    let told = editor.until(load).await;
    told.result();
    let mut all = told.of(LOADED);
    let prompt = editor.prompt(LOADED, "next").await;
    run.says("a3", "er").await;
    if !outline(&all).iter().any(|line| line.contains("liveer")) {
        loop {
            let frame = editor.next().await;
            all.push(frame["params"]["update"].clone());
            let text: String = said(&all).into_iter().map(|(_, text)| text).collect();
            if text.ends_with("liveer") {
                break;
            }
        }
    }
    assert_eq!(outline(&all)[..4], HISTORY);
    assert!(server.asked(&format!("POST /threads/{LOADED}/runs/stream")).is_empty());
    let mut messages = conversation();
    messages.as_array_mut().unwrap().push(json!({"type": "ai", "id": "a3", "content": "liveer"}));
    run.ends_with(&messages).await;
    let run = server.run().await;
    assert_eq!(run.said()["content"], "next");
    run.ends("success", None).await;
    let told = editor.until(prompt).await;
    assert_eq!(told.said(), Vec::new(), "no text is sent twice");
    assert_eq!(told.stop_reason(), "end_turn");
    editor.ended().await;
}

#[tokio::test]
async fn a_cancel_stops_a_live_run_that_is_shown() {
    let (mut server, mut editor) = open().await;
    server.thread(LOADED, kept(), Some(state("r", &conversation(), &json!([]))));
    live(&server, "L");
    let load = editor.request("session/load", open_params(LOADED)).await;
    let mut run = server.joined().await;
    run.exchange
        .send(format!("id: 1-0\r\n{}", part("values", &json!({"messages": conversation()}))))
        .await;
    run.says("a3", "live").await;
    editor.until(load).await.result();
    editor.cancel(LOADED).await;
    server.until("the cancel", |server| server.cancelled() == ["L"]).await;
    run.ends("interrupted", None).await;
    editor.ended().await;
}

#[tokio::test]
async fn a_cancelled_prompt_behind_a_run_of_others_leaves_that_run_and_settles_its_calls() {
    let (mut server, mut editor) = open().await;
    server.thread(LOADED, kept(), Some(state("r", &conversation(), &json!([]))));
    let load = editor.request("session/load", open_params(LOADED)).await;
    editor.until(load).await.result();
    // The run begins while no session is open.
    live(&server, "L");
    let prompt = editor.prompt(LOADED, "next").await;
    let mut run = server.joined().await;
    let values = part("values", &json!({"messages": conversation()}));
    run.exchange.send(format!("id: 1-0\r\n{values}")).await;
    run.calls("a3", "c2", "look", &json!({"at": "that"})).await;
    run.says("a4", "looking").await;
    let mut updates = editor.until_said("looking").await;
    editor.cancel(LOADED).await;
    let told = editor.until(prompt).await;
    assert_eq!(told.stop_reason(), "cancelled");
    updates.extend(told.of(LOADED));
    assert_eq!(statuses(&updates, "c2"), ["failed"]);
    assert_eq!(server.cancelled(), Vec::<String>::new());
    // That run ends by itself, and the next prompt shows its outcome.
    let mut messages = conversation();
    messages.as_array_mut().unwrap().extend([
        json!({"type": "ai", "id": "a3", "content": "",
            "tool_calls": [call("c2", "look", &json!({"at": "that"}))]}),
        json!({"type": "tool", "id": "t2", "tool_call_id": "c2", "content": "seen",
            "status": "success"}),
        json!({"type": "ai", "id": "a4", "content": "looking"}),
    ]);
    run.record("success", Some(state("L", &messages, &json!([]))));
    let prompt = editor.prompt(LOADED, "and now?").await;
    let run = server.run().await;
    messages.as_array_mut().unwrap().push(run.said());
    run.ends_with(&messages).await;
    let told = editor.until(prompt).await;
    assert_eq!(statuses(&told.of(LOADED), "c2"), ["completed"]);
    assert_eq!(server.cancelled(), Vec::<String>::new());
    editor.ended().await;
}

/// The conversation, whose last call waits for approval.
fn waiting() -> (Value, Value) {
    let args = json!({"path": "/srv/app/a.txt", "text": "a"});
    let mut messages = conversation();
    messages.as_array_mut().unwrap().push(json!({"type": "ai", "id": "a3", "content": "",
        "tool_calls": [call("c2", "write", &args)]}));
    (messages, json!([approval("q", &[("write", args)])]))
}

/// One event of an idle thread has the whole conversation, and becomes one update for each message.
#[tokio::test]
async fn a_conversation_with_more_messages_than_an_event_id_counts_updates_is_loaded_whole() {
    const MESSAGES: usize = 66_000;
    let (server, mut editor) = open().await;
    let message = |at: usize| json!({"type": "ai", "id": format!("m{at}"), "content": "x"});
    let messages: Vec<_> = (0..MESSAGES).map(message).collect();
    server.thread(LOADED, kept(), Some(state("r", &json!(messages), &json!([]))));
    let load = editor.request("session/load", open_params(LOADED)).await;
    let told = editor.until(load).await;
    let expected = (0..MESSAGES).map(|at| (format!("m{at}"), "x".to_owned()));
    assert!(told.said().into_iter().eq(expected), "{} messages", told.said().len());
    editor.ended().await;
}

#[tokio::test]
async fn open_questions_are_asked_again_behind_the_response_to_a_load() {
    let (mut server, mut editor) = open().await;
    let (messages, questions) = waiting();
    server.thread(LOADED, kept(), Some(state("r", &messages, &questions)));
    let load = editor.request("session/load", open_params(LOADED)).await;
    let told = editor.until(load).await;
    assert_eq!(told.requests, Vec::<Value>::new(), "the session is not known yet");
    assert_eq!(outline(&told.of(LOADED))[..4], HISTORY);
    let (_, request) = editor.until_asked().await;
    assert_eq!(request["params"]["toolCall"]["toolCallId"], "c2");
    editor.reply(&request, selected("allow")).await;
    let mut run = server.run().await;
    assert_eq!(decisions(&run.body), [json!({"type": "approve"})]);
    run.says("a4", "done").await;
    editor.until_said("done").await;
    run.ends("success", Some(state("r2", &messages, &json!([])))).await;
    let prompt = editor.prompt(LOADED, "thanks").await;
    server.run().await.ends("success", None).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    editor.ended().await;
}

#[tokio::test]
async fn a_prompt_takes_back_what_a_load_has_asked() {
    let (mut server, mut editor) = open().await;
    let (messages, questions) = waiting();
    server.thread(LOADED, kept(), Some(state("r", &messages, &questions)));
    let load = editor.request("session/load", open_params(LOADED)).await;
    editor.until(load).await.result();
    let (_, request) = editor.until_asked().await;
    let prompt = editor.prompt(LOADED, "wait").await;
    let taken_back = editor.next().await;
    assert_eq!(taken_back["method"], "$/cancel_request");
    assert_eq!(taken_back["params"]["requestId"], request["id"]);
    // The agent asks again for the decision, and then runs the prompt.
    asked_first(&mut server, &mut editor, "wait").await;
    let told = editor.until(prompt).await;
    assert_eq!(told.stop_reason(), "end_turn");
    assert_eq!(told.requests, Vec::<Value>::new());
    // A response that arrives too late changes nothing.
    editor.reply(&request, selected("allow")).await;
    editor.is_alive().await;
    assert_eq!(server.asked(&format!("POST /threads/{LOADED}/runs/stream")).len(), 2);
    editor.ended().await;
}

#[tokio::test]
async fn a_resumed_session_whose_thread_waits_asks_before_the_prompt() {
    let (mut server, mut editor) = open().await;
    let (messages, questions) = waiting();
    server.thread(LOADED, kept(), Some(state("r", &messages, &questions)));
    editor.call("session/resume", open_params(LOADED)).await;
    let prompt = editor.prompt(LOADED, "no").await;
    asked_first(&mut server, &mut editor, "no").await;
    let told = editor.until(prompt).await;
    assert_eq!(told.stop_reason(), "end_turn");
    editor.ended().await;
}

#[tokio::test]
async fn a_cancel_takes_back_what_a_load_has_asked() {
    let (server, mut editor) = open().await;
    let (messages, questions) = waiting();
    server.thread(LOADED, kept(), Some(state("r", &messages, &questions)));
    let load = editor.request("session/load", open_params(LOADED)).await;
    editor.until(load).await.result();
    let (_, request) = editor.until_asked().await;
    editor.cancel(LOADED).await;
    let frame = loop {
        let frame = editor.next().await;
        if frame["method"] == "$/cancel_request" {
            break frame;
        }
    };
    assert_eq!(frame["params"]["requestId"], request["id"]);
    editor.ended().await;
    assert!(server.cancelled().is_empty());
}

#[tokio::test]
async fn a_session_that_is_closed_is_stopped_and_gone() {
    let (mut server, mut editor) = open().await;
    for method in ["session/close", "session/delete"] {
        let session = editor.session().await;
        let prompt = editor.prompt(&session, "hi").await;
        let mut run = server.run().await;
        run.says("m", "one").await;
        editor.until_said("one").await;
        let close = editor.request(method, of(&session, json!({}))).await;
        if method == "session/close" {
            server.until("the cancel", |server| server.cancelled().contains(&run.id)).await;
            run.record("interrupted", None);
        } else {
            // Deleting a thread deletes its runs.
            let is_gone = |server: &LangGraph| !server.books().threads.contains_key(&session);
            server.until("the end of the thread", is_gone).await;
        }
        run.exchange.end().await;
        let (mut closed, mut stopped) = (None, None);
        while closed.is_none() || stopped.is_none() {
            let frame = editor.next().await;
            if frame["id"] == close {
                closed = Some(frame["result"].clone());
            } else if frame["id"] == prompt {
                stopped = Some(frame["result"]["stopReason"].clone());
            }
        }
        assert_eq!((closed, stopped), (Some(json!({})), Some(json!("cancelled"))), "{method}");
        let (code, _) = editor.refused("session/prompt", of(&session, json!({"prompt": []}))).await;
        assert_eq!(code, -32002);
        assert_eq!(server.books().threads.contains_key(&session), method == "session/close");
    }
    editor.ended().await;
}

#[tokio::test]
async fn sessions_are_listed_by_pages_and_by_directory() {
    let (server, mut editor) = open().await;
    for at in 0..120 {
        let cwd = if at % 2 == 0 { CWD } else { "/srv/other" };
        let metadata = json!({"acp_session": true, "cwd": cwd, "title": format!("T{at}")});
        server.thread(&format!("11111111-1111-4111-8111-{at:012}"), metadata, None);
    }
    server.thread("22222222-2222-4222-8222-222222222222", json!({"cwd": CWD}), None);
    for (params, expected) in
        [(json!({}), 120), (json!({"cwd": CWD}), 60), (json!({"cwd": "/x"}), 0)]
    {
        let (mut params, mut seen) = (params, std::collections::BTreeSet::new());
        loop {
            let page = editor.call("session/list", params.clone()).await;
            let sessions = page["sessions"].as_array().unwrap();
            assert!(sessions.len() <= 50);
            for session in sessions {
                assert!(seen.insert(session["sessionId"].as_str().unwrap().to_owned()));
                assert!(session["title"].as_str().unwrap().starts_with('T'));
                assert!(session["updatedAt"].is_string());
            }
            match page.get("nextCursor") {
                Some(cursor) => params["cursor"] = cursor.clone(),
                None => break,
            }
        }
        assert_eq!(seen.len(), expected);
    }
    editor.ended().await;
}

// === MCP servers ===

/// Opens a session whose client passes MCP servers with a secret in every member. Returns the MCP
/// servers that the graph receives, and everything that the gateway sent upstream.
async fn told_of_servers(secrets: Secrets) -> (Value, String) {
    let settings = Settings {
        mcp_key: Some("mcp_servers".to_owned()),
        mcp_secrets: secrets,
        ..Settings::default()
    };
    let (mut server, mut editor) = open_with(Setup { settings, ..Setup::default() }).await;
    let header = json!([{"name": "authorization", "value": "Bearer s3cr3t"}]);
    let servers = json!([
        {"type": "http", "name": "docs", "url": "https://u:s3cr3t@docs/mcp?key=s3cr3t", "headers": header},
        {"type": "sse", "name": "plain", "url": "https://plain/sse", "headers": []},
        {"name": "own", "command": "/bin/own", "args": [], "env": [{"name": "K", "value": "s3cr3t"}]},
    ]);
    let made = editor.call("session/new", json!({"cwd": CWD, "mcpServers": servers})).await;
    let session = made["sessionId"].as_str().unwrap().to_owned();
    let id = editor.prompt(&session, "hi").await;
    let run = server.run().await;
    let told = run.body["config"]["configurable"]["mcp_servers"].clone();
    run.ends("success", None).await;
    editor.until(id).await.result();
    let asked = format!("{:?}", server.books().asked);
    assert!(asked.contains("mcp_servers"), "{asked}");
    editor.ended().await;
    (told, asked)
}

#[tokio::test]
async fn no_secret_of_an_mcp_server_goes_up() {
    let (servers, all) = told_of_servers(Secrets::Withheld).await;
    let server = |kind: &str, name: &str, url: &str| json!({"type": kind, "name": name, "url": url, "headers": []});
    let docs = server("http", "docs", "https://docs/mcp");
    assert_eq!(servers, json!([docs, server("sse", "plain", "https://plain/sse")]));
    assert!(!all.contains("s3cr3t"), "{all}");
}

#[tokio::test]
async fn secrets_of_mcp_servers_go_up_where_the_operator_says_so() {
    let (servers, _) = told_of_servers(Secrets::Forwarded).await;
    assert_eq!(servers[0]["headers"][0]["value"], "Bearer s3cr3t");
    assert_eq!(servers[0]["url"], "https://u:s3cr3t@docs/mcp?key=s3cr3t");
    assert_eq!(servers.as_array().unwrap().len(), 2);
}

// === keys ===

#[tokio::test]
async fn a_key_is_asked_for_taken_and_forgotten() {
    let directory = std::env::temp_dir().join(format!("threadway-acp-{}", std::process::id()));
    let mut server = LangGraph::start().await;
    server.books().key = Some("k3y".to_owned());
    let setup = Setup { directory: Some(directory.clone()), ..Setup::default() };
    let mut editor = Editor::start(&server.url, &setup);
    let told = editor.call("initialize", json!({"protocolVersion": 1})).await;
    assert_eq!(told["authMethods"][0]["id"], "api-key");
    assert_eq!(told["agentCapabilities"]["auth"], json!({"logout": {}}));
    let new = json!({"cwd": CWD, "mcpServers": []});
    let shown = format!("{}/", server.url.trim_end_matches('/'));
    for (method, params) in [("session/new", new.clone()), ("session/list", json!({}))] {
        let (code, message) = editor.refused(method, params).await;
        assert_eq!(code, -32000, "{message}");
        assert!(message.contains(shown.trim_end_matches('/')) && message.contains("--login"));
    }
    let key = json!({"methodId": "api-key"});
    assert_eq!(editor.refused("authenticate", key.clone()).await.0, -32000);
    let (code, _) = editor.refused("authenticate", json!({"methodId": "x"})).await;
    assert_eq!(code, -32602);
    // The user logs in in a terminal.
    let credentials = Credentials::new(Some(&directory), editor.service.upstream.client.base());
    credentials.store("wrong").unwrap();
    assert_eq!(editor.refused("authenticate", key.clone()).await.0, -32000);
    credentials.store("k3y").unwrap();
    assert_eq!(editor.call("authenticate", key.clone()).await, json!({}));
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "hi").await;
    server.run().await.ends("success", None).await;
    editor.until(prompt).await.result();
    assert!(server.books().threads.contains_key(&session));
    // The next process reads the key from the same directory.
    let mut second = Editor::start(&server.url, &setup);
    second.call("initialize", json!({"protocolVersion": 1})).await;
    second.session().await;
    second.ended().await;
    assert_eq!(editor.call("logout", json!({})).await, json!({}));
    assert!(!credentials.has_key());
    assert_eq!(editor.refused("session/new", new).await.0, -32000);
    editor.is_alive().await;
    editor.ended().await;
    std::fs::remove_dir_all(directory).unwrap();
}

#[tokio::test]
async fn a_server_that_wants_no_key_is_given_none() {
    let (_server, mut editor) = open().await;
    let (code, message) = editor.refused("authenticate", json!({"methodId": "api-key"})).await;
    let why = "unknown authentication method `api-key`; `initialize` lists the methods";
    assert_eq!((code, &*message), (-32602, why));
    let (code, message) = editor.refused("logout", json!({})).await;
    assert!(code == -32601 && message.contains("not offered"), "{code} {message}");
    editor.is_alive().await;
    editor.ended().await;
}
