//! Many clients come at once: how many requests the upstream gets, and in which order.

use std::time::Duration;

use crate::support::clock::HeldClock;
use crate::support::gateway::{Gateway, Response, THREAD, input, run_request};
use crate::support::upstream::Exchange;
use serde_json::Value;
use threadway::upstream::{ANSWER_TIMEOUT, MAX_LOOK_TURNS, MAX_START_TURNS, TURN_TIMEOUT};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// More than half of the time that a request waits, or may take.
const LONG: Duration = Duration::from_secs(20);

/// The id of the thread with this number.
fn thread(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

/// The request of a client that follows the thread with this number.
fn follow(number: usize, headers: &str) -> String {
    let path = format!("/agui/agent/agent/threads/{}/events?follow=thread", thread(number));
    format!("GET {path} HTTP/1.1\r\nhost: h\r\n{headers}\r\n")
}

async fn send(gateway: &Gateway, request: &str) -> TcpStream {
    let mut socket = TcpStream::connect(gateway.address).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    // In order.
    gateway.settled().await;
    socket
}

async fn followers(gateway: &Gateway, count: usize, headers: &str) -> Vec<TcpStream> {
    let mut sockets = Vec::new();
    for number in 0..count {
        sockets.push(send(gateway, &follow(number, headers)).await);
    }
    sockets
}

/// The requests that the upstream has got so far.
async fn arrived(gateway: &Gateway) -> Vec<Exchange> {
    let (mut all, mut quiet) = (Vec::new(), 0);
    while quiet < 5 {
        gateway.settled().await;
        quiet += 1;
        while let Some(exchange) = gateway.upstream.waiting().await {
            all.push(exchange);
            quiet = 0;
        }
    }
    all
}

/// Ends looks, so that their turns are over.
async fn fail(looks: impl IntoIterator<Item = Exchange>) {
    for look in looks {
        look.json(500, r#"{"detail":"boom"}"#).await;
    }
}

fn is_about(exchange: &Exchange, number: usize) -> bool {
    exchange.line.starts_with(&format!("GET /threads/{}/runs?", thread(number)))
}

#[tokio::test]
async fn a_crowd_gets_few_turns_and_a_new_run_does_not_wait_for_it() {
    let gateway = Gateway::start().await;
    let _clock = HeldClock::pause();
    let _sockets = followers(&gateway, 2 * MAX_LOOK_TURNS, "").await;
    let looks = arrived(&gateway).await;
    assert_eq!(looks.len(), MAX_LOOK_TURNS);
    let post = run_request("agent", "", &input(&["hi"]).to_string());
    let _poster = send(&gateway, &post).await;
    let read = gateway.upstream.next().await;
    assert_eq!(read.line, format!("GET /threads/{THREAD}/state"));
}

#[tokio::test]
async fn callers_take_turns() {
    let gateway = Gateway::start().await;
    let _clock = HeldClock::pause();
    let _sockets = followers(&gateway, 3 * MAX_LOOK_TURNS, "x-api-key: alice\r\n").await;
    let mut looks = arrived(&gateway).await;
    let _bob = send(&gateway, &follow(0, "x-api-key: bob\r\n")).await;
    assert!(arrived(&gateway).await.is_empty());
    // Bob's question whether there is such an agent has a turn too.
    let mut served = Vec::new();
    for _ in 0..3 {
        fail(looks.pop()).await;
        served.extend(arrived(&gateway).await);
    }
    let callers: Vec<_> = served.iter().filter_map(Exchange::key).collect();
    assert_eq!(callers, ["alice", "alice", "bob"]);
}

#[tokio::test]
async fn nothing_is_sent_for_a_client_that_has_left() {
    let gateway = Gateway::start().await;
    let _clock = HeldClock::pause();
    let mut sockets = followers(&gateway, MAX_LOOK_TURNS + 2, "").await;
    let mut looks = arrived(&gateway).await;
    drop(sockets.remove(MAX_LOOK_TURNS));
    assert!(arrived(&gateway).await.is_empty());
    fail(looks.pop()).await;
    let next = arrived(&gateway).await;
    assert!(next.len() == 1 && is_about(&next[0], MAX_LOOK_TURNS + 1), "{:?}", next[0].line);
}

#[tokio::test]
async fn the_wait_for_a_turn_is_not_langgraphs_time() {
    let gateway = Gateway::start().await;
    let clock = HeldClock::pause();
    let mut sockets = followers(&gateway, MAX_LOOK_TURNS + 1, "").await;
    let mut looks = arrived(&gateway).await;
    gateway.passes(&clock, LONG).await;
    fail(looks.pop()).await;
    let mut next = arrived(&gateway).await;
    assert!(next.len() == 1 && is_about(&next[0], MAX_LOOK_TURNS));
    gateway.passes(&clock, LONG).await;
    assert!(2 * LONG > ANSWER_TIMEOUT);
    next.remove(0).json(200, "[]").await;
    let state = format!("GET /threads/{}/state", thread(MAX_LOOK_TURNS));
    loop {
        let asked = gateway.upstream.next().await;
        if asked.line == state {
            asked.json(404, r#"{"detail":"Thread not found"}"#).await;
            break;
        }
    }
    let mut response = Response::on(sockets.pop().unwrap()).await;
    assert!(response.head.starts_with("HTTP/1.1 200 "), "{}", response.head);
    assert_eq!(response.frame().await, "retry: 3000\n\n");
}

#[tokio::test]
async fn a_client_that_waits_too_long_is_refused_and_an_event_source_reconnects() {
    let gateway = Gateway::start().await;
    let clock = HeldClock::pause();
    let mut sockets = followers(&gateway, 2 * MAX_LOOK_TURNS, "").await;
    let looks = arrived(&gateway).await;
    for headers in ["", "last-event-id: 0.1.1\r\n"] {
        sockets.push(send(&gateway, &follow(100, headers)).await);
    }
    gateway.passes(&clock, LONG).await;
    fail(looks).await;
    let _second = arrived(&gateway).await;
    gateway.passes(&clock, TURN_TIMEOUT.saturating_sub(LONG)).await;
    let mut back = Response::on(sockets.pop().unwrap()).await;
    assert!(back.head.starts_with("HTTP/1.1 200 "), "{}", back.head);
    assert_eq!(back.body().await, "retry: 3000\n\n");
    let mut refused = Response::on(sockets.pop().unwrap()).await;
    assert!(refused.head.starts_with("HTTP/1.1 503 "), "{}", refused.head);
    assert!(refused.head.contains("\r\nretry-after: "), "{}", refused.head);
    let body: Value = serde_json::from_str(&refused.body().await).unwrap();
    assert_eq!(body["error"], "upstream_crowded");
}

#[tokio::test]
async fn a_start_keeps_its_turn_after_its_client_has_left() {
    let gateway = Gateway::start().await;
    let _clock = HeldClock::pause();
    let start = async |number| {
        let mut body = input(&["hi"]);
        body["threadId"] = thread(number).into();
        send(&gateway, &run_request("agent", "", &body.to_string())).await
    };
    let (mut posters, mut sent) = (Vec::new(), Vec::new());
    for number in 0..MAX_START_TURNS {
        posters.push(start(number).await);
    }
    while sent.len() < MAX_START_TURNS {
        for exchange in arrived(&gateway).await {
            match &*exchange.line {
                "POST /threads" => exchange.json(200, "{}").await,
                line if line.ends_with("/runs/stream") => sent.push(exchange),
                _ => exchange.json(404, r#"{"detail":"Thread not found"}"#).await,
            }
        }
    }
    drop(posters);
    assert!(arrived(&gateway).await.is_empty());
    let _next = start(MAX_START_TURNS).await;
    assert!(arrived(&gateway).await.is_empty());
    fail(sent.pop()).await;
    let read = gateway.upstream.next().await;
    assert_eq!(read.line, format!("GET /threads/{}/state", thread(MAX_START_TURNS)));
}

#[tokio::test]
async fn a_shutdown_ends_the_wait_for_a_turn() {
    let gateway = Gateway::start().await;
    let _clock = HeldClock::pause();
    let _looking = followers(&gateway, MAX_LOOK_TURNS, "").await;
    let _looks = arrived(&gateway).await;
    let new = send(&gateway, &follow(100, "")).await;
    let back = send(&gateway, &follow(101, "last-event-id: 0.1.1\r\n")).await;
    gateway.stop.cancel();
    let refused = Response::on(new).await;
    assert!(refused.head.starts_with("HTTP/1.1 503 "), "{}", refused.head);
    let mut empty = Response::on(back).await;
    assert!(empty.head.starts_with("HTTP/1.1 200 "), "{}", empty.head);
    assert_eq!(empty.body().await, "retry: 3000\n\n");
}

#[tokio::test]
async fn looks_of_many_requests_never_wait_for_each_other() {
    let gateway = Gateway::start().await;
    let _clock = HeldClock::pause();
    let mut sockets = Vec::new();
    for number in 0..3 * MAX_LOOK_TURNS {
        // Some threads are asked for several times, in each way.
        let id = thread(number % 20);
        let path = match number % 3 {
            0 => format!("/agui/agent/agent/threads/{id}/events?follow=thread"),
            1 => format!("/agui/agent/agent/threads/{id}/events"),
            _ => format!("/agui/agent/agent/run?threadId={id}"),
        };
        let request = format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n");
        sockets.push(send(&gateway, &request).await);
    }
    loop {
        let exchanges = arrived(&gateway).await;
        if exchanges.is_empty() {
            break;
        }
        assert!(exchanges.len() <= MAX_LOOK_TURNS);
        for exchange in exchanges {
            match &*exchange.line {
                line if line.contains("/runs?") => exchange.json(200, "[]").await,
                line if line.ends_with("/state") => exchange.json(200, r#"{"values":{}}"#).await,
                _ => exchange.json(500, "{}").await,
            }
        }
    }
    for socket in sockets {
        let response = Response::on(socket).await;
        assert!(response.head.starts_with("HTTP/1.1 200 "), "{}", response.head);
    }
}
