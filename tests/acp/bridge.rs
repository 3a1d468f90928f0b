//! An editor behind `threadway acp --gateway`. The test plays the gateway with real sockets, behind
//! which there is an agent in front of a scripted LangGraph server, or the test itself.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use threadway::bridge::{GatewayUrl, OpenError, PATIENCE, RemoteGateway, TokenSource};
use threadway::sessions::{Authentication, Connection, Outbox, Service, SessionLists};
use threadway::stdio;
use threadway::upstream::Caller;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_util::sync::CancellationToken;

use crate::support::clock::HeldClock;
use crate::support::editor::{CWD, Editor, Setup, outline};
use crate::support::gateway::{part, token};
use crate::support::langgraph::{LangGraph, soon, state};

const SESSION: &str = "11111111-1111-4111-8111-111111111111";

/// The largest message that the test's gateway takes.
const MESSAGE_BYTES: usize = 100_000;

/// Where the bridge connects to.
struct Remote(TcpListener);

/// One connection of the bridge.
struct Peer {
    socket: WebSocketStream<TcpStream>,
    /// The path and the token of the opening request.
    opened: (String, Option<String>),
}

/// A connection that an agent serves. Dropping it cuts the connection.
struct Served(JoinSet<()>);

// === impl Remote ===

impl Remote {
    async fn start() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    fn url(&self) -> String {
        format!("http://{}", self.0.local_addr().unwrap())
    }

    fn gateway(&self, token: &str) -> RemoteGateway {
        let url: GatewayUrl = self.url().parse().unwrap();
        RemoteGateway::new(url, TokenSource::Given(token.parse().unwrap())).unwrap()
    }

    async fn tcp(&self) -> TcpStream {
        soon("a connection", self.0.accept()).await.unwrap().0
    }

    #[expect(clippy::result_large_err, reason = "the library's signature")]
    async fn accept(&self) -> Peer {
        let socket = self.tcp().await;
        let mut opened = (String::new(), None);
        let note = |request: &Request, mut response: Response| {
            let token = request.headers().get("authorization");
            let token = token.map(|token| token.to_str().unwrap().to_owned());
            opened = (request.uri().path().to_owned(), token);
            response.headers_mut().insert("acp-connection-id", "c-1".parse().unwrap());
            Ok(response)
        };
        let socket = soon("a WebSocket", tokio_tungstenite::accept_hdr_async(socket, note)).await;
        Peer { socket: socket.unwrap(), opened }
    }

    /// Refuses an opening request with this response. Returns the head of the request.
    async fn refuse(&self, response: &str) -> String {
        let mut socket = self.tcp().await;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(soon("the head", socket.read_u8()).await.unwrap());
        }
        socket.write_all(response.as_bytes()).await.unwrap();
        socket.shutdown().await.unwrap();
        String::from_utf8(head).unwrap()
    }

    /// Accepts a connection for an agent of its own, as another replica does.
    async fn serve(&self, service: Arc<Service>) -> Served {
        let Peer { socket, .. } = self.accept().await;
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_socket(socket, service, usize::MAX));
        Served(tasks)
    }

    /// Serves each connection with an agent of its own. Cuts each of the first ones after as many
    /// frames as `cuts` says, and any when `cut` is notified.
    async fn serve_and_cut(&self, url: &str, cuts: &[usize], cut: &Notify) {
        let mut cuts = cuts.iter().copied();
        loop {
            let Peer { socket, .. } = self.accept().await;
            let service = Setup::default().service(url);
            tokio::select! {
                () = serve_socket(socket, service, cuts.next().unwrap_or(usize::MAX)) => {}
                () = cut.notified() => {}
            }
        }
    }
}

/// Serves a connection with an agent, for at most so many frames of the agent.
async fn serve_socket(
    socket: WebSocketStream<TcpStream>,
    service: Arc<Service>,
    max_frames: usize,
) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let outbox = Outbox::new();
    let authentication = Authentication::Caller {
        caller: Caller::default(),
        lists: SessionLists::Allowed,
        message_bytes: 10 * 1024 * 1024,
    };
    let connection = Connection::new(service, authentication, outbox.clone());
    let (reader, writer) = tokio::io::split(theirs);
    let shutdown = CancellationToken::new();
    let serving = stdio::serve(&connection, &outbox, reader, writer, &shutdown);
    tokio::select! {
        _ = serving => {}
        () = pump(socket, ours, max_frames) => {}
    }
}

