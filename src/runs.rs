//! Runs being read: from the upstream's bytes to run events, pulled by whoever reads.

mod capture;
mod ending;
mod feed;
mod fork;

use std::fmt;
use std::pin::Pin;

use bytes::Bytes;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

pub use capture::{Fault, translate};
pub use feed::Feed;
pub use fork::{ForkError, fork_point};

use crate::run::{Outcome, RunEvent, StreamEnd};
use crate::sse;
use crate::upstream::{self, Client, RunStream};
use ending::{BodyEnd, Ending};

/// The code of a run that we lost sight of.
pub const UPSTREAM_LOST: &str = "upstream_lost";

/// The code of a stream that ends because the gateway does.
pub const GATEWAY_SHUTDOWN: &str = "gateway_shutdown";

/// Reads one run.
///
/// The upstream's connection is read only while somebody asks for the next events, and is closed
/// when the reader is dropped. The run goes on without it.
pub struct RunReader {
    upstream: Client,
    thread_id: String,
    feed: Feed,
    /// The stream; `None` once it is over.
    body: Option<upstream::Body>,
    shutdown: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// What is to be done about the body.
enum Step {
    Push(Bytes),
    End(BodyEnd),
    Shutdown,
}

// === impl RunReader ===

impl RunReader {
    /// A reader of a run that was just started on a thread.
    ///
    /// Without a run id in the response the one in the stream counts; `client_run_id` takes its
    /// place in a stream that has none either. A cancelled `shutdown` ends the reading.
    pub fn new(
        upstream: Client,
        thread_id: &str,
        client_run_id: &str,
        stream: RunStream,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            upstream,
            thread_id: thread_id.to_owned(),
            feed: Feed::new(thread_id, stream.run_id.as_deref(), client_run_id),
            body: Some(stream.body),
            shutdown: Box::pin(shutdown.cancelled_owned()),
        }
    }

    /// The next events, never an empty list; `None` after the run's end was told.
    ///
    /// The first call returns the run's start at once where its id is known. Dropping the future
    /// loses events: drop the reader with it.
    pub async fn next(&mut self) -> Option<Vec<RunEvent>> {
        let mut events = Vec::new();
        self.feed.start(&mut events);
        while events.is_empty() {
            match self.step().await? {
                Step::Push(bytes) => {
                    if let Err(error) = self.feed.push(&bytes, &mut events) {
                        self.end(BodyEnd::Cut(error.to_string()), &mut events).await;
                    }
                }
                Step::End(end) => self.end(end, &mut events).await,
                Step::Shutdown => self.shut_down(&mut events),
            }
        }
        self.log(&events);
        Some(events)
    }

    async fn step(&mut self) -> Option<Step> {
        let body = self.body.as_mut()?;
        Some(tokio::select! {
            biased;
            () = &mut self.shutdown => Step::Shutdown,
            chunk = body.chunk() => match chunk {
                Ok(Some(bytes)) => Step::Push(bytes),
                Ok(None) => Step::End(BodyEnd::Clean),
                Err(error) => Step::End(BodyEnd::Cut(error.to_string())),
            },
        })
    }

    /// The body is over: the run's record tells what that means.
    async fn end(&mut self, end: BodyEnd, events: &mut Vec<RunEvent>) {
        // The connection is of no more use, and the record may take a while.
        self.body = None;
        let end = match (end, self.feed.finish()) {
            (BodyEnd::Clean, sse::Ending::Partial { .. }) => {
                BodyEnd::Cut("the stream ends inside an event".to_owned())
            }
            (end, _) => end,
        };
        let question = ending::ask(&self.upstream, &self.thread_id, &self.feed, end);
        let ending = tokio::select! {
            biased;
            () = &mut self.shutdown => return self.shut_down(events),
            ending = question => ending,
        };
        let Ending { state, end } = ending;
        self.feed.end(state.as_deref(), end, events);
    }

    fn shut_down(&mut self, events: &mut Vec<RunEvent>) {
        self.body = None;
        let message = "the gateway is shutting down; the run goes on in LangGraph".to_owned();
        self.feed.end(None, StreamEnd::Lost { code: GATEWAY_SHUTDOWN, message }, events);
    }

    /// One line per run.
    fn log(&self, events: &[RunEvent]) {
        let Some(RunEvent::Ended { outcome, .. }) = events.last() else { return };
        let thread_id = &*self.thread_id;
        let run_id = self.feed.run_id().unwrap_or_default();
        match outcome {
            Outcome::Finished { .. } => tracing::info!(thread_id, run_id, "run finished"),
            Outcome::Interrupted(_) => tracing::info!(thread_id, run_id, "run interrupted"),
            Outcome::Cancelled => tracing::info!(thread_id, run_id, "run cancelled"),
            Outcome::Failed { code, message: reason } => {
                tracing::info!(thread_id, run_id, code, reason, "run failed");
            }
        }
    }
}

impl fmt::Debug for RunReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { upstream: _, thread_id, feed, body: _, shutdown: _ } = self;
        f.debug_struct("RunReader")
            .field("thread_id", thread_id)
            .field("run_id", &feed.run_id())
            .finish_non_exhaustive()
    }
}
