//! Why HTTP failed, in words for the operator.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::time::Duration;

use crate::upstream::{Error, SILENCE_TIMEOUT};

/// Why there is no response.
#[derive(Debug)]
pub(in crate::upstream) enum SendError {
    /// No connection could be made, so nothing was sent.
    Connect(Box<dyn StdError + Send + Sync>),
    /// No connection was made in this time.
    ConnectTimeout { waited: Duration },
    /// The connection broke. The request may have had its effect.
    Broken(hyper::Error),
}

/// Why a response body stopped before its end.
#[derive(Debug)]
pub(in crate::upstream) enum BodyError {
    Broken(hyper::Error),
    /// No bytes arrived for [`SILENCE_TIMEOUT`].
    Silent,
}

// === impl SendError ===

impl fmt::Display for SendError {
    /// Prints the innermost cause: it is the most specific, and has no URL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) if is_plain_http(&**error) => {
                f.write_str("it speaks http, not https; write its URL with http://")
            }
            Self::Connect(error) => f.write_str(&last_cause(&**error)),
            Self::ConnectTimeout { waited } => {
                write!(f, "no connection within {} s", waited.as_secs())
            }
            Self::Broken(error) if error.is_parse() || is_unasked(error) => f.write_str(
                "its answer is not HTTP/1.1; if it speaks TLS, write its URL with https://",
            ),
            Self::Broken(error) => f.write_str(&last_cause(error)),
        }
    }
}

impl From<SendError> for Error {
    fn from(error: SendError) -> Self {
        let reason = error.to_string();
        match error {
            // Nothing was sent, so this is no `Timeout`.
            SendError::Connect(_) | SendError::ConnectTimeout { .. } => {
                Self::Unreachable { reason }
            }
            SendError::Broken(_) => Self::Interrupted { reason },
        }
    }
}

// === impl BodyError ===

impl From<BodyError> for Error {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Broken(error) => Self::Interrupted { reason: last_cause(&error) },
            BodyError::Silent => Self::Timeout { waited: SILENCE_TIMEOUT },
        }
    }
}

/// Whether a TLS handshake was answered with something that is not TLS, as a server of plain HTTP
/// does.
fn is_plain_http(error: &(dyn StdError + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        let plain = rustls::InvalidMessage::InvalidContentType;
        return *error == rustls::Error::InvalidMessage(plain);
    }
    let inner = match error.downcast_ref::<io::Error>() {
        // The `source` of an `io::Error` skips the error that it wraps.
        Some(error) => error.get_ref().map(|inner| inner as &(dyn StdError + 'static)),
        None => error.source(),
    };
    inner.is_some_and(is_plain_http)
}

/// Whether the server sent something before the request, as a server of HTTP/2 does. hyper has no
/// method for this error, which is the only innermost one that none of its methods knows.
fn is_unasked(error: &hyper::Error) -> bool {
    innermost(error).downcast_ref::<hyper::Error>().is_some_and(|cause| {
        !(cause.is_canceled()
            || cause.is_closed()
            || cause.is_incomplete_message()
            || cause.is_timeout()
            || cause.is_user())
    })
}

fn last_cause(error: &(dyn StdError + 'static)) -> String {
    innermost(error).to_string()
}

fn innermost<'a>(error: &'a (dyn StdError + 'static)) -> &'a (dyn StdError + 'static) {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause
}
