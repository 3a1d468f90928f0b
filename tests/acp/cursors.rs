//! Session cursors: the ends of turns, and forks there, in front of a scripted server.

use std::time::Duration;

use serde_json::{Value, json};
use threadway::sessions::{Settings, Unstable};
use threadway::upstream::MAX_LOOK_TURNS;

use crate::fork::takes_a_prompt;
use crate::support::clock::{HeldClock, within};
use crate::support::editor::{CWD, Editor, Setup, open_with, outline};
use crate::support::langgraph::{LangGraph, Run, state};
use crate::support::upstream::Exchange;

const SOURCE: &str = "0f9cfe5e-7d44-4d4f-8aef-a4e7c1d4a2a1";
const OTHER: &str = "0f9cfe5e-7d44-4d4f-8aef-a4e7c1d4a2a2";
const NOBODYS: &str = "0f9cfe5e-7d44-4d4f-8aef-a4e7c1d4a2a3";

/// The id of a run of another client.
const THEIRS: &str = "01a200b7-5ee6-7592-b13b-000000000777";

const HISTORY: &str = "/history";

/// How long, by the clock, a run of others may take to appear.
const SOON: Duration = Duration::from_secs(9);

fn with_cursors() -> Setup {
    let settings = Settings { unstable: vec![Unstable::Cursors], ..Settings::default() };
    Setup { settings, capabilities: json!({"session": {"cursors": {}}}), ..Setup::default() }
}

fn human(id: &str) -> Value {
    json!({"type": "human", "id": id, "content": id})
}

fn ai(id: &str) -> Value {
    json!({"type": "ai", "id": id, "content": id})
}

/// The UUID of a checkpoint.
fn id(name: &str) -> String {
    let number = name.bytes().fold(0, |number: u64, byte| number << 8 | u64::from(byte));
    format!("1f1ea71a-c337-6ffe-8008-{number:012x}")
}

/// An announced cursor, in short form.
fn cursor(checkpoint: &str, message: &str) -> String {
    format!("cursor_update {} after {message}", id(checkpoint))
}

/// The cursors of these of the [`turns`].
fn cursors(turns: impl IntoIterator<Item = usize>) -> Vec<String> {
    turns.into_iter().map(|n| cursor(&format!("e{n}"), &format!("a{n}"))).collect()
}

/// One of a thread's states.
fn past(name: &str, parent: Option<&str>, source: &str, messages: &[Value]) -> Value {
    let mut state = state("r", &json!(messages), &json!([]));
    state["checkpoint"]["checkpoint_id"] = json!(id(name));
    state["metadata"]["source"] = json!(source);
    state["parent_checkpoint"] =
        parent.map_or(Value::Null, |name| json!({"checkpoint_id": id(name)}));
    if source == "input" {
        state["next"] = json!(["__start__"]);
    }
    state
}

/// The states of so many turns, the newest first. Turn 1 has the states i1, s1 and e1.
fn turns(count: usize) -> Vec<Value> {
    let (mut states, mut messages) = (Vec::new(), Vec::new());
    for turn in 1..=count {
        let before = (turn > 1).then(|| format!("e{}", turn - 1));
        let [input, step, end] = ["i", "s", "e"].map(|name| format!("{name}{turn}"));
        states.push(past(&input, before.as_deref(), "input", &messages));
        messages.push(human(&format!("h{turn}")));
        let mut asked = past(&step, Some(&input), "loop", &messages);
        asked["next"] = json!(["model"]);
        states.push(asked);
        messages.push(ai(&format!("a{turn}")));
        states.push(past(&end, Some(&step), "loop", &messages));
    }
    states.reverse();
    states
}

/// A session with this past.
fn saved(server: &LangGraph, id: &str, past: Vec<Value>) {
    let metadata = json!({"acp_session": true, "cwd": CWD, "acp_assistant": "agent"});
    server.thread(id, metadata, Some(past[0].clone()));
    server.books().threads.get_mut(id).unwrap().past = past;
}

fn to_open(session: &str) -> Value {
    json!({"sessionId": session, "cwd": CWD, "mcpServers": []})
}

