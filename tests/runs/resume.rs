//! Event ids, resuming after them, and runs whose upstream is lost and found again.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use crate::support::clock::HeldClock;
use crate::support::frames::{event, id, kind, kinds, packed, spelt};
use crate::support::gateway::{
    COLUMNS, Gateway, RUN, Response, THREAD, connect_request, events_request, input, part, token,
    values,
};
use crate::support::judge;
use crate::support::schema::Schema;
use crate::support::upstream::Exchange;
use serde_json::{Value, json};
use threadway::runs::{EventId, LINGER, UPSTREAM_PATIENCE};
use threadway::server::Limits;

/// The pause before a stream is joined again.
const NO_PAUSE: Duration = Duration::from_millis(3);

/// The longest pause between two attempts to join.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long a join may take until it is answered.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);

/// How long the Python server may be silent, and below a server without heartbeats.
const SILENCE: Duration = Duration::from_secs(20);
const SILENCE_WITHOUT_SIGNS: Duration = Duration::from_secs(30);

// === the upstream's data ===

/// The run's record in LangGraph: a gateway has started it, and its stream is stored.
fn record(status: &str) -> Value {
    json!([{
        "run_id": RUN,
        "status": status,
        "created_at": "2026-11-22T08:00:00Z",
        "metadata": {"threadway_run_id": "r1", "threadway_start": "s1"},
        "kwargs": {"resumable": true, "stream_mode": ["values", "messages-tuple"]},
    }])
}

fn counted(messages: &[&str], count: u64) -> Value {
    let mut values = values(messages);
    values["count"] = json!(count);
    values
}

/// The thread's state with these values, made by the run.
fn state_of(values: &Value) -> Value {
    json!({
        "values": values, "next": [], "tasks": [],
        "metadata": {"run_id": RUN}, "checkpoint": {"checkpoint_id": "C"},
    })
}

/// A part with its id in the server's store.
fn kept(id: &str, part: &str) -> String {
    format!("id: {id}\r\n{part}")
}

fn metadata(id: &str) -> String {
    kept(id, &part("metadata", &json!({"run_id": RUN, "attempt": 1})))
}

fn state(id: &str, values: &Value) -> String {
    kept(id, &part("values", values))
}

/// A token of `m1`.
fn says(id: &str, text: &str) -> String {
    kept(id, &token("m1", text))
}

fn thinks(id: &str, text: &str) -> String {
    let content = json!([{"type": "thinking", "thinking": text, "index": 0}]);
    let chunk = json!({"type": "AIMessageChunk", "id": "m1", "content": content});
    kept(id, &part("messages", &json!([chunk, {}])))
}

/// The parts of a run with reasoning and text, in the middle of the text. Two of the parts share a
/// millisecond.
fn told_so_far() -> Vec<String> {
    vec![
        metadata("1000-0"),
        state("1001-0", &counted(&["hi"], 1)),
        thinks("1002-0", "hm"),
        thinks("1002-0", "m"),
        says("1003-0", "one "),
        says("1003-0", "two "),
    ]
}

/// The remaining parts of the run.
fn told_later() -> Vec<String> {
    vec![says("1004-0", "three"), state("1005-0", &counted(&["hi", "one two three"], 2))]
}

fn came_to() -> Value {
    state_of(&counted(&["hi", "one two three"], 2))
}

// === the clients' events ===

/// The prefix of the ids of events that cannot be resumed. A client that reconnects with such an id
/// starts over. Each of these ids is given once.
const VOID: &str = "0.";

/// Whether an event has an id that cannot be resumed.
fn is_void(frame: &str) -> bool {
    id(frame).is_some_and(|id| id.starts_with(VOID) && id.parse::<EventId>().is_err())
}

/// The frames of a stream in a form that can be compared with another stream's: ids that cannot be
/// resumed are given once, so they are replaced.
fn comparable(frames: &[String]) -> Vec<String> {
    let of = |frame: &String| match id(frame) {
        Some(id) if is_void(frame) => frame.replace(id, VOID),
        _ => frame.clone(),
    };
    frames.iter().map(of).collect()
}

impl Response {
    fn status(&self) -> &str {
        self.head.lines().next().unwrap().strip_prefix("HTTP/1.1 ").unwrap()
    }
}

impl Gateway {
    /// Starts a run; the client has read nothing of the response's body.
    async fn posted(&self) -> (Response, Exchange) {
        let input = input(&["hi"]);
        tokio::join!(self.post(&input), async {
            self.state(None).await;
            self.stream().await
        })
    }

    /// Answers the gateway's requests for a run that is running.
    async fn runs_now(&self) {
        self.runs("limit=100", record("running")).await;
    }

    /// Answers the gateway's requests for a run that has ended, with the thread's state.
    async fn is_over(&self) {
        self.no_live_runs(record("success")).await;
        self.state(Some(came_to())).await;
    }

    /// Ends the stream and the run.
    async fn ends(&self, run: Exchange) {
        run.end().await;
        self.status("success").await;
        self.state(Some(came_to())).await;
    }
}

/// Requests the thread's events after an id, as an `EventSource` does when it reconnects.
async fn behind(address: SocketAddr, id: &str) -> Response {
    let header = format!("last-event-id: {id}\r\n");
    Response::to(address, events_request(&header, "").as_bytes()).await
}

/// Requests them as a page does that was reloaded.
async fn behind_query(address: SocketAddr, id: &str) -> Response {
    let query = format!("?last_event_id={id}");
    Response::to(address, events_request("", &query).as_bytes()).await
}

/// Requests them as a client of the AG-UI library does.
async fn connected_behind(address: SocketAddr, id: &str) -> Response {
    let mut input = input(&[]);
    input["forwardedProps"] = json!({"lastEventId": id});
    Response::to(address, connect_request("", &input).as_bytes()).await
}

/// The id of the first event of an uncut run, and the frames after it.
async fn uncut() -> (String, Vec<String>) {
    let gateway = Gateway::start().await;
    let (mut response, mut run) = gateway.posted().await;
    let started = response.frames(1).await.remove(0);
    let mut viewer = behind(gateway.address, id(&started).unwrap()).await;
    run.send([told_so_far().concat(), told_later().concat()].concat()).await;
    gateway.ends(run).await;
    let told = viewer.rest_of_frames().await;
    let mut all = vec![started.clone()];
    all.extend(told.iter().cloned());
    judge::closed(&Schema::load(), &all.iter().map(|f| event(f)).collect::<Vec<_>>()).unwrap();
    (id(&started).unwrap().to_owned(), told)
}

