//! Which credentials are sent upstream with which request. No caller gets a run that LangGraph has
//! not just shown to that very caller: neither from a log nor through a watcher that others have
//! started.

use std::time::Duration;

use crate::support::clock::HeldClock;
use crate::support::gateway::{
    Gateway, RUN, Response, THREAD, agents, events_request, input, part, refusal, refused,
    run_request, token, values,
};
use crate::support::process::{File, Process};
use crate::support::upstream::{Exchange, STRANGER, Upstream};
use serde_json::{Value, json};
use threadway::runs::OwnerPolicy;
use threadway::server::{ForwardedHeaders, Limits, Settings};
use threadway::upstream::OnThreadNotFound;
use tokio::time::Instant;

const NOT_SHOWN: &str = "LangGraph has no such thread, or does not show it with these credentials";

/// How often the gateway reads a followed thread.
const INTERVAL: Duration = Duration::from_secs(2);

fn key(key: &str) -> String {
    format!("x-api-key: {key}\r\n")
}

fn kept(id: &str, part: &str) -> String {
    format!("id: {id}\r\n{part}")
}

fn record() -> Value {
    json!([{
        "run_id": RUN, "status": "running", "metadata": {"threadway_run_id": "r1", "threadway_start": "s1"},
        "kwargs": {"resumable": true, "stream_mode": ["values", "messages-tuple"]},
    }])
}

/// A run of Alice's in the middle of a message, and the id of its last event.
async fn half_told(gateway: &Gateway) -> (Response, Exchange, String) {
    let (mut response, mut run) = gateway.run().await;
    opens(&mut run, &kept("3-0", &token("m1", "one"))).await;
    loop {
        let frame = response.whole_frame().await;
        if frame.contains("one") {
            let id = frame.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
            return (response, run, id.to_owned());
        }
    }
}

/// Connects a caller to the thread.
async fn events(gateway: &Gateway, caller: &str, query: &str) -> Response {
    Response::to(gateway.address, events_request(&key(caller), query).as_bytes()).await
}

/// Sends the beginning of a run's stream, and more.
async fn opens(run: &mut Exchange, more: &str) {
    let metadata = part("metadata", &json!({"run_id": RUN, "attempt": 1}));
    let state = part("values", &values(&["hi"]));
    run.send(kept("1-0", &metadata) + &kept("2-0", &state) + more).await;
}

/// The next join of the run, with the key of a caller.
async fn joins(gateway: &Gateway, caller: Option<&str>) -> Exchange {
    let line = format!("GET /threads/{THREAD}/runs/{RUN}/stream");
    let mut join = gateway.upstream.expect(&line).await;
    assert_eq!(join.key(), caller);
    join.begin("").await;
    join
}

/// Sends the last token again, and the next one.
async fn goes_on(join: &mut Exchange) {
    join.send(kept("3-0", &token("m1", "one")) + &kept("4-0", &token("m1", " more"))).await;
}

/// Answers a list of runs, which a caller asks for, with the run.
async fn lists_run(gateway: &Gateway, caller: &str) {
    let list = gateway.upstream.next().await;
    assert_eq!(list.key(), Some(caller));
    list.json(200, &record().to_string()).await;
}

fn unknown_thread() -> (String, String) {
    refusal("404 Not Found", "unknown_thread", NOT_SHOWN)
}

#[tokio::test]
async fn log_is_not_shown_to_a_caller_who_may_not_see_the_thread() {
    let gateway = Gateway::start().await;
    let (_alice, _run, id) = half_told(&gateway).await;
    let behind = format!("?last_event_id={id}");
    for query in [&*behind, "?follow=thread", &format!("{behind}&follow=thread")] {
        let mut response = events(&gateway, STRANGER, query).await;
        assert_eq!(refused(&mut response).await, unknown_thread(), "{query}");
    }
    gateway.upstream.is_untouched().await;
    // A caller to whom LangGraph shows the thread resumes, without a further request.
    let mut bob = events(&gateway, "bob", &behind).await;
    assert!(bob.head.starts_with("HTTP/1.1 200"), "{}", bob.head);
    assert_eq!(bob.frame().await, "retry: 3000\n\n");
}

