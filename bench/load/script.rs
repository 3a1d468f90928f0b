//! The scripted run of the upstream, and its parts. The parts are those of a recorded run of the
//! Python server, with other ids and another text.
//!
//! The recording has one of its 200 tokens, which stands for the whole text in the parts after it.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The recorded run, in all modes that a client of these benchmarks asks for.
const CAPTURE: &str = "bench/load/run.sse";
/// The recorded ids, the human message as a JSON string, and the text of the answer.
const THREAD: &str = "01a20092-5f49-72ec-8ca1-ea94e32043b2";
const RUN: &str = "01a20092-6172-701f-927c-abaec9ce3458";
const TEXT: &str = "~0@1017813791213+0.....................;";
const HUMAN_ID: &str = "\"h1\"";
const HUMAN_TEXT: &str = r#""{\"n\":200,\"size\":40}""#;

/// The properties of a run. The script is the text of the human message, so that the upstream gets
/// the same through any gateway.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Script {
    /// How many tokens the run sends; a run that continues sends them at once.
    pub(crate) tokens: u64,
    /// The time between two tokens; 0 means as fast as they are accepted.
    pub(crate) interval_us: u64,
    /// From the response's headers to the first part.
    pub(crate) pause_us: u64,
    /// Whether the run sends no token before its end is requested.
    pub(crate) is_idle: bool,
    /// Whether the run sends further tokens, at its pace, until its end is requested.
    pub(crate) goes_on: bool,
    /// Whether others can join the run.
    pub(crate) is_kept: bool,
    /// A token that the upstream omits.
    pub(crate) lost: Option<u64>,
}

/// The parts of a run: those before its first token, those of each token, and those after its last.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) head: Vec<Part>,
    pub(crate) token: Vec<Part>,
    pub(crate) tail: Vec<Part>,
}

/// A part, in the pieces before, between and after its texts. It has no id yet.
#[derive(Clone)]
pub(crate) struct Part {
    pub(crate) event: String,
    pieces: Vec<String>,
}

// === impl Script ===

impl Script {
    /// One token, at once.
    pub(crate) const SHORT: Self = Self {
        tokens: 1,
        interval_us: 0,
        pause_us: 0,
        is_idle: false,
        goes_on: false,
        is_kept: false,
        lost: None,
    };

    /// A silent run that sends one token when its end is requested.
    pub(crate) const fn idle() -> Self {
        Self { is_idle: true, ..Self::SHORT }
    }

    /// Whether the run must be told to end.
    pub(crate) fn waits_for_end(&self) -> bool {
        self.is_idle || self.goes_on
    }

    /// The time between two tokens, if they are paced.
    pub(crate) fn interval(&self) -> Option<Duration> {
        (self.interval_us > 0).then(|| Duration::from_micros(self.interval_us))
    }
}

// === impl Parts ===

impl Parts {
    /// Reads the parts from the capture.
    pub(crate) fn read() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(CAPTURE);
        let capture = fs::read_to_string(path).expect("the recorded run");
        let parts: Vec<_> = capture.split_terminator("\r\n\r\n").map(Part::new).collect();
        // The recording has one token, in two modes. The parts after it have the whole text.
        let is_spoken = |part: &Part| part.pieces.len() > 1;
        let first = parts.iter().position(is_spoken).expect("the recorded run has a token");
        let (head, rest) = parts.split_at(first);
        let (token, tail) = rest.split_at(2);
        Self { head: head.to_vec(), token: token.to_vec(), tail: tail.to_vec() }
    }

    /// The parts of another run, which answers this message, in these modes. Both texts are JSON
    /// strings.
    pub(crate) fn of_run(
        &self,
        [thread, run]: [&str; 2],
        [human_id, human]: [&str; 2],
        modes: &[String],
    ) -> Self {
        let other = |piece: &String| {
            let piece = piece.replace(THREAD, thread).replace(RUN, run);
            piece.replace(HUMAN_TEXT, human).replace(HUMAN_ID, human_id)
        };
        let those = |parts: &[Part]| {
            let asked = parts.iter().filter(|part| part.is_in(modes));
            let other = asked.map(|Part { event, pieces }| Part {
                event: event.clone(),
                pieces: pieces.iter().map(other).collect(),
            });
            other.collect()
        };
        Self { head: those(&self.head), token: those(&self.token), tail: those(&self.tail) }
    }

    /// The same parts, for a thread with this conversation.
    pub(crate) fn behind(mut self, conversation: &str) -> Self {
        if !conversation.is_empty() {
            let before = format!("\"messages\":[{conversation},");
            let values = self.head.iter_mut().chain(&mut self.tail).filter(|p| p.event == "values");
            for piece in values.filter_map(|part| part.pieces.first_mut()) {
                *piece = piece.replacen("\"messages\":[", &before, 1);
            }
        }
        self
    }
}

// === impl Part ===

impl Part {
    fn new(part: &str) -> Self {
        let event = part.strip_prefix("event: ").and_then(|part| part.split_once("\r\n"));
        let event = event.expect("each part names its event").0.to_owned();
        Self { event, pieces: part.split(TEXT).map(str::to_owned).collect() }
    }

    /// Whether a client that asks for these modes gets the part.
    fn is_in(&self, modes: &[String]) -> bool {
        self.event == "metadata"
            || modes.iter().any(|mode| mode.strip_suffix("-tuple").unwrap_or(mode) == self.event)
    }

    /// The part with this text, and an id if the client may join the run.
    pub(crate) fn with(&self, text: &str, id: Option<u64>) -> Bytes {
        let length: usize = self.pieces.iter().map(String::len).sum();
        let mut out = String::with_capacity(length + self.pieces.len() * text.len() + 32);
        for (at, piece) in self.pieces.iter().enumerate() {
            if at > 0 {
                out.push_str(text);
            }
            out.push_str(piece);
        }
        if let Some(id) = id {
            // Writing to a string cannot fail.
            let _ = write!(out, "\r\nid: {id}-0");
        }
        out.push_str("\r\n\r\n");
        out.into()
    }
}
