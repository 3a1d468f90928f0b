//! A run's bytes in, its events out: the whole pure chain, for a live stream and a recorded one.

use std::sync::Arc;

use bytes::Bytes;

use super::batch::Events;
use super::event_id::{Mark, Place};
use threadway_translate::buffer;
use threadway_translate::json::{Json, ObjectWriter};
use threadway_translate::langgraph::{
    Body, Cursor, KeptAnswers, MessagesKey, Novelty, Part, Replay, RunError, RunRecord,
    ThreadState, Values,
};
use threadway_translate::run::{Emit, Filter, RunEvent, StreamEnd, Translator, View};
use threadway_translate::sse::{self, DecodeError, Decoder, Frame};

/// The id that a stream has nothing before: both servers send all that they have stored.
pub(super) const BEGINNING: &str = "-1";

/// What a run is called that nothing has named.
const UNNAMED: &str = "run";

/// The chain from a run's bytes to its events.
#[derive(Debug)]
pub struct Feed {
    decoder: Decoder,
    replay: Replay,
    join: Option<Join>,
    parts: Parts,
}

/// The chain behind the frames.
#[derive(Debug)]
struct Parts {
    thread_id: String,
    /// What the client that started the run calls it, if that is known.
    name: Option<String>,
    /// Under which key of its state the graph keeps its conversation.
    messages_key: MessagesKey,
    /// What its viewers are shown.
    emit: Emit,
    scratch: String,
    run: Option<Run>,
    marks: Marks,
    /// Whether something may be missing between two connections, so that the thread's state was
    /// read.
    has_gap: bool,
    /// How many parts have come for the first time.
    count: u64,
    /// Whether the stream holds anything of LangGraph's.
    is_langgraph: bool,
    malformed: u64,
}

/// What marks the events of the run.
///
/// Another reading of the run marks them the same only where it has the same parts, all of them,
/// and nothing else: a state that was read beside them says something else each time.
#[derive(Clone, Copy, Debug)]
enum Marks {
    /// So many events were made of the parts with this cursor. The digest is of all parts so far.
    Kept { cursor: Option<Cursor>, n: u32, digest: u32 },
    /// There are none, or none any more.
    Lost,
}

/// What a run's stream has told by the time it is over.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// LangGraph's id of the run.
    pub(super) run_id: Option<String>,
    /// Whether the run has asked a question, or stopped at a static breakpoint.
    pub(super) is_interrupted: bool,
    /// How much of it was heard.
    pub(super) heard: Heard,
    /// Whether it asks about several actions at once.
    pub(super) asks_batch: bool,
    /// Whether it has told anything.
    pub(super) has_begun: bool,
    /// Why the run failed.
    pub(super) error: Option<RunError>,
}

/// How much of a run was heard by the time its stream is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Heard {
    /// From its beginning, without a gap, its state included.
    Whole,
    /// Not all of it.
    #[default]
    InPart,
    /// What may have come behind a lost connection has not come again.
    NotItsEnd,
}

/// What decides whether an event may still be made of what comes next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Horizon {
    /// The run has no name yet.
    Open,
    /// The run's events have no marks.
    Unmarked,
    /// Parts up to this one have come, in this attempt.
    At { highest: Option<Cursor>, attempt: u32 },
}

/// How far the bytes at hand were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// To their end.
    Done,
    /// To where the stream lacks what came before, at its beginning or behind a gap.
    BaseWanted,
    /// To where only a new connection can tell what comes.
    RejoinWanted,
}

/// The run, once it has a name.
#[derive(Debug)]
struct Run {
    /// LangGraph's id, where something has told it.
    id: Option<String>,
    translator: Translator,
    /// What its viewers are shown; `None` where that is all.
    filter: Option<Filter>,
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
}

// === impl Feed ===

