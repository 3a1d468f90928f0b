//! The runs that are being read, by their keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::published::{Broadcast, Run, Subscription};
use crate::sync::{Guard, Mutex};
use crate::upstream::Client;
use threadway_translate::langgraph::MessagesKey;
use threadway_translate::run::{EmitOptions, Rendering};

/// Names a reading of a run. Another upstream may have a copy of the run, with the same ids.
///
/// A caller who finds a run by its key was shown its thread. The run's id alone gives no access.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RunKey {
    pub(super) upstream: String,
    pub(super) thread_id: String,
    pub(super) run_id: String,
    /// The key of the graph's state under which the conversation is read. This field and the next
    /// decide which events are made. They are the last, so that all readings of a run are neighbours
    /// in the map.
    messages_key: MessagesKey,
    rendering: Rendering,
}

/// The runs being read.
#[derive(Debug, Default)]
pub(super) struct Live(Mutex<BTreeMap<RunKey, Arc<Broadcast>>>);

/// A run, and a subscription that keeps it wanted.
pub(crate) type Attached = (Arc<Run>, Subscription);

/// A run that was found, and is wanted.
struct Found {
    broadcast: Arc<Broadcast>,
    wanted: Subscription,
}

// === impl Live ===

impl Live {
    /// A run that is being read, for a caller to whom the upstream has just shown its thread.
    pub(super) fn find(&self, key: &RunKey, options: EmitOptions) -> Option<Attached> {
        let found = attach(&self.lock(), key);
        found.and_then(|found| found.for_audience(options))
    }

    /// Whether a run is being read.
    pub(super) fn has(&self, key: &RunKey) -> bool {
        self.lock().get(key).is_some_and(|run| run.is_driven())
    }

    /// Finds a run as [`find`](Self::find) does. If there is none, lists this one.
    pub(super) fn find_or_list(
        &self,
        key: RunKey,
        run: &Arc<Broadcast>,
        options: EmitOptions,
    ) -> Option<Attached> {
        let mut live = self.lock();
        let found = attach(&live, &key);
        if found.is_none() {
            live.insert(key.clone(), Arc::clone(run));
        }
        drop(live);
        let attached = found?.for_audience(options);
        if attached.is_none() {
            // That reading has just ended.
            self.list(key, run);
        }
        attached
    }

    /// The readings of a run, each of which makes other events.
    pub(super) fn readings(
        &self,
        upstream: &Client,
        thread_id: &str,
        run_id: &str,
    ) -> Vec<Arc<Broadcast>> {
        let first = RunKey::of(upstream, thread_id, run_id, Rendering::default());
        // The least of the run's keys.
        let first = RunKey { messages_key: MessagesKey::default(), ..first };
        let live = self.lock();
        let readings = live.range(&first..).take_while(|(key, _)| key.is_of_run(&first));
        readings.map(|(_, run)| Arc::clone(run)).collect()
    }

    /// The runs of an upstream, ordered by thread.
    pub(super) fn of_upstream(&self, upstream: &str) -> Vec<Arc<Broadcast>> {
        let live = self.lock();
        let found = live.iter().filter(|(key, _)| key.upstream == upstream);
        found.map(|(_, run)| Arc::clone(run)).collect()
    }

    pub(super) fn list(&self, key: RunKey, run: &Arc<Broadcast>) {
        self.lock().insert(key, Arc::clone(run));
    }

    pub(super) fn lock(&self) -> Guard<'_, BTreeMap<RunKey, Arc<Broadcast>>> {
        self.0.lock()
    }
}

/// Finds a run and subscribes to it. Under the lock no driver can decide that nobody reads the run.
fn attach(live: &BTreeMap<RunKey, Arc<Broadcast>>, key: &RunKey) -> Option<Found> {
    let broadcast = live.get(key).filter(|run| run.is_driven())?;
    Some(Found { broadcast: Arc::clone(broadcast), wanted: broadcast.subscribe() })
}

// === impl Found ===

impl Found {
    /// `None` if the reading has just ended.
    fn for_audience(self, options: EmitOptions) -> Option<Attached> {
        Some((self.broadcast.audience(options)?, self.wanted))
    }
}

// === impl RunKey ===

impl RunKey {
    pub(super) fn of(
        upstream: &Client,
        thread_id: &str,
        run_id: &str,
        rendering: Rendering,
    ) -> Self {
        Self {
            upstream: upstream.base().to_string(),
            thread_id: thread_id.to_owned(),
            run_id: run_id.to_owned(),
            messages_key: upstream.messages_key().clone(),
            rendering,
        }
    }

    /// Whether both keys are of the same run, made into any events.
    fn is_of_run(&self, other: &Self) -> bool {
        let Self { upstream, thread_id, run_id, messages_key: _, rendering: _ } = self;
        (upstream, thread_id, run_id) == (&other.upstream, &other.thread_id, &other.run_id)
    }
}
