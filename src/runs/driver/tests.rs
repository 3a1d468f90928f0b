//! Thousands of interleavings of a run's concurrent parts: its driver, its readers, their
//! notifications, the registry that lists the run, and its end.
//!
//! The tests run the real [`Driver`], [`Run`], [`RunReader`] and registry, and `tokio::sync`. Only
//! the upstream is simulated. Each task has a thread, and one thread runs at a time. A seed decides
//! which thread goes on: wherever a task awaits, and before and after each lock of [`crate::sync`].
//! So it also decides between a lock and a notification or a permit. Time stands still, or passes
//! at moments that the seed chooses too.
//!
//! The scheduler is not that of [`crate::sync::simulated`]: there, a task that is polled in the middle
//! of another returns before the interrupted one goes on. Here several tasks may stand at locks in
//! the middle of their polls, and go on in any order.
//!
//! The search is random, not exhaustive: a seed is one interleaving, and the tests print how many
//! differed. A seed does not repeat exactly if a connection is lost, because the pauses before a
//! join are random.
//!
//! Not explored:
//! - the inside of a critical section, where another thread can only wait or drop a receiver;
//! - the inside of `tokio::sync`, which tokio tests with loom;
//! - weaker memory orders than that of a single thread;
//! - cancelling a run that nobody reads (`OwnerPolicy::Cancel`);
//! - work on large values outside the runtime's threads.
//!
//! A deadlock is a moment in which no task can go on. A reader that waits for ever is one.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{JoinHandle, Thread};

use bytes::Bytes;
use http_body::Frame;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::request::Refusal;
use super::*;
use crate::metrics::Metrics;
use crate::runs::credential_ring::CredentialRing;
use crate::runs::decoder::Coverage;
use crate::runs::ending::{EndStatus, Ending, FinalState};
use crate::runs::published::History;
use crate::runs::reader::{Baseline, RunReader};
use crate::runs::reading::tests::record;
use crate::runs::reading::{Source, UpstreamAnswer};
use crate::runs::{EventId, JoinedRun, Opened, OwnerPolicy, RunDecoder, Runs};
use crate::sync::simulated::Chance;
use crate::sync::turns;
use crate::upstream::Seed;
use threadway_translate::langgraph::{Capabilities, RunStatus, StoredDecisions};
use threadway_translate::run::{EmitOptions, Filter, Rendering, StateEvents, View};

/// How many interleavings each test runs, unless `THREADWAY_SCHEDULES` says otherwise.
const SCHEDULES: u64 = 300;

/// In how many turns an interleaving is through, by far.
const MAX_TURNS: u64 = 200_000;

// === the schedule ===

/// Lets tasks run one at a time.
struct Schedule {
    state: Mutex<State>,
    /// Whose turn it is; [`NOBODY`] when all is over.
    turn: AtomicUsize,
    /// All threads are to end: one has failed.
    is_broken: AtomicBool,
    main: Thread,
    runtime: Runtime,
    world: World,
}

struct State {
    chance: Chance,
    /// In how many of eight turns the running task goes on.
    stays: u64,
    tasks: Vec<Task>,
    threads: Vec<JoinHandle<()>>,
    turns: u64,
    /// The task that goes on when no other can.
    awaits_quiet: Option<usize>,
    /// A hash of all decisions.
    trace: DefaultHasher,
    failure: Option<String>,
}

struct Task {
    name: String,
    thread: Option<Thread>,
    doing: Doing,
    is_woken: bool,
    /// Whether the task makes time pass. It is chosen last, since it could always go on.
    is_clock: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Something,
    Waiting,
    Nothing,
}

const NOBODY: usize = usize::MAX;

thread_local! {
    /// The task of this thread.
    static TASK: RefCell<Option<(Arc<Schedule>, usize)>> = const { RefCell::new(None) };
}

// --- impl Schedule ---

impl Schedule {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a task. The seed decides when it gets its turn.
    fn spawn(self: &Arc<Self>, name: &str, task: impl Future<Output = ()> + Send + 'static) {
        self.add(name, false, task);
    }

    fn add(
        self: &Arc<Self>,
        name: &str,
        is_clock: bool,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let mut state = self.state();
        let id = state.tasks.len();
        let name = name.to_owned();
        let (thread, doing) = (None, Doing::Something);
        state.tasks.push(Task { name, thread, doing, is_woken: false, is_clock });
        let this = Arc::clone(self);
        let thread = std::thread::spawn(move || this.perform(id, task));
        if let Some(task) = state.tasks.get_mut(id) {
            task.thread = Some(thread.thread().clone());
        }
        state.threads.push(thread);
    }

