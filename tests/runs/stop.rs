//! Stopping a thread's live run: which run is stopped, the response, and how its stream ends.

use crate::support::clock::HeldClock;
use crate::support::gateway::{
    COLUMNS, Gateway, RUN, Response, THREAD, agents, closed, finished, input, part, refusal,
    refused, run_request, serve, token, told,
};
use crate::support::upstream::Upstream;
use serde_json::{Value, json};
use threadway::server::Limits;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const STOPPED: &str = concat!(
    r#"{"stopped":true,"interrupt":{"type":"RUN_ERROR","message":"Run stopped by user","#,
    r#""code":"STOPPED"}}"#,
    "\n"
);

fn request(thread: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST /agui/agent/agent/stop/{thread} HTTP/1.1\r\nhost: h\r\ncontent-length: {length}\r\n\
         \r\n{body}"
    )
    .into_bytes()
}

/// Sends a stop; returns the status line and the body of the response.
async fn stop(gateway: &Gateway, body: &str) -> (String, String) {
    refused(&mut Response::to(gateway.address, &request(THREAD, body)).await).await
}

/// Answers the lists of the thread's live runs. The pending ones come first, so a run that starts
/// in between is in the second list.
async fn live(upstream: &Upstream, thread: &str, running: Value, pending: Value) {
    for (status, runs) in [("pending", pending), ("running", running)] {
        let line = format!("GET /threads/{thread}/runs?status={status}&limit=100{COLUMNS}");
        upstream.expect(&line).await.json(200, &runs.to_string()).await;
    }
}

fn run(id: &str, status: &str, client_id: &str) -> Value {
    json!({"run_id": id, "status": status, "metadata": {"threadway_run_id": client_id, "threadway_start": id}})
}

fn stopped() -> (String, String) {
    ("HTTP/1.1 200 OK".to_owned(), STOPPED.to_owned())
}

fn nothing(message: &str) -> (String, String) {
    let body = format!("{{\"stopped\":false,\"message\":\"{message}\"}}\n");
    ("HTTP/1.1 200 OK".to_owned(), body)
}

