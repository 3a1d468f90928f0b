//! The load client: starts a run, reads its stream on either wire, and checks that it is all
//! there.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LOCATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::Response;
use hyper::body::Incoming;
use memchr::{memchr, memmem};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::listen::connect;
use crate::script::Script;
use crate::text::{Hearing, now};

/// Whatever went wrong: the benchmark tells it and stops.
pub(crate) type Fault = Box<dyn Error + Send + Sync>;

/// How long a run may take before it counts as lost.
const PATIENCE: Duration = Duration::from_mins(2);

/// Where runs are started, and what is spoken there.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) wire: Wire,
}

/// What a run's stream is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    /// LangGraph's parts.
    LangGraph,
    /// AG-UI's events.
    Agui,
}

/// How far all streams of a scenario are.
#[derive(Default)]
pub(crate) struct Progress {
    /// How many have begun.
    pub(crate) started: AtomicUsize,
    /// How many have brought a token.
    pub(crate) speaking: AtomicUsize,
    /// How many tokens came.
    pub(crate) tokens: AtomicU64,
    /// How often a stream that had fallen behind was told all so far.
    pub(crate) resyncs: AtomicU64,
}

/// What a whole run has brought; times are nanoseconds.
pub(crate) struct Heard {
    /// From the upstream's headers to the response's, or to `RUN_STARTED`.
    pub(crate) start: u64,
    /// From a token's making to its coming.
    pub(crate) latencies: Vec<u64>,
}

/// One stream being read.
struct Reader<'a> {
    wire: Wire,
    progress: &'a Progress,
    /// The beginning of a line whose end has not come.
    half: Vec<u8>,
    /// The event name of the frame that is being read.
    event: String,
    start: Option<u64>,
    hearing: Hearing,
    state: State,
}

/// How far a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Begun,
    Started,
    /// The last frame of all may have come: AG-UI's has, one of LangGraph's may be followed.
    Ended,
}

/// What is looked at in an AG-UI event.
#[derive(Deserialize)]
struct Event<'a> {
    r#type: &'a str,
    #[serde(default)]
    delta: Option<Value>,
    #[serde(default)]
    outcome: Value,
    #[serde(default)]
    metadata: Value,
    #[serde(default)]
    messages: Vec<Message>,
}

/// What is looked at in a message of a snapshot.
#[derive(Deserialize)]
struct Message {
    role: String,
    content: Option<String>,
}

/// Starts the run that `script` asks for, on a thread of its own, and reads it to its end.
pub(crate) async fn run(
    target: Target,
    script: Script,
    thread: u64,
    progress: &Progress,
) -> Result<Heard, Fault> {
    let read = async {
        let response = start(target, script, thread).await?;
        read(response, target.wire, script.tokens, progress).await
    };
    let read = tokio::time::timeout(PATIENCE, read).await;
    let read = read.unwrap_or_else(|late| Err(late.into()));
    read.map_err(|fault| format!("run {thread}: {fault}").into())
}

/// Joins a run that is under way, at a path of the target, and reads it to its end.
pub(crate) async fn view(
    target: Target,
    path: &'static str,
    tokens: u64,
    progress: &Progress,
) -> Result<Heard, Fault> {
    let read = async {
        let response = post(target.address, path, String::new()).await?;
        read(response, target.wire, tokens, progress).await
    };
    tokio::time::timeout(PATIENCE, read).await.unwrap_or_else(|late| Err(late.into()))
}

/// Reads a stream to its end: a whole one, with so many tokens.
async fn read(
    mut response: Response<Incoming>,
    wire: Wire,
    tokens: u64,
    progress: &Progress,
) -> Result<Heard, Fault> {
    let mut reader = Reader::new(wire, progress);
    reader.headers(response.headers())?;
    while let Some(frame) = response.body_mut().frame().await {
        if let Ok(bytes) = frame?.into_data() {
            reader.bytes(&bytes, now())?;
        }
    }
    reader.finish(tokens)
}

/// Sends a request without waiting for more than the response's headers.
pub(crate) async fn post(
    address: SocketAddr,
    path: &str,
    body: String,
) -> Result<Response<Incoming>, Fault> {
    let request = Request::post(path)
        .header(HOST, address.to_string())
        .header(CONTENT_TYPE, "application/json")
        .body(Full::<Bytes>::from(body))?;
    let response = connect(address).await?.send_request(request).await?;
    if response.status() == StatusCode::OK {
        return Ok(response);
    }
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    Err(format!("POST {path}: {status}, {}", String::from_utf8_lossy(&body)).into())
}

/// Starts the run that `script` asks for, on a thread of its own.
pub(crate) async fn start(
    target: Target,
    script: Script,
    thread: u64,
) -> Result<Response<Incoming>, Fault> {
    let thread_id = Uuid::from_u128(u128::from(thread)).to_string();
    let text = serde_json::to_string(&script)?;
    let (path, body) = match target.wire {
        Wire::LangGraph => {
            let message = json!({ "type": "human", "content": text, "id": "m1" });
            let input = json!({ "assistant_id": "agent", "input": { "messages": [message] } });
            (format!("/threads/{thread_id}/runs/stream"), input)
        }
        Wire::Agui => {
            let message = json!({ "role": "user", "content": text, "id": "m1" });
            let input = json!({
                "protocolVersion": "1.0", "threadId": thread_id, "runId": format!("run-{thread}"),
                "messages": [message], "state": {}, "tools": [], "context": [],
                "forwardedProps": {},
            });
            ("/agui/agent/agent/run".to_owned(), input)
        }
    };
    post(target.address, &path, body.to_string()).await
}

