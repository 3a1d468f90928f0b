//! How a run is read: what comes of the upstream and of time goes in, events and what to do next come out. There is no IO
//! here, and no clock: whoever drives it tells the time.
//!
//! ```text
//!                opened                    ended, cut, silent
//!   Opening ----------------> Streaming ------------------------> Asking ----> Over
//!      ^                       |     ^                               |
//!      |       it lacks what   |     | the state                     | it goes on, or
//!      |       came before it  v     |                               | nobody can tell
//!      |                      Basing-+                               v
//!      +--------------------------------------------------------- Pausing
//!
//!   Recording: a run that must not be joined. Its record and its thread's state are asked for in
//!   turn, with pauses, until the record says that it is over (Asking).
//! ```
//! A connection that was cut is not worth a question: it is joined again, behind what was heard.
//! How much of the run was heard is the [`Past`] of what is published, and the feed's affair.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::batch::Events;
use super::ending::{BodyEnd, Ending, Outlook, State};
use super::event_id::EventId;
use super::feed::{Feed, Progress, Seen};
use super::published::Past;
use super::retry::Retry;
use crate::metrics::Rejoin;
use threadway_translate::langgraph::{ErrorDetail, RunError, RunRecord, RunStatus, ServerKind};
use threadway_translate::run::{Loss, StreamEnd};
use threadway_translate::sse;

/// After how long a silence a replay is over, where its ids do not tell. It comes as fast as the
/// server can send it, so that its frames are closer together; a run whose tokens are has no
/// silence, and for that there is the next limit. A replay that was taken for over too early is
/// told from its middle on.
pub(super) const QUIET: Duration = Duration::from_millis(10);

/// How long such a replay may take before its readers are told what there is: they look at an
/// empty page till then.
pub(super) const CATCH_UP: Duration = Duration::from_secs(2);

/// After how long a silence a replay is over whose ids are times, and end before the join: a run
/// that is silent itself. A busy Python server sends its store with gaps of 50 ms.
pub(super) const TIMED_QUIET: Duration = Duration::from_millis(250);

/// How long such a replay may take: 100,000 parts take a busy Python server 9 s.
pub(super) const TIMED_CATCH_UP: Duration = Duration::from_secs(30);

/// How often a run that must not be joined is asked for its status, and its thread for its state.
pub(super) const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// How long the Python server's stream may be silent: it gives a sign of life every 5 s.
const SILENCE: Duration = Duration::from_secs(20);

/// The same for a server that gives none. To ask for the stream again costs little, and shows
/// whether the connection was dead or the run is slow.
const SILENCE_WITHOUT_SIGNS: Duration = Duration::from_secs(30);

/// A connection that is this old, and brings something, is no failure any more.
const PROVEN: Duration = Duration::from_secs(1);

/// Reads one run.
#[derive(Debug)]
pub(super) struct Reading {
    feed: Feed,
    past: Past,
    /// The run's record, of one that others have started.
    record: Option<RunRecord>,
    server: Option<ServerKind>,
    source: Source,
    phase: Phase,
    /// What is to be done now.
    action: Option<Action>,
    /// The attempts to get back to the run.
    retry: Retry,
    /// Why its stream is joined again, if it is.
    rejoin: Rejoin,
}

/// Where a run is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Its stream, joined from the beginning as far as that is kept.
    Stream,
    /// Its record and its thread's state: the JavaScript server gives each part of a stream that
    /// is not kept to one reader only, and a join would rob the one who started the run.
    Record,
}

/// What the reading waits for.
#[derive(Debug)]
enum Phase {
    /// Its stream is being opened.
    Opening,
    /// Bytes.
    Streaming(Streaming),
    /// The thread's state, without which the stream cannot be understood from here on.
    Basing { stream: Streaming, why: Base },
    /// How the run ended, if it has.
    Asking,
    /// The next attempt.
    Pausing { until: Instant },
    /// The record of a run that is not joined, or its thread's state.
    Recording,
    /// Nothing.
    Over,
}

