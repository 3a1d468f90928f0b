//! Opening and closing: the only place where run events are made, so that what opens also closes.
//!
//! Each method takes the view from where it is to where it should be: text for a message that is
//! not open opens it, an end for one that is closed says nothing. Legality needs no other guard.

use std::collections::HashMap;
use std::sync::Arc;

use super::activity::ClientTools;
use super::open::Open;
use super::{
    Activity, Content, Failure, Id, Message, Outcome, Patch, Role, RunEvent, Subagent, Todos,
    ToolStatus, Usage, View, commit,
};
use crate::json::{Json, Text};

/// The view of a run and the events that lead to it.
#[derive(Debug, Default)]
pub(super) struct Brackets {
    /// Shared with those who keep it as it was: the next event then goes into a copy.
    view: Arc<View>,
    events: Vec<RunEvent>,
    /// Whose each message is, also if a snapshot has deleted it since: an id that comes back
    /// under another owner is a contradiction to a client.
    owners: HashMap<Id, Option<Id>>,
    /// Which message each call belongs to, and whose that was when the call was told, likewise.
    callers: HashMap<Id, (Id, Option<Id>)>,
    /// By LangGraph's id of a call: the ids on our wires of the calls that have it.
    wires: HashMap<Id, Vec<Id>>,
    /// The plan's id, once the thread is known.
    plan_id: Option<Id>,
    todos: Todos,
    client_tools: ClientTools,
}

// === impl Brackets ===

impl Brackets {
    pub(super) fn view(&self) -> &View {
        &self.view
    }

    pub(super) fn shared_view(&self) -> Arc<View> {
        Arc::clone(&self.view)
    }

    /// Hands over the events made since the last time.
    pub(super) fn drain_into(&mut self, out: &mut Vec<RunEvent>) {
        out.append(&mut self.events);
    }

    fn emit(&mut self, event: RunEvent) {
        Arc::make_mut(&mut self.view).apply(&event);
        self.events.push(event);
    }

    pub(super) fn started(&mut self, thread_id: &Id, run_id: Option<&Id>, name: &Id) {
        let (thread_id, name) = (Arc::clone(thread_id), Arc::clone(name));
        self.plan_id = Some(Activity::id_of_plan(&thread_id));
        self.emit(RunEvent::Started { thread_id, run_id: run_id.cloned(), name });
    }

    pub(super) fn ended(&mut self, outcome: Outcome, usage: Vec<Usage>) {
        self.close_all();
        self.settle_tools(&outcome);
        self.emit(RunEvent::Ended { outcome, usage });
    }

    // --- text ---

    /// Opens a message, if it is not.
    pub(super) fn open_text(
        &mut self,
        id: &Id,
        role: Role,
        name: Option<Text>,
        agent: Option<&Id>,
    ) {
        if !self.view.open().texts.contains(id) {
            let agent = self.owner(id, agent);
            let message_id = Arc::clone(id);
            self.emit(RunEvent::TextStarted { message_id, role, name, agent });
        }
    }

    /// Says something in an open message.
    pub(super) fn text(&mut self, id: &Id, delta: Text) {
        if !delta.is_empty() {
            self.emit(RunEvent::TextDelta { message_id: Arc::clone(id), delta });
        }
    }

    pub(super) fn close_text(&mut self, id: &Id) {
        if self.view.open().texts.contains(id) {
            self.emit(RunEvent::TextEnded { message_id: Arc::clone(id) });
        }
    }

    /// Attaches something to a message, unless the client holds it. An id that is another message's
    /// is left to that one.
    pub(super) fn attach(&mut self, attachment: &Arc<Message>, agent: Option<&Id>) {
        let held = self.view.message(&attachment.id);
        let is_other = |held: &Message| held.role != Role::Attachment;
        if held.is_some_and(|held| is_other(held) || held.shows_same(attachment)) {
            return;
        }
        let agent = self.owner(&attachment.id, agent);
        let attachment = if attachment.agent == agent {
            Arc::clone(attachment)
        } else {
            Message { agent, ..(**attachment).clone() }.into()
        };
        self.emit(RunEvent::Attached(attachment));
    }

