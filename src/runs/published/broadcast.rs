//! A run that is being read, as its callers find it: one reading for all its audiences.
//!
//! ```text
//!  callers -- wants an audience, a keyframe, a stop --> Broadcast <-- what the reading knows -- driver
//!     |                                                                                           |
//!     +---- reads --> Run { log, keyframe } of the caller's audience <-------- publishes ---------+
//! ```

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use tokio::sync::futures::Notified;
use tokio::sync::watch;
use tokio::time::Instant;

use super::signals::{Asked, AskedReceiver, Signals, Subscription};
use super::{RefusalCutoff, Run};
use crate::metrics::{Charge, Metrics};
use crate::runs::credential_ring::CredentialRing;
use crate::sync::Mutex;
use threadway_translate::run::{EmitOptions, Rendering, RunEvent};

/// A run that is being read, or an idle thread shown as a run.
pub(in crate::runs) struct Broadcast {
    pub(in crate::runs) thread_id: String,
    pub(in crate::runs) rendering: Rendering,
    pub(in crate::runs) metrics: Metrics,
    /// How many bytes of events each audience keeps for slow readers.
    pub(in crate::runs) log_bytes: usize,
    pub(super) signals: Signals,
    /// The callers who read the run. `None` for an idle thread, which is not read any further.
    pub(in crate::runs) credentials: Option<Arc<CredentialRing<RefusalCutoff>>>,
    /// Whether this is an idle thread, not a run of LangGraph.
    pub(in crate::runs) is_idle: bool,
    /// For the state of an idle thread.
    _charge: Option<Arc<Charge>>,
    /// Since when the upstream has not answered. `None` while it does.
    away_since: watch::Sender<Option<Instant>>,
    /// Whether a client stopped the run through this gateway. Not all servers record that.
    is_stopped: AtomicBool,
    /// LangGraph's id of the run, once it is known.
    run_id: OnceLock<Arc<str>>,
    /// The run's first event.
    start: OnceLock<RunEvent>,
    audiences: Mutex<Audiences>,
}

/// The audiences of a run. As many as there are sets of options in the configuration.
#[derive(Default)]
struct Audiences {
    known: Vec<(EmitOptions, Weak<Run>)>,
    /// Those that the driver does not know yet.
    new: Vec<Arc<Run>>,
    /// Whether the reading is over, so that nobody serves a new one.
    is_closed: bool,
}

// === impl Broadcast ===

impl Broadcast {
    /// A run of which nothing was read.
    pub(in crate::runs) fn new(
        thread_id: &str,
        rendering: Rendering,
        log_bytes: usize,
        metrics: Metrics,
    ) -> Self {
        Self {
            thread_id: thread_id.to_owned(),
            rendering,
            metrics,
            log_bytes,
            signals: Signals::default(),
            credentials: None,
            is_idle: false,
            _charge: None,
            away_since: watch::Sender::default(),
            is_stopped: AtomicBool::default(),
            run_id: OnceLock::new(),
            start: OnceLock::new(),
            audiences: Mutex::default(),
        }
    }

    /// The same run, read with these credentials.
    pub(in crate::runs) fn read_with(
        self,
        credentials: Arc<CredentialRing<RefusalCutoff>>,
    ) -> Self {
        Self { credentials: Some(credentials), ..self }
    }

    /// An idle thread, whose state is charged.
    pub(in crate::runs) fn idle(
        thread_id: &str,
        rendering: Rendering,
        metrics: Metrics,
        charge: Option<Arc<Charge>>,
    ) -> Self {
        let idle = Self::new(thread_id, rendering, 0, metrics);
        Self { is_idle: true, _charge: charge, signals: Signals::without_driver(), ..idle }
    }

    /// The run as the viewers with these options see it. `None` if the reading is over.
    pub(in crate::runs) fn audience(self: &Arc<Self>, options: EmitOptions) -> Option<Arc<Run>> {
        let mut audiences = self.audiences.lock();
        if audiences.is_closed {
            return None;
        }
        let known = audiences.known.iter().find(|(known, _)| *known == options);
        if let Some(run) = known.and_then(|(_, run)| run.upgrade()) {
            return Some(run);
        }
        let run = Arc::new(Run::new(self, options));
        audiences.know(&run);
        audiences.new.push(Arc::clone(&run));
        drop(audiences);
        self.signals.ask(Asked::WANTS);
        Some(run)
    }

