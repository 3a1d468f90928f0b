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

use super::directory::{self, Directories, absolute, normalized};
use super::introduction::ClientServers;
use super::link::{Answer, Link, Work};
use super::position::{Resumed, answer_meta, event_id};
use super::session::{Session, SessionConfig, Sessions, Stored, check_session_id, unknown_session};
use super::turn::{Sending, Turn, Whose};
use crate::threads::{Thread, ThreadReader};
use crate::upstream::{self, Line, ThreadRecord, ThreadSearch};
use threadway_translate::acp::choice::SessionRecord;
use threadway_translate::acp::rpc::{self, Code, Error};
use threadway_translate::json::{Json, ObjectWriter};

/// Sessions per page of a list: what an editor shows at once.
const PAGE: usize = 50;

/// How many threads of a page are read concurrently for their titles.
const TITLES_AT_ONCE: usize = 8;

/// The prefix of a list cursor; the number of listed sessions follows.
const CURSOR: &str = "after:";

/// A session that can be opened, or copied.
pub(super) struct Known {
    pub(super) kept: SessionRecord,
    pub(super) stored: Stored,
    /// `None` if the session has no thread yet.
    pub(super) thread: Option<ThreadRecord>,
}

/// `session/new`.
pub(super) async fn new(
    link: &Link,
    sessions: &Sessions,
    request: NewSessionRequest,
    servers: ClientServers,
) -> Result<Answer, Error> {
    let Directories { cwd, additional } =
        Directories::read(&request.cwd, &request.additional_directories)?;
    let servers = link.prompted(servers, request.system_prompt.as_ref())?;
    let kept = SessionRecord {
        cwd: Some(cwd.clone()),
        additional_directories: additional,
        ..SessionRecord::default()
    };
    let config = link.read_config(kept, Stored::NoThread).await?;
    let id = Uuid::new_v4().to_string();
    let settings = &link.service().settings;
    let session = Session::new(&id, &cwd, servers, config, settings, link.client());
    // There is no thread yet, so its client has all of it.
    session.view.lock().await.is_synced = true;
    let session = Arc::new(session);
    sessions.open(Arc::clone(&session))?;
    let state = link.state_of(&session).await;
    let result = ObjectWriter::new().string("sessionId", &session.id).rest(state).finish();
    Ok(Answer { result, after: Some(link.introduce(sessions, &session)) })
}

/// `session/load` replays the whole conversation before the response.
pub(super) async fn load(
    link: &Link,
    sessions: &Sessions,
    request: LoadSessionRequest,
    servers: ClientServers,
) -> Result<Answer, Error> {
    // At once: the prompt may end while the thread is read.
    sessions.expect_no_prompt(&request.session_id.0)?;
    let after = event_id(request.meta.as_ref());
    let servers = if after.is_some() { servers.without_warnings() } else { servers };
    let servers = link.prompted(servers, request.system_prompt.as_ref())?;
    let directories = Directories::read(&request.cwd, &request.additional_directories)?;
    let session = reopen(link, sessions, &request.session_id.0, directories, servers).await?;
    if !session.has_thread().await {
        return open_without_history(link, sessions, session).await;
    }
    let reader = if after.is_none() { Some(link.read(&session).await?) } else { None };
    // Before a prompt can arrive: its updates come after the history.
    let mut view = Arc::clone(&session.view).lock_owned().await;
    let stop = CancellationToken::new();
    session.show(&stop);
    sessions.open(Arc::clone(&session))?;
    let turn = Turn::new(link.clone(), Arc::clone(&session), stop, None);
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
        turn.send_history(&mut view, reader, Sending::All, Whose::Own).await?
    };
    link.emit_position(&session);
    let state = link.state_of(&session).await;
    let introduce = link.introduce(sessions, &session);
    let left = session.detached().clone();
    let follow = link.follow(&session);
    let after = async move {
        introduce.await;
        left.run_until_cancelled(turn.follow_without_prompt(view, reader, outcome)).await;
        if let Some(follow) = follow {
            follow.await;
        }
    };
    let mut result = ObjectWriter::new().rest(state);
    if was_asked {
        result = result.raw("_meta", answer_meta(is_resumed).get());
    }
    Ok(Answer { result: result.finish(), after: Some(after.boxed()) })
}

/// `session/resume` replays nothing.
pub(super) async fn resume(
    link: &Link,
    sessions: &Sessions,
    request: ResumeSessionRequest,
    servers: ClientServers,
) -> Result<Answer, Error> {
    // At once: the prompt may end while the thread is read.
    sessions.expect_no_prompt(&request.session_id.0)?;
    let servers = link.prompted(servers, request.system_prompt.as_ref())?;
    let directories = Directories::read(&request.cwd, &request.additional_directories)?;
    let session = reopen(link, sessions, &request.session_id.0, directories, servers).await?;
    open_without_history(link, sessions, session).await
}