/// How many events of an uncut run, after the first, precede the remaining parts.
fn so_far(told: &[String]) -> usize {
    told.iter().position(|frame| frame.contains("\"two \"")).unwrap() + 1
}

/// A gateway whose client has received the first half of the run.
async fn told_half(gateway: &Gateway, told: &[String]) -> (Response, Exchange) {
    let (mut response, mut run) = gateway.posted().await;
    let started = response.frames(1).await.remove(0);
    let mut viewer = behind(gateway.address, id(&started).unwrap()).await;
    run.send(told_so_far().concat()).await;
    assert_eq!(viewer.frames(so_far(told)).await, told[..so_far(told)]);
    // The client that started the run disconnects, and one stays.
    drop(response);
    (viewer, run)
}

/// Checks that a client starts over, and that its id is reset.
async fn starts_over(response: &mut Response) {
    assert_eq!(response.status(), "200 OK");
    let first = response.frames(1).await.remove(0);
    assert!(kind(&first) == "RUN_STARTED" && is_void(&first), "{first}");
}

// === event ids ===

#[tokio::test]
async fn each_event_has_an_id_that_says_what_it_was_made_of() {
    let gateway = Gateway::start().await;
    let (mut response, mut run) = gateway.posted().await;
    run.send([told_so_far().concat(), told_later().concat()].concat()).await;
    // The message is unfinished when the run ends.
    run.send(kept("1006-0", &token("m2", "never done"))).await;
    gateway.ends(run).await;
    let frames = response.rest_of_frames().await;
    let id = |frame: &String| match id(frame) {
        Some(_) if is_void(frame) => VOID.to_owned(),
        id => spelt(id.unwrap()).replace(RUN, "R"),
    };
    let told: Vec<_> = frames.iter().map(|frame| (kind(frame), id(frame))).collect();
    let told: Vec<_> = told.iter().map(|(kind, id)| (&**kind, &**id)).collect();
    // If these ids change, a client that resumes at another version of the gateway misses events or
    // gets them twice. Ids must then begin with another version number.
    let expected = [
        ("RUN_STARTED", "R.1.start.0.0000"),
        ("STATE_SNAPSHOT", "R.1.1001-0.0.37b6"),
        // One run event, and two events of the client's.
        ("REASONING_START", "R.1.1002-0.0-1.b840"),
        ("REASONING_MESSAGE_START", "R.1.1002-0.0.b840"),
        ("REASONING_MESSAGE_CONTENT", "R.1.1002-0.1.b840"),
        // Another part of the same millisecond.
        ("REASONING_MESSAGE_CONTENT", "R.1.1002-0.2.e77f"),
        ("REASONING_MESSAGE_END", "R.1.1003-0.0-1.582c"),
        ("REASONING_END", "R.1.1003-0.0.582c"),
        ("TEXT_MESSAGE_START", "R.1.1003-0.1.582c"),
        ("TEXT_MESSAGE_CONTENT", "R.1.1003-0.2.582c"),
        ("TEXT_MESSAGE_CONTENT", "R.1.1003-0.3.130f"),
        ("TEXT_MESSAGE_CONTENT", "R.1.1004-0.0.f394"),
        ("STATE_SNAPSHOT", "R.1.1005-0.0.0176"),
        ("TEXT_MESSAGE_END", "R.1.1005-0.1.0176"),
        ("TEXT_MESSAGE_START", "R.1.1006-0.0.4269"),
        ("TEXT_MESSAGE_CONTENT", "R.1.1006-0.1.4269"),
        ("TEXT_MESSAGE_END", "R.1.close.0.4269"),
        ("MESSAGES_SNAPSHOT", VOID),
        // A digest of what the client holds now.
        ("RUN_FINISHED", "R.1.end.1067850445.b33d"),
    ];
    assert_eq!(told, expected, "{told:#?}");
}

#[tokio::test]
async fn behind_each_event_of_a_live_run_comes_what_is_behind_it() {
    let (_, told) = uncut().await;
    let gateway = Gateway::start().await;
    let (viewer, mut run) = told_half(&gateway, &told).await;
    let half = so_far(&told);
    let mut returned = Vec::new();
    for (at, frame) in told[..half].iter().enumerate() {
        let id = id(frame).unwrap();
        for mut response in [
            behind(gateway.address, id).await,
            behind_query(gateway.address, id).await,
            connected_behind(gateway.address, id).await,
        ] {
            assert_eq!(response.status(), "200 OK");
            assert_eq!(response.frames(half - at - 1).await, told[at + 1..half], "{id}");
            returned.push(response);
        }
    }
    // The log had all of it.
    gateway.upstream.is_untouched().await;
    run.send(told_later().concat()).await;
    gateway.ends(run).await;
    returned.push(viewer);
    for mut response in returned {
        assert_eq!(response.rest_of_frames().await, told[half..]);
    }
}

#[tokio::test]
async fn the_header_is_worth_more_than_the_query() {
    let (started, told) = uncut().await;
    let gateway = Gateway::start().await;
    let (viewer, _run) = told_half(&gateway, &told).await;
    let half = so_far(&told);
    let header = format!("last-event-id: {}\r\n", id(&told[half - 2]).unwrap());
    let query = format!("?last_event_id={started}");
    let request = events_request(&header, &query);
    let mut response = Response::to(gateway.address, request.as_bytes()).await;
    assert_eq!(response.frames(1).await, told[half - 1..half]);
    drop(viewer);
}

