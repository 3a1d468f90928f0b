//! `threadway translate`: translates a recorded LangGraph stream from stdin to stdout.

use std::env;
use std::fmt::Display;
use std::fs;
use std::io::{self, Write};
use std::sync::Arc;

use threadway::cli::{self, Target};
use threadway::runs::{self, RunDecoder};
use threadway::server::{Encoder, Wire};
use threadway_translate::acp::{self, rpc};
use threadway_translate::agui::{Client, Input, Projector, RunId, Version};
use threadway_translate::run::RunEvent;

use super::lines::{complain, explain_stdin, start_log_of_flag};
use super::{BROKEN_CAPTURE, failed, misused};

/// The thread id if neither a thread nor a run is named.
const UNNAMED_THREAD: &str = "thread";

pub(super) fn run(args: &cli::Translate, log: Option<&str>) -> Result<(), u8> {
    start_log_of_flag(log)?;
    match args.to {
        Target::Agui => to_agui(args),
        Target::Acp => to_acp(args),
    }
}

fn to_agui(args: &cli::Translate) -> Result<(), u8> {
    if args.cwd.is_some() {
        return Err(misused("--cwd: AG-UI has none; expected --to acp with it"));
    }
    let input = read_input(args).map_err(misused)?;
    let mut client = input.as_ref().map_or_else(|| default_client(args), Input::client);
    if let Some(run_id) = &args.run_id {
        client.run_id = RunId::Own(run_id.clone());
    }
    let held = input.as_ref().map(Input::held).unwrap_or_default();
    let wire = if args.ndjson { Wire::Ndjson } else { Wire::Sse };
    let thread_id = args.thread_id.as_deref().unwrap_or(&client.thread_id);
    let decoder = decoder(args, thread_id);
    let mut encoder = Encoder::new(wire, Projector::new(client.clone(), held));
    translate_stdin(decoder, |events, out| encoder.encode_bare(events, out))
}

/// Writes the recording as one turn of a session: its updates, then the response to its prompt.
fn to_acp(args: &cli::Translate) -> Result<(), u8> {
    /// The id of the prompt.
    const PROMPT: u64 = 1;
    if args.input.is_some() {
        return Err(misused("--input: ACP has none; expected --to agui with it"));
    }
    let session_id = default_thread(args);
    let cwd = match &args.cwd {
        Some(cwd) => cwd.clone(),
        None => env::current_dir().map_err(failed)?.to_string_lossy().into_owned(),
    };
    let decoder = decoder(args, session_id);
    let mut projector = acp::Projector::new(Arc::default(), &cwd);
    translate_stdin(decoder, |events, out| {
        for event in events {
            projector.project(event, &mut |update| acp::notification(session_id, update, out));
            if let RunEvent::Ended { outcome, .. } = event {
                let result = acp::stop_reason(outcome).and_then(acp::result_of);
                let response = rpc::response(&rpc::Id::number(PROMPT), &result);
                out.extend_from_slice(response.as_bytes());
            }
        }
    })
}

fn decoder(args: &cli::Translate, thread_id: &str) -> RunDecoder {
    let decoder = RunDecoder::new(thread_id, None, args.run_id.as_deref());
    decoder.with_messages_key(args.messages_key.clone().unwrap_or_default())
}

/// Translates the recording on stdin, and writes the encoded events to stdout.
fn translate_stdin(
    mut decoder: RunDecoder,
    mut encode: impl FnMut(&[RunEvent], &mut Vec<u8>),
) -> Result<(), u8> {
    explain_stdin(
        "waiting for a recorded LangGraph stream on stdin; name a file with `< FILE` (ctrl-c exits)",
    );
    let mut stdout = io::stdout().lock();
    let mut out = Vec::new();
    let translated = runs::translate(&mut io::stdin().lock(), &mut decoder, &mut |events| {
        encode(events, &mut out);
        stdout.write_all(&out)?;
        out.clear();
        stdout.flush()
    });
    match translated {
        Ok(Ok(())) => Ok(()),
        Ok(Err(fault)) => {
            complain(fault);
            Err(BROKEN_CAPTURE)
        }
        // The reader has closed the pipe, as `head` does.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

fn default_client(args: &cli::Translate) -> Client {
    Client {
        thread_id: default_thread(args).to_owned(),
        run_id: RunId::Unnamed,
        parent_run_id: None,
        version: Version::V1,
    }
}

fn default_thread(args: &cli::Translate) -> &str {
    args.thread_id.as_deref().or(args.run_id.as_deref()).unwrap_or(UNNAMED_THREAD)
}

fn read_input(args: &cli::Translate) -> Result<Option<Input>, String> {
    let Some(path) = &args.input else { return Ok(None) };
    let wrong = |error: &dyn Display| format!("--input {}: {error}", path.display());
    let body = fs::read(path).map_err(|error| wrong(&error))?;
    Input::parse(&body).map(Some).map_err(|error| wrong(&error))
}
