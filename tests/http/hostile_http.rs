//! Invalid requests and malicious clients: each is refused and disconnected, nothing is sent
//! upstream, and the streams of other clients are not disturbed.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use crate::support::clock::HeldClock;
use crate::support::gateway::{
    Gateway, Response, agents, counted, events, refusal, refused, serve_as, token,
};
use serde_json::{Value, json};
use threadway::server::{Auth, BODY_TIMEOUT, Limits, Rates, RequestRate, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const RUN: &str =
    "POST /agui/agent/a/run HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n";

/// A request that would be answered if it passed after a refused request.
const SMUGGLED: &str = "GET /healthz HTTP/1.1\r\nhost: h\r\nx-smuggled: yes\r\n\r\n";

/// Sends these bytes; returns all answers until the connection is closed.
async fn told(address: SocketAddr, bytes: &[u8]) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let (mut reading, mut writing) = socket.split();
    let mut told = Vec::new();
    // The gateway may close before all bytes are written or read, which is an answer too.
    let _ = tokio::join!(writing.write_all(bytes), reading.read_to_end(&mut told));
    String::from_utf8(told).unwrap()
}

/// The statuses of the responses.
fn statuses(told: &str) -> Vec<&str> {
    let lines = told.split("\r\n").filter_map(|line| {
        let at = line.find("HTTP/1.")?;
        line.get(at + 9..at + 12)
    });
    lines.collect()
}

