//! What is going on in a run beside what is said: the tools that run, and the plan.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::{Id, Operation, Patch, State};
use crate::json::{self, Json, ObjectWriter};
use crate::langgraph::copilotkit;

/// Something that goes on. Each has an id, under which it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// A tool that was called.
    Tool {
        /// The call.
        call_id: Id,
        /// The tool.
        name: Id,
        /// How far it is.
        status: ToolStatus,
    },
    /// The todos in the state of the run.
    Plan {
        /// The list, as the graph keeps it.
        todos: Json,
    },
}

/// How far a tool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolStatus {
    /// Its arguments are complete, and the graph has the call.
    Running,
    /// It has answered.
    Completed,
    /// It has answered that it failed.
    Failed,
    /// A person is to say whether it may run.
    Waiting,
    /// The client is to run it.
    Requested,
    /// The run ended before it answered.
    Stopped,
}

/// The key of the state under which `deepagents` and the todo middleware keep their list.
pub const TODOS: &str = "todos";

/// The todos of a state, followed through its changes.
#[derive(Clone, Debug, Default)]
pub struct Todos {
    /// A state of which nothing but the todos is kept; `None` while there were none.
    state: Option<State>,
}

/// The tools that a client has and runs itself, as far as the state of the run names them.
///
/// What such a call waits for is the client, so that it is no activity of the run: a page looks
/// for it in the last message that it holds.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientTools(Vec<String>);

/// Where graphs keep the tools of their client: the key, and the member of its value, if it is an
/// object.
const CLIENT_TOOLS: [(&str, &str); 3] =
    [("tools", ""), ("ag-ui", "tools"), (copilotkit::STATE_KEY, copilotkit::ACTIONS_KEY)];

// === impl ClientTools ===

impl ClientTools {
    /// The state is this now.
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
                // OpenAI's form keeps the name one level down.
                let function = tool.get("function").and_then(json::members).unwrap_or_default();
                self.0.extend(
                    tool.string("name").or_else(|| function.string("name")).map(Cow::into_owned),
                );
            }
        }
    }

    /// Whether a change of the state may be one of these.
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

    /// What it is, as one object.
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

    /// What makes its content that of `new`; `None` where the whole is shorter.
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

    /// Whether it still goes on.
    pub(super) fn is_running(&self) -> bool {
        matches!(self, Self::Tool { status: ToolStatus::Running, .. })
    }
}

// === impl ToolStatus ===

impl ToolStatus {
    /// As clients read it.
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
    /// The state is this now. Returns whether the todos may have changed.
    pub fn set(&mut self, state: &RawValue) -> bool {
        // To open a state of a megabyte takes a millisecond, to look for a word a tenth of it.
        let has_some = memchr::memmem::find(state.get().as_bytes(), b"\"todos\"").is_some();
        if !has_some && self.state.is_none() {
            return false;
        }
        self.state = Some(State::new(only_todos(state)));
        true
    }

    /// This changes in the state. Returns whether the todos may have changed.
    pub fn change(&mut self, patch: &Patch) -> bool {
        let patch: Patch = patch.operations().iter().filter_map(of_todos).collect();
        if patch.is_empty() {
            return false;
        }
        self.state.get_or_insert_with(State::empty).apply(&patch);
        true
    }

    /// The list; `None` if the state has none.
    pub fn list(&self) -> Option<Json> {
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

/// An operation as far as it changes the todos.
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

/// What goes on in a run, by id, each in the order of its beginning.
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

    /// The tools that run.
    pub(super) fn running(&self) -> Vec<(Id, Activity)> {
        self.0.iter().filter(|(_, activity)| activity.is_running()).cloned().collect()
    }
}
