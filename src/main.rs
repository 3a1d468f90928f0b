//! The binary: reads what is asked, builds it, runs it, and tells how that went.

use std::fmt::Display;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use threadway::agui::{Client, Input, Projector, Version};
use threadway::cli::{self, Cli, Command, Target};
use threadway::config::{self, Config};
use threadway::runs::{self, Feed};
use threadway::server::{self, Encoder, Wire};
use threadway::upstream;
use tokio::net::TcpListener;
use tracing_subscriber::EnvFilter;

/// It failed while it ran.
const FAILED: u8 = 1;

/// The capture that was to be translated is not whole.
const BROKEN_CAPTURE: u8 = 2;

/// `EX_USAGE` of sysexits.h: the command line or the configuration is wrong.
const USAGE: u8 = 64;

/// The name of a thread that nobody has named.
const UNNAMED_THREAD: &str = "thread";

/// The name of a run that nobody has named.
const UNNAMED_RUN: &str = "run";

fn main() -> ExitCode {
    let done = match Cli::try_parse() {
        Ok(Cli { command: Command::Serve(args), log }) => serve(&args, log.as_deref()),
        Ok(Cli { command: Command::Translate(args), log }) => translate(&args, log.as_deref()),
        Err(error) => Err(told(&error)),
    };
    done.map_or_else(ExitCode::from, |()| ExitCode::SUCCESS)
}

/// What clap has to say: help and version on stdout, which are no failures, the rest on stderr.
fn told(error: &clap::Error) -> u8 {
    let is_failure = error.use_stderr();
    match error.print() {
        Ok(()) if is_failure => USAGE,
        Ok(()) => 0,
        Err(_) => FAILED,
    }
}

fn serve(args: &cli::Serve, log: Option<&str>) -> Result<(), u8> {
    let config = Config::read(args, log).map_err(|mistakes| {
        mistakes.iter().for_each(say);
        USAGE
    })?;
    let Config { listen, upstream, log } = config;
    log_to_stderr(log);
    let runtime = tokio::runtime::Runtime::new().map_err(failed)?;
    runtime.block_on(listen_and_serve(listen, upstream))
}

async fn listen_and_serve(listen: SocketAddr, base: upstream::BaseUrl) -> Result<(), u8> {
    let upstream = upstream::Client::new(base.clone()).map_err(failed)?;
    let listener = TcpListener::bind(listen).await.map_err(|error| {
        failed(format!("cannot listen on {listen}: {error}; choose another with --listen"))
    })?;
    let address = listener.local_addr().map_err(failed)?;
    // Before the address is told: who reads it may stop us at once.
    let stop = stop_signal().map_err(failed)?;
    say(format!("listening on http://{address} in front of {base}"));
    say(format!("agents: POST http://{address}/agui/agent/{{agent}}/run"));
    server::run(listener, upstream, stop).await;
    Ok(())
}

/// Waits for SIGTERM or ctrl-c. Both are caught from now on.
#[cfg(unix)]
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Waits for ctrl-c, which is caught from now on.
#[cfg(windows)]
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let mut interrupt = tokio::signal::windows::ctrl_c()?;
    Ok(async move {
        interrupt.recv().await;
    })
}

fn translate(args: &cli::Translate, log: Option<&str>) -> Result<(), u8> {
    let wrong = |error: &dyn Display| {
        say(error);
        USAGE
    };
    log_to_stderr(config::log_filter(log).map_err(|mistake| wrong(&mistake))?);
    let input = read_input(args).map_err(|error| wrong(&error))?;
    let run_id = args.run_id.as_deref();
    let client = input.as_ref().map_or_else(|| client_of(args), Input::client);
    let client = Client { run_id: args.run_id.clone().or(client.run_id), ..client };
    let held = input.as_ref().map(Input::held).unwrap_or_default();

    let Target::Agui = args.to;
    let wire = if args.ndjson { Wire::Ndjson } else { Wire::Sse };
    let thread_id = args.thread_id.as_deref().unwrap_or(&client.thread_id);
    let feed = Feed::new(thread_id, None, run_id.unwrap_or(UNNAMED_RUN));
    let mut encoder = Encoder::new(wire, Projector::new(client.clone(), held));
    let mut stdout = io::stdout().lock();
    let mut out = Vec::new();
    let translated = runs::translate(&mut io::stdin().lock(), feed, &mut |events| {
        encoder.encode(events, &mut out);
        stdout.write_all(&out)?;
        out.clear();
        stdout.flush()
    });
    match translated {
        Ok(Ok(())) => Ok(()),
        Ok(Err(fault)) => {
            say(fault);
            Err(BROKEN_CAPTURE)
        }
        // Who reads has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

/// The client that is assumed where none is given.
fn client_of(args: &cli::Translate) -> Client {
    let thread_id = args.thread_id.as_deref().or(args.run_id.as_deref()).unwrap_or(UNNAMED_THREAD);
    Client {
        thread_id: thread_id.to_owned(),
        run_id: None,
        parent_run_id: None,
        version: Version::V1,
    }
}

fn read_input(args: &cli::Translate) -> Result<Option<Input>, String> {
    let Some(path) = &args.input else { return Ok(None) };
    let wrong = |error: &dyn Display| format!("--input {}: {error}", path.display());
    let body = fs::read(path).map_err(|error| wrong(&error))?;
    Input::parse(&body).map(Some).map_err(|error| wrong(&error))
}

/// Stdout belongs to the protocol.
fn log_to_stderr(filter: EnvFilter) {
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
}

fn failed(error: impl Display) -> u8 {
    say(error);
    FAILED
}

/// Tells a person, whatever the log filter is.
fn say(line: impl Display) {
    // With stderr closed there is nobody to tell.
    let _ = writeln!(io::stderr(), "threadway: {line}");
}
