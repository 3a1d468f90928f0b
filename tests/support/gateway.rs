//! A gateway on a real socket in front of a scripted LangGraph server, and an HTTP client for it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry_sdk::trace::SdkTracer;
use serde_json::{Value, json};
use threadway::agents::{self, Agents};
use threadway::metrics::{Format, Metrics};
use threadway::server::{Limits, Observer, Server, Settings, Workers};
use threadway::upstream::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::clock::HeldClock;
use super::upstream::{Exchange, Upstream};

pub(crate) const THREAD: &str = "0f9cfe5e-7d44-4d4f-8aef-a4e7c1d4a2a1";
/// The columns that the gateway selects from a list of runs; the end of the query.
pub(crate) const COLUMNS: &str = "&select=run_id&select=status&select=created_at&select=metadata";

pub(crate) const RUN: &str = "01a200b7-5ee6-7592-b13b-546489e59c9e";

/// A serving gateway in front of a scripted upstream.
pub(crate) struct Gateway {
    pub(crate) upstream: Upstream,
    pub(crate) address: SocketAddr,
    pub(crate) stop: CancellationToken,
    pub(crate) serving: JoinSet<()>,
    /// The gateway's metrics, also those of its requests to upstream.
    pub(crate) metrics: Metrics,
    pub(crate) server: Arc<Server>,
}

/// A response that is still being read.
pub(crate) struct Response {
    pub(crate) socket: TcpStream,
    /// The status line and the headers, without the date.
    pub(crate) head: String,
    /// Bytes of the body that were read and not yet decoded.
    pub(crate) raw: Vec<u8>,
    /// Decoded bytes of the body that the test has not yet taken.
    pub(crate) decoded: Vec<u8>,
}

// === impl Gateway ===

impl Gateway {
    pub(crate) async fn start() -> Self {
        Self::with(Limits::default()).await
    }

    pub(crate) async fn with(limits: Limits) -> Self {
        Self::of(Upstream::bind().await, limits).await
    }

    /// A gateway whose connections are served by so many threads.
    pub(crate) async fn on_workers(count: usize) -> Self {
        let workers = Workers::new(count.try_into().unwrap()).unwrap();
        Self::served_by(workers, Upstream::bind().await, Limits::default(), None).await
    }

    /// A gateway in front of a JavaScript server.
    pub(crate) async fn javascript() -> Self {
        Self::of(Upstream::javascript().await, Limits::default()).await
    }

    /// A gateway in front of aegra.
    pub(crate) async fn aegra() -> Self {
        Self::of(Upstream::aegra().await, Limits::default()).await
    }

    /// A gateway that makes trace spans.
    pub(crate) async fn traced(tracer: SdkTracer) -> Self {
        Self::observed(Upstream::bind().await, Limits::default(), Some(tracer)).await
    }

    async fn of(upstream: Upstream, limits: Limits) -> Self {
        Self::observed(upstream, limits, None).await
    }

    async fn observed(upstream: Upstream, limits: Limits, tracer: Option<SdkTracer>) -> Self {
        Self::served_by(Workers::current(), upstream, limits, tracer).await
    }

    async fn served_by(
        workers: Workers,
        upstream: Upstream,
        limits: Limits,
        tracer: Option<SdkTracer>,
    ) -> Self {
        let metrics = Metrics::default();
        let agents = counted_agents(&[("default", &upstream.url())], &[], &metrics);
        let settings = Settings { limits, ..Settings::default() };
        let observer = Observer { metrics: metrics.clone(), tracer };
        let (address, stop, serving, server) = serve_on(workers, agents, settings, observer).await;
        Self { upstream, address, stop, serving, metrics, server }
    }

    /// A gateway that has had a run, so it already knows the server's kind.
    pub(crate) async fn acquainted() -> Self {
        let gateway = Self::start().await;
        let (mut response, run) = gateway.run().await;
        run.end().await;
        gateway.record("interrupted").await;
        response.body().await;
        gateway
    }

    pub(crate) async fn post(&self, body: &Value) -> Response {
        self.post_raw(&body.to_string()).await
    }

