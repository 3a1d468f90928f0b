//! How far the present request of a connection is read.
//!
//! hyper has one timeout for a head, which begins when it waits for one. [`Inbound`] is the clock
//! of that timeout: once the first byte of a head has come, the client has the whole time for it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{self, Duration};

use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::rt::{Sleep, Timer};
use tokio::time::Instant;

use crate::sync::Mutex;

/// How far the present request of a connection is read. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Inbound(Arc<Mutex<Progress>>);

#[derive(Clone, Copy, Debug, Default)]
enum Progress {
    /// No byte of the next head has come.
    #[default]
    Idle,
    /// A part of a head, whose first byte came at this time.
    Head(Instant),
    /// The head, and not all of the body.
    Body,
    Whole,
}

/// A body that reports its end.
#[derive(Debug)]
pub(super) struct RequestBody {
    body: Incoming,
    inbound: Inbound,
}

/// The timeout of a head.
struct HeadTimeout {
    inbound: Inbound,
    timeout: Duration,
    sleep: Pin<Box<tokio::time::Sleep>>,
}

// === impl Inbound ===

impl Inbound {
    /// Bytes have come.
    pub(super) fn arrived(&self) {
        let mut progress = self.0.lock();
        if let Progress::Idle = *progress {
            *progress = Progress::Head(Instant::now());
        }
    }

    /// Reports when the body of a request ends, whose head has come.
    pub(super) fn body(&self, body: Incoming) -> RequestBody {
        let progress = if body.is_end_stream() { Progress::Whole } else { Progress::Body };
        *self.0.lock() = progress;
        RequestBody { body, inbound: self.clone() }
    }

    /// Whether the client may still be sending a request.
    pub(super) fn is_unread(&self) -> bool {
        matches!(*self.0.lock(), Progress::Head(_) | Progress::Body)
    }
}

impl Timer for Inbound {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        *self.0.lock() = Progress::Idle;
        let (inbound, sleep) = (self.clone(), Box::pin(tokio::time::sleep(duration)));
        Box::pin(HeadTimeout { inbound, timeout: duration, sleep })
    }

    fn sleep_until(&self, deadline: time::Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(deadline.saturating_duration_since(self.now()))
    }

    fn now(&self) -> time::Instant {
        Instant::now().into_std()
    }
}

// === impl HeadTimeout ===

impl Future for HeadTimeout {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.sleep.as_mut().poll(cx));
            let Progress::Head(since) = *self.inbound.0.lock() else { return Poll::Ready(()) };
            let deadline = since + self.timeout;
            if deadline <= self.sleep.deadline() {
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(deadline);
        }
    }
}

impl Sleep for HeadTimeout {}

// === impl RequestBody ===

impl Body for RequestBody {
    type Data = <Incoming as Body>::Data;
    type Error = <Incoming as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            *self.inbound.0.lock() = Progress::Whole;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
