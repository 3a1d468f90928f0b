//! What must not leak: keys, headers, queries, prompts and what LangGraph says of them reach no log
//! line at any level, no metric and no other's client.

#![cfg(test)]
#![cfg(unix)]

mod support;

use serde_json::json;
use support::gateway::{RUN, Response, THREAD, input};
use support::process::{File, Process};
use support::upstream::{Exchange, Upstream};

/// Where each secret is put. They share a part, by which all are found.
const PART: &str = "hush5ecret";

/// A `run` that is sent for the first time: it has no `Last-Event-ID`.
const FIRST_RUN: &str = "run?first&";

fn secret(place: &str) -> String {
    format!("{PART}-{place}-0123456789abcdef0123456789abcdef")
}

/// A request, with the caller's key and much that is none of ours.
fn request(method: &str, path: &str, body: &str) -> String {
    let (key, header, cookie) = (secret("caller"), secret("header"), secret("cookie"));
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

async fn ask(process: &Process, method: &str, path: &str, body: &str) -> String {
    let mut response = Response::to(process.address, request(method, path, body).as_bytes()).await;
    if !path.contains("follow=thread") || response.head.contains("content-length") {
        let body = response.body().await;
        return response.head + &body;
    }
    // It stays for what comes later.
    while !String::from_utf8_lossy(&response.decoded).contains("RUN_FINISHED") {
        response.chunk().await;
    }
    response.head + &String::from_utf8_lossy(&response.decoded)
}

/// What the upstream answers, each time with a secret: a refusal, a broken answer, a failed run.
async fn misbehave(upstream: &Upstream, seen: &mut Vec<String>) {
    let told = secret("upstream");
    let mut states = 0;
    for round in 0.. {
        let exchange: Exchange = upstream.next().await;
        seen.push(exchange.head.clone() + &exchange.body);
        let detail = json!({ "detail": format!("no {told}"), "message": told }).to_string();
        // Counted by themselves, so that some runs begin however many requests each takes.
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

/// All that can be asked, with secrets wherever one can stand.
async fn asks(process: &Process) -> Vec<String> {
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
                answers
                    .push(ask(process, "POST", &format!("{agent}/{path}x={query}"), &body).await);
            }
        }
        let events = format!("{agent}/threads/{THREAD}/events");
        for query in
            ["", "?follow=thread", &format!("?follow={query}"), &format!("?last_event_id={query}")]
        {
            answers.push(ask(process, "GET", &format!("{events}{query}"), "").await);
        }
        answers.push(ask(process, "GET", &format!("/agui/info?key={query}"), "").await);
        answers.push(ask(process, "POST", &format!("{agent}/stop/{THREAD}"), "{}").await);
    }
    answers
}

/// Bodies that are none.
async fn asks_wrongly(process: &Process) -> Vec<String> {
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
        answers.push(ask(process, "POST", &format!("{agent}/run"), &body).await);
        let envelope = format!(
            "{{\"method\": \"agent/run\", \"params\": {{\"agentId\": \"a\"}}, \"body\": {body}}}"
        );
        answers.push(ask(process, "POST", "/agui", &envelope).await);
        let envelope = format!("{{\"method\": {body}}}");
        answers.push(ask(process, "POST", "/agui", &envelope).await);
    }
    answers
}

/// What is wrong before anything is asked: keys, hosts, heads.
async fn knocks(process: &Process) -> Vec<String> {
    let mut answers = Vec::new();
    let [key, prompt, query] = ["caller", "prompt", "query"].map(secret);
    for head in [
        format!("authorization: Bearer {prompt}-wrong\r\n"),
        format!("authorization: {prompt}-wrong\r\n"),
        format!("authorization: Bearer {key}\r\nauthorization: Bearer {key}\r\n"),
        format!("authorization: Bearer {key}\r\ncontent-type: {query}\r\n"),
        format!("origin: https://{query}\r\n"),
        format!("x: {query}\0\r\n"),
    ] {
        let text =
            format!("POST /agui HTTP/1.1\r\nhost: localhost\r\n{head}content-length: 0\r\n\r\n");
        let mut response = Response::to(process.address, text.as_bytes()).await;
        let body = response.body().await;
        answers.push(response.head + &body);
    }
    for path in ["/readyz", "/healthz"] {
        answers.push(ask(process, "GET", path, "").await);
    }
    answers
}

#[tokio::test]
async fn a_secret_reaches_no_log_no_metric_and_no_client() {
    let upstream = Upstream::bind().await;
    let url = upstream.url();
    let (key, configured) = (secret("caller"), secret("config"));
    let file = File::new(&format!(
        "upstream = {{url = \"{url}\", api_key = \"{configured}-key\", headers.x-own = \
         \"{configured}-header\"}}\nforward_headers = [\"x-tenant\"]\nlog = \"trace\"\n\
         admin_listen = \"127.0.0.1:0\"\nauth = {{mode = \"bearer\", keys = {{a = \"{key}\", b = \
         \"{configured}-other\"}}}}\n",
    ));
    let mut seen = Vec::new();
    let asked = async {
        let mut process = Process::serve(&["--config", file.path()]).await;
        let admin = process.address_behind("metrics on http://").await;
        let mut answers = asks(&process).await;
        answers.extend(asks_wrongly(&process).await);
        answers.extend(knocks(&process).await);
        let query = secret("query");
        let scrape = format!("GET /metrics HTTP/1.1\r\nhost: localhost\r\nx: {query}\r\n\r\n");
        let mut metrics = Response::to(admin, scrape.as_bytes()).await;
        let metrics = metrics.head.clone() + &metrics.body().await;
        (answers, metrics, process.stop().await)
    };
    let (answers, metrics, log) = tokio::select! {
        done = asked => done,
        () = misbehave(&upstream, &mut seen) => unreachable!("it goes on for ever"),
    };

    // The test would be worth nothing if the secrets had not been there.
    let up = seen.concat();
    for place in ["config", "header", "prompt"] {
        assert!(up.contains(&secret(place)), "{place} did not go up");
    }
    for place in ["caller", "cookie", "query"] {
        assert!(!up.contains(&secret(place)), "{place} went up:\n{up}");
    }
    let header = secret("header");
    assert!(up.contains(&format!("{header}-tenant")), "the allow-list lets it up");
    for name in ["key", "other", "id"] {
        assert!(!up.contains(&format!("{header}-{name}")), "{name} went up");
    }
    assert!(log.contains("TRACE") && metrics.contains("threadway_"), "there is nothing to look in");
    for (name, text) in [("the log", &log), ("the metrics", &metrics)] {
        let line = text.lines().find(|line| line.contains(PART));
        assert_eq!(line, None, "{name} tells a secret");
    }
    for answer in &answers {
        let own = answer.replace(&secret("prompt"), "").contains(PART);
        assert!(!own, "a client is told a secret:\n{answer}");
        // Its own prompt is told back as its message; a refusal quotes nothing.
        let is_stream = answer.contains("text/event-stream");
        assert!(is_stream || !answer.contains(PART), "a refusal quotes its request:\n{answer}");
    }
}
