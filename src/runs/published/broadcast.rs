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

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

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
    /// Notified when more is published. The driver holds the only strong reference: when the driver
    /// is gone, the readers' receivers are closed.
    changed: Weak<watch::Sender<()>>,
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
    /// Notified when a client stops the run through this gateway.
    stop_noted: Notify,
    /// Notified when a caller wants an audience or a keyframe.
    wanted: Notify,
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
    /// A run of which nothing was read. `changed` is the driver's.
    pub(in crate::runs) fn new(
        thread_id: &str,
        rendering: Rendering,
        log_bytes: usize,
        metrics: Metrics,
        changed: Weak<watch::Sender<()>>,
    ) -> Self {
        Self {
            thread_id: thread_id.to_owned(),
            rendering,
            metrics,
            log_bytes,
            changed,
            credentials: None,
            is_idle: false,
            _charge: None,
            away_since: watch::Sender::default(),
            is_stopped: AtomicBool::default(),
            stop_noted: Notify::new(),
            wanted: Notify::new(),
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
        let idle = Self::new(thread_id, rendering, 0, metrics, Weak::new());
        Self { is_idle: true, _charge: charge, ..idle }
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
        self.wanted.notify_one();
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
        self.wanted.notify_one();
    }

    /// Waits until a caller wants an audience or a keyframe.
    pub(in crate::runs) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Notes whether a client is stopping the run through this gateway.
    pub(in crate::runs) fn note_stop(&self, is_stopped: bool) {
        self.is_stopped.store(is_stopped, Ordering::Release);
        if is_stopped {
            self.stop_noted.notify_one();
        }
    }

    /// Whether a client stopped the run through this gateway.
    pub(in crate::runs) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Waits until a client stops the run through this gateway.
    pub(in crate::runs) async fn stop_noted(&self) {
        self.stop_noted.notified().await;
    }

    /// Publishes since when the upstream has not answered. Only the driver does.
    pub(in crate::runs) fn set_away(&self, since: Option<Instant>) {
        self.away_since.send_if_modified(|known| std::mem::replace(known, since) != since);
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

    /// Notified when more is published; closed if nothing will be.
    pub(in crate::runs) fn subscribe(&self) -> watch::Receiver<()> {
        match self.changed.upgrade() {
            Some(changed) => changed.subscribe(),
            None => watch::Sender::new(()).subscribe(),
        }
    }

    /// Whether a driver still reads the run.
    pub(in crate::runs) fn is_driven(&self) -> bool {
        self.changed.strong_count() > 0
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