fn to_fork(source: &str, checkpoint: &str) -> Value {
    json!({"sessionId": source, "cwd": CWD, "cursorId": id(checkpoint)})
}

fn id_of(answer: &Value) -> String {
    answer["sessionId"].as_str().unwrap().to_owned()
}

/// The next updates.
async fn updates(editor: &mut Editor, count: usize) -> Vec<String> {
    let mut updates = Vec::new();
    for _ in 0..count {
        updates.push(editor.next().await["params"]["update"].clone());
    }
    outline(&updates)
}

/// Checks that no update is unread.
async fn gets_nothing_more(editor: &mut Editor) {
    let id = editor.request("session/list", json!({})).await;
    assert_eq!(editor.until(id).await.updates, [] as [Value; 0]);
}

/// Opens a session that has cursors, and returns what follows the response.
async fn loaded(editor: &mut Editor, session: &str, cursors: usize) -> Vec<String> {
    editor.call("session/load", to_open(session)).await;
    updates(editor, cursors).await
}

/// What a session shows when another process loads it.
async fn history(server: &LangGraph, session: &str) -> Vec<String> {
    let mut editor = Editor::initialized(&server.url, &Setup::default()).await;
    let load = editor.request("session/load", to_open(session)).await;
    let told = editor.until(load).await;
    editor.ended().await;
    outline(&told.of(session))
}

// === announced ===

#[tokio::test]
async fn a_turn_has_a_cursor_before_its_response() {
    let (mut server, mut editor) = open_with(with_cursors()).await;
    let session = editor.session().await;
    for turn in 1..3 {
        let prompt = editor.prompt(&session, "hi").await;
        let mut run = server.run().await;
        let (id, said) = (format!("a{turn}"), run.said());
        run.says(&id, "hello").await;
        let cursor = format!("cursor_update after-{} after {id}", run.id);
        run.ends_with(&json!([said, {"type": "ai", "id": id, "content": "hello"}])).await;
        let told = editor.until(prompt).await;
        let expected = [format!("agent_message_chunk {id} hello"), cursor];
        let shown: Vec<_> = outline(&told.of(&session));
        assert!(shown.ends_with(&expected), "{shown:?}");
        let update = told.of(&session).pop().unwrap();
        assert_eq!(update["capabilities"], json!({"fork": {}}));
        let anchor = json!({"type": "agent_message", "messageId": id, "position": "after"});
        assert_eq!(update["anchor"], anchor);
    }
    editor.ended().await;
}

#[tokio::test]
async fn only_a_client_that_takes_cursors_of_a_server_that_copies_threads_gets_them() {
    let off = Setup { settings: Settings::default(), ..with_cursors() };
    let deaf = Setup { capabilities: json!({"session": {}}), ..with_cursors() };
    let servers = [
        (LangGraph::start().await, off),
        (LangGraph::start().await, deaf),
        (LangGraph::aegra().await, with_cursors()),
    ];
    for (mut server, setup) in servers {
        let mut editor = Editor::initialized(&server.url, &setup).await;
        saved(&server, SOURCE, turns(2));
        editor.call("session/load", to_open(SOURCE)).await;
        let prompt = editor.prompt(SOURCE, "hi").await;
        let run = server.run().await;
        run.ends_with(&json!([human("h1"), ai("a1"), human("h2"), ai("a2"), ai("a3")])).await;
        let told = editor.until(prompt).await;
        assert_eq!(outline(&told.of(SOURCE)), ["agent_message_chunk a3 a3"]);
        gets_nothing_more(&mut editor).await;
        assert!(server.asked(&format!("GET /threads/{SOURCE}{HISTORY}")).is_empty());
        editor.ended().await;
    }
}

#[tokio::test]
async fn a_session_that_is_opened_has_the_cursors_of_its_turns() {
    let (server, mut editor) = open_with(with_cursors()).await;
    saved(&server, SOURCE, turns(30));
    let all = cursors(1..=30);
    assert_eq!(loaded(&mut editor, SOURCE, 30).await, all);
    editor.call("session/close", json!({"sessionId": SOURCE})).await;
    editor.call("session/resume", to_open(SOURCE)).await;
    assert_eq!(updates(&mut editor, 30).await, all);
    let whole = json!({"sessionId": SOURCE, "cwd": CWD});
    editor.call("session/fork", whole).await;
    assert_eq!(updates(&mut editor, 30).await, all);
    gets_nothing_more(&mut editor).await;
    editor.ended().await;
}

