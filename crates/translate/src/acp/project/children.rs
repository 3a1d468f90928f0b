//! The subagents of a session as child sessions, for a client that can show them.
//!
//! A subagent that works for a tool call is a child of the session that has the call. The children
//! of children are children too, and all are kept in one list. A subagent without a call is a part
//! of the agent that contains it.
//!
//! LangGraph's task id names a subagent. A run that resumes after a question has the same tasks, so
//! its subagents go on in the sessions that they had.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::value::RawValue;

use super::{EmitOptions, NoticeForms, Projector, Scope};
use crate::acp::ending::stop_reason;
use crate::acp::update::{IdleReason, StateError, SubagentState, SubagentUpdate, Update};
use crate::acp::{StopReason, content};
use crate::json;
use crate::run::{Action, Id, Message, Outcome, Role, RunEvent, Subagent};

/// The most children that are remembered for a session. Beyond them the oldest that does not work is
/// forgotten. If all work, the next subagent is shown as to a client without child sessions.
const MAX_CHILDREN: usize = 256;

/// The longest description of a child, in characters. The model writes it, as the task.
const MAX_DESCRIPTION_CHARS: usize = 1000;

/// The members of a call's arguments that describe the work of a subagent: the first that has text
/// counts.
const DESCRIPTIONS: [&str; 5] = ["description", "task", "instructions", "prompt", "query"];

/// The child sessions of a session.
#[derive(Debug)]
pub(super) struct Children {
    session_id: String,
    /// By the id of the subagent, in the order of their first starts.
    known: IndexMap<Id, Child>,
    /// The child of each message that this run has begun in one.
    messages: HashMap<Id, Id>,
    /// The same for calls.
    calls: HashMap<Id, Id>,
}

/// A child session.
#[derive(Debug)]
struct Child {
    session_id: String,
    /// The child that contains this one. `None` stands for the session itself.
    parent: Option<Id>,
    /// The call that it works for.
    call_id: Id,
    projector: Projector,
    state: SubagentState,
    is_described: bool,
    /// Whether the subgraph has ended in this run. It may have ended to wait for a person.
    is_over: bool,
    /// The messages of its parent that were sent.
    instructions: HashSet<Id>,
}

// === impl Children ===

impl Children {
    pub(super) fn new(session_id: &str) -> Self {
        Self {
            session_id: session_id.to_owned(),
            known: IndexMap::new(),
            messages: HashMap::new(),
            calls: HashMap::new(),
        }
    }

    /// Makes room for one more child. Returns whether there is some.
    fn make_room(&mut self) -> bool {
        if self.known.len() < MAX_CHILDREN {
            return true;
        }
        let is_idle = |child: &Child| matches!(child.state, SubagentState::Idle { .. });
        let is_parent = |id: &Id| self.known.values().any(|c| c.parent.as_ref() == Some(id));
        let oldest = self.known.iter().position(|(id, child)| is_idle(child) && !is_parent(id));
        oldest.is_some_and(|oldest| self.known.shift_remove_index(oldest).is_some())
    }

    /// The child that a subagent is, or belongs to.
    fn session_of(&self, parent: Option<&Id>) -> String {
        let child = parent.and_then(|parent| self.known.get(parent));
        child.map_or(&self.session_id, |child| &child.session_id).clone()
    }

    /// Sends an update of a child's state, title or description in the session that contains it.
    fn tell(&self, child: &Child, update: SubagentUpdate<'_>, emit: EmitOptions<'_>) {
        let update =
            Update::SubagentUpdate(SubagentUpdate { session_id: &child.session_id, ..update });
        match child.parent.as_ref().and_then(|parent| self.known.get(parent)) {
            Some(parent) => {
                emit(&Update::OfChild { session_id: &parent.session_id, update: &update });
            }
            None => emit(&update),
        }
    }

