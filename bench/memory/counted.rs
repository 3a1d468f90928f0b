//! A gateway of the library in this process, whose allocator counts.

use std::io::{self, BufRead, Write};
use std::thread;

use clap::Parser;
use threadway::cli::{Cli, Command};
use threadway::config::Config;
use threadway::metrics::Metrics;
use threadway::server::{Observer, Server};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::client::Fault;

/// Serves with the options of the binary that is measured. Answers each line of stdin with
/// `live_bytes`, what is allocated and not freed, and ends with stdin.
pub(crate) async fn serve(
    upstream: &str,
    live_bytes: impl Fn() -> usize + Send + 'static,
) -> Result<(), Fault> {
    let arguments =
        ["threadway", "serve", "--upstream", upstream, "--listen", "127.0.0.1:0", "--log", "warn"];
    let Cli { command: Command::Serve(options), log } = Cli::try_parse_from(arguments)? else {
        return Err("the command is not `serve`".into());
    };
    let config = Config::read(&options, log.as_deref()).map_err(|mistakes| {
        mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    })?;
    let metrics = Metrics::default();
    let agents = config.agents(&metrics)?;
    let listener = TcpListener::bind(config.listen).await?;
    let shutdown = CancellationToken::new();
    let observer = Observer { metrics, tracer: None };
    let server = Server::new(agents, config.settings, observer, shutdown.clone());
    writeln!(io::stderr(), "listening on http://{}", listener.local_addr()?)?;
    thread::spawn(move || {
        for _ in io::stdin().lock().lines().map_while(Result::ok) {
            // The process that asks may have ended by itself.
            let _ = writeln!(io::stdout(), "{}", live_bytes());
        }
        shutdown.cancel();
    });
    server.serve(listener).await;
    Ok(())
}
