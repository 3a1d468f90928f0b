//! Keys and tokens of callers, and gateways that accept them.

use std::time::Duration;

use crate::support::issuer::{ISSUER, Signer, key_set};
use crate::support::process::File;
use threadway::server::{Auth, Jwt, JwtSettings, KeysFrom, Settings};

pub(super) const KEY: &str = "0123456789abcdef";
pub(super) const OTHER_KEY: &str = "fedcba9876543210";

/// The header with a key or a token.
pub(super) fn bearer(credential: &str) -> String {
    format!("authorization: Bearer {credential}\r\n")
}

pub(super) fn guarded(auth: Auth) -> Settings {
    Settings { auth, ..Settings::default() }
}

pub(super) fn keys(text: &str) -> Auth {
    Auth::Bearer(text.parse().unwrap())
}

/// [`KEY`] is that of this caller, and there is no other.
pub(super) fn key_of(name: &str) -> Auth {
    keys(&format!("{name}={KEY}"))
}

/// Tokens for these audiences, which may have expired a minute ago.
pub(super) fn tokens(keys: KeysFrom, audiences: &[&str]) -> Auth {
    let audiences = audiences.iter().map(ToString::to_string).collect();
    let skew = Duration::from_mins(1);
    let settings = JwtSettings { keys, issuer: ISSUER.to_owned(), audiences, skew };
    Auth::Jwt(Jwt::new(&settings).unwrap())
}

pub(super) fn tokens_of(signers: &[&Signer], audiences: &[&str]) -> Auth {
    let file = File::new(&key_set(signers));
    tokens(KeysFrom::File(file.0.clone()), audiences)
}
