//! A scripted LangGraph API server: what `threadway demo` stands in front of, and nothing to install.
//!
//! ```text
//!  routes -> Server -> Store -> Thread -> Checkpoint
//!    |         |                  `-----> Run: record, log <- listen: streams, joins, waits
//!    |         `-> one task per busy thread -> engine -> script: what a graph says
//!    `-> request, wire: bodies in, the Python server's dialect out
//! ```
//!
//! It is the other side of the wire: it shares nothing with the gateway's own understanding of
//! LangGraph, and so can contradict it. Being a scripted peer and not the core, it may build its
//! JSON with [`serde_json::json!`].
//!
//! Its dialect is that of langgraph-api 0.16.7, as observed. What differs, and what is left out:
//!
//! - Left out, and refused with 422: the stream modes `messages`, `events`, `tasks`, `checkpoints`
//!   and `debug`, static breakpoints, `after_seconds`, webhooks, feedback keys, commands other than
//!   `resume`. Left out, and 404: stateless runs, thread streams, crons, the store. There are no
//!   subgraphs, so `stream_subgraphs` changes nothing, and a search's `extract` extracts nothing.
//! - Replays are in order and without repeats. The real server repeats parts where a replay meets
//!   the live stream. Ids have the resolution of a millisecond and may repeat, as there.
//! - There are limits that the real server has not: see the constants. A run too many is refused
//!   with 503, a state too large fails its run.
//! - The middleware of a real `approval` keeps a private key in the state for edited calls; here
//!   the edited call is kept with the task. A resume that finds nothing to resume ends the run.
//! - Records show what a client sent and what tells things apart, not the server's own internals
//!   (`langgraph_request_id`, `__request_start_time_ms__` and the like).
//! - The join of a run that is over tells that run's last state, not the thread's.
//! - Schemas are short, and the detail of a 422 about a body's form has other words.

mod clock;
mod engine;
mod listen;
mod request;
mod routes;
mod run;
mod script;
mod state;
mod store;
mod thread;
mod wire;
mod work;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use clock::{Clock, Moment};
pub use listen::BEAT;
use script::Graph;
use store::Store;

/// The thread on which a background run starts by itself.
pub const WATCHED_THREAD: &str = "7e11ad3a-0000-4000-8000-00000000feed";

/// The same as an id.
const WATCHED_ID: Uuid = Uuid::from_u128(0x7e11_ad3a_0000_4000_8000_0000_0000_feed);

/// The time from one background run to the next.
pub const BACKGROUND_PERIOD: Duration = Duration::from_secs(20);

/// The graphs: their names, and what each does.
pub const GRAPHS: [(&str, &str); 4] = {
    let [a, b, c, d] = Graph::ALL;
    [a.told(), b.told(), c.told(), d.told()]
};

/// The largest request that is read: a message with a small picture. The gateway takes twenty
/// times as much; a script has no use for it.
const MAX_BODY_BYTES: usize = 512 * 1024;

/// The largest state of a thread: every superstep tells and keeps it whole.
const MAX_STATE_BYTES: usize = 512 * 1024;

/// How many bytes threads may hold together: states, and what runs were asked for. It is some
/// thousand turns; the thread that is idle for longest makes room.
const MAX_STORE_BYTES: usize = 32 * 1024 * 1024;

/// How many threads are kept. The one that is idle for longest makes room.
const MAX_THREADS: usize = 100;

/// How many checkpoints of a thread are kept: some twenty turns, or forty background runs.
const MAX_CHECKPOINTS: usize = 160;

/// How many bytes the checkpoints of a thread may have together: one thread alone is not to fill
/// the store.
const MAX_CHECKPOINT_BYTES: usize = 4 * 1024 * 1024;

/// How many run records of a thread are kept: several pages of a list.
const MAX_RUNS_KEPT: usize = 50;

/// How many runs wait or run at once, on all threads: more than anybody watches.
const MAX_LIVE_RUNS: usize = 50;

/// How many finished runs can be replayed: what a viewer may have missed.
const MAX_REPLAYS: usize = 32;

/// How many bytes a run's log holds: the states of seven supersteps, and the tokens. Older parts
/// than that cannot be replayed.
const MAX_LOG_BYTES: usize = 4 * 1024 * 1024;

/// The versions that the demo imitates.
const API_VERSION: &str = "0.16.7";
const LANGGRAPH_VERSION: &str = "1.2.22";

/// A scripted LangGraph server.
#[derive(Clone, Debug)]
pub struct Demo(Arc<Server>);

/// How fast the scripts speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The pause before a token.
    beat: Duration,
}

/// What all requests and runs share.
#[derive(Debug)]
struct Server {
    clock: Clock,
    began: Moment,
    pace: Pace,
    /// A std mutex: it is held for some lines, never across an await.
    store: Mutex<Store>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

// === impl Demo ===

impl Demo {
    /// A demo without threads. It goes down with `shutdown`.
    pub fn new(pace: Pace, shutdown: CancellationToken) -> Self {
        let clock = Clock::new();
        Self(Arc::new(Server {
            began: clock.now(),
            clock,
            pace,
            store: Mutex::default(),
            tasks: TaskTracker::new(),
            shutdown,
        }))
    }

    /// The API.
    pub fn routes(&self) -> Router {
        routes::all(&self.0)
    }

    /// Starts a run on the [`WATCHED_THREAD`] now and in every [`BACKGROUND_PERIOD`], until the
    /// demo goes down. Without it the demo only answers.
    pub async fn run_background(&self) {
        let mut ticks = tokio::time::interval(BACKGROUND_PERIOD);
        // A machine that slept has nothing to catch up on.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                () = self.0.shutdown.cancelled() => return,
                _ = ticks.tick() => self.0.start_watched(),
            }
        }
    }

    /// Waits until no run is left, after `shutdown`.
    pub async fn drain(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

// === impl Pace ===

impl Pace {
    /// As a person reads.
    pub const HUMAN: Self = Self { beat: Duration::from_millis(35) };

    /// As fast as it goes.
    pub const NONE: Self = Self { beat: Duration::ZERO };

    /// A pause of this length before each token.
    pub const fn new(beat: Duration) -> Self {
        Self { beat }
    }

    async fn wait(self, beats: u32) {
        if self.beat.is_zero() {
            // Whoever listens has a chance to hear each part as it comes.
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
