//! Subagents as child sessions, for an ACP client that can show them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use threadway_translate::acp::{self, CallDecision, GraphProfile, Projector, Update};
use threadway_translate::json::{self, Text, TextBuf};
use threadway_translate::run::{
    Action, Content, Finish, Id, Message, Outcome, Role, RunEvent, Subagent, Viewer, resync,
};

use crate::support::acp_schema::Schema;
use crate::support::{acp as session, capture};

const SESSION: &str = "S";

/// The updates of a client with child sessions, each with its session.
#[derive(Debug, Default)]
struct Shown(Vec<(String, Value)>);

fn nesting() -> Projector {
    Projector::new(Arc::new(GraphProfile::default()), session::CWD).nesting(SESSION)
}

impl Shown {
    fn push(&mut self, update: &Update<'_>) {
        let mut line = Vec::new();
        acp::notification(SESSION, update, &mut line);
        let mut message: Value = serde_json::from_slice(&line).expect("a line of JSON");
        let session = message["params"]["sessionId"].as_str().expect("a session").to_owned();
        self.0.push((session, message["params"]["update"].take()));
    }

    fn project<'a>(
        &mut self,
        projector: &mut Projector,
        events: impl IntoIterator<Item = &'a RunEvent>,
    ) {
        for event in events {
            projector.project(event, &mut |update| self.push(update));
        }
    }

    fn of(&self, session: &str) -> Vec<&Value> {
        self.0.iter().filter(|(of, _)| of == session).map(|(_, update)| update).collect()
    }

    /// The sessions of all children.
    fn children(&self) -> BTreeSet<&str> {
        let updates = self.0.iter().map(|(_, update)| update);
        let updates = updates.filter(|update| update["sessionUpdate"] == "subagent_update");
        updates.filter_map(|update| update["sessionId"].as_str()).collect()
    }

    /// The last state of a child.
    fn state(&self, child: &str) -> &Value {
        let is_state = |update: &&Value| update["sessionId"] == child && !update["state"].is_null();
        let mut states = self.0.iter().rev().map(|(_, update)| update).filter(is_state);
        &states.next().expect("a child has a state")["state"]
    }

    /// Each child is announced in a known session before its own updates, and before it is referred
    /// to. Each call is announced in its session before it changes.
    fn check(&self) -> Result<(), String> {
        let schema = Schema::load();
        let mut known = BTreeSet::from([SESSION.to_owned()]);
        let mut calls = BTreeSet::new();
        for (session, update) in &self.0 {
            schema.check_update(update)?;
            if !known.contains(session) {
                return Err(format!("{session} was not announced: {update}"));
            }
            match update["sessionUpdate"].as_str().unwrap_or_default() {
                "subagent_update" => {
                    known.insert(update["sessionId"].as_str().unwrap_or_default().to_owned());
                }
                "tool_call" => {
                    calls.insert((session, update["toolCallId"].to_string()));
                }
                "tool_call_update" => {
                    let call = (session, update["toolCallId"].to_string());
                    if !calls.contains(&call) {
                        return Err(format!("{call:?} was not announced: {update}"));
                    }
                }
                _ => {}
            }
            for content in update["content"].as_array().into_iter().flatten() {
                let session = content["sessionId"].as_str().unwrap_or(SESSION);
                if !known.contains(session) {
                    return Err(format!("{session} was not announced: {update}"));
                }
            }
        }
        Ok(())
    }

    /// The texts by session and message.
    fn texts(&self) -> BTreeMap<(&str, &str), String> {
        let mut texts: BTreeMap<_, String> = BTreeMap::new();
        for (session, update) in &self.0 {
            if let (Some(id), Some(text)) =
                (update["messageId"].as_str(), update["content"]["text"].as_str())
            {
                texts.entry((&**session, id)).or_default().push_str(text);
            }
        }
        texts
    }
}

fn text(text: &str) -> Text {
    Text::new(text)
}

fn said(words: &str) -> Content {
    Content::Text(TextBuf::from(&text(words)))
}

fn id(id: &str) -> Id {
    Id::from(id)
}

fn started() -> RunEvent {
    RunEvent::Started { thread_id: id("T"), run_id: Some(id("R")), name: id("R") }
}

