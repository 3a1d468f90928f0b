//! The task of one run: reads the upstream's bytes into the run's books until the run is over.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::ending::{self, BodyEnd, Ending};
use super::{GATEWAY_SHUTDOWN, Run, Shared};
use crate::run::{Outcome, RunEvent, StreamEnd};
use crate::sse;
use crate::upstream::{Body, Client};

/// Drives one run.
pub(super) struct Driver {
    upstream: Client,
    run: Arc<Run>,
    bell: Arc<watch::Sender<()>>,
    shared: Arc<Shared>,
    /// The id under which the run is listed.
    listed: Option<String>,
}

/// Why the reading stopped.
enum Stop {
    Body(BodyEnd),
    /// The last reader has left.
    Unread,
    Shutdown,
}

// === impl Driver ===

impl Driver {
    pub(super) fn new(
        upstream: Client,
        run: Arc<Run>,
        bell: Arc<watch::Sender<()>>,
        shared: Arc<Shared>,
    ) -> Self {
        let mut driver = Self { upstream, run, bell, shared, listed: None };
        driver.list();
        driver
    }

    /// Reads the run to its end.
    pub(super) async fn drive(mut self, body: Body) {
        let shutdown = self.shared.shutdown.clone();
        let stop = match self.read(body, &shutdown).await {
            // The connection is of no more use, and the record may take a while.
            Stop::Body(end) => self.ask(end, &shutdown).await,
            stop @ (Stop::Unread | Stop::Shutdown) => Err(stop),
        };
        match stop {
            Ok(Ending { state, end }) => self.end(state.as_deref(), end),
            Err(Stop::Shutdown) => {
                let message = "the gateway is shutting down; the run goes on in LangGraph";
                let code = GATEWAY_SHUTDOWN;
                self.end(None, StreamEnd::Lost { code, message: message.to_owned() });
            }
            Err(Stop::Unread | Stop::Body(_)) => {
                tracing::debug!(thread_id = self.run.thread_id, "nobody reads the run any more");
            }
        }
    }

    /// Reads the body until there is no more reason to.
    async fn read(&mut self, mut body: Body, shutdown: &CancellationToken) -> Stop {
        let end = loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return Stop::Shutdown,
                () = self.bell.closed() => if self.is_unread() { return Stop::Unread },
                chunk = body.chunk() => match chunk {
                    Ok(Some(bytes)) => if let Err(error) = self.push(&bytes) {
                        break BodyEnd::Cut(error.to_string());
                    },
                    Ok(None) => break BodyEnd::Clean,
                    Err(error) => break BodyEnd::Cut(error.to_string()),
                },
            }
        };
        let ended_inside = self.run.books().feed.finish();
        Stop::Body(match (end, ended_inside) {
            (BodyEnd::Clean, sse::Ending::Partial { .. }) => {
                BodyEnd::Cut("the stream ends inside an event".to_owned())
            }
            (end, _) => end,
        })
    }

    /// The body is over: the run's record tells what that means.
    async fn ask(&self, end: BodyEnd, shutdown: &CancellationToken) -> Result<Ending, Stop> {
        let seen = self.run.books().feed.seen();
        tokio::select! {
            biased;
            () = shutdown.cancelled() => Err(Stop::Shutdown),
            ending = ending::ask(&self.upstream, &self.run.thread_id, &seen, end) => Ok(ending),
        }
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), sse::DecodeError> {
        let mut events = Vec::new();
        let mut books = self.run.books();
        let pushed = books.feed.push(bytes, &mut events);
        if !events.is_empty() {
            books.write(events);
            drop(books);
            self.bell.send_replace(());
            self.list();
        }
        pushed
    }

    fn end(&self, state: Option<&str>, end: StreamEnd) {
        let mut events = Vec::new();
        let mut books = self.run.books();
        books.feed.end(state, end, &mut events);
        books.write(events);
        let end = books.end.clone();
        drop(books);
        self.bell.send_replace(());
        if let Some(RunEvent::Ended { outcome, .. }) = end {
            log(&self.run.thread_id, self.listed.as_deref().unwrap_or_default(), &outcome);
        }
    }

    /// Lists the run, once its id is known.
    fn list(&mut self) {
        if self.listed.is_none() {
            self.listed = self.run.books().feed.run_id().map(str::to_owned);
            if let Some(id) = self.listed.clone() {
                self.shared.live.lock().insert(id, Arc::clone(&self.run));
            }
        }
    }

    /// Whether there is no reader left. If so the run is unlisted: none can come any more.
    fn is_unread(&mut self) -> bool {
        let mut live = self.shared.live.lock();
        if self.bell.receiver_count() > 0 {
            return false;
        }
        if let Some(id) = self.listed.take() {
            live.remove(&id);
        }
        true
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(id) = self.listed.take() {
            self.shared.live.lock().remove(&id);
        }
    }
}

/// One line per run.
fn log(thread_id: &str, run_id: &str, outcome: &Outcome) {
    match outcome {
        Outcome::Finished { .. } => tracing::info!(thread_id, run_id, "run finished"),
        Outcome::Interrupted(_) => tracing::info!(thread_id, run_id, "run interrupted"),
        Outcome::Cancelled => tracing::info!(thread_id, run_id, "run cancelled"),
        Outcome::Failed { code, message: reason } => {
            tracing::info!(thread_id, run_id, code, reason, "run failed");
        }
    }
}
