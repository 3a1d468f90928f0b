//! Writes the events of one run for one client.

use std::fmt::{self, Write as _};

use super::outgoing::{Outgoing, SharedPart};
use super::unread::TRACKED_FROM;
use super::wire::{SEPARATOR, Wire};
use crate::random;
use crate::runs::{Batch, ENCODINGS, EventKey};
use threadway_translate::agui::{Client, ClientMessages, Projector, ProtoEncoder, Version};
use threadway_translate::buffer;
use threadway_translate::json::Json;
use threadway_translate::run::{EmitOptions, Id, RunEvent};
use threadway_translate::sse;

/// Writes the events of one run for one client.
#[derive(Debug)]
pub struct Encoder {
    wire: Wire,
    projector: Projector,
    /// The event that is being written. Empty between two events.
    json: Vec<u8>,
    proto: ProtoEncoder,
    /// The run's id, as the ids of its events contain it.
    run_id: Option<Id>,
    ids: Ids,
    /// The id of the event that is being written.
    id: String,
    /// How many bytes were encoded, without those that another stream had encoded.
    encoded_bytes: u64,
    /// Whether an SSE comment before each run event names it.
    has_comments: bool,
}

/// Which ids the events of a stream have.
#[derive(Debug)]
enum Ids {
    /// None.
    None,
    /// An event that can be resumed has an id of its own. Any other event has a one-time id.
    All(OneTimeIds),
}

/// Ids of the events that cannot be resumed: `0.<stream>.<n>`.
///
/// Each is used once, since a client may drop an event whose id it has seen. `stream` is random, so
/// that a client that reconnects gets new ids. None of them is an
/// [`EventId`](crate::runs::EventId): a client that sends one as its last event starts over.
#[derive(Debug)]
struct OneTimeIds {
    stream: u32,
    given: u64,
}

/// A run event to write.
struct EventToWrite<'a> {
    event: &'a RunEvent,
    key: Option<EventKey>,
    /// How many of its AG-UI events the client already has.
    skip: u32,
    /// The upstream's part that the event was made of.
    raw: Option<&'a Json>,
}

// === impl Encoder ===

impl Encoder {
    /// Writes for a client whose connection begins.
    pub fn new(wire: Wire, projector: Projector) -> Self {
        let ids = match wire {
            Wire::Sse | Wire::Chunks | Wire::ChunkLines => Ids::All(OneTimeIds::new()),
            Wire::Ndjson | Wire::Events | Wire::Proto => Ids::None,
        };
        Self {
            wire,
            projector,
            json: Vec::new(),
            proto: ProtoEncoder::default(),
            run_id: None,
            ids,
            id: String::new(),
            encoded_bytes: 0,
            has_comments: false,
        }
    }

    /// Writes an SSE comment before each run event, if `has_comments`: `: run ID text`, or
    /// `: run - text` for an event without an id. Clients ignore comments. A stream with comments
    /// shares no bytes with others.
    #[must_use]
    pub(in crate::server) fn with_comments(self, has_comments: bool) -> Self {
        Self { has_comments: has_comments && self.wire == Wire::Sse, ..self }
    }

    /// Writes for a client that resumes after an event. `emit` says what such clients are sent.
    pub fn resuming(wire: Wire, client: Client, emit: EmitOptions) -> Self {
        // A client that was sent no reasoning has none to delete.
        let projector = if emit.reasoning {
            Projector::new(client, ClientMessages::Returning)
        } else {
            Projector::new(client, ClientMessages::Unknown)
        };
        Self::new(wire, projector)
    }

    /// The framing.
    pub(in crate::server) fn wire(&self) -> Wire {
        self.wire
    }

