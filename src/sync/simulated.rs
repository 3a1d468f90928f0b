//! A runtime for tests, whose schedule, time and random numbers all come from one seed.
//!
//! It has one thread and runs one task at a time. Which of the woken tasks is polled next is
//! decided by the seed. The seed also decides at each [`crate::sync::Mutex`], before the lock and
//! after it, whether other tasks are polled in the middle of the running one, as another thread of
//! the runtime would do. Such a task returns before the interrupted one goes on.
//!
//! Time is tokio's paused clock: it stands still while a task can go on, and then jumps to the next
//! timer. Tasks that tokio itself spawned run too, in the order in which they were woken.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tokio::time::Instant;

use super::turns;

/// After how many polls a schedule has come to no end.
const MAX_POLLS: u64 = 3_000_000;

/// After which time a schedule has come to no end.
const MAX_TIME: Duration = Duration::from_hours(24);

/// How many tasks are polled inside of each other.
const MAX_DEPTH: u32 = 3;

/// How many of the last notes a failure shows.
const NOTES: usize = 400;

/// Pseudo-random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

/// The result of a schedule that held what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completed {
    /// A hash of all decisions and notes.
    pub(crate) trace: u64,
    pub(crate) polls: u64,
    /// How many polls took place in the middle of another.
    pub(crate) nested: u64,
}

/// Opens a connection to an authority.
type Network = Rc<dyn Fn(&str) -> io::Result<DuplexStream>>;

struct Runtime {
    state: RefCell<State>,
}

struct State {
    chance: Chance,
    tasks: Vec<Task>,
    next_id: u64,
    trace: DefaultHasher,
    /// When the first note was made.
    began: Option<Instant>,
    polls: u64,
    nested: u64,
    depth: u32,
    policy: Policy,
    /// In how many of 256 cases another task is polled at a lock.
    preempts: u64,
    /// In how many of 256 cases the tasks of tokio get a turn after a poll.
    yields: u64,
    network: Option<Network>,
    notes: VecDeque<String>,
    failure: Option<String>,
}

struct Task {
    id: u64,
    name: String,
    woken: Arc<Woken>,
    /// `None` while it is polled.
    future: Option<Pin<Box<dyn Future<Output = ()>>>>,
    priority: u64,
}

/// How the next task is chosen.
#[derive(Clone, Copy, Debug)]
enum Policy {
    /// Each woken task with the same chance.
    Uniform,
    /// The woken task with the highest priority. Priorities are drawn, and now and then again.
    Priorities,
}

struct Woken(AtomicBool);

/// A socket, or a pipe of the simulated network.
#[derive(Debug)]
pub(crate) enum Socket<T> {
    Real(T),
    Simulated(TokioIo<DuplexStream>),
}

thread_local! {
    static RUNTIME: RefCell<Option<Rc<Runtime>>> = const { RefCell::new(None) };
    /// Wakes the loop that polls the tasks.
    static LOOP: RefCell<Option<Waker>> = const { RefCell::new(None) };
}

