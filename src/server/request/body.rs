//! Reading a request's body, within a size and a time.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::server::reject::Reject;

/// How long a client may take to send its request's body.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads a body that must be JSON.
pub(in crate::server) async fn read_json(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<Bytes, Reject> {
    expect_json(headers)?;
    read_body(headers, body, limit).await
}

/// Refuses a body that is not declared as JSON. A web page may send any other type to any address
/// without a preflight, and must not start runs that way.
fn expect_json(headers: &HeaderMap) -> Result<(), Reject> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if media.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = match media {
        "" => "the request has no content-type; send application/json",
        _ => "the content-type is not application/json; send application/json",
    };
    Err(Reject::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", message))
}

/// Reads a body of at most `limit` bytes.
pub(in crate::server) async fn read_body(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<Bytes, Reject> {
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: usize| length > limit) {
        return Err(too_large(limit));
    }
    let read = Limited::new(body, limit).collect();
    match tokio::time::timeout(BODY_TIMEOUT, read).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(limit)),
        Ok(Err(error)) => Err(Reject::invalid(format!(
            "reading the body failed: {error}; send the request again"
        ))),
        Err(_) => {
            let message = format!(
                "the body did not arrive within {} s; send the request again",
                BODY_TIMEOUT.as_secs()
            );
            Err(Reject::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", message))
        }
    }
}

fn too_large(limit: usize) -> Reject {
    let message = format!(
        "the body is longer than {limit} bytes; send attachments by URL, or begin a new thread"
    );
    Reject::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
}
