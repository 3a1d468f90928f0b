//! JSON that every parser accepts: no half of a surrogate pair, and no line break between tokens.
//!
//! LangGraph's servers may split a pair between two tokens. Lenient parsers join the halves again,
//! but the parsers of Rust and Python clients refuse the whole line.

use std::borrow::Cow;

use crate::json::{self, Json, Text, mend, whole_pairs};

/// A complete text, without halves of pairs.
pub(super) fn text(text: &Text) -> Cow<'_, Text> {
    match whole_pairs(text.escaped()) {
        (Cow::Borrowed(all), "") if all.len() == text.escaped().len() => Cow::Borrowed(text),
        (clean, "") => Cow::Owned(Text::from_escaped(&clean)),
        (clean, half) => Cow::Owned(Text::from_escaped(&format!("{clean}{}", mend(half)))),
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
