//! Reading a request: its body within bounds, and the thread that it names.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts, Path};
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::reject::Reject;

/// How long a client may take to send its request's body.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The namespace of the thread ids that are made from clients' own. It must never change: the
/// threads would be lost to their clients.
const THREAD_NAMESPACE: Uuid = Uuid::from_u128(0x5d1c_e0ab_93f2_4c3e_8f0a_2b7d_64e1_97c5);

/// A thread, as LangGraph calls it and as the client does.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ThreadName<'a> {
    pub(super) id: String,
    /// The client's name for it, where that is no UUID.
    pub(super) client_id: Option<&'a str>,
}

/// What stands in the path.
pub(super) struct InPath<T>(pub(super) T);

impl<S, T> FromRequestParts<S> for InPath<T>
where
    S: Send + Sync,
    T: DeserializeOwned + Send,
{
    type Rejection = Reject;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Reject> {
        let path = Path::from_request_parts(parts, state).await;
        path.map(|Path(value)| Self(value)).map_err(|error| Reject::invalid(error.body_text()))
    }
}

/// Reads a body that must be JSON.
pub(super) async fn read_json(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<Bytes, Reject> {
    expect_json(headers)?;
    read_body(headers, body, limit).await
}

/// A web page may send anything but JSON to any address without asking first: what starts runs
/// must not be had that way.
fn expect_json(headers: &HeaderMap) -> Result<(), Reject> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if media.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = match media {
        "" => "there is no content-type; send application/json",
        _ => "the content-type is another; send application/json",
    };
    Err(Reject::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", message))
}

/// Reads a body of at most `limit` bytes.
pub(super) async fn read_body(
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
        Ok(Err(error)) => Err(Reject::invalid(format!("the body broke off: {error}"))),
        Err(_) => {
            let message = format!("the body did not come within {} s", BODY_TIMEOUT.as_secs());
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

// === impl ThreadName ===

impl<'a> ThreadName<'a> {
    /// A UUID is used as it is, and any other string maps to a `UUIDv5`. LangGraph writes UUIDs in
    /// small letters.
    pub(super) fn of(client_id: &'a str) -> Self {
        match Uuid::try_parse(client_id) {
            Ok(id) if client_id.len() == uuid::fmt::Hyphenated::LENGTH => {
                Self { id: id.to_string(), client_id: None }
            }
            Ok(_) | Err(_) => {
                let id = Uuid::new_v5(&THREAD_NAMESPACE, client_id.as_bytes());
                Self { id: id.to_string(), client_id: Some(client_id) }
            }
        }
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_a_thread_of_its_own_and_anything_else_gets_one() {
        for (client_id, id, is_named) in [
            ("01a200b7-5ee5-70e2-95e8-b76fe45c0278", "01a200b7-5ee5-70e2-95e8-b76fe45c0278", false),
            ("01A200B7-5EE5-70E2-95E8-B76FE45C0278", "01a200b7-5ee5-70e2-95e8-b76fe45c0278", false),
            ("01a200b75ee570e295e8b76fe45c0278", "c9910a76-2c3a-5cec-8952-fea3e1ebd5fb", true),
            ("my thread", "e817c419-7e64-5f51-8a5c-c4cf14d1fb2d", true),
            ("", "7f5b744d-5886-5daf-b4df-014a8704e229", true),
        ] {
            let thread = ThreadName::of(client_id);
            assert_eq!(thread.id, id, "{client_id}");
            assert_eq!(thread.client_id.is_some(), is_named, "{client_id}");
        }
    }
}
