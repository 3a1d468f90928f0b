//! In front of aegra. It would run two runs of a thread at the same time. Its stream of a run that is
//! over may bring heartbeats for ever. Its list of the runs of a hidden thread is empty.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::clock::HeldClock;
use crate::support::gateway::{
    Response, THREAD, agents, connect_request, events_request, post, refused, serve, token,
};
use crate::support::langgraph::{LangGraph, soon, state};
use crate::support::upstream::STRANGER;
use serde_json::{Value, json};
use threadway::server::Limits;
use tokio::task::JoinSet;

/// How many runs were started.
fn started(server: &LangGraph) -> usize {
    server.asked(&format!("POST /threads/{THREAD}/runs/stream")).len()
}

fn message(run_id: &str, text: &str) -> String {
    json!({"threadId": THREAD, "runId": run_id, "protocolVersion": "1.0",
        "messages": [{"id": run_id, "role": "user", "content": text}]})
    .to_string()
}

fn said() -> Value {
    json!([{"id": "u", "type": "human", "content": "hi"}])
}

/// An aegra with a thread of this metadata, and a gateway before it that stops when it is dropped.
async fn served(metadata: Value) -> (LangGraph, SocketAddr, JoinSet<()>) {
    let server = LangGraph::aegra().await;
    server.thread(THREAD, metadata, Some(state("R0", &said(), &json!([]))));
    let agents = agents(&[("default", &server.url)], &[]);
    let (address, _, serving) = serve(agents, Limits::default()).await;
    (server, address, serving)
}

#[tokio::test]
async fn a_thread_with_a_live_run_gets_no_second_one() {
    let (mut server, address, _serving) = served(json!({})).await;
    let (first, second) = (message("r1", "one"), message("r2", "two"));
    let (mut live, run) = tokio::join!(post(address, "", &first), server.run());
    let (status, body) = refused(&mut soon("an answer", post(address, "", &second)).await).await;
    assert_eq!(status, "HTTP/1.1 409 Conflict");
    assert!(body.contains("thread_busy"), "{body}");
    run.ends_with(&said()).await;
    soon("the end", live.rest()).await;
    assert_eq!(started(&server), 1);

    let (mut next, run) = tokio::join!(post(address, "", &second), server.run());
    run.ends_with(&said()).await;
    assert_eq!(soon("the end", next.rest()).await.last().unwrap()["type"], "RUN_FINISHED");
    assert_eq!(started(&server), 2);
}

#[tokio::test]
async fn of_two_messages_at_the_same_moment_one_starts_a_run() {
    let (mut server, address, _serving) = served(json!({})).await;
    let (first, second) = (message("r1", "one"), message("r2", "two"));
    let (first, second, run) =
        tokio::join!(post(address, "", &first), post(address, "", &second), async {
            let held = server.held("/runs/stream").await;
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            server.begin(held).await
        });
    assert_eq!(started(&server), 1);
    run.ends_with(&said()).await;
    let mut statuses =
        [first, second].map(|response| response.head.lines().next().unwrap().to_owned());
    statuses.sort_unstable();
    assert_eq!(statuses, ["HTTP/1.1 200 OK", "HTTP/1.1 409 Conflict"]);
}

#[tokio::test]
async fn a_stream_that_only_beats_ends_with_its_run() {
    let (mut server, address, _serving) = served(json!({})).await;
    let asked = message("r1", "one");
    let (mut live, mut run) = tokio::join!(post(address, "", &asked), server.run());
    let record = format!("GET /threads/{THREAD}/runs/{}", run.id);
    let clock = HeldClock::pause();
    let is_asked = |server: &LangGraph, times: usize| server.asked(&record).len() == times;
    for times in 1..=2 {
        assert!(is_asked(&server, times - 1));
        if times == 2 {
            let mut books = server.books();
            let thread = books.threads.get_mut(THREAD).unwrap();
            thread.runs[0]["status"] = json!("success");
            thread.state = Some(state(&run.id, &said(), &json!([])));
        }
        while !is_asked(&server, times) {
            run.exchange.send(": heartbeat\r\n\r\n").await;
            clock.advance(Duration::from_secs(5)).await;
        }
    }
    let events = soon("the end", live.rest()).await;
    assert_eq!(events.last().unwrap()["type"], "RUN_FINISHED", "{events:#?}");
}

