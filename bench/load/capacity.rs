//! The capacity of one gateway, compared with a bare pass-through: the most streams that it serves
//! in time, and the cost of few fast streams.

use std::time::Duration;

use crate::client::Fault;
use crate::scale::{head, row};
use crate::scenario::{Bench, INTERVAL, Way};
use crate::script::Script;
use crate::table::float;

/// How many streams each step adds.
const STEP: u64 = 100;
const MOST: u64 = 3_000;
/// A step is served in time if the p99 latency of its tokens is at most this, in microseconds.
const IN_TIME_US: f64 = 100_000.0;
/// The duration of each step.
const WINDOW: Duration = Duration::from_secs(3);

/// Few streams, as fast as possible.
const FAST_STREAMS: u64 = 8;
const FAST_TOKENS: u64 = 30_000;

pub(crate) async fn run() -> Result<(), Fault> {
    let mut bench = Bench::new()?;
    let [floor, gateway] = [bench.floor()?, bench.gateway()?];
    let ways = [Way::floor(&floor), Way::gateway(&gateway)];
    head("How far one gateway goes, beside a bare pass-through");
    // Both are warmed up before the measurement.
    for way in ways {
        bench.pace(way, STEP, INTERVAL, WINDOW).await?;
    }
    fast(&mut bench, ways).await?;
    most(&mut bench, ways).await
}

async fn fast(bench: &mut Bench, ways: [Way<'_>; 2]) -> Result<(), Fault> {
    let script = Script { tokens: FAST_TOKENS, ..Script::SHORT };
    let mut each = [0.0; 2];
    for (way, each) in ways.into_iter().zip(&mut each) {
        let cpu = way.cpu()?;
        bench.crowd(way, (0..FAST_STREAMS).map(|_| script)).finish().await?;
        *each = micros_each(way.cpu()?.saturating_sub(cpu), FAST_STREAMS * FAST_TOKENS);
    }
    beside(&format!("{FAST_STREAMS} streams flat out: CPU per token"), each, "≤ 2 ×");
    Ok(())
}

/// Adds streams on each path until the tokens are late.
async fn most(bench: &mut Bench, ways: [Way<'_>; 2]) -> Result<(), Fault> {
    let mut most = [0_u64; 2];
    for (way, most) in ways.into_iter().zip(&mut most) {
        for streams in (1..=MOST / STEP).map(|step| step * STEP) {
            let p99 = bench.pace(way, streams, INTERVAL, WINDOW).await?.p99;
            if p99 > IN_TIME_US {
                break;
            }
            *most = streams;
        }
    }
    let [floor, gateway] = most;
    row(
        "most streams of 50 tokens/s with p99 ≤ 100 ms",
        format!("{gateway}, {:.2} × {floor}", float(gateway) / float(floor)),
        "≥ 0.9 ×",
    );
    Ok(())
}

fn beside(what: &str, [floor, gateway]: [f64; 2], wanted: &str) {
    row(what, format!("{gateway:.1} µs, {:.2} × {floor:.1} µs", gateway / floor), wanted);
}

fn micros_each(cpu: Duration, count: u64) -> f64 {
    cpu.as_secs_f64() * 1e6 / float(count)
}
