//! A run's bytes in, its events out: the whole pure chain, for a live stream and a recorded one.
//!
//! - `parts`: translates the frames of the stream.
//! - `keys`: gives each event the key of which its id is made.

use std::sync::Arc;

mod keys;
mod parts;

use super::batch::Events;
use super::event_id::{EventKey, Stage};
use keys::KeySequence;
use parts::{Join, Parts, Translation};
use threadway_translate::json::{Json, ObjectWriter};
use threadway_translate::langgraph::{
    MessagesKey, Novelty, Replay, RunError, RunRecord, StoredDecisions, StreamForm, Taken,
    ThreadState, Values,
};
use threadway_translate::run::{
    Filter, Message, Outcome, Rendering, RunEvent, StreamEnd, Translator, View,
};
use threadway_translate::sse::{self, DecodeError, Decoder};

pub(super) use keys::Watermark;

/// The cursor before a stream's first part: both servers then replay all that they have stored.
pub(super) const BEGINNING: &str = "-1";

/// The chain from a run's bytes to its events.
#[derive(Debug)]
pub struct RunDecoder {
    sse: Decoder,
    replay: Replay,
    join: Option<Join>,
    parts: Parts,
    /// How many events have come, with repeats.
    frames: u64,
}

/// Facts about a run that its stream has shown so far.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamSummary {
    /// LangGraph's id of the run.
    pub(super) run_id: Option<String>,
    pub(super) asks: InterruptSeen,
    pub(super) coverage: Coverage,
    /// Whether the run asks about several actions at once.
    pub(super) asks_batch: bool,
    /// Whether any part has come.
    pub(super) has_begun: bool,
    /// Why the run failed, if the stream says so.
    pub(super) error: Option<RunError>,
}

/// Whether a run has asked a question, or stopped at a static breakpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum InterruptSeen {
    #[default]
    Nothing,
    /// It has, in its root graph.
    AtRoot,
    /// It has, and a subgraph may ask. The stream may lack messages of it.
    MaybeBelow,
}

/// How much of a run its stream has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Coverage {
    /// The whole run without a gap, its state included.
    Whole,
    /// A part of the run.
    #[default]
    Partial,
    /// The last parts before a lost connection have not been replayed, so later ones may be
    /// missing.
    EndMissing,
}

/// How far the buffered bytes were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// To their end.
    Done,
    /// To a place where the stream lacks what came before: its beginning, or a gap. The thread's
    /// state is needed.
    NeedsState,
    /// To a part that may be a repeat. Only a new connection shows what comes next.
    NeedsRejoin,
    /// To a part after which no connection brings another one. The run's record and its thread's
    /// state show the rest.
    NeedsRecord,
}

// === impl RunDecoder ===

impl RunDecoder {
    /// For a run of a thread that its client calls `name`. Without a run id, the stream's first
    /// `metadata` part gives it.
    pub fn new(thread_id: &str, run_id: Option<&str>, name: Option<&str>) -> Self {
        let parts = Parts {
            thread_id: thread_id.to_owned(),
            name: name.map(str::to_owned),
            messages_key: MessagesKey::default(),
            rendering: Rendering::default(),
            form: StreamForm::default(),
            scratch: String::new(),
            translation: run_id.map(|run_id| Translation::new(thread_id, Some(run_id), name)),
            keys: KeySequence::new(),
            has_gap: false,
            count: 0,
            is_langgraph: false,
            malformed: 0,
            mended: 0,
        };
        Self { sse: Decoder::new(), replay: Replay::started(), join: None, parts, frames: 0 }
    }

    /// For a run that somebody else started.
    pub(super) fn joined(thread_id: &str, record: &RunRecord) -> Self {
        let mut decoder = Self::new(thread_id, Some(&record.id), record.client_id.as_deref());
        decoder.parts.translation = decoder.parts.translation.map(|run| Translation {
            translator: run.translator.joined(record.may_have_values()),
            ..run
        });
        if !(record.is_resumable && record.may_have_values()) {
            decoder.parts.keys = KeySequence::Broken;
        }
        decoder.replay = Replay::joined();
        decoder.join = Some(Join {
            has_values: record.has_values,
            has_begun: false,
            has_base: false,
            input: record.input.clone().filter(|_| record.has_values != Some(true)),
        });
        decoder
    }

    /// For an idle thread, shown as a run of snapshots. The gateway chooses its name.
    pub(super) fn idle(thread_id: &str, name: &str) -> Self {
        let mut decoder = Self::new(thread_id, None, Some(name));
        let translator = Translator::named(thread_id, None, name);
        decoder.parts.translation = Some(Translation { id: None, translator });
        decoder.parts.keys = KeySequence::Broken;
        decoder
    }

