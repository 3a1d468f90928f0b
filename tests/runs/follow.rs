//! Following a thread: its runs, changes without a run, and the requests that following costs.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::support::clock::HeldClock;
use crate::support::gateway::{
    Gateway, Response, THREAD, agents, counted, end, events_request, part, refusal, refused, says,
    start, token, values,
};
use crate::support::upstream::{Exchange, Upstream};
use serde_json::{Value, json};
use threadway::metrics::Metrics;
use threadway::runs::{DEFAULT_LOG_BYTES, LINGER, OwnerPolicy, Runs, UPSTREAM_PATIENCE};
use threadway::threads::{DEFAULT_STATE_READS_PER_SECOND, Threads};
use threadway::upstream::Caller;
use threadway_translate::json::Text;
use threadway_translate::run::{RunEvent, View};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How often the gateway reads a thread.
const INTERVAL: Duration = Duration::from_secs(2);

/// The longest pause before a server that has refused is asked again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// After how long a silence a replay counts as complete.
const QUIET: Duration = Duration::from_millis(10);

/// A gateway in front of the Python server, a follower of an idle thread, and the server's
/// lifecycle stream.
struct Followed {
    gateway: Gateway,
    clock: HeldClock,
    bell: Exchange,
    response: Response,
}

// === impl Followed ===

impl Followed {
    /// A follower that has received the idle thread.
    async fn start() -> Self {
        Self::with(&at("C1", "R0", &held(1))).await
    }

    async fn with(state: &Value) -> Self {
        let gateway = Gateway::start().await;
        let clock = HeldClock::pause();
        let script = async {
            looked_first(&gateway, json!([run("R0", "success")]), state).await;
            bell(&gateway).await
        };
        let (mut response, bell) = tokio::join!(gateway.events("?follow=thread"), script);
        assert_eq!(response.next(5).await, shown("connect-C1", state));
        Self { gateway, clock, bell, response }
    }

    /// Advances the clock until the gateway reads the thread: its runs, and its state if no run is
    /// to be shown.
    async fn look(&self, runs: Value, state: Option<&Value>) {
        self.gateway.settled().await;
        self.clock.advance(INTERVAL).await;
        looked(&self.gateway, runs, state).await;
    }

    /// Lets the gateway find a run and join it.
    async fn find(&self, id: &str) -> Exchange {
        self.look(json!([run(id, "running"), run("R0", "success")]), None).await;
        join(&self.gateway, id).await
    }

    /// Replays the stored parts of a run.
    async fn replayed(&self, join: &mut Exchange, parts: &[String]) {
        join.send(parts.concat()).await;
        self.gateway.settled().await;
        self.clock.advance(QUIET).await;
    }

    async fn is_told(&mut self, expected: &[Value]) {
        assert_eq!(self.response.next(expected.len()).await, expected);
    }