    fn set_state(&mut self, id: &Id, state: &SubagentState, emit: EmitOptions<'_>) {
        match self.known.get_mut(id) {
            Some(child) if child.state != *state => child.state = state.clone(),
            Some(_) | None => return,
        }
        if let Some(child) = self.known.get(id) {
            let update = SubagentUpdate { state: Some(state), ..SubagentUpdate::default() };
            self.tell(child, update, emit);
        }
    }

    /// The ids of the children that are not known to be idle.
    fn working(&self) -> Vec<Id> {
        let works = |child: &Child| !matches!(child.state, SubagentState::Idle { .. });
        let working = self.known.iter().filter(|(_, child)| works(child));
        working.map(|(id, _)| Arc::clone(id)).collect()
    }
}

// === impl Projector ===

impl Projector {
    /// Shows subagents as child sessions of this session.
    #[must_use]
    pub fn nesting(self, session_id: &str) -> Self {
        Self { children: Some(Children::new(session_id)), ..self }
    }

    /// The session that shows the call of an action. `None` stands for the projector's own.
    pub fn session_of(&self, interrupt_id: &Id, at: usize, action: &Action) -> Option<&str> {
        let call_id = super::call_id_of(interrupt_id, at, action);
        let children = self.children.as_ref()?;
        let child = children.known.get(children.calls.get(&call_id)?)?;
        Some(&child.session_id)
    }

    /// The child to which an event belongs.
    pub(super) fn child_of(&mut self, event: &RunEvent) -> Option<Id> {
        self.children.as_ref()?;
        let child = match event {
            RunEvent::TextStarted { agent, .. }
            | RunEvent::ReasoningStarted { agent, .. }
            | RunEvent::CallStarted { agent, .. }
            | RunEvent::Spent { agent, .. } => self.owner(agent.as_ref()),
            RunEvent::Attached(message) => self.owner(message.agent.as_ref()),
            RunEvent::CallResult { call_id, agent, .. } => {
                self.child_of_call(call_id).or_else(|| self.owner(agent.as_ref()))
            }
            RunEvent::CallArgs { call_id, .. } | RunEvent::CallEnded { call_id } => {
                self.child_of_call(call_id)
            }
            RunEvent::TextDelta { message_id, .. }
            | RunEvent::TextEnded { message_id }
            | RunEvent::ReasoningDelta { message_id, .. }
            | RunEvent::ReasoningEnded { message_id } => {
                self.children.as_ref()?.messages.get(message_id).cloned()
            }
            RunEvent::Started { .. }
            | RunEvent::StepStarted { .. }
            | RunEvent::StepFinished { .. }
            | RunEvent::Adopted(_)
            | RunEvent::ReasoningSealed { .. }
            | RunEvent::StateSnapshot(_)
            | RunEvent::StateDelta(_)
            | RunEvent::Messages(_)
            | RunEvent::SubagentStarted(_)
            | RunEvent::SubagentFinished { .. }
            | RunEvent::Custom { .. }
            | RunEvent::Activity { .. }
            | RunEvent::Raw(_)
            | RunEvent::Ended { .. } => None,
        }?;
        let children = self.children.as_mut()?;
        if let RunEvent::TextStarted { message_id, .. }
        | RunEvent::ReasoningStarted { message_id, .. }
        | RunEvent::CallStarted { message_id, .. } = event
        {
            children.messages.insert(Arc::clone(message_id), Arc::clone(&child));
        }
        if let RunEvent::CallStarted { call_id, .. } = event {
            children.calls.insert(Arc::clone(call_id), Arc::clone(&child));
        }
        Some(child)
    }

    /// The child that has a call.
    pub(super) fn child_of_call(&self, call_id: &Id) -> Option<Id> {
        self.children.as_ref()?.calls.get(call_id).cloned()
    }

    /// The child that a subagent is, or is a part of.
    fn owner(&self, agent: Option<&Id>) -> Option<Id> {
        let children = self.children.as_ref()?;
        let parent = |id: &&Id| self.subagents.get(*id)?.parent.as_ref();
        let mut path = std::iter::successors(agent, parent).take(self.subagents.len() + 1);
        path.find(|id| children.known.contains_key(*id)).cloned()
    }