#[tokio::test]
async fn of_a_long_session_the_newest_two_hundred_states_are_read() {
    let (server, mut editor) = open_with(with_cursors()).await;
    saved(&server, SOURCE, turns(90));
    // The 200th state is s24.
    let newest = cursors(24..=90);
    assert_eq!(loaded(&mut editor, SOURCE, newest.len()).await, newest);
    gets_nothing_more(&mut editor).await;
    // A client that got an older one earlier may use it.
    editor.call("session/fork", to_fork(SOURCE, "e2")).await;
    editor.ended().await;
}

#[tokio::test]
async fn only_ends_of_the_conversation_that_a_copy_can_have_are_cursors() {
    let (server, mut editor) = open_with(with_cursors()).await;
    let mut states = turns(4);
    let at = |states: &[Value], name: &str| {
        states.iter().position(|state| state["checkpoint"]["checkpoint_id"] == id(name)).unwrap()
    };
    // The second turn has asked something, and nobody answered.
    let asked = at(&states, "e2");
    states[asked]["tasks"] =
        json!([{"id": "t", "name": "ask", "interrupts": [{"id": "i", "value": "?"}]}]);
    // The third has failed, with a node that did not run.
    let failed = at(&states, "e3");
    states[failed]["tasks"] = json!([{"id": "t", "name": "model", "error": "boom"}]);
    states[failed]["next"] = json!(["model"]);
    // A branch that an edit has left.
    let branch = [human("h1"), ai("a1"), human("old"), ai("left")];
    states.insert(1, past("b", Some("e1"), "loop", &branch));
    // A run is live, and has stored its input.
    let messages = states[0]["values"]["messages"].as_array().unwrap().clone();
    states.insert(0, past("i5", Some("e4"), "input", &messages));
    saved(&server, SOURCE, states);
    editor.call("session/resume", to_open(SOURCE)).await;
    assert_eq!(updates(&mut editor, 3).await, cursors([1, 3, 4]));
    gets_nothing_more(&mut editor).await;
    for cursor in ["e2", "b", "i5", "s4"] {
        let (code, _) = editor.refused("session/fork", to_fork(SOURCE, cursor)).await;
        assert_eq!(code, -32602, "{cursor}");
    }
    // The failed turn's fork has the node that did not run, and asks nothing.
    let fork = id_of(&editor.call("session/fork", to_fork(SOURCE, "e3")).await);
    assert_eq!(server.books().threads[&fork].state.as_ref().unwrap()["next"], json!(["model"]));
    assert_eq!(history(&server, &fork).await.len(), 6);
    editor.ended().await;
}

#[tokio::test]
async fn a_turn_whose_last_message_is_gone_has_no_cursor() {
    let (server, mut editor) = open_with(with_cursors()).await;
    let mut states = turns(2);
    // The conversation was summarised.
    states[0]["values"]["messages"] = json!([human("h2"), ai("a2")]);
    saved(&server, SOURCE, states);
    assert_eq!(loaded(&mut editor, SOURCE, 1).await, cursors([2]));
    gets_nothing_more(&mut editor).await;
    editor.ended().await;
}

