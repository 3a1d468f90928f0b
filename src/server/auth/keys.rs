//! The gateway's own keys. Each has a name. Only digests of the keys are kept, and no key is
//! printed.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use ring::hmac;
use subtle::ConstantTimeEq;
use tokio_util::sync::CancellationToken;

use crate::server::limits::caller_id::{Fingerprint, fingerprint_key};

/// The shortest key, in characters. It excludes words and dates. 16 hexadecimal digits are 64 bits,
/// which nobody guesses over a network.
const MIN_KEY_CHARS: usize = 16;

/// The longest key, in characters. It must fit into a request's head with other headers.
const MAX_KEY_CHARS: usize = 4 * 1024;

/// The largest number of keys. Each request is compared with all of them.
const MAX_KEYS: usize = 1_000;

/// The key of the digests. It is the same for all keys of the process, so that a reload can compare
/// them.
static DIGEST: LazyLock<hmac::Key> = LazyLock::new(fingerprint_key);

/// The keys that are accepted, and the name of each.
///
/// Parsed from entries `NAME=KEY`, on lines of their own or separated by commas. Lines that begin
/// with `#` are comments. Only digests under a key of this process are kept. So neither the time of
/// a comparison nor a copy of the memory reveals a key.
#[derive(Clone)]
pub struct Keys {
    keys: Arc<[Key]>,
}

/// One key, and its name.
#[derive(Clone)]
struct Key {
    name: Arc<str>,
    digest: Fingerprint,
    /// Cancelled when the key is removed, or gets another name.
    removed: CancellationToken,
}

/// Why a text is not a list of [`Keys`]. The texts say what is expected, and repeat names, never
/// keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    /// There is no entry.
    #[error("at least one NAME=KEY")]
    None,
    /// There are more than 1,000.
    #[error("at most {MAX_KEYS} keys")]
    TooMany,
    /// An entry is malformed.
    #[error(
        "NAME=KEY in each entry, with a name of letters, digits, `-`, `_` and `.`; number {at} is not"
    )]
    Form {
        /// The number of the entry, from 1.
        at: usize,
    },
    /// A key is too short or too long, or has characters that a header may not carry.
    #[error(
        "keys of {MIN_KEY_CHARS} to {MAX_KEY_CHARS} letters, digits and `-._~+/=`, as `openssl rand -hex 32` makes them; {name}'s is not"
    )]
    Key {
        /// The name of the key.
        name: String,
    },
    /// Two names have the same key.
    #[error("a different key for each name; {name} has the key of another name")]
    Shared {
        /// The later of the two.
        name: String,
    },
}

// === impl Keys ===

impl Keys {
    /// The name of a key. Every key is compared, so that the time does not depend on the match.
    /// With it comes what is cancelled when the key is removed.
    pub(super) fn owner(&self, key: &str) -> Option<(&Arc<str>, &CancellationToken)> {
        let shown = Fingerprint::of(&DIGEST, [key]);
        let mut owner = None;
        for Key { name, digest, removed } in &*self.keys {
            if shown.as_ref().ct_eq(digest.as_ref()).into() {
                owner = Some((name, removed));
            }
        }
        owner
    }

    /// These keys after a reload. Those of the old ones that are missing are removed.
    pub(super) fn succeeding(&self, old: &Self) -> Self {
        let keys = self.keys.iter().map(|key| old.same(key).unwrap_or(key).clone());
        let keys = Self { keys: keys.collect() };
        for key in old.keys.iter().filter(|key| keys.same(key).is_none()) {
            key.removed.cancel();
        }
        keys
    }

    /// Removes all keys.
    pub(super) fn withdraw(&self) {
        self.keys.iter().for_each(|key| key.removed.cancel());
    }

    /// The same key with the same name.
    fn same(&self, other: &Key) -> Option<&Key> {
        let is_same = |key: &&Key| key.name == other.name && key.digest == other.digest;
        self.keys.iter().find(is_same)
    }

    /// The names, in the order of the text.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|key| &*key.name)
    }
}

