//! How a run is read. Upstream bytes, records and times go in; events and the next action come
//! out. There is no IO here and no clock: the driver passes the time.
//!
//! ```text
//!                opened                    ended, cut, silent
//!   Opening ----------------> Streaming ------------------------> CheckingEnd ----> Over
//!      ^                       |     ^                               |
//!      |    it lacks the parts |     | the state                     | the run goes on, or
//!      |    before it          v     |                               | the upstream cannot say
//!      |                    ReadingState                             v
//!      +--------------------------------------------------------- Pausing
//!
//!   CheckingBeat: a stream that is open and brings heartbeats alone. The upstream is asked whether
//!   the run is over (Over), or goes on (Streaming).
//!
//!   Polling: a run that must not be joined, or whose stream shows no more of it. Its record and
//!   its thread's state are read in turn, with pauses, until the record says that it is over
//!   (CheckingEnd).
//! ```
//! A connection that was cut is joined again after the last part that was read, without asking
//! for the run's record first.
//!
//! - `action`: what the driver has to do.
//! - `source`: where a run is read from.
//! - `transitions`: the arrows of the picture.

use std::time::Duration;

use tokio::time::Instant;

mod action;
mod source;
mod transitions;

use super::batch::Events;
use super::decoder::RunDecoder;
use super::ending::{BodyEnd, EndStatus, Ending, FinalState};
use super::published::History;
use super::retry::{EndReads, Retry, StateReads, obeyed};
use crate::metrics::Rejoin;
use crate::upstream::Seed;
use threadway_translate::langgraph::{Capabilities, ErrorDetail, RunError, RunRecord, RunStatus};
use threadway_translate::run::{LossReason, StreamEnd};

pub(super) use action::{DriverAction, ReadingEnd, UpstreamAnswer, UpstreamRequest};
pub(super) use source::Source;

/// The silence after which a replay without usable ids counts as over. A replay comes as fast as
/// the server can send, so its frames are closer together. A run with faster tokens has no such
/// silence; [`CATCH_UP`] limits its replay. If a replay is taken for over too early, its readers
/// are shown the run from the middle of the replay on.
pub(super) const QUIET: Duration = Duration::from_millis(10);

/// The longest such replay. Its readers see an empty page until it is over.
pub(super) const CATCH_UP: Duration = Duration::from_secs(2);

/// The silence after which a replay counts as over whose ids are times before the join: the run
/// itself is silent then. A busy Python server sends its stored parts with gaps of 50 ms.
pub(super) const TIMED_QUIET: Duration = Duration::from_millis(250);

/// The longest such replay. A busy Python server takes 9 s for 100,000 parts.
pub(super) const TIMED_CATCH_UP: Duration = Duration::from_secs(30);

/// The pause between two reads of the record of a run that is read without its stream.
pub(super) const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// The longest silence of the Python server's stream, which has a heartbeat every 5 s.
const SILENCE: Duration = Duration::from_secs(20);

/// The longest silence of a server without heartbeats. Requesting the stream again costs little,
/// and shows whether the connection was dead or the run is slow.
const SILENCE_WITHOUT_HEARTBEATS: Duration = Duration::from_secs(30);

/// How long a stream may bring heartbeats and no part, until the upstream is asked whether the run
/// is over. aegra's stream of a run that is over beats for ever if its end was lost, as when Redis
/// was away. A run that is silent for a good reason costs a request in this time.
const PARTLESS: Duration = Duration::from_secs(30);

/// The same for a server that ends the stream of each run. It is asked once in each such silence:
/// only a lost end is a reason to doubt the stream.
const PARTLESS_BEFORE_END: Duration = Duration::from_mins(1);

/// The same after a client has stopped the run through this gateway.
const PARTLESS_STOPPED: Duration = Duration::from_secs(5);

/// The same for a stream that was joined and has brought no part yet. aegra's stream of a run that
/// is over and no longer stored beats from the start.
const PARTLESS_JOIN: Duration = Duration::from_secs(5);

/// A connection that is older than this and brings bytes is not counted as a failed attempt.
const PROVEN: Duration = Duration::from_secs(1);

