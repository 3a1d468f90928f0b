//! ACP over streamable HTTP: conversations, streams, refusals, and what other callers get.

use std::net::SocketAddr;
use std::time::Duration;

use super::acp::{ALICE, BEARER, BOB, Front, LOADED, PAGE, conversation, question, saved};
use super::acp::{selected, tenants, whole};
use super::credentials::{guarded, key_of, tokens_of};
use crate::support::clock::HeldClock;
use crate::support::editor::{CWD, Frames, outline};
use crate::support::gateway::Response;
use crate::support::issuer::{AUDIENCE, Signer, from_now};
use crate::support::langgraph::{Run, soon};
use serde_json::{Value, json};
use threadway::server::{ACP_UNREAD, Cors, Credentials, KEEP_ALIVE, Settings, ThreadRoutePolicy};
use threadway::sessions::{MAX_UNCONFIRMED_STREAMS, MAX_WAITING_BYTES, STALL};

const NOBODY: &str = "22222222-2222-4222-8222-222222222222";

type Header<'a> = (&'a str, &'a str);

/// A client of one connection.
pub(super) struct Client {
    address: SocketAddr,
    id: String,
    /// The credentials of each request.
    pub(super) headers: Vec<(String, String)>,
    frames: Frames,
    last: u64,
}

/// The response to a request: its status, its head and its body.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

