//! The transitions between the phases of a reading.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    Beats, CATCH_UP, DriverAction, PARTLESS, PARTLESS_BEFORE_END, PARTLESS_JOIN, PROVEN, Phase,
    QUIET, Reading, ReadingEnd, SILENCE, SILENCE_WITHOUT_HEARTBEATS, STATUS_INTERVAL, Source,
    StateReason, Streaming, TIMED_CATCH_UP, TIMED_QUIET, UpstreamRequest,
};
use crate::metrics::Rejoin;
use crate::runs::batch::Events;
use crate::runs::decoder::Progress;
use crate::runs::ending::BodyEnd;
use crate::runs::published::History;
use crate::runs::retry::EndReads;
use threadway_translate::langgraph::RunStatus;
use threadway_translate::sse;

impl Reading {
    /// Reads the buffered bytes.
    pub(super) fn advance(&mut self, now: Instant, out: &mut Events) {
        match self.decoder.advance(out) {
            Ok(Progress::Done) => self.on_progress(now),
            Ok(Progress::NeedsState) => self.read_state(StateReason::Lacking, now),
            Ok(Progress::NeedsRejoin) => {
                self.rejoin = Rejoin::Doubtful;
                self.on_closed(BodyEnd::Cut("the stream may repeat itself".to_owned()), now);
            }
            Ok(Progress::NeedsRecord) => {
                let run_id = self.decoder.run_id();
                tracing::info!(
                    run_id,
                    "the server sends no more parts of a run: its record is read"
                );
                self.source = Source::Record;
                self.read_record();
            }
            Err(error) => self.on_closed(BodyEnd::Unreadable(error.to_string()), now),
        }
    }