impl Feed {
    /// For a run of a thread, which the client that starts it calls `name`. Without a run id the
    /// stream's first `metadata` tells it.
    pub fn new(thread_id: &str, run_id: Option<&str>, name: Option<&str>) -> Self {
        let parts = Parts {
            thread_id: thread_id.to_owned(),
            name: name.map(str::to_owned),
            messages_key: MessagesKey::default(),
            emit: Emit::default(),
            scratch: String::new(),
            run: run_id.map(|run_id| Run::new(thread_id, Some(run_id), name)),
            marks: Marks::Kept { cursor: None, n: 0, digest: 0 },
            has_gap: false,
            count: 0,
            is_langgraph: false,
            malformed: 0,
        };
        Self { decoder: Decoder::new(), replay: Replay::started(), join: None, parts }
    }

    /// For a run that others have started.
    pub(super) fn joined(thread_id: &str, record: &RunRecord) -> Self {
        let mut feed = Self::new(thread_id, Some(&record.id), record.client_id.as_deref());
        feed.parts.run = feed
            .parts
            .run
            .map(|run| Run { translator: run.translator.joined(record.has_values), ..run });
        if !(record.is_resumable && record.has_values) {
            feed.parts.marks = Marks::Lost;
        }
        feed.replay = Replay::joined();
        feed.join = Some(Join {
            has_values: record.has_values,
            has_begun: false,
            has_base: false,
            input: record.input.clone().filter(|_| !record.has_values),
        });
        feed
    }

    /// For a thread at rest, as a run of snapshots with a name of our own.
    pub(super) fn at_rest(thread_id: &str, name: &str) -> Self {
        let mut feed = Self::new(thread_id, None, Some(name));
        let translator = Translator::named(thread_id, None, name);
        feed.parts.run = Some(Run { id: None, translator, filter: None });
        feed.parts.marks = Marks::Lost;
        feed
    }

    /// Shows its viewers what these options say. To be called before anything is read.
    #[must_use]
    pub fn showing(mut self, emit: Emit) -> Self {
        self.parts.emit = emit;
        if let Some(run) = &mut self.parts.run {
            run.filter = Filter::new(emit);
        }
        self.parts.reseed();
        self
    }

    /// The graph keeps its conversation under this key of its state. To be called before anything is
    /// read.
    #[must_use]
    pub fn under(mut self, messages_key: MessagesKey) -> Self {
        let run = self.parts.run;
        self.parts.run = run.map(|run| run.under(messages_key.clone()));
        self.parts.messages_key = messages_key;
        self.parts.reseed();
        self
    }

    /// Announces the run, if its id is known.
    pub fn start(&mut self, out: &mut Events) {
        if let Some(run) = &mut self.parts.run {
            let mark = self.parts.marks.start();
            out.marked(|out| {
                run.tell(out, Translator::start);
                move |_| mark
            });
        }
    }

    /// Takes in and reads the stream's next bytes, with no state at hand. After an error there is
    /// only [`end`](Self::end).
    pub fn read(&mut self, bytes: &[u8], out: &mut Events) -> Result<(), DecodeError> {
        self.push(bytes);
        while self.advance(out)? != Progress::Done {}
        Ok(())
    }