    /// The body of a task's thread.
    fn perform(self: Arc<Self>, id: usize, task: impl Future<Output = ()>) {
        let _context = self.runtime.enter();
        TASK.set(Some((Arc::clone(&self), id)));
        turns::use_on_this_thread(pass);
        let waker = Waker::from(Arc::new(Alarm { schedule: Arc::clone(&self), id }));
        let done = catch_unwind(AssertUnwindSafe(|| {
            self.await_turn(id);
            let mut task = Box::pin(task);
            loop {
                self.state().tasks[id].is_woken = false;
                if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                    break;
                }
                self.state().tasks[id].doing = Doing::Waiting;
                self.pass_on(id);
                self.state().tasks[id].doing = Doing::Something;
            }
        }));
        TASK.set(None);
        self.state().tasks[id].doing = Doing::Nothing;
        match done {
            Ok(()) => self.hand_on(id),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
                if let Some(text) = text {
                    let name = self.state().tasks[id].name.clone();
                    self.fails(format!("{name}: {text}"));
                }
            }
        }
    }

    /// Chooses the next task.
    fn choose(&self, me: usize) -> usize {
        let mut state = self.state();
        state.turns += 1;
        let waiting = |state: &State| {
            let left = state.tasks.iter().filter(|task| task.doing != Doing::Nothing);
            left.map(|task| (task.name.clone(), task.doing)).collect::<Vec<_>>()
        };
        if state.turns > MAX_TURNS {
            let failure = format!("it comes to no end: {:?}", waiting(&state));
            drop(state);
            self.fails(failure);
            return NOBODY;
        }
        let can_go_on = |task: &Task| match task.doing {
            Doing::Something => true,
            Doing::Waiting => task.is_woken,
            Doing::Nothing => false,
        };
        let mut ready: Vec<_> =
            (0..state.tasks.len()).filter(|id| can_go_on(&state.tasks[*id])).collect();
        if ready.len() > 1 && !state.chance.of_eight(2) {
            ready.retain(|id| !state.tasks[*id].is_clock);
        }
        if ready.is_empty() {
            ready.extend(state.awaits_quiet.take());
        }
        let stays = state.stays;
        let next = if ready.contains(&me) && state.chance.of_eight(stays) {
            me
        } else if ready.is_empty() {
            let waiting = waiting(&state);
            if !waiting.is_empty() {
                drop(state);
                self.fails(format!("these wait for ever: {waiting:?}"));
            }
            return NOBODY;
        } else {
            let at = state.chance.below(ready.len() as u64);
            ready[usize::try_from(at).unwrap()]
        };
        next.hash(&mut state.trace);
        next
    }

    /// Lets any task go on. Returns when it is this task's turn again.
    fn pass_on(&self, me: usize) {
        let next = self.choose(me);
        if next != me {
            self.give(next);
            self.await_turn(me);
        }
    }

    /// Lets another task go on, when this one needs no turn any more.
    fn hand_on(&self, me: usize) {
        let next = self.choose(me);
        self.give(next);
    }

    fn give(&self, next: usize) {
        let thread = self.state().tasks.get(next).and_then(|task| task.thread.clone());
        self.turn.store(next, Ordering::SeqCst);
        thread.as_ref().unwrap_or(&self.main).unpark();
    }

    fn await_turn(&self, me: usize) {
        while self.turn.load(Ordering::SeqCst) != me {
            if self.is_broken.load(Ordering::SeqCst) {
                // The panic is another task's.
                resume_unwind(Box::new(()));
            }
            std::thread::park();
        }
    }

    fn fails(&self, failure: String) {
        let mut state = self.state();
        state.failure.get_or_insert(failure);
        self.is_broken.store(true, Ordering::SeqCst);
        for task in &state.tasks {
            if let Some(thread) = &task.thread {
                thread.unpark();
            }
        }
        self.main.unpark();
    }
}

/// A point at which another task may go on.
fn pass() {
    let task = TASK.with_borrow(Clone::clone);
    if let Some((schedule, me)) = task
        && !std::thread::panicking()
        && !schedule.is_broken.load(Ordering::SeqCst)
    {
        schedule.pass_on(me);
    }
}

/// Wakes a task.
struct Alarm {
    schedule: Arc<Schedule>,
    id: usize,
}

// --- impl Alarm ---

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.schedule.state().tasks[self.id].is_woken = true;
    }
}

// === the upstream ===

/// A server with one run. Each connection brings all of its parts.
#[derive(Default)]
struct Server(Mutex<Said>);

#[derive(Default)]
struct Said {
    parts: Vec<Bytes>,
    listeners: Vec<UnboundedSender<Bytes>>,
    is_over: bool,
    /// The status that each refused caller gets.
    refused: HashMap<String, u16>,
    is_down: bool,
    /// How many parts were said when a refused caller was asked for again.
    barred: HashMap<String, usize>,
    refusals: u64,
    /// Decides which requests fail for a moment; `None` if none do.
    busy: Option<Chance>,
    /// How many requests failed for a moment.
    failures: u64,
}

struct Connection(UnboundedReceiver<Bytes>);

// --- impl Connection ---

impl http_body::Body for Connection {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|part| Some(Ok(Frame::data(part?))))
    }
}

// --- impl Server ---

