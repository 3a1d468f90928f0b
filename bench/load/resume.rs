//! The cost of a client that reconnects to a run: it resumes from the log, it resumes from a replay
//! of the upstream, or it starts over.

use std::time::Duration;

use http_body_util::BodyExt;
use tokio::time::{Instant, sleep};

use crate::client::{self, Fault, Target, Wire};
use crate::held::{Asking, Begun, Held, Reached};
use crate::process::Process;
use crate::scenario::micros;
use crate::script::Script;
use crate::table::float;
use crate::upstream::END;

/// How many tokens the run has sent, all of them in the log. The run continues so slowly that its
/// new tokens do not matter.
const TOKENS: u64 = 3_000;
const INTERVAL: Duration = Duration::from_secs(2);
/// How much of the run the client has, in per cent.
const HAD: [u64; 3] = [10, 50, 90];
/// How often everything is measured. Each figure is a median.
const ROUNDS: usize = 7;
/// How many clients reconnect to a gateway that has read the run: a single one is too fast to be
/// measured.
const WARM: u32 = 50;
/// Long enough for the gateway to finish its work for a client that disconnected.
const REST: Duration = Duration::from_millis(100);
/// How long a client may take to catch up.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a client reconnects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Resumes, and the gateway has the run in its log.
    Log,
    /// Resumes, and the gateway has not read the run.
    Replay,
    /// Starts over, and the gateway has the run in its log.
    OverWarm,
    /// Starts over, and the gateway has not read the run.
    OverCold,
}

const WAYS: [(Way, &str); 4] = [
    (Way::Log, "behind, from the log"),
    (Way::Replay, "behind, by replay"),
    (Way::OverWarm, "from the start, run being read"),
    (Way::OverCold, "from the start, by replay"),
];

/// The cost of one reconnect.
#[derive(Clone, Copy)]
struct Cost {
    /// Bytes of the response until the client has all tokens so far.
    bytes: f64,
    /// CPU time of the gateway, in µs.
    cpu: f64,
    /// Time since the request, in ms.
    time: f64,
}

/// A run, and the content of one of its clients at several times.
struct Run {
    had: Vec<(u64, Held)>,
    /// The bytes of the whole run so far.
    bytes: u64,
}

/// Measures, and prints the table.
pub(crate) async fn run() -> Result<(), Fault> {
    let mut costs = Vec::new();
    let mut whole = Vec::new();
    for _ in 0..ROUNDS {
        let upstream = Process::start("upstream", std::env::current_exe()?, &["upstream"])?;
        let first = gateway(&upstream).await?;
        let run = begin(&first).await?;
        whole.push(float(run.bytes) / 1024.0);
        for (had, held) in &run.had {
            for (way, _) in WAYS {
                let cost = match way {
                    Way::Log | Way::OverWarm => measure(&first, held, way, WARM).await?,
                    Way::Replay | Way::OverCold => {
                        measure(&gateway(&upstream).await?, held, way, 1).await?
                    }
                };
                costs.push((*had, way, cost));
            }
        }
        let ended = client::post(upstream.address(), END, String::new()).await?;
        ended.into_body().collect().await?;
    }
    print(&costs, median(whole));
    Ok(())
}

/// A gateway that is warmed up by a first run.
async fn gateway(upstream: &Process) -> Result<Process, Fault> {
    let url = format!("http://{}", upstream.address());
    let arguments = ["serve", "--upstream", &url, "--listen", "127.0.0.1:0", "--log", "warn"];
    let gateway = Process::start("threadway", env!("CARGO_BIN_EXE_threadway"), &arguments)?;
    let thread = 1_000_000 + u64::from(gateway.address().port());
    let response = client::start(target(&gateway), Script::SHORT, thread).await?;
    let mut held = Held::new(thread);
    held.read(response, Instant::now() + PATIENCE, Held::is_over).await?;
    held.finish()?;
    Ok(gateway)
}

/// Starts the run, and reads the tokens that it sends at once.
async fn begin(gateway: &Process) -> Result<Run, Fault> {
    let thread = 1;
    let script = Script {
        tokens: TOKENS,
        interval_us: micros(INTERVAL),
        goes_on: true,
        is_kept: true,
        ..Script::SHORT
    };
    let response = client::start(target(gateway), script, thread).await?;
    let mut held = Held::new(thread);
    let mut had = Vec::new();
    let look = |held: &Held| {
        if let Some(share) = HAD.get(had.len())
            && held.tokens() >= TOKENS * share / 100
        {
            had.push((*share, held.clone()));
        }
        held.tokens() >= TOKENS
    };
    let reached = held.read(response, Instant::now() + PATIENCE, look).await?;
    if reached != Reached::There || had.len() < HAD.len() {
        return Err(format!("the run was not sent whole: {reached:?}").into());
    }
    sleep(REST).await;
    Ok(Run { had, bytes: held.bytes() })
}

/// Lets clients reconnect one after the other.
async fn measure(gateway: &Process, held: &Held, way: Way, times: u32) -> Result<Cost, Fault> {
    let (id, expected) = match way {
        Way::Log | Way::Replay => (held.last_id(), Begun::Behind),
        Way::OverWarm | Way::OverCold => (Some("of another gateway"), Begun::Over),
    };
    let cpu = gateway.cpu()?;
    let (mut bytes, mut time) = (0, Duration::ZERO);
    for _ in 0..times {
        let mut held = held.clone();
        let began = Instant::now();
        let response = held.come_back(target(gateway), Asking::Header, id).await?;
        let cut = Instant::now() + PATIENCE;
        let reached = held.read(response, cut, |held| held.tokens() >= TOKENS).await?;
        time += began.elapsed();
        bytes += held.bytes();
        if (reached, held.begun()) != (Reached::There, Some(expected)) {
            return Err(format!("a client came {reached:?}, told {:?}", held.begun()).into());
        }
    }
    sleep(REST).await;
    let cpu = gateway.cpu()?.saturating_sub(cpu);
    let times = f64::from(times);
    Ok(Cost {
        bytes: float(bytes) / times,
        cpu: cpu.as_secs_f64() * 1e6 / times,
        time: time.as_secs_f64() * 1e3 / times,
    })
}

fn print(costs: &[(u64, Way, Cost)], whole: f64) {
    println!("A run of {TOKENS} tokens, {whole:.0} KiB on the wire.\n");
    println!("| client had | reconnects | KiB | ratio | CPU, ms | ratio | to live, ms |");
    println!("|--:|---|--:|--:|--:|--:|--:|");
    for had in HAD {
        let of = |way, of: fn(&Cost) -> f64| {
            let its = costs.iter().filter(|(h, w, _)| (*h, *w) == (had, way));
            median(its.map(|(_, _, cost)| of(cost)).collect())
        };
        for (way, name) in WAYS {
            let (bytes, cpu) = (of(way, |cost| cost.bytes), of(way, |cost| cost.cpu));
            println!(
                "| {had} % | {name} | {:.1} | {:.2} | {:.2} | {:.2} | {:.1} |",
                bytes / 1024.0,
                bytes / of(Way::Log, |cost| cost.bytes),
                cpu / 1e3,
                cpu / of(Way::Log, |cost| cost.cpu),
                of(way, |cost| cost.time),
            );
        }
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

fn target(gateway: &Process) -> Target {
    Target { address: gateway.address(), wire: Wire::Agui }
}
