//! `threadway translate`: a recorded stream on stdin, the client's bytes on stdout, and the exit
//! status.

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use crate::support::capture::{self, Capture};
use crate::support::judge;
use crate::support::schema::Schema;
use serde_json::{Value, json};

const CAPTURE: &str = "py-0.16.7/agent-combo";
const RUN: &str = "01a200b7-5ee6-7592-b13b-546489e59c9e";

fn spawn(args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_threadway"))
        .args(args)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Translates bytes to the end. The process may exit before it has read all of them.
fn translate(args: &[&str], bytes: &[u8]) -> Output {
    translate_to("agui", args, bytes)
}

fn translate_to(target: &str, args: &[&str], bytes: &[u8]) -> Output {
    let mut child = spawn(&[&["translate", "--to", target], args].concat());
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(bytes).unwrap_or_default());
        child.wait_with_output().unwrap()
    })
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("a signal ended it")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The events of an SSE body, whose frames have one data line each.
fn events(body: &[u8]) -> Vec<Value> {
    let body = text(body);
    let frames = body.strip_suffix("\n\n").unwrap().split("\n\n");
    frames
        .map(|frame| serde_json::from_str(frame.strip_prefix("data: ").unwrap()).unwrap())
        .collect()
}

/// A file of this test, written anew each time.
fn file(name: &str, content: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_whole_capture_becomes_what_its_client_would_have_got() {
    let capture = Capture::named(CAPTURE);
    let golden = capture::root().join("golden").join(format!("{CAPTURE}.sse"));
    // The golden file calls the run `R`; here the stream has the run's id.
    let golden = fs::read_to_string(golden).unwrap();
    let golden = golden.replace(r#""run_id":"R""#, &format!(r#""run_id":"{RUN}""#));
    let input = file("whole.json", &capture.input().to_string());
    let output = translate(&["--input", &input], &capture.bytes);
    assert_eq!(text(&output.stdout), golden);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(code(&output), 0);
}

#[test]
fn the_ids_are_those_that_are_given_else_those_of_the_stream() {
    let capture = Capture::named(CAPTURE);
    let input = file("ids.json", r#"{"threadId":"I","runId":"i","messages":[]}"#);
    for (args, thread, run, langgraph) in [
        (vec![], "thread", RUN, "thread"),
        (vec!["--run-id", "r"], "r", "r", "r"),
        (vec!["--thread-id", "t"], "t", RUN, "t"),
        (vec!["--thread-id", "t", "--run-id", "r"], "t", "r", "t"),
        (vec!["--input", &input], "I", "i", "I"),
        (vec!["--input", &input, "--thread-id", "t", "--run-id", "r"], "I", "r", "t"),
    ] {
        let events = events(&translate(&args, &capture.bytes).stdout);
        let [first, last] = [events.first().unwrap(), events.last().unwrap()];
        assert_eq!(first["metadata"]["langgraph"]["run_id"], RUN, "{args:?}");
        assert_eq!(first["metadata"]["langgraph"]["thread_id"], langgraph, "{args:?}");
        for event in [first, last] {
            assert_eq!((&event["threadId"], &event["runId"]), (&thread.into(), &run.into()));
        }
    }
}

#[test]
fn a_conversation_under_another_key_is_read_where_that_is_said() {
    let parts = |key: &str| {
        let message = json!({"type": "ai", "id": "a", "content": "hi"});
        let values = json!({key: [message], "n": 1});
        format!(
            "event: metadata\ndata: {}\n\nevent: values\ndata: {values}\n\n",
            json!({"run_id": RUN, "attempt": 1})
        )
    };
    for target in ["agui", "acp"] {
        let expected = translate_to(target, &[], parts("messages").as_bytes());
        assert!(text(&expected.stdout).contains("hi"), "{target}");
        let args = ["--messages-key", "chat_history"];
        let output = translate_to(target, &args, parts("chat_history").as_bytes());
        assert_eq!(text(&output.stdout), text(&expected.stdout), "{target}");
        assert_eq!(code(&output), 0);
    }
    let refused = translate(&["--messages-key", "__interrupt__"], b"");
    assert_eq!(code(&refused), 64);
    assert!(text(&refused.stderr).contains("not beginning with `__`"), "{}", text(&refused.stderr));
}

#[test]
fn a_json_document_a_line_holds_the_same_events() {
    let capture = Capture::named(CAPTURE);
    let sse = translate(&[], &capture.bytes);
    let lines = translate(&["--ndjson"], &capture.bytes);
    assert_eq!(text(&lines.stdout), text(&sse.stdout).replace("\n\n", "\n").replace("data: ", ""));
    assert_eq!(code(&lines), 0);
}

#[test]
fn a_capture_is_the_turn_of_a_session_to_acp() {
    let capture = Capture::named(CAPTURE);
    let golden = capture::root().join("golden/acp").join(format!("{CAPTURE}.jsonl"));
    let golden = fs::read_to_string(golden).unwrap();
    for args in [vec!["--thread-id", "T", "--cwd", "/srv/app"], vec!["--run-id", "T"]] {
        let output = translate_to("acp", &args, &capture.bytes);
        assert_eq!(text(&output.stdout), golden);
        assert_eq!(text(&output.stderr), "");
        assert_eq!(code(&output), 0);
    }
    let output = translate_to("acp", &[], &capture.bytes[..capture.bytes.len() / 2]);
    let lines = text(&output.stdout);
    let response: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!((&response["id"], &response["error"]["code"]), (&1.into(), &(-32603).into()));
    assert_eq!(code(&output), 2);
}

#[test]
fn a_capture_that_is_cut_anywhere_ends_with_an_error_and_is_legal() {
    let schema = Schema::load();
    let capture = Capture::named(CAPTURE);
    let length = capture.bytes.len();
    // Inside the first part, inside a later one, and inside the last one's blank line.
    for cut in [1, 20, length / 3, length / 2, length - 2] {
        let output = translate(&[], &capture.bytes[..cut]);
        let events = events(&output.stdout);
        judge::legal(&schema, &events).unwrap();
        let last = events.last().unwrap();
        assert_eq!(last["type"], "RUN_ERROR", "cut at {cut}");
        assert_eq!(last["code"], "stream_incomplete", "cut at {cut}");
        let told = "threadway: the capture is incomplete: ";
        assert!(text(&output.stderr).starts_with(told), "{}", text(&output.stderr));
        assert_eq!(code(&output), 2, "cut at {cut}");
    }
}

#[test]
fn a_capture_that_ends_between_parts_but_in_the_middle_of_a_message_is_not_whole() {
    let capture = text(&Capture::named(CAPTURE).bytes);
    let (before, _) = capture.split_once("\"text\":\"ing \"").unwrap();
    let (whole_parts, _) = before.rsplit_once("event: messages").unwrap();
    let output = translate(&[], whole_parts.as_bytes());
    assert_eq!(events(&output.stdout).last().unwrap()["code"], "stream_incomplete");
    assert_eq!(code(&output), 2);
}

#[test]
fn garbage_becomes_a_legal_stream_that_ends_with_an_error() {
    let schema = Schema::load();
    let every_byte: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let cases: [&[u8]; 6] = [
        b"",
        b"\n\n\n",
        b"hello\n\n",
        b"data: {}\n\n",
        b"event: nothing\ndata: [\n\n",
        &every_byte,
    ];
    for bytes in cases {
        let output = translate(&[], bytes);
        let shown = String::from_utf8_lossy(bytes.get(..20).unwrap_or(bytes));
        judge::legal(&schema, &events(&output.stdout)).unwrap();
        assert_eq!(code(&output), 2, "{shown:?}: {}", text(&output.stderr));
        assert!(!text(&output.stderr).contains("panicked"), "{}", text(&output.stderr));
    }
}

#[test]
fn events_are_written_as_soon_as_they_can_be_made() {
    let mut child = spawn(&["translate", "--to", "agui"]);
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let metadata = b"event: metadata\ndata: {\"run_id\":\"R\",\"attempt\":1}\n\n";
    stdin.write_all(metadata).unwrap();
    let mut first = [0; 28];
    stdout.read_exact(&mut first).unwrap();
    assert_eq!(text(&first), "data: {\"type\":\"RUN_STARTED\",");
    drop(stdin);
    stdout.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let mut child = spawn(&["translate", "--to", "agui"]);
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    // The process may exit before it has read all bytes.
    stdin.write_all(&Capture::named(CAPTURE).bytes).unwrap_or_default();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stderr), "");
    assert_eq!(code(&output), 0);
}

#[test]
fn a_wrong_command_line_is_told_and_nothing_is_done() {
    let no_input = file("wrong.json", r#"{"threadId":"t"}"#);
    let missing = format!("--input {no_input}: `runId` is missing; a RunAgentInput has one");
    for (args, told) in [
        (vec![], "Usage: threadway"),
        (vec!["fly"], "unrecognized subcommand 'fly'"),
        (vec!["translate"], "--to <TO>"),
        (vec!["translate", "--to", "morse"], "possible values: agui, acp"),
        (vec!["translate", "--to", "agui", "--fast"], "unexpected argument '--fast'"),
        (vec!["translate", "--to", "agui", "--log", "a=b=c"], "--log"),
        (vec!["translate", "--to", "agui", "--input", "/nowhere"], "--input /nowhere: "),
        (vec!["translate", "--to", "agui", "--input", &no_input], &missing),
        (vec!["translate", "--to", "acp", "--input", &no_input], "--input: ACP has none"),
        (vec!["serve"], "--upstream: expected the URL of the LangGraph server"),
        (vec!["serve", "--config", "/nowhere"], "/nowhere; expected a file that can be read"),
    ] {
        let output = spawn(&args).wait_with_output().unwrap();
        let stderr = text(&output.stderr);
        assert!(stderr.contains(told), "{args:?}: {stderr}");
        assert_eq!(text(&output.stdout), "", "{args:?}");
        assert_eq!(code(&output), 64, "{args:?}");
    }
}

#[test]
fn what_is_asked_for_goes_to_stdout() {
    for (args, told) in [
        (["--help"].as_slice(), "64  the command line or the configuration is wrong"),
        (&["serve", "--help"], "64  the command line or the configuration is wrong"),
        (&["translate", "--help"], "2   the recording is incomplete"),
        (&["--version"], concat!("threadway ", env!("CARGO_PKG_VERSION"))),
    ] {
        let output = spawn(args).wait_with_output().unwrap();
        assert!(text(&output.stdout).contains(told), "{args:?}: {}", text(&output.stdout));
        assert_eq!(text(&output.stderr), "");
        assert_eq!(code(&output), 0, "{args:?}");
    }
}

#[cfg(unix)]
mod with_python {
    use super::*;

    #[test]
    fn a_person_who_types_the_command_reads_what_it_waits_for() {
        const END_OF_INPUT: &str = "\u{4}";
        let helper = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/terminal.py");
        let steps = json!([["waiting for a recorded LangGraph stream on stdin", END_OF_INPUT]]);
        let mut command = Command::new("python3");
        command.env_remove("THREADWAY_LOG").args([helper, &steps.to_string()]);
        command.args([env!("CARGO_BIN_EXE_threadway"), "translate", "--to", "agui"]);
        let output = command.output().unwrap();
        let shown = text(&output.stdout);
        // An empty recording is incomplete.
        assert_eq!(code(&output), 2, "{shown} {}", text(&output.stderr));
        assert!(shown.contains("name a file with `< FILE` (ctrl-c exits)"), "{shown}");
    }
}