fn call(call_id: &str, name: &str, args: &str, agent: Option<&str>) -> Vec<RunEvent> {
    let message_id = id(&format!("m-{call_id}"));
    let (name, agent) = (id(name), agent.map(id));
    let call_id = || id(call_id);
    vec![
        RunEvent::CallStarted { call_id: call_id(), name, message_id, agent },
        RunEvent::CallArgs { call_id: call_id(), delta: text(args) },
        RunEvent::CallEnded { call_id: call_id() },
    ]
}

fn result(call_id: &str, words: &str, agent: Option<&str>) -> RunEvent {
    RunEvent::CallResult {
        message_id: id(&format!("r-{call_id}")),
        call_id: id(call_id),
        content: said(words),
        is_error: false,
        agent: agent.map(id),
    }
}

fn words(message: &str, words: &str, agent: Option<&str>) -> Vec<RunEvent> {
    let message_id = || id(message);
    vec![
        RunEvent::TextStarted {
            message_id: message_id(),
            role: Role::Assistant,
            name: None,
            agent: agent.map(id),
        },
        RunEvent::TextDelta { message_id: message_id(), delta: text(words) },
        RunEvent::TextEnded { message_id: message_id() },
    ]
}

fn subagent(agent: &str, parent: Option<&str>, call_id: &str) -> RunEvent {
    RunEvent::SubagentStarted(Subagent {
        id: id(agent),
        name: id("researcher"),
        parent: parent.map(id),
        call_id: Some(id(call_id)),
    })
}

fn finished(agent: &str) -> RunEvent {
    RunEvent::SubagentFinished { id: id(agent) }
}

fn ended(outcome: Outcome) -> RunEvent {
    RunEvent::Ended { outcome, usage: Vec::new() }
}

fn done() -> RunEvent {
    ended(Outcome::Finished { pending_calls: Vec::new(), finish: Finish::Done })
}

fn action(name: &str, args: &Value, call_id: &str) -> Action {
    Action {
        name: text(name),
        args: json::raw(args.to_string()),
        description: None,
        decisions: Vec::new(),
        call_id: Some(id(call_id)),
        schema: None,
        details: None,
        kept: None,
    }
}

const TASK: &str = r#"{"description":"Find the weather","subagent_type":"researcher"}"#;

/// A run with a subagent and a subagent of it.
fn nested() -> Vec<RunEvent> {
    [
        vec![started()],
        call("c1", "task", TASK, None),
        vec![subagent("a1", None, "c1")],
        words("m1", "I look.", Some("a1")),
        call("c2", "task", TASK, Some("a1")),
        vec![subagent("a2", Some("a1"), "c2")],
    ]
    .concat()
}

