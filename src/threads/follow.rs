//! What happens on a thread after its present run: one task for each thread that is followed,
//! however many follow it.
//!
//! ```text
//!            a run runs                          its end
//!   looking -----------> showing that run ----------------------+
//!      ^  |  nothing runs, the state differs from what was told  |
//!      |  +----------> showing the thread at rest                |
//!      +-- somebody comes, it has moved, or time has passed <----+
//! ```
//!
//! Each looks with the credentials of who came last. What is shown is told to a follower whom the
//! upstream can tell from others once it has shown the thread to that very one again. Where a look
//! is refused, the following ends: who comes back brings credentials that are good.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::poll_immediate;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::Shared;
use super::look::recent_runs;
use super::pace::LOOK_INTERVAL;
use super::refusal::Refusal;
use super::waiting::{Cause, LONGEST_PAUSE, Look, Waiting};
use crate::metrics::GaugeGuard;
use crate::runs::{self, IdleThread, Run};
use crate::sync::{Guard, Mutex};
use crate::upstream::{Caller, Client, Error, RunFilter, Sight};
use threadway_translate::langgraph::{
    KeptAnswers, MessagesKey, RunRecord, RunStatus, ServerKind, ThreadState,
};
use threadway_translate::run::Emit;

/// How much of a state is read per second at most: one of 10 MB is looked at every 10 s.
const FOLLOW_BYTES_PER_SECOND: u64 = 1_000_000;

/// How many runs are kept for followers that still read one before them. Who is further behind
/// misses some runs, and none of what they came to.
const MAX_KEPT_RUNS: usize = 4;

/// The longest pause before a run is shown once more. The first is [`LOOK_INTERVAL`], and each
/// showing of the run doubles it: a list may go on naming a run that is gone, or whose stream
/// cannot be read.
const LONGEST_SHOW_PAUSE: Duration = Duration::from_mins(1);

/// How many of the runs shown last are remembered for that.
const MAX_SHOWN: usize = 100;

/// The threads being followed.
#[derive(Debug, Default)]
pub(super) struct Followed(Mutex<HashMap<ThreadKey, Listed>>);

/// A thread of one upstream, for those to whom that has shown it; else for one caller alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ThreadKey {
    upstream: String,
    thread_id: String,
    /// Under which key its conversation is read.
    messages_key: MessagesKey,
    /// What is shown of it.
    emit: Emit,
    /// Who waits for a thread that is not there, or that is not shown. Who is shown the same one
    /// follows another.
    unseen_by: Option<Caller>,
}

/// A thread that others can come to.
#[derive(Debug)]
struct Listed {
    following: Arc<Following>,
    /// The upstream as the last one calls it who came: it has just shown that one the thread. It is
    /// kept with the key, so that no credentials are used for a thread that they do not open.
    fresh_upstream: Option<Client>,
}

/// A thread that is followed.
#[derive(Debug)]
struct Following {
    sequence: Mutex<Sequence>,
    /// Rings when the sequence changes. Only the watcher holds it.
    bell: Weak<watch::Sender<()>>,
    /// Somebody has come, and wants to know how the thread stands now.
    asked: Notify,
}

/// What was shown of the thread, in order.
#[derive(Debug, Default)]
struct Sequence {
    /// A thread at rest that another has followed at once is not kept: the later one tells all.
    runs: VecDeque<Option<Arc<Run>>>,
    /// The position of the first run that is kept.
    first: u64,
    present: Present,
    /// How many looks have begun.
    looks: u64,
}

/// How the thread stood at the last look.
#[derive(Clone, Debug, Default)]
enum Present {
    #[default]
    Unknown,
    /// A run is being shown: the last one of the sequence.
    Running,
    /// Nothing runs. The look has this number.
    AtRest(u64, Arc<Run>),
    /// It could not be told. The look has this number.
    OutOfSight(u64, Arc<Error>),
}