    /// Takes in the stream's next bytes; [`advance`](Self::advance) reads them.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.decoder.push(bytes);
    }

    /// How many bytes are read when these are taken in: none while an event goes on.
    pub(super) fn readable(&self, chunks: &[Bytes]) -> usize {
        let mut ends = chunks.iter().map(|bytes| memchr::memchr2(b'\n', b'\r', bytes).is_some());
        let bytes: usize = chunks.iter().map(Bytes::len).sum();
        if ends.any(|may_end| may_end) { self.decoder.buffered() + bytes } else { 0 }
    }

    /// Reads the bytes that were taken in. After an error there is only [`end`](Self::end).
    pub(super) fn advance(&mut self, out: &mut Events) -> Result<Progress, DecodeError> {
        let Self { decoder, replay, join, parts } = self;
        while let Some(frame) = decoder.next_frame()? {
            let cursor = frame.id.as_deref().and_then(|id| id.parse::<Cursor>().ok());
            let digest = if cursor.is_some() { digest(&frame) } else { 0 };
            // An error is the last that is said, and the Python server does not keep it: it has no
            // place among the parts.
            let is_error = frame.event.as_deref() == Some("error");
            let novelty = if is_error { Novelty::New } else { replay.take(cursor, digest) };
            // What begins anew says so, and nothing is missing before it.
            let is_beginning = frame.event.as_deref() == Some("metadata");
            let is_behind_a_gap = novelty == Novelty::BehindAGap && !is_beginning;
            match novelty {
                Novelty::New | Novelty::BehindAGap => {}
                Novelty::Repeat => continue,
                Novelty::Doubtful => return Ok(Progress::RejoinWanted),
                Novelty::OfAnotherAttempt => {
                    replay.forget();
                    return Ok(Progress::RejoinWanted);
                }
            }
            if is_behind_a_gap {
                parts.on_gap(join.as_ref(), out);
            }
            if !is_error {
                parts.count += 1;
            }
            parts.translate(&frame, cursor.filter(|_| !is_error), digest, out);
            if let Some(join) = join
                && !std::mem::replace(&mut join.has_begun, true)
                && parts.lacks_base(join)
            {
                return Ok(Progress::BaseWanted);
            }
            if is_behind_a_gap {
                return Ok(Progress::BaseWanted);
            }
        }
        Ok(Progress::Done)
    }

    /// The connection answered then, in milliseconds of the server's clock.
    pub(super) fn answered_at(&mut self, time: Option<u64>) {
        self.replay.answered_at(time);
    }

    /// Goes on with a new connection; behind which id it is to begin.
    pub(super) fn rejoin(&mut self) -> String {
        self.decoder = Decoder::new();
        match self.replay.rejoin(self.parts.count > 0) {
            Some(cursor) => cursor.to_string(),
            None => BEGINNING.to_owned(),
        }
    }

    /// Goes on with a connection of a recording, which was answered then.
    pub(super) fn recorded_join(&mut self, answered_at: Option<u64>) {
        if self.parts.count > 0 {
            self.rejoin();
        } else {
            self.replay = Replay::joined();
        }
        self.replay.answered_at(answered_at);
    }

    /// How far the parts have come.
    pub(super) fn horizon(&self) -> Horizon {
        match &self.parts.run {
            None => Horizon::Open,
            Some(_) if !self.parts.marks.is_kept() => Horizon::Unmarked,
            Some(run) => {
                let highest = self.replay.highest();
                Horizon::At { highest, attempt: run.translator.attempt() }
            }
        }
    }

    /// Whether the run's conversation is known; where none comes, as of a graph without messages,
    /// its state is enough.
    pub(super) fn knows_conversation(&self) -> bool {
        self.view().is_some_and(|view| {
            view.is_based() || (view.state().is_some() && view.messages().is_empty())
        })
    }

    /// How many parts have come.
    pub(super) fn count(&self) -> u64 {
        self.parts.count
    }

    /// Whether the history of a joined run is over, where that can be told.
    pub(super) fn is_history_over(&self) -> Option<bool> {
        self.replay.is_over()
    }

    /// Whether a part of a joined run has come.
    pub(super) fn has_begun(&self) -> bool {
        self.join.as_ref().is_none_or(|join| join.has_begun)
    }

    /// Takes in the state that the thread has while the run goes on. A run that has its own input
    /// in a state tells it there.
    pub(super) fn base(&mut self, state: &str, out: &mut Events) {
        let Parts { run: Some(run), has_gap, marks, messages_key, .. } = &mut self.parts else {
            return;
        };
        *marks = Marks::Lost;
        let input = self.join.as_mut().and_then(|join| {
            join.has_base = true;
            join.input.take()
        });
        out.unmarked(|out| {
            if let Some(values) = values(messages_key, state) {
                if *has_gap {
                    run.tell(out, |run, out| run.on_checkpoint(&values, out));
                } else {
                    run.tell(out, |run, out| run.on_base(&values, out));
                }
            }
            if let Some(input) = input {
                run.tell(out, |run, out| run.on_named_input(&input, out));
            }
        });
    }

    /// Takes in the state of the thread whose run has never begun. Before its first checkpoint a
    /// thread has no messages, and its state does not say so.
    pub(super) fn untouched(&mut self, state: &str, out: &mut Events) {
        let is_new = ThreadState::parse(state).is_some_and(|state| state.checkpoint_id.is_none());
        if !is_new {
            return self.base(state, out);
        }
        let values = ObjectWriter::new().raw(self.parts.messages_key.as_str(), "[]").finish();
        let state = ObjectWriter::new().raw("values", values.get()).finish();
        self.base(state.get(), out);
    }

    /// Takes in a state that was read instead of the stream.
    pub(super) fn checkpoint(&mut self, state: &str, out: &mut Events) {
        let Parts { run, messages_key, .. } = &mut self.parts;
        if let (Some(run), Some(values)) = (run, values(messages_key, state)) {
            out.unmarked(|out| run.tell(out, |run, out| run.on_checkpoint(&values, out)));
        }
    }

    /// Takes in what a run that waits for its turn will begin with.
    pub(super) fn input(&mut self, input: &Json, out: &mut Events) {
        if let Some(run) = &mut self.parts.run {
            out.unmarked(|out| run.tell(out, |run, out| run.on_input(input, out)));
        }
    }

    /// Takes in what is kept of the answers to what the run asks.
    pub(super) fn keep(&mut self, kept: &KeptAnswers) {
        if let Some(run) = &mut self.parts.run {
            run.translator.keep(&kept.current);
        }
    }

    /// Ends the run, with its thread's state where that was read and belongs to it.
    pub fn end(&mut self, state: Option<&str>, end: StreamEnd, out: &mut Events) {
        let key = self.parts.messages_key.clone();
        let state = state.and_then(|state| ThreadState::parse_under(&key, state));
        self.finish_with(state.as_ref(), end, out);
    }

    /// Ends the run with a state that was parsed under its graph's key.
    pub(super) fn finish_with(
        &mut self,
        state: Option<&ThreadState<'_>>,
        end: StreamEnd,
        out: &mut Events,
    ) {
        let Parts { thread_id, name, messages_key, emit, run, marks, .. } = &mut self.parts;
        let run = run.get_or_insert_with(|| {
            Run::new(thread_id, None, name.as_deref()).under(messages_key.clone()).showing(*emit)
        });
        if let Some(state) = state {
            out.unmarked(|out| run.tell(out, |run, out| run.on_state(state, out)));
        }
        let is_lost = matches!(end, StreamEnd::Lost { .. });
        if is_lost {
            *marks = Marks::Lost;
        }
        out.marked(|out| {
            run.tell(out, |run, out| run.on_end(end, out));
            let attempt = run.translator.attempt();
            let mut closings = 0;
            move |event| {
                if let RunEvent::Ended { .. } = event {
                    // Who was told it needs nothing more, wherever the run was read.
                    return (!is_lost).then(|| Mark::at(attempt, Place::End, 0));
                }
                if let RunEvent::Messages(_)
                | RunEvent::StateSnapshot(_)
                | RunEvent::StateDelta(_) = event
                {
                    // It is made of a state that was read.
                    return None;
                }
                closings += 1;
                marks.close(attempt, closings - 1)
            }
        });
    }

    /// What its viewers are shown.
    pub(super) fn emit(&self) -> Emit {
        self.parts.emit
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
        let Some(Run { id, translator, filter: _ }) = &self.parts.run else {
            return Seen::default();
        };
        let is_joined_whole = |join: &Join| {
            join.has_begun && join.has_values && !translator.has_missed_its_beginning()
        };
        let is_whole = !self.parts.has_gap
            && translator.has_sent_state()
            && self.join.as_ref().is_none_or(is_joined_whole);
        Seen {
            run_id: id.clone(),
            is_interrupted: translator.is_interrupted(),
            asks_batch: translator.asks_batch(),
            heard: if !self.replay.is_settled() {
                Heard::NotItsEnd
            } else if is_whole {
                Heard::Whole
            } else {
                Heard::InPart
            },
            has_begun: self.has_begun(),
            error: translator.error().cloned(),
        }
    }

    /// What a client would hold that was shown everything; `None` before there is any.
    pub(super) fn view(&self) -> Option<&View> {
        self.parts.run.as_ref().map(|run| run.translator.view())
    }

    /// What a client holds that has applied all events so far, to be kept.
    pub(super) fn shared_view(&self) -> Option<Arc<View>> {
        self.parts.run.as_ref().map(|run| match &run.filter {
            None => run.translator.shared_view(),
            Some(filter) => Arc::clone(filter.view()),
        })
    }
}

