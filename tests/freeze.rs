//! A thread with many followers while its runs are rolled back, on eight OS threads and in real
//! time. The gateway answers all the time, and every follower gets the thread's final state.
//!
//! Two locks that were taken in both orders once froze the whole process here. Debug builds detect
//! such pairs without a deadlock (`src/sync.rs`); this test provokes the deadlock.
//!
//! `THREADWAY_FREEZE_ROUNDS=100 cargo test --release --test freeze` takes five minutes.

#![cfg(test)]

mod support;

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response as Answer};
use futures_util::stream;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};
use support::gateway::{Response, THREAD, agents, events_request, part, serve, token};
use threadway::server::Limits;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The number of the gateway's OS threads.
const WORKERS: usize = 8;

/// The number of clients that follow the thread all the time.
const FOLLOWERS: usize = 150;

/// The number of clients that connect, read and disconnect again and again.
const NEWCOMERS: usize = 20;

/// The number of rounds, unless the environment sets it.
const ROUNDS: u64 = 4;

/// The length of a round, and of the run in it.
const ROUND: Duration = Duration::from_secs(3);
const RUN: Duration = Duration::from_millis(60);

/// How long the gateway may take to answer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The text in the last state.
const LAST_WORDS: &str = "these are the last words";

/// The LangGraph server: one thread, and its changes.
struct Script {
    thread: Mutex<Thread>,
    changed: watch::Sender<()>,
    looks: AtomicU64,
}

#[derive(Clone, Copy)]
struct Thread {
    changes: u64,
    /// How many runs have begun, and whether the last one is running.
    runs: u64,
    is_running: bool,
    is_last: bool,
}

// === impl Script ===

impl Script {
    fn new() -> Arc<Self> {
        let thread = Thread { changes: 0, runs: 0, is_running: false, is_last: false };
        let (thread, looks) = (Mutex::new(thread), AtomicU64::new(0));
        Arc::new(Self { thread, changed: watch::Sender::new(()), looks })
    }

    fn thread(&self) -> Thread {
        *self.thread.lock().unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut Thread)) {
        change(&mut self.thread.lock().unwrap());
        self.changed.send_replace(());
    }

    /// Plays one round: a change of the state, and then a run that is rolled back.
    async fn play(&self) {
        self.change(|thread| thread.changes += 1);
        tokio::time::sleep(RUN).await;
        self.change(|thread| (thread.runs, thread.is_running) = (thread.runs + 1, true));
        tokio::time::sleep(RUN).await;
        self.change(|thread| thread.is_running = false);
        tokio::time::sleep(ROUND).await;
    }

    /// From 0.3 to 3 s, another value each time.
    fn delay(&self) -> Duration {
        let look = self.looks.fetch_add(1, Ordering::Relaxed);
        Duration::from_millis(300 + look * 997 % 2_700)
    }
}

// === impl Thread ===

impl Thread {
    fn values(self) -> Value {
        let message = |at| {
            let kind = if at % 2 == 0 { "human" } else { "ai" };
            json!({"id": format!("m{at}"), "type": kind, "content": "well, well"})
        };
        let mut messages: Vec<_> = (0..1_000).map(message).collect();
        if self.is_last {
            messages.push(json!({"id": "last", "type": "ai", "content": LAST_WORDS}));
        }
        json!({"messages": messages, "count": self.changes})
    }

    fn run(self) -> String {
        format!("01a200b7-5ee6-7592-b13b-{:012}", self.runs)
    }

    fn record(self) -> Value {
        json!({
            "run_id": self.run(), "status": "running", "metadata": {},
            "kwargs": {"resumable": true, "stream_mode": ["values", "messages-tuple"]},
        })
    }
}