async fn send(address: SocketAddr, line: &str, headers: &[Header<'_>], body: &str) -> Response {
    let headers = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
    let (headers, length) = (headers.collect::<String>(), body.len());
    let request = format!(
        "{line} HTTP/1.1\r\nhost: {address}\r\n{headers}content-length: {length}\r\n\r\n{body}"
    );
    Response::to(address, request.as_bytes()).await
}

async fn answer(address: SocketAddr, line: &str, headers: &[Header<'_>], body: &str) -> Answer {
    let mut response = send(address, line, headers, body).await;
    let status = response.head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = response.body().await;
    Answer { status, head: response.head.clone(), body }
}

/// A request that must be refused: its method, headers and body; the status and the code.
type Refused<'a> = (&'a str, Vec<Header<'a>>, &'a str, (u16, &'a str));

async fn refuses(address: SocketAddr, requests: &[Refused<'_>]) {
    for (method, headers, body, (status, code)) in requests {
        let refused = answer(address, &format!("{method} /acp"), headers, body).await;
        assert_eq!(refused.refusal(), (*status, (*code).to_owned()), "{method} {headers:?}");
    }
}

const JSON: Header<'static> = ("content-type", "application/json");
const EVENTS: Header<'static> = ("accept", "text/event-stream");

fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {"protocolVersion": 1, "clientCapabilities": {}}})
}

fn id_in(head: &str) -> Option<String> {
    head.lines().find_map(|line| line.strip_prefix("acp-connection-id: ")).map(str::to_owned)
}

// === impl Answer ===

impl Answer {
    /// The code of a refusal by the gateway, or of a JSON-RPC error.
    fn code(&self) -> String {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        let error = &body["error"];
        error.as_str().map_or_else(|| error["code"].to_string(), str::to_owned)
    }

    fn refusal(&self) -> (u16, String) {
        (self.status, self.code())
    }
}

// === impl Client ===

impl Client {
    pub(super) async fn connect(address: SocketAddr, credentials: &[Header<'_>]) -> Self {
        let mut frames = Frames::default();
        frames.sends(&initialize());
        let headers: Vec<_> = [JSON].iter().chain(credentials).copied().collect();
        let opened = answer(address, "POST /acp", &headers, &initialize().to_string()).await;
        assert_eq!(opened.status, 200, "{opened:?}");
        let initialized = frames.comes(&opened.body);
        assert_eq!(initialized["result"]["authMethods"], json!([]));
        let id = id_in(&opened.head).expect("no acp-connection-id");
        assert_eq!(uuid::Uuid::try_parse(&id).unwrap().get_version_num(), 4);
        let owned = |(name, value): &Header<'_>| ((*name).to_owned(), (*value).to_owned());
        let headers = credentials.iter().map(owned).collect();
        Self { address, id, headers, frames, last: 0 }
    }

    fn headers<'a>(&'a self, more: &[Header<'a>]) -> Vec<Header<'a>> {
        let own = self.headers.iter().map(|(name, value)| (&**name, &**value));
        own.chain([("acp-connection-id", &*self.id)]).chain(more.iter().copied()).collect()
    }

    /// Sends a message, which the gateway must take.
    async fn post(&mut self, message: &Value) {
        self.frames.sends(message);
        let session = message["params"]["sessionId"].as_str().map(str::to_owned);
        let mut headers = self.headers(&[JSON]);
        headers.extend(session.as_deref().map(|id| ("acp-session-id", id)));
        let taken = answer(self.address, "POST /acp", &headers, &message.to_string()).await;
        assert_eq!((taken.status, &*taken.body), (202, ""), "{taken:?}");
    }

    /// Sends a request and returns its id.
    async fn request(&mut self, method: &str, params: Value) -> u64 {
        self.last += 1;
        let id = self.last;
        self.post(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        id
    }

    async fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.request("session/prompt", json!({"sessionId": session, "prompt": prompt})).await
    }

    async fn load(&mut self, session: &str) -> u64 {
        let params = json!({"sessionId": session, "cwd": CWD, "mcpServers": []});
        self.request("session/load", params).await
    }

    async fn get(&self, session: Option<&str>) -> Response {
        let mut headers = self.headers(&[EVENTS]);
        headers.extend(session.map(|id| ("acp-session-id", id)));
        send(self.address, "GET /acp", &headers, "").await
    }

    /// Opens a stream: of the connection, or of a session.
    pub(super) async fn stream(&self, session: Option<&str>) -> Response {
        let response = self.get(session).await;
        assert!(response.head.starts_with("HTTP/1.1 200 "), "{}", response.head);
        assert!(response.head.contains("content-type: text/event-stream\r\n"), "{}", response.head);
        response
    }

    /// The next message of a stream, checked.
    async fn next(&mut self, stream: &mut Response) -> Value {
        loop {
            let frame = soon("a message", stream.frame()).await;
            assert_ne!(frame, "", "the stream has ended");
            if !frame.starts_with(':') {
                let data = frame.strip_prefix("data: ").and_then(|data| data.strip_suffix("\n\n"));
                return self.frames.comes(&format!("{}\n", data.expect("bare data")));
            }
        }
    }

    /// The messages of a stream up to the response to this request, and that response.
    async fn until(&mut self, stream: &mut Response, id: u64) -> (Vec<Value>, Value) {
        let mut updates = Vec::new();
        loop {
            let message = self.next(stream).await;
            if message.get("method").is_none() {
                assert_eq!(message["id"], id, "{message}");
                return (updates, message);
            }
            updates.push(message["params"]["update"].clone());
        }
    }

    pub(super) async fn session(&mut self, stream: &mut Response) -> String {
        let id = self.request("session/new", json!({"cwd": CWD, "mcpServers": []})).await;
        let (_, made) = self.until(stream, id).await;
        made["result"]["sessionId"].as_str().unwrap().to_owned()
    }
}

/// A gateway, a client, the stream of its connection, and its session.
async fn opened() -> (Front, Client, Response, String) {
    let front = Front::start().await;
    let mut client = Client::connect(front.address, &[]).await;
    let mut connection = client.stream(None).await;
    let session = client.session(&mut connection).await;
    (front, client, connection, session)
}

/// The same, and a prompt whose run has sent its first text on the session's stream.
async fn begun() -> (Front, Client, Response, Response, Run) {
    let (mut front, mut client, connection, session) = opened().await;
    let mut own = client.stream(Some(&session)).await;
    client.prompt(&session, "hi").await;
    let mut run = front.server.run().await;
    run.says("a", "one").await;
    while client.next(&mut own).await["params"]["update"]["content"]["text"] != "one" {}
    (front, client, connection, own, run)
}

// === conversations ===

#[tokio::test]
async fn session_on_streams_is_made_prompted_approved_and_loaded() {
    let (mut front, mut client, _connection, session) = opened().await;
    let mut own = client.stream(Some(&session)).await;
    let prompt = client.prompt(&session, "write it").await;
    let mut run = front.server.run().await;
    run.calls("m", "c", "write", &json!({"path": "/srv/app/a.txt", "text": "a"})).await;
    let (messages, questions) = question();
    run.asks(&messages, &questions).await;
    let request = loop {
        let message = client.next(&mut own).await;
        if message["method"] == "session/request_permission" {
            break message;
        }
    };
    let reply = json!({"jsonrpc": "2.0", "id": request["id"], "result": selected("allow")});
    client.post(&reply).await;
    let mut run = front.server.run().await;
    run.says("b", "written").await;
    run.ends("success", Some(conversation())).await;
    let (updates, response) = client.until(&mut own, prompt).await;
    assert_eq!(response["result"]["stopReason"], "end_turn");
    assert!(outline(&updates).contains(&"agent_message_chunk b written".to_owned()));

    let prompt = client.prompt(&session, "again").await;
    let mut run = front.server.run().await;
    run.says("d", "so").await;
    let cancel =
        json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}});
    client.post(&cancel).await;
    front.server.until("the cancel", |server| server.cancelled() == [run.id.clone()]).await;
    run.ends("interrupted", Some(conversation())).await;
    let (_, response) = client.until(&mut own, prompt).await;
    assert_eq!(response["result"]["stopReason"], "cancelled");

    // The TypeScript SDK reads the session's stream before it loads the session.
    let mut other = Client::connect(front.address, &[]).await;
    let mut own = other.stream(Some(&session)).await;
    let load = other.load(&session).await;
    let (updates, response) = other.until(&mut own, load).await;
    assert!(response.get("result").is_some(), "{response}");
    assert_eq!(outline(&updates), ["user_message_chunk h1 hi", "agent_message_chunk a1 there"]);
}

