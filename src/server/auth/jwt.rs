//! Callers who show a JSON Web Token (RFC 7519): whose tokens are believed, and where the keys
//! that vouch for them come from.
//!
//! ```text
//!   a token --known key--> verified                     (and, if the keys are old, a fetch begins)
//!       \
//!        --unknown key--> a fetch, if one is due --> verified, or refused
//! ```
//!
//! Keys from a URL are fetched by one task at a time, and not again before [`FETCH_PAUSE`]: tokens
//! with invented keys cost the issuer nothing. Who shows a known key never waits for it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::jwks::{Claimed, Claims, Disbelief, Expected, KeySet, NotAKeySet};
use crate::sync::Mutex;
use crate::upstream::{KeySetUrl, KeySets, SetupError, Tls};

/// How far clocks may be apart by default.
pub const DEFAULT_SKEW: Duration = Duration::from_mins(1);

/// How far clocks may be said to be apart at most: more would keep what has expired alive.
pub const MAX_SKEW: Duration = Duration::from_mins(5);

/// How long fetched keys are taken for new. Providers publish a key well before they use it, and
/// one that is not known is asked for at once; so this bounds how long a key that was withdrawn
/// is still believed.
pub const FRESH: Duration = Duration::from_mins(10);

/// How long fetched keys are used while newer ones cannot be had: an outage of a night. A key
/// that was withdrawn meanwhile is believed for as long.
pub const MAX_AGE: Duration = Duration::from_hours(12);

/// The pause between two fetches, whatever they are for and however they end.
pub const FETCH_PAUSE: Duration = Duration::from_secs(10);

/// Whose tokens are believed.
#[derive(Clone, Debug)]
pub struct JwtSettings {
    /// Where the keys are.
    pub keys: KeysFrom,
    /// The `iss` of the tokens, exactly.
    pub issuer: String,
    /// What `aud` must be, or must hold one of; at least one.
    pub audiences: Vec<String>,
    /// How far the issuer's clock may be from ours.
    pub skew: Duration,
}

/// Where a key set is.
#[derive(Clone, Debug)]
pub enum KeysFrom {
    /// In a file, which is read when the configuration is.
    File(PathBuf),
    /// At the issuer's, where it is asked for again as keys change.
    Url {
        /// Where.
        url: KeySetUrl,
        /// How the issuer is known.
        tls: Tls,
    },
}

/// Why tokens cannot be checked as the settings say.
#[derive(Debug, thiserror::Error)]
pub enum JwtError {
    /// There is no issuer.
    #[error("the issuer whose tokens are believed")]
    NoIssuer,
    /// There is no audience: a token that was made for another service would open this one.
    #[error("at least one audience, which the tokens for this gateway are made for")]
    NoAudience,
    /// Clocks cannot be that far apart.
    #[error("a clock skew of at most {} s", MAX_SKEW.as_secs())]
    Skew,
    /// The file cannot be read.
    #[error("a key set that can be read: {file}: {error}")]
    File {
        /// The file.
        file: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// The file holds no key set.
    #[error("a key set: {file}: {error}")]
    Keys {
        /// The file.
        file: PathBuf,
        /// What it is not.
        error: NotAKeySet,
    },
    /// Nothing can be fetched.
    #[error(transparent)]
    Setup(#[from] SetupError),
}

/// Checks tokens. Clones share the keys.
#[derive(Clone, Debug)]
pub struct Jwt {
    expected: Expected,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Fixed(Arc<KeySet>),
    Remote(Arc<Remote>),
}

/// Keys that are fetched.
struct Remote {
    key_sets: KeySets,
    /// Who waits for a fetch waits for a change of it.
    fetched: watch::Sender<Fetched>,
    fetching: Mutex<Fetching>,
}

/// What the fetches so far came to.
#[derive(Clone, Debug, Default)]
struct Fetched {
    /// The newest keys, and since when they are known.
    keys: Option<(Arc<KeySet>, Instant)>,
    /// How many fetches have ended, also in failure.
    ended: u64,
}

/// The fetches that were begun. One that is under way ends with its owner.
#[derive(Debug, Default)]
struct Fetching {
    task: JoinSet<()>,
    begun: u64,
    /// When the last one was.
    begun_at: Option<Instant>,
}

/// Why a token does not open the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenError {
    /// It was good.
    Expired,
    /// It is not good.
    Invalid,
    /// Nobody can tell now.
    NoKeys,
}

impl From<Disbelief> for TokenError {
    fn from(disbelief: Disbelief) -> Self {
        match disbelief {
            Disbelief::Expired => Self::Expired,
            Disbelief::Invalid => Self::Invalid,
        }
    }
}

// === impl Jwt ===

impl Jwt {
    /// Reads the keys where they are in a file. Those of a URL are fetched when they are needed.
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
        let expected = Expected::new(issuer, audiences, *skew);
        let source = match keys {
            KeysFrom::File(file) => {
                let text = std::fs::read_to_string(file)
                    .map_err(|error| JwtError::File { file: file.clone(), error })?;
                let keys = KeySet::parse(&text)
                    .map_err(|error| JwtError::Keys { file: file.clone(), error })?;
                Source::Fixed(Arc::new(keys))
            }
            KeysFrom::Url { url, tls } => {
                let key_sets = KeySets::new(url.clone(), tls)?;
                Source::Remote(Arc::new(Remote::new(key_sets, None)))
            }
        };
        Ok(Self { expected, source })
    }

