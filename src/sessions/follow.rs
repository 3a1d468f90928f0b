//! Shows the runs of others in an open session as they begin.
//!
//! Each open session has one follower while it has no prompt. A prompt drops the follower, because
//! its turn shows the thread itself. The requests upstream are those of a followed thread; see
//! [`Thread::follow`](crate::threads::Thread::follow).

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use super::link::{ClientLink, Work};
use super::questions::AfterQuestions;
use super::session::{OpenQuestion, Session};
use super::turn::{PromptTurn, UpdateFilter, Whose, has_conversation};
use crate::upstream::{Backoff, Seed};
use threadway_translate::acp::notice::Notice;
use threadway_translate::acp::rpc::Error;
use threadway_translate::acp::stop_reason;
use threadway_translate::run::{Outcome, RunEvent};

/// How long a session is idle before its thread is followed. A client that prompts once and leaves
/// causes no requests, and neither does a person who answers at once.
const IDLE_BEFORE_FOLLOWING: Duration = Duration::from_secs(2);

/// How long the follower waits at most after the upstream has refused or ended the following. Jitter
/// shortens the wait by up to half.
const FOLLOW_AGAIN: Duration = Duration::from_mins(1);

/// Why the thread is not followed any more.
enum Unfollowed {
    /// The follower has shown a run of its own, with a person's answers, or has lost a run.
    ForNow,
    /// The upstream has ended it.
    Ended,
    /// The gateway does not admit the credentials any more with which it was followed.
    NotAdmitted,
}

impl ClientLink {
    /// The work that follows a session's thread until the session is closed. `None` if there is
    /// such work already.
    pub(super) fn follow(&self, session: &Arc<Session>) -> Option<Work> {
        let (this, session) = (self.clone(), Arc::clone(session));
        session.begin_following().then(|| {
            async move {
                let left = session.detached().clone();
                left.run_until_cancelled(this.follow_while_idle(session)).await;
            }
            .boxed()
        })
    }

    async fn follow_while_idle(&self, session: Arc<Session>) {
        let mut pauses = Backoff::new(FOLLOW_AGAIN, FOLLOW_AGAIN, Seed::random());
        loop {
            session.prompts.wait_until_none().await;
            let prompted = session.prompts.arrived.notified();
            let mut prompted = std::pin::pin!(prompted);
            prompted.as_mut().enable();
            // The thread is made with the first prompt.
            if session.prompts.any() || !session.has_thread().await {
                prompted.await;
                continue;
            }
            let followed = async {
                tokio::time::sleep(IDLE_BEFORE_FOLLOWING).await;
                match self.follow_thread(&session).await {
                    Ok(Unfollowed::ForNow) => return,
                    // A newer request has brought other credentials.
                    Ok(Unfollowed::NotAdmitted) if !self.caller().until().is_over() => return,
                    Ok(Unfollowed::Ended | Unfollowed::NotAdmitted) => {}
                    Err(error) => {
                        tracing::debug!(session_id = session.id, %error, "a session is not followed");
                    }
                }
                tokio::time::sleep(pauses.next_pause()).await;
            };
            tokio::select! {
                biased;
                () = prompted => {}
                () = followed => {}
            }
        }
    }

    async fn follow_thread(&self, session: &Arc<Session>) -> Result<Unfollowed, Error> {
        let thread = self.thread(session, &*session.config.lock().await)?;
        let until = thread.agent().upstream.caller().until().clone();
        if until.is_over() {
            return Ok(Unfollowed::NotAdmitted);
        }
        // The graph may have written a title, and another client may have changed the settings.
        Box::pin(self.refresh(session)).await?;
        let reader = Box::pin(thread.follow(None)).await;
        let mut reader = reader.map_err(|refusal| self.refused(&refusal))?;
        let mut is_run = false;
        let mut next = reader.next().await;
        while let Some(events) = next.take() {
            self.wait_for_room(session).await;
            if let Some(RunEvent::Started { run_id, .. }) = events.first() {
                is_run = run_id.is_some();
            }
            let mut view = Arc::clone(&session.view).lock_owned().await;
            let stop = CancellationToken::new();
            session.show(&stop);
            let turn = PromptTurn::new(self.clone(), Arc::clone(session), stop, None);
            let sending = if view.is_synced { UpdateFilter::All } else { UpdateFilter::OpenCalls };
            let outcome = turn.project(&mut view, &events, sending, Whose::Others);
            view.is_synced |= outcome.is_some() || has_conversation(&events);
            let is_end = outcome.is_some();
            let reason = outcome.as_ref().filter(|_| is_run).map(stop_reason);
            match outcome {
                // What an idle thread asks, the person was asked before.
                Some(Outcome::Interrupted(questions)) if is_run => {
                    let waiting = questions.into_iter().map(OpenQuestion::from).collect();
                    let settled = tokio::select! {
                        biased;
                        settled = turn.settle(&mut view, waiting) => settled?,
                        // Another client has answered.
                        later = reader.next() => {
                            next = later;
                            continue;
                        }
                    };
                    if let AfterQuestions::Resume(start) = settled {
                        turn.run_to_end(&mut view, start).await?;
                        return Ok(Unfollowed::ForNow);
                    }
                }
                Some(Outcome::Failed(failure)) if is_run => {
                    turn.settle_calls(&mut view);
                    if failure.loss().is_some() {
                        return Ok(Unfollowed::ForNow);
                    }
                    self.notice(session, &Notice::shown_run_failed(&failure));
                }
                // A call waits for the answer.
                Some(Outcome::Interrupted(_)) | None => {}
                Some(
                    Outcome::Idle { .. }
                    | Outcome::Finished { .. }
                    | Outcome::Cancelled
                    | Outcome::Failed(_),
                ) => turn.settle_calls(&mut view),
            }
            if let Some(Ok(reason)) = reason {
                self.announce_end(session, &view, reason).await;
            }
            if is_end {
                self.emit_position(session);
            }
            drop(view);
            next = reader.next().await;
        }
        Ok(if until.is_over() { Unfollowed::NotAdmitted } else { Unfollowed::Ended })
    }
}