    /// How many bytes this encoder has encoded since the last call. Bytes that another stream had
    /// encoded do not count.
    pub(super) fn take_encoded_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.encoded_bytes)
    }

    /// Appends the events of a batch that the client does not have. Bytes that another stream has
    /// encoded for the same events are shared.
    pub fn encode(&mut self, batch: &Batch, out: &mut Outgoing) {
        let form = self.form().filter(|_| self.projector.is_shareable() && self.run_id.is_some());
        if let Some(form) = form {
            let shared = batch.encoded(form, || {
                let mut all = Outgoing::default();
                self.encode_own(batch, &mut all);
                all.into_bytes()
            });
            if let Some(bytes) = shared {
                return out.share(bytes);
            }
        }
        self.encode_own(batch, out);
    }

    /// Which of the [`ENCODINGS`] shared forms this stream has. `None` if it shares none: a
    /// protobuf encoder keeps state of its own between events.
    fn form(&self) -> Option<usize> {
        if self.has_comments {
            return None;
        }
        let wire = match self.wire {
            Wire::Sse => 0,
            Wire::Ndjson => 2,
            Wire::Events => 4,
            Wire::Chunks => 6,
            Wire::ChunkLines => ENCODINGS - 2,
            Wire::Proto => return None,
        };
        Some(
            wire + match self.projector.version() {
                Version::V1 => 0,
                Version::Legacy => 1,
            },
        )
    }

    fn encode_own(&mut self, batch: &Batch, out: &mut Outgoing) {
        let delivered = batch.delivered();
        if let Some(RunEvent::Ended { .. }) = batch.last() {
            self.projector.expect_end();
        }
        // A run event may have no AG-UI event. Its raw part then goes with the next run event that
        // was made of the same part.
        let mut unsent: Option<(Option<EventKey>, &Json)> = None;
        for (at, (event, key)) in batch.with_keys().enumerate() {
            if let RunEvent::Started { run_id, name, .. } = event {
                let id = run_id.as_ref().unwrap_or(name);
                // The upstream chose the id, and it must fit into one line.
                let is_plain = id.bytes().all(|byte| byte.is_ascii_graphic());
                self.run_id = is_plain.then(|| Id::clone(id));
            }
            if at < delivered {
                self.projector.skip_delivered(event);
                continue;
            }
            let skip = if at == delivered { batch.delivered_wire_events() } else { 0 };
            let is_same =
                |of: Option<EventKey>| of.zip(key).is_some_and(|(a, b)| a.is_same_stage(b));
            let before = unsent.take().filter(|(of, _)| is_same(*of)).map(|(_, raw)| raw);
            let raw = batch.raw(at).or(before);
            if !self.event(&EventToWrite { event, key, skip, raw }, out) {
                unsent = raw.map(|raw| (key, raw));
            }
        }
    }

    /// Appends events without ids, for a file that no client resumes.
    pub fn encode_bare(&mut self, events: &[RunEvent], out: &mut Vec<u8>) {
        self.ids = Ids::None;
        let mut bare = Outgoing::default();
        for event in events {
            self.event(&EventToWrite { event, key: None, skip: 0, raw: None }, &mut bare);
        }
        bare.for_each(|bytes| out.extend_from_slice(&bytes));
    }

    /// Appends a run event. Returns whether it has any AG-UI event.
    fn event(&mut self, item: &EventToWrite<'_>, out: &mut Outgoing) -> bool {
        let EventToWrite { event, key, skip, raw } = *item;
        let Self { wire, projector, json, proto, run_id, ids, id, encoded_bytes, has_comments } =
            self;
        if *has_comments {
            let name = event.name();
            let comment = match key.zip(run_id.as_deref()) {
                Some((key, run_id)) => format!("run {} {name}", key.to_id(run_id, 0)),
                None => format!("run - {name}"),
            };
            sse::encode_comment(out.own(), &comment);
        }
        let is_proto = *wire == Wire::Proto;
        let mut frame =
            |wire_events: u32, json: &[u8], shared: Option<SharedPart>, out: &mut Outgoing| {
                *encoded_bytes += json.len() as u64;
                if is_proto {
                    // A part of its own, so that readers can share it.
                    let is_large = json.len() >= TRACKED_FROM;
                    if is_large {
                        out.cut();
                    }
                    proto.frame(json, out.own());
                    if is_large {
                        out.cut();
                    }
                    return;
                }
                let id = match (*wire, &mut *ids) {
                    (Wire::Ndjson | Wire::Events | Wire::Proto, _) | (_, Ids::None) => None,
                    (Wire::Sse | Wire::Chunks | Wire::ChunkLines, Ids::All(one_time)) => {
                        id.clear();
                        // Writing to a string cannot fail.
                        let _ = match key.zip(run_id.as_deref()) {
                            Some((key, run_id)) => write!(id, "{}", key.to_id(run_id, wire_events)),
                            None => write!(id, "{}", one_time.next()),
                        };
                        Some(id.as_str())
                    }
                };
                put_frame(*wire, id, json, shared, out);
            };
        let (mut written, mut shared) = (0, None);
        // Each event is framed when the next one is known: only the last has the run event's id.
        projector.project(event, &mut |event| {
            if written > skip {
                frame(written, json, shared.take(), out);
            }
            written += 1;
            if written > skip {
                json.clear();
                let raw = raw.filter(|_| written == 1);
                shared = if is_proto || raw.is_some() { None } else { SharedPart::of(event, json) };
                if shared.is_none() {
                    event.write(json);
                }
                if let Some(raw) = raw {
                    append_raw(json, raw);
                }
            }
        });
        if written > skip {
            frame(0, json, shared, out);
        }
        buffer::empty(json);
        written > 0
    }
}

