//! Starting a run: the thread of its first run, whose run has which client's id, and a request whose
//! answer is lost.

use std::net::SocketAddr;

use crate::support::clock::HeldClock;
use crate::support::gateway::{
    Gateway, Response, THREAD, agents, events_request, input, post, refusal, refused, serve,
    timely, token,
};
use crate::support::langgraph::{LangGraph, soon, state};
use crate::support::upstream::Exchange;
use serde_json::{Value, json};
use threadway::server::Limits;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A run that the gateway has started, and one that another program has.
const OURS: &str = "01a200b7-5ee6-7592-b13b-00000000aaaa";
const FOREIGN: &str = "01a200b7-5ee6-7592-b13b-00000000bbbb";

const STOP: &str = r#"{"runId":"r1"}"#;

/// A gateway before a server whose thread has this metadata.
struct Served {
    server: LangGraph,
    address: SocketAddr,
    stop: CancellationToken,
    serving: JoinSet<()>,
}

/// Where the server lists the run of an interrupted request.
#[derive(Clone, Copy, Debug)]
enum Listed {
    Pending,
    Running,
    Over,
}

impl Served {
    async fn before(server: LangGraph, metadata: Value) -> Self {
        server.thread(THREAD, metadata, Some(state("R0", &json!([]), &json!([]))));
        let agents = agents(&[("default", &server.url)], &[]);
        let (address, stop, serving) = serve(agents, Limits::default()).await;
        Self { server, address, stop, serving }
    }

    async fn python(metadata: Value) -> Self {
        Self::before(LangGraph::start().await, metadata).await
    }

    /// Adds a run to the thread.
    fn lists(&self, id: &str, status: &str, created_at: &str, metadata: &Value) {
        let run = json!({"run_id": id, "thread_id": THREAD, "status": status,
            "created_at": created_at, "metadata": metadata,
            "kwargs": {"resumable": true, "stream_mode": ["values", "messages-tuple"]}});
        self.server.books().threads.get_mut(THREAD).unwrap().runs.insert(0, run);
    }

    /// The number of requests that have started a run.
    fn posts(&self) -> usize {
        self.server.asked(&format!("POST /threads/{THREAD}/runs/stream")).len()
    }

    async fn stop_run(&self) -> (String, String) {
        let length = STOP.len();
        let request = format!(
            "POST /agui/agent/agent/stop/{THREAD} HTTP/1.1\r\nhost: h\r\ncontent-length: {length}\r\n\
             \r\n{STOP}"
        );
        refused(&mut Response::to(self.address, request.as_bytes()).await).await
    }
}

/// The metadata of the run that a request starts.
fn metadata_of(post: &Exchange) -> Value {
    let body: Value = serde_json::from_str(&post.body).unwrap();
    body["metadata"].clone()
}

// === the thread of a first run ===

