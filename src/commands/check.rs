//! `threadway check`: prints problems of the configuration and its upstreams.

use std::io::{self, Write};

use threadway::check;
use threadway::cli;
use threadway::metrics::Metrics;

use super::{FAILED, failed, read_config, runtime};

pub(super) fn run(options: &cli::Options, log: Option<&str>) -> Result<(), u8> {
    let config = read_config(options, log)?;
    let agents = config.agents(&Metrics::default()).map_err(failed)?;
    config.log.clone().to_stderr();
    let report = runtime()?.block_on(check::check(&agents, &config));
    let mut stdout = io::stdout().lock();
    for line in &report.lines {
        writeln!(stdout, "{line}").map_err(failed)?;
    }
    if report.is_good { Ok(()) } else { Err(FAILED) }
}
