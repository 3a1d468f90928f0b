//! Removes from a run's events what its viewers should not see.
//!
//! ```text
//! Translator -- all events --> Filter -- shown events --> log, keyframes, projectors
//! ```
//! The filter keeps a view of the events that it lets through. Clients that join late, or missed
//! events, are brought to that view. So they end with the same messages and state as a client that
//! was there from the start.

use std::collections::HashSet;
use std::sync::Arc;

use super::emit_options::{EmitOptions, MessageSnapshots, StateEvents, Subagents};
use super::resync::{Viewer, resync};
use super::{
    Failure, Id, LossReason, Message, Outcome, Role, RunEvent, Snapshot, State, View, commit,
};

/// Removes from a run's events what `[emit]` hides.
#[derive(Debug)]
pub struct Filter {
    emit: EmitOptions,
    /// What a viewer holds after all shown events.
    view: Arc<View>,
    /// The whole state of the run, for options that need it.
    state: Option<State>,
    /// The messages and calls of hidden subagents.
    hidden: HashSet<Id>,
    /// The starts of messages without text so far, and whether the message has ended. They are held
    /// back while reasoning is hidden, because the message may contain nothing else.
    silent: Vec<(RunEvent, bool)>,
    /// The open steps: each with its name, its subagent, and the name that viewers see.
    steps: Vec<(Id, Option<Id>, Id)>,
    /// Whether the last thing that viewers got of the conversation was a snapshot.
    is_whole: bool,
}

// === impl Filter ===

impl Filter {
    /// `None` if the options show everything. The translator has applied the others.
    pub fn new(emit: EmitOptions) -> Option<Self> {
        let emit = emit.hiding();
        if emit == EmitOptions::default() {
            return None;
        }
        // Without snapshots a viewer must not wait for one.
        let is_based = emit.messages == MessageSnapshots::None;
        let view = if is_based { View::based() } else { View::default() };
        Some(Self {
            emit,
            view: Arc::new(view),
            state: None,
            hidden: HashSet::new(),
            silent: Vec::new(),
            steps: Vec::new(),
            is_whole: false,
        })
    }

    /// A filter that begins in the middle of a run, which has this view by then.
    ///
    /// It takes what a new viewer would be sent. So its view is what a viewer holds who joins now.
    pub fn joining(emit: EmitOptions, run: &View) -> Option<Self> {
        let mut filter = Self::new(emit)?;
        if emit.subagents == Subagents::Hidden {
            // What is still to come of their messages is hidden too.
            for message in run.messages().iter().filter(|message| message.agent.is_some()) {
                filter.hidden.insert(Arc::clone(&message.id));
                filter.hidden.extend(message.calls.iter().map(|call| Arc::clone(&call.id)));
            }
        }
        let mut shown = Vec::new();
        for event in resync(run, Viewer::New, EmitOptions::default()).unwrap_or_default() {
            filter.show(event, &|| None, &mut shown);
        }
        Some(filter)
    }

    /// The options.
    pub(super) fn options(&self) -> EmitOptions {
        self.emit
    }

    /// What a viewer holds after all shown events.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Appends what viewers see of an event. `conversation` returns the thread's messages, if they
    /// are known.
    pub fn show(
        &mut self,
        mut event: RunEvent,
        conversation: &dyn Fn() -> Option<Vec<Arc<Message>>>,
        out: &mut Vec<RunEvent>,
    ) {
        if matches!(event, RunEvent::StateSnapshot(_) | RunEvent::StateDelta(_)) {
            return self.state(event, out);
        }
        if let RunEvent::Messages(messages) = &event {
            return self.messages(messages, out);
        }
        if self.is_left_out(&event) {
            return;
        }
        self.shorten(&mut event);
        let Some(event) = self.credit(event).and_then(|event| self.step(event)) else { return };
        if self.is_silent(&event, out) {
            return;
        }
        if let RunEvent::Ended { outcome, .. } = &event {
            self.before_end(outcome, conversation, out);
        }
        self.emit(event, out);
    }

