//! The GET requests of `TanStack AI`'s client: a thread that it loads, and a run that it joins.
//! Also the NDJSON lines that it resumes.

use std::net::SocketAddr;
use std::num::NonZeroUsize;

use crate::support::frames;
use crate::support::gateway::{
    Response, THREAD, agents, input, part, refusal, refused, run_request, serve_as, token,
};
use crate::support::langgraph::{LangGraph, Run, state};
use crate::support::upstream::STRANGER;
use serde_json::{Value, json};
use threadway::server::{Rates, Settings, ThreadRoutePolicy};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The LangGraph id of `my thread`.
const MINE: &str = "e817c419-7e64-5f51-8a5c-c4cf14d1fb2d";

/// A gateway and its upstream.
struct Page {
    server: LangGraph,
    address: SocketAddr,
    _stop: CancellationToken,
    _serving: JoinSet<()>,
}

/// Settings that allow the list of threads.
fn listing() -> Settings {
    Settings { thread_routes: ThreadRoutePolicy::All, ..Settings::default() }
}

// === impl Page ===

impl Page {
    async fn start() -> Self {
        Self::of(listing()).await
    }

    async fn of(settings: Settings) -> Self {
        let server = LangGraph::start().await;
        let (address, stop, serving, _) =
            serve_as(agents(&[("default", &server.url)], &[]), settings).await;
        Self { server, address, _stop: stop, _serving: serving }
    }

    /// Another gateway in front of the same server.
    async fn replica(&self) -> (SocketAddr, CancellationToken, JoinSet<()>) {
        let agents = agents(&[("default", &self.server.url)], &[]);
        let (address, stop, serving, _) = serve_as(agents, Settings::default()).await;
        (address, stop, serving)
    }

    async fn load(&self, query: &str) -> Value {
        let mut response = get(self.address, query, "accept: application/json\r\n").await;
        assert!(response.head.starts_with("HTTP/1.1 200 OK\r\n"), "{}", response.head);
        serde_json::from_str(&response.body().await).unwrap()
    }

    /// A run of `thread_id` that has sent two words.
    async fn half_told(&mut self, thread_id: &str, headers: &str) -> (Response, Run) {
        let id = if thread_id == "my thread" { MINE } else { thread_id };
        self.server.thread(id, json!({}), None);
        let mut input = input(&["hi"]);
        input["threadId"] = json!(thread_id);
        let request = run_request("agent", headers, &input.to_string());
        let (response, run) =
            tokio::join!(Response::to(self.address, request.as_bytes()), self.server.run());
        let mut run = run;
        tells_half(&mut run).await;
        (response, run)
    }
}

/// Sends a part with an id in the server's store.
async fn keeps(run: &mut Run, id: usize, part: &str) {
    run.exchange.send(format!("id: {}-0\r\n{part}", 1000 + id)).await;
}

/// Sends the beginning of a run, up to its second word.
async fn tells_half(run: &mut Run) {
    let metadata = json!({"run_id": run.id, "attempt": 1});
    keeps(run, 0, &part("metadata", &metadata)).await;
    keeps(run, 1, &part("values", &json!({"messages": said(&[])}))).await;
    keeps(run, 2, &token("m2", "one ")).await;
    keeps(run, 3, &token("m2", "two ")).await;
}

/// A conversation: the user's message and the answers.
fn said(answers: &[&str]) -> Value {
    let mut all = vec![json!({"id": "m0", "type": "human", "content": "hi"})];
    all.extend(answers.iter().map(|text| json!({"id": "m2", "type": "ai", "content": text})));
    Value::Array(all)
}

async fn get(address: SocketAddr, query: &str, headers: &str) -> Response {
    let request = format!("GET /agui/agent/agent/run?{query} HTTP/1.1\r\nhost: h\r\n{headers}\r\n");
    Response::to(address, request.as_bytes()).await
}

/// The query that joins a run.
fn join(run_id: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("offset", "-1").append_pair("runId", run_id).finish()
}

fn text(id: &str, role: &str, content: &str) -> Value {
    json!({"id": id, "role": role, "parts": [{"type": "text", "content": content}]})
}

