//! The runs that are being read, by their keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use super::published::Run;
use crate::sync::{Guard, Mutex};
use crate::upstream::Client;
use threadway_translate::langgraph::MessagesKey;
use threadway_translate::run::Emit;

/// Names a reading of a run. Another upstream may have a copy of the run, with the same ids.
///
/// A caller who finds a run by its key was shown its thread. The run's id alone gives no access.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RunKey {
    pub(super) upstream: String,
    pub(super) thread_id: String,
    pub(super) run_id: String,
    /// The key of the graph's state under which the conversation is read. This field and the next
    /// are the last, so that all readings of a run are neighbours in the map.
    messages_key: MessagesKey,
    emit: Emit,
}

/// The runs being read.
#[derive(Debug, Default)]
pub(super) struct Live(Mutex<BTreeMap<RunKey, LiveRun>>);

/// A run that readers can attach to.
#[derive(Debug)]
pub(super) struct LiveRun {
    run: Arc<Run>,
    /// The upstream with the credentials of the caller who attached last, for the driver. The
    /// upstream has just shown the thread to that caller. It is kept with the key, so that no
    /// credentials are used for a thread that they give no access to.
    newest_upstream: Option<Client>,
}

/// A run, and a receiver that keeps it wanted.
pub(crate) type Attached = (Arc<Run>, watch::Receiver<()>);

// === impl Live ===

impl Live {
    /// A run that is being read, for a caller to whom the upstream has just shown its thread. The
    /// driver continues with this caller's credentials, since its own may have expired.
    pub(super) fn find(&self, key: &RunKey, upstream: &Client) -> Option<Attached> {
        attach(&mut self.lock(), key, upstream)
    }

    /// Finds a run as [`find`](Self::find) does. If there is none, lists this one.
    pub(super) fn find_or_list(
        &self,
        key: RunKey,
        upstream: &Client,
        run: &Arc<Run>,
    ) -> Option<Attached> {
        let mut live = self.lock();
        let found = attach(&mut live, &key, upstream);
        if found.is_none() {
            live.insert(key, LiveRun::new(run));
        }
        found
    }

    /// The readings of a run, each with other options.
    pub(super) fn readings(
        &self,
        upstream: &Client,
        thread_id: &str,
        run_id: &str,
    ) -> Vec<Arc<Run>> {
        let first = RunKey::of(upstream, thread_id, run_id, Emit::MIN);
        // The least of the run's keys.
        let first = RunKey { messages_key: MessagesKey::default(), ..first };
        let live = self.lock();
        let readings = live.range(&first..).take_while(|(key, _)| key.is_of_run(&first));
        readings.map(|(_, listed)| Arc::clone(&listed.run)).collect()
    }

    /// The runs of an upstream, ordered by thread.
    pub(super) fn of_upstream(&self, upstream: &str) -> Vec<Arc<Run>> {
        let live = self.lock();
        let found = live.iter().filter(|(key, _)| key.upstream == upstream);
        found.map(|(_, listed)| Arc::clone(&listed.run)).collect()
    }

    pub(super) fn list(&self, key: RunKey, run: &Arc<Run>) {
        let mut live = self.lock();
        if !live.get(&key).is_some_and(|listed| listed.is(run)) {
            live.insert(key, LiveRun::new(run));
        }
    }

    /// The credentials of the caller who attached last; `None` if they were taken before.
    pub(super) fn take_newest_upstream(&self, key: &RunKey, run: &Arc<Run>) -> Option<Client> {
        let mut live = self.lock();
        live.get_mut(key).filter(|listed| listed.is(run))?.newest_upstream.take()
    }

    pub(super) fn lock(&self) -> Guard<'_, BTreeMap<RunKey, LiveRun>> {
        self.0.lock()
    }
}

/// Finds a run and subscribes to it. Under the lock no driver can decide that nobody reads the run.
fn attach(
    live: &mut BTreeMap<RunKey, LiveRun>,
    key: &RunKey,
    upstream: &Client,
) -> Option<Attached> {
    let listed = live.get_mut(key).filter(|listed| listed.run.is_driven())?;
    listed.newest_upstream = Some(upstream.clone());
    Some((Arc::clone(&listed.run), listed.run.subscribe()))
}

// === impl LiveRun ===

impl LiveRun {
    fn new(run: &Arc<Run>) -> Self {
        Self { run: Arc::clone(run), newest_upstream: None }
    }

    /// Whether this is the entry of that reading.
    pub(super) fn is(&self, run: &Arc<Run>) -> bool {
        Arc::ptr_eq(&self.run, run)
    }
}

// === impl RunKey ===

impl RunKey {
    pub(super) fn of(upstream: &Client, thread_id: &str, run_id: &str, emit: Emit) -> Self {
        Self {
            upstream: upstream.base().to_string(),
            thread_id: thread_id.to_owned(),
            run_id: run_id.to_owned(),
            messages_key: upstream.messages_key().clone(),
            emit,
        }
    }

    /// Whether both keys are of the same run, with any options.
    fn is_of_run(&self, other: &Self) -> bool {
        let Self { upstream, thread_id, run_id, messages_key: _, emit: _ } = self;
        (upstream, thread_id, run_id) == (&other.upstream, &other.thread_id, &other.run_id)
    }
}
