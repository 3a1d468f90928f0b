//! Authentication: who may call, and as whom.
//!
//! - `access`: which callers may list, change and inspect threads.
//! - `admit`: the checks that each request passes before its route.
//! - `keys`: the gateway's own keys.
//! - `jwt`, `jwks`: tokens of an issuer, and the issuer's keys.
//! - `verifier`: the signatures of tokens.
//! - `accepted`: credentials that LangGraph has accepted.
//! - `isolation`: whether LangGraph distinguishes callers.

mod accepted;
pub(super) mod access;
pub(super) mod admit;
pub mod isolation;
mod jwks;
mod jwt;
mod keys;
mod verifier;

use http::{HeaderName, StatusCode};

pub use access::ThreadRoutePolicy;
pub use admit::FAILURES;
pub use jwks::NotAKeySet;
pub(crate) use jwt::{DEFAULT_SKEW, MAX_SKEW};
pub use jwt::{FETCH_PAUSE, FRESH, Jwt, JwtError, JwtSettings, KeysFrom, MAX_AGE};
pub use keys::{Keys, KeysError};

use self::jwt::TokenError;
use super::reject::Reject;

/// Who may call.
#[derive(Clone, Debug, Default)]
pub enum Auth {
    /// Anybody who can connect. A caller is identified by the network that it connects from.
    #[default]
    None,
    /// Callers with one of these keys. A caller is identified by the name of its key. The key is
    /// not forwarded.
    Bearer(Keys),
    /// Callers with a token of a trusted issuer. A caller is identified by the token's subject.
    Jwt(Jwt),
    /// Callers with credentials for LangGraph, which checks them. A caller is identified by its
    /// credentials.
    Upstream(UpstreamAuth),
}

/// Settings for callers whose credentials LangGraph checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamAuth {
    /// The header by which LangGraph authenticates. `None` where the operator has not named it.
    pub credential: Option<HeaderName>,
    /// Whether anybody is admitted before LangGraph is known to check credentials.
    pub trust: Trust,
}

/// Whether LangGraph must be known to check credentials before anybody is admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// No: the gateway listens on a loopback address, or its operator has set `--insecure`.
    #[default]
    Given,
    /// Yes: LangGraph has to refuse invented credentials first.
    Proven,
}

/// Why a request's credentials do not admit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CredentialError {
    Missing,
    Wrong,
    Expired,
    /// The issuer's keys cannot be fetched now.
    NoKeys,
}

// === impl Auth ===

impl Auth {
    /// Whether LangGraph checks callers' credentials.
    pub(crate) fn is_for_langgraph(&self) -> bool {
        matches!(self, Self::Jwt(_) | Self::Upstream(_))
    }

    /// Keeps what was learnt before a reload. Keys that are not accepted any more are withdrawn.
    #[must_use]
    pub(in crate::server) fn succeeding(self, old: &Self) -> Self {
        match (self, old) {
            (Self::Jwt(jwt), Self::Jwt(old)) => Self::Jwt(jwt.succeeding(old)),
            (Self::Bearer(keys), Self::Bearer(old)) => Self::Bearer(keys.succeeding(old)),
            (auth, old) => {
                match old {
                    Self::Jwt(old) => old.withdraw(),
                    Self::Bearer(old) => old.withdraw(),
                    Self::None | Self::Upstream(_) => {}
                }
                auth
            }
        }
    }
}

// === impl CredentialError ===

impl From<TokenError> for CredentialError {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Expired => Self::Expired,
            TokenError::Invalid => Self::Wrong,
            TokenError::NoKeys => Self::NoKeys,
        }
    }
}

impl CredentialError {
    /// The response. It says no more than a client with good credentials needs.
    fn reject(self, auth: &Auth) -> Reject {
        let unauthorized = |code, message| Reject::new(StatusCode::UNAUTHORIZED, code, message);
        match (self, auth) {
            (Self::Missing, Auth::Upstream(_)) => unauthorized(
                "unauthenticated",
                "the gateway wants your credentials for LangGraph; send them in `authorization` \
                 or `x-api-key`",
            ),
            (Self::Missing, Auth::Jwt(_)) => unauthorized(
                "unauthenticated",
                "the gateway wants a token; send it as `authorization: Bearer TOKEN`",
            ),
            (Self::Missing, Auth::None | Auth::Bearer(_)) => unauthorized(
                "unauthenticated",
                "the gateway wants a key; send it as `authorization: Bearer KEY`",
            ),
            (Self::Expired, _) => {
                unauthorized("token_expired", "the token has expired; send a new one")
            }
            (Self::Wrong, Auth::Jwt(_)) => {
                unauthorized("invalid_token", "the token is not valid here; send another")
            }
            (Self::Wrong, _) => {
                unauthorized("invalid_token", "the key is not one of the gateway's; send another")
            }
            (Self::NoKeys, _) => Reject::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "auth_unavailable",
                "the token cannot be checked, because its issuer's keys cannot be fetched now; try again",
            ),
        }
    }
}

#[cfg(test)]
#[path = "../../tests/support/signer.rs"]
mod signer;
