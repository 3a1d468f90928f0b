//! Sessions that several clients use: what one changes, the others keep and are shown.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::support::clock::{HeldClock, within};
use crate::support::editor::{CWD, Editor, Setup, Told, open, open_with};
use crate::support::langgraph::{LangGraph, state};

const SHARED: &str = "44444444-4444-4444-8444-444444444444";

fn of(session: &str, mut params: Value) -> Value {
    params["sessionId"] = json!(session);
    params
}

fn open_params(session: &str) -> Value {
    of(session, json!({"cwd": CWD, "mcpServers": []}))
}

/// A graph with two settings.
fn fields() -> Value {
    let field = |values: [&str; 3]| json!({"default": values[0], "enum": values, "type": "string"});
    json!({"config_schema": {"properties": {
        "model": field(["small", "medium", "large"]), "style": field(["plain", "rich", "terse"])}}})
}

/// A server with a session of another process, and clients that have it open.
async fn shared<const N: usize>(modes: &[&str]) -> (LangGraph, [Editor; N]) {
    let server = LangGraph::start().await;
    server.books().schemas = fields();
    let metadata = json!({"acp_session": true, "cwd": CWD, "title": "T"});
    server.thread(SHARED, metadata, Some(state("R0", &json!([]), &json!([]))));
    let mut editors = Vec::new();
    for _ in 0..N {
        let mut editor = Editor::initialized(&server.url, &Setup::with_modes(modes)).await;
        editor.call("session/resume", open_params(SHARED)).await;
        editors.push(editor);
    }
    (server, editors.try_into().unwrap_or_else(|_| unreachable!()))
}

async fn set(editor: &mut Editor, option: &str, value: &str) -> Told {
    let params = of(SHARED, json!({"configId": option, "value": value}));
    let id = editor.request("session/set_config_option", params).await;
    let told = editor.until(id).await;
    told.result();
    told
}

/// Prompts, and lets the run end. Returns the frames up to the response, and the request of the run.
async fn prompted(server: &mut LangGraph, editor: &mut Editor, session: &str) -> (Told, Value) {
    let prompt = editor.prompt(session, "go on").await;
    let run = server.run().await;
    let body = run.body.clone();
    run.ends("success", Some(state("R", &json!([]), &json!([])))).await;
    let told = editor.until(prompt).await;
    assert_eq!(told.stop_reason(), "end_turn");
    (told, body)
}

fn current(options: &Value, id: &str) -> Value {
    let options = options["configOptions"].as_array().unwrap();
    options.iter().find(|option| option["id"] == id).unwrap()["currentValue"].clone()
}

fn metadata(server: &LangGraph, session: &str) -> Value {
    server.books().threads[session].metadata.clone()
}

fn rename(server: &LangGraph, session: &str, title: &str) {
    server.books().threads.get_mut(session).unwrap().metadata["title"] = json!(title);
}

/// The changes of a thread that were requested.
fn changes(server: &LangGraph) -> Vec<Value> {
    server.asked("PATCH").into_iter().map(|body| body["metadata"].clone()).collect()
}

// === a thread that was deleted ===

#[tokio::test]
async fn a_session_whose_thread_was_deleted_is_unknown_to_its_next_request() {
    let prompt = json!({"prompt": [{"type": "text", "text": "again"}]});
    for (method, params) in [
        ("session/prompt", prompt),
        ("session/set_mode", json!({"modeId": "plan"})),
        ("session/set_config_option", json!({"configId": "mode", "value": "plan"})),
    ] {
        let (mut server, mut editor) = open_with(Setup::with_modes(&["act", "plan"])).await;
        let session = editor.prompted_session(&mut server, CWD).await;
        server.books().threads.clear();
        let (code, message) = editor.refused(method, of(&session, params.clone())).await;
        assert!(code == -32002 && message.contains("was deleted"), "{method}: {code} {message}");
        // The session has left this process.
        let (code, message) = editor.refused(method, of(&session, params)).await;
        assert!(code == -32002 && message.contains("is not open"), "{method}: {code} {message}");
        for method in ["session/load", "session/resume"] {
            assert_eq!(editor.refused(method, open_params(&session)).await.0, -32002);
        }
        assert!(server.books().threads.is_empty(), "{method} has made a thread");
        // The connection goes on.
        editor.prompted_session(&mut server, CWD).await;
        editor.ended().await;
    }
}

