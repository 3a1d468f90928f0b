//! Measures the nanoseconds per part of the whole chain and of each stage, on recorded parts of
//! each mode. Parsing the same bytes into a tree is measured for comparison.
//!
//! `cargo bench --bench chain`; each figure is the best of several rounds on an idle machine. Also
//! measures bytes and nanoseconds per event for the framings and the compressions; `-- --wire`
//! prints these alone.

#![expect(clippy::print_stdout, reason = "its output is its purpose")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a broken input must stop it")]

mod profile;

use std::borrow::Cow;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use threadway::server::{Coding, Compressor};
use threadway_translate::acp;
use threadway_translate::agui::{Client, Projector, ProtoEncoder, RunId, Version};
use threadway_translate::langgraph::Part;
use threadway_translate::run::{RunEvent, Translator};
use threadway_translate::sse::{self, Decoder, Frame};

/// The duration of one round.
const ROUND: Duration = Duration::from_millis(200);
/// The number of rounds. The best one counts, because noise only adds time.
const ROUNDS: usize = 7;

/// As long as a thread's id.
const SESSION: &str = "01a200b7-5ee5-70e2-95e8-b76fe45c0278";

/// Captures, and the mode whose parts are measured.
const INPUTS: [(&str, &str); 6] = [
    ("messages", "py-0.16.7/agent-messages-tuple"),
    ("values", "py-0.16.7/agent-values"),
    ("updates", "py-0.16.7/agent-updates"),
    ("events", "py-0.16.7/agent-events"),
    ("messages", "js-1.5.1/agent-messages-tuple"),
    ("", "py-0.16.7/agent-combo"),
];

/// The parts of one mode of a capture, in the forms that the stages accept.
struct Input {
    name: String,
    bytes: Vec<u8>,
    frames: Vec<Frame<'static>>,
    data_bytes: usize,
}

fn main() {
    profile::print();
    if !std::env::args().any(|argument| argument == "--wire") {
        measure_chain();
        println!();
    }
    measure_wire();
}

fn measure_chain() {
    println!(
        "{:<38} {:>6} {:>7} {:>8} {:>8} {:>9} {:>8} {:>8} {:>8} {:>9}",
        "parts",
        "count",
        "bytes",
        "decode",
        "parse",
        "translate",
        "encode",
        "as ACP",
        "chain",
        "as Value"
    );
    for (mode, capture) in INPUTS {
        let input = Input::read(mode, capture);
        let decode = input.measure(|input| decode(&input.bytes));
        let parse = input.measure(|input| parse(&input.frames));
        let translate = input.measure_translate();
        let events = input.run_events();
        let encode = input.measure(|_| encode(&events));
        let acp = input.measure(|_| encode_acp(&events));
        let chain = input.measure(|input| chain(&input.bytes));
        let tree = input.measure(|input| as_values(&input.frames));
        println!(
            "{:<38} {:>6} {:>7} {:>8.0} {:>8.0} {:>9.0} {:>8.0} {:>8.0} {:>8.0} {:>9.0}",
            input.name,
            input.frames.len(),
            input.data_bytes / input.frames.len(),
            decode,
            parse,
            translate,
            encode,
            acp,
            chain,
            tree,
        );
    }
    println!(
        "\nns per part; `parse` is the JSON parsing of the chain, `as ACP` stands for `encode`, \
         `as Value` a tree of the same bytes"
    );
}

// === framing and compression ===

/// Captures whose events are framed and compressed.
const STREAMS: [&str; 3] =
    ["py-0.16.7/agent-combo", "js-1.5.1/agent-combo", "py-0.16.7/subagent-combo-subgraphs"];

/// The number of tokens of an answer that is longer than any capture's.
const TOKENS: usize = 1000;

/// As long as the ids of a token's events.
const ID: &str = "2AaIAt17mdZKxO1RkieWcngD-CvPpuISgNAAA";

