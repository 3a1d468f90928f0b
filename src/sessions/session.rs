//! One open session: its thread, its settings, and what its client has been sent.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use indexmap::IndexMap;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Settings;
use super::client::{ClientAbilities, ClientServers, SubagentForm};
use super::position::Position;
use super::prompts::{Occupied, PromptGuard, Prompts};
use crate::agents::InputKeys;
use crate::metrics::{AcpMeter, Charge, Full, GaugeGuard, Held};
use crate::sync::{self, Guard};
use crate::upstream::ThreadRecord;
use threadway_translate::acp::choice::{RecordMembers, SessionOptions, SessionRecord};
use threadway_translate::acp::rpc::{Code, Error};
use threadway_translate::acp::{Projector, StopReason};
use threadway_translate::run::{Ask, Decision, Id, Interrupt};

/// The most open sessions that are used. Each remembers what its client was sent of every message.
const MAX_SESSIONS: usize = 256;

/// The most open sessions without a prompt. An editor opens one for each panel. Beyond this number
/// the oldest is closed: most editors close none.
const MAX_UNUSED_SESSIONS: usize = 256;

/// About how many bytes a session takes besides the texts of its client.
const KEPT_BESIDES: usize = 4 * 1024;

/// The most MCP servers that a client is warned about.
const MAX_REPORTED_SERVERS: usize = 256;

/// The open sessions. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Sessions {
    /// The oldest first.
    open: Arc<sync::Mutex<IndexMap<String, Counted>>>,
    meter: Option<AcpMeter>,
    /// The names of the MCP servers that the client was warned about: the graph does not get them.
    reported_servers: Arc<sync::Mutex<HashSet<String>>>,
}

/// An open session, counted until it is closed.
#[derive(Debug)]
struct Counted {
    session: Arc<Session>,
    usage: Usage,
    _open: Option<GaugeGuard>,
    _charge: Option<Charge>,
}

/// Whether a session is more than an empty panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Usage {
    /// It has no thread, and had no prompt.
    Unused,
    Used,
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
    /// A prompt that arrives answers questions that were asked without one.
    pub(super) prompts: Prompts,
    /// Cancelled when the session is closed or opened again, or when its thread was deleted: its
    /// updates are not sent any more.
    detached: CancellationToken,
}

/// The session's settings and what they are chosen from.
#[derive(Debug)]
pub(super) struct SessionConfig {
    pub(super) kept: SessionRecord,
    pub(super) menu: SessionOptions,
    /// The keys of the input of the running agent's graph.
    pub(super) input: Arc<InputKeys>,
    pub(super) stored: SettingsLocation,
}

/// Where the settings of a session are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SettingsLocation {
    /// Only here: the thread is made with the first prompt.
    NoThread,
    /// In the thread's metadata.
    Thread {
        /// What the metadata had when they were last read or changed. What differs later was
        /// changed by others.
        seen: RecordMembers,
        /// The changes that were not saved: the upstream did not answer.
        unsaved: RecordMembers,
    },
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

// === impl Sessions ===

impl Sessions {
    /// No sessions yet. `meter` counts those that will be open.
    pub(super) fn new(meter: Option<AcpMeter>) -> Self {
        Self { open: Arc::default(), meter, reported_servers: Arc::default() }
    }

    pub(super) fn get(&self, id: &str) -> Result<Arc<Session>, Error> {
        self.find(id).ok_or_else(|| not_open(id))
    }

    /// The session for a prompt. It counts as used from now on.
    pub(super) fn get_for_prompt(&self, id: &str) -> Result<Arc<Session>, Error> {
        let session = self.get(id)?;
        let mut sessions = self.lock();
        let is_full = is_full(&sessions, Usage::Used, id);
        match sessions.get_mut(id) {
            Some(open) if open.usage == Usage::Unused && is_full => return Err(too_many()),
            Some(open) => open.usage = Usage::Used,
            None => {}
        }
        Ok(session)
    }

