//! The updates of an ACP session: the cases that other adapters get wrong.

use std::sync::Arc;

use crate::support::acp::{self, Session};
use crate::support::acp_schema::Schema;
use serde_json::{Value, json};
use threadway_translate::acp::{CallDecision, GraphProfile, Paths, PlanForm, Projector};
use threadway_translate::json::{Text, TextBuf};
use threadway_translate::langgraph::{Finish, Media, MediaKind, MediaSource, ThreadState};
use threadway_translate::run::{
    Action, Call, CallForm, Content, ContentPart, Failure, Id, Message, Outcome, Role, RunError,
    RunEvent, Subagent, Translator, Usage,
};

fn id(id: &str) -> Id {
    Id::from(id)
}

fn text(text: &str) -> Content {
    Content::Text(TextBuf::from(&Text::new(text)))
}

fn message(name: &str, role: Role, said: &str) -> Message {
    let mut message = Message::new(id(name), role);
    message.content = text(said);
    message
}

fn call(name: &str, tool: &str, args: &Value) -> Call {
    let args = TextBuf::from(&Text::new(&args.to_string()));
    Call { id: id(name), name: id(tool), args, form: CallForm::Valid }
}

fn answer(name: &str, call: &str, said: &str) -> Message {
    let mut message = message(name, Role::Tool, said);
    message.call_id = Some(id(call));
    message
}

fn started() -> RunEvent {
    RunEvent::Started { thread_id: id("T"), run_id: Some(id("R")), name: id("R") }
}

fn ended(outcome: Outcome) -> RunEvent {
    RunEvent::Ended { outcome, usage: Vec::new() }
}

fn finished() -> RunEvent {
    ended(Outcome::Finished { pending_calls: Vec::new(), finish: Finish::Done })
}

fn text_started(name: &str, agent: Option<&str>) -> RunEvent {
    let (role, agent) = (Role::Assistant, agent.map(id));
    RunEvent::TextStarted { message_id: id(name), role, name: None, agent }
}

fn delta(name: &str, escaped: &str) -> RunEvent {
    RunEvent::TextDelta { message_id: id(name), delta: Text::from_escaped(escaped) }
}

fn text_ended(name: &str) -> RunEvent {
    RunEvent::TextEnded { message_id: id(name) }
}

#[test]
fn an_attached_file_is_a_resource_again_on_load() {
    let file = "\n\n<file uri=\"file:///w/a.rs\">\nlet end = \"<\\/file>\";\n</file>";
    let joined = format!("See [a.rs](file:///w/a.rs){file}");
    let session = told(&[snapshot(&[message("h", Role::User, &joined)])]);
    let content: Vec<_> = session.updates.iter().map(|update| update["content"].clone()).collect();
    let resource = json!({"uri": "file:///w/a.rs", "text": "let end = \"</file>\";"});
    assert_eq!(
        content,
        [
            json!({"type": "text", "text": "See [a.rs](file:///w/a.rs)"}),
            json!({"type": "resource", "resource": resource}),
        ]
    );
    // The agent's text is the agent's.
    let session = told(&[snapshot(&[message("a", Role::Assistant, &joined)])]);
    assert_eq!(session.updates[0]["content"]["type"], "text");
}

/// A call whose arguments come in two pieces.
fn called(name: &str, tool: &str, args: &Value) -> Vec<RunEvent> {
    let args = args.to_string();
    let (head, tail) = args.split_at(args.len() / 2);
    let piece = |text| RunEvent::CallArgs { call_id: id(name), delta: Text::new(text) };
    let message_id = id("ai");
    vec![
        RunEvent::CallStarted { call_id: id(name), name: id(tool), message_id, agent: None },
        piece(head),
        piece(tail),
        RunEvent::CallEnded { call_id: id(name) },
    ]
}

fn result(call: &str, said: &str, is_error: bool) -> RunEvent {
    let (message_id, call_id) = (id(&format!("of {call}")), id(call));
    RunEvent::CallResult { message_id, call_id, content: text(said), is_error, agent: None }
}

fn snapshot(messages: &[Message]) -> RunEvent {
    RunEvent::Messages(messages.iter().cloned().map(Arc::new).collect())
}

