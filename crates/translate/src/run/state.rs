//! A state that takes patches, and the patch between two states (RFC 6902).
//!
//! A state is parsed key by key, and only where it changes. Equal subtrees are compared as bytes.
//! Operations carry the original bytes of values, so that numbers stay exact.

use std::fmt::Write as _;

use indexmap::IndexMap;
use serde_json::value::RawValue;

use super::{Operation, Patch};
use crate::json::{self, Json, Text, digest};

/// The nesting in which differences are searched. Deeper values are replaced whole.
///
/// The limit bounds the recursion, whatever LangGraph sends.
const MAX_DEPTH: usize = 32;

/// The most operations for one array, not counting appends, before the array is replaced whole. If
/// an array lost its first element, all others differ, and comparing them costs more than it saves.
const MAX_ARRAY_OPERATIONS: usize = 64;

/// A state that a client holds.
#[derive(Clone, Debug)]
pub struct State(Node);

/// A value, parsed as far as changes required.
#[derive(Clone, Debug)]
enum Node {
    Raw(Json),
    Object(IndexMap<String, Self>),
    Array(Vec<Self>),
}

/// The difference cannot be sent as a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unpatchable;

// === impl State ===

impl State {
    /// A state as a snapshot carries it.
    pub fn new(value: Json) -> Self {
        Self(Node::Raw(value))
    }

    /// `{}`, which is AG-UI's initial state.
    pub fn empty() -> Self {
        Self(Node::Object(IndexMap::new()))
    }

    /// The state as one value.
    pub fn to_json(&self) -> Json {
        if let Node::Raw(json) = &self.0 {
            return json.clone();
        }
        let mut text = String::new();
        self.0.write(&mut text);
        json::raw(text)
    }

    /// The digest of [`Self::to_json`].
    pub(super) fn digest(&self) -> u64 {
        self.0.digest()
    }

    /// The length of its values and keys in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }

    /// The patch from this state to `new`. `None` if a snapshot is shorter, or no patch can express
    /// the change.
    ///
    /// Parses this state where it differs.
    pub fn diff(&mut self, new: &RawValue) -> Option<Patch> {
        let mut patch = Patch::default();
        self.0.diff(new, &mut String::new(), 0, &mut patch).ok()?;
        let is_root = patch
            .0
            .iter()
            .any(|op| matches!(op, Operation::Replace { path, .. } if path.is_empty()));
        (!is_root && patch.len_on_wire() <= new.get().len().max(2)).then_some(patch)
    }

    /// Applies a patch. An operation whose path does not exist is ignored: all patches are made
    /// here.
    pub fn apply(&mut self, patch: &Patch) {
        for operation in &patch.0 {
            match operation {
                Operation::Add { path, value } | Operation::Replace { path, value } => {
                    self.0.put(path, Some(value));
                }
                Operation::Remove { path } => self.0.put(path, None),
            }
        }
    }
}

// === impl Node ===

impl Node {
    fn memory_bytes(&self) -> usize {
        match self {
            Self::Raw(value) => value.get().len(),
            Self::Object(members) => {
                members.iter().map(|(key, value)| key.len() + value.memory_bytes()).sum()
            }
            Self::Array(items) => items.iter().map(Self::memory_bytes).sum(),
        }
    }

