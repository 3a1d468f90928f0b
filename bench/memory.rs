//! The memory of threads, runs and viewers at rest: live data, and what the allocator keeps.
//!
//! `cargo bench --bench memory`; `-- --quick` only checks that everything arrives.
//! `bench/README.md` describes the set-up.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its output is its purpose")]
#![expect(clippy::expect_used, reason = "a broken input must stop it")]

#[path = "load/client.rs"]
#[expect(dead_code, reason = "nobody joins a run, and the upstream is not read directly")]
mod client;
#[path = "memory/counted.rs"]
mod counted;
#[path = "load/kept.rs"]
mod kept;
#[path = "load/lines.rs"]
mod lines;
#[path = "load/listen.rs"]
mod listen;
#[path = "load/process.rs"]
#[expect(dead_code, reason = "CPU and descriptors are not measured")]
mod process;
mod profile;
#[path = "load/scale.rs"]
#[expect(dead_code, reason = "times and requests are not measured")]
mod scale;
#[path = "load/script.rs"]
mod script;
#[path = "load/stored.rs"]
mod stored;
#[path = "load/table.rs"]
#[expect(dead_code, reason = "each figure is a row of its own")]
mod table;
#[path = "load/text.rs"]
mod text;
#[path = "load/upstream.rs"]
#[expect(dead_code, reason = "nobody joins a run")]
mod upstream;
#[path = "load/viewer.rs"]
#[expect(dead_code, reason = "bytes and latencies are not measured")]
mod viewer;

use std::env;
use std::fmt::Display;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use peak_alloc::PeakAlloc;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::sleep;

use client::{Fault, Progress, Target, Wire};
use scale::{Rig, kib, mib};
use script::Script;
use stored::Wanted;
use viewer::{Ask, Viewers};

/// Counts the live data of the gateway that runs in this executable.
#[global_allocator]
static LIVE: PeakAlloc = PeakAlloc;

/// The sizes of the scenarios.
#[derive(Clone, Copy)]
struct Sizes {
    /// Silent runs with one viewer each.
    runs: usize,
    /// Followed threads with four messages.
    small_threads: u64,
    /// Followed threads of 1 MB, and how often the state of each changes.
    threads: u64,
    changes: usize,
    /// Viewers of a thread whose first snapshot has 5 MB.
    viewers: usize,
}

const FULL: Sizes =
    Sizes { runs: 1_000, small_threads: 1_000, threads: 20, changes: 5, viewers: 200 };

const QUICK: Sizes = Sizes { runs: 50, small_threads: 25, threads: 2, changes: 1, viewers: 5 };

/// The pause before memory is read.
const SETTLE: Duration = Duration::from_secs(2);
/// How many runs begin at a time, and how many threads are followed at a time.
const WAVE: usize = 25;
/// Viewers that connect before memory is read.
const WARM_VIEWERS: usize = 20;

/// Which memory is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// What the gateway has allocated and not freed.
    Live,
    /// What the operating system gives to the released binary.
    Resident,
}

/// A gateway whose memory is read.
struct Measured {
    rig: Rig,
    memory: Memory,
}

