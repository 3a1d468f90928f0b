//! A stream of any of the servers, as its client reads it. Each token must come once, in order.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Duration, sleep};

use crate::client::{Fault, named, thread_id};
use crate::lines::Lines;
use crate::listen::connect;
use crate::script::Script;
use crate::text::{Hearing, now};
use crate::upstream::lock;

/// A server, and how its clients use it.
#[derive(Clone, Deserialize)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) wire: Wire,
    /// The path of the request that starts a run; `{thread}` and `{run}` stand for ids.
    pub(crate) run: String,
    /// How a viewer asks for a run that another client has started.
    pub(crate) view: Option<View>,
    /// How its official client comes back after a lost connection.
    pub(crate) resume: Option<Resume>,
}

/// The protocol of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Wire {
    /// LangGraph's parts.
    LangGraph,
    /// AG-UI's events.
    Agui,
}

#[derive(Clone, Deserialize)]
pub(crate) struct View {
    #[serde(default)]
    pub(crate) is_post: bool,
    pub(crate) path: String,
}

#[derive(Clone, Copy, Deserialize)]
pub(crate) struct Resume {
    /// How long the client waits before it connects again, unless the server has said so.
    pub(crate) delay_ms: u64,
    /// How often it connects without an event before it gives up.
    pub(crate) attempts: Option<u32>,
}

/// The ids of a run.
#[derive(Clone)]
pub(crate) struct Ids {
    pub(crate) thread: String,
    pub(crate) run: String,
}

/// What all streams of a scene have received.
#[derive(Default)]
pub(crate) struct Seen {
    /// How many streams have brought a token.
    pub(crate) speaking: AtomicUsize,
    pub(crate) tokens: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// How often a snapshot brought tokens that no event had brought.
    pub(crate) snapshots: AtomicUsize,
    /// Whether the latency of each token is recorded.
    pub(crate) is_measured: AtomicBool,
    pub(crate) latencies: Mutex<Vec<u64>>,
}

/// The state of one stream, over all of its connections.
pub(crate) struct Stream {
    wire: Wire,
    seen: Arc<Seen>,
    lines: Lines,
    /// The event name of the part that is being read.
    event: String,
    pub(crate) hearing: Hearing,
    pub(crate) is_over: bool,
    /// The id of the event that is being read, and that of the last whole one.
    next_id: Option<String>,
    pub(crate) last_id: Option<String>,
    /// How long the server asks its clients to wait before they connect again.
    pub(crate) retry: Option<u64>,
    /// When the server was killed. The first token of a later time that arrives within a second
    /// makes the stream live again.
    pub(crate) told: Option<watch::Receiver<u64>>,
    pub(crate) live_at: Option<u64>,
}

/// The age at which a token counts as live.
const LIVE_NS: u64 = 1_000_000_000;

/// The members of an AG-UI event that are read.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow, default)]
    delta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    messages: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
}

// === impl Ids ===

impl Ids {
    /// Those of the run with this number.
    pub(crate) fn new(number: u64) -> Self {
        Self { thread: thread_id(number), run: thread_id(number | 1 << 63) }
    }

    fn fill(&self, path: &str) -> String {
        path.replace("{thread}", &self.thread).replace("{run}", &self.run)
    }
}

// === impl Peer ===

impl Peer {
    /// Starts a run. On LangGraph's wire the response tells the run's id.
    pub(crate) async fn start(
        &self,
        ids: &mut Ids,
        script: Script,
    ) -> Result<Response<Incoming>, Fault> {
        let text = serde_json::to_string(&script)?;
        let body = match self.wire {
            Wire::LangGraph => json!({
                "assistant_id": "agent", "stream_resumable": true,
                "stream_mode": ["values", "messages-tuple", "updates", "custom"],
                "input": { "messages": [{ "type": "human", "content": text, "id": "m1" }] },
            }),
            Wire::Agui => input(ids, &json!([{ "role": "user", "content": text, "id": "m1" }])),
        };
        let response = self.send(Method::POST, ids.fill(&self.run), None, body.to_string()).await?;
        if self.wire == Wire::LangGraph {
            ids.run = named(response.headers())?;
        }
        Ok(response)
    }

