//! An issuer of JSON Web Tokens: its keys, its key set and its signatures.

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use serde_json::{Value, json};

pub(crate) const ISSUER: &str = "https://issuer.example.com";
pub(crate) const AUDIENCE: &str = "threadway";

/// A private key and its key id.
pub(crate) struct Signer {
    id: &'static str,
    algorithm: Algorithm,
    key: EncodingKey,
}

// === impl Signer ===

impl Signer {
    pub(crate) fn ed25519(id: &'static str) -> Self {
        let key = Ed25519KeyPair::generate_pkcs8v1(&SystemRandom::new()).unwrap();
        Self { id, algorithm: Algorithm::EdDSA, key: EncodingKey::from_ed_der(key.as_ref()) }
    }

    pub(crate) fn p256(id: &'static str) -> Self {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        Self { id, algorithm: Algorithm::ES256, key: EncodingKey::from_ec_der(key.as_ref()) }
    }

    pub(crate) fn rsa(id: &'static str) -> Self {
        let key = KeyPair::generate(KeySize::Rsa2048).unwrap();
        // PKCS #8 wraps the key's own form, which `jsonwebtoken` expects, in 26 bytes.
        let key = EncodingKey::from_rsa_der(&key.as_der().unwrap().as_ref()[26..]);
        Self { id, algorithm: Algorithm::RS256, key }
    }

    /// The public key, as a key set has it.
    pub(crate) fn public(&self) -> Value {
        let jwk = Jwk::from_encoding_key(&self.key, self.algorithm).unwrap();
        let mut jwk: Value = serde_json::from_str(&serde_json::to_string(&jwk).unwrap()).unwrap();
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
        encode(&header, &claims, &self.key).unwrap()
    }

    /// A token that is signed with the public half of the key as an HMAC secret.
    pub(crate) fn confused(&self) -> String {
        let public = self.public();
        let public = public.get("n").or_else(|| public.get("x")).unwrap().as_str().unwrap();
        let key = EncodingKey::from_secret(public.as_bytes());
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