#[test]
fn every_capture_is_legal_with_child_sessions_and_says_the_same() {
    let mut wrong = Vec::new();
    let mut children = 0;
    for capture in capture::all() {
        let (events, view) = capture::run_events(&capture.bytes);
        let mut live = Shown::default();
        let mut projector = nesting();
        live.project(&mut projector, &events);
        projector.settle(&mut |update| live.push(update));
        let plain = session::project(&mut session::newcomer(), &events);
        let mut late = Shown::default();
        let shown = resync(&view, Viewer::New, threadway_translate::run::EmitOptions::default());
        late.project(&mut nesting(), &shown.unwrap_or_default());
        let told = live.texts();
        let root = |(session, _): &(&str, &str)| *session == SESSION;
        let own: BTreeMap<_, _> = told.iter().filter(|(key, _)| root(key)).collect();
        let same = plain
            .texts()
            .iter()
            .all(|(id, text)| own.iter().any(|((_, told), said)| *told == id && *said == text));
        let works = |child: &&str| live.state(child)["state"] != "idle";
        let working: Vec<_> = live.children().into_iter().filter(works).collect();
        children += live.children().len();
        let verdicts = [
            live.check(),
            late.check(),
            if same { Ok(()) } else { Err(format!("{own:?} is not {:?}", plain.texts())) },
            if working.is_empty() { Ok(()) } else { Err(format!("{working:?} still work")) },
        ];
        let name = || capture.name.clone();
        wrong.extend(verdicts.into_iter().filter_map(Result::err).map(|why| (name(), why)));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(children > 0, "no capture has a subagent");
}

#[test]
fn a_subagent_is_a_session_with_a_title_a_description_and_a_state() {
    let events = [
        vec![started()],
        call("c1", "task", TASK, None),
        vec![subagent("a1", None, "c1")],
        words("m1", "I look.", Some("a1")),
        call("i1", "search", r#"{"query":"weather"}"#, Some("a1")),
        vec![result("i1", "sunny", Some("a1"))],
        vec![finished("a1"), result("c1", "It is sunny.", None)],
        words("m2", "Sunny.", None),
        vec![done()],
    ]
    .concat();
    let mut shown = Shown::default();
    shown.project(&mut nesting(), &events);
    shown.check().unwrap();
    let root = shown.of(SESSION);
    let updates: Vec<_> = root.iter().filter(|u| u["sessionUpdate"] == "subagent_update").collect();
    assert_eq!(
        *updates[0],
        &json!({"sessionUpdate": "subagent_update", "sessionId": "S:a1", "title": "researcher",
            "state": {"state": "running"}})
    );
    assert_eq!(updates[1]["description"], "Find the weather");
    assert_eq!(updates[2]["state"], json!({"state": "idle", "stopReason": "end_turn"}));
    let is_call = |update: &&&Value| update["toolCallId"] == "c1";
    let calls: Vec<_> = root.iter().filter(is_call).collect();
    let reference = json!([{"type": "session", "sessionId": "S:a1"}]);
    assert!(calls.iter().any(|call| call["content"] == reference), "{calls:?}");
    let last = calls.last().unwrap();
    assert_eq!(last["status"], "completed");
    assert_eq!(last["content"][0], reference[0]);
    assert_eq!(last["content"][1]["content"]["text"], "It is sunny.");
    let child = shown.of("S:a1");
    assert_eq!(child[0]["content"]["text"], "I look.");
    assert!(child.iter().any(|u| u["toolCallId"] == "i1" && u["status"] == "completed"));
    assert!(!root.iter().any(|u| u["toolCallId"] == "i1" || u["messageId"] == "m1"));
}

#[test]
fn the_subagent_of_a_subagent_is_announced_in_its_session() {
    let mut shown = Shown::default();
    let mut projector = nesting();
    shown.project(&mut projector, &nested());
    shown.project(&mut projector, &words("m3", "Deep.", Some("a2")));
    shown.project(&mut projector, &[finished("a2"), finished("a1"), done()]);
    shown.check().unwrap();
    let announced = |session: &str, child: &str| {
        let updates = shown.of(session);
        updates.iter().any(|u| u["sessionId"] == child && u["title"] == "researcher")
    };
    assert!(announced(SESSION, "S:a1") && announced("S:a1", "S:a2"), "{shown:?}");
    assert_eq!(shown.of("S:a2")[0]["content"]["text"], "Deep.");
    assert_eq!(shown.state("S:a2")["stopReason"], "end_turn");
}

#[test]
fn a_question_of_a_subagent_is_asked_in_its_session_and_it_goes_on_there() {
    let mut shown = Shown::default();
    let mut projector = nesting();
    let begun = [
        vec![started()],
        call("c1", "task", TASK, None),
        vec![subagent("a1", None, "c1")],
        call("i1", "delete_file", r#"{"path":"/a"}"#, Some("a1")),
        vec![finished("a1"), ended(Outcome::Interrupted(Vec::new()))],
    ];
    shown.project(&mut projector, &begun.concat());
    assert_eq!(shown.state("S:a1")["state"], "requires_action");
    let delete = action("delete_file", &json!({"path": "/a"}), "i1");
    let question = id("q");
    let asked = projector.ask(&question, 0, &delete, &mut |update| shown.push(update));
    assert_eq!(asked.tool_call_id, "i1");
    assert_eq!(projector.session_of(&question, 0, &delete), Some("S:a1"));
    let of_root = action("delete_file", &json!({"path": "/a"}), "c1");
    assert_eq!(projector.session_of(&question, 0, &of_root), None);
    let allowed = CallDecision::Allowed;
    projector.decide(&question, 0, &delete, allowed, &mut |update| shown.push(update));
    let last = shown.of("S:a1").last().copied().cloned().unwrap();
    assert_eq!((&last["toolCallId"], &last["status"]), (&json!("i1"), &json!("in_progress")));
    let resumed = [
        vec![started(), subagent("a1", None, "c1")],
        vec![result("i1", "deleted", Some("a1")), finished("a1")],
        vec![result("c1", "Done.", None), done()],
    ];
    shown.project(&mut projector, &resumed.concat());
    shown.check().unwrap();
    assert_eq!(shown.children(), BTreeSet::from(["S:a1"]));
    assert_eq!(shown.state("S:a1")["stopReason"], "end_turn");
    let titles = shown.0.iter().filter(|(_, update)| !update["title"].is_null());
    let titles = titles.filter(|(_, update)| update["sessionUpdate"] == "subagent_update");
    assert_eq!(titles.count(), 1);
}

#[test]
fn a_child_says_how_its_work_ended() {
    use threadway_translate::run::{Failure, RunError};
    let failed = Outcome::Failed(Failure::Graph(RunError::new("ValueError", "no model")));
    for (outcome, expected) in [
        (Outcome::Cancelled, json!({"state": "idle", "stopReason": "cancelled"})),
        (
            Outcome::Finished { pending_calls: Vec::new(), finish: Finish::Done },
            json!({"state": "idle", "stopReason": "end_turn"}),
        ),
    ] {
        let mut projector = nesting();
        let mut shown = Shown::default();
        shown.project(&mut projector, &nested());
        shown.project(&mut projector, &[finished("a2"), finished("a1"), ended(outcome)]);
        assert_eq!(*shown.state("S:a1"), expected);
        shown.check().unwrap();
    }
    let mut projector = nesting();
    let mut shown = Shown::default();
    shown.project(&mut projector, &nested());
    shown.project(&mut projector, &[finished("a2"), finished("a1"), ended(failed)]);
    let state = shown.state("S:a1");
    assert_eq!((&state["stopReason"], &state["error"]["code"]), (&json!("error"), &json!(-32603)));
    shown.check().unwrap();
    // A turn that is stopped before its run has ended.
    let mut projector = nesting();
    let mut shown = Shown::default();
    shown.project(&mut projector, &nested());
    projector.settle(&mut |update| shown.push(update));
    assert_eq!(shown.state("S:a1")["stopReason"], "cancelled");
    shown.check().unwrap();
}

#[test]
fn a_snapshot_shows_each_message_in_its_session() {
    let message = |of: &str, role, words: &str, agent: Option<&str>| {
        Arc::new(Message {
            content: said(words),
            agent: agent.map(id),
            ..Message::new(id(of), role)
        })
    };
    let messages = vec![
        message("h1", Role::User, "hi", None),
        message("h2", Role::User, "Find the weather", Some("a1")),
        message("m1", Role::Assistant, "I look.", Some("a1")),
    ];
    // Before the subagent is announced, and after it.
    for events in [
        vec![RunEvent::Messages(messages.clone().into()), subagent("a1", None, "c1")],
        vec![subagent("a1", None, "c1"), RunEvent::Messages(messages.into())],
    ] {
        let mut shown = Shown::default();
        let mut projector = nesting();
        shown.project(&mut projector, &[started()]);
        shown.project(&mut projector, &events);
        shown.check().unwrap();
        let child: Vec<_> = shown.of("S:a1");
        assert_eq!(
            *child[0],
            json!({"sessionUpdate": "session_message", "messageId": "h2",
                "senderSessionId": SESSION, "recipientSessionId": "S:a1",
                "content": [{"type": "text", "text": "Find the weather"}]})
        );
        assert_eq!(child[1]["content"]["text"], "I look.");
        let root: Vec<_> = shown.of(SESSION);
        assert!(root.iter().any(|u| u["sessionUpdate"] == "user_message_chunk"));
        assert!(!root.iter().any(|u| u["messageId"] == "h2" || u["messageId"] == "m1"));
    }
}
