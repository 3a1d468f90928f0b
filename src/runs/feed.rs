//! A run's bytes in, its events out: the whole pure chain, for a live stream and a recorded one.

use crate::json::Json;
use crate::langgraph::{Body, Part, Replay, RunError, RunRecord, ThreadState, Values};
use crate::run::{RunEvent, StreamEnd, Translator, View};
use crate::sse::{self, DecodeError, Decoder, Frame};

/// What a run is called that nothing has named.
const UNNAMED: &str = "run";

/// The chain from a run's bytes to its events.
#[derive(Debug)]
pub struct Feed {
    decoder: Decoder,
    join: Option<Join>,
    parts: Parts,
}

/// The chain behind the frames.
#[derive(Debug)]
struct Parts {
    thread_id: String,
    /// What the client that started the run calls it, if that is known.
    name: Option<String>,
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
    /// Whether the run was told from its beginning, its state included.
    pub(super) is_whole: bool,
    /// Whether it has told anything.
    pub(super) has_begun: bool,
    /// Why the run failed.
    pub(super) error: Option<RunError>,
}

/// How far the bytes at hand were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// To their end.
    Done,
    /// To where the stream of a joined run begins, which lacks what came before.
    BaseWanted,
}

/// The run, once it has a name.
#[derive(Debug)]
struct Run {
    /// LangGraph's id, where something has told it.
    id: Option<String>,
    translator: Translator,
}

/// What is particular to a stream that was joined.
#[derive(Debug)]
struct Join {
    has_values: bool,
    /// Whether a part has come.
    has_begun: bool,
    /// Whether the thread's state was read beside it.
    has_base: bool,
    /// The input of a run that waits for its turn and will not tell it as a state.
    input: Option<Json>,
    replay: Replay,
}

// === impl Feed ===

impl Feed {
    /// For a run of a thread, which the client that starts it calls `name`. Without a run id the
    /// stream's first `metadata` tells it.
    pub fn new(thread_id: &str, run_id: Option<&str>, name: Option<&str>) -> Self {
        let parts = Parts {
            thread_id: thread_id.to_owned(),
            name: name.map(str::to_owned),
            scratch: String::new(),
            run: run_id.map(|run_id| Run::new(thread_id, Some(run_id), name)),
            is_langgraph: false,
            malformed: 0,
        };
        Self { decoder: Decoder::new(), join: None, parts }
    }

    /// For a run that others have started.
    pub(super) fn joined(thread_id: &str, record: &RunRecord) -> Self {
        let mut feed = Self::new(thread_id, Some(&record.id), record.client_id.as_deref());
        feed.parts.run = feed
            .parts
            .run
            .map(|run| Run { translator: run.translator.joined(record.has_values), ..run });
        feed.join = Some(Join {
            has_values: record.has_values,
            has_begun: false,
            has_base: false,
            input: record.input.clone().filter(|_| !record.has_values),
            replay: Replay::new(None),
        });
        feed
    }

    /// For a thread at rest, as a run of snapshots with a name of our own.
    pub(super) fn at_rest(thread_id: &str, name: &str) -> Self {
        let mut feed = Self::new(thread_id, None, Some(name));
        let translator = Translator::named(thread_id, None, name);
        feed.parts.run = Some(Run { id: None, translator });
        feed
    }

    /// Announces the run, if its id is known.
    pub fn start(&mut self, out: &mut Vec<RunEvent>) {
        if let Some(run) = &mut self.parts.run {
            run.translator.start(out);
        }
    }

    /// Takes in and reads the stream's next bytes, with no state at hand. After an error there is
    /// only [`end`](Self::end).
    pub fn read(&mut self, bytes: &[u8], out: &mut Vec<RunEvent>) -> Result<(), DecodeError> {
        self.push(bytes);
        while self.advance(out)? == Progress::BaseWanted {}
        Ok(())
    }