/// Passes lines and frames between a socket and an agent, for at most so many frames of the agent.
async fn pump(
    mut socket: WebSocketStream<TcpStream>,
    agent: tokio::io::DuplexStream,
    max_frames: usize,
) {
    let (reader, mut writer) = tokio::io::split(agent);
    let mut lines = tokio::io::BufReader::new(reader).lines();
    let mut frames = 0;
    while frames < max_frames {
        tokio::select! {
            line = lines.next_line() => match line.unwrap() {
                Some(line) => {
                    socket.send(Message::text(line)).await.unwrap();
                    frames += 1;
                }
                None => return,
            },
            frame = socket.next() => match frame {
                Some(Ok(Message::Text(text))) => {
                    writer.write_all(format!("{text}\n").as_bytes()).await.unwrap();
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            },
        }
    }
}

// === impl Served ===

impl Served {
    /// Cuts the connection.
    async fn cut(mut self) {
        self.0.shutdown().await;
    }
}

// === impl Peer ===

impl Peer {
    /// The next message of the bridge.
    async fn next(&mut self) -> Value {
        loop {
            match soon("a frame", self.socket.next()).await {
                Some(Ok(Message::Text(text))) => return serde_json::from_str(&text).unwrap(),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                other => panic!("no frame: {other:?}"),
            }
        }
    }

    /// The next request, which must have this method.
    async fn asked(&mut self, method: &str) -> Value {
        let request = self.next().await;
        assert_eq!(request["method"], method, "{request}");
        request
    }

    async fn send(&mut self, message: &Value) {
        self.socket.send(Message::text(message.to_string())).await.unwrap();
    }

    async fn answer(&mut self, request: &Value, result: Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
    }

    async fn update(&mut self, update: Value) {
        let params = json!({"sessionId": SESSION, "update": update});
        self.send(&json!({"jsonrpc": "2.0", "method": "session/update", "params": params})).await;
    }

    async fn says(&mut self, message: &str, text: &str) {
        let content = json!({"type": "text", "text": text});
        self.update(json!({"sessionUpdate": "agent_message_chunk", "content": content,
            "messageId": message}))
            .await;
    }

    /// Waits until the bridge reads from this connection.
    async fn is_read(&mut self) {
        self.socket.send(Message::Ping(vec![7].into())).await.unwrap();
        let pong = soon("a pong", self.socket.next()).await.unwrap().unwrap();
        assert_eq!(pong, Message::Pong(vec![7].into()));
    }

    /// Answers `initialize`.
    async fn introduced(&mut self) -> Value {
        let request = self.asked("initialize").await;
        let meta = json!({"threadway": {"promptEnd": {}, "maxMessageBytes": MESSAGE_BYTES}});
        let capabilities = json!({"loadSession": true, "_meta": meta});
        let answer = json!({"protocolVersion": 1, "agentCapabilities": capabilities,
            "authMethods": [], "agentInfo": {"name": "threadway", "version": "0.0.0"}});
        self.answer(&request, answer).await;
        request
    }

    async fn closed(mut self) {
        loop {
            match soon("the end", self.socket.next()).await {
                Some(Ok(Message::Close(_))) | None => return,
                Some(Ok(_)) => {}
                Some(Err(error)) => panic!("{error}"),
            }
        }
    }
}

/// An editor that is initialised over a connection that the test serves.
async fn open() -> (Remote, Peer, Editor) {
    let remote = Remote::start().await;
    let mut editor = Editor::bridged(remote.gateway("t0k3n"));
    let id = editor.request("initialize", json!({"protocolVersion": 1})).await;
    let mut peer = remote.accept().await;
    peer.introduced().await;
    editor.until(id).await.result();
    (remote, peer, editor)
}

/// The same, with a session that the editor has made.
async fn open_session() -> (Remote, Peer, Editor) {
    let (remote, mut peer, mut editor) = open().await;
    let id = editor.request("session/new", json!({"cwd": CWD, "mcpServers": []})).await;
    let request = peer.asked("session/new").await;
    peer.answer(&request, json!({"sessionId": SESSION})).await;
    editor.until(id).await.result();
    (remote, peer, editor)
}

fn texts(updates: &[Value]) -> String {
    let texts = updates.iter().filter_map(|one| one["update"]["content"]["text"].as_str());
    texts.collect()
}

// === before an agent ===

#[tokio::test]
async fn a_prompt_goes_on_over_a_cut_on_another_replica() {
    let mut server = LangGraph::start().await;
    let remote = Remote::start().await;
    let mut editor = Editor::bridged(remote.gateway("t0k3n"));
    let id = editor.request("initialize", json!({"protocolVersion": 1})).await;
    let first = remote.serve(Setup::default().service(&server.url)).await;
    editor.until(id).await.result();
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "hi").await;
    let mut run = server.run().await;
    let human = run.said();
    let parts = parts(&[
        part("metadata", &json!({"run_id": run.id, "attempt": 1})),
        part("values", &json!({"messages": [human]})),
        token("a", "Hel"),
        token("a", "lo, "),
        token("a", "you"),
    ]);
    run.exchange.send(parts[..3].concat()).await;
    editor.until_said("Hel").await;
    first.cut().await;
    let _second = remote.serve(Setup::default().service(&server.url)).await;
    // The other replica joins the run, whose stream begins again.
    let mut joined = server.joined().await;
    joined.exchange.send(parts[..4].concat()).await;
    let mut seen = editor.until_said("lo, ").await;
    joined.exchange.send(&parts[4]).await;
    let messages = json!([human, {"type": "ai", "id": "a", "content": "Hello, you"}]);
    joined.ends_with(&messages).await;
    let told = editor.until(prompt).await;
    assert_eq!(told.stop_reason(), "end_turn");
    seen.extend(told.updates.iter().map(|one| one["update"].clone()));
    let said: Vec<_> = seen.iter().filter_map(|one| one["content"]["text"].as_str()).collect();
    assert_eq!(said.concat(), "lo, you");
    let started = server.asked(&format!("POST /threads/{session}/runs/stream"));
    assert_eq!(started.len(), 1, "the prompt ran once");
    editor.ended().await;
}

