//! Reads a recorded LangGraph stream on stdin, and writes AG-UI events to stdout.
//!
//! The command `threadway translate` does the same.
//!
//! `cargo run --example translate < tests/captures/py-0.16.7/agent-combo.sse`

use std::io::{self, Read, Write};

use threadway_translate::agui::{Client, Projector, RunId, Version};
use threadway_translate::langgraph::{Part, PartPayload};
use threadway_translate::run::{LossReason, RunEvent, StreamEnd, Translator};
use threadway_translate::sse::{self, Decoder, Ending};

/// The recording does not name its thread.
const THREAD: &str = "thread";

/// A recording may lack the part that names its run.
const UNNAMED: &str = "run";

fn main() -> io::Result<()> {
    let (mut stream, mut out) = (Vec::new(), Vec::new());
    io::stdin().read_to_end(&mut stream)?;
    let client = Client {
        thread_id: THREAD.to_owned(),
        run_id: RunId::Unnamed,
        parent_run_id: None,
        version: Version::V1,
    };
    let mut projector = Projector::new(client, Vec::new());
    let (mut events, mut scratch) = (Vec::new(), String::new());

    let mut decoder = Decoder::new();
    decoder.push(&stream);
    // The stream's first part names the run.
    let mut translator = None;
    while let Some(frame) = decoder.next_frame().map_err(io::Error::other)? {
        let part = Part::parse(&frame, &mut scratch);
        let translator = translator.get_or_insert_with(|| started(run_id(&part), &mut events));
        translator.on_part(&part, &mut events);
    }
    let end = match decoder.finish() {
        Ending::Clean => StreamEnd::Complete,
        Ending::Partial { .. } => StreamEnd::Lost {
            loss: LossReason::Incomplete,
            message: "it ends inside an event".to_owned(),
        },
    };
    translator.unwrap_or_else(|| started(UNNAMED, &mut events)).on_end(end, &mut events);
    for event in &events {
        projector.project(event, &mut |event| {
            let mut json = Vec::new();
            event.write(&mut json);
            sse::encode(&mut out, None, &json);
        });
    }
    io::stdout().lock().write_all(&out)
}

fn run_id<'a>(part: &'a Part<'_>) -> &'a str {
    if let PartPayload::Metadata { run_id, .. } = &part.body { run_id } else { UNNAMED }
}

fn started(run_id: &str, events: &mut Vec<RunEvent>) -> Translator {
    let mut translator = Translator::new(THREAD, run_id);
    translator.start(events);
    translator
}
