//! A JSON Web Key Set (RFC 7517), and the verification of tokens with its keys.
//!
//! A key's algorithms follow from the key, never from the token. A token names an algorithm, and is
//! checked only with keys for exactly that algorithm.

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

use super::verifier;

/// How many keys of a set are kept. Providers have two or three.
const MAX_KEYS: usize = 100;

/// The keys of an issuer.
#[derive(Debug)]
pub(super) struct KeySet(Vec<Key>);

/// One public key, and the algorithms that it is for.
struct Key {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    public: DecodingKey,
}

/// Why a text is not a usable key set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAKeySet {
    /// The text is malformed.
    #[error("it is not a JSON Web Key Set: `{{\"keys\": [..]}}`")]
    Form,
    /// None of its keys is of a supported kind.
    #[error("it has no public key for RS256 to PS512, ES256, ES384 or EdDSA")]
    NoKeys,
}

/// The header of a token that is not verified yet.
#[derive(Debug)]
pub(super) struct TokenHeader {
    key_id: Option<String>,
    algorithm: Algorithm,
}

/// The values of `typ` that an access token may have, in either case: media types, of which
/// `application/` may be left out (RFC 7519, section 5.1; RFC 9068). RFC 8725, section 3.11: a token
/// of another type, such as `logout+jwt`, is not for access.
const TYPES: [&str; 4] = ["JWT", "application/jwt", "at+jwt", "application/at+jwt"];

/// The claims that identify a caller.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Claims {
    pub(super) iss: String,
    pub(super) sub: String,
}

/// The claims that a token must have.
#[derive(Clone, Debug)]
pub(super) struct ExpectedClaims(Arc<Validation>);

/// Why a token is not verified. More detail would only help somebody who forges tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VerifyError {
    Expired,
    Invalid,
}

/// The JSON of a key set.
#[derive(Deserialize)]
struct KeySetJson<'a> {
    #[serde(borrow)]
    keys: Vec<&'a RawValue>,
}

// === impl KeySet ===

impl KeySet {
    /// Reads a set. Keys of unsupported kinds are left out: a provider that adds one must not make
    /// the others unusable.
    pub(super) fn parse(text: &str) -> Result<Self, NotAKeySet> {
        // Nothing is verified without a set.
        verifier::install();
        let json: KeySetJson<'_> = serde_json::from_str(text).map_err(|_| NotAKeySet::Form)?;
        let read = |key: &RawValue| Key::of(&serde_json::from_str(key.get()).ok()?);
        let keys: Vec<_> = json.keys.into_iter().filter_map(read).take(MAX_KEYS).collect();
        if keys.is_empty() { Err(NotAKeySet::NoKeys) } else { Ok(Self(keys)) }
    }

    /// Whether the set has a token's key. A token that names no key needs a set with exactly one
    /// key that fits.
    pub(super) fn has_key_for(&self, header: &TokenHeader) -> bool {
        self.find(header).is_some()
    }

    /// Verifies a token, and returns its claims.
    pub(super) fn verify(
        &self,
        token: &str,
        header: &TokenHeader,
        expected: &ExpectedClaims,
    ) -> Result<Claims, VerifyError> {
        let key = self.find(header).ok_or(VerifyError::Invalid)?;
        let ExpectedClaims(validation) = expected;
        let algorithms = vec![header.algorithm];
        let validation = Validation { algorithms, ..Validation::clone(validation) };
        let read = decode::<Claims>(token, &key.public, &validation);
        let claims = read.map(|token| token.claims).map_err(|error| {
            let is_expired = matches!(error.kind(), ErrorKind::ExpiredSignature);
            if is_expired { VerifyError::Expired } else { VerifyError::Invalid }
        })?;
        // RFC 7519, section 4.1.2: `sub` identifies the caller. All callers without one would be
        // the same caller.
        if claims.sub.trim().is_empty() { Err(VerifyError::Invalid) } else { Ok(claims) }
    }

