//! The two framings of a stream of AG-UI events: SSE, and one JSON document a line.

use std::time::Duration;

use http::HeaderValue;

use crate::agui::{Client, Projector};
use crate::buffer;
use crate::run::{Id, RunEvent};
use crate::runs::{Batch, Mark};
use crate::sse;

/// How events are framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// `text/event-stream`, as AG-UI's HTTP binding has it.
    Sse,
    /// `application/x-ndjson`, for scripts.
    Ndjson,
}

/// Writes the events of one run for one client.
#[derive(Debug)]
pub struct Encoder {
    wire: Wire,
    projector: Projector,
    /// Empty between two events.
    json: Vec<u8>,
    /// Under which the ids of events name the run.
    run_id: Option<Id>,
    has: LastId,
}

/// The id that a client would come back with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastId {
    /// None: it was told nothing.
    None,
    /// That of an event, or whatever it came with.
    Some,
    /// One that nothing has.
    Void,
}

/// The id of what cannot be gone on behind. Who comes back with it was here before, and starts
/// over; with the last id it would be told this again.
const VOID: &str = "0";

// === impl Wire ===

impl Wire {
    /// The framing that an `Accept` header asks for: of those that we speak, the one named first.
    pub fn accepted(accept: &str) -> Self {
        let named = accept.split(',').find_map(|range| {
            let media = range.split(';').next().unwrap_or_default().trim();
            match media.to_ascii_lowercase().as_str() {
                "text/event-stream" => Some(Self::Sse),
                "application/x-ndjson" => Some(Self::Ndjson),
                _ => None,
            }
        });
        named.unwrap_or(Self::Sse)
    }

    /// The media type.
    pub fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Sse => "text/event-stream",
            Self::Ndjson => "application/x-ndjson",
        })
    }

    /// What a response begins with.
    pub fn beginning(self, retry: Duration) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Sse => sse::encode_retry(&mut out, retry),
            Self::Ndjson => {}
        }
        out
    }

    /// Writes a sign of life, where the framing has one.
    pub fn keep_alive(self, out: &mut Vec<u8>) {
        match self {
            Self::Sse => sse::encode_comment(out, "keep-alive"),
            // A line that is no document is an error to some readers.
            Self::Ndjson => {}
        }
    }

    fn data(self, out: &mut Vec<u8>, json: &[u8]) {
        match self {
            Self::Sse => sse::encode_data(out, json),
            Self::Ndjson => out.extend_from_slice(json),
        }
    }

    fn end_event(self, out: &mut Vec<u8>) {
        match self {
            Self::Sse => sse::end_event(out),
            Self::Ndjson => out.push(b'\n'),
        }
    }
}

// === impl Encoder ===

impl Encoder {
    /// For one client.
    pub fn new(wire: Wire, projector: Projector) -> Self {
        Self { wire, projector, json: Vec::new(), run_id: None, has: LastId::None }
    }

    /// For a client that comes back with the id of an event.
    pub fn returning(wire: Wire, client: Client) -> Self {
        Self { has: LastId::Some, ..Self::new(wire, Projector::for_returning(client)) }
    }

    /// The framing.
    pub fn wire(&self) -> Wire {
        self.wire
    }

    /// Appends what the client has not of a batch, each event with its id, if it has one.
    pub fn encode(&mut self, batch: &Batch, out: &mut Vec<u8>) {
        let told = batch.told_events();
        if let Some(RunEvent::Ended { .. }) = batch.last() {
            self.projector.end_is_near();
        }
        for (at, (event, mark)) in batch.marked().enumerate() {
            if let RunEvent::Started { run_id, name, .. } = event {
                let id = run_id.as_ref().unwrap_or(name);
                // It comes from upstream, and is to stand in a line of its own.
                let is_plain = id.bytes().all(|byte| byte.is_ascii_graphic());
                self.run_id = is_plain.then(|| Id::clone(id));
            }
            if at < told {
                self.projector.recall(event);
            } else {
                let has = if at == told { batch.told_of_next() } else { 0 };
                self.event(event, mark, has, out);
            }
        }
    }

    /// Appends events without ids, for a file: nobody comes back to that.
    pub fn encode_bare(&mut self, events: &[RunEvent], out: &mut Vec<u8>) {
        self.has = LastId::Void;
        for event in events {
            self.event(event, None, 0, out);
        }
    }

    /// Appends an event, less the first `told` of what it is on the wire.
    fn event(&mut self, event: &RunEvent, mark: Option<Mark>, told: u32, out: &mut Vec<u8>) {
        let Self { wire, projector, json, run_id, has } = self;
        let wire = *wire;
        let id = mark.zip(run_id.as_deref());
        let mut end_event = |written: u32, out: &mut Vec<u8>| {
            if wire == Wire::Sse {
                match id {
                    Some((mark, run_id)) => {
                        sse::encode_id(out, mark.id_of(run_id, written));
                        *has = LastId::Some;
                    }
                    None if *has != LastId::Void => {
                        sse::encode_id(out, VOID);
                        *has = LastId::Void;
                    }
                    None => {}
                }
            }
            wire.end_event(out);
        };
        let mut written = 0;
        projector.project(event, &mut |event| {
            if written > told {
                end_event(written, out);
            }
            written += 1;
            if written > told {
                event.write(json);
                wire.data(out, json);
                buffer::empty(json);
            }
        });
        if written > told {
            end_event(0, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_framing_is_the_first_one_named_that_we_speak() {
        for (accept, expected) in [
            ("", Wire::Sse),
            ("*/*", Wire::Sse),
            ("text/event-stream", Wire::Sse),
            ("application/x-ndjson", Wire::Ndjson),
            ("text/html, Application/X-NDJSON;q=0.9, */*", Wire::Ndjson),
            ("text/event-stream, application/x-ndjson", Wire::Sse),
            ("application/json", Wire::Sse),
        ] {
            assert_eq!(Wire::accepted(accept), expected, "{accept}");
        }
    }
}
