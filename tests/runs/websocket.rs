//! Runs on a WebSocket: turns, ways to stop them, and clients that are cut, slow, silent or wrong.

use std::time::Duration;

use crate::support::clock::HeldClock;
use crate::support::gateway::{COLUMNS, Gateway, RUN, THREAD, counted, input, part, token, values};
use crate::support::judge;
use crate::support::schema::Schema;
use crate::support::socket::{Closed, Socket};
use crate::support::upstream::Exchange;
use serde_json::{Value, json};
use threadway::runs::EventId;
use threadway::server::{IDLE, KEEP_ALIVE, Limits, PING, PONG_TIMEOUT};
use tokio_tungstenite::tungstenite::{Bytes, Message};

type Event = (Option<String>, Value);

/// The number of tokens of the run that is cut.
const TOKENS: usize = 12;

fn kept(id: usize, part: &str) -> String {
    format!("id: {}-0\r\n{part}", 1000 + id)
}

fn words(count: usize) -> String {
    (0..count).map(|at| format!("word{at} ")).collect::<Vec<_>>().concat()
}

/// The server's parts for the run, with their ids in its store.
fn parts() -> Vec<String> {
    let mut parts = vec![
        part("metadata", &json!({"run_id": RUN, "attempt": 1})),
        part("values", &values(&["hi"])),
    ];
    parts.extend((0..TOKENS).map(|at| token("m1", &format!("word{at} "))));
    parts.push(part("values", &values(&["hi", &words(TOKENS)])));
    parts.iter().enumerate().map(|(at, part)| kept(at, part)).collect()
}

fn came_to() -> Value {
    json!({
        "values": values(&["hi", &words(TOKENS)]), "next": [], "tasks": [],
        "metadata": {"run_id": RUN}, "checkpoint": {"checkpoint_id": "C"},
    })
}

fn kinds(events: &[Event]) -> Vec<&str> {
    events.iter().map(|(_, event)| event["type"].as_str().unwrap()).collect()
}

fn bare(events: &[Event]) -> Vec<Value> {
    events.iter().map(|(_, event)| event.clone()).collect()
}

fn closed_with(code: u16, reason: &str) -> Closed {
    (code, reason.to_owned())
}

/// The client's event for a frame that is refused, or for a turn that did not begin.
fn refused(code: &str, message: &str) -> Event {
    (None, json!({"type": "RUN_ERROR", "message": message, "code": code}))
}

impl Gateway {
    /// Accepts a turn, and begins the run's stream.
    async fn takes_turn(&self) -> Exchange {
        self.state(None).await;
        self.stream().await
    }

    /// Ends the run with success, and waits until the client has the end.
    async fn succeeds(&self, run: Exchange) {
        run.end().await;
        self.status("success").await;
        self.state(Some(came_to())).await;
    }
}

/// Begins a turn, up to its first event.
async fn begun(gateway: &Gateway, socket: &mut Socket) -> Exchange {
    socket.send(&input(&["hi"])).await;
    let (first, run) = tokio::join!(socket.event(), gateway.takes_turn());
    assert_eq!(first.1["type"], "RUN_STARTED");
    run
}