impl Server {
    fn said(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn says(&self, part: &str) {
        let mut said = self.said();
        let part = Bytes::copy_from_slice(part.as_bytes());
        said.listeners.retain(|listener| listener.send(part.clone()).is_ok());
        said.parts.push(part);
    }

    /// Sends a heartbeat on all connections.
    fn is_alive(&self) {
        let sign = Bytes::from_static(b": heartbeat\r\n\r\n");
        self.said().listeners.retain(|listener| listener.send(sign.clone()).is_ok());
    }

    fn ends(&self) {
        let mut said = self.said();
        said.is_over = true;
        said.listeners.clear();
    }

    /// A connection with all parts after a cursor, and all later parts.
    fn connects(&self, cursor: &str) -> Body {
        let (sender, receiver) = unbounded_channel();
        let mut said = self.said();
        let number = |id: &str| id.split('-').next().and_then(|number| number.parse::<u64>().ok());
        let from = number(cursor).map_or(0, |at| at - 999);
        for part in said.parts.iter().skip(usize::try_from(from).unwrap()) {
            sender.send(part.clone()).unwrap();
        }
        if !said.is_over {
            said.listeners.push(sender);
        }
        Body::of(Connection(receiver))
    }

    /// Breaks all connections, inside an event.
    fn cuts(&self) {
        for listener in self.said().listeners.drain(..) {
            let _ = listener.send(Bytes::from_static(b"event: val"));
        }
    }

    /// Refuses a caller with this status from now on.
    fn withdraws(&self, key: &str, status: u16) {
        self.said().refused.insert(key.to_owned(), status);
    }

    /// Refuses everybody for a while.
    fn is_down(&self, is_down: bool) {
        self.said().is_down = is_down;
    }

    /// The status with which a caller is refused.
    fn refusal(&self, key: &str) -> Option<u16> {
        let said = self.said();
        said.refused.get(key).copied().or_else(|| said.is_down.then_some(401))
    }

    /// Whether a caller may see the thread. If not, what is said from now on is not for it.
    fn shows(&self, key: &str) -> bool {
        let is_shown = self.refusal(key).is_none();
        let mut said = self.said();
        let parts = said.parts.len();
        if !is_shown {
            said.barred.entry(key.to_owned()).or_insert(parts);
        }
        is_shown
    }

    fn answers_to(&self, key: &str, question: Asked) -> Result<Reply, Refusal> {
        let Some(status) = self.refusal(key) else {
            if let Some(failed) = self.fails(&question) {
                return Ok(failed);
            }
            return Ok(Reply { response: self.answers(question), retry_after: None });
        };
        let is_missing = status == 404;
        self.said().refusals += 1;
        let answer = match question {
            Asked::Stream(_) => UpstreamAnswer::NoStream(BodyEnd::Refused),
            Asked::State => UpstreamAnswer::State(None),
            Asked::Record => UpstreamAnswer::Record(Err(BodyEnd::Refused)),
            Asked::EndStatus { .. } if is_missing => {
                UpstreamAnswer::EndStatus(EndStatus::Ended(StreamEnd::Gone.into()))
            }
            Asked::EndStatus { .. } => {
                UpstreamAnswer::EndStatus(EndStatus::Unknown("401".to_owned()))
            }
        };
        Err(Refusal { answer: Box::new(answer), is_missing })
    }

    /// The answer of a server that is busy for a moment, if it is.
    fn fails(&self, question: &Asked) -> Option<Reply> {
        const MOST: u64 = 3;
        let mut said = self.said();
        let is_over = said.is_over;
        let chance = said.busy.as_mut()?;
        let (fails, waits) = (chance.of_eight(3), chance.below(3));
        if !fails || said.failures == MOST {
            return None;
        }
        said.failures += 1;
        let why = || BodyEnd::Cut("503".to_owned());
        let answer = match question {
            Asked::Stream(_) => UpstreamAnswer::NoStream(why()),
            Asked::State => UpstreamAnswer::NoState("503".to_owned()),
            Asked::Record => UpstreamAnswer::Record(Err(why())),
            // The record of a run whose stream has ended may lag.
            Asked::EndStatus { .. } if is_over && waits == 1 => {
                UpstreamAnswer::EndStatus(EndStatus::Lagging)
            }
            Asked::EndStatus { .. } => {
                UpstreamAnswer::EndStatus(EndStatus::Unknown("503".to_owned()))
            }
        };
        let retry_after = (waits > 0).then(|| Duration::from_secs(waits));
        Some(Reply { response: Response::UpstreamAnswer(answer), retry_after })
    }

    fn answers(&self, question: Asked) -> Response {
        Response::UpstreamAnswer(match question {
            Asked::Stream(cursor) => {
                return Response::Stream(RunStream {
                    run_id: Some("R".to_owned()),
                    date: None,
                    body: self.connects(&cursor),
                    affinity: None,
                });
            }
            Asked::State => UpstreamAnswer::State(Some(thread_state(&["hi"]))),
            Asked::Record => UpstreamAnswer::Record(Ok(record(RunStatus::Running))),
            Asked::EndStatus { is_whole } => UpstreamAnswer::EndStatus(if self.said().is_over {
                // The state shows the rest of a stream that was not read to its end.
                let state = || FinalState::OfRun(thread_state(&["hi", TEXT]));
                let state = (!is_whole).then(state);
                EndStatus::Ended(Ending {
                    state,
                    kept: StoredDecisions::default(),
                    end: StreamEnd::Succeeded,
                })
            } else {
                EndStatus::Running
            }),
        })
    }
}

/// A request, as far as the answer depends on it.
enum Asked {
    Stream(String),
    State,
    Record,
    EndStatus {
        /// Whether the stream showed the whole run and ended cleanly.
        is_whole: bool,
    },
}

/// The answer to a request in a schedule; `None` in other tests.
pub(super) async fn asked(
    question: &UpstreamRequest,
    upstream: &Client,
) -> Option<Result<Reply, Refusal>> {
    let (schedule, _) = TASK.with_borrow(Clone::clone)?;
    let asked = match question {
        UpstreamRequest::Stream { cursor, .. } => Asked::Stream(cursor.clone()),
        UpstreamRequest::State => Asked::State,
        UpstreamRequest::Record { .. } => Asked::Record,
        UpstreamRequest::EndStatus { seen, end } => Asked::EndStatus {
            is_whole: seen.coverage == Coverage::Whole && *end == BodyEnd::Clean,
        },
    };
    moment().await;
    Some(schedule.world.server.answers_to(&key_of(upstream), asked))
}

/// Whether a caller may see the thread, in a schedule; `None` in other tests.
pub(in crate::runs) async fn is_shown(upstream: &Client) -> Option<bool> {
    let (schedule, _) = TASK.with_borrow(Clone::clone)?;
    moment().await;
    Some(schedule.world.server.shows(&key_of(upstream)))
}

fn key_of(upstream: &Client) -> String {
    let mut keys = upstream.caller().identifying_headers();
    keys.next().map(|(_, key)| String::from_utf8_lossy(key).into_owned()).unwrap_or_default()
}

/// The upstream for a caller: 0 is the owner, others are viewers.
fn for_caller(upstream: &Client, number: usize) -> Client {
    let key = http::HeaderValue::from_str(&format!("caller-{number}")).unwrap();
    let key = (http::HeaderName::from_static("x-api-key"), key);
    upstream.called_by(&crate::upstream::Caller::new([key].into_iter().collect()))
}

/// Lets all other tasks go on as far as they can.
async fn quiet(schedule: &Schedule) {
    let mut is_awaited = false;
    std::future::poll_fn(|_| {
        if std::mem::replace(&mut is_awaited, true) {
            return Poll::Ready(());
        }
        let me = TASK.with_borrow(|task| task.as_ref().map(|(_, me)| *me));
        schedule.state().awaits_quiet = me;
        Poll::Pending
    })
    .await;
}

/// A point at which other tasks may go on, and this one may be dropped.
async fn moment() {
    let mut is_over = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut is_over, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn values(texts: &[&str]) -> Value {
    let message = |(at, text): (usize, &&str)| {
        let kind = if at % 2 == 0 { "human" } else { "ai" };
        json!({"id": format!("m{at}"), "type": kind, "content": text})
    };
    json!({"messages": texts.iter().enumerate().map(message).collect::<Vec<_>>()})
}

/// A thread state with these messages.
fn thread_state(texts: &[&str]) -> String {
    json!({"values": values(texts), "next": [], "tasks": []}).to_string()
}

/// The text of the run, one token a part.
const TEXT: &str = "t0 t1 t2 t3 t4 t5 ";

/// A run of a few tokens, each with an id of its own. Its conversation is known from the second
/// part on.
fn parts() -> Vec<String> {
    let mut parts =
        vec![("metadata", json!({"run_id": "R", "attempt": 1})), ("values", values(&["hi"]))];
    for token in TEXT.split_inclusive(' ') {
        let chunk = json!({"type": "AIMessageChunk", "id": "m1", "content": token});
        parts.push(("messages", json!([chunk, {}])));
    }
    parts.push(("values", values(&["hi", TEXT])));
    let part = |(at, (event, data)): (usize, (&str, Value))| {
        format!("id: {}-0\r\nevent: {event}\r\ndata: {data}\r\n\r\n", 1000 + at)
    };
    parts.into_iter().enumerate().map(part).collect()
}

// === readers ===

/// The state that the tasks of an interleaving share.
struct World {
    server: Server,
    runs: Runs,
    upstream: Client,
    plan: Plan,
    /// How many viewers were shown something at least once.
    shown: watch::Sender<usize>,
    /// The view of each reader's client, by the reader's number.
    held: Mutex<HashMap<usize, String>>,
    through: watch::Sender<usize>,
    drivers: watch::Sender<usize>,
}

/// The options of an interleaving.
#[derive(Clone, Debug)]
struct Plan {
    viewers: usize,
    log_bytes: usize,
    /// Whether the server pauses now and then until all readers have its parts. If time passes, it
    /// pauses once, until all viewers were shown something and have left and returned.
    is_patient: bool,
    /// Whether time passes. All readers may leave then, and the run is joined again.
    has_time: bool,
    trouble: Trouble,
}

/// What happens beside the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    None,
    /// The gateway is shut down at some time.
    Shutdown,
    /// Viewers lose their access, everybody is refused for a while, and connections break.
    Refusals,
    /// Requests fail for a moment, and connections break.
    Busy,
}

// --- impl Plan ---

impl Plan {
    fn goes_down(&self) -> bool {
        self.trouble == Trouble::Shutdown
    }