#[tokio::test]
async fn a_prompt_whose_run_ended_while_nobody_was_connected_ends() {
    for status in ["success", "error"] {
        let mut server = LangGraph::start().await;
        let remote = Remote::start().await;
        let mut editor = Editor::bridged(remote.gateway("t0k3n"));
        let id = editor.request("initialize", json!({"protocolVersion": 1})).await;
        let first = remote.serve(Setup::default().service(&server.url)).await;
        editor.until(id).await.result();
        let session = editor.session().await;
        let prompt = editor.prompt(&session, "hi").await;
        let mut run = server.run().await;
        let messages = json!([run.said(), {"type": "ai", "id": "a", "content": "done"}]);
        let parts = parts(&[
            part("metadata", &json!({"run_id": run.id, "attempt": 1})),
            part("values", &json!({"messages": [run.said()]})),
            token("a", "do"),
            part("values", &json!({"messages": messages})),
        ]);
        run.exchange.send(parts[..3].concat()).await;
        editor.until_said("do").await;
        first.cut().await;
        let mut left = state(&run.id, &messages, &json!([]));
        if status == "error" {
            left["tasks"] = json!([{"id": "t", "name": "n", "error": "ValueError('no')"}]);
        }
        run.ends(status, Some(left)).await;
        let _second = remote.serve(Setup::default().service(&server.url)).await;
        // LangGraph repeats the stream of a run that is over.
        let mut joined = server.joined().await;
        joined.exchange.send(parts.concat()).await;
        joined.exchange.end().await;
        let told = editor.until(prompt).await;
        let said = texts(&told.updates);
        // The agent notes a failed last run, as at every load.
        let (rest, noted) = said.split_at(2);
        assert_eq!(
            (rest, noted.is_empty()),
            ("ne", status == "success"),
            "{:?}",
            outline(&told.of(&session))
        );
        if status == "success" {
            assert_eq!(told.stop_reason(), "end_turn");
        } else {
            assert_eq!(told.error().0, -32603);
        }
        editor.ended().await;
    }
}

