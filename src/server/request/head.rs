//! The head of a request, as far as the checks before its route read it.

use std::net::IpAddr;

use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, Version};

use crate::server::peer::Peer;

/// The head of a request. A turn on a socket has one too. It has no `Debug`, which would print
/// credentials.
#[derive(Clone, Copy)]
pub(in crate::server) struct RequestHead<'a> {
    pub(in crate::server) headers: &'a HeaderMap,
    /// The host that the request's target names, if it is a whole URL.
    pub(in crate::server) authority: Option<&'a Authority>,
    pub(in crate::server) version: Version,
    /// Where the request comes from.
    pub(in crate::server) peer: Option<IpAddr>,
}

// === impl RequestHead ===

impl<'a> RequestHead<'a> {
    pub(in crate::server) fn of(parts: &'a Parts) -> Self {
        Self {
            headers: &parts.headers,
            authority: parts.uri.authority(),
            version: parts.version,
            peer: parts.extensions.get::<Peer>().map(Peer::ip),
        }
    }

    /// The head of a turn on a socket that was opened with these headers.
    pub(in crate::server) fn of_turn(headers: &'a HeaderMap, peer: Option<IpAddr>) -> Self {
        Self { headers, authority: None, version: Version::HTTP_11, peer }
    }
}