/// The text of a message after a stream's events.
fn told(events: &[Value], id: &str) -> String {
    let mut text = String::new();
    for event in events {
        match event["type"].as_str().unwrap() {
            "MESSAGES_SNAPSHOT" => {
                let messages = event["messages"].as_array().unwrap();
                let held = messages.iter().find(|message| message["id"] == id);
                text = held.map_or("", |message| message["content"].as_str().unwrap()).to_owned();
            }
            // At the start of a message the client drops the text of that message from a snapshot.
            "TEXT_MESSAGE_START" if event["messageId"] == id => text.clear(),
            "TEXT_MESSAGE_CONTENT" if event["messageId"] == id => {
                text += event["delta"].as_str().unwrap();
            }
            _ => {}
        }
    }
    text
}

/// Reads until a message has this text.
async fn until(response: &mut Response, id: &str, expected: &str) -> Vec<Value> {
    let mut events = Vec::new();
    while told(&events, id) != expected {
        events.extend(response.next(1).await);
    }
    events
}

#[tokio::test]
async fn a_thread_at_rest_is_loaded() {
    let page = Page::start().await;
    let messages = json!([
        {"id": "m1", "type": "human", "content": "hi"},
        {"id": "m2", "type": "ai", "content": "one moment",
         "tool_calls": [{"id": "c1", "name": "look", "args": {"at": 1}}]},
        {"id": "m3", "type": "tool", "tool_call_id": "c1", "content": "seen"},
        {"id": "m4", "type": "ai", "content": "done"},
    ]);
    page.server.thread(MINE, json!({}), Some(state("r", &messages, &json!([]))));
    let call = json!({"id": "m2", "role": "assistant", "parts": [
        {"type": "text", "content": "one moment"},
        {"type": "tool-call", "id": "c1", "name": "look", "arguments": "{\"at\":1}",
         "state": "complete", "input": {"at": 1}, "output": "seen"},
        {"type": "tool-result", "id": "m3", "toolCallId": "c1", "content": "seen",
         "state": "complete"},
    ]});
    let all = [text("m1", "user", "hi"), call.clone(), text("m4", "assistant", "done")];
    let expected = json!({"messages": all, "activeRun": null, "interrupts": null,
        "page": {"truncated": false}});
    assert_eq!(page.load("threadId=my+thread").await, expected);
    let expected = json!({"messages": all[2..], "activeRun": null, "interrupts": null,
        "page": {"truncated": true, "cursor": "m4"}});
    assert_eq!(page.load("threadId=my+thread&limit=1").await, expected);
    let expected = json!({"messages": all[..2], "activeRun": null, "interrupts": null,
        "page": {"truncated": false}});
    assert_eq!(page.load("threadId=my+thread&limit=2&before=m4").await, expected);
}

#[tokio::test]
async fn a_thread_that_is_not_there_is_empty_and_is_not_made() {
    let page = Page::start().await;
    let expected = json!({"messages": [], "activeRun": null, "interrupts": null,
        "page": {"truncated": false}});
    assert_eq!(page.load("threadId=new").await, expected);
    assert!(page.server.books().threads.is_empty());
}

#[tokio::test]
async fn what_a_thread_asks_is_loaded_with_it_unless_a_run_answers() {
    let page = Page::start().await;
    let asks = json!([{"id": "i1", "value": "which?"}]);
    page.server.thread(THREAD, json!({}), Some(state("r", &said(&[]), &asks)));
    let over = json!({"run_id": "r", "status": "success", "metadata": {"threadway_run_id": "run-1", "threadway_start": "s1"}});
    page.server.books().threads.get_mut(THREAD).unwrap().runs = vec![over.clone()];
    let loaded = page.load(&format!("threadId={THREAD}")).await;
    assert_eq!(loaded["interrupts"]["runId"], "run-1");
    assert_eq!(loaded["interrupts"]["pending"][0]["id"], "i1");
    assert_eq!(loaded["interrupts"]["pending"][0]["message"], "which?");
    assert_eq!(loaded["activeRun"], Value::Null);

    let live = json!({"run_id": "s", "status": "running", "metadata": {"threadway_run_id": "run-2", "threadway_start": "s2"}});
    page.server.books().threads.get_mut(THREAD).unwrap().runs = vec![live, over];
    let loaded = page.load(&format!("threadId={THREAD}")).await;
    assert_eq!(loaded["interrupts"], Value::Null);
    assert_eq!(loaded["activeRun"]["runId"], format!("threadId={THREAD}&runId=run-2"));
}

