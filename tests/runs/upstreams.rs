//! Upstreams that refuse, break, violate the protocol or fall silent: the client's errors.

use std::time::Duration;

use crate::support::clock::HeldClock;
use crate::support::gateway::{
    Gateway, RUN, Response, THREAD, agents, data, events, finished, input, part, post, refusal,
    refused, serve, started, timely, token, told, values,
};
use crate::support::judge;
use crate::support::schema::Schema;
use crate::support::upstream::{Exchange, Upstream};
use serde_json::{Value, json};
use threadway::runs::UPSTREAM_PATIENCE;
use threadway::server::Limits;
use threadway::upstream::ANSWER_TIMEOUT;
use threadway_translate::sse::MAX_EVENT_BYTES;

/// How long the Python server, which sends a heartbeat every 5 s, may be silent.
const SILENCE: Duration = Duration::from_secs(20);

/// The pause before a stream is joined again.
const NO_PAUSE: Duration = Duration::from_millis(3);

// === before the stream ===

#[tokio::test]
async fn an_upstream_that_refuses_connections_is_a_bad_gateway() {
    let closed = Upstream::bind().await.url();
    let agents = agents(&[("default", &closed)], &[]);
    let (address, _stop, _serving) = serve(agents, Limits::default()).await;
    let mut response = post(address, "", &input(&["hi"]).to_string()).await;
    let message = "the LangGraph server cannot be reached: Connection refused (os error 111); \
                   check that it runs, and the upstream's URL";
    let expected = refusal("502 Bad Gateway", "upstream_unreachable", message);
    assert_eq!(refused(&mut response).await, expected);
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn what_the_upstream_refuses_is_refused_in_our_words() {
    let gateway = Gateway::start().await;
    let unknown = "LangGraph knows no agent `agent`; name a graph of the server's langgraph.json \
                   or an assistant's id";
    let unknown = || refusal("404 Not Found", "unknown_agent", unknown);
    let busy = "the thread has a run in progress; wait for it to end or stop it, then send the \
                request again";
    let busy = || refusal("409 Conflict", "thread_busy", busy);
    let html = "the LangGraph server did not answer with an event stream; check \
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
                "502 Bad Gateway",
                "upstream_unauthorized",
                "the LangGraph server answered 401; send the credentials that it wants, or \
                 have the gateway's operator set `upstream.api_key` to a key that it accepts",
            ),
        ),
        (
            403,
            "",
            refusal(
                "502 Bad Gateway",
                "upstream_unauthorized",
                "the LangGraph server answered 403; send the credentials that it wants, or \
                 have the gateway's operator set \
                 `upstream.api_key` to a key that it accepts",
            ),
        ),
        (
            500,
            "Internal Server Error",
            refusal(
                "502 Bad Gateway",
                "upstream_refused",
                "the LangGraph server answered 500; the server's log may \
                 tell more",
            ),
        ),
        (
            307,
            "",
            refusal(
                "502 Bad Gateway",
                "upstream_refused",
                "the LangGraph server answered 307, a redirect; the gateway follows none, so have \
                 its operator set `upstream.url` to the server's own URL",
            ),
        ),
        (
            422,
            r#"{"detail":"Invalid thread ID: must be a UUID"}"#,
            refusal(
                "502 Bad Gateway",
                "upstream_refused",
                "the LangGraph server answered 422; the \
                 server's log may tell more",
            ),
        ),
        (
            400,
            r#"{"success":false,"error":{"issues":[{"path":["input"],"message":"Bad"}],"name":"ZodError"}}"#,
            refusal(
                "502 Bad Gateway",
                "upstream_refused",
                "the LangGraph server answered 400; the server's log may tell more",
            ),
        ),
        (
            429,
            r#"{"detail":"Too many requests"}"#,
            refusal(
                "429 Too Many Requests",
                "upstream_rate_limited",
                "the LangGraph server answered 429: it has had as many requests as it takes; \
                 wait, then send the request again",
            ),
        ),
        (
            503,
            "<html><body>Service Unavailable</body></html>",
            refusal(
                "502 Bad Gateway",
                "run_not_started",
                "the LangGraph server answered 503; it has no run of this request; send the \
                 request again",
            ),
        ),
        (200, "<html>", refusal("502 Bad Gateway", "not_langgraph", html)),
    ] {
        let script = async {
            gateway.state(None).await;
            gateway.upstream.next().await.answer(status, "text/html", body).await;
            if status == 503 {
                gateway.upstream.has_no_such_run().await;
            }
        };
        let input = input(&["hi"]);
        let posted = async { tokio::join!(gateway.post(&input), script) };
        let (mut response, ()) = timely(gateway.address, posted).await;
        assert_eq!(refused(&mut response).await, expected, "{status} {body}");
    }
}

