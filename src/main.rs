//! The binary: reads the command line, runs its command, and exits with the command's code.

mod commands;

use std::process::ExitCode;

use clap::Parser;
use threadway::cli::Cli;

fn main() -> ExitCode {
    let done = match Cli::try_parse() {
        Ok(Cli { command, log }) => commands::run(command, log.as_deref()),
        Err(error) => commands::explain(&error),
    };
    done.map_or_else(ExitCode::from, |()| ExitCode::SUCCESS)
}