/// Reads one run.
#[derive(Debug)]
pub(super) struct Reading {
    decoder: RunDecoder,
    history: History,
    /// The record of a run that somebody else started.
    record: Option<RunRecord>,
    server: Capabilities,
    source: Source,
    phase: Phase,
    /// The action that the driver has not taken yet.
    action: Option<DriverAction>,
    retry: Retry,
    /// An answer that asks for a wait. It counts when the wait is over.
    deferred: Option<(Instant, UpstreamAnswer)>,
    /// Why the stream is joined again, if it is.
    rejoin: Rejoin,
    /// Whether the stream was joined, and is not the response that started the run.
    is_joined: bool,
}

/// How far the reading is: each phase waits for something.
#[derive(Debug)]
enum Phase {
    /// The answer to a request for the stream.
    Opening,
    /// Bytes of the stream.
    Streaming(Streaming),
    /// The thread's state, without which the open stream cannot be translated further.
    ReadingState {
        stream: Streaming,
        why: StateReason,
        reads: StateReads,
        /// When the state is read again. `None` while it is read.
        again_at: Option<Instant>,
    },
    /// Whether the run is over.
    CheckingEnd {
        reads: EndReads,
        /// When the upstream is asked again. `None` while it is asked.
        again_at: Option<Instant>,
    },
    /// The same, of a run whose stream is open and beats.
    CheckingBeat {
        stream: Streaming,
    },
    /// The time of the next attempt.
    Pausing {
        until: Instant,
    },
    /// The record of a run that is read without its stream, or its thread's state.
    Polling,
    Over,
}

/// An open stream.
#[derive(Clone, Copy, Debug)]
struct Streaming {
    opened_at: Instant,
    last_bytes_at: Instant,
    /// When a replay counts as over. `None` after the replay, or without one.
    quiet_at: Option<Instant>,
    beats: Beats,
    /// When the upstream is asked whether the run is over, unless an event comes before.
    partless_at: Instant,
    /// How many parts had come before this connection.
    count: u64,
}

/// What a stream has brought since its last part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beats {
    None,
    /// Heartbeats.
    Some,
    /// Heartbeats, and the upstream has said that the run goes on.
    Checked,
}

/// Why the thread's state is read beside a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StateReason {
    /// The stream was just joined, and the server does not replay all of it.
    Joined,
    /// Parts before the last one read are missing.
    Lacking,
    /// The replay brought nothing.
    EmptyReplay,
}

// === impl Reading ===

impl Reading {
    /// For a run that was just started. The response's body is its stream.
    pub(super) fn started(
        decoder: RunDecoder,
        server: Capabilities,
        seed: Seed,
        now: Instant,
    ) -> Self {
        let mut reading = Self::new(decoder, History::Complete, None, server, Source::Stream, seed);
        reading.stream(now);
        reading
    }

    /// For a run that was just started, whose response was lost.
    pub(super) fn found(decoder: RunDecoder, server: Capabilities, seed: Seed) -> Self {
        let mut reading = Self::new(decoder, History::Complete, None, server, Source::Stream, seed);
        reading.join(None);
        reading
    }

    /// For a run that somebody else started.
    pub(super) fn joined(
        decoder: RunDecoder,
        record: RunRecord,
        server: Capabilities,
        source: Source,
        seed: Seed,
        now: Instant,
    ) -> Self {
        let known = Some(record.clone());
        let mut reading = Self::new(decoder, History::Replaying, known, server, source, seed);
        match source {
            Source::Stream => reading.join(None),
            Source::Record => reading.on_record(Ok(record), now),
        }
        reading
    }

    fn new(
        decoder: RunDecoder,
        history: History,
        record: Option<RunRecord>,
        server: Capabilities,
        source: Source,
        seed: Seed,
    ) -> Self {
        Self {
            decoder,
            history,
            record,
            server,
            source,
            phase: Phase::Opening,
            action: None,
            retry: Retry::new(seed),
            deferred: None,
            rejoin: Rejoin::Cut,
            is_joined: false,
        }
    }

    pub(super) fn decoder(&self) -> &RunDecoder {
        &self.decoder
    }

    pub(super) fn history(&self) -> History {
        self.history
    }

    /// When the upstream is asked whether the run is over, although the stream is open. `None`
    /// before a heartbeat, and after an answer if the server ends the stream of each run.
    fn doubted_at(&self, stream: &Streaming) -> Option<Instant> {
        match stream.beats {
            Beats::None => None,
            Beats::Some => Some(stream.partless_at),
            Beats::Checked => (!self.server.ends_streams).then_some(stream.partless_at),
        }
    }

