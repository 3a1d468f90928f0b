//! The binary: reads the command line, runs its command, and exits with the command's code.

mod commands;

use std::process::ExitCode;

use clap::Parser;
use threadway::cli::Cli;

use commands::{FAILED, USAGE};

fn main() -> ExitCode {
    let done = match Cli::try_parse() {
        Ok(Cli { command, log }) => commands::run(command, log.as_deref()),
        Err(error) => explain(&error),
    };
    done.map_or_else(ExitCode::from, |()| ExitCode::SUCCESS)
}

/// Prints clap's message: help and version on stdout, which are not failures, everything else on
/// stderr.
fn explain(error: &clap::Error) -> Result<(), u8> {
    let is_failure = error.use_stderr();
    match error.print() {
        Ok(()) if is_failure => Err(USAGE),
        Ok(()) => Ok(()),
        Err(_) => Err(FAILED),
    }
}
