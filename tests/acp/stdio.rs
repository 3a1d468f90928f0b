//! The ACP connection in front of scripted upstreams. Clients send wrong requests, at the wrong
//! time or all at once; the tests check each response.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use crate::script::scripts;
use crate::support::editor::{CWD, Editor, Frames, Setup, open, open_with, said};
use crate::support::gateway::token;
use crate::support::langgraph::{LangGraph, Run, soon};
use serde_json::{Value, json};
use threadway::credentials::Credentials;
use threadway::runs::DEFAULT_LOG_BYTES;
use threadway::sessions::{MAX_REQUESTS, MAX_WAITING_BYTES, Settings};
use threadway_translate::acp::mcp::Secrets;

// === frames that cannot be parsed ===

#[tokio::test]
async fn line_that_is_no_message_is_refused_and_the_next_one_is_read() {
    let (server, mut editor) = open().await;
    // The line, and the id, the code and the message of the error.
    for row in [
        r"nonsense => null -32700 the line is not JSON (byte 2)",
        r#"{"jsonrpc":"2.0","id":1, => null -32700 the line is not JSON (byte 24)"#,
        r"[] => null -32600 batches are no part of ACP; send one message a line",
        r#"[{"jsonrpc":"2.0","id":1,"method":"session/list"}] => null -32600 batches are no part of ACP; send one message a line"#,
        r"7 => null -32600 the message is no object",
        r"null => null -32600 the message is no object",
        r#"{"jsonrpc":"2.0","id":1.5,"method":"session/list"} => null -32600 `id` is no whole number, string or null"#,
        r#"{"jsonrpc":"2.0","id":{"a":1},"method":"session/list"} => null -32600 `id` is no whole number, string or null"#,
        r#"{"jsonrpc":"2.0","id":[],"method":"session/list"} => null -32600 `id` is no whole number, string or null"#,
        r#"{"jsonrpc":"2.0","id":true,"method":"session/list"} => null -32600 `id` is no whole number, string or null"#,
        r#"{"id":4,"method":"session/list"} => 4 -32600 `jsonrpc` is not "2.0""#,
        r#"{"jsonrpc":"1.0","id":4,"method":"session/list"} => 4 -32600 `jsonrpc` is not "2.0""#,
        r#"{"jsonrpc":"2.0","id":"x","method":5} => "x" -32600 `method` is no string"#,
        r#"{"jsonrpc":"2.0","id":4} => 4 -32600 a message without method and result"#,
        r#"{"jsonrpc":"2.0"} => null -32600 a message without `method` and `id`"#,
        r#"{} => null -32600 `jsonrpc` is not "2.0""#,
    ] {
        let (line, expected) = row.split_once(" => ").unwrap();
        let (id, code, message) = editor.refused_line(line).await;
        assert_eq!(format!("{id} {code} {message}"), expected, "{line}");
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
async fn blank_lines_and_carriage_returns_are_ignored() {
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
async fn line_without_its_end_is_ignored() {
    let (_server, mut editor) = open().await;
    editor.raw(r#"{"jsonrpc":"2.0","id":9,"method":"session/list","params":{}}"#).await;
    editor.hang_up().await;
    assert_eq!(editor.line().await, "");
    editor.ended().await;
}

#[tokio::test]
async fn line_that_is_too_long_is_refused() {
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
async fn line_that_is_long_and_allowed_is_read() {
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
async fn method_that_is_unknown_is_refused_or_ignored() {
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
async fn initialize_comes_before_all_other_requests() {
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
async fn initialize_answers_every_version_with_version_one() {
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
async fn params_of_the_wrong_form_are_refused_without_repeating_them() {
    let (_server, mut editor) = open().await;
    let session = editor.session().await;
    for row in [
        r"session/new {}",
        r"session/new null",
        r#"session/new ["s3cr3t"]"#,
        r#"session/new "s3cr3t""#,
        r#"session/new {"cwd": 7, "mcpServers": []}"#,
        r#"session/new {"cwd": {"s3cr3t": 1}, "mcpServers": []}"#,
        r#"session/load {"sessionId": ["s3cr3t"], "cwd": "/srv/app", "mcpServers": []}"#,
        r#"session/load {"sessionId": SESSION, "mcpServers": []}"#,
        r#"session/resume {"sessionId": SESSION, "cwd": ["s3cr3t"]}"#,
        r#"session/prompt {"sessionId": SESSION, "prompt": "s3cr3t"}"#,
        r#"session/prompt {"sessionId": SESSION, "prompt": ["s3cr3t"]}"#,
        r#"session/prompt {"sessionId": SESSION, "prompt": [{"type": "s3cr3t"}]}"#,
        r#"session/prompt {"sessionId": SESSION, "prompt": [{"type": "text", "text": 8154711}]}"#,
        r#"session/prompt {"sessionId": SESSION, "prompt": [{"type": "text", "text": {"s3cr3t": 1}}]}"#,
        r#"session/prompt {"sessionId": SESSION, "prompt": [{"type": "image", "data": "s3cr3t"}]}"#,
        r#"session/prompt {"prompt": []}"#,
        r#"session/set_mode {"sessionId": SESSION, "modeId": {"s3cr3t": "s3cr3t"}}"#,
        r#"session/set_mode {"sessionId": SESSION, "modeId": 8154711}"#,
        r#"session/set_config_option {"sessionId": SESSION, "configId": "x"}"#,
        r#"session/set_config_option {"sessionId": SESSION, "configId": "x", "type": "s3cr3t", "value": ["s3cr3t"]}"#,
        r#"session/close {"sessionId": 8154711}"#,
        r#"session/close {"sessionId": {"a": "s3cr3t"}}"#,
        r#"session/delete {"sessionId": ["s3cr3t"]}"#,
        r#"session/list {"cwd": {"s3cr3t": 1}}"#,
        r#"session/list "s3cr3t""#,
        r#"authenticate {"methodId": {"s3cr3t": 1}}"#,
        r#"session/new {"cwd": "/srv/app", "mcpServers": {"s3cr3t": 1}}"#,
        r#"session/new {"cwd": "/srv/app", "mcpServers": "s3cr3t"}"#,
    ] {
        let (method, params) = row.split_once(' ').unwrap();
        let params = params.replace("SESSION", &format!("\"{session}\""));
        let params = serde_json::from_str(&params).unwrap();
        editor.raw(request_line(77, method, &params) + "\n").await;
        let told = editor.next_unchecked().await;
        let (code, message) = (&told["error"]["code"], told["error"]["message"].as_str().unwrap());
        assert_eq!(*code, -32602, "{row}: {message}");
        assert!(message.starts_with(&format!("{method}: ")), "{row}: {message}");
        assert!(!told.to_string().contains("s3cr3t"), "{row}: {message}");
        assert!(!told.to_string().contains("8154711"), "{row}: {message}");
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

scripts! {

#[tokio::test]
async fn session_that_is_not_open_is_refused_by_every_method() = r#"
    rows $id $is_uuid
        nobody false
        "" false
        ../../etc false
        0f9cfe5e-7d44-4d4f-8aef-a4e7c1d4a2a1 true
    let $no "session `$id` is not open on this connection; load or resume it, or make a new one"
    refused session/prompt {"sessionId": "$id", "prompt": [{"type": "text", "text": "hi"}]}
        -32002 "$no"
    refused session/set_mode {"sessionId": "$id", "modeId": "x"} -32002 "$no"
    refused session/set_config_option {"sessionId": "$id", "configId": "x", "value": "y"}
        -32002 "$no"
    let $none "there is no session `$id`: sessions exist from their first prompt until they are
        deleted; make a new one"
    let $open {"sessionId": "$id", "cwd": "/srv/app", "mcpServers": []}
    when $is_uuid refused session/load $open -32002 "$none"
    when $is_uuid refused session/resume $open -32002 "$none"
    # Closing or deleting an unknown session succeeds.
    when $is_uuid call session/close {"sessionId": "$id"}; when $is_uuid is response/result {}
    when $is_uuid call session/delete {"sessionId": "$id"}; when $is_uuid is response/result {}
    notify session/cancel {"sessionId": "$id"}
"#;

#[tokio::test]
async fn directory_is_absolute_and_the_sessions_own() = r#"
    rows $cwd
        "" app ./app ../app ~
    let $why "cwd `$cwd` is not an absolute path"
    let $open {"sessionId": "11111111-1111-4111-8111-111111111111", "cwd": "$cwd",
        "mcpServers": []}
    refused session/new {"cwd": "$cwd", "mcpServers": []} -32602 "$why"
    refused session/load $open -32602 "$why"; refused session/resume $open -32602 "$why"
    refused session/list {"cwd": "$cwd"} -32602 "$why"
    session A; let $other "session `$A` has cwd /srv/app, not /other; open it with its own cwd"
    refused A session/load {"cwd": "/other", "mcpServers": []} -32602 "$other"
    refused A session/resume {"cwd": "/other", "mcpServers": []} -32602 "$other"
    count "POST /threads" 0
"#;

#[tokio::test]
async fn cursor_is_one_of_ours() = r#"
    rows $cursor
        "" x after: after:-1 after:x after:99999999999999999999999
    refused session/list {"cursor": "$cursor"} -32602
        "`cursor` is not one of this gateway's; send the nextCursor of a list, or none"
    call session/list {"cursor": "t1~4294967295~"}; is response/result {"sessions": []}
"#;

#[tokio::test]
async fn choice_that_does_not_exist_is_refused_with_those_that_do() = r#"
    setup options; session A
    refused A session/set_mode {"modeId": "x"} -32602 "there is no mode `x`; there are `ask`, `auto`"
    refused A session/set_config_option {"configId": "mode", "value": "x"} -32602
        "there is no mode `x`; there are `ask`, `auto`"
    refused A session/set_config_option {"configId": "mode", "type": "boolean", "value": true} -32602
        "mode is no switch; send one of its values"
    refused A session/set_config_option {"configId": "assistant", "value": "x"} -32602
        "there is no agent `x`; there are `agent`"
    refused A session/set_config_option {"configId": "x", "value": "x"} -32602
        "there is no option `x`"
    refused A session/set_config_option {"configId": "config:x", "value": "x"} -32602
        "there is no option `config:x`"
    refused A session/set_config_option {"configId": "config:model", "value": "x"} -32602
        "`model` takes no such value; send one of its options"
    refused A session/set_config_option
        {"configId": "config:model", "type": "boolean", "value": true} -32602
        "`model` takes no such value; send one of its options"
    refused A session/set_config_option {"configId": "config:flag", "value": "perhaps"} -32602
        "`flag` takes no such value; send one of its options"
    count PATCH 0
"#;

#[tokio::test]
async fn prompt_without_content_or_with_undeclared_content_is_refused() = r#"
    rows $prompt $why
        [] "`prompt` is empty; send at least one content block"
        [{"type": "text", "text": ""}] "`prompt` is empty; send at least one content block"
        [{"type": "text", "text": " \n "}, {"type": "text", "text": ""}]
            "`prompt` is empty; send at least one content block"
        [{"type": "text", "text": "a"}, {"type": "image", "data": "AAAA", "mimeType": "image/png"}]
            "prompt[1]: this agent takes no images, as its promptCapabilities say; if the graph's
            model takes them, add \\\"image\\\" to `prompt` under `[acp]` in the config file of threadway"
        [{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]
            "prompt[0]: this agent takes no audio, as its promptCapabilities say; if the graph's
            model takes them, add \\\"audio\\\" to `prompt` under `[acp]` in the config file of threadway"
    session A; refused A session/prompt {"prompt": $prompt} -32602 "$why"
    count "POST /threads/" 0
"#;

}

#[tokio::test]
async fn request_id_is_that_of_one_request_at_a_time() {
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
async fn requests_beyond_the_limit_are_refused() {
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

// === a client that does not read ===

/// Sends 500 tokens at once. Returns their text.
async fn burst(run: &mut Run, batch: usize) -> String {
    let texts: Vec<_> = (0..500).map(|at| format!("{batch}.{at} ")).collect();
    run.exchange.send(texts.iter().map(|text| token("m", text)).collect::<String>()).await;
    texts.concat()
}

#[tokio::test]
async fn client_that_reads_late_gets_all_updates_and_holds_little_memory() {
    const UPDATES: usize = 200_000;
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "hi").await;
    let mut run = server.run().await;
    run.sends("values", &json!({"messages": [run.said()]})).await;
    let mut expected = String::new();
    let mut most = 0;
    for batch in 0..UPDATES / 500 {
        expected += &burst(&mut run, batch).await;
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
async fn process_stays_small_and_ends_with_its_client() {
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
        expected += &burst(&mut run, batch).await;
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
async fn request_before_the_end_of_the_input_is_answered() {
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
async fn session_that_is_closed_stops_its_run_and_is_gone() {
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
async fn session_list_continues_by_pages_and_by_directory() {
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
async fn mcp_server_secrets_are_not_forwarded() {
    let (servers, all) = told_of_servers(Secrets::Withheld).await;
    let server = |kind: &str, name: &str, url: &str| json!({"type": kind, "name": name, "url": url, "headers": []});
    let docs = server("http", "docs", "https://docs/mcp");
    assert_eq!(servers, json!([docs, server("sse", "plain", "https://plain/sse")]));
    assert!(!all.contains("s3cr3t"), "{all}");
}

#[tokio::test]
async fn mcp_server_secrets_are_forwarded_where_the_operator_says_so() {
    let (servers, _) = told_of_servers(Secrets::Forwarded).await;
    assert_eq!(servers[0]["headers"][0]["value"], "Bearer s3cr3t");
    assert_eq!(servers[0]["url"], "https://u:s3cr3t@docs/mcp?key=s3cr3t");
    assert_eq!(servers.as_array().unwrap().len(), 2);
}

// === keys ===

#[tokio::test]
async fn login_stores_a_key_and_logout_forgets_it() {
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
async fn login_is_not_offered_where_the_server_wants_no_key() {
    let (_server, mut editor) = open().await;
    let (code, message) = editor.refused("authenticate", json!({"methodId": "api-key"})).await;
    let why = "unknown authentication method `api-key`; `initialize` lists the methods";
    assert_eq!((code, &*message), (-32602, why));
    let (code, message) = editor.refused("logout", json!({})).await;
    assert!(code == -32601 && message.contains("not offered"), "{code} {message}");
    editor.is_alive().await;
    editor.ended().await;
}
