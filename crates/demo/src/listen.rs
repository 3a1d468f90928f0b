//! The body of a response that follows a run: its parts as they come, or what it comes to.

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
use super::run::{Action, Heard, Part, Run, Stop};
use super::wire::HEARTBEAT;

/// How long a response may be silent before it gives a sign of life, as the Python server's.
pub const BEAT: Duration = Duration::from_secs(5);

/// A run that is followed.
///
/// It pulls: what a client does not read stays in the run's log, which is bounded.
pub(super) struct Listener {
    server: Arc<Server>,
    run: Arc<Run>,
    changed: watch::Receiver<()>,
    voice: Voice,
    on_disconnect: OnDisconnect,
}

/// What a listener tells.
#[derive(Debug)]
pub(super) enum Voice {
    Parts(Place),
    /// The run's result, once it is over.
    Result,
    /// That the run is over.
    End,
    /// All is told.
    Nothing,
}

/// Which parts of a run are told.
#[derive(Debug)]
pub(super) struct Place {
    /// The next part, counted from the run's first.
    at: usize,
    /// Where the log ended when the listener came: before this is replay.
    live: usize,
    /// Replayed are only parts behind this id.
    after: Option<String>,
    /// Only parts of these names.
    only: Option<Vec<String>>,
}

/// What a listener can tell now.
enum Told {
    Bytes(Bytes),
    NotYet,
    /// There is no more.
    All,
}

/// A listener as a body.
struct Listening(Option<ReusableBoxFuture<'static, (Box<Listener>, Option<Bytes>)>>);

async fn next(mut listener: Box<Listener>) -> (Box<Listener>, Option<Bytes>) {
    let bytes = listener.next().await;
    (listener, bytes)
}

// === impl Listener ===

impl Listener {
    pub(super) fn new(
        server: &Arc<Server>,
        run: Arc<Run>,
        voice: Voice,
        on_disconnect: OnDisconnect,
    ) -> Self {
        let changed = run.changes();
        Self { server: Arc::clone(server), run, changed, voice, on_disconnect }
    }

    pub(super) fn body(self) -> Body {
        Body::new(Listening(Some(ReusableBoxFuture::new(next(Box::new(self))))))
    }

    /// The next bytes; `None` at the end, and when the demo goes down.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            self.changed.mark_unchanged();
            match self.ready() {
                Told::Bytes(bytes) => return Some(bytes),
                Told::All => return None,
                Told::NotYet => {}
            }
            let changed = tokio::time::timeout(BEAT, self.changed.changed());
            let heard = tokio::select! {
                () = self.server.shutdown.cancelled() => return None,
                heard = changed => heard,
            };
            if heard.is_err() {
                return Some(Bytes::from_static(match self.voice {
                    Voice::Parts(_) => HEARTBEAT,
                    Voice::Result | Voice::End | Voice::Nothing => b"\n",
                }));
            }
        }
    }

    fn ready(&mut self) -> Told {
        let told = match &mut self.voice {
            Voice::Parts(place) => return place.next(&self.run),
            Voice::Nothing => return Told::All,
            Voice::Result | Voice::End if !self.run.status().is_over() => return Told::NotYet,
            Voice::Result => self.run.result().to_string(),
            Voice::End => "{}".to_owned(),
        };
        self.voice = Voice::Nothing;
        Told::Bytes(Bytes::from(told))
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

// === impl Place ===

impl Place {
    /// Everything that the run says: for the client that started it.
    pub(super) fn first() -> Self {
        Self { at: 0, live: 0, after: None, only: None }
    }

    /// What the run says from now on, behind what it said since an id, where that can be replayed.
    pub(super) fn join(run: &Run, last_event_id: Option<&str>, only: Option<Vec<String>>) -> Self {
        let live = run.now();
        match last_event_id.filter(|_| run.order.is_resumable) {
            Some(id) => Self { at: 0, live, after: Some(id.to_owned()), only },
            None => Self { at: live, live, after: None, only },
        }
    }

    fn next(&mut self, run: &Run) -> Told {
        loop {
            let (heard, behind) = run.hear(self.at);
            self.at = behind;
            match heard {
                Heard::Part(part) if self.is_told(&part) => {
                    return Told::Bytes(Bytes::from(part.frame));
                }
                Heard::Part(_) => {}
                Heard::Silence => return Told::NotYet,
                Heard::Over => return Told::All,
            }
        }
    }

    fn is_told(&self, part: &Part) -> bool {
        let is_wanted = match &self.only {
            Some(only) => only.iter().any(|name| name == part.event),
            None => true,
        };
        let is_replay = self.at <= self.live;
        let is_behind = match &self.after {
            // The Python server compares ids as strings, and keeps no error for a replay.
            Some(after) if is_replay => part.id > Some(after.clone()) && part.event != "error",
            Some(_) | None => true,
        };
        is_wanted && is_behind
    }
}

// === impl Listening ===

impl http_body::Body for Listening {
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

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listening")
    }
}