    /// Checks that the follower got nothing more, and that the gateway sends no request until time
    /// passes.
    async fn is_quiet(&mut self) {
        self.gateway.settled().await;
        self.gateway.upstream.is_untouched().await;
        // What the gateway has written has arrived, so the socket is checked without waiting.
        let mut byte = [0];
        assert!(self.response.decoded.is_empty() && self.response.raw.is_empty());
        let read = self.response.socket.try_read(&mut byte);
        assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
}

async fn looked(gateway: &Gateway, runs: Value, state: Option<&Value>) {
    gateway.runs("limit=20", runs).await;
    if let Some(state) = state {
        gateway.state(Some(state.clone())).await;
    }
}

/// Answers a read of the thread whose list is requested before the server's kind is known.
async fn looked_first(gateway: &Gateway, runs: Value, state: &Value) {
    gateway.runs("limit=100", runs).await;
    gateway.state(Some(state.clone())).await;
}

/// Accepts the server's lifecycle stream.
async fn bell(gateway: &Gateway) -> Exchange {
    let line = format!("GET /threads/{THREAD}/stream?stream_modes=lifecycle");
    let mut bell = gateway.upstream.expect(&line).await;
    bell.begin("").await;
    bell
}

async fn join(gateway: &Gateway, id: &str) -> Exchange {
    let line = format!("GET /threads/{THREAD}/runs/{id}/stream");
    let mut join = gateway.upstream.expect(&line).await;
    join.begin("").await;
    join
}

/// Answers the request for a run's record.
async fn record(gateway: &Gateway, id: &str, status: &str) {
    let get = gateway.upstream.expect(&format!("GET /threads/{THREAD}/runs/{id}")).await;
    get.json(200, &run(id, status).to_string()).await;
}

/// A run of the gateway. Its client's name for it is the same id in lower case.
fn run(id: &str, status: &str) -> Value {
    json!({
        "run_id": id, "status": status, "created_at": format!("2026-11-22T08:00:00Z {id}"),
        "metadata": {"threadway_run_id": id.to_lowercase(), "threadway_start": id},
        "kwargs": {"resumable": true, "stream_mode": ["values"]},
    })
}

/// The messages `hi` and `you`, and a counter.
fn held(count: u64) -> Value {
    with(count, &["hi", "you"])
}

fn with(count: u64, messages: &[&str]) -> Value {
    let mut values = values(messages);
    values["count"] = json!(count);
    // A difference is sent only if it is shorter than a snapshot.
    values["plan"] = json!(PLAN);
    values
}

const PLAN: &str =
    "say hello, ask what is wanted, look for it, say what was found, and say goodbye";

/// The thread's state at a checkpoint that a run has made.
fn at(checkpoint: &str, run_id: &str, values: &Value) -> Value {
    json!({
        "values": values, "next": [], "tasks": [],
        "metadata": {"run_id": run_id}, "checkpoint": {"checkpoint_id": checkpoint},
    })
}

fn metadata(id: &str) -> String {
    part("metadata", &json!({"run_id": id, "attempt": 1}))
}

// === the clients' events ===

/// The events of an idle thread, for a client whose content is unknown.
fn shown(name: &str, thread: &Value) -> Vec<Value> {
    let mut state = thread["values"].clone();
    let messages = told(&state["messages"]);
    state.as_object_mut().unwrap().remove("messages");
    vec![
        begun(name),
        json!({"type": "STATE_SNAPSHOT", "snapshot": state}),
        json!({"type": "MESSAGES_SNAPSHOT", "messages": []}),
        json!({"type": "MESSAGES_SNAPSHOT", "messages": messages}),
        over(name),
    ]
}

/// LangGraph's messages in the client's form.
fn told(messages: &Value) -> Value {
    let message = |message: &Value| {
        let role = if message["type"] == "human" { "user" } else { "assistant" };
        json!({"id": message["id"], "role": role, "content": message["content"]})
    };
    messages.as_array().unwrap().iter().map(message).collect()
}

fn snapshot(values: &Value) -> Value {
    json!({"type": "MESSAGES_SNAPSHOT", "messages": told(&values["messages"])})
}

/// The events of a whole message that is appended to the client's messages.
fn added(id: &str, role: &str, text: &str) -> [Value; 3] {
    [json!({"type": "TEXT_MESSAGE_START", "messageId": id, "role": role}), says(id, text), end(id)]
}

/// The first event under this name, which is a run's if the name is one.
fn begun(name: &str) -> Value {
    let mut langgraph = json!({"thread_id": THREAD});
    if let Some(number) = name.strip_prefix('r') {
        langgraph["run_id"] = json!(format!("R{number}"));
    }
    json!({"type": "RUN_STARTED", "threadId": THREAD, "runId": name, "protocolVersion": "1.0",
           "metadata": {"langgraph": langgraph}})
}

fn over(name: &str) -> Value {
    json!({"type": "RUN_FINISHED", "threadId": THREAD, "runId": name,
           "outcome": {"type": "success"}})
}

fn counts(count: u64) -> Value {
    json!({"type": "STATE_DELTA",
           "delta": [{"op": "replace", "path": "/count", "value": count}]})
}

// === what a follower receives ===

#[tokio::test]
async fn a_run_is_shown_to_its_end_and_what_it_came_to_is_not_said_again() {
    let mut followed = Followed::start().await;
    let mut stream = followed.find("R1").await;
    followed.is_told(&[begun("r1")]).await;
    let asked = with(1, &["hi", "you", "and?"]);
    let parts = [metadata("R1"), part("values", &asked), token("m3", "one ")];
    followed.replayed(&mut stream, &parts).await;
    followed.is_told(&added("m2", "user", "and?")).await;
    followed.is_told(&[start("m3"), says("m3", "one ")]).await;
    stream.send(token("m3", "two")).await;
    followed.is_told(&[says("m3", "two")]).await;
    let came_to = with(2, &["hi", "you", "and?", "one two"]);
    stream.send(part("values", &came_to)).await;
    followed.is_told(&[counts(2), end("m3")]).await;
    stream.end().await;
    record(&followed.gateway, "R1", "success").await;
    followed.gateway.state(Some(at("C2", "R1", &came_to))).await;
    followed.is_told(&[over("r1")]).await;
    // The outcome of the run is compared at once.
    let runs = || json!([run("R1", "success"), run("R0", "success")]);
    looked(&followed.gateway, runs(), Some(&at("C2", "R1", &came_to))).await;
    followed.is_quiet().await;

    // Another client changes the state.
    followed.look(runs(), Some(&at("C3", "R1", &with(3, &["hi", "you", "and?", "one two"])))).await;
    followed.is_told(&[begun("connect-C3"), counts(3), over("connect-C3")]).await;
    followed.is_quiet().await;
}

#[tokio::test]
async fn of_a_state_that_changed_without_a_run_only_what_differs_is_told() {
    let mut followed = Followed::start().await;
    let runs = || json!([run("R0", "success")]);
    let more = with(1, &["hi", "you", "there"]);
    followed.look(runs(), Some(&at("C2", "R0", &more))).await;
    followed.is_told(&[begun("connect-C2")]).await;
    followed.is_told(&added("m2", "user", "there")).await;
    followed.is_told(&[over("connect-C2")]).await;
    // An interrupt alone is a change too.
    let mut asking = at("C2", "R0", &more);
    asking["next"] = json!(["ask"]);
    asking["tasks"] = json!([{"id": "t", "interrupts": [{"id": "i", "value": "sure?"}]}]);
    followed.look(runs(), Some(&asking)).await;
    let told = followed.response.next(2).await;
    assert_eq!(told[0], begun("connect-C2"));
    assert_eq!(told[1]["outcome"]["interrupts"][0]["id"], "i");
    // Another checkpoint with the same content is no change.
    asking["checkpoint"] = json!({"checkpoint_id": "C3"});
    followed.look(runs(), Some(&asking)).await;
    followed.is_quiet().await;
}

#[test]
fn a_thread_that_stays_as_it_is_says_nothing() {
    // A lock that is taken twice blocks the whole runtime, so another thread keeps the time limit.
    let (done, is_done) = mpsc::channel();
    let looking = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut followed = Followed::start().await;
            for _ in 0..3 {
                let runs = json!([run("R0", "success")]);
                followed.look(runs, Some(&at("C1", "R0", &held(1)))).await;
                followed.is_quiet().await;
            }
        });
        done.send(()).unwrap();
    });
    let waited = is_done.recv_timeout(Duration::from_mins(1));
    assert_ne!(waited, Err(mpsc::RecvTimeoutError::Timeout), "the second look does not end");
    looking.join().unwrap();
}