    /// Bytes came, and all of them were read.
    fn on_progress(&mut self, now: Instant) {
        let Phase::Streaming(stream) = &mut self.phase else { return };
        if now - stream.opened_at > PROVEN {
            self.retry.in_reach();
        }
        // A heartbeat is no part of a replay.
        if stream.quiet_at.is_some() && self.decoder.has_begun() {
            let is_over = self.decoder.is_history_over();
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

    /// A replay is silent, so the readers can be shown the run. A pending run has no replay: its
    /// readers are shown a preview until it starts.
    pub(super) fn on_quiet(&mut self, now: Instant) {
        if self.decoder.has_begun() {
            self.caught_up();
        } else if self.record.as_ref().is_some_and(|run| run.status == RunStatus::Pending) {
            if let Phase::Streaming(stream) = &mut self.phase {
                stream.quiet_at = Some(now + CATCH_UP);
            }
        } else {
            self.read_state(StateReason::EmptyReplay, now);
        }
    }

    /// The run's past was replayed.
    pub(super) fn caught_up(&mut self) {
        self.history = History::Replayed;
        if let Phase::Streaming(stream) = &mut self.phase {
            stream.quiet_at = None;
        }
    }

    pub(super) fn stream(&mut self, now: Instant) {
        self.rejoin = Rejoin::Cut;
        // The replay of a run that is over ends with the run's end.
        let is_live = self.record.as_ref().is_none_or(|record| record.status.is_live());
        let is_replayed = is_live && self.history == History::Replaying;
        let partless = match (self.is_joined, self.server.ends_streams) {
            (_, true) => PARTLESS_BEFORE_END,
            (true, false) => PARTLESS_JOIN,
            (false, false) => PARTLESS,
        };
        self.phase = Phase::Streaming(Streaming {
            opened_at: now,
            last_bytes_at: now,
            quiet_at: is_replayed.then(|| now + CATCH_UP),
            beats: Beats::None,
            partless_at: now + partless,
            count: self.decoder.count(),
        });
    }

    pub(super) fn read_state(&mut self, why: StateReason, now: Instant) {
        if let Phase::Streaming(stream) = self.phase {
            let reads = self.retry.state_reads(now);
            self.phase = Phase::ReadingState { stream, why, reads, again_at: None };
            self.action = Some(DriverAction::Ask(UpstreamRequest::State));
        }
    }

    pub(super) fn join(&mut self, again: Option<Rejoin>) {
        let Some(run_id) = self.decoder.run_id().map(str::to_owned) else {
            // A stream is requested by the run's id.
            return self.check_end(BodyEnd::Clean);
        };
        self.phase = Phase::Opening;
        self.is_joined = true;
        self.rejoin = Rejoin::Cut;
        let cursor = self.decoder.rejoin();
        self.action = Some(DriverAction::Ask(UpstreamRequest::Stream { run_id, cursor, again }));
    }

    /// Asks whether the run is over whose open stream brings heartbeats alone.
    pub(super) fn check_beat(&mut self, stream: Streaming, now: Instant) {
        if self.decoder.run_id().is_none() {
            // A run is asked about by its id.
            self.phase = Phase::Streaming(Streaming { partless_at: now + PARTLESS, ..stream });
            return;
        }
        self.phase = Phase::CheckingBeat { stream };
        let seen = self.decoder.summary().into();
        let end = BodyEnd::Cut("the stream has heartbeats alone".to_owned());
        self.action = Some(DriverAction::Ask(UpstreamRequest::EndStatus { seen, end }));
    }

    pub(super) fn read_record(&mut self) {
        let Some(run_id) = self.decoder.run_id().map(str::to_owned) else {
            // A record is requested by the run's id.
            return self.check_end(BodyEnd::Clean);
        };
        self.phase = Phase::Polling;
        self.action = Some(DriverAction::Ask(UpstreamRequest::Record { run_id }));
    }

    fn check_end(&mut self, end: BodyEnd) {
        let reads = EndReads::after(end.clone());
        self.phase = Phase::CheckingEnd { reads, again_at: None };
        let seen = self.decoder.summary().into();
        self.action = Some(DriverAction::Ask(UpstreamRequest::EndStatus { seen, end }));
    }

    /// The stream has ended. It is joined again, or the upstream is asked whether the run is over.
    pub(super) fn rejoin_or_check_end(&mut self, end: BodyEnd, now: Instant) {
        match end {
            // A join brings the rest, even if the run is over by now.
            BodyEnd::Cut(ref why) if self.retry.may_join() && self.may_stream_more() => {
                let why = why.clone();
                self.pause(why, now);
            }
            BodyEnd::Clean | BodyEnd::Cut(_) | BodyEnd::Refused | BodyEnd::Unreadable(_) => {
                self.check_end(end);
            }
        }
    }

    /// Waits for the next attempt, or gives up.
    pub(super) fn pause(&mut self, why: String, now: Instant) {
        let run_id = self.decoder.run_id();
        tracing::debug!(run_id, why, "the run is out of reach");
        if self.retry.is_over(now) {
            return self.finish(ReadingEnd::OutOfReach(why));
        }
        let mut pause = self.retry.next_pause();
        if self.source == Source::Record {
            pause = pause.max(STATUS_INTERVAL);
        }
        self.phase = Phase::Pausing { until: now + pause };
    }

    pub(super) fn finish(&mut self, end: ReadingEnd) {
        self.phase = Phase::Over;
        self.action = Some(DriverAction::End(end));
    }

    /// How the stream's body ended, considering the bytes that were read of it.
    pub(super) fn body_end(&mut self, end: BodyEnd) -> BodyEnd {
        match (end, self.decoder.finish()) {
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

    pub(super) fn longest_silence(&self) -> Duration {
        if self.server.has_heartbeats { SILENCE } else { SILENCE_WITHOUT_HEARTBEATS }
    }

    /// Whether the run's stream may have more parts. There are none after an error.
    pub(super) fn may_stream_more(&self) -> bool {
        let seen = self.decoder.summary();
        seen.run_id.is_some() && seen.error.is_none()
    }
}
