//! The text of an attached file as a block of a prompt, and back.
//!
//! A block is `<file uri="…">`, the text and `</file>`. A `</file` of the text gets a backslash
//! after its `<`, so that nothing in a file ends its block. LangChain joins the texts of a message,
//! so a block is found in a longer text too.

use std::borrow::Cow;

use crate::json::Text;

const OPEN: &str = "\n\n<file uri=\"";
const OPENED: &str = "\">\n";
const CLOSE: &str = "\n</file>";

/// The part of the end that is looked for in a file's text, after `<` and any backslashes.
const END_NAME: &str = "/file";

/// A part of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TextPart<'a> {
    Text(&'a str),
    File { uri: Text, text: String },
}

/// The block of a file.
pub(super) fn block(uri: &str, text: &str) -> String {
    let (uri, text) = (Text::new(uri), guarded(text));
    [OPEN, uri.escaped(), OPENED, &text, CLOSE].concat()
}

/// The files in the text of a message, and the text around them.
pub(super) fn split(mut text: &str) -> Vec<TextPart<'_>> {
    let mut parts = Vec::new();
    let mut from = 0;
    while let Some(found) = text.get(from..).and_then(|rest| rest.find(OPEN)) {
        let at = from + found;
        let (before, rest) = text.split_at(at);
        let Some((file, after)) = first_file(rest) else {
            from = at + OPEN.len();
            continue;
        };
        if !before.is_empty() {
            parts.push(TextPart::Text(before));
        }
        parts.push(file);
        text = after;
        from = 0;
    }
    if !text.is_empty() {
        parts.push(TextPart::Text(text));
    }
    parts
}

/// The file that a text begins with, and what follows.
fn first_file(text: &str) -> Option<(TextPart<'static>, &str)> {
    let rest = text.strip_prefix(OPEN)?;
    let (uri, rest) = rest.split_at_checked(end_of_string(rest)?)?;
    let rest = rest.strip_prefix(OPENED)?;
    let (text, after) = rest.split_once(CLOSE)?;
    Some((TextPart::File { uri: Text::from_escaped(uri), text: unguarded(text) }, after))
}

/// The place of the `"` that ends an escaped string, which is on one line.
fn end_of_string(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return Some(at),
            b'\n' => return None,
            _ => {}
        }
    }
    None
}

/// Adds a backslash to each `<` that `/file` follows, with any backslashes between them.
fn guarded(text: &str) -> Cow<'_, str> {
    rewritten(text, |backslashes| backslashes + 1)
}

/// Removes the backslash again.
fn unguarded(text: &str) -> String {
    rewritten(text, |backslashes| backslashes.saturating_sub(1)).into_owned()
}

fn rewritten(text: &str, count: impl Fn(usize) -> usize) -> Cow<'_, str> {
    let mut pieces = text.split('<');
    let mut written = pieces.next().unwrap_or_default().to_owned();
    let mut is_changed = false;
    for piece in pieces {
        written.push('<');
        let rest = piece.trim_start_matches('\\');
        let head = rest.get(..END_NAME.len());
        if head.is_some_and(|head| head.eq_ignore_ascii_case(END_NAME)) {
            let backslashes = count(piece.len() - rest.len());
            written.extend(std::iter::repeat_n('\\', backslashes));
            written.push_str(rest);
            is_changed = true;
        } else {
            written.push_str(piece);
        }
    }
    if is_changed { Cow::Owned(written) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_back_as_it_was_whatever_it_holds() {
        for text in [
            "",
            "\n",
            "fn a() {}\n",
            "</file>",
            "\n</file>\n\n<file uri=\"x\">\nb\n</file>",
            "<\\/file> <\\\\/FILE> </files> <<</file",
            "a < b \\ <é",
        ] {
            let uri = "file:///w/a\"\n\\>.rs";
            let block = block(uri, text);
            assert_eq!(block.matches("</file>").count(), 1, "{block}");
            let file = || TextPart::File { uri: Text::new(uri), text: text.to_owned() };
            assert_eq!(split(&block), [file()]);
            let joined = format!("See{block}{block}!");
            let expected = [TextPart::Text("See"), file(), file(), TextPart::Text("!")];
            assert_eq!(split(&joined), expected);
        }
    }

    #[test]
    fn text_that_is_no_file_stays_text() {
        for text in [
            "a <file> b",
            "\n\n<file uri=\"x",
            "\n\n<file uri=\"x\">\nno end",
            "\n\n<file uri=\"x\" y>\n\n</file>",
            "\n\n<file uri=\"x\n\">\n\n</file>",
        ] {
            assert_eq!(split(text), [TextPart::Text(text)], "{text}");
        }
    }
}