/// Prints the size and the cost of a run's events on the wire. Each is written and flushed
/// separately, as tokens are.
fn measure_wire() {
    print!("{:<38} {:>6} {:>15} {:>15}", "events", "count", "SSE", "protobuf");
    for coding in Coding::ALL {
        print!(" {:>15}", coding.name());
    }
    println!();
    let captured = STREAMS.map(|capture| {
        (format!("all of {capture}"), lines_of(&Input::read("", capture).run_events()))
    });
    for (name, lines) in captured.into_iter().chain([(format!("{TOKENS} tokens"), tokens())]) {
        let frames: Vec<_> = lines.iter().map(|line| framed(line)).collect();
        let print = |bytes: usize, ns: f64| {
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
            let each = bytes as f64 / lines.len() as f64;
            print!(" {each:>6.0} {ns:>8.0}");
        };
        print!("{name:<38} {:>6}", lines.len());
        let sse = || lines.iter().map(|line| black_box(framed(line)).len()).sum();
        print(sse(), best(lines.len(), || _ = black_box(sse())));
        let proto = || {
            let (mut encoder, mut out) = (ProtoEncoder::default(), Vec::new());
            for line in &lines {
                encoder.frame(line, &mut out);
            }
            black_box(out).len()
        };
        print(proto(), best(lines.len(), || _ = black_box(proto())));
        for coding in Coding::ALL {
            let compressed = || {
                let mut compressor = Compressor::new(coding).unwrap();
                let mut bytes = 0;
                for frame in &frames {
                    compressor.write(frame).unwrap();
                    bytes += black_box(compressor.flush().unwrap()).len();
                }
                bytes + compressor.finish().unwrap().len()
            };
            print(compressed(), best(lines.len(), || _ = black_box(compressed())));
        }
        println!();
    }
    println!(
        "\nbytes and ns per event; the compressions are of SSE, on top of its time, and each stream \
         begins with a new encoder"
    );
}

/// The events of a run as JSON.
fn lines_of(events: &[RunEvent]) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    let mut projector = projector();
    for event in events {
        projector.project(event, &mut |event| {
            let mut line = Vec::new();
            event.write(&mut line);
            lines.push(line);
        });
    }
    lines
}

/// Tokens of words that repeat as in a text: few of them often, many seldom.
fn tokens() -> Vec<Vec<u8>> {
    let mut seed = 7_u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    let token = |_| {
        let most = 1 << (3 + random() % 10);
        let word = random() % most;
        format!(
            r#"{{"type":"TEXT_MESSAGE_CONTENT","messageId":"lc_run--01a200b7-5ee6-7592-b13b-546489e59c9e","delta":" w{word:x}"}}"#
        )
    };
    (0..TOKENS).map(token).map(String::into_bytes).collect()
}

fn framed(line: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    sse::encode(&mut frame, Some(ID), line);
    frame
}

// === impl Input ===

impl Input {
    fn read(mode: &str, capture: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures").join(capture);
        let recorded = fs::read(path.with_extension("sse")).expect("a capture of the tests");
        let (mut bytes, mut frames) = (Vec::new(), Vec::new());
        let mut decoder = Decoder::new();
        decoder.push(&recorded);
        while let Some(frame) = decoder.next_frame().unwrap() {
            if mode.is_empty() || frame.event.as_deref() == Some(mode) {
                bytes.extend_from_slice(b"event: ");
                bytes.extend_from_slice(frame.event.as_deref().unwrap_or_default().as_bytes());
                bytes.push(b'\n');
                let data = frame.data.as_deref().unwrap_or_default();
                sse::encode(&mut bytes, frame.id.as_deref(), data.as_bytes());
                frames.push(owned(&frame));
            }
        }
        let data_bytes = frames.iter().map(|frame| frame.data.as_deref().map_or(0, str::len)).sum();
        let mode = if mode.is_empty() { "all" } else { mode };
        Self { name: format!("{mode} of {capture}"), bytes, frames, data_bytes }
    }

    /// Nanoseconds per part of one pass.
    fn measure<T>(&self, pass: impl Fn(&Self) -> T) -> f64 {
        best(self.frames.len(), || {
            black_box(pass(black_box(self)));
        })
    }