/// The conversation of an idle thread with these messages.
fn at_rest(messages: &Value) -> RunEvent {
    let state = json!({"values": {"messages": messages}, "next": [], "tasks": []}).to_string();
    let (mut translator, mut out) = (Translator::named("T", None, "connect"), Vec::new());
    translator.on_state(&ThreadState::parse(&state).unwrap(), &mut out);
    RunEvent::Messages(translator.view().messages().into())
}

/// Projects events for a client that has received nothing, and checks every update.
fn told(events: &[RunEvent]) -> Session {
    let session = acp::project(&mut acp::newcomer(), events);
    checked(&session);
    session
}

fn checked(session: &Session) {
    session.check().unwrap();
    Schema::load().check(session).unwrap();
}

/// A line for each update: its kind, its item and its content.
fn story(session: &Session) -> Vec<String> {
    let line = |update: &Value| {
        let kind = update["sessionUpdate"].as_str();
        let about = update["messageId"].as_str().or_else(|| update["toolCallId"].as_str());
        let said = update["content"]["text"].as_str();
        let said = said.or_else(|| update["status"].as_str()).or_else(|| update["title"].as_str());
        [kind, about, said].into_iter().flatten().collect::<Vec<_>>().join(" ")
    };
    session.updates.iter().map(line).collect()
}

// --- texts ---

#[test]
fn the_prompt_that_the_client_has_is_not_told_to_it() {
    let mut projector = acp::newcomer();
    projector.hold(&id("h"));
    let human = [message("h", Role::User, "hi"), message("h2", Role::User, "more")];
    let session = acp::project(&mut projector, [&snapshot(&human), &snapshot(&human)]);
    assert_eq!(story(&session), ["user_message_chunk h2 more"]);
}

#[test]
fn a_history_is_told_message_by_message_and_what_follows_once() {
    let mut ai = message("ai", Role::Assistant, "Look");
    ai.calls.push(call("c", "search", &json!({"q": 1})));
    let history = [
        message("s", Role::System, "be nice"),
        message("h", Role::User, "hi"),
        message("t", Role::Reasoning, "hm"),
        ai,
        answer("r", "c", "found"),
        answer("r2", "nobody", "lost"),
    ];
    let expected = [
        "user_message_chunk h hi",
        "agent_thought_chunk t hm",
        "agent_message_chunk ai Look",
        "tool_call c completed",
    ];
    assert_eq!(story(&told(&[snapshot(&history)])), expected);
    let goes_on = [text_started("ai", None), delta("ai", "ing"), text_ended("ai"), finished()];
    let all: Vec<_> = [snapshot(&history)].into_iter().chain(goes_on).collect();
    let session = told(&all);
    assert_eq!(session.texts()["ai"], "Looking");
    assert_eq!(session.updates.len(), expected.len() + 1);
}

#[test]
fn half_a_pair_waits_for_the_next_piece_and_for_no_longer_than_its_message() {
    let events = [
        started(),
        text_started("m", None),
        delta("m", "a\\ud83d"),
        delta("m", "\\ude00b"),
        delta("m", "\\ud83d"),
        text_ended("m"),
        finished(),
    ];
    let session = told(&events);
    assert_eq!(session.texts()["m"], "a😀b\u{fffd}");
    let cut = [&events[..3], &[finished()]].concat();
    assert_eq!(told(&cut).texts()["m"], "a\u{fffd}");
}

#[test]
fn a_second_attempt_that_says_the_same_says_nothing() {
    let attempt = |said: &str| vec![text_started("m", None), delta("m", said), text_ended("m")];
    let again = |first: &str, second: &str| {
        let void = snapshot(&[message("h", Role::User, "hi")]);
        let events = [vec![started()], attempt(first), vec![void], attempt(second)].concat();
        let mut session = story(&told(&[events, vec![finished()]].concat()));
        session.retain(|line| !line.starts_with("user"));
        session
    };
    let first = "agent_message_chunk m abc";
    assert_eq!(again("abc", "abc"), [first]);
    assert_eq!(again("abc", "abcde"), [first, "agent_message_chunk m de"]);
    assert_eq!(again("abc", "abd"), [first, "agent_message_chunk m:2 abd"]);
    assert_eq!(again("abc", "ab"), [first, "agent_message_chunk m:2 ab"]);
}