#[tokio::test]
async fn a_rate_limit_of_langgraph_is_one_here_with_its_time() {
    let gateway = Gateway::acquainted().await;
    let message = "the LangGraph server answered 429: it has had as many requests as it takes; \
                   wait, then send the request again";
    let expected = refusal("429 Too Many Requests", "upstream_rate_limited", message);
    for (sent, told) in [
        ("retry-after: 30\r\n", "30"),
        (
            "date: Sun, 22 Nov 2026 10:00:00 GMT\r\nretry-after: Sun, 22 Nov 2026 10:00:07 GMT\r\n",
            "7",
        ),
        // Without a `Retry-After` of the server, the gateway sends one of its own.
        ("", "5"),
        ("retry-after: soon\r\n", "5"),
    ] {
        // The request for the state, and the start of the run.
        for asks_first in [true, false] {
            let script = async {
                if !asks_first {
                    gateway.state(None).await;
                }
                gateway.upstream.next().await.too_many(sent).await;
            };
            let input = input(&["hi"]);
            let (mut response, ()) = tokio::join!(gateway.post(&input), script);
            let wait = format!("\r\nretry-after: {told}\r\n");
            assert!(response.head.contains(&wait), "{sent}: {}", response.head);
            assert_eq!(refused(&mut response).await, expected, "{sent}");
        }
    }
    // The list of agents, if no upstream has returned any.
    let request = "GET /agui/info HTTP/1.1\r\nhost: h\r\n\r\n".as_bytes();
    let script = async { gateway.upstream.next().await.too_many("retry-after: 9\r\n").await };
    let (mut response, ()) = tokio::join!(Response::to(gateway.address, request), script);
    assert!(response.head.contains("\r\nretry-after: 9\r\n"), "{}", response.head);
    assert_eq!(refused(&mut response).await, expected);
}

#[tokio::test]
async fn a_redirect_is_refused_and_no_credentials_go_where_it_leads() {
    let gateway = Gateway::acquainted().await;
    let elsewhere = Upstream::bind().await;
    let credentials = "authorization: Bearer mine\r\nx-api-key: mine\r\n";
    let state = format!("GET /threads/{THREAD}/state");
    let run = format!("POST /threads/{THREAD}/runs/stream");
    for status in [301, 302, 303, 307, 308] {
        for redirected in [&state, &run] {
            let script = async {
                if redirected == &run {
                    gateway.state(None).await;
                }
                let asked = gateway.upstream.expect(redirected).await;
                assert!(asked.head.contains(&format!("\r\n{credentials}")), "{}", asked.head);
                let (_, path) = redirected.split_once(' ').unwrap();
                asked.redirect(status, &format!("{}{path}", elsewhere.url())).await;
            };
            let input = input(&["hi"]).to_string();
            let answered = async {
                let posted = post(gateway.address, credentials, &input);
                let (mut response, ()) = tokio::join!(posted, script);
                refused(&mut response).await
            };
            let told = tokio::select! {
                told = answered => told,
                followed = elsewhere.accept() => panic!("{status} was followed:\n{}", followed.head),
            };
            let message = format!(
                "the LangGraph server answered {status}, a redirect; the gateway follows none, so \
                 have its operator set `upstream.url` to the server's own URL"
            );
            let expected = refusal("502 Bad Gateway", "upstream_refused", &message);
            assert_eq!(told, expected, "{redirected}");
            gateway.upstream.is_untouched().await;
            elsewhere.is_untouched().await;
        }
    }
}

