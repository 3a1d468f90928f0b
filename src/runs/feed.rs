//! A run's bytes in, its events out: the whole pure chain, for a live stream and a recorded one.

use crate::langgraph::{Body, Part, RunError, ThreadState};
use crate::run::{RunEvent, StreamEnd, Translator, View};
use crate::sse::{self, DecodeError, Decoder};

/// The chain from a run's bytes to its events.
#[derive(Debug)]
pub struct Feed {
    thread_id: String,
    /// The run's id where nothing in the stream tells one.
    fallback_run_id: String,
    decoder: Decoder,
    scratch: String,
    run: Option<Run>,
    /// Whether the stream holds anything of LangGraph's.
    is_langgraph: bool,
    malformed: u64,
}

/// What a run's stream has told by the time it is over.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// LangGraph's id of the run.
    pub(super) run_id: Option<String>,
    /// Whether the run has asked a question, or stopped at a static breakpoint.
    pub(super) is_interrupted: bool,
    /// Why the run failed.
    pub(super) error: Option<RunError>,
}

/// The run, once it has a name.
#[derive(Debug)]
struct Run {
    /// LangGraph's id, where something has told it.
    id: Option<String>,
    translator: Translator,
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
            is_langgraph: false,
            malformed: 0,
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
            self.is_langgraph |= !matches!(part.body, Body::Unknown);
            if let Body::Malformed(mode) = part.body {
                self.malformed += 1;
                if self.malformed == 1 {
                    tracing::warn!(mode, "a part of a run's stream has not the form of its mode");
                }
            }
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

    /// Whether the stream holds anything of LangGraph's.
    pub(super) fn is_langgraph(&self) -> bool {
        self.is_langgraph
    }

    /// What the stream has told so far.
    pub(super) fn seen(&self) -> Seen {
        let Some(Run { id, translator }) = &self.run else { return Seen::default() };
        Seen {
            run_id: id.clone(),
            is_interrupted: translator.is_interrupted(),
            error: translator.error().cloned(),
        }
    }

    /// What a client holds that has applied all events so far; `None` before there is any.
    pub(super) fn view(&self) -> Option<&View> {
        self.run.as_ref().map(|run| run.translator.view())
    }
}

// === impl Run ===

impl Run {
    fn new(thread_id: &str, id: Option<&str>, fallback: &str) -> Self {
        let translator = Translator::new(thread_id, id.unwrap_or(fallback));
        Self { id: id.map(str::to_owned), translator }
    }
}
