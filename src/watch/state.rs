//! The state, for printing what a snapshot changes in it. It takes as much memory as the thread's
//! state.

use serde_json::{Map, Value};

use super::event::Operation;
use threadway_translate::json::{self, Json};

/// The current state.
#[derive(Debug, Default)]
pub(super) struct State(Value);

/// A change: its path, and the new value, or `None` if the value is gone.
#[derive(Debug, PartialEq)]
pub(super) struct Change {
    pub(super) path: String,
    pub(super) value: Option<Json>,
}

// === impl State ===

impl State {
    pub(super) fn value(&self) -> &Value {
        &self.0
    }

    /// Replaces the state. Returns the keys that changed.
    pub(super) fn replace(&mut self, snapshot: &Json) -> Vec<Change> {
        let now: Value = serde_json::from_str(snapshot.get()).unwrap_or_default();
        let before = std::mem::replace(&mut self.0, now);
        let empty = Map::new();
        let (Value::Object(now), Some(raw)) = (&self.0, json::members(snapshot)) else {
            let is_changed = before != self.0;
            return Vec::from_iter(
                is_changed.then(|| Change { path: String::new(), value: Some(snapshot.clone()) }),
            );
        };
        let before = before.as_object().unwrap_or(&empty);
        let gone = before.keys().filter(|key| !now.contains_key(*key));
        let gone = gone.map(|key| Change { path: pointer(key), value: None });
        let is_new = |key: &str| before.get(key) != now.get(key);
        let new = raw.0.iter().filter(|(key, _)| is_new(key));
        let new =
            new.map(|(key, value)| Change { path: pointer(key), value: Some(Json::from(*value)) });
        gone.chain(new).collect()
    }

    /// Applies a JSON Patch as far as possible.
    ///
    /// Ignores operations that do not fit, or that the gateway does not send (move, copy, test).
    /// The next snapshot then shows a difference.
    pub(super) fn apply(&mut self, operations: &[Operation]) {
        for operation in operations {
            self.apply_one(operation);
        }
    }

    fn apply_one(&mut self, Operation { op, path, value }: &Operation) -> Option<()> {
        let value = || serde_json::from_str::<Value>(value.as_ref()?.get()).ok();
        let Some((parent, key)) = path.rsplit_once('/') else {
            if matches!(&**op, "add" | "replace") {
                self.0 = value()?;
            }
            return Some(());
        };
        let key = key.replace("~1", "/").replace("~0", "~");
        match (self.0.pointer_mut(parent)?, &**op) {
            (Value::Object(object), "add" | "replace") => {
                object.insert(key, value()?);
            }
            (Value::Object(object), "remove") => {
                object.shift_remove(&key)?;
            }
            (Value::Array(array), "add") => {
                let at = if key == "-" { array.len() } else { key.parse().ok()? };
                (at <= array.len()).then_some(())?;
                array.insert(at, value()?);
            }
            (Value::Array(array), "replace") => {
                *array.get_mut(key.parse::<usize>().ok()?)? = value()?;
            }
            (Value::Array(array), "remove") => {
                let at = key.parse().ok().filter(|at| *at < array.len())?;
                array.remove(at);
            }
            _ => {}
        }
        Some(())
    }
}

/// The JSON Pointer to a key of the root.
fn pointer(key: &str) -> String {
    format!("/{}", key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        json::raw(text.to_owned())
    }

    fn texts(changes: &[Change]) -> Vec<String> {
        let value = |change: &Change| change.value.as_ref().map_or("gone", |v| v.get()).to_owned();
        changes.iter().map(|change| format!("{} {}", change.path, value(change))).collect()
    }

    fn operation(op: &str, path: &str, value: Option<&str>) -> Operation {
        Operation { op: op.into(), path: path.into(), value: value.map(json) }
    }

    #[test]
    fn a_snapshot_reports_the_keys_that_differ_from_the_deltas() {
        let mut state = State::default();
        let changes = state.replace(&json(r#"{"a":1.10,"b/c":[1,2],"d":{}}"#));
        assert_eq!(texts(&changes), ["/a 1.10", "/b~1c [1,2]", "/d {}"]);
        state.apply(&[
            operation("replace", "/a", Some("2")),
            operation("add", "/b~1c/-", Some("3")),
            operation("add", "/b~1c/0", Some("0")),
            operation("remove", "/b~1c/1", None),
            operation("replace", "/b~1c/0", Some("9")),
            operation("add", "/d/e", Some("null")),
            operation("remove", "/d/e", None),
        ]);
        assert_eq!(texts(&state.replace(&json(r#"{"a":2,"b/c":[9,2,3],"d":{}}"#))), [""; 0]);
        assert_eq!(
            texts(&state.replace(&json(r#"{"a":2,"d":{"x":1}}"#))),
            ["/b~1c gone", r#"/d {"x":1}"#]
        );
    }

    #[test]
    fn operations_that_do_not_fit_change_nothing() {
        let mut state = State::default();
        state.replace(&json(r#"{"a":[1]}"#));
        state.apply(&[
            operation("add", "/x/y", Some("1")),
            operation("add", "/a/5", Some("1")),
            operation("remove", "/a/5", None),
            operation("replace", "/a/one", Some("1")),
            operation("remove", "", None),
            operation("add", "/b", None),
            operation("move", "/b", Some("1")),
        ]);
        assert_eq!(texts(&state.replace(&json(r#"{"a":[1]}"#))), [""; 0]);
    }

    #[test]
    fn a_state_that_is_not_an_object_is_reported_whole() {
        let mut state = State::default();
        assert_eq!(texts(&state.replace(&json("[1]"))), [" [1]"]);
        assert_eq!(texts(&state.replace(&json("[1]"))), [""; 0]);
        assert_eq!(texts(&state.replace(&json("{}"))), [""; 0]);
        state.apply(&[operation("replace", "", Some("2"))]);
        assert_eq!(texts(&state.replace(&json("2"))), [""; 0]);
    }
}
