//! A client: it keeps what it is sent, as the official client does, and reconnects as an
//! `EventSource` does.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use axum::body::Body;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Collected};
use serde_json::{Value, json};
use tower_service::Service;

use super::reduce::Held;
use super::verify::Verifier;
use super::world::{THREADS, World};
use crate::server::peer::Peer;
use crate::server::upgrade::Upgrade;
use crate::sync::simulated::{self, Chance};

/// A client of one thread.
pub(super) struct Client {
    pub(super) world: World,
    pub(super) name: String,
    pub(super) key: &'static str,
    pub(super) thread: usize,
    pub(super) agent: &'static str,
    pub(super) chance: Chance,
    pub(super) held: Held,
    verifier: Verifier,
    last_id: Option<String>,
    retry: Duration,
    /// Texts that are being streamed.
    open: HashSet<String>,
    /// Each text as it grew: the longest of each growth, by message.
    pub(super) grown: BTreeMap<String, Vec<String>>,
    /// LangGraph's id of the run that was begun last.
    pub(super) run: Option<String>,
    pub(super) questions: Vec<String>,
    pub(super) is_in_run: bool,
    /// Whether the last run ended with its end, and not with an error.
    pub(super) is_finished: bool,
    /// Whether the stream has shown anything.
    pub(super) has_seen: bool,
}

/// What a run is started with.
pub(super) enum Asks {
    Message(Value),
    Answers(Value),
}

/// A response that is read.
struct Stream {
    body: Body,
    buffer: Vec<u8>,
    /// Whether its first event has come.
    has_begun: bool,
    is_resumed: bool,
}

/// Why a client stopped reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// The stream ended after a run's end.
    End,
    /// The stream ended within a run, or before any.
    Cut,
    /// The client left by itself.
    Left,
    /// Refused with this status.
    Refused(StatusCode),
    /// Nothing comes after the last event.
    Nothing,
}

impl Client {
    pub(super) fn new(
        world: &World,
        name: &str,
        key: &'static str,
        thread: usize,
        chance: Chance,
    ) -> Self {
        Self {
            world: world.clone(),
            name: name.to_owned(),
            key,
            thread,
            agent: world.agent_of(thread),
            chance,
            held: Held::default(),
            verifier: Verifier::new(),
            last_id: None,
            retry: Duration::from_secs(3),
            open: HashSet::new(),
            grown: BTreeMap::new(),
            run: None,
            questions: Vec::new(),
            is_in_run: false,
            is_finished: false,
            has_seen: false,
        }
    }

    async fn send(&mut self, method: Method, path: &str, body: String) -> http::Response<Body> {
        let thread = THREADS[self.thread].to_owned();
        self.world.network.faults().shown.push((thread, self.key.to_owned()));
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("x-api-key", self.key);
        if let Some(id) = &self.last_id {
            request = request.header("last-event-id", id);
        }
        let mut request = request.body(Body::from(body)).unwrap();
        request.extensions_mut().insert(Peer("127.0.0.1:5000".parse().unwrap()));
        request.extensions_mut().insert(Upgrade::default());
        simulated::note(|| format!("{}: {path} after {:?}", self.name, self.last_id));
        let mut routes = self.world.routes(&mut self.chance);
        std::future::poll_fn(|cx| Service::<Request<Body>>::poll_ready(&mut routes, cx))
            .await
            .unwrap();
        let response = routes.call(request).await.unwrap();
        simulated::note(|| format!("{}: {}", self.name, response.status()));
        response
    }

    /// Starts a run with one more message, or with answers, and reads it until the client leaves
    /// after so many events.
    pub(super) async fn run(&mut self, id: &str, asks: Asks, leaves: Option<u64>) -> Read {
        let before = self.held.messages.clone();
        let mut resume = Value::Null;
        match asks {
            Asks::Message(message) => self.held.messages.push(message),
            Asks::Answers(answers) => resume = answers,
        }
        let mut input = json!({
            "threadId": THREADS[self.thread], "runId": id, "protocolVersion": "1.0",
            "messages": self.conversation(),
        });
        if !resume.is_null() {
            input["resume"] = resume;
        }
        self.last_id = None;
        self.world.posts(id);
        let path = format!("/agui/agent/{}/run", self.agent);
        let response = self.send(Method::POST, &path, input.to_string()).await;
        self.world.posted(self.thread, id, response.status());
        if response.status() != StatusCode::OK {
            self.held.messages = before;
        }
        self.reads(response, false, leaves).await
    }

    /// What the client sends along of what it holds.
    fn conversation(&self) -> Value {
        let messages = self.held.messages.iter();
        let is_kept =
            |message: &&Value| message["role"] != "activity" && message["role"] != "reasoning";
        Value::Array(messages.filter(is_kept).cloned().collect())
    }

    /// Reads the thread, as an `EventSource` does.
    pub(super) async fn events(&mut self, is_following: bool, leaves: Option<u64>) -> Read {
        let query = if is_following { "?follow=thread" } else { "" };
        let path =
            format!("/agui/agent/{}/threads/{}/events{query}", self.agent, THREADS[self.thread]);
        let is_resumed = self.last_id.is_some();
        let response = self.send(Method::GET, &path, String::new()).await;
        self.reads(response, is_resumed, leaves).await
    }

    pub(super) async fn connect(&mut self, leaves: Option<u64>) -> Read {
        let input = json!({
            "threadId": THREADS[self.thread], "runId": "c", "protocolVersion": "1.0",
            "messages": [],
        });
        self.last_id = None;
        let path = format!("/agui/agent/{}/connect", self.agent);
        let response = self.send(Method::POST, &path, input.to_string()).await;
        self.reads(response, false, leaves).await
    }