/// Runs a schedule until `main` has ended. An error has the last notes, and then the seed and what
/// was wrong on its last line.
pub(crate) fn run(
    seed: u64,
    main: impl Future<Output = ()> + 'static,
) -> Result<Completed, String> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let clock = builder.enable_time().start_paused(true).build().unwrap();
    let runtime = Rc::new(Runtime { state: RefCell::new(State::new(seed)) });
    RUNTIME.set(Some(Rc::clone(&runtime)));
    turns::use_on_this_thread(at_lock);
    let main_id = runtime.add("main".to_owned(), Box::pin(main));
    let all = std::future::poll_fn(|cx| {
        LOOP.set(Some(cx.waker().clone()));
        loop {
            if runtime.is_over(main_id) {
                return Poll::Ready(());
            }
            if !runtime.poll_one() {
                return Poll::Pending;
            }
            let mut state = runtime.state.borrow_mut();
            let yields = state.yields;
            if state.chance.below(256) < yields {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    });
    let ended = clock
        .block_on(tokio::task::unconstrained(async { tokio::time::timeout(MAX_TIME, all).await }));
    if ended.is_err() {
        runtime.fail(format!("these wait for ever: {:?}", runtime.waiting()));
    }
    // What is dropped now schedules nothing any more.
    RUNTIME.set(None);
    LOOP.set(None);
    let guard = clock.enter();
    let tasks = std::mem::take(&mut runtime.state.borrow_mut().tasks);
    drop(tasks);
    drop(guard);
    drop(clock);
    let mut state = runtime.state.borrow_mut();
    state.network = None;
    let completed =
        Completed { trace: state.trace.finish(), polls: state.polls, nested: state.nested };
    match state.failure.take() {
        None => Ok(completed),
        Some(failure) => {
            let notes: Vec<_> = state.notes.drain(..).collect();
            Err(format!("{}\nseed {seed}: {failure}", notes.join("\n")))
        }
    }
}

/// Whether this thread runs a schedule.
pub(crate) fn is_running() -> bool {
    RUNTIME.with_borrow(Option::is_some)
}

/// Starts a task that is named after the place where it is spawned.
pub(crate) fn spawn(at: &Location<'_>, task: impl Future<Output = ()> + 'static) {
    start(format!("{}:{}", at.file(), at.line()), task);
}

/// Starts a task.
pub(crate) fn start(name: impl Into<String>, task: impl Future<Output = ()> + 'static) {
    if let Some(runtime) = current() {
        runtime.add(name.into(), Box::pin(task));
    }
}

/// A number of the seed; `None` outside of schedules.
pub(crate) fn number() -> Option<u64> {
    current().map(|runtime| runtime.state.borrow_mut().chance.next())
}

/// A sequence of its own.
pub(crate) fn chance() -> Chance {
    Chance(number().unwrap_or_default())
}

/// Has all upstream connections of this thread made by `dial`.
pub(crate) fn connect_by(dial: impl Fn(&str) -> io::Result<DuplexStream> + 'static) {
    if let Some(runtime) = current() {
        runtime.state.borrow_mut().network = Some(Rc::new(dial));
    }
}

/// A connection of the simulated network; `None` outside of schedules.
pub(crate) fn dial(authority: &str) -> Option<io::Result<TokioIo<DuplexStream>>> {
    let network = current()?.state.borrow().network.clone()?;
    Some(network(authority).map(TokioIo::new))
}

/// Adds to what a failure shows, and to the trace.
pub(crate) fn note(text: impl FnOnce() -> String) {
    let Some(runtime) = current() else { return };
    let now = Instant::now();
    let began = *runtime.state.borrow_mut().began.get_or_insert(now);
    let text = format!("{:>9} {}", (now - began).as_millis(), text());
    let mut state = runtime.state.borrow_mut();
    text.hash(&mut state.trace);
    if state.notes.len() == NOTES {
        state.notes.pop_front();
    }
    state.notes.push_back(text);
}

/// Ends the schedule with a failure.
pub(crate) fn fail(why: String) {
    if let Some(runtime) = current() {
        runtime.fail(why);
    }
}

/// The names of the tasks that have not ended.
pub(crate) fn waiting() -> Vec<String> {
    current().map(|runtime| runtime.waiting()).unwrap_or_default()
}

fn current() -> Option<Rc<Runtime>> {
    RUNTIME.with_borrow(Clone::clone)
}

/// A point at which another thread could go on.
fn at_lock() {
    let Some(runtime) = current() else { return };
    if std::thread::panicking() {
        return;
    }
    {
        let Ok(mut state) = runtime.state.try_borrow_mut() else { return };
        let preempts = state.preempts;
        if state.depth == 0 || state.depth >= MAX_DEPTH || state.chance.below(256) >= preempts {
            return;
        }
    }
    while runtime.poll_one() && runtime.state.borrow_mut().chance.below(2) == 0 {}
}

// === impl Chance ===

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Whether one of `of` equal chances has come.
    pub(crate) fn one_of(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    /// Whether one of these, of eight equal chances, has come.
    pub(crate) fn of_eight(&mut self, chances: u64) -> bool {
        self.below(8) < chances
    }
}

// === impl State ===

impl State {
    fn new(seed: u64) -> Self {
        let mut chance = Chance(seed);
        let policy = if chance.one_of(2) { Policy::Uniform } else { Policy::Priorities };
        let preempts = [0, 2, 16, 64][usize::try_from(chance.below(4)).unwrap()];
        let yields = [8, 64, 255][usize::try_from(chance.below(3)).unwrap()];
        Self {
            chance,
            tasks: Vec::new(),
            next_id: 0,
            trace: DefaultHasher::new(),
            began: None,
            polls: 0,
            nested: 0,
            depth: 0,
            policy,
            preempts,
            yields,
            network: None,
            notes: VecDeque::new(),
            failure: None,
        }
    }

    /// Chooses a woken task.
    fn choose(&mut self) -> Option<usize> {
        let is_ready = |task: &Task| task.future.is_some() && task.woken.0.load(Ordering::Relaxed);
        let ready: Vec<_> = (0..self.tasks.len()).filter(|at| is_ready(&self.tasks[*at])).collect();
        if ready.is_empty() {
            return None;
        }
        match self.policy {
            Policy::Uniform => {
                let at = self.chance.below(ready.len() as u64);
                Some(ready[usize::try_from(at).unwrap()])
            }
            Policy::Priorities => {
                let at = ready.into_iter().max_by_key(|at| self.tasks[*at].priority)?;
                if self.chance.one_of(16) {
                    self.tasks[at].priority = self.chance.next();
                }
                Some(at)
            }
        }
    }
}

// === impl Runtime ===

impl Runtime {
    fn add(&self, name: String, future: Pin<Box<dyn Future<Output = ()>>>) -> u64 {
        let mut state = self.state.borrow_mut();
        let (id, priority) = (state.next_id, state.chance.next());
        state.next_id += 1;
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        state.tasks.push(Task { id, name, woken, future: Some(future), priority });
        drop(state);
        wake_loop();
        id
    }

    fn is_over(&self, main_id: u64) -> bool {
        let state = self.state.borrow();
        state.failure.is_some() || state.tasks.iter().all(|task| task.id != main_id)
    }

    /// Polls one of the woken tasks. Returns whether there was one.
    fn poll_one(&self) -> bool {
        let (id, mut future, waker) = {
            let mut state = self.state.borrow_mut();
            if state.failure.is_some() {
                return false;
            }
            let Some(at) = state.choose() else { return false };
            state.polls += 1;
            state.depth += 1;
            state.nested += u64::from(state.depth > 1);
            let task = &mut state.tasks[at];
            task.woken.0.store(false, Ordering::Relaxed);
            let id = task.id;
            let (future, waker) = (task.future.take(), Waker::from(Arc::clone(&task.woken)));
            id.hash(&mut state.trace);
            (id, future.expect("a chosen task has its future"), waker)
        };
        let mut cx = Context::from_waker(&waker);
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut cx)));
        let mut state = self.state.borrow_mut();
        state.depth -= 1;
        let at = state.tasks.iter().position(|task| task.id == id);
        let at = at.expect("a task that is polled is listed");
        match polled {
            Ok(Poll::Pending) => {
                state.tasks[at].future = Some(future);
                drop(state);
            }
            Ok(Poll::Ready(())) => {
                let task = state.tasks.remove(at);
                drop(state);
                drop((task, future));
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
                let name = state.tasks[at].name.clone();
                drop(state);
                self.fail(format!("{name}: {}", text.unwrap_or_default()));
                std::mem::forget(future);
            }
        }
        if self.state.borrow().polls > MAX_POLLS {
            self.fail(format!("it comes to no end: {:?}", self.waiting()));
        }
        true
    }

    fn fail(&self, why: String) {
        self.state.borrow_mut().failure.get_or_insert(why);
        wake_loop();
    }

    fn waiting(&self) -> Vec<String> {
        self.state.borrow().tasks.iter().map(|task| task.name.clone()).collect()
    }
}

// === impl Woken ===

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
        wake_loop();
    }
}

fn wake_loop() {
    let waker = LOOP.try_with(|waker| waker.borrow().clone());
    if let Ok(Some(waker)) = waker {
        waker.wake();
    }
}

// === impl Socket ===

impl<T> From<T> for Socket<T> {
    fn from(socket: T) -> Self {
        Self::Real(socket)
    }
}

impl<T: Read + Unpin> Read for Socket<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Real(socket) => Pin::new(socket).poll_read(cx, buffer),
            Self::Simulated(socket) => Pin::new(socket).poll_read(cx, buffer),
        }
    }
}

impl<T: Write + Unpin> Write for Socket<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Real(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Simulated(socket) => Pin::new(socket).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Real(socket) => Pin::new(socket).poll_flush(cx),
            Self::Simulated(socket) => Pin::new(socket).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Real(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Simulated(socket) => Pin::new(socket).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Real(socket) => socket.is_write_vectored(),
            Self::Simulated(socket) => socket.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Real(socket) => Pin::new(socket).poll_write_vectored(cx, slices),
            Self::Simulated(socket) => Pin::new(socket).poll_write_vectored(cx, slices),
        }
    }
}
