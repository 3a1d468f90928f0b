//! The scripted upstream: as much of a LangGraph server as a gateway uses, and runs that follow the
//! script in their human message. If the script says so, clients can join a run.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LOCATION, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use uuid::Uuid;

use crate::client::Fault;
use crate::kept::{self, Kept};
use crate::listen::serve;
use crate::script::{Part, Parts, Script};
use crate::stored::{Mood, Threads};
use crate::text::{Speech, now};

/// Ends all runs that wait for that. LangGraph has no such route.
pub(crate) const END: &str = "/end";

/// Followed by the id of a stored run: reports its progress and its joins. Not in LangGraph.
pub(crate) const ACCOUNT: &str = "/account/";

/// Stores the threads of a [`Wanted`](crate::stored::Wanted). Not in LangGraph.
pub(crate) const STORED: &str = "/stored";

/// Sets how other requests are answered, by a [`Mood`]. Not in LangGraph.
pub(crate) const MOOD: &str = "/mood";

/// Reports by kind the number of requests since the last report, and the bytes of their responses
/// without streams. Not in LangGraph.
pub(crate) const COUNTS: &str = "/counts";

/// The Python server's heartbeat.
pub(crate) const HEARTBEAT: &[u8] = b": heartbeat\r\n\r\n";
/// The event on the lifecycle stream of a thread when a run begins or ends.
const LIFECYCLE: &[u8] = b"event: lifecycle\r\ndata: {}\r\n\r\n";
/// The interval of heartbeats while a run is silent.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// How long the stream of an ended run is stored. Its record and its thread's state stay.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(1);

/// How many states of threads are stored whose runs are not.
const MOST_STATES: usize = 4_096;

/// The state that all requests share.
struct Server {
    parts: Parts,
    runs: AtomicU64,
    /// The ids of the live runs.
    running: Mutex<HashSet<String>>,
    /// The stored runs by their ids.
    kept: Mutex<HashMap<String, Arc<Kept>>>,
    /// The states of threads that clients have made, whose runs are not stored.
    states: Mutex<HashMap<String, Bytes>>,
    /// The tasks that produce stored runs.
    tellers: Mutex<JoinSet<()>>,
    /// Cancelled to end the current runs that wait for that.
    end: Mutex<CancellationToken>,
    threads: Threads,
    mood: Mutex<Mood>,
    /// When the next request may be answered, if their rate is limited.
    next_answer: Mutex<Option<Instant>>,
    /// By the kind of a request: the number of requests, and the bytes of their responses.
    counts: Mutex<BTreeMap<&'static str, (u64, u64)>>,
}

/// The body of `POST /threads/search`.
#[derive(Deserialize)]
struct ThreadSearch {
    #[serde(default)]
    ids: Vec<String>,
}

/// The body of `POST /threads`.
#[derive(Deserialize)]
struct NewThread {
    thread_id: Option<String>,
}

/// The body of `POST /threads/{id}/runs/stream`.
#[derive(Deserialize)]
struct RunRequest {
    input: Input,
    #[serde(default = "gateways_modes")]
    stream_mode: Vec<String>,
    #[serde(default)]
    stream_resumable: bool,
}

