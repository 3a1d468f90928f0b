//! The tool calls of a session. Each is announced to the client once, and reaches a final status.
//!
//! ```text
//!   pending ---allowed, or seen to run---> in progress ---result---> completed | failed
//!      |                                                                  ^
//!      +-------------------------------result-----------------------------+
//! ```
//! A status never goes back during a run. Complete arguments do not mean that the tool runs: the
//! graph may ask a person first, and its stream does not report when a tool starts. So a call stays
//! pending until a person or a rule has allowed it, a subagent works for it, or it has a result.
//!
//! A call without a result is marked as failed when its run ends. A later result is still sent, and
//! a later question about the call makes it pending again. `state` is the state of one call.

mod state;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

pub(super) use state::CallResult;
use state::{CallOrigin, SentCall, Stage, with_details};

use super::question;
use super::tool::{self, Reader};
use super::update::{ContentBlock, ToolCall, ToolContent, ToolStatus, Update};
use crate::json::{Json, Text, TextBuf};
use crate::run::{self, Action, Content, Id};

/// The calls of a session.
#[derive(Debug, Default)]
pub(super) struct Calls {
    known: HashMap<Id, SentCall>,
    /// The calls without a result, in the order of their announcement. Some may have one by now.
    open: Vec<Id>,
    /// The child sessions that work for each call.
    sessions: HashMap<Id, Vec<String>>,
    /// Results of this run that came before their calls.
    early: HashMap<Id, (Content, bool)>,
    /// The number of runs so far.
    run: u32,
}

/// A decision about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallDecision {
    /// The call takes place.
    Allowed,
    /// The call does not take place.
    Rejected,
}

// === impl Calls ===

impl Calls {
    /// A new run starts.
    pub(super) fn next_run(&mut self) {
        self.run += 1;
        self.early.clear();
    }

    /// A call starts, or a second attempt of a node makes it again.
    pub(super) fn start(
        &mut self,
        id: &Id,
        name: &Id,
        reader: Reader<'_>,
        emit: &mut dyn FnMut(&Update<'_>),
    ) {
        let run = self.run;
        let Some(call) = self.known.get_mut(id) else {
            let call = self.new_call(name, reader);
            emit(&Update::ToolCall(call.announcement(id)));
            return self.insert(id, call);
        };
        let is_again = std::mem::replace(&mut call.run, run) != run;
        match call.stage {
            // The run is repeated from its beginning, and the client has all of it.
            Stage::Answered => {}
            Stage::Pending | Stage::InProgress if !is_again => {}
            Stage::Pending | Stage::InProgress => call.args = TextBuf::default(),
            Stage::Abandoned | Stage::Retracted => {
                call.stage = Stage::Pending;
                call.args = TextBuf::default();
                self.open.push(Arc::clone(id));
            }
        }
    }

    /// A piece of the arguments.
    pub(super) fn args(&mut self, id: &Id, delta: &Text) {
        if let Some(call) = self.known.get_mut(id).filter(|call| call.is_open()) {
            call.args.push(delta);
        }
    }

    /// The arguments are complete. If some of them were missed, they are sent with the result.
    pub(super) fn end(&mut self, id: &Id, reader: Reader<'_>, emit: &mut dyn FnMut(&Update<'_>)) {
        let Some(call) = self.known.get_mut(id).filter(|call| call.is_open()) else { return };
        let is_whole = call.args.is_empty() || tool::is_complete(&call.args.to_text().decode());
        if is_whole && let Some(details) = call.read(reader) {
            emit(&Update::ToolCallUpdate(with_details(id, details)));
        }
        if let Some((content, is_error)) = self.early.remove(id) {
            let result = CallResult { content: &content, is_error };
            let news = call.answered(id, result, reader);
            emit(&Update::ToolCallUpdate(referring(&self.sessions, id, news)));
        }
    }

