//! What a client may ask of the server at most.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::runs::{self, OwnerPolicy};

/// What a client may ask of the server at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest request body that is read, in bytes: a long conversation with some pictures.
    pub body_bytes: usize,
    /// The largest request head that is read, in bytes: what proxies let pass, with some cookies
    /// and a token. Also what is buffered for a client that does not read, besides one whole
    /// frame; at least 8 KiB.
    pub header_bytes: usize,
    /// How long a client may take to send a request's head, the pause before it included.
    pub header_timeout: Duration,
    /// How many connections may be open. Each stream takes one here and one to the upstream.
    pub connections: usize,
    /// How many connections one address may have open, or one /64 of IPv6; `None` for any number.
    ///
    /// The gateway ends no TLS: what comes from outside comes through a proxy, which is one
    /// address. So there is no limit unless it is set.
    pub connections_per_peer: Option<NonZeroUsize>,
    /// How much of a run's events is kept for readers that are slower than it, in bytes.
    pub log_bytes: usize,
    /// What becomes of a run when the connection that started it is lost.
    pub owners: OwnerPolicy,
}

/// The smallest head limit that the HTTP library can be given.
pub const MIN_HEADER_BYTES: usize = 8 * 1024;

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 10 * 1024 * 1024,
            header_bytes: 64 * 1024,
            header_timeout: Duration::from_secs(10),
            connections: 10_000,
            connections_per_peer: None,
            log_bytes: runs::DEFAULT_LOG_BYTES,
            owners: OwnerPolicy::default(),
        }
    }
}
