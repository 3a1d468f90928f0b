//! The commands of the binary, and what they share: exit codes and listeners. Each command has a file
//! of its name; `lines` has what they print, `signal` the signals that stop them.

mod acp;
mod bridge;
mod check;
mod demo;
mod lines;
mod manual;
mod open_files;
mod serve;
mod signal;
mod translate;
mod watch;

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use clap::CommandFactory;
use threadway::cli::{Cli, Command};
use threadway::config;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

pub(crate) use lines::explain;
use lines::{complain, failed, misused, say, start_log, use_format_of};

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
    use_format_of(log);
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
    let mistakes = config::unknown_variables(given, &Cli::command());
    mistakes.iter().for_each(complain);
    if mistakes.is_empty() { Ok(()) } else { Err(USAGE) }
}

fn runtime() -> Result<Runtime, u8> {
    Runtime::new().map_err(failed)
}

async fn bind(flag: &str, listen: SocketAddr) -> Result<TcpListener, u8> {
    TcpListener::bind(listen).await.map_err(|error| failed(unusable(flag, listen, &error)))
}

/// Why an address cannot be listened on, and what to do.
fn unusable(flag: &str, listen: SocketAddr, error: &io::Error) -> String {
    let advice = if error.kind() == ErrorKind::AddrInUse {
        "another program listens there, perhaps `threadway demo` or another `threadway serve`: \
         stop it, or choose another address"
    } else {
        "choose another"
    };
    format!("cannot listen on {listen}: {error}; {advice} with {flag}")
}

/// The URL of a listener for a browser on this machine, which reaches a listener on all addresses at
/// the loopback address.
fn url_of(listener: SocketAddr) -> String {
    let host = match listener.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        host @ (IpAddr::V4(_) | IpAddr::V6(_)) => host,
    };
    format!("http://{}", SocketAddr::new(host, listener.port()))
}

/// The addresses of a listener besides the one in its URL.
fn others_of(listener: SocketAddr) -> &'static str {
    if listener.ip().is_unspecified() {
        " (and on all other addresses of this machine)"
    } else {
        ""
    }
}
