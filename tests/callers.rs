//! Whose credentials go up with what, and that nobody is told of a run what LangGraph has not just
//! shown to the very caller: not from a log, not by a watcher that others have begun.

#![cfg(test)]

mod support;

use serde_json::{Value, json};
use support::gateway::{
    Gateway, RUN, Response, THREAD, events_request, input, part, refusal, refused, token, values,
};
use support::upstream::{Exchange, STRANGER};

const NOT_SHOWN: &str = "LangGraph has no such thread, or does not show it with these credentials";

fn key(key: &str) -> String {
    format!("x-api-key: {key}\r\n")
}

fn kept(id: &str, part: &str) -> String {
    format!("id: {id}\r\n{part}")
}

fn record() -> Value {
    json!([{
        "run_id": RUN, "status": "running", "metadata": {"threadway_run_id": "r1"},
        "kwargs": {"resumable": true, "stream_mode": ["values", "messages-tuple"]},
    }])
}

/// A run of Alice's that has told half a message; and the id of its last event.
async fn half_told(gateway: &Gateway) -> (Response, Exchange, String) {
    let (mut response, mut run) = gateway.run().await;
    let metadata = part("metadata", &json!({"run_id": RUN, "attempt": 1}));
    let state = part("values", &values(&["hi"]));
    let said = kept("3-0", &token("m1", "one"));
    run.send(kept("1-0", &metadata) + &kept("2-0", &state) + &said).await;
    loop {
        let frame = response.whole_frame().await;
        if frame.contains("one") {
            let id = frame.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
            return (response, run, id.to_owned());
        }
    }
}

async fn events(gateway: &Gateway, headers: &str, query: &str) -> Response {
    Response::to(gateway.address, events_request(headers, query).as_bytes()).await
}

#[tokio::test]
async fn a_log_answers_nobody_whom_the_upstream_does_not_show_the_thread() {
    let gateway = Gateway::start().await;
    let (_alice, _run, id) = half_told(&gateway).await;
    let behind = format!("?last_event_id={id}");
    let expected = refusal("404 Not Found", "unknown_thread", NOT_SHOWN);
    for query in [&*behind, "?follow=thread", &format!("{behind}&follow=thread")] {
        let mut response = events(&gateway, &key(STRANGER), query).await;
        assert_eq!(refused(&mut response).await, expected, "{query}");
    }
    gateway.upstream.is_untouched().await;
    // Who is shown it goes on, with nothing more asked.
    let mut bob = events(&gateway, &key("bob"), &behind).await;
    assert!(bob.head.starts_with("HTTP/1.1 200"), "{}", bob.head);
    assert_eq!(bob.frame().await, "retry: 3000\n\n");
}

#[tokio::test]
async fn the_id_of_a_runs_end_says_nothing_of_it_to_others() {
    let gateway = Gateway::start().await;
    let (mut alice, mut run, _) = half_told(&gateway).await;
    run.send(kept("4-0", &part("values", &values(&["hi"])))).await;
    run.end().await;
    gateway.status("success").await;
    let state = json!({"values": values(&["hi"]), "metadata": {"run_id": RUN}});
    gateway.state(Some(state)).await;
    let mut end = String::new();
    while end.is_empty() || !end.contains("RUN_FINISHED") {
        end = alice.whole_frame().await;
    }
    let id = end.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    let query = format!("?last_event_id={id}");
    let mut stranger = events(&gateway, &key(STRANGER), &query).await;
    let expected = refusal("404 Not Found", "unknown_thread", NOT_SHOWN);
    assert_eq!(refused(&mut stranger).await, expected);
    let shown = events(&gateway, &key("bob"), &query).await;
    assert!(shown.head.starts_with("HTTP/1.1 204"), "{}", shown.head);
}

#[tokio::test]
async fn a_watcher_of_others_tells_nobody_whom_the_upstream_does_not_show_the_thread() {
    let gateway = Gateway::start().await;
    let script = async {
        let bell = gateway.upstream.next().await;
        assert!(bell.line.contains("/stream?stream_modes=lifecycle"), "{}", bell.line);
        assert_eq!(bell.key(), Some("alice"));
        bell.json(404, "{}").await;
        let recent = gateway.upstream.next().await;
        assert_eq!(recent.key(), Some("alice"));
        recent.json(200, &record().to_string()).await;
        gateway.joined_behind("-1").await
    };
    let alice = key("alice");
    let (mut followed, mut join) = tokio::join!(events(&gateway, &alice, "?follow=thread"), script);
    assert_eq!(join.key(), Some("alice"));
    let metadata = part("metadata", &json!({"run_id": RUN, "attempt": 1}));
    let state = part("values", &values(&["hi"]));
    join.send(kept("1-0", &metadata) + &kept("2-0", &state)).await;
    assert_eq!(followed.next(1).await[0]["type"], "RUN_STARTED");
    // Bob sees it with a request of his own, and then what Alice's watcher reads.
    let mut bob = events(&gateway, &key("bob"), "?follow=thread").await;
    assert_eq!(bob.next(1).await[0]["type"], "RUN_STARTED");
    let mut stranger = events(&gateway, &key(STRANGER), "?follow=thread").await;
    let expected = refusal("404 Not Found", "unknown_thread", NOT_SHOWN);
    assert_eq!(refused(&mut stranger).await, expected);
}

#[tokio::test]
async fn a_run_is_read_with_the_credentials_of_the_last_who_came() {
    let gateway = Gateway::start().await;
    let (mut alice, run, _) = half_told(&gateway).await;
    assert_eq!(run.key(), None);
    let script = async {
        let list = gateway.upstream.next().await;
        assert_eq!(list.key(), Some("bob"));
        list.json(200, &record().to_string()).await;
    };
    let bobs = key("bob");
    let (mut bob, ()) = tokio::join!(events(&gateway, &bobs, ""), script);
    assert_eq!(bob.next(1).await[0]["type"], "RUN_STARTED");
    run.cut();
    let mut join =
        gateway.upstream.expect(&format!("GET /threads/{THREAD}/runs/{RUN}/stream")).await;
    assert_eq!(join.key(), Some("bob"));
    join.begin("").await;
    join.send(kept("3-0", &token("m1", "one")) + &kept("4-0", &token("m1", " more"))).await;
    assert_eq!(alice.next(1).await[0]["delta"], " more");
}

#[tokio::test]
async fn whose_thread_exists_already_is_told_as_of_one_that_does_not() {
    let gateway = Gateway::start().await;
    let mut named = input(&["hi"]);
    named["threadId"] = json!("a name");
    let body = named.to_string();
    let request = format!(
        "POST /agui/agent/agent/run HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n\
         {}content-length: {}\r\n\r\n{body}",
        key("bob"),
        body.len()
    );
    let script = async {
        gateway.upstream.next().await.json(404, r#"{"detail":"Thread not found"}"#).await;
        let create = gateway.upstream.expect("POST /threads").await;
        create.json(409, r#"{"detail":"Thread with ID T already exists"}"#).await;
    };
    let (mut response, ()) =
        tokio::join!(Response::to(gateway.address, request.as_bytes()), script);
    let expected = refusal("404 Not Found", "unknown_thread", NOT_SHOWN);
    assert_eq!(refused(&mut response).await, expected);
}