/// One who follows a thread.
#[derive(Debug)]
pub(super) struct Follower {
    shared: Arc<Shared>,
    following: Arc<Following>,
    bell: watch::Receiver<()>,
    /// The position of the next run.
    at: u64,
    thread_id: String,
    /// The upstream as this one calls it, where what it reads for others may be hidden from it.
    own: Option<Client>,
}

/// Whether a follower may be told what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It may.
    Told,
    /// It cannot be known now.
    Unknown,
    /// It may not, or is to follow no more.
    Over,
}

/// The task of a thread.
struct Watcher {
    shared: Arc<Shared>,
    key: ThreadKey,
    upstream: Client,
    server: Option<ServerKind>,
    following: Arc<Following>,
    bell: Arc<watch::Sender<()>>,
    /// The runs as they stood when the first follower came, for the first look.
    first: Option<Recent>,
    /// The runs that are over, and were shown or were over before anybody followed.
    past: Option<HashSet<String>>,
    shown: Shown,
    /// The thread at rest as it was read last, and a digest of what was read: a checkpoint may get
    /// its questions after its id.
    rest: Option<(u64, Arc<Run>)>,
    /// The newest run that is over.
    last: Option<RunRecord>,
    /// When the state is to be read again.
    state_due: Instant,
    waiting: Waiting,
    _counted: GaugeGuard,
}

/// What a look has found.
enum Found {
    /// A run that is to be shown.
    Run(RunRecord),
    /// The thread at rest, which is brought up to date.
    Rest(Look),
}

/// The newest runs of a thread.
struct Recent {
    runs: Vec<RunRecord>,
    /// Whether the thread has no others.
    is_all: bool,
}

/// The runs shown last, the newest at the end.
#[derive(Debug, Default)]
struct Shown(VecDeque<Showing>);

/// How often a run was shown, and when it may be shown again.
#[derive(Debug)]
struct Showing {
    id: String,
    times: u32,
    again_at: Instant,
}

/// Comes to a thread: what there is to see first, and the way to what comes later.
pub(super) async fn join(
    shared: &Arc<Shared>,
    upstream: &Client,
    server: impl Future<Output = Option<ServerKind>>,
    thread_id: &str,
    emit: Emit,
) -> Result<(Arc<Run>, Follower), Refusal> {
    let mut key = ThreadKey {
        upstream: upstream.base().to_string(),
        thread_id: thread_id.to_owned(),
        messages_key: upstream.messages_key().clone(),
        emit,
        unseen_by: None,
    };
    let (seen, server, first) = if shared.followed.has(&key) {
        let (seen, server) = tokio::join!(shared.see(upstream, thread_id), server);
        (seen?, server, None)
    } else {
        // What shows that the caller may see the thread is what the first look needs.
        let mut server = pin!(server);
        let known = poll_immediate(&mut server).await;
        let recent = Recent::seen(upstream, thread_id, known.flatten());
        let server = async { if let Some(server) = known { server } else { server.await } };
        let (recent, server) = tokio::join!(recent, server);
        let recent = recent?;
        let seen = if recent.is_some() { Sight::Seen } else { Sight::Nothing };
        (seen, server, Some(recent.unwrap_or(Recent { runs: Vec::new(), is_all: true })))
    };
    if seen == Sight::Nothing {
        key.unseen_by = Some(upstream.caller().clone());
    }
    let (mut follower, mut is_looked_for) = follower(shared, key, upstream, server, first);
    let looks = follower.following.sequence().looks;
    loop {
        {
            let sequence = follower.following.sequence();
            let end = sequence.end();
            match (&sequence.present, sequence.last()) {
                (Present::Running, Some(run)) if run.is_driven() => {
                    let run = Arc::clone(run);
                    drop(sequence);
                    follower.at = end;
                    return Ok((run, follower));
                }
                (Present::AtRest(look, run), _) if *look > looks => {
                    let run = Arc::clone(run);
                    drop(sequence);
                    follower.at = end;
                    return Ok((run, follower));
                }
                (Present::OutOfSight(look, error), _) if *look > looks => {
                    return Err(Error::clone(error).into());
                }
                _ => {}
            }
        }
        // Once is enough: what is asked for during a look is kept for the next.
        if !std::mem::replace(&mut is_looked_for, true) {
            follower.following.asked.notify_one();
        }
        if follower.bell.changed().await.is_err() {
            return Err(Refusal::ShuttingDown);
        }
    }
}

