//! The options of `[emit]` on real sockets: two agents that show one run in two ways.

use std::collections::HashMap;
use std::time::Duration;

use crate::support::clock::HeldClock;
use crate::support::gateway::{
    COLUMNS, Gateway, RUN, Response, THREAD, agents, connect_request, events_request, input, part,
    run_request, values,
};
use serde_json::{Value, json};
use threadway::agents::Emits;
use threadway::runs::OwnerPolicy;
use threadway::server::{Limits, Settings};
use threadway_translate::run::{EmitOptions, StateEvents};

/// Serves the agent a second time as `quiet`: no state, no reasoning, short results.
fn with_a_quiet_one(gateway: &Gateway) {
    let quiet = EmitOptions {
        state: StateEvents::None,
        reasoning: false,
        max_tool_result_bytes: 5,
        ..EmitOptions::default()
    };
    let by_agent = HashMap::from([("quiet".to_owned(), quiet)]);
    let emits = Emits { default: EmitOptions::default(), by_agent };
    let agents = agents(&[("default", &gateway.upstream.url())], &[("quiet", "agent")]);
    gateway.server.reload(agents.with_emits(emits), Settings::default());
}

fn spoken() -> String {
    let thought = json!([{"type": "reasoning", "reasoning": "hm", "index": 0}]);
    let chunk = |content: Value| json!({"type": "AIMessageChunk", "id": "a", "content": content});
    let tool = json!({"type": "tool", "id": "t", "tool_call_id": "c", "content": "a long answer"});
    let mut last = values(&["hi"]);
    let calls = json!([{"id": "c", "name": "search", "args": {}, "type": "tool_call"}]);
    let answer = json!({"type": "ai", "id": "a", "content": "yes", "tool_calls": calls});
    last["messages"].as_array_mut().unwrap().extend([answer, tool.clone()]);
    [
        part("values", &values(&["hi"])),
        part("messages", &json!([chunk(thought), {}])),
        part("messages", &json!([chunk(json!("yes")), {}])),
        part("messages", &json!([tool, {}])),
        part("values", &last),
    ]
    .concat()
}

fn told(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn one_run_is_shown_as_each_agent_says() {
    let gateway = Gateway::start().await;
    with_a_quiet_one(&gateway);
    let (mut owner, mut run) = gateway.run().await;
    run.send(spoken()).await;
    let mut seen = owner.next(2).await;
    assert_eq!(told(&seen), ["STATE_SNAPSHOT", "REASONING_START"]);
    while seen.last().unwrap()["type"] != "TOOL_CALL_RESULT" {
        seen.extend(owner.next(1).await);
    }
    assert_eq!(seen.last().unwrap()["content"], "a long answer");

    // The run is shown in another form from its beginning, and LangGraph is not asked for it again.
    let request = connect_request("", &input(&[])).replace("/agent/agent/", "/agent/quiet/");
    let record = json!([{
        "run_id": RUN, "status": "running", "created_at": "2026-11-22T08:00:00Z",
        "metadata": {"threadway_run_id": "r1", "threadway_start": "s1"},
        "kwargs": {"resumable": true, "stream_mode": ["values", "messages-tuple"]},
    }]);
    let (mut quiet, ()) = tokio::join!(Response::to(gateway.address, request.as_bytes()), async {
        let line = format!("GET /threads/{THREAD}/runs?limit=100{COLUMNS}");
        gateway.upstream.expect(&line).await.json(200, &record.to_string()).await;
    });
    let mut shown = quiet.next(2).await;
    run.end().await;
    gateway.status("success").await;
    gateway.state(None).await;
    shown.extend(quiet.rest().await);
    let text = json!(shown).to_string();
    assert!(!text.contains("STATE_") && !text.contains("REASONING"), "{text}");
    assert!(text.contains("a lon\\n[8 of 13 bytes left out by the gateway; message t"), "{text}");
    assert_eq!(shown.last().unwrap()["type"], "RUN_FINISHED");
}

#[tokio::test]
async fn parts_of_the_upstream_are_sent_raw_where_that_is_wanted() {
    let gateway = Gateway::start().await;
    let emits =
        Emits { default: EmitOptions { raw: true, ..EmitOptions::default() }, ..Emits::default() };
    let agents = agents(&[("default", &gateway.upstream.url())], &[]);
    gateway.server.reload(agents.with_emits(emits), Settings::default());
    let (mut owner, mut run) = gateway.run().await;
    let chunk = json!({"type": "AIMessageChunk", "id": "a", "content": "yes"});
    let origin = json!({"langgraph_node": "n", "langgraph_auth_user": {"token": "secret"}});
    let odd = json!({"n": 1, "config": {"configurable": {"key": "secret"}}});
    run.send([part("messages", &json!([chunk, origin])), part("odd", &odd)].concat()).await;
    let seen = owner.next(3).await;
    assert_eq!(told(&seen), ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "RAW"]);
    assert_eq!(seen[0]["rawEvent"], json!({"event": "messages", "data": [chunk]}));
    assert_eq!(seen[1].get("rawEvent"), None, "the event is of the same part");
    let raw = json!({"event": "odd", "data": {"n": 1}});
    assert_eq!(seen[2], json!({"type": "RAW", "event": raw, "source": "langgraph"}));
    // A model call's usage makes no event: the part adds nothing else.
    let usage = json!({"input_tokens": 1, "output_tokens": 2, "total_tokens": 3});
    let chunk = json!({
        "type": "AIMessageChunk", "id": "a", "content": "!", "usage_metadata": usage,
        "chunk_position": "last",
    });
    run.send(part("messages", &json!([chunk, origin]))).await;
    let seen = owner.next(1).await;
    assert_eq!(seen[0]["rawEvent"]["data"], json!([chunk]), "{seen:?}");
    run.end().await;
}