    pub(crate) async fn post_raw(&self, body: &str) -> Response {
        post(self.address, "", body).await
    }

    /// Starts a run on a new thread. The client has its first frames, and the upstream stream is
    /// open.
    pub(crate) async fn run(&self) -> (Response, Exchange) {
        let input = input(&["hi"]);
        let (mut response, exchange) = tokio::join!(self.post(&input), async {
            self.state(None).await;
            self.stream().await
        });
        assert_eq!(response.frame().await, "retry: 3000\n\n");
        assert_eq!(response.frame().await, started());
        (response, exchange)
    }

    /// Answers the request for the thread's state.
    pub(crate) async fn state(&self, state: Option<Value>) {
        let get = self.upstream.expect(&format!("GET /threads/{THREAD}/state")).await;
        match state {
            Some(state) => get.json(200, &state.to_string()).await,
            None => get.json(404, r#"{"detail":"Thread not found"}"#).await,
        }
    }

    /// Answers the lists of live runs, of which there are none, and the thread's state after them.
    pub(crate) async fn no_runs(&self, state: Value) {
        for status in ["pending", "running"] {
            let list = self.upstream.next().await;
            let path = format!("GET /threads/{THREAD}/runs?status={status}&");
            assert!(list.line.starts_with(&path), "{}", list.line);
            list.json(200, "[]").await;
        }
        self.state(Some(state)).await;
    }

    /// Answers the list of the newest runs with their inputs: there are none.
    pub(crate) async fn no_inputs(&self) {
        let list = self.upstream.next().await;
        let path = format!("GET /threads/{THREAD}/runs?limit=100&");
        assert!(list.line.starts_with(&path), "{}", list.line);
        assert!(list.line.ends_with("&select=kwargs"), "{}", list.line);
        list.json(200, "[]").await;
    }

    /// Starts a run whose client reads only the head of the response. The client's socket buffers
    /// little.
    pub(crate) async fn unread_run(&self) -> (Response, Exchange) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 * 1024).unwrap();
        let mut socket = socket.connect(self.address).await.unwrap();
        let request = run_request("agent", "", &input(&["hi"]).to_string());
        socket.write_all(request.as_bytes()).await.unwrap();
        tokio::join!(Response::on(socket), async {
            self.state(None).await;
            self.stream().await
        })
    }

    /// Answers the request for the last state of the run.
    pub(crate) async fn history(&self, states: Value) {
        let post = self.upstream.expect(&format!("POST /threads/{THREAD}/history")).await;
        assert_eq!(post.body, json!({"limit": 1, "metadata": {"run_id": RUN}}).to_string());
        post.json(200, &states.to_string()).await;
    }

    /// Accepts the start of the run, and begins its stream.
    pub(crate) async fn stream(&self) -> Exchange {
        let mut post = self.upstream.expect(&format!("POST /threads/{THREAD}/runs/stream")).await;
        post.begin(&format!("content-location: /threads/{THREAD}/runs/{RUN}\r\n")).await;
        post
    }

    /// Answers the request for the run's record, and the one for the state of a run that was
    /// interrupted.
    pub(crate) async fn record(&self, status: &str) {
        self.status(status).await;
        if matches!(status, "interrupted" | "timeout") {
            self.state(None).await;
        }
    }

    /// Answers the request for the run's record.
    pub(crate) async fn status(&self, status: &str) {
        let get = self.upstream.expect(&format!("GET /threads/{THREAD}/runs/{RUN}")).await;
        get.json(200, &json!({"run_id": RUN, "status": status}).to_string()).await;
    }

    /// Accepts the join of the run, which must begin after this id.
    pub(crate) async fn joined_behind(&self, id: &str) -> Exchange {
        let line = format!("GET /threads/{THREAD}/runs/{RUN}/stream");
        let mut join = self.upstream.expect(&line).await;
        let asked = format!("\r\nlast-event-id: {id}\r\n");
        assert!(join.head.contains(&asked), "{}", join.head);
        join.begin("").await;
        join
    }

    /// Refuses every upstream request for this time, and all that follow the last refusal. Returns
    /// the requests.
    pub(crate) async fn refused_for(&self, clock: &HeldClock, time: Duration) -> Vec<String> {
        const REFUSAL: &str = r#"{"detail":"boom"}"#;
        const QUIET: u8 = 5;
        let (before, mut asked) = (self.answers_read(), Vec::new());
        let refuse = async {
            loop {
                let exchange = self.upstream.next().await;
                asked.push(exchange.line.clone());
                exchange.json(500, REFUSAL).await;
            }
        };
        tokio::select! {
            () = refuse => {}
            () = self.passes(clock, time) => {}
        }
        // The last step may have caused a request, and each refusal causes one more: a join, then
        // the record. After the last refusal the gateway waits for the clock.
        let mut quiet = 0;
        while quiet < QUIET {
            self.settled().await;
            if let Some(exchange) = self.upstream.waiting().await {
                asked.push(exchange.line.clone());
                exchange.json(500, REFUSAL).await;
                quiet = 0;
            } else if self.answers_read() - before >= asked.len() {
                quiet += 1;
            }
        }
        asked
    }

    /// How many responses of the upstream the gateway has read.
    fn answers_read(&self) -> usize {
        let text = self.metrics.text(Format::OpenMetrics);
        let lines =
            text.lines().filter(|line| line.starts_with("threadway_upstream_requests_total{"));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
    }

    /// Advances the clock, and lets the gateway do what is due.
    pub(crate) async fn passes(&self, clock: &HeldClock, time: Duration) {
        const STEP: Duration = Duration::from_millis(100);
        let over = tokio::time::Instant::now() + time;
        while tokio::time::Instant::now() < over {
            self.settled().await;
            clock.advance(STEP).await;
        }
        self.settled().await;
    }

    /// Connects to the thread and its live run, with this input.
    pub(crate) async fn connect(&self, input: &Value) -> Response {
        Response::to(self.address, connect_request("", input).as_bytes()).await
    }

    /// Connects to the thread as an `EventSource` does.
    pub(crate) async fn events(&self, query: &str) -> Response {
        Response::to(self.address, events_request("", query).as_bytes()).await
    }

    /// Answers a list of the thread's runs.
    pub(crate) async fn runs(&self, query: &str, runs: Value) {
        let line = format!("GET /threads/{THREAD}/runs?{query}{COLUMNS}");
        let get = self.upstream.expect(&line).await;
        get.json(200, &runs.to_string()).await;
    }

    /// Answers the lists of runs of a client that connects: no run is live.
    pub(crate) async fn no_live_runs(&self, over: Value) {
        self.runs("limit=100", over).await;
    }

    /// Another gateway in front of the same server.
    pub(crate) async fn replica(&self) -> (SocketAddr, CancellationToken, JoinSet<()>) {
        serve(agents(&[("default", &self.upstream.url())], &[]), Limits::default()).await
    }

    /// Waits until the gateway has processed all bytes and closes so far. A request on a later
    /// connection that is answered proves this.
    pub(crate) async fn settled(&self) {
        for _ in 0..3 {
            let request = b"GET /healthz HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
            let mut response = Response::to(self.address, request).await;
            assert_eq!(response.body().await, "ok\n");
        }
    }

    /// Waits until this many viewers are left: a busy machine may notice a closed connection late.
    pub(crate) async fn watched_by(&self, viewers: u8) {
        let viewers = f64::from(viewers);
        while counted(&self.metrics, "active_viewers").total_cmp(&viewers).is_ne() {
            self.settled().await;
        }
        self.settled().await;
    }

    pub(crate) async fn stopped(mut self) {
        while let Some(ended) = self.serving.join_next().await {
            ended.unwrap();
        }
    }
}

