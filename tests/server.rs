//! The server on real sockets, between a scripted LangGraph server and a client that reads bytes.

#![cfg(test)]

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use support::capture::{self, Capture};
use support::gateway::{
    Gateway, HeldClock, RUN, Response, THREAD, closed, data, failed, finished, input, part, post,
    refusal, refused, serve, started, token, told, values,
};
use support::upstream::Upstream;
use threadway::server::{GRACE, KEEP_ALIVE, Limits};
use threadway::upstream::START_TIMEOUT;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const MAX_BODY: usize = 10 * 1024 * 1024;

// === runs ===

#[tokio::test]
async fn a_recorded_run_arrives_byte_for_byte_as_it_was_translated_before() {
    let python = "content-location: /threads/T/runs/R\r\nlocation: /threads/T/runs/R/stream\r\n";
    let javascript = "content-location: /threads/T/runs/R\r\n";
    recorded("py-0.16.7/agent-combo", python).await;
    recorded("js-2.0.0/agent-combo", javascript).await;
}

async fn recorded(name: &str, headers: &str) {
    let gateway = Gateway::start().await;
    let capture = Capture::named(name);
    let golden = capture::root().join("golden").join(format!("{name}.sse"));
    // The golden file's thread and run are `T` and `R`; a thread that a client calls `T` is this.
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
                r#"{{"thread_id":"{thread}","if_exists":"do_nothing","metadata":{{"threadway_thread_id":"T"}}}}"#
            )
        );
        create.json(200, "{}").await;
        let mut run = gateway.upstream.expect(&format!("POST /threads/{thread}/runs/stream")).await;
        assert_eq!(
            run.body,
            r#"{"assistant_id":"agent","input":{"messages":[{"type":"human","id":"human-1","content":"hi"}]},"metadata":{"threadway_run_id":"r1"},"stream_mode":["values","messages-tuple","updates","custom"],"stream_subgraphs":true,"stream_resumable":true,"on_disconnect":"continue","if_not_exists":"create"}"#
        );
        run.begin(headers).await;
        run.send(&capture.bytes).await;
        run.end().await;
        let get = gateway.upstream.expect(&format!("GET /threads/{thread}/runs/R")).await;
        get.json(200, r#"{"run_id":"R","status":"success"}"#).await;
        // A later run has changed the thread: its state is none of this run's.
        let get = gateway.upstream.expect(&format!("GET /threads/{thread}/state")).await;
        get.json(200, r#"{"values":{"x":1},"metadata":{"run_id":"other"}}"#).await;
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
    // Half a part is no event yet.
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
async fn the_state_at_the_end_tells_of_a_question_that_the_stream_did_not_show() {
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
async fn a_stream_that_showed_a_question_needs_no_state() {
    let gateway = Gateway::start().await;
    let (mut response, mut run) = gateway.run().await;
    let interrupt = json!({"__interrupt__": [{"id": "i", "value": "why?"}]});
    run.send(part("updates", &interrupt)).await;
    run.end().await;
    gateway.record("success").await;
    let body = response.body().await;
    assert!(body.contains(r#""outcome":{"type":"interrupt","interrupts":[{"id":"i","#), "{body}");
}

#[tokio::test]
async fn a_run_ends_as_its_record_tells() {
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
async fn a_failed_run_tells_why() {
    // In the stream.
    let gateway = Gateway::start().await;
    let (mut response, mut run) = gateway.run().await;
    run.send(part("error", &json!({"error": "ValueError", "message": "boom"}))).await;
    run.end().await;
    gateway.record("error").await;
    gateway.state(None).await;
    assert_eq!(response.body().await, failed("boom", "ValueError"));

    // In the thread, or nowhere.
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
async fn what_a_stopped_run_has_committed_behind_its_stream_is_told() {
    for (run_id, is_told) in [(RUN, true), ("another run, which began meanwhile", false)] {
        let gateway = Gateway::start().await;
        let (mut response, mut run) = gateway.run().await;
        run.send(part("values", &json!({"messages": [], "step": 2}))).await;
        run.end().await;
        gateway.status("interrupted").await;
        let values = json!({"messages": [], "step": 3});
        let state = json!({"values": values, "next": ["n"], "metadata": {"run_id": run_id}});
        gateway.state(Some(state)).await;
        let body = response.body().await;
        let step = data(r#"{"type":"STATE_SNAPSHOT","snapshot":{"step":3}}"#);
        assert_eq!(body.contains(&step), is_told, "{body}");
        assert!(body.ends_with(&finished("cancelled")), "{body}");
    }
}

#[tokio::test]
async fn a_record_that_lags_behind_its_stream_is_read_again() {
    let gateway = Gateway::start().await;
    let (mut response, run) = gateway.run().await;
    run.end().await;
    gateway.record("running").await;
    gateway.record("interrupted").await;
    assert_eq!(response.body().await, finished("cancelled"));
}

#[tokio::test]
async fn a_run_whose_stream_ends_in_order_while_it_goes_on_is_lost() {
    let gateway = Gateway::start().await;
    let (mut response, run) = gateway.run().await;
    run.end().await;
    for _ in 0..5 {
        gateway.record("pending").await;
    }
    let message = "the stream of the run ended early; the run goes on in LangGraph";
    assert_eq!(response.body().await, failed(message, "upstream_lost"));
}

#[tokio::test]
async fn a_run_whose_stream_is_cut_while_it_goes_on_is_lost_with_everything_closed() {
    let gateway = Gateway::start().await;
    let (mut response, mut run) = gateway.run().await;
    run.send(token("a", "one")).await;
    assert_eq!(response.frame().await + &response.frame().await, told("a", "one"));
    run.cut();
    gateway.record("running").await;
    let end = response.body().await;
    let (first, last) = end.split_once("\n\n").unwrap();
    assert_eq!(format!("{first}\n\n"), closed("a"));
    assert!(
        last.starts_with(
            r#"data: {"type":"RUN_ERROR","message":"the stream of the run broke off ("#
        )
    );
    assert!(last.ends_with("); the run goes on in LangGraph\",\"code\":\"upstream_lost\"}\n\n"));
}

#[tokio::test]
async fn a_stream_without_its_end_is_made_up_for_by_the_state_of_its_run() {
    let gateway = Gateway::start().await;
    for (run_id, is_made_up_for) in [(RUN, true), ("other", false)] {
        let (mut response, mut run) = gateway.run().await;
        run.send("event: values\r\ndata: {\"half").await;
        run.cut();
        gateway.record("success").await;
        let state = json!({"values": values(&["hi", "you"]), "metadata": {"run_id": run_id}});
        gateway.state(Some(state)).await;
        let body = response.body().await;
        if is_made_up_for {
            assert!(body.contains(r#"{"role":"assistant","id":"m1","content":"you"}"#), "{body}");
            assert!(body.ends_with(&finished("success")), "{body}");
        } else {
            assert!(body.contains("the run itself succeeded: load the thread"), "{body}");
            assert!(body.ends_with("\"code\":\"upstream_lost\"}\n\n"), "{body}");
        }
    }
}

#[tokio::test]
async fn a_run_that_the_headers_do_not_name_is_named_by_its_stream() {
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
async fn a_run_that_nothing_names_goes_by_the_clients_name_and_cannot_be_asked_for() {
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
async fn a_script_may_have_a_json_document_a_line() {
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

// === threads ===

#[tokio::test]
async fn an_edited_message_forks_the_thread_before_it() {
    let gateway = Gateway::start().await;
    let state = |id: &str, parent: Option<&str>, messages: &[&str]| {
        let parent = parent.map(|parent| json!({"checkpoint_id": parent}));
        let checkpoint = json!({"checkpoint_id": id});
        json!({"values": values(messages), "checkpoint": checkpoint, "parent_checkpoint": parent})
    };
    // Between the message and its past lies a branch that an earlier fork has left.
    let history = json!([
        state("c6", Some("c5"), &["one", "1", "two", "2"]),
        state("c5", Some("c2"), &["one", "1", "two"]),
        state("c4", Some("c3"), &["one"]),
        state("c3", Some("c2"), &["one", "1"]),
        state("c2", Some("c1"), &["one", "1"]),
        state("c1", None, &[]),
    ]);
    let script = async {
        gateway.state(Some(json!({"values": values(&["one", "1", "two", "2"])}))).await;
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
async fn the_way_back_is_as_long_as_it_must_and_then_refused() {
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
        gateway.state(Some(json!({"values": values(&["one", "1"])}))).await;
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
async fn a_history_that_cannot_be_read_is_not_taken_for_a_short_one() {
    for history in ["<html>", "{}", r#"[{"values":{}}]"#] {
        let gateway = Gateway::start().await;
        let script = async {
            gateway.state(Some(json!({"values": values(&["one", "1"])}))).await;
            let path = format!("GET /threads/{THREAD}/history?limit=20");
            gateway.upstream.expect(&path).await.json(200, history).await;
        };
        let input = input(&["ONE"]);
        let (mut response, ()) = tokio::join!(gateway.post(&input), script);
        let message = "the LangGraph server's answer about the thread's history is no list of \
                       states; check that the upstream's URL is that of a LangGraph API server";
        let expected = refusal("502 Bad Gateway", "not_langgraph", message);
        assert_eq!(refused(&mut response).await, expected, "{history}");
    }
}

// === refusals ===

#[tokio::test]
async fn what_is_no_request_to_run_an_agent_is_refused() {
    let gateway = Gateway::start().await;
    let send = async |request: String| {
        let mut response = Response::to(gateway.address, request.as_bytes()).await;
        refused(&mut response).await
    };
    let run = |headers: &str, body: &str| {
        format!("POST /agui/agent/a/run HTTP/1.1\r\nhost: h\r\n{headers}\r\n{body}")
    };
    let json = "content-type: application/json\r\n";
    let route = "there is no route /nowhere; runs are started with POST /agui/agent/{agent}/run, \
                 and GET /agui/info names the agents";
    let method = "/agui/agent/a/run does not take GET; the `allow` header names what it takes";
    let large = "the body is longer than 10485760 bytes; send attachments by URL, or begin a new \
                 thread";
    for (request, expected) in [
        (
            "GET /nowhere HTTP/1.1\r\nhost: h\r\n\r\n".to_owned(),
            refusal("404 Not Found", "unknown_route", route),
        ),
        (
            "GET /agui/agent/a/run HTTP/1.1\r\nhost: h\r\n\r\n".to_owned(),
            refusal("405 Method Not Allowed", "wrong_method", method),
        ),
        (
            run("content-type: text/plain\r\ncontent-length: 2\r\n", "{}"),
            refusal(
                "415 Unsupported Media Type",
                "not_json",
                "the content-type is `text/plain`; send application/json",
            ),
        ),
        (
            run(&format!("{json}content-length: 2\r\n"), "{}"),
            refusal(
                "400 Bad Request",
                "invalid_request",
                "`threadId` is missing; a RunAgentInput has one",
            ),
        ),
        (
            run(&format!("{json}content-length: 5\r\n"), "\u{1}[{]}"),
            refusal(
                "400 Bad Request",
                "invalid_request",
                "the body is not JSON: expected value at line 1 column 1",
            ),
        ),
        (
            run(&format!("{json}content-length: {}\r\n", MAX_BODY + 1), ""),
            refusal("413 Payload Too Large", "too_large", large),
        ),
        (
            run(
                &format!("{json}transfer-encoding: chunked\r\n"),
                &format!("{:x}\r\n{}", MAX_BODY + 1, " ".repeat(MAX_BODY + 1)),
            ),
            refusal("413 Payload Too Large", "too_large", large),
        ),
    ] {
        assert_eq!(send(request).await, expected);
    }
}

#[tokio::test]
async fn a_wrong_method_is_told_the_right_one() {
    let gateway = Gateway::start().await;
    let request = b"PUT /agui/agent/a/run HTTP/1.1\r\nhost: h\r\n\r\n";
    let response = Response::to(gateway.address, request).await;
    assert!(response.head.contains("\r\nallow: POST\r\n"), "{}", response.head);
}

#[tokio::test]
async fn it_says_that_it_is_alive() {
    let gateway = Gateway::start().await;
    let request = b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n";
    let mut response = Response::to(gateway.address, request).await;
    assert!(response.head.starts_with("HTTP/1.1 200 OK\r\n"), "{}", response.head);
    assert_eq!(response.body().await, "ok\n");
}

#[tokio::test]
async fn an_upstream_that_refuses_connections_is_a_bad_gateway() {
    let closed = Upstream::bind().await.url();
    let (address, _stop, _serving) = serve(&closed, Limits::default()).await;
    let mut response = post(address, "", &input(&["hi"]).to_string()).await;
    let message = "the LangGraph server cannot be reached: Connection refused (os error 111); \
                   check that it runs, and the upstream's URL";
    let expected = refusal("502 Bad Gateway", "upstream_unreachable", message);
    assert_eq!(refused(&mut response).await, expected);
}

#[tokio::test]
async fn what_the_upstream_refuses_is_refused_in_our_words() {
    let gateway = Gateway::start().await;
    let unknown = "LangGraph knows no agent `agent`; name a graph of the server's langgraph.json \
                   or an assistant's id";
    let unknown = || refusal("404 Not Found", "unknown_agent", unknown);
    let busy = "the thread has a run that is not over; wait for its end or stop it, then send the \
                request again";
    let busy = || refusal("409 Conflict", "thread_busy", busy);
    let html = "the LangGraph server answered with `text/html` instead of an event stream; check \
                that the upstream's URL is that of a LangGraph API server";
    for (status, body, expected) in [
        (404, r#"{"detail":"Thread or assistant not found."}"#, unknown()),
        (404, "Assistant not found", unknown()),
        (422, r#"{"detail":"Invalid assistant: 'agent'. Must be either:\n- ..."}"#, unknown()),
        (409, r#"{"detail":"Thread is already running a task. Wait"}"#, busy()),
        (422, "Thread is already running a task. Wait", busy()),
        (
            401,
            r#"{"detail":"bad key"}"#,
            refusal(
                "401 Unauthorized",
                "unauthorized",
                "the LangGraph server answered 401: bad key; threadway passes no credentials on: \
                 have the server let it in without",
            ),
        ),
        (
            403,
            "",
            refusal(
                "403 Forbidden",
                "forbidden",
                "the LangGraph server answered 403; threadway passes no credentials on: have the \
                 server let it in without",
            ),
        ),
        (
            500,
            "Internal Server Error",
            refusal(
                "502 Bad Gateway",
                "upstream_refused",
                "the LangGraph server answered 500: Internal Server Error; the server's log may \
                 tell more",
            ),
        ),
        (
            307,
            "",
            refusal(
                "502 Bad Gateway",
                "upstream_refused",
                "the LangGraph server answered 307; the server's log may tell more",
            ),
        ),
        (200, "<html>", refusal("502 Bad Gateway", "not_langgraph", html)),
    ] {
        let script = async {
            gateway.state(None).await;
            gateway.upstream.next().await.answer(status, "text/html", body).await;
        };
        let input = input(&["hi"]);
        let (mut response, ()) = tokio::join!(gateway.post(&input), script);
        assert_eq!(refused(&mut response).await, expected, "{status} {body}");
    }
}

#[tokio::test]
async fn half_a_refusal_is_better_than_none_and_not_awaited_for_ever() {
    let gateway = Gateway::start().await;
    let script = async {
        gateway.state(None).await;
        let mut run = gateway.upstream.next().await;
        run.begin_answer(500, "text/plain", "half a", 12).await;
        run.cut();
    };
    let hi = input(&["hi"]);
    let (mut response, ()) = tokio::join!(gateway.post(&hi), script);
    let message = "the LangGraph server answered 500: half a; the server's log may tell more";
    let expected = refusal("502 Bad Gateway", "upstream_refused", message);
    assert_eq!(refused(&mut response).await, expected);

    let script = async {
        gateway.state(None).await;
        let mut run = gateway.upstream.next().await;
        run.begin_answer(500, "text/plain", "half a", 12).await;
        let clock = HeldClock::pause();
        clock.advance(START_TIMEOUT).await;
        (run, clock)
    };
    let answered = async {
        let mut response = gateway.post(&hi).await;
        refused(&mut response).await
    };
    let (told, _open) = tokio::join!(answered, script);
    let message = "the LangGraph server did not answer within 60 s; look at the thread before you \
                   try again: it may have acted";
    assert_eq!(told, refusal("504 Gateway Timeout", "upstream_timeout", message));
}

// === time, leaving and stopping ===

#[tokio::test]
async fn a_silent_stream_gives_a_sign_of_life_every_15_seconds() {
    let gateway = Gateway::start().await;
    let (mut response, mut run) = gateway.run().await;
    let clock = HeldClock::pause();
    let event =
        |n: u32| data(&format!(r#"{{"type":"CUSTOM","name":"langgraph.custom","value":{n}}}"#));
    // What is sent counts as life.
    for n in 0..2 {
        clock.advance(Duration::from_millis(14_990)).await;
        run.send(part("custom", &json!(n))).await;
        assert_eq!(response.frame().await, event(n));
    }
    for _ in 0..2 {
        clock.advance(KEEP_ALIVE).await;
        assert_eq!(response.frame().await, ": keep-alive\n\n");
    }
    // What makes no event does not.
    run.send(": heartbeat\r\n\r\n").await;
    run.send(part("custom", &json!(2))).await;
    assert_eq!(response.frame().await, event(2));
}

#[tokio::test]
async fn a_connection_on_which_nothing_is_said_is_closed_after_10_seconds() {
    let gateway = Gateway::start().await;
    // The second could still become HTTP/2.
    for bytes in ["", "PRI * HTTP"] {
        let mut socket = TcpStream::connect(gateway.address).await.unwrap();
        socket.write_all(bytes.as_bytes()).await.unwrap();
        // An answered request on another connection: the first was accepted before it.
        let health = b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n";
        Response::to(gateway.address, health).await;
        let clock = HeldClock::pause();
        clock.advance(Limits::default().header_timeout).await;
        // A reset closes too.
        assert_eq!(socket.read(&mut [0]).await.unwrap_or(0), 0);
        drop(clock);
        tokio::time::resume();
    }
}

#[tokio::test]
async fn a_client_that_leaves_is_not_read_for_and_cancels_nothing() {
    let gateway = Gateway::start().await;
    let (response, run) = gateway.run().await;
    drop(response);
    run.closed().await;
    // The next thing that the upstream hears of is another client's request.
    gateway.run().await;
}

#[tokio::test]
async fn a_stop_ends_every_stream_with_a_reason_and_closes_what_is_open() {
    let gateway = Gateway::start().await;
    let (mut silent, first) = gateway.run().await;
    let (mut speaking, mut second) = gateway.run().await;
    second.send(token("a", "one")).await;
    assert_eq!(speaking.frame().await + &speaking.frame().await, told("a", "one"));
    gateway.stop.cancel();
    let reason = "the gateway is shutting down; the run goes on in LangGraph";
    let end = failed(reason, "gateway_shutdown");
    assert_eq!(silent.body().await, end);
    assert_eq!(speaking.body().await, closed("a") + &end);
    first.closed().await;
    second.closed().await;
    let address = gateway.address;
    gateway.stopped().await;
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_stop_also_ends_a_stream_whose_run_is_asked_for() {
    let gateway = Gateway::start().await;
    let (mut response, run) = gateway.run().await;
    run.end().await;
    let record = gateway.upstream.expect(&format!("GET /threads/{THREAD}/runs/{RUN}")).await;
    gateway.stop.cancel();
    assert!(response.body().await.contains("gateway_shutdown"));
    record.closed().await;
    gateway.stopped().await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_ever_for_a_client_that_does_not_go_on() {
    let gateway = Gateway::start().await;
    let mut socket = TcpStream::connect(gateway.address).await.unwrap();
    let request = b"POST /agui/agent/a/run HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\
                    content-type: application/json\r\nexpect: 100-continue\r\n\r\n";
    socket.write_all(request).await.unwrap();
    let mut answer = [0; 25];
    socket.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 100 Continue\r\n\r\n");
    // It now waits for a body that does not come.
    let clock = HeldClock::pause();
    gateway.stop.cancel();
    while TcpStream::connect(gateway.address).await.is_ok() {}
    clock.advance(GRACE).await;
    gateway.stopped().await;
    assert_eq!(socket.read(&mut answer).await.unwrap_or(0), 0);
}

#[cfg(unix)]
#[test]
fn the_binary_tells_where_it_listens_and_stops_on_sigterm() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_threadway"))
        .args(["serve", "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:0"])
        .env_clear()
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut line = || lines.next().unwrap().unwrap();
    let first = line();
    let address = first.strip_prefix("threadway: listening on http://").unwrap();
    let address = address.strip_suffix(" in front of http://127.0.0.1:1").unwrap().to_owned();
    assert_eq!(
        line(),
        "threadway: upstream default: the LangGraph server cannot be reached: Connection refused \
         (os error 111); its agents are served once it answers"
    );
    assert_eq!(line(), format!("threadway: CopilotKit: runtimeUrl http://{address}/agui"));
    std::net::TcpStream::connect(&address).unwrap();

    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stdout, b"");
    let log: Vec<_> = lines.map(Result::unwrap).collect();
    assert!(log.last().unwrap().ends_with("stopped: all connections have ended"), "{log:?}");
}

#[test]
fn an_address_that_is_taken_is_told() {
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
