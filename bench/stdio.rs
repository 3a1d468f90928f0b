//! ACP over stdio: the speed and the memory of `threadway acp` for streams of a LangGraph server,
//! compared with an agent made with the Rust SDK that sends the same updates from memory.
//!
//! `cargo bench --bench stdio`; `-- --quick` only checks that everything arrives, without the SDK.
//! `bench/README.md` describes the set-up.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its output is its purpose")]
#![expect(clippy::expect_used, reason = "a broken input must stop it")]

#[path = "stdio/client.rs"]
mod client;
#[path = "load/kept.rs"]
mod kept;
#[path = "load/listen.rs"]
#[expect(dead_code, reason = "the client speaks over pipes")]
mod listen;
#[path = "load/process.rs"]
#[expect(dead_code, reason = "the upstream is not measured")]
mod process;
mod profile;
#[path = "load/script.rs"]
#[expect(dead_code, reason = "no run is idle here")]
mod script;
#[path = "load/stored.rs"]
#[expect(dead_code, reason = "no thread holds anything before its run")]
mod stored;
#[path = "load/text.rs"]
#[expect(dead_code, reason = "a text is heard from its beginning")]
mod text;
#[path = "load/upstream.rs"]
#[expect(dead_code, reason = "all runs end by themselves")]
mod upstream;

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use tokio::runtime::Runtime;

use client::{Agent, Asked, Fault, Told};
use process::Process;

/// The sizes of a measurement.
struct Sizes {
    rounds: usize,
    /// Of all sessions together.
    tokens: u64,
    pause: Duration,
}

/// The sizes for the figures in `docs/scale.md`.
const FULL: Sizes = Sizes { rounds: 5, tokens: 200_000, pause: Duration::from_secs(5) };

/// The sizes for a check that nothing is lost.
const QUICK: Sizes = Sizes { rounds: 1, tokens: 20_000, pause: Duration::from_secs(1) };

/// How many sessions are active at once in the scenario with many.
const SESSIONS: u64 = 8;

/// The agent that sends the updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Teller {
    /// The gateway: it reads, decodes, translates and projects a stream.
    Threadway,
    /// The SDK's agent, over the SDK's stdio.
    SdkStdio,
    /// The SDK's agent, with a writer of its own that joins lines.
    SdkLines,
}

/// A scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scenario {
    /// One session, and a client that reads as fast as it can.
    One,
    /// Several sessions of one process, and the same client.
    Many,
    /// One session, and a client that reads nothing for a while.
    Paused,
}

/// A measured value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Figure {
    Rate,
    Cpu,
    Peak,
    Updates,
    Bytes,
}

/// All figures of all rounds.
#[derive(Default)]
struct Figures(BTreeMap<(Scenario, Figure, Teller), Vec<f64>>);