#[tokio::test]
async fn a_stopped_turn_has_a_cursor_after_its_response_and_one_that_asks_has_none() {
    let (mut server, mut editor) = open_with(with_cursors()).await;
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "hi").await;
    let mut run = server.run().await;
    run.says("a1", "half").await;
    editor.until_said("half").await;
    editor.cancel(&session).await;
    server.until("the cancel", |server| !server.cancelled().is_empty()).await;
    let (id, said) = (run.id.clone(), run.said());
    let mut stopped =
        state(&id, &json!([said, {"type": "ai", "id": "a1", "content": "half"}]), &json!([]));
    stopped["next"] = json!(["model"]);
    run.ends("interrupted", Some(stopped)).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "cancelled");
    assert_eq!(updates(&mut editor, 1).await, [format!("cursor_update after-{id} after a1")]);

    let prompt = editor.prompt(&session, "again").await;
    let run = server.run().await;
    let approval = json!({"id": "i", "value": {
        "action_requests": [{"name": "send", "args": {"to": "all"}}],
        "review_configs": [{"action_name": "send", "allowed_decisions": ["approve", "reject"]}]}});
    let said = json!([run.said()]);
    run.asks(&said, &json!([approval])).await;
    editor.until_asked().await;
    editor.cancel(&session).await;
    let told = editor.until(prompt).await;
    assert_eq!(told.stop_reason(), "cancelled");
    assert!(!outline(&told.of(&session)).iter().any(|update| update.starts_with("cursor")));
    gets_nothing_more(&mut editor).await;
    editor.ended().await;
}

#[tokio::test]
async fn a_run_of_others_has_a_cursor_when_it_ends() {
    let (mut server, mut editor) = open_with(with_cursors()).await;
    saved(&server, SOURCE, turns(1));
    loaded(&mut editor, SOURCE, 1).await;
    let clock = HeldClock::pause();
    others_run(&server, "running");
    let mut run = within(&clock, SOON, server.joined()).await;
    run.sends("metadata", &json!({"run_id": THEIRS, "attempt": 1})).await;
    run.sends("values", &json!({"messages": [human("h1"), ai("a1"), human("cron")]})).await;
    run.says("a2", "news").await;
    within(&clock, SOON, editor.until_said("news")).await;
    let news = json!({"type": "ai", "id": "a2", "content": "news"});
    run.ends_with(&json!([human("h1"), ai("a1"), human("cron"), news])).await;
    let cursor = within(&clock, SOON, updates(&mut editor, 1)).await;
    assert_eq!(cursor, [format!("cursor_update after-{THEIRS} after a2")]);
    drop(clock);
    tokio::time::resume();
    editor.ended().await;
}

/// A run of another client that has this status.
fn others_run(server: &LangGraph, status: &str) {
    let run = json!({"run_id": THEIRS, "thread_id": SOURCE, "status": status,
        "created_at": "2026-11-22T11:00:00.000001+00:00", "metadata": {},
        "kwargs": {"resumable": true, "stream_mode": ["values", "messages-tuple"]}});
    server.books().threads.get_mut(SOURCE).unwrap().runs.insert(0, run);
}

#[tokio::test]
async fn a_turn_that_begins_after_the_history_was_sent_has_no_cursor_yet() {
    // Whether the next turn is over by then.
    for is_over in [false, true] {
        let (mut server, mut editor) = open_with(with_cursors()).await;
        let mut states = turns(2);
        // The second turn was stopped.
        states[0]["next"] = json!(["model"]);
        saved(&server, SOURCE, states.clone());
        others_run(&server, "interrupted");
        server.hold(HISTORY);
        editor.call("session/load", to_open(SOURCE)).await;
        let history = server.held(HISTORY).await;
        let mut later = turns(3);
        later[3..].clone_from_slice(&states);
        let later = &later[usize::from(!is_over)..];
        history.json(200, &json!(later).to_string()).await;
        assert_eq!(updates(&mut editor, 2).await, cursors(1..=2));
        gets_nothing_more(&mut editor).await;
        editor.ended().await;
    }
}

#[tokio::test]
async fn a_live_run_that_is_loaded_has_its_cursor_after_its_messages() {
    let (mut server, mut editor) = open_with(with_cursors()).await;
    saved(&server, SOURCE, turns(2));
    others_run(&server, "running");
    server.hold(HISTORY);
    let load = editor.request("session/load", to_open(SOURCE)).await;
    let mut run = server.joined().await;
    run.sends("metadata", &json!({"run_id": THEIRS, "attempt": 1})).await;
    let said = json!([human("h1"), ai("a1"), human("h2"), ai("a2"), human("h3")]);
    run.sends("values", &json!({"messages": said})).await;
    editor.until(load).await;
    // The run is over by now, but not shown to its end.
    let mut states = turns(3);
    states[..3].iter_mut().for_each(|state| state["metadata"]["run_id"] = json!(THEIRS));
    server.held(HISTORY).await.json(200, &json!(states).to_string()).await;
    assert_eq!(updates(&mut editor, 2).await, cursors(1..=2));
    run.says("a3", "news").await;
    assert_eq!(outline(&editor.until_said("news").await), ["agent_message_chunk a3 news"]);
    let mut said = said.as_array().unwrap().clone();
    said.push(json!({"type": "ai", "id": "a3", "content": "news"}));
    run.ends_with(&json!(said)).await;
    assert_eq!(updates(&mut editor, 1).await, [format!("cursor_update after-{THEIRS} after a3")]);
    editor.ended().await;
}

