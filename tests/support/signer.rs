//! Private keys that sign JSON Web Tokens, as an issuer's do.

use base64::display::Base64Display;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, Header};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384,
    RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
};
use ring::{hmac, rsa};
use serde_json::{Value, json};

/// An RSA key of 2048 bits as PKCS #8. It protects nothing: it was made for these tests, and
/// everybody can read it here. ring cannot generate RSA keys.
const PUBLIC_TEST_KEY: &[u8] = include_bytes!("rsa-2048.der");

/// A private key.
pub(crate) enum PrivateKey {
    Ed25519(Ed25519KeyPair),
    /// With the name of its curve.
    Ec(&'static str, EcdsaKeyPair),
    Rsa(RsaKeyPair),
    /// A shared secret for HS256.
    Secret(hmac::Key),
}

// === impl PrivateKey ===

impl PrivateKey {
    pub(crate) fn ed25519() -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed25519(Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap())
    }

    pub(crate) fn p256() -> Self {
        Self::ec("P-256", &ECDSA_P256_SHA256_FIXED_SIGNING)
    }

    pub(crate) fn p384() -> Self {
        Self::ec("P-384", &ECDSA_P384_SHA384_FIXED_SIGNING)
    }

    fn ec(curve: &'static str, algorithm: &'static EcdsaSigningAlgorithm) -> Self {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self::Ec(curve, EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap())
    }

    /// Always the same key.
    pub(crate) fn rsa() -> Self {
        Self::Rsa(RsaKeyPair::from_pkcs8(PUBLIC_TEST_KEY).unwrap())
    }

    pub(crate) fn secret(secret: &[u8]) -> Self {
        Self::Secret(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The public key, as a key set has it.
    pub(crate) fn jwk(&self) -> Value {
        match self {
            Self::Ed25519(key) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": encoded(key.public_key().as_ref())})
            }
            Self::Ec(curve, key) => {
                // A byte for the form, then two coordinates of the same length.
                let point = &key.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                json!({"kty": "EC", "crv": curve, "x": encoded(x), "y": encoded(y)})
            }
            Self::Rsa(key) => {
                let public = rsa::PublicKeyComponents::<Vec<u8>>::from(key.public());
                json!({"kty": "RSA", "n": encoded(&public.n), "e": encoded(&public.e)})
            }
            Self::Secret(_) => panic!("a secret has no public key"),
        }
    }

    /// A token, signed by the algorithm of its header.
    pub(crate) fn token(&self, header: &Header, claims: &Value) -> String {
        let header_json = serde_json::to_vec(header).unwrap();
        let claims_json = serde_json::to_vec(claims).unwrap();
        let message = format!("{}.{}", encoded(&header_json), encoded(&claims_json));
        let signature = self.sign(header.alg, message.as_bytes());
        format!("{message}.{}", encoded(&signature))
    }

    pub(crate) fn sign(&self, algorithm: Algorithm, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Ed25519(key) => key.sign(message).as_ref().to_vec(),
            Self::Ec(_, key) => key.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(encoding(algorithm), &random, message, &mut signature).unwrap();
                signature
            }
            Self::Secret(key) => hmac::sign(key, message).as_ref().to_vec(),
        }
    }
}

/// How RSA pads what it signs.
fn encoding(algorithm: Algorithm) -> &'static dyn RsaEncoding {
    match algorithm {
        Algorithm::RS256 => &RSA_PKCS1_SHA256,
        Algorithm::RS384 => &RSA_PKCS1_SHA384,
        Algorithm::RS512 => &RSA_PKCS1_SHA512,
        Algorithm::PS256 => &RSA_PSS_SHA256,
        Algorithm::PS384 => &RSA_PSS_SHA384,
        Algorithm::PS512 => &RSA_PSS_SHA512,
        Algorithm::HS256
        | Algorithm::HS384
        | Algorithm::HS512
        | Algorithm::ES256
        | Algorithm::ES384
        | Algorithm::EdDSA
        // The enum is `non_exhaustive`.
        | _ => panic!("{algorithm:?} is not for RSA"),
    }
}

/// Bytes in base64url, as all parts of a token and a key are.
pub(crate) fn encoded(bytes: &[u8]) -> String {
    Base64Display::new(bytes, &BASE64_URL_SAFE_NO_PAD).to_string()
}
