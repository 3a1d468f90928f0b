//! JSON Web Tokens (RFC 7519): whose tokens are accepted, and where the keys for them come from.
//!
//! ```text
//!   a token --known key--> verified                     (and, if the keys are old, a fetch begins)
//!       \
//!        --unknown key--> a fetch, if one is due --> verified, or refused
//! ```
//!
//! One task at a time fetches keys from a URL, at most once in [`FETCH_PAUSE`]: tokens with
//! invented keys cause the issuer no load. A token with a known key never waits for a fetch.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::jwks::{Claims, ExpectedClaims, KeySet, NotAKeySet, TokenHeader, VerifyError};
use crate::sync::Mutex;
use crate::upstream::{KeySetUrl, KeySets, SetupError, Tls, Until};

/// The default of [`JwtSettings::skew`].
pub(crate) const DEFAULT_SKEW: Duration = Duration::from_mins(1);

/// The largest [`JwtSettings::skew`]. A larger one would accept tokens long after they have
/// expired.
pub(crate) const MAX_SKEW: Duration = Duration::from_mins(5);

/// How long fetched keys are used without a new fetch. A provider publishes a key well before it
/// uses it, and an unknown key causes a fetch at once. So this bounds how long a withdrawn key is
/// accepted.
pub const FRESH: Duration = Duration::from_mins(10);

/// How long fetched keys are used while no newer ones can be fetched: an outage of a night. A key
/// that is withdrawn meanwhile is accepted for as long.
pub const MAX_AGE: Duration = Duration::from_hours(12);

/// The pause between two fetches, whether they succeed or not.
pub const FETCH_PAUSE: Duration = Duration::from_secs(10);

/// Which tokens are accepted.
#[derive(Clone, Debug)]
pub struct JwtSettings {
    /// Where the issuer's keys are.
    pub keys: KeysFrom,
    /// The exact `iss` of the tokens.
    pub issuer: String,
    /// Accepted `aud` values; at least one. A token needs one of them.
    pub audiences: Vec<String>,
    /// The largest difference between the issuer's clock and the gateway's.
    pub skew: Duration,
}

/// The source of a key set.
#[derive(Clone, Debug)]
pub enum KeysFrom {
    /// A file, which is read with the configuration.
    File(PathBuf),
    /// A URL of the issuer, which is fetched again as keys change.
    Url {
        /// The address.
        url: KeySetUrl,
        /// The certificates that the issuer's server may have.
        tls: Tls,
    },
}