#[tokio::test]
async fn a_thread_that_is_deleted_while_its_run_starts_is_not_made_anew() {
    for (status, body) in [
        (404, r#"{"detail":"Thread or assistant not found."}"#),
        // The JavaScript server.
        (422, "Thread is already running a task. Wait for it to finish."),
    ] {
        for is_first in [true, false] {
            let (mut server, mut editor) = open().await;
            let session = if is_first {
                editor.session().await
            } else {
                editor.prompted_session(&mut server, CWD).await
            };
            let prompt = editor.prompt(&session, "hi").await;
            let start = server.held("/runs/stream").await;
            server.books().threads.clear();
            start.json(status, body).await;
            let (code, message) = editor.until(prompt).await.error();
            assert!(code == -32002 && message.contains("was deleted"), "{code} {message}");
            assert!(server.books().threads.is_empty());
            let (code, _) =
                editor.refused("session/set_mode", of(&session, json!({"modeId": "x"}))).await;
            assert_eq!(code, -32002);
            editor.ended().await;
        }
    }
}

#[tokio::test]
async fn a_resumed_session_whose_thread_was_deleted_is_unknown_too() {
    let (server, [mut editor]) = shared::<1>(&[]).await;
    server.books().threads.clear();
    let prompt = editor.prompt(SHARED, "hi").await;
    assert_eq!(editor.until(prompt).await.error().0, -32002);
    assert!(server.asked("POST /threads/").iter().all(|body| body["if_not_exists"].is_null()));
    editor.ended().await;
}

// === what others have changed ===

#[tokio::test]
async fn a_change_writes_what_it_changes() {
    let (mut server, [mut editor]) = shared::<1>(&["act", "plan"]).await;
    rename(&server, SHARED, "Taxes");
    set(&mut editor, "config:model", "large").await;
    set(&mut editor, "mode", "plan").await;
    editor.call("session/set_mode", of(SHARED, json!({"modeId": "act"}))).await;
    let expected = [
        json!({"acp_config/agent/model": "large"}),
        json!({"acp_mode": "plan"}),
        json!({"acp_mode": "act"}),
    ];
    assert_eq!(changes(&server), expected);
    prompted(&mut server, &mut editor, SHARED).await;
    assert_eq!(changes(&server).len(), 3, "a prompt changes nothing");
    assert_eq!(metadata(&server, SHARED)["title"], "Taxes");
    editor.ended().await;
}

#[tokio::test]
async fn two_clients_keep_each_others_choices_and_see_them_at_their_next_prompt() {
    let (mut server, [mut a, mut b]) = shared::<2>(&["act", "plan"]).await;
    set(&mut a, "config:model", "large").await;
    // The change of another client also shows the choices so far.
    let told = set(&mut b, "config:style", "rich").await;
    assert_eq!(current(&told.result(), "config:model"), "large");
    a.call("session/set_mode", of(SHARED, json!({"modeId": "plan"}))).await;
    let shown_to_a = a.next().await["params"]["update"].clone();
    let (told, run) = prompted(&mut server, &mut b, SHARED).await;
    let is_options = |update: &Value| update["sessionUpdate"] == "config_option_update";
    let shown_to_b = told.of(SHARED).into_iter().find(|update| is_options(update)).unwrap();
    for options in [shown_to_a, shown_to_b] {
        assert_eq!(current(&options, "mode"), "plan");
        assert_eq!(current(&options, "config:model"), "large");
        assert_eq!(current(&options, "config:style"), "rich");
    }
    let (_, also) = prompted(&mut server, &mut a, SHARED).await;
    for run in [run, also] {
        assert_eq!(run["config"]["configurable"], json!({"model": "large", "style": "rich"}));
    }
    // Nothing is sent twice.
    let (told, _) = prompted(&mut server, &mut b, SHARED).await;
    assert_eq!(told.of(SHARED), Vec::<Value>::new());
    a.ended().await;
    b.ended().await;
}

#[tokio::test]
async fn a_mode_of_another_client_is_sent_as_the_current_mode() {
    let (mut server, [mut a, mut b]) = shared::<2>(&["act", "plan"]).await;
    a.call("session/set_mode", of(SHARED, json!({"modeId": "plan"}))).await;
    let (told, _) = prompted(&mut server, &mut b, SHARED).await;
    let mode = json!({"sessionUpdate": "current_mode_update", "currentModeId": "plan"});
    assert!(told.of(SHARED).contains(&mode), "{:?}", told.updates);
    a.hang_up().await;
    a.rest().await;
    b.ended().await;
}

/// The last choice counts also if its client was shown the value already.
#[tokio::test]
async fn a_repeated_choice_counts_after_that_of_another_client() {
    let (mut server, [mut a, mut b]) = shared::<2>(&[]).await;
    set(&mut a, "config:model", "large").await;
    set(&mut b, "config:model", "medium").await;
    set(&mut a, "config:model", "large").await;
    for editor in [&mut a, &mut b] {
        let (_, run) = prompted(&mut server, editor, SHARED).await;
        assert_eq!(run["config"]["configurable"]["model"], "large");
    }
    a.ended().await;
    b.ended().await;
}

#[tokio::test]
async fn permanent_answers_of_two_clients_are_both_kept() {
    let (mut server, [mut a, mut b]) = shared::<2>(&[]).await;
    let asked = |path: &str| {
        let value = json!({"action_requests": [{"name": "write", "args": {"path": path}}],
            "review_configs": [{"action_name": "write", "allowed_decisions": ["approve", "reject"]}]});
        json!([{"id": format!("q-{path}"), "value": value}])
    };
    // Both are asked before either answers.
    for (editor, path) in [(&mut a, "a"), (&mut b, "b")] {
        let prompt = editor.prompt(SHARED, "write").await;
        server.run().await.asks(&json!([]), &asked(path)).await;
        let (_, request) = editor.until_asked().await;
        let always = json!({"outcome": {"outcome": "selected", "optionId": "allow_always"}});
        editor.reply(&request, always).await;
        server.run().await.ends("success", Some(state("R", &json!([]), &json!([])))).await;
        assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    }
    let stored = metadata(&server, SHARED);
    let is_answer = |(name, _): &(&String, &Value)| name.starts_with("acp_always/");
    assert_eq!(stored.as_object().unwrap().iter().filter(is_answer).count(), 2, "{stored}");
    // Each holds for both clients.
    for (editor, path) in [(&mut a, "b"), (&mut b, "a")] {
        let prompt = editor.prompt(SHARED, "write").await;
        server.run().await.asks(&json!([]), &asked(path)).await;
        server.run().await.ends("success", Some(state("R", &json!([]), &json!([])))).await;
        let told = editor.until(prompt).await;
        assert_eq!((told.stop_reason(), told.requests.len()), ("end_turn".to_owned(), 0), "{path}");
    }
    a.ended().await;
    b.ended().await;
}

#[tokio::test]
async fn a_title_that_another_client_gives_is_sent_with_the_next_prompt() {
    let (mut server, [mut editor]) = shared::<1>(&[]).await;
    prompted(&mut server, &mut editor, SHARED).await;
    rename(&server, SHARED, "Taxes 2026");
    let (told, _) = prompted(&mut server, &mut editor, SHARED).await;
    let title = json!({"sessionUpdate": "session_info_update", "title": "Taxes 2026"});
    assert_eq!(told.of(SHARED), [title]);
    assert_eq!(changes(&server), Vec::<Value>::new());
    editor.ended().await;
}

#[tokio::test]
async fn a_title_that_the_graph_writes_is_sent_when_the_session_is_followed() {
    let (mut server, [mut editor]) = shared::<1>(&[]).await;
    prompted(&mut server, &mut editor, SHARED).await;
    rename(&server, SHARED, "Of the graph");
    let clock = HeldClock::pause();
    let frame = within(&clock, std::time::Duration::from_secs(9), editor.next()).await;
    assert_eq!(frame["params"]["update"]["title"], "Of the graph", "{frame}");
    drop(clock);
    tokio::time::resume();
    editor.ended().await;
}

/// Steps of two clients of one session, and of a page that renames its thread.
#[derive(Clone, Debug)]
enum Step {
    Set(usize, usize, usize),
    Mode(usize, usize),
    Rename(usize),
    Prompt(usize),
    /// A client opens the session in another process.
    Reopen(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..2_usize, 0..2_usize, 0..3_usize)
            .prop_map(|(who, field, value)| Step::Set(who, field, value)),
        (0..2_usize, 0..2_usize).prop_map(|(who, mode)| Step::Mode(who, mode)),
        (0..9_usize).prop_map(Step::Rename),
        (0..2_usize).prop_map(Step::Prompt),
        (0..2_usize).prop_map(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..12)
}

/// What a client is shown of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shown {
    mode: String,
    values: [String; 2],
    title: String,
}

