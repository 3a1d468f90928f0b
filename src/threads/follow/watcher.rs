//! The task that watches a followed thread.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::super::Shared;
use super::super::pace::LOOK_INTERVAL;
use super::super::schedule::{Cause, LookOutcome, Schedule};
use super::relay_log::RelayLog;
use super::{FollowKey, FollowedThread, LastLook, RecentRuns};
use crate::agents::AgentServer;
use crate::metrics::GaugeGuard;
use crate::runs::{self, IdleThread, Lender, Run};
use crate::upstream::{AnswerText, Client, Error, QueuePermit, RunFilter, StateText};
use threadway_translate::langgraph::{
    Capabilities, RunRecord, RunStatus, StoredDecisions, ThreadState,
};

/// How many bytes of state are read per second at most. A state of 10 MB is read every 10 s.
const STATE_BYTES_PER_SECOND: u64 = 1_000_000;

/// The task that watches a followed thread.
pub(super) struct Watcher {
    shared: Arc<Shared>,
    key: FollowKey,
    /// The upstream with the credentials of the follower for whom it is asked.
    upstream: Client,
    /// What the upstream can do, as of the last look's beginning.
    pub(super) server: Capabilities,
    known: AgentServer,
    thread: Arc<FollowedThread>,
    changes: Arc<watch::Sender<()>>,
    /// The runs for the first look, if the first follower has listed them.
    first: Option<RecentRuns>,
    /// The ids of finished runs that are not to be relayed: they were relayed, or ended before
    /// anybody followed.
    past: Option<HashSet<String>>,
    relayed: RelayLog,
    /// The idle thread as it was read last.
    idle: Option<LastIdle>,
    /// The newest finished run.
    last: Option<RunRecord>,
    /// Whether a run waits for its turn.
    has_pending: bool,
    /// When the state may be read again.
    state_due: Instant,
    schedule: Schedule,
    _counted: GaugeGuard,
}

/// An idle thread as it was read.
struct LastIdle {
    /// A digest of all that was read. A checkpoint may get its interrupts after its id, so the id
    /// alone does not show a change.
    read: u64,
    /// A digest of the state. `None` if what viewers are shown depends on more than the state and
    /// the runs.
    state: Option<u64>,
    run: Arc<Run>,
}

/// What a look has found.
enum LookResult {
    /// A run to relay.
    Run(RunRecord),
    /// No run to relay. The idle thread is up to date.
    Idle(LookOutcome),
}

// === impl Watcher ===

impl Watcher {
    pub(super) fn new(
        shared: &Arc<Shared>,
        key: FollowKey,
        (upstream, known): (&Client, AgentServer),
        thread: Arc<FollowedThread>,
        changes: Arc<watch::Sender<()>>,
    ) -> Self {
        Self {
            schedule: Schedule::new(shared, upstream, &key.thread_id),
            _counted: shared.runs.metrics().following(),
            shared: Arc::clone(shared),
            key,
            upstream: upstream.clone(),
            server: Capabilities::default(),
            known,
            thread,
            changes,
            first: None,
            past: None,
            relayed: RelayLog::default(),
            idle: None,
            last: None,
            has_pending: false,
            state_due: Instant::now(),
        }
    }

    /// Sets the runs for the first look, and the turn in which they were listed.
    pub(super) fn begin_with(&mut self, first: Option<(RecentRuns, QueuePermit)>) {
        let (first, turn) = first.unzip();
        self.first = first;
        self.schedule.begin_in(turn);
    }

    /// Relays what happens on the thread until nobody follows it.
    ///
    /// By reference: a future has room twice for what it takes as a value.
    pub(super) async fn watch(&mut self) {
        let changes = Arc::clone(&self.changes);
        loop {
            tokio::select! {
                biased;
                () = changes.closed() => {
                    if self.is_unfollowed() {
                        return;
                    }
                }
                flow = self.step() => {
                    if flow.is_break() {
                        return;
                    }
                }
            }
        }
    }

