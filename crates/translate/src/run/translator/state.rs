//! The state of the graph, and the conversation in it.

use std::sync::Arc;

use indexmap::IndexSet;
use serde_json::value::RawValue;

use super::{Resumes, StreamEnd, Translator};
use crate::json;
use crate::langgraph::{self, Values, Written};
use crate::run::assembler::Assembler;
use crate::run::below::{StateBelow, StatesBelow};
use crate::run::commit::{self, Conversation};
use crate::run::message::Message;
use crate::run::{CallForm, Id, RunEvent, ToolStatus, Usage};

impl Translator {
    /// A part of `values`: the state after a superstep.
    pub(super) fn on_values(&mut self, namespace: &str, values: &Values<'_>) {
        self.questions.on_list(namespace, values.interrupts.as_deref());
        // A graph that goes on has no subgraph of its last superstep. One that asks may have some.
        if !self.questions.is_open() {
            self.below.forget_inside(namespace);
        }
        // A subgraph's state is its own; the JavaScript server sends interrupts without a state.
        if !namespace.is_empty() {
            let messages = values.messages.as_deref().unwrap_or_default();
            self.assembler.on_subgraph_state(namespace, messages);
            if values.messages.is_some() {
                let is_first = self.below.update(namespace, messages);
                if is_first && self.resumes == Resumes::Shown {
                    self.show_below(namespace, messages);
                }
            }
            return;
        }
        if values.is_only_interrupts() {
            return;
        }
        self.assembler.on_superstep();
        self.assembler.out.state(values_json(values));
        self.attempt.has_state = true;
        if let Some(messages) = &values.messages {
            self.commit(messages);
        }
    }

    /// Takes in a state that was read at no known point of the run: sent as a snapshot, never as a
    /// delta.
    pub(super) fn take_in(&mut self, values: &Values<'_>) {
        let json = values_json(values);
        let is_known =
            self.view().state().is_some_and(|held| json::same(held.to_json().get(), json.get()));
        if !is_known {
            self.assembler.out.state_snapshot(json);
        }
        if let Some(messages) = &values.messages {
            self.base(messages);
            self.note_last_usage(messages);
        }
    }

    /// Shows how many tokens the last model call of the conversation has used, if this run has
    /// shown none itself. An earlier run has paid for them, so they are not in this run's sums.
    fn note_last_usage(&mut self, items: &[&RawValue]) {
        if self.view().last_usage().is_some() {
            return;
        }
        let mut whole = items.iter().rev().filter_map(|item| langgraph::Message::parse(item));
        let last = whole.find_map(|message| Some((message.id()?, Usage::of(&message)?)));
        if let Some((id, usage)) = last {
            self.assembler.out.spent(&Id::from(&*id), usage, None);
        }
    }

    /// Brings the client's conversation to LangGraph's, where the latter is known.
    pub(super) fn reconcile(&mut self) {
        let Some(conversation) = &self.conversation else { return };
        let target = conversation.to_vec();
        let snapshots = commit::snapshots_for(self.view(), &target);
        if snapshots.is_empty() && !self.view().is_based() {
            self.assembler.out.messages(&target);
        }
        for snapshot in snapshots {
            self.assembler.out.messages(&snapshot);
        }
        self.assembler.out.stop_removed_tools();
    }

    /// Keeps all that was said in a lost run, since what LangGraph holds of it is not known. Clients
    /// may hold it in different orders: the view's becomes everyone's.
    pub(super) fn settle_order(&mut self) {
        let view = self.view();
        if !(view.is_scattered() && view.is_based()) {
            return;
        }
        let target = view.messages().to_vec();
        for snapshot in commit::snapshots_for(view, &target) {
            self.assembler.out.messages(&snapshot);
        }
    }

    /// The conversation before anything was said in this run, or a later reading of it.
    fn base(&mut self, items: &[&RawValue]) {
        self.conversation_mut().update(items);
        if self.view().messages().is_empty() {
            let waiting = self.waiting.clone();
            self.hold(&waiting);
            self.show_base();
        }
    }

    /// Shows the conversation of a run that goes on after a question, with what its subgraphs hold.
    pub(super) fn show_gathered(&mut self) {
        if self.resumes != Resumes::Gathering || self.conversation.is_none() {
            return;
        }
        self.resumes = Resumes::Shown;
        if self.view().messages().is_empty() {
            let below = self.below.clone();
            self.hold(&below);
            self.show_base();
            self.go_on_with_tools();
        }
    }

    /// Makes what the tasks that wait hold a part of the conversation at the run's end, or nothing
    /// if it does not wait.
    ///
    /// The thread's state has it if it was read. A stream that has shown the run has it too, also
    /// where the server does not know the subgraph: a tool may have called it.
    pub(super) fn settle_waiting(&mut self, end: &StreamEnd) {
        if self.ends_interrupted(end) {
            let mut waiting = std::mem::take(&mut self.waiting);
            if waiting.is_empty() {
                waiting = self.below.waiting(&self.questions.asking());
            }
            self.hold(&waiting);
        } else if let Some(conversation) = &mut self.conversation {
            conversation.clear_waiting();
        }
    }