#[tokio::test]
async fn run_end_id_says_nothing_of_the_run_to_others() {
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
    let mut stranger = events(&gateway, STRANGER, &query).await;
    assert_eq!(refused(&mut stranger).await, unknown_thread());
    let shown = events(&gateway, "bob", &query).await;
    assert!(shown.head.starts_with("HTTP/1.1 204"), "{}", shown.head);
}

#[tokio::test]
async fn watcher_of_others_is_not_shared_with_a_caller_who_may_not_see_the_thread() {
    let gateway = Gateway::start().await;
    let script = async {
        lists_run(&gateway, "alice").await;
        gateway.joined_behind("-1").await
    };
    let (mut followed, mut join) =
        tokio::join!(events(&gateway, "alice", "?follow=thread"), script);
    assert_eq!(join.key(), Some("alice"));
    opens(&mut join, "").await;
    assert_eq!(followed.next(1).await[0]["type"], "RUN_STARTED");
    // The gateway checks Bob with a request of his own. Then he gets what Alice's watcher reads.
    let mut bob = events(&gateway, "bob", "?follow=thread").await;
    assert_eq!(bob.next(1).await[0]["type"], "RUN_STARTED");
    let mut stranger = events(&gateway, STRANGER, "?follow=thread").await;
    assert_eq!(refused(&mut stranger).await, unknown_thread());
}

/// A thread that Alice and then Bob follow, while the clock does not advance. Both have received
/// the idle thread. From now on the gateway reads the thread with Bob's credentials.
async fn followed_by_both(forward: ForwardedHeaders) -> (Gateway, Response, Response) {
    let gateway = Gateway::javascript().await;
    let agents = agents(&[("default", &gateway.upstream.url())], &[]);
    gateway.server.reload(agents, Settings { forward, ..Settings::default() });
    let alice = follows(&gateway, "alice").await;
    gateway.settled().await;
    let bob = follows(&gateway, "bob").await;
    gateway.settled().await;
    (gateway, alice, bob)
}

/// A caller who follows the thread, and has received its state.
async fn follows(gateway: &Gateway, caller: &str) -> Response {
    let asked = events(gateway, caller, "?follow=thread");
    let (mut follower, ()) = tokio::join!(asked, at_rest(gateway, caller));
    assert_eq!(follower.next(1).await[0]["type"], "RUN_STARTED");
    follower
}

/// Answers one read of a thread that has only its state.
async fn at_rest(gateway: &Gateway, by: &str) {
    let runs = gateway.upstream.next().await;
    assert_eq!((runs.key(), runs.line.contains("/runs?")), (Some(by), true), "{}", runs.line);
    runs.json(200, "[]").await;
    let state = gateway.upstream.next().await;
    assert_eq!((state.key(), state.line.ends_with("/state")), (Some(by), true), "{}", state.line);
    let checkpoint = json!({"checkpoint_id": "C1"});
    let body = json!({"values": values(&["hi"]), "next": [], "checkpoint": checkpoint});
    state.json(200, &body.to_string()).await;
}

/// Lets the gateway read the thread, find a run and join it.
async fn begins(gateway: &Gateway, clock: &HeldClock) -> Exchange {
    clock.advance(INTERVAL).await;
    gateway.upstream.next().await.json(200, &record().to_string()).await;
    let mut run = gateway.joined_behind("-1").await;
    opens(&mut run, "").await;
    run
}

/// Checks that the stream ends, and that it has no event of a run.
async fn is_told_of_no_run(response: &mut Response) {
    let rest = response.rest().await;
    assert!(rest.iter().all(|event| event["runId"] != "r1"), "{rest:?}");
}