/// Why [`JwtSettings`] are invalid. The texts say what is expected.
#[derive(Debug, thiserror::Error)]
pub enum JwtError {
    /// There is no issuer.
    #[error("the issuer whose tokens are accepted")]
    NoIssuer,
    /// There is no audience. A token for another service would then be accepted here.
    #[error("at least one audience, which the tokens for this gateway are made for")]
    NoAudience,
    /// The skew is larger than `MAX_SKEW`.
    #[error("a clock skew of at most {} s", MAX_SKEW.as_secs())]
    Skew,
    /// The file cannot be read.
    #[error("a key set that can be read: {file}: {error}")]
    File {
        /// The file.
        file: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The file is not a key set.
    #[error("a key set: {file}: {error}")]
    Keys {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        error: NotAKeySet,
    },
    /// The client for fetching keys cannot be set up.
    #[error(transparent)]
    Setup(#[from] SetupError),
}

/// Checks tokens. Clones share the keys.
#[derive(Clone, Debug)]
pub struct Jwt {
    expected: ExpectedClaims,
    keys: KeySource,
}

#[derive(Clone, Debug)]
enum KeySource {
    Fixed(Arc<KeySet>),
    RemoteKeySet(Arc<RemoteKeySet>),
}

/// Keys that are fetched.
struct RemoteKeySet {
    key_sets: KeySets,
    /// Changes when a fetch ends, so that requests can wait for that.
    fetched: watch::Sender<Fetched>,
    fetching: Mutex<Fetching>,
}

/// The result of the fetches so far.
#[derive(Clone, Debug, Default)]
struct Fetched {
    /// The newest keys, and when they were fetched.
    keys: Option<(Arc<KeySet>, Instant)>,
    /// How many fetches have ended, including failed ones.
    ended: u64,
}

/// The fetches that were begun. Dropping this ends the one that is under way.
#[derive(Debug, Default)]
struct Fetching {
    task: JoinSet<()>,
    begun: u64,
    /// When the last one was begun.
    begun_at: Option<Instant>,
}

/// Why a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenError {
    Expired,
    Invalid,
    /// There are no keys to check it with now.
    NoKeys,
}

impl From<VerifyError> for TokenError {
    fn from(error: VerifyError) -> Self {
        match error {
            VerifyError::Expired => Self::Expired,
            VerifyError::Invalid => Self::Invalid,
        }
    }
}

// === impl Jwt ===

impl Jwt {
    /// Reads keys from a file. Keys from a URL are fetched when they are needed.
    ///
    /// # Errors
    /// The settings are invalid, or the file cannot be read.
    pub fn new(settings: &JwtSettings) -> Result<Self, JwtError> {
        let JwtSettings { keys, issuer, audiences, skew } = settings;
        if issuer.is_empty() {
            return Err(JwtError::NoIssuer);
        }
        if audiences.is_empty() || audiences.iter().any(String::is_empty) {
            return Err(JwtError::NoAudience);
        }
        if *skew > MAX_SKEW {
            return Err(JwtError::Skew);
        }
        let expected = ExpectedClaims::new(issuer, audiences, *skew);
        let keys = match keys {
            KeysFrom::File(file) => {
                let text = std::fs::read_to_string(file)
                    .map_err(|error| JwtError::File { file: file.clone(), error })?;
                let keys = KeySet::parse(&text)
                    .map_err(|error| JwtError::Keys { file: file.clone(), error })?;
                KeySource::Fixed(Arc::new(keys))
            }
            KeysFrom::Url { url, tls } => {
                let key_sets = KeySets::new(url.clone(), tls)?;
                KeySource::RemoteKeySet(Arc::new(RemoteKeySet::new(key_sets, None)))
            }
        };
        Ok(Self { expected, keys })
    }

    /// Keeps the keys that were fetched before a reload, if the URL is the same. Old keys that are
    /// no keys of the new settings are withdrawn; all are if other claims are expected.
    #[must_use]
    pub(super) fn succeeding(self, old: &Self) -> Self {
        let is_same = self.expected == old.expected;
        let keys = match (&self.keys, &old.keys) {
            (KeySource::RemoteKeySet(new), KeySource::RemoteKeySet(old))
                if new.key_sets.url() == old.key_sets.url() =>
            {
                let keys = old.fetched.borrow().keys.clone();
                let keys = if is_same {
                    keys
                } else {
                    keys.map(|(keys, at)| (Arc::new(keys.renewed()), at))
                };
                KeySource::RemoteKeySet(Arc::new(RemoteKeySet::new(new.key_sets.clone(), keys)))
            }
            (KeySource::Fixed(new), KeySource::Fixed(old)) if is_same => {
                KeySource::Fixed(Arc::new(new.succeeding(old)))
            }
            _ => {
                old.withdraw();
                self.keys
            }
        };
        Self { keys, ..self }
    }

    /// Withdraws all keys.
    pub(super) fn withdraw(&self) {
        match &self.keys {
            KeySource::Fixed(keys) => keys.withdraw(),
            KeySource::RemoteKeySet(remote) => {
                let keys = remote.fetched.borrow().keys.clone();
                if let Some((keys, _)) = keys {
                    keys.withdraw();
                }
            }
        }
    }