    /// Makes the events of this rendering. To be called before anything is read.
    #[must_use]
    pub fn with_rendering(mut self, rendering: Rendering) -> Self {
        self.parts.rendering = rendering;
        let run = self.parts.translation;
        self.parts.translation = run.map(|run| run.with_rendering(rendering));
        self.parts.reseed();
        self
    }

    /// Reads the conversation under this key of the graph's state. To be called before anything is
    /// read.
    #[must_use]
    pub fn with_messages_key(mut self, key: MessagesKey) -> Self {
        let run = self.parts.translation;
        self.parts.translation = run.map(|run| run.with_messages_key(key.clone()));
        self.parts.messages_key = key;
        self.parts.reseed();
        self
    }

    /// The run goes on after a question. To be called before anything is read.
    #[must_use]
    pub(super) fn resuming(mut self) -> Self {
        let translation = self.parts.translation;
        self.parts.translation =
            translation.map(|run| Translation { translator: run.translator.resuming(), ..run });
        self
    }

    /// Announces the run, if its id is known.
    pub fn start(&mut self, out: &mut Events) {
        if let Some(run) = &mut self.parts.translation {
            let key = self.parts.keys.start();
            out.with_keys(|out| {
                run.translator.start(out);
                move |_| key
            });
        }
    }

    /// Reads the stream's next bytes, of a stream that needs no thread state. After an error only
    /// [`end`](Self::end) may be called.
    pub fn read(&mut self, bytes: &[u8], out: &mut Events) -> Result<(), DecodeError> {
        self.push(bytes);
        while self.advance(out)? != Progress::Done {}
        Ok(())
    }