#[tokio::test]
async fn a_run_is_joined_as_it_stands_and_read_to_its_end_and_resumed_after_a_cut() {
    let mut page = Page::start().await;
    let (mut owner, mut run) = page.half_told("my thread", "").await;
    until(&mut owner, "m2", "one two ").await;
    drop(owner);
    // The client's page is reloaded.
    let loaded = page.load("threadId=my+thread").await;
    let run_id = loaded["activeRun"]["runId"].as_str().unwrap();
    assert_eq!(run_id, "threadId=my+thread&runId=r1");
    let mut joined = get(page.address, &join(run_id), "").await;
    assert!(joined.head.contains("content-type: text/event-stream\r\n"), "{}", joined.head);
    let mut events = until(&mut joined, "m2", "one two ").await;
    assert_eq!(events[0]["type"], "RUN_STARTED");
    assert_eq!(
        (&events[0]["threadId"], &events[0]["runId"]),
        (&json!("my thread"), &json!(run_id))
    );
    // The client joins once more, in the middle of a word.
    keeps(&mut run, 4, &token("m2", "three ")).await;
    let mut frame = joined.whole_frame().await;
    while !frame.contains("three") {
        events.push(frames::event(&frame));
        frame = joined.whole_frame().await;
    }
    drop(joined);
    keeps(&mut run, 5, &token("m2", "four")).await;
    let last = format!("last-event-id: {}\r\n", frames::id(&frame).unwrap());
    let mut again = get(page.address, &join(run_id), &last).await;
    events.push(frames::event(&frame));
    run.ends_with(&said(&["one two three four"])).await;
    let rest = again.rest().await;
    assert_eq!(rest.last().unwrap()["type"], "RUN_FINISHED");
    assert_eq!(rest.iter().filter(|event| event["type"] == "RUN_STARTED").count(), 0, "{rest:?}");
    events.extend(rest);
    assert_eq!(told(&events, "m2"), "one two three four");
}

#[tokio::test]
async fn a_replica_joins_a_run_that_it_has_not_started() {
    let mut page = Page::start().await;
    let (mut owner, run) = page.half_told(THREAD, "").await;
    until(&mut owner, "m2", "one two ").await;
    // A replica whose stream breaks would join again, at the same time as the next one.
    let mut replicas = Vec::new();
    for query in [
        join(&format!("threadId={THREAD}&runId=r1")),
        // The application may name the thread in its URL, as for a WebSocket.
        format!("threadId={THREAD}&{}", join("r1")),
        // Another client has started the run: it has only LangGraph's id.
        format!("threadId={THREAD}&{}", join(&run.id)),
    ] {
        let (address, stop, serving) = page.replica().await;
        let (mut joined, mut stream) =
            tokio::join!(get(address, &query, ""), async { page.server.joined().await });
        assert!(joined.head.starts_with("HTTP/1.1 200 OK\r\n"), "{query}: {}", joined.head);
        assert_eq!(stream.id, run.id, "{query}");
        let from_start = "\r\nlast-event-id: -1\r\n";
        assert!(stream.exchange.head.contains(from_start), "{}", stream.exchange.head);
        tells_half(&mut stream).await;
        until(&mut joined, "m2", "one two ").await;
        replicas.push((joined, stream, stop, serving));
    }
}

#[tokio::test]
async fn a_run_without_a_thread_is_found_where_it_is_read() {
    let mut page = Page::start().await;
    let (mut owner, _run) = page.half_told("my thread", "").await;
    until(&mut owner, "m2", "one two ").await;
    page.server.books().threads.get_mut(MINE).unwrap().metadata =
        json!({"threadway_thread_id": "my thread"});
    let mut joined = get(page.address, &join("r1"), "").await;
    let events = until(&mut joined, "m2", "one two ").await;
    assert_eq!(events[0]["threadId"], "my thread");

    let message = "this gateway reads no such run for these credentials, and the request does not \
                   name its thread; put `threadId=THREAD` into the query of the client's URL, or \
                   load the thread before";
    let unplaced = refusal("404 Not Found", "unknown_run", message);
    let mut none = get(page.address, &join("r2"), "").await;
    assert_eq!(refused(&mut none).await, unplaced);
    let (address, _stop, _serving) = page.replica().await;
    let mut elsewhere = get(address, &join("r1"), "").await;
    assert_eq!(refused(&mut elsewhere).await, unplaced);
    let mut none = get(page.address, &join(&format!("threadId={MINE}&runId=r2")), "").await;
    let message =
        "the thread has no such run, or LangGraph does not show it with these credentials";
    assert_eq!(refused(&mut none).await, refusal("404 Not Found", "unknown_run", message));
}