#[test]
fn who_calls_speaks_also_under_an_id_that_was_not_to_be_read() {
    let instructions =
        RunEvent::TextStarted { message_id: id("ai"), role: Role::System, name: None, agent: None };
    let said = |text| vec![delta("ai", text), text_ended("ai")];
    let first = [vec![started(), instructions], said("secret"), vec![snapshot(&[]), finished()]];
    let call = called("c", "search", &json!({"q": 1}));
    let second = [vec![started()], call, said("words"), vec![finished()]];
    let session = told(&[first.concat(), second.concat()].concat());
    assert_eq!(session.texts()["ai"], "words");
}

#[test]
fn a_text_that_changed_after_it_was_told_is_told_whole() {
    let stream = [started(), text_started("m", None), delta("m", "secret 1"), text_ended("m")];
    let redacted = [snapshot(&[message("m", Role::Assistant, "secret")]), finished()];
    let session = told(&[stream.to_vec(), redacted.to_vec()].concat());
    assert_eq!(
        story(&session),
        ["agent_message_chunk m secret 1", "agent_message_chunk m:2 secret"]
    );
    let other = [snapshot(&[message("m", Role::Assistant, "other")]), finished()];
    let session = told(&[stream.to_vec(), other.to_vec(), other.to_vec()].concat());
    assert_eq!(story(&session)[1..], ["agent_message_chunk m:2 other"]);
}

#[test]
fn media_are_blocks_of_their_own_and_addresses_are_links() {
    let media = |kind, source, filename: Option<&str>| {
        let filename = filename.map(Text::new);
        ContentPart::Media(Media { kind, source, mime_type: None, filename })
    };
    let mut human = Message::new(id("h"), Role::User);
    human.content = Content::Parts(
        [
            ContentPart::Text(Text::new("see")),
            media(MediaKind::Image, MediaSource::Data(Text::new("AAAA")), None),
            media(MediaKind::Audio, MediaSource::Data(Text::new("BBBB")), None),
            media(MediaKind::Image, MediaSource::Url(Text::new("https://x/a/y.png?q")), None),
            media(MediaKind::File, MediaSource::File(Text::new("f1")), Some("a.pdf")),
            media(MediaKind::File, MediaSource::Data(Text::new("CCCC")), Some("b.pdf")),
            ContentPart::Text(Text::new("there")),
        ]
        .into(),
    );
    let session = told(&[snapshot(&[human.clone()]), snapshot(&[human])]);
    let blocks: Vec<_> = session.updates.iter().map(|update| update["content"].clone()).collect();
    assert_eq!(
        blocks,
        [
            json!({"type": "text", "text": "see"}),
            json!({"type": "image", "data": "AAAA", "mimeType": "image/png"}),
            json!({"type": "audio", "data": "BBBB", "mimeType": "audio/wav"}),
            json!({"type": "resource_link", "name": "y.png", "uri": "https://x/a/y.png?q"}),
            json!({"type": "resource_link", "name": "a.pdf", "uri": "attachment:f1"}),
            json!({"type": "resource", "resource": {"uri": "attachment:b.pdf", "blob": "CCCC"}}),
            json!({"type": "text", "text": "there"}),
        ]
    );
}

// --- subagents ---