    fn refuses(&self) -> bool {
        self.trouble == Trouble::Refusals
    }
}

/// A client's view and the events that it was sent.
#[derive(Default)]
struct ClientView {
    view: View,
    events: Vec<RunEvent>,
    /// The id of the last event that it can resume after.
    last: Option<String>,
    number: usize,
}

// --- impl ClientView ---

impl ClientView {
    /// Applies the next events. Returns whether there were any.
    async fn reads(&mut self, reader: &mut RunReader) -> bool {
        let Some(batch) = reader.next().await else { return false };
        assert!(!batch.is_empty());
        for (event, key) in batch.with_keys().skip(batch.delivered()) {
            self.view.apply(event);
            self.events.push(event.clone());
            self.last = key.map(|key| key.to_id("R", 0).to_string());
        }
        true
    }

    /// Publishes what it holds; nothing after it has stopped reading.
    fn notes(&self, world: &World, is_reading: bool) {
        let mut held = world.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.insert(self.number, self.holds());
        if !is_reading || self.has_ended() {
            held.remove(&self.number);
        }
    }

    fn is_shown(&self) -> bool {
        !self.view.messages().is_empty()
    }

    fn has_ended(&self) -> bool {
        matches!(self.events.last(), Some(RunEvent::Ended { .. }))
    }

