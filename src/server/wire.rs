//! The framings of a stream of AG-UI events: SSE, one JSON document a line, and protobuf.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use memchr::memchr2;
use uuid::Uuid;

use crate::runs::{Batch, ENCODINGS, EventKey};
use threadway_translate::agui::{Client, ClientMessages, Event, Projector, ProtoEncoder, Version};
use threadway_translate::buffer;
use threadway_translate::json::Json;
use threadway_translate::run::{Emit, Id, RunEvent};
use threadway_translate::sse;

/// How events are framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// `text/event-stream`, as AG-UI's HTTP binding has it.
    Sse,
    /// `application/x-ndjson`, for scripts.
    Ndjson,
    /// Events without ids, each with a separator (0x1e) after it: the frames of a WebSocket.
    Events,
    /// The same, each as `{"id": .., "chunk": <event>}`: the frames of a WebSocket, or the items
    /// of an array.
    Chunks,
    /// The same, one a line: `application/x-ndjson` that a client can resume.
    ChunkLines,
    /// `application/vnd.ag-ui.event+proto`, AG-UI's binary binding.
    Proto,
}

/// What stands behind each frame of [`Wire::Events`] and [`Wire::Chunks`]. No JSON text has it,
/// while one may have line breaks.
pub(super) const SEPARATOR: u8 = 0x1e;

/// Writes the events of one run for one client.
#[derive(Debug)]
pub struct Encoder {
    wire: Wire,
    projector: Projector,
    /// Empty between two events.
    json: Vec<u8>,
    proto: ProtoEncoder,
    /// Under which the ids of events name the run.
    run_id: Option<Id>,
    ids: Ids,
    /// The id of the event that is being written.
    id: String,
    /// How many bytes it has made itself.
    encoded: u64,
    /// Whether a comment of an SSE stream names each run event.
    names: bool,
}

/// What is ready to be sent: bytes of one stream, and bytes that streams share, in their order.
#[derive(Debug, Default)]
pub struct Outgoing {
    ready: VecDeque<Bytes>,
    own: Vec<u8>,
}

/// A large part of an event that is not copied for each stream that sends it.
struct Shared {
    bytes: Bytes,
    /// Where it stands in the rest of the event.
    at: usize,
}

/// Bytes that are freed when the last stream has sent them.
struct Whole(Arc<Vec<u8>>);

/// From how many bytes on a part of an event is shared: below, a copy is as cheap as a frame of
/// its own.
const SHARED_FROM: usize = 16 * 1024;

/// The media type of AG-UI's binary binding.
const PROTO: &str = "application/vnd.ag-ui.event+proto";

/// What stands before the state in its event.
const STATE_SNAPSHOT: &[u8] = br#"{"type":"STATE_SNAPSHOT","snapshot":"#;

/// Which ids the events of a stream get.
#[derive(Debug)]
enum Ids {
    /// None.
    None,
    /// An event that can be resumed has its own; any other has one that is used once.
    All(OneTimeIds),
}

/// Ids of the events that cannot be resumed: `0.<stream>.<n>`.
///
/// Each is used once, since a client may drop an event whose id it has seen. `stream` is random:
/// a client that reconnects gets ids that it has not seen. None of them is an
/// [`EventId`](crate::runs::EventId): a client that sends one back starts over.
#[derive(Debug)]
struct OneTimeIds {
    stream: u32,
    given: u64,
}

// === impl Wire ===

impl Wire {
    /// The media type.
    pub fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Sse => "text/event-stream",
            Self::Ndjson | Self::ChunkLines => "application/x-ndjson",
            Self::Events | Self::Chunks => "application/json",
            // A client takes it for SSE if there is a parameter.
            Self::Proto => PROTO,
        })
    }

    /// What a response begins with.
    pub fn beginning(self, retry: Duration) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Sse => sse::encode_retry(&mut out, retry),
            Self::Ndjson | Self::Events | Self::Chunks | Self::ChunkLines | Self::Proto => {}
        }
        out
    }

    /// Writes a sign of life, where the framing has one.
    pub fn keep_alive(self, out: &mut Vec<u8>) {
        match self {
            Self::Sse => sse::encode_comment(out, "keep-alive"),
            // A line that is no document is an error to some readers, and so is a frame that is no
            // event.
            Self::Ndjson | Self::Events | Self::Chunks | Self::ChunkLines | Self::Proto => {}
        }
    }

    /// Whether each event is sent with its id around it.
    fn has_chunks(self) -> bool {
        matches!(self, Self::Chunks | Self::ChunkLines)
    }
}

// === impl Encoder ===

