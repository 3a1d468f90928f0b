//! JSON that every parser accepts: no half of a surrogate pair, and no line break between tokens.
//!
//! LangGraph's servers may split a pair between two tokens. Lenient parsers join the halves again,
//! but the parsers of Rust and Python clients refuse the whole line.

use std::borrow::Cow;

use crate::json::{self, Json, Text};

/// The replacement for half a pair without its other half.
const REPLACEMENT: &str = "\\ufffd";

/// The length of an escape such as `\ud83d`.
const ESCAPE_BYTES: usize = 6;

/// Escaped text without halves of pairs, and the half that the text ends with. The other half may
/// follow in the next token.
pub(super) fn whole_pairs(escaped: &str) -> (Cow<'_, str>, &str) {
    if !escaped.contains('\\') {
        return (Cow::Borrowed(escaped), "");
    }
    let mut clean = String::new();
    let (mut copied, mut at) = (0, 0);
    let slice = |from: usize, to: usize| escaped.get(from..to).unwrap_or_default();
    while let Some(found) = slice(at, escaped.len()).find('\\') {
        at += found;
        match unit_at(escaped, at) {
            None => at += 2,
            Some(0xd800..=0xdbff) => match unit_at(escaped, at + ESCAPE_BYTES) {
                Some(0xdc00..=0xdfff) => at += 2 * ESCAPE_BYTES,
                _ if at + ESCAPE_BYTES >= escaped.len() => {
                    let half = slice(at, escaped.len());
                    if clean.is_empty() {
                        return (Cow::Borrowed(slice(copied, at)), half);
                    }
                    clean.push_str(slice(copied, at));
                    return (Cow::Owned(clean), half);
                }
                _ => {
                    clean.push_str(slice(copied, at));
                    clean.push_str(REPLACEMENT);
                    at += ESCAPE_BYTES;
                    copied = at;
                }
            },
            Some(0xdc00..=0xdfff) => {
                clean.push_str(slice(copied, at));
                clean.push_str(REPLACEMENT);
                at += ESCAPE_BYTES;
                copied = at;
            }
            Some(_) => at += ESCAPE_BYTES,
        }
    }
    if copied == 0 {
        return (Cow::Borrowed(escaped), "");
    }
    clean.push_str(slice(copied, escaped.len()));
    (Cow::Owned(clean), "")
}

/// The UTF-16 unit whose escape begins at a byte.
fn unit_at(escaped: &str, at: usize) -> Option<u16> {
    let digits = escaped.get(at..at + ESCAPE_BYTES)?.strip_prefix("\\u")?;
    u16::from_str_radix(digits, 16).ok()
}

/// A complete text, without halves of pairs.
pub(super) fn text(text: &Text) -> Cow<'_, Text> {
    match whole_pairs(text.escaped()) {
        (Cow::Borrowed(all), "") if all.len() == text.escaped().len() => Cow::Borrowed(text),
        (clean, "") => Cow::Owned(Text::from_escaped(&clean)),
        (clean, _) => Cow::Owned(Text::from_escaped(&format!("{clean}{REPLACEMENT}"))),
    }
}

/// Text as one JSON value on one line. `None` if it is not JSON that every parser accepts, or if it
/// is `null`, which the protocol treats as absent.
pub(super) fn value(text: &str) -> Option<Json> {
    // A JSON document cannot end with an escape, so no half is left at its end.
    let (clean, _) = whole_pairs(text);
    // The tree is dropped. Only parsing one checks the depth of nesting and the range of numbers.
    let tree: serde_json::Value = serde_json::from_str(&clean).ok()?;
    if tree.is_null() {
        return None;
    }
    let mut line = String::new();
    json::compact(clean.trim(), &mut line);
    Some(json::raw(line))
}

/// Text as a JSON object, if it is one. The schema of `rawOutput` allows any value, but Toad drops an
/// update whose `rawOutput` is not an object.
pub(super) fn object(text: &Text) -> Option<Json> {
    value(&text.decode()).filter(|value| value.get().starts_with('{'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_replaced_and_the_last_is_held_back() {
        let cases = [
            ("plain", "plain", ""),
            ("\\n\\ud83d\\ude00", "\\n\\ud83d\\ude00", ""),
            ("a\\ud83d", "a", "\\ud83d"),
            ("a\\ud83db", "a\\ufffdb", ""),
            ("\\ude00b", "\\ufffdb", ""),
            ("\\ude00\\ud83d", "\\ufffd", "\\ud83d"),
            ("\\ud83d\\ud83d\\ude00", "\\ufffd\\ud83d\\ude00", ""),
            ("\\\\ud83d", "\\\\ud83d", ""),
            ("\\\\\\ud83dé", "\\\\\\ufffdé", ""),
        ];
        for (escaped, clean, half) in cases {
            assert_eq!(whole_pairs(escaped), (Cow::Borrowed(clean), half), "{escaped}");
        }
    }

    #[test]
    fn only_an_object_that_every_parser_accepts_is_one() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(1000), "]".repeat(1000));
        let cases = [
            ("{\"a\": 1.10,\n \"b\": [1]}", Some(r#"{"a":1.10,"b":[1]}"#)),
            (r#"{"a":"\ud83d"}"#, Some(r#"{"a":"\ufffd"}"#)),
            ("{\"a\":1e999}", None),
            ("{\"a\":", None),
            (&deep, None),
            ("[1]", None),
            ("1", None),
            ("\"sunny\"", None),
            ("sunny", None),
            ("null", None),
        ];
        for (text, expected) in cases {
            let object = object(&Text::new(text));
            assert_eq!(object.as_ref().map(|object| object.get()), expected, "{text}");
        }
    }
}