    fn holds(&self) -> String {
        format!("{:?} {:?}", self.view.messages(), self.view.state())
    }

    /// Checks that it was sent everything, and the run's end.
    fn is_done(&self, plan: &Plan) {
        let Some(RunEvent::Ended { outcome, .. }) = self.events.last() else {
            panic!("no end: {:#?}", self.events);
        };
        if plan.goes_down()
            && matches!(outcome, Outcome::Failed(failure) if failure.loss() == Some(LossReason::Shutdown))
        {
            return;
        }
        assert!(matches!(outcome, Outcome::Finished { .. }), "{outcome:?}");
        let (holds, _) = uncut(self.options());
        assert_eq!(self.holds(), *holds);
    }

    fn options(&self) -> EmitOptions {
        options(self.number)
    }

    /// Checks that it was sent everything, or what it may see.
    fn is_done_as_far_as_it_may(&self, world: &World) {
        let barred = world.server.said().barred.get(&format!("caller-{}", self.number)).copied();
        let Some(said) = barred else { return self.is_done(&world.plan) };
        self.has_no_more_than(said);
        let Some(RunEvent::Ended { outcome, .. }) = self.events.last() else {
            panic!("no end: {:#?}", self.events);
        };
        match outcome {
            Outcome::Failed(failure) => assert_eq!(failure.loss(), Some(LossReason::Unavailable)),
            Outcome::Finished { .. }
            | Outcome::Interrupted(_)
            | Outcome::Cancelled
            | Outcome::Idle { .. } => self.is_done(&world.plan),
        }
    }

    /// Checks that it holds none of the parts after the first `said`.
    fn has_no_more_than(&self, said: usize) {
        let holds = self.holds();
        for token in said.saturating_sub(2)..6 {
            assert!(!holds.contains(&format!("t{token} ")), "{said} parts, but it has {holds}");
        }
    }
}

/// The options of a client. Every second viewer belongs to an audience that is shown less.
fn options(number: usize) -> EmitOptions {
    let less = EmitOptions { state: StateEvents::Final, steps: false, ..EmitOptions::default() };
    if number % 2 == 1 { less } else { EmitOptions::default() }
}

/// The view of a client that has read all events with these options, and those events.
fn uncut(options: EmitOptions) -> &'static (String, Vec<RunEvent>) {
    static UNCUT: [OnceLock<(String, Vec<RunEvent>)>; 2] = [OnceLock::new(), OnceLock::new()];
    UNCUT[usize::from(options == EmitOptions::default())].get_or_init(|| {
        let mut decoder = RunDecoder::new("T", Some("R"), Some("R"));
        let mut events = Events::default();
        decoder.start(&mut events);
        decoder.read(parts().concat().as_bytes(), &mut events).unwrap();
        decoder.end(None, StreamEnd::Succeeded, &mut events);
        let mut events = events.to_vec();
        if let Some(mut filter) = Filter::new(options) {
            let all = std::mem::take(&mut events);
            for event in all {
                filter.show(event, &|| decoder.conversation(), &mut events);
            }
        }
        let mut client = ClientView::default();
        for event in &events {
            client.view.apply(event);
        }
        (client.holds(), events)
    })
}

/// The client that started the run. It leaves at some time if it may; else it is sent each event
/// once.
async fn owner(schedule: Arc<Schedule>, mut reader: RunReader, leaves_after: Option<u64>) {
    let world = &schedule.world;
    let mut client = ClientView::default();
    let mut batches = 0;
    client.notes(world, true);
    while leaves_after.is_none_or(|limit| batches < limit) && client.reads(&mut reader).await {
        batches += 1;
        client.notes(world, true);
    }
    client.notes(world, false);
    if leaves_after.is_none() || client.has_ended() {
        client.is_done(&world.plan);
        let is_whole = world.plan.log_bytes > 10_000 && !world.plan.goes_down();
        if is_whole && !world.plan.refuses() {
            assert_eq!(client.events, uncut(client.options()).1);
        }
    }
    drop(reader);
    world.through.send_modify(|count| *count += 1);
}