#[tokio::test]
async fn follower_who_may_no_longer_see_the_thread_gets_no_later_run() {
    let clock = HeldClock::pause();
    let mut as_empty = ForwardedHeaders::default();
    as_empty.set_unknown(OnThreadNotFound::Empty);
    let refused = || ForwardedHeaders::default();
    for (forward, status) in [(refused(), 404), (refused(), 403), (refused(), 401), (as_empty, 404)]
    {
        let (gateway, mut alice, mut bob) = followed_by_both(forward).await;
        gateway.upstream.shows("alice", status);
        let _run = begins(&gateway, &clock).await;
        assert_eq!(bob.next(5).await[4]["runId"], "r1", "{status}");
        is_told_of_no_run(&mut alice).await;
    }
}

#[tokio::test]
async fn follower_gets_a_run_late_if_its_right_to_see_it_cannot_be_checked() {
    let clock = HeldClock::pause();
    let (gateway, mut alice, mut bob) = followed_by_both(ForwardedHeaders::default()).await;
    gateway.upstream.shows("alice", 503);
    let _run = begins(&gateway, &clock).await;
    assert_eq!(bob.next(5).await[4]["runId"], "r1");
    gateway.settled().await;
    assert_eq!(alice.next(4).await[3]["type"], "RUN_FINISHED");
    gateway.upstream.shows("alice", 200);
    clock.advance(INTERVAL).await;
    assert_eq!(alice.next(1).await[0]["runId"], "r1");
}

#[tokio::test]
async fn follower_stream_ends_if_all_credentials_are_refused_and_the_next_begins_anew() {
    let clock = HeldClock::pause();
    for status in [401, 403, 404] {
        let (gateway, mut alice, mut bob) = followed_by_both(ForwardedHeaders::default()).await;
        clock.advance(INTERVAL).await;
        for follower in ["bob", "alice"] {
            let look = gateway.upstream.next().await;
            assert_eq!(look.key(), Some(follower));
            look.json(status, "{}").await;
        }
        for follower in [&mut alice, &mut bob] {
            let told = follower.rest().await;
            assert_eq!(told.last().unwrap()["type"], "RUN_FINISHED", "{status}");
        }
        gateway.settled().await;
        clock.advance(INTERVAL).await;
        gateway.settled().await;
        gateway.upstream.is_untouched().await;
        follows(&gateway, "bob").await;
    }
}

#[tokio::test]
async fn follower_whose_credentials_are_refused_ends_no_stream_but_its_own() {
    let clock = HeldClock::pause();
    for status in [401, 403, 404] {
        let (gateway, mut alice, mut bob) = followed_by_both(ForwardedHeaders::default()).await;
        gateway.upstream.shows("bob", status);
        clock.advance(INTERVAL).await;
        at_rest(&gateway, "alice").await;
        is_told_of_no_run(&mut bob).await;
        clock.advance(INTERVAL).await;
        lists_run(&gateway, "alice").await;
        let mut run = gateway.joined_behind("-1").await;
        assert_eq!(run.key(), Some("alice"), "{status}");
        opens(&mut run, "").await;
        assert_eq!(alice.next(5).await[4]["runId"], "r1", "{status}");
    }
}

