//! Many threads are followed, and nothing happens: the upstream requests in that time, and the
//! gateway's memory.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use crate::client::Fault;
use crate::scale::{Rig, head, mib, row};
use crate::stored::{Mood, Wanted};
use crate::table::float;
use crate::viewer::{Ask, Viewers};

/// How many threads are followed, and how long each figure is measured.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) threads: u64,
    pub(crate) seconds: u64,
    /// The pause before the first figure.
    pub(crate) settle: Duration,
}

pub(crate) const QUICK: Sizes = Sizes { threads: 50, seconds: 1, settle: Duration::from_secs(1) };
/// Each figure takes twenty seconds.
pub(crate) fn full(threads: u64) -> Sizes {
    Sizes { threads, seconds: 20, settle: Duration::from_secs(5) }
}

pub(crate) async fn run(sizes: Sizes) -> Result<(), Fault> {
    let Sizes { threads, seconds, settle } = sizes;
    let rig = Rig::start()?;
    let wanted = Wanted { count: threads, ..Wanted::conversation(1, 4) };
    rig.store(wanted).await?;
    let mut viewers = Viewers::default();
    let before = rig.gateway.descriptors()?;
    let mut followed = 0;
    for thread in 1..=threads {
        viewers.add(rig.address(), Ask::Follow, thread);
        followed += 1;
        if thread % 25 == 0 {
            viewers.until(|seen| seen.ends.load(Ordering::Relaxed) == followed).await?;
        }
    }
    viewers.until(|seen| seen.ends.load(Ordering::Relaxed) == followed).await?;
    sleep(settle).await;

    head(&format!("{threads} followed threads at rest"));
    let at_rest = asked(&rig, seconds).await?;
    row("upstream requests/s at rest", at_rest.shown(), "≤ 20/s");
    let descriptors = rig.gateway.descriptors()?.saturating_sub(before + followed);
    row("descriptors to the upstream", descriptors, "≤ 300");
    row("memory of the process", mib(rig.gateway.resident()?), "≤ 500 MiB");

    rig.mood(Mood { refusal: Some(429), ..Mood::default() }).await?;
    asked(&rig, 3).await?;
    let refused = asked(&rig, seconds).await?;
    row(
        "upstream requests/s while it answers 429, `Retry-After: 30`",
        refused.shown(),
        "≤ 2/s (500 threads)",
    );
    rig.mood(Mood { refusal: Some(503), ..Mood::default() }).await?;
    asked(&rig, 3).await?;
    let down = asked(&rig, seconds).await?;
    row("upstream requests/s while it answers 503", down.shown(), "≤ 2/s (500 threads)");
    let cpu = rig.gateway.cpu()?;
    rig.upstream.signal("-STOP")?;
    sleep(Duration::from_secs(seconds)).await;
    rig.upstream.signal("-CONT")?;
    let cpu = rig.gateway.cpu()?.saturating_sub(cpu).as_secs_f64() / float(seconds);
    row("CPU while it answers nothing", format!("{:.1} %", cpu * 100.0), "");
    rig.mood(Mood::default()).await?;
    viewers.leave().await;
    Ok(())
}

/// The requests to the upstream.
struct Asked {
    per_second: f64,
    kinds: Vec<(String, u64, u64)>,
}

async fn asked(rig: &Rig, seconds: u64) -> Result<Asked, Fault> {
    rig.counts().await?;
    sleep(Duration::from_secs(seconds)).await;
    let kinds = rig.counts().await?;
    let all = kinds.iter().map(|(_, count, _)| count).sum();
    Ok(Asked { per_second: float(all) / float(seconds), kinds })
}

// === impl Asked ===

impl Asked {
    fn shown(&self) -> String {
        let kinds: Vec<_> = self.kinds.iter().map(|(kind, n, _)| format!("{kind} {n}")).collect();
        format!("{:.1} ({})", self.per_second, kinds.join(", "))
    }
}