/// A client that attaches, may leave, and reconnects.
async fn viewer(schedule: Arc<Schedule>, number: usize, mut chance: Chance) {
    let world = &schedule.world;
    let mut client = ClientView { number, ..ClientView::default() };
    let mut was_shown = false;
    for visit in 0.. {
        let away = if world.plan.has_time { 60 } else { 16 };
        for _ in 0..chance.below(away) {
            moment().await;
        }
        let last = client.last.take().filter(|_| visit > 0);
        if world.server.refusal(&format!("caller-{number}")).is_some() {
            break;
        }
        let Some((mut reader, goes_on)) = attach(&schedule, number, last.as_deref()) else {
            // The run is over, and the thread is idle.
            assert!(world.server.said().is_over || world.plan.goes_down());
            break;
        };
        if !goes_on {
            client = ClientView { number, ..ClientView::default() };
        }
        client.notes(world, true);
        // On the last visit it stays to the end.
        let leaves = if world.plan.has_time { visit < 4 } else { visit < 2 && chance.of_eight(4) };
        let mut leaves_after = leaves.then(|| chance.below(4));
        loop {
            if leaves_after == Some(0) && (was_shown || world.plan.has_time) {
                break;
            }
            leaves_after = leaves_after.map(|left| left.saturating_sub(1));
            let reads = client.reads(&mut reader);
            let has_read = if leaves_after.is_some() && world.plan.has_time {
                // A client that will leave has limited patience.
                tokio::time::timeout(Duration::from_secs(chance.below(9)), reads).await
            } else {
                Ok(reads.await)
            };
            if !has_read.unwrap_or_default() {
                break;
            }
            client.notes(world, true);
            let stays = leaves_after.is_none() || !world.plan.has_time;
            if !was_shown && stays && (client.is_shown() || client.has_ended()) {
                was_shown = true;
                world.shown.send_modify(|count| *count += 1);
            }
        }
        client.notes(world, false);
        if client.has_ended() {
            client.is_done_as_far_as_it_may(world);
            break;
        }
    }
    if !was_shown {
        world.shown.send_modify(|count| *count += 1);
    }
    world.through.send_modify(|count| *count += 1);
}

/// Attaches as [`Runs::attach`] does; if time passes, as [`Runs::read`] does. Returns also whether
/// the reader continues after the client's last event.
fn attach(
    schedule: &Arc<Schedule>,
    number: usize,
    last: Option<&str>,
) -> Option<(RunReader, bool)> {
    let world = &schedule.world;
    let upstream = for_caller(&world.upstream, number);
    let (Runs { shared, .. }, emit) = (&world.runs, options(number));
    let (run, _wanted) = if world.plan.has_time {
        if world.plan.goes_down() && shared.shutdown.is_cancelled() {
            return None;
        }
        let (attached, driver) = shared.find_or_join(JoinedRun {
            upstream: &upstream,
            server: Capabilities::PYTHON,
            thread_id: "T",
            record: record(RunStatus::Running),
            source: Source::Stream,
            emit,
        });
        if let Some((driver, reading)) = driver {
            drives(schedule, driver, reading, None);
        }
        attached
    } else {
        shared.live.find(&RunKey::of(&world.upstream, "T", "R", Rendering::default()), emit)?
    };
    pass();
    let event = last.and_then(|last| last.parse::<EventId>().ok());
    // If events may be evicted, the last event may not be found.
    Some(match event.filter(|_| !world.plan.has_time && world.plan.log_bytes > 10_000) {
        Some(event) => (RunReader::after(run, event).for_caller(&upstream), true),
        None => (RunReader::from_now(run, Baseline::Empty).for_caller(&upstream), false),
    })
}

fn drives(schedule: &Arc<Schedule>, mut driver: Driver, mut reading: Reading, body: Option<Body>) {
    schedule.world.drivers.send_modify(|count| *count += 1);
    let at = Arc::clone(schedule);
    schedule.spawn("driver", async move {
        driver.drive(&mut reading, body).await;
        at.world.drivers.send_modify(|count| *count -= 1);
    });
}

/// The task that makes the server send.
async fn server(schedule: Arc<Schedule>, mut chance: Chance) {
    let world = &schedule.world;
    // Every reader is shown a run whose conversation is known.
    let silent_at = 2 + usize::try_from(chance.below(7)).unwrap();
    for (at, part) in parts().iter().enumerate() {
        if world.plan.is_patient && world.plan.has_time && at == silent_at {
            let viewers = world.plan.viewers;
            let mut shown = world.shown.subscribe();
            shown.wait_for(|shown| *shown == viewers).await.unwrap();
        }
        if world.plan.is_patient && !world.plan.has_time && chance.of_eight(4) {
            quiet(&schedule).await;
            all_hold(world, at);
        }
        world.server.says(part);
        while chance.of_eight(4) {
            moment().await;
            world.server.is_alive();
        }
        let silence = if world.plan.has_time { chance.below(40) } else { 1 };
        for _ in 0..silence {
            moment().await;
        }
    }
    world.server.ends();
}

/// The task that withdraws the access of viewers, never the owner's, and breaks connections. Once
/// it refuses everybody for a while.
async fn authority(schedule: Arc<Schedule>, mut chance: Chance) {
    let world = &schedule.world;
    let outage = chance.below(4);
    for round in 0..4 {
        for _ in 0..chance.below(40) {
            moment().await;
        }
        world.server.is_down(world.plan.refuses() && round == outage);
        let status = [401, 403, 404][usize::try_from(chance.below(3)).unwrap()];
        let viewer = 1 + chance.below(world.plan.viewers as u64);
        if world.plan.refuses() && chance.of_eight(5) {
            world.server.withdraws(&format!("caller-{viewer}"), status);
        }
        if chance.of_eight(6) {
            world.server.cuts();
        }
    }
    world.server.is_down(false);
}