#[derive(Deserialize)]
struct Input {
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Message {
    id: String,
    content: String,
}

/// A run's stream.
pub(crate) struct RunBody {
    server: Arc<Server>,
    thread: String,
    run_id: String,
    script: Script,
    parts: Parts,
    speech: Speech,
    next: Next,
    /// The parts of a token that are still to be sent.
    rest: VecDeque<Bytes>,
    /// The id of the next part, if others can join the run.
    id: Option<u64>,
    /// When the next part or the next heartbeat is due.
    wait: Pin<Box<Sleep>>,
    end: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

/// The next part.
enum Next {
    Head(usize),
    Token,
    Tail(usize),
}

/// The modes of a run whose client names none.
fn gateways_modes() -> Vec<String> {
    ["values", "messages-tuple", "updates"].map(str::to_owned).into()
}

/// Serves until stdin is closed.
pub(crate) async fn run() -> Result<(), Fault> {
    let server = Arc::new(Server {
        parts: Parts::read(),
        runs: AtomicU64::new(0),
        running: Mutex::default(),
        kept: Mutex::default(),
        states: Mutex::default(),
        tellers: Mutex::default(),
        end: Mutex::default(),
        threads: Threads::default(),
        mood: Mutex::default(),
        next_answer: Mutex::default(),
        counts: Mutex::default(),
    });
    serve(move |request| Arc::clone(&server).answer(request)).await
}

/// The kind of a request to LangGraph's API; `None` for the routes that only this upstream has.
fn kind_of(path: &str) -> Option<&'static str> {
    let path: Vec<_> = path.split('/').skip(1).collect();
    Some(match &*path {
        ["threads", _, "runs", "stream"] => "start",
        ["threads", _, "runs", _, "stream"] => "join",
        ["threads", _, "runs", _] => "record",
        ["threads", _, "runs"] => "runs",
        ["threads", _, "state"] => "state",
        ["threads", _, "stream"] => "bell",
        ["threads", "search"] => "search",
        ["threads", ..] => "thread",
        ["info"] => "info",
        ["assistants", ..] => "assistants",
        _ => return None,
    })
}

fn json_answer(status: StatusCode, body: &Value) -> Response<BoxBody<Bytes, Infallible>> {
    raw_answer(status, body.to_string().into())
}

fn raw_answer(status: StatusCode, body: Bytes) -> Response<BoxBody<Bytes, Infallible>> {
    let mut response = Response::new(Full::from(body).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, "application/json".parse().expect("a media type"));
    response
}

// === impl Server ===

impl Server {
    /// When a request may be answered that arrives now.
    fn take_answer(&self, per_second: u32) -> Instant {
        let now = Instant::now();
        let mut next = lock(&self.next_answer);
        let at = next.map_or(now, |next| next.max(now)) + Duration::from_secs(1) / per_second;
        *next = Some(at);
        at
    }

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<BoxBody<Bytes, Infallible>>, Fault> {
        let kind = kind_of(request.uri().path());
        if let Some(kind) = kind {
            lock(&self.counts).entry(kind).or_default().0 += 1;
            let mood = *lock(&self.mood);
            if let Some(rate) = mood.per_second {
                sleep_until(self.take_answer(rate)).await;
            }
            if mood.delay_ms > 0 {
                sleep(mood.delay()).await;
            }
            if let Some(code) = mood.refusal {
                let status = StatusCode::from_u16(code)?;
                let mut refusal = json_answer(status, &json!({ "detail": "not now" }));
                refusal.headers_mut().insert(RETRY_AFTER, "30".parse()?);
                return Ok(refusal);
            }
        }
        let server = Arc::clone(&self);
        let response = self.respond(request).await?;
        if let (Some(kind), Some(bytes)) = (kind, response.body().size_hint().exact()) {
            lock(&server.counts).entry(kind).or_default().1 += bytes;
        }
        Ok(response)
    }