#[tokio::test]
async fn behind_each_event_of_a_run_that_is_over_its_replay_goes_on() {
    let (started, told) = uncut().await;
    let gateway = Gateway::start().await;
    let (replica, _stop, _serving) = gateway.replica().await;
    let ids = [&*started].into_iter().chain(told.iter().map(|frame| id(frame).unwrap()));
    for (at, id) in ids.enumerate().take(told.len()) {
        let script = async {
            gateway.is_over().await;
            let mut join = gateway.joined_behind("-1").await;
            join.send([told_so_far().concat(), told_later().concat()].concat()).await;
            gateway.ends(join).await;
        };
        let (mut response, ()) = tokio::join!(behind(replica, id), script);
        assert_eq!(response.rest_of_frames().await, told[at..], "{id}");
    }
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn two_who_come_back_to_a_run_that_is_over_at_the_same_time_both_go_on() {
    let (_, told) = uncut().await;
    let gateway = Gateway::start().await;
    let (replica, _stop, _serving) = gateway.replica().await;
    let whole = record("success");
    // A list of runs does not say how they were requested.
    let mut listed = whole.clone();
    listed[0].as_object_mut().unwrap().remove("kwargs");
    let script = async {
        let (list, run) = (format!("runs?limit=100{COLUMNS}"), format!("runs/{RUN}"));
        let expect = async |what: &str| {
            gateway.upstream.expect(&format!("GET /threads/{THREAD}/{what}")).await
        };
        let [first, second] = [expect(&list).await, expect(&list).await];
        first.json(200, &listed.to_string()).await;
        expect("state").await.json(200, &came_to().to_string()).await;
        expect(&run).await.json(200, &whole[0].to_string()).await;
        let mut join = gateway.joined_behind("-1").await;
        // The other gateway finds the run in progress, and resumes after the event as well.
        second.json(200, &listed.to_string()).await;
        expect("state").await.json(200, &came_to().to_string()).await;
        expect(&run).await.json(200, &whole[0].to_string()).await;
        join.send([told_so_far().concat(), told_later().concat()].concat()).await;
        gateway.ends(join).await;
    };
    let resumed = async |at: usize| {
        let mut response = behind(replica, id(&told[at]).unwrap()).await;
        assert_eq!(response.rest_of_frames().await, told[at + 1..]);
    };
    tokio::join!(resumed(1), resumed(4), script);
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn behind_each_event_of_a_run_that_failed_its_replay_and_its_thread_go_on() {
    let gateway = Gateway::start().await;
    let failed = || json!({"error": "ValueError", "message": "boom"});
    let thread = || state_of(&counted(&["hi"], 1));
    let (mut response, mut run) = gateway.posted().await;
    let started = response.frames(1).await.remove(0);
    let mut viewer = behind(gateway.address, id(&started).unwrap()).await;
    run.send(told_so_far().concat() + &part("error", &failed())).await;
    run.end().await;
    gateway.status("error").await;
    gateway.state(Some(thread())).await;
    let told = viewer.rest_of_frames().await;
    let last = event(told.last().unwrap());
    assert_eq!((&last["message"], &last["code"]), (&json!("boom"), &json!("ValueError")));

    let ids: Vec<_> = told.iter().map(|frame| id(frame)).collect();
    let (end, ids) = ids.split_last().unwrap();
    assert!(spelt(end.unwrap()).contains(".end."));
    assert!(
        ids.iter().flatten().any(|id| !id.starts_with(VOID) && spelt(id).contains(".close.")),
        "{ids:?}"
    );
    for (at, last) in ids.iter().enumerate() {
        let Some(last) = last.filter(|last| !last.starts_with(VOID)) else { continue };
        let script = async {
            gateway.no_live_runs(record("error")).await;
            gateway.state(Some(thread())).await;
            // The Python server does not store how the run failed.
            let mut join = gateway.joined_behind("-1").await;
            join.send(told_so_far().concat()).await;
            join.end().await;
            gateway.status("error").await;
            let get = gateway.upstream.expect(&format!("GET /threads/{THREAD}")).await;
            get.json(200, &json!({"error": failed()}).to_string()).await;
            gateway.state(Some(thread())).await;
        };
        let (mut response, ()) = tokio::join!(behind(gateway.address, last), script);
        let rest = response.rest_of_frames().await;
        assert_eq!(comparable(&rest), comparable(&told[at + 1..]), "{last}");
    }
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn behind_each_event_of_a_run_that_another_replica_reads_comes_what_is_behind_it() {
    let (started, told) = uncut().await;
    let gateway = Gateway::start().await;
    let (mut viewer, mut run) = told_half(&gateway, &told).await;
    let half = so_far(&told);
    let ids = [&*started].into_iter().chain(told[..half].iter().map(|frame| id(frame).unwrap()));
    let mut elsewhere = Vec::new();
    for (at, id) in ids.enumerate() {
        // Each request goes to a gateway that has just started.
        let (address, stop, serving) = gateway.replica().await;
        let script = async {
            gateway.runs_now().await;
            let mut join = gateway.joined_behind("-1").await;
            join.send(told_so_far().concat()).await;
            join
        };
        let (mut response, join) = tokio::join!(behind(address, id), script);
        assert_eq!(response.frames(half - at).await, told[at..half], "{id}");
        elsewhere.push((response, join, stop, serving));
    }
    run.send(told_later().concat()).await;
    gateway.ends(run).await;
    assert_eq!(viewer.rest_of_frames().await, told[half..]);
    for (mut response, mut join, _stop, _serving) in elsewhere {
        join.send(told_later().concat()).await;
        gateway.ends(join).await;
        assert_eq!(response.rest_of_frames().await, told[half..]);
    }
}

// === ids that cannot be resumed ===

#[tokio::test]
async fn an_id_that_is_not_of_this_run_starts_over_and_is_replaced() {
    let (_, told) = uncut().await;
    let gateway = Gateway::start().await;
    let (_viewer, mut run) = told_half(&gateway, &told).await;
    let known = id(&told[2]).unwrap();
    let spelt = spelt(known);
    let (place, check) = spelt.rsplit_once('.').unwrap();
    let another_check = u16::from_str_radix(check, 16).unwrap() ^ 1;
    let mut returned = Vec::new();
    for (last, is_of_the_run) in [
        ("garbage".to_owned(), false),
        ("0.00c0ffee.1".to_owned(), false),
        ("1795305649395-0".to_owned(), false),
        // An id of another version of the gateway.
        (known.replacen('2', "3", 1), false),
        // An id of an earlier run.
        (packed(&spelt.replace(RUN, "01a200b7-5ee6-7592-b13b-000000000000")), false),
        // An id of an event that had another content, or never existed.
        (packed(&format!("{place}.{another_check:04x}")), true),
        (packed(&spelt.replace(".1001-0.", ".1000-9.")), true),
        // An id of an attempt that this gateway does not know.
        (packed(&spelt.replacen(&format!("{RUN}.1."), &format!("{RUN}.2."), 1)), true),
    ] {
        let ask = async {
            let mut connected = connected_behind(gateway.address, &last).await;
            starts_over(&mut connected).await;
            let mut response = behind(gateway.address, &last).await;
            starts_over(&mut response).await;
            response
        };
        let script = async {
            if !is_of_the_run {
                gateway.runs_now().await;
                gateway.runs_now().await;
            }
        };
        let (mut response, ()) = tokio::join!(ask, script);
        // The first event is a snapshot, after which no client can resume.
        let mut frame = response.frames(1).await.remove(0);
        while !kind(&frame).ends_with("_START") {
            assert!(kind(&frame).ends_with("_SNAPSHOT"), "{frame}");
            assert!(is_void(&frame), "{frame}");
            frame = response.frames(1).await.remove(0);
        }
        assert!(is_void(&frame), "{frame}");
        returned.push(response);
    }
    gateway.upstream.is_untouched().await;
    // The remaining events are the same for all, and so are their ids.
    run.send(told_later().concat()).await;
    gateway.ends(run).await;
    for mut response in returned {
        assert_eq!(response.rest_of_frames().await, told[so_far(&told)..]);
    }
}

#[tokio::test]
async fn an_id_of_what_is_no_longer_kept_starts_over() {
    let (_, told) = uncut().await;
    let gateway = Gateway::with(Limits { log_bytes: 4096, ..Limits::default() }).await;
    let (mut viewer, mut run) = told_half(&gateway, &told).await;
    for n in 0..50 {
        run.send(says(&format!("{}-0", 2000 + n), &"x".repeat(200))).await;
        let frame = viewer.frames(1).await.remove(0);
        assert_eq!(kind(&frame), "TEXT_MESSAGE_CONTENT");
    }
    let mut response = behind(gateway.address, id(&told[0]).unwrap()).await;
    starts_over(&mut response).await;
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn an_id_of_a_run_that_is_over_and_cannot_be_replayed_starts_over() {
    let (_, told) = uncut().await;
    let known = id(&told[2]).unwrap();
    let gateway = Gateway::start().await;
    let mut not_kept = record("success");
    not_kept[0]["kwargs"]["resumable"] = json!(false);
    let another = packed(&spelt(known).replace(RUN, "01a200b7-5ee6-7592-b13b-000000000000"));
    for (last, runs, is_replayed) in [
        (known, not_kept, false),
        // Another run has ended since.
        (&*another, record("success"), false),
        // The run is no longer kept.
        (known, record("success"), true),
    ] {
        let script = async {
            gateway.no_live_runs(runs).await;
            gateway.state(Some(came_to())).await;
            if is_replayed {
                let join = gateway.joined_behind("-1").await;
                gateway.ends(join).await;
            }
        };
        let ask = async {
            let mut response = behind(gateway.address, last).await;
            starts_over(&mut response).await;
            response.rest_of_frames().await
        };
        let (frames, ()) = tokio::join!(ask, script);
        let (end, snapshots) = frames.split_last().unwrap();
        assert!(snapshots.iter().all(|frame| is_void(frame)), "{frames:#?}");
        let whole = event(snapshots.last().unwrap());
        assert_eq!(whole["messages"][1]["content"], "one two three", "{frames:#?}");
        assert!(spelt(id(end).unwrap()).contains(".end."), "{end}");
        gateway.upstream.is_untouched().await;
    }
}

#[tokio::test]
async fn who_follows_the_thread_goes_on_with_its_run_too() {
    let (started, told) = uncut().await;
    let half = so_far(&told);
    let gateway = Gateway::start().await;
    let ask = async |last: &str| {
        let header = format!("last-event-id: {last}\r\n");
        let request = events_request(&header, "?follow=thread");
        Response::to(gateway.address, request.as_bytes()).await
    };
    let script = async {
        gateway.runs("limit=100", record("running")).await;
        let mut join = gateway.joined_behind("-1").await;
        join.send(told_so_far().concat()).await;
        join
    };
    let (mut first, mut join) = tokio::join!(ask(&started), script);
    assert_eq!(first.frames(half).await, told[..half]);
    let mut second = ask(id(&told[half - 2]).unwrap()).await;
    assert_eq!(second.frames(1).await, told[half - 1..half]);
    join.send(told_later().concat()).await;
    gateway.ends(join).await;
    for viewer in [&mut first, &mut second] {
        assert_eq!(viewer.frames(told.len() - half).await, told[half..]);
    }
}

#[tokio::test]
async fn behind_the_end_of_a_run_there_is_nothing_but_the_threads_future() {
    let (_, told) = uncut().await;
    let last = id(told.last().unwrap()).unwrap();
    assert!(spelt(last).contains(".end."), "{last}");
    let gateway = Gateway::start().await;
    for mut response in [
        behind(gateway.address, last).await,
        behind_query(gateway.address, last).await,
        connected_behind(gateway.address, last).await,
    ] {
        assert_eq!(response.status(), "204 No Content");
        assert!(!response.head.contains("content-type"), "{}", response.head);
        // The connection can serve the next request.
        response.again(b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n").await;
        assert_eq!(response.status(), "200 OK");
    }
    gateway.upstream.is_untouched().await;

    let request = events_request(&format!("last-event-id: {last}\r\n"), "?follow=thread");
    let script = async {
        gateway.runs("limit=100", record("success")).await;
        gateway.state(Some(came_to())).await;
    };
    let (mut response, ()) =
        tokio::join!(Response::to(gateway.address, request.as_bytes()), script);
    assert_eq!(response.status(), "200 OK");
    assert_eq!(response.frame().await, "retry: 3000\n\n");
    gateway.settled().await;
    let read = response.socket.try_read(&mut [0]);
    assert!(read.is_err() && response.decoded.is_empty() && response.raw.is_empty());
}

#[tokio::test]
async fn a_thread_at_rest_has_an_end_that_there_is_nothing_behind() {
    let gateway = Gateway::start().await;
    let script = async {
        gateway.no_live_runs(record("success")).await;
        gateway.state(Some(came_to())).await;
    };
    let (mut response, ()) = tokio::join!(gateway.events(""), script);
    let frames = response.rest_of_frames().await;
    let (last, others) = frames.split_last().unwrap();
    assert!(others.iter().all(|frame| is_void(frame)), "{frames:#?}");
    let response = behind(gateway.address, id(last).unwrap()).await;
    assert_eq!(response.status(), "204 No Content");
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn a_run_whose_parts_have_no_ids_replaces_that_of_its_beginning() {
    let gateway = Gateway::start().await;
    let (mut response, mut run) = gateway.posted().await;
    assert!(spelt(id(&response.frames(1).await[0]).unwrap()).contains(".start.0."));
    let bare = [part("values", &counted(&["hi"], 1)), token("m1", "one ")];
    run.send(bare.concat()).await;
    let frames = response.frames(3).await;
    assert!(frames.iter().all(|frame| is_void(frame)), "{frames:#?}");
    gateway.ends(run).await;
    let frames = response.rest_of_frames().await;
    let (last, closings) = frames.split_last().unwrap();
    assert!(closings.iter().all(|frame| is_void(frame)), "{closings:#?}");
    // A client that has the end needs nothing more.
    assert!(spelt(id(last).unwrap()).contains(".end."), "{last}");
}

#[tokio::test]
async fn a_run_whose_own_id_is_no_line_gives_its_events_none() {
    let gateway = Gateway::start().await;
    let input = input(&["hi"]);
    let script = async {
        gateway.state(None).await;
        let line = format!("POST /threads/{THREAD}/runs/stream");
        let mut post = gateway.upstream.expect(&line).await;
        post.begin("").await;
        let metadata = json!({"run_id": "a\nid: b", "attempt": 1});
        post.send(kept("1-0", &part("metadata", &metadata))).await;
        post
    };
    let (mut response, _run) = tokio::join!(gateway.post(&input), script);
    response.frame().await;
    let frame = response.whole_frame().await;
    assert!(kind(&frame) == "RUN_STARTED" && is_void(&frame), "{frame}");
    assert_eq!(frame.lines().filter(|line| line.starts_with("id: ")).count(), 1, "{frame}");
}

#[tokio::test]
async fn a_run_without_its_state_in_its_stream_has_no_ids() {
    let gateway = Gateway::start().await;
    let mut runs = record("running");
    runs[0]["kwargs"]["stream_mode"] = json!(["messages-tuple"]);
    let script = async {
        gateway.runs("limit=100", runs).await;
        let mut join = gateway.joined_behind("-1").await;
        gateway.state(Some(state_of(&counted(&["hi"], 1)))).await;
        join.send([metadata("1000-0"), says("1001-0", "one ")].concat()).await;
        join
    };
    let (mut response, join) = tokio::join!(gateway.events(""), script);
    let mut frames = response.frames(5).await;
    gateway.ends(join).await;
    frames.extend(response.rest_of_frames().await);
    let (_, others) = frames.split_last().unwrap();
    assert!(others.iter().all(|frame| is_void(frame)), "{frames:#?}");
}

// === a lost upstream ===

/// How a connection is lost.
#[derive(Clone, Copy, Debug)]
enum LossReason {
    InsideAFrame,
    BetweenFrames,
    InOrder,
    Reset,
    Silence,
}

/// Loses the connection, and waits for the pause before the next join.
async fn lost(gateway: &Gateway, clock: &HeldClock, mut run: Exchange, loss: LossReason) {
    match loss {
        LossReason::InsideAFrame => {
            run.send("event: messages\r\ndata: [{\"type\":").await;
            gateway.settled().await;
            run.cut();
        }
        LossReason::BetweenFrames => run.cut(),
        LossReason::InOrder => {
            run.end().await;
            for _ in 0..5 {
                gateway.status("running").await;
                gateway.settled().await;
                clock.advance(Duration::from_secs(1)).await;
            }
        }
        LossReason::Reset => run.reset(),
        LossReason::Silence => {
            clock.advance(SILENCE.saturating_sub(Duration::from_secs(1))).await;
            gateway.settled().await;
            gateway.upstream.is_untouched().await;
            clock.advance(Duration::from_secs(1)).await;
            run.closed().await;
        }
    }
    gateway.settled().await;
    clock.advance(NO_PAUSE).await;
}

#[tokio::test]
async fn whoever_watches_a_run_whose_upstream_is_lost_is_told_nothing_of_that() {
    let (_, told) = uncut().await;
    let half = so_far(&told);
    let clock = HeldClock::pause();
    for loss in [
        LossReason::InsideAFrame,
        LossReason::BetweenFrames,
        LossReason::InOrder,
        LossReason::Reset,
        LossReason::Silence,
    ] {
        let gateway = Gateway::start().await;
        let (mut viewer, run) = told_half(&gateway, &told).await;
        lost(&gateway, &clock, run, loss).await;
        // The join begins one below the last id, because several parts may share that id.
        let mut run = gateway.joined_behind("1002-0").await;
        run.send([told_so_far()[4..].concat(), told_later().concat()].concat()).await;
        gateway.ends(run).await;
        // A comment may be among the frames.
        assert_eq!(viewer.rest_of_frames().await, told[half..], "{loss:?}");
        gateway.upstream.is_untouched().await;
    }
}

#[tokio::test]
async fn of_a_run_that_has_only_begun_the_beginning_comes_again() {
    let (_, told) = uncut().await;
    let gateway = Gateway::start().await;
    let (mut response, mut run) = gateway.posted().await;
    let started = response.frames(1).await.remove(0);
    let mut viewer = behind(gateway.address, id(&started).unwrap()).await;
    run.send(&told_so_far()[0]).await;
    gateway.settled().await;
    run.cut();
    let mut run = gateway.joined_behind("-1").await;
    run.send([told_so_far().concat(), told_later().concat()].concat()).await;
    gateway.ends(run).await;
    // The attempt is the same.
    assert_eq!(viewer.rest_of_frames().await, told);
}

#[tokio::test]
async fn the_block_of_repeats_behind_a_rejoin_is_dropped() {
    let (_, told) = uncut().await;
    let half = so_far(&told);
    let gateway = Gateway::start().await;
    let (mut viewer, run) = told_half(&gateway, &told).await;
    run.cut();
    let mut run = gateway.joined_behind("1002-0").await;
    let later = told_later();
    let stored = [told_so_far()[4..].concat(), later.concat()].concat();
    run.send(stored + &told_so_far()[5] + &later.concat()).await;
    gateway.ends(run).await;
    assert_eq!(viewer.rest_of_frames().await, told[half..]);
}

#[tokio::test]
async fn a_server_without_signs_of_life_may_be_silent_for_thirty_seconds() {
    let gateway = Gateway::javascript().await;
    let (mut response, mut run) = gateway.posted().await;
    let clock = HeldClock::pause();
    run.send([metadata("0"), state("1", &counted(&["hi"], 1)), says("2", "one ")].concat()).await;
    response.frames(4).await;
    for _ in 0..2 {
        clock.advance(SILENCE_WITHOUT_SIGNS / 2).await;
        gateway.settled().await;
    }
    run.closed().await;
    gateway.settled().await;
    clock.advance(NO_PAUSE).await;
    let mut run = gateway.joined_behind("1").await;
    run.send([says("2", "one "), says("3", "two")].concat()).await;
    let frame = response.frames(1).await.remove(0);
    assert_eq!(event(&frame)["delta"], "two");
    assert!(spelt(id(&frame).unwrap()).contains(".1.3.0."), "{frame}");
}

#[tokio::test]
async fn a_server_that_is_away_is_asked_ever_less_often_and_given_up_after_a_minute() {
    let (_, told) = uncut().await;
    let gateway = Gateway::start().await;
    let (mut viewer, run) = told_half(&gateway, &told).await;
    let clock = HeldClock::pause();
    run.cut();
    let before = UPSTREAM_PATIENCE.saturating_sub(Duration::from_secs(1));
    let mut asked = gateway.refused_for(&clock, before).await;
    // The client gets only heartbeats.
    for _ in 0..3 {
        assert_eq!(viewer.whole_frame().await, ": keep-alive\n\n");
    }
    assert!(viewer.decoded.is_empty() && viewer.raw.is_empty());
    let read = viewer.socket.try_read(&mut [0]);
    assert_eq!(read.unwrap_err().kind(), ErrorKind::WouldBlock);
    asked.extend(gateway.refused_for(&clock, LONGEST_PAUSE + Duration::from_secs(2)).await);
    let joins = asked.iter().filter(|line| line.ends_with("/stream")).count();
    assert!((12..=32).contains(&joins), "{joins} attempts");
    // After several failed joins, each is followed by a request for the run's record.
    assert_eq!(asked.len(), 2 * joins - 4, "{asked:#?}");

    let frames = viewer.rest_of_frames().await;
    assert_eq!(kinds(&frames), ["TEXT_MESSAGE_END", "RUN_ERROR"]);
    assert_eq!(event(&frames[1])["code"], "upstream_unavailable");
    // The client can reconnect, but there is nothing that it could resume after.
    assert!(frames.iter().all(|frame| is_void(frame)), "{frames:#?}");
    gateway.upstream.is_untouched().await;

    // The server is reachable again.
    let half = so_far(&told);
    let script = async {
        gateway.runs_now().await;
        let mut join = gateway.joined_behind("-1").await;
        join.send([told_so_far().concat(), told_later().concat()].concat()).await;
        gateway.ends(join).await;
    };
    let last = id(&told[half - 1]).unwrap();
    let (mut response, ()) = tokio::join!(behind(gateway.address, last), script);
    assert_eq!(response.rest_of_frames().await, told[half..]);
}

#[tokio::test]
async fn a_join_that_is_not_answered_is_given_up_after_twenty_seconds() {
    let (_, told) = uncut().await;
    let half = so_far(&told);
    let gateway = Gateway::start().await;
    let (mut viewer, run) = told_half(&gateway, &told).await;
    let clock = HeldClock::pause();
    lost(&gateway, &clock, run, LossReason::BetweenFrames).await;
    let line = format!("GET /threads/{THREAD}/runs/{RUN}/stream");
    let unanswered = gateway.upstream.expect(&line).await;
    gateway.settled().await;
    clock.advance(JOIN_TIMEOUT).await;
    unanswered.closed().await;
    gateway.settled().await;
    clock.advance(LONGEST_PAUSE).await;
    let mut run = gateway.joined_behind("1002-0").await;
    run.send([told_so_far()[4..].concat(), told_later().concat()].concat()).await;
    gateway.ends(run).await;
    assert_eq!(viewer.rest_of_frames().await, told[half..]);
}

// === what a new connection finds ===

#[tokio::test]
async fn a_run_that_begins_again_keeps_what_was_committed_and_forgets_what_was_half_said() {
    let (_, told) = uncut().await;
    let gateway = Gateway::start().await;
    let (mut viewer, run) = told_half(&gateway, &told).await;
    run.cut();
    // The server was restarted, so its store is empty and its ids begin anew.
    let mut run = gateway.joined_behind("1002-0").await;
    let again = [metadata("9000-0"), state("9001-0", &counted(&["hi"], 1))];
    run.send(again.concat()).await;
    let begun_again = viewer.frames(2).await;
    assert_eq!(kinds(&begun_again), ["TEXT_MESSAGE_END", "MESSAGES_SNAPSHOT"]);
    let snapshot = event(&begun_again[1]);
    let messages = snapshot["messages"].as_array().unwrap();
    assert!(messages.iter().all(|message| message["id"] != "m1"), "{snapshot}");
    let spoken = kept("9002-0", &token("m2", "once more"));
    run.send(&spoken).await;
    let frames = viewer.frames(2).await;
    assert_eq!(kinds(&frames), ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"]);
    assert!(
        spelt(id(&frames[1]).unwrap()).starts_with(&format!("{RUN}.2.9002-0.1.")),
        "{frames:?}"
    );

    // A client that has part of the previous attempt resumes here, where the whole attempt is in
    // the log.
    let half = so_far(&told);
    let mut response = behind(gateway.address, id(&told[half - 2]).unwrap()).await;
    let way = [&told[half - 1..half], &*begun_again, &*frames].concat();
    assert_eq!(response.frames(way.len()).await, way);
    // On a replica that has not read the attempt, no id of it can be resumed. The replicas' joins
    // stay open: a join that is cut would be repeated.
    let mut joins = Vec::new();
    for last in [id(&told[half - 1]).unwrap(), id(&frames[0]).unwrap()] {
        let (replica, _stop, _serving) = gateway.replica().await;
        let script = async {
            gateway.runs_now().await;
            let mut join = gateway.joined_behind("-1").await;
            join.send(again.concat() + &spoken).await;
            join
        };
        let ask = async {
            let mut response = behind(replica, last).await;
            starts_over(&mut response).await;
        };
        let ((), join) = tokio::join!(ask, script);
        joins.push(join);
    }
}

#[tokio::test]
async fn ids_that_mean_something_else_now_are_of_another_attempt() {
    let clock = HeldClock::pause();
    // A part after the last id, and a part that is not after it.
    for again in [kept("3", &token("m2", "else")), metadata("0")] {
        let gateway = Gateway::javascript().await;
        let (mut response, mut run) = gateway.posted().await;
        let begins = [metadata("0"), state("1", &counted(&["hi"], 1))].concat();
        run.send(begins.clone() + &says("2", "one ") + &says("3", "two")).await;
        response.frames(5).await;
        lost(&gateway, &clock, run, LossReason::BetweenFrames).await;
        let mut run = gateway.joined_behind("2").await;
        run.send(again).await;
        gateway.settled().await;
        clock.advance(LONGEST_PAUSE).await;
        // The stream is read from its beginning.
        let mut run = gateway.joined_behind("-1").await;
        let said = kept("2", &token("m2", "something ")) + &kept("3", &token("m2", "else"));
        run.send(begins + &said).await;
        let frames = response.frames(5).await;
        let expected = [
            "TEXT_MESSAGE_END",
            "MESSAGES_SNAPSHOT",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_CONTENT",
        ];
        assert_eq!(kinds(&frames), expected, "{frames:#?}");
        assert_eq!(event(&frames[3])["delta"], "something ");
        assert!(
            spelt(id(&frames[4]).unwrap()).starts_with(&format!("{RUN}.2.3.0.")),
            "{frames:#?}"
        );
    }
}

#[tokio::test]
async fn where_something_may_be_missing_the_state_is_read_and_the_ids_end() {
    let (_, told) = uncut().await;
    let gateway = Gateway::start().await;
    let (mut viewer, run) = told_half(&gateway, &told).await;
    run.cut();
    let mut run = gateway.joined_behind("1002-0").await;
    // The last part is not repeated, so the server may have forgotten more.
    run.send(kept("3000-0", &token("m2", "and "))).await;
    gateway.state(Some(state_of(&counted(&["hi", "one two three"], 2)))).await;
    run.send(kept("3001-0", &token("m2", "so on"))).await;
    run.send(state("3002-0", &counted(&["hi", "one two three", "and so on"], 3))).await;
    run.end().await;
    gateway.status("success").await;
    let end = state_of(&counted(&["hi", "one two three", "and so on"], 3));
    gateway.state(Some(end)).await;
    let frames = viewer.rest_of_frames().await;
    let (last, others) = frames.split_last().unwrap();
    assert!(others.iter().all(|frame| is_void(frame)), "{frames:#?}");
    assert!(spelt(id(last).unwrap()).contains(".end."), "{last}");
    let shown = others.iter().rfind(|frame| kind(frame) == "MESSAGES_SNAPSHOT").unwrap();
    assert_eq!(event(shown)["messages"][1]["content"], "one two three", "{frames:#?}");
}

#[tokio::test]
async fn a_run_that_ended_meanwhile_is_told_by_its_record_and_its_state() {
    let (_, told) = uncut().await;
    let gateway = Gateway::start().await;
    let (mut viewer, run) = told_half(&gateway, &told).await;
    run.cut();
    // The server stores nothing of the stream any more.
    let join = gateway.joined_behind("1002-0").await;
    gateway.ends(join).await;
    let frames = viewer.rest_of_frames().await;
    let kinds = kinds(&frames);
    assert_eq!(kinds.last().unwrap(), "RUN_FINISHED", "{kinds:?}");
    let snapshot = frames.iter().rfind(|frame| kind(frame) == "MESSAGES_SNAPSHOT").unwrap();
    let messages = &event(snapshot)["messages"];
    let said = messages.as_array().unwrap().iter().find(|message| message["id"] == "m1").unwrap();
    assert_eq!(said["content"], "one two three");
    assert!(frames.iter().any(|frame| frame.contains(r#""count":2"#)), "{frames:#?}");
}

#[tokio::test]
async fn a_run_that_is_not_there_any_more_was_cancelled_unless_its_thread_is_gone_too() {
    let (_, told) = uncut().await;
    let python = json!({"error": "HTTPException", "message": "404: Run not found"});
    let of_another = json!({"error": "HTTPException", "message": "404: Thread not found"});
    let javascript = json!("Run not found");
    for missing in [python, of_another, javascript] {
        for thread in [Some(state_of(&counted(&["hi"], 7))), None] {
            let gateway = Gateway::start().await;
            let (mut viewer, run) = told_half(&gateway, &told).await;
            run.cut();
            let mut join = gateway.joined_behind("1002-0").await;
            join.send(part("error", &missing)).await;
            join.end().await;
            let get = gateway.upstream.expect(&format!("GET /threads/{THREAD}/runs/{RUN}")).await;
            get.json(404, r#"{"detail":"Not Found"}"#).await;
            gateway.state(thread.clone()).await;
            let frames = viewer.rest_of_frames().await;
            let last = event(frames.last().unwrap());
            if thread.is_some() {
                assert_eq!(last["outcome"], json!({"type": "cancelled"}), "{frames:#?}");
                // The unfinished text is not in the thread.
                let snapshot =
                    frames.iter().rfind(|frame| kind(frame) == "MESSAGES_SNAPSHOT").unwrap();
                assert!(!snapshot.contains("\"m1\""), "{snapshot}");
                assert!(frames.iter().any(|frame| frame.contains(r#""count":7"#)), "{frames:#?}");
            } else {
                assert_eq!(last["code"], "run_gone", "{frames:#?}");
            }
            gateway.upstream.is_untouched().await;
        }
    }
}

#[tokio::test]
async fn a_failure_that_was_told_counts_also_where_the_record_is_gone() {
    let (_, told) = uncut().await;
    for thread in [Some(state_of(&counted(&["hi"], 7))), None] {
        let gateway = Gateway::start().await;
        let (mut viewer, mut run) = told_half(&gateway, &told).await;
        run.send(part("error", &json!({"error": "ValueError", "message": "boom"}))).await;
        run.end().await;
        let get = gateway.upstream.expect(&format!("GET /threads/{THREAD}/runs/{RUN}")).await;
        get.json(404, r#"{"detail":"Not Found"}"#).await;
        gateway.state(thread).await;
        let frames = viewer.rest_of_frames().await;
        let last = event(frames.last().unwrap());
        assert_eq!((&last["message"], &last["code"]), (&json!("boom"), &json!("ValueError")));
    }
}

#[tokio::test]
async fn of_a_run_that_is_not_kept_what_was_missed_is_read() {
    let gateway = Gateway::start().await;
    let mut runs = record("running");
    runs[0]["kwargs"]["resumable"] = json!(false);
    let script = async {
        gateway.runs("limit=100", runs).await;
        let join = gateway.joined_behind("-1").await;
        gateway.state(Some(state_of(&counted(&["hi"], 1)))).await;
        join
    };
    let (mut response, mut join) = tokio::join!(gateway.events(""), script);
    response.frames(4).await;
    join.send(part("values", &counted(&["hi"], 1)) + &token("m1", "one ")).await;
    response.frames(2).await;
    join.cut();
    // The new parts are all that the server has of the stream.
    let mut join = gateway.joined_behind("-1").await;
    join.send(token("m1", "three")).await;
    gateway.state(Some(state_of(&counted(&["hi"], 2)))).await;
    join.send(part("values", &counted(&["hi", "one two three"], 2))).await;
    gateway.ends(join).await;
    let frames = response.rest_of_frames().await;
    // The unfinished text is dropped, and sent again as a whole.
    let expected = [
        "TEXT_MESSAGE_END",
        "STATE_SNAPSHOT",
        "MESSAGES_SNAPSHOT",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ];
    assert_eq!(kinds(&frames), expected, "{frames:#?}");
    assert!(!frames[2].contains("\"m1\""), "{}", frames[2]);
    assert_eq!(event(&frames[4])["delta"], "one two three");
    assert!(frames[..6].iter().all(|frame| is_void(frame)), "{frames:#?}");
}

#[tokio::test]
async fn a_failure_whose_state_stays_out_of_reach_leaves_a_way_back() {
    let (_, told) = uncut().await;
    let gateway = Gateway::start().await;
    let (mut viewer, mut run) = told_half(&gateway, &told).await;
    let clock = HeldClock::pause();
    run.send(part("error", &json!({"error": "ValueError", "message": "boom"}))).await;
    run.end().await;
    let asked = gateway.refused_for(&clock, UPSTREAM_PATIENCE + LONGEST_PAUSE * 2).await;
    // The gateway does not join the stream again.
    assert!(asked.iter().all(|line| !line.ends_with("/stream")), "{asked:#?}");
    let frames = viewer.rest_of_frames().await;
    let (last, closings) = frames.split_last().unwrap();
    assert_eq!(event(last)["code"], "upstream_unavailable");
    let message = event(last)["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("the run failed (ValueError: boom)"), "{message}");
    assert!(is_void(&closings[0]) && is_void(last), "{frames:#?}");
}

// === no viewers ===

#[tokio::test]
async fn who_comes_back_within_ten_seconds_is_served_from_the_log() {
    let (_, told) = uncut().await;
    let half = so_far(&told);
    let gateway = Gateway::start().await;
    let (viewer, mut run) = told_half(&gateway, &told).await;
    let clock = HeldClock::pause();
    drop(viewer);
    gateway.watched_by(0).await;
    run.send(&told_later()[0]).await;
    clock.advance(LINGER.saturating_sub(Duration::from_secs(1))).await;
    gateway.settled().await;
    let mut response = behind(gateway.address, id(&told[half - 1]).unwrap()).await;
    assert_eq!(response.frames(1).await, told[half..=half]);
    // The run is kept while it has a viewer.
    clock.advance(LINGER / 2).await;
    gateway.settled().await;
    run.send(&told_later()[1]).await;
    gateway.upstream.is_untouched().await;
    // Without a viewer, the gateway stops reading.
    drop(response);
    gateway.watched_by(0).await;
    clock.advance(LINGER.saturating_sub(Duration::from_secs(1))).await;
    gateway.settled().await;
    clock.advance(Duration::from_secs(1)).await;
    run.closed().await;
    gateway.upstream.is_untouched().await;
}

// === a client that reconnects at a bad time ===

#[tokio::test]
async fn who_comes_back_while_the_upstream_is_away_is_served_from_the_log() {
    let (_, told) = uncut().await;
    let half = so_far(&told);
    let gateway = Gateway::start().await;
    let (mut viewer, run) = told_half(&gateway, &told).await;
    let clock = HeldClock::pause();
    run.cut();
    gateway.refused_for(&clock, UPSTREAM_PATIENCE / 2).await;
    let mut response = behind(gateway.address, id(&told[1]).unwrap()).await;
    assert_eq!(response.frames(half - 2).await, told[2..half]);
    clock.advance(LONGEST_PAUSE).await;
    let mut run = gateway.joined_behind("1002-0").await;
    run.send([told_so_far()[4..].concat(), told_later().concat()].concat()).await;
    gateway.ends(run).await;
    for viewer in [&mut viewer, &mut response] {
        assert_eq!(viewer.rest_of_frames().await, told[half..]);
    }
}

#[tokio::test]
async fn who_comes_back_and_cannot_be_told_anything_yet_is_to_come_again() {
    let gateway = Gateway::start().await;
    for request in
        [events_request("last-event-id: 0\r\n", ""), events_request("", "?last_event_id=x")]
    {
        let ask = Response::to(gateway.address, request.as_bytes());
        let refuse = async { gateway.upstream.next().await.answer(503, "text/plain", "no").await };
        let (mut response, ()) = tokio::join!(ask, refuse);
        // An `EventSource` that is refused never reconnects.
        assert!(response.head.starts_with("HTTP/1.1 200 "), "{}", response.head);
        assert_eq!(response.body().await, "retry: 3000\n\n");
    }
    let refuse = async { gateway.upstream.next().await.answer(503, "text/plain", "no").await };
    let (response, ()) = tokio::join!(gateway.events(""), refuse);
    assert!(response.head.starts_with("HTTP/1.1 502 "), "{}", response.head);
}

#[tokio::test]
async fn what_a_gateway_breaks_off_that_goes_down_another_goes_on_with() {
    let (_, told) = uncut().await;
    let half = so_far(&told);
    let gateway = Gateway::start().await;
    let (mut posted, mut run) = gateway.posted().await;
    let started = posted.frames(1).await.remove(0);
    let mut viewer = behind(gateway.address, id(&started).unwrap()).await;
    run.send(told_so_far().concat()).await;
    assert_eq!(viewer.frames(half).await, told[..half]);
    gateway.stop.cancel();
    assert_eq!(viewer.rest_of_frames().await, [] as [String; 0]);
    // To the client of a POST, a stream that just ends would be a success.
    let frames = posted.rest_of_frames().await;
    let last = frames.last().unwrap();
    assert_eq!(event(last)["code"], "gateway_shutdown");
    assert!(is_void(last), "{last}");
    run.closed().await;

    let (replica, _stop, _serving) = gateway.replica().await;
    let script = async {
        gateway.runs_now().await;
        let mut join = gateway.joined_behind("-1").await;
        join.send([told_so_far().concat(), told_later().concat()].concat()).await;
        gateway.ends(join).await;
    };
    let last = id(&told[half - 1]).unwrap();
    let (mut response, ()) = tokio::join!(behind(replica, last), script);
    assert_eq!(response.rest_of_frames().await, told[half..]);
}

#[tokio::test]
async fn who_comes_back_to_a_run_that_still_waits_for_its_turn_waits_too() {
    let (started, told) = uncut().await;
    let gateway = Gateway::start().await;
    let script = async {
        gateway.runs("limit=100", record("pending")).await;
        gateway.state(None).await;
        let mut join = gateway.joined_behind("-1").await;
        join.send([told_so_far().concat(), told_later().concat()].concat()).await;
        gateway.ends(join).await;
    };
    let (mut response, ()) = tokio::join!(behind(gateway.address, &started), script);
    assert_eq!(response.rest_of_frames().await, told);
}
