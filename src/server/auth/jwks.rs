//! A JSON Web Key Set (RFC 7517), and what a token must be for one of its keys to vouch for it.
//!
//! What a key can do follows from the key, never from the token: a token names an algorithm, and
//! is checked only by keys that are for exactly that one.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header};
use serde::Deserialize;
use serde_json::value::RawValue;

/// How many keys of a set are kept: providers have two or three.
pub const MAX_KEYS: usize = 100;

/// The keys of an issuer.
#[derive(Debug)]
pub(super) struct KeySet(Vec<Key>);

/// One public key, and what it is for.
struct Key {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    public: DecodingKey,
}

/// Why a text is no key set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAKeySet {
    /// It has not the form of one.
    #[error("it is no JSON Web Key Set: `{{\"keys\": [..]}}`")]
    Form,
    /// None of its keys is of a kind that is taken.
    #[error("it has no public key for RS256 to PS512, ES256, ES384 or EdDSA")]
    NoKeys,
}

/// What a token claims to be, before it is believed.
#[derive(Debug)]
pub(super) struct Claimed {
    key_id: Option<String>,
    algorithm: Algorithm,
}

/// Who a token speaks for.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Claims {
    pub(super) iss: String,
    pub(super) sub: String,
}

/// What a token's claims must be.
#[derive(Clone, Debug)]
pub(super) struct Expected(Arc<Validation>);

/// Why a token is not believed. It tells no more: who made it needs no help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disbelief {
    /// It was good.
    Expired,
    /// Anything else.
    Invalid,
}

/// A key set as it is written.
#[derive(Deserialize)]
struct Written<'a> {
    #[serde(borrow)]
    keys: Vec<&'a RawValue>,
}

// === impl KeySet ===

impl KeySet {
    /// Reads a set. Keys that cannot be used are left out: a provider's new kind must not shut
    /// out the old ones.
    pub(super) fn parse(text: &str) -> Result<Self, NotAKeySet> {
        let written: Written<'_> = serde_json::from_str(text).map_err(|_| NotAKeySet::Form)?;
        let read = |key: &RawValue| Key::of(&serde_json::from_str(key.get()).ok()?);
        let keys: Vec<_> = written.keys.into_iter().filter_map(read).take(MAX_KEYS).collect();
        if keys.is_empty() { Err(NotAKeySet::NoKeys) } else { Ok(Self(keys)) }
    }

    /// Whether a token's key is here. One that names none needs a set in which only one will do.
    pub(super) fn knows(&self, claimed: &Claimed) -> bool {
        self.find(claimed).is_some()
    }

    /// Who a token speaks for, if its key is here and it is as expected.
    pub(super) fn verify(
        &self,
        token: &str,
        claimed: &Claimed,
        expected: &Expected,
    ) -> Result<Claims, Disbelief> {
        let key = self.find(claimed).ok_or(Disbelief::Invalid)?;
        let Expected(validation) = expected;
        let algorithms = vec![claimed.algorithm];
        let validation = Validation { algorithms, ..Validation::clone(validation) };
        let read = decode::<Claims>(token, &key.public, &validation);
        read.map(|token| token.claims).map_err(|error| {
            let is_expired = matches!(error.kind(), ErrorKind::ExpiredSignature);
            if is_expired { Disbelief::Expired } else { Disbelief::Invalid }
        })
    }

    fn find(&self, claimed: &Claimed) -> Option<&Key> {
        let Claimed { key_id, algorithm } = claimed;
        let mut fitting = self.0.iter().filter(|key| {
            key.algorithms.contains(algorithm) && (key_id.is_none() || key.id == *key_id)
        });
        let found = fitting.next()?;
        let is_only = key_id.is_some() || fitting.next().is_none();
        is_only.then_some(found)
    }
}

// === impl Key ===

impl Key {
    fn of(jwk: &Jwk) -> Option<Self> {
        let common = &jwk.common;
        let is_for_signatures = match &common.public_key_use {
            None | Some(PublicKeyUse::Signature) => true,
            Some(PublicKeyUse::Encryption | PublicKeyUse::Other(_)) => false,
        };
        let operations = common.key_operations.as_ref();
        let may_verify = operations.is_none_or(|all| all.contains(&KeyOperations::Verify));
        if !is_for_signatures || !may_verify {
            return None;
        }
        let mut algorithms = algorithms(&jwk.algorithm)?.to_vec();
        if let Some(only) = common.key_algorithm {
            algorithms.retain(|algorithm| KeyAlgorithm::from(*algorithm) == only);
        }
        if algorithms.is_empty() {
            return None;
        }
        let public = DecodingKey::from_jwk(jwk).ok()?;
        Some(Self { id: common.key_id.clone(), algorithms, public })
    }
}