    fn measure_translate(&self) -> f64 {
        let mut scratches = vec![String::new(); self.frames.len()];
        let frames = self.frames.iter().zip(&mut scratches);
        let parts: Vec<_> = frames.map(|(frame, scratch)| Part::parse(frame, scratch)).collect();
        let mut out = Vec::new();
        best(self.frames.len(), || {
            let mut translator = Translator::new("thread", "run");
            out.clear();
            for part in &parts {
                translator.on_part(black_box(part), &mut out);
            }
            black_box(&out);
        })
    }

    fn run_events(&self) -> Vec<RunEvent> {
        let (mut out, mut scratch) = (Vec::new(), String::new());
        let mut translator = Translator::new("thread", "run");
        for frame in &self.frames {
            translator.on_part(&Part::parse(frame, &mut scratch), &mut out);
        }
        out
    }
}

fn owned(frame: &Frame<'_>) -> Frame<'static> {
    let own = |text: &Option<Cow<'_, str>>| text.as_ref().map(|t| Cow::Owned(t.to_string()));
    Frame {
        event: own(&frame.event),
        data: own(&frame.data),
        id: own(&frame.id),
        retry: frame.retry,
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn best(parts: usize, mut pass: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = std::time::Instant::now();
        let mut passes = 0_u32;
        while start.elapsed() < ROUND {
            pass();
            passes += 1;
        }
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52 nanoseconds")]
        let ns = start.elapsed().as_nanos() as f64 / f64::from(passes) / parts as f64;
        best = best.min(ns);
    }
    best
}

// === the stages ===

fn decode(bytes: &[u8]) -> usize {
    let (mut decoder, mut frames) = (Decoder::new(), 0);
    decoder.push(bytes);
    while let Some(frame) = decoder.next_frame().unwrap() {
        black_box(&frame);
        frames += 1;
    }
    frames
}

fn parse(frames: &[Frame<'_>]) {
    let mut scratch = String::new();
    for frame in frames {
        black_box(Part::parse(frame, &mut scratch));
    }
}

fn encode(events: &[RunEvent]) -> Vec<u8> {
    let (mut bytes, mut line) = (Vec::new(), Vec::new());
    let mut projector = projector();
    for event in events {
        project(&mut projector, event, &mut line, &mut bytes);
    }
    bytes
}

fn encode_acp(events: &[RunEvent]) -> Vec<u8> {
    let mut lines = Vec::new();
    let mut projector = acp::Projector::new(Arc::default(), "/srv");
    for event in events {
        projector.project(event, &mut |update| acp::notification(SESSION, update, &mut lines));
    }
    lines
}

fn chain(bytes: &[u8]) -> Vec<u8> {
    let (mut told, mut line) = (Vec::new(), Vec::new());
    let (mut events, mut scratch) = (Vec::new(), String::new());
    let mut translator = Translator::new("thread", "run");
    let mut projector = projector();
    let mut decoder = Decoder::new();
    decoder.push(bytes);
    while let Some(frame) = decoder.next_frame().unwrap() {
        translator.on_part(&Part::parse(&frame, &mut scratch), &mut events);
        for event in events.drain(..) {
            project(&mut projector, &event, &mut line, &mut told);
        }
    }
    told
}

fn as_values(frames: &[Frame<'_>]) {
    for frame in frames {
        let data = frame.data.as_deref().unwrap_or_default();
        black_box(serde_json::from_str::<serde_json::Value>(data).unwrap());
    }
}

fn project(projector: &mut Projector, event: &RunEvent, line: &mut Vec<u8>, out: &mut Vec<u8>) {
    projector.project(event, &mut |event| {
        line.clear();
        event.write(line);
        sse::encode(out, None, line);
    });
}

fn projector() -> Projector {
    let client = Client {
        thread_id: "thread".to_owned(),
        run_id: RunId::Own("run".to_owned()),
        parent_run_id: None,
        version: Version::V1,
    };
    Projector::new(client, Vec::new())
}