/// Checks that no reader still waits for the first `said` parts.
fn all_hold(world: &World, said: usize) {
    let Runs { shared, .. } = &world.runs;
    let newest = match said {
        0 | 1 => return,
        2 => "hi".to_owned(),
        _ => format!("t{} ", (said - 3).min(5)),
    };
    if !shared.shutdown.is_cancelled() {
        for (number, held) in &*world.held.lock().unwrap_or_else(PoisonError::into_inner) {
            assert!(held.contains(&newest), "reader {number} waits for {newest:?}: {held}");
        }
    }
}

/// Makes time pass, until all other tasks are over.
async fn clock(schedule: Arc<Schedule>, mut chance: Chance) {
    let world = &schedule.world;
    let everybody = world.plan.viewers + 1;
    let is_over = || *world.through.borrow() == everybody && *world.drivers.borrow() == 0;
    if !world.plan.has_time {
        let mut through = world.through.subscribe();
        through.wait_for(|through| *through == everybody).await.unwrap();
    }
    while !is_over() {
        let ticks = [10, 300, 2_000, 5_000];
        let tick = Duration::from_millis(ticks[usize::try_from(chance.below(4)).unwrap()]);
        schedule.runtime.block_on(tokio::time::advance(tick));
        moment().await;
    }
}

/// What has happened in an interleaving.
struct Interleaved {
    /// A hash of all decisions.
    trace: u64,
    /// How many times the run was read.
    readings: usize,
    refusals: u64,
    failures: u64,
    barred: usize,
}

/// Runs one interleaving. Returns the failure, if there is one.
fn interleave(seed: u64, plan: Plan) -> Result<Interleaved, String> {
    static UPSTREAM: OnceLock<Client> = OnceLock::new();
    let base = || "http://127.0.0.1:1".parse().unwrap();
    let upstream = UPSTREAM.get_or_init(|| Client::new(base(), None).unwrap()).clone();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.unwrap();
    let shutdown = CancellationToken::new();
    let metrics = Metrics::default();
    let runs = Runs::new(plan.log_bytes, OwnerPolicy::Continue, metrics, shutdown.clone());
    let mut chance = Chance::new(seed);
    // Some interleavings switch tasks often, and some seldom.
    let stays = [0, 4, 7][usize::try_from(chance.below(3)).unwrap()];
    let zero = || watch::Sender::new(0);
    let world = World {
        server: Server::default(),
        runs,
        upstream,
        plan,
        shown: zero(),
        held: Mutex::default(),
        through: zero(),
        drivers: zero(),
    };
    let state = State {
        chance: chance.clone(),
        stays,
        tasks: Vec::new(),
        threads: Vec::new(),
        turns: 0,
        awaits_quiet: None,
        trace: DefaultHasher::new(),
        failure: None,
    };
    let schedule = Arc::new(Schedule {
        state: Mutex::new(state),
        turn: AtomicUsize::new(NOBODY - 1),
        is_broken: AtomicBool::new(false),
        main: std::thread::current(),
        runtime,
        world,
    });
    begin(&schedule, chance);
    schedule.hand_on(NOBODY);
    while schedule.turn.load(Ordering::SeqCst) != NOBODY
        && !schedule.is_broken.load(Ordering::SeqCst)
    {
        std::thread::park();
    }
    loop {
        // The lock is not held while a thread ends.
        let thread = schedule.state().threads.pop();
        let Some(thread) = thread else { break };
        let _ = thread.join();
    }
    let left = schedule.world.runs.shared.live.lock().len();
    let mut state = schedule.state();
    if let Some(failure) = state.failure.take() {
        return Err(failure);
    }
    if left > 0 {
        return Err("a run is listed that nobody reads".to_owned());
    }
    let readings = state.tasks.iter().filter(|task| task.name == "driver").count();
    let trace = state.trace.finish();
    let said = schedule.world.server.said();
    let (refusals, failures, barred) = (said.refusals, said.failures, said.barred.len());
    Ok(Interleaved { trace, readings, refusals, failures, barred })
}

/// Starts the first tasks.
fn begin(schedule: &Arc<Schedule>, mut chance: Chance) {
    let _context = schedule.runtime.enter();
    let world = &schedule.world;
    if world.plan.trouble == Trouble::Busy {
        world.server.said().busy = Some(Chance::new(chance.below(u64::MAX)));
    }
    let Runs { shared, .. } = &world.runs;
    // As `Runs::started` does.
    let mut decoder = RunDecoder::new("T", Some("R"), Some("R"));
    let upstream = for_caller(&world.upstream, 0);
    let credentials = Arc::new(CredentialRing::new(upstream.clone(), true));
    let Opened { run, publisher } =
        shared.open(&mut decoder, History::Complete, &credentials, EmitOptions::default());
    let reading = Reading::started(decoder, Capabilities::PYTHON, Seed::fixed(), Instant::now());
    let reader = RunReader::for_owner(Arc::clone(&run)).for_caller(&upstream);
    let driver = Driver::new(DriverParts {
        upstream,
        credentials,
        publisher,
        shared: Arc::clone(shared),
        origin: Origin::Started,
        affinity: None,
    });
    drives(schedule, driver, reading, Some(world.server.connects("-1")));

    let leaves = world.plan.has_time && !world.plan.refuses();
    let leaves_after = leaves.then(|| chance.below(4));
    schedule.spawn("owner", owner(Arc::clone(schedule), reader, leaves_after));
    for n in 0..world.plan.viewers {
        let own = Chance::new(chance.below(u64::MAX));
        schedule.spawn(&format!("viewer {n}"), viewer(Arc::clone(schedule), n + 1, own));
    }
    schedule.spawn("server", server(Arc::clone(schedule), chance.clone()));
    schedule.add("clock", true, clock(Arc::clone(schedule), chance.clone()));
    if matches!(world.plan.trouble, Trouble::Refusals | Trouble::Busy) {
        schedule.spawn("authority", authority(Arc::clone(schedule), chance.clone()));
    }
    if world.plan.goes_down() {
        let (shutdown, waits) = (shared.shutdown.clone(), chance.below(60));
        schedule.spawn("shutdown", async move {
            for _ in 0..waits {
                moment().await;
            }
            shutdown.cancel();
        });
    }
}