#[tokio::test]
async fn a_cancel_reaches_the_run_over_a_cut() {
    let mut server = LangGraph::start().await;
    let remote = Remote::start().await;
    let mut editor = Editor::bridged(remote.gateway("t0k3n"));
    let id = editor.request("initialize", json!({"protocolVersion": 1})).await;
    let first = remote.serve(Setup::default().service(&server.url)).await;
    editor.until(id).await.result();
    let session = editor.session().await;
    let prompt = editor.prompt(&session, "hi").await;
    let mut run = server.run().await;
    let human = run.said();
    let parts = parts(&[part("values", &json!({"messages": [human]})), token("a", "one")]);
    run.exchange.send(parts.concat()).await;
    editor.until_said("one").await;
    first.cut().await;
    editor.cancel(&session).await;
    let _second = remote.serve(Setup::default().service(&server.url)).await;
    let mut joined = server.joined().await;
    joined.exchange.send(parts.concat()).await;
    server.until("the cancel", |server| !server.cancelled().is_empty()).await;
    assert_eq!(server.cancelled(), [run.id.clone()]);
    joined.ends("interrupted", None).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "cancelled");
    editor.ended().await;
}

/// Parts of a stream with their ids in the server's store.
fn parts(parts: &[String]) -> Vec<String> {
    let numbered = parts.iter().enumerate();
    numbered.map(|(at, part)| format!("id: {}-0\r\n{part}", at + 1)).collect()
}

/// The messages at the end of a run of two model calls and a tool.
fn messages_of(human: &Value) -> Value {
    let call = json!({"id": "c1", "name": "read_file", "args": {"path": "/srv/app/a"}});
    json!([
        human,
        {"type": "ai", "id": "a", "content": "One two three.", "tool_calls": [call]},
        {"type": "tool", "id": "t", "tool_call_id": "c1", "name": "read_file", "content": "x"},
        {"type": "ai", "id": "b", "content": "Four five six seven."},
    ])
}

/// The stream of that run.
fn stream_of(run_id: &str, human: &Value) -> Vec<String> {
    let messages = messages_of(human);
    let values =
        |count: usize| part("values", &json!({"messages": messages.as_array().unwrap()[..count]}));
    let said = |id: &str, texts: &[&str]| -> Vec<String> {
        texts.iter().map(|text| token(id, text)).collect()
    };
    let first = [part("metadata", &json!({"run_id": run_id, "attempt": 1})), values(1)];
    let all = [
        first.to_vec(),
        said("a", &["One ", "two ", "three."]),
        vec![values(2), values(3)],
        said("b", &["Four ", "five ", "six ", "seven."]),
        vec![values(4)],
    ];
    parts(&all.concat())
}

/// How often the test below is run. `BRIDGE_CUTS=1000` runs it as often as a release needs.
const CUT_RUNS: u64 = 12;

