//! What clients can make the gateway hold, with the chart's memory: each load leaves the process
//! alive, and others are served.

use std::net::SocketAddr;

use crate::support::gateway::{Response, input};
use crate::support::langgraph::{LangGraph, state};
use crate::support::process::{File, Process};
use crate::support::socket::Socket;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const THREAD: &str = "0b7c9a52-1111-4000-8000-000000000001";

/// The chart's, in KiB.
const MEMORY: usize = 1_048_576;

/// Almost the largest body.
const LARGE: usize = 9_900_000;

/// A gateway in front of LangGraph with a thread of 9 MB, and its admin listener.
struct Limited {
    process: Process,
    admin: SocketAddr,
    langgraph: LangGraph,
    _file: File,
}

// === impl Limited ===

impl Limited {
    async fn start(auth: &str) -> Self {
        Self::holding(&[THREAD.to_owned()], auth).await
    }

    /// With these threads.
    async fn holding(threads: &[String], auth: &str) -> Self {
        let langgraph = LangGraph::start().await;
        let texts: Vec<_> = (0..9)
            .map(|at| json!({"type": "human", "id": at.to_string(), "content": "x".repeat(1_000_000)}))
            .collect();
        let texts = state("r", &json!(texts), &json!([]));
        for thread in threads {
            langgraph.thread(thread, json!({"owner": "alice"}), Some(texts.clone()));
        }
        let file = File::new(&format!("upstream.url = \"{}\"\n{auth}", langgraph.url));
        let options = ["--config", file.path(), "--admin-listen", "127.0.0.1:0"];
        let mut process = Process::limited(MEMORY, &options).await;
        let admin = process.address_behind("metrics on http://").await;
        Self { process, admin, langgraph, _file: file }
    }

    /// The bytes that are held, by the metric.
    async fn held(&self) -> usize {
        let request = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        let metrics = Response::to(self.admin, request.as_bytes()).await.body().await;
        let held = metrics.lines().filter(|line| line.starts_with("threadway_held_bytes{"));
        held.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
    }

    async fn get(&self, path: &str, headers: &str) -> Response {
        Response::to(self.process.address, get(path, headers).as_bytes()).await
    }
}

fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{headers}connection: close\r\n\r\n")
}

fn post(path: &str, headers: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         {headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn post_chunked(path: &str, headers: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         {headers}transfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    )
}

/// Sends a part of a body, and then nothing.
async fn stalled(address: SocketAddr, head: String, body: Vec<u8>) -> TcpStream {
    let mut socket = TcpStream::connect(address).await.unwrap();
    // The gateway may refuse the request before it has all of this, and close the connection.
    let _ = socket.write_all(head.as_bytes()).await;
    let _ = socket.write_all(&body).await;
    socket
}

#[tokio::test]
async fn bodies_of_strangers_are_not_kept() {
    let auth = "auth = { mode = \"upstream\", credential_header = \"x-api-key\" }\n";
    let mut gateway = Limited::start(auth).await;
    gateway.langgraph.books().tenants.insert("nobody-has-this".to_owned(), "nobody".to_owned());
    let address = gateway.process.address;
    let mut sockets = JoinSet::new();
    for at in 0..90 {
        let path = ["/agui/agent/agent/run", "/agui/agent/agent/connect", "/agui", "/acp"][at % 4];
        let (framing, begin) = match at % 3 {
            0 => ("content-length: 10000000".to_owned(), String::new()),
            1 => ("transfer-encoding: chunked".to_owned(), format!("{LARGE:x}\r\n")),
            // Within what is read of a stranger.
            _ => (format!("content-length: {}", 64 * 1024), String::new()),
        };
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             x-api-key: invented\r\n{framing}\r\n\r\n{begin}"
        );
        let length = if at % 3 == 2 { 60_000 } else { LARGE };
        sockets.spawn(stalled(address, head, vec![b'['; length]));
    }
    let sockets = sockets.join_all().await;
    let held = gateway.held().await;
    assert!(held <= 16 * 1024 * 1024, "{held}");
    let mut body = input(&["hi"]);
    body["threadId"] = json!(THREAD);
    body["messages"][0]["content"] = json!("x".repeat(9_000_000));
    let mut of_tanstack = body.clone();
    of_tanstack["forwardedProps"] = json!({"tanstack": true});
    let single = json!({"method": "agent/connect", "params": {"agentId": "agent"}, "body": body});
    let large = json!({"x": "x".repeat(9_000_000)});
    let params = json!({"protocolVersion": 1, "clientCapabilities": {}, "_meta": large});
    let of_acp = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let routes = [
        ("/agui/agent/agent/run", body.clone()),
        ("/agui/agent/agent/connect", body),
        ("/agui/agent/agent/run", of_tanstack),
        ("/agui", single),
        ("/acp", of_acp),
    ];
    for (at, (path, body)) in routes.iter().flat_map(|route| [route; 2]).enumerate() {
        // LangGraph has not accepted this key before.
        let key = format!("alice-key-{at}");
        gateway.langgraph.books().tenants.insert(key.clone(), "alice".to_owned());
        let headers =
            format!("x-api-key: {key}\r\naccept: application/json, text/event-stream\r\n");
        let request = if at % 2 == 0 {
            post(path, &headers, body)
        } else {
            post_chunked(path, &headers, body)
        };
        let run = async {
            if path.ends_with("/run") {
                gateway.langgraph.run().await.ends("success", None).await;
            }
        };
        let (response, ()) = tokio::join!(Response::to(address, request.as_bytes()), run);
        assert!(response.head.starts_with("HTTP/1.1 200"), "{path} {at}: {}", response.head);
    }
    drop(sockets);
}

