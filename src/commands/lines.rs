//! The lines that commands print themselves, whatever the log filter is. They have the format of the
//! log, so that `--log json` makes every line JSON, from the first to the last.

use std::env;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use threadway::config::{self, Config, Options};
use threadway::telemetry::{Log, LogFormat};
use threadway::terminal;
use tracing::Level;

use super::{FAILED, USAGE};

/// The format of the lines. It is set once: by `--log` before anything is printed, or else by the
/// configuration.
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// Sets the format that `--log` names, if it is given.
pub(super) fn use_format_of(log: Option<&str>) {
    if let Some(filter) = log.filter(|filter| !filter.is_empty()) {
        FORMAT.get_or_init(|| LogFormat::named_in(filter));
    }
}

/// Starts the log.
pub(super) fn start_log(log: Log) {
    FORMAT.get_or_init(|| log.format);
    log.to_stderr();
}

/// Starts the log of a command without a config file.
pub(super) fn start_log_of_flag(log: Option<&str>) -> Result<(), u8> {
    start_log(config::log(log).map_err(misused)?);
    Ok(())
}

/// Reads the configuration of `serve` and `check`, which refuse the same mistakes.
pub(super) fn read_config(options: &Options, log: Option<&str>) -> Result<Config, u8> {
    let config = Config::read(options, log).map_err(|mistakes| {
        use_format_in(options, log);
        mistakes.iter().for_each(complain);
        USAGE
    })?;
    // A disk may be there later, so this is a failure and no wrong configuration.
    let unwritable = config.unwritable();
    if unwritable.is_empty() {
        return Ok(config);
    }
    FORMAT.get_or_init(|| config.log.format);
    unwritable.iter().for_each(complain);
    Err(FAILED)
}

/// Sets the format that a configuration with mistakes names.
pub(super) fn use_format_in(options: &Options, log: Option<&str>) {
    FORMAT.get_or_init(|| config::log_format(options, log));
}

/// Prints what clap answers instead of a command: help and version on stdout, which are not
/// failures, everything else on stderr.
pub(crate) fn explain(error: &clap::Error) -> Result<(), u8> {
    if !error.use_stderr() {
        return error.print().map_err(|_| FAILED);
    }
    use_format_of(log_of_refused().as_deref());
    let printed = match format() {
        LogFormat::Text => error.print(),
        json @ LogFormat::Json => {
            let text = error.to_string();
            writeln!(io::stderr(), "{}", json.line(Level::ERROR, text.trim_end()))
        }
    };
    // If stderr is closed, there is no reader.
    let _ = printed;
    Err(USAGE)
}

/// The value of `--log` in a command line that clap refuses. clap stops at the first mistake, so it may
/// not have read the flag.
fn log_of_refused() -> Option<String> {
    let mut arguments = env::args_os().map(|argument| argument.to_string_lossy().into_owned());
    while let Some(argument) = arguments.next() {
        match argument.strip_prefix("--log") {
            Some("") => return arguments.next(),
            Some(rest) if rest.starts_with('=') => return rest.get(1..).map(str::to_owned),
            Some(_) | None => {}
        }
    }
    env::var_os("THREADWAY_LOG")?.into_string().ok()
}

/// Prints that the command reads stdin, if a person has typed it in a terminal.
pub(super) fn explain_stdin(explanation: &str) {
    if io::stdin().is_terminal() {
        say(explanation);
    }
}

/// People type the command to see what it does, and nothing else is printed before an editor writes.
pub(super) fn explain_editors() {
    explain_stdin(
        "waiting for an editor's ACP messages on stdin, one JSON object a line; editors start this \
         command themselves: `threadway acp --print-config zed` prints the settings for one (ctrl-c \
         exits)",
    );
}

/// Prints the result of a command on stdout, a line for each of its parts.
pub(super) fn report(level: Level, lines: &[String]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    lines.iter().try_for_each(|line| writeln!(stdout, "{}", format().line(level, line)))
}

pub(super) fn misused(error: impl Display) -> u8 {
    complain(error);
    USAGE
}

pub(super) fn failed(error: impl Display) -> u8 {
    complain(error);
    FAILED
}

/// Prints what the command does on stderr.
pub(super) fn say(line: impl Display) {
    print(Level::INFO, line);
}

/// Prints why the command fails on stderr.
pub(super) fn complain(line: impl Display) {
    print(Level::ERROR, line);
}

/// Escapes control characters, because names in the line may come from a server.
fn print(level: Level, line: impl Display) {
    let line = line.to_string();
    let line = terminal::harmless_line(&line);
    let prefix = match format() {
        LogFormat::Text => "threadway: ",
        LogFormat::Json => "",
    };
    // If stderr is closed, there is no reader.
    let _ = writeln!(io::stderr(), "{prefix}{}", format().line(level, &line));
}

fn format() -> LogFormat {
    FORMAT.get().copied().unwrap_or_default()
}
