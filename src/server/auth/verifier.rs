//! Verifies the signatures of tokens with ring.
//!
//! `jsonwebtoken` takes its cryptography from a provider that is installed once for the process.
//! This one verifies with public keys, and does nothing else: it signs nothing, and it knows no
//! shared secrets.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, UnparsedPublicKey,
    VerificationAlgorithm,
};

/// `jsonwebtoken` verifies with the first two only. Its own placeholders for the rest would panic.
static PROVIDER: CryptoProvider = CryptoProvider {
    verifier_factory: |algorithm, key| Ok(Box::new(RingVerifier::new(*algorithm, key)?)),
    signer_factory: |_, _| Err(unsupported()),
    key_utils: KeyUtils {
        rsa_pub_components_from_private_key: |_| Err(unsupported()),
        rsa_pub_components_from_public_key: |_| Err(unsupported()),
        ec_pub_components_from_private_key: |_, _| Err(unsupported()),
        ed_pub_components_from_private_key: |_, _| Err(unsupported()),
        compute_digest: |_, _| Err(unsupported()),
    },
};

/// Verifies signatures of one algorithm by one key.
struct RingVerifier {
    algorithm: Algorithm,
    key: PublicKey,
}

enum PublicKey {
    /// The numbers, without leading zeros.
    Rsa(&'static RsaParameters, PublicKeyComponents<Vec<u8>>),
    /// The point of a curve.
    Point(UnparsedPublicKey<Vec<u8>>),
}

/// What an algorithm's signatures are verified by.
enum Method {
    Rsa(&'static RsaParameters),
    Point(&'static dyn VerificationAlgorithm),
}

/// Lets `jsonwebtoken` verify with ring, from now on.
///
/// Fails only if a provider is installed already: ours, since the gateway has no other.
pub(super) fn install() {
    let _ = PROVIDER.install_default();
}

fn unsupported() -> Error {
    ErrorKind::UnsupportedAlgorithm.into()
}

// === impl Method ===

impl Method {
    /// `None` for shared secrets, and for algorithms that a later `jsonwebtoken` adds.
    fn of(algorithm: Algorithm) -> Option<Self> {
        Some(match algorithm {
            Algorithm::RS256 => Self::Rsa(&RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => Self::Rsa(&RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => Self::Rsa(&RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => Self::Rsa(&RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => Self::Rsa(&RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => Self::Rsa(&RSA_PSS_2048_8192_SHA512),
            Algorithm::ES256 => Self::Point(&ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => Self::Point(&ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => Self::Point(&ED25519),
            // The enum is `non_exhaustive`.
            Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 | _ => return None,
        })
    }
}

// === impl RingVerifier ===

impl RingVerifier {
    fn new(algorithm: Algorithm, key: &DecodingKey) -> Result<Self, Error> {
        if key.family() != algorithm.family() {
            return Err(ErrorKind::InvalidKeyFormat.into());
        }
        let method = Method::of(algorithm).ok_or_else(unsupported)?;
        let key = match (method, key.kind()) {
            (Method::Rsa(parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                PublicKey::Rsa(parameters, PublicKeyComponents { n: number(n), e: number(e) })
            }
            (Method::Point(algorithm), DecodingKeyKind::SecretOrDer(point)) => {
                PublicKey::Point(UnparsedPublicKey::new(algorithm, point.clone()))
            }
            // A key in another form than a key set's.
            (Method::Rsa(_), DecodingKeyKind::SecretOrDer(_))
            | (Method::Point(_), DecodingKeyKind::RsaModulusExponent { .. }) => {
                return Err(ErrorKind::InvalidKeyFormat.into());
            }
        };
        Ok(Self { algorithm, key })
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let verified = match &self.key {
            PublicKey::Rsa(parameters, key) => key.verify(parameters, message, signature),
            PublicKey::Point(key) => key.verify(message, signature),
        };
        // ring gives no reason.
        verified.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

/// A number without leading zeros, which ring refuses. RFC 7518 forbids them, and warns that some
/// libraries write one.
fn number(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().skip_while(|byte| *byte == 0).collect()
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{EncodingKey, Header, crypto};
    use ring::signature::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY;
    use serde_json::{Value, json};

    use super::*;
    use crate::server::auth::signer::{PrivateKey, encoded};
    use Algorithm::{ES256, ES384, EdDSA, HS256, PS256, PS384, PS512, RS256, RS384, RS512};

    const MESSAGE: &[u8] = b"a message";

    /// The modulus of a key of 1024 bits with the exponent 65537, and its RS256 of [`MESSAGE`].
    const SHORT_KEY: &str = "8738l_CjMxpaVlICPhtHqsMIVw1oBjJcA4Df9c6Lz8-Be8IRzM7e6JBIGMOReeYPwdvXqnXrQ4xVhGSHmFk4wV99e5hsmfdV-h0EJIoLl0nItYwJSA2tJwX81le9Py1zoquojAA6I00az2n_wHVzZZzeyEeMMrFbbPtOBVuvqIE";
    const SHORT_SIGNATURE: &str = "o6PKkGne2mPGYQk3S_y9SX2G0UHuHCah1K_YCyqwKjORGjgD0FTa-3b436U1eirfneVKovNp5U3Ok5zsWhsJWZUJAZOGJDfiEOEOejc9el-f-pw0Y0fIw07_uCEjNRO_qv7y8YuJGU4XxGCfusEA8rdE3mSN_lC8KLZJy5-wmvQ";

    fn kinds() -> [(PrivateKey, &'static [Algorithm]); 4] {
        [
            (PrivateKey::rsa(), &[RS256, RS384, RS512, PS256, PS384, PS512]),
            (PrivateKey::p256(), &[ES256]),
            (PrivateKey::p384(), &[ES384]),
            (PrivateKey::ed25519(), &[EdDSA]),
        ]
    }

    fn public(jwk: &Value) -> DecodingKey {
        let jwk = serde_json::from_value(jwk.clone()).unwrap();
        DecodingKey::from_jwk(&jwk).unwrap()
    }

    /// Whether `jsonwebtoken` accepts a signature of [`MESSAGE`].
    fn accepts(key: &DecodingKey, algorithm: Algorithm, signature: &[u8]) -> bool {
        install();
        crypto::verify(&encoded(signature), MESSAGE, key, algorithm).unwrap_or(false)
    }

    #[test]
    fn a_changed_signature_is_refused_as_is_one_of_another_length() {
        for (private, algorithms) in kinds() {
            let key = public(&private.jwk());
            for algorithm in algorithms {
                let good = private.sign(*algorithm, MESSAGE);
                assert!(accepts(&key, *algorithm, &good), "{algorithm:?}");
                for at in 0..good.len() {
                    let mut changed = good.clone();
                    changed[at] ^= 1;
                    assert!(!accepts(&key, *algorithm, &changed), "{algorithm:?} {at}");
                }
                for length in 0..good.len() {
                    let short = &good[..length];
                    assert!(!accepts(&key, *algorithm, short), "{algorithm:?} {length}");
                }
                for more in [&[0][..], &[0; 32], &good] {
                    let long = [&good, more].concat();
                    assert!(!accepts(&key, *algorithm, &long), "{algorithm:?} {more:?}");
                    let long = [more, &good].concat();
                    assert!(!accepts(&key, *algorithm, &long), "{algorithm:?} {more:?}");
                }
                let of_another = private.sign(*algorithm, b"another message");
                assert!(!accepts(&key, *algorithm, &of_another), "{algorithm:?}");
            }
        }
    }

    #[test]
    fn a_signature_counts_for_its_own_algorithm_only() {
        let all = [RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA, HS256];
        for (private, algorithms) in kinds() {
            let key = public(&private.jwk());
            for signed in algorithms {
                let signature = private.sign(*signed, MESSAGE);
                for claimed in all {
                    let expected = claimed == *signed;
                    assert_eq!(
                        accepts(&key, claimed, &signature),
                        expected,
                        "{signed:?} {claimed:?}"
                    );
                }
            }
            // The public key as a shared secret, in each of its forms.
            let jwk = private.jwk();
            for member in ["n", "x"].iter().filter_map(|name| jwk.get(name)) {
                let secret = PrivateKey::secret(member.as_str().unwrap().as_bytes());
                assert!(!accepts(&key, HS256, &secret.sign(HS256, MESSAGE)), "{jwk}");
            }
        }
        // Not even a real shared secret.
        let signature = PrivateKey::secret(b"secret").sign(HS256, MESSAGE);
        assert!(!accepts(&DecodingKey::from_secret(b"secret"), HS256, &signature));
    }

    #[test]
    fn a_key_of_the_wrong_size_is_refused() {
        let numbers = |n: &str| public(&json!({"kty": "RSA", "n": n, "e": "AQAB"}));
        let bytes = |text: &str| {
            let jwk = json!({"kty": "OKP", "crv": "Ed25519", "x": text});
            public(&jwk).try_get_as_bytes().unwrap().to_vec()
        };
        // The signature is good, and the key is too short.
        let short = PublicKeyComponents { n: bytes(SHORT_KEY), e: bytes("AQAB") };
        let signature = bytes(SHORT_SIGNATURE);
        short.verify(&RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, MESSAGE, &signature).unwrap();
        assert!(!accepts(&numbers(SHORT_KEY), RS256, &signature));

        for (private, algorithms) in kinds() {
            let signature = private.sign(algorithms[0], MESSAGE);
            let jwk = private.jwk();
            for name in ["n", "e", "x", "y"] {
                let Some(member) = jwk.get(name) else { continue };
                let good = bytes(member.as_str().unwrap());
                let longer = [&good[..], &[1]].concat();
                for wrong in [&[][..], &[0], &good[1..], &good[..good.len() - 1], &longer] {
                    let mut jwk = jwk.clone();
                    jwk[name] = json!(encoded(wrong));
                    assert!(!accepts(&public(&jwk), algorithms[0], &signature), "{jwk}");
                }
            }
        }
        // More than 8192 bits, and exponents that are no use.
        let huge = encoded(&[0xff; 1025]);
        assert!(!accepts(&numbers(&huge), RS256, &[1; 1025]));
        let rsa = PrivateKey::rsa();
        let signature = rsa.sign(RS256, MESSAGE);
        for exponent in ["AQ", "Ag", "AA", "AQAAAAAAAAAB"] {
            let mut jwk = rsa.jwk();
            jwk["e"] = json!(exponent);
            assert!(!accepts(&public(&jwk), RS256, &signature), "{exponent}");
        }
    }

    #[test]
    fn leading_zeros_of_an_rsa_key_do_not_matter() {
        let rsa = PrivateKey::rsa();
        let signature = rsa.sign(RS256, MESSAGE);
        for name in ["n", "e"] {
            let mut jwk = rsa.jwk();
            let bytes = DecodingKey::from_ed_components(jwk[name].as_str().unwrap()).unwrap();
            let padded = [&[0, 0], bytes.try_get_as_bytes().unwrap()].concat();
            jwk[name] = json!(encoded(&padded));
            assert!(accepts(&public(&jwk), RS256, &signature), "{name}");
        }
    }

    #[test]
    fn a_key_in_another_form_or_of_another_family_is_refused() {
        install();
        let der = b"key";
        for key in [
            DecodingKey::from_rsa_der(der),
            DecodingKey::from_ec_der(der),
            DecodingKey::from_ed_der(der),
            DecodingKey::from_secret(der),
            DecodingKey::from_rsa_raw_components(&[], &[]),
        ] {
            for algorithm in [RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA, HS256]
            {
                assert!(!accepts(&key, algorithm, b"signature"), "{key:?} {algorithm:?}");
            }
        }
    }

    #[test]
    fn nothing_else_is_done_and_nothing_panics() {
        use jsonwebtoken::jwk::{Jwk, ThumbprintHash};

        install();
        let secret = EncodingKey::from_secret(b"secret");
        assert!(jsonwebtoken::encode(&Header::new(HS256), &json!({}), &secret).is_err());
        for (key, algorithm) in [
            (EncodingKey::from_rsa_der(b"key"), RS256),
            (EncodingKey::from_ec_der(b"key"), ES256),
            (EncodingKey::from_ed_der(b"key"), EdDSA),
        ] {
            assert!(Jwk::from_encoding_key(&key, algorithm).is_err());
        }
        let jwk: Jwk = serde_json::from_value(PrivateKey::rsa().jwk()).unwrap();
        assert!(jwk.thumbprint(ThumbprintHash::SHA256).is_err());
    }
}
