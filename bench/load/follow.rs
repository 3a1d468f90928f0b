//! Many clients follow one thread, and its next run begins: the bytes of each, and the cost
//! compared with a short conversation.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use crate::client::Fault;
use crate::scale::{Probe, Rig, head, kib, latency, row};
use crate::scenario::micros;
use crate::script::Script;
use crate::stored::Wanted;
use crate::table::float;
use crate::viewer::{Ask, Viewers};

/// How many clients follow, and the length of the longer conversation.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) followers: usize,
    pub(crate) messages: usize,
    /// The pause before a figure is read.
    pub(crate) settle: Duration,
}

pub(crate) const FULL: Sizes =
    Sizes { followers: 1_000, messages: 5_000, settle: Duration::from_secs(3) };
pub(crate) const QUICK: Sizes =
    Sizes { followers: 50, messages: 500, settle: Duration::from_secs(1) };

/// The length of the conversation that the longer one is compared with, in messages.
const FEW: usize = 10;
/// The tokens of the next run.
const TOKENS: u64 = 100;
const INTERVAL_US: u64 = 20_000;

/// The cost of one conversation's followers.
struct Cost {
    bytes: u64,
    cpu: Duration,
    latency: (f64, f64),
    slowest: Duration,
}

pub(crate) async fn run(sizes: Sizes) -> Result<(), Fault> {
    let few = cost(sizes, FEW).await?;
    let many = cost(sizes, sizes.messages).await?;
    let Sizes { followers, messages, .. } = sizes;
    head(&format!(
        "{followers} followers of a thread with {messages} messages, next run of {TOKENS} tokens"
    ));
    row(
        "bytes each, without the bytes with 10 messages",
        kib(many.bytes.saturating_sub(few.bytes)),
        "≤ 4 KiB",
    );
    row("bytes each, with 10 messages", kib(few.bytes), "");
    let ratio = many.cpu.as_secs_f64() / few.cpu.as_secs_f64();
    row(
        "CPU, beside 10 messages",
        format!("{ratio:.2} × {:.2} s", few.cpu.as_secs_f64()),
        "≤ 1.5 ×",
    );
    row("token latency p50", format!("{:.1} ms", many.latency.0), "");
    row("token latency p99", format!("{:.1} ms", many.latency.1), "≤ 25 ms");
    row("token latency p99, with 10 messages", format!("{:.1} ms", few.latency.1), "");
    row("slowest `/healthz`", format!("{:.1} ms", float(micros(many.slowest)) / 1e3), "≤ 50 ms");
    row(
        "slowest `/healthz`, with 10 messages",
        format!("{:.1} ms", float(micros(few.slowest)) / 1e3),
        "",
    );
    Ok(())
}

async fn cost(sizes: Sizes, messages: usize) -> Result<Cost, Fault> {
    let Sizes { followers, settle, .. } = sizes;
    let rig = Rig::start()?;
    rig.store(Wanted::conversation(1, messages)).await?;
    let mut viewers = Viewers::default();
    for follower in 1..=followers {
        viewers.add(rig.address(), Ask::Follow, 1);
        // In small groups, because the first snapshots are not measured.
        if follower % 25 == 0 {
            viewers.until(|seen| seen.ends.load(Ordering::Relaxed) == follower).await?;
        }
    }
    viewers.until(|seen| seen.ends.load(Ordering::Relaxed) == followers).await?;
    sleep(settle).await;
    let (bytes, cpu) = (viewers.seen.bytes.load(Ordering::Relaxed), rig.gateway.cpu()?);
    let probe = Probe::start(rig.address());
    rig.run(1, Script { tokens: TOKENS, interval_us: INTERVAL_US, ..Script::SHORT }).await?;
    viewers.until(|seen| seen.ends.load(Ordering::Relaxed) == 2 * followers).await?;
    let slowest = probe.stop().await?;
    let cpu = rig.gateway.cpu()?.saturating_sub(cpu);
    sleep(settle).await;
    let bytes = viewers.seen.bytes.load(Ordering::Relaxed) - bytes;
    Ok(Cost {
        bytes: bytes / followers as u64,
        cpu,
        latency: latency(viewers.leave().await),
        slowest,
    })
}