#[tokio::test]
async fn follower_who_is_refused_in_the_middle_of_a_run_does_not_wait_for_the_next() {
    let clock = HeldClock::pause();
    let (gateway, mut alice, mut bob) = followed_by_both(ForwardedHeaders::default()).await;
    let run = begins(&gateway, &clock).await;
    for follower in [&mut alice, &mut bob] {
        assert_eq!(follower.next(5).await[4]["runId"], "r1");
    }
    gateway.settled().await;
    run.cut();
    gateway.settled().await;
    clock.advance(Duration::from_millis(3)).await;
    let line = format!("GET /threads/{THREAD}/runs/{RUN}/stream");
    let refused = gateway.upstream.expect(&line).await;
    // Either may have got the run last.
    let key = refused.key().unwrap().to_owned();
    gateway.upstream.shows(&key, 401);
    refused.json(401, "{}").await;
    let mut join = gateway.upstream.expect(&line).await;
    assert_ne!(join.key(), Some(&*key));
    join.begin("").await;
    let (refused, other) =
        if key == "bob" { (&mut bob, &mut alice) } else { (&mut alice, &mut bob) };
    is_ended_without(refused, "more").await;
    let state = kept("2-0", &part("values", &values(&["hi"])));
    join.send(state + &kept("3-0", &token("m1", "more"))).await;
    gateway.settled().await;
    // The silence that ends a replay.
    clock.advance(Duration::from_millis(10)).await;
    while !other.whole_frame().await.contains("more") {}
}

#[tokio::test]
async fn follower_who_has_left_lends_no_credentials() {
    let clock = HeldClock::pause();
    let (gateway, _alice, bob) = followed_by_both(ForwardedHeaders::default()).await;
    drop(bob);
    gateway.watched_by(1).await;
    clock.advance(INTERVAL).await;
    let look = gateway.upstream.next().await;
    assert_eq!(look.key(), Some("alice"));
}

#[tokio::test]
async fn follower_who_connects_while_anothers_credentials_are_refused_uses_its_own() {
    let clock = HeldClock::pause();
    let (gateway, mut alice, _bob) = followed_by_both(ForwardedHeaders::default()).await;
    clock.advance(INTERVAL).await;
    let refused = gateway.upstream.next().await;
    assert_eq!(refused.key(), Some("bob"));
    let script = async {
        gateway.settled().await;
        refused.json(401, "{}").await;
        // The upstream has just accepted Carol's, so they come before Alice's.
        at_rest(&gateway, "carol").await;
        // A follower is shown what was read after it has come.
        at_rest(&gateway, "carol").await;
    };
    let (mut carol, ()) = tokio::join!(events(&gateway, "carol", "?follow=thread"), script);
    assert_eq!(carol.next(1).await[0]["type"], "RUN_STARTED");
    let _run = begins(&gateway, &clock).await;
    assert_eq!(alice.next(5).await[4]["runId"], "r1");
}

#[tokio::test]
async fn run_is_read_with_the_credentials_of_the_last_viewer() {
    let gateway = Gateway::start().await;
    let (mut alice, run, _) = half_told(&gateway).await;
    assert_eq!(run.key(), None);
    let _bob = bob_views(&gateway).await;
    run.cut();
    let mut join = joins(&gateway, Some("bob")).await;
    goes_on(&mut join).await;
    assert_eq!(alice.next(1).await[0]["delta"], " more");
}

/// A run of Alice's, with a key of her own, in the middle of a message.
async fn half_told_to_alice(gateway: &Gateway) -> (Response, Exchange) {
    let request = run_request("agent", &key("alice"), &input(&["hi"]).to_string());
    let script = async {
        gateway.state(None).await;
        gateway.stream().await
    };
    let (mut alice, mut run) =
        tokio::join!(Response::to(gateway.address, request.as_bytes()), script);
    opens(&mut run, &kept("3-0", &token("m1", "one"))).await;
    while !alice.whole_frame().await.contains("one") {}
    (alice, run)
}

/// Bob, who views the run of Alice's.
async fn bob_views(gateway: &Gateway) -> Response {
    let (mut bob, ()) = tokio::join!(events(gateway, "bob", ""), lists_run(gateway, "bob"));
    assert_eq!(bob.next(1).await[0]["type"], "RUN_STARTED");
    bob
}

/// Checks that a viewer's stream ends because its credentials are refused, without this text.
async fn is_ended_without(viewer: &mut Response, text: &str) {
    let rest = viewer.rest().await;
    let last = rest.last().unwrap();
    assert_eq!(
        (&last["type"], &last["code"]),
        (&json!("RUN_ERROR"), &json!("upstream_unavailable"))
    );
    assert!(!json!(rest).to_string().contains(text), "{rest:#?}");
}

