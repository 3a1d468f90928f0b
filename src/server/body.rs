//! The body of a streamed response: pulls a run's events and writes them for one client.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::ReusableBoxFuture;

use super::rates::StreamSlot;
use super::wire::{Encoder, Outgoing, Wire};
use crate::metrics::{Metrics, Protocol, StreamEnd, StreamMeter};
use crate::runs::Batch;
use crate::threads::ThreadReader;
use threadway_translate::run::{Outcome, RunEvent};

/// How long a stream may be silent before it gives a sign of life: proxies cut at 30 to 60 s.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How long an `EventSource` is to wait before it reconnects.
pub const RETRY: Duration = Duration::from_secs(3);

/// The body of one stream.
///
/// It pulls: events are taken and written when the client's connection asks for more, so that a
/// slow client holds no more than its place in the run's log and what was encoded last. A frame of the wire is never cut.
pub struct RunBody {
    encoder: Encoder,
    reading: Reading,
    /// What is ready to be sent.
    out: Outgoing,
    /// When the bytes were read that the oldest of it was made of, if it tells what is live.
    read_at: Option<Instant>,
    silence: Pin<Box<Sleep>>,
    /// The caller's place, given back when the body is dropped.
    _slot: Option<StreamSlot>,
    /// What was read before is no news to this client, however soon it is told.
    began_at: Instant,
    meter: StreamMeter,
    /// How the stream ends that ends now.
    end: StreamEnd,
}

/// How far the reading is.
enum Reading {
    /// The next events are awaited.
    Next(ReusableBoxFuture<'static, Pulled>),
    /// The run's end was written.
    Over,
}

/// A reader, and what it has read.
type Pulled = (Box<ThreadReader>, Option<Batch>);

/// How a stream ends behind these events.
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
    /// A reader's events, as its client takes them.
    pub fn new(reader: impl Into<ThreadReader>, encoder: Encoder, metrics: &Metrics) -> Self {
        let protocol = match encoder.wire() {
            Wire::Sse => Protocol::AguiSse,
            Wire::Ndjson | Wire::ChunkLines => Protocol::AguiNdjson,
            Wire::Events | Wire::Chunks => Protocol::AguiWebSocket,
            Wire::Proto => Protocol::AguiProto,
        };
        Self::counted_as(protocol, reader, encoder, metrics)
    }

    /// The same, which is counted as a stream of this protocol.
    pub(super) fn counted_as(
        protocol: Protocol,
        reader: impl Into<ThreadReader>,
        encoder: Encoder,
        metrics: &Metrics,
    ) -> Self {
        let reader = Box::new(reader.into());
        let mut out = Outgoing::default();
        out.own().extend(encoder.wire().beginning(RETRY));
        Self {
            encoder,
            reading: Reading::Next(ReusableBoxFuture::new(next(reader))),
            out,
            read_at: None,
            began_at: Instant::now(),
            meter: metrics.stream(protocol),
            end: StreamEnd::BrokenOff,
            silence: Box::pin(tokio::time::sleep(KEEP_ALIVE)),
            _slot: None,
        }
    }

    /// The same, which holds its caller's place for a stream.
    pub(super) fn holding(self, slot: StreamSlot) -> Self {
        Self { _slot: Some(slot), ..self }
    }

    /// Pulls events until some make bytes, or the run is over.
    fn poll_events(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Reading::Next(future) = &mut self.reading {
            let (reader, events) = ready!(future.poll(cx));
            let Some(events) = events else {
                self.meter.ended(self.end);
                self.reading = Reading::Over;
                break;
            };
            future.set(next(reader));
            self.encoder.encode(&events, &mut self.out);
            self.meter.encoded(self.encoder.take_encoded());
            self.end = end_of(&events);
            let is_live = |read_at: &Instant| *read_at >= self.began_at;
            self.read_at = self.read_at.or_else(|| events.read_at().filter(is_live));
            if !self.out.is_empty() {
                break;
            }
        }
        Poll::Ready(())
    }

    fn poll_silence(&mut self, cx: &mut Context<'_>) {
        while self.silence.as_mut().poll(cx).is_ready() {
            self.encoder.wire().keep_alive(self.out.own());
            self.silence.as_mut().reset(Instant::now() + KEEP_ALIVE);
        }
    }
}

impl Body for RunBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        // What is ready goes first: what comes is taken when the connection asks for more.
        let is_waiting = this.out.is_empty() && this.poll_events(cx).is_pending();
        if is_waiting {
            this.poll_silence(cx);
        }
        match (this.out.next(), is_waiting) {
            (Some(bytes), _) => {
                let now = Instant::now();
                this.silence.as_mut().reset(now + KEEP_ALIVE);
                this.meter.sent(bytes.len(), this.read_at.take().map(|read_at| now - read_at));
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            (None, true) => Poll::Pending,
            (None, false) => Poll::Ready(None),
        }
    }
}

impl fmt::Debug for RunBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunBody").field("encoder", &self.encoder).finish_non_exhaustive()
    }
}
