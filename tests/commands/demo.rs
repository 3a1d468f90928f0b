//! The demo's scripted LangGraph server on real sockets, and the translation of its streams.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::capture::Capture;
use crate::support::clock::HeldClock;
use crate::support::http::client;
use crate::support::judge::{self, Shown};
use crate::support::schema::Schema;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use threadway::server::{self, Limits};
use threadway_demo::{BACKGROUND_PERIOD, Demo, GRAPHS, HEARTBEAT_INTERVAL, Pace, WATCHED_THREAD};
use threadway_translate::run::{Role, View};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const THREAD: &str = "0f9cfe5e-7d44-4d4f-8aef-a4e7c1d4a2a1";
const NOBODY: &str = "0f9cfe5e-7d44-4d4f-8aef-000000000000";
const MODES: [&str; 4] = ["values", "messages-tuple", "updates", "custom"];

/// A serving demo.
struct Served {
    demo: Demo,
    address: SocketAddr,
    stop: CancellationToken,
    http: reqwest::Client,
    serving: JoinSet<()>,
}

/// A stream that is still being read.
struct Stream {
    response: Response,
    /// Text that was read and that the test has not yet taken.
    raw: String,
    /// Text that the test has taken.
    told: String,
}

#[derive(Clone, Debug, PartialEq)]
struct Part {
    event: String,
    data: Value,
    id: Option<String>,
}

// === impl Served ===

