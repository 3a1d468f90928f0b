//! What `bench/peers/run` starts: the scripted upstream, the pass-through, and the client that
//! measures one server in one situation.
//!
//! `bench/README.md` describes the command.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its output is its purpose")]
#![expect(clippy::expect_used, reason = "a broken input must stop it")]
#![expect(dead_code, reason = "other benchmarks use the rest of the shared modules")]

#[path = "load/client.rs"]
mod client;
#[path = "load/floor.rs"]
mod floor;
#[path = "load/kept.rs"]
mod kept;
#[path = "load/lines.rs"]
mod lines;
#[path = "load/listen.rs"]
mod listen;
#[path = "load/script.rs"]
mod script;
#[path = "load/stored.rs"]
mod stored;
#[path = "load/text.rs"]
mod text;
#[path = "load/upstream.rs"]
mod upstream;

#[path = "peers/scene.rs"]
mod scene;
#[path = "peers/stream.rs"]
mod stream;
#[path = "peers/usage.rs"]
mod usage;

use std::env;
use std::process::ExitCode;

use tokio::runtime::Runtime;

use client::Fault;

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("peers: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result<(), Fault> {
    let runtime = Runtime::new()?;
    match arguments {
        ["upstream"] => runtime.block_on(upstream::run()),
        ["floor", upstream] => runtime.block_on(floor::run(upstream.parse()?)),
        ["measure", plan] => {
            let figures = runtime.block_on(scene::run(serde_json::from_str(plan)?))?;
            println!("{figures}");
            Ok(())
        }
        // `cargo bench` starts every benchmark.
        [] => {
            println!("`bench/peers/run` starts this program: bench/README.md describes it");
            Ok(())
        }
        _ => Err(format!("unknown arguments: {arguments:?}").into()),
    }
}