    pub(super) async fn stop(&mut self) {
        self.last_id = None;
        let path = format!("/agui/agent/{}/stop/{}", self.agent, THREADS[self.thread]);
        let response = self.send(Method::POST, &path, String::new()).await;
        let _ = response.into_body().collect().await;
    }

    /// Has the client reconnect after an event that another client was sent.
    pub(super) fn steal_id(&mut self) {
        self.last_id = self.world.some_id(self.thread);
    }

    /// Waits as long as the gateway has asked for.
    pub(super) async fn pause(&self) {
        tokio::time::sleep(self.retry).await;
    }

    async fn reads(
        &mut self,
        response: http::Response<Body>,
        is_resumed: bool,
        mut leaves: Option<u64>,
    ) -> Read {
        let status = response.status();
        if status == StatusCode::NO_CONTENT {
            return Read::Nothing;
        }
        if status != StatusCode::OK {
            let body = response.into_body().collect().await.map(Collected::to_bytes);
            self.expect_no_secret(&body.unwrap_or_default());
            return Read::Refused(status);
        }
        if !is_resumed {
            self.verifier = Verifier::new();
        }
        let mut stream =
            Stream { body: response.into_body(), buffer: vec![], has_begun: false, is_resumed };
        loop {
            let frame = match stream.frame().await {
                Some(frame) => frame,
                None if self.is_in_run || !stream.has_begun => return Read::Cut,
                None => return Read::End,
            };
            self.takes(&mut stream, &frame);
            if let Some(left) = leaves.as_mut().filter(|_| !self.world.is_settling()) {
                if *left == 0 {
                    simulated::note(|| format!("{} leaves", self.name));
                    return Read::Left;
                }
                *left -= 1;
            }
            if self.chance.one_of(64) {
                tokio::time::sleep(Duration::from_millis(self.chance.below(500))).await;
            }
        }
    }

    fn expect_no_secret(&self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        if self.world.is_secret(self.thread, self.key, &text) {
            simulated::fail(format!("{} was sent {text}", self.name));
        }
    }

    fn takes(&mut self, stream: &mut Stream, frame: &str) {
        self.expect_no_secret(frame.as_bytes());
        let mut data = None;
        for line in frame.lines() {
            let Some((name, value)) = line.split_once(": ") else { continue };
            match name {
                "data" => data = Some(value),
                "id" => {
                    self.world.note_id(self.thread, value);
                    self.last_id = Some(value.to_owned());
                }
                "retry" => self.retry = Duration::from_millis(value.parse().unwrap()),
                _ => {}
            }
        }
        let Some(data) = data else { return };
        let event: Value = serde_json::from_str(data).unwrap();
        simulated::note(|| format!("{} <- {}", self.name, &data[..data.len().min(200)]));
        let kind = event["type"].as_str().unwrap_or_default();
        if kind != "RUN_ERROR" && self.world.is_hidden(self.thread, self.key, &event["runId"]) {
            simulated::fail(format!("{} may not see it, and was sent {data}", self.name));
        }
        if !std::mem::replace(&mut stream.has_begun, true)
            && stream.is_resumed
            && kind == "RUN_STARTED"
        {
            // It starts over.
            self.verifier = Verifier::new();
            let open = std::mem::take(&mut self.open);
            self.held
                .messages
                .retain(|message| !open.contains(message["id"].as_str().unwrap_or_default()));
        }
        if let Err(why) = self.verifier.check(&event) {
            simulated::fail(format!("{}: {data}: {why}", self.name));
        }
        if let Err(why) = self.held.apply(&event) {
            simulated::fail(format!("{}: {data}: {why}", self.name));
        }
        let id = event["messageId"].as_str().unwrap_or_default();
        match kind {
            "RUN_STARTED" => {
                (self.is_in_run, self.is_finished) = (true, false);
                self.has_seen = true;
                let run = event["metadata"]["langgraph"]["run_id"].as_str();
                if run.is_some() {
                    self.world.has_begun(event["runId"].as_str().unwrap_or_default());
                }
                self.run = run.map(str::to_owned);
            }
            "RUN_FINISHED" | "RUN_ERROR" => {
                (self.is_in_run, self.is_finished) = (false, kind == "RUN_FINISHED");
                self.open.clear();
                let questions = event["outcome"]["interrupts"].as_array();
                let id = |question: &Value| question["id"].as_str().unwrap_or_default().to_owned();
                self.questions = questions.into_iter().flatten().map(id).collect();
            }
            "TEXT_MESSAGE_START" => {
                self.open.insert(id.to_owned());
            }
            "TEXT_MESSAGE_END" => {
                self.open.remove(id);
            }
            "TEXT_MESSAGE_CONTENT" => self.grows(id),
            _ => {}
        }
    }

    /// Notes how a text has grown.
    fn grows(&mut self, id: &str) {
        let message = self.held.messages.iter().find(|message| message["id"] == id);
        let Some(text) = message.and_then(|message| message["content"].as_str()) else { return };
        let grown = self.grown.entry(id.to_owned()).or_default();
        match grown.last_mut() {
            Some(last) if text.starts_with(&**last) => text.clone_into(last),
            _ => grown.push(text.to_owned()),
        }
    }
}

impl Stream {
    /// The next frame; `None` at the end.
    async fn frame(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.buffer.windows(2).position(|two| two == b"\n\n") {
                let frame = self.buffer.drain(..at + 2).collect();
                return Some(String::from_utf8(frame).unwrap());
            }
            let data = self.body.frame().await?.ok()?.into_data().ok()?;
            self.buffer.extend(data);
        }
    }
}