impl Served {
    async fn start(pace: Pace) -> Self {
        let stop = CancellationToken::new();
        let demo = Demo::new(pace, stop.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut serving = JoinSet::new();
        let (routes, on_stop) = (demo.routes(), stop.clone());
        serving.spawn(async move {
            server::serve(listener, routes, &Limits::default(), on_stop).await;
        });
        let http = client();
        Self { demo, address, stop, http, serving }
    }

    /// A demo at full speed, with a thread.
    async fn with_thread() -> Self {
        let served = Self::start(Pace::NONE).await;
        served.ok(Method::POST, "/threads", &json!({"thread_id": THREAD})).await;
        served
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> Response {
        let request = self.http.request(method, format!("http://{}{path}", self.address));
        let request = if body.is_null() { request } else { request.body(body.to_string()) };
        request.send().await.unwrap()
    }

    /// Sends a request; returns the status and the body.
    async fn ask(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let response = self.send(method, path, body).await;
        let status = response.status().as_u16();
        let body = response.text().await.unwrap();
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }

    async fn ok(&self, method: Method, path: &str, body: &Value) -> Value {
        let (status, answer) = self.ask(method, path, body).await;
        assert!((200..300).contains(&status), "{path}: {status} {answer}");
        answer
    }

    async fn get(&self, path: &str) -> Value {
        self.ok(Method::GET, path, &Value::Null).await
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.ok(Method::POST, path, &body).await
    }

    /// Sends a request that must be refused; returns the `detail`.
    async fn refused(&self, method: Method, path: &str, body: Value) -> (u16, String) {
        let (status, answer) = self.ask(method, path, &body).await;
        assert!(status >= 400, "{path}: {status} {answer}");
        (status, judge::string(&answer["detail"]))
    }

    async fn stream(&self, thread: &str, body: Value) -> Stream {
        let path = format!("/threads/{thread}/runs/stream");
        Stream::of(self.send(Method::POST, &path, &body).await)
    }

    async fn join(&self, path: &str, last_event_id: Option<&str>) -> Stream {
        let mut request = self.http.get(format!("http://{}{path}", self.address));
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        Stream::of(request.send().await.unwrap())
    }

    /// Runs to the end; returns the parts, and the thread's state after them.
    async fn run(&self, body: Value) -> (Vec<Part>, Value) {
        let mut stream = self.stream(THREAD, body).await;
        let parts = stream.rest().await;
        let state = self.get(&format!("/threads/{THREAD}/state")).await;
        judged(&stream.told, &parts, &state);
        (parts, state)
    }
}

// === impl Stream ===

impl Stream {
    fn of(response: Response) -> Self {
        assert_eq!(response.status(), 200);
        Self { response, raw: String::new(), told: String::new() }
    }

    fn header(&self, name: &str) -> &str {
        self.response.headers().get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The run id in the response's headers.
    fn run_id(&self) -> String {
        self.header("content-location").rsplit('/').next().unwrap().to_owned()
    }

    /// The next block; empty at the end.
    async fn block(&mut self) -> String {
        loop {
            if let Some(at) = self.raw.find("\r\n\r\n") {
                let block: String = self.raw.drain(..at + 4).collect();
                self.told.push_str(&block);
                return block;
            }
            let Some(bytes) = self.response.chunk().await.unwrap() else {
                assert_eq!(self.raw, "", "the stream ends inside a block");
                return String::new();
            };
            self.raw.push_str(std::str::from_utf8(&bytes).unwrap());
        }
    }

    /// The next part, after any heartbeats.
    async fn part(&mut self) -> Option<Part> {
        let mut block = self.block().await;
        while block.starts_with(':') {
            block = self.block().await;
        }
        let field = |name: &str| {
            let lines = block.split("\r\n").filter_map(|line| line.strip_prefix(name));
            lines.map(str::to_owned).next()
        };
        let event = field("event: ")?;
        let data = serde_json::from_str(&field("data: ").unwrap()).unwrap();
        Some(Part { event, data, id: field("id: ") })
    }

    /// Reads up to the next part of this name.
    async fn until(&mut self, event: &str) -> Part {
        loop {
            let part = self.part().await.expect("the stream ended");
            if part.event == event {
                return part;
            }
        }
    }

    async fn rest(&mut self) -> Vec<Part> {
        let mut parts = vec![];
        while let Some(part) = self.part().await {
            parts.push(part);
        }
        parts
    }
}

// === requests and expected answers ===

fn human(text: &str) -> Value {
    json!({"messages": [{"type": "human", "content": text}]})
}

fn new_run(graph: &str, text: &str) -> Value {
    json!({
        "assistant_id": graph, "input": human(text), "stream_mode": MODES,
        "stream_resumable": true, "if_not_exists": "create",
    })
}

fn resume(decisions: &Value) -> Value {
    let command = json!({"resume": {"decisions": decisions}});
    json!({"assistant_id": "approval", "command": command, "stream_mode": MODES})
}

fn events(parts: &[Part]) -> Vec<&str> {
    parts.iter().map(|part| &*part.event).collect()
}

/// The names of the nodes that have completed, from the `updates` parts.
fn nodes(parts: &[Part]) -> Vec<&str> {
    let updates = parts.iter().filter(|part| part.event == "updates");
    updates.flat_map(|part| part.data.as_object().unwrap().keys().map(|key| &**key)).collect()
}

fn kinds(state: &Value) -> Vec<&str> {
    let messages = state["values"]["messages"].as_array().unwrap().iter();
    messages.map(|message| message["type"].as_str().unwrap()).collect()
}

fn last_text(state: &Value) -> String {
    judge::text_of(&state["values"]["messages"].as_array().unwrap().last().unwrap()["content"])
}

/// Checks a stream as a client of the gateway would get it: it must be legal, and end with the
/// thread's state.
fn judged(bytes: &str, parts: &[Part], state: &Value) {
    let capture =
        Capture { name: "demo".to_owned(), bytes: bytes.as_bytes().to_vec(), request: Value::Null };
    let translated = capture.translate();
    judge::legal(&Schema::load(), &translated.events).unwrap();
    let streamed = judge::streamed_text(&translated.events);
    for (id, text) in judge::tokens(&capture.upstream()) {
        assert_eq!(streamed.get(&id), Some(&text), "{id} was not sent once");
    }
    let end = translated.events.last().unwrap();
    let outcome = match parts.last().unwrap() {
        Part { event, .. } if event == "error" => "RUN_ERROR",
        Part { data, .. } if data.get("__interrupt__").is_some() => "interrupt",
        _ => "success",
    };
    let told = end["outcome"]["type"].as_str().or_else(|| end["type"].as_str());
    assert_eq!(told, Some(outcome));

    let mut values = state["values"].clone();
    let messages = values.as_object_mut().unwrap().remove("messages").unwrap();
    let held = translated.view.state().unwrap().to_json();
    assert_eq!(serde_json::from_str::<Value>(held.get()).unwrap(), values);
    let messages: Vec<_> = messages.as_array().unwrap().iter().map(judge::shown).collect();
    assert_eq!(held_messages(&translated.view), messages);
}

fn held_messages(view: &View) -> Vec<Shown> {
    let messages = view.messages().iter().filter(|message| message.role != Role::Reasoning);
    let shown = |message: &std::sync::Arc<threadway_translate::run::Message>| {
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
            Role::System | Role::Developer | Role::Reasoning | Role::Attachment => "another",
        };
        let args = |text: &str| serde_json::from_str(text).unwrap();
        let calls = message.calls.iter().map(|call| {
            let args = args(&call.args.to_text().decode());
            (call.id.to_string(), call.name.to_string(), args)
        });
        Shown {
            id: message.id.to_string(),
            role,
            text: message.content.text().decode().into_owned(),
            calls: calls.collect(),
            answers: message.call_id.as_deref().unwrap_or_default().to_owned(),
        }
    };
    messages.map(shown).collect()
}

// === the server and its assistants ===

#[tokio::test]
async fn it_says_what_it_is_and_refuses_what_it_has_not() {
    let served = Served::start(Pace::NONE).await;
    assert_eq!(served.get("/ok").await["ok"], true);
    let info = served.get("/info").await;
    assert_eq!((&info["version"], &info["scripted"]), (&json!("0.16.7"), &json!(true)));
    let not_found = (404, "Not Found".to_owned());
    for (method, path) in
        [(Method::GET, "/nope"), (Method::DELETE, "/ok"), (Method::PUT, "/threads")]
    {
        assert_eq!(served.refused(method, path, Value::Null).await, not_found, "{path}");
    }
}

#[tokio::test]
async fn each_graph_has_an_assistant() {
    let served = Served::start(Pace::NONE).await;
    let all = served.post("/assistants/search", json!({"limit": 100})).await;
    let names: Vec<_> =
        all.as_array().unwrap().iter().map(|a| a["graph_id"].as_str().unwrap()).collect();
    assert_eq!(names, GRAPHS.map(|(name, _)| name));
    assert_eq!(served.post("/assistants/count", json!({})).await, json!(4));

    let page =
        served.send(Method::POST, "/assistants/search", &json!({"limit": 2, "offset": 1})).await;
    assert_eq!(page.headers()["x-pagination-next"], "3");
    assert_eq!(page.headers()["x-pagination-total"], "4");
    let page: Value = serde_json::from_str(&page.text().await.unwrap()).unwrap();
    assert_eq!(page, json!([all[1], all[2]]));

    let agent = served.post("/assistants/search", json!({"graph_id": "agent"})).await;
    // The Python server derives the same id.
    let id = "fe096781-5601-53d2-b2f6-0d3403f7e9ca";
    assert_eq!(agent[0]["assistant_id"], id);
    assert_eq!(served.get(&format!("/assistants/{id}")).await, agent[0]);
    let schemas = served.get(&format!("/assistants/{id}/schemas")).await;
    assert!(schemas["state_schema"]["properties"]["todos"].is_object());
    for (path, refusal) in [
        ("/assistants/agent", (422, "Invalid assistant ID: must be a UUID")),
        (&*format!("/assistants/{NOBODY}"), (404, "Not Found")),
        (&*format!("/assistants/{NOBODY}/schemas"), (404, "Not Found")),
    ] {
        let told = served.refused(Method::GET, path, Value::Null).await;
        assert_eq!((told.0, &*told.1), refusal, "{path}");
    }
}

// === threads ===

#[tokio::test]
async fn a_run_gives_its_metadata_to_the_thread_that_it_creates_and_to_no_other() {
    let served = Served::start(Pace::NONE).await;
    for (title, expected) in [("first", "first"), ("second", "first")] {
        let body = json!({"assistant_id": "agent", "input": {"messages": []},
            "metadata": {"title": title}, "if_not_exists": "create"});
        served.post(&format!("/threads/{THREAD}/runs/wait"), body).await;
        let thread = served.get(&format!("/threads/{THREAD}")).await;
        assert_eq!(thread["metadata"]["title"], expected);
        assert_eq!(thread["metadata"]["graph_id"], "agent");
    }
}

#[tokio::test]
async fn a_thread_is_made_found_changed_and_deleted() {
    let served = Served::start(Pace::NONE).await;
    let made = served.post("/threads", json!({"thread_id": THREAD, "metadata": {"a": 1}})).await;
    assert_eq!(made["status"], "idle");
    assert_eq!(made["values"], Value::Null);
    let again = json!({"thread_id": THREAD, "if_exists": "do_nothing", "metadata": {"a": 2}});
    assert_eq!(served.post("/threads", again).await, made);
    let path = format!("/threads/{THREAD}");
    let changed = served.ok(Method::PATCH, &path, &json!({"metadata": {"b": 2}})).await;
    assert_eq!(changed["metadata"], json!({"a": 1, "b": 2}));
    assert_eq!(served.get(&path).await, changed);
    // Nested values are not merged, and a null is kept.
    let nested = json!({"metadata": {"a": {"x": 1}, "gone": null}});
    served.ok(Method::PATCH, &path, &nested).await;
    let nested = json!({"metadata": {"a": {"y": 2}}});
    let nested = served.ok(Method::PATCH, &path, &nested).await;
    assert_eq!(nested["metadata"], json!({"a": {"y": 2}, "b": 2, "gone": null}));
    let url = format!("http://{}{path}", served.address);
    let minimal = served.http.patch(url).header("prefer", "return=minimal");
    let minimal = minimal.body(r#"{"metadata":{"a":1}}"#).send().await.unwrap();
    assert_eq!(minimal.status(), 204);
    let changed = served.get(&path).await;
    assert_eq!(changed["metadata"], json!({"a": 1, "b": 2, "gone": null}));
    assert_eq!(served.get(&format!("{path}/state")).await["values"], json!({}));
    assert_eq!(served.get(&format!("{path}/state")).await["checkpoint"], Value::Null);
    assert_eq!(served.get(&format!("{path}/history")).await, json!([]));

    let other = served.post("/threads", json!({})).await;
    let found = served.post("/threads/search", json!({})).await;
    assert_eq!(found, json!([other, changed]));
    for (search, expected) in [
        (json!({"metadata": {"b": 2}}), json!([changed])),
        (json!({"ids": [other["thread_id"]]}), json!([other])),
        (json!({"status": "busy"}), json!([])),
        (json!({"limit": 1, "offset": 1}), json!([changed])),
        (json!({"sort_by": "thread_id", "sort_order": "desc"}), json!([changed, other])),
        (json!({"sort_by": "updated_at", "sort_order": "asc"}), json!([changed, other])),
        (json!({"sort_by": "updated_at"}), json!([other, changed])),
        (
            json!({"metadata": {"b": 2}, "select": ["thread_id", "metadata", "interrupts"]}),
            json!([{"thread_id": THREAD, "metadata": {"a": 1, "b": 2, "gone": null}}]),
        ),
    ] {
        assert_eq!(served.post("/threads/search", search.clone()).await, expected, "{search}");
    }
    assert_eq!(served.post("/threads/count", json!({"status": "idle"})).await, json!(2));

    assert_eq!(served.ask(Method::DELETE, &path, &Value::Null).await.0, 204);
    let gone = (404, format!("Thread with ID {THREAD} not found"));
    for (method, path) in [
        (Method::DELETE, &*path),
        (Method::GET, &*path),
        (Method::GET, &*format!("{path}/state")),
        (Method::GET, &*format!("{path}/history")),
        (Method::GET, &*format!("{path}/runs")),
    ] {
        assert_eq!(served.refused(method, path, Value::Null).await, gone, "{path}");
    }
    let change = served.refused(Method::PATCH, &path, json!({"metadata": {}})).await;
    assert_eq!(change, (404, "Not Found".to_owned()));
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_told_as_the_real_server_does() {
    let served = Served::with_thread().await;
    let runs = format!("/threads/{THREAD}/runs");
    let nowhere = format!("/threads/{NOBODY}/runs");
    let run = |more: Value| {
        let mut run = json!({"assistant_id": "agent", "input": human("hi")});
        run.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        run
    };
    for (path, body, status, detail) in [
        ("/threads", json!({"thread_id": THREAD}), 409, "already exists"),
        ("/threads", json!({"thread_id": "x"}), 422, "Invalid thread ID: must be a UUID"),
        ("/threads", json!({"thread_id": 3}), 422, "invalid type"),
        ("/threads/search", json!({"limit": 0}), 422, "limit"),
        ("/threads/search", json!({"limit": 1001}), 422, "limit"),
        ("/threads/search", json!({"offset": -1}), 422, "invalid value"),
        ("/threads/search", json!({"sort_by": "x"}), 422, "unknown variant"),
        ("/threads/search", json!({"select": ["x"]}), 422, "unknown variant"),
        ("/threads/x/runs", run(json!({})), 422, "Invalid thread ID: must be a UUID"),
        (&nowhere, run(json!({})), 404, "Thread or assistant not found."),
        (&runs, json!({"input": {}}), 422, "assistant_id"),
        (&runs, run(json!({"assistant_id": "x"})), 422, "Invalid assistant: 'x'. Must be either"),
        (&runs, run(json!({"assistant_id": NOBODY})), 404, "Thread or assistant not found."),
        (&runs, run(json!({"multitask_strategy": "x"})), 422, "unknown variant"),
        (&runs, run(json!({"stream_mode": "x"})), 422, "not a stream mode"),
        (
            &runs,
            run(json!({"stream_mode": ["values", "events"]})),
            422,
            "the demo does not support",
        ),
        (&runs, run(json!({"interrupt_before": ["model"]})), 422, "the demo does not support"),
        (&runs, run(json!({"after_seconds": 5})), 422, "the demo does not support"),
        (&runs, run(json!({"command": {"goto": "x"}})), 422, "the demo does not support"),
        (&runs, run(json!({"checkpoint_id": "x"})), 422, "Invalid checkpoint ID"),
    ] {
        let (told, said) = served.refused(Method::POST, path, body.clone()).await;
        assert_eq!(told, status, "{body}: {said}");
        assert!(said.contains(detail), "{body}: {said}");
    }
    let url = format!("http://{}/threads", served.address);
    let broken = served.http.post(url).body("{").send().await.unwrap();
    assert_eq!(broken.status(), 422);
    assert_eq!(broken.text().await.unwrap(), r#"{"detail":"Invalid JSON in request body"}"#);
}

// === the graphs ===

#[tokio::test]
async fn the_agent_thinks_calls_two_tools_and_answers_with_the_humans_words() {
    let served = Served::with_thread().await;
    let (parts, state) = served.run(new_run("agent", "Where is it warm?")).await;
    assert_eq!(
        nodes(&parts),
        [
            "PlanMiddleware.before_agent",
            "model",
            "tools",
            "tools",
            "model",
            "PlanMiddleware.after_agent",
        ]
    );
    let chunks: Vec<_> = parts.iter().filter(|part| part.event == "messages").collect();
    let has = |kind: &str| chunks.iter().any(|part| part.data[0]["content"][0]["type"] == kind);
    assert!(has("reasoning") && has("text"));
    let custom = parts.iter().filter(|part| part.event == "custom");
    assert_eq!(custom.clone().count(), 3);
    assert_eq!(kinds(&state), ["human", "ai", "tool", "tool", "ai"]);
    assert!(last_text(&state).contains("Where is it warm?"));
    assert_eq!(state["values"]["weather"]["Lisbon"]["celsius"], 21);
    assert_eq!(state["values"]["todos"][1]["status"], "completed");
    assert_eq!(state["next"], json!([]));
    assert_eq!(served.get(&format!("/threads/{THREAD}")).await["status"], "idle");

    let (_, state) = served.run(new_run("agent", "And now?")).await;
    assert_eq!(kinds(&state).len(), 10);
    assert_eq!(state["values"]["weather"]["Lisbon"]["celsius"], 22);
    assert_eq!(state["values"]["sources"].as_array().unwrap().len(), 4);
    assert_eq!(state["metadata"]["step"], 12);
}

#[tokio::test]
async fn a_stream_has_the_form_of_the_python_servers() {
    let served = Served::with_thread().await;
    let mut stream = served.stream(THREAD, new_run("agent", "hi")).await;
    let run = stream.run_id();
    assert_eq!(stream.header("content-location"), format!("/threads/{THREAD}/runs/{run}"));
    assert_eq!(stream.header("location"), format!("/threads/{THREAD}/runs/{run}/stream"));
    assert_eq!(stream.header("content-type"), "text/event-stream; charset=utf-8");
    assert_eq!(stream.header("cache-control"), "no-store");
    assert_eq!(stream.header("x-accel-buffering"), "no");
    let first = stream.block().await;
    let (first, id) = first.split_once("\r\nid: ").unwrap();
    assert_eq!(first, format!("event: metadata\r\ndata: {{\"run_id\":\"{run}\",\"attempt\":1}}"));
    let (millis, rest) = id.split_at(13);
    assert!(millis.bytes().all(|byte| byte.is_ascii_digit()) && rest == "-0\r\n\r\n", "{id}");

    let told = stream.until("messages").await;
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        names(&told.data[0]),
        [
            "content",
            "additional_kwargs",
            "response_metadata",
            "type",
            "name",
            "id",
            "tool_calls",
            "invalid_tool_calls",
            "usage_metadata",
            "tool_call_chunks",
            "chunk_position",
        ]
    );
    assert_eq!(told.data[0]["type"], "AIMessageChunk");
    assert!(told.data[0]["id"].as_str().unwrap().starts_with("lc_run--"));
    assert_eq!(told.data[1]["langgraph_node"], "model");
    assert_eq!(told.data[1]["langgraph_triggers"], json!(["branch:to:model"]));
    stream.rest().await;
}

#[tokio::test]
async fn only_what_was_asked_for_is_told() {
    let served = Served::with_thread().await;
    for (modes, expected) in [
        (Value::Null, vec!["metadata", "values"]),
        (json!("updates"), vec!["metadata", "updates"]),
        (json!(["custom"]), vec!["custom", "metadata"]),
        (json!(MODES), vec!["custom", "messages", "metadata", "updates", "values"]),
    ] {
        let run = json!({"assistant_id": "agent", "input": human("hi"), "stream_mode": modes});
        let parts = served.stream(THREAD, run).await.rest().await;
        assert!(parts.iter().all(|part| part.id.is_none()), "an id though not resumable");
        let mut told = events(&parts);
        told.sort_unstable();
        told.dedup();
        assert_eq!(told, expected);
    }
    // The format of LangChain's message ids depends on whether tokens were requested.
    let run = json!({"assistant_id": "agent", "input": human("hi")});
    let state = served.post(&format!("/threads/{THREAD}/runs/wait"), run).await;
    let id = judge::string(&state["messages"].as_array().unwrap().last().unwrap()["id"]);
    assert!(id.starts_with("lc_run--") && id.ends_with("-0"), "{id}");
}

#[tokio::test]
async fn approval_asks_and_does_what_is_decided() {
    for (decisions, kinds_then, statuses, said) in [
        (
            json!([{"type": "approve"}, {"type": "approve"}]),
            5,
            ["success", "success"],
            "Both are done",
        ),
        (
            json!([{"type": "reject", "message": "no"}, {"type": "approve"}]),
            5,
            ["error", "success"],
            "Done where you agreed",
        ),
        (json!([{"type": "reject"}, {"type": "reject"}]), 5, ["error", "error"], "leave both"),
        (
            json!([
                {"type": "edit", "edited_action": {"name": "send_email", "args": {"to": "b@example.com"}}},
                {"type": "respond", "message": "it is gone"},
            ]),
            5,
            ["success", "success"],
            "Both are done",
        ),
    ] {
        let served = Served::with_thread().await;
        let (parts, state) = served.run(new_run("approval", "Tell Ada")).await;
        let asked = &parts[parts.len() - 2..];
        assert_eq!(events(asked), ["updates", "values"]);
        let asked = &asked[0].data["__interrupt__"][0];
        let id = asked["id"].as_str().unwrap();
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let requests = asked["value"]["action_requests"].as_array().unwrap();
        assert_eq!(requests.len(), 2);
        assert_eq!(requests[0]["args"]["body"], "Tell Ada");
        assert_eq!(asked["value"]["review_configs"][1]["action_name"], "delete_file");
        assert_eq!(state["next"], json!(["HumanInTheLoopMiddleware.after_model"]));
        assert_eq!(state["interrupts"], json!([{"id": id, "value": asked["value"]}]));
        let thread = served.get(&format!("/threads/{THREAD}")).await;
        assert_eq!(thread["status"], "interrupted");
        let task = judge::string(&state["tasks"][0]["id"]);
        assert_eq!(thread["interrupts"][&task][0]["id"], id);
        let runs = served.get(&format!("/threads/{THREAD}/runs")).await;
        assert_eq!(runs[0]["status"], "success");

        let (parts, state) = served.run(resume(&decisions)).await;
        assert_eq!(events(&parts[..2]), ["metadata", "values"]);
        assert_eq!(kinds(&state).len(), kinds_then, "{decisions}");
        let tools = state["values"]["messages"].as_array().unwrap();
        let mut tools: Vec<_> = tools.iter().filter(|m| m["type"] == "tool").collect();
        tools.sort_by_key(|message| message["name"] != "send_email");
        assert_eq!(
            tools.iter().map(|m| m["status"].as_str().unwrap()).collect::<Vec<_>>(),
            statuses
        );
        assert!(last_text(&state).contains(said), "{}", last_text(&state));
        assert_eq!(served.get(&format!("/threads/{THREAD}")).await["status"], "idle");
        assert_eq!(nodes(&parts).last(), Some(&"HumanInTheLoopMiddleware.after_model"));
        if decisions[0]["type"] == "edit" {
            assert!(judge::text_of(&tools[0]["content"]).contains("sent to b@example.com"));
            assert_eq!(judge::text_of(&tools[1]["content"]), "it is gone");
        }
    }
}

#[tokio::test]
async fn a_decision_that_cannot_be_read_fails_the_run_and_can_be_given_again() {
    let served = Served::with_thread().await;
    let (parts, state) = served.run(new_run("approval", "hi")).await;
    let id = judge::string(&parts.last().unwrap().data["__interrupt__"][0]["id"]);
    let wait = format!("/threads/{THREAD}/runs/wait");
    for (answer, kind) in [
        (json!("yes"), "KeyError"),
        (json!({"decisions": [{"type": "approve"}]}), "ValueError"),
        (json!({"decisions": [{"type": "approve"}, {"type": "maybe"}]}), "ValueError"),
    ] {
        let run = json!({"assistant_id": "approval", "command": {"resume": answer}});
        assert_eq!(served.post(&wait, run).await["__error__"]["error"], kind);
        assert_eq!(served.get(&format!("/threads/{THREAD}")).await["status"], "error");
    }
    let now = served.get(&format!("/threads/{THREAD}/state")).await;
    assert_eq!(now["interrupts"], state["interrupts"]);
    // Keyed by the interrupt's id, as the gateway answers.
    let decisions = json!({"decisions": [{"type": "approve"}, {"type": "approve"}]});
    let stranger = json!({"0123456789abcdef0123456789abcdef": decisions});
    let run = json!({"assistant_id": "approval", "command": {"resume": stranger}});
    assert!(served.post(&wait, run).await["__interrupt__"].is_array());
    let run = json!({"assistant_id": "approval", "command": {"resume": {id: decisions}}});
    assert_eq!(served.post(&wait, run).await["messages"].as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn failing_fails_and_says_why_everywhere_but_in_a_replay() {
    let served = Served::with_thread().await;
    let mut stream = served.stream(THREAD, new_run("failing", "hi")).await;
    let run = stream.run_id();
    let parts = stream.rest().await;
    let error = json!({
        "error": "ValueError", "message": "the model's connection was cut after 9 tokens",
    });
    assert_eq!(parts.last().unwrap().data, error);
    let state = served.get(&format!("/threads/{THREAD}/state")).await;
    judged(&stream.told, &parts, &state);
    assert_eq!(kinds(&state), ["human", "ai"]);
    assert_eq!(state["next"], json!(["model"]));
    assert!(state["tasks"][0]["error"].as_str().unwrap().starts_with("ValueError('the model"));
    let thread = served.get(&format!("/threads/{THREAD}")).await;
    assert_eq!((&thread["status"], &thread["error"]), (&json!("error"), &error));
    let path = format!("/threads/{THREAD}/runs/{run}");
    assert_eq!(served.get(&path).await["status"], "error");
    assert_eq!(served.get(&format!("{path}/join")).await, json!({"__error__": error}));
    let replay = served.join(&format!("{path}/stream"), Some("-1")).await.rest().await;
    assert_eq!(replay, parts[..parts.len() - 1]);
}

// === runs ===

#[tokio::test]
async fn a_runs_record_shows_what_it_was_asked_for() {
    let served = Served::with_thread().await;
    served.ok(Method::PATCH, &format!("/threads/{THREAD}"), &json!({"metadata": {"t": 1}})).await;
    let runs = format!("/threads/{THREAD}/runs");
    let body = json!({
        "assistant_id": "agent", "input": human("hi"), "metadata": {"m": 2},
        "config": {"configurable": {"k": 3}, "recursion_limit": 50}, "stream_resumable": true,
    });
    let response = served.send(Method::POST, &runs, &body).await;
    let location = response.headers()["content-location"].to_str().unwrap().to_owned();
    let run: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    let path = format!("{runs}/{}", run["run_id"].as_str().unwrap());
    assert_eq!(location, path);
    let id = "fe096781-5601-53d2-b2f6-0d3403f7e9ca";
    assert_eq!(run["assistant_id"], id);
    assert_eq!(run["multitask_strategy"], "enqueue");
    assert_eq!(
        run["metadata"],
        json!({
            "created_by": "system", "t": 1, "graph_id": "agent", "assistant_id": id, "m": 2,
        })
    );
    assert_eq!(run["kwargs"]["resumable"], true);
    assert_eq!(run["kwargs"]["input"], human("hi"));
    assert_eq!(run["kwargs"]["stream_mode"], json!(["values"]));
    assert_eq!(run["kwargs"]["config"]["configurable"]["k"], 3);
    assert_eq!(run["kwargs"]["config"]["recursion_limit"], 50);
    let values = served.get(&format!("{path}/join")).await;
    let state = served.get(&format!("/threads/{THREAD}/state")).await;
    assert_eq!(state["values"], values);
    assert_eq!(
        (&state["metadata"]["k"], &state["metadata"]["run_id"]),
        (&json!(3), &run["run_id"])
    );

    served
        .post(&format!("{runs}/wait"), json!({"assistant_id": "failing", "input": human("x")}))
        .await;
    let list = served.get(&runs).await;
    let statuses: Vec<_> = list.as_array().unwrap().iter().map(|run| &run["status"]).collect();
    assert_eq!(statuses, ["error", "success"]);
    assert_eq!(served.get(&format!("{runs}?status=success")).await, json!([list[1]]));
    assert_eq!(served.get(&format!("{runs}?limit=1&offset=1")).await, json!([list[1]]));
    assert_eq!(served.get(&format!("{runs}?status=pending")).await, json!([]));
    // One `select` per column, as for the real server.
    let columns = served.get(&format!("{runs}?select=run_id&select=status&limit=1")).await;
    assert_eq!(columns, json!([{"run_id": list[0]["run_id"], "status": "error"}]));
    let commas = format!("{runs}?select=run_id,status");
    let (status, said) = served.refused(Method::GET, &commas, Value::Null).await;
    assert_eq!((status, &*said), (422, "Invalid select columns: ['run_id,status']"));

    assert_eq!(served.ask(Method::DELETE, &path, &Value::Null).await.0, 204);
    let gone = served.refused(Method::GET, &path, Value::Null).await;
    assert_eq!(gone, (404, "Not Found".to_owned()));
    assert_eq!(served.refused(Method::GET, &format!("{runs}/x"), Value::Null).await.0, 422);
}

#[tokio::test]
async fn a_run_is_replayed_from_any_id_and_filtered() {
    let served = Served::with_thread().await;
    let mut stream = served.stream(THREAD, new_run("agent", "hi")).await;
    let path = format!("/threads/{THREAD}/runs/{}/stream", stream.run_id());
    let parts = stream.rest().await;
    let replayed = async |id| served.join(&path, id).await.rest().await;
    assert_eq!(replayed(Some("-1")).await, parts);
    assert_eq!(replayed(Some("0")).await, parts);
    assert_eq!(replayed(Some("garbage")).await, []);
    assert_eq!(replayed(None).await, []);
    for part in &parts {
        // Ids may repeat: a join sends only parts with a greater id.
        let behind: Vec<_> = parts.iter().filter(|other| other.id > part.id).cloned().collect();
        assert_eq!(replayed(part.id.as_deref()).await, behind);
    }
    let joined = async |query: &str| {
        let path = format!("{path}?stream_mode={query}");
        served.join(&path, Some("-1")).await.rest().await
    };
    for (query, names) in [
        ("custom", &["custom"][..]),
        ("messages-tuple", &["messages"]),
        ("%5B%22values%22,%22custom%22%5D", &["custom", "values"]),
        ("values&stream_mode=updates", &["updates"]),
        ("events", &[]),
    ] {
        let expected: Vec<_> =
            parts.iter().filter(|p| names.contains(&&*p.event)).cloned().collect();
        assert_eq!(joined(query).await, expected, "{query}");
    }

    let missing = format!("/threads/{THREAD}/runs/{NOBODY}");
    let error = json!({"error": "HTTPException", "message": "404: Run not found"});
    let mut stream = served.join(&format!("{missing}/stream"), None).await;
    let part = Part { event: "error".to_owned(), data: error.clone(), id: None };
    assert_eq!(stream.rest().await, [part]);
    assert_eq!(served.get(&format!("{missing}/join")).await, json!({"__error__": error}));
}

#[tokio::test]
async fn who_joins_a_live_run_gets_what_can_be_had() {
    let clock = HeldClock::pause();
    for resumable in [true, false] {
        let served = Served::start(Pace::HUMAN).await;
        let mut run = new_run("agent", "hi");
        run["stream_resumable"] = json!(resumable);
        let mut creator = served.stream(THREAD, run).await;
        let path = format!("/threads/{THREAD}/runs/{}/stream", creator.run_id());
        // The clock does not advance, so the first token waits for its beat.
        let mut said = vec![];
        while said.len() < 4 {
            said.push(creator.part().await.unwrap());
        }
        let mut live = served.join(&path, None).await;
        let mut replayed = served.join(&path, Some("-1")).await;
        let ended = finish(&clock, &mut creator).await;
        assert_eq!(live.rest().await, ended);
        let all: Vec<_> = said.into_iter().chain(ended.clone()).collect();
        let expected = if resumable { all } else { ended };
        assert_eq!(replayed.rest().await, expected);
        let late = served.join(&path, Some("-1")).await.rest().await;
        assert_eq!(late.is_empty(), !resumable);
    }
}

/// Advances the clock until a stream is over.
async fn finish(clock: &HeldClock, stream: &mut Stream) -> Vec<Part> {
    let ticks = async {
        loop {
            clock.advance(Duration::from_millis(35)).await;
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        parts = stream.rest() => parts.into_iter().collect(),
        () = ticks => unreachable!(),
    }
}

#[tokio::test]
async fn a_run_that_is_cancelled_stops_and_keeps_what_it_has_done() {
    let _clock = HeldClock::pause();
    let served = Served::start(Pace::HUMAN).await;
    let mut stream = served.stream(THREAD, new_run("agent", "hi")).await;
    stream.until("updates").await;
    let path = format!("/threads/{THREAD}/runs/{}", stream.run_id());
    assert_eq!(served.get(&path).await["status"], "running");
    assert_eq!(served.get(&format!("/threads/{THREAD}")).await["status"], "busy");
    let bogus = served.refused(Method::POST, &format!("{path}/cancel?action=x"), Value::Null).await;
    assert_eq!(bogus, (422, "Invalid action x".to_owned()));
    let cancel = format!("{path}/cancel?wait=1&action=interrupt");
    assert_eq!(served.post(&cancel, Value::Null).await, json!({}));
    assert_eq!(events(&stream.rest().await), ["values"]);
    assert_eq!(served.get(&path).await["status"], "interrupted");
    let thread = served.get(&format!("/threads/{THREAD}")).await;
    assert_eq!(thread["status"], "interrupted");
    assert_eq!(thread["interrupts"], json!({}));
    assert_eq!(thread["error"]["error"], "UserInterrupt");
    let state = served.get(&format!("/threads/{THREAD}/state")).await;
    assert_eq!(state["next"], json!(["model"]));
    assert_eq!(state["tasks"][0]["error"], "CancelledError()");
    let again = served.refused(Method::POST, &cancel, Value::Null).await;
    assert!(again.0 == 404 && again.1.starts_with("No matching runs to cancel."), "{again:?}");
    let nobody = format!("/threads/{THREAD}/runs/{NOBODY}/cancel");
    let nobody = served.refused(Method::POST, &nobody, Value::Null).await;
    assert_eq!(nobody, (404, "No runs found to cancel.".to_owned()));
}

#[tokio::test]
async fn a_run_that_is_rolled_back_leaves_nothing() {
    let _clock = HeldClock::pause();
    let served = Served::start(Pace::HUMAN).await;
    let mut stream = served.stream(THREAD, new_run("agent", "hi")).await;
    stream.until("updates").await;
    let path = format!("/threads/{THREAD}/runs/{}", stream.run_id());
    let response =
        served.send(Method::POST, &format!("{path}/cancel?action=rollback"), &Value::Null).await;
    assert_eq!(response.status(), 202);
    stream.rest().await;
    assert_eq!(served.refused(Method::GET, &path, Value::Null).await.0, 404);
    let thread = served.get(&format!("/threads/{THREAD}")).await;
    assert_eq!((&thread["status"], &thread["values"]), (&json!("idle"), &Value::Null));
    assert_eq!(thread["error"]["error"], "UserRollback");
    assert_eq!(served.get(&format!("/threads/{THREAD}/state")).await["values"], json!({}));
}

#[tokio::test]
async fn a_busy_thread_queues_refuses_or_makes_room() {
    let clock = HeldClock::pause();
    let served = Served::start(Pace::HUMAN).await;
    let strategy = |strategy: &str| {
        let mut run = new_run("agent", strategy);
        run["multitask_strategy"] = json!(strategy);
        run
    };
    let statuses = async || {
        let runs = served.get(&format!("/threads/{THREAD}/runs")).await;
        let statuses = runs.as_array().unwrap().iter().map(|run| judge::string(&run["status"]));
        statuses.collect::<Vec<_>>()
    };
    let mut first = served.stream(THREAD, new_run("agent", "first")).await;
    first.until("updates").await;
    let (status, detail) =
        served.refused(Method::POST, &format!("/threads/{THREAD}/runs"), strategy("reject")).await;
    assert!(status == 409 && detail.starts_with("Thread is already running a task."), "{detail}");
    let mut second = served.stream(THREAD, strategy("enqueue")).await;
    let path = format!("/threads/{THREAD}/runs/{}", second.run_id());
    let third = served.post(&format!("/threads/{THREAD}/runs"), strategy("enqueue")).await;
    assert_eq!(statuses().await, ["pending", "pending", "running"]);
    let update = json!({"values": {"messages": []}});
    let busy = served.refused(Method::POST, &format!("/threads/{THREAD}/state"), update).await;
    assert_eq!(busy.0, 409);
    // A pending run is stopped at once, and the thread is unchanged.
    let third = format!("/threads/{THREAD}/runs/{}", third["run_id"].as_str().unwrap());
    served.post(&format!("{third}/cancel?wait=1"), Value::Null).await;
    assert_eq!(statuses().await, ["interrupted", "pending", "running"]);

    finish(&clock, &mut first).await;
    second.until("updates").await;
    assert_eq!(served.get(&path).await["status"], "running");
    let mut fourth = served.stream(THREAD, strategy("interrupt")).await;
    second.rest().await;
    fourth.until("updates").await;
    assert_eq!(statuses().await, ["running", "interrupted", "interrupted", "success"]);
    let mut fifth = served.stream(THREAD, strategy("rollback")).await;
    fourth.rest().await;
    let values = fifth.until("values").await;
    let said = values.data["messages"].as_array().unwrap().iter().filter(|m| m["type"] == "human");
    let said: Vec<_> = said.map(|message| judge::string(&message["content"])).collect();
    assert_eq!(said, ["first", "enqueue", "rollback"]);
    finish(&clock, &mut fifth).await;
    assert_eq!(statuses().await, ["success", "interrupted", "interrupted", "success"]);
    assert_eq!(served.get(&format!("/threads/{THREAD}")).await["status"], "idle");
}

#[tokio::test]
async fn a_client_that_leaves_stops_its_run_only_if_it_said_so() {
    let clock = HeldClock::pause();
    for (policy, status) in [("cancel", "interrupted"), ("continue", "success")] {
        let served = Served::start(Pace::HUMAN).await;
        let mut run = new_run("agent", "hi");
        run["on_disconnect"] = json!(policy);
        let mut stream = served.stream(THREAD, run).await;
        stream.until("updates").await;
        let path = format!("/threads/{THREAD}/runs/{}", stream.run_id());
        let mut witness = served.join(&format!("{path}/stream"), Some("-1")).await;
        drop(stream);
        if policy == "continue" {
            finish(&clock, &mut witness).await;
        } else {
            // The clock does not advance, so only the disconnect can end the run.
            witness.rest().await;
        }
        assert_eq!(served.get(&path).await["status"], status, "{policy}");
    }
    let served = Served::start(Pace::HUMAN).await;
    let mut stream = served.stream(THREAD, new_run("agent", "hi")).await;
    let path = format!("/threads/{THREAD}/runs/{}/stream", stream.run_id());
    drop(served.join(&format!("{path}?cancel_on_disconnect=true"), None).await);
    stream.rest().await;
    let thread = served.get(&format!("/threads/{THREAD}")).await;
    assert!(thread["error"]["message"].as_str().unwrap().starts_with("client disconnected"));
}

// === states ===

#[tokio::test]
async fn each_superstep_is_a_checkpoint_and_a_run_can_begin_at_any() {
    let served = Served::with_thread().await;
    let (_, first) = served.run(new_run("agent", "first")).await;
    let (_, second) = served.run(new_run("agent", "second")).await;
    let history = format!("/threads/{THREAD}/history");
    assert_eq!(served.get(&history).await, json!([second]));
    let all = served.get(&format!("{history}?limit=50")).await;
    let all = all.as_array().unwrap();
    let sources: Vec<_> =
        all.iter().map(|state| judge::string(&state["metadata"]["source"])).collect();
    let turn = ["loop", "loop", "loop", "loop", "loop", "loop", "input"];
    assert_eq!(sources, [turn, turn].concat());
    for (newer, older) in all.iter().zip(&all[1..]) {
        assert_eq!(newer["parent_checkpoint"], older["checkpoint"]);
        assert_eq!(newer["parent_checkpoint_id"], older["checkpoint_id"]);
    }
    assert_eq!(all[13]["parent_checkpoint"], Value::Null);
    assert_eq!(all[3]["next"], json!(["tools", "tools"]));
    assert_eq!(all[3]["tasks"][1]["result"]["messages"][0]["name"], "search");
    assert_eq!(all[6]["next"], json!(["__start__"]));

    let at = judge::string(&first["checkpoint_id"]);
    assert_eq!(all[7]["checkpoint_id"], at);
    let there = served.get(&format!("/threads/{THREAD}/state/{at}")).await;
    assert_eq!(there["values"], first["values"]);
    assert_eq!(there["checkpoint"], json!({"checkpoint_id": at, "thread_id": THREAD}));
    let asked = json!({"checkpoint": {"checkpoint_id": at}});
    assert_eq!(served.post(&format!("/threads/{THREAD}/state/checkpoint"), asked).await, first);
    let nowhere = served.get(&format!("/threads/{THREAD}/state/{NOBODY}")).await;
    assert_eq!((&nowhere["values"], &nowhere["checkpoint_id"]), (&json!({}), &json!(NOBODY)));
    let page = served.get(&format!("{history}?limit=2&before={at}")).await;
    assert_eq!(page, json!(all[8..10]));
    let before = json!({"limit": 2, "before": {"configurable": {"checkpoint_id": at}}});
    assert_eq!(served.post(&history, before).await, page);

    let mut fork = new_run("agent", "instead");
    fork["checkpoint_id"] = json!(at);
    let (_, forked) = served.run(fork).await;
    let messages = forked["values"]["messages"].as_array().unwrap();
    let said = messages.iter().filter(|message| message["type"] == "human");
    let said: Vec<_> = said.map(|message| judge::string(&message["content"])).collect();
    assert_eq!(said, ["first", "instead"]);
    let all = served.get(&format!("{history}?limit=50")).await;
    assert_eq!(all.as_array().unwrap().len(), 21);
    assert_eq!(all[6]["parent_checkpoint_id"], at);
    assert_eq!(all[7]["checkpoint_id"], second["checkpoint_id"]);
}

#[tokio::test]
async fn a_state_is_updated_by_hand() {
    let served = Served::with_thread().await;
    let path = format!("/threads/{THREAD}/state");
    let update = json!({"values": {"messages": [{"role": "user", "content": "added"}]}});
    let early = served.refused(Method::POST, &path, update.clone()).await;
    assert!(early.0 == 400 && early.1.contains("no assigned graph ID"), "{early:?}");
    let (_, before) = served.run(new_run("agent", "hi")).await;
    let made = served.post(&path, update.clone()).await;
    let state = served.get(&path).await;
    assert_eq!(state["checkpoint_id"], made["checkpoint"]["checkpoint_id"]);
    assert_eq!(state["parent_checkpoint_id"], before["checkpoint_id"]);
    assert_eq!(state["metadata"]["source"], "update");
    assert_eq!(kinds(&state).last(), Some(&"human"));
    assert_eq!(state["next"], json!([]));

    let mut as_node = update.clone();
    as_node["as_node"] = json!("PlanMiddleware.before_agent");
    served.post(&path, as_node).await;
    assert_eq!(served.get(&path).await["next"], json!(["model"]));
    let go_on = json!({"assistant_id": "agent", "stream_mode": MODES});
    let (_, state) = served.run(go_on).await;
    assert!(last_text(&state).contains("added"));

    let mut nowhere = update.clone();
    nowhere["as_node"] = json!("nope");
    let nowhere = served.refused(Method::POST, &path, nowhere).await;
    assert_eq!(nowhere, (400, "Node nope does not exist".to_owned()));
}

#[tokio::test]
async fn a_run_without_anything_to_do_says_so() {
    let served = Served::with_thread().await;
    let run = json!({"assistant_id": "agent", "stream_mode": MODES});
    let parts = served.stream(THREAD, run.clone()).await.rest().await;
    assert_eq!(events(&parts), ["metadata", "error"]);
    assert_eq!(parts[1].data["error"], "EmptyInputError");
    served.run(new_run("agent", "hi")).await;
    let parts = served.stream(THREAD, run).await.rest().await;
    assert_eq!(events(&parts), ["metadata", "values"]);
}

// === the background, the clock and the limits ===

#[tokio::test]
async fn a_background_run_starts_every_20_seconds_on_a_thread_that_does_not_grow_for_ever() {
    let clock = HeldClock::pause();
    let served = Served::start(Pace::NONE).await;
    let demo = served.demo.clone();
    let mut background = JoinSet::new();
    background.spawn(async move { demo.run_background().await });
    let runs = async |path: &str| {
        let path = format!("/threads/{WATCHED_THREAD}/runs{path}");
        loop {
            // The thread exists once its first run does.
            match served.ask(Method::GET, &path, &Value::Null).await {
                (200, runs) => return runs.as_array().unwrap().clone(),
                _ => tokio::task::yield_now().await,
            }
        }
    };
    tokio::task::yield_now().await;
    clock.advance(Duration::ZERO).await;
    while runs("?status=success").await.is_empty() {}
    let run = runs("").await.remove(0);
    assert_eq!(run["kwargs"]["resumable"], true);
    assert!(run["metadata"]["cron_id"].is_string());
    let path = format!("/threads/{WATCHED_THREAD}/runs/{}/stream", run["run_id"].as_str().unwrap());
    let mut stream = served.join(&path, Some("-1")).await;
    let parts = stream.rest().await;
    let state = served.get(&format!("/threads/{WATCHED_THREAD}/state")).await;
    judged(&stream.told, &parts, &state);
    assert_eq!(state["values"]["health"]["checks"], 1);

    clock.advance(BACKGROUND_PERIOD.saturating_sub(Duration::from_millis(10))).await;
    assert_eq!(runs("").await.len(), 1);
    clock.advance(Duration::from_millis(10)).await;
    while runs("?status=success").await.len() < 2 {}
    for count in 3..=15 {
        clock.advance(BACKGROUND_PERIOD).await;
        while runs("?status=success&limit=100").await.len() < count {}
    }
    let state = served.get(&format!("/threads/{WATCHED_THREAD}/state")).await;
    assert_eq!(state["values"]["health"]["checks"], 15);
    assert_eq!(kinds(&state).len(), 20);

    served.stop.cancel();
    background.join_next().await.unwrap().unwrap();
}

#[tokio::test]
async fn silence_is_filled_with_heartbeats() {
    let clock = HeldClock::pause();
    let served = Served::start(Pace::new(Duration::from_mins(1))).await;
    let mut stream = served.stream(THREAD, new_run("agent", "hi")).await;
    stream.until("updates").await;
    stream.until("values").await;
    let runs = format!("/threads/{THREAD}/runs/{}", stream.run_id());
    let mut wait = served.send(Method::GET, &format!("{runs}/join"), &Value::Null).await;
    for _ in 0..3 {
        clock.advance(HEARTBEAT_INTERVAL).await;
        assert_eq!(stream.block().await, ": heartbeat\r\n\r\n");
        assert_eq!(wait.chunk().await.unwrap().unwrap(), "\n");
    }
}

#[tokio::test]
async fn going_down_ends_every_stream_and_every_run() {
    let _clock = HeldClock::pause();
    let mut served = Served::start(Pace::HUMAN).await;
    let mut stream = served.stream(THREAD, new_run("agent", "hi")).await;
    let mut waiting = served.stream(THREAD, new_run("agent", "hi")).await;
    stream.until("updates").await;
    served.stop.cancel();
    stream.rest().await;
    assert_eq!(waiting.rest().await, []);
    served.demo.drain().await;
    served.serving.shutdown().await;
}

#[tokio::test]
async fn a_thread_that_is_deleted_takes_its_runs_along() {
    let _clock = HeldClock::pause();
    let served = Served::start(Pace::HUMAN).await;
    let mut running = served.stream(THREAD, new_run("agent", "hi")).await;
    let mut waiting = served.stream(THREAD, new_run("agent", "hi")).await;
    running.until("updates").await;
    assert_eq!(
        served.ask(Method::DELETE, &format!("/threads/{THREAD}"), &Value::Null).await.0,
        204
    );
    running.rest().await;
    assert_eq!(waiting.rest().await, []);
    // Another thread of the same id is unrelated.
    let mut anew = served.stream(THREAD, new_run("agent", "anew")).await;
    let values = anew.until("values").await;
    assert_eq!(values.data["messages"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn what_is_kept_is_bounded() {
    let served = Served::with_thread().await;
    let path = format!("/threads/{THREAD}");
    let long = |bytes: usize| json!({"metadata": {"a": "x".repeat(bytes)}});
    assert_eq!(served.refused(Method::POST, "/threads", long(512 * 1024)).await.0, 413);
    served.ok(Method::PATCH, &path, &long(300 * 1024)).await;
    let (status, detail) = served.refused(Method::PATCH, &path, long(300 * 1024)).await;
    assert!(status == 422 && detail.contains("metadata"), "{detail}");

    let run = json!({"assistant_id": "agent", "input": human(&"x".repeat(300 * 1024))});
    let wait = format!("{path}/runs/wait");
    assert!(served.post(&wait, run.clone()).await["messages"].is_array());
    let full = served.post(&wait, run).await;
    assert!(full["__error__"]["message"].as_str().unwrap().contains("begin a new thread"));

    for _ in 0..99 {
        served.post("/threads", json!({})).await;
    }
    served.get(&path).await;
    served.post("/threads", json!({})).await;
    assert_eq!(served.refused(Method::GET, &path, Value::Null).await.0, 404);
    assert_eq!(served.post("/threads/count", json!({})).await, json!(100));

    for _ in 0..80 {
        served.post("/threads", long(500 * 1024)).await;
    }
    // 32 MiB hold 65 of these threads. One more is accepted before the next one evicts the oldest.
    assert_eq!(served.post("/threads/count", json!({})).await, json!(66));
}

#[tokio::test]
async fn the_last_32_runs_can_be_replayed() {
    let served = Served::with_thread().await;
    let mut paths = vec![];
    for _ in 0..33 {
        let mut stream = served.stream(THREAD, new_run("failing", "hi")).await;
        paths.push(format!("/threads/{THREAD}/runs/{}/stream", stream.run_id()));
        stream.rest().await;
    }
    assert_eq!(served.join(&paths[0], Some("-1")).await.rest().await, []);
    assert!(!served.join(&paths[1], Some("-1")).await.rest().await.is_empty());
}

#[tokio::test]
async fn fifty_runs_at_once_are_enough() {
    let _clock = HeldClock::pause();
    let served = Served::start(Pace::HUMAN).await;
    let runs = format!("/threads/{THREAD}/runs");
    for _ in 0..50 {
        served.post(&runs, new_run("agent", "hi")).await;
    }
    let (status, detail) = served.refused(Method::POST, &runs, new_run("agent", "hi")).await;
    assert!(status == 503 && detail.contains("50 runs at once"), "{detail}");
}