impl Encoder {
    /// For one client.
    pub fn new(wire: Wire, projector: Projector) -> Self {
        let ids = match wire {
            Wire::Sse | Wire::Chunks | Wire::ChunkLines => Ids::All(OneTimeIds::new()),
            Wire::Ndjson | Wire::Events | Wire::Proto => Ids::None,
        };
        let (json, id, proto) = (Vec::new(), String::new(), ProtoEncoder::default());
        Self { wire, projector, json, proto, run_id: None, ids, id, encoded: 0, names: false }
    }

    /// The same, with a comment before what each run event is on the wire, as `: run ID text`, or
    /// `: run - text` if it has no id: clients pass over comments. Its bytes are shared with no other stream.
    #[must_use]
    pub fn naming(self, names: bool) -> Self {
        Self { names: names && self.wire == Wire::Sse, ..self }
    }

    /// For a client that resumes with the id of an event, and is shown what these options say.
    pub fn returning(wire: Wire, client: Client, emit: Emit) -> Self {
        // Where thoughts are not shown, it holds none that would have to be deleted.
        let projector = if emit.reasoning {
            Projector::new(client, ClientMessages::Returning)
        } else {
            Projector::new(client, ClientMessages::Unknown)
        };
        Self::new(wire, projector)
    }

    /// The framing.
    pub fn wire(&self) -> Wire {
        self.wire
    }

    /// How many bytes it has made since it was asked, of those that it has appended.
    pub fn take_encoded(&mut self) -> u64 {
        std::mem::take(&mut self.encoded)
    }

    /// Appends what the client has not of a batch, each event with an id. Bytes that another stream
    /// has made of the same events are shared.
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