/// The algorithms that a kind of key can be for. A secret shared with all who check is none.
fn algorithms(key: &AlgorithmParameters) -> Option<&'static [Algorithm]> {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    let curve = match key {
        AlgorithmParameters::RSA(_) => {
            return Some(&[RS256, RS384, RS512, PS256, PS384, PS512]);
        }
        AlgorithmParameters::EllipticCurve(key) => &key.curve,
        AlgorithmParameters::OctetKeyPair(key) => &key.curve,
        // The crate may learn of more.
        AlgorithmParameters::OctetKey(_) | AlgorithmParameters::Other(_) | _ => return None,
    };
    match curve {
        EllipticCurve::P256 => Some(&[ES256]),
        EllipticCurve::P384 => Some(&[ES384]),
        EllipticCurve::Ed25519 => Some(&[EdDSA]),
        EllipticCurve::P521 | _ => None,
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, algorithms, public: _ } = self;
        f.debug_struct("Key").field("id", id).field("algorithms", algorithms).finish()
    }
}

// === impl Claimed ===

impl Claimed {
    /// Reads a token's header; `None` if it has none that could be true.
    pub(super) fn parse(token: &str) -> Option<Self> {
        let Header { alg, kid, crit, .. } = decode_header(token).ok()?;
        // RFC 7515: who does not know what is critical must refuse. We know none.
        crit.is_none().then_some(Self { key_id: kid, algorithm: alg })
    }
}

// === impl Expected ===

impl Expected {
    pub(super) fn new(issuer: &str, audiences: &[String], skew: Duration) -> Self {
        let mut validation = Validation::new(Algorithm::ES256);
        validation.set_issuer(&[issuer]);
        validation.set_audience(audiences);
        validation.required_spec_claims =
            HashSet::from(["exp", "iss", "aud", "sub"].map(str::to_owned));
        validation.validate_nbf = true;
        validation.leeway = skew.as_secs();
        Self(Arc::new(validation))
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::encoding::AsDer;
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
        EcdsaSigningAlgorithm, Ed25519KeyPair,
    };
    use jsonwebtoken::{EncodingKey, encode, get_current_timestamp};
    use serde_json::{Value, json};

    use super::*;