#[tokio::test]
async fn viewer_whose_credentials_are_refused_takes_nothing_from_the_owner() {
    for status in [401, 403, 404] {
        let gateway = Gateway::start().await;
        let (mut alice, run) = half_told_to_alice(&gateway).await;
        let mut bob = bob_views(&gateway).await;
        gateway.upstream.shows("bob", status);
        run.cut();
        let line = format!("GET /threads/{THREAD}/runs/{RUN}/stream");
        let refused = gateway.upstream.expect(&line).await;
        assert_eq!(refused.key(), Some("bob"));
        refused.json(status, "{}").await;
        let mut join = joins(&gateway, Some("alice")).await;
        goes_on(&mut join).await;
        assert_eq!(alice.next(1).await[0]["delta"], " more", "{status}");
        is_ended_without(&mut bob, " more").await;
        join.send(kept("5-0", &part("values", &values(&["hi", "one more"])))).await;
        join.end().await;
        // The owner's credentials are the only ones left.
        let record = gateway.upstream.next().await;
        assert_eq!(record.key(), Some("alice"));
        record.json(200, &json!({"run_id": RUN, "status": "success"}).to_string()).await;
        let state = json!({"values": values(&["hi", "one more"]), "metadata": {"run_id": RUN}});
        gateway.state(Some(state)).await;
        assert_eq!(alice.rest().await.last().unwrap()["type"], "RUN_FINISHED");
    }
}

#[tokio::test]
async fn viewer_who_is_refused_at_the_runs_end_gets_the_end_alone() {
    // The record may lag behind the stream.
    for lags in [0, 1, 3] {
        let gateway = Gateway::start().await;
        let (mut alice, mut run) = half_told_to_alice(&gateway).await;
        let mut bob = bob_views(&gateway).await;
        gateway.upstream.shows("bob", 401);
        run.send(kept("4-0", &part("values", &values(&["hi", "one"])))).await;
        run.end().await;
        let mut statuses = vec!["success"];
        statuses.extend(vec!["running"; lags]);
        while let Some(status) = statuses.last() {
            let record = gateway.upstream.next().await;
            if record.key() == Some("bob") {
                record.json(401, "{}").await;
            } else {
                assert_eq!(record.key(), Some("alice"));
                record.json(200, &json!({"run_id": RUN, "status": status}).to_string()).await;
                statuses.pop();
            }
        }
        let mut later = values(&["hi", "one"]);
        later["note"] = json!("for Alice");
        gateway.state(Some(json!({"values": later, "metadata": {"run_id": RUN}}))).await;
        let (alices, bobs) = (alice.rest().await, bob.rest().await);
        assert!(json!(alices).to_string().contains("for Alice"), "{alices:#?}");
        assert!(!json!(bobs).to_string().contains("for Alice"), "{bobs:#?}");
        for last in [alices.last(), bobs.last()] {
            assert_eq!(last.unwrap()["type"], "RUN_FINISHED", "{lags}");
        }
    }
}

#[tokio::test]
async fn viewer_who_is_refused_for_a_moment_reads_on() {
    let gateway = Gateway::start().await;
    let (mut alice, run) = half_told_to_alice(&gateway).await;
    let mut bob = bob_views(&gateway).await;
    run.cut();
    let line = format!("GET /threads/{THREAD}/runs/{RUN}/stream");
    gateway.upstream.expect(&line).await.json(401, "{}").await;
    let mut join = joins(&gateway, Some("alice")).await;
    goes_on(&mut join).await;
    for reader in [&mut alice, &mut bob] {
        while !reader.whole_frame().await.contains(" more") {}
    }
}

