//! Identities that limits count by. They distinguish callers, but contain no credentials.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use http::HeaderName;
use http::header::AUTHORIZATION;
use ring::hmac;

use crate::random;

/// A caller, as limits count it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::server) enum CallerId {
    /// The network that it connects from: see [`network`].
    Peer(IpAddr),
    /// The name of its key.
    Key(Arc<str>),
    /// The issuer and subject of its token, or its credentials for LangGraph.
    Fingerprint(Fingerprint),
}

/// A digest of a secret or of personal data, under a key that only this process has.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::server) struct Fingerprint([u8; 32]);

/// A key for fingerprints, new in each process.
pub(in crate::server) fn fingerprint_key() -> hmac::Key {
    let secret = [random::uuid().into_bytes(), random::uuid().into_bytes()].concat();
    hmac::Key::new(hmac::HMAC_SHA256, &secret)
}

/// The network of an address: an IPv4 address itself, or the /64 of an IPv6 address.
///
/// A subscriber has a whole /64, and could use another of its addresses for each request.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            const HOST: u128 = u64::MAX as u128;
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !HOST))
        }
    }
}

// === impl Fingerprint ===

impl Fingerprint {
    /// A digest of texts. It depends on where one text ends and the next begins.
    pub(in crate::server) fn of<T: AsRef<[u8]>>(
        key: &hmac::Key,
        texts: impl IntoIterator<Item = T>,
    ) -> Self {
        let mut digest = hmac::Context::with_key(key);
        for text in texts {
            let text = text.as_ref();
            digest.update(&(text.len() as u64).to_be_bytes());
            digest.update(text);
        }
        let mut bytes = [0; 32];
        for (byte, digested) in bytes.iter_mut().zip(digest.sign().as_ref()) {
            *byte = *digested;
        }
        Self(bytes)
    }

    /// A short name of this caller for log lines, such as `subject-0123456789ab`. It is made of the
    /// digest, so it does not reveal the credentials. Only this process can compare it.
    pub(in crate::server) fn log_name(&self, of: &str) -> String {
        let digits = self.0.iter().take(6).map(|byte| format!("{byte:02x}"));
        format!("{of}-{}", digits.collect::<String>())
    }

    /// A digest of one header's credentials. The case of the scheme and the spaces after it do not
    /// matter, since they do not matter to servers.
    pub(in crate::server) fn of_credentials(
        key: &hmac::Key,
        name: &HeaderName,
        value: &[u8],
    ) -> Self {
        let value = value.trim_ascii();
        let space =
            value.iter().position(u8::is_ascii_whitespace).filter(|_| name == AUTHORIZATION);
        let (scheme, rest) = value.split_at(space.unwrap_or(0));
        let scheme = scheme.to_ascii_lowercase();
        Self::of(key, [name.as_str().as_bytes(), &scheme, rest.trim_ascii()])
    }
}

// === impl CallerId ===

impl CallerId {
    /// The identity of a caller that is known by its address only.
    pub(in crate::server) fn of_peer(peer: Option<IpAddr>) -> Self {
        Self::Peer(network(peer.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))))
    }
}

impl AsRef<[u8]> for Fingerprint {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_counts_as_its_network() {
        for (address, expected) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:2::", "2001:db8:1:2::"),
            ("::1", "::"),
        ] {
            assert_eq!(network(address.parse().unwrap()).to_string(), expected, "{address}");
        }
    }

    #[test]
    fn fingerprints_differ_by_texts_and_by_process() {
        let key = fingerprint_key();
        let of = |texts: &[&str]| Fingerprint::of(&key, texts);
        assert_eq!(of(&["a", "b"]), of(&["a", "b"]));
        for other in [&["ab"][..], &["a", "b", ""], &["", "ab"], &["b", "a"], &[]] {
            assert_ne!(of(other), of(&["a", "b"]), "{other:?}");
        }
        assert_ne!(Fingerprint::of(&fingerprint_key(), ["a", "b"]), of(&["a", "b"]));
        assert_eq!(format!("{:?}", CallerId::Fingerprint(of(&["a"]))), "Fingerprint([redacted])");
    }

    #[test]
    fn the_case_and_spaces_of_a_scheme_do_not_make_another_caller() {
        let key = fingerprint_key();
        let of = |name, value: &str| {
            Fingerprint::of_credentials(&key, &HeaderName::from_static(name), value.as_bytes())
        };
        let token = of("authorization", "Bearer Abc");
        for same in ["bearer Abc", "BEARER   Abc", "Bearer \tAbc "] {
            assert_eq!(of("authorization", same), token, "{same}");
        }
        for (name, other) in [
            ("authorization", "Bearer abc"),
            ("authorization", "BearerAbc"),
            ("authorization", "Basic Abc"),
            ("authorization", "Abc"),
            ("authorization", ""),
            ("x-api-key", "Bearer Abc"),
        ] {
            assert_ne!(of(name, other), token, "{name}: {other}");
        }
        assert_ne!(of("x-api-key", "A b"), of("x-api-key", "a b"));
    }
}
