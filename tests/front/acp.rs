//! ACP over a WebSocket: conversations, the limits of a connection, and what other callers get.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use super::credentials::{guarded, key_of, keys};
use crate::support::clock::HeldClock;
use crate::support::editor::{CWD, outline};
use crate::support::gateway::{Response, agents, counted, serve_observed};
use crate::support::langgraph::{LangGraph, Run, soon, state};
use crate::support::remote::{ACP, RemoteEditor};
use crate::support::socket::Socket;
use serde_json::{Value, json};
use threadway::metrics::Metrics;
use threadway::server::{
    ACP_IDLE, Auth, Cors, Credentials, Limits, Observer, PING, PONG_TIMEOUT, Rates, RequestRate,
    Server, Settings, ThreadRoutePolicy, UpstreamAuth, WRITE_TIMEOUT,
};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;

pub(super) const BEARER: (&str, &str) = ("authorization", "Bearer 0123456789abcdef");
pub(super) const LOADED: &str = "11111111-1111-4111-8111-111111111111";
pub(super) const PAGE: &str = "https://chat.example.com";

pub(super) struct Front {
    pub(super) server: LangGraph,
    pub(super) address: SocketAddr,
    pub(super) gateway: Arc<Server>,
    pub(super) metrics: Metrics,
    pub(super) stop: CancellationToken,
    pub(super) serving: JoinSet<()>,
}

// === impl Front ===

impl Front {
    pub(super) async fn start() -> Self {
        Self::with(Settings::default()).await
    }

    pub(super) async fn with(settings: Settings) -> Self {
        let server = LangGraph::start().await;
        let metrics = Metrics::default();
        let observer = Observer { metrics: metrics.clone(), tracer: None };
        let agents = agents(&[("default", &server.url)], &[]);
        let (address, stop, serving, gateway) = serve_observed(agents, settings, observer).await;
        Self { server, address, gateway, metrics, stop, serving }
    }

    async fn editor(&self) -> RemoteEditor {
        RemoteEditor::initialized(self.address, &[]).await
    }

    /// A gateway, an editor, and its session.
    async fn opened() -> (Self, RemoteEditor, String) {
        let front = Self::start().await;
        let mut editor = front.editor().await;
        let session = editor.session().await;
        (front, editor, session)
    }

    /// Prompts a session, and plays a run up to its first text. Returns the id of the prompt.
    async fn begun(&mut self, editor: &mut RemoteEditor, session: &str) -> (u64, Run) {
        let prompt = editor.prompt(session, "hi").await;
        let mut run = self.server.run().await;
        run.says("a", "one").await;
        editor.until_said("one").await;
        (prompt, run)
    }

    /// Prompts a session, and plays a run that asks for permission. Returns the id of the prompt.
    async fn asked(&mut self, editor: &mut RemoteEditor, session: &str) -> (u64, Value) {
        let prompt = editor.prompt(session, "write it").await;
        let mut run = self.server.run().await;
        run.calls("m", "c", "write", &json!({"path": "/srv/app/a.txt", "text": "a"})).await;
        let (messages, questions) = question();
        run.asks(&messages, &questions).await;
        (prompt, editor.until_asked().await)
    }

    /// Allows what was asked, and plays a run to the end of the prompt.
    async fn allowed(&mut self, editor: &mut RemoteEditor, (prompt, request): (u64, Value)) {
        editor.reply(&request, selected("allow")).await;
        self.server.run().await.ends("success", None).await;
        assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    }

    /// Serves with other settings from now on.
    pub(super) fn reload(&self, settings: Settings) {
        self.gateway.reload(agents(&[("default", &self.server.url)], &[]), settings);
    }

