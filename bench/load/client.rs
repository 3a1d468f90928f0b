//! The load client: starts a run, reads its stream in either protocol, and checks that it is
//! complete.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LOCATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, Request, StatusCode, request};
use http_body_util::{BodyExt, Full};
use hyper::Response;
use hyper::body::Incoming;
use memchr::memmem;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::lines::Lines;
use crate::listen::connect;
use crate::script::Script;
pub(crate) use crate::stored::thread_id;
use crate::text::{Hearing, now};

/// Any error: the benchmark prints it and stops.
pub(crate) type Fault = Box<dyn Error + Send + Sync>;

/// How long a run may take before it counts as lost.
const PATIENCE: Duration = Duration::from_mins(2);

/// The address of the server, and its protocol.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) wire: Wire,
}

/// The protocol of a run's stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    /// LangGraph's parts.
    LangGraph,
    /// AG-UI's events.
    Agui,
}

/// The progress of all streams of a scenario.
#[derive(Default)]
pub(crate) struct Progress {
    /// How many streams have begun.
    pub(crate) started: AtomicUsize,
    /// How many streams have delivered a token.
    pub(crate) speaking: AtomicUsize,
    /// How many streams that joined a run have caught up.
    pub(crate) live: AtomicUsize,
    /// How many tokens arrived.
    pub(crate) tokens: AtomicU64,
    /// How often a stream that had fallen too far back got a snapshot.
    pub(crate) resyncs: AtomicU64,
}

/// The result of a whole run; times are in nanoseconds.
pub(crate) struct Heard {
    /// From the upstream's headers to the response's headers, or to `RUN_STARTED`.
    pub(crate) start: u64,
    /// From the creation of each token to its arrival.
    pub(crate) latencies: Vec<u64>,
}

/// A run to join.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) thread: u64,
    pub(crate) run_id: String,
    /// How many tokens the run has sent. A client that has as many of them, and at least one event,
    /// has caught up.
    pub(crate) said: u64,
}

/// How long a client that joins a run reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    Live,
    /// To the run's end, which must bring this many tokens, if the number is known.
    End(Option<u64>),
}

/// The times of a client that joined a run, on the clock that all processes share.
#[derive(Clone, Copy, Default)]
pub(crate) struct Joined {
    /// When the client sent its request.
    pub(crate) asked: u64,
    /// When the first byte of the body arrived.
    pub(crate) first: u64,
    /// When `RUN_STARTED`, or LangGraph's equivalent, arrived.
    pub(crate) started: u64,
    /// When the client had caught up.
    pub(crate) live: u64,
    /// How many bytes of the body arrived until then, and how many bytes of text they contain.
    pub(crate) bytes: u64,
    pub(crate) messages: u64,
}

/// A stream that is being read.
struct Reader<'a> {
    wire: Wire,
    progress: &'a Progress,
    lines: Lines,
    /// The event name of the frame that is being read.
    event: String,
    start: Option<u64>,
    hearing: Hearing,
    state: State,
    joining: Option<Joining>,
}

/// The state of a reader that joins a run.
#[derive(Default)]
struct Joining {
    said: u64,
    joined: Joined,
    is_live: bool,
}

/// The progress of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Begun,
    Started,
    /// The last expected frame may have arrived. AG-UI has no frame after it, LangGraph may have.
    Ended,
}

/// The members of an AG-UI event that are read.
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

/// The members of a snapshot's message that are read.
#[derive(Deserialize)]
struct Message {
    role: String,
    content: Option<String>,
}

/// Starts the run that `script` describes, on a new thread, and reads it to its end.
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

/// Joins a live run and reads it.
pub(crate) async fn join(
    target: Target,
    run: &Live,
    until: Until,
    progress: &Progress,
) -> Result<Joined, Fault> {
    let read = async {
        let asked = now();
        let mut response = ask_to_join(target, run).await?;
        let mut reader = Reader::new(target.wire, progress);
        let joined = Joined { asked, ..Joined::default() };
        reader.joining = Some(Joining { said: run.said, joined, is_live: false });
        reader.headers(response.headers())?;
        let mut is_live = false;
        while until != Until::Live || !is_live {
            let Some(frame) = response.body_mut().frame().await else { break };
            if let Ok(bytes) = frame?.into_data() {
                reader.bytes(&bytes, now())?;
            }
            is_live = reader.joining.as_ref().is_some_and(|joining| joining.is_live);
        }
        let joining = reader.joining.take().filter(|joining| joining.is_live);
        let joined = joining.ok_or("the run was over before its joiner was live")?.joined;
        if let Until::End(tokens) = until {
            reader.finish(tokens)?;
        }
        Ok(joined)
    };
    let read = tokio::time::timeout(PATIENCE, read).await;
    let read = read.unwrap_or_else(|late| Err(late.into()));
    read.map_err(|fault: Fault| format!("a joiner of run {}: {fault}", run.thread).into())
}

