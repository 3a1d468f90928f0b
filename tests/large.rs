//! Threads with a state of 20 MB, on a runtime of one thread: no operation keeps that thread from the
//! other tasks. The test is alone in its process, because it measures a thread's time.
//!
//! It measures the processor's time, which does not depend on what else the machine does.

#![cfg(test)]
#![cfg(target_os = "linux")]

mod support;

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response as Answer};
use futures_util::{StreamExt, stream};
use http::header::CONTENT_TYPE;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use support::editor::{self, Setup};
use support::gateway::{THREAD, agents, part, serve_as};
use threadway::server::{Limits, Settings, ThreadRoutePolicy};
use threadway::sessions::Outbox;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The longest work of the runtime's thread between two ticks.
const LONGEST: Duration = Duration::from_millis(50);

/// How often a task of the gateway's runtime ticks.
const TICK: Duration = Duration::from_millis(1);

/// How many ticks follow an operation before its result is read.
const TICKS: u64 = 20;

/// How often an operation is measured. The shortest result counts: what the operation itself does is
/// in each of them.
const ROUNDS: usize = 2;

const PATIENCE: Duration = Duration::from_mins(1);

const MB: usize = 1_000_000;

/// The longest work between two ticks since it was taken last.
#[derive(Default)]
struct Longest {
    /// In nanoseconds of processor time.
    nanos: AtomicU64,
    ticks: AtomicU64,
}

/// The LangGraph server: one thread, whose run ends when the test says so.
struct Script {
    states: [Bytes; 2],
    records: [Bytes; 2],
    values: Bytes,
    /// Which of the states the thread has.
    shown: AtomicUsize,
    runs: AtomicUsize,
    is_running: watch::Sender<bool>,
    /// Whether a run ends after its first state.
    ends_itself: AtomicBool,
}

// === impl Longest ===

impl Longest {
    /// Ticks for ever.
    async fn watch(self: Arc<Self>) {
        let mut last: Option<(ThreadId, u64)> = None;
        loop {
            let now = (std::thread::current().id(), processor_time());
            // After large work the runtime has another thread.
            if let Some((_, time)) = last.filter(|(thread, _)| *thread == now.0) {
                self.nanos.fetch_max(now.1 - time, Ordering::Relaxed);
            }
            last = Some(now);
            self.ticks.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(TICK).await;
        }
    }

    /// Waits for some ticks, so that what went before is counted.
    fn take(&self) -> Duration {
        let until = self.ticks.load(Ordering::SeqCst) + TICKS;
        while self.ticks.load(Ordering::SeqCst) < until {
            std::thread::yield_now();
        }
        Duration::from_nanos(self.nanos.swap(0, Ordering::Relaxed))
    }
}

/// The time that this thread has had the processor, in nanoseconds.
fn processor_time() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

/// A conversation and a state of about this size. The Python server writes ASCII only.
fn values(bytes: usize, change: &str) -> Value {
    let messages: Vec<_> = (0..bytes / 20_000)
        .map(|at| {
            let kind = if at % 2 == 0 { "human" } else { "ai" };
            json!({"id": format!("m{at}"), "type": kind, "content": "w\"ord \n".repeat(1_100)})
        })
        .collect();
    let notes: Vec<_> = (0..bytes / 200)
        .map(|at| json!({"at": at, "text": "of the state ".repeat(5), "on": change}))
        .collect();
    json!({"messages": messages, "notes": notes})
}

/// A state that no listed run has made, with its place in the history.
fn state(values: &Value, at: usize) -> Bytes {
    let state = json!({
        "values": values, "next": [], "tasks": [], "metadata": {"run_id": run_id(0)},
        "checkpoint": {"checkpoint_id": format!("c{at}")},
        "parent_checkpoint": {"checkpoint_id": format!("c{}", at.saturating_sub(1))},
    });
    state.to_string().into()
}

fn run_id(number: usize) -> String {
    format!("01a200b7-5ee6-7592-b13b-{number:012}")
}

// === impl Script ===

impl Script {
    fn new() -> Arc<Self> {
        let all = ["one", "two"].map(|change| values(20 * MB, change));
        let record = |values: &Value| {
            let record =
                json!({"thread_id": THREAD, "status": "idle", "metadata": {}, "values": values});
            record.to_string().into()
        };
        let [one, two] = &all;
        Arc::new(Self {
            states: [state(one, 1), state(two, 1)],
            records: [record(one), record(two)],
            values: part("values", one).into(),
            shown: AtomicUsize::new(0),
            runs: AtomicUsize::new(0),
            is_running: watch::Sender::new(false),
            ends_itself: AtomicBool::new(false),
        })
    }

