//! How a stream of AG-UI events is framed: SSE, one JSON document a line, or protobuf.

use http::HeaderValue;

use super::retry::RetryJitter;
use threadway_translate::sse;

/// How events are framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// `text/event-stream`, AG-UI's HTTP binding.
    Sse,
    /// `application/x-ndjson`, for scripts.
    Ndjson,
    /// Events without ids, each followed by a separator (0x1e): the frames of a WebSocket.
    Events,
    /// Like `Events`, with each event as `{"id": .., "chunk": <event>}`: the frames of a WebSocket,
    /// or the items of an array.
    Chunks,
    /// The objects of `Chunks`, one a line: `application/x-ndjson` that a client can resume.
    ChunkLines,
    /// `application/vnd.ag-ui.event+proto`, AG-UI's binary binding.
    Proto,
}

/// Follows each frame of [`Wire::Events`] and [`Wire::Chunks`]. JSON text never contains this byte,
/// but may contain line breaks.
pub(in crate::server) const SEPARATOR: u8 = 0x1e;

/// The media type of AG-UI's binary binding.
const PROTO: &str = "application/vnd.ag-ui.event+proto";

// === impl Wire ===

impl Wire {
    /// The media type.
    pub(crate) fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Sse => "text/event-stream",
            Self::Ndjson | Self::ChunkLines => "application/x-ndjson",
            Self::Events | Self::Chunks => "application/json",
            // With a parameter, AG-UI's client would read the response as SSE.
            Self::Proto => PROTO,
        })
    }

    /// The first bytes of a response: with SSE, when the client reconnects.
    pub(in crate::server) fn beginning(self, spread: RetryJitter) -> Vec<u8> {
        let mut out = Vec::new();
        self.retry(spread, &mut out);
        out
    }

    /// Appends when the client reconnects, if the framing can say so.
    pub(super) fn retry(self, spread: RetryJitter, out: &mut Vec<u8>) {
        match self {
            Self::Sse => sse::encode_retry(out, spread.retry()),
            Self::Ndjson | Self::Events | Self::Chunks | Self::ChunkLines | Self::Proto => {}
        }
    }

    /// Appends a keep-alive, if the framing has one.
    pub(super) fn keep_alive(self, out: &mut Vec<u8>) {
        match self {
            Self::Sse => sse::encode_comment(out, "keep-alive"),
            // Some readers fail at a line that is not a document, and at a frame that is not an
            // event.
            Self::Ndjson | Self::Events | Self::Chunks | Self::ChunkLines | Self::Proto => {}
        }
    }

    /// Whether each event is wrapped in an object with its id.
    pub(super) fn has_chunks(self) -> bool {
        matches!(self, Self::Chunks | Self::ChunkLines)
    }
}
