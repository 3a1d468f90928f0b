//! The nodes that run: their steps, and the subagents that some of them start.
//!
//! A task path (`node:task|node:task`) names each step from the root to a node, and each subgraph
//! on the way. Everything on a path is opened. A subgraph closes with the step that runs it.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::value::RawValue;

use super::event_writer::EventWriter;
use super::{Call, Id, Message, Role, Subagent};
use crate::json;
use crate::langgraph;

/// How many levels of nested subgraphs are distinguished. Deeper ones belong to the last level.
///
/// The limit bounds the recursion and the prefixes of a path that are stored. Real graphs have
/// only a few levels.
const MAX_DEPTH: usize = 32;

/// The open steps of a run, and all its subagents so far.
#[derive(Debug, Default)]
pub(super) struct Steps {
    open: Vec<Step>,
    /// By path. The id of a subagent names one invocation, and is never started twice.
    subagents: HashMap<String, Id>,
    /// The ids of all subagents, including those of earlier attempts.
    used: HashSet<Id>,
    boundaries: Boundaries,
    /// By task: the call that the task executes, if a part has said so. `None` if it executes none.
    calls: HashMap<String, Option<Id>>,
    /// The subagents that work for a call, or inside of one that does.
    callees: HashSet<Id>,
}

/// A node that runs.
#[derive(Debug)]
struct Step {
    /// The path of the subgraph that it belongs to; empty for the root.
    namespace: String,
    /// The last segment of its path.
    task: String,
    node: String,
    name: Id,
    agent: Option<Id>,
}

/// Which parts show that a step has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Boundaries {
    /// None so far. A `values` part of the root graph ends all steps of its superstep.
    #[default]
    Unknown,
    /// `updates`, which name only the node.
    Updates,
    /// `tasks` or `events`, which name the task.
    Tasks,
}

// === impl Steps ===

impl Steps {
    /// Opens everything on a path: each subgraph's step and subagent, and the node's own step.
    /// Returns the subagent of the node.
    pub(super) fn enter(
        &mut self,
        path: &str,
        node: Option<&str>,
        agent_name: Option<&str>,
        out: &mut EventWriter,
    ) -> Option<Id> {
        // Usually the path is that of the last message, and open already.
        let (namespace, task) = bounded(path).rsplit_once('|').unwrap_or(("", path));
        if let Some(step) = self.find(namespace, task) {
            return step.agent.clone();
        }
        let agent = self.enter_subgraph(namespace, agent_name, out);
        if let Some(node) = node.filter(|_| !task.is_empty()) {
            self.start(namespace, task, node, agent.as_ref(), out);
        }
        agent
    }

    /// Opens the subagent of a subgraph, and the steps on the way to it.
    pub(super) fn enter_subgraph(
        &mut self,
        namespace: &str,
        agent_name: Option<&str>,
        out: &mut EventWriter,
    ) -> Option<Id> {
        let namespace = bounded(namespace);
        if namespace.is_empty() {
            return None;
        }
        if let Some(agent) = self.subagents.get(namespace) {
            return Some(Arc::clone(agent));
        }
        let (outer, task) = namespace.rsplit_once('|').unwrap_or(("", namespace));
        let parent = self.enter_subgraph(outer, None, out);
        // A segment without a task is a counter: one task may call several subgraphs.
        let (node, id) = task.split_once(':').unwrap_or((task, namespace));
        if task.contains(':') && self.find(outer, task).is_none() {
            self.start(outer, task, node, parent.as_ref(), out);
        }
        let id = self.unused(id);
        let call_id = match self.calls.get(task) {
            Some(known) => known.clone(),
            None => only(&open_calls(out.view().messages(), parent.as_ref())),
        };
        let named = call_id.as_ref().and_then(|call| subagent_type(call, out));
        let name = Id::from(agent_name.or(named.as_deref()).unwrap_or(node));
        self.subagents.insert(namespace.to_owned(), Arc::clone(&id));
        self.used.insert(Arc::clone(&id));
        if call_id.is_some() || parent.as_ref().is_some_and(|parent| self.callees.contains(parent))
        {
            self.callees.insert(Arc::clone(&id));
        }
        out.start_subagent(Subagent { id: Arc::clone(&id), name, parent, call_id });
        Some(id)
    }

    /// Starts the step of a task, for a part that names the task.
    pub(super) fn start_task(
        &mut self,
        namespace: &str,
        task: &str,
        node: &str,
        agent_name: Option<&str>,
        out: &mut EventWriter,
    ) {
        self.boundaries = Boundaries::Tasks;
        let agent = self.enter_subgraph(namespace, agent_name, out);
        if self.find(namespace, task).is_none() {
            self.start(namespace, task, node, agent.as_ref(), out);
        }
    }

