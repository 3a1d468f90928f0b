//! The text of one message, as the editor was sent it.

use crc32fast::Hasher;
use serde_json::value::RawValue;

use super::Verdict;
use crate::bridge::message;
use threadway_translate::json::{self, Json};

/// The text of one message. Content that is not text counts as a text too: its JSON.
#[derive(Debug, Default)]
pub(in crate::bridge) struct SeenText {
    /// How many bytes were passed on, and their checksum.
    bytes: usize,
    sum: Hasher,
    /// The same of what this connection has sent. Less than `bytes` while it repeats the text.
    repeated: usize,
    repeated_sum: Hasher,
    /// The repeated updates: they are passed on after all if the text proves to be another one.
    held: Vec<Json>,
    /// How many times the text was another one. Then it has an id of its own.
    revision: u32,
}

// === impl SeenText ===

impl SeenText {
    /// A new connection is about to repeat the text.
    pub(super) fn repeat(&mut self) {
        (self.repeated, self.repeated_sum) = (0, Hasher::new());
        self.held.clear();
    }

    /// Decides about a chunk of the message.
    pub(super) fn take(&mut self, id: &str, update: &RawValue) -> Verdict {
        let members = json::members(update).unwrap_or_default();
        let content = members.get("content");
        let text = content.and_then(json::members).and_then(|content| content.string("text"));
        let whole = text.as_deref().or_else(|| content.map(RawValue::get)).unwrap_or_default();
        if self.repeated == self.bytes {
            self.push(whole);
            if self.revision == 0 {
                return Verdict::Pass;
            }
            return Verdict::Instead(vec![self.renamed(id, update)]);
        }
        let known = self.bytes - self.repeated;
        if whole.len() < known {
            self.repeated += whole.len();
            self.repeated_sum.update(whole.as_bytes());
            self.held.push(Json::from(update));
            return Verdict::Instead(Vec::new());
        }
        let Some((again, rest)) = whole.split_at_checked(known) else {
            return self.restart(id, update);
        };
        self.repeated_sum.update(again.as_bytes());
        if self.repeated_sum.clone().finalize() != self.sum.clone().finalize() {
            return self.restart(id, update);
        }
        self.held.clear();
        self.repeated = self.bytes;
        if rest.is_empty() {
            return Verdict::Instead(Vec::new());
        }
        let (Some(content), Some(_)) = (content, &text) else {
            // A part of a picture is no picture.
            return self.restart(id, update);
        };
        let content = message::with_text(content, "text", rest);
        self.push(rest);
        let rest = json::with_member(update, "content", &content);
        Verdict::Instead(vec![self.renamed(id, &rest)])
    }

    fn push(&mut self, text: &str) {
        self.bytes += text.len();
        self.sum.update(text.as_bytes());
        self.repeated = self.bytes;
    }

    /// The text is another one than the editor has. ACP cannot retract text, so the whole text is
    /// passed on under an id of its own.
    fn restart(&mut self, id: &str, update: &RawValue) -> Verdict {
        self.revision += 1;
        let mut held = std::mem::take(&mut self.held);
        held.push(Json::from(update));
        (self.bytes, self.sum) = (0, Hasher::new());
        for update in &held {
            let content = json::members(update).and_then(|members| members.get("content"));
            let text = content.and_then(json::members).and_then(|content| content.string("text"));
            let text = text.as_deref().or_else(|| content.map(RawValue::get)).unwrap_or_default();
            self.push(text);
        }
        Verdict::Instead(held.iter().map(|update| self.renamed(id, update)).collect())
    }

    fn renamed(&self, id: &str, update: &RawValue) -> Json {
        if self.revision == 0 {
            return Json::from(update);
        }
        message::with_text(update, "messageId", &format!("{id}~{}", self.revision))
    }
}
