//! Opens sessions: a new thread, a load that replays the history, a resume that does not. Lists
//! them too.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    ListSessionsRequest, ListSessionsResponse, LoadSessionRequest, McpServer, NewSessionRequest,
    ResumeSessionRequest, SessionInfo,
};
use futures_util::{FutureExt, StreamExt, stream};
use tokio_util::sync::CancellationToken;

use super::link::{Answer, Link, Work};
use super::session::{Session, SessionConfig, Sessions, check_session_id, unknown_session};
use super::turn::{Sending, Turn, Whose};
use crate::threads::{Thread, ThreadReader};
use crate::upstream::{self, ThreadRecord, ThreadSearch};
use threadway_translate::acp::Update;
use threadway_translate::acp::choice::SessionRecord;
use threadway_translate::acp::mcp::{self, ServerForGraph};
use threadway_translate::acp::prompt::Command;
use threadway_translate::acp::rpc::{self, Code, Error};
use threadway_translate::json::{Json, ObjectWriter};

/// Sessions per page of a list: what an editor shows at once.
const PAGE: usize = 50;

/// How many threads of a page are read concurrently for their titles.
const TITLES_AT_ONCE: usize = 8;

/// The prefix of a list cursor; the number of listed sessions follows.
const CURSOR: &str = "after:";

/// `session/new`.
pub(super) async fn new(
    link: &Link,
    sessions: &Sessions,
    request: NewSessionRequest,
) -> Result<Answer, Error> {
    let cwd = absolute(&request.cwd)?;
    let servers = link.servers(&request.mcp_servers)?;
    let mut config = link
        .read_config(SessionRecord { cwd: Some(cwd.clone()), ..SessionRecord::default() })
        .await?;
    let upstream = link.upstream();
    let thread = upstream.new_thread(&config.kept.write()).await;
    let thread = thread.map_err(|error| link.failed(&error))?;
    config.is_saved = true;
    let session = Session::new(&thread.id, &cwd, servers, config, &link.service().settings);
    // The thread is new, so its client has all of it.
    session.view.lock().await.is_synced = true;
    let session = Arc::new(session);
    sessions.open(Arc::clone(&session))?;
    let state = link.state_of(&session).await;
    let result = ObjectWriter::new().string("sessionId", &session.id).rest(state).finish();
    Ok(Answer { result, after: link.introduce(&session) })
}

/// `session/load` replays the whole conversation before the response.
pub(super) async fn load(
    link: &Link,
    sessions: &Sessions,
    request: LoadSessionRequest,
) -> Result<Answer, Error> {
    // At once: the prompt may end while the thread is read.
    sessions.expect_no_prompt(&request.session_id.0)?;
    let servers = link.servers(&request.mcp_servers)?;
    let session = reopen(link, &request.session_id.0, &request.cwd, servers).await?;
    let reader = link.read(&session).await?;
    // Before a prompt can arrive: its updates come after the history.
    let mut view = Arc::clone(&session.view).lock_owned().await;
    let stop = CancellationToken::new();
    session.show(&stop);
    sessions.open(Arc::clone(&session))?;
    let turn = Turn::new(link.clone(), Arc::clone(&session), stop);
    let (reader, outcome) = turn.send_history(&mut view, reader, Sending::All, Whose::Own).await?;
    let state = link.state_of(&session).await;
    let introduce = link.introduce(&session);
    let left = session.detached().clone();
    let after = async move {
        if let Some(introduce) = introduce {
            introduce.await;
        }
        left.run_until_cancelled(turn.follow_without_prompt(view, reader, outcome)).await;
    };
    Ok(Answer { result: ObjectWriter::new().rest(state).finish(), after: Some(after.boxed()) })
}

/// `session/resume` replays nothing.
pub(super) async fn resume(
    link: &Link,
    sessions: &Sessions,
    request: ResumeSessionRequest,
) -> Result<Answer, Error> {
    // At once: the prompt may end while the thread is read.
    sessions.expect_no_prompt(&request.session_id.0)?;
    let servers = link.servers(&request.mcp_servers)?;
    let session = reopen(link, &request.session_id.0, &request.cwd, servers).await?;
    sessions.open(Arc::clone(&session))?;
    let state = link.state_of(&session).await;
    let after = link.introduce(&session);
    Ok(Answer { result: ObjectWriter::new().rest(state).finish(), after })
}

