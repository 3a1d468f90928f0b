//! Followers that return with the id of an end: they are not sent again what they hold.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use crate::support::gateway::{Response, THREAD, agents, events_request, part, serve_as};
use crate::support::langgraph::{LangGraph, Run, soon, state};
use serde_json::{Value, json};
use threadway::agents::{Agents, Emits};
use threadway::server::Settings;
use threadway_translate::langgraph::ErrorDetail;
use threadway_translate::run::{EmitOptions, MessageSnapshots, StateEvents};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const RUN: &str = "01a200b7-5ee6-7592-b13b-000000000001";
const LATER: &str = "01a200b7-5ee6-7592-b13b-000000000002";

/// More than this is a thread, and less is what changed of it.
const FEW_BYTES: usize = 3_000;

struct Front {
    address: SocketAddr,
    _stop: CancellationToken,
    _serving: JoinSet<()>,
}

/// A follower and its frames so far.
struct Viewer {
    response: Response,
    frames: Vec<String>,
}

// === impl Front ===

impl Front {
    async fn of(server: &LangGraph) -> Self {
        Self::with(agents(&[("default", &server.url)], &[]), Settings::default()).await
    }

    async fn with(agents: Agents, settings: Settings) -> Self {
        let (address, stop, serving, _) = serve_as(agents, settings).await;
        Self { address, _stop: stop, _serving: serving }
    }

    /// A follower that returns with this id.
    async fn returns(&self, last: &str) -> Viewer {
        let request = events_request(&format!("last-event-id: {last}\r\n"), "?follow=thread");
        self.asks(&request).await
    }

    async fn asks(&self, request: &str) -> Viewer {
        let response = soon("an answer", Response::to(self.address, request.as_bytes())).await;
        assert!(response.head.starts_with("HTTP/1.1 200 "), "{}", response.head);
        Viewer { response, frames: Vec::new() }
    }

    /// A new follower that was sent the thread. So the gateway has looked at the thread.
    async fn looks(&self) -> Viewer {
        let mut viewer = self.asks(&events_request("", "?follow=thread")).await;
        viewer.ends().await;
        viewer
    }
}

// === impl Viewer ===

impl Viewer {
    /// Reads to the end of a run or of an idle thread. Returns its id.
    async fn ends(&mut self) -> String {
        loop {
            let frame = soon("an event", self.response.whole_frame()).await;
            assert_ne!(frame, "", "the stream ended after {:#?}", self.frames);
            let is_end = event(&frame).is_some_and(|event| {
                matches!(event["type"].as_str(), Some("RUN_FINISHED" | "RUN_ERROR"))
            });
            let id = id(&frame).map(str::to_owned);
            self.frames.push(frame);
            if is_end {
                return id.expect("an end has an id");
            }
        }
    }

    fn bytes(&self) -> usize {
        self.frames.iter().map(String::len).sum()
    }

    /// The events so far.
    fn events(&self) -> Vec<Value> {
        self.frames.iter().filter_map(|frame| event(frame)).collect()
    }

    fn types(&self) -> Vec<String> {
        self.events().iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    }
}

fn id(frame: &str) -> Option<&str> {
    frame.lines().find_map(|line| line.strip_prefix("id: "))
}

fn event(frame: &str) -> Option<Value> {
    let data = frame.lines().find_map(|line| line.strip_prefix("data: "))?;
    Some(serde_json::from_str(data).unwrap())
}

/// A conversation of about 600 kB.
fn long() -> Vec<Value> {
    let message = |at: usize| {
        let kind = if at.is_multiple_of(2) { "human" } else { "ai" };
        json!({"id": format!("m{at}"), "type": kind, "content": "naïve ".repeat(160)})
    };
    (0..600).map(message).collect()
}

fn with(mut messages: Vec<Value>, id: &str, text: &str) -> Vec<Value> {
    messages.push(json!({"id": id, "type": "ai", "content": text}));
    messages
}

fn at(checkpoint: &str, messages: &[Value]) -> Value {
    let mut state = state(checkpoint, &json!(messages), &json!([]));
    state["values"]["plan"] = json!({"b": [1.50, null], "a": "é"});
    state
}

fn change(server: &LangGraph, state: Value) {
    server.books().threads.get_mut(THREAD).unwrap().state = Some(state);
}

/// Adds a live run that somebody else has started.
fn begins(server: &LangGraph, id: &str, at: u32) {
    let run = json!({"run_id": id, "thread_id": THREAD, "status": "running",
        "created_at": format!("2026-11-22T10:00:0{at}.000000+00:00"), "metadata": {},
        "kwargs": {"resumable": true, "stream_mode": ["values", "messages-tuple"]}});
    server.books().threads.get_mut(THREAD).unwrap().runs.insert(0, run);
}

