//! The binary: reads what is asked, builds it, runs it, and tells how that went.

use std::fmt::Display;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use threadway::agents::{self, Agents, Listed, Listing};
use threadway::agui::{Client, Input, Projector, Version};
use threadway::check::{self, Finding};
use threadway::cli::{self, Cli, Command, Target};
use threadway::config::{self, Config};
use threadway::runs::{self, Feed};
use threadway::server::{self, Encoder, Wire};
use threadway::upstream;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
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
        Ok(Cli { command, log }) => match command {
            Command::Serve(options) => serve(&options, log.as_deref()),
            Command::Check(options) => check(&options, log.as_deref()),
            Command::Translate(args) => translate(&args, log.as_deref()),
        },
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

fn serve(options: &cli::Options, log: Option<&str>) -> Result<(), u8> {
    let config = read_config(options, log)?;
    let agents = agents(&config)?;
    let Config { listen, upstreams, aliases: _, limits, log } = config;
    log_to_stderr(log);
    runtime()?.block_on(async {
        let listener = bind(listen).await?;
        let address = listener.local_addr().map_err(failed)?;
        // Before the address is told: who reads it may stop us at once.
        let signal = stop_signal().map_err(failed)?;
        let shutdown = CancellationToken::new();
        let bases = upstreams.iter().map(|upstream| upstream.url.to_string());
        let bases = bases.collect::<Vec<_>>().join(", ");
        say(format!("listening on http://{address} in front of {bases}"));
        tokio::join!(
            server::run(listener, agents.clone(), limits, shutdown.clone()),
            shutdown.run_until_cancelled(announce(&agents, address)),
            cancel_after(signal, &shutdown)
        );
        Ok(())
    })
}

fn check(options: &cli::Options, log: Option<&str>) -> Result<(), u8> {
    let config = read_config(options, log)?;
    let agents = agents(&config)?;
    log_to_stderr(config.log);
    let findings = runtime()?.block_on(check::check(&agents));
    let mut stdout = io::stdout().lock();
    for finding in &findings {
        writeln!(stdout, "{finding}").map_err(failed)?;
    }
    if findings.iter().all(Finding::is_good) { Ok(()) } else { Err(FAILED) }
}

fn read_config(options: &cli::Options, log: Option<&str>) -> Result<Config, u8> {
    Config::read(options, log).map_err(|mistakes| {
        mistakes.iter().for_each(say);
        USAGE
    })
}

fn agents(config: &Config) -> Result<Agents, u8> {
    let client = |upstream: &config::Upstream| {
        let config::Upstream { name, url, api_key } = upstream.clone();
        let client = upstream::Client::new(url, api_key).map_err(failed)?;
        Ok(agents::Upstream { name, client })
    };
    let upstreams = config.upstreams.iter().map(client).collect::<Result<_, u8>>()?;
    Ok(Agents::new(upstreams, config.aliases.clone()))
}

fn runtime() -> Result<Runtime, u8> {
    Runtime::new().map_err(failed)
}

async fn bind(listen: SocketAddr) -> Result<TcpListener, u8> {
    TcpListener::bind(listen).await.map_err(|error| {
        failed(format!("cannot listen on {listen}: {error}; choose another with --listen"))
    })
}

/// Tells which agents there are, and how to run them. A server that is not up yet is served as
/// soon as it is.
async fn announce(agents: &Agents, address: SocketAddr) {
    for Listing { upstream, agents } in agents.list().await {
        match agents {
            Ok(agents) if agents.is_empty() => {
                say(format!("upstream {upstream} has no agents; `threadway check` tells more"));
            }
            Ok(agents) => {
                for Listed { id, .. } in agents {
                    say(format!("agent {id}: POST http://{address}/agui/agent/{id}/run"));
                }
            }
            Err(error) => {
                say(format!("upstream {upstream}: {error}; its agents are served once it answers"));
            }
        }
    }
    say(format!("CopilotKit: runtimeUrl http://{address}/agui"));
}

async fn cancel_after(signal: impl Future<Output = ()>, shutdown: &CancellationToken) {
    signal.await;
    shutdown.cancel();
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