fn values<'a>(key: &MessagesKey, state: &'a str) -> Option<Values<'a>> {
    ThreadState::parse_under(key, state)?.values
}

// === impl Horizon ===

impl Horizon {
    /// Whether an event with this mark may still come.
    pub(super) fn may_reach(self, mark: Mark) -> bool {
        let (highest, attempt) = match self {
            Self::Open => return true,
            Self::Unmarked => return false,
            Self::At { highest, attempt } => (highest, attempt),
        };
        let is_ahead = match mark.place {
            Place::Part(cursor) => highest <= Some(cursor),
            Place::Close => true,
            Place::Start | Place::End => false,
        };
        mark.attempt == attempt && is_ahead
    }
}

// === impl Parts ===

impl Parts {
    fn translate(
        &mut self,
        frame: &Frame<'_>,
        cursor: Option<Cursor>,
        digest: u32,
        out: &mut Events,
    ) {
        let part = Part::parse_under(&self.messages_key, frame, &mut self.scratch);
        self.is_langgraph |= !matches!(part.body, Body::Unknown);
        if let Body::Malformed(mode) = part.body {
            self.malformed += 1;
            if self.malformed == 1 {
                tracing::warn!(mode, "a part of a run's stream has not the form of its mode");
            }
        }
        // What has become of the run is asked when the stream is over.
        if matches!(&part.body, Body::Error(error) if error.is_missing_run()) {
            return;
        }
        let id =
            if let Body::Metadata { run_id, .. } = &part.body { Some(&**run_id) } else { None };
        let (name, emit) = (self.name.as_deref(), self.emit);
        let run = self.run.get_or_insert_with(|| {
            Run::new(&self.thread_id, id, name).under(self.messages_key.clone()).showing(emit)
        });
        run.id = run.id.take().or_else(|| id.map(str::to_owned));
        // A failure makes no event.
        if !matches!(part.body, Body::Error(_)) {
            self.marks.begin(cursor, digest);
        }
        let marks = &mut self.marks;
        let start = marks.start();
        out.marked(|out| {
            run.tell(out, Translator::start);
            |_| start
        });
        let raw = emit.raw_part(frame.event.as_deref(), frame.data.as_deref().unwrap_or_default());
        let from = out.len();
        let is_known = !matches!(part.body, Body::Unknown | Body::Malformed(_));
        out.marked(|out| {
            run.tell(out, |run, out| run.on_part(&part, out));
            if let Some(raw) = raw.as_ref().filter(|_| !is_known) {
                run.tell(out, |_, out| out.push(RunEvent::Raw(raw.clone())));
            }
            let attempt = run.translator.attempt();
            move |_| marks.next(attempt)
        });
        if let Some(raw) = raw.filter(|_| is_known) {
            out.made_of(from, raw);
        }
        drop(part);
        buffer::empty_text(&mut self.scratch);
    }