#[tokio::test]
async fn no_compression_is_asked_for_and_a_compressed_answer_is_named_as_such() {
    let gateway = Gateway::acquainted().await;
    let expected = refusal(
        "502 Bad Gateway",
        "not_langgraph",
        "the LangGraph server's answer is not readable: it is compressed, although the gateway \
         asked for no compression; have the proxy in front of it send answers without compression",
    );
    for compressed in ["state", "run"] {
        let script = async {
            if compressed == "run" {
                gateway.state(None).await;
            }
            let asked = gateway.upstream.next().await;
            assert!(asked.head.contains("\r\naccept-encoding: identity\r\n"), "{}", asked.head);
            asked.compressed().await;
        };
        let input = input(&["hi"]).to_string();
        let posted = post(gateway.address, "accept-encoding: gzip\r\n", &input);
        let (mut response, ()) = tokio::join!(posted, script);
        assert_eq!(refused(&mut response).await, expected, "{compressed}");
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
    let message = "the LangGraph server answered 500; the server's log may tell more";
    let expected = refusal("502 Bad Gateway", "upstream_refused", message);
    assert_eq!(refused(&mut response).await, expected);

    let script = async {
        gateway.state(None).await;
        let mut run = gateway.upstream.next().await;
        run.begin_answer(500, "text/plain", "half a", 12).await;
        gateway.upstream.has_no_such_run().await;
        run
    };
    let answered = async {
        let mut response = gateway.post(&hi).await;
        refused(&mut response).await
    };
    let answered = async { tokio::join!(answered, script) };
    let (told, _open) = timely(gateway.address, answered).await;
    let message = "the LangGraph server did not answer within 60 s; it has no run of this request; \
                   send the request again";
    assert_eq!(told, refusal("502 Bad Gateway", "run_not_started", message));
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_stream_has_started_no_run_if_none_is_listed() {
    let gateway = Gateway::start().await;
    let script = async |fault: fn(Exchange)| {
        gateway.state(None).await;
        fault(gateway.upstream.next().await);
        gateway.upstream.has_no_such_run().await;
    };
    for (fault, reason) in [
        (Exchange::reset as fn(_), "Connection reset by peer (os error 104)"),
        (Exchange::cut, "connection closed before message completed"),
    ] {
        let input = input(&["hi"]);
        let posted = async { tokio::join!(gateway.post(&input), script(fault)) };
        let (mut response, ()) = timely(gateway.address, posted).await;
        let message = format!(
            "the connection to the LangGraph server broke: {reason}; it has no run of this \
             request; send the request again"
        );
        let expected = refusal("502 Bad Gateway", "run_not_started", &message);
        assert_eq!(refused(&mut response).await, expected);
    }
}

#[tokio::test]
async fn a_read_that_breaks_has_changed_nothing() {
    let gateway = Gateway::acquainted().await;
    let script = async { gateway.upstream.next().await.cut() };
    let hi = input(&["hi"]);
    let (mut response, ()) = tokio::join!(gateway.connect(&hi), script);
    let message = "the connection to the LangGraph server broke: connection closed before message \
                   completed; send the request again";
    let expected = refusal("502 Bad Gateway", "upstream_interrupted", message);
    assert_eq!(refused(&mut response).await, expected);
}

#[tokio::test]
async fn a_run_that_does_not_begin_in_a_minute_is_not_awaited() {
    let gateway = Gateway::start().await;
    let script = async {
        gateway.state(None).await;
        gateway.upstream.next().await.closed().await;
        gateway.upstream.has_no_such_run().await;
    };
    let input = input(&["hi"]);
    let posted = async { tokio::join!(gateway.post(&input), script) };
    let (mut response, ()) = timely(gateway.address, posted).await;
    let message = "the LangGraph server did not answer within 60 s; it has no run of this request; \
                   send the request again";
    let expected = refusal("502 Bad Gateway", "run_not_started", message);
    assert_eq!(refused(&mut response).await, expected);
}

#[tokio::test]
async fn a_thread_that_cannot_be_read_starts_no_run() {
    let gateway = Gateway::acquainted().await;
    let no_state = "the LangGraph server's answer is not a thread's state; check that the \
                    upstream's URL is that of a LangGraph API server";
    for (status, body, expected) in [
        (200, "<html>", refusal("502 Bad Gateway", "not_langgraph", no_state)),
        (200, "[]", refusal("502 Bad Gateway", "not_langgraph", no_state)),
        (
            500,
            r#"{"detail":"boom"}"#,
            refusal(
                "502 Bad Gateway",
                "upstream_refused",
                "the LangGraph server answered 500; the server's log may tell more",
            ),
        ),
        (
            401,
            r#"{"detail":"bad key"}"#,
            refusal(
                "502 Bad Gateway",
                "upstream_unauthorized",
                "the LangGraph server answered 401; send the credentials that it wants, or \
                 have the gateway's operator set `upstream.api_key` to a key that it accepts",
            ),
        ),
    ] {
        let script = async {
            let get = gateway.upstream.expect(&format!("GET /threads/{THREAD}/state")).await;
            get.answer(status, "application/json", body).await;
        };
        let input = input(&["hi"]);
        let (mut response, ()) = tokio::join!(gateway.post(&input), script);
        assert_eq!(refused(&mut response).await, expected, "{status} {body}");
    }
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn a_thread_that_does_not_answer_starts_no_run() {
    let gateway = Gateway::acquainted().await;
    let script = async {
        let get = gateway.upstream.expect(&format!("GET /threads/{THREAD}/state")).await;
        let clock = HeldClock::pause();
        clock.advance(ANSWER_TIMEOUT).await;
        get.closed().await;
        clock
    };
    let input = input(&["hi"]);
    let (mut response, _clock) = tokio::join!(gateway.post(&input), script);
    let message = "the LangGraph server did not answer within 30 s; no run was started; send the \
                   request again";
    let expected = refusal("504 Gateway Timeout", "upstream_timeout", message);
    assert_eq!(refused(&mut response).await, expected);
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn a_thread_that_cannot_be_created_starts_no_run() {
    let gateway = Gateway::start().await;
    let script = async {
        gateway.upstream.next().await.json(404, "{}").await;
        let create = gateway.upstream.expect("POST /threads").await;
        create.json(500, r#"{"detail":"no room"}"#).await;
    };
    let mut input = input(&["hi"]);
    input["threadId"] = json!("my thread");
    let (mut response, ()) = tokio::join!(gateway.post(&input), script);
    let message = "the LangGraph server answered 500; the server's log may tell more";
    let expected = refusal("502 Bad Gateway", "upstream_refused", message);
    assert_eq!(refused(&mut response).await, expected);
    gateway.upstream.is_untouched().await;
}

// === in the stream ===

#[tokio::test]
async fn a_run_whose_stream_ends_in_order_while_it_goes_on_is_joined() {
    let gateway = Gateway::start().await;
    let (mut response, run) = gateway.run().await;
    run.end().await;
    for _ in 0..5 {
        gateway.record("pending").await;
    }
    let mut run = gateway.joined_behind("-1").await;
    run.send(token("a", "one")).await;
    assert_eq!(response.frame().await + &response.frame().await, told("a", "one"));
}

#[tokio::test]
async fn a_run_whose_stream_is_cut_is_joined_at_once_and_nothing_is_said_of_that() {
    let gateway = Gateway::start().await;
    let (mut response, mut run) = gateway.run().await;
    let one = format!("id: 7-0\r\n{}", token("a", "one"));
    run.send(&one).await;
    assert_eq!(response.frame().await + &response.frame().await, told("a", "one"));
    run.cut();
    let mut run = gateway.joined_behind("-1").await;
    run.send(one + &format!("id: 8-0\r\n{}", token("a", "two"))).await;
    let two = r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"two"}"#;
    assert_eq!(response.frame().await, data(two));
}

#[tokio::test]
async fn a_stream_without_its_end_is_made_up_for_by_the_state_of_its_run() {
    let gateway = Gateway::start().await;
    let (mut response, mut run) = gateway.run().await;
    run.send("event: values\r\ndata: {\"half").await;
    run.cut();
    // The run is over by now, and its stream was not stored.
    gateway.joined_behind("-1").await.end().await;
    gateway.record("success").await;
    let state = json!({"values": values(&["hi", "you"]), "metadata": {"run_id": RUN}});
    gateway.state(Some(state)).await;
    let body = response.body().await;
    assert!(body.contains(r#"{"role":"assistant","id":"m1","content":"you"}"#), "{body}");
    assert!(body.ends_with(&finished("success")), "{body}");
}

// === in the stream, with all brackets open ===

/// Opens all that can be open at once: reasoning, a text and a call, each with its step, and a
/// subagent with a text. Returns what the client has received.
async fn open_everything(gateway: &Gateway) -> (Response, Exchange, String) {
    let (mut response, mut run) = gateway.run().await;
    let thought = json!([{"type": "thinking", "thinking": "hm", "index": 0}]);
    let call = json!([{"name": "search", "args": "{\"q\":", "id": "call", "index": 0}]);
    for (id, content, calls, path) in [
        ("m1", thought, json!([]), "think:t1"),
        ("m2", json!("Half a"), json!([]), "say:t2"),
        ("m3", json!(""), call, "act:t3"),
        ("m4", json!("Half an"), json!([]), "sub:t4|model:t5"),
    ] {
        let (node, _) = path.rsplit('|').next().unwrap().split_once(':').unwrap();
        let chunk = json!({
            "type": "AIMessageChunk", "id": id, "content": content, "tool_call_chunks": calls
        });
        let origin = json!({"langgraph_node": node, "langgraph_checkpoint_ns": path});
        run.send(part("messages", &json!([chunk, origin]))).await;
    }
    let mut seen = started();
    while !seen.contains("Half an\"") {
        seen += &response.frame().await;
    }
    (response, run, seen)
}

/// The last event of a client whose run had all brackets open. The script plays the upstream. All
/// other events of that client close brackets.
async fn last_word(script: impl AsyncFnOnce(&Gateway, Exchange)) -> Value {
    let gateway = Gateway::start().await;
    let (mut response, run, seen) = open_everything(&gateway).await;
    let count = events(&seen).len();
    let (rest, ()) = tokio::join!(response.body(), script(&gateway, run));
    let events = events(&(seen + &rest));
    judge::closed(&Schema::load(), &events).unwrap();
    let [closings @ .., last] = &events[count..] else { panic!("no event was sent") };
    for event in closings {
        let kind = event["type"].as_str().unwrap();
        let is_end = kind.ends_with("_END") || kind.ends_with("_FINISHED");
        // The open call ends completely, so its tool may run.
        assert!(is_end || kind.starts_with("ACTIVITY_"), "{event}");
    }
    last.clone()
}

fn error(message: &str, code: &str) -> Value {
    json!({"type": "RUN_ERROR", "message": message, "code": code})
}

/// The gateway joins the server again, which knows only that the run was stopped.
async fn joined_and_over(gateway: &Gateway) {
    gateway.joined_behind("-1").await.end().await;
    gateway.record("interrupted").await;
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_joined_again_however_it_broke() {
    let cancelled = json!({"type": "cancelled"});
    let told = last_word(async |gateway, run| {
        run.cut();
        joined_and_over(gateway).await;
    });
    assert_eq!(told.await["outcome"], cancelled);

    let told = last_word(async |gateway, run| {
        run.reset();
        joined_and_over(gateway).await;
    });
    assert_eq!(told.await["outcome"], cancelled);

    let told = last_word(async |gateway, mut run| {
        run.raw("no length of a chunk\r\n").await;
        joined_and_over(gateway).await;
        run.closed().await;
    });
    assert_eq!(told.await["outcome"], cancelled);

    let told = last_word(async |gateway, mut run| {
        run.send("event: values\r\ndata: {\"messages\":[]}\r\n").await;
        run.end().await;
        joined_and_over(gateway).await;
    });
    assert_eq!(told.await["outcome"], cancelled);
}

#[tokio::test]
async fn a_sign_of_life_in_time_keeps_a_silent_stream() {
    let told = last_word(async |gateway, mut run| {
        let clock = HeldClock::pause();
        for _ in 0..3 {
            clock.advance(SILENCE.saturating_sub(Duration::from_secs(1))).await;
            run.send(": heartbeat\r\n\r\n").await;
            gateway.settled().await;
            gateway.upstream.is_untouched().await;
        }
        run.end().await;
        gateway.record("interrupted").await;
    });
    assert_eq!(told.await["outcome"], json!({"type": "cancelled"}));
}

#[tokio::test]
async fn a_line_without_an_end_is_given_up() {
    const CHUNK: usize = 4 * 1024 * 1024;
    let told = last_word(async |gateway, mut run| {
        run.send("event: values\r\ndata: ").await;
        let chunk = vec![b'1'; CHUNK];
        for _ in 0..MAX_EVENT_BYTES / CHUNK {
            run.send(&chunk).await;
        }
        run.closed().await;
        gateway.record("running").await;
    });
    let message = "the stream of the run cannot be read (an SSE event is longer than 67108864 \
                   bytes; have the graph keep less in its state); the run goes on";
    assert_eq!(told.await, error(message, "upstream_lost"));
}

#[tokio::test]
async fn a_run_whose_record_cannot_be_read_is_joined_and_asked_for_again() {
    for (status, body) in
        [(500, r#"{"detail":"boom"}"#), (200, "<html>"), (200, r#"{"status":"success"}"#)]
    {
        let told = last_word(async |gateway, run| {
            run.end().await;
            gateway.upstream.next().await.json(status, body).await;
            joined_and_over(gateway).await;
        });
        assert_eq!(told.await["outcome"], json!({"type": "cancelled"}), "{status} {body}");
    }
    let told = last_word(async |gateway, run| {
        run.end().await;
        let record = gateway.upstream.next().await;
        let clock = HeldClock::pause();
        clock.advance(ANSWER_TIMEOUT).await;
        record.closed().await;
        gateway.settled().await;
        clock.advance(NO_PAUSE).await;
        joined_and_over(gateway).await;
    });
    assert_eq!(told.await["outcome"], json!({"type": "cancelled"}));
}

#[tokio::test]
async fn a_run_whose_record_tells_no_known_status_is_lost() {
    let told = last_word(async |gateway, run| {
        run.end().await;
        gateway.record("paused").await;
    });
    let message = "the run's record has an unknown status";
    assert_eq!(told.await, error(message, "upstream_lost"));
}

#[tokio::test]
async fn a_run_that_is_not_there_any_more_was_cancelled_unless_its_thread_is_gone_too() {
    for (status, body) in [(404, r#"{"detail":"Not Found"}"#), (404, "Run not found")] {
        let told = last_word(async |gateway, run| {
            run.end().await;
            gateway.upstream.next().await.json(status, body).await;
            gateway.state(None).await;
        });
        let message = "LangGraph has neither the run nor its thread any more";
        assert_eq!(told.await, error(message, "run_gone"));
    }
}

#[tokio::test]
async fn a_run_is_not_asked_for_again_before_the_time_that_the_server_names() {
    let gateway = Gateway::start().await;
    let (mut response, run) = gateway.run().await;
    let clock = HeldClock::pause();
    run.cut();
    gateway.passes(&clock, Duration::from_secs(1)).await;
    let join = format!("GET /threads/{THREAD}/runs/{RUN}/stream");
    let record = format!("GET /threads/{THREAD}/runs/{RUN}");
    for asked in [join, record] {
        gateway.upstream.expect(&asked).await.too_many("retry-after: 7\r\n").await;
        gateway.settled().await;
        gateway.passes(&clock, Duration::from_secs(6)).await;
        let early = gateway.upstream.waiting().await.map(|early| early.line);
        assert_eq!(early, None, "after {asked}");
        gateway.passes(&clock, Duration::from_secs(2)).await;
    }
    let mut run = gateway.joined_behind("-1").await;
    run.send(token("a", "one")).await;
    let told_after = loop {
        let frame = response.whole_frame().await;
        if frame.contains("TEXT_MESSAGE_CONTENT") {
            break frame;
        }
    };
    assert!(told_after.contains("one"), "{told_after}");
}

#[tokio::test]
async fn a_server_that_stays_away_for_a_minute_loses_its_runs() {
    let mut gateway = Gateway::start().await;
    let (mut response, run, seen) = open_everything(&gateway).await;
    let clock = HeldClock::pause();
    // No server listens at the old address any more.
    gateway.upstream = Upstream::bind().await;
    run.cut();
    gateway.passes(&clock, UPSTREAM_PATIENCE.saturating_sub(Duration::from_secs(1))).await;
    let sign = response.whole_frame().await;
    assert_eq!(sign, ": keep-alive\n\n");
    gateway.passes(&clock, Duration::from_secs(10)).await;
    let rest = response.body().await;
    let rest = rest.replace(": keep-alive\n\n", "");
    let events = events(&(seen + &rest));
    judge::closed(&Schema::load(), &events).unwrap();
    let message = "the run is out of reach: the LangGraph server cannot be reached: Connection \
                   refused (os error 111); it may go on in LangGraph";
    assert_eq!(*events.last().unwrap(), error(message, "upstream_unavailable"));
}

#[tokio::test]
async fn an_error_in_the_stream_is_the_runs_end_whatever_follows() {
    let python = json!({"error": "ValueError", "message": "boom after 3 tokens"});
    let javascript = json!("boom");
    for (data, expected) in
        [(python, error("boom after 3 tokens", "ValueError")), (javascript, error("boom", "Error"))]
    {
        let error = part("error", &data);
        let told = last_word(async |gateway, mut run| {
            run.send(&error).await;
            run.end().await;
            gateway.record("error").await;
            gateway.state(None).await;
        });
        assert_eq!(told.await, expected);
        // A run that was rolled back has no record.
        let told = last_word(async |gateway, mut run| {
            run.send(&error).await;
            run.end().await;
            gateway.upstream.next().await.json(404, r#"{"detail":"Not Found"}"#).await;
            gateway.state(None).await;
        });
        assert_eq!(told.await, expected);
        let told = last_word(async |gateway, mut run| {
            run.send(&error).await;
            run.cut();
            // The record is out of date.
            gateway.record("running").await;
            gateway.record("error").await;
            gateway.state(None).await;
        });
        assert_eq!(told.await, expected);
    }
}

#[tokio::test]
async fn a_part_that_does_not_parse_is_passed_over() {
    let told = last_word(async |gateway, mut run| {
        for mode in ["values", "messages", "updates", "custom", "metadata", "tasks", "no mode"] {
            for data in ["", "{", "[1", "nul", "\u{0}"] {
                run.send(format!("event: {mode}\r\ndata: {data}\r\n\r\n")).await;
            }
            // A state and a custom event may have any value.
            for data in [json!(null), json!(1), json!([])] {
                if !matches!(mode, "values" | "custom") {
                    run.send(part(mode, &data)).await;
                }
            }
        }
        run.send(part("metadata", &json!({"run_id": 1}))).await;
        run.send([&b"event: values\r\ndata: \xFF\xFE\r\n\r\n"[..], &[0; 100], b"\n\n"].concat())
            .await;
        run.end().await;
        gateway.record("interrupted").await;
    });
    assert_eq!(told.await["outcome"], json!({"type": "cancelled"}));
}
