//! `threadway watch`: follows a thread until a signal arrives, the gateway refuses, or everything
//! was printed.

use std::time::Duration;

use threadway::cli;
use threadway::upstream::BaseUrlError;
use threadway::watch::{self, Format, Until, WatchOptions};

use super::lines::start_log_of_flag;
use super::{LATE, failed, misused, runtime, say, signal};

pub(super) fn run(args: cli::Watch, log: Option<&str>) -> Result<(), u8> {
    let cli::Watch { thread_id, gateway, agent, api_key, header, once, timeout, json } = args;
    let url = gateway.as_deref().unwrap_or(watch::DEFAULT_GATEWAY);
    let gateway = url.parse().map_err(|expected: BaseUrlError| {
        // The text may have a password or a token in it.
        misused(format!("--gateway (THREADWAY_GATEWAY): expected {expected}"))
    })?;
    for (place, name) in [("THREAD", Some(&thread_id)), ("--agent", agent.as_ref())] {
        if name.is_some_and(|name| !watch::is_segment(name)) {
            return Err(misused(format!(
                "{place}: expected a name that is not empty, `.` or `..`"
            )));
        }
    }
    let lines = header.iter().map(|line| &**line);
    let headers = watch::headers(api_key.as_deref(), lines).map_err(misused)?;
    let limit = timeout.as_deref().map(time).transpose()?;
    start_log_of_flag(log)?;
    let format = if json { Format::Json } else { Format::Text };
    let until = if once { Until::Ended } else { Until::Stopped };
    let watch = WatchOptions { gateway, agent, thread_id, headers, until, format };
    let runtime = runtime()?;
    let watched = runtime.block_on(async {
        let stop = signal::stop().map_err(failed)?;
        let late = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop => Ok(()),
            () = late => {
                say(format!("--timeout ({}) has passed", timeout.as_deref().unwrap_or_default()));
                if once { Err(LATE) } else { Ok(()) }
            }
            watched = watch::watch(&watch, tokio::io::stdout(), |line| say(line)) => {
                watched.map_err(failed)
            }
        }
    });
    // A blocked write to a pipe may never end.
    runtime.shutdown_background();
    watched
}

fn time(text: &str) -> Result<Duration, u8> {
    watch::duration(text).ok_or_else(|| {
        let most = watch::MAX_TIMEOUT.as_secs() / 3_600;
        misused(format!(
            "--timeout is {text}; expected a time such as 30s, 5m or 1h, at most {most}h"
        ))
    })
}
