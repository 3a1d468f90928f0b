//! The graph's todos as the plan that an editor shows.

use super::strict;
use super::update::{PlanEntry, PlanStatus, Priority};
use crate::json::{self, Json, ObjectWriter};
use crate::run::{Operation, Patch, State};

/// The key of the state under which `deepagents` and the todo middleware keep them.
const TODOS: &str = "todos";

/// The todos of a state, and what was told of them.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// A state of which nothing but the todos is kept.
    state: Option<State>,
    told: Vec<PlanEntry>,
}

// === impl Plan ===

impl Plan {
    /// The state is this now. Gives the plan, if it is news.
    pub(super) fn set(&mut self, state: &Json) -> Option<&[PlanEntry]> {
        self.state = Some(State::new(only_todos(state)));
        self.tell()
    }

    /// This changes in the state. Gives the plan, if it is news.
    pub(super) fn change(&mut self, patch: &Patch) -> Option<&[PlanEntry]> {
        let patch: Patch = patch.operations().iter().filter_map(of_todos).collect();
        if patch.is_empty() {
            return None;
        }
        self.state.get_or_insert_with(State::empty).apply(&patch);
        self.tell()
    }

    fn tell(&mut self) -> Option<&[PlanEntry]> {
        let state = self.state.as_ref()?.to_json();
        let members = json::members(&state).unwrap_or_default();
        let todos = members.get(TODOS).and_then(json::items).unwrap_or_default();
        let entries: Vec<_> = todos.into_iter().filter_map(entry).collect();
        if entries == self.told {
            return None;
        }
        self.told = entries;
        Some(&self.told)
    }
}

fn only_todos(state: &Json) -> Json {
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

/// One todo; `None` for something else that a graph keeps under the name.
fn entry(todo: &serde_json::value::RawValue) -> Option<PlanEntry> {
    let members = json::members(todo)?;
    let content = strict::text(&members.text("content")?).into_owned();
    let status = match members.string("status").as_deref() {
        Some("in_progress") => PlanStatus::InProgress,
        Some("completed") => PlanStatus::Completed,
        Some(_) | None => PlanStatus::Pending,
    };
    Some(PlanEntry { content, priority: Priority::Medium, status })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(entries: Option<&[PlanEntry]>) -> Option<String> {
        let short = |entry: &PlanEntry| format!("{}:{:?}", entry.content.decode(), entry.status);
        entries.map(|entries| entries.iter().map(short).collect::<Vec<_>>().join(" "))
    }

    fn state(text: &str) -> Json {
        json::raw(text.to_owned())
    }

    #[test]
    fn the_plan_is_told_whenever_the_todos_changed() {
        let mut plan = Plan::default();
        assert_eq!(told(plan.set(&state(r#"{"files":{}}"#))), None);
        let todos = r#"{"files":{},"todos":[{"content":"a","status":"in_progress"},{"x":1},3]}"#;
        assert_eq!(told(plan.set(&state(todos))).as_deref(), Some("a:InProgress"));
        assert_eq!(told(plan.set(&state(todos))), None);
        let replace = |path: &str, value: &str| -> Patch {
            [Operation::Replace { path: path.to_owned(), value: state(value) }]
                .into_iter()
                .collect()
        };
        assert_eq!(told(plan.change(&replace("/todosaurus", "1"))), None);
        assert_eq!(told(plan.change(&replace("/files/todos", "1"))), None);
        let done = plan.change(&replace("/todos/0/status", "\"completed\""));
        assert_eq!(told(done).as_deref(), Some("a:Completed"));
        let gone: Patch = [Operation::Remove { path: "/todos".to_owned() }].into_iter().collect();
        assert_eq!(told(plan.change(&gone)).as_deref(), Some(""));
    }
}
