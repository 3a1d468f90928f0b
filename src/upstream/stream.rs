//! The stream of a run.

use std::fmt;

#[cfg(test)]
use bytes::Bytes;
use http::Response;
use http::header::CONTENT_TYPE;

use super::addresses::Affinity;
use super::{Error, http1, response};

/// A response that streams a run.
#[derive(Debug)]
pub struct RunStream {
    /// LangGraph's id of the run, if the response headers have it.
    pub run_id: Option<String>,
    /// The `Date` of the response: milliseconds since 1970 on the server's clock, with the
    /// precision of a second.
    pub date: Option<u64>,
    /// The event stream.
    pub body: Body,
    /// Keeps requests about the thread at the address of the stream. `None` if there is no other.
    pub(crate) affinity: Option<Affinity>,
}

/// The bytes of a run's stream. Dropping it before its end closes the connection.
pub struct Body(BodySource);

enum BodySource {
    Http(http1::Body),
    #[cfg(test)]
    Scripted(http_body_util::combinators::BoxBody<Bytes, std::convert::Infallible>),
}

// === impl RunStream ===

impl RunStream {
    /// Fails if the response is not an event stream.
    pub(super) fn new(response: Response<http1::Body>) -> Result<Self, Error> {
        let headers = response.headers();
        let content_type = response::header(headers, &CONTENT_TYPE).unwrap_or_default();
        if !content_type.trim_start().to_ascii_lowercase().starts_with("text/event-stream") {
            return Err(Error::NotAnEventStream { content_type: content_type.to_owned() });
        }
        let (run_id, date) = (response::run_id(headers), response::date(headers));
        let body = Body(BodySource::Http(response.into_body()));
        Ok(Self { run_id, date, body, affinity: None })
    }
}

// === impl Body ===

impl Body {
    /// A stream that a test scripts.
    #[cfg(test)]
    pub(crate) fn of<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes, Error = std::convert::Infallible> + Send + Sync + 'static,
    {
        Self(BodySource::Scripted(http_body_util::combinators::BoxBody::new(body)))
    }

    /// Waits for bytes, and appends what has arrived to `into`. Returns whether more may follow; at
    /// the end of the stream it appends nothing. Cancel safe.
    pub async fn read(&mut self, into: &mut Vec<u8>) -> Result<bool, Error> {
        match &mut self.0 {
            BodySource::Http(body) => Ok(body.read(into).await?),
            #[cfg(test)]
            BodySource::Scripted(body) => {
                let frame = http_body_util::BodyExt::frame(body).await;
                let chunk = frame.and_then(|Ok(frame)| frame.into_data().ok());
                into.extend_from_slice(chunk.as_deref().unwrap_or_default());
                Ok(chunk.is_some())
            }
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Body")
    }
}
