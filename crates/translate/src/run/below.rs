//! What the subgraphs of a run hold, and which of them wait for an answer.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::Id;
use crate::json::Json;
use crate::langgraph::{ThreadState, WaitingTask, Written};

/// The messages of a subgraph's newest state, or of a task that has ended beside one that waits.
#[derive(Clone, Debug)]
pub(super) struct StateBelow {
    /// The path of the graph that has them: `node:task|node:task`; empty for the root.
    pub(super) namespace: Id,
    /// The name of its agent, if it is known.
    pub(super) agent_name: Option<Id>,
    pub(super) written: Written,
    messages: Vec<Json>,
}

/// The states of the subgraphs that run or wait. One comes before those inside of it.
#[derive(Clone, Debug, Default)]
pub(super) struct StatesBelow(Vec<StateBelow>);

/// Whether a namespace is this one, or inside of it.
pub(super) fn is_inside(namespace: &str, outer: &str) -> bool {
    namespace.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
}

// === impl StateBelow ===

impl StateBelow {
    /// The state of a subgraph, as its stream has it.
    pub(super) fn of(namespace: &str, messages: &[&RawValue]) -> Self {
        let messages = messages.iter().map(|raw| Json::from(*raw)).collect();
        let (namespace, written) = (Id::from(namespace), Written::State);
        Self { namespace, agent_name: None, written, messages }
    }

    /// The messages, in LangGraph's form.
    pub(super) fn messages(&self) -> Vec<&RawValue> {
        self.messages.iter().map(|message| &**message).collect()
    }
}

impl From<&WaitingTask<'_>> for StateBelow {
    fn from(task: &WaitingTask<'_>) -> Self {
        Self {
            namespace: Id::from(&*task.namespace),
            agent_name: task.agent.as_deref().map(Id::from),
            written: task.written,
            messages: task.messages.iter().map(|raw| Json::from(*raw)).collect(),
        }
    }
}

// === impl StatesBelow ===

impl StatesBelow {
    /// The states of the tasks that wait.
    pub(super) fn of(state: &ThreadState<'_>) -> Self {
        Self(state.waiting.iter().map(StateBelow::from).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &StateBelow> {
        self.0.iter()
    }

    /// Takes in the next state of a subgraph, and says whether it is the first. Each repeats the
    /// messages of the last.
    pub(super) fn update(&mut self, namespace: &str, messages: &[&RawValue]) -> bool {
        let known = self.0.iter().position(|state| *state.namespace == *namespace);
        let at = known.unwrap_or_else(|| {
            self.0.push(StateBelow::of(namespace, &[]));
            self.0.len() - 1
        });
        let Some(StateBelow { messages: held, .. }) = self.0.get_mut(at) else { return false };
        let is_same = |(held, new): &(&Json, &&RawValue)| held.get() == new.get();
        let kept = held.iter().zip(messages).take_while(is_same).count();
        held.truncate(kept);
        held.extend(messages.iter().skip(kept).map(|raw| Json::from(*raw)));
        known.is_none()
    }

    /// Forgets the subgraphs inside of a graph, which has gone on.
    pub(super) fn forget_inside(&mut self, namespace: &str) {
        let is_kept = |state: &StateBelow| {
            !namespace.is_empty()
                && (*state.namespace == *namespace || !is_inside(&state.namespace, namespace))
        };
        self.0.retain(is_kept);
    }

    /// The states of the subgraphs inside of which something waits, by the namespaces that ask.
    pub(super) fn waiting(&self, asking: &[Arc<str>]) -> Self {
        let waits =
            |state: &&StateBelow| asking.iter().any(|asking| is_inside(asking, &state.namespace));
        Self(self.0.iter().filter(waits).cloned().collect())
    }
}
