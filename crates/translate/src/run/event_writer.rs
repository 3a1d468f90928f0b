//! The only place that makes run events. It closes everything that it opens.
//!
//! Each method moves the view from its present state to the wanted one. Opening a message that is
//! open already emits nothing, and neither does closing a closed one. So every sequence of calls
//! gives a legal stream.

use std::collections::HashMap;
use std::sync::Arc;

use super::activity::ClientTools;
use super::open::Open;
use super::{
    Activity, CallForm, Content, Id, Message, Outcome, Patch, Role, RunEvent, Subagent, Todos,
    ToolStatus, Usage, View, commit,
};
use crate::json::{Json, Text};

/// A run's view, and the events that led to it.
#[derive(Debug, Default)]
pub(super) struct EventWriter {
    /// Shared with readers that hold it frozen. The next event then changes a copy.
    view: Arc<View>,
    events: Vec<RunEvent>,
    /// The subagent of each message, even if a snapshot has deleted the message since. Clients
    /// refuse an id that comes again under another subagent.
    owners: HashMap<Id, Option<Id>>,
    /// The message of each call, and the subagent that the call was announced for. Kept for the
    /// same reason.
    callers: HashMap<Id, (Id, Option<Id>)>,
    /// By LangGraph's id of a call: the ids that clients know such calls by.
    wires: HashMap<Id, Vec<Id>>,
    /// Known once the thread is.
    plan_id: Option<Id>,
    todos: Todos,
    client_tools: ClientTools,
}

// === impl EventWriter ===

impl EventWriter {
    pub(super) fn view(&self) -> &View {
        &self.view
    }

    pub(super) fn shared_view(&self) -> Arc<View> {
        Arc::clone(&self.view)
    }

    /// Moves the events made since the last call to `out`.
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

    /// Ends the run. `open` are the calls that wait for a result.
    pub(super) fn ended(&mut self, outcome: Outcome, open: &[Id], usage: Vec<Usage>) {
        self.close_all();
        self.settle_tools(&outcome, open);
        self.emit(RunEvent::Ended { outcome, usage });
    }

    // --- text ---

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

    /// Appends to an open message.
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

    /// Adds an attachment to a message, unless the client holds the same. If the id belongs to a
    /// message of another role, nothing happens.
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

    pub(super) fn adopt(&mut self, message: &Arc<Message>) {
        self.emit(RunEvent::Adopted(Arc::clone(message)));
    }

    // --- reasoning ---

    pub(super) fn open_reasoning(&mut self, id: &Id, agent: Option<&Id>) {
        if !self.view.open().reasoning.contains(id) {
            let agent = self.owner(id, agent);
            self.emit(RunEvent::ReasoningStarted { message_id: Arc::clone(id), agent });
        }
    }

    pub(super) fn reasoning(&mut self, id: &Id, delta: Text) {
        if !delta.is_empty() {
            self.emit(RunEvent::ReasoningDelta { message_id: Arc::clone(id), delta });
        }
    }

    pub(super) fn sealed(&mut self, id: &Id, sealed: Text) {
        self.emit(RunEvent::ReasoningSealed { message_id: Arc::clone(id), sealed });
    }

    pub(super) fn close_reasoning(&mut self, id: &Id) {
        if self.view.open().reasoning.contains(id) {
            self.emit(RunEvent::ReasoningEnded { message_id: Arc::clone(id) });
        }
    }

    // --- tool calls ---

    /// Opens a call. It belongs to the subagent of the message that contains it.
    ///
    /// A call that clients hold does not start again: older clients would hold it twice. If its
    /// arguments change after its end, a snapshot corrects them.
    pub(super) fn open_call(&mut self, id: &Id, name: &Id, message_id: &Id, agent: Option<&Id>) {
        if self.view.call(id).is_none() {
            let agent = self.owner(message_id, agent);
            if self.view.message(message_id).is_some_and(|message| message.role != Role::Assistant)
            {
                // For such a call a client makes a message whose id is the call's.
                self.owners.entry(Arc::clone(id)).or_insert_with(|| agent.clone());
            }
            let (call_id, name) = (Arc::clone(id), Arc::clone(name));
            let message_id = Arc::clone(message_id);
            self.note_call(&call_id, &message_id, agent.as_ref());
            self.emit(RunEvent::CallStarted { call_id, name, message_id, agent });
        }
    }

    /// Appends to the arguments of an open call. A call that a snapshot has deleted is not open.
    pub(super) fn call_args(&mut self, id: &Id, delta: Text) {
        if !delta.is_empty() && self.view.open().calls.contains(id) {
            self.emit(RunEvent::CallArgs { call_id: Arc::clone(id), delta });
        }
    }

    /// Ends an open call. Its tool runs, unless the result came before the call.
    pub(super) fn close_call(&mut self, id: &Id) {
        self.close_call_of(id, CallForm::Valid);
    }

