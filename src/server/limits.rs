//! Limits: of one request, and of each caller.
//!
//! - [`Limits`]: sizes, times and connections.
//! - [`caller_id`]: what limits count by: a network, a key, or credentials.
//! - [`rates`]: requests and streams of one caller.
//! - [`incoming`]: messages on sockets that are not whole yet.
//! - [`log_limiter`]: log lines that anybody can cause.

pub(super) mod caller_id;
pub(super) mod incoming;
pub(super) mod log_limiter;
pub(super) mod rates;

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use crate::metrics::DEFAULT_MEMORY_BYTES;
use crate::runs::{self, OwnerPolicy};
use crate::threads::DEFAULT_STATE_READS_PER_SECOND;

/// Limits on requests and connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest request body, in bytes. The default fits a long conversation with some pictures.
    pub body_bytes: usize,
    /// The largest request head, in bytes; at least `MIN_HEADER_BYTES`. The default is what
    /// proxies let pass, with some cookies and a token. It is also the size of the buffer for a
    /// client that does not read, besides one whole frame.
    pub header_bytes: usize,
    /// How long a client may take to send a request's head, from its first byte on. A new
    /// connection has as long to begin with it.
    pub header_timeout: Duration,
    /// How many connections may be open. Each stream also needs one to the upstream.
    pub connections: usize,
    /// How many connections one IPv4 address, or one /64 of IPv6, may have open. `None` sets no
    /// limit.
    ///
    /// The gateway ends no TLS. Clients from outside come through a proxy, which is one address. So
    /// there is no limit by default.
    pub connections_per_peer: Option<NonZeroUsize>,
    /// How much of a run's events is kept for readers that are slower than the run, in bytes.
    pub log_bytes: usize,
    /// How much clients may make the gateway hold, in bytes: bodies, unread answers and ACP
    /// sessions. A caller may use a quarter of it.
    pub memory_bytes: usize,
    /// How many states of followed threads are read in a second from one upstream, to find changes
    /// that were made without its API.
    pub state_reads_per_second: NonZeroU32,
    /// Whether a run is cancelled when the connection that started it is lost.
    pub owners: OwnerPolicy,
}

/// How many of the largest request bodies the memory of clients must fit. A caller's share for large
/// bodies then fits one of them.
pub(crate) const BODIES_IN_MEMORY: usize = 8;

/// The smallest head limit that the HTTP library can be given.
pub(crate) const MIN_HEADER_BYTES: usize = 8 * 1024;

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
            memory_bytes: DEFAULT_MEMORY_BYTES,
            state_reads_per_second: DEFAULT_STATE_READS_PER_SECOND,
            owners: OwnerPolicy::default(),
        }
    }
}