    fn find(&self, id: &str) -> Option<Arc<Session>> {
        let mut sessions = self.lock();
        let session = sessions.get(id).map(|open| Arc::clone(&open.session))?;
        if session.detached.is_cancelled() {
            // Its thread was deleted.
            sessions.shift_remove(id);
            return None;
        }
        Some(session)
    }

    /// The open session of this id, if its thread does not exist yet.
    pub(super) async fn without_thread(&self, id: &str) -> Option<Arc<Session>> {
        let open = self.get(id).ok()?;
        let has_thread = open.has_thread().await;
        (!has_thread).then_some(open)
    }

    /// Waits until a session's cancelled prompts have ended. Refuses a session with another prompt:
    /// a client that loads it meanwhile would be sent the prompt's updates, and then the history
    /// with the same messages.
    pub(super) async fn until_free(&self, id: &str) -> Result<(), Error> {
        let Some(open) = self.find(id) else { return Ok(()) };
        if open.prompts.any_to_run() {
            return Err(busy(id, Occupied::Running));
        }
        open.prompts.wait_until_none().await;
        Ok(())
    }

    /// Refuses one more session than may be used.
    pub(super) fn expect_room(&self) -> Result<(), Error> {
        if is_full(&self.lock(), Usage::Used, "") { Err(too_many()) } else { Ok(()) }
    }

    /// Adds an open session. Replaces one of the same thread, unless that has a prompt. Returns the
    /// oldest unused session if it was closed for this one.
    pub(super) fn open(
        &self,
        session: &Arc<Session>,
        usage: Usage,
    ) -> Result<Option<Arc<Session>>, Error> {
        if self.find(&session.id).is_some_and(|open| open.prompts.any()) {
            return Err(busy(&session.id, Occupied::Running));
        }
        let mut charge = self.meter.as_ref().map(|meter| meter.charge(Held::Session));
        if let Some(charge) = &mut charge {
            charge.set(session.kept_bytes).map_err(|full| Error::internal(no_room(full)))?;
        }
        let mut sessions = self.lock();
        sessions.retain(|_, open| !open.session.detached.is_cancelled());
        let mut closed = None;
        if is_full(&sessions, usage, &session.id) {
            let unused = sessions.iter().find(|(_, open)| open.usage == Usage::Unused);
            let oldest = unused.map(|(id, _)| id.clone()).filter(|_| usage == Usage::Unused);
            let oldest = oldest.and_then(|id| sessions.shift_remove(&id));
            closed = Some(oldest.ok_or_else(too_many)?.session);
        }
        let counted = self.meter.as_ref().map(AcpMeter::session);
        let new = Counted { session: Arc::clone(session), usage, _open: counted, _charge: charge };
        let replaced = sessions.insert(session.id.clone(), new).map(|open| open.session);
        drop(sessions);
        for gone in replaced.iter().chain(&closed) {
            gone.detach();
        }
        Ok(closed)
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
        self.lock().shift_remove(id).map(|open| open.session)
    }

    fn lock(&self) -> Guard<'_, IndexMap<String, Counted>> {
        self.open.lock()
    }
}

fn no_room(full: Full) -> String {
    format!("there is no room for the session: {full}; close some, or try again later")
}

/// Whether there is no room for one more session of this usage beside the one with this id.
fn is_full(sessions: &IndexMap<String, Counted>, usage: Usage, id: &str) -> bool {
    let limit = match usage {
        Usage::Unused => MAX_UNUSED_SESSIONS,
        Usage::Used => MAX_SESSIONS,
    };
    let others = sessions.iter().filter(|(other, open)| open.usage == usage && *other != id);
    others.count() >= limit
}

fn too_many() -> Error {
    Error::invalid(format!("{MAX_SESSIONS} sessions with prompts are open; close some"))
}

