//! What a stream sends while it has no events: keep-alives, and a new `retry:`.

use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::outgoing::Outgoing;
use super::retry::RetryJitter;
use super::wire::Wire;
use crate::metrics::{Metrics, StreamMeter};

/// How long a stream may be silent before a keep-alive is sent. Proxies cut silent connections
/// after 30 to 60 s.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The silence of a stream since its last bytes.
pub(super) struct Silence {
    wire: Wire,
    timer: Pin<Box<Sleep>>,
    /// The spread that the client's `retry:` was taken from.
    spread: RetryJitter,
}

// === impl Silence ===

impl Silence {
    /// Writes the first bytes of a stream.
    pub(super) fn begin(wire: Wire, metrics: &Metrics, out: &mut Outgoing) -> Self {
        let spread = RetryJitter::of(metrics.sse_clients());
        out.own().extend(wire.beginning(spread));
        Self { wire, timer: Box::pin(tokio::time::sleep(KEEP_ALIVE)), spread }
    }

    /// Bytes are sent: another silence begins.
    pub(super) fn restart(&mut self, now: Instant) {
        self.timer.as_mut().reset(now + KEEP_ALIVE);
    }

    /// Writes a keep-alive if it is due.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, meter: &StreamMeter, out: &mut Outgoing) {
        while self.timer.as_mut().poll(cx).is_ready() {
            self.wire.keep_alive(out.own());
            self.renew_retry(RetryJitter::is_outdated_by, meter, out);
            self.restart(Instant::now());
        }
    }

    /// Writes a new `retry:` if the number of streams has changed enough for `is_due`.
    pub(super) fn renew_retry(
        &mut self,
        is_due: fn(RetryJitter, RetryJitter) -> bool,
        meter: &StreamMeter,
        out: &mut Outgoing,
    ) {
        let spread = RetryJitter::of(meter.sse_clients());
        if is_due(self.spread, spread) {
            self.spread = spread;
            self.wire.retry(spread, out.own());
        }
    }
}
