//! Costs that grow with viewers, threads and conversations. Each scenario has processes of its own,
//! and prints rows with their targets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::client::{Fault, post, send, thread_id};
use crate::process::Process;
use crate::script::Script;
use crate::stored::{Mood, Wanted};
use crate::table::percentile;
use crate::upstream::{COUNTS, END, MOOD, STORED};

/// An upstream, and a gateway in front of it.
pub(crate) struct Rig {
    pub(crate) upstream: Process,
    pub(crate) gateway: Process,
}

/// Requests `/healthz` again and again, and records the slowest response.
pub(crate) struct Probe {
    is_over: Arc<AtomicBool>,
    slowest: JoinSet<Result<Duration, Fault>>,
}

/// How often `/healthz` is requested.
const PROBE_INTERVAL: Duration = Duration::from_millis(10);

pub(crate) fn row(what: &str, figure: impl std::fmt::Display, wanted: &str) {
    println!("| {what} | {figure} | {wanted} |");
}

pub(crate) fn head(title: &str) {
    println!("\n{title}\n\n| what | figure | wanted |\n|---|--:|---|");
}

pub(crate) fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", crate::table::float(bytes) / 1024.0 / 1024.0)
}

pub(crate) fn kib(bytes: u64) -> String {
    format!("{:.1} KiB", crate::table::float(bytes) / 1024.0)
}

/// The median and the 99th percentile, in milliseconds, of values in nanoseconds.
pub(crate) fn latency(mut latencies: Vec<u64>) -> (f64, f64) {
    (percentile(&mut latencies, 0.5) / 1e6, percentile(&mut latencies, 0.99) / 1e6)
}

// === impl Rig ===

impl Rig {
    pub(crate) fn start() -> Result<Self, Fault> {
        let upstream = Process::start("upstream", std::env::current_exe()?, &["upstream"])?;
        let gateway = Self::gateway(upstream.address())?;
        Ok(Self { upstream, gateway })
    }

    /// With a gateway that counts its live data: the role `gateway` of this executable.
    pub(crate) fn counted() -> Result<Self, Fault> {
        let upstream = Process::start("upstream", std::env::current_exe()?, &["upstream"])?;
        let url = format!("http://{}", upstream.address());
        let gateway =
            Process::start_counted("gateway", std::env::current_exe()?, &["gateway", &url])?;
        Ok(Self { upstream, gateway })
    }

    fn gateway(upstream: SocketAddr) -> Result<Process, Fault> {
        let url = format!("http://{upstream}");
        let arguments = ["serve", "--upstream", &url, "--listen", "127.0.0.1:0", "--log", "warn"];
        Process::start("threadway", env!("CARGO_BIN_EXE_threadway"), &arguments)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.gateway.address()
    }

    pub(crate) async fn store(&self, wanted: Wanted) -> Result<(), Fault> {
        self.ask(STORED, &wanted).await.map(drop)
    }

    pub(crate) async fn mood(&self, mood: Mood) -> Result<(), Fault> {
        self.ask(MOOD, &mood).await.map(drop)
    }

    /// Changes the state of a thread without a run.
    pub(crate) async fn change(&self, thread: u64) -> Result<(), Fault> {
        self.ask(&format!("/threads/{}/state", thread_id(thread)), &json!({})).await.map(drop)
    }

    /// Starts a run of a thread directly on the upstream.
    pub(crate) async fn run(&self, thread: u64, script: Script) -> Result<(), Fault> {
        let script = Script { is_kept: true, ..script };
        let text = serde_json::to_string(&script)?;
        let id = uuid::Uuid::new_v4().to_string();
        let message = json!({ "type": "human", "content": text, "id": id });
        let body = json!({ "assistant_id": "agent", "input": { "messages": [message] } });
        self.ask(&format!("/threads/{}/runs", thread_id(thread)), &body).await.map(drop)
    }

    /// Ends all runs that wait for that.
    pub(crate) async fn end(&self) -> Result<(), Fault> {
        self.ask(END, &json!({})).await.map(drop)
    }

    /// By the kind of a request: the number of requests since the last call, and the bytes of their
    /// responses.
    pub(crate) async fn counts(&self) -> Result<Vec<(String, u64, u64)>, Fault> {
        let counts = self.ask(COUNTS, &json!({})).await?;
        let counts = counts.as_object().cloned().unwrap_or_default();
        let number = |value: &Value, at: usize| value.get(at).and_then(Value::as_u64).unwrap_or(0);
        Ok(counts.into_iter().map(|(kind, of)| (kind, number(&of, 0), number(&of, 1))).collect())
    }

    async fn ask(&self, path: &str, body: &impl Serialize) -> Result<Value, Fault> {
        let body = serde_json::to_string(body)?;
        let answer = post(self.upstream.address(), path, body).await?;
        Ok(serde_json::from_slice(&answer.into_body().collect().await?.to_bytes())?)
    }

    /// The peak of the gateway's memory since the last call.
    pub(crate) fn peak(&self) -> Result<u64, Fault> {
        let peak = self.gateway.peak()?;
        self.gateway.forget_peak()?;
        Ok(peak)
    }
}

// === impl Probe ===

impl Probe {
    pub(crate) fn start(gateway: SocketAddr) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let mut probing = JoinSet::new();
        probing.spawn(async move {
            let mut slowest = Duration::ZERO;
            while !over.load(Ordering::Relaxed) {
                let asked = Instant::now();
                let answer = send(gateway, Request::get("/healthz"), String::new()).await?;
                answer.into_body().collect().await?;
                slowest = slowest.max(asked.elapsed());
                sleep(PROBE_INTERVAL).await;
            }
            Ok(slowest)
        });
        Self { is_over, slowest: probing }
    }

    pub(crate) async fn stop(mut self) -> Result<Duration, Fault> {
        self.is_over.store(true, Ordering::Relaxed);
        self.slowest.join_next().await.ok_or("nothing was asked")??
    }
}
