//! HTTP for the event stream's client, over the HTTP client that the gateway has already.
//!
//! The transport of the library itself would add HTTP/2, another TLS library and proxies. This one
//! adds two limits that the library lacks: on silence, and on the size of an event.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http::HeaderMap;
use http_body_util::BodyExt;
use launchdarkly_sdk_transport::{ByteStream, HttpTransport, ResponseFuture, TransportError};

use crate::upstream::Tls;
use threadway_translate::sse::MAX_EVENT_BYTES;

/// How long the gateway may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the gateway may be silent: three of its keep-alives, which come every 15 s.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(45);

/// The transport, over reqwest.
#[derive(Clone, Debug)]
pub(super) struct Transport(reqwest::Client);

/// The size of the current event so far.
#[derive(Debug, Default)]
struct EventSize {
    bytes: usize,
    last: u8,
    is_line_empty: bool,
}

/// An event exceeds the limit.
#[derive(Debug, thiserror::Error)]
#[error("an event is longer than {MAX_EVENT_BYTES} bytes")]
struct TooLarge;

// === impl Transport ===

impl Transport {
    /// A transport that sends these headers with each request.
    pub(super) fn new(headers: HeaderMap) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(Tls::default().config()?)
            .default_headers(headers)
            // The event stream's client follows redirects.
            .redirect(reqwest::redirect::Policy::none())
            // Environment variables must not route requests through a proxy, as with the upstream.
            .no_proxy()
            .http1_only()
            // A stream occupies its connection. A pooled one might be closed when it is used.
            .pool_max_idle_per_host(0)
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(SILENCE_TIMEOUT)
            .tcp_nodelay(true)
            .build()?;
        Ok(Self(http))
    }

    pub(super) fn get(&self, url: &str) -> reqwest::RequestBuilder {
        self.0.get(url)
    }
}

impl HttpTransport for Transport {
    fn request(&self, request: http::Request<Option<Bytes>>) -> ResponseFuture {
        let http = self.0.clone();
        Box::pin(async move {
            let request = request.map(Option::unwrap_or_default);
            let request = reqwest::Request::try_from(request).map_err(TransportError::new)?;
            let response = http.execute(request).await.map_err(TransportError::new)?;
            let (parts, body) = http::Response::<reqwest::Body>::from(response).into_parts();
            let mut size = EventSize::default();
            let body: ByteStream = Box::pin(body.into_data_stream().map(move |chunk| {
                let chunk = chunk.map_err(TransportError::new)?;
                size.push(&chunk).map_err(TransportError::new)?;
                Ok(chunk)
            }));
            Ok(http::Response::from_parts(parts, body))
        })
    }
}

/// The innermost cause, which says most and contains no URL.
pub(super) fn last_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

// === impl EventSize ===

impl EventSize {
    /// Counts the bytes since the last blank line, which ends an event.
    fn push(&mut self, chunk: &[u8]) -> Result<(), TooLarge> {
        for byte in chunk {
            match byte {
                // The second half of a line end.
                b'\n' if self.last == b'\r' => {}
                b'\n' | b'\r' if self.is_line_empty => self.bytes = 0,
                b'\n' | b'\r' => self.is_line_empty = true,
                _ => self.is_line_empty = false,
            }
            self.bytes += 1;
            self.last = *byte;
        }
        if self.bytes > MAX_EVENT_BYTES { Err(TooLarge) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_blank_line_ends_an_event() {
        for (line_end, counted) in [("\n", 1), ("\r", 1), ("\r\n", 2)] {
            let mut size = EventSize::default();
            let lines = format!("data: a{line_end}data: b{line_end}");
            size.push(lines.as_bytes()).unwrap();
            assert_eq!(size.bytes, lines.len(), "{line_end:?}");
            // Chunks may end anywhere, also inside of a line end.
            for byte in line_end.bytes() {
                size.push(&[byte]).unwrap();
            }
            assert_eq!(size.bytes, counted, "{line_end:?}");
        }
    }

    #[test]
    fn an_event_that_does_not_end_is_refused() {
        let mut size = EventSize::default();
        let chunk = vec![b'x'; MAX_EVENT_BYTES / 4];
        for _ in 0..4 {
            size.push(&chunk).unwrap();
        }
        size.push(b"x").unwrap_err();
    }
}