#[tokio::test]
async fn messages_before_a_stream_is_read_are_kept() {
    let front = Front::start().await;
    front.server.thread(LOADED, saved(None), Some(conversation()));
    let mut client = Client::connect(front.address, &[]).await;
    // The Python SDK reads a session's stream once the session is loaded.
    let load = client.load(LOADED).await;
    let unknown = client.load(NOBODY).await;
    let mut connection = client.stream(None).await;
    let (first, second) = (client.next(&mut connection).await, client.next(&mut connection).await);
    let answers = if first["id"] == load { [first, second] } else { [second, first] };
    assert!(answers[0].get("result").is_some(), "{answers:?}");
    assert_eq!(
        (&answers[1]["id"], &answers[1]["error"]["code"]),
        (&json!(unknown), &json!(-32002))
    );
    let mut own = client.stream(Some(LOADED)).await;
    let updates = [client.next(&mut own).await, client.next(&mut own).await];
    let updates = updates.map(|message| message["params"]["update"].clone());
    assert_eq!(outline(&updates), ["user_message_chunk h1 hi", "agent_message_chunk a1 there"]);
    // Closed, it has no stream of its own any more.
    let close = client.request("session/close", json!({"sessionId": LOADED})).await;
    assert!(client.until(&mut own, close).await.1.get("result").is_some());
    let prompt = client.prompt(NOBODY, "hi").await;
    assert_eq!(client.until(&mut connection, prompt).await.1["error"]["code"], -32002);
}

#[tokio::test]
async fn stream_that_nobody_reads_holds_up_no_other_session_and_loses_nothing() {
    const TOKEN: usize = 8 * 1024;
    const TOKENS: usize = 64;
    const { assert!(TOKENS * TOKEN > MAX_WAITING_BYTES) };
    let mut front = Front::start().await;
    let mut client = Client::connect(front.address, &[]).await;
    let mut connection = client.stream(None).await;
    let (unread, read) =
        (client.session(&mut connection).await, client.session(&mut connection).await);
    client.prompt(&unread, "hi").await;
    let mut run = front.server.run().await;
    for _ in 0..TOKENS {
        run.says("a", &"x".repeat(TOKEN)).await;
    }
    let mut own = client.stream(Some(&read)).await;
    let prompt = client.prompt(&read, "hi").await;
    let mut other = front.server.run().await;
    other.says("b", "there").await;
    other.ends("success", None).await;
    assert_eq!(client.until(&mut own, prompt).await.1["result"]["stopReason"], "end_turn");
    // Then the stream is read after all: it held a part, and the rest comes.
    let mut late = client.stream(Some(&unread)).await;
    let mut said = 0;
    while said < TOKENS * TOKEN {
        let message = client.next(&mut late).await;
        let text = message["params"]["update"]["content"]["text"].as_str();
        said += text.unwrap_or_default().len();
    }
    assert_eq!(said, TOKENS * TOKEN);
}

