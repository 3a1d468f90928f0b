//! Opens sessions: a new one, whose thread is made with its first prompt, a load that replays the
//! history, a resume that does not. Lists them too.

use std::path::PathBuf;
use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    ListSessionsRequest, ListSessionsResponse, LoadSessionRequest, NewSessionRequest,
    ResumeSessionRequest, SessionInfo,
};
use futures_util::{FutureExt, StreamExt, stream};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::client::ClientServers;
use super::directory::{self, Directories, absolute, normalized};
use super::link::{Answer, ClientLink, Work};
use super::position::{event_id, load_response_meta};
use super::resume::Resumed;
use super::session::{
    Session, SessionConfig, Sessions, SettingsLocation, Usage, check_session_id, unknown_session,
};
use super::turn::{PromptTurn, UpdateFilter, Whose};
use crate::threads::{self, ListQuery, Thread, ThreadCursor, ThreadReader};
use crate::upstream::{self, QueueClass, ThreadRecord};
use threadway_translate::acp::choice::{RecordMembers, SessionRecord};
use threadway_translate::acp::rpc::{self, Code, Error};
use threadway_translate::json::{Json, ObjectWriter};

/// Sessions per page of a list: what an editor shows at once.
const PAGE: usize = 50;

/// How many threads of a page are read concurrently for their titles.
const TITLES_AT_ONCE: usize = 8;

/// A session that can be opened, or copied.
pub(super) struct StoredSession {
    pub(super) kept: SessionRecord,
    /// `None` if the session has no thread yet.
    pub(super) thread: Option<ThreadRecord>,
}

/// `session/new`.
pub(super) async fn new(
    link: &ClientLink,
    sessions: &Sessions,
    request: NewSessionRequest,
    servers: ClientServers,
) -> Result<Answer, Error> {
    let Directories { cwd, additional } =
        Directories::read(&request.cwd, &request.additional_directories)?;
    let kept = SessionRecord {
        cwd: Some(cwd.clone()),
        additional_directories: additional,
        ..SessionRecord::default()
    };
    let config = link.read_config(kept, SettingsLocation::NoThread).await?;
    let id = Uuid::new_v4().to_string();
    let settings = &link.service().settings;
    let session = Session::new(&id, &cwd, servers, config, settings, link.client());
    // There is no thread yet, so its client has all of it.
    session.view.lock().await.is_synced = true;
    let session = Arc::new(session);
    link.open(sessions, &session, Usage::Unused)?;
    let state = link.state_of(&session).await;
    let result = ObjectWriter::new().string("sessionId", &session.id).rest(state).finish();
    Ok(Answer { result, after: Some(link.introduce(sessions, &session)) })
}

/// `session/load` replays the whole conversation before the response.
pub(super) async fn load(
    link: &ClientLink,
    sessions: &Sessions,
    request: LoadSessionRequest,
    servers: ClientServers,
) -> Result<Answer, Error> {
    // At once: the prompt may end while the thread is read.
    sessions.until_free(&request.session_id.0).await?;
    let after = event_id(request.meta.as_ref());
    let servers = if after.is_some() { servers.without_warnings() } else { servers };
    let directories = Directories::read(&request.cwd, &request.additional_directories)?;
    let session = reopen(link, sessions, &request.session_id.0, directories, servers).await?;
    let usage = session.usage().await;
    if usage == Usage::Unused {
        return open_without_history(link, sessions, session).await;
    }
    let reader = if after.is_none() { Some(link.read(&session).await?) } else { None };
    // Before a prompt can arrive: its updates come after the history.
    let mut view = Arc::clone(&session.view).lock_owned().await;
    let stop = CancellationToken::new();
    session.show(&stop);
    link.open(sessions, &session, usage)?;
    let turn = PromptTurn::new(link.clone(), Arc::clone(&session), stop, None);
    let resumed = match &after {
        Some(after) => turn.resume(&mut view, after).await?,
        None => None,
    };
    let (was_asked, is_resumed) = (after.is_some(), resumed.is_some());
    let (reader, outcome) = if let Some(Resumed { reader, outcome }) = resumed {
        (reader, outcome)
    } else {
        let reader = match reader {
            Some(reader) => reader,
            None => link.read(&session).await?,
        };
        turn.send_history(&mut view, reader, UpdateFilter::All, Whose::Own).await?
    };
    link.emit_position(&session);
    let state = link.state_of(&session).await;
    let introduce = link.introduce(sessions, &session);
    let left = session.detached().clone();
    let follow = link.follow(&session);
    let cursors = announce_cursors(link, &session);
    let after = async move {
        introduce.await;
        let shown = left.run_until_cancelled(turn.follow_without_prompt(view, reader, outcome));
        tokio::join!(cursors, shown);
        if let Some(follow) = follow {
            follow.await;
        }
    };
    let mut result = ObjectWriter::new().rest(state);
    if was_asked {
        result = result.raw("_meta", load_response_meta(is_resumed).get());
    }
    Ok(Answer { result: result.finish(), after: Some(after.boxed()) })
}

