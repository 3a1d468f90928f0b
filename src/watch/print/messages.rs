//! Messages and tool calls: prints what is new of each, and stores what was printed.

use std::collections::HashSet;

use indexmap::IndexMap;

use super::text::{decoded, one_line};
use super::{
    ENTRY_BYTES, MAX_KEPT_BYTES, MessageKind, PrintedCall, PrintedMessage, Printer, Style,
};
use crate::watch::event::{Message, Speaker};
use threadway_translate::json::{self, Text, TextBuf};

impl Printer {
    /// Prints what differs in a snapshot of all messages.
    pub(super) fn replace_all(&mut self, messages: &[Message], out: &mut String) {
        let is_fresh = std::mem::take(&mut self.is_fresh);
        for message in self.messages.values_mut() {
            // A client keeps reasoning that a snapshot lacks, unless the stream starts over.
            if message.kind != MessageKind::Thought || is_fresh {
                message.is_missing = true;
                message.confirmed = 0;
                message.half.clear();
            }
        }
        for call in self.calls.values_mut() {
            call.is_missing = true;
            call.args = TextBuf::default();
        }
        let answered: HashSet<_> = messages.iter().filter_map(|m| m.call_id.as_deref()).collect();
        for message in messages {
            let Message { id, speaker, content, calls, call_id, activity } = message;
            let empty = Text::new("");
            let content = content.as_ref().unwrap_or(&empty);
            match &*speaker.role {
                "activity" => {
                    if let Some(activity) = activity {
                        self.activity(id, activity, out);
                    }
                }
                "tool" => {
                    let call_id = call_id.as_deref().unwrap_or_default();
                    self.result(id, call_id, &content.decode(), out);
                }
                "reasoning" => {
                    let label = self.with_subagent("thinking", speaker.subagent.as_deref());
                    self.set_text(id, MessageKind::Thought, label, content, out);
                }
                _ => {
                    let label = self.label(speaker);
                    self.set_text(id, MessageKind::Speech, label, content, out);
                }
            }
            for call in calls {
                let label = self.with_subagent("->", speaker.subagent.as_deref());
                self.stored_bytes += call.args.escaped().len();
                let known = self.call(&call.id, &call.name, label);
                known.args = TextBuf::from(&call.args);
                // An incomplete call has half an object; its end event follows.
                if answered.contains(&*call.id) || is_json(&call.args.decode()) {
                    self.print_call(&call.id, out);
                }
            }
        }
    }

    /// Prints what a message's whole text adds.
    fn set_text(
        &mut self,
        id: &str,
        kind: MessageKind,
        label: String,
        text: &Text,
        out: &mut String,
    ) {
        let message = self.message(id, kind, label);
        message.half.clear();
        let whole = decoded(text, &mut message.half);
        if whole.starts_with(&*message.text) {
            let at = message.text.len();
            message.confirmed = whole.len();
            let new = whole.get(at..).unwrap_or_default();
            message.text.push_str(new);
            self.stored_bytes += new.len();
            self.print_text(id, new, at > 0, out);
        } else if message.text.starts_with(&whole) {
            message.confirmed = whole.len();
        } else {
            self.replace_text(id, &whole, out);
        }
    }

    /// Prints what the next piece of a message adds.
    pub(super) fn append(&mut self, id: &str, delta: &Text, out: &mut String) {
        let Some(message) = self.messages.get_mut(id) else { return };
        let delta = decoded(delta, &mut message.half);
        let (sent, ahead) =
            message.text.split_at_checked(message.confirmed).unwrap_or((&message.text, ""));
        if ahead.starts_with(&delta) {
            message.confirmed += delta.len();
        } else if delta.starts_with(ahead) {
            let at = message.text.len();
            let new = delta.get(ahead.len()..).unwrap_or_default();
            message.text.push_str(new);
            message.confirmed = message.text.len();
            self.stored_bytes += new.len();
            self.print_text(id, new, at > 0, out);
        } else {
            let whole = format!("{sent}{delta}");
            self.replace_text(id, &whole, out);
        }
    }

    /// Replaces the text of a message, and says so.
    fn replace_text(&mut self, id: &str, whole: &str, out: &mut String) {
        let Some(message) = self.messages.get_mut(id) else { return };
        let label = message.label.clone();
        self.stored_bytes += whole.len();
        message.confirmed = whole.len();
        whole.clone_into(&mut message.text);
        self.line(Style::Yellow, &format!("~ {label} takes that back, and now says:"), out);
        self.print_text(id, whole, false, out);
    }

