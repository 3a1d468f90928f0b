//! The same `run` request sent twice. A client that has lost the response repeats its POST with the
//! `Last-Event-ID` of the last event that it has. The repeated request must never start a second
//! run.

use std::net::SocketAddr;

use crate::support::frames::{self, event, kinds, packed, spelt};
use crate::support::gateway::{
    COLUMNS, Gateway, RUN, Response, THREAD, events_request, input, part, post, token, values,
};
use crate::support::upstream::{Exchange, STRANGER};
use serde_json::{Value, json};
use threadway::runs::EventId;

/// Another run of the same thread.
const OTHER_RUN: &str = "01a200b7-0000-7000-8000-000000000000";

/// Another caller's thread.
const OTHER_THREAD: &str = "11111111-7d44-4d4f-8aef-a4e7c1d4a2a1";

// === the upstream's data ===

fn record_of(id: &str, status: &str, name: &str, created_at: &str) -> Value {
    json!({
        "run_id": id,
        "thread_id": THREAD,
        "status": status,
        "created_at": created_at,
        "metadata": {"threadway_run_id": name, "threadway_start": id},
        "kwargs": {"resumable": true, "stream_mode": ["values", "messages-tuple"]},
    })
}

/// The run's record in LangGraph.
fn record(status: &str) -> Value {
    record_of(RUN, status, "r1", "2026-11-22T08:00:00Z")
}

/// The record of a run whose stream is not stored.
fn not_kept(status: &str) -> Value {
    let mut record = record(status);
    record["kwargs"]["resumable"] = json!(false);
    record
}

fn kept(id: &str, part: &str) -> String {
    format!("id: {id}\r\n{part}")
}

fn told_so_far() -> Vec<String> {
    vec![
        kept("1000-0", &part("metadata", &json!({"run_id": RUN, "attempt": 1}))),
        kept("1001-0", &part("values", &values(&["hi"]))),
        kept("1002-0", &token("m1", "one ")),
        kept("1003-0", &token("m1", "two ")),
    ]
}

fn told_later() -> Vec<String> {
    vec![
        kept("1004-0", &token("m1", "three")),
        kept("1005-0", &part("values", &values(&["hi", "one two three"]))),
    ]
}

fn all_told() -> String {
    [told_so_far(), told_later()].concat().concat()
}

/// A state of the thread, made by this run.
fn state_of(run_id: &str, messages: &[&str]) -> Value {
    json!({
        "values": values(messages), "next": [], "tasks": [],
        "metadata": {"run_id": run_id}, "checkpoint": {"checkpoint_id": "C"},
    })
}

fn came_to() -> Value {
    state_of(RUN, &["hi", "one two three"])
}

// === the client's requests and events ===

/// Repeats the request that started the run, after an event.
async fn again(address: SocketAddr, id: &str) -> Response {
    again_with(address, id, &input(&["hi"])).await
}

async fn again_with(address: SocketAddr, id: &str, input: &Value) -> Response {
    post(address, &format!("last-event-id: {id}\r\n"), &input.to_string()).await
}

fn id(frame: &str) -> &str {
    frames::id(frame).expect(frame)
}

/// Whether a response begins with a reset, so that the client applies it from its beginning.
fn starts_over(frames: &[String]) -> bool {
    event(&frames[0])["type"] == "RUN_STARTED" && id(&frames[0]).parse::<EventId>().is_err()
}

/// The texts in the last messages snapshot of a stream.
fn shown(frames: &[String]) -> Vec<String> {
    let is_snapshot = |frame: &&String| event(frame)["type"] == "MESSAGES_SNAPSHOT";
    let snapshot = event(frames.iter().rfind(is_snapshot).unwrap());
    let messages = snapshot["messages"].as_array().unwrap().clone();
    messages.iter().map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

impl Gateway {
    /// Waits for a response that the gateway must give without asking LangGraph.
    async fn unasked<T>(&self, answer: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            asked = self.upstream.next() => panic!("LangGraph is asked for {}", asked.line),
            answer = answer => answer,
        }
    }

    /// Answers the request for a run's record.
    async fn run_is(&self, record: &Value) {
        let line = format!("GET /threads/{THREAD}/runs/{RUN}");
        self.upstream.expect(&line).await.json(200, &record.to_string()).await;
    }

    /// The run's whole stream is replayed, and the run has ended.
    async fn is_replayed(&self) {
        let mut join = self.joined_behind("-1").await;
        join.send(all_told()).await;
        join.end().await;
        self.status("success").await;
        self.state(Some(came_to())).await;
    }

    /// Answers the lists of pending, running and all runs.
    async fn lists(&self, pending: &[Value], running: &[Value], all: &[Value]) {
        self.runs("status=pending&limit=100", json!(pending)).await;
        self.runs("status=running&limit=100", json!(running)).await;
        self.runs(&format!("limit={}", self.upstream.recent_runs()), json!(all)).await;
    }

    /// The gateway starts a run, as for any other request.
    async fn starts(&self) -> Exchange {
        self.state(None).await;
        self.stream().await
    }
}

