//! The single route of CopilotKit's client: the answer to each method equals that of its plain
//! route.

use crate::support::gateway::{
    COLUMNS, Gateway, RUN, Response, THREAD, closed, events, finished, input, refusal, refused,
    run_agent, started, token, told, values,
};
use serde_json::{Value, json};

fn post(path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n{headers}\
         content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

async fn call(gateway: &Gateway, envelope: &Value) -> Response {
    Response::to(gateway.address, &post("/agui", "", &envelope.to_string())).await
}

/// Plays a run of one token; returns the upstream request that started the run, without its token.
async fn play(gateway: &Gateway) -> String {
    gateway.state(None).await;
    let mut run = gateway.stream().await;
    let sent: Value = serde_json::from_str(&run.body).unwrap();
    let start = sent["metadata"]["threadway_start"].as_str().unwrap();
    let asked = run.body.replace(start, "START");
    run.send(token("a", "hi")).await;
    run.end().await;
    gateway.record("success").await;
    gateway.state(None).await;
    asked
}

#[tokio::test]
async fn run_is_started_and_streamed_as_on_its_own_route() {
    let gateway = Gateway::start().await;
    let hi = input(&["hi"]);
    let (mut plain, plain_asked) =
        tokio::join!(run_agent(gateway.address, "agent", &hi), play(&gateway));
    let plain_body = plain.body().await;

    let envelope = json!({"method": "agent/run", "params": {"agentId": "agent"}, "body": hi});
    for path in ["/agui", "/agui/"] {
        let request = post(path, "", &envelope.to_string());
        let (mut response, asked) =
            tokio::join!(Response::to(gateway.address, &request), play(&gateway));
        assert_eq!(response.head, plain.head);
        assert_eq!(asked, plain_asked);
        let body = response.body().await;
        assert_eq!(body, plain_body);
        let expected = ["retry: 3000\n\n".to_owned(), started(), told("a", "hi"), closed("a")];
        assert_eq!(body, expected.concat() + &finished("success"));
    }
}

#[tokio::test]
async fn thread_is_connected_to_as_on_its_own_route() {
    let gateway = Gateway::start().await;
    let input = json!({
        "threadId": THREAD, "runId": "r1", "protocolVersion": "1.0", "messages": [], "state": {},
        "tools": [], "context": [], "forwardedProps": {},
    });
    // The thread has no live run.
    let rests = async || {
        loop {
            let exchange = gateway.upstream.next().await;
            match exchange.line.strip_prefix(&format!("GET /threads/{THREAD}")) {
                Some("/state") => {
                    let state = json!({"values": values(&["hi", "ho"]), "next": []});
                    exchange.json(200, &state.to_string()).await;
                }
                Some(runs) if runs.starts_with("/runs?") => exchange.json(200, "[]").await,
                _ => panic!("{}", exchange.line),
            }
        }
    };
    let answer = async |request: Vec<u8>| {
        let answer = async {
            let mut response = Response::to(gateway.address, &request).await;
            (response.head.clone(), response.body().await)
        };
        tokio::select! {
            answer = answer => answer,
            () = rests() => unreachable!("the loop never ends"),
        }
    };
    let plain = post("/agui/agent/agent/connect", "", &input.to_string());
    let envelope =
        json!({"method": "agent/connect", "params": {"agentId": "agent"}, "body": input});
    let (head, body) = answer(post("/agui", "", &envelope.to_string())).await;
    assert_eq!((head, body.clone()), answer(plain).await);
    let types = events(body.strip_prefix("retry: 3000\n\n").unwrap());
    let types: Vec<_> = types.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
}

#[tokio::test]
async fn accept_header_decides_the_stream_here_too() {
    let gateway = Gateway::start().await;
    let envelope =
        json!({"method": "agent/run", "params": {"agentId": "agent"}, "body": input(&["hi"])});
    let request = post("/agui", "accept: application/x-ndjson\r\n", &envelope.to_string());
    let (mut response, _) = tokio::join!(Response::to(gateway.address, &request), play(&gateway));
    assert!(response.head.contains("content-type: application/x-ndjson\r\n"), "{}", response.head);
    assert!(response.body().await.starts_with("{\"type\":\"RUN_STARTED\""));
}

#[tokio::test]
async fn agent_is_named_as_it_is_and_not_as_in_a_path() {
    let gateway = Gateway::start().await;
    let envelope =
        json!({"method": "agent/run", "params": {"agentId": "a/b %20"}, "body": input(&["hi"])});
    let (_response, asked) = tokio::join!(call(&gateway, &envelope), play(&gateway));
    assert!(asked.starts_with(r#"{"assistant_id":"a/b %20","#), "{asked}");
}

#[tokio::test]
async fn agents_are_told_as_on_their_own_route() {
    let gateway = Gateway::start().await;
    let lists = async || {
        let search = gateway.upstream.expect("POST /assistants/search").await;
        search.json(200, r#"[{"assistant_id":"A","graph_id":"g","name":"mine"}]"#).await;
    };
    let request = b"GET /agui/info HTTP/1.1\r\nhost: h\r\n\r\n";
    let (mut plain, ()) = tokio::join!(Response::to(gateway.address, request), lists());
    let plain = (plain.head.clone(), plain.body().await);
    assert!(plain.1.contains(r#""agents":{"A":{"name":"mine","#), "{}", plain.1);

    let envelope = json!({"method": "info"});
    let (mut response, ()) = tokio::join!(call(&gateway, &envelope), lists());
    assert_eq!((response.head.clone(), response.body().await), plain);
}

#[tokio::test]
async fn run_is_stopped_as_on_its_own_route() {
    let gateway = Gateway::start().await;
    let stopped = concat!(
        r#"{"stopped":true,"interrupt":{"type":"RUN_ERROR","message":"Run stopped by user","#,
        r#""code":"STOPPED"}}"#,
        "\n"
    );
    let nothing = "{\"stopped\":false,\"message\":\"the thread has no live run r2\"}\n";
    for (body, expected) in [
        (None, stopped),
        (Some(json!({})), stopped),
        (Some(json!({"runId": "r1"})), stopped),
        (Some(json!({"runId": "r2"})), nothing),
    ] {
        // The LangGraph id of `my thread`.
        let thread = "e817c419-7e64-5f51-8a5c-c4cf14d1fb2d";
        let mut envelope = json!({
            "method": "agent/stop",
            "params": {"agentId": "agent", "threadId": "my thread"},
        });
        if let Some(body) = body {
            envelope["body"] = body;
        }
        let script = async {
            let run = json!([{"run_id": RUN, "status": "running", "metadata": {"threadway_run_id": "r1", "threadway_start": "s1"}}]);
            for (status, runs) in [("pending", json!([])), ("running", run)] {
                let line = format!("GET /threads/{thread}/runs?status={status}&limit=100{COLUMNS}");
                gateway.upstream.expect(&line).await.json(200, &runs.to_string()).await;
            }
            if expected == stopped {
                let cancel = format!("POST /threads/{thread}/runs/{RUN}/cancel");
                gateway.upstream.expect(&cancel).await.json(202, "").await;
            }
        };
        let (mut response, ()) = tokio::join!(call(&gateway, &envelope), script);
        let answer = ("HTTP/1.1 200 OK".to_owned(), expected.to_owned());
        assert_eq!(refused(&mut response).await, answer, "{envelope}");
    }
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn body_that_is_no_envelope_is_refused_in_the_runtimes_words() {
    let gateway = Gateway::start().await;
    let agent = json!({"agentId": "agent"});
    let no_agent = "Missing or invalid parameter 'agentId'";
    let no_thread = "Missing or invalid parameter 'threadId'";
    let no_body = "Missing request body for JSON handler";
    let no_thread_id = "`threadId` is missing; a RunAgentInput has one";
    let form = r#"the body of a stop is empty, `{}` or `{\"runId\": \"..\"}`"#;
    let stop = |params: Value, body: Value| {
        json!({"method": "agent/stop", "params": params, "body": body}).to_string()
    };
    let both = json!({"agentId": "agent", "threadId": THREAD});
    for (envelope, message) in [
        ("{".to_owned(), "Invalid JSON payload: EOF while parsing an object at line 1 column 1"),
        ("[]".to_owned(), "Missing method field"),
        ("{}".to_owned(), "Missing method field"),
        (r#"{"method":1}"#.to_owned(), "Missing method field"),
        (
            r#"{"method":"agent/suggest"}"#.to_owned(),
            "Unsupported method; it is info, agent/run, agent/connect, agent/stop or resource/request",
        ),
        (
            r#"{"method":"resource/request","params":{"httpMethod":"GET"}}"#.to_owned(),
            "Missing or invalid parameter 'path'",
        ),
        (
            r#"{"method":"resource/request","params":{"path":"/threads"}}"#.to_owned(),
            "Missing or invalid parameter 'httpMethod'",
        ),
        (r#"{"method":"agent/run"}"#.to_owned(), no_agent),
        (json!({"method": "agent/run", "params": {"agentId": " "}}).to_string(), no_agent),
        (json!({"method": "agent/run", "params": {"agentId": 1}}).to_string(), no_agent),
        (json!({"method": "agent/run", "params": agent}).to_string(), no_body),
        (r#"{"method":"agent/connect"}"#.to_owned(), no_agent),
        (json!({"method": "agent/connect", "params": agent}).to_string(), no_body),
        (json!({"method": "agent/run", "params": agent, "body": null}).to_string(), no_body),
        (json!({"method": "agent/run", "params": agent, "body": {}}).to_string(), no_thread_id),
        (stop(agent.clone(), json!({})), no_thread),
        (stop(json!({"threadId": THREAD}), json!({})), no_agent),
        (stop(both.clone(), json!(null)), form),
        (stop(both.clone(), json!({"x": 1})), form),
    ] {
        let mut response = Response::to(gateway.address, &post("/agui", "", &envelope)).await;
        let expected = refusal("400 Bad Request", "invalid_request", message);
        assert_eq!(refused(&mut response).await, expected, "{envelope}");
    }

    let request = b"GET /agui HTTP/1.1\r\nhost: h\r\n\r\n";
    let mut response = Response::to(gateway.address, request).await;
    assert!(response.head.contains("\r\nallow: POST\r\n"), "{}", response.head);
    let message = "/agui does not allow GET; use a method that the `allow` header names";
    let expected = refusal("405 Method Not Allowed", "wrong_method", message);
    assert_eq!(refused(&mut response).await, expected);

    let request =
        "POST /agui HTTP/1.1\r\nhost: h\r\ncontent-length: 17\r\n\r\n{\"method\":\"info\"}";
    let mut response = Response::to(gateway.address, request.as_bytes()).await;
    let message = "the request has no content-type; send application/json";
    let expected = refusal("415 Unsupported Media Type", "not_json", message);
    assert_eq!(refused(&mut response).await, expected);
    gateway.upstream.is_untouched().await;
}