impl FromStr for Keys {
    type Err = KeysError;

    fn from_str(text: &str) -> Result<Self, KeysError> {
        let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        let entries = lines.flat_map(|line| line.split(',')).map(str::trim);
        let (mut keys, mut known) = (Vec::new(), HashSet::new());
        for (at, entry) in (1..).zip(entries.filter(|entry| !entry.is_empty())) {
            let (name, key) = entry.split_once('=').ok_or(KeysError::Form { at })?;
            let (name, key) = (name.trim(), key.trim());
            if !is_name(name) {
                return Err(KeysError::Form { at });
            }
            if !is_key(key) {
                return Err(KeysError::Key { name: name.to_owned() });
            }
            if !known.insert(key) {
                return Err(KeysError::Shared { name: name.to_owned() });
            }
            let (name, digest) = (Arc::from(name), Fingerprint::of(&DIGEST, [key]));
            keys.push(Key { name, digest, removed: CancellationToken::new() });
        }
        match keys.len() {
            0 => Err(KeysError::None),
            1..=MAX_KEYS => Ok(Self { keys: keys.into() }),
            _ => Err(KeysError::TooMany),
        }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.names().map(|name| (name, "[redacted]"))).finish()
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !name.is_empty() && name.bytes().all(is_plain)
}

/// RFC 6750's `b64token`.
fn is_key(key: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    (MIN_KEY_CHARS..=MAX_KEY_CHARS).contains(&key.len()) && key.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_owner_and_other_texts_have_none() {
        let text = "# who, and what for\nweb = 0123456789abcdef\n\nops=fedcba9876543210,ci=a/b+c~d.e-f_g/h==\n";
        let keys: Keys = text.parse().unwrap();
        assert_eq!(keys.names().collect::<Vec<_>>(), ["web", "ops", "ci"]);
        for (key, owner) in [
            ("0123456789abcdef", Some("web")),
            ("fedcba9876543210", Some("ops")),
            ("a/b+c~d.e-f_g/h==", Some("ci")),
            ("0123456789abcde", None),
            ("0123456789abcdef0", None),
            ("0123456789ABCDEF", None),
            ("web", None),
            ("", None),
        ] {
            assert_eq!(keys.owner(key).map(|(name, _)| &**name), owner, "{key}");
        }
    }

    #[test]
    fn an_error_about_keys_does_not_repeat_them() {
        let key = "0123456789abcdef";
        let (long, many) = ("x".repeat(MAX_KEY_CHARS + 1), |count: usize| {
            let entries = (0..count).map(|at| format!("n{at}=0123456789abcdef{at}"));
            entries.collect::<Vec<_>>().join("\n")
        });
        let of_key = |name: &str| KeysError::Key { name: name.to_owned() };
        for (text, expected) in [
            (String::new(), KeysError::None),
            ("# nothing\n,\n".to_owned(), KeysError::None),
            (key.to_owned(), KeysError::Form { at: 1 }),
            (format!("={key}"), KeysError::Form { at: 1 }),
            (format!("a={key}0\nb c={key}"), KeysError::Form { at: 2 }),
            ("a=".to_owned(), of_key("a")),
            ("a=0123456789abcde".to_owned(), of_key("a")),
            (format!("a={key}\u{e9}"), of_key("a")),
            (format!("a={key} {key}"), of_key("a")),
            (format!("a={long}"), of_key("a")),
            (format!("a={key},b={key}"), KeysError::Shared { name: "b".to_owned() }),
            (many(MAX_KEYS + 1), KeysError::TooMany),
        ] {
            let error = text.parse::<Keys>().unwrap_err();
            assert_eq!(error, expected);
            assert!(!error.to_string().contains("0123456789"), "{error}");
        }
        assert!(many(MAX_KEYS).parse::<Keys>().is_ok());
    }

    #[test]
    fn keys_are_not_printed() {
        let keys: Keys = "web=0123456789abcdef".parse().unwrap();
        assert_eq!(format!("{keys:?}"), r#"{"web": "[redacted]"}"#);
    }
}
