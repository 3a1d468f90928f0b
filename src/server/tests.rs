//! The gateway in a simulated world: thousands of schedules of its tasks, its network and its
//! clients, each of which a seed repeats exactly.
//!
//! ```text
//!  clients --> routes --> service --> threads --> runs --> upstream
//!                        the gateway's own code                |
//!  check_request <--- the demo's server <--- hyper <--- a cable
//! ```
//! What is real: all of the gateway from its routes to its client of LangGraph, hyper's server, and
//! the demo's LangGraph server. What is simulated: the scheduler, time, random numbers, and the network
//! to LangGraph, which delays, splits, cuts and refuses.
//!
//! Not simulated: the gateway's own connections (`server/connections.rs`, hyper's server for
//! clients), TLS, `WebSocket`s, ACP, the operator's listener, and work on large values, which here
//! runs on the only thread. Clients call the routes and drop a response to leave.
//!
//! `THREADWAY_SCHEDULES` says how many schedules are run, and `THREADWAY_SEED` which is the first.

#[path = "../../tests/support/reduce.rs"]
#[expect(dead_code, reason = "the integration tests use the rest")]
mod reduce;
#[path = "../../tests/support/verify.rs"]
#[expect(dead_code, reason = "the integration tests use the rest")]
mod verify;

mod client;
mod network;
mod world;

use tokio::time::Instant;

use crate::sync::simulated::{self, Completed};

/// How many schedules the test runs, unless `THREADWAY_SCHEDULES` says otherwise.
const SCHEDULES: u64 = 40;

/// After how many failures no further schedule is run.
const MAX_FAILURES: usize = 5;

fn number(name: &str) -> Option<u64> {
    std::env::var_os(name)?.to_str()?.parse().ok()
}

fn schedule(seed: u64) -> Result<Completed, String> {
    simulated::run(seed, world::world())
}

/// Each client ends with what LangGraph holds, and the gateway with nothing.
#[test]
fn every_schedule_comes_to_langgraphs_end() {
    let count = number("THREADWAY_SCHEDULES").unwrap_or(SCHEDULES);
    let first = number("THREADWAY_SEED").unwrap_or(1);
    let began = Instant::now();
    let (mut held, mut polls, mut nested, mut failed) = (0, 0, 0, Vec::new());
    println!("seeds {first} to {}", first + count - 1);
    for seed in first..first + count {
        match schedule(seed) {
            Ok(completed) => {
                held += 1;
                polls += completed.polls;
                nested += completed.nested;
            }
            Err(failure) => {
                let last = failure.lines().next_back().unwrap_or_default();
                println!("after {:.1?}, {last}", began.elapsed());
                failed.push(failure);
                if failed.len() == MAX_FAILURES {
                    break;
                }
            }
        }
    }
    let took = began.elapsed();
    println!(
        "{held} of {count} schedules held in {took:?}: {} polls each, {} of them nested",
        polls / held.max(1),
        nested / held.max(1)
    );
    assert!(failed.is_empty(), "{} schedules failed, the first so:\n{}", failed.len(), failed[0]);
}

/// Else a failure could not be repeated.
#[test]
fn a_seed_repeats_its_schedule() {
    for seed in 1_000..1_010 {
        assert_eq!(schedule(seed), schedule(seed), "seed {seed}");
    }
}