/// The agents of upstreams, given as pairs of name and URL, and their aliases.
pub(crate) fn agents(upstreams: &[(&str, &str)], aliases: &[(&str, &str)]) -> Agents {
    counted_agents(upstreams, aliases, &Metrics::default())
}

fn counted_agents(
    upstreams: &[(&str, &str)],
    aliases: &[(&str, &str)],
    metrics: &Metrics,
) -> Agents {
    let upstream = |(name, url): &(&str, &str)| {
        let client = Client::new(url.parse().unwrap(), None).unwrap().with_metrics(metrics);
        agents::Upstream { name: (*name).to_owned(), client }
    };
    let alias = |(alias, name): &(&str, &str)| ((*alias).to_owned(), (*name).to_owned());
    Agents::new(upstreams.iter().map(upstream).collect(), aliases.iter().map(alias).collect())
}

pub(crate) async fn serve(
    agents: Agents,
    limits: Limits,
) -> (SocketAddr, CancellationToken, JoinSet<()>) {
    let settings = Settings { limits, ..Settings::default() };
    let (address, stop, serving, _) = serve_as(agents, settings).await;
    (address, stop, serving)
}

/// Serves with settings of the test's choice; also returns the handle for a reload.
pub(crate) async fn serve_as(
    agents: Agents,
    settings: Settings,
) -> (SocketAddr, CancellationToken, JoinSet<()>, Arc<Server>) {
    serve_observed(agents, settings, Observer::default()).await
}

