//! One follower of a thread.

use std::sync::Arc;

use tokio::sync::watch;

use super::super::Shared;
use super::super::pace::LOOK_INTERVAL;
use super::super::schedule::LONGEST_PAUSE;
use super::{FollowKey, FollowedThread};
use crate::runs::{Attendance, EventId, Run};
use crate::upstream::{Backoff, Client, Seed, Until, Visibility};

/// One follower of a thread.
#[derive(Debug)]
pub(in crate::threads) struct Follower {
    shared: Arc<Shared>,
    pub(super) thread: Arc<FollowedThread>,
    pub(super) changes: watch::Receiver<()>,
    /// The position of the next run in the sequence.
    pub(super) position: u64,
    thread_id: String,
    attendance: Box<Attendance<()>>,
    /// The upstream with this follower's credentials. `None` if the watcher reads for this caller
    /// alone, or the caller has no credentials.
    own: Option<Client>,
    /// Until when the gateway admits this follower.
    until: Until,
}

/// Whether a follower may get the next run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Permission {
    Granted,
    /// The upstream did not answer.
    Unknown,
    /// The upstream hides the thread, or following has ended.
    Denied,
}

// === impl Follower ===

impl Follower {
    pub(super) fn new(
        shared: &Arc<Shared>,
        thread: Arc<FollowedThread>,
        changes: watch::Receiver<()>,
        key: &FollowKey,
        upstream: &Client,
    ) -> Self {
        let is_shared = key.hidden_from.is_none();
        let own = (is_shared && upstream.caller().is_personal()).then(|| upstream.clone());
        let shared = Arc::clone(shared);
        let attendance = Box::new(thread.followers.attend(upstream));
        let thread_id = key.thread_id.clone();
        let until = upstream.caller().until().clone();
        Self { shared, thread, changes, position: 0, thread_id, attendance, own, until }
    }

    /// The run at whose end the client of this event is, if the watcher has relayed it. Then the
    /// follower goes on with the runs after it. `present` is what the thread shows now.
    pub(in crate::threads) fn go_on_after(
        &mut self,
        event: &EventId,
        present: &Arc<Run>,
    ) -> Option<Arc<Run>> {
        if present.is_held_after(event) {
            return Some(Arc::clone(present));
        }
        let relayed = self.thread.sequence().newest_first();
        let (position, run) = relayed.into_iter().find(|(_, run)| run.is_held_after(event))?;
        self.position = position + 1;
        Some(run)
    }

    /// The next run of the thread, or `None` when following has ended. Cancel safe.
    pub(in crate::threads) async fn next(&mut self) -> Option<Arc<Run>> {
        let until = self.until.clone();
        tokio::select! {
            biased;
            () = until.over() => {
                tracing::debug!(thread_id = self.thread_id, "a follower is not admitted any more");
                None
            }
            next = self.next_admitted() => next,
        }
    }

    async fn next_admitted(&mut self) -> Option<Arc<Run>> {
        let mut pauses = Backoff::new(LOOK_INTERVAL, LONGEST_PAUSE, Seed::random());
        loop {
            if self.attendance.bar().is_some() {
                return None;
            }
            let next = self.thread.sequence().next_from(self.position);
            let Some((position, run)) = next else {
                self.changes.changed().await.ok()?;
                continue;
            };
            match self.check_permission().await {
                Permission::Granted => {
                    self.position = position + 1;
                    return Some(run);
                }
                Permission::Unknown => {
                    let pause = pauses.next_pause();
                    if let Ok(Err(_)) = tokio::time::timeout(pause, self.changes.changed()).await {
                        return None;
                    }
                }
                Permission::Denied => return None,
            }
        }
    }

    /// Asks the upstream whether it still shows the thread to this follower.
    async fn check_permission(&mut self) -> Permission {
        let Some(own) = &self.own else { return Permission::Granted };
        let changes = &mut self.changes;
        let unwatched = async { while changes.changed().await.is_ok() {} };
        let visibility = tokio::select! {
            biased;
            () = unwatched => return Permission::Denied,
            visibility = self.shared.visibility(own, &self.thread_id) => visibility,
        };
        match visibility {
            Ok(Visibility::Visible) => Permission::Granted,
            Ok(Visibility::Hidden) => Permission::Denied,
            Err(error) if error.depends_on_caller() => Permission::Denied,
            Err(_) => Permission::Unknown,
        }
    }
}
