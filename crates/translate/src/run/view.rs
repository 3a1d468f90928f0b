//! What a client holds after the events so far.
//!
//! The rules are those of the reducer in `@ag-ui/client` 1.0.0 (`apply/default`). A start with a
//! known id continues that message. A tool's result is placed after its call. A snapshot of
//! messages deletes those that it omits, but keeps the client's order. All snapshots for clients
//! that join late are made from a view.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::value::RawValue;

use super::activity::Activities;
use super::open::Open;
use super::{
    Activity, Call, CallForm, Content, Id, Message, Patch, Role, RunEvent, State, Subagent,
    ToolStatus, Usage,
};
use crate::json::{Text, TextBuf};

/// Messages, state and open items.
#[derive(Clone, Debug, Default)]
pub struct View {
    messages: Vec<Arc<Message>>,
    /// Shared with frozen views as long as no message is added.
    places: Arc<Places>,
    state: Option<State>,
    open: Open,
    /// All subagents of the run so far. Shared like `places`.
    subagents: Arc<Vec<Subagent>>,
    /// Shared like `places`.
    activities: Arc<Activities>,
    ends_with_activity: bool,
    is_scattered: bool,
    is_based: bool,
    /// The last message of the run's own agent that has used tokens, and what its call has used.
    last_usage: Option<(Id, Usage)>,
}

/// An index of the conversation. Every token needs it.
#[derive(Clone, Debug, Default)]
struct Places {
    messages: HashMap<Id, usize>,
    /// By call: the message that contains it.
    calls: HashMap<Id, Id>,
    /// The calls that have a result.
    answered: HashSet<Id>,
    /// The messages that directly follow an activity in a client.
    after_activity: HashSet<Id>,
}

/// The roles for which a snapshot deletes the messages that it omits. A client keeps its reasoning
/// messages unless the snapshot has some, and likewise its activities.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owned {
    reasoning: bool,
    attachments: bool,
}

// === impl Owned ===

impl Owned {
    pub(super) fn by(snapshot: &[Arc<Message>]) -> Self {
        let contains = |role| snapshot.iter().any(|message| message.role == role);
        Self { reasoning: contains(Role::Reasoning), attachments: contains(Role::Attachment) }
    }

    pub(super) fn has(self, role: Role) -> bool {
        match role {
            Role::Reasoning => self.reasoning,
            Role::Attachment => self.attachments,
            Role::User | Role::Assistant | Role::Tool | Role::System | Role::Developer => true,
        }
    }
}

// === impl View ===

impl View {
    /// A view that starts with a client's own messages and state.
    pub fn with(messages: Vec<Arc<Message>>, state: Option<State>) -> Self {
        let places = Places::of(&messages).into();
        Self { messages, places, state, ..Self::default() }
    }

    /// A view without messages that counts as complete.
    pub(super) fn based() -> Self {
        Self { is_based: true, ..Self::default() }
    }

    /// The conversation, including unfinished messages.
    pub fn messages(&self) -> &[Arc<Message>] {
        &self.messages
    }

    /// The state; `None` before the first snapshot.
    pub fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// A message by its id.
    pub fn message(&self, id: &str) -> Option<&Message> {
        self.places.messages.get(id).and_then(|at| self.messages.get(*at)).map(Arc::as_ref)
    }

    /// The place of a message in the conversation.
    pub(super) fn place_of(&self, id: &str) -> Option<usize> {
        self.places.messages.get(id).copied()
    }

    /// A call, and the message that contains it.
    pub fn call(&self, id: &str) -> Option<(&Message, &Call)> {
        let message = self.message(self.places.calls.get(id)?)?;
        message.calls.iter().find(|call| &*call.id == id).map(|call| (message, call))
    }

    /// Whether a call has a result.
    pub fn is_answered(&self, call_id: &str) -> bool {
        self.places.answered.contains(call_id)
    }

    /// The activity with this id, also if it has ended in this run.
    pub fn activity(&self, id: &str) -> Option<&Activity> {
        self.activities.get(id)
    }

    /// Whether an activity shows that the call has failed.
    pub(super) fn has_failed(&self, call_id: &Id) -> bool {
        let activity = self.activity(&Activity::id_of_tool(call_id));
        matches!(activity, Some(Activity::Tool { status: ToolStatus::Failed, .. }))
    }

