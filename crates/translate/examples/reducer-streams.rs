//! Prints generated AG-UI streams, each with the content that a client must have after it. In
//! `integration/client/reducer.test.mjs` the official client checks [`View`] with them.
//!
//! `cargo run --example reducer-streams -- --count 1000 --seed 7`

#![expect(clippy::unwrap_used, reason = "a tool for a test fails as a test does")]
#![expect(clippy::indexing_slicing, reason = "`Value` is indexed by name")]

#[path = "../../../tests/support/generate.rs"]
#[expect(dead_code, reason = "shared with the property tests")]
mod generate;

use std::io::{self, Write};

use clap::Parser;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};
use threadway_translate::agui::{Client, Input, Projector, RunId, Version};
use threadway_translate::langgraph::Part;
use threadway_translate::run::{RunEvent, StreamEnd, Translator, View};
use threadway_translate::sse::Decoder;

/// How many streams to print, and the seed.
#[derive(Parser)]
struct Args {
    #[arg(long, default_value_t = 1000)]
    count: usize,
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&args.seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut out = io::stdout().lock();
    for at in 0..args.count {
        // Half of the runs make sense, half are arbitrary. A client that sends the user's message
        // does not receive that message again.
        let (parts, held) = if at % 2 == 0 {
            let run = generate::told().new_tree(&mut runner).unwrap().current();
            (run.parts, json!([{"id": "human-1", "role": "user", "content": "hi"}]))
        } else {
            (generate::any_parts().new_tree(&mut runner).unwrap().current(), json!([]))
        };
        let mut line = stream(&parts, &held);
        line["name"] = json!(format!("stream {at}"));
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn stream(parts: &[generate::ScriptPart], held: &Value) -> Value {
    let mut translator = Translator::new("T", "R");
    let (mut run_events, mut scratch) = (Vec::new(), String::new());
    let mut decoder = Decoder::new();
    decoder.push(&generate::bytes(parts, false));
    translator.start(&mut run_events);
    while let Some(frame) = decoder.next_frame().unwrap() {
        translator.on_part(&Part::parse(&frame, &mut scratch), &mut run_events);
    }
    translator.on_end(StreamEnd::Complete, &mut run_events);
    let input = json!({"threadId": "T", "runId": "r", "protocolVersion": "1.0", "messages": held});
    let input = Input::parse(input.to_string().as_bytes()).unwrap();
    let events = project(&run_events, Projector::new(input.client(), input.held()));
    json!({
        "messages": held,
        "state": {},
        "events": events,
        "expect": {"messages": messages(translator.view()), "state": state(translator.view())},
    })
}

fn project(run_events: &[RunEvent], mut projector: Projector) -> Vec<Value> {
    let mut events = Vec::new();
    for event in run_events {
        projector.project(event, &mut |event| {
            let mut line = Vec::new();
            event.write(&mut line);
            events.push(serde_json::from_slice(&line).unwrap());
        });
    }
    events
}

/// The view's messages in the wire's form.
fn messages(view: &View) -> Value {
    let client = Client {
        thread_id: String::new(),
        run_id: RunId::Unnamed,
        parent_run_id: None,
        version: Version::V1,
    };
    // A newcomer's first snapshot may be omitted only if it is empty.
    let events =
        project(&[RunEvent::Messages(view.messages().into())], Projector::new(client, Vec::new()));
    events.first().map_or(json!([]), |event| event["messages"].clone())
}

fn state(view: &View) -> Value {
    view.state().map_or(json!({}), |state| serde_json::from_str(state.to_json().get()).unwrap())
}