#[tokio::test]
async fn a_run_is_found_whatever_others_call_theirs() {
    const OTHERS: usize = 120;
    let mut page = Page::start().await;
    let thread = |at: usize| format!("{at:08}-0000-4000-8000-000000000000");
    let mut open = Vec::new();
    // Some began before it, and some after it.
    for at in 0..=OTHERS {
        let key = if at == OTHERS / 2 { "alice" } else { STRANGER };
        let (mut owner, run) = page.half_told(&thread(at), &format!("x-api-key: {key}\r\n")).await;
        until(&mut owner, "m2", "one two ").await;
        open.push((owner, run));
    }
    {
        let mut books = page.server.books();
        for at in 0..=OTHERS {
            let owner = if at == OTHERS / 2 { "alice" } else { "bob" };
            books.threads.get_mut(&thread(at)).unwrap().metadata = json!({"owner": owner});
        }
        let keys = [("alice", "alice"), (STRANGER, "bob")];
        books.tenants = keys.map(|(key, name)| (key.to_owned(), name.to_owned())).into();
    }
    let mut alice = get(page.address, &join("r1"), "x-api-key: alice\r\n").await;
    let events = until(&mut alice, "m2", "one two ").await;
    assert_eq!(events[0]["threadId"], thread(OTHERS / 2));
}

#[tokio::test]
async fn where_threads_are_not_listed_no_run_is_found_by_its_name_alone() {
    let mut page = Page::start().await;
    let (mut owner, _run) = page.half_told(THREAD, "").await;
    until(&mut owner, "m2", "one two ").await;
    let mut joined = get(page.address, &join("r1"), "").await;
    until(&mut joined, "m2", "one two ").await;

    let mut page = Page::of(Settings::default()).await;
    let (mut owner, _run) = page.half_told(THREAD, "").await;
    until(&mut owner, "m2", "one two ").await;
    let mut alone = get(page.address, &join("r1"), "").await;
    let (status, body) = refused(&mut alone).await;
    assert_eq!(status, "HTTP/1.1 404 Not Found");
    assert!(body.contains("\"error\":\"unknown_run\""), "{body}");
    let query = format!("threadId={THREAD}&{}", join("r1"));
    let mut placed = get(page.address, &query, "").await;
    until(&mut placed, "m2", "one two ").await;
}

#[tokio::test]
async fn a_load_counts_as_one_of_a_callers_streams() {
    let rates = Rates { requests: None, streams: NonZeroUsize::new(1) };
    let mut page = Page::of(Settings { rates, ..listing() }).await;
    let (mut owner, _run) = page.half_told(THREAD, "").await;
    until(&mut owner, "m2", "one two ").await;
    let accept = "accept: application/json\r\n";
    let mut load = get(page.address, &format!("threadId={THREAD}"), accept).await;
    let (status, body) = refused(&mut load).await;
    assert_eq!(status, "HTTP/1.1 429 Too Many Requests");
    assert!(body.contains("\"error\":\"too_many_streams\""), "{body}");
}