    /// Gives the events of these options ids of their own: a viewer that resumes after an event of
    /// other options starts over.
    fn reseed(&mut self) {
        if let Marks::Kept { digest, .. } = &mut self.marks {
            *digest = self.emit.seed() ^ self.messages_key.seed();
        }
    }

    /// Something may be missing between what came and what comes.
    fn on_gap(&mut self, join: Option<&Join>, out: &mut Events) {
        let Some(run) = &mut self.run else { return };
        self.marks = Marks::Lost;
        self.has_gap = true;
        let has_values = join.is_none_or(|join| join.has_values);
        out.unmarked(|out| run.tell(out, |run, out| run.on_gap(has_values, out)));
    }

    /// Whether a joined stream, of which the first part has come, lacks what came before it.
    fn lacks_base(&self, join: &Join) -> bool {
        let is_late =
            self.run.as_ref().is_some_and(|run| run.translator.has_missed_its_beginning());
        (is_late || !join.has_values) && !join.has_base
    }
}

// === impl Marks ===

impl Marks {
    fn start(&self) -> Option<Mark> {
        self.is_kept().then(|| Mark::at(1, Place::Start, 0))
    }

    fn close(&self, attempt: u32, n: u32) -> Option<Mark> {
        let Self::Kept { digest, .. } = self else { return None };
        Some(Mark { check: check(*digest), ..Mark::at(attempt, Place::Close, n) })
    }