/// `session/resume` replays nothing.
pub(super) async fn resume(
    link: &ClientLink,
    sessions: &Sessions,
    request: ResumeSessionRequest,
    servers: ClientServers,
) -> Result<Answer, Error> {
    // At once: the prompt may end while the thread is read.
    sessions.until_free(&request.session_id.0).await?;
    let directories = Directories::read(&request.cwd, &request.additional_directories)?;
    let session = reopen(link, sessions, &request.session_id.0, directories, servers).await?;
    open_without_history(link, sessions, session).await
}

async fn open_without_history(
    link: &ClientLink,
    sessions: &Sessions,
    session: Arc<Session>,
) -> Result<Answer, Error> {
    link.open(sessions, &session, session.usage().await)?;
    let state = link.state_of(&session).await;
    let after = open_work(link, sessions, &session);
    Ok(Answer { result: ObjectWriter::new().rest(state).finish(), after: Some(after) })
}

/// What follows the response that opens a session without its history.
pub(super) fn open_work(link: &ClientLink, sessions: &Sessions, session: &Arc<Session>) -> Work {
    let introduce = link.introduce(sessions, session);
    let cursors = announce_cursors(link, session);
    let follow = link.follow(session);
    async move {
        introduce.await;
        let follow = async {
            if let Some(follow) = follow {
                follow.await;
            }
        };
        tokio::join!(cursors, follow);
    }
    .boxed()
}

/// The work that announces the cursors of a session that is opened, until the session is closed.
fn announce_cursors(link: &ClientLink, session: &Arc<Session>) -> Work {
    let (link, session) = (link.clone(), Arc::clone(session));
    // Before a live run goes on: what it will show, the client has not yet.
    let position = session.position();
    async move {
        let left = session.detached().clone();
        left.run_until_cancelled(link.announce_cursors(&session, position.shown_last())).await;
    }
    .boxed()
}

/// Opens a session on an existing thread, or once more a session without one.
async fn reopen(
    link: &ClientLink,
    sessions: &Sessions,
    id: &str,
    directories: Directories,
    servers: ClientServers,
) -> Result<Arc<Session>, Error> {
    check_session_id(id)?;
    let Directories { cwd, additional } = directories;
    let StoredSession { mut kept, thread } = StoredSession::find(link, sessions, id).await?;
    let found = kept.members();
    match &kept.cwd {
        // ACP: a session keeps its `cwd`.
        Some(known) if normalized(known) != cwd => {
            let message =
                format!("session `{id}` has cwd {known}, not {cwd}; open it with its own cwd");
            return Err(Error::new(Code::InvalidParams, message));
        }
        // A thread that no editor created becomes a session with its first prompt.
        Some(_) | None => kept.cwd = Some(cwd.clone()),
    }
    // ACP: the request has the complete list, and may change it.
    let is_news = kept.additional_directories != additional;
    kept.additional_directories = additional;
    // All members of a thread that is no session yet are written with its first prompt.
    let changes =
        if kept.is_session { kept.members().since(&found) } else { RecordMembers::default() };
    let has_thread = thread.is_some();
    let config = link.read_config(kept, SettingsLocation::of(thread.as_ref())).await?;
    let settings = &link.service().settings;
    let session = Session::new(id, &cwd, servers, config, settings, link.client());
    session.view.lock().await.is_synced = !has_thread;
    let mut config = session.config.lock().await;
    if is_news {
        // At once: the session's next run may answer a question, without a prompt.
        link.save(&session, &mut config, changes).await?;
    } else {
        // Another program has written the directory in another form.
        config.stored.add_unsaved(changes);
    }
    drop(config);
    Ok(Arc::new(session))
}