#[tokio::test]
async fn of_large_states_fewer_are_read() {
    let (server, mut editor) = open_with(with_cursors()).await;
    let mut states = turns(20);
    for state in &mut states {
        state["values"]["file"] = json!("x".repeat(900 * 1024));
    }
    saved(&server, SOURCE, states);
    editor.call("session/resume", to_open(SOURCE)).await;
    assert_eq!(updates(&mut editor, 12).await, cursors(9..=20));
    gets_nothing_more(&mut editor).await;
    editor.ended().await;
}

/// A turn whose run is about to end.
async fn begun(server: &mut LangGraph, editor: &mut Editor) -> (String, u64, Run) {
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "hi").await;
    let mut run = server.run().await;
    run.says("a1", "half").await;
    editor.until_said("half").await;
    (session, prompt, run)
}

/// The messages of a turn that has [`begun`].
fn half(run: &Run) -> Value {
    json!([run.said(), {"type": "ai", "id": "a1", "content": "half"}])
}

#[tokio::test]
async fn a_response_does_not_wait_long_for_the_cursor_of_its_turn() {
    let (mut server, mut editor) = open_with(with_cursors()).await;
    let (_, prompt, run) = begun(&mut server, &mut editor).await;
    server.hold("/state");
    let known = state(&run.id, &half(&run), &json!([])).to_string();
    let said = half(&run);
    run.ends_with(&said).await;
    // The run's last words are read first.
    server.held("/state").await.json(200, &known).await;
    let clock = HeldClock::pause();
    let told = within(&clock, SOON, editor.until(prompt)).await;
    assert_eq!((&*told.stop_reason(), told.updates.len()), ("end_turn", 0));
    server.held("/state").await.closed().await;
    drop(clock);
    tokio::time::resume();
    editor.ended().await;
}

#[tokio::test]
async fn the_end_of_a_turn_is_read_in_the_line_of_looks() {
    let (mut server, mut editor) = open_with(with_cursors()).await;
    let (session, prompt, run) = begun(&mut server, &mut editor).await;
    server.hold(NOBODYS);
    let mut looks = Vec::new();
    for _ in 0..MAX_LOOK_TURNS {
        editor.request("session/load", to_open(NOBODYS)).await;
        looks.push(server.held(NOBODYS).await);
    }
    let clock = HeldClock::pause();
    let said = half(&run);
    run.ends_with(&said).await;
    let told = within(&clock, SOON, editor.until(prompt)).await;
    assert_eq!((&*told.stop_reason(), told.updates.len()), ("end_turn", 0));
    // Only for the run's last words.
    assert_eq!(server.asked(&format!("GET /threads/{session}/state")).len(), 1);
    drop((clock, looks));
    tokio::time::resume();
    editor.left().await;
}

/// A turn that was stopped, and whose cursor is being read.
async fn being_read(server: &mut LangGraph, editor: &mut Editor) -> (String, String, Exchange) {
    let (session, prompt, run) = begun(server, editor).await;
    editor.cancel(&session).await;
    server.until("the cancel", |server| !server.cancelled().is_empty()).await;
    server.hold("/state");
    let mut stopped = state(&run.id, &half(&run), &json!([]));
    stopped["next"] = json!(["model"]);
    let id = run.id.clone();
    let known = stopped.to_string();
    run.ends("interrupted", Some(stopped)).await;
    // The run's last words are read first.
    server.held("/state").await.json(200, &known).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "cancelled");
    let read = server.held("/state").await;
    (session, id, read)
}

