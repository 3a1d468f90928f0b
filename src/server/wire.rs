//! The two framings of a stream of AG-UI events: SSE, and one JSON document a line.

use std::time::Duration;

use http::HeaderValue;

use crate::agui::Projector;
use crate::run::RunEvent;
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
    json: Vec<u8>,
}

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

    /// Writes what a response begins with.
    pub fn begin(self, out: &mut Vec<u8>, retry: Duration) {
        match self {
            Self::Sse => sse::encode_retry(out, retry),
            Self::Ndjson => {}
        }
    }

    /// Writes a sign of life, where the framing has one.
    pub fn keep_alive(self, out: &mut Vec<u8>) {
        match self {
            Self::Sse => sse::encode_comment(out, "keep-alive"),
            // A line that is no document is an error to some readers.
            Self::Ndjson => {}
        }
    }

    fn event(self, out: &mut Vec<u8>, json: &[u8]) {
        match self {
            Self::Sse => sse::encode(out, None, json),
            Self::Ndjson => {
                out.extend_from_slice(json);
                out.push(b'\n');
            }
        }
    }
}

// === impl Encoder ===

impl Encoder {
    /// For one client.
    pub fn new(wire: Wire, projector: Projector) -> Self {
        Self { wire, projector, json: Vec::new() }
    }

    /// The framing.
    pub fn wire(&self) -> Wire {
        self.wire
    }

    /// Appends the events.
    pub fn encode(&mut self, events: &[RunEvent], out: &mut Vec<u8>) {
        let Self { wire, projector, json } = self;
        for event in events {
            projector.project(event, &mut |event| {
                json.clear();
                event.write(json);
                wire.event(out, json);
            });
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
