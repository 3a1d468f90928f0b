//! What the upstream is to say in a run, and the parts in which it says it: those of a recorded
//! run of the Python server, with other ids and another text.

use std::fs;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::text::Speech;

/// The recorded run whose parts are said.
const CAPTURE: &str = "tests/captures/py-0.16.7/agent-combo.sse";
/// Its ids, and the text of its last message.
const THREAD: &str = "01a200b7-5ee5-70e2-95e8-b76fe45c0278";
const RUN: &str = "01a200b7-5ee6-7592-b13b-546489e59c9e";
const FIRST_TOKEN: &str = "tok0 ";
const TEXT: &str = "tok0 tok1 tok2 tok3 tok4 tok5 tok6 tok7 ";
const HUMAN_ID: &str = "\"human-1\"";
const HUMAN_TEXT: &str = "\"hi\"";

/// What a run is to be like. It travels as the text of the human message, so that the upstream
/// hears the same through any gateway.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Script {
    /// How many tokens it says; one that goes on says them at once.
    pub(crate) tokens: u64,
    /// From one token to the next; 0 says them as fast as they are taken.
    pub(crate) interval_us: u64,
    /// From the response's headers to its first part.
    pub(crate) pause_us: u64,
    /// Whether it says no token before it is told to end.
    pub(crate) is_idle: bool,
    /// Whether it says more tokens, at its pace, until it is told to end.
    pub(crate) goes_on: bool,
    /// Whether others can join it.
    pub(crate) is_kept: bool,
    /// A token that it keeps to itself.
    pub(crate) lost: Option<u64>,
}

/// The parts of a run, whole ones and those that go around a text.
#[derive(Clone)]
pub(crate) struct Parts {
    metadata: String,
    first_values: String,
    token: Around,
    last_chunk: String,
    updates: Around,
    values: Around,
}

/// What comes before a text and what behind it.
#[derive(Clone)]
struct Around(String, String);

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

    /// A run that says nothing till it is told to end, and then one token.
    pub(crate) const fn idle() -> Self {
        Self { is_idle: true, ..Self::SHORT }
    }

    /// Whether it has to be told to end.
    pub(crate) fn waits_for_end(&self) -> bool {
        self.is_idle || self.goes_on
    }

    /// From one token to the next, if they are to be paced.
    pub(crate) fn interval(&self) -> Option<Duration> {
        (self.interval_us > 0).then(|| Duration::from_micros(self.interval_us))
    }
}

// === impl Parts ===

impl Parts {
    /// Reads the parts from the capture.
    pub(crate) fn read() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(CAPTURE);
        let capture = fs::read_to_string(path).expect("a capture of the tests");
        let find = |event: &str, text: &str| {
            let is_it = |part: &&str| {
                let event = part.strip_prefix("event: ").and_then(|part| part.strip_prefix(event));
                event.is_some_and(|rest| rest.starts_with("\r\n") && rest.contains(text))
            };
            let part = capture.split_inclusive("\r\n\r\n").filter(is_it).last();
            part.expect("the capture holds each mode").to_owned()
        };
        let updates = Around::of(&find("updates", TEXT), TEXT);
        let first = capture.split_inclusive("\r\n\r\n").find(|p| p.starts_with("event: values"));
        let first_values = first.expect("the capture holds values").to_owned();
        // The recorded run calls tools first. The thread of this one holds two messages only.
        let before = first_values.split_once("]}\r\n").expect("values hold messages").0;
        let (_, before_text) = updates.0.split_once(":[").expect("updates hold messages");
        let (after_text, _) = updates.1.split_once("]}}\r\n").expect("updates end");
        let (_, end) = first_values.split_once("]}\r\n").expect("values end");
        Self {
            metadata: find("metadata", RUN),
            token: Around::of(&find("messages", FIRST_TOKEN), FIRST_TOKEN),
            last_chunk: find("messages", "\"chunk_position\":\"last\""),
            values: Around(format!("{before},{before_text}"), format!("{after_text}]}}\r\n{end}")),
            first_values,
            updates,
        }
    }

    /// The parts of another run, which answers this message; both as JSON strings.
    pub(crate) fn of_run(&self, thread: &str, run: &str, human_id: &str, human: &str) -> Self {
        let other = |part: &String| {
            let part = part.replace(THREAD, thread).replace(RUN, run);
            part.replacen(HUMAN_TEXT, human, 1).replacen(HUMAN_ID, human_id, 1)
        };
        let around = |Around(before, after): &Around| Around(other(before), other(after));
        Self {
            metadata: other(&self.metadata),
            first_values: other(&self.first_values),
            token: around(&self.token),
            last_chunk: other(&self.last_chunk),
            updates: around(&self.updates),
            values: around(&self.values),
        }
    }

    /// The same parts, of a thread that holds these messages already.
    pub(crate) fn behind(mut self, conversation: &str) -> Self {
        if !conversation.is_empty() {
            let before = format!("\"messages\":[{conversation},");
            let Around(values, _) = &mut self.values;
            for part in [&mut self.first_values, values] {
                *part = part.replacen("\"messages\":[", &before, 1);
            }
        }
        self
    }

    /// What a run begins with: its name.
    pub(crate) fn metadata(&self) -> Bytes {
        self.metadata.clone().into()
    }

    /// The state with the human message.
    pub(crate) fn first_values(&self) -> Bytes {
        self.first_values.clone().into()
    }

    /// The next token.
    pub(crate) fn token(&self, speech: &mut Speech, now: u64) -> Bytes {
        self.token.with(|out| speech.token(now, out))
    }

    /// The last token.
    pub(crate) fn last_token(&self, speech: &mut Speech) -> Bytes {
        self.token.with(|out| speech.last(out))
    }

    /// The chunk without text that ends the message.
    pub(crate) fn last_chunk(&self) -> Bytes {
        self.last_chunk.clone().into()
    }

    /// What the step has done.
    pub(crate) fn updates(&self, text: &str) -> Bytes {
        self.updates.with(|out| out.extend_from_slice(text.as_bytes()))
    }

    /// The state with both messages.
    pub(crate) fn values(&self, text: &str) -> Bytes {
        self.values.with(|out| out.extend_from_slice(text.as_bytes()))
    }
}

// === impl Around ===

impl Around {
    fn of(part: &str, text: &str) -> Self {
        let (before, after) = part.split_once(text).expect("the part was found by its text");
        Self(before.to_owned(), after.to_owned())
    }

    fn with(&self, write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
        let Self(before, after) = self;
        // A token of its place and time is shorter than this.
        let mut out = Vec::with_capacity(before.len() + after.len() + 64);
        out.extend_from_slice(before.as_bytes());
        write(&mut out);
        out.extend_from_slice(after.as_bytes());
        out.into()
    }
}