    /// Waits until a look is due, looks, and relays what it finds. Breaks if the look is refused.
    async fn step(&mut self) -> ControlFlow<()> {
        let (cause, permit, turn) = loop {
            self.use_credentials();
            let next = self.schedule.next(&self.thread.look_requests, &self.upstream);
            tokio::select! {
                biased;
                () = self.thread.followers.left() => {}
                due = next => break due,
            }
        };
        self.use_newest_capabilities();
        if cause == Cause::Requested {
            self.state_due = Instant::now();
        }
        self.shared.runs.metrics().looked(cause.reason());
        let look = {
            let mut sequence = self.thread.sequence();
            sequence.looks += 1;
            sequence.looks
        };
        let is_first = self.first.is_some();
        let joined = self.shared.followed.joined(&self.key);
        let turn = match turn {
            Ok(turn) => turn,
            Err(error) => return self.look_failed(look, error, joined),
        };
        // Most of the time there is no look, whose requests need some KiB.
        let found = Box::pin(self.look_for_any(look, cause)).await;
        permit.record(&found);
        match found {
            Ok(LookResult::Run(run)) => {
                drop(turn);
                let has_ended = self.relay(&run).await;
                self.schedule.relay_ended(has_ended);
            }
            Ok(LookResult::Idle(outcome)) => {
                self.schedule.look_ended(Some(outcome));
                if is_first {
                    Box::pin(self.open_lifecycle()).await;
                }
            }
            Err(error) => return self.look_failed(look, error, joined),
        }
        ControlFlow::Continue(())
    }

    /// Reports a failed look to the followers that wait for it. Breaks if it was refused.
    fn look_failed(&mut self, look: u64, error: Error, joined: u64) -> ControlFlow<()> {
        let thread_id = &self.key.thread_id;
        tracing::debug!(thread_id, %error, "a look at a followed thread failed");
        self.schedule.look_ended(None);
        let error = Arc::new(error);
        self.publish(LastLook::Failed { look, error: Arc::clone(&error) });
        if error.depends_on_caller() { self.give_up(joined) } else { ControlFlow::Continue(()) }
    }

    /// Uses what is known of the server by now. A server that has never said what it can do is asked
    /// again, and no look waits for its answer.
    fn use_newest_capabilities(&mut self) {
        if let Some(server) = self.known.last_capabilities(&self.upstream) {
            self.server = server;
            return;
        }
        let (known, upstream) = (self.known.clone(), self.upstream.clone());
        self.shared.runs.spawn(async move {
            known.capabilities(&upstream).await;
        });
    }

    /// Uses the credentials of the newest follower, or of the one for whom the last look succeeded.
    fn use_credentials(&mut self) {
        if let Some(first) = self.thread.followers.lenders().into_iter().next() {
            self.schedule.use_credentials(&first.upstream);
            self.upstream = first.upstream;
        }
    }

    /// Looks with the credentials of one follower after the other, until the upstream accepts some.
    /// The streams of those it refuses end, if it accepts others.
    async fn look_for_any(&mut self, look: u64, cause: Cause) -> Result<LookResult, Error> {
        let followers = Arc::clone(&self.thread.followers);
        let mut refused = Vec::new();
        // A ring is never empty.
        let mut last = Error::Interrupted { reason: "nobody follows the thread".to_owned() };
        while let Some(lender) = followers.untried(&refused) {
            self.upstream = lender.upstream.clone();
            match self.look(look, cause).await {
                Err(error) if error.depends_on_caller() => {
                    followers.refused(&lender);
                    refused.push(lender);
                    last = error;
                }
                found => {
                    if found.is_ok() {
                        self.bar(refused).await;
                    }
                    return found;
                }
            }
        }
        Err(last)
    }

    async fn bar(&self, refused: Vec<Lender>) {
        let barred = runs::still_refused(refused, &self.key.thread_id).await;
        if barred.is_empty() {
            return;
        }
        for lender in &barred {
            self.thread.followers.bar(lender, ());
        }
        self.changes.send_replace(());
        let (thread_id, callers) = (&self.key.thread_id, barred.len());
        tracing::info!(
            thread_id,
            callers,
            "ended the streams of followers whose credentials LangGraph refuses; others follow on"
        );
    }