/// A follower of a thread, which is watched from now on if it was not; and whether that begins
/// with a look for it.
fn follower(
    shared: &Arc<Shared>,
    key: ThreadKey,
    upstream: &Client,
    server: Option<ServerKind>,
    first: Option<Recent>,
) -> (Follower, bool) {
    // Under the lock no watcher decides that nobody follows its thread.
    let mut threads = shared.followed.lock();
    if let Some(listed) = threads.get_mut(&key)
        && let Some(bell) = listed.following.bell.upgrade()
    {
        listed.fresh_upstream = Some(upstream.clone());
        let following = Arc::clone(&listed.following);
        let bell = bell.subscribe();
        drop(threads);
        return (Follower::new(shared, following, bell, &key, upstream), false);
    }
    let bell = Arc::new(watch::Sender::new(()));
    let following = Arc::new(Following {
        sequence: Mutex::default(),
        bell: Arc::downgrade(&bell),
        asked: Notify::new(),
    });
    let listed = Listed { following: Arc::clone(&following), fresh_upstream: None };
    threads.insert(key.clone(), listed);
    drop(threads);
    let follower = Follower::new(shared, Arc::clone(&following), bell.subscribe(), &key, upstream);
    let waiting = Waiting::new(shared, upstream, &key.thread_id);
    let watcher = Watcher {
        shared: Arc::clone(shared),
        key,
        upstream: upstream.clone(),
        server,
        following,
        bell,
        first,
        past: None,
        shown: Shown::default(),
        rest: None,
        last: None,
        state_due: Instant::now(),
        waiting,
        _counted: shared.runs.metrics().following(),
    };
    shared.runs.spawn(watcher.watch());
    (follower, true)
}

// === impl Followed ===

impl Followed {
    fn has(&self, key: &ThreadKey) -> bool {
        self.lock().get(key).is_some_and(|listed| listed.following.bell.strong_count() > 0)
    }

    fn lock(&self) -> Guard<'_, HashMap<ThreadKey, Listed>> {
        self.0.lock()
    }
}

// === impl Following ===

impl Following {
    #[track_caller]
    fn sequence(&self) -> Guard<'_, Sequence> {
        self.sequence.lock()
    }
}

// === impl Sequence ===

impl Sequence {
    /// The position behind the newest run.
    fn end(&self) -> u64 {
        self.first + self.runs.len() as u64
    }

    fn last(&self) -> Option<&Arc<Run>> {
        self.runs.back()?.as_ref()
    }

    fn push(&mut self, run: Arc<Run>) {
        if run.is_idle()
            && let Some(last) = self.runs.back_mut()
        {
            last.take_if(|last| last.is_idle());
        }
        self.runs.push_back(Some(run));
        if self.runs.len() > MAX_KEPT_RUNS {
            self.runs.pop_front();
            self.first += 1;
        }
    }
}

// === impl Follower ===

impl Follower {
    fn new(
        shared: &Arc<Shared>,
        following: Arc<Following>,
        bell: watch::Receiver<()>,
        key: &ThreadKey,
        upstream: &Client,
    ) -> Self {
        // A thread that nobody was shown is looked at for each such caller apart.
        let is_shared = key.unseen_by.is_none();
        let own = (is_shared && upstream.caller().is_personal()).then(|| upstream.clone());
        let shared = Arc::clone(shared);
        Self { shared, following, bell, at: 0, thread_id: key.thread_id.clone(), own }
    }