    /// What claims, or what a set says of a key, are instead.
    type Changes<'a> = &'a [(&'a str, Value)];

    /// A private key, and the public one as a set has it.
    struct Signer {
        key: EncodingKey,
        jwk: Value,
    }

    fn signer(key: EncodingKey, algorithm: Algorithm) -> Signer {
        let jwk = Jwk::from_encoding_key(&key, algorithm).unwrap();
        Signer { key, jwk: serde_json::from_str(&serde_json::to_string(&jwk).unwrap()).unwrap() }
    }

    fn ed25519() -> Signer {
        let key = Ed25519KeyPair::generate_pkcs8v1(&SystemRandom::new()).unwrap();
        signer(EncodingKey::from_ed_der(key.as_ref()), Algorithm::EdDSA)
    }

    fn ec(curve: &'static EcdsaSigningAlgorithm, algorithm: Algorithm) -> Signer {
        let key = EcdsaKeyPair::generate_pkcs8(curve, &SystemRandom::new()).unwrap();
        signer(EncodingKey::from_ec_der(key.as_ref()), algorithm)
    }

    fn rsa() -> Signer {
        let key = aws_lc_rs::rsa::KeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
        // PKCS #8 wraps the key's own form, which is wanted, in 26 bytes.
        let der = key.as_der().unwrap();
        signer(EncodingKey::from_rsa_der(&der.as_ref()[26..]), Algorithm::RS256)
    }

    impl Signer {
        /// Its public key, with or without some of what a set may say of it.
        fn told(&self, changes: &[(&str, Value)]) -> Value {
            let mut jwk = self.jwk.clone();
            jwk.as_object_mut().unwrap().remove("alg");
            for (name, value) in changes {
                jwk[name] = value.clone();
            }
            jwk
        }

        fn sign(&self, algorithm: Algorithm, kid: Option<&str>, claims: &Value) -> String {
            let header = Header { kid: kid.map(str::to_owned), ..Header::new(algorithm) };
            encode(&header, claims, &self.key).unwrap()
        }
    }

    fn set(keys: &[Value]) -> KeySet {
        KeySet::parse(&json!({ "keys": keys }).to_string()).unwrap()
    }

    fn claims() -> Value {
        let exp = get_current_timestamp() + 600;
        json!({"iss": "https://issuer", "aud": "threadway", "sub": "ada", "exp": exp})
    }

    fn verify(keys: &KeySet, token: &str) -> Result<String, Disbelief> {
        let audiences = ["threadway".to_owned(), "other".to_owned()];
        let expected = Expected::new("https://issuer", &audiences, Duration::from_mins(1));
        let claimed = Claimed::parse(token).ok_or(Disbelief::Invalid)?;
        keys.verify(token, &claimed, &expected).map(|claims| claims.sub)
    }

    #[test]
    fn each_kind_of_key_vouches_for_its_own_algorithms_only() {
        use Algorithm::{ES256, ES384, EdDSA, HS256, PS256, PS384, PS512, RS256, RS384, RS512};
        let p256 = ec(&ECDSA_P256_SHA256_FIXED_SIGNING, ES256);
        let p384 = ec(&ECDSA_P384_SHA384_FIXED_SIGNING, ES384);
        let (ed, rsa) = (ed25519(), rsa());
        for (signer, algorithms) in [
            (&p256, &[ES256][..]),
            (&p384, &[ES384]),
            (&ed, &[EdDSA]),
            (&rsa, &[RS256, RS384, RS512, PS256, PS384, PS512]),
        ] {
            let keys = set(&[signer.told(&[("kid", json!("k"))])]);
            for algorithm in algorithms {
                let token = signer.sign(*algorithm, Some("k"), &claims());
                assert_eq!(verify(&keys, &token).as_deref(), Ok("ada"), "{algorithm:?}");
                // Another key's signature, under the same id.
                let others = [ed25519(), ec(&ECDSA_P256_SHA256_FIXED_SIGNING, ES256)];
                let others = set(&others.map(|other| other.told(&[("kid", json!("k"))])));
                assert_eq!(verify(&others, &token), Err(Disbelief::Invalid), "{algorithm:?}");
            }
            // What everybody can read is no secret to sign with.
            let jwk = signer.told(&[]);
            let public = jwk.get("n").or_else(|| jwk.get("x")).unwrap().as_str().unwrap();
            let secret = EncodingKey::from_secret(public.as_bytes());
            let header = Header { kid: Some("k".to_owned()), ..Header::new(HS256) };
            let forged = encode(&header, &claims(), &secret).unwrap();
            assert_eq!(verify(&keys, &forged), Err(Disbelief::Invalid));
        }
        // A key that says what it is for is for nothing else.
        let only = set(&[rsa.told(&[("alg", json!("PS256"))])]);
        assert_eq!(verify(&only, &rsa.sign(PS256, None, &claims())).as_deref(), Ok("ada"));
        assert_eq!(verify(&only, &rsa.sign(RS256, None, &claims())), Err(Disbelief::Invalid));
    }

    #[test]
    fn a_token_names_its_key_or_there_is_but_one() {
        let (a, b, rsa) = (ed25519(), ed25519(), rsa());
        let kid = |id: &str| [("kid", json!(id))];
        let keys = set(&[a.told(&kid("a")), b.told(&kid("b")), rsa.told(&[])]);
        let of = |signer: &Signer, kid| {
            let algorithm =
                if signer.jwk["kty"] == "RSA" { Algorithm::RS256 } else { Algorithm::EdDSA };
            verify(&keys, &signer.sign(algorithm, kid, &claims())).is_ok()
        };
        for (is_good, expected) in [
            (of(&a, Some("a")), true),
            (of(&b, Some("b")), true),
            (of(&a, Some("b")), false),
            (of(&a, Some("c")), false),
            (of(&a, None), false),
            (of(&rsa, None), true),
            (of(&rsa, Some("a")), false),
        ] {
            assert_eq!(is_good, expected);
        }
    }

    #[test]
    fn claims_are_as_expected_or_refused() {
        let (signer, now) = (ed25519(), get_current_timestamp());
        let keys = set(&[signer.told(&[])]);
        let long = "x".repeat(100_000);
        let cases: &[(Changes<'_>, Result<&str, Disbelief>)] = &[
            (&[], Ok("ada")),
            (&[("aud", json!(["x", "other"]))], Ok("ada")),
            // The clocks may be a minute apart.
            (&[("exp", json!(now - 50))], Ok("ada")),
            (&[("exp", json!(now - 70))], Err(Disbelief::Expired)),
            (&[("nbf", json!(now + 50))], Ok("ada")),
            (&[("nbf", json!(now + 70))], Err(Disbelief::Invalid)),
            (&[("exp", Value::Null)], Err(Disbelief::Invalid)),
            (&[("exp", json!("tomorrow"))], Err(Disbelief::Invalid)),
            (&[("exp", json!(-1))], Err(Disbelief::Invalid)),
            (&[("nbf", json!("now"))], Err(Disbelief::Invalid)),
            (&[("iss", json!("https://other"))], Err(Disbelief::Invalid)),
            (&[("iss", json!("https://issuer/"))], Err(Disbelief::Invalid)),
            (&[("iss", json!(["https://issuer"]))], Err(Disbelief::Invalid)),
            (&[("iss", Value::Null)], Err(Disbelief::Invalid)),
            (&[("aud", json!("threadway2"))], Err(Disbelief::Invalid)),
            (&[("aud", json!([]))], Err(Disbelief::Invalid)),
            (&[("aud", json!(7))], Err(Disbelief::Invalid)),
            (&[("aud", Value::Null)], Err(Disbelief::Invalid)),
            (&[("sub", Value::Null)], Err(Disbelief::Invalid)),
            (&[("sub", json!(1))], Err(Disbelief::Invalid)),
            (&[("more", json!(long))], Ok("ada")),
        ];
        for (changes, expected) in cases {
            let mut claims = claims();
            for (name, value) in *changes {
                claims[name] = value.clone();
            }
            let found = verify(&keys, &signer.sign(Algorithm::EdDSA, None, &claims));
            assert_eq!(found.as_deref().map_err(|error| *error), *expected, "{changes:?}");
        }
    }

    #[test]
    fn what_is_no_signed_token_is_refused() {
        let signer = ed25519();
        let keys = set(&[signer.told(&[])]);
        let good = signer.sign(Algorithm::EdDSA, None, &claims());
        assert!(verify(&keys, &good).is_ok());
        let [head, body, signature] = good.split('.').collect::<Vec<_>>()[..] else { panic!() };
        // {"alg":"none"}, and the same with its case changed.
        let (none, none_too) = ("eyJhbGciOiJub25lIn0", "eyJhbGciOiJOb25lIn0");
        for token in [
            String::new(),
            "..".to_owned(),
            "a.b.c".to_owned(),
            good[..good.len() - 1].to_owned(),
            format!("{head}.{body}."),
            format!("{head}.{body}"),
            format!("{good}.{signature}"),
            format!("{none}.{body}."),
            format!("{none}.{body}.{signature}"),
            format!("{none_too}.{body}."),
            format!(" {good}"),
            format!("{head}.{}.{signature}", body.replace('e', "f")),
        ] {
            assert_eq!(verify(&keys, &token), Err(Disbelief::Invalid), "{token}");
        }
        let crit = Some(vec!["exp".to_owned()]);
        let header = Header { crit, ..Header::new(Algorithm::EdDSA) };
        let critical = encode(&header, &claims(), &signer.key).unwrap();
        assert_eq!(verify(&keys, &critical), Err(Disbelief::Invalid));
    }

    #[test]
    fn a_key_set_is_its_usable_keys() {
        let signer = ed25519();
        let cases: &[(Changes<'_>, bool)] = &[
            (&[], true),
            (&[("use", json!("sig"))], true),
            (&[("key_ops", json!(["verify"]))], true),
            (&[("x5c", json!(["MII"]))], true),
            (&[("use", json!("enc"))], false),
            (&[("use", json!("new"))], false),
            (&[("key_ops", json!(["encrypt"]))], false),
            (&[("alg", json!("RS256"))], false),
            (&[("alg", json!("HS256"))], false),
            (&[("alg", json!("none"))], false),
            (&[("kty", json!("oct")), ("k", json!("c2VjcmV0"))], false),
            (&[("kty", json!("new"))], false),
            (&[("crv", json!("X25519"))], false),
            (&[("x", json!("?"))], false),
        ];
        for (changes, expected) in cases {
            let text = json!({"keys": [signer.told(changes)]}).to_string();
            let keys = KeySet::parse(&text);
            assert_eq!(keys.as_ref().is_ok(), *expected, "{changes:?} {keys:?}");
            // What is of no use does no harm to the others.
            let both = json!({"keys": [signer.told(changes), 1, null, signer.told(&[("kid", json!("k"))])]});
            let both = KeySet::parse(&both.to_string()).unwrap();
            let token = signer.sign(Algorithm::EdDSA, Some("k"), &claims());
            assert!(verify(&both, &token).is_ok(), "{changes:?}");
        }
        for text in ["", "[]", "{}", r#"{"keys":{}}"#, r#"{"keys":[]}"#, "<html>"] {
            assert!(KeySet::parse(text).is_err(), "{text}");
        }
        let many = vec![signer.told(&[]); MAX_KEYS + 1];
        assert_eq!(set(&many).0.len(), MAX_KEYS);
    }
}
