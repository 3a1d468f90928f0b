//! JSON that keeps the bytes it was read from.
//!
//! Values that clients get must not change on the way: `1.10` must not become `1.1`, and the order
//! of keys must hold. So this module builds no tree. [`members`] and [`items`] parse a value one
//! level and return slices of it. [`ObjectWriter`] and [`array()`] build new values from such slices.
//! [`Text`] is a string that keeps its escapes. [`mend()`] replaces those that no server stores.
//!
//! ```
//! use threadway_translate::json::{self, ObjectWriter};
//!
//! let value = json::raw(r#"{"price": 1.10, "name": "x"}"#.to_owned());
//! let members = json::members(&value).unwrap_or_default();
//! let price = members.get("price").map_or("null", |price| price.get());
//! let object = ObjectWriter::new().raw("price", price).finish();
//! assert_eq!(object.get(), r#"{"price":1.10}"#);
//! ```
//!
//! Only [`schema`], which checks a person's answer, builds a tree.

pub(crate) mod digest;
mod members;
mod mend;
pub mod schema;
mod text;
mod writer;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

pub(crate) use members::mended_members;
pub use members::{Members, Str, items, members, string};
pub(crate) use mend::whole_pairs;
pub use mend::{mend, mend_bytes, mend_numbers};
pub use text::{Text, TextBuf};
pub use writer::{ObjectWriter, array, with_member};

/// A JSON value as it was written. Two are equal if their bytes are. Clones share the bytes.
#[derive(Clone)]
pub struct Json(Arc<Box<RawValue>>);

/// Whether two texts are equal as JSON, regardless of the order of members.
pub fn same(a: &str, b: &str) -> bool {
    if a == b {
        return true;
    }
    let (a, b): (serde_json::Result<serde_json::Value>, _) =
        (serde_json::from_str(a), serde_json::from_str::<serde_json::Value>(b));
    matches!((a, b), (Ok(a), Ok(b)) if a == b)
}

/// Whether two texts are equal as JSON for a client whose numbers are doubles.
pub fn same_in_doubles(a: &str, b: &str) -> bool {
    fn eq(a: &serde_json::Value, b: &serde_json::Value) -> bool {
        use serde_json::Value::{Array, Number, Object};
        match (a, b) {
            (Number(a), Number(b)) => a.as_f64() == b.as_f64(),
            (Array(a), Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| eq(a, b)),
            (Object(a), Object(b)) => {
                a.len() == b.len() && a.iter().all(|(k, a)| b.get(k).is_some_and(|b| eq(a, b)))
            }
            (a, b) => a == b,
        }
    }
    if a == b {
        return true;
    }
    let parse = |text| serde_json::from_str::<serde_json::Value>(text);
    matches!((parse(a), parse(b)), (Ok(a), Ok(b)) if eq(&a, &b))
}

/// Writes JSON without the white space between its tokens.
///
/// This is the only change that opaque values see. A server may print JSON over many lines, and
/// this crate writes an SSE event on one.
pub fn compact(json: &str, out: &mut String) {
    out.clear();
    let mut rest = json;
    while let Some(at) = rest.find(['"', ' ', '\n', '\r', '\t']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let end = if from.starts_with('"') { string_end(from) } else { 1 };
        let (token, after) = from.split_at(end);
        if token.starts_with('"') {
            out.push_str(token);
        }
        rest = after;
    }
    out.push_str(rest);
}

/// The index after the closing quote of a string literal.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Wraps text that is one JSON value. Any other text becomes `null`.
pub fn raw(text: String) -> Json {
    Json(boxed(text).into())
}

fn boxed(text: String) -> Box<RawValue> {
    RawValue::from_string(text).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

// === impl Json ===

impl Json {
    /// `{}`.
    pub fn empty_object() -> Self {
        raw("{}".to_owned())
    }

    /// A copy of a value in which text that no server stores is mended: see [`mend`].
    pub fn mended(value: &RawValue) -> Self {
        match mend(value.get()) {
            Cow::Borrowed(_) => Self::from(value),
            Cow::Owned(mended) => raw(mended),
        }
    }
}

impl From<&RawValue> for Json {
    fn from(value: &RawValue) -> Self {
        Self(value.to_owned().into())
    }
}

impl From<Text> for Json {
    fn from(text: Text) -> Self {
        Self(text.into_raw().into())
    }
}

impl std::ops::Deref for Json {
    type Target = RawValue;

    fn deref(&self) -> &RawValue {
        &self.0
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Json {}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl AsRef<[u8]> for Json {
    fn as_ref(&self) -> &[u8] {
        self.get().as_bytes()
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self.0).serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_json_loses_white_space_outside_of_strings_only() {
        let mut out = String::new();
        compact("{\n  \"a b\": [1,\t\"\\\" \\\\\"],\r\n \"c\" : \" \u{2028} \"\n}", &mut out);
        assert_eq!(out, "{\"a b\":[1,\"\\\" \\\\\"],\"c\":\" \u{2028} \"}");
        compact("\"never closed ", &mut out);
        assert_eq!(out, "\"never closed ");
    }
}