/// Cuts the connections of a prompted session after some frames each, while the run is live or after
/// its end. Whatever was cut, the editor has each text and each call once.
#[tokio::test]
async fn wherever_the_bridge_is_cut_nothing_is_shown_twice_and_nothing_is_missing() {
    let number = |name: &str| std::env::var_os(name)?.to_str()?.parse::<u64>().ok();
    let seed = number("SEED").unwrap_or(7);
    println!("SEED={seed}");
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |limit: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % limit as u64).unwrap()
    };
    for trial in 0..number("BRIDGE_CUTS").unwrap_or(CUT_RUNS) {
        // Of a live run, the first connection is cut once some parts were sent. Otherwise each is cut
        // after some frames; the first one has at least a token, so that the run has begun.
        let live_parts = below(13);
        let is_live = live_parts % 2 == 1;
        let first = if is_live { usize::MAX } else { 4 + below(20) };
        let cuts = [first, 1 + below(16), 1 + below(16)];
        let cuts = &cuts[..=below(3)];
        let what = format!("trial {trial}: cuts {cuts:?}, {live_parts} parts of a live run");
        let cut = Notify::new();
        let mut server = LangGraph::start().await;
        let remote = Remote::start().await;
        let url = server.url.clone();
        let mut editor = Editor::bridged(remote.gateway("t0k3n"));
        let play = async {
            let id = editor.request("initialize", json!({"protocolVersion": 1})).await;
            editor.until(id).await.result();
            let session = editor.session().await;
            let prompt = editor.prompt(&session, "hi").await;
            editor.until(prompt).await
        };
        let upstream = async {
            let run = server.run().await;
            let (id, human) = (run.id.clone(), run.said());
            let stream = stream_of(&id, &human);
            let left = state(&id, &messages_of(&human), &json!([]));
            let mut exchange = run.exchange;
            if is_live {
                exchange.send(stream[..live_parts.min(stream.len())].concat()).await;
                cut.notify_one();
                exchange = server.joined().await.exchange;
            }
            exchange.send(stream.concat()).await;
            server.books().threads.values_mut().for_each(|thread| {
                thread.state = Some(left.clone());
                thread.runs.iter_mut().for_each(|run| run["status"] = json!("success"));
            });
            exchange.end().await;
            loop {
                let mut joined = server.joined().await;
                joined.exchange.send(stream.concat()).await;
                joined.exchange.end().await;
            }
        };
        let told = tokio::select! {
            told = play => told,
            () = remote.serve_and_cut(&url, cuts, &cut) => unreachable!(),
            () = upstream => unreachable!(),
        };
        assert_eq!(told.stop_reason(), "end_turn", "{what}");
        let mut said = std::collections::BTreeMap::<&str, String>::new();
        let mut calls = 0;
        for update in told.updates.iter().map(|params| &params["update"]) {
            calls += usize::from(update["sessionUpdate"] == "tool_call");
            if let Some(text) = update["content"]["text"].as_str() {
                *said.entry(update["messageId"].as_str().unwrap()).or_default() += text;
            }
        }
        let expected =
            [("a", "One two three.".to_owned()), ("b", "Four five six seven.".to_owned())];
        assert_eq!((said, calls), (expected.into(), 1), "{what}");
        editor.ended().await;
    }
}

// === before the test ===

#[tokio::test]
async fn a_message_that_the_gateway_would_not_take_is_refused_alone() {
    let (_remote, mut peer, mut editor) = open_session().await;
    let waiting = editor.prompt(SESSION, "hi").await;
    let prompt = peer.asked("session/prompt").await;
    for length in [MESSAGE_BYTES, MESSAGE_BYTES + 1, 10 * MESSAGE_BYTES] {
        let other = "22222222-2222-4222-8222-222222222222";
        let id = editor.prompt(other, &"x".repeat(length)).await;
        let (code, message) = editor.until(id).await.error();
        assert_eq!(code, -32602);
        assert!(message.contains("takes messages of up to 100000 bytes"), "{message}");
        let bytes: usize = message.split(' ').find_map(|word| word.parse().ok()).unwrap();
        assert!((length..length + 200).contains(&bytes), "{message}");
    }
    // The connection lasts, and with it the other prompt.
    peer.says("a", "hello").await;
    editor.until_said("hello").await;
    editor.cancel(SESSION).await;
    peer.asked("session/cancel").await;
    peer.answer(&prompt, json!({"stopReason": "cancelled"})).await;
    assert_eq!(editor.until(waiting).await.stop_reason(), "cancelled");
}

#[tokio::test]
async fn messages_pass_and_the_token_is_sent() {
    let (_remote, mut peer, mut editor) = open_session().await;
    assert_eq!(peer.opened, ("/acp".to_owned(), Some("Bearer t0k3n".to_owned())));
    let prompt = editor.prompt(SESSION, "hi").await;
    let asked = peer.asked("session/prompt").await;
    assert_eq!(asked["params"]["prompt"][0]["text"], "hi");
    peer.says("a", "Hello").await;
    peer.answer(&asked, json!({"stopReason": "end_turn"})).await;
    let told = editor.until(prompt).await;
    assert_eq!((&*texts(&told.updates), &*told.stop_reason()), ("Hello", "end_turn"));
    editor.hang_up().await;
    peer.closed().await;
    editor.ended().await;
}