    /// Ends an open call of this form.
    pub(super) fn close_call_of(&mut self, id: &Id, form: CallForm) {
        let is_open = self.view.open().calls.contains(id);
        if is_open {
            self.emit(RunEvent::CallEnded { call_id: Arc::clone(id) });
        }
        match form {
            CallForm::Valid if is_open => {
                let status = self.view.answer_of(id).unwrap_or(ToolStatus::Running);
                self.tool(id, status);
            }
            CallForm::Valid => {}
            CallForm::Invalid => self.tool(id, ToolStatus::Failed),
        }
    }

    /// Sets the status of a tool, if its present status may become that. It is shown under the name
    /// of its call, so an unknown call shows nothing.
    pub(super) fn tool(&mut self, call_id: &Id, status: ToolStatus) {
        let id = Activity::id_of_tool(call_id);
        if let Some(Activity::Tool { status: held, .. }) = self.view.activity(&id)
            && !held.may_become(status)
        {
            return;
        }
        if let Some((activity, agent)) = self.activity_of(call_id, status) {
            self.show(id, activity, agent);
        }
    }

    /// The activity of a tool, and the agent that has called it. `None` for an unknown call, and for
    /// a tool that the client runs itself.
    fn activity_of(&self, call_id: &Id, status: ToolStatus) -> Option<(Activity, Option<Id>)> {
        let held = self.view.activity(&Activity::id_of_tool(call_id));
        let (name, agent) = match (self.view.call(call_id), held) {
            (Some((message, call)), _) => (&call.name, message.agent.clone()),
            // A snapshot has removed the call, and its activity stays with clients.
            (None, Some(Activity::Tool { name, .. })) => {
                (name, self.callers.get(call_id).and_then(|(_, agent)| agent.clone()))
            }
            (None, Some(Activity::Plan { .. }) | None) => return None,
        };
        let is_shown = held.is_some() || !self.client_tools.has(name);
        let (call_id, name) = (Arc::clone(call_id), Arc::clone(name));
        is_shown.then_some((Activity::Tool { call_id, name, status }, agent))
    }

    /// Shows an activity: the change, or the whole activity if viewers do not hold it.
    fn show(&mut self, id: Id, activity: Activity, agent: Option<Id>) {
        let change = self.view.activity(&id).and_then(|held| held.change(&activity));
        self.emit(RunEvent::Activity { id, activity, change, agent });
    }

    /// Shows the todos of the present state. An empty list only replaces todos shown before.
    fn plan(&mut self) {
        let Some(id) = self.plan_id.clone() else { return };
        let todos = self.todos.list().unwrap_or_else(|| crate::json::array([]));
        let is_empty = crate::json::items(&todos).is_none_or(|items| items.is_empty());
        let plan = Activity::Plan { todos };
        let is_new = match self.view.activity(&id) {
            Some(shown) => *shown != plan,
            None => !is_empty,
        };
        if is_new {
            self.show(id, plan, None);
        }
    }

    /// Sets the final status of all running tools, and of those that wait since an earlier run.
    fn settle_tools(&mut self, outcome: &Outcome, open: &[Id]) {
        let running = self.view.running_tools();
        let ended = |call_id: &Id| match outcome {
            // The run's states may have its result only now.
            _ if self.view.is_answered(call_id) => {
                self.view.answer_of(call_id).unwrap_or(ToolStatus::Stopped)
            }
            Outcome::Interrupted(_) => ToolStatus::Waiting,
            Outcome::Finished { pending_calls, .. } | Outcome::Idle { pending_calls, .. }
                if pending_calls.contains(call_id) =>
            {
                ToolStatus::Requested
            }
            Outcome::Finished { .. }
            | Outcome::Idle { .. }
            | Outcome::Cancelled
            | Outcome::Failed(_) => ToolStatus::Stopped,
        };
        let waiting = open.iter().map(|id| (id, ended(id)));
        let waiting = waiting.filter(|(_, status)| *status != ToolStatus::Stopped);
        let running = running.iter().map(|id| (id, ended(id)));
        let settled: Vec<_> = running.chain(waiting).collect();
        for (call_id, status) in settled {
            self.tool(call_id, status);
        }
    }

    /// Emits a tool's result. The call ends before it, without arguments if none have come.
    pub(super) fn result(
        &mut self,
        message_id: &Id,
        call_id: &Id,
        content: Content,
        is_error: bool,
        agent: Option<&Id>,
    ) {
        if self.view.call(call_id).is_some_and(|(_, call)| call.args.is_empty()) {
            self.call_args(call_id, Text::new("{}"));
        }
        self.close_call(call_id);
        let agent = self.owner(message_id, agent);
        let (message_id, call_id) = (Arc::clone(message_id), Arc::clone(call_id));
        let called = Arc::clone(&call_id);
        self.emit(RunEvent::CallResult { message_id, call_id, content, is_error, agent });
        self.tool(&called, ToolStatus::answered(is_error));
    }

