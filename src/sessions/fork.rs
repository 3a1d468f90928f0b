//! `session/fork`: a copy of a session, which goes on by itself.
//!
//! LangGraph copies the thread's checkpoints and metadata. It copies no runs: a fork of a session
//! whose run is live has what that run has stored so far.

use std::sync::Arc;

use agent_client_protocol_schema::v1::ForkSessionRequest;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::client::ClientServers;
use super::directory::Directories;
use super::history::{StoredSession, open_work};
use super::link::{Answer, ClientLink};
use super::session::{
    Session, Sessions, SettingsLocation, Usage, check_session_id, unknown_session,
};
use crate::threads::{self, CopyError};
use crate::upstream::ThreadRecord;
use threadway_translate::acp::choice::{RecordMembers, SessionRecord};
use threadway_translate::acp::rpc::Error;
use threadway_translate::json::{Json, ObjectWriter};

/// The request's directories and servers are those of the copy, and the modes and settings are the
/// source's. Permanent permissions are not copied: they were given for the source.
pub(super) async fn fork(
    link: &ClientLink,
    sessions: &Sessions,
    request: ForkSessionRequest,
    servers: ClientServers,
) -> Result<Answer, Error> {
    let source = &*request.session_id.0;
    check_session_id(source)?;
    let Directories { cwd, additional } =
        Directories::read(&request.cwd, &request.additional_directories)?;
    sessions.expect_room()?;
    let cursor_id = request.cursor_id.map(|cursor_id| cursor_id.0.to_string());
    if let Some(cursor_id) = &cursor_id {
        link.expect_cursor(source, cursor_id).await?;
    }
    let StoredSession { mut kept, thread } = StoredSession::find(link, sessions, source).await?;
    if let Ok(open) = sessions.get(source)
        && let SettingsLocation::Thread { unsaved, .. } = &open.config.lock().await.stored
    {
        let mut members = kept.members();
        members.apply(unsaved.clone());
        kept = SessionRecord::of(&members);
    }
    kept.is_session = thread.is_some();
    kept.cwd = Some(cwd.clone());
    kept.additional_directories = additional;
    kept.always.clear();
    let mut config = link.read_config(kept, SettingsLocation::NoThread).await?;
    let usage = if thread.is_some() { Usage::Used } else { Usage::Unused };
    let id = match thread {
        // Both sessions are empty.
        None => Uuid::new_v4().to_string(),
        Some(thread) => {
            let members = config.kept.members();
            config.stored = SettingsLocation::Thread {
                seen: members.clone(),
                unsaved: RecordMembers::default(),
            };
            link.copy_thread(thread, cursor_id, members).await?
        }
    };
    let settings = &link.service().settings;
    let session = Session::new(&id, &cwd, servers, config, settings, link.client());
    session.view.lock().await.is_synced = usage == Usage::Unused;
    let session = Arc::new(session);
    if let Err(error) = link.open(sessions, &session, usage) {
        if usage == Usage::Used {
            link.delete_copy(id);
        }
        return Err(error);
    }
    let state = link.state_of(&session).await;
    let result = ObjectWriter::new().string("sessionId", &session.id).rest(state).finish();
    Ok(Answer { result, after: Some(open_work(link, sessions, &session)) })
}

impl ClientLink {
    /// Copies a thread, up to the checkpoint if there is one, and stores this record with the copy.
    /// Returns the id of the copy. If the client leaves meanwhile, the copy is deleted again.
    async fn copy_thread(
        &self,
        source: ThreadRecord,
        checkpoint_id: Option<String>,
        record: RecordMembers,
    ) -> Result<String, Error> {
        let (upstream, id) = (self.upstream(), source.id.clone());
        let (done, copied) = oneshot::channel();
        self.service().tasks.spawn(async move {
            // Also an answer that was given since the source was read is not copied.
            let change = |copied: &Json| record.since(&RecordMembers::read(copied)).write();
            let copied = threads::copy(&upstream, &source, checkpoint_id.as_deref(), change).await;
            if let Err(Ok(Some(unused))) = done.send(copied) {
                threads::delete_copy(&upstream, &unused).await;
            }
        });
        match copied.await {
            Ok(Ok(Some(copy))) => Ok(copy),
            // The thread was deleted meanwhile.
            Ok(Ok(None)) => Err(unknown_session(&id)),
            Ok(Err(error @ CopyError::Unsupported { .. })) => {
                Err(Error::internal(format!("{error}; go on in this session, or make a new one")))
            }
            Ok(Err(CopyError::Upstream(error))) => Err(self.failed(&error)),
            Err(_) => Err(Error::internal("the task that copies the thread has failed")),
        }
    }

    /// Deletes a copy that nobody uses, also if the client leaves meanwhile.
    fn delete_copy(&self, id: String) {
        let upstream = self.upstream();
        self.service().tasks.spawn(async move { threads::delete_copy(&upstream, &id).await });
    }
}
