//! Activities on one line each: a tool and how far it is, the plan and what is done of it.

use indexmap::IndexMap;
use serde_json::Value;

use super::super::event::Operation;
use super::super::state::Held;
use super::text::one_line;
use threadway_translate::json::Json;

/// How many activities are kept to apply their changes to. The oldest is forgotten first, and its
/// changes are not printed any more.
const MAX_KEPT: usize = 256;

/// The largest content that is kept, with its changes.
const MAX_BYTES: usize = 64 * 1024;

/// The activities that were told, by id.
#[derive(Debug, Default)]
pub(super) struct Activities(IndexMap<String, Activity>);

#[derive(Debug)]
struct Activity {
    kind: String,
    content: Held,
    bytes: usize,
    /// The line that was printed last.
    line: String,
}

// === impl Activities ===

impl Activities {
    /// An activity is this now: its line, if it is a new one.
    pub(super) fn replace(&mut self, id: &str, kind: &str, content: &Json) -> Option<String> {
        let mut held = Held::default();
        held.replace(content);
        let line = line(kind, held.value(), content.get());
        let is_new = self.0.get(id).is_none_or(|known| known.line != line);
        if self.0.len() >= MAX_KEPT && !self.0.contains_key(id) {
            self.0.shift_remove_index(0);
        }
        let bytes = content.get().len();
        // Without its content a change of it cannot be told, and its line can.
        let content = if bytes <= MAX_BYTES { held } else { Held::default() };
        let activity = Activity { kind: kind.to_owned(), content, bytes, line: line.clone() };
        self.0.insert(id.to_owned(), activity);
        (is_new && !line.is_empty()).then_some(line)
    }

    /// An activity changes: its line, if that changes with it.
    pub(super) fn change(&mut self, id: &str, operations: &[Operation]) -> Option<String> {
        let Activity { kind, content, bytes, line: printed } = self.0.get_mut(id)?;
        let added = operations.iter().filter_map(|operation| operation.value.as_ref());
        *bytes += added.map(|value| value.get().len()).sum::<usize>();
        if *bytes > MAX_BYTES {
            *content = Held::default();
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

/// What a person reads of an activity; nothing of one that shows nothing.
fn line(kind: &str, content: &Value, json: &str) -> String {
    match kind {
        "threadway.tool" => tool(content).unwrap_or_default(),
        "threadway.plan" => plan(content).unwrap_or_default(),
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