    /// Stores which call a task executes.
    pub(super) fn executes(&mut self, task: &str, call: Id) {
        self.calls.insert(task.to_owned(), Some(call));
    }

    /// Whether a subagent works for a call, or inside of one that does.
    pub(super) fn is_callee(&self, agent: &Id) -> bool {
        self.callees.contains(agent)
    }

    /// The subagents that a subgraph is inside of, from its own to the outermost.
    pub(super) fn path(&self, namespace: &str) -> Vec<Id> {
        let namespace = bounded(namespace);
        let ends = namespace.match_indices('|').map(|(at, _)| at).chain([namespace.len()]);
        let outermost = ends.filter_map(|end| self.subagents.get(namespace.get(..end)?).cloned());
        let mut agents: Vec<_> = outermost.collect();
        agents.reverse();
        agents
    }

    /// Whether the subagent of a subgraph has started.
    pub(super) fn has_entered(&self, namespace: &str) -> bool {
        self.subagents.contains_key(bounded(namespace))
    }

    /// Stores which call a subgraph works for, by the state that it begins with. `conversation` has
    /// the messages of its caller.
    ///
    /// A subgraph whose state has the message with the open calls goes on with its caller's
    /// conversation, and works for none of them. Otherwise it works for the open call that has its
    /// person's text as an argument, and no other subgraph: the tool `task` of deepagents makes its
    /// subagents so, and no part of the gateway's modes names the call. Failing that, it works for
    /// the only open call.
    pub(super) fn begins_with(
        &mut self,
        namespace: &str,
        state: &[&RawValue],
        conversation: &[Arc<Message>],
    ) {
        let namespace = bounded(namespace);
        let (outer, task) = namespace.rsplit_once('|').unwrap_or(("", namespace));
        let is_reachable = outer.is_empty() || self.subagents.contains_key(outer);
        if !is_reachable || self.calls.contains_key(task) {
            return;
        }
        let open = open_calls(conversation, self.subagents.get(outer));
        let Some(caller) = open.first().map(|(caller, _)| &caller.id) else { return };
        let messages = state.iter().rev().filter_map(|item| langgraph::Message::parse(item));
        let messages: Vec<_> = messages.collect();
        let is_callers =
            |message: &langgraph::Message<'_>| message.id().is_some_and(|id| *id == **caller);
        let call = if messages.iter().any(is_callers) {
            None
        } else {
            let person = messages.iter().find(|message| message.is_typed());
            let text = person.and_then(langgraph::Message::content).and_then(json::string);
            let is_free = |call: &Call| !self.calls.values().flatten().any(|id| *id == call.id);
            let is_meant = |call: &Call| text.as_ref().is_some_and(|text| has_argument(call, text));
            let meant = open.iter().find(|(_, call)| is_free(call) && is_meant(call));
            meant.map(|(_, call)| Arc::clone(&call.id)).or_else(|| only(&open))
        };
        self.calls.insert(task.to_owned(), call);
    }

    /// The open step of a task that has ended.
    pub(super) fn of_task(&self, namespace: &str, task: &str) -> Option<usize> {
        self.open.iter().position(|step| step.namespace == namespace && step.task == task)
    }

    /// The open step of a node that has ended, for a part that names only the node.
    ///
    /// If several tasks of the node run, `wrote` selects the one that wrote a message of the part.
    /// Otherwise it is the first.
    pub(super) fn of_node(
        &self,
        namespace: &str,
        node: &str,
        wrote: impl Fn(&str) -> bool,
    ) -> Option<usize> {
        let is_of_node = |step: &Step| step.namespace == namespace && step.node == node;
        let producer = self.open.iter().position(|step| is_of_node(step) && wrote(&step.task));
        producer.or_else(|| self.open.iter().position(is_of_node))
    }

    /// Whether `updates` show that steps have ended.
    pub(super) fn end_with_updates(&self) -> bool {
        self.boundaries == Boundaries::Updates
    }

    /// Starts and ends the step of a node that wrote no message.
    pub(super) fn pass(&mut self, namespace: &str, node: &str, out: &mut EventWriter) {
        let agent = self.enter_subgraph(namespace, None, out);
        let name = out.start_step(node, agent.as_ref());
        out.finish_step(&name, agent.as_ref());
    }

    /// The task of an open step.
    pub(super) fn task(&self, at: usize) -> Option<&str> {
        self.open.get(at).map(|step| step.task.as_str())
    }

    /// Ends the subagent of a subgraph.
    pub(super) fn leave_subgraph(&self, namespace: &str, out: &mut EventWriter) {
        if let Some(agent) = self.subagents.get(namespace) {
            out.finish_subagent(agent);
        }
    }