    pub(super) fn spent(&mut self, message_id: &Id, usage: Usage, agent: Option<&Id>) {
        let (message_id, agent) = (Arc::clone(message_id), agent.cloned());
        self.emit(RunEvent::Spent { message_id, usage, agent });
    }

    // --- steps and subagents ---

    /// Starts a step under a name that no open step of the agent has, and returns the name.
    pub(super) fn start_step(&mut self, node: &str, agent: Option<&Id>) -> Id {
        let taken = |name: &str| {
            self.view.open().steps.iter().any(|(n, a)| &**n == name && a.as_ref() == agent)
        };
        let mut name = Id::from(node);
        // Names are given in turn, so this is usually the first free number.
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

    /// Starts a subagent. A parent that is not open is left out: a client that joined late may not
    /// know it.
    pub(super) fn start_subagent(&mut self, subagent: Subagent) {
        let is_open = |id: &Id| self.view.open().subagents.iter().any(|other| other.id == *id);
        let parent = subagent.parent.filter(is_open);
        self.emit(RunEvent::SubagentStarted(Subagent { parent, ..subagent }));
    }

    /// Closes everything that a subagent has open, and then the subagent.
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

    /// Emits a new state as a patch, or whole if that is shorter. An unchanged state emits nothing.
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

    /// Replaces the conversation. Open calls that it does not contain end first: they cannot
    /// continue, and clients that join later would not know them.
    pub(super) fn messages(&mut self, messages: &[Arc<Message>]) {
        let is_held = |id: &Id| messages.iter().flat_map(|m| &m.calls).any(|call| call.id == *id);
        let removed: Vec<_> =
            self.view.open().calls.iter().filter(|id| !is_held(id)).cloned().collect();
        for id in removed {
            self.emit(RunEvent::CallEnded { call_id: id });
        }
        for message in messages {
            self.owners.insert(Arc::clone(&message.id), message.agent.clone());
            for call in &message.calls {
                self.note_call(&call.id, &message.id, message.agent.as_ref());
            }
        }
        self.emit(RunEvent::Messages(messages.into()));
    }

    /// Stops the tools whose calls the snapshots have removed.
    pub(super) fn stop_removed_tools(&mut self) {
        for call_id in self.view.running_tools() {
            if self.view.call(&call_id).is_none() {
                self.tool(&call_id, ToolStatus::Stopped);
            }
        }
    }

    pub(super) fn custom(&mut self, name: &str, value: Json, agent: Option<&Id>) {
        self.emit(RunEvent::Custom { name: Id::from(name), value, agent: agent.cloned() });
    }

    /// Closes everything that is open, the latest first.
    pub(super) fn close_all(&mut self) {
        let subagents = self.view.open().subagents.clone();
        for subagent in subagents.iter().rev() {
            self.finish_subagent(&subagent.id);
        }
        self.close_of(None);
        // Messages that a subagent wrote after its end belong to no open subagent.
        self.close(&self.view.open().clone());
    }

    /// Closes everything that one agent has open.
    fn close_of(&mut self, agent: Option<&Id>) {
        let mut open = self.view.open().clone();
        let says = |id: &Id| self.view.message(id).and_then(|m| m.agent.as_ref()) == agent;
        let calls = |id: &Id| self.view.call(id).and_then(|(m, _)| m.agent.as_ref()) == agent;
        open.reasoning.retain(&says);
        open.texts.retain(&says);
        open.calls.retain(calls);
        open.steps.retain(|(_, owner)| owner.as_ref() == agent);
        self.close(&open);
    }

    fn close(&mut self, open: &Open) {
        for id in &open.reasoning {
            self.close_reasoning(id);
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

    /// The subagent of a message: that of its first event, for all later ones too.
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

    /// The id that clients know a call by, given LangGraph's id in the call's result. Providers
    /// that count calls per turn use ids again, so the last call without a result is meant.
    pub(super) fn wire_call_id(&self, raw_id: &str) -> Id {
        let wires = self.wires.get(raw_id).map(Vec::as_slice).unwrap_or_default();
        let waiting = wires.iter().rev().find(|wire| !self.view.is_answered(wire));
        waiting.or_else(|| wires.last()).map_or_else(|| Id::from(raw_id), Arc::clone)
    }

    /// Whether a message may open a call under this id. It may if nobody has used the id, or if the
    /// same message has, under the same subagent. A snapshot may have given the message to another
    /// subagent and left the call out.
    pub(super) fn may_call(&self, call_id: &Id, message_id: &Id, agent: Option<&Id>) -> bool {
        self.callers.get(call_id).is_none_or(|(caller, announced_for)| {
            let owner = self.owners.get(message_id).map_or(agent, Option::as_ref);
            caller == message_id && announced_for.as_ref() == owner
        })
    }
}