/// Redis was away when aegra took an id for a part, so that the id is a time. aegra's stream then
/// brings heartbeats alone, and its store too has nothing after that part.
#[tokio::test]
async fn a_run_that_aegra_could_not_count_is_shown_by_its_state() {
    let (mut server, address, _serving) = served(json!({})).await;
    let asked = message("r1", "one");
    let (mut live, mut run) = tokio::join!(post(address, "", &asked), server.run());
    let part = |count: u64, text| format!("id: {}_event_{count}\r\n{}", run.id, token("m2", text));
    let parts = part(1, "one ") + &part(1_798_000_000_000, "two ");
    let record = format!("GET /threads/{THREAD}/runs/{}", run.id);
    let clock = HeldClock::pause();
    run.exchange.send(parts).await;
    let commits = async |text: &str, status: &str| {
        let messages = json!([said()[0], {"id": "m2", "type": "ai", "content": text}]);
        {
            let mut books = server.books();
            let thread = books.threads.get_mut(THREAD).unwrap();
            thread.runs[0]["status"] = json!(status);
            thread.state = Some(state(&run.id, &messages, &json!([])));
        }
        // The record and the state are read in turn, so two reads end after the commit.
        let reads = server.asked(&record).len() + if status == "running" { 2 } else { 1 };
        for _ in 0..50 {
            clock.advance(Duration::from_millis(100)).await;
            if server.asked(&record).len() >= reads {
                return;
            }
        }
        panic!("the record was not read");
    };
    commits("one two three ", "running").await;
    let mut shown = String::new();
    while !shown.contains("three ") {
        shown += &soon("the state", live.whole_frame()).await;
    }
    commits("one two three four", "success").await;
    let events = soon("the end", live.rest()).await;
    assert_eq!(events.last().unwrap()["type"], "RUN_FINISHED", "{events:#?}");
    assert!(json!(events).to_string().contains("three four"), "{events:#?}");
}

#[tokio::test]
async fn a_hidden_thread_stays_hidden_although_its_runs_are_an_empty_list() {
    let (mut server, address, _serving) = served(json!({"owner": "alice"})).await;
    let keys = [("alice", "alice"), (STRANGER, "bob")];
    server.books().tenants = keys.map(|(key, name)| (key.to_owned(), name.to_owned())).into();
    let asked = message("r1", "one");
    let (mut live, mut run) =
        tokio::join!(post(address, "x-api-key: alice\r\n", &asked), server.run());
    let run_id = run.id.clone();
    let part = |count, text| format!("id: {}_event_{count}\r\n{}", run_id, token("m2", text));
    run.exchange.send(part(1, "secret")).await;
    let mut frame = String::new();
    while !frame.contains("secret") {
        frame = soon("the token", live.whole_frame()).await;
    }
    let id = frame.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    for (key, is_shown) in [(STRANGER, false), ("alice", true)] {
        let headers = format!("x-api-key: {key}\r\nlast-event-id: {id}\r\n");
        let request = connect_request(&headers, &serde_json::from_str(&asked).unwrap());
        let mut again = soon("an answer", Response::to(address, request.as_bytes())).await;
        // The next token comes to those who have joined the run.
        let told = if is_shown {
            run.exchange.send(part(2, "next")).await;
            let mut told = String::new();
            while !told.contains("next") {
                told += &soon("the next token", again.frame()).await;
            }
            told
        } else {
            soon("the end", again.body()).await
        };
        assert_eq!(told.contains("next"), is_shown, "{key}: {told}");
        assert!(!told.contains("secret"), "{key}: {told}");
    }
}

#[tokio::test]
async fn an_idle_thread_is_no_empty_one_for_a_caller_whom_it_is_hidden_from() {
    let (server, address, _serving) = served(json!({"owner": "alice"})).await;
    let keys = [("alice", "alice"), (STRANGER, "bob")];
    server.books().tenants = keys.map(|(key, name)| (key.to_owned(), name.to_owned())).into();
    for query in ["", "?follow=thread"] {
        for (key, expected) in [("alice", "200 OK"), (STRANGER, "404 Not Found")] {
            let request = events_request(&format!("x-api-key: {key}\r\n"), query);
            let response = soon("an answer", Response::to(address, request.as_bytes())).await;
            let status = response.head.lines().next().unwrap();
            assert_eq!(status, format!("HTTP/1.1 {expected}"), "{key} {query}");
        }
    }
}
