//! The gateway under load, compared with a bare pass-through of the same bytes: CPU, latency,
//! throughput, memory. Also checks that clients receive everything that the upstream sent.
//!
//! `bench/README.md` lists the commands, and describes the set-up.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its output is its purpose")]
#![expect(clippy::expect_used, reason = "a broken input must stop it")]

#[path = "load/capacity.rs"]
mod capacity;
#[path = "load/client.rs"]
mod client;
#[path = "load/crowd.rs"]
mod crowd;
#[path = "load/editor.rs"]
mod editor;
#[path = "load/editors.rs"]
mod editors;
#[path = "load/endure.rs"]
mod endure;
#[path = "load/fanout.rs"]
mod fanout;
#[path = "load/floor.rs"]
mod floor;
#[path = "load/follow.rs"]
mod follow;
#[path = "load/held.rs"]
mod held;
#[path = "load/idle.rs"]
mod idle;
#[path = "load/join.rs"]
mod join;
#[path = "load/kept.rs"]
mod kept;
#[path = "load/large.rs"]
mod large;
#[path = "load/lines.rs"]
mod lines;
#[path = "load/listen.rs"]
mod listen;
#[path = "load/marks.rs"]
mod marks;
#[path = "load/pipe.rs"]
mod pipe;
#[path = "load/process.rs"]
#[expect(dead_code, reason = "no live data are counted here")]
mod process;
mod profile;
#[path = "load/reload.rs"]
mod reload;
#[path = "load/resume.rs"]
mod resume;
#[path = "load/scale.rs"]
#[expect(dead_code, reason = "no live data are counted here")]
mod scale;
#[path = "load/scenario.rs"]
mod scenario;
#[path = "load/script.rs"]
mod script;
#[path = "load/slow.rs"]
mod slow;
#[path = "load/soak.rs"]
mod soak;
#[path = "stdio/client.rs"]
mod stdio;
#[path = "load/stored.rs"]
mod stored;
#[path = "load/table.rs"]
mod table;
#[path = "load/text.rs"]
mod text;
#[path = "load/upstream.rs"]
mod upstream;
#[path = "load/viewer.rs"]
mod viewer;

use std::env;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use client::Fault;
use scenario::{Bench, Outcome, Sizes};

/// The sizes for the figures in `docs/scale.md`.
const FULL: Sizes = Sizes {
    rounds: 7,
    streams: 100,
    window: Duration::from_secs(4),
    flat_tokens: 1_000,
    single_tokens: 50_000,
    idle_runs: 1_000,
    viewers: 1_000,
    starts: 50,
    joins: None,
};

/// The sizes for a check that nothing is lost.
const QUICK: Sizes = Sizes {
    rounds: 1,
    streams: 100,
    window: Duration::from_secs(1),
    flat_tokens: 200,
    single_tokens: 10_000,
    idle_runs: 200,
    viewers: 200,
    starts: 5,
    joins: Some(join::Sizes { joiners: 100, late_tokens: 5_000, rest: Duration::ZERO }),
};

/// The gateway that is measured, unless an option names another one.
const THREADWAY: &str = env!("CARGO_BIN_EXE_threadway");

/// How often the joins are measured.
const JOIN_ROUNDS: usize = 5;
const JOINS: join::Sizes =
    join::Sizes { joiners: 1_000, late_tokens: 100_000, rest: Duration::from_secs(8) };

/// Raises the limit of file descriptors for this process and its children: a thousand viewers need
/// two thousand in the gateway.
const WITH_DESCRIPTORS: &str = r#"ulimit -n "$(ulimit -Hn)"; exec "$0" "$@""#;

