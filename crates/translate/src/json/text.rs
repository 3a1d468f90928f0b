//! JSON strings that keep their escapes.

use std::borrow::Cow;
use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::{boxed, mend};

/// A JSON string with its quotes and escapes.
///
/// Tokens are not decoded on their way to a client. A server may cut a surrogate pair between two
/// tokens (`"\ud83d"`, `"\ude00"`), and half a pair has no UTF-8 form.
#[derive(Clone)]
pub struct Text(Box<RawValue>);

/// Text that grows token by token. It keeps escapes, and has no quotes.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TextBuf(String);

// === impl Text ===

impl Text {
    /// `None` if the value is not a string.
    pub fn from_raw(value: &RawValue) -> Option<Self> {
        value.get().starts_with('"').then(|| Self(value.to_owned()))
    }

    /// Escapes a string.
    pub fn new(text: &str) -> Self {
        // A string always serialises. The fallback only avoids a panic.
        Self(serde_json::value::to_raw_value(text).unwrap_or_else(|_| boxed("\"\"".to_owned())))
    }

    /// Text from escaped characters without quotes.
    pub fn from_escaped(escaped: &str) -> Self {
        Self(boxed(format!("\"{escaped}\"")))
    }

    /// The string as JSON.
    pub(super) fn quoted(&self) -> &str {
        self.0.get()
    }

    pub(super) fn into_raw(self) -> Box<RawValue> {
        self.0
    }

    /// The characters with their escapes, without quotes.
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

    /// The characters with their escapes.
    pub fn escaped(&self) -> &str {
        &self.0
    }

    /// Whether there are no characters.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text so far.
    pub fn to_text(&self) -> Text {
        Text::from_escaped(&self.0)
    }

    /// The rest of `whole` after this text. `None` if `whole` does not start with it.
    pub(crate) fn rest_of(&self, whole: &Text) -> Option<Text> {
        let whole = whole.escaped();
        // If the escaped texts share a prefix, so do the decoded ones. Escapes are read from the
        // left, so a complete text cannot end inside an escape of `whole`.
        if let Some(rest) = whole.strip_prefix(self.escaped()) {
            return Some(Text::from_escaped(rest));
        }
        let (ours, whole) = (decode(&self.0), decode(whole));
        whole.strip_prefix(&*ours).map(Text::new)
    }

    /// The decoded text. Half a surrogate pair becomes U+FFFD.
    pub(crate) fn decode(&self) -> Cow<'_, str> {
        decode(&self.0)
    }

    /// Whether both decode to the same text.
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

/// Whether two texts are equal, whichever of the two was mended on its way.
fn same_text(a: &str, b: &str) -> bool {
    // Without a backslash in either, different bytes are different texts.
    a == b || ((a.contains('\\') || b.contains('\\')) && stored(a) == stored(b))
}

/// The decoded text as LangGraph's Python server returns it: it replaces U+0000, and the six
/// characters `\u0000` too.
fn stored(escaped: &str) -> Cow<'_, str> {
    let text = decode(escaped);
    if text.contains('\0') || text.contains("\\u0000") {
        return text.replace('\0', "\u{fffd}").replace("\\u0000", "\\ufffd").into();
    }
    text
}

pub(super) fn decode(escaped: &str) -> Cow<'_, str> {
    if !escaped.contains('\\') {
        return Cow::Borrowed(escaped);
    }
    let unquoted = |escaped: &str| serde_json::from_str(&format!("\"{escaped}\"")).ok();
    // Only half a surrogate pair fails to parse.
    let text = unquoted(escaped).or_else(|| unquoted(&mend(escaped)));
    Cow::Owned(text.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_surrogate_pair_survives_until_its_other_half_comes() {
        let mut buf = TextBuf::default();
        buf.push(&Text::from_escaped("\\ud83d"));
        assert_eq!(buf.to_text().decode(), "\u{fffd}");
        buf.push(&Text::from_escaped("\\ude00"));
        assert_eq!(buf.to_text().decode(), "😀");
    }

    #[test]
    fn text_is_the_same_however_it_is_escaped() {
        assert_eq!(Text::from_escaped("na\\u00efve"), Text::new("naïve"));
        assert_ne!(Text::from_escaped("a\\\\n"), Text::from_escaped("a\\n"));
        for (sent, stored) in [
            ("a\\ud83d", "a\\ufffd"),
            ("a\\u0000", "a\u{fffd}"),
            ("the escape \\\\u0000", "the escape \\\\ufffd"),
        ] {
            assert_eq!(Text::from_escaped(sent), Text::from_escaped(stored));
        }
        assert_ne!(Text::from_escaped("a\\u0000"), Text::new("a"));
    }

    #[test]
    fn the_rest_of_a_text_is_cut_by_characters_not_by_escapes() {
        let sent = TextBuf::from(&Text::new("naï"));
        let rest = sent.rest_of(&Text::from_escaped("na\\u00efve \\\"x\\\""));
        assert_eq!(rest, Some(Text::new("ve \"x\"")));
        assert_eq!(sent.rest_of(&Text::new("other")), None);
    }
}