    /// Prints a tool result.
    pub(super) fn result(&mut self, id: &str, call_id: &str, content: &str, out: &mut String) {
        let label = match self.calls.get(call_id) {
            Some(PrintedCall { name, .. }) => format!("<- {}", one_line(name)),
            None => "<-".to_owned(),
        };
        let is_new = !self.messages.contains_key(id);
        let message = self.message(id, MessageKind::Result, label);
        message.confirmed = content.len();
        if is_new || message.text != content {
            content.clone_into(&mut message.text);
            let line = format!("  {}: {}", message.label, one_line(content));
            self.stored_bytes += content.len();
            self.line(Style::Plain, &line, out);
        }
    }

    /// Prints a tool call, unless it was printed with the same arguments.
    pub(super) fn print_call(&mut self, id: &str, out: &mut String) {
        let Some(call) = self.calls.get_mut(id) else { return };
        let args = call.args.to_text().decode().into_owned();
        let is_known = call.printed.as_ref().is_some_and(|old| json::same(old, &args));
        if is_known || call.is_missing {
            return;
        }
        let change = if call.printed.is_some() { " (changed)" } else { "" };
        let PrintedCall { label, name, .. } = &*call;
        let line = format!("  {label} {}({}){change}", one_line(name), one_line(&args));
        call.printed = Some(args);
        self.line(Style::Plain, &line, out);
    }

    /// The stored message; a new one gets this label.
    pub(super) fn message(
        &mut self,
        id: &str,
        kind: MessageKind,
        label: String,
    ) -> &mut PrintedMessage {
        if !self.messages.contains_key(id) {
            self.stored_bytes += ENTRY_BYTES + id.len();
        }
        let new = || PrintedMessage { label, kind, ..PrintedMessage::default() };
        let message = self.messages.entry(id.to_owned()).or_insert_with(new);
        message.is_missing = false;
        message
    }

    /// The stored tool call; a new one gets this name and label.
    pub(super) fn call(&mut self, id: &str, name: &str, label: String) -> &mut PrintedCall {
        if !self.calls.contains_key(id) {
            self.stored_bytes += ENTRY_BYTES + id.len() + name.len();
        }
        let new = || PrintedCall { label, name: name.to_owned(), ..PrintedCall::default() };
        let call = self.calls.entry(id.to_owned()).or_insert_with(new);
        call.is_missing = false;
        call
    }

    pub(super) fn label(&self, speaker: &Speaker) -> String {
        let Speaker { role, name, subagent } = speaker;
        let subagent = subagent.as_deref();
        match name {
            // LangGraph gives a subagent's messages its name.
            Some(name) if subagent.and_then(|id| self.subagents.get(id)) != Some(name) => {
                self.with_subagent(&format!("{} ({})", one_line(role), one_line(name)), subagent)
            }
            Some(_) | None => self.with_subagent(&one_line(role), subagent),
        }
    }

    /// A label with the name of the subagent, if there is one.
    pub(super) fn with_subagent(&self, label: &str, subagent: Option<&str>) -> String {
        match subagent {
            Some(id) => {
                let name = self.subagents.get(id).map_or(id, String::as_str);
                format!("{label} [{}]", one_line(name))
            }
            None => label.to_owned(),
        }
    }

    pub(super) fn drop_oldest(&mut self) {
        if self.stored_bytes <= MAX_KEPT_BYTES {
            return;
        }
        let messages = keep_newest(&mut self.messages, |message| {
            message.text.len() + message.label.len() + message.half.len()
        });
        let calls = keep_newest(&mut self.calls, |call| {
            let printed = call.printed.as_ref().map_or(0, String::len);
            call.name.len() + call.label.len() + call.args.escaped().len() + printed
        });
        self.stored_bytes = messages + calls;
    }
}

/// Drops the oldest entries if all together exceed the limit, down to half of it, so that this is
/// rare. Returns the bytes that are left.
fn keep_newest<T>(entries: &mut IndexMap<String, T>, weigh: impl Fn(&T) -> usize) -> usize {
    let weigh = |(id, entry): (&String, &T)| ENTRY_BYTES + id.len() + weigh(entry);
    let mut bytes: usize = entries.iter().map(weigh).sum();
    if bytes <= MAX_KEPT_BYTES {
        return bytes;
    }
    let mut dropped = 0;
    for entry in &*entries {
        if bytes <= MAX_KEPT_BYTES / 2 {
            break;
        }
        bytes -= weigh(entry);
        dropped += 1;
    }
    entries.drain(..dropped);
    bytes
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}