#[tokio::test]
async fn nobody_joins_or_loads_what_langgraph_does_not_show() {
    let mut page = Page::start().await;
    let (mut owner, _run) = page.half_told(THREAD, "x-api-key: alice\r\n").await;
    until(&mut owner, "m2", "one two ").await;
    {
        let mut books = page.server.books();
        books.threads.get_mut(THREAD).unwrap().metadata = json!({"owner": "alice"});
        let keys = [("alice", "alice"), (STRANGER, "bob")];
        books.tenants = keys.map(|(key, name)| (key.to_owned(), name.to_owned())).into();
    }
    for (query, code) in [
        (format!("threadId={THREAD}"), "unknown_thread"),
        (join("r1"), "unknown_run"),
        (join(&format!("threadId={THREAD}&runId=r1")), "unknown_run"),
        (format!("threadId={THREAD}&{}", join("r1")), "unknown_run"),
    ] {
        let mut bob = get(page.address, &query, &format!("x-api-key: {STRANGER}\r\n")).await;
        let (status, body) = refused(&mut bob).await;
        assert_eq!(status, "HTTP/1.1 404 Not Found", "{query}");
        assert!(body.contains(&format!("\"error\":\"{code}\"")), "{query}: {body}");
        assert!(!body.contains("one"), "{body}");
    }
    let mut alice = get(page.address, &join("r1"), "x-api-key: alice\r\n").await;
    until(&mut alice, "m2", "one two ").await;
}

#[tokio::test]
async fn lines_have_ids_for_a_client_that_resumes_by_them() {
    const LINES: &str = "accept: application/x-ndjson\r\n";
    let mut page = Page::start().await;
    let named = format!("{LINES}x-run-id: r1\r\n");
    let (mut response, mut run) = page.half_told(THREAD, &named).await;
    assert!(response.head.contains("content-type: application/x-ndjson\r\n"), "{}", response.head);
    let (mut chunks, mut last) = (Vec::new(), String::new());
    while told(&chunks, "m2") != "one two " {
        let line = response.next(1).await.remove(0);
        last = line["id"].as_str().unwrap().to_owned();
        assert_eq!(line.as_object().unwrap().len(), 2, "{line}");
        chunks.push(line["chunk"].clone());
    }
    drop(response);
    keeps(&mut run, 4, &token("m2", "three")).await;
    // The same POST, and a join, after the last line.
    let request = run_request(
        "agent",
        &format!("{named}last-event-id: {last}\r\n"),
        &input(&["hi"]).to_string(),
    );
    let mut again = Response::to(page.address, request.as_bytes()).await;
    let line = again.next(1).await.remove(0);
    assert_eq!(line["chunk"]["delta"], "three", "{line}");
    let query = join(&format!("threadId={THREAD}&runId=r1"));
    let mut joined = get(page.address, &query, &format!("{LINES}last-event-id: {last}\r\n")).await;
    assert_eq!(joined.next(1).await.remove(0)["chunk"]["delta"], "three");
    // A query without a run id gets events without ids, as before.
    let events =
        format!("GET /agui/agent/agent/threads/{THREAD}/events HTTP/1.1\r\nhost: h\r\n{LINES}\r\n");
    let mut bare = Response::to(page.address, events.as_bytes()).await;
    assert_eq!(bare.next(1).await.remove(0)["type"], "RUN_STARTED");
    run.ends_with(&said(&["one two three"])).await;
    let end = again.rest_of_lines().await;
    assert_eq!(end.last().unwrap()["chunk"]["type"], "RUN_FINISHED");
}

#[tokio::test]
async fn what_cannot_be_loaded_is_refused() {
    let page = Page::start().await;
    page.server.thread(THREAD, json!({}), Some(state("r", &said(&["ho"]), &json!([]))));
    let limit = "`limit` is not a number from 1 to 1000";
    let before = "`before` names no message of the thread; load the thread again without it";
    for (more, message) in
        [("&limit=0", limit), ("&limit=1001", limit), ("&limit=x", limit), ("&before=m7", before)]
    {
        let mut response = get(page.address, &format!("threadId={THREAD}{more}"), "").await;
        let expected = refusal("400 Bad Request", "invalid_request", message);
        assert_eq!(refused(&mut response).await, expected, "{more}");
    }
    // Without a name in its query the path serves WebSockets and POSTs.
    let message = "a GET of this route has to name a thread or a run in its query: send \
                   `threadId=THREAD` to load the thread, or `runId=RUN` to join the run; a run is \
                   started with POST";
    for query in ["", "limit=1", "offset=-1"] {
        let mut response = get(page.address, query, "").await;
        let expected = refusal("405 Method Not Allowed", "wrong_method", message);
        assert_eq!(refused(&mut response).await, expected, "{query}");
    }
}
