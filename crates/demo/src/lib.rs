//! A scripted LangGraph API server, for `threadway demo` and for tests. It needs no Python and no
//! model.
//!
//! The graphs play fixed scripts, but the API is real: threads with checkpoints, runs, streams,
//! replays, interrupts and cancellation. [`Demo::routes`] is an [`axum::Router`] to serve on any
//! listener.
//!
//! ```text
//!  routes -> Server -> Store -> Thread -> Checkpoint
//!    |         |                  `-----> Run: record, log <- listen: streams, joins, waits
//!    |         `-> scheduler: one task per busy thread -> engine -> script: what a graph emits
//!    `-> request, wire: bodies in, the Python server's format out
//! ```
//!
//! The crate shares no types with the gateway, so that it can contradict the gateway's reading of
//! LangGraph. It is a test peer and not the core, so it may build JSON with [`serde_json::json!`].
//!
//! # Differences from LangGraph
//!
//! The server imitates langgraph-api 0.16.7 as observed, with these differences:
//!
//! - Refused with 422: the stream modes `messages`, `events`, `tasks`, `checkpoints` and `debug`,
//!   static breakpoints, `after_seconds`, webhooks, feedback keys, and commands other than `resume`
//!   and `update`.
//! - Answered with 404: stateless runs, thread streams, crons, the store.
//! - Ignored: `stream_subgraphs`, because no graph has a subgraph, and a search's `extract`.
//! - Replays are in order and without repeats. The real server repeats parts where a replay meets
//!   the live stream. Ids have the resolution of a millisecond and may repeat in both.
//! - The limits below are the demo's own. A run too many is refused with 503; a state that is too
//!   large fails its run.
//! - The middleware of a real `approval` graph keeps a private key in the state for edited calls.
//!   Here the edited call is stored with the task. A resume without a question ends the run.
//! - Records leave out the server's internals (`langgraph_request_id`, `__request_start_time_ms__`
//!   and the like).
//! - Joining a finished run returns that run's last state, not the thread's.
//! - Schemas are short, and a 422 for a malformed body is worded differently.

mod clock;
mod engine;
mod listen;
mod request;
mod routes;
mod run;
mod scheduler;
mod script;
mod state;
mod store;
mod thread;
mod wire;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use clock::{Clock, Moment};
pub use listen::HEARTBEAT_INTERVAL;
use script::Graph;
use store::Store;

/// The id of the thread on which background runs start.
pub const WATCHED_THREAD: &str = "7e11ad3a-0000-4000-8000-00000000feed";

/// The same id, parsed.
const WATCHED_ID: Uuid = Uuid::from_u128(0x7e11_ad3a_0000_4000_8000_0000_0000_feed);

/// The time from one background run to the next.
pub const BACKGROUND_PERIOD: Duration = Duration::from_secs(20);

/// The graphs, each with its name and description.
pub const GRAPHS: [(&str, &str); 4] = {
    let [a, b, c, d] = Graph::ALL;
    [
        a.name_and_description(),
        b.name_and_description(),
        c.name_and_description(),
        d.name_and_description(),
    ]
};

/// The largest request body: a message with a small image. The gateway allows twenty times as much,
/// but a script has no use for it.
const MAX_BODY_BYTES: usize = 512 * 1024;

/// The largest state of a thread. Every superstep emits it and stores it whole.
const MAX_STATE_BYTES: usize = 512 * 1024;

/// The most bytes of all threads together, of states and run requests: some thousand turns. The
/// thread that has been idle for longest is dropped.
const MAX_STORE_BYTES: usize = 32 * 1024 * 1024;

/// The most threads. The one that has been idle for longest is dropped.
const MAX_THREADS: usize = 100;

/// The most checkpoints of a thread: about twenty turns, or forty background runs.
const MAX_CHECKPOINTS: usize = 160;

/// The most bytes of a thread's checkpoints, so that one thread cannot fill the store.
const MAX_CHECKPOINT_BYTES: usize = 4 * 1024 * 1024;

/// The most run records of a thread: several pages of a list.
const MAX_RUNS_KEPT: usize = 50;

/// The most runs that are pending or running on all threads: more than a person can watch.
const MAX_LIVE_RUNS: usize = 50;

/// How many finished runs can be replayed, for viewers that were disconnected.
const MAX_REPLAYS: usize = 32;

/// The most bytes of a run's log: the states of seven supersteps, and the tokens. Older parts
/// cannot be replayed.
const MAX_LOG_BYTES: usize = 4 * 1024 * 1024;

/// The versions that the demo imitates.
const API_VERSION: &str = "0.16.7";
const LANGGRAPH_VERSION: &str = "1.2.22";

/// A scripted LangGraph server.
#[derive(Clone, Debug)]
pub struct Demo(Arc<Server>);

/// How fast the scripts play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The pause before a token.
    beat: Duration,
}

/// The state that all requests and runs share.
#[derive(Debug)]
struct Server {
    clock: Clock,
    began: Moment,
    pace: Pace,
    /// A std mutex: it is never held across an await.
    store: Mutex<Store>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

// === impl Demo ===

impl Demo {
    /// A demo without threads. It stops when `shutdown` is cancelled.
    pub fn new(pace: Pace, shutdown: CancellationToken) -> Self {
        Self::with(Clock::new(), pace, shutdown)
    }

    /// The same, if it is now this long after 1970. Ids are made of the time, so a test with a
    /// paused clock gets the same ids each time.
    pub fn at(began: Duration, pace: Pace, shutdown: CancellationToken) -> Self {
        Self::with(Clock::at(began), pace, shutdown)
    }

    fn with(clock: Clock, pace: Pace, shutdown: CancellationToken) -> Self {
        Self(Arc::new(Server {
            began: clock.now(),
            clock,
            pace,
            store: Mutex::default(),
            tasks: TaskTracker::new(),
            shutdown,
        }))
    }

    /// The routes of the API.
    pub fn routes(&self) -> Router {
        routes::all(&self.0)
    }

    /// Starts a run on the [`WATCHED_THREAD`] now and every [`BACKGROUND_PERIOD`], until shutdown.
    /// Without this the demo only answers requests.
    pub async fn run_background(&self) {
        let mut ticks = tokio::time::interval(BACKGROUND_PERIOD);
        // After a suspend, missed runs are not made up for.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                () = self.0.shutdown.cancelled() => return,
                _ = ticks.tick() => self.0.start_watched(),
            }
        }
    }

    /// Waits after shutdown until all runs have stopped.
    pub async fn drain(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

// === impl Pace ===

impl Pace {
    /// A pace that a person can follow.
    pub const HUMAN: Self = Self { beat: Duration::from_millis(35) };

    /// Without pauses.
    pub const NONE: Self = Self { beat: Duration::ZERO };

    /// A pause of this length before each token.
    pub const fn new(beat: Duration) -> Self {
        Self { beat }
    }

    async fn wait(self, beats: u32) {
        if self.beat.is_zero() {
            // Lets listeners read each part when it is emitted.
            tokio::task::yield_now().await;
        } else if beats > 0 {
            tokio::time::sleep(self.beat * beats).await;
        }
    }
}

// === impl Server ===

impl Server {
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watched_thread_has_one_id() {
        assert_eq!(WATCHED_ID.to_string(), WATCHED_THREAD);
    }
}