    /// Lists the first audience, which the publisher has made.
    pub(in crate::runs) fn know(&self, run: &Arc<Run>) {
        self.audiences.lock().know(run);
    }

    /// The audiences that came since the last call.
    pub(in crate::runs) fn new_audiences(&self) -> Vec<Arc<Run>> {
        std::mem::take(&mut self.audiences.lock().new)
    }

    /// Accepts no new audience from now on. Returns those that came since the last call of
    /// [`new_audiences`](Self::new_audiences).
    pub(in crate::runs) fn close(&self) -> Vec<Arc<Run>> {
        let mut audiences = self.audiences.lock();
        audiences.is_closed = true;
        std::mem::take(&mut audiences.new)
    }

    /// A caller wants a keyframe.
    pub(in crate::runs) fn want_keyframe(&self) {
        self.signals.ask(Asked::WANTS);
    }

    /// Notes whether a client is stopping the run through this gateway.
    pub(in crate::runs) fn note_stop(&self, is_stopped: bool) {
        self.is_stopped.store(is_stopped, Ordering::Release);
        if is_stopped {
            self.signals.ask(Asked::STOPS);
        }
    }

    /// Whether a client stopped the run through this gateway.
    pub(in crate::runs) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Receives what callers ask of the driver. A run has one driver.
    pub(in crate::runs) fn asked(self: &Arc<Self>) -> AskedReceiver {
        AskedReceiver::new(self)
    }

    /// Publishes since when the upstream has not answered. Only the driver does.
    pub(in crate::runs) fn set_away(&self, since: Option<Instant>) {
        self.away_since.send_replace(since);
    }

    /// Since when the upstream has not answered.
    pub(in crate::runs) fn away_since(&self) -> watch::Receiver<Option<Instant>> {
        self.away_since.subscribe()
    }

    /// Publishes LangGraph's id of the run, and its first event. The first ones stay.
    pub(in crate::runs) fn begin(&self, run_id: Option<&str>, first: Option<&RunEvent>) {
        if let Some(run_id) = run_id {
            self.run_id.get_or_init(|| run_id.into());
        }
        if let Some(start @ RunEvent::Started { .. }) = first {
            self.start.get_or_init(|| start.clone());
        }
    }

    /// LangGraph's id of the run, once it is known.
    pub(in crate::runs) fn run_id(&self) -> Option<&str> {
        self.run_id.get().map(AsRef::as_ref)
    }

    /// The run's first event, once there is one.
    pub(in crate::runs) fn start(&self) -> Option<&RunEvent> {
        self.start.get()
    }

    /// Whether the run's client has given it this name.
    pub(in crate::runs) fn is_called(&self, name: &str) -> bool {
        matches!(self.start(), Some(RunEvent::Started { name: known, .. }) if **known == *name)
    }

    /// Counts as a reader of the run.
    pub(in crate::runs) fn subscribe(self: &Arc<Self>) -> Subscription {
        Subscription::new(self)
    }

    /// How many read the run, or are about to.
    pub(in crate::runs) fn readers(&self) -> usize {
        self.signals.readers()
    }

    /// Whether anybody reads the run, or is about to.
    pub(in crate::runs) fn is_read(&self) -> bool {
        self.readers() > 0
    }

    /// Wakes the readers: more is published. Only the driver calls this.
    pub(in crate::runs) fn wake_readers(&self) {
        self.signals.publish();
    }

    /// Wakes the readers: the driver is gone.
    pub(in crate::runs) fn end(&self) {
        self.signals.end();
    }

    /// Completes when something is published after this call, or the driver is gone.
    pub(in crate::runs) fn published(&self) -> Notified<'_> {
        self.signals.published()
    }

    /// Whether a driver still reads the run.
    pub(in crate::runs) fn is_driven(&self) -> bool {
        self.signals.is_driven()
    }
}

impl fmt::Debug for Broadcast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thread_id, is_idle, .. } = self;
        let mut run = f.debug_struct("Broadcast");
        run.field("thread_id", thread_id).field("is_idle", is_idle).finish_non_exhaustive()
    }
}

// === impl Audiences ===

impl Audiences {
    fn know(&mut self, run: &Arc<Run>) {
        self.known.retain(|(options, _)| *options != run.options);
        self.known.push((run.options, Arc::downgrade(run)));
    }
}
