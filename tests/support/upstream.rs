//! A scripted LangGraph server on a real socket: a test reads each request and writes the answer.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex as StdMutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::task::JoinSet;

/// The key of a caller who may not see any thread.
pub(crate) const STRANGER: &str = "stranger";

/// The creation of a thread.
const CREATE: &str = "POST /threads";

/// The `/info` of a Python server.
const PYTHON: &str = r#"{"version":"0.16.7","langgraph_py_version":"1.2.22"}"#;

/// The `/info` of a JavaScript server.
const JAVASCRIPT: &str = r#"{"version":"1.5.1","langgraph_js_version":"1.7.3"}"#;

/// The `/info` of an aegra.
const AEGRA: &str = r#"{"name":"Aegra","version":"0.11.0"}"#;

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 1024;

/// The server. Requests wait until the test asks for them. The server itself answers only whether a
/// caller may see a thread, and whether there is an agent: yes, unless the caller is the stranger or
/// the test has set another answer, and unless the agent is `nobody`. A caller who may not see a thread does not get its runs either.
pub(crate) struct Upstream {
    address: SocketAddr,
    requests: Mutex<UnboundedReceiver<Exchange>>,
    sight: Arc<StdMutex<HashMap<String, u16>>>,
    /// The answer to `/info`.
    info: &'static str,
    accepting: JoinSet<()>,
}

/// The address of a server that is away. It stays reserved: nothing else answers there, and
/// connections are refused.
pub(crate) struct Away {
    socket: TcpSocket,
    info: &'static str,
}

/// One request, and the connection that waits for its answer.
pub(crate) struct Exchange {
    socket: TcpStream,
    /// The request line, as `POST /threads/T/runs/stream`.
    pub(crate) line: String,
    /// The request line and the headers.
    pub(crate) head: String,
    /// The body as text.
    pub(crate) body: String,
}

// === impl Upstream ===

impl Upstream {
    /// A Python server.
    pub(crate) async fn bind() -> Self {
        Self::telling(PYTHON).await
    }

    pub(crate) async fn javascript() -> Self {
        Self::telling(JAVASCRIPT).await
    }

    pub(crate) async fn aegra() -> Self {
        Self::telling(AEGRA).await
    }

    /// A server with this `/info`.
    #[expect(clippy::unused_async, reason = "sockets are bound inside of a runtime")]
    pub(crate) async fn telling(info: &'static str) -> Self {
        let socket = bound("127.0.0.1:0".parse().unwrap());
        Self::listening(socket.listen(BACKLOG).unwrap(), info)
    }

    fn listening(listener: TcpListener, info: &'static str) -> Self {
        let address = listener.local_addr().unwrap();
        let (sender, requests) = mpsc::unbounded_channel();
        let sight = Arc::new(StdMutex::new(HashMap::from([(STRANGER.to_owned(), 404)])));
        let answers = Arc::clone(&sight);
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            while let Some(exchange) = accept(&listener).await {
                let key = exchange.key().unwrap_or_default();
                let status = answers.lock().unwrap().get(key).copied().unwrap_or(200);
                if let Some((status, body)) = exchange.asks_for_agent() {
                    exchange.json_if_there(status, &body).await;
                } else if exchange.asks_to_see() || status != 200 && exchange.lists_runs() {
                    let (status, body) = match status {
                        200 => (200, r#"[{"run_id":"R"}]"#),
                        _ if info.contains("Aegra") => (200, "[]"),
                        refused => (refused, r#"{"detail":"not for you"}"#),
                    };
                    exchange.json_if_there(status, body).await;
                } else if sender.send(exchange).is_err() {
                    return;
                }
            }
        });
        Self { address, requests: Mutex::new(requests), sight, info, accepting }
    }

    /// Stops the server.
    pub(crate) async fn leave(mut self) -> Away {
        // Before the listener is closed: between the two, another test could take the port.
        let socket = bound(self.address);
        self.accepting.shutdown().await;
        Away { socket, info: self.info }
    }

    /// Sets the status with which the server answers whether this key may see a thread.
    pub(crate) fn shows(&self, key: &str, status: u16) {
        self.sight.lock().unwrap().insert(key.to_owned(), status);
    }