async fn are_refused(cases: &[(&str, String, &str)]) {
    let gateway = Gateway::start().await;
    for (what, bytes, status) in cases {
        let told = told(gateway.address, bytes.as_bytes()).await;
        let expected: &[&str] = if status.is_empty() { &[] } else { &[status] };
        assert_eq!(statuses(&told), expected, "{what}: {told}");
        assert!(!told.contains("ok\n"), "{what}: {told}");
    }
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn body_has_one_length() {
    let chunked = "transfer-encoding: chunked\r\n";
    let cases: &[(&str, String, &str)] = &[
        ("CL.TE", format!("{RUN}content-length: 5\r\n{chunked}\r\n0\r\n\r\n{SMUGGLED}"), "400"),
        ("TE.CL", format!("{RUN}{chunked}content-length: 5\r\n\r\n0\r\n\r\n{SMUGGLED}"), "400"),
        (
            "CL.TE, in capitals",
            format!(
                "{RUN}CONTENT-LENGTH: 5\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n{SMUGGLED}"
            ),
            "400",
        ),
        (
            "differing lengths",
            format!("{RUN}content-length: 2\r\ncontent-length: 3\r\n\r\n{{}}{SMUGGLED}"),
            "400",
        ),
        ("a list of lengths", format!("{RUN}content-length: 2, 3\r\n\r\n{{}}{SMUGGLED}"), "400"),
        ("a signed length", format!("{RUN}content-length: +2\r\n\r\n{{}}{SMUGGLED}"), "400"),
        ("a negative length", format!("{RUN}content-length: -2\r\n\r\n{{}}{SMUGGLED}"), "400"),
        ("a length in hex", format!("{RUN}content-length: 0x2\r\n\r\n{{}}{SMUGGLED}"), "400"),
        ("no length", format!("{RUN}content-length: \r\n\r\n{SMUGGLED}"), "400"),
        (
            "a huge length",
            format!("{RUN}content-length: 99999999999999999999\r\n\r\n{SMUGGLED}"),
            "400",
        ),
        (
            "chunked is not last",
            format!("{RUN}transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n{SMUGGLED}"),
            "400",
        ),
        (
            "no chunked at all",
            format!("{RUN}transfer-encoding: gzip\r\n\r\n0\r\n\r\n{SMUGGLED}"),
            "400",
        ),
        (
            "something like chunked",
            format!("{RUN}transfer-encoding: xchunked\r\n\r\n0\r\n\r\n{SMUGGLED}"),
            "400",
        ),
        (
            "a space before the colon",
            format!("{RUN}transfer-encoding : chunked\r\n\r\n0\r\n\r\n{SMUGGLED}"),
            "400",
        ),
        (
            "chunked twice in a line",
            format!("{RUN}transfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n{SMUGGLED}"),
            "400",
        ),
        ("chunked in two lines", format!("{RUN}{chunked}{chunked}\r\n0\r\n\r\n{SMUGGLED}"), "400"),
        (
            "another coding before chunked",
            format!("{RUN}transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n{SMUGGLED}"),
            "400",
        ),
        (
            "another coding in another line",
            format!("{RUN}transfer-encoding: gzip\r\n{chunked}\r\n0\r\n\r\n{SMUGGLED}"),
            "400",
        ),
        (
            "identity before chunked",
            format!("{RUN}transfer-encoding: identity, chunked\r\n\r\n0\r\n\r\n{SMUGGLED}"),
            "400",
        ),
        (
            "chunked with a parameter",
            format!("{RUN}transfer-encoding: chunked;q=1\r\n\r\n0\r\n\r\n{SMUGGLED}"),
            "400",
        ),
        (
            "an empty element beside chunked",
            format!("{RUN}transfer-encoding: , chunked\r\n\r\n0\r\n\r\n{SMUGGLED}"),
            "400",
        ),
        (
            "chunked over HTTP/1.0",
            format!("{RUN}{chunked}\r\n0\r\n\r\n{SMUGGLED}").replacen("1.1", "1.0", 1),
            "400",
        ),
    ];
    are_refused(cases).await;
}

#[tokio::test]
async fn chunked_encoding_is_read_in_any_case() {
    let gateway = Gateway::start().await;
    for coding in ["chunked", "Chunked", "CHUNKED", " chunked ", "\tchunked"] {
        let body = "7\r\n{\"a\":1}\r\n0\r\n\r\n";
        let request = format!("{RUN}transfer-encoding:{coding}\r\n\r\n{body}");
        let mut response = Response::to(gateway.address, request.as_bytes()).await;
        let (_, told) = refused(&mut response).await;
        // The body is read, and it is no input.
        assert!(told.contains("threadId"), "{coding}: {told}");
    }
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn body_with_two_lengths_is_told_so() {
    let gateway = Gateway::start().await;
    let request =
        format!("{RUN}content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{SMUGGLED}");
    let mut response = Response::to(gateway.address, request.as_bytes()).await;
    let message = "the request has both `content-length` and `transfer-encoding`; send one";
    let expected = refusal("400 Bad Request", "invalid_request", message);
    assert_eq!(refused(&mut response).await, expected);
    assert!(response.head.contains("\r\nconnection: close\r\n"), "{}", response.head);
    response.closed().await;
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn chunks_are_well_formed() {
    let chunked = format!("{RUN}transfer-encoding: chunked\r\n\r\n");
    let long = "x".repeat(1024 * 1024);
    let bodies = [
        ("no number", "x\r\n{}\r\n0\r\n\r\n".to_owned()),
        ("a negative one", "-2\r\n{}\r\n0\r\n\r\n".to_owned()),
        ("one that is too large", "fffffffffffffffff\r\n{}\r\n0\r\n\r\n".to_owned()),
        ("one in C", "0x2\r\n{}\r\n0\r\n\r\n".to_owned()),
        ("none", "\r\n{}\r\n0\r\n\r\n".to_owned()),
        ("more than it says", "2\r\n{}}\r\n0\r\n\r\n".to_owned()),
        ("a long extension", format!("2;x={long}\r\n{{}}\r\n0\r\n\r\n")),
        ("long trailers", format!("2\r\n{{}}\r\n0\r\nx: {long}\r\n\r\n")),
        ("a bare LF", "2\n{}\r\n0\r\n\r\n".to_owned()),
        ("a NUL", "2\0\r\n{}\r\n0\r\n\r\n".to_owned()),
    ];
    let cases = bodies.map(|(what, body)| (what, format!("{chunked}{body}{SMUGGLED}"), "400"));
    are_refused(&cases).await;
}

#[tokio::test]
async fn head_is_well_formed() {
    let head =
        |line: &str| format!("GET /agui/info HTTP/1.1\r\nhost: h\r\n{line}\r\n\r\n{SMUGGLED}");
    let many = "x: y\r\n".repeat(10_000);
    let cases = [
        ("a NUL in a value", head("x: a\0b"), "400"),
        ("a NUL in a name", head("x\0: a"), "400"),
        ("a bare CR in a value", head("x: a\rb"), "400"),
        ("a bare CR before a header", head("x: a\rcontent-length: 5"), "400"),
        ("DEL in a value", head("x: a\x7fb"), "400"),
        ("a folded line", head("x: a\r\n b"), "400"),
        ("a line that begins with a space", head(" x: a"), "400"),
        ("no colon", head("x"), "400"),
        ("no name", head(": x"), "400"),
        ("a name in quotes", head("\"x\": a"), "400"),
        ("a name with a space", head("x y: a"), "400"),
        ("10,000 headers", head(&many), "431"),
        ("1 MiB in one header", head(&format!("x: {}", "y".repeat(1024 * 1024))), "431"),
        ("1 MiB in a name", head(&format!("{}: x", "y".repeat(1024 * 1024))), "431"),
        ("a path of 1 MiB", format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(1024 * 1024)), "431"),
        ("no version", format!("GET /healthz\r\n\r\n{SMUGGLED}"), "400"),
        ("an unknown version", format!("GET /healthz HTTP/1.2\r\n\r\n{SMUGGLED}"), "400"),
        ("a version to come", format!("GET /healthz HTTP/3.0\r\n\r\n{SMUGGLED}"), "400"),
        // hyper does not answer another protocol.
        ("HTTP/2", format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{SMUGGLED}"), ""),
        ("TLS", "\x16\x03\x01\x02\0\x01\0\x01\u{7c}\x03\x03\r\n\r\n".to_owned(), "400"),
        ("no method", format!(" /healthz HTTP/1.1\r\n\r\n{SMUGGLED}"), "400"),
        ("a NUL in the path", format!("GET /\0 HTTP/1.1\r\n\r\n{SMUGGLED}"), "400"),
        ("a space in the path", format!("GET /a b HTTP/1.1\r\n\r\n{SMUGGLED}"), "400"),
    ];
    are_refused(&cases).await;
}

#[tokio::test]
async fn target_of_another_form_leads_nowhere_else() {
    let gateway = Gateway::start().await;
    let close = "host: h\r\nconnection: close\r\n\r\n";
    for (line, status) in [
        ("GET http://h/healthz HTTP/1.1", "200"),
        ("GET http://elsewhere.example/nowhere HTTP/1.1", "404"),
        ("GET healthz HTTP/1.1", "404"),
        ("CONNECT elsewhere.example:443 HTTP/1.1", "404"),
        ("OPTIONS * HTTP/1.1", "404"),
        ("TRACE /agui/info HTTP/1.1", "405"),
        ("GET //elsewhere.example/healthz HTTP/1.1", "404"),
        ("GET /healthz/../agui/info HTTP/1.1", "404"),
        ("GET /agui/agent/a/threads/t/events/../../../../../info HTTP/1.1", "404"),
    ] {
        let told = told(gateway.address, format!("{line}\r\n{close}").as_bytes()).await;
        assert_eq!(statuses(&told), [status], "{line}: {told}");
    }
    gateway.upstream.is_untouched().await;
}

#[tokio::test]
async fn path_segment_keeps_what_it_hides() {
    let gateway = Gateway::start().await;
    for thread in ["%00", "..%2F..%2Fassistants", "%2e%2e", "a%0d%0ax:%20y", "%ff", "a%3Fb%23c"] {
        let request = format!(
            "GET /agui/agent/..%2Fa/threads/{thread}/events HTTP/1.1\r\nhost: h\r\n\
             connection: close\r\n\r\n"
        );
        let upstream = async {
            let asked = gateway.upstream.next().await;
            let path = asked.line.strip_prefix("GET /threads/").unwrap().to_owned();
            let (id, rest) = path.split_once('/').unwrap();
            // A UUID that the gateway made.
            assert!(
                id.len() == 36 && id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-'),
                "{id}"
            );
            assert!(rest.starts_with("runs?limit="), "{rest}");
            asked.json(500, "{}").await;
        };
        let told = told(gateway.address, request.as_bytes());
        tokio::select! {
            told = told => assert_eq!(statuses(&told), ["400"], "{thread}: {told}"),
            () = upstream => {}
        }
    }
}

#[tokio::test]
async fn request_behind_a_refused_one_does_not_get_through() {
    let gateway = Gateway::start().await;
    // A refused request whose body looks like another request. Either the gateway reads that as a
    // body, or it closes the connection.
    for request in [
        format!(
            "POST /nowhere HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n\r\n{SMUGGLED}",
            SMUGGLED.len()
        ),
        format!("{RUN}content-length: {}\r\n\r\n{SMUGGLED}", SMUGGLED.len()),
        format!(
            "GET /agui/info HTTP/1.1\r\nhost: h\r\norigin: https://evil.example\r\ncontent-length: {}\r\n\r\n{SMUGGLED}",
            SMUGGLED.len()
        ),
        format!(
            "POST /agui/agent/a/run HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{SMUGGLED}\r\n0\r\n\r\n",
            SMUGGLED.len()
        ),
    ] {
        let last = "GET /last HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
        let told = told(gateway.address, format!("{request}{last}").as_bytes()).await;
        assert!(!told.contains("ok\n"), "{told}");
        let statuses = statuses(&told);
        assert!(
            statuses.len() <= 2 && statuses.iter().all(|status| status.starts_with('4')),
            "{told}"
        );
    }
    gateway.upstream.is_untouched().await;
}

/// A run that streams, and its client.
struct Stream {
    place: String,
    client: Response,
    run: crate::support::upstream::Exchange,
}

impl Stream {
    async fn start(gateway: &Gateway, at: usize) -> Self {
        let thread = format!("00000000-0000-4000-8000-{at:012}");
        let place = format!("/threads/{thread}/runs/11111111-0000-4000-8000-{at:012}");
        let input = json!({"threadId": thread, "runId": "r1", "protocolVersion": "1.0",
                           "messages": [{"id": "m0", "role": "user", "content": "hi"}]});
        let (client, run) = tokio::join!(gateway.post(&input), async {
            let state = gateway.upstream.expect(&format!("GET /threads/{thread}/state")).await;
            state.json(404, "{}").await;
            let mut run =
                gateway.upstream.expect(&format!("POST /threads/{thread}/runs/stream")).await;
            run.begin(&format!("content-location: {place}\r\n")).await;
            run
        });
        Self { place, client, run }
    }

    /// Sends one more token, ends the run, and reads the stream to its end.
    async fn finish(self, gateway: &Gateway) -> Vec<Value> {
        let Self { place, mut client, mut run } = self;
        run.send(token("a", "unharmed")).await;
        run.end().await;
        let record = gateway.upstream.expect(&format!("GET {place}")).await;
        record
            .json(
                200,
                &json!({"run_id": &place[place.len() - 36..], "status": "interrupted"}).to_string(),
            )
            .await;
        let (thread, _) = place.split_once("/runs").unwrap();
        gateway.upstream.expect(&format!("GET {thread}/state")).await.json(404, "{}").await;
        let body = client.body().await;
        events(&body.replace(": keep-alive\n\n", "").replace("retry: 3000\n\n", ""))
    }
}

/// Sends requests of which one more byte arrives from time to time.
async fn drip(address: SocketAddr, count: usize, start: &str) -> Vec<TcpStream> {
    let mut sockets = Vec::new();
    for _ in 0..count {
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(start.as_bytes()).await.unwrap();
        sockets.push(socket);
    }
    sockets
}

/// Checks the last answer on each connection.
async fn last_words(sockets: Vec<TcpStream>, status: &str, code: &str) {
    for mut socket in sockets {
        let mut told = Vec::new();
        let _ = socket.read_to_end(&mut told).await;
        let told = String::from_utf8(told).unwrap();
        assert_eq!(statuses(&told), [status], "{told}");
        assert!(told.contains(&format!("{{\"error\":\"{code}\",")), "{told}");
    }
}

#[tokio::test]
async fn clients_that_drip_do_not_harm_those_that_stream() {
    let gateway = Gateway::start().await;
    let mut streams = Vec::new();
    for at in 0..100 {
        streams.push(Stream::start(&gateway, at).await);
    }
    let clock = HeldClock::pause();
    let mut heads = drip(gateway.address, 500, "GET /agui/info HTTP/1.1\r\n").await;
    let body = format!("{RUN}content-length: 1000\r\n\r\n");
    let mut bodies = drip(gateway.address, 500, &body).await;
    gateway.settled().await;
    let header_timeout = Limits::default().header_timeout;
    let mut waited = Duration::ZERO;
    while waited <= BODY_TIMEOUT {
        let step = Duration::from_secs(2);
        for socket in heads.iter_mut().chain(&mut bodies) {
            // Nothing is sent on a connection that was disconnected.
            let _ = socket.write_all(if waited < header_timeout { b"x" } else { b"" }).await;
        }
        for Stream { run, .. } in &mut streams {
            assert!(run.lives().await);
        }
        gateway.settled().await;
        clock.advance(step).await;
        gateway.settled().await;
        waited += step;
        if waited > header_timeout && !heads.is_empty() {
            last_words(std::mem::take(&mut heads), "408", "header_timeout").await;
        }
    }
    last_words(bodies, "408", "body_timeout").await;
    for stream in streams {
        let told = stream.finish(&gateway).await;
        let kinds: Vec<_> = told.iter().map(|event| event["type"].as_str().unwrap()).collect();
        let expected = [
            "RUN_STARTED",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "RUN_FINISHED",
        ];
        assert_eq!(kinds, expected);
    }
}

#[tokio::test]
async fn refusal_reaches_a_client_that_is_still_sending() {
    const SIZE: usize = 24 * 1024 * 1024;
    let keys = Auth::Bearer("a=0123456789abcdef".parse().unwrap());
    let requests = NonZeroU32::MIN;
    let rates = Rates {
        requests: Some(RequestRate { per_second: requests, burst: requests }),
        ..Rates::default()
    };
    let json = "content-type: application/json\r\n";
    let length = format!("content-length: {SIZE}\r\n");
    let chunked = "transfer-encoding: chunked\r\n".to_owned();
    let (run, acp) = ("POST /agui/agent/a/run", "POST /acp");
    for (what, settings, line, headers, status) in [
        ("too large", Settings::default(), run, format!("{json}{length}"), "413"),
        ("too large, in chunks", Settings::default(), run, format!("{json}{chunked}"), "413"),
        ("too large for ACP", Settings::default(), acp, format!("{json}{length}"), "413"),
        ("no JSON", Settings::default(), run, length.clone(), "415"),
        ("no key", Settings { auth: keys, ..Settings::default() }, run, length.clone(), "401"),
        ("no route", Settings::default(), "POST /nowhere", length.clone(), "404"),
        ("two lengths", Settings::default(), run, format!("{length}{chunked}"), "400"),
        ("too often", Settings { rates, ..Settings::default() }, run, length.clone(), "429"),
        (
            "too many connections",
            Settings {
                limits: Limits { connections: 0, ..Limits::default() },
                ..Settings::default()
            },
            run,
            length.clone(),
            "503",
        ),
        (
            "a head that is too large",
            Settings::default(),
            run,
            format!("x: {}\r\n{length}", "x".repeat(1024 * 1024)),
            "431",
        ),
    ] {
        let agents = agents(&[("default", "http://127.0.0.1:9")], &[]);
        let (address, _stop, _serving, _server) = serve_as(agents, settings).await;
        if what == "too often" {
            Response::to(address, b"GET /agui/info HTTP/1.1\r\nhost: h\r\n\r\n").await;
        }
        let head = format!("{line} HTTP/1.1\r\nhost: h\r\n{headers}\r\n");
        let chunk = headers.contains("chunked").then(|| format!("{SIZE:x}\r\n"));
        let chunk = chunk.unwrap_or_default();
        let request = [head.as_bytes(), chunk.as_bytes(), &vec![b'a'; SIZE]];
        let mut socket = TcpStream::connect(address).await.unwrap();
        // As a client that reads after it has sent everything.
        socket.write_all(&request.concat()).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut told = Vec::new();
        socket.read_to_end(&mut told).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        let told = String::from_utf8(told).unwrap();
        assert_eq!(statuses(&told), [status], "{what}: {told}");
    }
}

#[tokio::test]
async fn bytes_after_a_refusal_are_read_for_a_limited_time() {
    let mut gateway = Gateway::start().await;
    let clock = HeldClock::pause();
    let large = format!("{RUN}content-length: 100000000\r\n\r\n");
    for is_silent in [true, false] {
        let mut socket = TcpStream::connect(gateway.address).await.unwrap();
        // Otherwise the system collects single bytes.
        socket.set_nodelay(true).unwrap();
        socket.write_all(large.as_bytes()).await.unwrap();
        let mut told = Vec::new();
        // The gateway has closed its half, and the client goes on.
        socket.read_to_end(&mut told).await.unwrap();
        assert!(told.starts_with(b"HTTP/1.1 413 "));
        let mut passed = Duration::ZERO;
        while counted(&gateway.metrics, "open_connections") > 0.5 {
            assert!(passed < Duration::from_mins(2), "the connection is still open");
            if !is_silent {
                socket.write_all(b"x").await.unwrap();
            }
            gateway.settled().await;
            clock.advance(Duration::from_secs(1)).await;
            passed += Duration::from_secs(1);
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        }
        let expected = if is_silent { 2..=4 } else { 29..=32 };
        assert!(expected.contains(&passed.as_secs()), "{is_silent}: {passed:?}");
    }
    // A shutdown does not wait for such a client.
    let mut socket = TcpStream::connect(gateway.address).await.unwrap();
    socket.write_all(large.as_bytes()).await.unwrap();
    socket.read_to_end(&mut Vec::new()).await.unwrap();
    gateway.stop.cancel();
    while gateway.serving.join_next().await.is_some() {}
}

#[tokio::test]
async fn connection_that_says_nothing_gives_its_place_to_one_that_asks() {
    let gateway = Gateway::with(Limits { connections: 8, ..Limits::default() }).await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(TcpStream::connect(gateway.address).await.unwrap());
    }
    let health = b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n";
    let mut response = Response::to(gateway.address, health).await;
    assert_eq!(response.body().await, "ok\n");
    // The one that has waited longest has lost its place.
    assert_eq!(silent.remove(0).read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn address_may_be_limited_to_some_connections() {
    let connections_per_peer = NonZeroUsize::new(3);
    let gateway = Gateway::with(Limits { connections_per_peer, ..Limits::default() }).await;
    let health = b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n";
    let mut kept = Vec::new();
    for _ in 0..3 {
        let mut response = Response::to(gateway.address, health).await;
        assert_eq!(response.body().await, "ok\n");
        kept.push(response);
    }
    for _ in 0..5 {
        // The refusal comes before any request.
        let mut response = Response::to(gateway.address, b"").await;
        let message = "your network has as many connections as it may have; close some, or raise \
                       `limits.connections_per_peer`";
        let expected = refusal("429 Too Many Requests", "too_many_connections", message);
        assert_eq!(refused(&mut response).await, expected);
        response.closed().await;
    }
    let mut one = kept.pop().unwrap();
    one.socket.shutdown().await.unwrap();
    one.closed().await;
    // The slot is free as soon as the gateway has noticed the close.
    loop {
        let mut next = Response::to(gateway.address, health).await;
        if next.head.starts_with("HTTP/1.1 200 ") {
            assert_eq!(next.body().await, "ok\n");
            break;
        }
    }
}