    pub(super) fn activities(&self) -> impl Iterator<Item = (&Id, &Activity)> {
        self.activities.iter()
    }

    /// The calls of the running tools.
    pub(super) fn running_tools(&self) -> Vec<Id> {
        self.activities.running()
    }

    /// The status that the newest result of a call gives its tool. `None` without a result.
    pub(super) fn answer_of(&self, call_id: &Id) -> Option<ToolStatus> {
        if !self.is_answered(call_id) {
            return None;
        }
        let mut newest_first = self.messages.iter().rev();
        let result = newest_first.find(|message| message.call_id.as_ref() == Some(call_id))?;
        Some(ToolStatus::answered(result.error.is_some()))
    }

    /// The last use of tokens by the run's own agent: how full its model's context window is.
    pub(super) fn last_usage(&self) -> Option<RunEvent> {
        let (message_id, usage) = self.last_usage.clone()?;
        Some(RunEvent::Spent { message_id, usage, agent: None })
    }

    /// The subagents that are open or have messages, and those that contain them, in the order of
    /// their starts.
    pub(super) fn subagents(&self) -> Vec<&Subagent> {
        let authors: HashSet<_> = self.messages.iter().filter_map(|m| m.agent.as_ref()).collect();
        let is_open = |id: &Id| self.open.subagents.iter().any(|open| open.id == *id);
        let mut wanted: HashSet<_> =
            self.open.subagents.iter().filter_map(|open| open.parent.as_ref()).collect();
        let mut shown = Vec::new();
        for subagent in self.subagents.iter().rev() {
            let id = &subagent.id;
            if is_open(id) || authors.contains(id) || wanted.contains(id) {
                wanted.extend(&subagent.parent);
                shown.push(subagent);
            }
        }
        shown.reverse();
        shown
    }

    pub(super) fn open(&self) -> &Open {
        &self.open
    }

    /// Whether the run has sent its whole conversation. Until then a client may hold messages that
    /// the view lacks.
    pub fn is_based(&self) -> bool {
        self.is_based
    }

    /// The patch to the state `new`. `None` if a snapshot is shorter.
    pub(super) fn diff_state(&mut self, new: &RawValue) -> Option<Patch> {
        self.state.as_mut()?.diff(new)
    }

    /// Whether the order of messages may differ between a client and the view.
    ///
    /// A client places a result after the results that directly follow its call. An activity
    /// interrupts them, and its place depends on when the client joined.
    pub(super) fn is_scattered(&self) -> bool {
        self.is_scattered
    }

    /// Applies one event.
    pub fn apply(&mut self, event: &RunEvent) {
        self.open.apply(event);
        match event {
            RunEvent::TextDelta { message_id, delta }
            | RunEvent::ReasoningDelta { message_id, delta } => self.append(message_id, delta),
            RunEvent::TextStarted { message_id, role, name, agent } => {
                self.start(message_id, *role, name.as_ref(), agent.as_ref());
            }
            RunEvent::Attached(attachment) => self.attach(attachment),
            RunEvent::ReasoningStarted { message_id, agent } => {
                self.start(message_id, Role::Reasoning, None, agent.as_ref());
            }
            RunEvent::ReasoningSealed { message_id, sealed } => {
                if let Some(message) = self.message_mut(message_id) {
                    message.sealed = Some(sealed.clone());
                }
            }
            RunEvent::CallStarted { call_id, name, message_id, agent } => {
                self.start_call(call_id, name, message_id, agent.as_ref());
            }
            RunEvent::CallArgs { call_id, delta } => self.append_args(call_id, delta),
            RunEvent::CallResult { message_id, call_id, content, is_error, agent } => {
                self.answer(message_id, call_id, content, *is_error, agent.as_ref());
            }
            RunEvent::StateSnapshot(state) => self.state = Some(State::new(state.clone())),
            RunEvent::StateDelta(patch) => {
                let state = self.state.get_or_insert_with(State::empty);
                state.apply(patch);
            }
            RunEvent::Messages(messages) => {
                self.replace_messages(messages);
                self.is_based = true;
            }
            RunEvent::Activity { id, activity, .. } => {
                self.ends_with_activity |= self.activities.get(id).is_none();
                Arc::make_mut(&mut self.activities).set(id, activity);
            }
            RunEvent::SubagentStarted(subagent) => {
                Arc::make_mut(&mut self.subagents).push(subagent.clone());
            }
            RunEvent::Spent { message_id, usage, agent: None } => {
                self.last_usage = Some((Arc::clone(message_id), usage.clone()));
            }
            RunEvent::Started { .. }
            | RunEvent::Adopted(_)
            | RunEvent::Raw(_)
            | RunEvent::TextEnded { .. }
            | RunEvent::ReasoningEnded { .. }
            | RunEvent::CallEnded { .. }
            | RunEvent::StepStarted { .. }
            | RunEvent::StepFinished { .. }
            | RunEvent::Spent { agent: Some(_), .. }
            | RunEvent::SubagentFinished { .. }
            | RunEvent::Custom { .. }
            | RunEvent::Ended { .. } => {}
        }
    }

