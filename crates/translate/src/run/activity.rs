//! Activities of a run: the status of its tools, and its plan.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::{Id, Operation, Patch, State};
use crate::json::{self, Json, ObjectWriter};
use crate::langgraph::copilotkit;

/// A tool or a plan. The id under which it changes is in the event that shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// A tool that was called.
    Tool {
        /// The call.
        call_id: Id,
        /// The tool.
        name: Id,
        /// Its status.
        status: ToolStatus,
    },
    /// The list of todos in the run's state.
    Plan {
        /// The list as the graph stores it.
        todos: Json,
    },
}

/// The status of a tool call.
///
/// ```text
///               +----> Waiting, Requested
///               |
///  (new) --> Running --> Completed <--> Failed
///               |  ^          ^           ^
///               v  |          |           |
///             Stopped --------+-----------+
/// ```
/// A call may begin with each status: an earlier run may have made it. At the end of a run no call
/// is `Running`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolStatus {
    /// The call's arguments are complete, and the graph runs the tool.
    Running,
    /// The tool has returned a result.
    Completed,
    /// The tool has returned an error, or no tool can run the call.
    Failed,
    /// The run waits for a person before the tool may go on.
    Waiting,
    /// The client has to run the tool.
    Requested,
    /// The graph has dropped the call, or the run ended before the tool returned.
    Stopped,
}

/// The key of the state under which `deepagents` and the todo middleware keep their list.
const TODOS: &str = "todos";

/// Keeps the todos of a state up to date as the state changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Todos {
    /// A state that contains only the todos. `None` until there are some.
    state: Option<State>,
}

/// The names of the client's own tools, as far as the run's state lists them.
///
/// A call of such a tool is no activity: the client runs it, and finds it in the last message.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientTools(Vec<String>);

/// Where graphs store the tools of their client: the key of the state, and the member below it if
/// the value is an object.
const CLIENT_TOOLS: [(&str, &str); 3] =
    [("tools", ""), ("ag-ui", "tools"), (copilotkit::STATE_KEY, copilotkit::ACTIONS_KEY)];

// === impl ClientTools ===

impl ClientTools {
    /// Reads the tools of a new state.
    pub(super) fn set(&mut self, state: &RawValue) {
        let text = state.get().as_bytes();
        let may_have = |key: &str| memchr::memmem::find(text, format!("\"{key}\"").as_bytes());
        self.0.clear();
        if CLIENT_TOOLS.iter().all(|(key, _)| may_have(key).is_none()) {
            return;
        }
        let members = json::members(state).unwrap_or_default();
        for (key, inner) in CLIENT_TOOLS {
            let Some(value) = members.get(key) else { continue };
            let value = if inner.is_empty() {
                Some(value)
            } else {
                json::members(value).and_then(|members| members.get(inner))
            };
            for tool in value.and_then(json::items).unwrap_or_default() {
                let tool = json::members(tool).unwrap_or_default();
                // OpenAI's form has the name one level deeper.
                let function = tool.get("function").and_then(json::members).unwrap_or_default();
                self.0.extend(
                    tool.string("name").or_else(|| function.string("name")).map(Cow::into_owned),
                );
            }
        }
    }

    /// Whether a patch may change the client's tools.
    pub(super) fn are_in(patch: &Patch) -> bool {
        patch.operations().iter().any(|operation| {
            let (Operation::Add { path, .. }
            | Operation::Replace { path, .. }
            | Operation::Remove { path }) = operation;
            path.is_empty()
                || CLIENT_TOOLS.iter().any(|(key, _)| {
                    path.strip_prefix('/').is_some_and(|path| path.starts_with(key))
                })
        })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|known| known == name)
    }
}

// === impl Activity ===

impl Activity {
    /// The id of a tool's activity.
    pub(super) fn id_of_tool(call_id: &str) -> Id {
        Id::from(format!("{call_id}:activity"))
    }

    /// The id of a thread's plan.
    pub(super) fn id_of_plan(thread_id: &str) -> Id {
        Id::from(format!("{thread_id}:plan"))
    }

    /// The activity as the object that clients get.
    pub fn content(&self) -> Json {
        match self {
            Self::Tool { call_id, name, status } => ObjectWriter::new()
                .string("toolCallId", call_id)
                .string("toolName", name)
                .string("status", status.word())
                .finish(),
            Self::Plan { todos } => ObjectWriter::new().raw(TODOS, todos.get()).finish(),
        }
    }

