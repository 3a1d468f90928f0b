//! Raw JSON: values that stay the bytes they came in, and text that stays escaped.
//!
//! Opaque payloads must reach the client byte for byte (`1.10` must not become `1.1`, key order
//! must hold), and no tree is to be built for a token.
//! So this module never builds one: it opens a value one level at a time and hands out slices.
//! The check of an answer in [`schema`] is rare, and does build one.

pub mod schema;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// A JSON value as the bytes it came in. Equal if the bytes are. Clones share the bytes.
#[derive(Clone)]
pub struct Json(Arc<Box<RawValue>>);

/// A string borrowed from its document when it holds no escapes, else decoded.
///
/// `Cow` alone does not borrow behind an `Option` in serde.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Str<'a>(pub Cow<'a, str>);

/// A JSON string as it stands on the wire: quotes and escapes included.
///
/// Tokens pass through still escaped. That is exact where decoding is not: a server may cut a
/// surrogate pair between two tokens (`"\ud83d"`, `"\ude00"`), and each half has no UTF-8 form.
#[derive(Clone)]
pub struct Text(Box<RawValue>);

/// Text that grows token by token, kept escaped and without quotes.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TextBuf(String);

/// The members of an object, in order, each value as its bytes.
#[derive(Debug, Default)]
pub struct Members<'a>(pub Vec<(Str<'a>, &'a RawValue)>);

/// Writes an object member by member, from values that are JSON already.
#[derive(Debug)]
pub struct ObjectWriter(String);

/// Opens an object one level. `None` if it is not an object.
pub fn members(value: &RawValue) -> Option<Members<'_>> {
    // The first byte decides cheaply; `RawValue` holds no surrounding white space.
    value.get().starts_with('{').then(|| serde_json::from_str(value.get()).ok()).flatten()
}

/// Opens an array one level. `None` if it is not an array.
pub fn items(value: &RawValue) -> Option<Vec<&RawValue>> {
    value.get().starts_with('[').then(|| serde_json::from_str(value.get()).ok()).flatten()
}

/// The decoded string. `None` if the value is not a string, or has no UTF-8 form.
pub fn string(value: &RawValue) -> Option<Cow<'_, str>> {
    value
        .get()
        .starts_with('"')
        .then(|| serde_json::from_str::<Str<'_>>(value.get()).ok().map(|s| s.0))
        .flatten()
}

/// Whether two values are equal as JSON: members in any order, numbers by value.
pub fn same(a: &str, b: &str) -> bool {
    if a == b {
        return true;
    }
    let (a, b): (serde_json::Result<serde_json::Value>, _) =
        (serde_json::from_str(a), serde_json::from_str::<serde_json::Value>(b));
    matches!((a, b), (Ok(a), Ok(b)) if a == b)
}

/// Whether two values are equal to a client whose numbers are all doubles.
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
/// Opaque values keep their bytes but for this: the JavaScript server prints over many lines, and
/// a frame of ours is one line.
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

/// Where the string literal at the start of the text ends, its closing quote included.
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

/// Wraps text that is known to be one JSON value.
///
/// Text that is not becomes `null`: the callers assemble it from valid pieces.
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
}

impl From<&RawValue> for Json {
    fn from(value: &RawValue) -> Self {
        Self(value.to_owned().into())
    }
}

impl From<Text> for Json {
    fn from(text: Text) -> Self {
        Self(text.0.into())
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

// === impl ObjectWriter ===

impl ObjectWriter {
    /// An object without members.
    pub fn new() -> Self {
        Self("{".to_owned())
    }

    /// Adds a member; `value` is JSON.
    #[must_use]
    pub fn raw(mut self, name: &str, value: &str) -> Self {
        self.0.push_str(if self.0.len() > 1 { ",\"" } else { "\"" });
        self.0.push_str(Text::new(name).escaped());
        self.0.push_str("\":");
        self.0.push_str(value);
        self
    }

    /// Adds a string.
    #[must_use]
    pub fn text(self, name: &str, text: &Text) -> Self {
        self.raw(name, text.0.get())
    }

    /// Adds a string that is not escaped yet.
    #[must_use]
    pub fn string(self, name: &str, string: &str) -> Self {
        self.text(name, &Text::new(string))
    }

    /// Adds a string, if there is one.
    #[must_use]
    pub fn optional(self, name: &str, text: Option<&Text>) -> Self {
        match text {
            Some(text) => self.text(name, text),
            None => self,
        }
    }

    /// Adds members.
    #[must_use]
    pub fn rest<'a>(self, members: impl IntoIterator<Item = (&'a str, Json)>) -> Self {
        members.into_iter().fold(self, |object, (name, value)| object.raw(name, value.get()))
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.0.len() == 1
    }