fn main() -> ExitCode {
    // Cargo adds `--bench`.
    let arguments: Vec<_> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let done = match &*arguments {
        ["upstream"] => block_on(upstream::run()),
        ["floor", upstream] => at(upstream, floor::run),
        ["endure"] => block_on(endure::run()),
        ["reload"] => block_on(reload::run()),
        ["resume"] => block_on(resume::run()),
        ["soak", minutes] => count_of(minutes).and_then(|minutes| block_on(soak::run(minutes))),
        ["measure"] => block_on(measure(|bench| bench.run(FULL))),
        ["measure", "--quick"] => block_on(quick()),
        ["measure", "--join"] => block_on(measure(|bench| bench.run_joins(JOIN_ROUNDS, JOINS))),
        ["copier", gateway] => at(gateway, fanout::copy),
        ["follow"] => block_on(follow::run(follow::FULL)),
        ["idle", threads] => count_of(threads).and_then(|threads| block_on(idle::run(idle::full(threads)))),
        ["marks", callers, keys] => count_of(callers).and_then(|callers| block_on(marks::run(marks::full(callers, *keys == "own")))),
        ["crowd", followers, program] => count_of(followers).and_then(|followers| block_on(crowd::run(followers, program))),
        ["editors"] => block_on(editors::run(editors::FULL)),
        ["capacity"] => block_on(capacity::run()),
        ["slow", programs @ ..] => block_on(slow::run(programs)),
        ["fanout"] => block_on(fanout::run(fanout::FULL)),
        ["large"] => block_on(large::run(large::FULL)),
        ["--capacity"] => Err(again("capacity", &[])),
        ["--fanout"] => Err(again("fanout", &[])),
        ["--editors"] => Err(again("editors", &[])),
        ["--follow"] => Err(again("follow", &[])),
        ["--idle"] => Err(again("idle", &["10000"])),
        ["--idle", "--threads", threads] => Err(again("idle", &[threads])),
        ["--marks"] => Err(again("marks", &["9500", "shared"])),
        ["--marks", "--callers", callers] => Err(again("marks", &[callers, "shared"])),
        ["--marks", "--callers", callers, "--own-keys"] => Err(again("marks", &[callers, "own"])),
        ["--crowd"] => Err(again("crowd", &[&crowd::FOLLOWERS.to_string(), THREADWAY])),
        ["--crowd", "--followers", followers] => Err(again("crowd", &[followers, THREADWAY])),
        ["--crowd", "--gateway", program] => {
            Err(again("crowd", &[&crowd::FOLLOWERS.to_string(), program]))
        }
        ["--large"] => Err(again("large", &[])),
        ["--slow"] => Err(again("slow", &[THREADWAY])),
        ["--slow", "--gateways", programs @ ..] => Err(again("slow", programs)),
        [] | ["--quick" | "--join"] => Err(again("measure", &arguments)),
        ["--endure"] => Err(again("endure", &[])),
        ["--reload"] => Err(again("reload", &[])),
        ["--resume"] => Err(again("resume", &[])),
        ["--soak"] => Err(again("soak", &[&soak::MINUTES.to_string()])),
        ["--soak", "--minutes", minutes] => Err(again("soak", &[minutes])),
        _ => {
            Err("expected nothing, --quick, --join, --follow, --idle, --marks, --crowd, --fanout, --large, --slow, --capacity, --editors, --reload, --resume, --endure or --soak".into())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("load: {fault}");
            ExitCode::FAILURE
        }
    }
}

/// Replaces this process by the same executable in another role. Returns only on failure.
fn again(role: &str, arguments: &[&str]) -> Fault {
    profile::print();
    let this = match env::current_exe() {
        Ok(this) => this,
        Err(error) => return error.into(),
    };
    Command::new("sh")
        .args(["-c", WITH_DESCRIPTORS])
        .arg(this)
        .arg(role)
        .args(arguments)
        .exec()
        .into()
}

/// Runs a role in front of the upstream at this address.
fn at<F>(upstream: &str, role: impl FnOnce(SocketAddr) -> F) -> Result<(), Fault>
where
    F: Future<Output = Result<(), Fault>>,
{
    match upstream.parse() {
        Ok(upstream) => block_on(role(upstream)),
        Err(_) => Err(format!("{upstream} is no address").into()),
    }
}

fn count_of(number: &str) -> Result<u64, Fault> {
    number.parse().map_err(|_| format!("{number} is no number").into())
}

/// Runs a role on a runtime with one thread per core.
fn block_on(role: impl Future<Output = Result<(), Fault>>) -> Result<(), Fault> {
    Runtime::new()?.block_on(role)
}

/// Only checks that everything arrives.
async fn quick() -> Result<(), Fault> {
    measure(|bench| bench.run(QUICK)).await?;
    follow::run(follow::QUICK).await?;
    idle::run(idle::QUICK).await?;
    marks::run(marks::QUICK).await?;
    fanout::run(fanout::QUICK).await?;
    large::run(large::QUICK).await?;
    editors::run(editors::QUICK).await?;
    println!("One short round: the figures are not a measurement.");
    Ok(())
}

/// Measures, and prints the table. The processes end with it, whether it succeeds or fails.
async fn measure<F>(scenarios: impl FnOnce(Bench) -> F) -> Result<(), Fault>
where
    F: Future<Output = Result<Outcome, Fault>>,
{
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let outcome = tokio::select! {
        outcome = Box::pin(scenarios(Bench::new()?)) => outcome?,
        _ = terminate.recv() => return Err("stopped".into()),
        _ = interrupt.recv() => return Err("stopped".into()),
    };
    let Outcome { figures, runs, joins, tokens } = outcome;
    println!("{figures}");
    println!(
        "{runs} runs, {joins} joins, {tokens} tokens: each came once, in order and to its end."
    );
    Ok(())
}