#[tokio::test]
async fn a_permission_that_was_open_at_a_cut_is_asked_once() {
    let (remote, mut peer, mut editor) = open_session().await;
    let prompt = editor.prompt(SESSION, "hi").await;
    let asked = peer.asked("session/prompt").await;
    let prompt_id = asked["params"]["_meta"]["threadway"]["promptId"].clone();
    let permission = |id: u64| {
        let options = json!([{"optionId": "y", "name": "Allow", "kind": "allow_once"}]);
        let params =
            json!({"sessionId": SESSION, "toolCall": {"toolCallId": "c"}, "options": options});
        json!({"jsonrpc": "2.0", "id": id, "method": "session/request_permission",
            "params": params})
    };
    peer.send(&permission(1)).await;
    let (_, request) = editor.until_asked().await;
    drop(peer);
    let mut peer = remote.accept().await;
    // The gateway has not asked again yet.
    let outcome = json!({"outcome": {"outcome": "selected", "optionId": "y"}});
    editor.reply(&request, outcome.clone()).await;
    peer.introduced().await;
    let load = peer.asked("session/load").await;
    assert_eq!(load["params"], json!({"cwd": CWD, "mcpServers": [], "sessionId": SESSION}));
    peer.answer(&load, json!({})).await;
    let end = peer.asked("_threadway/prompt_end").await;
    assert_eq!(end["params"], json!({"sessionId": SESSION, "promptId": prompt_id}));
    peer.send(&permission(7)).await;
    let answer = peer.next().await;
    assert_eq!(answer, json!({"jsonrpc": "2.0", "id": 7, "result": outcome}));
    peer.answer(&end, json!({"stopReason": "end_turn"})).await;
    let told = editor.until(prompt).await;
    assert_eq!((told.requests, told.updates), (vec![], vec![]));
    editor.ended().await;
}

#[tokio::test]
async fn frames_that_are_no_messages_are_ignored() {
    let (_remote, mut peer, mut editor) = open_session().await;
    for frame in ["", "nonsense", "[]", "{}", "{\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{}}"] {
        peer.socket.send(Message::text(frame)).await.unwrap();
    }
    peer.socket.send(Message::binary(vec![0xff; 10])).await.unwrap();
    peer.socket.send(Message::Ping(vec![1].into())).await.unwrap();
    // A message over several lines is one line for the editor.
    let pretty = json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId":
        SESSION, "update": {"sessionUpdate": "agent_message_chunk", "messageId": "a",
        "content": {"type": "text", "text": "a\nb"}}}});
    let pretty = serde_json::to_string_pretty(&pretty).unwrap();
    peer.socket.send(Message::text(pretty)).await.unwrap();
    assert_eq!(editor.until_said("a\nb").await.len(), 1);
    let pong = soon("a pong", peer.socket.next()).await.unwrap().unwrap();
    assert_eq!(pong, Message::Pong(vec![1].into()));
    editor.ended().await;
}

#[tokio::test]
async fn a_frame_that_is_too_large_costs_the_connection_and_nothing_else() {
    let (remote, mut peer, mut editor) = open_session().await;
    let large = Message::text("x".repeat(65 * 1024 * 1024));
    // The bridge hangs up before it has read all of it.
    let _ = peer.socket.send(large).await;
    let mut peer = remote.accept().await;
    peer.introduced().await;
    let load = peer.asked("session/load").await;
    peer.answer(&load, json!({})).await;
    let prompt = editor.prompt(SESSION, "hi").await;
    let asked = peer.asked("session/prompt").await;
    peer.answer(&asked, json!({"stopReason": "end_turn"})).await;
    assert_eq!(editor.until(prompt).await.stop_reason(), "end_turn");
    editor.ended().await;
}

#[tokio::test]
async fn a_line_that_is_too_long_is_refused_here() {
    let (_remote, _peer, mut editor) = open().await;
    for _ in 0..33 {
        editor.raw(vec![b'x'; 1024 * 1024]).await;
    }
    let refused = editor.refused_line("").await;
    assert_eq!((refused.0, refused.1), (Value::Null, -32600), "{}", refused.2);
    editor.ended().await;
}

