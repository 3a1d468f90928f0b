//! Connecting to a thread: its content when idle, and its live run from there to the end.

use std::time::Duration;

use crate::support::clock::HeldClock;
use crate::support::gateway::{
    COLUMNS, Gateway, RUN, Response, THREAD, connect_request, end, events_request, input, part,
    refusal, refused, says, start, token, values,
};
use crate::support::judge;
use crate::support::schema::Schema;
use crate::support::upstream::Exchange;
use serde_json::{Value, json};
use threadway::runs::{LINGER, OwnerPolicy};
use threadway::server::Limits;
use threadway::upstream::MAX_ANSWER_BYTES;
use tokio::task::JoinSet;

/// After how long a silence a replay counts as complete.
const QUIET: Duration = Duration::from_millis(10);

/// How long a replay may take before its readers get a snapshot.
const CATCH_UP: Duration = Duration::from_secs(2);

/// The longest pause before a run is joined again.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How often the gateway polls the status of a run that it cannot join.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

// === the upstream's data ===

/// The live run's record in LangGraph.
fn record(status: &str, is_resumable: bool, modes: &[&str]) -> Value {
    json!([{
        "run_id": RUN,
        "status": status,
        "created_at": "2026-11-22T08:00:00Z",
        "metadata": {"threadway_run_id": "r9", "threadway_start": "s9"},
        "kwargs": {"resumable": is_resumable, "stream_mode": modes},
    }])
}

/// A run that a gateway has started: its stream is stored, and has the `values` mode.
fn replayable() -> Value {
    record("running", true, &["values", "messages-tuple"])
}

/// A run that one of LangGraph's own clients has started: its stream is not stored.
fn passing() -> Value {
    record("running", false, &["values", "messages-tuple"])
}

/// The thread's state with these values, made by this run.
fn state_of(run_id: &str, values: &Value) -> Value {
    json!({
        "values": values, "next": [], "tasks": [],
        "metadata": {"run_id": run_id}, "checkpoint": {"checkpoint_id": "C"},
    })
}

/// The messages `hi` and an answer, with a counter.
fn counted(messages: &[&str], count: u64) -> Value {
    let mut values = values(messages);
    values["count"] = json!(count);
    values
}

/// The messages `hi` and this answer.
fn values_of(answer: &str) -> Value {
    let mut values = values(&["hi", ""]);
    values["messages"][1]["content"] = json!(answer);
    values
}

fn metadata() -> String {
    part("metadata", &json!({"run_id": RUN, "attempt": 1}))
}

/// A token that a node sends in this superstep.
fn token_of(step: u64, id: &str, text: &str) -> String {
    let chunk = json!({"type": "AIMessageChunk", "id": id, "content": text});
    part("messages", &json!([chunk, {"langgraph_step": step}]))
}

/// A part with its id in the server's store.
fn kept(id: &str, part: &str) -> String {
    format!("id: {id}\r\n{part}")
}

// === the clients' events ===

fn started(run_id: &str, langgraph_run_id: Option<&str>) -> Value {
    let mut langgraph = json!({"thread_id": THREAD});
    if let Some(run_id) = langgraph_run_id {
        langgraph["run_id"] = json!(run_id);
    }
    json!({"type": "RUN_STARTED", "threadId": THREAD, "runId": run_id, "protocolVersion": "1.0",
           "metadata": {"langgraph": langgraph}})
}

fn finished(run_id: &str, outcome: &str) -> Value {
    json!({"type": "RUN_FINISHED", "threadId": THREAD, "runId": run_id,
           "outcome": {"type": outcome}})
}

fn state(state: &Value) -> Value {
    json!({"type": "STATE_SNAPSHOT", "snapshot": state})
}

/// The first message is the user's, then they alternate.
fn messages(messages: &[(&str, &str)]) -> Value {
    let message = |(at, (id, text)): (usize, &(&str, &str))| {
        let role = if at % 2 == 0 { "user" } else { "assistant" };
        json!({"id": id, "role": role, "content": text})
    };
    let messages: Vec<_> = messages.iter().enumerate().map(message).collect();
    json!({"type": "MESSAGES_SNAPSHOT", "messages": messages})
}

fn error(message: &str, code: &str) -> Value {
    json!({"type": "RUN_ERROR", "message": message, "code": code})
}

// === scripts ===

impl Gateway {
    /// Connects a client to a live run, which the gateway joins. The client has received
    /// `RUN_STARTED`.
    async fn joined(&self, runs: Value) -> (Response, Exchange) {
        let input = input(&[]);
        let script = async {
            self.runs("limit=100", runs).await;
            self.join().await
        };
        let (mut response, join) = tokio::join!(self.connect(&input), script);
        assert_eq!(response.next(1).await, [started("r9", Some(RUN))]);
        (response, join)
    }

    /// Accepts the join of the run, from its beginning.
    async fn join(&self) -> Exchange {
        self.joined_behind("-1").await
    }

    /// Connects one more client, while the run is being read.
    async fn another(&self, runs: Value) -> Response {
        let input = input(&[]);
        let script = self.runs("limit=100", runs);
        let (mut response, ()) = tokio::join!(self.connect(&input), script);
        assert_eq!(response.next(1).await, [started("r9", Some(RUN))]);
        response
    }

    /// Answers the request for the error of the thread's last run.
    async fn thread(&self, thread: Value) {
        let get = self.upstream.expect(&format!("GET /threads/{THREAD}")).await;
        get.json(200, &thread.to_string()).await;
    }

    /// The events of a client that connects to the idle thread.
    async fn at_rest(
        &self,
        input: &Value,
        last: Value,
        script: impl AsyncFnOnce(&Self),
    ) -> Vec<Value> {
        let script = async {
            self.no_live_runs(last).await;
            script(self).await;
        };
        let (mut response, ()) = tokio::join!(self.connect(input), script);
        let told = response.rest().await;
        judge::closed(&Schema::load(), &told).unwrap();
        told
    }
}

// === an idle thread ===

