//! `--init`: a config file with modes for editors.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, absolute};

use serde_json::Value;
use threadway::cli;
use threadway::upstream::{BaseUrl, BaseUrlError};

use crate::commands::{failed, misused, say};

/// The file, without the server.
const MODES: &str = include_str!("init.toml");

/// The file's name if none is given.
const NAME: &str = "threadway.toml";

/// Writes the file. A file that exists is left as it is.
pub(super) fn run(args: &cli::Acp) -> Result<(), u8> {
    if args.gateway.is_some() {
        return Err(misused(
            "--init and --gateway (THREADWAY_GATEWAY) exclude each other: the modes are those of \
             the gateway's own config file",
        ));
    }
    let file = args.config.as_deref().unwrap_or_else(|| Path::new(NAME));
    let text = text(args)?;
    let shown = absolute(file).unwrap_or_else(|_| file.to_owned());
    let shown = shown.display();
    let written = File::create_new(file).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            failed(format_args!(
                "{shown} exists and is not changed: name another file with --config"
            ))
        } else {
            failed(format_args!("{shown} cannot be written: {error}"))
        }
    })?;
    say(format_args!(
        "{shown} has four modes; print an editor's settings with `threadway acp --print-config \
         EDITOR --config FILE`"
    ));
    Ok(())
}

/// The file's text, with the server and the agent of the command line.
fn text(args: &cli::Acp) -> Result<String, u8> {
    let upstream = match &args.upstream {
        Some(url) => {
            let url: BaseUrl = url.parse().map_err(|expected: BaseUrlError| {
                misused(format_args!("--upstream (THREADWAY_UPSTREAM): expected {expected}"))
            })?;
            format!("\n[upstream]\nurl = {}\n", Value::from(url.to_string()))
        }
        // The stored login names the server, or a flag does.
        None => "\n# [upstream]\n# url = \"http://127.0.0.1:2024\"\n".to_owned(),
    };
    let agent = args.agent.as_ref().map(|agent| {
        format!("[acp]\n# The agent of a new session.\nagent = {}\n", Value::from(agent.as_str()))
    });
    let modes = match agent {
        Some(agent) => MODES.replacen("[acp]\n", &agent, 1),
        None => MODES.to_owned(),
    };
    // Tables end the keys of the table above, so the server comes first.
    let (head, modes) = modes.split_once('\n').unwrap_or_default();
    Ok(format!("{head}\n{upstream}{modes}"))
}
