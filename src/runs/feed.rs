//! A run's bytes in, its events out: the whole pure chain, for a live stream and a recorded one.

use crate::langgraph::{Body, Part, RunError, ThreadState};
use crate::run::{RunEvent, StreamEnd, Translator};
use crate::sse::{self, DecodeError, Decoder};

/// The chain from a run's bytes to its events, and what its stream has shown so far.
#[derive(Debug)]
pub struct Feed {
    thread_id: String,
    /// The run's id where nothing in the stream tells one.
    fallback_run_id: String,
    decoder: Decoder,
    scratch: String,
    run: Option<Run>,
    shown: Shown,
}

/// The run, once it has a name.
#[derive(Debug)]
struct Run {
    /// LangGraph's id, where something has told it.
    id: Option<String>,
    translator: Translator,
}

/// What the stream has shown.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// Whether it holds anything of LangGraph's.
    pub(super) is_langgraph: bool,
    /// Whether this attempt asked a question or stopped at a breakpoint.
    pub(super) has_interrupt: bool,
    /// Why this attempt failed.
    pub(super) error: Option<RunError>,
    malformed: u64,
}

// === impl Feed ===

impl Feed {
    /// For a run of a thread. Without a run id the stream's first `metadata` names the run; in a
    /// stream that begins otherwise it is called `fallback_run_id`.
    pub fn new(thread_id: &str, run_id: Option<&str>, fallback_run_id: &str) -> Self {
        Self {
            thread_id: thread_id.to_owned(),
            fallback_run_id: fallback_run_id.to_owned(),
            decoder: Decoder::new(),
            scratch: String::new(),
            run: run_id.map(|run_id| Run::new(thread_id, Some(run_id), fallback_run_id)),
            shown: Shown::default(),
        }
    }

    /// Announces the run, if its id is known.
    pub fn start(&mut self, out: &mut Vec<RunEvent>) {
        if let Some(run) = &mut self.run {
            run.translator.start(out);
        }
    }

    /// Takes in the stream's next bytes. After an error there is only [`end`](Self::end).
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<RunEvent>) -> Result<(), DecodeError> {
        self.decoder.push(bytes);
        while let Some(frame) = self.decoder.next_frame()? {
            let part = Part::parse(&frame, &mut self.scratch);
            self.shown.note(&part);
            let named =
                if let Body::Metadata { run_id, .. } = &part.body { Some(&**run_id) } else { None };
            let run = self
                .run
                .get_or_insert_with(|| Run::new(&self.thread_id, named, &self.fallback_run_id));
            run.id = run.id.take().or_else(|| named.map(str::to_owned));
            run.translator.on_part(&part, out);
        }
        Ok(())
    }

    /// Ends the run, with its thread's state where that was read and belongs to it.
    pub fn end(&mut self, state: Option<&str>, end: StreamEnd, out: &mut Vec<RunEvent>) {
        let run =
            self.run.get_or_insert_with(|| Run::new(&self.thread_id, None, &self.fallback_run_id));
        if let Some(state) = state.and_then(ThreadState::parse) {
            run.translator.on_state(&state, out);
        }
        run.translator.on_end(end, out);
    }

    /// LangGraph's id of the run, once it is known.
    pub fn run_id(&self) -> Option<&str> {
        self.run.as_ref()?.id.as_deref()
    }

    /// Ends the bytes, and tells whether they ended inside an event.
    pub(super) fn finish(&mut self) -> sse::Ending {
        std::mem::take(&mut self.decoder).finish()
    }

    pub(super) fn shown(&self) -> &Shown {
        &self.shown
    }
}

// === impl Run ===

impl Run {
    fn new(thread_id: &str, id: Option<&str>, fallback: &str) -> Self {
        let translator = Translator::new(thread_id, id.unwrap_or(fallback));
        Self { id: id.map(str::to_owned), translator }
    }
}

// === impl Shown ===

impl Shown {
    fn note(&mut self, part: &Part<'_>) {
        self.is_langgraph |= !matches!(part.body, Body::Unknown);
        match &part.body {
            // A new attempt: what the one before it came to is void.
            Body::Metadata { .. } => {
                self.has_interrupt = false;
                self.error = None;
            }
            Body::Interrupts(_) => self.has_interrupt = true,
            Body::Values(values) => self.has_interrupt |= values.interrupts.is_some(),
            Body::Updates(updates) => self.has_interrupt |= updates.interrupts.is_some(),
            Body::Error(error) => self.error = Some(error.clone()),
            Body::Malformed(mode) => self.warn_once(mode),
            Body::Message { .. }
            | Body::Partial(_)
            | Body::Complete(_)
            | Body::MessageMetadata(_)
            | Body::Event(_)
            | Body::Protocol(_)
            | Body::Custom(_)
            | Body::Task(_)
            | Body::Lifecycle(_)
            | Body::Silent
            | Body::Unknown => {}
        }
    }

    fn warn_once(&mut self, mode: &str) {
        if self.malformed == 0 {
            tracing::warn!(mode, "a part of a run's stream has not the form of its mode");
        }
        self.malformed += 1;
    }
}