/// How long ago the upstream made this run's id, which it does when it sends its headers.
fn since_headers(run_id: &str) -> Result<u64, Fault> {
    let (_, sent) = Uuid::try_parse(run_id)?.as_u64_pair();
    Ok(now().saturating_sub(sent))
}

// === impl Reader ===

impl<'a> Reader<'a> {
    fn new(wire: Wire, progress: &'a Progress) -> Self {
        Self {
            wire,
            progress,
            half: Vec::new(),
            event: String::new(),
            start: None,
            hearing: Hearing::default(),
            state: State::Begun,
        }
    }

    /// On LangGraph's wire the headers name the run.
    fn headers(&mut self, headers: &HeaderMap) -> Result<(), Fault> {
        if self.wire == Wire::LangGraph {
            let location = headers.get(CONTENT_LOCATION).ok_or("no content-location came")?;
            let run_id = location.to_str()?.rsplit('/').next().unwrap_or_default();
            self.start = Some(since_headers(run_id)?);
        }
        Ok(())
    }

    fn bytes(&mut self, mut bytes: &[u8], now: u64) -> Result<(), Fault> {
        while let Some(end) = memchr(b'\n', bytes) {
            let (line, rest) = bytes.split_at(end + 1);
            if self.half.is_empty() {
                self.line(line, now)?;
            } else {
                let mut whole = std::mem::take(&mut self.half);
                whole.extend_from_slice(line);
                self.line(&whole, now)?;
                whole.clear();
                self.half = whole;
            }
            bytes = rest;
        }
        self.half.extend_from_slice(bytes);
        Ok(())
    }

    fn line(&mut self, line: &[u8], now: u64) -> Result<(), Fault> {
        let line = std::str::from_utf8(line)?.trim_end_matches(['\r', '\n']);
        if let Some(event) = line.strip_prefix("event: ") {
            event.clone_into(&mut self.event);
        } else if let Some(data) = line.strip_prefix("data: ") {
            match self.wire {
                Wire::LangGraph => self.part(data, now)?,
                Wire::Agui => self.agui_event(data, now)?,
            }
        }
        Ok(())
    }

    /// A token's text is cut out: parsing a part ten times as long as an event would make the
    /// floor look slow.
    fn part(&mut self, data: &str, now: u64) -> Result<(), Fault> {
        match (self.state, &*self.event) {
            (State::Begun, "metadata") => self.started(),
            (State::Started | State::Ended, "values") => self.state = State::Ended,
            (State::Started | State::Ended, "messages") => {
                self.state = State::Started;
                let text = memmem::find(data.as_bytes(), b"\"text\":\"").map(|at| &data[at + 8..]);
                let text = text.and_then(|rest| rest.split_once('"'));
                self.hear(text.map_or("", |(text, _)| text), now)?;
            }
            (State::Started, "updates") => {}
            (state, event) => return Err(format!("{event} came when {state:?}: {data}").into()),
        }
        Ok(())
    }

    fn agui_event(&mut self, data: &str, now: u64) -> Result<(), Fault> {
        let event: Event<'_> = serde_json::from_str(data)?;
        match (self.state, event.r#type) {
            (State::Begun, "RUN_STARTED") => {
                let run_id = event.metadata.pointer("/langgraph/run_id").and_then(Value::as_str);
                self.start = Some(since_headers(run_id.unwrap_or_default())?);
                self.started();
            }
            (State::Started, "TEXT_MESSAGE_CONTENT") => {
                let delta = event.delta.as_ref().and_then(Value::as_str);
                self.hear(delta.ok_or("a text without delta")?, now)?;
            }
            (State::Started, "RUN_FINISHED")
                if event.outcome.get("type") == Some(&json!("success")) =>
            {
                self.state = State::Ended;
            }
            (State::Started, "MESSAGES_SNAPSHOT") => {
                let mut said = event.messages.iter().filter(|message| message.role == "assistant");
                if let Some(text) = said.next_back().and_then(|message| message.content.as_ref()) {
                    let tokens = self.hearing.catch_up(text)?;
                    self.progress.tokens.fetch_add(tokens, Ordering::Relaxed);
                    self.progress.resyncs.fetch_add(1, Ordering::Relaxed);
                }
            }
            (
                State::Started,
                "STATE_SNAPSHOT" | "STATE_DELTA" | "STEP_STARTED" | "STEP_FINISHED"
                | "TEXT_MESSAGE_START" | "TEXT_MESSAGE_END",
            ) => {}
            (state, _) => return Err(format!("when {state:?} came {data}").into()),
        }
        Ok(())
    }

    fn started(&mut self) {
        self.state = State::Started;
        self.progress.started.fetch_add(1, Ordering::Relaxed);
    }

    fn hear(&mut self, text: &str, now: u64) -> Result<(), Fault> {
        let is_first = self.hearing.tokens() == 0;
        let tokens = self.hearing.hear(text, now)?;
        self.progress.tokens.fetch_add(tokens, Ordering::Relaxed);
        if is_first && tokens > 0 {
            self.progress.speaking.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn finish(self, tokens: u64) -> Result<Heard, Fault> {
        if self.state != State::Ended || !self.half.is_empty() {
            return Err(format!("the stream ended when {:?}", self.state).into());
        }
        let start = self.start.ok_or("nothing told when the run started")?;
        Ok(Heard { start, latencies: self.hearing.finish(tokens)? })
    }
}