async fn open_without_history(
    link: &Link,
    sessions: &Sessions,
    session: Arc<Session>,
) -> Result<Answer, Error> {
    sessions.open(Arc::clone(&session))?;
    let state = link.state_of(&session).await;
    let after = open_work(link, sessions, &session);
    Ok(Answer { result: ObjectWriter::new().rest(state).finish(), after: Some(after) })
}

/// What follows the response that opens a session without its history.
pub(super) fn open_work(link: &Link, sessions: &Sessions, session: &Arc<Session>) -> Work {
    let introduce = link.introduce(sessions, session);
    let follow = link.follow(session);
    async move {
        introduce.await;
        if let Some(follow) = follow {
            follow.await;
        }
    }
    .boxed()
}

/// Opens a session on an existing thread, or once more a session without one.
async fn reopen(
    link: &Link,
    sessions: &Sessions,
    id: &str,
    directories: Directories,
    servers: ClientServers,
) -> Result<Arc<Session>, Error> {
    check_session_id(id)?;
    let Directories { cwd, additional } = directories;
    let Known { mut kept, mut stored, thread } = Known::find(link, sessions, id).await?;
    // An older version saved the directory as the client wrote it.
    if stored == Stored::Current && kept.cwd.as_ref() != Some(&cwd) {
        stored = Stored::Outdated;
    }
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
    let is_session = thread.is_some_and(|thread| SessionRecord::is_marked(&thread.metadata));
    let mut config = link.read_config(kept, stored).await?;
    if is_news && stored != Stored::NoThread {
        // At once: the session's next run may answer a question, without a prompt.
        let is_saved = is_session && link.save_directories(id, &config.kept).await;
        if !is_saved {
            config.stored = Stored::Outdated;
        }
    }
    let settings = &link.service().settings;
    let session = Session::new(id, &cwd, servers, config, settings, link.client());
    session.view.lock().await.is_synced = stored == Stored::NoThread;
    Ok(Arc::new(session))
}

// === impl Known ===

impl Known {
    /// Finds a session that has a thread, or one that is open here without a thread. Fails in the
    /// same way if there is none, and if LangGraph hides it from the caller.
    pub(super) async fn find(link: &Link, sessions: &Sessions, id: &str) -> Result<Self, Error> {
        if let Some(open) = sessions.without_thread(id).await {
            let kept = open.config.lock().await.kept.clone();
            return Ok(Self { kept, stored: Stored::NoThread, thread: None });
        }
        let upstream = link.upstream();
        let thread = upstream.in_turn(Line::Looks, upstream.thread(id)).await;
        let thread = thread.map_err(|error| link.failed(&error))?;
        let thread = thread.ok_or_else(|| unknown_session(id))?;
        let mut kept = SessionRecord::read(&thread.metadata);
        kept.title = kept.title.or_else(|| thread.title());
        Ok(Self { kept, stored: Stored::Current, thread: Some(thread) })
    }
}

/// `session/list`: the sessions of a directory, or all of them, newest first.
pub(super) async fn list(link: &Link, request: &ListSessionsRequest) -> Result<Json, Error> {
    let offset = match &request.cursor {
        None => 0,
        Some(cursor) => {
            let offset = cursor.strip_prefix(CURSOR).and_then(|offset| offset.parse().ok());
            offset.ok_or_else(|| {
                let message = "`cursor` is invalid; send the nextCursor of a list, or leave it out";
                Error::new(Code::InvalidParams, message)
            })?
        }
    };
    let cwd = request.cwd.as_deref().map(absolute).transpose()?;
    let metadata = SessionRecord::mark(cwd.as_deref());
    let search = ThreadSearch { metadata: &metadata, limit: PAGE, offset };
    let upstream = &link.upstream();
    let turn = upstream.turn(Line::Looks).await.map_err(|error| link.failed(&error))?;
    let threads = upstream.threads(&search).await.map_err(|error| link.failed(&error))?;
    let is_full = threads.len() >= PAGE;
    let sessions = stream::iter(threads).map(|thread| listed(upstream, thread));
    let sessions: Vec<_> = sessions.buffered(TITLES_AT_ONCE).collect().await;
    drop(turn);
    let sessions = sessions.into_iter().flatten().collect();
    let next = is_full.then(|| format!("{CURSOR}{}", offset.saturating_add(PAGE)));
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

impl Link {
    /// Connects to the session's thread: to its live run, or to its stored state.
    pub(super) async fn read(&self, session: &Session) -> Result<ThreadReader, Error> {
        let thread = self.thread(session, &*session.config.lock().await)?;
        let reader = Box::pin(thread.connect(None)).await;
        reader.map_err(|refusal| self.refused(&refusal))
    }

    /// The session's thread, with the agent chosen for it.
    pub(super) fn thread(
        &self,
        session: &Session,
        config: &SessionConfig,
    ) -> Result<Thread, Error> {
        let service = self.service();
        let agent = service.agents.find(&config.kept.choices.assistant, &self.caller());
        let agent = agent.map_err(|error| Error::internal(error.to_string()))?;
        Ok(service.threads.thread(agent, session.id.clone(), None))
    }
}