fn main() -> ExitCode {
    // Cargo adds `--bench`.
    let arguments: Vec<_> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let done = match &*arguments {
        ["upstream"] => Runtime::new()
            .map_err(Fault::from)
            .and_then(|runtime| runtime.block_on(upstream::run())),
        [] => sdk_agent().and_then(|sdk| measure(&FULL, Some(&sdk))),
        ["--quick"] => measure(&QUICK, None),
        _ => Err("expected nothing or --quick".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("stdio: {fault}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the SDK's agent. The agent is no part of this package, because threadway does not depend
/// on the SDK.
fn sdk_agent() -> Result<PathBuf, Fault> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/acp-sdk/Cargo.toml");
    // Next to cargo's output for this package.
    let threadway = Path::new(env!("CARGO_BIN_EXE_threadway"));
    let target = threadway.ancestors().nth(2).ok_or("no target directory")?.join("acp-sdk");
    eprintln!("stdio: building bench/acp-sdk; the first time takes some minutes");
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--locked", "--quiet", "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(&target)
        .status()?;
    if !status.success() {
        return Err("bench/acp-sdk was not built; `-- --quick` does without it".into());
    }
    Ok(target.join("release/threadway-bench-acp-sdk"))
}

/// Measures, and prints the table.
fn measure(sizes: &Sizes, sdk: Option<&Path>) -> Result<(), Fault> {
    profile::print();
    let this = env::current_exe()?;
    let upstream = Process::start("upstream", this, &["upstream"])?;
    let url = format!("http://{}", upstream.address());
    let mut tellers = vec![Teller::Threadway];
    tellers.extend(sdk.iter().flat_map(|_| [Teller::SdkStdio, Teller::SdkLines]));
    loss_is_seen(&url)?;
    let mut figures = Figures::default();
    let mut tokens = 0;
    for _ in 0..sizes.rounds {
        for scenario in [Scenario::One, Scenario::Many, Scenario::Paused] {
            for teller in &tellers {
                let command = teller.command(&url, sdk);
                // A new process, because an old one may still hold memory of an earlier scenario.
                let mut agent = Agent::start(command)?;
                let told = agent.prompt(scenario.asked(sizes))?;
                agent.finish()?;
                tokens += told.tokens;
                figures.add(scenario, *teller, &told);
            }
        }
    }
    println!("{figures}");
    println!("{tokens} tokens: each arrived once, in order and before its prompt's response.");
    if sdk.is_none() {
        println!("One short round: the figures are not a measurement.");
    }
    Ok(())
}

/// Checks that a lost token is noticed: otherwise every other result would be worthless.
fn loss_is_seen(upstream: &str) -> Result<(), Fault> {
    let whole = Asked { tokens: 20, ..Asked::ONE };
    let ask = |asked| Agent::start(Teller::Threadway.command(upstream, None))?.prompt(asked);
    match (ask(Asked { lost: Some(10), ..whole }), ask(whole)) {
        (Err(_), Ok(_)) => Ok(()),
        (Ok(_), _) => Err("a token was lost, and the client did not see it".into()),
        (Err(_), Err(fault)) => Err(fault),
    }
}

// === impl Teller ===

impl Teller {
    fn command(self, upstream: &str, sdk: Option<&Path>) -> Command {
        let with = |program: &Path, arguments: &[&str]| {
            let mut command = Command::new(program);
            command.args(arguments);
            command
        };
        let threadway = Path::new(env!("CARGO_BIN_EXE_threadway"));
        match (self, sdk) {
            (Self::SdkStdio, Some(sdk)) => with(sdk, &["stdio"]),
            (Self::SdkLines, Some(sdk)) => with(sdk, &["lines"]),
            (Self::Threadway | Self::SdkStdio | Self::SdkLines, _) => {
                with(threadway, &["acp", "--upstream", upstream, "--log", "warn"])
            }
        }
    }
}

// === impl Scenario ===

impl Scenario {
    fn asked(self, sizes: &Sizes) -> Asked {
        let &Sizes { rounds: _, tokens, pause } = sizes;
        let one = Asked { tokens, ..Asked::ONE };
        match self {
            Self::One => one,
            Self::Many => Asked { sessions: SESSIONS, tokens: tokens / SESSIONS, ..one },
            Self::Paused => Asked { pause, ..one },
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One => f.write_str("one session"),
            Self::Many => write!(f, "{SESSIONS} sessions at once"),
            Self::Paused => f.write_str("a client that pauses"),
        }
    }
}

// === impl Figure ===

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rate => "tokens/s",
            Self::Cpu => "CPU per token, µs",
            Self::Peak => "peak memory, MiB",
            Self::Updates => "updates",
            Self::Bytes => "bytes per update",
        })
    }
}

// === impl Figures ===

impl Figures {
    fn add(&mut self, scenario: Scenario, teller: Teller, told: &Told) {
        let [tokens, updates, bytes, peak] =
            [told.tokens, told.updates, told.bytes, told.peak_kib].map(float);
        for (figure, value) in [
            (Figure::Rate, tokens / told.took.as_secs_f64()),
            (Figure::Cpu, told.cpu.as_secs_f64() * 1e6 / tokens),
            (Figure::Peak, peak / 1024.0),
            (Figure::Updates, updates),
            (Figure::Bytes, bytes / updates),
        ] {
            self.0.entry((scenario, figure, teller)).or_default().push(value);
        }
    }

    /// The median of all rounds.
    fn median(&self, scenario: Scenario, figure: Figure, teller: Teller) -> Option<f64> {
        let mut figures = self.0.get(&(scenario, figure, teller))?.clone();
        figures.sort_unstable_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied()
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| | | threadway | SDK, its stdio | SDK, joined lines |")?;
        writeln!(f, "|---|---|--:|--:|--:|")?;
        for scenario in [Scenario::One, Scenario::Many, Scenario::Paused] {
            for figure in [Figure::Rate, Figure::Cpu, Figure::Peak, Figure::Updates, Figure::Bytes]
            {
                // With a client that pauses, the rate means nothing.
                if (scenario, figure) == (Scenario::Paused, Figure::Rate) {
                    continue;
                }
                write!(f, "| {scenario} | {figure} |")?;
                for teller in [Teller::Threadway, Teller::SdkStdio, Teller::SdkLines] {
                    match self.median(scenario, figure, teller) {
                        Some(median) if median < 100.0 => write!(f, " {median:.2} |")?,
                        Some(median) => write!(f, " {median:.0} |")?,
                        None => write!(f, " |")?,
                    }
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "no figure here comes near 2^52")]
fn float(count: u64) -> f64 {
    count as f64
}