/// A run in the middle, and the events with ids of a client that has lost the response once. The
/// first response leaves out the messages that the client has just sent.
async fn half_told(gateway: &Gateway) -> (Response, Exchange, Vec<String>) {
    let body = input(&["hi"]).to_string();
    let (mut response, mut run) = tokio::join!(post(gateway.address, "", &body), gateway.starts());
    let mut told = response.frames(1).await;
    let mut response = gateway.unasked(again(gateway.address, id(&told[0]))).await;
    run.send(told_so_far().concat()).await;
    while !told.last().is_some_and(|frame| frame.contains("\"two \"")) {
        told.extend(response.frames(1).await);
    }
    (response, run, told)
}

/// A gateway that has read a whole run, and the frames that its client received.
async fn all_over() -> (Gateway, Vec<String>) {
    let gateway = Gateway::start().await;
    let (mut response, mut run, mut told) = half_told(&gateway).await;
    run.send(told_later().concat()).await;
    run.end().await;
    gateway.status("success").await;
    gateway.state(Some(came_to())).await;
    told.extend(response.rest_of_frames().await);
    assert_eq!(kinds(&told).last().unwrap(), "RUN_FINISHED");
    (gateway, told)
}

// === the run in the event id ===

#[tokio::test]
async fn a_live_run_goes_on_after_each_of_its_events_and_no_other_is_started() {
    let gateway = Gateway::start().await;
    let (mut response, mut run, told) = half_told(&gateway).await;
    let mut returned = Vec::new();
    for (at, frame) in told.iter().enumerate() {
        let mut response = gateway.unasked(again(gateway.address, id(frame))).await;
        assert!(response.head.starts_with("HTTP/1.1 200 "), "{}", response.head);
        let rest = gateway.unasked(response.frames(told.len() - at - 1)).await;
        assert_eq!(rest, told[at + 1..], "{frame}");
        returned.push(response);
    }
    run.send(told_later().concat()).await;
    run.end().await;
    gateway.status("success").await;
    gateway.state(Some(came_to())).await;
    let rest = response.rest_of_frames().await;
    for mut response in returned {
        assert_eq!(response.rest_of_frames().await, rest);
    }
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn the_single_route_goes_on_too() {
    let gateway = Gateway::start().await;
    let (_response, _run, told) = half_told(&gateway).await;
    let body = json!({
        "method": "agent/run", "params": {"agentId": "agent"}, "body": input(&["hi"]),
    })
    .to_string();
    let request = format!(
        "POST /agui HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n\
         last-event-id: {}\r\ncontent-length: {}\r\n\r\n{body}",
        id(&told[1]),
        body.len()
    );
    let mut response = gateway.unasked(Response::to(gateway.address, request.as_bytes())).await;
    assert_eq!(gateway.unasked(response.frames(told.len() - 2)).await, told[2..]);
}

#[tokio::test]
async fn a_live_run_goes_on_at_a_replica_that_has_not_seen_it() {
    let gateway = Gateway::start().await;
    let (_response, _run, told) = half_told(&gateway).await;
    for status in ["running", "pending"] {
        let (replica, _stop, _serving) = gateway.replica().await;
        let script = async {
            gateway.run_is(&record(status)).await;
            if status == "pending" {
                // Another run is running, which does not matter here.
                gateway.state(Some(state_of(OTHER_RUN, &["hey"]))).await;
            }
            let mut join = gateway.joined_behind("-1").await;
            join.send(all_told()).await;
            join.end().await;
            gateway.status("success").await;
            gateway.state(Some(came_to())).await;
        };
        let (mut response, ()) = tokio::join!(again(replica, id(&told[0])), script);
        let rest = response.rest_of_frames().await;
        assert_eq!(rest[..told.len() - 1], told[1..], "{status}");
        assert_eq!(kinds(&rest).last().unwrap(), "RUN_FINISHED");
        gateway.upstream.is_untouched().await;
    }
}

#[tokio::test]
async fn a_run_that_is_over_is_told_to_its_end_after_each_of_its_events() {
    let (gateway, told) = all_over().await;
    let (replica, _stop, _serving) = gateway.replica().await;
    for address in [gateway.address, replica] {
        for (at, frame) in told[..told.len() - 1].iter().enumerate() {
            let script = async {
                gateway.run_is(&record("success")).await;
                gateway.is_replayed().await;
            };
            let (mut response, ()) = tokio::join!(again(address, id(frame)), script);
            assert_eq!(response.rest_of_frames().await, told[at + 1..], "{frame}");
        }
    }
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn an_older_run_is_told_to_its_own_end_and_nothing_of_a_later_one() {
    let (gateway, told) = all_over().await;
    let script = async {
        gateway.run_is(&record("success")).await;
        let mut join = gateway.joined_behind("-1").await;
        join.send(all_told()).await;
        join.end().await;
        gateway.status("success").await;
        gateway.state(Some(state_of(OTHER_RUN, &["hi", "one two three", "and", "later"]))).await;
        gateway.history(json!([came_to()])).await;
    };
    let (mut response, ()) = tokio::join!(again(gateway.address, id(&told[2])), script);
    assert_eq!(response.rest_of_frames().await, told[3..]);
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn a_run_that_is_over_and_not_kept_starts_over_with_what_it_came_to() {
    let (gateway, told) = all_over().await;
    for (state, history) in [
        (came_to(), None),
        // Other runs have ended since.
        (state_of(OTHER_RUN, &["hi", "one two three", "and", "later"]), Some(json!([came_to()]))),
    ] {
        let script = async {
            gateway.run_is(&not_kept("success")).await;
            gateway.run_is(&not_kept("success")).await;
            gateway.state(Some(state)).await;
            if let Some(history) = history {
                gateway.history(history).await;
            }
        };
        let (mut response, ()) = tokio::join!(again(gateway.address, id(&told[2])), script);
        let frames = response.rest_of_frames().await;
        assert!(starts_over(&frames), "{frames:#?}");
        assert_eq!(shown(&frames), ["hi", "one two three"]);
        assert_eq!(event(&frames[0])["runId"], "r1");
        assert_eq!(id(frames.last().unwrap()), id(told.last().unwrap()));
        gateway.upstream.is_untouched().await;
    }
}

#[tokio::test]
async fn after_the_end_of_a_run_its_end_comes_once_more_under_another_id() {
    let (gateway, told) = all_over().await;
    let last = told.last().unwrap();
    let mut known = id(last).to_owned();
    // What is shown at the end is the same each time, and so is its digest.
    let digest = spelt(&known).split_once(".end.").unwrap().1.to_owned();
    // An end that no client ever received.
    let shown = digest.split('.').next().unwrap();
    let made_up = spelt(&known).replace(shown, "0-3");
    for attempt in 2..=4 {
        // The record and the state suffice: nothing is replayed.
        let script = async {
            gateway.run_is(&record("success")).await;
            gateway.run_is(&record("success")).await;
            gateway.state(Some(came_to())).await;
        };
        let (mut response, ()) = tokio::join!(again(gateway.address, &known), script);
        assert!(response.head.starts_with("HTTP/1.1 200 "), "{}", response.head);
        let frames = response.rest_of_frames().await;
        assert_eq!(frames.len(), 1, "{frames:#?}");
        assert_eq!(event(&frames[0]), event(last));
        id(&frames[0]).clone_into(&mut known);
        assert_eq!(spelt(&known), format!("{RUN}.{attempt}.end.{digest}"));
        if attempt == 3 {
            known = packed(&made_up.replace(".1.end.", ".3.end."));
        }
    }
    // An `EventSource` gets 204, so that it does not reconnect.
    let request = events_request(&format!("last-event-id: {known}\r\n"), "");
    let response = Response::to(gateway.address, request.as_bytes()).await;
    assert!(response.head.starts_with("HTTP/1.1 204 "), "{}", response.head);
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn the_end_of_a_run_that_failed_comes_once_more_too() {
    let (gateway, told) = all_over().await;
    let error = json!({"error": "ValueError", "message": "boom"});
    let script = async {
        gateway.run_is(&record("error")).await;
        gateway.run_is(&record("error")).await;
        let get = gateway.upstream.expect(&format!("GET /threads/{THREAD}")).await;
        get.json(200, &json!({ "error": error }).to_string()).await;
        gateway.state(Some(came_to())).await;
    };
    let last = id(told.last().unwrap());
    let (mut response, ()) = tokio::join!(again(gateway.address, last), script);
    let frames = response.rest_of_frames().await;
    assert_eq!(kinds(&frames), ["RUN_ERROR"]);
    assert_eq!(event(&frames[0])["code"], "ValueError");
}

// === the run with the client's run id ===

#[tokio::test]
async fn an_id_that_names_no_event_finds_the_run_by_the_name_that_its_client_gave_it() {
    let gateway = Gateway::start().await;
    let (_response, mut run, told) = half_told(&gateway).await;
    let others = [
        record_of(OTHER_RUN, "success", "r1", "2026-11-22T07:00:00Z"),
        record_of(OTHER_RUN, "success", "r2", "2026-11-22T09:00:00Z"),
    ];
    let mut returned = Vec::new();
    for unknown in ["0", "0.00c0ffee.7", "garbage", "1..1.start.0.0000", "3.R.1.start.0.0000"] {
        let running = [record("running")];
        let script = gateway.lists(&[], &running, &others);
        let (mut response, ()) = tokio::join!(again(gateway.address, unknown), script);
        let frames = gateway.unasked(response.frames(5)).await;
        assert!(starts_over(&frames), "{frames:#?}");
        assert_eq!(shown(&frames), ["hi", "one two "], "{unknown}");
        returned.push(response);
    }
    run.send(told_later().concat()).await;
    run.end().await;
    gateway.status("success").await;
    gateway.state(Some(came_to())).await;
    for mut response in returned {
        let rest = response.rest_of_frames().await;
        assert!(rest[0].contains("three"), "{rest:#?}");
        assert_eq!(kinds(&rest).last().unwrap(), "RUN_FINISHED");
    }
    gateway.upstream.is_untouched().await;
    assert!(told.iter().all(|frame| id(frame).starts_with('2')), "{told:#?}");
}

#[tokio::test]
async fn one_that_is_over_starts_over_with_what_it_came_to() {
    let gateway = Gateway::start().await;
    let older = record_of(OTHER_RUN, "success", "r1", "2026-11-22T07:00:00Z");
    let script = async {
        // The JavaScript server lists the oldest first.
        gateway.lists(&[], &[], &[older, record("success")]).await;
        gateway.run_is(&record("success")).await;
        gateway.state(Some(came_to())).await;
    };
    let (mut response, ()) = tokio::join!(again(gateway.address, "0.00c0ffee.7"), script);
    let frames = response.rest_of_frames().await;
    assert!(starts_over(&frames), "{frames:#?}");
    assert_eq!(shown(&frames), ["hi", "one two three"]);
    let end = spelt(id(frames.last().unwrap()));
    assert!(end.starts_with(&format!("{RUN}.1.end.")), "{end}");
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn one_that_waits_for_its_turn_is_waited_for() {
    let gateway = Gateway::start().await;
    let script = async {
        let live = record_of(OTHER_RUN, "running", "r0", "2026-11-22T07:00:00Z");
        gateway.lists(&[record("pending")], &[live], &[]).await;
        gateway.state(Some(state_of(OTHER_RUN, &["hey"]))).await;
        gateway.joined_behind("-1").await
    };
    let (mut response, mut join) = tokio::join!(again(gateway.address, "garbage"), script);
    let frames = response.frames(4).await;
    assert!(starts_over(&frames), "{frames:#?}");
    assert_eq!(event(&frames[0])["runId"], "r1");
    assert_eq!(shown(&frames), ["hey"], "{frames:#?}");
    join.send(all_told()).await;
    join.end().await;
    gateway.status("success").await;
    gateway.state(Some(came_to())).await;
    let frames = response.rest_of_frames().await;
    assert_eq!(shown(&frames), ["hi", "one two three"], "{frames:#?}");
}

// === requests that were never sent before ===

#[tokio::test]
async fn a_run_is_started_where_the_thread_has_none_that_was_asked_for() {
    let elsewhere = |thread: &str| {
        let mut record = record("success");
        record["thread_id"] = json!(thread);
        record
    };
    let known = packed(&format!("{RUN}.1.1002-0.0.b840"));
    let end = packed(&format!("{RUN}.1.end.0.0000"));
    let no_run = "2.not-a-run.AAAIAA";
    for (last, found) in [
        ("garbage", None),
        // The text is not a LangGraph id: it would change the path of the URL.
        (no_run, None),
        ("2....AAAIAA", None),
        (&known, Some((404, json!({"detail": "Run not found"})))),
        (&end, Some((404, json!({"detail": "Run not found"})))),
        (&known, Some((422, json!({"detail": "no UUID"})))),
        // A server that does not check which thread the run belongs to.
        (&known, Some((200, elsewhere(OTHER_THREAD)))),
    ] {
        let gateway = Gateway::start().await;
        let script = async {
            if let Some((status, answer)) = found {
                let line = format!("GET /threads/{THREAD}/runs/{RUN}");
                gateway.upstream.expect(&line).await.json(status, &answer.to_string()).await;
            }
            let other = record_of(OTHER_RUN, "success", "r0", "2026-11-22T07:00:00Z");
            gateway.lists(&[], &[], &[other]).await;
            gateway.starts().await
        };
        let (mut response, mut run) = tokio::join!(again(gateway.address, last), script);
        run.send(told_so_far().concat()).await;
        let frames = response.frames(1).await;
        assert_eq!(spelt(id(&frames[0])), format!("{RUN}.1.start.0.0000"), "{last}");
    }
}

#[tokio::test]
async fn without_the_header_a_run_is_started_whatever_it_is_called() {
    let gateway = Gateway::start().await;
    let (_response, _run, told) = half_told(&gateway).await;
    // CopilotKit sends several runs under one run id, with the same properties each time.
    let mut twice = input(&["hi"]);
    twice["forwardedProps"] = json!({"lastEventId": id(&told[1])});
    // These streams stay open: a stream that is cut would be joined again.
    let mut open = Vec::new();
    for headers in ["", "last-event-id: \r\n"] {
        let body = twice.to_string();
        open.push(tokio::join!(post(gateway.address, headers, &body), gateway.starts()));
    }
}

#[tokio::test]
async fn nothing_is_started_while_it_cannot_be_known() {
    let gateway = Gateway::start().await;
    let known = packed(&format!("{RUN}.1.1002-0.0.b840"));
    let run = format!("GET /threads/{THREAD}/runs/{RUN}");
    let pending = format!("GET /threads/{THREAD}/runs?status=pending&limit=100{COLUMNS}");
    for (last, line) in [(&*known, run), ("garbage", pending)] {
        let script = async {
            gateway.upstream.expect(&line).await.json(500, r#"{"detail":"boom"}"#).await;
        };
        let (response, ()) = tokio::join!(again(gateway.address, last), script);
        assert!(response.head.starts_with("HTTP/1.1 502 "), "{}", response.head);
        gateway.upstream.is_untouched().await;
    }
}

// === other callers ===

#[tokio::test]
async fn the_id_of_anothers_run_gives_nothing_of_it_away() {
    let gateway = Gateway::start().await;
    let (_response, _run, told) = half_told(&gateway).await;
    let header = |key: &str| format!("x-api-key: {key}\r\nlast-event-id: {}\r\n", id(&told[1]));

    // For a caller who may not see the thread, the thread does not exist, and the run is a new one.
    let (body, headers) = (input(&["hi"]).to_string(), header(STRANGER));
    let script = async {
        let get = gateway.upstream.expect(&format!("GET /threads/{THREAD}/state")).await;
        assert_eq!(get.key(), Some(STRANGER));
        get.json(404, r#"{"detail":"Thread not found"}"#).await;
        let line = format!("POST /threads/{THREAD}/runs/stream");
        let start = gateway.upstream.expect(&line).await;
        assert_eq!(start.key(), Some(STRANGER));
        start.json(404, r#"{"detail":"Thread not found"}"#).await;
    };
    let (mut response, ()) = tokio::join!(post(gateway.address, &headers, &body), script);
    assert!(response.head.starts_with("HTTP/1.1 404 "), "{}", response.head);
    assert!(response.body().await.contains("unknown_agent"));

    // The caller's own thread does not have this run.
    let mut own = input(&["hi"]);
    own["threadId"] = json!(OTHER_THREAD);
    let script = async {
        for line in [
            format!("GET /threads/{OTHER_THREAD}/runs/{RUN}"),
            format!("GET /threads/{OTHER_THREAD}/runs?status=pending&limit=100{COLUMNS}"),
            format!("GET /threads/{OTHER_THREAD}/runs?status=running&limit=100{COLUMNS}"),
            format!("GET /threads/{OTHER_THREAD}/runs?limit=20{COLUMNS}"),
            format!("GET /threads/{OTHER_THREAD}/state"),
        ] {
            let get = gateway.upstream.expect(&line).await;
            assert_eq!(get.key(), Some("mallory"), "{line}");
            let (status, answer) = if line.contains('?') { (200, "[]") } else { (404, "{}") };
            get.json(status, answer).await;
        }
        let line = format!("POST /threads/{OTHER_THREAD}/runs/stream");
        let mut start = gateway.upstream.expect(&line).await;
        start.begin("").await;
        start
    };
    let (body, headers) = (own.to_string(), header("mallory"));
    let (_mallory, _start) = tokio::join!(post(gateway.address, &headers, &body), script);
}
