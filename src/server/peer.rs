//! The address that a request comes from.

use std::net::{IpAddr, SocketAddr};

/// The address that a request comes from. Its connection puts it into the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

// === impl Peer ===

impl Peer {
    pub(super) fn ip(&self) -> IpAddr {
        self.0.ip()
    }
}