const FIELDS: [&str; 2] = ["config:model", "config:style"];
const VALUES: [[&str; 3]; 2] = [["small", "medium", "large"], ["plain", "rich", "terse"]];
const MODES: [&str; 2] = ["act", "plan"];

impl Shown {
    fn see(&mut self, answer: &Value) {
        if answer.get("configOptions").is_some() {
            self.mode = current(answer, "mode").as_str().unwrap().to_owned();
            self.values = FIELDS.map(|field| current(answer, field).as_str().unwrap().to_owned());
        }
        if let Some(title) = answer["title"].as_str() {
            title.clone_into(&mut self.title);
        }
        if let Some(mode) = answer["currentModeId"].as_str() {
            mode.clone_into(&mut self.mode);
        }
    }

    fn see_all(&mut self, told: &Told) {
        told.of(SHARED).iter().for_each(|update| self.see(update));
        self.see(&told.response["result"]);
    }
}

async fn walk(steps: Vec<Step>) {
    let (mut server, mut editors) = shared::<2>(&MODES).await;
    let words = |shown: [&str; 4]| Shown {
        mode: shown[0].to_owned(),
        values: [shown[1].to_owned(), shown[2].to_owned()],
        title: shown[3].to_owned(),
    };
    let mut truth = words(["act", "small", "plain", "T"]);
    let mut shown = [truth.clone(), truth.clone()];
    let last = [Step::Prompt(0), Step::Prompt(1)];
    for step in steps.into_iter().chain(last) {
        match step {
            Step::Set(who, field, value) => {
                let value = VALUES[field][value];
                value.clone_into(&mut truth.values[field]);
                shown[who].see_all(&set(&mut editors[who], FIELDS[field], value).await);
            }
            Step::Mode(who, mode) => {
                MODES[mode].clone_into(&mut truth.mode);
                let params = of(SHARED, json!({"modeId": MODES[mode]}));
                let id = editors[who].request("session/set_mode", params).await;
                shown[who].see_all(&editors[who].until(id).await);
                let frame = editors[who].next().await;
                shown[who].see(&frame["params"]["update"]);
            }
            Step::Rename(number) => {
                truth.title = format!("T{number}");
                rename(&server, SHARED, &truth.title);
            }
            Step::Prompt(who) => {
                let (told, run) = prompted(&mut server, &mut editors[who], SHARED).await;
                shown[who].see_all(&told);
                assert_eq!(shown[who], truth);
                // Values that are the default may be sent or not.
                for (field, key) in ["model", "style"].iter().enumerate() {
                    let sent = run["config"]["configurable"][key].as_str();
                    assert_eq!(sent.unwrap_or(VALUES[field][0]), truth.values[field], "{key}");
                }
            }
            Step::Reopen(who) => {
                editors[who].left().await;
                editors[who] = Editor::initialized(&server.url, &Setup::with_modes(&MODES)).await;
                let opened = editors[who].call("session/resume", open_params(SHARED)).await;
                shown[who].see(&opened);
                assert_eq!(shown[who].values, truth.values);
                // `session/list` has the title.
                truth.title.clone_into(&mut shown[who].title);
            }
        }
    }
    assert_eq!(metadata(&server, SHARED)["title"], truth.title);
    for mut editor in editors {
        editor.ended().await;
    }
}

