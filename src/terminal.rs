//! Escapes untrusted text for a terminal.

use std::borrow::Cow;

/// Escapes control characters other than line feeds and tabs: they could move the cursor, change
/// colours or query the terminal.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c.is_control() && !matches!(c, '\n' | '\t'))
}

/// Escapes all control characters, and characters that end a line or change the direction of text.
/// A name can then not disguise the text after it.
pub fn harmless_line(text: &str) -> Cow<'_, str> {
    let is_direction = |c: char| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_line_end = |c: char| matches!(c, '\u{2028}' | '\u{2029}');
    escaped(text, |c| c.is_control() || is_direction(c) || is_line_end(c))
}

/// Escapes the characters that `is_harmful` selects.
fn escaped(text: &str, is_harmful: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_harmful(character) {
            shown.extend(character.escape_default());
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
}