    fn message_mut(&mut self, id: &str) -> Option<&mut Message> {
        self.places.messages.get(id).and_then(|at| self.messages.get_mut(*at)).map(Arc::make_mut)
    }

    fn push(&mut self, message: impl Into<Arc<Message>>) {
        let message = message.into();
        if std::mem::take(&mut self.ends_with_activity) {
            Arc::make_mut(&mut self.places).after_activity.insert(Arc::clone(&message.id));
        }
        self.insert(self.messages.len(), message);
    }

    fn insert(&mut self, at: usize, message: Arc<Message>) {
        self.messages.insert(at, message);
        let places = Arc::make_mut(&mut self.places);
        for (at, message) in self.messages.iter().enumerate().skip(at) {
            places.add(at, message);
        }
    }

    /// `TEXT_MESSAGE_START`, `REASONING_MESSAGE_START`. A message with this id is continued.
    fn start(&mut self, id: &Id, role: Role, name: Option<&Text>, agent: Option<&Id>) {
        if self.message(id).is_some() {
            return;
        }
        let mut message = Message::new(Arc::clone(id), role);
        message.name = name.cloned();
        message.content = Content::Text(TextBuf::default());
        message.agent = agent.cloned();
        self.push(message);
    }

    /// `ACTIVITY_SNAPSHOT`. An attachment with this id is replaced in place.
    fn attach(&mut self, attachment: &Arc<Message>) {
        let at = self.places.messages.get(&attachment.id).copied();
        match at.and_then(|at| self.messages.get_mut(at)) {
            Some(held) => *held = Arc::clone(attachment),
            None => self.push(Arc::clone(attachment)),
        }
    }

    /// `TEXT_MESSAGE_CONTENT`. A delta replaces content that is a list of parts. An activity takes
    /// no text.
    fn append(&mut self, id: &Id, delta: &Text) {
        let Some(message) = self.message_mut(id) else { return };
        if message.role == Role::Attachment {
            return;
        }
        match &mut message.content {
            Content::Text(text) => text.push(delta),
            content @ (Content::Absent | Content::Parts(_)) => {
                *content = Content::Text(TextBuf::from(delta));
            }
        }
    }

    /// `TOOL_CALL_START`. A known call is renamed. A new one is added to its message if that is an
    /// assistant's. Otherwise it gets a new message, under the id of the missing message, or under
    /// the call's own id if the message has another role.
    fn start_call(&mut self, id: &Id, name: &Id, parent: &Id, agent: Option<&Id>) {
        if let Some(call) = self.call_mut(id) {
            call.name = Arc::clone(name);
            return;
        }
        let (name, args) = (Arc::clone(name), TextBuf::default());
        let call = Call { id: Arc::clone(id), name, args, form: CallForm::Valid };
        let created = match self.message_mut(parent) {
            Some(message) if message.role == Role::Assistant => {
                message.calls.push(call);
                let places = Arc::make_mut(&mut self.places);
                places.calls.insert(Arc::clone(id), Arc::clone(parent));
                return;
            }
            Some(_) => Arc::clone(id),
            None => Arc::clone(parent),
        };
        let mut message = Message::new(created, Role::Assistant);
        message.calls.push(call);
        message.agent = agent.cloned();
        self.push(message);
    }

