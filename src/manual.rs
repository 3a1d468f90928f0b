//! Completion scripts and manual pages, generated from the command line's definition.

use std::io;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::cli::Cli;

/// The completion script for a shell.
pub fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    let mut command = Cli::command();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut script);
    script
}

/// A manual page in roff: of threadway, or of a command, which the first page refers to as
/// `threadway-serve(1)`. `None` for an unknown command.
///
/// # Errors
///
/// None in practice: the page is written to memory.
pub fn page(command: Option<&str>) -> io::Result<Option<Vec<u8>>> {
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let version = root.get_version().unwrap_or_default();
    let source = format!("{} {version}", root.get_name());
    let found = command.map_or(Some(&root), |name| root.find_subcommand(name));
    let Some(command) = found else { return Ok(None) };
    let mut page = Vec::new();
    // No date, so that the same version gives the same bytes. The quotes keep the place of the
    // argument: roff skips empty words.
    let man = Man::new(command.clone()).date("\"\"").source(source).manual("User Commands");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    exit_status(command).to_writer(&mut page)?;
    Ok(Some(page))
}

/// The exit codes below a command's help, as a section.
fn exit_status(command: &Command) -> Roff {
    let mut section = Roff::new();
    let Some(codes) = command.get_after_help() else { return section };
    section.control("SH", ["EXIT STATUS"]).control("nf", []);
    for line in codes.to_string().lines().skip(1) {
        section.text([roman(line.trim_start())]);
    }
    section.control("fi", []);
    section
}