    /// Asks for a run, or for its rest after this event.
    pub(crate) async fn view(
        &self,
        ids: &Ids,
        last_id: Option<&str>,
    ) -> Result<Response<Incoming>, Fault> {
        let view = self.view.as_ref().ok_or("the server has no request for viewers")?;
        let (method, body) = if view.is_post {
            (Method::POST, input(ids, &json!([])).to_string())
        } else {
            (Method::GET, String::new())
        };
        self.send(method, ids.fill(&view.path), last_id, body).await
    }

    async fn send(
        &self,
        method: Method,
        path: String,
        last_id: Option<&str>,
        body: String,
    ) -> Result<Response<Incoming>, Fault> {
        let mut request = Request::builder().method(&method).uri(&path);
        request =
            request.header(HOST, self.address.to_string()).header(ACCEPT, "text/event-stream");
        if method == Method::POST {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(id) = last_id {
            request = request.header("last-event-id", id);
        }
        let request = request.body(Full::<Bytes>::from(body))?;
        let response = connect(self.address).await?.send_request(request).await?;
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        Err(format!("{method} {path}: {status}, {}", String::from_utf8_lossy(&body)).into())
    }

    /// Starts a run and reads it to its end.
    pub(crate) async fn run(
        &self,
        number: u64,
        script: Script,
        seen: &Arc<Seen>,
    ) -> Result<(), Fault> {
        let response = self.start(&mut Ids::new(number), script).await?;
        let mut stream = Stream::new(self.wire, Arc::clone(seen));
        stream.read(response).await?;
        stream.finish(script.tokens)
    }

    /// Reads a run to its end as the official client does that has begun with this response. Fails
    /// when that client gives up, which may be at once.
    pub(crate) async fn follow(
        &self,
        first: Result<Response<Incoming>, Fault>,
        ids: &Ids,
        stream: &mut Stream,
    ) -> Result<(), Fault> {
        let mut response = first;
        let mut attempts = 0;
        loop {
            let before = stream.last_id.clone();
            let read = match response {
                Ok(response) => stream.read(response).await,
                Err(fault) => Err(fault),
            };
            if stream.is_over {
                return Ok(());
            }
            let was_read = read.is_ok();
            let fault = read.err().unwrap_or_else(|| "the stream ended early".into());
            // A refusal and a failed run are final, for an `EventSource` too.
            let is_broken = fault.is::<hyper::Error>() || fault.is::<io::Error>() || was_read;
            let Some(Resume { delay_ms, attempts: most }) = self.resume.filter(|_| is_broken)
            else {
                return Err(fault);
            };
            attempts = if stream.last_id == before { attempts + 1 } else { 0 };
            if most.is_some_and(|most| attempts > most) {
                return Err(fault);
            }
            sleep(Duration::from_millis(stream.retry.unwrap_or(delay_ms))).await;
            response = self.view(ids, stream.last_id.as_deref()).await;
        }
    }
}

fn input(Ids { thread, run }: &Ids, messages: &Value) -> Value {
    json!({
        "protocolVersion": "1.0", "threadId": thread, "runId": run, "messages": messages,
        "state": {}, "tools": [], "context": [], "forwardedProps": {},
    })
}

// === impl Stream ===

impl Stream {
    pub(crate) fn new(wire: Wire, seen: Arc<Seen>) -> Self {
        Self {
            wire,
            seen,
            lines: Lines::default(),
            event: String::new(),
            hearing: Hearing::default(),
            is_over: false,
            next_id: None,
            last_id: None,
            retry: None,
            told: None,
            live_at: None,
        }
    }

    /// Reads a response to its end.
    pub(crate) async fn read(&mut self, mut response: Response<Incoming>) -> Result<(), Fault> {
        self.lines = Lines::default();
        self.next_id = None;
        while let Some(frame) = response.body_mut().frame().await {
            let Ok(bytes) = frame?.into_data() else { continue };
            self.seen.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            self.bytes(&bytes, now())?;
        }
        Ok(())
    }

