//! The address that a request comes from.

use std::net::SocketAddr;

/// The address that a request comes from. Its connection puts it into the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);