    /// Opens a socket that must be refused.
    async fn refuses(&self, headers: &[(&'static str, &str)]) -> (u16, String) {
        let (status, body) =
            RemoteEditor::open(self.address, headers).await.err().expect("the socket is open");
        (status, body["error"].as_str().unwrap_or_default().to_owned())
    }

    /// Waits until this many TCP connections of clients are left.
    async fn has_connections(&self, count: u8) {
        let count = f64::from(count);
        while counted(&self.metrics, "open_connections").total_cmp(&count).is_ne() {
            tokio::task::yield_now().await;
        }
    }
}

fn refused(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

pub(super) fn selected(option: &str) -> Value {
    json!({"outcome": {"outcome": "selected", "optionId": option}})
}

/// The messages and the question of a run that asks before it writes.
pub(super) fn question() -> (Value, Value) {
    let args = json!({"path": "/srv/app/a.txt", "text": "a"});
    let call = json!({"id": "c", "name": "write", "args": args, "type": "tool_call"});
    let messages = json!([
        {"type": "human", "id": "h", "content": "write it"},
        {"type": "ai", "id": "m", "content": "", "tool_calls": [call]},
    ]);
    let questions = json!([{"id": "q", "value": {
        "action_requests": [{"name": "write", "args": args}],
        "review_configs": [{"action_name": "write", "allowed_decisions": ["approve", "reject"]}],
    }}]);
    (messages, questions)
}

pub(super) fn saved(owner: Option<&str>) -> Value {
    let mut metadata =
        json!({"acp_session": true, "cwd": CWD, "acp_assistant": "agent", "title": "T"});
    if let Some(owner) = owner {
        metadata["owner"] = json!(owner);
    }
    metadata
}

pub(super) fn conversation() -> Value {
    let messages = json!([
        {"type": "human", "id": "h1", "content": "hi"},
        {"type": "ai", "id": "a1", "content": "there"},
    ]);
    state("r", &messages, &json!([]))
}

// === conversations ===

#[tokio::test]
async fn session_on_a_socket_is_made_prompted_approved_cancelled_and_loaded() {
    let mut front = Front::start().await;
    let mut editor = RemoteEditor::open(front.address, &[]).await.unwrap();
    let id = editor.socket.connection.clone().expect("no acp-connection-id");
    assert_eq!(uuid::Uuid::try_parse(&id).unwrap().get_version_num(), 4);
    let initialized = editor.initialize().await;
    assert_eq!(initialized["authMethods"], json!([]), "{initialized}");
    let capabilities = &initialized["agentCapabilities"];
    assert_eq!(capabilities["loadSession"], true);
    assert_eq!(capabilities["auth"].get("logout"), None);
    for (method, params) in
        [("authenticate", json!({"methodId": "api-key"})), ("logout", json!({}))]
    {
        let (code, message) = editor.refused(method, params).await;
        assert_eq!(code, -32601, "{message}");
    }
    let session = editor.session().await;
    let (prompt, run) = front.begun(&mut editor, &session).await;
    run.ends("success", None).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");

    let (prompt, request) = front.asked(&mut editor, &session).await;
    editor.reply(&request, selected("allow")).await;
    let mut run = front.server.run().await;
    run.says("b", "written").await;
    run.ends("success", Some(conversation())).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");

    let prompt = editor.prompt(&session, "again").await;
    let mut run = front.server.run().await;
    run.says("d", "so").await;
    editor.until_said("so").await;
    editor.notify("session/cancel", json!({"sessionId": session})).await;
    front.server.until("the cancel", |server| server.cancelled() == [run.id.clone()]).await;
    run.ends("interrupted", Some(conversation())).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "cancelled");

    let loaded = editor.load(&session).await;
    assert_eq!(loaded.result().get("error"), None);
    let told = outline(&loaded.of(&session));
    assert_eq!(told, ["user_message_chunk h1 hi", "agent_message_chunk a1 there"]);
    assert!(counted(&front.metrics, r#"requests_total{route="acp",status="2xx"}"#) > 5.0);
}

#[tokio::test]
async fn question_is_asked_again_of_a_client_that_was_cut_and_loads() {
    let (mut front, mut editor, session) = Front::opened().await;
    front.asked(&mut editor, &session).await;
    drop(editor);
    front.has_connections(0).await;
    let mut editor = front.editor().await;
    editor.load(&session).await.result();
    let request = editor.until_asked().await;
    assert_eq!(request["params"]["toolCall"]["toolCallId"], "c");
    editor.reply(&request, selected("allow")).await;
    let mut run = front.server.run().await;
    assert_eq!(run.body["command"]["resume"], json!({"q": {"decisions": [{"type": "approve"}]}}));
    run.says("b", "written").await;
    editor.until_said("written").await;
    run.ends("success", None).await;
    assert!(front.server.cancelled().is_empty());
}

#[tokio::test]
async fn run_is_read_once_for_viewers_of_both_protocols() {
    let (mut front, mut editor, session) = Front::opened().await;
    let (prompt, run) = front.begun(&mut editor, &session).await;
    let path = format!("/agui/agent/agent/threads/{session}/events");
    let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", front.address);
    let mut viewer = Response::to(front.address, request.as_bytes()).await;
    let events = viewer.next(1).await;
    assert_eq!(events[0]["type"], "RUN_STARTED");
    assert!(
        front.server.asked(&format!("GET /threads/{session}/runs/{}/stream", run.id)).is_empty()
    );
    run.ends("success", None).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    assert!(viewer.body().await.contains("RUN_FINISHED"));
}

// === frames ===

#[tokio::test]
async fn frames_that_are_wrong_are_refused_until_there_are_too_many() {
    let front = Front::start().await;
    let mut editor = front.editor().await;
    assert_eq!(editor.refused_text("nonsense").await, -32700);
    assert_eq!(editor.refused_text(r#"[{"jsonrpc":"2.0","id":1,"method":"m"}]"#).await, -32600);
    let binary = Message::Binary(b"{}".as_slice().into());
    futures_util::SinkExt::send(&mut editor.socket.stream, binary).await.unwrap();
    assert_eq!(editor.refusal().await, -32600);
    // The connection still works.
    let session = editor.session().await;
    assert!(!session.is_empty());
    for _ in 0..10 {
        assert_eq!(editor.refused_text("").await, -32700);
    }
    editor.socket.say("").await;
    assert_eq!(editor.closed().await, (1008, "too many frames were refused".to_owned()));
}

#[tokio::test]
async fn frame_that_is_too_large_closes_the_socket() {
    let limits = Limits { body_bytes: 10_000, ..Limits::default() };
    let front = Front::with(Settings { limits, ..Settings::default() }).await;
    let mut editor = front.editor().await;
    editor.socket.say(&"x".repeat(10_001)).await;
    assert_eq!(editor.closed().await, (1009, "the message is too large".to_owned()));
}

#[tokio::test]
async fn message_before_initialize_is_refused() {
    let front = Front::start().await;
    let mut editor = RemoteEditor::open(front.address, &[]).await.unwrap();
    let (code, message) = editor.refused("session/list", json!({})).await;
    assert_eq!((code, &*message), (-32600, "send `initialize` first"));
}

#[tokio::test]
async fn handshake_that_is_wrong_is_refused() {
    let front = Front::start().await;
    for (head, status) in [
        ("GET /acp HTTP/1.1\r\nhost: HOST\r\nconnection: upgrade\r\nupgrade: websocket", "426"),
        // A web site can have its own name lead here.
        ("GET /acp HTTP/1.1\r\nhost: evil.example.com", "403"),
        ("PUT /acp HTTP/1.1\r\nhost: HOST", "405"),
    ] {
        let request = head.replace("HOST", &front.address.to_string()) + "\r\n\r\n";
        let response = Response::to(front.address, request.as_bytes()).await;
        assert!(response.head.starts_with(&format!("HTTP/1.1 {status} ")), "{}", response.head);
    }
}

// === callers ===

#[tokio::test]
async fn pages_of_other_origins_are_refused_on_loopback_too() {
    let front = Front::start().await;
    for headers in [
        [("origin", PAGE)],
        [("origin", "http://localhost:3000")],
        [("origin", "null")],
        [("sec-fetch-site", "cross-site")],
    ] {
        assert_eq!(front.refuses(&headers).await, refused(403, "cross_origin"), "{headers:?}");
    }
    let cors = Cors::new([PAGE], Credentials::Omitted).unwrap();
    let front = Front::with(Settings { cors, ..Settings::default() }).await;
    assert!(RemoteEditor::open(front.address, &[("origin", PAGE)]).await.is_ok());
    let with_cookie = [("origin", PAGE), ("cookie", "a=b")];
    assert_eq!(front.refuses(&with_cookie).await, refused(403, "cross_origin"));
}

#[tokio::test]
async fn key_is_checked_again_for_each_message() {
    let auth = key_of("a");
    let mut front = Front::with(guarded(auth)).await;
    assert_eq!(front.refuses(&[]).await, refused(401, "unauthenticated"));
    assert_eq!(
        front.refuses(&[("authorization", "Bearer 0000000000000000")]).await,
        refused(401, "invalid_token")
    );
    let mut editor = RemoteEditor::initialized(front.address, &[BEARER]).await;
    let session = editor.session().await;
    let (_, request) = front.asked(&mut editor, &session).await;
    let runs = front.server.asked("POST /threads").len();
    front.reload(guarded(keys("b=fedcba9876543210")));
    // An answer of somebody who may not call any more approves nothing.
    editor.reply(&request, selected("allow")).await;
    let (code, reason) = editor.closed().await;
    assert_eq!(code, 4401);
    assert!(reason.starts_with("invalid_token: "), "{reason}");
    front.has_connections(0).await;
    assert_eq!(front.server.asked("POST /threads").len(), runs);
}

#[tokio::test]
async fn key_that_belongs_to_another_caller_now_has_no_connection() {
    let front = Front::with(guarded(key_of("a"))).await;
    let mut editor = RemoteEditor::initialized(front.address, &[BEARER]).await;
    front.reload(guarded(key_of("b")));
    let (code, reason) = editor.closed().await;
    assert_eq!(code, 4401);
    assert!(reason.starts_with("invalid_token: "), "{reason}");
}

/// Two callers whose credentials LangGraph checks.
pub(super) async fn tenants(thread_routes: ThreadRoutePolicy) -> Front {
    let auth = Auth::Upstream(UpstreamAuth::default());
    let front = Front::with(Settings { auth, thread_routes, ..Settings::default() }).await;
    for tenant in ["alice", "bob"] {
        front.server.books().tenants.insert(format!("{tenant}-key"), tenant.to_owned());
    }
    front.server.thread(LOADED, saved(Some("alice")), Some(conversation()));
    front
}

pub(super) const ALICE: (&str, &str) = ("x-api-key", "alice-key");
pub(super) const BOB: (&str, &str) = ("x-api-key", "bob-key");

#[tokio::test]
async fn session_of_another_caller_is_unknown() {
    let front = tenants(ThreadRoutePolicy::All).await;
    assert_eq!(front.refuses(&[]).await, refused(401, "unauthenticated"));
    assert_eq!(front.refuses(&[("x-api-key", "nobody")]).await, refused(401, "unauthorized"));
    let mut alice = RemoteEditor::initialized(front.address, &[ALICE]).await;
    let mut bob = RemoteEditor::initialized(front.address, &[BOB]).await;
    assert_eq!(outline(&alice.load(LOADED).await.of(LOADED)).len(), 2);
    let unknown = "22222222-2222-4222-8222-222222222222";
    let params = |id: &str| json!({"sessionId": id, "cwd": CWD, "mcpServers": []});
    for method in ["session/load", "session/resume", "session/fork"] {
        let (code, message) = bob.refused(method, params(LOADED)).await;
        let (other_code, other) = bob.refused(method, params(unknown)).await;
        assert_eq!((code, message.replace(LOADED, unknown)), (other_code, other));
        assert_eq!(code, -32002);
    }
    let prompt = bob.prompt(LOADED, "hi").await;
    assert_eq!(bob.until(prompt).await.error().0, -32002);
    let list = async |editor: &mut RemoteEditor| {
        let listed = editor.call("session/list", json!({})).await;
        listed["sessions"].as_array().unwrap().len()
    };
    assert_eq!((list(&mut alice).await, list(&mut bob).await), (1, 0));
    bob.request("session/delete", json!({"sessionId": LOADED})).await;
    bob.next().await.unwrap();
    assert_eq!(list(&mut alice).await, 1, "bob has deleted alice's session");
    let fork = alice.call("session/fork", params(LOADED)).await;
    let fork = fork["sessionId"].as_str().unwrap();
    assert_eq!(front.server.books().threads[fork].metadata["owner"], "alice");
    assert_eq!((list(&mut alice).await, list(&mut bob).await), (2, 0));
    assert_eq!(bob.refused("session/load", params(fork)).await.0, -32002);
}

#[tokio::test]
async fn sessions_are_listed_and_deleted_only_where_threads_are() {
    let front = tenants(ThreadRoutePolicy::Off).await;
    let mut editor = RemoteEditor::open(front.address, &[ALICE]).await.unwrap();
    let initialized = editor.initialize().await;
    let offered = &initialized["agentCapabilities"]["sessionCapabilities"];
    assert_eq!((offered.get("list"), offered.get("delete")), (None, None), "{offered}");
    assert_eq!(editor.refused("session/list", json!({})).await.0, -32601);
    let (code, _) = editor.refused("session/delete", json!({"sessionId": LOADED})).await;
    assert_eq!(code, -32601);
    assert!(front.server.books().threads.contains_key(LOADED));
    editor.load(LOADED).await.result();
}

#[tokio::test]
async fn requests_and_sockets_beyond_a_callers_limit_are_refused() {
    let number = |number| NonZeroU32::new(number).unwrap();
    let requests = RequestRate { per_second: number(1), burst: number(4) };
    let rates = Rates { requests: Some(requests), streams: NonZeroUsize::new(1) };
    let mut front = Front::with(Settings { rates, ..Settings::default() }).await;
    let _clock = HeldClock::pause();
    // The opening, `initialize`, `session/new` and the prompt.
    let mut editor = front.editor().await;
    let session = editor.session().await;
    let asked = front.asked(&mut editor, &session).await;
    let (code, message) = editor.refused("session/list", json!({})).await;
    assert_eq!(code, -32603);
    assert!(message.contains("more requests than you may"), "{message}");
    // A socket cannot refuse an answer, or a notification.
    front.allowed(&mut editor, asked).await;
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(front.refuses(&[]).await, refused(429, "too_many_streams"));
    drop(editor);
    front.has_connections(0).await;
    assert!(RemoteEditor::open(front.address, &[]).await.is_ok());
}

#[tokio::test]
async fn agent_that_is_missing_with_several_upstreams_is_refused_by_its_key() {
    let server = LangGraph::start().await;
    let urls = [("a", &*server.url), ("b", &*server.url)];
    let serve =
        async |settings| serve_observed(agents(&urls, &[]), settings, Observer::default()).await;
    let (address, _stop, _serving, _server) = serve(Settings::default()).await;
    let (status, body) = RemoteEditor::open(address, &[]).await.err().unwrap();
    assert_eq!((status, &body["error"]), (404, &json!("unknown_agent")));
    assert!(body["message"].as_str().unwrap().contains("`acp.agent`"), "{body}");
    let mut settings = Settings::default();
    settings.acp.agent = Some("b:agent".to_owned());
    let (address, _stop, _serving, _server) = serve(settings).await;
    let mut editor = RemoteEditor::initialized(address, &[]).await;
    assert!(!editor.session().await.is_empty());
}

// === slow, silent and idle clients, and the end ===

#[tokio::test]
async fn client_that_reads_nothing_holds_little_memory_and_is_cut() {
    const TOKEN: usize = 8 * 1024;
    let mut front = Front::start().await;
    let mut editor = RemoteEditor::on(Socket::narrow(front.address, ACP).await);
    editor.initialize().await;
    let session = editor.session().await;
    let (_, mut run) = front.begun(&mut editor, &session).await;
    let text = "x".repeat(TOKEN);
    // More than the kernel's buffers and the outbox take; the rest stays in the run's log.
    for _ in 0..2_000 {
        run.says("a", &text).await;
    }
    let clock = HeldClock::pause();
    let mut passed = Duration::ZERO;
    while counted(&front.metrics, "open_connections") > 0.5 {
        assert!(passed < WRITE_TIMEOUT * 2, "the socket is still open");
        clock.advance(PING).await;
        passed += PING;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
    assert!(passed >= PONG_TIMEOUT, "{passed:?}");
    assert!(front.server.cancelled().is_empty(), "leaving is not stopping");
}

#[tokio::test]
async fn client_that_is_silent_is_pinged_and_closed_after_an_hour() {
    let front = Front::start().await;
    let mut editor = front.editor().await;
    let clock = HeldClock::pause();
    let (mut pings, began_at) = (0, Instant::now());
    let closed = loop {
        tokio::select! {
            biased;
            message = futures_util::StreamExt::next(&mut editor.socket.stream) => match message {
                Some(Ok(Message::Ping(_))) => pings += 1,
                Some(Ok(Message::Close(frame))) => break frame.unwrap(),
                other => panic!("{other:?}"),
            },
            () = clock.advance(Duration::from_secs(1)) => {}
        }
    };
    let passed = began_at.elapsed();
    assert_eq!(u16::from(closed.code), 1000);
    assert!(passed.abs_diff(ACP_IDLE) < PING * 2, "{passed:?}");
    assert!(pings > 200, "{pings} pings");
}

#[tokio::test]
async fn client_that_waits_for_an_answer_is_not_idle() {
    let (mut front, mut editor, session) = Front::opened().await;
    let asked = front.asked(&mut editor, &session).await;
    let clock = HeldClock::pause();
    let mut passed = Duration::ZERO;
    while passed < ACP_IDLE + PING {
        tokio::select! {
            biased;
            message = futures_util::StreamExt::next(&mut editor.socket.stream) => {
                assert!(matches!(message, Some(Ok(Message::Ping(_)))), "{message:?}");
            }
            () = clock.advance(Duration::from_secs(5)) => passed += Duration::from_secs(5),
        }
    }
    drop(clock);
    tokio::time::resume();
    front.allowed(&mut editor, asked).await;
}

#[tokio::test]
async fn shutdown_closes_each_socket_and_answers_no_prompt() {
    let (mut front, mut editor, session) = Front::opened().await;
    let mut idle = front.editor().await;
    let _run = front.begun(&mut editor, &session).await;
    front.stop.cancel();
    let away = (1001, "the gateway is shutting down".to_owned());
    // A response would tell the person of a failure that another replica repairs.
    assert_eq!(editor.next().await, Err(away.clone()));
    assert_eq!(idle.next().await, Err(away));
    soon("the end", async { while front.serving.join_next().await.is_some() {} }).await;
    assert!(front.server.cancelled().is_empty());
}

// === metrics ===

/// The value of a series that counts whole things.
pub(super) fn whole(metrics: &Metrics, series: &str) -> usize {
    counted(metrics, series).to_string().parse().unwrap()
}

/// Waits until a series has this value.
async fn counts(metrics: &Metrics, series: &str, value: usize) {
    soon(series, async {
        while whole(metrics, series) != value {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// How many prompts on sockets ended so.
fn ended(metrics: &Metrics, outcome: &str) -> usize {
    let labels = format!(r#"{{transport="websocket",outcome="{outcome}"}}"#);
    whole(metrics, &format!("acp_prompts_ended_total{labels}"))
}

#[tokio::test]
async fn metrics_count_connections_sessions_prompts_and_updates_on_sockets() {
    let mut front = Front::start().await;
    let metrics = front.metrics.clone();
    let series = |name: &str| format!(r#"{name}{{transport="websocket"}}"#);
    let is = |name: &str| whole(&metrics, &series(name));
    let mut editor = front.editor().await;
    let other = front.editor().await;
    assert_eq!((is("acp_open_connections"), is("acp_open_sessions")), (2, 0));
    let session = editor.session().await;
    let closed = editor.session().await;
    assert_eq!(is("acp_open_sessions"), 2);
    editor.call("session/close", json!({"sessionId": closed})).await;
    assert_eq!(is("acp_open_sessions"), 1);

    let before = is("acp_updates_total");
    let prompt = editor.prompt(&session, "hi").await;
    let mut run = front.server.run().await;
    assert_eq!(is("acp_active_prompts"), 1);
    // A session takes one prompt at a time.
    let params = json!({"sessionId": session, "prompt": [{"type": "text", "text": "me too"}]});
    let busy = editor.request("session/prompt", params).await;
    let (mut updates, response) = (0, editor.next().await.unwrap());
    let mut frame = response;
    while frame["id"] != busy {
        updates += 1;
        frame = editor.next().await.unwrap();
    }
    assert_eq!((ended(&metrics, "not_accepted"), is("acp_active_prompts")), (1, 1));
    run.says("a", "one").await;
    editor.until_said("one").await;
    run.ends("success", None).await;
    let told = editor.until(prompt).await;
    assert_eq!(told.stop_reason(), "end_turn");
    let sent = updates + 1 + told.updates.len();
    assert_eq!(is("acp_updates_total") - before, sent);
    assert_eq!((ended(&metrics, "end_turn"), is("acp_active_prompts")), (1, 0));

    let prompt = editor.prompt(&session, "stop").await;
    let run = front.server.run().await;
    editor.notify("session/cancel", json!({"sessionId": session})).await;
    front.server.until("the cancel", |server| server.cancelled() == [run.id.clone()]).await;
    run.ends("interrupted", None).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "cancelled");
    assert_eq!(ended(&metrics, "cancelled"), 1);

    let prompt = editor.prompt(&session, "fail").await;
    front.server.run().await.ends("error", None).await;
    editor.until(prompt).await.error();
    assert_eq!(ended(&metrics, "failed"), 1);

    // A client that leaves in the middle of a prompt.
    editor.prompt(&session, "leave").await;
    let _run = front.server.run().await;
    drop(editor);
    counts(&metrics, &series("acp_open_connections"), 1).await;
    counts(&metrics, &series("acp_open_sessions"), 0).await;
    assert_eq!((ended(&metrics, "left"), is("acp_active_prompts")), (1, 0));
    drop(other);
    counts(&metrics, &series("acp_open_connections"), 0).await;
    // Nothing of it was over HTTP.
    let text = metrics.text(threadway::metrics::Format::OpenMetrics);
    let of_http = text.lines().filter(|line| line.contains(r#"transport="http""#));
    assert_eq!(of_http.filter(|line| !line.ends_with(" 0")).count(), 0, "{text}");
    assert!(!text.contains(&session) && !text.contains(&closed));
}