#[tokio::test]
async fn run_that_outlives_its_token_ends_as_its_stream_did() {
    let clock = HeldClock::pause();
    for status in [401, 403, 404] {
        let gateway = Gateway::start().await;
        let (mut alice, mut run) = half_told_to_alice(&gateway).await;
        run.send(kept("4-0", &part("values", &values(&["hi", "one"])))).await;
        run.end().await;
        let refuses = async {
            loop {
                gateway.upstream.next().await.json(status, "{}").await;
            }
        };
        let passes = async {
            loop {
                gateway.passes(&clock, Duration::from_secs(1)).await;
            }
        };
        let began = Instant::now();
        let rest = tokio::select! {
            rest = alice.rest() => rest,
            () = refuses => unreachable!(),
            () = passes => unreachable!(),
        };
        assert_eq!(rest.last().unwrap()["type"], "RUN_FINISHED", "{status}: {rest:#?}");
        assert!(began.elapsed() < Duration::from_secs(10), "{status}: {:?}", began.elapsed());
    }
}

/// A thread of the stranger.
const OTHER: &str = "7b0c9f10-52a1-4d0c-9a53-0d1f5a6d3c11";

/// Connects to the caller's own thread, with the id of an event of another caller's run.
async fn with_anothers_event(gateway: &Gateway, id: &str, query: &str) -> Response {
    let request = format!(
        "GET /agui/agent/agent/threads/{OTHER}/events{query} HTTP/1.1\r\nhost: h\r\n\
         last-event-id: {id}\r\n{}\r\n",
        key("mallory")
    );
    let script = async {
        loop {
            let asked = gateway.upstream.next().await;
            assert_eq!(asked.key(), Some("mallory"), "{}", asked.line);
            assert!(asked.line.contains(OTHER), "{}", asked.line);
            let lists = asked.line.contains("/runs?");
            let is_last =
                asked.line.ends_with(if query.is_empty() { "/state" } else { "=lifecycle" });
            let (status, body) = match lists {
                true => (200, "[]"),
                false if asked.line.contains("/state") => (200, r#"{"values": {}, "next": []}"#),
                false => (404, "{}"),
            };
            asked.json(status, body).await;
            if is_last {
                return;
            }
        }
    };
    let (mut response, ()) =
        tokio::join!(Response::to(gateway.address, request.as_bytes()), script);
    assert_eq!(response.next(1).await[0]["threadId"], OTHER);
    response
}

#[tokio::test]
async fn event_id_of_anothers_run_lends_that_run_no_credentials() {
    for query in ["", "?follow=thread"] {
        let gateway = Gateway::start().await;
        // Only Alice may see the thread.
        let (mut alice, run, id) = half_told(&gateway).await;
        let _mallory = with_anothers_event(&gateway, &id, query).await;
        run.cut();
        let mut join = joins(&gateway, None).await;
        goes_on(&mut join).await;
        assert_eq!(alice.next(1).await[0]["delta"], " more", "{query}");
    }
}

#[tokio::test]
async fn event_id_of_anothers_followed_run_lends_it_no_credentials() {
    let gateway = Gateway::start().await;
    let script = async {
        gateway.upstream.next().await.json(200, &record().to_string()).await;
        gateway.joined_behind("-1").await
    };
    let (mut alice, mut run) = tokio::join!(events(&gateway, "alice", "?follow=thread"), script);
    opens(&mut run, &kept("3-0", &token("m1", "one"))).await;
    while !alice.whole_frame().await.contains("one") {}
    run.send(kept("4-0", &token("m1", " two"))).await;
    let id = loop {
        let frame = alice.whole_frame().await;
        if let Some(id) = frame.lines().find_map(|line| line.strip_prefix("id: 2")) {
            break format!("2{id}");
        }
    };
    for query in ["", "?follow=thread"] {
        let _mallory = with_anothers_event(&gateway, &id, query).await;
    }
    run.cut();
    let mut join = joins(&gateway, Some("alice")).await;
    join.send(kept("4-0", &token("m1", " two")) + &kept("5-0", &token("m1", " more"))).await;
    assert_eq!(alice.next(1).await[0]["delta"], " more");
}

#[tokio::test]
async fn run_without_its_owner_is_stopped_with_the_owners_credentials() {
    let grace = Duration::from_secs(20);
    let owners = OwnerPolicy::Cancel { grace };
    let gateway = Gateway::with(Limits { owners, ..Limits::default() }).await;
    let (alice, run, _) = half_told(&gateway).await;
    let bob = bob_views(&gateway).await;
    // From here on the run is read with Bob's credentials.
    run.cut();
    let run = joins(&gateway, Some("bob")).await;
    let clock = HeldClock::pause();
    drop((alice, bob));
    gateway.watched_by(0).await;
    clock.advance(grace).await;
    let cancel =
        gateway.upstream.expect(&format!("POST /threads/{THREAD}/runs/{RUN}/cancel")).await;
    assert_eq!(cancel.key(), None);
    cancel.json(202, "").await;
    run.closed().await;
}

#[tokio::test]
async fn thread_of_another_caller_reads_as_one_that_does_not_exist() {
    let gateway = Gateway::start().await;
    let mut named = input(&["hi"]);
    named["threadId"] = json!("a name");
    let request = run_request("agent", &key("bob"), &named.to_string());
    let script = async {
        gateway.upstream.next().await.json(404, r#"{"detail":"Thread not found"}"#).await;
        let create = gateway.upstream.expect("POST /threads").await;
        create.json(409, r#"{"detail":"Thread with ID T already exists"}"#).await;
    };
    let (mut response, ()) =
        tokio::join!(Response::to(gateway.address, request.as_bytes()), script);
    assert_eq!(refused(&mut response).await, unknown_thread());
}

// === several upstreams ===

/// The trace header that every upstream gets.
const TRACE: &str = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// The headers that identify a caller.
const IDENTITY: [&str; 4] = [
    "authorization: Bearer of-the-caller",
    "x-api-key: of-the-caller",
    "x-tenant: of-the-caller",
    "baggage: user=of-the-caller",
];

/// Two upstreams: the first in the file is not the first by name. The second has a key.
fn two_upstreams(first: &Upstream, second: &Upstream, more: &str) -> File {
    File::new(&format!(
        "forward_headers = [\"x-tenant\"]\n[upstreams.local]\nurl = \"{}\"\n\
         [upstreams.cloud]\nurl = \"{}\"\napi_key = \"of-the-gateway\"\n{more}",
        first.url(),
        second.url()
    ))
}

async fn serve_two(file: &File, first: &Upstream, second: &Upstream) -> Process {
    let options = ["--config", file.path()];
    let lists = async |upstream: &Upstream| {
        upstream.expect("POST /assistants/search").await.json(200, "[]").await;
    };
    let (process, (), ()) = tokio::join!(Process::serve(&options), lists(first), lists(second));
    process
}

/// Which of the caller's headers a request has.
fn shown(exchange: &Exchange) -> Vec<&'static str> {
    let has = |header: &&str| exchange.head.contains(&format!("\r\n{header}\r\n"));
    IDENTITY.into_iter().filter(has).collect()
}

/// Lists all agents, and lets each upstream answer. Returns the caller's headers that each upstream
/// got, and the API keys.
async fn asked_for_agents(
    process: &Process,
    upstreams: [&Upstream; 2],
) -> [(Vec<&'static str>, Option<String>); 2] {
    let info = format!(
        "GET /agui/info HTTP/1.1\r\nhost: localhost\r\n{TRACE}\r\n{}\r\n\r\n",
        IDENTITY.join("\r\n")
    );
    let asked = async |upstream: &Upstream| {
        let search = upstream.expect("POST /assistants/search").await;
        let told = (shown(&search), search.key().map(str::to_owned));
        assert!(search.head.contains(&format!("\r\n{TRACE}\r\n")), "{}", search.head);
        search.json(200, "[]").await;
        told
    };
    let [first, second] = upstreams;
    let (response, first, second) =
        tokio::join!(Response::to(process.address, info.as_bytes()), asked(first), asked(second));
    assert!(response.head.starts_with("HTTP/1.1 200"), "{}", response.head);
    [first, second]
}

#[tokio::test]
async fn upstream_beside_the_first_gets_no_identity_of_a_caller() {
    let (first, second) = (Upstream::bind().await, Upstream::bind().await);
    let file = two_upstreams(&first, &second, "");
    let process = serve_two(&file, &first, &second).await;
    let [of_first, of_second] = asked_for_agents(&process, [&first, &second]).await;
    assert_eq!(of_first, (IDENTITY.to_vec(), Some("of-the-caller".to_owned())));
    assert_eq!(of_second, (vec![], Some("of-the-gateway".to_owned())));

    // A run of one of that upstream's agents sends no such header either.
    let body = input(&["hi"]).to_string();
    let run = format!(
        "POST /agui/agent/cloud:agent/run HTTP/1.1\r\nhost: localhost\r\n{}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        IDENTITY.join("\r\n"),
        body.len()
    );
    let script = async {
        let state = second.next().await;
        assert_eq!(shown(&state), [""; 0], "{}", state.head);
        state.json(404, "{}").await;
        let mut post = second.next().await;
        assert_eq!(shown(&post), [""; 0], "{}", post.head);
        post.begin(&format!("content-location: /threads/{THREAD}/runs/{RUN}\r\n")).await;
    };
    let (response, ()) = tokio::join!(Response::to(process.address, run.as_bytes()), script);
    assert!(response.head.starts_with("HTTP/1.1 200"), "{}", response.head);
    first.is_untouched().await;
}

#[tokio::test]
async fn upstream_gets_the_identity_of_callers_where_its_configuration_says_so() {
    let (first, second) = (Upstream::bind().await, Upstream::bind().await);
    let local = format!("[upstreams.local]\nurl = \"{}\"\nforward_identity = false\n", first.url());
    let cloud = format!("[upstreams.cloud]\nurl = \"{}\"\nforward_identity = true\n", second.url());
    let file = File::new(&(local + &cloud));
    let mut process = serve_two(&file, &first, &second).await;
    let said = process.says("upstream cloud").await;
    assert!(said.ends_with("gets the credentials of each caller"), "{said}");
    assert!(process.said.contains("gets no credentials of callers"), "{}", process.said);
    let [of_first, of_second] = asked_for_agents(&process, [&first, &second]).await;
    assert_eq!(of_first, (vec![], None));
    let all_but_the_tenant: Vec<_> =
        IDENTITY.into_iter().filter(|header| !header.starts_with("x-tenant")).collect();
    assert_eq!(of_second, (all_but_the_tenant, Some("of-the-caller".to_owned())));
}

#[tokio::test]
async fn upstream_key_that_is_refused_is_not_taken_for_one_of_the_callers() {
    let upstream = Upstream::bind().await;
    let url = upstream.url();
    let file = File::new(&format!("[upstream]\nurl = \"{url}\"\nforward_identity = false\n"));
    let options = ["--config", file.path()];
    let lists = async |status| {
        upstream.expect("POST /assistants/search").await.json(status, "[]").await;
    };
    let (process, ()) = tokio::join!(Process::serve(&options), lists(200));
    let info =
        format!("GET /agui/info HTTP/1.1\r\nhost: localhost\r\n{}\r\n\r\n", IDENTITY.join("\r\n"));
    let (mut response, ()) =
        tokio::join!(Response::to(process.address, info.as_bytes()), lists(401));
    let (status, body) = refused(&mut response).await;
    assert_eq!(status, "HTTP/1.1 502 Bad Gateway");
    assert!(body.contains("upstream_unauthorized"), "{body}");
}
