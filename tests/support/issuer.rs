//! An issuer of JSON Web Tokens: its keys, its key set and its signatures.

use jsonwebtoken::{Algorithm, Header, get_current_timestamp};
use serde_json::{Value, json};

use super::signer::PrivateKey;

pub(crate) const ISSUER: &str = "https://issuer.example.com";
pub(crate) const AUDIENCE: &str = "threadway";

/// A private key and its key id.
pub(crate) struct Signer {
    id: &'static str,
    algorithm: Algorithm,
    key: PrivateKey,
}

// === impl Signer ===

impl Signer {
    pub(crate) fn ed25519(id: &'static str) -> Self {
        Self { id, algorithm: Algorithm::EdDSA, key: PrivateKey::ed25519() }
    }

    pub(crate) fn p256(id: &'static str) -> Self {
        Self { id, algorithm: Algorithm::ES256, key: PrivateKey::p256() }
    }

    pub(crate) fn rsa(id: &'static str) -> Self {
        Self { id, algorithm: Algorithm::RS256, key: PrivateKey::rsa() }
    }

    /// The public key, as a key set has it.
    pub(crate) fn public(&self) -> Value {
        let mut jwk = self.key.jwk();
        jwk["alg"] = json!(self.algorithm);
        jwk["kid"] = json!(self.id);
        jwk["use"] = json!("sig");
        jwk
    }

    /// A token for Ada that is valid for ten minutes, with some claims changed.
    pub(crate) fn token(&self, changes: &[(&str, Value)]) -> String {
        let now = get_current_timestamp();
        let mut claims = json!({"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": now + 600});
        for (name, value) in changes {
            claims[*name] = value.clone();
        }
        let header = Header { kid: Some(self.id.to_owned()), ..Header::new(self.algorithm) };
        self.key.token(&header, &claims)
    }

    /// A token that is signed with the public half of the key as an HMAC secret.
    pub(crate) fn confused(&self) -> String {
        let public = self.public();
        let public = public.get("n").or_else(|| public.get("x")).unwrap().as_str().unwrap();
        let key = PrivateKey::secret(public.as_bytes());
        Self { id: self.id, algorithm: Algorithm::HS256, key }.token(&[])
    }
}

/// Seconds since 1970, this many after now.
pub(crate) fn from_now(seconds: i64) -> Value {
    json!(get_current_timestamp().checked_add_signed(seconds).unwrap())
}

/// The key set with these keys.
pub(crate) fn key_set(signers: &[&Signer]) -> String {
    json!({"keys": signers.iter().map(|signer| signer.public()).collect::<Vec<_>>()}).to_string()
}
