//! The key that a LangGraph server asks for.

use std::fmt;
use std::str::FromStr;

use http::HeaderValue;

/// The key that a LangGraph server asks for. Debug output hides it.
#[derive(Clone)]
pub struct ApiKey(HeaderValue);

/// The text cannot be an [`ApiKey`]. The message does not repeat the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key: visible ASCII characters, at least one")]
pub struct NotAKey;

// === impl ApiKey ===

impl ApiKey {
    /// The key as the value of `authorization`.
    pub(crate) fn bearer(&self) -> HeaderValue {
        let value = [b"Bearer ", self.0.as_bytes()].concat();
        // The key is a header's value already, so this one is valid too.
        let mut value = HeaderValue::from_bytes(&value).unwrap_or_else(|_| self.0.clone());
        value.set_sensitive(true);
        value
    }

    pub(super) fn header_value(&self) -> &HeaderValue {
        &self.0
    }
}

impl FromStr for ApiKey {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<Self, NotAKey> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(NotAKey);
        }
        let mut key = HeaderValue::from_str(text).map_err(|_| NotAKey)?;
        key.set_sensitive(true);
        Ok(Self(key))
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}
