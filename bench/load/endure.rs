//! The memory that remains after many runs, and the end of live streams when the gateway stops.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use threadway::runs::LINGER;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::client::{self, Fault, Progress, Target, Wire};
use crate::process::Process;
use crate::script::Script;

/// How many runs are made, and after how many each measurement follows.
const RUNS: u64 = 10_000;
const LOOKS: u64 = 4;
/// How many runs are live at the same time.
const AT_A_TIME: u64 = 100;
/// How many runs precede the first measurement: the gateway keeps what it sets up for them.
const FIRST_RUNS: u64 = 1_000;
/// How many streams are live when the gateway is stopped.
const LIVE: u64 = 200;
/// How long both sides may take to close connections. The gateway keeps those to its upstream for 3
/// s, and checks them as often.
const SETTLE: Duration = Duration::from_secs(8);

/// The resources of a process.
pub(crate) struct Holding {
    pub(crate) resident: u64,
    pub(crate) descriptors: usize,
}

/// Makes the runs, then stops the gateway while streams are live; prints the figures.
pub(crate) async fn run() -> Result<(), Fault> {
    let upstream = Process::start("upstream", std::env::current_exe()?, &["upstream"])?;
    let url = format!("http://{}", upstream.address());
    let arguments = ["serve", "--upstream", &url, "--listen", "127.0.0.1:0", "--log", "warn"];
    let gateway = Process::start("threadway", env!("CARGO_BIN_EXE_threadway"), &arguments)?;
    let target = Target { address: gateway.address(), wire: Wire::Agui };

    many(target, 0..FIRST_RUNS).await?;
    let before = Holding::of(&gateway).await?;
    println!("after {FIRST_RUNS} runs: {before}");
    for look in 1..=LOOKS {
        let end = FIRST_RUNS + RUNS * look / LOOKS;
        many(target, end - RUNS / LOOKS..end).await?;
        let after = Holding::of(&gateway).await?;
        println!("after {end} runs: {after}");
        if after.descriptors > before.descriptors {
            return Err("file descriptors were left open".into());
        }
    }

    let mut live = JoinSet::new();
    for thread in 0..LIVE {
        let thread = FIRST_RUNS + RUNS + thread;
        live.spawn(async move {
            let mut response = client::start(target, Script::idle(), thread).await?;
            // RUN_STARTED.
            let first = response.body_mut().frame().await.ok_or("an empty stream")??;
            drop(first);
            Ok::<_, Fault>(response)
        });
    }
    let mut streams = Vec::new();
    while let Some(stream) = live.join_next().await {
        streams.push(stream??);
    }
    let began = Instant::now();
    let exit = tokio::task::spawn_blocking(move || gateway.terminate());
    let mut ended = 0;
    for stream in streams {
        let rest = stream.into_body().collect().await?.to_bytes();
        let rest = String::from_utf8_lossy(&rest);
        let is_told = rest.contains("\"type\":\"RUN_ERROR\"")
            && rest.contains("\"code\":\"gateway_shutdown\"")
            && rest.ends_with("\n\n");
        if !is_told {
            return Err(format!("a stream ended otherwise: {rest}").into());
        }
        ended += 1;
    }
    let status = exit.await??;
    let seconds = began.elapsed().as_secs_f64();
    println!("SIGTERM with {LIVE} live streams: {ended} ended in order, {status}, {seconds:.2} s");
    if status.success() { Ok(()) } else { Err("the gateway did not stop in order".into()) }
}

async fn many(target: Target, threads: std::ops::Range<u64>) -> Result<(), Fault> {
    let script = Script { tokens: 20, ..Script::SHORT };
    let progress = Arc::new(Progress::default());
    let mut runs = JoinSet::new();
    for thread in threads {
        if runs.len() as u64 == AT_A_TIME {
            runs.join_next().await.ok_or("no run")???;
        }
        let progress = Arc::clone(&progress);
        runs.spawn(async move { client::run(target, script, thread, &progress).await });
    }
    while let Some(run) = runs.join_next().await {
        run??;
    }
    Ok(())
}

// === impl Holding ===

impl Holding {
    async fn of(process: &Process) -> Result<Self, Fault> {
        sleep(SETTLE).await;
        Self::now(process)
    }

    /// The resources of each process now.
    pub(crate) fn of_all(processes: &[Process]) -> Result<Vec<Self>, Fault> {
        processes.iter().map(Self::now).collect()
    }

    /// The resources of each process when it is idle.
    pub(crate) async fn settled(processes: &[Process]) -> Result<Vec<Self>, Fault> {
        sleep(SETTLE + LINGER).await;
        Self::of_all(processes)
    }

    fn now(process: &Process) -> Result<Self, Fault> {
        Ok(Self { resident: process.resident()?, descriptors: process.descriptors()? })
    }
}

impl std::fmt::Display for Holding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { resident, descriptors } = self;
        write!(f, "{} KiB of memory, {descriptors} file descriptors", resident / 1024)
    }
}