    fn call_mut(&mut self, id: &str) -> Option<&mut Call> {
        let message = Arc::clone(self.places.calls.get(id)?);
        self.message_mut(&message)?.calls.iter_mut().find(|call| &*call.id == id)
    }

    fn append_args(&mut self, id: &Id, delta: &Text) {
        if let Some(call) = self.call_mut(id) {
            call.args.push(delta);
        }
    }

    /// `TOOL_CALL_RESULT`. Inserts the result after the call's message and its other results.
    /// Without that message the result is appended.
    ///
    /// The view marks an error here, although the event has no member for it: a client has seen the
    /// text.
    fn answer(
        &mut self,
        id: &Id,
        call_id: &Id,
        content: &Content,
        is_error: bool,
        agent: Option<&Id>,
    ) {
        let mut message = Message::new(Arc::clone(id), Role::Tool);
        message.call_id = Some(Arc::clone(call_id));
        message.error = is_error.then(|| content.text());
        message.content = content.clone();
        message.agent = agent.cloned();
        match self.owner_of(call_id) {
            Some(owner) => {
                let at = owner + 1 + self.results_after(owner);
                let is_result = |message: &Arc<Message>| message.role == Role::Tool;
                self.is_scattered |= self.messages.get(at).is_some_and(is_result);
                self.insert(at, message.into());
            }
            None => self.push(message),
        }
    }

    /// The index of the assistant's message that contains a call.
    fn owner_of(&self, call_id: &str) -> Option<usize> {
        let at = *self.places.messages.get(self.places.calls.get(call_id)?)?;
        self.messages.get(at).is_some_and(|owner| owner.role == Role::Assistant).then_some(at)
    }

    /// How many results directly follow a message.
    fn results_after(&self, at: usize) -> usize {
        let is_next = |message: &&Arc<Message>| {
            message.role == Role::Tool && !self.places.after_activity.contains(&message.id)
        };
        self.messages.iter().skip(at + 1).take_while(is_next).count()
    }

    /// `MESSAGES_SNAPSHOT`. Replaces known messages in place, deletes the others, and appends new
    /// ones. Reasoning is kept unless the snapshot has some, and likewise attachments.
    fn replace_messages(&mut self, snapshot: &[Arc<Message>]) {
        let owned = Owned::by(snapshot);
        let by_id: HashMap<&Id, &Arc<Message>> = snapshot.iter().map(|m| (&m.id, m)).collect();
        let mut kept: Vec<Arc<Message>> = Vec::with_capacity(snapshot.len());
        let mut seen: HashSet<Id> = HashSet::with_capacity(snapshot.len());
        // Activities keep their place when messages around them are deleted.
        let (mut after_activity, mut is_after) = (HashSet::new(), false);
        let remaining = self.messages.drain(..).map(|message| {
            let new = by_id.get(&message.id).map(|new| Arc::clone(new));
            let stays = new.is_some() || !owned.has(message.role);
            let is_after = self.places.after_activity.contains(&message.id);
            (is_after, stays.then(|| new.unwrap_or(message)))
        });
        let appended = snapshot.iter().map(|message| (false, Some(Arc::clone(message))));
        let tail = [(self.ends_with_activity, None)];
        for (follows_activity, message) in remaining.chain(tail).chain(appended) {
            is_after |= follows_activity;
            let Some(message) = message.filter(|message| seen.insert(Arc::clone(&message.id)))
            else {
                continue;
            };
            if std::mem::take(&mut is_after) {
                after_activity.insert(Arc::clone(&message.id));
            }
            kept.push(message);
        }
        self.ends_with_activity = is_after;
        self.is_scattered &= !kept.is_empty();
        self.places = Places { after_activity, ..Places::of(&kept) }.into();
        self.messages = kept;
    }
}

// === impl Places ===

impl Places {
    fn of(messages: &[Arc<Message>]) -> Self {
        let mut places = Self::default();
        for (at, message) in messages.iter().enumerate() {
            places.add(at, message);
        }
        places
    }

    fn add(&mut self, at: usize, message: &Message) {
        self.messages.insert(Arc::clone(&message.id), at);
        for call in &message.calls {
            self.calls.insert(Arc::clone(&call.id), Arc::clone(&message.id));
        }
        if let Some(call) = &message.call_id {
            self.answered.insert(Arc::clone(call));
        }
    }
}