    /// A client stops the run through this gateway.
    pub(super) fn on_stop(&mut self, now: Instant) {
        if let Phase::Streaming(stream)
        | Phase::ReadingState { stream, .. }
        | Phase::CheckingBeat { stream } = &mut self.phase
        {
            stream.partless_at = stream.partless_at.min(now + PARTLESS_STOPPED);
            if stream.beats == Beats::Checked {
                stream.beats = Beats::Some;
            }
        }
    }

    /// The next action, returned once. There is no other until its answer was passed in.
    pub(super) fn poll_action(&mut self) -> Option<DriverAction> {
        self.action.take()
    }

    /// Whether the stream is open. If not, the driver closes the connection.
    pub(super) fn has_stream(&self) -> bool {
        matches!(
            self.phase,
            Phase::Streaming(_) | Phase::ReadingState { .. } | Phase::CheckingBeat { .. }
        )
    }

    /// Since when the upstream has not answered. `None` while it does.
    pub(super) fn away_since(&self) -> Option<Instant> {
        match self.phase {
            Phase::Streaming(_)
            | Phase::ReadingState { .. }
            | Phase::CheckingBeat { .. }
            | Phase::Over => None,
            Phase::Opening | Phase::CheckingEnd { .. } | Phase::Pausing { .. } | Phase::Polling => {
                self.retry.lost_at()
            }
        }
    }

    /// Whether bytes of the stream can be passed in.
    pub(super) fn takes_bytes(&self) -> bool {
        matches!(self.phase, Phase::Streaming(_))
    }

    /// When [`on_timeout`](Self::on_timeout) is due.
    pub(super) fn timeout(&self) -> Option<Instant> {
        if let Some((until, _)) = &self.deferred {
            return Some(*until);
        }
        match &self.phase {
            Phase::Streaming(stream) => {
                let silent_at = Some(stream.last_bytes_at + self.longest_silence());
                let partless_at = self.doubted_at(stream);
                [silent_at, partless_at, stream.quiet_at].into_iter().flatten().min()
            }
            Phase::Pausing { until } => Some(*until),
            Phase::ReadingState { again_at, .. } | Phase::CheckingEnd { again_at, .. } => *again_at,
            Phase::Opening | Phase::CheckingBeat { .. } | Phase::Polling | Phase::Over => None,
        }
    }

    /// The stream is open. `date` is when the server answered, in milliseconds of its clock.
    pub(super) fn on_open(&mut self, date: Option<u64>, now: Instant) {
        self.decoder.answered_at(date);
        self.stream(now);
        // The state is read after the join, so that nothing is lost between the two.
        if self.decoder.count() == 0
            && let Some(record) = &self.record
            && record.status == RunStatus::Running
            && !(record.is_resumable && record.may_have_values())
        {
            self.read_state(StateReason::Joined, now);
        }
    }

    /// The answer to a request. With `retry_after` it counts after this wait, unless the request is
    /// sent again then.
    pub(super) fn on_answer(
        &mut self,
        answer: UpstreamAnswer,
        retry_after: Option<Duration>,
        now: Instant,
        out: &mut Events,
    ) {
        let wait = retry_after.map(obeyed);
        if let Phase::ReadingState { reads, again_at, .. } = &mut self.phase
            && let UpstreamAnswer::NoState(error) = &answer
            && let Some(pause) = reads.next_pause(now)
        {
            let thread_id = self.decoder.thread_id();
            tracing::debug!(thread_id, error, "a run's thread state is read again");
            *again_at = Some(now + wait.unwrap_or_default() + pause);
            return;
        }
        match wait {
            Some(wait) => self.deferred = Some((now + wait, answer)),
            None => self.take_answer(answer, now, out),
        }
    }

    fn take_answer(&mut self, answer: UpstreamAnswer, now: Instant, out: &mut Events) {
        match answer {
            UpstreamAnswer::NoStream(end) => self.on_closed(end, now),
            UpstreamAnswer::State(state) => self.on_state(state.as_deref(), now, out),
            UpstreamAnswer::NoState(error) => {
                let thread_id = self.decoder.thread_id();
                tracing::warn!(thread_id, error, "could not read a run's thread state");
                self.on_state(None, now, out);
            }
            UpstreamAnswer::Record(record) => self.on_record(record, now),
            UpstreamAnswer::EndStatus(status) => self.on_end_status(status, now),
        }
    }