    fn is_left_out(&self, event: &RunEvent) -> bool {
        let EmitOptions { reasoning, steps, activities, subagents, .. } = self.emit;
        let is_reasoning = matches!(
            event,
            RunEvent::ReasoningStarted { .. }
                | RunEvent::ReasoningDelta { .. }
                | RunEvent::ReasoningEnded { .. }
                | RunEvent::ReasoningSealed { .. }
        );
        let is_step = matches!(event, RunEvent::StepStarted { .. } | RunEvent::StepFinished { .. });
        let is_subagent =
            matches!(event, RunEvent::SubagentStarted(_) | RunEvent::SubagentFinished { .. });
        (is_reasoning && !reasoning)
            || (is_step && !steps)
            || (is_subagent && subagents != Subagents::Attributed)
            || (matches!(event, RunEvent::Activity { .. }) && !activities)
    }

    fn shorten(&self, event: &mut RunEvent) {
        if let RunEvent::Custom { value, .. } | RunEvent::Raw(value) = event
            && let Some(cut) = self.emit.cut(value)
        {
            *value = cut;
        }
        if let RunEvent::CallResult { message_id, content, .. } = event
            && let Some(cut) = self.emit.cut_result(message_id, content)
        {
            *content = cut;
        }
    }

    /// Whether the event belongs to a message that has no text yet. The rest of such a message may
    /// be hidden, and would leave an empty message.
    fn is_silent(&mut self, event: &RunEvent, out: &mut Vec<RunEvent>) -> bool {
        if self.emit.reasoning {
            return false;
        }
        if let RunEvent::TextStarted { message_id, role, .. } = event {
            // The message may have started before, also without text.
            self.take_silent(message_id);
            if *role == Role::Assistant {
                self.silent.push((event.clone(), false));
            }
            return *role == Role::Assistant;
        }
        if let RunEvent::TextDelta { message_id, .. } = event
            && let Some((start, _)) = self.take_silent(message_id)
        {
            self.emit(start, out);
        }
        // An attachment needs its message before it, even if that has no text.
        if let RunEvent::Attached(attachment) = event
            && let Some(owner) = attachment.owner()
            && let Some((start, is_over)) = self.take_silent(owner)
        {
            self.emit(start, out);
            if is_over {
                self.emit(RunEvent::TextEnded { message_id: Id::from(owner) }, out);
            }
        }
        let RunEvent::TextEnded { message_id } = event else { return false };
        let silent = self.silent.iter_mut().find(|(start, _)| is_start_of(start, message_id));
        silent.map(|(_, is_over)| *is_over = true).is_some()
    }

    /// Removes and returns the start of a message that was held back.
    fn take_silent(&mut self, id: &str) -> Option<(RunEvent, bool)> {
        let at = self.silent.iter().position(|(start, _)| is_start_of(start, id))?;
        Some(self.silent.remove(at))
    }

    fn emit(&mut self, event: RunEvent, out: &mut Vec<RunEvent>) {
        let adds_to_conversation = matches!(
            event,
            RunEvent::TextStarted { .. }
                | RunEvent::ReasoningStarted { .. }
                | RunEvent::ReasoningSealed { .. }
                | RunEvent::Attached(_)
                | RunEvent::CallStarted { .. }
                | RunEvent::CallResult { .. }
        );
        if adds_to_conversation || matches!(event, RunEvent::Messages(_)) {
            self.is_whole = !adds_to_conversation;
        }
        Arc::make_mut(&mut self.view).apply(&event);
        out.push(event);
    }