    /// The patch from this activity to `new`. `None` if sending the whole is shorter.
    pub(super) fn change(&self, new: &Self) -> Option<Patch> {
        match (self, new) {
            (Self::Tool { .. }, Self::Tool { status, .. }) => {
                let value = json::raw(format!("\"{}\"", status.word()));
                let replace = Operation::Replace { path: "/status".to_owned(), value };
                Some([replace].into_iter().collect())
            }
            (_, new) => State::new(self.content()).diff(&new.content()),
        }
    }

    /// The call whose tool it is.
    fn call_id(&self) -> Option<&Id> {
        match self {
            Self::Tool { call_id, .. } => Some(call_id),
            Self::Plan { .. } => None,
        }
    }

    fn is_running(&self) -> bool {
        matches!(self, Self::Tool { status: ToolStatus::Running, .. })
    }
}

// === impl ToolStatus ===

impl ToolStatus {
    /// Whether the status may change to `next` while the run goes on. A tool that has answered does
    /// not run again under the same call.
    pub fn may_become(self, next: Self) -> bool {
        match self {
            Self::Running => next != Self::Running,
            // Another attempt may make the same call, and a result may be late.
            Self::Stopped => matches!(next, Self::Running | Self::Completed | Self::Failed),
            // Another result of the call.
            Self::Completed => next == Self::Failed,
            Self::Failed => next == Self::Completed,
            Self::Waiting | Self::Requested => false,
        }
    }

    /// The status of a tool that has answered.
    pub(super) fn answered(is_error: bool) -> Self {
        if is_error { Self::Failed } else { Self::Completed }
    }

    /// The status as clients get it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Waiting => "waiting",
            Self::Requested => "requested",
            Self::Stopped => "stopped",
        }
    }
}

// === impl Todos ===

impl Todos {
    /// Takes a new state. Returns whether the todos may have changed.
    pub(crate) fn set(&mut self, state: &RawValue) -> bool {
        // Parsing a state of 1 MB takes a millisecond, a search for a word a tenth of it.
        let has_some = memchr::memmem::find(state.get().as_bytes(), b"\"todos\"").is_some();
        if !has_some && self.state.is_none() {
            return false;
        }
        self.state = Some(State::new(only_todos(state)));
        true
    }

    /// Applies a patch of the state. Returns whether the todos may have changed.
    pub(crate) fn change(&mut self, patch: &Patch) -> bool {
        let patch: Patch = patch.operations().iter().filter_map(of_todos).collect();
        if patch.is_empty() {
            return false;
        }
        self.state.get_or_insert_with(State::empty).apply(&patch);
        true
    }

    /// The list. `None` if the state has none.
    pub(crate) fn list(&self) -> Option<Json> {
        let state = self.state.as_ref()?.to_json();
        let todos = json::members(&state)?.get(TODOS)?;
        todos.get().starts_with('[').then(|| Json::from(todos))
    }
}

fn only_todos(state: &RawValue) -> Json {
    let members = json::members(state).unwrap_or_default();
    match members.get(TODOS) {
        Some(todos) => ObjectWriter::new().raw(TODOS, todos.get()).finish(),
        None => ObjectWriter::new().finish(),
    }
}

/// The part of an operation that changes the todos.
fn of_todos(operation: &Operation) -> Option<Operation> {
    let (Operation::Add { path, .. }
    | Operation::Replace { path, .. }
    | Operation::Remove { path }) = operation;
    let below = path.strip_prefix('/').and_then(|path| path.strip_prefix(TODOS));
    match (operation, below) {
        (_, Some(below)) if below.is_empty() || below.starts_with('/') => Some(operation.clone()),
        (Operation::Add { value, .. } | Operation::Replace { value, .. }, None)
            if path.is_empty() =>
        {
            Some(Operation::Replace { path: String::new(), value: only_todos(value) })
        }
        _ => None,
    }
}

/// The activities of a run by id, in the order of their first event.
#[derive(Clone, Debug, Default)]
pub(super) struct Activities(Vec<(Id, Activity)>);

// === impl Activities ===

impl Activities {
    pub(super) fn get(&self, id: &str) -> Option<&Activity> {
        self.0.iter().rev().find(|(known, _)| **known == *id).map(|(_, activity)| activity)
    }

    pub(super) fn set(&mut self, id: &Id, activity: &Activity) {
        match self.0.iter_mut().rev().find(|(known, _)| known == id) {
            Some((_, known)) => *known = activity.clone(),
            None => self.0.push((Arc::clone(id), activity.clone())),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Id, &Activity)> {
        self.0.iter().map(|(id, activity)| (id, activity))
    }

    /// The calls of the running tools.
    pub(super) fn running(&self) -> Vec<Id> {
        let running = self.0.iter().filter(|(_, activity)| activity.is_running());
        running.filter_map(|(_, activity)| activity.call_id().cloned()).collect()
    }
}
