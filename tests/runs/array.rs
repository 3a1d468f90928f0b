//! Runs as JSON arrays: in one response, and poll by poll.

use std::net::SocketAddr;

use crate::support::clock::HeldClock;
use crate::support::gateway::{
    Gateway, RUN, Response, THREAD, connect_request, counted, input, part, post, token, values,
};
use crate::support::judge;
use crate::support::schema::Schema;
use crate::support::upstream::Exchange;
use serde_json::{Value, json};
use std::time::Duration;
use threadway::runs::EventId;
use threadway::server::Limits;

const JSON: &str = "accept: application/json\r\n";

fn kept(id: usize, part: &str) -> String {
    format!("id: {}-0\r\n{part}", 1000 + id)
}

fn words(count: usize) -> String {
    (0..count).map(|at| format!("word{at} ")).collect::<Vec<_>>().concat()
}

/// The server's parts for a run of this many tokens, with the ids under which the server stores
/// them.
fn parts(count: usize) -> Vec<String> {
    let mut parts = vec![
        part("metadata", &json!({"run_id": RUN, "attempt": 1})),
        part("values", &values(&["hi"])),
    ];
    parts.extend((0..count).map(|at| token("m1", &format!("word{at} "))));
    parts.push(part("values", &values(&["hi", &words(count)])));
    parts.iter().enumerate().map(|(at, part)| kept(at, part)).collect()
}

fn came_to(count: usize) -> Value {
    json!({
        "values": values(&["hi", &words(count)]), "next": [], "tasks": [],
        "metadata": {"run_id": RUN}, "checkpoint": {"checkpoint_id": "C"},
    })
}