    /// The event without its subagent, if subagents are hidden or shown inline. `None` if the event
    /// belongs to a hidden one.
    fn credit(&mut self, mut event: RunEvent) -> Option<RunEvent> {
        if self.emit.subagents == Subagents::Attributed {
            return Some(event);
        }
        if let RunEvent::Attached(attachment) = &mut event
            && attachment.agent.is_some()
        {
            Arc::make_mut(attachment).agent = None;
            return (self.emit.subagents == Subagents::Inline).then_some(event);
        }
        let (agent, id) = match &mut event {
            RunEvent::TextStarted { message_id: id, agent, .. }
            | RunEvent::ReasoningStarted { message_id: id, agent }
            | RunEvent::CallStarted { call_id: id, agent, .. } => (agent, Some(Arc::clone(id))),
            RunEvent::CallResult { agent, .. }
            | RunEvent::Spent { agent, .. }
            | RunEvent::Activity { agent, .. }
            | RunEvent::Custom { agent, .. } => (agent, None),
            RunEvent::TextDelta { message_id: id, .. }
            | RunEvent::TextEnded { message_id: id }
            | RunEvent::ReasoningDelta { message_id: id, .. }
            | RunEvent::ReasoningEnded { message_id: id }
            | RunEvent::ReasoningSealed { message_id: id, .. }
            | RunEvent::CallArgs { call_id: id, .. }
            | RunEvent::CallEnded { call_id: id } => {
                return (!self.hidden.contains(id)).then_some(event);
            }
            RunEvent::Started { .. }
            | RunEvent::Raw(_)
            | RunEvent::Attached(_)
            | RunEvent::Adopted(_)
            | RunEvent::StepStarted { .. }
            | RunEvent::StepFinished { .. }
            | RunEvent::StateSnapshot(_)
            | RunEvent::StateDelta(_)
            | RunEvent::Messages(_)
            | RunEvent::SubagentStarted(_)
            | RunEvent::SubagentFinished { .. }
            | RunEvent::Ended { .. } => return Some(event),
        };
        let is_hidden = agent.take().is_some() && self.emit.subagents == Subagents::Hidden;
        if let Some(id) = id {
            // A subagent's message may become one of the thread's own.
            if is_hidden {
                self.hidden.insert(id)
            } else {
                self.hidden.remove(&id)
            };
        }
        (!is_hidden).then_some(event)
    }

    /// A step as viewers see it. Without subagents two open steps may have one name, so the second
    /// is renamed.
    fn step(&mut self, mut event: RunEvent) -> Option<RunEvent> {
        if self.emit.subagents == Subagents::Attributed {
            return Some(event);
        }
        if let RunEvent::StepStarted { name, agent } = &mut event {
            let agent = agent.take();
            if agent.is_some() && self.emit.subagents == Subagents::Hidden {
                return None;
            }
            let mut shown = Arc::clone(name);
            let mut number = 1;
            while self.steps.iter().any(|(.., open)| *open == shown) {
                shown = Id::from(format!("{name} ({number})"));
                number += 1;
            }
            let own = std::mem::replace(name, Arc::clone(&shown));
            self.steps.push((own, agent, shown));
        } else if let RunEvent::StepFinished { name, agent } = &mut event {
            let agent = agent.take();
            let at = self.steps.iter().position(|(n, a, _)| n == name && *a == agent)?;
            (.., *name) = self.steps.remove(at);
        }
        Some(event)
    }

    fn state(&mut self, event: RunEvent, out: &mut Vec<RunEvent>) {
        let is_cut = self.emit.max_event_bytes > 0;
        let is_first = self.view.state().is_none();
        match (self.emit.state, event) {
            (StateEvents::None, _) => {}
            (StateEvents::Initial, _) if !is_first => {}
            (StateEvents::Delta, event) if !is_cut => self.emit(event, out),
            (_, event) => {
                if let RunEvent::StateDelta(patch) = &event {
                    self.state.get_or_insert_with(State::empty).apply(patch);
                } else if let RunEvent::StateSnapshot(state) = event {
                    self.state = Some(State::new(state));
                }
                if self.emit.state != StateEvents::Final {
                    self.show_state(out);
                }
            }
        }
    }