#[tokio::test]
async fn stream_that_stays_full_for_two_minutes_ends_the_connection() {
    let (mut front, mut client, mut connection, session) = opened().await;
    client.prompt(&session, "hi").await;
    let mut run = front.server.run().await;
    let text = "x".repeat(8 * 1024);
    for _ in 0..100 {
        run.says("a", &text).await;
    }
    let clock = HeldClock::pause();
    let mut passed = Duration::ZERO;
    let ended = loop {
        tokio::select! {
            biased;
            frame = connection.frame() => {
                if !frame.starts_with(':') {
                    break frame;
                }
            }
            () = clock.advance(Duration::from_secs(1)) => passed += Duration::from_secs(1),
        }
    };
    assert_eq!(ended, "");
    assert!(passed.abs_diff(STALL) < KEEP_ALIVE * 2, "{passed:?}");
    assert!(front.server.cancelled().is_empty());
}

// === refusals ===

#[tokio::test]
async fn request_that_is_wrong_gets_the_status_that_the_sdks_expect() {
    let front = Front::start().await;
    let client = Client::connect(front.address, &[]).await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "session/list"}).to_string();
    let load = json!({"jsonrpc": "2.0", "id": 1, "method": "session/load",
        "params": {"sessionId": LOADED, "cwd": CWD, "mcpServers": []}})
    .to_string();
    let connection = ("acp-connection-id", &*client.id);
    let unknown = ("acp-connection-id", NOBODY);
    let other_session = ("acp-session-id", NOBODY);
    let batch = format!("[{list}]");
    let rows = [
        ("POST", vec![connection], &*list, (415, "not_json")),
        ("POST", vec![connection, ("content-type", "text/plain")], &list, (415, "not_json")),
        ("POST", vec![JSON], &list, (400, "invalid_request")),
        ("POST", vec![JSON, unknown], &list, (404, "unknown_connection")),
        ("POST", vec![JSON, connection], &batch, (400, "-32600")),
        ("POST", vec![JSON, connection], "nonsense", (400, "-32700")),
        ("POST", vec![JSON, connection], "7", (400, "-32600")),
        ("POST", vec![JSON, connection], &initialize().to_string(), (400, "invalid_request")),
        ("POST", vec![JSON, connection, other_session], &load, (400, "invalid_request")),
        ("POST", vec![JSON, connection, connection], &list, (400, "invalid_request")),
        ("GET", vec![connection], "", (406, "not_acceptable")),
        ("GET", vec![connection, ("accept", "application/json")], "", (406, "not_acceptable")),
        ("GET", vec![connection, ("accept", "*/*")], "", (406, "not_acceptable")),
        ("GET", vec![connection, ("accept", "text/*;q=0.5")], "", (406, "not_acceptable")),
        ("GET", vec![connection, ("accept", "text/event-stream;q=0")], "", (406, "not_acceptable")),
        ("GET", vec![EVENTS], "", (400, "invalid_request")),
        ("GET", vec![EVENTS, unknown], "", (404, "unknown_connection")),
        ("DELETE", vec![], "", (400, "invalid_request")),
        ("DELETE", vec![unknown], "", (404, "unknown_connection")),
    ];
    refuses(front.address, &rows).await;
    // A refused `initialize` leaves no connection.
    let wrong =
        json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}).to_string();
    let refused = answer(front.address, "POST /acp", &[JSON], &wrong).await;
    assert_eq!((refused.refusal(), id_in(&refused.head)), ((400, "-32602".to_owned()), None));
}

#[tokio::test]
async fn stream_has_one_reader_and_few_are_read_before_they_are_loaded() {
    let front = Front::start().await;
    let mut client = Client::connect(front.address, &[]).await;
    let connection = client.stream(None).await;
    let again = client.headers(&[EVENTS]);
    refuses(front.address, &[("GET", again, "", (409, "stream_taken"))]).await;
    drop(connection);
    // The gateway notices the end of the first reader a little later.
    let mut connection = loop {
        let again = client.get(None).await;
        if again.head.starts_with("HTTP/1.1 200 ") {
            break again;
        }
    };
    let mut streams = Vec::new();
    for at in 0..MAX_UNCONFIRMED_STREAMS {
        let id = format!("22222222-2222-4222-8222-{at:012}");
        streams.push(client.stream(Some(&id)).await);
    }
    let refused = client.get(Some(NOBODY)).await;
    assert!(refused.head.starts_with("HTTP/1.1 429 "), "{}", refused.head);
    let session = client.session(&mut connection).await;
    client.stream(Some(&session)).await;
    let long = "x".repeat(65);
    assert!(client.get(Some(&long)).await.head.starts_with("HTTP/1.1 404 "));
}