#[test]
fn a_subagent_of_a_call_speaks_to_its_caller_and_a_subgraph_to_the_person() {
    let subagent = |name: &str, parent: Option<&str>, call_id: Option<&str>| {
        RunEvent::SubagentStarted(Subagent {
            id: id(name),
            name: id("helper"),
            parent: parent.map(id),
            call_id: call_id.map(id),
        })
    };
    let inner_call = RunEvent::CallStarted {
        call_id: id("c2"),
        name: id("grep"),
        message_id: id("m1"),
        agent: Some(id("inner")),
    };
    let mut live = vec![started()];
    live.extend(called("task", "task", &json!({"description": "x"})));
    live.extend([
        subagent("inner", None, Some("task")),
        subagent("below", Some("inner"), None),
        subagent("outer", None, None),
        text_started("m1", Some("inner")),
        delta("m1", "psst"),
        inner_call,
        text_started("m2", Some("below")),
        delta("m2", "psst"),
        text_started("m3", Some("outer")),
        delta("m3", "hello"),
        result("task", "done", false),
    ]);
    let expected = [
        "tool_call task task",
        "tool_call_update task task x",
        "tool_call_update task in_progress",
        "tool_call c2 grep",
        "agent_message_chunk m3 hello",
        "tool_call_update task completed",
    ];
    assert_eq!(story(&told(&live)), expected);

    // A client that joins gets the conversation before it learns which subagent is speaking.
    let said = |name: &str, agent: &str| {
        let mut message = message(name, Role::Assistant, "said");
        message.agent = Some(id(agent));
        message
    };
    let late = [
        started(),
        snapshot(&[said("m1", "inner"), said("m3", "outer"), said("m4", "gone")]),
        subagent("outer", None, None),
        subagent("inner", None, Some("task")),
        delta("m3", "!"),
        finished(),
    ];
    assert_eq!(story(&told(&late)), ["agent_message_chunk m3 said", "agent_message_chunk m3 !"]);
}

// --- calls ---