    /// Finds the next run to relay. Without one, brings the idle thread up to date.
    async fn look(&mut self, look: u64, cause: Cause) -> Result<LookResult, Error> {
        self.schedule.look_began();
        let mut read = None;
        if cause == Cause::SlowInterval && self.can_compare_states() {
            let state = self.read_state().await?;
            let known = self.idle.as_ref().and_then(|idle| idle.state);
            if known == state.as_deref().map(digest_of_state) {
                return Ok(LookResult::Idle(self.complete(true)));
            }
            read = Some(state);
        }
        if self.first.is_none() {
            // The stream is opened before the look, so that a run that begins after the look is
            // noticed. A follower does not wait for the stream at the first look; the next look
            // finds what begins until the stream is open.
            self.open_lifecycle().await;
        }
        if let Some(run) = self.next_run().await? {
            return self.whole_run(run).await;
        }
        let is_due = Instant::now() >= self.state_due;
        if let Some(LastIdle { run, .. }) = self.idle.as_ref().filter(|_| !is_due && read.is_none())
        {
            let run = Arc::clone(run);
            self.publish(LastLook::Idle { look, run });
            return Ok(LookResult::Idle(LookOutcome::Partial { state_due: self.state_due }));
        }
        let body = match read {
            Some(body) => body,
            None => self.read_state().await?,
        };
        let state = body.as_ref().and_then(|body| body.read(ThreadState::parse));
        let made_by = state.as_ref().and_then(|state| state.run_id.as_deref());
        // A run has ended since the list was read. It is relayed before the state that it made.
        if made_by.is_some_and(|id| self.past.as_ref().is_some_and(|past| !past.contains(id)))
            && let Some(run) = self.next_run().await?
        {
            return self.whole_run(run).await;
        }
        let kept =
            runs::stored_decisions(&self.upstream, &self.key.thread_id, state.as_ref()).await?;
        let exists = body.is_some() || self.last.is_some();
        let run = self.idle_run(body, kept).await?;
        // Only this task adds to the sequence, so the lock may be released in between.
        let last = self.thread.sequence().last().cloned();
        if last.is_none_or(|last| !run.shows_same_as(&last)) {
            self.thread.sequence().push(Arc::clone(&run));
        }
        self.publish(LastLook::Idle { look, run });
        Ok(LookResult::Idle(self.complete(exists)))
    }

    fn complete(&self, exists: bool) -> LookOutcome {
        let (has_pending, state_due) = (self.has_pending, self.state_due);
        LookOutcome::Complete { exists, has_pending, state_due }
    }

    /// Whether one request can show that nothing has changed: polls report what runs do and what
    /// others do by the API, so the state is all that is left.
    fn can_compare_states(&self) -> bool {
        let is_comparable = self.idle.as_ref().is_some_and(|idle| idle.state.is_some());
        is_comparable && matches!(self.thread.sequence().last_look, LastLook::Idle { .. })
    }

    async fn read_state(&mut self) -> Result<Option<StateText>, Error> {
        let state = self.upstream.shown_state(&self.key.thread_id).await?;
        let bytes = state.as_deref().map_or(0, AnswerText::len) as u64;
        let pause = Duration::from_millis(bytes * 1000 / STATE_BYTES_PER_SECOND);
        self.state_due = Instant::now() + pause.max(LOOK_INTERVAL);
        Ok(state)
    }

    /// The idle thread with this state: the previous one if nothing has changed.
    async fn idle_run(
        &mut self,
        state: Option<StateText>,
        kept: StoredDecisions,
    ) -> Result<Arc<Run>, Error> {
        let read = digest(state.as_deref(), &kept, self.last.as_ref());
        let of_state = state.as_deref().filter(|state| !state.read(ThreadState::may_have_batches));
        let of_state = of_state.map(digest_of_state);
        let run = match self.idle.take() {
            Some(LastIdle { read: known, run, .. }) if known == read => run,
            _ => {
                let runs = self.shared.runs.with_emit(self.key.emit);
                let rested = IdleThread { state, kept, last: self.last.clone() };
                let server = std::future::ready(self.server);
                runs.idle(&self.upstream, server, &self.key.thread_id, rested).await?
            }
        };
        self.idle = Some(LastIdle { read, state: of_state, run: Arc::clone(&run) });
        Ok(run)
    }

    async fn open_lifecycle(&mut self) {
        self.schedule.open_lifecycle(&self.upstream, self.server, &self.key.thread_id).await;
    }

    async fn whole_run(&self, listed: RunRecord) -> Result<LookResult, Error> {
        let runs = self.shared.runs.with_emit(self.key.emit);
        let whole = runs.full_record(&self.upstream, &self.key.thread_id, listed);
        whole.await.map(LookResult::Run)
    }

