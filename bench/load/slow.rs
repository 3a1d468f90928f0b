//! The cost of what a run does slowly, compared with a bare pass-through, of one gateway or of
//! several: tokens at the pace of a model, and short runs.
//!
//! All processes serve at once and take turns in each round. A ratio is that of one round, so that
//! what disturbs a round disturbs both of its figures.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use crate::client::Fault;
use crate::scenario::{Bench, INTERVAL, Way};
use crate::script::Script;
use crate::table::{float, median};

const ROUNDS: usize = 5;

/// As many streams as a page of a large site has viewers, at the pace of a fast model.
const STREAMS: u64 = 100;
const WINDOW: Duration = Duration::from_secs(4);

/// Many streams of five tokens a second each.
pub(crate) const SLOW_STREAMS: u64 = 1_000;
pub(crate) const SLOW_INTERVAL: Duration = Duration::from_millis(200);
const SLOW_WINDOW: Duration = Duration::from_secs(6);

/// Short runs, one after the other.
const SHORT_RUNS: u64 = 500;
const SHORT_TOKENS: u64 = 5;

/// What is measured: the CPU of a token, or of a run.
const WHAT: [&str; 3] =
    ["a token of 100 streams of 50/s", "a token of 1,000 streams of 5/s", "a run of five tokens"];

/// Measures the gateways that these files hold.
pub(crate) async fn run(programs: &[&str]) -> Result<(), Fault> {
    let mut bench = Bench::new()?;
    let floor = bench.floor()?;
    let gateways: Vec<_> =
        programs.iter().map(|program| bench.gateway_of(program)).collect::<Result<_, _>>()?;
    let ways: Vec<_> =
        std::iter::once(Way::floor(&floor)).chain(gateways.iter().map(Way::gateway)).collect();
    // All are warmed up before the measurement.
    for &way in &ways {
        bench.pace(way, STREAMS, INTERVAL, WINDOW).await?;
    }
    // For each kind, and each way: the figures of all rounds, in microseconds.
    let mut figures = vec![vec![Vec::new(); ways.len()]; WHAT.len()];
    for _ in 0..ROUNDS {
        for (what, figures) in figures.iter_mut().enumerate() {
            for (&way, figures) in ways.iter().zip(figures) {
                figures.push(match what {
                    0 => paced(&mut bench, way, STREAMS, INTERVAL, WINDOW).await?,
                    1 => paced(&mut bench, way, SLOW_STREAMS, SLOW_INTERVAL, SLOW_WINDOW).await?,
                    _ => short(&mut bench, way).await?,
                });
            }
        }
    }
    print(programs, &figures);
    Ok(())
}

async fn paced(
    bench: &mut Bench,
    way: Way<'_>,
    streams: u64,
    interval: Duration,
    window: Duration,
) -> Result<f64, Fault> {
    let pace = bench.pace(way, streams, interval, window).await?;
    Ok(micros_each(pace.cpu, pace.tokens))
}

/// The CPU of a short run, with everything that belongs to it.
async fn short(bench: &mut Bench, way: Way<'_>) -> Result<f64, Fault> {
    let script = Script { tokens: SHORT_TOKENS, ..Script::SHORT };
    let cpu = way.cpu()?;
    for _ in 0..SHORT_RUNS {
        bench.crowd(way, [script]).finish().await?;
    }
    Ok(micros_each(way.cpu()?.saturating_sub(cpu), SHORT_RUNS))
}

fn print(programs: &[&str], figures: &[Vec<Vec<f64>>]) {
    println!("CPU in µs, and its ratio to the floor's: median (lowest to highest of {ROUNDS}).\n");
    print!("| CPU of | floor |");
    for program in programs {
        let name = Path::new(program).file_name().and_then(OsStr::to_str).unwrap_or(program);
        print!(" {name} |");
    }
    println!("\n|---|--:|{}", "--:|".repeat(programs.len()));
    for (what, figures) in WHAT.iter().zip(figures) {
        let Some((floor, gateways)) = figures.split_first() else { continue };
        print!("| {what} | {:.1} |", median(floor.clone()));
        for gateway in gateways {
            let ratios: Vec<_> =
                gateway.iter().zip(floor).map(|(each, floor)| each / floor).collect();
            let lowest = ratios.iter().copied().fold(f64::INFINITY, f64::min);
            let highest = ratios.iter().copied().fold(0.0, f64::max);
            let (each, ratio) = (median(gateway.clone()), median(ratios));
            print!(" {each:.1}, {ratio:.2} × ({lowest:.2} to {highest:.2}) |");
        }
        println!();
    }
}

fn micros_each(cpu: Duration, count: u64) -> f64 {
    cpu.as_secs_f64() * 1e6 / float(count)
}