    fn end_run(&self) {
        self.is_running.send_replace(false);
    }

    fn change(&self) {
        self.shown.fetch_xor(1, Ordering::Relaxed);
    }

    fn record(&self) -> Value {
        let status = if *self.is_running.borrow() { "running" } else { "success" };
        let run = run_id(self.runs.load(Ordering::Relaxed));
        json!({
            "run_id": run, "thread_id": THREAD, "status": status, "metadata": {},
            "created_at": "2026-11-22T10:00:00+00:00",
            "kwargs": {"resumable": true, "stream_mode": ["values", "messages-tuple"]},
        })
    }

    fn stream(self: &Arc<Self>) -> Answer {
        let run = run_id(self.runs.load(Ordering::Relaxed));
        let metadata = part("metadata", &json!({"run_id": run, "attempt": 1}));
        let first = stream::iter([metadata.into(), self.values.clone()]);
        let script = Arc::clone(self);
        let end = stream::once(async move {
            if script.ends_itself.load(Ordering::Relaxed) {
                script.end_run();
            }
            let mut running = script.is_running.subscribe();
            running.wait_for(|is_running| !is_running).await.unwrap();
            Bytes::new()
        });
        let parts = first.chain(end).map(Ok::<_, Infallible>);
        let place = format!("/threads/{THREAD}/runs/{run}");
        let headers = [(CONTENT_TYPE.as_str(), "text/event-stream"), ("content-location", &place)];
        (headers, Body::from_stream(parts)).into_response()
    }
}

