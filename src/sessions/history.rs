//! Sessions that begin or go on: a new thread, one whose history is told again, one whose client
//! knows it already; and the list of all.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    ListSessionsRequest, ListSessionsResponse, LoadSessionRequest, McpServer, NewSessionRequest,
    ResumeSessionRequest, SessionInfo,
};
use futures_util::{FutureExt, StreamExt, stream};
use tokio_util::sync::CancellationToken;

use super::link::{Answer, Link, Work};
use super::session::{Desk, Session, Sessions, unknown_session};
use super::turn::{Telling, Turn, Whose};
use crate::threads::{Thread, ThreadReader};
use crate::upstream::{self, Caller, ThreadRecord, ThreadSearch};
use threadway_translate::acp::Update;
use threadway_translate::acp::choice::SessionRecord;
use threadway_translate::acp::mcp::{self, ServerForGraph};
use threadway_translate::acp::prompt::Command;
use threadway_translate::acp::rpc::{self, Code, Error};
use threadway_translate::json::{Json, ObjectWriter};

/// How many sessions a page lists: what an editor shows at once.
const PAGE: usize = 50;

/// How many threads are read at once for the titles of a page.
const TITLES_AT_ONCE: usize = 8;

/// How a cursor begins; behind it stands how many sessions came before.
const CURSOR: &str = "after:";

/// `session/new`.
pub(super) async fn new(
    link: &Link,
    sessions: &Sessions,
    request: NewSessionRequest,
) -> Result<Answer, Error> {
    let cwd = absolute(&request.cwd)?;
    let servers = link.servers(&request.mcp_servers)?;
    let mut desk =
        link.desk(SessionRecord { cwd: Some(cwd.clone()), ..SessionRecord::default() }).await?;
    let upstream = &link.service().upstream.client;
    let thread = upstream.new_thread(&desk.kept.write()).await;
    let thread = thread.map_err(|error| link.failed(&error))?;
    desk.is_kept = true;
    let session = Session::new(&thread.id, &cwd, servers, desk, &link.service().settings);
    // Its client holds all that the thread does.
    session.voice.lock().await.is_based = true;
    let session = Arc::new(session);
    sessions.open(Arc::clone(&session))?;
    let state = link.state_of(&session).await;
    let result = ObjectWriter::new().string("sessionId", &session.id).rest(state).finish();
    Ok(Answer { result, after: link.introduce(&session) })
}

/// `session/load` replays the entire conversation, and responds then.
pub(super) async fn load(
    link: &Link,
    sessions: &Sessions,
    request: LoadSessionRequest,
) -> Result<Answer, Error> {
    let servers = link.servers(&request.mcp_servers)?;
    let session = reopen(link, &request.session_id.0, &request.cwd, servers).await?;
    let reader = link.read(&session).await?;
    // Before a prompt can come: it is told behind the history.
    let mut voice = Arc::clone(&session.voice).lock_owned().await;
    let stop = CancellationToken::new();
    session.show(&stop);
    sessions.open(Arc::clone(&session))?;
    let turn = Turn::new(link.clone(), Arc::clone(&session), stop);
    let (reader, outcome) =
        turn.tell_history(&mut voice, reader, Telling::Aloud, Whose::Own).await?;
    let state = link.state_of(&session).await;
    let introduce = link.introduce(&session);
    let left = session.left().clone();
    let after = async move {
        if let Some(introduce) = introduce {
            introduce.await;
        }
        left.run_until_cancelled(turn.go_on_alone(voice, reader, outcome)).await;
    };
    Ok(Answer { result: ObjectWriter::new().rest(state).finish(), after: Some(after.boxed()) })
}

/// `session/resume` replays nothing.
pub(super) async fn resume(
    link: &Link,
    sessions: &Sessions,
    request: ResumeSessionRequest,
) -> Result<Answer, Error> {
    let servers = link.servers(&request.mcp_servers)?;
    let session = reopen(link, &request.session_id.0, &request.cwd, servers).await?;
    sessions.open(Arc::clone(&session))?;
    let state = link.state_of(&session).await;
    let after = link.introduce(&session);
    Ok(Answer { result: ObjectWriter::new().rest(state).finish(), after })
}

/// A session of a thread that is there.
async fn reopen(
    link: &Link,
    id: &str,
    cwd: &Path,
    servers: Option<Json>,
) -> Result<Arc<Session>, Error> {
    let cwd = absolute(cwd)?;
    let upstream = &link.service().upstream.client;
    let thread = upstream.thread(id).await.map_err(|error| link.failed(&error))?;
    let thread = thread.ok_or_else(|| unknown_session(id))?;
    let mut kept = SessionRecord::read(&thread.metadata);
    let is_kept = kept.cwd.is_some();
    match &kept.cwd {
        // ACP: a session keeps its `cwd`.
        Some(known) if *known != cwd => {
            let message =
                format!("session `{id}` is about {known}, not {cwd}; load it with that cwd");
            return Err(Error::new(Code::InvalidParams, message));
        }
        // A thread that no editor has made becomes a session with its first prompt.
        Some(_) | None => kept.cwd = Some(cwd.clone()),
    }
    kept.title = kept.title.or_else(|| thread.title());
    let mut desk = link.desk(kept).await?;
    desk.is_kept = is_kept;
    let settings = &link.service().settings;
    Ok(Arc::new(Session::new(&thread.id, &cwd, servers, desk, settings)))
}