    /// Goes on with the keys that were fetched before a reload, if they are of the same place.
    #[must_use]
    pub(super) fn succeeding(self, old: &Self) -> Self {
        match (&self.source, &old.source) {
            (Source::Remote(new), Source::Remote(old))
                if new.key_sets.url() == old.key_sets.url() =>
            {
                let keys = old.fetched.borrow().keys.clone();
                let remote = Remote::new(new.key_sets.clone(), keys);
                Self { source: Source::Remote(Arc::new(remote)), ..self }
            }
            _ => self,
        }
    }

    /// Who a token speaks for.
    pub(super) async fn verify(&self, token: &str) -> Result<Claims, TokenError> {
        let claimed = Claimed::parse(token).ok_or(TokenError::Invalid)?;
        let keys = match &self.source {
            Source::Fixed(keys) => Arc::clone(keys),
            Source::Remote(remote) => remote.keys_for(&claimed).await?,
        };
        Ok(keys.verify(token, &claimed, &self.expected)?)
    }
}

// === impl Remote ===

impl Remote {
    fn new(key_sets: KeySets, keys: Option<(Arc<KeySet>, Instant)>) -> Self {
        let fetched = watch::Sender::new(Fetched { keys, ended: 0 });
        Self { key_sets, fetched, fetching: Mutex::default() }
    }

    /// The keys to check a token with: those that are there if they will do, else those that a
    /// fetch brings.
    async fn keys_for(self: &Arc<Self>, claimed: &Claimed) -> Result<Arc<KeySet>, TokenError> {
        if let Some((keys, age)) = self.usable()
            && keys.knows(claimed)
        {
            if age > FRESH {
                self.fetch();
            }
            return Ok(keys);
        }
        if let Some(fetch) = self.fetch() {
            let mut fetched = self.fetched.subscribe();
            let ended = fetched.wait_for(|fetched| fetched.ended >= fetch);
            // A fetch has its own bound; this one is for a fault of ours.
            if tokio::time::timeout(FETCH_PAUSE, ended).await.is_err() {
                tracing::error!("a fetch of keys did not end; please report this");
            }
        }
        let (keys, _) = self.usable().ok_or(TokenError::NoKeys)?;
        Ok(keys)
    }

    /// The keys that may still be used, and how old they are.
    fn usable(&self) -> Option<(Arc<KeySet>, Duration)> {
        let (keys, since) = self.fetched.borrow().keys.clone()?;
        let age = since.elapsed();
        (age < MAX_AGE).then_some((keys, age))
    }

    /// Begins a fetch if one is due; the number of the one that is under way.
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
            tracing::warn!(%url, %error, "the keys for tokens were not fetched");
            return None;
        }
    };
    match KeySet::parse(&text) {
        Ok(keys) => {
            tracing::debug!(%url, "the keys for tokens were fetched");
            Some(keys)
        }
        Err(error) => {
            tracing::warn!(%url, %error, "what was fetched holds no keys for tokens");
            None
        }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("key_sets", &self.key_sets).finish_non_exhaustive()
    }
}
