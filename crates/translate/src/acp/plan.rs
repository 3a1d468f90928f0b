//! The graph's to-do list as the plan that an editor shows.

use super::strict;
use super::update::{PlanEntry, PlanStatus, Priority};
use crate::json::{self, Json};
use crate::run::{Patch, Todos};

/// The graph's to-do list, and the plan that the client was last sent.
#[derive(Debug, Default)]
pub(super) struct PlanState {
    todos: Todos,
    sent: Vec<PlanEntry>,
}

// === impl PlanState ===

impl PlanState {
    /// Takes a whole state. Returns the plan if it has changed.
    pub(super) fn set(&mut self, state: &Json) -> Option<&[PlanEntry]> {
        if self.todos.set(state) { self.changed() } else { None }
    }

    /// Takes a change of the state. Returns the plan if it has changed.
    pub(super) fn change(&mut self, patch: &Patch) -> Option<&[PlanEntry]> {
        if self.todos.change(patch) { self.changed() } else { None }
    }

    fn changed(&mut self) -> Option<&[PlanEntry]> {
        let todos = self.todos.list();
        let todos = todos.as_deref().and_then(json::items).unwrap_or_default();
        let entries: Vec<_> = todos.into_iter().filter_map(entry).collect();
        if entries == self.sent {
            return None;
        }
        self.sent = entries;
        Some(&self.sent)
    }
}

/// One entry of the list. `None` for anything that is not a to-do.
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
    use crate::run::Operation;

    fn short(entries: Option<&[PlanEntry]>) -> Option<String> {
        let one = |entry: &PlanEntry| format!("{}:{:?}", entry.content.decode(), entry.status);
        entries.map(|entries| entries.iter().map(one).collect::<Vec<_>>().join(" "))
    }

    fn state(text: &str) -> Json {
        json::raw(text.to_owned())
    }

    #[test]
    fn the_plan_is_sent_whenever_the_todos_changed() {
        let mut plan = PlanState::default();
        assert_eq!(short(plan.set(&state(r#"{"files":{}}"#))), None);
        let todos = r#"{"files":{},"todos":[{"content":"a","status":"in_progress"},{"x":1},3]}"#;
        assert_eq!(short(plan.set(&state(todos))).as_deref(), Some("a:InProgress"));
        assert_eq!(short(plan.set(&state(todos))), None);
        let replace = |path: &str, value: &str| -> Patch {
            [Operation::Replace { path: path.to_owned(), value: state(value) }]
                .into_iter()
                .collect()
        };
        assert_eq!(short(plan.change(&replace("/todosaurus", "1"))), None);
        assert_eq!(short(plan.change(&replace("/files/todos", "1"))), None);
        let done = plan.change(&replace("/todos/0/status", "\"completed\""));
        assert_eq!(short(done).as_deref(), Some("a:Completed"));
        let gone: Patch = [Operation::Remove { path: "/todos".to_owned() }].into_iter().collect();
        assert_eq!(short(plan.change(&gone)).as_deref(), Some(""));
    }
}