    fn find(&self, header: &TokenHeader) -> Option<&Key> {
        let TokenHeader { key_id, algorithm } = header;
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

/// The algorithms that a kind of key can be for. Shared secrets are not accepted: everybody who
/// verifies with one could sign with it.
fn algorithms(key: &AlgorithmParameters) -> Option<&'static [Algorithm]> {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    let curve = match key {
        AlgorithmParameters::RSA(_) => {
            return Some(&[RS256, RS384, RS512, PS256, PS384, PS512]);
        }
        AlgorithmParameters::EllipticCurve(key) => &key.curve,
        AlgorithmParameters::OctetKeyPair(key) => &key.curve,
        // The enum is `non_exhaustive`.
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

// === impl TokenHeader ===

impl TokenHeader {
    /// Reads a token's header. Returns `None` for a malformed one, for one with critical extensions,
    /// and for a token of another type than [`TYPES`].
    pub(super) fn parse(token: &str) -> Option<Self> {
        let Header { alg, kid, crit, typ, .. } = decode_header(token).ok()?;
        let is_access =
            typ.is_none_or(|typ| TYPES.iter().any(|accepted| typ.eq_ignore_ascii_case(accepted)));
        // RFC 7515: a critical extension that is not known must be refused, and none is known here.
        (crit.is_none() && is_access).then_some(Self { key_id: kid, algorithm: alg })
    }
}

// === impl ExpectedClaims ===

impl ExpectedClaims {
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
    use jsonwebtoken::get_current_timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::server::auth::signer::PrivateKey;

    /// Changes to a token's claims, or to a key's members in a set.
    type Changes<'a> = &'a [(&'a str, Value)];

    impl PrivateKey {
        /// The public key without `alg`, with changes.
        fn public_key(&self, changes: &[(&str, Value)]) -> Value {
            let mut jwk = self.jwk();
            for (name, value) in changes {
                jwk[name] = value.clone();
            }
            jwk
        }

        fn token_by(&self, algorithm: Algorithm, kid: Option<&str>, claims: &Value) -> String {
            let header = Header { kid: kid.map(str::to_owned), ..Header::new(algorithm) };
            self.token(&header, claims)
        }
    }

    fn set(keys: &[Value]) -> KeySet {
        KeySet::parse(&json!({ "keys": keys }).to_string()).unwrap()
    }

    fn claims() -> Value {
        let exp = get_current_timestamp() + 600;
        json!({"iss": "https://issuer", "aud": "threadway", "sub": "ada", "exp": exp})
    }

    fn verify(keys: &KeySet, token: &str) -> Result<String, VerifyError> {
        let audiences = ["threadway".to_owned(), "other".to_owned()];
        let expected = ExpectedClaims::new("https://issuer", &audiences, Duration::from_mins(1));
        let header = TokenHeader::parse(token).ok_or(VerifyError::Invalid)?;
        keys.verify(token, &header, &expected).map(|claims| claims.sub)
    }

    #[test]
    fn each_kind_of_key_verifies_its_own_algorithms_only() {
        use Algorithm::{ES256, ES384, EdDSA, HS256, PS256, PS384, PS512, RS256, RS384, RS512};
        let (p256, p384) = (PrivateKey::p256(), PrivateKey::p384());
        let (ed, rsa) = (PrivateKey::ed25519(), PrivateKey::rsa());
        for (signer, algorithms) in [
            (&p256, &[ES256][..]),
            (&p384, &[ES384]),
            (&ed, &[EdDSA]),
            (&rsa, &[RS256, RS384, RS512, PS256, PS384, PS512]),
        ] {
            let keys = set(&[signer.public_key(&[("kid", json!("k"))])]);
            for algorithm in algorithms {
                let token = signer.token_by(*algorithm, Some("k"), &claims());
                assert_eq!(verify(&keys, &token).as_deref(), Ok("ada"), "{algorithm:?}");
                // Other keys under the same id.
                let others = [PrivateKey::ed25519(), PrivateKey::p256()];
                let others = set(&others.map(|other| other.public_key(&[("kid", json!("k"))])));
                assert_eq!(verify(&others, &token), Err(VerifyError::Invalid), "{algorithm:?}");
            }
            // A public key must not be accepted as a shared secret.
            let jwk = signer.public_key(&[]);
            let public = jwk.get("n").or_else(|| jwk.get("x")).unwrap().as_str().unwrap();
            let secret = PrivateKey::secret(public.as_bytes());
            let forged = secret.token_by(HS256, Some("k"), &claims());
            assert_eq!(verify(&keys, &forged), Err(VerifyError::Invalid));
        }
        // A key with `alg` is for that algorithm only.
        let only = set(&[rsa.public_key(&[("alg", json!("PS256"))])]);
        assert_eq!(verify(&only, &rsa.token_by(PS256, None, &claims())).as_deref(), Ok("ada"));
        assert_eq!(verify(&only, &rsa.token_by(RS256, None, &claims())), Err(VerifyError::Invalid));
    }

    #[test]
    fn a_token_names_its_key_unless_only_one_key_fits() {
        let (a, b) = (PrivateKey::ed25519(), PrivateKey::ed25519());
        let rsa = PrivateKey::rsa();
        let kid = |id: &str| [("kid", json!(id))];
        let keys = set(&[a.public_key(&kid("a")), b.public_key(&kid("b")), rsa.public_key(&[])]);
        let of = |signer: &PrivateKey, kid| {
            let is_rsa = matches!(signer, PrivateKey::Rsa(_));
            let algorithm = if is_rsa { Algorithm::RS256 } else { Algorithm::EdDSA };
            verify(&keys, &signer.token_by(algorithm, kid, &claims())).is_ok()
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
    fn a_token_of_another_type_is_refused() {
        let signer = PrivateKey::ed25519();
        let keys = set(&[signer.public_key(&[])]);
        for (typ, is_accepted) in [
            (None, true),
            (Some("JWT"), true),
            (Some("jwt"), true),
            (Some("at+jwt"), true),
            (Some("AT+JWT"), true),
            (Some("application/at+jwt"), true),
            (Some("application/JWT"), true),
            (Some(""), false),
            (Some("logout+jwt"), false),
            (Some("application/logout+jwt"), false),
            (Some("dpop+jwt"), false),
            (Some("secevent+jwt"), false),
            (Some("JWE"), false),
            (Some("jwt "), false),
        ] {
            let typ = typ.map(str::to_owned);
            let header = Header { typ: typ.clone(), ..Header::new(Algorithm::EdDSA) };
            let found = verify(&keys, &signer.token(&header, &claims()));
            assert_eq!(found.is_ok(), is_accepted, "{typ:?}");
        }
    }

    #[test]
    fn unexpected_claims_are_refused() {
        let (signer, now) = (PrivateKey::ed25519(), get_current_timestamp());
        let keys = set(&[signer.public_key(&[])]);
        let long = "x".repeat(100_000);
        let cases: &[(Changes<'_>, Result<&str, VerifyError>)] = &[
            (&[], Ok("ada")),
            (&[("aud", json!(["x", "other"]))], Ok("ada")),
            // The skew is a minute.
            (&[("exp", json!(now - 50))], Ok("ada")),
            (&[("exp", json!(now - 70))], Err(VerifyError::Expired)),
            (&[("nbf", json!(now + 50))], Ok("ada")),
            (&[("nbf", json!(now + 70))], Err(VerifyError::Invalid)),
            (&[("exp", Value::Null)], Err(VerifyError::Invalid)),
            (&[("exp", json!("tomorrow"))], Err(VerifyError::Invalid)),
            (&[("exp", json!(-1))], Err(VerifyError::Invalid)),
            (&[("nbf", json!("now"))], Err(VerifyError::Invalid)),
            (&[("iss", json!("https://other"))], Err(VerifyError::Invalid)),
            (&[("iss", json!("https://issuer/"))], Err(VerifyError::Invalid)),
            (&[("iss", json!(["https://issuer"]))], Err(VerifyError::Invalid)),
            (&[("iss", Value::Null)], Err(VerifyError::Invalid)),
            (&[("aud", json!("threadway2"))], Err(VerifyError::Invalid)),
            (&[("aud", json!([]))], Err(VerifyError::Invalid)),
            (&[("aud", json!(7))], Err(VerifyError::Invalid)),
            (&[("aud", Value::Null)], Err(VerifyError::Invalid)),
            (&[("sub", Value::Null)], Err(VerifyError::Invalid)),
            (&[("sub", json!(1))], Err(VerifyError::Invalid)),
            (&[("sub", json!(""))], Err(VerifyError::Invalid)),
            (&[("sub", json!(" "))], Err(VerifyError::Invalid)),
            (&[("more", json!(long))], Ok("ada")),
        ];
        for (changes, expected) in cases {
            let mut claims = claims();
            for (name, value) in *changes {
                claims[name] = value.clone();
            }
            let found = verify(&keys, &signer.token_by(Algorithm::EdDSA, None, &claims));
            assert_eq!(found.as_deref().map_err(|error| *error), *expected, "{changes:?}");
        }
    }

    #[test]
    fn a_malformed_or_unsigned_token_is_refused() {
        let signer = PrivateKey::ed25519();
        let keys = set(&[signer.public_key(&[])]);
        let good = signer.token_by(Algorithm::EdDSA, None, &claims());
        assert!(verify(&keys, &good).is_ok());
        let [head, body, signature] = good.split('.').collect::<Vec<_>>()[..] else { panic!() };
        // {"alg":"none"} and {"alg":"None"}.
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
            assert_eq!(verify(&keys, &token), Err(VerifyError::Invalid), "{token}");
        }
        let crit = Some(vec!["exp".to_owned()]);
        let header = Header { crit, ..Header::new(Algorithm::EdDSA) };
        let critical = signer.token(&header, &claims());
        assert_eq!(verify(&keys, &critical), Err(VerifyError::Invalid));
    }

    #[test]
    fn a_key_set_is_its_usable_keys() {
        let signer = PrivateKey::ed25519();
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
            let text = json!({"keys": [signer.public_key(changes)]}).to_string();
            let keys = KeySet::parse(&text);
            assert_eq!(keys.as_ref().is_ok(), *expected, "{changes:?} {keys:?}");
            // An unusable key does not affect the others.
            let both = json!({"keys": [signer.public_key(changes), 1, null, signer.public_key(&[("kid", json!("k"))])]});
            let both = KeySet::parse(&both.to_string()).unwrap();
            let token = signer.token_by(Algorithm::EdDSA, Some("k"), &claims());
            assert!(verify(&both, &token).is_ok(), "{changes:?}");
        }
        for text in ["", "[]", "{}", r#"{"keys":{}}"#, r#"{"keys":[]}"#, "<html>"] {
            assert!(KeySet::parse(text).is_err(), "{text}");
        }
        let many = vec![signer.public_key(&[]); MAX_KEYS + 1];
        assert_eq!(set(&many).0.len(), MAX_KEYS);
    }
}
