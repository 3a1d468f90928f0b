//! A reader with its encoder and its slot, and the response made of them.

use axum::body::Body;
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue};

use super::body::RunBody;
use super::encoder::Encoder;
use super::frames::EventFrames;
use super::unread::Answers;
use super::wire::Wire;
use crate::metrics::{Metrics, Protocol};
use crate::server::limits::rates::StreamSlot;
use crate::server::observe::RunIds;
use crate::server::reject::Reject;
use crate::threads::ThreadReader;

/// A stream that can be sent.
pub(in crate::server) struct EventStream {
    pub(in crate::server) reader: ThreadReader,
    pub(in crate::server) encoder: Encoder,
    /// The caller's slot, held until the stream ends.
    pub(in crate::server) slot: StreamSlot,
    pub(in crate::server) ids: RunIds,
    /// The caller's unread answers.
    pub(in crate::server) answers: Answers,
}

// === impl EventStream ===

impl EventStream {
    /// The response that streams the events. Fails if there is no room for those that are ready.
    pub(in crate::server) async fn into_response(
        self,
        metrics: &Metrics,
    ) -> Result<Response, Reject> {
        let wire = self.encoder.wire();
        let mut body =
            RunBody::new(self.reader, self.encoder, self.answers, metrics).holding(self.slot);
        body.begin().await?;
        Ok(streamed(wire, Body::new(body), self.ids))
    }

    /// The encoded events one by one. Fails if there is no room for those that are ready.
    pub(in crate::server) async fn into_frames(
        self,
        metrics: &Metrics,
    ) -> Result<EventFrames, Reject> {
        let mut body =
            RunBody::new(self.reader, self.encoder, self.answers, metrics).holding(self.slot);
        body.begin().await?;
        Ok(EventFrames::new(body))
    }

    /// The body alone, counted as a stream of `protocol`.
    pub(in crate::server) fn into_body(self, protocol: Protocol, metrics: &Metrics) -> RunBody {
        RunBody::counted_as(protocol, self.reader, self.encoder, self.answers, metrics)
            .holding(self.slot)
    }
}

/// A stream about a thread.
pub(in crate::server) fn streamed(wire: Wire, body: Body, ids: RunIds) -> Response {
    let mut response = unbuffered(wire, body);
    response.extensions_mut().insert(ids);
    response
}

/// A response that no proxy may buffer, cache or change.
pub(in crate::server) fn unbuffered(wire: Wire, body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, wire.content_type());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    let buffering = HeaderName::from_static("x-accel-buffering");
    headers.insert(buffering, HeaderValue::from_static("no"));
    response
}