    /// Shows the run's present state, unless viewers have it.
    fn show_state(&mut self, out: &mut Vec<RunEvent>) {
        let Some(state) = &self.state else { return };
        let state = self.emit.cut_state(&state.to_json());
        if self.emit.state != StateEvents::Delta {
            let is_shown =
                self.view.state().is_some_and(|shown| shown.to_json().get() == state.get());
            if !is_shown {
                self.emit(RunEvent::StateSnapshot(state), out);
            }
            return;
        }
        match Arc::make_mut(&mut self.view).diff_state(&state) {
            Some(patch) if patch.is_empty() => {}
            Some(patch) => self.emit(RunEvent::StateDelta(patch), out),
            None => self.emit(RunEvent::StateSnapshot(state), out),
        }
    }

    fn messages(&mut self, messages: &Snapshot, out: &mut Vec<RunEvent>) {
        if self.emit.messages == MessageSnapshots::None {
            return;
        }
        let shown = self.shown(messages);
        let is_same = shown.len() == messages.len()
            && shown.iter().zip(messages.iter()).all(|(one, other)| Arc::ptr_eq(one, other));
        // Streams that send the same snapshot share its bytes.
        let snapshot = if is_same { messages.clone() } else { Snapshot::from(shown) };
        // A call that the snapshot omits ends before it.
        let is_held = |id: &Id| snapshot.iter().flat_map(|m| &m.calls).any(|call| call.id == *id);
        let removed: Vec<_> =
            self.view.open().calls.iter().filter(|id| !is_held(id)).cloned().collect();
        for call_id in removed {
            self.emit(RunEvent::CallEnded { call_id }, out);
        }
        self.emit(RunEvent::Messages(snapshot), out);
    }

    /// A conversation as viewers see it.
    pub(super) fn shown(&self, messages: &[Arc<Message>]) -> Vec<Arc<Message>> {
        let emit = self.emit;
        let owners: HashSet<_> = messages.iter().filter_map(|message| message.owner()).collect();
        let mut shown = Vec::with_capacity(messages.len());
        for message in messages {
            let is_of_subagent = message.agent.is_some();
            if is_of_subagent && emit.subagents == Subagents::Hidden {
                continue;
            }
            // A message that contains only hidden reasoning would be an empty message.
            let is_silent = message.role == Role::Assistant
                && message.content.is_empty()
                && message.calls.is_empty()
                && !owners.contains(&*message.id);
            if !emit.reasoning && (message.role == Role::Reasoning || is_silent) {
                continue;
            }
            let result = (message.role == Role::Tool)
                .then(|| emit.cut_result(&message.id, &message.content))
                .flatten();
            let is_inlined = is_of_subagent && emit.subagents == Subagents::Inline;
            if result.is_none() && !is_inlined {
                shown.push(Arc::clone(message));
                continue;
            }
            let mut message = Message::clone(message);
            if is_inlined {
                message.agent = None;
            }
            if let Some(content) = result {
                message.error = message.error.map(|_| content.text());
                message.content = content;
            }
            shown.push(message.into());
        }
        shown
    }

    /// Emits what the options promise for the end of a run.
    fn before_end(
        &mut self,
        outcome: &Outcome,
        conversation: &dyn Fn() -> Option<Vec<Arc<Message>>>,
        out: &mut Vec<RunEvent>,
    ) {
        // If the gateway has removed the run, LangGraph's messages are not known. What was shown
        // stays.
        let is_lost = matches!(
            outcome,
            Outcome::Failed(Failure::Gateway { loss, .. }) if *loss != LossReason::Gone
        );
        if self.emit.state == StateEvents::Final {
            self.show_state(out);
        }
        if self.emit.messages == MessageSnapshots::None {
            return;
        }
        if !is_lost && let Some(conversation) = conversation() {
            let target = self.shown(&conversation);
            for snapshot in commit::snapshots_for(&self.view, &target) {
                self.messages(&snapshot.into(), out);
            }
        }
        let is_due = self.emit.messages == MessageSnapshots::Always && !self.is_whole;
        if is_due && self.view.is_based() {
            let messages = Snapshot::from(self.view.messages());
            self.emit(RunEvent::Messages(messages), out);
        }
    }
}

fn is_start_of(start: &RunEvent, id: &str) -> bool {
    matches!(start, RunEvent::TextStarted { message_id, .. } if **message_id == *id)
}