    // --- reasoning ---

    pub(super) fn open_thought(&mut self, id: &Id, agent: Option<&Id>) {
        if !self.view.open().thoughts.contains(id) {
            let agent = self.owner(id, agent);
            self.emit(RunEvent::ReasoningStarted { message_id: Arc::clone(id), agent });
        }
    }

    pub(super) fn thought(&mut self, id: &Id, delta: Text) {
        if !delta.is_empty() {
            self.emit(RunEvent::ReasoningDelta { message_id: Arc::clone(id), delta });
        }
    }

    pub(super) fn sealed(&mut self, id: &Id, sealed: Text) {
        self.emit(RunEvent::ReasoningSealed { message_id: Arc::clone(id), sealed });
    }

    pub(super) fn close_thought(&mut self, id: &Id) {
        if self.view.open().thoughts.contains(id) {
            self.emit(RunEvent::ReasoningEnded { message_id: Arc::clone(id) });
        }
    }

    // --- tool calls ---

    /// Opens a call, if it is not.
    ///
    /// The call gets the owner of the message that carries it.
    pub(super) fn open_call(&mut self, id: &Id, name: &Id, message_id: &Id, agent: Option<&Id>) {
        if !self.view.open().calls.contains(id) {
            let agent = self.owner(message_id, agent);
            if self.view.message(message_id).is_some_and(|message| message.role != Role::Assistant)
            {
                // A client makes a message of the call's own name for it.
                self.owners.entry(Arc::clone(id)).or_insert_with(|| agent.clone());
            }
            let (call_id, name) = (Arc::clone(id), Arc::clone(name));
            let message_id = Arc::clone(message_id);
            self.note_call(&call_id, &message_id, agent.as_ref());
            self.emit(RunEvent::CallStarted { call_id, name, message_id, agent });
        }
    }

    /// Says more of an open call's arguments. One that a snapshot has taken away is not open.
    pub(super) fn call_args(&mut self, id: &Id, delta: Text) {
        if !delta.is_empty() && self.view.open().calls.contains(id) {
            self.emit(RunEvent::CallArgs { call_id: Arc::clone(id), delta });
        }
    }

    pub(super) fn close_call(&mut self, id: &Id) {
        if self.view.open().calls.contains(id) {
            self.emit(RunEvent::CallEnded { call_id: Arc::clone(id) });
            self.tool(id, ToolStatus::Running);
        }
    }

    /// A tool is so far. It goes on under the name of its call; a call that is not known has none.
    pub(super) fn tool(&mut self, call_id: &Id, status: ToolStatus) {
        let Some((message, call)) = self.view.call(call_id) else { return };
        let (name, agent) = (Arc::clone(&call.name), message.agent.clone());
        if self.client_tools.has(&name) {
            return;
        }
        let id = Activity::id_of_tool(call_id);
        let activity = Activity::Tool { call_id: Arc::clone(call_id), name, status };
        self.active(id, activity, agent);
    }

    /// Shows an activity, if it is news.
    fn active(&mut self, id: Id, activity: Activity, agent: Option<Id>) {
        let change = match self.view.activity(&id) {
            Some(held) if *held == activity => return,
            Some(held) => held.change(&activity),
            None => None,
        };
        self.emit(RunEvent::Activity { id, activity, change, agent });
    }

    /// Shows the todos that the state has by now.
    fn plan(&mut self) {
        let Some(id) = self.plan_id.clone() else { return };
        let todos = match self.todos.list() {
            Some(todos) => todos,
            // There were some.
            None if self.view.activity(&id).is_some() => crate::json::array([]),
            None => return,
        };
        self.active(id, Activity::Plan { todos }, None);
    }