#[tokio::test]
async fn connection_of_another_caller_is_unknown() {
    let front = tenants(ThreadRoutePolicy::All).await;
    let (nobody, body) = (vec![JSON, ("x-api-key", "nobody")], initialize().to_string());
    refuses(front.address, &[("POST", nobody, &body, (401, "unauthorized"))]).await;
    let mut alice = Client::connect(front.address, &[ALICE]).await;
    let mut own = alice.stream(Some(LOADED)).await;
    let load = alice.load(LOADED).await;
    alice.until(&mut own, load).await;
    let prompt = json!({"jsonrpc": "2.0", "id": 9, "method": "session/prompt",
        "params": {"sessionId": LOADED, "prompt": [{"type": "text", "text": "hi"}]}})
    .to_string();
    for (line, headers, body) in [
        ("POST", vec![BOB, JSON], &*prompt),
        ("GET", vec![BOB, EVENTS], ""),
        ("GET", vec![BOB, EVENTS, ("acp-session-id", LOADED)], ""),
        ("DELETE", vec![BOB], ""),
    ] {
        let line = format!("{line} /acp");
        let with =
            |id| headers.iter().copied().chain([("acp-connection-id", id)]).collect::<Vec<_>>();
        let of_alice = answer(front.address, &line, &with(&alice.id), body).await;
        let of_nobody = answer(front.address, &line, &with(NOBODY), body).await;
        assert_eq!(of_alice.refusal(), (404, "unknown_connection".to_owned()));
        assert_eq!(of_alice, of_nobody, "{line}");
    }
    // Her connection goes on, and bob has started nothing.
    alice.request("session/list", json!({})).await;
    let mut connection = alice.stream(None).await;
    let listed = alice.next(&mut connection).await;
    assert_eq!(listed["result"]["sessions"].as_array().unwrap().len(), 1);
    assert!(front.server.asked(&format!("POST /threads/{LOADED}/runs")).is_empty());
}

#[tokio::test]
async fn request_is_authenticated_each_time_and_foreign_pages_are_refused() {
    let cors = Cors::new([PAGE], Credentials::Omitted).unwrap();
    let front = Front::with(Settings { auth: key_of("a"), cors, ..Settings::default() }).await;
    let body = initialize().to_string();
    let client = Client::connect(front.address, &[BEARER, ("origin", PAGE)]).await;
    let foreign = vec![JSON, BEARER, ("origin", "http://localhost:3000")];
    let without = vec![EVENTS, ("acp-connection-id", &*client.id)];
    let rows = [
        ("POST", vec![JSON], &*body, (401, "unauthenticated")),
        ("POST", foreign, &body, (403, "cross_origin")),
        ("GET", without, "", (401, "unauthenticated")),
    ];
    refuses(front.address, &rows).await;
    let preflight = answer(
        front.address,
        "OPTIONS /acp",
        &[
            ("origin", PAGE),
            ("access-control-request-method", "DELETE"),
            ("access-control-request-headers", "acp-connection-id,acp-session-id"),
        ],
        "",
    )
    .await;
    assert!(preflight.head.contains("acp-session-id"), "{}", preflight.head);
    let opened = answer(front.address, "POST /acp", &[JSON, BEARER, ("origin", PAGE)], &body).await;
    let exposed =
        opened.head.lines().find(|line| line.starts_with("access-control-expose-headers"));
    assert!(exposed.unwrap().contains("acp-connection-id"), "{}", opened.head);
}

#[tokio::test]
async fn token_that_is_renewed_is_the_same_callers_and_is_forwarded() {
    let signer = Signer::ed25519("a");
    let mut front = Front::with(guarded(tokens_of(&[&signer], &[AUDIENCE]))).await;
    let token = |changes: &[(&str, Value)]| format!("Bearer {}", signer.token(changes));
    let first = token(&[]);
    let mut client = Client::connect(front.address, &[("authorization", &first)]).await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "session/list"}).to_string();
    let (expired, bobs) = (token(&[("exp", from_now(-70))]), token(&[("sub", json!("bob"))]));
    for (token, expected) in
        [(expired, (401, "token_expired")), (bobs, (404, "unknown_connection"))]
    {
        let headers = vec![JSON, ("acp-connection-id", &*client.id), ("authorization", &*token)];
        refuses(front.address, &[("POST", headers, &list, expected)]).await;
    }
    let renewed = token(&[("exp", from_now(3_600))]);
    assert_ne!(renewed, first);
    client.headers = vec![("authorization".to_owned(), renewed.clone())];
    let mut connection = client.stream(None).await;
    let session = client.session(&mut connection).await;
    client.prompt(&session, "hi").await;
    let run = front.server.run().await;
    let head = &run.exchange.head;
    assert!(head.contains(&format!("authorization: {renewed}\r\n")), "{head}");
    run.ends("success", None).await;
}