#[test]
fn parallel_calls_go_by_their_own_ids_and_a_failure_is_one() {
    let mut events = vec![started()];
    let [a, b] = [
        called("a", "read_file", &json!({"file_path": "x", "offset": 4})),
        called("b", "bash", &json!({"command": "ls"})),
    ];
    events.extend(a.into_iter().zip(b).flat_map(|(a, b)| [a, b]));
    events.extend([result("b", "no", true), result("a", r#"{"n": 1}"#, false), finished()]);
    let session = told(&events);
    assert_eq!(
        story(&session),
        [
            "tool_call a read_file",
            "tool_call b bash",
            "tool_call_update a Read x",
            "tool_call_update b Run ls",
            "tool_call_update b failed",
            "tool_call_update a completed",
        ]
    );
    let calls = session.calls();
    assert_eq!(calls["a"].get("title"), "Read x");
    assert_eq!(calls["a"].get("kind"), "read");
    assert_eq!(calls["a"].get("locations"), &json!([{"path": "/srv/app/x", "line": 5}]));
    assert_eq!(calls["a"].get("rawInput"), &json!({"file_path": "x", "offset": 4}));
    // A result is sent once.
    assert_eq!(calls["a"].get("rawOutput"), &Value::Null);
    assert_eq!(
        calls["a"].get("content"),
        &json!([{"type": "content", "content": {"type": "text", "text": "{\"n\": 1}"}}])
    );
    assert_eq!(calls["b"].get("rawOutput"), &Value::Null);
    assert_eq!(
        calls["b"].get("content"),
        &json!([{"type": "content", "content": {"type": "text", "text": "no"}}])
    );
}

#[test]
fn an_edit_keeps_its_diff_unless_it_failed() {
    let args = json!({"file_path": "/a.rs", "old_string": "x", "new_string": "y"});
    let diff = json!([{"type": "diff", "path": "/srv/app/a.rs", "oldText": "x", "newText": "y"}]);
    let dialect = Arc::new(GraphProfile { paths: Paths::Virtual, ..GraphProfile::default() });
    let projector = || Projector::new(Arc::clone(&dialect), acp::CWD);
    let live = |is_error| {
        let events = [vec![started()], called("e", "edit_file", &args)].concat();
        let events = [events, vec![result("e", "ok", is_error), finished()]].concat();
        let session = acp::project(&mut projector(), &events);
        checked(&session);
        session.calls()["e"].clone()
    };
    assert_eq!(live(false).get("content"), &diff);
    assert_eq!(live(false).get("status"), "completed");
    assert_eq!(live(true).get("content")[0]["content"]["text"], "ok");

    let mut ai = Message::new(id("ai"), Role::Assistant);
    ai.calls.push(call("e", "edit_file", &args));
    let replayed = acp::project(&mut projector(), [&snapshot(&[ai, answer("r", "e", "ok")])]);
    assert_eq!(replayed.updates.len(), 1);
    let (live, replayed) = (live(false), replayed.calls()["e"].clone());
    assert_eq!(live, replayed);
}

#[test]
fn arguments_that_are_no_json_are_told_as_they_are() {
    let started_call = RunEvent::CallStarted {
        call_id: id("c"),
        name: id("bash"),
        message_id: id("ai"),
        agent: None,
    };
    let args = RunEvent::CallArgs { call_id: id("c"), delta: Text::new("{\"command\": ") };
    let events = [started(), started_call, args, RunEvent::CallEnded { call_id: id("c") }];
    let session = told(&[events.to_vec(), vec![ended(Outcome::Cancelled)]].concat());
    assert_eq!(story(&session), ["tool_call c bash", "tool_call_update c failed"]);
    assert_eq!(session.updates[1]["rawInput"], "{\"command\": ");
}

#[test]
fn what_a_run_leaves_open_is_settled_but_for_what_it_asks() {
    let open = || [vec![started()], called("c", "bash", &json!({"command": "ls"}))].concat();
    let error = RunError::new("E", "m");
    let failed = Outcome::Failed(Failure::Graph(error));
    for outcome in
        [Outcome::Cancelled, failed, Outcome::Idle { pending_calls: Vec::new(), error: None }]
    {
        let session = told(&[open(), vec![ended(outcome)]].concat());
        session.check_settled().unwrap();
    }
    let session = told(&[open(), vec![ended(Outcome::Interrupted(Vec::new()))]].concat());
    // The call is announced as pending, which is the meaning of an absent status.
    assert_eq!(session.calls()["c"].get("status"), &Value::Null);

    // The result arrives after the turn was cancelled.
    let mut ai = Message::new(id("ai"), Role::Assistant);
    ai.calls.push(call("c", "bash", &json!({"command": "ls"})));
    let late = [ended(Outcome::Cancelled), snapshot(&[ai, answer("r", "c", "a.txt")])];
    let session = told(&[open(), late.to_vec()].concat());
    assert_eq!(session.calls()["c"].get("status"), "completed");
}

#[test]
fn a_result_that_was_taken_back_and_comes_again_is_told_if_it_is_another() {
    let mut ai = Message::new(id("ai"), Role::Assistant);
    ai.calls.push(call("c", "bash", &json!({"command": "ls"})));
    let answered = |said: &str| snapshot(&[ai.clone(), answer("r", "c", said)]);
    let events = [answered("a"), snapshot(&[]), snapshot(&[ai.clone()]), answered("a")];
    assert_eq!(story(&told(&events)), ["tool_call c completed"]);
    let events = [answered("a"), answered("b")];
    let session = told(&events);
    let content = json!([{"type": "content", "content": {"type": "text", "text": "b"}}]);
    assert_eq!(session.calls()["c"].get("content"), &content);
    let events = [answered("a"), snapshot(&[ai.clone()]), result("c", "no", true), finished()];
    assert_eq!(story(&told(&events)), ["tool_call c completed", "tool_call_update c failed"]);
}

// --- approvals ---

fn action(tool: &str, args: &Value, call_id: Option<&str>) -> Action {
    Action {
        name: Text::new(tool),
        args: threadway_translate::json::raw(args.to_string()),
        description: None,
        decisions: vec![id("approve"), id("reject")],
        call_id: call_id.map(id),
        schema: None,
        details: None,
        kept: None,
    }
}

#[test]
fn an_approval_is_about_the_call_that_was_announced() {
    let mut projector = acp::newcomer();
    let args = json!({"path": "/tmp/x"});
    let live = [vec![started()], called("c", "delete_file", &args)].concat();
    let mut session = acp::project(&mut projector, &live);
    session.extend(acp::project(&mut projector, [&ended(Outcome::Interrupted(Vec::new()))]));
    let asked = action("delete_file", &args, Some("c"));
    let call = projector.ask(&id("i"), 0, &asked, &mut |update| session.push(update));
    assert_eq!(
        serde_json::to_value(&call).unwrap(),
        json!({
            "toolCallId": "c", "title": "Delete /tmp/x", "kind": "delete", "status": "pending",
            "locations": [{"path": "/tmp/x"}], "rawInput": args,
        })
    );
    let allowed = CallDecision::Allowed;
    projector.decide(&id("i"), 0, &asked, allowed, &mut |update| session.push(update));
    session
        .extend(acp::project(&mut projector, &[started(), result("c", "gone", false), finished()]));
    checked(&session);
    assert_eq!(
        story(&session),
        [
            "tool_call c delete_file",
            "tool_call_update c Delete /tmp/x",
            "tool_call_update c in_progress",
            "tool_call_update c completed",
        ]
    );
}

#[test]
fn a_call_that_is_rejected_never_shows_as_in_progress() {
    let mut projector = acp::newcomer();
    let args = json!({"path": "/tmp/x"});
    let mut session =
        acp::project(&mut projector, &[vec![started()], called("c", "delete", &args)].concat());
    session.extend(acp::project(&mut projector, [&ended(Outcome::Interrupted(Vec::new()))]));
    let asked = action("delete", &args, Some("c"));
    projector.ask(&id("i"), 0, &asked, &mut |update| session.push(update));
    let rejected = CallDecision::Rejected;
    projector.decide(&id("i"), 0, &asked, rejected, &mut |update| session.push(update));
    let rest = [started(), result("c", "User rejected the tool call", true), finished()];
    session.extend(acp::project(&mut projector, &rest));
    checked(&session);
    let statuses: Vec<_> = session.updates.iter().filter_map(|u| u["status"].as_str()).collect();
    assert_eq!(statuses, ["failed"]);
}

#[test]
fn what_was_asked_is_the_content_of_the_permission_until_the_call_is_over() {
    let mut projector = acp::newcomer();
    let args = json!({"file_path": "/a.rs", "old_string": "x", "new_string": "y"});
    let mut session =
        acp::project(&mut projector, &[vec![started()], called("e", "edit_file", &args)].concat());
    let mut asked = action("edit_file", &args, Some("e"));
    asked.description = Some(Text::new("This cannot be\u{1b}[8m undone."));
    asked.details =
        Some(threadway_translate::json::raw(r#"{"policy":["two eyes"],"ticket":7}"#.to_owned()));
    let call = projector.ask(&id("i"), 0, &asked, &mut |update| session.push(update));
    let text = "This cannot be\\u{1b}[8m undone.\n\npolicy:\n\n- two eyes\n\nticket: 7";
    let diff = json!({"type": "diff", "path": "/a.rs", "oldText": "x", "newText": "y"});
    assert_eq!(
        serde_json::to_value(&call.content).unwrap(),
        json!([{"type": "content", "content": {"type": "text", "text": text}}, diff])
    );
    projector
        .decide(&id("i"), 0, &asked, CallDecision::Allowed, &mut |update| session.push(update));
    session
        .extend(acp::project(&mut projector, &[started(), result("e", "ok", false), finished()]));
    checked(&session);
    // A client that replaced the call's content by that of the permission request gets the call's
    // own content again.
    assert_eq!(session.updates.last().unwrap()["content"], json!([diff]));
}

#[test]
fn a_call_that_a_person_changes_is_shown_as_it_runs() {
    let old = json!({"file_path": "/a.rs", "old_string": "x", "new_string": "y"});
    for (tool, new, title, locations, diffs) in [
        (
            "edit_file",
            json!({"file_path": "/b.rs", "old_string": "x", "new_string": "z"}),
            "Edit /b.rs",
            json!([{"path": "/b.rs"}]),
            json!([{"type": "diff", "path": "/b.rs", "oldText": "x", "newText": "z"}]),
        ),
        ("edit_file", json!({}), "edit_file", json!([]), json!([])),
        ("delete_file", json!({"path": "/n"}), "Delete /n", json!([{"path": "/n"}]), json!([])),
    ] {
        for call_id in [Some("c"), None] {
            let mut projector = acp::newcomer();
            let live = [vec![started()], called("c", tool, &old)].concat();
            let mut session = acp::project(&mut projector, &live);
            session
                .extend(acp::project(&mut projector, [&ended(Outcome::Interrupted(Vec::new()))]));
            let asked = action(tool, &old, call_id);
            let card = projector.ask(&id("i"), 0, &asked, &mut |update| session.push(update));
            let args = threadway_translate::json::raw(new.to_string());
            projector.change(&id("i"), 0, &asked, &args, &mut |update| session.push(update));
            projector.decide(&id("i"), 0, &asked, CallDecision::Allowed, &mut |update| {
                session.push(update);
            });
            let shown = |session: &Session| {
                let call = &session.calls()[&card.tool_call_id];
                ["title", "locations", "content", "rawInput"].map(|name| call.get(name).clone())
            };
            let expected = [json!(title), locations.clone(), diffs.clone(), new.clone()];
            assert_eq!(shown(&session), expected, "{tool}");
            // The thread has the call as it was until the graph writes the changed one.
            let mut ai = Message::new(id("ai"), Role::Assistant);
            ai.calls.push(call("c", tool, &old));
            session.extend(acp::project(&mut projector, &[started(), snapshot(&[ai])]));
            assert_eq!(shown(&session), expected, "{tool}");
            session.extend(acp::project(&mut projector, &[result("c", "ok", false), finished()]));
            checked(&session);
        }
    }
}

#[test]
fn an_edited_call_is_told_with_what_it_became() {
    let mut projector = acp::newcomer();
    let live = [vec![started()], called("c", "bash", &json!({"command": "rm -r /"}))].concat();
    let mut session = acp::project(&mut projector, &live);
    let asked = action("bash", &json!({"command": "rm -r /"}), Some("c"));
    projector.ask(&id("i"), 0, &asked, &mut |update| session.push(update));
    let mut ai = Message::new(id("ai"), Role::Assistant);
    ai.calls.push(call("c", "bash", &json!({"command": "ls"})));
    let edited = [snapshot(&[ai]), result("c", "a.txt", false), finished()];
    session.extend(acp::project(&mut projector, &edited));
    checked(&session);
    let call = &session.calls()["c"];
    assert_eq!(call.get("title"), "Run ls");
    assert_eq!(call.get("rawInput"), &json!({"command": "ls"}));
    assert_eq!(call.get("status"), "completed");
}

#[test]
fn an_action_that_is_no_call_is_announced_by_its_question() {
    let mut projector = acp::newcomer();
    let mut session = Session::default();
    let asked = [0, 1].map(|at| action("deploy", &json!({"at": at}), None));
    for (at, asked) in asked.iter().enumerate() {
        let call = projector.ask(&id("i"), at, asked, &mut |update| session.push(update));
        assert_eq!(call.tool_call_id, format!("i:{at}"));
    }
    let allowed = CallDecision::Allowed;
    projector.decide(&id("i"), 0, &asked[0], allowed, &mut |update| session.push(update));
    projector.settle(&mut |update| session.push(update));
    projector.settle(&mut |update| session.push(update));
    checked(&session);
    assert_eq!(
        story(&session),
        [
            "tool_call i:0 deploy 0",
            "tool_call i:1 deploy 1",
            "tool_call_update i:0 completed",
            "tool_call_update i:1 failed",
        ]
    );
}

#[test]
fn a_loaded_message_has_its_parts_in_the_order_of_the_turn() {
    let content = json!([
        {"type": "text", "text": "It is red."},
        {"type": "thinking", "thinking": "what else"},
        {"type": "text", "text": "It is \n"},
        {"type": "tool_use", "id": "c", "name": "search", "input": {}},
        {"type": "text", "text": "blue."},
        {"type": "image", "base64": "AA", "mime_type": "image/png"},
        {"type": "text", "text": "Done"},
        {"type": "thinking", "thinking": "at the end"},
    ]);
    let calls = json!([{"name": "search", "args": {}, "id": "c", "type": "tool_call"}]);
    let all = at_rest(&json!([
        {"type": "human", "id": "h", "content": "hi"},
        {"type": "ai", "id": "a", "content": content, "tool_calls": calls},
        {"type": "tool", "id": "t", "tool_call_id": "c", "content": "found"},
    ]));
    let mut projector = acp::newcomer();
    let session = acp::project(&mut projector, [&all]);
    checked(&session);
    assert_eq!(
        story(&session),
        [
            "user_message_chunk h hi",
            "agent_message_chunk a It is red.",
            "agent_thought_chunk a:reasoning:0 what else",
            "agent_message_chunk a It is \n",
            "tool_call c completed",
            "agent_message_chunk a blue.",
            "agent_message_chunk a:attachment:0",
            "agent_message_chunk a Done",
            "agent_thought_chunk a:reasoning:1 at the end",
        ]
    );
    // A client that has the turn gets nothing twice.
    assert!(acp::project(&mut projector, [&all]).updates.is_empty());
}

// --- state and cost ---

#[test]
fn todos_are_the_plan_and_their_call_is_a_thought() {
    let todos = json!([{"content": "a", "status": "completed"}, {"content": "b", "status": "?"}]);
    let state = |todos: &Value| {
        RunEvent::StateSnapshot(threadway_translate::json::raw(json!({"todos": todos}).to_string()))
    };
    let mut events = vec![started(), state(&todos), state(&todos)];
    events.extend(called("w", "write_todos", &json!({"todos": todos})));
    events.extend([state(&json!([])), finished()]);
    let session = told(&events);
    let entries: Vec<_> = session.updates.iter().filter(|u| u["sessionUpdate"] == "plan").collect();
    assert_eq!(entries.len(), 2);
    assert_eq!(
        entries[0]["entries"],
        json!([
            {"content": "a", "priority": "medium", "status": "completed"},
            {"content": "b", "priority": "medium", "status": "pending"},
        ])
    );
    assert_eq!(entries[1]["entries"], json!([]));
    assert_eq!(session.calls()["w"].get("kind"), "think");
}

/// The same list for a client that takes plans by their ids. An empty list is no plan.
#[test]
fn a_plan_has_an_id_for_a_client_that_takes_several() {
    let state = |todos: &Value| {
        RunEvent::StateSnapshot(threadway_translate::json::raw(json!({"todos": todos}).to_string()))
    };
    let todo = |status: &str| json!([{"content": "a", "status": status}]);
    let events = [
        started(),
        state(&json!([])),
        state(&todo("pending")),
        state(&todo("completed")),
        state(&todo("completed")),
        state(&json!([])),
        finished(),
    ];
    let mut projector = acp::newcomer().planning(PlanForm::ById);
    let session = acp::project(&mut projector, &events);
    let schema = Schema::load();
    session.updates.iter().for_each(|update| schema.check_update(update).unwrap());
    let update = |status: &str| {
        let entries = json!([{"content": "a", "priority": "medium", "status": status}]);
        json!({"sessionUpdate": "plan_update",
            "plan": {"type": "items", "planId": "todos", "entries": entries}})
    };
    let removed = json!({"sessionUpdate": "plan_removed", "planId": "todos"});
    assert_eq!(session.updates, [update("pending"), update("completed"), removed]);
}

#[test]
fn cost_is_told_where_the_window_is_known_and_new() {
    let spent = |model: &str, agent: Option<&str>| RunEvent::Spent {
        message_id: id("m"),
        usage: Usage {
            model: Some(id(model)),
            input: Some(40),
            output: Some(2),
            ..Usage::default()
        },
        agent: agent.map(id),
    };
    let windows = vec![("gpt-*".parse().unwrap(), 1000)];
    let dialect = GraphProfile { windows, ..GraphProfile::default() };
    let mut projector = Projector::new(Arc::new(dialect), acp::CWD);
    let events = [
        started(),
        spent("claude", None),
        spent("gpt-5", Some("nobody")),
        spent("gpt-5", None),
        spent("gpt-5", None),
    ];
    let session = acp::project(&mut projector, &events);
    checked(&session);
    let expected = json!({"sessionUpdate": "usage_update", "used": 42, "size": 1000});
    assert_eq!(session.updates, [expected]);
}

// --- size ---

#[test]
fn a_long_history_costs_its_length() {
    let history = |turns: usize| {
        let messages = (0..turns).flat_map(|turn| {
            let mut ai = message(&format!("ai{turn}"), Role::Assistant, "Looking up.");
            ai.calls.push(call(&format!("c{turn}"), "read_file", &json!({"file_path": "x"})));
            let human = message(&format!("h{turn}"), Role::User, "hi");
            [human, ai, answer(&format!("r{turn}"), &format!("c{turn}"), "text")]
        });
        snapshot(&messages.collect::<Vec<_>>())
    };
    let mut projector = acp::newcomer();
    let session = acp::project(&mut projector, [&history(5_000)]);
    assert_eq!(session.updates.len(), 15_000);
    let again = acp::project(&mut projector, [&history(5_000)]);
    assert_eq!(again.updates.len(), 0);
}