    fn bytes(&mut self, mut bytes: &[u8], now: u64) -> Result<(), Fault> {
        while let Some(line) = self.lines.next(&mut bytes) {
            self.line(&line, now)?;
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8], now: u64) -> Result<(), Fault> {
        let line = std::str::from_utf8(line)?.trim_end_matches(['\r', '\n']);
        if let Some(data) = line.strip_prefix("data: ") {
            return match self.wire {
                Wire::LangGraph => self.part(data, now),
                Wire::Agui => self.agui_event(data, now),
            };
        }
        if let Some(event) = line.strip_prefix("event: ") {
            event.clone_into(&mut self.event);
        } else if let Some(id) = line.strip_prefix("id: ") {
            self.next_id = Some(id.to_owned());
        } else if let Some(retry) = line.strip_prefix("retry: ") {
            self.retry = retry.parse().ok();
        } else if line.is_empty() && self.next_id.is_some() {
            self.last_id = self.next_id.take();
        }
        Ok(())
    }

    /// Cuts out the token's text without parsing: parsing a part, which is ten times as long as an
    /// event, would make the pass-through look slow.
    fn part(&mut self, data: &str, now: u64) -> Result<(), Fault> {
        match &*self.event {
            "messages" => {
                let before = b"\"content\":\"";
                let text =
                    memmem::find(data.as_bytes(), before).map(|at| &data[at + before.len()..]);
                let text = text.and_then(|rest| rest.split_once('"'));
                self.hear(text.map_or("", |(text, _)| text), now)
            }
            // A run ends with its values; a stream also begins with some.
            "values" if self.hearing.tokens() > 0 => {
                self.is_over = true;
                Ok(())
            }
            "error" => Err(data.into()),
            _ => Ok(()),
        }
    }

    fn agui_event(&mut self, data: &str, now: u64) -> Result<(), Fault> {
        let event: Event<'_> = serde_json::from_str(data)?;
        match &*event.r#type {
            "TEXT_MESSAGE_CONTENT" | "TEXT_MESSAGE_CHUNK" => {
                let delta = event.delta.ok_or("a text without delta")?;
                let delta: Cow<'_, str> = serde_json::from_str(delta.get())?;
                // A user's message may be sent as text too, and has no tokens.
                if delta.starts_with('{') { Ok(()) } else { self.hear(&delta, now) }
            }
            "MESSAGES_SNAPSHOT" => {
                let messages: Vec<Value> = event
                    .messages
                    .map_or(Ok(Vec::new()), |messages| serde_json::from_str(messages.get()))?;
                let last = messages
                    .last()
                    .filter(|message| message.get("role") == Some(&json!("assistant")));
                if let Some(text) = last.and_then(|message| message.get("content")?.as_str())
                    && !text.is_empty()
                {
                    let new = self.hearing.catch_up(text)?;
                    if new > 0 {
                        self.seen.snapshots.fetch_add(1, Ordering::Relaxed);
                        if self.hearing.tokens() == new {
                            self.seen.speaking.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
                Ok(())
            }
            "RUN_FINISHED" => {
                self.is_over = true;
                if self.told.as_ref().is_some_and(|told| *told.borrow() < now) {
                    self.live_at.get_or_insert(now);
                }
                Ok(())
            }
            "RUN_ERROR" => Err(event.message.map_or(data, RawValue::get).into()),
            _ => Ok(()),
        }
    }

    fn hear(&mut self, text: &str, now: u64) -> Result<(), Fault> {
        let is_first = self.hearing.tokens() == 0;
        let tokens = self.hearing.hear(text, now)?;
        if tokens == 0 {
            return Ok(());
        }
        self.seen.tokens.fetch_add(tokens, Ordering::Relaxed);
        if is_first {
            self.seen.speaking.fetch_add(1, Ordering::Relaxed);
        }
        let latencies = self.hearing.take_latencies();
        if let (None, Some(told)) = (self.live_at, &self.told) {
            let cut_at = *told.borrow();
            let is_live = |age: &u64| *age < LIVE_NS && now - *age > cut_at;
            self.live_at = latencies.last().filter(|age| is_live(age)).map(|_| now);
        }
        if self.seen.is_measured.load(Ordering::Relaxed) {
            lock(&self.seen.latencies).extend(latencies);
        }
        Ok(())
    }

    /// Checks that the stream has ended, and has brought everything.
    pub(crate) fn finish(self, tokens: u64) -> Result<(), Fault> {
        if !self.is_over {
            return Err(
                format!("the stream ended early, after {} tokens", self.hearing.tokens()).into()
            );
        }
        self.hearing.finish(Some(tokens))?;
        Ok(())
    }
}