/// What the gateway sends for a first run: the creation of the thread, and the start of the run.
async fn first_run(gateway: &Gateway, created: (u16, &str)) -> (Value, Value) {
    let script = async {
        gateway.state(None).await;
        let create = gateway.upstream.expect("POST /threads").await;
        let body = create.body.clone();
        create.json(created.0, created.1).await;
        if created.0 == 403 {
            gateway.state(None).await;
        }
        let start = gateway.stream().await;
        let started = start.body.clone();
        start.end().await;
        gateway.record("interrupted").await;
        [body, started].map(|body| serde_json::from_str::<Value>(&body).unwrap())
    };
    let input = input(&["hi"]);
    let posted = async { gateway.post(&input).await.body().await };
    let (events, [create, start]) = tokio::join!(posted, script);
    assert!(events.contains(r#""runId":"r1""#), "{events}");
    (create, start)
}

#[tokio::test]
async fn a_thread_is_created_before_its_first_run_and_gets_nothing_of_it() {
    let gateway = Gateway::start().await;
    let (create, start) = first_run(&gateway, (200, "{}")).await;
    let expected =
        json!({"thread_id": THREAD, "if_exists": "do_nothing", "metadata": {"title": "hi"}});
    assert_eq!(create, expected);
    assert_eq!(start["if_not_exists"], "reject");
    let mut keys: Vec<_> = start["metadata"].as_object().unwrap().keys().cloned().collect();
    keys.sort_unstable();
    assert_eq!(keys, ["threadway_run_id", "threadway_start"]);
}

#[tokio::test]
async fn a_thread_that_exists_is_not_created() {
    let gateway = Gateway::start().await;
    let script = async {
        gateway.state(Some(json!({"values": {"n": 1}, "next": [], "tasks": []}))).await;
        gateway.upstream.next_or_creation().await
    };
    let input = input(&["hi"]);
    tokio::select! {
        _ = gateway.post(&input) => panic!("no run has started"),
        start = script => {
            assert_eq!(start.line, format!("POST /threads/{THREAD}/runs/stream"));
            assert!(start.body.contains(r#""if_not_exists":"reject""#), "{}", start.body);
        }
    }
}

/// LangGraph's `auth` may allow `threads.create_run` and not `threads.create`.
#[tokio::test]
async fn a_run_of_a_caller_who_may_not_create_threads_creates_its_thread_without_an_id() {
    let gateway = Gateway::start().await;
    let (_, start) = first_run(&gateway, (403, r#"{"detail":"Forbidden"}"#)).await;
    assert_eq!(start["if_not_exists"], "create");
    assert_eq!(start["metadata"], json!({"title": "hi"}));
}

#[tokio::test]
async fn a_thread_of_somebody_else_is_not_found() {
    let gateway = Gateway::start().await;
    let script = async {
        gateway.state(None).await;
        let create = gateway.upstream.expect("POST /threads").await;
        create.json(409, r#"{"detail":"Thread with ID T already exists"}"#).await;
    };
    let input = input(&["hi"]);
    let (mut response, ()) = tokio::join!(gateway.post(&input), script);
    let (status, body) = refused(&mut response).await;
    assert_eq!(status, "HTTP/1.1 404 Not Found");
    assert!(body.contains("unknown_thread"), "{body}");
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn the_creation_of_a_thread_is_repeated_if_its_answer_is_lost() {
    let gateway = Gateway::start().await;
    let script = async {
        gateway.state(None).await;
        gateway.upstream.expect("POST /threads").await.cut();
        gateway.upstream.expect("POST /threads").await.cut();
    };
    let hi = input(&["hi"]);
    let (mut response, ()) = tokio::join!(gateway.post(&hi), script);
    let message = "the connection to the LangGraph server broke: connection closed before message \
                   completed; no run was started; send the request again";
    let expected = refusal("502 Bad Gateway", "upstream_interrupted", message);
    assert_eq!(refused(&mut response).await, expected, "no run was started");
    gateway.upstream.is_untouched().await;
}

/// How a read fails: with this status, or by a connection that breaks.
const MOMENTS: [Option<u16>; 4] = [None, Some(502), Some(503), Some(504)];

async fn fail(read: Exchange, how: Option<u16>) {
    match how {
        Some(status) => read.json(status, r#"{"detail":"x"}"#).await,
        None => read.cut(),
    }
}

#[tokio::test]
async fn a_read_before_a_start_that_fails_for_a_moment_is_repeated() {
    for how in MOMENTS {
        let gateway = Gateway::acquainted().await;
        let state = format!("GET /threads/{THREAD}/state");
        let script = async {
            fail(gateway.upstream.expect(&state).await, how).await;
            gateway.state(None).await;
            gateway.stream().await
        };
        let hi = input(&["hi"]);
        let (response, _run) = tokio::join!(gateway.post(&hi), script);
        assert!(response.head.starts_with("HTTP/1.1 200 OK"), "{how:?} {}", response.head);
    }
}

#[tokio::test]
async fn a_read_before_a_start_that_fails_again_says_that_nothing_was_started() {
    for how in MOMENTS {
        let gateway = Gateway::acquainted().await;
        let state = format!("GET /threads/{THREAD}/state");
        let mut reads = 0;
        let fails = async {
            loop {
                fail(gateway.upstream.expect(&state).await, how).await;
                reads += 1;
            }
        };
        let hi = input(&["hi"]);
        let mut response = tokio::select! {
            response = gateway.post(&hi) => response,
            () = fails => unreachable!(),
        };
        let (status, body) = refused(&mut response).await;
        assert_eq!(status, "HTTP/1.1 502 Bad Gateway", "{how:?}");
        assert!(!body.contains("may have acted"), "{how:?} {body}");
        assert_eq!(body.contains("no run was started"), how.is_none(), "{how:?} {body}");
        // A connection that was kept is replaced without counting.
        assert!((2..=3).contains(&reads), "{how:?}: {reads} reads");
        gateway.upstream.is_untouched().await;
    }
}

// === whose run ===

/// A run of another program, on a thread that an earlier gateway has created with its first run.
async fn with_a_copy() -> Served {
    let copied = json!({"threadway_run_id": "r1", "threadway_answers": ["i1"]});
    let served = Served::python(copied.clone()).await;
    served.lists(FOREIGN, "running", "2026-11-22T11:00:00Z", &copied);
    served
}

#[tokio::test]
async fn a_viewer_is_shown_a_foreign_run_under_langgraphs_id() {
    let mut served = with_a_copy().await;
    let request = events_request("", "");
    let viewer = Response::to(served.address, request.as_bytes());
    let (mut viewer, mut run) = tokio::join!(viewer, served.server.joined());
    assert_eq!(run.id, FOREIGN);
    run.says("m", "word").await;
    run.ends_with(&json!([])).await;
    let events = soon("the end", viewer.rest()).await;
    assert_eq!(events[0]["type"], "RUN_STARTED");
    assert_eq!(events[0]["runId"], FOREIGN);
}

#[tokio::test]
async fn a_stop_by_a_copied_id_stops_nothing() {
    let served = with_a_copy().await;
    let (_, body) = served.stop_run().await;
    assert!(body.contains(r#""stopped":false"#), "{body}");
    assert_eq!(served.server.cancelled(), [""; 0]);
}

#[tokio::test]
async fn a_repeated_request_is_not_answered_with_a_foreign_run() {
    let mut served = with_a_copy().await;
    let body = input(&["hi"]).to_string();
    let again = post(served.address, "last-event-id: 1\r\n", &body);
    let (mut again, run) = tokio::join!(again, served.server.run());
    assert_ne!(run.id, FOREIGN);
    run.ends_with(&json!([])).await;
    assert_eq!(soon("the end", again.rest()).await.last().unwrap()["type"], "RUN_FINISHED");
}

/// CopilotKit sends the runs of one turn under one id.
#[tokio::test]
async fn runs_with_one_id_have_tokens_of_their_own_and_are_all_the_clients() {
    let mut served = Served::python(json!({})).await;
    let mut runs = Vec::new();
    let mut clients = Vec::new();
    let body = input(&["hi"]).to_string();
    for _ in 0..2 {
        let (response, run) = tokio::join!(post(served.address, "", &body), served.server.run());
        runs.push(run);
        clients.push(response);
    }
    let of = |run: usize, name: &str| runs[run].body["metadata"][name].clone();
    assert_eq!(of(0, "threadway_run_id"), of(1, "threadway_run_id"));
    assert_ne!(of(0, "threadway_start"), of(1, "threadway_start"));
    let ids: Vec<_> = runs.iter().map(|run| run.id.clone()).collect();
    for _ in 0..2 {
        let (_, body) = served.stop_run().await;
        assert!(body.contains(r#""stopped":true"#), "{body}");
    }
    assert_eq!(served.server.cancelled(), ids);
}

/// The server may commit the rest of the stopped run afterwards.
#[tokio::test]
async fn a_message_that_is_answered_again_after_a_stop_leaves_the_rest_of_the_stopped_run() {
    for (server, begins_at) in [
        (LangGraph::start().await, json!("after-R1")),
        // There, later runs of other programs would begin at that checkpoint too.
        (LangGraph::javascript().await, Value::Null),
    ] {
        let mut served = Served::before(server, json!({})).await;
        let said = json!([{"type": "human", "id": "m0", "content": "hi"}]);
        served.lists(OURS, "running", "2026-01-01T00:00:00Z", &json!({}));
        {
            let mut books = served.server.books();
            let thread = books.threads.get_mut(THREAD).unwrap();
            thread.state = Some(state("R1", &said, &json!([])));
            thread.runs[0]["kwargs"]["input"] = json!({"messages": said});
        }
        let body = input(&["hi"]).to_string();
        let (_response, run) = tokio::join!(post(served.address, "", &body), served.server.run());
        assert_eq!(served.server.cancelled(), [OURS]);
        assert_eq!(run.body["checkpoint_id"], begins_at, "{}", run.body);
        run.ends("success", None).await;
        // Without a stop it begins at the newest checkpoint.
        let (_response, run) = tokio::join!(post(served.address, "", &body), served.server.run());
        assert_eq!(run.body.get("checkpoint_id"), None, "{}", run.body);
        run.ends("success", None).await;
    }
}

// === a request whose answer is lost ===

/// Posts a request, and lets the answer to the start of the run be lost. `and_then` gets the lost
/// request before the fault.
async fn interrupted(
    served: &mut Served,
    fault: &str,
    and_then: impl FnOnce(&Served, &Exchange),
) -> Response {
    let address = served.address;
    let body = input(&["hi"]).to_string();
    let response = post(address, "", &body);
    let script = async {
        let mut start = served.server.held("/runs/stream").await;
        and_then(served, &start);
        match fault {
            "reset" => start.reset(),
            "cut" => start.cut(),
            "silence" => start.closed().await,
            status => start.begin_answer(status.parse().unwrap(), "text/html", "<p>", 3).await,
        }
    };
    let (response, ()) = timely(address, async { tokio::join!(response, script) }).await;
    response
}

#[tokio::test]
async fn a_run_whose_start_was_interrupted_is_found_and_read_from_its_beginning() {
    for (fault, listed) in [
        ("reset", Listed::Running),
        ("cut", Listed::Over),
        ("502", Listed::Pending),
        ("504", Listed::Running),
        ("524", Listed::Running),
        ("silence", Listed::Running),
    ] {
        let mut served = Served::python(json!({})).await;
        let status = match listed {
            Listed::Pending => "pending",
            Listed::Running => "running",
            Listed::Over => "success",
        };
        let begins = |served: &Served, start: &Exchange| {
            served.lists(OURS, status, "2026-11-22T11:00:00Z", &metadata_of(start));
        };
        let mut response = interrupted(&mut served, fault, begins).await;
        assert!(response.head.starts_with("HTTP/1.1 200 OK"), "{fault}: {}", response.head);
        let mut run = soon("a join", served.server.joined()).await;
        assert_eq!(run.id, OURS);
        assert!(run.exchange.head.contains("\r\nlast-event-id: -1\r\n"), "{}", run.exchange.head);
        run.exchange.send(token("m", "one")).await;
        run.ends_with(&json!([{"id": "m", "type": "ai", "content": "one"}])).await;
        let events = soon("the end", response.rest()).await;
        let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(kinds.first(), Some(&"RUN_STARTED"), "{fault}");
        assert_eq!(events[0]["runId"], "r1");
        assert!(kinds.contains(&"TEXT_MESSAGE_CONTENT"), "{fault} {listed:?}: {kinds:?}");
        assert_eq!(kinds.last(), Some(&"RUN_FINISHED"), "{fault}: {events:#?}");
        assert_eq!(served.posts(), 1, "{fault}");
    }
}

#[tokio::test]
async fn a_run_that_the_server_does_not_have_was_not_started() {
    for (fault, what) in [
        (
            "cut",
            "the connection to the LangGraph server broke: connection closed before message completed",
        ),
        ("504", "the LangGraph server answered 504"),
        ("silence", "the LangGraph server did not answer within 60 s"),
    ] {
        let mut served = Served::python(json!({})).await;
        let others = |served: &Served, _: &Exchange| {
            let metadata = json!({"threadway_run_id": "r1", "threadway_start": "another"});
            served.lists(FOREIGN, "running", "2026-11-22T11:00:00Z", &metadata);
        };
        let mut response = interrupted(&mut served, fault, others).await;
        let message = format!("{what}; it has no run of this request; send the request again");
        let expected = refusal("502 Bad Gateway", "run_not_started", &message);
        assert_eq!(refused(&mut response).await, expected);
        assert_eq!(served.posts(), 1, "{fault}");
        let lookups = served.server.asked(&format!("GET /threads/{THREAD}/runs?status=pending"));
        assert_eq!(lookups.len(), 4, "{fault}");
    }
}

#[tokio::test]
async fn a_run_is_found_that_the_server_lists_late() {
    let mut served = Served::python(json!({})).await;
    let address = served.address;
    let body = input(&["hi"]).to_string();
    let response = post(address, "", &body);
    let list = format!("GET /threads/{THREAD}/runs?status=pending");
    let script = async {
        let start = served.server.held("/runs/stream").await;
        let sent = metadata_of(&start);
        start.cut();
        served.server.until("a lookup", |server| server.asked(&list).len() == 2).await;
        served.lists(OURS, "running", "2026-11-22T11:00:00Z", &sent);
        let run = served.server.joined().await;
        run.ends_with(&json!([])).await;
    };
    let (mut response, ()) = timely(address, async { tokio::join!(response, script) }).await;
    assert_eq!(soon("the end", response.rest()).await.last().unwrap()["type"], "RUN_FINISHED");
}

#[tokio::test]
async fn a_run_may_have_been_started_if_the_server_cannot_be_asked() {
    for answer in ["refuses", "is silent", "may list no runs"] {
        let mut served = Served::python(json!({})).await;
        served.server.hold(&format!("/threads/{THREAD}/runs?"));
        let address = served.address;
        let body = input(&["hi"]).to_string();
        let posted = post(address, "", &body);
        let script = async {
            served.server.held("/runs/stream").await.cut();
            let mut kept = Vec::new();
            loop {
                let list = served.server.held("/runs?").await;
                match answer {
                    "refuses" => list.json_if_there(500, "{}").await,
                    "may list no runs" => list.json_if_there(403, "{}").await,
                    _ => kept.push(list),
                }
            }
        };
        let told = timely(address, async {
            tokio::select! {
                mut response = posted => refused(&mut response).await,
                never = script => never,
            }
        });
        let message = "the connection to the LangGraph server broke: connection closed before \
                       message completed; look at the thread before you try again: it may have acted";
        let expected = refusal("502 Bad Gateway", "upstream_interrupted", message);
        assert_eq!(told.await, expected, "{answer}");
        assert_eq!(served.posts(), 1, "{answer}");
    }
}

/// The JavaScript server lists the oldest runs first. The run may be over and beyond the list.
#[tokio::test]
async fn a_full_list_of_the_oldest_runs_does_not_show_that_no_run_was_started() {
    let mut served = Served::before(LangGraph::javascript().await, json!({})).await;
    let full = |served: &Served, _: &Exchange| {
        for run in 0..100 {
            served.lists(
                &format!("R{run}"),
                "success",
                &format!("2026-11-22T11:{run}"),
                &json!({}),
            );
        }
    };
    let mut response = interrupted(&mut served, "cut", full).await;
    let (_, body) = refused(&mut response).await;
    assert!(body.contains("it may have acted"), "{body}");
}

#[tokio::test]
async fn of_two_runs_with_the_token_the_first_is_read_and_no_third_is_started() {
    let mut served = Served::python(json!({})).await;
    let copied = |served: &Served, start: &Exchange| {
        served.lists(OURS, "success", "2026-11-22T11:00:00Z", &metadata_of(start));
        served.lists(FOREIGN, "running", "2026-11-22T11:00:01Z", &metadata_of(start));
    };
    let mut response = interrupted(&mut served, "cut", copied).await;
    let run = soon("a join", served.server.joined()).await;
    assert_eq!(run.id, OURS);
    run.ends_with(&json!([])).await;
    assert_eq!(soon("the end", response.rest()).await.last().unwrap()["type"], "RUN_FINISHED");
    assert_eq!(served.posts(), 1);
}

#[tokio::test]
async fn a_stop_waits_for_the_lookup_also_if_the_client_has_left() {
    let mut served = Served::python(json!({})).await;
    let address = served.address;
    let body = input(&["hi"]).to_string();
    let list = format!("GET /threads/{THREAD}/runs?");
    let metadata = {
        let posted = post(address, "", &body);
        let script = async {
            let start = served.server.held("/runs/stream").await;
            let metadata = metadata_of(&start);
            start.cut();
            metadata
        };
        tokio::select! {
            _ = posted => panic!("the run was looked up already"),
            metadata = script => metadata,
        }
    };
    let stopped = served.stop_run();
    let script = async {
        // The stop has found no run, and waits.
        served.server.until("the stop's lists", |server| server.asked(&list).len() >= 2).await;
        served.lists(OURS, "running", "2026-11-22T11:00:00Z", &metadata);
    };
    let ((_, told), ()) = timely(address, async { tokio::join!(stopped, script) }).await;
    assert!(told.contains(r#""stopped":true"#), "{told}");
    assert_eq!(served.server.cancelled(), [OURS]);
}

#[tokio::test]
async fn a_lookup_that_nobody_waits_for_does_not_delay_a_shutdown() {
    let mut served = Served::python(json!({})).await;
    let clock = HeldClock::pause();
    let body = input(&["hi"]).to_string();
    {
        let posted = post(served.address, "", &body);
        let script = async { served.server.held("/runs/stream").await.cut() };
        tokio::select! {
            _ = posted => panic!("the run was looked up already"),
            () = script => {}
        }
    }
    served.stop.cancel();
    // No time passes.
    while let Some(ended) = served.serving.join_next().await {
        ended.unwrap();
    }
    drop(clock);
}

// === the state that goes up ===

/// A fork sends the result of an abandoned call up with its message. The state that it begins with
/// lacks the result, as does the one before both branches.
#[tokio::test]
async fn a_value_of_the_branch_that_a_fork_has_left_is_not_sent_up() {
    let asked = json!({"id": "m0", "type": "human", "content": "look"});
    let call = json!({"id": "m1", "type": "ai", "content": "", "tool_calls": [
        {"id": "call", "name": "confirm", "args": {}}]});
    let result = json!({"id": "t1", "type": "tool", "content": "none", "tool_call_id": "call"});
    let more = json!({"id": "m2", "type": "human", "content": "and?"});
    let answer = |id: &str| json!({"id": id, "type": "ai", "content": id});
    let (first, second) = (answer("left"), answer("kept"));
    let values = |messages: &[&Value], log: &[&str]| json!({"messages": messages, "log": log});
    let checkpoint = |id: &str, parent: &str, values: Value| {
        json!({"values": values, "checkpoint": {"checkpoint_id": id},
            "parent_checkpoint": {"checkpoint_id": parent}})
    };
    let newest = values(&[&asked, &call, &result, &more, &second], &["a", "kept"]);
    let history = json!([
        checkpoint("c5", "c4", newest.clone()),
        checkpoint("c4", "c1", values(&[&asked, &call], &["a"])),
        checkpoint("c3", "c2", values(&[&asked, &call, &result, &more, &first], &["a", "left"])),
        checkpoint("c2", "c1", values(&[&asked, &call, &result, &more], &["a"])),
        checkpoint("c1", "c0", values(&[&asked, &call], &["a"])),
    ]);
    let mut front = Served::python(json!({})).await;
    let mut state = state("R0", &newest["messages"], &json!([]));
    state["values"] = newest;
    front.server.thread(THREAD, json!({}), Some(state));

    let sent = json!({"threadId": THREAD, "runId": "r1", "state": {"log": ["a", "left"]},
    "messages": [
        {"id": "m0", "role": "user", "content": "look"},
        {"id": "m1", "role": "assistant", "toolCalls": [{"id": "call", "type": "function",
            "function": {"name": "confirm", "arguments": "{}"}}]},
        {"id": "t1", "role": "tool", "toolCallId": "call", "content": "none"},
        {"id": "m2", "role": "user", "content": "and?"},
        {"id": "left", "role": "assistant", "content": "left"},
        {"id": "m3", "role": "user", "content": "go on"},
    ]});
    let script = async {
        loop {
            let request = front.server.held("/").await;
            if request.line.ends_with("/runs/stream") {
                break request;
            }
            request.json(200, &history.to_string()).await;
        }
    };
    let body = sent.to_string();
    let run = tokio::select! {
        run = script => run,
        _ = async { post(front.address, "", &body).await.rest().await } => unreachable!(),
    };
    let body: Value = serde_json::from_str(&run.body).unwrap();
    assert_eq!(body["input"]["messages"].as_array().unwrap().len(), 1, "{body}");
    assert_eq!(body["input"]["log"], Value::Null, "the thread has had this value: {body}");
}