/// A session runs one prompt at a time.
fn busy(id: &str, occupied: Occupied) -> Error {
    Error::invalid(match occupied {
        Occupied::Running => format!(
            "session {id} is busy with a prompt; wait for its response, or send `session/cancel` \
             and then this request again"
        ),
        Occupied::Waiting => format!(
            "session {id} already has a prompt that waits for the cancelled one; wait for the \
             responses of both, then send this one again"
        ),
    })
}

/// ACP's `-32002`, resource not found: the session may exist, but not on this connection.
fn not_open(id: &str) -> Error {
    let message = format!(
        "session `{id}` is not open on this connection; load or resume it, or make a new one"
    );
    Error::new(Code::NotFound, message)
}

/// ACP's `-32002` for a session without a thread.
pub(super) fn unknown_session(id: &str) -> Error {
    let message = format!(
        "there is no session `{id}`: sessions exist from their first prompt until they are \
         deleted; make a new one"
    );
    Error::new(Code::NotFound, message)
}

/// Refuses an id that is not a UUID as LangGraph writes it, before it becomes part of a path
/// upstream: a server may resolve `..` there.
pub(super) fn check_session_id(id: &str) -> Result<(), Error> {
    if is_uuid(id) {
        return Ok(());
    }
    let message = format!(
        "there is no session `{id}`; a session's id is a UUID in lower case, as `session/list` has it"
    );
    Err(Error::new(Code::NotFound, message))
}

/// Whether an id is a UUID as LangGraph writes it.
pub(super) fn is_uuid(id: &str) -> bool {
    Uuid::try_parse(id).is_ok_and(|uuid| uuid.hyphenated().to_string() == id)
}

// === impl SettingsLocation ===

impl SettingsLocation {
    /// In this thread, if there is one.
    pub(super) fn of(thread: Option<&ThreadRecord>) -> Self {
        thread.map_or(Self::NoThread, |thread| {
            let seen = RecordMembers::read(&thread.metadata);
            Self::Thread { seen, unsaved: RecordMembers::default() }
        })
    }

    /// Adds changes that the next save sends.
    pub(super) fn add_unsaved(&mut self, changes: RecordMembers) {
        if let Self::Thread { unsaved, .. } = self {
            unsaved.and(changes);
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
        let projector = match client.subagent_form {
            SubagentForm::ChildSessions => projector.nesting(id),
            SubagentForm::Calls => projector,
        };
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
            prompts: Prompts::default(),
            detached: CancellationToken::new(),
        }
    }

    /// Whether the session's thread exists. It is made with the first prompt.
    pub(super) async fn has_thread(&self) -> bool {
        self.config.lock().await.stored != SettingsLocation::NoThread
    }

    pub(super) fn position(&self) -> Position {
        self.position.lock().clone()
    }

    pub(super) fn set_position(&self, position: Position) {
        *self.position.lock() = position;
    }

    pub(super) async fn usage(&self) -> Usage {
        if self.has_thread().await { Usage::Used } else { Usage::Unused }
    }

    /// The thread was deleted, so the session leaves the connection. Its next prompt must not make
    /// an empty thread: the client still shows the conversation.
    pub(super) fn deleted(&self) -> Error {
        self.detach();
        let message = format!(
            "session `{}` was deleted by another client, with its conversation; make a new one",
            self.id
        );
        Error::new(Code::NotFound, message)
    }

    /// Sends no more updates of this session. Its run goes on.
    pub(super) fn detach(&self) {
        self.detached.cancel();
    }

    pub(super) fn detached(&self) -> &CancellationToken {
        &self.detached
    }

    /// Enters a prompt; `stop` stops it.
    pub(super) fn prompt(&self, stop: &CancellationToken) -> Result<PromptGuard<'_>, Error> {
        self.prompts.enter(stop).map_err(|occupied| busy(&self.id, occupied))
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

    /// Stops the prompts, or without one the run that is shown.
    pub(super) fn stop(&self) {
        if self.prompts.stop() {
            return;
        }
        if let Some(stop) = &self.activity().shown {
            stop.cancel();
        }
    }

    fn activity(&self) -> Guard<'_, Activity> {
        self.activity.lock()
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