    /// What becomes of the tools that run when the run ends.
    fn settle_tools(&mut self, outcome: &Outcome) {
        for (_, activity) in self.view.running_tools() {
            let Activity::Tool { call_id, .. } = activity else { continue };
            let status = match outcome {
                Outcome::Interrupted(_) => ToolStatus::Waiting,
                Outcome::Finished { pending_calls, .. } if pending_calls.contains(&call_id) => {
                    ToolStatus::Requested
                }
                // The run may go on.
                Outcome::Failed(Failure::Gateway { .. }) => continue,
                Outcome::Finished { .. }
                | Outcome::Cancelled
                | Outcome::Idle { .. }
                | Outcome::Failed(Failure::Graph(_)) => ToolStatus::Stopped,
            };
            self.tool(&call_id, status);
        }
    }

    /// A tool's answer; its call is complete with it.
    pub(super) fn result(
        &mut self,
        message_id: &Id,
        call_id: &Id,
        content: Content,
        is_error: bool,
        agent: Option<&Id>,
    ) {
        self.close_call(call_id);
        let agent = self.owner(message_id, agent);
        let (message_id, call_id) = (Arc::clone(message_id), Arc::clone(call_id));
        let called = Arc::clone(&call_id);
        self.emit(RunEvent::CallResult { message_id, call_id, content, is_error, agent });
        self.tool(&called, if is_error { ToolStatus::Failed } else { ToolStatus::Completed });
    }

    /// What a model's call has cost so far.
    pub(super) fn spent(&mut self, message_id: &Id, usage: Usage, agent: Option<&Id>) {
        let (message_id, agent) = (Arc::clone(message_id), agent.cloned());
        self.emit(RunEvent::Spent { message_id, usage, agent });
    }

    // --- steps and subagents ---

    /// Starts a step; gives it a name that no open step of the agent has.
    pub(super) fn start_step(&mut self, node: &str, agent: Option<&Id>) -> Id {
        let taken = |name: &str| {
            self.view.open().steps.iter().any(|(n, a)| &**n == name && a.as_ref() == agent)
        };
        let mut name = Id::from(node);
        // Usually the first free number, since names are given in turn.
        let is_of_node =
            |(name, a): &&(Id, Option<Id>)| name.starts_with(node) && a.as_ref() == agent;
        let mut number = 1 + self.view.open().steps.iter().filter(is_of_node).count();
        while taken(&name) {
            name = Id::from(format!("{node} ({number})"));
            number += 1;
        }
        self.emit(RunEvent::StepStarted { name: Arc::clone(&name), agent: agent.cloned() });
        name
    }

    pub(super) fn finish_step(&mut self, name: &Id, agent: Option<&Id>) {
        if self.view.open().steps.iter().any(|(n, a)| n == name && a.as_ref() == agent) {
            self.emit(RunEvent::StepFinished { name: Arc::clone(name), agent: agent.cloned() });
        }
    }

    /// Starts a subagent. Who joined late may never have heard of a parent that is through.
    pub(super) fn start_subagent(&mut self, subagent: Subagent) {
        let is_open = |id: &Id| self.view.open().subagents.iter().any(|other| other.id == *id);
        let parent = subagent.parent.filter(is_open);
        self.emit(RunEvent::SubagentStarted(Subagent { parent, ..subagent }));
    }

    /// Ends a subagent, and before it what it has open.
    pub(super) fn finish_subagent(&mut self, id: &Id) {
        if self.view.open().subagents.iter().any(|subagent| subagent.id == *id) {
            self.close_of(Some(id));
            self.emit(RunEvent::SubagentFinished { id: Arc::clone(id) });
        }
    }

    // --- snapshots and the rest ---

    pub(super) fn state_snapshot(&mut self, state: Json) {
        self.client_tools.set(&state);
        let is_planned = self.todos.set(&state);
        self.emit(RunEvent::StateSnapshot(state));
        if is_planned {
            self.plan();
        }
    }

    /// Tells a new state as a delta, or whole if that is shorter; nothing if it is the old one.
    pub(super) fn state(&mut self, state: Json) {
        match Arc::make_mut(&mut self.view).diff_state(&state) {
            Some(patch) if patch.is_empty() => {}
            Some(patch) => {
                if ClientTools::are_in(&patch) {
                    self.client_tools.set(&state);
                }
                self.state_delta(patch);
            }
            None => self.state_snapshot(state),
        }
    }