#[test]
fn whatever_two_clients_do_nothing_is_lost_and_both_are_shown_the_same() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // A walk takes the time of some requests. `PROPTEST_CASES` raises the number.
    let cases = Config::default().cases / 10;
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let walked = TestRunner::new(config).run(&steps(), |steps| {
        runtime.block_on(walk(steps));
        Ok(())
    });
    walked.unwrap();
}

// === stop, then send ===

#[tokio::test]
async fn a_prompt_after_a_cancel_runs_after_the_cancelled_one() {
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    let first = editor.prompt(&session, "one").await;
    let mut run = server.run().await;
    run.says("m", "working").await;
    editor.until_said("working").await;
    // The cancelled turn waits for the end of its run.
    let clock = HeldClock::pause();
    editor.cancel(&session).await;
    let second = editor.prompt(&session, "two").await;
    // A third would be one too many.
    let third = editor.prompt(&session, "three").await;
    let (code, message) = editor.until(third).await.error();
    assert!(code == -32600 && message.contains("waits"), "{code} {message}");
    server.until("the cancel", |server| !server.cancelled().is_empty()).await;
    run.ends("interrupted", None).await;
    assert_eq!(editor.until(first).await.stop_reason(), "cancelled");
    drop(clock);
    tokio::time::resume();
    let run = server.run().await;
    assert_eq!(run.said()["content"], "two");
    run.ends("success", None).await;
    assert_eq!(editor.until(second).await.stop_reason(), "end_turn");
    // Then the session is free.
    let (_, body) = prompted(&mut server, &mut editor, &session).await;
    assert_eq!(body["input"]["messages"][0]["content"], "go on");
    editor.ended().await;
}