/// Serves with settings of the test's choice, and with the test's metrics.
pub(crate) async fn serve_observed(
    agents: Agents,
    settings: Settings,
    observer: Observer,
) -> (SocketAddr, CancellationToken, JoinSet<()>, Arc<Server>) {
    serve_on(Workers::current(), agents, settings, observer).await
}

async fn serve_on(
    workers: Workers,
    agents: Agents,
    settings: Settings,
    observer: Observer,
) -> (SocketAddr, CancellationToken, JoinSet<()>, Arc<Server>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let server = Arc::new(Server::new(agents, settings, observer, stop.clone()));
    let mut serving = JoinSet::new();
    let gateway = Arc::clone(&server);
    serving.spawn(async move { gateway.serve_on(&workers, listener).await });
    (address, stop, serving, server)
}

/// Lets time pass until this has happened.
pub(crate) async fn timely<T>(address: SocketAddr, happens: impl Future<Output = T>) -> T {
    const STEP: Duration = Duration::from_millis(100);
    let clock = HeldClock::pause();
    let passes = async {
        loop {
            let request = b"GET /healthz HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
            for _ in 0..3 {
                Response::to(address, request).await.body().await;
            }
            clock.advance(STEP).await;
        }
    };
    let happened = tokio::select! {
        biased;
        happened = happens => happened,
        never = passes => never,
    };
    drop(clock);
    tokio::time::resume();
    happened
}

/// The value of a series, named as `x{label="value"}`.
pub(crate) fn counted(metrics: &Metrics, series: &str) -> f64 {
    let text = metrics.text(Format::OpenMetrics);
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("threadway_"));
    let value = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {series} in\n{text}")).parse().unwrap()
}

// === impl Response ===

impl Response {
    /// Sends a request byte for byte, and reads the head of the response.
    pub(crate) async fn to(address: SocketAddr, request: &[u8]) -> Self {
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(request).await.unwrap();
        let response = Self::on(socket).await;
        // So every answer in every server test is checked against the OpenAPI document.
        if let Some(complaint) = super::openapi::complaint(request, &response.head) {
            panic!("{complaint}");
        }
        response
    }

    /// Reads the head of the next response on a connection.
    pub(crate) async fn on(socket: TcpStream) -> Self {
        let mut response = Self { socket, head: String::new(), raw: vec![], decoded: vec![] };
        response.read_head().await;
        response
    }

    /// The next SSE frame without its id, or the next NDJSON line; empty at the end of the body.
    pub(crate) async fn frame(&mut self) -> String {
        without_ids(&self.whole_frame().await)
    }

    /// The next frame with its id.
    pub(crate) async fn whole_frame(&mut self) -> String {
        let end: &[u8] = if self.head.contains("ndjson") { b"\n" } else { b"\n\n" };
        loop {
            if let Some(at) = find(&self.decoded, end) {
                return take(&mut self.decoded, at + end.len());
            }
            if !self.chunk().await {
                assert_eq!(self.decoded, b"", "the body ends inside a frame");
                return String::new();
            }
        }
    }