    /// Which of the [`ENCODINGS`] forms this is, if it is shared: what a stream of protobuf keeps
    /// of its last text is its own.
    fn form(&self) -> Option<usize> {
        if self.names {
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
        let told = batch.delivered();
        if let Some(RunEvent::Ended { .. }) = batch.last() {
            self.projector.expect_end();
        }
        // The part of a run event that is nothing on the wire goes with the next one that it has made.
        let mut untold: Option<(Option<EventKey>, &Json)> = None;
        for (at, (event, mark)) in batch.with_keys().enumerate() {
            if let RunEvent::Started { run_id, name, .. } = event {
                let id = run_id.as_ref().unwrap_or(name);
                // It comes from upstream, and is to stand in a line of its own.
                let is_plain = id.bytes().all(|byte| byte.is_ascii_graphic());
                self.run_id = is_plain.then(|| Id::clone(id));
            }
            if at < told {
                self.projector.skip_delivered(event);
            } else {
                let has = if at == told { batch.delivered_wire_events() } else { 0 };
                let is_same =
                    |of: Option<EventKey>| of.zip(mark).is_some_and(|(a, b)| a.is_same_stage(b));
                let before = untold.take().filter(|(of, _)| is_same(*of)).map(|(_, raw)| raw);
                let raw = batch.raw(at).or(before);
                if !self.event(event, mark, has, raw, out) {
                    untold = raw.map(|raw| (mark, raw));
                }
            }
        }
    }

    /// Appends events without ids, for a file: nobody comes back to that.
    pub fn encode_bare(&mut self, events: &[RunEvent], out: &mut Vec<u8>) {
        self.ids = Ids::None;
        let mut bare = Outgoing::default();
        for event in events {
            self.event(event, None, 0, None, &mut bare);
        }
        bare.for_each(|bytes| out.extend_from_slice(&bytes));
    }

    /// Appends an event, less the first `told` of what it is on the wire. `raw` is the upstream's
    /// part that it was made of. Returns whether the event is anything on the wire.
    fn event(
        &mut self,
        event: &RunEvent,
        mark: Option<EventKey>,
        told: u32,
        raw: Option<&Json>,
        out: &mut Outgoing,
    ) -> bool {
        let Self { wire, projector, json, proto, run_id, ids, id, encoded, names } = self;
        if *names {
            let name = event.name();
            let comment = match mark.zip(run_id.as_deref()) {
                Some((mark, run_id)) => format!("run {} {name}", mark.to_id(run_id, 0)),
                None => format!("run - {name}"),
            };
            sse::encode_comment(&mut out.own, &comment);
        }
        let is_proto = *wire == Wire::Proto;
        let mut frame = |partly: u32, json: &[u8], shared: Option<Shared>, out: &mut Outgoing| {
            *encoded += json.len() as u64;
            if is_proto {
                return proto.frame(json, &mut out.own);
            }
            let id = match (*wire, &mut *ids) {
                (Wire::Ndjson | Wire::Events | Wire::Proto, _) | (_, Ids::None) => None,
                (Wire::Sse | Wire::Chunks | Wire::ChunkLines, Ids::All(one_time)) => {
                    id.clear();
                    // A string takes all that is written to it.
                    let _ = match mark.zip(run_id.as_deref()) {
                        Some((mark, run_id)) => write!(id, "{}", mark.to_id(run_id, partly)),
                        None => write!(id, "{}", one_time.next()),
                    };
                    Some(id.as_str())
                }
            };
            match (*wire, shared) {
                (Wire::Sse, None) => sse::encode(&mut out.own, id, json),
                (Wire::Sse, Some(shared)) => {
                    sse::encode_start(&mut out.own, id);
                    shared.put_between(json, out);
                    out.own.extend_from_slice(sse::END);
                }
                (
                    Wire::Ndjson | Wire::Events | Wire::Chunks | Wire::ChunkLines | Wire::Proto,
                    shared,
                ) => {
                    let is_chunk = wire.has_chunks();
                    if is_chunk {
                        out.own.extend_from_slice(br#"{"id":"#);
                        // A string is written, to what takes all.
                        let _ = serde_json::to_writer(&mut out.own, id.unwrap_or_default());
                        out.own.extend_from_slice(br#","chunk":"#);
                    }
                    match shared {
                        None => out.own.extend_from_slice(json),
                        Some(shared) => shared.put_between(json, out),
                    }
                    if is_chunk {
                        out.own.push(b'}');
                    }
                    out.own.push(match *wire {
                        Wire::Ndjson | Wire::ChunkLines => b'\n',
                        Wire::Sse | Wire::Events | Wire::Chunks | Wire::Proto => SEPARATOR,
                    });
                }
            }
        };
        let (mut written, mut shared) = (0, None);
        // Each is written when the next one comes: only the last has the id of the run event.
        projector.project(event, &mut |event| {
            if written > told {
                frame(written, json, shared.take(), out);
            }
            written += 1;
            if written > told {
                json.clear();
                let raw = raw.filter(|_| written == 1);
                shared = if is_proto || raw.is_some() { None } else { Shared::of(event, json) };
                if shared.is_none() {
                    event.write(json);
                }
                if let Some(raw) = raw {
                    with_raw(json, raw);
                }
            }
        });
        if written > told {
            frame(0, json, shared, out);
        }
        buffer::empty(json);
        written > 0
    }
}

/// Adds the upstream's part to an event that is written.
fn with_raw(json: &mut Vec<u8>, raw: &Json) {
    if json.pop() == Some(b'}') {
        json.extend_from_slice(br#","rawEvent":"#);
        json.extend_from_slice(raw.get().as_bytes());
        json.push(b'}');
    }
}

// === impl Shared ===

impl Shared {
    /// The part of an event that other streams send too, if it is large; the rest is written.
    fn of(event: &Event<'_>, rest: &mut Vec<u8>) -> Option<Self> {
        if let Event::StateSnapshot { snapshot } = event
            && is_large(snapshot.get().as_bytes())
        {
            rest.extend_from_slice(STATE_SNAPSHOT);
            let (bytes, at) = (Bytes::from_owner((*snapshot).clone()), rest.len());
            rest.push(b'}');
            return Some(Self { bytes, at });
        }
        let Event::MessagesSnapshot { messages } = event else { return None };
        let (snapshot, form) = messages.shared()?;
        if snapshot.weight() < SHARED_FROM {
            return None;
        }
        let bytes = snapshot.written(form, || {
            let mut bytes = Vec::new();
            event.write(&mut bytes);
            bytes
        });
        is_large(&bytes).then(|| Self { bytes: Bytes::from_owner(Whole(bytes)), at: 0 })
    }

    fn put_between(self, rest: &[u8], out: &mut Outgoing) {
        let (before, after) = rest.split_at_checked(self.at).unwrap_or((rest, &[]));
        out.own.extend_from_slice(before);
        out.share(self.bytes);
        out.own.extend_from_slice(after);
    }
}

/// Whether bytes are worth to be shared. Those of more than one line are framed line by line.
fn is_large(bytes: &[u8]) -> bool {
    bytes.len() >= SHARED_FROM && memchr2(b'\n', b'\r', bytes).is_none()
}

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

// === impl Outgoing ===

impl Outgoing {
    /// Whether nothing is to be sent.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.own.is_empty()
    }

    fn into_bytes(mut self) -> Bytes {
        match (self.ready.pop_front(), self.ready.is_empty() && self.own.is_empty()) {
            (None, _) => self.own.into(),
            (Some(only), true) => only,
            (Some(first), false) => {
                let mut all = first.to_vec();
                self.for_each(|bytes| all.extend_from_slice(&bytes));
                all.into()
            }
        }
    }

    /// Where bytes of the stream's own are appended.
    pub fn own(&mut self) -> &mut Vec<u8> {
        &mut self.own
    }

    /// Appends bytes that other streams send too.
    pub fn share(&mut self, bytes: Bytes) {
        if !self.own.is_empty() {
            self.ready.push_back(std::mem::take(&mut self.own).into());
        }
        if !bytes.is_empty() {
            self.ready.push_back(bytes);
        }
    }
}

impl Iterator for Outgoing {
    type Item = Bytes;

    /// The next bytes to send.
    fn next(&mut self) -> Option<Bytes> {
        if let Some(bytes) = self.ready.pop_front() {
            return Some(bytes);
        }
        (!self.own.is_empty()).then(|| std::mem::take(&mut self.own).into())
    }
}

/// The id of an event that cannot be resumed, for a client that has none yet: it starts over.
pub(super) fn one_time_id() -> String {
    OneTimeIds::new().next().to_string()
}

// === impl OneTimeIds ===
impl OneTimeIds {
    fn new() -> Self {
        let (stream, ..) = Uuid::new_v4().as_fields();
        Self { stream, given: 0 }
    }

    fn next(&mut self) -> impl fmt::Display {
        self.given += 1;
        let Self { stream, given } = *self;
        fmt::from_fn(move |f| write!(f, "0.{stream:08x}.{given}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use threadway_translate::agui::{RunId, Version};
    use threadway_translate::json::{self, TextBuf};
    use threadway_translate::run::{Content, Message, Role, Snapshot};

    fn client(version: Version) -> Client {
        let (thread_id, run_id) = ("t".to_owned(), RunId::Unnamed);
        Client { thread_id, run_id, parent_run_id: None, version }
    }

    /// A state and a conversation, each of this many bytes.
    fn snapshots(bytes: usize) -> [RunEvent; 2] {
        let text = "x".repeat(bytes);
        let mut message = Message::new("m".into(), Role::User);
        message.content = Content::Text(TextBuf::from(&json::Text::new(&text)));
        let state = json::ObjectWriter::new().string("note", &text).finish();
        let conversation = Snapshot::from([Arc::new(message)]);
        [RunEvent::StateSnapshot(state), RunEvent::Messages(conversation)]
    }

    #[test]
    fn what_is_shared_is_the_same_as_what_is_not() {
        for (wire, version) in [
            (Wire::Sse, Version::V1),
            (Wire::Sse, Version::Legacy),
            (Wire::Ndjson, Version::V1),
            (Wire::Events, Version::V1),
            (Wire::Chunks, Version::Legacy),
            (Wire::ChunkLines, Version::Legacy),
        ] {
            for (bytes, is_shared) in [(10, false), (SHARED_FROM, true)] {
                let events = snapshots(bytes);
                let mut expected = Vec::new();
                let mut projector = Projector::new(client(version), ClientMessages::Unknown);
                for event in &events {
                    projector.project(event, &mut |event| {
                        let mut json = Vec::new();
                        event.write(&mut json);
                        match wire {
                            Wire::Sse => sse::encode(&mut expected, None, &json),
                            Wire::Ndjson => expected.extend([json, vec![b'\n']].concat()),
                            Wire::Events => expected.extend([json, vec![SEPARATOR]].concat()),
                            Wire::Chunks => expected
                                .extend([&br#"{"id":"","chunk":"#[..], &json, b"}\x1e"].concat()),
                            Wire::ChunkLines => expected
                                .extend([&br#"{"id":"","chunk":"#[..], &json, b"}\n"].concat()),
                            Wire::Proto => unreachable!("nothing of it is shared"),
                        }
                    });
                }
                let mut encoder =
                    Encoder::new(wire, Projector::new(client(version), ClientMessages::Unknown));
                encoder.ids = Ids::None;
                let mut out = Outgoing::default();
                for event in &events {
                    encoder.event(event, None, 0, None, &mut out);
                }
                assert_eq!(out.ready.len() > 1, is_shared, "{bytes} bytes");
                let written: Vec<_> = out.flatten().collect();
                assert!(written == expected, "{wire:?}, {version:?}, {bytes} bytes");
            }
        }
    }

    #[test]
    fn two_streams_send_the_same_bytes_of_a_large_snapshot() {
        let [_, messages] = snapshots(SHARED_FROM);
        let parts = |encoder: &mut Encoder| {
            let mut out = Outgoing::default();
            encoder.event(&messages, None, 0, None, &mut out);
            out.map(|bytes| (bytes.as_ptr(), bytes)).max_by_key(|(_, bytes)| bytes.len()).unwrap()
        };
        let new = || Encoder::new(Wire::Sse, Projector::new(client(Version::V1), Vec::new()));
        let (one, _kept) = parts(&mut new());
        let (other, _) = parts(&mut new());
        assert_eq!(one, other);
    }
}
