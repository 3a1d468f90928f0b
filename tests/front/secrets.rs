//! Keys, headers, queries, prompts and LangGraph's texts about them appear in no log line at any
//! level, in no metric and at no other client. In the modes `jwt` and `upstream` a caller's own key
//! is sent upstream, and nowhere else.

use crate::support::gateway::{RUN, Response, THREAD, input};
use crate::support::issuer::{AUDIENCE, ISSUER, Signer, key_set};
use crate::support::process::{File, Process};
use crate::support::upstream::{Exchange, Upstream};
use serde_json::json;

/// A part of every secret of the test, by which a leak is found.
const PART: &str = "hush5ecret";

/// A `run` that is sent for the first time, without a `Last-Event-ID`.
const FIRST_RUN: &str = "run?first&";

/// A gateway, and the key of one of its callers.
struct Caller {
    process: Process,
    /// The value of the caller's `authorization: Bearer`.
    key: String,
}

fn secret(place: &str) -> String {
    format!("{PART}-{place}-0123456789abcdef0123456789abcdef")
}

/// A request with the caller's key and many headers that the gateway does not know.
fn request(key: &str, method: &str, path: &str, body: &str) -> String {
    let (header, cookie) = (secret("header"), secret("cookie"));
    let last = if path.contains(FIRST_RUN) {
        String::new()
    } else {
        format!("last-event-id: {header}-id\r\n")
    };
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\
         x-api-key: {header}-key\r\nx-tenant: {header}-tenant\r\nx-other: {header}-other\r\n\
         cookie: session={cookie}\r\n{last}\
         traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n\
         baggage: user={header}-baggage\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn ask(caller: &Caller, method: &str, path: &str, body: &str) -> String {
    let Caller { process, key } = caller;
    let request = request(key, method, path, body);
    let mut response = Response::to(process.address, request.as_bytes()).await;
    if !path.contains("follow=thread") || response.head.contains("content-length") {
        let body = response.body().await;
        return response.head + &body;
    }
    // The run stays for the later requests.
    while !String::from_utf8_lossy(&response.decoded).contains("RUN_FINISHED") {
        response.chunk().await;
    }
    response.head + &String::from_utf8_lossy(&response.decoded)
}

/// The upstream's answers, each with a secret: a refusal, a broken answer, a failed run. The
/// upstream is also the issuer of tokens, with these keys.
async fn misbehave(upstream: &Upstream, keys: &str, seen: &mut Vec<String>) {
    let told = secret("upstream");
    let mut states = 0;
    for round in 0.. {
        let exchange: Exchange = upstream.next().await;
        if exchange.line.starts_with("GET /keys") {
            exchange.json(200, keys).await;
            continue;
        }
        seen.push(exchange.head.clone() + &exchange.body);
        let detail = json!({ "detail": format!("no {told}"), "message": told }).to_string();
        // Counted separately, so that some runs begin, however many requests each takes.
        states += u32::from(exchange.line.ends_with("/state"));
        match exchange.line.as_str() {
            line if line.ends_with("/state") && states % 2 == 1 => exchange.json(404, "{}").await,
            line if line.ends_with("/runs/stream") => {
                let mut stream = exchange;
                if round % 2 == 0 {
                    stream.json(422, &detail).await;
                    continue;
                }
                stream
                    .begin(&format!(
                        "content-location: /threads/{THREAD}/runs/{RUN}\r\nx-told: {told}\r\n"
                    ))
                    .await;
                stream.send(format!("event: strange\ndata: {{\"{told}\": 1}}\n\n")).await;
                stream.send(format!("event: values\ndata: {told} is no JSON\n\n")).await;
                stream.send(format!("event: debug\ndata: {{\"payload\": \"{told}\"}}\n\n")).await;
                stream.end().await;
            }
            line if line.ends_with(&format!("/runs/{RUN}")) => {
                exchange.json(200, &json!({"run_id": RUN, "status": "success"}).to_string()).await;
            }
            _ if round % 4 == 0 => exchange.answer(500, &format!("text/{told}"), &told).await,
            _ if round % 4 == 1 => exchange.json(403, &detail).await,
            _ if round % 4 == 2 => exchange.json(200, &format!("{{\"{told}\":")).await,
            _ => exchange.json(502, &format!("<html>{told}</html>")).await,
        }
    }
}

/// Sends all kinds of requests, with secrets in every possible place.
async fn asks(caller: &Caller) -> Vec<String> {
    let (prompt, query) = (secret("prompt"), secret("query"));
    let mut answers = Vec::new();
    let agent = "/agui/agent/agent";
    for _ in 0..6 {
        for content in [json!(prompt), json!([{ "type": prompt }]), json!({ "a": prompt })] {
            let mut run = input(&["hi"]);
            run["messages"][0]["content"] = content;
            run["forwardedProps"] =
                json!({ "webhook": format!("http://{prompt}"), "lastEventId": prompt });
            for path in [FIRST_RUN, "run?", "connect?"] {
                let body = run.to_string();
                answers.push(ask(caller, "POST", &format!("{agent}/{path}x={query}"), &body).await);
            }
        }
        let events = format!("{agent}/threads/{THREAD}/events");
        for query in
            ["", "?follow=thread", &format!("?follow={query}"), &format!("?last_event_id={query}")]
        {
            answers.push(ask(caller, "GET", &format!("{events}{query}"), "").await);
        }
        answers.push(ask(caller, "GET", &format!("/agui/info?key={query}"), "").await);
        answers.push(ask(caller, "POST", &format!("{agent}/stop/{THREAD}"), "{}").await);
    }
    answers
}

/// Sends invalid bodies.
async fn asks_wrongly(caller: &Caller) -> Vec<String> {
    let (mut answers, prompt) = (Vec::new(), secret("prompt"));
    let agent = "/agui/agent/agent";
    for body in [
        format!("\"{prompt}\""),
        format!("{{\"threadId\": 1, \"runId\": \"{prompt}\"}}"),
        format!("{{\"threadId\": \"t\", \"runId\": [\"{prompt}\"]}}"),
        format!("{{\"threadId\": \"t\", \"runId\": \"r\", \"messages\": \"{prompt}\"}}"),
        format!(
            "{{\"threadId\": \"t\", \"runId\": \"r\", \"messages\": [{{\"role\": \"{prompt}\"}}]}}"
        ),
        format!("{{\"threadId\": \"t\", \"runId\": \"r\", \"state\": {{\"{prompt}\""),
        prompt.clone(),
    ] {
        answers.push(ask(caller, "POST", &format!("{agent}/run"), &body).await);
        let envelope = format!(
            "{{\"method\": \"agent/run\", \"params\": {{\"agentId\": \"a\"}}, \"body\": {body}}}"
        );
        answers.push(ask(caller, "POST", "/agui", &envelope).await);
        let envelope = format!("{{\"method\": {body}}}");
        answers.push(ask(caller, "POST", "/agui", &envelope).await);
    }
    answers
}

/// Sends requests that fail before they are read: wrong keys, hosts and heads.
async fn knocks(caller: &Caller) -> Vec<String> {
    let mut answers = Vec::new();
    let Caller { process, key } = caller;
    let [prompt, query] = ["prompt", "query"].map(secret);
    for head in [
        format!("authorization: Bearer {prompt}-wrong\r\n"),
        format!("authorization: {prompt}-wrong\r\n"),
        format!("authorization: Bearer {key}\r\nauthorization: Bearer {key}\r\n"),
        format!("authorization: Bearer {key}\r\ncontent-type: {query}\r\n"),
        // The log has a valid origin, and no other value of the header.
        format!("origin: https://h/{query}\r\n"),
        format!("origin: https://{query}@h\r\n"),
        format!("origin: {query}\r\n"),
        format!("x: {query}\0\r\n"),
    ] {
        let text =
            format!("POST /agui HTTP/1.1\r\nhost: localhost\r\n{head}content-length: 0\r\n\r\n");
        let mut response = Response::to(process.address, text.as_bytes()).await;
        let body = response.body().await;
        answers.push(response.head + &body);
    }
    for path in ["/readyz", "/healthz"] {
        answers.push(ask(caller, "GET", path, "").await);
    }
    answers
}

/// Sends all requests in one mode of `auth`, and checks that no log line, metric or answer has a
/// secret. Returns the upstream requests, which must not have a secret that stays in every mode.
async fn asked_all(
    upstream: &Upstream,
    auth: &str,
    configured: &str,
    key: &str,
    keys: &str,
) -> String {
    let url = upstream.url();
    let file = File::new(&format!(
        "upstream = {{url = \"{url}\", {configured}}}\nforward_headers = [\"x-tenant\"]\n\
         log = \"trace\"\nadmin_listen = \"127.0.0.1:0\"\nauth = {{{auth}}}\n",
    ));
    let mut seen = Vec::new();
    let asked = async {
        let process = Process::serve(&["--config", file.path()]).await;
        let mut caller = Caller { process, key: key.to_owned() };
        let admin = caller.process.address_behind("metrics on http://").await;
        let mut answers = asks(&caller).await;
        answers.extend(asks_wrongly(&caller).await);
        answers.extend(knocks(&caller).await);
        let query = secret("query");
        let scrape = format!("GET /metrics HTTP/1.1\r\nhost: localhost\r\nx: {query}\r\n\r\n");
        let mut metrics = Response::to(admin, scrape.as_bytes()).await;
        let metrics = metrics.head.clone() + &metrics.body().await;
        (answers, metrics, caller.process.stop().await)
    };
    let (answers, metrics, log) = tokio::select! {
        done = asked => done,
        () = misbehave(upstream, keys, &mut seen) => unreachable!("the loop never ends"),
    };

    // Without the secrets in the requests the test would prove nothing.
    let up = seen.concat();
    for place in ["config", "header", "prompt"] {
        assert!(up.contains(&secret(place)), "{place} did not go up");
    }
    for place in ["cookie", "query", "issuer"] {
        assert!(!up.contains(&secret(place)), "{place} went up:\n{up}");
    }
    let header = secret("header");
    assert!(up.contains(&format!("{header}-tenant")), "the allow-list lets it up");
    for name in ["other", "id"] {
        assert!(!up.contains(&format!("{header}-{name}")), "{name} went up");
    }
    assert!(log.contains("TRACE") && metrics.contains("threadway_"), "there is nothing to look in");
    // The claims of a token are secret: only its first part may appear.
    let hidden: Vec<_> = key.split('.').skip(1).chain([PART]).collect();
    let find = |text: &str| hidden.iter().find_map(|part| text.find(part));
    for (name, text) in [("the log", &log), ("the metrics", &metrics)] {
        let line = text.lines().find(|line| find(line).is_some());
        assert_eq!(line, None, "{name} tells a secret");
    }
    for answer in &answers {
        let own = find(&answer.replace(&secret("prompt"), ""));
        assert_eq!(own, None, "a client gets a secret:\n{answer}");
        // The caller's own prompt returns as a message; a refusal quotes nothing.
        let is_stream = answer.contains("text/event-stream");
        assert!(is_stream || !answer.contains(PART), "a refusal quotes its request:\n{answer}");
    }
    up
}

/// The configuration of an upstream with a header of its own.
fn own_header() -> String {
    format!("headers.x-own = \"{}-header\"", secret("config"))
}

/// The configuration of an upstream with a key.
fn own_key() -> String {
    format!("api_key = \"{}-key\", {}", secret("config"), own_header())
}

/// The caller's `x-api-key`. A key of the configuration replaces it.
fn callers_key() -> String {
    secret("header") + "-key"
}

fn authorization(key: &str) -> String {
    format!("\r\nauthorization: Bearer {key}\r\n")
}

#[tokio::test]
async fn secret_reaches_no_log_no_metric_and_no_client() {
    let upstream = Upstream::bind().await;
    let (key, other) = (secret("caller"), secret("config"));
    let auth = format!("mode = \"bearer\", keys = {{a = \"{key}\", b = \"{other}-other\"}}");
    let up = asked_all(&upstream, &auth, &own_key(), &key, "").await;
    assert!(up.contains(&format!("\r\nx-api-key: {other}-key\r\n")), "the key did not go up");
    assert!(!up.contains(&key) && !up.contains(&callers_key()), "a caller's key went up");
}

#[tokio::test]
async fn token_goes_up_and_reaches_no_log_no_metric_and_no_client() {
    let upstream = Upstream::bind().await;
    let signer = Signer::ed25519("k");
    let token = signer.token(&[("sub", json!(secret("caller")))]);
    let auth = format!(
        "mode = \"jwt\", jwks = \"{}/keys?{}\", issuer = \"{ISSUER}\", audience = \"{AUDIENCE}\"",
        upstream.url(),
        secret("issuer")
    );
    let up = asked_all(&upstream, &auth, &own_key(), &token, &key_set(&[&signer])).await;
    assert!(up.contains(&authorization(&token)), "the token did not go up");
    assert!(!up.contains(&callers_key()), "a caller's key went up");
}

#[tokio::test]
async fn credentials_go_up_and_reach_no_log_no_metric_and_no_client() {
    let upstream = Upstream::bind().await;
    let key = secret("caller");
    let up = asked_all(&upstream, "mode = \"upstream\"", &own_header(), &key, "").await;
    assert!(up.contains(&authorization(&key)), "the credentials did not go up");
    assert!(up.contains(&callers_key()), "the key did not go up");
}