#[tokio::test]
async fn a_prompt_that_nobody_has_cancelled_keeps_the_next_one_out() {
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    let first = editor.prompt(&session, "one").await;
    let run = server.run().await;
    let second = editor.prompt(&session, "two").await;
    let (code, message) = editor.until(second).await.error();
    assert!(code == -32600 && message.contains("session/cancel"), "{code} {message}");
    run.ends("success", None).await;
    assert_eq!(editor.until(first).await.stop_reason(), "end_turn");
    editor.ended().await;
}

#[tokio::test]
async fn a_cancel_stops_the_prompt_that_waits_and_the_next_one_runs() {
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    let first = editor.prompt(&session, "one").await;
    let mut run = server.run().await;
    run.says("m", "working").await;
    editor.until_said("working").await;
    let clock = HeldClock::pause();
    editor.cancel(&session).await;
    let second = editor.prompt(&session, "two").await;
    editor.cancel(&session).await;
    let third = editor.prompt(&session, "three").await;
    assert_eq!(editor.until(second).await.stop_reason(), "cancelled");
    server.until("the cancel", |server| !server.cancelled().is_empty()).await;
    run.ends("interrupted", None).await;
    assert_eq!(editor.until(first).await.stop_reason(), "cancelled");
    drop(clock);
    tokio::time::resume();
    let run = server.run().await;
    assert_eq!(run.said()["content"], "three");
    run.ends("success", None).await;
    assert_eq!(editor.until(third).await.stop_reason(), "end_turn");
    editor.ended().await;
}

#[tokio::test]
async fn a_close_ends_the_prompts_that_run_and_that_wait() {
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    let first = editor.prompt(&session, "one").await;
    let run = server.run().await;
    editor.cancel(&session).await;
    let second = editor.prompt(&session, "two").await;
    let close = editor.request("session/close", of(&session, json!({}))).await;
    server.until("the cancel", |server| !server.cancelled().is_empty()).await;
    run.ends("interrupted", None).await;
    let mut answered = BTreeSet::new();
    while answered.len() < 3 {
        let frame = editor.next().await;
        if let Some(id) = frame["id"].as_u64() {
            let expected = if id == close { json!({}) } else { json!({"stopReason": "cancelled"}) };
            assert_eq!(frame["result"], expected);
            answered.insert(id);
        }
    }
    assert_eq!(answered, BTreeSet::from([first, second, close]));
    assert_eq!(server.asked(&format!("POST /threads/{session}/runs/stream")).len(), 1);
    editor.ended().await;
}

#[tokio::test]
async fn a_load_after_a_cancel_waits_for_the_cancelled_prompt() {
    let (mut server, mut editor) = open().await;
    for method in ["session/load", "session/resume"] {
        let session = editor.session().await;
        let prompt = editor.prompt(&session, "one").await;
        let run = server.run().await;
        editor.cancel(&session).await;
        let load = editor.request(method, open_params(&session)).await;
        server.until("the cancel", |server| server.cancelled().contains(&run.id)).await;
        run.ends("interrupted", None).await;
        assert_eq!(editor.until(prompt).await.stop_reason(), "cancelled");
        editor.until(load).await.result();
    }
    editor.ended().await;
}

