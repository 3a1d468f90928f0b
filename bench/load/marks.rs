//! Many callers, each with one stream of the marks of 20 threads. Nothing happens; then some runs
//! begin.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use memchr::memmem;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::client::{Fault, send, thread_id};
use crate::scale::{Rig, head, kib, latency, mib, row};
use crate::script::Script;
use crate::stored::Wanted;
use crate::table::float;
use crate::upstream::lock;

/// How many threads each caller has.
const THREADS: u64 = 20;

/// How many runs begin, each on a thread of another caller.
const RUNS: u64 = 100;

/// How long all marks may take.
const PATIENCE: Duration = Duration::from_mins(10);
const LOOK: Duration = Duration::from_millis(5);

/// How many callers there are, and how long each figure is measured.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) callers: u64,
    pub(crate) seconds: u64,
    pub(crate) settle: Duration,
    /// Whether each caller has credentials of its own.
    pub(crate) are_personal: bool,
}

pub(crate) const QUICK: Sizes =
    Sizes { callers: 5, seconds: 1, settle: Duration::from_secs(1), are_personal: true };

/// Each figure takes twenty seconds.
pub(crate) fn full(callers: u64, are_personal: bool) -> Sizes {
    Sizes { callers, seconds: 20, settle: Duration::from_secs(10), are_personal }
}

/// What all callers have received.
#[derive(Default)]
struct Seen {
    /// How many streams have begun.
    begun: AtomicU64,
    bytes: AtomicU64,
    /// When the runs that are not marked yet began, by the caller.
    runs: Mutex<Vec<(u64, Instant)>>,
    /// From the begin of each run to its mark, in nanoseconds.
    delays: Mutex<Vec<u64>>,
}

pub(crate) async fn run(sizes: Sizes) -> Result<(), Fault> {
    let Sizes { callers, seconds, settle, are_personal } = sizes;
    let rig = Rig::start()?;
    rig.store(Wanted { count: callers * THREADS, ..Wanted::conversation(1, 0) }).await?;
    let before = rig.gateway.resident()?;
    let (seen, mut reading) = (Arc::new(Seen::default()), JoinSet::new());
    for caller in 0..callers {
        reading.spawn(read(rig.address(), caller, are_personal, Arc::clone(&seen)));
        if caller % 25 == 24 {
            until(&mut reading, || seen.begun.load(Ordering::Relaxed) > caller).await?;
        }
    }
    until(&mut reading, || seen.begun.load(Ordering::Relaxed) == callers).await?;
    sleep(settle).await;

    let keys = if are_personal { "their own" } else { "the gateway's" };
    head(&format!(
        "{callers} callers with the marks of {THREADS} threads each, and {keys} credentials"
    ));
    rig.counts().await?;
    let cpu = rig.gateway.cpu()?;
    sleep(Duration::from_secs(seconds)).await;
    let counts = rig.counts().await?;
    let cpu = rig.gateway.cpu()?.saturating_sub(cpu).as_secs_f64() / float(seconds);
    let per_second = |sum: u64| float(sum) / float(seconds);
    let requests = counts.iter().map(|(_, requests, _)| requests).sum();
    let bytes: u64 = counts.iter().map(|(_, _, bytes)| bytes).sum();
    row("upstream requests/s at rest", format!("{:.1}", per_second(requests)), "≤ 51/s");
    row("bytes of their answers", kib(bytes / seconds) + "/s", "");
    row("CPU at rest", format!("{:.1} %", cpu * 100.0), "");
    let resident = rig.gateway.resident()?;
    row("memory of the process", mib(resident), "");
    row("memory for each caller", kib(resident.saturating_sub(before) / callers), "");

    let runs = RUNS.min(callers);
    for at in 0..runs {
        let caller = at * callers / runs;
        lock(&seen.runs).push((caller, Instant::now()));
        rig.run(caller * THREADS + 1 + at % THREADS, Script::idle()).await?;
    }
    until(&mut reading, || lock(&seen.runs).is_empty()).await?;
    let (median, p99) = latency(std::mem::take(&mut *lock(&seen.delays)));
    let delays = format!("{:.1} s, {:.1} s", median / 1e3, p99 / 1e3);
    row("from the begin of a run to its mark: median, p99", delays, "");
    rig.end().await?;
    reading.shutdown().await;
    Ok(())
}

async fn until(
    reading: &mut JoinSet<Result<(), Fault>>,
    is_so: impl Fn() -> bool,
) -> Result<(), Fault> {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        if Instant::now() > end {
            return Err("the marks take too long".into());
        }
        while let Some(ended) = reading.try_join_next() {
            ended??;
        }
        sleep(LOOK).await;
    }
    Ok(())
}

/// Reads the stream of a caller. It never ends.
async fn read(
    gateway: SocketAddr,
    caller: u64,
    is_personal: bool,
    seen: Arc<Seen>,
) -> Result<(), Fault> {
    let first = caller * THREADS + 1;
    let threads = (first..first + THREADS).map(|thread| format!("&thread={}", thread_id(thread)));
    let path = format!("/agui/events?agentId=agent{}", threads.collect::<String>());
    let mut request = Request::get(path);
    if is_personal {
        request = request.header("x-api-key", format!("key-of-{caller}"));
    }
    let mut body = send(gateway, request, String::new()).await?.into_body();
    let mut has_begun = false;
    while let Some(frame) = body.frame().await {
        let Ok(bytes) = frame?.into_data() else { continue };
        seen.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if !has_begun && memmem::find(&bytes, br#""threads":["#).is_some() {
            has_begun = true;
            seen.begun.fetch_add(1, Ordering::Relaxed);
        }
        if memmem::find(&bytes, br#""mark":"running""#).is_some() {
            let mut runs = lock(&seen.runs);
            if let Some(at) = runs.iter().position(|(of, _)| *of == caller) {
                let (_, began_at) = runs.swap_remove(at);
                let delay = u64::try_from(began_at.elapsed().as_nanos())?;
                lock(&seen.delays).push(delay);
            }
        }
    }
    Err("a stream of marks has ended".into())
}
