//! Run events as session updates for one client, without what the client was already sent.
//!
//! One projector lives as long as its session. A loaded session is a snapshot for a client that was
//! sent nothing, so its ids and final forms are those of the live stream. `message` is the state of
//! one message. `children` are the sessions of subagents, each with a projector of its own.

mod children;
mod message;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use indexmap::IndexSet;

use children::Children;
use message::{ChunkKind, MessageState, SentMessage, chunk_kind};

use super::call::{CallDecision, CallResult, Calls};
use super::notice::{Notice, SUMMARY};
use super::plan::PlanState;
use super::profile::GraphProfile;
use super::tool::Reader;
use super::update::{
    CompactionStatus, ContentBlock, CursorAnchor, Plan, PlanEntry, SubagentState, ToolCall, Update,
};
use super::{content, limit, strict};
use crate::json::{Json, Text, TextBuf};
use crate::run::{
    Action, Content, ContentPart, HarnessNotice, Id, Inserted, Insertion, Message, Outcome, Role,
    RunEvent, Subagent, Usage,
};

/// Projects the events of a session's runs, one after the other.
#[derive(Debug)]
pub struct Projector {
    profile: Arc<GraphProfile>,
    cwd: String,
    scope: Scope,
    notice_forms: NoticeForms,
    plan_form: PlanForm,
    /// `None` for a client without child sessions, and in a child.
    children: Option<Children>,
    messages: HashMap<Id, MessageState>,
    /// The messages whose text may still be repeated or completed by the run.
    unsettled: IndexSet<Id>,
    calls: Calls,
    subagents: HashMap<Id, SeenSubagent>,
    /// Messages of subagents that no event has announced yet.
    unattributed: Vec<Message>,
    plan: PlanState,
    /// The last usage update: the tokens in the model's context window, and its size.
    used: Option<(u64, u64)>,
    /// The number of runs so far.
    run: u32,
}

/// In which of ACP's forms a client takes what LangChain's harness adds to a conversation. A client
/// that takes neither gets a line of the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoticeForms {
    /// A summary as a compaction of the context.
    pub compactions: bool,
    /// Anything as a notice.
    pub notices: bool,
}

/// In which of ACP's forms a client takes a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanForm {
    /// As the only plan of the session.
    #[default]
    Only,
    /// As one of several, by its id.
    ById,
}

/// What a projector shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// The run's own agent.
    Session,
    /// One subagent, and what is a part of it. Other events do not come.
    Child,
}

/// The id of the plan that is the graph's to-do list.
const TODOS_PLAN: &str = "todos";

/// Whether the client is shown the messages of a subagent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Visibility {
    /// The subagent works for a tool call, whose result will stand for its messages.
    Hidden,
    /// The subagent is a part of the agent itself, or the call that it worked for has its result.
    Shown,
}

/// A subagent of this run.
#[derive(Debug)]
struct SeenSubagent {
    parent: Option<Id>,
    /// The call that it works for.
    call_id: Option<Id>,
    is_over: bool,
}

