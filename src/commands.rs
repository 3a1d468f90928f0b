//! The commands of the binary, and what they share: exit codes, lines on stderr, listeners. Each
//! command has a file of its name; `signal` has the signals that stop them.

mod acp;
mod bridge;
mod check;
mod demo;
mod manual;
mod serve;
mod signal;
mod translate;
mod watch;

use std::fmt::Display;
use std::io::{self, Write};
use std::net::SocketAddr;

use threadway::cli::{self, Command};
use threadway::config::{self, Config};
use threadway::terminal;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// The exit code of a command that failed while it ran.
pub(crate) const FAILED: u8 = 1;

/// The exit code of `translate` for an incomplete recording.
const BROKEN_CAPTURE: u8 = 2;

/// The exit code of `watch --once` if `--timeout` passed before the end.
const LATE: u8 = 3;

/// `EX_USAGE` of sysexits.h: the command line or the configuration is wrong.
pub(crate) const USAGE: u8 = 64;

/// Runs a command to its end. The error is the exit code; the reason was written to stderr.
pub(crate) fn run(command: Command, log: Option<&str>) -> Result<(), u8> {
    if !matches!(command, Command::Completions { .. } | Command::Man { .. }) {
        expect_known_environment()?;
    }
    match command {
        Command::Serve(options) => serve::run(&options, log),
        Command::Demo(args) => demo::run(&args, log),
        Command::Acp(args) => acp::run(&args, log),
        Command::Check(options) => check::run(&options, log),
        Command::Watch(args) => watch::run(args, log),
        Command::Translate(args) => translate::run(&args, log),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { command } => manual::man(command.as_deref()),
    }
}

/// Refuses unknown variables with the prefix `THREADWAY_`: a misspelt one would be ignored.
fn expect_known_environment() -> Result<(), u8> {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    let given = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
    let mistakes = config::unknown_variables(given);
    mistakes.iter().for_each(say);
    if mistakes.is_empty() { Ok(()) } else { Err(USAGE) }
}

/// Reads the configuration of `serve` and `check`, which refuse the same mistakes.
fn read_config(options: &cli::Options, log: Option<&str>) -> Result<Config, u8> {
    let config = Config::read(options, log).map_err(|mistakes| {
        mistakes.iter().for_each(say);
        USAGE
    })?;
    // A disk may be there later, so this is a failure and no wrong configuration.
    let unwritable = config.unwritable();
    unwritable.iter().for_each(say);
    if unwritable.is_empty() { Ok(config) } else { Err(FAILED) }
}

fn runtime() -> Result<Runtime, u8> {
    Runtime::new().map_err(failed)
}

async fn bind(flag: &str, listen: SocketAddr) -> Result<TcpListener, u8> {
    TcpListener::bind(listen).await.map_err(|error| failed(unusable(flag, listen, &error)))
}

/// Why an address cannot be listened on, and what to do.
fn unusable(flag: &str, listen: SocketAddr, error: &io::Error) -> String {
    format!("cannot listen on {listen}: {error}; choose another with {flag}")
}

fn misused(error: impl Display) -> u8 {
    say(error);
    USAGE
}

fn failed(error: impl Display) -> u8 {
    say(error);
    FAILED
}

/// Writes a line to stderr, whatever the log filter is. Escapes control characters, because names
/// in it may come from a server.
fn say(line: impl Display) {
    let line = line.to_string();
    // If stderr is closed, there is no reader.
    let _ = writeln!(io::stderr(), "threadway: {}", terminal::harmless_line(&line));
}
