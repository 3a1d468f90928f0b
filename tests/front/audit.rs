//! The audit log: each kind of request, its caller and its outcome.

use super::credentials::{KEY, OTHER_KEY, bearer, guarded, key_of, tokens_of};
use super::front::Front;
use crate::support::gateway::{
    COLUMNS, RUN, Response, THREAD, connect_request, events_request, input, run_request,
};
use crate::support::issuer::{AUDIENCE, Signer};
use crate::support::process::File;
use serde_json::{Value, json};
use threadway::audit::{Audit, AuditDestination};
use threadway::server::{Auth, Cors, Credentials, Settings, Trust, UpstreamAuth};

/// A gateway with an audit log.
struct Audited {
    front: Front,
    audit: Audit,
    file: File,
}

// === impl Audited ===

impl Audited {
    async fn with(settings: Settings) -> Self {
        let front = Front::with(settings).await;
        let file = File::new("");
        let audit = Audit::open(&AuditDestination::File(file.0.clone())).unwrap();
        front.server.audit(audit.clone());
        Self { front, audit, file }
    }

    async fn by(auth: Auth) -> Self {
        Self::with(guarded(auth)).await
    }

    async fn of_backend() -> Self {
        Self::by(key_of("backend")).await
    }

    async fn ask(&self, request: &str) -> Response {
        Response::to(self.front.address, request.as_bytes()).await
    }

    /// The lines so far, without the times.
    fn lines(&self) -> Vec<Value> {
        self.audit.finish();
        let text = std::fs::read_to_string(&self.file.0).unwrap();
        assert!(!text.contains(KEY), "{text}");
        let mut lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for line in &mut lines {
            let time = line.as_object_mut().unwrap().remove("time").unwrap();
            let time = time.as_str().unwrap();
            assert!(time.len() == 24 && time.starts_with("20") && time.ends_with('Z'), "{time}");
        }
        lines
    }
}

fn stop_request(headers: &str) -> String {
    format!(
        "POST /agui/agent/agent/stop/{THREAD} HTTP/1.1\r\nhost: h\r\n{headers}content-length: 0\r\n\r\n"
    )
}

/// A line with more members.
fn with(mut line: Value, more: &Value) -> Value {
    line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    line
}

/// A line of the application's backend, on the thread.
fn line(action: &str, more: &Value) -> Value {
    let line = json!({
        "action": action, "outcome": "allowed", "status": 200, "caller": "backend",
        "peer": "127.0.0.1", "agent": "agent", "thread": THREAD, "thread_id": THREAD,
    });
    with(line, more)
}

#[tokio::test]
async fn request_of_each_kind_is_a_line_with_its_caller_and_its_thread() {
    let audited = Audited::of_backend().await;
    let (headers, upstream) = (bearer(KEY), &audited.front.upstream);
    let (_run, _upstream_run) = audited.front.run(&headers).await;
    let events = events_request(&headers, "");
    let record = json!([{"run_id": RUN, "status": "running"}]).to_string();
    let lists = async || {
        let runs = upstream.expect(&format!("GET /threads/{THREAD}/runs?limit=100{COLUMNS}")).await;
        runs.json(200, &record).await;
    };
    let (_events, ()) = tokio::join!(audited.ask(&events), lists());
    let connect = connect_request(&headers, &input(&[]));
    let (_connected, ()) = tokio::join!(audited.ask(&connect), lists());
    let stop = stop_request(&headers);
    let (_stopped, ()) = tokio::join!(audited.ask(&stop), async {
        for answer in ["[]", &record, "{}"] {
            upstream.next().await.json(200, answer).await;
        }
    });
    let of_run = json!({"run_id": RUN});
    assert_eq!(
        audited.lines(),
        [
            line("run", &of_run),
            line("connect", &json!({})),
            line("connect", &json!({})),
            line("stop", &of_run),
        ]
    );
}