    fn state_delta(&mut self, patch: Patch) {
        let is_planned = self.todos.change(&patch);
        self.emit(RunEvent::StateDelta(patch));
        if is_planned {
            self.plan();
        }
    }

    /// The conversation is this now. A call that it does not hold cannot be gone on with, nor be
    /// shown to who comes then: it ends before.
    pub(super) fn messages(&mut self, messages: &[Arc<Message>]) {
        let is_held = |id: &Id| messages.iter().flat_map(|m| &m.calls).any(|call| call.id == *id);
        let lost: Vec<_> =
            self.view.open().calls.iter().filter(|id| !is_held(id)).cloned().collect();
        for id in &lost {
            self.close_call(id);
        }
        for message in messages {
            self.owners.insert(Arc::clone(&message.id), message.agent.clone());
            for call in &message.calls {
                self.note_call(&call.id, &message.id, message.agent.as_ref());
            }
        }
        self.emit(RunEvent::Messages(messages.into()));
    }

    pub(super) fn custom(&mut self, name: &str, value: Json, agent: Option<&Id>) {
        self.emit(RunEvent::Custom { name: Id::from(name), value, agent: agent.cloned() });
    }

    /// Closes all that is open, what came last first.
    pub(super) fn close_all(&mut self) {
        let subagents = self.view.open().subagents.clone();
        for subagent in subagents.iter().rev() {
            self.finish_subagent(&subagent.id);
        }
        self.close_of(None);
        // What a finished subagent said after its end belongs to no open one.
        self.close(&self.view.open().clone());
    }

    /// Closes what one agent has open.
    fn close_of(&mut self, agent: Option<&Id>) {
        let mut open = self.view.open().clone();
        let says = |id: &Id| self.view.message(id).and_then(|m| m.agent.as_ref()) == agent;
        let calls = |id: &Id| self.view.call(id).and_then(|(m, _)| m.agent.as_ref()) == agent;
        open.thoughts.retain(&says);
        open.texts.retain(&says);
        open.calls.retain(calls);
        open.steps.retain(|(_, owner)| owner.as_ref() == agent);
        self.close(&open);
    }

    fn close(&mut self, open: &Open) {
        for id in &open.thoughts {
            self.close_thought(id);
        }
        for id in &open.texts {
            self.close_text(id);
        }
        for id in &open.calls {
            self.close_call(id);
        }
        for (name, agent) in open.steps.iter().rev() {
            self.finish_step(name, agent.as_ref());
        }
    }

    /// Who a message belongs to: whoever opened it first, whoever goes on with it.
    fn owner(&mut self, id: &Id, agent: Option<&Id>) -> Option<Id> {
        self.owners.entry(Arc::clone(id)).or_insert_with(|| agent.cloned()).clone()
    }

    fn note_call(&mut self, wire: &Id, message_id: &Id, agent: Option<&Id>) {
        let caller = (Arc::clone(message_id), agent.cloned());
        if self.callers.insert(Arc::clone(wire), caller).is_none() {
            let raw_id = Id::from(commit::call_id_of(wire, message_id));
            self.wires.entry(raw_id).or_default().push(Arc::clone(wire));
        }
    }

    /// The id on our wires of the call that an answer with LangGraph's id belongs to: the last
    /// that waits for one, since providers that count per turn repeat their ids.
    pub(super) fn wire_call_id(&self, raw_id: &str) -> Id {
        let wires = self.wires.get(raw_id).map(Vec::as_slice).unwrap_or_default();
        let waiting = wires.iter().rev().find(|wire| !self.view.is_answered(wire));
        waiting.or_else(|| wires.last()).map_or_else(|| Id::from(raw_id), Arc::clone)
    }

    /// Whether a message may make a call under an id: nobody has, or it has itself, under the
    /// same owner. A snapshot may have given the message to another, and left the call out.
    pub(super) fn may_call(&self, call_id: &Id, message_id: &Id, agent: Option<&Id>) -> bool {
        self.callers.get(call_id).is_none_or(|(caller, told)| {
            let owner = self.owners.get(message_id).map_or(agent, Option::as_ref);
            caller == message_id && told.as_ref() == owner
        })
    }
}