// === impl StoredSession ===

impl StoredSession {
    /// Finds a session that has a thread, or one that is open here without a thread. Fails in the
    /// same way if there is none, and if LangGraph hides it from the caller.
    pub(super) async fn find(
        link: &ClientLink,
        sessions: &Sessions,
        id: &str,
    ) -> Result<Self, Error> {
        if let Some(open) = sessions.without_thread(id).await {
            let kept = open.config.lock().await.kept.clone();
            return Ok(Self { kept, thread: None });
        }
        let upstream = link.upstream();
        let thread = upstream.in_turn(QueueClass::Looks, upstream.thread(id)).await;
        let thread = thread.map_err(|error| link.failed(&error))?;
        let thread = thread.ok_or_else(|| unknown_session(id))?;
        let mut kept = SessionRecord::read(&thread.metadata);
        kept.title = kept.title.or_else(|| thread.title());
        Ok(Self { kept, thread: Some(thread) })
    }
}

/// `session/list`: the sessions of a directory, or all of them, newest first.
pub(super) async fn list(link: &ClientLink, request: &ListSessionsRequest) -> Result<Json, Error> {
    let after = request.cursor.as_deref().map(str::parse::<ThreadCursor>).transpose();
    let after = after.map_err(|error| Error::new(Code::InvalidParams, error.to_string()))?;
    let cwd = request.cwd.as_deref().map(absolute).transpose()?;
    let metadata = SessionRecord::mark(cwd.as_deref());
    let query = ListQuery { limit: PAGE, with_archived: true, after };
    let upstream = &link.upstream();
    let page = threads::list(upstream, &metadata, &query).await;
    let page = page.map_err(|error| link.failed(&error))?;
    let turn = upstream.turn(QueueClass::Looks).await.map_err(|error| link.failed(&error))?;
    let sessions = stream::iter(page.threads).map(|thread| listed(upstream, thread));
    let sessions: Vec<_> = sessions.buffered(TITLES_AT_ONCE).collect().await;
    drop(turn);
    let sessions = sessions.into_iter().flatten().collect();
    let next = page.next.map(|next| next.to_string());
    rpc::result(&ListSessionsResponse::new(sessions).next_cursor(next))
}

/// A list entry. `None` for a thread without a `cwd`, which ACP requires.
///
/// A session gets its title with its first prompt here. For a thread that others created the title
/// is read from its messages; without a title it is listed all the same.
async fn listed(upstream: &upstream::Client, thread: ThreadRecord) -> Option<SessionInfo> {
    let kept = SessionRecord::read(&thread.metadata);
    let cwd = kept.cwd?;
    let cwd = PathBuf::from(normalized(&cwd));
    let title = match kept.title {
        Some(title) => Some(title),
        None => upstream.thread(&thread.id).await.ok().flatten().and_then(|whole| whole.title()),
    };
    let info = SessionInfo::new(thread.id, cwd)
        .additional_directories(directory::listed(&kept.additional_directories));
    Some(info.title(title).updated_at(thread.updated_at))
}

impl ClientLink {
    /// Connects to the session's thread: to its live run, or to its stored state.
    pub(super) async fn read(&self, session: &Session) -> Result<ThreadReader, Error> {
        let thread = self.thread(session, &*session.config.lock().await)?;
        let reader = Box::pin(thread.connect(None)).await;
        reader.map_err(|refusal| self.refused(&refusal))
    }

    /// Adds an open session.
    pub(super) fn open(
        &self,
        sessions: &Sessions,
        session: &Arc<Session>,
        usage: Usage,
    ) -> Result<(), Error> {
        if let Some(closed) = sessions.open(session, usage)? {
            self.close_session(&closed.id);
        }
        Ok(())
    }

    /// The session's thread, with the agent chosen for it. Only the first prompt makes it, before its
    /// run.
    pub(super) fn thread(
        &self,
        session: &Session,
        config: &SessionConfig,
    ) -> Result<Thread, Error> {
        let service = self.service();
        let agent = service.agents.find(&config.kept.choices.assistant, &self.caller());
        let agent = agent.map_err(|error| Error::internal(error.to_string()))?;
        Ok(service.threads.thread(agent, session.id.clone(), None).existing())
    }
}