/// A run whose stream writes its state in another way than a read of the state does.
async fn runs_to(mut run: Run, messages: &[Value], state: Value) {
    run.sends("metadata", &json!({"run_id": run.id, "attempt": 1})).await;
    run.sends("values", &json!({"messages": long()})).await;
    run.says("new", "the answer").await;
    let values = json!({"plan": {"a": "é", "b": [1.50, null]}, "messages": messages});
    let values = part("values", &values).replace("naïve", "na\\u00efve").replace("\":{", "\": {");
    run.exchange.send(values).await;
    run.ends("success", Some(state)).await;
}

/// The thread has this much more now. Each follower is sent just that, and nothing before it.
async fn is_sent_only(server: &LangGraph, fronts: &[&Front], viewers: &mut [Viewer], state: Value) {
    let checkpoint = state["checkpoint"]["checkpoint_id"].as_str().unwrap().to_owned();
    let text = state["values"]["messages"].as_array().unwrap().last().unwrap()["content"].clone();
    change(server, state);
    for front in fronts {
        front.looks().await;
    }
    for viewer in viewers {
        viewer.ends().await;
        let events = viewer.events();
        assert_eq!(events[0]["runId"], format!("connect-{checkpoint}"), "{:?}", viewer.types());
        assert!(viewer.bytes() < FEW_BYTES, "{} bytes", viewer.bytes());
        assert!(events.iter().any(|event| event["delta"] == text), "{events:#?}");
        // Before it there is nothing but the time after which a client reconnects.
        let before: String =
            viewer.frames.iter().take_while(|frame| event(frame).is_none()).cloned().collect();
        assert!(
            before.lines().all(|line| line.is_empty()
                || line.starts_with("retry: ")
                || line.starts_with(':')),
            "{before}"
        );
        viewer.frames.clear();
    }
}

#[tokio::test]
async fn who_holds_what_a_thread_shows_is_sent_nothing_by_any_gateway() {
    let server = LangGraph::start().await;
    server.thread(THREAD, json!({}), Some(at("C1", &long())));
    let (one, two) = (Front::of(&server).await, Front::of(&server).await);
    let mut first = one.looks().await;
    assert!(first.bytes() > 600_000, "{} bytes", first.bytes());
    let last = id(first.frames.last().unwrap()).unwrap().to_owned();
    assert_eq!(first.events()[0]["runId"], "connect-after-C1");
    first.frames.clear();
    // The first gateway still follows the thread. The second one has never seen it.
    let mut viewers = [first, one.returns(&last).await, two.returns(&last).await];
    let more = at("C2", &with(long(), "new", "one more"));
    is_sent_only(&server, &[&one, &two], &mut viewers, more).await;
}

#[tokio::test]
async fn who_has_the_end_of_a_run_is_sent_nothing_by_any_gateway_either() {
    let mut server = LangGraph::start().await;
    server.hold(&format!("/runs/{RUN}/stream"));
    server.hold(&format!("/runs/{LATER}/stream"));
    server.thread(THREAD, json!({}), Some(at("C1", &long())));
    let (one, two) = (Front::of(&server).await, Front::of(&server).await);
    let mut first = one.looks().await;
    begins(&server, RUN, 1);
    // The gateway looks at the thread for a follower that connects.
    let mut second = one.asks(&events_request("", "?follow=thread")).await;
    let said = with(long(), "new", "the answer");
    runs_to(server.joined().await, &said, at(RUN, &said)).await;
    first.frames.clear();
    let last = first.ends().await;
    assert_eq!(first.events()[0]["runId"], RUN, "{:?}", first.types());
    assert_eq!(second.ends().await, last);
    // One gateway has read the run, one has never seen the thread, and one has just started.
    let three = Front::of(&server).await;
    let mut viewers =
        [one.returns(&last).await, two.returns(&last).await, three.returns(&last).await];
    let more = at("C3", &with(said, "more", "by hand"));
    is_sent_only(&server, &[&one, &two, &three], &mut viewers, more).await;
}

