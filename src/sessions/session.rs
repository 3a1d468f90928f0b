//! One open session: its thread, its settings, and what its client has been sent.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Settings;
use super::introduction::ClientServers;
use super::link::ClientAbilities;
use super::position::Position;
use crate::agents::InputKeys;
use crate::metrics::{AcpMeter, Charge, Full, GaugeGuard, Held};
use crate::sync::{self, Guard};
use threadway_translate::acp::choice::{SessionOptions, SessionRecord};
use threadway_translate::acp::rpc::{Code, Error};
use threadway_translate::acp::{Projector, StopReason};
use threadway_translate::run::{Ask, Decision, Id, Interrupt};

/// The most open sessions. Each remembers what its client was sent of every message.
const MAX_SESSIONS: usize = 256;

/// About how many bytes a session takes besides the texts of its client.
const KEPT_BESIDES: usize = 4 * 1024;

/// The most MCP servers that a client is warned about.
const MAX_REPORTED_SERVERS: usize = 256;

/// The open sessions. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Sessions {
    open: Arc<sync::Mutex<HashMap<String, Counted>>>,
    meter: Option<AcpMeter>,
    /// The names of the MCP servers that the client was warned about: the graph does not get them.
    reported_servers: Arc<sync::Mutex<HashSet<String>>>,
}

/// An open session, counted until it is closed.
#[derive(Debug)]
struct Counted {
    session: Arc<Session>,
    _open: Option<GaugeGuard>,
    _charge: Option<Charge>,
}

/// An open session.
#[derive(Debug)]
pub(super) struct Session {
    /// The id of the session's thread in LangGraph. The thread is made with the first prompt.
    pub(super) id: String,
    pub(super) servers: ClientServers,
    /// About how many bytes are kept of what the client has sent.
    kept_bytes: usize,
    /// Serialises setting changes; later prompts see them.
    pub(super) config: Mutex<SessionConfig>,
    /// Locked by whoever sends updates of this session, so that they do not mix.
    pub(super) view: Arc<Mutex<ClientView>>,
    /// Where the client is. Changed only by whoever has locked `view`.
    position: sync::Mutex<Position>,
    activity: sync::Mutex<Activity>,
    /// Notified when a prompt arrives. A prompt answers questions that were asked without one.
    pub(super) prompted: Notify,
    /// Notified when a prompt has ended.
    idle: Notify,
    /// Cancelled when the session is closed or opened again: its updates are not sent any more.
    detached: CancellationToken,
}

/// The session's settings and what they are chosen from.
#[derive(Debug)]
pub(super) struct SessionConfig {
    pub(super) kept: SessionRecord,
    pub(super) menu: SessionOptions,
    /// The keys of the input of the running agent's graph.
    pub(super) input: Arc<InputKeys>,
    pub(super) stored: Stored,
}

/// Where the settings of a session are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// Only here: the thread is made with the first prompt.
    NoThread,
    /// The thread has older ones.
    Outdated,
    /// The thread has the same.
    Current,
}

/// What the client has been sent of the thread.
#[derive(Debug)]
pub(super) struct ClientView {
    pub(super) projector: Projector,
    /// Whether `projector` knows what the client has. False until the first read after a resume.
    pub(super) is_synced: bool,
    /// The open questions that the next prompt answers.
    pub(super) questions: Vec<OpenQuestion>,
    /// How many times each question was written into the conversation.
    pub(super) asked: HashMap<Id, u32>,
    /// Keys of the thread's metadata that hold saved decisions, which the next run answers with.
    pub(super) decision_keys: Vec<String>,
    /// How the run has ended that was shown without a prompt last.
    pub(super) ended: Option<Result<StopReason, Error>>,
}

/// A question of a run. An approval of several calls may be answered in part.
#[derive(Clone, Debug)]
pub(super) struct OpenQuestion {
    pub(super) question: Interrupt,
    /// Whether the question was written into the conversation. The next prompt then answers it.
    pub(super) is_asked_in_text: bool,
    /// The decisions so far, one slot for each call of an approval.
    pub(super) decided: Vec<Option<Decision>>,
}

/// What is going on in the session.
#[derive(Debug, Default)]
struct Activity {
    /// Stops the prompt.
    prompt: Option<CancellationToken>,
    /// Stops the run that is shown without a prompt.
    shown: Option<CancellationToken>,
    following: Following,
}

/// Whether the runs of others are shown as they begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Following {
    #[default]
    NotYet,
    Begun,
}

