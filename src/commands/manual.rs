//! `threadway completions` and `threadway man`: print files to install with the binary.

use std::io::{self, Write};

use clap_complete::Shell;
use threadway::manual;

use super::{failed, misused};

pub(super) fn completions(shell: Shell) -> Result<(), u8> {
    print(&manual::completions(shell))
}

pub(super) fn man(command: Option<&str>) -> Result<(), u8> {
    let page = manual::page(command).map_err(failed)?;
    let page = page.ok_or_else(|| {
        misused("COMMAND: unknown command; `threadway --help` lists the commands")
    })?;
    print(&page)
}

fn print(document: &[u8]) -> Result<(), u8> {
    match io::stdout().lock().write_all(document) {
        // The reader has closed the pipe, as `head` does.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed.map_err(failed),
    }
}