#[tokio::test]
async fn the_first_gateway_is_silent_after_the_end_of_its_run_and_sends_the_next_run() {
    let mut server = LangGraph::start().await;
    server.hold(&format!("/runs/{RUN}/stream"));
    server.hold(&format!("/runs/{LATER}/stream"));
    server.thread(THREAD, json!({}), Some(at("C1", &long())));
    let front = Front::of(&server).await;
    let mut first = front.looks().await;
    begins(&server, RUN, 1);
    let mut second = front.asks(&events_request("", "?follow=thread")).await;
    let said = with(long(), "new", "the answer");
    runs_to(server.joined().await, &said, at(RUN, &said)).await;
    first.frames.clear();
    let last = first.ends().await;
    second.ends().await;
    let mut back = front.returns(&last).await;
    begins(&server, LATER, 2);
    let _third = front.asks(&events_request("", "?follow=thread")).await;
    let later = with(said.clone(), "last", "the last answer");
    let mut run = server.joined().await;
    run.sends("metadata", &json!({"run_id": LATER, "attempt": 1})).await;
    run.sends("values", &json!({"messages": said})).await;
    run.says("last", "the last answer").await;
    run.sends("values", &at(LATER, &later)["values"]).await;
    run.ends("success", Some(at(LATER, &later))).await;
    back.ends().await;
    let events = back.events();
    assert_eq!(events[0]["runId"], LATER, "{:?}", back.types());
    assert!(back.bytes() < FEW_BYTES, "{} bytes: {:?}", back.bytes(), back.types());
}

#[tokio::test]
async fn an_older_view_gets_what_is_new_where_it_is_kept_and_else_the_thread() {
    let server = LangGraph::start().await;
    server.thread(THREAD, json!({}), Some(at("C1", &long())));
    let (one, two) = (Front::of(&server).await, Front::of(&server).await);
    let mut first = one.looks().await;
    let last = id(first.frames.last().unwrap()).unwrap().to_owned();
    // The watcher stays, and a run comes between, so that it keeps the view before it.
    change(&server, at("C2", &with(long(), "new", "one more")));
    one.looks().await;
    first.ends().await;
    let mut of_two = two.returns(&last).await;
    of_two.ends().await;
    assert_eq!(of_two.events()[0]["runId"], "connect-after-C2");
    assert!(of_two.bytes() > 600_000, "{} bytes", of_two.bytes());
    let mut of_one = one.returns(&last).await;
    of_one.ends().await;
    assert_eq!(of_one.events()[0]["runId"], "connect-after-C2");
    // Ids that are no end, or of another thread, show nothing of what the client holds.
    for other in [
        last.replace("2.connect-after-C1.", "1.connect-after-C1.1.end.0.") + "0000",
        "2.connect-after-C2.AAAMAA".to_owned(),
        format!("2.connect-{THREAD}.AAAIAA"),
    ] {
        let mut viewer = one.returns(&other).await;
        viewer.ends().await;
        assert!(viewer.bytes() > 600_000, "{other}: {} bytes", viewer.bytes());
    }
}

// === what the id depends on ===

/// The id of the idle thread's end, as a gateway with these options gives it.
async fn id_of(
    server: &LangGraph,
    emit: EmitOptions,
    key: &str,
    error_detail: ErrorDetail,
) -> String {
    let keys = HashMap::from([("agent".to_owned(), key.parse().unwrap())]);
    let emits = Emits { default: emit, by_agent: HashMap::new() };
    let agents = agents(&[("default", &server.url)], &[]);
    let agents = agents.with_emits(emits).with_messages_keys(keys);
    let settings = Settings { error_detail, ..Settings::default() };
    let front = Front::with(agents, settings).await;
    let mut viewer = front.looks().await;
    let last = id(viewer.frames.last().unwrap()).unwrap().to_owned();
    viewer.frames.clear();
    last
}

/// Changes a state.
type Change = fn(&mut Value);

/// The thread of a question about two actions, after a run.
fn asked() -> (Value, Value, Value) {
    let action = |name: &str| json!({"name": name, "args": {"path": "/tmp/x"}});
    let config =
        |name: &str| json!({"action_name": name, "allowed_decisions": ["approve", "reject"]});
    let question = json!({"id": "c9ae0f4bb1d24f7a8a2f5f0c1d2e3f40", "value": {
        "action_requests": [action("one"), action("two")],
        "review_configs": [config("one"), config("two")]}});
    let said = json!([{"id": "m0", "type": "human", "content": "do both"}]);
    let run = json!({"run_id": "R0", "thread_id": THREAD, "status": "success",
        "created_at": "2026-11-22T09:00:00.000000+00:00", "metadata": {}, "kwargs": {}});
    let mut state = state("R0", &said, &json!([question]));
    state["values"]["n"] = json!(1);
    (json!({}), state, run)
}

