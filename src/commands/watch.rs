//! `threadway watch`: follows a thread until the gateway refuses, or a signal comes.

use std::io::{self, IsTerminal};

use threadway::cli;
use threadway::config;
use threadway::upstream::BaseUrlError;
use threadway::watch::{self, Format, Watch};

use super::{failed, misused, runtime, say, signal};

pub(super) fn run(args: cli::Watch, log: Option<&str>) -> Result<(), u8> {
    let cli::Watch { thread_id, gateway, agent, json, no_color } = args;
    let url = gateway.as_deref().unwrap_or(watch::DEFAULT_GATEWAY);
    let gateway = url.parse().map_err(|expected: BaseUrlError| {
        misused(format!("--gateway (THREADWAY_GATEWAY): `{url}` is not {expected}"))
    })?;
    for (place, name) in [("THREAD", Some(&thread_id)), ("--agent", agent.as_ref())] {
        if name.is_some_and(|name| !watch::is_segment(name)) {
            return Err(misused(format!("{place}: this is not a name")));
        }
    }
    config::log(log).map_err(misused)?.to_stderr();
    let is_plain = no_color.is_some_and(|value| !value.is_empty());
    let has_colours = !is_plain && io::stdout().is_terminal();
    let format = if json { Format::Json } else { Format::Text { has_colours } };
    let watch = Watch { gateway, agent, thread_id, format };
    let runtime = runtime()?;
    let watched = runtime.block_on(async {
        let stop = signal::stop().map_err(failed)?;
        tokio::select! {
            () = stop => Ok(()),
            watched = watch::watch(&watch, tokio::io::stdout(), |line| say(line)) => {
                watched.map_err(failed)
            }
        }
    });
    // A write to a pipe that nobody reads may never end.
    runtime.shutdown_background();
    watched
}
