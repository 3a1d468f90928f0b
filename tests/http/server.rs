//! The server on real sockets, between a scripted LangGraph server and a client that reads bytes.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::support::capture::{self, Capture};
use crate::support::clock::HeldClock;
use crate::support::gateway::{
    Gateway, RUN, THREAD, closed, data, failed, finished, input, part, post, refusal, refused,
    started, token, told, values,
};
use serde_json::{Value, json};
use threadway::runs::LINGER;
use threadway::server::KEEP_ALIVE;
use threadway_translate::agui::ProtoEncoder;

// === runs ===

#[tokio::test]
async fn recorded_run_arrives_byte_for_byte_as_it_was_translated_before() {
    let python = "content-location: /threads/T/runs/R\r\nlocation: /threads/T/runs/R/stream\r\n";
    let javascript = "content-location: /threads/T/runs/R\r\n";
    recorded("py-0.16.7/agent-combo", python).await;
    recorded("js-1.5.1/agent-combo", javascript).await;
}

async fn recorded(name: &str, headers: &str) {
    let gateway = Gateway::start().await;
    let capture = Capture::named(name);
    let golden = capture::root().join("golden").join(format!("{name}.sse"));
    // The golden file's thread and run are `T` and `R`. The LangGraph id of the thread `T` is this.
    let thread = "73810d47-91f1-5d83-b506-6bce952cb676";
    let golden = fs::read_to_string(golden).unwrap();
    let golden = golden.replace(r#"{"thread_id":"T","#, &format!(r#"{{"thread_id":"{thread}","#));

    let script = async {
        let get = gateway.upstream.expect(&format!("GET /threads/{thread}/state")).await;
        get.json(404, "{}").await;
        let create = gateway.upstream.expect("POST /threads").await;
        assert_eq!(
            create.body,
            format!(
                r#"{{"thread_id":"{thread}","if_exists":"do_nothing","metadata":{{"threadway_thread_id":"T","title":"hi"}}}}"#
            )
        );
        create.json(200, "{}").await;
        let mut run = gateway.upstream.expect(&format!("POST /threads/{thread}/runs/stream")).await;
        let sent: Value = serde_json::from_str(&run.body).unwrap();
        let token = sent["metadata"]["threadway_start"].as_str().unwrap();
        assert_eq!(
            run.body.replace(token, "TOKEN"),
            r#"{"assistant_id":"agent","input":{"messages":[{"type":"human","id":"human-1","content":"hi"}]},"metadata":{"threadway_run_id":"r1","threadway_start":"TOKEN"},"stream_mode":["values","messages-tuple","updates","custom"],"stream_subgraphs":true,"stream_resumable":true,"on_disconnect":"continue","if_not_exists":"reject"}"#
        );
        run.begin(headers).await;
        run.send(&capture.bytes).await;
        run.end().await;
        let get = gateway.upstream.expect(&format!("GET /threads/{thread}/runs/R")).await;
        get.json(200, r#"{"run_id":"R","status":"success"}"#).await;
        // A later run has changed the thread: the state is not this run's.
        let get = gateway.upstream.expect(&format!("GET /threads/{thread}/state")).await;
        get.json(200, r#"{"values":{"x":1},"metadata":{"run_id":"other"}}"#).await;
        let post = gateway.upstream.expect(&format!("POST /threads/{thread}/history")).await;
        assert_eq!(post.body, r#"{"limit":1,"metadata":{"run_id":"R"}}"#);
        post.json(200, "[]").await;
    };
    let client = async {
        let mut response = gateway.post(&capture.input()).await;
        assert_eq!(
            response.head,
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
             cache-control: no-cache, no-transform\r\nx-accel-buffering: no\r\n\
             transfer-encoding: chunked\r\n\r\n"
        );
        response.body().await
    };
    let (body, ()) = tokio::join!(client, script);
    assert_eq!(body, format!("retry: 3000\n\n{golden}"));
}

#[tokio::test]
async fn tokens_pass_one_by_one_as_they_come() {
    let gateway = Gateway::start().await;
    let (mut response, mut run) = gateway.run().await;
    run.send(token("a", "one")).await;
    assert_eq!(response.frame().await + &response.frame().await, told("a", "one"));
    // Half a part makes no event yet.
    let next = token("a", "two");
    let (half, rest) = next.split_at(40);
    run.send(half).await;
    run.send(rest).await;
    assert!(response.frame().await.contains(r#""delta":"two""#));
    run.end().await;
    gateway.record("interrupted").await;
    assert_eq!(response.body().await, closed("a") + &finished("cancelled"));
}

#[tokio::test]
async fn state_at_the_end_tells_of_a_question_that_the_stream_did_not_show() {
    let gateway = Gateway::start().await;
    let (mut response, run) = gateway.run().await;
    run.end().await;
    gateway.record("success").await;
    let question = json!([{"id": "q", "name": "n", "interrupts": [{"id": "i", "value": "why?"}]}]);
    let state =
        json!({"values": {}, "next": ["n"], "tasks": question, "metadata": {"run_id": RUN}});
    gateway.state(Some(state)).await;
    let body = response.body().await;
    assert!(body.contains(r#""outcome":{"type":"interrupt","interrupts":[{"id":"i","#), "{body}");
}

#[tokio::test]
async fn stream_that_showed_a_question_needs_no_state() {
    let gateway = Gateway::start().await;
    let (mut response, mut run) = gateway.run().await;
    let interrupt = json!({"__interrupt__": [{"id": "i", "value": "why?"}]});
    run.send(part("values", &values(&["hi"])) + &part("updates", &interrupt)).await;
    run.end().await;
    gateway.record("success").await;
    let body = response.body().await;
    assert!(body.contains(r#""outcome":{"type":"interrupt","interrupts":[{"id":"i","#), "{body}");

    // A stream with an interrupt and nothing else does need the state.
    let gateway = Gateway::start().await;
    let (mut response, mut run) = gateway.run().await;
    run.send(part("updates", &interrupt)).await;
    run.end().await;
    gateway.record("success").await;
    let state = json!({"values": values(&["hi", "you"]), "metadata": {"run_id": RUN}});
    gateway.state(Some(state)).await;
    let body = response.body().await;
    assert!(body.contains(r#"{"role":"assistant","id":"m1","content":"you"}"#), "{body}");
    assert!(body.contains(r#""outcome":{"type":"interrupt","interrupts":[{"id":"i","#), "{body}");
}

#[tokio::test]
async fn run_ends_as_its_record_tells() {
    let timeout = failed("LangGraph stopped the run at its time limit", "timeout");
    for (status, expected) in [("interrupted", finished("cancelled")), ("timeout", timeout)] {
        let gateway = Gateway::start().await;
        let (mut response, mut run) = gateway.run().await;
        run.send(token("a", "one")).await;
        run.end().await;
        gateway.record(status).await;
        assert_eq!(response.body().await, told("a", "one") + &closed("a") + &expected, "{status}");
    }
}

#[tokio::test]
async fn failed_run_tells_why() {
    // The error is in the stream.
    let gateway = Gateway::start().await;
    let (mut response, mut run) = gateway.run().await;
    run.send(part("error", &json!({"error": "ValueError", "message": "boom"}))).await;
    run.end().await;
    gateway.record("error").await;
    gateway.state(None).await;
    assert_eq!(response.body().await, failed("boom", "ValueError"));

    // The error is in the thread, or nowhere.
    let unknown = failed("the run failed; LangGraph's log tells why", "run_failed");
    for (thread, expected) in [
        (json!({"error": {"error": "KeyError", "message": "'x'"}}), failed("'x'", "KeyError")),
        (json!({"status": "error"}), unknown),
    ] {
        let (mut response, run) = gateway.run().await;
        run.end().await;
        gateway.record("error").await;
        let get = gateway.upstream.expect(&format!("GET /threads/{THREAD}")).await;
        get.json(200, &thread.to_string()).await;
        gateway.state(None).await;
        assert_eq!(response.body().await, expected);
    }
}

#[tokio::test]
async fn stopped_run_tells_what_it_has_committed_behind_its_stream() {
    // The gateway reads the thread's state. If another run has changed that, it reads the history.
    for (run_id, history, is_told) in
        [(RUN, None, true), ("another", Some(true), true), ("another", Some(false), false)]
    {
        let gateway = Gateway::start().await;
        let (mut response, mut run) = gateway.run().await;
        run.send(part("values", &json!({"messages": [], "step": 2}))).await;
        run.end().await;
        gateway.status("interrupted").await;
        let values = json!({"messages": [], "step": 3});
        let state = json!({"values": values, "next": ["n"], "metadata": {"run_id": run_id}});
        gateway.state(Some(state)).await;
        if let Some(is_kept) = history {
            let own = json!({"values": values, "next": ["n"], "metadata": {"run_id": RUN}});
            gateway.history(if is_kept { json!([own]) } else { json!([]) }).await;
        }
        let body = response.body().await;
        let step = data(r#"{"type":"STATE_SNAPSHOT","snapshot":{"step":3}}"#);
        assert_eq!(body.contains(&step), is_told, "{body}");
        assert!(body.ends_with(&finished("cancelled")), "{body}");
    }
}

/// aegra 0.11.0 answers 500.
#[tokio::test]
async fn history_of_a_server_that_cannot_search_it_is_read_page_by_page() {
    let state = |id: usize, run_id: &str, step: usize| {
        let values = json!({"messages": [], "step": step});
        json!({"values": values, "next": ["n"], "metadata": {"run_id": run_id},
               "checkpoint": {"checkpoint_id": format!("c{id}")}})
    };
    let others = |from: usize| (from..from + 20).map(|id| state(id, "another", 9)).collect();
    // The run's state is on the first page, on the second, or nowhere.
    let first = vec![state(1, "another", 9), state(2, RUN, 3), state(3, RUN, 2)];
    let second = vec![state(21, RUN, 3)];
    let none = (0..5).map(|page| others(page * 20)).collect();
    let cases: [(Vec<Vec<Value>>, bool); 3] =
        [(vec![first], true), (vec![others(1), second], true), (none, false)];
    for (pages, is_told) in cases {
        let gateway = Gateway::start().await;
        let (mut response, mut run) = gateway.run().await;
        run.send(part("values", &json!({"messages": [], "step": 1}))).await;
        run.end().await;
        gateway.status("interrupted").await;
        gateway.state(Some(state(0, "another", 9))).await;
        let post = gateway.upstream.expect(&format!("POST /threads/{THREAD}/history")).await;
        post.json(500, r#"{"detail":"unexpected keyword argument 'metadata'"}"#).await;
        let mut path = format!("GET /threads/{THREAD}/history?limit=20");
        for page in pages {
            let last = page.last().unwrap()["checkpoint"]["checkpoint_id"].clone();
            gateway.upstream.expect(&path).await.json(200, &json!(page).to_string()).await;
            let last = last.as_str().unwrap();
            path = format!("GET /threads/{THREAD}/history?limit=20&before={last}");
        }
        let body = response.body().await;
        let step = data(r#"{"type":"STATE_SNAPSHOT","snapshot":{"step":3}}"#);
        assert_eq!(body.contains(&step), is_told, "{body}");
        assert!(body.ends_with(&finished("cancelled")), "{body}");
    }
}

#[tokio::test]
async fn record_that_lags_behind_its_stream_is_read_again() {
    let gateway = Gateway::start().await;
    let (mut response, run) = gateway.run().await;
    run.end().await;
    gateway.record("running").await;
    gateway.record("interrupted").await;
    assert_eq!(response.body().await, finished("cancelled"));
}

#[tokio::test]
async fn run_that_the_headers_do_not_name_is_named_by_its_stream() {
    let gateway = Gateway::start().await;
    let script = async {
        gateway.state(None).await;
        let mut run = gateway.upstream.next().await;
        run.begin("").await;
        run.send(": heartbeat\r\n\r\n").await;
        run.send(part("metadata", &json!({"run_id": RUN, "attempt": 1}))).await;
        run
    };
    let input = input(&["hi"]);
    let (mut response, _run) = tokio::join!(gateway.post(&input), script);
    assert_eq!(response.frame().await, "retry: 3000\n\n");
    assert_eq!(response.frame().await, started());
}

#[tokio::test]
async fn run_that_nothing_names_goes_by_the_clients_name_and_cannot_be_asked_for() {
    let gateway = Gateway::start().await;
    let script = async {
        gateway.state(None).await;
        let mut run = gateway.upstream.next().await;
        run.begin("").await;
        run.send(token("a", "one")).await;
        run.end().await;
    };
    let input = input(&["hi"]);
    let (mut response, ()) = tokio::join!(gateway.post(&input), script);
    let message = "the stream ended before it named its run";
    assert_eq!(
        response.body().await,
        "retry: 3000\n\n".to_owned()
            + &started().replace(RUN, "r1")
            + &told("a", "one")
            + &closed("a")
            + &failed(message, "upstream_lost")
    );
}

#[tokio::test]
async fn script_may_have_a_json_document_a_line() {
    let gateway = Gateway::start().await;
    let script = async {
        gateway.state(None).await;
        gateway.stream().await.end().await;
        gateway.record("interrupted").await;
    };
    let body = input(&["hi"]).to_string();
    let request = post(gateway.address, "accept: application/x-ndjson\r\n", &body);
    let (mut response, ()) = tokio::join!(request, script);
    assert!(response.head.contains("content-type: application/x-ndjson\r\n"));
    let line = |frame: String| frame.replace("data: ", "").replace("\n\n", "\n");
    assert_eq!(response.body().await, line(started()) + &line(finished("cancelled")));
}

#[tokio::test]
async fn client_that_names_the_binary_binding_is_sent_frames_of_it() {
    const PROTO: &str = "application/vnd.ag-ui.event+proto";
    let legacy = || {
        let mut input = input(&["hi"]);
        input.as_object_mut().unwrap().remove("protocolVersion");
        input
    };
    let told_more = |text: &str| {
        data(&format!(r#"{{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"{text}"}}"#))
    };
    // Half a character each, which a protobuf string cannot contain.
    let half = |unit: &str| token("a", "half").replace("half", unit);
    for (accept, body, expected) in [
        ("application/x-ndjson", input(&["hi"]), "application/x-ndjson"),
        (PROTO, input(&["hi"]), PROTO),
        ("application/vnd.ag-ui.event+proto, text/event-stream", input(&["hi"]), PROTO),
        // The protobuf decoder of an older client fails on most events of the gateway.
        ("application/vnd.ag-ui.event+proto, text/event-stream", legacy(), "text/event-stream"),
        (
            "application/vnd.ag-ui.event+proto, application/x-ndjson",
            legacy(),
            "application/x-ndjson",
        ),
        ("*/*", input(&["hi"]), "text/event-stream"),
        ("application/*", input(&["hi"]), "application/x-ndjson"),
    ] {
        let gateway = Gateway::start().await;
        let script = async {
            gateway.state(None).await;
            let mut run = gateway.stream().await;
            run.send([token("a", "one "), half("\\ud83d"), half("\\ude00")].concat()).await;
            run.end().await;
            gateway.record("interrupted").await;
        };
        let head = format!("accept: {accept}\r\n");
        let body = body.to_string();
        let (mut response, ()) = tokio::join!(post(gateway.address, &head, &body), script);
        let content_type = format!("content-type: {expected}\r\n");
        assert!(response.head.contains(&content_type), "{accept}: {}", response.head);
        let bytes = response.bytes().await;
        if expected != PROTO {
            continue;
        }
        let events = [
            started(),
            told("a", "one "),
            told_more(""),
            told_more("😀"),
            closed("a"),
            finished("cancelled"),
        ];
        let (mut encoder, mut frames) = (ProtoEncoder::default(), Vec::new());
        let lines = events.iter().flat_map(|event| event.lines());
        for event in lines.filter_map(|line| line.strip_prefix("data: ")) {
            encoder.frame(event.as_bytes(), &mut frames);
        }
        assert_eq!(bytes, frames, "{accept}");
    }
}

// === threads ===

#[tokio::test]
async fn thread_whose_values_are_null_has_no_state_yet() {
    for state in [json!({"values": null}), json!({"values": null, "next": [], "tasks": []})] {
        let gateway = Gateway::start().await;
        let script = async {
            gateway.state(Some(state.clone())).await;
            // Its first run may be pending.
            gateway.no_runs(state).await;
            let run = gateway.stream().await;
            let body: Value = serde_json::from_str(&run.body).unwrap();
            let sent = json!([{"type": "human", "id": "m0", "content": "hi"}]);
            assert_eq!(body["input"], json!({"messages": sent}));
            run.end().await;
            gateway.record("interrupted").await;
        };
        let input = input(&["hi"]);
        let (mut response, ()) = tokio::join!(gateway.post(&input), script);
        let body = response.body().await;
        assert!(body.ends_with(&finished("cancelled")), "{body}");
    }
}

#[tokio::test]
async fn edited_message_forks_the_thread_before_it() {
    let gateway = Gateway::start().await;
    let state = |id: &str, parent: Option<&str>, messages: &[&str]| {
        let parent = parent.map(|parent| json!({"checkpoint_id": parent}));
        let checkpoint = json!({"checkpoint_id": id});
        json!({"values": values(messages), "checkpoint": checkpoint, "parent_checkpoint": parent})
    };
    // Between the message and its predecessor is a branch that an earlier fork has left.
    let history = json!([
        state("c6", Some("c5"), &["one", "1", "two", "2"]),
        state("c5", Some("c2"), &["one", "1", "two"]),
        state("c4", Some("c3"), &["one"]),
        state("c3", Some("c2"), &["one", "1"]),
        state("c2", Some("c1"), &["one", "1"]),
        state("c1", None, &[]),
    ]);
    let script = async {
        let newest = json!({"values": values(&["one", "1", "two", "2"])});
        gateway.state(Some(newest.clone())).await;
        gateway.no_runs(newest).await;
        gateway.no_inputs().await;
        let path = format!("GET /threads/{THREAD}/history?limit=20");
        gateway.upstream.expect(&path).await.json(200, &history.to_string()).await;
        let run = gateway.stream().await;
        let body: Value = serde_json::from_str(&run.body).unwrap();
        assert_eq!(body["checkpoint_id"], "c2");
        let sent = json!([{"type": "human", "id": "m2", "content": "TWO"}]);
        assert_eq!(body["input"]["messages"], sent);
        run.end().await;
        gateway.record("interrupted").await;
    };
    let input = input(&["one", "1", "TWO"]);
    let (mut response, ()) = tokio::join!(gateway.post(&input), script);
    assert!(response.body().await.ends_with(&finished("cancelled")));
}

#[tokio::test]
async fn way_back_is_as_long_as_it_must_and_then_refused() {
    let gateway = Gateway::start().await;
    let page = |from: usize| {
        let state = |at: usize| {
            let (id, parent) = (format!("c{at}"), format!("c{}", at + 1));
            json!({"values": values(&["one", "1"]), "checkpoint": {"checkpoint_id": id},
                   "parent_checkpoint": {"checkpoint_id": parent}})
        };
        json!((from..from + 20).map(state).collect::<Vec<_>>()).to_string()
    };
    let script = async {
        let newest = json!({"values": values(&["one", "1"])});
        gateway.state(Some(newest.clone())).await;
        gateway.no_runs(newest).await;
        gateway.no_inputs().await;
        let mut path = format!("GET /threads/{THREAD}/history?limit=20");
        for at in 0..50 {
            gateway.upstream.expect(&path).await.json(200, &page(at * 20)).await;
            path = format!("GET /threads/{THREAD}/history?limit=20&before=c{}", at * 20 + 19);
        }
    };
    let input = input(&["ONE"]);
    let (mut response, ()) = tokio::join!(gateway.post(&input), script);
    let message = "message m0 was changed, but it is more than 1000 checkpoints back; send it \
                   under a new id, or begin a new thread";
    assert_eq!(refused(&mut response).await, refusal("409 Conflict", "cannot_fork", message));
}

#[tokio::test]
async fn history_that_cannot_be_read_is_not_taken_for_a_short_one() {
    for history in ["<html>", "{}", r#"[{"values":{}}]"#] {
        let gateway = Gateway::start().await;
        let script = async {
            let newest = json!({"values": values(&["one", "1"])});
            gateway.state(Some(newest.clone())).await;
            gateway.no_runs(newest).await;
            gateway.no_inputs().await;
            let path = format!("GET /threads/{THREAD}/history?limit=20");
            gateway.upstream.expect(&path).await.json(200, history).await;
        };
        let input = input(&["ONE"]);
        let (mut response, ()) = tokio::join!(gateway.post(&input), script);
        let message = "the LangGraph server's answer is not a thread's history; check that the \
                       upstream's URL is that of a LangGraph API server";
        let expected = refusal("502 Bad Gateway", "not_langgraph", message);
        assert_eq!(refused(&mut response).await, expected, "{history}");
    }
}

// === timeouts and disconnects ===

#[tokio::test]
async fn silent_stream_gives_a_sign_of_life_every_15_seconds() {
    let gateway = Gateway::start().await;
    let (mut response, mut run) = gateway.run().await;
    let clock = HeldClock::pause();
    let event =
        |n: u32| data(&format!(r#"{{"type":"CUSTOM","name":"langgraph.custom","value":{n}}}"#));
    // Any sent event restarts the timeout. The first event restarts it on the held clock, because
    // some time had passed before.
    run.send(part("custom", &json!(0))).await;
    assert_eq!(response.frame().await, event(0));
    for n in 1..3 {
        clock.advance(KEEP_ALIVE.saturating_sub(Duration::from_millis(10))).await;
        run.send(part("custom", &json!(n))).await;
        assert_eq!(response.frame().await, event(n));
    }
    for _ in 0..2 {
        clock.advance(KEEP_ALIVE).await;
        assert_eq!(response.frame().await, ": keep-alive\n\n");
        // Bytes that make no event do not restart it.
        run.send(": heartbeat\r\n\r\n").await;
        gateway.settled().await;
    }
    run.send(part("custom", &json!(3))).await;
    assert_eq!(response.frame().await, event(3));
}

#[tokio::test]
async fn client_that_leaves_is_not_read_for_and_cancels_nothing() {
    let gateway = Gateway::start().await;
    let (response, run) = gateway.run().await;
    let clock = HeldClock::pause();
    drop(response);
    gateway.watched_by(0).await;
    // A client may reconnect within this time.
    clock.advance(LINGER).await;
    run.closed().await;
    // The upstream's next request is another client's.
    gateway.run().await;
}

#[test]
fn address_that_is_taken_is_told() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_threadway"))
        .args(["serve", "--upstream", "http://127.0.0.1:1", "--listen", &address])
        .env_clear()
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    let expected = format!("threadway: cannot listen on {address}: Address already in use");
    assert!(told.starts_with(&expected), "{told}");
    assert_eq!(output.status.code(), Some(1));
}
