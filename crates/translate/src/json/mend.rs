//! Escapes in JSON that not every parser or server takes: halves of surrogate pairs, and U+0000.
//!
//! A server may split a pair between two tokens, and a page may cut its text in the middle of a
//! pair. Lenient parsers keep the half, but those of Rust and Python refuse the whole document.
//! `PostgreSQL` stores no U+0000, and LangGraph's Python server replaces it.
//!
//! [`mend_numbers`] replaces numbers that JSON does not have.

use std::borrow::Cow;

use memchr::memmem;

use super::string_end;

/// The replacement for such an escape: U+FFFD.
const REPLACEMENT: &str = "\\ufffd";

/// The numbers that JSON does not have, as Python and JavaScript write them.
const NAN: &str = "NaN";
const INFINITY: &str = "Infinity";

/// The length of an escape such as `\ud83d`.
const ESCAPE_BYTES: usize = 6;

/// A JSON document, or a part of one, in which each half of a surrogate pair without its other half
/// and each U+0000 is U+FFFD. Everything else keeps its bytes.
///
/// ```
/// use threadway_translate::json::mend;
///
/// assert_eq!(mend(r#""cut: \ud83d""#), r#""cut: \ufffd""#);
/// assert_eq!(mend(r#""\ud83d\ude00""#), r#""\ud83d\ude00""#);
/// ```
pub fn mend(json: &str) -> Cow<'_, str> {
    let (mended, half) = replaced(json, |unit| unit == 0);
    if half.is_empty() {
        return mended;
    }
    let mut mended = mended.into_owned();
    mended.push_str(REPLACEMENT);
    Cow::Owned(mended)
}

/// The same for a body that was received. Bytes that are no text stay as they are.
pub fn mend_bytes(json: &[u8]) -> Cow<'_, [u8]> {
    // Most bodies have no such escape, and a search is faster than the check of UTF-8.
    if memmem::find(json, b"\\u").is_none() {
        return Cow::Borrowed(json);
    }
    match std::str::from_utf8(json).map(mend) {
        Ok(Cow::Owned(mended)) => Cow::Owned(mended.into_bytes()),
        Ok(Cow::Borrowed(_)) | Err(_) => Cow::Borrowed(json),
    }
}

/// A document in which each `NaN`, `Infinity` and `-Infinity` is null, as LangGraph's own server writes
/// them. No parser of JSON takes them, but Python's `json.dumps` writes them. `None` if it has none.
pub fn mend_numbers(json: &str) -> Option<String> {
    let has = |word: &str| memmem::find(json.as_bytes(), word.as_bytes()).is_some();
    if !has(NAN) && !has(INFINITY) {
        return None;
    }
    let mut mended = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = memchr::memchr3(b'"', b'N', b'I', rest.as_bytes()) {
        let (before, from) = rest.split_at_checked(at)?;
        let word = [NAN, INFINITY].into_iter().find(|word| from.starts_with(word));
        let end = if let Some(word) = word {
            mended.push_str(before.strip_suffix('-').unwrap_or(before));
            mended.push_str("null");
            word.len()
        } else {
            let end = if from.starts_with('"') { string_end(from) } else { 1 };
            mended.push_str(rest.get(..at + end)?);
            end
        };
        rest = from.get(end..)?;
    }
    mended.push_str(rest);
    (mended != json).then_some(mended)
}

/// Escaped text without halves of pairs, and the half that the text ends with. The other half may
/// follow in the next token.
pub(crate) fn whole_pairs(escaped: &str) -> (Cow<'_, str>, &str) {
    replaced(escaped, |_| false)
}

/// Replaces each half of a pair, and each other UTF-16 unit that `is_unfit`. Also returns the first
/// half of a pair that the text ends with, which is not part of the replaced text.
fn replaced(escaped: &str, is_unfit: impl Fn(u16) -> bool) -> (Cow<'_, str>, &str) {
    let slice = |from: usize, to: usize| escaped.get(from..to).unwrap_or_default();
    let mut clean = String::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(found) = memchr::memchr(b'\\', slice(at, escaped.len()).as_bytes()) {
        at += found;
        let is_replaced = match unit_at(escaped, at) {
            None => {
                at += 2;
                continue;
            }
            Some(0xd800..=0xdbff) => match unit_at(escaped, at + ESCAPE_BYTES) {
                Some(0xdc00..=0xdfff) => {
                    at += 2 * ESCAPE_BYTES;
                    continue;
                }
                _ if at + ESCAPE_BYTES >= escaped.len() => {
                    let half = slice(at, escaped.len());
                    if clean.is_empty() {
                        return (Cow::Borrowed(slice(copied, at)), half);
                    }
                    clean.push_str(slice(copied, at));
                    return (Cow::Owned(clean), half);
                }
                _ => true,
            },
            Some(0xdc00..=0xdfff) => true,
            Some(unit) => is_unfit(unit),
        };
        if is_replaced {
            clean.push_str(slice(copied, at));
            clean.push_str(REPLACEMENT);
            copied = at + ESCAPE_BYTES;
        }
        at += ESCAPE_BYTES;
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
    // The parser of numbers would take a sign.
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u16::from_str_radix(digits, 16).ok().filter(|_| is_hex)
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
            ("\\u0000", "\\u0000", ""),
        ];
        for (escaped, clean, half) in cases {
            assert_eq!(whole_pairs(escaped), (Cow::Borrowed(clean), half), "{escaped}");
        }
    }

    #[test]
    fn numbers_that_json_does_not_have_become_null() {
        for (json, mended) in [
            (r#"{"a":NaN,"b":[Infinity,-Infinity, -1]}"#, r#"{"a":null,"b":[null,null, -1]}"#),
            (r#"{"NaN":"\"NaN","b":NaN}"#, r#"{"NaN":"\"NaN","b":null}"#),
            ("NaN", "null"),
            ("-Infinity", "null"),
        ] {
            assert_eq!(mend_numbers(json).as_deref(), Some(mended));
        }
        for whole in [r#"{"a":"NaN -Infinity"}"#, "{}", r#"["NaN"#, "N", "I"] {
            assert_eq!(mend_numbers(whole), None, "{whole}");
        }
    }

    #[test]
    fn what_no_server_stores_is_replaced_anywhere_in_a_document() {
        for (json, mended) in [
            (r#"{"a":["\ud83d"]}"#, r#"{"a":["\ufffd"]}"#),
            (r#"{"\uDE00\uD83D":"\u0000x"}"#, r#"{"\ufffd\ufffd":"\ufffdx"}"#),
            (r#"["\ud83d\u0041","\ud83d","\ude00"]"#, r#"["\ufffd\u0041","\ufffd","\ufffd"]"#),
            (r#"{"a": 1.10, "b":"\ud83d\ude00 \\u0000 \\ud83d 😀"}"#, ""),
            (r#""\ud83"#, ""),
            ("\"\\u+000\"", ""),
        ] {
            let expected = if mended.is_empty() { json } else { mended };
            assert_eq!(mend(json), expected);
            assert_eq!(&*mend_bytes(json.as_bytes()), expected.as_bytes());
        }
        assert_eq!(mend("a\\ud83d"), "a\\ufffd");
        let no_text = b"\"\xff\\ud83d\"";
        assert_eq!(&*mend_bytes(no_text), no_text);
    }
}