    #[expect(clippy::too_many_lines, reason = "a table of routes")]
    async fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<BoxBody<Bytes, Infallible>>, Fault> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let path: Vec<_> = head.uri.path().split('/').skip(1).collect();
        let query = head.uri.query().unwrap_or_default();
        let asked = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).collect::<Vec<_>>()
        };
        let not_found = json!({ "detail": "Not Found" });
        let (status, answer) = match (&head.method, &*path) {
            (&Method::POST, ["threads", thread, "runs", "stream"]) => {
                return self.stream(thread, &body);
            }
            (&Method::POST, ["threads", thread, "runs"]) => {
                // The run continues whether or not its stream is read.
                let started = self.stream(thread, &body)?;
                let run_id = started.headers().get(CONTENT_LOCATION).and_then(|l| l.to_str().ok());
                let run_id = run_id.and_then(|location| location.rsplit('/').next());
                (StatusCode::OK, json!({ "run_id": run_id, "status": "pending" }))
            }
            (&Method::POST, ["threads", "search"]) => {
                let search: ThreadSearch = serde_json::from_slice(&body)?;
                (StatusCode::OK, self.threads.search(&search.ids))
            }
            (&Method::POST, ["threads", thread, "state"]) => {
                self.threads.change(thread);
                (StatusCode::OK, json!({}))
            }
            (&Method::GET, ["threads", thread, "stream"]) => match self.threads.bell(thread) {
                Some(bell) => return streamed(thread, "", BellBody::new(bell)),
                None => (StatusCode::NOT_FOUND, not_found),
            },
            (&Method::POST, ["stored"]) => {
                self.threads.store(serde_json::from_slice(&body)?);
                (StatusCode::OK, Value::Null)
            }
            (&Method::POST, ["mood"]) => {
                *lock(&self.mood) = serde_json::from_slice(&body)?;
                (StatusCode::OK, Value::Null)
            }
            (&Method::POST, ["counts"]) => {
                (StatusCode::OK, serde_json::to_value(std::mem::take(&mut *lock(&self.counts)))?)
            }
            (&Method::POST, ["threads"]) => {
                let asked: NewThread = serde_json::from_slice(&body)?;
                let id = asked.thread_id.unwrap_or_else(|| Uuid::new_v4().to_string());
                self.put_state(&id, &json!({}), None);
                (StatusCode::OK, json!({ "thread_id": id, "status": "idle", "metadata": {} }))
            }
            (&Method::PATCH, ["threads", thread]) => {
                (StatusCode::OK, json!({ "thread_id": thread }))
            }
            (&Method::GET, ["threads", thread, "runs", run]) => {
                let run = json!({ "run_id": run, "thread_id": thread, "status": self.status(run) });
                (StatusCode::OK, run)
            }
            (&Method::GET, ["threads", thread, "runs"]) => {
                let wanted = asked("status").first().copied();
                let limit = asked("limit").first().and_then(|limit| limit.parse().ok());
                let mut runs: Vec<_> = {
                    let kept = lock(&self.kept);
                    let runs = kept.values().filter(|run| run.thread == *thread);
                    runs.map(|run| run.record(self.status(&run.run_id))).collect()
                };
                runs.extend(self.threads.runs(thread, &asked("select")));
                let status =
                    |run: &Value| run.get("status").and_then(Value::as_str).map(str::to_owned);
                runs.retain(|run| {
                    wanted.is_none_or(|wanted| status(run).as_deref() == Some(wanted))
                });
                runs.truncate(limit.unwrap_or(usize::MAX));
                (StatusCode::OK, runs.into())
            }
            (&Method::GET, ["threads", thread, "state"]) => {
                let run = lock(&self.kept).values().find(|run| run.thread == *thread).cloned();
                let is_running = |run: &Arc<Kept>| self.status(&run.run_id) == "running";
                let own = self.threads.state(thread);
                match (run, own.or_else(|| lock(&self.states).get(*thread).cloned())) {
                    (Some(run), stored) if stored.is_none() || is_running(&run) => {
                        (StatusCode::OK, run.state())
                    }
                    (_, Some(state)) => return Ok(raw_answer(StatusCode::OK, state)),
                    (_, None) => (StatusCode::NOT_FOUND, not_found),
                }
            }
            (&Method::GET, ["threads", _, "runs", run, "stream"]) => {
                let kept = lock(&self.kept).get(*run).cloned();
                // A join without the header gets no earlier part.
                let from = head.headers.get("last-event-id").and_then(|id| id.to_str().ok());
                let from = from.and_then(kept::behind);
                match kept.filter(|run| !run.is_forgotten()).zip(from) {
                    Some((run, from)) => {
                        return streamed(&run.thread.clone(), &run.run_id.clone(), run.join(from));
                    }
                    None => (StatusCode::NOT_FOUND, not_found),
                }
            }
            (&Method::POST, ["account", run]) => match lock(&self.kept).get(*run) {
                Some(run) => (StatusCode::OK, serde_json::to_value(run.account())?),
                None => (StatusCode::NOT_FOUND, not_found),
            },
            (&Method::POST, ["assistants", "search"]) => {
                (StatusCode::OK, json!([{ "assistant_id": "a", "graph_id": "agent" }]))
            }
            (&Method::GET, ["assistants", "a", "schemas"]) => {
                let schema = json!({ "properties": { "messages": {} } });
                let schemas = json!({ "input_schema": schema, "output_schema": schema });
                (StatusCode::OK, schemas)
            }
            (&Method::GET, ["assistants", "a", "graph"]) => {
                (StatusCode::OK, json!({ "nodes": [{ "id": "agent" }], "edges": [] }))
            }
            (&Method::POST, ["threads", _, "runs", _, "cancel"]) => (StatusCode::OK, json!({})),
            (&Method::GET, ["info"]) => {
                let info = json!({ "version": "0.16.7", "langgraph_py_version": "1.2.22" });
                (StatusCode::OK, info)
            }
            (&Method::GET, ["ok"]) => (StatusCode::OK, json!({ "ok": true })),
            (&Method::POST, ["end"]) => {
                std::mem::take(&mut *lock(&self.end)).cancel();
                (StatusCode::OK, Value::Null)
            }
            _ => (StatusCode::NOT_FOUND, not_found),
        };
        Ok(json_answer(status, &answer))
    }

    fn stream(
        self: Arc<Self>,
        thread: &str,
        body: &[u8],
    ) -> Result<Response<BoxBody<Bytes, Infallible>>, Fault> {
        let RunRequest { input, stream_mode, stream_resumable } = serde_json::from_slice(body)?;
        let Some(Message { id, content }) = input.messages.last() else {
            let detail = json!({ "detail": "no message tells what to say" });
            return Ok(json_answer(StatusCode::UNPROCESSABLE_ENTITY, &detail));
        };
        let script: Script = serde_json::from_str(content)?;
        // The time in the run's id is that of its headers.
        let count = u128::from(self.runs.fetch_add(1, Ordering::Relaxed));
        let run_id = Uuid::from_u128(count << 64 | u128::from(now())).to_string();
        let [id, content] = [id, content].map(|text| Value::from(&**text).to_string());
        let mut parts = self.parts.of_run([thread, &run_id], [&id, &content], &stream_mode);
        if let Some(conversation) = self.threads.conversation(thread) {
            parts = parts.behind(&conversation);
        }
        lock(&self.running).insert(run_id.clone());
        self.threads.begin(thread);

        let end = lock(&self.end).clone();
        let server = Arc::clone(&self);
        let body = RunBody {
            server: self,
            thread: thread.to_owned(),
            run_id: run_id.clone(),
            script,
            parts,
            speech: Speech::default(),
            next: Next::Head(0),
            rest: VecDeque::new(),
            // Ids are milliseconds.
            id: (stream_resumable || script.is_kept).then(|| now() / 1_000_000),
            wait: Box::pin(sleep(Duration::from_micros(script.pause_us))),
            end: script.waits_for_end().then(|| Box::pin(end.cancelled_owned())),
        };
        if !script.is_kept {
            return streamed(thread, &run_id, body);
        }
        let kept = Arc::new(Kept::new(thread, &run_id));
        lock(&server.kept).insert(run_id.clone(), Arc::clone(&kept));
        let told = Arc::clone(&kept);
        let mut tellers = lock(&server.tellers);
        while tellers.try_join_next().is_some() {}
        let forgets = Arc::clone(&server);
        tellers.spawn(async move {
            Arc::clone(&told).tell(body).await;
            let values = told.state().get("values").cloned();
            forgets.threads.end(&told.thread, &run_id, values);
            sleep(FORGOTTEN_AFTER).await;
            lock(&forgets.kept).insert(run_id, Arc::new(told.forgotten()));
        });
        drop(tellers);
        streamed(thread, &kept.run_id.clone(), kept.from_start())
    }

    /// Stores the state of a thread whose runs are not stored.
    fn put_state(&self, thread: &str, values: &Value, run_id: Option<&str>) {
        let state = json!({
            "values": values, "next": [], "tasks": [], "metadata": { "run_id": run_id },
            "checkpoint": run_id.map(|id| json!({ "checkpoint_id": id })),
        });
        let mut states = lock(&self.states);
        if states.len() >= MOST_STATES {
            states.clear();
        }
        states.insert(thread.to_owned(), state.to_string().into());
    }

    /// Stores the values of this part.
    fn put_values(&self, thread: &str, part: &[u8], run_id: &str) {
        let data =
            part.strip_prefix(kept::VALUES).and_then(|data| data.split(|b| *b == b'\r').next());
        if let Some(values) = data.and_then(|data| serde_json::from_slice(data).ok()) {
            self.put_state(thread, &values, Some(run_id));
        }
    }

    fn status(&self, run: &str) -> &'static str {
        if lock(&self.running).contains(run) { "running" } else { "success" }
    }
}