    /// Buffers the stream's next bytes, for [`advance`](Self::advance).
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.sse.push(bytes);
    }

    /// How many bytes [`advance`](Self::advance) would read with these: 0 if no event can end in
    /// them.
    pub(super) fn readable(&self, bytes: &[u8]) -> usize {
        let may_end = memchr::memchr2(b'\n', b'\r', bytes).is_some();
        if may_end { self.sse.buffered() + bytes.len() } else { 0 }
    }

    /// Reads the buffered bytes. After an error only [`end`](Self::end) may be called.
    pub(super) fn advance(&mut self, out: &mut Events) -> Result<Progress, DecodeError> {
        let Self { sse, replay, join, parts, frames } = self;
        while let Some(frame) = sse.next_frame()? {
            if let Some(join) = join {
                join.note_part(&frame);
                if join.has_begun && parts.lacks_base(join) {
                    sse.keep_frame();
                    return Ok(Progress::NeedsState);
                }
            }
            *frames += 1;
            let Taken { novelty, cursor, digest } = replay.take(&frame);
            let needs_state = match novelty {
                Novelty::Repeat => continue,
                Novelty::Doubtful | Novelty::OfAnotherAttempt => return Ok(Progress::NeedsRejoin),
                Novelty::New | Novelty::Last { is_after_gap: false } => false,
                Novelty::AfterGap | Novelty::Last { is_after_gap: true } => {
                    parts.on_gap(join.as_ref(), out);
                    true
                }
            };
            parts.translate(&frame, cursor, digest, out);
            let is_first = join.as_mut().is_some_and(Join::begin);
            if let Novelty::Last { is_after_gap } = novelty {
                if !is_after_gap {
                    // What follows will be missing.
                    parts.on_gap(join.as_ref(), out);
                }
                return Ok(Progress::NeedsRecord);
            }
            let lacks_base = |join| is_first && parts.lacks_base(join);
            if needs_state || join.as_ref().is_some_and(lacks_base) {
                return Ok(Progress::NeedsState);
            }
        }
        Ok(Progress::Done)
    }

    /// The connection was answered at this time, in milliseconds of the server's clock.
    pub(super) fn answered_at(&mut self, time: Option<u64>) {
        self.replay.answered_at(time);
    }

    /// Prepares for a new connection. Returns the cursor after which it is to begin.
    pub(super) fn rejoin(&mut self) -> String {
        self.sse = Decoder::new();
        match self.replay.rejoin(self.parts.count > 0) {
            Some(cursor) => self.replay.event_id(cursor, self.run_id().unwrap_or_default()),
            None => BEGINNING.to_owned(),
        }
    }

    /// Prepares for the next connection of a recording, which was answered at this time.
    pub(super) fn recorded_join(&mut self, answered_at: Option<u64>) {
        if self.parts.count > 0 {
            self.rejoin();
        } else {
            self.replay = Replay::joined();
        }
        self.replay.answered_at(answered_at);
    }

    pub(super) fn watermark(&self) -> Watermark {
        match &self.parts.translation {
            None => Watermark::Unknown,
            Some(_) if !self.parts.keys.is_intact() => Watermark::NoKeys,
            Some(run) => {
                let highest = self.replay.highest();
                Watermark::At { highest, attempt: run.translator.attempt() }
            }
        }
    }

    /// Whether the run's conversation is known. For a graph without messages its state is enough.
    pub(super) fn knows_conversation(&self) -> bool {
        self.view().is_some_and(|view| {
            view.is_based() || (view.state().is_some() && view.messages().is_empty())
        })
    }

    /// How many parts have come, without repeats.
    pub(super) fn count(&self) -> u64 {
        self.parts.count
    }

    /// How many events of the stream have come, with repeats and without heartbeats.
    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    /// How many heartbeats have come on this connection.
    pub(super) fn heartbeats(&self) -> u64 {
        self.sse.comments()
    }

    /// Whether the replay of a joined run is over; `None` if the stream does not show it.
    pub(super) fn is_history_over(&self) -> Option<bool> {
        self.replay.is_over()
    }

    /// Whether a part of a joined run has come.
    pub(super) fn has_begun(&self) -> bool {
        self.join.as_ref().is_none_or(|join| join.has_begun)
    }

    /// Takes in the state that the thread has while the run goes on.
    pub(super) fn base(&mut self, state: &str, out: &mut Events) {
        let Parts { translation: Some(run), has_gap, keys, messages_key, .. } = &mut self.parts
        else {
            return;
        };
        *keys = KeySequence::Broken;
        // A run whose stream has states shows its input in one of them.
        let input = self.join.as_mut().and_then(|join| {
            join.has_base = true;
            join.input.take().filter(|_| !join.may_have_values())
        });
        out.without_keys(|out| {
            if let Some(values) = values(messages_key, state) {
                if *has_gap {
                    run.translator.on_checkpoint(&values, out);
                } else {
                    run.translator.on_base(&values, out);
                }
            }
            if let Some(input) = input {
                run.translator.on_named_input(&input, out);
            }
        });
    }

    /// Takes in the state of the thread whose run never began. A thread without a checkpoint has no
    /// messages, which its state does not say.
    pub(super) fn base_without_run(&mut self, state: &str, out: &mut Events) {
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
        let Parts { translation, messages_key, .. } = &mut self.parts;
        if let (Some(run), Some(values)) = (translation, values(messages_key, state)) {
            out.without_keys(|out| run.translator.on_checkpoint(&values, out));
        }
    }

    /// Takes in the input of a pending run.
    pub(super) fn input(&mut self, input: &Json, out: &mut Events) {
        if let Some(run) = &mut self.parts.translation {
            out.without_keys(|out| run.translator.on_input(input, out));
        }
    }

    /// Takes in the stored answers to some of the run's questions.
    pub(super) fn keep(&mut self, kept: &StoredDecisions) {
        if let Some(run) = &mut self.parts.translation {
            run.translator.keep(&kept.current);
        }
    }

    /// Ends the run, with its thread's state if that was read and belongs to the run.
    pub fn end(&mut self, state: Option<&str>, end: StreamEnd, out: &mut Events) {
        let key = self.parts.messages_key.clone();
        let state = state.and_then(|state| ThreadState::parse_under(&key, state));
        self.finish_with(state.as_ref(), end, out);
    }

    /// Ends the run with a state that was parsed under the graph's messages key.
    pub(super) fn finish_with(
        &mut self,
        state: Option<&ThreadState<'_>>,
        end: StreamEnd,
        out: &mut Events,
    ) {
        let Parts { thread_id, name, messages_key, rendering, translation, keys, .. } =
            &mut self.parts;
        let run = translation.get_or_insert_with(|| {
            Translation::new(thread_id, None, name.as_deref())
                .with_messages_key(messages_key.clone())
                .with_rendering(*rendering)
        });
        if let Some(state) = state {
            out.without_keys(|out| run.translator.on_state(state, out));
        }
        let is_lost = matches!(end, StreamEnd::Lost { .. });
        if is_lost {
            *keys = KeySequence::Broken;
        }
        out.with_keys(|out| {
            run.translator.on_end(end, out);
            let attempt = run.translator.attempt();
            let mut closings = 0;
            move |event| {
                if let RunEvent::Ended { .. } = event {
                    // After the end there is nothing to resume, whichever replica read the run.
                    return (!is_lost).then(|| EventKey::at(attempt, Stage::End, 0));
                }
                if let RunEvent::Messages(_)
                | RunEvent::StateSnapshot(_)
                | RunEvent::StateDelta(_) = event
                {
                    // The event was made of the state, not of a part.
                    return None;
                }
                closings += 1;
                keys.close(attempt, closings - 1)
            }
        });
    }

    /// The digest of what viewers hold after this outcome, who see what the filter lets through.
    /// `None` before the run has a name.
    pub(super) fn shown(&self, filter: Option<&Filter>, outcome: &Outcome) -> Option<u64> {
        Some(self.parts.translation.as_ref()?.translator.shown(filter, outcome))
    }

    /// The thread's messages, if they are known.
    pub fn conversation(&self) -> Option<Vec<Arc<Message>>> {
        self.parts.translation.as_ref()?.translator.conversation()
    }

    /// Whether the run's events get keys, so that a client can resume after them.
    pub(super) fn has_keys(&self) -> bool {
        self.parts.keys.is_intact()
    }

    pub(super) fn thread_id(&self) -> &str {
        &self.parts.thread_id
    }

    /// LangGraph's id of the run, once it is known.
    pub fn run_id(&self) -> Option<&str> {
        self.parts.translation.as_ref()?.id.as_deref()
    }

    /// Ends the bytes. Says whether they ended inside an event.
    pub(super) fn finish(&mut self) -> sse::Ending {
        std::mem::take(&mut self.sse).finish()
    }

    /// Whether the stream holds any part that LangGraph sends.
    pub(super) fn is_langgraph(&self) -> bool {
        self.parts.is_langgraph
    }

    /// A summary of the stream so far.
    pub(super) fn summary(&self) -> StreamSummary {
        let Some(Translation { id, translator }) = &self.parts.translation else {
            return StreamSummary::default();
        };
        let is_joined_whole = |join: &Join| {
            join.has_begun && join.may_have_values() && !translator.has_missed_its_beginning()
        };
        let is_whole = !self.parts.has_gap
            && translator.has_sent_state()
            && self.join.as_ref().is_none_or(is_joined_whole);
        StreamSummary {
            run_id: id.clone(),
            asks: match translator.is_interrupted() {
                false => InterruptSeen::Nothing,
                // Others may have requested no parts of subgraphs.
                true if self.join.is_some() || translator.asks_below() => InterruptSeen::MaybeBelow,
                true => InterruptSeen::AtRoot,
            },
            asks_batch: translator.asks_batch(),
            coverage: if !self.replay.is_settled() {
                Coverage::EndMissing
            } else if is_whole {
                Coverage::Whole
            } else {
                Coverage::Partial
            },
            has_begun: self.has_begun(),
            error: translator.error().cloned(),
        }
    }

    /// The view of a client that was sent every event; `None` before the run has a name.
    pub(super) fn view(&self) -> Option<&View> {
        self.parts.translation.as_ref().map(|run| run.translator.view())
    }

    /// The same view, shared.
    pub(super) fn shared_view(&self) -> Option<Arc<View>> {
        self.parts.translation.as_ref().map(|run| run.translator.shared_view())
    }
}