    /// The oldest finished run that was not relayed, or else the running one.
    ///
    /// A run that was relayed to its end is not relayed again, whatever its status in the list. A
    /// run whose end was not received is relayed again after a pause.
    async fn next_run(&mut self) -> Result<Option<RunRecord>, Error> {
        let first = self.first.take();
        let Self { upstream, key: FollowKey { thread_id, .. }, past, relayed, server, .. } = self;
        let RecentRuns { runs: recent, is_all } = match first {
            Some(first) => first,
            None => RecentRuns::read(upstream, thread_id, *server).await?,
        };
        let finished = || recent.iter().filter(|run| !run.status.is_live());
        self.last = finished().next().cloned();
        self.has_pending = recent.iter().any(|run| run.status == RunStatus::Pending);
        let past = past.get_or_insert_with(|| finished().map(|run| run.id.clone()).collect());
        let is_new = |run: &RunRecord| !past.contains(&run.id) && relayed.may_relay(&run.id);
        if let Some(missed) = finished().rfind(|run| is_new(run)) {
            return Ok(Some(missed.clone()));
        }
        let is_next = |run: &RunRecord| run.status == RunStatus::Running && is_new(run);
        let mut running = recent.iter().find(|run| is_next(run)).cloned();
        if running.is_none() && !is_all {
            // A run that waited for long is not among the newest.
            let live = upstream.runs(thread_id, RunFilter::Running).await?;
            running = live.into_iter().rfind(is_new);
        }
        past.retain(|id| relayed.has(id) || recent.iter().any(|run| run.id == *id));
        Ok(running)
    }

    /// Relays a run to its end. Returns whether the run itself has ended, so that the next look may
    /// follow at once.
    async fn relay(&mut self, record: &RunRecord) -> bool {
        let (thread_id, id) = (&self.key.thread_id, record.id.clone());
        let runs = self.shared.runs.with_emit(self.key.emit);
        let (run, wanted) = runs.watch(&self.upstream, self.server, thread_id, record.clone());
        {
            let mut sequence = self.thread.sequence();
            if !sequence.last().is_some_and(|last| Arc::ptr_eq(last, &run)) {
                sequence.push(Arc::clone(&run));
            }
        }
        self.publish(LastLook::Running);
        let began_at = Instant::now();
        wanted.ended().await;
        self.relayed.note(&id, began_at);
        // The state that the run made may be read at once.
        self.state_due = Instant::now();
        let has_ended = !run.is_lost();
        if let Some(past) = self.past.as_mut().filter(|_| has_ended) {
            past.insert(id);
        }
        has_ended
    }

    /// Stores the result of a look, and wakes the followers.
    fn publish(&self, last_look: LastLook) {
        self.thread.sequence().last_look = last_look;
        self.changes.send_replace(());
    }

    /// Removes the thread, so that the next follower starts a new watcher. `joined` is how many
    /// followers had joined before the look. If there are more, their credentials are tried first.
    fn give_up(&self, joined: u64) -> ControlFlow<()> {
        let mut threads = self.shared.followed.lock();
        if threads.get(&self.key).is_some_and(|entry| entry.joined > joined) {
            return ControlFlow::Continue(());
        }
        threads.remove(&self.key);
        ControlFlow::Break(())
    }

    /// Whether there is no follower left. If so, the thread is removed, and no follower can join
    /// this watcher.
    fn is_unfollowed(&self) -> bool {
        let mut threads = self.shared.followed.lock();
        if self.changes.receiver_count() > 0 {
            return false;
        }
        threads.remove(&self.key);
        true
    }
}

fn digest_of_state(state: &AnswerText) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.read(|state| state.hash(&mut hasher));
    hasher.finish()
}

fn digest(state: Option<&AnswerText>, kept: &StoredDecisions, last: Option<&RunRecord>) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.map(digest_of_state).hash(&mut hasher);
    last.map(|run| &run.id).hash(&mut hasher);
    for kept in &kept.current {
        (&kept.interrupt, kept.action, kept.decision.get()).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A future has room for all that it may await, and room twice for what it takes as a value.
    #[test]
    fn the_task_of_an_idle_thread_has_no_room_for_a_look() {
        fn size<A, F: Future>(_: fn(A) -> F) -> usize {
            size_of::<F>()
        }
        let waiting = size(|watcher: &'static mut Watcher| watcher.watch());
        let all = waiting + size_of::<Watcher>();
        assert!(all < 8 * 1024, "the task takes {all} bytes, {waiting} of them to wait");
    }
}