    /// The claims of a token, and until when it is accepted, if it is now.
    pub(super) async fn verify(&self, token: &str) -> Result<(Claims, Until), TokenError> {
        let header = TokenHeader::parse(token).ok_or(TokenError::Invalid)?;
        let keys = match &self.keys {
            KeySource::Fixed(keys) => Arc::clone(keys),
            KeySource::RemoteKeySet(remote) => remote.keys_for(&header).await?,
        };
        Ok(keys.verify(token, &header, &self.expected)?)
    }
}

// === impl RemoteKeySet ===

impl RemoteKeySet {
    fn new(key_sets: KeySets, keys: Option<(Arc<KeySet>, Instant)>) -> Self {
        let fetched = watch::Sender::new(Fetched { keys, ended: 0 });
        Self { key_sets, fetched, fetching: Mutex::default() }
    }

    /// The keys to check a token with. If the present keys do not have the token's, a fetch comes
    /// first.
    async fn keys_for(self: &Arc<Self>, header: &TokenHeader) -> Result<Arc<KeySet>, TokenError> {
        if let Some((keys, age)) = self.usable()
            && keys.has_key_for(header)
        {
            if age > FRESH {
                self.fetch();
            }
            return Ok(keys);
        }
        if let Some(fetch) = self.fetch() {
            let mut fetched = self.fetched.subscribe();
            let ended = fetched.wait_for(|fetched| fetched.ended >= fetch);
            // A fetch has a timeout of its own. This one is for a fault in this code.
            if tokio::time::timeout(FETCH_PAUSE, ended).await.is_err() {
                tracing::error!("a fetch of the issuer's keys did not end; please report this");
            }
        }
        let (keys, _) = self.usable().ok_or(TokenError::NoKeys)?;
        Ok(keys)
    }

    /// The keys, if they may still be used, and their age.
    fn usable(&self) -> Option<(Arc<KeySet>, Duration)> {
        let (keys, since) = self.fetched.borrow().keys.clone()?;
        let age = since.elapsed();
        (age < MAX_AGE).then_some((keys, age))
    }

    /// Begins a fetch if one is due. Returns the number of the one that is under way.
    fn fetch(self: &Arc<Self>) -> Option<u64> {
        let mut fetching = self.fetching.lock();
        let Fetching { task, begun, begun_at } = &mut *fetching;
        if self.fetched.borrow().ended < *begun {
            return Some(*begun);
        }
        if begun_at.is_some_and(|at| at.elapsed() < FETCH_PAUSE) {
            return None;
        }
        while task.try_join_next().is_some() {}
        (*begun, *begun_at) = (*begun + 1, Some(Instant::now()));
        let (key_sets, fetched) = (self.key_sets.clone(), self.fetched.clone());
        task.spawn(async move {
            let keys = fetch(&key_sets).await;
            fetched.send_modify(|fetched| {
                fetched.ended += 1;
                if let Some(keys) = keys {
                    let keys = match &fetched.keys {
                        Some((old, _)) => keys.succeeding(old),
                        None => keys,
                    };
                    fetched.keys = Some((Arc::new(keys), Instant::now()));
                }
            });
        });
        Some(*begun)
    }
}

async fn fetch(key_sets: &KeySets) -> Option<KeySet> {
    let url = key_sets.url();
    let text = match key_sets.fetch().await {
        Ok(text) => text,
        Err(error) => {
            tracing::warn!(
                %url,
                %error,
                "fetching the issuer's keys failed; tokens are refused whose keys are not known from an \
                 earlier fetch"
            );
            return None;
        }
    };
    match KeySet::parse(&text) {
        Ok(keys) => {
            tracing::debug!(%url, "the issuer's keys were fetched");
            Some(keys)
        }
        Err(error) => {
            tracing::warn!(
                %url,
                %error,
                "the issuer's key set cannot be used; tokens are refused whose keys are not known from \
                 an earlier fetch"
            );
            None
        }
    }
}

impl fmt::Debug for RemoteKeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("key_sets", &self.key_sets).finish_non_exhaustive()
    }
}
