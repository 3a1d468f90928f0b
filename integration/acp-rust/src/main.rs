//! Drives threadway with the official Rust client: sessions, turns, a permission, loads, a close and
//! a cancel.
//!
//! usage: threadway-integration-acp COMMAND [ARG...]        over stdio; the command that starts the
//! agent, without `--agent NAME`
//!        threadway-integration-acp --children COMMAND [ARG...]        the same, with child sessions of
//! real deep agents
//!        threadway-integration-acp --remote URL FRAMES     over the network: `http://` is streamable
//! HTTP, `ws://` a WebSocket. The messages of each connection are written to FRAMES.

mod children;
mod recorded;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CancelNotification, ClientCapabilities, CloseSessionRequest, ContentBlock, ErrorCode,
    InitializeRequest, LoadSessionRequest, NewSessionRequest, PermissionOptionKind, PromptRequest,
    RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
    SelectedPermissionOutcome, SessionId, SessionNotification, SessionUpdate,
    SetSessionConfigOptionRequest, StopReason, TextContent, ToolCallStatus,
};
use agent_client_protocol::{Agent, ByteStreams, Client, ConnectTo, Error};
use agent_client_protocol_http::HttpClient;
use recorded::Recorded;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;
use tokio_util::compat::{TokioAsyncReadCompatExt, TokioAsyncWriteCompatExt};