/// Where updates go.
type EmitOptions<'a> = &'a mut dyn FnMut(&Update<'_>);

// === impl Projector ===

impl Projector {
    /// A projector for a client that was sent nothing. `cwd` is the session's directory.
    pub fn new(profile: Arc<GraphProfile>, cwd: &str) -> Self {
        Self {
            profile,
            cwd: cwd.to_owned(),
            scope: Scope::Session,
            notice_forms: NoticeForms::default(),
            plan_form: PlanForm::default(),
            children: None,
            messages: HashMap::new(),
            unsettled: IndexSet::new(),
            calls: Calls::default(),
            subagents: HashMap::new(),
            unattributed: Vec::new(),
            plan: PlanState::default(),
            used: None,
            run: 0,
        }
    }

    /// Sets the forms of notices that the client takes.
    #[must_use]
    pub fn noticing(self, notice_forms: NoticeForms) -> Self {
        Self { notice_forms, ..self }
    }

    /// Sets the form of plans that the client takes.
    #[must_use]
    pub fn planning(self, plan_form: PlanForm) -> Self {
        Self { plan_form, ..self }
    }

    /// Marks a message as the client's own prompt, which is not sent to it.
    pub fn hold(&mut self, message_id: &Id) {
        self.messages.insert(Arc::clone(message_id), MessageState::Own);
    }

    /// The anchor as the client holds it: a text that was sent again has another id. `None` if the
    /// client does not hold it.
    pub fn held(&self, anchor: &CursorAnchor) -> Option<CursorAnchor> {
        let mut held = anchor.clone();
        match &mut held {
            CursorAnchor::UserMessage { message_id, .. }
            | CursorAnchor::AgentMessage { message_id, .. }
            | CursorAnchor::AgentThought { message_id, .. }
            | CursorAnchor::Compaction { compaction_id: message_id, .. } => {
                match self.messages.get(&**message_id)? {
                    MessageState::Shown(sent) => sent.text.wire_id().clone_into(message_id),
                    MessageState::Notice(_) => {}
                    // The client does not know the id of its own prompt.
                    MessageState::Own | MessageState::Hidden => return None,
                }
            }
            CursorAnchor::ToolCall { tool_call_id, .. } => {
                if !self.calls.is_known(tool_call_id) {
                    return None;
                }
            }
        }
        Some(held)
    }

    /// Projects one event.
    pub fn project(&mut self, event: &RunEvent, emit: EmitOptions<'_>) {
        match self.child_of(event) {
            Some(child) => {
                self.in_child(&child, emit, |child, emit| child.project(event, emit));
            }
            None => self.apply(event, emit),
        }
        self.after_event(event, emit);
    }

    fn apply(&mut self, event: &RunEvent, emit: EmitOptions<'_>) {
        let reader = Reader { profile: &self.profile, cwd: &self.cwd };
        match event {
            RunEvent::TextDelta { message_id, delta }
            | RunEvent::ReasoningDelta { message_id, delta } => self.push(message_id, delta, emit),
            RunEvent::TextStarted { message_id, role, name: _, agent } => {
                self.start(message_id, *role, agent.as_ref());
            }
            RunEvent::Attached(message) | RunEvent::Adopted(message) => self.message(message, emit),
            RunEvent::ReasoningStarted { message_id, agent } => {
                self.start(message_id, Role::Reasoning, agent.as_ref());
            }
            RunEvent::TextEnded { message_id } | RunEvent::ReasoningEnded { message_id } => {
                self.end(message_id, emit);
            }
            RunEvent::CallStarted { call_id, name, message_id, agent } => {
                self.calls.start(call_id, name, reader, emit);
                // A call starts the message that makes it.
                if matches!(self.messages.get(message_id), None | Some(MessageState::Hidden)) {
                    self.start(message_id, Role::Assistant, agent.as_ref());
                }
            }
            RunEvent::CallArgs { call_id, delta } => self.calls.args(call_id, delta),
            RunEvent::CallEnded { call_id } => self.calls.end(call_id, reader, emit),
            RunEvent::CallResult { message_id: _, call_id, content, is_error, agent: _ } => {
                let result = CallResult { content, is_error: *is_error };
                self.calls.result(call_id, result, reader, emit);
            }
            RunEvent::StateSnapshot(state) => {
                if let Some(entries) = self.plan.set(state) {
                    emit(&plan_update(self.plan_form, entries));
                }
            }
            RunEvent::StateDelta(patch) => {
                if let Some(entries) = self.plan.change(patch) {
                    emit(&plan_update(self.plan_form, entries));
                }
            }
            RunEvent::Messages(messages) if self.children.is_some() => {
                self.snapshot_nested(messages, emit);
            }
            RunEvent::Messages(messages) => self.snapshot(messages, emit),
            RunEvent::Spent { message_id: _, usage, agent } => {
                self.spent(usage, agent.as_ref(), emit);
            }
            RunEvent::SubagentStarted(subagent) => self.subagent_started(subagent, emit),
            RunEvent::SubagentFinished { id } => {
                if let Some(subagent) = self.subagents.get_mut(id) {
                    subagent.is_over = true;
                }
            }
            RunEvent::Started { .. } => {
                self.run += 1;
                self.calls.next_run();
                self.subagents.clear();
                self.unattributed.clear();
                self.children_start(event, emit);
            }
            RunEvent::Ended { outcome, usage: _ } => self.ended(outcome, emit),
            RunEvent::ReasoningSealed { .. }
            | RunEvent::StepStarted { .. }
            | RunEvent::StepFinished { .. }
            | RunEvent::Custom { .. }
            | RunEvent::Activity { .. }
            | RunEvent::Raw(_) => {}
        }
    }

    /// Announces the call that an approval is about, unless it is announced already, and makes it
    /// wait. Returns the call with the question.
    ///
    /// An action that is no call of the conversation gets an id made from the interrupt's.
    pub fn ask(
        &mut self,
        interrupt_id: &Id,
        at: usize,
        action: &Action,
        emit: EmitOptions<'_>,
    ) -> ToolCall<'static> {
        let call_id = call_id_of(interrupt_id, at, action);
        if let Some(child) = self.child_of_call(&call_id) {
            self.set_state(&child, &SubagentState::RequiresAction, emit);
            let asked = self
                .in_child(&child, emit, |child, emit| child.ask(interrupt_id, at, action, emit));
            if let Some(asked) = asked {
                return asked;
            }
        }
        let reader = Reader { profile: &self.profile, cwd: &self.cwd };
        limit::call(self.calls.ask(&call_id, action, reader, emit))
    }

    /// Sends what a person has made of a call by changing its arguments.
    pub fn change(
        &mut self,
        interrupt_id: &Id,
        at: usize,
        action: &Action,
        args: &Json,
        emit: EmitOptions<'_>,
    ) {
        let call_id = call_id_of(interrupt_id, at, action);
        if let Some(child) = self.child_of_call(&call_id) {
            self.in_child(&child, emit, |child, emit| {
                child.change(interrupt_id, at, action, args, emit);
            });
            return;
        }
        let reader = Reader { profile: &self.profile, cwd: &self.cwd };
        self.calls.change(&call_id, args, reader, emit);
    }

    /// Sends the decision of a person or a rule about a call.
    pub fn decide(
        &mut self,
        interrupt_id: &Id,
        at: usize,
        action: &Action,
        verdict: CallDecision,
        emit: EmitOptions<'_>,
    ) {
        let call_id = call_id_of(interrupt_id, at, action);
        match self.child_of_call(&call_id) {
            Some(child) => {
                self.in_child(&child, emit, |child, emit| {
                    child.calls.decide(&call_id, verdict, emit);
                });
            }
            None => self.calls.decide(&call_id, verdict, emit),
        }
    }

    /// Ends the turn: ends open texts, and marks open calls as failed.
    pub fn settle(&mut self, emit: EmitOptions<'_>) {
        self.settle_children(emit);
        self.end_texts(emit);
        let reader = Reader { profile: &self.profile, cwd: &self.cwd };
        self.calls.settle(reader, emit);
    }

    fn end_texts(&mut self, emit: EmitOptions<'_>) {
        for id in std::mem::take(&mut self.unsettled) {
            self.end(&id, emit);
        }
    }

    fn start(&mut self, id: &Id, role: Role, agent: Option<&Id>) {
        let kind = chunk_kind(role).filter(|_| self.visibility(agent) == Some(Visibility::Shown));
        let state = self.messages.entry(Arc::clone(id)).or_insert(MessageState::Hidden);
        match (&mut *state, kind) {
            (MessageState::Hidden, Some(kind)) => {
                *state = MessageState::Shown(SentMessage::new(kind, id, self.run));
            }
            // Before its first snapshot, a run may repeat a message from its beginning.
            (MessageState::Shown(sent), _) if sent.run != self.run => {
                sent.run = self.run;
                sent.text.retract();
            }
            (
                MessageState::Own
                | MessageState::Hidden
                | MessageState::Shown(_)
                | MessageState::Notice(_),
                _,
            ) => {}
        }
    }

    fn push(&mut self, id: &Id, piece: &Text, emit: EmitOptions<'_>) {
        let Some(MessageState::Shown(sent)) = self.messages.get_mut(id) else { return };
        let piece = sent.text.push(id, piece);
        sent.emit(piece, emit);
        if sent.text.is_unsettled() {
            self.unsettled.insert(Arc::clone(id));
        }
    }

    /// Ends a text, and sends what is left of it.
    fn end(&mut self, id: &Id, emit: EmitOptions<'_>) {
        let Some(MessageState::Shown(sent)) = self.messages.get_mut(id) else { return };
        while let Some(piece) = sent.text.end(id) {
            sent.emit(Some(piece), emit);
        }
    }

    /// Sends what is new in a snapshot. Messages that it lacks may be streamed again.
    fn snapshot(&mut self, messages: &[Arc<Message>], emit: EmitOptions<'_>) {
        let ids: HashSet<_> = messages.iter().map(|message| &message.id).collect();
        self.rename(messages, &ids);
        let owns_reasoning = messages.iter().any(|message| message.role == Role::Reasoning);
        for (id, state) in &mut self.messages {
            if let MessageState::Shown(sent) = state
                && !ids.contains(id)
                && (owns_reasoning || sent.kind != ChunkKind::Thought)
            {
                sent.text.retract();
            }
        }
        let calls = messages.iter().flat_map(|message| &message.calls);
        self.calls.retract_others(&calls.map(|call| &call.id).collect());
        self.show(messages, emit);
    }

    /// Sends what is new in messages of the conversation, and in their calls.
    fn show(&mut self, messages: &[Arc<Message>], emit: EmitOptions<'_>) {
        let mut results = HashMap::new();
        for message in messages.iter().filter(|message| message.role == Role::Tool) {
            if let Some(call_id) = &message.call_id {
                let (content, is_error) = (&message.content, message.error.is_some());
                results.entry(call_id).or_insert(CallResult { content, is_error });
            }
        }
        let placed = self.placed(messages);
        for message in messages.iter().filter(|message| !placed.contains_key(&message.id)) {
            let is_new = self.is_new(&message.id);
            for Insertion { at, what } in message.between.iter().filter(|_| is_new) {
                self.beginning(message, *at, emit);
                let reader = Reader { profile: &self.profile, cwd: &self.cwd };
                match what {
                    Inserted::Reasoning(id) | Inserted::Attachment(id) => {
                        if let Some(part) = placed.get(id) {
                            self.message(part, emit);
                        }
                    }
                    Inserted::Call(number) => {
                        if let Some(call) = message.calls.get(*number) {
                            self.calls.show(call, results.get(&call.id).copied(), reader, emit);
                        }
                    }
                }
            }
            self.message(message, emit);
            let reader = Reader { profile: &self.profile, cwd: &self.cwd };
            for call in &message.calls {
                self.calls.show(call, results.get(&call.id).copied(), reader, emit);
            }
        }
        self.calls.prune_open();
    }

    /// The reasoning and attachments that stand between the pieces of texts which are new to the
    /// client.
    fn placed<'a>(&self, messages: &'a [Arc<Message>]) -> HashMap<&'a Id, &'a Arc<Message>> {
        let new = messages.iter().filter(|message| self.is_new(&message.id));
        let between = new.flat_map(|message| message.between.iter());
        let ids: HashSet<_> = between
            .filter_map(|part| match &part.what {
                Inserted::Reasoning(id) | Inserted::Attachment(id) => Some(id),
                Inserted::Call(_) => None,
            })
            .collect();
        let is_placed = |message: &&Arc<Message>| !ids.is_empty() && ids.contains(&message.id);
        messages.iter().filter(is_placed).map(|message| (&message.id, message)).collect()
    }

    /// Whether the client was sent nothing of a message.
    fn is_new(&self, id: &Id) -> bool {
        matches!(self.messages.get(id), None | Some(MessageState::Hidden))
    }

    /// Sends the beginning of a message's text. The rest follows.
    fn beginning(&mut self, message: &Message, at: usize, emit: EmitOptions<'_>) {
        let Content::Text(text) = &message.content else { return };
        let beginning = text.escaped().get(..at).filter(|beginning| !beginning.is_empty());
        let Some(beginning) = beginning else { return };
        let mut part = Message::new(Arc::clone(&message.id), message.role);
        part.agent.clone_from(&message.agent);
        part.content = Content::Text(TextBuf::from(&Text::from_escaped(beginning)));
        self.message(&part, emit);
    }

    /// Finds the messages of a snapshot that this run has sent under another id, which the snapshot
    /// does not have: an id may change when a message is committed.
    fn rename(&mut self, messages: &[Arc<Message>], ids: &HashSet<&Id>) {
        let is_gone = |(id, state): &(&Id, &MessageState)| match state {
            MessageState::Shown(sent) => sent.run == self.run && !ids.contains(id),
            MessageState::Own | MessageState::Hidden | MessageState::Notice(_) => false,
        };
        let mut gone: Vec<_> =
            self.messages.iter().filter(is_gone).map(|(id, _)| Arc::clone(id)).collect();
        if gone.is_empty() {
            return;
        }
        // A map has no order of its own.
        gone.sort();
        for message in messages.iter().filter(|message| !message.content.is_empty()) {
            if self.messages.contains_key(&message.id) {
                continue;
            }
            let is_it = |id: &Id| match self.messages.get(id) {
                Some(MessageState::Shown(sent)) => sent.is(message),
                Some(MessageState::Own | MessageState::Hidden | MessageState::Notice(_)) | None => {
                    false
                }
            };
            if let Some(at) = gone.iter().position(is_it)
                && let Some(state) = self.messages.remove(&gone.swap_remove(at))
            {
                self.messages.insert(Arc::clone(&message.id), state);
            }
        }
    }

    /// Sends what is new in a message of the conversation.
    fn message(&mut self, message: &Message, emit: EmitOptions<'_>) {
        let id = &message.id;
        let Some(kind) = chunk_kind(message.role) else { return };
        match self.visibility(message.agent.as_ref()) {
            Some(Visibility::Shown) => {}
            Some(Visibility::Hidden) => {
                self.messages.entry(Arc::clone(id)).or_insert(MessageState::Hidden);
                return;
            }
            None => {
                self.unattributed.retain(|message| message.id != *id);
                return self.unattributed.push(message.clone());
            }
        }
        // What a subagent wrote for a call stays hidden after the call's result.
        let was_hidden = matches!(self.messages.get(id), Some(MessageState::Hidden));
        let is_callees = |agent| self.path(agent).any(|subagent| subagent.call_id.is_some());
        if was_hidden && message.agent.as_ref().is_some_and(is_callees) {
            return;
        }
        if let Some(ContentPart::Notice(notice)) = message.attached() {
            return self.notice(id, notice, emit);
        }
        let state = self.messages.entry(Arc::clone(id)).or_insert(MessageState::Hidden);
        if matches!(state, MessageState::Hidden) {
            *state = MessageState::Shown(SentMessage::new(kind, id, self.run));
        }
        let MessageState::Shown(sent) = state else { return };
        sent.run = self.run;
        sent.show(id, &message.content, message.number(), emit);
        if sent.text.is_unsettled() {
            self.unsettled.insert(Arc::clone(id));
        }
    }

    /// Sends a notice, unless the client was sent the same.
    fn notice(&mut self, id: &Id, notice: &HarnessNotice, emit: EmitOptions<'_>) {
        let fingerprint = content::fingerprint_of_notice(notice);
        match self.messages.insert(Arc::clone(id), MessageState::Notice(fingerprint)) {
            Some(MessageState::Notice(sent)) if sent == fingerprint => return,
            _ => {}
        }
        let NoticeForms { compactions, notices } = self.notice_forms;
        if compactions && *notice.source.decode() == *SUMMARY {
            let text = strict::text(&notice.text);
            return emit(&Update::CompactionUpdate {
                compaction_id: id,
                status: CompactionStatus::Completed,
                summary: vec![ContentBlock::Text { text }],
            });
        }
        let notice = Notice::of_harness(notice);
        emit(&if notices { notice.update() } else { notice.headline(id) });
    }

    /// A subagent starts. If a tool call started it, it works for that call, and so do its own
    /// subagents.
    fn subagent_started(&mut self, subagent: &Subagent, emit: EmitOptions<'_>) {
        let Subagent { id, name: _, parent, call_id } = subagent;
        let (parent, call_id) = (parent.clone(), call_id.clone());
        let seen = SeenSubagent { parent, call_id, is_over: false };
        self.subagents.insert(Arc::clone(id), seen);
        let is_child = self.child_started(subagent, emit);
        if let Some(call_id) = &subagent.call_id
            && !is_child
        {
            self.calls.run(call_id, emit);
        }
        let (known, unattributed) = std::mem::take(&mut self.unattributed)
            .into_iter()
            .partition(|message| message.agent.as_ref() == Some(&subagent.id));
        self.unattributed = unattributed;
        let known: Vec<_> = known;
        if self.children.is_some() {
            let known: Vec<_> = known.into_iter().map(Arc::new).collect();
            return self.attribute(&subagent.id, &known, emit);
        }
        for message in &known {
            self.message(message, emit);
        }
    }

    /// Whether the messages are shown that a subagent writes now. `None` for a subagent that was not
    /// announced.
    fn visibility(&self, agent: Option<&Id>) -> Option<Visibility> {
        let Some(agent) = agent else { return Some(Visibility::Shown) };
        if self.scope == Scope::Child {
            return Some(Visibility::Shown);
        }
        self.subagents.get(agent)?;
        let works = |subagent: &SeenSubagent| {
            let call_id = subagent.call_id.as_ref();
            call_id.is_some_and(|call_id| subagent.is_over || !self.calls.is_answered(call_id))
        };
        let is_hidden = self.path(agent).any(works);
        Some(if is_hidden { Visibility::Hidden } else { Visibility::Shown })
    }

    /// A subagent, and those that contain it.
    fn path(&self, agent: &Id) -> impl Iterator<Item = &SeenSubagent> {
        let parent = |subagent: &&SeenSubagent| self.subagents.get(subagent.parent.as_ref()?);
        // A parent is announced before its subagents, so no path is longer.
        std::iter::successors(self.subagents.get(agent), parent).take(self.subagents.len())
    }

    fn spent(&mut self, usage: &Usage, agent: Option<&Id>, emit: EmitOptions<'_>) {
        if self.visibility(agent) != Some(Visibility::Shown) {
            return;
        }
        let window = usage.model.as_ref().and_then(|model| self.profile.window(model));
        let (Some(size), Some(input)) = (window, usage.input) else { return };
        let used = input.saturating_add(usage.output.unwrap_or(0));
        if self.used.replace((used, size)) != Some((used, size)) {
            emit(&Update::UsageUpdate { used, size });
        }
    }

    /// The run ends. Open calls stay open if it waits for a person.
    fn ended(&mut self, outcome: &Outcome, emit: EmitOptions<'_>) {
        self.children_end(outcome, emit);
        match outcome {
            Outcome::Interrupted(_) => self.end_texts(emit),
            Outcome::Finished { .. }
            | Outcome::Cancelled
            | Outcome::Idle { .. }
            | Outcome::Failed(_) => self.settle(emit),
        }
        self.subagents.clear();
        self.unattributed.clear();
    }
}

/// The update with a plan. A list without entries is no plan.
fn plan_update(form: PlanForm, entries: &[PlanEntry]) -> Update<'_> {
    match form {
        PlanForm::Only => Update::Plan { entries },
        PlanForm::ById if entries.is_empty() => Update::PlanRemoved { plan_id: TODOS_PLAN },
        PlanForm::ById => Update::PlanUpdate { plan: Plan::Items { plan_id: TODOS_PLAN, entries } },
    }
}

/// The id of the call that an action is about. An action that is no call of the conversation gets
/// one made from the interrupt's.
fn call_id_of(interrupt_id: &Id, at: usize, action: &Action) -> Id {
    match &action.call_id {
        Some(id) => Arc::clone(id),
        None => Id::from(format!("{interrupt_id}:{at}")),
    }
}