    /// Lets the projector of a child do something. Its updates are those of the child's session.
    pub(super) fn in_child<T>(
        &mut self,
        child: &Id,
        emit: EmitOptions<'_>,
        act: impl FnOnce(&mut Self, EmitOptions<'_>) -> T,
    ) -> Option<T> {
        let Child { session_id, projector, .. } = self.children.as_mut()?.known.get_mut(child)?;
        Some(act(projector, &mut |update| emit(&Update::OfChild { session_id, update })))
    }

    /// A run starts.
    pub(super) fn children_start(&mut self, started: &RunEvent, emit: EmitOptions<'_>) {
        let Some(children) = &mut self.children else { return };
        children.messages.clear();
        children.calls.clear();
        for child in children.known.values_mut() {
            child.is_over = false;
            child.projector.project(started, emit);
        }
    }

    /// A subagent starts, in the session of the call that it works for. Returns whether it is a
    /// child.
    pub(super) fn child_started(&mut self, subagent: &Subagent, emit: EmitOptions<'_>) -> bool {
        let Subagent { id, name, parent, call_id } = subagent;
        let Some(call_id) = call_id else { return false };
        let parent = self.owner(parent.as_ref());
        let (profile, cwd) = (Arc::clone(&self.profile), self.cwd.clone());
        let notice_forms: NoticeForms = self.notice_forms;
        let run = self.run;
        let Some(children) = &mut self.children else { return false };
        let is_new = !children.known.contains_key(id);
        if is_new {
            if !children.make_room() {
                return false;
            }
            let projector = Self::new(profile, &cwd).noticing(notice_forms);
            let child = Child {
                session_id: format!("{}:{id}", children.session_id),
                parent: parent.clone(),
                call_id: Arc::clone(call_id),
                projector: Self { scope: Scope::Child, run, ..projector },
                state: SubagentState::Unknown,
                is_described: false,
                is_over: false,
                instructions: HashSet::new(),
            };
            children.known.insert(Arc::clone(id), child);
        }
        let Some(child) = children.known.get_mut(id) else { return false };
        child.is_over = false;
        child.state = SubagentState::Running;
        let session_id = child.session_id.clone();
        if let Some(child) = children.known.get(id) {
            let title = is_new.then_some(&**name);
            let state = Some(&SubagentState::Running);
            children.tell(
                child,
                SubagentUpdate { title, state, ..SubagentUpdate::default() },
                emit,
            );
        }
        match &parent {
            Some(parent) => {
                self.in_child(parent, emit, |parent, emit| {
                    parent.calls.delegate(call_id, &session_id, emit);
                });
            }
            None => self.calls.delegate(call_id, &session_id, emit),
        }
        let args = match &parent {
            Some(parent) => self.in_child(parent, emit, |parent, _| parent.calls.args_of(call_id)),
            None => Some(self.calls.args_of(call_id)),
        };
        if let Some(args) = args.flatten() {
            self.describe(id, &args, emit);
        }
        true
    }

    /// Sends the description of a child, from the arguments of its call.
    fn describe(&mut self, id: &Id, args: &str, emit: EmitOptions<'_>) {
        let Some(description) = description_in(args) else { return };
        let Some(children) = &mut self.children else { return };
        match children.known.get_mut(id) {
            Some(child) if !child.is_described => child.is_described = true,
            Some(_) | None => return,
        }
        if let Some(child) = children.known.get(id) {
            let description = Some(&*description);
            let update = SubagentUpdate { description, ..SubagentUpdate::default() };
            children.tell(child, update, emit);
        }
    }

    /// The messages of a snapshot that belong to the session itself. Those of children are sent in
    /// their sessions, after the session's own: their calls are there.
    pub(super) fn snapshot_nested(&mut self, messages: &[Arc<Message>], emit: EmitOptions<'_>) {
        let mut own = Vec::new();
        let mut theirs: IndexMap<Id, Vec<Arc<Message>>> = IndexMap::new();
        for message in messages {
            let agent = message.agent.as_ref();
            match self.owner(agent) {
                Some(child) => theirs.entry(child).or_default().push(Arc::clone(message)),
                None if agent.is_some_and(|agent| !self.subagents.contains_key(agent)) => {
                    self.unattributed.retain(|known| known.id != message.id);
                    self.unattributed.push(Message::clone(message));
                }
                None => own.push(Arc::clone(message)),
            }
        }
        self.snapshot(&own, emit);
        for (child, messages) in theirs {
            self.child_snapshot(&child, &messages, emit);
        }
        let Some(children) = &self.children else { return };
        let is_mute = |child: &&Child| !child.is_described;
        let mute = children.known.iter().filter(|(_, child)| is_mute(child));
        let mute: HashMap<_, _> =
            mute.map(|(id, child)| (Arc::clone(&child.call_id), Arc::clone(id))).collect();
        let calls = messages.iter().filter(|_| !mute.is_empty()).flat_map(|message| &message.calls);
        for call in calls {
            if let Some(id) = mute.get(&call.id) {
                self.describe(id, &call.args.to_text().decode(), emit);
            }
        }
        self.end_answered(emit);
    }

    /// Sends what is new in the messages of a child. Its human messages are what its parent has sent
    /// to it.
    pub(super) fn child_snapshot(
        &mut self,
        child: &Id,
        messages: &[Arc<Message>],
        emit: EmitOptions<'_>,
    ) {
        let Some(children) = &mut self.children else { return };
        let parent = children.known.get(child).and_then(|child| child.parent.clone());
        let sender = children.session_of(parent.as_ref());
        for message in messages {
            children.messages.insert(Arc::clone(&message.id), Arc::clone(child));
            for call in &message.calls {
                children.calls.insert(Arc::clone(&call.id), Arc::clone(child));
            }
        }
        let Some(known) = children.known.get_mut(child) else { return };
        let (told, own): (Vec<_>, Vec<_>) =
            messages.iter().cloned().partition(|message| message.role == Role::User);
        for message in told {
            if known.instructions.insert(Arc::clone(&message.id)) {
                let update = Update::SessionMessage {
                    message_id: &message.id,
                    sender_session_id: &sender,
                    recipient_session_id: &known.session_id,
                    content: content::blocks(&message.content),
                };
                emit(&Update::OfChild { session_id: &known.session_id, update: &update });
            }
        }
        self.in_child(child, emit, |projector, emit| projector.snapshot(&own, emit));
    }

    /// Sends messages of a subagent that came before it was announced.
    pub(super) fn attribute(
        &mut self,
        agent: &Id,
        messages: &[Arc<Message>],
        emit: EmitOptions<'_>,
    ) {
        match self.owner(Some(agent)) {
            _ if messages.is_empty() => {}
            Some(child) => self.child_snapshot(&child, messages, emit),
            None => self.show(messages, emit),
        }
    }

    /// What an event means for the states of the children.
    pub(super) fn after_event(&mut self, event: &RunEvent, emit: EmitOptions<'_>) {
        if self.children.is_none() {
            return;
        }
        if let RunEvent::SubagentFinished { id } = event {
            let child = self.children.as_mut().and_then(|children| children.known.get_mut(id));
            if let Some(child) = child {
                child.is_over = true;
            }
        }
        let is_end =
            matches!(event, RunEvent::SubagentFinished { .. } | RunEvent::CallResult { .. });
        let goes_on = matches!(
            event,
            RunEvent::TextStarted { .. }
                | RunEvent::ReasoningStarted { .. }
                | RunEvent::CallStarted { .. }
                | RunEvent::StepStarted { .. }
        );
        if is_end {
            self.end_answered(emit);
        } else if goes_on {
            // So the run does not wait for those that are over.
            self.end_over(|_, _| true, emit);
        }
    }

    /// Ends the work of children that are over and whose calls have their results.
    fn end_answered(&mut self, emit: EmitOptions<'_>) {
        self.end_over(Self::is_answered, emit);
    }

    /// Whether the call has its result that a child works for.
    fn is_answered(&self, id: &Id) -> bool {
        let Some(children) = &self.children else { return false };
        let Some(child) = children.known.get(id) else { return false };
        match &child.parent {
            None => self.calls.is_answered(&child.call_id),
            Some(parent) => {
                let parent = children.known.get(parent);
                parent.is_some_and(|parent| parent.projector.calls.is_answered(&child.call_id))
            }
        }
    }

    fn end_over(&mut self, is_done: impl Fn(&Self, &Id) -> bool, emit: EmitOptions<'_>) {
        let Some(children) = &self.children else { return };
        let is_over = |id: &&Id| children.known.get(*id).is_some_and(|child| child.is_over);
        let working = children.working();
        let done: Vec<_> = working.iter().filter(is_over).filter(|id| is_done(self, id)).collect();
        for id in done {
            self.set_state(id, &SubagentState::ended(StopReason::EndTurn), emit);
        }
    }

    pub(super) fn set_state(&mut self, id: &Id, state: &SubagentState, emit: EmitOptions<'_>) {
        if let SubagentState::Idle { .. } = state {
            self.in_child(id, emit, Self::end_texts);
        }
        if let Some(children) = &mut self.children {
            children.set_state(id, state, emit);
        }
    }

    /// The run has ended, and so has the work of the children, unless they wait for a person.
    pub(super) fn children_end(&mut self, outcome: &Outcome, emit: EmitOptions<'_>) {
        let state = match outcome {
            Outcome::Interrupted(_) => SubagentState::RequiresAction,
            Outcome::Finished { .. } | Outcome::Idle { .. } => {
                SubagentState::ended(StopReason::EndTurn)
            }
            Outcome::Failed(failure) if failure.loss().is_some() => SubagentState::Unknown,
            Outcome::Cancelled | Outcome::Failed(_) => match stop_reason(outcome) {
                Ok(reason) => SubagentState::ended(reason),
                Err(error) => {
                    let code = error.code.number();
                    let error = Some(StateError { code, message: error.message });
                    SubagentState::Idle { stop_reason: IdleReason::Error, error }
                }
            },
        };
        let working = self.children.as_ref().map(Children::working).unwrap_or_default();
        for id in &working {
            if self.is_answered(id) {
                self.set_state(id, &SubagentState::ended(StopReason::EndTurn), emit);
            } else {
                self.set_state(id, &state, emit);
            }
        }
    }

    /// The turn has ended.
    pub(super) fn settle_children(&mut self, emit: EmitOptions<'_>) {
        let Some(children) = &self.children else { return };
        let ids: Vec<_> = children.known.keys().cloned().collect();
        for id in &ids {
            self.in_child(id, emit, Self::settle);
        }
        let working = self.children.as_ref().map(Children::working).unwrap_or_default();
        for id in &working {
            let state = self.children.as_ref().and_then(|c| c.known.get(id)).map(|c| &c.state);
            // The run may go on, and the gateway does not see it.
            if state != Some(&SubagentState::Unknown) {
                self.set_state(id, &SubagentState::ended(StopReason::Cancelled), emit);
            }
        }
    }
}

/// What a call's arguments say about the work, cut to [`MAX_DESCRIPTION_CHARS`].
fn description_in(args: &str) -> Option<String> {
    let args: &RawValue = serde_json::from_str(args).ok()?;
    let members = json::members(args)?;
    let text = DESCRIPTIONS.into_iter().find_map(|name| {
        let text = members.string(name)?;
        (!text.trim().is_empty()).then(|| text.trim().to_owned())
    })?;
    Some(match text.char_indices().nth(MAX_DESCRIPTION_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end)?),
        None => text,
    })
}
