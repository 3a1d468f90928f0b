//! Nodes that begin and end, and the subgraphs and tasks that producers belong to.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::Assembler;
use super::streamed::{Owner, Stage, StreamedMessage};
use crate::langgraph::dialect::dialect_event::{Edge, Producer};
use crate::langgraph::{self, NodeUpdate};
use crate::run::message::Message;
use crate::run::{Id, Role, ToolStatus, commit};

impl Assembler {
    /// Opens the steps and subagents on the producer's path; returns its subagent.
    ///
    /// A mode that names no subgraph in its event name (`events`) still names the path in the
    /// metadata.
    pub(super) fn enter(&mut self, producer: Producer<'_>) -> Option<Id> {
        let origin = producer.origin;
        let agent_name = origin.agent.as_deref();
        if origin.checkpoint_ns.is_empty() {
            return self.steps.enter_subgraph(producer.namespace, agent_name, &mut self.out);
        }
        let (path, node) = (&origin.checkpoint_ns, origin.node.as_deref());
        self.steps.enter(path, node, agent_name, &mut self.out)
    }

    /// A node has returned: its messages came whole, and its step ends unless `tasks` or `events`
    /// say where.
    pub(in crate::run) fn on_update(&mut self, namespace: &str, update: &NodeUpdate<'_>) {
        let agent = if update.messages.is_empty() {
            None
        } else {
            self.steps.enter_subgraph(namespace, None, &mut self.out)
        };
        let mut tasks: Vec<String> = Vec::new();
        for message in &update.messages {
            if let Some(id) = message.id() {
                let streamed = self.streamed.get(&*id);
                tasks.extend(streamed.and_then(|streamed| streamed.task.clone()));
            }
            self.on_whole(message, agent.as_ref(), None);
        }
        self.drop_failed_attempts(&tasks);
        if !self.steps.end_with_updates() || langgraph::is_internal_node(&update.node) {
            return;
        }
        let wrote = |task: &str| tasks.iter().any(|known| known == task);
        match self.steps.of_node(namespace, &update.node, wrote) {
            Some(step) => self.finish_step(step),
            None => self.steps.pass(namespace, &update.node, &mut self.out),
        }
    }

    /// The messages of failed attempts at these tasks, and their reasoning: they have streamed before a
    /// message of the agent that the task has returned, and the task has not returned them.
    ///
    /// LangGraph starts a failed node again, and middleware a failed model, and no part says so.
    fn failed_attempts(&self, tasks: &[String]) -> Vec<Id> {
        let view = self.view();
        let of_tasks = || {
            let is_of_tasks = |task: &String| tasks.contains(task);
            self.streamed.iter().filter(move |(_, s)| s.task.as_ref().is_some_and(is_of_tasks))
        };
        let place = |id: &Id, streamed: &StreamedMessage| {
            let first = streamed.reasoning_ids.first();
            view.place_of(id).into_iter().chain(first.and_then(|id| view.place_of(id))).min()
        };
        let is_after = |task: Option<&String>, before: usize| {
            of_tasks().any(|(id, streamed)| {
                streamed.stage == Stage::Whole
                    && streamed.task.as_ref() == task
                    && view.place_of(id) > Some(before)
                    && view.message(id).is_some_and(|message| message.role == Role::Assistant)
            })
        };
        let failed = of_tasks().filter(|(id, streamed)| {
            streamed.may_be_another()
                && place(id, streamed).is_some_and(|at| is_after(streamed.task.as_ref(), at))
        });
        failed
            .flat_map(|(id, streamed)| streamed.reasoning_ids.iter().chain([id]))
            .cloned()
            .collect()
    }

