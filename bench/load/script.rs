//! The scripted run of the upstream, and its parts. The parts are those of a recorded run of the
//! Python server, with other ids and another text.

use std::fs;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::text::Speech;

/// The recorded run.
const CAPTURE: &str = "tests/captures/py-0.16.7/agent-combo.sse";
/// The recorded ids, and the text of the recorded run's last message.
const THREAD: &str = "01a200b7-5ee5-70e2-95e8-b76fe45c0278";
const RUN: &str = "01a200b7-5ee6-7592-b13b-546489e59c9e";
const FIRST_TOKEN: &str = "tok0 ";
const TEXT: &str = "tok0 tok1 tok2 tok3 tok4 tok5 tok6 tok7 ";
const HUMAN_ID: &str = "\"human-1\"";
const HUMAN_TEXT: &str = "\"hi\"";

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

/// The parts of a run: whole ones, and templates for those with a text.
#[derive(Clone)]
pub(crate) struct Parts {
    metadata: String,
    first_values: String,
    token: Around,
    last_chunk: String,
    updates: Around,
    values: Around,
}

/// The bytes before a text, and those after it.
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
        // The recorded run calls tools first. This run's thread has only two messages.
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

    /// The parts of another run, which answers this message. Both texts are JSON strings.
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

    /// The same parts, for a thread with this conversation.
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

    /// The first part, with the run's id.
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

    /// The update of the step.
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
        // A token is shorter than this.
        let mut out = Vec::with_capacity(before.len() + after.len() + 64);
        out.extend_from_slice(before.as_bytes());
        write(&mut out);
        out.extend_from_slice(after.as_bytes());
        out.into()
    }
}