#[tokio::test]
async fn answers_that_nobody_reads_are_held_once() {
    let gateway = Limited::start("").await;
    let address = gateway.process.address;
    let mut body = input(&[]);
    body["threadId"] = json!(THREAD);
    let connect = |accept: &str, at: usize| {
        let mut body = body.clone();
        body["runId"] = json!(format!("run-{at}"));
        post("/agui/agent/agent/connect", &format!("accept: {accept}\r\n"), &body)
    };
    let of_thread = |part: &str| get(&format!("/agui/threads/{THREAD}/{part}"), "");
    let mut unread = Vec::new();
    for at in 0..3 {
        for request in [
            get(&format!("/agui/agent/agent/threads/{THREAD}/events"), ""),
            connect("application/x-ndjson", at),
            connect("application/json", at),
            connect("application/vnd.ag-ui.event+proto", at),
            of_thread("messages"),
            of_thread("state"),
            of_thread("events"),
            get(&format!("/agui/agent/agent/run?threadId={THREAD}"), ""),
        ] {
            // The head is read, and no more.
            let response = Response::to(address, request.as_bytes()).await;
            assert!(response.head.starts_with("HTTP/1.1 200"), "{}", response.head);
            unread.push(response);
        }
    }
    let held = gateway.held().await;
    assert!((9_000_000..80_000_000).contains(&held), "{held}");
    // A client that reads gets the whole answer.
    for request in [
        get(&format!("/agui/agent/agent/threads/{THREAD}/events"), ""),
        connect("application/json", 0),
        of_thread("messages"),
    ] {
        let mut response = Response::to(address, request.as_bytes()).await;
        assert!(response.body().await.len() > 9_000_000);
    }
    drop(unread);
}

#[tokio::test]
async fn large_threads_are_read_a_few_at_a_time() {
    let threads: Vec<_> = (0..80).map(|at| THREAD.replace("1111", &format!("{at:04}"))).collect();
    let gateway = Limited::holding(&threads, "").await;
    let address = gateway.process.address;
    let mut requests = JoinSet::new();
    for (at, thread) in threads.iter().enumerate() {
        let mut body = input(&[]);
        body["threadId"] = json!(thread);
        let request = match at % 4 {
            0 => get(&format!("/agui/agent/agent/threads/{thread}/events?follow=thread"), ""),
            1 => get(&format!("/agui/agent/agent/run?threadId={thread}"), ""),
            2 => post("/agui/agent/agent/connect", "accept: application/json\r\n", &body),
            _ => post(
                "/agui/agent/agent/connect",
                "accept: application/vnd.ag-ui.event+proto\r\n",
                &body,
            ),
        };
        requests.spawn(async move { Response::to(address, request.as_bytes()).await });
    }
    let mut answered = Vec::new();
    for mut response in requests.join_all().await {
        if !response.head.starts_with("HTTP/1.1 200") {
            assert!(response.head.starts_with("HTTP/1.1 503"), "{}", response.head);
            assert!(response.body().await.contains("memory_full"));
            continue;
        }
        answered.push(response);
    }
    assert!((1..30).contains(&answered.len()), "{}", answered.len());
    // Clients that read nothing do not keep others from a small answer.
    assert!(gateway.get("/agui/info", "").await.head.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_long_directory_opens_no_session() {
    let gateway = Limited::start("").await;
    let mut socket = Socket::with(gateway.process.address, "/acp", &[]).await.unwrap();
    let call = |id: usize, method: &str, params: Value| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let capabilities = json!({"protocolVersion": 1, "clientCapabilities": {}});
    socket.send(&call(0, "initialize", capabilities)).await;
    socket.next().await.unwrap();
    let long = format!("/{}", "a".repeat(9_000_000));
    for id in 1..=12 {
        let method = ["session/new", "session/load", "session/resume", "session/fork"][id % 4];
        let params = json!({"cwd": long, "mcpServers": [], "sessionId": THREAD});
        socket.send(&call(id, method, params)).await;
        let answer: Value = serde_json::from_str(&socket.next().await.unwrap()).unwrap();
        let message = format!("{method}: `cwd` is longer than 4096 bytes; send less");
        assert_eq!(answer["error"], json!({"code": -32602, "message": message}));
    }
    let usual = json!({"cwd": format!("/{}", "a/".repeat(2_000)), "mcpServers": []});
    socket.send(&call(13, "session/new", usual)).await;
    let answer: Value = serde_json::from_str(&socket.next().await.unwrap()).unwrap();
    assert!(answer["result"]["sessionId"].is_string(), "{answer}");
    assert!(gateway.get("/agui/info", "").await.head.starts_with("HTTP/1.1 200"));
    // The session is counted.
    assert!((8_000..200_000).contains(&gateway.held().await));
}
