//! One session: its thread, what was chosen for it, what its client was told, and who is at it.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;

use super::Settings;
use crate::sync::{self, Guard};
use threadway_translate::acp::Projector;
use threadway_translate::acp::choice::{SessionOptions, SessionRecord};
use threadway_translate::acp::rpc::{Code, Error};
use threadway_translate::json::Json;
use threadway_translate::run::{Ask, Decision, Interrupt};

/// How many sessions may be open here. Each keeps what its client was told of each message.
pub const MAX_SESSIONS: usize = 256;

/// The sessions that are open here. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Sessions(Arc<sync::Mutex<HashMap<String, Arc<Session>>>>);

/// A session that is open here.
#[derive(Debug)]
pub(super) struct Session {
    /// LangGraph's thread.
    pub(super) id: String,
    /// The client's tool servers, as it sent them.
    pub(super) servers: Option<Json>,
    /// Who sets two things at once sets them in this order; a prompt that follows sees both.
    pub(super) desk: Mutex<Desk>,
    /// Who tells the client something, holds it.
    pub(super) voice: Arc<Mutex<Voice>>,
    activity: sync::Mutex<Activity>,
    /// Rings when a prompt comes, for questions that were asked without one.
    pub(super) prompted: Notify,
    /// Rings when a prompt is over.
    rested: Notify,
    /// Cancelled when nobody is to be told of it any more.
    left: CancellationToken,
}

/// What was chosen and kept.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) kept: SessionRecord,
    pub(super) menu: SessionOptions,
    /// Whether the thread's metadata say so too.
    pub(super) is_kept: bool,
}

/// What the client was told.
#[derive(Debug)]
pub(super) struct Voice {
    pub(super) projector: Projector,
    /// Whether it is known what the client holds.
    pub(super) is_based: bool,
    /// The questions whose answer is the next prompt.
    pub(super) waiting: Vec<Waiting>,
    /// The members of the thread's metadata that keep decisions which the next run answers with.
    pub(super) kept: Vec<String>,
}

/// A question that is partly answered, if it is an approval of several calls.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) question: Interrupt,
    /// Whether it was put in words: then the next prompt answers it.
    pub(super) is_in_words: bool,
    /// What is decided about each call.
    pub(super) decided: Vec<Option<Decision>>,
}

/// Who is at the session.
#[derive(Debug, Default)]
struct Activity {
    /// Stops the prompt.
    prompt: Option<CancellationToken>,
    /// Stops the run that is shown without a prompt.
    shown: Option<CancellationToken>,
}

/// A prompt that is at the session; there is none after it was dropped.
#[derive(Debug)]
pub(super) struct Prompting<'a>(&'a Session);

// === impl Sessions ===

impl Sessions {
    /// A session that is open here.
    pub(super) fn get(&self, id: &str) -> Result<Arc<Session>, Error> {
        self.lock().get(id).cloned().ok_or_else(|| unknown_session(id))
    }

    /// Opens a session, in place of one of the same thread that no prompt is at.
    pub(super) fn open(&self, session: Arc<Session>) -> Result<(), Error> {
        let open = self.lock().get(&session.id).cloned();
        if open.is_some_and(|open| open.is_prompted()) {
            return Err(busy(&session.id));
        }
        let mut sessions = self.lock();
        match sessions.get(&session.id) {
            Some(open) => open.leave(),
            None if sessions.len() >= MAX_SESSIONS => {
                let message = format!("{MAX_SESSIONS} sessions are open; close some");
                return Err(Error::invalid(message));
            }
            None => {}
        }
        sessions.insert(session.id.clone(), session);
        Ok(())
    }

    pub(super) fn remove(&self, id: &str) -> Option<Arc<Session>> {
        self.lock().remove(id)
    }

    fn lock(&self) -> Guard<'_, HashMap<String, Arc<Session>>> {
        self.0.lock()
    }
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

// === impl Session ===

impl Session {
    pub(super) fn new(
        id: &str,
        cwd: &str,
        servers: Option<Json>,
        desk: Desk,
        settings: &Settings,
    ) -> Self {
        let projector = Projector::new(Arc::clone(&settings.dialect), cwd);
        let voice = Voice { projector, is_based: false, waiting: Vec::new(), kept: Vec::new() };
        Self {
            id: id.to_owned(),
            servers,
            desk: Mutex::new(desk),
            voice: Arc::new(Mutex::new(voice)),
            activity: sync::Mutex::default(),
            prompted: Notify::new(),
            rested: Notify::new(),
            left: CancellationToken::new(),
        }
    }

    /// Tells nobody of it any more; what runs goes on.
    pub(super) fn leave(&self) {
        self.left.cancel();
    }

    pub(super) fn left(&self) -> &CancellationToken {
        &self.left
    }

    /// Begins a prompt, which `stop` will stop. There is one at a time.
    pub(super) fn prompt(&self, stop: &CancellationToken) -> Result<Prompting<'_>, Error> {
        let mut activity = self.activity();
        if activity.prompt.is_some() {
            return Err(busy(&self.id));
        }
        activity.prompt = Some(stop.clone());
        drop(activity);
        self.prompted.notify_waiters();
        Ok(Prompting(self))
    }

    /// Whether a prompt is at it, or waits to be.
    pub(super) fn is_prompted(&self) -> bool {
        self.activity().prompt.is_some()
    }

    /// Waits until no prompt is at it.
    pub(super) async fn at_rest(&self) {
        loop {
            let mut rested = std::pin::pin!(self.rested.notified());
            rested.as_mut().enable();
            if !self.is_prompted() {
                return;
            }
            rested.await;
        }
    }

    /// A run is shown without a prompt, which `stop` will stop.
    pub(super) fn show(&self, stop: &CancellationToken) {
        self.activity().shown = Some(stop.clone());
    }

    /// Stops the prompt; without one, the run that is shown.
    pub(super) fn stop(&self) {
        let Activity { prompt, shown } = &*self.activity();
        if let Some(stop) = prompt.as_ref().or(shown.as_ref()) {
            stop.cancel();
        }
    }

    fn activity(&self) -> Guard<'_, Activity> {
        self.activity.lock()
    }
}

impl Drop for Prompting<'_> {
    fn drop(&mut self) {
        self.0.activity().prompt = None;
        self.0.rested.notify_waiters();
    }
}

// === impl Waiting ===

impl From<Interrupt> for Waiting {
    fn from(question: Interrupt) -> Self {
        let decided = match &question.ask {
            Ask::Approval { actions, form } => {
                actions.iter().map(|action| action.kept_decision(*form)).collect()
            }
            Ask::Answer { .. } | Ask::Breakpoint => Vec::new(),
        };
        Self { question, is_in_words: false, decided }
    }
}
