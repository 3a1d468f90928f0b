//! The body of a streamed response: pulls a run's events and writes them for one client.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::ReusableBoxFuture;

use super::encoder::Encoder;
use super::outgoing::Outgoing;
use super::wire::Wire;
use crate::metrics::{Metrics, Protocol, StreamEnd, StreamMeter};
use crate::offload::offload;
use crate::runs::Batch;
use crate::server::limits::rates::StreamSlot;
use crate::threads::ThreadReader;
use threadway_translate::run::{Outcome, RunEvent};

/// How long a stream may be silent before a keep-alive is sent. Proxies cut silent connections
/// after 30 to 60 s.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

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
    /// When the gateway read the upstream's bytes that the oldest of `out` was made of. `None` for
    /// bytes from before this stream began, which say nothing about latency.
    read_at: Option<Instant>,
    silence: Pin<Box<Sleep>>,
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
    pub(super) fn new(reader: ThreadReader, encoder: Encoder, metrics: &Metrics) -> Self {
        let protocol = match encoder.wire() {
            Wire::Sse => Protocol::AguiSse,
            Wire::Ndjson | Wire::ChunkLines => Protocol::AguiNdjson,
            Wire::Events | Wire::Chunks => Protocol::AguiWebSocket,
            Wire::Proto => Protocol::AguiProto,
        };
        Self::counted_as(protocol, reader, encoder, metrics)
    }

    /// Counted as a stream of `protocol`.
    pub(super) fn counted_as(
        protocol: Protocol,
        reader: ThreadReader,
        encoder: Encoder,
        metrics: &Metrics,
    ) -> Self {
        let reader = Box::new(reader);
        let mut out = Outgoing::default();
        out.own().extend(encoder.wire().beginning());
        Self {
            encoder,
            state: PullState::Next(ReusableBoxFuture::new(next(reader))),
            out,
            read_at: None,
            began_at: Instant::now(),
            meter: metrics.stream(protocol),
            end: StreamEnd::BrokenOff,
            silence: Box::pin(tokio::time::sleep(KEEP_ALIVE)),
            _slot: None,
        }
    }

    /// Holds the caller's slot until the stream ends.
    pub(super) fn holding(self, slot: StreamSlot) -> Self {
        Self { _slot: Some(slot), ..self }
    }

    /// Reads and encodes events until there are bytes to send, or the run is over.
    fn poll_events(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let PullState::Next(future) = &mut self.state {
            let (reader, events) = ready!(future.poll(cx));
            let Some(events) = events else {
                self.meter.ended(self.end);
                self.state = PullState::Over;
                break;
            };
            future.set(next(reader));
            offload(events.weight(), || self.encoder.encode(&events, &mut self.out));
            self.meter.encoded(self.encoder.take_encoded_bytes());
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
        // Bytes that are ready go first. New events are read when the connection asks for more.
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