#[tokio::test]
async fn single_route_request_is_a_line_as_on_its_own_route() {
    let audited = Audited::of_backend().await;
    // The thread routes are off here: each request is refused, and logged with its thread.
    for (method, path) in [("DELETE", ""), ("PATCH", ""), ("POST", "/archive"), ("GET", "/state")] {
        let body = json!({"agentId": "agent", "name": "n"});
        let path = format!("/threads/{THREAD}{path}");
        let envelope = json!({
            "method": "resource/request",
            "params": {"path": path, "httpMethod": method},
            "body": body,
        });
        let envelope = envelope.to_string();
        let request = format!(
            "POST /agui HTTP/1.1\r\nhost: h\r\n{}content-type: application/json\r\ncontent-length: \
             {}\r\n\r\n{envelope}",
            bearer(KEY),
            envelope.len()
        );
        let response = audited.ask(&request).await;
        assert!(response.head.starts_with("HTTP/1.1 403 "), "{method}: {}", response.head);
    }
    let lines = audited.lines();
    let actions: Vec<_> = lines.iter().map(|line| line["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["delete_thread", "change_thread", "change_thread", "connect"]);
    assert!(lines.iter().all(|line| line["thread"] == THREAD && line["outcome"] == "refused"));
}

#[tokio::test]
async fn preflight_is_no_line() {
    let cors = Cors::new(["http://page"].into_iter(), Credentials::Omitted).unwrap();
    let audited = Audited::with(Settings { cors, ..Settings::default() }).await;
    let request = format!(
        "OPTIONS /agui/agent/agent/stop/{THREAD} HTTP/1.1\r\nhost: h\r\norigin: http://page\r\n\
         access-control-request-method: POST\r\n\r\n"
    );
    let response = audited.ask(&request).await;
    assert!(response.head.starts_with("HTTP/1.1 200 "), "{}", response.head);
    assert_eq!(audited.lines(), [""; 0]);
}

#[tokio::test]
async fn refusal_is_a_line_with_its_reason() {
    let audited = Audited::of_backend().await;
    let wrong = bearer(OTHER_KEY);
    audited.ask(&run_request("agent", &wrong, "{}")).await;
    audited.ask(&events_request("", "?follow=thread")).await;
    audited.ask(&stop_request(&wrong)).await;
    let body = r#"{"method":"agent/stop","params":{"agentId":"agent"}}"#;
    let length = body.len();
    let envelope = |headers: &str| {
        format!(
            "POST /agui HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n{headers}\
             content-length: {length}\r\n\r\n{body}"
        )
    };
    audited.ask(&envelope("")).await;
    audited.ask(&envelope(&bearer(KEY))).await;
    // These requests ask nothing about a thread.
    audited.ask("GET /agui/info HTTP/1.1\r\nhost: h\r\n\r\n").await;
    audited.ask("DELETE /agui/agent/agent/connect HTTP/1.1\r\nhost: h\r\n\r\n").await;
    let refused = |action: &str, code: &str, more: &Value| {
        let line = json!({"action": action, "outcome": "refused", "status": 401, "code": code,
            "peer": "127.0.0.1"});
        with(line, more)
    };
    assert_eq!(
        audited.lines(),
        [
            refused("run", "invalid_token", &json!({"agent": "agent"})),
            refused("follow", "unauthenticated", &json!({"agent": "agent", "thread": THREAD})),
            refused("stop", "invalid_token", &json!({"agent": "agent", "thread": THREAD})),
            refused("call", "unauthenticated", &json!({})),
            refused("call", "invalid_request", &json!({"status": 400, "caller": "backend"})),
        ]
    );
}

#[tokio::test]
async fn refusal_of_langgraph_names_the_thread_and_an_answer_is_no_new_run() {
    let upstream_auth = UpstreamAuth { credential: None, trust: Trust::Given };
    let audited = Audited::by(Auth::Upstream(upstream_auth)).await;
    let mut answer = input(&["hi"]);
    answer["resume"] = json!([{"interruptId": "i", "status": "resolved", "payload": true}]);
    let request = run_request("agent", &format!("x-api-key: {KEY}\r\n"), &answer.to_string());
    let (_response, ()) = tokio::join!(audited.ask(&request), async {
        audited.front.upstream.next().await.json(403, r#"{"detail":"s3cret"}"#).await;
    });
    let lines = audited.lines();
    let [line] = &*lines else { panic!("{lines:#?}") };
    for (name, value) in [
        ("action", json!("resume")),
        ("outcome", json!("refused")),
        ("status", json!(403)),
        ("code", json!("forbidden")),
        ("thread", json!(THREAD)),
        ("thread_id", json!(THREAD)),
    ] {
        assert_eq!(line[name], value, "{name} in {line}");
    }
    // A caller is identified by a digest of its credentials.
    let caller = line["caller"].as_str().unwrap();
    assert!(caller.starts_with("credentials-") && caller.len() == 24, "{caller}");
    assert!(!line.to_string().contains("s3cret"), "{line}");
}

#[tokio::test]
async fn token_is_named_by_its_subject() {
    let signer = Signer::ed25519("one");
    let audited = Audited::by(tokens_of(&[&signer], &[AUDIENCE])).await;
    let token = signer.token(&[]);
    let mut response = audited.ask(&run_request("agent", &bearer(&token), "[]")).await;
    response.body().await;
    let lines = audited.lines();
    assert_eq!((&lines[0]["caller"], &lines[0]["status"]), (&json!("ada"), &json!(400)));
    assert!(!lines[0].to_string().contains(&token));
}

#[tokio::test]
async fn client_that_leaves_before_the_answer_is_a_line_too() {
    let audited = Audited::of_backend().await;
    let request = run_request("agent", &bearer(KEY), &input(&["hi"]).to_string());
    let mut asked = Box::pin(audited.ask(&request));
    let state = tokio::select! {
        _ = &mut asked => panic!("the request was answered"),
        state = audited.front.upstream.next() => state,
    };
    drop(asked);
    // The gateway notices the disconnect at its next step for the request.
    let left = async {
        loop {
            tokio::task::yield_now().await;
            if !std::fs::read_to_string(&audited.file.0).unwrap().is_empty() {
                break;
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_mins(1), left).await.unwrap();
    drop(state);
    let lines = audited.lines();
    assert_eq!((&lines[0]["action"], &lines[0]["outcome"]), (&json!("run"), &json!("left")));
    assert_eq!(lines[0]["thread"], THREAD);
    assert!(lines[0].get("status").is_none());
}
