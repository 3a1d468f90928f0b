//! The threads, and the finished runs that can be replayed.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use uuid::Uuid;

use super::clock::Clock;
use super::run::Run;
use super::state::Values;
use super::thread::Thread;
use super::wire::Refusal;
use super::{MAX_REPLAYS, MAX_STORE_BYTES, MAX_THREADS, WATCHED_ID};

/// The threads by id.
#[derive(Debug, Default)]
pub(super) struct Store {
    threads: HashMap<Uuid, Thread>,
    /// Finished runs that still have their log, oldest first.
    replays: VecDeque<Arc<Run>>,
}

// === impl Store ===

impl Store {
    pub(super) fn thread(&self, id: Uuid) -> Result<&Thread, Refusal> {
        self.threads.get(&id).ok_or_else(|| Refusal::no_thread(id))
    }

    pub(super) fn thread_mut(&mut self, id: Uuid) -> Result<&mut Thread, Refusal> {
        self.threads.get_mut(&id).ok_or_else(|| Refusal::no_thread(id))
    }

    pub(super) fn has(&self, id: Uuid) -> bool {
        self.threads.contains_key(&id)
    }

    pub(super) fn create(
        &mut self,
        id: Uuid,
        metadata: Values,
        clock: &Clock,
    ) -> Result<&mut Thread, Refusal> {
        self.make_room(MAX_THREADS - 1, None)?;
        Ok(self.threads.entry(id).or_insert_with(|| Thread::new(id, metadata, clock)))
    }

    /// Copies a thread. The servers answer 409 if it does not exist.
    pub(super) fn copy(
        &mut self,
        source: Uuid,
        id: Uuid,
        clock: &Clock,
    ) -> Result<&mut Thread, Refusal> {
        self.make_room(MAX_THREADS - 1, Some(source))?;
        let source = self.threads.get(&source);
        let copy = source.ok_or_else(|| Refusal::conflict("Thread not found"))?.copy(id, clock);
        Ok(self.threads.entry(id).or_insert(copy))
    }

    /// Makes room for a run on a thread.
    pub(super) fn make_room_for(&mut self, thread: Uuid) -> Result<(), Refusal> {
        self.make_room(MAX_THREADS, Some(thread))
    }

    /// Drops the threads that have been idle for longest, until the limits are met.
    fn make_room(&mut self, threads: usize, needed: Option<Uuid>) -> Result<(), Refusal> {
        while self.threads.len() > threads || self.bytes() > MAX_STORE_BYTES {
            let is_spare = |thread: &&Thread| {
                thread.id != WATCHED_ID && Some(thread.id) != needed && !thread.is_busy()
            };
            let spare = self.threads.values().filter(is_spare);
            let Some(oldest) = spare.min_by_key(|thread| thread.updated_at).map(|t| t.id) else {
                return Err(Refusal::full(
                    "the demo is full and all its threads are busy; wait for a run to end",
                ));
            };
            self.threads.remove(&oldest);
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.threads.values().map(Thread::bytes).sum()
    }

    pub(super) fn remove(&mut self, id: Uuid) -> Result<Thread, Refusal> {
        self.threads.remove(&id).ok_or_else(|| Refusal::no_thread(id))
    }

    pub(super) fn threads(&self) -> impl Iterator<Item = &Thread> {
        self.threads.values()
    }

    pub(super) fn live_runs(&self) -> usize {
        self.threads.values().map(Thread::live_runs).sum()
    }

    /// Keeps the log of a finished run, and drops the oldest log beyond the limit.
    pub(super) fn keep_replay(&mut self, run: &Arc<Run>) {
        self.replays.push_back(Arc::clone(run));
        if self.replays.len() > MAX_REPLAYS
            && let Some(oldest) = self.replays.pop_front()
        {
            oldest.drop_log();
        }
    }
}