#[tokio::test]
async fn a_thread_at_rest_is_shown_to_those_who_do_not_hold_it_and_is_over() {
    let gateway = Gateway::start().await;
    let thread = || state_of(RUN, &counted(&["hi", "you"], 1));
    let whole = || messages(&[("m0", "hi"), ("m1", "you")]);
    let mut reversed = input(&["hi", "you"]);
    reversed["messages"].as_array_mut().unwrap().reverse();
    let mut emptied = whole();
    emptied["messages"].as_array_mut().unwrap().push(json!({"role": "activity",
        "id": "threadway:resync:attachment", "activityType": "threadway.empty", "content": {}}));
    for (input, shown) in [
        (input(&[]), vec![whole()]),
        (input(&["hi"]), vec![whole()]),
        (input(&["hi", "you"]), vec![]),
        (input(&["hi", "me"]), vec![whole()]),
        (input(&["hi", "you", "and more"]), vec![whole()]),
        // A client keeps its own order of messages, and may have others' attachments.
        (reversed, vec![messages(&[]), emptied]),
    ] {
        let last = record("success", true, &[]);
        let told = gateway.at_rest(&input, last, async |g| g.state(Some(thread())).await).await;
        let mut expected = vec![started("r1", None), state(&json!({"count": 1}))];
        expected.extend(shown);
        expected.push(finished("r1", "success"));
        assert_eq!(told, expected, "{input}");
    }
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn however_many_load_a_thread_at_once_it_is_looked_at_twice() {
    let gateway = Gateway::start().await;
    let input = input(&[]);
    let thread = |count: u64| state_of(RUN, &counted(&["hi", "you"], count));
    let is_shown = async |response: &mut Response, count: u64| {
        let whole = messages(&[("m0", "hi"), ("m1", "you")]);
        let expected = [
            started("r1", None),
            state(&json!({"count": count})),
            whole,
            finished("r1", "success"),
        ];
        assert_eq!(response.rest().await, expected);
    };
    let looks = async {
        let runs = format!("GET /threads/{THREAD}/runs?limit=100{COLUMNS}");
        let first = gateway.upstream.expect(&runs).await;
        // These clients connect while the first state is being read: that state may be older than
        // they are.
        let others = futures_util::future::join_all((0..20).map(|_| gateway.connect(&input)));
        let look = async {
            gateway.settled().await;
            first.json(200, &record("success", true, &[]).to_string()).await;
            gateway.state(Some(thread(1))).await;
            gateway.no_live_runs(record("success", true, &[])).await;
            gateway.state(Some(thread(2))).await;
        };
        tokio::join!(others, look).0
    };
    let (mut first, others) = tokio::join!(gateway.connect(&input), looks);
    is_shown(&mut first, 1).await;
    for mut other in others {
        is_shown(&mut other, 2).await;
    }
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn nobody_knows_what_an_event_source_holds() {
    let gateway = Gateway::start().await;
    for (checkpoint, name) in
        [(json!({"checkpoint_id": "C"}), "connect-C"), (Value::Null, &*format!("connect-{THREAD}"))]
    {
        let mut thread = state_of(RUN, &counted(&["hi", "you"], 1));
        thread["checkpoint"] = checkpoint;
        let script = async {
            gateway.no_live_runs(record("success", true, &[])).await;
            gateway.state(Some(thread)).await;
        };
        let (mut response, ()) = tokio::join!(gateway.events(""), script);
        assert!(response.head.contains("content-type: text/event-stream\r\n"), "{}", response.head);
        let expected = [
            started(name, None),
            state(&json!({"count": 1})),
            messages(&[]),
            messages(&[("m0", "hi"), ("m1", "you")]),
            finished(name, "success"),
        ];
        assert_eq!(response.rest().await, expected);
    }
}

#[tokio::test]
async fn a_thread_that_is_not_there_is_told_as_nothing_and_not_made() {
    let gateway = Gateway::start().await;
    let script = async {
        // The two servers answer 404 in different words.
        gateway.upstream.next().await.json(404, r#"{"detail":"Thread not found"}"#).await;
        gateway.state(None).await;
    };
    let input = input(&["hi"]);
    let (mut response, ()) = tokio::join!(gateway.connect(&input), script);
    assert_eq!(response.rest().await, [started("r1", None), finished("r1", "success")]);

    let script = async {
        gateway.no_live_runs(json!([])).await;
        gateway.state(None).await;
    };
    let (mut response, ()) = tokio::join!(gateway.events(""), script);
    let name = format!("connect-{THREAD}");
    assert_eq!(response.rest().await, [started(&name, None), finished(&name, "success")]);
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn the_questions_that_a_thread_waits_for_are_told_at_rest() {
    let gateway = Gateway::start().await;
    let mut thread = state_of(RUN, &counted(&["hi"], 1));
    thread["next"] = json!(["ask"]);
    thread["tasks"] = json!([{"id": "t", "interrupts": [{"id": "i", "value": "sure?"}]}]);
    let (input, last) = (input(&["hi"]), record("success", true, &[]));
    let told = gateway.at_rest(&input, last, async |g| g.state(Some(thread)).await).await;
    let question = json!({"id": "i", "reason": "langgraph:interrupt", "message": "sure?",
                          "metadata": {"langgraph": {"value": "sure?"}}});
    assert_eq!(told[2]["outcome"], json!({"type": "interrupt", "interrupts": [question]}));
    assert_eq!(told[..2], [started("r1", None), state(&json!({"count": 1}))]);
}

#[tokio::test]
async fn nodes_that_would_run_next_are_a_breakpoint_unless_the_last_run_broke_off() {
    let breakpoint = json!({"type": "interrupt", "interrupts": [
        {"id": format!("{THREAD}:breakpoint"), "reason": "langgraph:breakpoint"}
    ]});
    let success = json!({"type": "success"});
    let mut thread = state_of(RUN, &counted(&["hi"], 1));
    thread["next"] = json!(["model"]);
    let (python, javascript) = (Gateway::start().await, Gateway::javascript().await);
    let aegra = Gateway::aegra().await;
    for (gateway, status, of_thread, outcome) in [
        (&python, "success", None, &breakpoint),
        (&python, "interrupted", None, &success),
        (&javascript, "success", None, &breakpoint),
        (&javascript, "interrupted", None, &success),
        // The status of a run that was stopped, on a JavaScript server before 1.4.4.
        (&javascript, "error", Some("error"), &success),
        // aegra's status for a run that was stopped, and for one that asks.
        (&aegra, "interrupted", Some("interrupted"), &breakpoint),
        (&aegra, "interrupted", Some("idle"), &success),
    ] {
        let mut runs = record(status, true, &[]);
        // An earlier run that failed does not matter.
        let earlier = json!({"run_id": "earlier", "status": "error", "created_at": "2026-11-21"});
        runs.as_array_mut().unwrap().push(earlier);
        let input = input(&["hi"]);
        let told = gateway.at_rest(&input, runs, async |gateway| {
            gateway.state(Some(thread.clone())).await;
            if let Some(status) = of_thread {
                gateway.thread(json!({"thread_id": THREAD, "status": status})).await;
            }
        });
        let told = told.await;
        assert_eq!(told[2]["outcome"], *outcome, "{status}");
        assert_eq!(told[2]["metadata"], Value::Null, "{status}");
        gateway.upstream.is_untouched().await;
    }
}

#[tokio::test]
async fn why_the_last_run_failed_is_told_on_both_servers() {
    let (python, javascript) = (Gateway::start().await, Gateway::javascript().await);
    let in_thread = json!({"error": {"error": "ValueError", "message": "boom"}});
    // In the form that the graph library prints.
    let in_task = json!([{"id": "t", "error": r#"{"name":"ValueError","message":"boom"}"#}]);
    // A JavaScript graph of the Python server: the state has an object.
    let as_object = json!([{"id": "t", "error": {"name": "ValueError", "message": "boom"}}]);
    for (gateway, thread, tasks) in [
        (&python, in_thread, json!([])),
        (&javascript, json!({"status": "error"}), in_task),
        (&python, json!({"status": "error"}), as_object),
    ] {
        let mut state = state_of(RUN, &counted(&["hi"], 1));
        state["next"] = json!(["model"]);
        state["tasks"] = tasks;
        let (input, last) = (input(&["hi"]), record("error", true, &[]));
        let told = gateway.at_rest(&input, last, async |gateway| {
            gateway.state(Some(state)).await;
            gateway.thread(thread).await;
        });
        let told = told.await;
        let boom = json!({"langgraph": {"error": {"code": "ValueError", "message": "boom"}}});
        assert_eq!(told[2]["metadata"], boom);
        assert_eq!(told[2]["outcome"], json!({"type": "success"}));
    }
}

// === a live run whose stream is stored ===

#[tokio::test]
async fn one_who_comes_to_a_live_run_gets_it_as_it_stands_and_then_its_tail() {
    let gateway = Gateway::start().await;
    let clock = HeldClock::pause();
    let (mut first, mut join) = gateway.joined(replayable()).await;
    let values = part("values", &counted(&["hi"], 1));
    join.send([metadata(), values, token("m1", "one ")].concat()).await;
    gateway.settled().await;
    // The replay may continue, so no client has received anything, not even one that connects now.
    let mut second = gateway.another(replayable()).await;
    join.send(token("m1", "two ")).await;
    gateway.settled().await;
    clock.advance(QUIET).await;
    let present =
        [state(&json!({"count": 1})), messages(&[("m0", "hi"), ("m1", "one two ")]), start("m1")];
    assert_eq!(first.next(3).await, present);
    assert_eq!(second.next(3).await, present);

    join.send(token("m1", "three")).await;
    for viewer in [&mut first, &mut second] {
        assert_eq!(viewer.next(1).await, [says("m1", "three")]);
    }
    // A client that connects to a run that is being read waits for nothing, and gets the text so
    // far.
    let mut third = gateway.another(replayable()).await;
    let present = [
        state(&json!({"count": 1})),
        messages(&[("m0", "hi"), ("m1", "one two three")]),
        start("m1"),
    ];
    assert_eq!(third.next(3).await, present);

    join.send(part("values", &counted(&["hi", "one two three"], 2))).await;
    join.end().await;
    gateway.status("success").await;
    gateway.state(Some(state_of(RUN, &counted(&["hi", "one two three"], 2)))).await;
    for mut viewer in [first, second, third] {
        let delta = json!([{"op": "replace", "path": "/count", "value": 2}]);
        let rest = viewer.rest().await;
        assert_eq!(rest.last(), Some(&finished("r9", "success")), "{rest:#?}");
        assert!(rest.contains(&end("m1")), "{rest:#?}");
        let told = |value: &Value| {
            *value == json!({"type": "STATE_DELTA", "delta": delta})
                || *value == state(&json!({"count": 2}))
        };
        assert_eq!(rest.iter().filter(|event| told(event)).count(), 1, "{rest:#?}");
        assert_eq!(rest.len(), 3, "{rest:#?}");
    }
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn a_run_goes_by_langgraphs_id_where_no_gateway_has_started_it() {
    let gateway = Gateway::start().await;
    let mut runs = replayable();
    runs[0]["metadata"] = json!({});
    let script = async {
        gateway.runs("limit=100", runs).await;
        gateway.join().await
    };
    let (mut response, _join) = tokio::join!(gateway.events(""), script);
    assert_eq!(response.next(1).await, [started(RUN, Some(RUN))]);
}

#[tokio::test]
async fn an_event_source_that_comes_again_is_brought_to_the_run_whatever_it_holds() {
    let gateway = Gateway::start().await;
    let script = async {
        gateway.runs("limit=100", replayable()).await;
        gateway.join().await
    };
    let (mut response, mut join) = tokio::join!(gateway.events(""), script);
    let values = part("values", &counted(&["hi"], 1));
    join.send([metadata(), values, token("m1", "one ")].concat()).await;
    let expected = [
        started("r9", Some(RUN)),
        state(&json!({"count": 1})),
        messages(&[]),
        messages(&[("m0", "hi"), ("m1", "one ")]),
        start("m1"),
    ];
    assert_eq!(response.next(5).await, expected);
}

#[tokio::test]
async fn what_a_replay_brings_twice_is_told_once() {
    let gateway = Gateway::start().await;
    let input = input(&[]);
    let script = async {
        gateway.runs("limit=100", replayable()).await;
        let line = format!("GET /threads/{THREAD}/runs/{RUN}/stream");
        let mut join = gateway.upstream.expect(&line).await;
        // Parts from before that time are no repeats.
        join.begin("date: Thu, 01 Jan 1970 00:00:01 GMT\r\n").await;
        join
    };
    let (mut response, mut join) = tokio::join!(gateway.connect(&input), script);
    let values = kept("8-0", &part("values", &values(&["hi"])));
    let x = kept("9-0", &token("m1", "x"));
    let y = kept("9-0", &token("m1", "y"));
    let replay = [
        kept("7-0", &metadata()),
        values.clone(),
        // A token may be sent twice in one millisecond.
        x.clone(),
        x.clone(),
        y.clone(),
        // The Python server's block of repeats, whose ids step back.
        values,
        x.clone(),
        x,
        y,
        kept("10-0", &token("m1", "z")),
    ];
    join.send(replay.concat()).await;
    let present = [messages(&[("m0", "hi"), ("m1", "xxyz")]), start("m1")];
    assert_eq!(response.next(4).await[2..], present);
    join.send(kept("11-0", &token("m1", "!"))).await;
    assert_eq!(response.next(1).await, [says("m1", "!")]);
}

#[tokio::test]
async fn of_an_equal_pair_that_may_be_the_block_of_repeats_another_join_tells_what_it_is() {
    for (is_pair, behind, text) in
        [(false, None, "x"), (true, None, "xx"), (true, Some("y"), "xxy"), (false, Some("y"), "xy")]
    {
        let gateway = Gateway::start().await;
        let (mut response, mut join) = gateway.joined(replayable()).await;
        let values = kept("8-0", &part("values", &values(&["hi"])));
        let x = kept("9-0", &token("m1", "x"));
        join.send([kept("7-0", &metadata()), values, x.clone(), x.clone()].concat()).await;
        let mut join = gateway.joined_behind("8-0").await;
        let stored = if is_pair { x.repeat(2) } else { x };
        let behind = behind.map(|text| kept("10-0", &token("m1", text))).unwrap_or_default();
        join.send(stored + &behind).await;
        let present = [messages(&[("m0", "hi"), ("m1", text)]), start("m1")];
        assert_eq!(response.next(3).await[1..], present);
        join.send(kept("11-0", &token("m1", "!"))).await;
        assert_eq!(response.next(1).await, [says("m1", "!")]);
    }
}

#[tokio::test]
async fn a_run_of_nothing_but_pairs_is_joined_32_times_more_and_then_loses_one_token() {
    let gateway = Gateway::start().await;
    let (mut response, mut join) = gateway.joined(replayable()).await;
    let values = kept("8-0", &part("values", &values(&["hi"])));
    join.send([kept("7-0", &metadata()), values].concat()).await;
    assert_eq!(response.next(2).await[1], messages(&[("m0", "hi")]));
    let pair = |at: u32| kept(&format!("{at}-0"), &token("m1", "x")).repeat(2);
    for at in 10..42 {
        join.send(pair(at)).await;
        let before = if at == 10 { 8 } else { at - 1 };
        join = gateway.joined_behind(&format!("{before}-0")).await;
        join.send(pair(at)).await;
        let told = response.next(if at == 10 { 3 } else { 2 }).await;
        assert!(told.ends_with(&[says("m1", "x"), says("m1", "x")]), "{told:#?}");
    }
    join.send(pair(42)).await;
    join.send(pair(43)).await;
    let told = [says("m1", "x"), says("m1", "x"), says("m1", "x")];
    assert_eq!(response.next(3).await, told);
    // The next committed state restores the text.
    let text = "x".repeat(68);
    join.send(kept("44-0", &part("values", &values_of(&text)))).await;
    assert_eq!(response.next(2).await, [says("m1", "x"), end("m1")]);
}

#[tokio::test]
async fn a_run_that_never_falls_silent_is_told_after_two_seconds() {
    let gateway = Gateway::start().await;
    let clock = HeldClock::pause();
    let (mut response, mut join) = gateway.joined(replayable()).await;
    join.send([metadata(), part("values", &values(&["hi"]))].concat()).await;
    let mut passed = Duration::ZERO;
    let mut text = String::new();
    while passed <= CATCH_UP {
        join.send(token("m1", "x")).await;
        text.push('x');
        gateway.settled().await;
        clock.advance(QUIET / 2).await;
        passed += QUIET / 2;
    }
    let told = response.next(3).await;
    assert_eq!(told[2], start("m1"));
    // The clock is slightly ahead of the sum of the steps.
    let shown = told[1]["messages"][1]["content"].as_str().unwrap();
    let rest = text.strip_prefix(shown).unwrap();
    assert!(rest.len() < text.len() / 4, "{} of {}", rest.len(), text.len());
    for _ in rest.chars() {
        assert_eq!(response.next(1).await, [says("m1", "x")]);
    }
}

// === a live run whose stream is not stored ===

#[tokio::test]
async fn what_was_half_said_before_a_run_was_joined_is_shown_once_it_is_whole() {
    let gateway = Gateway::start().await;
    // There is no replay to wait for.
    let _clock = HeldClock::pause();
    let (mut response, mut join) = gateway.joined(passing()).await;
    // The gateway joins before it asks for the state, so that nothing is lost in between.
    gateway.state(Some(state_of("earlier", &counted(&["hi"], 1)))).await;
    let present = [state(&json!({"count": 1})), messages(&[("m0", "hi")])];
    assert_eq!(response.next(2).await, present);

    join.send(token_of(1, "m1", "two ")).await;
    join.send(token_of(1, "m1", "three")).await;
    join.send(part("values", &counted(&["hi", "one two three"], 2))).await;
    let told = response.next(4).await;
    let whole = [start("m1"), says("m1", "one two three"), end("m1")];
    assert_eq!(told[1..], whole);
    assert_eq!(told[0], state(&json!({"count": 2})));
    // A message that streams now has begun since the state.
    join.send(token_of(1, "m2", "four ")).await;
    assert_eq!(response.next(2).await, [start("m2"), says("m2", "four ")]);

    join.end().await;
    gateway.status("success").await;
    // The state has the messages that the stream has not sent.
    let values = json!({"messages": [
        {"id": "m0", "type": "human", "content": "hi"},
        {"id": "m1", "type": "ai", "content": "one two three"},
        {"id": "m2", "type": "ai", "content": "four five"},
    ], "count": 3});
    gateway.state(Some(state_of(RUN, &values))).await;
    let snapshot = json!({"type": "MESSAGES_SNAPSHOT", "messages": [
        {"id": "m0", "role": "user", "content": "hi"},
        {"id": "m1", "role": "assistant", "content": "one two three"},
        {"id": "m2", "role": "assistant", "content": "four five"},
    ]});
    let end = [state(&json!({"count": 3})), end("m2"), snapshot, finished("r9", "success")];
    assert_eq!(response.rest().await, end);
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn without_the_state_in_its_stream_a_later_superstep_shows_who_begins() {
    let gateway = Gateway::start().await;
    let runs = record("running", false, &["messages-tuple"]);
    let (mut response, mut join) = gateway.joined(runs).await;
    gateway.state(Some(state_of("earlier", &counted(&["hi"], 1)))).await;
    let present = [state(&json!({"count": 1})), messages(&[("m0", "hi")])];
    assert_eq!(response.next(2).await, present);
    join.send([token_of(4, "m1", "two"), token_of(5, "m2", "three")].concat()).await;
    assert_eq!(response.next(2).await, [start("m2"), says("m2", "three")]);

    join.end().await;
    gateway.status("success").await;
    let values = json!({"messages": [
        {"id": "m0", "type": "human", "content": "hi"},
        {"id": "m1", "type": "ai", "content": "one two"},
        {"id": "m2", "type": "ai", "content": "three"},
    ], "count": 1});
    gateway.state(Some(state_of(RUN, &values))).await;
    let rest = response.rest().await;
    let last = rest.iter().rfind(|event| event["type"] == "MESSAGES_SNAPSHOT").unwrap();
    assert_eq!(last["messages"][1], json!({"id": "m1", "role": "assistant", "content": "one two"}));
    assert_eq!(last["messages"][2]["content"], "three");
    assert_eq!(last["messages"].as_array().unwrap().len(), 3);
    assert_eq!(rest.last().unwrap(), &finished("r9", "success"));
    assert_eq!(rest[0], end("m2"));
}

#[tokio::test]
async fn a_replay_that_does_not_begin_with_its_run_is_taken_for_none() {
    let gateway = Gateway::start().await;
    let (mut response, mut join) = gateway.joined(replayable()).await;
    join.send(token_of(1, "m1", "two ")).await;
    gateway.state(Some(state_of("earlier", &counted(&["hi"], 1)))).await;
    let present = [state(&json!({"count": 1})), messages(&[("m0", "hi")])];
    assert_eq!(response.next(2).await, present);
    join.send(part("values", &counted(&["hi", "one two"], 1))).await;
    let whole = [start("m1"), says("m1", "one two"), end("m1")];
    assert_eq!(response.next(3).await, whole);
}

#[tokio::test]
async fn a_state_that_cannot_be_read_for_a_moment_is_read_again() {
    let gateway = Gateway::start().await;
    let clock = HeldClock::pause();
    let (mut response, mut join) = gateway.joined(passing()).await;
    let line = format!("GET /threads/{THREAD}/state");
    // For half a minute the server fails. No pause is longer than a second.
    let mut pause = Duration::from_millis(200);
    let mut failing = Duration::ZERO;
    while failing < Duration::from_secs(30) {
        gateway.upstream.expect(&line).await.json(500, "{}").await;
        gateway.settled().await;
        clock.advance(pause).await;
        failing += pause;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
    let state_now = state_of("earlier", &counted(&["hi"], 1));
    gateway.upstream.expect(&line).await.json(200, &state_now.to_string()).await;
    let present = [state(&json!({"count": 1})), messages(&[("m0", "hi")])];
    assert_eq!(response.next(2).await, present);
    join.send(token_of(1, "m2", "four ")).await;
    gateway.settled().await;
}

// === a live run that must not be joined ===

/// Answers the request for the run's record.
async fn status(gateway: &Gateway, status: &str) {
    let get = gateway.upstream.expect(&format!("GET /threads/{THREAD}/runs/{RUN}")).await;
    get.json(200, &record(status, false, &["values"])[0].to_string()).await;
}

/// A client of a run that the gateway follows by its record; the client has received the state.
async fn followed_by_its_record(gateway: &Gateway) -> Response {
    let input = input(&[]);
    let script = async {
        gateway.runs("limit=100", passing()).await;
        gateway.state(Some(state_of("earlier", &counted(&["hi"], 1)))).await;
    };
    let (mut response, ()) = tokio::join!(gateway.connect(&input), script);
    let present =
        [started("r9", Some(RUN)), state(&json!({"count": 1})), messages(&[("m0", "hi")])];
    assert_eq!(response.next(3).await, present);
    response
}

#[tokio::test]
async fn the_javascript_server_is_asked_for_the_record_and_the_state_instead() {
    let clock = HeldClock::pause();
    let failed = json!([{"id": "t", "error": r#"{"name":"ValueError","message":"boom"}"#}]);
    for (tasks, last) in
        [(failed, error("boom", "ValueError")), (json!([]), finished("r9", "cancelled"))]
    {
        let gateway = Gateway::javascript().await;
        let mut response = followed_by_its_record(&gateway).await;
        gateway.upstream.is_untouched().await;
        clock.advance(STATUS_INTERVAL).await;
        status(&gateway, "running").await;
        gateway.state(Some(state_of(RUN, &counted(&["hi", "one"], 2)))).await;
        let step = [state(&json!({"count": 2})), messages(&[("m0", "hi"), ("m1", "one")])];
        assert_eq!(response.next(2).await, step);

        clock.advance(STATUS_INTERVAL).await;
        status(&gateway, "error").await;
        // The gateway asks for the outcome as it does for any run.
        status(&gateway, "error").await;
        gateway.thread(json!({"status": "error"})).await;
        let mut thread = state_of(RUN, &counted(&["hi", "one"], 3));
        thread["tasks"] = tasks;
        thread["next"] = json!(["model"]);
        gateway.state(Some(thread)).await;
        assert_eq!(response.rest().await, [state(&json!({"count": 3})), last]);
        gateway.upstream.is_untouched().await;
    }
}

#[tokio::test]
async fn a_run_that_is_followed_by_its_record_and_stopped_by_us_is_cancelled() {
    let gateway = Gateway::javascript().await;
    let clock = HeldClock::pause();
    let mut response = followed_by_its_record(&gateway).await;
    let request = format!(
        "POST /agui/agent/agent/stop/{THREAD} HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n"
    );
    let script = async {
        gateway.runs("status=pending&limit=100", json!([])).await;
        gateway.runs("status=running&limit=100", passing()).await;
        let cancel = format!("POST /threads/{THREAD}/runs/{RUN}/cancel");
        gateway.upstream.expect(&cancel).await.json(202, "").await;
    };
    let (mut answer, ()) = tokio::join!(Response::to(gateway.address, request.as_bytes()), script);
    assert!(answer.body().await.starts_with(r#"{"stopped":true"#));
    clock.advance(STATUS_INTERVAL).await;
    // The record says only that the run failed, and the task may have an error of its own.
    status(&gateway, "error").await;
    status(&gateway, "error").await;
    let mut thread = state_of(RUN, &counted(&["hi"], 1));
    thread["tasks"] = json!([{"id": "t", "error": r#"{"name":"Error","message":"Abort"}"#}]);
    gateway.state(Some(thread)).await;
    assert_eq!(response.rest().await, [finished("r9", "cancelled")]);
}

/// The JavaScript server lists runs with their inputs, the oldest first.
#[tokio::test]
async fn a_list_of_runs_that_is_too_large_is_read_in_parts() {
    let gateway = Gateway::javascript().await;
    let large = json!([{"run_id": "old", "kwargs": {"input": "x".repeat(MAX_ANSWER_BYTES)}}]);
    let old = (0..25).map(|at| json!({"run_id": at.to_string(), "status": "success"}));
    let input = input(&["hi", "you"]);
    let script = async {
        gateway.runs("limit=100", large.clone()).await;
        gateway.runs("limit=50", large).await;
        gateway.runs("limit=25", old.collect()).await;
        let runs = record("running", true, &["values", "messages-tuple"]);
        gateway.runs("limit=25&offset=25", runs.clone()).await;
        // The parts have no inputs.
        let get = gateway.upstream.expect(&format!("GET /threads/{THREAD}/runs/{RUN}")).await;
        get.json(200, &runs[0].to_string()).await;
        gateway.join().await
    };
    let (mut response, _join) = tokio::join!(gateway.connect(&input), script);
    assert_eq!(response.next(1).await, [started("r9", Some(RUN))]);
}

// === a pending run ===

/// A client of a pending run that begins with this message, and the gateway's join of the run.
async fn pending(gateway: &Gateway, message: &Value) -> (Response, Exchange) {
    let mut runs = record("pending", true, &["values", "messages-tuple"]);
    runs[0]["kwargs"]["input"] = json!({"messages": [message]});
    let input = input(&["hi", "you"]);
    let script = async {
        gateway.runs("limit=100", runs).await;
        gateway.state(Some(state_of("earlier", &counted(&["hi", "you"], 1)))).await;
        gateway.join().await
    };
    tokio::join!(gateway.connect(&input), script)
}

#[tokio::test]
async fn one_who_comes_to_a_run_that_waits_sees_what_it_begins_with() {
    let clock = HeldClock::pause();
    for (given, shown) in [(Some("m2"), "m2"), (None, "r9:input:0")] {
        let gateway = Gateway::start().await;
        let mut message = json!({"type": "human", "content": "go on"});
        if let Some(id) = given {
            message["id"] = json!(id);
        }
        let (mut response, mut join) = pending(&gateway, &message).await;
        let expected = [
            started("r9", Some(RUN)),
            state(&json!({"count": 1})),
            messages(&[("m0", "hi"), ("m1", "you"), (shown, "go on")]),
        ];
        assert_eq!(response.next(3).await, expected);
        // The run may be pending for long. The server sends heartbeats.
        for _ in 0..5 {
            clock.advance(Duration::from_secs(5)).await;
            join.send(": heartbeat\r\n\r\n").await;
            gateway.settled().await;
        }
        gateway.upstream.is_untouched().await;

        // LangGraph gives an id to each message that has none.
        let values = counted(&["hi", "you", "go on"], 1);
        join.send([metadata(), part("values", &values), token("m3", "one ")].concat()).await;
        gateway.settled().await;
        clock.advance(QUIET).await;
        let expected = if given.is_some() {
            [start("m3"), says("m3", "one ")]
        } else {
            let whole = [("m0", "hi"), ("m1", "you"), ("m2", "go on"), ("m3", "one ")];
            [messages(&whole), start("m3")]
        };
        assert_eq!(response.next(2).await, expected, "{given:?}");
        join.send(token("m3", "two")).await;
        assert_eq!(response.next(1).await, [says("m3", "two")]);
    }
}

#[tokio::test]
async fn a_run_that_gets_its_turn_between_two_lists_is_found() {
    let gateway = Gateway::start().await;
    let input = input(&[]);
    let script = async {
        // The run was delayed for so long that it is not among the newest.
        let over = |at| json!({"run_id": format!("R{at}"), "status": "success", "created_at": at});
        gateway.runs("limit=100", (0..100).map(|at| over(at.to_string())).collect()).await;
        gateway.runs("status=pending&limit=100", json!([])).await;
        gateway.runs("status=running&limit=100", replayable()).await;
        gateway.join().await
    };
    let (mut response, _join) = tokio::join!(gateway.connect(&input), script);
    assert_eq!(response.next(1).await, [started("r9", Some(RUN))]);
}

#[tokio::test]
async fn a_run_that_has_changed_the_state_and_is_not_listed_is_looked_for_once_more() {
    let gateway = Gateway::start().await;
    let input = input(&[]);
    let thread = || state_of(RUN, &counted(&["hi"], 1));
    // The run began after the lists were read.
    let script = async {
        gateway.no_live_runs(json!([])).await;
        gateway.state(Some(thread())).await;
        gateway.runs("limit=100", replayable()).await;
        gateway.join().await
    };
    let (mut response, _join) = tokio::join!(gateway.connect(&input), script);
    assert_eq!(response.next(1).await, [started("r9", Some(RUN))]);
    // The run is too old to be listed, or of another thread.
    let script = async {
        for _ in 0..2 {
            gateway.no_live_runs(json!([])).await;
            gateway.state(Some(thread())).await;
        }
    };
    let (mut response, ()) = tokio::join!(gateway.connect(&input), script);
    let whole = messages(&[("m0", "hi")]);
    let expected =
        [started("r1", None), state(&json!({"count": 1})), whole, finished("r1", "success")];
    assert_eq!(response.rest().await, expected);
}

// === how a run ends ===

#[tokio::test]
async fn where_a_later_run_has_changed_the_thread_the_history_tells_how_a_run_ended() {
    let question = json!([{"id": "t", "interrupts": [{"id": "i", "value": "sure?"}]}]);
    for (tasks, outcome) in [(question, "interrupt"), (json!([]), "success")] {
        let gateway = Gateway::start().await;
        let (mut response, mut join) = gateway.joined(passing()).await;
        gateway.state(Some(state_of("earlier", &counted(&["hi"], 1)))).await;
        response.next(2).await;
        join.send(part("values", &counted(&["hi"], 2))).await;
        response.next(1).await;
        join.end().await;
        gateway.status("success").await;
        let mut later = state_of("later", &counted(&["hi", "you", "and later"], 9));
        later["tasks"] = json!([{"id": "u", "interrupts": [{"id": "j", "value": "no!"}]}]);
        gateway.state(Some(later)).await;
        let mut own = state_of(RUN, &counted(&["hi"], 2));
        own["tasks"] = tasks;
        gateway.history(json!([own])).await;
        let rest = response.rest().await;
        assert_eq!(rest.len(), 1, "{rest:#?}");
        assert_eq!(rest[0]["outcome"]["type"], outcome);
        let asked = &rest[0]["outcome"]["interrupts"][0]["id"];
        assert_eq!(*asked, if outcome == "interrupt" { json!("i") } else { Value::Null });
    }
}

#[tokio::test]
async fn leaving_stops_nothing_and_one_who_comes_later_joins_anew() {
    let gateway = Gateway::start().await;
    let clock = HeldClock::pause();
    let (mut first, mut join) = gateway.joined(replayable()).await;
    let replay = [metadata(), part("values", &values(&["hi"])), token("m1", "one ")].concat();
    join.send(&replay).await;
    gateway.settled().await;
    clock.advance(QUIET).await;
    first.next(3).await;
    let second = gateway.another(replayable()).await;
    drop(first);
    gateway.settled().await;
    join.send(token("m1", "two ")).await;
    drop(second);
    gateway.settled().await;
    clock.advance(LINGER).await;
    join.closed().await;
    gateway.upstream.is_untouched().await;

    let (mut third, mut join) = gateway.joined(replayable()).await;
    join.send(replay + &token("m1", "two ")).await;
    gateway.settled().await;
    clock.advance(QUIET).await;
    let present = [messages(&[("m0", "hi"), ("m1", "one two ")]), start("m1")];
    assert_eq!(third.next(3).await[1..], present);
}

#[tokio::test]
async fn a_join_that_fails_is_tried_again_till_it_succeeds() {
    let gateway = Gateway::start().await;
    let clock = HeldClock::pause();
    let input = input(&[]);
    let script = async {
        gateway.runs("limit=100", replayable()).await;
        for (code, content_type) in
            [(404, "application/json"), (500, "application/json"), (200, "text/html")]
        {
            let line = format!("GET /threads/{THREAD}/runs/{RUN}/stream");
            let join = gateway.upstream.expect(&line).await;
            assert!(join.head.contains("\r\nlast-event-id: -1\r\n"), "{}", join.head);
            join.answer(code, content_type, "{}").await;
            // A server may have reasons for a 404.
            if code == 404 {
                gateway.status("running").await;
            }
            gateway.settled().await;
            clock.advance(LONGEST_PAUSE).await;
        }
        gateway.join().await
    };
    let (mut response, mut join) = tokio::join!(gateway.connect(&input), script);
    join.send([metadata(), part("values", &values(&["hi"])), token("m1", "one")].concat()).await;
    gateway.settled().await;
    clock.advance(QUIET).await;
    let present =
        [started("r9", Some(RUN)), state(&json!({})), messages(&[("m0", "hi"), ("m1", "one")])];
    assert_eq!(response.next(3).await, present);
}

#[tokio::test]
async fn a_thread_that_cannot_be_looked_at_is_refused() {
    let unauthorized = "the LangGraph server answered 401; send the credentials that it wants, or \
                        have the gateway's operator set `upstream.api_key` to a key that it accepts";
    let boom = "the LangGraph server answered 500; the server's log may tell more";
    let no_list = "the LangGraph server's answer is not a list of runs; check that the upstream's \
                   URL is that of a LangGraph API server";
    let no_state = "the LangGraph server's answer is not a thread's state; check that the \
                    upstream's URL is that of a LangGraph API server";
    let gateway = Gateway::start().await;
    let input = input(&[]);
    for (code, body, expected) in [
        (401, "no", refusal("502 Bad Gateway", "upstream_unauthorized", unauthorized)),
        (500, "no", refusal("502 Bad Gateway", "upstream_refused", boom)),
        (200, "<html>", refusal("502 Bad Gateway", "not_langgraph", no_list)),
    ] {
        let script = async { gateway.upstream.next().await.answer(code, "text/plain", body).await };
        let (mut response, ()) = tokio::join!(gateway.connect(&input), script);
        assert_eq!(refused(&mut response).await, expected);
        let script = async { gateway.upstream.next().await.answer(code, "text/plain", body).await };
        let (mut response, ()) = tokio::join!(gateway.events(""), script);
        assert_eq!(refused(&mut response).await, expected);
    }
    let script = async {
        gateway.no_live_runs(json!([])).await;
        gateway.upstream.next().await.answer(200, "text/plain", "<html>").await;
    };
    let (mut response, ()) = tokio::join!(gateway.connect(&input), script);
    let expected = refusal("502 Bad Gateway", "not_langgraph", no_state);
    assert_eq!(refused(&mut response).await, expected);
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn a_stop_of_the_gateway_is_told_to_a_post_and_breaks_off_an_event_source() {
    let gateway = Gateway::start().await;
    let (mut told, mut join) = gateway.joined(replayable()).await;
    join.send([metadata(), part("values", &values(&["hi"])), token("m1", "one ")].concat()).await;
    told.next(3).await;
    let script = gateway.runs("limit=100", replayable());
    let (mut broken_off, ()) = tokio::join!(gateway.events(""), script);
    assert_eq!(broken_off.next(5).await[4], start("m1"));
    gateway.stop.cancel();
    let message = "the gateway is shutting down; the run goes on in LangGraph";
    assert_eq!(told.rest().await, [end("m1"), error(message, "gateway_shutdown")]);
    assert_eq!(broken_off.rest().await, [] as [Value; 0]);
    join.closed().await;
    gateway.stopped().await;
}

#[tokio::test]
async fn scripts_get_a_line_for_each_event() {
    let gateway = Gateway::start().await;
    let accept = "accept: application/x-ndjson\r\n";
    for (request, name, snapshots) in [
        (connect_request(accept, &input(&[])), "r1", 1),
        (events_request(accept, ""), "connect-C", 2),
    ] {
        let script = async {
            gateway.no_live_runs(record("success", true, &[])).await;
            gateway.state(Some(state_of(RUN, &counted(&["hi"], 1)))).await;
        };
        let (mut response, ()) =
            tokio::join!(Response::to(gateway.address, request.as_bytes()), script);
        assert!(response.head.contains("content-type: application/x-ndjson\r\n"));
        let body = response.body().await;
        let told: Vec<Value> =
            body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let mut expected = vec![started(name, None), state(&json!({"count": 1}))];
        expected.extend((1..snapshots).map(|_| messages(&[])));
        expected.extend([messages(&[("m0", "hi")]), finished(name, "success")]);
        assert_eq!(told, expected);
    }
}

#[tokio::test]
async fn what_is_to_be_followed_must_be_a_thread() {
    let gateway = Gateway::start().await;
    let mut response = gateway.events("?follow=x").await;
    let message = "the only value of `follow` is `thread`; send `follow=thread`, or leave `follow` \
                   out to read the live run only";
    let expected = refusal("400 Bad Request", "invalid_request", message);
    assert_eq!(refused(&mut response).await, expected);
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn a_client_of_the_older_generation_is_told_a_cancelled_run_as_an_abort() {
    let gateway = Gateway::start().await;
    let mut input = input(&[]);
    input.as_object_mut().unwrap().remove("protocolVersion");
    let script = async {
        gateway.runs("limit=100", replayable()).await;
        gateway.join().await
    };
    let (mut response, mut join) = tokio::join!(gateway.connect(&input), script);
    join.send([metadata(), part("values", &values(&["hi"]))].concat()).await;
    response.next(3).await;
    join.end().await;
    gateway.status("interrupted").await;
    gateway.state(None).await;
    let rest = response.rest().await;
    assert_eq!(rest, [error("the run was cancelled", "abort")]);
}

// === the client that started the run disconnects ===

/// A gateway whose client has started a run and disconnected.
async fn deserted(owners: OwnerPolicy) -> (Gateway, Exchange, HeldClock) {
    let gateway = Gateway::with(Limits { owners, ..Limits::default() }).await;
    let (mut response, mut run) = gateway.run().await;
    let clock = HeldClock::pause();
    run.send([part("values", &values(&["hi"])), token("m1", "one")].concat()).await;
    response.next(2).await;
    drop(response);
    gateway.watched_by(0).await;
    (gateway, run, clock)
}

const GRACE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_run_whose_owner_does_not_come_back_is_stopped_where_that_is_wanted() {
    let (gateway, run, clock) = deserted(OwnerPolicy::Cancel { grace: GRACE }).await;
    clock.advance(GRACE.saturating_sub(Duration::from_secs(1))).await;
    gateway.settled().await;
    gateway.upstream.is_untouched().await;
    clock.advance(Duration::from_secs(1)).await;
    let cancel =
        gateway.upstream.expect(&format!("POST /threads/{THREAD}/runs/{RUN}/cancel")).await;
    assert_eq!(cancel.body, "");
    cancel.json(202, "").await;
    run.closed().await;
    gateway.upstream.is_untouched().await;
}

/// A viewer of the run.
async fn viewer(gateway: &Gateway) -> Response {
    let input = input(&["hi"]);
    let script = gateway.runs("limit=100", replayable());
    let (viewer, ()) = tokio::join!(gateway.connect(&input), script);
    viewer
}

/// Each worker has a thread of its own, so the run and most of its viewers are on different threads.
#[tokio::test]
async fn viewers_on_all_workers_are_sent_the_whole_run() {
    const VIEWERS: usize = 16;
    const TOKENS: usize = 200;
    let gateway = Gateway::on_workers(8).await;
    let (owner, mut run) = gateway.run().await;
    run.send([part("values", &values(&["hi"])), token("m1", "one")].concat()).await;
    let mut viewers = vec![owner];
    for _ in 0..VIEWERS {
        viewers.push(viewer(&gateway).await);
    }
    let mut reading = JoinSet::new();
    for mut viewer in viewers {
        reading.spawn(async move {
            let told = viewer.rest().await;
            let deltas = told.iter().filter_map(|event| event["delta"].as_str());
            (deltas.collect::<String>(), told.last().unwrap()["type"].clone())
        });
    }
    let tokens: Vec<_> = (0..TOKENS).map(|number| format!(" {number}")).collect();
    for text in &tokens {
        run.send(token("m1", text)).await;
    }
    run.end().await;
    gateway.record("success").await;
    gateway.state(None).await;
    while let Some(read) = reading.join_next().await {
        let (text, last) = read.unwrap();
        assert!(text.ends_with(&tokens.concat()), "{text}");
        assert_eq!(last, "RUN_FINISHED");
    }
}

#[tokio::test]
async fn a_run_is_stopped_after_a_whole_grace_without_readers_whoever_was_the_last() {
    let (gateway, mut run, clock) = deserted(OwnerPolicy::Cancel { grace: GRACE }).await;
    let moment = Duration::from_secs(1);
    // Twice the grace begins anew when a viewer leaves.
    for _ in 0..2 {
        clock.advance(GRACE.saturating_sub(moment)).await;
        let mut viewer = viewer(&gateway).await;
        run.send(": heartbeat\r\n\r\n").await;
        gateway.settled().await;
        clock.advance(moment * 2).await;
        run.send(token("m1", " two")).await;
        while viewer.next(1).await[0] != says("m1", " two") {}
        drop(viewer);
        gateway.watched_by(0).await;
    }
    clock.advance(GRACE.saturating_sub(moment)).await;
    gateway.settled().await;
    gateway.upstream.is_untouched().await;
    clock.advance(moment).await;
    let line = format!("POST /threads/{THREAD}/runs/{RUN}/cancel");
    gateway.upstream.expect(&line).await.json(202, "").await;
    run.closed().await;
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn a_cancel_that_is_not_answered_does_not_hold_the_shutdown() {
    let (gateway, _run, clock) = deserted(OwnerPolicy::Cancel { grace: GRACE }).await;
    clock.advance(GRACE).await;
    let line = format!("POST /threads/{THREAD}/runs/{RUN}/cancel");
    let _unanswered = gateway.upstream.expect(&line).await;
    gateway.stop.cancel();
    // The clock stands still, so no time limit ends the request.
    gateway.stopped().await;
}

#[tokio::test]
async fn a_run_goes_on_without_its_owner_unless_it_is_wanted_otherwise() {
    let (gateway, run, clock) = deserted(OwnerPolicy::default()).await;
    clock.advance(GRACE * 10).await;
    run.closed().await;
    gateway.upstream.is_untouched().await;
}

/// A gateway whose client has requested a run and disconnected before LangGraph answered.
async fn deserted_early(owners: OwnerPolicy) -> (Gateway, Exchange, HeldClock) {
    let gateway = Gateway::with(Limits { owners, ..Limits::default() }).await;
    let input = input(&["hi"]);
    let script = async {
        gateway.state(None).await;
        gateway.upstream.expect(&format!("POST /threads/{THREAD}/runs/stream")).await
    };
    let post = gateway.post(&input);
    // Dropping the request closes its connection.
    let run = tokio::select! {
        _ = post => panic!("the request was answered"),
        run = script => run,
    };
    let clock = HeldClock::pause();
    gateway.settled().await;
    (gateway, run, clock)
}

#[tokio::test]
async fn a_run_starts_though_its_owner_leaves_before_langgraph_answers() {
    let (gateway, mut run, clock) = deserted_early(OwnerPolicy::default()).await;
    run.begin(&format!("content-location: /threads/{THREAD}/runs/{RUN}\r\n")).await;
    run.send(part("values", &values(&["hi"]))).await;
    gateway.settled().await;
    clock.advance(LINGER).await;
    run.closed().await;
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn such_a_run_is_stopped_where_that_is_wanted() {
    let (gateway, mut run, clock) = deserted_early(OwnerPolicy::Cancel { grace: GRACE }).await;
    run.begin(&format!("content-location: /threads/{THREAD}/runs/{RUN}\r\n")).await;
    gateway.settled().await;
    clock.advance(GRACE).await;
    let cancel =
        gateway.upstream.expect(&format!("POST /threads/{THREAD}/runs/{RUN}/cancel")).await;
    cancel.json(202, "").await;
    run.closed().await;
    gateway.upstream.is_untouched().await;
}
