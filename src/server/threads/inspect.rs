//! What a thread holds, as CopilotKit's inspector reads it: its messages, its state, its events.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::super::wire::{Encoder, Outgoing, Wire};
use crate::threads::ThreadReader;
use threadway_translate::agui::{Client, Projector};
use threadway_translate::json::{self, Json, Members, ObjectWriter};

/// The AG-UI events of a thread at rest, one a line.
#[derive(Debug)]
pub(in crate::server) struct Told(Bytes);

// === impl Told ===

impl Told {
    /// Reads a thread at rest to its end, for a client that holds nothing.
    pub(in crate::server) async fn read(mut reader: ThreadReader, client: Client) -> Self {
        let mut encoder = Encoder::new(Wire::Ndjson, Projector::new(client, Vec::new()));
        let (mut out, mut all) = (Outgoing::default(), Vec::new());
        while let Some(batch) = reader.next().await {
            encoder.encode(&batch, &mut out);
            out.by_ref().for_each(|bytes| all.extend_from_slice(&bytes));
        }
        Self(all.into())
    }

    /// Each event.
    fn events(&self) -> impl DoubleEndedIterator<Item = &str> {
        let text = std::str::from_utf8(&self.0).unwrap_or_default();
        text.lines().filter(|line| !line.is_empty())
    }

    /// A member of the last event of a type.
    pub(in crate::server) fn last(&self, kind: &str, member: &str) -> Option<&RawValue> {
        self.events().rev().find_map(|event| {
            let members: Members<'_> = serde_json::from_str(event).ok()?;
            if members.string("type").as_deref() != Some(kind) {
                return None;
            }
            members.get(member)
        })
    }

    /// The messages, in AG-UI's form.
    pub(in crate::server) fn messages(&self) -> Vec<&RawValue> {
        let messages = self.last("MESSAGES_SNAPSHOT", "messages");
        messages.and_then(json::items).unwrap_or_default()
    }

    /// `{"messages": [..]}`
    pub(super) fn inspected_messages(&self) -> Json {
        let messages: Vec<_> = self.messages().into_iter().filter_map(inspected).collect();
        let messages = json::array(messages.iter().map(|message| message.get()));
        ObjectWriter::new().raw("messages", messages.get()).finish()
    }

    /// `{"events": [..]}`
    pub(super) fn inspected_events(&self) -> Json {
        ObjectWriter::new().raw("events", json::array(self.events()).get()).finish()
    }

    /// `{"state": ..}`
    pub(super) fn inspected_state(&self) -> Json {
        let state = self.last("STATE_SNAPSHOT", "snapshot");
        ObjectWriter::new().raw("state", state.map_or("null", RawValue::get)).finish()
    }
}

/// A message as CopilotKit's inspector shows it.
fn inspected(message: &RawValue) -> Option<Json> {
    let members = json::members(message)?;
    let mut told = ObjectWriter::new();
    for name in ["id", "role", "content", "toolCallId"] {
        if let Some(value) = members.get(name) {
            told = told.raw(name, value.get());
        }
    }
    let calls = members.get("toolCalls").and_then(json::items).unwrap_or_default();
    let calls: Vec<_> = calls.into_iter().filter_map(call).collect();
    if !calls.is_empty() {
        told = told.raw("toolCalls", json::array(calls.iter().map(|call| call.get())).get());
    }
    Some(told.finish())
}

fn call(call: &RawValue) -> Option<Json> {
    let members = json::members(call)?;
    let function = json::members(members.get("function")?)?;
    let told = ObjectWriter::new()
        .raw("id", members.get("id")?.get())
        .raw("name", function.get("name")?.get())
        .raw("args", function.get("arguments")?.get());
    Some(told.finish())
}