#[tokio::test]
async fn a_run_that_began_and_ended_between_two_looks_is_told_by_its_record_and_its_own_state() {
    let mut followed = Followed::start().await;
    let came_to = with(2, &["hi", "you", "and?", "this"]);
    let runs = || json!([run("R1", "success"), run("R0", "success")]);
    followed.look(runs(), None).await;
    record(&followed.gateway, "R1", "success").await;
    followed.gateway.state(Some(at("C2", "R1", &came_to))).await;
    followed.is_told(&[begun("r1"), counts(2)]).await;
    followed.is_told(&added("m2", "user", "and?")).await;
    followed.is_told(&added("m3", "assistant", "this")).await;
    followed.is_told(&[over("r1")]).await;
    looked(&followed.gateway, runs(), Some(&at("C2", "R1", &came_to))).await;
    followed.is_quiet().await;
}

#[tokio::test]
async fn of_several_runs_that_were_missed_each_is_told_with_what_it_came_to() {
    let mut followed = Followed::start().await;
    let runs = || json!([run("R2", "success"), run("R1", "error"), run("R0", "success")]);
    followed.look(runs(), None).await;
    record(&followed.gateway, "R1", "error").await;
    let get = followed.gateway.upstream.expect(&format!("GET /threads/{THREAD}")).await;
    get.json(200, r#"{"error":{"error":"ValueError","message":"boom"}}"#).await;
    let later = at("C3", "R2", &held(3));
    followed.gateway.state(Some(later.clone())).await;
    let history = format!("POST /threads/{THREAD}/history");
    let post = followed.gateway.upstream.expect(&history).await;
    assert_eq!(post.body, r#"{"limit":1,"metadata":{"run_id":"R1"}}"#);
    post.json(200, &json!([at("C2", "R1", &held(2))]).to_string()).await;
    let failed = json!({"type": "RUN_ERROR", "message": "boom", "code": "ValueError"});
    followed.is_told(&[begun("r1"), counts(2), failed]).await;

    looked(&followed.gateway, runs(), None).await;
    record(&followed.gateway, "R2", "success").await;
    followed.gateway.state(Some(later.clone())).await;
    followed.is_told(&[begun("r2"), counts(3), over("r2")]).await;
    looked(&followed.gateway, runs(), Some(&later)).await;
    followed.is_quiet().await;
}

#[tokio::test]
async fn a_run_that_waits_for_its_turn_is_no_run_yet() {
    let mut followed = Followed::start().await;
    let runs = json!([run("R1", "pending"), run("R0", "success")]);
    followed.look(runs, Some(&at("C1", "R0", &held(1)))).await;
    followed.is_quiet().await;
    let _stream = followed.find("R1").await;
    followed.is_told(&[begun("r1")]).await;
}

#[tokio::test]
async fn a_large_state_is_told_whole_once() {
    let large = |count: u64, messages: &[&str]| {
        let mut values = with(count, messages);
        values["plan"] = (0..400).map(|at| format!("{at} {}", "x".repeat(1000))).collect();
        values
    };
    let mut followed = Followed::with(&at("C1", "R0", &large(1, &["hi", "you"]))).await;
    let mut stream = followed.find("R1").await;
    followed.is_told(&[begun("r1")]).await;
    let parts = [metadata("R1"), part("values", &large(1, &["hi", "you", "and?"]))];
    followed.replayed(&mut stream, &parts).await;
    followed.is_told(&added("m2", "user", "and?")).await;
    let came_to = large(2, &["hi", "you", "and?"]);
    stream.send(part("values", &came_to)).await;
    followed.is_told(&[counts(2)]).await;
    stream.end().await;
    record(&followed.gateway, "R1", "success").await;
    followed.gateway.state(Some(at("C2", "R1", &came_to))).await;
    followed.is_told(&[over("r1")]).await;
    let runs = json!([run("R1", "success"), run("R0", "success")]);
    looked(&followed.gateway, runs, Some(&at("C2", "R1", &came_to))).await;
    followed.is_quiet().await;
}

// === runs that are not listed or not readable ===

#[tokio::test]
async fn who_follows_a_run_that_is_cut_and_joined_again_is_told_nothing_of_that() {
    let mut followed = Followed::start().await;
    let mut stream = followed.find("R1").await;
    followed.is_told(&[begun("r1")]).await;
    let kept = |id: u32, part: String| format!("id: {id}-0\r\n{part}");
    let last = kept(9, token("m2", "one "));
    let parts = [kept(7, metadata("R1")), kept(8, part("values", &held(2))), last.clone()];
    followed.replayed(&mut stream, &parts).await;
    followed.is_told(&[counts(2), start("m2"), says("m2", "one ")]).await;
    stream.cut();
    followed.gateway.settled().await;
    followed.clock.advance(INTERVAL).await;
    let mut stream = join(&followed.gateway, "R1").await;
    assert!(stream.head.contains("\r\nlast-event-id: 8-0\r\n"), "{}", stream.head);
    stream.send(last + &kept(10, token("m2", "two"))).await;
    followed.is_told(&[says("m2", "two")]).await;
    followed.is_quiet().await;
}

#[tokio::test]
async fn a_run_that_was_lost_is_shown_again_once_it_is_found() {
    let mut followed = Followed::start().await;
    let mut stream = followed.find("R1").await;
    followed.is_told(&[begun("r1")]).await;
    let parts = || [metadata("R1"), part("values", &held(2)), token("m2", "one ")];
    followed.replayed(&mut stream, &parts()).await;
    let present = |text: &str| {
        let mut values = held(2);
        let message = json!({"id": "m2", "type": "ai", "content": text});
        values["messages"].as_array_mut().unwrap().push(message);
        snapshot(&values)
    };
    followed.is_told(&[counts(2), start("m2"), says("m2", "one ")]).await;
    stream.cut();
    followed.gateway.refused_for(&followed.clock, UPSTREAM_PATIENCE + INTERVAL * 5).await;
    let told = followed.response.next(2).await;
    assert_eq!(told[0], end("m2"));
    assert_eq!(told[1]["code"], "upstream_unavailable");
    followed.is_quiet().await;

    // A server that keeps refusing is asked less and less often.
    followed.clock.advance(LONGEST_PAUSE).await;
    let mut stream = followed.find("R1").await;
    followed.is_told(&[begun("r1")]).await;
    let more = [parts().concat(), token("m2", "two ")];
    followed.replayed(&mut stream, &more).await;
    followed.is_told(&[present("one two "), start("m2")]).await;
    stream.send(token("m2", "three")).await;
    followed.is_told(&[says("m2", "three")]).await;
}

/// The record of the run that the list still names as running.
#[derive(Clone, Copy, Debug)]
enum Record {
    Gone,
    Says(&'static str),
}

/// Follows while the list says `running` and the run's record says otherwise. Returns how many
/// requests were sent in this time, and how often the run was shown.
async fn contradicted(record: Record, time: Duration) -> (usize, usize) {
    let Followed { gateway, clock, bell: _bell, mut response } = Followed::start().await;
    let mut asked = 0;
    let answers = async {
        loop {
            let mut exchange = gateway.upstream.next().await;
            asked += 1;
            let path = exchange.line.replace(&format!("/threads/{THREAD}"), "");
            let answer = match (&*path, record) {
                ("GET /state", _) => at("C1", "R0", &held(1)),
                // The error of the last run.
                ("GET ", _) => json!({}),
                ("POST /history", _) => json!([]),
                ("GET /runs/R1/stream", _) => {
                    exchange.begin("").await;
                    exchange.send(metadata("R1") + &part("values", &held(1))).await;
                    exchange.end().await;
                    continue;
                }
                ("GET /runs/R1", Record::Gone) => {
                    exchange.json(404, r#"{"detail":"Run not found"}"#).await;
                    continue;
                }
                ("GET /runs/R1", Record::Says(status)) => run("R1", status),
                (path, _) => {
                    assert!(path.starts_with("GET /runs?"), "{path}");
                    json!([run("R1", "running"), run("R0", "success")])
                }
            };
            exchange.json(200, &answer.to_string()).await;
        }
    };
    tokio::select! {
        () = answers => {}
        () = gateway.passes(&clock, time) => {}
    }
    gateway.stop.cancel();
    let told = response.rest().await;
    let is_start = |event: &&Value| event["type"] == "RUN_STARTED" && event["runId"] == "r1";
    (asked, told.iter().filter(is_start).count())
}

async fn is_shown_once(record: Record) {
    let time = Duration::from_secs(10);
    let (asked, shown) = contradicted(record, time).await;
    assert_eq!(shown, 1, "shown {shown} times, with {asked} requests in {time:?}");
    assert!(asked <= 3 * 10, "{asked} requests in {time:?}");
}

#[tokio::test]
async fn a_run_that_is_gone_is_shown_once_whatever_the_list_says() {
    is_shown_once(Record::Gone).await;
}

#[tokio::test]
async fn a_run_that_is_over_by_its_record_is_shown_once_whatever_the_list_says() {
    is_shown_once(Record::Says("success")).await;
}

#[tokio::test]
async fn so_is_one_that_has_failed() {
    is_shown_once(Record::Says("error")).await;
}

#[tokio::test]
async fn a_run_whose_end_cannot_be_told_is_shown_ever_less_often() {
    let time = Duration::from_mins(1);
    let (asked, shown) = contradicted(Record::Says("a status of later versions"), time).await;
    // After about 2, 4, 8, 16 and 32 seconds, or half of that.
    assert!((3..=7).contains(&shown), "shown {shown} times");
    assert!(asked <= 3 * 60, "{asked} requests in {time:?}");
}

/// The size of a picture in a run's input, in bytes.
const PICTURE: usize = 3_600_000;

/// A server with 20 runs whose inputs contain pictures.
struct Pictures {
    status: &'static str,
    /// Whether the server refuses a list with selected columns, instead of leaving the others out.
    refuses: bool,
    /// How many bytes the server has listed, and how many requests it has refused.
    listed: usize,
    refused: usize,
}

// === impl Pictures ===

impl Pictures {
    fn record(&self, number: usize) -> Value {
        let status = if number == 19 { self.status } else { "success" };
        let mut record = run(&format!("R{number:02}"), status);
        record["kwargs"]["input"] = json!({"messages": "x".repeat(PICTURE)});
        record
    }

    /// Answers until the run is joined, or otherwise the state is read.
    async fn answer(&mut self, gateway: &Gateway) -> Option<Exchange> {
        loop {
            let exchange = gateway.upstream.next().await;
            let line = exchange.line.clone();
            let path = line.replace(&format!("GET /threads/{THREAD}"), "");
            if path.contains("select=") && self.refuses {
                self.refused += 1;
                exchange.json(422, r#"{"detail":"select is not for you"}"#).await;
            } else if path.starts_with("/runs?") {
                let mut runs: Vec<_> = match &*path {
                    _ if path.contains("limit=1&") || path.ends_with("limit=1") => vec![],
                    _ if path.contains("status=pending") => vec![],
                    _ if path.contains("status=running") && self.status != "running" => vec![],
                    _ if path.contains("status=running") => vec![self.record(19)],
                    _ if self.refuses => vec![self.record(19)],
                    _ => (0..20).map(|number| self.record(number)).collect(),
                };
                for record in &mut runs {
                    let columns = record.as_object_mut().unwrap();
                    columns.retain(|name, _| self.refuses || path.contains(&format!("={name}")));
                }
                let body = Value::from(runs).to_string();
                self.listed += body.len();
                exchange.json(200, &body).await;
            } else if path == "/state" {
                exchange.json(200, &at("C1", "R19", &held(1)).to_string()).await;
                return None;
            } else if path == "/runs/R19" {
                exchange.json(200, &self.record(19).to_string()).await;
            } else if path == "/runs/R19/stream" {
                return Some(exchange);
            } else {
                exchange.json(404, "{}").await;
            }
        }
    }
}

#[tokio::test]
async fn a_thread_whose_runs_were_given_pictures_can_be_attached_and_followed() {
    for query in ["", "?follow=thread"] {
        for status in ["success", "running"] {
            let gateway = Gateway::start().await;
            let mut server = Pictures { status, refuses: false, listed: 0, refused: 0 };
            let attached = async {
                let response = gateway.events(query).await;
                assert!(response.head.starts_with("HTTP/1.1 200"), "{query}: {}", response.head);
                response
            };
            let (mut response, joined) = tokio::join!(attached, server.answer(&gateway));
            if let Some(mut join) = joined {
                join.begin("").await;
                join.send(metadata("R19") + &part("values", &held(1))).await;
                let asked = format!("{}\r\n", join.head);
                assert!(asked.contains("last-event-id: -1\r\n"), "{asked}");
                assert_eq!(response.next(1).await[0]["runId"], "r19", "{query}");
            } else {
                assert_eq!(status, "success", "{query}");
                assert_eq!(response.next(1).await[0]["runId"], "connect-C1", "{query}");
            }
            assert!(server.listed < 100_000, "{query}: {} bytes were listed", server.listed);
        }
    }
}

#[tokio::test]
async fn a_server_that_refuses_to_leave_anything_out_is_asked_for_it_once() {
    let gateway = Gateway::start().await;
    let mut server = Pictures { status: "success", refuses: true, listed: 0, refused: 0 };
    for _ in 0..2 {
        let (mut response, joined) = tokio::join!(gateway.events(""), server.answer(&gateway));
        assert!(joined.is_none());
        assert_eq!(response.next(1).await[0]["runId"], "connect-C1");
    }
    assert_eq!(server.refused, 1);
}

#[tokio::test]
async fn a_thread_that_cannot_be_looked_at_is_refused_at_first_and_awaited_later() {
    let gateway = Gateway::javascript().await;
    let script = async {
        gateway.upstream.next().await.answer(500, "text/plain", "boom").await;
    };
    let (mut response, ()) = tokio::join!(gateway.events("?follow=thread"), script);
    let message = "the LangGraph server answered 500; the server's log may tell more";
    let expected = refusal("502 Bad Gateway", "upstream_refused", message);
    assert_eq!(refused(&mut response).await, expected);
    drop(response);
    gateway.settled().await;
    gateway.upstream.is_untouched().await;

    let mut followed = Followed::start().await;
    followed.clock.advance(INTERVAL).await;
    followed.gateway.upstream.next().await.answer(500, "text/plain", "boom").await;
    followed.is_quiet().await;
    followed.look(json!([run("R0", "success")]), Some(&at("C2", "R0", &held(2)))).await;
    followed.is_told(&[begun("connect-C2"), counts(2), over("connect-C2")]).await;
}

// === the requests that following costs ===

#[tokio::test]
async fn the_python_server_rings_and_is_looked_at_at_once() {
    let mut followed = Followed::start().await;
    followed.gateway.settled().await;
    followed.bell.send(": heartbeat\r\n\r\n").await;
    followed.is_quiet().await;
    followed.bell.send(part("lifecycle", &json!({"event": "running"}))).await;
    // The clock does not advance.
    looked(&followed.gateway, json!([run("R1", "running"), run("R0", "success")]), None).await;
    let mut stream = join(&followed.gateway, "R1").await;
    stream.send([metadata("R1"), part("values", &held(2))].concat()).await;
    stream.end().await;
    record(&followed.gateway, "R1", "success").await;
    followed.gateway.state(Some(at("C2", "R1", &held(2)))).await;
    followed.is_told(&[begun("r1"), counts(2), over("r1")]).await;
    // The outcome is compared at once, although the state was read just before.
    let runs = json!([run("R1", "success"), run("R0", "success")]);
    looked(&followed.gateway, runs, Some(&at("C2", "R1", &held(2)))).await;
    followed.is_quiet().await;
}

#[tokio::test]
async fn the_first_follower_waits_for_the_list_and_the_state_alone() {
    let gateway = Gateway::start().await;
    let _clock = HeldClock::pause();
    let state = at("C1", "R0", &held(1));
    let script = async {
        looked_first(&gateway, json!([run("R0", "success")]), &state).await;
        gateway.upstream.next().await
    };
    let (mut response, bell) = tokio::join!(gateway.events("?follow=thread"), script);
    assert!(bell.line.ends_with("?stream_modes=lifecycle"), "{}", bell.line);
    // The lifecycle stream has not answered, and the clock does not advance.
    assert_eq!(response.next(5).await, shown("connect-C1", &state));
}

#[tokio::test]
async fn many_first_followers_share_one_question_for_the_servers_kind() {
    const MANY: usize = 8;
    let gateway = Gateway::start().await;
    let mut following = JoinSet::new();
    for number in 0..MANY {
        let path = format!("/agui/agent/agent/threads/{THREAD}{number}/events?follow=thread");
        let request = format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n");
        let address = gateway.address;
        following.spawn(async move { Response::to(address, request.as_bytes()).await });
    }
    let (mut infos, mut lists) = (0, 0);
    while lists < MANY {
        let asked = gateway.upstream.accept().await;
        if asked.line == "GET /info" {
            infos += 1;
            // Clients that connect before the answer share the next request.
            let info = r#"{"version":"0.16.7","langgraph_py_version":"1.2.22"}"#;
            asked.json(200, info).await;
        } else {
            assert!(asked.line.contains("/runs?limit="), "{}", asked.line);
            lists += 1;
        }
    }
    assert!((1..=2).contains(&infos), "{infos}");
}

#[tokio::test]
async fn a_bell_that_is_lost_is_opened_again_at_the_next_look() {
    let Followed { gateway, clock, bell, response: _response } = Followed::start().await;
    gateway.settled().await;
    bell.end().await;
    // A server that ends the lifecycle stream each time is not asked in a loop.
    for _ in 0..3 {
        gateway.settled().await;
        gateway.upstream.is_untouched().await;
        clock.advance(INTERVAL).await;
        self::bell(&gateway).await.end().await;
        looked(&gateway, json!([run("R0", "success")]), Some(&at("C1", "R0", &held(1)))).await;
    }
}

#[tokio::test]
async fn the_javascript_server_has_no_bell_and_is_looked_at_every_two_seconds() {
    let gateway = Gateway::javascript().await;
    let clock = HeldClock::pause();
    let rest = at("C1", "R0", &held(1));
    let look = async |runs: Value, state: Option<&Value>| {
        gateway.runs("limit=100", runs).await;
        if let Some(state) = state {
            gateway.state(Some(state.clone())).await;
        }
    };
    let script = look(json!([run("R0", "success")]), Some(&rest));
    let (mut response, ()) = tokio::join!(gateway.events("?follow=thread"), script);
    assert_eq!(response.next(5).await, shown("connect-C1", &rest));
    for _ in 0..2 {
        gateway.settled().await;
        gateway.upstream.is_untouched().await;
        clock.advance(INTERVAL).await;
        look(json!([run("R0", "success")]), Some(&rest)).await;
    }
    gateway.settled().await;
    clock.advance(INTERVAL).await;
    // This server lists the oldest first.
    look(json!([run("R0", "success"), run("R1", "running")]), None).await;
    let _stream = join(&gateway, "R1").await;
    assert_eq!(response.next(1).await, [begun("r1")]);
}

#[tokio::test]
async fn two_who_follow_cost_as_much_as_one_and_the_second_begins_with_what_stands() {
    let mut followed = Followed::start().await;
    let gateway = &followed.gateway;
    gateway.settled().await;
    let now = at("C2", "R0", &held(2));
    // The gateway reads the thread for the new follower, and both get the result.
    let script = looked(gateway, json!([run("R0", "success")]), Some(&now));
    let (mut second, ()) = tokio::join!(gateway.events("?follow=thread"), script);
    assert_eq!(second.next(5).await, shown("connect-C2", &now));
    followed.is_told(&[begun("connect-C2"), counts(2), over("connect-C2")]).await;

    let mut stream = followed.find("R1").await;
    followed.is_told(&[begun("r1")]).await;
    let parts = [metadata("R1"), part("values", &held(3)), token("m2", "one ")];
    followed.replayed(&mut stream, &parts).await;
    let mut values = held(3);
    let message = json!({"id": "m2", "type": "ai", "content": "one "});
    values["messages"].as_array_mut().unwrap().push(message);
    let present = [counts(3), start("m2"), says("m2", "one ")];
    followed.is_told(&present).await;
    assert_eq!(second.next(1).await, [begun("r1")]);
    assert_eq!(second.next(3).await, present);
    // A third follower joins in the middle of the run, without a request.
    let mut third = followed.gateway.events("?follow=thread").await;
    let state = json!({"type": "STATE_SNAPSHOT", "snapshot": {"count": 3, "plan": PLAN}});
    let nothing = json!({"type": "MESSAGES_SNAPSHOT", "messages": []});
    let present = [begun("r1"), state, nothing, snapshot(&values), start("m2")];
    assert_eq!(third.next(5).await, present);
    stream.send(token("m2", "two")).await;
    for viewer in [&mut followed.response, &mut second, &mut third] {
        assert_eq!(viewer.next(1).await, [says("m2", "two")]);
    }
    stream.end().await;
    record(&followed.gateway, "R1", "success").await;
    values["messages"][2]["content"] = json!("one two");
    let came_to = at("C3", "R1", &values);
    followed.gateway.state(Some(came_to.clone())).await;
    for viewer in [&mut followed.response, &mut second, &mut third] {
        assert_eq!(viewer.next(2).await, [end("m2"), over("r1")]);
    }
    let runs = json!([run("R1", "success"), run("R0", "success")]);
    looked(&followed.gateway, runs, Some(&came_to)).await;
    followed.is_quiet().await;
}

/// Another replica was first to know the run's end. AG-UI's clients take a second `RUN_FINISHED` for
/// an error.
#[tokio::test]
async fn one_who_has_the_end_of_a_run_that_is_still_read_here_gets_what_is_after_it() {
    let mut followed = Followed::start().await;
    let mut stream = followed.find("R1").await;
    followed.is_told(&[begun("r1")]).await;
    let parts = [metadata("R1"), part("values", &held(2))];
    followed.replayed(&mut stream, &parts).await;
    followed.is_told(&[counts(2)]).await;

    let gateway = &followed.gateway;
    let (replica, _stop, _serving) = gateway.replica().await;
    let over_at_c2 = at("C2", "R1", &held(2));
    let script = async {
        gateway.runs("limit=100", json!([run("R1", "running"), run("R0", "success")])).await;
        let mut stream = join(gateway, "R1").await;
        stream.send(parts.concat()).await;
        stream.end().await;
        record(gateway, "R1", "success").await;
        gateway.state(Some(over_at_c2.clone())).await;
    };
    let request = events_request("", "");
    let read = async {
        let (mut response, mut last) =
            (Response::to(replica, request.as_bytes()).await, String::new());
        loop {
            let frame = response.whole_frame().await;
            if frame.is_empty() {
                break last;
            }
            last = frame;
        }
    };
    let (last, ()) = tokio::join!(read, script);
    assert!(last.contains("RUN_FINISHED"), "{last}");
    let id = last.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();

    let mut back = gateway.events(&format!("?follow=thread&last_event_id={id}")).await;
    gateway.settled().await;
    stream.end().await;
    record(gateway, "R1", "success").await;
    gateway.state(Some(over_at_c2.clone())).await;
    let runs = || json!([run("R1", "success"), run("R0", "success")]);
    looked(gateway, runs(), Some(&over_at_c2)).await;
    followed.is_told(&[over("r1")]).await;
    followed.look(runs(), Some(&at("C3", "R1", &held(3)))).await;
    let after = [begun("connect-C3"), counts(3), over("connect-C3")];
    followed.is_told(&after).await;
    assert_eq!(back.next(3).await, after);
    let metrics = &followed.gateway.metrics;
    let resumes = |kind| counted(metrics, &format!("resumes_total{{kind={kind:?}}}")).to_string();
    assert_eq!(["log", "replay", "start_over", "ended"].map(resumes), ["1", "0", "0", "0"]);
}

#[tokio::test]
async fn the_last_who_leaves_ends_the_looking() {
    let followed = Followed::start().await;
    let Followed { gateway, clock, bell, response } = followed;
    gateway.settled().await;
    let now = at("C1", "R0", &held(1));
    let script = looked(&gateway, json!([run("R0", "success")]), Some(&now));
    let (mut second, ()) = tokio::join!(gateway.events("?follow=thread"), script);
    second.next(5).await;
    drop(response);
    gateway.watched_by(1).await;
    clock.advance(INTERVAL).await;
    looked(&gateway, json!([run("R0", "success")]), Some(&now)).await;
    gateway.settled().await;
    drop(second);
    bell.closed().await;
    for _ in 0..3 {
        clock.advance(INTERVAL).await;
        gateway.settled().await;
    }
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn the_last_who_leaves_ends_the_reading_of_a_run_and_does_not_stop_it() {
    let mut followed = Followed::start().await;
    let stream = followed.find("R1").await;
    followed.is_told(&[begun("r1")]).await;
    let Followed { gateway, clock, bell, response } = followed;
    drop(response);
    bell.closed().await;
    gateway.watched_by(0).await;
    clock.advance(LINGER).await;
    stream.closed().await;
    clock.advance(INTERVAL).await;
    gateway.settled().await;
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn a_stop_of_the_gateway_ends_the_following_between_two_runs() {
    let mut followed = Followed::start().await;
    followed.gateway.stop.cancel();
    assert_eq!(followed.response.rest().await, [] as [Value; 0]);
    followed.bell.closed().await;
    followed.gateway.stopped().await;
}

#[tokio::test]
async fn a_stop_of_the_gateway_breaks_off_the_following_of_a_run() {
    let mut followed = Followed::start().await;
    let mut stream = followed.find("R1").await;
    followed.is_told(&[begun("r1")]).await;
    let parts = [metadata("R1"), part("values", &held(1)), token("m2", "one ")];
    followed.replayed(&mut stream, &parts).await;
    followed.is_told(&[start("m2"), says("m2", "one ")]).await;
    followed.gateway.stop.cancel();
    assert_eq!(followed.response.rest().await, [] as [Value; 0]);
    stream.closed().await;
    followed.bell.closed().await;
    followed.gateway.stopped().await;
}

#[tokio::test]
async fn one_who_is_many_runs_behind_misses_some_and_comes_to_the_same() {
    let upstream = Upstream::javascript().await;
    let agents = agents(&[("default", &upstream.url())], &[]);
    let agent = agents.find("agent", &Caller::default()).unwrap();
    let runs = Runs::new(
        DEFAULT_LOG_BYTES,
        OwnerPolicy::Continue,
        Metrics::default(),
        CancellationToken::new(),
    );
    let threads = Threads::new(runs, DEFAULT_STATE_READS_PER_SECOND);
    let thread = threads.thread(agent, THREAD.to_owned(), None);
    let clock = HeldClock::pause();
    let look = async |count: u64| {
        let get = upstream.next().await;
        let list = format!("GET /threads/{THREAD}/runs?limit=");
        assert!(get.line.starts_with(&list), "{}", get.line);
        get.json(200, &json!([run("R0", "success")]).to_string()).await;
        let get = upstream.expect(&format!("GET /threads/{THREAD}/state")).await;
        let text = format!("answer {count}");
        let state = at(&format!("C{count}"), "R0", &with(count, &["hi", &text]));
        get.json(200, &state.to_string()).await;
    };
    let mut quick = {
        let (reader, ()) = tokio::join!(thread.follow(None), look(1));
        reader.unwrap()
    };
    let mut slow = {
        let (reader, ()) = tokio::join!(thread.follow(None), look(1));
        reader.unwrap()
    };
    let last = |events: &[RunEvent]| matches!(events.last(), Some(RunEvent::Ended { .. }));
    let mut views = [View::default(), View::default()];
    let mut told = [Vec::new(), Vec::new()];
    for count in 1..=9 {
        if count > 1 {
            clock.advance(INTERVAL).await;
            look(count).await;
        }
        loop {
            let events = quick.next().await.unwrap();
            told[0].extend_from_slice(&events);
            if last(&events) {
                break;
            }
        }
    }
    while views[1].state().is_none_or(|state| !state.to_json().get().contains(r#""count":9,"#)) {
        let events = slow.next().await.unwrap();
        events.iter().for_each(|event| views[1].apply(event));
        told[1].extend_from_slice(&events);
    }
    told[0].iter().for_each(|event| views[0].apply(event));
    let begun = told.each_ref().map(|events| {
        events.iter().filter(|event| matches!(event, RunEvent::Started { .. })).count()
    });
    // The first state and then only the last: an idle thread contains all earlier changes.
    assert_eq!(begun, [9, 2]);
    assert_eq!(views[0].messages(), views[1].messages());
    assert_eq!(views[1].messages().last().unwrap().content.text(), Text::new("answer 9"));
    assert_eq!(views[0].state().unwrap().to_json(), views[1].state().unwrap().to_json());
}