    /// The next part comes.
    fn begin(&mut self, next: Option<Cursor>, part: u32) {
        *self = match *self {
            Self::Kept { cursor, n, digest } if next.is_some() => {
                let n = if cursor == next { n } else { 0 };
                let mut hasher = crc32fast::Hasher::new_with_initial(digest);
                hasher.update(&part.to_be_bytes());
                Self::Kept { cursor: next, n, digest: hasher.finalize() }
            }
            Self::Kept { .. } | Self::Lost => Self::Lost,
        };
    }

    /// The mark of the next event that the part makes.
    fn next(&mut self, attempt: u32) -> Option<Mark> {
        let Self::Kept { cursor: Some(cursor), n, digest } = self else { return None };
        let mark = Mark::at(attempt, Place::Part(*cursor), *n);
        *n += 1;
        Some(Mark { check: check(*digest), ..mark })
    }

    fn is_kept(&self) -> bool {
        matches!(self, Self::Kept { .. })
    }
}

fn check(digest: u32) -> u16 {
    let [.., high, low] = digest.to_be_bytes();
    u16::from_be_bytes([high, low])
}

/// 32 bits of what a frame says: enough to tell the few frames of one millisecond apart.
fn digest(frame: &Frame<'_>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(frame.event.as_deref().unwrap_or_default().as_bytes());
    hasher.update(b"\n");
    hasher.update(frame.data.as_deref().unwrap_or_default().as_bytes());
    hasher.finalize()
}

// === impl Run ===

impl Run {
    fn new(thread_id: &str, id: Option<&str>, name: Option<&str>) -> Self {
        let run_id = id.or(name).unwrap_or(UNNAMED);
        let translator = Translator::named(thread_id, Some(run_id), name.unwrap_or(run_id));
        Self { id: id.map(str::to_owned), translator, filter: None }
    }

    fn under(self, key: MessagesKey) -> Self {
        Self { translator: self.translator.under(key), ..self }
    }

    fn showing(self, emit: Emit) -> Self {
        Self { filter: Filter::new(emit), ..self }
    }

    /// Lets the translator make events, and passes on those that viewers are shown.
    fn tell(
        &mut self,
        out: &mut Vec<RunEvent>,
        make: impl FnOnce(&mut Translator, &mut Vec<RunEvent>),
    ) {
        let Self { id: _, translator, filter } = self;
        let from = out.len();
        make(translator, out);
        if let Some(filter) = filter {
            filter.show(out, from, &|| translator.conversation());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_has_never_begun_shows_an_empty_conversation_under_any_key() {
        for key in ["messages", "chat_history"] {
            let mut feed = Feed::new("T", Some("R"), None).under(key.parse().unwrap());
            let mut events = Events::default();
            feed.start(&mut events);
            feed.untouched(r#"{"values":{},"next":[]}"#, &mut events);
            let view = feed.view().unwrap();
            assert!(view.is_based() && view.messages().is_empty(), "{key}");
            assert_eq!(view.state().unwrap().to_json().get(), "{}", "{key}");
        }
    }
}