fn values<'a>(key: &MessagesKey, state: &'a str) -> Option<Values<'a>> {
    ThreadState::parse_under(key, state)?.values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_with_values_that_json_does_not_have_are_read_and_counted() {
        let mut decoder = RunDecoder::new("T", Some("R"), None);
        let stream = "event: values\ndata: {\"score\":NaN}\n\n\
                      event: values\ndata: {\"k\\ud83d\":1}\n\n\
                      event: values\ndata: {\"score\":\"NaN\"}\n\n";
        decoder.read(stream.as_bytes(), &mut Events::default()).unwrap();
        assert_eq!((decoder.parts.mended, decoder.parts.malformed), (2, 0));
        assert_eq!(decoder.view().unwrap().state().unwrap().to_json().get(), r#"{"score":"NaN"}"#);
    }

    #[test]
    fn a_run_that_has_never_begun_shows_an_empty_conversation_under_any_key() {
        for key in ["messages", "chat_history"] {
            let mut decoder =
                RunDecoder::new("T", Some("R"), None).with_messages_key(key.parse().unwrap());
            let mut events = Events::default();
            decoder.start(&mut events);
            decoder.base_without_run(r#"{"values":{},"next":[]}"#, &mut events);
            let view = decoder.view().unwrap();
            assert!(view.is_based() && view.messages().is_empty(), "{key}");
            assert_eq!(view.state().unwrap().to_json().get(), "{}", "{key}");
        }
    }
}