    /// The object.
    pub fn finish(mut self) -> Json {
        self.0.push('}');
        raw(self.0)
    }
}

impl Default for ObjectWriter {
    fn default() -> Self {
        Self::new()
    }
}

/// An array of values that are JSON already.
pub fn array<'a>(values: impl IntoIterator<Item = &'a str>) -> Json {
    let mut text = String::from("[");
    for value in values {
        text.push_str(if text.len() > 1 { "," } else { "" });
        text.push_str(value);
    }
    text.push(']');
    raw(text)
}

// === impl Str ===

impl<'de: 'a, 'a> Deserialize<'de> for Str<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrow;
        impl<'de> Visitor<'de> for Borrow {
            type Value = Str<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: Error>(self, v: &'de str) -> Result<Self::Value, E> {
                Ok(Str(Cow::Borrowed(v)))
            }

            fn visit_str<E: Error>(self, v: &str) -> Result<Self::Value, E> {
                Ok(Str(Cow::Owned(v.to_owned())))
            }
        }
        deserializer.deserialize_str(Borrow)
    }
}

impl std::ops::Deref for Str<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

// === impl Members ===

impl<'a> Members<'a> {
    /// The value of a member; of the last one, if a name stands twice.
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(key, _)| &**key == name).map(|(_, value)| *value)
    }

    /// The decoded string of a member.
    pub fn string(&self, name: &str) -> Option<Cow<'a, str>> {
        self.get(name).and_then(string)
    }

    /// The text of a member, still escaped.
    pub fn text(&self, name: &str) -> Option<Text> {
        self.get(name).and_then(Text::from_raw)
    }

    /// An unsigned number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.get(name).and_then(|value| value.get().parse().ok())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(entry) = map.next_entry::<Str<'de>, &'de RawValue>()? {
                    members.push(entry);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

// === impl Text ===

impl Text {
    /// Text from a JSON value; `None` if it is not a string.
    pub fn from_raw(value: &RawValue) -> Option<Self> {
        value.get().starts_with('"').then(|| Self(value.to_owned()))
    }

    /// Text from a decoded string.
    pub fn new(text: &str) -> Self {
        // A string always serialises; the fallback keeps this total.
        Self(serde_json::value::to_raw_value(text).unwrap_or_else(|_| boxed("\"\"".to_owned())))
    }

    /// Text from characters that are already escaped, without quotes.
    pub fn from_escaped(escaped: &str) -> Self {
        Self(boxed(format!("\"{escaped}\"")))
    }

    /// The characters, still escaped, without quotes.
    pub fn escaped(&self) -> &str {
        let quoted = self.0.get();
        quoted.strip_prefix('"').and_then(|s| s.strip_suffix('"')).unwrap_or_default()
    }

    /// The decoded string. Half a surrogate pair becomes U+FFFD.
    pub fn decode(&self) -> Cow<'_, str> {
        decode(self.escaped())
    }

    /// Whether there are no characters.
    pub fn is_empty(&self) -> bool {
        self.escaped().is_empty()
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.get())
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        same_text(self.escaped(), other.escaped())
    }
}

impl Eq for Text {}

// === impl TextBuf ===

impl TextBuf {
    /// Appends text.
    pub fn push(&mut self, text: &Text) {
        self.0.push_str(text.escaped());
    }

    /// The characters so far, still escaped.
    pub fn escaped(&self) -> &str {
        &self.0
    }

    /// Whether there are no characters.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The characters so far as text.
    pub fn to_text(&self) -> Text {
        Text::from_escaped(&self.0)
    }