/// The response whose body is a run's stream.
fn streamed(
    thread: &str,
    run_id: &str,
    body: impl Body<Data = Bytes, Error = Infallible> + Send + Sync + 'static,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Fault> {
    let location = format!("/threads/{thread}/runs/{run_id}");
    Ok(Response::builder()
        .header(LOCATION, format!("{location}/stream"))
        .header(CONTENT_LOCATION, location)
        .header(CACHE_CONTROL, "no-store")
        .header("x-accel-buffering", "no")
        .header(CONTENT_TYPE, "text/event-stream; charset=utf-8")
        .body(body.boxed())?)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl RunBody ===

impl RunBody {
    /// How many tokens the run sends at once, before it is paced.
    pub(crate) fn said_at_once(&self) -> u64 {
        if self.script.goes_on { self.script.tokens } else { 0 }
    }

    /// The next bytes; `None` at the end.
    pub(crate) fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(part) = self.rest.pop_front() {
            return Poll::Ready(Some(part));
        }
        match self.next {
            Next::Head(at) => {
                if at == 0 {
                    ready!(self.wait.as_mut().poll(cx));
                }
                let part = self.parts.head.get(at).cloned();
                if let Some(part) = part {
                    self.next = Next::Head(at + 1);
                    return Poll::Ready(Some(self.render(&part, "")));
                }
                let first = if self.script.is_idle { HEARTBEAT_INTERVAL } else { Duration::ZERO };
                self.wait.as_mut().reset(Instant::now() + first);
                self.next = Next::Token;
                self.poll_token(cx).map(Some)
            }
            Next::Token => self.poll_token(cx).map(Some),
            Next::Tail(at) => {
                let Some(part) = self.parts.tail.get(at).cloned() else {
                    return Poll::Ready(None);
                };
                self.next = Next::Tail(at + 1);
                let text = self.speech.text().to_owned();
                let rendered = self.render(&part, &text);
                if part.event == "values" {
                    // The record must be up to date when the stream ends.
                    lock(&self.server.running).remove(&self.run_id);
                    if !self.script.is_kept {
                        self.server.put_values(&self.thread, &rendered, &self.run_id);
                    }
                }
                Poll::Ready(Some(rendered))
            }
        }
    }

    fn render(&mut self, part: &Part, text: &str) -> Bytes {
        let id = self.id;
        self.id = id.map(|id| id + 1);
        part.with(text, id)
    }

    /// The first part of the next token; the others wait in `rest`.
    fn say(&mut self, token: &str) -> Bytes {
        for part in &self.parts.token {
            self.rest.push_back(part.with(token, self.id));
            self.id = self.id.map(|id| id + 1);
        }
        self.rest.pop_front().unwrap_or_default()
    }

    fn poll_token(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        if let Some(end) = &mut self.end {
            if end.as_mut().poll(cx).is_ready() {
                self.end = None;
                self.wait.as_mut().reset(Instant::now());
            } else if self.script.is_idle {
                ready!(self.wait.as_mut().poll(cx));
                self.wait.as_mut().reset(Instant::now() + HEARTBEAT_INTERVAL);
                return Poll::Ready(Bytes::from_static(HEARTBEAT));
            }
        }
        if self.script.lost == Some(self.speech.tokens()) {
            self.speech.token(now());
        }
        let is_behind = self.speech.tokens() < self.script.tokens;
        let is_through = if self.script.goes_on { self.end.is_none() } else { !is_behind };
        if is_through {
            self.next = Next::Tail(0);
            let last = self.speech.last();
            return Poll::Ready(self.say(&last));
        }
        let is_at_once = self.script.goes_on && is_behind;
        if let Some(interval) = self.script.interval().filter(|_| !is_at_once) {
            ready!(self.wait.as_mut().poll(cx));
            // By the schedule, not by the clock: a late token delays no other.
            let planned = self.wait.deadline();
            self.wait.as_mut().reset(planned + interval);
        }
        let token = self.speech.token(now());
        Poll::Ready(self.say(&token))
    }
}

impl Body for RunBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.poll_part(cx).map(|part| part.map(|part| Ok(Frame::data(part))))
    }
}

impl Drop for RunBody {
    fn drop(&mut self) {
        lock(&self.server.running).remove(&self.run_id);
    }
}

/// The lifecycle stream of a thread, with an event when a run begins or ends.
struct BellBody(Pin<Box<dyn Future<Output = Option<watch::Receiver<u64>>> + Send + Sync>>);

// === impl BellBody ===

impl BellBody {
    fn new(mut bell: watch::Receiver<u64>) -> Self {
        Self(Box::pin(async move { bell.changed().await.ok().map(|()| bell) }))
    }
}

impl Body for BellBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(bell) = ready!(self.0.as_mut().poll(cx)) else { return Poll::Ready(None) };
        *self = Self::new(bell);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(LIFECYCLE)))))
    }
}
