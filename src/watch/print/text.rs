//! Text on a line: long values are cut, split characters are joined.

use std::borrow::Cow;

use threadway_translate::json::Text;

/// How many characters of a value are printed.
const LINE_CHARS: usize = 200;

/// Decodes text after the half of a surrogate pair that came before, and puts a half at its end
/// aside.
pub(super) fn decoded(text: &Text, half: &mut String) -> String {
    let escaped = format!("{half}{}", text.escaped());
    let whole = escaped.len() - cut_pair(&escaped);
    let (whole, cut) = escaped.split_at_checked(whole).unwrap_or((&escaped, ""));
    cut.clone_into(half);
    Text::from_escaped(whole).decode().into_owned()
}

/// The length of the first half of a surrogate pair at the end of escaped text.
fn cut_pair(escaped: &str) -> usize {
    const LENGTH: usize = r"\ud83d".len();
    let Some((before, tail)) =
        escaped.len().checked_sub(LENGTH).and_then(|at| escaped.split_at_checked(at))
    else {
        return 0;
    };
    let unit = tail.strip_prefix("\\u").and_then(|hex| u16::from_str_radix(hex, 16).ok());
    let is_half = unit.is_some_and(|unit| (0xD800..0xDC00).contains(&unit));
    // A backslash that is escaped itself does not begin an escape.
    let slashes = before.bytes().rev().take_while(|byte| *byte == b'\\').count();
    if is_half && slashes % 2 == 0 { LENGTH } else { 0 }
}

/// A value on one line, cut if it is long.
pub(super) fn one_line(text: &str) -> Cow<'_, str> {
    let end = text.char_indices().nth(LINE_CHARS).map(|(end, _)| end);
    if end.is_none() && !text.contains(['\n', '\r']) {
        return Cow::Borrowed(text);
    }
    let (kept, rest) = end.and_then(|end| text.split_at_checked(end)).unwrap_or((text, ""));
    let mut line = kept.replace('\r', "\\r").replace('\n', "\\n");
    if !rest.is_empty() {
        line.extend([".. (", &rest.chars().count().to_string(), " more)"]);
    }
    Cow::Owned(line)
}