    /// The next `count` events, each in its own frame.
    pub(crate) async fn next(&mut self, count: usize) -> Vec<Value> {
        let mut events = Vec::new();
        while events.len() < count {
            let frame = self.frame().await;
            assert_ne!(frame, "", "the stream ended after {events:#?}");
            let data = frame.strip_prefix("data: ").unwrap_or(&frame);
            // The first comment of an SSE stream and its heartbeats are not events.
            if data.starts_with('{') {
                events.push(serde_json::from_str(data).unwrap());
            }
        }
        events
    }

    /// All remaining events.
    pub(crate) async fn rest(&mut self) -> Vec<Value> {
        events(&self.body().await)
    }

    /// All remaining lines.
    pub(crate) async fn rest_of_lines(&mut self) -> Vec<Value> {
        let body = self.body().await;
        body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The rest of the body, without the ids of its events.
    pub(crate) async fn body(&mut self) -> String {
        let length = self.head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if let Some(length) = length {
            let length = length.parse().unwrap();
            while self.raw.len() < length {
                self.read().await;
            }
            return take(&mut self.raw, length);
        }
        while self.chunk().await {}
        let length = self.decoded.len();
        without_ids(&take(&mut self.decoded, length))
    }

    /// The raw bytes of the rest of the body.
    pub(crate) async fn bytes(&mut self) -> Vec<u8> {
        while self.chunk().await {}
        std::mem::take(&mut self.decoded)
    }

    /// Decodes one chunk; false at the end of the body.
    pub(crate) async fn chunk(&mut self) -> bool {
        let size = self.raw_until(b"\r\n").await;
        let size = usize::from_str_radix(size.trim_end(), 16).unwrap();
        while self.raw.len() < size + 2 {
            self.read().await;
        }
        self.decoded.extend(self.raw.drain(..size));
        assert_eq!(take(&mut self.raw, 2), "\r\n");
        size > 0
    }

    pub(crate) async fn raw_until(&mut self, end: &[u8]) -> String {
        loop {
            if let Some(at) = find(&self.raw, end) {
                return take(&mut self.raw, at + end.len());
            }
            self.read().await;
        }
    }

    /// Sends another request on the same connection, and reads the head of its response.
    pub(crate) async fn again(&mut self, request: &[u8]) {
        self.socket.write_all(request).await.unwrap();
        self.read_head().await;
    }

    async fn read_head(&mut self) {
        let head = self.raw_until(b"\r\n\r\n").await;
        let head = head.split_inclusive("\r\n").filter(|line| !line.starts_with("date: "));
        self.head = head.collect();
    }

    /// Waits until the gateway has closed the connection, and checks that it sent nothing more.
    pub(crate) async fn closed(mut self) {
        assert_eq!(self.raw, b"", "bytes came after the response");
        assert_eq!(self.socket.read(&mut [0]).await.unwrap(), 0, "bytes came after the response");
    }

    pub(crate) async fn read(&mut self) {
        let count = self.socket.read_buf(&mut self.raw).await.unwrap();
        assert_ne!(count, 0, "the connection closed after {:?}", self.head);
    }
}

fn without_ids(frames: &str) -> String {
    frames.split_inclusive('\n').filter(|line| !line.starts_with("id: ")).collect()
}

pub(crate) fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes.windows(pattern.len()).position(|window| window == pattern)
}

pub(crate) fn take(bytes: &mut Vec<u8>, count: usize) -> String {
    String::from_utf8(bytes.drain(..count).collect()).unwrap()
}

// === requests and expected answers ===

pub(crate) async fn post(address: SocketAddr, headers: &str, body: &str) -> Response {
    Response::to(address, run_request("agent", headers, body).as_bytes()).await
}

pub(crate) async fn run_agent(address: SocketAddr, agent: &str, body: &Value) -> Response {
    Response::to(address, run_request(agent, "", &body.to_string()).as_bytes()).await
}

