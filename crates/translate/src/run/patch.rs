//! RFC 6902 over raw values: what changed between two states, and a state that takes it in.
//!
//! A state is opened key by key, only where it changes; equal subtrees compare as bytes, and
//! operations carry raw slices, so that numbers stay exact.

use std::fmt::Write as _;

use indexmap::IndexMap;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::json::{self, Json, Text};

/// Nesting that a difference is looked for in; what is deeper is replaced whole.
///
/// Bounds the recursion, which upstream's nesting must not choose.
const MAX_DEPTH: usize = 32;

/// Operations that one array may cost, appends aside, before it is replaced whole: an array that
/// lost its head differs everywhere, and comparing on would cost more than it saves.
const MAX_ARRAY_OPERATIONS: usize = 64;

/// A list of operations, applied in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Patch(Vec<Operation>);

/// One operation. `path` is a JSON pointer (RFC 6901).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Operation {
    /// Adds a member, or appends to an array (`/-`).
    Add {
        /// Where.
        path: String,
        /// What.
        value: Json,
    },
    /// Replaces a value.
    Replace {
        /// Where.
        path: String,
        /// By what.
        value: Json,
    },
    /// Removes a member or an element.
    Remove {
        /// Where.
        path: String,
    },
}

/// A state that a client holds.
#[derive(Clone, Debug)]
pub struct State(Node);

/// A value, opened as far as changes have needed it.
#[derive(Clone, Debug)]
enum Node {
    Raw(Json),
    Object(IndexMap<String, Self>),
    Array(Vec<Self>),
}

/// The difference is not to be told as a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unpatchable;

// === impl Patch ===

impl Patch {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The operations.
    pub fn operations(&self) -> &[Operation] {
        &self.0
    }

    fn len_on_wire(&self) -> usize {
        self.0.iter().map(Operation::len_on_wire).sum()
    }
}

impl FromIterator<Operation> for Patch {
    fn from_iter<I: IntoIterator<Item = Operation>>(operations: I) -> Self {
        Self(operations.into_iter().collect())
    }
}

// === impl Operation ===

impl Operation {
    fn len_on_wire(&self) -> usize {
        /// `{"op":"replace","path":"","value":},`
        const FRAME: usize = 36;
        match self {
            Self::Add { path, value } | Self::Replace { path, value } => {
                FRAME + path.len() + value.get().len()
            }
            Self::Remove { path } => FRAME + path.len(),
        }
    }
}

// === impl State ===

impl State {
    /// A state as a snapshot tells it.
    pub fn new(value: Json) -> Self {
        Self(Node::Raw(value))
    }

    /// `{}`, which an absent state is for AG-UI.
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

    /// How many bytes of JSON it is made of.
    pub(super) fn weight(&self) -> usize {
        self.0.weight()
    }

    /// What makes this state `new`; `None` where a snapshot is the better way to tell it.
    ///
    /// Opens this state where it differs.
    pub fn diff(&mut self, new: &RawValue) -> Option<Patch> {
        let mut patch = Patch::default();
        self.0.diff(new, &mut String::new(), 0, &mut patch).ok()?;
        let is_root = patch
            .0
            .iter()
            .any(|op| matches!(op, Operation::Replace { path, .. } if path.is_empty()));
        (!is_root && patch.len_on_wire() <= new.get().len().max(2)).then_some(patch)
    }

    /// Takes a patch in. An operation that finds no place is passed over: all are our own.
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
    fn weight(&self) -> usize {
        match self {
            Self::Raw(value) => value.get().len(),
            Self::Object(members) => {
                members.iter().map(|(key, value)| key.len() + value.weight()).sum()
            }
            Self::Array(items) => items.iter().map(Self::weight).sum(),
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

    /// Opens a raw object or array one level.
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
        let told = if depth < MAX_DEPTH { self.diff_inside(new, path, depth, out)? } else { false };
        let inside = out.0.get(before..).unwrap_or_default();
        let cost: usize = inside.iter().map(Operation::len_on_wire).sum();
        let replace = Operation::Replace { path: path.clone(), value: Json::from(new) };
        if !told || cost > replace.len_on_wire() {
            out.0.truncate(before);
            out.0.push(replace);
        }
        Ok(())
    }

    /// Tells the difference between two objects or two arrays; false if they are something else.
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

    /// Puts a value at a path, or takes it away.
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
    // The last of two equal keys is the one that counts.
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

/// Arrays grow and shrink at their end; elements in place may differ inside.
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
/// The client's patch library refuses a path through a prototype, and would drop the whole patch.
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