/// Appends an event in a framing of text.
fn put_frame(
    wire: Wire,
    id: Option<&str>,
    json: &[u8],
    shared: Option<SharedPart>,
    out: &mut Outgoing,
) {
    match (wire, shared) {
        (Wire::Sse, None) => sse::encode(out.own(), id, json),
        (Wire::Sse, Some(shared)) => {
            sse::encode_start(out.own(), id);
            shared.put_between(json, out);
            out.own().extend_from_slice(sse::END);
        }
        (Wire::Ndjson | Wire::Events | Wire::Chunks | Wire::ChunkLines | Wire::Proto, shared) => {
            let is_chunk = wire.has_chunks();
            if is_chunk {
                out.own().extend_from_slice(br#"{"id":"#);
                // Writing a string to a vector cannot fail.
                let _ = serde_json::to_writer(&mut *out.own(), id.unwrap_or_default());
                out.own().extend_from_slice(br#","chunk":"#);
            }
            match shared {
                None => out.own().extend_from_slice(json),
                Some(shared) => shared.put_between(json, out),
            }
            if is_chunk {
                out.own().push(b'}');
            }
            out.own().push(match wire {
                Wire::Ndjson | Wire::ChunkLines => b'\n',
                Wire::Sse | Wire::Events | Wire::Chunks | Wire::Proto => SEPARATOR,
            });
        }
    }
}

/// Adds the upstream's part to an event's JSON.
fn append_raw(json: &mut Vec<u8>, raw: &Json) {
    if json.pop() == Some(b'}') {
        json.extend_from_slice(br#","rawEvent":"#);
        json.extend_from_slice(raw.get().as_bytes());
        json.push(b'}');
    }
}

/// The id of an event that cannot be resumed, for a client that has no id yet.
pub(in crate::server) fn one_time_id() -> String {
    OneTimeIds::new().next().to_string()
}

// === impl OneTimeIds ===

impl OneTimeIds {
    fn new() -> Self {
        let (stream, ..) = random::uuid().as_fields();
        Self { stream, given: 0 }
    }

    fn next(&mut self) -> impl fmt::Display {
        self.given += 1;
        let Self { stream, given } = *self;
        fmt::from_fn(move |f| write!(f, "0.{stream:08x}.{given}"))
    }
}

#[cfg(test)]
mod tests;
