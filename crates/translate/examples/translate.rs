//! Reads a recorded LangGraph stream on stdin, and writes AG-UI events to stdout.
//!
//! The command `threadway translate` does the same.
//!
//! `cargo run --example translate < tests/captures/py-0.16.7/agent-combo.sse`

use std::io::{self, Read, Write};

use threadway_translate::agui::{Client, Projector, RunId, Version};
use threadway_translate::langgraph::Part;
use threadway_translate::run::{Loss, StreamEnd, Translator};
use threadway_translate::sse::{self, Decoder, Ending};

fn main() -> io::Result<()> {
    let (mut stream, mut out) = (Vec::new(), Vec::new());
    io::stdin().read_to_end(&mut stream)?;
    let client = Client {
        thread_id: "thread".to_owned(),
        run_id: RunId::Unnamed,
        parent_run_id: None,
        version: Version::V1,
    };
    let mut decoder = Decoder::new();
    let mut translator = Translator::new("thread", "run");
    let mut projector = Projector::new(client, Vec::new());
    let (mut events, mut scratch) = (Vec::new(), String::new());

    translator.start(&mut events);
    decoder.push(&stream);
    while let Some(frame) = decoder.next_frame().map_err(io::Error::other)? {
        translator.on_part(&Part::parse(&frame, &mut scratch), &mut events);
    }
    translator.on_end(
        match decoder.finish() {
            Ending::Clean => StreamEnd::Complete,
            Ending::Partial { bytes } => StreamEnd::Lost {
                loss: Loss::Incomplete,
                message: format!("the stream ends with {bytes} bytes of an unfinished event"),
            },
        },
        &mut events,
    );
    for event in &events {
        projector.project(event, &mut |event| {
            let mut json = Vec::new();
            event.write(&mut json);
            sse::encode(&mut out, None, &json);
        });
    }
    io::stdout().lock().write_all(&out)
}