    /// What `whole` adds to this text, if it begins with it.
    pub fn rest_of(&self, whole: &Text) -> Option<Text> {
        let whole = whole.escaped();
        // A prefix ends where an escape ends: escapes are read from the left, so what follows a
        // complete string cannot be the middle of one.
        if let Some(rest) = whole.strip_prefix(self.escaped()) {
            return Some(Text::from_escaped(rest));
        }
        let (ours, whole) = (decode(&self.0), decode(whole));
        whole.strip_prefix(&*ours).map(Text::new)
    }

    /// Whether the text is the same, however it is escaped.
    pub fn same(&self, text: &Text) -> bool {
        same_text(&self.0, text.escaped())
    }
}

impl From<&Text> for TextBuf {
    fn from(text: &Text) -> Self {
        Self(text.escaped().to_owned())
    }
}

impl fmt::Debug for TextBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

fn same_text(a: &str, b: &str) -> bool {
    // Without a backslash in either, different bytes are different text.
    a == b || ((a.contains('\\') || b.contains('\\')) && decode(a) == decode(b))
}

fn decode(escaped: &str) -> Cow<'_, str> {
    if !escaped.contains('\\') {
        return Cow::Borrowed(escaped);
    }
    let quoted = format!("\"{escaped}\"");
    if let Ok(text) = serde_json::from_str(&quoted) {
        return Cow::Owned(text);
    }
    // Only a lone surrogate gets here; `serde_json` gives its bytes in WTF-8, three to a half.
    let bytes: Vec<u8> = serde_json::from_str::<WtfBytes>(&quoted).map(|b| b.0).unwrap_or_default();
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

/// The bytes of a string in WTF-8, which `serde_json` offers where a visitor takes bytes.
struct WtfBytes(Vec<u8>);

impl<'de> Deserialize<'de> for WtfBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = WtfBytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_bytes<E: Error>(self, v: &[u8]) -> Result<Self::Value, E> {
                Ok(WtfBytes(v.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_surrogate_pair_survives_until_its_other_half_comes() {
        let mut buf = TextBuf::default();
        buf.push(&Text::from_escaped("\\ud83d"));
        assert_eq!(buf.to_text().decode(), "\u{fffd}\u{fffd}\u{fffd}");
        buf.push(&Text::from_escaped("\\ude00"));
        assert_eq!(buf.to_text().decode(), "😀");
    }

    #[test]
    fn text_is_the_same_however_it_is_escaped() {
        assert_eq!(Text::from_escaped("na\\u00efve"), Text::new("naïve"));
        assert_ne!(Text::from_escaped("a\\\\n"), Text::from_escaped("a\\n"));
    }

    #[test]
    fn the_rest_of_a_text_is_cut_by_characters_not_by_escapes() {
        let sent = TextBuf::from(&Text::new("naï"));
        let rest = sent.rest_of(&Text::from_escaped("na\\u00efve \\\"x\\\""));
        assert_eq!(rest, Some(Text::new("ve \"x\"")));
        assert_eq!(sent.rest_of(&Text::new("other")), None);
    }

    #[test]
    fn compact_json_loses_white_space_outside_of_strings_only() {
        let mut out = String::new();
        compact("{\n  \"a b\": [1,\t\"\\\" \\\\\"],\r\n \"c\" : \" \u{2028} \"\n}", &mut out);
        assert_eq!(out, "{\"a b\":[1,\"\\\" \\\\\"],\"c\":\" \u{2028} \"}");
        compact("\"never closed ", &mut out);
        assert_eq!(out, "\"never closed ");
    }

    #[test]
    fn a_value_opens_one_level_and_keeps_its_bytes() {
        let value = raw(r#"{"a":1.10,"b":{"c":[12345678901234567890123]}}"#.to_owned());
        let members = members(&value).unwrap();
        assert_eq!(members.get("a").unwrap().get(), "1.10");
        assert_eq!(members.get("b").unwrap().get(), r#"{"c":[12345678901234567890123]}"#);
        assert!(items(&value).is_none());
    }
}