// === the end of a connection ===

#[tokio::test]
async fn connection_that_is_deleted_ends_its_streams_and_not_its_runs() {
    let (front, client, mut connection, mut own, run) = begun().await;
    let deleted = answer(front.address, "DELETE /acp", &client.headers(&[]), "").await;
    assert_eq!((deleted.status, &*deleted.body), (202, ""));
    assert_eq!(soon("the end", connection.body()).await, "");
    soon("the end", own.body()).await;
    loop {
        let again = answer(front.address, "DELETE /acp", &client.headers(&[]), "").await;
        if again.status == 404 {
            break;
        }
    }
    assert!(front.server.cancelled().is_empty());
    run.ends("success", None).await;
}

#[tokio::test]
async fn stream_that_is_silent_has_comments_and_an_unread_connection_ends() {
    let front = Front::start().await;
    let read = Client::connect(front.address, &[]).await;
    let unread = Client::connect(front.address, &[]).await;
    let mut connection = read.stream(None).await;
    let clock = HeldClock::pause();
    let mut comments = Vec::new();
    let mut passed = Duration::ZERO;
    while passed < ACP_UNREAD + KEEP_ALIVE {
        tokio::select! {
            biased;
            frame = connection.frame() => comments.push(frame),
            () = clock.advance(Duration::from_secs(1)) => passed += Duration::from_secs(1),
        }
    }
    assert!(comments.iter().all(|comment| comment == ": \n\n"), "{comments:?}");
    assert!(comments.len() >= 7, "{} comments", comments.len());
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "session/list"}).to_string();
    let gone = unread.headers(&[JSON]);
    refuses(front.address, &[("POST", gone, &list, (404, "unknown_connection"))]).await;
    let kept = answer(front.address, "POST /acp", &read.headers(&[JSON]), &list).await;
    assert_eq!(kept.status, 202);
}

#[tokio::test]
async fn shutdown_ends_each_stream() {
    let (mut front, _client, mut connection, mut own, _run) = begun().await;
    front.stop.cancel();
    assert_eq!(soon("the end", connection.body()).await, "");
    assert_eq!(soon("the end", own.body()).await, "");
    soon("the end", async { while front.serving.join_next().await.is_some() {} }).await;
    assert!(front.server.cancelled().is_empty());
}

// === metrics ===

#[tokio::test]
async fn metrics_count_connections_sessions_prompts_and_updates_over_http() {
    let mut front = Front::start().await;
    let metrics = front.metrics.clone();
    let is = |name: &str, labels: &str| {
        whole(&metrics, &format!(r#"{name}{{transport="http"{labels}}}"#))
    };
    let mut client = Client::connect(front.address, &[]).await;
    let mut stream = client.stream(None).await;
    let session = client.session(&mut stream).await;
    let mut of_session = client.stream(Some(&session)).await;
    assert_eq!((is("acp_open_connections", ""), is("acp_open_sessions", "")), (1, 1));
    let prompt = client.prompt(&session, "hi").await;
    let mut run = front.server.run().await;
    assert_eq!(is("acp_active_prompts", ""), 1);
    run.says("a", "one").await;
    run.ends("success", None).await;
    let (updates, _) = client.until(&mut of_session, prompt).await;
    assert_eq!(is("acp_updates_total", ""), updates.len());
    assert_eq!(is("acp_prompts_ended_total", r#",outcome="end_turn""#), 1);

    client.prompt(&session, "leave").await;
    let _run = front.server.run().await;
    let headers = client.headers(&[]);
    assert_eq!(answer(front.address, "DELETE /acp", &headers, "").await.status, 202);
    drop((stream, of_session));
    soon("the end", async {
        while is("acp_open_connections", "") + is("acp_open_sessions", "") > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(is("acp_prompts_ended_total", r#",outcome="left""#), 1);
    assert_eq!(is("acp_active_prompts", ""), 0);
}