    /// Removes the messages of failed attempts at these tasks.
    fn drop_failed_attempts(&mut self, tasks: &[String]) {
        let view = self.view();
        // Without the whole conversation there is nothing to make a snapshot of.
        if !view.is_based() {
            return;
        }
        let failed = self.failed_attempts(tasks);
        if failed.is_empty() {
            return;
        }
        let view = self.view();
        let stays = |message: &&Arc<Message>| {
            !failed.contains(&message.id)
                && !message.owner().is_some_and(|owner| failed.iter().any(|id| **id == *owner))
        };
        let target: Vec<_> = view.messages().iter().filter(stays).cloned().collect();
        for id in &failed {
            self.close_texts(id);
        }
        for snapshot in commit::snapshots_for(self.view(), &target) {
            self.out.messages(&snapshot);
        }
        self.out.stop_removed_tools();
        // If one of them is committed after all, it is sent whole.
        for id in &failed {
            if let Some(streamed) = self.streamed.get_mut(id) {
                streamed.owner = Owner::Nobody;
                streamed.reasoning_ids.clear();
            }
        }
    }

    /// Leaves a node's messages out of the run's cost: an earlier run has paid for them.
    pub(in crate::run) fn settle(&mut self, update: &NodeUpdate<'_>) {
        for id in update.messages.iter().filter_map(langgraph::Message::id) {
            self.usage.exclude(&id);
        }
    }

    /// A superstep is over. Ends its steps, where nothing else says when they end.
    pub(in crate::run) fn on_superstep(&mut self) {
        while let Some(step) = self.steps.on_superstep() {
            self.finish_step(step);
        }
    }

    /// A part of `tasks`.
    pub(in crate::run) fn on_task(&mut self, namespace: &str, task: &langgraph::Task<'_>) {
        let segment = format!("{}:{}", &*task.name, &*task.id);
        if task.is_start() {
            if let Some(call) = task.tool_call() {
                let call = self.out.wire_call_id(&call);
                if !self.view().is_answered(&call) {
                    self.out.tool(&call, ToolStatus::Running);
                }
                self.steps.executes(&segment, call);
            }
            self.on_node(namespace, &segment, &task.name, task.agent().as_deref(), Edge::Start);
        } else {
            self.on_node(namespace, &segment, &task.name, None, Edge::End);
        }
    }

    /// A node begins or ends.
    pub(super) fn on_node(
        &mut self,
        namespace: &str,
        task: &str,
        node: &str,
        agent: Option<&str>,
        edge: Edge,
    ) {
        match edge {
            Edge::Start => self.steps.start_task(namespace, task, node, agent, &mut self.out),
            Edge::End => {
                if let Some(step) = self.steps.of_task(namespace, task) {
                    self.finish_step(step);
                }
            }
        }
    }

    /// A subgraph begins or ends.
    pub(super) fn on_subgraph(
        &mut self,
        namespace: &str,
        agent: Option<&str>,
        call: Option<&str>,
        edge: Edge,
    ) {
        match edge {
            Edge::Start => {
                if let (Some(call), Some(task)) = (call, namespace.rsplit('|').next()) {
                    let call = self.out.wire_call_id(call);
                    self.steps.executes(task, call);
                }
                self.steps.enter_subgraph(namespace, agent, &mut self.out);
            }
            Edge::End => self.steps.leave_subgraph(namespace, &mut self.out),
        }
    }

    /// The state of a subgraph. Before the subgraph does anything, it shows which call the subgraph
    /// works for.
    pub(in crate::run) fn on_subgraph_state(&mut self, namespace: &str, messages: &[&RawValue]) {
        if !self.steps.has_entered(namespace) {
            self.steps.begins_with(namespace, messages, self.out.view().messages());
        }
    }

    /// Ends a step, and before it the messages of its task.
    fn finish_step(&mut self, step: usize) {
        let task = self.steps.task(step);
        let written =
            self.streamed.iter().filter(|(_, s)| s.task.is_some() && s.task.as_deref() == task);
        let open = self.view().open();
        let is_open = |(id, streamed): &(&Id, &StreamedMessage)| {
            open.texts.contains(id)
                || streamed.reasoning_ids.iter().any(|id| open.reasoning.contains(id))
                || streamed
                    .calls
                    .iter()
                    .any(|c| c.wire.as_ref().is_some_and(|id| open.calls.contains(id)))
        };
        let mut written: Vec<Id> = written.filter(is_open).map(|(id, _)| Arc::clone(id)).collect();
        // A map has no order of its own.
        written.sort();
        for id in &written {
            self.close_message(id);
        }
        self.steps.finish(step, &mut self.out);
    }
}