/// Marks the session as prompted until it is dropped.
#[derive(Debug)]
pub(super) struct PromptGuard<'a>(&'a Session);

// === impl Sessions ===

impl Sessions {
    /// No sessions yet. `meter` counts those that will be open.
    pub(super) fn new(meter: Option<AcpMeter>) -> Self {
        Self { open: Arc::default(), meter, reported_servers: Arc::default() }
    }

    pub(super) fn get(&self, id: &str) -> Result<Arc<Session>, Error> {
        self.find(id).ok_or_else(|| unknown_session(id))
    }

    fn find(&self, id: &str) -> Option<Arc<Session>> {
        self.lock().get(id).map(|open| Arc::clone(&open.session))
    }

    /// The open session of this id, if its thread does not exist yet.
    pub(super) async fn without_thread(&self, id: &str) -> Option<Arc<Session>> {
        let open = self.get(id).ok()?;
        let has_thread = open.has_thread().await;
        (!has_thread).then_some(open)
    }

    /// Refuses a session that has a prompt. A client that loads it meanwhile would be sent the
    /// prompt's updates, and then the history with the same messages.
    pub(super) fn expect_no_prompt(&self, id: &str) -> Result<(), Error> {
        let open = self.find(id);
        if open.is_some_and(|open| open.is_prompted()) {
            return Err(busy(id));
        }
        Ok(())
    }

    /// Refuses one more session than may be open.
    pub(super) fn expect_room(&self) -> Result<(), Error> {
        if self.lock().len() >= MAX_SESSIONS { Err(too_many()) } else { Ok(()) }
    }

    /// Adds an open session. Replaces one of the same thread, unless that has a prompt.
    pub(super) fn open(&self, session: Arc<Session>) -> Result<(), Error> {
        self.expect_no_prompt(&session.id)?;
        let mut charge = self.meter.as_ref().map(|meter| meter.charge(Held::Session));
        if let Some(charge) = &mut charge {
            charge.set(session.kept_bytes).map_err(|full| Error::internal(no_room(full)))?;
        }
        let mut sessions = self.lock();
        match sessions.get(&session.id) {
            Some(open) => open.session.detach(),
            None if sessions.len() >= MAX_SESSIONS => return Err(too_many()),
            None => {}
        }
        let counted = self.meter.as_ref().map(AcpMeter::session);
        sessions.insert(session.id.clone(), Counted { session, _open: counted, _charge: charge });
        Ok(())
    }

    /// The MCP servers that the client was not warned about yet. A client gets one warning for each,
    /// and not one for each session.
    pub(super) fn unreported_servers<'a>(&self, names: &'a [String]) -> Vec<&'a String> {
        let mut reported = self.reported_servers.lock();
        let is_new = |name: &&String| {
            reported.len() < MAX_REPORTED_SERVERS && reported.insert((*name).clone())
        };
        names.iter().filter(is_new).collect()
    }

    pub(super) fn remove(&self, id: &str) -> Option<Arc<Session>> {
        self.lock().remove(id).map(|open| open.session)
    }

    fn lock(&self) -> Guard<'_, HashMap<String, Counted>> {
        self.open.lock()
    }
}

fn no_room(full: Full) -> String {
    format!("there is no room for the session: {full}; close some, or try again later")
}

fn too_many() -> Error {
    Error::invalid(format!("{MAX_SESSIONS} sessions are open; close some"))
}

/// A session takes one prompt at a time.
fn busy(id: &str) -> Error {
    let message = format!("session {id} is busy with a prompt; wait for its response or cancel it");
    Error::invalid(message)
}

/// ACP's `-32002`, resource not found.
pub(super) fn unknown_session(id: &str) -> Error {
    let message = format!("there is no session `{id}` here; load or resume it, or make a new one");
    Error::new(Code::NotFound, message)
}

/// Refuses an id that is not a UUID as LangGraph writes it, before it becomes part of a path
/// upstream: a server may resolve `..` there.
pub(super) fn check_session_id(id: &str) -> Result<(), Error> {
    let is_uuid = Uuid::try_parse(id).is_ok_and(|uuid| uuid.hyphenated().to_string() == id);
    if is_uuid {
        return Ok(());
    }
    let message = format!(
        "there is no session `{id}`; a session's id is a UUID in lower case, as `session/list` has it"
    );
    Err(Error::new(Code::NotFound, message))
}