/// `session/list`: those of a directory, or all, newest first.
pub(super) async fn list(link: &Link, request: &ListSessionsRequest) -> Result<Json, Error> {
    let offset = match &request.cursor {
        None => 0,
        Some(cursor) => {
            let offset = cursor.strip_prefix(CURSOR).and_then(|offset| offset.parse().ok());
            offset.ok_or_else(|| {
                let message = "`cursor` is none of ours; send the nextCursor of a list, or none";
                Error::new(Code::InvalidParams, message)
            })?
        }
    };
    let cwd = request.cwd.as_deref().map(absolute).transpose()?;
    let metadata = SessionRecord::mark(cwd.as_deref());
    let search = ThreadSearch { metadata: &metadata, limit: PAGE, offset };
    let upstream = &link.service().upstream.client;
    let threads = upstream.threads(&search).await.map_err(|error| link.failed(&error))?;
    let is_full = threads.len() >= PAGE;
    let sessions = stream::iter(threads).map(|thread| listed(upstream, thread));
    let sessions: Vec<_> = sessions.buffered(TITLES_AT_ONCE).collect().await;
    let sessions = sessions.into_iter().flatten().collect();
    let next = is_full.then(|| format!("{CURSOR}{}", offset.saturating_add(PAGE)));
    rpc::result(&ListSessionsResponse::new(sessions).next_cursor(next))
}

/// `None` for a thread without a `cwd`, which ACP requires in a list.
///
/// A session gets its title with its first prompt here. One of others is read for it; without, it
/// is listed all the same.
async fn listed(upstream: &upstream::Client, thread: ThreadRecord) -> Option<SessionInfo> {
    let kept = SessionRecord::read(&thread.metadata);
    let cwd = PathBuf::from(kept.cwd?);
    let title = match kept.title {
        Some(title) => Some(title),
        None => upstream.thread(&thread.id).await.ok().flatten().and_then(|whole| whole.title()),
    };
    Some(SessionInfo::new(thread.id, cwd).title(title).updated_at(thread.updated_at))
}

impl Link {
    /// Reads a session's thread: its live run, else what it holds.
    pub(super) async fn read(&self, session: &Session) -> Result<ThreadReader, Error> {
        let thread = self.thread(session, &*session.desk.lock().await)?;
        let reader = Box::pin(thread.connect(None)).await;
        reader.map_err(|refusal| self.refused(&refusal))
    }

    /// A session's thread, and the agent that is chosen for it.
    pub(super) fn thread(&self, session: &Session, desk: &Desk) -> Result<Thread, Error> {
        let service = self.service();
        let agent = service.agents.find(&desk.kept.choices.assistant, &Caller::default());
        let agent = agent.map_err(|error| Error::internal(error.to_string()))?;
        Ok(service.threads.thread(agent, session.id.clone(), None))
    }

    /// The client's tool servers for the graph.
    fn servers(&self, servers: &[McpServer]) -> Result<Option<Json>, Error> {
        let settings = &self.service().settings;
        if settings.mcp_key.is_none() {
            return Ok(None);
        }
        let mut forwarded = Vec::new();
        for server in servers {
            match ServerForGraph::of(server, settings.mcp_secrets)? {
                ServerForGraph::Whole(server) => forwarded.push(server),
                ServerForGraph::Without(server, left_out) => {
                    let left_out = left_out.join(", ");
                    tracing::warn!(
                        left_out,
                        "an MCP server goes to the graph without what may hold a secret; \
                         `acp.forward_mcp_secrets` sends that too, and LangGraph then stores it"
                    );
                    forwarded.push(server);
                }
                ServerForGraph::Nothing(why) => {
                    tracing::warn!(why, "an MCP server of the editor does not go to the graph");
                }
            }
        }
        Ok((!servers.is_empty()).then(|| mcp::list(&forwarded)))
    }

    /// What is told behind the response, for clients that know the session only then.
    fn introduce(&self, session: &Arc<Session>) -> Option<Work> {
        let commands = &self.service().settings.commands;
        if commands.is_empty() {
            return None;
        }
        let (this, session) = (self.clone(), Arc::clone(session));
        let introduce = async move {
            let commands = &this.service().settings.commands;
            let available_commands: Vec<_> = commands.iter().map(Command::offered).collect();
            let update =
                Update::AvailableCommandsUpdate { available_commands: &available_commands };
            this.update(&session.id, &update);
        };
        Some(introduce.boxed())
    }
}

/// The `cwd` as text. ACP requires an absolute path.
fn absolute(cwd: &Path) -> Result<String, Error> {
    let text = cwd.to_string_lossy();
    // An editor on Windows may run us elsewhere: its paths are no paths here.
    let is_drive = text.as_bytes().get(1) == Some(&b':');
    if cwd.is_absolute() || is_drive {
        return Ok(text.into_owned());
    }
    Err(Error::new(Code::InvalidParams, format!("cwd `{text}` is not an absolute path")))
}
