//! Which callers and pages may open a WebSocket, and how many requests it may carry.

use std::num::{NonZeroU32, NonZeroUsize};

use super::credentials::{KEY, OTHER_KEY, guarded, key_of, keys};
use super::front::Front;
use crate::support::gateway::{agents, input, serve_as};
use crate::support::socket::{self, Socket};
use crate::support::upstream::{Exchange, Upstream};
use futures_util::StreamExt;
use serde_json::{Value, json};
use threadway::server::Credentials;
use threadway::server::{Auth, Cors, ForwardedHeaders, Rates, RequestRate, Settings, UpstreamAuth};
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::tungstenite::Message;

const PATH: &str = "/agui/agent/agent/run";
const PAGE: (&str, &str) = ("origin", "https://chat.example.com");
const PROTOCOL: &str = "sec-websocket-protocol";

// === impl Front ===

impl Front {
    async fn open(&self, headers: &[(&'static str, &str)]) -> Result<Socket, (u16, Value)> {
        Socket::with(self.address, PATH, headers).await
    }

    /// Opens a socket while LangGraph answers as it does to everybody.
    async fn opened(&self, path: &str, headers: &[(&'static str, &str)]) -> Socket {
        self.answering(Socket::with(self.address, path, headers)).await.unwrap()
    }

    /// Opens a socket, which must be refused before any upstream request.
    async fn refuses(&self, headers: &[(&'static str, &str)]) -> (u16, String) {
        let (status, body) = self.open(headers).await.err().expect("the socket is open");
        self.upstream.is_untouched().await;
        (status, body["error"].as_str().unwrap_or_default().to_owned())
    }

    /// Plays the beginning of a turn, and returns the upstream request that started its run.
    async fn turn(&self, socket: &mut Socket) -> (Exchange, String) {
        socket.send(&input(&["hi"])).await;
        let run = self.begins().await;
        let head = run.head.clone();
        assert_eq!(socket.event().await.1["type"], "RUN_STARTED");
        (run, head)
    }
}

fn refused(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

#[tokio::test]
async fn socket_opens_with_a_key_in_its_header_or_among_its_subprotocols() {
    let front = Front::guarded(key_of("a")).await;
    let header = format!("Bearer {KEY}");
    let offered = format!("threadway.chunks, threadway.bearer.{KEY}");
    let wrong = "threadway.chunks, threadway.bearer.0000000000000000";
    assert_eq!(front.refuses(&[]).await, refused(401, "unauthenticated"));
    assert_eq!(front.refuses(&[(PROTOCOL, wrong)]).await, refused(401, "invalid_token"));
    // It would be unclear which of the two counts.
    let both = [("authorization", &*header), (PROTOCOL, &offered)];
    assert_eq!(front.refuses(&both).await, refused(400, "invalid_request"));
    // URLs end up in logs.
    let in_query = Socket::with(front.address, &format!("{PATH}?access_token={KEY}"), &[]).await;
    assert_eq!(in_query.err().unwrap().0, 401);
    // A run that is cut is joined again, possibly before the next turn.
    let mut runs = Vec::new();
    for headers in [("authorization", &*header), (PROTOCOL, &offered)] {
        let mut socket = front.open(&[headers]).await.unwrap();
        // The gateway does not repeat the key.
        assert!(socket.protocol.as_deref().is_none_or(|chosen| chosen == "threadway.chunks"));
        let (run, head) = front.turn(&mut socket).await;
        runs.push(run);
        assert!(!head.contains(KEY), "{head}");
    }
}

#[tokio::test]
async fn token_for_langgraph_goes_up_with_each_turn() {
    let auth = Auth::Upstream(UpstreamAuth::default());
    let front = Front::guarded(auth).await;
    assert_eq!(front.refuses(&[]).await, refused(401, "unauthenticated"));
    // A frame is read before LangGraph sees its turn, so LangGraph accepts the credentials first.
    let token = [(PROTOCOL, "threadway.chunks,threadway.bearer.mine")];
    let accepts = async {
        front.upstream.expect("POST /threads/search").await.json(200, "[]").await;
    };
    let (socket, ()) = tokio::join!(front.open(&token), accepts);
    let mut socket = socket.unwrap();
    let (_run, head) = front.turn(&mut socket).await;
    assert!(head.contains("\r\nauthorization: Bearer mine\r\n"), "{head}");
    assert!(!head.contains("sec-websocket"), "{head}");
}

#[tokio::test]
async fn key_that_is_taken_back_begins_no_turn_more() {
    let front = Front::guarded(key_of("a")).await;
    let header = format!("Bearer {KEY}");
    let mut socket = front.open(&[("authorization", &header)]).await.unwrap();
    let (_run, _) = front.turn(&mut socket).await;
    let auth = keys(&format!("b={OTHER_KEY}"));
    front.reload(guarded(auth));
    let mut socket_of_b =
        front.open(&[("authorization", &format!("Bearer {OTHER_KEY}"))]).await.unwrap();
    let (_other, _) = front.turn(&mut socket_of_b).await;
    socket.send(&json!({"type": "abort", "runId": "r1"})).await;
    assert_eq!(socket.event().await.1["value"]["error"], "invalid_token");
    front.upstream.is_untouched().await;
}

#[tokio::test]
async fn pages_of_other_origins_are_refused_as_they_are_for_a_post() {
    const FOREIGN: (&str, &str) = ("origin", "https://evil.example.com");
    const TOKEN: (&str, &str) = (PROTOCOL, "threadway.chunks, threadway.bearer.token");
    /// The origin of the gateway itself.
    const OWN: (&str, &str) = ("origin", "own");
    let listed = |credentials| Cors::new([PAGE.1], credentials).unwrap();
    let mut forward = ForwardedHeaders::default();
    forward.allow("x-user").unwrap();
    let (cookie, key, basic) =
        (("cookie", "session=1"), ("x-api-key", "k"), ("authorization", "Basic x"));
    for (cors, welcome, refused_too) in [
        (
            Cors::Off,
            vec![vec![OWN]],
            vec![
                vec![PAGE],
                vec![FOREIGN],
                vec![("origin", "null")],
                vec![("sec-fetch-site", "cross-site")],
            ],
        ),
        // A browser adds cookies to any WebSocket, and a proxy adds the user's identity.
        (
            listed(Credentials::Omitted),
            vec![
                vec![PAGE],
                vec![PAGE, TOKEN],
                vec![OWN, cookie],
                vec![cookie],
                vec![OWN, key],
                vec![key],
                vec![OWN, basic],
                vec![basic],
            ],
            vec![
                vec![FOREIGN],
                vec![PAGE, cookie],
                vec![PAGE, key],
                vec![PAGE, basic],
                vec![PAGE, TOKEN, cookie],
            ],
        ),
        (listed(Credentials::Included), vec![vec![PAGE, cookie]], vec![vec![FOREIGN, cookie]]),
        // Any page may open a socket, but only without credentials that it does not know itself.
        (Cors::Any, vec![vec![FOREIGN]], vec![vec![FOREIGN, ("x-user", "me")]]),
    ] {
        let forward = forward.clone();
        let front = Front::with(Settings { cors, forward, ..Settings::default() }).await;
        let own = format!("http://{}", front.address);
        for headers in welcome {
            let own = |(name, value)| (name, if (name, value) == OWN { &*own } else { value });
            let sent: Vec<_> = headers.iter().copied().map(own).collect();
            assert!(front.open(&sent).await.is_ok(), "{headers:?}");
        }
        for headers in refused_too {
            assert_eq!(front.refuses(&headers).await, refused(403, "cross_origin"), "{headers:?}");
        }
    }
}

#[tokio::test]
async fn socket_takes_one_place_of_its_callers_streams_with_and_without_a_turn() {
    let rates = Rates { streams: NonZeroUsize::new(1), ..Rates::default() };
    let front = Front::with(Settings { rates, ..Settings::default() }).await;
    let mut socket = front.open(&[]).await.unwrap();
    assert_eq!(front.refuses(&[]).await, refused(429, "too_many_streams"));
    let (run, _) = front.turn(&mut socket).await;
    assert_eq!(front.refuses(&[]).await, refused(429, "too_many_streams"));
    socket.stream.close(None).await.unwrap();
    // The slot is free when the gateway has closed its side.
    while socket.next_raw().await {}
    assert!(front.open(&[]).await.is_ok());
    drop(run);
}

#[tokio::test]
async fn turn_counts_as_a_request() {
    let rate = |number| NonZeroU32::new(number).unwrap();
    let requests = Some(RequestRate { per_second: rate(1), burst: rate(2) });
    let rates = Rates { requests, ..Rates::default() };
    let front = Front::with(Settings { rates, ..Settings::default() }).await;
    let mut socket = front.open(&[]).await.unwrap();
    tokio::time::pause();
    let mut first = input(&["hi"]);
    // A turn that is refused for its content counts too.
    first["messages"] = json!("none");
    socket.send(&first).await;
    assert_eq!(socket.event().await.1["code"], "invalid_request");
    socket.send(&first).await;
    assert_eq!(socket.event().await.1["code"], "too_many_requests");
    front.upstream.is_untouched().await;
}

#[tokio::test]
async fn agent_that_is_not_there_has_no_socket() {
    let upstreams = Upstream::bind().await;
    let agents = agents(&[("a", &upstreams.url()), ("b", &upstreams.url())], &[]);
    let (address, _stop, _serving, _server) = serve_as(agents, Settings::default()).await;
    let refused = Socket::with(address, "/agui/agent/nobody/run", &[]).await.err().unwrap();
    assert_eq!((refused.0, &refused.1["error"]), (404, &json!("unknown_agent")));
    upstreams.is_untouched().await;
}

// === clients that ping ===

/// More than the buffers of both systems hold.
const FLOOD: usize = 48 * 1024 * 1024;

/// How a socket is opened: who may, its path, and the headers.
type Opening = (Auth, &'static str, Vec<(&'static str, &'static str)>);

fn sockets() -> [Opening; 5] {
    let invented = || (Auth::Upstream(UpstreamAuth::default()), vec![("x-api-key", "invented")]);
    let (auth, headers) = invented();
    let (acp_auth, acp_headers) = invented();
    let key = vec![("authorization", "Bearer 0123456789abcdef")];
    [
        (Auth::None, "/agui/agent/agent/run", vec![]),
        (Auth::None, "/acp", vec![]),
        (key_of("a"), "/agui/agent/agent/run/ws", key),
        (auth, "/agui/agent/agent/run", headers),
        (acp_auth, "/acp", acp_headers),
    ]
}

#[tokio::test]
async fn client_that_pings_and_reads_nothing_is_not_read_any_more() {
    let ping = socket::frame(9, &[b'a'; 125]);
    // A frame that needs no answer does not hide the pings.
    let keep_alive = socket::frame(1, br#"{"type":"ping"}"#);
    let method = br#"{"jsonrpc":"2.0","method":"_threadway/nothing"}"#;
    let notification = socket::frame(1, method);
    for (auth, path, headers) in sockets() {
        let front = Front::guarded(auth).await;
        let between = if path == "/acp" { &notification } else { &keep_alive };
        for frames in [ping.repeat(512), [ping.repeat(64), between.clone()].concat()] {
            let mut socket = front.opened(path, &headers).await;
            let socket = socket.stream.get_mut();
            let sent = socket::flooded(front.address, socket, &frames, FLOOD).await;
            assert!(sent < FLOOD, "{path}: {sent} bytes of pings were read");
        }
    }
}

#[tokio::test]
async fn client_that_reads_gets_a_pong_for_its_newest_ping() {
    const PINGS: u32 = 5_000;
    for (auth, path, headers) in sockets() {
        let front = Front::guarded(auth).await;
        let mut socket = front.opened(path, &headers).await;
        let pings: Vec<_> = (0..PINGS).map(|at| socket::frame(9, &at.to_be_bytes())).collect();
        socket.stream.get_mut().write_all(&pings.concat()).await.unwrap();
        loop {
            match socket.stream.next().await {
                Some(Ok(Message::Pong(pong))) if *pong == (PINGS - 1).to_be_bytes() => break,
                Some(Ok(Message::Pong(_))) => {}
                other => panic!("{path}: {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn message_that_is_too_large_is_answered_with_a_close_frame_while_it_is_sent() {
    const SIZE: usize = 11 * 1024 * 1024;
    for path in ["/agui/agent/agent/run", "/agui/agent/agent/run/ws", "/acp"] {
        for _ in 0..5 {
            let front = Front::with(Settings::default()).await;
            let mut socket = Socket::with(front.address, path, &[]).await.unwrap();
            let message = [socket::large_frame(SIZE as u64), vec![b'a'; SIZE]].concat();
            socket.stream.get_mut().write_all(&message).await.unwrap();
            let (code, _) = socket.closed().await;
            assert_eq!(code, 1009, "{path}");
        }
    }
}