#[tokio::test]
async fn a_refused_token_is_reported_with_the_remedy() {
    for status in ["401 Unauthorized", "403 Forbidden"] {
        let remote = Remote::start().await;
        let mut editor = Editor::bridged(remote.gateway("t0k3n"));
        let body = r#"{"error":"unauthorized","message":"the token is unknown"}"#;
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n");
        remote.refuse(&format!("{head}{body}")).await;
        let (code, message) = editor.refused("initialize", json!({"protocolVersion": 1})).await;
        let url = remote.url();
        assert_eq!(code, -32000);
        let number = &status[..3];
        assert_eq!(
            message,
            format!(
                "{url} answered {number} (the token is unknown): run `threadway acp --gateway {url} \
                 --login` in a terminal, or set THREADWAY_GATEWAY_TOKEN to a token that it accepts"
            )
        );
        // The process goes on trying, and the next attempt is accepted.
        let mut peer = remote.accept().await;
        peer.is_read().await;
        let id = editor.request("initialize", json!({"protocolVersion": 1})).await;
        peer.introduced().await;
        editor.until(id).await.result();
        editor.ended().await;
    }
}

#[tokio::test]
async fn a_redirect_does_not_get_the_token() {
    let (remote, other) = (Remote::start().await, Remote::start().await);
    let mut editor = Editor::bridged(remote.gateway("t0k3n"));
    let location = format!("location: {}/acp\r\n", other.url());
    remote.refuse(&format!("HTTP/1.1 302 Found\r\n{location}content-length: 0\r\n\r\n")).await;
    let (code, message) = editor.refused("initialize", json!({"protocolVersion": 1})).await;
    assert!(code == -32603 && message.contains("redirects to another place"), "{message}");
    let mut peer = remote.accept().await;
    peer.is_read().await;
    let id = editor.request("initialize", json!({"protocolVersion": 1})).await;
    peer.introduced().await;
    editor.until(id).await.result();
    let nobody = futures_util::poll!(std::pin::pin!(other.0.accept()));
    assert!(nobody.is_pending(), "the other place was contacted");
    editor.ended().await;
}

#[tokio::test]
async fn a_busy_gateway_says_for_how_long() {
    for (head, retry_after) in [
        ("503 Service Unavailable\r\nretry-after: 12", Some(Duration::from_secs(12))),
        ("429 Too Many Requests\r\nretry-after: 3", Some(Duration::from_secs(3))),
        ("502 Bad Gateway", None),
    ] {
        let remote = Remote::start().await;
        let gateway = remote.gateway("t0k3n");
        let response = format!("HTTP/1.1 {head}\r\ncontent-length: 0\r\n\r\n");
        let (opened, head_of) = tokio::join!(gateway.probe(), remote.refuse(&response));
        let reason = format!("it answered {}", &head[..3]);
        assert_eq!(opened, Err(OpenError::Away { reason, retry_after }));
        assert!(head_of.starts_with("GET /acp HTTP/1.1\r\n"), "{head_of}");
    }
}

#[tokio::test]
async fn a_gateway_that_stays_silent_is_named_after_a_while() {
    let remote = Remote::start().await;
    let clock = HeldClock::pause();
    let mut editor = Editor::bridged(remote.gateway("t0k3n"));
    let id = editor.request("initialize", json!({"protocolVersion": 1})).await;
    let _silent = remote.tcp().await;
    clock.advance(PATIENCE).await;
    let (code, message) = editor.until(id).await.error();
    let url = remote.url();
    assert!(
        code == -32603 && message.starts_with(&format!("there is no connection to {url} (")),
        "{message}"
    );
    assert!(message.ends_with("correct --gateway (THREADWAY_GATEWAY); threadway keeps trying"));
    let refused = editor.refused("initialize", json!({"protocolVersion": 1})).await;
    assert_eq!(refused, (code, message));
    drop(clock);
    editor.ended().await;
}

// === the process ===

