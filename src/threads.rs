//! What can be done with a thread: its runs are started, read, followed and stopped.
//!
//! ```text
//!  server, sessions --> Thread { agent, id } --> connect, follow, read_again --> ThreadReader
//!                           |                         |        |
//!                           +--> start, ask, stop     v        v
//!                                     |             look    follow <-- waiting <-- poll
//!                                     v               |        |                    |
//!                                   runs::Runs <------+--------+                  pace
//! ```
//! Each followed thread has one task (the watcher); a caller who follows many threads has one more
//! (the poller). Requests that no client waits for are sent at the pace of their upstream.

mod connect;
mod follow;
mod fork;
mod held;
mod kept;
mod list;
mod look;
mod manage;
mod pace;
mod poll;
mod questions;
mod reader;
mod refusal;
mod starts;
mod stop;
mod thread;
mod turns;
mod waiting;

use std::sync::Arc;

pub use held::Held;
pub use list::{ListQuery, MAX_SEARCHES, NotAThreadCursor, ThreadCursor, ThreadPage, list};
pub use manage::Change;
pub use questions::Waits;
pub use reader::{AtShutdown, ThreadReader};
pub use refusal::Refusal;
pub use thread::Thread;

use crate::agents::Agent;
use crate::flights::Flights;
use crate::runs::Runs;
use crate::upstream::{Client, Error, Purpose, Sight};
use follow::Followed;
use look::{LookKey, Looked};
use pace::Paces;
use poll::Polls;
use starts::Starts;
use threadway_translate::run::Emit;
use turns::Turns;

/// How much of a client's name for its thread log lines have: a client chooses it.
const MAX_LOGGED_BYTES: usize = 128;

/// The threads that this replica reads. Clones share them.
#[derive(Clone, Debug)]
pub struct Threads {
    shared: Arc<Shared>,
    /// What is shown of those that are read through this handle.
    emit: Emit,
}

#[derive(Debug)]
struct Shared {
    runs: Runs,
    followed: Followed,
    /// The looks at threads for those who load them.
    looks: Flights<LookKey, Result<Looked, Error>>,
    /// Whether callers are shown threads.
    sights: Flights<LookKey, Result<Sight, Error>>,
    paces: Paces,
    polls: Polls,
    turns: Turns,
    starts: Starts,
}

// === impl Threads ===

impl Threads {
    /// The threads of these runs.
    pub fn new(runs: Runs) -> Self {
        let shared = Arc::new(Shared {
            runs,
            followed: Followed::default(),
            looks: Flights::default(),
            sights: Flights::default(),
            paces: Paces::default(),
            polls: Polls::default(),
            turns: Turns::default(),
            starts: Starts::default(),
        });
        Self { shared, emit: Emit::default() }
    }

    /// The runs of the threads.
    pub fn runs(&self) -> Runs {
        self.shared.runs.with_emit(self.emit)
    }

    /// A thread by LangGraph's id of it, and the agent that runs on it. A client that needs another
    /// name for it is found by that in the metadata of the thread, if a run creates the thread.
    pub fn thread(&self, mut agent: Agent, id: String, client_id: Option<String>) -> Thread {
        let thread = client_id.as_deref().unwrap_or(&id);
        let purpose = Purpose {
            agent: Some(Arc::clone(&agent.name)),
            thread: Some(Arc::from(beginning(thread, MAX_LOGGED_BYTES))),
        };
        agent.upstream = agent.upstream.used_for(purpose);
        let threads = Self { shared: Arc::clone(&self.shared), emit: agent.emit };
        Thread { threads, agent, id, client_id }
    }
}

/// The beginning of a text, of so many bytes at most.
fn beginning(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or_default()
}

// === impl Shared ===

impl Shared {
    /// Whether the upstream shows a thread to the caller. All who ask at the same time with the
    /// same credentials share a request that is sent after they have asked.
    async fn see(&self, upstream: &Client, thread_id: &str) -> Result<Sight, Error> {
        let read = async || upstream.see(thread_id).await;
        self.sights.share(LookKey::of(upstream, thread_id, Emit::default()), read).await
    }
}