/// A stream that is open.
#[derive(Clone, Copy, Debug)]
struct Streaming {
    opened_at: Instant,
    heard_at: Instant,
    /// Until when a replay is waited for. `None` where it is over, or there is none.
    quiet_at: Option<Instant>,
    /// How many parts had come before.
    count: u64,
}

/// Why the thread's state is read beside a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    /// The stream was just joined, and does not tell all that came before.
    Joined,
    /// The bytes at hand lack what came before them.
    Lacking,
    /// The replay brought nothing.
    Nothing,
}

/// What is to be done for the reading.
#[derive(Debug)]
pub(super) enum Action {
    /// The upstream is to be asked.
    Ask(Question),
    /// It is over: [`Reading::end`] tells so.
    End(End),
}

/// What the upstream is to be asked.
#[derive(Debug)]
pub(super) enum Question {
    /// The run's stream behind this id: then [`Reading::on_open`], or [`Reading::on_closed`].
    Stream {
        run_id: String,
        cursor: String,
        /// Why it is joined again, if it is.
        again: Option<Rejoin>,
    },
    /// The thread's state: then [`Reading::on_state`].
    State,
    /// The run's record: then [`Reading::on_record`].
    Record { run_id: String },
    /// How the run ended, if it has: then [`Reading::on_outlook`].
    Outlook { seen: Box<Seen>, end: BodyEnd },
}

/// How the reading of a run ends.
#[derive(Debug)]
pub(super) enum End {
    /// The run's own end, or one that this gateway has chosen.
    Ended(Ending),
    /// The run is out of sight for too long, and why.
    OutOfSight(String),
}

// === impl Reading ===

impl Reading {
    /// For the response that started a run, whose body is at hand.
    pub(super) fn started(feed: Feed, server: Option<ServerKind>, now: Instant) -> Self {
        let mut reading = Self::new(feed, Past::Kept, None, server, Source::Stream);
        reading.open(now);
        reading
    }

    /// For a run that others have started.
    pub(super) fn joined(
        feed: Feed,
        record: RunRecord,
        server: Option<ServerKind>,
        source: Source,
        now: Instant,
    ) -> Self {
        let known = Some(record.clone());
        let mut reading = Self::new(feed, Past::Replaying, known, server, source);
        match source {
            Source::Stream => reading.join(None),
            Source::Record => reading.on_record(Ok(record), now),
        }
        reading
    }

    fn new(
        feed: Feed,
        past: Past,
        record: Option<RunRecord>,
        server: Option<ServerKind>,
        source: Source,
    ) -> Self {
        Self {
            feed,
            past,
            record,
            server,
            source,
            phase: Phase::Opening,
            action: None,
            retry: Retry::default(),
            rejoin: Rejoin::Cut,
        }
    }

    /// What the events are made by.
    pub(super) fn feed(&self) -> &Feed {
        &self.feed
    }

    /// How what has come so far stands to what the run has said.
    pub(super) fn past(&self) -> Past {
        self.past
    }

    /// What is to be done now, once. While that is done, nothing else is.
    pub(super) fn poll_action(&mut self) -> Option<Action> {
        self.action.take()
    }

    /// Whether its stream is open. One that was opened is of no use any more where it is not.
    pub(super) fn has_stream(&self) -> bool {
        matches!(self.phase, Phase::Streaming(_) | Phase::Basing { .. })
    }

    /// Whether bytes of the stream can be taken in.
    pub(super) fn takes_bytes(&self) -> bool {
        matches!(self.phase, Phase::Streaming(_))
    }

