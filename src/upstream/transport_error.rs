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
    Broken(ExchangeError),
}

/// Why a connection did not carry a request and its response to their ends.
#[derive(Debug, thiserror::Error)]
pub(in crate::upstream) enum ExchangeError {
    /// The connection was closed before it took anything of the request.
    #[error("{0}")]
    Unsent(io::Error),
    #[error("{0}")]
    Broken(io::Error),
    #[error("connection closed before message completed")]
    Closed,
    #[error("its answer is not HTTP/1.1: {0}")]
    NotHttp(ureq_proto::Error),
    #[error("its answer has lines of more than {limit} bytes")]
    TooLong { limit: usize },
}

/// Why a response body stopped before its end.
#[derive(Debug)]
pub(in crate::upstream) enum BodyError {
    Broken(ExchangeError),
    /// No bytes arrived for [`SILENCE_TIMEOUT`].
    Silent,
}

// === impl SendError ===

impl fmt::Display for SendError {
    /// Prints the innermost cause: it is the most specific, and has no URL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => match tls_error(&**error).and_then(advice) {
                Some(advice) => f.write_str(advice),
                None => f.write_str(&last_cause(&**error)),
            },
            Self::ConnectTimeout { waited } => {
                write!(f, "no connection within {} s", waited.as_secs())
            }
            Self::Broken(ExchangeError::NotHttp(_)) => f.write_str(
                "its answer is not HTTP/1.1; if it speaks TLS, write its URL with https://",
            ),
            Self::Broken(error) => write!(f, "{error}"),
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
            BodyError::Broken(error) => Self::Interrupted { reason: error.to_string() },
            BodyError::Silent => Self::Timeout { waited: SILENCE_TIMEOUT },
        }
    }
}

/// The error of the TLS handshake, if that failed.
fn tls_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return Some(error);
    }
    let inner = match error.downcast_ref::<io::Error>() {
        // The `source` of an `io::Error` skips the error that it wraps.
        Some(error) => error.get_ref().map(|inner| inner as &(dyn StdError + 'static)),
        None => error.source(),
    };
    inner.and_then(tls_error)
}

/// What to do about a failed handshake, if rustls' own words do not help.
fn advice(error: &rustls::Error) -> Option<&'static str> {
    let plain = rustls::InvalidMessage::InvalidContentType;
    if *error == rustls::Error::InvalidMessage(plain) {
        return Some("it speaks http, not https; write its URL with http://");
    }
    let rustls::Error::InvalidCertificate(why) = error else { return None };
    if *why == rustls::CertificateError::UnknownIssuer {
        return Some(
            "no trusted authority has signed its certificate; name a file with the authority's \
             certificate in `ca_file`",
        );
    }
    // webpki's error has no public type here.
    why.to_string().contains("CaUsedAsEndEntity").then_some(
        "its certificate is itself an authority's, as `openssl req -x509` makes it; give the server \
         a certificate that an authority has signed, and name the authority's in `ca_file`",
    )
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