// === a prompt before its run ===

/// A client whose prompt with an image waits to learn what the model takes.
async fn undecided() -> (LangGraph, Editor, String, u64) {
    let server = LangGraph::start().await;
    let mut editor = Editor::initialized(&server.url, &Setup::default()).await;
    let session = editor.session().await;
    server.hold("GET /assistants/");
    // What was learnt for `initialize` counts for a minute.
    let clock = HeldClock::pause();
    clock.advance(std::time::Duration::from_secs(61)).await;
    drop(clock);
    tokio::time::resume();
    let image = json!({"type": "image", "data": "AA==", "mimeType": "image/png"});
    let params = of(&session, json!({"prompt": [image]}));
    let prompt = editor.request("session/prompt", params).await;
    (server, editor, session, prompt)
}

#[tokio::test]
async fn a_prompt_is_cancelled_while_it_waits_for_the_models_abilities() {
    let (mut server, mut editor, session, prompt) = undecided().await;
    let held = server.held("GET /assistants/").await;
    editor.cancel(&session).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "cancelled");
    drop(held);
    assert!(server.books().threads.is_empty());
    editor.hang_up().await;
    editor.rest().await;
}

#[tokio::test]
async fn a_session_is_closed_while_its_prompt_waits_for_the_models_abilities() {
    let (mut server, mut editor, session, prompt) = undecided().await;
    let held = server.held("GET /assistants/").await;
    let close = editor.request("session/close", of(&session, json!({}))).await;
    let frames = [editor.next().await, editor.next().await];
    let answer = |id: u64| frames.iter().find(|frame| frame["id"] == id).unwrap()["result"].clone();
    assert_eq!((answer(prompt), answer(close)), (json!({"stopReason": "cancelled"}), json!({})));
    drop(held);
    assert!(server.books().threads.is_empty());
    editor.hang_up().await;
    editor.rest().await;
}

// === questions ===

#[tokio::test]
async fn a_call_that_waits_for_a_person_stays_open_while_the_session_is_idle() {
    let (mut server, mut editor) = open().await;
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "ask me").await;
    let mut run = server.run().await;
    let args = json!({"topic": "port"});
    run.calls("m", "c", "ask_person", &args).await;
    let call = json!({"id": "c", "name": "ask_person", "args": args, "type": "tool_call"});
    let messages = json!([{"type": "human", "id": "h", "content": "ask me"},
        {"type": "ai", "id": "m", "content": "", "tool_calls": [call]}]);
    run.asks(&messages, &json!([{"id": "q", "value": "Which port?"}])).await;
    let told = editor.until(prompt).await;
    assert_eq!(told.stop_reason(), "end_turn");
    // The person thinks, and the session is followed meanwhile.
    let reads = |server: &LangGraph| server.asked(&format!("GET /threads/{session}/state")).len();
    let before = reads(&server);
    let clock = HeldClock::pause();
    let looked = server.until("looks", |server| reads(server) > before + 1);
    within(&clock, std::time::Duration::from_secs(90), looked).await;
    drop(clock);
    tokio::time::resume();
    let prompt = editor.prompt(&session, "8080").await;
    let run = server.run().await;
    assert_eq!(run.body["command"], json!({"resume": {"q": "8080"}}));
    let mut messages = messages.as_array().unwrap().clone();
    let result = json!({"type": "tool", "id": "t", "tool_call_id": "c", "content": "8080",
        "status": "success"});
    messages.push(result);
    run.ends_with(&json!(messages)).await;
    let told = editor.until(prompt).await.of(&session);
    let status = |update: &Value| update["status"].as_str().map(str::to_owned);
    let statuses: Vec<_> = told.iter().filter_map(status).collect();
    assert_eq!(statuses, ["completed"]);
    editor.ended().await;
}