    /// The next bytes of the stream.
    pub(super) fn on_bytes(&mut self, bytes: &[u8], now: Instant, out: &mut Events) {
        self.decoder.push(bytes);
        if let Phase::Streaming(stream) = &mut self.phase {
            stream.last_bytes_at = now;
        }
        let (frames, heartbeats) = (self.decoder.frames(), self.decoder.heartbeats());
        self.advance(now, out);
        let partless = if self.server.ends_streams { PARTLESS_BEFORE_END } else { PARTLESS };
        if let Phase::Streaming(stream) | Phase::ReadingState { stream, .. } = &mut self.phase {
            if self.decoder.frames() > frames {
                stream.beats = Beats::None;
                stream.partless_at = now + partless;
            } else if self.decoder.heartbeats() > heartbeats && stream.beats == Beats::None {
                stream.beats = Beats::Some;
            }
        }
    }

    /// The stream has ended, or could not be opened.
    pub(super) fn on_closed(&mut self, end: BodyEnd, now: Instant) {
        if let Phase::Streaming(stream)
        | Phase::ReadingState { stream, .. }
        | Phase::CheckingBeat { stream } = &self.phase
        {
            if self.decoder.count() > stream.count {
                self.retry.reset();
            } else if now - stream.opened_at >= self.longest_silence() {
                self.retry.was_silent();
            }
            let end = self.body_end(end);
            return self.rejoin_or_check_end(end, now);
        }
        self.rejoin_or_check_end(end, now);
    }

