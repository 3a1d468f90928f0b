//! Many viewers of one run: the cost of each viewer's token, compared with a bare process that
//! copies the same bytes to as many sockets.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use http_body_util::combinators::BoxBody;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::sleep;

use crate::client::Fault;
use crate::listen::serve;
use crate::process::Process;
use crate::scale::{Rig, head, kib, latency, row};
use crate::scenario::micros;
use crate::script::Script;
use crate::stored::Wanted;
use crate::table::float;
use crate::upstream::lock;
use crate::viewer::{Ask, Viewers, open};

/// How many viewers the run has, and how long each figure is measured.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) viewers: usize,
    pub(crate) seconds: u64,
    pub(crate) rounds: usize,
}

pub(crate) const FULL: Sizes = Sizes { viewers: 1_000, seconds: 5, rounds: 3 };
pub(crate) const QUICK: Sizes = Sizes { viewers: 50, seconds: 1, rounds: 1 };

const INTERVAL: Duration = Duration::from_millis(20);
const SETTLE: Duration = Duration::from_secs(1);
/// The thread of the run.
const THREAD: u64 = 1;

/// The cost of the viewers of one process.
struct Cost {
    /// Of one token for one viewer, in microseconds.
    cpu: f64,
    memory: u64,
    latency: (f64, f64),
}

pub(crate) async fn run(sizes: Sizes) -> Result<(), Fault> {
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..sizes.rounds {
        bare.push(cost(sizes, true).await?);
        ours.push(cost(sizes, false).await?);
    }
    let Sizes { viewers, .. } = sizes;
    head(&format!(
        "{viewers} viewers of one run of 50 tokens/s, beside a process that copies the bytes"
    ));
    let (ours, bare) = (median(ours)?, median(bare)?);
    let ratio = ours.cpu / bare.cpu;
    row(
        "CPU per viewer and token",
        format!("{:.2} µs, {ratio:.2} × {:.2} µs", ours.cpu, bare.cpu),
        "≤ 1.5 ×",
    );
    row(
        "memory per viewer",
        format!("{}, the copying process {}", kib(ours.memory), kib(bare.memory)),
        "",
    );
    row(
        "latency p50 and p99",
        format!(
            "{:.2} and {:.2} ms, the copying process {:.2} and {:.2} ms",
            ours.latency.0, ours.latency.1, bare.latency.0, bare.latency.1
        ),
        "",
    );
    Ok(())
}

fn median(mut costs: Vec<Cost>) -> Result<Cost, Fault> {
    costs.sort_by(|a, b| a.cpu.total_cmp(&b.cpu));
    let middle = costs.len() / 2;
    costs.into_iter().nth(middle).ok_or_else(|| "no round was made".into())
}

/// The cost of viewers for the gateway, or for a process that copies the gateway's stream to them.
async fn cost(sizes: Sizes, is_copied: bool) -> Result<Cost, Fault> {
    let rig = Rig::start()?;
    rig.store(Wanted::conversation(THREAD, 4)).await?;
    rig.run(THREAD, Script { goes_on: true, interval_us: 20_000, ..Script::SHORT }).await?;
    let copier = if is_copied {
        let gateway = rig.address().to_string();
        Some(Process::start("copier", std::env::current_exe()?, &["copier", &gateway])?)
    } else {
        None
    };
    let measured = copier.as_ref().unwrap_or(&rig.gateway);
    let mut viewers = Viewers::default();
    let before = measured.resident()?;
    for viewer in 1..=sizes.viewers {
        viewers.add(measured.address(), Ask::Events, THREAD);
        if viewer % 25 == 0 {
            viewers.until(|seen| seen.snapshots.load(Ordering::Relaxed) >= viewer).await?;
        }
    }
    sleep(SETTLE).await;
    let memory = measured.resident()?.saturating_sub(before) / sizes.viewers as u64;
    let (cpu, tokens) = (measured.cpu()?, viewers.seen.tokens.load(Ordering::Relaxed));
    sleep(Duration::from_secs(sizes.seconds)).await;
    let tokens = viewers.seen.tokens.load(Ordering::Relaxed) - tokens;
    let cpu = measured.cpu()?.saturating_sub(cpu);
    rig.end().await?;
    viewers.until(|seen| seen.ends.load(Ordering::Relaxed) == sizes.viewers).await?;
    let wanted = sizes.seconds * 1_000_000 / micros(INTERVAL) * sizes.viewers as u64;
    if tokens < wanted * 9 / 10 {
        eprintln!(
            "{tokens} tokens came to the viewers, of some {wanted}: the machine was too slow"
        );
    }
    Ok(Cost {
        cpu: cpu.as_secs_f64() * 1e6 / float(tokens),
        memory,
        latency: latency(viewers.leave().await),
    })
}

/// The bytes that the copying process has read, and its viewers.
#[derive(Default)]
struct Copies {
    /// All bytes so far. A viewer that connects later gets them first.
    past: Vec<Bytes>,
    viewers: Vec<UnboundedSender<Bytes>>,
    is_over: bool,
}

// === impl Copies ===

impl Copies {
    fn send(&mut self, bytes: &Bytes) {
        self.past.push(bytes.clone());
        self.viewers.retain(|viewer| viewer.send(bytes.clone()).is_ok());
    }

    fn end(&mut self) {
        self.is_over = true;
        self.viewers.clear();
    }
}

/// Reads the run at the gateway once, and copies the bytes to all viewers.
pub(crate) async fn copy(gateway: SocketAddr) -> Result<(), Fault> {
    let copies = Arc::new(Mutex::new(Copies::default()));
    let mut response = open(gateway, Ask::Events, THREAD).await?;
    let all = Arc::clone(&copies);
    let reading = async move {
        while let Some(frame) = response.body_mut().frame().await {
            if let Ok(bytes) = frame?.into_data() {
                lock(&all).send(&bytes);
            }
        }
        lock(&all).end();
        std::future::pending::<Result<(), Fault>>().await
    };
    tokio::select! {
        read = reading => read,
        served = serve(move |_| {
            let copies = Arc::clone(&copies);
            async move { Ok::<Response<BoxBody<Bytes, Infallible>>, Fault>(Response::new(Copy::of(&copies).boxed())) }
        }) => served,
    }
}

/// The body of one viewer's response.
struct Copy(UnboundedReceiver<Bytes>);

// === impl Copy ===

impl Copy {
    fn of(copies: &Mutex<Copies>) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut copies = lock(copies);
        for bytes in &copies.past {
            // The receiver is in scope.
            let _ = sender.send(bytes.clone());
        }
        if !copies.is_over {
            copies.viewers.push(sender);
        }
        Self(receiver)
    }
}

impl Body for Copy {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
