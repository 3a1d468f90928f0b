//! The body of a streamed response: pulls a run's events and writes them for one client.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::time::Instant;
use tokio_util::sync::ReusableBoxFuture;

use super::encoder::Encoder;
use super::outgoing::Outgoing;
use super::retry::RetryJitter;
use super::silence::Silence;
use super::unread::{TRACKED_FROM, UnreadAnswers};
use super::wire::Wire;
use crate::metrics::{Full, Metrics, Protocol, StreamEnd, StreamMeter};
use crate::offload::offload;
use crate::runs::Batch;
use crate::server::limits::rates::StreamSlot;
use crate::threads::ThreadReader;
use threadway_translate::run::{Outcome, RunEvent};

/// The body of one stream.
///
/// Events are read and encoded when the client's connection asks for more. So a slow client holds
/// no more than its position in the run's log and the bytes that were encoded last. A frame of the
/// wire is never cut.
pub(in crate::server) struct RunBody {
    encoder: Encoder,
    state: PullState,
    /// Bytes that are ready to be sent.
    out: Outgoing,
    /// Counts the bytes until they are taken.
    answers: UnreadAnswers,
    /// When the gateway read the upstream's bytes that the oldest of `out` was made of. `None` for
    /// bytes from before this stream began, which say nothing about latency.
    read_at: Option<Instant>,
    silence: Silence,
    /// The caller's slot, released when the body is dropped.
    _slot: Option<StreamSlot>,
    began_at: Instant,
    meter: StreamMeter,
    /// How the stream ends if it ends after the events so far.
    end: StreamEnd,
}

enum PullState {
    /// Waits for the next events.
    Next(ReusableBoxFuture<'static, Pulled>),
    /// The run's end was encoded.
    Over,
}

/// A reader, and the events that it has read.
type Pulled = (Box<ThreadReader>, Option<Batch>);

/// How a stream ends if these are its last events.
fn end_of(events: &[RunEvent]) -> StreamEnd {
    match events.last() {
        Some(RunEvent::Ended { outcome, .. }) => match outcome {
            Outcome::Finished { .. } | Outcome::Idle { .. } => StreamEnd::Finished,
            Outcome::Interrupted(_) => StreamEnd::Interrupted,
            Outcome::Cancelled => StreamEnd::Cancelled,
            Outcome::Failed(_) => StreamEnd::Failed,
        },
        _ => StreamEnd::BrokenOff,
    }
}

async fn next(mut reader: Box<ThreadReader>) -> Pulled {
    let events = reader.next().await;
    (reader, events)
}

// === impl RunBody ===

impl RunBody {
    /// Counted as a stream of the encoder's wire.
    pub(super) fn new(
        reader: ThreadReader,
        encoder: Encoder,
        answers: UnreadAnswers,
        metrics: &Metrics,
    ) -> Self {
        let protocol = match encoder.wire() {
            Wire::Sse => Protocol::Sse,
            Wire::Ndjson | Wire::ChunkLines => Protocol::Ndjson,
            Wire::Events | Wire::Chunks => Protocol::WebSocket,
            Wire::Proto => Protocol::Proto,
        };
        Self::counted_as(protocol, reader, encoder, answers, metrics)
    }

    /// Counted as a stream of `protocol`.
    pub(super) fn counted_as(
        protocol: Protocol,
        reader: ThreadReader,
        encoder: Encoder,
        answers: UnreadAnswers,
        metrics: &Metrics,
    ) -> Self {
        let reader = Box::new(reader);
        let meter = metrics.stream(protocol);
        let mut out = Outgoing::default();
        let silence = Silence::begin(encoder.wire(), metrics, &mut out);
        Self {
            encoder,
            state: PullState::Next(ReusableBoxFuture::new(next(reader))),
            out,
            answers,
            read_at: None,
            began_at: Instant::now(),
            meter,
            end: StreamEnd::BrokenOff,
            silence,
            _slot: None,
        }
    }

    /// Holds the caller's slot until the stream ends.
    pub(super) fn holding(self, slot: StreamSlot) -> Self {
        Self { _slot: Some(slot), ..self }
    }

    /// Encodes the events that are ready, until there is a large part. A later error cuts the
    /// connection, and hyper then drops what it has not sent, which may be the head of the response.
    pub(super) async fn begin(&mut self) -> Result<(), Full> {
        poll_fn(|cx| {
            while self.out.len() < TRACKED_FROM && matches!(self.state, PullState::Next(_)) {
                match self.poll_events(cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(full)) => return Poll::Ready(Err(full)),
                    Poll::Pending => break,
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// Reads and encodes events until there are bytes to send, or the run is over.
    ///
    /// After a run's end, the reader is asked whether more follows. So it is dropped with all that
    /// it holds, and does not wait for a client that does not read.
    fn poll_events(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Full>> {
        while let PullState::Next(future) = &mut self.state {
            let (reader, events) = ready!(future.poll(cx));
            let Some(events) = events else {
                self.state = PullState::Over;
                if self.end == StreamEnd::BrokenOff {
                    let is_due = RetryJitter::is_exceeded_by;
                    self.silence.renew_retry(is_due, &self.meter, &mut self.out);
                }
                break;
            };
            future.set(next(reader));
            let held = offload(events.memory_bytes(), || {
                self.encoder.encode(&events, &mut self.out);
                self.out.hold(&self.answers)
            });
            if let Err(full) = held {
                self.state = PullState::Over;
                self.end = StreamEnd::BrokenOff;
                return Poll::Ready(Err(full));
            }
            self.meter.encoded(self.encoder.take_encoded_bytes());
            self.end = end_of(&events);
            let is_live = |read_at: &Instant| *read_at >= self.began_at;
            self.read_at = self.read_at.or_else(|| events.read_at().filter(is_live));
            if !self.out.is_empty() && self.end == StreamEnd::BrokenOff {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Body for RunBody {
    type Data = Bytes;
    type Error = Full;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Full>>> {
        let this = &mut *self;
        // Bytes that are ready go first. New events are read when the connection asks for more.
        let mut is_waiting = false;
        if this.out.is_empty() {
            match this.poll_events(cx) {
                Poll::Ready(Ok(())) => {}
                // The client learns that the end is missing, because the connection is cut.
                Poll::Ready(Err(full)) => return Poll::Ready(Some(Err(full))),
                Poll::Pending => is_waiting = this.out.is_empty(),
            }
        }
        if is_waiting {
            this.silence.poll(cx, &this.meter, &mut this.out);
        }
        match (this.out.next(), is_waiting) {
            (Some(bytes), _) => {
                let now = Instant::now();
                this.silence.restart(now);
                this.meter.sent(bytes.len(), this.read_at.take().map(|read_at| now - read_at));
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            (None, true) => Poll::Pending,
            (None, false) => {
                this.meter.ended(this.end);
                Poll::Ready(None)
            }
        }
    }
}
