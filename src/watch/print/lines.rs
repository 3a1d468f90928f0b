//! Lines on the terminal: labels, colours, and text that continues on its line.

use super::{MessageKind, Printer};
use crate::terminal::harmless;

/// The style of a text on a terminal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Style {
    Plain,
    Dim,
    Bold,
    Red,
    Yellow,
}

impl Printer {
    /// Prints a piece of a message, on the message's line if that is the last one.
    pub(super) fn print_text(
        &mut self,
        id: &str,
        text: &str,
        is_continued: bool,
        out: &mut String,
    ) {
        let Some(message) = self.messages.get(id).filter(|_| !text.is_empty()) else { return };
        let (kind, label) = (message.kind, message.label.clone());
        let style = if kind == MessageKind::Thought { Style::Dim } else { Style::Plain };
        let is_new_line = self.open_message.as_deref() != Some(id);
        if is_new_line {
            self.begin_line(out);
            let more = if is_continued { ".." } else { "" };
            self.paint(style, &format!("{label}: {more}"), out);
            self.open_message = Some(id.to_owned());
        }
        let mut is_labelled = is_new_line;
        for piece in text.split_inclusive('\n') {
            // Without colours each line of a thought needs its label.
            if self.is_line_empty && kind == MessageKind::Thought && !is_labelled {
                self.paint(style, &format!("{label}: "), out);
            }
            is_labelled = false;
            let (words, is_ended) = match piece.strip_suffix('\n') {
                Some(words) => (words, true),
                None => (piece, false),
            };
            self.paint(style, words, out);
            out.push_str(if is_ended { "\n" } else { "" });
            self.is_line_empty = is_ended;
        }
    }

    pub(super) fn line(&mut self, style: Style, line: &str, out: &mut String) {
        self.begin_line(out);
        self.paint(style, line, out);
        out.push('\n');
    }

    pub(super) fn begin_line(&mut self, out: &mut String) {
        self.end_line(out);
        if let Some(heading) = self.heading.take() {
            self.paint(Style::Bold, &heading, out);
            out.push('\n');
        }
    }

    pub(super) fn end_line(&mut self, out: &mut String) {
        if self.open_message.take().is_some() && !self.is_line_empty {
            out.push('\n');
        }
        self.is_line_empty = false;
    }

    fn paint(&self, style: Style, text: &str, out: &mut String) {
        let code = match style {
            Style::Plain => "",
            Style::Dim => "2",
            Style::Bold => "1",
            Style::Red => "31",
            Style::Yellow => "33",
        };
        let is_painted = self.has_colours && !code.is_empty() && !text.is_empty();
        if is_painted {
            out.extend(["\x1b[", code, "m"]);
        }
        out.push_str(&harmless(text));
        if is_painted {
            out.push_str("\x1b[0m");
        }
    }
}