#[tokio::test]
async fn a_run_that_is_watched_with_other_options_is_not_stopped_for_want_of_its_owner() {
    const GRACE: Duration = Duration::from_secs(20);
    let owners = OwnerPolicy::Cancel { grace: GRACE };
    let gateway = Gateway::with(Limits { owners, ..Limits::default() }).await;
    with_a_quiet_one(&gateway);
    let (owner, mut run) = gateway.run().await;
    let request = connect_request("", &input(&[])).replace("/agent/agent/", "/agent/quiet/");
    let record = json!([{
        "run_id": RUN, "status": "running", "created_at": "2026-11-22T08:00:00Z",
        "metadata": {"threadway_run_id": "r1", "threadway_start": "s1"},
        "kwargs": {"resumable": true, "stream_mode": ["values", "messages-tuple"]},
    }]);
    let (mut viewer, ()) = tokio::join!(Response::to(gateway.address, request.as_bytes()), async {
        let line = format!("GET /threads/{THREAD}/runs?limit=100{COLUMNS}");
        gateway.upstream.expect(&line).await.json(200, &record.to_string()).await;
    });
    run.send(spoken()).await;
    viewer.next(3).await;
    let clock = HeldClock::pause();
    drop(owner);
    gateway.watched_by(1).await;
    clock.advance(GRACE / 2).await;
    run.send(": heartbeat\r\n\r\n").await;
    gateway.settled().await;
    clock.advance(GRACE / 2).await;
    gateway.settled().await;
    gateway.upstream.is_untouched().await;
    run.end().await;
    gateway.status("success").await;
    gateway.state(None).await;
    assert_eq!(viewer.rest().await.last().unwrap()["type"], "RUN_FINISHED");
}

/// The same parts, as the server stores them.
fn stored() -> String {
    let parts = spoken();
    let parts = parts.split_terminator("\r\n\r\n").zip(1000..);
    let parts: Vec<_> = parts.map(|(part, at)| format!("{part}\r\nid: {at}-0\r\n\r\n")).collect();
    parts.concat()
}

/// The frames with ids up to the run's end.
async fn frames(response: &mut Response) -> Vec<String> {
    let mut frames = Vec::new();
    loop {
        let frame = response.whole_frame().await;
        if frame.is_empty() {
            return frames;
        }
        if frame.contains("data: {") {
            frames.push(frame);
        }
    }
}

#[tokio::test]
async fn an_id_resumes_on_a_replica_that_reads_the_run_with_other_options() {
    let first = Gateway::start().await;
    with_a_quiet_one(&first);
    let request = run_request("quiet", "", &input(&["hi"]).to_string());
    let (mut quiet, mut run) =
        tokio::join!(Response::to(first.address, request.as_bytes()), async {
            first.state(None).await;
            first.stream().await
        });
    run.send(stored()).await;
    run.end().await;
    first.status("success").await;
    first.state(None).await;
    let uncut = frames(&mut quiet).await;
    let ids: Vec<_> = uncut.iter().filter_map(|frame| frame.strip_prefix("id: ")).collect();
    let ids: Vec<_> = ids.iter().map(|frame| frame.lines().next().unwrap()).collect();
    assert!(ids.len() > 5, "{uncut:#?}");
    let second = Gateway::start().await;
    with_a_quiet_one(&second);
    let (_owner, mut run) = second.run().await;
    run.send(stored()).await;
    // Nobody has read the run with these options here.
    let mut cut: Vec<_> = Vec::new();
    // The client that starts a run holds its own message, so after the start others are sent more.
    let ids = &ids[1..ids.len() - 1];
    for id in ids {
        let request = events_request(&format!("last-event-id: {id}\r\n"), "");
        let request = request.replace("/agent/agent/", "/agent/quiet/");
        cut.push(Response::to(second.address, request.as_bytes()).await);
    }
    second.upstream.is_untouched().await;
    run.end().await;
    second.status("success").await;
    second.state(None).await;
    for (id, mut response) in ids.iter().zip(cut) {
        let rest = frames(&mut response).await;
        let at = uncut.iter().position(|frame| frame.starts_with(&format!("id: {id}\n"))).unwrap();
        assert_eq!(rest, uncut[at + 1..], "after {id}");
    }
}
