//! Session cursors: the ends of a session's turns, at which a client can fork it.
//!
//! A cursor is the checkpoint with which a turn has ended, so nothing about it is stored. A client gets
//! the cursor of each turn that it sees end, and those of the newest states when it opens the session.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::Unstable;
use super::client::CursorForm;
use super::link::{ClientLink, Work};
use super::position::Position;
use super::session::{ClientView, Session, is_uuid};
use crate::offload::offload;
use crate::runs::conversation;
use crate::threads::{self, ShownLast, Thread, WaitingFor};
use crate::upstream::{Error as UpstreamError, QueueClass};
use threadway_translate::acp::cursor::anchors;
use threadway_translate::acp::rpc::{Code, Error};
use threadway_translate::acp::{CursorAnchor, CursorCapabilities, StopReason, Update};

/// How long the end of a turn waits until its cursor is read.
const MAX_END_WAIT: Duration = Duration::from_secs(2);

/// A cursor's id, and what a client shows before it.
type Cursor = (String, CursorAnchor);

impl ClientLink {
    fn offers_cursors(&self) -> bool {
        self.service().settings.unstable.contains(&Unstable::Cursors)
    }

    /// Whether the client gets cursors, if the server can fork at them.
    fn takes_cursors(&self) -> bool {
        self.offers_cursors() && self.client().cursors == CursorForm::Updates
    }

    /// The session's thread, if the client gets cursors of it.
    async fn thread_with_cursors(&self, session: &Session) -> Option<Thread> {
        if !self.takes_cursors() || !session.has_thread().await {
            return None;
        }
        let thread = self.thread(session, &*session.config.lock().await).ok()?;
        thread.agent().capabilities().await.copies_threads.then_some(thread)
    }

    /// Announces the cursors of the newest turns of a session that was opened, the oldest first.
    pub(super) async fn announce_cursors(&self, session: &Session, shown_last: ShownLast<'_>) {
        let Some(thread) = self.thread_with_cursors(session).await else { return };
        match self.read_cursors(&thread, shown_last).await {
            Ok(found) => {
                for (cursor_id, anchor) in found.iter().rev() {
                    self.announce(session, cursor_id, anchor);
                }
            }
            Err(error) => {
                tracing::debug!(session_id = session.id, %error, "its cursors were not read");
            }
        }
    }

    /// The cursors of the newest turns, the newest first. Without those whose last message is not in
    /// the conversation any more, and those of newer turns than the client was shown: it has nothing
    /// to show them beside.
    async fn read_cursors(
        &self,
        thread: &Thread,
        shown_last: ShownLast<'_>,
    ) -> Result<Vec<Cursor>, UpstreamError> {
        let upstream = &thread.agent().upstream;
        let (key, forms) = (upstream.messages_key(), self.client().notice_forms);
        let _turn = upstream.turn(QueueClass::Looks).await?;
        let mut shown: Option<HashSet<CursorAnchor>> = None;
        let mut found = Vec::new();
        // A run that is shown may have stored nothing yet. A thread was at rest with a checkpoint that
        // is known.
        let mut is_shown = !matches!(shown_last, ShownLast::Checkpoint(_));
        let visited = threads::visit_turn_ends(upstream, thread.id(), shown_last, |past| {
            if past.is_shown_last {
                found.clear();
                is_shown = true;
            }
            if shown.is_some() && !past.is_end {
                return;
            }
            let mut anchors = anchors(&conversation(thread.id(), key, past.state), forms);
            let last = anchors.pop();
            let shown =
                shown.get_or_insert_with(|| anchors.into_iter().chain(last.clone()).collect());
            let anchor = last.filter(|last| past.is_end && is_shown && shown.contains(last));
            found.extend(anchor.map(|anchor| (past.checkpoint_id.to_owned(), anchor)));
        });
        visited.await?;
        Ok(found)
    }

    /// Announces the cursor of a turn that has ended, and that the client was sent.
    pub(super) async fn announce_end(
        &self,
        session: &Session,
        view: &ClientView,
        reason: StopReason,
    ) {
        if let Some(end) = self.read_end(session, &session.position(), reason).await {
            self.announce_held(session, view, &end);
        }
    }