#[tokio::test]
async fn two_turns_on_one_socket_are_two_runs_with_an_id_for_each_event() {
    let gateway = Gateway::start().await;
    let mut socket = Socket::open(gateway.address).await;
    assert_eq!(socket.protocol, None);
    for _ in 0..2 {
        let mut run = begun(&gateway, &mut socket).await;
        run.send(parts().concat()).await;
        let (events, ()) = tokio::join!(socket.turn(), gateway.succeeds(run));
        assert_eq!(*kinds(&events).last().unwrap(), "RUN_FINISHED");
        let is_resumable = |(id, _): &&Event| id.as_ref().unwrap().parse::<EventId>().is_ok();
        assert!(events.iter().filter(is_resumable).count() > TOKENS, "{events:#?}");
        let texts = judge::streamed_text(&bare(&events));
        assert_eq!(texts.into_values().collect::<Vec<_>>(), [words(TOKENS)]);
    }
    gateway.upstream.is_untouched().await;
    assert!(
        (counted(&gateway.metrics, r#"streams_ended_total{outcome="finished"}"#) - 2.0).abs() < 0.5
    );
}

#[tokio::test]
async fn a_subprotocol_or_the_path_says_whether_events_have_ids() {
    let gateway = Gateway::start().await;
    let (run, ws) = ("/agui/agent/agent/run", "/agui/agent/agent/run/ws");
    let mut open = Vec::new();
    for (path, offered, chosen, has_ids) in [
        (run, None, None, true),
        (ws, None, None, false),
        (run, Some("other, threadway.events"), Some("threadway.events"), false),
        (ws, Some("threadway.chunks, threadway.events"), Some("threadway.chunks"), true),
    ] {
        let headers: Vec<_> =
            offered.map(|offered| ("sec-websocket-protocol", offered)).into_iter().collect();
        let mut socket = Socket::with(gateway.address, path, &headers).await.unwrap();
        assert_eq!(socket.protocol.as_deref(), chosen);
        socket.send(&input(&["hi"])).await;
        let (first, run) = tokio::join!(socket.event(), gateway.takes_turn());
        assert_eq!(first.0.is_some(), has_ids, "{path} {offered:?}");
        assert_eq!(first.1["type"], "RUN_STARTED");
        open.push((socket, run));
    }
}

#[tokio::test]
async fn what_is_no_handshake_is_refused() {
    use crate::support::gateway::Response;
    let gateway = Gateway::start().await;
    let upgrade = "upgrade: websocket\r\nconnection: Upgrade\r\n";
    let key = "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
    let version = "sec-websocket-version: 13\r\n";
    for (path, headers, expected) in [
        ("run", String::new(), "405 Method Not Allowed"),
        ("run", "upgrade: h2c\r\nconnection: upgrade\r\n".to_owned(), "405 Method Not Allowed"),
        ("run/ws", String::new(), "426 Upgrade Required"),
        ("run/ws", format!("{upgrade}{key}"), "426 Upgrade Required"),
        ("run", format!("{upgrade}{key}sec-websocket-version: 8\r\n"), "426 Upgrade Required"),
        ("run", format!("{upgrade}{version}"), "400 Bad Request"),
        ("run", format!("{upgrade}{version}sec-websocket-key: AA==\r\n"), "400 Bad Request"),
        ("run", format!("{upgrade}{version}{key}{key}"), "400 Bad Request"),
        ("run?offset=-1", format!("{upgrade}{version}{key}"), "400 Bad Request"),
        ("run?offset=-1&threadId=", format!("{upgrade}{version}{key}"), "400 Bad Request"),
        ("run?offset=-1&threadId=t&runId=", format!("{upgrade}{version}{key}"), "400 Bad Request"),
        ("run", format!("{upgrade}{version}{key}"), "101 Switching Protocols"),
    ] {
        let request = format!("GET /agui/agent/agent/{path} HTTP/1.1\r\nhost: h\r\n{headers}\r\n");
        let response = Response::to(gateway.address, request.as_bytes()).await;
        let status = format!("HTTP/1.1 {expected}\r\n");
        assert!(response.head.starts_with(&status), "{headers}{}", response.head);
        assert_eq!(
            response.head.contains("sec-websocket-version: 13\r\n"),
            expected.starts_with("426")
        );
    }
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn an_abort_stops_the_run_and_the_socket_stays() {
    let gateway = Gateway::start().await;
    let mut socket = Socket::open(gateway.address).await;
    let mut run = begun(&gateway, &mut socket).await;
    run.send(token("a", "one")).await;
    assert_eq!(kinds(&socket.events(2).await), ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"]);
    socket.send(&json!({"type": "abort", "runId": "r1"})).await;
    let record = json!([{"run_id": RUN, "status": "running", "metadata": {"threadway_run_id": "r1", "threadway_start": "s1"}}]);
    for (status, runs) in [("pending", json!([])), ("running", record)] {
        let line = format!("GET /threads/{THREAD}/runs?status={status}&limit=100{COLUMNS}");
        gateway.upstream.expect(&line).await.json(200, &runs.to_string()).await;
    }
    let cancel =
        gateway.upstream.expect(&format!("POST /threads/{THREAD}/runs/{RUN}/cancel")).await;
    cancel.json(202, "").await;
    run.end().await;
    let (events, ()) = tokio::join!(socket.turn(), gateway.record("interrupted"));
    let end = &events.last().unwrap().1;
    assert_eq!(end["outcome"], json!({"type": "cancelled"}));
    begun(&gateway, &mut socket).await;
}

#[tokio::test]
async fn an_abort_that_is_refused_is_told_within_the_run_which_goes_on() {
    let gateway = Gateway::start().await;
    let mut socket = Socket::open(gateway.address).await;
    socket.send(&json!({"type": "abort", "runId": "r1"})).await;
    let message = "no run was started on this socket; name the run's `threadId` too";
    assert_eq!(socket.event().await, refused("invalid_request", message));

    let mut run = begun(&gateway, &mut socket).await;
    // The client may name the thread, by a name of its own.
    socket.send(&json!({"type": "abort", "threadId": "my thread/ü", "runId": "r1"})).await;
    let asked = gateway.upstream.next().await;
    assert!(asked.line.contains("/runs?status=pending"), "{}", asked.line);
    asked.json(500, "boom").await;
    let (id, event) = socket.event().await;
    assert_eq!(
        (id, &event["type"], &event["name"]),
        (None, &json!("CUSTOM"), &json!("threadway.error"))
    );
    assert_eq!(event["value"]["error"], "upstream_refused");
    run.send(token("a", "one")).await;
    assert_eq!(kinds(&socket.events(1).await), ["TEXT_MESSAGE_START"]);
}

#[tokio::test]
async fn one_turn_waits_for_the_one_before_it_and_no_second_one() {
    let gateway = Gateway::start().await;
    let mut socket = Socket::open(gateway.address).await;
    let run = begun(&gateway, &mut socket).await;
    let mut waiting = input(&["hi", "ho", "and"]);
    waiting["runId"] = json!("r2");
    socket.send(&waiting).await;
    socket.send(&input(&["too much"])).await;
    let (id, event) = socket.event().await;
    assert_eq!((id, &event["value"]["error"]), (None, &json!("thread_busy")));
    // A pending turn can be cancelled.
    socket.send(&json!({"type": "abort", "runId": "r2"})).await;
    assert_eq!(socket.event().await.1["value"]["error"], "aborted");
    socket.send(&waiting).await;
    gateway.upstream.is_untouched().await;
    run.end().await;
    let (events, _run) = tokio::join!(
        async {
            let first = socket.turn().await;
            (first, socket.event().await)
        },
        async {
            gateway.record("interrupted").await;
            gateway.takes_turn().await
        }
    );
    assert_eq!(events.1.1["runId"], "r2");
}

#[tokio::test]
async fn garbage_is_answered_and_ends_nothing_until_there_is_too_much_of_it() {
    let gateway = Gateway::start().await;
    let mut socket = Socket::open(gateway.address).await;
    for text in [
        "",
        "{",
        "[]",
        "null",
        r#"{"type":"x"}"#,
        r#"{"runId":1}"#,
        r#"{"threadId":"t"}"#,
        r#"{"threadId":"","runId":"r","messages":[]}"#,
        r#"{"type":"abort","runId":""}"#,
    ] {
        socket.say(text).await;
        let (id, event) = socket.event().await;
        assert_eq!(
            (id, &event["type"], &event["code"]),
            (None, &json!("RUN_ERROR"), &json!("invalid_request")),
            "{text}"
        );
    }
    send(&mut socket, Message::binary(Bytes::from_static(b"{}"))).await;
    assert_eq!(
        socket.event().await,
        refused("invalid_request", "the frame is binary; send JSON as text")
    );
    socket.say(r#"{"type":"ping"}"#).await;

    // Within a run, a refused frame does not end the run.
    let mut run = begun(&gateway, &mut socket).await;
    for text in ["{", "nonsense"] {
        socket.say(text).await;
        let (id, event) = socket.event().await;
        assert_eq!((id, &event["name"]), (None, &json!("threadway.error")));
        assert_eq!(event["value"]["error"], "invalid_request");
    }
    run.send(token("a", "one")).await;
    assert_eq!(kinds(&socket.events(1).await), ["TEXT_MESSAGE_START"]);

    let mut socket = Socket::open(gateway.address).await;
    for _ in 0..10 {
        socket.say("garbage").await;
        socket.event().await;
    }
    socket.say("garbage").await;
    assert_eq!(socket.closed().await, closed_with(1008, "too many frames were refused"));
}

async fn send(socket: &mut Socket, message: Message) {
    use futures_util::SinkExt;
    socket.stream.send(message).await.unwrap();
}

#[tokio::test]
async fn what_comes_before_a_turn_has_begun_is_told_within_it() {
    let gateway = Gateway::start().await;
    let mut socket = Socket::open(gateway.address).await;
    socket.send(&input(&["hi"])).await;
    let state = gateway.upstream.expect(&format!("GET /threads/{THREAD}/state")).await;
    socket.say("garbage").await;
    // Once the gateway answers the ping, it has read the frame before.
    send(&mut socket, Message::Ping(Bytes::from_static(b"here"))).await;
    {
        use futures_util::StreamExt;
        assert!(matches!(socket.stream.next().await, Some(Ok(Message::Pong(_)))));
    }
    state.json(404, "{}").await;
    let _run = gateway.stream().await;
    assert_eq!(kinds(&socket.events(2).await), ["RUN_STARTED", "CUSTOM"]);
}

#[tokio::test]
async fn a_message_that_is_too_large_closes_the_socket() {
    let gateway = Gateway::with(Limits { body_bytes: 1024, ..Limits::default() }).await;
    let mut socket = Socket::open(gateway.address).await;
    socket.say(&"x".repeat(1025)).await;
    assert_eq!(socket.closed().await, closed_with(1009, "the message is too large"));
    let mut socket = Socket::open(gateway.address).await;
    socket.say(&"x".repeat(1024)).await;
    assert_eq!(socket.event().await.1["code"], "invalid_request");
}

#[tokio::test]
async fn bytes_that_are_no_websocket_end_the_connection_and_nothing_else() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let gateway = Gateway::start().await;
    for bytes in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 64], &[0x81, 0x05, 1, 2, 3, 4, 5], &[0x00; 14]]
    {
        let mut socket = Socket::open(gateway.address).await;
        let raw = socket.stream.get_mut();
        raw.write_all(bytes).await.unwrap();
        raw.shutdown().await.unwrap();
        let mut rest = Vec::new();
        // A reset also ends the connection.
        let _ = raw.read_to_end(&mut rest).await;
    }
    let mut socket = Socket::open(gateway.address).await;
    begun(&gateway, &mut socket).await;
}

// === clients that are cut ===

/// Plays the run for a client that loses its socket after each of these events, and asks again with
/// the id of its last event.
async fn played(cuts: &[usize]) -> Vec<Event> {
    let gateway = Gateway::start().await;
    let mut socket = Socket::open(gateway.address).await;
    let mut told = Vec::new();
    socket.send(&input(&["hi"])).await;
    let (first, mut run) = tokio::join!(socket.event(), gateway.takes_turn());
    told.push(first);
    // All parts but the end are sent: a client that is disconnected must lose none.
    run.send(parts().concat()).await;
    for cut in cuts {
        let missing = cut - told.len();
        told.extend(socket.events(missing).await);
        drop(socket);
        socket = Socket::open(gateway.address).await;
        let mut again = input(&["hi"]);
        again["lastEventId"] = json!(told.last().unwrap().0);
        socket.send(&again).await;
    }
    let (rest, ()) = tokio::join!(socket.turn(), gateway.succeeds(run));
    told.extend(rest);
    gateway.upstream.is_untouched().await;
    told
}

#[tokio::test]
async fn a_client_that_is_cut_at_ten_places_is_told_each_event_once_as_one_that_is_not() {
    let whole = played(&[]).await;
    assert!(whole.len() > TOKENS + 4, "{whole:#?}");
    judge::closed(&Schema::load(), &bare(&whole)).unwrap();
    for (id, event) in &whole {
        assert!(id.as_ref().unwrap().parse::<EventId>().is_ok(), "{event}");
    }
    // A client that reconnects is assumed to hold only what it has received.
    let returned = played(&[1]).await;
    let is_own = |event: &&Event| event.1["type"] != "MESSAGES_SNAPSHOT";
    assert_eq!(
        returned.iter().filter(is_own).collect::<Vec<_>>(),
        whole.iter().collect::<Vec<_>>()
    );
    assert_eq!(played(&(1..=10).collect::<Vec<_>>()).await, returned);
    // The client had received that much before its first cut.
    assert_eq!(played(&(3..=12).collect::<Vec<_>>()).await, whole);
    let last = whole.len() - 1;
    for place in [5, last / 2, last - 1] {
        assert_eq!(played(&[place]).await, whole, "cut after {place}");
    }
    // The client is cut again and again at the same event.
    assert_eq!(played(&[3; 5]).await, whole);
}

#[tokio::test]
async fn a_socket_that_names_an_event_in_its_url_reads_the_rest_of_a_run_and_starts_none() {
    let gateway = Gateway::start().await;
    let mut socket = Socket::open(gateway.address).await;
    let mut run = begun(&gateway, &mut socket).await;
    run.send(parts().concat()).await;
    let told = socket.events(6).await;
    let id = told[2].0.clone().unwrap();
    let path = format!("/agui/agent/agent/run?runId=r1&offset={id}&threadId={THREAD}");
    let mut resumed = Socket::with(gateway.address, &path, &[]).await.unwrap();
    assert_eq!(resumed.events(3).await, told[3..]);
    let rest = tokio::join!(socket.turn(), resumed.turn(), gateway.succeeds(run));
    let ids = |events: &[Event]| events.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>();
    assert_eq!((ids(&rest.0), kinds(&rest.0)), (ids(&rest.1), kinds(&rest.1)));
    assert_eq!(resumed.closed().await, closed_with(1000, "the run is over"));

    // A request for a run that does not exist starts none.
    let path = format!("/agui/agent/agent/run?runId=r9&offset=-1&threadId={THREAD}");
    let mut none = Socket::with(gateway.address, &path, &[]).await.unwrap();
    gateway.runs("status=pending&limit=100", json!([])).await;
    gateway.runs("status=running&limit=100", json!([])).await;
    gateway.runs(&format!("limit={}", gateway.upstream.recent_runs()), json!([])).await;
    assert_eq!(none.event().await.1["code"], "unknown_run");
    assert_eq!(none.closed().await, closed_with(1008, "there is nothing to resume"));
    gateway.upstream.is_untouched().await;
}

// === clients that are slow, silent or disconnected ===

#[tokio::test]
async fn a_slow_client_holds_nobody_up_and_is_brought_to_the_end() {
    const FLOOD: usize = 24 * 1024 * 1024;
    let gateway = Gateway::with(Limits { log_bytes: 64 * 1024, ..Limits::default() }).await;
    let mut slow = Socket::narrow(gateway.address, "/agui/agent/agent/run").await;
    slow.send(&input(&["hi"])).await;
    let mut run = gateway.takes_turn().await;
    // No timer matters in this test.
    let _clock = HeldClock::pause();
    run.send(part("values", &values(&["hi"]))).await;
    let tokens = token("a", &"x".repeat(1024)).repeat(64);
    for _ in 0..FLOOD / tokens.len() {
        run.send(&tokens).await;
    }
    run.send(part("values", &values(&["hi", "all"]))).await;
    run.end().await;
    gateway.status("success").await;
    gateway.state(Some(json!({"metadata": {"run_id": RUN}}))).await;
    let mut other = Socket::open(gateway.address).await;
    begun(&gateway, &mut other).await;
    // The client reads only now.
    let events = bare(&slow.turn().await);
    judge::closed(&Schema::load(), &events).unwrap();
    let streamed: usize = judge::streamed_text(&events).values().map(String::len).sum();
    assert!(streamed < FLOOD / 2, "{streamed} bytes of text came one by one");
    assert!(counted(&gateway.metrics, r#"resyncs_total{reason="fell_behind"}"#) > 0.0);
}

#[tokio::test]
async fn a_silent_socket_is_pinged_and_one_that_does_not_answer_is_let_go_of() {
    let gateway = Gateway::start().await;
    let mut socket = Socket::open(gateway.address).await;
    let mut run = begun(&gateway, &mut socket).await;
    gateway.settled().await;
    let clock = HeldClock::pause();
    assert_eq!(PING, KEEP_ALIVE);
    // The client answers a ping with its next read, so while it reads, it counts as connected.
    for _ in 0..10 {
        let passed = socket.pinged(&clock, &mut run).await;
        assert!(passed.abs_diff(PING) <= Duration::from_secs(2), "{passed:?}");
    }
    // From here on the client reads nothing and answers no ping.
    gateway.watched_by(1).await;
    let mut passed = Duration::ZERO;
    while counted(&gateway.metrics, "active_viewers") > 0.5 {
        assert!(passed < PONG_TIMEOUT * 2, "the socket still streams");
        run.send(": heartbeat\r\n\r\n").await;
        clock.advance(PING).await;
        passed += PING;
        gateway.settled().await;
    }
    assert!(passed >= PONG_TIMEOUT, "{passed:?}");
}

#[tokio::test]
async fn a_socket_without_a_turn_is_closed_after_five_minutes_and_one_with_a_turn_is_not() {
    let gateway = Gateway::start().await;
    let mut socket = Socket::open(gateway.address).await;
    let idle = Socket::open(gateway.address).await;
    let mut run = begun(&gateway, &mut socket).await;
    gateway.settled().await;
    let clock = HeldClock::pause();
    let mut passed = Duration::ZERO;
    let closed = idle.closed();
    tokio::pin!(closed);
    let told = loop {
        tokio::select! {
            biased;
            closed = &mut closed => break closed,
            _ = socket.pinged(&clock, &mut run) => passed += PING,
        }
    };
    assert_eq!(told, closed_with(1000, "no turn for five minutes"));
    assert!(passed + PING * 2 >= IDLE, "{passed:?}");
    run.send(token("a", "one")).await;
    assert_eq!(kinds(&socket.events(1).await), ["TEXT_MESSAGE_START"]);
}

#[tokio::test]
async fn a_stop_of_the_gateway_ends_the_turn_with_a_reason_and_closes_each_socket() {
    let gateway = Gateway::start().await;
    let idle = Socket::open(gateway.address).await;
    let mut socket = Socket::open(gateway.address).await;
    let run = begun(&gateway, &mut socket).await;
    gateway.settled().await;
    let _clock = HeldClock::pause();
    gateway.stop.cancel();
    let (id, event) = socket.event().await;
    assert!(id.is_some());
    assert_eq!((&event["type"], &event["code"]), (&json!("RUN_ERROR"), &json!("gateway_shutdown")));
    let away = closed_with(1001, "the gateway is shutting down");
    assert_eq!(socket.closed().await, away);
    assert_eq!(idle.closed().await, away);
    run.closed().await;
    gateway.stopped().await;
}

#[tokio::test]
async fn a_client_that_leaves_or_says_so_stops_nothing() {
    let gateway = Gateway::start().await;
    // A stream that ends is joined again, for as long as the gateway waits for its viewers.
    let mut runs = Vec::new();
    for is_polite in [true, false] {
        let mut socket = Socket::open(gateway.address).await;
        let mut run = begun(&gateway, &mut socket).await;
        if is_polite {
            socket.stream.close(None).await.unwrap();
        }
        drop(socket);
        gateway.watched_by(0).await;
        assert!(run.lives().await);
        runs.push(run);
    }
    gateway.upstream.is_untouched().await;
}
