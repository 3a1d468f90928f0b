//! The last event that a client has: the stream goes on after it, or starts over.

use http::HeaderMap;

use super::encoder::Encoder;
use super::wire::Wire;
use crate::runs::EventId;
use crate::server::request::query::param;
use threadway_translate::agui::{Client, Projector};
use threadway_translate::run::EmitOptions;

/// The event that a client names as its last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::server) enum LastEvent {
    None,
    Known(EventId),
    /// An id that this version of the gateway did not make.
    Unknown,
}

// === impl LastEvent ===

impl LastEvent {
    /// Reads the header `Last-Event-ID`. Returns `None` without one.
    pub(in crate::server) fn of_header(headers: &HeaderMap) -> Option<Self> {
        let header = headers.get("last-event-id")?;
        Some(Self::parse(Some(header.to_str().unwrap_or("?"))))
    }

    /// Reads the header, or else the query's `last_event_id`: a page sends that after a reload,
    /// since it cannot set a header on an `EventSource`.
    pub(in crate::server) fn of_request(headers: &HeaderMap, query: &str) -> Self {
        Self::of_header(headers)
            .unwrap_or_else(|| Self::parse(param(query, "last_event_id").as_deref()))
    }

    /// Reads an id. An empty one counts as none.
    pub(in crate::server) fn parse(id: Option<&str>) -> Self {
        match id {
            None | Some("") => Self::None,
            Some(id) => id.parse().map_or(Self::Unknown, Self::Known),
        }
    }

    pub(in crate::server) fn known(&self) -> Option<&EventId> {
        match self {
            Self::Known(id) => Some(id),
            Self::None | Self::Unknown => None,
        }
    }

    /// The encoder for this client. A client that resumes holds what it was sent before, which may
    /// end within a message. `for_new` makes the projector of a client that does not resume.
    pub(in crate::server) fn encoder(
        &self,
        wire: Wire,
        client: Client,
        emit: EmitOptions,
        for_new: impl FnOnce(Client) -> Projector,
    ) -> Encoder {
        match self {
            Self::None => Encoder::new(wire, for_new(client)),
            Self::Known(_) | Self::Unknown => Encoder::resuming(wire, client, emit),
        }
    }

    /// Whether the client has the end of its run.
    pub(in crate::server) fn is_end(&self) -> bool {
        self.known().is_some_and(EventId::is_terminal)
    }
}