/// Opens a session on an existing thread.
async fn reopen(
    link: &Link,
    id: &str,
    cwd: &Path,
    servers: Option<Json>,
) -> Result<Arc<Session>, Error> {
    check_session_id(id)?;
    let cwd = absolute(cwd)?;
    let upstream = link.upstream();
    let thread = upstream.thread(id).await.map_err(|error| link.failed(&error))?;
    let thread = thread.ok_or_else(|| unknown_session(id))?;
    let mut kept = SessionRecord::read(&thread.metadata);
    // An older version saved the directory as the client wrote it.
    let is_saved = kept.cwd.as_ref() == Some(&cwd);
    match &kept.cwd {
        // ACP: a session keeps its `cwd`.
        Some(known) if absolute(Path::new(known)).as_ref() != Ok(&cwd) => {
            let message =
                format!("session `{id}` has cwd {known}, not {cwd}; open it with its own cwd");
            return Err(Error::new(Code::InvalidParams, message));
        }
        // A thread that no editor created becomes a session with its first prompt.
        Some(_) | None => kept.cwd = Some(cwd.clone()),
    }
    kept.title = kept.title.or_else(|| thread.title());
    let mut config = link.read_config(kept).await?;
    config.is_saved = is_saved;
    let settings = &link.service().settings;
    Ok(Arc::new(Session::new(&thread.id, &cwd, servers, config, settings)))
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
    let threads = upstream.threads(&search).await.map_err(|error| link.failed(&error))?;
    let is_full = threads.len() >= PAGE;
    let sessions = stream::iter(threads).map(|thread| listed(upstream, thread));
    let sessions: Vec<_> = sessions.buffered(TITLES_AT_ONCE).collect().await;
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
    let cwd = PathBuf::from(absolute(Path::new(&cwd)).unwrap_or(cwd));
    let title = match kept.title {
        Some(title) => Some(title),
        None => upstream.thread(&thread.id).await.ok().flatten().and_then(|whole| whole.title()),
    };
    Some(SessionInfo::new(thread.id, cwd).title(title).updated_at(thread.updated_at))
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

    /// The client's MCP servers as the graph gets them. `None` if they are not forwarded.
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
                        "an MCP server is forwarded without the parts that may hold a secret; \
                         `acp.forward_mcp_secrets` forwards them, and LangGraph then stores them"
                    );
                    forwarded.push(server);
                }
                ServerForGraph::Nothing(why) => {
                    tracing::warn!(
                        why,
                        "an MCP server of the editor is not forwarded to the graph"
                    );
                }
            }
        }
        Ok((!servers.is_empty()).then(|| mcp::list(&forwarded)))
    }

    /// Updates to send after the response. Clients do not know the session before it.
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

/// The `cwd` as text, without `.`, repeated and trailing separators: each directory has one text,
/// by which its sessions are found. ACP requires an absolute path.
///
/// `..` stays, because its meaning depends on links.
fn absolute(cwd: &Path) -> Result<String, Error> {
    let text = cwd.to_string_lossy();
    let joined = |rest: &str, is_separator: fn(char) -> bool, separator: &str| {
        let names = rest.split(is_separator).filter(|name| !matches!(*name, "" | "."));
        names.collect::<Vec<_>>().join(separator)
    };
    // An editor on Windows may run the agent elsewhere, where its paths are not absolute.
    if let [drive, b':', separator @ (b'\\' | b'/'), ..] = text.as_bytes()
        && drive.is_ascii_alphabetic()
    {
        let separator = if *separator == b'/' { "/" } else { "\\" };
        let rest =
            joined(text.get(3..).unwrap_or_default(), |c| matches!(c, '/' | '\\'), separator);
        return Ok(format!("{}:{separator}{rest}", char::from(*drive)));
    }
    if cwd.is_absolute() {
        // A path of another form on Windows, such as a network share, stays as it is.
        let rest = text.strip_prefix('/').map(|rest| joined(rest, |c| c == '/', "/"));
        return Ok(rest.map_or_else(|| text.into_owned(), |rest| format!("/{rest}")));
    }
    Err(Error::new(Code::InvalidParams, format!("cwd `{text}` is not an absolute path")))
}