    /// Makes a snapshot with the messages that a subgraph had before the run resumed it. Some
    /// clients hold them already, and others do not.
    fn show_below(&mut self, namespace: &str, messages: &[&RawValue]) {
        let view = self.view();
        let is_held = |id: &str| view.message(id).is_some();
        if !view.is_based() || commit::own_messages(messages, Written::State, is_held).is_empty() {
            return;
        }
        self.hold_one(&StateBelow::of(namespace, messages));
        let held = self.conversation_mut().to_vec();
        let view = self.view();
        let is_new = |message: &Arc<Message>| view.message(&message.id).is_none();
        let target: Vec<_> =
            view.messages().iter().cloned().chain(held.into_iter().filter(is_new)).collect();
        self.assembler.out.messages(&target);
        self.go_on_with_tools();
    }

    /// Holds what these tasks hold that wait, each as the messages of its subagent.
    fn hold(&mut self, waiting: &StatesBelow) {
        if let Some(conversation) = &mut self.conversation {
            conversation.clear_waiting();
        }
        for state in waiting.iter() {
            self.hold_one(state);
        }
    }

    fn hold_one(&mut self, state: &StateBelow) {
        let messages = state.messages();
        let held = self.conversation_mut().to_vec();
        let Assembler { steps, out, .. } = &mut self.assembler;
        if state.written == Written::State && !steps.has_entered(&state.namespace) {
            steps.begins_with(&state.namespace, &messages, &held);
        }
        let agent = steps.enter_subgraph(&state.namespace, state.agent_name.as_deref(), out);
        self.conversation_mut().add_waiting(agent, state.written, &messages);
    }

    fn conversation_mut(&mut self) -> &mut Conversation {
        let (thread_id, harness) = (&self.ids.thread_id, self.assembler.harness);
        self.conversation.get_or_insert_with(|| Conversation::new(Arc::clone(thread_id), harness))
    }

    /// Shows the base even if it is empty: a client may hold what LangGraph does not.
    fn show_base(&mut self) {
        let Some(conversation) = &self.conversation else { return };
        let messages = conversation.to_vec();
        self.assembler.out.messages(&messages);
    }

    /// Takes in the conversation of a superstep: adds what no dialect has said.
    fn commit(&mut self, items: &[&RawValue]) {
        if self.conversation.is_none() && self.view().messages().is_empty() {
            if self.resumes == Resumes::Gathering {
                self.conversation_mut().update(items);
                return;
            }
            self.base(items);
            return self.go_on_with_tools();
        }
        for committed in self.conversation_mut().update(items) {
            let Some(id) = committed.id() else { continue };
            self.assembler.on_committed(&id, &committed.source, &committed.messages);
        }
    }

    /// Shows the tools of the messages that the run and its subgraphs go on with. They run, as a person has allowed it
    /// or asks for it again, or they have answered since the run that called them.
    fn go_on_with_tools(&mut self) {
        let messages = self.view().messages();
        let agents: IndexSet<_> = messages.iter().map(|message| &message.agent).collect();
        let calls = agents.into_iter().flat_map(|agent| {
            let own = messages.iter().filter(move |message| message.agent == *agent);
            commit::last_calls(own).0
        });
        let calls = calls.filter(|call| call.form == CallForm::Valid);
        let calls: Vec<_> = calls.map(|call| Arc::clone(&call.id)).collect();
        for call in &calls {
            let status = self.view().answer_of(call).unwrap_or(ToolStatus::Running);
            self.assembler.out.tool(call, status);
        }
    }

    /// The calls that wait for a result. Of an unknown conversation these are calls of the run's own
    /// agent.
    pub(super) fn open_calls(&self) -> Vec<Id> {
        if let Some(conversation) = &self.conversation {
            return conversation.open_calls();
        }
        let messages = self.view().messages().iter();
        commit::open_calls(messages.filter(|message| message.agent.is_none()))
    }

    /// Shows the messages of a run's input. `name` gives ids to those that have none.
    pub(super) fn show_input(
        &mut self,
        input: &RawValue,
        name: impl Fn(usize) -> Option<Id>,
        out: &mut Vec<RunEvent>,
    ) {
        self.start(out);
        let key = self.messages_key.as_str();
        let messages = json::members(input).and_then(|members| members.get(key));
        let items = messages.map(|items| json::items(items).unwrap_or_else(|| vec![items]));
        let mut all = self.view().messages().to_vec();
        for (at, item) in items.unwrap_or_default().into_iter().enumerate() {
            let message = langgraph::Message::parse(item);
            let message = message.filter(|_| langgraph::Message::is_message(item));
            let id = message.as_ref().and_then(langgraph::Message::id);
            let id = id.map(|id| Id::from(&*id)).or_else(|| name(at));
            if let (Some(message), Some(id)) = (message, id)
                && self.view().message(&id).is_none()
            {
                let messages = Message::of_langchain(&message, &id, self.assembler.harness);
                all.extend(messages.into_iter().map(Arc::new));
            }
        }
        if all.len() > self.view().messages().len() {
            self.assembler.out.messages(&all);
        }
        self.assembler.out.drain_into(out);
    }
}

/// A state without what travels otherwise.
fn values_json(values: &Values<'_>) -> json::Json {
    match &values.state {
        Some(state) => json::ObjectWriter::with(state).finish(),
        None => json::Json::from(values.raw),
    }
}
