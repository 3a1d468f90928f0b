//! The parts of a run's stream, translated to events with keys.

use threadway_translate::buffer;
use threadway_translate::json::Json;
use threadway_translate::langgraph::{self, Cursor, MessagesKey, PartPayload, StreamForm};
use threadway_translate::run::{Rendering, RunEvent, Translator};
use threadway_translate::sse::Frame;

use super::keys::KeySequence;
use crate::runs::batch::Events;

/// The name of a run that neither LangGraph nor a client has named.
const UNNAMED: &str = "run";

/// The chain from a stream's frames to its events.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) thread_id: String,
    /// The run's name by the client that started it, if that is known.
    pub(super) name: Option<String>,
    /// The key of the graph's state under which it keeps its conversation.
    pub(super) messages_key: MessagesKey,
    pub(super) rendering: Rendering,
    pub(super) form: StreamForm,
    pub(super) scratch: String,
    pub(super) translation: Option<Translation>,
    pub(super) keys: KeySequence,
    /// Whether parts may be missing between two connections, so that the thread's state was read.
    pub(super) has_gap: bool,
    /// How many parts have come, without repeats.
    pub(super) count: u64,
    /// Whether the stream holds any part that LangGraph sends.
    pub(super) is_langgraph: bool,
    /// How many parts did not have the form of their stream mode.
    pub(super) malformed: u64,
    /// How many parts had values that JSON does not have.
    pub(super) mended: u64,
}

/// The translation of a run, once the run has a name.
#[derive(Debug)]
pub(super) struct Translation {
    /// LangGraph's id of the run, once it is known.
    pub(super) id: Option<String>,
    pub(super) translator: Translator,
}

/// The state of a stream that was joined.
#[derive(Debug)]
pub(super) struct Join {
    /// Whether the stream has the thread's state. `None` until its parts show it, if the run's record
    /// does not.
    pub(super) has_values: Option<bool>,
    /// Whether a part has come.
    pub(super) has_begun: bool,
    /// Whether the thread's state was read beside the stream.
    pub(super) has_base: bool,
    /// The input of a run, if its stream may not show that input as a state.
    pub(super) input: Option<Json>,
}

// === impl Join ===

impl Join {
    pub(super) fn may_have_values(&self) -> bool {
        self.has_values != Some(false)
    }

    /// Notes that a part has come. Returns whether it is the first.
    pub(super) fn begin(&mut self) -> bool {
        !std::mem::replace(&mut self.has_begun, true)
    }

    /// Notes what the next part of a stream that is read from its beginning shows of its modes.
    pub(super) fn note_part(&mut self, frame: &Frame<'_>) {
        if self.has_values.is_none() && self.has_begun {
            self.has_values = langgraph::has_values(frame);
        }
    }
}

// === impl Parts ===

impl Parts {
    pub(super) fn translate(
        &mut self,
        frame: &Frame<'_>,
        cursor: Option<Cursor>,
        digest: u32,
        out: &mut Events,
    ) {
        // An error is no part of the run.
        self.count += u64::from(frame.event.as_deref() != Some("error"));
        let part = self.form.parse(&self.messages_key, frame, &mut self.scratch);
        self.is_langgraph |= !matches!(part.body, PartPayload::Unknown);
        if let PartPayload::Malformed(mode) = part.body {
            self.malformed += 1;
            if self.malformed == 1 {
                tracing::warn!(mode, "ignored a part of a run's stream: not the form of its mode");
            }
        }
        if part.is_mended {
            self.mended += 1;
            if self.mended == 1 {
                tracing::warn!(
                    "a part of a run's stream has NaN, Infinity or half a surrogate pair in a key, \
                     which JSON does not have; null and U+FFFD are in their place"
                );
            }
        }
        // The run's record is read when the stream is over.
        if matches!(&part.body, PartPayload::Error(error) if error.is_missing_run()) {
            return;
        }
        let id = if let PartPayload::Metadata { run_id, .. } = &part.body {
            Some(&**run_id)
        } else {
            None
        };
        let (name, rendering) = (self.name.as_deref(), self.rendering);
        let run = self.translation.get_or_insert_with(|| {
            Translation::new(&self.thread_id, id, name)
                .with_messages_key(self.messages_key.clone())
                .with_rendering(rendering)
        });
        run.id = run.id.take().or_else(|| id.map(str::to_owned));
        // An error makes no event of its own.
        if !matches!(part.body, PartPayload::Error(_)) {
            self.keys.begin_part(cursor, digest);
        }
        let keys = &mut self.keys;
        let start = keys.start();
        out.with_keys(|out| {
            run.translator.start(out);
            |_| start
        });
        let raw =
            rendering.raw_part(frame.event.as_deref(), frame.data.as_deref().unwrap_or_default());
        let from = out.len();
        let is_known = !matches!(part.body, PartPayload::Unknown | PartPayload::Malformed(_));
        out.with_keys(|out| {
            run.translator.on_part(&part, out);
            if let Some(raw) = raw.as_ref().filter(|_| !is_known) {
                out.push(RunEvent::Raw(raw.clone()));
            }
            let attempt = run.translator.attempt();
            move |_| keys.next(attempt)
        });
        if let Some(raw) = raw.filter(|_| is_known) {
            out.made_of(from, raw);
        }
        drop(part);
        buffer::empty_text(&mut self.scratch);
    }

    /// Gives the events of this rendering ids of their own. A client that resumes after an event of
    /// another one starts over.
    pub(super) fn reseed(&mut self) {
        self.keys.reseed(self.rendering.seed() ^ self.messages_key.seed());
    }

    /// Parts may be missing before the next one.
    pub(super) fn on_gap(&mut self, join: Option<&Join>, out: &mut Events) {
        let Some(run) = &mut self.translation else { return };
        self.keys = KeySequence::Broken;
        self.has_gap = true;
        let has_values = join.is_none_or(Join::may_have_values);
        out.without_keys(|out| run.translator.on_gap(has_values, out));
    }

    /// Whether a joined stream, whose first part has come, lacks what came before that part.
    pub(super) fn lacks_base(&self, join: &Join) -> bool {
        let is_late =
            self.translation.as_ref().is_some_and(|run| run.translator.has_missed_its_beginning());
        (is_late || !join.may_have_values()) && !join.has_base
    }
}

// === impl Translation ===

impl Translation {
    pub(super) fn new(thread_id: &str, id: Option<&str>, name: Option<&str>) -> Self {
        let run_id = id.or(name).unwrap_or(UNNAMED);
        let translator = Translator::named(thread_id, Some(run_id), name.unwrap_or(run_id));
        Self { id: id.map(str::to_owned), translator }
    }

    pub(super) fn with_messages_key(self, key: MessagesKey) -> Self {
        Self { translator: self.translator.under(key), ..self }
    }

    pub(super) fn with_rendering(self, rendering: Rendering) -> Self {
        Self { translator: self.translator.showing(rendering.harness), ..self }
    }
}