#[tokio::test]
async fn an_approval_with_decisions_of_the_graphs_own_is_answered_by_text() {
    for (allowed, answer, decision) in [
        (json!(["later"]), "please go on", json!({"type": "later", "message": "please go on"})),
        (json!(["later"]), "later", json!({"type": "later"})),
        (json!(["later", "escalate"]), "Escalate", json!({"type": "escalate"})),
    ] {
        let (mut server, mut editor) = open().await;
        let session = editor.session().await;
        let prompt = editor.prompt(&session, "pay").await;
        let value = json!({"action_requests": [{"name": "pay", "args": {"x": 1}}],
            "review_configs": [{"action_name": "pay", "allowed_decisions": allowed}]});
        server.run().await.asks(&json!([]), &json!([{"id": "q", "value": value}])).await;
        let told = editor.until(prompt).await;
        assert_eq!(told.requests.len(), 0);
        assert!(told.said()[0].1.contains("`later`"), "{:?}", told.said());
        let prompt = editor.prompt(&session, answer).await;
        let run = server.run().await;
        let resume = json!({"resume": {"q": {"decisions": [decision]}}});
        assert_eq!(run.body["command"], resume);
        run.ends("success", Some(state("R", &json!([]), &json!([])))).await;
        assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
        editor.ended().await;
    }
}

// === lists and limits ===

#[tokio::test]
async fn a_list_goes_on_after_a_session_when_sessions_change_between_its_pages() {
    for change in ["use", "delete", "add"] {
        let (server, mut editor) = open().await;
        let id = |at: usize| format!("11111111-1111-4111-8111-{at:012}");
        let metadata = json!({"acp_session": true, "cwd": CWD, "title": "T"});
        for at in 0..53 {
            server.thread(&id(at), metadata.clone(), None);
            server.books().threads.get_mut(&id(at)).unwrap().changed_at = at / 2;
        }
        let list = async |editor: &mut Editor, cursor: Option<&Value>| {
            let params = cursor.map_or_else(|| json!({}), |cursor| json!({"cursor": cursor}));
            let page = editor.call("session/list", params).await;
            let sessions = page["sessions"].as_array().unwrap();
            let ids: Vec<_> =
                sessions.iter().map(|one| one["sessionId"].as_str().unwrap().to_owned()).collect();
            (ids, page.get("nextCursor").cloned())
        };
        let (mut listed, next) = list(&mut editor, None).await;
        assert_eq!(listed.len(), 50);
        match change {
            "use" => server.books().threads.get_mut(&id(0)).unwrap().changed_at = 50,
            "delete" => _ = server.books().threads.remove(&listed[7]),
            _ => {
                server.thread(&id(99), metadata, None);
                server.books().threads.get_mut(&id(99)).unwrap().changed_at = 51;
            }
        }
        let (rest, end) = list(&mut editor, next.as_ref()).await;
        assert_eq!(end, None, "{change}");
        listed.extend(rest);
        let distinct: BTreeSet<_> = listed.iter().cloned().collect();
        assert_eq!(distinct.len(), listed.len(), "{change}: a session is listed twice");
        let missing: Vec<_> = (0..53).map(id).filter(|id| !distinct.contains(id)).collect();
        let expected = if change == "use" { vec![id(0)] } else { Vec::new() };
        assert_eq!(missing, expected, "{change}");
        editor.ended().await;
    }
}

#[tokio::test]
async fn sessions_without_a_prompt_do_not_count() {
    let (mut server, mut editor) = open().await;
    let first = editor.session().await;
    let mut last = String::new();
    for _ in 0..260 {
        last = editor.session().await;
    }
    let prompt = editor.prompt(&last, "hi").await;
    server.run().await.ends("success", None).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    // The oldest was closed.
    let prompt = editor.prompt(&first, "hi").await;
    let (code, message) = editor.until(prompt).await.error();
    assert!(code == -32002 && message.contains("is not open"), "{code} {message}");
    editor.ended().await;
}

#[tokio::test]
async fn a_logout_that_is_not_offered_is_refused_and_changes_nothing() {
    let server = LangGraph::start().await;
    server.books().key = Some("good".to_owned());
    let mut editor = Editor::start(&server.url, &Setup::default());
    // As a key of the environment.
    editor.service.upstream.client.use_key(Some("good".parse().unwrap()));
    let told = editor.call("initialize", json!({"protocolVersion": 1})).await;
    assert!(told["agentCapabilities"]["auth"].get("logout").is_none());
    assert_eq!(editor.refused("logout", json!({})).await.0, -32601);
    editor.session().await;
    editor.ended().await;
}
