//! Followed threads: everything that happens on a thread after a viewer has connected.
//!
//! Each followed thread has one task, the watcher, for all its followers. The watcher looks at the
//! thread and relays what it finds: each run, and the idle thread when its state has changed.
//!
//! ```text
//!             a run is live                          its end
//!   looking ----------------> relaying that run ------------------+
//!      ^  |  no run is live, the state differs from the last one  |
//!      |  +--------------------> relaying the idle thread         |
//!      +-- a new follower, a change, or an interval <-------------+
//! ```
//!
//! The watcher uses the credentials of its followers, the newest first. Before a follower with
//! credentials gets the next run, the upstream must confirm that this caller may still see the
//! thread. If the upstream refuses a look to one follower and grants it to another, the stream of
//! the first ends. If it refuses all, following ends. Clients that reconnect bring new credentials.
//!
//! - `sequence`: the runs that were relayed, in order. `follower`: one reader of them.
//! - `watcher`: the task. `recent_runs`: the list that it reads. `relay_log`: what it has relayed.

mod follower;
mod recent_runs;
mod relay_log;
mod sequence;
mod watcher;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Weak};

use futures_util::future::poll_immediate;
use tokio::sync::{Notify, watch};

use super::Shared;
use super::refusal::Refusal;
use crate::agents::AgentServer;
use crate::runs::{CredentialRing, Run};
use crate::sync::{Guard, Mutex};
use crate::upstream::{Caller, Client, Error, QueueClass, QueuePermit, Visibility};
use threadway_translate::langgraph::{Capabilities, MessagesKey};
use threadway_translate::run::EmitOptions;

pub(super) use follower::Follower;
use recent_runs::RecentRuns;
use sequence::{LastLook, Sequence};
use watcher::Watcher;

/// The threads that are followed.
#[derive(Debug, Default)]
pub(super) struct FollowedThreads(Mutex<HashMap<FollowKey, Entry>>);

/// Followers with an equal key share a watcher.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FollowKey {
    upstream: String,
    thread_id: String,
    messages_key: MessagesKey,
    emit: EmitOptions,
    /// The caller, if the thread is hidden from it. Callers that may see the thread share a key.
    hidden_from: Option<Caller>,
}

/// A followed thread that others can join.
#[derive(Debug)]
struct Entry {
    thread: Arc<FollowedThread>,
    /// How many followers have joined.
    joined: u64,
}

/// What a watcher and its followers share.
#[derive(Debug)]
struct FollowedThread {
    sequence: Mutex<Sequence>,
    /// The followers' credentials. The upstream has shown the thread to each of them.
    followers: Arc<CredentialRing<()>>,
    /// Wakes followers when the sequence changes. Only the watcher keeps it alive.
    changes: Weak<watch::Sender<()>>,
    /// Asks the watcher for a look now.
    look_requests: Notify,
}

/// Follows a thread. Returns the run to read first, and the follower for all later ones.
pub(super) async fn join(
    shared: &Arc<Shared>,
    upstream: &Client,
    known: AgentServer,
    thread_id: &str,
    emit: EmitOptions,
) -> Result<(Arc<Run>, Follower), Refusal> {
    let mut key = FollowKey {
        upstream: upstream.base().to_string(),
        thread_id: thread_id.to_owned(),
        messages_key: upstream.messages_key().clone(),
        emit,
        hidden_from: None,
    };
    let server = known.capabilities(upstream);
    let turn = if shared.followed.has(&key) {
        None
    } else {
        // Others may have followed the thread meanwhile.
        let turn = upstream.turn(QueueClass::Looks).await?;
        Some(turn).filter(|_| !shared.followed.has(&key))
    };
    let (visibility, server, first) = if let Some(turn) = turn {
        // One request checks the visibility and lists the runs for the first look.
        let mut server = pin!(server);
        let ready = poll_immediate(&mut server).await;
        let recent = RecentRuns::read_visible(upstream, thread_id, ready.unwrap_or_default());
        let server = async { if let Some(server) = ready { server } else { server.await } };
        let (recent, server) = tokio::join!(recent, server);
        let recent = recent?;
        let visibility = if recent.is_some() { Visibility::Visible } else { Visibility::Hidden };
        (visibility, server, Some((recent.unwrap_or_default(), turn)))
    } else {
        let (visibility, server) = tokio::join!(shared.visibility(upstream, thread_id), server);
        (visibility?, server, None)
    };
    if visibility == Visibility::Hidden {
        key.hidden_from = Some(upstream.caller().clone());
    }
    let (mut follower, mut has_requested) =
        follower(shared, key, upstream, (server, known.clone()), first);
    let looks = follower.thread.sequence().looks;
    loop {
        {
            let sequence = follower.thread.sequence();
            let end = sequence.end();
            match (&sequence.last_look, sequence.last()) {
                (LastLook::Running, Some(run)) if run.is_driven() => {
                    let run = Arc::clone(run);
                    drop(sequence);
                    follower.position = end;
                    return Ok((run, follower));
                }
                (LastLook::Idle { look, run }, _) if *look > looks => {
                    let run = Arc::clone(run);
                    drop(sequence);
                    follower.position = end;
                    return Ok((run, follower));
                }
                (LastLook::Failed { look, error }, _) if *look > looks => {
                    return Err(Error::clone(error).into());
                }
                _ => {}
            }
        }
        // One request is enough: a request during a look is kept for the next look.
        if !std::mem::replace(&mut has_requested, true) {
            follower.thread.look_requests.notify_one();
        }
        if follower.changes.changed().await.is_err() {
            return Err(Refusal::ShuttingDown);
        }
    }
}

