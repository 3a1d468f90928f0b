//! The body of a response that follows a run: its parts as they are emitted, or its result.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::Frame;
use tokio::sync::watch;
use tokio_util::sync::ReusableBoxFuture;

use super::Server;
use super::request::OnDisconnect;
use super::run::{Action, LogRead, Part, Run, Stop};
use super::wire::HEARTBEAT;

/// The time between keep-alives of a silent response, as in the Python server.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// Follows a run for one response.
///
/// A listener pulls. What its client does not read stays in the run's log, which is bounded.
pub(super) struct Listener {
    server: Arc<Server>,
    run: Arc<Run>,
    changed: watch::Receiver<()>,
    output: Output,
    on_disconnect: OnDisconnect,
}

/// What a listener sends.
#[derive(Debug)]
pub(super) enum Output {
    Parts(Cursor),
    /// The run's result, when the run has ended.
    Result,
    /// An empty object, when the run has ended.
    End,
    /// Everything was sent.
    Nothing,
}

/// Which parts of a run are sent.
#[derive(Debug)]
pub(super) struct Cursor {
    /// The next part, counted from the run's first.
    at: usize,
    /// The end of the log when the listener began. Parts before it are a replay.
    live: usize,
    /// Only parts after this id are replayed.
    after: Option<String>,
    /// Only parts with these names are sent.
    only: Option<Vec<String>>,
}

/// What a listener can send now.
enum Next {
    Bytes(Bytes),
    NotYet,
    End,
}

/// A listener as a response body.
struct ListenerBody(Option<ReusableBoxFuture<'static, (Box<Listener>, Option<Bytes>)>>);

async fn next(mut listener: Box<Listener>) -> (Box<Listener>, Option<Bytes>) {
    let bytes = listener.next().await;
    (listener, bytes)
}

// === impl Listener ===

impl Listener {
    pub(super) fn new(
        server: &Arc<Server>,
        run: Arc<Run>,
        output: Output,
        on_disconnect: OnDisconnect,
    ) -> Self {
        let changed = run.changes();
        Self { server: Arc::clone(server), run, changed, output, on_disconnect }
    }

    pub(super) fn body(self) -> Body {
        Body::new(ListenerBody(Some(ReusableBoxFuture::new(next(Box::new(self))))))
    }

    /// The next bytes; `None` at the end, and at shutdown.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            self.changed.mark_unchanged();
            match self.ready() {
                Next::Bytes(bytes) => return Some(bytes),
                Next::End => return None,
                Next::NotYet => {}
            }
            let changed = tokio::time::timeout(HEARTBEAT_INTERVAL, self.changed.changed());
            let read = tokio::select! {
                () = self.server.shutdown.cancelled() => return None,
                read = changed => read,
            };
            if read.is_err() {
                return Some(Bytes::from_static(match self.output {
                    Output::Parts(_) => HEARTBEAT,
                    Output::Result | Output::End | Output::Nothing => b"\n",
                }));
            }
        }
    }

    fn ready(&mut self) -> Next {
        let bytes = match &mut self.output {
            Output::Parts(cursor) => return cursor.next(&self.run),
            Output::Nothing => return Next::End,
            Output::Result | Output::End if !self.run.status().is_over() => return Next::NotYet,
            Output::Result => self.run.result().to_string(),
            Output::End => "{}".to_owned(),
        };
        self.output = Output::Nothing;
        Next::Bytes(Bytes::from(bytes))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.on_disconnect == OnDisconnect::Cancel && !self.run.status().is_over() {
            let reason = "client disconnected from the run stream (on_disconnect=cancel)";
            self.server.stop(&self.run, Stop { action: Action::Interrupt, reason });
        }
    }
}

// === impl Cursor ===

impl Cursor {
    /// All parts, for the client that started the run.
    pub(super) fn first() -> Self {
        Self { at: 0, live: 0, after: None, only: None }
    }

    /// The parts from now on, preceded by those after `last_event_id` if the run can be replayed.
    pub(super) fn join(run: &Run, last_event_id: Option<&str>, only: Option<Vec<String>>) -> Self {
        let live = run.log_end();
        match last_event_id.filter(|_| run.order.is_resumable) {
            Some(id) => Self { at: 0, live, after: Some(id.to_owned()), only },
            None => Self { at: live, live, after: None, only },
        }
    }

    fn next(&mut self, run: &Run) -> Next {
        loop {
            let (read, next) = run.read(self.at);
            self.at = next;
            match read {
                LogRead::Part(part) if self.is_sent(&part) => {
                    return Next::Bytes(Bytes::from(part.frame));
                }
                LogRead::Part(_) => {}
                LogRead::Pending => return Next::NotYet,
                LogRead::End => return Next::End,
            }
        }
    }

    fn is_sent(&self, part: &Part) -> bool {
        let is_wanted = match &self.only {
            Some(only) => only.iter().any(|name| name == part.event),
            None => true,
        };
        let is_replay = self.at <= self.live;
        let is_after = match &self.after {
            // The Python server compares ids as strings, and does not replay errors.
            Some(after) if is_replay => part.id > Some(after.clone()) && part.event != "error",
            Some(_) | None => true,
        };
        is_wanted && is_after
    }
}

// === impl ListenerBody ===

impl http_body::Body for ListenerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(future) = &mut self.0 else { return Poll::Ready(None) };
        let (listener, bytes) = ready!(future.poll(cx));
        if let Some(bytes) = bytes {
            future.set(next(listener));
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        self.0 = None;
        Poll::Ready(None)
    }
}

impl fmt::Debug for ListenerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ListenerBody")
    }
}