fn main() -> ExitCode {
    // Cargo adds `--bench`.
    let arguments: Vec<_> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    // A thousand viewers need two thousand descriptors in the gateway, which inherits the limit.
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        eprintln!("memory: {error}");
    }
    let role = async {
        match &*arguments {
            ["upstream"] => upstream::run().await,
            ["gateway", upstream] => counted::serve(upstream, || LIVE.current_usage()).await,
            [] => measure(FULL).await,
            ["--quick"] => {
                measure(QUICK).await?;
                println!("One short round: the figures are not a measurement.");
                Ok(())
            }
            _ => Err("expected nothing or --quick".into()),
        }
    };
    match Runtime::new().map_err(Fault::from).and_then(|runtime| runtime.block_on(role)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("memory: {fault}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(sizes: Sizes) -> Result<(), Fault> {
    profile::print();
    println!("\n| what | live data | resident | wanted |\n|---|--:|--:|---|");
    let Sizes { runs, small_threads, threads, changes, viewers } = sizes;
    row("idle run with one viewer", kib, "≤ 55 KiB", async |gateway| {
        gateway.idle_runs(runs).await
    })
    .await?;
    row("followed idle thread with one viewer", kib, "≤ 30 KiB", async |gateway| {
        gateway.followed(Wanted::conversation(1, 4), small_threads, 0).await
    })
    .await?;
    let megabyte = Wanted { state_bytes: 500_000, ..Wanted::conversation(1, 2_000) };
    row("followed thread of 1 MB", mib, "", async |gateway| {
        gateway.followed(megabyte, threads, 0).await
    })
    .await?;
    let what = format!("followed thread of 1 MB after {changes} changes");
    row(&what, mib, "≤ 3 MiB", async |gateway| {
        gateway.followed(megabyte, threads, changes).await
    })
    .await?;
    row("idle viewer after a snapshot of 5 MB", kib, "≤ 32 KiB", async |gateway| {
        gateway.viewers(viewers).await
    })
    .await
}

/// Measures a scenario with a gateway that counts, and with the released binary.
async fn row<D: Display>(
    what: &str,
    shown: fn(u64) -> D,
    wanted: &str,
    scenario: impl AsyncFn(&mut Measured) -> Result<u64, Fault>,
) -> Result<(), Fault> {
    let live = scenario(&mut Measured::start(Memory::Live)?).await?;
    let resident = scenario(&mut Measured::start(Memory::Resident)?).await?;
    println!("| {what} | {} | {} | {wanted} |", shown(live), shown(resident));
    Ok(())
}

// === impl Measured ===

impl Measured {
    fn start(memory: Memory) -> Result<Self, Fault> {
        let rig = match memory {
            Memory::Live => Rig::counted()?,
            Memory::Resident => Rig::start()?,
        };
        Ok(Self { rig, memory })
    }

    fn read(&mut self) -> Result<u64, Fault> {
        match self.memory {
            Memory::Live => self.rig.gateway.live(),
            Memory::Resident => self.rig.gateway.resident(),
        }
    }

    /// How much each of these has added.
    async fn grown(&mut self, before: u64, count: u64) -> Result<u64, Fault> {
        sleep(SETTLE).await;
        Ok(self.read()?.saturating_sub(before) / count)
    }

    /// Silent runs, each started by its viewer.
    async fn idle_runs(&mut self, runs: usize) -> Result<u64, Fault> {
        let target = Target { address: self.rig.address(), wire: Wire::Agui };
        // The memory that a process sets up for its first run does not count for a run.
        client::run(target, Script::SHORT, 0, &Progress::default()).await?;
        let before = self.read()?;
        let progress = Arc::new(Progress::default());
        let mut reading = JoinSet::new();
        while reading.len() < runs {
            for _ in 0..WAVE {
                let (thread, progress) = (reading.len() as u64 + 1, Arc::clone(&progress));
                reading.spawn(async move {
                    client::run(target, Script::idle(), thread, &progress).await
                });
            }
            while progress.started.load(Ordering::Relaxed) < reading.len() {
                sleep(Duration::from_millis(1)).await;
            }
        }
        let each = self.grown(before, reading.len() as u64).await?;
        self.rig.end().await?;
        while let Some(ended) = reading.join_next().await {
            ended??;
        }
        Ok(each)
    }

    /// Threads with one follower each, whose states change a number of times.
    async fn followed(
        &mut self,
        wanted: Wanted,
        threads: u64,
        changes: usize,
    ) -> Result<u64, Fault> {
        self.rig.store(Wanted { count: threads, ..wanted }).await?;
        let before = self.read()?;
        let mut viewers = Viewers::default();
        let mut told = 0_usize;
        for thread in 1..=threads {
            viewers.add(self.rig.address(), Ask::Follow, thread);
            told += 1;
            if told.is_multiple_of(WAVE) {
                viewers.until(|seen| seen.ends.load(Ordering::Relaxed) == told).await?;
            }
        }
        viewers.until(|seen| seen.ends.load(Ordering::Relaxed) == told).await?;
        for _ in 0..changes {
            for thread in 1..=threads {
                self.rig.change(thread).await?;
            }
            told += usize::try_from(threads)?;
            viewers.until(|seen| seen.ends.load(Ordering::Relaxed) >= told).await?;
        }
        let each = self.grown(before, threads).await?;
        viewers.leave().await;
        Ok(each)
    }

    /// Viewers that each got a large snapshot, and nothing since.
    async fn viewers(&mut self, viewers: usize) -> Result<u64, Fault> {
        let wanted = Wanted { state_bytes: 2_500_000, ..Wanted::conversation(1, 10_000) };
        self.rig.store(wanted).await?;
        let mut reading = Viewers::default();
        // What the allocator keeps from reading such states does not count for a viewer.
        self.one_by_one(&mut reading, WARM_VIEWERS).await?;
        sleep(SETTLE).await;
        let before = self.read()?;
        self.one_by_one(&mut reading, viewers).await?;
        let each = self.grown(before, viewers as u64).await?;
        reading.leave().await;
        Ok(each)
    }

    /// Adds followers of the first thread, each after the one before has the thread.
    async fn one_by_one(&self, viewers: &mut Viewers, more: usize) -> Result<(), Fault> {
        for _ in 0..more {
            let sent = viewers.seen.ends.load(Ordering::Relaxed) + 1;
            viewers.add(self.rig.address(), Ask::Follow, 1);
            viewers.until(|seen| seen.ends.load(Ordering::Relaxed) == sent).await?;
        }
        Ok(())
    }
}