/// A scenario, which takes about a second, hangs if it is not over by then.
const SCENARIO_TIMEOUT: Duration = Duration::from_mins(2);
/// An agent that is still there by then, after its stdin has ended, does not exit.
const EXIT_TIMEOUT: Duration = Duration::from_mins(1);
/// The working directory of every session; it need not exist.
const CWD: &str = "/srv/project";
/// The option of a session that names its agent.
const AGENT_OPTION: &str = "assistant";
const ANSWER: &str = "Looking up.tok0 tok1 tok2 tok3 tok4 tok5 tok6 tok7 ";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has_children = arguments.first().is_some_and(|option| option == "--children");
    let arguments = arguments.get(usize::from(has_children)..).unwrap_or_default();
    let place = match arguments {
        [option, url, frames] if option == "--remote" => {
            Place::Remote { url: url.clone(), frames: frames.into() }
        }
        [program, arguments @ ..] if !program.starts_with("--") => {
            Place::Process { program: program.clone(), arguments: arguments.to_vec() }
        }
        _ => {
            eprintln!("usage: threadway-integration-acp COMMAND [ARG...] | --remote URL FRAMES");
            return ExitCode::from(2);
        }
    };
    let mut failed = false;
    let scenarios: &[Scenario] = if has_children {
        &[Scenario::Children, Scenario::AskingChildren]
    } else {
        use Scenario::{Again, Cancel, Close, Permission, Turn};
        &[Turn, Permission, Cancel, Close, Again]
    };
    for &scenario in scenarios {
        let began = Instant::now();
        match run(&place, scenario).await {
            Ok(()) => println!("ok {scenario:?} {} ms", began.elapsed().as_millis()),
            Err(reason) => {
                failed = true;
                println!("FAILED {scenario:?}: {reason}");
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Where the agent is.
enum Place {
    /// A process for each connection, on its pipes.
    Process { program: String, arguments: Vec<String> },
    /// A gateway. The messages of the connections are appended to the file `frames`.
    Remote { url: String, frames: PathBuf },
}

#[derive(Clone, Copy, Debug)]
enum Scenario {
    /// A text, a load of the session, and a load of an unknown session.
    Turn,
    /// Two calls that each wait for a permission.
    Permission,
    /// A turn that is cancelled while it streams, and another turn.
    Cancel,
    /// Two sessions, of which one is closed before the other's next turn.
    Close,
    /// A session that another connection loads and continues.
    Again,
    /// Two subagents at once, live and loaded.
    Children,
    /// Two subagents that each ask for a permission.
    AskingChildren,
}

impl Scenario {
    fn agent(self) -> &'static str {
        match self {
            Self::Turn | Self::Close | Self::Again => "agent",
            Self::Permission => "hitl_per_call",
            Self::Cancel => "editor",
            Self::Children => "deep",
            Self::AskingChildren => "asking_deep",
        }
    }
}

async fn run(place: &Place, scenario: Scenario) -> Result<(), String> {
    let agent = scenario.agent();
    if !matches!(scenario, Scenario::Again) {
        return connected(place, agent, async |editor| play(scenario, editor).await).await;
    }
    let (id, live) = connected(place, agent, async |mut editor| {
        let id = editor.start(agent).await?;
        editor.turn(&id).await?;
        Ok((id, editor.shown.clone()))
    })
    .await?;
    connected(place, agent, async |mut editor| {
        editor.initialize().await?;
        editor.load(&id).await?;
        same("the loaded messages", &editor.shown.said, &live.said)?;
        same("the loaded calls", &editor.shown.calls(), &live.calls())?;
        // The calls of a second turn have other ids.
        editor.shown = Shown::default();
        let reason = editor.prompt(&id, "hello").await?;
        same("the next stop reason", &reason, &StopReason::EndTurn)?;
        same("the next text", editor.shown.text().as_str(), ANSWER)
    })
    .await
}

/// Connects, plays, and waits until the connection has ended.
async fn connected<T>(
    place: &Place,
    agent: &str,
    play: impl AsyncFnOnce(Editor) -> Result<T, String>,
) -> Result<T, String> {
    match place {
        Place::Remote { url, frames } => {
            let client = HttpClient::new(url).map_err(|error| format!("{url}: {error}"))?;
            let recorded = Recorded::new(client, frames)?;
            play_over(recorded, true, play).await
        }
        Place::Process { program, arguments } => {
            let mut child = tokio::process::Command::new(program)
                .args(arguments)
                .args(["--agent", agent])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .map_err(|error| format!("{program} does not start: {error}"))?;
            let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
                return Err("the agent has no pipes".into());
            };
            let transport = ByteStreams::new(input.compat_write(), output.compat());
            let played = play_over(transport, false, play).await?;
            // The client has closed the pipes.
            match tokio::time::timeout(EXIT_TIMEOUT, child.wait()).await {
                Ok(Ok(status)) if status.success() => Ok(played),
                Ok(ended) => Err(format!("the agent ended with {ended:?}")),
                Err(_) => {
                    Err(format!("the agent was there {EXIT_TIMEOUT:?} after its input's end"))
                }
            }
        }
    }
}

async fn play_over<T>(
    transport: impl ConnectTo<Client> + 'static,
    sets_agent: bool,
    play: impl AsyncFnOnce(Editor) -> Result<T, String>,
) -> Result<T, String> {
    let (told, updates) = unbounded_channel();
    let (note, asked) = unbounded_channel();
    let connected = Client
        .v1()
        .name("threadway-integration")
        .on_receive_notification(
            async move |update: SessionNotification, _cx| {
                told.send(update).map_err(Error::into_internal_error)
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest, responder, _cx| {
                let answer = allow(&request)?;
                note.send(request.session_id).map_err(Error::into_internal_error)?;
                responder.respond(answer)
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_with(transport, async move |agent: ConnectionTo<Agent>| {
            let editor = Editor { agent, sets_agent, updates, asked, shown: Shown::default() };
            Ok(tokio::time::timeout(SCENARIO_TIMEOUT, play(editor)).await)
        })
        .await;
    match connected {
        Ok(Ok(played)) => played,
        Ok(Err(_)) => Err(format!("not over after {SCENARIO_TIMEOUT:?}")),
        Err(error) => Err(format!("the connection failed: {error}")),
    }
}

async fn play(scenario: Scenario, mut editor: Editor) -> Result<(), String> {
    if matches!(scenario, Scenario::Children | Scenario::AskingChildren) {
        return children::play(scenario, editor).await;
    }
    let id = editor.start(scenario.agent()).await?;
    match scenario {
        Scenario::Turn => {
            editor.turn(&id).await?;
            let live = editor.shown.clone();
            editor.load(&id).await?;
            same("the loaded messages", &editor.shown.said, &live.said)?;
            same("the loaded calls", &editor.shown.calls(), &live.calls())?;
            match editor.load(&SessionId::new("nobody's")).await {
                Err(reason) if reason.contains(&format!("{:?}", ErrorCode::ResourceNotFound)) => {
                    Ok(())
                }
                answered => Err(format!("a session of nobody's: {answered:?}")),
            }
        }
        Scenario::Permission => {
            let reason = editor.prompt(&id, "go").await?;
            same("the stop reason", &reason, &StopReason::EndTurn)?;
            let calls =
                [("call_d", ToolCallStatus::Completed), ("call_e", ToolCallStatus::Completed)];
            same("the calls", &editor.shown.calls(), &calls.to_vec())
        }
        Scenario::Cancel => {
            let asked =
                editor.agent.send_request(PromptRequest::new(id.clone(), text("slowly, please")));
            while editor.shown.text().is_empty() {
                let update = editor.updates.recv().await.ok_or("the agent has ended")?;
                editor.shown.apply(update.update);
            }
            editor
                .agent
                .send_notification(CancelNotification::new(id.clone()))
                .map_err(|error| format!("session/cancel: {error}"))?;
            let answer =
                asked.block_task().await.map_err(|error| describe("session/prompt", &error))?;
            same("the stop reason", &answer.stop_reason, &StopReason::Cancelled)?;
            let reason = editor.prompt(&id, "hello").await?;
            same("the next stop reason", &reason, &StopReason::EndTurn)
        }
        Scenario::Close => {
            let other = editor.new_session(scenario.agent()).await?;
            editor.turn(&id).await?;
            let request = CloseSessionRequest::new(id.clone());
            let answer = editor.agent.send_request(request).block_task().await;
            answer.map_err(|error| describe("session/close", &error))?;
            editor.shown = Shown::default();
            editor.turn(&other).await?;
            editor.load(&id).await?;
            same("the text", editor.shown.text().as_str(), ANSWER)
        }
        Scenario::Again | Scenario::Children | Scenario::AskingChildren => {
            Err("it is played elsewhere".into())
        }
    }
}

/// The client's side of a connection, and its content of its one session.
struct Editor {
    agent: ConnectionTo<Agent>,
    /// Whether the agent of a session is set by its option; otherwise the process has only one.
    sets_agent: bool,
    updates: UnboundedReceiver<SessionNotification>,
    /// The sessions in which permissions were asked for.
    asked: UnboundedReceiver<SessionId>,
    shown: Shown,
}

impl Editor {
    async fn initialize(&mut self) -> Result<(), String> {
        self.introduce(ClientCapabilities::new()).await
    }

    async fn introduce(&mut self, capabilities: ClientCapabilities) -> Result<(), String> {
        let request = InitializeRequest::new(ProtocolVersion::V1);
        let request = request.client_capabilities(capabilities);
        let answer = self.agent.send_request(request).block_task().await;
        let answer = answer.map_err(|error| describe("initialize", &error))?;
        same("the version", &answer.protocol_version, &ProtocolVersion::V1)?;
        let name = answer.agent_info.map(|info| info.name);
        same("the agent's name", &name.as_deref(), &Some("threadway"))?;
        same("loadSession", &answer.agent_capabilities.load_session, &true)
    }

    /// Introduces the client, and opens a session.
    async fn start(&mut self, agent: &str) -> Result<SessionId, String> {
        self.initialize().await?;
        self.new_session(agent).await
    }

    async fn new_session(&mut self, agent: &str) -> Result<SessionId, String> {
        let answer = self.agent.send_request(NewSessionRequest::new(CWD)).block_task().await;
        let id = answer.map_err(|error| describe("session/new", &error))?.session_id;
        if self.sets_agent {
            let request = SetSessionConfigOptionRequest::new(id.clone(), AGENT_OPTION, agent);
            let answer = self.agent.send_request(request).block_task().await;
            answer.map_err(|error| describe("session/set_config_option", &error))?;
        }
        Ok(id)
    }

    /// A turn of the agent `agent`, of which nothing was shown before.
    async fn turn(&mut self, id: &SessionId) -> Result<(), String> {
        let reason = self.prompt(id, "hello").await?;
        same("the stop reason", &reason, &StopReason::EndTurn)?;
        same("the text", self.shown.text().as_str(), ANSWER)?;
        let calls = [("call_s", ToolCallStatus::Completed), ("call_w", ToolCallStatus::Completed)];
        same("the calls", &self.shown.calls(), &calls.to_vec())
    }

    async fn prompt(&mut self, id: &SessionId, said: &str) -> Result<StopReason, String> {
        let request = PromptRequest::new(id.clone(), text(said));
        let answer = self.agent.send_request(request).block_task().await;
        self.drain();
        let answer = answer.map_err(|error| describe("session/prompt", &error))?;
        Ok(answer.stop_reason)
    }

    /// Drops the session's content and loads it again.
    async fn load(&mut self, id: &SessionId) -> Result<(), String> {
        self.drain();
        self.shown = Shown::default();
        let request = LoadSessionRequest::new(id.clone(), CWD);
        let answer = self.agent.send_request(request).block_task().await;
        self.drain();
        answer.map_err(|error| describe("session/load", &error))?;
        Ok(())
    }

    /// Applies the updates that preceded the last response: the client library delivers messages
    /// one by one.
    fn drain(&mut self) {
        while let Ok(update) = self.updates.try_recv() {
            self.shown.apply(update.update);
        }
    }
}

/// The content of a session in an editor.
#[derive(Clone, Debug, Default)]
struct Shown {
    /// The agent's texts with their message ids, in order.
    said: Vec<(Option<String>, String)>,
    statuses: BTreeMap<String, ToolCallStatus>,
}

impl Shown {
    fn apply(&mut self, update: SessionUpdate) {
        match update {
            SessionUpdate::AgentMessageChunk(chunk) => {
                let ContentBlock::Text(text) = chunk.content else {
                    return;
                };
                let id = chunk.message_id.map(|id| id.to_string());
                match self.said.last_mut() {
                    Some((last, said)) if *last == id => said.push_str(&text.text),
                    _ => self.said.push((id, text.text)),
                }
            }
            SessionUpdate::ToolCall(call) => {
                self.statuses.insert(call.tool_call_id.to_string(), call.status);
            }
            SessionUpdate::ToolCallUpdate(update) => {
                if let Some(status) = update.fields.status {
                    self.statuses.insert(update.tool_call_id.to_string(), status);
                }
            }
            _ => {}
        }
    }

    fn text(&self) -> String {
        self.said.iter().map(|(_, text)| text.as_str()).collect()
    }

    fn calls(&self) -> Vec<(&str, ToolCallStatus)> {
        self.statuses.iter().map(|(id, status)| (id.as_str(), *status)).collect()
    }
}

fn text(said: &str) -> Vec<ContentBlock> {
    vec![ContentBlock::Text(TextContent::new(said))]
}

/// Allows the call once.
fn allow(request: &RequestPermissionRequest) -> Result<RequestPermissionResponse, Error> {
    let once = |kind: &PermissionOptionKind| *kind == PermissionOptionKind::AllowOnce;
    let option = request.options.iter().find(|option| once(&option.kind));
    let option = option.ok_or_else(|| Error::invalid_params().data("no option allows it once"))?;
    Ok(RequestPermissionResponse::new(RequestPermissionOutcome::Selected(
        SelectedPermissionOutcome::new(option.option_id.clone()),
    )))
}

fn same<T: PartialEq + std::fmt::Debug + ?Sized>(
    what: &str,
    actual: &T,
    expected: &T,
) -> Result<(), String> {
    if actual == expected {
        return Ok(());
    }
    Err(format!("{what}: {actual:?} instead of {expected:?}"))
}

fn describe(method: &str, error: &Error) -> String {
    format!("{method}: {:?} {} {:?}", error.code, error.message, error.data)
}