    /// Forgets all steps, because a new attempt at the run begins.
    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.subagents.clear();
        self.calls.clear();
        self.callees.clear();
    }

    /// After a superstep, returns a step to end, if no other parts show that steps have ended.
    pub(super) fn on_superstep(&mut self) -> Option<usize> {
        let is_barrier = self.boundaries == Boundaries::Unknown;
        self.open.iter().position(|step| is_barrier && step.namespace.is_empty())
    }

    /// Notes that the stream has `updates`.
    pub(super) fn on_updates(&mut self) {
        if self.boundaries == Boundaries::Unknown {
            self.boundaries = Boundaries::Updates;
        }
    }

    fn find(&self, namespace: &str, task: &str) -> Option<&Step> {
        self.open.iter().rev().find(|step| step.task == task && step.namespace == namespace)
    }

    fn start(
        &mut self,
        namespace: &str,
        task: &str,
        node: &str,
        agent: Option<&Id>,
        out: &mut EventWriter,
    ) {
        self.open.push(Step {
            namespace: namespace.to_owned(),
            task: task.to_owned(),
            node: node.to_owned(),
            name: out.start_step(node, agent),
            agent: agent.cloned(),
        });
    }

    /// Ends a step. The subagents that it runs end before it, the innermost first.
    pub(super) fn finish(&mut self, at: usize, out: &mut EventWriter) {
        if at >= self.open.len() {
            return;
        }
        let step = self.open.remove(at);
        let path = if step.namespace.is_empty() {
            step.task.clone()
        } else {
            format!("{}|{}", step.namespace, step.task)
        };
        let is_inside = |namespace: &str| {
            namespace
                .strip_prefix(&path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
        };
        let mut inside: Vec<_> = self.subagents.iter().filter(|(ns, _)| is_inside(ns)).collect();
        // Sorted by depth and path, because a map has no order.
        inside.sort_by(|(a, _), (b, _)| {
            (b.matches('|').count(), a).cmp(&(a.matches('|').count(), b))
        });
        for (_, agent) in inside {
            out.finish_subagent(agent);
        }
        self.open.retain(|step| !is_inside(&step.namespace));
        out.finish_step(&step.name, step.agent.as_ref());
    }

    /// An id that no subagent of this run has had.
    fn unused(&self, id: &str) -> Id {
        let mut unused = Id::from(id);
        let mut number = 2_usize;
        while self.used.contains(&unused) {
            unused = Id::from(format!("{id}~{number}"));
            number += 1;
        }
        unused
    }
}

/// The path up to its last allowed segment.
fn bounded(path: &str) -> &str {
    match path.match_indices('|').nth(MAX_DEPTH - 1) {
        Some((end, _)) => path.get(..end).unwrap_or(path),
        None => path,
    }
}

/// The only one of these calls.
fn only(open: &[(&Message, &Call)]) -> Option<Id> {
    match open {
        [(_, call)] => Some(Arc::clone(&call.id)),
        _ => None,
    }
}

/// The calls without a result in the last message of an agent, each with that message.
fn open_calls<'a>(
    messages: &'a [Arc<Message>],
    agent: Option<&Id>,
) -> Vec<(&'a Message, &'a Call)> {
    let is_agents = |message: &&Arc<Message>| {
        message.role == Role::Assistant && message.agent.as_ref() == agent
    };
    let Some(last) = messages.iter().rev().find(is_agents) else { return Vec::new() };
    let is_answered =
        |call: &Call| messages.iter().any(|message| message.call_id.as_ref() == Some(&call.id));
    last.calls.iter().filter(|call| !is_answered(call)).map(|call| (&**last, call)).collect()
}

/// Whether an argument of a call is this text.
fn has_argument(call: &Call, text: &str) -> bool {
    let args = call.args.to_text();
    let args = args.decode();
    let members = serde_json::from_str::<&RawValue>(&args).ok().and_then(json::members);
    let mut values = members.iter().flat_map(|members| members.0.iter());
    values.any(|(_, value)| json::string(value).is_some_and(|value| value == text))
}

/// The name of the subagent that a call asks for, as the tool `task` of deepagents has it.
///
/// A subgraph whose first node says nothing starts before any part has the name of its agent.
fn subagent_type(call_id: &str, out: &EventWriter) -> Option<String> {
    let (_, call) = out.view().call(call_id)?;
    let args = call.args.to_text();
    let args = args.decode();
    let members = serde_json::from_str::<&RawValue>(&args).ok().and_then(json::members)?;
    members.string("subagent_type").filter(|name| !name.is_empty()).map(Cow::into_owned)
}
