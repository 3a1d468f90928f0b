//! Sessions that begin or go on: a new thread, one whose history is told again, one whose client
//! knows it already; and the list of all.

use std::path::PathBuf;
use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    ListSessionsRequest, ListSessionsResponse, LoadSessionRequest, McpServer, NewSessionRequest,
    ResumeSessionRequest, SessionInfo,
};
use futures_util::{FutureExt, StreamExt, stream};
use tokio_util::sync::CancellationToken;

use super::connection::{Answer, Connection, Work, absolute, unknown_session};
use super::session::{Desk, Session};
use super::turn::{Telling, Turn};
use crate::acp::Update;
use crate::acp::choice::{Assistant, Choices, Kept, Menu};
use crate::acp::prompt::Command;
use crate::acp::rpc::{self, Code, Error};
use crate::json::{self, Json, ObjectWriter};
use crate::langgraph::{ConfigField, ServerKind, ThreadRecord};
use crate::runs::ThreadReader;
use crate::upstream::{self, ThreadSearch};

/// How many sessions a page lists: what an editor shows at once.
const PAGE: usize = 50;

/// How many threads are read at once for the titles of a page.
const TITLES_AT_ONCE: usize = 8;

/// How a cursor begins; behind it stands how many sessions came before.
const CURSOR: &str = "after:";

/// `session/new`.
pub(super) async fn new(
    connection: &Connection,
    request: NewSessionRequest,
) -> Result<Answer, Error> {
    let cwd = absolute(&request.cwd)?;
    let servers = connection.servers(&request.mcp_servers)?;
    let mut desk = connection.desk(Kept { cwd: Some(cwd.clone()), ..Kept::default() }).await?;
    let upstream = &connection.service().upstream.client;
    let thread = upstream.new_thread(&desk.kept.write()).await;
    let thread = thread.map_err(|error| connection.failed(&error))?;
    desk.is_kept = true;
    let session = Session::new(&thread.id, &cwd, servers, desk, &connection.service().settings);
    // Its client holds all that the thread does.
    session.voice.lock().await.is_based = true;
    let session = Arc::new(session);
    connection.open(Arc::clone(&session))?;
    let state = connection.state_of(&session).await;
    let result = ObjectWriter::new().string("sessionId", &session.id).rest(state).finish();
    Ok(Answer { result, after: connection.introduce(&session) })
}

/// `session/load`: "the agent MUST replay the entire conversation, then respond".
pub(super) async fn load(
    connection: &Connection,
    request: LoadSessionRequest,
) -> Result<Answer, Error> {
    let servers = connection.servers(&request.mcp_servers)?;
    let session = reopen(connection, &request.session_id.0, &request.cwd, servers).await?;
    let reader = connection.read(&session).await?;
    // Before a prompt can come: it is told behind the history.
    let mut voice = Arc::clone(&session.voice).lock_owned().await;
    let stop = CancellationToken::new();
    session.show(&stop);
    connection.open(Arc::clone(&session))?;
    let turn = Turn::new(connection.clone(), Arc::clone(&session), stop);
    let (reader, outcome) = turn.tell_history(&mut voice, reader, Telling::Aloud).await?;
    let state = connection.state_of(&session).await;
    let introduce = connection.introduce(&session);
    let left = session.left().clone();
    let after = async move {
        if let Some(introduce) = introduce {
            introduce.await;
        }
        left.run_until_cancelled(turn.go_on_alone(voice, reader, outcome)).await;
    };
    Ok(Answer { result: ObjectWriter::new().rest(state).finish(), after: Some(after.boxed()) })
}

/// `session/resume`: "MUST NOT replay".
pub(super) async fn resume(
    connection: &Connection,
    request: ResumeSessionRequest,
) -> Result<Answer, Error> {
    let servers = connection.servers(&request.mcp_servers)?;
    let session = reopen(connection, &request.session_id.0, &request.cwd, servers).await?;
    connection.open(Arc::clone(&session))?;
    let state = connection.state_of(&session).await;
    let after = connection.introduce(&session);
    Ok(Answer { result: ObjectWriter::new().rest(state).finish(), after })
}

/// A session of a thread that is there.
async fn reopen(
    connection: &Connection,
    id: &str,
    cwd: &std::path::Path,
    servers: Option<Json>,
) -> Result<Arc<Session>, Error> {
    let cwd = absolute(cwd)?;
    let upstream = &connection.service().upstream.client;
    let thread = upstream.thread(id).await.map_err(|error| connection.failed(&error))?;
    let thread = thread.ok_or_else(|| unknown_session(id))?;
    let mut kept = Kept::read(&thread.metadata);
    let is_kept = kept.cwd.is_some();
    match &kept.cwd {
        // "`cwd` must match the session's."
        Some(known) if *known != cwd => {
            let message =
                format!("session `{id}` is about {known}, not {cwd}; load it with that cwd");
            return Err(Error::new(Code::InvalidParams, message));
        }
        // A thread that no editor has made becomes a session with its first prompt.
        Some(_) | None => kept.cwd = Some(cwd.clone()),
    }
    kept.title = kept.title.or_else(|| thread.title());
    let mut desk = connection.desk(kept).await?;
    desk.is_kept = is_kept;
    let settings = &connection.service().settings;
    Ok(Arc::new(Session::new(&thread.id, &cwd, servers, desk, settings)))
}