    /// The next run of the thread; `None` when it is followed no more.
    ///
    /// May be dropped while it waits: the next call goes on from there.
    pub(super) async fn next(&mut self) -> Option<Arc<Run>> {
        let mut failures = 0_u32;
        loop {
            if let Some((at, run)) = self.waiting() {
                match self.turn().await {
                    Turn::Told => {
                        self.at = at + 1;
                        return Some(run);
                    }
                    Turn::Unknown => {
                        let pause = runs::doubled(LOOK_INTERVAL, failures, LONGEST_PAUSE);
                        failures = failures.saturating_add(1);
                        if let Ok(Err(_)) = tokio::time::timeout(pause, self.bell.changed()).await {
                            return None;
                        }
                    }
                    Turn::Over => return None,
                }
            } else {
                self.bell.changed().await.ok()?;
            }
        }
    }

    /// The next run, with its position, if it has begun.
    fn waiting(&self) -> Option<(u64, Arc<Run>)> {
        let sequence = self.following.sequence();
        let at = self.at.max(sequence.first);
        let index = usize::try_from(at - sequence.first).ok()?;
        let mut next = sequence.runs.iter().enumerate().skip(index);
        next.find_map(|(at, run)| Some((sequence.first + at as u64, Arc::clone(run.as_ref()?))))
    }

    /// Asks the upstream whether it still shows the thread to this one.
    async fn turn(&mut self) -> Turn {
        let Some(own) = &self.own else { return Turn::Told };
        let bell = &mut self.bell;
        let unwatched = async { while bell.changed().await.is_ok() {} };
        let seen = tokio::select! {
            biased;
            () = unwatched => return Turn::Over,
            seen = self.shared.see(own, &self.thread_id) => seen,
        };
        match seen {
            Ok(Sight::Seen) => Turn::Told,
            Ok(Sight::Nothing) => Turn::Over,
            Err(error) if error.concerns_caller() => Turn::Over,
            Err(_) => Turn::Unknown,
        }
    }
}

// === impl Watcher ===

impl Watcher {
    /// Shows what happens on the thread until nobody follows it.
    async fn watch(mut self) {
        let bell = Arc::clone(&self.bell);
        loop {
            tokio::select! {
                biased;
                () = bell.closed() => {
                    if self.is_unfollowed() {
                        return;
                    }
                }
                flow = self.go_on() => {
                    if flow.is_break() {
                        return;
                    }
                }
            }
        }
    }