#[tokio::test]
async fn the_next_prompt_does_not_wait_for_the_cursor_of_a_stopped_turn() {
    let (mut server, mut editor) = open_with(with_cursors()).await;
    let (session, stopped, read) = being_read(&mut server, &mut editor).await;
    let prompt = editor.prompt(&session, "again").await;
    // The prompt looks at the thread too.
    let look = server.held("/state").await;
    server.let_go_of("/state");
    let known = server.books().threads[&session].state.clone().unwrap().to_string();
    let reads = |server: &LangGraph| server.asked(&format!("GET /threads/{session}/state")).len();
    let before = reads(&server);
    read.json(200, &known).await;
    server.until("the read of the cursor", |server| reads(server) > before).await;
    look.json(200, &known).await;
    let run = server.run().await;
    let said = json!([run.said()]);
    run.ends_with(&said).await;
    let told = editor.until(prompt).await;
    assert_eq!(told.stop_reason(), "end_turn");
    let mut shown = outline(&told.of(&session));
    if shown.is_empty() {
        shown = updates(&mut editor, 1).await;
    }
    assert_eq!(shown, [format!("cursor_update after-{stopped} after a1")]);
    editor.ended().await;
}

#[tokio::test]
async fn a_session_that_is_closed_gets_no_cursor_of_its_stopped_turn() {
    let (mut server, mut editor) = open_with(with_cursors()).await;
    let (session, _, read) = being_read(&mut server, &mut editor).await;
    editor.call("session/close", json!({"sessionId": session})).await;
    // Sooner than it would give up by itself.
    let clock = HeldClock::pause();
    within(&clock, SOON, read.closed()).await;
    drop(clock);
    tokio::time::resume();
    gets_nothing_more(&mut editor).await;
    editor.ended().await;
}

// === forks ===

#[tokio::test]
async fn a_fork_at_a_cursor_has_exactly_the_conversation_of_that_turn() {
    let (mut server, mut editor) = open_with(with_cursors()).await;
    saved(&server, SOURCE, turns(3));
    let before = server.books().threads[SOURCE].past.clone();
    loaded(&mut editor, SOURCE, 3).await;
    let fork = id_of(&editor.call("session/fork", to_fork(SOURCE, "e2")).await);
    let sent = server.asked(&format!("POST /threads/{fork}/state"));
    let copied = json!({"values": null, "checkpoint_id": id("e2"), "as_node": "__copy__"});
    assert_eq!(sent, [copied]);
    // The fork has cursors of its own: the copy of the last, and those before it.
    let [first, last] = &updates(&mut editor, 2).await[..] else { panic!() };
    assert_eq!(*first, cursor("e1", "a1"));
    let copy = last.strip_prefix("cursor_update ").unwrap().strip_suffix(" after a2").unwrap();
    let shown = [
        "user_message_chunk h1 h1",
        "agent_message_chunk a1 a1",
        "user_message_chunk h2 h2",
        "agent_message_chunk a2 a2",
    ];
    assert_eq!(history(&server, &fork).await, shown);
    let values = before[3]["values"].clone();
    assert_eq!(server.books().threads[&fork].state.as_ref().unwrap()["values"], values);

    // The next prompt goes on from there.
    takes_a_prompt(&mut server, &mut editor, &fork).await;

    // A fork of the fork.
    let at_copy = json!({"sessionId": fork, "cwd": CWD, "cursorId": copy});
    let again = id_of(&editor.call("session/fork", at_copy).await);
    assert_eq!(history(&server, &again).await, shown);
    let again = id_of(&editor.call("session/fork", to_fork(&fork, "e1")).await);
    assert_eq!(history(&server, &again).await, shown[..2]);

    // Later turns of the source are no turns of the fork, although its thread has their checkpoints.
    for cursor in ["e2", "e3"] {
        let (code, _) = editor.refused("session/fork", to_fork(&fork, cursor)).await;
        assert_eq!(code, -32602, "{cursor}");
    }
    assert_eq!(server.books().threads[SOURCE].past, before);
    editor.ended().await;
}