/// Requests an array, with a query and after an event.
async fn polled(address: SocketAddr, query: &str, last: Option<&str>) -> Response {
    let body = input(&["hi"]).to_string();
    let last = last.map_or_else(String::new, |id| format!("last-event-id: {id}\r\n"));
    let request = format!(
        "POST /agui/agent/agent/run{query} HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n\
         {JSON}{last}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    Response::to(address, request.as_bytes()).await
}

/// The events of a response, and the id for the next poll.
async fn array(response: &mut Response) -> (Vec<Value>, String) {
    assert!(response.head.starts_with("HTTP/1.1 200 OK\r\n"), "{}", response.head);
    assert!(response.head.contains("content-type: application/json\r\n"), "{}", response.head);
    let id = response.head.lines().find_map(|line| line.strip_prefix("last-event-id: "));
    let id = id.expect("there is an id to go on from").to_owned();
    (serde_json::from_str(&response.body().await).unwrap(), id)
}

fn is_over(events: &[Value]) -> bool {
    events.last().is_some_and(|event| event["type"] == "RUN_FINISHED")
}

impl Gateway {
    async fn begins_for_array(&self) -> Exchange {
        self.state(None).await;
        self.stream().await
    }

    async fn array_succeeds(&self, run: Exchange, words: usize) {
        run.end().await;
        self.status("success").await;
        self.state(Some(came_to(words))).await;
    }
}

/// The events of the run in a stream.
async fn streamed(words: usize) -> Vec<Value> {
    let gateway = Gateway::start().await;
    let body = input(&["hi"]).to_string();
    let (mut response, mut run) =
        tokio::join!(post(gateway.address, "", &body), gateway.begins_for_array());
    run.send(parts(words).concat()).await;
    let (events, ()) = tokio::join!(response.rest(), gateway.array_succeeds(run, words));
    events
}

#[tokio::test]
async fn a_whole_run_is_one_array_with_the_events_of_its_stream() {
    let gateway = Gateway::start().await;
    let script = async {
        let mut run = gateway.begins_for_array().await;
        run.send(parts(5).concat()).await;
        gateway.array_succeeds(run, 5).await;
    };
    let (mut response, ()) = tokio::join!(polled(gateway.address, "", None), script);
    let (events, id) = array(&mut response).await;
    assert!(response.head.contains("cache-control: no-store\r\n"), "{}", response.head);
    assert_eq!(events, streamed(5).await);
    assert!(id.parse::<EventId>().unwrap().is_terminal());
    judge::closed(&Schema::load(), &events).unwrap();
    let ended = counted(&gateway.metrics, r#"streams_ended_total{outcome="finished"}"#);
    assert!((ended - 1.0).abs() < 0.5);
}

#[tokio::test]
async fn a_thread_at_rest_is_an_array_too_and_behind_its_end_there_is_nothing() {
    let gateway = Gateway::start().await;
    let script = async {
        gateway.no_live_runs(json!([{"run_id": RUN, "status": "success"}])).await;
        gateway.state(Some(came_to(2))).await;
    };
    let request = connect_request(JSON, &input(&[]));
    let (mut response, ()) =
        tokio::join!(Response::to(gateway.address, request.as_bytes()), script);
    let (events, id) = array(&mut response).await;
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
    let request = connect_request(&format!("{JSON}last-event-id: {id}\r\n"), &input(&[]));
    let response = Response::to(gateway.address, request.as_bytes()).await;
    assert!(response.head.starts_with("HTTP/1.1 204 "), "{}", response.head);
}

#[tokio::test]
async fn polls_are_together_the_stream_with_each_event_once() {
    const WORDS: usize = 12;
    let expected = streamed(WORDS).await;
    let gateway = Gateway::start().await;
    let (mut told, mut last) = (Vec::new(), None);
    let mut run = None;
    let mut polls = 0;
    for part in parts(WORDS) {
        let poll = async {
            // With `wait=0` the response has exactly the events that exist now.
            let mut response = polled(gateway.address, "?wait=0", last.as_deref()).await;
            array(&mut response).await
        };
        let (events, id) = if run.is_none() {
            let (answer, exchange) = tokio::join!(poll, gateway.begins_for_array());
            run = Some(exchange);
            answer
        } else {
            poll.await
        };
        told.extend(events);
        last = Some(id);
        polls += 1;
        if let Some(run) = &mut run {
            run.send(part).await;
            gateway.settled().await;
        }
    }
    let run = run.unwrap();
    let script = gateway.array_succeeds(run, WORDS);
    let finish = async {
        loop {
            let mut response = polled(gateway.address, "?wait=60", last.as_deref()).await;
            let (events, id) = array(&mut response).await;
            told.extend(events);
            last = Some(id);
            if is_over(&told) {
                return;
            }
        }
    };
    tokio::join!(finish, script);
    assert!(polls > WORDS);
    // A client that reconnects is assumed to hold only what it has received.
    told.retain(|event| event["type"] != "MESSAGES_SNAPSHOT");
    assert_eq!(told, expected);
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn a_poll_waits_as_long_as_it_is_told_and_no_longer() {
    let gateway = Gateway::start().await;
    let clock = HeldClock::pause();
    let asked = tokio::time::Instant::now();
    let poll = async {
        let mut response = polled(gateway.address, "?wait=20", None).await;
        (array(&mut response).await, asked.elapsed())
    };
    let script = async {
        let mut run = gateway.begins_for_array().await;
        run.send(parts(3)[..3].concat()).await;
        gateway.passes(&clock, Duration::from_secs(10)).await;
        run.send(kept(9, &token("m1", "late "))).await;
        gateway.passes(&clock, Duration::from_secs(11)).await;
        run
    };
    let (((events, id), waited), _run) = tokio::join!(poll, script);
    assert!(waited >= Duration::from_secs(20) && waited < Duration::from_secs(21), "{waited:?}");
    assert_eq!(events.last().unwrap()["delta"], "late ");
    assert!(id.parse::<EventId>().is_ok());
}

#[tokio::test]
async fn a_poll_of_which_nothing_came_never_starts_the_run_a_second_time() {
    let gateway = Gateway::start().await;
    let script = async {
        gateway.state(None).await;
        let line = format!("POST /threads/{THREAD}/runs/stream");
        let mut run = gateway.upstream.expect(&line).await;
        // The run has no id yet, so no event can be sent.
        run.begin("").await;
        run
    };
    let (mut response, _run) = tokio::join!(polled(gateway.address, "?wait=0", None), script);
    let (events, first) = array(&mut response).await;
    assert_eq!(events, [json!(null); 0]);
    assert!(!first.is_empty() && first.parse::<EventId>().is_err(), "{first}");
    // The existing run is read, and none is started.
    let record = json!({
        "run_id": RUN, "status": "running", "created_at": "2026-11-22T08:00:00Z",
        "metadata": {"threadway_run_id": "r1", "threadway_start": "s1"},
        "kwargs": {"resumable": true, "stream_mode": ["values", "messages-tuple"]},
    });
    let script = async {
        gateway.runs("status=pending&limit=100", json!([])).await;
        gateway.runs("status=running&limit=100", json!([record.clone()])).await;
        let recent = format!("limit={}", gateway.upstream.recent_runs());
        gateway.runs(&recent, json!([record.clone()])).await;
        gateway.joined_behind("-1").await
    };
    let poll = polled(gateway.address, "?wait=0", Some(&first));
    let (mut response, _join) = tokio::join!(poll, script);
    let (_, again) = array(&mut response).await;
    assert!(!again.is_empty());
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn an_array_that_is_full_is_sent_and_the_next_one_goes_on() {
    // The value of `array::MAX_ARRAY_BYTES`.
    const FULL: usize = 4 * 1024 * 1024;
    let text = "x".repeat(64 * 1024);
    // Large enough to keep the event at which the client resumes.
    let limits = Limits { log_bytes: 64 * 1024 * 1024, ..Limits::default() };
    let gateway = Gateway::with(limits).await;
    let script = async {
        let mut run = gateway.begins_for_array().await;
        run.send(parts(0)[..2].concat()).await;
        for at in 0..100 {
            run.send(kept(10 + at, &token("m1", &text))).await;
        }
        run
    };
    let (mut response, run) = tokio::join!(polled(gateway.address, "", None), script);
    let (first, id) = array(&mut response).await;
    let size: usize = first.iter().map(|event| event.to_string().len()).sum();
    assert!((FULL / 2..FULL + 2 * 1024 * 1024).contains(&size), "{size} bytes");
    assert!(!is_over(&first));
    let script = async {
        run.end().await;
        gateway.status("success").await;
        gateway.state(Some(json!({"metadata": {"run_id": RUN}}))).await;
    };
    let poll = polled(gateway.address, "", Some(&id));
    let (mut response, ()) = tokio::join!(poll, script);
    let (rest, _) = array(&mut response).await;
    let all = [first, rest].concat();
    judge::closed(&Schema::load(), &all).unwrap();
    let texts = judge::streamed_text(&all);
    assert_eq!(texts["m1"].len(), 100 * text.len());
}

#[tokio::test]
async fn a_client_that_leaves_before_its_array_leaves_the_run() {
    let gateway = Gateway::start().await;
    let body = input(&["hi"]).to_string();
    let request = format!(
        "POST /agui/agent/agent/run HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n{JSON}\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut socket = tokio::net::TcpStream::connect(gateway.address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut socket, request.as_bytes()).await.unwrap();
    let mut run = gateway.begins_for_array().await;
    gateway.watched_by(1).await;
    drop(socket);
    gateway.watched_by(0).await;
    assert!(run.lives().await);
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn a_stop_of_the_gateway_ends_an_array_with_a_reason() {
    let gateway = Gateway::start().await;
    let script = async {
        let run = gateway.begins_for_array().await;
        gateway.watched_by(1).await;
        gateway.stop.cancel();
        run
    };
    let (mut response, _run) = tokio::join!(polled(gateway.address, "", None), script);
    let (events, _) = array(&mut response).await;
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["code"]), (&json!("RUN_ERROR"), &json!("gateway_shutdown")));
}

#[tokio::test]
async fn a_wait_that_is_none_starts_nothing() {
    let gateway = Gateway::start().await;
    for query in ["?wait=61", "?wait=x"] {
        let response = polled(gateway.address, query, None).await;
        assert!(response.head.starts_with("HTTP/1.1 400 "), "{}", response.head);
    }
    gateway.upstream.is_untouched().await;
}