#[tokio::test]
async fn the_id_of_an_end_is_another_as_soon_as_anything_else_is_shown() {
    let (metadata, state, run) = asked();
    let server = LangGraph::start().await;
    let shows = |metadata: &Value, state: &Value, run: &Value| {
        server.thread(THREAD, metadata.clone(), Some(state.clone()));
        server.books().threads.get_mut(THREAD).unwrap().runs.push(run.clone());
    };
    let plain =
        async || id_of(&server, EmitOptions::default(), "messages", ErrorDetail::Message).await;
    shows(&metadata, &state, &run);
    let mut ids = BTreeMap::from([(plain().await, "as it is".to_owned())]);
    // The same, in another order, with another time, and by another gateway.
    let mut same = state.clone();
    same["created_at"] = json!("2026-11-22T10:00:00Z");
    same["metadata"]["step"] = json!(7);
    same["values"] = json!({"n": 1, "messages": state["values"]["messages"]});
    shows(&metadata, &same, &run);
    assert!(ids.contains_key(&plain().await), "nothing has changed");

    let mut note = |what: &str, id: String| {
        if let Some(other) = ids.insert(id, what.to_owned()) {
            panic!("{what} and {other} have one id");
        }
    };
    let changes: [(&str, Change); 9] = [
        ("a text", |state| state["values"]["messages"][0]["content"] = json!("do both!")),
        ("a message", |state| {
            let more = json!({"id": "m1", "type": "ai", "content": ""});
            state["values"]["messages"].as_array_mut().unwrap().push(more);
        }),
        ("a role", |state| state["values"]["messages"][0]["type"] = json!("ai")),
        ("a number", |state| state["values"]["n"] = json!(1.0)),
        ("a member", |state| state["values"]["more"] = Value::Null),
        ("a question", |state| state["tasks"][0]["interrupts"][0]["value"] = json!("which?")),
        ("another id of it", |state| {
            state["tasks"][0]["interrupts"][0]["id"] = json!("d1be0f4bb1d24f7a8a2f5f0c1d2e3f41");
        }),
        ("an action", |state| {
            state["tasks"][0]["interrupts"][0]["value"]["action_requests"][1]["args"] = json!({});
        }),
        ("no question", |state| {
            state["tasks"] = json!([]);
            state["next"] = json!([]);
        }),
    ];
    for (what, change) in changes {
        let mut other = state.clone();
        change(&mut other);
        shows(&metadata, &other, &run);
        note(what, plain().await);
    }
    for decision in ["approve", "reject"] {
        let kept = json!({"interrupt": "c9ae0f4bb1d24f7a8a2f5f0c1d2e3f40", "action": 0,
            "after": "R0", "decision": {"type": decision}});
        shows(&json!({"threadway_answer:0:0": kept}), &state, &run);
        note(&format!("a kept answer: {decision}"), plain().await);
    }
    let mut failed = run.clone();
    failed["status"] = json!("error");
    for error in ["ValueError('no')", "ValueError('no!')", "KeyError('no')"] {
        let mut state = state.clone();
        state["tasks"] = json!([{"id": "t", "name": "model", "error": error, "interrupts": []}]);
        shows(&metadata, &state, &failed);
        note(error, plain().await);
        if error == "ValueError('no')" {
            for detail in [ErrorDetail::Full, ErrorDetail::Code, ErrorDetail::None] {
                let id = id_of(&server, EmitOptions::default(), "messages", detail).await;
                note(&format!("{error} with {detail:?}"), id);
            }
        }
    }
    shows(&metadata, &state, &run);
    let default = EmitOptions::default();
    for emit in [
        EmitOptions { state: StateEvents::None, ..default },
        EmitOptions { messages: MessageSnapshots::Always, ..default },
        EmitOptions { tool_results: false, ..default },
        EmitOptions { max_tool_result_bytes: 5, ..default },
        EmitOptions { max_event_bytes: 5, ..default },
        EmitOptions { reasoning: false, ..default },
        EmitOptions { steps: false, ..default },
        EmitOptions { activities: false, ..default },
    ] {
        note(&format!("{emit:?}"), id_of(&server, emit, "messages", ErrorDetail::Message).await);
    }
    note("another key", id_of(&server, default, "chat", ErrorDetail::Message).await);
    // Another checkpoint with the same content has another id, and its digest is the same.
    let mut later = state.clone();
    later["checkpoint"]["checkpoint_id"] = json!("after-R1");
    shows(&metadata, &later, &run);
    note("another checkpoint", plain().await);
}
