//! A reader with its encoder and its slot.

use super::body::RunBody;
use super::encoder::Encoder;
use super::frames::EventFrames;
use super::unread::UnreadAnswers;
use crate::metrics::{Full, Metrics, Protocol};
use crate::server::limits::rates::StreamSlot;
use crate::server::observe::RunIds;
use crate::threads::ThreadReader;

/// A stream that can be sent.
pub(in crate::server) struct EventStream {
    pub(in crate::server) reader: ThreadReader,
    pub(in crate::server) encoder: Encoder,
    /// The caller's slot, held until the stream ends.
    pub(in crate::server) slot: StreamSlot,
    pub(in crate::server) ids: RunIds,
    /// The caller's unread answers.
    pub(in crate::server) answers: UnreadAnswers,
}

// === impl EventStream ===

impl EventStream {
    /// The body of a response. Fails if there is no room for the events that are ready.
    pub(in crate::server) async fn begin(self, metrics: &Metrics) -> Result<RunBody, Full> {
        let mut body =
            RunBody::new(self.reader, self.encoder, self.answers, metrics).holding(self.slot);
        body.begin().await?;
        Ok(body)
    }

    /// The encoded events one by one. Fails if there is no room for those that are ready.
    pub(in crate::server) async fn into_frames(
        self,
        metrics: &Metrics,
    ) -> Result<EventFrames, Full> {
        self.begin(metrics).await.map(EventFrames::new)
    }

    /// The encoded events one by one, counted as a stream of `protocol`.
    pub(in crate::server) fn into_frames_of(
        self,
        protocol: Protocol,
        metrics: &Metrics,
    ) -> EventFrames {
        let Self { reader, encoder, slot, answers, .. } = self;
        let body = RunBody::counted_as(protocol, reader, encoder, answers, metrics);
        EventFrames::new(body.holding(slot))
    }
}