    /// Takes in the stream's next bytes; [`advance`](Self::advance) reads them.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.decoder.push(bytes);
    }

    /// Reads the bytes that were taken in. After an error there is only [`end`](Self::end).
    pub(super) fn advance(&mut self, out: &mut Vec<RunEvent>) -> Result<Progress, DecodeError> {
        let Self { decoder, join, parts } = self;
        while let Some(frame) = decoder.next_frame()? {
            let Some(join) = join else {
                parts.translate(&frame, out);
                continue;
            };
            if !join.replay.is_new(&frame) {
                continue;
            }
            parts.translate(&frame, out);
            if !std::mem::replace(&mut join.has_begun, true) && parts.lacks_base(join) {
                return Ok(Progress::BaseWanted);
            }
        }
        Ok(Progress::Done)
    }

    /// The stream was joined then, in milliseconds of the server's clock.
    pub(super) fn joined_at(&mut self, time: Option<u64>) {
        if let Some(join) = &mut self.join {
            join.replay = Replay::new(time);
        }
    }

    /// Whether the history of a joined run is over, where that can be told.
    pub(super) fn is_history_over(&self) -> Option<bool> {
        self.join.as_ref()?.replay.is_over()
    }

    /// Whether a part of a joined run has come.
    pub(super) fn has_begun(&self) -> bool {
        self.join.as_ref().is_none_or(|join| join.has_begun)
    }

    /// Takes in the state that the thread has while the run goes on. A run that has its own input
    /// in a state tells it there.
    pub(super) fn base(&mut self, state: &str, out: &mut Vec<RunEvent>) {
        let Some(run) = &mut self.parts.run else { return };
        if let Some(values) = values(state) {
            run.translator.on_base(&values, out);
        }
        if let Some(join) = &mut self.join {
            join.has_base = true;
            if let Some(input) = join.input.take() {
                run.translator.on_named_input(&input, out);
            }
        }
    }

    /// Takes in the state of the thread whose run has never begun. Before its first checkpoint a
    /// thread has no messages, and its state does not say so.
    pub(super) fn untouched(&mut self, state: &str, out: &mut Vec<RunEvent>) {
        let is_new = ThreadState::parse(state).is_some_and(|state| state.checkpoint_id.is_none());
        self.base(if is_new { r#"{"values":{"messages":[]}}"# } else { state }, out);
    }

    /// Takes in a state that was read instead of the stream.
    pub(super) fn checkpoint(&mut self, state: &str, out: &mut Vec<RunEvent>) {
        if let (Some(run), Some(values)) = (&mut self.parts.run, values(state)) {
            run.translator.on_checkpoint(&values, out);
        }
    }

    /// Takes in what a run that waits for its turn will begin with.
    pub(super) fn input(&mut self, input: &Json, out: &mut Vec<RunEvent>) {
        if let Some(run) = &mut self.parts.run {
            run.translator.on_input(input, out);
        }
    }

    /// Ends the run, with its thread's state where that was read and belongs to it.
    pub fn end(&mut self, state: Option<&str>, end: StreamEnd, out: &mut Vec<RunEvent>) {
        self.finish_with(state.and_then(ThreadState::parse).as_ref(), end, out);
    }

    /// Ends the run with a state.
    pub(super) fn finish_with(
        &mut self,
        state: Option<&ThreadState<'_>>,
        end: StreamEnd,
        out: &mut Vec<RunEvent>,
    ) {
        let Parts { thread_id, name, run, .. } = &mut self.parts;
        let run = run.get_or_insert_with(|| Run::new(thread_id, None, name.as_deref()));
        if let Some(state) = state {
            run.translator.on_state(state, out);
        }
        run.translator.on_end(end, out);
    }

    /// LangGraph's id of the run, once it is known.
    pub fn run_id(&self) -> Option<&str> {
        self.parts.run.as_ref()?.id.as_deref()
    }

    /// Ends the bytes, and tells whether they ended inside an event.
    pub(super) fn finish(&mut self) -> sse::Ending {
        std::mem::take(&mut self.decoder).finish()
    }

    /// Whether the stream holds anything of LangGraph's.
    pub(super) fn is_langgraph(&self) -> bool {
        self.parts.is_langgraph
    }

    /// What the stream has told so far.
    pub(super) fn seen(&self) -> Seen {
        let Some(Run { id, translator }) = &self.parts.run else { return Seen::default() };
        let is_joined_whole = |join: &Join| {
            join.has_begun && join.has_values && !translator.has_missed_its_beginning()
        };
        Seen {
            run_id: id.clone(),
            is_interrupted: translator.is_interrupted(),
            is_whole: self.join.as_ref().is_none_or(is_joined_whole),
            has_begun: self.has_begun(),
            error: translator.error().cloned(),
        }
    }

    /// What a client holds that has applied all events so far; `None` before there is any.
    pub(super) fn view(&self) -> Option<&View> {
        self.parts.run.as_ref().map(|run| run.translator.view())
    }
}

fn values(state: &str) -> Option<Values<'_>> {
    ThreadState::parse(state)?.values
}

// === impl Parts ===

impl Parts {
    fn translate(&mut self, frame: &Frame<'_>, out: &mut Vec<RunEvent>) {
        let part = Part::parse(frame, &mut self.scratch);
        self.is_langgraph |= !matches!(part.body, Body::Unknown);
        if let Body::Malformed(mode) = part.body {
            self.malformed += 1;
            if self.malformed == 1 {
                tracing::warn!(mode, "a part of a run's stream has not the form of its mode");
            }
        }
        let id =
            if let Body::Metadata { run_id, .. } = &part.body { Some(&**run_id) } else { None };
        let name = self.name.as_deref();
        let run = self.run.get_or_insert_with(|| Run::new(&self.thread_id, id, name));
        run.id = run.id.take().or_else(|| id.map(str::to_owned));
        run.translator.on_part(&part, out);
    }

    /// Whether a joined stream, of which the first part has come, lacks what came before it.
    fn lacks_base(&self, join: &Join) -> bool {
        let is_late =
            self.run.as_ref().is_some_and(|run| run.translator.has_missed_its_beginning());
        (is_late || !join.has_values) && !join.has_base
    }
}

// === impl Run ===

impl Run {
    fn new(thread_id: &str, id: Option<&str>, name: Option<&str>) -> Self {
        let run_id = id.or(name).unwrap_or(UNNAMED);
        let translator = Translator::named(thread_id, Some(run_id), name.unwrap_or(run_id));
        Self { id: id.map(str::to_owned), translator }
    }
}