    fn digest(&self) -> u64 {
        match self {
            Self::Raw(value) => digest::of_json(value.get()),
            Self::Object(members) => {
                digest::of_object(members.iter().map(|(key, value)| (&**key, value.digest())))
            }
            Self::Array(items) => digest::of_array(items.iter().map(Self::digest)),
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Raw(value) => out.push_str(value.get()),
            Self::Object(members) => {
                out.push('{');
                for (at, (key, value)) in members.iter().enumerate() {
                    out.push_str(if at > 0 { ",\"" } else { "\"" });
                    out.push_str(Text::new(key).escaped());
                    out.push_str("\":");
                    value.write(out);
                }
                out.push('}');
            }
            Self::Array(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
        }
    }

    /// Parses a raw object or array one level.
    fn open(&mut self) {
        let Self::Raw(value) = self else { return };
        if let Some(members) = json::members(value) {
            let open = |(key, value): (json::Str<'_>, &RawValue)| {
                (key.to_string(), Self::Raw(Json::from(value)))
            };
            *self = Self::Object(members.0.into_iter().map(open).collect());
        } else if let Some(items) = json::items(value) {
            let open = |item: &RawValue| Self::Raw(Json::from(item));
            *self = Self::Array(items.into_iter().map(open).collect());
        }
    }

    fn diff(
        &mut self,
        new: &RawValue,
        path: &mut String,
        depth: usize,
        out: &mut Patch,
    ) -> Result<(), Unpatchable> {
        if matches!(self, Self::Raw(old) if old.get() == new.get()) {
            return Ok(());
        }
        let before = out.0.len();
        let is_inside =
            if depth < MAX_DEPTH { self.diff_inside(new, path, depth, out)? } else { false };
        let inside = out.0.get(before..).unwrap_or_default();
        let cost: usize = inside.iter().map(Operation::len_on_wire).sum();
        let replace = Operation::Replace { path: path.clone(), value: Json::from(new) };
        if !is_inside || cost > replace.len_on_wire() {
            out.0.truncate(before);
            out.0.push(replace);
        }
        Ok(())
    }

    /// Compares two objects or two arrays. Returns false for anything else.
    fn diff_inside(
        &mut self,
        new: &RawValue,
        path: &mut String,
        depth: usize,
        out: &mut Patch,
    ) -> Result<bool, Unpatchable> {
        let is_object = new.get().starts_with('{');
        if !is_object && !new.get().starts_with('[') {
            return Ok(false);
        }
        self.open();
        match self {
            Self::Object(old) if is_object => {
                let Some(new) = json::members(new) else { return Ok(false) };
                diff_objects(old, &new, path, depth, out)?;
                Ok(true)
            }
            Self::Array(old) if !is_object => {
                let Some(new) = json::items(new) else { return Ok(false) };
                diff_arrays(old, &new, path, depth, out)
            }
            Self::Raw(_) | Self::Object(_) | Self::Array(_) => Ok(false),
        }
    }

    /// Sets the value at a path, or removes it.
    fn put(&mut self, path: &str, value: Option<&Json>) {
        let Some(path) = path.strip_prefix('/') else {
            if let Some(value) = value {
                *self = Self::Raw(value.clone());
            }
            return;
        };
        let (key, rest) = match path.find('/') {
            Some(at) => path.split_at(at),
            None => (path, ""),
        };
        let key = key.replace("~1", "/").replace("~0", "~");
        self.open();
        match self {
            Self::Object(members) => match (members.get_mut(&key), rest, value) {
                (Some(_), "", None) => {
                    members.shift_remove(&key);
                }
                (Some(member), ..) => member.put(rest, value),
                (None, "", Some(value)) => {
                    members.insert(key, Self::Raw(value.clone()));
                }
                (None, ..) => {}
            },
            Self::Array(items) => match (key.as_str(), key.parse::<usize>(), rest, value) {
                ("-", _, "", Some(value)) => items.push(Self::Raw(value.clone())),
                (_, Ok(at), "", None) if at < items.len() => {
                    items.remove(at);
                }
                (_, Ok(at), ..) => {
                    if let Some(item) = items.get_mut(at) {
                        item.put(rest, value);
                    }
                }
                (_, Err(_), ..) => {}
            },
            Self::Raw(_) => {}
        }
    }
}

fn diff_objects(
    old: &mut IndexMap<String, Node>,
    new: &json::Members<'_>,
    path: &mut String,
    depth: usize,
    out: &mut Patch,
) -> Result<(), Unpatchable> {
    let here = path.len();
    // Of two equal keys the last one counts.
    let new: IndexMap<&str, &RawValue> =
        new.0.iter().map(|(key, value)| (&**key, *value)).collect();
    for key in old.keys().filter(|key| !new.contains_key(key.as_str())) {
        push_key(path, key)?;
        out.0.push(Operation::Remove { path: path.clone() });
        path.truncate(here);
    }
    for (key, value) in new {
        push_key(path, key)?;
        match old.get_mut(key) {
            Some(member) => member.diff(value, path, depth + 1, out)?,
            None => {
                out.0.push(Operation::Add { path: path.clone(), value: Json::from(value) });
            }
        }
        path.truncate(here);
    }
    Ok(())
}

/// Elements are compared by index. The rest is appended or removed at the end.
fn diff_arrays(
    old: &mut [Node],
    new: &[&RawValue],
    path: &mut String,
    depth: usize,
    out: &mut Patch,
) -> Result<bool, Unpatchable> {
    let (here, before) = (path.len(), out.0.len());
    let push = |path: &mut String, out: &mut Patch, operation: Operation| {
        path.truncate(here);
        out.0.push(operation);
    };
    for at in (new.len()..old.len()).rev() {
        push_index(path, at);
        let removed = path.clone();
        push(path, out, Operation::Remove { path: removed });
    }
    for (at, (item, value)) in old.iter_mut().zip(new).enumerate() {
        push_index(path, at);
        item.diff(value, path, depth + 1, out)?;
        path.truncate(here);
        if out.0.len() - before > MAX_ARRAY_OPERATIONS {
            return Ok(false);
        }
    }
    for value in new.iter().skip(old.len()) {
        let added = format!("{path}/-");
        push(path, out, Operation::Add { path: added, value: Json::from(*value) });
    }
    Ok(true)
}

fn push_index(path: &mut String, at: usize) {
    // Writing to a string cannot fail.
    write!(path, "/{at}").unwrap_or_default();
}

/// Appends a key to a JSON pointer.
///
/// The client's patch library refuses these keys, and would drop the whole patch.
fn push_key(path: &mut String, key: &str) -> Result<(), Unpatchable> {
    if matches!(key, "__proto__" | "constructor" | "prototype") {
        return Err(Unpatchable);
    }
    path.push('/');
    path.push_str(&key.replace('~', "~0").replace('/', "~1"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Json {
        json::raw(text.to_owned())
    }

    #[test]
    fn a_difference_carries_raw_slices_of_what_changed() {
        let cases = [
            (r#"{"a":1,"b":[1]}"#, r#"{"a":1,"b":[1]}"#, "[]"),
            (
                r#"{"a":1.10,"pad":"................................................."}"#,
                r#"{"a":1.1,"pad":"................................................."}"#,
                r#"[{"op":"replace","path":"/a","value":1.1}]"#,
            ),
            (
                r#"{"l":[1,2],"pad":"................................................."}"#,
                r#"{"l":[1,2,{"n":12345678901234567890123}],"pad":"................................................."}"#,
                r#"[{"op":"add","path":"/l/-","value":{"n":12345678901234567890123}}]"#,
            ),
            (
                r#"{"a/b":{"~":1},"pad":"................................................."}"#,
                r#"{"a/b":{"~":2},"pad":"................................................."}"#,
                r#"[{"op":"replace","path":"/a~1b/~0","value":2}]"#,
            ),
            (
                r#"{"x":1,"pad":"................................................."}"#,
                r#"{"pad":"................................................."}"#,
                r#"[{"op":"remove","path":"/x"}]"#,
            ),
        ];
        for (old, new, expected) in cases {
            let patch = State::new(value(old)).diff(&value(new)).unwrap();
            assert_eq!(serde_json::to_string(&patch).unwrap(), expected, "{old} -> {new}");
        }
    }

    #[test]
    fn a_snapshot_is_preferred_where_a_patch_is_larger_or_unsafe() {
        for (old, new) in [
            (r#"{"a":1}"#, r#"{"a":2}"#),
            ("[1]", "{}"),
            (
                r#"{"__proto__":1,"p":".............................................."}"#,
                r#"{"__proto__":2,"p":".............................................."}"#,
            ),
        ] {
            assert!(State::new(value(old)).diff(&value(new)).is_none(), "{old} -> {new}");
        }
    }
}
