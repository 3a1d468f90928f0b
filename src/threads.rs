//! What the gateway does with threads: starts, reads, follows and stops their runs.
//!
//! ```text
//!  server, sessions --> Thread { agent, id } --> connect, follow, read_again --> ThreadReader
//!                           |                         |        |
//!                           +--> start, ask, stop     v        v
//!                                     |             look    follow <-- schedule <-- poll
//!                                     v               |        |                     |
//!                                   runs::Runs <------+--------+                   pace
//! ```
//! A *look* at a thread is the requests that find its live run, or else its state. Each followed
//! thread has one task, the watcher. A caller who follows many threads has one more, the poller.
//! Requests that no client waits for are sent at a limited rate for each upstream.
//!
//! Reading:
//! - `thread`: a thread with its agent, for one caller. `connect`: reading its runs.
//! - `find`: a run by the client's id of it. `look`: the look itself. `snapshot`: what a thread contains, without reading its live run.
//! - `reader`: the events that a client gets. `refusal`: why a request was refused.
//! - `list`: pages of threads. `marks`: what happens on many threads. `key`: a thread as one caller sees it.
//!
//! Writing:
//! - `ask`: starting runs. `create`: the thread of the first. `starts`: runs that are being started. `stop`: stopping them.
//! - `start_lock`: one start at a time. `partial_answers`: answers that wait for others.
//! - `interrupts`: which questions are open. `past`: earlier states, and where an edited conversation
//!   branches off. `sent`: what earlier runs began with.
//! - `turn_ends`: where turns have ended, so that a copy can end there.
//! - `manage`: renaming, archiving, deleting. `copy`: copying.
//!
//! Following:
//! - `follow`: the watcher and its followers. `schedule`: when the watcher looks.
//! - `lifecycle`: the server's stream of runs that begin and end. `poll`: which threads have
//!   changed.
//! - `pace`: the rate of looks and polls.

mod ask;
mod connect;
mod copy;
mod create;
mod find;
mod follow;
mod interrupts;
mod key;
mod lifecycle;
mod list;
mod look;
mod manage;
mod marks;
mod pace;
mod partial_answers;
mod past;
mod poll;
mod reader;
mod refusal;
mod schedule;
mod sent;
mod snapshot;
mod start_lock;
mod starts;
mod stop;
mod thread;
mod turn_ends;

use std::num::NonZeroU32;
use std::sync::Arc;

pub use copy::{CopyError, copy, delete_copy};
pub use interrupts::WaitingFor;
pub use list::{ListQuery, NotAThreadCursor, ThreadCursor, ThreadPage, list, metadata_of_runs};
pub use manage::Change;
pub use marks::{Mark, MarkReader, PageReader};
pub use pace::DEFAULT_STATE_READS_PER_SECOND;
pub use reader::{AtShutdown, ThreadReader};
pub use refusal::Refusal;
pub use snapshot::ThreadSnapshot;
pub use thread::Thread;
pub(crate) use turn_ends::{ShownLast, end_of_run, is_turn_end, visit_turn_ends};

use crate::agents::Agent;
use crate::runs::Runs;
use crate::single_flight::SingleFlight;
use crate::upstream::{Client, Error, Purpose, QueueClass, Visibility};
use follow::FollowedThreads;
use key::LookKey;
use look::{Looked, LookedWithoutJoining};
use pace::Paces;
use poll::Polls;
use start_lock::StartLocks;
use starts::Starts;
use thread::IfAbsent;
use threadway_translate::run::EmitOptions;

/// The longest thread id in log lines, in bytes. Clients choose these ids.
const MAX_LOGGED_BYTES: usize = 128;

/// The threads that this replica reads. Clones share them.
#[derive(Clone, Debug)]
pub struct Threads {
    shared: Arc<Shared>,
    /// Which events readers get that are made through this handle.
    emit: EmitOptions,
}

#[derive(Debug)]
struct Shared {
    runs: Runs,
    followed: FollowedThreads,
    /// Looks in progress for clients that connect.
    looks: SingleFlight<LookKey, Result<Looked, Error>>,
    /// Looks in progress that read no run.
    rests: SingleFlight<LookKey, Result<LookedWithoutJoining, Error>>,
    /// Checks of visibility in progress.
    visibilities: SingleFlight<LookKey, Result<Visibility, Error>>,
    paces: Paces,
    polls: Polls,
    start_locks: StartLocks,
    starts: Starts,
}

// === impl Threads ===

impl Threads {
    /// The threads of these runs. `state_reads_per_second` is how many states of idle threads are
    /// read from one upstream to find changes that polls do not show.
    pub fn new(runs: Runs, state_reads_per_second: NonZeroU32) -> Self {
        let shared = Arc::new(Shared {
            runs,
            followed: FollowedThreads::default(),
            looks: SingleFlight::default(),
            rests: SingleFlight::default(),
            visibilities: SingleFlight::default(),
            paces: Paces::new(state_reads_per_second),
            polls: Polls::default(),
            start_locks: StartLocks::default(),
            starts: Starts::default(),
        });
        Self { shared, emit: EmitOptions::default() }
    }

    /// The runs of the threads.
    pub fn runs(&self) -> Runs {
        self.shared.runs.with_emit(self.emit)
    }

    fn expect_no_shutdown(&self) -> Result<(), Refusal> {
        if self.shared.runs.is_shutting_down() { Err(Refusal::ShuttingDown) } else { Ok(()) }
    }

    /// A thread by LangGraph's id, and the agent that runs on it.
    ///
    /// `client_id` is the client's id, if LangGraph needs another one. A thread that a run creates
    /// stores it in its metadata.
    pub fn thread(&self, mut agent: Agent, id: String, client_id: Option<String>) -> Thread {
        let thread = client_id.as_deref().unwrap_or(&id);
        let purpose = Purpose {
            agent: Some(Arc::clone(&agent.name)),
            thread: Some(Arc::from(truncated(thread, MAX_LOGGED_BYTES))),
        };
        agent.upstream = agent.upstream.used_for(purpose);
        let threads = Self { shared: Arc::clone(&self.shared), emit: agent.emit };
        Thread { threads, agent, id, client_id, if_absent: IfAbsent::Create }
    }
}

/// The first bytes of a text, cut between two characters.
fn truncated(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or_default()
}

// === impl Shared ===

impl Shared {
    /// Whether the upstream shows a thread to the caller. Callers that ask at the same time with
    /// equal credentials share a request, which is sent after all of them have asked.
    async fn visibility(&self, upstream: &Client, thread_id: &str) -> Result<Visibility, Error> {
        let key = LookKey::new(upstream, thread_id, EmitOptions::default());
        let read = async || {
            Box::pin(upstream.in_turn(QueueClass::Looks, upstream.visibility(thread_id))).await
        };
        self.visibilities.share(key, read).await
    }
}