#[tokio::test]
async fn the_run_that_is_named_is_stopped_else_the_one_whose_turn_it_is() {
    let gateway = Gateway::start().await;
    // Newest first.
    let pending = || json!([run("R3", "pending", "r3"), run("R2", "pending", "r2")]);
    let running = || json!([run("R1", "running", "r1")]);
    for (running, body, expected) in [
        (running(), "", Some("R1")),
        (running(), "{}", Some("R1")),
        (json!([]), "", Some("R2")),
        (running(), r#"{"runId":"r1"}"#, Some("R1")),
        (running(), r#"{"runId":"r2"}"#, Some("R2")),
        (running(), r#"{"runId":"R3"}"#, Some("R3")),
        (running(), r#"{"runId":"r4"}"#, None),
    ] {
        let script = async {
            live(&gateway.upstream, THREAD, running, pending()).await;
            if let Some(run_id) = expected {
                let path = format!("POST /threads/{THREAD}/runs/{run_id}/cancel");
                let cancel = gateway.upstream.expect(&path).await;
                assert_eq!(cancel.body, "");
                cancel.json(202, "").await;
            }
        };
        let (told, ()) = tokio::join!(stop(&gateway, body), script);
        let none = || nothing("the thread has no live run r4");
        assert_eq!(told, expected.map_or_else(none, |_| stopped()), "{body}");
    }
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn a_thread_with_no_live_run_is_told_so_and_left_alone() {
    let gateway = Gateway::start().await;
    let script = live(&gateway.upstream, THREAD, json!([]), json!([]));
    let (told, ()) = tokio::join!(stop(&gateway, ""), script);
    assert_eq!(told, nothing("the thread has no live run"));

    // The two servers answer 404 in different words.
    for (status, body) in [(404, r#"{"detail":"Thread not found"}"#), (404, "Thread not found")] {
        let script = async {
            for _ in 0..2 {
                gateway.upstream.next().await.json(status, body).await;
            }
        };
        let (told, ()) = tokio::join!(stop(&gateway, ""), script);
        assert_eq!(told, nothing("the thread has no live run"));
    }

    // The run has ended in the meantime.
    let script = async {
        live(&gateway.upstream, THREAD, json!([run(RUN, "running", "r1")]), json!([])).await;
        let cancel = gateway.upstream.next().await;
        cancel.json(404, r#"{"detail":"No matching runs to cancel."}"#).await;
    };
    let (told, ()) = tokio::join!(stop(&gateway, r#"{"runId":"r1"}"#), script);
    assert_eq!(told, nothing("the thread has no live run r1"));
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn a_web_page_in_place_of_an_answer_stops_nothing() {
    let gateway = Gateway::start().await;
    let script = async {
        live(&gateway.upstream, THREAD, json!([run(RUN, "running", "r1")]), json!([])).await;
        let cancel = gateway.upstream.next().await;
        cancel.answer(200, "text/html; charset=utf-8", "<!doctype html>").await;
    };
    let (told, ()) = tokio::join!(stop(&gateway, ""), script);
    let message = "the LangGraph server's answer is not one of LangGraph: it is a web page, \
                   perhaps a login; check that the upstream's URL is that of a LangGraph API server";
    assert_eq!(told, refusal("502 Bad Gateway", "not_langgraph", message));
}

#[tokio::test]
async fn a_thread_goes_by_the_clients_name_here_too() {
    let gateway = Gateway::start().await;
    let script = async {
        // The LangGraph id of the thread `my thread`.
        let thread = "e817c419-7e64-5f51-8a5c-c4cf14d1fb2d";
        live(&gateway.upstream, thread, json!([]), json!([run("R", "pending", "r")])).await;
        let path = format!("POST /threads/{thread}/runs/R/cancel");
        gateway.upstream.expect(&path).await.json(204, "").await;
    };
    let request = request("my%20thread", "");
    let (mut response, ()) = tokio::join!(Response::to(gateway.address, &request), script);
    assert_eq!(refused(&mut response).await, stopped());
}

#[tokio::test]
async fn what_is_no_request_to_stop_is_refused_and_stops_nothing() {
    let gateway = Gateway::start().await;
    let form = r#"the body of a stop is empty, `{}` or `{\"runId\": \"..\"}`"#;
    for body in ["null", "[]", "{", "r1", r#"{"runId":1}"#, r#"{"runId":null}"#, r#"{"x":1}"#] {
        let expected = refusal("400 Bad Request", "invalid_request", form);
        assert_eq!(stop(&gateway, body).await, expected, "{body}");
    }
    let large = format!(r#"{{"runId":"{}"}}"#, "r".repeat(4096));
    let (status, _) = stop(&gateway, &large).await;
    assert_eq!(status, "HTTP/1.1 413 Payload Too Large");
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn an_upstream_that_cannot_be_asked_stops_nothing_and_says_why() {
    let url = Upstream::bind().await.url();
    let (address, _stop, _serving) = serve(agents(&[("a", &url)], &[]), Limits::default()).await;
    let mut response = Response::to(address, &request(THREAD, "")).await;
    let message = "the LangGraph server cannot be reached: Connection refused (os error 111); \
                   check that it runs, and the upstream's URL";
    let expected = refusal("502 Bad Gateway", "upstream_unreachable", message);
    assert_eq!(refused(&mut response).await, expected);

    let gateway = Gateway::start().await;
    let boom = "the LangGraph server answered 500; the server's log may tell more";
    let no_list = "the LangGraph server's answer is not a list of runs; check that the upstream's \
                   URL is that of a LangGraph API server";
    for (status, body, expected) in [
        (500, "boom", refusal("502 Bad Gateway", "upstream_refused", boom)),
        (200, "<html>", refusal("502 Bad Gateway", "not_langgraph", no_list)),
    ] {
        let script = async {
            gateway.upstream.next().await.answer(status, "text/plain", body).await;
        };
        let (told, ()) = tokio::join!(stop(&gateway, ""), script);
        assert_eq!(told, expected);
    }
    // The request for the cancel.
    let script = async {
        live(&gateway.upstream, THREAD, json!([run(RUN, "running", "r1")]), json!([])).await;
        gateway.upstream.next().await.answer(500, "text/plain", "boom").await;
    };
    let (told, ()) = tokio::join!(stop(&gateway, ""), script);
    assert_eq!(told, refusal("502 Bad Gateway", "upstream_refused", boom));
}

/// A stop as CopilotKit's client sends it to the single route of a gateway.
fn in_envelope() -> Vec<u8> {
    let params = json!({"agentId": "agent", "threadId": THREAD});
    let body = json!({"method": "agent/stop", "params": params}).to_string();
    let length = body.len();
    format!(
        "POST /agui HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Sends a stop, and fails as soon as the response differs from the expected one.
async fn answered(gateway: &Gateway, stop: &[u8], expected: (String, String)) {
    let answer = refused(&mut Response::to(gateway.address, stop).await).await;
    assert_eq!(answer, expected);
}

#[tokio::test]
async fn a_run_that_is_being_started_is_stopped_as_soon_as_langgraph_has_it() {
    let _clock = HeldClock::pause();
    let named = request(THREAD, r#"{"runId":"r1"}"#);
    for (stop, is_before_post) in [
        (request(THREAD, ""), false),
        (named.clone(), false),
        (in_envelope(), false),
        (named, true),
    ] {
        let gateway = Gateway::start().await;
        let script = async {
            let post = format!("POST /threads/{THREAD}/runs/stream");
            let state = gateway.upstream.expect(&format!("GET /threads/{THREAD}/state")).await;
            let (mut asked, mut state) = (None, Some(state));
            if !is_before_post {
                state.take().unwrap().json(404, "{}").await;
                asked = Some(gateway.upstream.expect(&post).await);
            }
            let langgraph = async {
                // LangGraph does not list the run yet.
                live(&gateway.upstream, THREAD, json!([]), json!([])).await;
                gateway.settled().await;
                if let Some(state) = state {
                    state.json(404, "{}").await;
                    asked = Some(gateway.upstream.expect(&post).await);
                }
                let mut stream = asked.unwrap();
                let id = format!("content-location: /threads/{THREAD}/runs/{RUN}\r\n");
                stream.begin(&id).await;
                let listed = json!([run(RUN, "running", "r1")]);
                live(&gateway.upstream, THREAD, listed, json!([])).await;
                let path = format!("POST /threads/{THREAD}/runs/{RUN}/cancel");
                gateway.upstream.expect(&path).await.json(202, "").await;
                stream.end().await;
                gateway.record("interrupted").await;
            };
            tokio::join!(answered(&gateway, &stop, stopped()), langgraph);
        };
        let input = input(&["hi"]);
        let (mut response, ()) = tokio::join!(gateway.post(&input), script);
        assert!(response.body().await.ends_with(&finished("cancelled")));
        gateway.upstream.is_untouched().await;
    }
}

#[tokio::test]
async fn a_stop_goes_on_if_the_page_closes_both_of_its_requests() {
    let gateway = Gateway::start().await;
    let _clock = HeldClock::pause();
    let mut page = TcpStream::connect(gateway.address).await.unwrap();
    let body = input(&["hi"]).to_string();
    page.write_all(run_request("agent", "", &body).as_bytes()).await.unwrap();
    gateway.state(None).await;
    let mut started = gateway.upstream.expect(&format!("POST /threads/{THREAD}/runs/stream")).await;
    let mut stopping = TcpStream::connect(gateway.address).await.unwrap();
    stopping.write_all(&request(THREAD, "")).await.unwrap();
    live(&gateway.upstream, THREAD, json!([]), json!([])).await;
    gateway.settled().await;
    drop((page, stopping));
    gateway.settled().await;
    started.begin(&format!("content-location: /threads/{THREAD}/runs/{RUN}\r\n")).await;
    // The run's owner has disconnected, and no client waits for the response to the stop.
    live(&gateway.upstream, THREAD, json!([run(RUN, "running", "r1")]), json!([])).await;
    let path = format!("POST /threads/{THREAD}/runs/{RUN}/cancel");
    gateway.upstream.expect(&path).await.json(202, "").await;
}

#[tokio::test]
async fn a_run_that_langgraph_refuses_while_it_is_to_be_stopped_was_no_run() {
    let gateway = Gateway::start().await;
    let _clock = HeldClock::pause();
    let script = async {
        gateway.state(None).await;
        let post = gateway.upstream.expect(&format!("POST /threads/{THREAD}/runs/stream")).await;
        let langgraph = async {
            live(&gateway.upstream, THREAD, json!([]), json!([])).await;
            gateway.settled().await;
            post.json(422, r#"{"detail":"no"}"#).await;
            live(&gateway.upstream, THREAD, json!([]), json!([])).await;
        };
        let stop = request(THREAD, "");
        let none = nothing("the thread has no live run");
        tokio::join!(answered(&gateway, &stop, none), langgraph);
    };
    let input = input(&["hi"]);
    let (mut response, ()) = tokio::join!(gateway.post(&input), script);
    assert_eq!(refused(&mut response).await.0, "HTTP/1.1 502 Bad Gateway");
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn the_stream_of_a_stopped_run_ends_as_cancelled_on_both_servers() {
    // The Python server just ends the stream, a JavaScript server before 1.4.4 with an error.
    let interrupt = part("error", &json!({"error": "Error", "message": "interrupt"}));
    for (last_part, status) in [(None, "interrupted"), (Some(interrupt), "error")] {
        let gateway = Gateway::start().await;
        let (mut response, mut stream) = gateway.run().await;
        stream.send(token("a", "one")).await;
        let script = async {
            live(&gateway.upstream, THREAD, json!([run(RUN, "running", "r1")]), json!([])).await;
            let path = format!("POST /threads/{THREAD}/runs/{RUN}/cancel");
            gateway.upstream.expect(&path).await.json(202, "").await;
            if let Some(part) = last_part {
                stream.send(part).await;
            }
            stream.end().await;
            gateway.record(status).await;
            if status == "error" {
                gateway.state(None).await;
            }
        };
        let (answer, ()) = tokio::join!(stop(&gateway, r#"{"runId":"r1"}"#), script);
        assert_eq!(answer, stopped());
        let end = told("a", "one") + &closed("a") + &finished("cancelled");
        assert_eq!(response.body().await, end, "{status}");
    }
}

#[tokio::test]
async fn a_run_that_could_not_be_stopped_and_then_fails_has_failed() {
    let gateway = Gateway::start().await;
    let (mut response, stream) = gateway.run().await;
    let script = async {
        live(&gateway.upstream, THREAD, json!([run(RUN, "running", "r1")]), json!([])).await;
        let path = format!("POST /threads/{THREAD}/runs/{RUN}/cancel");
        gateway.upstream.expect(&path).await.json(500, r#"{"detail":"no"}"#).await;
    };
    let (answer, ()) = tokio::join!(stop(&gateway, ""), script);
    assert_eq!(answer.0, "HTTP/1.1 502 Bad Gateway");
    let script = async {
        stream.end().await;
        gateway.status("error").await;
        let get = gateway.upstream.expect(&format!("GET /threads/{THREAD}")).await;
        get.json(200, r#"{"error":{"error":"ValueError","message":"boom"}}"#).await;
        gateway.state(None).await;
    };
    let (body, ()) = tokio::join!(response.body(), script);
    assert!(body.ends_with("\"message\":\"boom\",\"code\":\"ValueError\"}\n\n"), "{body}");
}