    /// The thread's state, as requested; `None` if there is none or it could not be read.
    fn on_state(&mut self, state: Option<&str>, now: Instant, out: &mut Events) {
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::ReadingState { stream, why, .. } => {
                self.decoder.base(state.unwrap_or("{}"), out);
                self.phase = Phase::Streaming(Streaming { last_bytes_at: now, ..stream });
                match why {
                    StateReason::Lacking => self.advance(now, out),
                    StateReason::EmptyReplay => self.caught_up(),
                    StateReason::Joined => {
                        self.stream(now);
                        if self.record.as_ref().is_some_and(|record| !record.is_resumable) {
                            self.caught_up();
                        }
                    }
                }
            }
            Phase::Polling => {
                if let Some(state) = state {
                    self.decoder.checkpoint(state, out);
                    self.caught_up();
                }
                self.phase = Phase::Pausing { until: now + STATUS_INTERVAL };
            }
            other @ (Phase::Opening
            | Phase::Streaming(_)
            | Phase::CheckingEnd { .. }
            | Phase::CheckingBeat { .. }
            | Phase::Pausing { .. }
            | Phase::Over) => self.phase = other,
        }
    }

    /// The record of a run that is read without its stream, or why it could not be read.
    fn on_record(&mut self, record: Result<RunRecord, BodyEnd>, now: Instant) {
        match record {
            Ok(record) if record.status.is_live() => {
                self.retry.reset();
                if record.status == RunStatus::Running {
                    self.phase = Phase::Polling;
                    self.action = Some(DriverAction::Ask(UpstreamRequest::State));
                } else {
                    self.phase = Phase::Pausing { until: now + STATUS_INTERVAL };
                }
            }
            Ok(_) => self.rejoin_or_check_end(BodyEnd::Clean, now),
            Err(end) => self.rejoin_or_check_end(end, now),
        }
    }

    /// Whether the run is over, as requested.
    fn on_end_status(&mut self, status: EndStatus, now: Instant) {
        if let Phase::CheckingBeat { stream } = self.phase
            && !matches!(status, EndStatus::Ended(_))
        {
            // The stream may have parts by now. If it has none, it is silent from now on.
            let partless_at = now + PARTLESS;
            let beats = Beats::Checked;
            let stream = Streaming { last_bytes_at: now, partless_at, beats, ..stream };
            self.phase = Phase::Streaming(stream);
            return;
        }
        if let Phase::CheckingEnd { reads, again_at } = &mut self.phase {
            let pause = match status {
                EndStatus::Running | EndStatus::Lagging => reads.pause_for_lag(),
                EndStatus::Unconfirmed(_) => reads.pause_for_refusal(),
                EndStatus::Ended(_) | EndStatus::Unknown(_) => None,
            };
            *again_at = pause.map(|pause| now + pause);
            if pause.is_some() {
                return;
            }
        }
        match status {
            EndStatus::Ended(ending) => self.finish(ReadingEnd::Ended(ending)),
            EndStatus::Unconfirmed(end) => {
                let (thread_id, run_id) = (self.decoder.thread_id(), self.decoder.run_id());
                tracing::info!(
                    thread_id,
                    run_id,
                    "LangGraph refuses all callers at a run's end: the run ends as its stream did"
                );
                self.finish(ReadingEnd::Ended(end.into()));
            }
            EndStatus::Running => {
                self.retry.in_reach();
                self.pause("the run goes on".to_owned(), now);
            }
            EndStatus::Lagging => {
                self.pause("the run's record does not show the end yet".to_owned(), now);
            }
            EndStatus::Unknown(why) => self.pause(why, now),
        }
    }

    /// The time is `now`. May be called early, and then does nothing.
    pub(super) fn on_timeout(&mut self, now: Instant, out: &mut Events) {
        if let Some((_, answer)) = self.deferred.take_if(|(until, _)| now >= *until) {
            return self.take_answer(answer, now, out);
        }
        match &mut self.phase {
            Phase::ReadingState { again_at, .. } if again_at.is_some_and(|at| now >= at) => {
                *again_at = None;
                self.action = Some(DriverAction::Ask(UpstreamRequest::State));
            }
            Phase::CheckingEnd { reads, again_at } if again_at.is_some_and(|at| now >= at) => {
                *again_at = None;
                let (seen, end) = (self.decoder.summary().into(), reads.end.clone());
                self.action = Some(DriverAction::Ask(UpstreamRequest::EndStatus { seen, end }));
            }
            Phase::Pausing { until } if now >= *until => {
                if self.source == Source::Record {
                    self.read_record();
                } else if self.may_stream_more() {
                    self.join(Some(self.rejoin));
                } else {
                    self.rejoin_or_check_end(BodyEnd::Clean, now);
                }
            }
            Phase::Streaming(stream) => {
                let stream = *stream;
                if stream.quiet_at.is_some_and(|at| now >= at) {
                    self.on_quiet(now);
                } else if now >= stream.last_bytes_at + self.longest_silence() {
                    self.rejoin = Rejoin::Silent;
                    let seconds = self.longest_silence().as_secs();
                    self.on_closed(BodyEnd::Cut(format!("silent for {seconds} s")), now);
                } else if self.doubted_at(&stream).is_some_and(|at| now >= at) {
                    self.check_beat(stream, now);
                }
            }
            Phase::Pausing { .. }
            | Phase::Opening
            | Phase::ReadingState { .. }
            | Phase::CheckingEnd { .. }
            | Phase::CheckingBeat { .. }
            | Phase::Polling
            | Phase::Over => {}
        }
    }

    /// Makes the run's last events. `detail` sets how much of a run's error clients see.
    pub(super) fn end(&mut self, end: ReadingEnd, detail: ErrorDetail, out: &mut Events) {
        self.phase = Phase::Over;
        let Ending { state, kept, end } = match end {
            ReadingEnd::Ended(ending) => ending,
            ReadingEnd::OutOfReach(why) => {
                let error = self.decoder.summary().error.map(|error| error.redacted(detail));
                let message = match error {
                    Some(RunError { code, message, .. }) => format!(
                        "the run failed ({code}: {message}), and has been out of reach since: {why}"
                    ),
                    None => {
                        format!("the run is out of reach: {why}; it may go on in LangGraph")
                    }
                };
                StreamEnd::Lost { loss: LossReason::Unavailable, message }.into()
            }
        };
        let own = match state {
            Some(FinalState::OfRun(state)) => Some(state),
            Some(FinalState::OfThread(state)) => {
                self.decoder.base_without_run(&state, out);
                None
            }
            None => None,
        };
        self.decoder.keep(&kept);
        self.decoder.end(own.as_deref(), end, out);
        out.redact_failure(detail);
    }
}

#[cfg(test)]
pub(super) mod tests;