#[tokio::test]
async fn a_cursor_that_the_session_does_not_have_is_refused_and_nothing_is_copied() {
    let (server, mut editor) = open_with(with_cursors()).await;
    saved(&server, SOURCE, turns(2));
    let mut others = turns(1);
    others[0]["checkpoint"]["checkpoint_id"] = json!(id("theirs"));
    saved(&server, OTHER, others);
    let unused = editor.session().await;
    for (session, cursor) in [
        (SOURCE, id("none")),
        (SOURCE, id("e1").to_uppercase()),
        (SOURCE, "../../runs".to_owned()),
        (SOURCE, String::new()),
        (SOURCE, "x".repeat(1000)),
        (SOURCE, id("theirs")),
        (OTHER, id("e1")),
        (NOBODYS, id("e1")),
        (&*unused, id("e1")),
    ] {
        let request = json!({"sessionId": session, "cwd": CWD, "cursorId": cursor});
        let (code, message) = editor.refused("session/fork", request).await;
        assert_eq!(code, -32602, "{message}");
        assert!(message.contains("has no cursor") && message.len() < 400, "{message}");
    }
    // Only the one state was asked for.
    let paths: Vec<_> = server.books().asked.iter().map(|(line, _)| line.clone()).collect();
    assert!(!paths.iter().any(|line| line.contains(HISTORY) || line.contains("..")), "{paths:?}");
    editor.call("session/delete", json!({"sessionId": SOURCE})).await;
    let (code, message) = editor.refused("session/fork", to_fork(SOURCE, "e1")).await;
    assert_eq!(code, -32602, "{message}");
    assert_eq!(server.books().threads.len(), 1);
    editor.ended().await;
}

#[tokio::test]
async fn without_cursors_a_fork_at_one_is_not_a_fork_of_the_whole_session() {
    let off = Setup { settings: Settings::default(), ..with_cursors() };
    let (server, mut editor) = open_with(off).await;
    saved(&server, SOURCE, turns(2));
    let (code, message) = editor.refused("session/fork", to_fork(SOURCE, "e1")).await;
    assert_eq!(code, -32602);
    assert!(message.contains("announces no cursors"), "{message}");
    let mut whole = to_fork(SOURCE, "");
    whole["cursorId"] = Value::Null;
    let mut malformed = to_fork(SOURCE, "");
    malformed["cursorId"] = json!(7);
    let line = json!({"jsonrpc": "2.0", "id": "m", "method": "session/fork", "params": malformed});
    let (_, code, _) = editor.refused_line(&line.to_string()).await;
    assert_eq!(code, -32602);
    let fork = id_of(&editor.call("session/fork", whole).await);
    assert_eq!(history(&server, &fork).await.len(), 4);
    editor.ended().await;
}

#[tokio::test]
async fn a_copy_that_does_not_end_at_the_cursor_is_deleted() {
    let (mut server, mut editor) = open_with(with_cursors()).await;
    saved(&server, SOURCE, turns(2));
    server.hold("POST /threads/01a200b7-");
    for status in [404, 405, 500] {
        let fork = editor.request("session/fork", to_fork(SOURCE, "e1")).await;
        server.held("/state").await.json(status, "{}").await;
        let (code, message) = editor.until(fork).await.error();
        // The server does copy threads.
        let is_told = !message.contains("/copy") && message.contains(&status.to_string());
        assert_eq!((code, is_told), (-32603, true), "{message}");
        let threads: Vec<_> = server.books().threads.keys().cloned().collect();
        assert_eq!(threads, [SOURCE]);
    }
    editor.ended().await;
}

#[tokio::test]
async fn a_fork_at_a_stopped_turn_has_a_cursor_for_it() {
    let (server, mut editor) = open_with(with_cursors()).await;
    let mut states = turns(2);
    states[0]["next"] = json!(["model"]);
    saved(&server, SOURCE, states);
    let fork = id_of(&editor.call("session/fork", to_fork(SOURCE, "e2")).await);
    let copy = server.books().threads[&fork].past[0]["checkpoint"]["checkpoint_id"].clone();
    let own = format!("cursor_update {} after a2", copy.as_str().unwrap());
    assert_eq!(updates(&mut editor, 2).await, [cursor("e1", "a1"), own]);
    editor.ended().await;
}
