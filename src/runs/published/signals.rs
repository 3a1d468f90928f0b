//! What the driver of a run and its readers notify each other of.
//!
//! ```text
//!  readers -- wants a keyframe or an audience, stops, leaves --> driver
//!  readers <----------------- more is published ---------------- driver
//! ```
//! A token costs its run two wake-ups, so both directions are cheap: the driver has one waker for all
//! that callers ask of it, and readers share one list.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::Broadcast;

/// What the driver of a run and its readers notify each other of.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// Notified when more is published, and when the driver is gone.
    published: Notify,
    /// Notified when the driver is gone.
    ended: Notify,
    is_over: AtomicBool,
    readers: AtomicUsize,
    /// What the driver has not taken yet, as bits.
    asked: AtomicU8,
    /// The waker of the driver, registered by its [`AskedReceiver`].
    driver: AtomicWaker,
    has_receiver: AtomicBool,
}

/// Takes what callers ask of a run's driver. A run has one driver, and so one receiver: a second one
/// would take what the first one is asked, and be woken in its place.
#[derive(Debug)]
pub(in crate::runs) struct AskedReceiver(Arc<Broadcast>);

/// What callers have asked of a driver since it looked last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::runs) struct Asked(u8);

/// Counts as a reader of the run until it is dropped.
#[derive(Debug)]
pub(crate) struct Subscription(Arc<Broadcast>);

// === impl Signals ===

impl Signals {
    /// Signals of something that no driver reads.
    pub(super) fn without_driver() -> Self {
        Self { is_over: true.into(), ..Self::default() }
    }

    /// Asks something of the driver.
    pub(super) fn ask(&self, what: Asked) {
        self.asked.fetch_or(what.0, Ordering::AcqRel);
        self.driver.wake();
    }

    fn poll_asked(&self, cx: &mut Context<'_>) -> Poll<Asked> {
        // Registered before the look, so that what is asked in between wakes the driver.
        self.driver.register(cx.waker());
        match self.asked.swap(0, Ordering::AcqRel) {
            0 => Poll::Pending,
            asked => Poll::Ready(Asked(asked)),
        }
    }

    /// More is published.
    pub(super) fn publish(&self) {
        self.published.notify_waiters();
    }

    /// The driver is gone.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.ended.notify_waiters();
        self.published.notify_waiters();
    }

    /// Completes when something is published after this call, or the driver is gone.
    pub(super) fn published(&self) -> Notified<'_> {
        self.published.notified()
    }

    pub(super) fn is_driven(&self) -> bool {
        !self.is_over.load(Ordering::Acquire)
    }

    pub(super) fn readers(&self) -> usize {
        self.readers.load(Ordering::Acquire)
    }
}

// === impl AskedReceiver ===

impl AskedReceiver {
    /// The only one of this run.
    ///
    /// # Panics
    ///
    /// In debug builds, if the run has one.
    pub(super) fn new(broadcast: &Arc<Broadcast>) -> Self {
        let had_one = broadcast.signals.has_receiver.swap(true, Ordering::Relaxed);
        debug_assert!(!had_one, "a run has one driver");
        Self(Arc::clone(broadcast))
    }

    /// Waits until callers ask something. Cancel safe.
    pub(in crate::runs) async fn recv(&mut self) -> Asked {
        std::future::poll_fn(|cx| self.0.signals.poll_asked(cx)).await
    }
}

// === impl Asked ===

impl Asked {
    /// A caller wants an audience or a keyframe.
    pub(super) const WANTS: Self = Self(1);
    /// A client stops the run through this gateway.
    pub(super) const STOPS: Self = Self(1 << 1);
    /// The last reader has left.
    pub(super) const LEAVES: Self = Self(1 << 2);

    pub(in crate::runs) fn wants(self) -> bool {
        self.has(Self::WANTS)
    }

    pub(in crate::runs) fn stops(self) -> bool {
        self.has(Self::STOPS)
    }

    pub(in crate::runs) fn leaves(self) -> bool {
        self.has(Self::LEAVES)
    }

    fn has(self, what: Self) -> bool {
        self.0 & what.0 != 0
    }
}

// === impl Subscription ===

impl Subscription {
    pub(super) fn new(broadcast: &Arc<Broadcast>) -> Self {
        broadcast.signals.readers.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(broadcast))
    }

    /// Waits until the driver is gone. Cancel safe.
    pub(crate) async fn ended(&self) {
        let Signals { ended, .. } = &self.0.signals;
        let ended = ended.notified();
        if self.0.is_driven() {
            ended.await;
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let Self(broadcast) = self;
        if broadcast.signals.readers.fetch_sub(1, Ordering::AcqRel) == 1 {
            broadcast.signals.ask(Asked::LEAVES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use threadway_translate::run::Rendering;

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a run has one driver")]
    fn a_second_driver_of_a_run_is_noticed() {
        let run = Broadcast::new("T", Rendering::default(), 0, Metrics::default());
        let run = Arc::new(run);
        let _first = run.asked();
        let _second = run.asked();
    }
}
