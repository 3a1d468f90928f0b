//! Nodes that begin and end, and who speaks from where.

use std::sync::Arc;

use super::Translator;
use crate::langgraph::{self, NodeUpdate, Origin};
use crate::run::speech::Speech;
use crate::run::{Id, ToolStatus};

impl Translator {
    pub(super) fn on_update(&mut self, namespace: &str, update: &NodeUpdate<'_>) {
        let agent = if update.messages.is_empty() {
            None
        } else {
            self.steps.enter_subgraph(namespace, None, &mut self.out)
        };
        let mut tasks: Vec<String> = Vec::new();
        for message in &update.messages {
            if let Some(id) = message.id() {
                let speech = self.speeches.get(&*id);
                tasks.extend(speech.and_then(|speech| speech.task.clone()));
            }
            self.on_whole(message, agent.as_ref(), None);
        }
        if !self.steps.end_with_updates() || update.node.starts_with("__") {
            return;
        }
        let spoke = |task: &str| tasks.iter().any(|known| known == task);
        match self.steps.of_node(namespace, &update.node, spoke) {
            Some(step) => self.finish_step(step),
            None => self.steps.pass(namespace, &update.node, &mut self.out),
        }
    }

    /// What a node said before this run was paid for before this run.
    pub(super) fn settle(&mut self, update: &NodeUpdate<'_>) {
        for id in update.messages.iter().filter_map(langgraph::Message::id) {
            self.usage.exclude(&id);
        }
    }

    /// Ends a step, and before it what its task was saying.
    pub(super) fn finish_step(&mut self, step: usize) {
        let task = self.steps.task(step);
        let spoken =
            self.speeches.iter().filter(|(_, s)| s.task.is_some() && s.task.as_deref() == task);
        let open = self.view().open();
        let is_open = |(id, speech): &(&Id, &Speech)| {
            open.texts.contains(id)
                || speech.thought_ids.iter().any(|id| open.thoughts.contains(id))
                || speech
                    .calls
                    .iter()
                    .any(|c| c.wire.as_ref().is_some_and(|id| open.calls.contains(id)))
        };
        let mut spoken: Vec<Id> = spoken.filter(is_open).map(|(id, _)| Arc::clone(id)).collect();
        // A map has no order of its own.
        spoken.sort();
        for id in &spoken {
            self.close_message(id);
        }
        self.steps.finish(step, &mut self.out);
    }

    pub(super) fn on_task(&mut self, namespace: &str, task: &langgraph::Task<'_>) {
        if task.name.starts_with("__") {
            return;
        }
        let segment = format!("{}:{}", &*task.name, &*task.id);
        if task.is_start() {
            if let Some(call) = task.tool_call() {
                let call = self.out.wire_call_id(&call);
                if !self.view().is_answered(&call) {
                    self.out.tool(&call, ToolStatus::Running);
                }
                self.steps.executes(&segment, call);
            }
            let agent = task.agent();
            let name = &task.name;
            self.steps.start_task(namespace, &segment, name, agent.as_deref(), &mut self.out);
        } else {
            if let Some(step) = self.steps.of_task(namespace, &segment) {
                self.finish_step(step);
            }
            self.collect(&task.interrupts());
        }
    }

    /// Enters the speaker's path. A mode that names no subgraph in its event name (`events`)
    /// still names the path in the metadata.
    pub(super) fn enter(&mut self, namespace: &str, origin: &Origin) -> Option<Id> {
        let agent_name = origin.agent.as_deref();
        if origin.checkpoint_ns.is_empty() {
            return self.steps.enter_subgraph(namespace, agent_name, &mut self.out);
        }
        let (path, node) = (&origin.checkpoint_ns, origin.node.as_deref());
        self.steps.enter(path, node, agent_name, &mut self.out)
    }
}