/// The server's answer to any request.
async fn answer(State(script): State<Arc<Script>>, request: Request) -> Answer {
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    if path == "/info" {
        let info = json!({"version": "0.16.7", "langgraph_py_version": "1.2.22"});
        return document(&info);
    }
    let thread = script.thread();
    let path = path.strip_prefix(&format!("/threads/{THREAD}")).unwrap();
    match path.strip_prefix("/runs/") {
        None if path == "/state" => {
            let checkpoint = json!({"checkpoint_id": format!("C{}", thread.changes)});
            let state = json!({"values": thread.values(), "next": [], "checkpoint": checkpoint});
            document(&state)
        }
        None if path == "/stream" => streamed(script, |_| true),
        None if query.split('&').any(|pair| pair == "limit=1") => {
            tokio::time::sleep(script.delay()).await;
            document(&json!([]))
        }
        None if thread.is_running && !query.contains("status=pending") => {
            document(&json!([thread.record()]))
        }
        None => document(&json!([])),
        Some(run) if !thread.is_running || !run.starts_with(&thread.run()) => {
            (StatusCode::NOT_FOUND, r#"{"detail":"Run not found"}"#).into_response()
        }
        Some(run) if run.ends_with("/stream") => {
            let runs = thread.runs;
            streamed(script, move |thread| thread.is_running && thread.runs == runs)
        }
        Some(_) => document(&thread.record()),
    }
}

fn document(value: &Value) -> Answer {
    ([(CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

/// A stream that sends a part at each change, for as long as `holds` is true.
fn streamed(script: Arc<Script>, holds: impl Fn(Thread) -> bool + Send + 'static) -> Answer {
    let changes = script.changed.subscribe();
    let thread = script.thread();
    let says = [
        part("metadata", &json!({"run_id": thread.run(), "attempt": 1})),
        part("values", &thread.values()),
        token(&format!("half-{}", thread.runs), "half of what I mean"),
    ];
    let first = if thread.is_running { says.concat() } else { ": hello\r\n\r\n".to_owned() };
    let rest = (script, changes, holds, Some(first));
    let parts = stream::unfold(rest, async |(script, mut changes, holds, first)| {
        let text = if let Some(first) = first {
            first
        } else {
            changes.changed().await.ok()?;
            holds(script.thread()).then(|| part("lifecycle", &json!({})))?
        };
        Some((Ok::<_, Infallible>(text), (script, changes, holds, None)))
    });
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(parts)).into_response()
}

/// Follows the thread; returns the stream after its first event.
async fn follow(gateway: SocketAddr, key: &str) -> Response {
    let headers = format!("x-api-key: {key}\r\n");
    let request = events_request(&headers, "?follow=thread");
    let mut response = Response::to(gateway, request.as_bytes()).await;
    response.next(1).await;
    response
}

/// Plays the rounds, and waits until every follower has the last text.
async fn play(gateway: SocketAddr, script: Arc<Script>, rounds: u64, told: mpsc::Sender<u64>) {
    let mut followers = JoinSet::new();
    for at in 0..FOLLOWERS {
        followers.spawn(async move {
            let mut response = follow(gateway, &format!("follower-{at}")).await;
            while !response.whole_frame().await.contains(LAST_WORDS) {}
        });
    }
    let mut newcomers = JoinSet::new();
    for at in 0..NEWCOMERS {
        newcomers.spawn(async move {
            loop {
                drop(follow(gateway, &format!("newcomer-{at}")).await);
            }
        });
    }
    for round in 0..rounds {
        script.play().await;
        told.send(round).unwrap();
    }
    script.change(|thread| (thread.changes, thread.is_last) = (thread.changes + 1, true));
    while let Some(follower) = followers.join_next().await {
        follower.unwrap();
    }
}

/// Whether the gateway answers. Called outside of any runtime, so it works if the runtime is
/// blocked.
fn is_alive(gateway: SocketAddr) -> std::io::Result<()> {
    let mut socket = TcpStream::connect_timeout(&gateway, PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(())
}

/// Exits the process, because a runtime whose threads are blocked cannot be dropped.
fn give_up(runtime: Runtime, why: &str) -> ! {
    runtime.shutdown_background();
    panic!("{why}");
}

#[test]
fn no_crowd_at_a_thread_whose_runs_are_rolled_back_freezes_the_gateway() {
    let rounds = std::env::var_os("THREADWAY_FREEZE_ROUNDS");
    let rounds = rounds.map_or(ROUNDS, |rounds| rounds.to_str().unwrap().parse().unwrap());
    let runtime = Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().unwrap();
    let script = Script::new();
    let (gateway, _stop, _serving, upstream) = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let routes = axum::Router::new().fallback(answer).with_state(Arc::clone(&script));
        let mut upstream = JoinSet::new();
        upstream.spawn(async move {
            let limits = Limits::default();
            threadway::server::serve(listener, routes, &limits, CancellationToken::new()).await;
        });
        let (gateway, stop, serving) =
            serve(agents(&[("default", &url)], &[]), Limits::default()).await;
        (gateway, stop, serving, upstream)
    });
    let (told, rounds_told) = mpsc::channel();
    let playing = runtime.spawn(play(gateway, script, rounds, told));
    let (mut round, mut seconds) = (0, 0);
    loop {
        match rounds_told.recv_timeout(Duration::from_secs(1)) {
            Ok(played) => (round, seconds) = (played + 1, 0),
            Err(mpsc::RecvTimeoutError::Timeout) => seconds += 1,
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
        if let Err(error) = is_alive(gateway) {
            give_up(runtime, &format!("the gateway is frozen in round {round}: {error}"));
        }
        if seconds > PATIENCE.as_secs() {
            give_up(runtime, &format!("nothing goes on behind round {round}"));
        }
    }
    runtime.block_on(playing).unwrap();
    drop(upstream);
    runtime.shutdown_background();
}