    /// When [`Reading::on_timeout`] is due.
    pub(super) fn timeout(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Streaming(Streaming { quiet_at, heard_at, .. }) => {
                let silent_at = *heard_at + self.longest_silence();
                Some(quiet_at.map_or(silent_at, |quiet_at| quiet_at.min(silent_at)))
            }
            Phase::Pausing { until } => Some(*until),
            Phase::Opening
            | Phase::Basing { .. }
            | Phase::Asking
            | Phase::Recording
            | Phase::Over => None,
        }
    }

    /// The stream is open. The server answered then, in milliseconds of its clock.
    pub(super) fn on_open(&mut self, date: Option<u64>, now: Instant) {
        self.feed.answered_at(date);
        self.open(now);
        // The state is read after the join, so that nothing is lost between the two.
        if self.feed.count() == 0
            && let Some(record) = &self.record
            && record.status == RunStatus::Running
            && !(record.is_resumable && record.has_values)
        {
            self.base(Base::Joined);
        }
    }

    /// The next bytes of the stream.
    pub(super) fn on_bytes(&mut self, chunks: &[Bytes], now: Instant, out: &mut Events) {
        for bytes in chunks {
            self.feed.push(bytes);
        }
        if let Phase::Streaming(stream) = &mut self.phase {
            stream.heard_at = now;
        }
        self.advance(now, out);
    }

    /// The stream is over, or could not be opened.
    pub(super) fn on_closed(&mut self, end: BodyEnd, now: Instant) {
        if let Phase::Streaming(stream) | Phase::Basing { stream, .. } = &self.phase {
            if self.feed.count() > stream.count {
                self.retry = Retry::default();
            } else if now - stream.opened_at >= self.longest_silence() {
                self.retry.was_silent();
            }
            let end = self.understood(end);
            return self.look_out(end, now);
        }
        self.look_out(end, now);
    }

    /// The thread's state, as it was asked for; `None` without one, and where it was not to be had.
    pub(super) fn on_state(&mut self, state: Option<&str>, now: Instant, out: &mut Events) {
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Basing { stream, why } => {
                self.feed.base(state.unwrap_or("{}"), out);
                self.phase = Phase::Streaming(Streaming { heard_at: now, ..stream });
                match why {
                    Base::Lacking => self.advance(now, out),
                    Base::Nothing => self.caught_up(),
                    Base::Joined => {
                        self.open(now);
                        if self.record.as_ref().is_some_and(|record| !record.is_resumable) {
                            self.caught_up();
                        }
                    }
                }
            }
            Phase::Recording => {
                if let Some(state) = state {
                    self.feed.checkpoint(state, out);
                    self.caught_up();
                }
                self.phase = Phase::Pausing { until: now + STATUS_INTERVAL };
            }
            other @ (Phase::Opening
            | Phase::Streaming(_)
            | Phase::Asking
            | Phase::Pausing { .. }
            | Phase::Over) => self.phase = other,
        }
    }

    /// The record of a run that is not joined, or why there is none.
    pub(super) fn on_record(&mut self, record: Result<RunRecord, BodyEnd>, now: Instant) {
        match record {
            Ok(record) if record.status.is_live() => {
                self.retry = Retry::default();
                if record.status == RunStatus::Running {
                    self.phase = Phase::Recording;
                    self.action = Some(Action::Ask(Question::State));
                } else {
                    self.phase = Phase::Pausing { until: now + STATUS_INTERVAL };
                }
            }
            Ok(_) => self.look_out(BodyEnd::Clean, now),
            Err(end) => self.look_out(end, now),
        }
    }

    /// What is known of the run's end.
    pub(super) fn on_outlook(&mut self, outlook: Outlook, now: Instant) {
        match outlook {
            Outlook::Over(ending) => self.finish(End::Ended(ending)),
            Outlook::Live => {
                self.retry.heard();
                self.lose_sight("the run goes on".to_owned(), now);
            }
            Outlook::Unknown(why) => self.lose_sight(why, now),
        }
    }

    /// It is so late, if something was due by then.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        match self.phase {
            Phase::Pausing { until } if now >= until => {
                if self.source == Source::Record {
                    self.read_record();
                } else if self.may_say_more() {
                    self.join(Some(self.rejoin));
                } else {
                    self.look_out(BodyEnd::Clean, now);
                }
            }
            Phase::Streaming(stream) => {
                if stream.quiet_at.is_some_and(|at| now >= at) {
                    self.fall_quiet(now);
                } else if now >= stream.heard_at + self.longest_silence() {
                    self.rejoin = Rejoin::Silent;
                    let seconds = self.longest_silence().as_secs();
                    self.on_closed(BodyEnd::Cut(format!("silent for {seconds} s")), now);
                }
            }
            Phase::Pausing { .. }
            | Phase::Opening
            | Phase::Basing { .. }
            | Phase::Asking
            | Phase::Recording
            | Phase::Over => {}
        }
    }

    /// Tells the end. No more than `detail` is told of why a run failed.
    pub(super) fn end(&mut self, end: End, detail: ErrorDetail, out: &mut Events) {
        self.phase = Phase::Over;
        let Ending { state, kept, end } = match end {
            End::Ended(ending) => ending,
            End::OutOfSight(why) => {
                let message = match self.feed.seen().error.map(|error| error.redacted(detail)) {
                    Some(RunError { code, message, .. }) => format!(
                        "the run failed ({code}: {message}), and is out of sight since: {why}"
                    ),
                    None => {
                        format!("the run is out of sight: {why}; it may go on in LangGraph")
                    }
                };
                StreamEnd::Lost { loss: Loss::Unavailable, message }.into()
            }
        };
        let own = match state {
            Some(State::OfRun(state)) => Some(state),
            Some(State::OfThread(state)) => {
                self.feed.untouched(&state, out);
                None
            }
            None => None,
        };
        self.feed.keep(&kept);
        self.feed.end(own.as_deref(), end, out);
        out.tell_failure(detail);
    }

    /// Reads the bytes that have come.
    fn advance(&mut self, now: Instant, out: &mut Events) {
        match self.feed.advance(out) {
            Ok(Progress::Done) => self.heard(now),
            Ok(Progress::BaseWanted) => self.base(Base::Lacking),
            Ok(Progress::RejoinWanted) => {
                self.rejoin = Rejoin::Doubtful;
                self.on_closed(BodyEnd::Cut("the stream may repeat itself".to_owned()), now);
            }
            Err(error) => self.on_closed(BodyEnd::Unreadable(error.to_string()), now),
        }
    }

    /// Something was heard, and all of it was read.
    fn heard(&mut self, now: Instant) {
        let Phase::Streaming(stream) = &mut self.phase else { return };
        if now - stream.opened_at > PROVEN {
            self.retry.heard();
        }
        // A sign of life is no part of a replay.
        if stream.quiet_at.is_some() && self.feed.has_begun() {
            let is_over = self.feed.is_history_over();
            let (pause, longest) = match is_over {
                None => (QUIET, CATCH_UP),
                Some(_) => (TIMED_QUIET, TIMED_CATCH_UP),
            };
            if is_over == Some(true) || now >= stream.opened_at + longest {
                self.caught_up();
            } else {
                stream.quiet_at = Some(now + pause);
            }
        }
    }

    /// A replay is silent: the run's readers can be told what there is, unless the run has yet to
    /// have its turn. Who waits for that was told what stands before it.
    fn fall_quiet(&mut self, now: Instant) {
        if self.feed.has_begun() {
            self.caught_up();
        } else if self.record.as_ref().is_some_and(|run| run.status == RunStatus::Pending) {
            if let Phase::Streaming(stream) = &mut self.phase {
                stream.quiet_at = Some(now + CATCH_UP);
            }
        } else {
            self.base(Base::Nothing);
        }
    }

    fn caught_up(&mut self) {
        self.past = Past::Replayed;
        if let Phase::Streaming(stream) = &mut self.phase {
            stream.quiet_at = None;
        }
    }

    fn open(&mut self, now: Instant) {
        self.rejoin = Rejoin::Cut;
        // Of a run that is over its end tells that all was replayed.
        let is_live = self.record.as_ref().is_none_or(|record| record.status.is_live());
        let is_replayed = is_live && self.past == Past::Replaying;
        self.phase = Phase::Streaming(Streaming {
            opened_at: now,
            heard_at: now,
            quiet_at: is_replayed.then(|| now + CATCH_UP),
            count: self.feed.count(),
        });
    }

    fn base(&mut self, why: Base) {
        if let Phase::Streaming(stream) = self.phase {
            self.phase = Phase::Basing { stream, why };
            self.action = Some(Action::Ask(Question::State));
        }
    }

    fn join(&mut self, again: Option<Rejoin>) {
        let Some(run_id) = self.feed.run_id().map(str::to_owned) else {
            // Nobody can ask for a stream without a name.
            return self.ask(BodyEnd::Clean);
        };
        self.phase = Phase::Opening;
        self.rejoin = Rejoin::Cut;
        let cursor = self.feed.rejoin();
        self.action = Some(Action::Ask(Question::Stream { run_id, cursor, again }));
    }

    fn read_record(&mut self) {
        if let Some(record) = &self.record {
            self.phase = Phase::Recording;
            let run_id = record.id.clone();
            self.action = Some(Action::Ask(Question::Record { run_id }));
        }
    }

    fn ask(&mut self, end: BodyEnd) {
        self.phase = Phase::Asking;
        let seen = self.feed.seen().into();
        self.action = Some(Action::Ask(Question::Outlook { seen, end }));
    }

    /// The stream has ended so: it is joined again, or somebody is asked what that means.
    fn look_out(&mut self, end: BodyEnd, now: Instant) {
        match end {
            // A join brings the rest, also of a run that is over by now.
            BodyEnd::Cut(ref why) if self.retry.is_young() && self.may_say_more() => {
                let why = why.clone();
                self.lose_sight(why, now);
            }
            BodyEnd::Clean | BodyEnd::Cut(_) | BodyEnd::Refused | BodyEnd::Unreadable(_) => {
                self.ask(end);
            }
        }
    }

    fn lose_sight(&mut self, why: String, now: Instant) {
        let run_id = self.feed.run_id();
        tracing::debug!(run_id, why, "run out of sight");
        if self.retry.is_over(now) {
            return self.finish(End::OutOfSight(why));
        }
        let mut pause = self.retry.next_pause();
        if self.source == Source::Record {
            pause = pause.max(STATUS_INTERVAL);
        }
        self.phase = Phase::Pausing { until: now + pause };
    }

    fn finish(&mut self, end: End) {
        self.phase = Phase::Over;
        self.action = Some(Action::End(end));
    }

    /// What it means that a body ended so, with what was read of it.
    fn understood(&mut self, end: BodyEnd) -> BodyEnd {
        match (end, self.feed.finish()) {
            (BodyEnd::Clean, sse::Ending::Partial { .. }) => {
                BodyEnd::Cut("the stream ends inside an event".to_owned())
            }
            (BodyEnd::Clean, sse::Ending::Clean) => {
                self.rejoin = Rejoin::Ended;
                BodyEnd::Clean
            }
            (end @ BodyEnd::Unreadable(_), _) => {
                self.rejoin = Rejoin::Unreadable;
                end
            }
            (end @ (BodyEnd::Cut(_) | BodyEnd::Refused), _) => end,
        }
    }

    fn longest_silence(&self) -> Duration {
        match self.server {
            Some(ServerKind::Python) => SILENCE,
            Some(ServerKind::JavaScript) | None => SILENCE_WITHOUT_SIGNS,
        }
    }

    /// Whether the run can be asked for more of its stream. Behind a failure there is none.
    fn may_say_more(&self) -> bool {
        let seen = self.feed.seen();
        seen.run_id.is_some() && seen.error.is_none()
    }
}

// === impl Source ===

impl Source {
    /// How a live run of others is to be read.
    pub(super) fn of(record: &RunRecord, server: Option<ServerKind>) -> Self {
        if record.is_resumable || server == Some(ServerKind::Python) {
            Self::Stream
        } else {
            Self::Record
        }
    }

    /// The source to read a run from, for a client that has the run up to an event, or has nothing
    /// of it. The stream of a run that is over is replayed only if the client lacks a part of it.
    /// Otherwise the run's record and the thread's state are enough.
    pub(super) fn after(
        record: &RunRecord,
        server: Option<ServerKind>,
        event: Option<&EventId>,
    ) -> Self {
        let wants_rest = event.is_some_and(|event| !event.is_terminal());
        if record.status.is_live() {
            Self::of(record, server)
        } else if record.is_resumable && wants_rest {
            Self::Stream
        } else {
            Self::Record
        }
    }
}

#[cfg(test)]
mod tests;