/// Runs interleavings of plans. Panics at the first seed that fails.
fn explore(plan: impl Fn(&mut Chance) -> Plan) -> Explored {
    let count = std::env::var_os("THREADWAY_SCHEDULES");
    let count = count.and_then(|count| count.to_str()?.parse().ok()).unwrap_or(SCHEDULES);
    let (mut traces, mut joined_again) = (HashSet::new(), 0);
    let (mut refusals, mut failures, mut barred) = (0, 0, 0);
    for seed in 0..count {
        let plan = plan(&mut Chance::new(seed));
        match interleave(seed, plan.clone()) {
            Ok(run) => {
                traces.insert(run.trace);
                joined_again += u64::from(run.readings > 1);
                refusals += run.refusals;
                failures += run.failures;
                barred += run.barred;
            }
            Err(failure) => panic_any(format!("seed {seed}, {plan:?}: {failure}")),
        }
    }
    let different = traces.len() as u64;
    let explored = Explored { count, different, joined_again, refusals, failures, barred };
    println!("{explored:?}");
    assert!(explored.different > count * 9 / 10, "{explored:?}");
    explored
}

/// How much was explored.
#[derive(Debug)]
struct Explored {
    count: u64,
    different: u64,
    /// In how many the run was no longer read, and then joined again.
    joined_again: u64,
    /// How many requests were refused.
    refusals: u64,
    /// How many requests failed for a moment.
    failures: u64,
    /// How many callers were shown no more.
    barred: usize,
}

/// A log size for the whole run, or for one or two parts.
fn log_bytes(chance: &mut Chance) -> usize {
    if chance.of_eight(4) { 1 << 20 } else { 300 }
}

/// Time stands still: only a notification, a permit or an event lets a task go on.
#[test]
fn no_reader_waits_for_ever_and_all_come_to_the_same_end() {
    explore(|chance| Plan {
        viewers: 3,
        log_bytes: log_bytes(chance),
        is_patient: chance.of_eight(5),
        has_time: false,
        trouble: Trouble::None,
    });
}

/// All readers may leave, and the run is unlisted. A later client finds a run with a driver, or none.
#[test]
fn a_run_that_is_found_is_read_to_its_end_whoever_leaves() {
    let explored = explore(|chance| Plan {
        viewers: 3,
        log_bytes: log_bytes(chance),
        is_patient: chance.of_eight(4),
        has_time: true,
        trouble: Trouble::None,
    });
    assert!(explored.joined_again > explored.count / 10, "{explored:?}");
}

/// The owner's credentials are good at the run's end, so it gets everything, whichever viewers come,
/// leave and are refused. A refused viewer gets nothing that only others' credentials could read.
#[test]
fn refused_viewers_take_nothing_from_the_owner_and_get_nothing_that_is_not_for_them() {
    let explored = explore(|chance| Plan {
        viewers: 3,
        log_bytes: log_bytes(chance),
        is_patient: false,
        has_time: true,
        trouble: Trouble::Refusals,
    });
    assert!(explored.refusals > explored.count / 2, "{explored:?}");
    assert!(explored.barred > 0, "{explored:?}");
}

#[test]
fn requests_that_fail_for_a_moment_cost_no_reader_anything() {
    let explored = explore(|chance| Plan {
        viewers: 3,
        log_bytes: log_bytes(chance),
        is_patient: false,
        has_time: true,
        trouble: Trouble::Busy,
    });
    assert!(explored.failures > explored.count / 2, "{explored:?}");
}

#[test]
fn when_the_gateway_shuts_down_each_reader_is_sent_an_end() {
    explore(|chance| Plan {
        viewers: 3,
        log_bytes: log_bytes(chance),
        is_patient: chance.of_eight(2),
        has_time: chance.of_eight(4),
        trouble: Trouble::Shutdown,
    });
}

/// A future has room for all that it may await, and room twice for what it takes as a value.
#[test]
fn the_task_of_a_run_has_no_room_for_rare_requests() {
    fn size<A, F: Future>(_: fn(A) -> F) -> usize {
        size_of::<F>()
    }
    type Parts = (&'static mut Driver, &'static mut Reading, Option<Body>);
    let waiting = size(|(driver, reading, body): Parts| driver.drive(reading, body));
    let all = waiting + size_of::<Driver>() + size_of::<Reading>();
    assert!(all < 8 * 1024, "the task takes {all} bytes, {waiting} of them to wait");
}