/// The server's answer to any request.
async fn answer(State(script): State<Arc<Script>>, request: Request) -> Answer {
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    let shown = script.shown.load(Ordering::Relaxed);
    let segments: Vec<_> = path.trim_matches('/').split('/').collect();
    let large = |body: &Bytes| ([(CONTENT_TYPE, "application/json")], body.clone()).into_response();
    match (request.method(), &*segments) {
        (_, ["info"]) => document(&json!({"version": "0.16.7", "langgraph_py_version": "1.2.22"})),
        (_, ["ok"]) => document(&json!({"ok": true})),
        (_, ["assistants", "search"]) => document(&json!([
            {"assistant_id": THREAD, "graph_id": "agent", "metadata": {"created_by": "system"}},
        ])),
        (_, ["assistants", ..]) => document(&json!({})),
        (_, ["threads", "search"]) => document(&json!([
            {"thread_id": THREAD, "status": "idle", "metadata": {"graph_id": "agent",
                "threadway": {"cwd": "/srv/app"}}, "updated_at": "2026-11-22T10:00:00+00:00"},
        ])),
        (_, ["threads", _]) => large(&script.records[shown]),
        (_, ["threads", _, "state"]) => large(&script.states[shown]),
        (_, ["threads", _, "history"]) => {
            let old = state(&json!({"messages": []}), 0);
            let page = [&b"["[..], &script.states[shown], b",", &old, b"]"].concat();
            large(&page.into())
        }
        (&Method::POST, ["threads", _, "runs", "stream"]) => {
            script.runs.fetch_add(1, Ordering::Relaxed);
            script.is_running.send_replace(true);
            script.stream()
        }
        (_, ["threads", _, "runs"]) => {
            let is_running = *script.is_running.borrow();
            let is_asked = match query.split('&').find_map(|pair| pair.strip_prefix("status=")) {
                Some("running") => is_running,
                Some(_) => false,
                None => script.runs.load(Ordering::Relaxed) > 0,
            };
            document(&if is_asked { json!([script.record()]) } else { json!([]) })
        }
        (_, ["threads", _, "runs", _]) => document(&script.record()),
        (_, ["threads", _, "runs", _, "stream"]) => script.stream(),
        (_, ["threads", _, "runs", _, "cancel"]) => {
            script.end_run();
            document(&json!({}))
        }
        _ => (StatusCode::NOT_FOUND, r#"{"detail":"Not Found"}"#).into_response(),
    }
}

fn document(value: &Value) -> Answer {
    ([(CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

/// A client, which reads and looks for texts. It parses nothing.
struct Client(TcpStream);

impl Client {
    fn send(gateway: SocketAddr, head: &str, body: &str) -> Self {
        let mut socket = TcpStream::connect(gateway).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        let request = format!(
            "{head} HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        socket.write_all(request.as_bytes()).unwrap();
        Self(socket)
    }

    fn get(gateway: SocketAddr, path: &str) -> Self {
        Self::send(gateway, &format!("GET /agui{path}"), "")
    }

    fn post(gateway: SocketAddr, path: &str, body: &Value) -> Self {
        Self::send(gateway, &format!("POST /agui{path}"), &body.to_string())
    }

    /// Reads on until this text has come, or to the end of the response. Returns the last bytes.
    fn read_to(&mut self, text: &str) -> String {
        let (mut bytes, mut last) = (vec![0; 256 * 1024], Vec::new());
        loop {
            let read = self.0.read(&mut bytes).unwrap();
            last.extend_from_slice(&bytes[..read]);
            let seen = String::from_utf8_lossy(&last).into_owned();
            if read == 0 || (!text.is_empty() && seen.contains(text)) {
                return seen;
            }
            last.drain(..last.len().saturating_sub(2_000));
        }
    }

    fn read(mut self) -> String {
        self.read_to("")
    }
}

/// What a client of the thread sends.
fn input(run: &str, messages: &Value) -> Value {
    json!({
        "threadId": THREAD, "runId": run, "messages": messages, "state": {}, "tools": [],
        "context": [], "forwardedProps": {},
    })
}

struct Page {
    gateway: SocketAddr,
    script: Arc<Script>,
    longest: Arc<Longest>,
    editor: tokio::io::DuplexStream,
    _runtimes: [Runtime; 2],
    _stop: CancellationToken,
}

// === impl Page ===

impl Page {
    fn start() -> Self {
        let runtime = |threads| {
            Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap()
        };
        let (own, others) = (runtime(1), runtime(2));
        let (script, longest) = (Script::new(), Arc::new(Longest::default()));
        let routes = axum::Router::new().fallback(answer).with_state(Arc::clone(&script));
        let listener = others.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        others.spawn(async move {
            let limits = Limits::default();
            threadway::server::serve(listener, routes, &limits, CancellationToken::new()).await;
        });
        let (editor, theirs) = tokio::io::duplex(64 * 1024);
        let (ready, serving) = std::sync::mpsc::channel();
        let watch = Arc::clone(&longest);
        // On the runtime's own thread.
        own.spawn(async move {
            let settings =
                Settings { thread_routes: ThreadRoutePolicy::All, ..Settings::default() };
            let agents = agents(&[("default", &url)], &[]);
            let (gateway, stop, serving, _server) = serve_as(agents, settings).await;
            let service = Setup::default().service(&url);
            let mut tasks = JoinSet::new();
            tasks.spawn(async move {
                let _ = editor::serve(service, Outbox::new(), theirs).await;
            });
            tasks.spawn(watch.watch());
            ready.send((gateway, stop)).unwrap();
            serving.join_all().await;
        });
        let (gateway, stop) = serving.recv().unwrap();
        Self { gateway, script, longest, editor, _runtimes: [own, others], _stop: stop }
    }

    /// The longest work during an operation.
    fn during(&mut self, what: &str, mut operation: impl FnMut(&mut Self)) -> (String, Duration) {
        let mut shortest = Duration::MAX;
        for _ in 0..ROUNDS {
            self.longest.take();
            operation(self);
            shortest = shortest.min(self.longest.take());
        }
        println!("{what}: {shortest:?}");
        (what.to_owned(), shortest)
    }
}

/// Sends a request of an editor, and reads on until its response has come.
fn asked(page: &mut Page, id: u64, method: &str, params: &Value) {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let exchange = async {
        let (reader, mut writer) = tokio::io::split(&mut page.editor);
        writer.write_all(format!("{request}\n").as_bytes()).await.unwrap();
        let mut lines = BufReader::new(reader).lines();
        loop {
            let line = lines.next_line().await.unwrap().expect("the agent has ended");
            if line.contains(&format!("\"id\":{id},")) && !line.contains("\"method\"") {
                assert!(!line.contains("\"error\""), "{method}: {line}");
                return;
            }
        }
    };
    runtime.block_on(async { tokio::time::timeout(PATIENCE, exchange).await }).expect(method);
}

#[test]
fn no_operation_on_a_large_state_keeps_the_runtimes_only_thread_from_other_tasks() {
    let mut page = Page::start();
    let gateway = page.gateway;
    let events = format!("/agent/agent/threads/{THREAD}/events");
    let following = format!("{events}?follow=thread");
    let run = "/agent/agent/run";
    let hi = json!([{"id": "hi", "role": "user", "content": "hi"}]);
    let mut all = Vec::new();

    all.push(page.during("a client reads the idle thread", |_| {
        assert!(Client::get(gateway, &events).read().contains("RUN_FINISHED"));
    }));
    all.push(page.during("a client connects", |_| {
        let body = input("connect", &json!([]));
        let seen = Client::post(gateway, "/agent/agent/connect", &body).read();
        assert!(seen.contains("RUN_FINISHED"), "{seen}");
    }));
    let part = |part: &str| format!("/threads/{THREAD}/{part}?agentId=agent");
    for name in ["messages", "events", "state"] {
        all.push(page.during(&format!("the inspector reads the {name}"), |_| {
            assert!(Client::get(gateway, &part(name)).read_to("HTTP/1.1 ").contains(" 200 OK"));
            Client::get(gateway, &part(name)).read();
        }));
    }
    all.push(page.during("an application loads the page of the thread", |_| {
        let path = format!("{run}?threadId={THREAD}");
        assert!(Client::get(gateway, &path).read_to("HTTP/1.1 ").contains(" 200 OK"));
        Client::get(gateway, &path).read();
    }));
    all.push(page.during("threads are listed", |_| {
        let seen = Client::get(gateway, "/threads?agentId=agent").read();
        assert!(seen.contains(THREAD), "{seen}");
    }));
    all.push(page.during("a follower sees the thread change", |page| {
        let mut follower = Client::get(gateway, &following);
        follower.read_to("RUN_FINISHED");
        page.script.change();
        // A large state is read rarely, but at once for a new follower.
        Client::get(gateway, &following).read_to("RUN_FINISHED");
        follower.read_to("RUN_FINISHED");
    }));

    let mut number = 0;
    all.push(page.during("a run starts, a client reconnects, and the run ends", |page| {
        number += 1;
        let mut owner = Client::post(gateway, run, &input(&format!("r{number}"), &hi));
        owner.read_to("MESSAGES_SNAPSHOT");
        let mut viewer = Client::get(gateway, &format!("{events}?lastEventId=0"));
        viewer.read_to("RUN_STARTED");
        page.script.end_run();
        assert!(owner.read_to("RUN_FINISHED").contains("RUN_FINISHED"));
        assert!(viewer.read_to("RUN_FINISHED").contains("RUN_FINISHED"));
    }));
    all.push(page.during("a run is stopped", |_| {
        number += 1;
        let mut owner = Client::post(gateway, run, &input(&format!("r{number}"), &hi));
        owner.read_to("MESSAGES_SNAPSHOT");
        let path = format!("/agent/agent/stop/{THREAD}");
        assert!(Client::post(gateway, &path, &json!({})).read().contains(" 200 OK"));
        owner.read();
    }));
    all.push(page.during("a client sends its whole copy of the thread, with an edit", |page| {
        number += 1;
        let told = |at: usize| {
            let role = if at.is_multiple_of(2) { "user" } else { "assistant" };
            let content = if at == 600 { "edited".into() } else { "w\"ord \n".repeat(1_100) };
            json!({"id": format!("m{at}"), "role": role, "content": content})
        };
        let messages: Value = (0..=600).map(told).collect();
        let mut owner = Client::post(gateway, run, &input(&format!("r{number}"), &messages));
        let seen = owner.read_to("RUN_STARTED");
        assert!(seen.contains("RUN_STARTED"), "{seen}");
        owner.read_to("MESSAGES_SNAPSHOT");
        page.script.end_run();
        owner.read();
    }));

    let mut id = 0;
    let start = json!({"protocolVersion": 1, "clientCapabilities": {}});
    asked(&mut page, 0, "initialize", &start);
    let opened = json!({"sessionId": THREAD, "cwd": "/srv/app", "mcpServers": []});
    all.push(page.during("an editor loads a session", |page| {
        id += 1;
        asked(page, id, "session/load", &opened);
    }));
    all.push(page.during("an editor lists sessions", |page| {
        id += 1;
        asked(page, id, "session/list", &json!({}));
    }));
    page.script.ends_itself.store(true, Ordering::Relaxed);
    all.push(page.during("an editor prompts", |page| {
        id += 1;
        let prompt = [json!({"type": "text", "text": "hi"})];
        let params = json!({"sessionId": THREAD, "prompt": prompt});
        asked(page, id, "session/prompt", &params);
    }));

    let late: Vec<_> = all.iter().filter(|(_, longest)| *longest > LONGEST).collect();
    assert!(late.is_empty(), "longer than {LONGEST:?}: {late:?}");
}
