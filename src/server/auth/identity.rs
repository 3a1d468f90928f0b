//! Who a caller is, as far as limits go: enough to tell callers apart, too little to be one.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use aws_lc_rs::hmac;
use http::HeaderName;
use http::header::AUTHORIZATION;
use uuid::Uuid;

/// Who a request comes from. All its requests count together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::server) enum Identity {
    /// The network from which it comes: see [`network`].
    Peer(IpAddr),
    /// The name of the key that it has shown.
    Key(Arc<str>),
    /// The issuer and subject of its token, or the credentials that it has shown.
    Fingerprint(Fingerprint),
}

/// A digest of something secret or personal, under a key that only this process has.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::server) struct Fingerprint([u8; 32]);

/// A key for fingerprints, new in each process.
pub(in crate::server) fn fingerprint_key() -> hmac::Key {
    let secret = [Uuid::new_v4().into_bytes(), Uuid::new_v4().into_bytes()].concat();
    hmac::Key::new(hmac::HMAC_SHA256, &secret)
}

/// The network that stands for an address.
///
/// A subscriber has a whole /64 of IPv6 addresses, and could come from another with each request.
pub(in crate::server) fn network(address: IpAddr) -> IpAddr {
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
    /// A digest of texts, in which it shows where one ends and the next begins.
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
}

impl Fingerprint {
    /// A word for log lines: enough of the digest to tell callers of one process apart, and nothing
    /// of what it was made of.
    pub(in crate::server) fn word(&self, of: &str) -> String {
        let digits = self.0.iter().take(6).map(|byte| format!("{byte:02x}"));
        format!("{of}-{}", digits.collect::<String>())
    }

    /// A digest of one header's credentials. How its scheme is written makes no other caller:
    /// servers read `Bearer` in any case, with any space after it.
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
    fn an_address_stands_for_its_network() {
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
    fn fingerprints_tell_texts_apart_and_processes_do_not_share_them() {
        let key = fingerprint_key();
        let of = |texts: &[&str]| Fingerprint::of(&key, texts);
        assert_eq!(of(&["a", "b"]), of(&["a", "b"]));
        for other in [&["ab"][..], &["a", "b", ""], &["", "ab"], &["b", "a"], &[]] {
            assert_ne!(of(other), of(&["a", "b"]), "{other:?}");
        }
        assert_ne!(Fingerprint::of(&fingerprint_key(), ["a", "b"]), of(&["a", "b"]));
        assert_eq!(format!("{:?}", Identity::Fingerprint(of(&["a"]))), "Fingerprint([redacted])");
    }

    #[test]
    fn how_a_scheme_is_written_makes_no_other_caller() {
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