struct Process {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Process {
    fn start(args: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_threadway"))
            .arg("acp")
            .args(args)
            .env_clear()
            .env("XDG_CONFIG_HOME", "/nowhere")
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        tokio::task::block_in_place(|| self.stdout.read_line(&mut line)).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Closes stdin. Returns the exit code, and what is on stderr.
    fn end(mut self) -> (Option<i32>, String) {
        drop(self.child.stdin.take());
        let output = tokio::task::block_in_place(|| self.child.wait_with_output()).unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_survives_a_cut_and_ends_with_its_stdin() {
    let remote = Remote::start().await;
    let mut process =
        Process::start(&["--gateway", &remote.url()], &[("THREADWAY_GATEWAY_TOKEN", "t0k3n")]);
    process.send(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {"protocolVersion": 1}}));
    let mut peer = remote.accept().await;
    assert_eq!(peer.opened, ("/acp".to_owned(), Some("Bearer t0k3n".to_owned())));
    peer.introduced().await;
    assert_eq!(process.line()["result"]["protocolVersion"], 1);
    drop(peer);
    process.send(&json!({"jsonrpc": "2.0", "id": "l", "method": "session/list", "params": {}}));
    let mut peer = remote.accept().await;
    let introduction = peer.introduced().await;
    assert_eq!(introduction["id"], "threadway-bridge-1");
    let listed = peer.asked("session/list").await;
    peer.answer(&listed, json!({"sessions": []})).await;
    assert_eq!(process.line(), json!({"jsonrpc": "2.0", "id": "l", "result": {"sessions": []}}));
    let (code, stderr) = process.end();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("the connection is lost"), "{stderr}");
    assert!(!stderr.contains("t0k3n"), "{stderr}");
    peer.closed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_that_exclude_each_other_are_refused_and_a_flag_beats_the_environment() {
    let gateway = ["--gateway", "http://127.0.0.1:1"];
    for (flag, value, variable) in [
        ("--upstream", "http://127.0.0.1:2", "THREADWAY_UPSTREAM"),
        ("--config", "/nowhere.toml", "THREADWAY_CONFIG"),
        ("--agent", "a", "THREADWAY_AGENT"),
    ] {
        let (code, told) = Process::start(&[gateway[0], gateway[1], flag, value], &[]).end();
        assert_eq!(
            (code, &*told),
            (
                Some(64),
                &*format!(
                    "threadway: --gateway (THREADWAY_GATEWAY) and {flag} ({variable}) exclude each \
                     other: the gateway has its own; leave one out\n"
                )
            )
        );
        let (code, told) = Process::start(&gateway, &[(variable, value)]).end();
        assert_eq!(code, Some(0), "{told}");
    }
    let variable = [("THREADWAY_GATEWAY", "http://127.0.0.1:1")];
    let print = ["--print-config", "jetbrains"];
    let printed = |args: &[&str]| {
        let mut process = Process::start(args, &variable);
        let mut text = String::new();
        std::io::Read::read_to_string(&mut process.stdout, &mut text).unwrap();
        let settings: Value = serde_json::from_str(&text).unwrap();
        settings["agent_servers"]["threadway"]["args"].clone()
    };
    assert_eq!(printed(&print), json!(["acp", "--gateway", "http://127.0.0.1:1"]));
    let upstream = [print[0], print[1], "--upstream", "http://127.0.0.1:2"];
    assert_eq!(printed(&upstream), json!(["acp", "--upstream", "http://127.0.0.1:2"]));
    for (url, expected) in [
        ("ftp://s3cret", "expected a URL that begins with https://"),
        ("s3cret", "expected a URL that begins with https://"),
        ("wss://h/?token=s3cret", "expected a URL without user, password, query and fragment"),
        ("https://u:s3cret@h", "expected a URL without user, password, query and fragment"),
        ("https://u:s3cret@h:port", "expected an absolute URL"),
    ] {
        for (args, variable) in
            [(&["--gateway", url][..], &[][..]), (&[], &[("THREADWAY_GATEWAY", url)])]
        {
            let (code, told) = Process::start(args, variable).end();
            assert_eq!(code, Some(64));
            let expected = format!("--gateway (THREADWAY_GATEWAY): {expected}");
            assert!(told.contains(&expected) && !told.contains("s3cret"), "{told}");
        }
    }
    let (code, told) = Process::start(&["--gateway", "http://127.0.0.1:1", "--login"], &[]).end();
    assert_eq!(code, Some(64));
    assert!(told.contains("set THREADWAY_GATEWAY_TOKEN"), "{told}");
}
