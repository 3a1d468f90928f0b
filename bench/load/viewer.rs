//! Many viewers of threads. Each stream is read but not stored: only its content, size and latency
//! are checked.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use memchr::{memchr, memmem};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::client::{Fault, post, send, thread_id};
use crate::lines::Lines;
use crate::text::{Hearing, now};
use crate::upstream::lock;

/// How long all viewers may take to reach the target.
const PATIENCE: Duration = Duration::from_mins(5);
const LOOK: Duration = Duration::from_millis(5);

/// The events that all viewers received.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) bytes: AtomicU64,
    /// How many runs, or idle threads, were received to their ends.
    pub(crate) ends: AtomicUsize,
    pub(crate) snapshots: AtomicUsize,
    pub(crate) tokens: AtomicU64,
    /// From the creation of each token to its arrival, in nanoseconds.
    latencies: Mutex<Vec<u64>>,
}

/// The request of a viewer.
#[derive(Clone, Copy)]
pub(crate) enum Ask {
    /// `GET events?follow=thread`
    Follow,
    /// `GET events`
    Events,
    /// `POST connect`
    Connect,
}

/// Viewers that read at the same time.
#[derive(Default)]
pub(crate) struct Viewers {
    reading: JoinSet<Result<(), Fault>>,
    pub(crate) seen: Arc<Seen>,
}

/// The state of one viewer.
#[derive(Default)]
struct Viewer {
    seen: Arc<Seen>,
    lines: Lines,
    hearing: Hearing,
}

/// Opens the stream of a viewer.
pub(crate) async fn open(
    gateway: SocketAddr,
    ask: Ask,
    thread: u64,
) -> Result<Response<Incoming>, Fault> {
    let id = thread_id(thread);
    let events = format!("/agui/agent/agent/threads/{id}/events");
    match ask {
        Ask::Follow => send(gateway, Request::get(events + "?follow=thread"), String::new()).await,
        Ask::Events => send(gateway, Request::get(events), String::new()).await,
        Ask::Connect => {
            let input = serde_json::json!({
                "protocolVersion": "1.0", "threadId": id, "runId": "viewer", "messages": [],
                "state": {}, "tools": [], "context": [], "forwardedProps": {},
            });
            post(gateway, "/agui/agent/agent/connect", input.to_string()).await
        }
    }
}

// === impl Viewers ===

impl Viewers {
    /// Adds a viewer, which reads until its stream ends.
    pub(crate) fn add(&mut self, gateway: SocketAddr, ask: Ask, thread: u64) {
        let seen = Arc::clone(&self.seen);
        self.reading.spawn(async move {
            let response = open(gateway, ask, thread).await?;
            Viewer { seen, ..Viewer::default() }.read(response).await
        });
    }

    /// Waits until the viewers have received enough. A stream that fails or ends too early is an
    /// error.
    pub(crate) async fn until(&mut self, is_so_far: impl Fn(&Seen) -> bool) -> Result<(), Fault> {
        let end = Instant::now() + PATIENCE;
        while !is_so_far(&self.seen) {
            if Instant::now() > end {
                let Seen { bytes, ends, snapshots, tokens, latencies: _ } = &*self.seen;
                return Err(format!("after {PATIENCE:?} the viewers have {bytes:?} bytes, {ends:?} ends, {snapshots:?} snapshots, {tokens:?} tokens").into());
            }
            while let Some(ended) = self.reading.try_join_next() {
                ended??;
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// Waits until all streams have ended.
    pub(crate) async fn finish(&mut self) -> Result<(), Fault> {
        while let Some(ended) = timeout(PATIENCE, self.reading.join_next()).await? {
            ended??;
        }
        Ok(())
    }

    /// Closes all streams; returns the latency of each token.
    pub(crate) async fn leave(mut self) -> Vec<u64> {
        self.reading.shutdown().await;
        std::mem::take(&mut *lock(&self.seen.latencies))
    }
}

// === impl Viewer ===

impl Viewer {
    async fn read(&mut self, mut response: Response<Incoming>) -> Result<(), Fault> {
        while let Some(frame) = response.body_mut().frame().await {
            if let Ok(bytes) = frame?.into_data() {
                self.seen.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                self.bytes(&bytes)?;
            }
        }
        Ok(())
    }

    fn bytes(&mut self, bytes: &Bytes) -> Result<(), Fault> {
        let mut bytes = &**bytes;
        while let Some(line) = self.lines.next(&mut bytes) {
            self.line(&line)?;
        }
        Ok(())
    }

    /// Reads only the text of a token: a client that parsed all bytes of a thousand viewers would
    /// measure its own parsing.
    fn line(&mut self, line: &[u8]) -> Result<(), Fault> {
        let Some(event) = line.strip_prefix(b"data: {\"type\":\"") else { return Ok(()) };
        if event.starts_with(b"TEXT_MESSAGE_CONTENT") {
            let event = std::str::from_utf8(event)?;
            let text = event.split_once("\"delta\":\"").and_then(|(_, text)| text.split_once('"'));
            self.said(text.ok_or("a text without delta")?.0)?;
        } else if event.starts_with(b"RUN_FINISHED") {
            self.seen.ends.fetch_add(1, Ordering::Relaxed);
            // An idle thread has no token of a run.
            if self.hearing.tokens() > 0 {
                let heard = std::mem::take(&mut self.hearing).finish(None)?;
                // Tokens from a snapshot have no latency.
                lock(&self.seen.latencies).extend(heard.into_iter().filter(|latency| *latency > 0));
            }
        } else if event.starts_with(b"MESSAGES_SNAPSHOT") {
            self.seen.snapshots.fetch_add(1, Ordering::Relaxed);
            // A viewer of a live run gets a snapshot with the text so far.
            let before = b"\"content\":\"";
            let last = memmem::rfind(event, before).and_then(|at| event.get(at + before.len()..));
            let last = last.and_then(|text| text.get(..memchr(b'"', text)?)).unwrap_or_default();
            if last.contains(&b'@') {
                self.hearing.hear_anew(std::str::from_utf8(last)?)?;
            }
        } else if event.starts_with(b"RUN_ERROR") {
            return Err(String::from_utf8_lossy(line).into());
        }
        Ok(())
    }

    /// A user's message may be sent as text too, and has no tokens.
    fn said(&mut self, text: &str) -> Result<(), Fault> {
        if text.contains(['@', '#']) {
            let tokens = self.hearing.hear(text, now())?;
            self.seen.tokens.fetch_add(tokens, Ordering::Relaxed);
        }
        Ok(())
    }
}