// === impl Stored ===

impl Stored {
    /// After a change of the settings.
    pub(super) fn changed(self) -> Self {
        match self {
            Self::NoThread => Self::NoThread,
            Self::Outdated | Self::Current => Self::Outdated,
        }
    }
}

// === impl Session ===

impl Session {
    pub(super) fn new(
        id: &str,
        cwd: &str,
        servers: ClientServers,
        config: SessionConfig,
        settings: &Settings,
        client: ClientAbilities,
    ) -> Self {
        let directories: usize = config.kept.additional_directories.iter().map(String::len).sum();
        // The `cwd` is kept for the thread's metadata, and by the projector.
        let kept_bytes = 2 * cwd.len() + directories + servers.bytes() + KEPT_BESIDES;
        let projector = Projector::new(Arc::clone(&settings.profile), cwd);
        let projector = projector.noticing(client.notice_forms).planning(client.plan_form);
        let projector = if client.has_subagents { projector.nesting(id) } else { projector };
        let view = ClientView {
            projector,
            is_synced: false,
            questions: Vec::new(),
            asked: HashMap::new(),
            decision_keys: Vec::new(),
            ended: None,
        };
        Self {
            id: id.to_owned(),
            servers,
            kept_bytes,
            config: Mutex::new(config),
            view: Arc::new(Mutex::new(view)),
            position: sync::Mutex::default(),
            activity: sync::Mutex::default(),
            prompted: Notify::new(),
            idle: Notify::new(),
            detached: CancellationToken::new(),
        }
    }

    /// Whether the session's thread exists. It is made with the first prompt.
    pub(super) async fn has_thread(&self) -> bool {
        self.config.lock().await.stored != Stored::NoThread
    }

    pub(super) fn position(&self) -> Position {
        self.position.lock().clone()
    }

    pub(super) fn set_position(&self, position: Position) {
        *self.position.lock() = position;
    }

    /// Sends no more updates of this session. Its run goes on.
    pub(super) fn detach(&self) {
        self.detached.cancel();
    }

    pub(super) fn detached(&self) -> &CancellationToken {
        &self.detached
    }

    /// Begins a prompt; `stop` stops it. A session has one prompt at a time.
    pub(super) fn prompt(&self, stop: &CancellationToken) -> Result<PromptGuard<'_>, Error> {
        let mut activity = self.activity();
        if activity.prompt.is_some() {
            return Err(busy(&self.id));
        }
        activity.prompt = Some(stop.clone());
        drop(activity);
        self.prompted.notify_waiters();
        Ok(PromptGuard(self))
    }

    /// Whether a prompt is running or waiting to run.
    pub(super) fn is_prompted(&self) -> bool {
        self.activity().prompt.is_some()
    }

    /// Waits until no prompt is running.
    pub(super) async fn wait_until_idle(&self) {
        loop {
            let mut idle = std::pin::pin!(self.idle.notified());
            idle.as_mut().enable();
            if !self.is_prompted() {
                return;
            }
            idle.await;
        }
    }

    /// Whether the session is not followed yet. It counts as followed from now on.
    pub(super) fn begin_following(&self) -> bool {
        let mut activity = self.activity();
        std::mem::replace(&mut activity.following, Following::Begun) == Following::NotYet
    }

    /// Registers a run that is shown without a prompt; `stop` stops it.
    pub(super) fn show(&self, stop: &CancellationToken) {
        self.activity().shown = Some(stop.clone());
    }

    /// Stops the prompt, or without one the run that is shown.
    pub(super) fn stop(&self) {
        let Activity { prompt, shown, following: _ } = &*self.activity();
        if let Some(stop) = prompt.as_ref().or(shown.as_ref()) {
            stop.cancel();
        }
    }

    fn activity(&self) -> Guard<'_, Activity> {
        self.activity.lock()
    }
}

impl Drop for PromptGuard<'_> {
    fn drop(&mut self) {
        self.0.activity().prompt = None;
        self.0.idle.notify_waiters();
    }
}

// === impl OpenQuestion ===

impl From<Interrupt> for OpenQuestion {
    fn from(question: Interrupt) -> Self {
        let decided = match &question.ask {
            Ask::Approval { actions, form } => {
                actions.iter().map(|action| action.kept_decision(*form)).collect()
            }
            Ask::Answer { .. } | Ask::Breakpoint => Vec::new(),
        };
        Self { question, is_asked_in_text: false, decided }
    }
}
