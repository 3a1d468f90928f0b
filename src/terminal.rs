//! Escapes untrusted text for a terminal.

use std::borrow::Cow;

/// Escapes what a terminal would interpret or what changes the order of a line, other than line
/// feeds and tabs. Text of every language stays as it is, with its direction marks.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    escaped(text, |c| reorders(c) || is_control(c) && !matches!(c, '\n' | '\t'), as_rust)
}

/// The same for a JSON document on one line. Its value stays the same.
pub(crate) fn harmless_json(json: &str) -> Cow<'_, str> {
    // Outside of strings JSON has no such characters, apart from white space.
    escaped(
        json,
        |c| reorders(c) || is_control(c) && !matches!(c, '\n' | '\r' | '\t'),
        |c, shown| {
            shown.extend(["\\u", &format!("{:04x}", u32::from(c))]);
        },
    )
}

/// Escapes all control characters, and characters that end a line or change the direction of text.
/// A name can then not disguise the text after it.
pub fn harmless_line(text: &str) -> Cow<'_, str> {
    let is_mark = |c: char| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}');
    escaped(text, |c| reorders(c) || is_control(c) || is_mark(c), as_rust)
}

/// Characters that a terminal may interpret: the control characters, and those that end a line.
fn is_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Characters that reorder the text after them: embeddings, overrides, isolates, and the deprecated
/// controls of mirroring and shaping.
fn reorders(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}')
}

/// Appends a character as an escape of Rust, such as `\u{9b}`.
fn as_rust(c: char, shown: &mut String) {
    shown.extend(c.escape_default());
}

/// Escapes the characters that `is_harmful` selects.
fn escaped(
    text: &str,
    is_harmful: impl Fn(char) -> bool,
    escape: impl Fn(char, &mut String),
) -> Cow<'_, str> {
    if !text.contains(&is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_harmful(character) {
            escape(character, &mut shown);
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_a_line_and_says_what_it_says() {
        for (text, expected) in [
            ("agent", "agent"),
            ("\u{fc}ber \u{1f600}", "\u{fc}ber \u{1f600}"),
            ("a\u{1b}[2Jb", r"a\u{1b}[2Jb"),
            ("a\r\nthreadway: listening", r"a\r\nthreadway: listening"),
            ("a\tb\u{9b}31m\u{7f}", r"a\tb\u{9b}31m\u{7f}"),
            ("a\u{202e}b\u{2066}c\u{2028}d", r"a\u{202e}b\u{2066}c\u{2028}d"),
        ] {
            assert_eq!(harmless_line(text), expected);
        }
    }

    #[test]
    fn text_and_json_have_nothing_that_a_terminal_interprets() {
        let languages = "\u{5e9}\u{200f}\u{645}\u{4f60}\u{f1} \u{1f469}\u{200d}\u{1f467}\n\t";
        assert_eq!(harmless(languages), languages);
        for c in ('\0'..='\u{ffff}').filter(|c| !matches!(c, '\n' | '\t')) {
            let is_harmful = reorders(c) || is_control(c);
            assert_eq!(harmless(&c.to_string()).contains(c), !is_harmful, "{c:?}");
            // What serde_json leaves as it is.
            let json = serde_json::to_string(&format!("a{c}b")).unwrap();
            let shown = harmless_json(&json);
            assert_eq!(shown.contains(c), !is_harmful, "{c:?}");
            assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), format!("a{c}b"));
        }
        let spaced = "{\"a\":\t1,\r \"b\": \"\u{9b}\"}";
        assert_eq!(harmless_json(spaced), "{\"a\":\t1,\r \"b\": \"\\u009b\"}");
    }
}
