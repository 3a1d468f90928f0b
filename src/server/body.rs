//! Reading a request's body, within a size, a time, and the memory for clients.
//!
//! ```text
//!   up to 64 KiB --> the credentials are accepted --> the rest --> a `ReadBody`, which is charged
//!   a stranger's     LangGraph is asked, if it        the caller's
//!   share            has not accepted them before     share
//! ```
//! Anybody can invent credentials that LangGraph has yet to check. So nobody's body is kept before
//! that, but for its first part: most bodies are short, and LangGraph need not be asked twice.

use std::ops::Deref;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;

use super::gateway::RequestContext;
use super::reject::Reject;
use crate::metrics::{Charge, ChargedTo, Held, SMALL};

/// How long a client may take to send its request's body.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// A body that was read. Its bytes are charged until this is dropped.
#[derive(Debug)]
pub(super) struct ReadBody {
    bytes: Vec<u8>,
    charge: Charge,
}

/// Reads a body that must be JSON.
pub(super) async fn read_json(
    context: &RequestContext,
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<ReadBody, Reject> {
    expect_json(headers)?;
    read_body(context, headers, body, limit).await
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
pub(super) async fn read_body(
    context: &RequestContext,
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<ReadBody, Reject> {
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: usize| length > limit) {
        return Err(too_large(limit));
    }
    let read = async {
        let mut read = ReadBody::begin(context);
        if length.is_some_and(|length| length > SMALL) {
            read.prove(context).await?;
        }
        read.fill(context, body, length.unwrap_or(limit), limit).await?;
        Ok(read)
    };
    tokio::time::timeout(BODY_TIMEOUT, read).await.unwrap_or_else(|_| {
        let message = format!(
            "the body did not arrive within {} s; send the request again",
            BODY_TIMEOUT.as_secs()
        );
        Err(Reject::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", message))
    })
}

/// Checks a body that came as one message on a socket, and was charged as it came.
pub(super) async fn expect_message(
    context: &RequestContext,
    bytes: usize,
    limit: usize,
) -> Result<(), Reject> {
    if bytes > limit {
        return Err(too_large(limit));
    }
    if bytes > SMALL {
        context.prove().await?;
    }
    Ok(())
}

// === impl ReadBody ===

impl ReadBody {
    fn begin(context: &RequestContext) -> Self {
        let charge = context.gateway.observer.metrics.memory().charge(Held::Body, context.holder());
        Self { bytes: Vec::new(), charge }
    }

    /// Has the body count as its caller's, once the caller's credentials are accepted.
    async fn prove(&mut self, context: &RequestContext) -> Result<(), Reject> {
        if self.charge.holder() == ChargedTo::Stranger {
            let holder = context.prove().await?;
            let memory = context.gateway.observer.metrics.memory();
            let mut charge = memory.charge(Held::Body, holder);
            charge.set(self.bytes.capacity())?;
            self.charge = charge;
        }
        Ok(())
    }

    /// Reads to the end. `expected` is the most bytes that the body is likely to have.
    async fn fill(
        &mut self,
        context: &RequestContext,
        mut body: Body,
        expected: usize,
        limit: usize,
    ) -> Result<(), Reject> {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                Reject::invalid(format!("reading the body failed: {error}; send the request again"))
            })?;
            let Ok(data) = frame.into_data() else { continue };
            let length = self.bytes.len() + data.len();
            if length > limit {
                return Err(too_large(limit));
            }
            if length > SMALL {
                self.prove(context).await?;
            }
            self.grow(context, length, expected.max(length)).await?;
            self.bytes.extend_from_slice(&data);
        }
        Ok(())
    }

    /// Makes room for `length` bytes in all: doubled as a vector does by itself, up to `most`.
    async fn grow(
        &mut self,
        context: &RequestContext,
        length: usize,
        most: usize,
    ) -> Result<(), Reject> {
        let capacity = self.bytes.capacity();
        if length <= capacity {
            return Ok(());
        }
        let wanted = capacity.saturating_mul(2).clamp(length, most);
        if self.charge.set(wanted).is_err() {
            // Strangers have used up their share.
            self.prove(context).await?;
            self.charge.set(wanted)?;
        }
        self.bytes.reserve_exact(wanted - self.bytes.len());
        Ok(())
    }

    /// The charge, for whoever keeps what was read of the bytes.
    pub(super) fn into_charge(self) -> Charge {
        self.charge
    }

    /// The bytes, and their charge.
    pub(super) fn into_parts(self) -> (Bytes, Charge) {
        (self.bytes.into(), self.charge)
    }
}

impl Deref for ReadBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

fn too_large(limit: usize) -> Reject {
    let message = format!(
        "the body is longer than {limit} bytes; send attachments by URL, or begin a new thread"
    );
    Reject::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
}