    /// How many runs the gateway asks for, so that the newest are among them: a JavaScript server
    /// lists the oldest first.
    pub(crate) fn recent_runs(&self) -> usize {
        if self.info.contains("langgraph_js_version") { 100 } else { 20 }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next request. The server answers `/info` by itself, because the gateway asks for it now
    /// and then, and the creation of a thread, which precedes the first run of each.
    pub(crate) async fn next(&self) -> Exchange {
        loop {
            let exchange = self.next_or_creation().await;
            if exchange.line != CREATE {
                return exchange;
            }
            exchange.json(200, "{}").await;
        }
    }

    /// The next request, which may be the creation of a thread.
    pub(crate) async fn next_or_creation(&self) -> Exchange {
        loop {
            let exchange = self.accept().await;
            if exchange.line != "GET /info" {
                return exchange;
            }
            exchange.json(200, self.info).await;
        }
    }

    /// The next request, if one has arrived.
    pub(crate) async fn waiting(&self) -> Option<Exchange> {
        loop {
            let exchange = self.requests.lock().await.try_recv().ok()?;
            if exchange.line != "GET /info" {
                return Some(exchange);
            }
            exchange.json(200, self.info).await;
        }
    }

    /// Checks that the server got no request: the test's own request arrives first.
    pub(crate) async fn is_untouched(&self) {
        let mut socket = TcpStream::connect(self.address()).await.unwrap();
        socket.write_all(b"GET /anything-before-this HTTP/1.1\r\n\r\n").await.unwrap();
        assert_eq!(self.accept().await.line, "GET /anything-before-this");
    }

    /// The next request, including those for `/info`.
    pub(crate) async fn accept(&self) -> Exchange {
        self.requests.lock().await.recv().await.unwrap()
    }

    /// Answers the lists with which the gateway looks up a run whose start was interrupted: there is
    /// none.
    pub(crate) async fn has_no_such_run(&self) {
        const LOOKUPS: usize = 4;
        for _ in 0..LOOKUPS {
            for list in ["status=pending&", "status=running&", "limit="] {
                let get = self.next().await;
                assert!(get.line.starts_with("GET /threads/"), "{}", get.line);
                assert!(get.line.contains(&format!("/runs?{list}")), "{}", get.line);
                get.json(200, "[]").await;
            }
        }
    }

    /// The next request, which must have this line.
    pub(crate) async fn expect(&self, line: &str) -> Exchange {
        let exchange =
            if line == CREATE { self.next_or_creation().await } else { self.next().await };
        assert_eq!(exchange.line, line);
        exchange
    }
}

/// The next request on a listener; `None` if the client disconnects in the middle of one.
/// A socket with this address, which another socket of the same test may have too.
fn bound(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.set_reuseport(true).unwrap();
    socket.bind(address).unwrap();
    socket
}

async fn accept(listener: &TcpListener) -> Option<Exchange> {
    loop {
        let (socket, _) = listener.accept().await.ok()?;
        if let Some(exchange) = Exchange::read(socket).await {
            return Some(exchange);
        }
    }
}

// === impl Away ===

impl Away {
    /// Starts a server of the same kind at the address.
    pub(crate) fn returns(self) -> Upstream {
        Upstream::listening(self.socket.listen(BACKLOG).unwrap(), self.info)
    }
}

// === impl Exchange ===

impl Exchange {
    async fn read(mut socket: TcpStream) -> Option<Self> {
        let mut bytes = Vec::new();
        let head_end = loop {
            if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if socket.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return None;
            }
        };
        let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        while bytes.len() < head_end + length {
            if socket.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return None;
            }
        }
        let line = head.lines().next().unwrap().strip_suffix(" HTTP/1.1").unwrap().to_owned();
        let body = String::from_utf8(bytes[head_end..].to_vec()).unwrap();
        Some(Self { socket, line, head, body })
    }

    /// The API key of the request.
    pub(crate) fn key(&self) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix("x-api-key: "))
    }

    fn lists_runs(&self) -> bool {
        self.line.starts_with("GET /threads/") && self.line.contains("/runs?limit=")
    }

    /// The answer to the question whether the server has an agent. It has all but `nobody`.
    fn asks_for_agent(&self) -> Option<(u16, String)> {
        let asked = self
            .body
            .strip_prefix("{\"graph_id\":\"")?
            .strip_suffix("\",\"limit\":1,\"offset\":0}")?;
        if !self.line.starts_with("POST /") || !self.line.ends_with("/assistants/search") {
            return None;
        }
        Some(if asked == "nobody" {
            (404, r#"{"detail":"Graph 'nobody' not found. Expected one of: ['agent']"}"#.to_owned())
        } else {
            (200, format!(r#"[{{"assistant_id":"A","graph_id":"{asked}"}}]"#))
        })
    }

    /// Whether the request asks only whether the caller may see a thread.
    pub(crate) fn asks_to_see(&self) -> bool {
        self.line.starts_with("GET /threads/") && self.line.ends_with("/runs?limit=1&select=run_id")
    }

    /// Answers with a status and a whole body, and closes.
    pub(crate) async fn answer(mut self, status: u16, content_type: &str, body: &str) {
        self.begin_answer(status, content_type, body, body.len()).await;
    }

    /// Answers with a status, and with the beginning of a body of this length.
    pub(crate) async fn begin_answer(
        &mut self,
        status: u16,
        content_type: &str,
        body: &str,
        length: usize,
    ) {
        let head = format!(
            "HTTP/1.1 {status} Status\r\ncontent-type: {content_type}\r\n\
             content-length: {length}\r\nconnection: close\r\n\r\n"
        );
        self.write(head.as_bytes()).await;
        self.write(body.as_bytes()).await;
    }

    pub(crate) async fn json(self, status: u16, body: &str) {
        self.answer(status, "application/json", body).await;
    }

    /// Answers 429 with further header lines, and closes.
    pub(crate) async fn too_many(mut self, headers: &str) {
        let body = r#"{"detail":"slow down"}"#;
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 429 Status\r\ncontent-type: application/json\r\n{headers}\
             content-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        self.write(answer.as_bytes()).await;
    }

    /// Answers with a compressed body, and closes.
    pub(crate) async fn compressed(mut self) {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                    content-encoding: gzip\r\ncontent-length: 2\r\nconnection: close\r\n\r\n";
        self.write(head.as_bytes()).await;
        self.write(&[0x1f, 0x8b]).await;
    }

    /// Answers with a redirect to this URL, and closes.
    pub(crate) async fn redirect(mut self, status: u16, location: &str) {
        let head = format!(
            "HTTP/1.1 {status} Status\r\nlocation: {location}\r\ncontent-length: 0\r\n\
             connection: close\r\n\r\n"
        );
        self.write(head.as_bytes()).await;
    }

    /// Answers, unless the client has disconnected.
    pub(crate) async fn json_if_there(mut self, status: u16, body: &str) {
        let head = format!(
            "HTTP/1.1 {status} Status\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        let answer = [head.as_bytes(), body.as_bytes()].concat();
        let _ = self.socket.write_all(&answer).await;
    }

    /// Begins a stream, with further header lines.
    pub(crate) async fn begin(&mut self, headers: &str) {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n{headers}\
             transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        );
        self.write(head.as_bytes()).await;
    }

    /// Sends bytes of the stream, as one chunk.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.write(format!("{:x}\r\n", bytes.len()).as_bytes()).await;
        self.write(bytes).await;
        self.write(b"\r\n").await;
    }

    /// Sends a heartbeat, as the Python server does every 5 s; returns whether the client still
    /// reads.
    pub(crate) async fn lives(&mut self) -> bool {
        match self.socket.try_read(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            _ => return false,
        }
        self.send(": heartbeat\r\n\r\n").await;
        true
    }

    /// Ends the stream in order.
    pub(crate) async fn end(mut self) {
        self.write(b"0\r\n\r\n").await;
    }

    /// Cuts the stream: closes the connection without the last chunk.
    pub(crate) fn cut(self) {
        drop(self);
    }

    /// Resets the connection.
    pub(crate) fn reset(self) {
        self.socket.set_zero_linger().unwrap();
    }

    /// Sends bytes without chunking.
    pub(crate) async fn raw(&mut self, bytes: impl AsRef<[u8]>) {
        self.write(bytes.as_ref()).await;
    }

    /// Waits until the client has closed the connection.
    pub(crate) async fn closed(mut self) {
        let mut byte = [0];
        // A reset closes the connection too.
        assert_eq!(self.socket.read(&mut byte).await.unwrap_or(0), 0, "another request came");
    }

    async fn write(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.unwrap();
    }
}