/// A follower of a thread. Starts a watcher if the thread has none. Returns whether the watcher's
/// first look serves this follower.
fn follower(
    shared: &Arc<Shared>,
    key: FollowKey,
    upstream: &Client,
    (server, known): (Capabilities, AgentServer),
    first: Option<(RecentRuns, QueuePermit)>,
) -> (Follower, bool) {
    let mut threads = loop {
        // While the lock is held, no watcher can find that it has no followers.
        let threads = shared.followed.lock();
        let Some((thread, changes)) = threads.get(&key).and_then(|entry| {
            let changes = entry.thread.changes.upgrade()?;
            Some((Arc::clone(&entry.thread), changes.subscribe()))
        }) else {
            break threads;
        };
        drop(threads);
        let follower = Follower::new(shared, thread, changes, &key, upstream);
        if shared.followed.note_joined(&key, &follower.thread) {
            return (follower, false);
        }
        // The watcher has given up before it knew these credentials.
    };
    let changes = Arc::new(watch::Sender::new(()));
    let thread = Arc::new(FollowedThread {
        sequence: Mutex::default(),
        followers: Arc::new(CredentialRing::new(upstream.clone(), false)),
        changes: Arc::downgrade(&changes),
        look_requests: Notify::new(),
    });
    let entry = Entry { thread: Arc::clone(&thread), joined: 1 };
    threads.insert(key.clone(), entry);
    drop(threads);
    let follower = Follower::new(shared, Arc::clone(&thread), changes.subscribe(), &key, upstream);
    let mut watcher = Watcher::new(shared, key, (upstream, known), thread, changes);
    watcher.server = server;
    watcher.begin_with(first);
    shared.runs.spawn(async move { watcher.watch().await });
    (follower, true)
}

// === impl FollowedThreads ===

impl FollowedThreads {
    fn has(&self, key: &FollowKey) -> bool {
        self.lock().get(key).is_some_and(|entry| entry.thread.changes.strong_count() > 0)
    }

    /// Counts a follower whose credentials the watcher can use. Returns `false` if the watcher has
    /// ended.
    fn note_joined(&self, key: &FollowKey, thread: &Arc<FollowedThread>) -> bool {
        let mut threads = self.lock();
        let entry = threads.get_mut(key).filter(|entry| Arc::ptr_eq(&entry.thread, thread));
        entry.map(|entry| entry.joined += 1).is_some()
    }

    /// How many followers have joined.
    fn joined(&self, key: &FollowKey) -> u64 {
        self.lock().get(key).map_or(0, |entry| entry.joined)
    }

    fn lock(&self) -> Guard<'_, HashMap<FollowKey, Entry>> {
        self.0.lock()
    }
}

// === impl FollowedThread ===

impl FollowedThread {
    #[track_caller]
    fn sequence(&self) -> Guard<'_, Sequence> {
        self.sequence.lock()
    }
}
