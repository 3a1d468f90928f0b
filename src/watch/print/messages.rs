//! Messages and tool calls: prints what is new of each, and stores what was printed.

use super::Printer;
use super::text::{decoded, one_line};
use crate::terminal::harmless;
use crate::watch::event::{Message, ToolCall};
use threadway_translate::json::{Text, TextBuf};

/// How many bytes of messages and calls are stored: as much as the largest snapshot. Beyond that
/// the oldest are dropped and would be printed again.
pub(super) const MAX_KEPT_BYTES: usize = threadway_translate::sse::MAX_EVENT_BYTES;

/// What a stored message or call counts besides its text.
const ENTRY_BYTES: usize = 256;

/// What was printed of a message.
#[derive(Debug, Default)]
pub(super) struct PrintedMessage {
    label: String,
    /// The printed text.
    text: String,
    /// How many bytes of it the current stream has sent.
    confirmed: usize,
    /// The first half of a surrogate pair, still escaped.
    half: String,
    /// Whether the last snapshot lacks it.
    pub(super) is_missing: bool,
}

/// A tool call, which is printed once.
#[derive(Debug, Default)]
pub(super) struct PrintedCall {
    name: String,
    pub(super) args: TextBuf,
    is_printed: bool,
    pub(super) is_missing: bool,
}

impl Printer {
    /// Prints what differs in a snapshot of all messages.
    pub(super) fn replace_all(&mut self, messages: &[Message], out: &mut String) {
        for message in self.messages.values_mut() {
            message.is_missing = true;
            message.confirmed = 0;
            message.half.clear();
        }
        for call in self.calls.values_mut() {
            call.is_missing = true;
            call.args = TextBuf::default();
        }
        for message in messages {
            match &*message.role {
                "activity" | "reasoning" => {}
                "tool" => {
                    self.print_call(&message.call_id, out);
                    self.result(message, out);
                }
                _ => {
                    let held = self.message(&message.id, &message.author);
                    held.half.clear();
                    let whole = decoded(&message.content, &mut held.half);
                    self.set_text(&message.id, &whole, out);
                }
            }
            for ToolCall { id, name, args } in &message.calls {
                self.stored_bytes += args.escaped().len();
                self.call(id, name).args = TextBuf::from(args);
                // An incomplete call has half an object; its end event follows.
                if is_json(&args.decode()) {
                    self.print_call(id, out);
                }
            }
        }
    }

    /// Prints what a message's whole text adds.
    fn set_text(&mut self, id: &str, whole: &str, out: &mut String) {
        let Some(message) = self.messages.get_mut(id) else { return };
        message.confirmed = whole.len();
        if message.text.starts_with(whole) {
            return;
        }
        let (is_begun, label) = (!message.text.is_empty(), message.label.clone());
        let new = whole.strip_prefix(&*message.text);
        whole.clone_into(&mut message.text);
        self.stored_bytes += whole.len();
        if new.is_none() {
            self.line(&format!("~ {label} takes that back, and now says:"), out);
        }
        self.print_text(id, new.unwrap_or(whole), is_begun && new.is_some(), out);
    }

    /// Prints what the next piece of a message adds.
    pub(super) fn append(&mut self, id: &str, delta: &Text, out: &mut String) {
        let Some(message) = self.messages.get_mut(id) else { return };
        let delta = decoded(delta, &mut message.half);
        if message.confirmed < message.text.len() {
            // The stream has started over, and sends what was printed before.
            let sent = message.text.get(..message.confirmed).unwrap_or_default();
            let whole = format!("{sent}{delta}");
            return self.set_text(id, &whole, out);
        }
        message.text.push_str(&delta);
        message.confirmed += delta.len();
        let is_continued = message.text.len() > delta.len();
        self.stored_bytes += delta.len();
        self.print_text(id, &delta, is_continued, out);
    }

    /// Prints a tool result.
    pub(super) fn result(&mut self, result: &Message, out: &mut String) {
        let content = result.content.decode();
        let name = self.calls.get(&result.call_id).map_or("", |call| &*call.name);
        let label = format!("<- {name}").trim_end().to_owned();
        let is_new = !self.messages.contains_key(&result.id);
        let message = self.message(&result.id, &label);
        message.confirmed = content.len();
        if is_new || message.text != content {
            (*content).clone_into(&mut message.text);
            let line = format!("  {}: {}", message.label, one_line(&content));
            self.stored_bytes += content.len();
            self.line(&line, out);
        }
    }

    /// Prints a tool call, unless it was printed.
    pub(super) fn print_call(&mut self, id: &str, out: &mut String) {
        let Some(call) = self.calls.get_mut(id) else { return };
        if !std::mem::replace(&mut call.is_printed, true) {
            let args = call.args.to_text();
            let line = format!("  -> {}({})", one_line(&call.name), one_line(&args.decode()));
            self.line(&line, out);
        }
    }

    /// The stored message; a new one gets this label.
    pub(super) fn message(&mut self, id: &str, label: &str) -> &mut PrintedMessage {
        let bytes = &mut self.stored_bytes;
        let message = self.messages.entry(id.to_owned()).or_insert_with(|| {
            *bytes += ENTRY_BYTES + id.len();
            PrintedMessage { label: one_line(label).into_owned(), ..PrintedMessage::default() }
        });
        message.is_missing = false;
        message
    }

    /// The stored tool call; a new one gets this name.
    pub(super) fn call(&mut self, id: &str, name: &str) -> &mut PrintedCall {
        let bytes = &mut self.stored_bytes;
        let call = self.calls.entry(id.to_owned()).or_insert_with(|| {
            *bytes += ENTRY_BYTES + id.len() + name.len();
            PrintedCall { name: name.to_owned(), ..PrintedCall::default() }
        });
        call.is_missing = false;
        call
    }

    /// Drops the oldest messages if all together exceed the limit, down to half of it, so that this
    /// is rare. Calls are dropped if they alone exceed a quarter.
    pub(super) fn drop_oldest(&mut self) {
        if self.stored_bytes <= MAX_KEPT_BYTES {
            return;
        }
        let of_message = |(id, message): (&String, &PrintedMessage)| {
            ENTRY_BYTES + id.len() + message.text.len() + message.label.len()
        };
        let of_call = |(id, call): (&String, &PrintedCall)| {
            ENTRY_BYTES + id.len() + call.name.len() + call.args.escaped().len()
        };
        let mut bytes: usize = self.messages.iter().map(of_message).sum();
        let oldest = self.messages.iter().take_while(|entry| {
            let is_over = bytes > MAX_KEPT_BYTES / 2;
            bytes -= if is_over { of_message(*entry) } else { 0 };
            is_over
        });
        let count = oldest.count();
        self.messages.drain(..count);
        let of_calls: usize = self.calls.iter().map(of_call).sum();
        self.stored_bytes = bytes + of_calls;
        if of_calls > MAX_KEPT_BYTES / 4 {
            self.calls.clear();
            self.stored_bytes = bytes;
        }
    }

    /// Prints a piece of a message, on the message's line if that is the last one.
    fn print_text(&mut self, id: &str, text: &str, is_continued: bool, out: &mut String) {
        let Some(message) = self.messages.get(id).filter(|_| !text.is_empty()) else { return };
        let label = harmless(&message.label).into_owned();
        if self.open_message.as_deref() != Some(id) {
            self.begin_line(out);
            out.extend([&*label, ": ", if is_continued { ".." } else { "" }]);
            self.open_message = Some(id.to_owned());
        }
        out.push_str(&harmless(text));
        self.is_line_empty = text.ends_with('\n');
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}