pub(crate) fn connect_request(headers: &str, input: &Value) -> String {
    let body = input.to_string();
    format!(
        "POST /agui/agent/agent/connect HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n\
         {headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub(crate) fn events_request(headers: &str, query: &str) -> String {
    format!(
        "GET /agui/agent/agent/threads/{THREAD}/events{query} HTTP/1.1\r\nhost: h\r\n{headers}\r\n"
    )
}

pub(crate) fn run_request(agent: &str, headers: &str, body: &str) -> String {
    format!(
        "POST /agui/agent/{agent}/run HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n\
         {headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A client's input with these messages: alternately the user's and the agent's.
pub(crate) fn input(messages: &[&str]) -> Value {
    let message = |(at, text): (usize, &&str)| {
        let role = if at % 2 == 0 { "user" } else { "assistant" };
        json!({"id": format!("m{at}"), "role": role, "content": text})
    };
    let messages: Vec<_> = messages.iter().enumerate().map(message).collect();
    json!({"threadId": THREAD, "runId": "r1", "protocolVersion": "1.0", "messages": messages})
}

/// The same messages as LangGraph's state has them.
pub(crate) fn values(messages: &[&str]) -> Value {
    let message = |(at, text): (usize, &&str)| {
        let kind = if at % 2 == 0 { "human" } else { "ai" };
        json!({"id": format!("m{at}"), "type": kind, "content": text})
    };
    json!({"messages": messages.iter().enumerate().map(message).collect::<Vec<_>>()})
}

pub(crate) fn part(event: &str, data: &Value) -> String {
    format!("event: {event}\r\ndata: {data}\r\n\r\n")
}

/// The upstream part with one token of a message.
pub(crate) fn token(id: &str, text: &str) -> String {
    let chunk = json!({"type": "AIMessageChunk", "id": id, "content": text});
    part("messages", &json!([chunk, {}]))
}

pub(crate) fn data(event: &str) -> String {
    format!("data: {event}\n\n")
}

pub(crate) fn started() -> String {
    data(&format!(
        r#"{{"type":"RUN_STARTED","threadId":"{THREAD}","runId":"r1","protocolVersion":"1.0","metadata":{{"langgraph":{{"thread_id":"{THREAD}","run_id":"{RUN}"}}}}}}"#
    ))
}

/// The events for the first token of a message, as the client gets them.
pub(crate) fn told(id: &str, text: &str) -> String {
    data(&format!(r#"{{"type":"TEXT_MESSAGE_START","messageId":"{id}","role":"assistant"}}"#))
        + &data(&format!(
            r#"{{"type":"TEXT_MESSAGE_CONTENT","messageId":"{id}","delta":"{text}"}}"#
        ))
}

pub(crate) fn closed(id: &str) -> String {
    data(&format!(r#"{{"type":"TEXT_MESSAGE_END","messageId":"{id}"}}"#))
}

pub(crate) fn failed(message: &str, code: &str) -> String {
    data(&format!(r#"{{"type":"RUN_ERROR","message":"{message}","code":"{code}"}}"#))
}

pub(crate) fn finished(outcome: &str) -> String {
    data(&format!(
        r#"{{"type":"RUN_FINISHED","threadId":"{THREAD}","runId":"r1","outcome":{{"type":"{outcome}"}}}}"#
    ))
}

/// The events of an SSE body, whose frames have one data line each.
pub(crate) fn events(body: &str) -> Vec<Value> {
    if body.is_empty() {
        return Vec::new();
    }
    let frames = body.strip_suffix("\n\n").expect("the body ends with a frame").split("\n\n");
    let data = frames.filter_map(|frame| frame.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// A refusal: its status line and its body.
pub(crate) fn refusal(status: &str, error: &str, message: &str) -> (String, String) {
    let status = format!("HTTP/1.1 {status}");
    (status, format!("{{\"error\":\"{error}\",\"message\":\"{message}\"}}\n"))
}

pub(crate) async fn refused(response: &mut Response) -> (String, String) {
    assert!(response.head.contains("content-type: application/json\r\n"), "{}", response.head);
    (response.head.lines().next().unwrap().to_owned(), response.body().await)
}

// === the events of a text ===

pub(crate) fn start(id: &str) -> Value {
    json!({"type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant"})
}

pub(crate) fn says(id: &str, text: &str) -> Value {
    json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": text})
}

pub(crate) fn end(id: &str) -> Value {
    json!({"type": "TEXT_MESSAGE_END", "messageId": id})
}
