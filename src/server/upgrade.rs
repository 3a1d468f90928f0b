//! An upgrade: the request that asks for a WebSocket, and what is done with the connection once the
//! request is answered.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::sync::Mutex;

/// The prefix of the subprotocol that carries a token: a page cannot set a header on a WebSocket.
const BEARER: &str = "threadway.bearer.";

/// The bytes of a connection, in both directions.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection whose upgrade was answered.
pub(super) struct Upgraded {
    pub(super) io: Box<dyn Duplex>,
    /// Bytes that were read after the request.
    pub(super) read: Bytes,
    /// Cancelled when the gateway stops.
    pub(super) shutdown: CancellationToken,
}

/// Serves a connection to its end.
type Serve = Box<dyn FnOnce(Upgraded) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// Where a request that opens a socket leaves what its connection then does.
#[derive(Clone, Default)]
pub(super) struct Upgrade(Arc<Mutex<Option<Serve>>>);

// === impl Upgrade ===

impl Upgrade {
    /// Has the connection do this once the request is answered.
    pub(super) fn put<F>(&self, serve: impl FnOnce(Upgraded) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let serve: Serve = Box::new(|upgraded| Box::pin(serve(upgraded)));
        // What is replaced is dropped after the lock: it may hold what locks by itself.
        let _replaced = self.0.lock().replace(serve);
    }

    /// Takes what a request has left.
    pub(super) fn take(&self) -> Option<Serve> {
        self.0.lock().take()
    }
}

/// Whether a request asks for a WebSocket.
pub(super) fn is_upgrade(headers: &HeaderMap) -> bool {
    let has = |name: &HeaderName, wanted: &str| {
        let items = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        let mut items = items.flat_map(|value| value.split(','));
        items.any(|item| item.trim().eq_ignore_ascii_case(wanted))
    };
    has(&UPGRADE, "websocket") && has(&CONNECTION, "upgrade")
}

/// The subprotocols that a client offers.
pub(super) fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(',')).map(str::trim)
}

/// The token that a subprotocol carries.
pub(super) fn token(protocol: &str) -> Option<&str> {
    protocol.strip_prefix(BEARER)
}

/// Adds the token among the subprotocols as an `Authorization` header.
pub(super) fn take_token(headers: &mut HeaderMap) {
    if !is_upgrade(headers) {
        return;
    }
    let tokens: Vec<_> = protocols(headers)
        .filter_map(|protocol| HeaderValue::try_from(format!("Bearer {}", token(protocol)?)).ok())
        .collect();
    for mut token in tokens {
        token.set_sensitive(true);
        // Beside another `Authorization` header it is one too many, and the request is refused.
        headers.append(AUTHORIZATION, token);
    }
}

#[cfg(test)]
pub(in crate::server) mod tests {
    use super::*;

    pub(in crate::server) fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    pub(in crate::server) const UPGRADES: [(&str, &str); 2] =
        [("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")];

    #[test]
    fn what_an_upgrade_replaces_is_dropped_outside_its_lock() {
        /// Locks as it is dropped, as the charge of a socket may.
        struct LocksOnDrop(Mutex<()>);
        impl Drop for LocksOnDrop {
            fn drop(&mut self) {
                drop(self.0.lock());
            }
        }
        let upgrade = Upgrade::default();
        let locks = LocksOnDrop(Mutex::new(()));
        upgrade.put(|_| async move { drop(locks) });
        upgrade.put(|_| async {});
        assert!(upgrade.take().is_some());
    }

    #[test]
    fn an_upgrade_is_asked_for_in_both_headers() {
        assert!(is_upgrade(&headers(&UPGRADES)));
        assert!(!is_upgrade(&headers(&UPGRADES[..1])));
        assert!(!is_upgrade(&headers(&UPGRADES[1..])));
        assert!(!is_upgrade(&headers(&[("connection", "upgrade"), ("upgrade", "h2c")])));
    }

    #[test]
    fn a_token_among_the_subprotocols_counts_as_a_header_of_a_socket_alone() {
        let offered = ("sec-websocket-protocol", "threadway.chunks, threadway.bearer.a-key");
        let mut upgrade = headers(&[UPGRADES[0], UPGRADES[1], offered]);
        take_token(&mut upgrade);
        assert_eq!(upgrade.get(AUTHORIZATION).unwrap(), "Bearer a-key");
        let mut other = headers(&[offered]);
        take_token(&mut other);
        assert_eq!(other.get(AUTHORIZATION), None);
        let mut twice = headers(&[UPGRADES[0], UPGRADES[1], offered, ("authorization", "Basic x")]);
        take_token(&mut twice);
        assert_eq!(twice.get_all(AUTHORIZATION).iter().count(), 2);
    }
}
