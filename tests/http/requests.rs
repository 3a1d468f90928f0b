//! Requests that are wrong, slow, too large or too many: their refusals. No other request is
//! disturbed, and no run is left upstream.

use std::time::Duration;

use crate::support::clock::HeldClock;
use crate::support::gateway::{
    Gateway, Response, THREAD, agents, closed, finished, input, refusal, refused, serve_as, token,
    told,
};
use crate::support::upstream::Upstream;
use serde_json::json;
use threadway::server::{BODY_TIMEOUT, IDLE_TIMEOUT, Limits, Settings, ThreadRoutePolicy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n";

const MAX_BODY: usize = 10 * 1024 * 1024;

// === refused requests ===

#[tokio::test]
async fn body_that_is_no_run_request_is_refused() {
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
    let method = "a GET of this route has to name a thread or a run in its query: send \
                  `threadId=THREAD` to load the thread, or `runId=RUN` to join the run; a run is \
                  started with POST";
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
                "the content-type is not application/json; send application/json",
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
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn wrong_method_is_told_the_right_one() {
    let gateway = Gateway::start().await;
    for (request, allowed) in [
        ("PUT /agui/agent/a/connect", "POST"),
        // On this path a GET only opens a WebSocket.
        ("PUT /agui/agent/a/run", "POST,GET,HEAD"),
        ("GET /agui/agent/a/run", "POST"),
        ("HEAD /agui/agent/a/run", "POST"),
    ] {
        let request = format!("{request} HTTP/1.1\r\nhost: h\r\n\r\n");
        let response = Response::to(gateway.address, request.as_bytes()).await;
        assert!(response.head.starts_with("HTTP/1.1 405 "), "{}", response.head);
        let allowed = format!("\r\nallow: {allowed}\r\n");
        assert!(response.head.contains(&allowed), "{}", response.head);
    }
}

#[tokio::test]
async fn json_of_the_wrong_shape_is_told_which_member_it_is() {
    let gateway = Gateway::start().await;
    let message = json!({"id": "m", "role": "user", "content": "hi"});
    let with = |member: &str, value: serde_json::Value| {
        let mut body = json!({"threadId": "t", "runId": "r", "messages": [message]});
        body[member] = value;
        body.to_string()
    };
    let object = "the body is not a JSON object; send a RunAgentInput";
    let role = "`messages[1]` is not a message with a string `id` and a string `role`";
    let status = r#"`resume[0]` is not an entry with `status` \"resolved\" or \"cancelled\""#;
    for (body, expected) in [
        ("[]".to_owned(), object),
        ("null".to_owned(), object),
        (with("threadId", json!(null)), "`threadId` is missing; a RunAgentInput has one"),
        (with("threadId", json!(1)), "`threadId` is not a string"),
        (with("runId", json!(null)), "`runId` is missing; a RunAgentInput has one"),
        (with("runId", json!({})), "`runId` is not a string"),
        (with("messages", json!(null)), "`messages` is missing; a RunAgentInput has one"),
        (with("messages", json!("hi")), "`messages` is not an array"),
        (with("messages", json!([1])), "`messages[0]` is not an object with id and role"),
        (with("messages", json!([message, {"id": "n"}])), role),
        (with("messages", json!([message, {"id": 1, "role": "user"}])), role),
        (with("tools", json!({})), "`tools` is not an array"),
        (with("tools", json!([{}])), "`tools[0]` is not a tool with a string `name`"),
        (with("context", json!([1])), "`context[0]` is not an object"),
        (with("resume", json!([[]])), "`resume[0]` is not an object"),
        (with("resume", json!([{}])), "`resume[0]` is not an entry with a string `interruptId`"),
        (with("resume", json!([{"interruptId": "i", "status": "done"}])), status),
    ] {
        let mut response = gateway.post_raw(&body).await;
        let expected = refusal("400 Bad Request", "invalid_request", expected);
        assert_eq!(refused(&mut response).await, expected, "{body}");
    }
    gateway.upstream.is_untouched().await;
}

/// All clients with such an id would share one thread.
#[tokio::test]
async fn blank_id_of_a_thread_or_a_run_is_refused_on_every_route() {
    let upstream = Upstream::bind().await;
    let agents = agents(&[("default", &upstream.url())], &[]);
    let settings = Settings { thread_routes: ThreadRoutePolicy::All, ..Settings::default() };
    let (address, _stop, _serving, _) = serve_as(agents, settings).await;
    let request = |line: &str, body: &str| {
        format!(
            "{line} HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let envelope = |method: &str, params: serde_json::Value, body: &serde_json::Value| {
        let body = json!({"method": method, "params": params, "body": body});
        request("POST /agui", &body.to_string())
    };
    let agent = || json!({"agentId": "agent"});
    for blank in ["", " "] {
        let input = |member: &str| {
            let mut input = input(&["hi"]);
            input[member] = json!(blank);
            input
        };
        let named = json!({"runId": blank});
        let mut requests =
            vec![("runId", request("POST /agui/agent/agent/stop/t", &named.to_string()))];
        for member in ["threadId", "runId"] {
            let [run, connect] = ["run", "connect"].map(|route| {
                let line = format!("POST /agui/agent/agent/{route}");
                request(&line, &input(member).to_string())
            });
            let [envelope_run, envelope_connect] = ["agent/run", "agent/connect"]
                .map(|method| envelope(method, agent(), &input(member)));
            let value = blank.replace(' ', "%20");
            let load = format!("GET /agui/agent/agent/run?{member}={value}");
            let other = if member == "runId" { "threadId" } else { "runId" };
            let join = format!("{load}&{other}=x&offset=-1");
            for request in [
                run,
                connect,
                envelope_run,
                envelope_connect,
                request(&load, ""),
                request(&join, ""),
            ] {
                requests.push((member, request));
            }
        }
        let resource = |method: &str, path: &str| {
            let params = json!({"path": path, "httpMethod": method});
            envelope("resource/request", params, &json!({"agentId": "agent", "archived": true}))
        };
        for (method, path) in [
            ("GET", "/messages"),
            ("GET", "/state?agentId=agent"),
            ("PATCH", ""),
            ("DELETE", ""),
            ("POST", "/archive"),
        ] {
            let thread = blank.replace(' ', "%20");
            requests.push(("threadId", resource(method, &format!("/threads/{thread}{path}"))));
        }
        for (member, request) in requests {
            let mut response = Response::to(address, request.as_bytes()).await;
            let message =
                format!("`{member}` is not an id: it is blank; send the id of a thread or a run");
            let expected = refusal("400 Bad Request", "invalid_request", &message);
            assert_eq!(refused(&mut response).await, expected, "{request}");
        }
    }
    // A path that ends before the id is another path, and none that is served.
    let archived = json!({"agentId": "agent", "archived": true}).to_string();
    for (line, body, expected) in [
        ("GET /agui/agent/agent/threads//events", "", "400"),
        ("GET /agui/agent/agent/threads/%20/events", "", "400"),
        ("POST /agui/agent/agent/stop/", "{}", "404"),
        ("POST /agui/agent/agent/stop/%20", "{}", "400"),
        ("GET /agui/threads//messages", "", "400"),
        ("GET /agui/threads/%20/messages", "", "400"),
        ("PATCH /agui/threads/", &*archived, "404"),
        ("PATCH /agui/threads/%20", &*archived, "400"),
        ("POST /agui/threads/%20/archive", &*archived, "400"),
        ("DELETE /agui/threads/%20", &*archived, "400"),
    ] {
        let response = Response::to(address, request(line, body).as_bytes()).await;
        let status = format!("HTTP/1.1 {expected} ");
        assert!(response.head.starts_with(&status), "{line}: {}", response.head);
    }
    upstream.is_untouched().await;
}

// === unknown agents ===

/// A request for a thread of an agent, on each route that reads threads.
fn reads(agent: &str) -> Vec<String> {
    let input = json!({"threadId": THREAD, "runId": "r", "messages": []});
    let post = |line: &str, body: &serde_json::Value| {
        let body = body.to_string();
        format!(
            "{line} HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let get = |path: &str| format!("GET /agui/{path} HTTP/1.1\r\nhost: h\r\n\r\n");
    let params = json!({"agentId": agent});
    let envelope = json!({"method": "agent/connect", "params": params, "body": input});
    vec![
        post(&format!("POST /agui/agent/{agent}/connect"), &input),
        post("POST /agui", &envelope),
        get(&format!("agent/{agent}/threads/{THREAD}/events")),
        get(&format!("agent/{agent}/threads/{THREAD}/events?follow=thread")),
        get(&format!("agent/{agent}/run?threadId={THREAD}")),
        get(&format!("agent/{agent}/run?threadId={THREAD}&runId=r&offset=-1")),
        get(&format!("threads/{THREAD}/messages?agentId={agent}")),
        get(&format!("threads?agentId={agent}")),
    ]
}

/// Sends a request to a gateway whose upstream answers with `about` if it is asked for the assistant
/// of this id, and has no runs. Returns the status, and the body of a refusal.
async fn read_of(agent: &str, request: &str, about: (u16, &str)) -> (String, String) {
    let upstream = Upstream::bind().await;
    let agents = agents(&[("default", &upstream.url())], &[]);
    let settings = Settings { thread_routes: ThreadRoutePolicy::All, ..Settings::default() };
    let (address, _stop, _serving, _) = serve_as(agents, settings).await;
    let answer = async {
        loop {
            let exchange = upstream.next().await;
            let line = exchange.line.clone();
            match &*line {
                "GET /info" => exchange.json(200, "{}").await,
                _ if line == format!("GET /assistants/{agent}") => {
                    exchange.json(about.0, about.1).await;
                }
                "POST /threads/search" => exchange.json(200, "[]").await,
                _ if line.contains("/runs?") => exchange.json(200, "[]").await,
                _ => exchange.json(404, "{}").await,
            }
        }
    };
    let ask = async {
        let mut response = Response::to(address, request.as_bytes()).await;
        let status = response.head.split(' ').nth(1).unwrap().to_owned();
        let body = if status == "404" { response.body().await } else { String::new() };
        (status, body)
    };
    tokio::select! {
        answered = ask => answered,
        () = answer => unreachable!("the loop never ends"),
    }
}

#[tokio::test]
async fn thread_of_an_agent_that_does_not_exist_is_refused_as_its_run_is() {
    let message = "LangGraph knows no agent `nobody`; name a graph of the server's langgraph.json \
                   or an assistant's id";
    let expected = refusal("404 Not Found", "unknown_agent", message).1;
    for request in reads("nobody") {
        let (status, body) = read_of("nobody", &request, (500, "")).await;
        assert_eq!((&*status, &body), ("404", &expected), "{request}");
    }
}

#[tokio::test]
async fn thread_is_read_if_the_server_does_not_say_that_there_is_no_such_agent() {
    const ID: &str = "01a200b7-5ee5-70e2-95e8-b76fe45c0278";
    let request = reads(ID).swap_remove(2);
    for (answer, expected) in [(200, "200"), (500, "200"), (403, "200"), (404, "404")] {
        let (status, _) = read_of(ID, &request, (answer, "{}")).await;
        assert_eq!(status, expected, "{answer}");
    }
}

#[tokio::test]
async fn bytes_that_are_no_text_and_json_that_nests_deeply_are_refused() {
    let gateway = Gateway::start().await;
    let not_utf8 = b"{\"threadId\":\"\xFF\"}".to_vec();
    let deep = |depth| "[".repeat(depth) + &"]".repeat(depth);
    let without_end = "[".repeat(1_000_000).into_bytes();
    let message = format!(r#"{{"id":"m","role":"user","content":{}}}"#, deep(1_000_000));
    let message = format!(r#"{{"threadId":"t","messages":[{message}]}}"#).into_bytes();
    for (body, expected) in [
        (not_utf8, "the body is not JSON: invalid unicode code point at line 1 column 14"),
        (without_end, "the body is not JSON: EOF while parsing a list at line 1 column 1000000"),
        (message, "`runId` is missing; a RunAgentInput has one"),
    ] {
        let head = format!(
            "POST /agui/agent/agent/run HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        let request = [head.into_bytes(), body].concat();
        let mut response = Response::to(gateway.address, &request).await;
        let expected = refusal("400 Bad Request", "invalid_request", expected);
        assert_eq!(refused(&mut response).await, expected);
    }
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn body_that_breaks_off_starts_nothing() {
    let gateway = Gateway::start().await;
    let mut socket = TcpStream::connect(gateway.address).await.unwrap();
    let whole = input(&["hi"]).to_string();
    let request = format!(
        "POST /agui/agent/agent/run HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{}",
        whole.len(),
        whole.strip_suffix('}').unwrap()
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    socket.shutdown().await.unwrap();
    let mut told = String::new();
    socket.read_to_string(&mut told).await.unwrap();
    assert!(told.is_empty() || told.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{told}");
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn bytes_that_are_no_http_are_refused() {
    let gateway = Gateway::start().await;
    for bytes in ["no http at all\r\n\r\n", "GET / HTTP/1.1\r\nhost h\r\n\r\n"] {
        let response = Response::to(gateway.address, bytes.as_bytes()).await;
        assert!(response.head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{}", response.head);
        response.closed().await;
    }
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn headers_may_be_as_large_as_the_limit_and_no_larger() {
    let gateway = Gateway::start().await;
    let limit = Limits::default().header_bytes;
    let start = "GET /healthz HTTP/1.1\r\nhost: h\r\nx: ";
    let fits = format!("{start}{}\r\n\r\n", "x".repeat(limit - 1024));
    let mut response = Response::to(gateway.address, fits.as_bytes()).await;
    assert_eq!(response.body().await, "ok\n");

    // The limit is reached before the head ends.
    let large = format!("{start}{}", "x".repeat(limit - start.len()));
    let response = Response::to(gateway.address, large.as_bytes()).await;
    let status = "HTTP/1.1 431 Request Header Fields Too Large\r\n";
    assert!(response.head.starts_with(status), "{}", response.head);
    response.closed().await;
    gateway.upstream.is_untouched().await;
}

// === timeouts ===

#[tokio::test]
async fn connection_on_which_nothing_is_said_is_closed_after_10_seconds() {
    let gateway = Gateway::start().await;
    let mut socket = TcpStream::connect(gateway.address).await.unwrap();
    // This connection was accepted after the first one, so its response proves that the first was
    // accepted.
    Response::to(gateway.address, HEALTH).await;
    let clock = HeldClock::pause();
    clock.advance(Limits::default().header_timeout).await;
    assert_eq!(socket.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn headers_that_come_too_slowly_are_told_so() {
    let gateway = Gateway::start().await;
    let mut socket = TcpStream::connect(gateway.address).await.unwrap();
    // A response on another connection proves that this one was accepted, or read.
    Response::to(gateway.address, HEALTH).await;
    let clock = HeldClock::pause();
    clock.advance(Duration::from_secs(1)).await;
    let half = b"POST /agui/agent/agent/run HTTP/1.1\r\nhost: h\r\n";
    socket.write_all(half).await.unwrap();
    Response::to(gateway.address, HEALTH).await;
    clock.advance(Duration::from_secs(5)).await;
    // One more header now and then does not keep the connection open.
    socket.write_all(b"content-type: application/json\r\n").await.unwrap();
    Response::to(gateway.address, HEALTH).await;
    // The timeout starts at the first byte, at the latest.
    for _ in 0..5 {
        clock.advance(Duration::from_secs(1)).await;
    }
    let mut told = String::new();
    socket.read_to_string(&mut told).await.unwrap();
    assert_eq!(
        told,
        "HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\ncontent-length: 112\r\n\
         connection: close\r\n\r\n\
         {\"error\":\"header_timeout\",\"message\":\"the request's headers did not arrive within 10 s; send the request again\"}\n"
    );
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn headers_of_a_second_request_have_their_time_too() {
    let gateway = Gateway::start().await;
    let half = "GET /healthz HTT";
    let (after_a_whole_one, rests) =
        (format!("{}{half}", String::from_utf8_lossy(HEALTH)), [0, 5, 30, 75]);
    let clock = HeldClock::pause();
    // The half comes with the request before it, or after a rest.
    for rest in [None].into_iter().chain(rests.map(Some)) {
        let first = if rest.is_none() { after_a_whole_one.as_bytes() } else { HEALTH };
        let mut response = Response::to(gateway.address, first).await;
        assert_eq!(response.body().await, "ok\n");
        if let Some(rest) = rest {
            passes(&gateway, &clock, Duration::from_secs(rest)).await;
            response.socket.write_all(half.as_bytes()).await.unwrap();
        }
        let mut passed = Duration::ZERO;
        let mut told = [0; 12];
        let late = loop {
            tokio::select! {
                biased;
                read = response.socket.read_exact(&mut told) => break read,
                () = passes(&gateway, &clock, Duration::from_secs(1)) => {}
            }
            passed += Duration::from_secs(1);
        };
        late.unwrap();
        assert_eq!(&told, b"HTTP/1.1 408", "{rest:?}");
        let timeout = Limits::default().header_timeout.as_secs();
        let expected = timeout - 1..=timeout + 2;
        assert!(expected.contains(&passed.as_secs()), "{rest:?} {passed:?}");
    }
}

/// Lets time pass, second by second: the gateway sets its timers in between.
async fn passes(gateway: &Gateway, clock: &HeldClock, time: Duration) {
    for _ in 0..time.as_secs() {
        gateway.settled().await;
        clock.advance(Duration::from_secs(1)).await;
    }
    gateway.settled().await;
}

#[tokio::test]
async fn connection_may_rest_between_two_requests_and_not_for_ever() {
    let gateway = Gateway::start().await;
    let mut response = Response::to(gateway.address, HEALTH).await;
    assert_eq!(response.body().await, "ok\n");
    let clock = HeldClock::pause();
    // Proxies close theirs after 60 s or 75 s.
    for rest in [9, 11, 60, 75] {
        passes(&gateway, &clock, Duration::from_secs(rest)).await;
        response.again(HEALTH).await;
        assert_eq!(response.body().await, "ok\n", "after {rest} s");
    }
    passes(&gateway, &clock, IDLE_TIMEOUT + Duration::from_secs(2)).await;
    response.closed().await;
}

#[tokio::test]
async fn body_that_comes_too_slowly_is_told_so() {
    let gateway = Gateway::start().await;
    let mut socket = TcpStream::connect(gateway.address).await.unwrap();
    let head = b"POST /agui/agent/agent/run HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\
                 content-type: application/json\r\nexpect: 100-continue\r\n\r\n";
    socket.write_all(head).await.unwrap();
    let mut answer = [0; 25];
    socket.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 100 Continue\r\n\r\n");
    let clock = HeldClock::pause();
    clock.advance(BODY_TIMEOUT / 2).await;
    socket.write_all(b"{").await.unwrap();
    Response::to(gateway.address, HEALTH).await;
    clock.advance(BODY_TIMEOUT / 2).await;
    let mut response = Response::on(socket).await;
    let message = "the body did not arrive within 30 s; send the request again";
    let expected = refusal("408 Request Timeout", "body_timeout", message);
    assert_eq!(refused(&mut response).await, expected);
    gateway.upstream.is_untouched().await;
}

// === connection limits ===

#[tokio::test]
async fn connection_beyond_the_limit_is_told_so_and_harms_no_other() {
    let gateway = Gateway::with(Limits { connections: 2, ..Limits::default() }).await;
    let (mut stream, mut run) = gateway.run().await;
    let mut idle = Response::to(gateway.address, HEALTH).await;
    assert_eq!(idle.body().await, "ok\n");

    let mut refusals = Vec::new();
    for _ in 0..2 {
        let mut response = gateway.post(&input(&["hi"])).await;
        assert!(response.head.contains("\r\nretry-after: 5\r\n"), "{}", response.head);
        assert!(response.head.contains("\r\nconnection: close\r\n"), "{}", response.head);
        refusals.push(refused(&mut response).await);
        response.closed().await;
    }
    let message = "the gateway has as many connections as it may have; try again later, or raise \
                   `limits.connections`";
    let expected = refusal("503 Service Unavailable", "too_many_connections", message);
    assert_eq!(refusals, [expected.clone(), expected]);
    gateway.upstream.is_untouched().await;

    run.send(token("a", "one")).await;
    assert_eq!(stream.frame().await + &stream.frame().await, told("a", "one"));
    idle.again(HEALTH).await;
    assert_eq!(idle.body().await, "ok\n");

    idle.socket.shutdown().await.unwrap();
    idle.closed().await;
    let mut next = Response::to(gateway.address, HEALTH).await;
    assert_eq!(next.body().await, "ok\n");

    run.end().await;
    gateway.record("interrupted").await;
    assert_eq!(stream.body().await, closed("a") + &finished("cancelled"));
}