    /// The work that announces the cursor of a turn that was stopped, after the response: the
    /// response must not wait.
    pub(super) fn announce_stopped(&self, session: &Arc<Session>) -> Work {
        let (this, session) = (self.clone(), Arc::clone(session));
        // Before the next prompt begins: it does not wait until the cursor is read.
        let position = session.position();
        async move {
            if !this.takes_cursors() {
                return;
            }
            let left = session.detached().clone();
            let announced = async {
                let waits = this.service().threads.waiting_for(&this.upstream(), &session.id).await;
                if matches!(waits, Ok(WaitingFor::Nothing))
                    && let Some(end) =
                        this.read_end(&session, &position, StopReason::Cancelled).await
                {
                    this.announce_held(&session, &*session.view.lock().await, &end);
                }
            };
            left.run_until_cancelled(announced).await;
        }
        .boxed()
    }

    /// The cursor of the turn that has ended at this position of the client. `None` if the thread
    /// has gone on since, or if the upstream does not answer soon. The client gets that cursor when
    /// it loads the session.
    async fn read_end(
        &self,
        session: &Session,
        position: &Position,
        reason: StopReason,
    ) -> Option<Cursor> {
        let read = async {
            let thread = self.thread_with_cursors(session).await?;
            let upstream = &thread.agent().upstream;
            let state =
                upstream.in_turn(QueueClass::Looks, upstream.thread_state(thread.id())).await;
            let log = |error: &UpstreamError| {
                tracing::debug!(session_id = session.id, %error, "its cursor was not read");
            };
            Some((state.inspect_err(log).ok()??, thread))
        };
        let (state, thread) = tokio::time::timeout(MAX_END_WAIT, read).await.ok()??;
        let is_stopped = reason == StopReason::Cancelled;
        let key = thread.agent().upstream.messages_key();
        state.read(|text| {
            offload(text.len(), || {
                let cursor_id = threads::end_of_run(key, text, position.run_id(), is_stopped)?;
                let messages = conversation(thread.id(), key, text);
                Some((cursor_id, anchors(&messages, self.client().notice_forms).pop()?))
            })
        })
    }

    /// Announces a cursor if the client holds what is before it.
    fn announce_held(&self, session: &Session, view: &ClientView, (cursor_id, anchor): &Cursor) {
        if let Some(held) = view.projector.held(anchor) {
            self.announce(session, cursor_id, &held);
        }
    }

    fn announce(&self, session: &Session, cursor_id: &str, anchor: &CursorAnchor) {
        let capabilities = CursorCapabilities::default();
        let update = Update::CursorUpdate { cursor_id, capabilities, anchor };
        self.update(&session.id, &update);
    }

    /// Refuses a cursor at which this session cannot be forked.
    pub(super) async fn expect_cursor(
        &self,
        session_id: &str,
        cursor_id: &str,
    ) -> Result<(), Error> {
        if !self.offers_cursors() {
            return Err(Error::new(
                Code::InvalidParams,
                "this agent announces no cursors: leave out `cursorId` to fork the whole session, \
                 or set `acp.unstable = [\"cursors\"]` in the config file of threadway",
            ));
        }
        // The id becomes part of a path upstream.
        if !is_uuid(cursor_id) {
            return Err(no_cursor(session_id, cursor_id));
        }
        let upstream = self.upstream();
        let is_end = async {
            let _turn = upstream.turn(QueueClass::Looks).await?;
            threads::is_turn_end(&upstream, session_id, cursor_id).await
        };
        match is_end.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(no_cursor(session_id, cursor_id)),
            Err(error) if error.is_not_found() => Err(no_cursor(session_id, cursor_id)),
            Err(error) => Err(self.failed(&error)),
        }
    }
}

/// ACP's `-32602` for a cursor that the session does not have.
fn no_cursor(session_id: &str, cursor_id: &str) -> Error {
    let cursor_id: String = cursor_id.chars().take(MAX_SHOWN_ID).collect();
    let message = format!(
        "session `{session_id}` has no cursor `{cursor_id}`: it may be one of another session, or \
         of a conversation that was changed or deleted since; load the session for its cursors"
    );
    Error::new(Code::InvalidParams, message)
}

/// How much of a cursor's id an error repeats, in characters. Clients choose it.
const MAX_SHOWN_ID: usize = 64;