    /// Waits for a reason to look, looks, and shows what there is to see. Breaks where the look is
    /// refused.
    async fn go_on(&mut self) -> ControlFlow<()> {
        let (cause, turn) = self.waiting.turn(&self.following.asked).await;
        if let Some(upstream) = self.fresh_upstream() {
            self.waiting.looks_as(&upstream);
            self.upstream = upstream;
        }
        if cause == Cause::Asked {
            self.state_due = Instant::now();
        }
        self.shared.runs.metrics().looked(cause.reason());
        let look = {
            let mut sequence = self.following.sequence();
            sequence.looks += 1;
            sequence.looks
        };
        let is_first = self.first.is_some();
        let found = self.look(look).await;
        turn.heard(&found);
        match found {
            Ok(Found::Run(run)) => {
                let is_over = self.show(&run).await;
                self.waiting.shown(is_over);
            }
            Ok(Found::Rest(rest)) => {
                self.waiting.ended(Some(rest));
                if is_first {
                    self.listen().await;
                }
            }
            Err(error) => {
                tracing::debug!(thread_id = self.key.thread_id, %error, "a thread is out of sight");
                self.waiting.ended(None);
                let error = Arc::new(error);
                self.stands(Present::OutOfSight(look, Arc::clone(&error)));
                if error.concerns_caller() {
                    return self.give_up();
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// The next run to show, if there is one; else the thread at rest is brought up to date.
    async fn look(&mut self, look: u64) -> Result<Found, Error> {
        self.waiting.begins();
        if self.first.is_none() {
            // Before the look: what begins behind it rings. Whoever waits for the first one does
            // not wait for the bell, and what begins until it is there is found by the next look.
            self.listen().await;
        }
        if let Some(run) = self.next_run().await? {
            return self.whole(run).await;
        }
        let is_due = Instant::now() >= self.state_due;
        if let Some((_, rest)) = self.rest.as_ref().filter(|_| !is_due) {
            let rest = Arc::clone(rest);
            self.stands(Present::AtRest(look, rest));
            return Ok(Found::Rest(Look::Partial { state_due: self.state_due }));
        }
        let body = self.upstream.thread_state(&self.key.thread_id).await?;
        let state = body.as_deref().and_then(ThreadState::parse);
        let made_by = state.as_ref().and_then(|state| state.run_id.as_deref());
        // A run has ended since the list was read: it is shown before what it came to.
        if made_by.is_some_and(|id| self.past.as_ref().is_some_and(|past| !past.contains(id)))
            && let Some(run) = self.next_run().await?
        {
            return self.whole(run).await;
        }
        let kept = runs::kept_answers(&self.upstream, &self.key.thread_id, state.as_ref()).await?;
        let is_there = body.is_some() || self.last.is_some();
        let bytes = body.as_deref().map_or(0, str::len) as u64;
        let pause = Duration::from_millis(bytes * 1000 / FOLLOW_BYTES_PER_SECOND);
        self.state_due = Instant::now() + pause.max(LOOK_INTERVAL);
        let last = self.last.as_ref();
        let digest = digest(body.as_deref(), &kept, last);
        let rest = match self.rest.take() {
            Some((known, rest)) if known == digest => rest,
            _ => {
                let (upstream, thread_id) = (&self.upstream, &self.key.thread_id);
                self.shared
                    .runs
                    .with_emit(self.key.emit)
                    .idle(upstream, thread_id, IdleThread { state: body, kept }, last)
                    .await?
            }
        };
        self.rest = Some((digest, Arc::clone(&rest)));
        // Nobody else adds to the sequence.
        let last = self.following.sequence().last().cloned();
        if last.is_none_or(|last| !rest.shows_same_as(&last)) {
            self.following.sequence().push(Arc::clone(&rest));
        }
        self.stands(Present::AtRest(look, rest));
        Ok(Found::Rest(Look::Whole { is_there }))
    }

    async fn listen(&mut self) {
        self.waiting.listen(&self.upstream, self.server, &self.key.thread_id).await;
    }

    async fn whole(&self, listed: RunRecord) -> Result<Found, Error> {
        let runs = self.shared.runs.with_emit(self.key.emit);
        let whole = runs.full_record(&self.upstream, &self.key.thread_id, listed);
        whole.await.map(Found::Run)
    }

    /// The oldest run that is over and was not shown, else the one that runs. One that was shown to
    /// its end is no more shown, whatever the list says of it; one whose end was not heard, after a
    /// pause.
    async fn next_run(&mut self) -> Result<Option<RunRecord>, Error> {
        let first = self.first.take();
        let Self { upstream, key: ThreadKey { thread_id, .. }, past, shown, server, .. } = self;
        let Recent { runs: recent, is_all } = match first {
            Some(first) => first,
            None => Recent::read(upstream, thread_id, *server).await?,
        };
        let over = || recent.iter().filter(|run| !run.status.is_live());
        self.last = over().next().cloned();
        let past = past.get_or_insert_with(|| over().map(|run| run.id.clone()).collect());
        let is_news = |run: &RunRecord| !past.contains(&run.id) && shown.may_show(&run.id);
        if let Some(missed) = over().rfind(|run| is_news(run)) {
            return Ok(Some(missed.clone()));
        }
        let is_next = |run: &RunRecord| run.status == RunStatus::Running && is_news(run);
        let mut running = recent.iter().find(|run| is_next(run)).cloned();
        if running.is_none() && !is_all {
            // One that was delayed for long is not among the newest.
            let live = upstream.runs(thread_id, RunFilter::Running).await?;
            running = live.into_iter().rfind(is_news);
        }
        past.retain(|id| shown.has(id) || recent.iter().any(|run| run.id == *id));
        Ok(running)
    }

    /// Shows a run to its end; whether that was the run's own, so that what comes next may be
    /// looked for at once.
    async fn show(&mut self, record: &RunRecord) -> bool {
        let (thread_id, id) = (&self.key.thread_id, record.id.clone());
        let runs = self.shared.runs.with_emit(self.key.emit);
        let (run, mut wanted) = runs.watch(&self.upstream, self.server, thread_id, record.clone());
        {
            let mut sequence = self.following.sequence();
            if !sequence.last().is_some_and(|last| Arc::ptr_eq(last, &run)) {
                sequence.push(Arc::clone(&run));
            }
        }
        self.stands(Present::Running);
        let shown_at = Instant::now();
        while wanted.changed().await.is_ok() {}
        self.shown.note(&id, shown_at);
        // What the run came to is compared at once.
        self.state_due = Instant::now();
        let is_over = !run.is_lost();
        if let Some(past) = self.past.as_mut().filter(|_| is_over) {
            past.insert(id);
        }
        is_over
    }

    fn stands(&self, present: Present) {
        self.following.sequence().present = present;
        self.bell.send_replace(());
    }

    /// Unlists the thread, so that who comes now has it watched anew; unless somebody has come
    /// meanwhile, whose credentials are to be tried.
    fn give_up(&self) -> ControlFlow<()> {
        let mut threads = self.shared.followed.lock();
        if threads.get(&self.key).is_some_and(|listed| listed.fresh_upstream.is_some()) {
            return ControlFlow::Continue(());
        }
        threads.remove(&self.key);
        ControlFlow::Break(())
    }

    /// The credentials of the last who came, once.
    fn fresh_upstream(&self) -> Option<Client> {
        self.shared.followed.lock().get_mut(&self.key)?.fresh_upstream.take()
    }

    /// Whether there is no follower left. If so the thread is unlisted: none can come any more.
    fn is_unfollowed(&self) -> bool {
        let mut threads = self.shared.followed.lock();
        if self.bell.receiver_count() > 0 {
            return false;
        }
        threads.remove(&self.key);
        true
    }
}

fn digest(body: Option<&str>, kept: &KeptAnswers, last: Option<&RunRecord>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (body, last.map(|run| &run.id)).hash(&mut hasher);
    for kept in &kept.current {
        (&kept.interrupt, kept.action, kept.decision.get()).hash(&mut hasher);
    }
    hasher.finish()
}

// === impl Recent ===

impl Recent {
    async fn read(
        upstream: &Client,
        thread_id: &str,
        server: Option<ServerKind>,
    ) -> Result<Self, Error> {
        let limit = recent_runs(server);
        let runs = upstream.runs(thread_id, RunFilter::Any { limit }).await?;
        Ok(Self { is_all: runs.len() < limit, runs })
    }

    /// The same; `None` if the server shows no such thread.
    async fn seen(
        upstream: &Client,
        thread_id: &str,
        server: Option<ServerKind>,
    ) -> Result<Option<Self>, Error> {
        let limit = recent_runs(server);
        let runs = upstream.seen_runs(thread_id, limit).await?;
        Ok(runs.map(|runs| Self { is_all: runs.len() < limit, runs }))
    }
}

// === impl Shown ===

impl Shown {
    /// Notes that a run was shown since then, and no more is.
    fn note(&mut self, id: &str, since: Instant) {
        let now = Instant::now();
        let at = self.0.iter().position(|showing| showing.id == id);
        let before = at.and_then(|at| self.0.remove(at)).map_or(0, |showing| showing.times);
        // What was shown for that long is no loop.
        let before = if now - since < LONGEST_SHOW_PAUSE { before } else { 0 };
        let pause = runs::doubled(LOOK_INTERVAL, before, LONGEST_SHOW_PAUSE);
        let times = before.saturating_add(1);
        self.0.push_back(Showing { id: id.to_owned(), times, again_at: now + pause });
        if self.0.len() > MAX_SHOWN {
            self.0.pop_front();
        }
    }

    fn has(&self, id: &str) -> bool {
        self.of(id).is_some()
    }

    fn may_show(&self, id: &str) -> bool {
        self.of(id).is_none_or(|showing| showing.again_at <= Instant::now())
    }

    fn of(&self, id: &str) -> Option<&Showing> {
        self.0.iter().find(|showing| showing.id == id)
    }
}