/// `session/list`: those of a directory, or all, newest first.
pub(super) async fn list(
    connection: &Connection,
    request: &ListSessionsRequest,
) -> Result<Json, Error> {
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
    let metadata = Kept::mark(cwd.as_deref());
    let search = ThreadSearch { metadata: &metadata, limit: PAGE, offset };
    let upstream = &connection.service().upstream.client;
    let threads = upstream.threads(&search).await.map_err(|error| connection.failed(&error))?;
    let is_full = threads.len() >= PAGE;
    let sessions = stream::iter(threads).map(|thread| listed(upstream, thread));
    let sessions: Vec<_> = sessions.buffered(TITLES_AT_ONCE).collect().await;
    let sessions = sessions.into_iter().flatten().collect();
    let next = is_full.then(|| format!("{CURSOR}{}", offset.saturating_add(PAGE)));
    rpc::result(&ListSessionsResponse::new(sessions).next_cursor(next))
}

/// "`cwd` is required": a thread without one was made a session by others.
///
/// A session gets its title with its first prompt here. One of others is read for it; without, it
/// is listed all the same.
async fn listed(upstream: &upstream::Client, thread: ThreadRecord) -> Option<SessionInfo> {
    let kept = Kept::read(&thread.metadata);
    let cwd = PathBuf::from(kept.cwd?);
    let title = match kept.title {
        Some(title) => Some(title),
        None => upstream.thread(&thread.id).await.ok().flatten().and_then(|whole| whole.title()),
    };
    Some(SessionInfo::new(thread.id, cwd).title(title).updated_at(thread.updated_at))
}

impl Connection {
    /// What a session chooses from, and what is chosen where nothing was, or what is no more.
    async fn desk(&self, mut kept: Kept) -> Result<Desk, Error> {
        let service = self.service();
        let listing = service.agents.list_of(&service.upstream).await;
        let listed = listing.agents.map_err(|error| self.failed(&error))?;
        let assistants: Vec<_> = listed
            .into_iter()
            .map(|agent| Assistant {
                id: agent.id,
                name: agent.name,
                description: agent.description,
            })
            .collect();
        let Choices { mode, assistant, fields: _ } = &mut kept.choices;
        if !assistants.iter().any(|known| known.id == *assistant) {
            let default = service.agent.clone();
            let first = || assistants.first().map(|agent| agent.id.clone());
            *assistant = default.or_else(first).ok_or_else(|| {
                let server = service.upstream.client.base();
                Error::internal(format!("{server} has no agents; `threadway check` tells more"))
            })?;
        }
        let modes = service.settings.modes.clone();
        let mut menu = Menu { modes, assistants, fields: Vec::new() };
        if mode.is_none()
            && let Some(first) = menu.modes.first().map(|mode| mode.id.clone())
        {
            menu.choose_mode(&mut kept.choices, &first)?;
        }
        menu.fields = self.fields_of(&kept.choices.assistant).await?;
        Ok(Desk { kept, menu, is_kept: false })
    }

    /// The settings of an agent's graph; none, if they cannot be read: it runs without.
    pub(super) async fn fields_of(&self, agent: &str) -> Result<Vec<ConfigField>, Error> {
        let agents = &self.service().agents;
        let agent = agents.find(agent).map_err(|error| Error::internal(error.to_string()))?;
        Ok(agents.config_fields(&agent).await)
    }

    /// Reads a session's thread: its live run, else what it holds.
    pub(super) async fn read(&self, session: &Session) -> Result<ThreadReader, Error> {
        let service = self.service();
        let kind = self.server_kind(session).await;
        let reader = service.runs.connect(&service.upstream.client, kind, &session.id).await;
        reader.map_err(|error| self.failed(&error))
    }

    /// The kind of a session's server.
    async fn server_kind(&self, session: &Session) -> Option<ServerKind> {
        let agents = &self.service().agents;
        let agent = agents.find(&session.desk.lock().await.kept.choices.assistant).ok()?;
        agents.server_kind(&agent).await
    }

    /// The client's tool servers for the graph. "stdio" ones are processes of the editor's
    /// machine, which a graph cannot start.
    fn servers(&self, servers: &[McpServer]) -> Result<Option<Json>, Error> {
        if self.service().settings.mcp_key.is_none() {
            return Ok(None);
        }
        let mut forwarded = Vec::new();
        for server in servers {
            match server {
                McpServer::Http(_) | McpServer::Sse(_) => forwarded.push(rpc::result(server)?),
                McpServer::Stdio(_) | _ => {
                    tracing::warn!("an MCP server that is no URL cannot be reached by the graph");
                }
            }
        }
        let forwarded = json::array(forwarded.iter().map(|server| server.get()));
        Ok((!servers.is_empty()).then_some(forwarded))
    }

    /// What a client is told of a session when it opens it.
    async fn state_of(&self, session: &Session) -> Vec<(&'static str, Json)> {
        let desk = session.desk.lock().await;
        let options = desk.menu.options(&desk.kept.choices, self.client().has_switches);
        let modes = desk.menu.modes(&desk.kept.choices);
        let modes = modes.map(|modes| ("modes", modes));
        let options = (options.get() != "[]").then_some(("configOptions", options));
        modes.into_iter().chain(options).collect()
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