async fn ask_to_join(target: Target, run: &Live) -> Result<Response<Incoming>, Fault> {
    let thread_id = thread_id(run.thread);
    match target.wire {
        Wire::LangGraph => {
            let path = format!("/threads/{thread_id}/runs/{}/stream", run.run_id);
            send(target.address, Request::get(path).header("last-event-id", "-1"), String::new())
                .await
        }
        Wire::Agui => {
            let input = json!({
                "protocolVersion": "1.0", "threadId": thread_id, "runId": "joiner",
                "messages": [], "state": {}, "tools": [], "context": [], "forwardedProps": {},
            });
            post(target.address, "/agui/agent/agent/connect", input.to_string()).await
        }
    }
}

/// Reads a stream to its end, and checks that it is complete and has this many tokens.
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
    reader.finish(Some(tokens))
}

/// Sends a POST; returns when the response's headers have arrived.
pub(crate) async fn post(
    address: SocketAddr,
    path: &str,
    body: String,
) -> Result<Response<Incoming>, Fault> {
    send(address, Request::post(path), body).await
}

pub(crate) async fn send(
    address: SocketAddr,
    request: request::Builder,
    body: String,
) -> Result<Response<Incoming>, Fault> {
    let request = request
        .header(HOST, address.to_string())
        .header(CONTENT_TYPE, "application/json")
        .body(Full::<Bytes>::from(body))?;
    let asked = format!("{} {}", request.method(), request.uri());
    let response = connect(address).await?.send_request(request).await?;
    if response.status() == StatusCode::OK {
        return Ok(response);
    }
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    Err(format!("{asked}: {status}, {}", String::from_utf8_lossy(&body)).into())
}

/// Starts the run that `script` describes, on a new thread.
pub(crate) async fn start(
    target: Target,
    script: Script,
    thread: u64,
) -> Result<Response<Incoming>, Fault> {
    let thread_id = thread_id(thread);
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

/// The run id in the headers of a stream.
pub(crate) fn named(headers: &HeaderMap) -> Result<String, Fault> {
    let location = headers.get(CONTENT_LOCATION).ok_or("no content-location came")?;
    Ok(location.to_str()?.rsplit('/').next().unwrap_or_default().to_owned())
}

/// How long ago the upstream made this run's id, which is when it sent its headers.
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
            lines: Lines::default(),
            event: String::new(),
            start: None,
            hearing: Hearing::default(),
            state: State::Begun,
            joining: None,
        }
    }

    /// On LangGraph's wire the headers name the run.
    fn headers(&mut self, headers: &HeaderMap) -> Result<(), Fault> {
        if self.wire == Wire::LangGraph {
            self.start = Some(since_headers(&named(headers)?)?);
        }
        Ok(())
    }

    fn bytes(&mut self, mut bytes: &[u8], now: u64) -> Result<(), Fault> {
        if let Some(Joining { joined, .. }) = &mut self.joining
            && joined.first == 0
        {
            joined.first = now;
        }
        while let Some(line) = self.lines.next(&mut bytes) {
            self.line(&line, now)?;
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8], now: u64) -> Result<(), Fault> {
        if let Some(Joining { joined, is_live: false, .. }) = &mut self.joining {
            joined.bytes += line.len() as u64;
        }
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

    /// Cuts out the token's text without parsing: parsing a part, which is ten times as long as an
    /// event, would make the pass-through look slow.
    fn part(&mut self, data: &str, now: u64) -> Result<(), Fault> {
        match (self.state, &*self.event) {
            (State::Begun, "metadata") => self.started(now),
            (State::Started | State::Ended, "values") => self.state = State::Ended,
            (State::Started | State::Ended, "messages") => {
                self.state = State::Started;
                let before = b"\"content\":\"";
                let text =
                    memmem::find(data.as_bytes(), before).map(|at| &data[at + before.len()..]);
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
                self.started(now);
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
                    // A client that joins a run begins with a snapshot.
                    if self.joining.as_ref().is_none_or(|joining| joining.is_live) {
                        self.progress.resyncs.fetch_add(1, Ordering::Relaxed);
                    }
                }
                self.told(now);
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

    fn started(&mut self, now: u64) {
        if let Some(Joining { joined, .. }) = &mut self.joining {
            joined.started = now;
        }
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
        self.told(now);
        Ok(())
    }

    /// Records that something of the conversation has arrived.
    fn told(&mut self, now: u64) {
        if let Some(Joining { said, joined, is_live: is_live @ false }) = &mut self.joining
            && self.hearing.tokens() >= *said
        {
            joined.live = now;
            joined.messages = self.hearing.bytes();
            *is_live = true;
            self.progress.live.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn finish(self, tokens: Option<u64>) -> Result<Heard, Fault> {
        if self.state != State::Ended || !self.lines.is_empty() {
            return Err(format!("the stream ended when {:?}", self.state).into());
        }
        let start = self.start.ok_or("nothing told when the run started")?;
        Ok(Heard { start, latencies: self.hearing.finish(tokens)? })
    }
}
