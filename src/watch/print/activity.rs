//! Activities, on one line each: a tool with its status, the plan with its progress.

use indexmap::IndexMap;
use serde_json::Value;

use super::super::event::Operation;
use super::super::state::State;
use super::text::one_line;
use threadway_translate::json::Json;

/// How many activities are stored, to apply changes to. The oldest is dropped first, and its
/// changes are not printed.
const MAX_KEPT: usize = 256;

/// The largest content that is stored, including changes.
const MAX_BYTES: usize = 64 * 1024;

/// The activities that were printed, by id.
#[derive(Debug, Default)]
pub(super) struct Activities(IndexMap<String, PrintedActivity>);

#[derive(Debug)]
struct PrintedActivity {
    kind: String,
    content: State,
    bytes: usize,
    /// The line that was printed last.
    line: String,
}

// === impl Activities ===

impl Activities {
    /// Replaces an activity. Returns its line if that is new.
    pub(super) fn replace(&mut self, id: &str, kind: &str, content: &Json) -> Option<String> {
        let mut state = State::default();
        state.replace(content);
        let line = line(kind, state.value(), content.get());
        let is_new = self.0.get(id).is_none_or(|known| known.line != line);
        if self.0.len() >= MAX_KEPT && !self.0.contains_key(id) {
            self.0.shift_remove_index(0);
        }
        let bytes = content.get().len();
        // Without its content a change cannot be printed, but this line can.
        let content = if bytes <= MAX_BYTES { state } else { State::default() };
        let activity =
            PrintedActivity { kind: kind.to_owned(), content, bytes, line: line.clone() };
        self.0.insert(id.to_owned(), activity);
        (is_new && !line.is_empty()).then_some(line)
    }

    /// Changes an activity. Returns its line if that changes.
    pub(super) fn change(&mut self, id: &str, operations: &[Operation]) -> Option<String> {
        let PrintedActivity { kind, content, bytes, line: printed } = self.0.get_mut(id)?;
        let added = operations.iter().filter_map(|operation| operation.value.as_ref());
        *bytes += added.map(|value| value.get().len()).sum::<usize>();
        if *bytes > MAX_BYTES {
            *content = State::default();
            return None;
        }
        content.apply(operations);
        let new = line(kind, content.value(), &content.value().to_string());
        if new.is_empty() || *printed == new {
            return None;
        }
        printed.clone_from(&new);
        Some(new)
    }
}

/// The line of an activity; empty if there is nothing to show.
fn line(kind: &str, content: &Value, json: &str) -> String {
    match kind {
        "threadway.tool" => tool(content).unwrap_or_default(),
        "threadway.plan" => plan(content).unwrap_or_default(),
        "threadway.notice" => notice(content).unwrap_or_default(),
        "threadway.empty" => String::new(),
        _ => format!("activity {}: {}", one_line(kind), one_line(json)),
    }
}

fn tool(content: &Value) -> Option<String> {
    let text = |name: &str| content.get(name).and_then(Value::as_str);
    let status = match text("status")? {
        "waiting" => "waits for a person's decision",
        "requested" => "is for the client to run",
        other => other,
    };
    Some(format!("tool {}: {}", one_line(text("toolName")?), one_line(status)))
}

/// A message that nobody typed: its source, without the text, which is for the model.
fn notice(content: &Value) -> Option<String> {
    Some(format!(
        "notice: the graph has added a message ({})",
        one_line(content["source"].as_str()?)
    ))
}

fn plan(content: &Value) -> Option<String> {
    let todos = content.get("todos")?.as_array()?;
    let status = |todo: &Value| todo.get("status").and_then(Value::as_str).map(str::to_owned);
    let is = |todo: &Value, word: &str| status(todo).as_deref() == Some(word);
    let done = todos.iter().filter(|todo| is(todo, "completed")).count();
    let items = todos.iter().map(|todo| {
        let mark = if is(todo, "completed") {
            'x'
        } else if is(todo, "in_progress") {
            '>'
        } else {
            ' '
        };
        let text = todo.get("content").and_then(Value::as_str).unwrap_or_default();
        format!("[{mark}] {text}")
    });
    let items = items.collect::<Vec<_>>().join(", ");
    Some(format!("plan, {done} of {} done: {}", todos.len(), one_line(&items)).trim_end().into())
}