    /// A call has a result. The result of an unknown call is sent with the call.
    pub(super) fn result(
        &mut self,
        id: &Id,
        result: CallResult<'_>,
        reader: Reader<'_>,
        emit: &mut dyn FnMut(&Update<'_>),
    ) {
        match self.known.get_mut(id) {
            Some(call) if call.stage == Stage::Answered => {}
            Some(call) => {
                let news = call.answered(id, result, reader);
                emit(&Update::ToolCallUpdate(referring(&self.sessions, id, news)));
            }
            None => {
                let result = (result.content.clone(), result.is_error);
                self.early.insert(Arc::clone(id), result);
            }
        }
    }

    /// Sends what is new of a call of a snapshot, and of its result.
    pub(super) fn show(
        &mut self,
        call: &run::Call,
        result: Option<CallResult<'_>>,
        reader: Reader<'_>,
        emit: &mut dyn FnMut(&Update<'_>),
    ) {
        let id = &call.id;
        let is_whole = || tool::is_complete(&call.args.to_text().decode());
        let none = || ToolCall::of(id);
        let Some(known) = self.known.get_mut(id) else {
            let mut new = self.new_call(&call.name, reader);
            new.args.clone_from(&call.args);
            let ToolCall { title, name, kind, .. } = new.announcement(id);
            let shown = match result {
                Some(result) => new.answered(id, result, reader),
                None if is_whole() => {
                    new.read(reader).map_or_else(none, |details| with_details(id, details))
                }
                None => none(),
            };
            let (title, kind) = (shown.title.clone().or(title), shown.kind.or(kind));
            let mut shown = ToolCall { title, name, kind, ..shown };
            if self.sessions.contains_key(id) {
                shown.content.get_or_insert_default();
            }
            emit(&Update::ToolCall(referring(&self.sessions, id, shown)));
            return self.insert(id, new);
        };
        known.run = self.run;
        let news = match (known.stage, result) {
            (Stage::Abandoned, None) => None,
            (Stage::Answered | Stage::Retracted, None) => {
                known.stage = Stage::Retracted;
                None
            }
            (Stage::Answered | Stage::Retracted, Some(result))
                if known.result == result.fingerprint() =>
            {
                known.stage = Stage::Answered;
                None
            }
            (Stage::Answered | Stage::Retracted, Some(result)) => {
                Some(known.answered(id, result, reader))
            }
            (Stage::Pending | Stage::InProgress | Stage::Abandoned, Some(result)) => {
                known.set_args(&call.args);
                Some(known.answered(id, result, reader))
            }
            (Stage::Pending | Stage::InProgress, None) => {
                known.set_args(&call.args);
                // A person who was asked may have changed the arguments.
                let is_news = known.sent_args.is_some() || is_whole();
                let details = if is_news { known.read(reader) } else { None };
                details.map(|details| with_details(id, details))
            }
        };
        if let Some(news) = news {
            emit(&Update::ToolCallUpdate(referring(&self.sessions, id, news)));
        }
    }

    /// Retracts the calls that a snapshot lacks. They may start again.
    pub(super) fn retract_others(&mut self, present: &HashSet<&Id>) {
        for (_, call) in self.known.iter_mut().filter(|(id, _)| !present.contains(id)) {
            match call.stage {
                Stage::Pending | Stage::InProgress => call.args = TextBuf::default(),
                Stage::Answered => call.stage = Stage::Retracted,
                Stage::Abandoned | Stage::Retracted => {}
            }
        }
    }

    /// Whether the client was sent the call.
    pub(super) fn is_known(&self, id: &str) -> bool {
        self.known.contains_key(id)
    }

    /// Whether the client was sent a call's result in this run.
    pub(super) fn is_answered(&self, id: &str) -> bool {
        self.known.get(id).is_some_and(|call| call.stage == Stage::Answered)
    }

    /// The tool runs.
    pub(super) fn run(&mut self, id: &str, emit: &mut dyn FnMut(&Update<'_>)) {
        let Some(call) = self.known.get_mut(id).filter(|call| call.waits()) else { return };
        call.stage = Stage::InProgress;
        let status = Some(ToolStatus::InProgress);
        emit(&Update::ToolCallUpdate(ToolCall { status, ..ToolCall::of(id) }));
    }

    /// A child session works for a call, from now on or again.
    pub(super) fn delegate(
        &mut self,
        id: &Id,
        session_id: &str,
        emit: &mut dyn FnMut(&Update<'_>),
    ) {
        let sessions = self.sessions.entry(Arc::clone(id)).or_default();
        let is_new = !sessions.iter().any(|known| known == session_id);
        if is_new {
            sessions.push(session_id.to_owned());
        }
        let Some(call) = self.known.get_mut(id).filter(|call| call.is_open()) else { return };
        let waits = call.waits();
        if waits {
            call.stage = Stage::InProgress;
        }
        if waits || is_new {
            let status = waits.then_some(ToolStatus::InProgress);
            let news = ToolCall { status, content: Some(Vec::new()), ..ToolCall::of(id) };
            emit(&Update::ToolCallUpdate(referring(&self.sessions, id, news)));
        }
    }

    /// The arguments of a call without a result, as they were sent. `None` if they are not whole.
    pub(super) fn args_of(&self, id: &str) -> Option<String> {
        let args = self.known.get(id)?.args.to_text().decode().into_owned();
        tool::is_complete(&args).then_some(args)
    }

    /// A person is asked about a call. The call is announced if it was not, and waits unless it
    /// runs already. Returns the call with the question.
    pub(super) fn ask(
        &mut self,
        id: &Id,
        action: &Action,
        reader: Reader<'_>,
        emit: &mut dyn FnMut(&Update<'_>),
    ) -> ToolCall<'static> {
        let is_new = !self.known.contains_key(id);
        let mut new = self.new_call(&Id::from(&*action.name.decode()), reader);
        if action.call_id.is_none() {
            new.origin = CallOrigin::Question;
        }
        let call = self.known.entry(Arc::clone(id)).or_insert(new);
        if is_new || !call.is_open() {
            self.open.push(Arc::clone(id));
        }
        if !call.is_open() {
            call.stage = Stage::Pending;
        }
        let waits_again = std::mem::take(&mut call.is_over);
        call.args = TextBuf::from(&Text::new(action.args.get()));
        let news = call.read(reader).map(|details| with_details(id, details));
        if is_new {
            let ToolCall { title, name, kind, .. } = call.announcement(id);
            let news = news.unwrap_or_else(|| ToolCall::of(id));
            let (title, kind) = (news.title.clone().or(title), news.kind.or(kind));
            emit(&Update::ToolCall(ToolCall { title, name, kind, ..news }));
        } else if news.is_some() || waits_again {
            let news = news.unwrap_or_else(|| ToolCall::of(id));
            let status = waits_again.then_some(ToolStatus::Pending);
            emit(&Update::ToolCallUpdate(ToolCall { status, ..news }));
        }
        let status = match call.stage {
            Stage::InProgress => ToolStatus::InProgress,
            Stage::Pending | Stage::Abandoned | Stage::Answered | Stage::Retracted => {
                ToolStatus::Pending
            }
        };
        let mut asked = with_details(id, call.details(reader));
        if let Some(note) = question::about_call(action) {
            let note = ToolContent::Content { content: ContentBlock::text(&note) };
            asked.content.get_or_insert_default().insert(0, note);
            call.has_note = true;
        }
        let asked = ToolCall { kind: Some(call.kind), status: Some(status), ..asked };
        referring(&self.sessions, id, asked)
    }

    /// A person has changed a call. The changed call takes place.
    pub(super) fn change(
        &mut self,
        id: &str,
        args: &Json,
        reader: Reader<'_>,
        emit: &mut dyn FnMut(&Update<'_>),
    ) {
        let Some(call) = self.known.get_mut(id).filter(|call| call.is_open()) else { return };
        let asked = std::mem::replace(&mut call.args, TextBuf::from(&Text::new(args.get())));
        call.replaced = Some(asked);
        let Some(details) = call.read(reader) else { return };
        // Nothing that the client shows of the call as it was may stay.
        let (locations, diffs) = (details.locations.clone(), details.diffs.clone());
        call.has_note = false;
        emit(&Update::ToolCallUpdate(ToolCall {
            locations: Some(locations),
            content: Some(diffs),
            ..with_details(id, details)
        }));
    }

    /// A person has decided about a call.
    pub(super) fn decide(
        &mut self,
        id: &str,
        verdict: CallDecision,
        emit: &mut dyn FnMut(&Update<'_>),
    ) {
        let Some(call) = self.known.get_mut(id).filter(|call| call.waits()) else { return };
        let status = match (verdict, call.origin) {
            (CallDecision::Allowed, CallOrigin::Conversation) => ToolStatus::InProgress,
            (CallDecision::Allowed, CallOrigin::Question) => ToolStatus::Completed,
            (CallDecision::Rejected, CallOrigin::Question) => ToolStatus::Failed,
            // The result of the call will say so.
            (CallDecision::Rejected, CallOrigin::Conversation) => return,
        };
        call.stage = match call.origin {
            CallOrigin::Conversation => Stage::InProgress,
            CallOrigin::Question => Stage::Answered,
        };
        call.is_over = call.stage == Stage::Answered;
        emit(&Update::ToolCallUpdate(ToolCall { status: Some(status), ..ToolCall::of(id) }));
    }

    /// The turn ends, and open calls will get no result in it.
    pub(super) fn settle(&mut self, reader: Reader<'_>, emit: &mut dyn FnMut(&Update<'_>)) {
        for id in std::mem::take(&mut self.open) {
            let Some(call) = self.known.get_mut(&id).filter(|call| call.is_open()) else {
                continue;
            };
            let news = match call.read_rest(reader) {
                Some(details) => with_details(&id, details),
                None => ToolCall::of(&id),
            };
            emit(&Update::ToolCallUpdate(ToolCall { status: Some(ToolStatus::Failed), ..news }));
            call.stage = Stage::Abandoned;
            call.is_over = true;
        }
    }

    /// Removes calls with a result from the open ones.
    pub(super) fn prune_open(&mut self) {
        self.open.retain(|id| self.known.get(id).is_some_and(SentCall::is_open));
    }

    fn new_call(&self, name: &Id, reader: Reader<'_>) -> SentCall {
        SentCall {
            name: Arc::clone(name),
            kind: reader.profile.kind(name),
            stage: Stage::Pending,
            args: TextBuf::default(),
            sent_args: None,
            replaced: None,
            has_diff: false,
            has_note: false,
            is_over: false,
            result: 0,
            run: self.run,
            origin: CallOrigin::Conversation,
        }
    }

    fn insert(&mut self, id: &Id, call: SentCall) {
        if call.is_open() {
            self.open.push(Arc::clone(id));
        }
        self.known.insert(Arc::clone(id), call);
    }
}

/// Adds the child sessions that work for a call to its content, if the content is sent.
fn referring<'a>(
    sessions: &HashMap<Id, Vec<String>>,
    id: &Id,
    mut call: ToolCall<'a>,
) -> ToolCall<'a> {
    if let (Some(content), Some(sessions)) = (&mut call.content, sessions.get(id)) {
        let session = |id: &String| ToolContent::Session { session_id: id.clone() };
        content.splice(0..0, sessions.iter().map(session));
    }
    call
}
